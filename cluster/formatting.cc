// Formatting: the drives of a new cluster are emptied of an older one, and get their superblocks
// and the first epoch of the drive map. Whatever they have been through, they have a say in it.

#include <algorithm>
#include <cassert>
#include <map>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/cluster.h"
#include "cluster/connecting.h"
#include "cluster/gather.h"
#include "cluster/kept_layout.h"
#include "cluster/map/drive_map.h"
#include "cluster/map/electorate.h"
#include "cluster/map/names_place.h"
#include "cluster/map/placement.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/drive_pulls.h"
#include "cluster/stripes/shard.h"
#include "erasure/codec.h"

namespace pinstripe {
namespace {

DriveMap FirstEpoch(const ClusterConfig& config, std::vector<Feature> features) {
  DriveMap map;
  map.epoch = 1;
  map.groups = config.groups;
  map.replicas = static_cast<uint8_t>(config.replicas);
  for (const DriveConfig& drive : config.drives) {
    map.drives.push_back({drive.id, drive.weight, drive.domain, DriveState::kActive});
  }
  const Geometry stripes = config.layout.geometry();
  BalanceDrives(map, static_cast<size_t>(stripes.shards()),
                static_cast<size_t>(stripes.parity_shards));
  if (config.engine) {
    features =
        WithNamesPlace(std::move(features), {NamesPlace::Where::kEngine, config.engine->kind});
  }
  map.features = std::move(features);
  return map;
}

// The homes of the registers of the map itself.
std::vector<DriveId> MapDrivesOf(const DriveMap& map) {
  const size_t replicas = map.replicas;
  std::vector<DriveId> order = OrderDrives(map, kMapGroup, replicas, (replicas - 1) / 2);
  order.resize(replicas);
  return order;
}

// Finds the drives of the map's registers where nothing else is known yet.
class MapLocator final : public ReplicaLocator {
 public:
  MapLocator(const DriveSet& drives, std::vector<DriveId> map_drives)
      : drives_(drives), map_drives_(std::move(map_drives)) {}

  GroupReplicas Replicas(uint32_t group) override {
    assert(group == kMapGroup);
    GroupReplicas replicas;
    for (DriveId id : map_drives_) {
      const auto found = drives_.find(id);
      replicas.drives.push_back(found == drives_.end() ? nullptr : found->second.get());
    }
    return replicas;
  }

 private:
  const DriveSet& drives_;
  const std::vector<DriveId> map_drives_;
};

class Formatting {
 public:
  Formatting(Runtime& runtime, const ClusterConfig& config, const DriveSet& drives)
      : runtime_(runtime), config_(config), drives_(drives) {}

  Status AskWhoTheyAre() {
    infos_ = TRY(AskAll<DriveInfo>([](Drive& drive, Time deadline, Callback<DriveInfo> done) {
      drive.Info(deadline, std::move(done));
    }));
    return {};
  }

  Status RefuseOneDeviceTwice() {
    std::map<std::string, DriveId> devices;
    for (const auto& [id, info] : infos_) {
      const std::string& wwn = info.world_wide_name;
      const std::string device =
          wwn.empty() ? info.vendor + "/" + info.model + "/" + info.serial_number : wwn;
      if (wwn.empty() && info.serial_number.empty()) continue;  // it does not say
      const auto [other, is_new] = devices.emplace(device, id);
      if (!is_new) {
        return Fail(EINVAL, "drives {} and {} are the same device ({}): two addresses lead to it",
                    other->second, id, device);
      }
    }
    return {};
  }

  Status RefuseUsedDrives() {
    const auto firsts = TRY(AskAll<std::vector<std::string>>(
        [](Drive& drive, Time deadline, Callback<std::vector<std::string>> done) {
          drive.Range(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'), 1, false,
                      deadline, std::move(done));
        }));
    std::vector<std::string> used;
    for (const auto& [id, keys] : firsts) {
      if (keys.empty()) continue;
      used.push_back(fmt::format("{} {}", TextOfDrive(id), Owner(keys.front())));
    }
    if (used.empty()) return {};
    return Fail(EEXIST,
                "{}; nothing was changed. To use them all the same: `pinstripe format --force`",
                Listed(used));
  }

  // Removes what an earlier cluster of this name left behind.
  Status EraseOldRecords() {
    for (const auto& [id, drive] : drives_) TRY(EraseOldRecordsOf(*drive));
    return {};
  }

  // Drives of a cluster whose drive map had changed begin anew, unless others use them, too: those
  // would be let in again whom they have shut out. Our own records are erased by now.
  Status ResetClusterVersions() {
    for (const auto& [id, drive] : drives_) {
      Gather<Result<RecordHead>> heads(runtime_);
      drive->Head(SuperblockKey(config_.name), {Deadline(), ClusterVersionOf(1)}, heads.Ask(0));
      const auto head = std::move(heads.Next(Time::max())->value);
      if (head.has_value() || head.error().code() != EREMCHG) continue;
      Gather<Result<std::vector<std::string>>> ranges(runtime_);
      drive->Range(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'), 1, false, Deadline(),
                   ranges.Ask(0));
      const auto keys = TRY(std::move(ranges.Next(Time::max())->value));
      if (!keys.empty()) {
        return Fail(
            EEXIST,
            "{} {}, whose drive map has changed: such a drive cannot be shared. Erase it first",
            TextOfDrive(id), Owner(keys.front()));
      }
      Gather<Status> gather(runtime_);
      drive->SetClusterVersion(ClusterVersionOf(1), Deadline(), gather.Ask(0));
      TRY_CONTEXT(gather.Next(Time::max())->value, "let {} begin anew", TextOfDrive(id));
    }
    return {};
  }

  Status WriteSuperblocks(const std::vector<DriveId>& map_drives) {
    Superblock block;
    block.cluster_name = config_.name;
    for (int i = 0; i < 2; ++i) block.cluster_uuid += Writer().U64(runtime_.Random()).Take();
    block.map_drives = map_drives;
    block.formatted_at = runtime_.WallClock();
    Gather<Status> gather(runtime_);
    for (const auto& [id, drive] : drives_) {
      block.drive = id;
      const std::string value = block.Encode();
      drive->Put({.key = SuperblockKey(config_.name),
                  .value = SharedBytes(value),
                  .version = block.Version(),
                  .tag = RecordTag(Crc32c(AsBytes(value))),
                  .durability = Durability::kWriteThrough},
                 Deadline(), gather.Ask(id));
    }
    while (const auto answer = gather.Next(Time::max()))
      TRY(answer->value.Context("write superblock"));
    return ReadSuperblocksBack(block.cluster_uuid);
  }

  // A new cluster has nothing that a drive could have forgotten. One that was started anew since it
  // was asked is found out by this as ever.
  Status NoteStarts(RegisterStore& registers) {
    for (const auto& [id, info] : infos_) {
      if (info.starts.empty()) continue;  // a foreign device
      const ChangeOutcome outcome =
          registers.Change({kMapGroup, StartKey(id)}, {}, EncodeStart(info.starts.front().id),
                           Durability::kWriteThrough);
      TRY_CONTEXT(outcome.why, "note the start of drive {}", id);
    }
    return {};
  }

 private:
  Time Deadline() { return runtime_.Now() + config_.drive_timeout; }

  // The answers of all drives, which must be there.
  template <typename T>
  Result<std::map<DriveId, T>> AskAll(std::function<void(Drive&, Time, Callback<T>)> ask) {
    auto answers = AskDrives<T>::Run(runtime_, drives_,
                                     {.ask = std::move(ask),
                                      .timeout = config_.drive_timeout,
                                      .deadline = runtime_.Now() + config_.open_timeout});
    std::map<DriveId, T> values;
    std::vector<std::string> reasons;
    for (auto& [id, answer] : answers) {
      if (answer.has_value()) {
        values.emplace(id, *std::move(answer));
      } else {
        reasons.emplace_back(answer.error().message());
      }
    }
    if (!reasons.empty()) {
      return Fail(EIO, "all drives must answer before they are formatted: {}", Listed(reasons));
    }
    return values;
  }

  // Says in words whose the lowest key on a drive is.
  std::string Owner(const std::string& key) const {
    const auto name = ClusterOfKey(key);
    if (!name) return "holds records of something else";
    return fmt::format("belongs to the cluster '{}' already", *name);
  }

  Status EraseOldRecordsOf(Drive& drive) {
    const std::string prefix = ClusterPrefix(config_.name);
    for (;;) {
      Gather<Result<std::vector<std::string>>> ranges(runtime_);
      drive.Range(prefix, prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff'), kMaxRangeKeys,
                  false, Deadline(), ranges.Ask(0));
      const auto keys = TRY(std::move(ranges.Next(Time::max())->value));
      if (keys.empty()) return {};
      Gather<Status> deletes(runtime_);
      for (const std::string& key : keys) {
        drive.Delete(key, Expected::Any(), Durability::kWriteThrough, Deadline(), deletes.Ask(0));
      }
      while (const auto answer = deletes.Next(Time::max())) {
        if (answer->value.code() != ENOENT) TRY(answer->value.Context("erase the old cluster"));
      }
    }
  }

  // Two addresses of one device show here at the latest: the second superblock replaced the first.
  Status ReadSuperblocksBack(const std::string& uuid) {
    const auto records =
        TRY(AskAll<Record>([this](Drive& drive, Time deadline, Callback<Record> done) {
          drive.Get(SuperblockKey(config_.name), {}, deadline, std::move(done));
        }));
    for (const auto& [id, record] : records) {
      const Result<Superblock> block = ReadSuperblock(record, config_.name, id);
      if (!block.has_value()) {
        return Fail(EINVAL, "{}: {}. Do two addresses lead to one device?", TextOfDrive(id),
                    block.error().message());
      }
      if (block->cluster_uuid != uuid) {
        return Fail(EEXIST, "somebody else formats {} at this moment", TextOfDrive(id));
      }
    }
    return {};
  }

  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveSet& drives_;
  std::map<DriveId, DriveInfo> infos_;
};

}  // namespace

Status Cluster::Format(Runtime& runtime, const ClusterConfig& config, DriveFactory factory,
                       FormatOptions options) {
  TRY(config.CheckForFormat());
  TRY(ErasureSelfTest());
  // Whatever the drives are now, they are to become this cluster's.
  DriveSet drives = TRY(MakeDrives(config, factory, AnyDrive));
  if (config.engine) {
    // It is made ready as drives are.
    drives[kEngineDrive] = TRY_CONTEXT(
        factory(EngineAsDrive(*config.engine), SuperblockKey(config.name), AnyDrive(kEngineDrive)),
        "{}", config.engine->kind);
  }
  const DriveMap map = FirstEpoch(config, std::move(options.features));
  const std::vector<DriveId> map_drives = MapDrivesOf(map);

  Formatting formatting(runtime, config, drives);
  TRY(formatting.AskWhoTheyAre());
  TRY(formatting.RefuseOneDeviceTwice());
  if (!options.force) TRY(formatting.RefuseUsedDrives());
  TRY(formatting.EraseOldRecords());
  TRY(formatting.ResetClusterVersions());
  TRY(formatting.WriteSuperblocks(map_drives));

  MapLocator locator(drives, map_drives);
  RegisterStore registers(runtime, locator, RegisterOptions(config));
  const ChangeOutcome outcome =
      registers.Change({kMapGroup, EpochKey(1)}, {}, map.Encode(), Durability::kWriteThrough);
  TRY_CONTEXT(outcome.why, "write the drive map");
  if (!outcome.applied()) {
    return Fail(EEXIST, "somebody else formats the cluster '{}' at this moment", config.name);
  }
  // The cluster is there already. Drives of which none is noted are compared with the others first.
  if (const Status noted = formatting.NoteStarts(registers); !noted.ok()) {
    Log(LogLevel::kWarn, "drives may have no say for a minute",
        {{"cluster", config.name}, {"why", noted}});
  }
  if (const auto kept = KeepLayout(registers, config); !kept.has_value()) {
    Log(LogLevel::kWarn, "the cluster does not keep its layout: `pinstripe config --apply` does it",
        {{"cluster", config.name}, {"why", kept.error()}});
  }
  Log(LogLevel::kInfo, "cluster formatted", {{"cluster", config.name}, {"drives", drives.size()}});
  return {};
}

}  // namespace pinstripe
