// What a cluster needs again and again, done by itself: `pinstripe care`, from a timer on as many
// hosts as one likes. One at a time does it.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/due.h"

namespace pinstripe {

struct CareRequest {
  CareIntervals intervals;
  // What a drive held that has been away for so long goes to others; null: it is waited for.
  std::optional<Duration> replace_after = std::chrono::hours(24);
  uint64_t bytes_per_second = 0;  // of repairs and scrubs; 0: as fast as it goes
  // Small files that have not changed for so long are packed, as often as all is checked. Null:
  // never.
  std::optional<Duration> pack_older_than;
  bool joins_scrubs = false;  // reads a part of a scrub that another host is at
  bool dry_run = false;       // only says what is due
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
  bool is_short = false;           // something should have been done by now, and could not be
};

// While somebody else cares for the cluster, or is at work on it, nothing is begun, but for what
// CareRequest::joins_scrubs says. Who loses the right to care meanwhile ends, and says so among the
// notes.
Result<CareOutcome> RunCare(Cluster& cluster, const DriveFactory& factory,
                            const CareRequest& request);

int ExitCodeOf(const CareOutcome& outcome);
std::string CareText(const CareRequest& request, const CareOutcome& outcome);
std::string CareJson(const CareRequest& request, const CareOutcome& outcome);

}  // namespace pinstripe
