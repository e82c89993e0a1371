#include "erasure/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "base/checksum.h"
#include "base/real_runtime.h"
#include "tests/support/gen.h"

namespace pinstripe {
namespace {

const Geometry kDeployed[] = {{1, 0}, {1, 2}, {2, 1}, {4, 2}, {5, 3}, {8, 4}, {10, 2}};

std::string Name(Geometry g) { return fmt::format("{}+{}", g.data_shards, g.parity_shards); }

// The same bytes on every machine: a linear congruential generator, its highest bits.
class Pattern {
 public:
  explicit Pattern(uint32_t seed = 1) : state_(seed) {}

  Buffer Next(size_t size) {
    Buffer buffer(size);
    for (std::byte& byte : buffer.mutable_bytes()) {
      state_ = state_ * 1664525 + 1013904223;
      byte = static_cast<std::byte>(state_ >> 24);
    }
    return buffer;
  }

 private:
  uint32_t state_;
};

// All k+m shards of a stripe, the parity as the codec computes it.
std::vector<Buffer> EncodedStripe(const Codec& codec, size_t shard_size, uint32_t seed = 1) {
  const Geometry geometry = codec.geometry();
  Pattern pattern(seed);
  std::vector<Buffer> shards;
  for (int i = 0; i < geometry.data_shards; ++i) shards.push_back(pattern.Next(shard_size));
  // What parity buffers held before must not matter.
  for (int i = 0; i < geometry.parity_shards; ++i) shards.push_back(pattern.Next(shard_size));
  const std::vector<Bytes> data(shards.begin(), shards.begin() + geometry.data_shards);
  const std::vector<MutableBytes> parity(shards.begin() + geometry.data_shards, shards.end());
  codec.Encode(data, parity);
  return shards;
}

// Repairs `missing` from `present` and compares with the whole stripe.
testing::AssertionResult Repairs(const Codec& codec, const std::vector<Buffer>& whole,
                                 const std::vector<int>& present, const std::vector<int>& missing) {
  std::vector<Bytes> from;
  for (int shard : present) from.push_back(whole[shard]);
  std::vector<Buffer> repaired;
  for (size_t i = 0; i < missing.size(); ++i) repaired.push_back(Pattern(99).Next(whole[0].size()));
  const std::vector<MutableBytes> to(repaired.begin(), repaired.end());
  const Status status = codec.Reconstruct(present, from, missing, to);
  if (!status.ok()) return testing::AssertionFailure() << status.message();
  for (size_t i = 0; i < missing.size(); ++i) {
    if (repaired[i] == whole[missing[i]]) continue;
    return testing::AssertionFailure() << fmt::format("shard {} from [{}] has other bytes",
                                                      missing[i], fmt::join(present, " "));
  }
  return testing::AssertionSuccess();
}

struct Loss {
  std::vector<int> present;  // k of them
  std::vector<int> missing;  // the other m
};

// Some k shards and the m others; all such choices come by in the rounds of `gen`.
Loss ChooseLoss(Gen& gen, Geometry geometry) {
  Loss loss;
  for (int shard = 0; shard < geometry.shards(); ++shard) {
    const bool must_stay = static_cast<int>(loss.missing.size()) == geometry.parity_shards;
    const bool must_go = static_cast<int>(loss.present.size()) == geometry.data_shards;
    const bool goes = must_go || (!must_stay && gen.Bool());
    (goes ? loss.missing : loss.present).push_back(shard);
  }
  return loss;
}

TEST(Gen, WalksEveryChoiceOnce) {
  std::vector<std::vector<int>> seen;
  Gen gen;
  while (gen.Next()) {
    seen.push_back({gen.UpTo(2)});
    // What is chosen next may depend on what was chosen before.
    if (seen.back()[0] == 1) seen.back().push_back(gen.Bool());
  }
  EXPECT_EQ(seen, (std::vector<std::vector<int>>{{0}, {1, 0}, {1, 1}, {2}}));
}

TEST(Gen, FindsEveryLossOfFourShardsOutOfTwelve) {
  int rounds = 0;
  Gen gen;
  while (gen.Next()) {
    ASSERT_EQ(ChooseLoss(gen, {8, 4}).missing.size(), 4u);
    ++rounds;
  }
  EXPECT_EQ(rounds, 495);
}

// Goal: any m losses are repaired, for every geometry we would deploy. Method: all of them, so
// there is no pattern left to be unlucky with.
TEST(Codec, RepairsEveryLossOfAsManyShardsAsItHasParity) {
  for (Geometry geometry : kDeployed) {
    SCOPED_TRACE(Name(geometry));
    const auto codec = *Codec::Create(geometry);
    const std::vector<Buffer> whole = EncodedStripe(*codec, 37);
    Gen gen;
    while (gen.Next()) {
      const Loss loss = ChooseLoss(gen, geometry);
      ASSERT_TRUE(Repairs(*codec, whole, loss.present, loss.missing));
      // A reader repairs only what it wants.
      for (int wanted : loss.missing) {
        ASSERT_TRUE(Repairs(*codec, whole, loss.present, {wanted}));
      }
    }
  }
}

TEST(Codec, RepairsAThousandLossesOfAWideStripe) {
  const auto codec = *Codec::Create({32, 4});
  const std::vector<Buffer> whole = EncodedStripe(*codec, 200);
  std::mt19937 random(1);
  std::vector<int> shards(36);
  std::iota(shards.begin(), shards.end(), 0);
  for (int round = 0; round < 1000; ++round) {
    std::ranges::shuffle(shards, random);
    std::vector<int> present(shards.begin(), shards.begin() + 32);
    std::vector<int> missing(shards.begin() + 32, shards.end());
    std::ranges::sort(present);
    std::ranges::sort(missing);
    ASSERT_TRUE(Repairs(*codec, whole, present, missing));
  }
}

TEST(Codec, RepairsTheWidestStripeThereIs) {
  const auto codec = *Codec::Create({32, 32});
  const std::vector<Buffer> whole = EncodedStripe(*codec, 64);
  std::vector<int> data(32);
  std::vector<int> parity(32);
  std::iota(data.begin(), data.end(), 0);
  std::iota(parity.begin(), parity.end(), 32);
  EXPECT_TRUE(Repairs(*codec, whole, parity, data));
  EXPECT_TRUE(Repairs(*codec, whole, data, parity));
}

TEST(Codec, CodesShardsOfAnySize) {
  const auto codec = *Codec::Create({4, 2});
  for (size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{31}, size_t{64}, size_t{65},
                      kCodingStep - 1, kCodingStep, kCodingStep + 1, 3 * kCodingStep + 17}) {
    SCOPED_TRACE(size);
    const std::vector<Buffer> whole = EncodedStripe(*codec, size);
    EXPECT_TRUE(Repairs(*codec, whole, {2, 3, 4, 5}, {0, 1}));
    EXPECT_TRUE(Repairs(*codec, whole, {0, 2, 3, 5}, {1, 4}));
    EXPECT_TRUE(Repairs(*codec, whole, {0, 1, 2, 3}, {4, 5}));
  }
}

// A stripe coded cell by cell has the parity of the stripe coded at once: readers rely on it when
// they repair only the cells that they want.
TEST(Codec, CodesEachByteOnItsOwn) {
  const auto codec = *Codec::Create({5, 3});
  const size_t size = 2 * kCodingStep + 100;
  const std::vector<Buffer> whole = EncodedStripe(*codec, size);
  const std::vector<int> present = {1, 3, 5, 6, 7};
  const std::vector<int> missing = {0, 2};
  const size_t offset = kCodingStep - 5;  // nothing is aligned
  const size_t length = kCodingStep + 33;
  std::vector<Bytes> from;
  for (int shard : present) from.push_back(whole[shard].bytes().subspan(offset, length));
  Buffer first(length);
  Buffer third(length);
  const std::vector<MutableBytes> to = {first, third};
  ASSERT_TRUE(codec->Reconstruct(present, from, missing, to).ok());
  EXPECT_TRUE(Equal(first, whole[0].bytes().subspan(offset, length)));
  EXPECT_TRUE(Equal(third, whole[2].bytes().subspan(offset, length)));
}

TEST(Codec, OneDataShardMeansCopies) {
  const auto codec = *Codec::Create({1, 2});
  const std::vector<Buffer> copies = EncodedStripe(*codec, 1000);
  EXPECT_EQ(copies[1], copies[0]);
  EXPECT_EQ(copies[2], copies[0]);
}

TEST(Codec, WithoutParityThereIsNothingToComputeAndNothingToRepair) {
  for (Geometry geometry : {Geometry{1, 0}, Geometry{6, 0}}) {
    SCOPED_TRACE(Name(geometry));
    const auto codec = *Codec::Create(geometry);
    std::vector<int> all(geometry.data_shards);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_TRUE(Repairs(*codec, EncodedStripe(*codec, 100), all, {}));
  }
}

// ---- The format ----

// Multiplication in GF(2^8) modulo 0x11d, as one would do it on paper.
uint8_t Multiply(uint8_t a, uint8_t b) {
  unsigned product = 0;
  for (unsigned factor = a; b != 0; b >>= 1) {
    if (b & 1) product ^= factor;
    factor <<= 1;
    if (factor & 0x100) factor ^= 0x11d;
  }
  return static_cast<uint8_t>(product);
}

uint8_t Inverse(uint8_t a) {
  for (int b = 1; b < 256; ++b) {
    if (Multiply(a, static_cast<uint8_t>(b)) == 1) return static_cast<uint8_t>(b);
  }
  ADD_FAILURE() << "0 has no inverse";
  return 0;
}

// The parity coefficients that codec.h promises, m rows of k.
std::vector<uint8_t> FormatMatrix(Geometry geometry) {
  const int k = geometry.data_shards;
  std::vector<uint8_t> matrix;
  for (int i = k; i < geometry.shards(); ++i) {
    for (int j = 0; j < k; ++j) {
      matrix.push_back(k == 1 ? 1 : Inverse(static_cast<uint8_t>(i ^ j)));
    }
  }
  return matrix;
}

// The CRC32C of all parity shards, one after the other, computed from the definition alone.
uint32_t ParitySumByDefinition(Geometry geometry, const std::vector<uint8_t>& matrix,
                               const std::vector<Buffer>& shards) {
  const int k = geometry.data_shards;
  uint32_t sum = 0;
  for (int row = 0; row < geometry.parity_shards; ++row) {
    Buffer parity = Buffer::Zeroed(shards[0].size());
    for (int j = 0; j < k; ++j) {
      for (size_t x = 0; x < parity.size(); ++x) {
        const auto byte = std::to_integer<uint8_t>(shards[j].data()[x]);
        parity.data()[x] ^= static_cast<std::byte>(Multiply(matrix[row * k + j], byte));
      }
    }
    sum = Crc32c(parity, sum);
  }
  return sum;
}

struct Golden {
  Geometry geometry;
  uint32_t parity_sum;  // of the parity of EncodedStripe(codec, 100)
};

// These numbers are the format. If they change, drives written yesterday cannot be repaired today.
const Golden kGolden[] = {
    {{1, 2}, 0x9a0ced14}, {{2, 1}, 0x703f1d32},  {{4, 2}, 0xad47a230},
    {{8, 4}, 0x73ee10b0}, {{10, 2}, 0xa4279dae}, {{32, 4}, 0x841a385e},
};

TEST(Codec, ParityBytesNeverChange) {
  for (const auto& [geometry, expected] : kGolden) {
    SCOPED_TRACE(Name(geometry));
    const std::vector<Buffer> shards = EncodedStripe(**Codec::Create(geometry), 100);
    uint32_t sum = 0;
    for (int i = geometry.data_shards; i < geometry.shards(); ++i) sum = Crc32c(shards[i], sum);
    EXPECT_EQ(sum, expected);
    EXPECT_EQ(ParitySumByDefinition(geometry, FormatMatrix(geometry), shards), expected);
  }
}

// A test of the test: the golden sums notice any one wrong coefficient.
TEST(Codec, AFlippedCoefficientIsCaughtByTheGoldenSums) {
  for (const auto& [geometry, expected] : kGolden) {
    SCOPED_TRACE(Name(geometry));
    const std::vector<Buffer> shards = EncodedStripe(**Codec::Create(geometry), 100);
    std::vector<uint8_t> matrix = FormatMatrix(geometry);
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] ^= 1;
      EXPECT_NE(ParitySumByDefinition(geometry, matrix, shards), expected) << "coefficient " << i;
      matrix[i] ^= 1;
    }
  }
}

// And the comparison in Repairs() notices a byte of a survivor that is not what was encoded.
TEST(Codec, AFlippedBitInASurvivorGivesOtherBytes) {
  const auto codec = *Codec::Create({4, 2});
  std::vector<Buffer> whole = EncodedStripe(*codec, 100);
  whole[4].data()[50] ^= std::byte{1};
  EXPECT_FALSE(Repairs(*codec, whole, {1, 2, 3, 4}, {0}));
}

TEST(Codec, TheSelfTestPassesOnThisMachine) {
  const Status status = ErasureSelfTest();
  EXPECT_TRUE(status.ok()) << status.message();
}

// ---- Mistakes ----

TEST(Codec, RefusesGeometriesItCannotCode) {
  const int huge = std::numeric_limits<int>::max();
  for (Geometry geometry : {Geometry{0, 2}, Geometry{-1, 2}, Geometry{4, -1}, Geometry{63, 2},
                            Geometry{65, 0}, Geometry{1, 64}, Geometry{huge, huge}}) {
    SCOPED_TRACE(Name(geometry));
    const auto codec = Codec::Create(geometry);
    ASSERT_FALSE(codec.has_value());
    EXPECT_EQ(codec.error().code(), EINVAL);
  }
  EXPECT_TRUE(Codec::Create({64, 0}).has_value());
  EXPECT_TRUE(Codec::Create({1, 63}).has_value());
}

TEST(Codec, RefusesToRepairFromAnythingButKDistinctOtherShards) {
  const auto codec = *Codec::Create({4, 2});
  const std::vector<Buffer> whole = EncodedStripe(*codec, 64);
  const auto code = [&](const std::vector<int>& present, const std::vector<int>& missing) {
    const std::vector<Bytes> from(present.size(), whole[0].bytes());
    std::vector<Buffer> room;
    for (size_t i = 0; i < missing.size(); ++i) room.emplace_back(64);
    const std::vector<MutableBytes> to(room.begin(), room.end());
    return codec->Reconstruct(present, from, missing, to).code();
  };
  EXPECT_EQ(code({0, 1, 2, 3}, {4, 5}), 0);
  EXPECT_EQ(code({}, {0}), EINVAL);
  EXPECT_EQ(code({0, 1, 2}, {4}), EINVAL) << "too few";
  EXPECT_EQ(code({0, 1, 2, 3, 4}, {5}), EINVAL) << "too many";
  EXPECT_EQ(code({0, 1, 1, 2}, {4}), EINVAL) << "one twice";
  EXPECT_EQ(code({0, 2, 1, 3}, {4}), EINVAL) << "not ascending";
  EXPECT_EQ(code({-1, 1, 2, 3}, {4}), EINVAL) << "no such shard";
  EXPECT_EQ(code({1, 2, 3, 6}, {4}), EINVAL) << "no such shard";
  EXPECT_EQ(code({0, 1, 2, 3}, {3}), EINVAL) << "present and missing";
  EXPECT_EQ(code({0, 1, 2, 3}, {5, 4}), EINVAL) << "missing not ascending";
  EXPECT_EQ(code({0, 1, 2, 3}, {6}), EINVAL) << "no such missing shard";
  EXPECT_EQ(code({0, 1, 2, 3}, {-1}), EINVAL) << "no such missing shard";
}

TEST(Codec, RefusesToRepairFromShardsOfDifferentSizes) {
  const auto codec = *Codec::Create({2, 1});
  const Buffer longer(65);
  const Buffer shorter(64);
  Buffer target(64);
  const std::vector<int> present = {0, 2};
  const std::vector<int> missing = {1};
  const std::vector<MutableBytes> to = {target};
  const std::vector<Bytes> uneven = {longer, shorter};
  EXPECT_EQ(codec->Reconstruct(present, uneven, missing, to).code(), EINVAL);
  const std::vector<Bytes> too_long = {longer, longer};
  EXPECT_EQ(codec->Reconstruct(present, too_long, missing, to).code(), EINVAL);
  const std::vector<Bytes> too_few = {shorter};
  EXPECT_EQ(codec->Reconstruct(present, too_few, missing, to).code(), EINVAL);
}

TEST(Codec, ManyThreadsShareOne) {
  const auto codec = *Codec::Create({4, 2});
  RealRuntime runtime;  // joins its threads before the codec goes
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    runtime.Spawn("coder", [&codec, seed] {
      for (int round = 0; round < 20; ++round) {
        const std::vector<Buffer> whole = EncodedStripe(*codec, 1000, seed);
        EXPECT_TRUE(Repairs(*codec, whole, {0, 3, 4, 5}, {1, 2}));
      }
    });
  }
}

}  // namespace
}  // namespace pinstripe
