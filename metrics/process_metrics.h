// What every program of ours tells of itself: its version, since when it runs, and what it takes of
// the machine. The names are those that Prometheus' own libraries use.

#pragma once

#include "metrics/page.h"

namespace pinstripe {

void AddProcessMetrics(MetricsPage& page);

}  // namespace pinstripe
