#include "cluster/cluster.h"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <set>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/try.h"
#include "cluster/ask_drives.h"
#include "cluster/drive_identity.h"
#include "cluster/gather.h"
#include "cluster/placement.h"
#include "cluster/shard.h"
#include "erasure/codec.h"

namespace pinstripe {
namespace {

constexpr Duration kSpaceIsFresh = std::chrono::seconds(3);
constexpr size_t kEpochsAtOnce = 4;

// "drive 3 (host:8103): connection refused; ...", not endlessly.
std::string Listed(const std::vector<std::string>& reasons) {
  constexpr size_t kMost = 6;
  const size_t shown = std::min(reasons.size(), kMost);
  std::string text = fmt::format(
      "{}", fmt::join(reasons.begin(), reasons.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (shown < reasons.size()) text += fmt::format("; and {} more", reasons.size() - shown);
  return text;
}

std::string Where(const DriveConfig& drive) {
  return fmt::format("drive {} ({})", drive.id, fmt::join(drive.addresses, ", "));
}

RegisterName EpochName(Epoch epoch) { return {kMapGroup, Writer().Raw("M").U32(epoch).Take()}; }

Result<DriveSet> MakeDrives(const ClusterConfig& config, const DriveFactory& factory,
                            const std::function<IdentityCheck(DriveId)>& check) {
  DriveSet drives;
  for (const DriveConfig& drive : config.drives) {
    drives.emplace(drive.id,
                   TRY_CONTEXT(factory(drive, SuperblockKey(config.name), check(drive.id)), "{}",
                               Where(drive)));
  }
  return drives;
}

RegisterStore::Options RegisterOptions(const ClusterConfig& config) {
  RegisterStore::Options options;
  options.prefix = ClusterPrefix(config.name);
  options.drive_timeout = config.drive_timeout;
  options.timeout = std::max(options.timeout, 3 * config.drive_timeout);
  return options;
}

StripeStore::Options StripeOptions(const ClusterConfig& config) {
  StripeStore::Options options;
  options.prefix = ClusterPrefix(config.name);
  options.min_redundancy = config.min_redundancy;
  options.drive_timeout = config.drive_timeout;
  options.timeout = std::max(options.timeout, 3 * config.drive_timeout);
  return options;
}

DriveMap FirstEpoch(const ClusterConfig& config) {
  DriveMap map;
  map.epoch = 1;
  map.groups = config.groups;
  map.replicas = static_cast<uint8_t>(config.replicas);
  for (const DriveConfig& drive : config.drives) {
    map.drives.push_back({drive.id, drive.weight, drive.domain, DriveState::kActive});
  }
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

  std::vector<Drive*> Replicas(uint32_t group) override {
    assert(group == kMapGroup);
    std::vector<Drive*> replicas;
    for (DriveId id : map_drives_) {
      const auto found = drives_.find(id);
      replicas.push_back(found == drives_.end() ? nullptr : found->second.get());
    }
    return replicas;
  }

 private:
  const DriveSet& drives_;
  const std::vector<DriveId> map_drives_;
};

}  // namespace

// Everything that Open() finds out. Immutable afterwards, but for the answer of Space().
class Cluster::State {
 public:
  std::shared_ptr<DriveIdentities> identities;
  DriveSet drives;
  std::string uuid;
  std::vector<DriveId> map_drives;
  std::map<Epoch, std::unique_ptr<Placement>> epochs;

  std::mutex mutex;
  std::map<DriveId, DriveInfo> last_infos;  // guarded by mutex
  std::optional<Time> last_asked;           // guarded by mutex

  Placement& current() const { return *epochs.rbegin()->second; }
};

Cluster::Cluster(Runtime& runtime, ClusterConfig config)
    : runtime_(runtime), config_(std::move(config)), state_(std::make_unique<State>()) {}

Cluster::~Cluster() {
  stripes_.reset();
  registers_.reset();
}

// Opening ----------------------------------------------------------------------------------------

namespace {

// Who the drives are, once enough of them have said so.
struct Consensus {
  std::string uuid;
  std::vector<DriveId> map_drives;
};

class Opening {
 public:
  Opening(Runtime& runtime, const ClusterConfig& config, const DriveSet& drives,
          DriveIdentities& identities)
      : runtime_(runtime), config_(config), drives_(drives), identities_(identities) {}

  Result<Consensus> FindConsensus() {
    answers_ = AskDrives<Record>::Run(
        runtime_, drives_,
        {.ask =
             [this](Drive& drive, Time deadline, Callback<Record> done) {
               drive.Get(SuperblockKey(config_.name), {}, deadline, std::move(done));
             },
         .timeout = config_.drive_timeout,
         .deadline = runtime_.Now() + config_.open_timeout,
         // A drive that fails its check answers as if it were away: the verdict says more.
         .is_final =
             [this](DriveId id, const Result<Record>& record) {
               const Status status = identities_.Judge(id, record);
               return status.ok() || identities_.VerdictOn(id).has_value();
             },
         .is_enough = [this] { return HasMajorityOfTheMap(); }});
    TRY(RefuseWrongDrives());
    TRY(RefuseIfNoneIsFormatted());
    const Consensus consensus = TRY(Agree());
    if (!HasMajorityOfTheMap()) return Failed(NoMajority(consensus));
    LogUnusable();
    return consensus;
  }

 private:
  std::optional<Superblock> BlockOf(DriveId id) const {
    const auto verdict = identities_.VerdictOn(id);
    if (!verdict || !verdict->has_value()) return std::nullopt;
    return **verdict;
  }

  bool HasMajorityOfTheMap() const {
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (!block) continue;
      size_t there = 0;
      for (DriveId id : block->map_drives) there += BlockOf(id).has_value();
      if (there > block->map_drives.size() / 2) return true;
    }
    return false;
  }

  Status RefuseWrongDrives() const {
    for (const DriveConfig& drive : config_.drives) {
      const auto verdict = identities_.VerdictOn(drive.id);
      if (!verdict || verdict->has_value() || verdict->error().code() != EINVAL) continue;
      return Fail(EINVAL, "{}: {}", Where(drive), verdict->error().message());
    }
    return {};
  }

  Status RefuseIfNoneIsFormatted() const {
    std::vector<std::string> empty;
    std::vector<std::string> away;
    for (const DriveConfig& drive : config_.drives) {
      const auto verdict = identities_.VerdictOn(drive.id);
      if (verdict && verdict->has_value()) return {};
      const int code = verdict ? verdict->error().code() : 0;
      if (code == ENOENT || code == EBADMSG) {
        empty.push_back(fmt::format("{}: {}", Where(drive), verdict->error().message()));
      } else {
        away.emplace_back(fmt::format("{}: {}", Where(drive), Reason(drive.id)));
      }
    }
    if (empty.empty()) {
      return Fail(EIO,
                  "no drive of the cluster '{}' can be used: {}. Are they running, and is what {} "
                  "says of them right?",
                  config_.name, Listed(away), config_.file);
    }
    return Fail(ENOENT, "no drive of the cluster '{}' is formatted: run `pinstripe format`. {}",
                config_.name, Listed(empty));
  }

  Result<Consensus> Agree() const {
    std::map<std::string, std::vector<DriveId>> clusters;
    std::map<std::vector<DriveId>, std::vector<DriveId>> maps;
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (!block) continue;
      clusters[block->cluster_uuid].push_back(drive.id);
      maps[block->map_drives].push_back(drive.id);
    }
    if (clusters.size() > 1) {
      std::vector<std::string> claims;
      for (const auto& [uuid, ids] : clusters) {
        claims.push_back(
            fmt::format("{} has the drives {}", Hex(AsBytes(uuid)), fmt::join(ids, ", ")));
      }
      return Fail(EINVAL,
                  "the drives belong to different clusters of the name '{}': {}; take those "
                  "of the other one out of {}",
                  config_.name, Listed(claims), config_.file);
    }
    if (maps.size() > 1) {
      return Fail(EINVAL,
                  "the drives of the cluster '{}' disagree about where the drive map is kept: "
                  "formatting was not finished. Run `pinstripe format --force`, which erases the "
                  "cluster",
                  config_.name);
    }
    return Consensus{clusters.begin()->first, maps.begin()->first};
  }

  Status NoMajority(const Consensus& consensus) const {
    std::vector<std::string> reasons;
    for (DriveId id : consensus.map_drives) {
      if (BlockOf(id)) continue;
      reasons.push_back(fmt::format("drive {}: {}", id, Reason(id)));
    }
    const size_t all = consensus.map_drives.size();
    return Fail(EIO,
                "the drive map of the cluster '{}' is on {} drives, of which {} must answer, but "
                "only {} do: {}",
                config_.name, all, all / 2 + 1, all - reasons.size(), Listed(reasons));
  }

  // Why a drive cannot be used.
  std::string Reason(DriveId id) const {
    if (const auto verdict = identities_.VerdictOn(id))
      return std::string(verdict->error().message());
    const auto answer = answers_.find(id);
    if (answer == answers_.end()) return fmt::format("it is not in {}", config_.file);
    return std::string(WithoutDriveName(answer->second.error().message(), id));
  }

  void LogUnusable() const {
    for (const DriveConfig& drive : config_.drives) {
      if (BlockOf(drive.id)) continue;
      const bool is_away = !identities_.VerdictOn(drive.id).has_value();
      Log(is_away ? LogLevel::kWarn : LogLevel::kError,
          is_away ? "drive away" : "drive cannot be used",
          {{"cluster", config_.name}, {"drive", Where(drive)}, {"why", Reason(drive.id)}});
    }
  }

  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveSet& drives_;
  DriveIdentities& identities_;
  std::map<DriveId, Result<Record>> answers_;
};

// Makes drives whatever they are now, as long as they answer.
IdentityCheck AnyDrive(DriveId) {
  return [](const Result<Record>& record) {
    const bool answered = record.has_value() || record.error().code() == ENOENT;
    return answered ? Status() : record.error();
  };
}

// For who found no drive of the cluster: a better reason, if they hold another one.
Status WhatTheyHold(Runtime& runtime, const ClusterConfig& config, const DriveFactory& factory,
                    const Status& otherwise) {
  using Keys = std::vector<std::string>;
  const DriveSet drives = TRY(MakeDrives(config, factory, AnyDrive));
  const auto answers = AskDrives<Keys>::Run(
      runtime, drives,
      {.ask =
           [](Drive& drive, Time deadline, Callback<Keys> done) {
             drive.Range(std::string(kLowestKey), std::string(kMaxKeyBytes, '\xff'), 1, false,
                         deadline, std::move(done));
           },
       .timeout = config.drive_timeout,
       .deadline = runtime.Now() + config.drive_timeout});
  std::map<std::string, std::vector<DriveId>> others;
  for (const auto& [id, keys] : answers) {
    if (!keys.has_value() || keys->empty()) continue;
    const auto name = ClusterOfKey(keys->front());
    if (name && *name != config.name) others[*name].push_back(id);
  }
  if (others.empty()) return otherwise;
  std::vector<std::string> claims;
  for (const auto& [name, ids] : others) {
    claims.push_back(
        fmt::format("the cluster '{}' is on the drives {}", name, fmt::join(ids, ", ")));
  }
  return Fail(ENOENT, "no drive holds the cluster '{}', but {}: is the name in {} right?",
              config.name, Listed(claims), config.file);
}

// What the registers of the map group say.
struct MapGroup {
  std::vector<DriveMap> epochs;              // all, from the first to the newest
  std::map<DriveId, uint32_t> incarnations;  // of the drives in the configuration
};

Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config) {
  MapGroup group;
  std::vector<DriveMap>& maps = group.epochs;
  for (;;) {
    std::vector<RegisterName> names;
    const bool first_time = maps.empty();
    for (Epoch i = 0; i < kEpochsAtOnce; ++i) {
      names.push_back(EpochName(static_cast<Epoch>(maps.size() + 1 + i)));
    }
    for (const DriveConfig& drive : config.drives) {
      if (first_time) names.push_back({kMapGroup, IncarnationKey(drive.id)});
    }
    const auto answers = registers.ReadMany(names);
    for (size_t i = kEpochsAtOnce; i < answers.size(); ++i) {
      const DriveId id = config.drives[i - kEpochsAtOnce].id;
      const RegisterValue value = TRY_CONTEXT(
          answers[i], "read which drives were replaced in the cluster '{}'", config.name);
      if (!value.value) continue;
      group.incarnations[id] = TRY_CONTEXT(DecodeIncarnation(*value.value), "drive {}", id);
    }
    for (size_t i = 0; i < kEpochsAtOnce; ++i) {
      const RegisterValue value =
          TRY_CONTEXT(answers[i], "read the drive map of the cluster '{}'", config.name);
      const auto epoch = static_cast<Epoch>(maps.size() + 1);
      if (!value.value && epoch > 1) return group;
      if (!value.value) {
        return Fail(ENOENT,
                    "the cluster '{}' has no drive map: formatting it was not finished. Run "
                    "`pinstripe format --force`",
                    config.name);
      }
      maps.push_back(TRY_CONTEXT(DriveMap::Decode(*value.value), "epoch {}", epoch));
      if (maps.back().epoch != epoch) {
        return Fail(EBADMSG, "drive map: epoch {} is stored as epoch {}", maps.back().epoch, epoch);
      }
    }
  }
}

Status CheckMapAgainst(const ClusterConfig& config, const DriveMap& map) {
  std::set<DriveId> configured;
  for (const DriveConfig& drive : config.drives) configured.insert(drive.id);
  for (const MappedDrive& drive : map.drives) {
    if (configured.erase(drive.id) == 0) {
      return Fail(EINVAL, "drive {} belongs to the cluster '{}', but {} does not list it", drive.id,
                  config.name, config.file);
    }
  }
  for (DriveId id : configured) {
    Log(LogLevel::kWarn, "drive not used: the cluster does not know it",
        {{"cluster", config.name}, {"drive", id}, {"epoch", map.epoch}});
  }
  const auto shards = static_cast<size_t>(config.layout.geometry().shards());
  if (map.drives.size() < shards) {
    return Fail(EINVAL, "the layout in {} needs {} drives, but the cluster '{}' has {}",
                config.file, shards, config.name, map.drives.size());
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::Open(Runtime& runtime, ClusterConfig config,
                                               DriveFactory factory) {
  TRY(config.Check());
  TRY(ErasureSelfTest());
  std::unique_ptr<Cluster> cluster(new Cluster(runtime, std::move(config)));
  State& state = *cluster->state_;
  const ClusterConfig& settings = cluster->config_;

  state.identities = std::make_shared<DriveIdentities>(settings.name);
  const auto check = [&state](DriveId id) -> IdentityCheck {
    return [identities = state.identities, id](const Result<Record>& record) {
      return identities->Judge(id, record);
    };
  };
  state.drives = TRY(MakeDrives(settings, factory, check));
  const Result<Consensus> found =
      Opening(runtime, settings, state.drives, *state.identities).FindConsensus();
  if (!found.has_value() && found.error().code() == ENOENT) {
    return Failed(WhatTheyHold(runtime, settings, factory, found.error()));
  }
  const Consensus consensus = TRY(found);
  state.uuid = consensus.uuid;
  state.map_drives = consensus.map_drives;
  state.identities->ExpectUuid(consensus.uuid);

  TRY(cluster->ReadTheMap(factory, check));
  TRY(CheckMapAgainst(settings, cluster->map()));
  cluster->stripes_ = std::make_unique<StripeStore>(runtime, *cluster, StripeOptions(settings));
  Log(LogLevel::kInfo, "cluster open",
      {{"cluster", settings.name},
       {"drives", cluster->map().drives.size()},
       {"epoch", cluster->map().epoch}});
  return cluster;
}

// Old drives that were plugged in again after they were replaced are found out here, and may have
// had a say in what was read. One of them alone cannot hide that it was replaced, for that was
// decided without it; so it is shut out, and everything is read once more.
Status Cluster::ReadTheMap(const DriveFactory& factory,
                           const std::function<IdentityCheck(DriveId)>& check) {
  MapGroup group;
  for (bool all_are_right = false; !all_are_right;) {
    registers_ = std::make_unique<RegisterStore>(runtime_, *this, RegisterOptions(config_));
    group = TRY(ReadMapGroup(*registers_, config_));
    all_are_right = true;
    for (const DriveConfig& drive : config_.drives) {
      const uint32_t incarnation = group.incarnations[drive.id];
      if (state_->identities->ExpectIncarnation(drive.id, incarnation)) continue;
      Log(LogLevel::kError, "drive cannot be used: it is an old one, which was replaced",
          {{"cluster", config_.name}, {"drive", Where(drive)}, {"incarnation", incarnation}});
      all_are_right = false;
      state_->drives[drive.id] = nullptr;
      state_->drives[drive.id] = TRY_CONTEXT(
          factory(drive, SuperblockKey(config_.name), check(drive.id)), "{}", Where(drive));
    }
  }
  for (DriveMap& map : group.epochs) {
    const Epoch epoch = map.epoch;
    state_->epochs.emplace(epoch, std::make_unique<Placement>(std::move(map)));
  }
  return {};
}

// Looking up -------------------------------------------------------------------------------------

const DriveMap& Cluster::map() const { return state_->current().map(); }

const std::string& Cluster::uuid() const { return state_->uuid; }

const std::vector<DriveId>& Cluster::map_drives() const { return state_->map_drives; }

void Cluster::ExpectIncarnation(DriveId drive, uint32_t incarnation) {
  state_->identities->ExpectIncarnation(drive, incarnation);
}

uint32_t Cluster::GroupOfObject(uint64_t object) const { return GroupOf(map(), object, 0); }

Drive* Cluster::FindDrive(DriveId id) {
  const auto found = state_->drives.find(id);
  return found == state_->drives.end() ? nullptr : found->second.get();
}

DriveLosses Cluster::CountLosses() const {
  DriveLosses losses;
  for (const auto& [id, drive] : state_->drives) losses[id] = drive->CountLosses();
  return losses;
}

std::vector<Drive*> Cluster::Replicas(uint32_t group) {
  if (group == kMapGroup) return MapLocator(state_->drives, state_->map_drives).Replicas(group);
  const size_t replicas = map().replicas;
  const std::vector<DriveId>& order = state_->current().Order(group, replicas, (replicas - 1) / 2);
  std::vector<Drive*> drives;
  for (size_t i = 0; i < replicas; ++i) drives.push_back(FindDrive(order[i]));
  return drives;
}

Epoch Cluster::CurrentEpoch() { return map().epoch; }

Result<std::vector<DriveId>> Cluster::StripeDrives(Epoch epoch, uint64_t object, uint64_t block,
                                                   Geometry geometry) {
  const auto found = state_->epochs.find(epoch);
  if (found == state_->epochs.end()) {
    return Fail(EIO, "epoch {} of the drive map is not known here (newest: {})", epoch,
                map().epoch);
  }
  Placement& placement = *found->second;
  return placement.Order(GroupOf(placement.map(), object, block),
                         static_cast<size_t>(geometry.shards()),
                         static_cast<size_t>(geometry.parity_shards));
}

// Status -----------------------------------------------------------------------------------------

std::vector<DriveStatus> Cluster::Drives(Duration timeout) {
  Gather<Result<DriveInfo>> gather(runtime_);
  std::vector<DriveStatus> statuses;
  const Time deadline = runtime_.Now() + timeout;
  for (const DriveConfig& drive : config_.drives) {
    statuses.push_back({drive.id, fmt::format("{}", fmt::join(drive.addresses, ", ")), drive.domain,
                        drive.weight, Fail(ETIMEDOUT, "no answer in time")});
    FindDrive(drive.id)->Info(deadline, gather.Ask(statuses.size() - 1));
  }
  while (auto answer = gather.Next(deadline)) {
    statuses[answer->index].info = std::move(answer->value);
  }
  return statuses;
}

Result<SpaceInfo> Cluster::Space() {
  const Time now = runtime_.Now();
  bool fresh = false;
  {
    const std::lock_guard lock(state_->mutex);
    fresh = state_->last_asked && now - *state_->last_asked < kSpaceIsFresh;
  }
  if (!fresh) {
    const std::vector<DriveStatus> statuses = Drives(config_.drive_timeout);
    const std::lock_guard lock(state_->mutex);
    bool any = false;
    for (const DriveStatus& status : statuses) {
      if (!status.info.has_value()) continue;  // a drive that is away keeps its last figures
      any = true;
      state_->last_infos[status.id] = *status.info;
    }
    if (!any) return Fail(EIO, "no drive of the cluster '{}' answers", config_.name);
    state_->last_asked = now;
  }

  SpaceInfo space;
  const std::lock_guard lock(state_->mutex);
  for (const MappedDrive& drive : map().drives) {
    const auto info = state_->last_infos.find(drive.id);
    if (info == state_->last_infos.end()) continue;
    const uint64_t capacity = info->second.capacity_bytes;
    const double portion = std::clamp(info->second.portion_full, 0.0, 1.0);
    space.raw_bytes += capacity;
    space.raw_used_bytes += static_cast<uint64_t>(static_cast<double>(capacity) * portion);
  }
  const auto net = [&](uint64_t bytes) {
    const Geometry geometry = config_.layout.geometry();
    return bytes / static_cast<uint64_t>(geometry.shards()) *
           static_cast<uint64_t>(geometry.data_shards);
  };
  space.usable_bytes = net(space.raw_bytes);
  space.usable_free_bytes = net(space.raw_bytes - space.raw_used_bytes);
  return space;
}

// Formatting -------------------------------------------------------------------------------------

namespace {

class Formatting {
 public:
  Formatting(Runtime& runtime, const ClusterConfig& config, const DriveSet& drives)
      : runtime_(runtime), config_(config), drives_(drives) {}

  Status RefuseOneDeviceTwice() {
    std::map<std::string, DriveId> devices;
    const auto infos =
        TRY(AskAll<DriveInfo>([](Drive& drive, Time deadline, Callback<DriveInfo> done) {
          drive.Info(deadline, std::move(done));
        }));
    for (const auto& [id, info] : infos) {
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
      if (!keys.empty()) used.push_back(fmt::format("drive {} {}", id, Owner(keys.front())));
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

  // Whose the lowest key on a drive is, in words.
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
        return Fail(EINVAL, "drive {}: {}. Do two addresses lead to one device?", id,
                    block.error().message());
      }
      if (block->cluster_uuid != uuid) {
        return Fail(EEXIST, "somebody else formats drive {} at this moment", id);
      }
    }
    return {};
  }

  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveSet& drives_;
};

}  // namespace

Status Cluster::Format(Runtime& runtime, const ClusterConfig& config, DriveFactory factory,
                       FormatOptions options) {
  TRY(config.Check());
  TRY(ErasureSelfTest());
  // Whatever the drives are now, they are to become this cluster's.
  const DriveSet drives = TRY(MakeDrives(config, factory, AnyDrive));
  const DriveMap map = FirstEpoch(config);
  const std::vector<DriveId> map_drives = MapDrivesOf(map);

  Formatting formatting(runtime, config, drives);
  TRY(formatting.RefuseOneDeviceTwice());
  if (!options.force) TRY(formatting.RefuseUsedDrives());
  TRY(formatting.EraseOldRecords());
  TRY(formatting.WriteSuperblocks(map_drives));

  MapLocator locator(drives, map_drives);
  RegisterStore registers(runtime, locator, RegisterOptions(config));
  const ChangeOutcome outcome =
      TRY_CONTEXT(registers.Change(EpochName(1), {}, map.Encode(), Durability::kWriteThrough),
                  "write the drive map");
  if (!outcome.applied) {
    return Fail(EEXIST, "somebody else formats the cluster '{}' at this moment", config.name);
  }
  Log(LogLevel::kInfo, "cluster formatted", {{"cluster", config.name}, {"drives", drives.size()}});
  return {};
}

}  // namespace pinstripe
