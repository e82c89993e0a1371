#include "cluster/gather.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/real_runtime.h"
#include "base/status.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

using Numbers = Gather<Result<int>>;

class GatherTest : public testing::Test {
 protected:
  // Answers `number` after `delay`.
  void AnswerAfter(Duration delay, std::function<void(Result<int>)> answer, int number) {
    sim_.RunAt(sim_.Now() + delay, [answer, number] { answer(number); });
  }

  SimRuntime sim_{1};
};

TEST_F(GatherTest, HandsOutAnswersInTheOrderOfArrival) {
  Numbers gather(sim_);
  AnswerAfter(2s, gather.Ask(0), 20);
  AnswerAfter(1s, gather.Ask(1), 10);
  std::vector<size_t> order;
  while (auto answer = gather.Next(Time::max())) order.push_back(answer->index);
  EXPECT_EQ(order, (std::vector<size_t>{1, 0}));
}

TEST_F(GatherTest, HandsOutWhatIsThereWithoutWaiting) {
  Numbers gather(sim_);
  EXPECT_EQ(gather.TakeIfThere(), nullptr) << "nothing was asked";
  const auto first = gather.Ask(0);
  AnswerAfter(1s, gather.Ask(1), 10);
  EXPECT_EQ(gather.TakeIfThere(), nullptr);
  first(Result<int>(5));
  const Time before = sim_.Now();
  EXPECT_EQ(gather.TakeIfThere()->index, 0u);
  EXPECT_EQ(gather.TakeIfThere(), nullptr);
  EXPECT_EQ(sim_.Now(), before);
  EXPECT_EQ(gather.Next(Time::max())->index, 1u) << "what is asked for is still waited for";
}

TEST_F(GatherTest, FailuresAreAnswersToo) {
  Gather<Status> gather(sim_);
  sim_.RunAt(sim_.Now(), [answer = gather.Ask(7)] { answer(Status(EIO, "broken")); });
  auto answer = gather.Next(Time::max());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->index, 7u);
  EXPECT_EQ(answer->value.code(), EIO);
}

TEST_F(GatherTest, DoesNotWaitWhenNothingIsUnanswered) {
  Numbers gather(sim_);
  EXPECT_FALSE(gather.Next(Time::max()));
}

TEST_F(GatherTest, StopsAtTheDeadlineAndMayBeAskedToWaitOn) {
  Numbers gather(sim_);
  AnswerAfter(10s, gather.Ask(0), 1);
  const Time start = sim_.Now();
  EXPECT_FALSE(gather.Next(start + 1s));
  EXPECT_LT(sim_.Now(), start + 2s);
  EXPECT_EQ(gather.outstanding(), 1u);
  EXPECT_TRUE(gather.Next(start + 20s));
  EXPECT_EQ(gather.outstanding(), 0u);
}

TEST_F(GatherTest, MoreMayBeAskedWhileOthersAreLate) {
  Numbers gather(sim_);
  AnswerAfter(10s, gather.Ask(0), 1);
  EXPECT_FALSE(gather.Next(sim_.Now() + 1s));
  AnswerAfter(1s, gather.Ask(1), 2);
  EXPECT_EQ(gather.Next(Time::max())->index, 1u);
}

TEST_F(GatherTest, WaitsForSeveralTogetherAndHandsThemOutOneByOne) {
  Numbers gather(sim_);
  for (int i = 0; i < 3; ++i) AnswerAfter((i + 1) * 1s, gather.Ask(static_cast<size_t>(i)), i);
  const Time start = sim_.Now();
  EXPECT_EQ(gather.Next(Time::max(), 2)->index, 0u);
  EXPECT_GE(sim_.Now(), start + 2s);
  EXPECT_EQ(gather.Next(start, 1)->index, 1u);  // it was there
  EXPECT_LT(sim_.Now(), start + 3s);
}

TEST_F(GatherTest, NeverWaitsForMoreTogetherThanAreLeft) {
  Numbers gather(sim_);
  AnswerAfter(1s, gather.Ask(0), 1);
  EXPECT_EQ(gather.Next(Time::max(), 5)->index, 0u);
}

TEST_F(GatherTest, TakesThemAsTheyComeOncePatienceIsOver) {
  Numbers gather(sim_);
  for (int i = 0; i < 3; ++i) AnswerAfter((i + 1) * 10s, gather.Ask(static_cast<size_t>(i)), i);
  const Time start = sim_.Now();
  EXPECT_EQ(gather.Next(Time::max(), 3, start + 5s)->index, 0u);  // came after it was over
  EXPECT_LT(sim_.Now(), start + 11s);
  EXPECT_EQ(gather.Next(Time::max(), 2, start + 25s)->index, 1u);  // came before
  EXPECT_GE(sim_.Now(), start + 25s);
}

TEST_F(GatherTest, AtTheDeadlineWhatHasComeIsTakenAlthoughMoreWereWanted) {
  Numbers gather(sim_);
  for (int i = 0; i < 3; ++i) AnswerAfter((i + 1) * 10s, gather.Ask(static_cast<size_t>(i)), i);
  const Time start = sim_.Now();
  EXPECT_EQ(gather.Next(start + 15s, 3)->index, 0u);
  EXPECT_FALSE(gather.Next(start + 15s, 2));
  EXPECT_EQ(gather.outstanding(), 2u);
}

TEST_F(GatherTest, LateAnswersAreDropped) {
  auto held = std::make_shared<int>(0);
  using Held = Gather<Result<std::shared_ptr<int>>>;
  {
    Held gather(sim_);
    for (Duration delay : {1s, 2s}) {
      sim_.RunAt(sim_.Now() + delay, [answer = gather.Ask(0), held] { answer(held); });
    }
    sim_.Sleep(1500ms);  // one has arrived and was not taken, one is still on its way
  }
  sim_.Sleep(1s);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Gather, AnswersComeFromManyThreads) {
  RealRuntime runtime;
  for (int round = 0; round < 50; ++round) {
    Numbers gather(runtime);
    for (int i = 0; i < 8; ++i) {
      runtime.Spawn("answerer", [answer = gather.Ask(i), i] { answer(i); });
    }
    int sum = 0;
    for (size_t i = 0; i < 5; ++i) {
      const size_t together = round % 2 == 0 ? 1 : 5 - i;
      sum += *gather.Next(Time::max(), together)->value;
    }
    EXPECT_GE(sum, 0 + 1 + 2 + 3 + 4);
  }
}

}  // namespace
}  // namespace pinstripe
