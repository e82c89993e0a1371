// Under which block number the contents of a small file are stored when they lie beside its inode
// (docs/format.md, "Contents beside the inode"). A stripe's block number is a part of what decides
// its group, so one can be chosen whose group is that of the inode's register. Such numbers come
// after all blocks of contents, and before the pages of block maps (fs/files/page_number.h).

#pragma once

#include <cstdint>

namespace pinstripe {

inline constexpr uint64_t kBesideBit = uint64_t{1} << 62;

constexpr bool IsBeside(uint64_t number) {
  return number >= kBesideBit && number - kBesideBit < (uint64_t{1} << 20);
}

// The block of the file that has this number: it is the only one that may lie beside the inode.
constexpr uint64_t BlockOfNumber(uint64_t number) { return IsBeside(number) ? 0 : number; }

}  // namespace pinstripe
