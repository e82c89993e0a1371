#include "tests/support/etcd_cluster.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <sstream>

#include "base/status.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/free_ports.h"
#include "tests/support/spawn.h"

namespace pinstripe {
EtcdCluster::EtcdCluster(Options options) : options_(std::move(options)) {
  const std::vector<uint16_t> ports = FreePorts(2 * options_.members);
  for (size_t i = 0; i < options_.members; ++i) {
    members_.push_back({.client_port = ports[2 * i], .peer_port = ports[2 * i + 1]});
  }
  if (options_.tls) MakeCertificate(certificate_file(), key_file());
  for (size_t i = 0; i < options_.members; ++i) Start(i);
  WaitUntilItServes();
}

EtcdCluster::~EtcdCluster() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(i);
}

std::string EtcdCluster::url(size_t member) const {
  const std::string address = options_.network == nullptr
                                  ? "127.0.0.1"
                                  : options_.network->address(member, HostNetwork::Side::kFront);
  return fmt::format("{}://{}:{}", options_.tls ? "https" : "http", address,
                     members_[member].client_port);
}

std::string EtcdCluster::PeerUrl(size_t member) const {
  const std::string address = options_.network == nullptr
                                  ? "127.0.0.1"
                                  : options_.network->address(member, HostNetwork::Side::kBack);
  return fmt::format("http://{}:{}", address, members_[member].peer_port);
}

std::vector<std::string> EtcdCluster::urls() const {
  std::vector<std::string> urls;
  for (size_t i = 0; i < members_.size(); ++i) urls.push_back(url(i));
  return urls;
}

void EtcdCluster::Start(size_t member) {
  std::string all;
  for (size_t i = 0; i < members_.size(); ++i) {
    all += fmt::format("{}m{}={}", i == 0 ? "" : ",", i, PeerUrl(i));
  }
  const std::string peer = PeerUrl(member);
  const std::string name = fmt::format("m{}", member);
  std::vector<std::string> words = {"etcd",
                                    "--name=" + name,
                                    "--data-dir=" + (directory_ / name),
                                    "--listen-client-urls=" + url(member),
                                    "--advertise-client-urls=" + url(member),
                                    "--listen-peer-urls=" + peer,
                                    "--initial-advertise-peer-urls=" + peer,
                                    "--initial-cluster=" + all,
                                    "--initial-cluster-state=new",
                                    "--heartbeat-interval=50",
                                    "--election-timeout=500",
                                    "--logger=zap",
                                    "--log-level=error",
                                    "--log-outputs=stderr"};
  if (options_.quota_bytes != 0) {
    words.push_back(fmt::format("--quota-backend-bytes={}", options_.quota_bytes));
  }
  if (options_.tls) {
    words.insert(words.end(), {"--cert-file=" + certificate_file(), "--key-file=" + key_file(),
                               "--trusted-ca-file=" + certificate_file(), "--client-cert-auth"});
  }
  words.insert(words.end(), options_.more.begin(), options_.more.end());
  if (options_.network != nullptr) {
    const std::vector<std::string> there = options_.network->On(member);
    words.insert(words.begin(), there.begin(), there.end());
  }
  members_[member].process = SpawnProgram(words, -1);
}

void EtcdCluster::WaitUntilItServes() {
  const auto serves = [this] {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].process < 0) continue;
      EXPECT_EQ(waitpid(members_[i].process, nullptr, WNOHANG), 0) << "member " << i << " ended";
      const std::string said = Run({"--endpoints=" + url(i), "get", "a"});
      // Who asks without a name, of one that wants to have it, was answered by a leader.
      if (!said.empty() && said.find("user name is empty") == said.npos) return false;
    }
    return true;
  };
  for (int i = 0; !serves(); ++i) ASSERT_LT(i, 1000) << "etcd does not answer";
}

void EtcdCluster::Kill(size_t member) {
  pid_t& process = members_[member].process;
  if (process < 0) return;
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  process = -1;
}

void EtcdCluster::Signal(size_t member, int signal) const {
  kill(members_[member].process, signal);
}

void EtcdCluster::Erase(size_t member) const {
  std::filesystem::remove_all(directory_ / fmt::format("m{}", member));
}

// Each line has a member's address, id, version, size, and whether it leads.
size_t EtcdCluster::Leader() const {
  for (int tries = 0; tries < 1000; ++tries) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].process < 0) continue;
      std::istringstream said(Run({"--endpoints=" + url(i), "endpoint", "status"}));
      std::string field;
      for (int column = 0; column < 5; ++column) std::getline(said, field, ',');
      if (field == " true") return i;
    }
  }
  ADD_FAILURE() << "etcd has no leader";
  return 0;
}

std::string EtcdCluster::Run(const std::vector<std::string>& words) const {
  std::vector<std::string> all = {"etcdctl", "--dial-timeout=2s", "--command-timeout=5s"};
  const bool says_whom = !words.empty() && words[0].starts_with("--endpoints=");
  if (!says_whom) all.push_back(fmt::format("--endpoints={}", fmt::join(urls(), ",")));
  if (options_.tls) {
    all.insert(all.end(), {"--cacert=" + certificate_file(), "--cert=" + certificate_file(),
                           "--key=" + key_file()});
  }
  all.insert(all.end(), words.begin(), words.end());
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  const pid_t process = SpawnProgram(all, ends[1]);
  close(ends[1]);
  std::string output;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<size_t>(got));
  }
  close(ends[0]);
  if (process >= 0) waitpid(process, nullptr, 0);
  return output;
}

}  // namespace pinstripe
