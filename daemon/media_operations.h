// MediaScan and MediaOptimize: what a device does to its own medium when it is asked (MEDIASCAN,
// MEDIAOPTIMIZE), beside the requests of others.
//
// A scan reads every record of a range wholly and names those that are damaged: that the store
// finds damaged or cannot read, or whose tag does not fit the value (tag_check.h).

#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "base/runtime.h"
#include "daemon/engine.h"
#include "store/long_operation.h"

namespace pinstripe {

namespace kinetic {
class Command;
}  // namespace kinetic

class MediaScan final : public LongOperation {
 public:
  struct Asked {
    KeyRange range;
    uint32_t max_damaged = 0;     // it names so many, and ends at the next; 1..kMaxRangeKeys
    bool checksums_only = false;  // tags are not looked at: our extension
  };

  // All outlive it. Fills `answer`: the damaged keys; endKey, which is the one of the question when
  // all was read, else where it goes on: the first damaged key that is not named, or when time ran
  // out the last key that was read; how much was read.
  MediaScan(Runtime& runtime, Engine& engine, Asked asked, kinetic::Command* answer);

  bool Work(Time until, Cancellation& cancellation) override;

 private:
  Result<bool> Step();
  Result<bool> IsDamaged(const std::string& key);
  void Finish(const Status& status, bool complete);

  Runtime& runtime_;
  Engine& engine_;
  Asked asked_;  // its range begins behind what was read
  const std::string asked_last_;
  kinetic::Command* const answer_;
  std::deque<std::string> next_;  // keys that are to be read
  std::string last_read_;
  uint64_t records_ = 0;
  uint64_t value_bytes_ = 0;
};

class MediaOptimize final : public LongOperation {
 public:
  MediaOptimize(Engine& engine, KeyRange range, kinetic::Command* answer)
      : engine_(engine), range_(std::move(range)), answer_(answer) {}

  bool Work(Time until, Cancellation& cancellation) override;

 private:
  Engine& engine_;
  const KeyRange range_;
  kinetic::Command* const answer_;
};

}  // namespace pinstripe
