// Finds out who the drives of a cluster are, once enough of them have said so. Opening does this
// first. How registers agree on a value is another matter (cluster/registers/rules.h).

#pragma once

#include <compare>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/ask_drives.h"
#include "cluster/cluster.h"
#include "cluster/config.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

class DriveIdentities;

struct Consensus {
  std::string uuid;
  std::vector<DriveId> map_drives;
  auto operator<=>(const Consensus&) const = default;
};

// Asks until the drives that keep the drive map have a majority that says the same, or
// Config::open_timeout is over. Fails as Cluster::Open() does.
Result<Consensus> FindConsensus(Runtime& runtime, const ClusterConfig& config,
                                const DriveSet& drives, DriveIdentities& identities);

// For those who found no drive of the cluster: a better reason, if they hold another one.
Status WhatTheyHold(Runtime& runtime, const ClusterConfig& config, const DriveFactory& factory,
                    const Status& otherwise);

}  // namespace pinstripe
