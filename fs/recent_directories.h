// RecentDirectories: what the inodes of directories were found as, or were changed to, less than a
// second ago. Who looks a name up in one of them need not read it again: what is there for its
// names' sake (its time, what new files inherit) may be so old, and changes go by slots.
//
// A directory that others change as well is left out for a while: what was seen of it would be
// stale each time, and who goes by that has to try again.
//
// Thread-safe; of fixed size.

#pragma once

#include <array>
#include <chrono>
#include <mutex>
#include <optional>

#include "base/runtime.h"
#include "fs/inode.h"

namespace pinstripe {

class RecentDirectories {
 public:
  static constexpr Duration kIsRecent = std::chrono::seconds(1);
  static constexpr Duration kIsShared = std::chrono::seconds(10);

  explicit RecentDirectories(Runtime& runtime) : runtime_(runtime) {}

  std::optional<StoredInode> Find(InodeId directory);

  // It was that at some moment after `at`. Anything but a directory at rest is not kept.
  void Learn(InodeId id, const StoredInode& stored, Time at);
  void Forget(InodeId id);
  // Somebody else has changed it, between our reading and our change.
  void NoteOthers(InodeId directory);

 private:
  static constexpr size_t kSlots = 64;

  struct Slot {
    InodeId id = 0;                     // 0: nothing
    std::optional<StoredInode> stored;  // null: forgotten
    Time at{};
    Time alone_from = Time::min();
  };
  Slot& SlotOf(InodeId id);

  Runtime& runtime_;
  std::mutex mutex_;
  std::array<Slot, kSlots> slots_;  // guarded by mutex_
};

}  // namespace pinstripe
