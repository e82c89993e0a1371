#include "fs/names/recent_inodes.h"

#include <algorithm>

namespace pinstripe {
namespace {

bool IsAtRest(const Inode& inode) { return !inode.intent && !inode.mark; }

}  // namespace

std::optional<StoredInode> RecentInodes::Find(InodeId id, Duration age) {
  const MutexLock lock(mutex_);
  if (auto found = FindIn(others_, id, std::min(age, kRecentFile))) return found;
  return FindIn(directories_, id, std::min(age, kRecentDirectory));
}

std::optional<StoredInode> RecentInodes::FindDirectory(InodeId id) {
  const MutexLock lock(mutex_);
  return FindIn(directories_, id, kRecentDirectory);
}

std::optional<StoredInode> RecentInodes::FindIn(Slots& slots, InodeId id, Duration age) {
  const Slot& slot = SlotOf(slots, id);
  const Time now = runtime_.Now();
  if (slot.id != id || now < slot.alone_from || now - slot.at >= age) return {};
  return slot.stored;
}

void RecentInodes::Learn(InodeId id, const StoredInode& stored, size_t bytes, Time at) {
  const bool is_directory = stored.inode.kind == FileKind::kDirectory;
  const MutexLock lock(mutex_);
  Slot& slot = SlotOf(SlotsFor(stored.inode.kind), id);
  const bool is_kept =
      (is_directory || bytes <= kMostBytes) && IsAtRest(stored.inode) && at > slot.changed_at;
  if (slot.id != id) {
    if (!is_kept) return;
    slot.id = id;
    slot.stored.reset();
    slot.alone_from = Time::min();
  }
  if (slot.stored) {
    const uint64_t known = slot.stored->slot;
    const bool is_newer = stored.slot > known || (stored.slot == known && at >= slot.at);
    if (!is_newer && at - slot.at < kRecentDirectory) return;
  }
  slot.stored.reset();  // also by what is not kept: it is not that any more
  if (!is_kept) return;
  slot.at = at;
  slot.stored = stored;
}

void RecentInodes::LearnOwn(InodeId id, const StoredInode& stored, Time at) {
  const MutexLock lock(mutex_);
  Slot& slot = SlotOf(SlotsFor(stored.inode.kind), id);
  slot.changed_at = std::max(slot.changed_at, runtime_.Now());
  const bool is_same = slot.id == id;
  if (is_same && slot.stored && slot.stored->slot > stored.slot) return;
  if (stored.inode.kind != FileKind::kDirectory) {  // nobody asks just after that
    if (is_same) slot.stored.reset();
    return;
  }
  if (!is_same) slot.alone_from = Time::min();
  slot.id = id;
  slot.at = at;
  slot.stored.reset();
  if (IsAtRest(stored.inode)) slot.stored = stored;
}

void RecentInodes::Forget(InodeId id) {
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  for (Slots* slots : {&directories_, &others_}) {
    Slot& slot = SlotOf(*slots, id);
    slot.changed_at = std::max(slot.changed_at, now);
    if (slot.id == id) slot.stored.reset();
  }
}

bool RecentInodes::ChangedSince(InodeId id, Time at) {
  const MutexLock lock(mutex_);
  return at <= SlotOf(directories_, id).changed_at || at <= SlotOf(others_, id).changed_at;
}

void RecentInodes::NoteOthers(InodeId directory) {
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  Slot& slot = SlotOf(directories_, directory);
  slot.id = directory;
  slot.stored.reset();
  slot.changed_at = std::max(slot.changed_at, now);
  slot.alone_from = now + kIsShared;
}

}  // namespace pinstripe
