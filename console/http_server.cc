#include "console/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/try.h"
#include "console/connection.h"
#include "console/peer_network.h"
#include "kinetic/tls.h"

namespace pinstripe {
namespace {

// Of a header's value, which may have parameters.
bool IsJson(std::string_view type) {
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return LowerCase(type) == "application/json";
}

// The address of the other end, or of this one.
std::pair<std::string, int> AddressOf(int socket, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (name(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {"", 0};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
    return {text.data(), ntohs(six.sin6_port)};
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  return {text.data(), ntohs(four.sin_port)};
}

// The lines of a request's head as the library reads them, with a bound for each but the first. The
// library takes some apart by expressions whose depth is the length of the line.
class HeadLines {
 public:
  explicit HeadLines(const HttpLimits& limits) : limits_(limits) {}

  void BeginRequest() { *this = HeadLines(limits_); }

  // False: this byte is one too many for its line.
  bool Take(char c) {
    if (has_ended_) return true;
    if (start_.size() < kRange.size()) {
      start_ += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    ++bytes_;
    if (c != '\n') {
      return is_first_ || bytes_ <= (start_ == kRange ? limits_.range_bytes : limits_.line_bytes);
    }
    has_ended_ = start_ == "\r\n";
    is_first_ = false;
    start_.clear();
    bytes_ = 0;
    return true;
  }

 private:
  static constexpr std::string_view kRange = "range:";

  HttpLimits limits_;
  bool is_first_ = true;
  bool has_ended_ = false;
  std::string start_;  // of this line
  size_t bytes_ = 0;
};

// What the library reads from and writes to.
class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(Connection& connection, const HttpLimits& limits)
      : connection_(connection), limits_(limits), head_(limits) {}

  void BeginRequest() {
    connection_.BeginRequest(limits_.request_bytes, limits_.request_time);
    head_.BeginRequest();
  }

  bool is_readable() const override { return true; }
  // Asked between the pieces of a long answer, which nobody who has ended waits for.
  bool is_writable() const override { return !has_failed_ && !connection_.HasClientEnded(); }
  ssize_t read(char* place, size_t size) override {
    const ssize_t got = connection_.Read(place, size);
    for (ssize_t i = 0; i < got; ++i) {
      if (!head_.Take(place[i])) return -1;
    }
    return got;
  }
  ssize_t write(const char* bytes, size_t size) override {
    const std::chrono::seconds by_size(size / std::max<size_t>(limits_.write_rate, 1));
    const Duration patience = limits_.write_time + by_size;
    if (has_failed_ || !connection_.Write({bytes, size}, patience)) {
      has_failed_ = true;
      return -1;
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& address, int& port) const override {
    std::tie(address, port) = AddressOf(connection_.socket(), getpeername);
  }
  void get_local_ip_and_port(std::string& address, int& port) const override {
    std::tie(address, port) = AddressOf(connection_.socket(), getsockname);
  }
  socket_t socket() const override { return connection_.socket(); }

  bool has_failed() const { return has_failed_; }

 private:
  Connection& connection_;
  const HttpLimits limits_;
  HeadLines head_;
  bool has_failed_ = false;
};

// The library's parser and writer, without its sockets and threads.
class Protocol final : public httplib::Server {
 public:
  using httplib::Server::process_request;
  // Long answers end when the library believes that its socket is closed.
  void GoOn() { svr_sock_ = 0; }
  void End() { svr_sock_ = INVALID_SOCKET; }
};

HttpRequest RequestOf(const httplib::Request& request, bool is_encrypted) {
  HttpRequest ours{.method = request.method,
                   .path = request.path,
                   .body = request.body,
                   .peer = request.remote_addr,
                   .is_encrypted = is_encrypted};
  for (const auto& [name, value] : request.params) ours.query.emplace(name, value);
  for (const auto& [name, value] : request.headers) ours.header.emplace(LowerCase(name), value);
  return ours;
}

void Answer(HttpResponse ours, httplib::Response& response) {
  response.status = ours.status;
  for (const auto& [name, value] : ours.headers) response.set_header(name, value);
  if (!ours.stream) {
    response.set_content(ours.body, ours.type);
    return;
  }
  response.set_chunked_content_provider(
      ours.type, [stream = std::move(ours.stream)](size_t, httplib::DataSink& sink) {
        // The library catches nothing here. What was sent cannot be taken back, so it just ends.
        try {
          const std::optional<std::string> piece = stream();
          if (!sink.is_writable()) return false;
          if (piece) return piece->empty() || sink.write(piece->data(), piece->size());
          sink.done();
          return true;
        } catch (const std::exception& failed) {
          Log(LogLevel::kError, "a long answer has failed", {{"why", failed.what()}});
          return false;
        }
      });
}

Result<FileDescriptor> Listen(const HttpOptions& options) {
  const std::string where = fmt::format("{} port {}", options.address, options.port);
  sockaddr_in6 six{};
  sockaddr_in four{};
  const bool is_six = inet_pton(AF_INET6, options.address.c_str(), &six.sin6_addr) == 1;
  if (!is_six && inet_pton(AF_INET, options.address.c_str(), &four.sin_addr) != 1) {
    return Fail(EINVAL, "{} is not the number of an address", options.address);
  }
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(options.port);
  four.sin_family = AF_INET;
  four.sin_port = htons(options.port);
  FileDescriptor socket(
      ::socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* address =
      is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const socklen_t size = is_six ? sizeof(six) : sizeof(four);
  if (socket.get() < 0 || bind(socket.get(), address, size) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    const int code = errno;
    return Fail(code, "cannot listen on {}: {}", where, ErrnoText(code));
  }
  return socket;
}

}  // namespace

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string_view HttpRequest::Header(const std::string& name) const {
  const auto found = header.find(name);
  return found == header.end() ? std::string_view() : std::string_view(found->second);
}

std::string_view HttpRequest::Query(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? std::string_view() : std::string_view(found->second);
}

// --- State: what the threads share ---

class HttpServer::State {
 public:
  State(Runtime& runtime, HttpOptions options, FileDescriptor socket,
        std::shared_ptr<TlsServer> tls, HttpHandler handler, HttpCheck check)
      : runtime_(runtime),
        options_(std::move(options)),
        socket_(std::move(socket)),
        tls_(std::move(tls)),
        handler_(std::move(handler)),
        check_(std::move(check)),
        changed_(runtime.NewSignal()) {
    protocol_.GoOn();
    protocol_.set_payload_max_length(options_.limits.request_bytes);
    // Called when an answer was written, also one that the library made.
    protocol_.set_logger([this](const httplib::Request&, const httplib::Response& response) {
      const auto kind = static_cast<size_t>(response.status) / 100;
      if (kind < answers_.size()) answers_[kind].fetch_add(1, std::memory_order_relaxed);
    });
    protocol_.set_pre_routing_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          return BeforeTheBody(request, response);
        });
    protocol_.Post("[^]*", [this](const httplib::Request& request, httplib::Response& response) {
      Answer(handler_(RequestOf(request, tls_ != nullptr)), response);
    });
  }

  // Until Stop(): takes what comes, as long as there is a thread for it.
  void Accept() {
    while (!IsStopping()) {
      pollfd one{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 1000) <= 0) continue;
      if (!MakeRoom()) {
        changed_->WaitUntil(runtime_.Now() + std::chrono::seconds(1));
        continue;
      }
      const int accepted = accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (accepted < 0) {
        const int code = errno;
        if (code == EAGAIN || code == EINTR || code == ECONNABORTED || IsStopping()) continue;
        Log(LogLevel::kWarn, "a connection cannot be accepted", {{"why", ErrnoText(code)}});
        changed_->WaitUntil(runtime_.Now() + std::chrono::milliseconds(100));
        continue;
      }
      const int on = 1;
      setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      Begin(accepted);
    }
  }

  void Stop() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      protocol_.End();
      shutdown(socket_.get(), SHUT_RDWR);
      for (const auto& [connection, client] : clients_) shutdown(connection, SHUT_RDWR);
    }
    changed_->Set();
    const MutexLock lock(mutex_);
    while (threads_ > 0) ended_.Wait(lock);
  }

  bool IsStopping() {
    const MutexLock lock(mutex_);
    return stopping_;
  }

  // False: it is stopping already, so that the thread is not to begin.
  bool CountThread() {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    ++threads_;
    return true;
  }
  void UncountThread() {
    const MutexLock lock(mutex_);
    --threads_;
    ended_.WakeAll();
  }

  uint16_t port() const {
    return static_cast<uint16_t>(AddressOf(socket_.get(), getsockname).second);
  }
  Status ReloadCertificate() { return tls_ == nullptr ? Status() : tls_->Reload(); }
  AnswerCounts CountAnswers() const {
    AnswerCounts counts{};
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = answers_[i].load();
    return counts;
  }

 private:
  struct Client {
    std::string network;
    std::optional<Time> idle_since;  // it has no request under way
    bool is_ending = false;          // it was closed for another one
  };

  // False: everybody is busy, or the place of whoever was closed is not free yet.
  bool MakeRoom() {
    const MutexLock lock(mutex_);
    if (clients_.size() < options_.limits.connections) return true;
    const auto is_ending = [](const auto& client) { return client.second.is_ending; };
    if (std::ranges::none_of(clients_, is_ending)) EndLongestIdleLocked("");
    return false;
  }

  // Of a network, or, if that is empty, of all. False: none is idle.
  bool EndLongestIdleLocked(const std::string& network) REQUIRES(mutex_) {
    auto longest = clients_.end();
    for (auto one = clients_.begin(); one != clients_.end(); ++one) {
      const Client& client = one->second;
      if (client.is_ending || !client.idle_since) continue;
      if (!network.empty() && client.network != network) continue;
      if (longest == clients_.end() || *client.idle_since < *longest->second.idle_since) {
        longest = one;
      }
    }
    if (longest == clients_.end()) return false;
    longest->second.is_ending = true;
    shutdown(longest->first, SHUT_RDWR);
    return true;
  }

  // False: that peer has too many already, or all ends.
  bool Admit(int socket) {
    std::string network = NetworkOf(AddressOf(socket, getpeername).first);
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    const auto is_of_it = [&](const auto& client) {
      return client.second.network == network && !client.second.is_ending;
    };
    const auto of_it = static_cast<size_t>(std::ranges::count_if(clients_, is_of_it));
    if (of_it >= options_.limits.connections_per_peer && !EndLongestIdleLocked(network)) {
      return false;
    }
    clients_[socket] = {.network = std::move(network), .idle_since = runtime_.Now()};
    ++threads_;
    return true;
  }

  void Forget(int socket) {
    {
      const MutexLock lock(mutex_);
      clients_.erase(socket);
      close(socket);
    }
    changed_->Set();
    UncountThread();
  }

  void SetIdle(int socket, bool is_idle) {
    const MutexLock lock(mutex_);
    std::optional<Time>& since = clients_[socket].idle_since;
    since = is_idle ? std::optional<Time>(runtime_.Now()) : std::nullopt;
    if (is_idle) changed_->Set();
  }

  void Begin(int socket) {
    if (!Admit(socket)) {
      close(socket);
      return;
    }
    try {
      runtime_.Spawn("console client", [this, socket] {
        try {
          Serve(socket);
        } catch (const std::exception& failed) {
          Log(LogLevel::kError, "a client cannot be served", {{"why", failed.what()}});
        }
        Forget(socket);
      });
    } catch (const std::system_error& failed) {
      Log(LogLevel::kError, "there is no thread for a client", {{"why", failed.what()}});
      Forget(socket);
    }
  }

  void Serve(int socket) {
    Connection connection(runtime_, socket);
    if (tls_ != nullptr) {
      const Status encrypted = connection.Encrypt(*tls_, options_.limits.request_time);
      if (!encrypted.ok()) {
        Log(LogLevel::kDebug, "a client was not let in", {{"why", encrypted}});
        return;
      }
    }
    BoundedStream stream(connection, options_.limits);
    while (!IsStopping() && connection.WaitForRequest(options_.limits.idle_time)) {
      SetIdle(socket, false);
      stream.BeginRequest();
      bool is_last = false;
      // Until it was understood to its headers' end: what follows may be a part of it.
      bool has_more = true;
      const bool answered = protocol_.process_request(
          stream, false, is_last,
          [&has_more](httplib::Request& request) { has_more = Prepare(request); });
      if (!answered || is_last || has_more || stream.has_failed()) break;
      SetIdle(socket, true);
    }
    connection.SayGoodbye();
    shutdown(socket, SHUT_RDWR);
  }

  // Takes away what nobody needs and what would have the library work for a client: parts of an
  // answer, in any order and number, and packed ones. Whether the connection is to end after it.
  static bool Prepare(httplib::Request& request) {
    request.ranges.clear();
    for (const char* name : {"Range", "If-Range", "Accept-Encoding", "Expect"}) {
      request.headers.erase(name);
    }
    const bool has_body = request.method == "POST" || request.has_header("Content-Length") ||
                          request.has_header("Transfer-Encoding");
    if (has_body) {
      request.headers.erase("Connection");
      request.headers.emplace("Connection", "close");
    }
    return has_body;
  }

  httplib::Server::HandlerResponse BeforeTheBody(const httplib::Request& request,
                                                 httplib::Response& response) {
    using Handled = httplib::Server::HandlerResponse;
    const auto refuse = [&](int status, const char* why) {
      response.status = status;
      response.set_content(fmt::format("{{\"error\": \"{}\"}}\n", why), "application/json");
      return Handled::Handled;
    };
    if (request.target.size() > options_.limits.path_bytes) return refuse(414, "the path is long");
    if (request.method == "GET" || request.method == "HEAD") {
      Answer(handler_(RequestOf(request, tls_ != nullptr)), response);
      return Handled::Handled;
    }
    if (request.method != "POST") {
      response.set_header("Allow", "GET, HEAD, POST");
      return refuse(405, "only GET, HEAD and POST are known");
    }
    // The library finds a function for a path by an expression, whose depth is the path's length.
    if (request.path.size() > 256) return refuse(404, "there is nothing of that name");
    if (!request.has_header("Content-Length")) return refuse(411, "say how long the body is");
    if (check_ != nullptr) {
      if (std::optional<HttpResponse> refusal = check_(RequestOf(request, tls_ != nullptr))) {
        Answer(*std::move(refusal), response);
        return Handled::Handled;
      }
    }
    if (request.has_header("Content-Encoding")) return refuse(415, "a body has to be unpacked");
    if (request.get_header_value_count("Content-Type") != 1 ||
        !IsJson(request.get_header_value("Content-Type"))) {
      return refuse(415, "a body has to be application/json");
    }
    return Handled::Unhandled;
  }

  Runtime& runtime_;
  const HttpOptions options_;
  const FileDescriptor socket_;
  const std::shared_ptr<TlsServer> tls_;
  const HttpHandler handler_;
  const HttpCheck check_;
  std::array<std::atomic<uint64_t>, std::tuple_size_v<AnswerCounts>> answers_{};
  Protocol protocol_;
  const std::shared_ptr<Signal> changed_;  // for the thread that accepts
  Mutex mutex_;
  Condition ended_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  size_t threads_ GUARDED_BY(mutex_) = 0;
  std::map<int, Client> clients_ GUARDED_BY(mutex_);  // by their sockets
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Runtime& runtime, const HttpOptions& options,
                                                      HttpHandler handler, HttpCheck check) {
  std::shared_ptr<TlsServer> tls;
  if (!options.certificate.empty()) {
    tls = TRY(TlsServer::Load({.certificate = options.certificate, .key = options.key}));
  }
  FileDescriptor socket = TRY(Listen(options));
  auto state = std::make_shared<State>(runtime, options, std::move(socket), std::move(tls),
                                       std::move(handler), std::move(check));
  state->CountThread();
  try {
    runtime.Spawn("console accept", [state] {
      state->Accept();
      state->UncountThread();
    });
  } catch (const std::system_error& failed) {
    return Fail(EAGAIN, "there is no thread to serve by: {}", failed.what());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { state_->Stop(); }

uint16_t HttpServer::port() const { return state_->port(); }

HttpServer::AnswerCounts HttpServer::CountAnswers() const { return state_->CountAnswers(); }

Status HttpServer::ReloadCertificate() { return state_->ReloadCertificate(); }

bool HttpServer::IsStopping() const { return state_->IsStopping(); }

}  // namespace pinstripe
