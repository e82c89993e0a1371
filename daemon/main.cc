#include "daemon/main.h"

#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/program.h"
#include "base/real_runtime.h"
#include "base/try.h"
#include "daemon/config.h"
#include "daemon/device_security.h"
#include "daemon/drive_metrics.h"
#include "daemon/engine.h"
#include "daemon/housekeeper.h"
#include "daemon/places.h"
#include "daemon/server.h"
#include "kinetic/tls.h"
#include "metrics/server.h"
#include "store/descriptor_reserve.h"
#include "store/drive_mark.h"
#include "store/erasable_store.h"
#include "store/kind.h"
#include "store/log_store.h"

namespace pinstripe {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitUnknown = 3;  // a store could not be checked

// For the stores, where connections have not left any.
size_t ReserveOf(uint64_t descriptors) { return std::min<uint64_t>(64, descriptors / 8); }

// One drive of this process.
struct Device {
  Device(std::unique_ptr<ErasableStore> device_store, DeviceDescription description,
         std::unique_ptr<DeviceSecurity> device_security, Status why_lost = {})
      : lost(std::move(why_lost)),
        store(*device_store),
        engine(std::move(device_store)),
        security(std::move(device_security)),
        service(std::move(description), *security, engine) {}

  const Status lost;  // why it could not be opened: all it does is to say so; success: it was
  ErasableStore& store;
  Engine engine;
  const std::unique_ptr<DeviceSecurity> security;
  KineticService service;
};

// The signals that the program knows, taken by sigwait instead of a handler: so threads made after
// this never see them.
sigset_t BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

uint64_t DescriptorsInUse() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<uint64_t>(std::distance(begin(open), end(open)));
}

// The stores are open, and nobody has connected yet.
Places::Limits PlacesFor(const DaemonConfig& config, uint64_t descriptors) {
  Places::Limits limits = Places::LimitsFor(descriptors, DescriptorsInUse(), config.drives.size());
  const auto choose = [](size_t configured, size_t* limit) {
    if (configured != 0) *limit = configured;
  };
  limits.per_device = config.connections_per_drive;
  choose(config.connections, &limits.connections);
  choose(config.connections_per_address, &limits.per_address);
  choose(config.strangers, &limits.strangers);
  choose(config.strangers_per_address, &limits.strangers_per_address);
  Log(LogLevel::kInfo, "connections are bounded",
      {{"descriptors", descriptors},
       {"per_drive", limits.per_device},
       {"connections", limits.connections},
       {"per_address", limits.per_address},
       {"strangers", limits.strangers},
       {"strangers_per_address", limits.strangers_per_address}});
  return limits;
}

// The store of a drive's configuration, and which device's it is.
Result<std::unique_ptr<Store>> OpenStore(const ServedDrive& drive, const DaemonDisk& disk,
                                         StoreResources& resources, DeviceIdentity* identity) {
  TRY(RequireDriveMark(drive.path, PINSTRIPE_VERSION));
  TRY(CheckStoreKind(drive.path, drive.store));
  if (drive.store != StoreKind::kLog) return disk.open_other(drive, identity);
  LogStoreOptions options;
  options.path = drive.path;
  options.serial_number = drive.serial_number;
  options.capacity_bytes = drive.capacity_bytes;
  options.calls = disk.calls;
  options.index_env = disk.index_env;
  std::unique_ptr<LogStore> store = TRY(LogStore::Open(options, resources));
  *identity = store->identity();
  return store;
}

std::string SecurityFileOf(const ServedDrive& drive) {
  return fmt::format("{}/{}", drive.path, DeviceSecurity::kFileName);
}

Result<std::unique_ptr<Device>> OpenDevice(const ServedDrive& drive, const DaemonDisk& disk,
                                           StoreResources& resources, const DaemonConfig& config) {
  DeviceIdentity identity;
  std::unique_ptr<Store> store = TRY(OpenStore(drive, disk, resources, &identity));
  auto erasable =
      std::make_unique<ErasableStore>(drive.path, std::move(store), [drive, disk, &resources] {
        DeviceIdentity same;  // an erase leaves it
        return OpenStore(drive, disk, resources, &same);
      });
  std::unique_ptr<DeviceSecurity> security =
      TRY(DeviceSecurity::Open(config.identities, SecurityFileOf(drive)));
  if (security->has_own_identities()) {
    Log(LogLevel::kInfo, "drive has identities of its own; the configuration's are not asked",
        {{"path", drive.path}});
  }
  if (security->locked()) Log(LogLevel::kWarn, "drive is locked", {{"path", drive.path}});
  return std::make_unique<Device>(std::move(erasable),
                                  DeviceDescription{.serial_number = identity.serial_number,
                                                    .world_wide_name = identity.world_wide_name,
                                                    .path = drive.path,
                                                    .erase_without_pin = config.erase_without_pin,
                                                    .max_connections = config.connections_per_drive,
                                                    .slow_request = config.slow_request},
                                  std::move(security));
}

// Who may use a drive that cannot be opened: whoever may use the drive, as far as that is known,
// and for nothing that would outlive the process.
RightsById IdentitiesOfLost(const ServedDrive& drive, const RightsById& configured) {
  const auto security = DeviceSecurity::Open(configured, SecurityFileOf(drive));
  RightsById identities = security.has_value() ? (*security)->identities() : configured;
  for (auto& [id, rights] : identities) {
    for (Scope& scope : rights.scopes) {
      const Permissions all = std::exchange(scope.permissions, {});
      for (const Permission each : kAllPermissions) {
        const bool lasts = each == Permission::kSetup || each == Permission::kSecurity;
        if (all.Has(each) && !lasts) scope.permissions.Add(each);
      }
    }
  }
  return identities;
}

// In the place of a drive that cannot be opened: who connects to it hears why.
std::unique_ptr<Device> LostDevice(const ServedDrive& drive, const Status& why,
                                   const RightsById& configured) {
  const Status told =
      Fail(EIO,
           "pinstriped cannot serve the drive in {}: {}. When that is mended, start "
           "pinstriped again",
           drive.path, why.message());
  return std::make_unique<Device>(
      std::make_unique<ErasableStore>(drive.path, told),
      DeviceDescription{.serial_number = drive.serial_number, .erase_without_pin = false},
      std::make_unique<DeviceSecurity>(IdentitiesOfLost(drive, configured)), told);
}

// In the order of the configuration. A drive that cannot be opened keeps none of the others away.
Result<std::vector<std::unique_ptr<Device>>> OpenDevices(const DaemonConfig& config,
                                                         const DaemonDisk& disk,
                                                         StoreResources& resources) {
  std::vector<std::unique_ptr<Device>> devices;
  Status first_failure;
  size_t lost = 0;
  for (const ServedDrive& drive : config.drives) {
    Result<std::unique_ptr<Device>> opened = OpenDevice(drive, disk, resources, config);
    if (opened.has_value()) {
      devices.push_back(*std::move(opened));
      continue;
    }
    const Status& why = opened.error();
    if (first_failure.ok()) first_failure = why.Context(fmt::format("drive in {}", drive.path));
    ++lost;
    Log(LogLevel::kError, "drive cannot be served", {{"path", drive.path}, {"why", why}});
    devices.push_back(LostDevice(drive, why, config.identities));
  }
  if (lost == devices.size()) return Failed(first_failure);
  return devices;
}

// Of values under way.
uint64_t ValueBytes(const DaemonConfig& config) {
  if (config.value_bytes != 0) return config.value_bytes;
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const uint64_t memory = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max(memory / 8, uint64_t{64} << 20);
}

// One for each drive that is served. They keep descriptors for stores as well.
std::vector<std::unique_ptr<Housekeeper>> Keep(Runtime& runtime,
                                               const std::vector<std::unique_ptr<Device>>& devices,
                                               size_t descriptors) {
  std::vector<std::unique_ptr<Housekeeper>> keepers;
  for (const auto& each : devices) {
    if (!each->lost.ok()) continue;
    Device& device = *each;
    Housekeeper::Work work{.flush = [&device] { return device.engine.Flush(); },
                           .tidy =
                               [&device, descriptors] {
                                 DescriptorReserve::OfProcess().Keep(descriptors);
                                 return device.store.Tidy();
                               },
                           .complain =
                               [&device, &runtime](const Status& why) {
                                 device.service.events().Add(
                                     runtime.WallClock(), LogLevel::kError,
                                     "drive cannot flush or give back space",
                                     {{"port", device.service.port()}, {"why", why}});
                               }};
    keepers.push_back(std::make_unique<Housekeeper>(runtime, std::move(work)));
  }
  return keepers;
}

// Null: it is not configured, or cannot be.
std::unique_ptr<MetricsServer> ServeMetrics(const DaemonConfig& config,
                                            const std::vector<std::unique_ptr<Device>>& devices,
                                            Server& server) {
  std::vector<MeasuredDrive> drives;
  for (size_t i = 0; i < devices.size(); ++i) {
    drives.push_back({&devices[i]->service, config.drives[i].path, devices[i]->lost});
  }
  return MetricsServer::StartOrWarn(config.metrics,
                                    [drives, &server] { return DriveMetricsText(drives, server); });
}

Status Listen(Server& server, const DaemonConfig& config, const ServedDrive& drive,
              const std::shared_ptr<const TlsServer>& tls, KineticService& service) {
  if (drive.port) TRY(server.Listen(config.listen, *drive.port, service));
  if (drive.tls_port) TRY(server.Listen(config.listen, *drive.tls_port, service, tls));
  const Server::Resp resp{.write_through = drive.resp_write_through};
  const auto listen_resp = [&](uint16_t port, std::shared_ptr<const TlsServer> with) -> Status {
    const bool is_tls = with != nullptr;
    const uint16_t bound =
        TRY(server.ListenResp(config.listen, port, service, resp, std::move(with)));
    Log(LogLevel::kInfo, "drive is served to clients of the Redis protocol",
        {{"path", drive.path}, {"port", bound}, {"tls", is_tls ? "yes" : "no"}});
    return {};
  };
  if (drive.resp_port) TRY(listen_resp(*drive.resp_port, nullptr));
  if (drive.resp_tls_port) TRY(listen_resp(*drive.resp_tls_port, tls));
  return {};
}

// `served` is what the process was started with: where it listens does not change.
Status ReloadIdentities(const std::string& config_file, const DaemonConfig& served,
                        const std::vector<std::unique_ptr<Device>>& devices) {
  DaemonConfig now = TRY(DaemonConfig::Load(config_file));
  now.listen = served.listen;
  for (const auto& device : devices) {
    if (!device->security->has_own_identities()) TRY(now.CheckFactoryKey(now.identities));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i]->security->Configure(devices[i]->lost.ok()
                                        ? now.identities
                                        : IdentitiesOfLost(served.drives[i], now.identities));
  }
  return {};
}

void ReloadCertificate(TlsServer& tls) {
  const Status reloaded = tls.Reload();
  if (reloaded.ok()) {
    Log(LogLevel::kInfo, "certificate reloaded", {{"file", tls.files().certificate}});
  } else {
    Log(LogLevel::kError, "certificate not reloaded; the one from before is used on",
        {{"why", reloaded}});
  }
}

// One that cannot keeps none of the others from it.
Status EndCleanly(const DaemonConfig& config, const std::vector<std::unique_ptr<Device>>& devices) {
  Status first_failure;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i]->lost.ok()) continue;
    const Status ended =
        devices[i]->engine.EndCleanly().Context(fmt::format("drive in {}", config.drives[i].path));
    if (first_failure.ok()) first_failure = ended;
  }
  return first_failure;
}

// Other kinds are no failures of a disk, by which a drive would be lost.
Status CheckKinds(const DaemonConfig& config, const DaemonDisk& disk) {
  for (const ServedDrive& drive : config.drives) {
    if (drive.store == StoreKind::kLog || disk.open_other != nullptr) continue;
    return Fail(
        EINVAL,
        "drive in {}: its store is of a kind that is for comparison only, which this "
        "program does not have: say store = \"log\", or leave it out; pinstriped-compare, of "
        "a build with -D PINSTRIPE_COMPARE_STORES=ON, has it",
        drive.path);
  }
  return {};
}

// Of all drives that can be served. One that cannot keeps none of the others away.
Status CheckFactoryKeys(const DaemonConfig& config,
                        const std::vector<std::unique_ptr<Device>>& devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i]->lost.ok()) continue;
    TRY(config.CheckFactoryKey(devices[i]->security->identities())
            .Context(fmt::format("drive in {}", config.drives[i].path)));
  }
  return {};
}

Status Serve(const std::string& config_file, const DaemonDisk& disk) {
  SetProgram({.name = "pinstriped", .version = PINSTRIPE_VERSION, .detail = ""});
  const sigset_t signals = BlockSignals();
  const uint64_t descriptors = RaiseDescriptorLimit();
  DescriptorReserve::OfProcess().Keep(ReserveOf(descriptors));
  const DaemonConfig config = TRY(DaemonConfig::Load(config_file));
  SetLogFormat(config.log_format);
  TRY(CheckKinds(config, disk));

  RealRuntime runtime;
  std::shared_ptr<TlsServer> tls;
  if (config.tls) tls = TRY(TlsServer::Load(*config.tls));
  StoreResources resources(config.index_cache_bytes);
  const auto devices = TRY(OpenDevices(config, disk, resources));
  if (Status refused = CheckFactoryKeys(config, devices); !refused.ok()) {
    (void)EndCleanly(config, devices);  // this is the reason that counts
    return refused;
  }
  {
    Server server(runtime, {.loops = config.loops,
                            .workers = config.workers,
                            .flushers = config.flushers,
                            .value_bytes = ValueBytes(config),
                            .places = PlacesFor(config, descriptors)});
    for (size_t i = 0; i < devices.size(); ++i) {
      KineticService& service = devices[i]->service;
      const Status listening = Listen(server, config, config.drives[i], tls, service)
                                   .Context(fmt::format("drive in {}", config.drives[i].path));
      if (!devices[i]->lost.ok()) {
        // Perhaps the one who has its port serves it.
        service.events().Add(runtime.WallClock(), LogLevel::kError, "drive is not served",
                             {{"why", listening.ok() ? devices[i]->lost : listening}});
        continue;
      }
      TRY(listening);
      service.events().Add(runtime.WallClock(), LogLevel::kInfo, "drive is served",
                           {{"path", config.drives[i].path},
                            {"port", service.port()},
                            {"tls_port", service.tls_port()}});
    }
    const auto metrics = ServeMetrics(config, devices, server);
    const auto keepers = Keep(runtime, devices, ReserveOf(descriptors));
    // For whoever started us and waits until clients can come.
    std::printf("ready\n");
    std::fflush(stdout);
    int number = 0;
    while (sigwait(&signals, &number) == 0 && number == SIGHUP) {
      const Status reloaded = ReloadIdentities(config_file, config, devices);
      if (reloaded.ok()) {
        Log(LogLevel::kInfo, "identities reloaded", {{"file", config_file}});
      } else {
        Log(LogLevel::kError, "identities not reloaded; those from before are used on",
            {{"why", reloaded}});
      }
      if (tls != nullptr) ReloadCertificate(*tls);
    }
    Log(LogLevel::kInfo, "stopping", {{"signal", strsignal(number)}});
  }
  return EndCleanly(config, devices);
}

// Where a new drive is, for whoever looks whether it is the disk that he means.
std::string DescribeNewDrive(const std::string& directory, const DriveMark& mark) {
  struct stat about {};
  struct statvfs space {};
  std::string owner = "nobody knows whom";
  if (stat(directory.c_str(), &about) == 0) {
    const passwd* const user = getpwuid(about.st_uid);
    owner = user != nullptr ? user->pw_name : fmt::format("user {}", about.st_uid);
  }
  const bool known = statvfs(directory.c_str(), &space) == 0;
  const double free_bytes =
      known ? static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) : 0;
  // The mount point: the last directory on the way up that is on the same file system.
  std::error_code error;
  std::filesystem::path point = std::filesystem::canonical(directory, error);
  for (struct stat above{}; point.has_relative_path(); point = point.parent_path()) {
    if (stat(point.parent_path().c_str(), &above) != 0 || above.st_dev != about.st_dev) break;
  }
  return fmt::format("{}: a new drive, {}, of {}, on the file system at {} with {:.1f} GB free",
                     directory, mark.id, owner, point.string(), free_bytes / 1e9);
}

// All of them or, as far as that can be told before, none.
Status Init(const std::vector<std::string>& directories) {
  TRY(CheckCanBecomeDrives(directories));
  for (const std::string& directory : directories) {
    const DriveMark mark = TRY(InitDrive(directory, PINSTRIPE_VERSION));
    fmt::print("{}\n", DescribeNewDrive(directory, mark));
  }
  return {};
}

// The exit code says the same as what is printed.
int Check(const std::string& directory, bool as_json) {
  StoreResources resources;
  const Result<LogStore::CheckReport> report = [&]() -> Result<LogStore::CheckReport> {
    TRY(CheckStoreKind(directory, StoreKind::kLog));
    return LogStore::Check(directory, resources);
  }();
  const bool is_sound = report.has_value() && report->damaged == 0;
  const bool is_damaged = !is_sound && (report.has_value() || report.error().code() == EBADMSG);
  if (as_json) {
    nlohmann::json json;
    json["path"] = directory;
    json["state"] = is_sound ? "sound" : is_damaged ? "damaged" : "unknown";
    if (report.has_value()) {
      json["records"] = report->records;
      json["value_bytes"] = report->value_bytes;
      json["unfinished"] = report->unfinished;
      json["damaged"] = report->damaged;
      json["damages"] = report->sentences;
    } else {
      json["error"] = report.error().message();
    }
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else if (report.has_value()) {
    fmt::print("{}: {} records, {} bytes of values; {} unfinished, {} damaged\n", directory,
               report->records, report->value_bytes, report->unfinished, report->damaged);
    for (const std::string& sentence : report->sentences) fmt::print("  {}\n", sentence);
  } else {
    fmt::print(stderr, "pinstriped: {}\n", report.error().message());
  }
  return is_sound ? 0 : is_damaged ? kExitFailure : kExitUnknown;
}

}  // namespace

int DaemonMain(int argc, char** argv, const DaemonDisk& disk) {
  CLI::App app{"Serves drives: key-value stores that speak the Kinetic protocol."};
  std::string config_file;
  std::string check_directory;
  std::vector<std::string> new_directories;
  bool as_json = false;
  std::string level = "info";
  app.add_option("--config", config_file, "Which drives to serve")->type_name("FILE");
  app.add_option("--check", check_directory, "Verify everything in a drive's directory, and end")
      ->type_name("DIR")
      ->excludes("--config");
  app.add_option("--init", new_directories, "Make empty directories new drives, and end")
      ->type_name("DIR")
      ->excludes("--config")
      ->excludes("--check");
  app.add_flag("--json", as_json, "Report what --check finds as JSON")->needs("--check");
  app.add_option("--log-level", level, "debug, info, warn or error")->capture_default_str();
  app.set_version_flag("--version", "pinstriped " PINSTRIPE_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const Result<LogLevel> log_level = ParseLogLevel(level);
  const int tasks = static_cast<int>(!config_file.empty()) +
                    static_cast<int>(!check_directory.empty()) +
                    static_cast<int>(!new_directories.empty());
  if (!log_level.has_value() || tasks != 1) {
    std::fprintf(stderr, "pinstriped: %s\nSee pinstriped --help.\n",
                 log_level.has_value() ? "give --config FILE, --init DIR... or --check DIR"
                                       : std::string(log_level.error().message()).c_str());
    return kExitUsage;
  }
  SetLogLevel(*log_level);
  if (!check_directory.empty()) return Check(check_directory, as_json);
  const Status status = new_directories.empty() ? Serve(config_file, disk) : Init(new_directories);
  if (status.ok()) return 0;
  std::fprintf(stderr, "pinstriped: %s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

}  // namespace pinstripe
