// Where metrics are served, as a setting says it: "127.0.0.1:9464", or a port alone, which means
// this machine only.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

struct MetricsAddress {
  std::string host;   // an address of IPv4, which is what Debian's HTTP library can
  uint16_t port = 0;  // 0: any free one

  std::string Text() const { return fmt::format("{}:{}", host, port); }
};

// EINVAL: it is not one. A name is none, for it may mean more than one thing.
Result<MetricsAddress> ParseMetricsAddress(std::string_view text);

}  // namespace pinstripe
