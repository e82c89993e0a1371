// What may fail before something is out of reach, against the count of somebody who tries every
// choice of drives and of hosts on small clusters.

#include "upkeep/margin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cluster/membership/epoch_change.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;

DriveMap MapOf(const std::vector<std::string>& domains, uint8_t replicas, uint32_t groups = 16) {
  DriveMap map;
  map.epoch = 1;
  map.groups = groups;
  map.replicas = replicas;
  for (size_t i = 0; i < domains.size(); ++i) {
    map.drives.push_back({static_cast<DriveId>(i + 1), 100, domains[i], DriveState::kActive});
  }
  return map;
}

MarginQuestion QuestionOf(DriveMap map, Geometry stripes) {
  MarginQuestion question;
  question.map_drives = OrderDrives(map, UINT32_MAX, map.replicas, (map.replicas - 1u) / 2);
  question.map_drives.resize(map.replicas);
  question.placements = {std::make_shared<Placement>(std::move(map))};
  question.stripes = {stripes};
  return question;
}

// Goes by the rules as docs/format.md has them, part by part, and by nothing else.
class Trying {
 public:
  explicit Trying(const MarginQuestion& question) : question_(question) {}

  bool Readable(const std::set<DriveId>& gone) const {
    const auto up = [&](DriveId id) { return !gone.contains(id) && !question_.away.contains(id); };
    for (const auto& placement : question_.placements) {
      const bool is_newest = placement == question_.placements.back();
      for (const Geometry& stripes : question_.stripes) {
        for (uint32_t group = 0; group < placement->map().groups; ++group) {
          const std::vector<DriveId> homes = Homes(*placement, group, stripes);
          const bool moved = std::ranges::any_of(
              homes, [&](DriveId id) { return question_.retired.contains(id); });
          if (!is_newest && moved) continue;
          if (std::ranges::count_if(homes, up) < stripes.data_shards) return false;
        }
      }
    }
    return NamesGo(up);
  }

  bool Writable(const std::set<DriveId>& gone) const {
    const auto up = [&](DriveId id) {
      return !gone.contains(id) && !question_.away.contains(id) &&
             !question_.read_only.contains(id);
    };
    const DriveMap& map = Newest().map();
    for (const Geometry& stripes : question_.stripes) {
      for (uint32_t group = 0; group < map.groups; ++group) {
        const std::vector<DriveId> homes = Homes(Newest(), group, stripes);
        int takers = 0;
        for (const MappedDrive& drive : map.drives) {
          const bool is_home = std::ranges::count(homes, drive.id) > 0;
          takers += up(drive.id) && !question_.full.contains(drive.id) &&
                    (is_home || drive.state == DriveState::kActive);
        }
        const int least = std::min(stripes.parity_shards, question_.min_redundancy);
        if (takers < stripes.data_shards + least) return false;
      }
    }
    return NamesGo(up);
  }

  // The most that may fail whichever they are. `sets`: what fails together.
  static int Most(const std::vector<std::set<DriveId>>& sets,
                  const std::function<bool(const std::set<DriveId>&)>& goes) {
    if (!goes({})) return -1;
    int most = static_cast<int>(sets.size());
    for (uint32_t choice = 1; choice < uint32_t{1} << sets.size(); ++choice) {
      if (std::popcount(choice) > most) continue;
      std::set<DriveId> gone;
      for (size_t i = 0; i < sets.size(); ++i) {
        if ((choice >> i & 1) != 0) gone.insert(sets[i].begin(), sets[i].end());
      }
      if (!goes(gone)) most = std::popcount(choice) - 1;
    }
    return most;
  }

  // Those that are up.
  std::vector<std::set<DriveId>> Drives() const {
    std::vector<std::set<DriveId>> sets;
    for (const MappedDrive& drive : Newest().map().drives) {
      if (!question_.away.contains(drive.id)) sets.push_back({drive.id});
    }
    return sets;
  }
  std::vector<std::set<DriveId>> Domains() const {
    std::map<std::string, std::set<DriveId>> domains;
    for (const MappedDrive& drive : Newest().map().drives) {
      if (!question_.away.contains(drive.id)) domains[DomainNameOf(drive)].insert(drive.id);
    }
    std::vector<std::set<DriveId>> sets;
    for (auto& [name, drives] : domains) sets.push_back(std::move(drives));
    return sets;
  }

 private:
  Placement& Newest() const { return *question_.placements.back(); }

  static std::vector<DriveId> Homes(Placement& placement, uint32_t group, Geometry stripes) {
    std::vector<DriveId> homes = placement.Order(group, static_cast<size_t>(stripes.shards()),
                                                 static_cast<size_t>(stripes.parity_shards));
    homes.resize(static_cast<size_t>(stripes.shards()));
    return homes;
  }

  bool NamesGo(const std::function<bool(DriveId)>& up) const {
    for (uint32_t group = 0; group < Newest().map().groups; ++group) {
      const std::vector<DriveId> homes = Newest().RegisterHomes(group);
      size_t votes = 0;
      for (const DriveId id : homes) {
        const bool counts = question_.unsettled == nullptr ||
                            std::ranges::count(question_.unsettled->RegisterHomes(group), id) > 0;
        votes += counts && up(id) && !question_.without_say.contains(id);
      }
      if (2 * votes <= homes.size()) return false;
    }
    return 2 * std::ranges::count_if(question_.map_drives, up) > std::ssize(question_.map_drives);
  }

  const MarginQuestion& question_;
};

void ExpectAsTried(const MarginQuestion& question) {
  const Margin margin = ComputeMargin(question);
  const Trying trying(question);
  const auto readable = [&](const std::set<DriveId>& gone) { return trying.Readable(gone); };
  const auto writable = [&](const std::set<DriveId>& gone) { return trying.Writable(gone); };
  EXPECT_TRUE(margin.exact);
  EXPECT_EQ(margin.unreadable == 0, readable({}));
  EXPECT_EQ(margin.unwritable == 0, writable({}));
  EXPECT_EQ(margin.reading.drives, Trying::Most(trying.Drives(), readable));
  EXPECT_EQ(margin.reading.domains, Trying::Most(trying.Domains(), readable));
  EXPECT_EQ(margin.writing.drives, Trying::Most(trying.Drives(), writable));
  EXPECT_EQ(margin.writing.domains, Trying::Most(trying.Domains(), writable));
  EXPECT_EQ(margin.OutOfReach().empty(), readable({}) && writable({}));
}

// Small clusters of all kinds, with drives away, broken, without a say, drained and retired, and
// with a change of the map under way: as somebody finds them who tries it.
TEST(Margin, IsWhatWhoeverTriesEveryChoiceFinds) {
  std::mt19937 random(1);
  const auto up_to = [&](int most) { return static_cast<int>(random() % (most + 1u)); };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    const int drives = 5 + up_to(4);
    const int hosts = up_to(4);
    std::vector<std::string> domains;
    for (int i = 0; i < drives; ++i) {
      domains.push_back(hosts == 0 ? "" : fmt::format("host{}", i % hosts));
    }
    const Geometry stripes{1 + up_to(2), up_to(2)};
    DriveMap map = MapOf(domains, static_cast<uint8_t>(1 + 2 * up_to(2)), 8);
    MarginQuestion question = QuestionOf(map, stripes);
    question.min_redundancy = up_to(2);
    if (up_to(1) == 1) question.stripes.push_back({1, stripes.parity_shards});
    if (up_to(1) == 1) {
      // The next epoch drains one. Where it still is a home of something nobody would make it.
      map.epoch = 2;
      map.drives[static_cast<size_t>(up_to(drives - 1))].state = DriveState::kDraining;
      question.placements.push_back(std::make_shared<Placement>(map, question.placements.back()));
      if (up_to(1) == 1) question.unsettled = question.placements.front();
      if (up_to(2) == 0) {
        for (const MappedDrive& drive : map.drives) {
          if (drive.state == DriveState::kDraining) question.retired.insert(drive.id);
        }
      }
    }
    for (DriveId id = 1; id <= drives; ++id) {
      const int fate = up_to(11);
      if (fate <= 1) question.away.insert(id);
      if (fate == 2) question.read_only.insert(id);
      if (fate == 3) question.without_say.insert(id);
      if (fate == 4) question.full.insert(id);
    }
    ExpectAsTried(question);
  }
}

// As a site has found it: four hosts of three drives each, 4+2 and names on five. One host that is
// away is no alarm.
class FourHosts : public testing::Test {
 protected:
  FourHosts()
      : question_(QuestionOf(
            MapOf({"a", "a", "a", "b", "b", "b", "c", "c", "c", "d", "d", "d"}, 5, 512), {4, 2})) {
    question_.stripes.push_back({1, 2});
  }
  MarginQuestion question_;
};

TEST_F(FourHosts, SurviveAnyHost) {
  const Margin margin = ComputeMargin(question_);
  EXPECT_EQ(margin.reading.domains, 1);
  EXPECT_EQ(margin.reading.drives, 2);
  EXPECT_THAT(margin.OutOfReach(), testing::IsEmpty());
  EXPECT_FALSE(margin.writes_short);
  EXPECT_EQ(margin.parts, 3 * 512 + 1u);
}

TEST_F(FourHosts, OneHostOfThreeDrivesAwayLosesNothing) {
  question_.away = {4, 5, 6};
  const Margin margin = ComputeMargin(question_);
  EXPECT_THAT(margin.OutOfReach(), testing::IsEmpty());
  EXPECT_EQ(margin.reading.drives, 0);
  EXPECT_EQ(margin.reading.domains, 0);
  EXPECT_FALSE(margin.writes_short);  // nine drives are left for six shards
}

TEST_F(FourHosts, ThreeDrivesOfThreeHostsAreAnotherMatter) {
  question_.away = {1, 4, 7};
  const Margin margin = ComputeMargin(question_);
  EXPECT_EQ(margin.reading.drives, -1);
  EXPECT_GT(margin.unreadable, 0u);
  EXPECT_LT(margin.unreadable, margin.parts);
  ASSERT_FALSE(margin.OutOfReach().empty());
  for (const DriveId id : {1, 4, 7}) {
    EXPECT_THAT(margin.reading.worst_by_drives.drives, testing::Contains(id));
  }
}

TEST_F(FourHosts, WithTwoDrivesLeftNothingCanBeWritten) {
  question_.away = {4, 5, 6};
  question_.read_only = {1, 2, 3, 7, 8};
  const Margin margin = ComputeMargin(question_);
  EXPECT_TRUE(margin.data_readable);
  EXPECT_TRUE(margin.names_readable);
  EXPECT_FALSE(margin.data_writable);
  EXPECT_THAT(margin.OutOfReach(), testing::Contains(HasSubstr("nothing new can be written")));
}

TEST_F(FourHosts, FullDrivesTakeNamesAndNoData) {
  for (DriveId id = 1; id <= 12; ++id) question_.full.insert(id);
  const Margin margin = ComputeMargin(question_);
  EXPECT_FALSE(margin.data_writable);
  EXPECT_TRUE(margin.names_writable);
  EXPECT_EQ(margin.reading.domains, 1);
}

// There, time is what limits it.
TEST(Margin, OfVeryManyGroupsIsTakenFromSome) {
  const MarginQuestion question =
      QuestionOf(MapOf(std::vector<std::string>(300), 5, 1 << 16), {8, 3});
  const Margin margin = ComputeMargin(question);
  EXPECT_FALSE(margin.exact);
  EXPECT_EQ(margin.reading.drives, 2);
}

}  // namespace
}  // namespace pinstripe
