#include "daemon/drive_metrics.h"

#include <string>

#include "daemon/drive_use.h"
#include "kinetic/message.h"
#include "metrics/page.h"
#include "metrics/process_metrics.h"

namespace pinstripe {
namespace {

using Labels = MetricsPage::Labels;

void AddOperations(const std::string& path, const OperationStatistics& statistics,
                   MetricsPage& page) {
  for (const auto& [type, name] : kServedTypes) {
    const OperationStatistics::Count count = statistics.Of(type);
    // What nobody asks for is not told: each histogram is a score of series.
    if (count.operations == 0) continue;
    const Labels labels = {{"path", path}, {"operation", name}};
    page.Histogram("pinstripe_drive_request_seconds",
                   "From when a request was read to when its answer was ready.",
                   statistics.TookOf(type), labels);
    page.Counter("pinstripe_drive_value_bytes_total",
                 "Bytes of values that requests moved which succeeded.", count.value_bytes, labels);
  }
}

void AddFailures(const std::string& path, const OperationStatistics& statistics,
                 MetricsPage& page) {
  for (int status = 0; status < OperationStatistics::kStatuses; ++status) {
    const uint64_t failures = statistics.FailuresOf(status);
    // That of errors is there from the beginning, so that the first one is an increase.
    if (failures == 0 && StatusCodeName(status) != "INTERNAL_ERROR") continue;
    page.Counter("pinstripe_drive_failed_requests_total",
                 "Answers that were no success, by the protocol's name of the status.", failures,
                 {{"path", path}, {"status", std::string(StatusCodeName(status))}});
  }
}

void AddSpace(const std::string& path, const StoreUsage& usage, MetricsPage& page) {
  const Labels labels = {{"path", path}};
  page.Gauge("pinstripe_drive_capacity_bytes", "What the records may take.", usage.capacity_bytes,
             labels);
  page.Gauge("pinstripe_drive_used_bytes", "What the records take.", usage.used_bytes, labels);
  page.Gauge("pinstripe_drive_writable",
             "1: it takes changes; 0: its disk has failed, and it only serves reads, or nothing.",
             usage.failure.ok() ? 1 : 0, labels);
  if (!usage.log) return;
  page.Gauge("pinstripe_drive_segments", "Files of the log.", usage.log->segments, labels);
  page.Gauge("pinstripe_drive_dead_bytes",
             "Bytes of the log that nothing refers to, and that are about to be given back.",
             usage.log->dead_bytes, labels);
  page.Gauge("pinstripe_drive_slack_bytes",
             "Bytes around entries of the log, until these are moved together.",
             usage.log->slack_bytes, labels);
  page.Gauge("pinstripe_drive_unsynced_bytes", "Bytes of the log that are not durable yet.",
             usage.log->unsynced_bytes, labels);
  page.Counter("pinstripe_drive_moved_bytes_total",
               "Bytes of entries that were moved together to give back space.",
               usage.log->moved_bytes, labels);
}

void AddDrive(const MeasuredDrive& drive, MetricsPage& page) {
  KineticService& service = *drive.service;
  const Labels labels = {{"path", drive.path}};
  page.Gauge("pinstripe_drive_up", "1: it is served; 0: it could not be opened.",
             drive.lost.ok() ? 1 : 0, labels);
  page.Gauge("pinstripe_drive_info", "1; the labels say which drive this is.", 1,
             {{"path", drive.path},
              {"serial", service.device().serial_number},
              {"wwn", service.device().world_wide_name},
              {"port", std::to_string(service.port())},
              {"tls_port", std::to_string(service.tls_port())}});
  page.Gauge("pinstripe_drive_connections", "Connections that clients have to it.",
             service.clients().Count(), labels);
  OperationStatistics& statistics = service.statistics();
  AddOperations(drive.path, statistics, page);
  page.Histogram("pinstripe_drive_queue_seconds",
                 "How long requests that were handed over waited for somebody to execute them.",
                 statistics.waits().Load(), labels);
  page.Histogram("pinstripe_drive_sync_seconds",
                 "How long the flushes took that answers waited for.", statistics.flushes().Load(),
                 labels);
  AddFailures(drive.path, statistics, page);
  AddSpace(drive.path, service.inside().engine.Usage(), page);
}

}  // namespace

std::string DriveMetricsText(const std::vector<MeasuredDrive>& drives, Server& server) {
  MetricsPage page;
  AddProcessMetrics(page);
  const Server::Load load = server.CountLoad();
  page.Gauge("pinstripe_daemon_connections", "Connections of all drives together.",
             load.connections);
  page.Gauge("pinstripe_daemon_connections_limit", "How many there may be.", load.most_connections);
  page.Gauge("pinstripe_daemon_value_bytes",
             "Memory of values that are received, executed and sent.", load.value_bytes);
  page.Gauge("pinstripe_daemon_value_limit_bytes",
             "Memory that they may take, beyond which large ones wait.", load.most_value_bytes);
  page.Gauge("pinstripe_daemon_waiting_values", "Large values whose receipt waits for memory.",
             load.waiting);
  for (const MeasuredDrive& drive : drives) AddDrive(drive, page);
  return page.Text();
}

}  // namespace pinstripe
