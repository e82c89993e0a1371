// FileReading: the lowest layer of an open file (fs/files/state.h): what it is made of, and how it
// is read. Pages of the map are loaded here.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "fs/files/dirty_blocks.h"
#include "fs/files/file_context.h"
#include "fs/files/known_keepers.h"
#include "fs/open_file.h"
#include "fs/turn.h"

namespace pinstripe {

// So often something is read anew that others change meanwhile. No Attempts: only what failed is
// counted, and not each round.
inline constexpr int kMaxReadAttempts = 8;

class FileReading {
 public:
  FileReading(const FileReading&) = delete;
  FileReading& operator=(const FileReading&) = delete;

  InodeId id() const { return id_; }

  // All of one moment. `meanwhile` is called before anybody waits for drives, if anybody does.
  // `only_pages`: nothing around these bytes will be wanted soon.
  Status Read(std::span<OpenFile::Part> parts, bool only_pages = false,
              const std::function<void()>& meanwhile = {});
  // Asks for what is stored of these bytes ahead of need, as far as there is memory, and does not
  // wait: the number of bytes that are on their way or here.
  uint64_t ReadAhead(uint64_t offset, uint64_t size, BlockReader::Ahead& ahead);
  // Likewise for the first block, where that is likely to be here.
  void ReadAheadAt(const BlockPlace& place, BlockReader::Ahead& ahead);

  StripeLayout BlockLayout();  // of blocks that are written to it
  uint64_t Size();             // with what is not committed
  bool HasChanges();           // something was written and is not committed

 protected:
  FileReading(FileContext& context, InodeId id);
  ~FileReading() = default;

  // Takes over what other hosts have committed, under the turn. True: something had changed.
  virtual Result<bool> RefreshUnderTurn() = 0;

  // With mutex_ held, or under the turn.
  FileLayout layout() const;
  uint64_t block_bytes() const;
  uint64_t LowerEnd(uint64_t block) const;      // of what is below the dirty bytes
  IntervalSet LowerData(uint64_t block) const;  // of that, what is in no hole

  // Reads pages of the block map: all that are missing for the bytes [first, end). Under the turn.
  Status LoadBytes(uint64_t first, uint64_t end);
  Status ReadLower(uint64_t block, const std::vector<IntervalSet::Interval>& parts,
                   StripeBuffer& buffer);

  FileContext& context_;
  const InodeId id_;
  Turn turn_;

  // Changed under the turn alone, and with mutex_ held; read with either. But which pages of the
  // maps are loaded is changed, and so looked at, with mutex_ alone. So it is with the members of
  // the layers above, unless they say otherwise.
  Mutex mutex_;
  Inode base_;  // as it is committed, or would be: an unpublished file is empty
  Inode now_;   // size and contents with everything that was written
  DirtyBlocks blocks_;
  FileLayout blocks_layout_;  // of blocks_, while there are any
  bool changed_ = false;      // there is something to commit
  uint64_t generation_ = 0;   // raised when a byte's place may have changed
  KnownKeepers keepers_;      // whose blocks were read

 private:
  struct ReadPlan;
  // Where bytes of a block go, and the sums of the pages that they touch, if anybody wants them.
  struct Target {
    MutableBytes out;
    std::span<PageSum> sums;
  };
  void PlanRead(std::span<OpenFile::Part> parts, ReadPlan& plan);
  void PlanPart(OpenFile::Part& part, ReadPlan& plan);
  Status LoadMissing(ReadPlan& plan);
  Status PlanByPages(std::span<OpenFile::Part> parts, ReadPlan& plan);
  MemoryBudget::Share ReserveToRead(uint64_t bytes, bool may_wait);
  Status LoadPart(const BlockMap::Part& part, uint64_t size, const StripeLayout& layout);
  void ForgetPages();
  bool HoldsTooManyPages() const;  // with mutex_ held
  void ForgetUnderTurn();
  static Target PartOf(const Target& target, uint64_t first, uint64_t part_first, uint64_t size);
  void PlanBlock(uint64_t block, uint64_t first, const Target& target, ReadPlan& plan);
  void PlanLower(uint64_t block, uint64_t first, const Target& target, ReadPlan& plan) const;
};

}  // namespace pinstripe
