#include "fuse/request_counters.h"

#include "metrics/page.h"

namespace pinstripe {
namespace {

constexpr std::array<const char*, RequestCounters::kKinds> kNames = {
    "lookup", "getattr", "setattr", "xattr", "make",      "remove", "rename",
    "open",   "create",  "read",    "write", "fallocate", "lseek",  "copy_file_range",
    "close",  "fsync",   "readdir", "statfs"};

}  // namespace

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
  page.Gauge("pinstripe_mount_memory_limit_bytes", "Memory that contents of files may take.",
             memory.limit_bytes);
  page.Gauge("pinstripe_mount_memory_used_bytes", "Memory that they take.", memory.used_bytes);
  page.Gauge("pinstripe_mount_cached_bytes", "Memory of cells that were read and are kept.",
             memory.cached_bytes);
  page.Counter("pinstripe_mount_cache_hits_total", "Cells of up to 64 KiB that reads found.",
               memory.cache_hits);
  page.Counter("pinstripe_mount_cache_misses_total", "Cells that reads did not find, and fetched.",
               memory.cache_misses);
  page.Counter("pinstripe_mount_shared_reads_total",
               "Cells that another read was fetching already.", memory.shared_reads);
  page.Counter("pinstripe_mount_read_ahead_cells_total",
               "Cells that were asked for before anybody wanted them.", memory.read_ahead_cells);
  const DiskCacheCounters& disk = memory.disk;
  if (disk.limit_bytes == 0) return page.Text();
  page.Gauge("pinstripe_mount_disk_cache_ready", "1 when its directory was looked at and is used.",
             disk.ready ? 1 : 0);
  page.Gauge("pinstripe_mount_disk_cache_limit_bytes", "Space that its files may take.",
             disk.limit_bytes);
  page.Gauge("pinstripe_mount_disk_cache_bytes", "Space that they take.", disk.used_bytes);
  page.Gauge("pinstripe_mount_disk_cache_cells", "Cells of up to 64 KiB that can be found there.",
             disk.cells);
  page.Counter("pinstripe_mount_disk_cache_hits_total", "Cells that reads found there.",
               disk.cells_found);
  page.Counter("pinstripe_mount_disk_cache_misses_total",
               "Cells that were not there, so drives were asked.", disk.cells_missed);
  page.Counter("pinstripe_mount_disk_cache_written_cells_total", "Cells that were written there.",
               disk.cells_written);
  page.Counter("pinstripe_mount_disk_cache_dropped_cells_total",
               "Cells that were not written, as the disk is slow, full or away.",
               disk.cells_dropped);
  page.Counter("pinstripe_mount_disk_cache_evicted_cells_total", "Cells that made room for others.",
               disk.cells_evicted);
  page.Counter("pinstripe_mount_disk_cache_damaged_cells_total",
               "Cells that were damaged there, and were read from drives.", disk.cells_damaged);
  return page.Text();
}

}  // namespace pinstripe
