#include "cluster/beside.h"

#include "cluster/map/features.h"
#include "cluster/map/placement.h"

namespace pinstripe {

std::optional<StripeBeside> FindBeside(const Cluster& cluster, uint64_t object) {
  const DriveMap& map = cluster.map();
  const int parity = (map.replicas - 1) / 2;
  if (AreNamesOnEngine(cluster)) return std::nullopt;
  if (parity == 0 || !UsesFeature(map.features, kContentsBesideFeature)) return std::nullopt;
  return StripeBeside{{parity + 1, parity}, BlockAmongRegisters(map, object)};
}

bool MayHaveGaps(const Cluster& cluster) {
  return UsesFeature(cluster.map().features, kGapsFeature);
}

bool AreNamesOnEngine(const Cluster& cluster) {
  return cluster.NewestPlacement()->names().NamesEngine();
}

}  // namespace pinstripe
