// When the data of replaced and removed files goes.

#include "fs/files/reaper.h"

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class ReaperTest : public FsTest {
 protected:
  DriveRequests Requests() {
    DriveRequests sum;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      const DriveRequests one = machines_.drive(id).requests();
      sum.remove += one.remove;
      sum.flush += one.flush;
      sum.durable_put += one.durable_put;
    }
    return sum;
  }

  // What had been asked of the drives when the first shard went, and when that was.
  DriveRequests UntilSomethingGoes(Duration at_most) {
    const DriveRequests before = Requests();
    const Time end = sim_.Now() + at_most;
    while (Requests().remove == before.remove && sim_.Now() < end) sim_.Sleep(milliseconds(1));
    DriveRequests made = Requests();
    made.remove -= before.remove;
    made.flush -= before.flush;
    made.durable_put -= before.durable_put;
    return made;
  }
};

TEST_F(ReaperTest, WhatWasReplacedGoesOnceItIsSafeThatItWas) {
  Make("file", Pattern(1, 2 * kTestBlock));
  Make("file", Pattern(2, 2 * kTestBlock));
  const Time begin = sim_.Now();
  const DriveRequests made = UntilSomethingGoes(minutes(1));
  EXPECT_GT(made.remove, 0u);
  EXPECT_EQ(made.flush, machines_.size());
  EXPECT_EQ(made.durable_put, 0u);
  EXPECT_GE(sim_.Now() - begin, Reaper::kGather - seconds(1));
}

// Three of its steps are safe from power loss before the next one: that it is under way, the new
// name, and that the old one is gone. docs/format.md, "What a loss of power leaves", says why.
TEST_F(ReaperTest, ARenameIsSafeBeforeWhatItReplacesOrLeavesGoes) {
  Make("a", "1");
  Make("b", "2");
  const InodeId directory = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  const auto written_through = [&](InodeId target, std::string_view from, std::string_view to) {
    const uint64_t before = Requests().durable_put;
    EXPECT_OK(fs_->Rename(kRootInode, from, target, to));
    return Requests().durable_put - before;
  };
  constexpr uint64_t kReplicas = 3;
  EXPECT_EQ(written_through(kRootInode, "a", "c"), 3 * kReplicas);
  EXPECT_EQ(written_through(kRootInode, "c", "b"), 3 * kReplicas);
  EXPECT_EQ(written_through(directory, "b", "e"), 3 * kReplicas);
}

TEST_F(ReaperTest, WhatWasRemovedGoesAfterAWhileAndOnceThatIsSafe) {
  Make("file", Pattern(1, 2 * kTestBlock));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  const Time begin = sim_.Now();
  const DriveRequests made = UntilSomethingGoes(minutes(2));
  EXPECT_GT(made.remove, 0u);
  EXPECT_EQ(made.flush, machines_.size());
  EXPECT_GE(sim_.Now() - begin, Reaper::kGrace);
}

// Drive 1 may be the one that has the inode's latest state, so a majority of the others is asked to
// store it for certain.
TEST_F(ReaperTest, ADriveThatCannotBeFlushedIsNotWaitedFor) {
  for (int i = 0; i < 8; ++i) Make(fmt::format("f{}", i), Pattern(1, 2 * kTestBlock));
  machines_.SetDown(1, true);
  for (int i = 0; i < 8; ++i) ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{}", i)));
  const DriveRequests before = Requests();
  sim_.Sleep(minutes(2));
  EXPECT_GE(Requests().remove, before.remove + 8 * 2 * 2);  // of 3 shards each 2 can be reached
  EXPECT_GT(Requests().durable_put, before.durable_put);
}

TEST_F(ReaperTest, OneFlushServesManyFiles) {
  for (int i = 0; i < 60; ++i) Make(fmt::format("f{}", i), Pattern(1, 2 * kTestBlock));
  const DriveRequests before = Requests();
  for (int i = 0; i < 60; ++i) {
    ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{}", i)));
    sim_.Sleep(seconds(1));
  }
  sim_.Sleep(minutes(2));
  EXPECT_GE(Requests().remove, before.remove + 60 * 2 * 3);
  EXPECT_LE(Requests().flush - before.flush, 14 * machines_.size());
}

// A change in place flushes what it has written, and asks nothing of the blocks beside it.
TEST_F(ReaperTest, AFileCanBeChangedInPlaceWhileADriveIsAway) {
  const InodeId id = Make("file", Pattern(1, 20 * kTestBlock));
  machines_.SetDown(2, true);
  Host host = NewHost();  // one that has not written it
  auto writer = host->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->Append(AsBytes("!")));
  EXPECT_OK((*writer)->Close());
  EXPECT_EQ(Contents("/file"), Pattern(1, 20 * kTestBlock) + "!");
}

TEST_F(ReaperTest, WhatWasSyncedIsSafeAlready) {
  Make("file", Pattern(1, 2 * kTestBlock));
  auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite, true);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(2, 2 * kTestBlock))));
  ASSERT_OK((*file)->Sync());
  const DriveRequests made = UntilSomethingGoes(minutes(1));
  EXPECT_GT(made.remove, 0u);
  EXPECT_EQ(made.flush, 0u);
  ASSERT_OK((*file)->Close());
}

// What nobody has named needs no ceremony.
TEST_F(ReaperTest, WhatWasNeverCommittedGoesAtOnce) {
  auto file = fs_->Create(kRootInode, "file", {.publish_at_commit = true});
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(9, 2 * kTestBlock))));
  sim_.Sleep(seconds(1));
  file->reset();
  const DriveRequests made = UntilSomethingGoes(seconds(1));
  EXPECT_GT(made.remove, 0u);
  EXPECT_EQ(made.flush, 0u);
}

}  // namespace
}  // namespace pinstripe
