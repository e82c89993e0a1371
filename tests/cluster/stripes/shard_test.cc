#include "cluster/stripes/shard.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr uint32_t kKiB = 1024;

// The shards of this write id say whose they are.
constexpr StripeId kId{0x1122334455667788,
                       3,
                       {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab,
                        0xac, 0xad, 0xae, 0xaf}};

// These bytes are the format. If a test here fails, drives written yesterday cannot be read today.
TEST(Shard, ItsKeyAndDescriptorNeverChange) {
  EXPECT_EQ(Hex(AsBytes(ShardKey(ClusterPrefix("home"), kId, 5))),
            "04686f6d65"
            "44"
            "1122334455667788"
            "0000000000000003"
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "05");

  EXPECT_EQ(
      Hex(AsBytes(
          ShardDescriptor{4, 2, 1, 300, 0x91e01de, {0xe3069283, 7}, 0xc0ffee01, kId}.Encode())),
      "03"
      "04"
      "02"
      "01"
      "0000012c"
      "091e01de"
      "c0ffee01"
      "1122334455667788"
      "0000000000000003"
      "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
      "e3069283"
      "00000007"
      "ee8ba9ab");
  // Those from before descriptors said whose they are.
  EXPECT_EQ(Hex(AsBytes(ShardDescriptor{4, 2, 1, 300, 0x91e01de, {0xe3069283, 7}}.Encode())),
            "01"
            "04"
            "02"
            "01"
            "0000012c"
            "091e01de"
            "e3069283"
            "00000007");
  EXPECT_EQ(
      Hex(AsBytes(ShardDescriptor{4, 2, 1, 300, 0x91e01de, {0xe3069283}, 0xc0ffee01}.Encode())),
      "02"
      "04"
      "02"
      "01"
      "0000012c"
      "091e01de"
      "c0ffee01"
      "e3069283");
}

TEST(Shard, ABlockIsCutIntoEqualShardsOfWholeLines) {
  const StripeLayout layout{4, 2, 1 << 20};
  EXPECT_EQ(layout.ShardBytesOf(1), 64u);
  EXPECT_EQ(layout.ShardBytesOf(256), 64u);
  EXPECT_EQ(layout.ShardBytesOf(257), 128u);
  EXPECT_EQ(layout.ShardBytesOf(layout.block_bytes()), 1u << 20);
}

TEST(Shard, ALayoutHasBounds) {
  EXPECT_TRUE((StripeLayout{1, 0, kCellBytes}).Check().ok());
  EXPECT_TRUE((StripeLayout{60, 4, kMaxShardBytes}).Check().ok());
  EXPECT_EQ((StripeLayout{0, 2, kCellBytes}).Check().code(), EINVAL);
  EXPECT_EQ((StripeLayout{61, 4, kCellBytes}).Check().code(), EINVAL);
  EXPECT_EQ((StripeLayout{4, 2, 0}).Check().code(), EINVAL);
  EXPECT_EQ((StripeLayout{4, 2, kCellBytes + 64}).Check().code(), EINVAL);
  EXPECT_EQ((StripeLayout{4, 2, 2 * kMaxShardBytes}).Check().code(), EINVAL);
}

// A block of 100 bytes under 2+1: shards of 64, of which the second holds 36 bytes and 28 zeros.
// The Adler-32 is over what was written, so that a file's sum can be combined from its shards'.
TEST(Shard, TheAdlerSumLeavesOutTheZerosThatWereAdded) {
  const StripeLayout layout{2, 1, kCellBytes};
  const std::string block = std::string(64, 'x') + std::string(36, 'y') + std::string(28, '\0');
  const Bytes bytes = AsBytes(block);
  const KnownStripe stripe{kId, layout, 100};
  const ShardDescriptor first = DescribeShard(stripe, 0, bytes.first(64));
  const ShardDescriptor second = DescribeShard(stripe, 1, bytes.subspan(64, 64));
  EXPECT_EQ(Adler32Combine(first.adler32, second.adler32, 36), Adler32(bytes.first(100)));
  EXPECT_EQ(second.cell_sums[0], Crc32c(bytes.subspan(64, 64)));
  EXPECT_EQ(DescribeShard(stripe, 2, bytes.first(64)).adler32, Adler32(bytes.first(64)));
}

TEST(Shard, ItsSumIsCombinedFromItsCells) {
  const std::string text(3 * kCellBytes + 640, 'z');
  const auto size = static_cast<uint32_t>(text.size());
  const ShardDescriptor descriptor =
      DescribeShard({kId, {1, 1, 4 * kCellBytes}, text.size()}, 0, AsBytes(text));
  EXPECT_EQ(descriptor.cell_sums.size(), 4u);
  EXPECT_EQ(ShardSum(descriptor, size), Crc32c(AsBytes(text)));
  EXPECT_EQ(Hex(AsBytes(RecordTag(0x01020304))), "01020304");
}

TEST(Shard, ADescriptorReadsBackAndRefusesDamage) {
  for (const uint32_t copy : {0, 8}) {
    const ShardDescriptor descriptor{4, 2, 5, 300000, 77, {1, 2, 3}, copy, kId};
    const std::string bytes = descriptor.Encode();
    EXPECT_EQ(*ShardDescriptor::Decode(bytes), descriptor);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(ShardDescriptor::Decode(bytes.substr(0, size)).has_value()) << size;
    }
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << (bit % 8));
      const auto read = ShardDescriptor::Decode(damaged);
      // Two of these make it one of the formats that have no checksum, and no name.
      EXPECT_TRUE(!read.has_value() || bit < 2) << bit;
      if (!read.has_value()) continue;
      EXPECT_FAILS(CheckDescriptor(*read, {kId, {4, 2, 128 * kKiB}, 300000}, 5), EBADMSG);
    }
    EXPECT_FALSE(ShardDescriptor::Decode(bytes + std::string(64, '\0')).has_value());
  }
}

// A Kinetic version has room for 2048 bytes.
TEST(Shard, TheDescriptorOfTheLargestShardFitsInAVersion) {
  const StripeLayout layout{4, 2, kMaxShardBytes};
  const Buffer bytes = Buffer::Zeroed(kMaxShardBytes);
  EXPECT_EQ(DescribeShard({kId, layout, layout.block_bytes()}, 5, bytes).Encode().size(),
            16 + 32 + 16 * 4 + 4u);
}

TEST(Shard, ADescriptorFromBeforeThereWereNamesReadsBackAndRefusesDamage) {
  const ShardDescriptor descriptor{4, 2, 5, 300000, 77, {1, 2, 3}};
  const std::string bytes = descriptor.Encode();
  EXPECT_EQ(*ShardDescriptor::Decode(bytes), descriptor);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = ShardDescriptor::Decode(bytes.substr(0, size));
    EXPECT_TRUE(!cut.has_value() || cut->cell_sums.size() < 3) << size;
  }
  EXPECT_FALSE(ShardDescriptor::Decode("\x03" + bytes.substr(1)).has_value());
  EXPECT_FALSE(ShardDescriptor::Decode("\x04" + bytes.substr(1)).has_value());
  const ShardDescriptor copy{4, 2, 5, 300000, 77, {1, 2, 3}, 8};
  EXPECT_EQ(*ShardDescriptor::Decode(copy.Encode()), copy);
  EXPECT_FALSE(ShardDescriptor::Decode(std::string("\x02\x04\x02\x05\0\0\0\1\0\0\0\1\0\0\0\0", 16))
                   .has_value());
  EXPECT_FALSE(ShardDescriptor::Decode(bytes + std::string(64, '\0')).has_value());
}

TEST(Shard, ADescriptorOfAnotherShardIsDamage) {
  const StripeLayout layout{4, 2, kCellBytes};
  const KnownStripe stripe{kId, layout, 300};
  const ShardDescriptor good{4, 2, 5, 300, 77, {1}, 0, kId};
  EXPECT_OK(CheckDescriptor(good, stripe, 5));
  EXPECT_FAILS(CheckDescriptor(good, stripe, 4), EBADMSG);
  EXPECT_FAILS(CheckDescriptor(good, {kId, layout, 301}, 5), EBADMSG);
  EXPECT_FAILS(CheckDescriptor(good, {kId, {5, 2, kCellBytes}, 300}, 5), EBADMSG);
  EXPECT_FAILS(CheckDescriptor(good, {kId, {4, 3, kCellBytes}, 300}, 5), EBADMSG);
  EXPECT_FAILS(CheckDescriptor({4, 2, 5, 300, 77, {1, 2}, 0, kId}, stripe, 5), EBADMSG);

  StripeId other = kId;
  other.object = 7;
  EXPECT_FAILS(CheckDescriptor({4, 2, 5, 300, 77, {1}, 0, other}, stripe, 5), EBADMSG);
  other = kId;
  other.block = 4;
  const Status refused = CheckDescriptor({4, 2, 5, 300, 77, {1}, 0, other}, stripe, 5);
  EXPECT_EQ(refused.message(),
            "it is shard 5 of block 4 of object 1122334455667788, write "
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf, and not shard 5 of block 3 of object "
            "1122334455667788, write a0a1a2a3a4a5a6a7a8a9aaabacadaeaf");
  for (size_t byte = 0; byte < kId.write.size(); ++byte) {
    other = kId;
    other.write[byte] ^= 1;
    EXPECT_FAILS(CheckDescriptor({4, 2, 5, 300, 77, {1}, 0, other}, stripe, 5), EBADMSG) << byte;
  }
}

// What is known of a stripe tells whether its shards have to say whose they are. So one of before
// cannot stand in for one that has to.
TEST(Shard, ADescriptorWithoutANameIsTakenOnlyForAStripeFromBeforeThereWereNames) {
  const StripeLayout layout{4, 2, kCellBytes};
  const StripeId today{7, 3, MakeWriteId(1'700'000'000, 0x1234, 5)};
  StripeId before = today;
  before.write[12] &= 0x7f;
  for (const uint32_t copy : {0, 8}) {
    const ShardDescriptor unnamed{4, 2, 5, 300, 77, {1}, copy};
    EXPECT_FAILS(CheckDescriptor(unnamed, {today, layout, 300}, 5), EBADMSG);
    EXPECT_OK(CheckDescriptor(unnamed, {before, layout, 300}, 5));
    EXPECT_FAILS(CheckDescriptor(unnamed, {before, layout, 300}, 4), EBADMSG);
  }
  // One that says it must say the right thing, whatever the stripe.
  EXPECT_OK(CheckDescriptor({4, 2, 5, 300, 77, {1}, 0, before}, {before, layout, 300}, 5));
  EXPECT_FAILS(CheckDescriptor({4, 2, 5, 300, 77, {1}, 0, today}, {before, layout, 300}, 5),
               EBADMSG);
}

// These bytes are the format, too.
TEST(WriteIdTest, ItsBytesNeverChange) {
  const WriteId id = MakeWriteId(0x01020304, 0x1112131415161718, 5);
  EXPECT_EQ(Hex(std::as_bytes(std::span(id))), "01020304111213141516171880000005");
  EXPECT_EQ(TimeOf(id), 0x01020304u);
  EXPECT_TRUE(IsNamedInShards(id));
  EXPECT_FALSE(IsNamedInShards({1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}));
}

using Ranges = std::vector<CellRange>;

TEST(Shard, OnlyTheCellsThatHoldTheBytesAreNeeded) {
  const StripeLayout layout{4, 2, 256 * kKiB};
  const uint64_t block = layout.block_bytes();
  EXPECT_EQ(CellsOf(layout, block, 0, 300), (Ranges{{0, 0, 0}}));
  EXPECT_EQ(CellsOf(layout, block, 64 * kKiB - 1, 2), (Ranges{{0, 0, 1}}));
  EXPECT_EQ(CellsOf(layout, block, 256 * kKiB - 1, 2), (Ranges{{0, 3, 3}, {1, 0, 0}}));
  EXPECT_EQ(CellsOf(layout, block, 0, block), (Ranges{{0, 0, 3}, {1, 0, 3}, {2, 0, 3}, {3, 0, 3}}));
  EXPECT_EQ(CellsOf(layout, block, 300 * kKiB, 0), Ranges{});
  // A short block: shards of 128 bytes.
  EXPECT_EQ(CellsOf(layout, 500, 499, 1), (Ranges{{3, 0, 0}}));
  EXPECT_EQ(RangeBytes(100 * kKiB, {0, 0, 1}), 100 * kKiB);
  EXPECT_EQ(RangeBytes(100 * kKiB, {0, 1, 1}), 36 * kKiB);
}

}  // namespace
}  // namespace pinstripe
