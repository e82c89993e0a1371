// FileState, second part: committing, and what happens when another host was faster.

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/log.h"
#include "base/try.h"
#include "fs/files/map_pages.h"
#include "fs/files/merge.h"
#include "fs/files/state.h"

namespace pinstripe {
namespace {

std::optional<BlockPlace> PlaceIn(const Inode& inode, uint64_t block) {
  return inode.map ? inode.map->Find(block) : std::nullopt;
}

// Of the blocks that are loaded. Garbage is what was written for this file, and no keeper has.
std::vector<BlockMap::Piece> OwnPieces(const std::optional<BlockMap>& map,
                                       const std::optional<BlockMap>& except, InodeId id) {
  if (!map) return {};
  std::vector<BlockMap::Piece> pieces = map->NotIn(except ? *except : BlockMap()).blocks;
  std::erase_if(pieces, [id](const BlockMap::Piece& piece) {
    return piece.run.shared || piece.run.object != id;
  });
  return pieces;
}

constexpr int kMaxLoads = 8;   // of the map of an inode that others change meanwhile
constexpr int kMaxStores = 4;  // of blocks whose drives died before they were flushed

}  // namespace

// ---- Taking over what others did

Status FileState::Refresh() {
  const Turn::Holder turn(turn_);
  TRY(RefreshUnderTurn());
  const std::lock_guard lock(mutex_);
  if (removed_) return Fail(ENOENT, "inode {:016x} was removed", id_);
  return {};
}

Status FileState::Refresh(const StoredInode& seen) {
  {
    const Turn::Holder turn(turn_);
    const bool usable = !removed_ && inode_written_ && seen.inode.kind == FileKind::kRegular;
    if (usable && loaded_ && seen.slot == slot_) return {};
    if (usable && (!loaded_ || seen.slot > slot_)) return Rebase(seen);
  }
  // Somebody here has committed since it was read, or drives have forgotten: only they know which.
  return Refresh();
}

Status FileState::TakeOver(const StoredInode& stored) {
  const Turn::Holder turn(turn_);
  if (removed_ || (loaded_ && stored.slot <= slot_)) return {};
  return Rebase(stored);
}

Result<bool> FileState::RefreshUnderTurn() {
  if (removed_ || !inode_written_) return false;
  const StoredInode stored = TRY(context_.names.Load(id_));
  if (stored.inode.kind != FileKind::kRegular) {
    const int code = stored.inode.kind == FileKind::kDirectory ? EISDIR
                     : stored.inode.kind == FileKind::kSymlink ? ELOOP
                                                               : EINVAL;
    return Fail(code, "inode {:016x} is no file", id_);
  }
  if (loaded_ && stored.slot == slot_) return false;
  (void)CheckRemembered(stored);  // reading goes on with what there is
  TRY(Rebase(stored));
  return true;
}

// Slots only grow, unless a majority of drives lost their power, and with it a change that nobody
// had flushed. What was committed then is gone, and who asks whether it is safe has to be told.
Status FileState::CheckRemembered(const StoredInode& stored) {
  if (stored.slot >= slot_) return {};
  forgotten_ = Fail(EIO,
                    "inode {:016x}: drives have lost their power, and with it what was committed; "
                    "write it again",
                    id_);
  return forgotten_;
}

// Of the blocks that we have, where those are that others have come to share.
void FileState::ResolveTheirs(const Inode& theirs) {
  resolved_.clear();
  KeeperMaps keepers(context_.cluster, context_.records);
  for (const auto& [block, open] : blocks_.all()) {
    const auto there = PlaceIn(theirs, block);
    if (!there || !there->shared) continue;
    const auto place = keepers.Resolve(*there, block);
    if (place.has_value()) resolved_.emplace(block, *place);
    keepers.ForgetPages();
  }
}

// Stripes of ours that a commit has named of which nobody knows whether it happened, and that
// theirs does not name: if it had happened, they may be shared, or garbage, by now. So they are
// stored anew before anything names them again. Both maps are loaded. Called with mutex_ held.
void FileState::SuspectBlocks(const Inode& theirs) {
  if (maybe_named_.empty()) return;
  for (const BlockMap::Piece& piece : OwnPieces(now_.map, theirs.map, id_)) {
    for (uint64_t i = 0; i < piece.run.count; ++i) {
      const uint64_t block = piece.first + i;
      if (MayBeNamed(block, PlaceInRun(piece.run, i, block_bytes()))) suspected_.insert(block);
    }
  }
}

bool FileState::MayBeNamed(uint64_t block, const BlockPlace& stripe) const {
  return std::ranges::any_of(maybe_named_,
                             [&](const BlockMap& map) { return MayHold(map, block, stripe); });
}

// Brings the bytes that we wrote into memory, and nothing else of the block.
Status FileState::KeepOurs(uint64_t block) {
  DirtyBlocks::Block& open = *blocks_.Find(block);
  {
    const std::lock_guard lock(mutex_);
    if (!open.ours.empty()) {
      if (!open.dirty) blocks_.Touch(open);
      MakeRoom(block, open.ours.end(), open);
    }
  }
  std::vector<IntervalSet::Interval> gaps;
  for (const auto& part : open.ours.Within(0, UINT64_MAX)) {
    std::ranges::copy(open.present.GapsWithin(part.first, part.end), std::back_inserter(gaps));
  }
  if (!gaps.empty()) TRY(ReadLower(block, gaps, *open.dirty));
  std::vector<DirtyBlocks::Sent> dropped;
  const std::lock_guard lock(mutex_);
  blocks_.KeepOnlyOurs(open);
  dropped = blocks_.TakeDropped();
  return {};
}

LocalChanges FileState::OurChanges() const {
  LocalChanges ours{.now = now_,
                    .block_bytes = block_bytes(),
                    .written_ends = {},
                    .size_set = size_set_,
                    .cut_to = cut_to_,
                    .cleared = cleared_,
                    .grown_to = grown_to_};
  for (const auto& [block, open] : blocks_.all()) ours.written_ends.emplace(block, open.ours.end());
  return ours;
}

// Lays what we have over what another host has committed. Memory first gets what is ours alone of
// the blocks that cannot be named as they were stored, for as long as the old map says where it is.
Status FileState::MergeWith(const Inode& theirs) {
  LocalChanges ours;
  {
    const std::lock_guard lock(mutex_);
    ours = OurChanges();
  }
  if (!CanMerge(ours, theirs)) {
    return Fail(EIO,
                "inode {:016x} was written by another host at the same time, with another block "
                "size; give both hosts the same layout",
                id_);
  }
  Merged merged;
  {
    const std::lock_guard lock(mutex_);  // others may load pages of our map
    merged = Merge(base_, ours, {theirs, resolved_});
  }
  for (const uint64_t block : merged.relaid) TRY(KeepOurs(block));
  const std::lock_guard lock(mutex_);
  for (const uint64_t block : merged.relaid) {
    const auto stored = PlaceIn(now_, block);
    if (stored) Supersede(BlockMap::PiecesOf(block, *stored));
  }
  blocks_.EraseUnwritten();
  LayUnderBlock0(AsBytes(merged.under_block0));
  now_ = std::move(merged.inode);
  return {};
}

// What a merge looks at: the blocks that we have, and where we cut.
Status FileState::LoadForRebase(StoredInode& theirs) {
  StripeStore& stripes = context_.cluster.stripes();
  const auto load = [&]() -> Status {
    if (!theirs.inode.map) return {};
    const uint64_t bytes = theirs.inode.map->block_bytes();
    if (!maybe_named_.empty()) {
      TRY(LoadPages(stripes, id_, theirs.inode, 0, theirs.inode.map->blocks()));
    }
    for (const auto& [block, open] : blocks_.all()) {
      TRY(LoadPages(stripes, id_, theirs.inode, block, block + 1));
    }
    for (const auto& [first, end] : cleared_.Within(0, theirs.inode.map->blocks())) {
      TRY(LoadPages(stripes, id_, theirs.inode, first, first + 1));
      TRY(LoadPages(stripes, id_, theirs.inode, end - 1, end));
    }
    const uint64_t cut = cut_to_.value_or(UINT64_MAX);
    if (cut == 0 || cut >= theirs.inode.size) return {};
    return LoadPages(stripes, id_, theirs.inode, (cut - 1) / bytes, cut / bytes + 1);
  };
  for (int attempt = 0; attempt < kMaxLoads; ++attempt) {
    const Status status = load();
    const bool may_have_moved = status.code() == ENOENT || status.code() == EIO;
    if (status.ok() || !may_have_moved) return status;
    StoredInode newer = TRY(context_.names.Load(id_));
    if (newer.slot == theirs.slot) return Fail(EIO, "inode {:016x}: {}", id_, status.message());
    theirs = std::move(newer);
  }
  return Fail(EIO, "inode {:016x}: other hosts changed it {} times in between; try again", id_,
              kMaxLoads);
}

// Of contents that are all ours: if theirs are the same, because a commit of ours has happened
// without our knowing it, a repair may have moved shards, and written pages anew, since.
Status FileState::TakePlaces(const Inode& theirs) {
  if (!now_.map || !theirs.map) return {};
  StripeStore& stripes = context_.cluster.stripes();
  Inode there = theirs;
  TRY(LoadPages(stripes, id_, there, 0, there.map->blocks()));
  Inode ours;
  {
    const std::lock_guard lock(mutex_);
    ours.map = now_.map;
    ours.size = now_.size;
  }
  TRY(LoadPages(stripes, id_, ours, 0, ours.map->blocks()));
  ours.map->TakePlaces(*there.map);
  const std::lock_guard lock(mutex_);
  now_.map = std::move(ours.map);
  return {};
}

Status FileState::Rebase(StoredInode theirs) {
  if (changed_) TRY(LoadForRebase(theirs));
  if (changed_) ResolveTheirs(theirs.inode);
  if (changed_ && write_ids_.pass() != 0 && write_ids_.pass() < theirs.inode.collected) {
    return Fail(
        EIO,
        "inode {:016x}: what was written to it and not committed for so long was collected as "
        "garbage, and is lost; commit (fsync) more often, or collect later",
        id_);
  }
  if (changed_ && cut_to_ != 0) TRY(MergeWith(theirs.inode));
  if (changed_ && cut_to_ == 0) TRY(TakePlaces(theirs.inode));
  const std::lock_guard lock(mutex_);
  if (!changed_) now_ = theirs.inode;
  if (changed_) SuspectBlocks(theirs.inode);
  base_ = theirs.inode;
  slot_ = theirs.slot;
  loaded_ = true;
  inode_durable_ = false;
  unsafe_.Add(0, UINT64_MAX);
  ++generation_;
  return {};
}

// ---- Committing

Status FileState::Commit(bool durably) {
  const Turn::Holder turn(turn_);
  return CommitUnderTurn(durably);
}

Status FileState::CommitUnderTurn(bool durably) {
  {
    const std::lock_guard lock(mutex_);
    if (removed_) return unpublishable_;
    if (is_nameless()) {
      sync_asked_ |= durably;
      return limbo_;
    }
  }
  TRY(forgotten_);
  // What it takes the name from goes.
  const bool replaces = !published_ && name_->seen && name_->seen->entry;
  if (changed_) TRY(CommitChanges(durably || replaces));
  if ((durably || replaces) && !inode_durable_) TRY(CommitChanges(true));
  if (!published_) TRY(GiveName(durably ? Durability::kWriteThrough : Durability::kWriteBack));
  if (durably) TRY(MakeNameDurable());
  return {};
}

Status FileState::CommitChanges(bool durably) {
  const Durability durability = durably ? Durability::kWriteThrough : Durability::kWriteBack;
  int stores = 0;
  for (int attempt = 0; attempt < kMaxAttempts;) {
    Inode out;
    TRY(StoreContents(out));
    if (out.map && !suspected_.empty()) {
      if (++stores > kMaxStores) {
        return Fail(EIO,
                    "commit inode {:016x}: other hosts changed it {} times in between; try again",
                    id_, stores);
      }
      TRY(StoreSuspected());
      continue;
    }
    UnsafeStripes::Unsafe unsafe;
    if (durably) {
      unsafe = TRY(unsafe_.FlushAll(out));
    } else if (Endangers(out)) {
      unsafe = TRY(FlushNewStripes(out));
    }
    if (!unsafe.why.ok()) {
      if (++stores > kMaxStores) return unsafe.why;
      TRY(StoreAgain(unsafe));
      continue;
    }
    TRY(forgotten_);  // it may have been found so while stripes were read
    if (TRY(ChangeInode(std::move(out), durability))) return {};
    {
      const std::lock_guard lock(mutex_);
      if (removed_) return {};
    }
    PauseBeforeRetry(context_.cluster.runtime(), attempt++);
  }
  return Fail(EIO, "commit inode {:016x}: other hosts changed it {} times in between; try again",
              id_, kMaxAttempts);
}

// Drives that died between a write and its flush took their shards along, and the others may be too
// few to be safe with. What is left of such a block is enough to store it on drives that live.
Status FileState::StoreAgain(const UnsafeStripes::Unsafe& unsafe) {
  const DriveLosses losses = context_.cluster.CountLosses();
  TRY(StoreAnew(unsafe.blocks));
  unsafe_.ForgetLosses(losses);  // all others are safe
  return {};
}

Status FileState::StoreSuspected() {
  while (!suspected_.empty()) {
    const uint64_t block = *suspected_.begin();
    failure_ = {};
    TRY(StoreAnew({block}));
    FinishBlock(block);
    TRY(failure_);
    suspected_.erase(block);
  }
  return {};
}

Status FileState::StoreAnew(const std::vector<uint64_t>& blocks) {
  for (uint64_t block : blocks) {
    // A page is stored anew when a block in it is.
    const bool is_page = (block & kPageBlocks) != 0;
    block &= ~kPageBlocks;
    TRY(LoadBytes(block * block_bytes(), block * block_bytes() + 1));
    {
      const std::lock_guard lock(mutex_);
      if (is_page) block = FirstStoredFrom(block);
      if (LowerEnd(block) == 0) continue;  // another host has changed it meanwhile
      // From now on what is dirty is given up when another host commits, though nobody wrote it.
      changed_ = true;
      DirtyBlocks::Block& open = BlockAt(block);
      if (!open.dirty) {
        blocks_.Touch(open);
        MakeRoom(block, LowerEnd(block), open);
      }
    }
    TRY(SendBlock(block, Form::kWhole));
    if (blocks_.CountInFlight() > kMaxInFlight) FinishOldest();
  }
  return {};
}

// The first block from this one on that is no hole, of a page that begins with it and is loaded.
uint64_t FileState::FirstStoredFrom(uint64_t block) const {
  for (uint64_t at = block; now_.map && at < now_.map->blocks(); ++at) {
    if (now_.map->FirstMissing(at, at + 1)) break;
    if (now_.map->Find(at)) return at;
  }
  return block;
}

// Whether a loss of power that spares the inode's change, and not the data that it names, could
// cost contents that were safe. Of those that are replaced as a whole nobody expects it.
bool FileState::Endangers(const Inode& out) const {
  const bool keeps_some = base_.size > 0 && cut_to_.value_or(UINT64_MAX) > 0;
  return published_ && keeps_some && out.map.has_value();
}

Result<UnsafeStripes::Unsafe> FileState::FlushNewStripes(Inode& out) {
  BlockMap committed;
  {
    const std::lock_guard lock(mutex_);
    if (base_.map) committed = *base_.map;
  }
  return unsafe_.FlushNew(committed, out);
}

// Stores what is in memory, and says what the inode is to become.
Status FileState::StoreContents(Inode& out) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (TRY(TryStoreContents(out))) return {};
  }
  return Fail(EIO, "commit inode {:016x}: other hosts changed it {} times in between; try again",
              id_, kMaxAttempts);
}

// False: another host's commit was found meanwhile, so that there is more to store.
Result<bool> FileState::TryStoreContents(Inode& out) {
  const auto small_and_dirty = [&] {
    const DirtyBlocks::Block* const first = blocks_.Find(0);
    return first && first->dirty;
  };
  // Of an unwritten file the contents stay as they are kept.
  bool inline_form = false;
  if (now_.size <= layout().inline_limit) {
    inline_form = !now_.map || small_and_dirty();
    const uint64_t slot = slot_;
    if (inline_form) TRY(Fill(0, Form::kWhole));
    if (slot_ != slot) return false;  // and it may be large now
  }
  if (!inline_form && now_.size > 0) {
    TRY(SendAll());
    TRY(StorePages());
  }
  const std::lock_guard lock(mutex_);
  // What the inode does not name when it has changed is forgotten, whoever has written it.
  if (!inline_form && now_.size > 0 && !IsAllStored()) return false;
  out = base_;
  out.size = now_.size;
  out.inline_data.clear();
  out.map.reset();
  if (modified_) out.modified = out.changed = *modified_;
  if (now_.size == 0) return true;
  if (!inline_form) {
    out.map = now_.map;
    return true;
  }
  out.inline_data = now_.inline_data;
  if (const DirtyBlocks::Block* const first = blocks_.Find(0); first && first->dirty) {
    out.inline_data = AsText(first->dirty->data().first(first->present.end()));
  }
  out.inline_data.resize(out.size);
  return true;
}

Status FileState::StorePages() {
  Inode inode;  // a copy: readers may load pages meanwhile
  {
    const std::lock_guard lock(mutex_);
    if (!now_.map) return {};
    inode.map = now_.map;
    inode.size = now_.size;
  }
  unsafe_.NoteLosses();
  const Status status = pinstripe::StorePages(
      context_.cluster.stripes(), id_, inode, context_.map_limits, layout().PageParity(),
      Durability::kWriteBack, [this](uint64_t block) { return NextWriteId(block); }, stored_pages_);
  const std::lock_guard lock(mutex_);
  now_.map = inode.map;
  for (const BlockMap::Piece& page : stored_pages_) unsafe_.Add(page.first, page.first + 1);
  return status;
}

// It may have been written with the first attempt, collected since, and forgotten by all drives.
// One clock stands still while the machine sleeps, and the other may be set.
Status FileState::CheckFirstWrite() {
  Runtime& runtime = context_.cluster.runtime();
  if (!first_write_) first_write_ = FirstWrite{runtime.Now(), runtime.WallClock()};
  const Duration passed =
      std::max<Duration>(runtime.Now() - first_write_->at,
                         std::chrono::nanoseconds(runtime.WallClock() - first_write_->wall_clock));
  if (passed <= kFirstWriteRetries) return {};
  return Fail(ESTALE,
              "inode {:016x}: whether it was written cannot be found out any more, {} minutes "
              "after the first attempt; write the file anew",
              id_, std::chrono::floor<std::chrono::minutes>(passed).count());
}

// A rename that was about to replace this file, as it was, does not happen.
Status FileState::TakeMarkOff(Inode& out) {
  if (!out.mark) return {};
  TRY(context_.names.GiveWay(id_, {out, slot_}));
  out.mark.reset();
  return {};
}

// What only cuts must be possible on full drives.
Room FileState::RoomOf(const Inode& out) {
  const std::lock_guard lock(mutex_);
  if (inode_written_ && out.size < base_.size) return Room::kFreeing;
  return out.inline_data.size() > base_.inline_data.size() ? Room::kData : Room::kNames;
}

// False: another host was faster, and ours is laid over what it did.
Result<bool> FileState::ChangeInode(Inode out, Durability durability) {
  TRY(TakeMarkOff(out));
  const bool again = !inode_written_ && first_write_.has_value();
  if (!inode_written_) TRY(CheckFirstWrite());
  const Room room = RoomOf(out);
  const auto changed = context_.records.ChangeInode(id_, slot_, out, {durability, room});
  if (changed.unknown()) {
    uncertain_ = true;
    // Once for as many attempts as name the same.
    const bool is_known =
        out.map && !maybe_named_.empty() && out.map->NotIn(maybe_named_.back()).blocks.empty();
    if (out.map && !is_known) maybe_named_.push_back(*out.map);
  }
  TRY(changed.why);
  if (changed.applied()) {
    // The machine may have slept since it was looked at.
    const Status in_time = again ? CheckFirstWrite() : Status();
    if (!in_time.ok()) {
      (void)context_.records.ChangeInode(id_, changed.now->slot, std::nullopt);
      return Failed(in_time);
    }
    Committed(*changed.now, durability, changed.losses);
    return true;
  }
  {
    const std::lock_guard lock(mutex_);
    if (removed_) return false;
  }
  if (!changed.now) {
    return Fail(ESTALE, "inode {:016x} was removed by another host while it was open", id_);
  }
  if (!inode_written_) {  // an attempt whose outcome we could not learn had written it
    const std::lock_guard lock(mutex_);
    inode_written_ = true;
  }
  TRY(CheckRemembered(*changed.now));
  TRY(Rebase(*changed.now));
  return false;
}

void FileState::Committed(const StoredInode& stored, Durability durability, uint64_t losses) {
  DirtyBlocks::Blocks blocks;  // go when the mutex is free
  const std::lock_guard lock(mutex_);
  context_.reaper.AddDifference(id_, base_, stored.inode, durability, losses);
  std::vector<BlockMap::Piece> unused;
  for (BlockMap::Piece& piece : superseded_) {
    const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
    // What an inode has named, as one of a commit whose outcome was not known, waits with the rest.
    const bool is_named =
        MayHold(stored.inode.map, piece.first, place) || MayHold(base_.map, piece.first, place);
    if (!is_named) unused.push_back(std::move(piece));
  }
  // Blocks that were stored and did not make it into the inode, as when a file became small again.
  for (BlockMap::Piece& piece : OwnPieces(now_.map, stored.inode.map, id_)) {
    const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
    if (!MayHold(base_.map, piece.first, place)) unused.push_back(std::move(piece));
  }
  for (BlockMap::Piece& page : stored_pages_) {
    const auto named = stored.inode.map ? stored.inode.map->FindPage(page.first) : std::nullopt;
    if (named && named->write == page.run.write) continue;
    unused.push_back(std::move(page));
  }
  // If a commit had happened of which nobody knew, and another host was faster with the next one,
  // its stripes may be shared by now: that is for a collection to find out.
  std::erase_if(unused, [this](const BlockMap::Piece& piece) {
    return MayBeNamed(piece.first, PlaceInRun(piece.run, 0, block_bytes()));
  });
  context_.reaper.Add(unused, block_bytes());
  maybe_named_.clear();
  suspected_.clear();
  resolved_.clear();
  keepers_.Clear();
  superseded_.clear();
  stored_pages_.clear();
  write_ids_.EndPass();
  base_ = now_ = stored.inode;
  if (now_.map && now_.map->CountLoadedPages() > kMostPages) {
    base_.map->ForgetPages();
    now_.map->ForgetPages();
  }
  slot_ = stored.slot;
  blocks = blocks_.TakeAll();
  changed_ = size_set_ = uncertain_ = false;
  cut_to_.reset();
  cleared_ = {};
  grown_to_ = 0;
  modified_.reset();
  inode_written_ = true;
  inode_durable_ = durability == Durability::kWriteThrough;
  failure_ = {};
  ++generation_;
  if (base_.map && base_.map->HasMovedShards()) context_.committed_short(id_);
}

Status FileState::GiveName(Durability durability) {
  Names::Publication published;
  do {
    if (published.wants_safe) TRY(CommitChanges(true));  // others have made the name meanwhile
    Names::NewName name = *name_;
    StoredInode own;
    {
      const std::lock_guard lock(mutex_);
      name_->seen.reset();  // good for one attempt
      own = {base_, slot_};
    }
    published = context_.names.Publish(name, id_, own, inode_durable_, durability);
    const std::lock_guard lock(mutex_);
    slot_ = own.slot;
    if (!changed_) base_ = now_ = own.inode;
  } while (published.wants_safe);
  if (published.applied()) {
    const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  return !removed_ && is_nameless();
}

bool FileState::IsToAppear() {
  const std::lock_guard lock(mutex_);
  return !removed_ && !published_ && name_.has_value();
}

Result<bool> FileState::Discard() {
  const Turn::Holder turn(turn_);
  {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    if (removed_) return Fail(ENOENT, "inode {:016x} was removed", id_);
    if (!is_nameless()) return Fail(EEXIST, "inode {:016x} has a name by now", id_);
    base_.named = now_.named = GivenName{name.directory, name.name};
    base_.changed = now_.changed = context_.records.WallClock();
    changed_ = true;
  }
  TRY(CommitChanges(sync_asked_));
  StoredInode own;
  {
    const std::lock_guard lock(mutex_);
    own = {base_, slot_};
  }
  const Names::Publication published =
      context_.names.Publish(name, id_, own, /*is_safe=*/false, Durability::kWriteBack);
  const std::lock_guard lock(mutex_);
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
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto change = context_.records.ChangeEntry(name_->directory, name_->name, entry_slot_,
                                                     entry, Durability::kWriteThrough);
    TRY(change.why);
    const std::lock_guard lock(mutex_);
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
              name_->name, name_->directory, kMaxAttempts);
}

// ---- Attributes and the end

Result<Attributes> FileState::Stat(Duration age) {
  bool on_drives = false;
  {
    const std::lock_guard lock(mutex_);
    on_drives = inode_written_ && !removed_;
  }
  std::optional<StoredInode> stored;
  if (on_drives) stored = context_.records.FindRecent(id_, age);
  if (on_drives && !stored) stored = TRY(context_.names.Find(id_));
  Attributes attributes = Describe(stored ? *stored : StoredInode());
  const std::lock_guard lock(mutex_);
  if (removed_ || (on_drives && !stored)) attributes.links = 0;
  return attributes;
}

// What was read before we committed (the last handle that is closed commits what was written
// through another one meanwhile) is not what is there.
Attributes FileState::Describe(const StoredInode& stored) {
  const std::lock_guard lock(mutex_);
  const bool is_known_better = stored.slot == 0 || (loaded_ && slot_ > stored.slot);
  Attributes attributes = (is_known_better ? LastKnown() : stored.inode).Describe(id_);
  if (is_nameless()) attributes.links = 0;
  if (!changed_) return attributes;
  attributes.size = now_.size;
  attributes.stored_bytes = now_.Describe(id_).stored_bytes;
  if (modified_) attributes.modified = attributes.changed = *modified_;
  return attributes;
}

Status FileState::SetAttributes(const AttributeChange& change) {
  if (change.size) TRY(Truncate(*change.size));
  if (!change.mode && !change.user && !change.group && !change.accessed && !change.modified) {
    return {};
  }
  const int64_t now = context_.records.WallClock();
  TRY(Edit([&](Inode& inode) {
    inode.Apply(change, now);
    return Status();
  }));
  const Turn::Holder turn(turn_);
  const std::lock_guard lock(mutex_);
  if (change.modified) modified_.reset();  // what is set counts, not what was written before
  return {};
}

Status FileState::Edit(const Names::Edit& edit, Room room) {
  const Turn::Holder turn(turn_);
  {
    const std::lock_guard lock(mutex_);
    if (removed_) return edit(removed_as_);
    if (!inode_written_) return edit(base_);
  }
  const StoredInode stored = TRY(context_.names.Update(id_, edit, {Durability::kWriteBack, room}));
  const std::lock_guard lock(mutex_);
  // The rest is taken over with the next commit.
  base_.mode = stored.inode.mode;  // with its ACL
  base_.attributes = stored.inode.attributes;
  base_.layout = stored.inode.layout;
  return {};
}

Inode FileState::Known() {
  const std::lock_guard lock(mutex_);
  return LastKnown();
}

bool FileState::HasSeen() {
  const std::lock_guard lock(mutex_);
  return loaded_ || removed_;
}

// Of a file that was removed its attributes then, which others may have changed since it was
// opened, with the contents that are still read here.
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
  const std::lock_guard lock(mutex_);
  return changed_ ? 0 : slot_;
}

void FileState::Removed(const Inode& last, uint64_t losses) {
  const std::lock_guard lock(mutex_);
  removed_ = true;
  removed_as_ = last;
  removed_losses_ = losses;
}

// Takes off the drives what a commit has left there that did not come to give the name. Whoever
// changed its attributes, or moved its shards, has changed the inode.
void FileState::RemoveUnpublished() {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (removed_ || published_ || !inode_written_ || uncertain_ || maybe_has_name_) break;
    const auto removed = context_.records.ChangeInode(id_, slot_, std::nullopt);
    if (removed.applied()) {
      Removed(Known(), removed.losses);
      break;
    }
    if (!removed.why.ok() || !removed.now) break;
    const std::lock_guard lock(mutex_);
    base_ = removed.now->inode;
    slot_ = removed.now->slot;
  }
}

void FileState::Abandon() {
  DirtyBlocks::Blocks blocks;
  const Turn::Holder turn(turn_);
  RemoveUnpublished();
  const std::lock_guard lock(mutex_);
  blocks = blocks_.TakeAll();
  if (uncertain_ || maybe_has_name_) {
    Log(LogLevel::kWarn, "what was written stays as garbage: it may have been committed",
        {{"inode", fmt::format("{:016x}", id_)}});
    return;
  }
  // What an inode has named is the business of who removed it, or wrote it anew: others may share
  // it.
  std::vector<BlockMap::Piece> unused = OwnPieces(now_.map, base_.map, id_);
  if (removed_) {
    context_.reaper.AddRemoved(id_, removed_as_, removed_losses_);
    std::erase_if(unused, [this](const BlockMap::Piece& piece) {
      const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
      return MayHold(removed_as_.map, piece.first, place);
    });
  }
  context_.reaper.Add(unused, block_bytes());
  context_.reaper.Add(superseded_, block_bytes());
  context_.reaper.Add(stored_pages_, block_bytes());
}

}  // namespace pinstripe
