#include "fuse/told_acls.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using std::chrono::seconds;

constexpr Time kBegin{seconds(100)};

TEST(ToldAcls, AreRememberedForAsLongAsTheKernelMayUseThem) {
  ToldAcls told;
  EXPECT_FALSE(told.MayUse(7, kBegin));
  told.Tell(7, kBegin, kBegin + seconds(2));
  EXPECT_TRUE(told.MayUse(7, kBegin));
  EXPECT_TRUE(told.MayUse(7, kBegin + seconds(2)));
  EXPECT_FALSE(told.MayUse(8, kBegin));
  EXPECT_FALSE(told.MayUse(7, kBegin + seconds(3)));
}

// What was told for longer counts, whatever was told after it.
TEST(ToldAcls, TheLongestCounts) {
  ToldAcls told;
  told.Tell(7, kBegin, kBegin + seconds(9));
  told.Tell(7, kBegin + seconds(1), kBegin + seconds(2));
  EXPECT_TRUE(told.MayUse(7, kBegin + seconds(9)));
  told.Tell(7, kBegin + seconds(9), kBegin + seconds(20));
  EXPECT_TRUE(told.MayUse(7, kBegin + seconds(20)));
}

TEST(ToldAcls, OfTooManyAllAreTakenForSuch) {
  ToldAcls told(/*most_inodes=*/10);
  for (InodeId inode = 1; inode <= 10; ++inode) {
    told.Tell(inode, kBegin, kBegin + seconds(inode));
  }
  EXPECT_FALSE(told.MayUse(99, kBegin));
  told.Tell(11, kBegin + seconds(1), kBegin + seconds(5));
  for (const InodeId inode : {1, 10, 11, 99}) EXPECT_TRUE(told.MayUse(inode, kBegin + seconds(10)));
  EXPECT_FALSE(told.MayUse(10, kBegin + seconds(11)));
}

TEST(ToldAcls, ThoseThatAreOverMakeRoom) {
  ToldAcls told(/*most_inodes=*/10);
  for (InodeId inode = 1; inode <= 100; ++inode) {
    const Time now = kBegin + seconds(inode);
    told.Tell(inode, now, now + seconds(3));
    EXPECT_TRUE(told.MayUse(inode, now));
    EXPECT_FALSE(told.MayUse(inode + 1, now));
  }
}

}  // namespace
}  // namespace pinstripe
