// DevCluster: a whole cluster in one directory of one machine, for trying things out and for tests:
// drives, an xrootd gateway, a mount. What runs is written to DIR/dev.json at every step, so that
// an interrupted `up` can be resumed by `up` and cleared by `down`.
//
//   DIR/dev.json                          what there is and what runs
//   DIR/cluster.toml, credentials.toml    the configuration, as on a real site
//   DIR/drives/N/                         the records of drive N
//   DIR/pinstriped-N.toml, .log           the daemon that serves drive N (and perhaps others)
//   DIR/redis-N.conf, .log                the redis-server that serves drive N
//   DIR/gateway/xrootd.cfg, log           the gateway; owned by the user it runs as
//   DIR/mount.log
//
// Not thread-safe; a lock on DIR keeps two commands from acting on one cluster at the same time.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/stripes/store.h"
#include "tools/dev_config.h"
#include "tools/process.h"

namespace pinstripe {

struct DevOptions {
  std::string name = "dev";
  int drives = 8;
  int redis = 0;  // of them, the last ones: served by a redis-server each
  Geometry layout{4, 2};
  std::vector<int> groups;  // how many of the others each process serves; empty: one each
  std::string close = "commit";
  bool share_connections = false;  // by the drives of a process
  bool gateway = true;
  uint16_t gateway_port = 0;  // 0: a free one
  std::string user;           // of the gateway; empty: the caller, or for root "xrootd" or "nobody"
  std::string mount;          // empty: none
};

// A process of the cluster and where it is written down.
struct DevProcess {
  std::string name;  // "drive 3", "drives 1-4", "gateway", "mount"
  std::vector<std::string> command;
  std::string log;
  std::string preload;  // as SpawnRequest has them
  std::vector<std::string> environment;
  pid_t pid = 0;

  std::optional<Process> Find() const { return Process::Find(pid, command); }
};

struct DevDaemon {
  DevProcess process;
  std::vector<DevDrive> drives;
};

struct DevGateway {
  DevProcess process;
  std::string user;
  uint16_t port = 0;
  std::string Url() const;
};

struct DevMount {
  DevProcess process;
  std::string point;
};

class DevCluster {
 public:
  using Say = std::function<void(const std::string& line)>;

  // Makes the directory and its files; starts nothing. EEXIST when `directory` has something else
  // in it; its options are then still those it was made with.
  static Result<std::unique_ptr<DevCluster>> Create(Runtime& runtime, const std::string& directory,
                                                    const DevOptions& options, Say say);

  // ENOENT when there is no development cluster in `directory`.
  static Result<std::unique_ptr<DevCluster>> Open(Runtime& runtime, const std::string& directory,
                                                  Say say);
  static bool Exists(const std::string& directory);
  ~DevCluster();

  // Starts what does not run, formats what was never formatted, and waits until everything answers.
  // On failure whatever this call started is stopped again.
  Status Up();

  // Stops everything, the users of drives before the drives.
  Status Down();

  // Removes the directory. EBUSY while something runs.
  Status Delete();

  // Each of `what`: "gateway", "mount" or the number of a drive. Kill is SIGKILL, to the process
  // that serves the drive. When one of them is none, or does not run, nothing is done. ENOENT,
  // ESRCH.
  Status Kill(const std::vector<std::string>& what);
  Status Start(const std::vector<std::string>& what);

  // Adds a mount, or a gateway, to a cluster that has none. Started by Up().
  Status AddMount(const std::string& point);

  const std::string& directory() const;
  std::string cluster_file() const;
  const std::vector<DevDaemon>& daemons() const;
  const std::optional<DevGateway>& gateway() const;
  const std::optional<DevMount>& mount() const;

 private:
  class State;
  explicit DevCluster(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pinstripe
