#include "tests/support/redis_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <thread>

#include "base/read_file.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/free_ports.h"
#include "tests/support/spawn.h"

namespace pinstripe {
RedisServer::RedisServer(Settings settings, bool tls) : tls_(tls), settings_(std::move(settings)) {
  const std::vector<uint16_t> ports = FreePorts(2);
  port_ = ports[0];
  const std::string port = std::to_string(port_);
  // Otherwise it takes one that is 10000 higher, which an outgoing connection may have.
  if (settings_.contains("cluster-enabled")) {
    settings_.insert({"cluster-port", std::to_string(ports[1])});
  }
  settings_.insert({{"bind", "127.0.0.1"},
                    {"dir", directory_.path()},
                    {"appendonly", "yes"},
                    {"appendfsync", "always"},
                    {"save", ""},
                    {tls ? "tls-port" : "port", port}});
  if (tls) {
    MakeCertificate(directory_ / "certificate.pem", directory_ / "key.pem");
    const Result<std::string> text = ReadFile(directory_ / "certificate.pem");
    certificate_ = text.value_or("");
    settings_.insert({{"port", "0"},
                      {"tls-cert-file", directory_ / "certificate.pem"},
                      {"tls-key-file", directory_ / "key.pem"},
                      {"tls-ca-cert-file", directory_ / "certificate.pem"},
                      {"tls-auth-clients", "no"}});
  }
  Start();
}

RedisServer::~RedisServer() { Kill(); }

std::string RedisServer::address(int database) const {
  return fmt::format("{}://127.0.0.1:{}/{}", tls_ ? "rediss" : "redis", port_, database);
}

void RedisServer::Start() {
  std::vector<std::string> words = {"redis-server"};
  for (const auto& [name, value] : settings_) {
    words.push_back("--" + name);
    // Of several words each is an argument of its own.
    std::istringstream parts(value);
    const size_t before = words.size();
    for (std::string part; parts >> part;) words.push_back(part);
    if (words.size() == before) words.emplace_back();
  }
  process_ = SpawnProgram(words, -1);
  if (process_ < 0) return;
  const auto answers = [this] {
    const std::string answer = Run({"PING"});
    return answer.find("PONG") != answer.npos || answer.find("NOAUTH") != answer.npos;
  };
  for (int i = 0; !answers(); ++i) {
    ASSERT_EQ(waitpid(process_, nullptr, WNOHANG), 0) << "redis-server ended: " << words.size();
    ASSERT_LT(i, 10000) << "redis-server does not answer";
    std::this_thread::yield();
  }
}

void RedisServer::Kill() {
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

std::string RedisServer::Run(const std::vector<std::string>& words) const {
  std::vector<std::string> all = {"redis-cli", "-h", "127.0.0.1", "-p", std::to_string(port_)};
  if (tls_) all.insert(all.end(), {"--tls", "--insecure"});
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
