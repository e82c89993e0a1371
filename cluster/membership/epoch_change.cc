#include "cluster/membership/epoch_change.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/coding.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map_group.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/drive_pulls.h"
#include "cluster/membership/newcomer.h"

namespace pinstripe {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(100);  // before drives are asked again
constexpr size_t kDeletesAtOnce = 256;
constexpr uint32_t kPageRecords = 1024;

const MappedDrive* FindIn(const DriveMap& map, DriveId id) {
  const auto found = std::find_if(map.drives.begin(), map.drives.end(),
                                  [id](const MappedDrive& drive) { return drive.id == id; });
  return found == map.drives.end() ? nullptr : &*found;
}

size_t CountActive(const DriveMap& map) {
  return static_cast<size_t>(
      std::count_if(map.drives.begin(), map.drives.end(),
                    [](const MappedDrive& drive) { return drive.state == DriveState::kActive; }));
}

Status CheckReplicasLeft(const DriveMap& next) {
  if (CountActive(next) >= next.replicas) return {};
  return Fail(EINVAL,
              "{} drives would be left to take something, and each name and inode is kept on {}",
              CountActive(next), next.replicas);
}

// Whatever it pulls with.
bool IsAs(const MappedDrive& drive, MappedDrive wanted) {
  wanted.pull = drive.pull;
  return drive == wanted;
}

}  // namespace

Result<DriveMap> NextEpoch(const DriveMap& map, const MappedDrive& wanted, Geometry stripes) {
  DriveMap next = map;
  ++next.epoch;
  MappedDrive drive = wanted;
  drive.pull = 0;
  auto place = std::find_if(next.drives.begin(), next.drives.end(),
                            [&](const MappedDrive& one) { return one.id >= wanted.id; });
  bool takes_another_part = true;
  if (place != next.drives.end() && place->id == wanted.id) {
    takes_another_part = place->weight != wanted.weight || place->domain != wanted.domain;
    if (!takes_another_part) drive.pull = place->pull;
    *place = drive;
  } else {
    next.drives.insert(place, drive);
  }
  if (takes_another_part) {
    BalanceDrive(next, drive.id, static_cast<size_t>(stripes.shards()),
                 static_cast<size_t>(stripes.parity_shards));
  }
  TRY(CheckReplicasLeft(next));
  const auto readable = DriveMap::Decode(next.Encode());
  if (!readable.has_value()) {
    return Fail(EINVAL, "drive {}: {}", wanted.id, readable.error().message());
  }
  return next;
}

namespace {

// The drives on which registers are, or would be.
std::set<DriveId> AllHomesOnDrives(Placement& placement) {
  std::set<DriveId> homes;
  for (uint32_t group = 0; group < placement.map().groups; ++group) {
    const std::vector<DriveId> of_group = placement.HomesOnDrives(group);
    homes.insert(of_group.begin(), of_group.end());
  }
  return homes;
}

// Registers go as a whole from one place to another, and no replica takes the place of one.
HomeChanges CompareNamesPlaces(Placement& before, Placement& after) {
  using Where = NamesPlace::Where;
  HomeChanges changes;
  if (after.names().where == Where::kMovingOut) changes.gaining = AllHomesOnDrives(after);
  if (after.names().where == Where::kEngine) changes.losing = AllHomesOnDrives(before);
  return changes;
}

}  // namespace

Result<HomeChanges> CompareHomes(Placement& before, Placement& after) {
  if (before.names() != after.names()) return CompareNamesPlaces(before, after);
  HomeChanges changes;
  for (uint32_t group = 0; group < after.map().groups; ++group) {
    const std::vector<DriveId> old_homes = before.RegisterHomes(group);
    const std::vector<DriveId> new_homes = after.RegisterHomes(group);
    size_t different = 0;
    for (size_t i = 0; i < new_homes.size(); ++i) {
      if (new_homes[i] == old_homes[i]) continue;
      ++different;
      changes.losing.insert(old_homes[i]);
      changes.gaining.insert(new_homes[i]);
    }
    if (different > 1) {
      return Fail(
          EINVAL,
          "in group {} {} homes of names and inodes would change at once ({} to {}), and one "
          "at a time can be moved safely. That happens where failure domains are too few "
          "to spread them: add drives of further domains first",
          group, different, fmt::join(old_homes, ", "), fmt::join(new_homes, ", "));
    }
    if (different == 1) changes.groups.push_back(group);
  }
  if (!changes.groups.empty() && after.map().replicas == 1) {
    return Fail(EINVAL,
                "names and inodes have one replica in this cluster: what a drive holds of them is "
                "nowhere else, and cannot be moved");
  }
  return changes;
}

std::set<DriveId> DrainingHomes(Placement& placement, Geometry stripes) {
  std::set<DriveId> draining;
  for (const MappedDrive& drive : placement.map().drives) {
    if (drive.state == DriveState::kDraining) draining.insert(drive.id);
  }
  std::set<DriveId> homes;
  const auto note = [&](const std::vector<DriveId>& order, size_t needed) {
    for (size_t i = 0; i < std::min(needed, order.size()); ++i) {
      if (draining.contains(order[i])) homes.insert(order[i]);
    }
  };
  for (uint32_t group = 0; group < placement.map().groups && !draining.empty(); ++group) {
    note(placement.RegisterHomes(group), placement.map().replicas);
    // Small files and pages of maps are copies.
    for (const Geometry stripe : {stripes, Geometry{1, stripes.parity_shards}}) {
      const auto shards = static_cast<size_t>(stripe.shards());
      note(placement.Order(group, shards, static_cast<size_t>(stripe.parity_shards)), shards);
    }
  }
  return homes;
}

namespace {

class EpochChange {
 public:
  EpochChange(Cluster& cluster, const EpochChangeOptions& options)
      : cluster_(cluster),
        runtime_(cluster.runtime()),
        config_(cluster.config()),
        options_(options),
        registers_(options.registers != nullptr ? *options.registers : cluster.registers()) {}

  Result<EpochChangeReport> Run(const DriveFactory& factory,
                                const std::vector<MappedDrive>& drives) {
    TRY(JudgeAll(factory, drives));
    EpochChangeReport report = TRY(SettleAndClear());
    for (const MappedDrive& drive : drives) {
      const std::shared_ptr<Placement> newest = cluster_.NewestPlacement();
      TRY(RefuseWhileNamesMove(*newest));
      const MappedDrive* now = FindIn(newest->map(), drive.id);
      if (now != nullptr && IsAs(*now, drive)) continue;
      const bool is_new = now == nullptr;
      const DriveMap next = TRY(NextEpoch(newest->map(), drive, config_.layout.geometry()));
      TRY(CheckDrivesLeft(next));
      TRY(CheckHomes(next, report.not_cleared));
      TRY(RefuseIfShared());
      if (is_new) TRY(BringIn(factory, drive.id));
      report = TRY(Begin(next, std::move(report)));
    }
    return report;
  }

  Status JudgeAll(const DriveFactory& factory, const std::vector<MappedDrive>& drives) {
    TRY(cluster_.Refresh());
    TRY(RefuseWhileNamesMove(*cluster_.NewestPlacement()));
    const Status verdict = Judge(factory, drives);
    if (verdict.ok()) return {};
    return Fail(verdict.code(), "{}. Nothing was changed", verdict.message());
  }

  Result<EpochChangeReport> Place(Epoch from, const NamesPlace& place) {
    EpochChangeReport report = TRY(SettleAndClear());
    // What was copied was copied in that epoch. Its successor is made by one alone: Create().
    DriveMap next = cluster_.NewestPlacement()->map();
    if (next.epoch != from) {
      return Fail(EBUSY, "somebody else has changed the drive map meanwhile");
    }
    ++next.epoch;
    next.features = WithNamesPlace(std::move(next.features), place);
    TRY(CheckHomes(next, report.not_cleared));
    TRY(RefuseIfShared());
    return Begin(next, std::move(report));
  }

  Result<EpochChangeReport> Renew(std::span<const Feature> to_use = {}) {
    EpochChangeReport report = TRY(SettleAndClear());
    const std::shared_ptr<Placement> newest = cluster_.NewestPlacement();
    TRY(RefuseWhileNamesMove(*newest));
    DriveMap next = newest->map();
    ++next.epoch;
    for (const Feature& feature : to_use) {
      if (UsesFeature(next.features, feature.name)) continue;  // by another host, meanwhile
      const auto at = std::ranges::lower_bound(next.features, feature.name, {}, &Feature::name);
      next.features.insert(at, feature);
    }
    if (!to_use.empty() && next.features == newest->map().features) return report;
    TRY(RefuseIfShared());
    return Begin(next, std::move(report));
  }

  Result<SweepReport> Settle();
  Result<std::set<DriveId>> Clear();

 private:
  static Status RefuseWhileNamesMove(const Placement& newest) {
    if (!newest.names().IsMoving()) return {};
    return Fail(EBUSY,
                "names are being moved, and the drive map stays as it is until that is done: "
                "`pinstripe metadata move` goes on with it");
  }

  Result<EpochChangeReport> SettleAndClear() {
    EpochChangeReport report;
    TRY(cluster_.Refresh());
    report.registers = TRY(Settle());
    report.not_cleared = TRY(Clear());
    return report;
  }

  Result<EpochChangeReport> Begin(const DriveMap& next, EpochChangeReport report) {
    TRY(CheckTheyAnswer(next));
    TRY(Create(next));
    report.registers += TRY(Settle());
    report.not_cleared = TRY(Clear());
    return report;
  }

  // ---- Whether it can be done

  // One epoch after the other, as they would be made.
  struct Step {
    std::shared_ptr<Placement> before;
    std::shared_ptr<Placement> after;
    HomeChanges changes;
  };
  Result<std::vector<Step>> Plan(const std::vector<MappedDrive>& drives) const {
    std::vector<Step> steps;
    std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
    for (const MappedDrive& drive : drives) {
      const MappedDrive* now = FindIn(placement->map(), drive.id);
      if (now != nullptr && IsAs(*now, drive)) continue;
      DriveMap next = TRY(NextEpoch(placement->map(), drive, config_.layout.geometry()));
      Step step{placement, std::make_shared<Placement>(std::move(next), placement), {}};
      step.changes = TRY_CONTEXT(CompareHomes(*step.before, *step.after), "drive {}", drive.id);
      placement = step.after;
      steps.push_back(std::move(step));
    }
    return steps;
  }

  Status CheckTheyBecomeEmpty(const std::vector<MappedDrive>& drives, Placement& after) {
    const Geometry stripes = config_.layout.geometry();
    const std::set<DriveId> before = DrainingHomes(*cluster_.NewestPlacement(), stripes);
    for (const DriveId id : DrainingHomes(after, stripes)) {
      const bool is_wanted = std::any_of(drives.begin(), drives.end(),
                                         [id](const MappedDrive& drive) { return drive.id == id; });
      if (before.contains(id) && !is_wanted) continue;
      return Fail(EINVAL,
                  "drive {} would have to keep a part of everything, though it is drained: the "
                  "drives that are left are in too few failure domains to spread stripes of {}+{} "
                  "and {} copies of names. Add drives of further domains first",
                  id, config_.layout.data_shards, config_.layout.parity_shards,
                  after.map().replicas);
    }
    return {};
  }

  // The map as it would be in the end.
  DriveMap LastOf(const std::vector<MappedDrive>& drives) const {
    std::map<DriveId, MappedDrive> by_id;
    for (const MappedDrive& drive : cluster_.map().drives) by_id[drive.id] = drive;
    for (const MappedDrive& drive : drives) by_id[drive.id] = drive;
    DriveMap last = cluster_.map();
    last.drives.clear();
    for (auto& [id, drive] : by_id) last.drives.push_back(std::move(drive));
    return last;
  }

  Status Judge(const DriveFactory& factory, const std::vector<MappedDrive>& drives) {
    const auto is_so = [this](const MappedDrive& drive) {
      const MappedDrive* now = FindIn(cluster_.map(), drive.id);
      return now != nullptr && IsAs(*now, drive);
    };
    if (std::all_of(drives.begin(), drives.end(), is_so)) return {};
    TRY(CheckDrivesLeft(LastOf(drives)));
    const std::vector<Step> steps = TRY(Plan(drives));
    TRY(CheckTheyBecomeEmpty(drives, *steps.back().after));
    TRY(RefuseIfShared());
    const int64_t version = ClusterVersionOf(cluster_.map().epoch);
    std::map<DriveId, Status> failures;
    std::set<DriveId> answering = WhoAnswers(cluster_.map(), version, failures);
    TRY(CheckMayRaise(answering, version));
    for (const MappedDrive& drive : drives) {
      if (FindIn(cluster_.map(), drive.id) != nullptr) continue;
      TRY(LookAtNewcomer(factory, drive.id));
      answering.insert(drive.id);
    }
    for (const Step& step : steps) {
      TRY(CheckWhoDecidesMeanwhile(step.changes, *step.before, *step.after, answering, failures));
    }
    return {};
  }

  Status CheckDrivesLeft(const DriveMap& next) const {
    const auto shards = static_cast<size_t>(config_.layout.geometry().shards());
    if (CountActive(next) >= shards) return CheckReplicasLeft(next);
    return Fail(EINVAL, "{} drives would be left to take something, and the layout in {} needs {}",
                CountActive(next), config_.file, shards);
  }

  Status CheckHomes(const DriveMap& next, const std::set<DriveId>& not_cleared) {
    Placement after(next, cluster_.NewestPlacement());
    changes_ = TRY(CompareHomes(*cluster_.NewestPlacement(), after));
    for (const DriveId id : changes_.gaining) {
      if (!not_cleared.contains(id)) continue;
      return Fail(EIO,
                  "drive {} is away, and holds what it held as a home of names and inodes before: "
                  "bring it up, and run `pinstripe rebalance`, before it becomes one again",
                  id);
    }
    return {};
  }

  // The cluster version is the device's, and other clusters know nothing of our epochs.
  Status RefuseIfShared() {
    const std::string prefix = ClusterPrefix(config_.name);
    const std::string past = prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff');
    const std::string end(kMaxKeyBytes, '\xff');
    using Keys = std::vector<std::string>;
    Gather<Result<Keys>> gather(runtime_);
    for (const MappedDrive& mapped : cluster_.map().drives) {
      Drive* drive = cluster_.FindDrive(mapped.id);
      if (drive == nullptr) continue;
      // The lowest key of all, and the first one behind ours.
      drive->Range(std::string(kLowestKey), end, 1, false, Deadline(), gather.Ask(mapped.id));
      drive->Range(past, end, 1, false, Deadline(), gather.Ask(mapped.id));
    }
    while (const auto answer = gather.Next(Time::max())) {
      if (!answer->value.has_value()) continue;  // it is away
      for (const std::string& key : *answer->value) {
        if (key.starts_with(prefix)) continue;
        const auto other = ClusterOfKey(key);
        return Fail(
            ENOTSUP,
            "drive {} holds records of {}, too. Whoever uses these would be shut out when "
            "the drive map of '{}' changes: clusters that share drives keep the drives that "
            "they have",
            answer->index, other ? fmt::format("the cluster '{}'", *other) : "something else",
            config_.name);
      }
    }
    return {};
  }

  // Finds which drives answer under this cluster version, and why others do not.
  std::set<DriveId> WhoAnswers(const DriveMap& map, int64_t version,
                               std::map<DriveId, Status>& failures) {
    std::set<DriveId> answering;
    Gather<Result<RecordHead>> gather(runtime_);
    for (const MappedDrive& mapped : map.drives) {
      Drive* drive = cluster_.FindDrive(mapped.id);
      if (drive == nullptr) continue;
      drive->Head(SuperblockKey(config_.name), {Deadline(), version}, gather.Ask(mapped.id));
    }
    while (const auto answer = gather.Next(Time::max())) {
      const auto id = static_cast<DriveId>(answer->index);
      if (answer->value.has_value()) {
        answering.insert(id);
        failures.erase(id);
      } else {
        failures.insert_or_assign(id, answer->value.error());
      }
    }
    return answering;
  }

  std::string Why(DriveId id, const std::map<DriveId, Status>& failures) const {
    const auto found = failures.find(id);
    return found == failures.end() ? fmt::format("drive {} is not in {}", id, config_.file)
                                   : std::string(found->second.message());
  }

  // Until the new homes have a say, those that stay decide alone, and make the new ones whole. If
  // too few of them are there, nobody could go on, nor back.
  Status CheckWhoDecidesMeanwhile(const HomeChanges& changes, Placement& before, Placement& after,
                                  const std::set<DriveId>& answering,
                                  const std::map<DriveId, Status>& failures) const {
    for (const DriveId id : changes.gaining) {
      if (answering.contains(id)) continue;
      return Fail(EIO, "drive {} must answer, as it is to take over names and inodes: {}", id,
                  Why(id, failures));
    }
    for (const uint32_t group : changes.groups) {
      const std::vector<DriveId> former = before.RegisterHomes(group);
      const std::vector<DriveId> homes = after.RegisterHomes(group);
      size_t there = 0;
      std::string reasons;
      for (const DriveId id : homes) {
        if (std::find(former.begin(), former.end(), id) == former.end()) continue;
        there += answering.contains(id);
        if (!answering.contains(id)) reasons += (reasons.empty() ? "" : "; ") + Why(id, failures);
      }
      if (there > homes.size() / 2) continue;
      return Fail(
          EIO,
          "of the {} homes of names and inodes that stay in group {}, {} must answer, and {} "
          "do: {}. Bring these drives back, or rebuild them, first",
          homes.size() - 1, group, homes.size() / 2 + 1, there, reasons);
    }
    return {};
  }

  Status CheckTheyAnswer(const DriveMap& next) {
    const int64_t version = ClusterVersionOf(cluster_.map().epoch);
    std::map<DriveId, Status> failures;
    const std::set<DriveId> answering = WhoAnswers(next, version, failures);
    Placement after(next, cluster_.NewestPlacement());
    TRY(CheckWhoDecidesMeanwhile(changes_, *cluster_.NewestPlacement(), after, answering,
                                 failures));
    return CheckMayRaise(answering, version);
  }

  // From the moment an epoch is there, everybody raises the cluster version of the drives. We find
  // out whether we may by setting the version that they have.
  Status CheckMayRaise(const std::set<DriveId>& answering, int64_t version) {
    Gather<Status> gather(runtime_);
    for (const DriveId id : answering) {
      Drive* drive = cluster_.FindDrive(id);
      drive->SetClusterVersion(version, {Deadline(), version}, gather.Ask(id));
    }
    while (const auto answer = gather.Next(Time::max())) {
      if (answer->value.ok()) continue;
      const auto id = static_cast<DriveId>(answer->index);
      return Fail(
          answer->value.code(),
          "drive {} does not let us set its cluster version, which a change of the drive map "
          "needs: {}. The identity in the credentials needs the permission SETUP, for every "
          "client of the cluster",
          id, answer->value.WithoutDriveName());
    }
    return {};
  }

  // ---- Making it

  // Whether it has a superblock already, of this cluster. Fails if it cannot be brought in.
  Result<bool> IsOurs(Newcomer& newcomer, DriveId id) {
    const Result<Record> record = newcomer.ReadItsSuperblock();
    const Result<Superblock> there = ReadSuperblock(record, config_.name, id);
    if (there.has_value()) {
      if (there->cluster_uuid == cluster_.uuid()) return true;
      return Fail(EEXIST, "drive {}: it belongs to another cluster of the name '{}'", id,
                  config_.name);
    }
    if (there.error().code() == EINVAL || there.error().code() == EBADMSG) {
      return Fail(EEXIST, "drive {}: {}", id, there.error().WithoutDriveName());
    }
    if (there.error().code() != ENOENT) return Failed(newcomer.DoesNotAnswer(there.error()));
    TRY(newcomer.RefuseWhatIsNotEmpty(/*force=*/false));
    TRY(newcomer.RefuseLaterVersion());
    return false;
  }

  Status LookAtNewcomer(const DriveFactory& factory, DriveId id) {
    Newcomer newcomer(cluster_, id, "expand");
    TRY(newcomer.Connect(factory));
    TRY(IsOurs(newcomer, id));
    return {};
  }

  Status BringIn(const DriveFactory& factory, DriveId id) {
    Newcomer newcomer(cluster_, id, "expand");
    TRY(newcomer.Connect(factory));
    const Superblock block{.cluster_name = config_.name,
                           .cluster_uuid = cluster_.uuid(),
                           .drive = id,
                           .map_drives = cluster_.map_drives(),
                           .formatted_at = runtime_.WallClock()};
    if (!TRY(IsOurs(newcomer, id))) TRY(newcomer.WriteSuperblock(block, Expected::Absent()));
    newcomer.WaitUntilMet();
    return {};
  }

  Status Create(const DriveMap& next) {
    const ChangeOutcome outcome = cluster_.registers().Change(
        {kMapGroup, EpochKey(next.epoch)}, {}, next.Encode(), Durability::kWriteThrough);
    TRY_CONTEXT(outcome.why, "make epoch {}", next.epoch);
    if (!outcome.applied() && outcome.now.value != next.Encode()) {
      return Fail(EBUSY, "somebody else changes the drive map at this moment");
    }
    Log(LogLevel::kInfo, "epoch made", {{"cluster", config_.name}, {"epoch", next.epoch}});
    const Status kept = KeepHistory(cluster_.registers(), config_);
    if (!kept.ok()) {
      Log(LogLevel::kWarn, "opening the cluster reads more than it needs to",
          {{"cluster", config_.name}, {"why", kept}});
    }
    return cluster_.Refresh();
  }

  // ---- Settling it

  // Waits until no quorum of the epoch before can be completed any more, and the new homes refuse
  // everybody who knows no later one. Then a majority of the homes of each group has heard of this
  // epoch.
  Status ShutOutTheEpochBefore(const HomeChanges& changes, Placement& before, Placement& after) {
    const int64_t version = ClusterVersionOf(after.map().epoch);
    const Time until = runtime_.Now() + config_.open_timeout;
    for (;;) {
      if (IsCancelled(options_)) return Cancelled();
      std::map<DriveId, Status> failures;
      const std::set<DriveId> told = WhoAnswers(after.map(), version, failures);
      for (const auto& [id, why] : failures) {
        if (why.code() != EREMCHG || cluster_.map().epoch == after.map().epoch) continue;
        return Fail(EBUSY, "somebody else changes the drive map at this moment: {}", why.message());
      }
      Status enough = WhoIsMissing(changes, before, after, told, failures);
      if (enough.ok() && before.names().OnEngine()) enough = TellEngine(version);
      if (enough.ok() || runtime_.Now() >= until) return enough;
      Sleep(runtime_, runtime_.Now() + kPause);
    }
  }

  Status TellEngine(int64_t version) {
    Drive* const engine = cluster_.FindDrive(kEngineDrive);
    if (engine == nullptr) {
      return Fail(EIO, "{} is not in {}", TextOfDrive(kEngineDrive), config_.file);
    }
    Gather<Result<RecordHead>> gather(runtime_);
    engine->Head(SuperblockKey(config_.name), {Deadline(), version}, gather.Ask(0));
    const auto answer = std::move(gather.Next(Time::max())->value);
    return answer.has_value() ? Status() : answer.error();
  }

  Status WhoIsMissing(const HomeChanges& changes, Placement& before, Placement& after,
                      const std::set<DriveId>& told, const std::map<DriveId, Status>& failures) {
    TRY(CheckWhoDecidesMeanwhile(changes, before, after, told, failures));
    for (uint32_t group = 0; group < after.map().groups; ++group) {
      const std::vector<DriveId> homes = before.RegisterHomes(group);
      if (homes.empty()) break;  // they are on an engine
      size_t count = 0;
      std::string reasons;
      for (const DriveId id : homes) {
        count += told.contains(id);
        if (!told.contains(id)) reasons += (reasons.empty() ? "" : "; ") + Why(id, failures);
      }
      if (count > homes.size() / 2) continue;
      return Fail(EIO, "group {}: {} of {} homes of names and inodes must answer: {}", group,
                  homes.size() / 2 + 1, homes.size(), reasons);
    }
    return {};
  }

  Result<SweepReport> GiveToNewHomes(const HomeChanges& changes, Placement& before,
                                     Placement& after) {
    const auto restore = [&](uint32_t group,
                             const RegisterStore::SweepProgress& progress) -> Result<SweepReport> {
      const std::vector<DriveId> homes = after.RegisterHomes(group);
      const std::vector<DriveId> former = before.RegisterHomes(group);
      if (cluster_.map().epoch != after.map().epoch) {
        return Fail(EREMCHG, "somebody else has changed the drive map meanwhile");
      }
      for (size_t i = 0; i < homes.size(); ++i) {
        if (homes[i] == former[i]) continue;
        Drive* drive = cluster_.FindDrive(homes[i]);
        if (drive == nullptr) return Fail(EIO, "drive {} is not in {}", homes[i], config_.file);
        return registers_.Restore(group, i, *drive, progress);
      }
      return SweepReport();
    };
    return GroupWork(runtime_, changes.groups, restore, options_).Run("moving names and inodes");
  }

  Time Deadline() const { return runtime_.Now() + config_.drive_timeout; }

  Cluster& cluster_;
  Runtime& runtime_;
  const ClusterConfig& config_;
  const EpochChangeOptions& options_;
  RegisterStore& registers_;
  HomeChanges changes_;
};

Result<SweepReport> EpochChange::Settle() {
  if (cluster_.IsSettled()) return SweepReport();
  const std::shared_ptr<Placement> after = cluster_.NewestPlacement();
  const std::shared_ptr<Placement> before = cluster_.FormerPlacement();
  const Epoch epoch = after->map().epoch;
  if (before->map().epoch + 1 != epoch) {
    return Fail(EBUSY, "somebody else changes the drive map at this moment");
  }
  const HomeChanges changes = TRY(CompareHomes(*before, *after));
  SweepReport report;
  const bool uses_more = before->map().features != after->map().features;
  if (!changes.groups.empty() || before->names() != after->names() || uses_more) {
    TRY_CONTEXT(ShutOutTheEpochBefore(changes, *before, *after), "epoch {} of the drive map",
                epoch);
  }
  if (!changes.groups.empty()) {
    TRY(WaitAndTell(runtime_, runtime_.Now() + options_.forgetting, options_.forgetting,
                    "waiting until the former homes are forgotten", options_));
    if (options_.restore) {
      report =
          TRY_CONTEXT(GiveToNewHomes(changes, *before, *after), "epoch {} of the drive map", epoch);
    }
  }
  const Settlement settlement{{changes.losing.begin(), changes.losing.end()}};
  // A process that finds it there was only slower.
  TRY_CONTEXT(cluster_.registers()
                  .Change({kMapGroup, SettlementKey(epoch)}, {}, settlement.Encode(),
                          Durability::kWriteThrough)
                  .why,
              "settle epoch {} of the drive map", epoch);
  Log(LogLevel::kInfo, "epoch settled",
      {{"cluster", config_.name}, {"epoch", epoch}, {"registers", report.registers}});
  TRY(cluster_.Refresh());
  return report;
}

Result<std::set<DriveId>> EpochChange::Clear() {
  struct Entry {
    Epoch epoch;
    RegisterValue seen;
    Settlement settlement;
  };
  std::vector<Entry> entries;
  std::set<DriveId> drives;
  const std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
  const Epoch newest = placement->map().epoch;
  // All at once: there is one for each change of the map that there ever was.
  Epoch next = 2;
  for (std::optional<std::string> first = SettlementKey(next); first.has_value();) {
    auto page =
        TRY(cluster_.registers().Scan(kMapGroup, *first, SettlementKey(newest), kMaxRangeRecords));
    for (auto& [key, value] : page.entries) {
      if (key != SettlementKey(next)) return Fail(EIO, "epoch {} is not settled", next);
      Settlement settlement = TRY(Settlement::Decode(*value.value));
      drives.insert(settlement.to_clear.begin(), settlement.to_clear.end());
      if (!settlement.to_clear.empty()) entries.push_back({next, std::move(value), settlement});
      ++next;
    }
    first = std::move(page.next);
  }
  if (next <= newest) return Fail(EIO, "epoch {} is not settled", next);
  std::set<DriveId> left;
  size_t done = 0;
  for (const DriveId id : drives) {
    if (IsCancelled(options_)) return Failed(Cancelled());
    Report(options_, "clearing former homes",
           static_cast<double>(done++) / static_cast<double>(drives.size()));
    Drive* drive = cluster_.FindDrive(id);
    const Status cleared = drive == nullptr ? Fail(EHOSTUNREACH, "it is not in {}", config_.file)
                                            : ClearRegisters(cluster_, id, *drive, *placement);
    if (cleared.code() == EREMCHG) return Failed(cleared);
    if (cleared.ok()) continue;
    Log(LogLevel::kWarn, "a former home of registers keeps what it holds for now",
        {{"drive", id}, {"why", cleared}});
    left.insert(id);
  }
  for (const Entry& entry : entries) {
    Settlement now;
    for (const DriveId id : entry.settlement.to_clear) {
      if (left.contains(id)) now.to_clear.push_back(id);
    }
    if (now.to_clear == entry.settlement.to_clear) continue;
    // Somebody who was faster has cleared as much.
    TRY(cluster_.registers()
            .Change({kMapGroup, SettlementKey(entry.epoch)}, entry.seen, now.Encode(),
                    Durability::kWriteThrough)
            .why);
  }
  return left;
}

}  // namespace

Status ClearRegisters(Cluster& cluster, DriveId id, Drive& drive, Placement& placement) {
  if (id == kEngineDrive && placement.names().NamesEngine()) {
    return Fail(EBUSY, "names are on the engine, or on their way there");
  }
  Runtime& runtime = cluster.runtime();
  const int64_t version = ClusterVersionOf(placement.map().epoch);
  const auto terms = [&] { return Terms(runtime.Now() + cluster.config().drive_timeout, version); };
  const std::string prefix = ClusterPrefix(cluster.config().name) + "R";
  std::string first = prefix;
  const std::string last = prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff');
  std::map<uint32_t, bool> is_home;
  const auto keeps = [&](const std::string& key) {
    Reader reader(key);
    reader.Raw(prefix.size());
    const uint32_t group = reader.U32();
    if (!reader.ok() || group >= placement.map().groups) return true;  // of the map, or strange
    const auto [at, is_new] = is_home.try_emplace(group);
    if (is_new) {
      const std::vector<DriveId> homes = placement.RegisterHomes(group);
      at->second = std::find(homes.begin(), homes.end(), id) != homes.end();
    }
    return at->second;
  };
  for (bool more = true; more;) {
    Gather<Result<RangeRecords>> gather(runtime);
    drive.ListRecords(first, last, kPageRecords, /*reverse=*/false, /*value_limit=*/0, terms(),
                      gather.Ask(0));
    const RangeRecords page = TRY(std::move(gather.Next(Time::max())->value));
    more = page.more && !page.records.empty();
    if (more) first = page.records.back().key + '\0';
    Gather<Status> deletes(runtime);
    size_t next = 0;
    while (next < page.records.size() || deletes.outstanding() > 0) {
      for (; next < page.records.size() && deletes.outstanding() < kDeletesAtOnce; ++next) {
        if (keeps(page.records[next].key)) continue;
        drive.Delete(page.records[next].key, Expected::Any(), Durability::kWriteBack, terms(),
                     deletes.Ask(next));
      }
      const auto answer = deletes.Next(Time::max());
      if (answer == nullptr) break;
      if (answer->value.code() != ENOENT) TRY(answer->value);
    }
  }
  Gather<Status> flush(runtime);
  drive.Flush(terms(), flush.Ask(0));
  return flush.Next(Time::max())->value;
}

Status JudgeDrives(Cluster& cluster, const DriveFactory& factory,
                   const std::vector<MappedDrive>& drives) {
  return EpochChange(cluster, {}).JudgeAll(factory, drives);
}

Result<EpochChangeReport> ChangeDrives(Cluster& cluster, const DriveFactory& factory,
                                       const std::vector<MappedDrive>& drives,
                                       const EpochChangeOptions& options) {
  return EpochChange(cluster, options).Run(factory, drives);
}

Result<EpochChangeReport> RenewEpoch(Cluster& cluster, const EpochChangeOptions& options) {
  return EpochChange(cluster, options).Renew();
}

Status PlaceNames(Cluster& cluster, Epoch from, const NamesPlace& place,
                  const EpochChangeOptions& options) {
  TRY(EpochChange(cluster, options).Place(from, place));
  return {};
}

Status UseFeature(Cluster& cluster, std::string_view name, const EpochChangeOptions& options) {
  const Feature feature = NewFeature(name);
  return UseFeatures(cluster, {&feature, 1}, options);
}

Status UseFeatures(Cluster& cluster, std::span<const Feature> features,
                   const EpochChangeOptions& options) {
  const auto is_used = [&](const Feature& feature) {
    return UsesFeature(cluster.map().features, feature.name);
  };
  // One that was interrupted is ended.
  if (std::ranges::all_of(features, is_used) && cluster.IsSettled()) return {};
  TRY(EpochChange(cluster, options).Renew(features));
  return {};
}

Result<SweepReport> SettleEpoch(Cluster& cluster, const EpochChangeOptions& options) {
  TRY(cluster.Refresh());
  return EpochChange(cluster, options).Settle();
}

Result<std::set<DriveId>> ClearFormerHomes(Cluster& cluster, const EpochChangeOptions& options) {
  return EpochChange(cluster, options).Clear();
}

}  // namespace pinstripe
