// What was found last is there for whoever asks, until somebody has looked again.

#include "upkeep/last_look.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

constexpr LastLook kLook{.at = 1'700'000'000'000'000'000,
                         .lost = 1,
                         .lacking = 300,
                         .replicas_behind = 3,
                         .not_looked_at = 4};

// These bytes are the format.
TEST(LastLook, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(LastLookKey(LookKind::kListed))), "4301");
  EXPECT_EQ(Hex(AsBytes(LastLookKey(LookKind::kRead))), "4302");
  EXPECT_EQ(Hex(AsBytes(kLook.Encode())),
            "01"
            "17979cfe362a0000"
            "01"
            "ac02"
            "03"
            "04");
  const auto again = LastLook::Decode(kLook.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(*again, kLook);
}

const LastPlaces kPlaces{.at = 1'700'000'000'000'000'000,
                         .epoch = 7,
                         .displaced_blocks = 1,
                         .unused_shards = 300,
                         .unused_bytes = 4,
                         .stripes = {{1, 2}, {4, 2}}};

TEST(LastPlaces, TheirBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(LastLookKey(LookKind::kPlaces))), "4303");
  EXPECT_EQ(Hex(AsBytes(kPlaces.Encode())),
            "01"
            "17979cfe362a0000"
            "00000007"
            "01"
            "ac02"
            "04"
            "02"
            "0102"
            "0402");
  const auto again = LastPlaces::Decode(kPlaces.Encode());
  ASSERT_OK(again);
  EXPECT_EQ(*again, kPlaces);
  const std::string good = kPlaces.Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(LastPlaces::Decode(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(LastPlaces::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(LastPlaces::Decode("\x02" + good.substr(1)), EBADMSG);
  const std::string none = good.substr(0, good.size() - 2) + std::string("\0\2", 2);
  EXPECT_FAILS(LastPlaces::Decode(none), EBADMSG);
  EXPECT_FAILS(LastPlaces::Decode(good.substr(0, good.size() - 1) + "\x40"), EBADMSG);
}

TEST(LastLook, AnythingElseIsDamage) {
  const std::string good = kLook.Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(LastLook::Decode(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(LastLook::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(LastLook::Decode("\x02" + good.substr(1)), EBADMSG);
}

TEST(LastLook, TheLastOneOfItsKindCounts) {
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  EXPECT_FALSE(FindLastLook(**cluster, LookKind::kListed).has_value());
  ASSERT_OK(NoteLastLook(**cluster, LookKind::kListed, kLook));
  EXPECT_EQ(FindLastLook(**cluster, LookKind::kListed), kLook);
  EXPECT_FALSE(FindLastLook(**cluster, LookKind::kRead).has_value());
  ASSERT_OK(NoteLastLook(**cluster, LookKind::kRead, kLook));
  ASSERT_OK(NoteLastLook(**cluster, LookKind::kListed, {.at = 5}));
  const auto other = machines.Open();
  EXPECT_EQ(FindLastLook(**other, LookKind::kListed), LastLook{.at = 5});
  EXPECT_EQ(FindLastLook(**other, LookKind::kRead), kLook);
  EXPECT_FALSE(FindLastPlaces(**other).has_value());
  ASSERT_OK(NoteLastPlaces(**other, kPlaces));
  EXPECT_EQ(FindLastPlaces(**cluster), kPlaces);
  EXPECT_TRUE(LastLook{.at = 5}.AllIsWell());
  EXPECT_FALSE(kLook.AllIsWell());
}

}  // namespace
}  // namespace pinstripe
