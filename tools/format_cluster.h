// Makes a new, empty cluster on the drives of a configuration: superblocks, the first epoch of the
// drive map, the root directory.

#pragma once

#include <cstdint>
#include <string>

#include "base/runtime.h"
#include "base/status.h"
#include "fs/file_system.h"

namespace pinstripe {

struct FormatRequest {
  bool force = false;  // take over drives that belong to a cluster
  Owner owner;         // of the root directory
  uint32_t mode = 0755;
};

struct FormatAnswer {
  std::string name;
  std::string uuid;  // 8-4-4-4-12 hexadecimal digits
  size_t drives = 0;
  std::string names_on;     // the engine; empty: the drives
  uint64_t names_room = 0;  // files of which the engine has room for the names; 0: it sets no limit
};

// As ClusterConfig::Load, Cluster::Format and FileSystem::Format fail.
Result<FormatAnswer> FormatCluster(Runtime& runtime, const std::string& config_file,
                                   const FormatRequest& request);

}  // namespace pinstripe
