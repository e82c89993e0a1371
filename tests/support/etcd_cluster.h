// EtcdCluster: an etcd of this machine whose members a test starts, kills and starts again, with
// its data in a directory of its own.

#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/host_network.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {

class EtcdCluster {
 public:
  struct Options {
    size_t members = 1;
    bool tls = false;               // clients need a certificate, too: the members' own
    uint64_t quota_bytes = 0;       // 0: etcd's
    std::vector<std::string> more;  // options of each member
    // Each member is on a host of its own, from the first on, and talks to others over the back.
    HostNetwork* network = nullptr;
  };

  explicit EtcdCluster(Options options);
  EtcdCluster() : EtcdCluster(Options()) {}
  ~EtcdCluster();  // kills it

  size_t size() const { return members_.size(); }
  std::string url(size_t member) const;  // for clients
  std::vector<std::string> urls() const;
  std::string certificate_file() const { return directory_ / "certificate.pem"; }
  std::string key_file() const { return directory_ / "key.pem"; }

  void Start(size_t member);
  void WaitUntilItServes();  // a majority
  void Kill(size_t member);  // SIGKILL
  void Signal(size_t member, int signal) const;
  void Erase(size_t member) const;  // its data, once it is killed
  size_t Leader() const;            // waits until there is one

  // Runs etcdctl with these words, and gives what it printed.
  std::string Run(const std::vector<std::string>& words) const;

 private:
  std::string PeerUrl(size_t member) const;

  struct Member {
    uint16_t client_port = 0;
    uint16_t peer_port = 0;
    pid_t process = -1;
  };

  const Options options_;
  TemporaryDirectory directory_;
  std::vector<Member> members_;
};

}  // namespace pinstripe
