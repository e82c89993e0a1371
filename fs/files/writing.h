// FileWriting: the second layer of an open file (fs/files/state.h): what is written, cut and
// cleared in memory, and blocks on their way to the drives. Nothing of it is committed.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fs/files/interval_set.h"
#include "fs/files/reading.h"
#include "fs/files/unsafe_stripes.h"
#include "fs/files/write_ids.h"

namespace pinstripe {

inline constexpr size_t kMaxInFlight = 4;  // stripes of one file on their way at once

class FileWriting : public FileReading {
 public:
  // As OpenFile::Write.
  Status Write(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums = {});
  Result<uint64_t> Append(Bytes data);
  Status Truncate(uint64_t size);
  Status Zero(uint64_t offset, uint64_t length, OpenFile::Size size);
  Status Allocate(uint64_t offset, uint64_t length, OpenFile::Size size);
  Result<uint64_t> Seek(uint64_t offset, OpenFile::Contents contents);

  // The block in memory to store first, to have room for others.
  std::optional<DirtyBlocks::Holding> Oldest();
  // Stores that block.
  Status Relieve();
  std::optional<Status> TryRelieve();  // null: its turn is taken

 protected:
  FileWriting(FileContext& context, InodeId id);
  ~FileWriting() = default;

  // All of these under the turn.
  // How much of a dirty block is to be there before it is sent.
  enum class Form { kWhole, kPatchIfSmall };
  Status Fill(uint64_t block, Form form);
  void EnsureMap();
  void LayUnderBlock0(Bytes data);
  // Of the one that is prepared; null: there was nothing to send.
  Result<StripeStore::PendingWrite*> PrepareBlock(uint64_t block, Form form, Durability durability);
  Status SendBlock(uint64_t block, Form form = Form::kPatchIfSmall,
                   Durability durability = Durability::kWriteBack);
  void FinishBlock(uint64_t block);
  bool FinishOldest();
  // One that is alone is written through, if that is asked for: it would be flushed next.
  Status SendAll(Durability durability = Durability::kWriteBack);
  bool HasPages() const;     // of the map, which there is
  bool IsAllStored() const;  // in the map, whatever was written
  WriteId NextWriteId(uint64_t block);

  // With mutex_ held, or under the turn.
  // How the contents lie beside the inode, as they are now; null: they do not.
  std::optional<StripeLayout> BesideLayout() const;

  // With mutex_ held.
  DirtyBlocks::Block& BlockAt(uint64_t block);
  // For the first `end` bytes in the block's buffer.
  void MakeRoom(uint64_t block, uint64_t end, DirtyBlocks::Block& open,
                MemoryBudget::Share* room = nullptr);
  void Supersede(const std::vector<BlockMap::Piece>& pieces);

  bool size_set_ = false;           // by a truncation since the last commit
  std::optional<uint64_t> cut_to_;  // the least size since the last commit
  // Blocks that were cleared since, as a whole: nothing of what others have there is left.
  IntervalSet cleared_;
  uint64_t grown_to_ = 0;  // the size that it has had since without being written to
  std::optional<int64_t> modified_;

  // Under the turn alone.
  Status failure_;  // of the last stripe that could not be stored
  WriteIds write_ids_;
  std::vector<BlockMap::Piece> superseded_;
  UnsafeStripes unsafe_;

 private:
  // What is to be written, with the sums of its pages, if the caller has them.
  struct Piece {
    Bytes data;
    std::span<const uint32_t> page_sums;
  };
  Result<uint64_t> WriteAt(std::optional<uint64_t> offset, Piece piece);  // none: at the end

  // All of these under the turn.
  uint64_t MemoryToWrite(uint64_t offset, size_t length) const;
  Status RelieveUnderTurn();
  Status WriteUnderTurn(uint64_t offset, Piece piece, MemoryBudget::Share& room);
  void PutBytes(uint64_t block, uint64_t first, const Piece& piece, MemoryBudget::Share& room);
  MutableBytes RoomFor(uint64_t block, uint64_t first, uint64_t end, MemoryBudget::Share& room);
  template <typename Needed, typename Change>
  Status ChangeWithRoom(const Needed& needed, const Change& change);
  Status ZeroUnderTurn(uint64_t offset, uint64_t end, MemoryBudget::Share& room);
  Status ZeroInBlock(uint64_t block, uint64_t first, uint64_t end, MemoryBudget::Share& room);
  Status ClearBlocks(uint64_t first, uint64_t end);
  void GrowTo(uint64_t size);
  // Bytes from some place to `end` that are there, or are not: a hole.
  struct Extent {
    bool data = false;
    uint64_t end = 0;
  };
  Result<Extent> ExtentAt(uint64_t offset);
  Extent ExtentIn(uint64_t block, uint64_t first) const;
  static std::vector<IntervalSet::Interval> ZerosOf(const DirtyBlocks::Block& open, uint64_t end);
  Result<uint64_t> CountHoleBytes(uint64_t offset, uint64_t end);
  DirtyBlocks::Sent MakeSent(uint64_t block, const DirtyBlocks::Block& open, Form form,
                             std::optional<ZerosOfBlock> zeros);
  void LeaveOut(ZerosOfBlock zeros, const DirtyBlocks::Block& open, DirtyBlocks::Sent& sent);
  std::optional<ZerosOfBlock> ZerosToLeaveOut(uint64_t block, const DirtyBlocks::Block& open,
                                              Form form) const;

  // With mutex_ held, or under the turn.
  StripeLayout LayoutFor(uint64_t block, uint64_t end) const;
  StripeLayout LayoutToSend(uint64_t block) const;
  // With mutex_ held.
  // The bytes of a patch by which what is dirty of the block can be stored; null: by none.
  std::optional<IntervalSet> PatchFor(uint64_t block, const DirtyBlocks::Block& open) const;
  void ResizeTo(uint64_t size);
  void MakeHoles(uint64_t first, uint64_t end);
};

}  // namespace pinstripe
