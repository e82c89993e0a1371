#include "fs/recent_directories.h"

namespace pinstripe {
namespace {

bool IsAtRest(const Inode& inode) {
  return inode.kind == FileKind::kDirectory && !inode.intent && !inode.closing;
}

}  // namespace

RecentDirectories::Slot& RecentDirectories::SlotOf(InodeId id) { return slots_[id % kSlots]; }

std::optional<StoredInode> RecentDirectories::Find(InodeId directory) {
  const Time now = runtime_.Now();
  const std::lock_guard lock(mutex_);
  const Slot& slot = SlotOf(directory);
  if (slot.id != directory || now < slot.alone_from || now - slot.at >= kIsRecent) return {};
  return slot.stored;
}

void RecentDirectories::Learn(InodeId id, const StoredInode& stored, Time at) {
  if (stored.inode.kind != FileKind::kDirectory) return;
  const std::lock_guard lock(mutex_);
  Slot& slot = SlotOf(id);
  if (slot.id != id) slot = {.id = id, .stored = std::nullopt};
  if (slot.stored && slot.stored->slot > stored.slot) return;  // it was read before that
  slot.stored.reset();
  slot.at = at;
  if (IsAtRest(stored.inode)) slot.stored = stored;
}

void RecentDirectories::Forget(InodeId id) {
  const std::lock_guard lock(mutex_);
  if (SlotOf(id).id == id) SlotOf(id).stored.reset();
}

void RecentDirectories::NoteOthers(InodeId directory) {
  const Time now = runtime_.Now();
  const std::lock_guard lock(mutex_);
  SlotOf(directory) = {.id = directory, .stored = std::nullopt, .alone_from = now + kIsShared};
}

}  // namespace pinstripe
