// Rename: the steps, and who may do them. docs/format.md, "Rename", says why they are safe.
//
//   1  the intent is set in the moved inode                          (one who wants the rename)
//   2  the source's entry is rewritten with the rename's nonce       (anybody, from here on)
//   3  what will be replaced is marked, as it was when it was looked at; a directory is found empty
//   4  the target's entry is written with the nonce
//   5  the target's directory is looked at, or changed if it counts another number of
//      subdirectories; where it is gone the target's entry is taken back
//   6  the source's entry is removed
//   7  the intent is cleared and the outcome noted
//
// An exchange is a rename that, in step 6, gives the source's name to what it has replaced. That
// has no name between the steps 4 and 6, so its mark stays until step 7; and before step 4 the
// source's directory is changed, because something new comes into it.
//
// Every step is one change of a register that requires the slot which the intent names, or what an
// earlier step has made of it, known by the nonce; so doing it twice, or late, does nothing. A
// rename that became impossible (its source was taken away before step 2, its target or what that
// names was changed before step 4) stays impossible for ever, because slots never come back.
//
// Power may be lost between any two steps. The intent is written through before anything rests on
// it, the target's entry before the source's goes, and that before the intent does; what else was
// forgotten is done again.

#include <algorithm>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"
#include "fs/names/names.h"

namespace pinstripe {
namespace {

// A rename that was begun can be finished, or taken back, however full the drives are.
const ChangeTerms kFinishing{Durability::kWriteBack, Room::kFreeing};
const ChangeTerms kFinishingSafely{Durability::kWriteThrough, Room::kFreeing};

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
  // A directory takes the place of a directory alone.
  const FileKind replaced = intent.exchange.value_or(moved);
  const bool loses =
      replaced == FileKind::kDirectory && (intent.exchange ? crosses : intent.replaced != 0);
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
  const bool is_as_seen = begun || (found.entry && found.entry->inode == entry.inode);
  if (is_as_seen && found.slot == intent.source_slot) {
    const auto change = records_.ChangeEntry(intent.source, intent.source_name, intent.source_slot,
                                             entry, kFinishing);
    TRY(change.why);
    found = change.now;
  }
  if (!WrittenBy(intent, found, entry.inode)) return std::optional<uint64_t>();
  return std::optional(found.slot);
}

// As it is with the mark; null: it has changed since it was looked at, and cannot be replaced.
Result<std::optional<StoredInode>> Names::MarkReplaced(InodeId id, const RenameIntent& intent,
                                                       std::optional<StoredInode> seen) {
  const ReplacementMark mark{id, intent.nonce, {intent.target, intent.target_name}};
  const auto is_marked = [&](const std::optional<StoredInode>& stored) {
    return stored && stored->inode.mark && stored->inode.mark->nonce == mark.nonce;
  };
  std::optional<StoredInode> stored =
      seen ? std::move(seen) : TRY(records_.FindInode(intent.replaced));
  // By the mark alone a directory is told to get another parent.
  const bool reparents = intent.exchange == FileKind::kDirectory && intent.source != intent.target;
  if (is_marked(stored)) {
    if (reparents) TRY(records_.MakeInodeDurable(intent.replaced));
    return stored;
  }
  if (!stored || stored->slot != intent.replaced_slot) return std::optional<StoredInode>();
  Inode marked = stored->inode;
  marked.mark = mark;
  const auto change = records_.ChangeInode(
      intent.replaced, intent.replaced_slot, marked,
      {reparents ? Durability::kWriteThrough : Durability::kWriteBack, Room::kFreeing});
  TRY(change.why);
  return is_marked(change.now) ? change.now : std::nullopt;
}

// Nobody writes the target's entry any more, however late, if that has not happened yet.
Status Names::FenceTarget(const RenameIntent& intent, InodeId id) {
  for (Attempts attempts; attempts.Next();) {
    const StoredEntry found = TRY(records_.FindEntry(intent.target, intent.target_name));
    if (WrittenBy(intent, found, id) || found.slot != intent.target_slot) return {};
    const auto change = records_.ChangeEntry(intent.target, intent.target_name, found.slot,
                                             found.entry, kFinishing);
    TRY(change.why);
    if (change.applied()) return {};
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "take a rename to '{}' back: others changed the name {} times in between",
              intent.target_name, Attempts::kMost);
}

// The mark has done its work: the rename is about to be over. The mark of an exchange may not come
// back once nobody can tell any more what it was.
Status Names::Unmark(const RenameIntent& intent, bool done) {
  if (intent.replaced == 0) return {};
  const auto durability = intent.exchange ? Durability::kWriteThrough : Durability::kWriteBack;
  for (Attempts attempts; attempts.Next();) {
    const std::optional<StoredInode> stored = TRY(records_.FindInode(intent.replaced));
    if (!stored || !stored->inode.mark || stored->inode.mark->nonce != intent.nonce) return {};
    Inode open = stored->inode;
    open.mark.reset();
    if (done) {
      open.changed = records_.WallClock();
      if (IsDirectory(open)) open.parent = intent.source;
    }
    const auto change =
        records_.ChangeInode(intent.replaced, stored->slot, open, {durability, Room::kFreeing});
    TRY(change.why);
    if (change.applied()) return {};
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "exchange inode {:016x}: others changed it {} times in between; try again",
              intent.replaced, Attempts::kMost);
}

Result<bool> Names::HasMarkedName(InodeId id, const ReplacementMark& mark) {
  const GivenName& place = mark.place;
  if (place.directory == 0) return false;
  const StoredEntry found = TRY(records_.FindEntry(place.directory, place.name));
  return found.entry && found.entry->inode == id;
}

Status Names::FinishMark(InodeId id, const StoredInode& stored) {
  const ReplacementMark& mark = *stored.inode.mark;
  const std::optional<StoredInode> mover = TRY(records_.FindInode(mark.mover));
  if (mover && mover->inode.intent && mover->inode.intent->nonce == mark.nonce) {
    TRY(Finish(mark.mover, *mover));
    return {};
  }
  // The mark is of a rename that ended, by somebody who was late. But a directory that was replaced
  // stays closed: it is about to be removed.
  if (IsDirectory(stored.inode) && !TRY(HasMarkedName(id, mark))) return {};
  Inode open = stored.inode;
  open.mark.reset();
  return records_.ChangeInode(id, stored.slot, open, kFinishing).why;
}

// The target's entry is what decides. Once it is written anew as it is, the rename cannot happen.
Result<bool> Names::GiveWay(InodeId id, const StoredInode& stored) {
  const ReplacementMark& mark = *stored.inode.mark;
  for (Attempts attempts; attempts.Next();) {
    const std::optional<StoredInode> mover = TRY(records_.FindInode(mark.mover));
    if (!mover || !mover->inode.intent || mover->inode.intent->nonce != mark.nonce) {
      return !IsDirectory(stored.inode) || TRY(HasMarkedName(id, mark));
    }
    const RenameIntent& intent = *mover->inode.intent;
    const StoredEntry found = TRY(records_.FindEntry(intent.target, intent.target_name));
    if (WrittenBy(intent, found, mark.mover)) {
      TRY(Finish(mark.mover, *mover));
      continue;
    }
    const auto change = records_.ChangeEntry(intent.target, intent.target_name, found.slot,
                                             found.entry, kFinishing);
    TRY(change.why);
    if (change.applied()) return true;
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "take a rename over inode {:016x} back: others changed it {} times in between",
              id, Attempts::kMost);
}

Result<bool> Names::TakeMarkOff(InodeId id, StoredInode& stored) {
  if (!stored.inode.mark) return true;
  if (!TRY(GiveWay(id, stored))) return false;
  stored.inode.mark.reset();
  return true;
}

Result<Names::Placed> Names::PlaceTarget(InodeId id, const RenameIntent& intent, const Entry& entry,
                                         bool taken, const std::optional<Begun>& begun) {
  StoredEntry found{.entry = std::nullopt, .slot = intent.target_slot};
  Placed placed;
  bool lasts = false;
  std::optional<StoredInode> directory;  // once the entry was there
  // If the source is not there any more, others may have done all of it.
  const bool looks = !begun || !taken;
  if (looks) found = TRY(records_.FindEntry(intent.target, intent.target_name));
  if (!WrittenBy(intent, found, id)) {
    // An absent entry is in another slot since an epoch has begun, though nothing has come of what
    // others may have sent before. The change is refused then, and nothing comes of it any more.
    if (!taken || (found.entry && found.slot != intent.target_slot)) return Placed();
    const InodeId named = found.entry ? found.entry->inode : 0;
    bool is_as_seen = !looks || named == intent.replaced;
    if (is_as_seen && intent.replaced != 0) {
      placed.replaced = TRY(MarkReplaced(id, intent, begun ? begun->replaced : std::nullopt));
      is_as_seen = placed.replaced.has_value();
      // Something may have come into it until it bore the mark.
      const bool replaces_directory =
          is_as_seen && !intent.exchange && IsDirectory(placed.replaced->inode);
      if (replaces_directory) is_as_seen = TRY(IsEmptyAsMarked(intent.replaced, *placed.replaced));
    }
    if (is_as_seen) {
      const auto change = records_.AddEntry(intent.target, intent.target_name, intent.target_slot,
                                            entry, kFinishingSafely);
      TRY(change.why);
      lasts = change.applied();
      found = change.now;
      if (lasts) directory = change.directory;
    } else {
      // Too late; or others have done this, and taken the mark of an exchange away.
      TRY(FenceTarget(intent, id));
      found = TRY(records_.FindEntry(intent.target, intent.target_name));
    }
    if (!WrittenBy(intent, found, id)) return Placed();
  }
  // The old name goes when this is done, and so does what is replaced: a loss of power must not
  // undo this alone then.
  if (!lasts) TRY(records_.MakeEntryDurable(intent.target, intent.target_name));
  // Where the source's directory is the same one, an exchange has changed it just now.
  std::optional<StoredInode> seen;
  if (begun && !(intent.exchange && intent.source == intent.target)) seen = begun->target;
  placed.is_there =
      TRY(NoteGain(intent.target, std::move(seen), CountInTarget(intent, entry.kind), directory));
  if (placed.is_there) return placed;
  TRY(records_.ChangeEntry(intent.target, intent.target_name, found.slot, std::nullopt).why);
  return Placed();
}

// False: also where it was changed since.
Result<bool> Names::IsEmptyAsMarked(InodeId directory, const StoredInode& marked) {
  RegisterHolding mark = records_.HoldingOf(directory, marked.slot);
  Result<bool> is_empty = IsEmpty(directory, &mark);
  if (!is_empty.has_value() && is_empty.error().code() == ESTALE) return false;
  return is_empty;
}

// The source's entry goes, or names what was exchanged for it; safe from power loss.
Status Names::ReleaseSource(InodeId id, const RenameIntent& intent, std::optional<uint64_t> slot) {
  if (!slot) return records_.MakeEntryDurable(intent.source, intent.source_name);  // others did it
  std::optional<Entry> left;
  if (intent.exchange) {
    left = Entry{.inode = intent.replaced, .kind = *intent.exchange, .nonce = intent.nonce};
  }
  for (bool again = true; again;) {
    const auto change =
        records_.ChangeEntry(intent.source, intent.source_name, *slot, left, kFinishingSafely);
    TRY(change.why);
    again = !change.applied() && WrittenBy(intent, change.now, id);  // it was written anew
    slot = change.now.slot;
    if (!change.applied() && !again) {
      return records_.MakeEntryDurable(intent.source, intent.source_name);
    }
  }
  return {};
}

Result<Names::Ending> Names::Conclude(InodeId id, StoredInode stored, bool done,
                                      Durability durability) {
  const RenameIntent intent = *stored.inode.intent;
  while (true) {
    Inode inode = stored.inode;
    inode.intent.reset();
    inode.Note({intent.nonce, done});
    if (done) inode.changed = records_.WallClock();
    if (done && IsDirectory(inode)) inode.parent = intent.target;
    auto change = records_.ChangeInode(id, stored.slot, inode, {durability, Room::kFreeing});
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
  const std::optional<uint64_t> source_slot = TRY(TakeSource(intent, entry, begun.has_value()));
  bool taken = source_slot.has_value();
  if (taken && intent.exchange) taken = TRY(Touch(intent.source, source_seen));
  Placed placed = TRY(PlaceTarget(id, intent, entry, taken, begun));
  const bool done = placed.is_there;
  if (done) TRY(ReleaseSource(id, intent, source_slot));
  if (done && intent.source != intent.target) {
    const Subdirectories change = CountInSource(intent, entry.kind);
    if (change == Subdirectories::kSame && source_seen && !intent.exchange) {
      times_.Add(intent.source, *source_seen);
    } else {
      TRY(Touch(intent.source, intent.exchange ? std::nullopt : source_seen, change));
    }
  }
  if (!done || intent.exchange) TRY(Unmark(intent, done));
  const bool replaces = done && intent.replaced != 0 && !intent.exchange;
  // A client that finds the intent again would take another link away.
  const bool counts_down = replaces && (!placed.replaced || placed.replaced->inode.links > 1);
  const Ending ending = TRY(
      Conclude(id, stored, done, counts_down ? Durability::kWriteThrough : Durability::kWriteBack));
  // Only one ends it, so the replaced inode loses one link.
  if (ending == true && replaces) {
    if (placed.replaced) placed.replaced->inode.mark.reset();
    std::function<Status()> make_safe;  // that the intent is gone
    if (!counts_down) make_safe = [&] { return records_.MakeInodeDurable(id); };
    const Status dropped = DropLink(intent.replaced, std::move(placed.replaced), make_safe);
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
    return Fail(ENOTDIR, "rename '{}' onto '{}', which is not a directory", wanted.source_name,
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
    const auto change =
        records_.ChangeInode(mover.directory, other->slot, other->inode, kFinishing);
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
    if (!IsDirectory(stored.inode)) return Fail(ENOTDIR, "inode {:016x} is not a directory", at);
    at = stored.inode.parent;
  }
  return {};
}

Result<bool> Names::MoveWithIntent(const Wanted& wanted, const Place& from, const Place& to) {
  // An inode that had a safe name is to have one.
  if (wanted.source != wanted.target) {
    TRY(MakeReachable(wanted.target));
    if (wanted.exchange) TRY(MakeReachable(wanted.source));
  }
  StoredInode moved = from.inode;
  if (!TRY(TakeMarkOff(from.id, moved))) return false;
  Inode& inode = moved.inode;
  inode.intent = RenameIntent{.nonce = records_.NewRenameNonce(),
                              .source = wanted.source,
                              .source_name = std::string(wanted.source_name),
                              .source_slot = from.slot,
                              .target = wanted.target,
                              .target_name = std::string(wanted.target_name),
                              .target_slot = to.slot,
                              .replaced = to.id,
                              .replaced_slot = to.found() ? to.inode.slot : 0,
                              .exchange = std::nullopt};
  if (wanted.exchange) inode.intent->exchange = to.inode.inode.kind;
  const RenameNonce nonce = inode.intent->nonce;
  const auto change = records_.ChangeInode(from.id, moved.slot, inode, Durability::kWriteThrough);
  TRY(change.why);
  if (!change.applied()) return false;
  Begun begun{.source = from.directory, .target = to.directory, .replaced = std::nullopt};
  if (to.found()) begun.replaced = to.inode;
  const auto ending = Finish(from.id, *change.now, begun);
  if (!ending.has_value()) {
    return Fail(EIO, "rename '{}' to '{}' may have happened, or may yet: {}", wanted.source_name,
                wanted.target_name, ending.error().message());
  }
  if (*ending) return **ending;
  const std::optional<StoredInode> after = TRY(records_.FindInode(from.id));
  if (after) {
    const auto outcome = std::ranges::find(after->inode.renames, nonce, &RenameOutcome::nonce);
    if (outcome != after->inode.renames.end()) return outcome->done;
  }
  return Fail(EIO, "rename '{}' to '{}' may have happened: others changed both since",
              wanted.source_name, wanted.target_name);
}

Result<bool> Names::TryRename(const Wanted& wanted) {
  auto [from, to] = TRY(LookForMove(wanted));
  if (to.found() && to.id == from.id) {
    if (wanted.no_replace) TRY(CheckReplacement(wanted, from, to));
    return true;
  }
  if (to.unborn != 0) {
    if (!TRY(FenceUnborn(wanted.target, wanted.target_name, to.unborn))) return false;
    // Whoever finishes the rename finds the name as the intent says: free.
    const auto cleared =
        records_.ChangeEntry(wanted.target, wanted.target_name, to.slot, std::nullopt);
    TRY(cleared.why);
    if (!cleared.applied()) return false;
    to.slot = cleared.now.slot;
  }
  if (to.found() && to.inode.inode.mark) {
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
  if (to.inode.inode.mark) {
    TRY(FinishMark(to.id, to.inode));
    return false;
  }
  return Move(wanted, from, to, IsDirectory(from.inode.inode) && wanted.source != wanted.target);
}

Status Names::Exchange(InodeId source, std::string_view source_name, InodeId target,
                       std::string_view target_name) {
  const Wanted wanted{source, source_name, target, target_name, false, true};
  for (Attempts attempts; attempts.Next();) {
    if (TRY(TryExchange(wanted))) return {};
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "exchange '{}' and '{}': others changed them {} times in between; try again",
              source_name, target_name, Attempts::kMost);
}

Status Names::Rename(InodeId source, std::string_view source_name, InodeId target,
                     std::string_view target_name, bool no_replace) {
  const Wanted wanted{source, source_name, target, target_name, no_replace, false};
  for (Attempts attempts; attempts.Next();) {
    if (TRY(TryRename(wanted))) return {};
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "rename '{}' to '{}': others changed them {} times in between; try again",
              source_name, target_name, Attempts::kMost);
}

}  // namespace pinstripe
