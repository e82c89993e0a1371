// Rename: the steps, and who may do them. docs/format.md, "Rename", says why they are safe.
//
//   1  the intent is set in the moved inode                          (one who wants the rename)
//   2  the source's entry is rewritten with the rename's nonce       (anybody, from here on)
//   3  an empty directory that will be replaced is closed
//   4  the target's entry is written with the nonce
//   5  the target's directory is changed, which fails if it is gone
//   6  the source's entry is removed
//   7  the intent is cleared and the outcome noted
//
// An exchange is a rename that, in step 6, gives the source's name to what it has replaced. That
// has no name between the steps 4 and 6, so it is marked from step 3 to step 7, as is an empty
// directory that will be replaced; and before step 4 the source's directory is changed, as in step
// 5, because something new comes into it.
//
// Every step is one change of a register that requires the slot which the intent names, or what an
// earlier step has made of it, known by the nonce; so doing it twice, or late, does nothing. A
// rename that became impossible (its source was taken away before step 2, its target changed before
// step 4) stays impossible for ever, because slots never come back.

#include "base/log.h"
#include "base/try.h"
#include "fs/names.h"

namespace pinstripe {
namespace {

bool IsDirectory(const Inode& inode) { return inode.kind == FileKind::kDirectory; }

// Whether the entry names `id` since that rename. (An exchange gives its nonce to both.)
bool WrittenBy(const RenameIntent& intent, const StoredEntry& stored, InodeId id) {
  return stored.entry && stored.entry->nonce == intent.nonce && stored.entry->inode == id;
}

Subdirectories CountOf(bool gains, bool loses) {
  if (gains == loses) return Subdirectories::kSame;
  return gains ? Subdirectories::kOneMore : Subdirectories::kOneLess;
}

// What it does to the number of subdirectories where a `moved` one goes, and where it comes from,
// if that is another directory.
Subdirectories CountInTarget(const RenameIntent& intent, FileKind moved) {
  const bool crosses = intent.source != intent.target;
  const bool loses = intent.exchange ? crosses && *intent.exchange == FileKind::kDirectory
                                     : intent.replaced_slot != 0;
  return CountOf(crosses && moved == FileKind::kDirectory, loses);
}
Subdirectories CountInSource(const RenameIntent& intent, FileKind moved) {
  return CountOf(intent.exchange == FileKind::kDirectory, moved == FileKind::kDirectory);
}

}  // namespace

// The slot in which the source's entry bears the nonce; null if it does not (any more).
Result<std::optional<uint64_t>> Names::TakeSource(const RenameIntent& intent, const Entry& entry,
                                                  bool begun) {
  StoredEntry found{.entry = std::nullopt, .slot = intent.source_slot};
  if (!begun) found = TRY(records_.FindEntry(intent.source, intent.source_name));
  if (found.slot == intent.source_slot) {
    const auto change =
        records_.ChangeEntry(intent.source, intent.source_name, intent.source_slot, entry);
    TRY(change.why);
    found = change.now;
  }
  if (!WrittenBy(intent, found, entry.inode)) return std::optional<uint64_t>();
  return std::optional(found.slot);
}

Result<bool> Names::CloseReplaced(InodeId id, const RenameIntent& intent) {
  if (intent.replaced_slot == 0) return true;
  const DirectoryClosing mark{id, intent.nonce};
  const auto closed_by_us = [&](const std::optional<StoredInode>& stored) {
    return stored && stored->inode.closing == mark;
  };
  std::optional<StoredInode> stored = TRY(records_.FindInode(intent.replaced));
  if (!stored) return false;
  if (closed_by_us(stored)) return true;
  if (stored->slot != intent.replaced_slot) return false;
  Inode closed = stored->inode;
  closed.closing = mark;
  const auto change = records_.ChangeInode(intent.replaced, intent.replaced_slot, closed);
  TRY(change.why);
  return closed_by_us(change.now);
}

// The mark has done its work: the rename is about to be over.
Status Names::Unmark(const RenameIntent& intent, bool done) {
  if (intent.replaced_slot == 0) return {};
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const std::optional<StoredInode> stored = TRY(records_.FindInode(intent.replaced));
    if (!stored || !stored->inode.closing || stored->inode.closing->nonce != intent.nonce) {
      return {};
    }
    Inode open = stored->inode;
    open.closing.reset();
    if (done) {
      open.changed = records_.WallClock();
      if (IsDirectory(open)) open.parent = intent.source;
    }
    const auto change = records_.ChangeInode(intent.replaced, stored->slot, open);
    TRY(change.why);
    if (change.applied()) return {};
    PauseBeforeRetry(runtime_, attempt);
  }
  return Fail(EIO, "exchange inode {:016x}: others changed it {} times in between; try again",
              intent.replaced, kMaxAttempts);
}

Status Names::FinishMark(InodeId id, const StoredInode& stored) {
  const DirectoryClosing mark = *stored.inode.closing;
  const std::optional<StoredInode> mover = TRY(records_.FindInode(mark.mover));
  if (mover && mover->inode.intent && mover->inode.intent->nonce == mark.nonce) {
    TRY(Finish(mark.mover, *mover));
    return {};
  }
  // Of a rename that ended, by somebody who was late. But a directory that was replaced stays
  // closed: it is about to be removed.
  const auto failed = [&] {
    const auto& last = mover ? mover->inode.last_rename : std::nullopt;
    return last && last->nonce == mark.nonce && !last->done;
  };
  if (IsDirectory(stored.inode) && !failed()) return {};
  Inode open = stored.inode;
  open.closing.reset();
  return records_.ChangeInode(id, stored.slot, open).why;
}

// True: the target's entry bears the nonce, and its directory is there.
Result<bool> Names::PlaceTarget(InodeId id, const RenameIntent& intent, const Entry& entry,
                                bool taken, const std::optional<Begun>& begun) {
  StoredEntry found{.entry = std::nullopt, .slot = intent.target_slot};
  // What is replaced goes when this is done, and so does the old name, which is on other drives
  // where the directory is another one. A loss of power must not undo this alone then.
  const bool replaces = intent.replaced != 0 && !intent.exchange;
  const bool must_last = replaces || intent.source != intent.target;
  bool lasts = false;
  // If the source is not there any more, others may have done all of it.
  if (!begun || !taken) found = TRY(records_.FindEntry(intent.target, intent.target_name));
  if (!WrittenBy(intent, found, id)) {
    // An absent entry is in another slot since an epoch has begun, though nothing has come of what
    // others may have sent before: the change is refused then, and nothing comes of it any more.
    if (!taken || (found.entry && found.slot != intent.target_slot)) return false;
    if (TRY(CloseReplaced(id, intent))) {
      const auto change =
          records_.ChangeEntry(intent.target, intent.target_name, intent.target_slot, entry,
                               must_last ? Durability::kWriteThrough : Durability::kWriteBack);
      TRY(change.why);
      lasts = change.applied();
      found = change.now;
    } else {
      // Too late for the mark; or others have done this, and taken the mark of an exchange away.
      found = TRY(records_.FindEntry(intent.target, intent.target_name));
    }
    if (!WrittenBy(intent, found, id)) return false;
  }
  if (must_last && !lasts) TRY(records_.MakeEntryDurable(intent.target, intent.target_name));
  // Where the source's directory is the same one, an exchange has changed it just now.
  std::optional<StoredInode> seen;
  if (begun && !(intent.exchange && intent.source == intent.target)) seen = begun->target;
  if (TRY(Touch(intent.target, std::move(seen), CountInTarget(intent, entry.kind)))) return true;
  TRY(records_.ChangeEntry(intent.target, intent.target_name, found.slot, std::nullopt).why);
  return false;
}

Result<Names::Ending> Names::Conclude(InodeId id, StoredInode stored, bool done) {
  const RenameIntent intent = *stored.inode.intent;
  while (true) {
    Inode inode = stored.inode;
    inode.intent.reset();
    inode.last_rename = RenameOutcome{intent.nonce, done};
    if (done) inode.changed = records_.WallClock();
    if (done && IsDirectory(inode)) inode.parent = intent.target;
    auto change = records_.ChangeInode(id, stored.slot, inode);
    TRY(change.why);
    if (change.applied()) return Ending(done);
    // A commit of the file may have changed the inode and left the intent as it was.
    if (!change.now || change.now->inode.intent != intent) return Ending();
    stored = *std::move(change.now);
  }
}

Result<Names::Ending> Names::Finish(InodeId id, const StoredInode& stored,
                                    const std::optional<Begun>& begun) {
  const RenameIntent& intent = *stored.inode.intent;
  const Entry entry{.inode = id, .kind = stored.inode.kind, .nonce = intent.nonce};
  const auto source_seen = begun ? std::optional(begun->source) : std::nullopt;
  std::optional<uint64_t> source_slot = TRY(TakeSource(intent, entry, begun.has_value()));
  bool taken = source_slot.has_value();
  if (taken && intent.exchange) taken = TRY(Touch(intent.source, source_seen));
  const bool done = TRY(PlaceTarget(id, intent, entry, taken, begun));
  if (done && source_slot) {
    std::optional<Entry> left;
    if (intent.exchange) {
      left = Entry{.inode = intent.replaced, .kind = *intent.exchange, .nonce = intent.nonce};
    }
    bool again = true;
    while (again) {
      const auto change =
          records_.ChangeEntry(intent.source, intent.source_name, *source_slot, left);
      TRY(change.why);
      again = !change.applied() && WrittenBy(intent, change.now, id);  // it was written anew
      source_slot = change.now.slot;
    }
  }
  if (done && intent.source != intent.target) {
    TRY(Touch(intent.source, intent.exchange ? std::nullopt : source_seen,
              CountInSource(intent, entry.kind)));
  }
  if (!done || intent.exchange) TRY(Unmark(intent, done));
  const Ending ending = TRY(Conclude(id, stored, done));
  // Only one ends it, so the replaced inode loses one link.
  if (ending == true && intent.replaced != 0 && !intent.exchange) {
    const Status dropped = DropLink(intent.replaced);
    if (!dropped.ok()) {
      Log(LogLevel::kWarn, "a replaced file stays behind",
          {{"inode", fmt::format("{:016x}", intent.replaced)}, {"why", dropped}});
    }
  }
  return ending;
}

Status Names::CheckReplacement(const Wanted& wanted, const Place& from, const Place& to) {
  if (wanted.no_replace) {
    return Fail(EEXIST, "'{}' exists in directory {:016x}", wanted.target_name, wanted.target);
  }
  const bool onto_directory = IsDirectory(to.inode.inode);
  if (IsDirectory(from.inode.inode) && !onto_directory) {
    return Fail(ENOTDIR, "rename '{}' onto '{}', which is no directory", wanted.source_name,
                wanted.target_name);
  }
  if (!IsDirectory(from.inode.inode) && onto_directory) {
    return Fail(EISDIR, "rename '{}' onto '{}', which is a directory", wanted.source_name,
                wanted.target_name);
  }
  if (onto_directory && !TRY(IsEmpty(to.id))) {
    return Fail(ENOTEMPTY, "rename '{}' onto '{}', which is not empty", wanted.source_name,
                wanted.target_name);
  }
  return {};
}

// Enters a directory in the rename register: the slot there, or null when others were at work.
Result<std::optional<uint64_t>> Names::BeginMove(InodeId id) {
  const Records::Mover mover = TRY(records_.FindMover());
  if (mover.directory == 0) {
    const auto change = records_.ChangeMover(mover.slot, id);
    TRY(change.why);
    if (change.applied()) return std::optional(change.now.slot);
    return std::optional<uint64_t>();
  }
  // Somebody else's move is finished first. If its intent is not there (yet), changing the inode
  // sees to it that it never will be: it requires the slot that was read before the register was
  // taken.
  const std::optional<StoredInode> other = TRY(Find(mover.directory));
  if (other) {
    const auto change = records_.ChangeInode(mover.directory, other->slot, other->inode);
    TRY(change.why);
    if (!change.applied()) return std::optional<uint64_t>();
  }
  TRY(records_.ChangeMover(mover.slot, 0).why);
  return std::optional<uint64_t>();
}

Status Names::CheckNotBelow(InodeId id, InodeId target) {
  for (InodeId at = target; at != kRootInode;) {
    if (at == id) {
      return Fail(EINVAL, "directory {:016x} cannot become a part of itself", id);
    }
    const StoredInode stored = TRY(Load(at));
    if (!IsDirectory(stored.inode)) return Fail(ENOTDIR, "inode {:016x} is no directory", at);
    at = stored.inode.parent;
  }
  return {};
}

Result<bool> Names::MoveWithIntent(const Wanted& wanted, const Place& from, const Place& to) {
  const bool replaces_directory = to.found() && IsDirectory(to.inode.inode);
  Inode inode = from.inode.inode;
  inode.intent = RenameIntent{.nonce = records_.NewRenameNonce(),
                              .source = wanted.source,
                              .source_name = std::string(wanted.source_name),
                              .source_slot = from.slot,
                              .target = wanted.target,
                              .target_name = std::string(wanted.target_name),
                              .target_slot = to.slot,
                              .replaced = to.id,
                              .replaced_slot = replaces_directory ? to.inode.slot : 0,
                              .exchange = std::nullopt};
  if (wanted.exchange) {
    inode.intent->replaced_slot = to.inode.slot;
    inode.intent->exchange = to.inode.inode.kind;
  }
  const RenameNonce nonce = inode.intent->nonce;
  const auto change = records_.ChangeInode(from.id, from.inode.slot, inode);
  TRY(change.why);
  if (!change.applied()) return false;
  const auto ending =
      Finish(from.id, *change.now, Begun{.source = from.directory, .target = to.directory});
  if (!ending.has_value()) {
    return Fail(EIO, "rename '{}' to '{}' may have happened, or may yet: {}", wanted.source_name,
                wanted.target_name, ending.error().message());
  }
  if (*ending) return **ending;
  const std::optional<StoredInode> after = TRY(records_.FindInode(from.id));
  if (after && after->inode.last_rename && after->inode.last_rename->nonce == nonce) {
    return after->inode.last_rename->done;
  }
  return Fail(EIO, "rename '{}' to '{}' may have happened: others changed both since",
              wanted.source_name, wanted.target_name);
}

Result<bool> Names::TryRename(const Wanted& wanted) {
  const auto [from, to] = TRY(LookForMove(wanted));
  if (to.found() && to.id == from.id) {
    if (wanted.no_replace) TRY(CheckReplacement(wanted, from, to));
    return true;
  }
  if (to.found() && to.inode.inode.closing) {
    TRY(FinishMark(to.id, to.inode));
    return false;
  }
  const bool reparents = IsDirectory(from.inode.inode) && wanted.source != wanted.target;
  // Cheap, and it keeps EINVAL before ENOTEMPTY, as elsewhere; what counts is the check in Move().
  if (reparents) TRY(CheckNotBelow(from.id, wanted.target));
  return Move(wanted, from, to, reparents);
}

// With the rename register, if a directory gets another parent.
Result<bool> Names::Move(const Wanted& wanted, const Place& from, const Place& to, bool reparents) {
  std::optional<uint64_t> mover_slot;
  if (reparents) {
    mover_slot = TRY(BeginMove(from.id));
    if (!mover_slot) return false;
  }
  Status check = reparents ? CheckNotBelow(from.id, wanted.target) : Status();
  if (check.ok() && reparents && wanted.exchange && IsDirectory(to.inode.inode)) {
    check = CheckNotBelow(to.id, wanted.source);
  }
  if (check.ok() && to.found() && !wanted.exchange) check = CheckReplacement(wanted, from, to);
  Result<bool> moved = false;
  if (check.ok()) {
    moved = MoveWithIntent(wanted, from, to);
  } else {
    moved = tl::unexpected(check);
  }
  if (mover_slot) {
    const Status left = records_.ChangeMover(*mover_slot, 0).why;
    if (!left.ok()) {
      Log(LogLevel::kWarn, "the rename register stays taken; the next one will free it",
          {{"why", left}});
    }
  }
  return moved;
}

Result<bool> Names::TryExchange(Wanted wanted) {
  auto [from, to] = TRY(LookForMove(wanted));
  if (!to.found()) {
    return Fail(ENOENT, "no '{}' in directory {:016x}", wanted.target_name, wanted.target);
  }
  if (to.id == from.id) return true;
  // The intent is in a directory, if one of them is: the rename register names that one.
  if (!IsDirectory(from.inode.inode) && IsDirectory(to.inode.inode)) {
    std::swap(from, to);
    std::swap(wanted.source, wanted.target);
    std::swap(wanted.source_name, wanted.target_name);
  }
  if (to.inode.inode.closing) {
    TRY(FinishMark(to.id, to.inode));
    return false;
  }
  return Move(wanted, from, to, IsDirectory(from.inode.inode) && wanted.source != wanted.target);
}

Status Names::Exchange(InodeId source, std::string_view source_name, InodeId target,
                       std::string_view target_name) {
  const Wanted wanted{source, source_name, target, target_name, false, true};
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (TRY(TryExchange(wanted))) return {};
    PauseBeforeRetry(runtime_, attempt);
  }
  return Fail(EIO, "exchange '{}' and '{}': others changed them {} times in between; try again",
              source_name, target_name, kMaxAttempts);
}

Status Names::Rename(InodeId source, std::string_view source_name, InodeId target,
                     std::string_view target_name, bool no_replace) {
  const Wanted wanted{source, source_name, target, target_name, no_replace, false};
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (TRY(TryRename(wanted))) return {};
    PauseBeforeRetry(runtime_, attempt);
  }
  return Fail(EIO, "rename '{}' to '{}': others changed them {} times in between; try again",
              source_name, target_name, kMaxAttempts);
}

}  // namespace pinstripe
