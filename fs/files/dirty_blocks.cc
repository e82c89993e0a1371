#include "fs/files/dirty_blocks.h"

#include <algorithm>
#include <cassert>

namespace pinstripe {
namespace {

using Block = DirtyBlocks::Block;

// To the same places of a buffer, with their sums.
void CopyPresent(const Block& block, StripeBuffer& to) {
  const Bytes from = block.dirty->data();
  for (const auto& part : block.present.Within(0, UINT64_MAX)) {
    const size_t length = part.end - part.first;
    to.sums().Cut(part.first, part.end, to.data());
    CopyBytes(to.data().subspan(part.first, length), from.subspan(part.first, length));
    to.sums().AddCopied(block.dirty->sums(), from, part.first, part.end, part.first);
  }
}

// Calls use(first, end, offset), with each piece of `part` that was sent, and where in the buffer
// it is.
template <typename Use>
void ForEachPiece(const DirtyBlocks::Sent& sent, const IntervalSet::Interval& part,
                  const Use& use) {
  const auto piece = [&](uint64_t begin, uint64_t end, uint64_t offset) {
    const uint64_t from = std::max(begin, part.first);
    const uint64_t to = std::min(end, part.end);
    if (from < to) use(from, to, offset + from - begin);
  };
  uint64_t offset = 0;
  if (!sent.is_patch()) {
    uint64_t begin = 0;
    for (const BlockExtent& gap : sent.gaps) {
      piece(begin, std::min(gap.first, sent.valid), offset);
      offset += gap.first - begin;
      begin = gap.end();
    }
    return piece(begin, sent.valid, offset);
  }
  for (const BlockPatch::Extent& extent : sent.extents) {
    piece(extent.first, extent.end(), offset);
    offset += extent.length;
  }
}

}  // namespace

IntervalSet DirtyBlocks::Sent::Bytes() const {
  IntervalSet bytes;
  if (!is_patch()) bytes.Add(0, valid);
  for (const BlockPatch::Extent& extent : extents) bytes.Add(extent.first, extent.end());
  return bytes;
}

void DirtyBlocks::Sent::CopyTo(const IntervalSet::Interval& part, uint64_t first,
                               MutableBytes out) const {
  for (const BlockExtent& gap : gaps) {
    const uint64_t from = std::max<uint64_t>(gap.first, part.first);
    const uint64_t to = std::min<uint64_t>({gap.end(), part.end, valid});
    if (from < to) ZeroBytes(out.subspan(from - first, to - from));
  }
  ForEachPiece(*this, part, [&](uint64_t from, uint64_t to, uint64_t offset) {
    CopyBytes(out.subspan(from - first, to - from), buffer->data().subspan(offset, to - from));
  });
}

void DirtyBlocks::Sent::CopySumsTo(const IntervalSet::Interval& part, StripeBuffer& whole) const {
  ForEachPiece(*this, part, [&](uint64_t from, uint64_t to, uint64_t offset) {
    whole.sums().AddCopied(buffer->sums(), buffer->data(), offset, offset + (to - from), from);
  });
}

void DirtyBlocks::Sent::CutTo(uint32_t bytes) {
  valid = std::min(valid, bytes);
  if (!is_patch()) return;
  std::erase_if(extents, [&](const auto& extent) { return extent.first >= bytes; });
  assert(!extents.empty());
  extents.back().length = std::min(extents.back().length, bytes - extents.back().first);
}

Block* DirtyBlocks::Find(uint64_t number) {
  const auto found = blocks_.find(number);
  return found == blocks_.end() ? nullptr : &found->second;
}

const Block* DirtyBlocks::Find(uint64_t number) const {
  const auto found = blocks_.find(number);
  return found == blocks_.end() ? nullptr : &found->second;
}

// ---- Memory

void DirtyBlocks::Touch(Block& block) {
  block.age = ++ages_;
  block.written_at = runtime_.Now();
}

void DirtyBlocks::MakeRoom(Block& block, uint64_t end, const StripeLayout& layout,
                           MemoryBudget::Share* room) {
  if (block.HasRoomFor(end)) return;
  auto buffer = room ? memory_.Allocate(layout, *room) : memory_.Allocate(layout);
  if (block.dirty) CopyPresent(block, *buffer);
  block.dirty = std::move(buffer);
}

void DirtyBlocks::LayUnder(Block& block, Bytes data) {
  assert(block.HasRoomFor(data.size()));
  for (const auto& gap : block.present.GapsWithin(0, data.size())) {
    CopyBytes(block.dirty->data().subspan(gap.first, gap.end - gap.first),
              data.subspan(gap.first, gap.end - gap.first));
  }
  block.present.Add(0, data.size());
}

void DirtyBlocks::KeepOnlyOurs(Block& block) {
  DropSent(block);
  block.present = block.ours;
  if (block.dirty) {
    for (const auto& gap : block.present.GapsWithin(0, block.dirty->sums().end())) {
      block.dirty->sums().Cut(gap.first, gap.end, block.dirty->data());
    }
  }
  CheckBlock(block);
}

void DirtyBlocks::Forget(Block& block) {
  DropSent(block);
  block.dirty.reset();
  block.present = {};
  block.may_have_gaps = false;
}

void DirtyBlocks::CutTo(uint64_t last, uint64_t bytes) {
  if (bytes == 0) return Erase(last, UINT64_MAX);
  Erase(last + 1, UINT64_MAX);
  Block* const block = Find(last);
  if (!block) return;
  block->ours.CutFrom(bytes);
  block->present.CutFrom(bytes);
  if (block->dirty) block->dirty->sums().Cut(bytes, UINT64_MAX, block->dirty->data());
  if (block->present.empty()) block->dirty.reset();
  if (block->sent && block->sent->is_patch() && block->sent->extents.front().first >= bytes) {
    DropSent(*block);
  }
  if (block->sent) block->sent->CutTo(static_cast<uint32_t>(bytes));
  CheckBlock(*block);
}

void DirtyBlocks::Erase(uint64_t first, uint64_t end) {
  for (auto at = blocks_.lower_bound(first); at != blocks_.end() && at->first < end;) {
    DropSent(at->second);
    at = blocks_.erase(at);
  }
}

void DirtyBlocks::EraseUnwritten() {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.ours.empty(); });
  CheckInvariants();
}

DirtyBlocks::Blocks DirtyBlocks::TakeAll() {
  in_flight_.clear();
  return std::exchange(blocks_, {});
}

// ---- What is on its way

DirtyBlocks::Sent& DirtyBlocks::Send(uint64_t number, Sent sent) {
  Block& block = blocks_.at(number);
  assert(block.dirty);
  DropSent(block);
  block.sent = std::move(sent);
  block.dirty.reset();
  block.present = {};
  block.may_have_gaps = false;
  in_flight_.push_back(number);
  CheckBlock(block);
  return *block.sent;
}

DirtyBlocks::Sent DirtyBlocks::Finish(Block& block) {
  assert(block.sent);
  Sent sent = *std::move(block.sent);
  block.sent.reset();
  CheckBlock(block);
  return sent;
}

void DirtyBlocks::TakeBack(Block& block, const Sent& sent, StripeLayout layout) {
  assert(!block.sent);
  const IntervalSet taken = sent.Bytes();
  if (block.dirty && block.dirty->layout().block_bytes() > layout.block_bytes()) {
    layout = block.dirty->layout();
  }
  auto whole = memory_.Allocate(layout);
  sent.CopyTo({0, taken.end()}, 0, whole->data());
  sent.CopySumsTo({0, taken.end()}, *whole);
  if (block.dirty) {
    CopyPresent(block, *whole);
  } else {
    block.age = sent.age;
    block.written_at = sent.written_at;
  }
  block.dirty = std::move(whole);
  block.present.Add(taken);
  block.may_have_gaps |= !sent.gaps.empty();
  CheckBlock(block);
}

void DirtyBlocks::DropSent(Block& block) {
  if (!block.sent) return;
  dropped_.push_back(*std::move(block.sent));
  block.sent.reset();
}

std::optional<uint64_t> DirtyBlocks::TakeFirstInFlight() {
  while (!in_flight_.empty()) {
    const uint64_t number = in_flight_.front();
    const Block* const block = Find(number);
    const bool is_on_its_way = block && block->sent;
    in_flight_.pop_front();
    if (is_on_its_way) return number;
  }
  return std::nullopt;
}

// ---- Eviction

std::optional<DirtyBlocks::Holding> DirtyBlocks::Oldest() const {
  std::optional<Holding> oldest;
  for (const auto& [number, block] : blocks_) {
    for (const Holding& holding : {Holding{true, block.sent ? block.sent->age : 0, {}},
                                   Holding{false, block.age, block.written_at}}) {
      if (holding.sent ? !block.sent : !block.dirty) continue;
      if (!oldest || holding.GoesBefore(*oldest)) oldest = holding;
    }
  }
  return oldest;
}

std::optional<uint64_t> DirtyBlocks::OldestDirty() const {
  const std::pair<const uint64_t, Block>* oldest = nullptr;
  for (const auto& entry : blocks_) {
    if (entry.second.dirty && (!oldest || entry.second.age < oldest->second.age)) oldest = &entry;
  }
  return oldest ? std::optional(oldest->first) : std::nullopt;
}

std::vector<uint64_t> DirtyBlocks::AllDirty() const {
  std::vector<uint64_t> dirty;
  for (const auto& [number, block] : blocks_) {
    if (block.dirty) dirty.push_back(number);
  }
  return dirty;
}

bool DirtyBlocks::IsAllStored() const {
  return std::ranges::none_of(
      blocks_, [](const auto& entry) { return entry.second.dirty || entry.second.sent; });
}

// ---- Invariants

void DirtyBlocks::CheckBlock(const Block& block) {
  assert(block.dirty || block.present.empty());
  assert(!block.dirty || block.present.end() <= block.dirty->layout().block_bytes());
  assert(!block.dirty || std::ranges::all_of(block.dirty->sums().ranges(), [&](const auto& range) {
    return block.present.Covers(range.first, range.end());
  }));
  if (!block.sent) return;
  assert(block.sent->buffer);
  if (!block.sent->is_patch()) {
    assert(block.sent->valid <= block.sent->stored + GapBytes(block.sent->gaps));
    return;
  }
  [[maybe_unused]] uint64_t bytes = 0;
  [[maybe_unused]] uint64_t end = 0;
  for (const BlockPatch::Extent& extent : block.sent->extents) {
    assert(extent.length > 0 && extent.first >= end);
    end = extent.end();
    bytes += extent.length;
  }
  assert(bytes <= block.sent->stored);
}

void DirtyBlocks::CheckInvariants() const {
  for (const auto& [number, block] : blocks_) {
    CheckBlock(block);
    assert(!block.sent || std::ranges::find(in_flight_, number) != in_flight_.end());
  }
}

}  // namespace pinstripe
