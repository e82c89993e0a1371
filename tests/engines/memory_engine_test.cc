// The model of an engine itself, without a drive: what engines/engine.h says of batches.

#include "tests/support/memory_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/real_runtime.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;

Record NewRecord(std::string version) { return {.version = std::move(version)}; }

class MemoryEngineTest : public testing::Test {
 protected:
  std::vector<int> Do(EngineBatch batch, std::optional<int64_t> version = {}) {
    const auto answer = store_.Do(store_.id(), batch, Terms(Time::max(), version));
    if (!answer) return {answer.error().code()};
    std::vector<int> codes;
    for (const Status& each : answer->changes) codes.push_back(each.code());
    for (const auto& each : answer->reads) codes.push_back(StatusOf(each).code());
    return codes;
  }

  RealRuntime runtime_;
  MemoryEngineStore store_{runtime_};
};

TEST_F(MemoryEngineTest, AChangeSeesThoseBeforeIt) {
  EXPECT_THAT(
      Do({.changes =
              {{.key = "a", .put = NewRecord("1"), .expected = Expected::Absent()},
               {.key = "a", .put = NewRecord("2"), .expected = Expected::Absent()},
               {.key = "a", .put = NewRecord("2"), .expected = Expected::Version("1")},
               {.key = "b", .put = NewRecord("1"), .guard = Guard{"a", Expected::Version("1")}},
               {.key = "b", .put = NewRecord("1"), .guard = Guard{"a", Expected::Version("2")}},
               {.key = "a", .expected = Expected::Version("2")},
               {.key = "c", .put = NewRecord("1"), .guard = Guard{"a", Expected::Absent()}}},
          .reads = {"a", "b", "c"}}),
      ElementsAre(0, ESTALE, 0, ECANCELED, 0, 0, 0, ENOENT, 0, 0));
}

TEST_F(MemoryEngineTest, RemovesWhatIsThereAndSaysWhatIsNot) {
  EXPECT_THAT(Do({.changes = {{.key = "a"},
                              {.key = "a", .expected = Expected::Absent()},
                              {.key = "a", .expected = Expected::Version("1")},
                              {.key = "a", .put = NewRecord("")},
                              {.key = "a", .expected = Expected::Version("1")},
                              {.key = "a", .expected = Expected::Absent()}},
                  .reads = {"a"}}),
              ElementsAre(0, ENOENT, ENOENT, 0, ESTALE, 0, ENOENT));
}

TEST_F(MemoryEngineTest, AnotherVersionIsToldBeforeTheGuard) {
  EXPECT_THAT(Do({.changes = {{.key = "a",
                               .put = NewRecord("1"),
                               .expected = Expected::Version("0"),
                               .guard = Guard{"g", Expected::Version("1")}}}}),
              ElementsAre(ESTALE));
}

TEST_F(MemoryEngineTest, DoesNothingUnderAnEarlierVersionOrInAnotherStore) {
  EXPECT_THAT(Do({.changes = {{.key = "a", .put = NewRecord("1")}}}, 5), ElementsAre(0));
  EXPECT_THAT(Do({.changes = {{.key = "a"}}}, 4), ElementsAre(EREMCHG));
  const std::string before = store_.id();
  store_.Empty();
  EXPECT_NE(store_.id(), before);
  EXPECT_EQ(store_.cluster_version(), 0);
  EngineBatch batch;
  batch.changes = {{.key = "a", .put = NewRecord("1")}};
  EXPECT_FAILS(store_.Do(before, batch, Terms(Time::max(), 9)), EHOSTUNREACH);
  EXPECT_EQ(store_.Find("a"), std::nullopt);
  EXPECT_EQ(store_.cluster_version(), 0);
}

TEST_F(MemoryEngineTest, ADamagedRecordIsReplacedByWhoDoesNotMind) {
  store_.Set("a", "rubbish");
  EXPECT_THAT(
      Do({.changes = {{.key = "a", .put = NewRecord("1"), .expected = Expected::Absent()},
                      {.key = "b", .put = NewRecord("1"), .guard = Guard{"a", Expected::Absent()}},
                      {.key = "a", .put = NewRecord("1")}},
          .reads = {"a"}}),
      ElementsAre(EBADMSG, EIO, 0, 0));
}

}  // namespace
}  // namespace pinstripe
