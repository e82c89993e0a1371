// The growth register: how often a directory has come to another stage of growing, in the whole
// cluster (docs/format.md, "Directories that grow"). Whoever reads the names of all groups one
// after the other has missed none if this has not changed since.

#pragma once

#include <cstdint>

#include "base/status.h"
#include "cluster/cluster.h"

namespace pinstripe {

Result<uint64_t> FindGrowth(Cluster& cluster);
// One more; safe from power loss.
Status CountGrowth(Cluster& cluster);

}  // namespace pinstripe
