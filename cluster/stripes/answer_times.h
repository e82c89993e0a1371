// AnswerTimes: how long good answers of each drive take of late, and from when on one is late.
//
// For each drive and each size of answers there is a histogram of logarithmic buckets, in which old
// answers count for less and less. An answer is late when it takes longer than the 99th percentile
// of the drive in the middle, of those whose percentile is known. So one slow drive does not move
// the limit. Where all drives are alike, one answer in a hundred is late, however fast or busy they
// are.
//
// Thread-safe.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "base/runtime.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

class AnswerTimes {
 public:
  // The limit is `at_first` as long as too little was measured, and never below `at_least`.
  AnswerTimes(Duration at_first, Duration at_least);

  void Note(DriveId drive, uint64_t bytes, Duration took);

  // For an answer of so many bytes.
  Duration Late(uint64_t bytes) const { return Duration(late_[SizeOf(bytes)]); }

  // Whether more than half of such answers of this drive were late.
  bool IsSlow(DriveId drive, uint64_t bytes) const;

 private:
  static constexpr size_t kSizes = 5;     // up to 64, 128, 256, 512 KiB, and more
  static constexpr size_t kBuckets = 80;  // four for each power of two, from 2^14 ns on

  struct Histogram {
    std::array<uint16_t, kBuckets> counts{};
    uint32_t total = 0;
    bool is_slow = false;

    // The bucket in which the smallest `share` of the answers end.
    size_t Quantile(double share) const;
  };
  using Drives = std::map<DriveId, Histogram>;

  static size_t SizeOf(uint64_t bytes);
  static size_t BucketOf(Duration took);
  static Duration BeginOf(size_t bucket);
  void Learn(size_t size) REQUIRES(mutex_);

  const Duration at_least_;
  std::array<std::atomic<Duration::rep>, kSizes> late_;
  mutable Mutex mutex_;
  std::array<Drives, kSizes> drives_ GUARDED_BY(mutex_);
  std::array<uint32_t, kSizes> unlearned_ GUARDED_BY(mutex_){};  // answers since Learn()
};

}  // namespace pinstripe
