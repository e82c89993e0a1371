// FileCommit, second part: taking over what other hosts have committed.

#include <algorithm>
#include <iterator>

#include "base/attempts.h"
#include "base/try.h"
#include "fs/files/commit.h"
#include "fs/files/map_pages.h"
#include "fs/files/merge.h"

namespace pinstripe {
namespace {

constexpr int kMaxLoads = 8;  // of the map of an inode that others change meanwhile

std::optional<BlockPlace> PlaceIn(const Inode& inode, uint64_t block) {
  return inode.map ? inode.map->Find(block) : std::nullopt;
}

}  // namespace

Status FileCommit::Refresh() {
  const Turn::Holder turn(turn_);
  TRY(RefreshUnderTurn());
  const MutexLock lock(mutex_);
  if (removed_) return Fail(ENOENT, "inode {:016x} was removed", id_);
  return {};
}

Status FileCommit::Refresh(const StoredInode& seen) {
  {
    const Turn::Holder turn(turn_);
    const bool usable = !removed_ && inode_written_ && seen.inode.kind == FileKind::kRegular;
    if (usable && loaded_ && seen.slot == slot_) return {};
    if (usable && (!loaded_ || seen.slot > slot_)) return Rebase(seen);
  }
  // Somebody here has committed since it was read, or drives have forgotten: only they know which.
  return Refresh();
}

Status FileCommit::TakeOver(const StoredInode& stored) {
  const Turn::Holder turn(turn_);
  if (removed_ || (loaded_ && stored.slot <= slot_)) return {};
  return Rebase(stored);
}

Result<bool> FileCommit::RefreshUnderTurn() {
  if (removed_ || !inode_written_) return false;
  const StoredInode stored = TRY(context_.names.Load(id_));
  if (stored.inode.kind != FileKind::kRegular) {
    const int code = stored.inode.kind == FileKind::kDirectory ? EISDIR
                     : stored.inode.kind == FileKind::kSymlink ? ELOOP
                                                               : EINVAL;
    return Fail(code, "inode {:016x} is not a file", id_);
  }
  if (loaded_ && stored.slot == slot_) return false;
  (void)CheckRemembered(stored);  // reading goes on with what there is
  TRY(Rebase(stored));
  return true;
}

// Slots only grow, unless a majority of drives lost their power, and with it a change that nobody
// had flushed. The data of that commit is gone, and a process that asks whether it is safe has to
// be told.
Status FileCommit::CheckRemembered(const StoredInode& stored) {
  if (stored.slot >= slot_) return {};
  forgotten_ = Fail(EIO,
                    "inode {:016x}: drives have lost their power, and with it what was committed; "
                    "write it again",
                    id_);
  return forgotten_;
}

// Finds, among the blocks that we have, where those are that others have come to share.
void FileCommit::ResolveTheirs(const Inode& theirs) {
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
void FileCommit::SuspectBlocks(const Inode& theirs) {
  if (maybe_named_.empty()) return;
  for (const BlockMap::Piece& piece : OwnPieces(now_.map, theirs.map, id_)) {
    for (uint64_t i = 0; i < piece.run.count; ++i) {
      const uint64_t block = piece.first + i;
      if (MayBeNamed(block, PlaceInRun(piece.run, i, block_bytes()))) suspected_.insert(block);
    }
  }
}

bool FileCommit::MayBeNamed(uint64_t block, const BlockPlace& stripe) const {
  return std::ranges::any_of(maybe_named_,
                             [&](const BlockMap& map) { return MayHold(map, block, stripe); });
}

// Brings the bytes that we wrote into memory, and nothing else of the block.
Status FileCommit::KeepOurs(uint64_t block) {
  DirtyBlocks::Block& open = *blocks_.Find(block);
  {
    const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  blocks_.KeepOnlyOurs(open);
  dropped = blocks_.TakeDropped();
  return {};
}

LocalChanges FileCommit::OurChanges() const {
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
Status FileCommit::MergeWith(const Inode& theirs) {
  LocalChanges ours;
  {
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);  // others may load pages of our map
    merged = Merge(base_, ours, {theirs, resolved_});
  }
  for (const uint64_t block : merged.relaid) TRY(KeepOurs(block));
  const MutexLock lock(mutex_);
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
Status FileCommit::LoadForRebase(StoredInode& theirs) {
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
  for (Attempts attempts(kMaxLoads); attempts.Next();) {
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

// For contents that are all ours. If theirs are the same, because a commit of ours has happened
// without our knowing it, a repair may have moved shards, and written pages anew, since.
Status FileCommit::TakePlaces(const Inode& theirs) {
  if (!now_.map || !theirs.map) return {};
  StripeStore& stripes = context_.cluster.stripes();
  Inode there = theirs;
  TRY(LoadPages(stripes, id_, there, 0, there.map->blocks()));
  Inode ours;
  {
    const MutexLock lock(mutex_);
    ours.map = now_.map;
    ours.size = now_.size;
  }
  TRY(LoadPages(stripes, id_, ours, 0, ours.map->blocks()));
  ours.map->TakePlaces(*there.map);
  const MutexLock lock(mutex_);
  now_.map = std::move(ours.map);
  return {};
}

Status FileCommit::LearnOfFirstWrite() {
  if (removed_ || inode_written_ || !uncertain_) return {};
  const auto stored = TRY(context_.records.FindInodePinned(id_));
  if (!stored) return {};
  {
    const MutexLock lock(mutex_);
    inode_written_ = true;
  }
  return Rebase(*stored);
}

// What is to appear with our commit was set at its time, and not at that of the commit. What
// another host has set since stays, by the clocks of the two. Called with mutex_ held.
void FileCommit::ForgetWhatOthersSetLater(const Inode& theirs) {
  if (!set_later_ || theirs.changed <= set_later_->at) return;
  AttributeChange& ours = set_later_->change;
  if (theirs.mode != base_.mode || theirs.attributes != base_.attributes) ours.mode.reset();
  if (theirs.owner.user != base_.owner.user) ours.user.reset();
  if (theirs.owner.group != base_.owner.group) ours.group.reset();
  if (theirs.accessed != base_.accessed) ours.accessed.reset();
  if (theirs.modified != base_.modified) ours.modified.reset();
}

// What others know of these places they know from us.
void FileCommit::KeepWhatIsShort(const std::optional<BlockPlace>& ours) {
  if (!ours || !now_.map || now_.map->FirstMissing(0, 1)) return;
  const auto now = now_.map->Find(0);
  const bool is_as_named = now && now->SameStripe(*ours) && now->place == short_->named.place;
  if (is_as_named) now_.map->Set(0, *ours);
}

Status FileCommit::Rebase(StoredInode theirs) {
  if (changed_) TRY(LoadForRebase(theirs));
  if (changed_) ResolveTheirs(theirs.inode);
  if (changed_ && write_ids_.pass() != 0 && write_ids_.pass() < theirs.inode.collected) {
    return Fail(
        EIO,
        "inode {:016x}: what was written to it and not committed for so long was collected as "
        "garbage, and is lost; commit (fsync) more often, or collect later",
        id_);
  }
  std::optional<BlockPlace> ours;  // of pieces that the inode names and that are not all there
  if (short_ && now_.map) ours = now_.map->Find(0);
  if (changed_ && cut_to_ != 0) TRY(MergeWith(theirs.inode));
  if (changed_ && cut_to_ == 0) TRY(TakePlaces(theirs.inode));
  const MutexLock lock(mutex_);
  KeepWhatIsShort(ours);
  if (!changed_) now_ = theirs.inode;
  if (changed_) SuspectBlocks(theirs.inode);
  ForgetWhatOthersSetLater(theirs.inode);
  base_ = theirs.inode;
  slot_ = theirs.slot;
  loaded_ = true;
  is_fresh_ = false;
  inode_durable_ = unasked_ = false;
  unsafe_.Add(0, UINT64_MAX);
  ++generation_;
  CheckInvariants();
  return {};
}

}  // namespace pinstripe
