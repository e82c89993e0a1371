// NameHints: which inode a name stood for when it was seen last, so that the inode can be read at
// the same time as the entry that names it. A guess, and nothing more: its user compares it with
// the entry. A wrong one costs a read that was not needed.
//
// Thread-safe without a lock; of fixed size.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "fs/types.h"

namespace pinstripe {

class NameHints {
 public:
  // 0: nothing is known.
  InodeId Find(InodeId directory, std::string_view name) const {
    const uint64_t hash = HashOf(directory, name);
    const Slot& slot = SlotOf(hash);
    const InodeId inode = slot.inode.load(std::memory_order_relaxed);
    return slot.name.load(std::memory_order_relaxed) == hash ? inode : 0;
  }

  void Learn(InodeId directory, std::string_view name, InodeId inode) {
    const uint64_t hash = HashOf(directory, name);
    Slot& slot = SlotOf(hash);
    slot.inode.store(inode, std::memory_order_relaxed);
    slot.name.store(hash, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kSlots = 1 << 15;  // half a MiB

  struct Slot {
    std::atomic<uint64_t> name = 0;  // its hash; two names of one hash only make wrong guesses
    std::atomic<InodeId> inode = 0;
  };

  static uint64_t HashOf(InodeId directory, std::string_view name) {
    return std::hash<std::string_view>()(name) ^ (directory * 0x9e3779b97f4a7c15u);
  }
  const Slot& SlotOf(uint64_t hash) const { return (*slots_)[(hash ^ (hash >> 32)) % kSlots]; }
  Slot& SlotOf(uint64_t hash) { return (*slots_)[(hash ^ (hash >> 32)) % kSlots]; }

  std::unique_ptr<std::array<Slot, kSlots>> slots_ = std::make_unique<std::array<Slot, kSlots>>();
};

}  // namespace pinstripe
