// Extended attributes, alone and against other hosts.

#include "fs/names/extended.h"

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using ExtendedTest = FsTest;
using Mode = FileSystem::ExtendedMode;
using List_ = std::vector<std::string>;

TEST_F(ExtendedTest, WhatWasSetIsThereForEverybody) {
  const InodeId file = Make("file", "contents");
  const std::string binary("a\0b\xff\n", 5);
  ASSERT_OK(fs_->SetExtended(file, "user.b", binary));
  ASSERT_OK(fs_->SetExtended(file, "user.a", ""));
  ASSERT_OK(fs_->SetExtended(file, "trusted.c", "x"));
  ASSERT_OK(fs_->SetExtended(file, "security.\xff \x01", "y"));
  Host other = NewHost();
  for (FileSystem* fs : {fs_, other.fs.get()}) {
    EXPECT_EQ(*fs->GetExtended(file, "user.b"), binary);
    EXPECT_EQ(*fs->GetExtended(file, "user.a"), "");
    EXPECT_EQ(*fs->GetExtended(file, "security.\xff \x01"), "y");
    EXPECT_EQ(*fs->ListExtended(file),
              (List_{"security.\xff \x01", "trusted.c", "user.a", "user.b"}));
    EXPECT_FAILS(fs->GetExtended(file, "user."), EINVAL);
    EXPECT_FAILS(fs->GetExtended(file, "user.c"), ENODATA);
  }
  ASSERT_OK(other->RemoveExtended(file, "user.b"));
  EXPECT_FAILS(fs_->RemoveExtended(file, "user.b"), ENODATA);
  EXPECT_EQ(fs_->ListExtended(file)->size(), 3u);
  EXPECT_EQ(Contents("/file"), "contents");
  EXPECT_FAILS(fs_->ListExtended(12345), ENOENT);
}

TEST_F(ExtendedTest, CreatingAndReplacingAreToldApart) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  EXPECT_FAILS(fs_->SetExtended(d, "user.a", "1", Mode::kReplace), ENODATA);
  ASSERT_OK(fs_->SetExtended(d, "user.a", "1", Mode::kCreate));
  EXPECT_FAILS(fs_->SetExtended(d, "user.a", "2", Mode::kCreate), EEXIST);
  EXPECT_EQ(*fs_->GetExtended(d, "user.a"), "1");
  ASSERT_OK(fs_->SetExtended(d, "user.a", "3", Mode::kReplace));
  EXPECT_EQ(*fs_->GetExtended(d, "user.a"), "3");
}

TEST_F(ExtendedTest, LimitsAreLinuxsAndTheInodes) {
  const InodeId file = Make("file", "x");
  const std::string longest = "user." + std::string(250, 'n');
  ASSERT_OK(fs_->SetExtended(file, longest, "v"));
  EXPECT_EQ(*fs_->ListExtended(file), List_{longest});
  EXPECT_FAILS(fs_->SetExtended(file, longest + "n", "v"), ERANGE);
  EXPECT_FAILS(fs_->SetExtended(file, std::string_view("user.a\0b", 8), "v"), EINVAL);
  EXPECT_FAILS(fs_->SetExtended(file, "system.x", "v"), ENOTSUP);
  EXPECT_FAILS(fs_->SetExtended(file, "other.x", "v"), ENOTSUP);
  EXPECT_FAILS(fs_->GetExtended(file, "security.selinux"), ENOTSUP);
  EXPECT_FAILS(fs_->SetExtended(file, "user.big", std::string((64 << 10) + 1, 'x')), E2BIG);
  const std::string largest = Pattern(7, 64 << 10);
  ASSERT_OK(fs_->SetExtended(file, "user.big", largest));
  EXPECT_EQ(*NewHost()->GetExtended(file, "user.big"), largest);
  ASSERT_OK(fs_->SetExtended(file, "user.more", std::string(15'500, 'x')));
  EXPECT_FAILS(fs_->SetExtended(file, "user.most", std::string(1000, 'x')), ENOSPC);
  EXPECT_EQ(fs_->ListExtended(file)->size(), 3u);
  // What there is leaves room for everything else that an inode has.
  const std::string name(255, 'f');
  ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, name));
  EXPECT_EQ(*fs_->GetExtended(file, "user.big"), largest);

  const InodeId link = fs_->MakeSymlink(kRootInode, "l", "x", {})->inode;
  EXPECT_FAILS(fs_->SetExtended(link, "user.a", "v"), EPERM);
  EXPECT_OK(fs_->SetExtended(link, "trusted.a", "v"));
}

// With the largest inline data, which a file keeps while it is opened, written and moved.
TEST_F(ExtendedTest, TheLargestAreNoHindranceToAFileThatLivesInItsInode) {
  machines_.config().inline_limit = kMaxInlineBytes;
  Host host = NewHost();
  const InodeId file = Make("file", "x");
  ASSERT_OK(host->SetExtended(file, "user.big", Pattern(7, 64 << 10)));
  ASSERT_OK(host->SetExtended(file, "user.more", Pattern(8, 16'000)));
  const std::string contents = Pattern(9, kMaxInlineBytes);
  auto open = host->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes(contents)));
  ASSERT_OK((*open)->Close());
  EXPECT_TRUE(InodeOf(file).map == std::nullopt);
  const std::string name(255, 'n');
  ASSERT_OK(host->Rename(kRootInode, "file", kRootInode, name));
  EXPECT_EQ(Contents("/" + name), contents);
  EXPECT_EQ(*fs_->GetExtended(file, "user.more"), Pattern(8, 16'000));
}

// The drives do not tell of so much in the message that brings them a new file.
TEST_F(ExtendedTest, ADirectoryMayHaveTheLargest) {
  const InodeId d = MakeDirectory("d");
  ASSERT_OK(fs_->SetExtended(d, "user.big", std::string(64 << 10, 'x')));
  Make("file", "contents", d);
  EXPECT_EQ(Contents("/d/file"), "contents");
  ASSERT_OK(fs_->Unlink(d, "file"));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
}

TEST_F(ExtendedTest, AFileInManyPiecesHasLessRoomForThem) {
  Inode inode;
  inode.size = 1 << 20;
  inode.inline_data = std::string(125'000, 'x');  // stands for a large block map
  EXPECT_OK(SetExtended(9, inode, "user.a", std::string(1000, 'x'), Mode::kSet));
  EXPECT_FAILS(SetExtended(9, inode, "user.b", std::string(5000, 'x'), Mode::kSet), ENOSPC);
  EXPECT_EQ(inode.attributes.size(), 1u);
}

TEST_F(ExtendedTest, TheChangeTimeMovesAndNothingElse) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetAttributes(file, {.modified = 5}));
  const Attributes before = *fs_->GetAttributes(file);
  ASSERT_OK(fs_->SetExtended(file, "user.a", "1"));
  const Attributes set = *fs_->GetAttributes(file);
  EXPECT_GT(set.changed, before.changed);
  EXPECT_EQ(set.modified, 5);
  ASSERT_OK(fs_->RemoveExtended(file, "user.a"));
  EXPECT_GT(fs_->GetAttributes(file)->changed, set.changed);
}

TEST_F(ExtendedTest, TheyStayWithAFileThatIsWrittenAndRenamed) {
  const InodeId file = Make("file", "old");
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes(Pattern(1, kTestBlock))));
  ASSERT_OK(fs_->SetExtended(file, "user.a", "while it is written"));
  ASSERT_OK(NewHost()->SetExtended(file, "user.b", "by another host"));
  ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "moved"));
  ASSERT_OK((*open)->Close());
  EXPECT_EQ(*fs_->GetExtended(file, "user.a"), "while it is written");
  EXPECT_EQ(*fs_->GetExtended(file, "user.b"), "by another host");
  EXPECT_EQ(Contents("/moved"), Pattern(1, kTestBlock));
}

TEST_F(ExtendedTest, AFileWithoutANameKeepsThemUntilItIsClosed) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, "user.a", "1"));
  auto open = fs_->Open(file, FileSystem::Access::kRead);
  ASSERT_OK(open);
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(*fs_->GetExtended(file, "user.a"), "1");
  ASSERT_OK(fs_->SetExtended(file, "user.b", "2"));
  EXPECT_EQ(*fs_->ListExtended(file), (List_{"user.a", "user.b"}));
  ASSERT_OK((*open)->Close());
  EXPECT_FAILS(fs_->ListExtended(file), ENOENT);
}

// The kernel asks before each write whether the file has capabilities to lose.
TEST_F(ExtendedTest, CapabilitiesOfAnOpenFileAreKnownWithoutAsking) {
  const InodeId file = Make("file", "x");
  auto open = fs_->Open(file, FileSystem::Access::kWrite);
  ASSERT_OK(open);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, true);
  EXPECT_FAILS(fs_->GetExtended(file, "security.capability"), ENODATA);
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.SetDown(id, false);
  ASSERT_OK(fs_->SetExtended(file, "security.capability", "c"));
  EXPECT_EQ(*fs_->GetExtended(file, "security.capability"), "c");
  ASSERT_OK(fs_->RemoveExtended(file, "security.capability"));
  EXPECT_FAILS(fs_->GetExtended(file, "security.capability"), ENODATA);
}

// Defect 13 of the ancestor: concurrent setters destroyed the attribute.
TEST_F(ExtendedTest, SettersAtTheSameTimeLoseNothing) {
  const InodeId file = Make("file", "x");
  std::vector<Host> hosts;
  for (int i = 0; i < 4; ++i) hosts.push_back(NewHost());
  RunTogether(4, [&](int i) {
    for (int n = 0; n < 10; ++n) {
      EXPECT_OK(hosts[i]->SetExtended(file, fmt::format("user.{}.{}", i, n), std::string(20, 'x')));
    }
  });
  EXPECT_EQ(fs_->ListExtended(file)->size(), 40u);
}

// The kernel asks for it before each write. While one opens the file, others have not seen yet what
// it has, and what runs with it must keep it.
TEST_F(ExtendedTest, ACapabilityIsNotMissedWhileAFileIsBeingOpened) {
  const std::string name = "security.capability";
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->SetExtended(file, name, "may bind"));
  int asked = 0;
  for (int round = 0; round < 20; ++round) {
    Host other = NewHost();
    bool opened = false;
    RunTogether(2, [&](int client) {
      if (client == 0) {
        const auto open = other->Open(file, FileSystem::Access::kWrite);
        opened = true;
        EXPECT_OK(open);
        return;
      }
      sim_.Sleep(std::chrono::microseconds(50) * round);
      for (; !opened; ++asked)
        EXPECT_EQ(other->GetExtended(file, name).value_or("none"), "may bind");
    });
  }
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace pinstripe
