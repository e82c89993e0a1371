// Collector: what dead clients left behind goes, and nothing that anybody still needs, however late
// they are.

#include "upkeep/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/coding.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::IsEmpty;

class CollectorTest : public FsTest {
 protected:
  CollectReport Collect(Duration older_than = seconds(0), bool dry_run = false) {
    Collector collector(*host_.cluster, {.older_than = older_than, .dry_run = dry_run});
    return collector.Run();
  }
  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }

  // Of an inode's register; 0: as if it had never been written.
  uint64_t SlotOf(InodeId id) {
    Records records(*host_.cluster);
    const auto found = records.FindInodeRegister(id);
    EXPECT_OK(found);
    return found->slot;
  }

  // A client that dies after so many requests of what it does.
  bool DiesAfter(uint64_t requests, const std::function<void(FileSystem&)>& body) {
    auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    EXPECT_OK(cluster);
    auto fs = FileSystem::Open(**cluster, kTinyPages);
    EXPECT_OK(fs);
    life->CrashAfter(requests);
    body(**fs);
    return life->crashed();
  }
};

TEST_F(CollectorTest, OfAHealthyTreeNothingGoes) {
  Make("inline", "x");
  Make("striped", Pattern(1, 3 * kTestBlock));
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "empty", 0755, {}));
  const CollectReport report = Collect();
  EXPECT_EQ(report.inodes + report.entries + report.shards + report.too_young, 0u);
  EXPECT_THAT(report.not_collected, IsEmpty());
  EXPECT_EQ(Contents("/striped"), Pattern(1, 3 * kTestBlock));
}

// At every one of its requests, each kind of operation dies once; then all of it is collected.
TEST_F(CollectorTest, WhateverAClientLeavesGoes) {
  Make("old", Pattern(1, 2 * kTestBlock));
  const std::vector<std::function<void(FileSystem&)>> operations = {
      [](FileSystem& fs) {
        auto file = fs.Create(kRootInode, "new", {.truncate = true, .publish_at_commit = true});
        if (!file.has_value()) return;
        (void)(*file)->Write(0, AsBytes(Pattern(2, 2 * kTestBlock + 7)));
        (void)(*file)->Close();
      },
      [](FileSystem& fs) {
        auto file = fs.Create(kRootInode, "at once", {});
        if (!file.has_value()) return;
        (void)(*file)->Write(0, AsBytes(Pattern(3, kTestBlock)));
        (void)(*file)->Close();
      },
      [](FileSystem& fs) {
        const auto old = fs.Resolve("/old");
        if (!old.has_value()) return;
        auto file = fs.Open(old->inode, FileSystem::Access::kWrite);
        if (!file.has_value()) return;
        (void)(*file)->Write(100, AsBytes(Pattern(4, kTestBlock)));
        (void)(*file)->Close();
      },
      [](FileSystem& fs) { (void)fs.MakeDirectory(kRootInode, "directory", 0755, {}); },
      [](FileSystem& fs) { (void)fs.RemoveDirectory(kRootInode, "directory"); },
      [](FileSystem& fs) { (void)fs.Rename(kRootInode, "new", kRootInode, "at once"); },
      [](FileSystem& fs) { (void)fs.Unlink(kRootInode, "at once"); },
      [](FileSystem& fs) { (void)fs.Unlink(kRootInode, "new"); },
  };
  for (size_t operation = 0; operation < operations.size(); ++operation) {
    for (uint64_t requests = 0; DiesAfter(requests, operations[operation]); ++requests) {
      sim_.Sleep(seconds(30));
      // A change that few drives know of may be found, and take place, in any run; an inode that it
      // left without a name goes in the next, and its data in the one after that.
      for (int run = 0; run < 7; ++run) EXPECT_THAT(Collect().not_collected, IsEmpty());
      SCOPED_TRACE(fmt::format("operation {} dies after {} requests", operation, requests));
      ExpectClean(Check());
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_EQ(Contents("/old").size(), 2 * kTestBlock);
}

TEST_F(CollectorTest, WhatIsYoungStays) {
  for (uint64_t requests = 10; Check().unused_shards == 0 && requests < 40; ++requests) {
    DiesAfter(requests, [](FileSystem& fs) {
      auto file = fs.Create(kRootInode, "new", {.truncate = true, .publish_at_commit = true});
      if (!file.has_value()) return;
      (void)(*file)->Write(0, AsBytes(Pattern(2, 3 * kTestBlock)));
      (void)(*file)->Close();
    });
  }
  ASSERT_GT(Check().unused_shards, 0u);
  CollectReport report = Collect(hours(1));
  EXPECT_EQ(report.shards, 0u);
  EXPECT_GT(report.too_young, 0u);
  sim_.Sleep(hours(2));
  report = Collect(hours(1), /*dry_run=*/true);
  EXPECT_GT(report.shards, 0u);
  EXPECT_GT(Check().unused_shards, 0u);  // nothing was done
  Collect(hours(1));
  ExpectClean(Check());
}

TEST_F(CollectorTest, AnUploadThatIsCollectedFailsAndLosesNothingElse) {
  const std::string old_bytes = Pattern(1, 2 * kTestBlock);
  Make("file", old_bytes);
  auto upload = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK((*upload)->Write(0, AsBytes(Pattern(2, 4 * kTestBlock))));
  auto overwrite = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
  ASSERT_OK((*overwrite)->Write(0, AsBytes(Pattern(3, 2 * kTestBlock))));
  sim_.Sleep(seconds(10));  // until its stripes are on the drives
  EXPECT_GT(Collect().shards, 0u);
  EXPECT_FALSE((*upload)->Close().ok());
  EXPECT_FALSE((*overwrite)->Close().ok());
  EXPECT_EQ(Contents("/file"), old_bytes);
}

TEST_F(CollectorTest, AWriterThatCommitsIsNotCollected) {
  Make("file", Pattern(1, 2 * kTestBlock));
  auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(2 + i, 2 * kTestBlock))));
    ASSERT_OK((*file)->Sync());
    sim_.Sleep(seconds(10));
    Collect();
  }
  ASSERT_OK((*file)->Write(5, AsBytes("later")));
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Contents("/file").substr(0, 10), Pattern(4, 5) + "later");
}

// The collector is between having seen the inode without a name and removing it, when the name
// comes.
TEST_F(CollectorTest, ACreateAndACollectionNeverBothSucceed) {
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("f{}", i);
    bool created = false;
    RunTogether(2, [&](int client) {
      sim_.Sleep(std::chrono::microseconds(sim_.Below(3000)));
      if (client == 0) {
        Collect();
        return;
      }
      auto file = fs_->Create(kRootInode, name, {.publish_at_commit = i % 2 == 0});
      if (!file.has_value()) return;
      if (!(*file)->Write(0, AsBytes("contents")).ok()) return;
      created = (*file)->Close().ok();
    });
    if (created) {
      ASSERT_EQ(Contents("/" + name), "contents");
    }
  }
}

TEST_F(CollectorTest, WhatRemovedFilesAndDirectoriesHaveLeftIsErased) {
  const InodeId directory = fs_->MakeDirectory(kRootInode, "directory", 0755, {})->inode;
  const InodeId file = Make("file", "x", directory);
  Make("stays", "y");
  ASSERT_OK(fs_->Unlink(directory, "file"));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "directory"));
  sim_.Sleep(hours(23));
  EXPECT_EQ(Collect().tombstones, 0u);  // younger than is safe
  sim_.Sleep(hours(2));
  EXPECT_EQ(Collect(seconds(0), /*dry_run=*/true).tombstones, 3u);
  EXPECT_GT(SlotOf(file), 0u);
  EXPECT_EQ(Collect(hours(48)).tombstones, 0u);
  // Two inodes, and the name in the directory that is gone.
  EXPECT_EQ(Collect().tombstones, 3u);
  EXPECT_EQ(SlotOf(file), 0u);
  EXPECT_EQ(SlotOf(directory), 0u);
  Records records(*host_.cluster);
  EXPECT_EQ(records.FindEntry(directory, "file")->slot, 0u);
  // The name in the directory that is there may be used again, in a later slot.
  EXPECT_GT(records.FindEntry(kRootInode, "directory")->slot, 0u);
  EXPECT_FAILS(fs_->GetAttributes(file), ENOENT);
  EXPECT_EQ(Contents("/stays"), "y");
  ExpectClean(Check());
  EXPECT_EQ(Collect().tombstones, 0u);
}

// In a directory where files come and go under names that are never used again.
TEST_F(CollectorTest, NamesThatCameAndWentAreErasedInANewEpoch) {
  const auto other = machines_.Open(std::make_shared<ClientLife>());
  ASSERT_OK(other);
  const auto other_fs = FileSystem::Open(**other, kTinyPages);
  ASSERT_OK(other_fs);
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("name {}", i);
    Make(name, "x");
    ASSERT_OK(fs_->Unlink(kRootInode, name));
  }
  Make("stays", "y");
  const auto collect = [&](uint64_t names) {
    return Collector(*host_.cluster, {.older_than = seconds(0), .renew_epoch_for = names}).Run();
  };
  EXPECT_EQ(collect(20).tombstones, 0u);  // younger than is safe
  sim_.Sleep(hours(25));
  CollectReport report = collect(21);
  EXPECT_EQ(report.tombstones, 20u) << "the inodes";
  EXPECT_EQ(report.waiting, 20u);
  EXPECT_EQ(host_.cluster->map().epoch, 1u);
  report = collect(20);
  EXPECT_THAT(report.not_collected, IsEmpty());
  EXPECT_EQ(report.tombstones, 20u) << "the names";
  EXPECT_EQ(report.waiting, 0u);
  EXPECT_EQ(host_.cluster->map().epoch, 2u);
  ExpectClean(Check());

  // A host that has not heard of the epoch uses one of the names again.
  auto file = (*other_fs)->Create(kRootInode, "name 7", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes("again")));
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Contents("/name 7"), "again");
  EXPECT_EQ(Contents("/stays"), "y");
  ASSERT_OK(fs_->Rename(kRootInode, "stays", kRootInode, "name 8"));
  ASSERT_OK((*other_fs)->Unlink(kRootInode, "name 8"));
  EXPECT_FAILS(fs_->Resolve("/name 8"), ENOENT);
  EXPECT_EQ(collect(20).waiting, 0u);  // what was removed now is too young
  ExpectClean(Check());
}

TEST_F(CollectorTest, NothingIsErasedWhileADriveIsAway) {
  const InodeId file = Make("file", "x");
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  sim_.Sleep(hours(25));
  machines_.drive(1).Set({.down = true});
  CollectReport report = Collect();
  machines_.drive(1).Set({});
  EXPECT_THAT(report.not_collected, testing::Not(IsEmpty()));
  sim_.Sleep(seconds(30));
  Collect();
  EXPECT_EQ(SlotOf(file), 0u);
}

// The fence against whoever has the file open and has not written it yet.
TEST_F(CollectorTest, AnUploadThatWasCollectedStaysSoHoweverLateItIs) {
  auto upload = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK((*upload)->Write(0, AsBytes(Pattern(2, 4 * kTestBlock))));
  sim_.Sleep(seconds(10));
  EXPECT_GT(Collect().shards, 0u);
  for (int day = 0; day < 3; ++day) {
    sim_.Sleep(hours(48));
    EXPECT_EQ(Collect().tombstones, 0u);
  }
  EXPECT_FALSE((*upload)->Close().ok());
  EXPECT_FAILS(fs_->Resolve("/file"), ENOENT);
}

// Its first commit may have happened, for all it knows, and did; it is collected since, and erased.
// It was to replace a file, so it has no name yet.
TEST_F(CollectorTest, WhoDoesNotKnowWhetherItWroteAnInodeGivesUpBeforeThatIsErased) {
  Make("file", "old");
  auto upload = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK((*upload)->Write(0, AsBytes("inline, so that the inode is all there is to write")));
  const InodeId inode = (*upload)->inode();
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({.lose_answer = 1});
  EXPECT_FALSE((*upload)->Sync().ok());
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  uint64_t erased = 0;
  for (int day = 0; day < 4; ++day) {
    sim_.Sleep(hours(48));
    erased += Collect().tombstones;
  }
  EXPECT_GT(erased, 0u);
  EXPECT_EQ(SlotOf(inode), 0u);
  const Status late = (*upload)->Sync();
  EXPECT_EQ(late.code(), ESTALE) << late.message();
  EXPECT_EQ(Contents("/file"), "old");
}

// Both are there, and neither has a way to it: the entry, which keeps its inode, goes first.
TEST_F(CollectorTest, WhatWasMadeInADirectoryThatIsGoneGoes) {
  const InodeId directory = MakeDirectory("d");
  const InodeId file = Make("file", Pattern(1, 2 * kTestBlock), directory);
  Records records(*host_.cluster);
  for (const bool fenced : {false, true}) {  // and whose makers died before the inode was there
    const InodeId unborn = records.NewInodeIdBeside(directory, "file");
    if (fenced) {
      ASSERT_TRUE(*records.FenceNew(unborn));
    }
    PutEntry(directory, fenced ? "fenced" : "unborn",
             pinstripe::Entry{.inode = unborn, .kind = FileKind::kRegular, .nonce = {}});
  }
  ASSERT_OK(fs_->SetAttributes(directory, {.mode = 0700}));
  RemoveInode(directory);
  PutEntry(kRootInode, "d", std::nullopt);
  for (int day = 0; day < 3; ++day) {
    sim_.Sleep(hours(48));
    Collect();
  }
  EXPECT_FALSE(records.FindEntry(directory, "unborn")->entry.has_value());
  EXPECT_FALSE(records.FindEntry(directory, "fenced")->entry.has_value());
  EXPECT_FALSE(records.FindEntry(directory, "file")->entry.has_value());
  EXPECT_FALSE((*records.FindInode(file)).has_value());
}

TEST_F(CollectorTest, NothingGoesWhenNamesCannotBeRead) {
  const InodeId directory = fs_->MakeDirectory(kRootInode, "d", 0755, {})->inode;
  const InodeId file = Make("file", "x", directory);
  // The entry says something that nobody understands: it may well be the file's name.
  const RegisterName name{host_.cluster->GroupOfObject(directory),
                          Writer().Raw("E").U64(directory).Take() + "file"};
  const auto seen = host_.cluster->registers().Read(name);
  ASSERT_TRUE(host_.cluster->registers().Change(name, *seen, "from the future").applied());
  const CollectReport report = Collect();
  EXPECT_EQ(report.inodes, 0u);
  EXPECT_THAT(report.not_collected, testing::Contains(testing::HasSubstr("not all names")));
  EXPECT_OK(fs_->GetAttributes(file));
}

}  // namespace
}  // namespace pinstripe
