#include "cluster/stripes/read_plan.h"

#include <algorithm>
#include <cassert>

#include "base/checksum.h"
#include "base/try.h"

namespace pinstripe {

StripeRead::StripeRead(const KnownStripe& stripe, std::vector<CellRange> wanted,
                       const std::vector<int>& without)
    : stripe_(stripe),
      shards_(stripe.layout.geometry().shards()),
      shard_bytes_(stripe.layout.ShardBytesOf(stripe.length)),
      columns_(CellCount(shard_bytes_)),
      wanted_(std::move(wanted)),
      cells_(Index(shards_) * columns_),
      failures_(Index(shards_)) {
  for (const CellRange& range : wanted_) {
    for (uint32_t cell = range.first; cell <= range.last; ++cell)
      At(range.shard, cell).wanted = true;
  }
  for (int shard : without) {
    for (uint32_t cell = 0; cell < columns_; ++cell) At(shard, cell).state = State::kLost;
  }
}

int StripeRead::CountInColumn(uint32_t column, std::initializer_list<State> states) const {
  int count = 0;
  for (int shard = 0; shard < shards_; ++shard) {
    count += std::find(states.begin(), states.end(), At(shard, column).state) != states.end();
  }
  return count;
}

bool StripeRead::Needs(uint32_t column) const {
  for (int shard = 0; shard < shards_; ++shard) {
    const CellEntry& cell = At(shard, column);
    if (cell.wanted && cell.state != State::kGood && cell.state != State::kAsked) return true;
  }
  return false;
}

bool StripeRead::CanCompute(uint32_t column) const {
  return CountInColumn(column, {State::kUnasked, State::kAsked, State::kLate, State::kGood}) >=
         stripe_.layout.data_shards;
}

bool StripeRead::IsLost(uint32_t column) const {
  if (CanCompute(column)) return false;
  for (int shard = 0; shard < shards_; ++shard) {
    const CellEntry& cell = At(shard, column);
    if (cell.wanted && cell.state == State::kLost) return true;
  }
  return false;
}

// Whether everything that was found out speaks for a stripe that is not there at all.
bool StripeRead::OnlyAbsencesSoFar() const {
  const auto none_good = std::none_of(cells_.begin(), cells_.end(), [](const CellEntry& cell) {
    return cell.state == State::kGood;
  });
  return none_good && std::all_of(failures_.begin(), failures_.end(), [](const auto& failure) {
           return !failure || failure->code() == ENOENT;
         });
}

// Data cells are asked for before parity: lowest index first.
void StripeRead::ChooseCells(uint32_t column, std::vector<bool>& chosen) {
  int expected = CountInColumn(column, {State::kAsked, State::kGood});
  // A stripe that cannot be read any more is asked for completely, to learn whether it exists.
  const bool is_lost = IsLost(column);
  if (!is_lost && !CanCompute(column))
    return;  // what is late may still come, and nothing else helps
  const int enough = is_lost ? shards_ : stripe_.layout.data_shards;
  for (int shard = 0; shard < shards_ && expected < enough; ++shard) {
    CellEntry& cell = At(shard, column);
    if (cell.state != State::kUnasked) continue;
    cell.state = State::kAsked;
    chosen[Index(shard) * columns_ + column] = true;
    ++expected;
  }
}

std::vector<CellRange> StripeRead::TakeQuestions() {
  std::vector<bool> chosen(cells_.size());
  if (!started_) {
    started_ = true;
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!cells_[i].wanted || cells_[i].state != State::kUnasked) continue;
      cells_[i].state = State::kAsked;
      chosen[i] = true;
    }
  }
  if (!Hopeless()) {
    for (uint32_t column = 0; column < columns_; ++column) {
      if (!Needs(column)) continue;
      degraded_ = true;
      ChooseCells(column, chosen);
    }
  }

  std::vector<CellRange> questions;
  for (int shard = 0; shard < shards_; ++shard) {
    for (uint32_t cell = 0; cell < columns_; ++cell) {
      if (!chosen[Index(shard) * columns_ + cell]) continue;
      if (cell > 0 && chosen[Index(shard) * columns_ + cell - 1]) {
        questions.back().last = cell;
      } else {
        questions.push_back({shard, cell, cell});
      }
    }
  }
  return questions;
}

void StripeRead::Answer(const CellRange& question, Result<Record> record,
                        const std::function<std::string()>& drive) {
  std::vector<bool> good(question.last - question.first + 1);
  Status status =
      record.has_value() ? CheckCells(stripe_, question, *record, good) : std::move(record).error();
  if (record.has_value() && !status.ok()) status = status.Context(drive());
  if (!status.ok()) failures_[Index(question.shard)] = status;
  // A cell that is lost has a reason, and every reason that is given has lost a cell.
  assert(status.ok() == (std::find(good.begin(), good.end(), false) == good.end()));

  for (uint32_t cell = question.first; cell <= question.last; ++cell) {
    CellEntry& entry = At(question.shard, cell);
    assert(entry.state == State::kAsked || entry.state == State::kLate);
    const uint32_t i = cell - question.first;
    entry.state = good[i] ? State::kGood : State::kLost;
    if (!good[i]) continue;
    entry.bytes = record->value.Slice(size_t{i} * kCellBytes, CellSize(shard_bytes_, cell));
  }
  if (status.ok() || status.code() == EBADMSG) return;

  // The drive is away, or the shard is not there: it makes no sense to ask for its other cells.
  for (uint32_t cell = 0; cell < columns_; ++cell) {
    CellEntry& entry = At(question.shard, cell);
    if (entry.state == State::kUnasked) entry.state = State::kLost;
  }
}

void StripeRead::Late(const CellRange& question) {
  for (uint32_t cell = question.first; cell <= question.last; ++cell) {
    CellEntry& entry = At(question.shard, cell);
    if (entry.state == State::kAsked) entry.state = State::kLate;
  }
}

bool StripeRead::Succeeded() const {
  for (uint32_t column = 0; column < columns_; ++column) {
    bool complete = true;
    for (int shard = 0; shard < shards_; ++shard) {
      const CellEntry& cell = At(shard, column);
      complete &= !cell.wanted || cell.state == State::kGood;
    }
    if (!complete && CountInColumn(column, {State::kGood}) < stripe_.layout.data_shards)
      return false;
  }
  return true;
}

bool StripeRead::Hopeless() const {
  bool lost = false;
  int open = 0;
  for (uint32_t column = 0; column < columns_; ++column) {
    if (!IsLost(column)) continue;
    lost = true;
    open += CountInColumn(column, {State::kUnasked, State::kAsked, State::kLate});
  }
  // Until one shard is found, or one drive cannot tell, the stripe may be known not to exist.
  return lost && !(OnlyAbsencesSoFar() && open > 0);
}

bool StripeRead::MayLaterSucceed() const {
  if (!Hopeless()) return false;
  for (uint32_t column = 0; column < columns_; ++column) {
    if (!IsLost(column)) continue;
    int possible =
        CountInColumn(column, {State::kUnasked, State::kAsked, State::kLate, State::kGood});
    for (int shard = 0; shard < shards_; ++shard) {
      const auto& failure = failures_[Index(shard)];
      // One that did not answer in time may have, while this process stood still.
      const bool was_away =
          failure.has_value() && (failure->code() == EHOSTUNREACH || failure->code() == ETIMEDOUT);
      possible += At(shard, column).state == State::kLost && was_away;
    }
    if (possible < stripe_.layout.data_shards) return false;
  }
  return true;
}

Status StripeRead::ComputeColumn(const Codec& codec, uint32_t column) {
  std::vector<int> present;
  std::vector<Bytes> from;
  std::vector<int> missing;
  std::vector<MutableBytes> to;
  for (int shard = 0; shard < shards_; ++shard) {
    CellEntry& cell = At(shard, column);
    if (cell.state == State::kGood) {
      if (present.size() == stripe_.layout.data_shards) continue;
      present.push_back(shard);
      from.push_back(cell.bytes);
    } else if (cell.wanted) {
      Buffer computed(CellSize(shard_bytes_, column));
      missing.push_back(shard);
      to.push_back(computed);
      cell.bytes = std::move(computed);
    }
  }
  if (missing.empty()) return {};
  return codec.Reconstruct(present, from, missing, to);
}

Status StripeRead::Complete(const Codec& codec) {
  assert(Succeeded());
  for (uint32_t column = 0; column < columns_; ++column) TRY(ComputeColumn(codec, column));
  return {};
}

const SharedBytes& StripeRead::Cell(int shard, uint32_t cell) const {
  assert(At(shard, cell).wanted);
  return At(shard, cell).bytes;
}

Status StripeRead::Failure(const std::function<std::string(int shard)>& drive) const {
  int readable = shards_;  // in the column that is worst off
  for (const CellRange& range : wanted_) {
    for (uint32_t cell = range.first; cell <= range.last; ++cell) {
      readable =
          std::min(readable, CountInColumn(cell, {State::kUnasked, State::kAsked, State::kGood}));
    }
  }
  std::string reasons;
  int absent = 0;
  for (int shard = 0; shard < shards_; ++shard) {
    const auto& failure = failures_[Index(shard)];
    const auto row = cells_.begin() + static_cast<ptrdiff_t>(Index(shard) * columns_);
    const bool late = std::any_of(row, row + columns_,
                                  [](const CellEntry& cell) { return cell.state == State::kLate; });
    if (failure) {
      reasons += fmt::format("; shard {}: {}", shard, failure->message());
      absent += failure->code() == ENOENT;
    } else if (late) {
      reasons += fmt::format("; shard {}: {}: no answer in time", shard, drive(shard));
    }
  }
  return Fail(absent == shards_ ? ENOENT : EIO, "{} of {} shards needed can be read{}", readable,
              int{stripe_.layout.data_shards}, reasons);
}

}  // namespace pinstripe
