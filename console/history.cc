#include "console/history.h"

#include <set>

namespace pinstripe {
DriveLook StateOf(const DriveReport& drive) {
  switch (drive.Condition()) {
    case DriveCondition::kFailed: return DriveLook::kFailed;
    case DriveCondition::kDown: return DriveLook::kDown;
    case DriveCondition::kMissing: return DriveLook::kMissing;
    case DriveCondition::kNotAdded: return DriveLook::kNew;
    case DriveCondition::kDraining: return DriveLook::kDraining;
    case DriveCondition::kDrained: return DriveLook::kDrained;
    case DriveCondition::kUp: break;
  }
  if (!drive.doubt.empty()) return DriveLook::kDoubt;
  return drive.fullness() == Fullness::kFull ? DriveLook::kFull : DriveLook::kUp;
}

std::string_view NameOf(DriveLook state) {
  switch (state) {
    case DriveLook::kUp: return "up";
    case DriveLook::kFull: return "full";
    case DriveLook::kDoubt: return "doubt";
    case DriveLook::kDraining: return "draining";
    case DriveLook::kDrained: return "drained";
    case DriveLook::kFailed: return "failed";
    case DriveLook::kDown: return "down";
    case DriveLook::kMissing: return "missing";
    case DriveLook::kNew: return "new";
  }
  return "";
}

void History::Keep(std::deque<Sample>& samples, const Sample& sample) {
  // A clock that was set back begins anew: an order of times that nobody could draw is of no use.
  if (!samples.empty() && sample.at < samples.back().at) samples.clear();
  const bool is_due = samples.empty() || sample.at - samples.back().at >= kBetweenSamples ||
                      samples.back().state != sample.state;
  if (!is_due) return;
  samples.push_back(sample);
  if (samples.size() > kMostSamples) samples.pop_front();
}

void History::Add(int64_t now, const Survey& survey) {
  const MutexLock lock(mutex_);
  std::set<DriveId> there{0};
  uint64_t used = 0;
  for (const DriveReport& drive : survey.drives) {
    if (there.size() > kMostDrives) break;
    there.insert(drive.id);
    Sample sample{.at = now, .state = StateOf(drive)};
    std::deque<Sample>& samples = samples_[drive.id];
    if (drive.info) {
      sample.used_bytes = UsedBytes(*drive.info);
    } else if (!samples.empty()) {
      sample.used_bytes = samples.back().used_bytes;  // as far as is known
    }
    used += sample.used_bytes;
    Keep(samples, sample);
  }
  std::erase_if(samples_, [&](const auto& drive) { return !there.contains(drive.first); });
  Keep(samples_[0], {.at = now, .used_bytes = used});
}

std::vector<History::Sample> History::Of(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto found = samples_.find(drive);
  if (found == samples_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

}  // namespace pinstripe
