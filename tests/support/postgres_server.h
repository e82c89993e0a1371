// PostgresServer: a PostgreSQL server of this machine that a test starts, ends and starts again,
// with its data in a directory of its own. It has a database `names`, which its role `pin` owns;
// the role `secret` has the password "secret". It is as safe as an engine must be unless its
// settings say otherwise.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace pinstripe {

class PostgresServer {
 public:
  using Settings = std::map<std::string, std::string>;

  // `settings` go before the usual ones.
  explicit PostgresServer(const Settings& settings = {});
  // A standby of it, that follows as `name`.
  PostgresServer(const PostgresServer& primary, const std::string& name);
  ~PostgresServer();  // kills it
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  uint16_t port() const { return port_; }
  std::string connection(const std::string& user = "pin") const;

  void Start();    // waits until it answers
  void Kill();     // SIGKILL, to all its processes at once
  void Stop();     // as an administrator does, without waiting for sessions
  void Promote();  // of a standby; waits until it takes changes
  void Pause();    // SIGSTOP, to all its processes
  void Resume();

  // Changes a setting while it runs; waits until sessions have it.
  void Set(const std::string& name, const std::string& value);

  // Runs psql as the superuser with this, and gives what it printed: rows, columns with '|'.
  std::string Run(const std::string& sql, const std::string& database = "names") const;

 private:
  void WriteSettings(const Settings& settings);
  std::vector<pid_t> Processes() const;

  TemporaryDirectory directory_;
  const std::string data_;
  uint16_t port_ = 0;
  pid_t process_ = -1;
};

}  // namespace pinstripe
