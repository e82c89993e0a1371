// Making a stripe whole again: see StripeStore::Repair, whose promises these are. And writing one
// shard where it belongs, for readers that found it damaged or missing. Private to StripeStore.

#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/stripes/context.h"
#include "cluster/stripes/reading.h"
#include "cluster/stripes/shard.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

Result<StripeRepair> RepairStripe(StripeContext& context, const StripeRepairRequest& request);

// A read of whole shards, out of others or, where they can be read, themselves. Shards in `without`
// are not asked for.
Result<PlannedRead> PlanShards(StripeContext& context, const KnownStripe& stripe,
                               std::vector<DriveId> places, const std::vector<int>& shards,
                               const std::vector<int>& without);

// Puts a shard that `read` has brought on a drive, in place of whatever is there, and reads it
// back: when this succeeds it is known to be good there. `epoch`: the newest that was known when it
// was decided that it belongs there. EREMCHG: the drive knows a later one.
Status StoreShard(StripeContext& context, const PlannedRead& read, int shard, DriveId drive,
                  Epoch epoch);

}  // namespace pinstripe
