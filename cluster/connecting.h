// Functions that opening, formatting and following a cluster share: drives made from the
// configuration, and sentences about them.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/ask_drives.h"
#include "cluster/cluster.h"
#include "cluster/config.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// "drive 3 (host:8103): connection refused; ...", not endlessly.
std::string Listed(const std::vector<std::string>& reasons);

// "drive 3 (host:8103)"
std::string Where(const DriveConfig& drive);

// All that the configuration lists.
Result<DriveSet> MakeDrives(const ClusterConfig& config, const DriveFactory& factory,
                            const std::function<IdentityCheck(DriveId)>& check);

// Makes drives whatever they are now, as long as they answer.
IdentityCheck AnyDrive(DriveId id);

RegisterStore::Options RegisterOptions(const ClusterConfig& config);

}  // namespace pinstripe
