#include "erasure/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/expect_ok.h"
#include "tests/support/gen.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The shards of a block of random bytes, for a test to take away and to spoil.
struct Stripe {
  Stripe(Geometry geometry, size_t size) : codec(*Codec::Create(geometry)) {
    std::mt19937 random(1);
    for (int i = 0; i < geometry.shards(); ++i) {
      shards.push_back(Buffer::Zeroed(size));
      if (i >= geometry.data_shards) continue;
      for (std::byte& byte : shards.back().mutable_bytes()) byte = static_cast<std::byte>(random());
    }
    const std::vector<Bytes> data(shards.begin(), shards.begin() + geometry.data_shards);
    const std::vector<MutableBytes> parity(shards.begin() + geometry.data_shards, shards.end());
    codec->Encode(data, parity);
    at_hand.assign(shards.begin(), shards.end());
  }

  void Spoil(int shard, size_t at) {
    shards[static_cast<size_t>(shard)].data()[at] ^= static_cast<std::byte>(1 + shard);
  }
  void TakeAway(int shard) { at_hand[static_cast<size_t>(shard)] = {}; }

  Agreement Compare() const {
    const auto agreement = CompareShards(*codec, at_hand);
    EXPECT_OK(agreement);
    return agreement.value_or(Agreement());
  }

  std::shared_ptr<const Codec> codec;
  std::vector<Buffer> shards;
  std::vector<Bytes> at_hand;
};

// Goal: nothing is suspected that is right, as many wrong ones as there can be are noticed, and
// half as many found. Method: each shard is right, wrong or not at hand, in all combinations.
TEST(Agreement, NoticesAndFindsAsManyWrongShardsAsTheCodeAllows) {
  for (const Geometry geometry :
       {Geometry{1, 0}, {1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {2, 4}, {5, 3}}) {
    SCOPED_TRACE(fmt::format("{}+{}", geometry.data_shards, geometry.parity_shards));
    Gen gen;
    while (gen.Next()) {
      Stripe stripe(geometry, 75);
      std::vector<int> wrong;
      int present = 0;
      for (int shard = 0; shard < geometry.shards(); ++shard) {
        const int state = gen.UpTo(2);
        present += state != 2;
        if (state == 2) stripe.TakeAway(shard);
        if (state == 1) {
          wrong.push_back(shard);
          stripe.Spoil(shard, 74);
        }
      }
      const int spare = present - geometry.data_shards;
      const int count = static_cast<int>(wrong.size());
      const Agreement agreement = stripe.Compare();
      if (spare <= 0 || count == 0) {
        ASSERT_TRUE(agreement.agrees);
        ASSERT_THAT(agreement.wrong, IsEmpty());
      } else if (count <= spare) {
        ASSERT_FALSE(agreement.agrees) << fmt::format("{}", fmt::join(wrong, " "));
        if (count <= spare / 2) {
          ASSERT_EQ(agreement.wrong, wrong);
        }
      }
    }
  }
}

TEST(Agreement, AByteAnywhereInALargeShardIsFound) {
  for (const size_t at : {size_t{0}, kCodingStep - 1, kCodingStep, 2 * kCodingStep + 31}) {
    Stripe stripe({4, 2}, 2 * kCodingStep + 32);
    stripe.Spoil(2, at);
    EXPECT_THAT(stripe.Compare().wrong, ElementsAre(2));
  }
}

TEST(Agreement, WithOneParityShardItIsOnlyKnownThatOneIsWrong) {
  Stripe stripe({4, 1}, 64);
  stripe.Spoil(2, 5);
  EXPECT_FALSE(stripe.Compare().agrees);
  EXPECT_THAT(stripe.Compare().wrong, IsEmpty());
}

// Two that are wrong in different places are two wrong shards.
TEST(Agreement, WhatNoFewExplainIsLeftOpen) {
  Stripe stripe({4, 2}, 3 * kCodingStep);
  stripe.Spoil(1, 7);
  stripe.Spoil(3, 2 * kCodingStep + 7);
  EXPECT_FALSE(stripe.Compare().agrees);
  EXPECT_THAT(stripe.Compare().wrong, IsEmpty());
}

TEST(Agreement, OfThreeCopiesTwoDecide) {
  Stripe stripe({1, 2}, 64);
  stripe.Spoil(0, 5);
  EXPECT_THAT(stripe.Compare().wrong, ElementsAre(0));
  stripe.TakeAway(1);
  EXPECT_FALSE(stripe.Compare().agrees) << "one against one";
  EXPECT_THAT(stripe.Compare().wrong, IsEmpty());
}

TEST(Agreement, ThreeOfTwentySixAreFound) {
  Stripe stripe({20, 6}, 64);
  for (const int shard : {4, 19, 25}) stripe.Spoil(shard, 1);
  EXPECT_THAT(stripe.Compare().wrong, ElementsAre(4, 19, 25));
}

}  // namespace
}  // namespace pinstripe
