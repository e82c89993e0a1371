// The commands that repair: repair, scrub, verify, rebuild, drain, expand and rebalance.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/membership/drive_contents.h"
#include "cluster/membership/epoch_change.h"
#include "tools/state_option.h"
#include "upkeep/events.h"
#include "upkeep/repairer.h"
#include "upkeep/tree_mender.h"
#include "upkeep/work.h"

namespace pinstripe {

// The change of the drive map before the repair, if any.
enum class MapChange { kNone, kDrain, kExpand, kRebalance };

struct RepairRequest {
  MapChange change = MapChange::kNone;
  std::vector<DriveId> drives;     // that it is about; to expand: none means all that are new
  bool wants_all_at_home = false;  // says so with its exit code
  std::optional<DriveId> rebuild;  // a drive that was replaced by an empty one
  bool force = false;  // though it holds records of others; though what is moved does not fit
  std::vector<DriveId> without;
  uint64_t bytes_per_second = 0;
  bool scrub = false;
  // Of a scrub:
  bool anew = false;                    // does not go on with what others have read
  bool only_join = false;               // begins none
  std::atomic<bool>* at_end = nullptr;  // set when all was read
  bool dry_run = false;
  std::string state;  // directory in which the look at everything keeps how far it is; empty: none
};

struct RepairOutcome {
  SweepReport registers;            // in which names and inodes are kept
  bool compared_registers = false;  // all of them
  RepairReport files;
  // Others read the rest of a scrub, and one of them looks at everything at its end. `files` is
  // what was found and done here, without a check.
  bool others_go_on = false;
  int64_t scrub_began = 0;        // of a scrub, by the clock of who began it; 0: of no other
  TreeMendReport tree;            // of `repair` and `scrub`
  Epoch epoch = 0;                // if the drive map was to be changed
  std::set<DriveId> not_cleared;  // former homes of registers, that are not retired
  // About the drives that were to become empty:
  std::set<DriveId> retired;                   // may go
  std::map<DriveId, DriveContents> drained;    // what is left on the others
  std::vector<DriveId> drained_not_looked_at;  // as they are away
  // Why a change of the drive map that had to be finished could not be.
  Status unsettled;
};

struct RepairTold {
  std::function<void(std::string_view phase, double part, uint64_t bytes)> progress;
  SayLine say;                  // what somebody may want to know meanwhile
  RunningWork* work = nullptr;  // what others ask of it is done; null: nobody sees it
  EventLog* events = nullptr;   // what it finds and changes is told; null: to nobody
};

// EBUSY: somebody else is at work on a drive; the message says who. ECANCELED: somebody has stopped
// it. Other failures as of RebuildDrive, ChangeDrives and SweepRegisters.
Result<RepairOutcome> RunRepair(Cluster& cluster, const DriveFactory& factory,
                                const RepairRequest& request, const RepairTold& told);

// As others see it.
RunningWorkOptions WorkOf(const std::string& command, const RepairRequest& request);

int ExitCodeOf(const RepairRequest& request, const RepairOutcome& outcome);
std::string RepairText(const RepairRequest& request, const RepairOutcome& outcome,
                       const std::string& config_file);
std::string RepairJson(const RepairRequest& request, const RepairOutcome& outcome);

}  // namespace pinstripe
