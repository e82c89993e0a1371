// BlockMemory: counts the bytes of all block buffers of a FileSystem against its budget. A buffer
// counts until its last user lets go of it, be that a slow drive. Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cluster/stripe_store.h"

namespace pinstripe {

class BlockMemory {
 public:
  explicit BlockMemory(uint64_t limit) : limit_(limit) {}

  // Contents undefined. Goes over the budget when there is no room: who can wait asks HasRoom()
  // before.
  std::shared_ptr<StripeBuffer> Allocate(const StripeLayout& layout) {
    auto buffer = std::make_unique<StripeBuffer>(layout);
    const uint64_t bytes = buffer->memory_bytes();
    *used_ += bytes;
    return {buffer.release(), [used = used_, bytes](StripeBuffer* done) {
              delete done;
              *used -= bytes;
            }};
  }

  // One request always has room when nothing else is in use.
  bool HasRoom(uint64_t bytes) const {
    const uint64_t used = *used_;
    return used == 0 || used + bytes <= limit_;
  }

  uint64_t used() const { return *used_; }

 private:
  const uint64_t limit_;
  const std::shared_ptr<std::atomic<uint64_t>> used_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace pinstripe
