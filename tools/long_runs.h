// What commands and `pinstripe care` do with the whole cluster, each as a LongWork that others see.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/features.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/name_move.h"
#include "tools/long_work.h"
#include "tools/repair_run.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/packer.h"
#include "upkeep/spreading.h"

namespace pinstripe {

inline constexpr std::string_view kCheckGoesOn = "Nothing was changed; run it again.";
inline constexpr std::string_view kCollectionGoesOn =
    "What was removed is gone, and all else is as it was; run it again to go on.";
inline constexpr std::string_view kPackingGoesOn =
    "What was packed is so, and all else is as it was; run it again to go on.";
inline constexpr std::string_view kSpreadingGoesOn =
    "The directory can be used as before; run it again to go on.";
inline constexpr std::string_view kMoveGoesOn =
    "Names can be read, and changes wait until they are moved: run it again to go on, or with "
    "where "
    "they came from to take it back.";
inline constexpr std::string_view kRepairGoesOn =
    "What was written stays, and nothing is half done; run it again to go on.";

inline constexpr std::string_view kUpgradeGoesOn =
    "Files can be used as before; run it again until it has ended.";

// By its path from the root on, for what works on one. ENOENT, ENOTDIR.
Result<InodeId> FindDirectory(Cluster& cluster, const std::string& path);

// Null: somebody has stopped it, and LongWork::Stopped() is next. What they found is noted for
// `pinstripe status`.
std::optional<CheckReport> RunCheck(LongWork& work, Cluster& cluster, bool names_only,
                                    CheckState* state = nullptr);
std::optional<CollectReport> RunCollect(LongWork& work, Cluster& cluster,
                                        Collector::Options options);

struct PackOutcome {
  PackReport report;  // has happened, whatever else
  Status failure;
  bool stopped = false;  // by somebody: LongWork::Stopped() is next
  bool is_free = true;   // what was packed does not lie where it was any more
};
PackOutcome RunPack(LongWork& work, Cluster& cluster, Packer::Options options, InodeId directory,
                    bool wait);

// Not `ended`: somebody has stopped it.
Result<SpreadReport> RunSpread(LongWork& work, Cluster& cluster, InodeId directory);

// In an epoch of the drive map. Without features it ends what was interrupted before. Ends with
// EINTR when somebody has stopped it, or `is_lost` says so.
Status RunUpgrade(LongWork& work, Cluster& cluster, std::span<const Feature> features,
                  const std::function<bool()>& is_lost);

// `back`: to the drives. Ends with EINTR when somebody has stopped it, or taken over the claim.
Result<NameMoveReport> RunNameMove(LongWork& work, Cluster& cluster, const DriveFactory& factory,
                                   bool back, const DriveClaim& claim);

// As RunRepair() below it.
Result<RepairOutcome> RunRepair(LongWork& work, Cluster& cluster, const DriveFactory& factory,
                                const RepairRequest& request);

}  // namespace pinstripe
