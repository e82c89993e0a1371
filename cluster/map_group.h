// Reading the registers of the map's group: epochs, which of them is settled, which drives were
// replaced or retired.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/status.h"
#include "cluster/config.h"
#include "cluster/kept_layout.h"
#include "cluster/map/drive_map.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// The contents of the map group's registers.
struct MapGroup {
  std::vector<DriveMap> epochs;              // from `first` to the newest; none if that is later
  bool settled = true;                       // the newest of all
  std::map<DriveId, uint32_t> incarnations;  // of the drives in the configuration
  RegisterValue history;                     // as it was read, with the first epoch of all
  size_t in_history = 0;                     // so many of `epochs` are from there
  std::optional<KeptLayout> layout;          // null: none is kept, or none that is understood
};

// From the epoch `first` on; incarnations and layout only with the first of all. ENOTSUP: the
// newest epoch names features that this version does not know, and that must be understood.
Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config,
                              Epoch first = 1);

// Has the history of the map (cluster/map/history.h) hold all epochs, if some more than a reader
// takes in one round trip are not in it. The maker of an epoch calls it, and so does a repair. A
// call that fails leaves opening slower, and nothing else.
Status KeepHistory(RegisterStore& registers, const ClusterConfig& config);

// The drives among these that were found to be retired, and in which epoch.
Result<std::map<DriveId, Epoch>> ReadRetirements(RegisterStore& registers,
                                                 const std::set<DriveId>& drives);

}  // namespace pinstripe
