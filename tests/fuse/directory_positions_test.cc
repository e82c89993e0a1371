#include "fuse/directory_positions.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using Positions = DirectoryPositions;

TEST(DirectoryPositions, AListingGoesOnBehindTheNameThatWasHandedOut) {
  Positions positions;
  const uint64_t a = positions.After(Positions::kAfterDotDot, "a");
  const uint64_t b = positions.After(a, "b");

  EXPECT_EQ(positions.NameBefore(Positions::kStart), "");
  EXPECT_EQ(positions.NameBefore(Positions::kAfterDot), "");
  EXPECT_EQ(positions.NameBefore(Positions::kAfterDotDot), "");
  EXPECT_EQ(positions.NameBefore(a), "a");
  EXPECT_EQ(positions.NameBefore(b), "b");
}

TEST(DirectoryPositions, ReadingTheSameAgainGivesTheSamePositions) {
  Positions positions;
  const uint64_t a = positions.After(Positions::kAfterDotDot, "a");
  const uint64_t b = positions.After(a, "b");

  EXPECT_EQ(positions.After(Positions::kAfterDotDot, "a"), a);
  EXPECT_EQ(positions.After(a, "b"), b);
}

// Somebody remembers the position behind c, b goes away, and the middle is read again.
TEST(DirectoryPositions, APositionKeepsItsMeaningWhenEntriesBeforeItGo) {
  Positions positions;
  const uint64_t a = positions.After(Positions::kAfterDotDot, "a");
  const uint64_t b = positions.After(a, "b");
  const uint64_t c = positions.After(b, "c");

  const uint64_t c_again = positions.After(a, "c");

  EXPECT_EQ(positions.NameBefore(c), "c");
  EXPECT_EQ(positions.NameBefore(c_again), "c");
  EXPECT_EQ(positions.NameBefore(b), "b");
}

TEST(DirectoryPositions, APositionThatWasNeverHandedOutIsNotKnown) {
  Positions positions;
  EXPECT_TRUE(positions.Knows(Positions::kAfterDotDot));
  EXPECT_FALSE(positions.Knows(3));

  const uint64_t a = positions.After(Positions::kAfterDotDot, "a");
  EXPECT_TRUE(positions.Knows(a));
  positions.Restart();
  EXPECT_FALSE(positions.Knows(a));
}

}  // namespace
}  // namespace pinstripe
