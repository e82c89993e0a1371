#include "cluster/shard.h"

#include <gtest/gtest.h>

#include "base/checksum.h"

namespace pinstripe {
namespace {

constexpr uint32_t kKiB = 1024;

// These bytes are the format. If a test here fails, drives written yesterday cannot be read today.
TEST(Shard, ItsKeyAndDescriptorNeverChange) {
  StripeId id{0x1122334455667788, 3, {}};
  for (size_t i = 0; i < 16; ++i) id.write[i] = static_cast<uint8_t>(0xa0 + i);
  EXPECT_EQ(Hex(AsBytes(ShardKey(ClusterPrefix("home"), id, 5))),
            "04686f6d65"
            "44"
            "1122334455667788"
            "0000000000000003"
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "05");

  const ShardDescriptor descriptor =
      DescribeShard({2, 1, 64 * kKiB}, 100, 0, AsBytes("123456789" + std::string(55, '\0')));
  EXPECT_EQ(descriptor.cell_sums.size(), 1u);
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
  const ShardDescriptor first = DescribeShard(layout, 100, 0, bytes.first(64));
  const ShardDescriptor second = DescribeShard(layout, 100, 1, bytes.subspan(64, 64));
  EXPECT_EQ(Adler32Combine(first.adler32, second.adler32, 36), Adler32(bytes.first(100)));
  EXPECT_EQ(second.cell_sums[0], Crc32c(bytes.subspan(64, 64)));
  EXPECT_EQ(DescribeShard(layout, 100, 2, bytes.first(64)).adler32, Adler32(bytes.first(64)));
}

TEST(Shard, ItsSumIsCombinedFromItsCells) {
  const std::string text(3 * kCellBytes + 640, 'z');
  const auto size = static_cast<uint32_t>(text.size());
  const ShardDescriptor descriptor =
      DescribeShard({1, 1, 4 * kCellBytes}, text.size(), 0, AsBytes(text));
  EXPECT_EQ(descriptor.cell_sums.size(), 4u);
  EXPECT_EQ(ShardSum(descriptor, size), Crc32c(AsBytes(text)));
  EXPECT_EQ(Hex(AsBytes(RecordTag(0x01020304))), "01020304");
}

TEST(Shard, ADescriptorReadsBackAndRefusesDamage) {
  const ShardDescriptor descriptor{4, 2, 5, 300000, 77, {1, 2, 3}};
  const std::string bytes = descriptor.Encode();
  EXPECT_EQ(*ShardDescriptor::Decode(bytes), descriptor);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = ShardDescriptor::Decode(bytes.substr(0, size));
    EXPECT_TRUE(!cut.has_value() || cut->cell_sums.size() < 3) << size;
  }
  EXPECT_FALSE(ShardDescriptor::Decode("\x03" + bytes.substr(1)).has_value());
  const ShardDescriptor copy{4, 2, 5, 300000, 77, {1, 2, 3}, 8};
  EXPECT_EQ(*ShardDescriptor::Decode(copy.Encode()), copy);
  EXPECT_FALSE(ShardDescriptor::Decode(std::string("\x02\x04\x02\x05\0\0\0\1\0\0\0\1\0\0\0\0", 16))
                   .has_value());
  EXPECT_FALSE(ShardDescriptor::Decode(bytes + std::string(64, '\0')).has_value());
}

TEST(Shard, ADescriptorOfAnotherShardIsDamage) {
  const StripeLayout layout{4, 2, kCellBytes};
  const ShardDescriptor good{4, 2, 5, 300, 77, {1}};
  EXPECT_TRUE(CheckDescriptor(good, layout, 300, 5).ok());
  EXPECT_EQ(CheckDescriptor(good, layout, 300, 4).code(), EBADMSG);
  EXPECT_EQ(CheckDescriptor(good, layout, 301, 5).code(), EBADMSG);
  EXPECT_EQ(CheckDescriptor(good, StripeLayout{5, 2, kCellBytes}, 300, 5).code(), EBADMSG);
  EXPECT_EQ(CheckDescriptor(good, StripeLayout{4, 3, kCellBytes}, 300, 5).code(), EBADMSG);
  EXPECT_EQ(CheckDescriptor({4, 2, 5, 300, 77, {1, 2}}, layout, 300, 5).code(), EBADMSG);
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
