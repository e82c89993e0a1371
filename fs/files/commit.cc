#include "fs/files/commit.h"

#include <algorithm>
#include <cassert>

#include "base/attempts.h"
#include "base/try.h"
#include "cluster/beside.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr int kMaxStores = 4;  // of blocks whose drives died before they were flushed

}  // namespace

std::vector<BlockMap::Piece> OwnPieces(const std::optional<BlockMap>& map,
                                       const std::optional<BlockMap>& except, InodeId id) {
  if (!map) return {};
  std::vector<BlockMap::Piece> pieces = map->NotIn(except ? *except : BlockMap()).blocks;
  std::erase_if(pieces, [id](const BlockMap::Piece& piece) {
    return piece.run.shared || piece.run.object != id;
  });
  return pieces;
}

Status FileCommit::CommitChanges(bool durably) {
  const Status status = TryToCommit(durably ? Durability::kWriteThrough : Durability::kWriteBack);
  if (!status.ok() && short_) return TakeBackShort(status);
  short_.reset();
  return status;
}

Status FileCommit::TryToCommit(Durability durability) {
  const bool durably = durability == Durability::kWriteThrough;
  int stores = 0;
  Attempts attempts;  // to change the inode; what is stored once more is counted by itself
  for (bool goes_on = attempts.Next(); goes_on;) {
    if (MayGoTogether() && TRY(CommitTogether(durability))) return {};
    Inode out;
    TRY(StoreContents(out, durability));
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
      const MutexLock lock(mutex_);
      if (removed_) return {};
    }
    attempts.Pause(context_.cluster.runtime());
    goes_on = attempts.Next();
  }
  return Fail(EIO, "commit inode {:016x}: other hosts changed it {} times in between; try again",
              id_, Attempts::kMost);
}

// Drives that died between a write and its flush took their shards along, and the others may be too
// few to be safe with. The shards that are left of such a block are enough to store it on drives
// that live.
Status FileCommit::StoreAgain(const UnsafeStripes::Unsafe& unsafe) {
  const DriveLosses losses = context_.cluster.CountLosses();
  TRY(StoreAnew(unsafe.blocks));
  unsafe_.ForgetLosses(losses);  // all others are safe
  return {};
}

Status FileCommit::StoreSuspected() {
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

Status FileCommit::StoreAnew(const std::vector<uint64_t>& blocks) {
  for (const uint64_t number : blocks) {
    // A page is stored anew when a block in it is.
    const auto page = PageNumber::From(number);
    uint64_t block = page ? page->first_block() : number;
    TRY(LoadBytes(block * block_bytes(), block * block_bytes() + 1));
    {
      const MutexLock lock(mutex_);
      if (page) block = FirstStoredFrom(block);
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
uint64_t FileCommit::FirstStoredFrom(uint64_t block) const {
  for (uint64_t at = block; now_.map && at < now_.map->blocks(); ++at) {
    if (now_.map->FirstMissing(at, at + 1)) break;
    if (now_.map->Find(at)) return at;
  }
  return block;
}

// Whether a loss of power that spares the inode's change, and not the data that it names, could
// cost contents that were safe. Nobody expects it of files that are replaced as a whole, nor of
// contents of which nobody was told that they are committed.
bool FileCommit::Endangers(const Inode& out) const { return KeepsSome() && out.map.has_value(); }

bool FileCommit::KeepsSome() const {
  return published_ && !unasked_ && base_.size > 0 && cut_to_.value_or(UINT64_MAX) > 0;
}

Result<UnsafeStripes::Unsafe> FileCommit::FlushNewStripes(Inode& out) {
  BlockMap committed;
  {
    const MutexLock lock(mutex_);
    if (base_.map) committed = *base_.map;
  }
  return unsafe_.FlushNew(committed, out);
}

// Up to which size contents go into the inode: somewhat more where nothing can lie beside it, and
// where some of what is there is kept. That would need pieces which are safe from power loss before
// the inode names them. An inode needs no such wait. On an engine, which contents would fill, there
// is no more.
uint64_t FileCommit::InlineLimit() const {
  constexpr uint64_t kMost = 4 << 10;
  const uint64_t limit = layout().inline_limit;
  if (AreNamesOnEngine(context_.cluster)) return limit;
  const uint64_t more = std::max(limit, std::min(8 * limit, kMost));
  return KeepsSome() || (now_.size <= more && !BesideLayout()) ? more : limit;
}

// Small contents of a file that had none, or of which nothing is kept, go with its inode:
// docs/format.md, "Contents beside the inode".
bool FileCommit::MayGoTogether() {
  const MutexLock lock(mutex_);
  const bool keeps_none =
      ((base_.size == 0 && !base_.map) || cut_to_ == 0) && !base_.mark && base_.keepers.empty();
  const bool is_certain = !uncertain_ && (inode_written_ || !first_write_) && suspected_.empty() &&
                          stored_pages_.empty();
  if (!keeps_none || !is_certain || now_.size <= InlineLimit() || !BesideLayout()) return false;
  const DirtyBlocks::Block* const first = blocks_.Find(0);
  if (!first || !first->dirty || first->sent || blocks_.all().size() > 1) return false;
  // Each replica keeps what is replaced until the next change.
  constexpr size_t kMostReplaced = 1 << 10;
  return base_.size == 0 || base_.Encode(id_).size() <= kMostReplaced;
}

Companions FileCommit::CompanionsOf(StripeStore::PendingWrite& pieces) {
  Companions companions;
  for (const auto& [drive, key, version] : pieces.AtHome()) {
    companions.all.push_back(
        {context_.cluster.FindDrive(drive), Guard{key, Expected::Version(version)}});
  }
  companions.least = context_.cluster.map().replicas / 2 + 1;
  const MutexLock lock(mutex_);
  if (inode_written_) companions.otherwise = base_.Encode(id_);
  return companions;
}

// False: what is left is to go the usual way. The contents may be on the drives by then, and the
// inode may name them.
Result<bool> FileCommit::CommitTogether(Durability durability) {
  const uint64_t slot = slot_;
  failure_ = {};
  if (!inode_written_) TRY(CheckFirstWrite());
  StripeStore::PendingWrite* const pieces = TRY(PrepareBlock(0, Form::kWhole, durability));
  if (pieces == nullptr) return false;
  bool is_sent = false;
  const auto send = [&] {
    if (!std::exchange(is_sent, true)) pieces->Send();
  };
  // Another host may have committed while the block was completed.
  if (slot_ != slot) {
    send();
    first_write_.reset();
    return false;
  }
  Companions companions = CompanionsOf(*pieces);
  companions.send = [&] {
    pieces->KeepAll();
    send();
  };
  Inode out;
  BlockPlace place;
  {
    const MutexLock lock(mutex_);
    const DirtyBlocks::Sent& sent = *blocks_.Find(0)->sent;
    place = {.object = id_,
             .shift = sent.shift,
             .write = sent.write,
             .layout = sent.buffer->layout(),
             .place = {.epoch = pieces->epoch(), .moved = {}},
             .stored = sent.stored,
             .valid = sent.valid};
    out = base_;
    out.size = now_.size;
    out.inline_data.clear();
    out.map = now_.map;
    out.map->Set(0, place);
    ApplyWhatWasSet(out);
    ApplyTimeOfWrite(out);
  }
  const auto first_name = first_name_;
  const auto changed = WriteInode(out, {durability, Room::kData}, &companions);
  if (!is_sent) {  // not a bit of it
    first_name_ = first_name;
    given_.reset();
    first_write_.reset();
    send();
    return false;
  }
  if (changed.unknown()) NoteUnknown(out);
  FinishBlock(0);
  // What there is of them goes with the next commit, unless the inode names them.
  if (!failure_.ok() && !changed.applied()) Supersede(BlockMap::PiecesOf(0, place));
  // Others were in the way, or its homes are full: then spares may have the pieces, and what goes
  // without any is allowed more room.
  const auto may_go_alone = [](const Changed& change) {
    const bool is_full = change.why.code() == ENOSPC && change.effect == Effect::kRefused;
    return change.why.code() == EAGAIN || is_full;
  };
  if (may_go_alone(changed)) {
    if (given_ && may_go_alone(*given_)) {
      given_.reset();
      first_name_ = first_name;
    }
    return false;
  }
  TRY(changed.why);
  if (changed.applied()) {
    const bool is_home = failure_.ok() && now_.map && now_.map->Find(0) == place;
    if (changed.everywhere && is_home) {
      Committed(*changed.now, durability, changed.losses);
      return true;
    }
    // The inode says next where the pieces are, or that they are others.
    const MutexLock lock(mutex_);
    short_ = Short{inode_written_ ? std::optional(base_) : std::nullopt, changed.now->slot, place};
    // Another host may replace or share them from now on.
    maybe_named_.push_back(*changed.now->inode.map);
    base_ = changed.now->inode;
    slot_ = changed.now->slot;
    inode_written_ = true;
    ++generation_;
    return false;
  }
  if (changed.otherwise) {
    const MutexLock lock(mutex_);
    slot_ = changed.slot;
    return false;
  }
  TRY(TakeOverRefused(changed, /*again=*/false));
  return false;
}

// What comes after pieces were found short has failed. Where that is certain the contents are not
// to be there.
Status FileCommit::TakeBackShort(const Status& why) {
  const auto [before, slot, named] = *std::exchange(short_, std::nullopt);
  if (why.code() == EIO || !before) return why;
  if (slot == slot_) {
    // What is taken back is deleted soon, and must not come back.
    const auto back = context_.records.ChangeInode(id_, slot_, *before,
                                                   {Durability::kWriteThrough, Room::kFreeing});
    if (back.applied()) {
      const MutexLock lock(mutex_);
      base_ = *before;
      slot_ = back.now->slot;
      maybe_named_.pop_back();
      if (!MayHold(now_.map, 0, named)) Supersede(BlockMap::PiecesOf(0, named));
      return why;
    }
  }
  return Fail(EIO, "commit inode {:016x}: it may have happened: {}", id_, why.message());
}

// Stores what is in memory, and says what the inode is to become. What must be safe from power loss
// before that is flushed afterwards, or written through at once.
Status FileCommit::StoreContents(Inode& out, Durability durability) {
  for (Attempts attempts; attempts.Next();) {
    if (TRY(TryStoreContents(out, durability))) return {};
  }
  return Fail(EIO, "commit inode {:016x}: other hosts changed it {} times in between; try again",
              id_, Attempts::kMost);
}

// False: another host's commit was found meanwhile, so that there is more to store.
Result<bool> FileCommit::TryStoreContents(Inode& out, Durability durability) {
  const auto small_and_dirty = [&] {
    const DirtyBlocks::Block* const first = blocks_.Find(0);
    return first && first->dirty;
  };
  // An unwritten file's contents stay as they are kept, also beyond today's limit.
  bool inline_form = !changed_ && !now_.map;
  if (!inline_form && now_.size <= InlineLimit()) {
    inline_form = !now_.map || small_and_dirty();
    const uint64_t slot = slot_;
    if (inline_form) TRY(Fill(0, Form::kWhole));
    if (slot_ != slot) return false;  // and it may be large now
  }
  if (!inline_form && now_.size > 0) {
    TRY(SendAll(KeepsSome() ? Durability::kWriteThrough : durability));
    TRY(StorePages());
  }
  const MutexLock lock(mutex_);
  // Data that the inode does not name after its change is forgotten, whoever has written it.
  if (!inline_form && now_.size > 0 && !IsAllStored()) return false;
  out = base_;
  out.size = now_.size;
  out.inline_data.clear();
  out.map.reset();
  ApplyWhatWasSet(out);
  ApplyTimeOfWrite(out);
  if (now_.size == 0) return true;
  if (!inline_form) {
    out.map = now_.map;
    return true;
  }
  out.inline_data = now_.inline_data;
  if (const DirtyBlocks::Block* const first = blocks_.Find(0); first && first->dirty) {
    out.inline_data = AsText(first->dirty->data().first(first->present.end()));
    TRY_CONTEXT(first->dirty->sums().Check(AsBytes(out.inline_data)), "inode {:016x}", id_);
  }
  out.inline_data.resize(out.size);
  return true;
}

Status FileCommit::StorePages() {
  Inode inode;  // a copy: readers may load pages meanwhile
  {
    const MutexLock lock(mutex_);
    if (!now_.map) return {};
    inode.map = now_.map;
    inode.size = now_.size;
  }
  unsafe_.NoteLosses();
  const Status status = pinstripe::StorePages(
      context_.cluster.stripes(), id_, inode, context_.map_limits, layout().PageParity(),
      Durability::kWriteBack, [this](uint64_t block) { return NextWriteId(block); }, stored_pages_);
  const MutexLock lock(mutex_);
  now_.map = inode.map;
  for (const BlockMap::Piece& page : stored_pages_) unsafe_.Add(page.first, page.first + 1);
  return status;
}

// It may have been written with the first attempt, collected since, and forgotten by all drives.
// One clock stands still while the machine sleeps, and the other may be set.
Status FileCommit::CheckFirstWrite() {
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
Status FileCommit::TakeMarkOff(Inode& out) {
  if (!out.mark) return {};
  TRY(context_.names.GiveWay(id_, {out, slot_}));
  out.mark.reset();
  return {};
}

// A commit that only cuts must be possible on full drives.
Room FileCommit::RoomOf(const Inode& out) {
  const MutexLock lock(mutex_);
  if (inode_written_ && out.size < base_.size) return Room::kFreeing;
  return out.inline_data.size() > base_.inline_data.size() ? Room::kData : Room::kNames;
}

// For the first time together with its name, if it has one to get.
Records::InodeChange FileCommit::WriteInode(const Inode& out, ChangeTerms terms,
                                            const Companions* companions) {
  if (!first_name_) {
    return companions == nullptr
               ? context_.records.ChangeInode(id_, slot_, out, terms)
               : context_.records.ChangeInodeWith(id_, slot_, out, *companions, terms);
  }
  const FirstName name = *std::exchange(first_name_, std::nullopt);
  auto both = context_.records.CreateBeside(name.directory, name.name, name.slot, id_, out, terms,
                                            companions);
  given_ = std::move(both.entry);
  return std::move(both.inode);
}

// False: another host was faster, and ours is laid over what it did.
Result<bool> FileCommit::ChangeInode(Inode out, Durability durability) {
  TRY(TakeMarkOff(out));
  const bool again = !inode_written_ && first_write_.has_value();
  if (!inode_written_) TRY(CheckFirstWrite());
  const Room room = RoomOf(out);
  const auto changed = WriteInode(out, {durability, room});
  if (changed.unknown()) NoteUnknown(out);
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
  TRY(TakeOverRefused(changed, again));
  return false;
}

void FileCommit::NoteUnknown(const Inode& out) {
  uncertain_ = true;
  // Once for as many attempts as name the same.
  const bool is_known =
      out.map && !maybe_named_.empty() && out.map->NotIn(maybe_named_.back()).blocks.empty();
  if (out.map && !is_known) maybe_named_.push_back(*out.map);
}

// Lays ours over what another host has committed instead. `again`: an earlier attempt of the first
// write may have been made.
Status FileCommit::TakeOverRefused(const Records::InodeChange& changed, bool again) {
  {
    const MutexLock lock(mutex_);
    if (removed_) return {};
  }
  if (!changed.now && !inode_written_ && changed.is_instead) {
    // An earlier first write of ours was given up, by us or by whoever met it. The second slot is
    // ours.
    const MutexLock lock(mutex_);
    slot_ = changed.slot;
    return {};
  }
  if (!changed.now) {
    return Fail(ESTALE, "inode {:016x} was removed by another host while it was open", id_);
  }
  if (!inode_written_ && !again) {
    return Fail(EIO, "inode {:016x} is another file's by chance: write this one anew", id_);
  }
  if (!inode_written_) {  // an attempt whose outcome we could not learn had written it
    const MutexLock lock(mutex_);
    inode_written_ = true;
  }
  TRY(CheckRemembered(*changed.now));
  return Rebase(*changed.now);
}

void FileCommit::Committed(const StoredInode& stored, Durability durability, uint64_t losses) {
  DirtyBlocks::Blocks blocks;  // go when the mutex is free
  const MutexLock lock(mutex_);
  context_.reaper.AddDifference(id_, base_, stored.inode, durability, losses);
  if (short_ && short_->before) {
    context_.reaper.AddDifference(id_, *short_->before, stored.inode, durability, losses);
  }
  const auto was_named = [&](const BlockMap::Piece& piece) {
    const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
    return MayHold(base_.map, piece.first, place) ||
           (short_ && short_->before && MayHold(short_->before->map, piece.first, place));
  };
  std::vector<BlockMap::Piece> unused;
  for (BlockMap::Piece& piece : superseded_) {
    // Data that an inode may have named, because a commit's outcome was not known, waits with the
    // rest.
    const BlockPlace place = PlaceInRun(piece.run, 0, block_bytes());
    const bool is_named = MayHold(stored.inode.map, piece.first, place) || was_named(piece);
    if (!is_named) unused.push_back(std::move(piece));
  }
  // Blocks that were stored and did not make it into the inode, as when a file became small again.
  for (BlockMap::Piece& piece : OwnPieces(now_.map, stored.inode.map, id_)) {
    if (!was_named(piece)) unused.push_back(std::move(piece));
  }
  for (BlockMap::Piece& page : stored_pages_) {
    const auto named =
        stored.inode.map ? stored.inode.map->FindPage(*PageNumber::From(page.first)) : std::nullopt;
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
  changed_ = size_set_ = uncertain_ = unasked_ = false;
  cut_to_.reset();
  cleared_ = {};
  grown_to_ = 0;
  modified_.reset();
  set_later_.reset();
  is_fresh_ = false;
  inode_written_ = true;
  inode_durable_ = durability == Durability::kWriteThrough;
  failure_ = {};
  ++generation_;
  CheckInvariants();
  if (base_.map && base_.map->HasMovedShards()) context_.committed_short(id_);
}

void FileCommit::CheckInvariants() const {
  blocks_.CheckInvariants();
  if (changed_) return;
  // There is nothing of ours: contents are what was committed.
  assert(blocks_.empty() && cleared_.empty());
  assert(!size_set_ && !cut_to_ && grown_to_ == 0);
  assert(!set_later_);
}

}  // namespace pinstripe
