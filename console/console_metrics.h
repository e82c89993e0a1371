// What the console tells Prometheus of itself (docs/reference/metrics.md, "The console"): who asks
// it, how its looks at the cluster go, and what they cost the drives.

#pragma once

#include <string>

#include "console/api.h"
#include "console/http_server.h"

namespace pinstripe {

std::string ConsoleMetricsText(const ApiParts& parts, const Api& api, const HttpServer& server);

}  // namespace pinstripe
