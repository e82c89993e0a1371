#include "cluster/stripes/range_sums.h"

#include <algorithm>
#include <cassert>

#include "base/checksum.h"
#include "base/try.h"

namespace pinstripe {
namespace {

using Range = RangeSums::Range;

uint32_t SumOf(const Range& range, Bytes bytes) {
  return Crc32c(bytes.subspan(range.first, range.size));
}

// A part of `range`, with its sum. A wrong one, where the range itself is not what it should be.
Range PartOf(const Range& range, uint64_t first, uint64_t end, Bytes bytes) {
  Range part{first, static_cast<uint32_t>(end - first)};
  part.crc32c = SumOf(part, bytes);
  if (SumOf(range, bytes) != range.crc32c) part.crc32c = ~part.crc32c;
  return part;
}

}  // namespace

Status DamagedRange(const Range& range) {
  return Fail(EDOM, "bytes {} to {} are not what they were sent as", range.first, range.end() - 1);
}

void RangeSums::Add(std::span<const Range> ranges) {
  if (ranges.empty()) return;
  const auto at = std::ranges::lower_bound(ranges_, ranges.front().first, {}, &Range::first);
  assert(at == ranges_.begin() || std::prev(at)->end() <= ranges.front().first);
  assert(at == ranges_.end() || ranges.back().end() <= at->first);
  ranges_.insert(at, ranges.begin(), ranges.end());
}

void RangeSums::Cut(uint64_t first, uint64_t end, Bytes bytes) {
  if (first >= end || first >= this->end()) return;
  const auto begin = std::ranges::upper_bound(ranges_, first, {}, &Range::end);
  auto last = begin;
  std::vector<Range> left;
  for (; last != ranges_.end() && last->first < end; ++last) {
    if (last->first < first) left.push_back(PartOf(*last, last->first, first, bytes));
    if (last->end() > end) left.push_back(PartOf(*last, end, last->end(), bytes));
  }
  ranges_.insert(ranges_.erase(begin, last), left.begin(), left.end());
}

void RangeSums::AddCopied(const RangeSums& sums, Bytes bytes, uint64_t first, uint64_t end,
                          uint64_t target) {
  std::vector<Range> copied;
  const auto begin = std::ranges::upper_bound(sums.ranges_, first, {}, &Range::end);
  for (auto at = begin; at != sums.ranges_.end() && at->first < end; ++at) {
    const uint64_t from = std::max(first, at->first);
    const uint64_t to = std::min(end, at->end());
    const bool is_whole = from == at->first && to == at->end();
    copied.push_back(is_whole ? *at : PartOf(*at, from, to, bytes));
    copied.back().first = copied.back().first - first + target;
  }
  Add(copied);
}

Status RangeSums::Check(Bytes bytes) const {
  for (const Range& range : ranges_) {
    if (SumOf(range, bytes) != range.crc32c) return DamagedRange(range);
  }
  return {};
}

}  // namespace pinstripe
