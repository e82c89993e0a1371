// Trees are removed whole, many names at once, by the rules that hold for each removal.

#include "upkeep/tree_remover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/coding.h"
#include "cluster/membership/epoch_change.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

class TreeRemoverTest : public FsTest {
 protected:
  // What is removed is removed by another host than the one that made it.
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
  }
  void TearDown() override { other_ = {}; }

  TreeRemover::Options Recursive() {
    return {
        .recursive = true, .jobs = 8, .failed = [this](const std::string& path, const Status& why) {
          failures_[path] = why;
        }};
  }
  RemovalReport Remove(std::string_view path, const TreeRemover::Options& options) {
    TreeRemover remover(sim_, *other_.fs, options);
    EXPECT_TRUE(remover.Remove(path));
    return remover.report();
  }
  RemovalReport Remove(std::string_view path) { return Remove(path, Recursive()); }

  void ExpectNothingIsLeft() {
    EXPECT_THAT(failures_, IsEmpty());
    EXPECT_THAT(List(), IsEmpty());
    EXPECT_EQ(InodeOf(kRootInode).links, kLinksOfEmptyDirectory);
    sim_.Sleep(minutes(3));  // until the contents are gone
    ExpectClean(Checker(*host_.cluster, {}).Run());
    for (DriveId id = 1; id <= machines_.size(); ++id) EXPECT_THAT(ShardsOn(id), IsEmpty());
  }

  uint64_t AllRequests() {
    uint64_t requests = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      requests += machines_.drive(id).requests().total();
    }
    return requests;
  }

  Host other_;
  std::map<std::string, Status> failures_;
};

TEST_F(TreeRemoverTest, ATreeOfAllKindsGoesAndNothingElse) {
  ASSERT_OK(fs_->MakePath("/kept/below", 0755, {}));
  Make("linked", "outside", fs_->Resolve("/kept")->inode);
  ASSERT_OK(fs_->MakePath("/tree/a/b", 0700, {1, 2}));
  const InodeId tree = fs_->Resolve("/tree")->inode;
  const InodeId a = fs_->Resolve("/tree/a")->inode;
  Make("small", "x", tree);
  Make("large", Pattern(1, 3 * kTestBlock), a);
  ASSERT_OK(fs_->MakeNode(a, "pipe", FileKind::kFifo, 0644, {}, {}));
  ASSERT_OK(fs_->MakeNode(a, "device", FileKind::kCharacterDevice, 0644, {}, {1, 3}));
  ASSERT_OK(fs_->MakeSymlink(a, "to a directory", "/kept", {}));
  ASSERT_OK(fs_->MakeSymlink(a, "to nothing", "nowhere", {}));
  ASSERT_OK(fs_->Link(fs_->Resolve("/kept/linked")->inode, a, "one more name"));
  const InodeId odd = MakeDirectory("new\nline \xff\x01", tree);
  Make("\xc3\x28 -rf *", "x", odd);
  Make("-r", "x", odd);

  const RemovalReport report = Remove("/tree");
  EXPECT_EQ(report.files, 9u);
  EXPECT_EQ(report.directories, 4u);
  EXPECT_EQ(report.failures, 0u);
  EXPECT_EQ(report.bytes, 3 * kTestBlock + 3);  // without what has another name
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_EQ(List(), std::vector<std::string>{"kept"});
  EXPECT_EQ(Contents("/kept/linked"), "outside");
  EXPECT_EQ(fs_->Resolve("/kept/linked")->links, 1u);
  ASSERT_OK(fs_->Resolve("/kept/below"));

  EXPECT_EQ(Remove("/kept").names(), 3u);
  ExpectNothingIsLeft();
}

TEST_F(TreeRemoverTest, WhatIsNoDirectoryNeedsNoRecursion) {
  Make("file", "x");
  ASSERT_OK(fs_->MakePath("/d/in it", 0755, {}));
  ASSERT_OK(fs_->MakeSymlink(kRootInode, "link", "/d", {}));
  TreeRemover::Options options = Recursive();
  options.recursive = false;
  EXPECT_EQ(Remove("/d", options).failures, 1u);
  EXPECT_EQ(failures_.at("/d").code(), EISDIR);
  EXPECT_THAT(failures_.at("/d").message(), HasSubstr("-r removes"));
  EXPECT_EQ(Remove("/file/", options).failures, 1u);
  EXPECT_EQ(failures_.at("/file/").code(), ENOTDIR);
  EXPECT_EQ(Remove("/file", options).files, 1u);
  EXPECT_EQ(Remove("/link", options).files, 1u);
  EXPECT_EQ(List(), std::vector<std::string>{"d"});
  ASSERT_OK(fs_->Resolve("/d/in it"));
}

TEST_F(TreeRemoverTest, TheRootAndWhatHasNoNameAreRefused) {
  ASSERT_OK(fs_->MakePath("/d/e", 0755, {}));
  for (const char* path : {"/", "//", "/.", "/d/..", "/d/.", "/d/e/../", "relative", ""}) {
    failures_.clear();
    EXPECT_EQ(Remove(path).failures, 1u) << path;
    ASSERT_EQ(failures_.count(path), 1u) << path;
    EXPECT_EQ(failures_.at(path).code(), EINVAL) << path;
  }
  ASSERT_OK(fs_->Resolve("/d/e"));
}

TEST_F(TreeRemoverTest, WhatIsMissingIsAFailureUnlessItMayBe) {
  Make("file", "x");
  for (const char* path : {"/none", "/none/below", "/file/below"}) {
    EXPECT_EQ(Remove(path).failures, 1u) << path;
    TreeRemover::Options options = Recursive();
    options.ignore_missing = true;
    EXPECT_EQ(Remove(path, options).failures, 0u) << path;
  }
  EXPECT_EQ(failures_.at("/none").message(), "there is no such name");
}

// What a removed file costs beside its share of listings: its inode is read for the listing, once;
// then its entry and its inode go. The directory's time is noted for many at once.
TEST_F(TreeRemoverTest, NothingIsAskedForTwice) {
  constexpr uint64_t kReplicas = 3;
  constexpr int kFiles = 256;
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < kFiles; ++i) Make(fmt::format("file {}", i), "x", tree);
  sim_.Sleep(minutes(1));
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(1)});
  }
  const uint64_t before = AllRequests();
  EXPECT_EQ(Remove("/tree").files, static_cast<uint64_t>(kFiles));
  const uint64_t made = AllRequests() - before;
  EXPECT_GE(made, 3 * kReplicas * kFiles);
  // A listing for 128 of them, and a time for 4.
  EXPECT_LE(made, 3 * kReplicas * kFiles + kReplicas * kFiles / 3 + 30 * kReplicas);
  ExpectNothingIsLeft();
}

TEST_F(TreeRemoverTest, AHugeDirectoryIsNeverInMemoryAsAWhole) {
  constexpr int kFiles = 2000;
  const InodeId tree = MakeDirectory("tree");
  RunTogether(8, [&](int part) {
    for (int i = part; i < kFiles; i += 8) {
      ASSERT_OK(fs_->MakeNode(tree, fmt::format("file {}", i), FileKind::kRegular, 0644, {}, {}));
    }
  });
  TreeRemover::Options options = Recursive();
  options.page = 50;
  uint64_t told = 0;
  const auto lists = [&] {
    uint64_t all = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) all += machines_.drive(id).requests().range;
    return all;
  };
  const uint64_t before = lists();
  options.progress = [&](const RemovalReport& so_far) {
    EXPECT_GE(so_far.files, told);
    told = so_far.files;
    if (told == kFiles) return;
    EXPECT_LE(lists() - before, 3 * (told / options.page + 4));
  };
  EXPECT_EQ(Remove("/tree", options).files, static_cast<uint64_t>(kFiles));
  EXPECT_EQ(told, static_cast<uint64_t>(kFiles));
  ExpectNothingIsLeft();
}

TEST_F(TreeRemoverTest, DepthTakesNoStack) {
  constexpr int kLevels = 2000;
  InodeId at = MakeDirectory("tree");
  for (int i = 0; i < kLevels; ++i) at = MakeDirectory("d", at);
  Make("at the bottom", "x", at);
  const RemovalReport report = Remove("/tree");
  EXPECT_EQ(report.directories, kLevels + 1u);
  EXPECT_EQ(report.files, 1u);
  ExpectNothingIsLeft();
}

// Others go on making files in the tree for a while.
TEST_F(TreeRemoverTest, WhatOthersMakeMeanwhileGoesToo) {
  ASSERT_OK(fs_->MakePath("/tree/d", 0755, {}));
  const InodeId d = fs_->Resolve("/tree/d")->inode;
  for (int i = 0; i < 20; ++i) Make(fmt::format("before {}", i), "x", d);
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(5)});
  }
  int made = 0;
  RunTogether(2, [&](int which) {
    if (which == 0) {
      for (int i = 0; i < 10; ++i) {
        const auto file = fs_->MakeNode(d, fmt::format("{} new", i), FileKind::kFifo, 0644, {}, {});
        if (!file.has_value()) break;
        ++made;
      }
    } else {
      EXPECT_EQ(Remove("/tree").failures, 0u);
    }
  });
  EXPECT_GT(made, 0);
  ExpectNothingIsLeft();
}

// Who never stops keeps his directory, and is told of. The rest goes.
TEST_F(TreeRemoverTest, ADirectoryThatOthersFillAgainAndAgainStays) {
  ASSERT_OK(fs_->MakePath("/tree/busy", 0755, {}));
  ASSERT_OK(fs_->MakePath("/tree/quiet", 0755, {}));
  const InodeId busy = fs_->Resolve("/tree/busy")->inode;
  TreeRemover::Options options = Recursive();
  options.jobs = 1;
  // Before each step one that comes before all others, so no listing goes on for ever.
  int made = 0;
  options.go_on = [&] {
    EXPECT_OK(
        fs_->MakeNode(busy, fmt::format("{:04}", 9999 - made++), FileKind::kFifo, 0644, {}, {}));
    return true;
  };
  EXPECT_EQ(Remove("/tree", options).failures, 1u);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_.begin()->first, "/tree/busy");
  EXPECT_EQ(failures_.begin()->second.code(), ENOTEMPTY);
  EXPECT_THAT(failures_.begin()->second.message(), HasSubstr("put names into it, 8 times"));
  EXPECT_EQ(List(fs_->Resolve("/tree")->inode), std::vector<std::string>{"busy"});
}

// Two who remove the same are in nobody's way.
TEST_F(TreeRemoverTest, TwoMayRemoveTheSame) {
  for (int d = 0; d < 5; ++d) {
    ASSERT_OK(fs_->MakePath(fmt::format("/tree/{}", d), 0755, {}));
    const InodeId directory = fs_->Resolve(fmt::format("/tree/{}", d))->inode;
    for (int i = 0; i < 20; ++i) Make(fmt::format("{}", i), "x", directory);
  }
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(3)});
  }
  Host third = NewHost();
  RemovalReport reports[2];
  RunTogether(2, [&](int which) {
    TreeRemover remover(sim_, which == 0 ? *other_.fs : *third.fs, Recursive());
    EXPECT_TRUE(remover.Remove("/tree"));
    reports[which] = remover.report();
  });
  EXPECT_EQ(reports[0].files + reports[1].files, 100u);
  EXPECT_EQ(reports[0].directories + reports[1].directories, 6u);
  third = {};
  ExpectNothingIsLeft();
}

// A name that stays keeps those above it; each is told once, and all else goes.
TEST_F(TreeRemoverTest, WhatCannotBeRemovedIsToldAndTheRestGoes) {
  ASSERT_OK(fs_->MakePath("/tree/a/b", 0755, {}));
  ASSERT_OK(fs_->MakePath("/tree/c", 0755, {}));
  const InodeId b = fs_->Resolve("/tree/a/b")->inode;
  Make("fine", "x", b);
  Make("damaged\n", "x", b);
  const InodeId damaged = fs_->Lookup(b, "damaged\n")->inode;
  const std::string key = Writer().Raw("I").U64(damaged).Take();
  const RegisterName name{host_.cluster->GroupOfObject(damaged), key};
  const auto seen = host_.cluster->registers().Read(name);
  ASSERT_OK(seen);
  ASSERT_TRUE(host_.cluster->registers().Change(name, *seen, "no inode").applied());

  const RemovalReport report = Remove("/tree");
  EXPECT_EQ(report.failures, 1u);
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_.begin()->first, "/tree/a/b/damaged\n");
  EXPECT_EQ(failures_.begin()->second.code(), EBADMSG);
  EXPECT_EQ(report.files, 1u);
  EXPECT_EQ(report.directories, 1u);
  EXPECT_EQ(List(fs_->Resolve("/tree")->inode), std::vector<std::string>{"a"});
  EXPECT_FAILS(fs_->Resolve("/tree/a/b/fine"), ENOENT);
}

TEST_F(TreeRemoverTest, ItGoesOnWhileADriveIsAway) {
  ASSERT_OK(fs_->MakePath("/tree/a", 0755, {}));
  const InodeId a = fs_->Resolve("/tree/a")->inode;
  for (int i = 0; i < 30; ++i) Make(fmt::format("{}", i), Pattern(1, 2 * kTestBlock), a);
  machines_.SetDown(2, true);
  EXPECT_EQ(Remove("/tree").files, 30u);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(List(), IsEmpty());
}

// With too few drives nothing can be removed: it ends, and says why.
TEST_F(TreeRemoverTest, WithoutTheDrivesItFailsAndEnds) {
  ASSERT_OK(fs_->MakePath("/tree/a", 0755, {}));
  Make("file", "x", fs_->Resolve("/tree/a")->inode);
  TreeRemover::Options options = Recursive();
  options.go_on = [&, begun = false]() mutable {
    if (!begun) return begun = true;
    for (DriveId id = 2; id <= machines_.size(); ++id) machines_.SetDown(id, true);
    return true;
  };
  EXPECT_GE(Remove("/tree", options).failures, 1u);
  ASSERT_FALSE(failures_.empty());
  EXPECT_EQ(failures_.begin()->second.code(), EIO);
  for (DriveId id = 2; id <= machines_.size(); ++id) machines_.SetDown(id, false);
}

TEST_F(TreeRemoverTest, ItStopsWhenItIsToldTo) {
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 100; ++i) Make(fmt::format("{}", i), "x", tree);
  TreeRemover::Options options = Recursive();
  int steps = 0;
  options.go_on = [&] { return ++steps < 40; };
  TreeRemover remover(sim_, *other_.fs, options);
  EXPECT_FALSE(remover.Remove("/tree"));
  EXPECT_FALSE(remover.Remove("/"));
  EXPECT_GT(remover.report().files, 0u);
  EXPECT_EQ(List(tree).size(), 100 - remover.report().files);
  // Another one goes on with it.
  EXPECT_EQ(Remove("/tree").files, 100 - remover.report().files);
  ExpectNothingIsLeft();
}

TEST_F(TreeRemoverTest, SeveralPathsMayBeRemoved) {
  for (const char* path : {"/a/x", "/b/x"}) ASSERT_OK(fs_->MakePath(path, 0755, {}));
  Make("c", "x");
  TreeRemover remover(sim_, *other_.fs, Recursive());
  for (const char* path : {"/a", "/none", "/b/", "/c"}) EXPECT_TRUE(remover.Remove(path)) << path;
  EXPECT_EQ(remover.report().files, 1u);
  EXPECT_EQ(remover.report().directories, 4u);
  EXPECT_EQ(remover.report().failures, 1u);
  EXPECT_THAT(List(), IsEmpty());
}

// When it returns the contents are gone from the drives, and not before.
TEST_F(TreeRemoverTest, OneCanWaitUntilTheContentsAreGone) {
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 10; ++i) Make(fmt::format("{}", i), Pattern(1, 2 * kTestBlock), tree);
  TreeRemover remover(sim_, *other_.fs, Recursive());
  EXPECT_TRUE(remover.Remove("/tree"));
  EXPECT_THAT(ShardsOn(1), testing::Not(IsEmpty()));
  size_t most = 0;
  EXPECT_TRUE(remover.WaitUntilFree([&](size_t files) { most = std::max(most, files); }));
  EXPECT_GE(most, 10u);
  for (DriveId id = 1; id <= machines_.size(); ++id) EXPECT_THAT(ShardsOn(id), IsEmpty());
  EXPECT_TRUE(remover.WaitUntilFree());
}

// What cannot be flushed is not known to be safe, so the contents stay. That takes no for ever.
TEST_F(TreeRemoverTest, NobodyWaitsForEverForDrivesThatDoNotAnswer) {
  Make("file", Pattern(1, 2 * kTestBlock));
  TreeRemover remover(sim_, *other_.fs, Recursive());
  EXPECT_TRUE(remover.Remove("/file"));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.lose_request = 1});
  const Time begin = sim_.Now();
  EXPECT_FALSE(remover.WaitUntilFree());
  EXPECT_GE(sim_.Now() - begin, minutes(2));
  EXPECT_LE(sim_.Now() - begin, minutes(5));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  EXPECT_TRUE(remover.WaitUntilFree());
}

// The shards of a drive that is away stay, and whoever waits hears of it.
TEST_F(TreeRemoverTest, OneHearsThatContentsStay) {
  Make("file", Pattern(1, 2 * kTestBlock));
  TreeRemover remover(sim_, *other_.fs, Recursive());
  EXPECT_TRUE(remover.Remove("/file"));
  machines_.SetDown(1, true);
  EXPECT_FALSE(remover.WaitUntilFree());
  EXPECT_EQ(other_->CountToFree(), 0u);
  machines_.SetDown(1, false);
}

// Nor do names wait for ever for the contents of others.
TEST_F(TreeRemoverTest, NamesGoOnWhereNothingCanBeFreed) {
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 40; ++i) Make(fmt::format("{}", i), Pattern(1, 2 * kTestBlock), tree);
  TreeRemover::Options options = Recursive();
  options.most_to_free = 0;  // there is never room
  const Time begin = sim_.Now();
  EXPECT_EQ(Remove("/tree", options).files, 40u);
  EXPECT_GE(sim_.Now() - begin, minutes(2));
  EXPECT_LE(sim_.Now() - begin, minutes(3));
  ExpectNothingIsLeft();
}

// More than the reaper could take are never removed at once.
TEST_F(TreeRemoverTest, ItWaitsWhereTooMuchIsToBeFreed) {
  constexpr size_t kMost = 10;
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 40; ++i) Make(fmt::format("{}", i), Pattern(1, 2 * kTestBlock), tree);
  TreeRemover::Options options = Recursive();
  options.most_to_free = kMost;
  size_t most = 0;
  options.progress = [&](const RemovalReport&) { most = std::max(most, other_->CountToFree()); };
  const Time begin = sim_.Now();
  EXPECT_EQ(Remove("/tree", options).files, 40u);
  EXPECT_GE(sim_.Now() - begin, 2 * minutes(1));
  EXPECT_GE(most, kMost);
  EXPECT_LE(most, kMost + options.jobs + 40);  // those under way, and blocks of what is going
  ExpectNothingIsLeft();
}

// An entry whose inode is gone is not a name, and a page that had such entries is not the last one.
TEST_F(TreeRemoverTest, EntriesThatLeadNowhereAreInNobodysWay) {
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 30; ++i) {
    const InodeId id = Make(fmt::format("{:02}", i), "x", tree);
    if (i % 3 == 0) RemoveInode(id);
  }
  TreeRemover::Options options = Recursive();
  options.page = 4;
  options.most_scans = 1;
  EXPECT_EQ(Remove("/tree", options).files, 20u);
  EXPECT_THAT(failures_, IsEmpty());
  EXPECT_THAT(List(), IsEmpty());
}

// Their entries begin new slots there.
TEST_F(TreeRemoverTest, AnEpochMayBeginMeanwhile) {
  const InodeId tree = MakeDirectory("tree");
  for (int i = 0; i < 60; ++i) Make(fmt::format("{}", i), "x", tree);
  TreeRemover::Options options = Recursive();
  int steps = 0;
  options.go_on = [&] {
    if (++steps == 30) {
      EXPECT_OK(RenewEpoch(*host_.cluster));
    }
    return true;
  };
  EXPECT_EQ(Remove("/tree", options).files, 60u);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace pinstripe
