// Processes that outlive the command that started them: started detached, found again by their
// command line, told to end, waited for.
//
// A process is known by its pid and its exact command line together. A pid alone may have been
// given to somebody else since it was written down, and is never signalled on its own; a pidfd then
// pins the process, so that nothing can slip in between looking and signalling.
//
// Linux only. Not thread-safe.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct UnixUser {
  std::string name;
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // all of them, for setgroups()
};

// By name. ENOENT when there is none.
Result<UnixUser> FindUnixUser(const std::string& name);
Result<UnixUser> CurrentUnixUser();

// Success if `user` may read `path` (of a directory: list and enter it); asked of the kernel by a
// child that has become that user. EACCES, ENOENT ... name the path and the user.
Status CheckReadableBy(const UnixUser& user, const std::string& path);

struct SpawnRequest {
  std::vector<std::string> command;  // the program first, as a path
  std::string log;                   // standard output and error are appended here
  std::string directory = "/";       // to work in
  std::string preload;  // libraries for LD_PRELOAD, with colons between, besides what is there
  std::vector<std::string> environment;  // "NAME=VALUE"; what is there already stays
  std::optional<UnixUser> user;          // to become, if it is not the caller; needs root
  // Give the process a host name of its own, "localhost", which always resolves. Without root this
  // takes a user namespace, which some machines forbid (EPERM).
  bool as_localhost = false;
};

// A process that was running when it was found, and no other.
class Process {
 public:
  // Null when `pid` does not run, or is some other command, or has ended and was not yet waited
  // for. Not for a child that was just started: for a moment it has no command line to know it by.
  static std::optional<Process> Find(pid_t pid, const std::vector<std::string>& command);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  pid_t pid() const { return pid_; }

  // Success also when it has ended meanwhile.
  Status Signal(int signal);

  // True when it has ended; false when `timeout` passed first.
  bool WaitForEnd(Duration timeout);

  // Whether a child of ours has ended with exit code 0, once WaitForEnd() has said that it ended.
  bool EndedWell() const { return outcome_ == 0; }

  // How a child of ours ended, once WaitForEnd() has said so: "with exit code 3", "by SIGSEGV".
  // "" of others.
  std::string HowItEnded() const;

 private:
  friend Result<Process> SpawnDetached(const SpawnRequest& request);
  Process(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  pid_t pid_ = 0;
  int pidfd_ = -1;
  std::optional<int> outcome_;  // as waitpid(2) tells it
};

// Starts a process in a session of its own. An error says at which step it failed, exec included.
Result<Process> SpawnDetached(const SpawnRequest& request);

// The command line of a running process; empty when there is none.
std::vector<std::string> CommandLineOf(pid_t pid);

// SIGTERM, then, when it has not ended after `patience`, SIGKILL. The answer is whether it had to
// be killed.
Result<bool> EndProcess(Process& process, Duration patience);

}  // namespace pinstripe
