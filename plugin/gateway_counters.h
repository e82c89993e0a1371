// GatewayCounters: how many requests a gateway was asked, how long they took, and what they moved.
// Thread-safe, without locks.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/latency_histogram.h"
#include "base/runtime.h"
#include "metrics/page.h"

namespace pinstripe {

struct GatewayCounters {
  enum class Request : uint8_t {
    kOpen,
    kRead,
    kReadParts,  // several parts of a file at once
    kWrite,
    kClose,
    kSync,
    kStat,
    kList,
    kChange,  // of names and attributes
  };
  static constexpr size_t kRequests = 9;

  std::atomic<uint64_t> files_opened{0};
  std::atomic<uint64_t> bytes_read{0};
  std::atomic<uint64_t> bytes_written{0};
  std::atomic<uint64_t> errors{0};  // answers that are EIO
  std::array<LatencyHistogram, kRequests> took;

  void AddTo(MetricsPage& page) const;
};

// Counts a request for as long as this is there.
class CountedRequest {
 public:
  CountedRequest(Runtime& runtime, GatewayCounters& counters, GatewayCounters::Request request)
      : runtime_(runtime),
        took_(counters.took[static_cast<size_t>(request)]),
        start_(runtime.Now()) {}
  ~CountedRequest() { took_.Add(runtime_.Now() - start_); }
  CountedRequest(const CountedRequest&) = delete;
  CountedRequest& operator=(const CountedRequest&) = delete;

 private:
  Runtime& runtime_;
  LatencyHistogram& took_;
  const Time start_;
};

}  // namespace pinstripe
