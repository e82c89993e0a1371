// Pulls: with what placement draws drives, so that each gets its part by its weight.
//
// A drive holds one shard of a stripe at most. So drawing by weight alone gives small drives more
// than their part and large ones less: the heavier ones are often in a stripe already (Yates and
// Grundy 1953 on sampling without replacement). And placement groups are few enough for luck to
// count. So the pulls are found by trying: what each drive gets of all groups of this map is
// counted, and its pull moved towards what it should get, a few times. They are for stripes of one
// width, that of the cluster's layout; those of others come close.
//
// The impossible is not reached: a drive that weighs more than all others of a stripe together gets
// a shard of each, and a failure domain no more than it may.

#pragma once

#include <cstddef>

#include "cluster/map/drive_map.h"

namespace pinstripe {

// For stripes of `shards`, at most `per_domain` of them in one failure domain. With so many drives
// that it would take minutes (more than 256), where the width of stripes counts for little, maps
// stay as they are.
void BalanceDrives(DriveMap& map, size_t shards, size_t per_domain);
// The others keep theirs, so that nothing moves between them.
void BalanceDrive(DriveMap& map, DriveId id, size_t shards, size_t per_domain);

}  // namespace pinstripe
