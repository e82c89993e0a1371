#include "cluster/stripes/answer_times.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace pinstripe {
namespace {

constexpr int kFirstPower = 14;
constexpr uint32_t kMemory = 1024;     // of a histogram: then all it has counts half
constexpr uint32_t kEnough = 10;       // answers for a percentile
constexpr uint32_t kLearnEvery = 16;   // answers
constexpr uint64_t kSmallest = 65536;  // bytes

}  // namespace

AnswerTimes::AnswerTimes(Duration at_first, Duration at_least) : at_least_(at_least) {
  for (auto& late : late_) late = at_first.count();
}

size_t AnswerTimes::SizeOf(uint64_t bytes) {
  const uint64_t units = bytes == 0 ? 0 : (bytes - 1) / kSmallest;
  return std::min<size_t>(std::bit_width(units), kSizes - 1);
}

size_t AnswerTimes::BucketOf(Duration took) {
  const auto ns = static_cast<uint64_t>(std::max<Duration::rep>(took.count(), 0));
  if (ns < uint64_t{1} << kFirstPower) return 0;
  const int power = std::bit_width(ns) - 1;
  const uint64_t quarter = (ns >> (power - 2)) & 3;
  return std::min<size_t>(static_cast<size_t>(power - kFirstPower) * 4 + quarter, kBuckets - 1);
}

Duration AnswerTimes::BeginOf(size_t bucket) {
  const uint64_t power = kFirstPower + bucket / 4;
  return Duration((4 + bucket % 4) << (power - 2));
}

size_t AnswerTimes::Histogram::Quantile(double share) const {
  const double wanted = share * total;
  uint32_t seen = 0;
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts[bucket];
    if (seen > 0 && seen >= wanted) return bucket;
  }
  return kBuckets - 1;
}

void AnswerTimes::Note(DriveId drive, uint64_t bytes, Duration took) {
  const size_t size = SizeOf(bytes);
  const MutexLock lock(mutex_);
  Histogram& histogram = drives_[size][drive];
  ++histogram.counts[BucketOf(took)];
  if (++histogram.total >= kMemory) {
    histogram.total = 0;
    for (uint16_t& count : histogram.counts) histogram.total += count /= 2;
  }
  if (++unlearned_[size] >= kLearnEvery) Learn(size);
}

void AnswerTimes::Learn(size_t size) {
  unlearned_[size] = 0;
  std::vector<size_t> ends;  // the bucket after that of each drive's percentile
  for (const auto& [drive, histogram] : drives_[size]) {
    if (histogram.total >= kEnough) ends.push_back(histogram.Quantile(0.99) + 1);
  }
  if (ends.size() < 2) return;
  const auto middle = ends.begin() + static_cast<ptrdiff_t>((ends.size() - 1) / 2);
  std::nth_element(ends.begin(), middle, ends.end());
  const size_t limit = std::max(*middle, BucketOf(at_least_) + 1);
  late_[size] = BeginOf(limit).count();
  for (auto& [drive, histogram] : drives_[size]) {
    histogram.is_slow = histogram.total >= kEnough && histogram.Quantile(0.5) >= limit;
  }
}

bool AnswerTimes::IsSlow(DriveId drive, uint64_t bytes) const {
  const MutexLock lock(mutex_);
  const Drives& drives = drives_[SizeOf(bytes)];
  const auto at = drives.find(drive);
  return at != drives.end() && at->second.is_slow;
}

}  // namespace pinstripe
