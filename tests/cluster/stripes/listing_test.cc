// StripeListing: all copies of all stripes, in order, whatever the drives do.

#include "cluster/stripes/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_drives.h"

namespace pinstripe {
namespace {

const std::string kPrefix = "\4test";

class StripeListingTest : public testing::Test {
 protected:
  StripeListingTest() : sim_(1), drives_(sim_, 4) {}

  void Put(DriveId drive, const std::string& key) {
    Gather<Status> gather(sim_);
    drives_.memory(drive).Put({.key = key, .value = {}, .version = {}, .tag = {}}, Time::max(),
                              gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }

  StripeListing Listing() {
    std::map<DriveId, Drive*> all;
    for (DriveId id = 1; id <= 4; ++id) all[id] = drives_.FindDrive(id);
    return {sim_, all, kPrefix, std::chrono::seconds(2)};
  }

  static std::vector<ListedStripe> All(StripeListing& listing) {
    std::vector<ListedStripe> all;
    for (auto page = listing.Next(); !page.empty(); page = listing.Next()) {
      all.insert(all.end(), page.begin(), page.end());
    }
    return all;
  }

  SimRuntime sim_;
  TestDrives drives_;
};

TEST_F(StripeListingTest, NothingIsListedOfEmptyDrives) {
  StripeListing listing = Listing();
  EXPECT_TRUE(listing.Next().empty());
  EXPECT_TRUE(listing.unlisted().empty());
}

TEST_F(StripeListingTest, CopiesOfAStripeComeTogetherAndStripesInOrder) {
  // Many more than a page, unevenly over the drives: object o has shards on drives 1 and 2 to 4.
  for (uint64_t object = 1; object <= 900; ++object) {
    Put(1, ShardKey(kPrefix, {object, object % 3, {}}, 0));
    Put(static_cast<DriveId>(2 + object * object % 3),
        ShardKey(kPrefix, {object, object % 3, {}}, 1));
  }
  Put(1, "\4tesu" + std::string("D"));  // another cluster's
  StripeListing listing = Listing();
  const auto all = All(listing);
  ASSERT_EQ(all.size(), 900u);
  for (uint64_t object = 1; object <= 900; ++object) {
    const ListedStripe& stripe = all[object - 1];
    ASSERT_EQ(stripe.id.object, object);
    EXPECT_EQ(stripe.id.block, object % 3);
    EXPECT_THAT(stripe.copies,
                testing::ElementsAre(ShardCopy{0, 1},
                                     ShardCopy{1, static_cast<DriveId>(2 + object * object % 3)}));
  }
  EXPECT_TRUE(listing.strange_keys().empty());
}

TEST_F(StripeListingTest, ADriveThatIsAwayIsToldAndTheOthersAreListed) {
  Put(1, ShardKey(kPrefix, {1, 0, {}}, 0));
  Put(2, ShardKey(kPrefix, {1, 0, {}}, 1));
  drives_.SetDown(2, true);
  StripeListing listing = Listing();
  const auto all = All(listing);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].copies, testing::ElementsAre(ShardCopy{0, 1}));
  ASSERT_TRUE(listing.unlisted().contains(2));
  EXPECT_EQ(listing.unlisted().size(), 1u);
}

TEST_F(StripeListingTest, ALostAnswerIsAskedForAgain) {
  for (uint64_t object = 1; object <= 500; ++object) Put(3, ShardKey(kPrefix, {object, 0, {}}, 0));
  drives_.faulty(3).Set({.lose_answer = 0.2});
  StripeListing listing = Listing();
  EXPECT_EQ(All(listing).size(), 500u);
}

TEST_F(StripeListingTest, KeysThatAreNoShardsAreTold) {
  Put(1, kPrefix + "D");
  Put(1, ShardKey(kPrefix, {1, 0, {}}, 0) + "x");
  StripeListing listing = Listing();
  EXPECT_TRUE(All(listing).empty());
  EXPECT_EQ(listing.strange_keys().size(), 2u);
}

TEST(ShardKeys, AreReadBack) {
  StripeId id{0x0102030405060708, 9, {}};
  id.write[3] = 7;
  const auto parsed = ParseShardKey(kPrefix, ShardKey(kPrefix, id, 5));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->first.object, id.object);
  EXPECT_EQ(parsed->first.block, 9u);
  EXPECT_EQ(parsed->first.write, id.write);
  EXPECT_EQ(parsed->second, 5);
  EXPECT_FALSE(ParseShardKey("\4tesu", ShardKey(kPrefix, id, 5)));
  EXPECT_FALSE(ParseShardKey(kPrefix, ShardKey(kPrefix, id, 5).substr(0, 20)));
}

}  // namespace
}  // namespace pinstripe
