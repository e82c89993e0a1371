// Times as people read them.

#include "base/time_text.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

namespace pinstripe {
namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;

TEST(TimeText, IsUniversalOrLocal) {
  setenv("TZ", "CET-1", 1);
  tzset();
  EXPECT_EQ(TimeText(kTime), "2023-11-14 22:13:20 UTC");
  EXPECT_EQ(TimeOfDayText(kTime), "22:13:20");
  EXPECT_EQ(LocalDayText(kTime), "Tuesday 14 November 2023 (CET)");
  EXPECT_EQ(LocalTimeOfDayText(kTime), "23:13:20");
  unsetenv("TZ");
  tzset();
  for (const int64_t time : {INT64_MIN, int64_t{-2'000'000'000}}) {
    EXPECT_EQ(TimeText(time), "an unknown time");
    EXPECT_EQ(LocalDayText(time), "an unknown time");
  }
}

TEST(TimeText, OfADurationHasTheUnitThatFits) {
  EXPECT_EQ(DurationText(0.4), "0 s");
  EXPECT_EQ(DurationText(89), "89 s");
  EXPECT_EQ(DurationText(720), "12 min");
  EXPECT_EQ(DurationText(3.5 * 3600), "3.5 h");
  EXPECT_EQ(DurationText(7 * 86400), "7.0 days");
}

}  // namespace
}  // namespace pinstripe
