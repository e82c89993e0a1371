#include "cluster/beside.h"

#include "cluster/map/features.h"
#include "cluster/map/placement.h"

namespace pinstripe {
namespace {

// Not before everybody has heard of it: until then it is what the epoch before says.
bool MayUse(const Cluster& cluster, std::string_view feature) {
  if (!UsesFeature(cluster.map().features, feature)) return false;
  if (cluster.IsSettled()) return true;
  const std::shared_ptr<Placement> former = cluster.FormerPlacement();
  return former == nullptr || UsesFeature(former->map().features, feature);
}

}  // namespace

std::optional<StripeBeside> FindBeside(const Cluster& cluster, uint64_t object) {
  const DriveMap& map = cluster.map();
  const int parity = (map.replicas - 1) / 2;
  if (AreNamesOnEngine(cluster)) return std::nullopt;
  if (parity == 0 || !MayUse(cluster, kContentsBesideFeature)) return std::nullopt;
  return StripeBeside{{parity + 1, parity}, BlockAmongRegisters(map, object)};
}

bool MayHaveGaps(const Cluster& cluster) { return MayUse(cluster, kGapsFeature); }

bool AreNamesOnEngine(const Cluster& cluster) {
  return cluster.NewestPlacement()->names().NamesEngine();
}

}  // namespace pinstripe
