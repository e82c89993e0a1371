// RepairPlan: what is to be done about one stripe, given what was found of its shards. A pure
// function; repair.h carries it out.
//
// The rules:
//   - What is missing or damaged is written again, at home if its home can be written to, else
//   where
//     it was, else on a spare.
//   - A shard on a drive that does not answer is left alone: the drive may come back with it.
//   Unless
//     the block map says that the shard was never stored, or the administrator that the drive is
//     gone (`without`): then it goes to a spare.
//   - A good shard that is not at home goes there as soon as its home can be written to. Where it
//     was is forgotten only after the block map says so.
//   - No drive gets two shards of a stripe.

#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "cluster/map/drive_map.h"

namespace pinstripe {

enum class ShardHealth : uint8_t {
  kGood,
  kMissing,  // its drive says that there is no such shard
  kDamaged,  // its drive has something else, or something that does not verify
  kUnknown,  // its drive does not answer
};

struct FoundShard {
  DriveId drive = 0;       // where it should be: at home, or where it was moved to
  bool was_stored = true;  // false: the block map says that it waits for repair
  ShardHealth health = ShardHealth::kUnknown;
};

struct RepairPolicy {
  std::function<bool(DriveId)> is_usable;  // answers, and may be written to
  std::set<DriveId> without;               // drives to be left: what they hold goes elsewhere
};

struct RepairPlan {
  struct Step {
    int shard = 0;
    std::vector<DriveId> to;     // tried in this order
    bool may_use_spare = false;  // if none of these takes it
    bool is_good = false;        // it is only in the wrong place, and can be read there
  };
  std::vector<Step> steps;      // ascending by shard
  std::vector<DriveId> spares;  // free for these steps, each for one of them, in this order

  int good = 0;    // shards that can be read
  int needed = 0;  // shards without which the stripe is lost
  // Shards that wait for their drive, which the plan does nothing about.
  int away = 0;

  // Fewer than `needed` are good, even if all that are away come back.
  bool lost() const { return good + away < needed; }
};

// `order`: the drives of the stripe's group, homes first; at least as many as `shards`.
RepairPlan PlanRepair(int data_shards, const std::vector<DriveId>& order,
                      const std::vector<FoundShard>& shards, const RepairPolicy& policy);

}  // namespace pinstripe
