// HttpServer: hands HTTP requests to one function, and bounds what a client may cost.
//
// Debian's cpp-httplib parses requests and writes answers. It bounds neither how many headers a
// request has, nor how long a client takes, nor how many bytes a body in chunks has. So connections
// are ours: each has a thread, and all that the library reads comes through a stream that counts
// bytes and time. The library unpacks bodies and takes forms apart, so it only gets to read a body
// that is plain JSON, of a request that was let in already.
//
// A client that waits for a free thread is not accepted until then. A connection that waits for
// its next request is closed for it, the one first that has waited longest.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

struct HttpRequest {
  std::string method;                         // "GET", "HEAD" or "POST"
  std::string path;                           // decoded, without the query
  std::map<std::string, std::string> query;   // decoded; the first of each name
  std::map<std::string, std::string> header;  // by name in lower case; the first of each
  std::string body;
  std::string peer;           // the client's address
  bool is_encrypted = false;  // it came by TLS

  std::string_view Header(const std::string& name) const;  // lower case; empty: there is none
  std::string_view Query(const std::string& name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // Instead of the body: asked for one piece after the other until it answers null, or the client
  // has gone. An empty one is for looking whether it has. Called on the connection's thread, and
  // may wait; Stop() waits for it.
  std::function<std::optional<std::string>()> stream;
};

// Called by many threads at once.
using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;
// So, too, before the body of a POST is read: an answer refuses it.
using HttpCheck = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

struct HttpLimits {
  size_t connections = 64;
  size_t connections_per_peer = 32;  // of an address, or of a network of IPv6
  size_t request_bytes = 16 << 10;   // of the request's line, headers and body together
  size_t path_bytes = 8 << 10;       // with the query, decoded
  size_t line_bytes = 4 << 10;       // of one header
  size_t range_bytes = 256;          // of a Range, which the library takes apart before we see it
  Duration request_time = std::chrono::seconds(10);  // from its first byte to its last
  Duration idle_time = std::chrono::seconds(15);     // between requests
  // A client takes an answer, or a piece of a long one, within `write_time`, and has a second more
  // for each `write_rate` bytes of it.
  Duration write_time = std::chrono::seconds(20);
  size_t write_rate = 16 << 10;
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // a number, no name
  uint16_t port = 0;                  // 0: a free one
  // Files in PEM; empty: without TLS.
  std::string certificate;
  std::string key;
  HttpLimits limits;
};

class HttpServer {
 public:
  // EADDRINUSE and others: it cannot listen there; EINVAL: the certificate or its key is no good;
  // EAGAIN: there is no thread for it. `runtime` outlives the server, which is stopped by its end.
  static Result<std::unique_ptr<HttpServer>> Start(Runtime& runtime, const HttpOptions& options,
                                                   HttpHandler handler, HttpCheck check = nullptr);
  ~HttpServer();

  uint16_t port() const;

  // Requests that were answered so far, by the first digit of the answer's code. A long answer
  // counts when it has ended.
  using AnswerCounts = std::array<uint64_t, 6>;
  AnswerCounts CountAnswers() const;

  // Reads certificate and key anew, for connections to come. Success without TLS.
  Status ReloadCertificate();

  // Whoever has a long answer under way asks this.
  bool IsStopping() const;

 private:
  class State;
  explicit HttpServer(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;
};

// Of letters of ASCII.
std::string LowerCase(std::string_view text);

}  // namespace pinstripe
