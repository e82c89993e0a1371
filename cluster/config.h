// cluster.toml and credentials.toml: what brings a process to the drives. etc/cluster.toml is the
// commented sample. Layouts and epochs belong to the data and are stored with it; only their
// defaults are taken from here.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct DriveCredentials {
  int64_t identity = 1;
  std::string key = "asdfasdf";  // the Kinetic factory default
  // For a Redis-protocol store; empty: its default user, and no password.
  std::string user{};
  std::string password{};
  friend bool operator==(const DriveCredentials&, const DriveCredentials&) = default;
};

inline constexpr uint32_t kMaxInlineBytes =
    32 << 10;  // of an inode, a register of 128 KiB with all it holds

// Sizes of the cache on a local disk.
inline constexpr uint64_t kLeastDiskCacheBytes = 16 << 20;
// What a process needs to work with.
inline constexpr uint64_t kLeastMemoryBytes = 16 << 20;

inline constexpr uint64_t kUsualDiskCacheBytes = UINT64_C(10) << 30;

struct DriveTls {
  std::string ca_file;      // whose certificates are believed; empty: any certificate is accepted
  std::string authorities;  // what was in it
  friend bool operator==(const DriveTls&, const DriveTls&) = default;
};

// The engine on which names are kept, or to which they are moved (engines/engine.h).
struct EngineConfig {
  std::string kind;                    // "etcd" or "postgresql"
  std::string cluster;                 // the name of ours there
  std::vector<std::string> endpoints;  // etcd: "http://host:2379", or all of them "https://..."
  std::string connection;              // PostgreSQL: a connection string, without a password
  std::string ca_file;                 // of etcd: whose certificates are believed
  std::string certificate_file;        // our own, and its key; both or none
  std::string key_file;
  std::string user;  // from credentials.toml; empty: none is sent
  std::string password;
  friend bool operator==(const EngineConfig&, const EngineConfig&) = default;
};

struct DriveConfig {
  DriveId id = 0;
  // Tried in turn: "host:port" of a Kinetic device, or all as ParseRedisAddress() reads them.
  std::vector<std::string> addresses;
  std::string domain;
  uint32_t weight = 100;
  std::optional<DriveTls> tls;  // none: without TLS
  DriveCredentials credentials;
  std::optional<EngineConfig> engine{};  // it is that, as a drive: EngineAsDrive()

  bool IsRedis() const;  // a Redis-protocol store

  // Whether the other is reached in the same manner: address, TLS, credentials.
  bool SameWay(const DriveConfig& other) const;
};

struct ClusterConfig {
  std::string file;  // where it was read from, for messages
  std::string name;
  StripeLayout layout;                    // for files beyond replicate_limit
  uint32_t inline_limit = 512;            // files up to this live in their inode
  uint32_t replicate_limit = kCellBytes;  // files up to this are not cut into k shards
  int min_redundancy = 1;
  int replicas = 0;  // of registers; 0 in the file: 2 m + 1, or the largest odd number of drives
  uint32_t groups = 512;        // 0 in the file: EnoughGroups()
  uint64_t memory_bytes = 0;    // budget of the process; 0 in the file: an eighth of the machine
  bool memory_is_said = false;  // by the file, so that it is this process's own
  // A second level of the cache of what was read, on a disk of the machine; empty: none.
  std::string cache_directory;
  uint64_t cache_directory_bytes = kUsualDiskCacheBytes;
  bool durable_close = false;  // close = "durable"
  Duration drive_timeout = std::chrono::seconds(5);
  Duration open_timeout = std::chrono::seconds(10);
  Duration idle_timeout = std::chrono::minutes(5);  // of a connection that nobody uses; 0: none
  bool share_connections = false;                   // by the drives of one process
  std::optional<EngineConfig> engine;               // null: engine = "drives"
  std::vector<DriveConfig> drives;                  // ascending by id

  // Reads and checks both files. Errors name file, line and reason (EINVAL), or why a file cannot
  // be read. credentials.toml lies beside cluster.toml unless that says otherwise; it is refused
  // (EACCES) when others may read it.
  static Result<ClusterConfig> Load(const std::string& file);

  // The impossible combinations, for configurations made by hand. EINVAL.
  Status Check() const;

  // And whether as many drives are listed as layout and names need: a cluster that is there can be
  // used while some of its drives are lost, and not listed any more. EINVAL.
  Status CheckForFormat() const;

  // The settings, by their names in the file, in which the other differs and which a process goes
  // by as they were when it started.
  std::vector<std::string> FixedSettingsThatDiffer(const ClusterConfig& other) const;
};

// An engine as something that a DriveFactory can make a Drive of.
DriveConfig EngineAsDrive(const EngineConfig& engine);

// "4+2": data shards + parity shards. EINVAL unless it is a geometry that the codec has.
Result<Geometry> ParseGeometry(std::string_view text);

// The default shard size for k: about 4 MiB / k, a multiple of 64 KiB, at most 1 MiB.
uint32_t DefaultShardBytes(int data_shards);

}  // namespace pinstripe
