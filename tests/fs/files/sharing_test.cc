// Several handles, several hosts: who sees what when, and what two writers do to each other.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"
#include "upkeep/checker.h"

namespace pinstripe {
namespace {

using SharingTest = FsTest;
using Access = FileSystem::Access;

std::unique_ptr<OpenFile> OpenAt(FileSystem* fs, std::string_view path,
                                 Access access = Access::kWrite) {
  const auto attributes = fs->Resolve(path);
  EXPECT_OK(attributes);
  auto file = fs->Open(attributes->inode, access);
  EXPECT_OK(file);
  return *std::move(file);
}

TEST_F(SharingTest, AllHandlesOfAHostSeeEachWriteAtOnce) {
  Make("file", "old");
  auto writer = OpenAt(fs_, "/file");
  auto reader = OpenAt(fs_, "/file", Access::kRead);
  ASSERT_OK(writer->Write(1, AsBytes("NEW")));
  EXPECT_EQ(ReadAll(*reader), "oNEW");
  EXPECT_EQ(fs_->Resolve("/file")->size, 4u);
  EXPECT_EQ((*fs_->ReadDirectory(kRootInode, "", 9, true))[0].attributes->size, 4u);
  ASSERT_OK(writer->Close());
  EXPECT_EQ(ReadAll(*reader), "oNEW");
}

// The kernel tells of a close when all is over for whoever closed the file, and may be writing it
// through another handle already. Who asks for the size while that close commits is not to hear of
// the size before.
TEST_F(SharingTest, AFileNeverShrinksForWhoLooksWhileItIsCommitted) {
  Make("file", "x");
  for (int round = 0; round < 100; ++round) {
    auto closed = OpenAt(fs_, "/file");
    auto file = OpenAt(fs_, "/file");
    ASSERT_OK(closed->Write(0, AsBytes("y")));
    const uint64_t size = 100 + static_cast<uint64_t>(round);
    ASSERT_OK(file->Write(size - 1, AsBytes("z")));
    RunTogether(2, [&](int client) {
      sim_.Sleep(std::chrono::microseconds(sim_.Below(1000)));
      if (client == 0) {
        EXPECT_OK(closed->Close());
        return;
      }
      EXPECT_EQ(fs_->GetAttributes(file->inode())->size, size);
      EXPECT_EQ(file->Stat()->size, size);
    });
    ASSERT_OK(file->Close());
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_F(SharingTest, AnotherHostSeesACommitAndNothingBefore) {
  Host other = NewHost();
  const std::string old_bytes = Pattern(1, 3 * kTestBlock);
  const std::string new_bytes = Pattern(2, 2 * kTestBlock + 5);
  Make("file", old_bytes);
  auto writer = OpenAt(fs_, "/file");
  ASSERT_OK(writer->Truncate(0));
  ASSERT_OK(writer->Write(0, AsBytes(new_bytes)));
  EXPECT_TRUE(Contents("/file", other.fs.get()) == old_bytes);
  EXPECT_EQ(other->Resolve("/file")->size, old_bytes.size());
  ASSERT_OK(writer->Commit());
  EXPECT_TRUE(Contents("/file", other.fs.get()) == new_bytes);
  ASSERT_OK(writer->Close());
}

TEST_F(SharingTest, AReaderElsewhereGoesOnWhenTheFileIsReplaced) {
  Host other = NewHost();
  Make("file", Pattern(1, 3 * kTestBlock));
  auto reader = OpenAt(other.fs.get(), "/file", Access::kRead);
  EXPECT_TRUE(ReadAll(*reader) == Pattern(1, 3 * kTestBlock));
  const std::string new_bytes = Pattern(2, 3 * kTestBlock);
  Make("file", new_bytes);
  sim_.Sleep(std::chrono::seconds(10));  // the old stripes are deleted meanwhile
  EXPECT_TRUE(ReadAll(*reader) == Pattern(1, 3 * kTestBlock));  // from memory
  other->SetMemory(1);
  EXPECT_TRUE(ReadAll(*reader) == new_bytes);
}

TEST_F(SharingTest, WhatIsPublishedAtCommitIsNowhereBefore) {
  Host other = NewHost();
  auto file = fs_->Create(kRootInode, "upload", {.mode = 0600, .publish_at_commit = true});
  ASSERT_OK(file);
  const std::string bytes = Pattern(1, 5 * kTestBlock + 1);
  ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
  EXPECT_TRUE(ReadAll(**file) == bytes);
  EXPECT_FAILS(fs_->Resolve("/upload"), ENOENT);
  EXPECT_FAILS(other->Resolve("/upload"), ENOENT);
  ASSERT_OK((*file)->Close());
  EXPECT_TRUE(Contents("/upload", other.fs.get()) == bytes);
  EXPECT_EQ(other->Resolve("/upload")->mode, 0600u);
}

TEST_F(SharingTest, AnUploadThatMeetsItsNameReplacesItOrFails) {
  for (const bool exclusive : {false, true}) {
    SCOPED_TRACE(exclusive);
    const std::string name = exclusive ? "b" : "a";
    auto file = fs_->Create(kRootInode, name, {.exclusive = exclusive, .publish_at_commit = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes("upload")));
    Make(name, "somebody else's");
    if (exclusive) {
      EXPECT_FAILS((*file)->Commit(), EEXIST);
      EXPECT_FAILS((*file)->Close(), EEXIST);
    } else {
      EXPECT_OK((*file)->Close());
    }
    EXPECT_EQ(Contents("/" + name), exclusive ? "somebody else's" : "upload");
  }
}

// A reader beside a writer whose commit failed has what nobody else will ever see.
TEST_F(SharingTest, WhatIsNotCommittedHasNoVersion) {
  const InodeId id = Make("a", "before");
  auto reader = fs_->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  const uint64_t before = (*reader)->Version();
  EXPECT_NE(before, 0u);
  auto writer = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(writer);
  EXPECT_EQ((*writer)->Version(), before);
  ASSERT_OK((*writer)->Write(0, AsBytes("behind")));
  EXPECT_EQ((*reader)->Version(), 0u);
  for (const DriveConfig& drive : machines_.config().drives) {
    machines_.drive(drive.id).Set({.full = true});
  }
  EXPECT_FAILS((*writer)->Close(), ENOSPC);
  EXPECT_EQ(ReadAll(**reader), "behind");
  EXPECT_EQ((*reader)->Version(), 0u);
  for (const DriveConfig& drive : machines_.config().drives) machines_.drive(drive.id).Set({});
  ASSERT_OK((*reader)->Sync());
  EXPECT_GT((*reader)->Version(), before);
}

TEST_F(SharingTest, AnUploadIntoARemovedDirectoryFails) {
  const InodeId directory = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  auto file = fs_->Create(directory, "upload", {.publish_at_commit = true});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("upload")));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  EXPECT_FAILS((*file)->Close(), ENOENT);
}

// Two hosts write to one file between the same two commits: for every form that the file may have,
// before and after, the bytes of both are there, and where they overlap, those of the later commit.
TEST_F(SharingTest, NobodysDisjointBytesAreLost) {
  Host other = NewHost();
  const std::vector<uint64_t> sizes{0, 100, 5000, 70000, kTestBlock + 5, 3 * kTestBlock};
  struct Range {
    uint64_t first, length;
  };
  const std::vector<Range> ranges{{0, 10},          {50, 100},
                                  {4000, 200},      {65000, 1000},
                                  {kTestBlock, 10}, {kTestBlock - 5, 10},
                                  {0, kTestBlock},  {2 * kTestBlock + 7, 9}};
  for (const uint64_t size : sizes) {
    for (const Range& a : ranges) {
      for (const Range& b : ranges) {
        SCOPED_TRACE(
            fmt::format("{} bytes, {}+{} and {}+{}", size, a.first, a.length, b.first, b.length));
        std::string expected = Pattern(1, size);
        Make("file", expected);
        auto one = OpenAt(fs_, "/file");
        auto two = OpenAt(other.fs.get(), "/file");
        const auto write = [&](OpenFile& file, const Range& range, uint64_t seed) {
          const std::string bytes = Pattern(seed, range.length);
          ASSERT_OK(file.Write(range.first, AsBytes(bytes)));
          if (expected.size() < range.first + range.length) {
            expected.resize(range.first + range.length);
          }
          expected.replace(range.first, range.length, bytes);
        };
        write(*one, a, 2);
        write(*two, b, 3);
        ASSERT_OK(one->Close());
        ASSERT_OK(two->Close());
        ASSERT_TRUE(Contents("/file") == expected);
        ASSERT_TRUE(Contents("/file", other.fs.get()) == expected);
      }
    }
  }
}

TEST_F(SharingTest, ATruncationAppliesToWhatTheOtherWrote) {
  Host other = NewHost();
  for (const uint64_t size : {100ul, 3 * kTestBlock}) {
    for (const uint64_t cut : {0ul, 50ul, kTestBlock + 9}) {
      SCOPED_TRACE(fmt::format("{} cut to {}", size, cut));
      Make("file", Pattern(1, size));
      auto one = OpenAt(fs_, "/file");
      auto two = OpenAt(other.fs.get(), "/file");
      ASSERT_OK(one->Write(0, AsBytes(Pattern(2, 2 * kTestBlock))));
      ASSERT_OK(two->Truncate(cut));
      ASSERT_OK(two->Truncate(cut + 1000));
      ASSERT_OK(two->Write(cut + 500, AsBytes("end")));
      ASSERT_OK(one->Close());
      ASSERT_OK(two->Close());
      std::string expected = Pattern(2, 2 * kTestBlock);
      if (size > expected.size()) expected += Pattern(1, size).substr(expected.size());
      expected.resize(cut);
      expected.resize(cut + 1000);
      expected.replace(cut + 500, 3, "end");
      ASSERT_TRUE(Contents("/file") == expected);
    }
  }
}

// Found by the model test (SEED=43): the name of an open file changes while a part of it was
// already sent, and its committed contents are inline.
TEST_F(SharingTest, ARenameOfAnOpenFileDisturbsNothing) {
  Host small = NewHost(1);  // no memory: everything is sent at once
  for (const uint64_t size : {0ul, 12ul, 70000ul, 3 * kTestBlock}) {
    SCOPED_TRACE(size);
    Make("file", Pattern(1, size));
    Make("other", "");
    auto file = OpenAt(small.fs.get(), "/file");
    ASSERT_OK(file->Write(1, AsBytes("x")));
    auto pressure = OpenAt(small.fs.get(), "/other");
    ASSERT_OK(pressure->Write(0, AsBytes(Pattern(2, 2 * kTestBlock))));
    ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "renamed"));
    ASSERT_OK(file->Close());
    ASSERT_OK(pressure->Close());
    std::string expected = Pattern(1, std::max<uint64_t>(size, 2));
    if (size == 0) expected[0] = '\0';
    expected[1] = 'x';
    EXPECT_TRUE(Contents("/renamed") == expected);
    ASSERT_OK(fs_->Unlink(kRootInode, "renamed"));
  }
}

// For who is in it, or has it open.
TEST_F(SharingTest, ARemovedDirectoryKeepsItsAttributes) {
  const InodeId d = fs_->MakeDirectory(kRootInode, "d", 0751, {3, 4})->inode;
  const InodeId e = fs_->MakeDirectory(kRootInode, "e", 0700, {5, 6})->inode;
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "f", 0755, {}));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  ASSERT_OK(fs_->Rename(kRootInode, "f", kRootInode, "e"));  // which it replaces
  const auto removed = fs_->GetAttributes(d);
  ASSERT_OK(removed);
  EXPECT_EQ(removed->links, 0u);
  EXPECT_EQ(removed->mode & 07777u, 0751u);
  EXPECT_EQ(removed->owner.group, 4u);
  ASSERT_OK(fs_->GetAttributes(e));
  EXPECT_EQ(fs_->GetAttributes(e)->owner.user, 5u);
  ASSERT_OK(fs_->SetAttributes(d, {.mode = 0711}));
  EXPECT_EQ(fs_->GetAttributes(d)->mode & 07777u, 0711u);

  // It is remembered that it was there, and it is not.
  EXPECT_FAILS(fs_->Lookup(kRootInode, "d"), ENOENT);
  EXPECT_FAILS(fs_->Lookup(d, "x"), ENOENT);
  EXPECT_FAILS(fs_->Create(d, "x", {}), ENOENT);
  EXPECT_FAILS(fs_->ReadDirectory(d, "", 10, false), ENOENT);
  EXPECT_FAILS(NewHost()->GetAttributes(d), ENOENT);
}

// Whoever has set them, before it was opened or after, until it was unlinked; and then its owner
// alone.
TEST_F(SharingTest, AnUnlinkedFileKeepsItsAttributes) {
  auto file = fs_->Create(kRootInode, "file", {.mode = 0644, .owner = {1, 2}});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("contents")));
  ASSERT_OK((*file)->Commit());
  const InodeId id = (*file)->inode();
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0711}));
  Host other = NewHost();
  ASSERT_OK(other->SetAttributes(id, {.group = 77, .modified = 12345}));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  const auto unlinked = fs_->GetAttributes(id);
  ASSERT_OK(unlinked);
  EXPECT_EQ(unlinked->links, 0u);
  EXPECT_EQ(unlinked->mode & 07777u, 0711u);
  EXPECT_EQ(unlinked->owner.user, 1u);
  EXPECT_EQ(unlinked->owner.group, 77u);
  EXPECT_EQ(unlinked->modified, 12345);
  EXPECT_EQ(unlinked->size, 8u);

  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600, .user = 5}));
  ASSERT_OK((*file)->Write(8, AsBytes(" and more")));
  ASSERT_OK((*file)->Commit());
  const auto later = (*file)->Stat();
  ASSERT_OK(later);
  EXPECT_EQ(later->mode & 07777u, 0600u);
  EXPECT_EQ(later->owner.user, 5u);
  EXPECT_EQ(later->owner.group, 77u);
  EXPECT_EQ(later->size, 17u);
  EXPECT_GT(later->modified, 12345);
  EXPECT_EQ(ReadAll(**file), "contents and more");
}

TEST_F(SharingTest, AnUnlinkedFileLivesUntilItsLastHandleHereIsClosed) {
  const std::string bytes = Pattern(1, 3 * kTestBlock);
  Make("file", bytes);
  auto file = OpenAt(fs_, "/file");
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_EQ(List(), std::vector<std::string>{});
  sim_.Sleep(std::chrono::seconds(5));
  EXPECT_TRUE(ReadAll(*file) == bytes);
  ASSERT_OK(file->Write(kTestBlock, AsBytes("more")));
  EXPECT_EQ(ReadAll(*file, kTestBlock, 4), "more");
  EXPECT_OK(file->Sync());
  EXPECT_OK(file->Close());
}

TEST_F(SharingTest, WhoCommitsToAFileThatAnotherHostRemovedIsTold) {
  Host other = NewHost();
  Make("file", "x");
  auto file = OpenAt(other.fs.get(), "/file");
  ASSERT_OK(file->Write(0, AsBytes("y")));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(file->Close(), ESTALE);
}

TEST_F(SharingTest, AHandleForReadingCannotWrite) {
  Make("file", "x");
  auto file = OpenAt(fs_, "/file", Access::kRead);
  EXPECT_FAILS(file->Write(0, AsBytes("y")), EBADF);
  EXPECT_FAILS(file->Append(AsBytes("y")), EBADF);
  EXPECT_FAILS(file->Truncate(0), EBADF);
  EXPECT_EQ(ReadAll(*file), "x");
}

TEST_F(SharingTest, AppendsOfManyThreadsAllArrive) {
  Make("file", "");
  auto file = OpenAt(fs_, "/file");
  std::map<uint64_t, char> where;
  RunTogether(4, [&](int i) {
    const std::string bytes(10'000, static_cast<char>('a' + i));
    for (int n = 0; n < 10; ++n) {
      const auto at = file->Append(AsBytes(bytes));
      ASSERT_OK(at);
      where[*at] = bytes[0];
    }
  });
  ASSERT_OK(file->Close());
  const std::string all = Contents("/file");
  ASSERT_EQ(all.size(), 400'000u);
  ASSERT_EQ(where.size(), 40u);
  for (const auto& [at, letter] : where) {
    EXPECT_EQ(all.substr(at, 10'000), std::string(10'000, letter));
  }
}

// Whichever way a file goes, who has it open on another host reads it for a while, and the data
// goes in the end.
TEST_F(SharingTest, ARemovedFileIsReadOnOtherHostsForAMinute) {
  const std::string contents = Pattern(1, 3 * kTestBlock);
  const std::vector<std::function<void()>> removals = {
      [&] { ASSERT_OK(fs_->Unlink(kRootInode, "file")); },
      [&] {
        Make("other", "x");
        ASSERT_OK(fs_->Rename(kRootInode, "other", kRootInode, "file"));
      },
      [&] {
        auto file = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
        ASSERT_OK((*file)->Write(0, AsBytes("y")));
        ASSERT_OK((*file)->Close());
      },
      [&] {  // while it is open here, too
        auto file = fs_->Open(fs_->Lookup(kRootInode, "file")->inode, FileSystem::Access::kRead);
        ASSERT_OK(fs_->Unlink(kRootInode, "file"));
        sim_.Sleep(std::chrono::minutes(10));
        EXPECT_EQ(ReadAll(**file), contents);
        ASSERT_OK((*file)->Close());
      }};
  Host other = NewHost();
  for (const auto& remove : removals) {
    auto made = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
    ASSERT_OK((*made)->Write(0, AsBytes(contents)));
    ASSERT_OK((*made)->Close());
    auto reader = other->Open((*made)->inode(), FileSystem::Access::kRead);
    ASSERT_OK(reader);
    remove();
    sim_.Sleep(std::chrono::seconds(50));
    EXPECT_EQ(ReadAll(**reader), contents);
    sim_.Sleep(std::chrono::seconds(30));
    EXPECT_EQ(ReadAll(**reader), contents);  // from memory
    other->SetMemory(1);
    std::string bytes(10, '?');
    EXPECT_FAILS((*reader)->Read(0, std::as_writable_bytes(std::span(bytes))), ESTALE);
    Checker checker(*host_.cluster, {});
    EXPECT_EQ(checker.Run().unused_shards, 0u);
    other->SetMemory(64 << 20);
  }
}

TEST_F(SharingTest, SetTimesCountNotTheWritesBefore) {
  Make("file", "x");
  auto file = OpenAt(fs_, "/file");
  ASSERT_OK(file->Write(0, AsBytes("y")));
  ASSERT_OK(file->SetAttributes({.accessed = 5, .modified = 7}));
  EXPECT_EQ(file->Stat()->modified, 7);
  ASSERT_OK(file->Close());
  EXPECT_EQ(fs_->Resolve("/file")->modified, 7);
  EXPECT_EQ(fs_->Resolve("/file")->accessed, 5);
  EXPECT_EQ(Contents("/file"), "y");
  const auto changed = fs_->SetAttributes(fs_->Resolve("/file")->inode, {.mode = 0400, .size = 3});
  ASSERT_OK(changed);
  EXPECT_EQ(changed->mode, 0400u);
  EXPECT_EQ(changed->size, 3u);
  EXPECT_EQ(Contents("/file"), std::string("y\0\0", 3));
}

}  // namespace
}  // namespace pinstripe
