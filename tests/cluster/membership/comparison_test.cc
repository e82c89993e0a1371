// Drives that have forgotten what they had answered: after a loss of power, or because they go on
// from a copy of their disk. Nobody goes by what they do not have any more, and they get it back.

#include "cluster/membership/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/map/electorate.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/registers/call.h"
#include "cluster/registers/record.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

class ComparisonTest : public testing::Test {
 protected:
  static constexpr int kRegisters = 30;

  explicit ComparisonTest(size_t drives = 5, int replicas = 5)
      : sim_(1),
        machines_(sim_, {.drives = drives,
                         .layout = {2, 1, 64 << 10},
                         .groups = 4,
                         .replicas = replicas,
                         .loses_power = true}) {
    SetLogLevel(LogLevel::kError);
  }
  ~ComparisonTest() override { SetLogLevel(LogLevel::kInfo); }

  void SetUp() override {
    ASSERT_OK(machines_.Format());
    cluster_ = Open();
  }

  std::unique_ptr<Cluster> Open(std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(std::move(life));
    EXPECT_OK(cluster);
    return *std::move(cluster);
  }

  RegisterName NameOf(int number) {
    // "E": those whose slots begin anew with each epoch.
    return {static_cast<uint32_t>(number % 4), fmt::format("{}{}", number % 2 ? "E" : "I", number)};
  }

  // Changes them all; nothing of that is flushed.
  void Fill(Cluster& cluster, const std::string& value,
            Durability durability = Durability::kWriteBack) {
    for (int i = 0; i < kRegisters; ++i) {
      const auto seen = cluster.registers().Read(NameOf(i));
      ASSERT_OK(seen);
      const auto outcome = cluster.registers().Change(NameOf(i), *seen, value, durability);
      ASSERT_OK(outcome);
      ASSERT_TRUE(outcome.applied());
    }
    // Who reads brings it to those that have missed it.
    for (int i = 0; i < kRegisters; ++i) {
      for (DriveId id = 1; id <= machines_.size(); ++id) {
        const Time until = sim_.Now() + 1min;
        while (machines_.drive(id).IsUp() && OnDrive(id, i) != value && sim_.Now() < until) {
          EXPECT_EQ(cluster.registers().Read(NameOf(i))->value, value);
          sim_.Sleep(100ms);
        }
      }
    }
  }

  std::set<std::string> Values(Cluster& cluster) {
    std::set<std::string> values;
    for (int i = 0; i < kRegisters; ++i) {
      const auto value = cluster.registers().Read(NameOf(i));
      EXPECT_OK(value);
      values.insert(value.has_value() ? value->value.value_or("nothing") : "?");
    }
    return values;
  }

  // In the start that it is in now.
  bool HasSay(Cluster& cluster, DriveId id) {
    const auto voter = cluster.electorate().Find(id);
    return voter && voter->start() == machines_.StartsOf(id).front().id &&
           cluster.electorate().HasSay(id);
  }
  void WaitUntilItHasASay(Cluster& cluster, DriveId id) {
    for (const Time until = sim_.Now() + 10min; !HasSay(cluster, id) && sim_.Now() < until;) {
      (void)cluster.registers().Read(NameOf(0));  // who works meets the drives
      sim_.Sleep(1s);
    }
    ASSERT_TRUE(HasSay(cluster, id)) << "drive " << id;
  }
  void WaitUntilAllHaveASay(Cluster& cluster) {
    for (DriveId id = 1; id <= machines_.size(); ++id) WaitUntilItHasASay(cluster, id);
  }

  // What the drive itself has of a register.
  std::string OnDrive(DriveId id, int number) {
    Gather<Result<Record>> gather(sim_);
    const RegisterName name = NameOf(number);
    const std::string key = RegisterRecordKey(ClusterPrefix("test"), name);
    machines_.memory(id).Get(key, {}, Time::max(), gather.Ask(0));
    const auto record = std::move(gather.Next(Time::max())->value);
    if (!record.has_value()) return "nothing";
    const auto state = DecodeRegister(key, *record);
    EXPECT_OK(state);
    return state->proposal->value.value_or("nothing");
  }

  SimRuntime sim_;
  TestCluster machines_;
  std::unique_ptr<Cluster> cluster_;
};

// A reader that asks them first is told by them that there is nothing, while every drive is up.
TEST_F(ComparisonTest, DrivesThatForgotDoNotMakeAReaderBelieveThatThereIsNothing) {
  Fill(*cluster_, "closed");
  for (const DriveId id : {1, 2, 3}) machines_.LosePower(id, 0);
  // They answer at once, and the others late.
  for (const DriveId id : {4, 5})
    machines_.drive(id).Set({.least_latency = 80ms, .most_latency = 90ms});
  ASSERT_EQ(OnDrive(1, 0), "nothing");
  const auto reader = Open();
  EXPECT_EQ(Values(*reader), std::set<std::string>{"closed"});
  EXPECT_EQ(OnDrive(1, 0), "closed");
}

// Drives with a past, which tells of losses of power and of more starts than they remember: a new
// cluster has nothing yet that they could have forgotten. So one can be away from the first moment.
TEST_F(ComparisonTest, ANewClusterBelievesAllItsDrivesAtOnce) {
  cluster_.reset();
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.Replace(id);
    machines_.StartAnew(id, /*clean=*/true);
  }
  for (const DriveId id : {1, 2}) {
    for (size_t start = 0; start < 2 * kMaxDriveStarts; ++start) machines_.StartAnew(id, false);
  }
  ASSERT_OK(machines_.Format());
  cluster_ = Open();
  for (DriveId id = 1; id <= 5; ++id) EXPECT_TRUE(HasSay(*cluster_, id)) << "drive " << id;
  machines_.SetDown(3, true);
  machines_.SetDown(4, true);
  Fill(*cluster_, "closed");
}

// Those that have not forgotten go on alone meanwhile.
TEST_F(ComparisonTest, AMinorityThatForgotIsComparedInTheBackground) {
  Fill(*cluster_, "closed");
  for (const DriveId id : {1, 2}) machines_.LosePower(id, 0);
  EXPECT_EQ(Values(*cluster_), std::set<std::string>{"closed"});
  EXPECT_FALSE(cluster_->electorate().HasSay(1));
  EXPECT_FALSE(cluster_->electorate().HasSay(2));
  EXPECT_TRUE(cluster_->electorate().HasSay(3));
  WaitUntilAllHaveASay(*cluster_);
  for (const DriveId id : {1, 2}) {
    for (int i = 0; i < kRegisters; ++i) EXPECT_EQ(OnDrive(id, i), "closed");
  }
}

// One after the other: each time a majority is there, and none of it may have forgotten.
TEST_F(ComparisonTest, ALossOfPowerThatGoesRoundTakesNothing) {
  Fill(*cluster_, "closed");
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.LosePower(id, 0);
    WaitUntilAllHaveASay(*cluster_);
  }
  EXPECT_EQ(Values(*Open()), std::set<std::string>{"closed"});
}

TEST_F(ComparisonTest, AfterALossOfAllPowerWhatWasWrittenThroughIsThere) {
  Fill(*cluster_, "safe", Durability::kWriteThrough);
  Fill(*cluster_, "closed");
  for (DriveId id = 1; id <= 5; ++id) {
    machines_.LosePower(id, sim_.Below(machines_.memory(id).CountUnsynced() + 1));
  }
  const auto values = Values(*Open());
  EXPECT_FALSE(values.contains("nothing"));
  for (const std::string& value : values)
    EXPECT_TRUE(value == "safe" || value == "closed") << value;
  WaitUntilAllHaveASay(*cluster_);
  EXPECT_EQ(Values(*cluster_), values);
}

// What was forgotten was in a slot that somebody may go by. It never has another value.
TEST_F(ComparisonTest, NoSlotComesBackWithAnotherValue) {
  Fill(*cluster_, "safe", Durability::kWriteThrough);
  Fill(*cluster_, "forgotten");
  std::vector<RegisterValue> seen;
  for (int i = 0; i < kRegisters; ++i) seen.push_back(*cluster_->registers().Read(NameOf(i)));
  for (DriveId id = 1; id <= 5; ++id) machines_.LosePower(id, 0);
  const auto other = Open();
  EXPECT_EQ(Values(*other), std::set<std::string>{"safe"});
  Fill(*other, "new");
  for (int i = 0; i < kRegisters; ++i) {
    // By somebody who goes by what he saw before.
    const auto late = cluster_->registers().Change(NameOf(i), seen[i], "late");
    ASSERT_OK(late);
    EXPECT_FALSE(late.applied());
    EXPECT_GT(late.now.slot, seen[i].slot);
  }
  EXPECT_EQ(Values(*other), std::set<std::string>{"new"});
}

// Users know what is left by the slot that they knew it by.
TEST_F(ComparisonTest, WhatIsLeftCanBeChangedByWhoSawItBefore) {
  Fill(*cluster_, "safe", Durability::kWriteThrough);
  std::vector<RegisterValue> seen;
  for (int i = 0; i < kRegisters; ++i) seen.push_back(*cluster_->registers().Read(NameOf(i)));
  for (DriveId id = 1; id <= 5; ++id) machines_.LosePower(id, 0);
  WaitUntilAllHaveASay(*Open());
  for (int i = 0; i < kRegisters; ++i) {
    EXPECT_EQ(cluster_->registers().Read(NameOf(i))->slot, seen[i].slot);
    const auto outcome = cluster_->registers().Change(NameOf(i), seen[i], "next");
    ASSERT_OK(outcome);
    EXPECT_TRUE(outcome.applied());
  }
}

TEST_F(ComparisonTest, ADriveThatWasAwayWhenTheOthersWentOnHasNoSayUntilItIsCompared) {
  Fill(*cluster_, "safe", Durability::kWriteThrough);
  Fill(*cluster_, "forgotten but for one");
  machines_.SetDown(5, true);
  for (const DriveId id : {1, 2, 3, 4}) machines_.LosePower(id, 0);
  const Time begun = sim_.Now();
  const auto other = Open();
  EXPECT_GE(sim_.Now() - begun, 60s);  // it might have come back
  EXPECT_EQ(Values(*other), std::set<std::string>{"safe"});
  machines_.SetDown(5, false);
  const auto third = Open();
  EXPECT_EQ(Values(*third), std::set<std::string>{"safe"});
  WaitUntilAllHaveASay(*third);
  EXPECT_EQ(Values(*third), std::set<std::string>{"safe"});
  Fill(*third, "new");
  EXPECT_EQ(Values(*Open()), std::set<std::string>{"new"});
}

// Nobody notes it, so that a start is unknown to all when the next one comes.
TEST_F(ComparisonTest, ADriveThatIsStartedAnewWithoutALossIsCountedAtOnce) {
  Fill(*cluster_, "closed");
  for (int i = 0; i < 3; ++i) {
    for (DriveId id = 1; id <= 5; ++id) machines_.StartAnew(id, /*clean=*/true);
  }
  const Time begun = sim_.Now();
  const auto other = Open();
  EXPECT_LT(sim_.Now() - begun, 1s);
  for (DriveId id = 1; id <= 5; ++id) EXPECT_TRUE(other->electorate().HasSay(id));
  EXPECT_EQ(Values(*other), std::set<std::string>{"closed"});
  WaitUntilAllHaveASay(*cluster_);  // who is at work hears of it, too
}

class CopyTest : public ComparisonTest {
 protected:
  // A copy of the disk of a drive that was stopped, which is started in the place of the drive
  // after that has gone on.
  void PlugInACopy(DriveId id) {
    const std::vector<DriveStart> starts = machines_.StartsOf(id);
    const auto copy = machines_.CopyOf(id);
    machines_.StartAnew(id, /*clean=*/true);
    WaitUntilAllHaveASay(*cluster_);
    Fill(*cluster_, "since");
    machines_.Plug(id, copy, starts);
    machines_.StartAnew(id, /*clean=*/true);
  }
};

TEST_F(CopyTest, ADriveThatGoesOnFromACopyHasNoSay) {
  Fill(*cluster_, "before");
  PlugInACopy(3);
  const auto other = Open();
  EXPECT_FALSE(other->electorate().HasSay(3));
  EXPECT_FALSE(other->electorate().HasSayInMap(3));
  EXPECT_NE(other->electorate().WhyNot(3).find("a copy or a backup"), std::string::npos);
  EXPECT_EQ(Values(*other), std::set<std::string>{"since"});
  WaitUntilAllHaveASay(*other);
  for (int i = 0; i < kRegisters; ++i) EXPECT_EQ(OnDrive(3, i), "since");
}

// The copy is older than an erasure: it has what none of the others has any more.
TEST_F(CopyTest, WhatWasErasedDoesNotComeBackWithACopy) {
  Fill(*cluster_, "before");
  const std::vector<DriveStart> starts = machines_.StartsOf(3);
  const auto copy = machines_.CopyOf(3);
  machines_.StartAnew(3, /*clean=*/true);
  WaitUntilAllHaveASay(*cluster_);
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    for (int i = 0; i < kRegisters; ++i) {
      Gather<Status> gather(sim_);
      machines_.memory(id).Delete(RegisterRecordKey(ClusterPrefix("test"), NameOf(i)),
                                  Expected::Any(), Durability::kWriteThrough, Time::max(),
                                  gather.Ask(0));
      ASSERT_OK(gather.Next(Time::max())->value);
    }
  }
  machines_.Plug(3, copy, starts);
  machines_.StartAnew(3, /*clean=*/true);
  ASSERT_EQ(OnDrive(3, 0), "before");
  const auto other = Open();
  EXPECT_FALSE(other->electorate().HasSay(3));
  WaitUntilAllHaveASay(*other);
  EXPECT_EQ(Values(*other), std::set<std::string>{"nothing"});
  for (int i = 0; i < kRegisters; ++i) EXPECT_EQ(OnDrive(3, i), "nothing");
}

// The one that keeps the map and is a copy alone with those that missed what was noted of it.
TEST_F(CopyTest, ACopyIsFoundOutWhereTheOthersHaveNotHeardOfItsStart) {
  const std::vector<DriveId> map_drives = cluster_->map_drives();
  const std::vector<DriveStart> starts = machines_.StartsOf(map_drives[0]);
  const auto copy = machines_.CopyOf(map_drives[0]);
  machines_.SetDown(map_drives[3], true);
  machines_.SetDown(map_drives[4], true);
  machines_.StartAnew(map_drives[0], /*clean=*/true);
  WaitUntilItHasASay(*cluster_, map_drives[0]);
  machines_.Plug(map_drives[0], copy, starts);
  machines_.StartAnew(map_drives[0], /*clean=*/true);
  machines_.SetDown(map_drives[3], false);
  machines_.SetDown(map_drives[4], false);
  // Those that know are late.
  for (const size_t i : {1, 2}) {
    machines_.drive(map_drives[i]).Set({.least_latency = 300ms, .most_latency = 310ms});
  }
  const auto other = Open();
  EXPECT_FALSE(other->electorate().HasSay(map_drives[0]));
}

// Whoever compares them dies at any request; the next one goes on.
TEST_F(ComparisonTest, WhoComparesThemMayDieAtAnyTime) {
  for (uint64_t requests = 0;; requests += 7) {
    ASSERT_LT(requests, 20'000u);
    const std::string value = fmt::format("closed {}", requests);
    Fill(*cluster_, value);
    for (const DriveId id : {1, 2, 4}) machines_.LosePower(id, 0);
    const auto life = std::make_shared<ClientLife>();
    auto dying = machines_.Open(life);  // compares them, as without them there is no majority
    ASSERT_OK(dying);
    dying->reset();
    for (const DriveId id : {1, 2, 4}) machines_.LosePower(id, 0);
    life->CrashAfter(requests);
    const bool died = !machines_.Open(life).has_value();
    const auto other = Open();
    ASSERT_EQ(Values(*other), std::set<std::string>{value}) << requests;
    WaitUntilAllHaveASay(*cluster_);
    if (!died) break;
  }
}

// Nobody else is there to wait for: the claims that it leaves stand still.
TEST_F(ComparisonTest, WhoOpensTheClusterTakesOverFromWhoDiedComparing) {
  Fill(*cluster_, "closed");
  const auto life = std::make_shared<ClientLife>();
  auto dying = Open(life);
  std::vector<std::unique_ptr<DriveClaim>> claims;
  for (const DriveId id : {1, 2, 4}) {
    claims.push_back(std::make_unique<DriveClaim>(*dying, id, DriveWork::kCompare));
    ASSERT_OK(claims.back()->Try());
  }
  life->Crash();
  claims.clear();
  dying.reset();
  cluster_.reset();
  for (const DriveId id : {1, 2, 4}) machines_.LosePower(id, 0);
  const auto opening = std::make_shared<ClientLife>();
  std::unique_ptr<Cluster> opened;
  bool done = false;
  sim_.Spawn("opening", [&] {
    auto cluster = machines_.Open(opening);
    if (cluster.has_value()) opened = *std::move(cluster);
    done = true;
  });
  for (const Time until = sim_.Now() + 3min; !done && sim_.Now() < until;) sim_.Sleep(1s);
  EXPECT_TRUE(opened != nullptr) << "it waits for the dead";
  if (opened != nullptr) {
    EXPECT_EQ(Values(*opened), std::set<std::string>{"closed"});
  }
  if (!done) opening->Crash();
  while (!done) sim_.Sleep(1s);
}

// The same in the background, where those that have a say are enough.
TEST_F(ComparisonTest, WhoHasTheClusterOpenTakesOverFromWhoDiedComparing) {
  Fill(*cluster_, "closed");
  const auto life = std::make_shared<ClientLife>();
  auto dying = Open(life);
  DriveClaim claim(*dying, 2, DriveWork::kCompare);
  ASSERT_OK(claim.Try());
  life->Crash();
  machines_.LosePower(2, 0);
  WaitUntilItHasASay(*cluster_, 2);
}

// Or whoever opens the cluster next would wait for who has done the work.
TEST_F(ComparisonTest, AClaimThatWasGivenBackDoesNotComeBackWithTheNextLossOfPower) {
  {
    DriveClaim claim(*cluster_, 2, DriveWork::kCompare);
    ASSERT_OK(claim.Try());
    ASSERT_OK(cluster_->registers().MakeDurable({kMapGroup, DriveClaimKey(2)}));
  }
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.LosePower(id, 0);
  EXPECT_THAT(FindDriveClaims(*Open(), {2}).found, testing::IsEmpty());
}

TEST_F(ComparisonTest, ManyMayCompareThemAtOnce) {
  Fill(*cluster_, "closed");
  for (const DriveId id : {1, 2, 4}) machines_.LosePower(id, 0);
  std::vector<std::unique_ptr<Cluster>> clusters(4);
  int left = 4;
  for (int i = 0; i < 4; ++i) {
    sim_.Spawn(fmt::format("client {}", i), [&, i] {
      clusters[i] = Open();
      EXPECT_EQ(Values(*clusters[i]), std::set<std::string>{"closed"});
      --left;
    });
  }
  while (left > 0) sim_.Sleep(1s);
  for (const auto& cluster : clusters) WaitUntilAllHaveASay(*cluster);
}

// A test of the tests: were they counted as they are, a reader would be told that there is nothing.
TEST_F(ComparisonTest, WithoutAComparisonWhatWasClosedIsGone) {
  Fill(*cluster_, "closed");
  for (const DriveId id : {1, 2, 3, 4}) machines_.LosePower(id, 0);
  auto careless = Cluster::Open(sim_, machines_.config(), machines_.Factory(), nullptr, nullptr,
                                Cluster::OpenSay::kAsItIs);
  ASSERT_OK(careless);
  ComparisonOptions options;
  options.compare = false;
  options.claim = false;
  options.forgetting = 0s;
  ASSERT_OK(CompareDrives(**careless, options));
  machines_.SetDown(5, true);
  EXPECT_TRUE(Values(**careless).contains("nothing"));
}

}  // namespace
}  // namespace pinstripe
