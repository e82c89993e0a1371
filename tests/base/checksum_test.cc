#include "base/checksum.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>

namespace pinstripe {
namespace {

Buffer RandomBytes(size_t size, std::mt19937_64& random) {
  Buffer buffer(size);
  for (std::byte& byte : buffer.mutable_bytes()) byte = static_cast<std::byte>(random());
  return buffer;
}

uint32_t ZlibAdler32(Bytes bytes, uint32_t seed = 1) {
  return static_cast<uint32_t>(
      adler32_z(seed, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

TEST(Checksum, Crc32cHasTheAnswersOfRfc3720) {
  EXPECT_EQ(Crc32c({}), 0u);
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(Buffer::Zeroed(32)), 0x8a9136aau);
  Buffer buffer(32);
  std::memset(buffer.data(), 0xff, 32);
  EXPECT_EQ(Crc32c(buffer), 0x62a8ab43u);
  for (int i = 0; i < 32; ++i) buffer.data()[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(buffer), 0x46dd794eu);
  for (int i = 0; i < 32; ++i) buffer.data()[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(Crc32c(buffer), 0x113fdb5cu);
}

TEST(Checksum, Adler32HasKnownAnswers) {
  EXPECT_EQ(Adler32({}), 1u);
  EXPECT_EQ(Adler32(AsBytes("a")), 0x00620062u);
  EXPECT_EQ(Adler32(AsBytes("Wikipedia")), 0x11e60398u);
}

TEST(Checksum, Adler32AgreesWithZlib) {
  std::mt19937_64 random(1);
  for (size_t size = 0; size < 200; ++size) {
    const Buffer bytes = RandomBytes(size, random);
    EXPECT_EQ(Adler32(bytes), ZlibAdler32(bytes)) << size;
  }
  for (size_t size : {5551, 5552, 5553, 65536, 1000003}) {
    const Buffer bytes = RandomBytes(size, random);
    EXPECT_EQ(Adler32(bytes), ZlibAdler32(bytes)) << size;
    const uint32_t before = ZlibAdler32(AsBytes("what came before"));
    EXPECT_EQ(Adler32(bytes, before), ZlibAdler32(bytes, before)) << size;
  }
}

// The largest sums there are, where a remainder that is taken too late overflows.
TEST(Checksum, Adler32OfAllOnesDoesNotOverflow) {
  Buffer bytes(3 << 20);
  std::memset(bytes.data(), 0xff, bytes.size());
  const uint32_t highest = 65520u << 16 | 65520u;
  EXPECT_EQ(Adler32(bytes), ZlibAdler32(bytes));
  EXPECT_EQ(Adler32(bytes, highest), ZlibAdler32(bytes, highest));
}

TEST(Checksum, CanBeTakenPieceByPiece) {
  std::mt19937_64 random(2);
  const Buffer bytes = RandomBytes(100000, random);
  uint32_t crc = 0;
  uint32_t adler = 1;
  for (Bytes rest = bytes; !rest.empty();) {
    const Bytes piece = rest.first(std::min<size_t>(rest.size(), random() % 5000));
    crc = Crc32c(piece, crc);
    adler = Adler32(piece, adler);
    rest = rest.subspan(piece.size());
  }
  EXPECT_EQ(crc, Crc32c(bytes));
  EXPECT_EQ(adler, Adler32(bytes));
}

TEST(Checksum, OfAWholeIsCombinedFromTheSumsOfItsParts) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    const Buffer bytes = RandomBytes(random() % 200000, random);
    // Empty parts are parts too.
    const size_t cut = round == 0 ? 0 : round == 1 ? bytes.size() : random() % (bytes.size() + 1);
    const Bytes a = bytes.bytes().first(cut);
    const Bytes b = bytes.bytes().subspan(cut);
    ASSERT_EQ(Crc32cCombine(Crc32c(a), Crc32c(b), b.size()), Crc32c(bytes));
    ASSERT_EQ(Adler32Combine(Adler32(a), Adler32(b), b.size()), Adler32(bytes));
  }
}

TEST(Checksum, AJoinerCombinesAsEverybodyDoes) {
  std::mt19937 random(1);
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{1} << 40}) {
    const Crc32cJoiner joiner(length);
    for (int i = 0; i < 1000; ++i) {
      const auto a = static_cast<uint32_t>(random());
      const auto b = static_cast<uint32_t>(random());
      ASSERT_EQ(joiner.Join(a, b), Crc32cCombine(a, b, length)) << length;
    }
  }
}

TEST(Checksum, CombiningWithNothingChangesNothing) {
  EXPECT_EQ(Crc32cCombine(0x12345678, Crc32c({}), 0), 0x12345678u);
  EXPECT_EQ(Adler32Combine(0x12345678, Adler32({}), 0), 0x12345678u);
}

// Too long to be summed, but not to be combined: appending 2^62 zeros is appending 2^61 of them
// twice.
TEST(Checksum, CombinesLengthsThatNoMemoryHolds) {
  uint32_t crc_of_zeros = Crc32c(Buffer::Zeroed(1));
  uint32_t adler_of_zeros = Adler32(Buffer::Zeroed(1));
  uint64_t length = 1;
  while (length < uint64_t{1} << 62) {
    crc_of_zeros = Crc32cCombine(crc_of_zeros, crc_of_zeros, length);
    adler_of_zeros = Adler32Combine(adler_of_zeros, adler_of_zeros, length);
    length *= 2;
  }
  // Sums do not depend on where a whole was cut.
  const uint32_t crc = Crc32c(AsBytes("pinstripe"));
  EXPECT_EQ(Crc32cCombine(Crc32cCombine(crc, crc_of_zeros, length), crc_of_zeros, length),
            Crc32cCombine(crc, Crc32cCombine(crc_of_zeros, crc_of_zeros, length), 2 * length));
  const uint32_t adler = Adler32(AsBytes("pinstripe"));
  EXPECT_EQ(
      Adler32Combine(Adler32Combine(adler, adler_of_zeros, length), adler_of_zeros, length),
      Adler32Combine(adler, Adler32Combine(adler_of_zeros, adler_of_zeros, length), 2 * length));
}

TEST(Checksum, CombinesPartsOfMoreThanFourGigabytes) {
  constexpr uint64_t kLength = uint64_t{1} << 32;
  const Buffer zeros = Buffer::Zeroed(65536);
  const uint32_t crc = Crc32c(AsBytes("x"));
  uint32_t crc_step_by_step = crc;
  uint32_t crc_of_zeros = 0;
  for (uint64_t length = 0; length < kLength; length += zeros.size()) {
    crc_step_by_step = Crc32cCombine(crc_step_by_step, Crc32c(zeros), zeros.size());
    crc_of_zeros = Crc32cCombine(crc_of_zeros, Crc32c(zeros), zeros.size());
  }
  EXPECT_EQ(Crc32cCombine(crc, crc_of_zeros, kLength), crc_step_by_step);

  // A zero leaves the low sum of Adler-32 as it is and adds it to the high one.
  const uint32_t adler_of_zeros = static_cast<uint32_t>(kLength % 65521) << 16 | 1;
  const uint64_t low = 1 + 'x';
  const uint64_t high = low * (kLength + 1) % 65521;
  EXPECT_EQ(Adler32Combine(Adler32(AsBytes("x")), adler_of_zeros, kLength), high << 16 | low);
}

}  // namespace
}  // namespace pinstripe
