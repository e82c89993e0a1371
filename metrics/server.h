// MetricsServer: a port at which Prometheus finds a page of metrics (GET /metrics). It serves
// nothing else, reads no files, and has a few threads, each of which gives up on a client that is
// slow. So whoever comes to the port can keep it from being useful, and nothing more.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "metrics/address.h"

namespace pinstripe {

class MetricsServer {
 public:
  static constexpr int kThreads = 3;
  static constexpr int kMostMilliseconds = 2000;  // for a request to come, or an answer to be taken

  // Makes the page, on a thread of the server. It uses nothing that ends before the server does.
  using MakePage = std::function<std::string()>;

  // EADDRNOTAVAIL: it cannot listen there, and why.
  static Result<std::unique_ptr<MetricsServer>> Start(const MetricsAddress& address,
                                                      MakePage make_page);

  // Null, with a warning in the log, where it cannot be: nobody does without files for want of
  // metrics. An empty `address` is none, and no mistake.
  static std::unique_ptr<MetricsServer> StartOrWarn(const std::string& address, MakePage make_page);

  ~MetricsServer();  // waits for the requests that are being answered

  uint16_t port() const { return port_; }

 private:
  class Http;
  MetricsServer(std::unique_ptr<Http> http, uint16_t port);

  const std::unique_ptr<Http> http_;
  const uint16_t port_;
};

}  // namespace pinstripe
