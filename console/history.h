// History: how full each drive was, how it was and what it did, over the last day. In memory, and
// bounded: a sample a minute of each drive.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "upkeep/cluster_use.h"
#include "upkeep/survey.h"

namespace pinstripe {

enum class DriveLook : uint8_t {
  kUp,
  kFull,
  kDoubt,     // it has no say in names and inodes
  kDraining,  // it is to become empty
  kDrained,   // it may go
  kFailed,    // it serves reads at best
  kDown,
  kMissing,  // the configuration lacks it
  kNew,      // the configuration lists it, and it was not added yet
};
DriveLook StateOf(const DriveReport& drive);
std::string_view NameOf(DriveLook state);  // "up", ..., in the interface

// Thread-safe.
class History {
 public:
  static constexpr int64_t kBetweenSamples = 60;  // seconds
  static constexpr size_t kMostSamples = 24 * 60;
  static constexpr size_t kMostDrives = 4096;

  // Since the sample before.
  struct Work {
    float bytes_read = 0;  // a second
    float bytes_written = 0;
    float reads_p99 = 0;  // seconds; 0: nothing was read
    float writes_p99 = 0;
    friend bool operator==(const Work&, const Work&) = default;
  };
  struct Sample {
    int64_t at = 0;  // seconds since 1970
    uint64_t used_bytes = 0;
    DriveLook state = DriveLook::kUp;
    std::optional<Work> work;  // none: the drive did not tell
    friend bool operator==(const Sample&, const Sample&) = default;
  };

  // Whether Add() would keep a sample of each drive now: a minute has passed.
  bool IsDue(int64_t now) const;

  // Keeps a sample of each drive when that is due, and of a drive whose state has changed. Drives
  // that the survey has no more are forgotten. `work` is that since it was due before, and is not
  // looked at otherwise.
  void Add(int64_t now, const Survey& survey, const std::vector<DriveWorkReport>& work = {});

  // Oldest first; of 0: of all drives together, whose state is always kUp.
  std::vector<Sample> Of(DriveId drive) const;

 private:
  bool IsDueLocked(int64_t now) const REQUIRES(mutex_);
  static void Keep(std::deque<Sample>& samples, const Sample& sample, bool is_due);

  mutable Mutex mutex_;
  std::map<DriveId, std::deque<Sample>> samples_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
