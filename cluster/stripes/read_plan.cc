#include "cluster/stripes/read_plan.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <set>

#include "base/checksum.h"
#include "base/try.h"

namespace pinstripe {

StripeRead::StripeRead(const KnownStripe& stripe, const std::vector<PageRange>& wanted,
                       const std::vector<int>& without)
    : stripe_(stripe),
      shards_(stripe.layout.geometry().shards()),
      shard_bytes_(stripe.layout.ShardBytesOf(stripe.length)),
      failures_(Index(shards_)) {
  MakeColumns(wanted);
  for (Column& column : columns_) {
    for (int shard : without) column.pieces[Index(shard)].state = State::kLost;
  }
}

void StripeRead::MakeColumns(const std::vector<PageRange>& wanted) {
  std::set<uint32_t> ends;
  for (const PageRange& range : wanted) {
    for (uint32_t page = range.first; page <= range.last; page += kCellPages - page % kCellPages) {
      ends.insert(page);
    }
    ends.insert(range.last + 1);
  }
  for (auto end = ends.begin(); end != ends.end(); ++end) {
    if (end == ends.begin()) continue;
    Column column{*std::prev(end), *end, std::vector<Piece>(Index(shards_))};
    bool any = false;
    for (const PageRange& range : wanted) {
      if (!IsIn(column, range)) continue;
      column.pieces[Index(range.shard)].wanted = any = true;
    }
    if (any) columns_.push_back(std::move(column));
  }
}

int StripeRead::CountIn(const Column& column, std::initializer_list<State> states) const {
  return static_cast<int>(std::ranges::count_if(column.pieces, [states](const Piece& piece) {
    return std::find(states.begin(), states.end(), piece.state) != states.end();
  }));
}

bool StripeRead::Needs(const Column& column) const {
  return std::ranges::any_of(column.pieces, [](const Piece& piece) {
    return piece.wanted && piece.state != State::kGood && piece.state != State::kAsked;
  });
}

bool StripeRead::CanCompute(const Column& column) const {
  return CountIn(column, {State::kUnasked, State::kAsked, State::kLate, State::kGood}) >=
         stripe_.layout.data_shards;
}

bool StripeRead::IsLost(const Column& column) const {
  if (CanCompute(column)) return false;
  return std::ranges::any_of(column.pieces, [](const Piece& piece) {
    return piece.wanted && piece.state == State::kLost;
  });
}

// Whether everything that was found out speaks for a stripe that is not there at all.
bool StripeRead::OnlyAbsencesSoFar() const {
  const auto none_good = std::ranges::none_of(
      columns_, [this](const Column& column) { return CountIn(column, {State::kGood}) > 0; });
  return none_good && std::all_of(failures_.begin(), failures_.end(), [](const auto& failure) {
           return !failure || failure->code() == ENOENT;
         });
}

// Data is asked for before parity: lowest index first.
void StripeRead::ChoosePieces(size_t index, Chosen& chosen) {
  Column& column = columns_[index];
  int expected = CountIn(column, {State::kAsked, State::kGood});
  // A stripe that cannot be read any more is asked for completely, to learn whether it exists.
  const bool is_lost = IsLost(column);
  if (!is_lost && !CanCompute(column))
    return;  // what is late may still come, and nothing else helps
  const int enough = is_lost ? shards_ : stripe_.layout.data_shards;
  for (int shard = 0; shard < shards_ && expected < enough; ++shard) {
    Piece& piece = column.pieces[Index(shard)];
    if (piece.state != State::kUnasked) continue;
    piece.state = State::kAsked;
    chosen[Index(shard)][index] = true;
    ++expected;
  }
}

std::vector<PageRange> StripeRead::TakeQuestions() {
  Chosen chosen(Index(shards_), std::vector<bool>(columns_.size()));
  if (!started_) {
    started_ = true;
    for (size_t index = 0; index < columns_.size(); ++index) {
      for (int shard = 0; shard < shards_; ++shard) {
        Piece& piece = columns_[index].pieces[Index(shard)];
        if (!piece.wanted || piece.state != State::kUnasked) continue;
        piece.state = State::kAsked;
        chosen[Index(shard)][index] = true;
      }
    }
  }
  if (!Hopeless()) {
    for (size_t index = 0; index < columns_.size(); ++index) {
      if (!Needs(columns_[index])) continue;
      degraded_ = true;
      ChoosePieces(index, chosen);
    }
  }

  std::vector<PageRange> questions;
  for (int shard = 0; shard < shards_; ++shard) {
    for (size_t index = 0; index < columns_.size(); ++index) {
      if (!chosen[Index(shard)][index]) continue;
      const Column& column = columns_[index];
      const bool goes_on =
          index > 0 && chosen[Index(shard)][index - 1] && columns_[index - 1].end == column.first;
      if (goes_on) {
        questions.back().last = column.end - 1;
      } else {
        questions.push_back({shard, column.first, column.end - 1});
      }
    }
  }
  return questions;
}

std::vector<StripeRead::Column> StripeRead::PagesOfColumn(const Column& column) const {
  std::vector<Column> pages;
  for (uint32_t page = column.first; page < column.end; ++page) {
    Column& cut = pages.emplace_back(column);
    cut.first = page;
    cut.end = page + 1;
    for (Piece& piece : cut.pieces) {
      if (piece.state != State::kGood) continue;
      piece.bytes = piece.bytes.Slice(size_t{page - column.first} * kShardPageBytes, BytesIn(cut));
      piece.sums = {piece.sums[page - column.first]};
    }
  }
  return pages;
}

// So that no column of the question is good in part.
void StripeRead::CutByDamage(const PageRange& question, const std::vector<bool>& good) {
  const auto is_mixed = [&](const Column& column) {
    const auto begin = good.begin() + (column.first - question.first);
    const auto end = begin + (column.end - column.first);
    return std::find(begin, end, !*begin) != end;
  };
  std::vector<Column> columns;
  for (Column& column : columns_) {
    if (IsIn(column, question) && is_mixed(column)) {
      std::ranges::move(PagesOfColumn(column), std::back_inserter(columns));
    } else {
      columns.push_back(std::move(column));
    }
  }
  columns_ = std::move(columns);
}

void StripeRead::Answer(const PageRange& question, Result<Record> record,
                        const std::function<std::string()>& drive) {
  std::vector<bool> good(question.last - question.first + 1);
  std::vector<uint32_t> sums;
  Status status = record.has_value() ? CheckPages(stripe_, question, *record, good, &sums)
                                     : std::move(record).error();
  if (record.has_value() && !status.ok()) status = status.Context(drive());
  if (!status.ok()) failures_[Index(question.shard)] = status;
  // A page that is lost has a reason, and every reason that is given has lost a page.
  assert(status.ok() == (std::find(good.begin(), good.end(), false) == good.end()));

  if (!status.ok()) CutByDamage(question, good);
  for (Column& column : columns_) {
    if (!IsIn(column, question)) continue;
    Piece& piece = column.pieces[Index(question.shard)];
    assert(piece.state == State::kAsked || piece.state == State::kLate);
    const uint32_t page = column.first - question.first;
    piece.state = good[page] ? State::kGood : State::kLost;
    if (!good[page]) continue;
    piece.bytes = record->value.Slice(size_t{page} * kShardPageBytes, BytesIn(column));
    piece.sums.assign(sums.begin() + page, sums.begin() + page + (column.end - column.first));
  }
  if (status.ok() || status.code() == EBADMSG) return;

  // The drive is away, or the shard is not there: it makes no sense to ask for its other pages.
  for (Column& column : columns_) {
    Piece& piece = column.pieces[Index(question.shard)];
    if (piece.state == State::kUnasked) piece.state = State::kLost;
  }
}

void StripeRead::Late(const PageRange& question) {
  for (Column& column : columns_) {
    Piece& piece = column.pieces[Index(question.shard)];
    if (IsIn(column, question) && piece.state == State::kAsked) piece.state = State::kLate;
  }
}

bool StripeRead::Succeeded() const {
  return std::ranges::all_of(columns_, [this](const Column& column) {
    const bool complete = std::ranges::all_of(column.pieces, [](const Piece& piece) {
      return !piece.wanted || piece.state == State::kGood;
    });
    return complete || CountIn(column, {State::kGood}) >= stripe_.layout.data_shards;
  });
}

bool StripeRead::Hopeless() const {
  bool lost = false;
  int open = 0;
  for (const Column& column : columns_) {
    if (!IsLost(column)) continue;
    lost = true;
    open += CountIn(column, {State::kUnasked, State::kAsked, State::kLate});
  }
  // Until one shard is found, or one drive cannot tell, the stripe may be known not to exist.
  return lost && !(OnlyAbsencesSoFar() && open > 0);
}

bool StripeRead::MayLaterSucceed() const {
  if (!Hopeless()) return false;
  for (const Column& column : columns_) {
    if (!IsLost(column)) continue;
    int possible = CountIn(column, {State::kUnasked, State::kAsked, State::kLate, State::kGood});
    for (int shard = 0; shard < shards_; ++shard) {
      const auto& failure = failures_[Index(shard)];
      // One that did not answer in time may have, while this process stood still.
      const bool was_away =
          failure.has_value() && (failure->code() == EHOSTUNREACH || failure->code() == ETIMEDOUT);
      possible += column.pieces[Index(shard)].state == State::kLost && was_away;
    }
    if (possible < stripe_.layout.data_shards) return false;
  }
  return true;
}

Status StripeRead::ComputeColumn(const Codec& codec, Column& column) {
  std::vector<int> present;
  std::vector<Bytes> from;
  std::vector<int> missing;
  std::vector<MutableBytes> to;
  for (int shard = 0; shard < shards_; ++shard) {
    Piece& piece = column.pieces[Index(shard)];
    if (piece.state == State::kGood) {
      if (present.size() == stripe_.layout.data_shards) continue;
      present.push_back(shard);
      from.push_back(piece.bytes);
    } else if (piece.wanted) {
      Buffer computed(BytesIn(column));
      missing.push_back(shard);
      to.push_back(computed);
      piece.bytes = std::move(computed);
    }
  }
  if (missing.empty()) return {};
  return codec.Reconstruct(present, from, missing, to);
}

Status StripeRead::Complete(const Codec& codec) {
  assert(Succeeded());
  for (Column& column : columns_) TRY(ComputeColumn(codec, column));
  return {};
}

SharedBytes StripeRead::BytesOf(int shard, uint32_t offset, uint32_t size) const {
  std::vector<SharedBytes> parts;
  uint32_t done = 0;
  for (const Column& column : columns_) {
    const uint32_t begin = column.first * kShardPageBytes;
    const uint32_t at = offset + done;
    if (done == size || at < begin || at >= begin + BytesIn(column)) continue;
    const Piece& piece = column.pieces[Index(shard)];
    assert(piece.wanted);
    const uint32_t step = std::min(size - done, begin + BytesIn(column) - at);
    parts.push_back(piece.bytes.Slice(at - begin, step));
    done += step;
  }
  assert(done == size);
  if (parts.size() == 1) return parts[0];
  Buffer together(size);
  size_t end = 0;
  for (const SharedBytes& part : parts) {
    CopyBytes(together.mutable_bytes().subspan(end), part);
    end += part.size();
  }
  return SharedBytes(std::move(together));
}

CellSums StripeRead::SumsOf(int shard, uint32_t offset, uint32_t size) const {
  assert(offset % kShardPageBytes == 0 && size <= kCellBytes);
  CellSums sums;
  const uint32_t first = offset / kShardPageBytes;
  const uint32_t end = first + size / kShardPageBytes;
  for (const Column& column : columns_) {
    const Piece& piece = column.pieces[Index(shard)];
    if (piece.sums.empty()) continue;
    for (uint32_t page = std::max(first, column.first); page < std::min(end, column.end); ++page) {
      sums.Set(page - first, piece.sums[page - column.first]);
    }
  }
  return sums;
}

Status StripeRead::Failure(const std::function<std::string(int shard)>& drive) const {
  int readable = shards_;  // in the column that is worst off
  for (const Column& column : columns_) {
    readable = std::min(readable, CountIn(column, {State::kUnasked, State::kAsked, State::kGood}));
  }
  std::string reasons;
  int absent = 0;
  for (int shard = 0; shard < shards_; ++shard) {
    const auto& failure = failures_[Index(shard)];
    const bool late = std::ranges::any_of(columns_, [shard](const Column& column) {
      return column.pieces[Index(shard)].state == State::kLate;
    });
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
