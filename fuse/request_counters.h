// RequestCounters: counts the kernel's requests to a mount by kind, and how long the answers took.
// Thread-safe.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/runtime.h"
#include "fs/file_system.h"

namespace pinstripe {

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

  void Count(Kind kind, Duration took) {
    const auto nanoseconds = static_cast<uint64_t>(std::chrono::nanoseconds(took).count());
    One& one = of_[static_cast<size_t>(kind)];
    one.requests.fetch_add(1, std::memory_order_relaxed);
    one.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
  void CountError() { errors_.fetch_add(1, std::memory_order_relaxed); }  // EIO
  void CountRead(uint64_t bytes) { read_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountWritten(uint64_t bytes) { written_.fetch_add(bytes, std::memory_order_relaxed); }

  // All counters, and those of `memory`, in the text format of Prometheus.
  std::string Text(const MemoryCounters& memory) const;

 private:
  struct One {
    std::atomic<uint64_t> requests = 0;
    std::atomic<uint64_t> nanoseconds = 0;
  };
  std::array<One, kKinds> of_;
  std::atomic<uint64_t> errors_ = 0;
  std::atomic<uint64_t> read_ = 0;
  std::atomic<uint64_t> written_ = 0;
};

}  // namespace pinstripe
