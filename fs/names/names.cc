#include "fs/names/names.h"

#include <algorithm>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

Failed TooBusy(std::string_view what) {
  return Fail(EIO, "{}: others changed it {} times in between; try again", what, Attempts::kMost);
}

Records::Question QuestionAbout(InodeId directory, std::string_view name) {
  return {.directory = directory, .name = name, .recently = true};
}

// ENOENT, ENOTDIR.
Status CheckDirectory(InodeId id, const std::optional<StoredInode>& stored) {
  if (!stored) return Fail(ENOENT, "there is no directory {:016x}", id);
  if (!IsDirectory(stored->inode)) return Fail(ENOTDIR, "inode {:016x} is not a directory", id);
  return {};
}

Status CheckFound(const Names::Place& place, InodeId directory, std::string_view name) {
  if (place.found()) return {};
  return Fail(ENOENT, "no '{}' in directory {:016x}", name, directory);
}

}  // namespace

Names::NewName::Seen::Seen(const Place& place)
    : slot(place.slot), unborn(place.unborn), directory(place.directory) {
  if (place.found()) entry = Entry{.inode = place.id, .kind = place.inode.inode.kind, .nonce = {}};
}

Result<std::optional<StoredInode>> Names::Find(InodeId id) {
  for (Attempts attempts; attempts.Next();) {
    std::optional<StoredInode> stored = TRY(records_.FindInode(id));
    if (!stored || !stored->inode.intent) return stored;
    TRY(Finish(id, *stored));
  }
  return TooBusy(fmt::format("inode {:016x}", id));
}

Result<StoredInode> Names::Load(InodeId id) {
  std::optional<StoredInode> stored = TRY(Find(id));
  if (!stored) return Fail(ENOENT, "there is no inode {:016x}", id);
  return *std::move(stored);
}

Result<Names::Place> Names::Look(InodeId directory, std::string_view name) {
  return Look(directory, name, records_.Look(QuestionAbout(directory, name)));
}

std::deque<Names::Foreseen> Names::Foresee(InodeId directory, std::span<const std::string> names) {
  constexpr size_t kMost = 16;
  std::vector<Records::Question> questions;
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    if (directory == 0 || name == "..") break;
    questions.push_back(QuestionAbout(directory, name));
    directory = records_.Guess(directory, name);
  }
  const uint64_t updates = updates_;
  const Time now = runtime_.Now();
  auto found = records_.Look(questions);
  std::deque<Foreseen> foreseen;
  for (size_t i = 0; i < questions.size(); ++i) {
    foreseen.push_back({.directory = questions[i].directory,
                        .name = names[i],
                        .found = std::move(found[i]),
                        .updates = updates,
                        .at = now});
  }
  return foreseen;
}

Result<Names::Place> Names::Look(Foreseen foreseen) {
  return Look(foreseen.directory, foreseen.name, std::move(foreseen.found));
}

Result<Names::Place> Names::Look(InodeId directory, std::string_view name,
                                 Result<Records::Found> found) {
  uint64_t dangling_slot = UINT64_MAX;
  for (Attempts attempts; attempts.Next();) {
    if (!attempts.IsFirst()) found = records_.Look(QuestionAbout(directory, name));
    auto [parent, entry, guessed] = TRY(std::move(found));
    TRY(CheckDirectory(directory, parent));
    Place place{.slot = entry.slot, .directory = *std::move(parent)};
    if (!entry.entry) return place;
    const InodeId id = entry.entry->inode;
    std::optional<StoredInode> stored = std::move(guessed);
    if (!stored) stored = TRY(records_.FindInode(id));
    if (!stored) {
      // The name may have been given to another file since it was read.
      if (entry.slot != dangling_slot) {
        dangling_slot = entry.slot;
        continue;
      }
      const Records::InodeRegister read = TRY(records_.FindInodeRegister(id));
      if (read.stored) continue;
      // In its first slot there is a removal where somebody fenced it.
      if (read.slot <= 1 && entry.entry->kind != FileKind::kDirectory) {
        place.unborn = id;
        return place;
      }
      // An inode that is gone never comes back, so its name can go, too. If that fails, nothing
      // depends on it.
      const auto cleared = records_.ChangeEntry(directory, name, entry.slot, std::nullopt);
      if (cleared.why.ok() && !cleared.applied()) continue;
      if (cleared.applied()) {
        place.slot = cleared.now.slot;
        if (entry.entry->kind == FileKind::kDirectory) {
          (void)Touch(directory, place.directory, Subdirectories::kOneLess);
        }
      }
      return place;
    }
    if (!stored->inode.intent) {
      place.id = id;
      place.inode = *std::move(stored);
      return place;
    }
    TRY(Finish(id, *stored));  // after that the name may stand for something else
  }
  return TooBusy(fmt::format("look '{}' up in directory {:016x}", name, directory));
}

Result<Names::Place> Names::LookUp(InodeId directory, std::string_view name) {
  const std::string names[] = {std::string(name)};
  return LookUp(std::move(Foresee(directory, names).front()));
}

Result<Names::Place> Names::LookUp(Foreseen foreseen) {
  const Place place = TRY(Look(foreseen.directory, foreseen.name, std::move(foreseen.found)));
  Remember(foreseen.directory, foreseen.name, foreseen.updates, foreseen.at, place);
  TRY(CheckFound(place, foreseen.directory, foreseen.name));
  return place;
}

void Names::Remember(InodeId directory, std::string_view name, uint64_t updates, Time at,
                     const Place& place) {
  const MutexLock lock(recent_mutex_);
  ForgetLocked(directory, name);
  if (recent_.size() == kMostRecent) recent_.pop_front();
  recent_.push_back({directory, std::string(name), updates, at, place});
}

void Names::Forget(InodeId directory, std::string_view name) {
  const MutexLock lock(recent_mutex_);
  ForgetLocked(directory, name);
}

void Names::ForgetLocked(InodeId directory, std::string_view name) {
  std::erase_if(recent_, [&](const Recent& recent) {
    return recent.directory == directory && recent.name == name;
  });
}

Result<Names::Place> Names::Recall(InodeId directory, std::string_view name,
                                   bool (*serves)(const Place&)) {
  {
    const MutexLock lock(recent_mutex_);
    const auto recent = std::ranges::find_if(
        recent_, [&](const Recent& it) { return it.directory == directory && it.name == name; });
    if (recent != recent_.end()) {
      Recent it = std::move(*recent);
      recent_.erase(recent);
      const bool is_recent = it.updates == updates_ && runtime_.Now() - it.at < kIsRecent;
      it.place.is_recalled = true;
      if (is_recent && serves(it.place)) return it.place;
    }
  }
  const auto listed = RecallListed(directory, name);
  if (listed && serves(*listed)) return *listed;
  return Look(directory, name);
}

std::optional<Names::Place> Names::RecallListed(InodeId directory, std::string_view name) {
  auto listed = records_.listed_places().Take(directory, name);
  if (!listed) return std::nullopt;
  auto in = records_.FindRecent(directory);
  if (!in || !IsDirectory(in->inode)) return std::nullopt;
  return Place{.slot = listed->slot,
               .id = listed->id,
               .inode = std::move(listed->inode),
               .directory = *std::move(in),
               .is_recalled = true};
}

Result<std::pair<Names::Place, Names::Place>> Names::LookForMove(const Wanted& wanted) {
  const Records::Question questions[] = {{wanted.source, wanted.source_name},
                                         {wanted.target, wanted.target_name}};
  auto found = records_.Look(questions);
  Place from = TRY(Look(wanted.source, wanted.source_name, std::move(found[0])));
  TRY(CheckFound(from, wanted.source, wanted.source_name));
  Place to = TRY(Look(wanted.target, wanted.target_name, std::move(found[1])));
  return std::pair(std::move(from), std::move(to));
}

Result<InodeId> Names::ParentOf(InodeId directory) {
  if (directory == kRootInode) return kRootInode;
  for (Attempts attempts; attempts.Next();) {
    const auto stored = TRY(Find(directory));
    TRY(CheckDirectory(directory, stored));
    if (!stored->inode.mark || !attempts.IsFirst()) return stored->inode.parent;
    TRY(FinishMark(directory, *stored));  // it may be about to get another parent
  }
  return TooBusy(fmt::format("directory {:016x}", directory));
}

Result<StoredInode> Names::Update(InodeId id, const Edit& edit, ChangeTerms terms,
                                  std::optional<StoredInode> known) {
  for (Attempts attempts; attempts.Next();) {
    const bool may_be_old = known.has_value();
    StoredInode stored = known ? *std::exchange(known, std::nullopt) : TRY(Load(id));
    if (!TRY(TakeMarkOff(id, stored))) return Fail(ENOENT, "inode {:016x} was replaced", id);
    Inode inode = stored.inode;
    const int64_t now = records_.WallClock();
    times_.Complete(id, inode);
    const Status edited = edit(inode);
    if (!edited.ok() && may_be_old) continue;
    TRY(edited);
    Records::InodeChange change = records_.ChangeInode(id, stored.slot, inode, terms);
    ++updates_;
    TRY(change.why);
    if (change.applied()) {
      times_.Forget(id, now);
      return *std::move(change.now);
    }
    if (!may_be_old) attempts.Pause(runtime_);
  }
  return TooBusy(fmt::format("change inode {:016x}", id));
}

// A thread may come while others change the same directory for the same reason. It finds that done
// by one that began after it, or goes on from what the last one has left.
std::shared_ptr<Names::Noting> Names::TakePart(InodeId directory) {
  const MutexLock lock(notings_mutex_);
  std::erase_if(notings_, [](const auto& it) { return it.second.expired(); });
  std::shared_ptr<Noting> noting = notings_[directory].lock();
  if (noting == nullptr) {
    noting = std::make_shared<Noting>(runtime_);
    notings_[directory] = noting;
  }
  return noting;
}

Result<bool> Names::Touch(InodeId directory, std::optional<StoredInode> seen,
                          Subdirectories change_of_count) {
  const std::shared_ptr<Noting> noting = TakePart(directory);
  const uint64_t before_us = noting->begun;
  Touching touching{.directory = directory,
                    .read_after = !seen,
                    .seen_slot = seen ? seen->slot : 0,
                    .change_of_count = change_of_count,
                    .stored = std::move(seen)};
  for (Attempts attempts; attempts.Next();) {
    std::optional<bool> ended;
    {
      const Turn::Holder turn(noting->turn);
      const bool is_noted = noting->done > before_us;
      if (is_noted && change_of_count == Subdirectories::kSame) return true;
      const uint64_t number = ++noting->begun;
      ended = TRY(TryTouch(touching));
      // Another one's change may have been made before the entry of somebody who goes by this.
      if (touching.applied) noting->done = number;
    }
    if (ended) return *ended;
    if (touching.stored && touching.stored->inode.mark) {
      // Somebody is about to remove or replace it, who may have looked when nothing was in it.
      if (!TRY(TakeMarkOff(directory, *touching.stored))) return false;
    } else if (!attempts.IsFirst()) {
      attempts.Pause(runtime_);
    }
  }
  return TooBusy(fmt::format("change directory {:016x}", directory));
}

// A client that counts subdirectories lists the entries and then replaces the inode as it was
// before. So while the inode is what was seen before the entry changed, nobody who counted has met
// the change. Later it may be in the number already, if they were counted since: then it is not
// known any more.
Result<std::optional<bool>> Names::TryTouch(Touching& touching) {
  auto& [directory, read_after, seen_slot, change_of_count, stored, applied] = touching;
  if (!stored) stored = TRY(records_.FindInode(directory));
  if (!stored) return std::optional(false);
  if (const auto recent = records_.FindRecent(directory); recent && recent->slot > stored->slot) {
    stored = recent;
    read_after = false;
  }
  if (stored->inode.mark) return std::optional<bool>();
  Inode inode = stored->inode;
  inode.modified = inode.changed = records_.WallClock();
  if (change_of_count != Subdirectories::kSame && inode.counted >= seen_slot) {
    change_of_count = Subdirectories::kUnknown;
  }
  inode.Count(change_of_count);
  // It takes as much as before; and a name may have gone, which must be possible on a full drive.
  auto change = records_.ChangeInode(directory, stored->slot, inode,
                                     {Durability::kWriteBack, Room::kFreeing});
  std::optional<StoredInode> now;
  if (change.why.ok()) {
    applied = change.applied();
    if (applied) return std::optional(true);
    now = std::move(change.now);
    if (now) records_.NoteOthers(directory);
  } else {
    // Where many change it, none of them may find out whether his change was among them. If it
    // did change, somebody's was.
    now = TRY(records_.FindInode(directory));
    if (now && now->slot == stored->slot) return Failed(change.why);
    if (change_of_count != Subdirectories::kSame) change_of_count = Subdirectories::kUnknown;
  }
  if (!now) return std::optional(false);
  // Somebody who has moved its time since we read it has done what this is for.
  const bool is_counted = change_of_count == Subdirectories::kSame || now->inode.IsUncounted();
  if (read_after && is_counted && !now->inode.mark &&
      now->inode.modified != stored->inode.modified) {
    return std::optional(true);
  }
  read_after = true;
  stored = std::move(now);
  return std::optional<bool>();
}

Result<bool> Names::NoteGain(InodeId directory, std::optional<StoredInode> seen,
                             Subdirectories change, const std::optional<StoredInode>& after) {
  if (change != Subdirectories::kSame) return Touch(directory, std::move(seen), change);
  if (after && !after->inode.mark) {
    times_.Add(directory, *after);
    return true;
  }
  const auto now = TRY(records_.FindInode(directory));
  if (!now) return false;
  // Somebody is about to remove or replace it, who may have looked when there was nothing in it.
  if (now->inode.mark) return Touch(directory, now);
  times_.Add(directory, *now);
  return true;
}

// Its maker, if he lives, is given a moment to write it.
Result<bool> Names::FenceUnborn(InodeId directory, std::string_view name, InodeId unborn) {
  constexpr Duration kForTheMaker = std::chrono::milliseconds(200);
  const TimeLimit limit(runtime_, kForTheMaker);
  for (Attempts attempts; !limit.has_passed() && attempts.Next(); attempts.Pause(runtime_)) {
    if (TRY(records_.FindInode(unborn))) return false;
  }
  if (TRY(records_.FindTraces(unborn)).value) {
    return Fail(
        EIO,
        "'{}' in directory {:016x} is the name of inode {:016x}, of which a copy is left, on "
        "too few drives to be believed: try again, or see `pinstripe check`",
        name, directory, unborn);
  }
  return records_.FenceNew(unborn);
}

// Nothing names the inode, which was made here. If it cannot be removed, a collection takes it some
// day.
void Names::Discard(InodeId id, const StoredInode& made) {
  Status discarded;
  if (IsDirectory(made.inode)) {
    const auto removed = RemoveEmpty(id, made, *made.inode.named);
    if (!removed.has_value()) {
      discarded = removed.error();
    } else if (*removed != Removal::kDone) {
      discarded = Fail(ENOTEMPTY, "somebody has seen its name, and changed it");
    }
  } else {
    discarded = records_.ChangeInode(id, made.slot, std::nullopt).why;
  }
  if (discarded.ok()) return;
  Log(LogLevel::kWarn, "an inode without a name stays behind",
      {{"inode", fmt::format("{:016x}", id)}, {"why", discarded}});
}

Status Names::MakeReachable(InodeId directory) {
  if (directory == kRootInode) return {};
  {
    const MutexLock lock(reachable_mutex_);
    if (reachable_.contains(directory)) return {};
  }
  TRY_CONTEXT(records_.SyncChanges(), "make directory {:016x} safe", directory);
  const MutexLock lock(reachable_mutex_);
  if (reachable_.size() == kMostReachable) reachable_.clear();
  reachable_.insert(directory);
  return {};
}

// A name was given, and then its directory could not be told: `touched` says why, or that it is
// gone. Has the name stand for `former` again, as if it had not been given.
Changed Names::TakeBack(const NewName& name, uint64_t slot, const std::optional<Entry>& former,
                        const Result<bool>& touched) {
  if (touched.has_value()) {
    // Nobody finds a name in a directory that is gone.
    (void)records_.ChangeEntry(name.directory, name.name, slot, std::nullopt);
    return {.effect = Effect::kRefused,
            .why = Fail(ENOENT, "directory {:016x} was removed", name.directory)};
  }
  const auto taken = records_.ChangeEntry(name.directory, name.name, slot, former,
                                          {Durability::kWriteBack, Room::kFreeing});
  if (taken.applied()) return {.effect = Effect::kRefused, .why = touched.error()};
  return {.effect = Effect::kUnknown,
          .why = Fail(EIO,
                      "whether '{}' has its name in directory {:016x} is not certain: {}; it could "
                      "not be taken back: {}",
                      name.name, name.directory, touched.error().message(),
                      taken.why.ok() ? "others have changed it" : taken.why.message())};
}

Result<std::optional<Names::Made>> Names::Make(InodeId directory, std::string_view name,
                                               const Place& place, const Inode& inode) {
  if (place.unborn != 0 && !TRY(FenceUnborn(directory, name, place.unborn)))
    return std::optional<Made>();
  Inode named = inode;
  named.named = GivenName{directory, std::string(name)};
  const auto [id, written, change] = records_.CreateNamed(directory, name, place.slot, named);
  if (!written.applied()) {
    // An entry of something that is not there is not a name.
    if (!written.unknown() && change.applied()) {
      (void)records_.ChangeEntry(directory, name, change.now.slot, std::nullopt);
    }
    if (!written.unknown() && change.unknown()) return Failed(change.why);
    TRY(written.why);
    return std::optional<Made>();
  }
  const StoredInode& stored = *written.now;
  if (change.unknown()) return Failed(change.why);  // it may name the inode
  if (!change.applied()) {
    Discard(id, stored);
    TRY(change.why);
    return std::optional<Made>();
  }
  const auto count = IsDirectory(inode) ? Subdirectories::kOneMore : Subdirectories::kSame;
  const Result<bool> touched = NoteGain(directory, place.directory, count, change.directory);
  if (touched.has_value() && *touched) {
    large_.Made(directory);
    return std::optional(Made{id, stored, change.now.slot});
  }
  const Changed taken = TakeBack({.directory = directory, .name = std::string(name), .seen = {}},
                                 change.now.slot, std::nullopt, touched);
  if (!taken.unknown()) Discard(id, stored);
  return Failed(taken.why);
}

Status Names::DropLink(InodeId id, std::optional<StoredInode> seen,
                       const std::function<Status()>& make_safe) {
  bool lasts = make_safe == nullptr;
  for (Attempts attempts; attempts.Next();) {
    std::optional<StoredInode> stored = seen ? std::exchange(seen, std::nullopt) : TRY(Find(id));
    if (!stored) return {};
    std::optional<Inode> after;
    if (stored->inode.links > 1 && !IsDirectory(stored->inode)) {
      if (!lasts) TRY(make_safe());
      lasts = true;
      TRY(TakeMarkOff(id, *stored));
      after = stored->inode;
      --after->links;
      after->changed = records_.WallClock();
    }
    const auto change =
        records_.ChangeInode(id, stored->slot, after, {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (change.applied()) {
      if (!after) dispose_(id, stored->inode, change.losses);
      return {};
    }
    attempts.Pause(runtime_);
  }
  return TooBusy(fmt::format("remove inode {:016x}", id));
}

Result<StoredInode> Names::Link(InodeId id, InodeId directory, std::string_view name) {
  for (Attempts attempts; attempts.Next();) {
    const Place place = TRY(Recall(directory, name, IsFree));
    if (place.found()) return Fail(EEXIST, "'{}' exists in directory {:016x}", name, directory);
    if (place.unborn != 0 && !TRY(FenceUnborn(directory, name, place.unborn))) continue;
    // A client that removes another name of it relies on this one.
    TRY(MakeReachable(directory));
    const StoredInode linked = TRY(Update(
        id,
        [&](Inode& inode) -> Status {
          if (IsDirectory(inode))
            return Fail(EPERM, "directory {:016x} can have one name only", id);
          if (inode.links >= kMaxLinks) {
            return Fail(EMLINK, "inode {:016x} has {} names: at most {} are allowed", id,
                        inode.links, kMaxLinks);
          }
          ++inode.links;
          inode.named = GivenName{directory, std::string(name)};
          inode.changed = records_.WallClock();
          return {};
        },
        Durability::kWriteThrough, records_.FindRecent(id)));
    const Entry entry{.inode = id, .kind = linked.inode.kind, .nonce = std::nullopt};
    const auto change =
        records_.AddEntry(directory, name, place.slot, entry, Durability::kWriteThrough);
    // If nobody can tell whether this happened, the count stays: it may be too high, never too low.
    if (change.unknown()) return Failed(change.why);
    if (!change.applied()) {
      TRY(DropLink(id));
      TRY(change.why);
      attempts.Pause(runtime_);
      continue;
    }
    const Result<bool> touched =
        NoteGain(directory, place.directory, Subdirectories::kSame, change.directory);
    if (touched.has_value() && *touched) return linked;
    const Changed taken = TakeBack({.directory = directory, .name = std::string(name), .seen = {}},
                                   change.now.slot, std::nullopt, touched);
    if (!taken.unknown()) {
      TRY(DropLink(id, {}, [&] { return records_.MakeEntryDurable(directory, name); }));
    }
    return Failed(taken.why);
  }
  return TooBusy(fmt::format("link '{}' in directory {:016x}", name, directory));
}

// A name of the directory is gone. If this fails, its number of subdirectories stays what it was.
void Names::NoteRemoval(InodeId directory, const StoredInode& seen, Subdirectories change) {
  if (change == Subdirectories::kSame) return times_.Add(directory, seen);
  const Result<bool> touched = Touch(directory, seen, change);
  if (touched.has_value()) return;
  Log(LogLevel::kWarn, "a directory counts a subdirectory that was removed",
      {{"directory", fmt::format("{:016x}", directory)}, {"why", touched.error()}});
}

Status Names::Unlink(InodeId directory, std::string_view name) {
  for (Attempts attempts; attempts.Next();) {
    const Place place = TRY(Recall(directory, name, [](const Place& recalled) {
      return recalled.found() && !IsDirectory(recalled.inode.inode);
    }));
    TRY(CheckFound(place, directory, name));
    if (IsDirectory(place.inode.inode)) {
      return Fail(EISDIR, "'{}' in directory {:016x} is a directory", name, directory);
    }
    // Where it has other names its count must not go down before this one is gone for good.
    const bool has_others = place.inode.inode.links > 1;
    const auto change =
        records_.ChangeEntry(directory, name, place.slot, std::nullopt,
                             has_others ? Durability::kWriteThrough : Durability::kWriteBack);
    TRY(change.why);
    if (!change.applied()) {
      attempts.Pause(runtime_);
      continue;
    }
    std::function<Status()> make_safe;
    if (!has_others) make_safe = [&] { return records_.MakeEntryDurable(directory, name); };
    // The name is gone: what fails from here on leaves something behind, and undoes nothing.
    NoteRemoval(directory, place.directory, Subdirectories::kSame);
    const Status dropped = DropLink(place.id, place.inode, make_safe);
    if (!dropped.ok()) {
      Log(LogLevel::kWarn, "a file whose name was removed stays behind",
          {{"inode", fmt::format("{:016x}", place.id)}, {"why", dropped}});
    }
    return {};
  }
  return TooBusy(fmt::format("unlink '{}' in directory {:016x}", name, directory));
}

Result<bool> Names::IsEmpty(InodeId directory, RegisterHolding* mark) {
  // Where there are none to be found at first, many may have been removed.
  size_t at_once = 64;
  for (std::string first;; at_once = 1000) {
    const Records::Page page = TRY(records_.List(directory, first, at_once, mark));
    for (const auto& [name, entry, slot] : page.entries) {
      if (TRY(records_.FindInode(entry.inode))) return false;
      // Its maker may be at it, and know already that the directory bore no mark.
      if (mark != nullptr && TRY(records_.FindInodePinned(entry.inode))) return false;
    }
    if (!page.next) return true;
    first = *page.next;
  }
}

// The mark is one of the directory itself, which is no rename's. If this process dies, it is taken
// off by whoever meets it.
Result<Names::Removal> Names::RemoveEmpty(InodeId id, const StoredInode& found,
                                          const GivenName& place, Durability durability) {
  const int64_t now = records_.WallClock();
  Inode open = found.inode;
  times_.Complete(id, open);
  Inode closed = open;
  closed.mark = ReplacementMark{id, records_.NewRenameNonce(), place};
  RegisterHolding mark;
  const auto marked =
      records_.ChangeInode(id, found.slot, closed, {Durability::kWriteBack, Room::kFreeing}, &mark);
  TRY(marked.why);
  if (!marked.applied()) return Removal::kChanged;
  times_.Forget(id, now);
  const Result<bool> is_empty = IsEmpty(id, &mark);
  if (!is_empty.has_value() && is_empty.error().code() == ESTALE) return Removal::kChanged;
  if (!TRY(is_empty)) {
    const auto opened =
        records_.ChangeInode(id, marked.now->slot, open, {Durability::kWriteBack, Room::kFreeing});
    TRY(opened.why);
    return Removal::kNotEmpty;
  }
  const auto removed = records_.ChangeInode(id, marked.now->slot, std::nullopt, durability);
  TRY(removed.why);
  if (!removed.applied()) return Removal::kChanged;
  times_.Forget(id, INT64_MAX);
  dispose_(id, found.inode, removed.losses);
  return Removal::kDone;
}

Status Names::RemoveDirectory(InodeId directory, std::string_view name) {
  for (Attempts attempts; attempts.Next();) {
    Place place = TRY(Recall(directory, name, [](const Place& recalled) {
      return recalled.found() && IsDirectory(recalled.inode.inode) && !recalled.inode.inode.mark;
    }));
    // What was removed from it here since has changed it.
    const auto recent = place.is_recalled ? records_.FindRecent(place.id) : std::nullopt;
    if (recent && recent->slot != place.inode.slot) place = TRY(Look(directory, name));
    TRY(CheckFound(place, directory, name));
    if (!IsDirectory(place.inode.inode)) {
      return Fail(ENOTDIR, "'{}' in directory {:016x} is not a directory", name, directory);
    }
    if (place.inode.inode.mark) {
      TRY(FinishMark(place.id, place.inode));
      attempts.Pause(runtime_);
      continue;
    }
    // It is gone for good before its name is: what was removed from it may come back with a loss of
    // power, and must not be found in a directory without a name.
    const Removal removal = TRY(RemoveEmpty(place.id, place.inode, {directory, std::string(name)},
                                            Durability::kWriteThrough));
    if (removal == Removal::kNotEmpty && !place.is_recalled) {
      return Fail(ENOTEMPTY, "'{}' in directory {:016x} is not empty", name, directory);
    }
    if (removal != Removal::kDone) {  // the name may stand for another one by now
      attempts.Pause(runtime_);
      continue;
    }
    // From here on the directory is gone. An entry that stays is not a name any more. It goes with
    // the process that finds it, which counts it then.
    const auto removed = records_.ChangeEntry(directory, name, place.slot, std::nullopt);
    const auto count = removed.applied()   ? Subdirectories::kOneLess
                       : removed.unknown() ? Subdirectories::kUnknown
                                           : Subdirectories::kSame;
    NoteRemoval(directory, place.directory, count);
    return {};
  }
  return TooBusy(fmt::format("remove '{}' in directory {:016x}", name, directory));
}

Result<std::optional<uint32_t>> Names::FindSubdirectories(InodeId directory,
                                                          uint64_t most_entries) {
  constexpr uint64_t kAtOnce = 1000;
  uint64_t listed = 0;
  uint32_t found = 0;
  for (std::string first;;) {
    const Records::Page page =
        TRY(records_.List(directory, first, std::min(most_entries - listed, kAtOnce)));
    listed += page.entries.size();
    for (const auto& [name, entry, slot] : page.entries) {
      if (entry.kind == FileKind::kDirectory) ++found;
    }
    if (!page.next) return std::optional(found);
    if (listed >= most_entries) return std::optional<uint32_t>();
    first = *page.next;
  }
}

Result<StoredInode> Names::NoteSubdirectories(InodeId directory, const StoredInode& stored,
                                              uint32_t found) {
  Inode counted = stored.inode;
  counted.links = kLinksOfEmptyDirectory + found;
  counted.counted = stored.slot;
  if (counted.links == stored.inode.links) return stored;
  auto change = records_.ChangeInode(directory, stored.slot, counted,
                                     {Durability::kWriteBack, Room::kFreeing});
  TRY(change.why);
  if (!change.now) return Fail(ENOENT, "directory {:016x} was removed", directory);
  return *std::move(change.now);
}

Result<StoredInode> Names::CountSubdirectories(InodeId directory, const StoredInode& stored) {
  TRY(CheckDirectory(directory, stored));
  const std::optional<uint32_t> found = TRY(FindSubdirectories(directory));
  return NoteSubdirectories(directory, stored, found.value_or(0));
}

Result<bool> Names::FenceName(InodeId id, const GivenName& name) {
  for (Attempts attempts; attempts.Next();) {
    const StoredEntry stored = TRY(records_.FindEntry(name.directory, name.name));
    if (stored.entry && stored.entry->inode == id) return false;
    // A rename that has written this entry must find it as it left it, so it is finished first.
    if (stored.entry && stored.entry->nonce) TRY(Find(stored.entry->inode));
    const auto change = records_.ChangeEntry(name.directory, name.name, stored.slot, stored.entry,
                                             {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (change.applied()) return true;
    attempts.Pause(runtime_);
  }
  return Fail(EIO, "the name that it should have was changed {} times in between", Attempts::kMost);
}

Result<bool> Names::HasNameInParent(InodeId directory, const Inode& inode) {
  for (std::string first;;) {
    const Records::Page page = TRY(records_.List(inode.parent, first, kMaxRangeKeys));
    for (const auto& [name, entry, slot] : page.entries) {
      if (entry.inode == directory) return true;
    }
    if (!page.next) return false;
    first = *page.next;
  }
}

// The inode says where its name will be before it is there. So of two that do this, to different
// places, the second one fences the first one's.
Result<bool> Names::Reattach(InodeId directory, const GivenName& place) {
  const std::optional<StoredInode> stored = TRY(Find(directory));
  TRY(CheckDirectory(directory, stored));
  if (stored->inode.IsMarkedByRename(directory)) return false;
  // A process that renames it from here on changes the inode, which then is not as it was found.
  const bool has_parent = TRY(Find(stored->inode.parent)).has_value();
  if (has_parent && TRY(HasNameInParent(directory, stored->inode))) return false;
  if (const auto& named = stored->inode.named; named && !TRY(FenceName(directory, *named))) {
    if (TRY(Find(named->directory)).has_value()) return false;
    // It has the name still, in a directory that is gone for ever.
    const StoredEntry left = TRY(records_.FindEntry(named->directory, named->name));
    TRY(records_.ChangeEntry(named->directory, named->name, left.slot, std::nullopt).why);
  }
  const StoredEntry there = TRY(records_.FindEntry(place.directory, place.name));
  if (there.entry) return false;
  Inode inode = stored->inode;
  inode.mark.reset();
  inode.named = place;
  inode.parent = place.directory;
  const auto told = records_.ChangeInode(directory, stored->slot, inode, Durability::kWriteThrough);
  TRY(told.why);
  if (!told.applied()) return false;
  const Entry entry{.inode = directory, .kind = FileKind::kDirectory, .nonce = std::nullopt};
  const auto given = records_.ChangeEntry(place.directory, place.name, there.slot, entry,
                                          Durability::kWriteThrough);
  TRY(given.why);
  if (!given.applied()) return false;
  const Result<bool> touched = Touch(place.directory, std::nullopt, Subdirectories::kOneMore);
  if (touched.has_value() && *touched) return true;
  return Failed(TakeBack({.directory = place.directory, .name = place.name, .seen = {}},
                         given.now.slot, std::nullopt, touched)
                    .why);
}

}  // namespace pinstripe
