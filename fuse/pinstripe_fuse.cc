// pinstripe-fuse: mounts a cluster's file system as a local directory. docs/man/pinstripe-fuse.8 is
// the manual.
//
// In the background the program returns only when the mount works: when the caller's process itself
// has read the attributes of the mounted root. Errors until then go to standard error, later ones
// to syslog. A SIGTERM, SIGINT or SIGHUP unmounts and commits the open files.

#define FUSE_USE_VERSION 312

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <getopt.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/program.h"
#include "base/real_runtime.h"
#include "base/signal_watch.h"
#include "base/try.h"
#include "cluster/connect.h"
#include "cluster/log_setting.h"
#include "fs/file_system.h"
#include "fuse/mount_memory.h"
#include "fuse/mount_options.h"
#include "fuse/operations.h"
#include "fuse/remount.h"
#include "metrics/page.h"
#include "metrics/process_metrics.h"
#include "metrics/server.h"
#include "upkeep/host_care.h"
#include "upkeep/host_metrics.h"
#include "upkeep/slow_operations.h"

namespace pinstripe {
namespace {

constexpr char kUsage[] = R"(Usage: pinstripe-fuse CONFIG MOUNTPOINT [-f] [-o OPTIONS]

Mounts the file system of the cluster that CONFIG (cluster.toml) describes on the
directory MOUNTPOINT. Returns when the mount works.

  -f, --foreground   stay in the foreground, log to standard error
  -o OPTIONS         mount options, separated by commas: ro, allow_other, nodev,
                     nosuid, noatime and what else fuse(8) knows, and
                     subdir=PATH, cache_size=BYTES, cache_dir=DIRECTORY,
                     cache_dir_size=BYTES, uid=N, gid=N, locks=local|none,
                     dirops=sync|async, acl, noacl, entry_timeout=SECONDS,
                     attr_timeout=SECONDS, metrics=ADDRESS:PORT, slow_request=SECONDS
  -h, --help         print this
  -V, --version      print the version

Unmount with `fusermount3 -u MOUNTPOINT` or `umount MOUNTPOINT`.

As mount.fuse.pinstripe it is what mount(8) runs for the type fuse.pinstripe.
)";

constexpr int kExitUsage = 2;

// A request waits for the cluster on the thread that took it.
constexpr unsigned kMostThreads = 64;
constexpr unsigned kIdleThreads = 16;

struct Arguments {
  std::string config_file;
  std::string mount_point;
  std::string options;
  bool foreground = false;
  bool is_helper = false;  // mount(8) calls
  bool fake = false;       // everything but mounting
  MountOptions mount;
};

// Called once, when requests are about to be served, with the inode of the mounted directory.
using Ready = std::function<void(InodeId root)>;

// --- Arguments ---

Result<std::string> AbsolutePath(const char* path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path, nullptr), &free);
  if (real == nullptr) return Fail(errno, "{}: {}", path, ErrnoText(errno));
  return std::string(real.get());
}

// A mount whose process has died leaves a directory that answers only ENOTCONN, or ECONNABORTED to
// a call that came while the process died. For a moment the kernel answers stat(2) from memory.
Result<std::string> CheckMountPoint(const char* path) {
  struct statfs file_system {};
  struct stat stat {};
  if (statfs(path, &file_system) != 0 || ::stat(path, &stat) != 0) {
    const int error = errno;
    if (error == ENOTCONN || error == ECONNABORTED) {
      return Fail(
          error,
          "{} is still mounted, but the process behind it is gone; run `fusermount3 -u -z {}` "
          "and mount again",
          path, path);
    }
    return Fail(error, "mount point {}: {}", path, ErrnoText(error));
  }
  if (!S_ISDIR(stat.st_mode)) return Fail(ENOTDIR, "mount point {} is not a directory", path);
  return AbsolutePath(path);
}

Result<std::string> CheckCacheDirectory(const char* path) {
  std::string absolute = TRY_CONTEXT(AbsolutePath(path), "mount option cache_dir");
  if (access(absolute.c_str(), R_OK | W_OK | X_OK) != 0) {
    return Fail(errno, "mount option cache_dir={}: {}", path, ErrnoText(errno));
  }
  return absolute;
}

[[noreturn]] void ExitWithUsage(FILE* out, int code) {
  fputs(kUsage, out);
  exit(code);
}

Arguments ParseArguments(int argc, char** argv) {
  static const option kOptions[] = {{"foreground", no_argument, nullptr, 'f'},
                                    {"help", no_argument, nullptr, 'h'},
                                    {"version", no_argument, nullptr, 'V'},
                                    {nullptr, 0, nullptr, 0}};
  Arguments arguments;
  arguments.is_helper = IsMountHelper(argv[0]);
  const char* letters = arguments.is_helper ? "fhnN:o:st:vV" : "fho:V";
  for (int letter; (letter = getopt_long(argc, argv, letters, kOptions, nullptr)) != -1;) {
    switch (letter) {
      case 'f': (arguments.is_helper ? arguments.fake : arguments.foreground) = true; break;
      case 'n':  // this one and the next four are from mount(8), and mean nothing here
      case 'N':
      case 's':
      case 't':
      case 'v': break;
      case 'o':
        arguments.options += arguments.options.empty() ? "" : ",";
        arguments.options += optarg;
        break;
      case 'V': puts("pinstripe-fuse " PINSTRIPE_VERSION); exit(EXIT_SUCCESS);
      case 'h': ExitWithUsage(stdout, EXIT_SUCCESS);
      default: ExitWithUsage(stderr, kExitUsage);
    }
  }
  if (argc - optind != 2) ExitWithUsage(stderr, kExitUsage);
  arguments.config_file = argv[optind];
  arguments.mount_point = argv[optind + 1];
  return arguments;
}

// Makes all paths absolute: the background process does not stay in the directory of its start.
Status CheckArguments(Arguments& arguments) {
  arguments.config_file = TRY(AbsolutePath(arguments.config_file.c_str()));
  arguments.mount = TRY(ParseMountOptions(arguments.options, arguments.config_file));
  if (std::optional<std::string>& cache = arguments.mount.cache_directory; cache && *cache != "") {
    cache = TRY(CheckCacheDirectory(cache->c_str()));
  }
  arguments.mount_point = TRY(CheckMountPoint(arguments.mount_point.c_str()));
  return {};
}

// The process that serves the mount knows nothing of it, and need not run.
Status ChangeMount(const Arguments& arguments) {
  const std::string directory = TRY(AbsolutePath(arguments.mount_point.c_str()));
  if (arguments.fake) return {};
  const Asks asks = arguments.is_helper ? Asks::kMountHelper : Asks::kPerson;
  return Remount(directory, arguments.options, asks);
}

// --- Serving ---

// Blocks the signals that end the program, in this thread and in those that it starts. So the
// kernel gives them to the one thread that waits for them.
class EndSignals {
 public:
  EndSignals() {
    sigset_t ends;
    sigemptyset(&ends);
    for (int signal : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&ends, signal);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  void Allow() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> Start(const Arguments& arguments, Mount& mount) {
    std::unique_ptr<Session> session(new Session);
    const std::string& options = arguments.mount.kernel;
    fuse_args args = FUSE_ARGS_INIT(0, nullptr);
    for (const char* argument : {"pinstripe-fuse", "-o", options.c_str()}) {
      if (fuse_opt_add_arg(&args, argument) != 0) return Fail(ENOMEM, "out of memory");
    }
    session->session_ = fuse_session_new(&args, &Operations(), sizeof(fuse_lowlevel_ops), &mount);
    fuse_opt_free_args(&args);
    if (session->session_ == nullptr) {
      return Fail(EINVAL, "the mount options `{}` are not understood (see above)", options);
    }
    if (fuse_set_signal_handlers(session->session_) != 0) {
      return Fail(EIO, "signal handlers cannot be set");
    }
    session->handles_signals_ = true;
    if (fuse_session_mount(session->session_, arguments.mount_point.c_str()) != 0) {
      return Fail(EIO, "mounting on {} failed (see above)", arguments.mount_point);
    }
    session->mounted_ = true;
    const fuse_custom_io io{.writev = WriteAnswer, .read = ReadRequest};
    const int refused =
        fuse_session_custom_io(session->session_, &io, fuse_session_fd(session->session_));
    if (refused != 0)
      return Fail(-refused, "libfuse reads no requests with our calls: {}", ErrnoText(-refused));
    mount.Serve(session->session_);
    return session;
  }

  ~Session() {
    if (session_ == nullptr) return;
    if (mounted_) fuse_session_unmount(session_);
    if (handles_signals_) fuse_remove_signal_handlers(session_);
    fuse_session_destroy(session_);
  }

  // Serves until somebody unmounts or a signal ends the session.
  Status Run() {
    const std::unique_ptr<fuse_loop_config, decltype(&fuse_loop_cfg_destroy)> config(
        fuse_loop_cfg_create(), &fuse_loop_cfg_destroy);
    fuse_loop_cfg_set_clone_fd(config.get(), 1);
    fuse_loop_cfg_set_max_threads(config.get(), kMostThreads);
    fuse_loop_cfg_set_idle_threads(config.get(), kIdleThreads);
    const int result = fuse_session_loop_mt(session_, config.get());
    // Positive: the number of the signal.
    if (result < 0) return Fail(-result, "reading the kernel's requests: {}", ErrnoText(-result));
    return {};
  }

 private:
  Session() = default;

  fuse_session* session_ = nullptr;
  bool handles_signals_ = false;
  bool mounted_ = false;
};

void LogFuseMessage(fuse_log_level level, const char* format, va_list values) {
  char line[512];
  vsnprintf(line, sizeof(line), format, values);
  std::string_view text(line);
  text = text.substr(0, text.find_last_not_of('\n') + 1);
  Log(level <= FUSE_LOG_ERR ? LogLevel::kError : LogLevel::kInfo, "libfuse", {{"says", text}});
}

Status Serve(const Arguments& arguments, const Ready& ready) {
  EndSignals end_signals;
  RaiseDescriptorLimit();
  SetProgram(
      {.name = "pinstripe-fuse", .version = PINSTRIPE_VERSION, .detail = arguments.mount_point});
  RealRuntime runtime;
  SetLogFormat(TRY(LogFormatOf(arguments.config_file)));
  const auto connected = TRY(Connect(runtime, arguments.config_file));
  Cluster& cluster = connected->cluster();
  const ClusterConfig& config = cluster.config();
  MountMemory memory_part(arguments.mount.cache_bytes);
  FileSystem::Options options{.memory_bytes = memory_part.By(config)};
  options.memory_by = [&](const ClusterConfig& reloaded) { return memory_part.By(reloaded); };
  options.caretaker = &MakeHostCare;
  options.exported = arguments.mount.subdirectory;
  options.listed_age = arguments.mount.attribute_age;
  options.disk_cache_directory = arguments.mount.cache_directory.value_or(config.cache_directory);
  options.disk_cache_bytes =
      arguments.mount.cache_directory_bytes.value_or(config.cache_directory_bytes);
  const auto file_system = TRY(FileSystem::Open(cluster, options));
  const MountMemoryFollower follower(runtime, memory_part, *file_system);
  const auto reload = TRY(SignalWatch::Start(SIGUSR1, [&file_system] {
    (void)file_system->Reload();  // a failure is in the log
  }));
  const Attributes root = TRY(file_system->Resolve("/"));

  SlowOperations slow(cluster, arguments.mount.slow_request);
  Mount mount(runtime, *file_system, arguments.mount, root.inode,
              fmt::format("version      {}\ncluster      {}\nconfig       {}\ndirectory    {}\n"
                          "mount point  {}\noptions      {}\n",
                          PINSTRIPE_VERSION, cluster.config().name, arguments.config_file,
                          options.exported, arguments.mount_point, arguments.options));
  mount.TellSlow(slow);
  const auto metrics = MetricsServer::StartOrWarn(arguments.mount.metrics, [&] {
    MetricsPage page;
    AddProcessMetrics(page);
    mount.counters().AddTo(page);
    AddHostMetrics(cluster, *file_system, page);
    return page.Text();
  });
  std::unique_ptr<Session> session = TRY(Session::Start(arguments, mount));
  Log(LogLevel::kInfo, "mounted",
      {{"cluster", cluster.config().name}, {"on", arguments.mount_point}});
  ready(root.inode);
  end_signals.Allow();
  const Status served = session->Run();
  mount.Serve(nullptr);
  session.reset();  // so nothing new comes in before the open files are committed
  const Status released = mount.ReleaseAll();
  const MemoryCounters memory = file_system->Memory();
  Log(LogLevel::kInfo, "unmounted",
      {{"on", arguments.mount_point},
       {"cells_found", memory.cache_hits},
       {"cells_read", memory.cache_misses},
       {"cells_shared", memory.shared_reads},
       {"cells_ahead", memory.read_ahead_cells},
       {"cells_found_on_disk", memory.disk.cells_found}});
  TRY(served);
  return released;
}

int Report(const Status& status) {
  if (status.ok()) return EXIT_SUCCESS;
  fmt::print(stderr, "pinstripe-fuse: {}\n", status.message());
  return EXIT_FAILURE;
}

// --- In the background ---

int SyslogPriority(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return LOG_DEBUG;
    case LogLevel::kInfo: return LOG_INFO;
    case LogLevel::kWarn: return LOG_WARNING;
    case LogLevel::kError: break;
  }
  return LOG_ERR;
}

// Sends everything to syslog. Until the mount works, warnings and errors also go to standard error.
class BackgroundLog {
 public:
  BackgroundLog() {
    openlog("pinstripe-fuse", LOG_PID, LOG_DAEMON);
    SetLogSink([this](LogLevel level, std::string_view line) {
      const auto length = static_cast<int>(line.size());
      syslog(SyslogPriority(level), "%.*s", length, line.data());
      if (on_terminal_ && level >= LogLevel::kWarn) fmt::print(stderr, "{}\n", line);
    });
  }
  ~BackgroundLog() { SetLogSink(nullptr); }

  void LeaveTerminal() {
    on_terminal_ = false;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;  // keeps the terminal
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    close(null);
  }

 private:
  std::atomic<bool> on_terminal_ = true;
};

// The background process. When it is ready it writes the inode of its root into the pipe.
int ServeDetached(const Arguments& arguments, int pipe) {
  setsid();
  if (chdir("/") != 0) return Report(Status(errno, "chdir /: " + ErrnoText(errno)));
  BackgroundLog log;
  bool ready = false;
  const Status served = Serve(arguments, [&](InodeId root) {
    log.LeaveTerminal();
    if (write(pipe, &root, sizeof(root)) != sizeof(root)) {
      Log(LogLevel::kWarn, "nobody waits for the mount");
    }
    close(pipe);
    ready = true;
  });
  if (!served.ok() && ready) Log(LogLevel::kError, "mount failed", {{"why", served}});
  return Report(served);
}

// The caller's process. It waits until the child is ready, and then tries the mount itself.
int WaitForMount(const Arguments& arguments, pid_t child, int pipe) {
  InodeId inode = 0;
  ssize_t got = 0;
  while ((got = read(pipe, &inode, sizeof(inode))) < 0 && errno == EINTR) {
  }
  if (got != sizeof(inode)) {  // the child has said why
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : EXIT_FAILURE;
  }
  struct stat root {};
  if (stat(arguments.mount_point.c_str(), &root) == 0 && root.st_ino == inode) {
    return EXIT_SUCCESS;
  }
  const int error = errno;
  kill(child, SIGTERM);
  waitpid(child, nullptr, 0);
  return Report(Status(EIO, fmt::format("{} was mounted but does not answer: {}",
                                        arguments.mount_point, ErrnoText(error))));
}

int ServeInBackground(const Arguments& arguments) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return Report(Status(errno, "pipe: " + ErrnoText(errno)));
  const pid_t child = fork();  // before any thread exists
  if (child < 0) return Report(Status(errno, "fork: " + ErrnoText(errno)));
  close(pipe[child == 0 ? 0 : 1]);
  return child == 0 ? ServeDetached(arguments, pipe[1]) : WaitForMount(arguments, child, pipe[0]);
}

int Main(int argc, char** argv) {
  Arguments arguments = ParseArguments(argc, argv);
  if (IsRemount(arguments.options)) return Report(ChangeMount(arguments));
  if (const Status status = CheckArguments(arguments); !status.ok()) return Report(status);
  if (arguments.fake) return EXIT_SUCCESS;
  fuse_set_log_func(LogFuseMessage);
  return arguments.foreground ? Report(Serve(arguments, [](InodeId) {}))
                              : ServeInBackground(arguments);
}

}  // namespace
}  // namespace pinstripe

int main(int argc, char** argv) { return pinstripe::Main(argc, argv); }
