// Reed-Solomon coding of a stripe: k data shards, m parity shards, any k of which give back the
// rest.
//
// The matrix is ISA-L's systematic Cauchy matrix (gf_gen_cauchy1_matrix) over GF(2^8) with
// polynomial 0x11d: data shards are the plain bytes, parity i is the sum over j of data j times 1 /
// (i xor j) with i = k..k+m-1. With k = 1 every parity coefficient is replaced by 1, so that 1+m is
// plain replication: m+1 identical copies. The matrix is part of the format; a golden test pins it.
//
// Work goes in steps of 64 KiB of a shard, so that what is being coded stays in cache.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

struct Geometry {
  int data_shards = 0;    // k
  int parity_shards = 0;  // m
  int shards() const { return data_shards + parity_shards; }
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

inline constexpr int kMaxShards = 64;            // k + m
inline constexpr size_t kCodingStep = 64 << 10;  // bytes of a shard coded at a time

// Immutable after Create(): any number of threads may use one.
class Codec {
 public:
  // EINVAL unless k >= 1, m >= 0 and k+m <= 64.
  static Result<std::shared_ptr<const Codec>> Create(Geometry geometry);

  Geometry geometry() const { return geometry_; }

  // Fills the m parity shards from the k data shards. All shards have the same size.
  void Encode(std::span<const Bytes> data, std::span<const MutableBytes> parity) const;

  // Fills `missing` shards (indices into 0..k+m-1, ascending) from k others. `present` are the
  // indices of the k shards in `from`, ascending. Everything has the same size. EINVAL when the
  // indices are not k distinct ones, or overlap `missing`.
  Status Reconstruct(std::span<const int> present, std::span<const Bytes> from,
                     std::span<const int> missing, std::span<const MutableBytes> to) const;

 private:
  explicit Codec(Geometry geometry);

  Geometry geometry_;
  std::vector<unsigned char> matrix_;         // (k+m) x k
  std::vector<unsigned char> encode_tables_;  // ISA-L's expanded form of the m parity rows
};

// Codes and repairs one known stripe, so that a machine whose vector units or library miscompute
// writes nothing. Called once when a cluster is opened. EIO says what differed.
Status ErasureSelfTest();

}  // namespace pinstripe
