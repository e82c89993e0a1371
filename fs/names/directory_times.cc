#include "fs/names/directory_times.h"

#include <algorithm>
#include <vector>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {

std::optional<Inode> WithTimeOf(const EntriesChanged& change, const Inode& inode) {
  const bool as_seen = inode.modified == change.seen_modified;
  if (!as_seen && inode.changed >= change.at) return std::nullopt;
  Inode told = inode;
  // Somebody else's clock may be ahead. Whoever goes by the time must see that it changed.
  const int64_t later = inode.changed < INT64_MAX ? inode.changed + 1 : INT64_MAX;
  told.modified = told.changed = std::max(change.at, later);
  return told;
}

DirectoryTimes::DirectoryTimes(Records& records)
    : records_(records), thread_(records.runtime(), "directory times", [this] { Run(); }) {}

DirectoryTimes::~DirectoryTimes() {
  thread_.End();
  NoteAll();
}

void DirectoryTimes::Add(InodeId directory, const StoredInode& seen) {
  const int64_t now = records_.WallClock();
  bool is_first = false;
  bool are_too_many = false;
  {
    const MutexLock lock(mutex_);
    const auto [it, added] = waiting_.try_emplace(directory);
    EntriesChanged& change = it->second;
    change.at = std::max(change.at, now);
    if (added || seen.slot > change.seen_slot) {
      change.seen_slot = seen.slot;
      change.seen_modified = seen.inode.modified;
    }
    is_first = added;
    are_too_many = waiting_.size() > kMostWaiting;
  }
  if (is_first) thread_.Wake();
  if (are_too_many) NoteOrTell(directory);
}

std::optional<EntriesChanged> DirectoryTimes::Find(InodeId directory) const {
  const MutexLock lock(mutex_);
  const auto it = waiting_.find(directory);
  return it == waiting_.end() ? std::nullopt : std::optional(it->second);
}

void DirectoryTimes::Complete(InodeId id, Inode& inode) const {
  if (inode.kind != FileKind::kDirectory) return;
  const auto change = Find(id);
  if (!change) return;
  if (auto told = WithTimeOf(*change, inode)) inode = *std::move(told);
}

void DirectoryTimes::Forget(InodeId directory, int64_t up_to) {
  const MutexLock lock(mutex_);
  const auto it = waiting_.find(directory);
  if (it != waiting_.end() && it->second.at <= up_to) waiting_.erase(it);
}

bool DirectoryTimes::NoteOrTell(InodeId directory) {
  const auto change = Find(directory);
  const Status noted = change ? Note(directory, *change) : Status();
  if (noted.ok()) return true;
  Log(LogLevel::kWarn, "a directory keeps the time that it had before names in it were changed",
      {{"directory", fmt::format("{:016x}", directory)}, {"why", noted}});
  Forget(directory, change->at);
  return false;
}

Status DirectoryTimes::Note(InodeId directory) {
  const auto change = Find(directory);
  return change ? Note(directory, *change) : Status();
}

// It takes as much as before; and a name may have gone, which must be possible on a full drive.
Status DirectoryTimes::Note(InodeId directory, const EntriesChanged& change) {
  std::optional<StoredInode> stored = records_.FindRecent(directory);
  for (Attempts attempts; attempts.Next();) {
    if (!stored) stored = TRY(records_.FindInode(directory));
    const auto told = stored ? WithTimeOf(change, stored->inode) : std::nullopt;
    if (!told) {
      Forget(directory, change.at);
      return {};
    }
    auto noted = records_.ChangeInode(directory, stored->slot, *told,
                                      {Durability::kWriteBack, Room::kFreeing});
    TRY(noted.why);
    if (noted.applied()) {
      Forget(directory, change.at);
      return {};
    }
    stored = std::move(noted.now);
    attempts.Pause(records_.runtime());
  }
  return Fail(EIO, "others changed it {} times in between", Attempts::kMost);
}

// Once the process ends, and the drives do not take one of them, nobody waits for all the others.
void DirectoryTimes::NoteAll() {
  std::vector<InodeId> directories;
  {
    const MutexLock lock(mutex_);
    for (const auto& [directory, change] : waiting_) directories.push_back(directory);
  }
  for (const InodeId directory : directories) {
    if (!NoteOrTell(directory) && thread_.IsEnding()) return;
  }
}

bool DirectoryTimes::IsIdle() const {
  const MutexLock lock(mutex_);
  return waiting_.empty();
}

void DirectoryTimes::Run() {
  while (!IsIdle()) {
    const Time due = records_.runtime().Now() + kWait;
    while (!thread_.IsEnding() && thread_.WaitUntil(due)) {
    }
    if (thread_.IsEnding()) return;
    NoteAll();
  }
}

}  // namespace pinstripe
