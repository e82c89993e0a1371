#include "metrics/page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace pinstripe {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

// How many bytes the character at the beginning has in UTF-8; 0: that is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Too long for what they say, halves of characters of UTF-16, and what is beyond the last one.
  const unsigned first = byte(0) << 8 | byte(1);
  const bool is_none = (first >= 0xe080 && first < 0xe0a0) ||
                       (first >= 0xeda0 && first <= 0xedbf) ||
                       (first >= 0xf080 && first < 0xf090) || (first >= 0xf490 && first <= 0xf4bf);
  return is_none ? 0 : bytes;
}

// Names may be any bytes, but a page with something else than UTF-8 is refused as a whole.
std::string Utf8Of(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t taken = CharacterBytes(bytes);
    text += taken == 0 ? "\xef\xbf\xbd" : bytes.substr(0, taken);
    bytes.remove_prefix(std::max<size_t>(taken, 1));
  }
  return text;
}

}  // namespace

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
    for (const auto& [label, value] : labels) metric.label.push_back({label, Utf8Of(value)});
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
