// Free TCP ports for servers that a test starts, kills and starts again. Link pinstripe_tools.

#pragma once

#include <vector>

#include "base/real_runtime.h"
#include "tests/support/expect_ok.h"
#include "tools/ports.h"

namespace pinstripe {

// None that an outgoing connection could take while its server is down. The runtime's thread has
// ended when it returns: a test that forks has none.
inline std::vector<uint16_t> FreePorts(size_t count) {
  RealRuntime runtime;
  const Result<std::vector<uint16_t>> ports = PickFreePorts(runtime, count);
  EXPECT_OK(ports);
  return ports.has_value() ? *ports : std::vector<uint16_t>(count);
}

}  // namespace pinstripe
