// Whether what drives hold that are to be drained fits on the others, by what all of them say.

#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

struct DrainRoom {
  uint64_t held_bytes = 0;  // on the drives that are drained by then
  uint64_t free_bytes = 0;  // on those that answer of the others
};

// The room when `drained` are drained, too. A drive that does not answer is guessed to hold as much
// for its weight as those that do.
DrainRoom RoomWithout(const DriveMap& map, const std::vector<DriveStatus>& drives,
                      const std::set<DriveId>& drained);

// ENOSPC: it does not fit.
Status CheckRoomWithout(const DriveMap& map, const std::vector<DriveStatus>& drives,
                        const std::set<DriveId>& drained);

}  // namespace pinstripe
