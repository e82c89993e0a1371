// Asking each drive of a configuration how it is, on its own: also where the cluster cannot be
// opened.

#pragma once

#include <map>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "drive/drive.h"

namespace pinstripe {

// What each drive tells of itself, or why it does not. Takes no longer than `patience`.
Result<std::map<DriveId, Result<DriveInfo>>> AskAllDrives(Runtime& runtime,
                                                          const ClusterConfig& config,
                                                          Duration patience);

}  // namespace pinstripe
