#include "tools/dev_cluster.h"

#include <fcntl.h>
#include <mntent.h>
#include <netdb.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "base/allocator.h"
#include "base/machine_memory.h"
#include "base/read_file.h"
#include "base/try.h"
#include "tools/format_cluster.h"
#include "tools/ports.h"
#include "tools/programs.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kStateFormat = 1;
constexpr auto kStartTimeout = seconds(30);
constexpr auto kStopPatience = seconds(15);
constexpr size_t kTailLines = 15;
constexpr std::string_view kRedisIsReady = "Ready to accept connections";
constexpr size_t kLongestSocketPath = 107;  // sun_path without its NUL
constexpr size_t kGatewaySocketPath = 40;   // what xrootd adds to its admin path, generously

// --- Files ---

Status WriteFile(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return Fail(errno, "{}: {}", fresh, ErrnoText(errno));
  const bool written = fchmod(fd, mode) == 0 &&
                       write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int code = errno;
  close(fd);
  if (!written) return Fail(code, "{}: {}", fresh, ErrnoText(code));
  if (rename(fresh.c_str(), path.c_str()) != 0)
    return Fail(errno, "{}: {}", path, ErrnoText(errno));
  return {};
}

Status MakeDirectory(const std::string& path, const UnixUser* owner) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Fail(error.value(), "{}: {}", path, error.message());
  if (owner != nullptr && chown(path.c_str(), owner->user, owner->group) != 0) {
    return Fail(errno, "{}: chown to {}: {}", path, owner->name, ErrnoText(errno));
  }
  return {};
}

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

std::string TextFrom(const std::string& path, uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string LastLines(const std::string& text) {
  size_t begin = text.size();
  for (size_t lines = 0; begin > 0 && lines <= kTailLines; ++lines) {
    begin = text.rfind('\n', begin - 1);
    if (begin == std::string::npos) begin = 0;
  }
  return text.substr(begin);
}

bool HasLine(const std::string& text, std::string_view wanted) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == wanted) return true;
  }
  return false;
}

// --- The machine ---

bool OwnHostNameResolves() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return false;
  addrinfo* found = nullptr;
  const bool resolves = getaddrinfo(name, nullptr, nullptr, &found) == 0;
  if (found != nullptr) freeaddrinfo(found);
  return resolves;
}

Result<UnixUser> GatewayUser(const std::string& wanted) {
  if (geteuid() != 0) {
    const UnixUser self = TRY(CurrentUnixUser());
    if (wanted.empty() || wanted == self.name) return self;
    return Fail(EPERM, "only root can start the gateway as another user ({})", wanted);
  }
  if (!wanted.empty()) {
    const UnixUser user = TRY(FindUnixUser(wanted));
    if (user.user == 0) return Fail(EPERM, "xrootd refuses to run as root; name another --user");
    return user;
  }
  if (auto user = FindUnixUser("xrootd")) return user;
  return FindUnixUser("nobody");
}

// Whether a FUSE mount is on `point`, alive or not.
bool IsMounted(const std::string& point) {
  const std::unique_ptr<FILE, int (*)(FILE*)> mounts(setmntent("/proc/self/mounts", "re"),
                                                     &endmntent);
  if (mounts == nullptr) return false;
  while (const mntent* one = getmntent(mounts.get())) {
    if (one->mnt_dir == point && std::string_view(one->mnt_type).starts_with("fuse")) return true;
  }
  return false;
}

bool Answers(const std::string& point) {
  struct stat about {};
  return stat(point.c_str(), &about) == 0;
}

// A mount outlives its process when that is killed, and then answers nothing but this; but for a
// moment stat(2) is answered from what the kernel remembers.
bool IsStale(const std::string& point) {
  struct statfs about {};
  return statfs(point.c_str(), &about) != 0 && (errno == ENOTCONN || errno == ECONNABORTED) &&
         IsMounted(point);
}

// Asks `done` again and again; ETIMEDOUT when it has not said so in time.
Status WaitUntil(Runtime& runtime, Duration timeout, const std::function<Result<bool>()>& done) {
  const Time deadline = runtime.Now() + timeout;
  const auto pause = runtime.NewSignal();
  while (true) {
    if (TRY(done())) return {};
    if (runtime.Now() >= deadline) {
      return Fail(ETIMEDOUT, "not ready after {} s",
                  std::chrono::duration_cast<seconds>(timeout).count());
    }
    pause->WaitUntil(runtime.Now() + milliseconds(20));
  }
}

// --- dev.json ---

Json ToJson(const DevProcess& process) {
  return {{"name", process.name},       {"command", process.command},         {"log", process.log},
          {"preload", process.preload}, {"environment", process.environment}, {"pid", process.pid}};
}

DevProcess ProcessFrom(const Json& json) {
  return {.name = json.at("name"),
          .command = json.at("command"),
          .log = json.at("log"),
          .preload = json.value("preload", ""),
          .environment = json.value("environment", std::vector<std::string>()),
          .pid = json.at("pid")};
}

Json ToJson(const DevDaemon& daemon) {
  Json drives = Json::array();
  for (const DevDrive& drive : daemon.drives) {
    drives.push_back(
        {{"id", drive.id}, {"port", drive.port}, {"path", drive.path}, {"redis", drive.is_redis}});
  }
  return {{"process", ToJson(daemon.process)}, {"drives", drives}};
}

DevDaemon DaemonFrom(const Json& json) {
  DevDaemon daemon{.process = ProcessFrom(json.at("process"))};
  for (const Json& drive : json.at("drives")) {
    daemon.drives.push_back({.id = drive.at("id"),
                             .port = drive.at("port"),
                             .path = drive.at("path"),
                             .is_redis = drive.value("redis", false)});
  }
  return daemon;
}

std::string DrivesName(const std::vector<DevDrive>& drives) {
  if (drives.size() == 1) return fmt::format("drive {}", drives.front().id);
  return fmt::format("drives {}-{}", drives.front().id, drives.back().id);
}

}  // namespace

std::string DevGateway::Url() const { return fmt::format("root://127.0.0.1:{}/", port); }

class DevCluster::State {
 public:
  State(Runtime& runtime, std::string directory, Say say)
      : runtime(runtime), directory(std::move(directory)), say(std::move(say)) {}
  ~State() {
    if (lock >= 0) close(lock);
  }

  std::string In(const std::string& name) const { return directory + "/" + name; }

  Status Lock() {
    lock = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return Fail(errno, "{}: {}", directory, ErrnoText(errno));
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return {};
    return Fail(EBUSY, "{}: another `pinstripe dev` command is at work there", directory);
  }

  Status Save() const {
    Json json{{"format", kStateFormat}, {"formatted", formatted}, {"daemons", Json::array()}};
    for (const DevDaemon& daemon : daemons) json["daemons"].push_back(ToJson(daemon));
    if (gateway) {
      json["gateway"] = {
          {"process", ToJson(gateway->process)}, {"user", gateway->user}, {"port", gateway->port}};
    }
    if (mount) json["mount"] = {{"process", ToJson(mount->process)}, {"point", mount->point}};
    return WriteFile(In("dev.json"), json.dump(2) + "\n", 0644);
  }

  Status Load() {
    const std::string path = In("dev.json");
    const std::string text = TRY(ReadFile(path));
    try {
      const Json json = Json::parse(text);
      if (json.at("format") != kStateFormat) {
        return Fail(EINVAL, "{}: written by another version of this program", path);
      }
      formatted = json.at("formatted");
      for (const Json& daemon : json.at("daemons")) daemons.push_back(DaemonFrom(daemon));
      if (json.contains("gateway")) {
        const Json& found = json["gateway"];
        gateway = DevGateway{.process = ProcessFrom(found.at("process")),
                             .user = found.at("user"),
                             .port = found.at("port")};
      }
      if (json.contains("mount")) {
        const Json& found = json["mount"];
        mount = DevMount{.process = ProcessFrom(found.at("process")), .point = found.at("point")};
      }
    } catch (const Json::exception& error) {
      return Fail(EINVAL, "{}: {}", path, error.what());
    }
    return {};
  }

  // Starts `process`, unless it runs, and waits until `ready` says so of what it has logged since.
  Status Launch(DevProcess& process, const std::optional<UnixUser>& user, bool as_localhost,
                const std::string& work_directory,
                const std::function<Result<bool>(const std::string& logged)>& ready) {
    if (process.Find()) return {};
    const uint64_t log_begin = SizeOf(process.log);
    Process running = TRY(SpawnDetached({.command = process.command,
                                         .log = process.log,
                                         .directory = work_directory,
                                         .preload = process.preload,
                                         .environment = process.environment,
                                         .user = user,
                                         .as_localhost = as_localhost}));
    process.pid = running.pid();
    started.push_back(&process);
    TRY(Save());
    const Status status = WaitUntil(runtime, kStartTimeout, [&]() -> Result<bool> {
      // In this order, so that what a process said before it ended is not overlooked.
      const bool ended = running.WaitForEnd(Duration::zero());
      if (TRY(ready(TextFrom(process.log, log_begin)))) return true;
      if (ended) return Fail(EIO, "ended at once, {}", running.HowItEnded());
      return false;
    });
    if (!status.ok()) {
      return Fail(status.code(), "start {}: {}; the end of {}:\n{}", process.name, status.message(),
                  process.log, LastLines(TextFrom(process.log, log_begin)));
    }
    say(fmt::format("started {} (process {})", process.name, process.pid));
    return {};
  }

  Status StartDaemon(DevDaemon& daemon) {
    return Launch(
        daemon.process, std::nullopt, false, "/", [&](const std::string& logged) -> Result<bool> {
          const bool is_ready = daemon.drives.front().is_redis
                                    ? logged.find(kRedisIsReady) != logged.npos
                                    : HasLine(logged, "ready");
          return is_ready && std::all_of(daemon.drives.begin(), daemon.drives.end(),
                                         [](const DevDrive& d) { return PortAnswers(d.port); });
        });
  }

  Status StartGateway() {
    const UnixUser user = TRY(GatewayUser(gateway->user));
    const bool other = user.user != geteuid();
    return Launch(gateway->process, other ? std::optional(user) : std::nullopt,
                  !OwnHostNameResolves(), In("gateway"),
                  [](const std::string& logged) -> Result<bool> {
                    if (logged.find("initialization failed") != std::string::npos) {
                      return Fail(EIO, "it refused to start");
                    }
                    return logged.find("initialization completed") != std::string::npos;
                  });
  }

  Status StartMount() {
    const std::string& point = mount->point;
    TRY(ClearStaleMount());
    if (!mount->process.Find() && IsMounted(point)) {
      return Fail(EBUSY, "{}: something else is mounted there: run `fusermount3 -u {}`", point,
                  point);
    }
    return Launch(
        mount->process, std::nullopt, false, "/",
        [&](const std::string&) -> Result<bool> { return IsMounted(point) && Answers(point); });
  }

  // Unmounts what the process behind the mount left there when it was killed.
  Status ClearStaleMount() {
    if (!mount || mount->process.Find() || !IsStale(mount->point)) return {};
    const std::string program = TRY(FindProgram("fusermount3", ""));
    const std::vector<std::string> command{program, "-u", "-z", mount->point};
    Process unmounting = TRY(SpawnDetached({.command = command, .log = mount->process.log}));
    const bool ended = unmounting.WaitForEnd(kStopPatience);
    if (ended && !IsStale(mount->point)) return {};
    return Fail(EBUSY,
                "{} is still mounted, but the process behind it is gone, and `{}` did not help; {} "
                "may say why",
                mount->point, fmt::join(command, " "), mount->process.log);
  }

  Status Stop(DevProcess& process) {
    auto found = process.Find();
    if (found) {
      const bool killed = TRY_CONTEXT(EndProcess(*found, kStopPatience), "stop {}", process.name);
      say(fmt::format("stopped {}{}", process.name,
                      killed ? ", by SIGKILL: it did not end by itself" : ""));
    }
    process.pid = 0;
    TRY(Save());
    return mount && &process == &mount->process ? ClearStaleMount() : Status();
  }

  // The processes that this call started, the last one first.
  void StopStarted() {
    while (!started.empty()) {
      DevProcess* process = started.back();
      started.pop_back();
      const Status status = Stop(*process);
      if (!status.ok()) say(std::string(status.message()));
    }
  }

  Status FormatOnce() {
    if (formatted) return {};
    Owner owner{.user = geteuid(), .group = getegid()};
    if (gateway) {
      const UnixUser user = TRY(GatewayUser(gateway->user));
      owner = {.user = user.user, .group = user.group};
    }
    // By force: drives in this directory can belong to nobody else, and an interrupted `up` may
    // have left them half formatted.
    TRY(FormatCluster(runtime, In("cluster.toml"), {.force = true, .owner = owner, .mode = 0755}));
    formatted = true;
    TRY(Save());
    say(fmt::format("formatted the cluster ({})", In("cluster.toml")));
    return {};
  }

  Status UpInOrder() {
    for (DevDaemon& daemon : daemons) TRY(StartDaemon(daemon));
    TRY(FormatOnce());
    if (gateway) TRY(StartGateway());
    if (mount) TRY(StartMount());
    return {};
  }

  DevDaemon* DaemonOf(const std::string& drive) {
    for (DevDaemon& daemon : daemons) {
      for (const DevDrive& one : daemon.drives) {
        if (drive == std::to_string(one.id)) return &daemon;
      }
    }
    return nullptr;
  }

  Result<DevProcess*> ProcessOf(const std::string& what) {
    if (what == "gateway" && gateway) return &gateway->process;
    if (what == "mount" && mount) return &mount->process;
    if (DevDaemon* daemon = DaemonOf(what)) return &daemon->process;
    return Fail(ENOENT, "{}: there is no \"{}\" here: name a drive by its number, gateway or mount",
                directory, what);
  }

  Status MakeDrives(const std::string& program, const DevDaemon& daemon, const std::string& log) {
    std::vector<std::string> command{program, "--init"};
    for (const DevDrive& drive : daemon.drives) {
      TRY(MakeDirectory(drive.path, nullptr));
      command.push_back(drive.path);
    }
    Process making = TRY(SpawnDetached({.command = command, .log = log}));
    if (!making.WaitForEnd(kStartTimeout)) {
      return Fail(ETIMEDOUT, "`{}` does not end", fmt::join(command, " "));
    }
    if (making.EndedWell()) return {};
    return Fail(EIO, "`{}` ended {}; the end of {}:\n{}", fmt::join(command, " "),
                making.HowItEnded(), log, LastLines(TextFrom(log, 0)));
  }

  Status MakeDaemons(const DevOptions& options) {
    const std::string program = TRY(FindProgram("pinstriped", "daemon"));
    std::vector<int> groups = options.groups;
    if (groups.empty()) groups.assign(options.drives - options.redis, 1);
    const std::vector<uint16_t> ports = TRY(PickFreePorts(runtime, options.drives));
    // They share one disk, so each may keep its part of what is free.
    std::error_code error;
    const uint64_t capacity = fs::space(directory, error).available / options.drives;
    if (error) return Fail(error.value(), "{}: {}", directory, error.message());
    int id = 0;
    for (const int count : groups) {
      DevDaemon daemon;
      for (int i = 0; i < count; ++i) {
        ++id;
        const DevDrive drive{
            .id = id, .port = ports[id - 1], .path = In(fmt::format("drives/{}", id))};
        daemon.drives.push_back(drive);
      }
      const std::string base = In(fmt::format("pinstriped-{}", daemon.drives.front().id));
      TRY(MakeDrives(program, daemon, base + ".log"));
      TRY(WriteFile(base + ".toml", DaemonConfigText(daemon.drives, capacity), 0644));
      daemon.process = {.name = DrivesName(daemon.drives),
                        .command = {program, "--config", base + ".toml"},
                        .log = base + ".log"};
      daemons.push_back(std::move(daemon));
    }
    // They keep all of it in memory.
    const uint64_t memory = std::min(capacity, MachineMemory() / 2 / std::max(1, options.redis));
    while (id < options.drives) {
      ++id;
      TRY(MakeStore({.id = id,
                     .port = ports[id - 1],
                     .path = In(fmt::format("drives/{}", id)),
                     .is_redis = true},
                    memory));
    }
    return {};
  }

  Status MakeStore(const DevDrive& drive, uint64_t capacity) {
    const std::string program = TRY(FindProgram("redis-server", ""));
    const std::string base = In(fmt::format("redis-{}", drive.id));
    TRY(MakeDirectory(drive.path, nullptr));
    TRY(WriteFile(base + ".conf", RedisConfigText(drive, capacity), 0644));
    daemons.push_back({.process = {.name = DrivesName({drive}),
                                   .command = {program, base + ".conf"},
                                   .log = base + ".log"},
                       .drives = {drive}});
    return {};
  }

  Status MakeClusterFiles(const DevOptions& options) {
    DevClusterText text{.name = options.name,
                        .layout = options.layout,
                        .close = options.close,
                        .share_connections = options.share_connections,
                        .credentials_file = "credentials.toml"};
    for (const DevDaemon& daemon : daemons) {
      text.drives.insert(text.drives.end(), daemon.drives.begin(), daemon.drives.end());
    }
    TRY(WriteFile(In("cluster.toml"), ClusterConfigText(text), 0644));
    TRY(WriteFile(In("credentials.toml"), CredentialsText(), 0600));
    return {};
  }

  // A library the gateway's user cannot reach (a build below /root) is copied to where it can.
  Result<std::string> Reachable(const UnixUser& user, const std::string& library) {
    if (CheckReadableBy(user, library).ok()) return library;
    const std::string copy = In("gateway/" + fs::path(library).filename().string());
    std::error_code error;
    fs::copy_file(library, copy, fs::copy_options::overwrite_existing, error);
    if (error) return Fail(error.value(), "copy {} to {}: {}", library, copy, error.message());
    return copy;
  }

  Status MakeGateway(const DevOptions& options) {
    const UnixUser user = TRY(GatewayUser(options.user));
    const std::string program = TRY(FindProgram("xrootd", ""));
    const std::string home = In("gateway");
    if (home.size() + kGatewaySocketPath > kLongestSocketPath) {
      return Fail(ENAMETOOLONG, "{}: too long for the sockets of xrootd; use a shorter directory",
                  home);
    }
    const UnixUser* owner = user.user == geteuid() ? nullptr : &user;
    for (const char* part : {"", "/admin", "/run"}) TRY(MakeDirectory(home + part, owner));
    const std::string credentials = In("credentials.toml");
    if (owner != nullptr && chown(credentials.c_str(), user.user, user.group) != 0) {
      return Fail(errno, "{}: chown to {}: {}", credentials, user.name, ErrnoText(errno));
    }
    TRY_CONTEXT(CheckReadableBy(user, home),
                "the gateway runs as user {}, who must be able to enter every directory above",
                user.name);
    // The drives do not run yet, so that their ports still look free.
    std::set<uint16_t> taken;
    for (const DevDaemon& daemon : daemons) {
      for (const DevDrive& drive : daemon.drives) taken.insert(drive.port);
    }
    const std::string plugin = TRY(FindPlugin());
    const std::string reachable = TRY(Reachable(user, plugin));
    uint16_t port = options.gateway_port;
    if (port == 0) port = TRY(PickFreePorts(runtime, 1, taken)).front();
    const GatewayText text{.plugin = PluginWithoutVersion(reachable),
                           .cluster_file = In("cluster.toml"),
                           .directory = home,
                           .port = port};
    std::string preload = TRY(Reachable(user, TRY(FindCrc32cLibrary())));
    std::vector<std::string> environment;
    if (RunsWithJemalloc()) {
      preload = fmt::format("{}:{}", kJemalloc, preload);
      environment.push_back(fmt::format("MALLOC_CONF={}", kJemallocOptions));
    }
    const std::string config = home + "/xrootd.cfg";
    TRY(WriteFile(config, GatewayConfigText(text), 0644));
    // IPv4 only: many containers have no IPv6, and names then resolve to what nobody listens on.
    gateway = DevGateway{.process = {.name = "gateway",
                                     .command = {program, "-c", config, "-I", "v4"},
                                     .log = home + "/log",
                                     .preload = std::move(preload),
                                     .environment = std::move(environment)},
                         .user = user.name,
                         .port = text.port};
    return {};
  }

  Status MakeMount(const std::string& point) {
    const std::string program = TRY(FindProgram("pinstripe-fuse", "fuse"));
    std::error_code error;
    fs::create_directories(point, error);
    if (error) return Fail(error.value(), "{}: {}", point, error.message());
    const std::string absolute = fs::canonical(point, error).string();
    if (error) return Fail(error.value(), "{}: {}", point, error.message());
    // Above all not the cluster's own directory: the mount would hide what it stands on.
    if (!fs::is_empty(absolute, error)) {
      return Fail(ENOTEMPTY, "{}: a mount would hide what is in it; name an empty directory",
                  absolute);
    }
    std::vector<std::string> command{program, In("cluster.toml"), absolute, "-f"};
    mount = DevMount{
        .process = {.name = "mount", .command = std::move(command), .log = In("mount.log")},
        .point = absolute};
    return {};
  }

  Runtime& runtime;
  const std::string directory;
  const Say say;
  int lock = -1;

  bool formatted = false;
  std::vector<DevDaemon> daemons;
  std::optional<DevGateway> gateway;
  std::optional<DevMount> mount;
  std::vector<DevProcess*> started;  // by this command, in order
};

DevCluster::DevCluster(std::unique_ptr<State> state) : state_(std::move(state)) {}
DevCluster::~DevCluster() = default;

bool DevCluster::Exists(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(directory + "/dev.json", ignored);
}

Result<std::unique_ptr<DevCluster>> DevCluster::Create(Runtime& runtime,
                                                       const std::string& directory,
                                                       const DevOptions& options, Say say) {
  std::error_code error;
  const bool was_there = fs::exists(directory, error);
  fs::create_directories(directory, error);
  if (error) return Fail(error.value(), "{}: {}", directory, error.message());
  if (was_there && !fs::is_empty(directory, error)) {
    return Fail(EEXIST, "{}: is not empty, and not a development cluster", directory);
  }
  auto state = std::make_unique<State>(runtime, fs::canonical(directory).string(), std::move(say));
  TRY(state->Lock());
  const auto make = [&]() -> Status {
    TRY(state->MakeDaemons(options));
    TRY(state->MakeClusterFiles(options));
    if (options.gateway) TRY(state->MakeGateway(options));
    if (!options.mount.empty()) TRY(state->MakeMount(options.mount));
    return state->Save();
  };
  const Status made = make();
  if (!made.ok()) {
    // The directory was empty: leave it as it was found.
    for (const auto& entry : fs::directory_iterator(state->directory, error)) {
      fs::remove_all(entry.path(), error);
    }
    if (!was_there) fs::remove(state->directory, error);
    return Failed(made);
  }
  return std::unique_ptr<DevCluster>(new DevCluster(std::move(state)));
}

Result<std::unique_ptr<DevCluster>> DevCluster::Open(Runtime& runtime, const std::string& directory,
                                                     Say say) {
  if (!Exists(directory)) {
    return Fail(ENOENT, "{}: no development cluster here; `pinstripe dev up {}` makes one",
                directory, directory);
  }
  auto state = std::make_unique<State>(runtime, fs::canonical(directory).string(), std::move(say));
  TRY(state->Lock());
  TRY(state->Load());
  return std::unique_ptr<DevCluster>(new DevCluster(std::move(state)));
}

Status DevCluster::Up() {
  state_->started.clear();
  const Status status = state_->UpInOrder();
  if (!status.ok()) state_->StopStarted();
  return status;
}

Status DevCluster::Down() {
  Status first;  // that failed; the others are stopped all the same
  const auto stop = [&](DevProcess& process) {
    const Status stopped = state_->Stop(process);
    if (first.ok()) first = stopped;
  };
  if (state_->mount) stop(state_->mount->process);
  if (state_->gateway) stop(state_->gateway->process);
  for (DevDaemon& daemon : state_->daemons) stop(daemon.process);
  return first;
}

Status DevCluster::Delete() {
  const auto refuse_if_running = [](const DevProcess& process) -> Status {
    if (process.Find()) return Fail(EBUSY, "{} still runs", process.name);
    return {};
  };
  for (const DevDaemon& daemon : state_->daemons) TRY(refuse_if_running(daemon.process));
  if (state_->gateway) TRY(refuse_if_running(state_->gateway->process));
  if (state_->mount) {
    TRY(refuse_if_running(state_->mount->process));
    // A mount below the directory that outlived its process would be deleted with everything in it.
    if (IsMounted(state_->mount->point)) {
      return Fail(EBUSY, "{} is still mounted: run `fusermount3 -u -z {}`", state_->mount->point,
                  state_->mount->point);
    }
  }
  std::error_code error;
  fs::remove_all(state_->directory, error);
  if (error) return Fail(error.value(), "{}: {}", state_->directory, error.message());
  return {};
}

Status DevCluster::Kill(const std::vector<std::string>& what) {
  std::vector<DevProcess*> processes;  // drives may share one
  for (const std::string& name : what) {
    DevProcess* process = TRY(state_->ProcessOf(name));
    if (!process->Find()) return Fail(ESRCH, "{} does not run", process->name);
    if (std::ranges::find(processes, process) == processes.end()) processes.push_back(process);
  }
  for (DevProcess* process : processes) {
    auto found = process->Find();
    if (!found) return Fail(ESRCH, "{} does not run", process->name);
    TRY(found->Signal(SIGKILL));
    if (!found->WaitForEnd(kStopPatience)) {
      return Fail(EBUSY, "{} (process {}) does not end, even by SIGKILL", process->name,
                  found->pid());
    }
    process->pid = 0;
    TRY(state_->Save());
    state_->say(fmt::format("killed {}", process->name));
  }
  return {};
}

Status DevCluster::Start(const std::vector<std::string>& what) {
  for (const std::string& name : what) TRY(state_->ProcessOf(name));  // says what there is
  for (const std::string& name : what) {
    if (name == "gateway") {
      TRY(state_->StartGateway());
    } else if (name == "mount") {
      TRY(state_->StartMount());
    } else {
      TRY(state_->StartDaemon(*state_->DaemonOf(name)));
    }
  }
  return {};
}

Status DevCluster::AddMount(const std::string& point) {
  if (state_->mount) {
    TRY(state_->ClearStaleMount());  // its path could not be looked up
    std::error_code ignored;
    if (fs::weakly_canonical(point, ignored).string() == state_->mount->point) return {};
    return Fail(EEXIST, "{} is mounted on {} already", state_->directory, state_->mount->point);
  }
  TRY(state_->MakeMount(point));
  return state_->Save();
}

const std::string& DevCluster::directory() const { return state_->directory; }
std::string DevCluster::cluster_file() const { return state_->In("cluster.toml"); }
const std::vector<DevDaemon>& DevCluster::daemons() const { return state_->daemons; }
const std::optional<DevGateway>& DevCluster::gateway() const { return state_->gateway; }
const std::optional<DevMount>& DevCluster::mount() const { return state_->mount; }

}  // namespace pinstripe
