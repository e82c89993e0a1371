#include "tools/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/file_descriptor.h"
#include "base/try.h"

extern char** environ;  // NOLINT: POSIX

namespace pinstripe {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
// How long a program that was killed is waited for. One that waits for a dead disk does not end.
constexpr Duration kPatienceWithKilled = std::chrono::seconds(1);

// Reads until the program closes its end. False: the time is over.
bool ReadOutput(Runtime& runtime, int from, const TimeLimit& limit, std::string& output) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit.time() - runtime.Now());
    pollfd wait{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char buffer[4096];
    const ssize_t got = read(from, buffer, sizeof buffer);
    if (got <= 0) return true;
    if (output.size() < kMaxOutput) output.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace

std::optional<int> WaitForChild(Runtime& runtime, pid_t child, Duration patience) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  const TimeLimit limit(runtime, patience);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit.time() - runtime.Now());
    pollfd wait{.fd = process.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
}

Result<ProgramOutcome> RunProgram(Runtime& runtime, const std::vector<std::string>& command,
                                  Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Fail(errno, "no pipe: {}", ErrnoText(errno));
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Fail(failed, "cannot run {}: {}", command[0], ErrnoText(failed));
  to = FileDescriptor();

  ProgramOutcome outcome;
  const TimeLimit limit(runtime, patience);
  // It may close its output and go on.
  std::optional<int> status;
  if (ReadOutput(runtime, from.get(), limit, outcome.output)) {
    status = WaitForChild(runtime, pid, std::max(Duration(), limit.time() - runtime.Now()));
  }
  if (!status) {
    kill(pid, SIGKILL);
    WaitForChild(runtime, pid, kPatienceWithKilled);
    return Fail(ETIMEDOUT, "{} took longer than {} s", command[0],
                std::chrono::duration_cast<std::chrono::seconds>(patience).count());
  }
  outcome.exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
  return outcome;
}

}  // namespace pinstripe
