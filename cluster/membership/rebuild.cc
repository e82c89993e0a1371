#include "cluster/membership/rebuild.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/electorate.h"
#include "cluster/map/placement.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/group_work.h"
#include "cluster/membership/newcomer.h"

namespace pinstripe {
namespace {

class Rebuilding {
 public:
  Rebuilding(Cluster& cluster, DriveId id, const RebuildOptions& options)
      : cluster_(cluster),
        runtime_(cluster.runtime()),
        config_(cluster.config()),
        id_(id),
        options_(options),
        registers_(options.registers != nullptr ? *options.registers : cluster.registers()),
        newcomer_(cluster, id, "rebuild"),
        claim_(cluster, id, DriveWork::kRebuild) {
    options_.is_cancelled = [this, &options] { return claim_.IsLost() || IsCancelled(options); };
  }

  Result<RebuildReport> Run(const DriveFactory& factory) {
    auto report = BringIn(factory);
    if (!report.has_value()) TRY(claim_.Check());  // that is why
    return report;
  }

 private:
  Result<RebuildReport> BringIn(const DriveFactory& factory) {
    TRY(RefuseWhatCannotBe());
    TRY(newcomer_.Connect(factory));
    TRY(FindOutWhatItIs());
    if (options_.claim) {
      TRY(claim_.Take(options_.waiting));
      TRY(FindOutWhatItIs());  // by now
    }
    TRY(RefuseIfTheLostOneAnswers());
    const Time gone_since = runtime_.Now();
    if (!block_.has_value()) TRY(Mark());
    newcomer_.Expect(*block_);
    TRY(Enrol());
    cluster_.ExpectIncarnation(id_, block_->incarnation);
    Log(LogLevel::kInfo, "rebuilding a drive",
        {{"cluster", config_.name}, {"drive", id_}, {"incarnation", block_->incarnation}});
    // Nobody may count what was learnt from the lost drive when the records of the others are
    // looked at.
    TRY(WaitAndTell(runtime_, gone_since + options_.forgetting, options_.forgetting,
                    "waiting until the lost drive is forgotten", options_));
    const uint64_t start = ReadStart();
    RebuildReport report{.incarnation = block_->incarnation};
    if (options_.sweep) report.registers = TRY(RestoreRegisters());
    TRY(claim_.Check());
    TRY(PutInService());
    NoteStart(start);
    Log(LogLevel::kInfo, "drive rebuilt",
        {{"cluster", config_.name},
         {"drive", id_},
         {"incarnation", block_->incarnation},
         {"registers", report.registers.registers}});
    newcomer_.WaitUntilMet();
    return report;
  }

  Status RefuseWhatCannotBe() const {
    const auto& drives = cluster_.map().drives;
    if (std::none_of(drives.begin(), drives.end(),
                     [&](const MappedDrive& drive) { return drive.id == id_; })) {
      return Fail(EINVAL, "the cluster '{}' has no drive {}", config_.name, id_);
    }
    if (cluster_.map().replicas == 1) {
      return Fail(ENOTSUP,
                  "registers have one replica in the cluster '{}': what drive {} held of them is "
                  "nowhere else, so that it cannot be rebuilt",
                  config_.name, id_);
    }
    return {};
  }

  // Sets block_ if somebody has begun to rebuild it.
  Status FindOutWhatItIs() {
    block_.reset();
    const Result<Record> record = newcomer_.ReadItsSuperblock();
    const Result<Superblock> block = ReadSuperblock(record, config_.name, id_);
    const uint32_t incarnation = TRY(ReadIncarnation(IncarnationKey(id_))).first;
    if (block.has_value()) {
      TRY(CheckOurs(*block, incarnation));
      block_ = *block;
      return {};
    }
    switch (block.error().code()) {
      case ENOENT:
        TRY(newcomer_.RefuseLaterVersion());
        if (options_.force && cluster_.map().epoch > 1) return RefuseWhatOthersUse();
        return newcomer_.RefuseWhatIsNotEmpty(options_.force);
      case EINVAL: return Fail(EINVAL, "drive {}: {}", id_, block.error().message());
      case EBADMSG:
        return Fail(EBADMSG, "drive {}: {}. Erase it before it is rebuilt", id_,
                    block.error().WithoutDriveName());
      default: return Failed(newcomer_.DoesNotAnswer(block.error()));
    }
  }

  // The cluster version would shut out others who use it.
  Status RefuseWhatOthersUse() {
    const Status status = newcomer_.RefuseWhatIsNotEmpty(/*force=*/false);
    if (status.code() != EEXIST) return status;
    return Fail(
        EEXIST,
        "drive {} holds records of others, and cannot be shared with them, as the drive map of "
        "'{}' has changed: erase it first",
        id_, config_.name);
  }

  // It may have moved to another address, or the new one may have been put at another one.
  Status RefuseIfTheLostOneAnswers() {
    Gather<Result<Record>> gather(runtime_);
    cluster_.FindDrive(id_)->Get(SuperblockKey(config_.name), {},
                                 runtime_.Now() + config_.drive_timeout, gather.Ask(0));
    const auto answer = std::move(gather.Next(Time::max())->value);
    if (!answer.has_value()) return {};
    const auto block = ReadSuperblock(answer, config_.name, id_);
    if (block_.has_value() && block.has_value() && block->incarnation == block_->incarnation) {
      return Fail(EEXIST, "drive {} was put in service by somebody else just now", id_);
    }
    return Fail(
        EEXIST,
        "drive {} still answers, besides the one that is to take its place: stop one of them", id_);
  }

  Status CheckOurs(const Superblock& block, uint32_t incarnation) const {
    if (block.cluster_uuid != cluster_.uuid()) {
      return Fail(EINVAL, "drive {}: it belongs to another cluster of the name '{}'", id_,
                  config_.name);
    }
    const Status in_service = CheckInService(block, incarnation);
    if (in_service.code() == ESTALE) {
      return Fail(EINVAL, "drive {}: {}", id_, in_service.message());
    }
    if (in_service.ok()) {
      return Fail(EEXIST,
                  "drive {} is in service: there is nothing to rebuild. What it lacks is brought "
                  "back by a repair",
                  id_);
    }
    return {};
  }

  using Incarnation = std::pair<uint32_t, RegisterValue>;  // and the register that says so
  Result<Incarnation> ReadIncarnation(const std::string& key) {
    const RegisterValue value =
        TRY_CONTEXT(registers_.Read({kMapGroup, key}), "rebuild drive {}", id_);
    if (!value.value.has_value()) return Incarnation(0, value);
    const uint32_t known = TRY_CONTEXT(DecodeIncarnation(*value.value), "drive {}", id_);
    return Incarnation(known, value);
  }

  // False: it was changed since it was seen.
  Result<bool> WriteIncarnation(const std::string& key, const RegisterValue& seen,
                                uint32_t incarnation) {
    const ChangeOutcome outcome = registers_.Change(
        {kMapGroup, key}, seen, EncodeIncarnation(incarnation), Durability::kWriteThrough);
    TRY_CONTEXT(outcome.why, "rebuild drive {}", id_);
    return outcome.applied();
  }

  // One that no other device has, or will be given, whoever rebuilds at the same time.
  Result<uint32_t> TakeIncarnation() {
    for (;;) {
      const uint32_t known = TRY(ReadIncarnation(IncarnationKey(id_))).first;
      const auto [given, seen] = TRY(ReadIncarnation(GivenIncarnationKey(id_)));
      if (!options_.take_numbers) return known + 1;
      const uint32_t next = std::max(known, given) + 1;
      if (next == 0) return Fail(EOVERFLOW, "drive {} was replaced too often", id_);
      if (TRY(WriteIncarnation(GivenIncarnationKey(id_), seen, next))) return next;
    }
  }

  // The device is ours to rebuild from here on, or somebody else's.
  Status Mark() {
    const uint32_t incarnation = TRY(TakeIncarnation());
    block_ = Superblock{.cluster_name = config_.name,
                        .cluster_uuid = cluster_.uuid(),
                        .drive = id_,
                        .map_drives = cluster_.map_drives(),
                        .formatted_at = runtime_.WallClock(),
                        .incarnation = incarnation,
                        .service = DriveService::kBeingRebuilt};
    return newcomer_.WriteSuperblock(*block_, Expected::Absent());
  }

  // From here on the lost drive is refused, and this one is known as its successor. Only an
  // incarnation that a device bears already is made known: a process that dies in between has shut
  // nobody out.
  Status Enrol() {
    for (;;) {
      const auto [known, seen] = TRY(ReadIncarnation(IncarnationKey(id_)));
      TRY(CheckOurs(*block_, known));
      if (known == block_->incarnation) return {};
      if (TRY(WriteIncarnation(IncarnationKey(id_), seen, block_->incarnation))) return {};
    }
  }

  Result<SweepReport> RestoreRegisters() {
    // Homes that have no say yet are among them. Nobody looks a second time, when they get one,
    // whether the drive still holds what it was given.
    TRY(cluster_.Refresh());
    std::shared_ptr<Placement> placement = cluster_.NewestPlacement();
    if (placement->names().IsMoving()) {
      return Fail(EBUSY,
                  "names are being moved: rebuild the drive when that is done (`pinstripe metadata "
                  "move` goes on with it)");
    }
    const auto replica_of = [&](uint32_t group) -> std::optional<size_t> {
      const std::vector<DriveId> homes =
          group == kMapGroup ? cluster_.map_drives() : placement->RegisterHomes(group);
      const auto found = std::find(homes.begin(), homes.end(), id_);
      if (found == homes.end()) return std::nullopt;
      return static_cast<size_t>(found - homes.begin());
    };
    const auto restore = [&](uint32_t group,
                             const RegisterStore::SweepProgress& progress) -> Result<SweepReport> {
      if (cluster_.map().epoch != placement->map().epoch) {
        return Fail(EREMCHG, "the drive map has changed");
      }
      return registers_.Restore(group, *replica_of(group), newcomer_.drive(), progress);
    };
    SweepReport sum;
    std::set<uint32_t> restored;
    for (;;) {
      placement = cluster_.NewestPlacement();
      const Epoch epoch = placement->map().epoch;
      std::vector<uint32_t> groups;
      if (replica_of(kMapGroup) && !restored.contains(kMapGroup)) groups.push_back(kMapGroup);
      for (uint32_t group = 0; group < cluster_.map().groups; ++group) {
        if (replica_of(group) && !restored.contains(group)) groups.push_back(group);
      }
      const Result<SweepReport> report =
          GroupWork(runtime_, groups, restore, options_).Run("restoring registers");
      const bool outdated = !report.has_value() && report.error().code() == EREMCHG;
      if (!report.has_value() && !outdated) {
        return Failed(report.error().Context(fmt::format("rebuild drive {}", id_)));
      }
      // A new epoch may have given it more.
      TRY_CONTEXT(cluster_.Refresh(), "rebuild drive {}", id_);
      const bool changed = cluster_.map().epoch != epoch;
      if (report.has_value()) {
        sum += *report;
        restored.insert(groups.begin(), groups.end());
        if (!changed) {
          // Somebody who began this earlier may have given it registers of which it is not a home
          // any more. They must not be there when it becomes one again.
          if (epoch > 1) {
            TRY_CONTEXT(ClearRegisters(cluster_, id_, newcomer_.drive(), *placement),
                        "rebuild drive {}", id_);
          }
          return sum;
        }
      } else if (!changed) {
        return Failed(report.error().Context(fmt::format("rebuild drive {}", id_)));
      }
    }
  }

  // In which what is restored is written.
  uint64_t ReadStart() {
    Gather<Result<DriveInfo>> gather(runtime_);
    newcomer_.drive().Info(runtime_.Now() + config_.drive_timeout, gather.Ask(0));
    const auto info = std::move(gather.Next(Time::max())->value);
    return info.has_value() && !info->starts.empty() ? info->starts.front().id : kNoStart;
  }

  // Its list of starts is another device's past for those who knew the lost one. If this fails, it
  // is compared with the others once more.
  void NoteStart(uint64_t start) {
    if (start == kNoStart) return;
    Status noted = cluster_.LearnStarts();
    if (noted.ok()) noted = StatusOf(cluster_.NoteStart(id_, start, cluster_.NotedStart(id_)));
    if (noted.ok()) return;
    Log(LogLevel::kWarn, "the start of a rebuilt drive is not noted yet",
        {{"drive", id_}, {"why", noted}});
  }
  template <typename T>
  static Status StatusOf(const Result<T>& result) {
    return result.has_value() ? Status() : result.error();
  }

  Status PutInService() {
    const std::string version = block_->Version();
    block_->service = DriveService::kInService;
    return newcomer_.WriteSuperblock(*block_, Expected::Version(version));
  }

  Cluster& cluster_;
  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveId id_;
  RebuildOptions options_;
  RegisterStore& registers_;
  Newcomer newcomer_;
  DriveClaim claim_;
  std::optional<Superblock> block_;  // that the drive has now
};

}  // namespace

Result<RebuildReport> RebuildDrive(Cluster& cluster, const DriveFactory& factory, DriveId drive,
                                   const RebuildOptions& options) {
  return Rebuilding(cluster, drive, options).Run(factory);
}

Result<SweepReport> SweepRegisters(Cluster& cluster, const SweepOptions& options) {
  std::vector<uint32_t> groups{kMapGroup};
  for (uint32_t group = 0; group < cluster.map().groups; ++group) groups.push_back(group);
  const auto sweep = [&](uint32_t group, const RegisterStore::SweepProgress& progress) {
    return cluster.registers().Sweep(group, progress);
  };
  return GroupWork(cluster.runtime(), std::move(groups), sweep, options).Run("sweeping registers");
}

}  // namespace pinstripe
