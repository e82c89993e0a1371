// OperationStatistics: how many requests of each type a device was asked, how many bytes of values
// they moved, and the longest time that one took. Since the process started.
//
// Thread-safe, without locks.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/runtime.h"

namespace pinstripe {

class OperationStatistics {
 public:
  static constexpr int kTypes = 64;  // more than the protocol's message types

  struct Count {
    uint64_t operations = 0;
    uint64_t value_bytes = 0;
    Duration longest{};
  };

  void Add(int message_type, uint64_t value_bytes, Duration took) {
    if (message_type < 0 || message_type >= kTypes) return;
    Counters& counters = counters_[static_cast<size_t>(message_type)];
    counters.operations.fetch_add(1, std::memory_order_relaxed);
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

 private:
  struct Counters {
    std::atomic<uint64_t> operations = 0;
    std::atomic<uint64_t> value_bytes = 0;
    std::atomic<int64_t> longest = 0;  // nanoseconds
  };
  std::array<Counters, kTypes> counters_;
};

}  // namespace pinstripe
