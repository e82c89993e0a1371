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
#include "cluster/gather.h"
#include "cluster/map/electorate.h"
#include "cluster/map/placement.h"
#include "cluster/map/voting_drive.h"
#include "cluster/membership/comparison.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/drive_pulls.h"
#include "cluster/registers/call.h"
#include "cluster/registers/range.h"
#include "cluster/stripes/shard.h"
#include "erasure/codec.h"

namespace pinstripe {
namespace {

constexpr Duration kSpaceIsFresh = std::chrono::seconds(3);
constexpr size_t kEpochsAtOnce = 4;
constexpr Duration kLookForChanges = std::chrono::seconds(2);

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
  const Geometry stripes = config.layout.geometry();
  BalanceDrives(map, static_cast<size_t>(stripes.shards()),
                static_cast<size_t>(stripes.parity_shards));
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

}  // namespace

namespace {

// The drive map as it is known at some time. Immutable.
struct Epochs {
  std::map<Epoch, std::shared_ptr<Placement>> all;
  bool settled = true;                   // the newest one
  std::set<DriveId> draining;            // in the newest one
  std::map<DriveId, MappedDrive> named;  // in any of them, as in the last that has it
  std::map<DriveId, Epoch> retired;      // of those that are draining, as they were found

  static std::set<DriveId> DrainingIn(const DriveMap& map) {
    std::set<DriveId> ids;
    for (const MappedDrive& drive : map.drives) {
      if (drive.state == DriveState::kDraining) ids.insert(drive.id);
    }
    return ids;
  }

  void Add(DriveMap map) {
    draining = DrainingIn(map);
    for (const MappedDrive& drive : map.drives) named[drive.id] = drive;
    // One that was used again since is not retired any more.
    std::erase_if(retired, [this](const auto& drive) { return !draining.contains(drive.first); });
    const Epoch epoch = map.epoch;
    auto before = all.empty() ? nullptr : all.rbegin()->second;
    all.emplace(epoch, std::make_shared<Placement>(std::move(map), std::move(before)));
  }
  bool WasDrainingSince(DriveId id, Epoch epoch) const {
    if (!all.contains(epoch)) return false;
    return std::all_of(all.find(epoch), all.end(), [id](const auto& each) {
      return DrainingIn(each.second->map()).contains(id);
    });
  }
  // Unless it was used since then.
  void Retire(DriveId id, Epoch epoch) {
    if (WasDrainingSince(id, epoch)) retired[id] = epoch;
  }
  Placement& newest() const { return *all.rbegin()->second; }
  Placement& before() const { return all.size() > 1 ? *std::next(all.rbegin())->second : newest(); }
};

}  // namespace

// Tells a cluster of drives that were connected to, as long as it is there.
class Bell {
 public:
  explicit Bell(std::function<void()> ring) : ring_(std::move(ring)) {}
  void Ring() {
    const std::lock_guard lock(mutex_);
    if (ring_) ring_();
  }
  void TakeDown() {
    const std::lock_guard lock(mutex_);
    ring_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<void()> ring_;  // guarded by mutex_
};

std::string MissingDrive::Text(const std::string& config_file) const {
  std::string text = fmt::format("the drive map has it, and {} does not list it: ", config_file);
  if (keeps_map) {
    text +=
        "it keeps a part of the drive map itself. List it again, or, if it is lost, list an "
        "empty one in its place, and bring that in with `pinstripe rebuild`";
  } else if (is_draining) {
    text +=
        "nobody has found yet that it is empty. List it again, if it is there; or "
        "`pinstripe repair` writes again what it held";
  } else {
    text += "list it again, or, if it is lost, give it up with `pinstripe drain`";
  }
  return text;
}

class Cluster::State {
 public:
  // Set by Open(), then constant:
  std::shared_ptr<DriveIdentities> identities;
  const std::shared_ptr<Electorate> electorate = std::make_shared<Electorate>();
  std::shared_ptr<Bell> bell;
  DriveFactory factory;
  ConfigSource source;
  DriveRedirect redirect;
  std::string uuid;
  std::vector<DriveId> map_drives;

  mutable std::mutex mutex;
  DriveSet drives;                          // guarded by mutex; once open, only added to
  DriveSet voters;                          // these, as registers see them; guarded by mutex
  DriveSet map_voters;                      // as those of the map's group do; guarded by mutex
  std::vector<DriveConfig> configs;         // of these; guarded by mutex
  std::shared_ptr<const Epochs> epochs;     // guarded by mutex
  std::map<DriveId, DriveInfo> last_infos;  // guarded by mutex
  std::optional<Time> last_asked;           // guarded by mutex
  std::set<DriveId> missing;                // drives that were said to be; guarded by mutex
  bool looking = false;                     // a thread looks for what is new; guarded by mutex
  Time next_look{};                         // no sooner; guarded by mutex
  bool closing = false;                     // guarded by mutex
  bool opened = false;                      // guarded by mutex
  bool electing = false;                    // a thread sees to who has a say; guarded by mutex
  uint64_t elected_for = 0;                 // the news that it began with; guarded by mutex
  std::map<DriveId, RegisterValue> starts;  // registers, as they were read; guarded by mutex
  bool reloading = false;                   // somebody does; guarded by mutex
  std::shared_ptr<Signal> reloaded;         // and has ended
  std::shared_ptr<Signal> ended;            // of the thread that looks

  std::shared_ptr<const Epochs> Known() const {
    const std::lock_guard lock(mutex);
    return epochs;
  }
  // Drives of the map whose address is not known, but for those that may be away. Called under
  // mutex.
  std::vector<DriveId> Missing() const {
    std::vector<DriveId> ids;
    for (const auto& [id, drive] : epochs->named) {
      if (!drives.contains(id) && !epochs->retired.contains(id)) ids.push_back(id);
    }
    return ids;
  }
};

Cluster::Cluster(Runtime& runtime, ClusterConfig config)
    : runtime_(runtime), config_(std::move(config)), state_(std::make_unique<State>()) {
  state_->ended = runtime.NewSignal();
  state_->reloaded = runtime.NewSignal();
}

Cluster::~Cluster() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  if (state_->bell) state_->bell->TakeDown();
  for (;;) {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->looking && !state_->electing) break;
    }
    state_->ended->WaitUntil(Time::max());
  }
  stripes_.reset();
  registers_.reset();
}

// Opening ----------------------------------------------------------------------------------------

namespace {

// Who the drives are, once enough of them have said so.
struct Consensus {
  std::string uuid;
  std::vector<DriveId> map_drives;
  auto operator<=>(const Consensus&) const = default;
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
         .is_enough = [this] { return !Majorities().empty(); }});
    // What a minority says of itself keeps nobody from the rest: it counts as away.
    const std::vector<Consensus> majorities = Majorities();
    if (majorities.size() == 1) {
      LogUnusable(majorities[0]);
      return majorities[0];
    }
    TRY(RefuseWrongDrives());
    TRY(RefuseIfNoneIsFormatted());
    return Failed(NoMajority(TRY(Agree())));
  }

 private:
  std::optional<Superblock> BlockOf(DriveId id) const {
    const auto verdict = identities_.VerdictOn(id);
    if (!verdict || !verdict->has_value()) return std::nullopt;
    return **verdict;
  }

  // What drives say that are enough to read the drive map: one, as a rule.
  std::vector<Consensus> Majorities() const {
    std::map<Consensus, std::set<DriveId>> claims;
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (block) claims[{block->cluster_uuid, block->map_drives}].insert(drive.id);
    }
    std::vector<Consensus> majorities;
    for (const auto& [claim, drives] : claims) {
      const auto there =
          std::ranges::count_if(claim.map_drives, [&](DriveId id) { return drives.contains(id); });
      if (static_cast<size_t>(there) > claim.map_drives.size() / 2) majorities.push_back(claim);
    }
    return majorities;
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

  void LogUnusable(const Consensus& consensus) const {
    for (const DriveConfig& drive : config_.drives) {
      const auto block = BlockOf(drive.id);
      if (block && block->cluster_uuid == consensus.uuid) continue;
      const bool is_away = !identities_.VerdictOn(drive.id).has_value();
      const std::string why =
          block ? fmt::format("it belongs to another cluster of the name '{}'", config_.name)
                : Reason(drive.id);
      Log(is_away ? LogLevel::kWarn : LogLevel::kError,
          is_away ? "drive away" : "drive cannot be used, and counts as away",
          {{"cluster", config_.name}, {"drive", Where(drive)}, {"why", why}});
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
  return [](const Result<Record>& record, const Result<DriveInfo>&) {
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
  std::vector<DriveMap> epochs;              // from `first` to the newest; none if that is later
  bool settled = true;                       // the newest of all
  std::map<DriveId, uint32_t> incarnations;  // of the drives in the configuration
};

// Whether the homes of registers in `epoch` have a say.
Result<bool> ReadIsSettled(RegisterStore& registers, Epoch epoch) {
  if (epoch <= 1) return true;
  const RegisterValue value =
      TRY_CONTEXT(registers.Read({kMapGroup, SettlementKey(epoch)}), "read the drive map");
  if (value.value) TRY(Settlement::Decode(*value.value));
  return value.value.has_value();
}

Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config,
                              Epoch first = 1) {
  MapGroup group;
  std::vector<DriveMap>& maps = group.epochs;
  for (;;) {
    std::vector<RegisterName> names;
    for (Epoch i = 0; i < kEpochsAtOnce; ++i) {
      names.push_back({kMapGroup, EpochKey(static_cast<Epoch>(first + maps.size() + i))});
    }
    for (const DriveConfig& drive : config.drives) {
      if (first == 1 && maps.empty()) names.push_back({kMapGroup, IncarnationKey(drive.id)});
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
      const auto epoch = static_cast<Epoch>(first + maps.size());
      if (!value.value && epoch > 1) {
        group.settled = TRY(ReadIsSettled(registers, epoch - 1));
        return group;
      }
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

// Which of these drives were found to be retired, and in which epoch.
Result<std::map<DriveId, Epoch>> ReadRetirements(RegisterStore& registers,
                                                 const std::set<DriveId>& drives) {
  std::map<DriveId, Epoch> retired;
  std::vector<RegisterName> names;
  for (const DriveId id : drives) names.push_back({kMapGroup, RetirementKey(id)});
  const auto answers = registers.ReadMany(names);
  auto answer = answers.begin();
  for (const DriveId id : drives) {
    const RegisterValue value =
        TRY_CONTEXT(*answer++, "read which drives of the drive map may be away");
    if (!value.value.has_value()) continue;
    const auto retirement = Retirement::Decode(*value.value);
    if (retirement.has_value()) {
      retired[id] = retirement->epoch;
    } else {
      Log(LogLevel::kError, "whether a drained drive may be away cannot be read",
          {{"drive", id}, {"why", retirement.error()}});
    }
  }
  return retired;
}

// `missing`: drives of the map that the configuration has not.
Status CheckMapAgainst(const ClusterConfig& config, const DriveMap& map,
                       const std::vector<MissingDrive>& missing) {
  std::set<DriveId> configured;
  for (const DriveConfig& drive : config.drives) configured.insert(drive.id);
  for (const MappedDrive& drive : map.drives) configured.erase(drive.id);
  for (DriveId id : configured) {
    Log(LogLevel::kWarn, "drive not used: the cluster does not know it",
        {{"cluster", config.name}, {"drive", id}, {"epoch", map.epoch}});
  }
  const auto shards = static_cast<size_t>(config.layout.geometry().shards());
  if (map.drives.size() < shards) {
    return Fail(EINVAL, "the layout in {} needs {} drives, but the cluster '{}' has {}",
                config.file, shards, config.name, map.drives.size());
  }
  std::vector<DriveId> lacking;
  for (const MissingDrive& drive : missing) {
    if (!drive.is_draining) lacking.push_back(drive.id);
  }
  const size_t may_be_away = std::min<size_t>(config.layout.parity_shards, (map.replicas - 1u) / 2);
  if (lacking.size() > may_be_away) {
    return Fail(EINVAL,
                "the drives {} belong to the cluster '{}', but {} does not list them, and no more "
                "than {} may be away",
                fmt::join(lacking, ", "), config.name, config.file, may_be_away);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::Open(Runtime& runtime, ClusterConfig config,
                                               DriveFactory factory, ConfigSource source,
                                               DriveRedirect redirect, OpenSay say) {
  TRY(config.Check());
  TRY(ErasureSelfTest());
  std::unique_ptr<Cluster> cluster(new Cluster(runtime, std::move(config)));
  State& state = *cluster->state_;
  const ClusterConfig& settings = cluster->config_;

  state.identities = std::make_shared<DriveIdentities>(settings.name);
  state.factory = std::move(factory);
  state.source = std::move(source);
  state.redirect = std::move(redirect);
  state.bell = std::make_shared<Bell>([cluster = cluster.get()] { cluster->ElectOnTheSide(); });
  TRY(cluster->AddDrives(settings.drives));
  const Result<Consensus> found =
      Opening(runtime, settings, state.drives, *state.identities).FindConsensus();
  if (!found.has_value() && found.error().code() == ENOENT) {
    return Failed(WhatTheyHold(runtime, settings, state.factory, found.error()));
  }
  const Consensus consensus = TRY(found);
  state.uuid = consensus.uuid;
  state.map_drives = consensus.map_drives;
  for (const DriveId id : state.identities->ExpectUuid(consensus.uuid)) {
    TRY(cluster->ConnectAnew(id));
  }

  TRY(cluster->ReadTheMap());
  TRY(CheckMapAgainst(settings, cluster->map(), cluster->MissingDrives()));
  cluster->AddMissingDrives();
  const uint64_t news = state.electorate->news();
  TRY(cluster->LearnStarts());
  if (say == OpenSay::kEnough) TRY(cluster->WaitForSay());
  {
    const bool all_have_say = state.electorate->Doubtful().empty();
    const std::lock_guard lock(state.mutex);
    state.opened = true;
    if (all_have_say) state.elected_for = news;
  }
  cluster->ElectOnTheSide();
  cluster->stripes_ = std::make_unique<StripeStore>(runtime, *cluster, StripeOptions(settings));
  Log(LogLevel::kInfo, "cluster open",
      {{"cluster", settings.name},
       {"drives", cluster->map().drives.size()},
       {"epoch", cluster->map().epoch}});
  return cluster;
}

// While the cluster is opened: the drive is not what it was taken for.
Status Cluster::ConnectAnew(DriveId id) {
  const auto config = std::ranges::find(config_.drives, id, &DriveConfig::id);
  state_->voters.erase(id);
  state_->map_voters.erase(id);
  state_->drives[id] = nullptr;
  return AddDrives({*config});
}

// Connects to them.
Status Cluster::AddDrives(const std::vector<DriveConfig>& configs) {
  for (const DriveConfig& config : configs) {
    const DriveId id = config.id;
    auto drive = TRY_CONTEXT(
        state_->factory(config, SuperblockKey(config_.name),
                        [this_runtime = &runtime_, identities = state_->identities,
                         electorate = state_->electorate, bell = state_->bell, id](
                            const Result<Record>& record, const Result<DriveInfo>& info) -> Status {
                          TRY(identities->Judge(id, record));
                          const uint64_t before = electorate->news();
                          electorate->Meet(id, info, this_runtime->Now());
                          if (electorate->news() != before) bell->Ring();
                          return {};
                        }),
        "{}", Where(config));
    const std::lock_guard lock(state_->mutex);
    std::unique_ptr<Drive>& place = state_->drives[id];
    if (place != nullptr) continue;  // somebody else was faster
    place = std::move(drive);
    const auto as_voter = [&](bool in_map) {
      return std::make_unique<VotingDrive>(*place, id, state_->electorate, in_map);
    };
    state_->voters[id] = as_voter(false);
    state_->map_voters[id] = as_voter(true);
    const auto is_it = [id](const DriveConfig& other) { return other.id == id; };
    if (std::none_of(state_->configs.begin(), state_->configs.end(), is_it)) {
      state_->configs.push_back(config);
    }
  }
  return {};
}

// Old drives that were plugged in again after they were replaced are found out here, and may have
// had a say in what was read. One of them alone cannot hide that it was replaced, for that was
// decided without it; so it is shut out, and everything is read once more.
Status Cluster::ReadTheMap() {
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
      TRY(ConnectAnew(drive.id));
    }
  }
  auto epochs = std::make_shared<Epochs>();
  for (DriveMap& map : group.epochs) epochs->Add(std::move(map));
  epochs->settled = group.settled;
  const auto retired = TRY(ReadRetirements(*registers_, epochs->draining));
  for (const auto& [id, epoch] : retired) epochs->Retire(id, epoch);
  state_->epochs = std::move(epochs);
  return {};
}

// Newer epochs -----------------------------------------------------------------------------------

Status Cluster::Refresh() {
  const std::shared_ptr<const Epochs> known = state_->Known();
  const Epoch newest = known->newest().map().epoch;
  MapGroup group = TRY(ReadMapGroup(*registers_, config_, newest + 1));
  std::set<DriveId> in_question;
  if (!group.epochs.empty()) {
    in_question = Epochs::DrainingIn(group.epochs.back());
  } else {
    for (const DriveId id : known->draining) {
      if (!known->retired.contains(id)) in_question.insert(id);
    }
  }
  const auto retired = TRY(ReadRetirements(*registers_, in_question));
  if (!group.epochs.empty() || group.settled != known->settled || !retired.empty()) {
    std::unique_lock lock(state_->mutex);
    // Others may have read the same, or more.
    auto epochs = std::make_shared<Epochs>(*state_->epochs);
    const Epoch before = epochs->newest().map().epoch;
    for (DriveMap& map : group.epochs) {
      if (map.epoch == epochs->newest().map().epoch + 1) epochs->Add(std::move(map));
    }
    const Epoch now = epochs->newest().map().epoch;
    const Epoch read = newest + static_cast<Epoch>(group.epochs.size());
    if (now == read) epochs->settled = group.settled || (now == before && epochs->settled);
    for (const auto& [id, epoch] : retired) epochs->Retire(id, epoch);
    state_->epochs = std::move(epochs);
    lock.unlock();
    if (now > before) {
      Log(LogLevel::kInfo, "the drive map has changed",
          {{"cluster", config_.name}, {"epoch", now}});
    }
  }
  AddMissingDrives();
  return {};
}

// Those that an epoch has added are found where the configuration says by now.
void Cluster::AddMissingDrives() {
  std::vector<DriveId> missing;
  {
    const std::lock_guard lock(state_->mutex);
    missing = state_->Missing();
  }
  if (missing.empty()) return;
  Result<ClusterConfig> config = Fail(ENOTSUP, "the configuration is not read again");
  if (state_->source != nullptr) config = state_->source();
  for (const DriveId id : missing) {
    Status why = Fail(ENOENT, "it does not list it");
    if (!config.has_value()) {
      why = config.error();
    } else {
      const auto found = std::find_if(config->drives.begin(), config->drives.end(),
                                      [id](const DriveConfig& drive) { return drive.id == id; });
      if (found != config->drives.end()) why = AddDrives({*found});
    }
    bool is_news = false;
    {
      const std::lock_guard lock(state_->mutex);
      is_news = why.ok() ? state_->missing.erase(id) > 0 : state_->missing.insert(id).second;
    }
    if (why.ok()) {
      Log(LogLevel::kInfo, "drive added", {{"cluster", config_.name}, {"drive", id}});
    } else if (is_news) {
      Log(LogLevel::kError,
          "drive counts as away: the drive map names it, and the configuration does not",
          {{"cluster", config_.name}, {"drive", id}, {"file", config_.file}, {"why", why}});
    }
  }
}

Result<ClusterConfig> Cluster::Reload() {
  if (state_->source == nullptr || state_->redirect == nullptr) {
    return Fail(ENOTSUP, "the configuration is not read again");
  }
  for (;;) {
    {
      const std::lock_guard lock(state_->mutex);
      if (!std::exchange(state_->reloading, true)) break;
    }
    state_->reloaded->WaitUntil(Time::max());
  }
  // Files are read for it, on disks that may hang: here, and where another way is taken to a drive.
  Result<ClusterConfig> reloaded = [&]() -> Result<ClusterConfig> {
    ClusterConfig config = TRY(state_->source());
    TRY(config.Check());
    if (config.name != config_.name) {
      return Fail(EINVAL, "{} is that of the cluster '{}' now, and '{}' is in use", config.file,
                  config.name, config_.name);
    }
    std::vector<DriveConfig> added;
    for (const DriveConfig& drive : config.drives) {
      const auto is_it = [&drive](const DriveConfig& each) { return each.id == drive.id; };
      Drive* known = nullptr;  // stays
      bool same_way = false;
      {
        const std::lock_guard lock(state_->mutex);
        const auto found = std::find_if(state_->configs.begin(), state_->configs.end(), is_it);
        if (found != state_->configs.end()) {
          known = state_->drives.at(drive.id).get();
          same_way = found->SameWay(drive);
        }
      }
      if (known == nullptr) added.push_back(drive);
      if (known == nullptr || same_way) continue;
      TRY_CONTEXT(state_->redirect(*known, drive), "{}", Where(drive));
      {
        const std::lock_guard lock(state_->mutex);
        *std::find_if(state_->configs.begin(), state_->configs.end(), is_it) = drive;
      }
      Log(LogLevel::kInfo, "drive has another address or other credentials by now",
          {{"cluster", config_.name}, {"drive", Where(drive)}});
    }
    TRY(AddDrives(added));
    return config;
  }();
  {
    const std::lock_guard lock(state_->mutex);
    state_->reloading = false;
  }
  state_->reloaded->Set();
  return reloaded;
}

// While new homes have no say yet, or drives are missing, somebody looks now and then: on the side,
// and only in a process that does something.
void Cluster::LookNowAndThen() {
  {
    const std::lock_guard lock(state_->mutex);
    const Time now = runtime_.Now();
    const bool complete = state_->epochs->settled && state_->Missing().empty();
    if (complete || state_->closing || state_->looking || now < state_->next_look) return;
    state_->next_look = now + kLookForChanges;
    state_->looking = true;
  }
  runtime_.Spawn("epochs", [this] {
    (void)Refresh();  // tried again
    const std::lock_guard lock(state_->mutex);
    state_->looking = false;
    const std::shared_ptr<Signal> ended = state_->ended;  // *this is gone as soon as the lock is
    ended->Set();
  });
}

Status Cluster::CatchUp(const GroupReplicas& known) {
  const auto is_later = [&] {
    return known.cluster_version.has_value() &&
           ClusterVersionOf(map().epoch) > *known.cluster_version;
  };
  if (is_later()) return {};
  TRY_CONTEXT(Refresh(), "the drive map has changed, and cannot be read");
  if (is_later()) return {};
  return Fail(EIO,
              "a drive has a later cluster version than {}, which is that of the newest epoch of "
              "the drive map: was it used for something else?",
              ClusterVersionOf(map().epoch));
}

// Who has a say ----------------------------------------------------------------------------------

namespace {

struct Evidence {
  uint64_t slot = 0;
  uint64_t start = 0;
};

// What any of the drives that keep the map has heard of starts, whether it is chosen or not: where
// a drive that goes on from a copy is among those that decide, it may hide that it is one, but not
// from those who ask all the others.
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
    const std::lock_guard lock(state_->mutex);
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
    const std::lock_guard lock(state_->mutex);
    state_->starts[ids[i]] = value;
  }
  state_->electorate->Note(noted);
  return NoteFollowers();
}

RegisterValue Cluster::NotedStart(DriveId drive) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->starts.find(drive);
  return found != state_->starts.end() ? found->second : RegisterValue();
}

Result<bool> Cluster::NoteStart(DriveId drive, uint64_t start, const RegisterValue& seen) {
  const ChangeOutcome outcome = registers_->Change({kMapGroup, StartKey(drive)}, seen,
                                                   EncodeStart(start), Durability::kWriteThrough);
  TRY_CONTEXT(outcome.why, "note the start of drive {}", drive);
  const auto now = outcome.now.value ? DecodeStart(*outcome.now.value) : Result<uint64_t>(kNoStart);
  {
    const std::lock_guard lock(state_->mutex);
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
    const std::lock_guard lock(state_->mutex);
    if (!state_->opened || state_->closing || state_->electing || news == state_->elected_for) {
      return;
    }
    state_->electing = true;
  }
  runtime_.Spawn("electorate", [this] { Elect(); });
}

void Cluster::Elect() {
  const auto is_closing = [this] {
    const std::lock_guard lock(state_->mutex);
    return state_->closing;
  };
  // Who opens a cluster to have a look at it leaves this to others.
  const auto pause = [&](Duration duration) {
    for (const Time until = runtime_.Now() + duration; runtime_.Now() < until && !is_closing();) {
      Sleep(runtime_, std::min(until, runtime_.Now() + std::chrono::milliseconds(50)));
    }
  };
  WatchedClaims claims;
  for (bool first = true;; first = false) {
    const uint64_t news = state_->electorate->news();
    const Status learnt = is_closing() ? Status() : LearnStarts();
    if (learnt.ok() && !first && !is_closing()) {
      ComparisonOptions options;
      options.is_cancelled = is_closing;
      options.watched = &claims;
      const auto compared = CompareDrives(*this, options);
      if (!compared.has_value() && !is_closing()) {
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
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->closing || (is_done && state_->electorate->news() == news)) {
        state_->elected_for = news;
        state_->electing = false;
        claims.clear();
        const std::shared_ptr<Signal> ended =
            state_->ended;  // *this is gone as soon as the lock is
        ended->Set();
        return;
      }
    }
    pause(kLookForChanges);
  }
}

// Looking up -------------------------------------------------------------------------------------

const DriveMap& Cluster::map() const { return state_->Known()->newest().map(); }

bool Cluster::IsSettled() const { return state_->Known()->settled; }

std::vector<MissingDrive> Cluster::MissingDrives() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<MissingDrive> missing;
  for (const DriveId id : state_->Missing()) {
    const MappedDrive& drive = state_->epochs->named.at(id);
    const auto& map = state_->map_drives;
    missing.push_back({.id = id,
                       .domain = drive.domain,
                       .is_draining = drive.state == DriveState::kDraining,
                       .keeps_map = std::find(map.begin(), map.end(), id) != map.end()});
  }
  return missing;
}

std::set<DriveId> Cluster::DrainingDrives() const { return state_->Known()->draining; }

bool Cluster::IsRetired(DriveId drive) const { return state_->Known()->retired.contains(drive); }

bool Cluster::WasDrainingSince(DriveId drive, Epoch epoch) const {
  return state_->Known()->WasDrainingSince(drive, epoch);
}

std::set<DriveId> Cluster::DrivesLeftBehind() const {
  const std::lock_guard lock(state_->mutex);
  std::set<DriveId> left;
  for (const DriveId id : state_->epochs->draining) {
    if (!state_->drives.contains(id)) left.insert(id);
  }
  return left;
}

const std::string& Cluster::uuid() const { return state_->uuid; }

const std::vector<DriveId>& Cluster::map_drives() const { return state_->map_drives; }

void Cluster::ExpectIncarnation(DriveId drive, uint32_t incarnation) {
  state_->identities->ExpectIncarnation(drive, incarnation);
}

uint32_t Cluster::GroupOfObject(uint64_t object) const { return GroupOf(map(), object, 0); }

Drive* Cluster::FindDrive(DriveId id) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->drives.find(id);
  return found == state_->drives.end() ? nullptr : found->second.get();
}

DriveLosses Cluster::CountLosses() const {
  DriveLosses losses;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [id, drive] : state_->drives) losses[id] = drive->CountLosses();
  return losses;
}

std::shared_ptr<Placement> Cluster::NewestPlacement() const {
  return state_->Known()->all.rbegin()->second;
}

std::shared_ptr<Placement> Cluster::FormerPlacement() const {
  const std::shared_ptr<const Epochs> known = state_->Known();
  return known->all.size() > 1 ? std::next(known->all.rbegin())->second
                               : known->all.rbegin()->second;
}

std::vector<DriveId> Cluster::RegisterHomes(uint32_t group) const {
  return group == kMapGroup ? state_->map_drives : NewestPlacement()->RegisterHomes(group);
}

GroupReplicas Cluster::Replicas(uint32_t group) {
  GroupReplicas replicas;
  const auto find = [&](const DriveSet& voters, DriveId id) -> Drive* {
    const std::lock_guard lock(state_->mutex);
    const auto found = voters.find(id);
    return found == voters.end() ? nullptr : found->second.get();
  };
  if (group == kMapGroup) {
    for (const DriveId id : state_->map_drives) {
      replicas.drives.push_back(find(state_->map_voters, id));
    }
    return replicas;
  }
  LookNowAndThen();
  const std::shared_ptr<const Epochs> known = state_->Known();
  const std::vector<DriveId> homes = known->newest().RegisterHomes(group);
  std::vector<DriveId> with_a_say = homes;
  if (!known->settled) with_a_say = known->before().RegisterHomes(group);
  for (const DriveId id : homes) {
    const bool has_a_say = std::find(with_a_say.begin(), with_a_say.end(), id) != with_a_say.end();
    replicas.drives.push_back(has_a_say ? find(state_->voters, id) : nullptr);
  }
  replicas.cluster_version = ClusterVersionOf(known->newest().map().epoch);
  return replicas;
}

std::vector<bool> Cluster::HomesThatCount(uint32_t group) const {
  const std::vector<DriveId> homes = RegisterHomes(group);
  const std::shared_ptr<const Epochs> known = state_->Known();
  if (group == kMapGroup || known->settled) return std::vector<bool>(homes.size(), true);
  const std::vector<DriveId> before = known->before().RegisterHomes(group);
  std::vector<bool> count;
  for (const DriveId id : homes) {
    count.push_back(std::find(before.begin(), before.end(), id) != before.end());
  }
  return count;
}

Epoch Cluster::CurrentEpoch() { return map().epoch; }

Status Cluster::LookForEpochAfter(Epoch known) {
  return CatchUp({.drives = {}, .cluster_version = ClusterVersionOf(known)});
}

Result<std::vector<DriveId>> Cluster::StripeDrives(Epoch epoch, uint64_t object, uint64_t block,
                                                   Geometry geometry) {
  std::shared_ptr<const Epochs> known = state_->Known();
  if (epoch > known->newest().map().epoch) {  // somebody else has heard of it first
    TRY_CONTEXT(Refresh(), "the drive map has changed, and cannot be read");
    known = state_->Known();
  }
  const auto found = known->all.find(epoch);
  if (found == known->all.end()) {
    return Fail(EIO, "epoch {} of the drive map is not known here (newest: {})", epoch,
                map().epoch);
  }
  Placement& placement = *found->second;
  const auto shards = static_cast<size_t>(geometry.shards());
  std::vector<DriveId> order = placement.Order(GroupOf(placement.map(), object, block), shards,
                                               static_cast<size_t>(geometry.parity_shards));
  // Whatever the epoch says, nothing new goes to a drive that is to become empty.
  const auto spares = order.begin() + static_cast<ptrdiff_t>(std::min(shards, order.size()));
  order.erase(
      std::remove_if(spares, order.end(), [&](DriveId id) { return known->draining.contains(id); }),
      order.end());
  return order;
}

// Status -----------------------------------------------------------------------------------------

std::vector<DriveStatus> Cluster::Drives(Duration timeout) {
  Gather<Result<DriveInfo>> gather(runtime_);
  std::vector<DriveStatus> statuses;
  const Time deadline = runtime_.Now() + timeout;
  std::vector<DriveConfig> configs;
  {
    const std::lock_guard lock(state_->mutex);
    configs = state_->configs;
  }
  for (const DriveConfig& drive : configs) {
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
  const std::shared_ptr<const Epochs> epochs = state_->Known();
  const std::lock_guard lock(state_->mutex);
  for (const MappedDrive& drive : epochs->newest().map().drives) {
    const auto info = state_->last_infos.find(drive.id);
    if (info == state_->last_infos.end() || drive.state != DriveState::kActive) continue;
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

  // Drives of a cluster whose drive map had changed begin anew, unless others use them, too: those
  // would be let in again whom they have shut out. What was ours is erased by now.
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
            "drive {} {}, whose drive map has changed: such a drive cannot be shared. Erase "
            "it first",
            id, Owner(keys.front()));
      }
      Gather<Status> gather(runtime_);
      drive->SetClusterVersion(ClusterVersionOf(1), Deadline(), gather.Ask(0));
      TRY_CONTEXT(gather.Next(Time::max())->value, "let drive {} begin anew", id);
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
  TRY(config.CheckForFormat());
  TRY(ErasureSelfTest());
  // Whatever the drives are now, they are to become this cluster's.
  const DriveSet drives = TRY(MakeDrives(config, factory, AnyDrive));
  const DriveMap map = FirstEpoch(config);
  const std::vector<DriveId> map_drives = MapDrivesOf(map);

  Formatting formatting(runtime, config, drives);
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
  Log(LogLevel::kInfo, "cluster formatted", {{"cluster", config.name}, {"drives", drives.size()}});
  return {};
}

}  // namespace pinstripe
