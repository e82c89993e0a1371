// Changing the drive map of a cluster: drives are added, drained, or get another weight. Each of
// that is a new epoch. Here the registers move to their new homes; shards stay where the block maps
// say until a repair moves them.
//
// A register's home cannot simply be another drive. Decisions with the vote of the old one would be
// lost to those who ask the new one. docs/format.md, "Changing the drive map", says what is done
// instead, and why that is safe.
//
// Everything here may be cut short at any point and done again, by anybody, and beside clients.

#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/names_place.h"
#include "cluster/map/placement.h"
#include "cluster/membership/group_work.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// The map that follows `map`, in which one drive is `wanted`: a new one, or one of other weight,
// state or domain; its pull is found out, for such stripes. EINVAL: it would be no map that can be
// used.
Result<DriveMap> NextEpoch(const DriveMap& map, const MappedDrive& wanted, Geometry stripes);

// How the homes of registers change from one epoch to the next.
struct HomeChanges {
  std::vector<uint32_t> groups;  // those in which a home changes, ascending
  std::set<DriveId> gaining;     // drives that become homes
  std::set<DriveId> losing;      // that are none any more
};
// EINVAL: in some group more than one home would change, or there is one replica only.
Result<HomeChanges> CompareHomes(Placement& before, Placement& after);

// Drives that are drained, and homes of something all the same, with such stripes: where failure
// domains are too few for the other drives, the rule for these goes before.
std::set<DriveId> DrainingHomes(Placement& placement, Geometry stripes);

struct EpochChangeOptions : SweepOptions {
  // For tests of the tests.
  Duration forgetting = kForgetting;
  bool restore = true;
  RegisterStore* registers = nullptr;  // null: those of the cluster
};

struct EpochChangeReport {
  SweepReport registers;          // that were given to new homes
  std::set<DriveId> not_cleared;  // drives that still hold what they held as homes before
};

// Makes the drives as given: an epoch for each that is not so already, in this order, once the
// epoch before it is settled; and settles it. A drive that the map does not have is brought in: it
// is empty, and answers where the configuration says. All of it is judged before any of it is done:
// the drives that would be left, each step on the way there, and who has to answer.
//
//   EINVAL  an epoch would be none that can be used; the message says why
//   EEXIST  a new drive is not empty
//   EBUSY   somebody else changes the map at this moment
//   ENOTSUP a drive keeps records of another cluster, whose clients would be shut out
//   EIO     too few drives answer, or one of those that are to be new homes does not
// Nothing but PlaceNames() makes an epoch while names are being moved: EBUSY.
Result<EpochChangeReport> ChangeDrives(Cluster& cluster, const DriveFactory& factory,
                                       const std::vector<MappedDrive>& drives,
                                       const EpochChangeOptions& options = {});

// Whether ChangeDrives() would begin, as things are now. Changes nothing.
Status JudgeDrives(Cluster& cluster, const DriveFactory& factory,
                   const std::vector<MappedDrive>& drives);

// Makes an epoch of the same drives, once the epoch before it is settled. A process that has not
// heard of it decides nothing any more with drives that have. Removed registers of reusable names
// can be erased then (RegisterStore::Erase). Failures as of ChangeDrives.
Result<EpochChangeReport> RenewEpoch(Cluster& cluster, const EpochChangeOptions& options = {});

// Makes an epoch whose map names a feature that this version knows, without a section of its own;
// nothing, where the map names it already. Then a majority of the homes of each register refuses
// everybody who has not heard of it. Failures as of RenewEpoch.
Status UseFeature(Cluster& cluster, std::string_view name, const EpochChangeOptions& options = {});
// The same for several, in one epoch.
Status UseFeatures(Cluster& cluster, std::span<const Feature> features,
                   const EpochChangeOptions& options = {});

// Makes epoch `from` + 1, which says that names are kept there, and settles it: nobody who knows of
// no later epoch than the one before decides anything about names any more. The registers
// themselves are moved by cluster/membership/name_move.h. Failures as of RenewEpoch; EBUSY, too,
// where `from` is not the newest epoch any more: somebody else may have moved names meanwhile.
Status PlaceNames(Cluster& cluster, Epoch from, const NamesPlace& place,
                  const EpochChangeOptions& options = {});

// Settles the newest epoch: registers are given to their new homes, which takes kForgetting and as
// long as reading them does, and these have a say from then on. Nothing happens where they have it.
Result<SweepReport> SettleEpoch(Cluster& cluster, const EpochChangeOptions& options = {});

// Removes from drives what they held as homes of registers in earlier epochs. The answer: drives
// that could not be cleared, because they are away. The newest epoch is settled.
Result<std::set<DriveId>> ClearFormerHomes(Cluster& cluster,
                                           const EpochChangeOptions& options = {});

// Removes from `drive`, which is drive `id`, the registers of all groups of which it is not a home
// in `placement`. It does so under the cluster version of that epoch: when the drive becomes a home
// again it has a later one. EREMCHG: it has by now.
Status ClearRegisters(Cluster& cluster, DriveId id, Drive& drive, Placement& placement);

}  // namespace pinstripe
