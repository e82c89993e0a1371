// The configuration files of a development cluster: pure functions from what is wanted to text.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct DevDrive {
  int id = 0;
  uint16_t port = 0;
  std::string path;       // where it keeps its records
  bool is_redis = false;  // served by a redis-server
};

struct DevClusterText {
  std::string name;
  Geometry layout;
  std::string close;  // "commit" or "durable"
  bool share_connections = false;
  std::string credentials_file;
  std::vector<DevDrive> drives;
};

std::string ClusterConfigText(const DevClusterText& cluster);  // cluster.toml
std::string CredentialsText();                                 // credentials.toml
// `capacity_bytes`: what each drive may keep.
std::string DaemonConfigText(const std::vector<DevDrive>& drives, uint64_t capacity_bytes);
std::string RedisConfigText(const DevDrive& drive, uint64_t capacity_bytes);  // for redis-server

struct GatewayText {
  std::string plugin;  // path to the library
  std::string cluster_file;
  std::string directory;  // for its sockets and pid files
  uint16_t port = 0;
};
std::string GatewayConfigText(const GatewayText& gateway);  // xrootd.cfg

// "8" or "4,1,31": how many drives each process serves. EINVAL unless they add up to `drives`.
Result<std::vector<int>> ParseGroups(const std::string& text, int drives);

}  // namespace pinstripe
