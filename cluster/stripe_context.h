// What reading, writing and repairing stripes share. Private to StripeStore.

#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/runtime.h"
#include "base/try.h"
#include "cluster/janitor.h"
#include "cluster/stripe_store.h"
#include "erasure/codec.h"

namespace pinstripe {

struct AtomicStripeCounters {
  std::atomic<uint64_t> degraded_reads{0};
  std::atomic<uint64_t> damaged_shards{0};
  std::atomic<uint64_t> missing_shards{0};
  std::atomic<uint64_t> rewritten_shards{0};
  std::atomic<uint64_t> spare_writes{0};
  std::atomic<uint64_t> short_writes{0};
  std::atomic<uint64_t> read_requests{0};
  std::atomic<uint64_t> bytes_fetched{0};

  StripeCounters Load() const {
    return {degraded_reads, damaged_shards, missing_shards, rewritten_shards,
            spare_writes,   short_writes,   read_requests,  bytes_fetched};
  }
};

// The coders of all geometries that were met, made once. Thread-safe.
class Codecs {
 public:
  Result<std::shared_ptr<const Codec>> For(Geometry geometry) {
    const std::lock_guard lock(mutex_);
    auto& codec = codecs_[{geometry.data_shards, geometry.parity_shards}];
    if (!codec) codec = TRY(Codec::Create(geometry));
    return codec;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<const Codec>> codecs_;  // guarded by mutex_
};

// How long good answers take of late: a smoothed mean and deviation, as TCP keeps them for its
// retransmissions (Jacobson 1988). Thread-safe.
class AnswerTimes {
 public:
  void Note(Duration took) {
    const std::lock_guard lock(mutex_);
    const Duration error = took - mean_;
    mean_ += error / 8;
    deviation_ += ((error < Duration{} ? -error : error) - deviation_) / 4;
  }

  // What few answers exceed. Where all drives are busy it grows, so that late answers do not beget
  // more requests and these more late answers.
  Duration Late(Duration at_least) const {
    const std::lock_guard lock(mutex_);
    return std::max(at_least, mean_ + 4 * deviation_);
  }

 private:
  mutable std::mutex mutex_;
  Duration mean_{};       // guarded by mutex_
  Duration deviation_{};  // guarded by mutex_
};

struct StripeContext {
  StripeContext(Runtime& runtime_in, DriveDirectory& drives_in, StripeStore::Options options_in)
      : runtime(runtime_in),
        drives(drives_in),
        options(std::move(options_in)),
        janitor(std::make_shared<Janitor>(runtime_in)) {}

  Runtime& runtime;
  DriveDirectory& drives;
  const StripeStore::Options options;
  AtomicStripeCounters counters;
  AnswerTimes answer_times;
  Codecs codecs;
  const std::shared_ptr<Janitor> janitor;
};

}  // namespace pinstripe
