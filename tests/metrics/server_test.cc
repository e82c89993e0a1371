// The port of metrics: what it serves, and that nobody who comes to it can do harm.

#include "metrics/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

FileDescriptor ConnectTo(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// All that comes until the peer closes.
std::string ReadAll(int socket) {
  std::string all;
  char part[4096];
  pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
  while (poll(&ready, 1, 10'000) > 0) {
    const ssize_t got = recv(socket, part, sizeof part, 0);
    if (got <= 0) return all;
    all.append(part, static_cast<size_t>(got));
  }
  ADD_FAILURE() << "the connection stays open";
  return all;
}

std::string Ask(uint16_t port, std::string_view bytes) {
  const FileDescriptor socket = ConnectTo(port);
  (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(socket.get(), SHUT_WR);
  return ReadAll(socket.get());
}

class MetricsServerTest : public testing::Test {
 protected:
  MetricsServerTest() {
    auto server = MetricsServer::Start({.host = "127.0.0.1"}, [this] {
      ++pages_;
      return std::string("# HELP a One.\n# TYPE a gauge\na 1\n");
    });
    EXPECT_TRUE(server.has_value()) << server.error().message();
    server_ = *std::move(server);
  }

  std::string Get(const std::string& path) {
    return Ask(port(), "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  uint16_t port() const { return server_->port(); }

  std::atomic<int> pages_ = 0;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, ServesThePage) {
  const std::string answer = Get("/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n# HELP a One.\n# TYPE a gauge\na 1\n"));
  EXPECT_EQ(pages_, 1);
}

TEST(MetricsServer, APageThatCannotBeMadeIsAnErrorOfOurs) {
  const auto server = MetricsServer::Start({.host = "127.0.0.1"}, []() -> std::string {
    throw std::runtime_error("no memory is left");
  });
  ASSERT_TRUE(server.has_value()) << server.error().message();
  for (int i = 0; i < 2 * MetricsServer::kThreads; ++i) {
    EXPECT_THAT(Ask((*server)->port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
                StartsWith("HTTP/1.1 500 "));
  }
}

TEST_F(MetricsServerTest, AHeadHasNoBody) {
  const std::string answer = Ask(port(), "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(MetricsServerTest, ServesNothingElse) {
  for (const char* path :
       {"/", "/etc/passwd", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/x",
        "/metrics.php", "/proc/self/environ", "/.htpasswd", "/cgi-bin/x.cgi", "//metrics"}) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer, testing::Not(HasSubstr("root:"))) << path;
    EXPECT_THAT(answer, testing::Not(HasSubstr("Index of"))) << path;
    if (std::string_view(path) != "//metrics") {
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 ")) << path;
    }
  }
}

TEST_F(MetricsServerTest, NothingCanBeDoneButToRead) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "MKCOL", "PROPFIND", "OPTIONS"}) {
    const std::string answer =
        Ask(port(),
            std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
  }
  EXPECT_EQ(pages_, 0);
}

TEST_F(MetricsServerTest, WhatIsNoRequestIsRefused) {
  const std::string answer = Ask(port(), "This is no request\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Refused\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nthis cannot be answered\n")) << answer;
}

TEST_F(MetricsServerTest, APortThatIsTakenIsNamed) {
  const auto second =
      MetricsServer::Start({.host = "127.0.0.1", .port = port()}, [] { return std::string(); });
  ASSERT_FALSE(second.has_value());
  const std::string why(second.error().message());
  EXPECT_THAT(why, HasSubstr("127.0.0.1:" + std::to_string(port())));
  EXPECT_THAT(why, HasSubstr("choose another address or port"));
}

TEST_F(MetricsServerTest, WhereItCannotBeTheProgramGoesOnAndSaysSo) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto none = [] { return std::string(); };
  EXPECT_EQ(MetricsServer::StartOrWarn("", none), nullptr);
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(MetricsServer::StartOrWarn(std::to_string(port()), none), nullptr);
  EXPECT_EQ(MetricsServer::StartOrWarn("nowhere:1", none), nullptr);
  SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("metrics are not served"));
  EXPECT_THAT(lines[1], HasSubstr("nowhere:1"));
}

// A library that decides about them would take a program's children away from it.
TEST(MetricsServer, SignalsStayAsTheProgramHasThem) {
  struct sigaction before[3];
  struct sigaction after[3];
  const int signals[] = {SIGPIPE, SIGCHLD, SIGTERM};
  for (int i = 0; i < 3; ++i) sigaction(signals[i], nullptr, &before[i]);
  const auto server = MetricsServer::Start({.host = "127.0.0.1"}, [] { return std::string(); });
  ASSERT_TRUE(server.has_value());
  for (int i = 0; i < 3; ++i) sigaction(signals[i], nullptr, &after[i]);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(before[i].sa_handler, after[i].sa_handler) << signals[i];
}

// As every program ends sooner or later, and its successor waits for that.
TEST(MetricsServer, EndsAtOnce) {
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    auto server = MetricsServer::Start({.host = host}, [] { return std::string(); });
    ASSERT_TRUE(server.has_value()) << server.error().message();
    const auto begin = std::chrono::steady_clock::now();
    server->reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1)) << host;
  }
}

TEST_F(MetricsServerTest, WhoComesAndSaysNothingHoldsNobodyUpForLong) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(ConnectTo(port()));
  for (size_t i = 0; i < 3; ++i) (void)send(silent[i].get(), "GET /met", 8, MSG_NOSIGNAL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 "));
  const auto limit = std::chrono::milliseconds(4 * MetricsServer::kMostMilliseconds);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, limit);
}

// Who closes before the answer is out must not end the program (SIGPIPE).
TEST_F(MetricsServerTest, WhoGoesAwayHarmsNobody) {
  signal(SIGPIPE, SIG_DFL);
  for (int i = 0; i < 50; ++i) {
    const FileDescriptor socket = ConnectTo(port());
    const std::string_view request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    (void)send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 "));
}

// Requests with bytes changed, left out, repeated and put in. Each connection ends, and the page is
// served after all of them.
TEST_F(MetricsServerTest, HostileRequestsEnd) {
  const std::vector<std::string> seeds = {
      "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
      "GET /metrics HTTP/1.0\r\n\r\n",
      "GET http://x:1/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /%00%ff%zz/../metrics?a=b HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99999999999\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
      "GET /metrics HTTP/1.1\r\nAuthorization: Digest username=\"" + std::string(3000, 'a') +
          "\"\r\n\r\n",
      std::string(20'000, 'A'),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
  };
  std::minstd_rand chance(24);
  const auto below = [&chance](size_t n) { return n == 0 ? 0 : chance() % n; };
  for (int round = 0; round < 600; ++round) {
    std::string bytes = seeds[below(seeds.size())];
    for (size_t change = below(6); change > 0 && !bytes.empty(); --change) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0: bytes[at] = static_cast<char>(below(256)); break;
        case 1: bytes.erase(at, below(20)); break;
        case 2: bytes.insert(at, bytes.substr(below(bytes.size()), below(200))); break;
        case 3: bytes.insert(at, below(100), static_cast<char>(below(256))); break;
        default: bytes.resize(at); break;
      }
    }
    Ask(port(), bytes);
  }
  for (const std::string& seed : seeds) Ask(port(), seed);
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace pinstripe
