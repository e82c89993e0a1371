// RedisServer: a redis-server of this machine that a test starts, ends and starts again, with its
// data in a directory of its own. It is safe as a drive unless its settings say otherwise.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace pinstripe {

class RedisServer {
 public:
  using Settings = std::map<std::string, std::string>;

  // `settings` come after the usual ones. With `tls` it takes nothing but TLS.
  explicit RedisServer(Settings settings = {}, bool tls = false);
  ~RedisServer();  // kills it

  uint16_t port() const { return port_; }
  // "redis://127.0.0.1:PORT/0", or "rediss://...".
  std::string address(int database = 0) const;
  const std::string& certificate() const { return certificate_; }  // PEM

  void Start();  // waits until it answers
  void Kill();   // SIGKILL

  // Runs redis-cli with these words, and gives what it printed.
  std::string Run(const std::vector<std::string>& words) const;

 private:
  const bool tls_;
  TemporaryDirectory directory_;
  Settings settings_;
  uint16_t port_ = 0;
  std::string certificate_;
  pid_t process_ = -1;
};

}  // namespace pinstripe
