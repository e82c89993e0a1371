// FullDrives: which drives have just answered NO_SPACE (ENOSPC) to data, so that not every stripe
// is sent to them for nothing. Their shards go to other drives (cluster/stripes/write.h). A full
// drive may have room again at any time. It is passed over for kForgottenAfter, and then one write
// looks whether it is full still. It is asked all the same where a write would fail without it.
// Thread-safe.

#pragma once

#include <chrono>
#include <map>

#include "base/mutex.h"
#include "base/runtime.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

class FullDrives {
 public:
  static constexpr Duration kForgottenAfter = std::chrono::seconds(2);

  void Note(DriveId drive, Time now) {
    const MutexLock lock(mutex_);
    until_[drive] = now + kForgottenAfter;
  }

  // Something was removed from it, or stored there.
  void Forget(DriveId drive) {
    const MutexLock lock(mutex_);
    until_.erase(drive);
  }

  // False for the one who is to look.
  bool IsFull(DriveId drive, Time now) {
    const MutexLock lock(mutex_);
    const auto found = until_.find(drive);
    if (found == until_.end()) return false;
    if (now < found->second) return true;
    found->second = now + kForgottenAfter;
    return false;
  }

 private:
  Mutex mutex_;
  std::map<DriveId, Time> until_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
