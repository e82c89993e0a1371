#include "cluster/registers/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/gather.h"
#include "cluster/registers/call.h"
#include "tests/support/expect_ok.h"
#include "tests/support/replica_set.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

const RegisterName kName{7, "name"};
constexpr Duration kRoundTrip = 200ms;  // long compared with what chance adds

// A store on `count` drives whose answers take kRoundTrip, so that round trips can be counted.
class Replicas {
 public:
  explicit Replicas(size_t count) : set(sim, count) { set.SetAll(Healthy()); }

  static DriveFaults Healthy() {
    return {.least_latency = kRoundTrip / 2, .most_latency = kRoundTrip / 2};
  }
  static DriveFaults Down() { return {.down = true}; }

  std::unique_ptr<RegisterStore> NewStore() {
    clients.push_back(std::make_unique<ReplicaClient>(sim, set));
    return std::make_unique<RegisterStore>(
        sim, *clients.back(), RegisterStore::Options{.prefix = "\1c", .straggler = 2 * kRoundTrip});
  }

  // Lets everything that is on its way arrive, then counts from zero.
  void Settle() {
    sim.Sleep(1s);
    set.ForgetRequests();
    start = sim.Now();
  }
  // Since Settle().
  int64_t RoundTrips() { return (sim.Now() - start + kRoundTrip / 2) / kRoundTrip; }

  SimRuntime sim{1};
  ReplicaSet set;
  std::vector<std::unique_ptr<ReplicaClient>> clients;
  Time start{};
};

class RegisterStoreTest : public testing::Test {
 protected:
  RegisterValue Set(RegisterStore& store, const RegisterValue& seen,
                    std::optional<std::string> to) {
    const ChangeOutcome outcome = store.Change(kName, seen, std::move(to));
    EXPECT_OK(outcome);
    EXPECT_TRUE(outcome.applied());
    return outcome.now;
  }

  Replicas three_{3};
  std::unique_ptr<RegisterStore> store_ = three_.NewStore();
  std::unique_ptr<RegisterStore> other_ = three_.NewStore();
};

TEST_F(RegisterStoreTest, WhatWasNeverWrittenIsAbsentInSlotZero) {
  const Result<RegisterValue> value = store_->Read(kName);
  ASSERT_OK(value);
  EXPECT_EQ(value->slot, 0u);
  EXPECT_EQ(value->value, std::nullopt);
}

TEST_F(RegisterStoreTest, EveryChangeRaisesTheSlotByOne) {
  RegisterValue value = Set(*store_, {}, "a");
  EXPECT_EQ(value.slot, 1u);
  value = Set(*store_, value, "b");
  EXPECT_EQ(value.slot, 2u);
  const Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  EXPECT_EQ(read->slot, 2u);
  EXPECT_EQ(read->value, "b");
}

TEST_F(RegisterStoreTest, AChangeOfWhatIsNoLongerCurrentIsRefusedWithTheValueThatIs) {
  const RegisterValue first = Set(*store_, {}, "a");
  Set(*other_, first, "b");
  const ChangeOutcome late = store_->Change(kName, first, "c");
  ASSERT_OK(late);
  EXPECT_FALSE(late.applied());
  EXPECT_EQ(late.now.slot, 2u);
  EXPECT_EQ(late.now.value, "b");
}

TEST_F(RegisterStoreTest, OfTwoWhoCreateItOneLoses) {
  Set(*store_, {}, "mine");
  const ChangeOutcome second = other_->Change(kName, {}, "yours");
  ASSERT_OK(second);
  EXPECT_FALSE(second.applied());
  EXPECT_EQ(second.now.value, "mine");
}

TEST_F(RegisterStoreTest, ARemovedOneIsAbsentAndMayBeWrittenAgain) {
  RegisterValue value = Set(*store_, {}, "a");
  value = Set(*store_, value, std::nullopt);
  Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, std::nullopt);
  EXPECT_EQ(read->slot, 2u);
  Set(*other_, *read, "b");
  EXPECT_EQ(store_->Read(kName)->value, "b");
}

TEST_F(RegisterStoreTest, AnEmptyValueIsPresent) {
  Set(*store_, {}, "");
  EXPECT_EQ(other_->Read(kName)->value, "");
}

TEST_F(RegisterStoreTest, RefusesWhatDoesNotFit) {
  EXPECT_FAILS(store_->Change(kName, {}, std::string(kMaxRegisterBytes + 1, 'x')), EFBIG);
  EXPECT_OK(store_->Change(kName, {}, std::string(kMaxRegisterBytes, 'x')));
  EXPECT_FAILS(store_->Read({1, ""}), EINVAL);
  EXPECT_FAILS(store_->Change({1, std::string(1025, 'x')}, {}, "a"), EINVAL);
}

// ---- What it costs: the table "What a register costs" in docs/decisions/0002-registers.md.

struct Cost {
  int64_t round_trips = 0;
  uint64_t gets = 0;
  uint64_t puts = 0;
  uint64_t ranges = 0;
  friend bool operator==(const Cost&, const Cost&) = default;
  friend void PrintTo(const Cost& cost, std::ostream* out) {
    *out << cost.round_trips << " round trips, " << cost.gets << " gets, " << cost.puts << " puts, "
         << cost.ranges << " ranges";
  }
};

class RegisterCostTest : public testing::TestWithParam<size_t> {
 protected:
  // What `operation` waits for, and what it sends, also when it no longer waits.
  template <typename Operation>
  Cost CostOf(Operation operation) {
    replicas_.Settle();
    operation();
    const int64_t round_trips = replicas_.RoundTrips();
    replicas_.sim.Sleep(1s);
    const DriveRequests requests = replicas_.set.requests();
    EXPECT_EQ(requests.total(), requests.get + requests.put + requests.range);
    return {round_trips, requests.get, requests.put, requests.range};
  }

  RegisterValue Set(RegisterStore& store, const RegisterValue& seen,
                    std::optional<std::string> to) {
    const ChangeOutcome outcome = store.Change(kName, seen, std::move(to));
    EXPECT_OK(outcome);
    EXPECT_TRUE(outcome.applied());
    return outcome.now;
  }

  // One request to each replica in the last round trip of a change: a put in the fast round, or, to
  // the few whose state was not waited for, a get.
  void ExpectFastRound(const Cost& cost, int64_t round_trips) const {
    EXPECT_EQ(cost.round_trips, round_trips);
    EXPECT_EQ(cost.gets + cost.puts, static_cast<uint64_t>(round_trips) * r_);
    EXPECT_GE(cost.puts, QuorumsOf(r_).fast);
    EXPECT_LE(cost.puts, r_);
  }

  // Promises and acceptances: of those that are up, or of as many as answered when they were
  // enough.
  void ExpectClassicRound(const Cost& cost, int64_t round_trips, uint64_t gets, uint64_t up) const {
    EXPECT_EQ(cost.round_trips, round_trips);
    EXPECT_EQ(cost.gets, gets);
    EXPECT_GE(cost.puts, 2 * QuorumsOf(r_).majority);
    EXPECT_LE(cost.puts, 2 * up);
  }

  // As few as make the fast round impossible. How many are up then?
  uint64_t TakeDrivesAway() {
    const size_t up = QuorumsOf(r_).fast - 1;
    for (size_t i = up; i < r_; ++i) replicas_.set.drives[i]->Set(Replicas::Down());
    return up;
  }

  const size_t r_ = GetParam();
  Replicas replicas_{r_};
  std::unique_ptr<RegisterStore> store_ = replicas_.NewStore();
  std::unique_ptr<RegisterStore> other_ = replicas_.NewStore();
};

TEST_P(RegisterCostTest, ARead) {
  EXPECT_EQ(CostOf([&] { ASSERT_OK(store_->Read(kName)); }), (Cost{1, r_, 0}));
  Set(*store_, {}, "a");
  EXPECT_EQ(CostOf([&] { ASSERT_OK(other_->Read(kName)); }), (Cost{1, r_, 0}));
}

TEST_P(RegisterCostTest, AReadOfManyIsOneRoundTrip) {
  std::vector<RegisterName> names;
  for (int i = 0; i < 50; ++i) names.push_back({7, fmt::format("{}", i)});
  EXPECT_EQ(CostOf([&] { store_->ReadMany(names); }), (Cost{1, 50 * r_, 0}));
}

TEST_P(RegisterCostTest, TheFirstChange) {
  EXPECT_EQ(CostOf([&] { Set(*store_, {}, "a"); }), (Cost{1, 0, r_}));
}

TEST_P(RegisterCostTest, AChangeAfterAChange) {
  const RegisterValue value = Set(*store_, {}, "a");
  EXPECT_EQ(CostOf([&] { Set(*store_, value, "b"); }), (Cost{1, 0, r_}));
}

TEST_P(RegisterCostTest, AChangeAfterARead) {
  Set(*store_, {}, "a");
  const Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  ExpectFastRound(CostOf([&] { Set(*other_, *read, "b"); }), 1);
}

TEST_P(RegisterCostTest, AChangeOfWhatIsNotRemembered) {
  const RegisterValue value = Set(*store_, {}, "a");
  ExpectFastRound(CostOf([&] { Set(*other_, value, "b"); }), 2);
}

TEST_P(RegisterCostTest, ARemovalIsAChange) {
  const RegisterValue value = Set(*store_, {}, "a");
  EXPECT_EQ(CostOf([&] { Set(*store_, value, std::nullopt); }), (Cost{1, 0, r_}));
  const Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  ExpectFastRound(CostOf([&] { Set(*other_, *read, "again"); }), 1);
}

TEST_P(RegisterCostTest, AConflict) {
  const RegisterValue first = Set(*store_, {}, "a");
  Set(*other_, first, "b");
  replicas_.Settle();
  const Cost cost = CostOf([&] {
    const auto outcome = store_->Change(kName, first, "c");
    ASSERT_OK(outcome);
    EXPECT_FALSE(outcome.applied());
  });
  EXPECT_EQ(cost.round_trips, 2);
  EXPECT_EQ(cost.puts, r_);
  EXPECT_LE(cost.gets, r_);
}

TEST_P(RegisterCostTest, TheFirstChangeWhileDrivesAreAway) {
  const uint64_t up = TakeDrivesAway();
  ExpectClassicRound(CostOf([&] { Set(*store_, {}, "a"); }), 2, 0, up);
}

TEST_P(RegisterCostTest, AChangeWhileDrivesAreAway) {
  const uint64_t up = TakeDrivesAway();
  RegisterValue value = Set(*store_, {}, "a");
  ExpectClassicRound(CostOf([&] { value = Set(*store_, value, "b"); }), 3, up, up);
  ExpectClassicRound(CostOf([&] { Set(*other_, value, std::nullopt); }), 3, up, up);
}

TEST_P(RegisterCostTest, AReadOfWhatDrivesThatAreAwayWouldHaveToConfirm) {
  Set(*store_, {}, "a");
  const uint64_t up = TakeDrivesAway();
  ExpectClassicRound(CostOf([&] { ASSERT_OK(other_->Read(kName)); }), 3, up, up);
  EXPECT_EQ(CostOf([&] { ASSERT_OK(other_->Read(kName)); }), (Cost{1, up, 0}))
      << "once and for all";
}

TEST_P(RegisterCostTest, AScan) {
  for (int i = 0; i < 20; ++i) ASSERT_OK(store_->Change({7, fmt::format("{:02}", i)}, {}, "a"));
  EXPECT_EQ(CostOf([&] { ASSERT_OK(other_->Scan(7, "00", "99", 100)); }), (Cost{1, 0, 0, r_}));
}

INSTANTIATE_TEST_SUITE_P(Replicas, RegisterCostTest, testing::Values(3, 5, 9),
                         testing::PrintToStringParamName());

TEST_F(RegisterStoreTest, ReadingManyTakesAsLongAsReadingOne) {
  std::vector<RegisterName> names;
  for (int i = 0; i < 50; ++i) names.push_back({7, fmt::format("{}", i)});
  ASSERT_OK(store_->Change(names[17], {}, "a"));
  three_.Settle();
  const auto values = other_->ReadMany(names);
  EXPECT_EQ(three_.RoundTrips(), 1);
  ASSERT_EQ(values.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(values[i]);
    EXPECT_EQ(values[i]->value, i == 17 ? std::optional<std::string>("a") : std::nullopt);
  }
}

TEST(RegisterStore, FiveReplicasGoFastWithADriveAway) {
  Replicas five(5);
  auto store = five.NewStore();
  five.set.drives[0]->Set(Replicas::Down());
  five.Settle();
  const ChangeOutcome created = store->Change(kName, {}, "a");
  ASSERT_OK(created);
  EXPECT_EQ(five.RoundTrips(), 1);
  ASSERT_OK(store->Change(kName, created.now, "b"));
  EXPECT_EQ(five.RoundTrips(), 2);
  ASSERT_OK(five.NewStore()->Read(kName));
  EXPECT_EQ(five.RoundTrips(), 3);
}

TEST(RegisterStore, OneReplicaIsAConditionalPut) {
  Replicas one(1);
  auto store = one.NewStore();
  auto other = one.NewStore();
  const ChangeOutcome created = store->Change(kName, {}, "a");
  ASSERT_OK(created);
  EXPECT_TRUE(created.applied());
  EXPECT_FALSE(other->Change(kName, {}, "b").applied());
  EXPECT_EQ(other->Read(kName)->value, "a");
  EXPECT_TRUE(other->Change(kName, created.now, "c").applied());
  EXPECT_EQ(store->Read(kName)->value, "c");
}

// ---- Drives that fail.

TEST_F(RegisterStoreTest, SurvivesTheLossOfAMinority) {
  Set(*store_, {}, "a");
  three_.set.drives[0]->Set(Replicas::Down());
  const Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  Set(*other_, *read, "b");
  three_.set.drives[0]->Set(Replicas::Healthy());
  three_.set.drives[2]->Set(Replicas::Down());
  EXPECT_EQ(store_->Read(kName)->value, "b");
}

TEST_F(RegisterStoreTest, WithoutAMajorityAReadSaysWhichDrivesAreMissing) {
  three_.set.drives[0]->Set(Replicas::Down());
  three_.set.drives[2]->Set({.lose_request = 1});
  const Time start = three_.sim.Now();
  const Result<RegisterValue> read = store_->Read(kName);
  EXPECT_FAILS(read, EIO);
  EXPECT_THAT(std::string(read.error().message()),
              testing::AllOf(HasSubstr("register 7/name: 2 of 3 replicas needed, 1 answered well"),
                             HasSubstr("drive 1: away"), HasSubstr("drive 3: no answer")));
  EXPECT_LT(three_.sim.Now() - start, 16s);
}

// Also when the time is up just as they are asked once more.
TEST(RegisterStore, WithoutAMajorityThoseThatAnsweredAreCounted) {
  Replicas five(5);
  const auto store = five.NewStore();
  for (int i = 0; i < 3; ++i) five.set.drives[i]->Set(Replicas::Down());
  for (int i = 0; i < 20; ++i) {
    const RegisterName name{7, fmt::format("name{}", i)};
    const Status read = store->Read(name).error();
    EXPECT_EQ(read.message(),
              fmt::format("register 7/name{}: 3 of 5 replicas needed, 2 answered well: "
                          "drive 1: away; drive 2: away; drive 3: away",
                          i));
  }
}

TEST(RegisterStore, WhoAnswersAgainIsNotNamedForFailuresOfBefore) {
  Replicas five(5);
  const auto store = five.NewStore();
  for (int i = 0; i < 3; ++i) five.set.drives[i]->Set(Replicas::Down());
  five.sim.RunAt(five.sim.Now() + 1s, [&] { five.set.drives[0]->Set(Replicas::Healthy()); });
  five.sim.RunAt(five.sim.Now() + 1s, [&] { five.set.drives[3]->Set(Replicas::Down()); });
  const Status read = store->Read(kName).error();
  EXPECT_THAT(std::string(read.message()),
              testing::EndsWith("2 answered well: drive 2: away; drive 3: away; drive 4: away"));
}

// All connections are lost when a process goes on that was stopped for long. What it was asked for
// before that has its time then as if nothing had been.
TEST_F(RegisterStoreTest, TimeInWhichTheProcessStoodStillDoesNotCount) {
  Set(*store_, {}, "a");
  three_.set.SetAll({.down = true});
  three_.sim.Spawn("a stop", [&] {
    three_.sim.Sleep(1s);
    three_.sim.StandStill(60s);
    three_.sim.Sleep(1s);
    three_.set.SetAll(Replicas::Healthy());
  });
  const auto read = other_->Read(kName);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "a");
}

TEST_F(RegisterStoreTest, WithoutAMajorityAChangeThatWasNotSentSaysSo) {
  three_.set.drives[0]->Set(Replicas::Down());
  three_.set.drives[2]->Set(Replicas::Down());
  const auto outcome = store_->Change(kName, {}, "a");
  EXPECT_FAILS(outcome, EIO);
  EXPECT_THAT(std::string(outcome.why.message()), Not(HasSubstr("may have happened")));
  three_.set.SetAll(Replicas::Healthy());
  EXPECT_EQ(other_->Read(kName)->slot, 0u);
}

TEST_F(RegisterStoreTest, AChangeWhoseAnswersAreLostMayHaveHappened) {
  three_.set.SetAll({.lose_answer = 1});
  const auto outcome = store_->Change(kName, {}, "a");
  EXPECT_FAILS(outcome, EIO);
  EXPECT_THAT(std::string(outcome.why.message()), HasSubstr("may have happened"));
  three_.set.SetAll(Replicas::Healthy());
  EXPECT_EQ(other_->Read(kName)->value, "a");
}

TEST_F(RegisterStoreTest, AChangeWhoseFirstAnswersWereLostFindsOutThatItWasApplied) {
  three_.set.SetAll({.lose_answer = 1});
  three_.sim.RunAt(three_.sim.Now() + 2s, [&] { three_.set.SetAll(Replicas::Healthy()); });
  const auto outcome = store_->Change(kName, {}, "a");
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome.applied());
  EXPECT_EQ(other_->Read(kName)->slot, 1u);
}

TEST_F(RegisterStoreTest, AChangeThatWasAppliedAndReplacedMeanwhileStillKnowsIt) {
  // Its puts arrive, its answers do not; meanwhile another client reads and replaces the value.
  for (auto& drive : three_.clients[0]->drives) drive->Set({.lose_answer = 1});
  three_.sim.Spawn("other", [&] {
    three_.sim.Sleep(1s);
    Result<RegisterValue> read = other_->Read(kName);
    ASSERT_OK(read);
    EXPECT_EQ(read->value, "mine");
    for (int i = 0; i < 5; ++i) *read = Set(*other_, *read, "yours");
    for (auto& drive : three_.clients[0]->drives) drive->Set({});
  });
  const auto outcome = store_->Change(kName, {}, "mine");
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome.applied());
  EXPECT_EQ(outcome.now.slot, 1u);
  EXPECT_EQ(store_->Read(kName)->slot, 6u);
}

TEST_F(RegisterStoreTest, ADurableChangeIsWrittenThroughOnAllDrives) {
  three_.Settle();
  ASSERT_OK(store_->Change(kName, {}, "a", Durability::kWriteThrough));
  EXPECT_EQ(three_.set.requests().durable_put, 3u);
  Set(*store_, {.slot = 1}, "b");
  EXPECT_EQ(three_.set.requests().durable_put, 3u);
}

TEST_F(RegisterStoreTest, ADurableChangeThatOthersFinishedIsAcceptedOnceMoreDurably) {
  for (auto& drive : three_.clients[0]->drives) drive->Set({.lose_answer = 1});
  three_.sim.Spawn("other", [&] {
    three_.sim.Sleep(1s);
    Result<RegisterValue> read = other_->Read(kName);
    ASSERT_OK(read);
    Set(*other_, *read, "b");
    three_.set.ForgetRequests();
    for (auto& drive : three_.clients[0]->drives) drive->Set({});
  });
  const auto outcome = store_->Change(kName, {}, "a", Durability::kWriteThrough);
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome.applied());
  // What stands for it now is the value that came after it.
  EXPECT_GE(three_.set.requests().durable_put, 2u);
  EXPECT_EQ(other_->Read(kName)->value, "b");
  EXPECT_EQ(other_->Read(kName)->slot, 2u);
}

class LongAgoTest : public RegisterStoreTest {
 protected:
  // What a change of `seen` answers whose puts arrive, but whose answers do not until another
  // client has made twenty more.
  ChangeOutcome ChangeLongAgo(const RegisterValue& seen) {
    for (auto& drive : three_.clients[0]->drives) drive->Set({.lose_answer = 1});
    three_.sim.Spawn("other", [this] {
      three_.sim.Sleep(1s);
      Result<RegisterValue> read = other_->Read(kName);
      ASSERT_OK(read);
      for (int i = 0; i < 20; ++i) *read = Set(*other_, *read, "yours");
      for (auto& drive : three_.clients[0]->drives) drive->Set({});
    });
    return store_->Change(kName, seen, "mine");
  }
};

TEST_F(LongAgoTest, AChangeAdmitsThatItMayHaveHappened) {
  const auto outcome = ChangeLongAgo(Set(*store_, {}, "a"));
  EXPECT_FAILS(outcome, EIO);
  EXPECT_EQ(outcome.effect, Effect::kUnknown);
  EXPECT_THAT(std::string(outcome.why.message()),
              testing::AllOf(HasSubstr("may have happened"), HasSubstr("others came before")));
}

TEST_F(LongAgoTest, WhoCreatedTheRegisterIsNeverForgotten) {
  const auto outcome = ChangeLongAgo({});
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome.applied());
}

TEST_F(LongAgoTest, AChangeThatWasRefusedEverywhereIsKnownNotToHaveHappened) {
  RegisterValue value = Set(*store_, {}, "a");
  const RegisterValue stale = value = Set(*store_, value, "b");
  for (int i = 0; i < 30; ++i) value = Set(*other_, value, "c");
  const auto outcome = store_->Change(kName, stale, "d");
  ASSERT_OK(outcome);
  EXPECT_FALSE(outcome.applied());
  EXPECT_EQ(outcome.now.slot, value.slot);
}

TEST_F(RegisterStoreTest, FullDrivesAreToldApart) {
  for (auto& drive : three_.set.drives) drive->Set({.full = true});
  const ChangeOutcome outcome = store_->Change(kName, {}, "a");
  EXPECT_FAILS(outcome, ENOSPC);
  EXPECT_EQ(outcome.effect, Effect::kRefused);
}

// What is chosen stays chosen: that there is no room to make it safe does not undo it.
TEST_F(RegisterStoreTest, WhatCannotBeMadeDurableForLackOfRoomMayHaveHappened) {
  Set(*store_, {}, "a");
  for (auto& drive : three_.set.drives) drive->Set({.full = true});
  const Status durable = store_->MakeDurable(kName);
  EXPECT_FAILS(durable, EIO);
  EXPECT_THAT(std::string(durable.message()), HasSubstr("its drives are full"));
  three_.set.SetAll(Replicas::Healthy());
  EXPECT_EQ(other_->Read(kName)->value, "a");
}

// One of three has taken it, and may yet make it the value: no errno tells that apart from a change
// that nobody has taken.
TEST_F(RegisterStoreTest, AChangeThatAMinorityOfNearlyFullDrivesTookIsUnknown) {
  for (size_t i : {0, 1}) three_.set.drives[i]->Set({.full = true});
  const ChangeOutcome outcome = store_->Change(kName, {}, "a");
  EXPECT_EQ(outcome.effect, Effect::kUnknown);
  EXPECT_FAILS(outcome, EIO);
  EXPECT_THAT(std::string(outcome.why.message()), HasSubstr("its drives are full"));
  three_.set.SetAll(Replicas::Healthy());
  three_.set.drives[0]->Set(Replicas::Down());  // so that who reads hears of it
  EXPECT_EQ(other_->Read(kName)->value, "a");
}

TEST_F(RegisterStoreTest, ADamagedReplicaIsNoAnswerAndNeverEmpty) {
  Set(*store_, {}, "a");
  three_.set.drives[0]->Set({.flip_bit = 1});
  EXPECT_EQ(other_->Read(kName)->value, "a");
  three_.set.drives[1]->Set({.flip_bit = 1});
  const auto read = other_->Read(kName);
  EXPECT_FAILS(read, EIO);
  EXPECT_THAT(std::string(read.error().message()), HasSubstr("does not match its checksum"));
}

// Two registers that a drive mixes up, or of which it puts the version of one to the value of the
// other.
TEST_F(RegisterStoreTest, ARecordOfAnotherRegisterIsNoAnswer) {
  const RegisterName other_name{7, "game"};
  Set(*store_, {}, "a");
  ASSERT_TRUE(store_->Change(other_name, {}, "b").applied());
  DriveFaults faults = Replicas::Healthy();
  faults.mix_up = 1;
  three_.set.drives[0]->Set(faults);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(other_->Read(kName)->value, "a");
    EXPECT_EQ(other_->Read(other_name)->value, "b");
  }
  three_.set.drives[1]->Set(faults);
  three_.set.drives[2]->Set(faults);
  for (int i = 0; i < 20; ++i) EXPECT_FAILS(other_->Read(kName), EIO);
  three_.set.SetAll(Replicas::Healthy());
  EXPECT_EQ(other_->Read(kName)->value, "a");
  EXPECT_EQ(other_->Read(other_name)->value, "b");
}

// What drive `i` itself holds.
std::optional<uint64_t> SlotOn(Replicas& replicas, size_t i) {
  replicas.sim.Sleep(1s);
  std::optional<uint64_t> slot;
  const std::string key = RegisterRecordKey("\1c", kName);
  replicas.set.memory[i]->Get(key, {}, Time::max(), [&](Result<Record> record) {
    if (record.has_value()) slot = DecodeRegister(key, *record)->accepted.slot;
  });
  replicas.sim.Sleep(1s);
  return slot;
}

TEST_F(RegisterStoreTest, AReplicaThatMissedAChangeIsGivenItByTheNextRead) {
  RegisterValue value = Set(*store_, {}, "a");
  three_.set.drives[2]->Set(Replicas::Down());
  value = Set(*store_, value, "b");
  three_.set.drives[2]->Set(Replicas::Healthy());
  EXPECT_EQ(SlotOn(three_, 2), 1u);
  ASSERT_OK(other_->Read(kName));
  EXPECT_EQ(SlotOn(three_, 2), 2u);
}

TEST_F(RegisterStoreTest, AReplicaThatComesBackTakesPartInLaterChanges) {
  RegisterValue value = Set(*store_, {}, "a");
  three_.set.drives[2]->Set(Replicas::Down());
  value = Set(*store_, value, "b");
  three_.set.drives[2]->Set(Replicas::Healthy());
  for (int i = 0; i < 3; ++i) {
    value = Set(*store_, value, "c");
    three_.sim.Sleep(1s);
  }
  EXPECT_EQ(SlotOn(three_, 2), value.slot);
}

TEST_F(RegisterStoreTest, WhoDiesBetweenPromiseAndAcceptBlocksNobody) {
  const RegisterValue value = Set(*store_, {}, "a");
  three_.set.drives[2]->Set(Replicas::Down());
  // Without the third drive the change is classic: two reads, then two prepares, then it is dead.
  three_.clients[0]->life->CrashAfter(4);
  EXPECT_FAILS(store_->Change(kName, value, "never"), EIO);
  Result<RegisterValue> read = other_->Read(kName);
  ASSERT_OK(read);
  EXPECT_EQ(read->value, "a");
  EXPECT_EQ(read->slot, 1u);
  three_.Settle();
  read = other_->Read(kName);
  EXPECT_EQ(three_.RoundTrips(), 1);
  Set(*other_, *read, "b");
  EXPECT_EQ(three_.NewStore()->Read(kName)->value, "b");
}

// ---- What was said long ago does not count: its drive may have been replaced since.

class OldAnswersTest : public RegisterStoreTest {
 protected:
  OldAnswersTest() {
    three_.clients.push_back(std::make_unique<ReplicaClient>(three_.sim, three_.set));
    patient_ = std::make_unique<RegisterStore>(
        three_.sim, *three_.clients.back(),
        RegisterStore::Options{.prefix = "\1c", .timeout = 100s, .drive_timeout = 100s});
  }
  void AnswerAfter(Duration delay) {
    three_.set.SetAll({.least_latency = delay / 2, .most_latency = delay / 2});
  }

  std::unique_ptr<RegisterStore> patient_;
};

TEST_F(OldAnswersTest, AReadThatTookTooLongIsNoAnswer) {
  const RegisterValue one = Set(*store_, {}, "one");
  AnswerAfter(kAnswersCount - 1s);
  EXPECT_OK(patient_->Read(kName));
  AnswerAfter(kAnswersCount + 1s);
  EXPECT_FAILS(patient_->Read(kName), EIO);
}

TEST_F(OldAnswersTest, AChangeThatTookTooLongMayHaveHappened) {
  AnswerAfter(kAnswersCount - 1s);
  const RegisterValue one = Set(*patient_, {}, "one");
  AnswerAfter(kAnswersCount + 1s);
  const auto outcome = patient_->Change(kName, one, "two");
  ASSERT_FAILS(outcome, EIO);
  EXPECT_THAT(std::string(outcome.why.message()), HasSubstr("may have happened"));
}

// Each answer takes nearly as long as it may, and there are three rounds, as a drive is away: more
// than the whole call has. But the others answer.
TEST_F(OldAnswersTest, SlowDrivesAreWaitedForAsLongAsTheyAnswer) {
  RegisterStore store(three_.sim, *three_.clients.back(),
                      {.prefix = "\1c", .timeout = 10s, .drive_timeout = 5s});
  three_.set.drives[2]->Set(Replicas::Down());
  for (int i : {0, 1}) three_.set.drives[i]->Set({.least_latency = 2s, .most_latency = 2s});
  const Time begin = three_.sim.Now();
  EXPECT_TRUE(store.Change(kName, {}, "one").applied());
  const auto value = store.Read(kName);
  ASSERT_OK(value);
  EXPECT_TRUE(store.Change(kName, *value, "two").applied());
  EXPECT_GT(three_.sim.Now() - begin, 20s);
  EXPECT_EQ(store.Read(kName)->value, "two");
}

// Where too few are there, those that answer at once do not make it wait any longer.
TEST_F(OldAnswersTest, DrivesThatAreAwayAreNotWaitedForLongerWhileOthersAnswer) {
  RegisterStore store(three_.sim, *three_.clients.back(),
                      {.prefix = "\1c", .timeout = 10s, .drive_timeout = 5s});
  for (int i : {1, 2}) three_.set.drives[i]->Set(Replicas::Down());
  const Time begin = three_.sim.Now();
  EXPECT_FALSE(store.Change(kName, {}, "one").applied());
  EXPECT_LE(three_.sim.Now() - begin, 16s);
}

// One that waits for its turn among many asks again.
TEST_F(OldAnswersTest, OneOfManyThatHadToWaitLooksAgain) {
  const RegisterName other{7, "other"};
  Set(*store_, {}, "one");
  ASSERT_TRUE(store_->Change(other, {}, "one").applied());
  // With a drive away both have to be confirmed, one after the other.
  three_.Settle();
  three_.set.drives[2]->Set(Replicas::Down());
  for (int i : {0, 1}) {
    three_.set.drives[i]->Set({.least_latency = 3s, .most_latency = 3s});
  }
  const auto values = patient_->ReadMany(std::vector<RegisterName>{kName, other});
  for (const auto& value : values) {
    ASSERT_OK(value);
    EXPECT_EQ(value->value, "one");
  }
  // Two reads at once, two rounds for the first, and for the second a read of its own and two
  // rounds.
  EXPECT_EQ(three_.set.requests().get, 2 * 2u + 2u);
}

// ---- Sweeping, and restoring a replica.

class SweepTest : public RegisterStoreTest {
 protected:
  ReplicaState StateOf(MemoryDrive& drive, const RegisterName& name) {
    const std::string key = RegisterRecordKey("\1c", name);
    Gather<Result<Record>> gather(three_.sim);
    drive.Get(key, {}, Time::max(), gather.Ask(0));
    const Result<Record> record = std::move(gather.Next(Time::max())->value);
    return record.has_value() ? *DecodeRegister(key, *record) : ReplicaState();
  }
  void PutState(size_t replica, const ReplicaState& before, const ReplicaState& state) {
    Gather<Status> gather(three_.sim);
    three_.set.memory[replica]->Put(
        EncodeRegisterPut(RegisterRecordKey("\1c", kName),
                          EncodeRegisterVersion(before.promised, before.accepted), state,
                          Durability::kWriteBack),
        Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
};

TEST_F(SweepTest, NothingIsBehindWhereNothingIs) {
  const auto report = store_->Sweep(kName.group);
  ASSERT_OK(report);
  EXPECT_EQ(report->registers, 0u);
  EXPECT_EQ(report->behind, 0u);
}

TEST_F(SweepTest, GivesAReplicaThatWasAwayWhatItMissed) {
  three_.set.drives[1]->Set(Replicas::Down());
  const std::string large(kMaxRegisterBytes, 'x');
  ASSERT_TRUE(store_->Change({7, "large"}, {}, large).applied());
  RegisterValue removed = store_->Change({7, "removed"}, {}, "x").now;
  ASSERT_TRUE(store_->Change({7, "removed"}, removed, std::nullopt).applied());
  three_.set.drives[1]->Set(Replicas::Healthy());
  three_.Settle();
  const auto report = store_->Sweep(7);
  ASSERT_OK(report);
  EXPECT_EQ(report->registers, 2u);
  EXPECT_EQ(report->behind, 2u);
  EXPECT_EQ(report->failed + report->unheard, 0u);
  EXPECT_EQ(StateOf(*three_.set.memory[1], {7, "large"}).proposal->value, large);
  EXPECT_EQ(StateOf(*three_.set.memory[1], {7, "removed"}).accepted.slot, 2u);
}

// What a drive says of one register when it was asked for another is given to nobody, be it one of
// the replicas or the one that takes the place of a lost one.
TEST_F(SweepTest, ARecordOfAnotherRegisterIsGivenToNobody) {
  const std::vector<RegisterName> names = {{7, "name"}, {7, "game"}, {7, "lame"}, {7, "same"}};
  for (const RegisterName& name : names) {
    ASSERT_TRUE(store_->Change(name, {}, "value of " + name.key).applied());
  }
  three_.Settle();
  DriveFaults faults = Replicas::Healthy();
  faults.mix_up = 1;
  three_.set.drives[0]->Set(faults);
  const auto report = store_->Sweep(7);
  ASSERT_OK(report);
  EXPECT_EQ(report->registers, names.size());
  for (const RegisterName& name : names) {
    for (const auto& memory : three_.set.memory) {
      EXPECT_EQ(StateOf(*memory, name).proposal->value, "value of " + name.key);
    }
  }
  // With one of three replicas gone two are needed, and one of them mixes up.
  three_.set.drives[1]->Set(Replicas::Down());
  MemoryDrive successor(three_.sim, "successor");
  EXPECT_FAILS(store_->Restore(7, 1, successor), EIO);
  for (const RegisterName& name : names) {
    const auto value = StateOf(successor, name).proposal->value;
    if (value.has_value()) {
      EXPECT_EQ(value, "value of " + name.key);
    }
  }
}

// Of a proposer that died: the replica is given what is chosen and keeps its promise.
TEST_F(SweepTest, AReplicaThatPromisedMoreKeepsItsPromise) {
  RegisterValue value = Set(*store_, {}, "one");
  three_.Settle();
  three_.set.drives[1]->Set(Replicas::Down());
  value = Set(*store_, value, "two");
  three_.Settle();
  const ReplicaState before = StateOf(*three_.set.memory[1], kName);
  const Ballot promise{.slot = 2, .round = 1000, .proposer = 7};
  PutState(1, before, {promise, before.accepted, before.proposal});
  three_.set.drives[1]->Set(Replicas::Healthy());
  ASSERT_OK(store_->Sweep(kName.group));
  EXPECT_EQ(StateOf(*three_.set.memory[1], kName).proposal->value, "two");
  EXPECT_EQ(StateOf(*three_.set.memory[1], kName).promised, promise);
}

TEST_F(SweepTest, CountsWhoCouldNotBeAsked) {
  Set(*store_, {}, "one");
  three_.Settle();
  three_.set.drives[1]->Set(Replicas::Down());
  const auto report = store_->Sweep(kName.group);
  ASSERT_OK(report);
  EXPECT_EQ(report->unheard, 1u);
  three_.set.drives[2]->Set(Replicas::Down());
  EXPECT_FAILS(store_->Sweep(kName.group), EIO);
}

// What the others promised, the lost one may have promised, too.
TEST_F(SweepTest, WhoTakesThePlaceOfALostReplicaPromisesWhatTheOthersDid) {
  Set(*store_, {}, "one");
  three_.Settle();
  three_.set.drives[1]->Set(Replicas::Down());
  MemoryDrive successor(three_.sim, "successor");
  ASSERT_OK(store_->Restore(kName.group, 1, successor));
  three_.Settle();
  const ReplicaState other = StateOf(*three_.set.memory[0], kName);
  const Ballot promise{.slot = 2, .round = 1000, .proposer = 7};
  PutState(0, other, {promise, other.accepted, other.proposal});
  ASSERT_OK(store_->Restore(kName.group, 1, successor));
  EXPECT_EQ(StateOf(successor, kName).proposal->value, "one");
  EXPECT_EQ(StateOf(successor, kName).promised, promise);
}

// It is there for others to be found, though nothing was ever chosen.
TEST_F(SweepTest, AMerePromiseIsRestored) {
  const Ballot promise{.slot = 1, .round = 1, .proposer = 7};
  PutState(0, {}, {.promised = promise});
  three_.set.drives[1]->Set(Replicas::Down());
  MemoryDrive successor(three_.sim, "successor");
  const auto report = store_->Restore(kName.group, 1, successor);
  ASSERT_OK(report);
  EXPECT_EQ(report->registers, 1u);
  EXPECT_EQ(StateOf(successor, kName).promised, promise);
}

// It alone knows better; the others decide without it.
TEST_F(SweepTest, TheLostReplicaIsNotAskedWhenAnotherTakesItsPlace) {
  RegisterValue value = Set(*store_, {}, "one");
  three_.Settle();
  const ReplicaState before = StateOf(*three_.set.memory[1], kName);
  const Ballot alone{.slot = 2, .round = 1, .proposer = 7};
  PutState(1, before, {alone, alone, std::make_shared<const Proposal>(Proposal{.value = "two"})});
  MemoryDrive successor(three_.sim, "successor");
  ASSERT_OK(store_->Restore(kName.group, 1, successor));
  EXPECT_EQ(StateOf(successor, kName).proposal->value, "one");
}

// What must not be lost when an empty drive takes the place of a lost one, and how it would be.
class RestoreTest : public SweepTest {
 protected:
  struct Client {
    ReplicaClient* view;
    std::unique_ptr<RegisterStore> store;
  };
  Client NewClient(bool with_promises = true, Duration answers_count = kAnswersCount) {
    three_.clients.push_back(std::make_unique<ReplicaClient>(three_.sim, three_.set));
    ReplicaClient& view = *three_.clients.back();
    return {&view, std::make_unique<RegisterStore>(
                       three_.sim, view,
                       RegisterStore::Options{.prefix = "\1c",
                                              .timeout = 200s,
                                              .drive_timeout = 100s,
                                              .answers_count = answers_count,
                                              .restore_promises = with_promises})};
  }

  // The third drive is lost, and another one takes its place for everybody.
  void Replace(RegisterStore& by) {
    ASSERT_OK(by.Restore(kName.group, 2, *successor_));
    for (const auto& client : three_.clients) client->drives[2]->ReplaceBy(successor_);
  }

  // Somebody has promises for a high ballot, of the lost drive and of the first; what he sends to
  // the first takes long. Meanwhile the second and the new drive accept another value. Returns what
  // the first and the second make of it.
  std::optional<std::string> ChangeBehindAPromise(bool with_promises) {
    const Client client = NewClient(with_promises);
    client.view->drives[2]->Set({.down = true});
    const RegisterValue one = Set(*client.store, {}, "one");
    three_.Settle();
    client.view->drives[2]->Set({});
    const ReplicaState before = StateOf(*three_.set.memory[0], kName);
    const Ballot ballot{.slot = 2, .round = 1000, .proposer = 7};
    const ReplicaState promised{ballot, before.accepted, before.proposal};
    PutState(0, before, promised);
    Replace(*client.store);

    client.view->drives[0]->Set({.down = true});
    Set(*client.store, one, "two");
    const Proposal late{.nonce = {7, 7}, .value = "of long ago"};
    PutState(0, promised, {ballot, ballot, std::make_shared<const Proposal>(late)});
    client.view->drives[0]->Set({});
    client.view->drives[2]->Set({.down = true});
    const auto value = client.store->Read(kName);
    EXPECT_OK(value);
    return value->value;
  }

  // Somebody creates the register; the lost drive answers at once, and the others get to hear of it
  // after `delay`. The drive is replaced at `replaced`. Then somebody else creates it, while the
  // second drive is away. Returns how many of them were told that they did.
  int CreateAcrossAReplacement(Duration delay, Duration replaced, Duration answers_count) {
    const Client one = NewClient(/*with_promises=*/true, answers_count);
    const Client two = NewClient();
    for (int i : {0, 1}) {
      one.view->drives[i]->Set({.least_latency = delay, .most_latency = delay});
    }
    int created = 0;
    three_.sim.Spawn("one", [&] {
      const auto outcome = one.store->Change(kName, {}, "one");
      created += outcome.why.ok() && outcome.applied() ? 1 : 0;
    });
    three_.sim.Sleep(replaced);
    Replace(*two.store);
    three_.sim.Sleep(2 * delay - replaced + 1s);
    two.view->drives[1]->Set({.down = true});
    const auto outcome = two.store->Change(kName, {}, "two");
    EXPECT_OK(outcome);
    created += outcome.applied() ? 1 : 0;
    three_.sim.Run();
    return created;
  }

  const std::shared_ptr<MemoryDrive> successor_ =
      std::make_shared<MemoryDrive>(three_.sim, "successor");
};

TEST_F(RestoreTest, WhatWasPromisedToSomebodySlowTakesNothingBack) {
  EXPECT_EQ(ChangeBehindAPromise(/*with_promises=*/true), "two");
}

TEST_F(RestoreTest, ItWouldIfTheNewDrivePromisedNothing) {
  EXPECT_EQ(ChangeBehindAPromise(/*with_promises=*/false), "of long ago");
}

TEST_F(RestoreTest, WhatTheLostDriveSaidDoesNotCountAfterItWasReplaced) {
  EXPECT_EQ(CreateAcrossAReplacement(40s, kForgetting, kAnswersCount), 1);
}

TEST_F(RestoreTest, IfItCountedTwoCouldCreateOneRegister) {
  EXPECT_EQ(CreateAcrossAReplacement(40s, kForgetting, 1h), 2);
}

TEST_F(RestoreTest, WhoReplacesADriveTooSoonIsNotSafe) {
  EXPECT_EQ(CreateAcrossAReplacement(5s, 1s, kAnswersCount), 2);
}

// ---- Listing.

class ScanTest : public RegisterStoreTest {
 protected:
  void Create(int i) { ASSERT_OK(store_->Change({7, Key(i)}, {}, fmt::format("{}", i))); }
  static std::string Key(int i) { return fmt::format("E{:04}", i); }

  std::vector<std::string> ScanAll(RegisterStore& store, size_t max) {
    std::vector<std::string> keys;
    std::optional<std::string> from = "E";
    while (from.has_value()) {
      const auto page = store.Scan(7, *from, "E\xff", max);
      EXPECT_OK(page);
      if (!page.has_value()) break;
      EXPECT_LE(page->entries.size(), max);
      for (const auto& entry : page->entries) keys.push_back(entry.key);
      from = page->next;
    }
    return keys;
  }
};

TEST_F(ScanTest, AnEmptyRangeHasNoEntries) {
  const auto page = store_->Scan(7, "E", "F", 100);
  ASSERT_OK(page);
  EXPECT_TRUE(page->entries.empty());
  EXPECT_EQ(page->next, std::nullopt);
}

TEST_F(ScanTest, FindsWhatIsThereInOrderAndWithinTheRangeOnly) {
  for (int i : {3, 1, 2}) Create(i);
  ASSERT_OK(store_->Change({7, "I"}, {}, "an inode"));
  ASSERT_OK(store_->Change({8, "E0009"}, {}, "in another group"));
  EXPECT_THAT(ScanAll(*other_, 100), ElementsAre("E0001", "E0002", "E0003"));
  const auto page = other_->Scan(7, "E0002", "E0002", 10);
  ASSERT_OK(page);
  ASSERT_EQ(page->entries.size(), 1u);
  EXPECT_EQ(page->entries[0].value.value, "2");
  EXPECT_EQ(page->entries[0].value.slot, 1u);
}

TEST_F(ScanTest, ManyPagesAreWalkedWithoutLossOrRepetition) {
  std::vector<std::string> created;
  for (int i = 0; i < 450; ++i) {
    Create(i);
    created.push_back(Key(i));
  }
  for (size_t max : {1000u, 64u, 7u}) EXPECT_EQ(ScanAll(*other_, max), created) << max;
}

TEST_F(ScanTest, LargeAndDamagedValuesAreReadOneByOne) {
  const std::string large(20'000, 'x');
  for (int i = 0; i < 4; ++i) ASSERT_OK(store_->Change({7, Key(i)}, {}, large));
  for (int i = 4; i < 8; ++i) Create(i);
  DriveFaults faults = Replicas::Healthy();
  faults.flip_bit = 1;
  three_.set.drives[0]->Set(faults);  // whatever comes from it is damaged
  const auto page = three_.NewStore()->Scan(7, "E", "F", 100);
  three_.set.drives[0]->Set(Replicas::Healthy());
  ASSERT_OK(page);
  ASSERT_EQ(page->entries.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(page->entries[static_cast<size_t>(i)].value.value,
              i < 4 ? large : fmt::format("{}", i));
  }
}

TEST_F(ScanTest, RecordsUnderOtherKeysAreNotBelieved) {
  for (int i = 0; i < 8; ++i) Create(i);
  DriveFaults faults = Replicas::Healthy();
  faults.mix_up = 1;
  three_.set.drives[0]->Set(faults);
  for (int round = 0; round < 10; ++round) {
    const auto page = three_.NewStore()->Scan(7, "E", "F", 100);
    ASSERT_OK(page);
    ASSERT_EQ(page->entries.size(), 8u);
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(page->entries[i].key, Key(static_cast<int>(i)));
      EXPECT_EQ(page->entries[i].value.value, fmt::format("{}", i));
    }
  }
  three_.set.SetAll(faults);
  EXPECT_FAILS(three_.NewStore()->Scan(7, "E", "F", 100), EIO);
}

TEST_F(ScanTest, AReplicaThatMissedAChangeCostsOneMoreRoundTripAndIsBroughtUpToDate) {
  for (int i = 0; i < 10; ++i) Create(i);
  three_.set.drives[1]->Set(Replicas::Down());
  ASSERT_OK(store_->Change({7, Key(3)}, {.slot = 1}, "new"));
  three_.set.drives[1]->Set(Replicas::Healthy());
  three_.Settle();
  const auto page = three_.NewStore()->Scan(7, "E", "F", 100);
  ASSERT_OK(page);
  EXPECT_EQ(page->entries[3].value.value, "new");
  EXPECT_LE(three_.RoundTrips(), 2);
  three_.Settle();
  ASSERT_OK(three_.NewStore()->Scan(7, "E", "F", 100));
  EXPECT_EQ(three_.RoundTrips(), 1);
}

TEST_F(ScanTest, RemovedOnesAreLeftOutHoweverMany) {
  for (int i = 0; i < 250; ++i) Create(i);
  for (int i = 0; i < 249; ++i) {
    ASSERT_OK(store_->Change({7, Key(i)}, {.slot = 1}, std::nullopt));
  }
  EXPECT_THAT(ScanAll(*other_, 10), ElementsAre(Key(249)));
  const auto first_page = other_->Scan(7, "E", "F", 1);
  ASSERT_OK(first_page);
  EXPECT_EQ(first_page->entries.size(), 1u);
}

// Each key is missing on some drive, and pages end at different keys on each.
TEST_F(ScanTest, AKeyThatSomeReplicasMissedIsFound) {
  std::vector<std::string> created;
  for (int i = 0; i < 300; ++i) {
    auto& away = three_.set.drives[static_cast<size_t>(i) * 7 / 5 % 3];
    away->Set(Replicas::Down());
    Create(i);
    away->Set(Replicas::Healthy());
    created.push_back(Key(i));
  }
  for (size_t lost = 0; lost < 3; ++lost) {
    three_.set.drives[lost]->Set(Replicas::Down());
    EXPECT_EQ(ScanAll(*three_.NewStore(), 1000), created);
    three_.set.drives[lost]->Set(Replicas::Healthy());
  }
}

TEST_F(ScanTest, WithoutAMajorityItSaysSo) {
  three_.set.drives[0]->Set(Replicas::Down());
  three_.set.drives[1]->Set(Replicas::Down());
  const auto page = store_->Scan(7, "E", "F", 10);
  EXPECT_FAILS(page, EIO);
  EXPECT_THAT(std::string(page.error().message()), HasSubstr("drive 1: away; drive 2: away"));
}

// ---- Two at once

class BothTest : public RegisterStoreTest {
 protected:
  static RegisterStore::Wanted Inode(std::string value = "inode") {
    return {{7, "I1"}, {}, std::move(value)};
  }
  static RegisterStore::Wanted Entry(uint64_t slot = 0, std::string value = "entry") {
    return {{7, "E1"}, {.slot = slot, .value = std::nullopt}, std::move(value)};
  }
  std::optional<std::string> ValueOf(const RegisterName& name) {
    const auto read = other_->Read(name);
    EXPECT_OK(read);
    return read->value;
  }
};

TEST_F(BothTest, AreOneRequestForEachReplicaAndOneWait) {
  three_.Settle();
  const auto both = store_->ChangeBoth(Inode(), Entry());
  EXPECT_EQ(three_.RoundTrips(), 1);
  EXPECT_TRUE(both.first.applied());
  EXPECT_TRUE(both.second.applied());
  EXPECT_EQ(both.second.now.slot, 1u);
  three_.sim.Sleep(1s);
  EXPECT_EQ(three_.set.requests().total(), 3u);
  EXPECT_EQ(ValueOf({7, "I1"}), "inode");
  EXPECT_EQ(ValueOf({7, "E1"}), "entry");
}

// Not a request more, and not a wait.
TEST_F(BothTest, ComeWithTheWitness) {
  const RegisterName name{7, "I0"};
  ASSERT_TRUE(other_->Change(name, {}, "directory").applied());
  three_.Settle();
  const auto both = store_->ChangeBoth(Inode(), Entry(), {}, &name);
  EXPECT_EQ(three_.RoundTrips(), 1);
  ASSERT_TRUE(both.witness);
  EXPECT_EQ(both.witness->value, "directory");
  EXPECT_EQ(both.witness->slot, 1u);
  three_.sim.Sleep(1s);
  EXPECT_EQ(three_.set.requests().total(), 3u);
}

TEST_F(BothTest, OneAloneComesWithTheWitness) {
  const RegisterName name{7, "I0"};
  ASSERT_TRUE(other_->Change(name, {}, "directory").applied());
  three_.Settle();
  const auto outcome = store_->ChangeWitnessed(Entry(), Durability::kWriteThrough, name);
  EXPECT_EQ(three_.RoundTrips(), 1);
  EXPECT_TRUE(outcome.change.applied());
  ASSERT_TRUE(outcome.witness);
  EXPECT_EQ(outcome.witness->value, "directory");
  three_.sim.Sleep(1s);
  EXPECT_EQ(three_.set.requests().total(), 3u);
  EXPECT_EQ(three_.set.requests().durable_put, 3u);
  EXPECT_EQ(ValueOf({7, "E1"}), "entry");
}

// The fast round is what the witness rests on.
TEST_F(BothTest, OneAloneHasNoWitnessWhereDrivesAreAway) {
  three_.set.drives[1]->Set(Replicas::Down());
  const auto outcome = store_->ChangeWitnessed(Entry(), {}, {7, "I0"});
  EXPECT_TRUE(outcome.change.applied());
  EXPECT_FALSE(outcome.witness);
  EXPECT_EQ(store_->ChangeWitnessed(Entry(1), {}, {8, "I0"}).change.why.code(), EINVAL);
}

TEST_F(BothTest, OneAloneIsRefusedWhereItHasChanged) {
  ASSERT_TRUE(other_->Change({7, "E1"}, {}, "another").applied());
  const auto outcome = store_->ChangeWitnessed(Entry(), {}, {7, "I0"});
  EXPECT_FALSE(outcome.change.applied());
  EXPECT_OK(outcome.change.why);
  EXPECT_EQ(outcome.change.now.value, "another");
  EXPECT_FALSE(outcome.witness);
}

// One that is not there is a witness, too.
TEST_F(BothTest, ComeWithAWitnessThatIsGone) {
  const RegisterName name{7, "I0"};
  EXPECT_EQ(store_->ChangeBoth(Inode(), Entry(), {}, &name).witness->value, std::nullopt);
}

TEST_F(BothTest, OneAfterTheOtherHaveNoWitness) {
  const RegisterName name{7, "I0"};
  ASSERT_TRUE(other_->Change(name, {}, "directory").applied());
  three_.set.drives[1]->Set(Replicas::Down());
  const auto both = store_->ChangeBoth(Inode(), Entry(), {}, &name);
  EXPECT_TRUE(both.first.applied());
  EXPECT_TRUE(both.second.applied());
  EXPECT_FALSE(both.witness);
}

// Nobody knows what is chosen by that.
TEST_F(BothTest, HaveNoWitnessWhereDrivesDoNotAgree) {
  const RegisterName name{7, "I0"};
  three_.set.drives[1]->Set(Replicas::Down());
  ASSERT_TRUE(other_->Change(name, {}, "directory").applied());
  three_.set.drives[1]->Set(Replicas::Healthy());
  const auto both = store_->ChangeBoth(Inode(), Entry(), {}, &name);
  EXPECT_TRUE(both.second.applied());
  EXPECT_FALSE(both.witness);
}

TEST_F(RegisterStoreTest, ToPinTakesTwoRoundTripsOrThree) {
  three_.Settle();
  EXPECT_EQ(store_->ReadPinned(kName)->value, std::nullopt);
  EXPECT_EQ(three_.RoundTrips(), 2);
  const RegisterName other{7, "other"};
  ASSERT_TRUE(other_->Change(other, {}, "a").applied());
  three_.Settle();
  EXPECT_EQ(store_->ReadPinned(other)->value, "a");
  EXPECT_EQ(three_.RoundTrips(), 3);
}

TEST_F(BothTest, TheSecondIsRefusedWhereItHasChanged) {
  ASSERT_TRUE(other_->Change({7, "E1"}, {}, "another").applied());
  const auto both = store_->ChangeBoth(Inode(), Entry());
  EXPECT_TRUE(both.first.applied());
  EXPECT_EQ(both.second.effect, Effect::kRefused);
  EXPECT_OK(both.second.why);
  EXPECT_EQ(both.second.now.value, "another");
  EXPECT_EQ(ValueOf({7, "I1"}), "inode");
}

// No replica takes the second without the first.
TEST_F(BothTest, TheSecondDoesNotComeWithoutTheFirst) {
  ASSERT_TRUE(other_->Change({7, "I1"}, {}, std::nullopt).applied());
  ASSERT_TRUE(other_->Change({7, "I1"}, *other_->Read({7, "I1"}), "third").applied());
  const auto both = store_->ChangeBoth(Inode(), Entry());
  EXPECT_EQ(both.first.effect, Effect::kRefused);
  EXPECT_EQ(both.first.now.value, "third");
  EXPECT_EQ(both.second.effect, Effect::kRefused);
  EXPECT_EQ(ValueOf({7, "E1"}), std::nullopt);
  const auto traces = other_->FindTraces({7, "E1"});
  ASSERT_OK(traces);
  EXPECT_EQ(traces->accepted, 0u);
}

// The first is chosen by a classic round then, which the guard does not know of.
TEST_F(BothTest, AreMadeWhileADriveIsAway) {
  three_.set.drives[1]->Set(Replicas::Down());
  const auto both = store_->ChangeBoth(Inode(), Entry());
  EXPECT_TRUE(both.first.applied());
  EXPECT_TRUE(both.second.applied());
  EXPECT_EQ(ValueOf({7, "E1"}), "entry");
}

// Nobody can tell of the first. The second is not pushed on.
TEST_F(BothTest, TheSecondIsAsUncertainAsTheFirst) {
  for (auto& drive : three_.set.drives) {
    DriveFaults faults = Replicas::Healthy();
    faults.lose_answer = 1;
    drive->Set(faults);
  }
  const auto both = store_->ChangeBoth(Inode(), Entry());
  EXPECT_EQ(both.first.effect, Effect::kUnknown);
  EXPECT_EQ(both.second.effect, Effect::kUnknown);
  EXPECT_FAILS(both.second.why, EIO);
}

TEST_F(BothTest, OneThatIsKnownMayBeReplaced) {
  ASSERT_TRUE(store_->Change({7, "E1"}, {}, "old").applied());
  three_.Settle();
  const auto both = store_->ChangeBoth(Inode(), Entry(1));
  EXPECT_EQ(three_.RoundTrips(), 1);
  EXPECT_TRUE(both.second.applied());
  EXPECT_EQ(ValueOf({7, "E1"}), "entry");
}

// What this process does not remember is read first, and the two come one after the other.
TEST_F(BothTest, OneThatIsNotKnownComesAfterTheOther) {
  ASSERT_TRUE(other_->Change({7, "E1"}, {}, "old").applied());
  three_.Settle();
  const auto both = store_->ChangeBoth(Inode(), Entry(1));
  EXPECT_EQ(three_.RoundTrips(), 3);
  EXPECT_TRUE(both.first.applied());
  EXPECT_TRUE(both.second.applied());
}

TEST_F(BothTest, MustBeDifferentAndOfOneGroup) {
  for (RegisterStore::Wanted second : {Inode(), RegisterStore::Wanted{{8, "E1"}, {}, "x"},
                                       RegisterStore::Wanted{{7, ""}, {}, "x"}}) {
    const auto both = store_->ChangeBoth(Inode(), second);
    EXPECT_FAILS(both.first.why, EINVAL);
    EXPECT_EQ(both.first.effect, Effect::kRefused);
    EXPECT_EQ(both.second.effect, Effect::kRefused);
  }
  EXPECT_EQ(ValueOf({7, "I1"}), std::nullopt);
}

}  // namespace
}  // namespace pinstripe
