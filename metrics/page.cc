#include "metrics/page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/utf8.h"

namespace pinstripe {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class MetricsPage::Families {
 public:
  ClientMetric& Add(MetricType type, std::string_view name, std::string_view help,
                    const Labels& labels) {
    const auto [known, is_new] = by_name_.try_emplace(std::string(name), all_.size());
    if (is_new) {
      all_.push_back(
          {.name = std::string(name), .help = std::string(help), .type = type, .metric = {}});
    }
    ClientMetric& metric = all_[known->second].metric.emplace_back();
    // Names may be any bytes, but a page with something else than UTF-8 is refused as a whole.
    for (const auto& [label, value] : labels) metric.label.push_back({label, Utf8Text(value)});
    return metric;
  }
  const std::vector<MetricFamily>& all() const { return all_; }

 private:
  std::vector<MetricFamily> all_;
  std::unordered_map<std::string, size_t> by_name_;
};

MetricsPage::MetricsPage() : families_(std::make_unique<Families>()) {}
MetricsPage::~MetricsPage() = default;

void MetricsPage::Counter(std::string_view name, std::string_view help, double value,
                          const Labels& labels) {
  families_->Add(MetricType::Counter, name, help, labels).counter.value = value;
}

void MetricsPage::Gauge(std::string_view name, std::string_view help, double value,
                        const Labels& labels) {
  families_->Add(MetricType::Gauge, name, help, labels).gauge.value = value;
}

void MetricsPage::Histogram(std::string_view name, std::string_view help,
                            const LatencyCounts& counts, const Labels& labels) {
  auto& histogram = families_->Add(MetricType::Histogram, name, help, labels).histogram;
  uint64_t so_far = 0;
  for (size_t i = 0; i < LatencyCounts::kBuckets; ++i) {
    so_far += counts.of[i];
    const bool is_last = i == LatencyCounts::kEnds.size();
    const double end = is_last ? std::numeric_limits<double>::infinity()
                               : static_cast<double>(LatencyCounts::kEnds[i]) / 1e9;
    histogram.bucket.push_back({.cumulative_count = so_far, .upper_bound = end});
  }
  histogram.sample_count = so_far;
  histogram.sample_sum = static_cast<double>(counts.nanoseconds) / 1e9;
}

std::string MetricsPage::Text() const {
  return prometheus::TextSerializer().Serialize(families_->all());
}

}  // namespace pinstripe
