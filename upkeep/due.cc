#include "upkeep/due.h"

#include <algorithm>

#include "base/time_text.h"

namespace pinstripe {
namespace {

constexpr Duration kDay = std::chrono::hours(24);
// From when on somebody should hear of it.
constexpr Duration kLateCheck = 4 * kDay;
constexpr Duration kLateCollection = 28 * kDay;
constexpr Duration kLateScrub = 70 * kDay;
// Clocks may differ by as much.
constexpr Duration kSkew = kDay;

Duration AgeOf(const LastLook& look, int64_t now) { return Duration(now - look.at); }

// Times come from the drives and may be anything.
bool IsOfNoTime(const LastLook& look, int64_t now) {
  return look.at < 0 || look.at > now + kSkew.count();
}

bool IsDue(const std::optional<LastLook>& look, Duration interval, int64_t now) {
  if (!look) return true;
  return IsOfNoTime(*look, now) || AgeOf(*look, now) >= interval;
}

}  // namespace

LastLooks FindLastLooks(Cluster& cluster) {
  return {.listed = FindLastLook(cluster, LookKind::kListed),
          .read = FindLastLook(cluster, LookKind::kRead),
          .collected = FindLastLook(cluster, LookKind::kCollected)};
}

std::vector<CareTask> WhatIsDue(const LastLooks& looks, const CareIntervals& intervals, int64_t now,
                                bool all_are_up) {
  std::vector<CareTask> due;
  const bool is_in_part = all_are_up && looks.read && looks.read->not_looked_at > 0;
  const Duration scrub = is_in_part ? std::min(intervals.check, intervals.scrub) : intervals.scrub;
  const bool scrubs = IsDue(looks.read, scrub, now);
  if (!scrubs && IsDue(looks.listed, intervals.check, now)) due.push_back(CareTask::kCheck);
  if (IsDue(looks.collected, intervals.collect, now)) due.push_back(CareTask::kCollect);
  if (scrubs) due.push_back(CareTask::kScrub);
  return due;
}

std::vector<CareTask> WhatIsDueMeanwhile(const LastLooks& looks, const CareIntervals& intervals,
                                         int64_t now) {
  std::vector<CareTask> due;
  if (IsDue(looks.listed, intervals.check, now)) due.push_back(CareTask::kCheck);
  if (IsDue(looks.collected, intervals.collect, now)) due.push_back(CareTask::kCollect);
  return due;
}

std::vector<std::string> Overdue(const LastLooks& looks, int64_t now) {
  std::vector<std::string> late;
  const auto complain = [&](const std::optional<LastLook>& look, Duration most,
                            std::string_view what) {
    if (!look) return;
    if (IsOfNoTime(*look, now)) {
      late.push_back(fmt::format(
          "it is not known when somebody has last {}, as the clock of who did so was wrong", what));
      return;
    }
    if (AgeOf(*look, now) < most) return;
    const double seconds = std::chrono::duration<double>(AgeOf(*look, now)).count();
    late.push_back(fmt::format("nobody has {} for {}", what, DurationText(seconds)));
  };
  complain(looks.listed, kLateCheck, "checked the cluster");
  complain(looks.read, kLateScrub, "scrubbed the cluster");
  complain(looks.collected, kLateCollection, "collected what dead clients left");
  return late;
}

}  // namespace pinstripe
