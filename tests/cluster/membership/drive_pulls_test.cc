#include "cluster/membership/drive_pulls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/map/placement.h"
#include "cluster/membership/epoch_change.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

DriveMap MapOf(const std::vector<uint32_t>& weights, uint32_t groups) {
  DriveMap map;
  map.epoch = 1;
  map.groups = groups;
  map.replicas = 1;
  for (const uint32_t weight : weights) {
    map.drives.push_back({static_cast<DriveId>(map.drives.size() + 1), weight});
  }
  return map;
}

// What each drive gets of all stripes of `n` shards, against its part by its weight.
std::map<DriveId, double> FillOf(Placement& placement, size_t n, size_t per_domain) {
  const DriveMap& map = placement.map();
  double weights = 0;
  for (const MappedDrive& drive : map.drives) weights += drive.weight;
  std::map<DriveId, double> fill;
  for (const MappedDrive& drive : map.drives) {
    double pieces = 0;
    for (uint32_t group = 0; group < map.groups; ++group) {
      const std::vector<DriveId>& order = placement.Order(group, n, per_domain);
      pieces += std::find(order.begin(), order.begin() + static_cast<ptrdiff_t>(n), drive.id) !=
                order.begin() + static_cast<ptrdiff_t>(n);
    }
    fill[drive.id] = pieces / (map.groups * static_cast<double>(n) * drive.weight / weights);
  }
  return fill;
}

void ExpectFill(Placement& placement, size_t n, size_t per_domain, double least, double most) {
  for (const auto& [id, fill] : FillOf(placement, n, per_domain)) {
    EXPECT_GE(fill, least) << "drive " << id;
    EXPECT_LE(fill, most) << "drive " << id;
  }
}

// 36 drives of three sizes.
std::vector<uint32_t> ThreeSizes() {
  std::vector<uint32_t> weights;
  for (int i = 0; i < 36; ++i) weights.push_back(4000u << (i % 3));
  return weights;
}

TEST(DrivePulls, DrivesOfAllSizesFillAtOneRate) {
  for (const size_t n : {6u, 12u}) {
    DriveMap map = MapOf(ThreeSizes(), 4096);
    Placement as_they_weigh(map);
    const auto too_full = [](const auto& one) { return one.second > 1.1; };
    EXPECT_TRUE(std::ranges::any_of(FillOf(as_they_weigh, n, 2), too_full));
    BalanceDrives(map, n, 2);
    Placement balanced(map);
    ExpectFill(balanced, n, 2, 0.99, 1.01);
  }
}

TEST(DrivePulls, LuckIsMadeUpForAmongEqualDrives) {
  DriveMap map = MapOf(std::vector<uint32_t>(37, 1), 8192);
  BalanceDrives(map, 6, 2);
  Placement balanced(map);
  ExpectFill(balanced, 6, 2, 0.99, 1.01);
}

TEST(DrivePulls, DomainsAreKeptApart) {
  DriveMap map = MapOf(ThreeSizes(), 4096);
  for (MappedDrive& drive : map.drives) drive.domain = fmt::format("host {}", drive.id / 3);
  BalanceDrives(map, 12, 2);
  Placement balanced(map);
  ExpectFill(balanced, 12, 2, 0.99, 1.01);
}

// One in each stripe is the most that there is; the others share the rest by their weights.
TEST(DrivePulls, NobodyGetsMoreThanOneShardOfEachStripe) {
  DriveMap map = MapOf({1000, 1, 1, 1, 1, 2}, 512);
  BalanceDrives(map, 3, 1);
  std::map<DriveId, double> pieces;
  for (uint32_t group = 0; group < map.groups; ++group) {
    const std::vector<DriveId> order = OrderDrives(map, group, 3, 1);
    for (size_t i = 0; i < 3; ++i) ++pieces[order[i]];
  }
  EXPECT_GE(pieces[1], 500);
  for (DriveId id = 2; id <= 5; ++id) EXPECT_NEAR(pieces[id], 512 / 3.0, 10);
  EXPECT_NEAR(pieces[6], 2 * 512 / 3.0, 20);
}

// Of three hosts each has two of six shards, whatever it weighs. The new drives of one host come
// first, when it weighs far more than it may have: they are to have their part of that, and not of
// all.
TEST(DrivePulls, HostsThatGrowOneAfterTheOtherFillEvenlyInTheEnd) {
  DriveMap map = MapOf(std::vector<uint32_t>(12, 1000), 512);
  for (MappedDrive& drive : map.drives) drive.domain = fmt::format("host {}", (drive.id - 1) / 4);
  BalanceDrives(map, 6, 2);
  auto placement = std::make_shared<Placement>(map);
  for (DriveId id = 13; id <= 24; ++id) {
    const auto next = NextEpoch(
        placement->map(),
        {.id = id, .weight = 1000, .domain = fmt::format("host {}", (id - 13) / 4)}, {4, 2});
    ASSERT_OK(next);
    placement = std::make_shared<Placement>(*next, placement);
  }
  ExpectFill(*placement, 6, 2, 0.85, 1.15);
}

// A host that is larger than it can use does not pull the more for that: stripes of other widths
// and hosts that come later would suffer from it.
TEST(DrivePulls, AHostThatCannotHaveItsPartDoesNotPullForIt) {
  DriveMap map = MapOf(std::vector<uint32_t>(13, 1000), 4096);
  for (MappedDrive& drive : map.drives) {
    drive.domain = drive.id <= 5 ? "large" : fmt::format("host {}", (drive.id - 6) / 4);
  }
  BalanceDrives(map, 6, 2);
  Placement three(map);
  ExpectFill(three, 3, 2, 0.9, 1.1);
  auto placement = std::make_shared<Placement>(map);
  for (DriveId id = 14; id <= 25; ++id) {
    const auto next = NextEpoch(
        placement->map(),
        {.id = id, .weight = 1000, .domain = fmt::format("late {}", (id - 14) / 4)}, {4, 2});
    ASSERT_OK(next);
    placement = std::make_shared<Placement>(*next, placement);
  }
  ExpectFill(*placement, 6, 2, 0.8, 1.1);
}

// What moves is what the new drive takes, and the drives fill as evenly as before.
TEST(DrivePulls, GrowthKeepsThemEven) {
  DriveMap map = MapOf(ThreeSizes(), 8192);
  BalanceDrives(map, 12, 2);
  auto before = std::make_shared<Placement>(map);
  const MappedDrive newcomer{37, 16000};
  const auto next = NextEpoch(map, newcomer, {10, 2});
  ASSERT_OK(next);
  EXPECT_NE(next->drives.back().pull, 0u);
  Placement after(*next, before);
  ExpectFill(after, 12, 2, 0.95, 1.05);
  size_t moved = 0;
  size_t held = 0;
  for (uint32_t group = 0; group < map.groups; ++group) {
    for (size_t i = 0; i < 12; ++i) {
      const DriveId home = after.Order(group, 12, 2)[i];
      held += home == 37;
      moved += home != before->Order(group, 12, 2)[i];
    }
  }
  EXPECT_LE(static_cast<double>(moved), 1.05 * static_cast<double>(held));
}

TEST(DrivePulls, ADriveThatComesBackPullsAsBefore) {
  DriveMap map = MapOf(ThreeSizes(), 512);
  BalanceDrives(map, 6, 2);
  MappedDrive drive = map.drives[4];
  drive.state = DriveState::kDraining;
  const auto drained = NextEpoch(map, drive, {4, 2});
  ASSERT_OK(drained);
  drive.state = DriveState::kActive;
  drive.pull = 0;  // as from the configuration
  const auto back = NextEpoch(*drained, drive, {4, 2});
  ASSERT_OK(back);
  EXPECT_EQ(back->drives, map.drives);
  drive.weight *= 2;
  EXPECT_GT(NextEpoch(*drained, drive, {4, 2})->drives[4].pull, map.drives[4].pull * 3 / 2);
}

// A map that was made before there were pulls: the first drive that comes changes nothing between
// the others.
TEST(DrivePulls, AMapWithoutThemTakesADriveIn) {
  const DriveMap map = MapOf(ThreeSizes(), 512);
  const auto next = NextEpoch(map, {37, 8000}, {4, 2});
  ASSERT_OK(next);
  for (uint32_t group = 0; group < map.groups; ++group) {
    std::vector<DriveId> order = OrderDrives(*next, group, 6, 2);
    std::erase(order, 37);
    EXPECT_EQ(order, OrderDrives(map, group, 6, 2));
  }
}

TEST(DrivePulls, VeryManyDrivesPullAsTheyWeigh) {
  DriveMap map = MapOf(std::vector<uint32_t>(300, 7), kMaxGroups);
  const DriveMap before = map;
  BalanceDrives(map, 12, 2);
  EXPECT_EQ(map, before);
}

}  // namespace
}  // namespace pinstripe
