#include "console/console_metrics.h"

#include <algorithm>

#include "metrics/page.h"
#include "metrics/process_metrics.h"

namespace pinstripe {
namespace {

void AddRequests(const ApiParts& parts, const Api& api, const HttpServer& server,
                 MetricsPage& page) {
  const HttpServer::AnswerCounts answers = server.CountAnswers();
  for (size_t kind = 2; kind < answers.size(); ++kind) {
    page.Counter("pinstripe_console_requests_total", "Requests that were answered.", answers[kind],
                 {{"code", fmt::format("{}xx", kind)}});
  }
  page.Gauge("pinstripe_console_streams", "Live updates that somebody follows.",
             api.CountStreams());
  page.Counter("pinstripe_console_wrong_tokens_total",
               "Tokens that were sent and are no operator's.", parts.operators.wrong_tokens());
}

void AddLooks(const ApiParts& parts, MetricsPage& page) {
  const Watch::Looks looks = parts.watch.CountLooks();
  page.Histogram("pinstripe_console_look_seconds", "How long looks at the cluster took.",
                 looks.took);
  page.Counter("pinstripe_console_failed_looks_total",
               "Looks that found no cluster that can be opened.", looks.failed);
  if (looks.last_good) {
    page.Gauge("pinstripe_console_good_look_age_seconds",
               "How long ago a look did not fail; absent until one has not.",
               std::chrono::duration<double>(*looks.last_good).count());
  }
  page.Counter("pinstripe_console_drive_questions_total", "Questions that drives have answered.",
               parts.view.Questions());
}

}  // namespace

std::string ConsoleMetricsText(const ApiParts& parts, const Api& api, const HttpServer& server) {
  MetricsPage page;
  AddProcessMetrics(page);
  AddRequests(parts, api, server, page);
  AddLooks(parts, page);
  return page.Text();
}

}  // namespace pinstripe
