// TreeCheck: what does not fit together is suspected, whether or not names were settled.

#include "upkeep/tree_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "fs/names/inode.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr FileKind kFile = FileKind::kRegular;
constexpr FileKind kDirectory = FileKind::kDirectory;

InodeFact DirectoryFact(InodeId id, InodeId parent, uint32_t subdirectories = 0) {
  return {.id = id,
          .parent = parent,
          .links = kLinksOfEmptyDirectory + subdirectories,
          .kind = kDirectory};
}

EntryFact EntryIn(InodeId directory, std::string name, InodeId inode, FileKind kind = kFile) {
  return {.directory = directory,
          .name = std::move(name),
          .inode = inode,
          .kind = kind,
          .is_in_place = true};
}

// "problem inode", or the directory and the name of its entry where the inode is gone.
std::multiset<std::string> Check(TreeFacts facts) {
  std::multiset<std::string> suspicions;
  for (const Suspicion& suspicion : CheckTree(facts)) {
    suspicions.insert(suspicion.inode.id != 0
                          ? fmt::format("{} {}", NameOf(suspicion.problem), suspicion.inode.id)
                          : fmt::format("{} {}/{}", NameOf(suspicion.problem),
                                        suspicion.entries.front().directory,
                                        suspicion.entries.front().name));
  }
  return suspicions;
}

class TreeFactsTest : public testing::Test {
 protected:
  // The root, /a with two files in it, and /hard, which has two names.
  TreeFactsTest() {
    facts_.inodes = {{.id = 20},
                     DirectoryFact(kRootInode, kRootInode, 1),
                     {.id = 21},
                     DirectoryFact(10, kRootInode),
                     {.id = 30, .links = 2}};
    facts_.SortInodes();
    facts_.entries = {EntryIn(kRootInode, "a", 10, kDirectory), EntryIn(10, "b", 20),
                      EntryIn(10, "c", 21), EntryIn(kRootInode, "hard", 30), EntryIn(10, "d", 30)};
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const EntryFact& entry : facts_.entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    return names;
  }

  TreeFacts facts_;
};

TEST_F(TreeFactsTest, KeepsTheNamesOfDirectoriesAndOfWhatHasSeveral) {
  facts_.Settle(0);
  EXPECT_THAT(Names(), ElementsAre("a", "d", "hard"));
  EXPECT_EQ(facts_.settled, 2u);
  EXPECT_EQ(facts_.Find(20)->parent, 10u);
  EXPECT_TRUE(facts_.Find(10)->is_filled);
  EXPECT_THAT(Check(facts_), IsEmpty());
}

TEST_F(TreeFactsTest, KeepsANameThatMayBeMovedOrThatDoesNotFit) {
  facts_.entries[1].is_in_place = false;
  facts_.entries[2].kind = FileKind::kSymlink;
  facts_.Settle(0);
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c", "d", "hard"));
  EXPECT_THAT(Check(facts_), ElementsAre("wrong-kind 21"));
}

TEST_F(TreeFactsTest, ASettledNameCountsWhereAnotherOneIsFound) {
  facts_.Settle(0);
  facts_.entries.push_back(EntryIn(kRootInode, "too", 20));
  facts_.Settle(facts_.entries.size() - 1);
  EXPECT_THAT(Names(), ElementsAre("a", "d", "hard", "too"));
  EXPECT_THAT(Check(facts_), ElementsAre("too-few-links 20"));
}

TEST_F(TreeFactsTest, ANameThatWasReadWhereItWasAndWhereItIsCountsOnce) {
  facts_.entries[1].is_in_place = false;
  facts_.Settle(0);
  facts_.entries.push_back(EntryIn(10, "b", 20));
  facts_.entries.back().group = 7;
  facts_.entries.push_back(facts_.entries.back());
  facts_.Settle(facts_.entries.size() - 2);
  EXPECT_THAT(Check(facts_), IsEmpty());
}

TEST_F(TreeFactsTest, TellsTheDirectoryOfASettledName) {
  facts_.Settle(0);
  CheckTree(facts_);
  EXPECT_EQ(PathOf(facts_, 20), "/a/(inode 0000000000000014)");
  EXPECT_EQ(PathOf(facts_, 10), "/a");
  EXPECT_EQ(PathOf(facts_, 99), "(inode 0000000000000063)");
}

// Trees with damage of all kinds, read group by group, with and without names that are settled.
TEST(TreeCheckTest, FindsTheSameWithNamesThatAreSettled) {
  std::map<std::string, int> found;
  uint64_t settled = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](unsigned bound) {
      return static_cast<unsigned>(random() % bound);
    };
    const unsigned directories = 1 + below(5);
    const unsigned files = below(12);
    TreeFacts facts;
    std::vector<std::vector<EntryFact>> groups(4);
    const auto add = [&](EntryFact entry) {
      entry.is_in_place = below(8) != 0;
      groups[below(4)].push_back(std::move(entry));
    };
    std::map<InodeId, uint32_t> subdirectories;
    const auto any_directory = [&] { return InodeId{1} + below(directories + below(8) / 7); };
    for (InodeId id = 1; id <= directories; ++id) {
      const InodeId parent = id == 1 ? 1 : 1 + below(static_cast<unsigned>(id - 1));
      const InodeId said = below(20) == 0 ? any_directory() : parent;
      if (below(15) != 0) facts.inodes.push_back(DirectoryFact(id, said));
      if (below(20) == 0) add(EntryIn(any_directory(), fmt::format("too{}", id), id, kDirectory));
      if (id == 1 || below(15) == 0) continue;
      add(EntryIn(parent, fmt::format("d{}", id), id, kDirectory));
      ++subdirectories[parent];
    }
    for (InodeFact& inode : facts.inodes) {
      inode.links += subdirectories[inode.id] + below(20) / 19;
    }
    for (InodeId id = 100; id < 100 + files; ++id) {
      const unsigned names = below(10) == 0 ? below(4) : 1;
      if (below(15) != 0) {
        facts.inodes.push_back({.id = id, .links = below(15) == 0 ? 1 + below(3) : names});
      }
      for (unsigned i = 0; i < names; ++i) {
        const FileKind kind = below(20) == 0 ? FileKind::kSymlink : kFile;
        add(EntryIn(any_directory(), fmt::format("f{}-{}", id, i), id, kind));
      }
    }
    TreeFacts all = facts;
    for (const auto& group : groups) {
      all.entries.insert(all.entries.end(), group.begin(), group.end());
    }
    facts.SortInodes();
    for (const auto& group : groups) {
      const size_t first = facts.entries.size();
      facts.entries.insert(facts.entries.end(), group.begin(), group.end());
      facts.Settle(first);
    }
    EXPECT_EQ(facts.entries.size() + facts.settled, all.entries.size());
    settled += facts.settled;
    const auto expected = Check(all);
    ASSERT_EQ(Check(facts), expected) << "seed " << seed;
    for (const std::string& one : expected) ++found[one.substr(0, one.find(' '))];
  }
  EXPECT_GT(settled, 5000u);
  EXPECT_EQ(found.size(), 11u) << "not everything was planted";
}

}  // namespace
}  // namespace pinstripe
