// What the console tells Prometheus of itself.

#include "console/console_metrics.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <regex>

#include "tests/console/console_fixture.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::Not;

using Kinds = std::map<std::string, std::string>;  // of metrics, by their names

class ConsoleMetricsTest : public ConsoleFixture {
 protected:
  std::string Text() { return ConsoleMetricsText(Parts(), *api_, *server_); }

  // An answer counts when it was written, which its client may learn first.
  void WaitForLine(const std::string& line) {
    while (Text().find(line + "\n") == std::string::npos) {
      ASSERT_LT(runtime_.Now(), began_ + std::chrono::seconds(20)) << line << "\n" << Text();
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + std::chrono::milliseconds(5));
    }
  }

  const Time began_ = runtime_.Now();
};

TEST_F(ConsoleMetricsTest, CountRequestsByTheirAnswers) {
  Start();
  EXPECT_THAT(Text(), HasSubstr("pinstripe_console_requests_total{code=\"2xx\"} 0\n"));
  EXPECT_EQ(StatusIn(Get("/api/v1/status")), 200);
  EXPECT_EQ(StatusIn(Get("/")), 200);
  EXPECT_EQ(StatusIn(Get("/api/v1/nothing")), 404);
  EXPECT_EQ(StatusIn(Ask("this is no request\r\n\r\n")), 400) << "which the library answers";
  EXPECT_EQ(StatusIn(Get("/api/v1/operator", "Authorization: Bearer guessed\r\n")), 401);
  EXPECT_EQ(StatusIn(Get("/api/v1/operator", fmt::format("Authorization: Bearer {}\r\n", kToken))),
            200);
  WaitForLine("pinstripe_console_requests_total{code=\"2xx\"} 3");
  WaitForLine("pinstripe_console_requests_total{code=\"4xx\"} 3");
  WaitForLine("pinstripe_console_requests_total{code=\"5xx\"} 0");
  WaitForLine("pinstripe_console_wrong_tokens_total 1");
}

TEST_F(ConsoleMetricsTest, CountLiveUpdatesWhileTheyLast) {
  watch_options_.every = std::chrono::seconds(3);
  Start();
  WaitForLine("pinstripe_console_streams 0");
  uint64_t number = 0;
  {
    HttpClient live(server_->port());
    live.Send(GetText("/api/v1/live"));
    live.ReceiveUntil("event: status");
    WaitForLine("pinstripe_console_streams 1");
    number = watch_->Newest()->number;
  }
  WaitForLine("pinstripe_console_streams 0");
  EXPECT_LE(watch_->Newest()->number, number + 1) << "the next picture is for nobody who has gone";
}

TEST_F(ConsoleMetricsTest, TellHowLooksGo) {
  cluster_.Break(Status(EINVAL, "cluster.toml:3: what is this?"));
  Start();
  EXPECT_THAT(Text(), HasSubstr("pinstripe_console_look_seconds_count 1\n"));
  EXPECT_THAT(Text(), HasSubstr("pinstripe_console_failed_looks_total 1\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("pinstripe_console_good_look_age_seconds")))
      << "there was none, and 0 would be the best";
  cluster_.Set(SurveyOfDrives(16));
  watch_->WaitForOther(watch_->Newest()->number, std::chrono::seconds(10));
  EXPECT_THAT(Text(), HasSubstr("pinstripe_console_failed_looks_total 1\n"));
  EXPECT_THAT(Text(), HasSubstr("\npinstripe_console_good_look_age_seconds "));
  watch_->End();  // no question comes between
  EXPECT_THAT(Text(), HasSubstr(fmt::format("\npinstripe_console_drive_questions_total {}\n",
                                            cluster_.Questions())));
}

TEST_F(ConsoleMetricsTest, AreThoseOfTheReference) {
  Start();
  Kinds served;
  const std::regex type("# TYPE (\\w+) (\\w+)");
  const std::string text = Text();
  for (std::sregex_iterator one(text.begin(), text.end(), type), end; one != end; ++one) {
    served[(*one)[1]] = (*one)[2];
  }
  Kinds listed;
  const std::regex row("\\| `(\\w+)` \\| (counter|gauge|histogram).*");
  std::ifstream page(PINSTRIPE_SOURCE_DIR "/docs/reference/metrics.md");
  bool is_ours = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) is_ours = line == "## Every program" || line == "## The console";
    std::smatch match;
    if (is_ours && std::regex_match(line, match, row)) listed[match[1]] = match[2];
  }
  EXPECT_EQ(served, listed);
  EXPECT_GT(listed.size(), 10u);
}

}  // namespace
}  // namespace pinstripe
