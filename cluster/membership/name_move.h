// Moving the names of a cluster, which are its registers, from its drives to an engine or back,
// while they are read. docs/format.md, "Names on an engine", says why nothing is lost by it.
//
//   1. An epoch says that names are being moved. Changes wait from now on; nobody who knows of no
//      later epoch than the one before can change anything.
//   2. Every register is copied, what was removed included, and then compared with its copy.
//   3. An epoch says that names are kept in the other place. Nobody who knows of no later epoch
//      than the one before can read there any more; then changes go on.
//   4. What was left in the former place is removed.
//
// Cut short at any point it can be begun again, by anybody, in either direction: towards where they
// came from it is taken back. Two at once do the same work twice, and no harm.

#pragma once

#include <cstdint>
#include <set>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/membership/epoch_change.h"

namespace pinstripe {

struct NameMoveReport {
  bool was_there = false;         // and nothing was done
  uint64_t registers = 0;         // that were copied, or found there already
  std::set<DriveId> not_cleared;  // drives that were away, and still hold what they held
};

// To the engine that the configuration names.
//   EINVAL  it names none, or another one than the cluster uses
//   EEXIST  the engine holds something of another cluster
//   EBUSY   somebody else changes the map at this moment
//   EIO     the engine, or too few drives, answer
Result<NameMoveReport> MoveNamesToEngine(Cluster& cluster, const DriveFactory& factory,
                                         const EpochChangeOptions& options = {});

// All drives that are homes of names have to answer. Failures as above.
Result<NameMoveReport> MoveNamesToDrives(Cluster& cluster, const EpochChangeOptions& options = {});

}  // namespace pinstripe
