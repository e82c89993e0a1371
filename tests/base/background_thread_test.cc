#include "base/background_thread.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/real_runtime.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

TEST(BackgroundThread, RunsItsBodyForThoseWhoWakeIt) {
  SimRuntime sim(1);
  int runs = 0;
  BackgroundThread thread(sim, "worker", [&] { ++runs; });
  EXPECT_FALSE(thread.IsRunning());
  thread.Wake();
  EXPECT_TRUE(thread.IsRunning());
  sim.Run();  // returns only because the thread ends by itself
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(thread.IsRunning());
  thread.Wake();
  sim.Run();
  EXPECT_EQ(runs, 2);
}

TEST(BackgroundThread, RunsOnceMoreForThoseWhoComeMeanwhileAndNeverTwiceAtATime) {
  SimRuntime sim(1);
  int runs = 0;
  int at_once = 0;
  BackgroundThread thread(sim, "worker", [&] {
    EXPECT_EQ(++at_once, 1);
    sim.Sleep(seconds(10));
    ++runs;
    --at_once;
  });
  thread.Wake();
  sim.Sleep(seconds(1));
  thread.Wake();
  thread.Wake();  // the same run will do
  sim.Run();
  EXPECT_EQ(runs, 2);
}

TEST(BackgroundThread, IsWokenWhereItWaits) {
  SimRuntime sim(1);
  const Time start = sim.Now();
  std::vector<bool> woken;
  std::unique_ptr<BackgroundThread> thread;
  thread = std::make_unique<BackgroundThread>(sim, "worker", [&] {
    woken.push_back(thread->WaitUntil(start + seconds(100)));
    woken.push_back(thread->WaitUntil(start + seconds(100)));
  });
  thread->Wake();
  sim.Sleep(seconds(1));
  thread->Wake();
  sim.Run();
  EXPECT_EQ(woken, (std::vector<bool>{true, false}));
  EXPECT_GE(sim.Now(), start + seconds(100));
}

TEST(BackgroundThread, IsToldToEndAndItsEndIsWaitedFor) {
  SimRuntime sim(1);
  const Time start = sim.Now();
  bool ended = false;
  std::unique_ptr<BackgroundThread> thread;
  thread = std::make_unique<BackgroundThread>(sim, "worker", [&] {
    while (!thread->IsEnding()) thread->WaitUntil(Time::max());
    sim.Sleep(seconds(5));
    ended = true;
  });
  thread->Wake();
  sim.Sleep(seconds(1));
  thread->End();
  EXPECT_TRUE(ended);
  EXPECT_GE(sim.Now(), start + seconds(6));
}

TEST(BackgroundThread, IsNotStartedAfterItsEnd) {
  SimRuntime sim(1);
  int runs = 0;
  BackgroundThread thread(sim, "worker", [&] { ++runs; });
  thread.End();
  thread.Wake();
  sim.Run();
  EXPECT_EQ(runs, 0);
}

// What is there before a Wake() is seen, whenever the thread is about to end.
TEST(BackgroundThread, SeesAllWorkWhateverTheOrder) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimRuntime sim(seed);
    int added = 0;
    int seen = 0;
    std::unique_ptr<BackgroundThread> thread;
    thread = std::make_unique<BackgroundThread>(sim, "worker", [&] {
      do {
        sim.Sleep(sim.Between(Duration(), seconds(1)));
        seen = added;
      } while (thread->WaitUntil(sim.Now() + sim.Between(Duration(), seconds(1))));
    });
    for (int i = 0; i < 10; ++i) {
      ++added;
      thread->Wake();
      sim.Sleep(sim.Between(Duration(), seconds(2)));
    }
    sim.Run();
    EXPECT_EQ(seen, added) << "seed " << seed;
  }
}

// Its owner may go as soon as End() returns: nothing is touched after that (sanitizers look).
TEST(BackgroundThread, OfARealProgramMayGoAtOnce) {
  RealRuntime runtime;
  for (int i = 0; i < 1000; ++i) {
    auto value = std::make_unique<int>(0);
    BackgroundThread thread(runtime, "worker", [&value] { ++*value; });
    thread.Wake();
    if (i % 2 == 0) thread.Wake();
  }
}

}  // namespace
}  // namespace pinstripe
