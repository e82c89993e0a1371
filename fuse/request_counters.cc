#include "fuse/request_counters.h"

#include <fmt/format.h>
#include <prometheus/text_serializer.h>

#include <vector>

namespace pinstripe {
namespace {

using prometheus::MetricType;

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;

constexpr std::array<const char*, RequestCounters::kKinds> kNames = {
    "lookup", "getattr", "setattr", "xattr", "make",      "remove", "rename",
    "open",   "create",  "read",    "write", "fallocate", "lseek",  "copy_file_range",
    "close",  "fsync",   "readdir", "statfs"};

class Page {
 public:
  void Metric(const char* name, MetricType type, const char* help) {
    families_.push_back({.name = fmt::format("pinstripe_mount_{}", name),
                         .help = help,
                         .type = type,
                         .metric = {}});
  }
  template <typename Number>
  void Value(Number value, const char* request = nullptr) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    if (request) metric.label.push_back({.name = "request", .value = request});
    const bool is_counter = families_.back().type == MetricType::Counter;
    (is_counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
  }
  template <typename Number>
  void Single(const char* name, MetricType type, const char* help, Number value) {
    Metric(name, type, help);
    Value(value);
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace

std::string RequestCounters::Text(const MemoryCounters& memory) const {
  Page page;
  page.Metric("requests_total", kCounter, "Requests of the kernel that were answered.");
  for (size_t i = 0; i < kKinds; ++i) page.Value(of_[i].requests.load(), kNames[i]);
  page.Metric("request_seconds_total", kCounter, "How long all of them took.");
  for (size_t i = 0; i < kKinds; ++i) {
    page.Value(static_cast<double>(of_[i].nanoseconds.load()) / 1e9, kNames[i]);
  }
  page.Single("errors_total", kCounter, "Answers that were EIO.", errors_.load());
  page.Single("read_bytes_total", kCounter, "Bytes that were read.", read_.load());
  page.Single("written_bytes_total", kCounter, "Bytes that were written.", written_.load());
  page.Single("memory_limit_bytes", kGauge, "Memory that contents of files may take.",
              memory.limit_bytes);
  page.Single("memory_used_bytes", kGauge, "Memory that they take.", memory.used_bytes);
  page.Single("cached_bytes", kGauge, "Memory of cells that were read and are kept.",
              memory.cached_bytes);
  page.Single("cache_hits_total", kCounter, "Cells of up to 64 KiB that reads found.",
              memory.cache_hits);
  page.Single("cache_misses_total", kCounter, "Cells that reads did not find, and fetched.",
              memory.cache_misses);
  page.Single("shared_reads_total", kCounter, "Cells that another read was fetching already.",
              memory.shared_reads);
  page.Single("read_ahead_cells_total", kCounter,
              "Cells that were asked for before anybody wanted them.", memory.read_ahead_cells);
  const DiskCacheCounters& disk = memory.disk;
  if (disk.limit_bytes == 0) return page.Text();
  page.Single("disk_cache_ready", kGauge, "1 when its directory was looked at and is used.",
              disk.ready ? 1 : 0);
  page.Single("disk_cache_limit_bytes", kGauge, "Space that its files may take.", disk.limit_bytes);
  page.Single("disk_cache_bytes", kGauge, "Space that they take.", disk.used_bytes);
  page.Single("disk_cache_cells", kGauge, "Cells of up to 64 KiB that can be found there.",
              disk.cells);
  page.Single("disk_cache_hits_total", kCounter, "Cells that reads found there.", disk.cells_found);
  page.Single("disk_cache_misses_total", kCounter,
              "Cells that were not there, so drives were asked.", disk.cells_missed);
  page.Single("disk_cache_written_cells_total", kCounter, "Cells that were written there.",
              disk.cells_written);
  page.Single("disk_cache_dropped_cells_total", kCounter,
              "Cells that were not written, as the disk is slow, full or away.",
              disk.cells_dropped);
  page.Single("disk_cache_evicted_cells_total", kCounter, "Cells that made room for others.",
              disk.cells_evicted);
  page.Single("disk_cache_damaged_cells_total", kCounter,
              "Cells that were damaged there, and were read from drives.", disk.cells_damaged);
  return page.Text();
}

}  // namespace pinstripe
