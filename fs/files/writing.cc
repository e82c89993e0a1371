#include "fs/files/writing.h"

#include <algorithm>
#include <cassert>

#include "base/try.h"

namespace pinstripe {
namespace {

// The pages of a block that these bytes touch, with the sums that came for them.
std::vector<RangeSums::Range> PagesIn(uint64_t first, uint64_t end,
                                      std::span<const uint32_t> page_sums) {
  std::vector<RangeSums::Range> pages;
  pages.reserve(page_sums.size());
  for (const uint32_t sum : page_sums) {
    const uint64_t page_end = std::min(end, (first / kFilePageBytes + 1) * kFilePageBytes);
    pages.push_back({first, static_cast<uint32_t>(page_end - first), sum});
    first = page_end;
  }
  assert(page_sums.empty() || first == end);
  return pages;
}

}  // namespace

FileWriting::FileWriting(FileContext& context, InodeId id)
    : FileReading(context, id),
      write_ids_(context.cluster.runtime().Random()),
      unsafe_(context.cluster, id) {}

DirtyBlocks::Block& FileWriting::BlockAt(uint64_t block) {
  if (blocks_.empty()) blocks_layout_ = layout();
  return blocks_.At(block);
}

// ---- Writing

StripeLayout FileWriting::LayoutFor(uint64_t block, uint64_t end) const {
  const FileLayout layout = this->layout();
  if (block == 0 && end <= layout.small().block_bytes()) return layout.small();
  return now_.map ? now_.map->layout() : layout.striped;
}

void FileWriting::MakeRoom(uint64_t block, uint64_t end, DirtyBlocks::Block& open,
                           MemoryBudget::Share* room) {
  if (!open.HasRoomFor(end)) blocks_.MakeRoom(open, end, LayoutFor(block, end), room);
}

// Where these bytes, which are ours from now on, are to be put. Called with mutex_ held.
MutableBytes FileWriting::RoomFor(uint64_t block, uint64_t first, uint64_t end,
                                  MemoryBudget::Share& room) {
  DirtyBlocks::Block& open = BlockAt(block);
  blocks_.Touch(open);
  MakeRoom(block, end, open, &room);
  open.dirty->sums().Cut(first, end, open.dirty->data());
  open.present.Add(first, end);
  open.ours.Add(first, end);
  const uint64_t end_in_file = block * block_bytes() + end;
  if (end_in_file > now_.size) ResizeTo(end_in_file);
  changed_ = true;
  modified_ = context_.records.WallClock();
  return open.dirty->data().subspan(first, end - first);
}

void FileWriting::PutBytes(uint64_t block, uint64_t first, const Piece& piece,
                           MemoryBudget::Share& room) {
  const uint64_t end = first + piece.data.size();
  const MutexLock lock(mutex_);
  CopyBytes(RoomFor(block, first, end, room), piece.data);
  blocks_.Find(block)->dirty->sums().Add(PagesIn(first, end, piece.page_sums));
}

// The memory that a write needs beyond what the file has already. Full blocks are sent as they
// come, so it is bounded.
uint64_t FileWriting::MemoryToWrite(uint64_t offset, size_t length) const {
  const uint64_t end = offset + length;
  uint64_t bytes = 0;
  size_t buffers = 0;
  for (uint64_t block = offset / block_bytes();
       block * block_bytes() < end && buffers <= kMaxInFlight; ++block) {
    const uint64_t block_end = std::min(end - block * block_bytes(), block_bytes());
    const DirtyBlocks::Block* const open = blocks_.Find(block);
    if (open && open->HasRoomFor(block_end)) continue;
    bytes += StripeBuffer::MemoryBytes(LayoutFor(block, block_end));
    ++buffers;
  }
  return bytes;
}

Status FileWriting::WriteUnderTurn(uint64_t offset, Piece piece, MemoryBudget::Share& room) {
  // Nothing more is taken while what was taken before cannot be stored. But what did not arrive as
  // it was sent may be about to come again.
  if (!failure_.ok() && failure_.code() != EDOM) TRY(SendAll());
  auto& [data, page_sums] = piece;
  while (!data.empty()) {
    TRY(LoadBytes(offset, offset + 1));
    const uint64_t block = offset / block_bytes();
    const uint64_t first = offset % block_bytes();
    const size_t length = std::min<uint64_t>(data.size(), block_bytes() - first);
    // (A block is made of whole pages.)
    const size_t pages = page_sums.empty() ? 0 : CountFilePages(offset, length);
    PutBytes(block, first, {data.first(length), page_sums.first(pages)}, room);
    if (blocks_.Find(block)->present.Covers(0, block_bytes())) {
      const Status status = SendBlock(block);
      if (!status.ok()) failure_ = status;
      if (blocks_.CountInFlight() > kMaxInFlight) FinishOldest();
    }
    offset += length;
    data = data.subspan(length);
    page_sums = page_sums.subspan(pages);
  }
  return {};
}

// The blocks that a change goes to may be stored, and their buffers gone, before it has its turn:
// then it needs more room than it found it would.
template <typename Needed, typename Change>
Status FileWriting::ChangeWithRoom(const Needed& needed, const Change& change) {
  MemoryBudget::Share room;
  for (uint64_t bytes = 0;;) {
    {
      const Turn::Holder turn(turn_);
      bytes = std::max<uint64_t>(bytes, needed());
      if (bytes <= room.bytes()) {
        const Status status = change(room);
        context_.budget.NoteChange();  // there are blocks to store that there were not
        return status;
      }
    }
    room.Return();
    room = TRY(context_.reserve(bytes));
  }
}

Result<uint64_t> FileWriting::WriteAt(std::optional<uint64_t> where, Piece piece) {
  const Bytes data = piece.data;
  uint64_t offset = 0;
  const auto fits = [&] {
    return offset <= kMaxFileBytes && data.size() <= kMaxFileBytes - offset;
  };
  TRY(ChangeWithRoom(
      [&] {
        offset = where.value_or(now_.size);
        return fits() ? MemoryToWrite(offset, data.size()) : 0;
      },
      [&](MemoryBudget::Share& room) -> Status {
        if (fits()) return WriteUnderTurn(offset, piece, room);
        return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
      }));
  return offset;
}

Status FileWriting::Write(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums) {
  if (data.empty()) return {};
  TRY(WriteAt(offset, {data, page_sums}));
  return {};
}

Result<uint64_t> FileWriting::Append(Bytes data) { return WriteAt(std::nullopt, {data, {}}); }

Status FileWriting::Truncate(uint64_t size) {
  if (size > kMaxFileBytes) return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
  const Turn::Holder turn(turn_);
  TRY(LoadBytes(size - (size > 0 ? 1 : 0), size + 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const MutexLock lock(mutex_);
  ResizeTo(size);
  size_set_ = changed_ = true;
  cut_to_ = std::min(cut_to_.value_or(UINT64_MAX), size);
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

void FileWriting::ResizeTo(uint64_t size) {
  const bool shrinks = size < now_.size;
  now_.size = size;
  if (now_.inline_data.size() > size) now_.inline_data.resize(size);
  if (shrinks) blocks_.CutTo(size / block_bytes(), size % block_bytes());
  if (!now_.map) return;
  if (!shrinks) return now_.map->Resize(size);
  const BlockMap before = *now_.map;
  now_.map->Resize(size);
  Supersede(before.NotIn(*now_.map).blocks);
}

// ---- Holes

Status FileWriting::Zero(uint64_t offset, uint64_t length, OpenFile::Size size) {
  if (offset > kMaxFileBytes || length > kMaxFileBytes - offset) {
    if (size == OpenFile::Size::kGrows) {
      return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
    }
    offset = std::min(offset, kMaxKeptFileBytes);
    length = std::min(length, kMaxKeptFileBytes - offset);
  }
  const auto end = [&] {
    const uint64_t wanted = offset + length;
    return size == OpenFile::Size::kGrows ? wanted : std::min(wanted, now_.size);
  };
  const auto needed = [&]() -> uint64_t {
    if (offset >= end()) return 0;
    const uint64_t last = end() - 1;
    const uint64_t both = offset / block_bytes() == last / block_bytes() ? 0 : 1;
    return MemoryToWrite(offset, 1) + both * MemoryToWrite(last, 1);
  };
  return ChangeWithRoom(needed, [&](MemoryBudget::Share& room) -> Status {
    if (offset >= end()) return {};
    const uint64_t until = end();
    if (until > now_.size) GrowTo(until);
    return ZeroUnderTurn(offset, until, room);
  });
}

// Bytes that others have meanwhile beyond its end are not cut, as a truncation would.
void FileWriting::GrowTo(uint64_t size) {
  const MutexLock lock(mutex_);
  ResizeTo(size);
  grown_to_ = std::max(grown_to_, size);
  changed_ = true;
  modified_ = context_.records.WallClock();
}

Status FileWriting::ZeroUnderTurn(uint64_t offset, uint64_t end, MemoryBudget::Share& room) {
  // Nothing more is taken while what was taken before cannot be stored.
  if (!failure_.ok()) TRY(SendAll());
  while (offset < end) {
    const uint64_t block = offset / block_bytes();
    const uint64_t first = offset % block_bytes();
    const uint64_t whole_end = end / block_bytes();
    if (first == 0 && block < whole_end) {
      TRY(ClearBlocks(block, whole_end));
      offset = whole_end * block_bytes();
      continue;
    }
    const uint64_t length = std::min(end - offset, block_bytes() - first);
    TRY(ZeroInBlock(block, first, first + length, room));
    offset += length;
  }
  return {};
}

// Zeros are only written where something else is. Bytes beyond that are ours all the same.
Status FileWriting::ZeroInBlock(uint64_t block, uint64_t first, uint64_t end,
                                MemoryBudget::Share& room) {
  TRY(LoadBytes(block * block_bytes() + first, block * block_bytes() + first + 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const MutexLock lock(mutex_);
  DirtyBlocks::Block& open = BlockAt(block);
  IntervalSet data = LowerData(block);
  data.Add(open.present);
  const uint64_t written_end = std::min(end, data.end());
  const bool is_all = data.Within(0, first).empty() && data.end() <= end;
  if (is_all && now_.map) {
    MakeHoles(block, block + 1);
    blocks_.Forget(open);
  } else if (!data.Within(first, end).empty()) {
    ZeroBytes(RoomFor(block, first, written_end, room));
    open.may_have_gaps = true;
  }
  open.ours.Add(first, end);
  grown_to_ = std::max(grown_to_, std::min(now_.size, block * block_bytes() + end));
  changed_ = true;
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

Status FileWriting::ClearBlocks(uint64_t first, uint64_t end) {
  EnsureMap();
  const auto missing = [&](uint64_t block) {
    const MutexLock lock(mutex_);
    return now_.map->FirstMissing(block, block + 1).has_value();
  };
  do {  // loading one may find that another host has changed the file, and the other be away again
    TRY(LoadBytes(first * block_bytes(), first * block_bytes() + 1));
    TRY(LoadBytes(end * block_bytes() - 1, end * block_bytes()));
    EnsureMap();
  } while (missing(first) || missing(end - 1));
  std::vector<DirtyBlocks::Sent> dropped;
  const MutexLock lock(mutex_);
  MakeHoles(first, end);
  blocks_.Erase(first, end);
  cleared_.Add(first, end);
  grown_to_ = std::max(grown_to_, std::min(now_.size, end * block_bytes()));
  changed_ = true;
  modified_ = context_.records.WallClock();
  ++generation_;
  dropped = blocks_.TakeDropped();
  return {};
}

// In the map, which there is. Called with mutex_ held.
void FileWriting::MakeHoles(uint64_t first, uint64_t end) {
  const BlockMap before = *now_.map;
  now_.map->SetHoles(first, end);
  Supersede(before.NotIn(*now_.map).blocks);
}

Result<FileWriting::Extent> FileWriting::ExtentAt(uint64_t offset) {
  const uint64_t bytes = block_bytes();
  const uint64_t block = offset / bytes;
  const uint64_t first = offset % bytes;
  const bool stores_something = [&] {
    const MutexLock lock(mutex_);
    const auto missing =
        now_.map ? now_.map->FirstMissing(block, block + 1) : std::optional<BlockMap::Part>();
    return missing && missing->stretch->stored_bytes > 0;
  }();
  if (stores_something) TRY(LoadBytes(offset, offset + 1));
  const MutexLock lock(mutex_);
  const auto open = blocks_.all().lower_bound(block);
  if (open != blocks_.all().end() && open->first == block) return ExtentIn(block, first);
  const uint64_t next_open = open == blocks_.all().end() ? UINT64_MAX / bytes : open->first;
  if (!now_.map) {
    const uint64_t there = now_.inline_data.size();
    return offset < there ? Extent{true, there} : Extent{false, next_open * bytes};
  }
  if (block >= now_.map->blocks()) return Extent{false, next_open * bytes};
  const BlockMap::Span span = now_.map->SpanAt(block);
  const uint64_t end = std::min(span.end, next_open);
  if (span.hole) return Extent{false, end * bytes};
  if (block + 1 < end) return Extent{true, (end - 1) * bytes};  // all but the last are full
  return ExtentIn(block, first);
}

// From byte `first` of the block on.
FileWriting::Extent FileWriting::ExtentIn(uint64_t block, uint64_t first) const {
  const uint64_t begin = block * block_bytes();
  IntervalSet data = LowerData(block);
  const DirtyBlocks::Block* const open = blocks_.Find(block);
  if (open && open->dirty) {
    data.Add(open->present);
    for (const auto& part : ZerosOf(*open, data.end())) data.Remove(part.first, part.end);
  }
  const auto parts = data.Within(first, block_bytes());
  if (parts.empty()) return {false, begin + block_bytes()};
  const bool is_here = parts.front().first == first;
  return {is_here, begin + (is_here ? parts.front().end : parts.front().first)};
}

// The holes in what is dirty of a block, of which there is something up to `end`: as they are going
// to be stored.
std::vector<IntervalSet::Interval> FileWriting::ZerosOf(const DirtyBlocks::Block& open,
                                                        uint64_t end) {
  std::vector<IntervalSet::Interval> holes;
  if (!open.may_have_gaps) return holes;
  for (const auto& part : open.present.Within(0, UINT64_MAX)) {
    const uint64_t begin = (part.first + kGapUnit - 1) / kGapUnit * kGapUnit;
    const uint64_t until = part.end == end ? end : part.end / kGapUnit * kGapUnit;
    if (begin >= until) continue;
    const ZerosOfBlock zeros = FindZeros(open.dirty->data().subspan(begin, until - begin));
    for (const BlockExtent& gap : zeros.gaps) {
      holes.push_back({begin + gap.first, begin + gap.end()});
    }
    holes.push_back({begin + zeros.end, until});
  }
  return holes;
}

Result<uint64_t> FileWriting::Seek(uint64_t offset, OpenFile::Contents contents) {
  const Turn::Holder turn(turn_);
  for (uint64_t at = offset; at < now_.size;) {
    const Extent extent = TRY(ExtentAt(at));
    if (extent.data == (contents == OpenFile::Contents::kData)) return at;
    at = extent.end;
  }
  if (offset < now_.size && contents == OpenFile::Contents::kHole) return now_.size;
  return Fail(ENXIO, "inode {:016x}: there is nothing more from {} on", id_, offset);
}

Result<uint64_t> FileWriting::CountHoleBytes(uint64_t offset, uint64_t end) {
  uint64_t bytes = end - std::clamp(now_.size, offset, end);
  for (uint64_t at = offset; at < std::min(end, now_.size);) {
    const Extent extent = TRY(ExtentAt(at));
    const uint64_t until = std::min({extent.end, end, now_.size});
    if (!extent.data) bytes += until - at;
    at = until;
  }
  return bytes;
}

Status FileWriting::Allocate(uint64_t offset, uint64_t length, OpenFile::Size size) {
  if (offset > kMaxFileBytes || length > kMaxFileBytes - offset) {
    return Fail(EFBIG, "a file has at most {} bytes", kMaxFileBytes);
  }
  if (length == 0) return {};
  const SpaceInfo space = TRY(context_.cluster.Space());
  const Turn::Holder turn(turn_);
  const uint64_t needed = TRY(CountHoleBytes(offset, offset + length));
  if (needed > space.usable_free_bytes) {
    return Fail(ENOSPC, "inode {:016x}: {} bytes more do not fit into the {} that are free", id_,
                needed, space.usable_free_bytes);
  }
  if (size == OpenFile::Size::kGrows && offset + length > now_.size) GrowTo(offset + length);
  return {};
}

void FileWriting::Supersede(const std::vector<BlockMap::Piece>& pieces) {
  for (const BlockMap::Piece& piece : pieces) {
    if (piece.run.shared || piece.run.object != id_) continue;
    for (uint64_t i = 0; i < piece.run.count; ++i) {
      const BlockPlace place = PlaceInRun(piece.run, i, block_bytes());
      if (MayHold(base_.map, piece.first + i, place)) continue;
      superseded_.push_back(BlockMap::PiecesOf(piece.first + i, place).front());
    }
  }
}

}  // namespace pinstripe
