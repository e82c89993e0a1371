// pinstriped.toml: which drives a daemon serves. etc/pinstriped.toml is the commented sample.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log_format.h"
#include "base/status.h"
#include "daemon/places.h"
#include "daemon/rights.h"
#include "daemon/slow_log.h"
#include "kinetic/tls.h"
#include "store/kind.h"

namespace pinstripe {

struct ServedDrive {
  std::string path;                   // its directory
  std::optional<uint16_t> port;       // without TLS; 0: any free one; none: not served so
  std::optional<uint16_t> tls_port;   // the same with TLS
  std::optional<uint16_t> resp_port;  // the two for clients of the Redis protocol
  std::optional<uint16_t> resp_tls_port;
  bool resp_write_through = false;  // as of Server::Resp
  uint64_t capacity_bytes = 0;      // 0: what the file system has
  std::string serial_number;        // empty: made when the store is
  StoreKind store = StoreKind::kLog;
};

struct DaemonConfig {
  std::string listen = "0.0.0.0";
  int loops = 1;     // threads that wait for sockets
  int workers = 4;   // threads that execute requests
  int flushers = 4;  // threads that wait for disks to sync
  // How many connections each drive may have. Then how many all may have together, how many of them
  // may come from one address,
  // and how many may be of strangers, together and from one address (places.h). 0: what the limit
  // of descriptors allows for.
  size_t connections_per_drive = kUsualConnections;
  size_t connections = 0;
  size_t connections_per_address = 0;
  size_t strangers = 0;
  size_t strangers_per_address = 0;
  // Of memory, for values under way, over all connections. 0: an eighth of the machine's.
  uint64_t value_bytes = 0;
  // Of memory, for what was read of the indexes of all drives. Where these do not fit, the kernel's
  // page cache is asked.
  uint64_t index_cache_bytes = uint64_t{64} << 20;
  LogFormat log_format = LogFormat::kText;
  // Whether others than this machine may come to a drive that has the factory's key.
  bool factory_key_allowed = false;
  // Whether a drive that has no erase PIN may be erased over the protocol: by everybody, that is.
  bool erase_without_pin = false;
  // Whether identities' keys may come over the network in clear text: with a resp_port, that is.
  bool clear_keys_allowed = false;
  // Who may use a drive whose own identities nobody has set; the Kinetic factory default.
  RightsById identities{{1, FullAccess(std::string(kFactoryKey))}};
  // A request that takes so long is told of (slow_log.h); 0: none is.
  Duration slow_request = SlowLog::kUsually;
  // Where metrics are served (metrics/address.h); empty: nowhere.
  std::string metrics;
  std::optional<TlsFiles> tls;  // there when a drive has a TLS port
  std::vector<ServedDrive> drives;

  // Errors name file, line and reason (EINVAL), or why a file cannot be read. The credentials' file
  // is refused (EACCES) when others may read it.
  static Result<DaemonConfig> Load(const std::string& file);

  // EACCES: others than this machine could come to a drive with these identities, and one of them
  // has the factory's key. Says what to do.
  Status CheckFactoryKey(const RightsById& of_drive) const;
};

}  // namespace pinstripe
