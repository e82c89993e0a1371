// FileContext: what all open files of a FileSystem share.

#pragma once

#include <atomic>
#include <functional>

#include "cluster/cluster.h"
#include "fs/files/block_memory.h"
#include "fs/files/block_reader.h"
#include "fs/files/keepers.h"
#include "fs/files/known_keepers.h"
#include "fs/files/reaper.h"
#include "fs/names/growth.h"
#include "fs/names/names.h"
#include "fs/options.h"

namespace pinstripe {

struct FileContext {
  FileContext(Cluster& cluster_in, const FileSystemOptions& options);

  Cluster& cluster;
  Records records;
  Reaper reaper;
  MemoryBudget budget;
  BlockMemory memory{budget};
  BlockReader reader;
  Names names;
  Names::Disposer dispose;  // what Names tells of removed inodes
  Keepers keepers{cluster, records};
  RecentKeepers recent_keepers;
  // Takes a share of the budget: waits until there is room, and has dirty blocks stored to make
  // some. Never called with a turn, a mutex or another share held. EIO, ENOSPC and the like: there
  // is none, because what takes it cannot be stored.
  std::function<Result<MemoryBudget::Share>(uint64_t bytes)> reserve;
  // Told of files that are committed while not all of their shards are where they belong.
  std::function<void(InodeId)> committed_short;
  std::atomic<uint64_t> ages{0};

  FileLayout layout;  // of files that have none of their own
  MapLimits map_limits;
  const uint64_t least_shared_bytes;
  Growth growth;  // last: what it does in the background uses the others
};

}  // namespace pinstripe
