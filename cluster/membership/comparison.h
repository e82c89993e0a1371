// Comparison: drives that may have forgotten registers get their say back. Their registers are
// compared with those of the others, and brought up to date. If the others are too few, because
// most of them lost their power as well, all registers of the group are decided anew with what is
// left of them. docs/format.md, "Drives that have forgotten", says why that is safe.
//
// A cluster that is open does so by itself, in the background (Cluster::OpenOptions).

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/group_work.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// Claims of others, as they were come across: for how long they have stood still.
using WatchedClaims = std::map<DriveId, std::unique_ptr<DriveClaim>>;

struct ComparisonOptions : SweepOptions {
  // How long drives that are away are waited for, where those that answer have a majority only with
  // those that may have forgotten something.
  Duration patience = std::chrono::seconds(60);
  bool claim = true;  // leave drives to others that are at it (cluster/membership/drive_claim.h)
  // The memory of a caller that calls again and again. With it the claims of processes that have
  // died are taken over, which no single call waits for.
  WatchedClaims* watched = nullptr;

  // For tests of the tests.
  Duration forgetting = kForgetting;
  bool compare = true;        // false: what must not be done, gives them a say as they are
  bool leave_others = false;  // true: what must not be done, counts drives that took no part
};

struct ComparisonReport {
  std::set<DriveId> compared;  // that have a say again
  std::set<DriveId> others;    // somebody else is at
  std::set<DriveId> left_out;  // away, and to be compared when they come back
  SweepReport registers;
};

// Compares all drives that answer and have no say. A caller that was cut short calls it again; two
// at once do no harm. EIO: too few drives answer. EINTR: cancelled.
Result<ComparisonReport> CompareDrives(Cluster& cluster, const ComparisonOptions& options = {});

}  // namespace pinstripe
