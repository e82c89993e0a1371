#include "cluster/membership/name_move.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "cluster/map/names_place.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/group_work.h"
#include "cluster/membership/newcomer.h"

namespace pinstripe {
namespace {

using Where = NamesPlace::Where;

constexpr Duration kPause = std::chrono::milliseconds(20);
constexpr int kLooks = 4;  // until a comparison finds nothing that had to be copied again

class NameMove {
 public:
  NameMove(Cluster& cluster, const EpochChangeOptions& options)
      : cluster_(cluster),
        runtime_(cluster.runtime()),
        config_(cluster.config()),
        options_(options) {}

  Result<NameMoveReport> ToEngine(const DriveFactory& factory) {
    TRY(cluster_.Refresh());
    if (!config_.engine) {
      return Fail(EINVAL, "{} names no engine: give it a table [metadata]", config_.file);
    }
    const std::string& engine = config_.engine->kind;
    TRY(Begin());
    if (names().NamesEngine() && names().engine != engine) {
      return Fail(EINVAL,
                  "the cluster uses {}, and {} names {}: move its names to the drives first",
                  names().engine, config_.file, engine);
    }
    report_.was_there = names().where == Where::kEngine;
    if (names().where == Where::kDrives) {
      const uint32_t incarnation = TRY(PrepareEngine(factory));
      TRY(Place({Where::kMovingIn, engine, incarnation}));
    }
    if (names().where == Where::kMovingIn) {
      Drive* const to = TRY(WaitForEngine());
      TRY(CopyAll("copying names to " + engine, [&](uint32_t group, const auto& progress) {
        return CopyGroup(*to, group, progress);
      }));
    }
    if (names().where != Where::kEngine) TRY(Place({Where::kEngine, engine, names().incarnation}));
    return Finish();
  }

  Result<NameMoveReport> ToDrives() {
    TRY(cluster_.Refresh());
    TRY(Begin());
    report_.was_there = names().where == Where::kDrives;
    Drive* const engine = cluster_.FindDrive(kEngineDrive);
    if (names().where == Where::kEngine) {
      TRY(Place({Where::kMovingOut, names().engine, names().incarnation}));
    }
    if (names().where == Where::kMovingOut) {
      TRY(CopyAll("copying names to the drives", [this](uint32_t group, const auto& progress) {
        return CopyGroupToHomes(group, progress);
      }));
    }
    if (names().where != Where::kDrives) TRY(Place({}));
    // What is left there would only take room: it is removed before names go there again.
    const Status cleared =
        engine == nullptr ? Status() : ClearRegisters(cluster_, kEngineDrive, *engine, *newest_);
    if (!cleared.ok()) {
      Log(LogLevel::kWarn, "the engine keeps what it holds of names",
          {{"cluster", config_.name}, {"why", cleared}});
    }
    return Finish();
  }

 private:
  using Copy = GroupWork::Work;

  const NamesPlace& names() const { return newest_->names(); }

  // From where things are. Somebody who was cut short may not have settled it.
  Status Begin() {
    newest_ = cluster_.NewestPlacement();
    TRY(SettleEpoch(cluster_, options_));
    return IsStillNewest();
  }

  // All that is done rests on the epoch that was made, or found, last.
  Status IsStillNewest() const {
    if (cluster_.map().epoch == newest_->map().epoch) return {};
    return Fail(EBUSY, "somebody else has changed the drive map meanwhile");
  }

  Status Place(const NamesPlace& place) {
    TRY(GoOn());
    const Epoch from = newest_->map().epoch;
    TRY(PlaceNames(cluster_, from, place, options_));
    newest_ = cluster_.NewestPlacement();
    if (newest_->map().epoch == from + 1 && names() == place) return {};
    return Fail(EBUSY, "somebody else has changed the drive map meanwhile");
  }

  Status GoOn() const { return IsCancelled(options_) ? Cancelled() : Status(); }

  Result<NameMoveReport> Finish() {
    report_.not_cleared = TRY(ClearFormerHomes(cluster_, options_));
    return report_;
  }

  // The store gets a superblock of its own, and holds no register that an earlier move has left
  // there. The answer: its incarnation.
  Result<uint32_t> PrepareEngine(const DriveFactory& factory) {
    Newcomer newcomer(cluster_, kEngineDrive, "metadata move");
    TRY(newcomer.Connect(factory));
    const Result<Record> record = newcomer.ReadItsSuperblock();
    const Result<Superblock> there = ReadSuperblock(record, config_.name, kEngineDrive);
    if (there.has_value() && there->cluster_uuid != cluster_.uuid()) {
      return Fail(EEXIST,
                  "{} keeps the names of another cluster of the name '{}'. If that is gone: remove "
                  "what it holds there first",
                  config_.engine->kind, config_.name);
    }
    if (!there.has_value()) {
      if (there.error().code() != ENOENT) return Failed(newcomer.DoesNotAnswer(there.error()));
      TRY(newcomer.RefuseWhatIsNotEmpty(/*force=*/false));
    }
    const Status later = newcomer.RefuseLaterVersion();
    if (!later.ok() && there.has_value()) {
      return Fail(EBUSY, "somebody else has moved names to {} meanwhile", config_.engine->kind);
    }
    TRY(later);
    const Superblock block{.cluster_name = config_.name,
                           .cluster_uuid = cluster_.uuid(),
                           .drive = kEngineDrive,
                           .map_drives = cluster_.map_drives(),
                           .formatted_at = runtime_.WallClock(),
                           .incarnation = static_cast<uint32_t>(runtime_.Random()) | 1};
    TRY(newcomer.WriteSuperblock(
        block, there.has_value() ? Expected::Version(record->version) : Expected::Absent()));
    TRY(ClearRegisters(cluster_, kEngineDrive, newcomer.drive(), *newest_));
    return block.incarnation;
  }

  Result<Drive*> WaitForEngine() {
    const TimeLimit limit(runtime_, config_.open_timeout);
    for (;;) {
      Drive* const engine = cluster_.FindDrive(kEngineDrive);
      if (engine != nullptr && engine->IsUp()) return engine;
      if (limit.has_passed()) {
        return Fail(EIO, "{} must answer: {}", TextOfDrive(kEngineDrive),
                    engine == nullptr ? "it is not in the configuration" : engine->WhyAway());
      }
      TRY(GoOn());
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + kPause);
    }
  }

  Result<SweepReport> CopyGroup(Drive& to, uint32_t group,
                                const RegisterStore::SweepProgress& progress) {
    const GroupReplicas from = cluster_.Replicas(group);
    TRY(IsStillNewest());
    return cluster_.registers().CopyTo(to, group, from, progress);
  }

  Result<SweepReport> CopyGroupToHomes(uint32_t group,
                                       const RegisterStore::SweepProgress& progress) {
    SweepReport report;
    for (const DriveId id : newest_->HomesOnDrives(group)) {
      Drive* const drive = cluster_.FindDrive(id);
      if (drive == nullptr) return Fail(EIO, "drive {} is not in {}", id, config_.file);
      const SweepReport one = TRY(CopyGroup(*drive, group, progress));
      report.registers = one.registers;
      report.behind += one.behind;
    }
    return report;
  }

  // Everything, until a look at all of it finds that the copies are what they are copies of.
  Status CopyAll(const std::string& what, const Copy& copy) {
    std::vector<uint32_t> groups(cluster_.map().groups);
    std::iota(groups.begin(), groups.end(), 0);
    for (int look = 1;; ++look) {
      const DriveLosses before = cluster_.CountLosses();
      const SweepReport done =
          TRY(GroupWork(runtime_, groups, copy, options_)
                  .Run(look == 1 ? what : std::string("comparing names with their copies")));
      report_.registers = done.registers;
      // A drive that another one has replaced meanwhile may lack what was compared.
      if (look > 1 && done.behind == 0 && cluster_.CountLosses() == before) return {};
      if (look == kLooks) {
        return Fail(EIO, "{} registers still differ from their copies after {} looks at all",
                    done.behind, kLooks);
      }
    }
  }

  Cluster& cluster_;
  Runtime& runtime_;
  const ClusterConfig& config_;
  const EpochChangeOptions& options_;
  std::shared_ptr<Placement> newest_;  // the epoch that was made, or found, last
  NameMoveReport report_;
};

}  // namespace

Result<NameMoveReport> MoveNamesToEngine(Cluster& cluster, const DriveFactory& factory,
                                         const EpochChangeOptions& options) {
  return NameMove(cluster, options).ToEngine(factory);
}

Result<NameMoveReport> MoveNamesToDrives(Cluster& cluster, const EpochChangeOptions& options) {
  return NameMove(cluster, options).ToDrives();
}

}  // namespace pinstripe
