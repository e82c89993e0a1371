// Rebuilding a drive: an empty drive takes the place of one that is lost. And sweeping: replicas of
// registers that were away catch up. Shards are not looked at here: one that is missing answers
// ENOENT, and its reader or a repair makes it from the others.
//
// A drive may not come back empty by itself. It would have forgotten what it had promised and
// accepted, and registers would lose what was chosen with its vote. docs/format.md, "Rebuilding a
// drive", says what is done instead, and why that is safe.

#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/membership/group_work.h"
#include "cluster/registers/store.h"

namespace pinstripe {

struct RebuildOptions : SweepOptions {
  bool force = false;  // use a drive that holds records of others, too; they stay
  // Called when somebody else has begun who may have died, and is waited for: who it is.
  std::function<void(const Status& who)> waiting;

  // For tests of the tests.
  Duration forgetting = kForgetting;
  bool sweep = true;
  bool claim = true;         // say that it is worked on, and leave it to others who do (DriveClaim)
  bool take_numbers = true;  // false: what must not be done, two devices may get one incarnation
  RegisterStore* registers = nullptr;  // null: those of the cluster
};

struct RebuildReport {
  uint32_t incarnation = 0;  // that the drive is in now
  SweepReport registers;     // that it has a replica of
};

// Brings the drive that answers at the address of `drive` in, in the place of a lost one: restores
// its part of all registers, which takes kForgetting and as long as reading them all does, and puts
// it in service. Its shards are missing then. `cluster`, which goes on being used meanwhile, has
// met the drive in service when this returns, if that took no longer than drive_timeout.
//
// A caller that was cut short calls it again, and it goes on where it was. Two at once do no harm:
// of one device both bring it in, or one is told EEXIST; of two devices one is accepted, and the
// other one is an old drive. The lost drive must not be running any more, at whatever address: a
// process that still reaches it would count it.
//
//   EINVAL  there is no such drive in the cluster, or it is another drive: another one of this
//           cluster, of another cluster, or an old one that was replaced already (erase it)
//   EEXIST  it is in service, so that there is nothing to rebuild; or it is not empty
//   EBUSY   somebody else works on it; the message says who
//   EBADMSG its superblock is damaged (erase it)
//   ENOTSUP registers have one replica only, so that what the lost drive held is nowhere else
//   EIO     it does not answer, or too few of the other drives do; others as of the drive
Result<RebuildReport> RebuildDrive(Cluster& cluster, const DriveFactory& factory, DriveId drive,
                                   const RebuildOptions& options = {});

// Sweeps the registers of all groups. Fails as RegisterStore::Sweep does.
Result<SweepReport> SweepRegisters(Cluster& cluster, const SweepOptions& options = {});

}  // namespace pinstripe
