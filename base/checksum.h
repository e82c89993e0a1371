// CRC32C, CRC-32 and Adler-32, and how to combine the sums of two parts into the sum of the whole,
// so that a file's checksum comes from its records' stored sums without reading data.
//
// CRC32C: Castagnoli polynomial, reflected, initial value and final xor 0xffffffff (RFC 3720): the
// sum of "123456789" is 0xe3069283. CRC-32: as of gzip (RFC 1952); that sum is 0xcbf43926.
// Adler-32: RFC 1950; the sum of nothing is 1.

#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace pinstripe {

// `seed` is the sum of what came before, so a sum can be taken piece by piece.
uint32_t Crc32c(Bytes bytes, uint32_t seed = 0);
uint32_t Crc32(Bytes bytes, uint32_t seed = 0);
uint32_t Adler32(Bytes bytes, uint32_t seed = 1);

// The sum of A followed by B, from the sums of A and of B and the length of B.
uint32_t Crc32cCombine(uint32_t a, uint32_t b, uint64_t b_length);
uint32_t Adler32Combine(uint32_t a, uint32_t b, uint64_t b_length);

// The CRC32C of a page of what was read, if it is known from where it was stored.
struct PageSum {
  uint32_t crc32c = 0;
  bool known = false;
};

// Crc32cCombine() where every B has one length, by tables: where many sums are combined.
class Crc32cJoiner {
 public:
  explicit Crc32cJoiner(uint64_t b_length);

  uint32_t Join(uint32_t a, uint32_t b) const {
    return shifted_[0][a & 0xff] ^ shifted_[1][a >> 8 & 0xff] ^ shifted_[2][a >> 16 & 0xff] ^
           shifted_[3][a >> 24] ^ b;
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> shifted_;  // what each value of each byte of `a` becomes
};

}  // namespace pinstripe
