// Since when drives are away, as `pinstripe care` on this host counts it: by its own clock, from
// when it saw that first (upkeep/care_notes.h). Events say, by their order alone, which drives were
// back meanwhile.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/care_notes.h"
#include "upkeep/events.h"

namespace pinstripe {

// A drive that cannot be reached, or has failed.
struct DriveAway {
  std::optional<int64_t> since;  // null: it counts from now on
  bool was_back = false;         // and no care has noted yet that it is away again
  bool is_moved = false;         // what it held was written elsewhere since it is away

  friend bool operator==(const DriveAway&, const DriveAway&) = default;
};

// Drives that are not well: what is wrong, or nothing of those that cannot be reached.
using DriveTroubles = std::map<DriveId, std::string>;
DriveTroubles FindDriveTroubles(Cluster& cluster);

// `events` are in the order in which they were told. Drives whose failure care has noted, and that
// are well again, are in `well_again`.
std::map<DriveId, DriveAway> DrivesAwayBy(const std::vector<Event>& events, const AwayNotes& notes,
                                          const DriveTroubles& troubles, const std::string& host,
                                          int64_t now, std::set<DriveId>& well_again);

// The drives that are away at this moment. Where nothing can be read, none counts yet.
std::map<DriveId, DriveAway> FindDrivesAway(Cluster& cluster);

// Notes which drives are away by now, and which are back.
void NoteDrivesAway(Cluster& cluster);

}  // namespace pinstripe
