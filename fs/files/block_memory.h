// BlockMemory: makes block buffers, each with its share of the memory budget. A buffer counts until
// its last user lets go of it, be that a slow drive. Thread-safe.

#pragma once

#include <cstdint>
#include <memory>

#include "base/memory_budget.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

class BlockMemory {
 public:
  explicit BlockMemory(MemoryBudget& budget) : budget_(budget) {}

  // Contents undefined. Its share is a part of `room`; if that is too small, it is taken whether
  // there is room or not.
  std::shared_ptr<StripeBuffer> Allocate(const StripeLayout& layout, MemoryBudget::Share& room) {
    const uint64_t bytes = StripeBuffer::MemoryBytes(layout);
    if (room.bytes() >= bytes) return Make(layout, room.Split(bytes));
    return Allocate(layout);
  }
  std::shared_ptr<StripeBuffer> Allocate(const StripeLayout& layout) {
    const uint64_t bytes = StripeBuffer::MemoryBytes(layout);
    auto share = budget_.TryTake(bytes);
    return Make(layout, share ? *std::move(share) : budget_.TakeAnyway(bytes));
  }

 private:
  struct Counted {
    MemoryBudget::Share share;  // given back after the buffer is gone
    StripeBuffer buffer;
  };

  static std::shared_ptr<StripeBuffer> Make(const StripeLayout& layout, MemoryBudget::Share share) {
    const auto counted = std::make_shared<Counted>(Counted{std::move(share), StripeBuffer(layout)});
    return {counted, &counted->buffer};
  }

  MemoryBudget& budget_;
};

}  // namespace pinstripe
