// FileState, second part: blocks that several files share, so that copies take no space.
//
// Both steps begin with a commit. After it there is nothing of ours to be laid over what others do.
// Each is one conditional change of the inode as it is, and is tried anew if others were faster.

#include <algorithm>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"
#include "fs/files/state.h"

namespace pinstripe {
namespace {

constexpr int kMostTries = 8;  // against other hosts that change the file

// A process that copies so much at once goes on with the rest, as the kernel divides what it is
// asked for. That is to be one keeper's.
constexpr uint64_t kToTheEnd = 1 << 30;

// The first block from `block` on that is stored; `end`: there is none before. All are loaded.
uint64_t NextStored(const BlockMap& map, uint64_t block, uint64_t end) {
  while (block < end && map.SpanAt(block).hole) block = map.SpanAt(block).end;
  return std::min(block, end);
}

}  // namespace

bool FileState::MayShare() const {
  return published_ && inode_written_ && !removed_ && loaded_ && !changed_;
}

// ---- Giving

Result<std::optional<FileState::SharedBlocks>> FileState::Share(uint64_t offset, uint64_t length) {
  const Turn::Holder turn(turn_);
  bool durably = false;
  for (Attempts attempts(kMostTries); attempts.Next();) {
    TRY(CommitUnderTurn(durably));
    const uint64_t slot = slot_;
    if (!MayShare() || !now_.map) return std::optional<SharedBlocks>();
    const uint64_t bytes = block_bytes();
    if (offset % bytes != 0 || offset >= now_.size) return std::optional<SharedBlocks>();
    const uint64_t first = offset / bytes;
    const uint64_t end =
        length >= now_.size - offset ? now_.map->blocks() : (offset + length) / bytes;
    if (first >= end) return std::optional<SharedBlocks>();
    const uint64_t kept_end = length >= kToTheEnd ? now_.map->blocks() : end;
    TRY(LoadBytes(first * bytes, kept_end * bytes));
    // Pages that are loaded stay so for as long as the turn is ours.
    if (slot_ != slot) continue;  // it has become another one
    const bool has_own = HasOwnBlocks(first, end);
    if (has_own && base_.keepers.size() >= kMostKeepersOfFile) return std::optional<SharedBlocks>();
    // Data that several files rest on is safe from power loss.
    durably = has_own && !inode_durable_;
    if (durably) continue;
    SharedBlocks shared;
    if (TRY(TryShare(first, end, kept_end, shared))) return std::optional(std::move(shared));
  }
  return std::optional<SharedBlocks>();
}

bool FileState::HasOwnBlocks(uint64_t first, uint64_t end) const {
  const BlockMap& map = *now_.map;
  uint64_t block = NextStored(map, first, end);
  while (block < end && map.Find(block)->shared) block = NextStored(map, block + 1, end);
  return block < end;
}

// What is this file's own of the blocks up to `kept_end` becomes a keeper's, if there is any up to
// `end`. False: another host was faster.
Result<bool> FileState::TryShare(uint64_t first, uint64_t end, uint64_t kept_end,
                                 SharedBlocks& shared) {
  BlockMap own(now_.map->layout());
  own.Resize(now_.size);
  std::set<InodeId> keepers;  // that there are already
  const bool has_own = HasOwnBlocks(first, end);
  BlockMap map;
  {
    const MutexLock lock(mutex_);
    map = *now_.map;
  }
  const uint64_t look_until = has_own ? kept_end : end;
  for (uint64_t block = NextStored(map, first, look_until); block < look_until;
       block = NextStored(map, block + 1, look_until)) {
    const auto place = map.Find(block);
    if (place->shared) {
      if (block < end) keepers.insert(place->object);
      continue;
    }
    if (place->object != id_) return Fail(EIO, "inode {:016x} names others' blocks", id_);
    own.Set(block, *place);
  }
  // One that is gone was left because others have changed the file.
  const auto settle = [this](InodeId keeper) -> Result<bool> {
    const Status settled = context_.keepers.Settle(keeper);
    if (settled.ok()) return true;
    if (settled.code() != ENOENT) return Failed(settled);
    TRY(RefreshUnderTurn());
    return false;
  };
  for (const InodeId keeper : keepers) {
    if (!TRY(settle(keeper))) return false;
  }
  if (has_own) {
    const auto [keeper, stored] = TRY(
        context_.keepers.Create(id_, own, now_.size, context_.map_limits, layout().PageParity()));
    for (uint64_t block = NextStored(own, first, kept_end); block < kept_end;
         block = NextStored(own, block + 1, kept_end)) {
      map.Set(block, SharedPlace(keeper, 0, own.Find(block)->valid));
    }
    ListShared(map, first, end, shared);
    Inode out;
    {
      const MutexLock lock(mutex_);
      out = base_;
      out.keepers.insert(std::ranges::lower_bound(out.keepers, keeper), keeper);
      now_.map = std::move(map);
    }
    if (!TRY(ChangeBlocks(out, Durability::kWriteThrough, Garbage::kPages))) {
      context_.keepers.Discard(keeper, stored);
      return false;
    }
    if (!TRY(settle(keeper))) return false;
    if (own.HasMovedShards()) context_.committed_short(keeper);
  } else {
    ListShared(map, first, end, shared);
  }
  return true;
}

void FileState::ListShared(const BlockMap& map, uint64_t first, uint64_t end,
                           SharedBlocks& shared) const {
  shared.layout = map.layout();
  auto& pieces = shared.pieces;
  for (uint64_t block = first; block < end;) {
    const uint64_t stored = NextStored(map, block, end);
    if (stored > block) {
      pieces.push_back({.first = block - first, .count = stored - block, .last = {}});
      block = stored;
      continue;
    }
    const BlockPlace place = *map.Find(block);
    // Counted from the first of them, because the blocks have other numbers there.
    const BlockPlace shared_place =
        SharedPlace(place.object, place.shift + first, place.valid, place.skip);
    const bool follows = !pieces.empty() && pieces.back().last && place.skip == 0 &&
                         pieces.back().last->SameStripe(shared_place) &&
                         pieces.back().last->valid == block_bytes();
    if (!follows) pieces.push_back({.first = block - first, .count = 0, .last = {}});
    ++pieces.back().count;
    pieces.back().last = shared_place;
    ++block;
  }
  shared.bytes = std::min(end * block_bytes(), now_.size) - first * block_bytes();
}

// ---- Taking

Result<bool> FileState::Adopt(uint64_t first, const SharedBlocks& blocks) {
  const Turn::Holder turn(turn_);
  for (Attempts attempts(kMostTries); attempts.Next();) {
    TRY(CommitUnderTurn(false));
    const uint64_t slot = slot_;
    if (!MayShare() || (!now_.map && now_.size > 0)) return false;
    // The demands on this file's layout are kept: another one may want more copies, or fewer.
    const StripeLayout layout = now_.map ? now_.map->layout() : this->layout().striped;
    if (layout != blocks.layout) return false;
    const uint64_t bytes = blocks.layout.block_bytes();
    const uint64_t end = first * bytes + blocks.bytes;
    // A block that is shared in part would have to be put together.
    if (end % bytes != 0 && now_.size > end) return false;
    if (now_.map) {
      const uint64_t blocks_now = now_.map->blocks();
      const auto load = [&](uint64_t from, uint64_t to) -> Status {
        to = std::min(to, blocks_now);
        return from < to ? LoadBytes(from * bytes, to * bytes) : Status();
      };
      // A file that becomes longer has a last block that is looked at.
      TRY(load(blocks_now - 1, blocks_now));
      TRY(load(first, first + (blocks.bytes + bytes - 1) / bytes));
      if (slot_ != slot) continue;  // it has become another one
    }
    std::set<InodeId> keepers;
    for (const auto& piece : blocks.pieces) {
      if (piece.last) keepers.insert(piece.last->object);
    }
    for (const InodeId keeper : keepers) {
      const Status joined = context_.keepers.Join(keeper, id_);
      if (joined.code() == ENOENT || joined.code() == EMLINK) return false;
      TRY(joined);
    }
    std::set<InodeId> all(base_.keepers.begin(), base_.keepers.end());
    all.merge(keepers);
    if (all.size() > kMostKeepersOfFile) return false;
    if (TRY(TryAdopt(first, blocks, {all.begin(), all.end()}))) return true;
  }
  return false;
}

Result<bool> FileState::TryAdopt(uint64_t first, const SharedBlocks& blocks,
                                 std::vector<InodeId> keepers) {
  const uint64_t bytes = blocks.layout.block_bytes();
  Inode out;
  BlockMap map(blocks.layout);
  uint64_t size = 0;
  {
    const MutexLock lock(mutex_);
    out = base_;
    out.keepers = std::move(keepers);
    out.modified = out.changed = context_.records.WallClock();
    if (now_.map) map = *now_.map;
    size = std::max(now_.size, first * bytes + blocks.bytes);
  }
  map.Resize(size);
  for (const auto& piece : blocks.pieces) {
    const uint64_t from = first + piece.first;
    if (!piece.last) {
      map.SetHoles(from, from + piece.count);
      continue;
    }
    for (uint64_t i = 0; i < piece.count; ++i) {
      const bool last = i + 1 == piece.count;
      const auto valid = last ? piece.last->valid : static_cast<uint32_t>(bytes);
      map.Set(from + i,
              SharedPlace(piece.last->object, piece.last->shift - first, valid, piece.last->skip));
    }
  }
  {
    const MutexLock lock(mutex_);
    now_.map = std::move(map);
    now_.size = size;
    ++generation_;
  }
  return ChangeBlocks(out, Durability::kWriteBack, Garbage::kAll);
}

// Commits the map as it is now, with nothing in memory. False: another host was faster, and what it
// made is here instead. EIO: nobody knows; the map is as it was committed before.
Result<bool> FileState::ChangeBlocks(Inode out, Durability durability, Garbage garbage) {
  const auto take_back = [this] {
    const MutexLock lock(mutex_);
    now_ = base_;
    write_ids_.EndPass();
    ++generation_;
  };
  const auto store = [&]() -> Status {
    TRY(StorePages());
    {
      const MutexLock lock(mutex_);
      out.map = now_.map;
      out.size = now_.size;
    }
    UnsafeStripes::Unsafe unsafe;
    if (durability == Durability::kWriteThrough) {
      unsafe = TRY(unsafe_.FlushAll(out));
    } else if (Endangers(out)) {
      unsafe = TRY(FlushNewStripes(out));
    }
    return unsafe.why;
  };
  if (const Status stored = store(); !stored.ok()) {
    take_back();
    return Failed(stored);
  }
  if (const Status off = TakeMarkOff(out); !off.ok()) {
    take_back();
    return Failed(off);
  }
  const auto changed = context_.records.ChangeInode(id_, slot_, out, durability);
  if (!changed.why.ok()) {
    take_back();
    const MutexLock lock(mutex_);
    if (changed.unknown()) {
      stored_pages_.clear();  // they may be named: if they are not, they are collected
      uncertain_ = true;
    }
    return Failed(changed.why);
  }
  if (!changed.applied()) {
    take_back();
    if (!changed.now) {
      return Fail(ESTALE, "inode {:016x} was removed by another host while it was open", id_);
    }
    TRY(CheckRemembered(*changed.now));
    TRY(Rebase(*changed.now));
    return false;
  }
  std::vector<BlockMap::Piece> pages;
  if (garbage == Garbage::kPages) {
    // Its stripes are named by the keeper instead; pages are not.
    const MutexLock lock(mutex_);
    pages = base_.map->NotIn(*out.map).pages;
    base_.map = out.map;
  }
  Committed(*changed.now, durability, changed.losses);
  context_.reaper.Add(pages, block_bytes());
  return true;
}

}  // namespace pinstripe
