// Free TCP ports of this machine, for servers that are started a moment later.

#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

// `count` different ports on which nobody listens, drawn at random from below the range that the
// kernel gives to outgoing connections: so a server that is killed finds its port free when it
// comes back. None of `except`, which others are about to use. EADDRINUSE when there are not
// enough. Where the environment has PINSTRIPE_PORTS=FIRST-LAST, from these (EINVAL: it is not such
// a range): an administrator who runs clusters side by side keeps them apart so, for a port whose
// drive is down looks free.
Result<std::vector<uint16_t>> PickFreePorts(Runtime& runtime, size_t count,
                                            const std::set<uint16_t>& except = {});

// Whether something accepts connections on 127.0.0.1 there.
bool PortAnswers(uint16_t port);

}  // namespace pinstripe
