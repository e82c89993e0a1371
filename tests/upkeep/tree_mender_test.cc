// TreeMender: what a loss of power leaves in the tree of names is put right, and nothing else is
// touched.

#include "upkeep/tree_mender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"
#include "upkeep/checker.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class TreeMenderTest : public FsTest {
 protected:
  TreeMendReport Mend() { return TreeMender(*host_.cluster).Run(); }

  std::vector<std::string> Problems() {
    std::vector<std::string> problems;
    Checker checker(*host_.cluster, {});
    for (const Finding& finding : checker.Run().findings) {
      problems.push_back(finding.problem + " " + finding.where);
    }
    return problems;
  }

  void LoseName(InodeId directory, std::string_view name) {
    PutEntry(directory, name, std::nullopt);
  }
};

TEST_F(TreeMenderTest, NothingIsDoneToAHealthyTree) {
  const InodeId a = MakeDirectory("a");
  Make("file", "contents", MakeDirectory("b", a));
  ASSERT_OK(fs_->Link(Make("one", "x"), a, "two"));
  const TreeMendReport report = Mend();
  EXPECT_THAT(report.mended, IsEmpty());
  EXPECT_THAT(report.not_mended, IsEmpty());
}

TEST_F(TreeMenderTest, ADirectoryThatLostItsNameGetsItAgain) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  Make("file", "contents", b);
  LoseName(a, "b");
  EXPECT_THAT(Mend().mended, testing::Contains(HasSubstr("it has its name 'b' again")));
  EXPECT_EQ(Contents("/a/b/file"), "contents");
  EXPECT_THAT(Problems(), IsEmpty());
  EXPECT_THAT(Mend().mended, IsEmpty());
}

TEST_F(TreeMenderTest, ManyThatAreBelowEachOtherGetTheirs) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  const InodeId c = MakeDirectory("c", b);
  Make("file", "contents", c);
  LoseName(kRootInode, "a");
  LoseName(a, "b");
  LoseName(b, "c");
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  EXPECT_EQ(Contents("/a/b/c/file"), "contents");
  EXPECT_THAT(Problems(), IsEmpty());
}

// The name was given to another one, or the directory that it was in is gone.
TEST_F(TreeMenderTest, WhereItsPlaceIsTakenItComesToLostAndFound) {
  const InodeId a = MakeDirectory("a");
  Make("file", "contents", a);
  LoseName(kRootInode, "a");
  Make("a", "another");
  const InodeId parent = MakeDirectory("parent");
  const InodeId child = MakeDirectory("child", parent);
  Make("file", "of the child", child);
  LoseName(parent, "child");
  RemoveInode(parent);
  LoseName(kRootInode, "parent");
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  EXPECT_EQ(Contents("/a"), "another");
  EXPECT_EQ(Contents(fmt::format("/lost+found/{:016x}/file", a)), "contents");
  EXPECT_EQ(Contents(fmt::format("/lost+found/{:016x}/file", child)), "of the child");
  EXPECT_THAT(Problems(), IsEmpty());
  const auto found = fs_->Lookup(kRootInode, kLostAndFound);
  ASSERT_OK(found);
  EXPECT_EQ(found->mode & 07777, 0700u);
}

// The directory that it is in is gone, and its name in that one is not.
TEST_F(TreeMenderTest, WhatHasItsNameInADirectoryThatIsGoneComesToLostAndFound) {
  const InodeId parent = MakeDirectory("parent");
  const InodeId child = MakeDirectory("child", parent);
  Make("file", "contents", child);
  RemoveInode(parent);
  LoseName(kRootInode, "parent");
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  EXPECT_EQ(Contents(fmt::format("/lost+found/{:016x}/file", child)), "contents");
  EXPECT_THAT(Problems(), IsEmpty());
}

// What was found may be so no more: somebody has moved it into a directory that is newer than that.
TEST_F(TreeMenderTest, WhatHasANameByNowGetsNoSecondOne) {
  const InodeId d = MakeDirectory("d");
  Make("file", "contents", d);
  const InodeId newer = MakeDirectory("newer");
  ASSERT_OK(fs_->Rename(kRootInode, "d", newer, "d"));
  Records records(*host_.cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  const auto given = names.Reattach(d, {kRootInode, "again"});
  ASSERT_OK(given);
  EXPECT_FALSE(*given);
  EXPECT_THAT(Problems(), IsEmpty());
}

TEST_F(TreeMenderTest, ACircleIsBrokenOpen) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  Make("file", "contents", b);
  LoseName(kRootInode, "a");
  LoseName(a, "b");
  // As if each were in the other one.
  ChangeInode(a, [&](Inode& inode) {
    inode.parent = b;
    inode.named = GivenName{b, "a"};
  });
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  // What was above it is empty now, and for who collects.
  EXPECT_THAT(Problems(), ElementsAre(fmt::format("orphan (inode {:016x})", a)));
  const auto found = fs_->Lookup(kRootInode, kLostAndFound);
  ASSERT_OK(found);
  EXPECT_THAT(List(found->inode), testing::SizeIs(1));
}

TEST_F(TreeMenderTest, LinksAndParentsAndCountsAreMadeRight) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  Make("file", "x", b);
  const InodeId file = Make("one", "contents");
  ASSERT_OK(fs_->Link(file, a, "two"));
  ChangeInode(file, [](Inode& inode) { inode.links = 1; });
  ChangeInode(b, [](Inode& inode) { inode.parent = kRootInode; });
  ChangeInode(a, [](Inode& inode) { inode.links = 7; });
  sim_.Sleep(std::chrono::seconds(1));  // the directories' times are noted
  EXPECT_THAT(Mend().mended, UnorderedElementsAre(HasSubstr("its inode counts its 2 names"),
                                                  HasSubstr("it knows the directory"),
                                                  HasSubstr("subdirectories are counted")));
  EXPECT_THAT(Problems(), IsEmpty());
  ASSERT_OK(fs_->Unlink(kRootInode, "one"));
  EXPECT_EQ(Contents("/a/two"), "contents");
}

// What is damaged may be the name.
TEST_F(TreeMenderTest, NothingGetsANameWhileNotAllNamesAreKnown) {
  const InodeId a = MakeDirectory("a");
  Make("file", "contents", a);
  LoseName(kRootInode, "a");
  for (DriveId id = 1; id <= 5; ++id) machines_.SetDown(id, id <= 2);
  const TreeMendReport report = Mend();
  EXPECT_THAT(report.mended, IsEmpty());
}

// Somebody who makes a directory stands still before he gives it its name, and goes on later.
TEST_F(TreeMenderTest, WhoeverIsLateGivesNoSecondName) {
  const InodeId a = MakeDirectory("a");
  Make("file", "contents", a);
  Records records(*host_.cluster);
  LoseName(kRootInode, "a");
  const auto before = records.FindEntry(kRootInode, "a");
  ASSERT_OK(before);
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  const auto late = records.ChangeEntry(kRootInode, "a", before->slot,
                                        Entry{.inode = a, .kind = FileKind::kDirectory});
  EXPECT_FALSE(late.applied());
  EXPECT_THAT(Problems(), IsEmpty());
}

// Two at once, which see the same.
TEST_F(TreeMenderTest, TwoAtOnceGiveOneName) {
  const InodeId a = MakeDirectory("a");
  Make("file", "contents", a);
  Host other = NewHost();
  LoseName(kRootInode, "a");
  RunTogether(2, [&](int i) { TreeMender(i == 0 ? *host_.cluster : *other.cluster).Run(); });
  EXPECT_THAT(Mend().not_mended, IsEmpty());
  EXPECT_THAT(Problems(), IsEmpty());
  EXPECT_EQ(Contents("/a/file"), "contents");
}

}  // namespace
}  // namespace pinstripe
