// Opening a cluster: its drives prove who they are, enough of them agree, the drive map is read,
// and those that may have forgotten something are found out.

#include <algorithm>
#include <cassert>

#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/cluster_state.h"
#include "cluster/connecting.h"
#include "cluster/consensus.h"
#include "cluster/kept_layout.h"
#include "cluster/map/voting_drive.h"
#include "cluster/map_group.h"
#include "erasure/codec.h"

namespace pinstripe {
namespace {

StripeStore::Options StripeOptions(const ClusterConfig& config) {
  StripeStore::Options options;
  options.prefix = ClusterPrefix(config.name);
  options.min_redundancy = config.min_redundancy;
  options.drive_timeout = config.drive_timeout;
  options.timeout = std::max(options.timeout, 3 * config.drive_timeout);
  return options;
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

// Where names are on an engine, it has to be there.
Status WaitForEngine(Cluster& cluster, const ClusterConfig& config) {
  const NamesPlace names = cluster.NewestPlacement()->names();
  const Drive* const engine = cluster.FindDrive(kEngineDrive);
  if (!names.OnEngine() || engine == nullptr) return {};
  constexpr Duration kPause = std::chrono::milliseconds(10);
  Runtime& runtime = cluster.runtime();
  const TimeLimit limit(runtime, config.open_timeout);
  while (!engine->IsUp()) {
    if (limit.has_passed()) {
      return Fail(EIO, "the names of the cluster '{}' are on {}, which cannot be used: {}",
                  config.name, names.engine, engine->WhyAway());
    }
    runtime.NewSignal()->WaitUntil(runtime.Now() + kPause);
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
      FindConsensus(runtime, settings, state.DrivesOfOpener(), *state.identities);
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
  const std::shared_ptr<const Epochs> known = state.Known();
  const NamesPlace& names = known->newest().names();
  if (names.NamesEngine()) TRY(state.AddEngine(settings, names));
  TRY(CheckMapAgainst(settings, cluster->map(), cluster->MissingDrives()));
  for (const ConfigDifference& each : CompareConfig(settings, cluster->map(), state.layout)) {
    Log(LogLevel::kWarn, "the configuration is not what the cluster is",
        {{"cluster", settings.name}, {"file", settings.file}, {"difference", each.Text()}});
  }
  TRY(WaitForEngine(*cluster, settings));
  cluster->AddMissingDrives();
  const uint64_t news = state.electorate->news();
  TRY(cluster->LearnStarts());
  if (say == OpenSay::kEnough) TRY(cluster->WaitForSay());
  {
    const bool all_have_say = state.electorate->Doubtful().empty();
    const MutexLock lock(state.mutex);
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
  {
    // They go after the lock, which the threads of a drive may want: voters first.
    std::unique_ptr<Drive> drive;
    std::unique_ptr<Drive> voter;
    std::unique_ptr<Drive> map_voter;
    const MutexLock lock(state_->mutex);
    assert(!state_->opened);
    drive = std::move(state_->drives.at(id));
    voter = std::move(state_->voters.at(id));
    map_voter = std::move(state_->map_voters.at(id));
  }
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
    const MutexLock lock(state_->mutex);
    std::unique_ptr<Drive>& place = state_->drives[id];
    if (place != nullptr) continue;  // somebody else was faster
    place = std::move(drive);
    const auto as_voter = [&](bool in_map) {
      return std::make_unique<VotingDrive>(*place, id, state_->electorate, in_map);
    };
    state_->voters[id] = as_voter(false);
    state_->map_voters[id] = as_voter(true);
    if (std::ranges::find(state_->configs, id, &DriveConfig::id) == state_->configs.end()) {
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
  state_->layout = group.layout;
  const auto retired = TRY(ReadRetirements(*registers_, epochs->draining));
  for (const auto& [id, epoch] : retired) epochs->Retire(id, epoch);
  const MutexLock lock(state_->mutex);
  state_->epochs = std::move(epochs);
  return {};
}

}  // namespace pinstripe
