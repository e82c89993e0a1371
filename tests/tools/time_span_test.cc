// How long and since when, as people write it.

#include "tools/time_span.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

TEST(TimeSpan, IsANumberAndAUnit) {
  EXPECT_EQ(ParseSpan("--x", "30m"), minutes(30));
  EXPECT_EQ(ParseSpan("--x", "30 min"), minutes(30));
  EXPECT_EQ(ParseSpan("--x", "12h"), hours(12));
  EXPECT_EQ(ParseSpan("--x", "7d"), hours(168));
  EXPECT_EQ(ParseSpan("--x", "2w"), hours(336));
  for (const char* const wrong :
       {"", "h", "12", "12x", "-1h", "1.5h", "1000000d", "99999w", "1hh"}) {
    const auto span = ParseSpan("--older-than", wrong);
    ASSERT_FAILS(span, EINVAL) << wrong;
    EXPECT_THAT(std::string(span.error().message()), testing::StartsWith("--older-than "));
  }
}

TEST(TimeSpan, OrATimeOfThisPlace) {
  setenv("TZ", "CET-1", 1);
  tzset();
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kNow = 1'700'000'000 * kSecond;
  EXPECT_EQ(ParseSince("--since", "1h", kNow), kNow - 3600 * kSecond);
  EXPECT_EQ(ParseSince("--since", "2023-11-14 23:13:20", kNow), kNow);
  EXPECT_EQ(ParseSince("--since", "2023-11-14T23:13", kNow), kNow - 20 * kSecond);
  EXPECT_EQ(ParseSince("--since", "2023-11-15", kNow), kNow + (46 * 60 + 40) * kSecond);
  for (const char* const wrong :
       {"", "yesterday", "2023-13-01", "2023-11-14 25:00", "1900-01-01", "2300-01-01"}) {
    EXPECT_FAILS(ParseSince("--since", wrong, kNow), EINVAL) << wrong;
  }
  unsetenv("TZ");
  tzset();
}

}  // namespace
}  // namespace pinstripe
