// FileWriting, second part: completing blocks, sending them to the drives, and making room.

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/try.h"
#include "cluster/beside.h"
#include "fs/files/beside_number.h"
#include "fs/files/patch_plan.h"
#include "fs/files/writing.h"

namespace pinstripe {

// ---- Sending

std::optional<IntervalSet> FileWriting::PatchFor(uint64_t block,
                                                 const DirtyBlocks::Block& open) const {
  if (!now_.map || open.sent) return std::nullopt;
  const auto place = now_.map->Find(block);
  if (!place || place->shared || place->shift != 0 || place->layout != LayoutToSend(block)) {
    return std::nullopt;
  }
  return PlanPatch(*place, open.present);
}

// Completes a dirty block from what is below it, or what is to be sent of it.
Status FileWriting::Fill(uint64_t block, Form form) {
  for (int attempt = 0; attempt < kMaxReadAttempts;) {
    DirtyBlocks::Block* const found = blocks_.Find(block);
    if (!found || !found->dirty) return {};
    DirtyBlocks::Block& open = *found;
    std::vector<IntervalSet::Interval> gaps;
    {
      const MutexLock lock(mutex_);
      std::optional<IntervalSet> wanted;
      if (form == Form::kPatchIfSmall) wanted = PatchFor(block, open);
      if (!wanted) wanted.emplace().Add(0, std::max(open.present.end(), LowerEnd(block)));
      MakeRoom(block, wanted->end(), open);
      for (const auto& part : wanted->Within(0, UINT64_MAX)) {
        std::ranges::copy(open.present.GapsWithin(part.first, part.end), std::back_inserter(gaps));
      }
    }
    if (gaps.empty()) return {};
    // Nobody looks at bytes that are not present, so no lock is needed to bring them in.
    const Status status = ReadLower(block, gaps, *open.dirty);
    if (status.ok()) {
      const MutexLock lock(mutex_);
      const IntervalSet data = LowerData(block);
      const auto place = now_.map ? now_.map->Find(block) : std::nullopt;
      open.may_have_gaps |= place && place->shared;  // nothing is known of its gaps here
      for (const auto& gap : gaps) {
        open.may_have_gaps |= !data.Covers(gap.first, gap.end);
        open.present.Add(gap.first, gap.end);
      }
      continue;
    }
    ++attempt;
    // The data below may be gone, or going, because another host committed.
    const bool may_have_moved = status.code() == ENOENT || status.code() == EIO;
    if (may_have_moved && TRY(keepers_.Refresh())) continue;
    if (may_have_moved && TRY(RefreshUnderTurn())) continue;
    return Fail(status.code() == ENOENT ? EIO : status.code(),
                "inode {:016x}, complete an overwritten block: {}", id_, status.message());
  }
  return Fail(EIO, "inode {:016x}: other hosts changed block {} {} times in between; try again",
              id_, block, kMaxReadAttempts);
}

// From now on the contents are blocks. Inline data becomes a part of block 0.
void FileWriting::EnsureMap() {
  const MutexLock lock(mutex_);
  if (now_.map) return;
  LayUnderBlock0(AsBytes(now_.inline_data));
  now_.map.emplace(layout().striped);
  now_.map->Resize(now_.size);
  now_.inline_data.clear();
}

// Inline data becomes a part of block 0, under what that has in memory. Called with mutex_ held.
void FileWriting::LayUnderBlock0(Bytes data) {
  if (data.empty()) return;
  DirtyBlocks::Block& open = BlockAt(0);
  if (!open.dirty) blocks_.Touch(open);
  MakeRoom(0, data.size(), open);
  blocks_.LayUnder(open, data);
}

WriteId FileWriting::NextWriteId(uint64_t block) {
  return write_ids_.Next(block, context_.records.WallClock());
}

std::optional<StripeLayout> FileWriting::BesideLayout() const {
  const FileLayout whole = layout();
  const uint64_t limit =
      std::min<uint64_t>({whole.SmallLimit(), kCellBytes, whole.striped.block_bytes()});
  if (now_.size > limit) return std::nullopt;
  const auto beside = FindBeside(context_.cluster, id_);
  if (!beside) return std::nullopt;
  return whole.beside(beside->geometry);
}

// For a stored block.
StripeLayout FileWriting::LayoutToSend(uint64_t block) const {
  const auto beside = block == 0 ? BesideLayout() : std::nullopt;
  if (beside && now_.size <= now_.map->block_bytes()) return *beside;
  const FileLayout whole = layout();
  const bool small =
      block == 0 && now_.size <= std::min<uint64_t>(whole.SmallLimit(), now_.map->block_bytes());
  return small ? whole.small() : now_.map->layout();
}

// What of a block, which is stored as a whole, its stripe needs not have. Only those blocks are
// looked through that have been zeroed, or were not written everywhere.
std::optional<ZerosOfBlock> FileWriting::ZerosToLeaveOut(uint64_t block,
                                                         const DirtyBlocks::Block& open,
                                                         Form form) const {
  const StripeLayout layout = LayoutToSend(block);
  if (!open.may_have_gaps || layout != now_.map->layout()) return std::nullopt;
  if (block == 0 && BesideLayout() == layout) return std::nullopt;
  if (form == Form::kPatchIfSmall && PatchFor(block, open)) return std::nullopt;
  // What is left out nobody compares any more.
  if (!open.dirty->sums().Check(open.dirty->data()).ok()) return std::nullopt;
  return FindZeros(open.dirty->data().first(open.present.end()));
}

// The dirty bytes of the block, which Fill() has completed in this form.
DirtyBlocks::Sent FileWriting::MakeSent(uint64_t block, const DirtyBlocks::Block& open, Form form,
                                        std::optional<ZerosOfBlock> zeros) {
  DirtyBlocks::Sent sent{.age = open.age, .written_at = open.written_at};
  sent.write = NextWriteId(block);
  StripeLayout layout = LayoutToSend(block);
  bool patch = false;
  if (form == Form::kPatchIfSmall) {
    const MutexLock lock(mutex_);
    patch = PatchFor(block, open).has_value();
    if (patch) layout = CopiesOf(open.present.Count(), layout.parity_shards);
  }
  const MutableBytes dirty = open.dirty->data();
  if (!patch) {
    if (block == 0 && BesideLayout() == layout) {
      sent.shift = kBesideBit + FindBeside(context_.cluster, id_)->block;
    }
    sent.stored = sent.valid = static_cast<uint32_t>(open.present.end());
    sent.buffer = open.dirty;
    if (zeros) LeaveOut(*std::move(zeros), open, sent);
    if (sent.buffer->layout() == layout) return sent;
    sent.buffer = context_.memory.Allocate(layout);
    CopyBytes(sent.buffer->data(), dirty.first(sent.stored));
    sent.buffer->sums().AddCopied(open.dirty->sums(), dirty, 0, sent.stored, 0);
    return sent;
  }
  sent.buffer = context_.memory.Allocate(layout);
  for (const auto& part : open.present.Within(0, UINT64_MAX)) {
    const auto length = static_cast<uint32_t>(part.end - part.first);
    sent.extents.push_back({static_cast<uint32_t>(part.first), length});
    CopyBytes(sent.buffer->data().subspan(sent.stored, length), dirty.subspan(part.first, length));
    sent.buffer->sums().AddCopied(open.dirty->sums(), dirty, part.first, part.end, sent.stored);
    sent.stored += length;
  }
  return sent;
}

// Of a block that is not all zeros, and is stored as a whole.
void FileWriting::LeaveOut(ZerosOfBlock zeros, const DirtyBlocks::Block& open,
                           DirtyBlocks::Sent& sent) {
  const Bytes dirty = open.dirty->data();
  if (zeros.end < sent.valid) {
    const MutexLock lock(mutex_);
    open.dirty->sums().Cut(zeros.end, UINT64_MAX, dirty);
  }
  sent.stored = zeros.end;
  if (MayHaveGaps(context_.cluster)) sent.gaps = std::move(zeros.gaps);
  const bool has_inner = !sent.gaps.empty();
  if (zeros.end < sent.valid) sent.gaps.push_back({zeros.end, sent.valid - zeros.end});
  if (!has_inner) return;
  sent.buffer = context_.memory.Allocate(now_.map->layout());
  sent.write = WithGaps(sent.write);
  uint32_t begin = 0;
  sent.stored = 0;
  const auto add = [&](uint32_t end) {
    CopyBytes(sent.buffer->data().subspan(sent.stored, end - begin),
              dirty.subspan(begin, end - begin));
    sent.buffer->sums().AddCopied(open.dirty->sums(), dirty, begin, end, sent.stored);
    sent.stored += end - begin;
  };
  for (const BlockExtent& gap : sent.gaps) {
    add(gap.first);
    begin = gap.end();
  }
  if (begin < sent.valid) add(sent.valid);
}

Status FileWriting::SendBlock(uint64_t block, Form form, Durability durability) {
  if (auto* const prepared = TRY(PrepareBlock(block, form, durability))) prepared->Send();
  return {};
}

Result<StripeStore::PendingWrite*> FileWriting::PrepareBlock(uint64_t block, Form form,
                                                             Durability durability) {
  EnsureMap();
  TRY(Fill(block, form));
  EnsureMap();  // another host may have made it small meanwhile
  DirtyBlocks::Block* const open = blocks_.Find(block);
  if (!open || !open->dirty) return nullptr;
  auto zeros = ZerosToLeaveOut(block, *open, form);
  if (zeros && zeros->end == 0) {
    std::vector<DirtyBlocks::Sent> dropped;
    const MutexLock lock(mutex_);
    MakeHoles(block, block + 1);
    blocks_.Forget(*open);
    ++generation_;
    dropped = blocks_.TakeDropped();
    return nullptr;
  }
  DirtyBlocks::Sent made = MakeSent(block, *open, form, std::move(zeros));
  const StripeId id{id_, block + made.shift, made.write};
  const std::shared_ptr<StripeBuffer> buffer = made.buffer;
  const uint32_t length = made.stored;
  made.is_durable = durability == Durability::kWriteThrough;
  DirtyBlocks::Sent* sent = nullptr;
  std::vector<DirtyBlocks::Sent> dropped;
  {
    const MutexLock lock(mutex_);
    sent = &blocks_.Send(block, std::move(made));
    dropped = blocks_.TakeDropped();
  }
  dropped.clear();
  if (!sent->is_durable) unsafe_.NoteLosses();
  sent->pending = context_.cluster.stripes().PrepareWrite(id, buffer, length, durability);
  return sent->pending.get();
}

void FileWriting::FinishBlock(uint64_t block) {
  DirtyBlocks::Block* const found = blocks_.Find(block);
  if (!found || !found->sent) return;
  DirtyBlocks::Block& open = *found;
  // Where there is no room for a block of the file, the next attempt stores those behind it as
  // well: nobody waits for one after the other now.
  const bool is_hopeless = failure_.code() == ENOSPC;
  Result<StripePlace> stored = is_hopeless ? tl::unexpected(failure_) : open.sent->pending->Wait();
  if (stored.has_value() && !open.sent->is_patch() && open.sent->stored <= kCellBytes) {
    StripeBuffer& buffer = *open.sent->buffer;
    context_.reader.Keep({id_, block + open.sent->shift, open.sent->write}, buffer.layout(),
                         buffer.data().first(open.sent->stored));
  }
  DirtyBlocks::Sent sent;  // goes when the mutex is free
  const MutexLock lock(mutex_);
  sent = blocks_.Finish(open);
  ++generation_;
  if (!stored.has_value()) {
    failure_ = stored.error();
    const bool is_whole = !sent.is_patch();
    return blocks_.TakeBack(
        open, sent, is_whole ? sent.buffer->layout() : LayoutFor(block, sent.Bytes().end()));
  }
  const std::optional<BlockPlace> before = now_.map->Find(block);
  BlockPlace now;
  if (sent.is_patch()) {
    now = *before;
    now.Lay({.object = id_,
             .write = sent.write,
             .layout = sent.buffer->layout(),
             .place = *std::move(stored),
             .stored = sent.stored,
             .extents = std::move(sent.extents)});
  } else {
    now = {.object = id_,
           .shift = sent.shift,
           .write = sent.write,
           .layout = sent.buffer->layout(),
           .place = *std::move(stored),
           .stored = sent.stored,
           .valid = sent.valid,
           .gaps = std::move(sent.gaps)};
    if (!now.gaps.empty() && now.gaps.back().end() >= now.stored + GapBytes(now.gaps)) {
      now.valid = std::min(now.valid, now.gaps.back().first);  // zeros at its end
      now.gaps.pop_back();
    }
    assert(now.shift == 0 || now.gaps.empty());
  }
  if (before) {
    std::vector<BlockMap::Piece> gone = BlockMap::PiecesOf(block, *before);
    std::erase_if(gone, [&](const BlockMap::Piece& piece) {
      return now.Names(StripeId{piece.run.object, block, piece.run.write});
    });
    Supersede(gone);
  }
  now_.map->Set(block, now);
  if (!now.gaps.empty() && DataOf(now).empty())
    MakeHoles(block, block + 1);  // all else was cut off meanwhile
  if (sent.is_durable) {
    unsafe_.NoteDurable(block, sent.write);
  } else {
    unsafe_.Add(block, block + 1);
  }
  // If a file's old contents are gone anyway, nothing has to be remembered.
  if (cut_to_ == 0 && !open.dirty) blocks_.Erase(block, block + 1);
}

bool FileWriting::FinishOldest() {
  const std::optional<uint64_t> block = blocks_.TakeFirstInFlight();
  if (block) FinishBlock(*block);
  return block.has_value();
}

// Until nothing is dirty: a block that has to be completed may find that another host has
// committed, and what was sent before is then dirty again, to be laid over that.
Status FileWriting::SendAll(Durability durability) {
  failure_ = {};
  for (int attempt = 0; attempt < kMaxReadAttempts; ++attempt) {
    EnsureMap();
    const std::vector<uint64_t> dirty = blocks_.AllDirty();
    const bool is_alone = dirty.size() == 1 && blocks_.CountInFlight() == 0 && !HasPages();
    for (const uint64_t block : dirty) {
      TRY(SendBlock(block, Form::kPatchIfSmall, is_alone ? durability : Durability::kWriteBack));
      if (blocks_.CountInFlight() > kMaxInFlight) FinishOldest();
      if (failure_.code() == ENOSPC) break;
    }
    while (FinishOldest()) {
    }
    TRY(failure_);
    if (IsAllStored()) return {};
  }
  return Fail(EIO, "inode {:016x}: other hosts changed it {} times in between; try again", id_,
              kMaxReadAttempts);
}

bool FileWriting::HasPages() const {
  return std::ranges::any_of(
      now_.map->parts(), [](const BlockMap::Part& part) { return part.stretch->page.has_value(); });
}

bool FileWriting::IsAllStored() const { return now_.map && blocks_.IsAllStored(); }

// ---- Memory

std::optional<DirtyBlocks::Holding> FileWriting::Oldest() {
  const MutexLock lock(mutex_);
  return blocks_.Oldest();
}

Status FileWriting::Relieve() {
  const Turn::Holder turn(turn_);
  return RelieveUnderTurn();
}

std::optional<Status> FileWriting::TryRelieve() {
  if (!turn_.TryTake()) return std::nullopt;
  const Turn::Holder turn(turn_, std::adopt_lock);
  return RelieveUnderTurn();
}

Status FileWriting::RelieveUnderTurn() {
  failure_ = {};
  if (FinishOldest()) return failure_;
  const std::optional<uint64_t> oldest = blocks_.OldestDirty();
  if (!oldest) return {};
  const Status status = SendBlock(*oldest);
  if (status.ok()) FinishBlock(*oldest);
  if (!status.ok()) failure_ = status;
  return failure_;
}

}  // namespace pinstripe
