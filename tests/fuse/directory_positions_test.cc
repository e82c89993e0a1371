#include "fuse/directory_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace pinstripe {
namespace {

using Positions = DirectoryPositions;

// A directory, and somebody who lists it as a mount does.
class Listed {
 public:
  std::set<std::string> names;
  Positions positions;

  // Where a position is: the name behind which a listing goes on.
  std::string PlaceOf(uint64_t position) {
    const Positions::Resume resume = positions.At(position);
    std::string place = resume.after;
    if (resume.passed.empty()) return place;
    const auto has = [](const std::vector<uint32_t>& sums, uint32_t sum) {
      return std::find(sums.begin(), sums.end(), sum) != sums.end();
    };
    for (auto at = names.upper_bound(resume.after); at != names.end(); ++at) {
      if (!resume.until.empty() && *at > resume.until) break;
      const uint32_t sum = Positions::SumOf(*at);
      if (has(resume.later, sum)) break;
      if (has(resume.passed, sum)) place = *at;
      if (sum == resume.passed.back()) break;
    }
    return place;
  }

  // Up to `most` names with their positions.
  std::vector<std::pair<std::string, uint64_t>> List(uint64_t position, size_t most) {
    if (position == Positions::kStart) positions.Begin();
    std::string after = PlaceOf(position);
    std::vector<std::pair<std::string, uint64_t>> listed;
    for (auto at = names.upper_bound(after); at != names.end() && listed.size() < most; ++at) {
      position = positions.After(position, after, *at);
      listed.emplace_back(*at, position);
      after = *at;
    }
    return listed;
  }
};

TEST(DirectoryPositions, AListingGoesOnBehindTheNameThatWasHandedOut) {
  Listed directory;
  for (int i = 1000; i < 3000; ++i) directory.names.insert(std::to_string(i));
  std::vector<std::pair<std::string, uint64_t>> all;
  for (uint64_t position = 0;;) {
    const auto some = directory.List(position, 7);
    if (some.empty()) break;
    all.insert(all.end(), some.begin(), some.end());
    position = all.back().second;
  }
  ASSERT_EQ(all.size(), 2000u);
  std::set<uint64_t> seen = {Positions::kStart, Positions::kAfterDot, Positions::kAfterDotDot};
  for (const auto& [name, position] : all) {
    EXPECT_TRUE(seen.insert(position).second);
    EXPECT_EQ(directory.PlaceOf(position), name);
  }
  EXPECT_EQ(directory.List(0, 2000), all) << "nothing has changed";
  EXPECT_EQ(directory.PlaceOf(Positions::kAfterDotDot), "");
}

// Names come and go while positions are remembered: whatever was there all the time is found
// exactly once behind the position of a name before it, and never behind that of one that follows.
TEST(DirectoryPositions, APositionKeepsItsMeaningWhateverComesAndGoes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    Listed directory;
    std::set<std::string> always;
    for (int i = 0; i < 1500; ++i) {
      const std::string name = std::to_string(random() % 1'000'000);
      directory.names.insert(name);
      if (random() % 2 == 0) always.insert(name);
    }
    std::vector<std::pair<std::string, uint64_t>> known;
    uint64_t position = 0;
    for (int step = 0; step < 300; ++step) {
      const auto some = directory.List(position, 1 + random() % 40);
      known.insert(known.end(), some.begin(), some.end());
      position = some.empty() ? known[random() % known.size()].second : some.back().second;
      if (random() % 10 == 0) position = known[random() % known.size()].second;
      for (int i = 0; i < 5; ++i) directory.names.insert(std::to_string(random() % 1'000'000));
      for (int i = 0; i < 5; ++i) {
        auto victim = directory.names.lower_bound(std::to_string(random() % 1'000'000));
        if (victim != directory.names.end() && !always.contains(*victim)) {
          directory.names.erase(victim);
        }
      }
      const auto& [name, remembered] = known[random() % known.size()];
      const std::string place = directory.PlaceOf(remembered);
      ASSERT_LE(place, name);
      const auto next = always.upper_bound(place);
      const auto expected = always.upper_bound(name);
      ASSERT_EQ(next, expected) << "behind " << name << " goes on behind " << place;
    }
  }
}

TEST(DirectoryPositions, APositionThatWasNeverHandedOutIsNotKnown) {
  Positions positions;
  EXPECT_TRUE(positions.Knows(Positions::kAfterDotDot));
  EXPECT_FALSE(positions.Knows(3));
  EXPECT_TRUE(positions.Knows(positions.After(Positions::kAfterDotDot, "", "a")));
  EXPECT_FALSE(positions.Knows(UINT64_MAX));
}

}  // namespace
}  // namespace pinstripe
