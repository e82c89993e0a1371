#include "cluster/cluster.h"

#include <algorithm>

#include "base/mutex.h"
#include "base/try.h"
#include "cluster/cluster_state.h"
#include "cluster/gather.h"
#include "cluster/map/placement.h"

namespace pinstripe {
namespace {

constexpr Duration kSpaceIsFresh = std::chrono::seconds(3);

}  // namespace

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

Cluster::Cluster(Runtime& runtime, ClusterConfig config)
    : runtime_(runtime),
      config_(std::move(config)),
      state_(std::make_unique<State>(
          runtime, [this] { (void)Refresh(); },  // it is tried again
          [this] { Elect(); })) {}

Cluster::~Cluster() {
  if (state_->bell) state_->bell->TakeDown();
  state_->elector.TellToEnd();
  state_->looker.TellToEnd();
  state_->elector.End();
  state_->looker.End();
  stripes_.reset();
  registers_.reset();
}

// Looking up -------------------------------------------------------------------------------------

const DriveMap& Cluster::map() const { return state_->Known()->newest().map(); }

bool Cluster::IsSettled() const { return state_->Known()->settled; }

std::vector<MissingDrive> Cluster::MissingDrives() const {
  const MutexLock lock(state_->mutex);
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
  const MutexLock lock(state_->mutex);
  std::set<DriveId> left;
  for (const DriveId id : state_->epochs->draining) {
    if (!state_->drives.contains(id)) left.insert(id);
  }
  return left;
}

const std::string& Cluster::uuid() const { return state_->uuid; }

const std::vector<DriveId>& Cluster::map_drives() const { return state_->map_drives; }

const std::optional<KeptLayout>& Cluster::kept_layout() const { return state_->layout; }

void Cluster::ExpectIncarnation(DriveId drive, uint32_t incarnation) {
  state_->identities->ExpectIncarnation(drive, incarnation);
}

uint32_t Cluster::GroupOfObject(uint64_t object) const { return GroupOfRegisters(map(), object); }

Drive* Cluster::FindDrive(DriveId id) {
  const MutexLock lock(state_->mutex);
  if (id == kEngineDrive) return state_->FindEngine();
  const auto found = state_->drives.find(id);
  return found == state_->drives.end() ? nullptr : found->second.get();
}

DriveLosses Cluster::CountLosses() const {
  DriveLosses losses;
  const MutexLock lock(state_->mutex);
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
  if (group == kMapGroup) {
    if (const auto known = state_->Known()) replicas.refused = known->refusal;
    for (const DriveId id : state_->map_drives) {
      replicas.drives.push_back(state_->FindVoter(id, /*in_map=*/true));
    }
    return replicas;
  }
  LookNowAndThen();
  const std::shared_ptr<const Epochs> known = state_->Known();
  replicas.refused = known->refusal;
  replicas.cluster_version = ClusterVersionOf(known->newest().map().epoch);
  const NamesPlace& names = known->newest().names();
  const bool have_moved = !known->settled && known->before().names() != names;
  replicas.are_moving = names.IsMoving() || have_moved;
  if (names.OnEngine()) {
    replicas.drives = {FindDrive(kEngineDrive)};
    replicas.are_durable = true;
    if (replicas.refused.ok() && replicas.drives.front() == nullptr) {
      replicas.refused = Fail(EIO, "{}", NoWayToEngine(config_.file, names).message());
    }
    return replicas;
  }
  const std::vector<DriveId> homes = known->newest().RegisterHomes(group);
  std::vector<DriveId> with_a_say = homes;
  if (!known->settled && !have_moved) with_a_say = known->before().RegisterHomes(group);
  for (const DriveId id : homes) {
    const bool has_a_say = std::find(with_a_say.begin(), with_a_say.end(), id) != with_a_say.end();
    replicas.drives.push_back(has_a_say ? state_->FindVoter(id, /*in_map=*/false) : nullptr);
  }
  return replicas;
}

std::vector<bool> Cluster::HomesThatCount(uint32_t group) const {
  const std::vector<DriveId> homes = RegisterHomes(group);
  const std::shared_ptr<const Epochs> known = state_->Known();
  const bool have_moved = known->before().names() != known->newest().names();
  if (group == kMapGroup || known->settled || have_moved)
    return std::vector<bool>(homes.size(), true);
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
  TRY(known->refusal);
  if (epoch > known->newest().map().epoch) {  // somebody else has heard of it first
    TRY(MapFailure(Refresh()));
    known = state_->Known();
  }
  const auto found = known->all.find(epoch);
  if (found == known->all.end()) {
    return Fail(EIO, "epoch {} of the drive map is not known here (newest: {})", epoch,
                map().epoch);
  }
  Placement& placement = *found->second;
  const auto shards = static_cast<size_t>(geometry.shards());
  std::vector<DriveId> order = placement.Order(GroupOfStripe(placement.map(), object, block),
                                               shards, static_cast<size_t>(geometry.parity_shards));
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
    const MutexLock lock(state_->mutex);
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
    const MutexLock lock(state_->mutex);
    fresh = state_->last_asked && now - *state_->last_asked < kSpaceIsFresh;
  }
  if (!fresh) {
    const std::vector<DriveStatus> statuses = Drives(config_.drive_timeout);
    const MutexLock lock(state_->mutex);
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
  const MutexLock lock(state_->mutex);
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

}  // namespace pinstripe
