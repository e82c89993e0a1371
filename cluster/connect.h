// Connect: from a configuration file to an open cluster, as every program does it first.
//
//   RealRuntime runtime;
//   auto connected = TRY(Connect(runtime, "/etc/pinstripe/cluster.toml"));
//   auto fs = TRY(FileSystem::Open(connected->cluster(), ...));

#pragma once

#include <memory>
#include <string>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "engines/engine.h"

namespace pinstripe {

class KineticDrive;
class KineticIo;

// The DriveFactory of real programs: KineticDrives and RedisDrives that do their I/O on `io`, which
// outlives them, and EngineDrives. To be passed to Cluster::Format.
struct ConnectionUse {
  Duration idle_timeout{};  // one that is not used is closed after it; zero: never
  bool are_shared = false;  // by the drives of one process (kinetic/shared_connections.h)

  static ConnectionUse Of(const ClusterConfig& config);
};
DriveFactory RealDriveFactory(KineticIo& io, Duration connect_timeout, ConnectionUse use = {});

// A way to a drive as the configuration says it, whichever drive is there: for those who ask what
// only a Kinetic device can tell. ENOTSUP: it is a Redis store.
Result<std::unique_ptr<KineticDrive>> ConnectDrive(KineticIo& io, const DriveConfig& config,
                                                   Duration connect_timeout);

// An open cluster and what it stands on. Destroy it after everything that uses the cluster.
class ConnectedCluster {
 public:
  ConnectedCluster(std::unique_ptr<KineticIo> io, std::unique_ptr<Cluster> cluster);
  ~ConnectedCluster();

  Cluster& cluster() { return *cluster_; }

  // One of its drives, to be asked what only a Kinetic device can tell. ENODEV: it knows no way to
  // it; ENOTSUP: it is a Redis store. Lives as long as the cluster.
  Result<KineticDrive*> FindKinetic(DriveId id);

  // What the engine of names says of itself and its members. ENODEV: the cluster uses none.
  Result<EngineState> LookAtEngine(Duration timeout);

  // Makes further drives, which are gone before this is.
  DriveFactory drive_factory();

 private:
  std::unique_ptr<KineticIo> io_;
  std::unique_ptr<Cluster> cluster_;
};

// Fails as ClusterConfig::Load and Cluster::Open do, within ClusterConfig::open_timeout. `runtime`
// outlives the answer.
Result<std::unique_ptr<ConnectedCluster>> Connect(Runtime& runtime, const std::string& config_file);

}  // namespace pinstripe
