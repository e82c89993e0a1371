// Mender: has files repaired that this process committed while drives were away, once these are
// back. Their shards lie on spares or were not stored; the block map says so, and this queue says
// which files to look at. It is lost with the process; `pinstripe repair` finds what is left.
//
// Thread-safe. It has a thread from the first file on; the destructor waits for the block that this
// is at work on.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/caretaker.h"
#include "fs/types.h"
#include "upkeep/repairer.h"

namespace pinstripe {

class Mender {
 public:
  // A drive that was only restarted is waited for before anybody looks.
  static constexpr Duration kDelay = std::chrono::seconds(10);
  static constexpr Duration kLook = std::chrono::seconds(5);  // whether drives are up
  static constexpr Duration kStep = std::chrono::seconds(1);  // between two walks over the queue
  static constexpr Duration kLongestDelay = std::chrono::minutes(10);  // after failures
  static constexpr size_t kMaxQueue = 100'000;                         // files

  using Hooks = Caretaker::Hooks;

  // `is_whole` is told of each file that was made whole, on the mender's thread.
  Mender(Cluster& cluster, Hooks hooks, std::function<void()> is_whole = nullptr);
  ~Mender();

  void Add(InodeId file);
  size_t waiting();  // files

 private:
  struct Item {
    Time due{};
    Duration delay = kDelay;          // until the next attempt, after a failure
    std::set<DriveId> drives_needed;  // any of them; empty: it was not looked yet
    bool committed_again = false;     // since it was begun with
  };
  void Run();
  // The items that are due and may be helped, at `now`.
  std::vector<InodeId> TakeDue(Time now);
  Time NextDue(Time not_before);
  void Mend(InodeId file);

  Cluster& cluster_;
  const Hooks hooks_;
  const std::function<void()> is_whole_;
  Repairer repairer_;
  Mutex mutex_;
  std::map<InodeId, Item> items_ GUARDED_BY(mutex_);
  Time wakes_at_ GUARDED_BY(mutex_){};  // once the thread runs
  BackgroundThread thread_;             // the last member: it uses the others
};

}  // namespace pinstripe
