#include "fs/files/block_gaps.h"

#include <algorithm>
#include <cstring>

namespace pinstripe {
namespace {

bool IsZeros(Bytes bytes) {
  if (bytes.empty()) return true;
  // Compared with itself, one byte further on.
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

uint64_t GapBytes(std::span<const BlockExtent> gaps, uint64_t end) {
  uint64_t bytes = 0;
  for (const BlockExtent& gap : gaps) {
    if (gap.first >= end) break;
    bytes += std::min<uint64_t>(gap.end(), end) - gap.first;
  }
  return bytes;
}

bool ArePossibleGaps(std::span<const BlockExtent> gaps, uint32_t stored) {
  if (gaps.empty() || gaps.size() > kMaxGaps) return false;
  uint64_t bytes = 0;
  uint64_t end = 0;
  for (const BlockExtent& gap : gaps) {
    const bool follows = bytes == 0 || gap.first > end;
    if (gap.length == 0 || !follows) return false;
    if (gap.first % kGapUnit != 0 || gap.length % kGapUnit != 0) return false;
    bytes += gap.length;
    end = uint64_t{gap.first} + gap.length;
  }
  return end < stored + bytes && stored + bytes <= UINT32_MAX;
}

ZerosOfBlock FindZeros(Bytes block) {
  ZerosOfBlock zeros;
  bool was_zeros = false;
  for (size_t at = 0; at < block.size(); at += kGapUnit) {
    const size_t length = std::min<size_t>(kGapUnit, block.size() - at);
    const bool is_zeros = IsZeros(block.subspan(at, length));
    if (!is_zeros) zeros.end = static_cast<uint32_t>(at + length);
    if (is_zeros && was_zeros) zeros.gaps.back().length += kGapUnit;
    if (is_zeros && !was_zeros) zeros.gaps.push_back({static_cast<uint32_t>(at), kGapUnit});
    was_zeros = is_zeros;
  }
  if (was_zeros) zeros.gaps.pop_back();  // it is the end
  if (zeros.gaps.size() <= kMaxGaps) return zeros;
  std::ranges::stable_sort(zeros.gaps, std::ranges::greater(), &BlockExtent::length);
  zeros.gaps.resize(kMaxGaps);
  std::ranges::sort(zeros.gaps, {}, &BlockExtent::first);
  return zeros;
}

}  // namespace pinstripe
