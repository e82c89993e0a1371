// The drives that may hold the last word about a register.

#pragma once

#include <set>

#include "cluster/cluster.h"

namespace pinstripe {

// A drained drive holds nothing that counts, and may have been taken away. But until the epoch is
// settled in which it was drained, decisions with its vote may be on too few others.
inline std::set<DriveId> DrivesOfRegisters(const Cluster& cluster) {
  const bool settled = cluster.IsSettled();
  std::set<DriveId> drives;
  for (const MappedDrive& drive : cluster.map().drives) {
    if (!settled || drive.state == DriveState::kActive) drives.insert(drive.id);
  }
  return drives;
}

}  // namespace pinstripe
