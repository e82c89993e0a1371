// One stripe on its way to its drives: see StripeStore::StartWrite, whose promises these are. A
// shard whose drive is away, full or late (spare_after) goes to another drive.

#pragma once

#include <memory>

#include "cluster/stripes/context.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

// Coded, and not sent. `context` outlives the answer.
std::unique_ptr<StripeStore::PendingWrite> PrepareStripeWrite(StripeContext& context,
                                                              const StripeId& id,
                                                              std::shared_ptr<StripeBuffer> buffer,
                                                              uint64_t length,
                                                              Durability durability, Room room);

}  // namespace pinstripe
