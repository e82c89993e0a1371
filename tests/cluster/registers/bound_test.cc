// Changes with companions (RegisterStore::ChangeBound()): records beside the replicas, without
// which a change is of no use. docs/format.md, "Registers".

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "cluster/gather.h"
#include "cluster/registers/rules.h"
#include "cluster/registers/store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gen.h"
#include "tests/support/replica_set.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

const RegisterName kBound{7, "I1"};

class BoundTest : public testing::Test {
 protected:
  std::unique_ptr<RegisterStore> NewStore() {
    clients_.push_back(std::make_unique<ReplicaClient>(sim_, five_));
    return std::make_unique<RegisterStore>(sim_, *clients_.back(),
                                           RegisterStore::Options{.prefix = "\1c"});
  }

  // What the first client sends, with companions; null: they are removed instead.
  Companions With(std::optional<std::string> otherwise = std::nullopt) {
    Companions companions;
    const std::vector<Drive*> drives = clients_.front()->Replicas(7).drives;
    for (const Drive* drive : drives) {
      companions.all.push_back({drive, {"companion", Expected::Version("1")}});
    }
    companions.send = [this, drives] {
      ++sent_;
      for (Drive* drive : drives) {
        drive->Put({.key = "companion",
                    .value = SharedBytes("x"),
                    .version = "1",
                    .expected = Expected::Absent()},
                   sim_.Now() + 5s, [](const Status&) {});
      }
    };
    companions.least = 3;
    companions.otherwise = std::move(otherwise);
    return companions;
  }

  size_t CountCompanions() {
    Gather<Result<RecordHead>> gather(sim_);
    for (size_t i = 0; i < 5; ++i) five_.memory[i]->Head("companion", Time::max(), gather.Ask(i));
    size_t found = 0;
    while (const auto answer = gather.Next(Time::max())) found += answer->value.has_value();
    return found;
  }

  // A client sends all that it has, which reaches these drives alone, and dies.
  void DieAt(unsigned reached, const Companions& companions, const RegisterValue& seen = {}) {
    for (size_t i = 0; i < 5; ++i) {
      if ((reached >> i & 1) == 0) five_.drives[i]->Set({.lose_request = 1});
    }
    clients_.front()->life->CrashAfter(5);
    (void)store_->ChangeBound({kBound, seen, "bound", &companions});
    five_.SetAll({});
    sim_.Sleep(1s);
  }

  SimRuntime sim_{1};
  ReplicaSet five_{sim_, 5};
  std::vector<std::unique_ptr<ReplicaClient>> clients_;
  std::unique_ptr<RegisterStore> store_ = NewStore();
  std::unique_ptr<RegisterStore> other_ = NewStore();
  int sent_ = 0;
};

TEST_F(BoundTest, GoesWithItsCompanionsInOneMessageToEachReplica) {
  const Companions companions = With();
  five_.ForgetRequests();
  const auto outcome = store_->ChangeBound({kBound, {}, "bound", &companions});
  EXPECT_TRUE(outcome.applied());
  EXPECT_TRUE(outcome.everywhere);
  EXPECT_EQ(five_.requests().put, 5u);
  EXPECT_EQ(sent_, 1);
  EXPECT_EQ(CountCompanions(), 5u);
  EXPECT_EQ(other_->Read(kBound)->value, "bound");
}

// Nothing is sent where not every replica could tell at once that it has both.
TEST_F(BoundTest, IsNotTriedWithoutAReplica) {
  const Companions companions = With();
  five_.drives[3]->Set({.down = true});
  sim_.Sleep(1s);
  const auto outcome = store_->ChangeBound({kBound, {}, "bound", &companions});
  EXPECT_EQ(outcome.effect, Effect::kRefused);
  EXPECT_EQ(outcome.why.code(), EAGAIN);
  EXPECT_EQ(sent_, 0);
  EXPECT_EQ(other_->Read(kBound)->slot, 0u);
}

TEST_F(BoundTest, IsNotTriedWhereCompanionsAreOnOtherDrives) {
  Companions companions = With();
  std::swap(companions.all[0], companions.all[1]);
  EXPECT_EQ(store_->ChangeBound({kBound, {}, "bound", &companions}).why.code(), EAGAIN);
  EXPECT_EQ(sent_, 0);
}

// Each replica keeps both.
TEST_F(BoundTest, IsNotTriedWithMoreThanARegisterHolds) {
  const Companions companions = With(std::string(kMaxRegisterBytes - 4, 'x'));
  EXPECT_EQ(store_->ChangeBound({kBound, {}, "bound", &companions}).why.code(), EAGAIN);
  EXPECT_EQ(sent_, 0);
  EXPECT_TRUE(store_->ChangeBound({kBound, {}, "four", &companions}).applied());
}

// A replica that has something else under the companion's name takes neither.
TEST_F(BoundTest, AReplicaWithoutItsCompanionDoesNotTakeIt) {
  Gather<Status> gather(sim_);
  five_.memory[4]->Put({.key = "companion", .value = SharedBytes("y"), .version = "2"}, Time::max(),
                       gather.Ask(0));
  ASSERT_OK(gather.Next(Time::max())->value);
  const Companions companions = With();
  const auto outcome = store_->ChangeBound({kBound, {}, "bound", &companions});
  EXPECT_TRUE(outcome.applied()) << "four have it";
  EXPECT_FALSE(outcome.everywhere);
}

TEST_F(BoundTest, IsGivenUpByItsProposerWhereTooFewTakeIt) {
  for (size_t i = 0; i < 3; ++i) {
    Gather<Status> gather(sim_);
    five_.memory[i]->Put({.key = "companion", .value = SharedBytes("y"), .version = "2"},
                         Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  const Companions companions = With("instead");
  const auto outcome = store_->ChangeBound({kBound, {}, "bound", &companions});
  EXPECT_EQ(outcome.effect, Effect::kRefused);
  EXPECT_TRUE(outcome.otherwise);
  EXPECT_EQ(outcome.now.value, "instead");
  EXPECT_TRUE(outcome.now.is_instead);
  // Its proposer may go on from there.
  EXPECT_TRUE(store_->Change(kBound, outcome.now, "next").applied());
}

// Whichever drives a proposer reaches before it dies: whoever reads has the value with enough
// companions, or what is to be there instead, and so for ever.
TEST_F(BoundTest, OfOneThatDiedThereIsAllOrWhatIsToBeThereInstead) {
  std::map<std::string, int> outcomes;
  for (const std::optional<std::string>& otherwise :
       {std::optional<std::string>(), std::optional<std::string>("instead")}) {
    for (unsigned reached = 0; reached < 32; ++reached) {
      SCOPED_TRACE(reached);
      five_ = ReplicaSet(sim_, 5);
      clients_.clear();
      store_ = NewStore();
      other_ = NewStore();
      DieAt(reached, With(otherwise));
      const auto first = other_->Read(kBound);
      ASSERT_OK(first);
      if (first->value == "bound") {
        EXPECT_GE(CountCompanions(), 3u);
      } else {
        EXPECT_LE(std::popcount(reached), 3);
        EXPECT_EQ(first->value, first->slot == 0 ? std::nullopt : otherwise);
        EXPECT_EQ(first->is_instead, first->slot == 1);
      }
      if (std::popcount(reached) > 3) {
        EXPECT_EQ(first->value, "bound");
      }
      ++outcomes[first->slot == 0 ? "never written" : first->value.value_or("removed")];
      if (first->slot == 0) continue;
      const auto again = NewStore()->Read(kBound);
      ASSERT_OK(again);
      EXPECT_EQ(again->value, first->value);
    }
  }
  EXPECT_GT(outcomes["bound"], 10);
  EXPECT_GT(outcomes["removed"], 5);
  EXPECT_GT(outcomes["instead"], 5);
}

// Two of the three that answer have it. If the two others had it as well it would be chosen.
TEST_F(BoundTest, IsUndecidedWhileOnlyThoseThatAreAwayCanTell) {
  DieAt(0b00011, With("instead"));
  five_.drives[3]->Set({.down = true});
  five_.drives[4]->Set({.down = true});
  sim_.Sleep(1s);
  EXPECT_FAILS(other_->Read(kBound), EIO);
  five_.drives[3]->Set({});
  sim_.Sleep(1s);
  const auto read = other_->Read(kBound);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "instead");
}

// If they are lost for ever the one that takes the place of one of them is given the same.
TEST_F(BoundTest, IsGivenUpWhereThoseThatCouldTellAreLost) {
  DieAt(0b00011, With("instead"));
  five_.drives[3]->Set({.down = true});
  five_.drives[4]->Set({.down = true});
  sim_.Sleep(40s);
  MemoryDrive fresh(sim_, "fresh");
  ASSERT_OK(other_->Restore(7, 3, fresh));
  five_.drives[3]->Set({});
  sim_.Sleep(1s);
  const auto read = other_->Read(kBound);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "instead");
}

// Who copies registers to other replicas has lost nobody: it waits for those who can tell.
TEST_F(BoundTest, IsNotGivenUpForACopy) {
  DieAt(0b11011, With("instead"));  // chosen, by four
  five_.drives[3]->Set({.down = true});
  five_.drives[4]->Set({.down = true});
  sim_.Sleep(40s);
  MemoryDrive copy(sim_, "copy");
  EXPECT_FAILS(other_->CopyTo(copy, 7, clients_.back()->Replicas(7)), EIO);
  five_.SetAll({});
  sim_.Sleep(1s);
  ASSERT_OK(other_->CopyTo(copy, 7, clients_.back()->Replicas(7)));
  const auto read = other_->Read(kBound);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "bound");
}

// ---- The rules, for all that a majority may tell

ReplicaStates StatesOf(const std::vector<int>& votes, const ProposalPtr& bound) {
  ReplicaStates states;
  for (const int vote : votes) {
    if (vote < 0) {
      states.emplace_back();
    } else if (vote == 0) {
      states.emplace_back(ReplicaState());
    } else {
      states.push_back(ReplicaState{Ballot::Fast(1), Ballot::Fast(1), bound});
    }
  }
  return states;
}

TEST(BoundRules, NothingIsMadeChosenThatMayLackItsCompanions) {
  for (const int r : {3, 5, 7, 9}) {
    const Quorums quorums = QuorumsOf(static_cast<size_t>(r));
    const auto bound = std::make_shared<const Proposal>(
        Proposal{.nonce = {1, 2},
                 .value = "bound",
                 .bound = Bound{.least = static_cast<uint8_t>(quorums.majority),
                                .otherwise = "instead",
                                .proposed_at = 1}});
    Gen gen;
    while (gen.Next()) {
      std::vector<int> votes;
      for (int i = 0; i < r; ++i) votes.push_back(gen.UpTo(2) - 1);
      const auto count = [&](int what) {
        return static_cast<size_t>(std::ranges::count(votes, what));
      };
      if (count(-1) + quorums.majority > quorums.replicas || count(1) == 0) continue;
      const ReplicaStates states = StatesOf(votes, bound);
      const bool may_be_chosen = count(1) + count(-1) >= quorums.fast;
      const bool is_enough = count(1) >= quorums.majority;
      EXPECT_EQ(LacksCompanions(states, 1, *bound), !is_enough);
      EXPECT_EQ(MayBeChosen(quorums, states, 1) != nullptr, may_be_chosen);
      const ProposalPtr most = MostAccepted(states, 1);
      EXPECT_EQ(most->value, is_enough ? "bound" : "instead");
      EXPECT_EQ(most->is_instead, !is_enough);
    }
  }
}

// With three replicas nobody ever has to wait for those that are away.
TEST(BoundRules, OfThreeReplicasAnyTwoDecide) {
  const Quorums quorums = QuorumsOf(3);
  const auto bound = std::make_shared<const Proposal>(
      Proposal{.nonce = {1, 2}, .value = "b", .bound = Bound{.least = 2, .proposed_at = 1}});
  for (const std::vector<int>& votes : {std::vector{1, 0, -1}, std::vector{1, 1, -1}}) {
    const ReplicaStates states = StatesOf(votes, bound);
    const ProposalPtr may = MayBeChosen(quorums, states, 1);
    EXPECT_TRUE(may == nullptr || !LacksCompanions(states, 1, *may));
  }
}

}  // namespace
}  // namespace pinstripe
