// Growth: spreads directories over parts in the background once this process has made or listed
// very many names in one of them (fs/names/spreader.h). The process may end in the middle: a
// collection, or the next process that meets so many names, goes on.
//
// Nothing is counted on the drives. So a directory that many processes fill, each a little, grows
// when somebody lists it.
//
// Thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/status.h"
#include "fs/types.h"

namespace pinstripe {

class Cluster;
class Names;
class Records;

// Counts the names of those directories of which it is told much.
class LargeDirectories {
 public:
  // Asked to have it spread, on the thread of whoever counted; once for each that has so many.
  using OnLarge = std::function<void(InodeId)>;

  // Before anything is counted. 0: nothing is.
  void Tell(uint64_t at_names, OnLarge on_large);

  void Made(InodeId directory) { Count(directory, &Slot::made, 1, /*anew=*/false); }
  // It is not as large as that. Counts anew.
  void Forget(InodeId directory);
  // Names in their order; `is_first`: from the beginning.
  void Listed(InodeId directory, size_t names, bool is_first) {
    Count(directory, &Slot::listed, names, is_first);
  }

 private:
  struct Slot {
    InodeId id = 0;
    uint64_t made = 0;
    uint64_t listed = 0;
    bool was_told = false;
  };
  void Count(InodeId directory, uint64_t Slot::*what, uint64_t names, bool anew);

  uint64_t at_names_ = 0;
  OnLarge on_large_;
  Mutex mutex_;
  std::array<Slot, 64> slots_ GUARDED_BY(mutex_);
};

class Growth {
 public:
  // All outlive it. Counts nothing where the cluster does not use directories that grow.
  Growth(Cluster& cluster, Records& records, Names& names, uint64_t at_names);
  ~Growth() { thread_.End(); }

 private:
  void Run();
  void Spread(InodeId directory);
  // Whether it is to be spread: it has so many names now, though many may have gone since they were
  // made, and it was not spread before.
  Result<bool> IsToBeSpread(InodeId directory);

  Cluster& cluster_;
  Records& records_;
  Names& names_;
  const uint64_t at_names_;
  Mutex mutex_;
  std::set<InodeId> waiting_ GUARDED_BY(mutex_);
  BackgroundThread thread_;  // last: it uses the others
};

}  // namespace pinstripe
