// How the bytes that were written to a stored block are stored: as a patch over it, or with all of
// it as a new stripe. Pure.
//
// A patch needs no byte of the block, and writes m+1 copies of what was written instead of the
// whole block with its parity. Readers pay: for each patch that has bytes they want, one request
// more. So a block has at most kMaxPatches of them, with a sixteenth of its bytes; then it is
// written anew.

#pragma once

#include <optional>

#include "fs/files/block_map.h"
#include "fs/files/interval_set.h"

namespace pinstripe {

// The bytes that one more patch over the block is to have, of which `written` were written now:
// these, and, where the patches would become too many, those of the last ones, whose place it
// takes. Null: the block is to be written anew. Asked again with the answer, it gives the same.
std::optional<IntervalSet> PlanPatch(const BlockPlace& place, const IntervalSet& written);

}  // namespace pinstripe
