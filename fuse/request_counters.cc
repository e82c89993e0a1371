#include "fuse/request_counters.h"

#include "metrics/page.h"
#include "upkeep/host_metrics.h"

namespace pinstripe {
namespace {

constexpr std::array<const char*, RequestCounters::kKinds> kNames = {
    "lookup", "getattr", "setattr", "xattr", "make",      "remove", "rename",
    "open",   "create",  "read",    "write", "fallocate", "lseek",  "copy_file_range",
    "close",  "fsync",   "readdir", "statfs"};

}  // namespace

const char* RequestCounters::NameOf(Kind kind) { return kNames.at(static_cast<size_t>(kind)); }

void RequestCounters::AddTo(MetricsPage& page) const {
  for (size_t i = 0; i < kKinds; ++i) {
    const LatencyCounts took = of_[i].Load();
    const MetricsPage::Labels labels = {{"request", kNames[i]}};
    page.Counter("pinstripe_mount_requests_total", "Requests of the kernel that were answered.",
                 took.count(), labels);
    page.Counter("pinstripe_mount_request_seconds_total", "How long all of them took.",
                 static_cast<double>(took.nanoseconds) / 1e9, labels);
    page.Histogram("pinstripe_mount_request_seconds", "How long each of them took.", took, labels);
  }
  page.Counter("pinstripe_mount_errors_total", "Answers that were EIO.", errors_.load());
  page.Counter("pinstripe_mount_read_bytes_total", "Bytes that were read.", read_.load());
  page.Counter("pinstripe_mount_written_bytes_total", "Bytes that were written.", written_.load());
}

std::string RequestCounters::Text(const MemoryCounters& memory) const {
  MetricsPage page;
  AddTo(page);
  AddMemoryMetrics("pinstripe_mount_", memory, page);
  return page.Text();
}

}  // namespace pinstripe
