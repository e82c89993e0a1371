#include "cluster/stripes/janitor.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

class JanitorTest : public testing::Test {
 protected:
  SimRuntime sim_{1};
  std::shared_ptr<Janitor> janitor_ = std::make_shared<Janitor>(sim_);
  std::vector<int> done_;
};

TEST_F(JanitorTest, DoesOneJobAfterTheOther) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(janitor_->Add(std::to_string(i), [this, i] {
      sim_.Sleep(seconds(1));
      done_.push_back(i);
    }));
  }
  EXPECT_FALSE(janitor_->WaitUntilIdle(sim_.Now() + seconds(2)));
  EXPECT_TRUE(janitor_->WaitUntilIdle(sim_.Now() + seconds(2)));
  EXPECT_EQ(done_, (std::vector<int>{0, 1, 2}));
  janitor_->Close();
}

TEST_F(JanitorTest, AJobThatWaitsIsNotAddedTwice) {
  EXPECT_TRUE(janitor_->Add("a", [this] { done_.push_back(1); }));
  EXPECT_FALSE(janitor_->Add("a", [this] { done_.push_back(2); }));
  EXPECT_TRUE(janitor_->WaitUntilIdle(Time::max()));
  EXPECT_TRUE(janitor_->Add("a", [this] { done_.push_back(3); }));
  EXPECT_TRUE(janitor_->WaitUntilIdle(Time::max()));
  EXPECT_EQ(done_, (std::vector<int>{1, 3}));
  janitor_->Close();
}

TEST_F(JanitorTest, CloseWaitsForTheJobAtHandAndDropsTheOthers) {
  for (int i = 0; i < 3; ++i) {
    janitor_->Add(std::to_string(i), [this, i] {
      sim_.Sleep(seconds(10));
      done_.push_back(i);
    });
  }
  sim_.Sleep(seconds(1));
  janitor_->Close();
  EXPECT_EQ(done_, std::vector<int>{0});
  EXPECT_FALSE(janitor_->Add("late", [this] { done_.push_back(9); }));
}

TEST_F(JanitorTest, ItsThreadEndsWhenThereIsNothingToDoAndComesBack) {
  janitor_->Add("a", [this] { done_.push_back(1); });
  sim_.Run();  // returns only because the thread ends by itself
  janitor_->Add("b", [this] { done_.push_back(2); });
  sim_.Run();
  EXPECT_EQ(done_, (std::vector<int>{1, 2}));
  janitor_->Close();
}

TEST_F(JanitorTest, AFullQueueDropsWork) {
  int added = 0;
  for (int i = 0; i < 5000; ++i) added += janitor_->Add(std::to_string(i), [] {});
  EXPECT_LT(added, 5000);
  EXPECT_GE(added, 1000);
  janitor_->Close();
}

}  // namespace
}  // namespace pinstripe
