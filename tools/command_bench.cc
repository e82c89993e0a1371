// pinstripe bench: how fast a part of the cluster is, measured.

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "cluster/config.h"
#include "redis/address.h"
#include "tools/commands.h"
#include "tools/data_load.h"
#include "tools/drive_load.h"
#include "tools/names_load.h"
#include "tools/process_use.h"
#include "tools/progress.h"

namespace pinstripe {
namespace {

using Json = nlohmann::ordered_json;

struct DriveBenchOptions {
  std::string url;
  std::string config;
  DriveId drive = 0;
  DriveCredentials credentials;
  std::vector<std::string> ops{"put", "get"};
  std::vector<std::string> values{"1MiB"};
  std::vector<std::string> orders{"seq"};
  std::string sync = "write-back";
  DriveLoad load;
  double seconds = 3;
  bool json = false;
};

// Where the drive is and how it is spoken to: from a configuration, or from the URL.
Result<DriveConfig> DriveOf(const DriveBenchOptions& options) {
  constexpr std::string_view kScheme = "kinetic://";
  if (options.config.empty()) {
    std::string address = options.url;
    if (address.starts_with(kScheme)) address.erase(0, kScheme.size());
    while (address.ends_with('/')) address.pop_back();
    TRY(ParseAnyDriveAddress(address));
    DriveConfig drive{.addresses = {address}, .credentials = options.credentials};
    if (drive.IsRedis() && TRY(ParseRedisAddress(address)).tls) drive.tls.emplace();
    return drive;
  }
  const ClusterConfig config = TRY(ClusterConfig::Load(options.config));
  for (const DriveConfig& one : config.drives) {
    if (one.id == options.drive) return one;
  }
  return Fail(EINVAL, "{} has no drive {}; give one of its ids with --drive", options.config,
              options.drive);
}

struct Costs {
  double per_gigabyte;   // CPU seconds
  double per_operation;  // CPU microseconds
};
Costs CostsOf(double cpu_seconds, const DriveLoadResult& result) {
  return {cpu_seconds / (static_cast<double>(result.bytes) / 1e9),
          1e6 * cpu_seconds / static_cast<double>(result.operations)};
}

Json ResultJson(const DriveLoadResult& result, const DriveLoad& load) {
  Json json{{"op", NameOf(result.op)},
            {"value_bytes", result.value_bytes},
            {"keys", NameOf(result.order)},
            {"connections", load.connections},
            {"depth", load.depth},
            {"operations", result.operations},
            {"bytes", result.bytes},
            {"seconds", result.seconds},
            {"latency_us", {{"p50", result.p50}, {"p99", result.p99}, {"p99.9", result.p999}}},
            {"client_cpu_seconds", result.client_cpu_seconds}};
  if (load.daemon != 0) {
    json["daemon_cpu_seconds"] = result.daemon_cpu_seconds;
    json["daemon_written_bytes"] = result.daemon_written_bytes;
  }
  return json;
}

// "-" where nothing was moved or nobody could be looked at.
std::string Number(double number, int digits) {
  return std::isfinite(number) ? fmt::format("{:.{}f}", number, digits) : "-";
}

void PrintHeader(const DriveLoad& load) {
  fmt::print("{}: {} connection{}, {} operations under way on each, {}{}\n", load.name,
             load.connections, load.connections == 1 ? "" : "s", load.depth,
             load.durability == Durability::kWriteBack ? "write-back" : "write-through",
             load.daemon == 0 ? "" : fmt::format("; the daemon is process {}", load.daemon));
  fmt::print("\n{:8} {:>8} {:7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>15} {:>15} {:>8}\n", "OP", "VALUE",
             "KEYS", "OP/S", "MB/S", "P50 us", "P99 us", "P99.9 us", "CLIENT us s/GB",
             "DAEMON us s/GB", "WRITTEN");
}

void PrintRow(const DriveLoadResult& result, const DriveLoad& load) {
  const Costs client = CostsOf(result.client_cpu_seconds, result);
  const Costs daemon = CostsOf(load.daemon == 0 ? NAN : result.daemon_cpu_seconds, result);
  const double written =
      load.daemon == 0 || result.op != DriveLoadOp::kPut
          ? NAN
          : static_cast<double>(result.daemon_written_bytes) / static_cast<double>(result.bytes);
  fmt::print(
      "{:8} {:>8} {:7} {:>9.0f} {:>8.1f} {:>9.0f} {:>9.0f} {:>9.0f} {:>8} {:>6} {:>8} {:>6} "
      "{:>8}\n",
      NameOf(result.op), result.value_bytes, NameOf(result.order),
      static_cast<double>(result.operations) / result.seconds,
      static_cast<double>(result.bytes) / 1e6 / result.seconds, result.p50, result.p99, result.p999,
      Number(client.per_operation, 1), Number(client.per_gigabyte, 2),
      Number(daemon.per_operation, 1), Number(daemon.per_gigabyte, 2), Number(written, 3));
  std::fflush(stdout);  // progress, through a pipe too
}

Result<int> BenchDrive(Runtime& runtime, DriveBenchOptions& options) {
  DriveLoad& load = options.load;
  load.drive = TRY(DriveOf(options));
  load.name =
      options.config.empty() ? load.drive.addresses[0] : fmt::format("drive {}", load.drive.id);
  load.daemon = DaemonAt(load.drive.addresses[0]).value_or(0);
  load.durability =
      options.sync == "write-back" ? Durability::kWriteBack : Durability::kWriteThrough;
  load.length =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.seconds));
  for (const std::string& op : options.ops) load.ops.push_back(TRY(ParseDriveLoadOp(op)));
  for (const std::string& size : options.values)
    load.value_bytes.push_back(TRY(ParseValueSize(size)));
  for (const std::string& order : options.orders)
    load.orders.push_back(TRY(ParseDriveLoadOrder(order)));
  if (!options.json) PrintHeader(load);
  Json rows = Json::array();
  TRY(RunDriveLoad(runtime, load, [&](const DriveLoadResult& result) {
    options.json ? rows.push_back(ResultJson(result, load)) : PrintRow(result, load);
  }));
  if (options.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

void AddDrive(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<DriveBenchOptions>();
  CLI::App* drive = bench.add_subcommand("drive", "One Kinetic drive: operations, latencies, CPU");
  CLI::Option* url =
      drive->add_option("--url", options->url,
                        "The drive: [kinetic://]HOST[:PORT], or redis://HOST[:PORT][/DATABASE]");
  CLI::Option* config = drive->add_option("--config", options->config, "Or a cluster.toml, with");
  drive->add_option("--drive", options->drive, "the id of one of its drives")->needs(config);
  url->excludes(config);
  drive->add_option("--identity", options->credentials.identity, "Our identity, with --url")
      ->capture_default_str();
  drive->add_option("--key", options->credentials.key,
                    "Its HMAC key; Kinetic's default by default");
  drive->add_option("--op", options->ops, "put,get,missing,head,next,previous,range,delete")
      ->delimiter(',')
      ->capture_default_str();
  drive->add_option("--value", options->values, "Sizes of values, such as 120B,4KiB,1MiB")
      ->delimiter(',')
      ->capture_default_str();
  drive->add_option("--keys", options->orders, "Order of the keys: seq,rand,reverse")
      ->delimiter(',')
      ->capture_default_str();
  drive->add_option("--sync", options->sync, "Durability of changes")
      ->check(CLI::IsMember({"write-back", "write-through"}))
      ->capture_default_str();
  drive
      ->add_option("--connections,--threads", options->load.connections,
                   "Connections, a thread each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  drive->add_option("--depth", options->load.depth, "Operations under way on each connection")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  drive->add_option("--records", options->load.records,
                    "Different keys; by default 1 GiB of values, at least 256, at most 100000");
  drive->add_option("--seconds", options->seconds, "Length of each measurement")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  drive->add_flag("--json", options->json, "Print the results as JSON");
  drive->footer(
      "Puts records whose keys begin with \"pinstripe-bench/\" and removes them at the end; "
      "nothing else\n"
      "on the drive is touched. A daemon on this machine is measured too: its CPU time, and for "
      "puts the bytes\n"
      "that it wrote to its disk for each byte put.");
  drive->callback([options, &chosen] {
    if (options->url.empty() && options->config.empty()) {
      throw CLI::RequiredError("--url, or --config with --drive,");
    }
    chosen = [options](Runtime& runtime) { return BenchDrive(runtime, *options); };
  });
}

struct NamesBenchOptions {
  NamesLoad load;
  bool json = false;
};

Json ResultJson(const NamesLoadResult& result) {
  return {{"op", result.op},
          {"clients", result.clients},
          {"operations", result.operations},
          {"seconds", result.seconds},
          {"client_cpu_seconds", result.client_cpu_seconds},
          {"drives_cpu_seconds", result.drives_cpu_seconds}};
}

Result<int> BenchNames(Runtime& runtime, const NamesBenchOptions& options) {
  if (!options.json) {
    fmt::print("{:<8} {:>7} {:>10} {:>10} {:>14} {:>14}\n", "op", "clients", "ops/s", "ms/op",
               "client us/op", "drives us/op");
  }
  Json rows = Json::array();
  Progress progress(runtime);
  const auto tell = [&](const NamesLoadResult& result) {
    progress.Clear();
    if (options.json) return rows.push_back(ResultJson(result));
    const auto operations = static_cast<double>(result.operations);
    fmt::print("{:<8} {:>7} {:>10.0f} {:>10.3f} {:>14.0f} {:>14.0f}\n", result.op, result.clients,
               operations / result.seconds, 1e3 * result.seconds * result.clients / operations,
               1e6 * result.client_cpu_seconds / operations,
               1e6 * result.drives_cpu_seconds / operations);
    std::fflush(stdout);
  };
  const std::string directory =
      TRY(RunNamesLoad(runtime, options.load,
                       {tell, [&](std::string_view op, double done) { progress.Show(op, done); }}));
  if (options.json) {
    fmt::print("{}\n", rows.dump(2));
  } else if (options.load.keep) {
    fmt::print("/{} is still there\n", directory);
  }
  return 0;
}

void AddNames(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<NamesBenchOptions>();
  CLI::App* names = bench.add_subcommand(
      "names", "Names of a cluster: made, looked at, listed, renamed, removed");
  names->add_option("CONFIG", options->load.config, "cluster.toml")->required();
  names
      ->add_option("--clients", options->load.clients,
                   "Hosts at once, each with one operation at a time")
      ->delimiter(',')
      ->capture_default_str();
  names->add_option("--files", options->load.files, "Files that each of them makes")
      ->capture_default_str();
  names->add_option("--file-bytes", options->load.file_bytes, "Bytes in each file")
      ->capture_default_str();
  names->add_flag("--shared", options->load.shared, "All in one directory");
  names
      ->add_option("--fill", options->load.fill,
                   "Empty files that are in that directory before, and are measured as well")
      ->capture_default_str();
  names->add_flag("--keep", options->load.keep, "Do not remove what was made");
  names->add_flag("--json", options->json, "Print the results as JSON");
  names->footer(
      "Works in a directory of its own below the root, and removes it at the end, if it is not to "
      "be kept.");
  names->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return BenchNames(runtime, *options); };
  });
}

struct DataBenchOptions {
  DataLoad load;
  bool json = false;
};

Json ResultJson(const DataLoadResult& result) {
  return {{"pattern", result.pattern},
          {"operations", result.operations},
          {"bytes", result.bytes},
          {"cell_bytes", result.cell_bytes},
          {"received_bytes", result.received_bytes},
          {"sent_bytes", result.sent_bytes},
          {"daemons_written_bytes", result.daemons_written_bytes},
          {"read_requests", result.read_requests},
          {"degraded_reads", result.degraded_reads},
          {"seconds", result.seconds},
          {"latency_us", {{"p50", result.p50}, {"p99", result.p99}}},
          {"client_cpu_seconds", result.client_cpu_seconds},
          {"daemons_cpu_seconds", result.daemons_cpu_seconds}};
}

Result<int> BenchData(Runtime& runtime, const DataBenchOptions& options) {
  if (!options.json) {
    fmt::print("{:<12} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>6} {:>8} {:>7} {:>7}\n",
               "PATTERN", "OPS", "MB/S", "RECEIVED", "OF CELLS", "SENT", "WRITTEN", "P50 us",
               "P99 us", "GETS", "DEGRADED", "CLIENT", "DAEMONS");
    fmt::print("{:<12} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>6} {:>8} {:>7} {:>7}\n",
               "", "", "", "/byte", "/byte", "/byte", "/byte", "", "", "", "", "s/GB", "s/GB");
  }
  Json rows = Json::array();
  TRY(RunDataLoad(runtime, options.load, [&](const DataLoadResult& result) {
    if (options.json) return rows.push_back(ResultJson(result));
    const auto per = [](double number, uint64_t bytes) {
      return Number(number / static_cast<double>(bytes), 3);
    };
    const auto received = static_cast<double>(result.received_bytes);
    const auto gigabytes = static_cast<double>(result.bytes) / 1e9;
    fmt::print(
        "{:<12} {:>6} {:>8.1f} {:>8} {:>8} {:>8} {:>8} {:>9.0f} {:>9.0f} {:>6} {:>8} {:>7.2f} "
        "{:>7.2f}\n",
        result.pattern, result.operations, 1e3 * gigabytes / result.seconds,
        per(received, result.bytes), per(received, result.cell_bytes),
        per(static_cast<double>(result.sent_bytes), result.bytes),
        per(static_cast<double>(result.daemons_written_bytes), result.bytes), result.p50,
        result.p99, result.read_requests, result.degraded_reads,
        result.client_cpu_seconds / gigabytes, result.daemons_cpu_seconds / gigabytes);
    std::fflush(stdout);
  }));
  if (options.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

void AddData(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<DataBenchOptions>();
  CLI::App* data = bench.add_subcommand(
      "data", "Contents of a cluster's files: bytes moved for each byte, latencies, CPU");
  data->add_option("CONFIG", options->load.config, "cluster.toml")->required();
  data->add_option("--pattern", options->load.patterns,
                   "read,read-1m,read-64k,read-4k,vector,overwrite-4k,small-4k")
      ->delimiter(',')
      ->capture_default_str();
  data->add_option("--file-bytes", options->load.file_bytes,
                   "Bytes of the file that is read and written")
      ->capture_default_str();
  data->add_option("--operations", options->load.operations, "Operations of each pattern, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  data->add_flag("--json", options->json, "Print the results as JSON");
  data->footer(
      "Uploads a file into a directory of its own below the root, which is a measurement by "
      "itself,\n"
      "and removes both at the end. Bytes are those of the connections to the drives.");
  data->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return BenchData(runtime, *options); };
  });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "Measure how fast something is");
  bench->require_subcommand(1);
  AddDrive(*bench, chosen);
  AddNames(*bench, chosen);
  AddData(*bench, chosen);
}

}  // namespace pinstripe
