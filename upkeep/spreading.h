// Spreading a directory with very many names over all drives, for whoever is told to. Mounts and
// gateways do it by themselves: fs/names/growth.h.

#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/status.h"
#include "cluster/cluster.h"
#include "fs/types.h"

namespace pinstripe {

struct SpreadOptions {
  std::function<bool()> go_on;  // asked often; false: to end where it is. Null: never
  // What is being done, and for how many names it was done.
  std::function<void(std::string_view phase, uint64_t names)> progress;
  std::function<void()> waits;  // told now and then while everybody is to hear of it
};

struct SpreadReport {
  uint64_t moved = 0;         // names that were brought to their parts
  uint64_t cleared = 0;       // that have left the directory's own group
  bool ended = false;         // nothing is left to do
  bool uses_feature = false;  // the cluster does, from now on
};

// Also goes on with what somebody has begun. ENOENT, ENOTDIR; ENOTSUP: the cluster has one group.
Result<SpreadReport> SpreadDirectory(Cluster& cluster, InodeId directory,
                                     const SpreadOptions& options);

}  // namespace pinstripe
