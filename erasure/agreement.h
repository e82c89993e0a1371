// Agreement: whether shards are of one block, and which of them is not.
//
// Two blocks differ in more than m of their k+m shards. So with k+r shards at hand up to r wrong
// ones are noticed. If half of r or fewer are wrong, they can be named: leaving out any others
// leaves a contradiction.

#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "erasure/codec.h"

namespace pinstripe {

struct Agreement {
  bool agrees = true;      // k shards or fewer always do
  std::vector<int> wrong;  // ascending; empty when it agrees, or when it cannot be told which
};

// `shards` are all k+m by their indices; an empty one is not at hand, the others have one size.
Result<Agreement> CompareShards(const Codec& codec, std::span<const Bytes> shards);

}  // namespace pinstripe
