// Reading the registers of the map's group: epochs, which of them is settled, which drives were
// replaced or retired.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/status.h"
#include "cluster/config.h"
#include "cluster/map/drive_map.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// What the registers of the map group say.
struct MapGroup {
  std::vector<DriveMap> epochs;              // from `first` to the newest; none if that is later
  bool settled = true;                       // the newest of all
  std::map<DriveId, uint32_t> incarnations;  // of the drives in the configuration
};

// From the epoch `first` on; incarnations only with the first of all.
Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config,
                              Epoch first = 1);

// Which of these drives were found to be retired, and in which epoch.
Result<std::map<DriveId, Epoch>> ReadRetirements(RegisterStore& registers,
                                                 const std::set<DriveId>& drives);

}  // namespace pinstripe
