// KnownKeepers: the inodes that keep blocks which one open file shares with others
// (fs/files/keepers.h), as they were read, with the pages of their maps that were needed.
//
// RecentKeepers: those that the files of one process have asked for last. Small files that are in
// one pack are opened one after the other, and ask for it once.
//
// What they know may be old. A repair that has moved shards, or the end of a keeper, is noticed by
// who finds nothing there; then Refresh() is called. Write ids are never used again, so nobody
// finds anything else there. A process asks for a keeper anew some seconds later all the same:
// after a repair its shards can be read from the old places for as long as enough of them are
// there.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/names/records.h"

namespace pinstripe {

// Pages of a block map that is only read which are kept in memory.
inline constexpr size_t kMostPages = 64;

class RecentKeepers {
 public:
  // Null: it is not known.
  std::shared_ptr<const StoredInode> Find(InodeId keeper, Time now) EXCLUDES(mutex_);
  void Learn(InodeId keeper, std::shared_ptr<const StoredInode> stored, Time read_at)
      EXCLUDES(mutex_);
  // Unless a later one is known than that in this slot.
  void Forget(InodeId keeper, uint64_t slot) EXCLUDES(mutex_);

 private:
  struct Recent {
    std::shared_ptr<const StoredInode> stored;
    Time read_at;
    uint64_t used = 0;
  };
  Mutex mutex_;
  std::map<InodeId, Recent> recent_ GUARDED_BY(mutex_);
  uint64_t uses_ GUARDED_BY(mutex_) = 0;
};

class KnownKeepers {
 public:
  KnownKeepers(Cluster& cluster, Records& records, RecentKeepers& recent)
      : cluster_(cluster), records_(records), recent_(recent) {}

  // A block of a keeper's map, which is to be loaded.
  struct Kept {
    InodeId keeper = 0;
    uint64_t block = 0;
  };

  // Where a block of the file is, of which its map says `place`. Null: `missing` is to be loaded
  // first. Does not wait.
  Result<std::optional<BlockPlace>> Resolve(const BlockPlace& place, uint64_t block,
                                            std::optional<Kept>& missing) const EXCLUDES(mutex_);
  // ENOENT: the keeper is gone.
  Status Load(const Kept& kept) EXCLUDES(mutex_);
  // Forgets those that have changed since they were read. False: none had.
  Result<bool> Refresh() EXCLUDES(mutex_);

  bool HasTooMuch() const EXCLUDES(mutex_);
  void ForgetSome() EXCLUDES(mutex_);
  void Clear() EXCLUDES(mutex_);

 private:
  using Known = std::map<InodeId, std::shared_ptr<const StoredInode>>;

  Cluster& cluster_;
  Records& records_;
  RecentKeepers& recent_;
  mutable Mutex mutex_;
  Known known_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
