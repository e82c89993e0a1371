// UnsyncedChanges: what this process has changed in registers, was told to have happened, and does
// not know to be safe from power loss. Drives answer such changes before they are on their disks,
// and one that loses its power forgets them. If that happens to one drive after the other nobody
// notices: each time a majority is there, and after it a majority has forgotten.
//
// So each change is remembered here until a flush of all drives has made it safe. Where a drive was
// lost between the change and the flush, the change is looked for, and made again if it is gone. In
// the ordinary case that costs nothing but the flush.
//
// Thread-safe. Remembers up to about kMost registers or kMostBytes of their values. The next change
// flushes then. While that fails more are remembered, up to kMostAtAll and kMostBytesAtAll, and of
// those that come then only that there were others.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "fs/turn.h"

namespace pinstripe {

class UnsyncedChanges {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostBytes = 8 << 20;
  static constexpr size_t kMostAtAll = 64 * kMost;
  static constexpr size_t kMostBytesAtAll = 4 * kMostBytes;

  explicit UnsyncedChanges(Cluster& cluster) : cluster_(cluster), turn_(cluster.runtime()) {}

  // How the drives were at some moment.
  struct Moment {
    DriveLosses losses;
    std::set<DriveId> away;
  };
  using MomentPtr = std::shared_ptr<const Moment>;

  // To be called before a change is sent, and its answer given to Add() when it was applied.
  MomentPtr Begin();
  // May flush. If this fails, nothing changes for the one who made the change.
  void Add(const MomentPtr& begun, const RegisterName& name, const RegisterValue& now);

  // All that was added before is safe from power loss, and enough drives were flushed for all that
  // others have changed before. EIO: not so. What was added, and may be made safe the next time, is
  // remembered; what is lost for good is told once.
  Status Sync();

 private:
  struct Change {
    uint64_t slot = 0;
    std::optional<std::string> value;  // null: it was removed

    size_t Bytes() const { return value ? value->size() : 0; }
  };
  using Changes = std::map<std::pair<uint32_t, std::string>, Change>;  // by group and key

  // Under mutex_, if it is the newest, and there is room.
  void Keep(const Changes::key_type& name, Change change) REQUIRES(mutex_);
  // Leaves in `changes` what has to be remembered on, and in `others` whether there were more.
  Status Flush(Changes& changes, bool& others, const Moment& since);
  // `told`: the failure says of something that it is lost, and that is remembered no more.
  Status SyncAll(bool& told);
  Status CheckFlushed(const std::set<DriveId>& failed) const;
  // False: it is lost, and others have replaced it.
  Result<bool> MakeSafe(const RegisterName& name, const Change& change);

  Cluster& cluster_;
  Turn turn_;  // of who syncs
  Mutex mutex_;
  MomentPtr since_ GUARDED_BY(mutex_);  // before all of changes_; null: there are none
  Changes changes_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;         // of their values
  Status untold_ GUARDED_BY(mutex_);            // what was found lost while nobody asked
  bool others_ GUARDED_BY(mutex_) = false;      // there were more, which had no room
  size_t flush_at_ GUARDED_BY(mutex_) = kMost;  // of changes_
  size_t flush_at_bytes_ GUARDED_BY(mutex_) = kMostBytes;
};

}  // namespace pinstripe
