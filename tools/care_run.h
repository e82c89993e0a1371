// What a cluster needs again and again, done by itself: `pinstripe care`, from a timer on as many
// hosts as one likes. One at a time does it.

#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/due.h"
#include "upkeep/events.h"

namespace pinstripe {

struct CareRequest {
  CareIntervals intervals;
  // What a drive held that has been away for so long goes to others; null: it is waited for.
  std::optional<Duration> replace_after = std::chrono::hours(24);
  uint64_t bytes_per_second = 0;  // of repairs and scrubs; 0: as fast as it goes
  bool dry_run = false;           // only says what is due
};

// One thing that care does.
struct CareStep {
  std::string work;   // the command
  std::string about;  // "without drive 3"
  int exit_code = 0;  // of that command
};

struct CareOutcome {
  std::vector<CareStep> steps;     // that were done; in a dry run, that are due
  std::vector<std::string> notes;  // what was not done, and why
  bool stopped = false;            // by somebody, in the last of them
  bool is_short = false;           // something is due that could not be done
};

// A drive that cannot be reached, or has failed, as the events tell; nothing of one that is well.
struct DriveAway {
  std::optional<int64_t> told;   // since when, by whoever was first, and by any clock
  std::optional<int64_t> noted;  // since when care on this host knows, by its own clock

  // Null: it does not count yet.
  std::optional<int64_t> Since() const;
};

// Drives that are not well: what is wrong, or nothing of those that cannot be reached.
using DriveTroubles = std::map<DriveId, std::string>;
DriveTroubles FindDriveTroubles(Cluster& cluster);

// `events` are in the order in which they were told, so clocks matter as little as can be. Drives
// whose failure care has noted, and that are well again, are in `well_again`.
std::map<DriveId, DriveAway> DrivesAwayBy(const std::vector<Event>& events,
                                          const DriveTroubles& troubles, const std::string& host,
                                          int64_t now, std::set<DriveId>& well_again);

// The drives that are away at this moment, and since when that counts: null means from now on.
std::map<DriveId, std::optional<int64_t>> FindDrivesAway(Cluster& cluster);

// EBUSY: somebody else cares for the cluster at this moment. Who loses that meanwhile ends, and
// says so among the notes.
Result<CareOutcome> RunCare(Cluster& cluster, const DriveFactory& factory,
                            const CareRequest& request);

int ExitCodeOf(const CareOutcome& outcome);
std::string CareText(const CareRequest& request, const CareOutcome& outcome);
std::string CareJson(const CareRequest& request, const CareOutcome& outcome);

}  // namespace pinstripe
