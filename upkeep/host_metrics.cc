#include "upkeep/host_metrics.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "cluster/config.h"

namespace pinstripe {
namespace {

using Labels = MetricsPage::Labels;

void AddStripes(const StripeCounters& stripes, MetricsPage& page) {
  page.Counter("pinstripe_client_fetched_bytes_total", "Bytes that came from drives for reads.",
               stripes.bytes_fetched);
  page.Counter("pinstripe_client_shard_reads_total", "Requests to drives for reads.",
               stripes.read_requests);
  page.Counter("pinstripe_client_degraded_reads_total",
               "Reads that needed other shards than those asked first.", stripes.degraded_reads);
  page.Counter("pinstripe_client_damaged_shards_total", "Shards that were found damaged.",
               stripes.damaged_shards);
  page.Counter("pinstripe_client_missing_shards_total", "Shards that were not where they belong.",
               stripes.missing_shards);
  page.Counter("pinstripe_client_rewritten_shards_total", "Shards that were written again.",
               stripes.rewritten_shards);
  page.Counter("pinstripe_client_spare_shards_total", "Shards that went to a spare drive.",
               stripes.spare_writes);
  page.Counter("pinstripe_client_short_stripes_total",
               "Stripes that were stored with fewer shards than they should have.",
               stripes.short_writes);
}

void AddTimes(const Labels& of_drive, const DriveTimes& times, MetricsPage& page) {
  const auto with_kind = [&of_drive](const char* kind) {
    Labels labels = of_drive;
    labels.emplace_back("kind", kind);
    return labels;
  };
  constexpr const char* kSeconds = "pinstripe_client_drive_request_seconds";
  constexpr const char* kSecondsHelp = "From when a request was sent to a drive to its answer.";
  page.Histogram(kSeconds, kSecondsHelp, times.reads.Load(), with_kind("read"));
  page.Histogram(kSeconds, kSecondsHelp, times.writes.Load(), with_kind("write"));
  constexpr const char* kBytes = "pinstripe_client_drive_value_bytes_total";
  constexpr const char* kBytesHelp = "Bytes of values that went to a drive, or came from it.";
  page.Counter(kBytes, kBytesHelp, times.read_bytes.load(), with_kind("read"));
  page.Counter(kBytes, kBytesHelp, times.written_bytes.load(), with_kind("write"));
  page.Counter("pinstripe_client_drive_failures_total",
               "Answers of a drive that are failures: not that a key is missing, or a version "
               "another one.",
               times.failures.load(), of_drive);
  page.Counter("pinstripe_client_drive_timeouts_total", "Answers that did not come in time.",
               times.timeouts.load(), of_drive);
}

void AddDrives(Cluster& cluster, MetricsPage& page) {
  std::map<DriveId, const DriveConfig*> configured;
  for (const DriveConfig& each : cluster.config().drives) configured[each.id] = &each;
  for (const MappedDrive& one : cluster.map().drives) {
    if (one.state != DriveState::kActive) continue;  // drained, and perhaps taken away
    Drive* drive = cluster.FindDrive(one.id);
    const auto config = configured.find(one.id);
    Labels labels = {{"drive", std::to_string(one.id)}};
    const bool is_known = config != configured.end() && !config->second->addresses.empty();
    labels.emplace_back("address", is_known ? config->second->addresses.front() : "");
    labels.emplace_back("domain", one.domain);
    page.Gauge("pinstripe_client_drive_up",
               "1: the drive could be reached from here, when it was asked last.",
               drive != nullptr && drive->IsUp() ? 1 : 0, labels);
    page.Counter("pinstripe_client_drive_losses_total", "How often the drive was lost.",
                 drive == nullptr ? 0 : drive->CountLosses(), labels);
    if (drive != nullptr && drive->times() != nullptr) AddTimes(labels, *drive->times(), page);
  }
}

}  // namespace

void AddMemoryMetrics(std::string_view prefix, const MemoryCounters& memory, MetricsPage& page) {
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    page.Gauge(fmt::format("{}{}", prefix, name), help, value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, auto value) {
    page.Counter(fmt::format("{}{}", prefix, name), help, value);
  };
  gauge("memory_limit_bytes", "Memory that contents of files may take.", memory.limit_bytes);
  gauge("memory_used_bytes", "Memory that they take.", memory.used_bytes);
  gauge("cached_bytes", "Of this, memory of cells that are kept.", memory.cached_bytes);
  counter("cache_hits_total", "Cells that reads found in memory.", memory.cache_hits);
  counter("cache_misses_total", "Cells that reads did not find, and fetched.", memory.cache_misses);
  counter("shared_reads_total", "Cells that another read was fetching already.",
          memory.shared_reads);
  counter("read_ahead_cells_total", "Cells that were asked for ahead of need.",
          memory.read_ahead_cells);
  const DiskCacheCounters& disk = memory.disk;
  if (disk.limit_bytes == 0) return;
  gauge("disk_cache_ready", "1: the directory was looked at and is used.", disk.ready ? 1 : 0);
  gauge("disk_cache_limit_bytes", "Space that its files may take.", disk.limit_bytes);
  gauge("disk_cache_bytes", "Space that they take.", disk.used_bytes);
  gauge("disk_cache_cells", "Cells that can be found there.", disk.cells);
  counter("disk_cache_hits_total", "Cells that reads found there.", disk.cells_found);
  counter("disk_cache_misses_total", "Cells that were not there, so drives were asked.",
          disk.cells_missed);
  counter("disk_cache_written_cells_total", "Cells that were written there.", disk.cells_written);
  counter("disk_cache_dropped_cells_total",
          "Cells that were not written, as the disk is slow, full or away.", disk.cells_dropped);
  counter("disk_cache_evicted_cells_total", "Cells that made room for others.", disk.cells_evicted);
  counter("disk_cache_damaged_cells_total", "Cells that were found damaged, and read from drives.",
          disk.cells_damaged);
}

void AddHostMetrics(Cluster& cluster, FileSystem& file_system, MetricsPage& page) {
  const ClusterConfig& config = cluster.config();
  page.Gauge("pinstripe_client_cluster_info", "1; the labels say which cluster this is.", 1,
             {{"cluster", config.name},
              {"data_shards", std::to_string(config.layout.geometry().data_shards)},
              {"parity_shards", std::to_string(config.layout.geometry().parity_shards)}});
  page.Gauge("pinstripe_client_parity_shards", "Drives of a stripe that may be lost.",
             config.layout.geometry().parity_shards);
  page.Gauge("pinstripe_client_map_epoch", "The newest epoch of the drive map that is known here.",
             cluster.CurrentEpoch());
  AddMemoryMetrics("pinstripe_client_", file_system.Memory(), page);
  AddStripes(cluster.stripes().counters(), page);
  page.Gauge("pinstripe_client_files_to_mend",
             "Files that were committed while drives were away, and are to be made whole.",
             file_system.FilesToMend());
  AddDrives(cluster, page);
}

}  // namespace pinstripe
