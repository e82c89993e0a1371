#include "tools/care_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/time_text.h"
#include "base/try.h"
#include "cluster/membership/drive_claim.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/drain_room.h"
#include "tools/long_runs.h"
#include "upkeep/work.h"

namespace pinstripe {
namespace {

// What care tells of drives bears this as its work.
constexpr std::string_view kCareNotes = "care";

// One pass over what there is to do.
class Care {
 public:
  Care(Cluster& cluster, const DriveFactory& factory, const CareRequest& request,
       const DriveClaim* claim)
      : cluster_(cluster), factory_(factory), request_(request), claim_(claim) {}

  CareOutcome Run();

 private:
  bool MayGoOn() const { return !done_.stopped && (claim_ == nullptr || claim_->Check().ok()); }
  // Another host may have taken over, as this one stood still.
  RunningWorkOptions Guarded(RunningWorkOptions what) const {
    what.may_go_on = [this] { return claim_->Check(); };
    return what;
  }
  int64_t Now() const { return cluster_.runtime().WallClock(); }
  void FindOverdueDrives();
  bool WasLookedAtSince(int64_t time) const;
  void Check();
  void Collect();
  void Repair(bool scrub);
  bool HasToBeRepaired() const;
  void Note(CareStep step) { done_.steps.push_back(std::move(step)); }

  Cluster& cluster_;
  const DriveFactory& factory_;
  const CareRequest& request_;
  const DriveClaim* const claim_;  // null in a dry run
  bool all_are_up_ = false;        // the drives
  bool displaced_ = false;         // the check has found shards that are not at home
  std::set<DriveId> overdue_;      // drives that are to be done without
  int64_t overdue_since_ = 0;      // the last of them
  CareOutcome done_;
};

std::string WithoutText(const std::set<DriveId>& drives) {
  if (drives.empty()) return "";
  return fmt::format("without {} {}", drives.size() == 1 ? "drive" : "drives",
                     fmt::join(drives, ", "));
}

// Others at work, who have the first right: "scrub by root on box1 (...)".
std::vector<std::string> FindOthersAtWork(Cluster& cluster) {
  std::vector<std::string> others;
  auto all = ReadWork(cluster);
  if (all.has_value()) all = WatchWork(cluster, *std::move(all));
  if (!all.has_value()) return others;  // nobody could be told either
  for (const WorkSeen& seen : *all) {
    if (!seen.is_alive) continue;
    others.push_back(fmt::format("{} by {}", seen.Name(), seen.record.actor.Text()));
  }
  return others;
}

// In the order in which they were told.
std::map<DriveId, DriveAway> FindAway(Cluster& cluster, const DriveTroubles& troubles,
                                      std::set<DriveId>& well_again) {
  EventFollower follower(cluster);
  const auto events = follower.Poll();
  return DrivesAwayBy(events.value_or(std::vector<Event>()), troubles, ThisProcess().host,
                      cluster.runtime().WallClock(), well_again);
}

// What care on this host has not noted of drives yet, so that there is a time from which it counts.
void NoteDrives(Cluster& cluster) {
  const DriveTroubles troubles = FindDriveTroubles(cluster);
  std::set<DriveId> well_again;
  std::map<std::string, std::vector<DriveId>> went;  // by what is wrong
  for (const auto& [drive, away] : FindAway(cluster, troubles, well_again)) {
    if (!away.noted) went[troubles.at(drive)].push_back(drive);
  }
  EventLog log(cluster);
  const auto tell = [&](EventKind kind, std::vector<DriveId> drives, const std::string& text) {
    Event event{.kind = kind, .actor = {}, .drives = std::move(drives)};
    event.work = kCareNotes;
    event.text = text;
    log.Add(std::move(event));
  };
  for (auto& [trouble, drives] : went) tell(EventKind::kDriveWent, std::move(drives), trouble);
  if (!well_again.empty()) {
    tell(EventKind::kDriveCame, {well_again.begin(), well_again.end()}, "");
  }
  (void)log.Flush();
}

CareOutcome Care::Run() {
  FindOverdueDrives();
  const bool is_news = !overdue_.empty() && !WasLookedAtSince(overdue_since_);
  bool checked = false;
  bool scrubbed = false;
  for (const CareTask task :
       WhatIsDue(FindLastLooks(cluster_), request_.intervals, Now(), all_are_up_)) {
    if (!MayGoOn()) return done_;
    checked |= task == CareTask::kCheck;
    if (task == CareTask::kCheck) Check();
    if (task == CareTask::kCollect) Collect();
    scrubbed |= task == CareTask::kScrub;
    if (task == CareTask::kScrub) Repair(/*scrub=*/true);
  }
  // A scrub repairs, too. What a check has found is tried once for each check, as it may not be
  // possible.
  const bool has_to_be = is_news || (checked && HasToBeRepaired());
  if (MayGoOn() && has_to_be && !scrubbed) Repair(/*scrub=*/false);
  return done_;
}

void Care::FindOverdueDrives() {
  const auto away = FindDrivesAway(cluster_);
  all_are_up_ = away.empty();
  if (!request_.replace_after) return;
  for (const auto& [drive, since] : away) {
    if (!since || TimeBetween(*since, Now()) < *request_.replace_after) continue;
    const int64_t until = *since + request_.replace_after->count();
    overdue_.insert(drive);
    overdue_since_ = std::max(overdue_since_, until);
  }
  if (overdue_.empty()) return;
  const Status room =
      CheckRoomWithout(cluster_.map(), cluster_.Drives(cluster_.config().drive_timeout), overdue_);
  if (room.ok()) return;
  done_.is_short = true;
  done_.notes.push_back(fmt::format("what was on {} stays there: {}",
                                    WithoutText(overdue_).substr(8), room.message()));
  overdue_.clear();
}

bool Care::WasLookedAtSince(int64_t time) const {
  const auto listed = FindLastLook(cluster_, LookKind::kListed);
  return listed && listed->at >= time;
}

bool Care::HasToBeRepaired() const {
  if (request_.dry_run) return false;
  const auto listed = FindLastLook(cluster_, LookKind::kListed);
  if (!listed) return false;
  // What is on drives that are away cannot be looked at; some of it is to be elsewhere.
  const bool is_away = !overdue_.empty() && listed->not_looked_at > 0;
  // What went to spares comes home when it can.
  return is_away || (displaced_ && all_are_up_) || listed->lacking + listed->replicas_behind > 0;
}

void Care::Check() {
  if (request_.dry_run) return Note({.work = "check", .about = ""});
  LongWork work(cluster_, Guarded({.work = "check"}), std::string(kCheckGoesOn));
  const auto report = RunCheck(work, cluster_, /*names_only=*/false);
  done_.stopped = !report;
  displaced_ = report && report->displaced_blocks > 0;
  const int code = report ? work.End(ExitCodeOf(*report)) : *work.Stopped();
  Note({.work = "check", .about = "", .exit_code = code});
}

void Care::Collect() {
  if (request_.dry_run) return Note({.work = "collect", .about = ""});
  LongWork work(cluster_, Guarded({.work = "collect"}), std::string(kCollectionGoesOn));
  const auto report = RunCollect(work, cluster_, {});
  done_.stopped = !report;
  const int code =
      report ? work.End(ExitCodeOf(*report), CollectSummary(*report, false)) : *work.Stopped();
  Note({.work = "collect", .about = "", .exit_code = code});
}

void Care::Repair(bool scrub) {
  RepairRequest repair{.bytes_per_second = request_.bytes_per_second, .scrub = scrub};
  repair.without.assign(overdue_.begin(), overdue_.end());
  const std::string command = scrub ? "scrub" : "repair";
  const std::string about = WithoutText(overdue_);
  if (request_.dry_run) return Note({.work = command, .about = about});
  RunningWorkOptions what = WorkOf(command, repair);
  if (scrub) what.arguments.clear();  // the command line of a scrub has no such option
  LongWork work(cluster_, Guarded(std::move(what)), std::string(kRepairGoesOn));
  const auto outcome = RunRepair(work, cluster_, factory_, repair);
  int code = kExitFailed;
  if (const auto stopped = work.Stopped()) {
    done_.stopped = true;
    code = *stopped;
  } else if (outcome.has_value()) {
    code = work.End(ExitCodeOf(repair, *outcome));
  } else {
    done_.notes.push_back(fmt::format("{}: {}", command, work.End(outcome.error()).message()));
  }
  Note({.work = command, .about = about, .exit_code = code});
}

}  // namespace

std::optional<int64_t> DriveAway::Since() const {
  if (!told || !noted) return std::nullopt;
  return std::max(*told, *noted);
}

DriveTroubles FindDriveTroubles(Cluster& cluster) {
  DriveTroubles troubles;
  for (const DriveStatus& drive : cluster.Drives(cluster.config().drive_timeout)) {
    if (cluster.IsRetired(drive.id)) continue;
    if (!drive.info.has_value()) {
      troubles[drive.id] = "";
    } else if (!drive.info->failure.empty()) {
      troubles[drive.id] = drive.info->failure;
    }
  }
  return troubles;
}

std::map<DriveId, DriveAway> DrivesAwayBy(const std::vector<Event>& events,
                                          const DriveTroubles& troubles, const std::string& host,
                                          int64_t now, std::set<DriveId>& well_again) {
  std::map<DriveId, DriveAway> away;
  for (const auto& [drive, trouble] : troubles) away[drive];
  std::set<DriveId> failed;  // as care has noted
  const auto note = [&](const Event& event, DriveId drive) {
    const bool is_of_care = event.work == kCareNotes;
    if (event.kind == EventKind::kDriveCame) {
      // Hosts see a drive that answers, though it has failed. Care knows better.
      const auto trouble = troubles.find(drive);
      const bool has_failed = trouble != troubles.end() && !trouble->second.empty();
      if (!is_of_care && has_failed && failed.contains(drive)) return;
      if (is_of_care) failed.erase(drive);
      if (trouble != troubles.end()) away[drive] = {};
      return;
    }
    if (is_of_care && !event.text.empty()) failed.insert(drive);
    const auto found = away.find(drive);
    if (found == away.end()) return;
    DriveAway& its = found->second;
    if (!its.told) its.told = std::min(now, event.at);
    // A note of the future is of a clock that was wrong.
    if (is_of_care && event.actor.host == host && event.at <= now && !its.noted) {
      its.noted = event.at;
    }
  };
  for (const Event& event : events) {
    if (event.kind != EventKind::kDriveWent && event.kind != EventKind::kDriveCame) continue;
    for (const DriveId drive : event.drives) note(event, drive);
  }
  well_again = std::move(failed);
  for (const auto& [drive, trouble] : troubles) well_again.erase(drive);
  return away;
}

std::map<DriveId, std::optional<int64_t>> FindDrivesAway(Cluster& cluster) {
  std::set<DriveId> well_again;
  std::map<DriveId, std::optional<int64_t>> since;
  for (const auto& [drive, away] : FindAway(cluster, FindDriveTroubles(cluster), well_again)) {
    since[drive] = away.Since();
  }
  return since;
}

Result<CareOutcome> RunCare(Cluster& cluster, const DriveFactory& factory,
                            const CareRequest& request) {
  if (request.dry_run) return Care(cluster, factory, request, nullptr).Run();
  DriveClaim claim(cluster, kWholeCluster, DriveWork::kCare);
  TRY(claim.Take());
  NoteDrives(cluster);
  const auto others = FindOthersAtWork(cluster);
  if (!others.empty()) {
    CareOutcome later;
    later.notes.push_back(
        fmt::format("others are at work, and come first: {}", fmt::join(others, "; ")));
    return later;
  }
  CareOutcome outcome = Care(cluster, factory, request, &claim).Run();
  const Status lost = claim.Check();
  if (!lost.ok()) outcome.notes.push_back(std::string(lost.message()));
  return outcome;
}

int ExitCodeOf(const CareOutcome& outcome) {
  int worst = 0;
  const auto rank = [](int code) {
    return code == kExitFailed ? 3 : code == kExitStopped ? 2 : code != 0 ? 1 : 0;
  };
  for (const CareStep& step : outcome.steps) {
    if (rank(step.exit_code) > rank(worst)) worst = step.exit_code;
  }
  if (worst == 0 && outcome.is_short) return kExitShort;
  return worst == kExitUsage ? kExitShort : worst;
}

namespace {

std::string_view ResultOf(int exit_code) {
  switch (exit_code) {
    case 0: return "in order";
    case kExitFailed: return "it failed, or something is lost";
    case kExitStopped: return "stopped";
    default: return "something is left to do";
  }
}

}  // namespace

std::string CareText(const CareRequest& request, const CareOutcome& outcome) {
  std::string text;
  for (const CareStep& step : outcome.steps) {
    text += fmt::format("{}{}{}: {}\n", step.work, step.about.empty() ? "" : " ", step.about,
                        request.dry_run ? "due" : ResultOf(step.exit_code));
  }
  for (const std::string& note : outcome.notes) text += fmt::format("{}\n", note);
  return text.empty() ? "Nothing is due.\n" : text;
}

std::string CareJson(const CareRequest& request, const CareOutcome& outcome) {
  nlohmann::ordered_json json{{"dry_run", request.dry_run},
                              {"steps", nlohmann::ordered_json::array()},
                              {"notes", outcome.notes}};
  for (const CareStep& step : outcome.steps) {
    nlohmann::ordered_json one{{"work", step.work}, {"about", step.about}};
    if (!request.dry_run) one["exit_code"] = step.exit_code;
    json["steps"].push_back(std::move(one));
  }
  return DumpJson(json);
}

}  // namespace pinstripe
