// Whether drives may be stopped, as for work on their machine: what could not be read or written
// without them, by the drive map and what the drives say now.

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"
#include "upkeep/margin.h"
#include "upkeep/survey.h"

namespace pinstripe {

struct StopAnswer {
  enum class Verdict : uint8_t { kYes, kNo, kUnknown };
  Verdict verdict = Verdict::kUnknown;
  std::vector<DriveId> drives;     // that the question is about, ascending
  std::vector<std::string> risks;  // why not, or why it is not known
  std::vector<std::string> notes;  // what is so without them, and no reason against it
  Margin now;
  Margin then;  // without them
};

// `what`: ids of drives, and failure domains, which are mostly hosts. EINVAL: there is no such
// thing. Only for a cluster that is open.
Result<StopAnswer> MayStop(Cluster& cluster, const Survey& survey,
                           const std::vector<std::string>& what);

// 0 yes, 1 no, 2 it is not known.
int ExitCodeOf(const StopAnswer& answer);
std::string StopText(const StopAnswer& answer, const Survey& survey);
std::string StopJson(const StopAnswer& answer);

}  // namespace pinstripe
