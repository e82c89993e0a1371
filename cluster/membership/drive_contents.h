// What a drive holds of a cluster, by its own word.

#pragma once

#include <cstdint>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

// The records of the cluster that a drive holds, by its own word, besides its superblock.
struct DriveContents {
  uint64_t shards = 0;
  uint64_t registers = 0;      // replicas of names and inodes
  uint64_t map_registers = 0;  // of the drive map, which do not move
};
Result<DriveContents> ListDrive(Cluster& cluster, DriveId drive);

// The same, quickly: how many shards, and how many registers, up to kMaxRangeKeys of each; the
// drive is asked twice. Nothing of the drive map.
Result<DriveContents> PeekIntoDrive(Cluster& cluster, DriveId drive);

}  // namespace pinstripe
