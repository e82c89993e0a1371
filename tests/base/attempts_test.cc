// How a change goes on that others are at, too: look, change only what is as it was seen, and begin
// anew if it is not.

#include "base/attempts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

// What several change: a number that takes a new value from who has seen the present one.
class Shared {
 public:
  int Read() const { return value_; }
  bool Change(int seen, int wanted) {
    if (seen != value_) return false;
    value_ = wanted;
    return true;
  }

 private:
  int value_ = 0;
};

TEST(Attempts, AChangeBeginsAnewUntilNobodyCameInBetween) {
  Shared shared;
  int lost = 0;
  bool is_changed = false;
  for (Attempts attempts; attempts.Next();) {
    const int seen = shared.Read();
    if (attempts.IsFirst()) {
      ASSERT_TRUE(shared.Change(seen, 10)) << "somebody else";
    }
    is_changed = shared.Change(seen, seen + 1);
    if (is_changed) break;
    ++lost;
  }
  EXPECT_TRUE(is_changed);
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(shared.Read(), 11);
}

TEST(Attempts, WhoAlwaysLosesGivesUp) {
  int tried = 0;
  for (Attempts attempts; attempts.Next();) ++tried;
  EXPECT_EQ(tried, Attempts::kMost);

  Attempts few(2);
  EXPECT_TRUE(few.Next());
  EXPECT_TRUE(few.IsFirst());
  EXPECT_TRUE(few.Next());
  EXPECT_FALSE(few.IsFirst());
  EXPECT_FALSE(few.Next());
  EXPECT_FALSE(few.Next());
}

// Each loses against those who come between its look and its change. Pauses by chance part them.
TEST(Attempts, ThoseWhoPauseAllComeThrough) {
  constexpr int kThreads = 20;
  SimRuntime sim(1);
  Shared shared;
  int gave_up = 0;
  for (int i = 0; i < kThreads; ++i) {
    sim.Spawn("changes", [&] {
      for (Attempts attempts; attempts.Next();) {
        const int seen = shared.Read();
        sim.Sleep(milliseconds(1));
        if (shared.Change(seen, seen + 1)) return;
        attempts.Pause(sim);
      }
      ++gave_up;
    });
  }
  sim.Run();
  EXPECT_EQ(gave_up, 0);
  EXPECT_EQ(shared.Read(), kThreads);
}

// At first less than a millisecond, twice that with each attempt, and at most 128 milliseconds.
TEST(Attempts, APauseIsLongerWithEachAttemptAndNeverLong) {
  SimRuntime sim(1);
  Duration longest_of_first{};
  Duration longest{};
  for (int i = 0; i < 200; ++i) {
    for (Attempts attempts(10); attempts.Next();) {
      const Time begin = sim.Now();
      attempts.Pause(sim);
      const Duration paused = sim.Now() - begin;
      if (attempts.IsFirst()) longest_of_first = std::max(longest_of_first, paused);
      longest = std::max(longest, paused);
    }
  }
  EXPECT_LT(longest_of_first, milliseconds(1));
  EXPECT_GT(longest, milliseconds(64));
  EXPECT_LT(longest, milliseconds(128));
}

}  // namespace
}  // namespace pinstripe
