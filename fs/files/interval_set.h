// IntervalSet: a set of numbers, kept as disjoint intervals [first, end). For instance the bytes
// written inside a block, or the blocks that were touched. One thread at a time.

#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace pinstripe {

class IntervalSet {
 public:
  struct Interval {
    uint64_t first = 0;
    uint64_t end = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  };

  bool empty() const { return intervals_.empty(); }
  uint64_t end() const { return empty() ? 0 : std::prev(intervals_.end())->second; }
  // How many numbers there are in it.
  uint64_t Count() const {
    uint64_t count = 0;
    for (const auto& [first, end] : intervals_) count += end - first;
    return count;
  }

  void Add(uint64_t first, uint64_t end) {
    assert(first <= end);
    if (first == end) return;
    auto next = intervals_.upper_bound(first);
    if (next != intervals_.begin() && std::prev(next)->second >= first) --next;
    while (next != intervals_.end() && next->first <= end) {
      first = std::min(first, next->first);
      end = std::max(end, next->second);
      next = intervals_.erase(next);
    }
    intervals_.emplace(first, end);
  }

  void Add(const IntervalSet& other) {
    for (const auto& [first, end] : other.intervals_) Add(first, end);
  }

  void Remove(uint64_t first, uint64_t end) {
    for (const Interval& part : Within(first, end)) {
      const auto at = std::prev(intervals_.upper_bound(part.first));
      const Interval whole{at->first, at->second};
      intervals_.erase(at);
      if (whole.first < part.first) intervals_.emplace(whole.first, part.first);
      if (part.end < whole.end) intervals_.emplace(part.end, whole.end);
    }
  }

  // Takes away everything from `first` on.
  void CutFrom(uint64_t first) {
    intervals_.erase(intervals_.lower_bound(first), intervals_.end());
    if (!empty() && end() > first) std::prev(intervals_.end())->second = first;
  }

  bool Contains(uint64_t number) const { return Covers(number, number + 1); }

  bool Covers(uint64_t first, uint64_t end) const {
    if (first >= end) return true;
    auto next = intervals_.upper_bound(first);
    return next != intervals_.begin() && std::prev(next)->second >= end;
  }

  // The parts of [first, end) that are in the set, and those that are not; ascending.
  std::vector<Interval> Within(uint64_t first, uint64_t end) const {
    std::vector<Interval> parts;
    auto next = intervals_.upper_bound(first);
    if (next != intervals_.begin()) --next;
    for (; next != intervals_.end() && next->first < end; ++next) {
      const Interval part{std::max(first, next->first), std::min(end, next->second)};
      if (part.first < part.end) parts.push_back(part);
    }
    return parts;
  }
  std::vector<Interval> GapsWithin(uint64_t first, uint64_t end) const {
    std::vector<Interval> gaps;
    for (const Interval& part : Within(first, end)) {
      if (first < part.first) gaps.push_back({first, part.first});
      first = part.end;
    }
    if (first < end) gaps.push_back({first, end});
    return gaps;
  }

 private:
  std::map<uint64_t, uint64_t> intervals_;  // first -> end; disjoint, not even touching
};

}  // namespace pinstripe
