#include "cluster/membership/retirement.h"

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/try.h"
#include "cluster/map/placement.h"
#include "cluster/membership/drive_contents.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/registers/store.h"

namespace pinstripe {
namespace {

Status CheckIsEmpty(Cluster& cluster, DriveId id) {
  if (cluster.FindDrive(id) == nullptr) return {};  // it was taken away
  const DriveContents contents = TRY(ListDrive(cluster, id));
  if (contents.shards == 0 && contents.registers == 0) return {};
  return Fail(ENOTEMPTY, "it holds {} shards and {} replicas of names and inodes", contents.shards,
              contents.registers);
}

}  // namespace

Status RetireDrive(Cluster& cluster, DriveId id, Epoch since) {
  TRY(cluster.Refresh());
  if (cluster.IsRetired(id)) return {};
  if (!cluster.WasDrainingSince(id, since)) {
    return Fail(EINVAL, "it was not drained all the time since epoch {} of the drive map", since);
  }
  if (!cluster.IsSettled()) {
    return Fail(EBUSY,
                "a change of the drive map is not complete, which `pinstripe rebalance` finishes");
  }
  if (std::ranges::count(cluster.map_drives(), id) > 0) {
    return Fail(EPERM, "it keeps a part of the drive map");
  }
  const std::shared_ptr<Placement> placement = cluster.NewestPlacement();
  if (DrainingHomes(*placement, cluster.config().layout.geometry()).contains(id)) {
    return Fail(EPERM,
                "it has to keep a part of everything, as the other drives are in too few failure "
                "domains");
  }
  TRY(CheckIsEmpty(cluster, id));
  const RegisterName name{kMapGroup, RetirementKey(id)};
  const RegisterValue seen = TRY(cluster.registers().Read(name));
  // A faster process has found the same, or something newer.
  const ChangeOutcome outcome =
      cluster.registers().Change(name, seen, Retirement{since}.Encode(), Durability::kWriteThrough);
  TRY(outcome.why);
  if (outcome.applied()) {
    Log(LogLevel::kInfo, "drive retired",
        {{"cluster", cluster.config().name}, {"drive", id}, {"epoch", since}});
  }
  return cluster.Refresh();
}

}  // namespace pinstripe
