// Files are made in a directory and removed from it without changing its inode each time. Its time
// follows, and nobody removes a directory in which somebody has just made something.

#include "fs/names/directory_times.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fs/names/names.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

// ---- What becomes of the directory's inode

Inode Directory(int64_t modified, int64_t changed) {
  Inode inode;
  inode.kind = FileKind::kDirectory;
  inode.modified = modified;
  inode.changed = changed;
  return inode;
}

TEST(WithTimeOf, AChangeGivesItsTime) {
  const auto told = WithTimeOf({.at = 9, .seen_modified = 3}, Directory(3, 4));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->modified, 9);
  EXPECT_EQ(told->changed, 9);
}

TEST(WithTimeOf, ATimeThatSomebodyHasGivenSinceStays) {
  EXPECT_FALSE(WithTimeOf({.at = 9, .seen_modified = 3}, Directory(1, 10)).has_value());
  EXPECT_FALSE(WithTimeOf({.at = 9, .seen_modified = 3}, Directory(9, 9)).has_value());
}

// One who changes its mode or owner, or counts, does not give it a time.
TEST(WithTimeOf, AnotherChangeOfTheInodeDoesNotHideThis) {
  const auto told = WithTimeOf({.at = 9, .seen_modified = 3}, Directory(3, 10));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->modified, 11);
}

// All small cases: who compares times learns that something changed, and times never go back.
TEST(WithTimeOf, TheTimeOfChangeGoesForwardOrStays) {
  for (int at = 0; at < 5; ++at) {
    for (int seen = 0; seen < 5; ++seen) {
      for (int modified = 0; modified < 5; ++modified) {
        for (int changed = 0; changed < 5; ++changed) {
          const EntriesChanged change{.at = at, .seen_modified = seen};
          const auto told = WithTimeOf(change, Directory(modified, changed));
          if (!told) {
            EXPECT_NE(modified, seen) << "nobody gave it a time since, and it got none";
            EXPECT_GE(changed, at);
            continue;
          }
          EXPECT_GT(told->changed, changed);
          EXPECT_GE(told->changed, at);
          EXPECT_EQ(told->modified, told->changed);
          EXPECT_FALSE(WithTimeOf(change, *told).has_value() && told->modified != seen)
              << "once is enough";
        }
      }
    }
  }
}

// ---- In a file system

class DirectoryTimesTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
    directory_ = MakeDirectory("d");
  }

  int64_t Modified(FileSystem* fs) { return fs->GetAttributes(directory_)->modified; }
  uint64_t Slot() { return (*Records(*host_.cluster).FindInode(directory_))->slot; }
  void WaitUntilNoted() { sim_.Sleep(milliseconds(100)); }

  Host other_;
  InodeId directory_ = 0;
};

TEST_F(DirectoryTimesTest, ItIsRightAtOnceHereAndSoonElsewhere) {
  const int64_t before = Modified(fs_);
  const InodeId file = Make("file", "x", directory_);
  const int64_t here = Modified(fs_);
  EXPECT_GT(here, before);
  EXPECT_GE(here, fs_->GetAttributes(file)->modified - 10'000'000);
  EXPECT_EQ(Modified(other_.fs.get()), before);
  EXPECT_EQ(fs_->Lookup(kRootInode, "d")->modified, here);
  EXPECT_EQ(fs_->Resolve("/d")->changed, here);
  EXPECT_EQ(fs_->ReadDirectory(kRootInode, "", 10, true)->front().attributes->modified, here);
  WaitUntilNoted();
  EXPECT_EQ(Modified(other_.fs.get()), here);
  EXPECT_EQ(Modified(fs_), here);

  ASSERT_OK(fs_->Unlink(directory_, "file"));
  const int64_t after = Modified(fs_);
  EXPECT_GT(after, here);
  WaitUntilNoted();
  EXPECT_EQ(Modified(other_.fs.get()), after);
}

TEST_F(DirectoryTimesTest, ManyChangesAreNotedOnce) {
  const uint64_t before = Slot();
  const Time begun = sim_.Now();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(fs_->Create(directory_, fmt::format("{}", i), {}));
    ASSERT_OK(other_->Create(directory_, fmt::format("theirs {}", i), {}));
    ASSERT_OK(fs_->Unlink(directory_, fmt::format("{}", i)));
  }
  ASSERT_OK(fs_->Rename(directory_, "theirs 1", directory_, "ours"));
  ASSERT_OK(fs_->Link(other_->Lookup(directory_, "ours")->inode, directory_, "linked"));
  WaitUntilNoted();
  const auto waits = static_cast<uint64_t>((sim_.Now() - begun) / DirectoryTimes::kWait);
  EXPECT_LE(Slot(), before + 2 * waits) << "at most once for each host in that time";
  EXPECT_LE(Slot(), before + 20);
  const uint64_t noted = Slot();
  sim_.Sleep(std::chrono::seconds(5));
  EXPECT_EQ(Slot(), noted);
}

TEST_F(DirectoryTimesTest, TimesThatAreSetAfterwardsStay) {
  for (FileSystem* setter : {fs_, other_.fs.get()}) {
    ASSERT_OK(fs_->Create(directory_, fmt::format("{}", fmt::ptr(setter)), {}));
    sim_.Sleep(milliseconds(1));
    const int64_t time = setter == fs_ ? 77 : 78;
    ASSERT_OK(setter->SetAttributes(directory_, {.modified = time}));
    EXPECT_EQ(Modified(setter), time);
    EXPECT_EQ(Modified(fs_), time);
    WaitUntilNoted();
    EXPECT_EQ(Modified(setter), time);
    EXPECT_EQ(Modified(fs_), time);
  }
  // And a later change counts again.
  ASSERT_OK(fs_->Create(directory_, "later", {}));
  WaitUntilNoted();
  EXPECT_GT(Modified(other_.fs.get()), 78);
}

// What this process saw of the directory may be a second old.
TEST_F(DirectoryTimesTest, ATimeThatWasSetBeforeDoesNotHideAChange) {
  Make("file", "x", directory_);
  ASSERT_OK(fs_->Lookup(directory_, "file"));
  ASSERT_OK(other_->SetAttributes(directory_, {.modified = 77}));
  sim_.Sleep(milliseconds(1));
  ASSERT_OK(fs_->Unlink(directory_, "file"));
  WaitUntilNoted();
  EXPECT_GT(Modified(other_.fs.get()), 77);
}

TEST_F(DirectoryTimesTest, ChangesOfTheInodeTakeItAlong) {
  ASSERT_OK(fs_->Create(directory_, "file", {}));
  const int64_t here = Modified(fs_);
  ASSERT_OK(fs_->SetAttributes(directory_, {.mode = 0700}));
  EXPECT_EQ(Modified(other_.fs.get()), here);
  const uint64_t slot = Slot();
  WaitUntilNoted();
  EXPECT_EQ(Slot(), slot);
}

TEST_F(DirectoryTimesTest, ItIsNotedBySyncAndAtTheEnd) {
  ASSERT_OK(fs_->Create(directory_, "file", {}));
  ASSERT_OK(fs_->SyncDirectory(directory_));
  EXPECT_EQ(Modified(other_.fs.get()), Modified(fs_));
  ASSERT_OK(other_->Unlink(directory_, "file"));
  const int64_t there = Modified(other_.fs.get());
  EXPECT_GT(there, Modified(fs_));
  other_.fs.reset();
  EXPECT_EQ(Modified(fs_), there);
}

// However many directories are changed at once, none of them is told late, and they do not pile up.
TEST_F(DirectoryTimesTest, ManyDirectoriesAreToldInTime) {
  constexpr int kThreads = 16;
  constexpr int kEach = 40;
  std::vector<InodeId> directories;
  for (int i = 0; i < kThreads * kEach; ++i)
    directories.push_back(MakeDirectory(fmt::format("{}", i)));
  sim_.Sleep(milliseconds(100));
  std::map<InodeId, int64_t> before;
  for (const InodeId id : directories) before[id] = InodeOf(id).modified;
  RunTogether(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      ASSERT_OK(fs_->Create(directories[static_cast<size_t>(thread * kEach + i)], "file", {}));
    }
  });
  sim_.Sleep(milliseconds(200));
  for (const InodeId id : directories) EXPECT_GT(InodeOf(id).modified, before[id]) << id;
}

// Where the drives are away, the end does not wait for one directory after the other.
TEST_F(DirectoryTimesTest, TheEndComesSoonWhereNothingCanBeNoted) {
  std::vector<InodeId> directories;
  for (int i = 0; i < 20; ++i) directories.push_back(MakeDirectory(fmt::format("{}", i)));
  for (const InodeId id : directories) ASSERT_OK(other_->Create(id, "file", {}));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.lose_request = 1});
  sim_.Sleep(milliseconds(100));  // it is at it
  const Time begin = sim_.Now();
  other_.fs.reset();
  EXPECT_LE(sim_.Now() - begin, std::chrono::seconds(60));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
}

// What comes while a time cannot be noted is noted later.
TEST_F(DirectoryTimesTest, AFailureTakesNothingAlongThatCameAfterIt) {
  ASSERT_OK(fs_->Create(directory_, "a", {}));
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.lose_request = 1});
  sim_.Sleep(std::chrono::seconds(12));  // requests that were lost after 10 s are awaited until 15
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  ASSERT_OK(fs_->Create(directory_, "b", {}));
  const int64_t here = Modified(fs_);
  sim_.Sleep(std::chrono::seconds(20));
  EXPECT_EQ(Modified(fs_), here);
  EXPECT_EQ(Modified(other_.fs.get()), here);
}

// ---- Whoever removes a directory, or replaces it

// What a process leaves behind that dies while it removes one.
class MarkedDirectoryTest : public DirectoryTimesTest {
 protected:
  void SetUp() override {
    DirectoryTimesTest::SetUp();
    ChangeInode(directory_, [&](Inode& inode) {
      inode.mark = ReplacementMark{directory_, {1}, {kRootInode, "d"}};
    });
  }
  bool IsMarked() { return InodeOf(directory_).mark.has_value(); }
};

TEST_F(MarkedDirectoryTest, WhoMakesSomethingInItTakesTheMarkOff) {
  Make("file", "x", directory_);
  EXPECT_FALSE(IsMarked());
  EXPECT_EQ(Contents("/d/file"), "x");
  EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
}

TEST_F(MarkedDirectoryTest, OthersRemoveItOrRenameIt) {
  ASSERT_OK(other_->Rename(kRootInode, "d", kRootInode, "e"));
  EXPECT_FALSE(IsMarked());
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "e"));
  EXPECT_TRUE(List().empty());
}

TEST_F(MarkedDirectoryTest, ItIsRemoved) {
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  EXPECT_FAILS(fs_->Create(directory_, "file", {}), ENOENT);
}

// Its name may have gone with the power. It is given one again, and what is in it is there.
TEST_F(MarkedDirectoryTest, ItIsGivenItsNameAgain) {
  Make("file", "x", directory_);
  ChangeInode(directory_, [&](Inode& inode) {
    inode.mark = ReplacementMark{directory_, {2}, {kRootInode, "d"}};
  });
  PutEntry(kRootInode, "d", std::nullopt);
  Records records(*host_.cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  const auto attached = names.Reattach(directory_, {kRootInode, "d"});
  ASSERT_OK(attached);
  EXPECT_TRUE(*attached);
  EXPECT_FALSE(IsMarked());
  EXPECT_EQ(Contents("/d/file"), "x");
}

TEST_F(DirectoryTimesTest, ADirectoryThatIsNotEmptyIsAsItWas) {
  Make("file", "x", directory_);
  WaitUntilNoted();
  const Inode before = InodeOf(directory_);
  EXPECT_FAILS(other_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
  EXPECT_EQ(InodeOf(directory_).Encode(directory_), before.Encode(directory_));
  MakeDirectory("empty");
  EXPECT_FAILS(other_->Rename(kRootInode, "empty", kRootInode, "d", false), ENOTEMPTY);
  EXPECT_EQ(InodeOf(directory_).Encode(directory_), before.Encode(directory_));
}

// Makers and one who replaces the directory again and again: whatever was made stays, until its
// maker removes it.
TEST_F(DirectoryTimesTest, NobodyReplacesADirectoryInWhichAFileWasMade) {
  constexpr int kMakers = 3;
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = milliseconds(1), .most_latency = milliseconds(6)});
  }
  int made = 0;
  int replaced = 0;
  int busy = kMakers;
  RunTogether(kMakers + 1, [&](int i) {
    if (i == kMakers) {
      while (busy > 0) {
        const auto fresh = other_->MakeDirectory(kRootInode, "fresh", 0755, {});
        ASSERT_OK(fresh);
        bool done = false;
        while (busy > 0 && !done) {
          sim_.Sleep(sim_.Between(milliseconds(0), milliseconds(40)));
          done = other_->Rename(kRootInode, "fresh", kRootInode, "d", false).ok();
        }
        if (!done) return;
        directory_ = fresh->inode;
        ++replaced;
      }
      return;
    }
    const auto rest = std::shared_ptr<void>(nullptr, [&](void*) { --busy; });
    for (int round = 0; round < 200; ++round) {
      const std::string name = fmt::format("{}", i);
      const InodeId in = directory_;
      sim_.Sleep(sim_.Between(milliseconds(0), milliseconds(150)));
      if (!fs_->Create(in, name, {}).has_value()) continue;
      ++made;
      ASSERT_OK(fs_->GetAttributes(in)) << "it is gone, with " << name << " in it";
      ASSERT_OK(fs_->Unlink(in, name));
    }
  });
  EXPECT_GT(made, 50);
  EXPECT_GT(replaced, 5);
}

}  // namespace
}  // namespace pinstripe
