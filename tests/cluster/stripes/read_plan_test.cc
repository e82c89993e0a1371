// The plan of a read, without drives: told what arrived, it says what to ask for.

#include "cluster/stripes/read_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

  Record Answer(const CellRange& range) const {
    const Buffer& shard = shards[static_cast<size_t>(range.shard)];
    const auto size = static_cast<uint32_t>(shard.size());
    return {DescribeShard(known(), range.shard, shard).Encode(), "",
            SharedBytes(Buffer::CopyOf(
                shard.bytes().subspan(size_t{range.first} * kCellBytes, RangeBytes(size, range))))};
  }

  KnownStripe known() const { return {{1, 2, MakeWriteId(3, 4, 5)}, layout, length}; }

  StripeLayout layout;
  uint64_t length;
  std::shared_ptr<const Codec> codec;
  std::vector<Buffer> shards;
};

using Ranges = std::vector<CellRange>;

void Answer(StripeRead& read, const CellRange& question, Result<Record> record) {
  read.Answer(question, std::move(record), [] { return std::string("drive 7"); });
}

TEST(StripeRead, AsksForWhatIsWantedAndThenForNothing) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {{0, 1, 1}, {1, 0, 0}});
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{0, 1, 1}, {1, 0, 0}}));
  EXPECT_EQ(read.TakeQuestions(), Ranges{});
  Answer(read, {0, 1, 1}, stripe.Answer({0, 1, 1}));
  EXPECT_FALSE(read.Succeeded());
  Answer(read, {1, 0, 0}, stripe.Answer({1, 0, 0}));
  EXPECT_TRUE(read.Succeeded());
  EXPECT_FALSE(read.degraded());
  ASSERT_OK(read.Complete(*stripe.codec));
  EXPECT_TRUE(Equal(read.Cell(0, 1), stripe.shards[0].bytes().subspan(kCellBytes)));
  EXPECT_TRUE(Equal(read.Cell(1, 0), stripe.shards[1].bytes().first(kCellBytes)));
}

TEST(StripeRead, AFailureIsReplacedInItsOwnColumnOnly) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {{0, 0, 1}, {1, 0, 0}});
  (void)read.TakeQuestions();
  Answer(read, {1, 0, 0}, Fail(EHOSTUNREACH, "drive 2: away"));
  // Column 0 lacks shard 1; shard 0 is under way there, so the parity is all that is missing.
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{2, 0, 0}}));
  EXPECT_TRUE(read.degraded());
}

TEST(StripeRead, ALateAnswerIsNotWaitedForButWelcome) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {{0, 0, 0}});
  (void)read.TakeQuestions();
  read.Late({0, 0, 0});
  EXPECT_EQ(read.TakeQuestions(), (Ranges{{1, 0, 0}, {2, 0, 0}}));
  EXPECT_FALSE(read.Hopeless());
  Answer(read, {0, 0, 0}, stripe.Answer({0, 0, 0}));
  EXPECT_TRUE(read.Succeeded());
}

TEST(StripeRead, WhatIsLateIsStillHopedFor) {
  const Stripe stripe(k21, k21.block_bytes());
  StripeRead read(stripe.known(), {{0, 0, 0}});
  (void)read.TakeQuestions();
  read.Late({0, 0, 0});
  (void)read.TakeQuestions();
  Answer(read, {1, 0, 0}, Fail(EHOSTUNREACH, "away"));
  Answer(read, {2, 0, 0}, Fail(EHOSTUNREACH, "away"));
  EXPECT_FALSE(read.Hopeless());  // the late cell alone will do
  EXPECT_EQ(read.TakeQuestions(), Ranges{});
  Answer(read, {0, 0, 0}, stripe.Answer({0, 0, 0}));
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
    StripeRead read(stripe.known(), {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}});
    Ranges open = read.TakeQuestions();
    Ranges late;
    while (!read.Succeeded() && !read.Hopeless()) {
      if (open.empty()) open.swap(late);
      ASSERT_FALSE(open.empty()) << "nothing to ask, nothing to wait for, and no decision";
      const CellRange range = last_first ? open.back() : open.front();
      open.erase(last_first ? open.end() - 1 : open.begin());
      Record record = stripe.Answer(range);
      int& kind = kinds[static_cast<size_t>(range.shard)];
      switch (kind) {
        case kGood: Answer(read, range, record); break;
        case kAbsent: Answer(read, range, Fail(ENOENT, "no such key")); break;
        case kAway: Answer(read, range, Fail(EHOSTUNREACH, "away")); break;
        case kRotten: {
          Buffer value = Buffer::CopyOf(record.value);
          value.data()[77] ^= std::byte{1};
          record.value = SharedBytes(std::move(value));
          Answer(read, range, record);
          break;
        }
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
      for (const CellRange& more : read.TakeQuestions()) open.push_back(more);
    }
    const auto count = [&](int kind) { return std::count(kinds.begin(), kinds.end(), kind); };
    const auto good = count(kGood) + count(kLateButGood);
    if (good >= 3) {
      ASSERT_TRUE(read.Succeeded());
      ASSERT_OK(read.Complete(*stripe.codec));
      for (int shard = 0; shard < 3; ++shard) {
        ASSERT_TRUE(Equal(read.Cell(shard, 0), stripe.shards[static_cast<size_t>(shard)]));
      }
    } else {
      ASSERT_TRUE(read.Hopeless());
      const Status failure = read.Failure([](int) { return "a drive"; });
      ASSERT_EQ(failure.code(), count(kAbsent) == 5 ? ENOENT : EIO) << failure.message();
    }
  }
}

// For writing a lost shard again: it is computed although nobody may ask for it.
TEST(StripeRead, ComputesAShardWithoutAskingForIt) {
  const Stripe stripe(k32, k32.block_bytes());
  for (int lost = 0; lost < 5; ++lost) {
    StripeRead read(stripe.known(), {{lost, 0, 0}}, {lost});
    for (const CellRange& range : read.TakeQuestions()) {
      ASSERT_NE(range.shard, lost);
      Answer(read, range, stripe.Answer(range));
    }
    ASSERT_TRUE(read.Succeeded());
    ASSERT_OK(read.Complete(*stripe.codec));
    EXPECT_TRUE(Equal(read.Cell(lost, 0), stripe.shards[static_cast<size_t>(lost)]));
  }
}

}  // namespace
}  // namespace pinstripe
