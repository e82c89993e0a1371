// RecentInodes: the state of inodes a moment ago, as they were found or changed, for callers that
// may go by that instead of asking the drives once more.
//
// - Directories, for a second: who looks a name up in one of them need not read it again. What is
//   there for its names' sake (its time, what new files inherit) may be so old, and changes go by
//   slots. One that others change as well is left out for a while: what was seen of it would be
//   stale each time, and who goes by that has to try again.
// - What else there is, for 10 ms: the kernel looks a name up, then opens what it stands for, and
//   asks for its attributes, all for one open(2).
//
// What this process has changed since is not in here. Thread-safe; of fixed size.

#pragma once

#include <array>
#include <chrono>
#include <optional>

#include "base/mutex.h"
#include "base/runtime.h"
#include "fs/names/inode.h"

namespace pinstripe {

class RecentInodes {
 public:
  static constexpr Duration kRecentDirectory = std::chrono::seconds(1);
  static constexpr Duration kIsShared = std::chrono::seconds(10);
  static constexpr Duration kRecentFile = std::chrono::milliseconds(10);
  static constexpr size_t kMostBytes = 8 << 10;  // of what is not a directory, as stored

  explicit RecentInodes(Runtime& runtime) : runtime_(runtime) {}

  // No older than that, and than is said above.
  std::optional<StoredInode> Find(InodeId id, Duration age = Duration::max());
  std::optional<StoredInode> FindDirectory(InodeId id);

  // It was found to be that, in so many bytes, at some moment after `at`. One that is not at rest
  // is not kept.
  void Learn(InodeId id, const StoredInode& stored, size_t bytes, Time at);
  // It was changed here.
  void LearnOwn(InodeId id, const StoredInode& stored, Time at);
  // It is gone, or nobody knows what it is.
  void Forget(InodeId id);
  // Whether it may have been changed here since then.
  bool ChangedSince(InodeId id, Time at);
  // Somebody else has changed it, between our reading and our change.
  void NoteOthers(InodeId directory);

 private:
  static constexpr size_t kSlots = 64;

  struct Slot {
    InodeId id = 0;                     // 0: nothing
    std::optional<StoredInode> stored;  // null: forgotten
    Time at{};
    Time changed_at = Time::min();  // here, any that has this slot: what was read before is old
    Time alone_from = Time::min();
  };
  using Slots = std::array<Slot, kSlots>;
  Slots& SlotsFor(FileKind kind) { return kind == FileKind::kDirectory ? directories_ : others_; }
  static Slot& SlotOf(Slots& slots, InodeId id) { return slots[id % kSlots]; }
  std::optional<StoredInode> FindIn(Slots& slots, InodeId id, Duration age);

  Runtime& runtime_;
  Mutex mutex_;
  Slots directories_ GUARDED_BY(mutex_);
  Slots others_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
