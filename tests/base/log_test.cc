#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <vector>

#include "base/log_format.h"

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
    SetLogFormat(LogFormat::kText);
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

// 2026-11-25 19:30:00.125
constexpr int64_t kWhen = 1795635000'125'000'000;

TEST(LogJson, IsOneObjectWhoseFieldsAreStrings) {
  EXPECT_EQ(LogJson(kWhen, LogLevel::kWarn, "drive lost", {{"drive", 3}, {"why", "no answer"}}),
            R"({"time":"2026-11-25T19:30:00.125Z","level":"warn","event":"drive lost",)"
            R"("drive":"3","why":"no answer"})");
  EXPECT_EQ(LogJson(kWhen, LogLevel::kError, "full", {}, 7, 2),
            R"({"time":"2026-11-25T19:30:00.125Z","level":"error","event":"full",)"
            R"("repeated":7,"lost":2})");
}

// Names come from anybody.
TEST(LogJson, IsJsonWhateverAFieldHolds) {
  const auto value = [](std::string_view text) {
    const std::string json = LogJson(kWhen, LogLevel::kInfo, "e", {{"f", text}});
    const std::string before = R"("event":"e","f":")";
    const size_t begin = json.find(before) + before.size();
    return json.substr(begin, json.size() - begin - 2);
  };
  EXPECT_EQ(value("say \"hi\" \\o/"), R"(say \"hi\" \\o/)");
  EXPECT_EQ(value(std::string_view("a\nb\0\x7f", 5)), R"(a\u000ab\u0000\u007f)");
  EXPECT_EQ(value("Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x92\xbe"),
            "Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x92\xbe");
  EXPECT_EQ(value("\xff"), R"(\ufffd)");
  EXPECT_EQ(value("\xe2\x82"), R"(\ufffd\ufffd)");
  EXPECT_EQ(value("\xc0\xaf"), R"(\ufffd\ufffd)") << "longer than needed";
  EXPECT_EQ(value("\xed\xa0\x80"), R"(\ufffd\ufffd\ufffd)") << "half of a pair of UTF-16";
  EXPECT_EQ(value("\xf4\x90\x80\x80"), R"(\ufffd\ufffd\ufffd\ufffd)") << "beyond the last";
}

TEST_F(LogTest, LinesAreJsonWhereThatIsWanted) {
  SetLogFormat(*ParseLogFormat("json"));
  Log(LogLevel::kWarn, "drive lost", {{"drive", 3}});
  SetLogFormat(*ParseLogFormat("text"));
  Log(LogLevel::kWarn, "drive lost", {{"drive", 3}});
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_THAT(lines_[0], testing::StartsWith("{\"time\":\""));
  EXPECT_THAT(lines_[0], testing::EndsWith(R"("level":"warn","event":"drive lost","drive":"3"})"));
  EXPECT_EQ(lines_[1], "drive lost drive=3");
  EXPECT_EQ(ParseLogFormat("xml").error().message(), "log format 'xml' is neither text nor json");
}

// A program that was started by a service, with its output into a file, has inherited the variable.
TEST(LogJournal, IsWhereStandardErrorIsThatStream) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  struct stat about {};
  ASSERT_EQ(fstat(ends[1], &about), 0);
  const std::string stream = fmt::format("{}:{}", about.st_dev, about.st_ino);
  EXPECT_TRUE(IsJournal(ends[1], stream.c_str()));
  EXPECT_FALSE(IsJournal(STDIN_FILENO, stream.c_str()));
  EXPECT_FALSE(IsJournal(ends[1], "8:1"));
  EXPECT_FALSE(IsJournal(ends[1], ""));
  EXPECT_FALSE(IsJournal(ends[1], nullptr));
  EXPECT_FALSE(IsJournal(-1, stream.c_str()));
  close(ends[0]);
  close(ends[1]);
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
