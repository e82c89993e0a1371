// How full a cluster was, and when it will be full.

#include "upkeep/fill_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using std::chrono::hours;

constexpr int64_t kHour = int64_t{3600} * 1'000'000'000;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kNow = 20'000 * kDay;

// `used` of 1000 bytes, so many hours ago.
FillSample Ago(int64_t hours_ago, uint64_t used) {
  return {.at = kNow - hours_ago * kHour, .used = used, .bytes = 1000};
}

FillHistory HistoryOf(std::vector<FillSample> samples) { return {.samples = std::move(samples)}; }

TEST(FillForecast, IsFromWhatWasAddedInTheLastWeek) {
  const auto forecast = ForecastFill(HistoryOf({Ago(168, 100), Ago(24, 640)}), Ago(0, 800));
  ASSERT_TRUE(forecast);
  EXPECT_EQ(forecast->over, hours(168));
  EXPECT_DOUBLE_EQ(forecast->bytes_a_day, 100);
  EXPECT_EQ(forecast->left, hours(48));
}

TEST(FillForecast, DoesNotCountWhatWasBeforeAWeek) {
  const auto forecast =
      ForecastFill(HistoryOf({Ago(300, 0), Ago(200, 700), Ago(48, 600)}), Ago(0, 800));
  ASSERT_TRUE(forecast);
  EXPECT_EQ(forecast->over, hours(48));
  EXPECT_EQ(forecast->left, hours(48));
}

TEST(FillForecast, NeedsADay) {
  EXPECT_FALSE(ForecastFill({}, Ago(0, 800)));
  EXPECT_FALSE(ForecastFill(HistoryOf({Ago(23, 100)}), Ago(0, 800)));
  EXPECT_TRUE(ForecastFill(HistoryOf({Ago(24, 100)}), Ago(0, 800)));
  // Of a clock that was ahead.
  EXPECT_FALSE(ForecastFill(HistoryOf({Ago(-48, 100)}), Ago(0, 800)));
}

TEST(FillForecast, IsNoTimeWhereNothingIsAddedOrHardlyAnything) {
  EXPECT_FALSE(ForecastFill(HistoryOf({Ago(48, 800)}), Ago(0, 800))->left);
  EXPECT_FALSE(ForecastFill(HistoryOf({Ago(48, 900)}), Ago(0, 800))->left);
  FillSample now = Ago(0, 801);
  now.bytes = UINT64_MAX;
  EXPECT_FALSE(ForecastFill(HistoryOf({Ago(48, 800)}), now)->left);
  // And no time at all where it is full.
  EXPECT_EQ(ForecastFill(HistoryOf({Ago(48, 800)}), Ago(0, 1000))->left, Duration::zero());
  EXPECT_EQ(ForecastFill(HistoryOf({Ago(48, 800)}), Ago(0, 1100))->left, Duration::zero());
}

TEST(FillHistory, KeepsSomeADayForTwoWeeks) {
  FillHistory history;
  for (int64_t hour = 1000; hour >= 0; --hour) (void)history.Add(Ago(hour, 1));
  EXPECT_EQ(history.samples.size(), 61u);
  for (size_t i = 1; i < history.samples.size(); ++i) {
    EXPECT_GE(history.samples[i].at - history.samples[i - 1].at, 6 * kHour);
  }
  EXPECT_LE(kNow - history.samples.front().at, 15 * kDay + 4 * kHour);
  // What a wrong clock has noted goes, too.
  history = HistoryOf({Ago(7, 1), Ago(-1, 2)});
  EXPECT_TRUE(history.Add(Ago(0, 3)));
  EXPECT_THAT(history.samples, testing::ElementsAre(Ago(7, 1), Ago(0, 3)));
  EXPECT_FALSE(history.Add(Ago(-5, 4)));
  history = HistoryOf({{.at = INT64_MIN, .used = 1, .bytes = 1}});
  EXPECT_TRUE(history.Add({.at = INT64_MAX, .used = 1, .bytes = 1}));
  EXPECT_EQ(history.samples.size(), 1u);
}

// These bytes are the format.
TEST(FillHistory, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(FillKey())), "55");
  const FillHistory history =
      HistoryOf({{.at = 1'700'000'000'000'000'000, .used = 300, .bytes = 1000},
                 {.at = 1'700'000'000'000'000'001, .used = 4, .bytes = 1000}});
  const std::string good = history.Encode();
  EXPECT_EQ(Hex(AsBytes(good)),
            "01"
            "02"
            "17979cfe362a0000"
            "ac02"
            "e807"
            "17979cfe362a0001"
            "04"
            "e807");
  EXPECT_EQ(FillHistory::Decode(good), history);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(FillHistory::Decode(good.substr(0, size)), EBADMSG) << size;
  }
  EXPECT_FAILS(FillHistory::Decode(good + "x"), EBADMSG);
  EXPECT_FAILS(FillHistory::Decode("\2" + good.substr(1)), EBADMSG);
  EXPECT_FAILS(FillHistory::Decode("\1\x7f"), EBADMSG);
  // Times that do not ascend.
  EXPECT_FAILS(FillHistory::Decode(HistoryOf({Ago(0, 1), Ago(1, 1)}).Encode()), EBADMSG);
}

TEST(FillHistory, IsKeptByTheCluster) {
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 6, .layout = {4, 2, 64 << 10}});
  ASSERT_OK(machines.Format());
  auto cluster = machines.Open();
  ASSERT_OK(cluster);
  const auto kept = [&] {
    const auto value = (*cluster)->registers().Read({kMapGroup, FillKey()});
    return value->value ? FillHistory::Decode(*value->value)->samples.size() : size_t{0};
  };
  NoteFill(**cluster);
  EXPECT_EQ(kept(), 1u);
  NoteFill(**cluster);
  EXPECT_EQ(kept(), 1u);
  sim.Sleep(hours(7));
  // The sum of the drives that happen to answer says nothing.
  machines.SetDown(1, true);
  NoteFill(**cluster);
  EXPECT_EQ(kept(), 1u);
  machines.SetDown(1, false);
  sim.Sleep(std::chrono::seconds(10));
  NoteFill(**cluster);
  EXPECT_EQ(kept(), 2u);
  // What cannot be understood is begun anew.
  const RegisterName name{kMapGroup, FillKey()};
  const auto seen = (*cluster)->registers().Read(name);
  ASSERT_OK(seen);
  ASSERT_OK((*cluster)->registers().Change(name, *seen, "garbage").why);
  NoteFill(**cluster);
  EXPECT_EQ(kept(), 1u);
}

}  // namespace
}  // namespace pinstripe
