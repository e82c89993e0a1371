// Gaps: parts of a block that its stripe leaves out, as they are zeros (docs/format.md, "Gaps of a
// block"). So a hole that is smaller than a block takes no space either. Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace pinstripe {

// A part of a block.
struct BlockExtent {
  uint32_t first = 0;
  uint32_t length = 0;
  uint32_t end() const { return first + length; }
  friend bool operator==(const BlockExtent&, const BlockExtent&) = default;
};

inline constexpr uint32_t kGapUnit = 4096;  // they begin and end at multiples of it
inline constexpr size_t kMaxGaps = 64;      // of one block

// How many bytes before `end` are in gaps, which ascend and do not overlap.
uint64_t GapBytes(std::span<const BlockExtent> gaps, uint64_t end = UINT64_MAX);

// Whether a stripe of `stored` bytes may have them: some, not too many, ascending, none at its end
// and no two side by side.
bool ArePossibleGaps(std::span<const BlockExtent> gaps, uint32_t stored);

// Where a block is zeros.
struct ZerosOfBlock {
  std::vector<BlockExtent> gaps;  // the longest, if there are too many
  uint32_t end = 0;               // from here on, to its end; 0: all of it. Or its length
};
ZerosOfBlock FindZeros(Bytes block);

}  // namespace pinstripe
