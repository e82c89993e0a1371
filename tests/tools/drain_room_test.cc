#include "tools/drain_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;

// Five drives of 100 GB that are a half full; the last one weighs twice as much as the others.
struct Drives {
  Drives() {
    for (DriveId id = 1; id <= 5; ++id) {
      map.drives.push_back({.id = id, .weight = id == 5 ? 200u : 100u});
      drives.push_back({.id = id,
                        .address = "",
                        .domain = "",
                        .info = DriveInfo{.capacity_bytes = 100 * kGigabyte, .portion_full = 0.5}});
    }
  }
  void Fill(DriveId id, double portion) { drives[id - 1u].info->portion_full = portion; }
  void Lose(DriveId id) { drives[id - 1u].info = tl::unexpected(Status(EHOSTUNREACH, "gone")); }

  DriveMap map;
  std::vector<DriveStatus> drives;
};

TEST(DrainRoom, IsWhatTheOthersHaveFree) {
  const Drives cluster;
  const DrainRoom room = RoomWithout(cluster.map, cluster.drives, {1, 2});
  EXPECT_EQ(room.held_bytes, 100 * kGigabyte);
  EXPECT_EQ(room.free_bytes, 150 * kGigabyte);
  EXPECT_OK(CheckRoomWithout(cluster.map, cluster.drives, {1, 2}));
  const Status status = CheckRoomWithout(cluster.map, cluster.drives, {1, 2, 3});
  EXPECT_EQ(status.code(), ENOSPC);
  EXPECT_EQ(status.message(),
            "what is to be moved (150.0 GB) does not fit on the drives that are left, which have "
            "100.0 GB free: add drives first. Nothing was changed");
}

TEST(DrainRoom, WhatADrainHasNotMovedYetHasToFitToo) {
  Drives cluster;
  cluster.map.drives[1].state = DriveState::kDraining;
  cluster.Fill(2, 0.9);
  const DrainRoom room = RoomWithout(cluster.map, cluster.drives, {1});
  EXPECT_EQ(room.held_bytes, 140 * kGigabyte);
  EXPECT_EQ(room.free_bytes, 150 * kGigabyte);
  EXPECT_FAILS(CheckRoomWithout(cluster.map, cluster.drives, {1, 3}), ENOSPC);
}

TEST(DrainRoom, WhatALostDriveHeldIsGuessedByItsWeight) {
  Drives cluster;
  cluster.Lose(5);
  const DrainRoom room = RoomWithout(cluster.map, cluster.drives, {5});
  EXPECT_EQ(room.held_bytes, 100 * kGigabyte);
  EXPECT_EQ(room.free_bytes, 200 * kGigabyte);
  // One that is away and stays takes nothing now.
  EXPECT_EQ(RoomWithout(cluster.map, cluster.drives, {1}).free_bytes, 150 * kGigabyte);
}

TEST(DrainRoom, IsNotOnADriveThatTakesNoChanges) {
  Drives cluster;
  cluster.drives[2].info->failure = "its disk is broken";
  EXPECT_EQ(RoomWithout(cluster.map, cluster.drives, {1}).free_bytes, 150 * kGigabyte);
  // What it has is to be moved all the same.
  EXPECT_EQ(RoomWithout(cluster.map, cluster.drives, {3}).held_bytes, 50 * kGigabyte);
}

TEST(DrainRoom, NoDriveAtAllIsNoRoomAndNothingToMove) {
  Drives cluster;
  for (DriveId id = 1; id <= 5; ++id) cluster.Lose(id);
  EXPECT_OK(CheckRoomWithout(cluster.map, cluster.drives, {1}));
}

}  // namespace
}  // namespace pinstripe
