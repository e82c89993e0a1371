#include "tests/support/sim_runtime.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

TEST(SimRuntime, ADayPassesInNoTime) {
  SimRuntime sim(1);
  const Time start = sim.Now();
  const int64_t wall_clock = sim.WallClock();
  sim.Sleep(24h);
  EXPECT_GE(sim.Now() - start, 24h);
  EXPECT_GE(sim.WallClock() - wall_clock, Duration(24h).count());
}

TEST(SimRuntime, TasksRunWhenTheyAreDueAndNeverInsideTheCall) {
  SimRuntime sim(1);
  std::vector<int> order;
  sim.RunAt(sim.Now() + 2s, [&] { order.push_back(2); });
  sim.RunAt(sim.Now() + 1s, [&] { order.push_back(1); });
  EXPECT_TRUE(order.empty());
  sim.Sleep(3s);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimRuntime, ASignalSetBeforeTheWaitIsKept) {
  SimRuntime sim(1);
  auto signal = sim.NewSignal();
  signal->Set();
  signal->Set();
  EXPECT_TRUE(signal->WaitUntil(Time::max()));
  EXPECT_FALSE(signal->WaitUntil(sim.Now() + 1s));
}

TEST(SimRuntime, ThreadsWakeEachOther) {
  SimRuntime sim(1);
  auto ping = sim.NewSignal();
  auto pong = sim.NewSignal();
  int rounds = 0;
  sim.Spawn("ping", [&] {
    for (int i = 0; i < 100; ++i) {
      ping->Set();
      EXPECT_TRUE(pong->WaitUntil(Time::max()));
    }
  });
  sim.Spawn("pong", [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(ping->WaitUntil(Time::max()));
      ++rounds;
      pong->Set();
    }
  });
  sim.Run();
  EXPECT_EQ(rounds, 100);
}

TEST(SimRuntime, AWaitEndsAtItsDeadlineAtTheLatest) {
  SimRuntime sim(1);
  auto signal = sim.NewSignal();
  const Time deadline = sim.Now() + 1s;
  EXPECT_FALSE(signal->WaitUntil(deadline));
  EXPECT_GE(sim.Now(), deadline);
}

// Threads that take turns with waits in between: who comes when is up to the seed.
std::pair<std::string, uint64_t> Play(uint64_t seed) {
  SimRuntime sim(seed);
  std::string order;
  for (char name : {'a', 'b', 'c', 'd'}) {
    sim.Spawn(std::string(1, name), [&sim, &order, name] {
      for (int i = 0; i < 5; ++i) {
        order += name;
        sim.Sleep(sim.Between(0us, 100us));
      }
    });
  }
  sim.Run();
  return {order, sim.trace_hash()};
}

TEST(SimRuntime, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(Play(seed), Play(seed));
}

TEST(SimRuntime, AnotherSeedIsAnotherInterleaving) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 50; ++seed) orders.insert(Play(seed).first);
  EXPECT_GE(orders.size(), 45u);
}

TEST(SimRuntimeDeathTest, SaysWhoWaitsForWhatCanNoLongerHappen) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SimRuntime sim(7);
        auto signal = sim.NewSignal();
        sim.Spawn("the forgotten one", [&] { signal->WaitUntil(Time::max()); });
        sim.Run();
      },
      "seed 7: nothing can happen any more, and these wait: 'the forgotten one'");
}

}  // namespace
}  // namespace pinstripe
