// What gateways and mounts tell Prometheus of the cluster as they use it: memory and caches,
// stripes, drives, and what waits to be mended (docs/reference/metrics.md, "Gateways and mounts").

#pragma once

#include "cluster/cluster.h"
#include "fs/file_system.h"
#include "metrics/page.h"

namespace pinstripe {

void AddHostMetrics(Cluster& cluster, FileSystem& file_system, MetricsPage& page);

}  // namespace pinstripe
