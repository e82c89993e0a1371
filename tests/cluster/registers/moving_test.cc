// Registers that are being copied to other replicas (GroupReplicas::are_moving): nobody decides
// anything with the old ones but who copies them. docs/format.md, "Names on an engine".

#include <gtest/gtest.h>

#include "cluster/registers/store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/replica_set.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

const RegisterName kMoved{7, "I1"};

class MovingTest : public testing::Test {
 protected:
  std::unique_ptr<RegisterStore> NewStore() {
    return std::make_unique<RegisterStore>(
        sim_, client_, RegisterStore::Options{.prefix = "\1c", .move_timeout = 20s});
  }

  // A change of somebody who dies reaches three replicas of five, so that nobody can tell whether
  // it is chosen until somebody decides it.
  void LeaveUndecided() {
    ReplicaClient dying(sim_, five_);
    RegisterStore store(sim_, dying, {.prefix = "\1c"});
    const auto seen = store.Read(kMoved);
    ASSERT_OK(seen);
    for (const size_t i : {3u, 4u}) five_.drives[i]->Set({.lose_request = 1});
    dying.life->CrashAfter(5);
    (void)store.Change(kMoved, *seen, "undecided");
    five_.SetAll({});
    sim_.Sleep(1s);
  }

  SimRuntime sim_{1};
  ReplicaSet five_{sim_, 5};
  ReplicaClient client_{sim_, five_};
  std::unique_ptr<RegisterStore> store_ = NewStore();
};

TEST_F(MovingTest, WhatIsChosenIsReadAndNothingIsDecided) {
  ASSERT_TRUE(store_->Change(kMoved, {}, "chosen").applied());
  client_.are_moving = true;
  const auto read = store_->Read(kMoved);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "chosen");

  LeaveUndecided();
  five_.ForgetRequests();
  EXPECT_FAILS(NewStore()->Read(kMoved), EIO);
  EXPECT_EQ(five_.requests().put, 0u) << "a reader must not make anything chosen";
  client_.are_moving = false;
  const auto decided = NewStore()->Read(kMoved);
  ASSERT_OK(decided);
  EXPECT_EQ(decided->value, "undecided");
}

TEST_F(MovingTest, ChangesWaitForTheEndOrFailWhenItDoesNotCome) {
  client_.are_moving = true;
  const Time begin = sim_.Now();
  const ChangeOutcome late = store_->Change(kMoved, {}, "too late");
  EXPECT_EQ(late.why.code(), EIO);
  EXPECT_EQ(late.effect, Effect::kRefused);
  EXPECT_GE(sim_.Now() - begin, 20s);
  sim_.RunAt(sim_.Now() + 5s, [this] { client_.are_moving = false; });
  EXPECT_TRUE(store_->Change(kMoved, {}, "in time").applied());
  const auto read = store_->Read(kMoved);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "in time");
}

TEST_F(MovingTest, ACopyIsDecidedAndHasEverythingAndASecondLookFindsNothing) {
  ASSERT_TRUE(store_->Change(kMoved, {}, "first").applied());
  const RegisterName gone{7, "Egone"};
  ASSERT_TRUE(store_->Change(gone, {}, "here").applied());
  ASSERT_TRUE(store_->Change(gone, *store_->Read(gone), std::nullopt).applied());
  LeaveUndecided();
  client_.are_moving = true;
  MemoryDrive copy(sim_, "copy");
  const auto first = store_->CopyTo(copy, 7, client_.Replicas(7));
  ASSERT_OK(first);
  EXPECT_EQ(first->registers, 2u);
  EXPECT_EQ(first->behind, 2u);
  const auto second = store_->CopyTo(copy, 7, client_.Replicas(7));
  ASSERT_OK(second);
  EXPECT_EQ(second->behind, 0u);
  client_.are_moving = false;
  const auto read = NewStore()->Read(kMoved);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "undecided") << "what was copied was decided first";
}

}  // namespace
}  // namespace pinstripe
