// Retiring a drive: when everything has left a drained drive it is said so on the other drives, for
// good. From then on nobody asks for it any more, and it may be taken out of the configuration, and
// away. Until then a drained drive that the configuration lacks is missing: what it held may be on
// no other.
//
// Whether a drain came to its end does not depend on the process that began it: every process that
// finds that it has writes it down. docs/format.md, "Retired drives".

#pragma once

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

// Says that a drive is retired. The caller has looked at all block maps, beginning when `since` was
// the newest epoch, and found none that names a place on it. A drive that is in the configuration
// must answer, and hold nothing. Nothing happens when it is retired already.
//
//   EINVAL     it was not drained in `since`, or not all the time from then on
//   EBUSY      the change of the drive map is not complete: names and inodes have not all moved
//   EPERM      it keeps a part of the drive map, or placement gives it a part of everything, though
//              it is drained, as failure domains are too few
//   ENOTEMPTY  it holds something
//   others     it does not answer, or too few of those that keep the drive map do
Status RetireDrive(Cluster& cluster, DriveId drive, Epoch since);

}  // namespace pinstripe
