#include "fs/files/state.h"

#include <algorithm>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {

FileState::FileState(FileContext& context, InodeId id) : FileCommit(context, id) {
  unsafe_.Add(0, UINT64_MAX);
}

FileState::FileState(FileContext& context, InodeId id, const Inode& inode,
                     std::optional<Names::NewName> name)
    : FileCommit(context, id), name_(std::move(name)) {
  base_ = now_ = inode;
  loaded_ = changed_ = true;
  cut_to_ = 0;
  published_ = inode_written_ = false;
  if (name_) base_.named = now_.named = GivenName{name_->directory, name_->name};
}

void FileState::Remember(Names::NewName name, uint64_t slot) {
  const MutexLock lock(mutex_);
  name_ = std::move(name);
  entry_slot_ = slot;
  entry_durable_ = false;
  is_fresh_ = !changed_;
}

// ---- Committing, and the first name

Status FileState::Commit(bool durably) {
  const Turn::Holder turn(turn_);
  Status status = CommitUnderTurn(durably);
  has_failed_ = !status.ok();
  return status;
}

Status FileState::Appear() {
  const Turn::Holder turn(turn_);
  if (published_ || has_failed_) return {};
  TRY(CommitUnderTurn(/*durably=*/false));
  unasked_ = published_;
  return {};
}

Status FileState::CommitUnderTurn(bool durably) {
  {
    const MutexLock lock(mutex_);
    if (removed_) return unpublishable_;
    if (is_nameless()) {
      sync_asked_ |= durably;
      return limbo_;
    }
  }
  TRY(forgotten_);
  // The file that loses the name goes.
  const bool replaces = !published_ && name_->seen && name_->seen->entry;
  if (changed_) TRY(CommitWithName(durably || replaces));
  if ((durably || replaces) && !inode_durable_) TRY(CommitChanges(true));
  if (!published_) TRY(GiveName(durably ? Durability::kWriteThrough : Durability::kWriteBack));
  if (durably) TRY(MakeNameDurable());
  unasked_ = false;
  return {};
}

// The first time inode and name are written at once, where the name was seen to be free.
Status FileState::CommitWithName(bool durably) {
  const bool at_once = !published_ && !was_tried() && !maybe_has_name_ && name_->seen &&
                       !name_->seen->entry && name_->seen->unborn == 0;
  if (!at_once) return CommitChanges(durably);
  first_name_ = FirstName{name_->directory, name_->name, name_->seen->slot};
  const Status committed = CommitChanges(durably);
  first_name_.reset();
  if (committed.ok() || !given_) return committed;
  // Nobody finds a name whose inode is not there; but that may yet come.
  const Records::EntryChange given = *std::exchange(given_, std::nullopt);
  bool may_be_there = given.unknown() || (uncertain_ && given.applied());
  if (!uncertain_ && given.applied()) {
    const auto taken =
        context_.records.ChangeEntry(name_->directory, name_->name, given.now.slot, std::nullopt);
    may_be_there = !taken.applied() && !taken.why.ok();
  }
  const MutexLock lock(mutex_);
  name_->seen.reset();
  if (may_be_there) maybe_has_name_ = true;
  if (may_be_there && inode_written_ && committed.code() != EIO) {
    return Fail(EIO, "inode {:016x}: it may have happened: {}", id_, committed.message());
  }
  return committed;
}

Status FileState::GiveName(Durability durability) {
  Names::Publication published;
  do {
    if (published.wants_safe) TRY(CommitChanges(true));  // others have made the name meanwhile
    Names::NewName name = *name_;
    StoredInode own;
    {
      const MutexLock lock(mutex_);
      name_->seen.reset();  // good for one attempt
      own = {base_, slot_};
    }
    published = context_.names.Publish(name, id_, own, inode_durable_, durability,
                                       std::exchange(given_, std::nullopt));
    const MutexLock lock(mutex_);
    slot_ = own.slot;
    if (!changed_) base_ = now_ = own.inode;
  } while (published.wants_safe);
  if (published.applied()) {
    const MutexLock lock(mutex_);
    published_ = true;
    entry_slot_ = published.slot;
    entry_durable_ = published.slot == 0 || published.lasts;
    return {};
  }
  if (published.unknown()) maybe_has_name_ = true;
  // Without a name it goes with its last handle, unless another attempt gives it one.
  if (!published.is_final || maybe_has_name_) return published.why;
  // It can have no name: nothing of it stays.
  unpublishable_ = published.why;
  const auto removed = context_.records.ChangeInode(id_, slot_, std::nullopt);
  if (!removed.applied()) {
    Log(LogLevel::kWarn, "an inode without a name stays behind",
        {{"inode", fmt::format("{:016x}", id_)}, {"why", removed.why}});
  }
  Removed(Known(), removed.losses);
  return published.why;
}

bool FileState::IsNameless() {
  const MutexLock lock(mutex_);
  return !removed_ && is_nameless();
}

bool FileState::IsToAppear() {
  const MutexLock lock(mutex_);
  return !removed_ && !published_ && name_.has_value();
}

Result<bool> FileState::Discard() {
  const Turn::Holder turn(turn_);
  {
    const MutexLock lock(mutex_);
    if (removed_ || published_ || !name_) return false;
  }
  // An attempt to commit it has failed half way.
  RemoveUnpublished();
  if (removed_) return true;
  if (inode_written_ || uncertain_ || maybe_has_name_) {
    return Fail(EIO, "whether inode {:016x} was named '{}' in directory {:016x} is not known", id_,
                name_->name, name_->directory);
  }
  Removed(Known(), context_.records.CountLosses(id_));
  return true;
}

Status FileState::GiveFirstName(const Names::NewName& name) {
  const Turn::Holder turn(turn_);
  TRY(limbo_);
  {
    const MutexLock lock(mutex_);
    if (removed_) return Fail(ENOENT, "inode {:016x} was removed", id_);
    if (!is_nameless()) return Fail(EEXIST, "inode {:016x} has a name by now", id_);
    base_.named = now_.named = GivenName{name.directory, name.name};
    base_.changed = now_.changed = context_.records.WallClock();
    changed_ = true;
  }
  TRY(CommitChanges(sync_asked_));
  StoredInode own;
  {
    const MutexLock lock(mutex_);
    own = {base_, slot_};
  }
  // Somebody who has changed it meanwhile may have found the name that it could not have.
  own.inode.named = GivenName{name.directory, name.name};
  const Names::Publication published =
      context_.names.Publish(name, id_, own, /*is_safe=*/false, Durability::kWriteBack);
  const MutexLock lock(mutex_);
  slot_ = own.slot;
  base_ = now_ = own.inode;
  if (published.effect == Effect::kRefused) return published.why;
  if (published.unknown()) {
    // A second attempt could give it two names that count as one, and the first may yet appear.
    maybe_has_name_ = true;
    limbo_ = Fail(EIO,
                  "whether inode {:016x} was named '{}' in directory {:016x} cannot be found out; "
                  "look there, and copy it to a new file if it is not",
                  id_, name.name, name.directory);
    return published.why;
  }
  name_ = name;
  published_ = true;
  entry_slot_ = published.slot;
  entry_durable_ = published.slot == 0;
  return {};
}

Status FileState::MakeNameDurable() {
  if (!name_ || entry_durable_) return {};
  const Entry entry{.inode = id_, .kind = FileKind::kRegular, .nonce = std::nullopt};
  for (Attempts attempts; attempts.Next();) {
    const auto change = context_.records.ChangeEntry(name_->directory, name_->name, entry_slot_,
                                                     entry, Durability::kWriteThrough);
    TRY(change.why);
    const MutexLock lock(mutex_);
    const bool is_ours = change.now.entry && change.now.entry->inode == id_;
    // Drives that lost their power one after the other have forgotten it: it is made again.
    const bool is_forgotten = !change.applied() && change.now.slot < entry_slot_;
    entry_slot_ = change.now.slot;
    // If others changed the entry meanwhile, it is no longer the one that this file was made with;
    // unless they wrote the same anew.
    entry_durable_ = change.applied() || (!is_ours && !is_forgotten);
    if (entry_durable_) return {};
  }
  return Fail(EIO, "make '{}' safe in directory {:016x}: it was written anew {} times in between",
              name_->name, name_->directory, Attempts::kMost);
}

// ---- Attributes and the end

Result<Attributes> FileState::Stat(Duration age) {
  bool on_drives = false;
  {
    const MutexLock lock(mutex_);
    on_drives = inode_written_ && !removed_;
  }
  std::optional<StoredInode> stored;
  if (on_drives) stored = context_.records.FindRecent(id_, age);
  if (on_drives && !stored) stored = TRY(context_.names.Find(id_));
  Attributes attributes = Describe(stored ? *stored : StoredInode());
  const MutexLock lock(mutex_);
  if (removed_ || (on_drives && !stored)) attributes.links = 0;
  return attributes;
}

// Attributes that were read before our commit are not what is there now. (The last handle that is
// closed commits what was written through another one meanwhile.)
Attributes FileState::Describe(const StoredInode& stored) {
  const MutexLock lock(mutex_);
  const bool is_known_better = stored.slot == 0 || (loaded_ && slot_ > stored.slot);
  Inode known = is_known_better ? LastKnown() : stored.inode;
  ApplyWhatWasSet(known);
  Attributes attributes = known.Describe(id_);
  if (is_nameless()) attributes.links = 0;
  if (!changed_) return attributes;
  attributes.size = now_.size;
  attributes.stored_bytes = now_.Describe(id_).stored_bytes;
  ApplyTimeOfWrite(attributes);
  return attributes;
}

Status FileState::SetAttributes(const AttributeChange& change) {
  if (change.size) TRY(Truncate(*change.size));
  if (!change.mode && !change.user && !change.group && !change.accessed && !change.modified) {
    return {};
  }
  const int64_t now = context_.records.WallClock();
  const Turn::Holder turn(turn_);
  if (!SetWithContents(change, now)) {
    TRY(EditUnderTurn([&](Inode& inode) {
      inode.Apply(change, now);
      return Status();
    }));
  }
  const MutexLock lock(mutex_);
  if (change.modified) modified_.reset();  // what is set counts, not what was written before
  return {};
}

// Programs that copy or unpack make a file, write it, set what it is to have and close it. Nobody
// else has seen contents of it so far. So all that appears at once, with the first commit, and not
// change by change. An ACL is no matter of this: it is read where it is kept.
bool FileState::SetWithContents(const AttributeChange& change, int64_t now) {
  const MutexLock lock(mutex_);
  const bool can = is_fresh_ && changed_ && !removed_ && base_.attributes.empty();
  if (!can) return false;
  if (!set_later_) set_later_ = SetLater();
  AttributeChange& all = set_later_->change;
  if (change.mode) all.mode = change.mode;
  if (change.user) all.user = change.user;
  if (change.group) all.group = change.group;
  if (change.accessed) all.accessed = change.accessed;
  if (change.modified) all.modified = change.modified;
  set_later_->at = now;
  return true;
}

bool FileState::HasSetLater() {
  const MutexLock lock(mutex_);
  return set_later_.has_value();
}

Status FileState::Edit(const Names::Edit& edit, Room room) {
  const Turn::Holder turn(turn_);
  return EditUnderTurn(edit, room);
}

// With what was to be set later: it came before.
Status FileState::EditUnderTurn(const Names::Edit& edit, Room room) {
  // What is set of an inode that nobody has written must not go with a write that comes late.
  TRY(LearnOfFirstWrite());
  std::optional<SetLater> earlier;
  {
    const MutexLock lock(mutex_);
    if (removed_ || !inode_written_) {
      Inode& known = removed_ ? removed_as_ : base_;
      ApplyWhatWasSet(known);
      set_later_.reset();
      return edit(known);
    }
    earlier = set_later_;
  }
  const auto edit_all = [&](Inode& inode) {
    if (earlier) inode.Apply(earlier->change, earlier->at);
    return edit(inode);
  };
  const StoredInode stored =
      TRY(context_.names.Update(id_, edit_all, {Durability::kWriteBack, room}));
  const MutexLock lock(mutex_);
  set_later_.reset();
  is_fresh_ = false;
  // The rest is taken over with the next commit.
  base_.mode = stored.inode.mode;  // with its ACL
  base_.attributes = stored.inode.attributes;
  base_.layout = stored.inode.layout;
  return {};
}

Inode FileState::Known() {
  const MutexLock lock(mutex_);
  Inode known = LastKnown();
  ApplyWhatWasSet(known);
  return known;
}

bool FileState::HasSeen() {
  const MutexLock lock(mutex_);
  return loaded_ || removed_;
}

// For a removed file, its attributes at that time, which others may have changed since it was
// opened. They come with the contents that are still read here.
Inode FileState::LastKnown() const {
  if (!removed_) return base_;
  Inode inode = removed_as_;
  if (loaded_) {
    inode.size = base_.size;
    inode.inline_data = base_.inline_data;
    inode.map = base_.map;
  }
  return inode;
}

uint64_t FileState::Version() {
  const MutexLock lock(mutex_);
  return changed_ ? 0 : slot_;
}

void FileState::Removed(const Inode& last, uint64_t losses) {
  const MutexLock lock(mutex_);
  removed_ = true;
  removed_as_ = last;
  removed_losses_ = losses;
}

// Takes off the drives what a commit has left there that did not come to give the name. Everybody
// who changed its attributes, or moved its shards, has changed the inode.
void FileState::RemoveUnpublished() {
  for (Attempts attempts; attempts.Next();) {
    if (removed_ || published_ || !inode_written_ || uncertain_ || maybe_has_name_) break;
    const auto removed = context_.records.ChangeInode(id_, slot_, std::nullopt);
    if (removed.applied()) {
      Removed(Known(), removed.losses);
      break;
    }
    if (!removed.why.ok() || !removed.now) break;
    const MutexLock lock(mutex_);
    base_ = removed.now->inode;
    slot_ = removed.now->slot;
  }
}

void FileState::Abandon() {
  DirtyBlocks::Blocks blocks;
  const Turn::Holder turn(turn_);
  RemoveUnpublished();
  const MutexLock lock(mutex_);
  blocks = blocks_.TakeAll();
  if (uncertain_ || maybe_has_name_) {
    Log(LogLevel::kWarn, "what was written stays as garbage: it may have been committed",
        {{"inode", fmt::format("{:016x}", id_)}});
    return;
  }
  // Data that an inode has named is the business of the process that removed it, or wrote it anew:
  // others may share it.
  std::vector<BlockMap::Piece> unused = OwnPieces(now_.map, base_.map, id_);
  if (removed_) {
    context_.reaper.AddRemoved(id_, removed_as_, removed_losses_);
    std::erase_if(unused, [this](const BlockMap::Piece& piece) {
      const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
      return MayHold(removed_as_.map, piece.first, place);
    });
  }
  std::erase_if(superseded_, [this](const BlockMap::Piece& piece) {
    return MayHold(base_.map, piece.first, PlaceInRun(piece.run, 0, block_bytes()));
  });
  context_.reaper.Add(unused, block_bytes());
  context_.reaper.Add(superseded_, block_bytes());
  context_.reaper.Add(stored_pages_, block_bytes());
}

}  // namespace pinstripe
