// Newcomer: a drive that is about to be used by the cluster, and is not yet: one that takes the
// place of a lost one, or one that is added. It has a connection of its own, as the cluster's own
// refuses it until it has a superblock that says what it is.
//
// Used by one thread.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/map/drive_map.h"
#include "drive/drive.h"

namespace pinstripe {

class Newcomer {
 public:
  // `command`: what brings it in, for messages: "rebuild". `cluster` outlives it.
  Newcomer(Cluster& cluster, DriveId id, std::string command);
  ~Newcomer();

  // To whatever device answers at the drive's address, until Expect(); for kEngineDrive to the
  // engine that the configuration names. EINVAL: it lists no such one.
  Status Connect(const DriveFactory& factory);
  Drive& drive() { return *drive_; }

  // From now on any other device is refused than the one with this superblock.
  void Expect(const Superblock& block);

  // The identity that it claims.
  Result<Record> ReadItsSuperblock();

  // EIO "must answer"; the reason is `why`.
  Status DoesNotAnswer(const Status& why) const;

  // EEXIST when it holds something: records of this cluster or, unless `force`, any others.
  Status RefuseWhatIsNotEmpty(bool force);

  // EEXIST when its cluster version is a later one than that of the newest epoch.
  Status RefuseLaterVersion();

  // Durably. EEXIST: it is not as `expected` any more.
  Status WriteSuperblock(const Superblock& block, const Expected& expected);

  // The cluster's own connection to it was refused until now.
  void WaitUntilMet();

 private:
  class Admission;
  template <typename R>
  R Ask(const std::function<void(Drive&, Time, std::function<void(R)>)>& operation);

  Cluster& cluster_;
  Runtime& runtime_;
  const ClusterConfig& config_;
  const DriveId id_;
  const std::string command_;
  const std::shared_ptr<Admission> admission_;
  std::unique_ptr<Drive> drive_;
};

}  // namespace pinstripe
