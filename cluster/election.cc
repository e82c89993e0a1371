// Decides who has a say. Drives that may have forgotten something are compared with the others, and
// the starts since which they are complete are noted.

#include <algorithm>

#include "base/coding.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/cluster_state.h"
#include "cluster/gather.h"
#include "cluster/membership/comparison.h"
#include "cluster/registers/call.h"
#include "cluster/registers/range.h"

namespace pinstripe {

namespace {

struct Evidence {
  uint64_t slot = 0;
  uint64_t start = 0;
};

// Everything that any of the drives that keep the map has heard of starts, whether it is chosen or
// not. A drive that goes on from a copy may hide that it is one if it is among those that decide.
// It cannot hide it from a process that asks all the others.
std::map<DriveId, Evidence> AskForStarts(Runtime& runtime, const ClusterConfig& config,
                                         const std::vector<Drive*>& drives) {
  const std::string prefix = RegisterRecordKey(ClusterPrefix(config.name), {kMapGroup, "T"});
  const RegisterRange::Question question{prefix, prefix + std::string(2, '\xff'), kMaxRangeRecords};
  Gather<Result<RangeRecords>> gather(runtime);
  for (size_t i = 0; i < drives.size(); ++i) {
    if (drives[i] == nullptr || !drives[i]->IsUp()) continue;
    drives[i]->ListRecords(question.first, question.last, question.max, /*reverse=*/false,
                           kRangeValueBytes, runtime.Now() + config.drive_timeout, gather.Ask(i));
  }
  std::map<DriveId, Evidence> heard;
  while (const auto answer = gather.Next(Time::max())) {
    if (!answer->value.has_value() || !RegisterRange::Check(*answer->value, question).ok())
      continue;
    for (const RangeRecord& each : answer->value->records) {
      const auto state = StateFrom(each.key, *drives[answer->index], each.record);
      if (!state.has_value() || !state->proposal->value) continue;
      const auto start = DecodeStart(*state->proposal->value);
      Reader reader(std::string_view(each.key).substr(prefix.size()));
      const DriveId id = reader.U16();
      if (!start.has_value() || !reader.Finish("start of a drive").ok()) continue;
      Evidence& evidence = heard[id];
      if (state->accepted.slot > evidence.slot) evidence = {state->accepted.slot, *start};
    }
  }
  return heard;
}

}  // namespace

Electorate& Cluster::electorate() { return *state_->electorate; }

Status Cluster::LearnStarts() {
  std::vector<DriveId> ids;
  std::vector<Drive*> keepers;
  {
    const MutexLock lock(state_->mutex);
    for (const auto& [id, drive] : state_->drives) ids.push_back(id);
  }
  for (const DriveId id : state_->map_drives) keepers.push_back(FindDrive(id));
  std::vector<RegisterName> names;
  for (const DriveId id : ids) names.push_back({kMapGroup, StartKey(id)});
  const std::map<DriveId, Evidence> heard = AskForStarts(runtime_, config_, keepers);
  const auto values = registers_->ReadMany(names);
  std::map<DriveId, uint64_t> noted;
  for (size_t i = 0; i < ids.size(); ++i) {
    const RegisterValue value =
        TRY_CONTEXT(values[i], "read which drives have a say in the cluster '{}'", config_.name);
    if (value.value) noted[ids[i]] = TRY_CONTEXT(DecodeStart(*value.value), "drive {}", ids[i]);
    // One that has heard of a later start than the drive knows of tells that the drive is a copy.
    const auto evidence = heard.find(ids[i]);
    const auto voter = state_->electorate->Find(ids[i]);
    if (voter && evidence != heard.end() && evidence->second.slot > value.slot &&
        std::ranges::find(voter->starts, evidence->second.start, &DriveStart::id) ==
            voter->starts.end()) {
      noted[ids[i]] = evidence->second.start;
    }
    const MutexLock lock(state_->mutex);
    state_->starts[ids[i]] = value;
  }
  state_->electorate->Note(noted);
  return NoteFollowers();
}

RegisterValue Cluster::NotedStart(DriveId drive) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->starts.find(drive);
  return found != state_->starts.end() ? found->second : RegisterValue();
}

Result<bool> Cluster::NoteStart(DriveId drive, uint64_t start, const RegisterValue& seen) {
  const ChangeOutcome outcome = registers_->Change({kMapGroup, StartKey(drive)}, seen,
                                                   EncodeStart(start), Durability::kWriteThrough);
  TRY_CONTEXT(outcome.why, "note the start of drive {}", drive);
  const auto now = outcome.now.value ? DecodeStart(*outcome.now.value) : Result<uint64_t>(kNoStart);
  {
    const MutexLock lock(state_->mutex);
    state_->starts[drive] = outcome.now;
  }
  state_->electorate->Note(drive, now.value_or(kNoStart));
  return now.has_value() && *now == start;
}

Status Cluster::LeaveOut(DriveId drive) {
  for (RegisterValue seen = NotedStart(drive);;) {
    if (TRY(NoteStart(drive, kNoStart, seen))) return {};
    seen = NotedStart(drive);
  }
}

// Those that were started anew and have forgotten nothing.
Status Cluster::NoteFollowers() {
  for (const DriveId id : state_->electorate->Doubtful()) {
    const RegisterValue seen = NotedStart(id);
    const auto voter = state_->electorate->Find(id);
    if (voter && voter->say == Say::kUnnoted) TRY(NoteStart(id, voter->start(), seen));
  }
  return {};
}

// Whether drives that have a say are enough to decide, or too few answer to do anything about that.
bool Cluster::IsDecidable(uint32_t group) {
  const std::vector<DriveId> homes = RegisterHomes(group);
  size_t voters = 0;
  size_t present = 0;
  for (const DriveId id : homes) {
    const Drive* drive = FindDrive(id);
    if (drive == nullptr || !drive->IsUp()) continue;
    ++present;
    if (state_->electorate->HasSay(id)) ++voters;
  }
  const size_t majority = homes.size() / 2 + 1;
  return voters >= majority || present < majority;
}

Status Cluster::WaitForSay() {
  WatchedClaims claims;
  for (;;) {
    if (state_->electorate->Doubtful().empty()) return {};
    bool decidable = true;
    for (uint32_t group = 0; group < map().groups && decidable; ++group) {
      decidable = IsDecidable(group);
    }
    if (decidable) return {};
    Log(LogLevel::kWarn,
        "so many drives may have forgotten something that the cluster waits until they are "
        "compared",
        {{"cluster", config_.name}});
    ComparisonOptions options;
    options.watched = &claims;
    const ComparisonReport report = TRY(CompareDrives(*this, options));
    if (!report.compared.empty()) continue;
    // Somebody else is at it.
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + kLookForChanges);
    TRY(LearnStarts());
  }
}

// Called when a drive was met that was started anew, by whichever thread.
void Cluster::ElectOnTheSide() {
  const uint64_t news = state_->electorate->news();
  {
    const MutexLock lock(state_->mutex);
    if (!state_->opened || news == state_->elected_for) return;
  }
  state_->elector.Wake();
}

// Until nothing is left to be done, of what was news when it looked last.
void Cluster::Elect() {
  BackgroundThread& self = state_->elector;
  {
    const MutexLock lock(state_->mutex);
    if (state_->electorate->news() == state_->elected_for) return;  // the run before saw to it
  }
  // A process that opens a cluster to have a look at it leaves this to others. News do not make it
  // shorter.
  const auto pause = [&](Duration duration) {
    for (const Time until = runtime_.Now() + duration;
         runtime_.Now() < until && !self.IsEnding();) {
      self.WaitUntil(until);
    }
  };
  WatchedClaims claims;
  for (bool first = true; !self.IsEnding(); first = false) {
    const uint64_t news = state_->electorate->news();
    const Status learnt = LearnStarts();
    if (learnt.ok() && !first && !self.IsEnding()) {
      ComparisonOptions options;
      options.is_cancelled = [&self] { return self.IsEnding(); };
      options.watched = &claims;
      const auto compared = CompareDrives(*this, options);
      if (!compared.has_value() && !self.IsEnding()) {
        Log(LogLevel::kWarn, "drives that may have forgotten something are not compared yet",
            {{"cluster", config_.name}, {"why", compared.error()}});
      }
    }
    // Those that are away ring when they come back.
    const auto doubtful = state_->electorate->Doubtful();
    const bool is_done = std::none_of(doubtful.begin(), doubtful.end(), [this](DriveId id) {
      const Drive* drive = FindDrive(id);
      return drive != nullptr && drive->IsUp();
    });
    if (is_done && state_->electorate->news() == news) {
      const MutexLock lock(state_->mutex);
      state_->elected_for = news;
      return;
    }
    pause(kLookForChanges);
  }
}

}  // namespace pinstripe
