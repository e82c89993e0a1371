// Stripes beside the registers of an object: each shard on the drive of one replica, so that a
// change of a register and the shards travel in the same messages (RegisterStore::ChangeBound()).

#pragma once

#include <cstdint>
#include <optional>

#include "cluster/cluster.h"
#include "erasure/codec.h"

namespace pinstripe {

struct StripeBeside {
  Geometry geometry;   // as many shards as there are replicas; it survives what the registers do
  uint64_t block = 0;  // the first of the object that lies there (cluster/map/placement.h)
};

// Null: the cluster has no such stripes (kContentsBesideFeature), or too few replicas for them.
std::optional<StripeBeside> FindBeside(const Cluster& cluster, uint64_t object);

// Whether a stripe may leave out what is zeros of its block (kGapsFeature).
bool MayHaveGaps(const Cluster& cluster);

// Whether inodes are on an engine, which has no room to spare (cluster/map/names_place.h).
bool AreNamesOnEngine(const Cluster& cluster);

}  // namespace pinstripe
