// Who removes what he has just listed need not look at it again, and is never misled by that.

#include "fs/names/listed_places.h"

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

class ListedPlacesTest : public testing::Test {
 protected:
  void Learn(InodeId directory, std::string_view name, InodeId id, const Inode& inode = {}) {
    places_.Learn(directory, name, {.slot = 5, .id = id, .inode = {inode, 6}});
  }
  // 0: it is not known.
  InodeId Take(InodeId directory, std::string_view name) {
    const auto taken = places_.Take(directory, name);
    return taken ? taken->id : 0;
  }

  SimRuntime sim_{1};
  ListedPlaces places_{sim_, 20'000};
};

TEST_F(ListedPlacesTest, WhatWasListedIsKnownOnce) {
  Learn(2, "a", 7);
  Learn(3, "a", 8);
  EXPECT_EQ(Take(2, "b"), 0u);
  const auto taken = places_.Take(2, "a");
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->id, 7u);
  EXPECT_EQ(taken->slot, 5u);
  EXPECT_EQ(taken->inode.slot, 6u);
  EXPECT_EQ(Take(2, "a"), 0u);
  EXPECT_EQ(Take(3, "a"), 8u);
}

TEST_F(ListedPlacesTest, ItIsKnownForAWhile) {
  Learn(2, "a", 7);
  Learn(2, "b", 8);
  sim_.Sleep(ListedPlaces::kKept - milliseconds(1));
  EXPECT_EQ(Take(2, "a"), 7u);
  Learn(2, "c", 9);
  sim_.Sleep(milliseconds(2));
  EXPECT_EQ(Take(2, "b"), 0u);
  EXPECT_EQ(Take(2, "c"), 9u);
}

TEST_F(ListedPlacesTest, TheLastListingCounts) {
  Learn(2, "a", 7);
  sim_.Sleep(ListedPlaces::kKept - milliseconds(1));
  Learn(2, "a", 8);
  sim_.Sleep(milliseconds(2));
  Learn(2, "b", 9);  // with that the first one is dropped
  EXPECT_EQ(Take(2, "a"), 8u);
}

TEST_F(ListedPlacesTest, WhatIsBeingRenamedOrReplacedIsNotKept) {
  Inode inode;
  inode.intent.emplace();
  Learn(2, "a", 7, inode);
  inode = {};
  inode.mark.emplace();
  Learn(2, "b", 8, inode);
  EXPECT_EQ(Take(2, "a"), 0u);
  EXPECT_EQ(Take(2, "b"), 0u);
}

TEST_F(ListedPlacesTest, ItTakesNoMoreMemoryThanItMay) {
  Inode inode;
  inode.inline_data = std::string(3000, 'x');
  for (InodeId id = 1; id <= 100; ++id) Learn(2, fmt::format("{}", id), id, inode);
  int known = 0;
  for (InodeId id = 1; id <= 100; ++id) known += Take(2, fmt::format("{}", id)) != 0 ? 1 : 0;
  EXPECT_GE(known, 4);
  EXPECT_LE(known, 6);
  Learn(2, "1", 1, inode);
  EXPECT_EQ(Take(2, "1"), 1u);
  inode.inline_data = std::string(30'000, 'x');
  Learn(2, "2", 2, inode);
  EXPECT_EQ(Take(2, "2"), 0u);
}

// One host lists and removes. The other one does something to the names in between.
class ListedRemovalTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
  }
  void TearDown() override {
    sim_.Sleep(std::chrono::minutes(3));  // until removed contents are gone
    ExpectClean(Checker(*host_.cluster, {}).Run());
    other_ = {};
  }

  Host other_;
};

TEST_F(ListedRemovalTest, AFileThatWasReplacedGoesAsItIsNow) {
  Make("file", "old");
  Make("new", Pattern(1, kTestBlock));
  const InodeId kept = Make("kept", "x");
  List();
  ASSERT_OK(other_->Rename(kRootInode, "new", kRootInode, "file"));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(List(), std::vector<std::string>{"kept"});
  EXPECT_EQ(fs_->Lookup(kRootInode, "kept")->inode, kept);
}

TEST_F(ListedRemovalTest, AFileThatGotOneMoreNameKeepsIt) {
  const InodeId id = Make("file", Pattern(1, kTestBlock));
  List();
  ASSERT_OK(other_->Link(id, kRootInode, "one more"));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(List(), std::vector<std::string>{"one more"});
  EXPECT_EQ(fs_->GetAttributes(id)->links, 1u);
  EXPECT_EQ(Contents("/one more"), Pattern(1, kTestBlock));
}

TEST_F(ListedRemovalTest, AFileThatLostItsOtherNameGoes) {
  const InodeId id = Make("file", Pattern(1, kTestBlock));
  ASSERT_OK(fs_->Link(id, kRootInode, "one more"));
  List();
  ASSERT_OK(other_->Unlink(kRootInode, "one more"));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(fs_->GetAttributes(id), ENOENT);
}

TEST_F(ListedRemovalTest, AFileThatWasWrittenSinceGoesWithWhatWasWritten) {
  const InodeId id = Make("file", "x");
  List();
  auto file = other_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, 2 * kTestBlock))));
  ASSERT_OK((*file)->Close());
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(fs_->GetAttributes(id), ENOENT);
}

TEST_F(ListedRemovalTest, ANameThatIsGoneOrADirectorysByNowIsFoundToBe) {
  Make("moved", "x");
  Make("gone", "x");
  Make("directory", "x");
  List();
  ASSERT_OK(other_->Rename(kRootInode, "moved", kRootInode, "there"));
  ASSERT_OK(other_->Unlink(kRootInode, "gone"));
  ASSERT_OK(other_->Unlink(kRootInode, "directory"));
  ASSERT_OK(other_->MakeDirectory(kRootInode, "directory", 0755, {}));
  EXPECT_FAILS(fs_->Unlink(kRootInode, "moved"), ENOENT);
  EXPECT_FAILS(fs_->Unlink(kRootInode, "gone"), ENOENT);
  EXPECT_FAILS(fs_->Unlink(kRootInode, "directory"), EISDIR);
  EXPECT_EQ(Contents("/there"), "x");
}

TEST_F(ListedRemovalTest, ADirectoryIsRemovedAsItIsNow) {
  const InodeId full = MakeDirectory("d");
  MakeDirectory("filled");
  MakeDirectory("moved");
  MakeDirectory("ours");
  Make("in it", "x", full);
  List();
  // The name stands for an empty one by now.
  ASSERT_OK(other_->Rename(kRootInode, "d", kRootInode, "full"));
  ASSERT_OK(other_->MakeDirectory(kRootInode, "d", 0755, {}));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  EXPECT_EQ(Contents("/full/in it"), "x");
  // There is something in it by now.
  const InodeId filled = other_->Lookup(kRootInode, "filled")->inode;
  ASSERT_OK(other_->MakeNode(filled, "pipe", FileKind::kFifo, 0644, {}, {}));
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "filled"), ENOTEMPTY);
  // It has another name by now.
  ASSERT_OK(other_->Rename(kRootInode, "moved", kRootInode, "there"));
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "moved"), ENOENT);
  // By what we did ourselves.
  ASSERT_OK(fs_->Rename(kRootInode, "ours", kRootInode, "theirs"));
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "ours"), ENOENT);
  EXPECT_EQ(List(), (std::vector<std::string>{"filled", "full", "theirs", "there"}));
  EXPECT_EQ(fs_->GetAttributes(kRootInode)->links, kLinksOfEmptyDirectory + 4);
}

// By what was looked up, which the kernel does just before.
TEST_F(ListedRemovalTest, ADirectoryThatWasLookedUpIsRemovedAsItIsNow) {
  const InodeId full = MakeDirectory("d");
  Make("in it", "x", full);
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  ASSERT_OK(other_->Rename(kRootInode, "d", kRootInode, "full"));
  ASSERT_OK(other_->MakeDirectory(kRootInode, "d", 0755, {}));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  EXPECT_EQ(Contents("/full/in it"), "x");
  ASSERT_OK(fs_->Lookup(kRootInode, "full"));
  ASSERT_OK(fs_->Rename(kRootInode, "full", kRootInode, "other"));
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "full"), ENOENT);
  EXPECT_EQ(List(), std::vector<std::string>{"other"});
}

// Hosts that list, rename, exchange and remove the same few names at once leave a tree that is
// whole: each name that was removed is counted once.
TEST_F(ListedRemovalTest, ManyAtOnceLeaveNothingBehind) {
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(5)});
  }
  const InodeId tree = MakeDirectory("tree");
  RunTogether(4, [&](int which) {
    FileSystem& fs = which % 2 == 0 ? *fs_ : *other_.fs;
    const auto name = [&] { return fmt::format("{}", sim_.Random() % 4); };
    for (int i = 0; i < 40; ++i) {
      (void)fs.MakeDirectory(tree, name(), 0755, {});
      (void)fs.MakeNode(tree, name(), FileKind::kFifo, 0644, {}, {});
      if (i % 3 == 0) (void)fs.Rename(tree, name(), tree, name());
      if (i % 3 == 1) (void)fs.Exchange(tree, name(), tree, name());
      const auto listed = fs.ReadDirectory(tree, "", 10, /*with_attributes=*/true);
      ASSERT_OK(listed);
      for (const DirectoryEntry& entry : *listed) {
        const Status removed = entry.kind == FileKind::kDirectory
                                   ? fs.RemoveDirectory(tree, entry.name)
                                   : fs.Unlink(tree, entry.name);
        const int code = removed.code();
        EXPECT_TRUE(removed.ok() || code == ENOENT || code == EISDIR || code == ENOTDIR)
            << removed.message();
      }
    }
  });
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  for (const std::string& name : List(tree)) {
    if (fs_->Unlink(tree, name).code() != EISDIR) continue;
    ASSERT_OK(fs_->RemoveDirectory(tree, name));
  }
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "tree"));
}

}  // namespace
}  // namespace pinstripe
