// DirtyBlocks: the blocks of one open file that are in memory, because something was written to
// them that is not in the map yet. Which of this file's blocks leave memory first (eviction) is
// decided here, and which file's in fs/open_files.h; fs/files/sending.cc completes and stores them.
//
// A block goes through these states, and may be in the last two at once:
//
//   remembered   nothing in memory; only which of its bytes are ours, for a merge
//   dirty        a buffer, and which bytes of it are there
//   sent         a stripe on its way to the drives: the whole block as it was then, or a patch
//
//   MakeRoom()    -> dirty
//   Send()        dirty -> sent
//   Finish()      sent -> remembered; it was stored
//   TakeBack()    sent -> dirty; it was not
//   DropSent()    sent -> remembered; what it was going to be is not wanted any more
//   CutTo(), Erase(): less of it, or nothing
//
// Guarded by its owner: changed under the file's turn, with its mutex held; read with either.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/runtime.h"
#include "cluster/stripes/store.h"
#include "fs/files/block_map.h"
#include "fs/files/block_memory.h"
#include "fs/files/interval_set.h"

namespace pinstripe {

class DirtyBlocks {
 public:
  struct Sent {
    WriteId write{};
    std::shared_ptr<StripeBuffer> buffer;
    uint32_t stored = 0;
    uint32_t valid = 0;  // of a block
    uint64_t shift = 0;  // as in BlockPlace
    // The zeros that the buffer is without, of a block. As in BlockPlace, and the last may be its
    // end.
    std::vector<BlockExtent> gaps;
    std::vector<BlockPatch::Extent> extents;             // of a patch; none: it is the whole block
    std::unique_ptr<StripeStore::PendingWrite> pending;  // touched under the turn alone
    bool is_durable = false;                             // it is written through
    uint64_t age = 0;
    Time written_at{};

    bool is_patch() const { return !extents.empty(); }
    IntervalSet Bytes() const;  // that it has of the block
    // Copies of these bytes what is in `part` to `out`, which begins with byte `first`.
    void CopyTo(const IntervalSet::Interval& part, uint64_t first, MutableBytes out) const;
    // The sums of what is in `part`, where `whole`, the block's buffer, has a copy of it.
    void CopySumsTo(const IntervalSet::Interval& part, StripeBuffer& whole) const;
    void CutTo(uint32_t bytes);  // not to nothing
  };

  struct Block {
    IntervalSet ours;  // written since the last commit, in this block, whatever layer it is in
    std::shared_ptr<StripeBuffer> dirty;
    IntervalSet present;  // the bytes that `dirty` has: ours, and what was filled in
    // There are zeros in it, perhaps, that nobody has written as such.
    bool may_have_gaps = false;
    uint64_t age = 0;   // when `dirty` was last written to, in the order of all files'
    Time written_at{};  // and by the clock
    std::optional<Sent> sent;

    bool HasRoomFor(uint64_t end) const { return dirty && end <= dirty->layout().block_bytes(); }
  };
  using Blocks = std::map<uint64_t, Block>;

  DirtyBlocks(BlockMemory& memory, std::atomic<uint64_t>& ages, Runtime& runtime)
      : memory_(memory), ages_(ages), runtime_(runtime) {}

  const Blocks& all() const { return blocks_; }
  bool empty() const { return blocks_.empty(); }
  bool Contains(uint64_t number) const { return blocks_.contains(number); }
  Block* Find(uint64_t number);  // null: nothing is known of it
  const Block* Find(uint64_t number) const;
  Block& At(uint64_t number) { return blocks_[number]; }  // which is made, if there is none

  // ---- Memory

  // It was written to now.
  void Touch(Block& block);
  // Makes a buffer in which there is room for the first `end` bytes, which keeps what the block has
  // there. Its memory is a part of `room`, if that is given.
  void MakeRoom(Block& block, uint64_t end, const StripeLayout& layout,
                MemoryBudget::Share* room = nullptr);
  // Puts these first bytes of the block into its buffer, which has room, where there are none.
  static void LayUnder(Block& block, Bytes data);
  // Only our bytes of the buffer are left. The caller has brought it there.
  void KeepOnlyOurs(Block& block);
  // The bytes in memory do not count any more.
  void Forget(Block& block);

  // What is beyond `bytes` of block `last`, and all that come after it, is forgotten.
  void CutTo(uint64_t last, uint64_t bytes);
  void Erase(uint64_t first, uint64_t end);
  void EraseUnwritten();  // of which nothing is ours
  [[nodiscard]] Blocks TakeAll();

  // ---- What is on its way

  // Instead of what was dirty of the block. The caller starts the write next.
  Sent& Send(uint64_t number, Sent sent);
  // The write of it is over: the block has it no more.
  Sent Finish(Block& block);
  // A block that was sent, and taken off by Finish(), could not be stored. It is dirty again, under
  // what was written since, in a fresh buffer of this layout: a slow drive may still be sending
  // from the old one.
  void TakeBack(Block& block, const Sent& sent, StripeLayout layout);
  void DropSent(Block& block);
  // The dropped buffers, to be destroyed when the mutex is not held.
  [[nodiscard]] std::vector<Sent> TakeDropped() { return std::exchange(dropped_, {}); }

  // Those that were sent, about: it may be that some have arrived.
  size_t CountInFlight() const { return in_flight_.size(); }
  // The one that was sent first and has not arrived; it is taken off. Null: there is none.
  std::optional<uint64_t> TakeFirstInFlight();

  // ---- Eviction

  // The blocks that are in memory: which of them to store first, to have room for others.
  struct Holding {
    bool sent = false;  // it is on its way already
    uint64_t age = 0;   // the least is to go first
    Time written_at{};  // when it was last written to
    bool GoesBefore(const Holding& other) const {
      return sent == other.sent ? age < other.age : sent;
    }
  };
  std::optional<Holding> Oldest() const;
  std::optional<uint64_t> OldestDirty() const;
  std::vector<uint64_t> AllDirty() const;
  bool IsAllStored() const;  // nothing is in memory but what is remembered

  // By assert. After each change that moves a block to another state.
  void CheckInvariants() const;

 private:
  static void CheckBlock(const Block& block);

  BlockMemory& memory_;
  std::atomic<uint64_t>& ages_;
  Runtime& runtime_;
  Blocks blocks_;
  std::deque<uint64_t> in_flight_;  // in the order in which they were sent
  std::vector<Sent> dropped_;
};

}  // namespace pinstripe
