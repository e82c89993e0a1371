#include "tools/care_run.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/membership/drive_claim.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/drain_room.h"
#include "tools/drives_away.h"
#include "tools/long_runs.h"
#include "upkeep/care_notes.h"
#include "upkeep/due.h"
#include "upkeep/fill_history.h"
#include "upkeep/work.h"

namespace pinstripe {
namespace {

// So often a scrub looks whether drives are away for too long.
constexpr Duration kWatchEvery = std::chrono::minutes(10);
// One that takes no longer need not give way to a check: it says all that a check does.
constexpr Duration kLongScrub = std::chrono::hours(1);
constexpr size_t kMostNotes = 10;

// The drives that are away for so long that what they held is to go to others.
struct OverdueDrives {
  bool all_are_up = false;    // no drive is away
  std::set<DriveId> drives;   // that are to be done without
  std::set<DriveId> waiting;  // of these, those whose contents have not moved yet
  std::string no_room;        // why it cannot go to others; empty: it can
};

// One pass over what there is to do.
class Care {
 public:
  Care(Cluster& cluster, const DriveFactory& factory, const CareRequest& request,
       const DriveClaim* claim)
      : cluster_(cluster), factory_(factory), request_(request), claim_(claim) {}

  CareOutcome Run();
  // The part of a scrub that another host is at; there is no claim.
  CareOutcome Join();

 private:
  bool MayGoOn() const { return !done_.stopped && (claim_ == nullptr || claim_->Check().ok()); }
  // Another host may have taken over, as this one stood still.
  RunningWorkOptions Guarded(RunningWorkOptions what, bool gives_way = false) {
    what.may_go_on = [this, gives_way]() -> Status {
      if (claim_ != nullptr) TRY(claim_->Check());
      return gives_way ? GiveWay() : Status();
    };
    return what;
  }
  int64_t Now() const { return cluster_.runtime().WallClock(); }
  void CheckAndRepair();
  void Scrub();
  std::vector<CareTask> Meanwhile();
  void TakeOverdue(OverdueDrives overdue);
  bool MayBegin(const std::string& work);
  bool Move();
  Status GiveWay();
  void Check();
  void Collect();
  void Repair(bool scrub);
  void Pack();
  bool HasToBeRepaired() const;
  void Note(CareStep step) { done_.steps.push_back(std::move(step)); }

  Cluster& cluster_;
  const DriveFactory& factory_;
  const CareRequest& request_;
  const DriveClaim* const claim_;  // null in a dry run, and where another host cares
  bool all_are_up_ = false;        // the drives
  bool displaced_ = false;         // the check has found shards that are not at home
  std::set<DriveId> overdue_;      // drives that are to be done without
  std::set<DriveId> waiting_;      // of these, those whose contents have not moved yet
  CareOutcome done_;
  Mutex watch_;  // several threads scrub
  Time next_watch_ GUARDED_BY(watch_){};
  std::atomic<bool> gave_way_ = false;  // the scrub has
  std::atomic<bool> at_end_ = false;    // all was read
  bool joins_ = false;                  // it is another host's
  std::optional<Time> scrub_began_;     // while it goes on
};

// "drives 3, 4"
std::string NameOf(const std::set<DriveId>& drives) {
  return fmt::format("{} {}", drives.size() == 1 ? "drive" : "drives", fmt::join(drives, ", "));
}

std::string WithoutText(const std::set<DriveId>& drives) {
  return drives.empty() ? "" : fmt::format("without {}", NameOf(drives));
}

// Others at work, who have the first right.
std::vector<WorkSeen> FindOthersAtWork(Cluster& cluster) {
  auto all = ReadWork(cluster);
  if (all.has_value()) all = WatchWork(cluster, *std::move(all));
  if (!all.has_value()) return {};  // nobody could be told either
  std::erase_if(*all, [](const WorkSeen& seen) { return !seen.is_alive; });
  return *std::move(all);
}

// "scrub by root on box1 (...), which is paused"
std::string Text(const WorkSeen& seen) {
  const bool is_paused = seen.record.state == WorkAsk::kPause;
  return fmt::format("{} by {}{}", seen.Name(), seen.record.actor.Text(),
                     is_paused ? ", which is paused" : "");
}

bool IsRunningScrub(const WorkSeen& seen) {
  const WorkRecord& record = seen.record;
  return record.work == "scrub" && record.arguments.empty() && record.state == WorkAsk::kGoOn;
}

OverdueDrives FindOverdueDrives(Cluster& cluster, const CareRequest& request) {
  const auto away = FindDrivesAway(cluster);
  OverdueDrives overdue{.all_are_up = away.empty()};
  if (!request.replace_after) return overdue;
  const int64_t now = cluster.runtime().WallClock();
  for (const auto& [drive, its] : away) {
    if (!its.since || TimeBetween(*its.since, now) < *request.replace_after) continue;
    overdue.drives.insert(drive);
    if (!its.is_moved) overdue.waiting.insert(drive);
  }
  if (overdue.drives.empty()) return overdue;
  const Status room = CheckRoomWithout(
      cluster.map(), cluster.Drives(cluster.config().drive_timeout), overdue.drives);
  if (room.ok()) return overdue;
  overdue.no_room =
      fmt::format("what was on {} stays there: {}", NameOf(overdue.drives), room.message());
  overdue.drives.clear();
  overdue.waiting.clear();
  return overdue;
}

// Null: it may be begun; else until when not, as somebody has stopped it. Clocks of hosts may
// differ.
std::optional<int64_t> WaitsUntil(const WorkStops& stops, const std::string& work, int64_t now) {
  const auto stop = stops.find(work);
  if (stop == stops.end()) return std::nullopt;
  const auto [earlier, later] = std::minmax(stop->second, now);
  if (TimeBetween(earlier, later) >= kCareWaitsAfterStop) return std::nullopt;
  return stop->second + kCareWaitsAfterStop.count();
}

CareOutcome Care::Run() {
  TakeOverdue(FindOverdueDrives(cluster_, request_));
  const bool moved = Move();
  bool packs = false;
  for (const CareTask task :
       WhatIsDue(FindLastLooks(cluster_), request_.intervals, Now(), all_are_up_)) {
    if (!MayGoOn()) return done_;
    switch (task) {
      case CareTask::kCheck:
        packs = true;
        // A repair looks at all that a check does.
        if (!moved) CheckAndRepair();
        break;
      case CareTask::kCollect:
        if (MayBegin("collect")) Collect();
        break;
      case CareTask::kScrub:
        packs = true;
        Scrub();
        break;
    }
  }
  if (packs && request_.pack_older_than && MayGoOn() && MayBegin("pack")) Pack();
  if (gave_way_.exchange(false)) {
    TakeOverdue(FindOverdueDrives(cluster_, request_));
    Move();
  }
  return done_;
}

void Care::CheckAndRepair() {
  if (!MayBegin("check")) return;
  Check();
  // What a check has found is tried once for each check, as it may not be possible.
  if (MayGoOn() && HasToBeRepaired() && MayBegin("repair")) Repair(/*scrub=*/false);
}

// Each time that it gives way, it goes on where it was.
void Care::Scrub() {
  const auto is_due = [this] {
    const auto due = WhatIsDue(FindLastLooks(cluster_), request_.intervals, Now(), all_are_up_);
    return std::ranges::find(due, CareTask::kScrub) != due.end();
  };
  // Another host may have ended it meanwhile.
  while (MayGoOn() && is_due() && MayBegin("scrub")) {
    scrub_began_ = cluster_.runtime().Now();
    Repair(/*scrub=*/true);
    scrub_began_.reset();
    if (!gave_way_.exchange(false)) return;
    done_.steps.back() = {.work = "scrub", .about = "in part", .exit_code = 0};
    TakeOverdue(FindOverdueDrives(cluster_, request_));
    const bool moved = Move();
    for (const CareTask task : Meanwhile()) {
      if (!MayGoOn()) return;
      if (task == CareTask::kCheck && !moved) CheckAndRepair();
      if (task == CareTask::kCollect) Collect();
    }
  }
}

// What is due though a scrub goes on, and may be begun.
std::vector<CareTask> Care::Meanwhile() {
  std::vector<CareTask> due =
      WhatIsDueMeanwhile(FindLastLooks(cluster_), request_.intervals, Now());
  const auto stops = FindWorkStops(cluster_).value_or(WorkStops());
  std::erase_if(due, [&](CareTask task) {
    return WaitsUntil(stops, task == CareTask::kCheck ? "check" : "collect", Now()).has_value();
  });
  return due;
}

CareOutcome Care::Join() {
  if (!MayBegin("scrub")) return done_;
  joins_ = true;
  TakeOverdue(FindOverdueDrives(cluster_, request_));
  scrub_began_ = cluster_.runtime().Now();
  Repair(/*scrub=*/true);
  if (gave_way_) done_.steps.back() = {.work = "scrub", .about = "in part", .exit_code = 0};
  return done_;
}

void Care::TakeOverdue(OverdueDrives overdue) {
  all_are_up_ = overdue.all_are_up;
  overdue_ = std::move(overdue.drives);
  waiting_ = std::move(overdue.waiting);
  if (overdue.no_room.empty()) return;
  done_.is_short = true;
  done_.notes.push_back(std::move(overdue.no_room));
}

// What is endangered comes first. False: there is nothing to move, or nobody is to.
bool Care::Move() {
  if (!MayGoOn() || waiting_.empty() || !MayBegin("repair")) return false;
  Repair(/*scrub=*/false);
  return true;
}

bool Care::MayBegin(const std::string& work) {
  const auto stops = FindWorkStops(cluster_);
  const auto until = WaitsUntil(stops.value_or(WorkStops()), work, Now());
  if (!until) return true;
  done_.notes.push_back(fmt::format(
      "{}: somebody has stopped it, so it is not begun again before {}", work, TimeText(*until)));
  return false;
}

// While a scrub goes on for days, drives may go. It gives way to those that have not been tried,
// and to what is to be done each day or week.
Status Care::GiveWay() {
  {
    const MutexLock lock(watch_);
    const Time now = cluster_.runtime().Now();
    if (now < next_watch_) return {};
    next_watch_ = now + kWatchEvery;
  }
  NoteDrivesAway(cluster_);
  const OverdueDrives overdue = FindOverdueDrives(cluster_, request_);
  std::set<DriveId> news;
  std::ranges::set_difference(overdue.waiting, overdue_, std::inserter(news, news.end()));
  const auto stops = FindWorkStops(cluster_);
  if (news.empty() || WaitsUntil(stops.value_or(WorkStops()), "repair", Now())) {
    // Its end keeps no progress, and says all that a check does.
    const bool is_long = scrub_began_ && cluster_.runtime().Now() - *scrub_began_ >= kLongScrub;
    if (!is_long || at_end_ || Meanwhile().empty()) return {};
    gave_way_ = true;
    return Fail(ECANCELED, "a check or a collection is due; then it goes on");
  }
  gave_way_ = true;
  return Fail(ECANCELED, "what was on {} goes to others first, as {} away for too long",
              NameOf(news), news.size() == 1 ? "it is" : "they are");
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

void Care::Pack() {
  if (request_.dry_run) return Note({.work = "pack", .about = ""});
  LongWork work(cluster_, Guarded({.work = "pack"}, /*gives_way=*/true),
                std::string(kPackingGoesOn));
  const PackOutcome outcome =
      RunPack(work, cluster_, {.older_than = *request_.pack_older_than}, kRootInode, /*wait=*/true);
  for (const std::string& why : outcome.report.not_packed) {
    if (done_.notes.size() >= kMostNotes) break;
    done_.notes.push_back(fmt::format("not packed: {}", why));
  }
  int code = kExitFailed;
  if (const auto stopped = work.Stopped()) {
    done_.stopped = !gave_way_;
    code = gave_way_ ? kExitShort : *stopped;
  } else if (!outcome.failure.ok()) {
    done_.notes.push_back(fmt::format("pack: {}", work.End(outcome.failure).message()));
  } else {
    code = work.End(ExitCodeOf(outcome.report), PackSummary(outcome.report, false));
  }
  Note({.work = "pack", .about = "", .exit_code = code});
}

void Care::Repair(bool scrub) {
  RepairRequest repair{.bytes_per_second = request_.bytes_per_second, .scrub = scrub};
  repair.without.assign(overdue_.begin(), overdue_.end());
  repair.only_join = joins_;
  repair.at_end = &at_end_;
  at_end_ = false;
  const std::string command = scrub ? "scrub" : "repair";
  std::string about = WithoutText(overdue_);
  if (request_.dry_run) return Note({.work = command, .about = about});
  RunningWorkOptions what = WorkOf(command, repair);
  if (scrub) what.arguments.clear();  // the command line of a scrub has no such option
  LongWork work(cluster_, Guarded(std::move(what), /*gives_way=*/scrub),
                std::string(kRepairGoesOn));
  const auto outcome = RunRepair(work, cluster_, factory_, repair);
  int code = kExitFailed;
  if (const auto stopped = work.Stopped()) {
    done_.stopped = !gave_way_;
    code = gave_way_ ? kExitShort : *stopped;
  } else if (outcome.has_value()) {
    if (outcome->others_go_on) about = "with others";
    code = work.End(ExitCodeOf(repair, *outcome));
  } else {
    done_.notes.push_back(fmt::format("{}: {}", command, work.End(outcome.error()).message()));
  }
  Note({.work = command, .about = about, .exit_code = code});
}

}  // namespace

namespace {

// What should have been done by now, and waits for others.
void NoteWhatIsLate(Cluster& cluster, const CareRequest& request, CareOutcome& outcome) {
  std::vector<std::string> late = Overdue(FindLastLooks(cluster), cluster.runtime().WallClock());
  const OverdueDrives overdue = FindOverdueDrives(cluster, request);
  if (!overdue.waiting.empty()) {
    late.push_back(fmt::format("what was on {} is to go to others", NameOf(overdue.waiting)));
  }
  if (late.empty()) return;
  outcome.is_short = true;
  outcome.notes.push_back(
      fmt::format("that keeps care from what should have been done by now: {}. `pinstripe work {}` "
                  "shows it; `resume` and `stop` steer it",
                  fmt::join(late, "; "), cluster.config().file));
}

}  // namespace

Result<CareOutcome> RunCare(Cluster& cluster, const DriveFactory& factory,
                            const CareRequest& request) {
  if (request.dry_run) return Care(cluster, factory, request, nullptr).Run();
  // Whoever is at work: each host counts by its own clock.
  NoteDrivesAway(cluster);
  NoteFill(cluster);
  CareOutcome later;
  DriveClaim claim(cluster, kWholeCluster, DriveWork::kCare);
  const Status taken = claim.Take();
  if (!taken.ok() && taken.code() != EBUSY) return tl::unexpected(taken);
  const std::vector<WorkSeen> others = FindOthersAtWork(cluster);
  if (request.joins_scrubs && !others.empty() && std::ranges::all_of(others, IsRunningScrub)) {
    claim.GiveBack();
    return Care(cluster, factory, request, nullptr).Join();
  }
  if (!taken.ok()) {
    // As it should be where many hosts have the timer, unless somebody has paused what that does.
    later.notes.emplace_back(taken.message());
    for (const WorkSeen& seen : others) {
      if (seen.record.state != WorkAsk::kPause) continue;
      later.notes.push_back(Text(seen));
      NoteWhatIsLate(cluster, request, later);
      break;
    }
    return later;
  }
  if (!others.empty()) {
    std::vector<std::string> texts;
    for (const WorkSeen& seen : others) texts.push_back(Text(seen));
    later.notes.push_back(
        fmt::format("others are at work, and come first: {}", fmt::join(texts, "; ")));
    NoteWhatIsLate(cluster, request, later);
    return later;
  }
  Care care(cluster, factory, request, &claim);
  CareOutcome outcome = care.Run();
  const Status lost = claim.Check();
  if (!lost.ok()) outcome.notes.emplace_back(lost.message());
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
