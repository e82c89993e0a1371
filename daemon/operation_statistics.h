// OperationStatistics: how many requests of each type a device was asked, how many bytes of values
// they moved, how long they took, and which failed. Since the process started.
//
// Thread-safe, without locks.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/latency_histogram.h"
#include "base/runtime.h"

namespace pinstripe {

class OperationStatistics {
 public:
  static constexpr int kTypes = 64;      // more than the protocol's message types
  static constexpr int kStatuses = 128;  // more than its status codes, and ours

  struct Count {
    uint64_t operations = 0;
    uint64_t value_bytes = 0;
    Duration longest{};
  };

  void Add(int message_type, uint64_t value_bytes, Duration took) {
    if (message_type < 0 || message_type >= kTypes) return;
    Counters& counters = counters_[static_cast<size_t>(message_type)];
    counters.operations.fetch_add(1, std::memory_order_relaxed);
    counters.took.Add(took);
    counters.value_bytes.fetch_add(value_bytes, std::memory_order_relaxed);
    int64_t longest = counters.longest.load(std::memory_order_relaxed);
    while (took.count() > longest && !counters.longest.compare_exchange_weak(
                                         longest, took.count(), std::memory_order_relaxed)) {
    }
  }

  Count Of(int message_type) const {
    const Counters& counters = counters_.at(static_cast<size_t>(message_type));
    return {counters.operations.load(std::memory_order_relaxed),
            counters.value_bytes.load(std::memory_order_relaxed),
            Duration(counters.longest.load(std::memory_order_relaxed))};
  }

  LatencyCounts TookOf(int message_type) const {
    return counters_.at(static_cast<size_t>(message_type)).took.Load();
  }

  // An answer with this status, which is no success.
  void AddFailure(int status) {
    if (status < 0 || status >= kStatuses) return;
    failures_[static_cast<size_t>(status)].fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t FailuresOf(int status) const {
    return failures_.at(static_cast<size_t>(status)).load(std::memory_order_relaxed);
  }

  // Parts of what requests took: until somebody was there to execute one that was handed over, and
  // what the flushes took that answers waited for.
  LatencyHistogram& waits() { return waits_; }
  LatencyHistogram& flushes() { return flushes_; }

 private:
  struct Counters {
    std::atomic<uint64_t> operations = 0;
    std::atomic<uint64_t> value_bytes = 0;
    std::atomic<int64_t> longest = 0;  // nanoseconds
    LatencyHistogram took;
  };
  std::array<Counters, kTypes> counters_;
  std::array<std::atomic<uint64_t>, kStatuses> failures_{};
  LatencyHistogram waits_;
  LatencyHistogram flushes_;
};

}  // namespace pinstripe
