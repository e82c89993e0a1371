// Repairer: after it, every file has all of its shards, and says so itself.

#include "upkeep/repairer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class RepairerTest : public FsTest {
 protected:
  RepairerTest() : FsTest({.drives = 5, .layout = {2, 1, 64 << 10}}) {
    SetLogLevel(LogLevel::kError);
    options_ = kSmallPages;
  }

  RepairReport Repair(Repairer::Options options = {}) {
    Repairer repairer(*host_.cluster, std::move(options));
    return repairer.Run();
  }

  static void ExpectAllWell(const RepairReport& report) {
    EXPECT_THAT(report.check.not_checked, IsEmpty());
    for (const Finding& finding : report.check.findings) {
      EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.where << ": " << finding.what;
    }
    EXPECT_THAT(report.failures, IsEmpty());
    EXPECT_THAT(report.inconsistent, IsEmpty());
    EXPECT_THAT(report.not_whole, IsEmpty());
  }

  void LoseShardsOf(DriveId drive) {
    for (const std::string& key : ShardsOn(drive)) {
      Gather<Status> gather(sim_);
      machines_.memory(drive).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                     gather.Ask(0));
      const Status status = gather.Next(Time::max())->value;
      ASSERT_TRUE(status.ok() || status.code() == ENOENT) << status.message();  // or a client did
    }
  }
  // Files of every form, and what is in them.
  void MakeFiles() {
    for (const size_t size :
         {size_t{10}, size_t{30'000}, size_t{kTestBlock}, size_t{7 * kTestBlock + 77}}) {
      const std::string name = fmt::format("file{}", size);
      files_[name] = Pattern(size, size);
      Make(name, files_[name]);
    }
    files_["pieces"] = MakeInPieces("pieces");
  }
  void ExpectFilesReadBack() {
    Host host = NewHost();  // that has nothing in memory
    for (const auto& [name, contents] : files_) {
      EXPECT_TRUE(Contents("/" + name, host.fs.get()) == contents) << name;
    }
  }
  // m = 1.
  void ExpectAnyDriveMayBeAway() {
    for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
      SCOPED_TRACE(fmt::format("without drive {}", drive));
      machines_.SetDown(drive, true);
      ExpectFilesReadBack();
      machines_.SetDown(drive, false);
    }
  }

  std::map<std::string, std::string> files_;
};

TEST_F(RepairerTest, WholeFilesAreLeftAlone) {
  MakeFiles();
  const RepairReport report = Repair();
  ExpectAllWell(report);
  EXPECT_EQ(report.blocks, 0u);
  EXPECT_EQ(report.bytes_written, 0u);
}

TEST_F(RepairerTest, TheShardsThatADriveHasLostAreWrittenAgain) {
  MakeFiles();
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    const auto had = ShardsOn(drive);
    LoseShardsOf(drive);
    const RepairReport report = Repair();
    ExpectAllWell(report);
    EXPECT_EQ(report.written, had.size());
    EXPECT_EQ(ShardsOn(drive), had);
  }
  ExpectAnyDriveMayBeAway();
}

TEST_F(RepairerTest, WhatWasWrittenWhileADriveWasAwayComesHome) {
  machines_.SetDown(1, true);
  MakeFiles();
  machines_.SetDown(1, false);

  RepairReport report = Repair();
  ExpectAllWell(report);
  EXPECT_GT(report.relocated, 0u);
  ExpectAnyDriveMayBeAway();

  report = Repair();
  EXPECT_EQ(report.blocks, 0u) << "everything is at home";
  Checker checker(*host_.cluster, {});
  EXPECT_EQ(checker.Run().unused_shards, 0u) << "the copies on spares are gone";
}

TEST_F(RepairerTest, ADriveThatIsAwayIsSaidToBeSo) {
  MakeFiles();
  machines_.SetDown(2, true);
  const RepairReport report = Repair();
  EXPECT_EQ(report.written, 0u);
  EXPECT_THAT(report.check.not_checked, testing::ElementsAre(HasSubstr("drive 2")));
}

TEST_F(RepairerTest, WhatWasOnADriveThatIsGivenUpGoesToOthers) {
  MakeFiles();
  machines_.SetDown(2, true);
  RepairReport report = Repair({.without = {2}});
  EXPECT_GT(report.written, 0u);
  EXPECT_THAT(report.failures, IsEmpty());
  LoseShardsOf(2);
  machines_.SetDown(2, false);
  ExpectAnyDriveMayBeAway();
}

TEST_F(RepairerTest, ALivingDriveCanBeLeftWithoutLosingRedundancy) {
  MakeFiles();
  RepairReport report = Repair({.without = {3}});
  EXPECT_THAT(report.failures, IsEmpty());
  EXPECT_GT(report.relocated, 0u);
  EXPECT_THAT(ShardsOn(3), IsEmpty());
  ExpectAnyDriveMayBeAway();
}

TEST_F(RepairerTest, AScrubFindsWhatHasRottedUnnoticed) {
  MakeFiles();
  uint64_t rotten = 0;
  for (const std::string& key : ShardsOn(1)) {
    Rot(1, key);
    ++rotten;
  }
  ASSERT_GT(rotten, 0u);
  EXPECT_EQ(Repair().damaged, 0u) << "it does not look inside";
  RepairReport report = Repair({.read_all = true, .dry_run = true});
  EXPECT_EQ(report.damaged, rotten);
  EXPECT_EQ(report.written, 0u);
  EXPECT_FALSE(report.not_whole.empty());
  report = Repair({.read_all = true});
  ExpectAllWell(report);
  EXPECT_EQ(report.damaged, rotten);
  EXPECT_EQ(report.written, rotten);
  EXPECT_EQ(Repair({.read_all = true}).damaged, 0u);
  ExpectAnyDriveMayBeAway();
}

TEST_F(RepairerTest, WhatIsLostIsToldAndWhatIsLeftOfItStays) {
  Make("file", Pattern(1, kTestBlock));  // 2+1
  std::vector<DriveId> holders;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    if (!ShardsOn(drive).empty()) holders.push_back(drive);
  }
  ASSERT_EQ(holders.size(), 3u);
  LoseShardsOf(holders[0]);
  LoseShardsOf(holders[1]);
  const RepairReport report = Repair();
  EXPECT_EQ(report.check.Count(Severity::kError), 1u);
  EXPECT_THAT(report.failures, testing::ElementsAre(HasSubstr("/file: block 0: ")));
  EXPECT_EQ(ShardsOn(holders[2]).size(), 1u);
}

// Every shard is there, and too many of them are rotten.
TEST_F(RepairerTest, WhatHasRottedAwayIsCalledLost) {
  Make("file", Pattern(1, kTestBlock));  // 2+1
  int rotten = 0;
  for (DriveId drive = 1; drive <= machines_.size() && rotten < 2; ++drive) {
    for (const std::string& key : ShardsOn(drive)) {
      Rot(drive, key);
      ++rotten;
    }
  }
  ASSERT_EQ(rotten, 2);
  for (const bool dry_run : {true, false}) {
    const RepairReport report = Repair({.read_all = true, .dry_run = dry_run});
    EXPECT_THAT(report.lost, testing::ElementsAre("/file: block 0"));
  }
}

TEST_F(RepairerTest, TheRateIsKept) {
  MakeFiles();
  LoseShardsOf(1);
  const Time start = sim_.Now();
  const RepairReport report = Repair({.bytes_per_second = 100'000});
  ExpectAllWell(report);
  const double seconds = std::chrono::duration<double>(sim_.Now() - start).count();
  EXPECT_GE(seconds, static_cast<double>(report.bytes_read + report.bytes_written) / 100'000);
}

// What a repair has just written looks like a stray to a collector until the inode names it.
TEST_F(RepairerTest, CollectorsLeaveWhatARepairIsAboutToName) {
  MakeFiles();
  bool repairing = true;
  uint64_t relocated = 0;
  RunTogether(2, [&](int client) {
    Host host = NewHost();
    if (client == 1) {
      while (repairing) Collector(*host.cluster, {.older_than = -std::chrono::hours(1)}).Run();
      return;
    }
    for (int i = 0; i < 40; ++i) {
      Repairer::Options options{.blocks_at_once = 2};
      if (i % 2 == 0) options.without.insert(static_cast<DriveId>(1 + i / 2 % 5));
      Repairer repairer(*host.cluster, options);
      const RepairReport& report = repairer.Run();
      EXPECT_EQ(report.check.Count(Severity::kError), 0u);
      EXPECT_EQ(report.missing, 0u) << "in round " << i;
      relocated += report.relocated;
    }
    repairing = false;
  });
  EXPECT_GT(relocated, 100u);
  ExpectAllWell(Repair());
  ExpectAnyDriveMayBeAway();
}

// Clients read and write the files that are being repaired.
TEST_F(RepairerTest, LiveClientsSeeNothingOfIt) {
  int clients = 2;
  RunTogether(3, [&](int client) {
    for (bool read_all = false; client == 2 && clients > 0; read_all = !read_all) {
      LoseShardsOf(1);
      const RepairReport report = Repair({.read_all = read_all});
      EXPECT_EQ(report.check.Count(Severity::kError), 0u);
      EXPECT_THAT(report.failures, IsEmpty());
    }
    if (client == 2) return;
    Host host = NewHost();
    for (int i = 0; i < 20; ++i) {
      const std::string name = fmt::format("f{}-{}", client, i % 4);
      const std::string contents = Pattern(static_cast<uint64_t>(i), kTestBlock * 2 + 7);
      auto file = host->Create(kRootInode, name, {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(contents)));
      ASSERT_OK((*file)->Close());
      EXPECT_TRUE(Contents("/" + name, host.fs.get()) == contents);
    }
    --clients;
  });
  ExpectAllWell(Repair());
}

// What was replaced is deleted after some seconds. A slow scrub that began before comes upon it
// later, and must not take for lost what nobody needs.
TEST_F(RepairerTest, WhatIsReplacedDuringASlowScrubIsNotCalledLost) {
  files_["pieces"] = MakeInPieces("pieces");
  bool scrubbing = true;
  RunTogether(2, [&](int client) {
    if (client == 0) {
      for (int i = 0; i < 10; ++i) {
        const RepairReport report = Repair({.read_all = true, .bytes_per_second = 100'000});
        EXPECT_THAT(report.lost, IsEmpty());
        EXPECT_THAT(report.failures, IsEmpty());
        EXPECT_THAT(report.not_whole, IsEmpty());
        EXPECT_GE(report.blocks, 12u);
      }
      scrubbing = false;
      return;
    }
    Host host = NewHost();
    for (uint64_t i = 0; scrubbing; ++i) {
      const auto attributes = host->Resolve("/pieces");
      ASSERT_OK(attributes);
      auto file = host->Open(attributes->inode, FileSystem::Access::kWrite);
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(i % 12 * kTestBlock, AsBytes(Pattern(100 + i, kTestBlock))));
      ASSERT_OK((*file)->Close());
      sim_.Sleep(std::chrono::milliseconds(700));
    }
  });
  ExpectAllWell(Repair());
}

}  // namespace
}  // namespace pinstripe
