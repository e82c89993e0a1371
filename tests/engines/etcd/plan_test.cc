// How changes with conditions become one transaction, without any etcd.

#include "engines/etcd/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engines/engine_checks.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using Kind = EtcdCondition::Kind;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

EngineChange PutOf(std::string key, std::string version, Expected expected = Expected::Any(),
                   std::optional<Guard> guard = {}) {
  return {.key = std::move(key),
          .put = Record{.version = std::move(version), .tag = "", .value = {}},
          .expected = std::move(expected),
          .guard = std::move(guard)};
}
EngineChange RemovalOf(std::string key, Expected expected = Expected::Any(),
                       std::optional<Guard> guard = {}) {
  return {
      .key = std::move(key), .put = {}, .expected = std::move(expected), .guard = std::move(guard)};
}
EtcdCondition Absent(std::string key) { return {.kind = Kind::kAbsent, .key = std::move(key)}; }
EtcdCondition Has(std::string key, std::string version) {
  return {.kind = Kind::kVersion, .key = std::move(key), .version = std::move(version)};
}
EtcdCondition AsSeen(std::string key, int64_t revision) {
  return {.kind = Kind::kRevision, .key = std::move(key), .revision = revision};
}
std::vector<int> Codes(const EtcdPlan& plan) {
  std::vector<int> codes;
  for (const Status& status : plan.answers) codes.push_back(status.code());
  return codes;
}
EtcdPlan Plan(const std::vector<EngineChange>& changes, const EtcdSeenRecords* seen = nullptr) {
  return PlanChanges(changes, seen);
}

TEST(EtcdPlan, SupposesWhatIsExpected) {
  const EtcdPlan plan =
      Plan({PutOf("a", "1"), PutOf("b", "1", Expected::Absent()),
            PutOf("c", "2", Expected::Version("1")), RemovalOf("d", Expected::Version("7"))});
  EXPECT_THAT(plan.conditions, ElementsAre(Absent("b"), Has("c", "1"), Has("d", "7")));
  EXPECT_THAT(Codes(plan), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(plan.effects, ElementsAre(Pair("a", 0), Pair("b", 1), Pair("c", 2), Pair("d", 3)));
}

TEST(EtcdPlan, SupposesGuards) {
  const EtcdPlan plan = Plan({PutOf("a", "1", Expected::Any(), Guard{"g", Expected::Version("5")}),
                              RemovalOf("b", Expected::Any(), Guard{"h", Expected::Absent()})});
  EXPECT_THAT(plan.conditions, ElementsAre(Has("g", "5"), Absent("h")));
}

// What the batch itself has put needs no condition, and decides.
TEST(EtcdPlan, SeesTheChangesBefore) {
  const EtcdPlan plan =
      Plan({PutOf("a", "1", Expected::Absent()),
            PutOf("b", "1", Expected::Any(), Guard{"a", Expected::Version("1")}),
            PutOf("a", "2", Expected::Version("1")),
            PutOf("c", "1", Expected::Any(), Guard{"a", Expected::Version("1")}),
            PutOf("a", "3", Expected::Version("1")), RemovalOf("a", Expected::Version("2")),
            RemovalOf("a", Expected::Version("2")),
            PutOf("d", "1", Expected::Absent(), Guard{"a", Expected::Absent()})});
  EXPECT_THAT(plan.conditions, ElementsAre(Absent("a"), Absent("d")));
  EXPECT_THAT(Codes(plan), ElementsAre(0, 0, 0, ECANCELED, ESTALE, 0, ENOENT, 0));
  // Each key once, as it is in the end.
  EXPECT_THAT(plan.effects, ElementsAre(Pair("a", 5), Pair("b", 1), Pair("d", 7)));
}

TEST(EtcdPlan, RestsOnWhatWasSeen) {
  const EtcdSeenRecords seen = {{"a", {.exists = true, .version = "1", .revision = 10}},
                                {"b", {}},
                                {"e", {.exists = true, .version = "", .revision = 12}}};
  const std::vector<EngineChange> changes = {
      PutOf("a", "2", Expected::Version("1")), PutOf("b", "2", Expected::Version("1")),
      RemovalOf("b", Expected::Version("1")), PutOf("e", "1", Expected::Absent())};
  const EtcdPlan plan = Plan(changes, &seen);
  EXPECT_THAT(plan.conditions, ElementsAre(AsSeen("a", 10), AsSeen("b", 0), AsSeen("e", 12)));
  EXPECT_THAT(Codes(plan), ElementsAre(0, ESTALE, ENOENT, 0));
  EXPECT_THAT(plan.effects, ElementsAre(Pair("a", 0), Pair("e", 3)));
}

TEST(EtcdPlan, RefusesByTheRecordBeforeTheGuard) {
  const EtcdSeenRecords seen = {{"a", {.exists = true, .version = "1", .revision = 10}},
                                {"g", {.exists = true, .version = "1", .revision = 11}}};
  const Guard wrong{"g", Expected::Version("2")};
  const EtcdPlan plan = Plan({PutOf("a", "3", Expected::Version("2"), wrong),
                              PutOf("a", "3", Expected::Version("1"), wrong)},
                             &seen);
  EXPECT_THAT(Codes(plan), ElementsAre(ESTALE, ECANCELED));
  EXPECT_THAT(plan.effects, IsEmpty());
}

TEST(EtcdPlan, ReplacesADamagedRecordOnlyWhateverItIs) {
  const EtcdSeenRecords seen = {{"a", {.exists = true, .damaged = true, .revision = 10}}};
  const EtcdPlan plan =
      Plan({PutOf("a", "3", Expected::Version("2")),
            PutOf("b", "1", Expected::Any(), Guard{"a", Expected::Absent()}), PutOf("a", "3")},
           &seen);
  EXPECT_THAT(Codes(plan), ElementsAre(EBADMSG, EBADMSG, 0));
}

TEST(EtcdPlan, KnowsWhichRecordsCount) {
  EXPECT_THAT(KeysOf(std::vector<EngineChange>{
                  PutOf("b", "1", Expected::Any(), Guard{"g", Expected::Absent()}), RemovalOf("a"),
                  PutOf("b", "2")}),
              ElementsAre("a", "b", "g"));
}

TEST(EtcdPlan, KeepsTransactionsWithinTheLimits) {
  std::vector<EngineChange> changes;
  std::vector<size_t> sizes;
  for (int i = 0; i < 32; ++i) {
    changes.push_back(PutOf(fmt::format("k{}", i), "1", Expected::Version("0"),
                            Guard{fmt::format("g{}", i), Expected::Version("0")}));
    sizes.push_back(100);
  }
  EXPECT_EQ(CountTogether(changes, sizes), 30u);
  sizes.assign(32, 128 << 10);
  EXPECT_EQ(CountTogether(changes, sizes), 7u);
  sizes.assign(32, 2 << 20);
  EXPECT_EQ(CountTogether(changes, sizes), 1u);
}

TEST(EtcdPlan, RefusesWhatIsOverALimit) {
  EXPECT_OK(CheckBatch({.changes = {PutOf("a", "1")}, .reads = {"a"}}));
  EXPECT_FAILS(CheckBatch({.changes = {PutOf("", "1")}}), EINVAL);
  EXPECT_FAILS(CheckBatch({.changes = {RemovalOf(std::string(kMaxKeyBytes + 1, 'k'))}}), EINVAL);
  EXPECT_FAILS(CheckBatch({.changes = {PutOf("a", std::string(kMaxVersionBytes + 1, 'v'))}}),
               EINVAL);
  EXPECT_FAILS(
      CheckBatch({.changes = {PutOf("a", "1", Expected::Any(), Guard{"a", Expected::Absent()})}}),
      EINVAL);
  EXPECT_FAILS(
      CheckBatch({.changes = {PutOf("a", "1", Expected::Any(), Guard{"b", Expected::Any()})}}),
      EINVAL);
  EXPECT_FAILS(CheckBatch({.reads = {""}}), EINVAL);
  EXPECT_FAILS(CheckBatch({.reads = std::vector<std::string>(kMaxEngineBatch + 1, "k")}), EINVAL);
}

}  // namespace
}  // namespace pinstripe
