// Sums of whole blocks, from what their shards' descriptors say. Private to StripeStore.

#pragma once

#include <span>
#include <vector>

#include "cluster/stripes/context.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

// As StripeStore::SumUp().
std::vector<Result<BlockSums>> SumUpStripes(StripeContext& context,
                                            std::span<const StripePart> blocks);

}  // namespace pinstripe
