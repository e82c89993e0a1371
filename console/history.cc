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

namespace {

std::optional<History::Work> WorkOf(const DriveWorkReport& report) {
  if (!report.silent.ok()) return std::nullopt;
  const auto p99 = [](const LatencyCounts& took) {
    return std::chrono::duration<float>(took.Quantile(0.99)).count();
  };
  return History::Work{.bytes_read = static_cast<float>(report.rates.bytes_read),
                       .bytes_written = static_cast<float>(report.rates.bytes_written),
                       .reads_p99 = p99(report.reads),
                       .writes_p99 = p99(report.writes)};
}

}  // namespace

void History::Keep(std::deque<Sample>& samples, const Sample& sample, bool is_due) {
  // A clock that was set back begins anew: an order of times that nobody could draw is of no use.
  if (!samples.empty() && sample.at < samples.back().at) samples.clear();
  if (!is_due && !samples.empty() && samples.back().state == sample.state) return;
  samples.push_back(sample);
  if (samples.size() > kMostSamples) samples.pop_front();
}

bool History::IsDueLocked(int64_t now) const {
  const auto all = samples_.find(0);
  if (all == samples_.end() || all->second.empty()) return true;
  const int64_t last = all->second.back().at;
  return now < last || now - last >= kBetweenSamples;
}

bool History::IsDue(int64_t now) const {
  const MutexLock lock(mutex_);
  return IsDueLocked(now);
}

void History::Add(int64_t now, const Survey& survey, const std::vector<DriveWorkReport>& work) {
  const MutexLock lock(mutex_);
  const bool is_due = IsDueLocked(now);
  std::map<DriveId, std::optional<Work>> work_of;
  if (is_due) {
    for (const DriveWorkReport& report : work) work_of[report.id] = WorkOf(report);
    work_of[0] = WorkOf(WorkOfAll(work));
  }
  std::set<DriveId> there{0};
  uint64_t used = 0;
  for (const DriveReport& drive : survey.drives) {
    if (there.size() > kMostDrives) break;
    there.insert(drive.id);
    Sample sample{.at = now, .state = StateOf(drive), .work = work_of[drive.id]};
    std::deque<Sample>& samples = samples_[drive.id];
    if (drive.info) {
      sample.used_bytes = UsedBytes(*drive.info);
    } else if (!samples.empty()) {
      sample.used_bytes = samples.back().used_bytes;  // as far as is known
    }
    used += sample.used_bytes;
    Keep(samples, sample, is_due);
  }
  std::erase_if(samples_, [&](const auto& drive) { return !there.contains(drive.first); });
  Keep(samples_[0], {.at = now, .used_bytes = used, .work = work_of[0]}, is_due);
}

std::vector<History::Sample> History::Of(DriveId drive) const {
  const MutexLock lock(mutex_);
  const auto found = samples_.find(drive);
  if (found == samples_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

}  // namespace pinstripe
