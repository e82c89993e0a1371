#include "erasure/agreement.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "base/try.h"

namespace pinstripe {
namespace {

// Where it takes more guesses than that, it counts as not to be told: 3 wrong ones of 26 shards, or
// 2 of 64, are found.
constexpr int kMostGuesses = 4096;
constexpr size_t kSampleBytes = 64;

class Comparison {
 public:
  Comparison(const Codec& codec, std::span<const Bytes> shards)
      : codec_(codec), shards_(shards), k_(static_cast<size_t>(codec.geometry().data_shards)) {
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!shards[i].empty()) present_.push_back(static_cast<int>(i));
    }
    if (!present_.empty()) size_ = Of(present_.front()).size();
    assert(std::ranges::all_of(present_, [&](int shard) { return Of(shard).size() == size_; }));
  }

  Result<Agreement> Run() {
    const auto difference = TRY(FirstDifference(present_, 0, size_));
    if (!difference) return Agreement{};
    // Shards that do not fit together here fit together nowhere.
    sample_ = *difference / kSampleBytes * kSampleBytes;
    const size_t spare = present_.size() - k_;
    for (size_t wrong = 1; wrong <= spare / 2; ++wrong) {
      std::vector<int> left_out;
      if (TRY(Guess(wrong, 0, left_out))) return Agreement{false, std::move(left_out)};
    }
    return Agreement{false, {}};
  }

 private:
  Bytes Of(int shard) const { return shards_[static_cast<size_t>(shard)]; }

  // Where the others of `among` are not what the first k of them say, from `begin` to `end`. Null:
  // nowhere.
  Result<std::optional<size_t>> FirstDifference(std::span<const int> among, size_t begin,
                                                size_t end) const {
    if (among.size() <= k_) return std::optional<size_t>();
    const std::span<const int> from = among.first(k_);
    const std::span<const int> others = among.subspan(k_);
    std::vector<Buffer> computed;
    const size_t step = std::min(kCodingStep, end - begin);
    for (size_t i = 0; i < others.size(); ++i) computed.emplace_back(step);
    for (size_t at = begin; at < end; at += step) {
      const size_t size = std::min(step, end - at);
      std::vector<Bytes> in;
      std::vector<MutableBytes> out;
      for (const int shard : from) in.push_back(Of(shard).subspan(at, size));
      for (Buffer& buffer : computed) out.push_back(buffer.mutable_bytes().first(size));
      TRY(codec_.Reconstruct(from, in, others, out));
      std::optional<size_t> first;
      for (size_t i = 0; i < others.size(); ++i) {
        const Bytes is = Of(others[i]).subspan(at, size);
        if (Equal(is, out[i])) continue;
        const auto differs = std::ranges::mismatch(is, Bytes(out[i])).in1 - is.begin();
        first = std::min(first.value_or(end), at + static_cast<size_t>(differs));
      }
      if (first) return first;
    }
    return std::optional<size_t>();
  }

  // Tries to leave out `more` shards beside these, from `next` on in present_. True: what remains
  // agrees.
  Result<bool> Guess(size_t more, size_t next, std::vector<int>& left_out) {
    if (more == 0) return Explains(left_out);
    for (size_t i = next; i + more <= present_.size(); ++i) {
      left_out.push_back(present_[i]);
      if (TRY(Guess(more - 1, i + 1, left_out))) return true;
      left_out.pop_back();
    }
    return false;
  }

  Result<bool> Explains(std::span<const int> left_out) {
    if (++guesses_ > kMostGuesses) return false;
    std::vector<int> rest;
    std::ranges::set_difference(present_, left_out, std::back_inserter(rest));
    if (TRY(FirstDifference(rest, sample_, std::min(sample_ + kSampleBytes, size_)))) return false;
    return !TRY(FirstDifference(rest, 0, size_)).has_value();
  }

  const Codec& codec_;
  const std::span<const Bytes> shards_;
  const size_t k_;
  std::vector<int> present_;
  size_t size_ = 0;
  size_t sample_ = 0;
  int guesses_ = 0;
};

}  // namespace

Result<Agreement> CompareShards(const Codec& codec, std::span<const Bytes> shards) {
  return Comparison(codec, shards).Run();
}

}  // namespace pinstripe
