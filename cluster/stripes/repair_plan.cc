#include "cluster/stripes/repair_plan.h"

#include <algorithm>
#include <cassert>

namespace pinstripe {

RepairPlan PlanRepair(int data_shards, const std::vector<DriveId>& order,
                      const std::vector<FoundShard>& shards, const RepairPolicy& policy) {
  assert(order.size() >= shards.size());
  const auto can_take = [&](DriveId drive) {
    return !policy.without.contains(drive) && policy.is_usable(drive);
  };

  // Whether a home is taken by another shard that will not leave it. That happens where an epoch
  // has made a home of what was a spare.
  const auto is_taken = [&](DriveId drive, size_t by) {
    for (size_t i = 0; i < shards.size(); ++i) {
      const FoundShard& other = shards[i];
      const bool there =
          other.health == ShardHealth::kGood || other.health == ShardHealth::kUnknown;
      if (i == by || other.drive != drive || !there) continue;
      if (other.health == ShardHealth::kUnknown || !can_take(order[i])) return true;
    }
    return false;
  };

  RepairPlan plan;
  plan.needed = data_shards;
  std::set<DriveId> taken;
  for (size_t i = 0; i < shards.size(); ++i) {
    const FoundShard& shard = shards[i];
    const DriveId home = order[i];
    const bool left_behind = policy.without.contains(shard.drive);
    const bool good = shard.health == ShardHealth::kGood;
    plan.good += good;
    if (good || shard.health == ShardHealth::kUnknown) taken.insert(shard.drive);
    if (shard.health == ShardHealth::kUnknown && shard.was_stored && !left_behind) {
      ++plan.away;
      continue;
    }

    RepairPlan::Step step{.shard = static_cast<int>(i), .to = {}, .is_good = good};
    if (good && !left_behind) {
      if (shard.drive == home || !can_take(home) || is_taken(home, i)) continue;
      step.to.push_back(home);
    } else {
      if (can_take(home) && !is_taken(home, i)) step.to.push_back(home);
      if (shard.drive != home && can_take(shard.drive)) step.to.push_back(shard.drive);
      step.may_use_spare = true;
    }
    plan.steps.push_back(std::move(step));
  }
  for (size_t i = shards.size(); i < order.size(); ++i) {
    if (!taken.contains(order[i]) && can_take(order[i])) plan.spares.push_back(order[i]);
  }
  // A spare that a step may go back to is not free for others.
  for (const RepairPlan::Step& step : plan.steps) {
    std::erase_if(plan.spares, [&](DriveId drive) {
      return std::find(step.to.begin(), step.to.end(), drive) != step.to.end();
    });
  }
  return plan;
}

}  // namespace pinstripe
