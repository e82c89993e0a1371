// EtcdEngine against a real etcd that works: what engines/engine.h promises.

#include "engines/etcd/etcd_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/engines/etcd/etcd_engine_fixture.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

// One etcd for all tests of this file; each has a cluster's name of its own.
class EtcdEngineTest : public EtcdEngineFixture {
 protected:
  static void SetUpTestSuite() { etcd_ = new EtcdCluster; }
  static void TearDownTestSuite() {
    delete etcd_;
    etcd_ = nullptr;
  }

  EtcdEngineTest() : asker_(Connect(Options())) { asker_->listener.AwaitStore(); }

  static EngineOptions Options() {
    EngineOptions options = OptionsFor(*etcd_);
    options.cluster = testing::UnitTest::GetInstance()->current_test_info()->name();
    return options;
  }
  static EngineChange PutOf(std::string key, std::string version,
                            Expected expected = Expected::Any(), std::optional<Guard> guard = {}) {
    return {.key = std::move(key),
            .put = RecordOf("value", std::move(version)),
            .expected = std::move(expected),
            .guard = std::move(guard)};
  }
  static EngineChange RemovalOf(std::string key, Expected expected = Expected::Any(),
                                std::optional<Guard> guard = {}) {
    return {.key = std::move(key),
            .put = {},
            .expected = std::move(expected),
            .guard = std::move(guard)};
  }
  std::vector<int> Codes(EngineBatch batch) {
    const Result<EngineAnswer> answer = asker_->Do(std::move(batch));
    EXPECT_OK(answer);
    std::vector<int> codes;
    if (answer) {
      for (const Status& status : answer->changes) codes.push_back(status.code());
    }
    return codes;
  }

  static EtcdCluster* etcd_;
  const std::unique_ptr<Asker> asker_;
};
EtcdCluster* EtcdEngineTest::etcd_ = nullptr;

std::string AllBytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

TEST_F(EtcdEngineTest, GivesBackWhatWasPut) {
  std::string longest(kMaxKeyBytes, '\xff');
  for (const std::string& key : {AllBytes(), std::string(1, '\0'), longest, std::string("k")}) {
    for (const std::string& value : {std::string(), AllBytes(), std::string(128 << 10, 'v')}) {
      for (const std::string& version : {std::string(), AllBytes()}) {
        ASSERT_OK(asker_->Put(key, value, version));
        const auto record = asker_->Get(key);
        ASSERT_OK(record);
        EXPECT_EQ(record->value.text(), value);
        EXPECT_EQ(record->version, version);
        EXPECT_EQ(record->tag, RecordOf(value, "").tag);
      }
    }
  }
  ASSERT_OK(asker_->Put("large", std::string(kMaxValueBytes, 'v'), "1"));
  EXPECT_EQ(asker_->Get("large")->value.size(), kMaxValueBytes);
  EXPECT_FAILS(asker_->Get("other"), ENOENT);
  EXPECT_FAILS(asker_->Put(longest + "f", "", ""), EINVAL);
  EXPECT_FAILS(asker_->Put("k", std::string(kMaxValueBytes + 1, 'v'), "1"), EINVAL);
}

TEST_F(EtcdEngineTest, ChangesARecordOnlyWhereItHasTheExpectedVersion) {
  EXPECT_FAILS(asker_->Put("key", "v", "1", Expected::Version("0")), ESTALE);
  EXPECT_OK(asker_->Put("key", "v", "1", Expected::Absent()));
  EXPECT_FAILS(asker_->Put("key", "w", "2", Expected::Absent()), ESTALE);
  EXPECT_FAILS(asker_->Put("key", "w", "2", Expected::Version("2")), ESTALE);
  EXPECT_EQ(asker_->Get("key")->value.text(), "v");
  EXPECT_OK(asker_->Put("key", "w", "", Expected::Version("1")));
  EXPECT_OK(asker_->Put("key", "x", "3", Expected::Absent()));
  EXPECT_OK(asker_->Put("key", "y", "4"));
  EXPECT_EQ(asker_->VersionOf("key"), "4");
  EXPECT_FAILS(asker_->Remove("key", Expected::Version("3")), ESTALE);
  EXPECT_FAILS(asker_->Remove("key", Expected::Absent()), ESTALE);
  EXPECT_OK(asker_->Remove("key", Expected::Version("4")));
  EXPECT_FAILS(asker_->Remove("key", Expected::Version("4")), ENOENT);
  EXPECT_FAILS(asker_->Remove("key", Expected::Absent()), ENOENT);
  EXPECT_OK(asker_->Remove("key", Expected::Any()));
  EXPECT_FAILS(asker_->Get("key"), ENOENT);
}

TEST_F(EtcdEngineTest, ChangesARecordOnlyWhereItsGuardHasTheExpectedVersion) {
  ASSERT_OK(asker_->Put("guard", "", "7"));
  ASSERT_OK(asker_->Put("empty", "", ""));
  const auto put = [&](Expected expected, std::string guard, Expected of_guard) {
    return asker_->Change(
        PutOf("key", "1", std::move(expected), Guard{std::move(guard), std::move(of_guard)}));
  };
  EXPECT_FAILS(put(Expected::Absent(), "guard", Expected::Version("6")), ECANCELED);
  EXPECT_FAILS(put(Expected::Absent(), "guard", Expected::Absent()), ECANCELED);
  EXPECT_FAILS(put(Expected::Absent(), "none", Expected::Version("6")), ECANCELED);
  EXPECT_FAILS(put(Expected::Version("5"), "guard", Expected::Version("6")), ESTALE);
  EXPECT_FAILS(asker_->Get("key"), ENOENT);
  EXPECT_OK(put(Expected::Absent(), "guard", Expected::Version("7")));
  EXPECT_OK(put(Expected::Any(), "none", Expected::Absent()));
  EXPECT_OK(put(Expected::Version("1"), "empty", Expected::Absent()));
  EXPECT_FAILS(
      asker_->Change(RemovalOf("key", Expected::Any(), Guard{"guard", Expected::Version("1")})),
      ECANCELED);
  EXPECT_OK(asker_->Change(
      RemovalOf("key", Expected::Version("1"), Guard{"guard", Expected::Version("7")})));
}

TEST_F(EtcdEngineTest, DoesABatchInOrderInOneStep) {
  const uint64_t before = asker_->engine.CountRequests();
  EngineBatch batch{
      .changes = {PutOf("a", "1", Expected::Absent()),
                  PutOf("b", "1", Expected::Absent(), Guard{"a", Expected::Version("1")}),
                  PutOf("a", "2", Expected::Version("1")),
                  PutOf("c", "1", Expected::Any(), Guard{"a", Expected::Version("1")}),
                  RemovalOf("b", Expected::Version("1"))},
      .reads = {"a", "b", "c", "a"}};
  const Result<EngineAnswer> answer = asker_->Do(std::move(batch));
  ASSERT_OK(answer);
  EXPECT_OK(answer->changes[0]);
  EXPECT_OK(answer->changes[1]);
  EXPECT_OK(answer->changes[2]);
  EXPECT_FAILS(answer->changes[3], ECANCELED);
  EXPECT_OK(answer->changes[4]);
  EXPECT_EQ(answer->reads[0]->version, "2");
  EXPECT_FAILS(answer->reads[1], ENOENT);
  EXPECT_FAILS(answer->reads[2], ENOENT);
  EXPECT_EQ(answer->reads[3]->version, "2");
  EXPECT_EQ(asker_->engine.CountRequests() - before, 1u);
}

TEST_F(EtcdEngineTest, LeavesTheOthersAloneWhereOneChangeIsRefused) {
  ASSERT_OK(asker_->Put("b", "", "9"));
  const auto codes = [&] {
    return Codes(
        {.changes = {PutOf("a", "1", Expected::Absent()), PutOf("b", "1", Expected::Version("8")),
                     RemovalOf("d", Expected::Version("1")), PutOf("e", "1"),
                     PutOf("c", "1", Expected::Any(), Guard{"b", Expected::Absent()})},
         .reads = {"a"}});
  };
  EXPECT_THAT(codes(), ElementsAre(0, ESTALE, ENOENT, 0, ECANCELED));
  EXPECT_EQ(asker_->VersionOf("a"), "1");
  EXPECT_EQ(asker_->VersionOf("b"), "9");
  EXPECT_EQ(asker_->VersionOf("e"), "1");
  EXPECT_THAT(codes(), ElementsAre(ESTALE, ESTALE, ENOENT, 0, ECANCELED));
}

TEST_F(EtcdEngineTest, TakesBatchesAsLargeAsTheyMayBe) {
  EngineBatch batch;
  for (size_t i = 0; i < kMaxEngineBatch / 2; ++i) {
    EngineChange change = PutOf(fmt::format("k{}", i), "1", Expected::Absent());
    change.put = RecordOf(std::string(128 << 10, 'v'), "1");
    if (i > 0) change.guard = Guard{fmt::format("k{}", i - 1), Expected::Version("1")};
    batch.changes.push_back(std::move(change));
    batch.reads.push_back(fmt::format("k{}", i));
  }
  const Result<EngineAnswer> answer = asker_->Do(batch);
  ASSERT_OK(answer);
  ASSERT_EQ(answer->changes.size(), batch.changes.size());
  for (const Status& each : answer->changes) EXPECT_OK(each);
  for (const auto& each : answer->reads) EXPECT_EQ(each->value.size(), 128u << 10);
  EngineBatch conditions;
  for (size_t i = 0; i < kMaxEngineBatch; ++i) {
    conditions.changes.push_back(PutOf(fmt::format("n{}", i), "1", Expected::Absent(),
                                       Guard{fmt::format("g{}", i), Expected::Absent()}));
  }
  EXPECT_THAT(Codes(conditions), ElementsAreArray(std::vector<int>(kMaxEngineBatch)));
  for (size_t i = 0; i < kMaxEngineBatch; ++i) {
    conditions.changes[i] = PutOf(fmt::format("n{}", i), "2", Expected::Version("1"),
                                  Guard{fmt::format("m{}", i), Expected::Absent()});
  }
  conditions.changes[20].guard->expected = Expected::Version("1");
  std::vector<int> expected(kMaxEngineBatch);
  expected[20] = ECANCELED;
  EXPECT_THAT(Codes(conditions), ElementsAreArray(expected));
}

TEST_F(EtcdEngineTest, AnswersABatchOfNothing) {
  const Result<EngineAnswer> answer = asker_->Do({});
  ASSERT_OK(answer);
  EXPECT_THAT(answer->changes, IsEmpty());
  EXPECT_THAT(answer->reads, IsEmpty());
}

TEST_F(EtcdEngineTest, MakesAConditionalChangeInOneRequest) {
  ASSERT_OK(asker_->Put("key", "v", "1"));
  ASSERT_OK(asker_->Get("key"));
  uint64_t before = asker_->engine.CountRequests();
  ASSERT_OK(asker_->Put("key", "v", "2", Expected::Version("1")));
  EXPECT_EQ(asker_->engine.CountRequests() - before, 1u);
  // Also one that is refused, and one of a record that was never read here.
  const auto other = Connect(Options());
  other->listener.AwaitStore();
  before = other->engine.CountRequests();
  ASSERT_FAILS(other->Put("key", "v", "3", Expected::Version("1")), ESTALE);
  ASSERT_OK(other->Put("key", "v", "3", Expected::Version("2")));
  EXPECT_EQ(other->engine.CountRequests() - before, 2u);
}

TEST_F(EtcdEngineTest, LetsOneOfTwoBatchesWin) {
  const auto other = Connect(Options());
  other->listener.AwaitStore();
  for (int round = 0; round < 50; ++round) {
    std::array<std::vector<int>, 2> codes;
    const auto race = [&](Asker& asker, size_t who) {
      const std::string key = fmt::format("k{}", round);
      EngineBatch batch{
          .changes = {PutOf(key, fmt::format("{}", who), Expected::Absent()),
                      PutOf(key + "-other", fmt::format("{}", who), Expected::Absent())}};
      const Result<EngineAnswer> answer = asker.Do(std::move(batch));
      ASSERT_OK(answer);
      for (const Status& status : answer->changes) codes[who].push_back(status.code());
    };
    std::thread second([&] { race(*other, 1); });
    race(*asker_, 0);
    second.join();
    // Both changes are one step: they have the same winner.
    std::ranges::sort(codes, [](const auto& a, const auto& b) { return a < b; });
    EXPECT_THAT(codes[0], ElementsAre(0, 0));
    EXPECT_THAT(codes[1], ElementsAre(ESTALE, ESTALE));
  }
}

TEST_F(EtcdEngineTest, LosesNoIncrementOfManyThreads) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  ASSERT_OK(asker_->Put("counter", "", "0"));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int done = 0; done < kEach;) {
        const Result<Record> record = asker_->Get("counter");
        ASSERT_OK(record);
        const int next = std::stoi(record->version) + 1;
        const Status put =
            asker_->Put("counter", "", std::to_string(next), Expected::Version(record->version));
        if (put.ok()) ++done;
        ASSERT_TRUE(put.ok() || put.code() == ESTALE) << put.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(asker_->VersionOf("counter"), std::to_string(kThreads * kEach));
}

TEST_F(EtcdEngineTest, HasAFence) {
  EXPECT_OK(asker_->Change(PutOf("a", "1"), asker_->Soon()));
  EXPECT_OK(asker_->Change(PutOf("a", "2"), asker_->Soon(0)));
  EXPECT_OK(asker_->Change(PutOf("a", "3"), asker_->Soon(5)));
  EXPECT_FAILS(asker_->Change(PutOf("a", "4"), asker_->Soon(4)), EREMCHG);
  EXPECT_FAILS(asker_->Get("a", asker_->Soon(4)), EREMCHG);
  EXPECT_FAILS(asker_->List({.first = "", .last = "z"}, asker_->Soon(4)), EREMCHG);
  EXPECT_EQ(asker_->VersionOf("a"), "3");
  EXPECT_OK(asker_->Get("a", asker_->Soon(6)));
  EXPECT_FAILS(asker_->Get("a", asker_->Soon(5)), EREMCHG);
  EXPECT_OK(asker_->List({.first = "", .last = "z"}, asker_->Soon(7)));
  EXPECT_FAILS(asker_->Get("a", asker_->Soon(6)), EREMCHG);
  EXPECT_OK(asker_->SetVersion(2));
  EXPECT_OK(asker_->SetVersion(2));
  EXPECT_OK(asker_->Get("a", asker_->Soon(2)));
  EXPECT_OK(asker_->SetVersion(-3));
  EXPECT_OK(asker_->Get("a", asker_->Soon(-3)));
  EXPECT_FAILS(asker_->Get("a", asker_->Soon(-4)), EREMCHG);
}

TEST_F(EtcdEngineTest, ListsBothWays) {
  std::vector<std::string> keys = {std::string("a\0", 2), "a", "ab", "b", "\x7f", "\x80", "\xff",
                                   std::string("a\0b", 3)};
  for (const std::string& key : keys) ASSERT_OK(asker_->Put(key, "value", "v" + key));
  std::ranges::sort(keys, [](const std::string& a, const std::string& b) { return a < b; });
  EngineRange range{.first = "", .last = std::string(10, '\xff'), .max = 3, .value_limit = 5};
  EXPECT_EQ(asker_->AllKeys(range), keys);
  range.reverse = true;
  std::ranges::reverse(keys);
  EXPECT_EQ(asker_->AllKeys(range), keys);
  const auto some = asker_->List({.first = "a", .last = "ab", .max = 100, .value_limit = 4});
  ASSERT_OK(some);
  ASSERT_EQ(some->records.size(), 4u);
  EXPECT_FALSE(some->more);
  EXPECT_EQ(some->records[0].record.version, "va");
  EXPECT_EQ(some->records[0].record.tag, RecordOf("value", "").tag);
  EXPECT_FALSE(some->records[0].has_value);
  EXPECT_TRUE(some->records[0].record.value.empty());
  EXPECT_THAT(asker_->List({.first = "b", .last = "a", .max = 1})->records, IsEmpty());
  EXPECT_THAT(asker_->List({.first = "x", .last = "y", .max = 1})->records, IsEmpty());
  EXPECT_FAILS(asker_->List({.first = "x", .last = "y", .max = 0}), EINVAL);
}

TEST_F(EtcdEngineTest, ListsLargeRecordsInPages) {
  std::vector<std::string> keys;
  for (int i = 0; i < 120; ++i) {
    keys.push_back(fmt::format("{:03}", i));
    ASSERT_OK(asker_->Put(keys.back(), std::string(128 << 10, 'v'), "1"));
  }
  const EngineRange range{.first = "0", .last = "9", .max = 4096, .value_limit = 1 << 20};
  EXPECT_EQ(asker_->AllKeys(range), keys);
  const auto page = asker_->List(range);
  ASSERT_OK(page);
  EXPECT_LT(page->records.size(), 50u);
  EXPECT_TRUE(page->more);
}

TEST_F(EtcdEngineTest, KeepsClustersApart) {
  EngineOptions options = Options();
  options.cluster += "2";
  const auto other = Connect(options);
  EXPECT_NE(other->listener.AwaitStore(), asker_->listener.AwaitStore());
  ASSERT_OK(asker_->Put("a", "", "1"));
  EXPECT_FAILS(other->Get("a"), ENOENT);
  const auto same = Connect(Options());
  EXPECT_EQ(same->listener.AwaitStore(), asker_->listener.AwaitStore());
}

TEST_F(EtcdEngineTest, NoticesThatTheStoreWasEmptied) {
  const std::string before = asker_->listener.AwaitStore();
  ASSERT_OK(asker_->Put("a", "", "1"));
  etcd_->Run({"del", "--prefix", "pinstripe/NoticesThatTheStoreWasEmptied/"});
  EXPECT_FAILS(asker_->Put("a", "", "2"), EHOSTUNREACH);
  EXPECT_NE(asker_->listener.AwaitStore(2), before);
  EXPECT_THAT(asker_->listener.AwaitLoss().message(), HasSubstr("emptied"));
  EXPECT_FAILS(asker_->Get("a"), ENOENT);
  // Also if nobody asks for anything.
  etcd_->Run({"del", "--prefix", "pinstripe/NoticesThatTheStoreWasEmptied/"});
  asker_->listener.AwaitStore(3);
}

TEST_F(EtcdEngineTest, ToldOfADamagedRecordOverwritesItOnlyWhateverItIs) {
  etcd_->Run({"put", "pinstripe/ToldOfADamagedRecordOverwritesItOnlyWhateverItIs/ra", "nonsense"});
  EXPECT_FAILS(asker_->Get("a"), EBADMSG);
  EXPECT_FAILS(asker_->Put("a", "", "1", Expected::Absent()), EBADMSG);
  const auto listed = asker_->List({.first = "a", .last = "a"});
  ASSERT_OK(listed);
  EXPECT_TRUE(listed->records.at(0).damaged);
  EXPECT_OK(asker_->Put("a", "", "1"));
  EXPECT_EQ(asker_->VersionOf("a"), "1");
}

TEST_F(EtcdEngineTest, TellsWhatItStandsOn) {
  const EngineState state = asker_->LookAt();
  EXPECT_THAT(state.software, HasSubstr("etcd 3."));
  EXPECT_GT(state.used_bytes, 0u);
  ASSERT_EQ(state.members.size(), 1u);
  EXPECT_EQ(state.members[0].name, "m0");
  EXPECT_EQ(state.members[0].address, etcd_->url(0));
  EXPECT_TRUE(state.members[0].is_up);
  EXPECT_TRUE(state.members[0].is_leader);
  EXPECT_THAT(state.alarms, IsEmpty());
  EXPECT_THAT(state.warnings, ElementsAre(HasSubstr("one member")));
}

// What is outstanding is answered before the engine is gone.
TEST_F(EtcdEngineTest, AnswersEverythingBeforeItEnds) {
  constexpr int kAsked = 300;
  std::atomic<int> answered = 0;
  {
    const auto other = Connect(Options());
    other->listener.AwaitStore();
    for (int i = 0; i < kAsked; ++i) {
      EngineBatch batch{.changes = {PutOf(fmt::format("{}", i), "1")}};
      other->engine.Do(std::move(batch), other->Soon(),
                       [&](const Result<EngineAnswer>& /*answer*/) { ++answered; });
    }
  }
  EXPECT_EQ(answered, kAsked);
}

TEST_F(EtcdEngineTest, AnswersAtOnceWhatHasNoTimeLeft) {
  EXPECT_FAILS(asker_->Get("a", Terms(runtime_.Now())), ETIMEDOUT);
}

}  // namespace
}  // namespace pinstripe
