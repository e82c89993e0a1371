// The state that the parts of an open cluster share, and which lock guards what of it. For the
// files that make up Cluster: cluster.cc looks up, opening.cc opens, following.cc follows newer
// epochs and configurations, election.cc sees to who has a say.
//
// Everything that Open() sets is constant once it has returned. The rest belongs to `mutex`, which
// nobody holds while he waits or asks a drive; epochs are replaced as a whole, and are looked at
// without it.

#pragma once

#include <cassert>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "cluster/ask_drives.h"
#include "cluster/cluster.h"
#include "cluster/config.h"
#include "cluster/kept_layout.h"
#include "cluster/map/electorate.h"
#include "cluster/map/epochs.h"
#include "cluster/map/names_place.h"
#include "cluster/membership/drive_identity.h"

namespace pinstripe {

// How often an open cluster looks for what it waits for.
constexpr Duration kLookForChanges = std::chrono::seconds(2);

// A failure to read newer epochs, for whoever asked for something else. It is EIO: whatever is
// wrong with the map says nothing about that.
inline Status MapFailure(const Status& refreshed) {
  if (refreshed.ok()) return {};
  return Fail(EIO, "the drive map has changed, and cannot be read: {}", refreshed.message());
}

// EINVAL, for those who meet names on an engine of which the configuration says nothing, or that is
// another one.
Status NoWayToEngine(const std::string& file, const NamesPlace& names);

// Tells a cluster of drives that were connected to, as long as it is there.
class Bell {
 public:
  explicit Bell(std::function<void()> ring) : ring_(std::move(ring)) {}
  void Ring() {
    const MutexLock lock(mutex_);
    if (ring_) ring_();
  }
  void TakeDown() {
    const MutexLock lock(mutex_);
    ring_ = nullptr;
  }

 private:
  Mutex mutex_;
  std::function<void()> ring_ GUARDED_BY(mutex_);
};

class Cluster::State {
 public:
  State(Runtime& runtime, Task look, Task elect)
      : reloaded(runtime.NewSignal()),
        looker(runtime, "epochs", std::move(look)),
        elector(runtime, "electorate", std::move(elect)) {}

  // Set by Open(), then constant:
  std::shared_ptr<DriveIdentities> identities;
  const std::shared_ptr<Electorate> electorate = std::make_shared<Electorate>();
  std::shared_ptr<Bell> bell;
  DriveFactory factory;
  ConfigSource source;
  DriveRedirect redirect;
  std::string uuid;
  std::vector<DriveId> map_drives;
  std::optional<KeptLayout> layout;

  mutable Mutex mutex;
  bool opened GUARDED_BY(mutex) = false;

  // Of names, by their incarnations; once connected to they stay.
  std::map<uint32_t, std::unique_ptr<Drive>> engines GUARDED_BY(mutex);
  std::string engine_failure GUARDED_BY(mutex);  // why one is not connected to, as was said

  // Once it is open only added to: a Drive, once found, stays.
  DriveSet drives GUARDED_BY(mutex);
  DriveSet voters GUARDED_BY(mutex);                   // these, as registers see them
  DriveSet map_voters GUARDED_BY(mutex);               // as those of the map's group do
  std::vector<DriveConfig> configs GUARDED_BY(mutex);  // of these

  std::shared_ptr<const Epochs> epochs GUARDED_BY(mutex);
  std::set<DriveId> missing GUARDED_BY(mutex);  // drives that were said to be
  Time next_look GUARDED_BY(mutex){};           // no sooner
  bool reloading GUARDED_BY(mutex) = false;     // somebody does
  const std::shared_ptr<Signal> reloaded;       // and has ended

  uint64_t elected_for GUARDED_BY(mutex) = 0;  // the news that the last election began with
  std::map<DriveId, RegisterValue> starts GUARDED_BY(mutex);  // registers, as they were read

  std::map<DriveId, DriveInfo> last_infos GUARDED_BY(mutex);
  std::optional<Time> last_asked GUARDED_BY(mutex);

  std::shared_ptr<const Epochs> Known() const EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return epochs;
  }
  // Drives of the map whose address is not known, but for those that may be away.
  std::vector<DriveId> Missing() const REQUIRES(mutex) {
    std::vector<DriveId> ids;
    for (const auto& [id, drive] : epochs->named) {
      if (!drives.contains(id) && !epochs->retired.contains(id)) ids.push_back(id);
    }
    return ids;
  }
  // The engine (Epochs::engine_place()); null: none is used, or nobody knows the way to it.
  Drive* FindEngine() const REQUIRES(mutex) {
    const NamesPlace& names = epochs->engine_place();
    const auto found = engines.find(names.incarnation);
    return !names.NamesEngine() || found == engines.end() ? nullptr : found->second.get();
  }
  // Connects to the engine, unless that was done. EINVAL: the configuration does not say how, or
  // names another one.
  Status AddEngine(const ClusterConfig& config, const NamesPlace& names) EXCLUDES(mutex);
  // As the configuration says now, or said at first. What is wrong is told once.
  void AddEngineAsSaid(const ClusterConfig& at_first, const NamesPlace& names) EXCLUDES(mutex);
  // From now on: the cluster uses something that this version does not know. Returns the refusal.
  Status LeaveAlone(const std::string& cluster, const Status& why) EXCLUDES(mutex);
  // The drive as registers see it, or those of the map's group; null where nobody knows its
  // address.
  Drive* FindVoter(DriveId id, bool in_map) const EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const DriveSet& among = in_map ? map_voters : voters;
    const auto found = among.find(id);
    return found == among.end() ? nullptr : found->second.get();
  }
  // Until the cluster is open its drives belong to the thread that opens it.
  const DriveSet& DrivesOfOpener() const EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    assert(!opened);
    return drives;
  }

  // The last members: they use all the others, and the cluster.
  BackgroundThread looker;   // for newer epochs and drives that are missing
  BackgroundThread elector;  // sees to who has a say
};

}  // namespace pinstripe
