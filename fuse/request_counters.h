// RequestCounters: counts the kernel's requests to a mount by kind, and how long the answers took.
// Thread-safe.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/latency_histogram.h"
#include "base/runtime.h"
#include "fs/file_system.h"

namespace pinstripe {

class MetricsPage;

class RequestCounters {
 public:
  enum class Kind : uint8_t {
    kLookup,
    kGetAttributes,
    kSetAttributes,
    kExtended,
    kMake,  // directories, nodes and links
    kRemove,
    kRename,
    kOpen,
    kCreate,
    kRead,
    kWrite,
    kAllocate,
    kSeek,
    kCopy,
    kClose,
    kSync,
    kList,
    kStatFileSystem,
  };
  static constexpr size_t kKinds = 18;

  static const char* NameOf(Kind kind);

  void Count(Kind kind, Duration took) { of_[static_cast<size_t>(kind)].Add(took); }
  void CountError() { errors_.fetch_add(1, std::memory_order_relaxed); }  // EIO
  void CountRead(uint64_t bytes) { read_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountWritten(uint64_t bytes) { written_.fetch_add(bytes, std::memory_order_relaxed); }

  void AddTo(MetricsPage& page) const;

  // All counters, and those of `memory`, in the text format of Prometheus.
  std::string Text(const MemoryCounters& memory) const;

 private:
  std::array<LatencyHistogram, kKinds> of_;
  std::atomic<uint64_t> errors_ = 0;
  std::atomic<uint64_t> read_ = 0;
  std::atomic<uint64_t> written_ = 0;
};

}  // namespace pinstripe
