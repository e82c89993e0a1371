// Write ids: each names one write of one block, and is never used again. docs/format.md, "Block
// map", has the bytes.

#pragma once

#include <array>
#include <cstdint>

namespace pinstripe {

using WriteId = std::array<uint8_t, 16>;

// `begun`: when the writer began what it commits at once, in seconds since 1970. `writer`: random,
// of the writer's open state. `count`: how often that state wrote the block before.
WriteId MakeWriteId(uint32_t begun, uint64_t writer, uint32_t count);

// The stripe leaves parts of its block out (docs/format.md, "Gaps of a block"): only the block map
// says which. Everything else about the id stays.
WriteId WithGaps(WriteId write);
WriteId WithoutGaps(WriteId write);
bool HasGaps(const WriteId& write);

// When the writer began, in seconds since 1970.
uint32_t TimeOf(const WriteId& write);

}  // namespace pinstripe
