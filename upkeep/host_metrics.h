// What gateways and mounts tell Prometheus of the cluster as they use it: memory and caches,
// stripes, drives, and what waits to be mended (docs/reference/metrics.md, "Gateways and mounts").

#pragma once

#include <string_view>

#include "cluster/cluster.h"
#include "fs/file_system.h"
#include "metrics/page.h"

namespace pinstripe {

// Memory for contents of files, and caches: "PREFIXmemory_limit_bytes" and so on.
void AddMemoryMetrics(std::string_view prefix, const MemoryCounters& memory, MetricsPage& page);

void AddHostMetrics(Cluster& cluster, FileSystem& file_system, MetricsPage& page);

}  // namespace pinstripe
