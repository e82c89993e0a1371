// What a listing brought is used as long as it is said to be, never when something newer is known,
// and never takes more memory than it may.

#include "fs/names/listed_inodes.h"

#include <gtest/gtest.h>

#include "fs/names/acl.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StoredInode With(const std::string& acl, uint64_t slot) {
  Inode inode;
  inode.attributes = {{std::string(kAccessAcl), acl}, {"user.a", "not kept"}};
  return {inode, slot};
}

class ListedInodesTest : public testing::Test {
 protected:
  void SetUp() override {
    listed_.Keep(seconds(1));
    sim_.Sleep(milliseconds(1));
  }

  // The value of the only attribute that is kept; "none" where the listing says nothing.
  std::string AclOf(InodeId id) {
    const auto found = listed_.Find(id);
    if (!found || found->size() != 1) return "none";
    EXPECT_EQ(found->front().first, kAccessAcl);
    return found->front().second;
  }
  void Learn(InodeId id, const std::string& acl, uint64_t slot) {
    listed_.Learn(id, With(acl, slot), sim_.Now());
  }

  SimRuntime sim_{1};
  ListedInodes listed_{sim_, 10'000};
};

TEST_F(ListedInodesTest, WhatWasListedIsKnownForItsTime) {
  Learn(7, "acl", 1);
  sim_.Sleep(milliseconds(999));
  EXPECT_EQ(AclOf(7), "acl");
  EXPECT_EQ(AclOf(8), "none");
  sim_.Sleep(milliseconds(1));
  EXPECT_EQ(AclOf(7), "none");
}

TEST_F(ListedInodesTest, OfASmallFileItIsKnownWhereItsContentsAre) {
  const BlockPlace place{.object = 7, .layout = {2, 1, kCellBytes}, .stored = 1000, .valid = 1000};
  StoredInode small = With("acl", 1);
  small.inode.size = 1000;
  small.inode.map.emplace(place.layout);
  small.inode.map->Resize(1);
  small.inode.map->Set(0, place);
  StoredInode large = small;
  large.inode.size = kCellBytes + 1;
  listed_.Learn(1, small, sim_.Now());
  listed_.Learn(2, large, sim_.Now());
  EXPECT_EQ(listed_.FindSmall(1), place);
  EXPECT_EQ(listed_.FindSmall(2), std::nullopt);
  EXPECT_EQ(listed_.FindSmall(3), std::nullopt);
  listed_.Forget(1);
  EXPECT_EQ(listed_.FindSmall(1), std::nullopt);
}

TEST_F(ListedInodesTest, ItIsKnownWhereThereIsNothing) {
  listed_.Learn(7, {Inode(), 1}, sim_.Now());
  ASSERT_TRUE(listed_.Find(7).has_value());
  EXPECT_TRUE(listed_.Find(7)->empty());
}

TEST_F(ListedInodesTest, NothingIsKeptUnlessItIsAskedFor) {
  ListedInodes unwanted(sim_);
  unwanted.Learn(7, With("acl", 1), sim_.Now());
  EXPECT_FALSE(unwanted.Find(7).has_value());
}

// A listing that was on its way may have found what was there before.
TEST_F(ListedInodesTest, WhatIsReadOrChangedByOtherMeansIsForgotten) {
  Learn(7, "acl", 1);
  const Time begun = sim_.Now();
  sim_.Sleep(milliseconds(1));
  listed_.Forget(7);
  EXPECT_EQ(AclOf(7), "none");
  listed_.Learn(7, With("acl", 1), begun);
  EXPECT_EQ(AclOf(7), "none");
  sim_.Sleep(milliseconds(1));
  Learn(7, "new", 2);
  EXPECT_EQ(AclOf(7), "new");
}

TEST_F(ListedInodesTest, TheNewerOfTwoListingsCounts) {
  const Time begun = sim_.Now();
  sim_.Sleep(milliseconds(1));
  Learn(7, "new", 2);
  listed_.Learn(7, With("old", 1), begun);
  EXPECT_EQ(AclOf(7), "new");
  sim_.Sleep(seconds(1));
  Learn(7, "lower", 1);  // drives have forgotten what was not flushed
  EXPECT_EQ(AclOf(7), "lower");
}

TEST_F(ListedInodesTest, TheOldestGoesWhenThereAreTooMany) {
  for (InodeId id = 1; id <= 1000; ++id) Learn(id, std::string(100, 'a'), 1);
  EXPECT_EQ(AclOf(1), "none");
  EXPECT_NE(AclOf(1000), "none");
  size_t known = 0;
  for (InodeId id = 1; id <= 1000; ++id) known += listed_.Find(id).has_value() ? 1 : 0;
  EXPECT_GT(known, 10u);
  EXPECT_LT(known, 100u);
}

// Once more is one more until the first has had its time.
TEST_F(ListedInodesTest, WhatIsListedAgainAndAgainTakesNoMoreThanItMay) {
  for (int i = 0; i < 1000; ++i) {
    sim_.Sleep(milliseconds(2));
    Learn(7, "acl", 1);
    EXPECT_EQ(AclOf(7), "acl");
  }
}

}  // namespace
}  // namespace pinstripe
