// Reading stripes from their drives: the loop around StripeRead's plans, which keeps the time and
// talks to drives. Private to StripeStore.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "cluster/map/drive_map.h"
#include "cluster/stripes/context.h"
#include "cluster/stripes/read_plan.h"
#include "cluster/stripes/store.h"
#include "erasure/codec.h"

namespace pinstripe {

// A read that was prepared. It ends as Succeeded(), with every wanted page there, or with a
// failure.
struct PlannedRead {
  KnownStripe stripe;
  std::vector<DriveId> places;  // by shard
  StripeRead plan;
  std::shared_ptr<const Codec> codec;
  bool done = false;
  Status status;
};

// Where each shard is to be looked for, by its index: at home, unless `place` says otherwise.
Result<std::vector<DriveId>> LocateShards(StripeContext& context, const StripeId& id,
                                          const StripeLayout& layout, const StripePlace& place);

// EBADMSG unless a block of this layout can be so long.
Status CheckBlockLength(const StripeId& id, const StripeLayout& layout, uint64_t length);

// Reads whose first questions are asked, all at once. One thread at a time. May be dropped.
class RunningReads {
 public:
  virtual ~RunningReads() = default;
  // Ends each of them, in the time of the slowest.
  virtual void Finish() = 0;
};
// `reads` stay where they are until it is gone. Those that are not done after `timeout` fail.
std::unique_ptr<RunningReads> StartReads(StripeContext& context, std::span<PlannedRead> reads,
                                         Duration timeout);

// Both.
void RunReads(StripeContext& context, std::span<PlannedRead> reads, Duration timeout);

}  // namespace pinstripe
