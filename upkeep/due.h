// What a cluster needs again and again (a check, a collection, a scrub), and when that is due. By
// the last looks alone (upkeep/last_look.h), so whoever asks, on whatever host, finds the same.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "cluster/cluster.h"
#include "upkeep/last_look.h"

namespace pinstripe {

struct LastLooks {
  std::optional<LastLook> listed;
  std::optional<LastLook> read;
  std::optional<LastLook> collected;
};

LastLooks FindLastLooks(Cluster& cluster);

enum class CareTask { kCheck, kCollect, kScrub };

struct CareIntervals {
  Duration check = std::chrono::hours(24);
  Duration collect = std::chrono::hours(24 * 7);
  Duration scrub = std::chrono::hours(24 * 30);
};

// In the order in which it is to be done. What nobody has ever done is due; so is what somebody did
// in the future, by a clock that was wrong. A scrub says all that a check does. One that could not
// look at everything is done again when a check is due, and `all_are_up`: the drives.
std::vector<CareTask> WhatIsDue(const LastLooks& looks, const CareIntervals& intervals, int64_t now,
                                bool all_are_up = true);

// While a scrub goes on, which may take weeks: what it should make room for.
std::vector<CareTask> WhatIsDueMeanwhile(const LastLooks& looks, const CareIntervals& intervals,
                                         int64_t now);

// Sentences on what was done too long ago, for people and for `pinstripe status`: well after it was
// due, so that a timer that was late is no reason to complain. Of what was never done they say
// nothing: a cluster of an earlier version says so elsewhere.
std::vector<std::string> Overdue(const LastLooks& looks, int64_t now);

}  // namespace pinstripe
