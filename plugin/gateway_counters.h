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
#include "upkeep/slow_operations.h"

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

  static const char* NameOf(Request request);

  void AddTo(MetricsPage& page) const;
};

// Counts a request for as long as this is there, and tells of one that took long.
class CountedRequest {
 public:
  // `slow`: null, nobody is told. `path` outlives this.
  CountedRequest(Runtime& runtime, GatewayCounters& counters, SlowOperations* slow,
                 GatewayCounters::Request request, const char* path)
      : runtime_(runtime),
        took_(counters.took[static_cast<size_t>(request)]),
        slow_(slow),
        request_(request),
        path_(path),
        start_(runtime.Now()) {}
  ~CountedRequest() {
    const Duration took = runtime_.Now() - start_;
    took_.Add(took);
    if (slow_ == nullptr || !slow_->IsSlow(took)) return;
    slow_->Add(trace_, GatewayCounters::NameOf(request_), path_, took);
  }
  CountedRequest(const CountedRequest&) = delete;
  CountedRequest& operator=(const CountedRequest&) = delete;

 private:
  Runtime& runtime_;
  LatencyHistogram& took_;
  SlowOperations* const slow_;
  const GatewayCounters::Request request_;
  const char* const path_;
  const Time start_;
  const OperationTrace trace_;
};

}  // namespace pinstripe
