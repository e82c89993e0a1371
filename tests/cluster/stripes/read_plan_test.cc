// The plan of a read, without drives: told what arrived, it says what to ask for.

#include "cluster/stripes/read_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/checksum.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gen.h"

namespace pinstripe {
namespace {

constexpr StripeLayout k21{2, 1, 128 << 10};
constexpr StripeLayout k32{3, 2, 64 << 10};

// The shards of a block of random bytes.
struct Stripe {
  Stripe(const StripeLayout& layout_in, uint64_t length_in) : layout(layout_in), length(length_in) {
    const uint32_t size = layout.ShardBytesOf(length);
    std::mt19937 random(1);
    std::vector<MutableBytes> parity;
    for (int i = 0; i < layout.geometry().shards(); ++i) {
      shards.push_back(Buffer::Zeroed(size));
      if (i >= layout.data_shards) continue;
      for (std::byte& byte : shards.back().mutable_bytes()) byte = static_cast<std::byte>(random());
    }
    codec = *Codec::Create(layout.geometry());
    std::vector<Bytes> data(shards.begin(), shards.begin() + layout.data_shards);
    for (size_t i = layout.data_shards; i < shards.size(); ++i) parity.push_back(shards[i]);
    codec->Encode(data, parity);
  }

  Record Answer(const PageRange& range) const {
    const Buffer& shard = shards[static_cast<size_t>(range.shard)];
    const auto size = static_cast<uint32_t>(shard.size());
    const std::string descriptor = DescribeShard(known(), range.shard, shard).Encode();
    return {DescriptorPartFor(range, size).CutFrom(descriptor), "",
            SharedBytes(Buffer::CopyOf(shard.bytes().subspan(size_t{range.first} * kShardPageBytes,
                                                             RangeBytes(size, range))))};
  }
  // What the plan has of a shard, and what that should be.
  void ExpectRight(const StripeRead& read, int shard, uint32_t offset, uint32_t bytes) const {
    EXPECT_TRUE(Equal(read.BytesOf(shard, offset, bytes),
                      shards[static_cast<size_t>(shard)].bytes().subspan(offset, bytes)))
        << shard << ": " << offset << "+" << bytes;
    if (offset % kShardPageBytes == 0 && bytes <= kCellBytes)
      (void)CountSums(read, shard, offset, bytes);
  }
  // The sums that it has of these pages, which are to be right.
  uint32_t CountSums(const StripeRead& read, int shard, uint32_t offset, uint32_t bytes) const {
    const CellSums sums = read.SumsOf(shard, offset, bytes);
    uint32_t known = 0;
    for (uint32_t page = 0; page < kCellPages; ++page) {
      if (!sums.Of(page)) continue;
      ++known;
      const size_t at = offset + size_t{page} * kShardPageBytes;
      EXPECT_EQ(sums.Of(page),
                Crc32c(shards[static_cast<size_t>(shard)].bytes().subspan(at, kShardPageBytes)));
    }
    return known;
  }

  KnownStripe known() const { return {{1, 2, MakeWriteId(3, 4, 5)}, layout, length}; }

  StripeLayout layout;
  uint64_t length;
  std::shared_ptr<const Codec> codec;
  std::vector<Buffer> shards;
};

using Ranges = std::vector<PageRange>;

PageRange Cells(int shard, uint32_t first, uint32_t last) {
  return {shard, first * kCellPages, (last + 1) * kCellPages - 1};
}

// A bit of page `page` of an answer turns over.
Record Rot(Record record, uint32_t page) {
  Buffer value = Buffer::CopyOf(record.value);
  value.data()[size_t{page} * kShardPageBytes + 77] ^= std::byte{1};
  record.value = SharedBytes(std::move(value));
  return record;
}

void Answer(StripeRead& read, const PageRange& question, Result<Record> record) {
  read.Answer(question, std::move(record), [] { return std::string("drive 7"); });
}

TEST(StripeRead, AsksForWhatIsWantedAndThenForNothing) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 1, 1), Cells(1, 0, 0)});
  EXPECT_EQ(read.TakeQuestions(), (Ranges{Cells(0, 1, 1), Cells(1, 0, 0)}));
  EXPECT_EQ(read.TakeQuestions(), Ranges{});
  Answer(read, Cells(0, 1, 1), stripe.Answer(Cells(0, 1, 1)));
  EXPECT_FALSE(read.Succeeded());
  Answer(read, Cells(1, 0, 0), stripe.Answer(Cells(1, 0, 0)));
  EXPECT_TRUE(read.Succeeded());
  EXPECT_FALSE(read.degraded());
  ASSERT_OK(read.Complete(*stripe.codec));
  stripe.ExpectRight(read, 0, kCellBytes, kCellBytes);
  stripe.ExpectRight(read, 1, 0, kCellBytes);
  EXPECT_EQ(stripe.CountSums(read, 0, kCellBytes, kCellBytes), kCellPages);
  EXPECT_EQ(stripe.CountSums(read, 1, 0, 3 * kShardPageBytes + 64), 3u) << "of whole pages";
}

TEST(StripeRead, PagesThatAreComputedHaveNoSum) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 0, 0)});
  (void)read.TakeQuestions();
  Answer(read, Cells(0, 0, 0), Rot(stripe.Answer(Cells(0, 0, 0)), 5));
  const Ranges questions = read.TakeQuestions();
  for (const PageRange& question : questions) Answer(read, question, stripe.Answer(question));
  ASSERT_TRUE(read.Succeeded());
  ASSERT_OK(read.Complete(*stripe.codec));
  stripe.ExpectRight(read, 0, 0, kCellBytes);
  EXPECT_EQ(stripe.CountSums(read, 0, 0, kCellBytes), kCellPages - 1);
  EXPECT_EQ(read.SumsOf(0, 0, kCellBytes).Of(5), std::nullopt);
}

TEST(StripeRead, AFailureIsReplacedInItsOwnColumnOnly) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 0, 1), Cells(1, 0, 0)});
  (void)read.TakeQuestions();
  Answer(read, Cells(1, 0, 0), Fail(EHOSTUNREACH, "drive 2: away"));
  // Column 0 lacks shard 1; shard 0 is under way there, so the parity is all that is missing.
  EXPECT_EQ(read.TakeQuestions(), (Ranges{Cells(2, 0, 0)}));
  EXPECT_TRUE(read.degraded());
}

TEST(StripeRead, ALateAnswerIsNotWaitedForButWelcome) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 0, 0)});
  (void)read.TakeQuestions();
  read.Late(Cells(0, 0, 0));
  EXPECT_EQ(read.TakeQuestions(), (Ranges{Cells(1, 0, 0), Cells(2, 0, 0)}));
  EXPECT_FALSE(read.Hopeless());
  Answer(read, Cells(0, 0, 0), stripe.Answer(Cells(0, 0, 0)));
  EXPECT_TRUE(read.Succeeded());
}

TEST(StripeRead, WhatIsLateIsStillHopedFor) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 0, 0)});
  (void)read.TakeQuestions();
  read.Late(Cells(0, 0, 0));
  (void)read.TakeQuestions();
  Answer(read, Cells(1, 0, 0), Fail(EHOSTUNREACH, "away"));
  Answer(read, Cells(2, 0, 0), Fail(EHOSTUNREACH, "away"));
  EXPECT_FALSE(read.Hopeless());  // the late cell alone will do
  EXPECT_EQ(read.TakeQuestions(), Ranges{});
  Answer(read, Cells(0, 0, 0), stripe.Answer(Cells(0, 0, 0)));
  EXPECT_TRUE(read.Succeeded());
}

// Goal: whatever each shard answers, and in whatever order, the plan ends with the right bytes or
// an honest failure. Method: all combinations of good, absent, away, damaged, cut short and late
// for 3+2.
TEST(StripeRead, EndsWithTheRightBytesOrAnHonestFailure) {
  enum Kind { kGood, kAbsent, kAway, kRotten, kShort, kLateButGood, kKinds };
  const Stripe stripe(k32, k32.block_bytes());
  Gen gen;
  while (gen.Next()) {
    std::vector<int> kinds;
    for (int shard = 0; shard < 5; ++shard) kinds.push_back(gen.UpTo(kKinds - 1));
    const int last_first = gen.UpTo(1);
    StripeRead read(stripe.known(), {Cells(0, 0, 0), Cells(1, 0, 0), Cells(2, 0, 0)});
    Ranges open = read.TakeQuestions();
    Ranges late;
    while (!read.Succeeded() && !read.Hopeless()) {
      if (open.empty()) open.swap(late);
      ASSERT_FALSE(open.empty()) << "nothing to ask, nothing to wait for, and no decision";
      const PageRange range = last_first ? open.back() : open.front();
      open.erase(last_first ? open.end() - 1 : open.begin());
      Record record = stripe.Answer(range);
      int& kind = kinds[static_cast<size_t>(range.shard)];
      switch (kind) {
        case kGood: Answer(read, range, record); break;
        case kAbsent: Answer(read, range, Fail(ENOENT, "no such key")); break;
        case kAway: Answer(read, range, Fail(EHOSTUNREACH, "away")); break;
        case kRotten:
          for (uint32_t page = 0; page < kCellPages; ++page) record = Rot(record, page);
          Answer(read, range, record);
          break;
        case kShort:
          record.value = record.value.Slice(0, 100);
          Answer(read, range, record);
          break;
        case kLateButGood:
          read.Late(range);
          kind = kGood;
          late.push_back(range);
          break;
      }
      if (read.Succeeded()) break;
      for (const PageRange& more : read.TakeQuestions()) open.push_back(more);
    }
    const auto count = [&](int kind) { return std::count(kinds.begin(), kinds.end(), kind); };
    const auto good = count(kGood) + count(kLateButGood);
    if (good >= 3) {
      ASSERT_TRUE(read.Succeeded());
      ASSERT_OK(read.Complete(*stripe.codec));
      for (int shard = 0; shard < 3; ++shard) stripe.ExpectRight(read, shard, 0, kCellBytes);
    } else {
      ASSERT_TRUE(read.Hopeless());
      const Status failure = read.Failure([](int) { return "a drive"; });
      ASSERT_EQ(failure.code(), count(kAbsent) == 5 ? ENOENT : EIO) << failure.message();
    }
  }
}

TEST(StripeRead, PagesAreAskedForAndComputedAlone) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {{0, 3, 4}, {1, 20, 20}});
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{0, 3, 4}, {1, 20, 20}}));
  Answer(read, {0, 3, 4}, Fail(EHOSTUNREACH, "away"));
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{1, 3, 4}, {2, 3, 4}}));
  Answer(read, {1, 20, 20}, stripe.Answer({1, 20, 20}));
  Answer(read, {1, 3, 4}, stripe.Answer({1, 3, 4}));
  Answer(read, {2, 3, 4}, stripe.Answer({2, 3, 4}));
  ASSERT_TRUE(read.Succeeded());
  ASSERT_OK(read.Complete(*stripe.codec));
  stripe.ExpectRight(read, 0, 3 * kShardPageBytes, 2 * kShardPageBytes);
  stripe.ExpectRight(read, 1, 20 * kShardPageBytes, kShardPageBytes);
}

TEST(StripeRead, OfADamagedCellOnlyTheDamagedPageIsReplaced) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {Cells(0, 0, 1)});
  (void)read.TakeQuestions();
  Answer(read, Cells(0, 0, 1), Rot(Rot(stripe.Answer(Cells(0, 0, 1)), 5), 31));
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{1, 5, 5}, {1, 31, 31}, {2, 5, 5}, {2, 31, 31}}));
  for (const PageRange& range : Ranges{{1, 5, 5}, {1, 31, 31}, {2, 5, 5}, {2, 31, 31}}) {
    Answer(read, range, stripe.Answer(range));
  }
  ASSERT_TRUE(read.Succeeded());
  ASSERT_OK(read.Complete(*stripe.codec));
  stripe.ExpectRight(read, 0, 0, kCellBytes);
  stripe.ExpectRight(read, 0, kCellBytes, kCellBytes);
  stripe.ExpectRight(read, 0, 5 * kShardPageBytes + 100, kShardPageBytes);
}

// Goal: damage is a matter of pages. Method: all sets of damaged pages among three pages of all
// three shards, with all ranges of them wanted of both data shards, answers first or last first.
TEST(StripeRead, ReadsWhateverHasEnoughGoodPages) {
  const Stripe stripe(k21, k21.block_bytes());
  Gen gen;
  while (gen.Next()) {
    std::array<std::array<bool, 3>, 3> rotten{};
    for (auto& shard : rotten) {
      for (bool& page : shard) page = gen.UpTo(1) == 1;
    }
    Ranges wanted;
    for (int shard = 0; shard < 2; ++shard) {
      const auto first = static_cast<uint32_t>(gen.UpTo(2));
      wanted.push_back({shard, first, first + static_cast<uint32_t>(gen.UpTo(2 - first))});
    }
    const bool last_first = gen.UpTo(1) == 1;
    StripeRead read(stripe.known(), wanted);
    Ranges open = read.TakeQuestions();
    while (!read.Succeeded() && !read.Hopeless()) {
      ASSERT_FALSE(open.empty()) << "nothing to ask, nothing to wait for, and no decision";
      const PageRange range = last_first ? open.back() : open.front();
      open.erase(last_first ? open.end() - 1 : open.begin());
      Record record = stripe.Answer(range);
      for (uint32_t page = range.first; page <= range.last; ++page) {
        if (rotten[static_cast<size_t>(range.shard)][page])
          record = Rot(record, page - range.first);
      }
      Answer(read, range, record);
      if (read.Succeeded()) break;
      for (const PageRange& more : read.TakeQuestions()) open.push_back(more);
    }
    bool readable = true;
    for (const PageRange& range : wanted) {
      for (uint32_t page = range.first; page <= range.last; ++page) {
        const int damaged = rotten[0][page] + rotten[1][page] + rotten[2][page];
        readable &= !rotten[static_cast<size_t>(range.shard)][page] || damaged <= 1;
      }
    }
    ASSERT_EQ(read.Succeeded(), readable);
    if (!readable) continue;
    ASSERT_OK(read.Complete(*stripe.codec));
    for (const PageRange& range : wanted) {
      stripe.ExpectRight(read, range.shard, range.first * kShardPageBytes,
                         RangeBytes(2 * kCellBytes, range));
    }
  }
}

// For writing a lost shard again: it is computed although nobody may ask for it.
TEST(StripeRead, ComputesAShardWithoutAskingForIt) {
  const Stripe stripe(k32, k32.block_bytes());
  for (int lost = 0; lost < 5; ++lost) {
    StripeRead read(stripe.known(), {Cells(lost, 0, 0)}, {lost});
    for (const PageRange& range : read.TakeQuestions()) {
      ASSERT_NE(range.shard, lost);
      Answer(read, range, stripe.Answer(range));
    }
    ASSERT_TRUE(read.Succeeded());
    ASSERT_OK(read.Complete(*stripe.codec));
    stripe.ExpectRight(read, lost, 0, kCellBytes);
  }
}

}  // namespace
}  // namespace pinstripe
