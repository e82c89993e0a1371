#include "erasure/codec.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "base/checksum.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr int kTableBytes = 32;  // per coefficient: two look-up tables of 16 bytes, one per nibble

// ISA-L declares what it only reads as writable.
unsigned char* Unconst(const std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes));
}

std::vector<unsigned char> Tables(int rows, int k, std::vector<unsigned char> coefficients) {
  std::vector<unsigned char> tables(static_cast<size_t>(rows) * k * kTableBytes);
  ec_init_tables(k, rows, coefficients.data(), tables.data());
  return tables;
}

// to[r] = sum over j of coefficient[r][j] * from[j], by the tables of the coefficients.
void Multiply(const std::vector<unsigned char>& tables, std::span<const Bytes> from,
              std::span<const MutableBytes> to) {
  std::array<unsigned char*, kMaxShards> sources;
  std::array<unsigned char*, kMaxShards> targets;
  const size_t size = to[0].size();
  for (size_t start = 0; start < size; start += kCodingStep) {
    for (size_t i = 0; i < from.size(); ++i) sources[i] = Unconst(from[i].data() + start);
    for (size_t i = 0; i < to.size(); ++i) targets[i] = Unconst(to[i].data() + start);
    ec_encode_data(static_cast<int>(std::min(kCodingStep, size - start)),
                   static_cast<int>(from.size()), static_cast<int>(to.size()),
                   const_cast<unsigned char*>(tables.data()), sources.data(), targets.data());
  }
}

// True when `indices` ascend, without repeating, within 0..shards-1.
bool AreShards(std::span<const int> indices, int shards) {
  return std::ranges::adjacent_find(indices, std::ranges::greater_equal()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < shards));
}

template <typename Span>
bool AllOfSize(std::span<const Span> shards, size_t size) {
  return std::ranges::all_of(shards, [size](const Span& shard) { return shard.size() == size; });
}

// How to compute lost shards from k others: for each missing one a row of k coefficients, in the
// order of `present`.
//
// The data shards that are not present, E, are as many as the parity shards that are, P. From
// parity_p = (sum over present data j of C[p][j] d_j) + (sum over e in E of C[p][e] d_e) for p in P
// follows d_E = C[P][E]^-1 (parity_P + C[P][present data] d), addition being its own opposite. So
// only a matrix of the size of the loss is inverted, not one of k x k, and nothing needs to be
// kept.
class Recipe {
 public:
  Recipe(const std::vector<unsigned char>& matrix, int k, std::span<const int> present)
      : matrix_(matrix), k_(k), present_(present) {
    const int data =
        static_cast<int>(std::ranges::count_if(present, [k](int shard) { return shard < k; }));
    for (int shard = 0; shard < k; ++shard) {
      if (!std::ranges::binary_search(present.first(data), shard)) absent_.push_back(shard);
    }
    parity_ = present.subspan(data);
  }

  // False when the matrix has no inverse, which a Cauchy matrix rules out.
  bool Solve() {
    const int n = static_cast<int>(absent_.size());
    if (n == 0) return true;
    std::vector<unsigned char> lost;
    for (int p : parity_) {
      for (int e : absent_) lost.push_back(Coefficient(p, e));
    }
    std::vector<unsigned char> inverse(lost.size());
    if (gf_invert_matrix(lost.data(), inverse.data(), n) != 0) return false;
    for (int e = 0; e < n; ++e)
      AppendAbsentRow({inverse.data() + e * n, inverse.data() + e * n + n});
    return true;
  }

  // Appends the coefficients of `shard`, which is not present.
  void AppendRow(int shard, std::vector<unsigned char>& rows) const {
    if (shard < k_) {
      const auto row = AbsentRow(std::ranges::lower_bound(absent_, shard) - absent_.begin());
      rows.insert(rows.end(), row.begin(), row.end());
      return;
    }
    for (int column = 0; column < k_; ++column) {
      unsigned char sum = present_[column] < k_ ? Coefficient(shard, present_[column]) : 0;
      for (size_t e = 0; e < absent_.size(); ++e) {
        sum ^= gf_mul(Coefficient(shard, absent_[e]), AbsentRow(e)[column]);
      }
      rows.push_back(sum);
    }
  }

 private:
  unsigned char Coefficient(int row, int column) const { return matrix_[row * k_ + column]; }

  std::span<const unsigned char> AbsentRow(size_t e) const {
    return std::span(absent_rows_).subspan(e * k_, k_);
  }

  void AppendAbsentRow(std::span<const unsigned char> inverse) {
    for (int shard : present_) {
      if (shard >= k_) {
        const auto p = std::ranges::lower_bound(parity_, shard) - parity_.begin();
        absent_rows_.push_back(inverse[p]);
        continue;
      }
      unsigned char sum = 0;
      for (size_t p = 0; p < parity_.size(); ++p) {
        sum ^= gf_mul(inverse[p], Coefficient(parity_[p], shard));
      }
      absent_rows_.push_back(sum);
    }
  }

  const std::vector<unsigned char>& matrix_;
  const int k_;
  const std::span<const int> present_;
  std::span<const int> parity_;             // the part of present_ that is parity
  std::vector<int> absent_;                 // data shards that are not present, ascending
  std::vector<unsigned char> absent_rows_;  // their coefficients, k per shard
};

}  // namespace

Codec::Codec(Geometry geometry)
    : geometry_(geometry), matrix_(static_cast<size_t>(geometry.shards()) * geometry.data_shards) {
  const int k = geometry.data_shards;
  const int m = geometry.parity_shards;
  gf_gen_cauchy1_matrix(matrix_.data(), k + m, k);
  if (k == 1) std::ranges::fill(matrix_, 1);
  if (m > 0) encode_tables_ = Tables(m, k, {matrix_.begin() + k * k, matrix_.end()});
}

Result<std::shared_ptr<const Codec>> Codec::Create(Geometry geometry) {
  const auto [k, m] = geometry;
  if (k < 1 || m < 0 || k > kMaxShards || m > kMaxShards - k) {
    return Fail(
        EINVAL,
        "no erasure code has {} data and {} parity shards: use at least 1 data shard and at "
        "most {} shards in all",
        k, m, kMaxShards);
  }
  return std::shared_ptr<const Codec>(new Codec(geometry));
}

void Codec::Encode(std::span<const Bytes> data, std::span<const MutableBytes> parity) const {
  assert(data.size() == static_cast<size_t>(geometry_.data_shards));
  assert(parity.size() == static_cast<size_t>(geometry_.parity_shards));
  assert(AllOfSize(data, data[0].size()) && AllOfSize(parity, data[0].size()));
  if (data.size() == 1) {
    for (MutableBytes copy : parity) CopyBytes(copy, data[0]);
  } else if (!parity.empty()) {
    Multiply(encode_tables_, data, parity);
  }
}

Status Codec::Reconstruct(std::span<const int> present, std::span<const Bytes> from,
                          std::span<const int> missing, std::span<const MutableBytes> to) const {
  const int k = geometry_.data_shards;
  if (present.size() != static_cast<size_t>(k) || !AreShards(present, geometry_.shards()) ||
      !AreShards(missing, geometry_.shards()) ||
      std::ranges::find_first_of(missing, present) != missing.end()) {
    return Fail(EINVAL, "repair of {}+{} needs {} distinct shards, none of them a missing one", k,
                geometry_.parity_shards, k);
  }
  if (from.size() != present.size() || to.size() != missing.size() ||
      !AllOfSize(from, from[0].size()) || !AllOfSize(to, from[0].size())) {
    return Fail(EINVAL, "repair of {}+{} needs shards of one size", k, geometry_.parity_shards);
  }
  if (missing.empty()) return {};
  if (k == 1) {
    for (MutableBytes copy : to) CopyBytes(copy, from[0]);
    return {};
  }

  Recipe recipe(matrix_, k, present);
  if (!recipe.Solve()) {
    return Fail(
        EIO, "the matrix of {}+{} cannot be inverted: the erasure code miscomputes on this machine",
        k, geometry_.parity_shards);
  }
  std::vector<unsigned char> rows;
  for (int shard : missing) recipe.AppendRow(shard, rows);
  Multiply(Tables(static_cast<int>(missing.size()), k, std::move(rows)), from, to);
  return {};
}

Status ErasureSelfTest() {
  constexpr size_t kSize = kCodingStep + 4093;  // more than a step, and a tail of odd length
  constexpr int kData = 4;
  constexpr int kParity = 2;
  constexpr uint32_t kExpected[kParity] = {0xb70aba4b, 0xd48b67c1};
  const auto codec = TRY(Codec::Create({kData, kParity}));

  std::vector<Buffer> shards;
  uint32_t state = 1;
  for (int i = 0; i < kData + kParity; ++i) {
    shards.emplace_back(kSize);
    for (std::byte& byte : shards.back().mutable_bytes()) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<std::byte>(state >> 24);
    }
  }
  const std::vector<Bytes> data(shards.begin(), shards.begin() + kData);
  const std::vector<MutableBytes> parity(shards.begin() + kData, shards.end());
  codec->Encode(data, parity);
  for (int i = 0; i < kParity; ++i) {
    if (const uint32_t sum = Crc32c(parity[i]); sum != kExpected[i]) {
      return Fail(
          EIO,
          "erasure self-test: parity {} of a known stripe has CRC32C {:08x}, not {:08x}: this "
          "machine miscomputes, nothing may be written from it",
          i, sum, kExpected[i]);
    }
  }

  const int present[] = {1, 3, 4, 5};
  const int missing[] = {0, 2};
  const std::vector<Bytes> from = {shards[1], shards[3], shards[4], shards[5]};
  Buffer first(kSize);
  Buffer third(kSize);
  const std::vector<MutableBytes> to = {first, third};
  TRY(codec->Reconstruct(present, from, missing, to));
  if (first != shards[0] || third != shards[2]) {
    return Fail(
        EIO,
        "erasure self-test: a known stripe was not repaired: this machine miscomputes, nothing "
        "may be written from it");
  }
  return {};
}

}  // namespace pinstripe
