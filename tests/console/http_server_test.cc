// What hostile and slow clients may cost, over real sockets.

#include "console/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>

#include "base/log.h"
#include "base/real_runtime.h"
#include "kinetic/tls.h"
#include "tests/console/http_client.h"
#include "tests/console/scarce_runtime.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { SetLogLevel(LogLevel::kError); }

  void Start(HttpLimits limits = {}) {
    auto server =
        HttpServer::Start(runtime_, {.limits = limits}, [this](const HttpRequest& request) {
          ++calls_;
          if (request.path == "/stream") return Stream();
          if (request.path == "/much") return HttpResponse{.body = std::string(64 << 20, 'x')};
          if (request.path == "/fails") {
            HttpResponse response;
            response.stream = []() -> std::optional<std::string> {
              throw std::runtime_error("it has failed");
            };
            return response;
          }
          return HttpResponse{
              .type = "text/plain",
              .body = fmt::format("{} {} '{}'", request.method, request.path, request.body)};
        });
    ASSERT_OK(server);
    server_ = *std::move(server);
    running_ = server_.get();
  }

  HttpResponse Stream() {
    HttpResponse response{.type = "text/event-stream"};
    response.stream = [this]() -> std::optional<std::string> {
      if (running_.load()->IsStopping()) return std::nullopt;  // it waits for those who ask
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + 1ms);
      return "piece\n";
    };
    return response;
  }

  std::string Ask(std::string_view request) { return AskOnce(server_->port(), request); }

  // Whatever was sent before, somebody else is answered.
  void ExpectAlive() { EXPECT_THAT(Ask(GetText("/alive")), HasSubstr("GET /alive ''")); }

  RealRuntime runtime_;
  std::atomic<int> calls_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::atomic<HttpServer*> running_ = nullptr;  // the same, for its own threads
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOnAConnection) {
  Start();
  HttpClient client(server_->port());
  client.Send(GetText("/one") + GetText("/two%20words?x=1"));
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("GET /one ''"));
  EXPECT_THAT(client.ReceiveAnswer(), HasSubstr("GET /two words ''"));
  client.Send(PostText("/three", "{\"a\": 1}"));
  EXPECT_THAT(client.ReceiveAll(), HasSubstr("POST /three '{\"a\": 1}'"));
  EXPECT_FALSE(client.timed_out());
}

TEST_F(HttpServerTest, KnowsNoOtherMethods) {
  Start();
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT"}) {
    const std::string answer = Ask(fmt::format("{} / HTTP/1.1\r\nHost: localhost\r\n\r\n", method));
    EXPECT_EQ(StatusIn(answer), 405) << method << answer;
  }
  EXPECT_EQ(StatusIn(Ask("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n")), 405);
  EXPECT_EQ(StatusIn(Ask("JUMP / HTTP/1.1\r\n\r\n")), 400);
  EXPECT_EQ(calls_, 0);
  ExpectAlive();
}

TEST_F(HttpServerTest, EndsARequestThatIsTooLong) {
  Start({.request_bytes = 4096, .path_bytes = 1024});
  const std::string much(100'000, 'x');
  const std::string many_headers = [] {
    std::string text = "GET / HTTP/1.1\r\n";
    for (int i = 0; i < 20'000; ++i) text += fmt::format("X-{}: 1\r\n", i);
    return text + "\r\n";
  }();
  for (const std::string& request :
       {"GET /" + much + " HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nX: " + much + "\r\n\r\n",
        many_headers, much,
        fmt::format("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", much.size(), much),
        "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n" + much,
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n" + much}) {
    HttpClient client(server_->port());
    client.Send(request);
    const std::string answer = client.ReceiveAll();
    EXPECT_FALSE(client.timed_out()) << request.substr(0, 50);
    EXPECT_THAT(answer, Not(HasSubstr("200 OK"))) << request.substr(0, 50);
  }
  EXPECT_EQ(StatusIn(Ask("GET /" + std::string(1100, 'y') + " HTTP/1.1\r\n\r\n")), 414);
  EXPECT_EQ(calls_, 0);
  ExpectAlive();
}

TEST_F(HttpServerTest, ABodyHasALength) {
  Start();
  EXPECT_EQ(StatusIn(Ask("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "1\r\nx\r\n0\r\n\r\n")),
            411);
  EXPECT_EQ(StatusIn(Ask("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n")), 411);
  EXPECT_EQ(calls_, 0);
}

// The library would unpack them, to any length.
TEST_F(HttpServerTest, PackedBodiesAreNotUnpacked) {
  Start();
  const std::string packed = Unhex(
      "1f8b0800000000000203edc1410d00300804302bcbc9989bb95842f08e0d1e6d2b2ff7e403000000"
      "00000000000000c002e9019611c906e92e0000");
  for (const char* encoding : {"gzip", "deflate", "br", "identity"}) {
    const std::string answer =
        Ask(PostText("/", packed, fmt::format("Content-Encoding: {}\r\n", encoding)));
    EXPECT_EQ(StatusIn(answer), 415) << encoding;
  }
  EXPECT_EQ(calls_, 0);
}

// The library takes forms apart by expressions, line by line.
TEST_F(HttpServerTest, FormsAreNotTakenApart) {
  Start();
  const std::string form =
      "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n";
  for (const char* type :
       {"Content-Type: multipart/form-data; boundary=x\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: text/plain\r\n",
        "Content-Type: application/jsonx\r\n", "",
        "Content-Type: application/json\r\nContent-Type: multipart/form-data; boundary=x\r\n"}) {
    const std::string answer =
        Ask(fmt::format("POST / HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}",
                        type, form.size(), form));
    EXPECT_EQ(StatusIn(answer), 415) << type;
  }
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(StatusIn(Ask("POST / HTTP/1.1\r\nContent-Type: Application/JSON ; charset=utf-8\r\n"
                         "Content-Length: 2\r\n\r\n{}")),
            200);
}

// What follows a body that was not read is no request of its own.
TEST_F(HttpServerTest, ARequestInABodyIsNone) {
  Start();
  HttpClient client(server_->port());
  const std::string hidden = GetText("/hidden");
  client.Send(fmt::format("GET /seen HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                          hidden.size(), hidden));
  const std::string answers = client.ReceiveAll();
  EXPECT_FALSE(client.timed_out());
  EXPECT_EQ(StatusIn(answers), 200);
  EXPECT_THAT(answers, Not(HasSubstr("hidden")));
  EXPECT_EQ(calls_, 1);
  ExpectAlive();
}

TEST_F(HttpServerTest, PartsOfAnAnswerAreNotMultiplied) {
  Start();
  std::string ranges = "Range: bytes=0-";
  for (int i = 0; i < 60; ++i) ranges += ",0-";
  const std::string answer = Ask(GetText("/once", ranges + "\r\n"));
  EXPECT_EQ(StatusIn(answer), 200);
  EXPECT_EQ(BodyIn(answer), "GET /once ''");
  for (int i = 0; i < 2000; ++i) ranges += ",0-";
  EXPECT_EQ(StatusIn(Ask(GetText("/once", ranges + "\r\n"))), 400);
  EXPECT_EQ(calls_, 1);
  ExpectAlive();
}

// The library goes as deep as a Range is long, before anybody else sees it.
TEST_F(HttpServerTest, LinesAreBounded) {
  Start();
  for (const char* name : {"Range", "rAnGe"}) {
    const std::string start = fmt::format("{}: bytes=0-", name);
    EXPECT_EQ(StatusIn(Ask(GetText("/", start + std::string(200, '0') + "\r\n"))), 200);
    EXPECT_EQ(StatusIn(Ask(GetText("/", start + std::string(300, '0') + "\r\n"))), 400);
    // Behind an end of a line that is none.
    EXPECT_EQ(StatusIn(Ask(GetText("/", "\n" + start + std::string(300, '0') + "\r\n"))), 400);
  }
  EXPECT_EQ(StatusIn(Ask(GetText("/", "Cookie: " + std::string(4000, 'x') + "\r\n"))), 200);
  EXPECT_EQ(StatusIn(Ask(GetText("/", "Cookie: " + std::string(4100, 'x') + "\r\n"))), 400);
  ExpectAlive();
}

TEST_F(HttpServerTest, EndsARequestThatTakesTooLong) {
  Start({.request_time = 100ms, .idle_time = 100ms});
  HttpClient silent(server_->port());
  EXPECT_EQ(silent.ReceiveAll(), "");
  EXPECT_FALSE(silent.timed_out());
  HttpClient slow(server_->port());
  // A byte at a time, each of them in time.
  const std::string request = "GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'x');
  size_t sent = 0;
  while (sent < request.size() && slow.Send(request.substr(sent, 1))) {
    ++sent;
    pollfd one{.fd = slow.fd(), .events = POLLIN, .revents = 0};
    if (poll(&one, 1, 5) > 0) break;
  }
  EXPECT_LT(sent, 1000u);
  slow.ReceiveAll();
  EXPECT_FALSE(slow.timed_out());
  EXPECT_EQ(calls_, 0);
  ExpectAlive();
}

TEST_F(HttpServerTest, WhoTakesAnAnswerTooSlowlyIsLeft) {
  Start({.connections = 1, .write_time = 500ms, .write_rate = 1 << 30});
  HttpClient slow(server_->port());
  slow.Send(GetText("/much"));
  slow.Receive();
  // It takes a piece at a time, each of them in time, and somebody else waits for its place.
  HttpClient other(server_->port());
  other.Send(GetText("/other"));
  pollfd one{.fd = other.fd(), .events = POLLIN, .revents = 0};
  std::vector<char> piece(64 << 10);
  size_t taken = 0;
  for (;;) {
    if (poll(&one, 1, 2) > 0) one.fd = -1;  // the place is free: it is told the rest that was sent
    const ssize_t got = recv(slow.fd(), piece.data(), piece.size(), 0);
    if (got <= 0) break;
    taken += static_cast<size_t>(got);
  }
  EXPECT_LT(taken, size_t{50} << 20);
  EXPECT_THAT(other.ReceiveAnswer(), HasSubstr("GET /other"));
}

TEST_F(HttpServerTest, WhoOnlyHoldsAConnectionMakesRoom) {
  Start({.connections = 2});
  HttpClient first(server_->port());
  first.Send(GetText("/first"));
  first.ReceiveAnswer();
  HttpClient second(server_->port());
  second.Send(GetText("/second"));
  second.ReceiveAnswer();
  for (int i = 0; i < 5; ++i) ExpectAlive();
  EXPECT_EQ(first.ReceiveAll(), "");
  EXPECT_FALSE(first.timed_out());
}

TEST_F(HttpServerTest, APeerHasOnlySoManyConnections) {
  Start({.connections = 8, .connections_per_peer = 2});
  std::vector<std::unique_ptr<HttpClient>> busy;
  for (int i = 0; i < 2; ++i) {
    busy.push_back(std::make_unique<HttpClient>(server_->port()));
    busy.back()->Send(GetText("/stream"));
    busy.back()->ReceiveUntil("piece");
  }
  HttpClient one_more(server_->port());
  one_more.Send(GetText("/one-more"));
  EXPECT_EQ(one_more.ReceiveAll(), "");
  EXPECT_FALSE(one_more.timed_out());
  HttpClient other(server_->port(), "127.0.0.2");
  other.Send(GetText("/other"));
  EXPECT_THAT(other.ReceiveAnswer(), HasSubstr("GET /other"));
  // Of its own, idle ones make room.
  HttpClient idle(server_->port(), "127.0.0.2");
  idle.Send(GetText("/idle"));
  idle.ReceiveAnswer();
  HttpClient third(server_->port(), "127.0.0.2");
  third.Send(GetText("/third"));
  EXPECT_THAT(third.ReceiveAnswer(), HasSubstr("GET /third"));
  EXPECT_EQ(other.ReceiveAll(), "");
}

TEST_F(HttpServerTest, ALongAnswerThatFailsEnds) {
  Start();
  HttpClient client(server_->port());
  client.Send(GetText("/fails"));
  client.ReceiveAll();
  EXPECT_FALSE(client.timed_out());
  ExpectAlive();
}

TEST(HttpServerWithoutThreads, GoesOnWhenThereAreSomeAgain) {
  SetLogLevel(LogLevel::kError);
  ScarceRuntime runtime;
  const auto handler = [](const HttpRequest&) { return HttpResponse{.body = "{}"}; };
  const auto server = HttpServer::Start(runtime, {}, handler);
  ASSERT_OK(server);
  runtime.has_threads = false;
  HttpClient client((*server)->port());
  client.Send(GetText("/"));
  EXPECT_EQ(client.ReceiveAll(), "");
  EXPECT_FALSE(client.timed_out());
  EXPECT_FAILS(HttpServer::Start(runtime, {}, handler), EAGAIN);
  runtime.has_threads = true;
  EXPECT_EQ(StatusIn(AskOnce((*server)->port(), GetText("/"))), 200);
}

TEST_F(HttpServerTest, WhoIsOneTooManyWaits) {
  Start({.connections = 2});
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  first.Send(GetText("/stream"));
  second.Send(GetText("/stream"));
  EXPECT_THAT(first.ReceiveUntil("piece"), HasSubstr("piece"));
  EXPECT_THAT(second.ReceiveUntil("piece"), HasSubstr("piece"));
  HttpClient third(server_->port());
  third.Send(GetText("/third"));
  // The others are served meanwhile.
  const std::string_view pieces = "piece";
  for (int i = 0; i < 50; ++i) {
    ASSERT_THAT(first.ReceiveNext(pieces), HasSubstr(pieces));
    ASSERT_THAT(second.ReceiveNext(pieces), HasSubstr(pieces));
  }
  pollfd one{.fd = third.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&one, 1, 0), 0);
  EXPECT_EQ(calls_, 2);
  shutdown(first.fd(), SHUT_RDWR);
  EXPECT_THAT(third.ReceiveAnswer(), HasSubstr("GET /third"));
}

TEST_F(HttpServerTest, StopsWithClientsOfAllKinds) {
  Start();
  HttpClient idle(server_->port());
  HttpClient halfway(server_->port());
  halfway.Send("GET / HT");
  HttpClient stream(server_->port());
  stream.Send(GetText("/stream"));
  stream.ReceiveUntil("piece");
  HttpClient deaf(server_->port());  // takes nothing
  deaf.Send(GetText("/stream"));
  const Time began = runtime_.Now();
  server_.reset();
  EXPECT_LT(runtime_.Now() - began, 5s);
}

// One step after the other, with a client that waits.
std::string AskByTls(Runtime& runtime, uint16_t port, std::string_view request) {
  HttpClient client(port);
  const auto tls = TlsClient::Create("");
  EXPECT_OK(tls);
  const auto stream = (*tls)->Connect(client.fd(), "localhost");
  EXPECT_OK(stream);
  const Time until = runtime.Now() + 10s;
  while (runtime.Now() < until) {
    const auto step = (*stream)->Handshake();
    if (!step.has_value()) return std::string(step.error().message());
    if (*step == TlsStream::Step::kDone) break;
  }
  const iovec out{const_cast<char*>(request.data()), request.size()};
  EXPECT_EQ((*stream)->Write(&out, 1), static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[4096];
  const iovec in{bytes, sizeof(bytes)};
  for (;;) {
    const ssize_t got = (*stream)->Read(&in, 1);
    if (got < 0 && errno == EAGAIN && runtime.Now() < until) continue;  // it was no data
    if (got <= 0) return answer;
    answer.append(bytes, static_cast<size_t>(got));
  }
}

TEST_F(HttpServerTest, SpeaksTlsAndTakesANewCertificate) {
  TemporaryDirectory directory;
  const std::string certificate = directory / "cert.pem";
  const std::string key = directory / "key.pem";
  MakeCertificate(certificate, key);
  auto server = HttpServer::Start(
      runtime_, {.certificate = certificate, .key = key}, [](const HttpRequest& request) {
        return HttpResponse{.body = request.is_encrypted ? "encrypted" : "plain"};
      });
  ASSERT_OK(server);
  server_ = *std::move(server);
  running_ = server_.get();
  const std::string request = GetText("/", "Connection: close\r\n");
  EXPECT_THAT(AskByTls(runtime_, server_->port(), request), HasSubstr("encrypted"));
  // Who does not speak it hears nothing of what is served.
  EXPECT_THAT(Ask(GetText("/")), Not(HasSubstr("HTTP/1.1 200")));
  MakeCertificate(certificate, key);
  EXPECT_OK(server_->ReloadCertificate());
  EXPECT_THAT(AskByTls(runtime_, server_->port(), request), HasSubstr("encrypted"));
  std::ofstream(certificate) << "none";
  EXPECT_FALSE(server_->ReloadCertificate().ok());
  EXPECT_THAT(AskByTls(runtime_, server_->port(), request), HasSubstr("encrypted"));
}

TEST_F(HttpServerTest, SaysWhyItCannotListen) {
  Start();
  const auto nothing = [](const HttpRequest&) { return HttpResponse(); };
  EXPECT_FAILS(HttpServer::Start(runtime_, {.port = server_->port()}, nothing), EADDRINUSE);
  EXPECT_FAILS(HttpServer::Start(runtime_, {.address = "example"}, nothing), EINVAL);
  EXPECT_FALSE(HttpServer::Start(runtime_, {.certificate = "/none", .key = "/none"}, nothing));
}

// Bytes that a request could have become on the way, from a fixed seed.
TEST_F(HttpServerTest, OutlivesDamagedRequests) {
  Start({.request_time = 50ms, .idle_time = 50ms});
  std::mt19937_64 random(1);
  const std::vector<std::string> whole{
      GetText("/a/b%41?x=%2F&y", "Range: bytes=1-2\r\nConnection: keep-alive\r\n"),
      PostText("/work", "{\"kind\": \"check\"}", "Authorization: Bearer x\r\n"),
      "POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: "
      "60\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n"};
  for (int round = 0; round < 400; ++round) {
    const std::string request = Damaged(whole[random() % whole.size()], random);
    HttpClient client(server_->port());
    client.Send(request);
    shutdown(client.fd(), SHUT_WR);
    client.ReceiveAll();
    ASSERT_FALSE(client.timed_out()) << request;
  }
  ExpectAlive();
}

}  // namespace
}  // namespace pinstripe
