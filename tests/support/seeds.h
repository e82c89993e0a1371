// Which seeds a simulation runs: SEED=n runs that one, SEEDS=n runs the first n.

#pragma once

#include <cstdint>

namespace pinstripe {

struct Seeds {
  uint64_t first = 1;
  uint64_t end = 1;  // not included
};

// SEED or SEEDS of the environment, else 1..count. Ends the program when they are no numbers.
Seeds SeedsFromEnvironment(uint64_t count);

}  // namespace pinstripe
