#include "tools/process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "base/file_descriptor.h"
#include "base/try.h"

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgot to say that it is C
}

namespace pinstripe {
namespace {

Result<UnixUser> UserOf(const passwd& entry) {
  UnixUser user{.name = entry.pw_name, .user = entry.pw_uid, .group = entry.pw_gid};
  int count = 64;
  user.groups.resize(count);
  if (getgrouplist(entry.pw_name, entry.pw_gid, user.groups.data(), &count) < 0) {
    user.groups.resize(count);
    if (getgrouplist(entry.pw_name, entry.pw_gid, user.groups.data(), &count) < 0) {
      return Fail(EIO, "user {}: its groups cannot be listed", user.name);
    }
  }
  user.groups.resize(count);
  return user;
}

// The message of a child that failed before exec to its parent.
struct ChildFailure {
  int code;
  char step[32];
};

// The functions from here to ChildMain run between fork and exec. The parent may have threads, so
// they call nothing that could need a lock another thread held: only system calls, no allocation.

bool WriteSmallFile(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text, std::strlen(text)) >= 0;
  close(fd);
  return written;
}

bool BecomeUser(const UnixUser& user) {
  return setgroups(user.groups.size(), user.groups.data()) == 0 && setgid(user.group) == 0 &&
         setuid(user.user) == 0;
}

struct ChildPlan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  const SpawnRequest* request = nullptr;
  int log = -1;
  int null = -1;
  int failure = -1;
  bool user_namespace = false;
  std::string uid_map;
  std::string gid_map;
};

const char* FirstStepThatFails(const ChildPlan& plan) {
  if (setsid() < 0) return "setsid";
  if (dup2(plan.null, STDIN_FILENO) < 0 || dup2(plan.log, STDOUT_FILENO) < 0 ||
      dup2(plan.log, STDERR_FILENO) < 0) {
    return "dup2";
  }
  if (plan.request->as_localhost) {
    if (unshare(CLONE_NEWUTS | (plan.user_namespace ? CLONE_NEWUSER : 0)) != 0) return "unshare";
    if (plan.user_namespace && !(WriteSmallFile("/proc/self/setgroups", "deny") &&
                                 WriteSmallFile("/proc/self/uid_map", plan.uid_map.c_str()) &&
                                 WriteSmallFile("/proc/self/gid_map", plan.gid_map.c_str()))) {
      return "uid_map";
    }
    if (sethostname("localhost", 9) != 0) return "sethostname";
  }
  if (plan.request->user && !BecomeUser(*plan.request->user)) return "setuid";
  if (chdir(plan.request->directory.c_str()) != 0) return "chdir";
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan.argv[0], plan.argv.data(), plan.environment.data());
  return "exec";
}

[[noreturn]] void ChildMain(const ChildPlan& plan) {
  const char* step = FirstStepThatFails(plan);
  ChildFailure failure{.code = errno, .step = {}};
  std::strncpy(failure.step, step, sizeof failure.step - 1);
  [[maybe_unused]] const ssize_t told = write(plan.failure, &failure, sizeof failure);
  _exit(127);
}

}  // namespace

Result<UnixUser> FindUnixUser(const std::string& name) {
  errno = 0;
  const passwd* entry = getpwnam(name.c_str());
  if (entry == nullptr) return Fail(ENOENT, "there is no user \"{}\" on this machine", name);
  return UserOf(*entry);
}

Result<UnixUser> CurrentUnixUser() {
  const passwd* entry = getpwuid(geteuid());
  if (entry != nullptr) return UserOf(*entry);
  return UnixUser{.name = fmt::format("{}", geteuid()),
                  .user = geteuid(),
                  .group = getegid(),
                  .groups = {getegid()}};
}

Status CheckReadableBy(const UnixUser& user, const std::string& path) {
  const pid_t child = fork();
  if (child < 0) return Fail(errno, "fork: {}", ErrnoText(errno));
  if (child == 0) {
    if (user.user != geteuid() && !BecomeUser(user)) _exit(errno);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    _exit(fd < 0 ? errno : 0);
  }
  int outcome = 0;
  while (waitpid(child, &outcome, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(outcome)) return Fail(EIO, "{}: could not be tried as user {}", path, user.name);
  const int code = WEXITSTATUS(outcome);
  if (code != 0)
    return Fail(code, "{}: user {} cannot read it: {}", path, user.name, ErrnoText(code));
  return {};
}

Result<Process> SpawnDetached(const SpawnRequest& request) {
  const std::string& program = request.command.front();
  ChildPlan plan{.request = &request};
  for (const std::string& word : request.command)
    plan.argv.push_back(const_cast<char*>(word.c_str()));
  plan.argv.push_back(nullptr);
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  std::string preload(kPreload);  // what is there comes first, a sanitizer above all
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!request.preload.empty() && std::string_view(*variable).starts_with(kPreload)) {
      preload = fmt::format("{}:", *variable);
    } else {
      plan.environment.push_back(*variable);
    }
  }
  preload += request.preload;
  if (!request.preload.empty()) plan.environment.push_back(preload.data());
  for (const std::string& variable : request.environment) {
    const std::string name = variable.substr(0, variable.find('='));
    if (getenv(name.c_str()) != nullptr) continue;
    plan.environment.push_back(const_cast<char*>(variable.c_str()));
  }
  plan.environment.push_back(nullptr);
  plan.user_namespace = geteuid() != 0;
  plan.uid_map = fmt::format("{0} {0} 1", geteuid());
  plan.gid_map = fmt::format("{0} {0} 1", getegid());

  const FileDescriptor log(
      open(request.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) return Fail(errno, "{}: {}", request.log, ErrnoText(errno));
  const FileDescriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) return Fail(errno, "/dev/null: {}", ErrnoText(errno));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Fail(errno, "pipe: {}", ErrnoText(errno));
  const FileDescriptor failure_in(ends[0]);
  FileDescriptor failure_out(ends[1]);
  plan.log = log.get();
  plan.null = null.get();
  plan.failure = failure_out.get();

  const pid_t child = fork();
  if (child < 0) return Fail(errno, "fork: {}", ErrnoText(errno));
  if (child == 0) ChildMain(plan);

  // The pipe closes by itself when exec succeeds.
  failure_out = FileDescriptor();
  ChildFailure failure{};
  ssize_t got = 0;
  while ((got = read(failure_in.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  if (got == sizeof failure) {
    waitpid(child, nullptr, 0);
    return Fail(failure.code, "start {}: {}: {}", program, failure.step, ErrnoText(failure.code));
  }
  // A child that nobody has waited for keeps its number.
  const int pidfd = pidfd_open(child, 0);
  if (pidfd < 0) {
    const int code = errno;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return Fail(code, "start {}: pidfd_open: {}", program, ErrnoText(code));
  }
  return Process(child, pidfd);
}

std::vector<std::string> CommandLineOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::optional<Process> Process::Find(pid_t pid, const std::vector<std::string>& command) {
  if (pid <= 0) return std::nullopt;
  const int pidfd = pidfd_open(pid, 0);
  if (pidfd < 0) return std::nullopt;
  Process process(pid, pidfd);
  // In this order: whatever the pid names now is what the pidfd names, as long as that lives.
  if (CommandLineOf(pid) != command || process.WaitForEnd(Duration::zero())) return std::nullopt;
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(other.pid_), pidfd_(std::exchange(other.pidfd_, -1)), outcome_(other.outcome_) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(outcome_, other.outcome_);
  return *this;
}

Process::~Process() {
  if (pidfd_ >= 0) close(pidfd_);
}

Status Process::Signal(int signal) {
  if (pidfd_send_signal(pidfd_, signal, nullptr, 0) == 0 || errno == ESRCH) return {};
  return Fail(errno, "signal {} to process {}: {}", signal, pid_, ErrnoText(errno));
}

bool Process::WaitForEnd(Duration timeout) {
  pollfd waiting{.fd = pidfd_, .events = POLLIN, .revents = 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  int ended = 0;
  while ((ended = poll(&waiting, 1, static_cast<int>(left))) < 0 && errno == EINTR) {
  }
  int outcome = 0;
  // No zombie, if it was a child of ours.
  if (ended > 0 && !outcome_ && waitpid(pid_, &outcome, WNOHANG) == pid_) outcome_ = outcome;
  return ended > 0;
}

std::string Process::HowItEnded() const {
  if (!outcome_) return "";
  if (WIFEXITED(*outcome_)) return fmt::format("with exit code {}", WEXITSTATUS(*outcome_));
  const char* name = sigabbrev_np(WTERMSIG(*outcome_));
  return name != nullptr ? fmt::format("by SIG{}", name)
                         : fmt::format("by signal {}", WTERMSIG(*outcome_));
}

Result<bool> EndProcess(Process& process, Duration patience) {
  TRY(process.Signal(SIGTERM));
  if (process.WaitForEnd(patience)) return false;
  TRY(process.Signal(SIGKILL));
  if (!process.WaitForEnd(std::chrono::seconds(10))) {
    return Fail(EBUSY, "process {} does not end, even by SIGKILL: it is stuck in the kernel",
                process.pid());
  }
  return true;
}

}  // namespace pinstripe
