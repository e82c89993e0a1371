// What a daemon tells Prometheus of its drives (docs/reference/metrics.md, "A drive").

#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/kinetic_service.h"
#include "daemon/server.h"

namespace pinstripe {

struct MeasuredDrive {
  KineticService* service = nullptr;
  std::string path;
  Status lost;  // why it cannot be served; success: it is
};

// As one page. Called on any thread while all of them are there.
std::string DriveMetricsText(const std::vector<MeasuredDrive>& drives, Server& server);

}  // namespace pinstripe
