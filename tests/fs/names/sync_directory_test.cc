// fsync of directories, and of new files, while drives lose their power and what they have not
// flushed, one after the other, so that each loss alone would be none.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/map/placement.h"
#include "cluster/membership/epoch_change.h"
#include "fs/names/unsynced_changes.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

class SyncDirectoryTest : public FsTest {
 protected:
  static constexpr int kNames = 30;  // so that of their inodes some are on any two drives
  using Drives = std::vector<std::shared_ptr<MemoryDrive>>;

  Drives CopyAll() {
    Drives copies;
    for (DriveId id = 1; id <= machines_.size(); ++id) copies.push_back(machines_.CopyOf(id));
    return copies;
  }
  // These drives go back to what they held, one after the other.
  void LosePower(const Drives& before, std::span<const DriveId> drives) {
    for (const DriveId id : drives) {
      machines_.Plug(id, before[id - 1]);
      sim_.Sleep(1s);
    }
  }
  // Those that have the entries of the root, and then the others.
  std::vector<DriveId> RootHomesFirst() {
    std::vector<DriveId> drives =
        host_.cluster->NewestPlacement()->RegisterHomes(host_.cluster->GroupOfObject(kRootInode));
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      if (std::ranges::find(drives, id) == drives.end()) drives.push_back(id);
    }
    return drives;
  }

  static std::string Name(const std::string& kind, int number) {
    return kind + std::to_string(number);
  }
  bool IsThere(FileSystem& fs, const std::string& name) {
    const auto found = fs.Resolve("/" + name);
    EXPECT_TRUE(found.has_value() || found.error().code() == ENOENT) << name;
    return found.has_value();
  }
  // For any other host, whichever drive is away.
  void ExpectNames(const std::string& kind, bool there) {
    for (DriveId away = 1; away <= machines_.size(); ++away) {
      machines_.SetDown(away, true);
      Host other = NewHost();
      for (int i = 0; i < kNames; ++i) {
        EXPECT_EQ(IsThere(*other.fs, Name(kind, i)), there) << Name(kind, i) << " without " << away;
      }
      other = {};
      machines_.SetDown(away, false);
      sim_.Sleep(1s);
    }
  }

  uint64_t DurablePuts() {
    uint64_t puts = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      puts += machines_.drive(id).requests().durable_put;
    }
    return puts;
  }
};

TEST_F(SyncDirectoryTest, WhatDrivesForgotOneAfterTheOtherIsMadeAgain) {
  for (int i = 0; i < kNames; ++i) {
    Make(Name("old", i), "x");
    Make(Name("from", i), "x");
  }
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  sim_.Sleep(1s);
  const std::vector<DriveId> homes = RootHomesFirst();
  for (const size_t count : {2u, 5u}) {
    SCOPED_TRACE(count);
    const std::string round = std::to_string(count) + "-";
    const Drives before = CopyAll();
    for (int i = 0; i < kNames; ++i) {
      Make(Name("new" + round, i), i % 2 == 0 ? "x" : Pattern(1, 3000));  // within the inode
      ASSERT_OK(fs_->MakeDirectory(kRootInode, Name("dir" + round, i), 0755, {}));
      if (count == 2) {
        ASSERT_OK(fs_->Unlink(kRootInode, Name("old", i)));
      }
    }
    sim_.Sleep(1s);
    LosePower(before, std::span(homes).first(count));
    ASSERT_OK(fs_->SyncDirectory(kRootInode));
    ExpectNames("new" + round, true);
    ExpectNames("dir" + round, true);
    ExpectNames("old", false);
  }
}

TEST_F(SyncDirectoryTest, ANewFileThatIsSafeHasItsName) {
  const Drives before = CopyAll();
  std::vector<std::unique_ptr<OpenFile>> files;
  for (int i = 0; i < kNames; ++i) {  // whose inodes are not all where the names are
    auto file = fs_->CreateUnnamed(kRootInode, 0644, {});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes("contents")));
    ASSERT_OK(fs_->Link((*file)->inode(), kRootInode, Name("f", i)));
    ASSERT_OK((*file)->Commit());
    files.push_back(*std::move(file));
  }
  sim_.Sleep(1s);
  const std::vector<DriveId> homes = RootHomesFirst();
  LosePower(before, std::span(homes).first(2));
  machines_.SetDown(homes[2], true);  // which alone knows the names
  std::vector<int> safe;
  for (int i = 0; i < kNames; ++i) {
    if (files[static_cast<size_t>(i)]->Sync().ok()) safe.push_back(i);
  }
  EXPECT_GT(safe.size(), 3u);  // of the others the inode was forgotten
  Host other = NewHost();
  for (const int i : safe) EXPECT_TRUE(IsThere(*other.fs, Name("f", i))) << i;
}

// It has taken nothing, and forgets nothing.
TEST_F(SyncDirectoryTest, ADriveThatIsAwayAllTheTimeCostsNothing) {
  machines_.SetDown(1, true);
  for (int i = 0; i < kNames; ++i) Make(Name("f", i), "x");
  const uint64_t before = DurablePuts();
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  EXPECT_EQ(DurablePuts(), before);
}

// One that goes away after it has taken something may have been one of just enough.
TEST_F(SyncDirectoryTest, WhatADriveThatWentAwayHadTakenIsStoredOnEnoughOthers) {
  for (int i = 0; i < kNames; ++i) Make(Name("f", i), "x");
  machines_.SetDown(1, true);
  const uint64_t before = DurablePuts();
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  const uint64_t after = DurablePuts();
  EXPECT_GT(after, before);
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  EXPECT_EQ(DurablePuts(), after) << "it is safe";
}

TEST_F(SyncDirectoryTest, WhatIsNeverSyncedIsNotRememberedForEver) {
  const auto flushes = [&] { return machines_.drive(1).requests().flush; };
  const uint64_t before = flushes();
  const auto some = static_cast<int>(UnsyncedChanges::kMost) / 4;
  for (int i = 0; i < some; ++i) Make(Name("f", i), "x");
  EXPECT_EQ(flushes(), before);
  for (int i = some; i < 4 * some; ++i) Make(Name("f", i), "x");
  EXPECT_GE(flushes(), before + 1);
  EXPECT_LE(flushes(), before + 4);
}

TEST_F(SyncDirectoryTest, NorAreManyLargeValues) {
  UnsyncedChanges changes(*host_.cluster);
  const auto flushes = [&] { return machines_.drive(1).requests().flush; };
  const auto add = [&](size_t number, uint64_t slot) {
    RegisterValue value{.slot = slot, .value = std::string(32 << 10, 'x')};
    changes.Add(changes.Begin(), {1, std::to_string(number)}, value);
  };
  constexpr size_t kFit = UnsyncedChanges::kMostBytes / (32 << 10);
  const uint64_t before = flushes();
  for (size_t i = 1; i < kFit; ++i) add(i, 1);
  for (size_t i = 1; i < kFit; ++i) add(i, 2);  // instead of the former
  EXPECT_EQ(flushes(), before);
  add(kFit, 1);
  EXPECT_EQ(flushes(), before + 1);
  for (size_t i = 1; i < kFit; ++i) add(i, 3);
  EXPECT_EQ(flushes(), before + 1);
}

// Nor for as long as drives cannot be flushed. Of what was too much it is known that it was there.
TEST_F(SyncDirectoryTest, WhatCannotBeSyncedIsBoundedToo) {
  UnsyncedChanges changes(*host_.cluster);
  constexpr size_t kFit = UnsyncedChanges::kMostBytesAtAll / (32 << 10);
  const auto add = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) {
      RegisterValue value{.slot = 1, .value = std::string(32 << 10, 'x')};
      changes.Add(changes.Begin(), {1, std::to_string(i)}, value);
    }
  };
  add(1);
  for (const DriveId id : {1, 2}) machines_.SetDown(id, true);
  EXPECT_FAILS(changes.Sync(), EIO);
  add(2 * kFit);
  EXPECT_FAILS(changes.Sync(), EIO);
  for (const DriveId id : {1, 2}) machines_.SetDown(id, false);
  sim_.Sleep(5s);
  EXPECT_FAILS(changes.Sync(), EIO) << "more were made than are known";
  ASSERT_OK(changes.Sync());
}

// In a later epoch a name that was never used is in a later slot than what was done with it before.
// Of what was made and removed nothing is to be there, and of what was made nothing is.
TEST_F(SyncDirectoryTest, WhatWasForgottenBeforeAnEpochIsToldWhereItMatters) {
  for (const bool removed : {false, true}) {
    const std::string name = removed ? "made and removed" : "made";
    SCOPED_TRACE(name);
    ASSERT_OK(fs_->SyncDirectory(kRootInode));
    sim_.Sleep(1s);
    const Drives before = CopyAll();
    Make(name, "x");
    if (removed) {
      ASSERT_OK(fs_->Unlink(kRootInode, name));
    }
    sim_.Sleep(1s);
    LosePower(before, RootHomesFirst());
    ASSERT_OK(RenewEpoch(*NewHost().cluster));
    EXPECT_FALSE(IsThere(*NewHost().fs, name)) << "after which it is used in this epoch";
    const Status synced = fs_->SyncDirectory(kRootInode);
    EXPECT_EQ(synced.ok(), removed) << synced.message();
    EXPECT_FALSE(IsThere(*NewHost().fs, name));
  }
}

// It can be told, and not mended: so it is told once, and the others are safe.
TEST_F(SyncDirectoryTest, WhatIsLostForGoodIsToldOnce) {
  Make("file", "x");
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  const InodeId file = fs_->Lookup(kRootInode, "file")->inode;
  sim_.Sleep(1s);
  const Drives before = CopyAll();
  ASSERT_OK(fs_->SetAttributes(file, {.mode = 0700}));
  for (int i = 0; i < kNames; ++i) Make(Name("new", i), "x");
  sim_.Sleep(1s);
  const std::vector<DriveId> all = RootHomesFirst();
  LosePower(before, all);
  Host other = NewHost();
  ASSERT_OK(other->SetAttributes(file, {.mode = 0711}));  // in the slot of ours
  EXPECT_FAILS(fs_->SyncDirectory(kRootInode), EIO);
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  ExpectNames("new", true);
}

// Three hosts with up to two drives; no register has two replicas on one host.
class HostsTest : public SyncDirectoryTest {
 protected:
  HostsTest() {
    for (size_t i = 0; i < machines_.config().drives.size(); ++i) {
      machines_.config().drives[i].domain = fmt::format("host {}", i / 2);
    }
  }
};

TEST_F(HostsTest, AHostThatIsAwayStopsNobody) {
  for (const DriveId id : {3, 4}) machines_.SetDown(id, true);
  for (int i = 0; i < kNames; ++i) Make(Name("f", i), "x");
  ASSERT_OK(fs_->SyncDirectory(kRootInode));
  machines_.SetDown(1, true);
  EXPECT_FAILS(fs_->SyncDirectory(kRootInode), EIO);
}

}  // namespace
}  // namespace pinstripe
