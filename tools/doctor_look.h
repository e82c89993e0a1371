// Looking at drives and at this host for `pinstripe doctor`.

#pragma once

#include <string>
#include <vector>

#include "base/runtime.h"
#include "cluster/config.h"
#include "tools/doctor.h"

namespace pinstripe {

// Asks each drive, and unless `quick` stores a value of 1 MiB on each and removes it again.
Result<std::vector<DriveSight>> LookAtDrives(Runtime& runtime, const ClusterConfig& config,
                                             bool quick);

// `version`: of this program. The configuration of pinstriped lies beside the cluster's, if there
// is one.
HostSight LookAtHost(Runtime& runtime, const ClusterConfig& config, const std::string& version);

}  // namespace pinstripe
