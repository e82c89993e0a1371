#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

class LogTest : public testing::Test {
 protected:
  LogTest() {
    SetLogSink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }

  std::vector<std::string> lines_;
};

TEST_F(LogTest, ALineIsAnEventWithFields) {
  Log(LogLevel::kInfo, "drive connected", {{"drive", 3}, {"host", "h1"}, {"tls", true}});
  Log(LogLevel::kInfo, "nothing to add");
  EXPECT_THAT(lines_, ElementsAre("drive connected drive=3 host=h1 tls=true", "nothing to add"));
}

TEST_F(LogTest, AStatusIsShownByItsMessage) {
  Log(LogLevel::kWarn, "shard unreadable", {{"why", Status(EIO, "no answer")}});
  EXPECT_THAT(lines_, ElementsAre("shard unreadable why=\"no answer\""));
}

TEST_F(LogTest, ValuesThatWouldNotReadBackAreQuoted) {
  Log(LogLevel::kInfo, "quoted", {{"name", "a b"}, {"none", ""}, {"sum", "1+1=2"}});
  Log(LogLevel::kInfo, "escaped", {{"name", "say \"hi\" \\o/"}});
  Log(LogLevel::kInfo, "plain", {{"path", "C:\\x"}, {"utf8", "Z\xc3\xbcrich"}});
  EXPECT_THAT(lines_, ElementsAre(R"(quoted name="a b" none="" sum="1+1=2")",
                                  R"(escaped name="say \"hi\" \\o/")",
                                  "plain path=C:\\x utf8=Z\xc3\xbcrich"));
}

// File names come from anybody. None of them forges a line or moves the cursor of who reads the
// log.
TEST_F(LogTest, ControlCharactersCannotEndTheLine) {
  Log(LogLevel::kInfo, "removed", {{"name", std::string("a\nERROR\r\x1b[2J\0\x7f", 14)}});
  EXPECT_THAT(lines_, ElementsAre(R"(removed name="a\x0aERROR\x0d\x1b[2J\x00\x7f")"));
}

TEST_F(LogTest, LevelsBelowTheChosenOneAreNotPrinted) {
  Log(LogLevel::kDebug, "hidden by default");
  SetLogLevel(LogLevel::kError);
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
  EXPECT_FALSE(LogEnabled(LogLevel::kWarn));
  Log(LogLevel::kWarn, "hidden by choice");
  Log(LogLevel::kError, "printed");
  SetLogLevel(LogLevel::kDebug);
  Log(LogLevel::kDebug, "printed too");
  EXPECT_THAT(lines_, ElementsAre("printed", "printed too"));
}

TEST_F(LogTest, ANewListenerIsToldWhatTheFormerHasHeardOftenEnough) {
  for (int i = 0; i < kLogBurst + 1; ++i) Log(LogLevel::kWarn, "over and over");
  std::vector<std::string> others;
  SetLogSink([&](LogLevel, std::string_view line) { others.emplace_back(line); });
  Log(LogLevel::kWarn, "over and over");
  EXPECT_THAT(others, ElementsAre("over and over"));
}

TEST_F(LogTest, ALineThatRepeatsItselfIsPrintedOnlyTheFirstTimes) {
  for (int i = 0; i < kLogBurst + 100; ++i) Log(LogLevel::kWarn, "again and again", {{"i", i}});
  EXPECT_EQ(lines_.size(), static_cast<size_t>(kLogBurst));
  Log(LogLevel::kError, "again and again");
  Log(LogLevel::kWarn, "something else");
  EXPECT_EQ(lines_.size(), kLogBurst + 2u) << "other levels and other events are not affected";
}

TEST(LogRepeats, CountsWhatItSuppressedAndSaysSoWhenItIsOver) {
  LogRepeats repeats;
  const Time start{seconds(1000)};
  for (int i = 0; i < kLogBurst; ++i) EXPECT_TRUE(repeats.Count(start).print);
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(repeats.Count(start + seconds(10)).print);
  const LogRepeats::Answer later = repeats.Count(start + seconds(11));
  EXPECT_TRUE(later.print);
  EXPECT_EQ(later.suppressed, 7);
  EXPECT_EQ(repeats.Count(start + seconds(11)).suppressed, 0) << "said once";
}

TEST(LogRepeats, LetsThroughWhatComesNowAndThen) {
  LogRepeats repeats;
  for (int i = 0; i < 10 * kLogBurst; ++i) {
    const LogRepeats::Answer answer = repeats.Count(Time(seconds(i)));
    EXPECT_TRUE(answer.print);
    EXPECT_EQ(answer.suppressed, 0);
  }
}

TEST(LogLevels, AreKnownByName) {
  EXPECT_EQ(*ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(*ParseLogLevel("info"), LogLevel::kInfo);
  EXPECT_EQ(*ParseLogLevel("warn"), LogLevel::kWarn);
  EXPECT_EQ(*ParseLogLevel("error"), LogLevel::kError);
  const auto unknown = ParseLogLevel("loud");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().message(), "log level 'loud' is none of debug, info, warn, error");
}

// As where lines go to a pipe that nobody reads any more.
TEST_F(LogTest, AnOutputThatHangsHoldsUpOneThreadOnly) {
  std::promise<void> begun;
  std::promise<void> mend;
  std::vector<std::string> lines;
  SetLogSink([&, hang = mend.get_future().share()](LogLevel, std::string_view line) {
    if (lines.empty()) {
      begun.set_value();
      hang.wait();
    }
    lines.emplace_back(line);
  });
  auto first = std::async(std::launch::async, [] { Log(LogLevel::kInfo, "hangs"); });
  begun.get_future().wait();
  auto others = std::async(std::launch::async, [] {
    for (int i = 0; i < 1100; ++i) Log(LogLevel::kInfo, fmt::format("line {}", i));
  });
  const bool went_on = others.wait_for(seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(went_on);
  mend.set_value();
  first.wait();
  others.wait();
  Log(LogLevel::kInfo, "works");
  SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), 1002u) << "with the first one and the last";
  EXPECT_EQ(lines[0], "hangs");
  EXPECT_EQ(lines[1], "line 0");
  EXPECT_EQ(lines[1000], "line 999");
  EXPECT_EQ(lines[1001], "works (100 lines before it were lost, as the log is slow)");
}

}  // namespace
}  // namespace pinstripe
