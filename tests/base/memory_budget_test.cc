// A budget of memory: who takes a share counts until the share is gone.

#include "base/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include "base/real_runtime.h"

namespace pinstripe {
namespace {

TEST(MemoryBudget, CountsWhatIsTakenUntilItIsGone) {
  MemoryBudget budget(100);
  {
    const auto share = budget.TryTake(60);
    ASSERT_TRUE(share);
    EXPECT_EQ(budget.used(), 60u);
    EXPECT_FALSE(budget.TryTake(41));
    EXPECT_TRUE(budget.TryTake(40));  // and gone again at once
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, ASharePartsAndMoves) {
  MemoryBudget budget(100);
  MemoryBudget::Share whole = *budget.TryTake(100);
  MemoryBudget::Share part = whole.Split(30);
  EXPECT_EQ(whole.bytes(), 70u);
  EXPECT_EQ(budget.used(), 100u);
  whole = std::move(part);  // what it was before goes
  EXPECT_EQ(budget.used(), 30u);
  whole.Return();
  EXPECT_EQ(budget.used(), 0u);
}

// Or who needs more than the whole budget would wait for ever.
TEST(MemoryBudget, AnythingFitsWhenNothingIsInUse) {
  MemoryBudget budget(10);
  const auto large = budget.TryTake(1000);
  ASSERT_TRUE(large);
  EXPECT_FALSE(budget.TryTake(1));
}

TEST(MemoryBudget, SomeThingsGoOnAnyway) {
  MemoryBudget budget(10);
  const auto first = budget.TakeAnyway(8);
  const auto second = budget.TakeAnyway(8);
  EXPECT_EQ(budget.used(), 16u);
  EXPECT_FALSE(budget.TryTake(1));
}

TEST(MemoryBudget, WhatIsKeptWithoutNeedIsReclaimedFirst) {
  MemoryBudget budget(100);
  std::vector<MemoryBudget::Share> cache;
  budget.SetReclaim([&](uint64_t) {
    if (cache.empty()) return false;
    cache.pop_back();
    return true;
  });
  for (int i = 0; i < 10; ++i) cache.push_back(*budget.TryTake(10));
  EXPECT_FALSE(budget.TryTakeUnused(25));
  EXPECT_EQ(cache.size(), 10u);
  const auto share = budget.TryTake(25);
  EXPECT_TRUE(share);
  EXPECT_EQ(cache.size(), 7u);
  budget.SetLimit(50);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(budget.used(), 45u);
  budget.SetLimit(20);  // the rest is in use
  EXPECT_EQ(budget.used(), 25u);
  EXPECT_FALSE(budget.TryTake(1));
}

TEST(MemoryBudget, WhoWatchesIsWokenByWhatComesBack) {
  RealRuntime runtime;
  MemoryBudget budget(10);
  auto taken = budget.TryTake(10);
  const auto signal = runtime.NewSignal();
  const MemoryBudget::Watch watch(budget, signal);
  std::thread other([&] { taken.reset(); });
  while (!budget.TryTake(10)) signal->WaitUntil(Time::max());
  other.join();

  taken = budget.TryTake(10);
  std::thread administrator([&] { budget.SetLimit(20); });
  while (!budget.TryTake(20)) {
    signal->WaitUntil(Time::max());
    taken.reset();
  }
  administrator.join();

  // What was in use may become something that is only kept.
  taken = budget.TryTake(20);
  std::atomic<bool> kept = false;
  budget.SetReclaim([&](uint64_t) { return kept && std::exchange(taken, std::nullopt); });
  std::thread user([&] {
    kept = true;
    budget.NoteChange();
  });
  while (!budget.TryTake(10)) signal->WaitUntil(Time::max());
  user.join();
}

TEST(MemoryBudget, SharesMayOutliveIt) {
  auto budget = std::make_unique<MemoryBudget>(10);
  auto share = budget->TryTake(10);
  budget.reset();
  EXPECT_EQ(share->bytes(), 10u);
}

}  // namespace
}  // namespace pinstripe
