#include "tools/repair_run.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/byte_text.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/map_group.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/rebuild.h"
#include "tools/check_report.h"
#include "tools/commands.h"
#include "tools/drain_room.h"
#include "upkeep/fill_history.h"
#include "upkeep/last_look.h"
#include "upkeep/scrubber.h"

namespace pinstripe {
namespace {

// EINVAL: no drive of the cluster.
Status CheckDrives(const DriveMap& map, const std::vector<DriveId>& drives) {
  for (const DriveId id : drives) {
    const bool known = std::any_of(map.drives.begin(), map.drives.end(),
                                   [id](const MappedDrive& drive) { return drive.id == id; });
    if (!known) return Fail(EINVAL, "--without {}: the cluster has no such drive", id);
  }
  return {};
}

const MappedDrive* FindDrive(const DriveMap& map, DriveId id) {
  const auto found = std::find_if(map.drives.begin(), map.drives.end(),
                                  [id](const MappedDrive& drive) { return drive.id == id; });
  return found == map.drives.end() ? nullptr : &*found;
}

// The drives as they are to be.
Result<std::vector<MappedDrive>> PlanChange(const Cluster& cluster, const RepairRequest& request) {
  std::vector<MappedDrive> wanted;
  const DriveMap& map = cluster.map();
  for (const DriveId id : request.drives) {
    if (request.change != MapChange::kDrain) break;
    const MappedDrive* drive = FindDrive(map, id);
    if (drive == nullptr) return Fail(EINVAL, "the cluster has no drive {}", id);
    wanted.push_back(*drive);
    wanted.back().state = DriveState::kDraining;
  }
  if (request.change != MapChange::kExpand) return wanted;
  const std::set<DriveId> named(request.drives.begin(), request.drives.end());
  for (const DriveConfig& config : cluster.config().drives) {
    const MappedDrive* known = FindDrive(map, config.id);
    if (!named.empty() && !named.contains(config.id)) continue;
    // One that was drained comes back only when it is named.
    if (named.empty() && known != nullptr && known->state == DriveState::kDraining) continue;
    MappedDrive drive{config.id, config.weight, config.domain, DriveState::kActive};
    if (known != nullptr) drive.pull = known->pull;
    if (known == nullptr || *known != drive) wanted.push_back(drive);
  }
  for (const DriveId id : named) {
    const auto is_it = [id](const DriveConfig& config) { return config.id == id; };
    const auto& configs = cluster.config().drives;
    if (std::any_of(configs.begin(), configs.end(), is_it)) continue;
    return Fail(EINVAL, "drive {} is not in {}: add it first, on every host", id,
                cluster.config().file);
  }
  return wanted;
}

// On all drives that a command is about, for as long as it is at work on them.
class Claims {
 public:
  Claims(Cluster& cluster, const std::function<void(const std::string&)>& say)
      : cluster_(cluster), say_(say) {}

  // And the drive map, which one process at a time changes. EBUSY: somebody else is at work on one
  // of them.
  Status Take(const std::vector<MappedDrive>& drives, DriveWork work) {
    std::set<DriveId> ids;
    for (const MappedDrive& drive : drives) ids.insert(drive.id);
    map_ = std::make_unique<DriveClaim>(cluster_, kDriveMap, work);
    for (const DriveId id : ids) {
      claims_.push_back(std::make_unique<DriveClaim>(cluster_, id, work));
    }
    // All are watched from here on, so that those who died are waited for once.
    (void)map_->Try();
    for (const auto& claim : claims_) (void)claim->Try();
    TRY(Take(*map_));
    for (const auto& claim : claims_) TRY(Take(*claim));
    return {};
  }

  // The epochs are made.
  void GiveBackTheMap() { map_.reset(); }

  Status Check() const {
    if (map_ != nullptr) TRY(map_->Check());
    for (const auto& claim : claims_) TRY(claim->Check());
    return {};
  }

  static void SayWhoIsWaitedFor(const Status& who,
                                const std::function<void(const std::string&)>& say) {
    say(fmt::format("{}; looking for half a minute whether it still works", who.message()));
  }

 private:
  Status Take(DriveClaim& claim) {
    const Status taken = claim.Take([this](const Status& who) { SayWhoIsWaitedFor(who, say_); });
    if (taken.code() != EBUSY) return taken;
    return Fail(EBUSY,
                "{}. Nothing was changed. Run this again when that has ended, as `pinstripe "
                "status` tells; of a process that is gone it is taken over",
                taken.message());
  }

  Cluster& cluster_;
  const std::function<void(const std::string&)>& say_;
  std::unique_ptr<DriveClaim> map_;
  std::vector<std::unique_ptr<DriveClaim>> claims_;
};

Status ChangeMap(Cluster& cluster, const DriveFactory& factory, const RepairRequest& request,
                 const SweepOptions& sweep, Claims& claims, RepairOutcome& done) {
  EpochChangeOptions options;
  static_cast<SweepOptions&>(options) = sweep;
  options.is_cancelled = [&] { return !claims.Check().ok() || IsCancelled(sweep); };
  const bool is_drain = request.change == MapChange::kDrain;
  std::vector<MappedDrive> wanted = TRY(PlanChange(cluster, request));
  if (!wanted.empty()) {
    TRY(claims.Take(wanted, is_drain ? DriveWork::kDrain : DriveWork::kExpand));
    // Somebody may have changed it until now.
    TRY(cluster.Refresh());
    wanted = TRY(PlanChange(cluster, request));
  }
  TRY(JudgeDrives(cluster, factory, wanted));
  const auto is_news = [&](const MappedDrive& drive) {
    const MappedDrive* now = FindDrive(cluster.map(), drive.id);
    return now == nullptr || now->state != drive.state;
  };
  if (is_drain && !request.force && std::ranges::any_of(wanted, is_news)) {
    TRY(CheckRoomWithout(cluster.map(), cluster.Drives(cluster.config().drive_timeout),
                         {request.drives.begin(), request.drives.end()}));
  }
  const auto changed = ChangeDrives(cluster, factory, wanted, options);
  if (!changed.has_value()) {
    TRY(claims.Check());  // that is why
    if (changed.error().code() != EREMCHG) return changed.error();
    return Fail(
        EBUSY,
        "somebody else has changed the drive map meanwhile ({}): run this again, and it goes "
        "on where it was",
        changed.error().message());
  }
  done.registers += changed->registers;
  done.not_cleared = changed->not_cleared;
  done.epoch = cluster.map().epoch;
  claims.GiveBackTheMap();
  return {};
}

// Looks what is left on the drives that are to be empty.
void LookAtDrained(Cluster& cluster, const RepairRequest& request, RepairOutcome& done) {
  std::set<DriveId> drives;
  if (request.change == MapChange::kDrain) drives = {request.drives.begin(), request.drives.end()};
  if (request.change == MapChange::kRebalance) drives = cluster.DrainingDrives();
  for (const DriveId id : drives) {
    if (cluster.IsRetired(id)) {
      const bool was_asked_for = request.change == MapChange::kDrain;
      if (was_asked_for || cluster.FindDrive(id) != nullptr) done.retired.insert(id);
      continue;
    }
    const auto contents = ListDrive(cluster, id);
    if (contents.has_value()) {
      done.drained[id] = *contents;
    } else {
      done.drained_not_looked_at.push_back(id);
    }
  }
  std::erase_if(done.not_cleared, [&](DriveId id) { return cluster.IsRetired(id); });
}

// When a drained drive is missing, its homes of names and inodes have to be given to others, too.
// The process that began that may not live any more.
Status FinishDrains(Cluster& cluster, const SweepOptions& sweep, RepairOutcome& done) {
  if (cluster.IsSettled() || cluster.DrivesLeftBehind().empty()) return {};
  EpochChangeOptions options;
  static_cast<SweepOptions&>(options) = sweep;
  done.registers += TRY(SettleEpoch(cluster, options));
  return {};
}

// Says that the cluster is repaired, as long as it is.
class RepairSign {
 public:
  RepairSign(Cluster& cluster, const RepairRequest& request)
      : runtime_(cluster.runtime()),
        claim_(cluster, kWholeCluster, request.scrub ? DriveWork::kScrub : DriveWork::kRepair) {
    if (!request.dry_run) Show();
  }

  // Now and then: somebody else who has said so may have died. It is news for others alone, and
  // nobody is waited for.
  void ShowAgain() {
    if (next_ && runtime_.Now() >= *next_) Show();
  }

 private:
  void Show() {
    (void)claim_.Try();
    next_ = runtime_.Now() + DriveClaimOptions().renewed_every;
  }

  Runtime& runtime_;
  DriveClaim claim_;
  std::optional<Time> next_;
};

// A change of the cluster, for the events.
void TellOfChange(EventLog* events, const std::string& command, const std::vector<DriveId>& drives,
                  std::string text) {
  Event event{.kind = EventKind::kConfiguration, .actor = {}, .drives = drives};
  event.work = command;
  event.text = std::move(text);
  if (events != nullptr) events->Add(std::move(event));
}

// As this process alone has found and done it.
RepairReport ReportOf(const ScrubFound& found) {
  RepairReport report;
  report.blocks = found.blocks;
  report.damaged = found.damaged;
  report.missing = found.missing;
  report.written = found.written;
  report.relocated = found.relocated;
  report.bytes_read = found.bytes_read;
  report.bytes_written = found.bytes_written;
  report.not_whole = found.not_whole;
  report.more_not_whole = found.more_not_whole;
  for (const auto& [file, what] : found.contradicted) {
    report.contradicted.push_back(fmt::format("inode {:016x}: {}", file, what));
  }
  report.more_contradicted = found.more_contradicted;
  return report;
}

Scrubber::Options ScrubOptions(const Repairer::Options& repair, const RepairRequest& request,
                               const RepairTold& told) {
  return {.repair = repair,
          .anew = request.anew,
          .only_join = request.only_join,
          .goes_on = [&told](const ScrubNote& note) {
            told.say(fmt::format("going on with the scrub of {}, of which {:.0f} % were read",
                                 TimeText(note.began), note.Done() * 100));
          }};
}

// Without what was told `before`.
void TellOfShards(EventLog* events, const std::string& command, const RepairReport& report,
                  const std::optional<ScrubFound>& before = std::nullopt) {
  const auto tell = [&](EventKind kind, uint64_t count, std::string text) {
    if (count == 0 || events == nullptr) return;
    Event event{.kind = kind, .actor = {}};
    event.count = count;
    event.work = command;
    event.text = std::move(text);
    events->Add(std::move(event));
  };
  const ScrubFound told = before.value_or(ScrubFound());
  // Of one that was stopped before it looked at what was found, there may be less.
  const auto more = [](uint64_t now, uint64_t then) { return now - std::min(now, then); };
  const uint64_t damaged = more(report.damaged, told.damaged);
  const uint64_t missing = more(report.missing, told.missing);
  tell(EventKind::kDamageFound, damaged + missing,
       fmt::format("{} damaged, {} missing", damaged, missing));
  const uint64_t written = more(report.written, told.written);
  const uint64_t relocated = more(report.relocated, told.relocated);
  tell(EventKind::kDamageMended, written + relocated,
       fmt::format("{} written again, {} brought home", written, relocated));
}

// The listing knows nothing of it.
void TellWhatWasNotRead(RepairReport& report) {
  std::vector<std::string>& unknown = report.check.not_checked;
  if (report.unread > 0) {
    unknown.push_back(
        fmt::format("{} shards, as they were out of reach when everything was read: scrub again",
                    report.unread));
  }
  if (report.more_not_whole > 0) {
    unknown.push_back(
        fmt::format("{} more blocks that were not whole when they were read: scrub again",
                    report.more_not_whole));
  }
}

// For `pinstripe status`, which can do without.
void Note(Cluster& cluster, const RepairRequest& request, const RepairOutcome& done) {
  const int64_t now = cluster.runtime().WallClock();
  if (done.compared_registers) {
    LastLook listed = LookOf(done.files.check, now);
    listed.replicas_behind = done.registers.failed + done.registers.unheard;
    (void)NoteLastLook(cluster, LookKind::kListed, listed);
    NotePlaces(cluster, done.files.check);
    NoteFill(cluster);
  } else {
    NoteCheck(cluster, done.files.check);
  }
  if (!request.scrub) return;
  LastLook read{.at = now};
  // Shards that the listing shows as well stand there alone, so that a repair takes them back.
  const RepairReport& found = done.files;
  read.lost = found.lost_by_reading.size() + found.inconsistent.size();
  read.lacking = found.found_by_reading.size() - found.lost_by_reading.size();
  read.not_looked_at = done.files.check.not_checked.size() + found.unread + found.more_not_whole;
  // What was read first is the oldest. What could not be read is due in a day.
  const bool is_whole = read.not_looked_at == 0 && done.scrub_began != 0;
  if (is_whole) read.at = std::min(now, done.scrub_began);
  (void)NoteLastLook(cluster, LookKind::kRead, read);
}

// Whether names or inodes lacked copies when somebody last compared them.
bool SomeAreBehind(Cluster& cluster) {
  const auto look = FindLastLook(cluster, LookKind::kListed);
  return look && look->replicas_behind > 0;
}

bool HasMendable(const CheckReport& report) {
  return std::ranges::any_of(report.findings,
                             [](const Finding& finding) { return IsMendable(finding.problem); });
}

}  // namespace

Result<RepairOutcome> RunRepair(Cluster& cluster, const DriveFactory& factory,
                                const RepairRequest& request, const RepairTold& told) {
  TRY(CheckDrives(cluster.map(), request.without));
  // What is wrong with it is told before anything is begun. It is opened under the drive map that
  // there is then.
  TRY(OpenState(cluster, request.state, [](const std::string&) {}));
  RunningWork* const work = told.work;
  const std::string command = work == nullptr ? "repair" : work->work();
  const auto go_on = [work] { return work == nullptr || work->GoOn(); };
  const auto is_stopped = [work] { return work == nullptr ? Status() : work->Check(); };
  RepairOutcome done;
  RepairSign sign(cluster, request);
  Repairer* repairer = nullptr;  // that is at work
  std::optional<Scrubber> scrubber;
  const auto progress = [&](std::string_view phase, double part, uint64_t bytes) {
    sign.ShowAgain();
    if (scrubber) scrubber->ShowLife();
    if (scrubber && work != nullptr) scrubber->SetRate(work->rate());
    if (repairer != nullptr && work != nullptr) repairer->SetRate(work->rate());
    told.progress(phase, part, bytes);
  };
  SweepOptions sweep;
  sweep.progress = [&](std::string_view phase, double part) { progress(phase, part, 0); };
  sweep.is_cancelled = [&] { return !is_stopped().ok(); };
  sweep.may_wait = [&] { (void)go_on(); };
  const Epoch before = cluster.map().epoch;
  std::set<DriveId> without(request.without.begin(), request.without.end());
  Claims claims(cluster, told.say);
  if (request.change != MapChange::kNone) {
    const Status changed = ChangeMap(cluster, factory, request, sweep, claims, done);
    if (cluster.map().epoch != before) {
      TellOfChange(told.events, command, request.drives,
                   fmt::format("epoch {} of the drive map", cluster.map().epoch));
    }
    TRY(is_stopped());
    TRY(changed);
    if (request.change == MapChange::kDrain) {
      without.insert(request.drives.begin(), request.drives.end());
    }
    told.say(fmt::format("epoch {} of the drive map; shards are moved next", done.epoch));
  } else if (request.rebuild) {
    RebuildOptions rebuild;
    static_cast<SweepOptions&>(rebuild) = sweep;
    rebuild.force = request.force;
    rebuild.waiting = [&](const Status& who) { Claims::SayWhoIsWaitedFor(who, told.say); };
    const auto rebuilt = RebuildDrive(cluster, factory, *request.rebuild, rebuild);
    TRY(is_stopped());
    done.registers = TRY(rebuilt).registers;
    TellOfChange(told.events, command, {*request.rebuild}, "an empty drive took its place");
    told.say(fmt::format("drive {} is in service; its shards come next", *request.rebuild));
  } else if (!request.dry_run) {
    done.unsettled = FinishDrains(cluster, sweep, done);
    TRY(is_stopped());
    TRY(KeepHistory(cluster.registers(), cluster.config()));
  }
  Repairer::Options options{
      .read_all = request.scrub,
      .without = without,
      .dry_run = request.dry_run,
      .bytes_per_second = work == nullptr ? request.bytes_per_second : work->rate(),
      .progress = progress,
      .go_on = go_on};
  if (request.scrub && !request.dry_run) {
    scrubber.emplace(cluster, ScrubOptions(options, request, told));
    const auto ended = scrubber->Read();
    done.files = ReportOf(scrubber->own());
    TellOfShards(told.events, command, done.files);
    TRY(is_stopped());
    done.scrub_began = scrubber->note().began;
    done.others_go_on = TRY(ended) == Scrubber::Ended::kOthersRead;
    if (done.others_go_on) return done;
    options.scrubbed = scrubber->note().found;
    if (request.at_end != nullptr) *request.at_end = true;
  }
  const bool changes_drives = request.change != MapChange::kNone || request.rebuild;
  if (!request.dry_run && (!changes_drives || SomeAreBehind(cluster))) {
    const auto swept = SweepRegisters(cluster, sweep);
    TRY(is_stopped());
    done.registers += TRY(swept);
    done.compared_registers = true;
  }
  const auto state = TRY(OpenState(cluster, request.state, told.say));
  options.state = state.get();
  const auto run = [&](const Repairer::Options& how) {
    Repairer one(cluster, how);
    repairer = &one;
    RepairReport report = one.Run();
    repairer = nullptr;
    return report;
  };
  done.files = run(options);
  // What was found while everything was read was told by then.
  TellOfShards(told.events, command, done.files, options.scrubbed);
  TRY(is_stopped());
  const bool mends = request.change == MapChange::kNone && !request.rebuild && !request.dry_run;
  if (mends && HasMendable(done.files.check)) {
    done.tree = TreeMender(cluster, sweep.progress, options.go_on).Run();
    TRY(is_stopped());
    Repairer::Options again = options;
    again.read_all = false;
    again.scrubbed.reset();
    again.state = nullptr;
    done.files.check = run(again).check;  // how things are now
    TRY(is_stopped());
  }
  if (state) TRY(state->Remove());
  LookAtDrained(cluster, request, done);
  Note(cluster, request, done);
  if (request.scrub) TellWhatWasNotRead(done.files);
  if (scrubber) (void)scrubber->Forget();  // else the next one looks at everything once more
  return done;
}

// Telling -----------------------------------------------------------------------------------------

namespace {

// Whether a change of the drive map has left something to do.
bool IsUnfinished(const RepairOutcome& done) {
  if (!done.not_cleared.empty() || !done.drained_not_looked_at.empty()) return true;
  return std::any_of(done.drained.begin(), done.drained.end(), [](const auto& drive) {
    const DriveContents& contents = drive.second;
    const bool stays = contents.map_registers > 0;  // and is no more to be emptied than it is
    return contents.shards + contents.registers > 0 || !stays;
  });
}

// Of what the command is for.
bool LeavesSomething(const RepairRequest& request, const RepairOutcome& done) {
  if (!done.unsettled.ok() || done.registers.failed + done.registers.unheard > 0) return true;
  if (!request.wants_all_at_home) return false;
  return done.files.check.displaced_blocks > 0 || IsUnfinished(done);
}

}  // namespace

std::string RepairJson(const RepairRequest& request, const RepairOutcome& done) {
  const RepairReport& report = done.files;
  nlohmann::ordered_json json{{"dry_run", request.dry_run},
                              {"registers", done.registers.registers},
                              {"register_replicas_behind", done.registers.behind},
                              {"register_replicas_failed", done.registers.failed},
                              {"register_replicas_unheard", done.registers.unheard},
                              {"blocks", report.blocks},
                              {"damaged_shards", report.damaged},
                              {"missing_shards", report.missing},
                              {"written_shards", report.written},
                              {"relocated_shards", report.relocated},
                              {"bytes_read", report.bytes_read},
                              {"bytes_written", report.bytes_written},
                              {"blocks_not_whole", report.not_whole.size()},
                              {"more_blocks_not_whole", report.more_not_whole},
                              {"contradicted", report.contradicted},
                              {"more_contradicted", report.more_contradicted},
                              {"lost", report.lost},
                              {"inconsistent", report.inconsistent},
                              {"failures", report.failures},
                              {"names_mended", done.tree.mended},
                              {"names_not_mended", done.tree.not_mended}};
  if (done.epoch != 0) {
    json["epoch"] = done.epoch;
    json["former_homes_not_cleared"] = done.not_cleared;
    json["retired"] = done.retired;
    json["drained"] = nlohmann::ordered_json::array();
    for (const auto& [id, contents] : done.drained) {
      json["drained"].push_back({{"drive", id},
                                 {"shards", contents.shards},
                                 {"registers", contents.registers},
                                 {"map_registers", contents.map_registers}});
    }
    json["drained_not_looked_at"] = done.drained_not_looked_at;
  }
  if (done.scrub_began != 0) {
    json["scrub_began"] = done.scrub_began / 1'000'000'000;
    json["others_go_on"] = done.others_go_on;
  }
  if (!done.others_go_on) json["check"] = CheckReportJson(report.check);
  return DumpJson(json);
}

std::string RepairText(const RepairRequest& request, const RepairOutcome& done,
                       const std::string& config_file) {
  const RepairReport& report = done.files;
  std::string text = FindingsText(report.check, config_file, /*all=*/false);
  for (const std::string& what : done.tree.mended) text += fmt::format("mended   {}\n", what);
  for (const std::string& what : done.tree.not_mended) text += fmt::format("failed   {}\n", what);
  for (const std::string& where : report.lost) {
    text += fmt::format("error    {}: cannot be read, as too few of its shards are left (lost)\n",
                        where);
  }
  for (const std::string& where : report.inconsistent) {
    text += fmt::format(
        "error    {}: its shards contradict each other, and it cannot be told which are wrong "
        "(inconsistent)\n",
        where);
  }
  for (const std::string& where : report.contradicted) {
    text += fmt::format(
        "wrong    {}: its checksums are right, but the other shards contradict it\n", where);
  }
  if (report.more_contradicted > 0) {
    text += fmt::format("wrong    and {} more such shards\n", report.more_contradicted);
  }
  for (const std::string& what : report.failures) {
    text += fmt::format("{:<8} {}\n", request.dry_run ? "found" : "failed", what);
  }
  if (!request.dry_run && !done.others_go_on) {
    text += fmt::format("{} registers: {} replicas were behind", done.registers.registers,
                        done.registers.behind);
    if (done.registers.failed > 0) text += fmt::format(", {} still are", done.registers.failed);
    if (done.registers.unheard > 0) {
      text += fmt::format(", {} did not answer", done.registers.unheard);
    }
    text += "\n";
  }
  text += fmt::format("{} blocks looked into: {} shards damaged, {} missing\n", report.blocks,
                      report.damaged, report.missing);
  if (!request.dry_run) {
    text +=
        fmt::format("{} shards written again, {} brought where they belong; {} read, {} written\n",
                    report.written, report.relocated, BytesText(report.bytes_read),
                    BytesText(report.bytes_written));
  }
  if (!done.unsettled.ok()) {
    text += fmt::format("failed   the change of the drive map is not complete: {}\n",
                        done.unsettled.message());
  }
  for (const MissingDrive& drive : report.check.missing_drives) {
    const auto why = report.not_retired.find(drive.id);
    if (why == report.not_retired.end()) continue;
    text += fmt::format("failed   drive {} cannot be done without: {}\n", drive.id,
                        why->second.message());
  }
  for (const DriveId id : done.retired) {
    text += fmt::format("drive {} is empty: take it out of the configuration, then away\n", id);
  }
  for (const auto& [id, contents] : done.drained) {
    const auto why = report.not_retired.find(id);
    if (contents.shards + contents.registers > 0) {
      text += fmt::format(
          "drive {} still holds {} shards and {} replicas of names and inodes: uploads under way, "
          "or what clients left that died. `pinstripe collect` removes that once it is a week old, "
          "and `pinstripe rebalance` looks again\n",
          id, contents.shards, contents.registers);
    } else if (contents.map_registers > 0) {
      text += fmt::format(
          "drive {} is empty but for its part of the drive map: it has to stay, as small as it "
          "likes to be. To have that elsewhere, stop it, give its id in {} the address of an empty "
          "device, and run `pinstripe rebuild CONFIG {}`\n",
          id, config_file, id);
    } else {
      text += fmt::format(
          "drive {} is empty, and has to stay: {}\n", id,
          why == report.not_retired.end() ? "look again" : std::string(why->second.message()));
    }
  }
  for (const DriveId id : done.drained_not_looked_at) {
    text += fmt::format(
        "drive {} is away: what it holds could not be looked at. If it is lost, take it out of {}, "
        "and run `pinstripe repair`\n",
        id, config_file);
  }
  for (const DriveId id : done.not_cleared) {
    text += fmt::format(
        "drive {} is away, and holds what it held of names and inodes before: `pinstripe "
        "rebalance` "
        "when it is back\n",
        id);
  }
  if (done.others_go_on) {
    return text + fmt::format(
                      "Others read the rest. One of them looks at everything when that is done: "
                      "`pinstripe work {}` shows them, and `pinstripe status {}` what they have "
                      "found\n",
                      config_file, config_file);
  }
  if (report.check.displaced_blocks > 0) {
    text +=
        fmt::format("{} blocks have shards that are not at home\n", report.check.displaced_blocks);
  }
  if (report.not_whole.empty() && report.inconsistent.empty()) {
    return text + VerdictText(report.check, LeavesSomething(request, done));
  }
  if (!report.inconsistent.empty()) {
    text += fmt::format("{} blocks contradict themselves\n", report.inconsistent.size());
  }
  return text + fmt::format("{} blocks are not whole\n", report.not_whole.size());
}

namespace {

// The check does not know of a damaged shard that is still there.
int ExitCodeOf(const RepairReport& report) {
  if (!report.inconsistent.empty() || !report.lost.empty()) return kExitFailed;
  const int code = ExitCodeOf(report.check);
  return code == 0 && !report.not_whole.empty() ? kExitShort : code;
}

}  // namespace

RunningWorkOptions WorkOf(const std::string& command, const RepairRequest& request) {
  RunningWorkOptions work{.work = command, .drives = request.drives, .takes_rate = true};
  if (request.rebuild) work.drives = {*request.rebuild};
  std::vector<std::string> arguments;
  if (!request.without.empty()) {
    arguments.push_back(fmt::format("--without {}", fmt::join(request.without, ",")));
  }
  if (request.force) arguments.emplace_back("--force");
  if (request.dry_run && command != "verify") arguments.emplace_back("--dry-run");
  work.arguments = fmt::format("{}", fmt::join(arguments, " "));
  work.rate = request.bytes_per_second;
  return work;
}

int ExitCodeOf(const RepairRequest& request, const RepairOutcome& done) {
  const int code = ExitCodeOf(done.files);
  return code == 0 && LeavesSomething(request, done) ? kExitShort : code;
}

}  // namespace pinstripe
