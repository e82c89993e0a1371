#include "metrics/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/program.h"
#include "metrics/process_metrics.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;

TEST(MetricsPage, MetricsOfOneNameStandTogether) {
  MetricsPage page;
  page.Counter("a_total", "First.", 1, {{"drive", "1"}});
  page.Gauge("b", "Second.", 2.5);
  page.Counter("a_total", "First.", 3, {{"drive", "2"}});
  EXPECT_EQ(page.Text(),
            "# HELP a_total First.\n# TYPE a_total counter\n"
            "a_total{drive=\"1\"} 1\na_total{drive=\"2\"} 3\n"
            "# HELP b Second.\n# TYPE b gauge\nb 2.5\n");
}

TEST(MetricsPage, HistogramsAreInSecondsAndAddUp) {
  LatencyHistogram histogram;
  histogram.Add(std::chrono::milliseconds(1));
  histogram.Add(std::chrono::milliseconds(3));
  MetricsPage page;
  page.Histogram("a_seconds", "Time.", histogram.Load(), {{"kind", "get"}});
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("a_seconds_count{kind=\"get\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("a_seconds_sum{kind=\"get\"} 0.004"));
  EXPECT_THAT(text, HasSubstr("a_seconds_bucket{kind=\"get\",le=\"0.001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("a_seconds_bucket{kind=\"get\",le=\"0.005\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("a_seconds_bucket{kind=\"get\",le=\"+Inf\"} 2\n"));
}

TEST(MetricsPage, LabelsCannotEndTheirLine) {
  MetricsPage page;
  page.Gauge("a", "One.", 1, {{"path", "/a\"b\\c\nd"}});
  EXPECT_THAT(page.Text(), HasSubstr("a{path=\"/a\\\"b\\\\c\\nd\"} 1\n"));
}

// Prometheus refuses a page that has other bytes, with all that is in it.
TEST(MetricsPage, LabelsAreTextWhateverTheirBytesAre) {
  const auto shown = [](const std::string& label) {
    MetricsPage page;
    page.Gauge("a", "One.", 1, {{"path", label}});
    const std::string text = page.Text();
    const size_t begin = text.find("path=\"") + 6;
    return text.substr(begin, text.find('"', begin) - begin);
  };
  const std::string instead = "\xef\xbf\xbd";
  for (const char* text : {"/data", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
                           "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(shown(text), text);
  }
  EXPECT_EQ(shown("a\xff"
                  "b"),
            "a" + instead + "b");
  EXPECT_EQ(shown("\xc3"), instead);
  EXPECT_EQ(shown("\xc3("), instead + "(");
  EXPECT_EQ(shown("\xc0\xaf"), instead + instead);  // too long for a slash
  EXPECT_EQ(shown("\xe0\x80\xaf"), instead + instead + instead);
  EXPECT_EQ(shown("\xed\xa0\x80"), instead + instead + instead);  // a half
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), instead + instead + instead + instead);
}

TEST(ProcessMetrics, SayWhatTheProgramIs) {
  SetProgram({.name = "test", .version = "1.2", .detail = "of metrics"});
  MetricsPage page;
  AddProcessMetrics(page);
  const std::string text = page.Text();
  EXPECT_THAT(text, HasSubstr("pinstripe_build_info{program=\"test\",version=\"1.2\","
                              "detail=\"of metrics\"} 1\n"));
  for (const char* name : {"process_cpu_seconds_total", "process_start_time_seconds",
                           "process_resident_memory_bytes", "process_open_fds"}) {
    const size_t at = text.find(std::string("\n") + name + " ");
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_GT(std::stod(text.substr(at + 2 + strlen(name))), 0) << name;
  }
}

}  // namespace
}  // namespace pinstripe
