// StripeRead: what one read of a stripe has, has asked for and still needs, as a table of cells: a
// row for each shard, a column for each 64 KiB. Reed-Solomon works byte by byte, so every column is
// coded for itself: any k good cells of a column give back the others.
//
// A plan, without I/O: it is told what arrived, failed or is late, and says what to ask for next.
// The caller owns time and drives. Every cell it hands out was checked against its sum. One thread.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/stripes/shard.h"
#include "cluster/stripes/store.h"
#include "drive/drive.h"
#include "erasure/codec.h"

namespace pinstripe {

class StripeRead {
 public:
  // Cells of shards in `without` are taken for lost: they are to be computed from others.
  StripeRead(const KnownStripe& stripe, std::vector<CellRange> wanted,
             const std::vector<int>& without = {});
  StripeRead(StripeRead&&) noexcept = default;
  StripeRead& operator=(StripeRead&&) noexcept = default;

  // The shards to ask for now; the caller asks for all of them. Empty when there is nothing to ask.
  std::vector<CellRange> TakeQuestions();

  // An answer to a question, checked here: a damaged record fails with EBADMSG, and so does that of
  // another shard. Each question is answered once. `drive` is the name of the drive that answered
  // it.
  void Answer(const CellRange& question, Result<Record> record,
              const std::function<std::string()>& drive);
  // Others should be asked instead; the answer may still come.
  void Late(const CellRange& question);

  bool Succeeded() const;  // there is enough; Complete() can be called
  bool Hopeless() const;   // there never will be

  // Computes the wanted cells that did not arrive.
  Status Complete(const Codec& codec);
  // The bytes of a wanted cell, after Complete(). Cells of one answer share its memory.
  const SharedBytes& Cell(int shard, uint32_t cell) const;

  // Whether it would not be hopeless if only the drives answered that are away now.
  bool MayLaterSucceed() const;

  // Why it is hopeless: ENOENT when every shard is known not to be there, otherwise EIO. `drive`:
  // the name of the one that a shard is on.
  Status Failure(const std::function<std::string(int shard)>& drive) const;

  bool degraded() const { return degraded_; }  // more was asked for than was wanted
  // The failure of a shard: ENOENT missing, EBADMSG damaged, anything else not readable now.
  const std::optional<Status>& failure(int shard) const { return failures_[Index(shard)]; }

 private:
  enum class State : uint8_t { kUnasked, kAsked, kLate, kGood, kLost };
  struct CellEntry {
    State state = State::kUnasked;
    bool wanted = false;
    SharedBytes bytes;  // of a good cell, or once computed
  };

  static size_t Index(int shard) { return static_cast<size_t>(shard); }
  CellEntry& At(int shard, uint32_t cell) { return cells_[Index(shard) * columns_ + cell]; }
  const CellEntry& At(int shard, uint32_t cell) const {
    return cells_[Index(shard) * columns_ + cell];
  }
  int CountInColumn(uint32_t column, std::initializer_list<State> states) const;
  bool Needs(uint32_t column) const;       // a wanted cell is neither here nor expected in time
  bool CanCompute(uint32_t column) const;  // k cells may still come together
  bool IsLost(uint32_t column) const;      // a wanted cell will not come, nor can it be computed
  bool OnlyAbsencesSoFar() const;
  void ChooseCells(uint32_t column, std::vector<bool>& chosen);
  Status ComputeColumn(const Codec& codec, uint32_t column);

  KnownStripe stripe_;
  int shards_;
  uint32_t shard_bytes_;
  uint32_t columns_;
  std::vector<CellRange> wanted_;
  std::vector<CellEntry> cells_;
  std::vector<std::optional<Status>> failures_;  // by shard
  bool started_ = false;
  bool degraded_ = false;
};

}  // namespace pinstripe
