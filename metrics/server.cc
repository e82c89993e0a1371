#include "metrics/server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <string_view>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kTextType = "text/plain; charset=utf-8";

// The library starts threads, which are to leave signals to those of the program that wait for
// them, and decides on signals of the whole process, which is not its to decide.
class SignalsAsTheyWere {
 public:
  SignalsAsTheyWere() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask_);
    for (size_t i = 0; i < kChanged.size(); ++i) sigaction(kChanged[i], nullptr, &actions_[i]);
  }
  ~SignalsAsTheyWere() {
    for (size_t i = 0; i < kChanged.size(); ++i) sigaction(kChanged[i], &actions_[i], nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

 private:
  static constexpr std::array<int, 2> kChanged = {SIGPIPE, SIGCHLD};
  sigset_t mask_{};
  std::array<struct sigaction, 2> actions_{};
};

void Answer(mg_connection* connection, int code, std::string_view reason, std::string_view type,
            std::string_view more, std::string_view body, bool with_body) {
  std::string answer = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
      "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n{}Connection: close\r\n\r\n",
      code, reason, type, body.size(), more);
  if (with_body) answer += body;
  mg_write(connection, answer.data(), answer.size());
}

}  // namespace

class MetricsServer::Http {
 public:
  explicit Http(MakePage make_page) : make_page_(std::move(make_page)) {}
  ~Http() {
    if (context_ != nullptr) Stop();
  }

  Status Listen(const MetricsAddress& address) {
    host_ = address.host;
    const std::string ports = address.Text();
    const std::string threads = fmt::format("{}", kThreads);
    const std::string patience = fmt::format("{}", kMostMilliseconds);
    std::array<const char*, 19> options = {"listening_ports",
                                           ports.c_str(),
                                           "num_threads",
                                           threads.c_str(),
                                           "request_timeout_ms",
                                           patience.c_str(),
                                           "linger_timeout_ms",
                                           "0",
                                           "max_request_size",
                                           "4096",
                                           "enable_keep_alive",
                                           "no",
                                           "enable_directory_listing",
                                           "no",
                                           "connection_queue",
                                           "8",
                                           "listen_backlog",
                                           "16",
                                           nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = OnRequest;
    callbacks.http_error = OnError;
    callbacks.log_message = OnMessage;
    const SignalsAsTheyWere as_they_were;
    context_ = mg_start(&callbacks, this, options.data());
    starting_ = false;
    if (context_ != nullptr) return {};
    return Fail(EADDRNOTAVAIL, "metrics cannot be served at {}: {}; choose another address or port",
                ports, complaints_.empty() ? "the server does not start" : complaints_);
  }

  Result<uint16_t> Port() const {
    mg_server_port port{};
    if (mg_get_server_ports(context_, 1, &port) < 1) return Fail(EIO, "no port is known");
    return static_cast<uint16_t>(port.port);
  }

 private:
  // The library looks whether it is to end when somebody comes, or else after two seconds, for
  // which nobody's program is to stand still.
  void Stop() {
    const Result<uint16_t> port = Port();
    std::promise<void> stopped;
    std::future<void> end = stopped.get_future();
    std::thread stopping([this, &stopped] {
      mg_stop(context_);
      stopped.set_value();
    });
    const auto has_ended = [&end](auto patience) {
      return end.wait_for(patience) == std::future_status::ready;
    };
    while (port.has_value() && !has_ended(std::chrono::milliseconds(2))) Knock(*port);
    stopping.join();
  }

  // Without waiting for anybody.
  void Knock(uint16_t port) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host_.c_str(), &address.sin_addr);
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // To "any address" the kernel connects on this machine. What becomes of it does not matter.
    (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  // Answers all there is to answer, so that the library never looks for a file.
  static int OnRequest(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const auto& http = *static_cast<const Http*>(request.user_data);
    const std::string_view method = request.request_method;
    const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
    const bool has_body = method != "HEAD";
    if (method != "GET" && method != "HEAD") {
      Answer(connection, 405, "Method Not Allowed", kTextType, "Allow: GET, HEAD\r\n",
             "metrics can only be read\n", has_body);
      return 405;
    }
    if (path != "/metrics") {
      Answer(connection, 404, "Not Found", kTextType, "", "there is nothing but /metrics\n",
             has_body);
      return 404;
    }
    // The library is C, which no exception comes through.
    try {
      Answer(connection, 200, "OK", kMetricsType, "", http.make_page_(), has_body);
      return 200;
    } catch (const std::exception& failed) {
      Log(LogLevel::kError, "metrics cannot be told", {{"why", failed.what()}});
    }
    Answer(connection, 500, "Internal Server Error", kTextType, "",
           "the metrics cannot be told; the log says why\n", has_body);
    return 500;
  }

  // To what is no request. The library's own page asks gmtime(), which is not for several threads.
  static int OnError(mg_connection* connection, int code, const char*) {
    Answer(connection, code, "Refused", kTextType, "", "this cannot be answered\n", true);
    return 0;
  }

  // What it says while it starts, on the thread that starts it, is the reason. Later it only
  // complains of clients.
  static int OnMessage(const mg_connection* connection, const char* message) {
    auto& http = *static_cast<Http*>(mg_get_user_data(mg_get_context(connection)));
    if (http.starting_) {
      http.complaints_ += fmt::format("{}{}", http.complaints_.empty() ? "" : "; ", message);
    }
    return 1;
  }

  const MakePage make_page_;
  std::string host_;
  std::atomic<bool> starting_ = true;
  std::string complaints_;
  mg_context* context_ = nullptr;
};

MetricsServer::MetricsServer(std::unique_ptr<Http> http, uint16_t port)
    : http_(std::move(http)), port_(port) {}

MetricsServer::~MetricsServer() = default;

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(const MetricsAddress& address,
                                                            MakePage make_page) {
  auto http = std::make_unique<Http>(std::move(make_page));
  TRY(http->Listen(address));
  const uint16_t port = TRY(http->Port());
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(http), port));
}

std::unique_ptr<MetricsServer> MetricsServer::StartOrWarn(const std::string& address,
                                                          MakePage make_page) {
  if (address.empty()) return nullptr;
  const auto start = [&]() -> Result<std::unique_ptr<MetricsServer>> {
    return Start(TRY(ParseMetricsAddress(address)), std::move(make_page));
  };
  Result<std::unique_ptr<MetricsServer>> server = start();
  if (server.has_value()) {
    Log(LogLevel::kInfo, "metrics are served", {{"at", address}, {"port", (*server)->port()}});
    return *std::move(server);
  }
  Log(LogLevel::kWarn, "metrics are not served", {{"why", server.error()}});
  return nullptr;
}

}  // namespace pinstripe
