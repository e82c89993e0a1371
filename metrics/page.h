// MetricsPage: what a program tells Prometheus at one moment, in its text format. Metrics of one
// name stand together, in the order in which their names came first, whoever adds to them.
//
//   MetricsPage page;
//   page.Counter("pinstripe_mount_requests_total", "Requests that were answered.", 7,
//                {{"request", "read"}});
//   std::string text = page.Text();

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/latency_histogram.h"

namespace pinstripe {

class MetricsPage {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  MetricsPage();
  ~MetricsPage();

  // What a metric means is told by whoever names it first.
  void Counter(std::string_view name, std::string_view help, double value,
               const Labels& labels = {});
  void Gauge(std::string_view name, std::string_view help, double value, const Labels& labels = {});
  // In seconds.
  void Histogram(std::string_view name, std::string_view help, const LatencyCounts& counts,
                 const Labels& labels = {});

  // Numbers of 64 bits are told as well as a double can.
  template <typename Number>
  void Counter(std::string_view name, std::string_view help, Number value,
               const Labels& labels = {}) {
    Counter(name, help, static_cast<double>(value), labels);
  }
  template <typename Number>
  void Gauge(std::string_view name, std::string_view help, Number value,
             const Labels& labels = {}) {
    Gauge(name, help, static_cast<double>(value), labels);
  }

  std::string Text() const;

 private:
  class Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace pinstripe
