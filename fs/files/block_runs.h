// What the parts of BlockMap share about runs. Internal to it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fs/files/block_map.h"

namespace pinstripe {

using Runs = std::vector<BlockRun>;

// About what a change copies. Stretches that are to be stored are put together again.
inline constexpr size_t kStretchBytes = 8 << 10;

// Of a file of `size` bytes.
uint64_t BlocksOf(uint64_t size, uint64_t block_bytes);

// As a place, or a run, of its own.
BlockPlace AsPlace(const BlockPatch& patch);
BlockRun RunOf(const BlockPlace& place);

// About how many bytes the runs take when they are written.
size_t BytesOf(const Runs& runs);

// Valid bytes of their blocks.
uint64_t StoredIn(const Runs& runs, uint64_t block_bytes);

}  // namespace pinstripe
