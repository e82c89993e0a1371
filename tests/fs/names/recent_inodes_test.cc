// What was read a moment ago serves what is asked just after, and nothing else: not what this
// process has changed since, and not for longer than it is said to.

#include "fs/names/recent_inodes.h"

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kBytes = 100;
constexpr Duration kFor = RecentInodes::kRecentFile;

StoredInode File(uint64_t slot) { return {Inode{.size = slot}, slot}; }
StoredInode Directory(uint64_t slot) { return {Inode{.kind = FileKind::kDirectory}, slot}; }

class RecentInodesTest : public testing::Test {
 protected:
  uint64_t SlotOf(InodeId id, Duration age = Duration::max()) {
    const auto found = recent_.Find(id, age);
    return found ? found->slot : 0;
  }
  void Learn(InodeId id, const StoredInode& stored) {
    sim_.Sleep(milliseconds(1));
    recent_.Learn(id, stored, kBytes, sim_.Now());
  }

  SimRuntime sim_{1};
  RecentInodes recent_{sim_};
};

TEST_F(RecentInodesTest, AFileIsKnownForAMomentAndADirectoryForASecond) {
  Learn(7, File(1));
  Learn(8, Directory(2));
  EXPECT_EQ(SlotOf(7), 1u);
  EXPECT_EQ(SlotOf(8), 2u);
  EXPECT_EQ(SlotOf(8, Duration::zero()), 0u);
  EXPECT_FALSE(recent_.FindDirectory(7));
  sim_.Sleep(kFor);
  EXPECT_EQ(SlotOf(7), 0u);
  EXPECT_EQ(SlotOf(8), 2u);
  EXPECT_EQ(SlotOf(8, milliseconds(5)), 0u);
  EXPECT_TRUE(recent_.FindDirectory(8));
  sim_.Sleep(seconds(1));
  EXPECT_EQ(SlotOf(8), 0u);
}

TEST_F(RecentInodesTest, WhatWasReadBeforeAChangeIsNotLearnedAfterIt) {
  sim_.Sleep(milliseconds(1));
  const Time before = sim_.Now();
  sim_.Sleep(milliseconds(1));
  recent_.LearnOwn(7, File(2), before);
  recent_.Learn(7, File(1), kBytes, before);
  EXPECT_EQ(SlotOf(7), 0u);
  recent_.Forget(8);
  recent_.Learn(8, Directory(1), kBytes, before);
  EXPECT_EQ(SlotOf(8), 0u);
  Learn(7, File(2));
  EXPECT_EQ(SlotOf(7), 2u);
  // Another one in the same place, with the same to say of what was read before.
  recent_.Learn(7 + 64, File(5), kBytes, before);
  EXPECT_EQ(SlotOf(7 + 64), 0u);
  Learn(7 + 64, File(5));
  EXPECT_EQ(SlotOf(7 + 64), 5u);
  EXPECT_EQ(SlotOf(7), 0u);
}

TEST_F(RecentInodesTest, TheLaterOneCounts) {
  Learn(7, File(3));
  Learn(7, File(2));  // as it was found by replicas that have forgotten
  EXPECT_EQ(SlotOf(7), 3u);
  sim_.Sleep(seconds(1));
  Learn(7, File(2));
  EXPECT_EQ(SlotOf(7), 2u);
}

TEST_F(RecentInodesTest, WhatIsLongOrNotAtRestIsNotKept) {
  sim_.Sleep(milliseconds(1));
  recent_.Learn(7, File(1), RecentInodes::kMostBytes + 1, sim_.Now());
  EXPECT_EQ(SlotOf(7), 0u);
  StoredInode moving = File(2);
  moving.inode.intent.emplace();
  Learn(7, moving);
  EXPECT_EQ(SlotOf(7), 0u);
}

// What is not kept says all the same that what was known is old.
TEST_F(RecentInodesTest, NothingIsKnownOfWhatWasFoundNewerAndIsNotKept) {
  Learn(7, File(1));
  sim_.Sleep(milliseconds(1));
  recent_.Learn(7, File(2), RecentInodes::kMostBytes + 1, sim_.Now());
  EXPECT_EQ(SlotOf(7), 0u);
  // The read began before something else in the same place was changed.
  Learn(7, File(2));
  const Time begun = sim_.Now();
  recent_.Forget(7 + 64);
  recent_.Learn(7, File(3), kBytes, begun);
  EXPECT_EQ(SlotOf(7), 0u);
  // It began before the one that is known, and ended later.
  sim_.Sleep(milliseconds(1));
  const Time earlier = sim_.Now();
  Learn(7, File(3));
  recent_.Learn(7, File(4), kBytes, earlier);
  EXPECT_EQ(SlotOf(7), 4u);
}

TEST_F(RecentInodesTest, WhatWasChangedHereIsRemembered) {
  sim_.Sleep(milliseconds(1));
  const Time begun = sim_.Now();
  sim_.Sleep(milliseconds(1));
  EXPECT_FALSE(recent_.ChangedSince(7, begun));
  recent_.LearnOwn(7, File(1), begun);
  recent_.Forget(8);
  EXPECT_TRUE(recent_.ChangedSince(7, begun));
  EXPECT_TRUE(recent_.ChangedSince(8, begun));
  sim_.Sleep(milliseconds(1));
  EXPECT_FALSE(recent_.ChangedSince(7, sim_.Now()));
}

TEST_F(RecentInodesTest, ADirectoryThatOthersChangeIsLeftOut) {
  Learn(8, Directory(1));
  recent_.NoteOthers(8);
  Learn(8, Directory(2));
  EXPECT_EQ(SlotOf(8), 0u);
  sim_.Sleep(RecentInodes::kIsShared);
  Learn(8, Directory(3));
  EXPECT_EQ(SlotOf(8), 3u);
}

// ---- What they are for

class RecentFilesTest : public FsTest {
 protected:
  using Freshness = FileSystem::Freshness;

  void SetUp() override {
    FsTest::SetUp();
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(1)});
    }
  }

  uint64_t CountRequests(const std::function<void()>& body) {
    const auto all = [&] {
      uint64_t requests = 0;
      for (DriveId id = 1; id <= machines_.size(); ++id) {
        requests += machines_.drive(id).requests().total();
      }
      return requests;
    };
    const uint64_t before = all();
    body();
    return all() - before;
  }

  std::string OpenAndRead(FileSystem& fs, InodeId id) {
    const auto file = fs.Open(id, FileSystem::Access::kRead, false, Freshness::kAsLookedUp);
    EXPECT_OK(file);
    return file.has_value() ? ReadAll(**file) : "";
  }
};

// As the kernel asks for one open(2) and a read(2).
TEST_F(RecentFilesTest, WhoLooksASmallFileUpAndReadsItAsksOnce) {
  Make("file", "abc");
  Host other = NewHost();
  ASSERT_OK(other->Lookup(kRootInode, "file"));
  sim_.Sleep(kFor);
  InodeId id = 0;
  EXPECT_EQ(CountRequests([&] { id = other->Lookup(kRootInode, "file")->inode; }), 6u);
  EXPECT_EQ(CountRequests([&] {
              EXPECT_EQ(other->GetAttributes(id, seconds(1))->size, 3u);
              const auto file =
                  other->Open(id, FileSystem::Access::kRead, false, Freshness::kAsLookedUp);
              EXPECT_EQ((*file)->Stat(seconds(1))->size, 3u);
              EXPECT_EQ(ReadAll(**file), "abc");
              EXPECT_EQ(other->GetAttributes(kRootInode, seconds(1))->kind, FileKind::kDirectory);
            }),
            0u);
  // Who does not say that it may be old is told what is now.
  EXPECT_GT(CountRequests([&] { EXPECT_OK(other->GetAttributes(id)); }), 0u);
  EXPECT_GT(CountRequests([&] { EXPECT_OK(other->Open(id, FileSystem::Access::kRead)); }), 0u);
}

TEST_F(RecentFilesTest, WhatWasDoneHereIsSeenAtOnce) {
  const InodeId id = Make("file", "abc");
  const auto see = [&] {
    EXPECT_OK(fs_->Lookup(kRootInode, "file"));
    return *fs_->GetAttributes(id, seconds(1));
  };
  EXPECT_EQ(see().size, 3u);
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600}));
  EXPECT_EQ(fs_->GetAttributes(id, seconds(1))->mode, 0600u);
  see();
  ASSERT_OK(fs_->Link(id, kRootInode, "second"));
  EXPECT_EQ(fs_->GetAttributes(id, seconds(1))->links, 2u);
  see();
  auto writer = fs_->Open(id, FileSystem::Access::kWrite, false, Freshness::kAsLookedUp);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->Write(0, AsBytes(std::string_view("ABCD"))));
  EXPECT_EQ(fs_->GetAttributes(id, seconds(1))->size, 4u);
  EXPECT_EQ((*writer)->Stat(seconds(1))->size, 4u);
  see();
  ASSERT_OK((*writer)->Close());
  EXPECT_EQ(OpenAndRead(*fs_, id), "ABCD");
  EXPECT_EQ(fs_->GetAttributes(id, seconds(1))->size, 4u);
  see();
  ASSERT_OK(fs_->Unlink(kRootInode, "second"));
  EXPECT_EQ(fs_->GetAttributes(id, seconds(1))->links, 1u);
  see();
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_FAILS(fs_->GetAttributes(id, seconds(1)), ENOENT);
  EXPECT_FAILS(fs_->Open(id, FileSystem::Access::kRead, false, FileSystem::Freshness::kAsLookedUp),
               ENOENT);
  const auto directory = fs_->MakeDirectory(kRootInode, "d", 0755, {});
  ASSERT_OK(fs_->GetAttributes(directory->inode, seconds(1)));
  Make("in it", "x", directory->inode);
  const auto touched = fs_->GetAttributes(directory->inode, seconds(1));
  EXPECT_GT(touched->modified, directory->modified);
}

TEST_F(RecentFilesTest, WhatOthersDidIsSeenByTheNextLook) {
  const InodeId id = Make("file", "abc");
  Host other = NewHost();
  const auto look = [&] { ASSERT_OK(other->Lookup(kRootInode, "file")); };
  look();
  look();
  Make("file", "ABCD");
  look();
  EXPECT_EQ(OpenAndRead(*other.fs, id), "ABCD");
  // Without another look, what was seen counts for 10 ms. For this the other one is to be quick.
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) machines_.drive(drive).Set({});
  look();
  const Time looked = sim_.Now();
  Make("file", "12345");
  ASSERT_LT(sim_.Now() - looked, kFor);
  EXPECT_EQ(OpenAndRead(*other.fs, id), "ABCD");
  sim_.Sleep(kFor);
  EXPECT_EQ(OpenAndRead(*other.fs, id), "12345");
}

}  // namespace
}  // namespace pinstripe
