#include "cluster/map/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "tests/support/gen.h"

namespace pinstripe {
namespace {

DriveMap MapOf(size_t drives, uint32_t groups = 512) {
  DriveMap map;
  map.epoch = 1;
  map.groups = groups;
  map.replicas = 1;
  for (size_t i = 1; i <= drives; ++i) {
    map.drives.push_back({static_cast<DriveId>(i), 100, "", DriveState::kActive});
  }
  return map;
}

using Ids = std::vector<DriveId>;

// These numbers are the format, computed once by another program from docs/format.md. If this test
// fails, shards written yesterday are looked for on the wrong drives today.
TEST(Placement, ItsChoicesNeverChange) {
  EXPECT_EQ(MixBits(0), 0u);
  EXPECT_EQ(MixBits(1), 0x5692161d100b05e5u);
  EXPECT_EQ(MixBits(UINT64_MAX), 0xb4d055fcf2cbbd7bu);

  const DriveMap equal = MapOf(8);
  EXPECT_EQ(OrderDrives(equal, 0, 6, 2), (Ids{8, 6, 2, 3, 7, 4, 5, 1}));
  EXPECT_EQ(OrderDrives(equal, 1, 6, 2), (Ids{7, 5, 3, 1, 6, 4, 2, 8}));
  EXPECT_EQ(OrderDrives(equal, 511, 6, 2), (Ids{8, 2, 6, 7, 3, 1, 4, 5}));
  EXPECT_EQ(OrderDrives(equal, UINT32_MAX, 6, 2), (Ids{3, 4, 5, 6, 8, 1, 2, 7}));

  DriveMap weighted = MapOf(8);
  for (MappedDrive& drive : weighted.drives) drive.weight = 100u * drive.id;
  EXPECT_EQ(OrderDrives(weighted, 0, 6, 2), (Ids{8, 6, 2, 7, 5, 3, 4, 1}));
  EXPECT_EQ(OrderDrives(weighted, 1, 6, 2), (Ids{7, 5, 3, 6, 8, 4, 2, 1}));
  EXPECT_EQ(OrderDrives(weighted, 2, 6, 2), (Ids{7, 3, 5, 6, 8, 2, 4, 1}));
  EXPECT_EQ(OrderDrives(weighted, UINT32_MAX, 6, 2), (Ids{3, 6, 8, 5, 4, 7, 2, 1}));

  EXPECT_EQ(GroupOfRegisters(equal, 1), 485u);
  EXPECT_EQ(GroupOfRegisters(equal, 0xdeadbeef), 234u);
  EXPECT_EQ(GroupOfStripe(equal, 1, 0), 19u);
  EXPECT_EQ(GroupOfStripe(equal, 1, 5), 24u);
  EXPECT_EQ(GroupOfStripe(equal, 0xdeadbeef, 1), 369u);

  EXPECT_EQ(UnmixBits(1), 0x966dbfc16913c5d2u);
  EXPECT_EQ(UnmixBits(UINT64_MAX), 0xcf9a04affa6badc0u);
  EXPECT_EQ(ObjectInGroup(equal, 485, 512 * 7 + 3), 0xeefaf747a71b1249u);
}

// Each bit alone, all but one, and many others.
TEST(Placement, MixingCanBeUndone) {
  for (uint64_t i = 0; i < 10'000; ++i) {
    for (const uint64_t number :
         {i, uint64_t{1} << i % 64, ~(uint64_t{1} << i % 64), i * 0x9e3779b97f4a7c15u}) {
      EXPECT_EQ(UnmixBits(MixBits(number)), number);
      EXPECT_EQ(MixBits(UnmixBits(number)), number);
    }
  }
}

// Objects whose registers are together: 44 bits and more tell them apart, and their stripes are
// everywhere. The bound is five standard deviations.
TEST(Placement, ObjectsOfOneGroupHaveTheirStripesEverywhere) {
  constexpr uint32_t kGroups = 64;
  constexpr uint64_t kObjects = 64'000;
  const DriveMap map = MapOf(8, kGroups);
  std::map<uint32_t, uint64_t> stripes;
  std::set<uint64_t> objects;
  for (uint64_t i = 0; i < kObjects; ++i) {
    const uint64_t object = ObjectInGroup(map, 17, MixBits(i));
    EXPECT_EQ(GroupOfRegisters(map, object), 17u);
    objects.insert(object);
    ++stripes[GroupOfStripe(map, object, 0)];
  }
  EXPECT_EQ(objects.size(), kObjects);
  EXPECT_EQ(stripes.size(), kGroups);
  for (const auto& [group, count] : stripes) {
    EXPECT_NEAR(static_cast<double>(count), kObjects / kGroups, 5 * std::sqrt(1000)) << group;
  }
}

TEST(Placement, ConsecutiveBlocksVisitEveryGroupInTurn) {
  const DriveMap map = MapOf(8, 64);
  std::set<uint32_t> seen;
  for (uint64_t block = 0; block < 64; ++block)
    seen.insert(GroupOfStripe(map, 0x1234567890, block));
  EXPECT_EQ(seen.size(), 64u);
}

// How often each drive is the first of a group, against what its weight entitles it to. The bound
// is five standard deviations, so a sound hash never meets it and a biased one always does.
TEST(Placement, DrivesWinGroupsInProportionToTheirWeight) {
  constexpr uint32_t kGroups = 1 << 15;
  DriveMap map = MapOf(12, kGroups);
  for (MappedDrive& drive : map.drives) drive.weight = drive.id <= 6 ? 1000 : 4000;
  const double total = 6 * 1000 + 6 * 4000;

  std::map<DriveId, uint32_t> wins;
  for (uint32_t group = 0; group < kGroups; ++group) ++wins[OrderDrives(map, group, 1, 1).front()];
  for (const MappedDrive& drive : map.drives) {
    const double share = drive.weight / total;
    const double deviation = std::sqrt(kGroups * share * (1 - share));
    EXPECT_NEAR(wins[drive.id], kGroups * share, 5 * deviation) << "drive " << drive.id;
  }
}

// All 12 shards of a 10+2 stripe: with equal weights each of 36 drives gets a third of the groups.
TEST(Placement, ShardsSpreadEvenly) {
  constexpr uint32_t kGroups = 1 << 13;
  const DriveMap map = MapOf(36, kGroups);
  std::map<DriveId, uint32_t> shards;
  for (uint32_t group = 0; group < kGroups; ++group) {
    const Ids order = OrderDrives(map, group, 12, 2);
    for (size_t i = 0; i < 12; ++i) ++shards[order[i]];
  }
  const double share = 12.0 / 36;
  for (const MappedDrive& drive : map.drives) {
    EXPECT_NEAR(shards[drive.id], kGroups * share, 5 * std::sqrt(kGroups * share * (1 - share)));
  }
}

// Small clusters keep their few groups; in the others no drive gets more than a twentieth above or
// below its part, but for the luck of one in fifty.
TEST(Placement, EnoughGroupsFillDrivesEvenly) {
  EXPECT_EQ(EnoughGroups(6, 6), 512u);
  EXPECT_EQ(EnoughGroups(8, 6), 512u);
  EXPECT_EQ(EnoughGroups(4, 36), 512u);
  EXPECT_EQ(EnoughGroups(36, 12), 4096u);
  EXPECT_EQ(EnoughGroups(100, 6), 32768u);
  EXPECT_EQ(EnoughGroups(65535, 2), kMaxGroups);
  for (const auto& [drives, shards] :
       {std::pair<size_t, size_t>{8, 6}, {14, 12}, {36, 12}, {37, 6}}) {
    const DriveMap map = MapOf(drives, EnoughGroups(drives, shards));
    std::map<DriveId, double> held;
    for (uint32_t group = 0; group < map.groups; ++group) {
      const Ids order = OrderDrives(map, group, shards, 2);
      for (size_t i = 0; i < shards; ++i)
        held[order[i]] += static_cast<double>(drives) / (map.groups * static_cast<double>(shards));
    }
    int far = 0;
    for (const auto& [id, fill] : held) {
      if (std::abs(fill - 1) > 0.05) ++far;
      EXPECT_NEAR(fill, 1, 0.08) << drives << " drives, " << shards << " shards, drive " << id;
    }
    EXPECT_LE(far, 2) << drives << " drives, " << shards << " shards";
  }
}

// The ancestor's ring moved 97 % of the shards when it grew from 36 to 37 drives.
TEST(Placement, GrowingFrom36To37MovesAThirtySeventhAndOnlyToTheNewDrive) {
  constexpr uint32_t kGroups = 1 << 13;
  const DriveMap before = MapOf(36, kGroups);
  const DriveMap after = MapOf(37, kGroups);
  size_t moved = 0;
  for (uint32_t group = 0; group < kGroups; ++group) {
    const Ids old_order = OrderDrives(before, group, 12, 2);
    const Ids new_order = OrderDrives(after, group, 12, 2);
    const std::set<DriveId> old_homes(old_order.begin(), old_order.begin() + 12);
    for (size_t i = 0; i < 12; ++i) {
      if (old_homes.contains(new_order[i])) continue;
      EXPECT_EQ(new_order[i], 37);
      ++moved;
    }
  }
  EXPECT_NEAR(static_cast<double>(moved) / (kGroups * 12), 1.0 / 37, 0.003);
}

TEST(Placement, WithoutTheOthersOneDrivesPlaceInTheListStays) {
  const DriveMap map = MapOf(8);
  DriveMap smaller = map;
  std::erase_if(smaller.drives, [](const MappedDrive& drive) { return drive.id == 5; });
  for (uint32_t group = 0; group < 512; ++group) {
    Ids expected = OrderDrives(map, group, 6, 2);
    std::erase(expected, 5);
    EXPECT_EQ(OrderDrives(smaller, group, 6, 2), expected);
  }
}

TEST(Placement, DrainingDrivesComeLast) {
  DriveMap map = MapOf(8);
  map.drives[2].state = DriveState::kDraining;
  map.drives[5].state = DriveState::kDraining;
  for (uint32_t group = 0; group < 512; ++group) {
    const Ids order = OrderDrives(map, group, 6, 2);
    EXPECT_EQ(std::set<DriveId>(order.begin() + 6, order.end()), (std::set<DriveId>{3, 6}));
  }
}

// Goal: the rule about failure domains, on every map small enough to try. Method: all assignments
// of five drives to up to three domains or none, all sizes of the rule.
TEST(Placement, DomainsGiveNoMoreThanTheyMayWhereThatIsPossible) {
  Gen gen;
  while (gen.Next()) {
    DriveMap map = MapOf(5, 1);
    std::map<std::string, size_t> members;
    for (MappedDrive& drive : map.drives) {
      const int domain = gen.UpTo(3);
      if (domain > 0) drive.domain = std::string(1, static_cast<char>('a' + domain - 1));
      ++members[drive.domain];
    }
    const size_t needed = 1 + static_cast<size_t>(gen.UpTo(4));
    const size_t per_domain = static_cast<size_t>(gen.UpTo(3));
    const Ids order = OrderDrives(map, 0, needed, per_domain);
    ASSERT_EQ(std::set<DriveId>(order.begin(), order.end()).size(), 5u);

    size_t possible = 0;  // homes that obey the rule
    for (const auto& [domain, count] : members) {
      possible += domain.empty() ? (per_domain > 0 ? count : 0) : std::min(count, per_domain);
    }
    std::map<std::string, size_t> given;
    for (size_t i = 0; i < std::min(needed, possible); ++i) {
      const std::string& domain = map.drives[order[i] - 1u].domain;
      if (domain.empty()) continue;
      ASSERT_LE(++given[domain], per_domain);
    }
    // The spares, and homes that break the rule, keep the order of the plain list.
    const Ids plain = OrderDrives(map, 0, 0, 0);
    const auto rank = [&](DriveId id) { return std::find(plain.begin(), plain.end(), id); };
    for (size_t i = std::min(needed, possible); i + 1 < order.size(); ++i) {
      ASSERT_LT(rank(order[i]), rank(order[i + 1]));
    }
  }
}

TEST(Placement, RemembersWhatItComputed) {
  Placement placement(MapOf(8));
  const Ids& order = placement.Order(17, 6, 2);
  EXPECT_EQ(order, OrderDrives(placement.map(), 17, 6, 2));
  EXPECT_EQ(&placement.Order(17, 6, 2), &order);
  EXPECT_NE(&placement.Order(18, 6, 2), &order);
}

// ---- From one epoch to the next

// 36 drives of three sizes and one more: what moves is what the new one holds in the end, and it
// goes nowhere else.
TEST(PlacementOverEpochs, GrowthMovesWhatTheNewDriveTakesAndNothingElse) {
  DriveMap map;
  map.epoch = 1;
  map.groups = 4096;
  map.replicas = 5;
  for (DriveId id = 1; id <= 36; ++id) {
    map.drives.push_back({id, 4000u << (id % 3), fmt::format("host {}", id % 12)});
  }
  const auto before = std::make_shared<Placement>(map);
  ++map.epoch;
  map.drives.push_back({37, 16000, "host 12"});
  Placement after(map, before);
  for (const auto& [n, m] : {std::pair<size_t, size_t>{6, 2}, {12, 2}, {36, 4}, {5, 2}}) {
    size_t moved = 0;
    size_t held = 0;
    for (uint32_t group = 0; group < map.groups; ++group) {
      const auto& old_homes = before->Order(group, n, m);
      const auto& new_homes = after.Order(group, n, m);
      for (size_t i = 0; i < n; ++i) {
        held += new_homes[i] == 37;
        moved += new_homes[i] != old_homes[i];
      }
      ASSERT_EQ(std::set<DriveId>(new_homes.begin(), new_homes.end()).size(), 37u);
    }
    EXPECT_GT(held, 0u);
    EXPECT_LE(static_cast<double>(moved), 1.05 * static_cast<double>(held)) << n;
  }
}

TEST(PlacementOverEpochs, WhoStaysKeepsItsPlaceThroughManyChanges) {
  DriveMap map;
  map.epoch = 1;
  map.groups = 64;
  map.replicas = 3;
  for (DriveId id = 1; id <= 9; ++id) map.drives.push_back({id, 100});
  auto before = std::make_shared<Placement>(map);
  for (int change = 0; change < 30; ++change) {
    MappedDrive& drive = map.drives[static_cast<size_t>(change * 5 % 9)];
    drive.state = drive.state == DriveState::kActive ? DriveState::kDraining : DriveState::kActive;
    drive.weight = 50 + static_cast<uint32_t>(change * 37 % 100);
    ++map.epoch;
    const auto after = std::make_shared<Placement>(map, before);
    for (uint32_t group = 0; group < map.groups; ++group) {
      const auto& old_homes = before->Order(group, 6, 2);
      const auto& new_homes = after->Order(group, 6, 2);
      size_t different = 0;
      for (size_t i = 0; i < 6; ++i) different += new_homes[i] != old_homes[i];
      EXPECT_LE(different, 1u) << change << " " << group;
      std::vector<DriveId> chosen = OrderDrives(map, group, 6, 2);
      chosen.resize(6);
      EXPECT_TRUE(std::is_permutation(chosen.begin(), chosen.end(), new_homes.begin()));
    }
    before = after;
  }
}

// A stripe beside the registers of its object stays there, shard i on the drive of replica i.
TEST(PlacementOverEpochs, StripesBesideRegistersGoWhereTheseGo) {
  for (const uint8_t replicas : {3, 5, 7}) {
    DriveMap map;
    map.epoch = 1;
    map.groups = 64;
    map.replicas = replicas;
    for (DriveId id = 1; id <= 12; ++id) {
      map.drives.push_back({.id = id, .weight = 100, .domain = fmt::format("h{}", id % 5)});
    }
    std::shared_ptr<Placement> placement;
    for (int change = 0; change < 20; ++change) {
      placement = std::make_shared<Placement>(map, placement);
      for (uint64_t i = 0; i < 200; ++i) {
        const uint64_t object = MixBits(i);
        const uint32_t group = GroupOfRegisters(map, object);
        const uint64_t block = BlockAmongRegisters(map, object);
        EXPECT_LT(block, map.groups);
        EXPECT_EQ(GroupOfStripe(map, object, block), group);
        EXPECT_EQ(GroupOfStripe(map, object, (uint64_t{1} << 62) + block), group);
        const size_t parity = (replicas - 1) / 2;
        std::vector<DriveId> homes = placement->Order(group, replicas, parity);
        homes.resize(replicas);
        EXPECT_EQ(homes, placement->RegisterHomes(group));
      }
      MappedDrive& drive = map.drives[static_cast<size_t>(change * 5 % 12)];
      drive.state =
          drive.state == DriveState::kActive ? DriveState::kDraining : DriveState::kActive;
      ++map.epoch;
    }
  }
}

// As many maps as that, each of other drives than the one before.
std::vector<DriveMap> Changes(size_t count) {
  std::vector<DriveMap> maps{MapOf(9, 64)};
  while (maps.size() < count) {
    DriveMap next = maps.back();
    MappedDrive& drive = next.drives[next.epoch * 5 % next.drives.size()];
    drive.state = drive.state == DriveState::kActive ? DriveState::kDraining : DriveState::kActive;
    drive.weight = 50 + next.epoch * 37 % 100;
    if (next.epoch % 4 == 0) {
      next.drives.push_back({static_cast<DriveId>(next.drives.back().id + 3), 80, "new"});
    }
    ++next.epoch;
    maps.push_back(std::move(next));
  }
  return maps;
}

std::vector<std::shared_ptr<Placement>> PlacementsOf(const std::vector<DriveMap>& maps) {
  std::vector<std::shared_ptr<Placement>> placements;
  for (const DriveMap& map : maps) {
    placements.push_back(
        std::make_shared<Placement>(map, placements.empty() ? nullptr : placements.back()));
  }
  return placements;
}

// Whichever epoch is asked first, and whatever is remembered by then.
TEST(PlacementOverEpochs, EachIsWhatTheOneBeforeAndItsOwnOrderMake) {
  const std::vector<DriveMap> maps = Changes(40);
  const auto forwards = PlacementsOf(maps);
  const auto backwards = PlacementsOf(maps);
  const auto jumping = PlacementsOf(maps);
  for (uint32_t group = 0; group < 64; ++group) {
    std::vector<Ids> expected{OrderDrives(maps[0], group, 6, 2)};
    for (size_t i = 1; i < maps.size(); ++i) {
      expected.push_back(KeepPlaces(expected.back(), OrderDrives(maps[i], group, 6, 2), 6));
    }
    for (size_t i = 0; i < maps.size(); ++i) {
      ASSERT_EQ(forwards[i]->Order(group, 6, 2), expected[i]) << group << " " << i;
      const size_t back = maps.size() - 1 - i;
      ASSERT_EQ(backwards[back]->Order(group, 6, 2), expected[back]) << group << " " << back;
      const size_t far = (group + 17 * i) % maps.size();
      ASSERT_EQ(jumping[far]->Order(group, 6, 2), expected[far]) << group << " " << far;
    }
  }
}

// A process asks for all groups of the newest epoch, and a cluster may have had hundreds.
TEST(PlacementOverEpochs, OneThatNobodyAskedRemembersNothing) {
  const auto placements = PlacementsOf(Changes(40));
  for (uint32_t group = 0; group < 64; ++group) placements.back()->Order(group, 6, 2);
  EXPECT_EQ(placements.back()->Remembered(), 64u);
  placements[20]->Order(7, 6, 2);
  for (size_t i = 0; i + 1 < placements.size(); ++i) {
    EXPECT_EQ(placements[i]->Remembered(), i == 20 ? 1u : 0u) << i;
  }
}

// That is why no epoch is ever forgotten, whatever blocks name: those after it would mean something
// else. Here a drive is drained, another one too, and the first is taken back.
TEST(PlacementOverEpochs, WithoutTheOnesBeforeTheNewestNamesOtherHomes) {
  std::vector<DriveMap> maps(4, MapOf(9, 64));
  for (Epoch i = 0; i < 4; ++i) maps[i].epoch = i + 1;
  for (const size_t i : {1u, 2u}) maps[i].drives[3].state = DriveState::kDraining;
  for (const size_t i : {2u, 3u}) maps[i].drives[6].state = DriveState::kDraining;
  const auto all = PlacementsOf(maps);
  for (const auto& left : {std::vector{maps[0], maps[2], maps[3]}, {maps[0], maps[3]}, {maps[3]}}) {
    const auto lacking = PlacementsOf(left);
    size_t other_groups = 0;
    for (uint32_t group = 0; group < 64; ++group) {
      const Ids& right = all.back()->Order(group, 6, 2);
      const Ids& wrong = lacking.back()->Order(group, 6, 2);
      other_groups += !std::equal(right.begin(), right.begin() + 6, wrong.begin());
    }
    EXPECT_GT(other_groups, 0u) << "with " << left.size() << " of the epochs";
  }
}

TEST(PlacementOverEpochs, PlacesNeverChange) {
  EXPECT_EQ(KeepPlaces({4, 2, 9}, {7, 4, 9, 2, 1}, 3), (Ids{4, 7, 9, 2, 1}));
  EXPECT_EQ(KeepPlaces({4, 2, 9}, {7, 8, 2, 4, 9}, 3), (Ids{7, 2, 8, 4, 9}));
  EXPECT_EQ(KeepPlaces({4, 2}, {2, 8, 4}, 3), (Ids{4, 2, 8}));
}

}  // namespace
}  // namespace pinstripe
