// Sums that came with bytes: they go where the bytes go, and damage that was there stays known.

#include "cluster/stripes/range_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/checksum.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Range = RangeSums::Range;

class RangeSumsTest : public testing::Test {
 protected:
  RangeSumsTest() {
    for (char& c : text_) c = static_cast<char>(random_());
  }

  Bytes bytes() const { return AsBytes(text_); }
  Range Of(uint64_t first, uint64_t end) const {
    return {first, static_cast<uint32_t>(end - first), Crc32c(bytes().subspan(first, end - first))};
  }
  void Add(uint64_t first, uint64_t end) {
    const Range range = Of(first, end);
    sums_.Add({&range, 1});
  }

  std::minstd_rand random_{1};
  std::string text_ = std::string(100, '\0');
  RangeSums sums_;
};

TEST_F(RangeSumsTest, ABitThatTurnsOverAnywhereIsFound) {
  Add(30, 50);
  Add(10, 20);
  Add(20, 30);
  EXPECT_THAT(sums_.ranges(), ElementsAre(Of(10, 20), Of(20, 30), Of(30, 50)));
  EXPECT_EQ(sums_.end(), 50u);
  EXPECT_OK(sums_.Check(bytes()));
  for (size_t at = 0; at < text_.size(); ++at) {
    text_[at] ^= 8;
    EXPECT_EQ(sums_.Check(bytes()).code(), at >= 10 && at < 50 ? EDOM : 0) << at;
    text_[at] ^= 8;
  }
}

TEST_F(RangeSumsTest, WhatIsLeftOfARangeHasASumOfItsOwn) {
  Add(10, 20);
  Add(20, 30);
  Add(40, 50);
  sums_.Cut(0, 10, bytes());
  sums_.Cut(30, 40, bytes());
  sums_.Cut(50, UINT64_MAX, bytes());
  EXPECT_THAT(sums_.ranges(), ElementsAre(Of(10, 20), Of(20, 30), Of(40, 50)));
  sums_.Cut(13, 17, bytes());
  EXPECT_THAT(sums_.ranges(), ElementsAre(Of(10, 13), Of(17, 20), Of(20, 30), Of(40, 50)));
  sums_.Cut(18, 45, bytes());
  EXPECT_THAT(sums_.ranges(), ElementsAre(Of(10, 13), Of(17, 18), Of(45, 50)));
  sums_.Cut(11, UINT64_MAX, bytes());
  EXPECT_THAT(sums_.ranges(), ElementsAre(Of(10, 11)));
  sums_.Cut(0, 11, bytes());
  EXPECT_THAT(sums_.ranges(), IsEmpty());
}

TEST_F(RangeSumsTest, WhatIsLeftOfADamagedRangeIsDamaged) {
  Add(10, 20);
  Add(20, 30);
  text_[15] ^= 1;
  sums_.Cut(14, 16, bytes());  // where the damage is
  sums_.Cut(12, 13, bytes());
  ASSERT_EQ(sums_.ranges().size(), 4u);
  EXPECT_FAILS(sums_.Check(bytes()), EDOM);
  for (const Range& range : sums_.ranges()) {
    EXPECT_EQ(range == Of(range.first, range.end()), range.first == 20) << range.first;
  }
  sums_.Cut(10, 20, bytes());
  EXPECT_OK(sums_.Check(bytes())) << "all of it is about to be others";
}

TEST_F(RangeSumsTest, SumsOfWhatIsCopiedGoAlong) {
  Add(10, 20);
  Add(20, 30);
  Add(30, 40);
  const std::string copy = text_.substr(15, 20);
  RangeSums copied;
  copied.AddCopied(sums_, bytes(), 15, 35, 0);
  EXPECT_OK(copied.Check(AsBytes(copy)));
  ASSERT_EQ(copied.ranges().size(), 3u);
  EXPECT_EQ(copied.ranges()[1], (Range{5, 10, Of(20, 30).crc32c}));
  EXPECT_EQ(copied.end(), 20u);

  text_[12] ^= 1;  // outside of what is copied, so whether the rest is good nobody knows
  RangeSums damaged;
  damaged.AddCopied(sums_, bytes(), 15, 35, 0);
  EXPECT_FAILS(damaged.Check(AsBytes(copy)), EDOM);
}

TEST_F(RangeSumsTest, RandomCutsAndCopiesLoseNothingAndAreRight) {
  for (int round = 0; round < 2000; ++round) {
    RangeSums sums;
    std::string covered(text_.size(), '0');
    for (int step = 0; step < 6; ++step) {
      const uint64_t first = random_() % 90;
      const uint64_t end = first + 1 + random_() % (text_.size() - first);
      sums.Cut(first, end, bytes());
      const bool adds = random_() % 3 != 0;
      std::fill(covered.begin() + static_cast<long>(first),
                covered.begin() + static_cast<long>(end), adds ? '1' : '0');
      const Range range = Of(first, end);
      if (adds) sums.Add({&range, 1});
    }
    std::string found(text_.size(), '0');
    for (const Range& range : sums.ranges())
      found.replace(range.first, range.size, range.size, '1');
    ASSERT_EQ(found, covered);
    ASSERT_OK(sums.Check(bytes()));
  }
}

}  // namespace
}  // namespace pinstripe
