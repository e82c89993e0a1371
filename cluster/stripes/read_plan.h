// StripeRead: what one read of a stripe has, has asked for and still needs, as a table: a row for
// each shard, a column for some pages, the same ones of each shard. Reed-Solomon works byte by
// byte, so every column is coded for itself: any k good pieces of a column give back the others.
//
// A column is a cell, or the part of it that is wanted. Where some pages of a piece are damaged and
// others are not, the column is cut into its pages: what can be read of a stripe is decided by
// page.
//
// A plan, without I/O: it is told what arrived, failed or is late, and says what to ask for next.
// The caller owns time and drives. Every page it hands out was checked against its sum. One thread.

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
  // Shards in `without` are taken for lost: they are to be computed from others.
  StripeRead(const KnownStripe& stripe, const std::vector<PageRange>& wanted,
             const std::vector<int>& without = {});
  StripeRead(StripeRead&&) noexcept = default;
  StripeRead& operator=(StripeRead&&) noexcept = default;

  // The shards to ask for now; the caller asks for all of them. Empty when there is nothing to ask.
  std::vector<PageRange> TakeQuestions();

  // An answer to a question, checked here: a damaged record fails with EBADMSG, and so does that of
  // another shard. Each question is answered once. `drive` is the name of the drive that answered
  // it.
  void Answer(const PageRange& question, Result<Record> record,
              const std::function<std::string()>& drive);
  // Others should be asked instead; the answer may still come.
  void Late(const PageRange& question);

  bool Succeeded() const;  // there is enough; Complete() can be called
  bool Hopeless() const;   // there never will be

  // Computes the wanted pages that did not arrive.
  Status Complete(const Codec& codec);
  // Bytes [offset, offset + size) of a shard, of wanted pages of one cell, after Complete(). Those
  // of one answer share its memory.
  SharedBytes BytesOf(int shard, uint32_t offset, uint32_t size) const;
  // And the sums of the whole pages among them, from `offset`, which begins a page, on.
  CellSums SumsOf(int shard, uint32_t offset, uint32_t size) const;

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
  struct Piece {
    State state = State::kUnasked;
    bool wanted = false;
    SharedBytes bytes;           // of a good one, or once computed
    std::vector<uint32_t> sums;  // of its pages, as its descriptor has them; none of a computed one
  };
  struct Column {
    uint32_t first = 0;  // of its pages
    uint32_t end = 0;
    std::vector<Piece> pieces;  // by shard
  };

  static size_t Index(int shard) { return static_cast<size_t>(shard); }
  static bool IsIn(const Column& column, const PageRange& range) {
    return range.first <= column.first && column.end <= range.last + 1;
  }
  uint32_t BytesIn(const Column& column) const {
    return RangeBytes(shard_bytes_, {0, column.first, column.end - 1});
  }
  void MakeColumns(const std::vector<PageRange>& wanted);
  void CutByDamage(const PageRange& question, const std::vector<bool>& good);
  std::vector<Column> PagesOfColumn(const Column& column) const;
  int CountIn(const Column& column, std::initializer_list<State> states) const;
  bool Needs(const Column& column) const;       // a wanted piece is not here, nor expected in time
  bool CanCompute(const Column& column) const;  // k pieces may still come together
  bool IsLost(const Column& column) const;  // a wanted piece will not come, nor can it be computed
  bool OnlyAbsencesSoFar() const;
  using Chosen = std::vector<std::vector<bool>>;  // by shard and column
  void ChoosePieces(size_t column, Chosen& chosen);
  Status ComputeColumn(const Codec& codec, Column& column);

  KnownStripe stripe_;
  int shards_;
  uint32_t shard_bytes_;
  std::vector<Column> columns_;                  // ascending; a wanted piece is in each
  std::vector<std::optional<Status>> failures_;  // by shard
  bool started_ = false;
  bool degraded_ = false;
};

}  // namespace pinstripe
