// Where a Redis-protocol store is: "redis://host:6379/0", or "rediss://..." with TLS.

#pragma once

#include <string_view>

#include "base/status.h"
#include "kinetic/io.h"

namespace pinstripe {

inline constexpr std::string_view kRedisPort = "6379";
inline constexpr int kMaxRedisDatabase = 65535;

struct RedisAddress {
  HostAndPort host;
  bool tls = false;
  int database = 0;
};

// Whether it is one, right or wrong, and not that of a Kinetic device.
bool IsRedisAddress(std::string_view text);

// Where a drive is, whichever kind it is of (kinetic/io.h). EINVAL.
Result<HostAndPort> ParseAnyDriveAddress(std::string_view text);

// The port is 6379 where none is given, the database 0. EINVAL, and what is wrong. User and
// password are not a part of it: they are secret, and this is not.
Result<RedisAddress> ParseRedisAddress(std::string_view text);

}  // namespace pinstripe
