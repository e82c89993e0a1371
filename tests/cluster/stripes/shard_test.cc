#include "cluster/stripes/shard.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr uint32_t kKiB = 1024;

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
      "04"
      "04"
      "02"
      "01"
      "0000012c"
      "091e01de"
      "c0ffee01"
      "1122334455667788"
      "0000000000000003"
      "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
      "96cd6c6d"
      "75cbfeee"
      "96cd6c6b"
      "0d9c378c");
}

TEST(Shard, ItsStripeIsNamedAsTheFormatNamesIt) {
  const auto name = [](uint64_t block) {
    return DescribeStripe({.object = 0xab, .block = block, .write = {}});
  };
  EXPECT_EQ(name(3), "block 3 of object 00000000000000ab");
  EXPECT_EQ(name((uint64_t{1} << 62) + 7), "block 2^62 + 7 of object 00000000000000ab");
  EXPECT_EQ(name(uint64_t{1} << 63), "block 2^63 + 0 of object 00000000000000ab");
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
  EXPECT_EQ(second.page_sums[0], Crc32c(bytes.subspan(64, 64)));
  EXPECT_EQ(DescribeShard(stripe, 2, bytes.first(64)).adler32, Adler32(bytes.first(64)));
}

// Bytes of which no page is like another.
std::string Text(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(i * 31 + i / 4096 * 7);
  return text;
}

// A shard has at least 64 bytes, so these are the sizes of others, too: a sum knows no padding.
TEST(Shard, ItHasTheSumOfEachPageAndItsOwnIsCombinedFromThem) {
  for (const size_t size : {0u, 1u, 64u, 4095u, 4096u, 4097u, 65536u, 65600u, 200'000u, 1u << 20}) {
    const std::string text = Text(size);
    const ShardDescriptor descriptor =
        DescribeShard({kId, {1, 1, kMaxShardBytes}, text.size()}, 0, AsBytes(text));
    ASSERT_EQ(descriptor.page_sums.size(), (size + 4095) / 4096) << size;
    for (size_t page = 0; page < descriptor.page_sums.size(); ++page) {
      EXPECT_EQ(descriptor.page_sums[page], Crc32c(AsBytes(text.substr(page * 4096, 4096))))
          << page << " of " << size;
    }
    EXPECT_EQ(ShardSum(descriptor, static_cast<uint32_t>(size)), Crc32c(AsBytes(text))) << size;
    EXPECT_EQ(descriptor.adler32, Adler32(AsBytes(text))) << size;
    EXPECT_EQ(*ShardDescriptor::Decode(descriptor.Encode()), descriptor) << size;
  }
  EXPECT_EQ(Hex(AsBytes(RecordTag(0x01020304))), "01020304");
}

TEST(Shard, ADescriptorReadsBackAndRefusesDamage) {
  for (const uint32_t copy : {0, 8}) {
    const ShardDescriptor descriptor{4, 2, 5, 45000, 77, {1, 2, 3}, copy, kId};
    const std::string bytes = descriptor.Encode();
    EXPECT_EQ(*ShardDescriptor::Decode(bytes), descriptor);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FAILS(ShardDescriptor::Decode(bytes.substr(0, size)), EBADMSG) << size;
    }
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << (bit % 8));
      EXPECT_FAILS(ShardDescriptor::Decode(damaged), EBADMSG) << bit;
    }
    EXPECT_FAILS(ShardDescriptor::Decode(bytes + std::string(64, '\0')), EBADMSG);
  }
}

// Whatever its checksum says.
TEST(Shard, ADescriptorWithMorePagesThanAShardMayHaveIsDamage) {
  ShardDescriptor descriptor{4, 2, 5, 300000, 77, std::vector<uint32_t>(256, 7), 0, kId};
  EXPECT_OK(ShardDescriptor::Decode(descriptor.Encode()));
  descriptor.page_sums.push_back(7);
  EXPECT_FAILS(ShardDescriptor::Decode(descriptor.Encode()), EBADMSG);
}

TEST(Shard, ADescriptorOfAnEarlierFormatIsRefusedWithItsNumber) {
  std::string bytes = ShardDescriptor{4, 2, 5, 300, 77, {1}, 0, kId}.Encode();
  for (const char format : {1, 2, 3, 5}) {
    bytes[0] = format;
    const auto read = ShardDescriptor::Decode(bytes);
    ASSERT_FAILS(read, EBADMSG);
    EXPECT_EQ(read.error().message(),
              fmt::format("shard descriptor: format {} is not known here, only 4 is", int{format}));
  }
}

// A Kinetic version has room for 2048 bytes.
TEST(Shard, TheDescriptorOfTheLargestShardFitsInAVersion) {
  const StripeLayout layout{4, 2, kMaxShardBytes};
  const Buffer bytes = Buffer::Zeroed(kMaxShardBytes);
  EXPECT_EQ(DescribeShard({kId, layout, layout.block_bytes()}, 5, bytes).Encode().size(),
            48 + 4 + 256 * 4 + 4u);
}

// The record of a shard of three pages, the last of them short, and what is asked of it.
struct Pages {
  KnownStripe stripe{kId, {1, 1, kCellBytes}, 9000};
  std::string text = Text(stripe.layout.ShardBytesOf(9000));
  ShardDescriptor descriptor = DescribeShard(stripe, 0, AsBytes(text));

  // What a drive answers with.
  Record Of(const PageRange& range) const {
    const auto size = static_cast<uint32_t>(text.size());
    return {DescriptorPartFor(range, size).CutFrom(descriptor.Encode()), "",
            SharedBytes(text.substr(size_t{range.first} * 4096, RangeBytes(size, range)))};
  }
  Status Check(const PageRange& range, const Record& record) const {
    std::vector<bool> good(range.last - range.first + 1);
    const Status status = CheckPages(stripe, range, record, good);
    EXPECT_EQ(std::ranges::count(good, false) == 0, status.ok());
    return status;
  }
  Status Check(const std::string& value) const {
    return Check({0, 0, 2}, {descriptor.Encode(), "", SharedBytes(value)});
  }
};

TEST(Shard, DamageAndPagesThatWereMixedUpAreFound) {
  const Pages pages;
  EXPECT_OK(pages.Check(pages.text));
  for (size_t byte = 0; byte < pages.text.size(); byte += 101) {
    std::string damaged = pages.text;
    damaged[byte] ^= 4;
    const Status status = pages.Check(damaged);
    ASSERT_FAILS(status, EBADMSG);
    EXPECT_EQ(status.message(), fmt::format("the checksum of page {} does not match", byte / 4096));
  }
  EXPECT_FAILS(pages.Check(pages.text.substr(4096, 4096) + pages.text.substr(0, 4096) +
                           pages.text.substr(8192)),
               EBADMSG);
  EXPECT_FAILS(pages.Check(pages.text.substr(0, 8192)), EBADMSG);
}

// Goal: pages that come with just their sums are bound to shard and place as all of it is. Method:
// all ranges of three pages, each answered as each other one, and each bit of each part damaged.
TEST(Shard, PagesThatComeWithTheirSumsAloneAreTheRightOnes) {
  const Pages pages;
  const std::vector<PageRange> ranges = {{0, 0, 0}, {0, 1, 1}, {0, 2, 2},
                                         {0, 0, 1}, {0, 1, 2}, {0, 0, 2}};
  for (const PageRange& asked : ranges) {
    for (const PageRange& answered : ranges) {
      EXPECT_EQ(pages.Check(asked, pages.Of(answered)).code(), asked == answered ? 0 : EBADMSG);
      // Other pages with the right sums, and the other way round.
      Record record = pages.Of(asked);
      record.value = pages.Of(answered).value;
      EXPECT_EQ(pages.Check(asked, record).code(), asked == answered ? 0 : EBADMSG);
      record = pages.Of(asked);
      record.version = pages.Of(answered).version;
      EXPECT_EQ(pages.Check(asked, record).code(), asked == answered ? 0 : EBADMSG);
    }
    const std::string version = pages.Of(asked).version;
    for (size_t bit = 0; bit < 8 * version.size(); ++bit) {
      Record record = pages.Of(asked);
      record.version[bit / 8] = static_cast<char>(record.version[bit / 8] ^ 1 << (bit % 8));
      EXPECT_FAILS(pages.Check(asked, record), EBADMSG) << bit;
    }
    for (size_t size = 0; size < version.size(); ++size) {
      Record record = pages.Of(asked);
      record.version.resize(size);
      EXPECT_FAILS(pages.Check(asked, record), EBADMSG) << size;
    }
  }
  EXPECT_TRUE(DescriptorPartFor({0, 0, 2}, 9024).whole());
  EXPECT_EQ(pages.Of({0, 1, 1}).version.size(), 56u);
}

// Of the same pages of another stripe, with sums that are right for it.
TEST(Shard, PagesOfAnotherShardAreNotTakenForItsOwn) {
  const Pages pages;
  Pages other;
  other.stripe.id.object = 7;
  other.descriptor = DescribeShard(other.stripe, 0, AsBytes(other.text));
  EXPECT_OK(other.Check({0, 1, 1}, other.Of({0, 1, 1})));
  EXPECT_FAILS(pages.Check({0, 1, 1}, other.Of({0, 1, 1})), EBADMSG);
  // The head of the one with the sum of the other.
  Record record = pages.Of({0, 1, 1});
  record.version.replace(52, 4, other.Of({0, 1, 1}).version.substr(52));
  EXPECT_FAILS(pages.Check({0, 1, 1}, record), EBADMSG);
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

// These bytes are the format, too.
TEST(WriteIdTest, ItsBytesNeverChange) {
  const WriteId id = MakeWriteId(0x01020304, 0x1112131415161718, 5);
  EXPECT_EQ(Hex(std::as_bytes(std::span(id))), "01020304111213141516171800000005");
  EXPECT_EQ(TimeOf(id), 0x01020304u);
}

using Ranges = std::vector<PageRange>;

TEST(Shard, OnlyThePagesOrCellsThatHoldTheBytesAreNeeded) {
  const StripeLayout layout{4, 2, 256 * kKiB};
  const uint64_t block = layout.block_bytes();
  EXPECT_EQ(PagesOf(layout, block, 0, 300), (Ranges{{0, 0, 0}}));
  EXPECT_EQ(PagesOf(layout, block, 4095, 1), (Ranges{{0, 0, 0}}));
  EXPECT_EQ(PagesOf(layout, block, 4095, 2), (Ranges{{0, 0, 1}}));
  EXPECT_EQ(PagesOf(layout, block, 256 * kKiB - 1, 2), (Ranges{{0, 63, 63}, {1, 0, 0}}));
  EXPECT_EQ(CellsOf(layout, block, 0, 300), (Ranges{{0, 0, 15}}));
  EXPECT_EQ(CellsOf(layout, block, 64 * kKiB - 1, 2), (Ranges{{0, 0, 31}}));
  EXPECT_EQ(CellsOf(layout, block, 256 * kKiB - 1, 2), (Ranges{{0, 48, 63}, {1, 0, 15}}));
  EXPECT_EQ(CellsOf(layout, block, 0, block),
            (Ranges{{0, 0, 63}, {1, 0, 63}, {2, 0, 63}, {3, 0, 63}}));
  for (const auto of : {PagesOf, CellsOf}) {
    EXPECT_EQ(of(layout, block, 300 * kKiB, 0), Ranges{});
    // A short block: shards of 128 bytes.
    EXPECT_EQ(of(layout, 500, 499, 1), (Ranges{{3, 0, 0}}));
  }
  // Shards of 9 pages, the last of them of 64 bytes.
  EXPECT_EQ(CellsOf(layout, 4 * 32832, 0, 1), (Ranges{{0, 0, 8}}));
  EXPECT_EQ(RangeBytes(32832, {0, 0, 8}), 32832u);
  EXPECT_EQ(RangeBytes(32832, {0, 8, 8}), 64u);
  EXPECT_EQ(RangeBytes(32832, {0, 7, 8}), 4160u);
  EXPECT_EQ(AllPages(2, 32832), (PageRange{2, 0, 8}));
}

}  // namespace
}  // namespace pinstripe
