// PlanRepair: a few plans to read, then every plan of a small world against the rules.

#include "cluster/stripes/repair_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kGood = ShardHealth::kGood;
constexpr auto kMissing = ShardHealth::kMissing;
constexpr auto kDamaged = ShardHealth::kDamaged;
constexpr auto kUnknown = ShardHealth::kUnknown;

// A stripe of 2+1 on the drives 1, 2 and 3; 4 and 5 are spares.
const std::vector<DriveId> kOrder{1, 2, 3, 4, 5};

RepairPolicy AllUsableBut(std::set<DriveId> away, std::set<DriveId> without = {}) {
  return {.is_usable = [away](DriveId drive) { return !away.contains(drive); },
          .without = std::move(without)};
}

TEST(RepairPlan, AWholeStripeNeedsNothing) {
  const auto plan = PlanRepair(2, kOrder, {{1, true, kGood}, {2, true, kGood}, {3, true, kGood}},
                               AllUsableBut({}));
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_EQ(plan.good, 3);
  EXPECT_FALSE(plan.lost());
}

TEST(RepairPlan, WhatIsMissingOrDamagedIsWrittenAtHome) {
  const auto plan = PlanRepair(
      2, kOrder, {{1, true, kMissing}, {2, true, kGood}, {3, true, kDamaged}}, AllUsableBut({}));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_THAT(plan.steps[0].to, ElementsAre(1));
  EXPECT_THAT(plan.steps[1].to, ElementsAre(3));
  EXPECT_TRUE(plan.steps[0].may_use_spare);
  EXPECT_TRUE(plan.lost()) << "one of two shards needed is left";
}

TEST(RepairPlan, ADriveThatIsAwayMayComeBack) {
  const auto plan = PlanRepair(2, kOrder, {{1, true, kUnknown}, {2, true, kGood}, {3, true, kGood}},
                               AllUsableBut({1}));
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_EQ(plan.away, 1);
}

TEST(RepairPlan, WhatWasNeverStoredDoesNotWaitForItsHome) {
  const auto plan = PlanRepair(
      2, kOrder, {{1, false, kUnknown}, {2, true, kGood}, {3, true, kGood}}, AllUsableBut({1}));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_THAT(plan.steps[0].to, IsEmpty());
  EXPECT_TRUE(plan.steps[0].may_use_spare);
  EXPECT_THAT(plan.spares, ElementsAre(4, 5));
}

TEST(RepairPlan, ADriveThatIsToBeLeftGivesUpWhatItHas) {
  const auto plan = PlanRepair(2, kOrder, {{1, true, kGood}, {2, true, kGood}, {3, true, kGood}},
                               AllUsableBut({}, {2}));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].shard, 1);
  EXPECT_TRUE(plan.steps[0].is_good);
  EXPECT_THAT(plan.steps[0].to, IsEmpty());
  EXPECT_THAT(plan.spares, ElementsAre(4, 5));
}

TEST(RepairPlan, AShardOnASpareGoesHome) {
  const auto plan = PlanRepair(2, kOrder, {{4, true, kGood}, {2, true, kGood}, {3, true, kGood}},
                               AllUsableBut({}));
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_THAT(plan.steps[0].to, ElementsAre(1));
  EXPECT_FALSE(plan.steps[0].may_use_spare) << "it is as safe where it is";
}

// Defect 3 of the ancestor: repair while a drive is away destroyed the copy on the spare.
TEST(RepairPlan, AShardOnASpareStaysWhileItsHomeIsAway) {
  const auto plan = PlanRepair(2, kOrder, {{4, true, kGood}, {2, true, kGood}, {3, true, kGood}},
                               AllUsableBut({1}));
  EXPECT_THAT(plan.steps, IsEmpty());
}

// ---- Everything that can be: 2+1 on five drives, each shard at home, on a spare or never stored,
// in every health, with every set of drives that can be used and every drive that is to be left.

class EveryPlan : public testing::Test {
 protected:
  void CheckOne(const std::vector<FoundShard>& shards, unsigned usable, DriveId left) {
    const auto can_take = [&](DriveId drive) {
      return (usable >> (drive - 1) & 1) != 0 && drive != left;
    };
    RepairPolicy policy{.is_usable = [&](DriveId id) { return (usable >> (id - 1) & 1) != 0; }};
    if (left != 0) policy.without.insert(left);
    const RepairPlan plan = PlanRepair(2, kOrder, shards, policy);

    std::vector<const RepairPlan::Step*> step_of(shards.size());
    for (const auto& step : plan.steps) step_of[static_cast<size_t>(step.shard)] = &step;
    std::set<DriveId> in_use;  // by shards that are there, or may come back
    for (const auto& shard : shards) {
      if (shard.health == kGood || shard.health == kUnknown) in_use.insert(shard.drive);
    }
    std::set<DriveId> offered;
    for (size_t i = 0; i < shards.size(); ++i) {
      const FoundShard& shard = shards[i];
      const bool waits = shard.health == kUnknown && shard.was_stored && shard.drive != left;
      const bool broken = shard.health != kGood && !waits;
      const bool at_home = shard.drive == kOrder[i];
      const bool must_go = shard.drive == left;
      const bool may_go_home = !at_home && can_take(kOrder[i]);
      const bool wanted = broken || must_go || (shard.health == kGood && may_go_home);
      ASSERT_EQ(step_of[i] != nullptr, wanted);
      if (!wanted) continue;
      ASSERT_EQ(step_of[i]->is_good, shard.health == kGood);
      ASSERT_EQ(step_of[i]->may_use_spare, broken || must_go);
      if (can_take(kOrder[i])) {
        ASSERT_FALSE(step_of[i]->to.empty());
        ASSERT_EQ(step_of[i]->to[0], kOrder[i]);
      }
      for (const DriveId drive : step_of[i]->to) {
        ASSERT_TRUE(can_take(drive));
        ASSERT_TRUE(drive == kOrder[i] || drive == shard.drive);
        ASSERT_TRUE(offered.insert(drive).second) << "two shards of a stripe on one drive";
      }
    }
    for (const DriveId drive : plan.spares) {
      ASSERT_TRUE(can_take(drive));
      ASSERT_FALSE(in_use.contains(drive));
      ASSERT_TRUE(offered.insert(drive).second) << "two shards of a stripe on one drive";
    }
    ++plans_;
  }

  size_t plans_ = 0;
};

TEST_F(EveryPlan, KeepsToTheRules) {
  std::vector<std::vector<FoundShard>> places;
  for (int where = 0; where < 4 * 4 * 4; ++where) {
    std::vector<FoundShard> shards(3);
    std::set<DriveId> used;
    bool possible = true;
    for (size_t i = 0; i < 3; ++i) {
      const int choice = where >> (2 * i) & 3;  // home, not stored, 4, 5
      shards[i].was_stored = choice != 1;
      shards[i].drive = choice < 2 ? kOrder[i] : static_cast<DriveId>(2 + choice);
      possible &= used.insert(shards[i].drive).second;
    }
    if (possible) places.push_back(shards);
  }
  for (std::vector<FoundShard> shards : places) {
    for (int health = 0; health < 4 * 4 * 4; ++health) {
      for (size_t i = 0; i < 3; ++i) {
        shards[i].health = static_cast<ShardHealth>(health >> (2 * i) & 3);
      }
      for (unsigned usable = 0; usable < 32; ++usable) {
        for (DriveId left = 0; left <= 5; ++left) {
          CheckOne(shards, usable, left);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(plans_, 300'000u);
}

}  // namespace
}  // namespace pinstripe
