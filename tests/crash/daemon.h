// Daemon: a process of pinstriped.
//
//   Daemon daemon({"--config", config});
//   ASSERT_TRUE(daemon.IsReady());
//   ...
//   daemon.Kill();

#pragma once

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace pinstripe {

constexpr uint64_t kDriveBytes = 1'000'000'000;  // more than these tests put on a drive

// An empty drive, which a Daemon can serve.
void MakeDrive(const std::string& path);

class Daemon {
 public:
  // `environment` is added to that of this process. `descriptors`: as many as it may ever have; 0:
  // as this process.
  explicit Daemon(const std::vector<std::string>& arguments,
                  const std::map<std::string, std::string>& environment = {},
                  unsigned descriptors = 0);
  ~Daemon();  // kills it
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Waits until it serves. False: it has ended instead, or said something else.
  bool IsReady();

  void Kill() { End(SIGKILL); }
  int Stop() { return End(SIGTERM); }  // what waitpid says
  int Wait();                          // the same, for one that ends by itself

  pid_t pid() const { return pid_; }

  // What it has said on standard error, up to now; all of it once it has ended.
  std::string Messages() const;

 private:
  int End(int signal);

  FileDescriptor output_;
  FileDescriptor messages_;
  pid_t pid_ = 0;
};

}  // namespace pinstripe
