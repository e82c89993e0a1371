// LatencyHistogram: how many times something took how long. The buckets are fixed, and the same
// everywhere, so that histograms of several drives or processes can be added up.
//
// To count is two atomic additions, without a lock. Thread-safe.

#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "base/runtime.h"

namespace pinstripe {

// What a histogram held at one moment.
struct LatencyCounts {
  // The upper ends of the buckets, in nanoseconds; one more bucket has what took longer.
  static constexpr std::array<int64_t, 19> kEnds = {
      20'000,        50'000,        100'000,        200'000,       500'000,
      1'000'000,     2'000'000,     5'000'000,      10'000'000,    20'000'000,
      50'000'000,    100'000'000,   200'000'000,    500'000'000,   1'000'000'000,
      2'000'000'000, 5'000'000'000, 10'000'000'000, 20'000'000'000};
  static constexpr size_t kBuckets = kEnds.size() + 1;

  std::array<uint64_t, kBuckets> of{};
  uint64_t nanoseconds = 0;  // of all

  uint64_t count() const { return std::accumulate(of.begin(), of.end(), uint64_t{0}); }

  void Add(const LatencyCounts& other) {
    for (size_t i = 0; i < kBuckets; ++i) of[i] += other.of[i];
    nanoseconds += other.nanoseconds;
  }

  // What came since an earlier moment. Where the counts began anew meanwhile: all.
  LatencyCounts Since(const LatencyCounts& before) const {
    LatencyCounts since = *this;
    for (size_t i = 0; i < kBuckets; ++i) {
      if (of[i] < before.of[i]) return *this;
      since.of[i] -= before.of[i];
    }
    since.nanoseconds -= std::min(nanoseconds, before.nanoseconds);
    return since;
  }

  // Within which time `share` (0 to 1) of all were done, as if they lay evenly in their bucket.
  // 0: there were none.
  Duration Quantile(double share) const {
    const double wanted = share * static_cast<double>(count());
    double below = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      const auto here = static_cast<double>(of[i]);
      if (here > 0 && below + here >= wanted) {
        const int64_t begin = i == 0 ? 0 : kEnds[i - 1];
        if (i == kEnds.size()) return Duration(begin);
        const double part = (wanted - below) / here;
        return Duration(begin + static_cast<int64_t>(part * static_cast<double>(kEnds[i] - begin)));
      }
      below += here;
    }
    return {};
  }
};

class LatencyHistogram {
 public:
  void Add(Duration took) {
    const int64_t nanoseconds = std::max<int64_t>(took.count(), 0);
    const auto& ends = LatencyCounts::kEnds;
    const auto end = std::find_if(ends.begin(), ends.end(),
                                  [nanoseconds](int64_t each) { return nanoseconds <= each; });
    const auto bucket = static_cast<size_t>(end - ends.begin());
    of_[bucket].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(static_cast<uint64_t>(nanoseconds), std::memory_order_relaxed);
  }

  LatencyCounts Load() const {
    LatencyCounts counts;
    for (size_t i = 0; i < of_.size(); ++i) counts.of[i] = of_[i].load(std::memory_order_relaxed);
    counts.nanoseconds = nanoseconds_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  std::array<std::atomic<uint64_t>, LatencyCounts::kBuckets> of_{};
  std::atomic<uint64_t> nanoseconds_ = 0;
};

}  // namespace pinstripe
