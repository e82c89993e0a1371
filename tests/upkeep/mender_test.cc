// What a process itself does about files that it committed while drives were away.

#include "upkeep/mender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/stripes/shard.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/events.h"

namespace pinstripe {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class MenderTest : public FsTest {
 protected:
  MenderTest() : FsTest({.drives = 6, .layout = {2, 2, 64 << 10}, .replicas = 5}) {
    SetLogLevel(LogLevel::kError);
  }

  void SetUp() override {
    FsTest::SetUp();
    contents_ = Pattern(1, 10 * kTestBlock + 17);
  }

  void Write(std::string_view name) {
    auto file = fs_->Create(kRootInode, name, {});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(contents_)));
    ASSERT_OK((*file)->Close());
  }
  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
  using AllDrives = std::map<DriveId, std::shared_ptr<MemoryDrive>>;
  AllDrives CopyAll() {
    AllDrives drives;
    for (DriveId id = 1; id <= 6; ++id) drives[id] = machines_.CopyOf(id);
    return drives;
  }
  // All lose their power at once; this host does not.
  void PlugAll(const AllDrives& drives) {
    for (const auto& [id, drive] : drives) machines_.Plug(id, drive);
  }
  // Shards that are not where they belong.
  size_t CountMoved(std::string_view path) {
    const auto attributes = fs_->Resolve(path);
    EXPECT_OK(attributes);
    const Inode inode = InodeOf(attributes->inode);
    size_t count = 0;
    for (const BlockMap::Part& part : inode.map->parts()) {
      for (const BlockRun& run : part.stretch->runs) count += run.moved.size();
    }
    return count;
  }

  std::string contents_;
};

// And the events of the cluster tell of all that.
TEST_F(MenderTest, WhatAHostMeetsIsToldOnce) {
  machines_.SetDown(1, true);
  Write("file");
  sim_.Sleep(seconds(30));
  machines_.SetDown(1, false);
  sim_.Sleep(minutes(11));
  for (const std::string& key : ShardsOn(2)) Rot(2, key);
  Host host = NewHost();
  EXPECT_TRUE(Contents("/file", host.fs.get()) == contents_);
  sim_.Sleep(minutes(12));
  const auto list = ReadEvents(*host_.cluster, INT64_MIN);
  ASSERT_OK(list);
  std::vector<std::string> told;
  for (const Event& event : list->events) told.push_back(event.Name());
  EXPECT_THAT(told, testing::IsSupersetOf({"drive-went", "drive-came", "spares-used",
                                           "files-mended", "damage-found", "damage-mended"}));
  EXPECT_LE(told.size(), 7u);  // what was damaged may be written again later than it is told
  uint64_t damaged = 0;
  uint64_t mended = 0;
  for (const Event& event : list->events) {
    if (event.kind == EventKind::kDamageFound) damaged += event.count;
    if (event.kind == EventKind::kDamageMended) mended += event.count;
  }
  EXPECT_GT(damaged, 0u);
  EXPECT_EQ(mended, damaged);
  host.fs.reset();
}

TEST_F(MenderTest, WhatWasWrittenWhileDrivesWereAwayIsMadeWholeWhenTheyAreBack) {
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  Write("file");
  ASSERT_GT(CountMoved("/file"), 0u);
  sim_.Sleep(minutes(30));
  EXPECT_GT(CountMoved("/file"), 0u);  // they are away still

  machines_.SetDown(1, false);
  machines_.SetDown(2, false);
  sim_.Sleep(seconds(30));
  EXPECT_EQ(CountMoved("/file"), 0u);
  ExpectClean(Check());
  EXPECT_EQ(Contents("/file"), contents_);
}

TEST_F(MenderTest, WhatComesBackFirstIsUsedFirst) {
  machines_.SetDown(1, true);
  machines_.SetDown(2, true);
  Write("file");
  const size_t moved = CountMoved("/file");
  machines_.SetDown(1, false);
  sim_.Sleep(minutes(2));
  EXPECT_LT(CountMoved("/file"), moved);
  EXPECT_GT(CountMoved("/file"), 0u);
  machines_.SetDown(2, false);
  sim_.Sleep(minutes(12));  // the longest that it leaves a file alone
  ExpectClean(Check());
}

TEST_F(MenderTest, AFileThatIsOpenIsMendedUnderItsReaders) {
  machines_.SetDown(1, true);
  Write("file");
  auto reader = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  EXPECT_EQ(ReadAll(**reader), contents_);
  machines_.SetDown(1, false);
  sim_.Sleep(seconds(30));
  EXPECT_EQ(CountMoved("/file"), 0u);
  const uint64_t degraded = host_.cluster->stripes().counters().degraded_reads;
  EXPECT_EQ(ReadAll(**reader), contents_);
  EXPECT_EQ(host_.cluster->stripes().counters().degraded_reads, degraded);
  ExpectClean(Check());
}

TEST_F(MenderTest, AFileThatIsBeingChangedIsLeftUntilItIsCommitted) {
  machines_.SetDown(1, true);
  Write("file");
  const InodeId id = fs_->Resolve("/file")->inode;
  auto writer = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(writer);
  ASSERT_OK((*writer)->Write(5, AsBytes("something else")));
  contents_.replace(5, 14, "something else");
  machines_.SetDown(1, false);
  sim_.Sleep(minutes(5));
  EXPECT_GT(CountMoved("/file"), 0u);
  ASSERT_OK((*writer)->Close());
  sim_.Sleep(minutes(12));
  EXPECT_EQ(CountMoved("/file"), 0u);
  EXPECT_EQ(Contents("/file"), contents_);
  ExpectClean(Check());
}

// A log, say. Every commit finds that there is something to mend.
TEST_F(MenderTest, WhoCommitsAllTheTimeDoesNotPutItOff) {
  machines_.SetDown(1, true);
  Write("file");
  machines_.SetDown(1, false);
  for (int i = 0; i < 30; ++i) {
    auto writer = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->Append(AsBytes("line\n")));
    ASSERT_OK((*writer)->Close());
    sim_.Sleep(seconds(2));
  }
  EXPECT_EQ(CountMoved("/file"), 0u);
}

TEST_F(MenderTest, AFileThatIsRemovedIsForgotten) {
  machines_.SetDown(1, true);
  Write("file");
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  machines_.SetDown(1, false);
  sim_.Sleep(minutes(5));
  ExpectClean(Check());
}

TEST_F(MenderTest, TheProcessEndsAtOnceWhateverWaits) {
  machines_.SetDown(1, true);
  Host other = NewHost();
  auto file = other->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(contents_)));
  ASSERT_OK((*file)->Close());
  file->reset();
  const Time begin = sim_.Now();
  other.fs.reset();
  EXPECT_LT(sim_.Now() - begin, seconds(11));  // the reaper may have work
  EXPECT_GT(CountMoved("/file"), 0u);
}

// Two drives die after they have taken shards and before these are safe from power loss.
TEST_F(MenderTest, WhatDrivesTookThatDieBeforeTheirFlushIsStoredElsewhere) {
  const auto write = [&](OpenFile& file, uint64_t seed) {
    const std::string bytes = Pattern(seed, 10 * kTestBlock);
    EXPECT_OK(file.Write(0, AsBytes(bytes)));
    return bytes;
  };
  const auto expect_elsewhere = [&](InodeId id, const std::string& bytes) {
    const Inode inode = InodeOf(id);
    for (uint64_t block = 0; block < 10; ++block) {
      const auto place = inode.map->Find(block);
      ASSERT_TRUE(place);
      const auto drives =
          host_.cluster->stripes().DrivesOf(place->IdOf(block), place->layout, place->place);
      ASSERT_OK(drives);
      // Without both it would be readable, and one more loss of power would be too many.
      EXPECT_LE(drives->count(2) + drives->count(3), 1u) << block;
    }
    EXPECT_TRUE(Contents("/file") == bytes);
  };
  auto file = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  const InodeId id = (*file)->inode();
  std::string bytes = write(**file, 1);
  machines_.SetDown(2, true);
  machines_.SetDown(3, true);
  ASSERT_OK((*file)->Sync());
  expect_elsewhere(id, bytes);
  machines_.SetDown(2, false);
  machines_.SetDown(3, false);
  sim_.Sleep(seconds(30));
  // The same for what is changed in place, which is flushed without being asked for.
  bytes = write(**file, 2);
  machines_.SetDown(2, true);
  machines_.SetDown(3, true);
  ASSERT_OK((*file)->Close());
  expect_elsewhere(id, bytes);
}

// And what could not be stored elsewhere is nothing that this host has written: it does not come
// back over what others write later.
TEST_F(MenderTest, WhatCouldNotBeStoredAgainIsForgottenWhenOthersWrite) {
  const auto set = [&](bool bad) {
    for (DriveId id = 1; id <= 6; ++id) {
      if (id == 2 || id == 3) {
        machines_.SetDown(id, bad);
      } else {
        DriveFaults faults = machines_.drive(id).faults();
        faults.full = bad;
        machines_.drive(id).Set(faults);
      }
    }
    sim_.Sleep(seconds(10));
  };
  for (const bool shorter : {false, true}) {
    auto file = fs_->Create(kRootInode, "file", {.truncate = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(contents_)));
    ASSERT_OK((*file)->Commit());
    set(true);
    EXPECT_FALSE((*file)->Sync().ok());
    set(false);
    const std::string theirs = Pattern(3, shorter ? 1000 : contents_.size());
    Host other = NewHost();
    auto same = other->Open((*file)->inode(), FileSystem::Access::kWrite, /*truncate=*/true);
    ASSERT_OK(same);
    ASSERT_OK((*same)->Write(0, AsBytes(theirs)));
    ASSERT_OK((*same)->Close());
    ASSERT_OK(fs_->Open((*file)->inode(), FileSystem::Access::kRead)) << "it knows of it now";
    EXPECT_TRUE(ReadAll(**file) == theirs);
    EXPECT_OK((*file)->Sync());
    EXPECT_OK((*file)->Close());
    EXPECT_TRUE(Contents("/file", other.fs.get()) == theirs);
  }
}

// Drives that lose their power, and with it what they have not flushed, and come back: they are up
// all the time as far as the flush is concerned.
TEST_F(MenderTest, WhatDrivesForgotWithTheirPowerIsStoredAgain) {
  const std::string bytes = Pattern(7, 10 * kTestBlock);
  auto file = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  const auto second = machines_.CopyOf(2);
  const auto third = machines_.CopyOf(3);
  ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
  ASSERT_OK((*file)->Commit());
  machines_.Plug(2, second);
  machines_.Plug(3, third);
  ASSERT_OK((*file)->Sync());
  machines_.SetDown(1, true);  // one more than what was left could bear
  EXPECT_TRUE(Contents("/file") == bytes);
  machines_.SetDown(1, false);
  // What is safe now is not stored each time.
  const auto puts = [&] { return machines_.drive(4).requests().put; };
  const uint64_t before = puts();
  ASSERT_OK((*file)->Sync());
  EXPECT_EQ(puts(), before);
}

// What all of them forgot is lost, and fsync does not say otherwise, however often it is asked, and
// whether the file was looked at in between.
TEST_F(MenderTest, WhatAllDrivesForgotIsNotCalledSafe) {
  for (const bool looks : {false, true}) {
    const std::string name = looks ? "a" : "b";
    auto file = fs_->Create(kRootInode, name, {});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Sync());
    const AllDrives safe = CopyAll();
    ASSERT_OK((*file)->Write(0, AsBytes(contents_)));
    ASSERT_OK((*file)->Commit());
    PlugAll(safe);
    if (looks) Contents("/" + name);
    EXPECT_FALSE((*file)->Sync().ok());
    EXPECT_FALSE((*file)->Sync().ok());
    // Who opens it anew goes on with what there is.
    file->reset();
    auto again = fs_->Open(fs_->Resolve("/" + name)->inode, FileSystem::Access::kWrite);
    ASSERT_OK(again);
    ASSERT_OK((*again)->Write(0, AsBytes(contents_)));
    EXPECT_OK((*again)->Sync());
    EXPECT_TRUE(Contents("/" + name) == contents_);
  }
}

// Drives that go back to the inode as it was have to have what it names.
TEST_F(MenderTest, WhatWasReplacedStaysWhenDrivesForgetThatItWas) {
  Write("file");
  sim_.Sleep(seconds(30));
  const AllDrives safe = CopyAll();
  {
    auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(9, contents_.size()))));
    ASSERT_OK((*file)->Close());
  }
  PlugAll(safe);
  sim_.Sleep(minutes(10));
  Host other = NewHost();
  EXPECT_TRUE(Contents("/file", other.fs.get()) == contents_);
}

TEST_F(MenderTest, WhatWasRemovedStaysWhenDrivesForgetThatItWas) {
  Write("file");
  sim_.Sleep(seconds(30));
  const AllDrives safe = CopyAll();
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  PlugAll(safe);
  sim_.Sleep(minutes(10));
  Host other = NewHost();
  EXPECT_TRUE(Contents("/file", other.fs.get()) == contents_);
}

TEST_F(MenderTest, WhatWasRemovedGoesThoughADriveWasAwayForAMoment) {
  Write("file");
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  machines_.SetDown(1, true);
  sim_.Sleep(seconds(1));
  machines_.SetDown(1, false);
  sim_.Sleep(minutes(10));
  ExpectClean(Check());
}

class MenderPagesTest : public MenderTest {
 protected:
  MenderPagesTest() { options_ = kSmallPages; }
};

TEST_F(MenderPagesTest, PagesOfABlockMapAreStoredElsewhereAsWell) {
  auto file = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  const InodeId id = (*file)->inode();
  std::string bytes;
  for (uint64_t block = 0; block < 30; ++block) {  // each a run of its own
    const std::string more = Pattern(block, kTestBlock);
    ASSERT_OK((*file)->Write(bytes.size(), AsBytes(more)));
    ASSERT_OK((*file)->Commit());
    bytes += more;
    sim_.Sleep(seconds(2));  // or they have the same write id
  }
  const auto drives_of_pages = [&] {
    std::vector<std::set<DriveId>> all;
    const Inode inode = InodeOf(id);
    for (const BlockMap::Part& part : inode.map->parts()) {
      if (!part.stretch->page) continue;
      const BlockPlace& page = *part.stretch->page;
      const auto drives = host_.cluster->stripes().DrivesOf(part.PageId(), page.layout, page.place);
      EXPECT_OK(drives);
      all.push_back(*drives);
    }
    return all;
  };
  // Two of the three drives that have the first page.
  const auto before = drives_of_pages();
  ASSERT_FALSE(before.empty());
  ASSERT_EQ(before.front().size(), 3u);
  const DriveId a = *before.front().begin();
  const DriveId b = *before.front().rbegin();
  machines_.SetDown(a, true);
  machines_.SetDown(b, true);
  ASSERT_OK((*file)->Sync());
  for (const std::set<DriveId>& drives : drives_of_pages()) {
    EXPECT_GE(drives.size() - drives.count(a) - drives.count(b), 2u);
  }
  EXPECT_TRUE(Contents("/file") == bytes);
}

}  // namespace
}  // namespace pinstripe
