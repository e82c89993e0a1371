#include "fuse/listed_names.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using std::chrono::seconds;

constexpr Time kNow{seconds(100)};

ListedNames::Name NameAt(uint64_t position, Time listed_at = kNow, uint64_t changes = 5) {
  return {.name = std::to_string(position),
          .inode = position,
          .previous = position - 1,
          .listed_at = listed_at,
          .changes = changes};
}

std::string After(const ListedNames& listed, uint64_t position, size_t most = 100,
                  Time since = kNow - seconds(1), uint64_t changes = 5) {
  std::string text;
  for (const ListedNames::Name& name : listed.After(position, most, since, changes)) {
    text += name.name + " ";
  }
  return text;
}

TEST(ListedNames, AreToldFromAnyPositionOn) {
  ListedNames listed;
  EXPECT_EQ(After(listed, 2), "");
  for (uint64_t position = 3; position < 8; ++position) listed.Add(position, NameAt(position));
  EXPECT_EQ(After(listed, 2), "3 4 5 6 7 ");
  EXPECT_EQ(After(listed, 5), "6 7 ");
  EXPECT_EQ(After(listed, 4, 2), "5 6 ");
  EXPECT_EQ(After(listed, 7), "") << "whether there is more only the drives know";
  EXPECT_EQ(After(listed, 1), "");
  EXPECT_EQ(After(listed, UINT64_MAX - 1), "");
  listed.Clear();
  EXPECT_EQ(After(listed, 5), "");
}

TEST(ListedNames, AreNotToldWhenTheyAreOldOrNamesHaveChanged) {
  ListedNames listed;
  listed.Add(3, NameAt(3));
  listed.Add(4, NameAt(4, kNow - seconds(1)));
  listed.Add(5, NameAt(5, kNow, 4));
  listed.Add(6, NameAt(6));
  EXPECT_EQ(After(listed, 2), "3 ");
  EXPECT_EQ(After(listed, 4), "");
  EXPECT_EQ(After(listed, 5), "6 ");
  EXPECT_EQ(After(listed, 2, 100, kNow), "");
  EXPECT_EQ(After(listed, 2, 100, kNow - seconds(1), 6), "");
  listed.Add(4, NameAt(4));  // listed once more
  EXPECT_EQ(After(listed, 2), "3 4 ");
}

// A name that has appeared in between gets a position behind all others, and those that follow it
// new ones.
TEST(ListedNames, NoListingGoesOverIntoAnother) {
  ListedNames listed;
  for (uint64_t position = 3; position < 6; ++position) listed.Add(position, NameAt(position));
  ListedNames::Name appeared = NameAt(6);
  appeared.previous = 3;
  listed.Add(6, appeared);
  listed.Add(7, NameAt(7));
  EXPECT_EQ(After(listed, 4), "5 ");
  EXPECT_EQ(After(listed, 5), "");
  EXPECT_EQ(After(listed, 6), "7 ");
}

TEST(ListedNames, OfALargeDirectoryTheLastOnesAreKept) {
  ListedNames listed(/*most_names=*/3);
  for (uint64_t position = 3; position < 9; ++position) listed.Add(position, NameAt(position));
  EXPECT_EQ(After(listed, 5), "6 7 8 ");
  EXPECT_EQ(After(listed, 4), "");
  listed.Add(20, NameAt(20));  // a program went somewhere else
  EXPECT_EQ(After(listed, 5), "");
  EXPECT_EQ(After(listed, 19), "20 ");
}

}  // namespace
}  // namespace pinstripe
