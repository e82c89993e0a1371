#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/byte_text.h"
#include "base/bytes.h"
#include "base/table_text.h"
#include "base/time_text.h"
#include "upkeep/cluster_use.h"

namespace pinstripe {
namespace {

using Json = nlohmann::ordered_json;

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string AgoText(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string RateText(double bytes) { return BytesText(static_cast<uint64_t>(bytes)) + "/s"; }

std::string ProgramText(const ClientReport& client) {
  if (client.program.name.empty()) return "(does not say)";
  if (client.program.version.empty()) return client.program.name;
  return fmt::format("{} {}", client.program.name, client.program.version);
}

std::string HostText(const ClientReport& client) {
  if (client.host.empty()) return client.address;
  return fmt::format("{} ({})", client.host, client.address);
}

std::string SilentText(const std::vector<std::pair<std::string, Status>>& silent) {
  std::string text;
  for (const auto& [drive, why] : silent) {
    text += fmt::format("{} does not tell: {}\n", drive, why.WithoutDriveName());
  }
  return text;
}

std::string DriveText(DriveId id, const std::string& address) {
  return fmt::format("drive {} ({})", id, OrDash(address));
}

// With as many digits as mean something.
double Rounded(double number, double steps) { return std::round(number * steps) / steps; }

Json JsonOf(const UseRates& rates) {
  return {{"requests_per_second", Rounded(rates.requests, 10)},
          {"read_bytes_per_second", Rounded(rates.bytes_read, 10)},
          {"written_bytes_per_second", Rounded(rates.bytes_written, 10)}};
}

Json JsonOf(const ClientReport& client) {
  Json json{{"program", client.program.name},
            {"version", client.program.version},
            {"detail", client.program.detail},
            {"host", client.host},
            {"process", client.process},
            {"address", client.address},
            {"identities", client.identities},
            {"drives", client.drives},
            {"connections", client.connections},
            {"tls_connections", client.tls_connections},
            {"connected_seconds", std::chrono::duration<double>(client.connected).count()},
            {"requests", client.requests},
            {"read_bytes", client.bytes_read},
            {"written_bytes", client.bytes_written}};
  json.update(JsonOf(client.rates));
  return json;
}

Json JsonOf(const LatencyCounts& took) {
  const auto seconds = [&took](double share) -> Json {
    if (took.count() == 0) return nullptr;
    return Rounded(std::chrono::duration<double>(took.Quantile(share)).count(), 1e7);
  };
  return {{"count", took.count()}, {"p50_seconds", seconds(0.5)}, {"p99_seconds", seconds(0.99)}};
}

Json JsonOf(const DriveWorkReport& work) {
  if (!work.silent.ok()) return {{"silent", work.silent.message()}};
  Json json{{"silent", nullptr},
            {"connections", work.connections},
            {"reads", JsonOf(work.reads)},
            {"changes", JsonOf(work.writes)}};
  json.update(JsonOf(work.rates));
  return json;
}

Json JsonOf(const std::vector<ClientReport>& clients) {
  Json all = Json::array();
  for (const ClientReport& each : clients) all.push_back(JsonOf(each));
  return all;
}

}  // namespace

std::string TimeTakenText(const LatencyCounts& counts, double share) {
  if (counts.count() == 0) return "-";
  const double milliseconds =
      std::chrono::duration<double, std::milli>(counts.Quantile(share)).count();
  return fmt::format("{:.{}f} ms", milliseconds, milliseconds < 10 ? 2 : 0);
}

std::string ClientsText(const std::vector<ClientReport>& clients, const ClusterUse& now) {
  std::vector<std::vector<std::string>> rows = {{"PROGRAM", "AT", "HOST", "PID", "IDENTITY", "TLS",
                                                 "DRIVES", "SINCE", "REQUESTS/S", "READ",
                                                 "WRITTEN"}};
  for (const ClientReport& each : clients) {
    const std::string tls = each.tls_connections == 0                  ? "no"
                            : each.tls_connections == each.connections ? "yes"
                                                                       : "partly";
    rows.push_back(
        {ProgramText(each), OrDash(each.program.detail), HostText(each),
         each.process == 0 ? "-" : fmt::format("{}", each.process),
         each.identities.empty() ? "none" : fmt::format("{}", fmt::join(each.identities, ",")), tls,
         fmt::format("{}", each.drives.size()), AgoText(each.connected),
         fmt::format("{:.0f}", each.rates.requests), RateText(each.rates.bytes_read),
         RateText(each.rates.bytes_written)});
  }
  std::vector<std::pair<std::string, Status>> silent;
  for (const ClusterUse::OfDrive& drive : now.drives) {
    if (!drive.use.has_value()) {
      silent.emplace_back(DriveText(drive.id, drive.address), drive.use.error());
    }
  }
  const std::string nobody = clients.empty() ? "nobody else is connected\n" : "";
  return TableText(rows) + nobody + SilentText(silent);
}

std::string ClientsJson(const std::vector<ClientReport>& clients, const ClusterUse& now) {
  Json json{{"clients", JsonOf(clients)}, {"silent_drives", Json::array()}};
  for (const ClusterUse::OfDrive& drive : now.drives) {
    if (drive.use.has_value()) continue;
    json["silent_drives"].push_back(
        {{"drive", drive.id}, {"address", drive.address}, {"why", drive.use.error().message()}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string TopText(const std::vector<ClientReport>& clients,
                    const std::vector<DriveWorkReport>& drives) {
  std::vector<std::vector<std::string>> users = {
      {"PROGRAM", "AT", "HOST", "REQUESTS/S", "READ", "WRITTEN"}};
  for (const ClientReport& each : clients) {
    users.push_back({ProgramText(each), OrDash(each.program.detail), HostText(each),
                     fmt::format("{:.0f}", each.rates.requests), RateText(each.rates.bytes_read),
                     RateText(each.rates.bytes_written)});
  }
  std::vector<std::vector<std::string>> rows = {{"DRIVE", "ADDRESS", "CLIENTS", "REQUESTS/S",
                                                 "READ", "WRITTEN", "READS p50", "p99",
                                                 "CHANGES p50", "p99"}};
  std::vector<std::pair<std::string, Status>> silent;
  for (const DriveWorkReport& each : drives) {
    if (!each.silent.ok()) {
      silent.emplace_back(DriveText(each.id, each.address), each.silent);
      continue;
    }
    rows.push_back({fmt::format("{}", each.id), each.address, fmt::format("{}", each.connections),
                    fmt::format("{:.0f}", each.rates.requests), RateText(each.rates.bytes_read),
                    RateText(each.rates.bytes_written), TimeTakenText(each.reads, 0.5),
                    TimeTakenText(each.reads, 0.99), TimeTakenText(each.writes, 0.5),
                    TimeTakenText(each.writes, 0.99)});
  }
  const UseRates all = WorkOfAll(drives).rates;
  return fmt::format("all drives: {:.0f} requests/s, {} read, {} written\n\n{}\n{}{}", all.requests,
                     RateText(all.bytes_read), RateText(all.bytes_written), TableText(users),
                     TableText(rows), SilentText(silent));
}

std::string TopJson(const std::vector<ClientReport>& clients,
                    const std::vector<DriveWorkReport>& drives, int64_t wall_clock) {
  Json json{{"time", TimeText(wall_clock)},
            {"all", JsonOf(WorkOfAll(drives))},
            {"clients", JsonOf(clients)},
            {"drives", Json::array()}};
  for (const DriveWorkReport& each : drives) {
    Json drive{{"drive", each.id}, {"address", each.address}};
    drive.update(JsonOf(each));
    json["drives"].push_back(std::move(drive));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pinstripe
