// The identities of drives, by their own word. A drive proves with its superblock that it is the
// one the configuration means: swapped cables, reordered addresses, an empty replacement or another
// cluster's drive become an error instead of corruption.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "drive/drive.h"

namespace pinstripe {

// Whether `record`, or the failure to get it, is the superblock of this drive, in service or not.
// ENOENT: there is none; EINVAL: it is another drive's; EBADMSG: it cannot be read; other failures
// are passed on.
Result<Superblock> ReadSuperblock(const Result<Record>& record, std::string_view cluster_name,
                                  DriveId drive);

// How the reason begins of a drive that has none.
inline constexpr std::string_view kNoSuperblock = "it has no superblock of the cluster";

// Whether the drive may be used. EBUSY: it is being rebuilt; ESTALE: it is an older one than
// `incarnation`, plugged in again after it was replaced.
Status CheckInService(const Superblock& block, uint32_t incarnation);

// The name of the cluster whose key this is; null: of none, as far as its first bytes tell.
std::optional<std::string> ClusterOfKey(std::string_view key);

// The lowest key that is one: where a look at whose records a drive holds begins.
inline constexpr std::string_view kLowestKey("\0", 1);

// That instead of this cluster's it holds the records of another one.
Status HoldsAnotherCluster(std::string_view other, std::string_view cluster_name);

// The identities of all drives of a cluster. Until ExpectUuid() any cluster of the right name will
// do. A drive that was met in service, or expected, in some incarnation is refused in any older
// one. Thread-safe; shared with the drives, which report to it after every connect.
class DriveIdentities {
 public:
  explicit DriveIdentities(std::string cluster_name) : cluster_name_(std::move(cluster_name)) {}

  // Judges what a drive answered, and remembers the verdict unless it is that the drive is away.
  Status Judge(DriveId drive, const Result<Record>& record);

  // The last verdict on a drive; null when it never answered.
  std::optional<Result<Superblock>> VerdictOn(DriveId drive) const;

  // Drives of other clusters are refused from now on. Those of which the last verdict was another
  // one: their users have to connect to them anew.
  std::vector<DriveId> ExpectUuid(std::string uuid);

  // Drives older than this are refused from now on. False: the last verdict was that such a one may
  // be used, so its user has to connect to it anew.
  bool ExpectIncarnation(DriveId drive, uint32_t incarnation);

 private:
  const std::string cluster_name_;
  mutable Mutex mutex_;
  std::string uuid_ GUARDED_BY(mutex_);                          // empty: not known yet
  std::map<DriveId, uint32_t> incarnations_ GUARDED_BY(mutex_);  // the highest known
  std::map<DriveId, Result<Superblock>> verdicts_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
