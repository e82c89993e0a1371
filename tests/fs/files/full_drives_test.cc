// Drives that fill up at any moment: whatever an operation was about to do with names, it is done,
// or it is not, and says which.

#include "cluster/stripes/full_drives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fs/files/reaper.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

class FullDrivesTest : public FsTest {
 protected:
  // From now on so many puts fit, on all drives together.
  void LeaveRoomFor(int64_t puts) {
    const auto room = std::make_shared<std::atomic<int64_t>>(puts);
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id)).Set({.room = room});
    }
  }
  void MakeRoom() {
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id)).Set({});
    }
    sim_.Sleep(std::chrono::seconds(30));  // what was on its way arrives
  }

  Status Upload(std::string_view name, std::string_view contents) {
    auto file = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    if (!file.has_value()) return file.error();
    const Status written = (*file)->Write(0, AsBytes(contents));
    return written.ok() ? (*file)->Close() : written;
  }
};

// The old contents or the new ones; and never neither, which is what happened when the name had
// been given, and the drives then had no room for the time of its directory.
TEST_F(FullDrivesTest, AnUploadOverAFileLeavesOneOfTheTwo) {
  bool done = false;
  for (int64_t puts = 0; !done; ++puts) {
    ASSERT_LT(puts, 200);
    const std::string name = fmt::format("f{}", puts);
    Make(name, "old");
    LeaveRoomFor(puts);
    const Status uploaded = Upload(name, "new");
    MakeRoom();
    done = uploaded.ok();
    Host other = NewHost();
    const std::string found = Contents("/" + name, other.fs.get());
    if (uploaded.ok()) {
      ASSERT_EQ(found, "new") << puts << " puts";
    } else if (uploaded.code() == ENOSPC) {
      ASSERT_EQ(found, "old") << puts << " puts: " << uploaded.message();
    } else {
      ASSERT_EQ(uploaded.code(), EIO) << uploaded.message();
      ASSERT_TRUE(found == "old" || found == "new") << puts << " puts: " << found;
    }
  }
}

// What fails for want of room has left nothing behind that can be seen; what succeeds is there.
TEST_F(FullDrivesTest, ANameIsGivenOrNotAndTheAnswerSaysWhich) {
  const InodeId target = Make("target", "x");
  using Operation = std::function<Status(const std::string&)>;
  const std::pair<const char*, Operation> operations[] = {
      {"create",
       [&](const std::string& name) { return StatusOf(fs_->Create(kRootInode, name, {})); }},
      {"upload", [&](const std::string& name) { return Upload(name, "new"); }},
      {"mkdir",
       [&](const std::string& name) {
         return StatusOf(fs_->MakeDirectory(kRootInode, name, 0755, {}));
       }},
      {"link",
       [&](const std::string& name) { return StatusOf(fs_->Link(target, kRootInode, name)); }},
  };
  for (const auto& [what, operation] : operations) {
    bool done = false;
    for (int64_t puts = 0; !done; ++puts) {
      ASSERT_LT(puts, 200);
      const std::string name = fmt::format("{}{}", what, puts);
      const uint32_t links = fs_->GetAttributes(target)->links;
      LeaveRoomFor(puts);
      const Status status = operation(name);
      MakeRoom();
      done = status.ok();
      Host other = NewHost();
      const auto found = other->Lookup(kRootInode, name);
      if (status.ok()) {
        ASSERT_OK(found) << what << ", " << puts << " puts";
      } else if (status.code() == ENOSPC) {
        ASSERT_FAILS(found, ENOENT) << what << ", " << puts << " puts: " << status.message();
      } else {
        ASSERT_EQ(status.code(), EIO) << status.message();
      }
      // A file counts its names, or more of them.
      const uint32_t names = found.has_value() && std::string_view(what) == "link" ? 1 : 0;
      ASSERT_GE(other->GetAttributes(target)->links, std::min(links, 1 + names));
    }
  }
}

// Whatever its last commit has left on the drives: then it is gone, or it was there before.
TEST_F(FullDrivesTest, AnUploadThatFailedHalfWayIsDiscardedOrTheAnswerSaysWhyNot) {
  int half_way = 0;
  for (const bool over_a_file : {false, true}) {
    bool done = false;
    for (int64_t puts = 0; !done; ++puts) {
      ASSERT_LT(puts, 200);
      const std::string name = fmt::format("{}{}", over_a_file ? "over" : "f", puts);
      if (over_a_file) Make(name, "old");
      auto file = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
      ASSERT_OK(file);
      const InodeId id = (*file)->inode();
      ASSERT_OK((*file)->Write(0, AsBytes("new")));
      LeaveRoomFor(puts);
      const Status synced = (*file)->Sync();
      MakeRoom();
      Records records(*host_.cluster);
      const bool was_written = records.FindInode(id)->has_value();
      const Result<bool> discarded = fs_->Discard(id);
      done = synced.ok();
      Host other = NewHost();
      if (synced.ok()) {
        ASSERT_OK(discarded);
        ASSERT_FALSE(*discarded) << puts << " puts";
        ASSERT_EQ(Contents("/" + name, other.fs.get()), "new");
      } else if (discarded.has_value() && *discarded) {
        half_way += was_written;
        ASSERT_OK((*file)->Sync());
        ASSERT_OK((*file)->Close());
        file->reset();
        if (over_a_file) {
          ASSERT_EQ(Contents("/" + name, other.fs.get()), "old") << puts << " puts";
        } else {
          ASSERT_FAILS(other->Lookup(kRootInode, name), ENOENT) << puts << " puts";
        }
        ASSERT_FALSE(records.FindInode(id)->has_value()) << puts << " puts";
      } else if (!discarded.has_value()) {
        ASSERT_EQ(discarded.error().code(), EIO) << discarded.error().message();
      }
    }
  }
  EXPECT_GT(half_way, 0) << "the inode was there without its name";
}

// What was removed is gone when it said so, and its directory goes on.
TEST_F(FullDrivesTest, ANameIsRemovedOrNotAndTheAnswerSaysWhich) {
  bool done = false;
  for (int64_t puts = 0; !done; ++puts) {
    ASSERT_LT(puts, 200);
    const std::string name = fmt::format("f{}", puts);
    Make(name, "x");
    LeaveRoomFor(puts);
    const Status status = fs_->Unlink(kRootInode, name);
    MakeRoom();
    done = puts > 40 && status.ok();
    Host other = NewHost();
    const auto found = other->Lookup(kRootInode, name);
    if (status.ok()) {
      ASSERT_FAILS(found, ENOENT) << puts << " puts";
    } else if (status.code() == ENOSPC) {
      ASSERT_OK(found) << puts << " puts";
      ASSERT_EQ(Contents("/" + name, other.fs.get()), "x");
    } else {
      ASSERT_EQ(status.code(), EIO) << status.message();
    }
  }
  Make("another", "x");
}

// ---- Drives that are really full, and hold something back for names and for what frees space

class FullClusterTest : public FsTest {
 protected:
  explicit FullClusterTest(TestCluster::Options options = {.drives = 5,
                                                           .layout = {2, 1, 64 << 10},
                                                           .drive_bytes = 8 << 20,
                                                           .reserve_bytes = 1 << 20})
      : FsTest(options) {}

  static std::string Name(int i) { return fmt::format("file{}", i); }

  // With files of a few blocks each, until nothing fits any more. How many there are.
  int Fill(int first = 0) {
    for (int i = first;; ++i) {
      const Status status = Write(Name(i), Pattern(static_cast<uint64_t>(i), 200'000));
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), ENOSPC) << status.message();
      (void)fs_->Unlink(kRootInode, Name(i));
      return i;
    }
  }

  Status Write(const std::string& name, std::string_view contents) {
    auto file = fs_->Create(kRootInode, name, {.truncate = true});
    if (!file.has_value()) return file.error();
    const auto written = (*file)->Write(0, AsBytes(contents));
    const Status closed = (*file)->Close();
    return written.ok() ? closed : written;
  }
};

TEST_F(FullClusterTest, NamesAreMadeMovedAndRemovedWhenNoDataFits) {
  const int files = Fill();
  ASSERT_GT(files, 40);
  const auto directory = fs_->MakeDirectory(kRootInode, "directory", 0755, {});
  ASSERT_OK(directory);
  ASSERT_OK(fs_->Rename(kRootInode, Name(0), directory->inode, "moved"));
  ASSERT_OK(fs_->Rename(kRootInode, Name(1), kRootInode, Name(2)));  // over another one
  ASSERT_OK(fs_->Link(fs_->Lookup(kRootInode, Name(3))->inode, directory->inode, "linked"));
  ASSERT_OK(fs_->Unlink(kRootInode, Name(3)));
  EXPECT_EQ(Contents("/" + Name(2)), Pattern(1, 200'000));
  EXPECT_EQ(Contents("/directory/moved"), Pattern(0, 200'000));
  EXPECT_EQ(Contents("/directory/linked"), Pattern(3, 200'000));
  ASSERT_OK(fs_->Unlink(directory->inode, "moved"));
  ASSERT_OK(fs_->Unlink(directory->inode, "linked"));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "directory"));
}

// Names alone do not take what is kept for removing: these fail, and then everything can go.
TEST_F(FullClusterTest, WhateverFillsItEverythingCanBeRemoved) {
  const int files = Fill();
  int names = 0;
  while (Write(fmt::format("empty{}", names), "").ok()) ASSERT_LT(++names, 100'000);
  EXPECT_GT(names, 100);
  auto listed = List();
  ASSERT_GE(listed.size(), static_cast<size_t>(files + names));
  for (const std::string& name : listed) ASSERT_OK(fs_->Unlink(kRootInode, name));
  // The last one, which failed, may have been made: some drives had room for it.
  listed = List();
  if (listed.size() == 1) {
    EXPECT_OK(fs_->Unlink(kRootInode, listed.front()));
  }
  EXPECT_THAT(List(), testing::IsEmpty());
}

// And what was removed has made room.
TEST_F(FullClusterTest, WhatIsRemovedMakesRoomForOthers) {
  const int files = Fill();
  int now = files;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < now; ++i) ASSERT_OK(fs_->Unlink(kRootInode, Name(i)));
    sim_.Sleep(Reaper::kGrace + std::chrono::seconds(30));
    now = Fill();
    EXPECT_GE(now, files - files / 8);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Contents("/" + Name(i)), Pattern(static_cast<uint64_t>(i), 200'000));
  }
}

TEST_F(FullClusterTest, TruncatingAFileAndRepairingWork) {
  const int files = Fill();
  auto file = fs_->Open(fs_->Lookup(kRootInode, Name(0))->inode, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Truncate(100'000));
  ASSERT_OK((*file)->Close());
  Repairer repairer(*host_.cluster, {});
  EXPECT_THAT(repairer.Run().failures, testing::IsEmpty());
  EXPECT_EQ(Contents("/" + Name(files - 1)), Pattern(static_cast<uint64_t>(files) - 1, 200'000));
}

// ---- Full drives, and others that are away or hang

class FullAndIllTest : public FullClusterTest {
 protected:
  FullAndIllTest()
      : FullClusterTest({.drives = 8,
                         .layout = {4, 2, 64 << 10},
                         .drive_bytes = 8 << 20,
                         .reserve_bytes = 1 << 20}) {}

  // Whoever writes files of all sizes is answered within `most` in each call, and that there is no
  // room is told as that.
  void ExpectSoonToldOfNoRoom(Duration most) {
    int refused = 0;
    const auto call = [&](size_t bytes, const std::function<Status()>& operation) {
      const Time begin = sim_.Now();
      const Status status = operation();
      EXPECT_LE(sim_.Now() - begin, most) << bytes << " bytes: " << status.message();
      EXPECT_TRUE(status.ok() || status.code() == ENOSPC) << bytes << ": " << status.message();
      refused += status.code() == ENOSPC;
    };
    for (const size_t bytes : {100, 3'000, 30'000, 200'000, 2'000'000}) {
      for (int i = 0; i < 4; ++i) {
        auto file = fs_->Create(kRootInode, fmt::format("late{}", written_++), {});
        ASSERT_OK(file);
        const std::string contents = Pattern(7, bytes);
        call(bytes, [&] { return StatusOf((*file)->Write(0, AsBytes(contents))); });
        call(bytes, [&] { return (*file)->Close(); });
      }
    }
    EXPECT_GE(refused, 8) << "the large ones";
  }

  int written_ = 0;
};

TEST_F(FullAndIllTest, NobodyWaitsLongForRoom) {
  Fill();
  ExpectSoonToldOfNoRoom(std::chrono::milliseconds(100));
}

// A drive that is away may come back, and have room. But it is not waited for block after block.
TEST_F(FullAndIllTest, NobodyWaitsLongForRoomWhileADriveIsAway) {
  Fill();
  machines_.drive(1).Set({.down = true});
  ExpectSoonToldOfNoRoom(std::chrono::milliseconds(1200));
}

// One that was full a moment ago, and hangs now, is asked in the end, as nobody else has room. But
// not twice.
TEST_F(FullAndIllTest, NobodyWaitsLongForRoomWhileDrivesHang) {
  Fill();
  machines_.drive(1).Set({.lose_request = 1});
  ExpectSoonToldOfNoRoom(std::chrono::milliseconds(5500));
  machines_.drive(2).Set({.lose_request = 1});
  ExpectSoonToldOfNoRoom(std::chrono::milliseconds(5500));
}

// Room that is there is found, whatever others say.
TEST_F(FullAndIllTest, SlowDrivesWithRoomAreWaitedFor) {
  machines_.drive(1).Set({.full = true});
  machines_.drive(2).Set({.full = true});
  for (DriveId id = 3; id <= 8; ++id) {
    machines_.drive(id).Set({.least_latency = std::chrono::milliseconds(100),
                             .most_latency = std::chrono::milliseconds(600)});
  }
  for (int i = 0; i < 5; ++i) EXPECT_OK(Write(Name(i), Pattern(1, 200'000)));
}

TEST_F(FullAndIllTest, NamesAreRemovedAndMovedWhileADriveIsAway) {
  const int files = Fill();
  machines_.drive(1).Set({.down = true});
  ASSERT_OK(fs_->Rename(kRootInode, Name(0), kRootInode, "moved"));
  ASSERT_OK(fs_->Rename(kRootInode, Name(1), kRootInode, Name(2)));
  for (int i = 2; i < files; ++i) ASSERT_OK(fs_->Unlink(kRootInode, Name(i)));
  ASSERT_OK(fs_->Unlink(kRootInode, "moved"));
  sim_.Sleep(Reaper::kGrace + std::chrono::seconds(30));
  EXPECT_OK(Write("again", Pattern(3, 2'000'000)));
}

// Beyond all that is kept for anything, by half of those that are there: the change of the inode
// may have happened, as some have taken it. It says so soon.
TEST_F(FullAndIllTest, WhatIsNotKnownIsToldSoon) {
  machines_.drive(1).Set({.down = true});
  machines_.drive(2).Set({.full = true});
  machines_.drive(3).Set({.full = true});
  for (int i = 0; i < 40; ++i) {
    const Time begin = sim_.Now();
    (void)Write(Name(i), Pattern(1, 100));
    EXPECT_LE(sim_.Now() - begin, std::chrono::milliseconds(2500));
  }
}

// A drive that has just refused is left alone for a while: not every stripe is sent there in vain.
TEST_F(FullClusterTest, AFullDriveIsNotAskedForEachStripe) {
  FaultyDrive& drive = machines_.drive(1);
  drive.Set({.full = true});
  const uint64_t before = drive.requests().put_bytes;
  for (int i = 0; i < 20; ++i) ASSERT_OK(Write(Name(i), Pattern(1, 200'000)));
  EXPECT_LE(drive.requests().put_bytes - before, 4 * 70'000u);
  drive.Set({});
  sim_.Sleep(2 * FullDrives::kForgottenAfter);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Write(Name(i), Pattern(2, 200'000)));
  EXPECT_GT(drive.requests().put_bytes - before, 10 * 70'000u);
}

}  // namespace
}  // namespace pinstripe
