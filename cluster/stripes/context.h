// State that reading, writing and repairing stripes share. Private to StripeStore.

#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/try.h"
#include "cluster/stripes/answer_times.h"
#include "cluster/stripes/full_drives.h"
#include "cluster/stripes/janitor.h"
#include "cluster/stripes/shard.h"
#include "cluster/stripes/store.h"
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
    const MutexLock lock(mutex_);
    auto& codec = codecs_[{geometry.data_shards, geometry.parity_shards}];
    if (!codec) codec = TRY(Codec::Create(geometry));
    return codec;
  }

 private:
  Mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<const Codec>> codecs_ GUARDED_BY(mutex_);
};

// When somebody has last waited in vain for drives that are away: others who were at it meanwhile
// need not wait as long once more. Thread-safe.
class VainWaits {
 public:
  void NoteInVain(Time now) { last_ = now.time_since_epoch(); }
  bool WasInVainSince(Time begun) const { return last_.load() >= begun.time_since_epoch(); }

 private:
  std::atomic<Time::duration> last_{Time::duration::min()};
};

struct StripeContext {
  StripeContext(Runtime& runtime_in, DriveDirectory& drives_in, StripeStore::Options options_in)
      : runtime(runtime_in),
        drives(drives_in),
        options(std::move(options_in)),
        answer_times(std::make_shared<AnswerTimes>(options.hedge_at_first, options.hedge_at_least)),
        janitor(std::make_shared<Janitor>(runtime_in)) {}

  KnownStripe Known(const StripeId& id, const StripeLayout& layout, uint64_t length) const {
    return {id, layout, length, options.check_names};
  }

  // For messages: "drive 3 (127.0.0.1:8103)".
  std::string NameOf(DriveId id) const {
    const Drive* drive = drives.FindDrive(id);
    return drive != nullptr ? std::string(drive->name()) : fmt::format("drive {}", id);
  }

  Runtime& runtime;
  DriveDirectory& drives;
  const StripeStore::Options options;
  AtomicStripeCounters counters;
  const std::shared_ptr<AnswerTimes> answer_times;  // answers may come when all else is gone
  Codecs codecs;
  FullDrives full;  // of data
  VainWaits waits;
  VainWaits waits_when_full;  // where other drives have no room
  const std::shared_ptr<Janitor> janitor;
};

}  // namespace pinstripe
