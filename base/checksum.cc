#include "base/checksum.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>

namespace pinstripe {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, reflected
constexpr uint32_t kAdlerBase = 65521;        // the largest prime below 2^16

// Polynomials over GF(2) modulo kPolynomial, reflected: bit 31 is the coefficient of x^0.
constexpr uint32_t MultiplyModulo(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = b & 1 ? b >> 1 ^ kPolynomial : b >> 1;
  }
  return product;
}

// kPowers[i] = x^(2^i).
constexpr std::array<uint32_t, 67> kPowers = [] {
  std::array<uint32_t, 67> powers{};
  powers[0] = 1u << 30;  // x
  for (size_t i = 1; i < powers.size(); ++i)
    powers[i] = MultiplyModulo(powers[i - 1], powers[i - 1]);
  return powers;
}();

}  // namespace

uint32_t Crc32c(Bytes bytes, uint32_t seed) {
  // ISA-L takes a length of type int; its seed and result lack the final xor.
  uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const size_t step = std::min<size_t>(bytes.size(), 1u << 30);
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(step), crc);
    bytes = bytes.subspan(step);
  }
  return ~crc;
}

uint32_t Crc32(Bytes bytes, uint32_t seed) {
  return crc32_gzip_refl(seed, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

uint32_t Adler32(Bytes bytes, uint32_t seed) {
  return isal_adler32(seed, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

// Appending n bytes to A multiplies its polynomial by x^(8n).
uint32_t Crc32cCombine(uint32_t a, uint32_t b, uint64_t b_length) {
  uint32_t shifted = a;
  for (int bit = 0; bit < 64; ++bit) {
    if (b_length >> bit & 1) shifted = MultiplyModulo(shifted, kPowers[bit + 3]);
  }
  return shifted ^ b;
}

// It is linear: each byte of A is shifted for itself.
Crc32cJoiner::Crc32cJoiner(uint64_t b_length) {
  for (uint32_t byte = 0; byte < shifted_.size(); ++byte) {
    for (uint32_t value = 0; value < shifted_[byte].size(); ++value) {
      shifted_[byte][value] = Crc32cCombine(value << (8 * byte), 0, b_length);
    }
  }
}

// With s1 the sum of the bytes plus 1 and s2 the sum of all intermediate s1.
uint32_t Adler32Combine(uint32_t a, uint32_t b, uint64_t b_length) {
  const uint64_t length = b_length % kAdlerBase;
  const uint64_t a1 = a & 0xffff, a2 = a >> 16, b1 = b & 0xffff, b2 = b >> 16;
  const uint64_t s1 = (a1 + b1 + kAdlerBase - 1) % kAdlerBase;
  const uint64_t s2 = (a2 + b2 + length * (a1 + kAdlerBase - 1)) % kAdlerBase;
  return static_cast<uint32_t>(s2 << 16 | s1);
}

}  // namespace pinstripe
