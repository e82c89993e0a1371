// History: how full each drive was and how it was, over the last day. In memory, and bounded: a
// sample a minute of each drive.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <vector>

#include "base/mutex.h"
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

  struct Sample {
    int64_t at = 0;  // seconds since 1970
    uint64_t used_bytes = 0;
    DriveLook state = DriveLook::kUp;
    friend bool operator==(const Sample&, const Sample&) = default;
  };

  // Keeps a sample of a drive when a minute has passed since its last one, or its state has
  // changed. Drives that the survey has no more are forgotten.
  void Add(int64_t now, const Survey& survey);

  // Oldest first; of 0: of all drives together, whose state is always kUp.
  std::vector<Sample> Of(DriveId drive) const;

 private:
  static void Keep(std::deque<Sample>& samples, const Sample& sample);

  mutable Mutex mutex_;
  std::map<DriveId, std::deque<Sample>> samples_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
