#include "fuse/directory_positions.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pinstripe {
namespace {

using Positions = DirectoryPositions;

TEST(DirectoryPositions, AListingGoesOnBehindTheNameThatWasHandedOut) {
  Positions positions;
  const uint64_t a = positions.After("a");
  const uint64_t b = positions.After("b");

  EXPECT_EQ(positions.NameBefore(Positions::kStart), "");
  EXPECT_EQ(positions.NameBefore(Positions::kAfterDot), "");
  EXPECT_EQ(positions.NameBefore(Positions::kAfterDotDot), "");
  EXPECT_EQ(positions.NameBefore(a), "a");
  EXPECT_EQ(positions.NameBefore(b), "b");
}

// Somebody remembers positions, entries come and go, and the directory is read again.
TEST(DirectoryPositions, APositionKeepsItsMeaningWhateverComesAndGoes) {
  Positions positions;
  const uint64_t b = positions.After("b");
  const uint64_t d = positions.After("d");

  for (const char* name : {"a", "c", "d", "e"}) positions.After(name);

  EXPECT_EQ(positions.After("d"), d);
  EXPECT_EQ(positions.NameBefore(b), "b");
  EXPECT_EQ(positions.NameBefore(d), "d");
}

TEST(DirectoryPositions, AllPositionsDiffer) {
  Positions positions;
  std::set<uint64_t> seen = {Positions::kStart, Positions::kAfterDot, Positions::kAfterDotDot};
  for (int i = 0; i < 1000; ++i) seen.insert(positions.After(std::to_string(i)));
  EXPECT_EQ(seen.size(), 1003u);
}

TEST(DirectoryPositions, APositionThatWasNeverHandedOutIsNotKnown) {
  Positions positions;
  EXPECT_TRUE(positions.Knows(Positions::kAfterDotDot));
  EXPECT_FALSE(positions.Knows(3));
  EXPECT_TRUE(positions.Knows(positions.After("a")));
  EXPECT_FALSE(positions.Knows(UINT64_MAX));
}

}  // namespace
}  // namespace pinstripe
