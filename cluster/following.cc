// How an open cluster follows newer epochs of the drive map, and the configuration.

#include <algorithm>

#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "cluster/cluster_state.h"
#include "cluster/connecting.h"
#include "cluster/map_group.h"

namespace pinstripe {

Status Cluster::Refresh() {
  const std::shared_ptr<const Epochs> known = state_->Known();
  TRY(known->refusal);
  const Epoch newest = known->newest().map().epoch;
  auto read = ReadMapGroup(*registers_, config_, newest + 1);
  if (!read.has_value() && read.error().code() == ENOTSUP) {
    return state_->LeaveAlone(config_.name, read.error());
  }
  MapGroup group = TRY(std::move(read));
  std::set<DriveId> in_question;
  if (!group.epochs.empty()) {
    in_question = Epochs::DrainingIn(group.epochs.back());
  } else {
    for (const DriveId id : known->draining) {
      if (!known->retired.contains(id)) in_question.insert(id);
    }
  }
  const auto retired = TRY(ReadRetirements(*registers_, in_question));
  // Before anybody hears of the epoch, and asks it.
  if (!group.epochs.empty()) {
    state_->AddEngineAsSaid(config_, NamesPlaceOf(group.epochs.back()));
  }
  if (!group.epochs.empty() || group.settled != known->settled || !retired.empty()) {
    MutexLock lock(state_->mutex);
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
    lock.Unlock();
    if (now > before) {
      Log(LogLevel::kInfo, "the drive map has changed",
          {{"cluster", config_.name}, {"epoch", now}});
    }
  }
  AddMissingDrives();
  return {};
}

Status NoWayToEngine(const std::string& file, const NamesPlace& names) {
  return Fail(EINVAL,
              "the names of this cluster are kept on {}, and {} does not say where that is: give "
              "it a table [metadata] with engine = \"{}\"",
              names.engine, file, names.engine);
}

Status Cluster::State::AddEngine(const ClusterConfig& config, const NamesPlace& names) {
  {
    const MutexLock lock(mutex);
    if (engines.contains(names.incarnation)) return {};
  }
  if (!config.engine || config.engine->kind != names.engine) {
    return NoWayToEngine(config.file, names);
  }
  auto made = TRY_CONTEXT(
      factory(EngineAsDrive(*config.engine), SuperblockKey(config.name),
              [name = config.name, uuid = uuid, incarnation = names.incarnation](
                  const Result<Record>& record, const Result<DriveInfo>&) -> Status {
                const Superblock block = TRY(ReadSuperblock(record, name, kEngineDrive));
                if (block.cluster_uuid == uuid && block.incarnation == incarnation) return {};
                return Fail(EINVAL, "it is not the store that the names of this cluster are in");
              }),
      "{}", names.engine);
  const MutexLock lock(mutex);
  engines.try_emplace(names.incarnation, std::move(made));
  return {};
}

void Cluster::State::AddEngineAsSaid(const ClusterConfig& at_first, const NamesPlace& names) {
  if (!names.NamesEngine()) return;
  {
    const MutexLock lock(mutex);
    if (engines.contains(names.incarnation)) return;
  }
  // What it said at first may be the way to the engine of an earlier move.
  const Result<ClusterConfig> config =
      source != nullptr ? source() : Result<ClusterConfig>(at_first);
  const Status added = config.has_value() ? AddEngine(*config, names) : config.error();
  const std::string failure(added.message());
  bool is_news = false;
  {
    const MutexLock lock(mutex);
    is_news = std::exchange(engine_failure, failure) != failure;
  }
  if (is_news && !added.ok()) {
    Log(LogLevel::kError, "names cannot be reached", {{"cluster", at_first.name}, {"why", added}});
  }
}

// What is under way may end as it can: drives that have heard of the new epoch refuse it.
Status Cluster::State::LeaveAlone(const std::string& cluster, const Status& why) {
  const Status refusal = Fail(
      EIO, "this process leaves the cluster alone, until it is started anew: {}", why.message());
  bool is_news = false;
  {
    const MutexLock lock(mutex);
    is_news = epochs->refusal.ok();
    auto changed = std::make_shared<Epochs>(*epochs);
    changed->refusal = refusal;
    epochs = std::move(changed);
  }
  if (is_news) {
    Log(LogLevel::kError, "this process leaves the cluster alone",
        {{"cluster", cluster}, {"why", why}});
  }
  return refusal;
}

// The engine, and drives that an epoch has added, are found where the configuration says by now.
void Cluster::AddMissingDrives() {
  state_->AddEngineAsSaid(config_, state_->Known()->engine_place());
  std::vector<DriveId> missing;
  {
    const MutexLock lock(state_->mutex);
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
      const MutexLock lock(state_->mutex);
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
      const MutexLock lock(state_->mutex);
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
        const MutexLock lock(state_->mutex);
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
        const MutexLock lock(state_->mutex);
        *std::find_if(state_->configs.begin(), state_->configs.end(), is_it) = drive;
      }
      Log(LogLevel::kInfo, "drive has another address or other credentials by now",
          {{"cluster", config_.name}, {"drive", Where(drive)}});
    }
    TRY(AddDrives(added));
    return config;
  }();
  {
    const MutexLock lock(state_->mutex);
    state_->reloading = false;
  }
  state_->reloaded->Set();
  return reloaded;
}

// While new homes have no say yet, or drives are missing, somebody looks now and then: on the side,
// and only in a process that does something.
void Cluster::LookNowAndThen() {
  {
    const MutexLock lock(state_->mutex);
    const Time now = runtime_.Now();
    const NamesPlace& names = state_->epochs->engine_place();
    const bool lacks_engine = names.NamesEngine() && state_->FindEngine() == nullptr;
    const bool complete =
        state_->epochs->settled && state_->Missing().empty() && !names.IsMoving() && !lacks_engine;
    if (complete || state_->looker.IsRunning() || now < state_->next_look) return;
    state_->next_look = now + kLookForChanges;
  }
  state_->looker.Wake();
}

Status Cluster::CatchUp(const GroupReplicas& known) {
  const auto is_later = [&] {
    return known.cluster_version.has_value() &&
           ClusterVersionOf(map().epoch) > *known.cluster_version;
  };
  if (is_later()) return {};
  TRY(MapFailure(Refresh()));
  if (is_later()) return {};
  return Fail(EIO,
              "a drive has a later cluster version than {}, which is that of the newest epoch of "
              "the drive map: was it used for something else?",
              ClusterVersionOf(map().epoch));
}

}  // namespace pinstripe
