// What an operation waits for, and for whom.

#include "base/operation_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::SizeIs;
using Wait = OperationTrace::Wait;

// Its clock stands still until a test moves it.
class StoppedClock final : public Runtime {
 public:
  Time Now() override {
    ++looks;
    return now;
  }
  int64_t WallClock() override { return 0; }
  void RunAt(Time, Task) override {}
  void Spawn(std::string, Task) override {}
  std::shared_ptr<Signal> NewSignal() override { return nullptr; }
  uint64_t Random() override { return 0; }

  Time now{};
  int looks = 0;
};

class OperationTraceTest : public testing::Test {
 protected:
  void WaitFor(Wait kind, Duration time, uint64_t asked_by = 0) {
    const OperationTrace::Waiting waiting(clock_, kind, asked_by);
    clock_.now += time;
  }
  StoppedClock clock_;
};

TEST_F(OperationTraceTest, AThreadKnowsTheOperationOnWhichItIsAtWork) {
  EXPECT_EQ(OperationTrace::CurrentId(), 0u);
  const OperationTrace outer;
  EXPECT_EQ(OperationTrace::CurrentId(), outer.id());
  {
    const OperationTrace inner;
    EXPECT_NE(inner.id(), outer.id());
    EXPECT_EQ(OperationTrace::CurrentId(), inner.id());
  }
  EXPECT_EQ(OperationTrace::CurrentId(), outer.id());
  std::thread([] { EXPECT_EQ(OperationTrace::CurrentId(), 0u); }).join();
}

TEST_F(OperationTraceTest, NoTwoHaveOneNumber) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      for (int each = 0; each < 100; ++each) ids.insert(OperationTrace().id());
    }).join();
  }
  EXPECT_THAT(ids, SizeIs(300));
  EXPECT_FALSE(ids.contains(0));
}

TEST_F(OperationTraceTest, TellsForHowLongItWaitedForWhat) {
  const OperationTrace trace;
  WaitFor(Wait::kMemory, 3s);
  WaitFor(Wait::kDrives, 1s);
  WaitFor(Wait::kMemory, 2s);
  EXPECT_EQ(trace.waited(Wait::kMemory), 5s);
  EXPECT_EQ(trace.waited(Wait::kDrives), 1s);
  EXPECT_EQ(trace.waited(Wait::kTurn), 0s);
}

// Who waits for memory may have drives store something meanwhile: that time is not counted twice.
TEST_F(OperationTraceTest, OfWaitsWithinOneAnotherTheOutermostCounts) {
  const OperationTrace trace;
  {
    const OperationTrace::Waiting waiting(clock_, Wait::kMemory);
    WaitFor(Wait::kDrives, 4s);
  }
  EXPECT_EQ(trace.waited(Wait::kMemory), 4s);
  EXPECT_EQ(trace.waited(Wait::kDrives), 0s);
}

TEST_F(OperationTraceTest, WithoutAnOperationNobodyLooksAtTheClock) {
  WaitFor(Wait::kDrives, 1s);
  EXPECT_EQ(clock_.looks, 0);
}

TEST_F(OperationTraceTest, RemembersWhoseRequestsKeptItWaitingForLong) {
  const OperationTrace trace;
  WaitFor(Wait::kDrives, 1ms, 7);
  EXPECT_THAT(trace.Ids(), ElementsAre(trace.id())) << "not for long";
  WaitFor(Wait::kDrives, 1s, 7);
  WaitFor(Wait::kTurn, 1s, 8);
  WaitFor(Wait::kDrives, 1s, 7);
  WaitFor(Wait::kDrives, 1s, trace.id());
  EXPECT_THAT(trace.Ids(), ElementsAre(trace.id(), 7, 8));
  for (uint64_t other = 100; other < 120; ++other) WaitFor(Wait::kDrives, 1s, other);
  const std::vector<uint64_t> ids = trace.Ids();
  EXPECT_THAT(ids, SizeIs(1 + OperationTrace::kMostOthers)) << "the last ones";
  EXPECT_THAT(ids, testing::Contains(119));
  EXPECT_THAT(ids, testing::Not(testing::Contains(100)));
}

}  // namespace
}  // namespace pinstripe
