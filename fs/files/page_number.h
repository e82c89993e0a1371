// PageNumber: under which block number a page of a block map is stored. The stripes of a file share
// one row of numbers: a page has that of the first block it is about, with bit 63 (docs/format.md,
// "Block map").

#pragma once

#include <cstdint>
#include <optional>

namespace pinstripe {

class PageNumber {
 public:
  // Of the page that begins with this block.
  explicit constexpr PageNumber(uint64_t first_block) : first_block_(first_block) {}

  // Whether the stripe with this block number is a page.
  static constexpr bool Is(uint64_t number) { return (number & kBit) != 0; }
  // Null: it is a block of contents.
  static constexpr std::optional<PageNumber> From(uint64_t number) {
    return Is(number) ? std::optional(PageNumber(number & ~kBit)) : std::nullopt;
  }

  constexpr uint64_t first_block() const { return first_block_; }
  // As stripes are numbered. Every page comes after all blocks of contents.
  constexpr uint64_t number() const { return kBit | first_block_; }

 private:
  static constexpr uint64_t kBit = uint64_t{1} << 63;
  uint64_t first_block_;
};

}  // namespace pinstripe
