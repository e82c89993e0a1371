// WaitedRequests: requests to one drive that took long, by the operation that has asked for them
// (base/operation_trace.h), for an operation that took long in the end and wants to know why. It
// keeps the slowest few of each, of a bounded number of operations.
//
// Thread-safe. Only what took long comes here, so it has a lock; it takes its memory with the first
// one.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "drive/slow_operation.h"

namespace pinstripe {

class WaitedRequests {
 public:
  static constexpr size_t kOperations = 256;
  static constexpr size_t kOfEach = 4;

  void Note(uint64_t operation, const WaitedRequest& request);
  std::vector<WaitedRequest> Of(std::span<const uint64_t> operations) const;

 private:
  // Operations whose numbers meet here have one place: the last one counts.
  struct Place {
    uint64_t operation = 0;  // 0: none
    size_t count = 0;
    std::array<WaitedRequest, kOfEach> slowest{};
  };
  static size_t PlaceOf(uint64_t operation);

  mutable Mutex mutex_;
  std::vector<Place> places_ GUARDED_BY(mutex_);  // none, or kOperations
};

}  // namespace pinstripe
