#include "base/real_runtime.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <set>
#include <system_error>
#include <thread>

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr Time kForever = Time::max();

TEST(RealRuntime, ASignalThatNobodyWaitedForIsKept) {
  RealRuntime runtime;
  auto signal = runtime.NewSignal();
  signal->Set();
  EXPECT_TRUE(signal->WaitUntil(kForever));
}

TEST(RealRuntime, TwoSignalsBeforeAWaitAreOne) {
  RealRuntime runtime;
  auto signal = runtime.NewSignal();
  signal->Set();
  signal->Set();
  EXPECT_TRUE(signal->WaitUntil(kForever));
  EXPECT_FALSE(signal->WaitUntil(runtime.Now()));
}

TEST(RealRuntime, AProcessThatIsNotStoppedLosesNoTime) {
  RealRuntime runtime;
  const TimeLimit limit(runtime, milliseconds(5));
  EXPECT_FALSE(limit.has_passed());
  EXPECT_FALSE(runtime.NewSignal()->WaitUntil(limit.time()));
  EXPECT_TRUE(limit.has_passed());
  EXPECT_EQ(runtime.TimeLost(), Duration());
}

// What the time is for goes on where it was: whoever stopped the process took none of it.
TEST(RealRuntime, ALimitDoesNotComeNearerWhileTheProcessIsStopped) {
  RealRuntime runtime;
  const TimeLimit limit(runtime, std::chrono::seconds(2));
  const pid_t stopper = fork();
  if (stopper == 0) {
    kill(getppid(), SIGSTOP);
    usleep(4'000'000);  // this is the stop
    kill(getppid(), SIGCONT);
    _exit(0);
  }
  ASSERT_GT(stopper, 0);
  int status = 0;
  ASSERT_EQ(waitpid(stopper, &status, 0), stopper);
  EXPECT_FALSE(limit.has_passed());
  EXPECT_GE(runtime.TimeLost(), milliseconds(2500));
  EXPECT_LE(runtime.TimeLost(), std::chrono::seconds(60));
}

TEST(RealRuntime, AWaitEndsAtItsDeadline) {
  RealRuntime runtime;
  auto signal = runtime.NewSignal();
  const Time deadline = runtime.Now() + milliseconds(5);
  EXPECT_FALSE(signal->WaitUntil(deadline));
  EXPECT_GE(runtime.Now(), deadline);
  EXPECT_FALSE(signal->WaitUntil(Time::min())) << "long ago";
}

TEST(RealRuntime, ASignalWakesAnotherThread) {
  RealRuntime runtime;
  auto ping = runtime.NewSignal();
  auto pong = runtime.NewSignal();
  runtime.Spawn("pong", [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(ping->WaitUntil(kForever));
      pong->Set();
    }
  });
  for (int i = 0; i < 100; ++i) {
    ping->Set();
    EXPECT_TRUE(pong->WaitUntil(kForever));
  }
}

TEST(RealRuntime, RunsTasksInTheOrderOfTheirTimes) {
  RealRuntime runtime;
  auto done = runtime.NewSignal();
  std::vector<int> order;  // by the one thread that runs tasks
  const Time start = runtime.Now();
  Time last_run{};
  runtime.RunAt(start + milliseconds(6), [&] {
    order.push_back(3);
    last_run = runtime.Now();
    done->Set();
  });
  runtime.RunAt(start + milliseconds(2), [&] { order.push_back(1); });
  runtime.RunAt(start + milliseconds(4), [&] { order.push_back(2); });
  ASSERT_TRUE(done->WaitUntil(kForever));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(last_run, start + milliseconds(6)) << "never too early";
}

TEST(RealRuntime, RunsTasksOfOneTimeInTheOrderTheyCame) {
  RealRuntime runtime;
  auto done = runtime.NewSignal();
  std::vector<int> order;
  const Time when = runtime.Now() + milliseconds(5);
  for (int i = 0; i < 10; ++i) runtime.RunAt(when, [&order, i] { order.push_back(i); });
  runtime.RunAt(when, [&] { done->Set(); });
  ASSERT_TRUE(done->WaitUntil(kForever));
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), 10u);
}

TEST(RealRuntime, NeverRunsATaskInsideTheCall) {
  RealRuntime runtime;
  auto done = runtime.NewSignal();
  std::thread::id ran_on;
  runtime.RunAt(Time::min(), [&] {
    ran_on = std::this_thread::get_id();
    done->Set();
  });
  ASSERT_TRUE(done->WaitUntil(kForever));
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(RealRuntime, ATaskMayAskForAnother) {
  RealRuntime runtime;
  auto done = runtime.NewSignal();
  runtime.RunAt(runtime.Now(), [&] { runtime.RunAt(runtime.Now(), [&] { done->Set(); }); });
  EXPECT_TRUE(done->WaitUntil(kForever));
}

// Calls back when the last copy of it goes.
struct Farewell {
  explicit Farewell(Task last_words) : last_words(std::move(last_words)) {}
  ~Farewell() { last_words(); }
  Task last_words;
};

TEST(RealRuntime, WhatATaskHoldsMayCallBackWhenItIsLetGo) {
  RealRuntime runtime;
  auto done = runtime.NewSignal();
  auto held =
      std::make_shared<Farewell>([&] { runtime.RunAt(runtime.Now(), [&] { done->Set(); }); });
  runtime.RunAt(runtime.Now(), [held = std::move(held)] {});
  EXPECT_TRUE(done->WaitUntil(kForever));
}

TEST(RealRuntime, DropsTasksThatAreNotDueWhenItEnds) {
  bool ran = false;
  bool dropped = false;
  {
    RealRuntime runtime;
    auto held = std::make_shared<Farewell>([&] {
      dropped = true;
      runtime.RunAt(runtime.Now(), [&ran] { ran = true; });
    });
    runtime.RunAt(runtime.Now() + hours(1), [held = std::move(held)] {});
  }
  EXPECT_TRUE(dropped);
  EXPECT_FALSE(ran);
}

TEST(RealRuntime, WaitsForItsThreadsWhenItEnds) {
  std::atomic<int> ended = 0;
  {
    RealRuntime runtime;
    for (int i = 0; i < 5; ++i) {
      runtime.Spawn("outer", [&] {
        runtime.Spawn("inner", [&] { ++ended; });
        ++ended;
      });
    }
  }
  EXPECT_EQ(ended, 10);
}

TEST(RealRuntime, TimersGoOnUntilTheLastThreadHasEnded) {
  bool woken = false;
  {
    RealRuntime runtime;
    runtime.Spawn("waiter", [&] {
      auto signal = runtime.NewSignal();
      runtime.RunAt(runtime.Now() + milliseconds(5), [signal] { signal->Set(); });
      woken = signal->WaitUntil(kForever);
    });
  }
  EXPECT_TRUE(woken);
}

// In bytes, from the kernel.
size_t AddressSpaceUsed() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(RealRuntime, FreesThreadsThatHaveEnded) {
  RealRuntime runtime;
  auto ended = runtime.NewSignal();
  const auto run_threads = [&] {
    for (int i = 0; i < 300; ++i) {
      runtime.Spawn("short-lived", [ended] { ended->Set(); });
      ended->WaitUntil(kForever);
    }
  };
  run_threads();  // so that the C library's cache of stacks is full
  const size_t before = AddressSpaceUsed();
  run_threads();
  // Had they been kept, their stacks of (usually) 8 MiB would be.
  EXPECT_LT(AddressSpaceUsed(), before + 300 * (size_t{1} << 20));
}

TEST(RealRuntime, OutlivesAThreadThatCannotBeStarted) {
  RealRuntime runtime;
  auto ended = runtime.NewSignal();
  runtime.Spawn("one that has ended", [ended] { ended->Set(); });
  ended->WaitUntil(kForever);
  pthread_attr_t before;
  pthread_getattr_default_np(&before);
  pthread_attr_t huge;
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, size_t{1} << 60);
  pthread_setattr_default_np(&huge);
  // The one that has ended is on the list of those to be joined soon after its signal.
  for (int i = 0; i < 100; ++i) EXPECT_THROW(runtime.Spawn("none", [] {}), std::system_error);
  pthread_setattr_default_np(&before);
  runtime.Spawn("another", [ended] { ended->Set(); });
  EXPECT_TRUE(ended->WaitUntil(kForever));
}

TEST(RealRuntime, ItsClocksGoForward) {
  RealRuntime runtime;
  const Time first = runtime.Now();
  EXPECT_LE(first, runtime.Now());
  EXPECT_GT(runtime.WallClock(), int64_t{1700000000} * 1000000000) << "it is after 2023";
}

TEST(RealRuntime, NeverDrawsOneNumberTwice) {
  RealRuntime runtime;
  std::set<uint64_t> numbers;
  for (int i = 0; i < 1000; ++i) numbers.insert(runtime.Random());
  EXPECT_EQ(numbers.size(), 1000u);
}

}  // namespace
}  // namespace pinstripe
