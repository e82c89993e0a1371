// Inodes of which too many copies are lost: what is left of them is called lost, is kept by a
// collection until somebody says otherwise, and is told from what was never written or was removed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/coding.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/rebuild.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/packer.h"
#include "upkeep/recovery.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class LostInodesTest : public FsTest {
 protected:
  LostInodesTest()
      : FsTest({.drives = 6, .layout = {2, 2, 64 << 10}, .groups = 16, .replicas = 5}) {}

  // Each as somebody sees it who comes new.
  CheckReport Check() {
    auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    Checker checker(**cluster, {});
    return checker.Run();
  }
  CollectReport Collect(bool lost = false) {
    auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    return Collector(**cluster, {.older_than = -seconds(1), .lost = lost}).Run();
  }
  // What a collection leaves to the next one goes, too.
  void CollectOften(bool lost = false) {
    for (int run = 0; run < 4; ++run) Collect(lost);
  }

  static std::vector<std::string> Problems(const CheckReport& report) {
    std::vector<std::string> problems;
    for (const Finding& finding : report.findings) {
      problems.push_back(finding.problem + " " + finding.where);
    }
    std::sort(problems.begin(), problems.end());
    return problems;
  }

  DriveId LoseInode(InodeId id, size_t left = 0) {
    sim_.Sleep(seconds(5));  // until all that was on its way has come
    return LoseCopies(id, Writer().Raw("I").U64(id).Take(), left);
  }
  // Too late for whoever asks the five drives that keep an inode, and goes on with four.
  // With one value of its inode.
  InodeId Upload(std::string_view name, std::string_view contents) {
    auto file = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    EXPECT_OK(file);
    EXPECT_OK((*file)->Write(0, AsBytes(contents)));
    EXPECT_OK((*file)->Close());
    return (*file)->inode();
  }

  void MakeLate(DriveId drive) {
    machines_.drive(drive).Set({.least_latency = std::chrono::milliseconds(300),
                                .most_latency = std::chrono::milliseconds(300)});
  }

  Result<RecoverReport> Recover(InodeId id, std::string_view path) {
    Host host = NewHost();
    return RecoverInode(*host.cluster, *host.fs, id, path, nullptr);
  }
  // As somebody sees it who comes new.
  std::string ContentsNow(std::string_view path) {
    Host host = NewHost();
    return Contents(path, host.fs.get());
  }

  size_t CountShards() {
    size_t count = 0;
    for (DriveId drive = 1; drive <= machines_.size(); ++drive) count += ShardsOn(drive).size();
    return count;
  }

  // A client that dies in the middle of an upload, with some of it on the drives.
  void DieInUpload() {
    const size_t before = CountShards();
    for (uint64_t requests = 10; CountShards() == before && requests < 60; ++requests) {
      auto life = std::make_shared<ClientLife>();
      auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      auto fs = FileSystem::Open(**cluster, {});
      ASSERT_OK(fs);
      life->CrashAfter(requests);
      auto file =
          (*fs)->Create(kRootInode, "upload", {.truncate = true, .publish_at_commit = true});
      if (!file.has_value()) continue;
      (void)(*file)->Write(0, AsBytes(Pattern(2, 3 * kTestBlock)));
      sim_.Sleep(seconds(5));
    }
    ASSERT_GT(CountShards(), before);
  }
};

TEST_F(LostInodesTest, AFileThatHasLostAllCopiesOfItsInodeIsCalledLostAndKept) {
  const std::string contents = Pattern(1, 3 * kTestBlock + 5);
  const InodeId id = Make("file", contents, MakeDirectory("a"));
  LoseInode(id);
  const size_t shards = CountShards();
  const CheckReport report = Check();
  ASSERT_THAT(report.findings, SizeIs(1));
  const Finding& finding = report.findings.front();
  EXPECT_EQ(finding.severity, Severity::kError);
  EXPECT_EQ(finding.problem, "lost-inode");
  EXPECT_EQ(finding.where, "/a/file");
  EXPECT_THAT(finding.what, HasSubstr(fmt::format("inode {:016x}", id)));
  EXPECT_THAT(finding.what, HasSubstr(fmt::format("{} bytes", contents.size())));
  EXPECT_THAT(finding.what, HasSubstr("pinstripe recover"));

  for (int run = 0; run < 3; ++run) {
    const CollectReport collected = Collect();
    EXPECT_EQ(collected.shards + collected.entries + collected.inodes, 0u);
    EXPECT_THAT(collected.lost, SizeIs(1));
  }
  EXPECT_EQ(CountShards(), shards);
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /a/file"));

  CollectOften(/*lost=*/true);
  EXPECT_EQ(CountShards(), 0u);
  ExpectClean(Check());
}

// One copy of five: it may be one that missed the last changes. Whether a reader has met it and
// brought the inode back, or not: nothing goes.
TEST_F(LostInodesTest, AFileWithOneCopyOfItsInodeIsKept) {
  for (size_t left = 1; left <= 2; ++left) {
    LoseInode(Make(fmt::format("file{}", left), Pattern(1, 2 * kTestBlock)), left);
  }
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Collect().shards, 0u);
  EXPECT_EQ(CountShards(), shards);
}

TEST_F(LostInodesTest, ACopyThatAnswersLateIsWaitedForBeforeAnythingGoes) {
  const DriveId late = LoseInode(Make("file", Pattern(1, 2 * kTestBlock)), 1);
  MakeLate(late);
  const size_t shards = CountShards();
  const CheckReport report = Check();
  EXPECT_THAT(Problems(report), testing::ElementsAre("lost-inode /file"));
  EXPECT_THAT(report.findings.front().what, HasSubstr("a copy is left"));
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Collect().shards, 0u);
  EXPECT_EQ(CountShards(), shards);
}

// As a client leaves it that dies while it writes the inode of an upload: on one drive of five, and
// before there is a name. One that was lost with its name looks the same, so it is kept.
TEST_F(LostInodesTest, AnInodeThatWasOnlyBegunIsKeptAndAlarmsNobody) {
  const InodeId id = Upload("file", Pattern(1, 2 * kTestBlock));
  MakeLate(LoseInode(id, 1));
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("unfinished-inode /file"))
      << "it may be made just now, together with its name";
  sim_.Sleep(std::chrono::hours(25));
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /file"));
  PutEntry(kRootInode, "file", std::nullopt);

  const CheckReport report = Check();
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings.front().problem, "unfinished-inode");
  EXPECT_EQ(report.findings.front().severity, Severity::kLeftover);
  EXPECT_EQ(report.lost_inodes, 0u);
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) {
    const CollectReport collected = Collect();
    EXPECT_THAT(collected.lost, IsEmpty());
    EXPECT_THAT(collected.unfinished, testing::ElementsAre(HasSubstr("pinstripe recover")));
  }
  EXPECT_EQ(CountShards(), shards);
  CollectOften(/*lost=*/true);
  EXPECT_EQ(CountShards(), 0u);
}

// Whoever wants its name does not make it one that was removed.
TEST_F(LostInodesTest, AFileWhoseNameAnotherWantsIsLostAllTheSame) {
  const InodeId id = Make("file", Pattern(1, 2 * kTestBlock));
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600}));
  MakeLate(LoseInode(id, 1));
  Host other = NewHost();
  EXPECT_FAILS(other->Lookup(kRootInode, "file"), ENOENT);
  EXPECT_FAILS(other->MakeSymlink(kRootInode, "file", "x", {}), EIO);
  ASSERT_TRUE(*Records(*other.cluster).FenceNew(id)) << "though somebody fenced it";
  EXPECT_THAT(Problems(Check()), testing::ElementsAre(testing::StartsWith("lost-inode")));
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Collect().shards, 0u);
  EXPECT_EQ(CountShards(), shards);
}

// The fence has the ballot that the copy has. The copy counts, though its name is gone, too.
TEST_F(LostInodesTest, AFenceDoesNotHideACopyOfTheFirstValue) {
  const InodeId id = Upload("file", Pattern(1, 2 * kTestBlock));
  MakeLate(LoseInode(id, 1));
  Host other = NewHost();
  ASSERT_TRUE(*Records(*other.cluster).FenceNew(id));
  PutEntry(kRootInode, "file", std::nullopt);
  const CheckReport report = Check();
  EXPECT_THAT(Problems(report), testing::ElementsAre(testing::StartsWith("unfinished-inode")));
  EXPECT_THAT(report.findings.front().what, HasSubstr("a copy is left"));
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Collect().shards, 0u);
  EXPECT_EQ(CountShards(), shards);
}

// Of its first value a copy is left, on a drive that answers late.
TEST_F(LostInodesTest, TheNameOfWhatHasACopyLeftIsNotTaken) {
  const DriveId late = LoseInode(Upload("file", "the only copy"), 1);
  MakeLate(late);
  Host other = NewHost();
  EXPECT_FAILS(other->Lookup(kRootInode, "file"), ENOENT);
  EXPECT_FAILS(other->MakeSymlink(kRootInode, "file", "x", {}), EIO);
  // It is believed by whoever hears of it in time.
  for (DriveId id = 1; id <= machines_.size(); ++id) MakeLate(id);
  machines_.drive(late).Set({});
  EXPECT_EQ(ContentsNow("/file"), "the only copy");
}

// Its first write was given up, so that its first slot has what was to be there instead, and it was
// written in the second. Drives that went back to the first do not make it one that never was.
TEST_F(LostInodesTest, AnInodeWhoseFirstWriteWasGivenUpIsLostAllTheSame) {
  const InodeId id = Upload("file", Pattern(1, 2 * kTestBlock));
  const std::string contents = InodeOf(id).Encode(id);
  LoseInode(id);
  RegisterStore& registers = host_.cluster->registers();
  const uint32_t group = host_.cluster->GroupOfObject(id);
  const std::string key = Writer().Raw("I").U64(id).Take();
  const std::string record =
      Writer().Raw(ClusterPrefix("test")).Raw("R").U32(group).Raw(key).Take();
  const auto on = [&](DriveId drive) {
    Gather<Result<pinstripe::Record>> gets(sim_);
    machines_.memory(drive).Get(record, {}, Time::max(), gets.Ask(0));
    return gets.Next(Time::max())->value;
  };

  // No replica gets its companion, so none takes it.
  Companions companions;
  for (const Drive* drive : host_.cluster->Replicas(group).drives) {
    companions.all.push_back({drive, {"companion", Expected::Version("1")}});
  }
  companions.send = [] {};
  companions.least = 3;
  const auto given_up = registers.ChangeBound({{group, key}, {}, contents, &companions});
  ASSERT_TRUE(given_up.otherwise) << given_up.why.message();
  sim_.Sleep(seconds(5));
  std::map<DriveId, pinstripe::Record> first;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    if (const auto found = on(drive); found.has_value()) first.emplace(drive, *found);
  }
  ASSERT_GE(first.size(), 3u);
  ASSERT_TRUE(registers.Change({group, key}, given_up.now, contents).applied());
  sim_.Sleep(seconds(5));
  EXPECT_THAT(Problems(Check()), IsEmpty());

  // Three go back, and the others are too late for whoever does not wait for all.
  size_t back = 0;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    if (!first.contains(drive) || back == 3) {
      MakeLate(drive);
      continue;
    }
    ++back;
    const pinstripe::Record& was = first.at(drive);
    Gather<Status> puts(sim_);
    machines_.memory(drive).Put(
        {.key = record, .value = was.value, .version = was.version, .tag = was.tag}, Time::max(),
        puts.Ask(0));
    ASSERT_OK(puts.Next(Time::max())->value);
  }
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /file"));
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) {
    const CollectReport collected = Collect();
    EXPECT_EQ(collected.shards + collected.entries + collected.inodes, 0u);
  }
  EXPECT_EQ(CountShards(), shards);
}

// Nor does who makes a directory of that name.
TEST_F(LostInodesTest, ALostDirectoryWhoseNameWasGivenToAnotherKeepsWhatIsInIt) {
  const InodeId a = MakeDirectory("a");
  const InodeId file = Make("file", Pattern(1, 2 * kTestBlock), a);
  LoseInode(a);
  Host other = NewHost();
  ASSERT_OK(other->MakeDirectory(kRootInode, "a", 0755, {}));
  EXPECT_THAT(Problems(Check()), testing::Contains(testing::StartsWith("lost-inode")));
  const size_t shards = CountShards();
  CollectOften();
  EXPECT_EQ(CountShards(), shards);
  EXPECT_OK(Recover(a, "/found"));
  EXPECT_EQ(ContentsNow("/found/file"), Pattern(1, 2 * kTestBlock));
  EXPECT_EQ(fs_->Resolve("/found/file")->inode, file);
}

TEST_F(LostInodesTest, WhatIsInALostDirectoryGoesWhenSomebodySaysSo) {
  Make("file", Pattern(1, 2 * kTestBlock), MakeDirectory("a"));
  LoseInode(fs_->Resolve("/a")->inode);
  CollectOften(/*lost=*/true);
  EXPECT_EQ(CountShards(), 0u);
  ExpectClean(Check());
}

// With a later value it was there, name or no name.
TEST_F(LostInodesTest, AChangedInodeWithoutANameIsLost) {
  const InodeId id = Make("file", Pattern(1, 2 * kTestBlock));
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600}));
  MakeLate(LoseInode(id, 1));
  PutEntry(kRootInode, "file", std::nullopt);
  const CheckReport report = Check();
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_EQ(report.findings.front().problem, "lost-inode");
}

// Four drives that have nothing are not enough to tell.
TEST_F(LostInodesTest, NothingGoesWhileTheDriveIsAwayThatHasTheLastCopy) {
  const std::string contents = Pattern(1, 2 * kTestBlock);
  const DriveId last = LoseInode(Make("file", contents), 1);
  PutEntry(kRootInode, "file", std::nullopt);
  machines_.SetDown(last, true);
  const size_t shards = CountShards();
  for (int run = 0; run < 3; ++run) {
    const CollectReport report = Collect(/*lost=*/true);
    EXPECT_EQ(report.shards, 0u);
    EXPECT_THAT(report.not_collected, testing::Contains(HasSubstr("4 of its 5 drives answered")));
  }
  EXPECT_EQ(CountShards(), shards);
  machines_.SetDown(last, false);
}

TEST_F(LostInodesTest, WhatHasNoShardsIsLostAllTheSame) {
  const InodeId id = Make("small", "it was in its inode");
  LoseInode(id);
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /small"));
  EXPECT_THAT(Collect().lost, SizeIs(1));
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /small"));
  CollectOften(/*lost=*/true);
  ExpectClean(Check());
}

TEST_F(LostInodesTest, WhatIsInALostDirectoryIsKept) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  const InodeId empty = MakeDirectory("empty", b);
  const InodeId file = Make("file", Pattern(1, 2 * kTestBlock), b);
  LoseInode(b);
  EXPECT_THAT(Problems(Check()), testing::Contains("lost-inode /a/b"));
  const size_t shards = CountShards();
  CollectOften();
  EXPECT_EQ(CountShards(), shards);
  Records records(*host_.cluster);
  EXPECT_TRUE((*records.FindInode(file)).has_value());
  EXPECT_TRUE((*records.FindInode(empty)).has_value());
  EXPECT_TRUE(records.FindEntry(b, "file")->entry.has_value());
  EXPECT_TRUE(records.FindEntry(a, "b")->entry.has_value());
}

// The names of what is in a directory lie where its inode does: they may be lost together.
TEST_F(LostInodesTest, WhatHasLostItsNameWithItsDirectoryIsKept) {
  const InodeId a = MakeDirectory("a");
  Make("file", Pattern(1, 2 * kTestBlock), a);
  LoseInode(a);
  LoseCopies(a, Writer().Raw("E").U64(a).Take() + "file");
  const size_t shards = CountShards();
  CollectOften();
  EXPECT_EQ(CountShards(), shards);
  CollectOften(/*lost=*/true);
  EXPECT_EQ(CountShards(), 0u);
  ExpectClean(Check());
}

TEST_F(LostInodesTest, TheRootIsNoReasonToRemoveWhatIsInIt) {
  Make("file", Pattern(1, 2 * kTestBlock));
  LoseInode(kRootInode);
  const size_t shards = CountShards();
  CollectOften();
  EXPECT_EQ(CountShards(), shards);
  EXPECT_TRUE(Records(*host_.cluster).FindEntry(kRootInode, "file")->entry.has_value());
}

// What keeps shared blocks has no name; the files that share them name it.
TEST_F(LostInodesTest, SharedBlocksStayWhenTheirKeeperIsLost) {
  const std::string contents = Pattern(1, 16 * kTestBlock);
  const InodeId source = Make("source", contents);
  {
    auto from = fs_->Open(source, FileSystem::Access::kRead);
    ASSERT_OK(from);
    auto to = fs_->Create(kRootInode, "copy", {});
    ASSERT_OK(to);
    const auto shared = (*from)->ShareBlocks(0, contents.size(), **to, 0);
    ASSERT_OK(shared);
    ASSERT_GT(*shared, 0u);
    ASSERT_OK((*to)->Close());
  }
  const std::vector<InodeId> keepers = InodeOf(source).keepers;
  ASSERT_THAT(keepers, SizeIs(1));
  LoseInode(keepers.front());
  const size_t shards = CountShards();
  CollectOften();
  EXPECT_EQ(CountShards(), shards);
}

// A file in a pack has no shards of its own: a copy of its inode says where its bytes are.
TEST_F(LostInodesTest, APackedFileIsBroughtBackFromItsPack) {
  for (const char* name : {"a", "b", "c"}) Make(name, Pattern(name[0], 3000));
  {
    Packer packer(*host_.cluster, {.older_than = seconds(-1), .least_bytes = 1});
    ASSERT_OK(packer.Run(kRootInode));
    ASSERT_EQ(packer.report().files, 3u);
  }
  const InodeId id = fs_->Resolve("/b")->inode;
  const InodeId pack = InodeOf(id).keepers.front();
  ASSERT_OK(SweepRegisters(**machines_.Open()));
  const DriveId last = LoseInode(id, 1);
  // It may come back: so the pack goes on counting with the file, also when all others have left.
  machines_.SetDown(last, true);
  Host host = NewHost();
  ASSERT_OK(host->Unlink(kRootInode, "a"));
  ASSERT_OK(host->Unlink(kRootInode, "c"));
  sim_.Sleep(std::chrono::minutes(4));
  CollectOften();
  machines_.SetDown(last, false);
  EXPECT_EQ(InodeOf(pack).keeping->files, std::vector<InodeId>{id});
  MakeLate(last);
  const auto recovered = Recover(id, "/again");
  ASSERT_OK(recovered);
  EXPECT_THAT(recovered->lost, IsEmpty());
  EXPECT_TRUE(ContentsNow("/again") == Pattern('b', 3000));
}

TEST_F(LostInodesTest, AnUploadThatDiedIsNotCalledLost) {
  Make("file", Pattern(1, 2 * kTestBlock));
  const size_t before = CountShards();
  DieInUpload();
  EXPECT_THAT(Problems(Check()), IsEmpty());
  CollectOften();
  EXPECT_EQ(CountShards(), before);
  ExpectClean(Check());
}

TEST_F(LostInodesTest, ARemovedFileIsNotCalledLost) {
  Make("file", Pattern(1, 2 * kTestBlock));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  EXPECT_THAT(Problems(Check()), IsEmpty());
  sim_.Sleep(seconds(120));
  CollectOften();
  EXPECT_EQ(CountShards(), 0u);
}

// ---- Bringing it back

TEST_F(LostInodesTest, AFileIsBroughtBackFromItsShards) {
  const std::string contents = Pattern(1, 5 * kTestBlock + 77);
  const InodeId id = Make("file", contents, MakeDirectory("a"));
  Make("taken", "x");
  LoseInode(id);
  EXPECT_FAILS(Recover(id, "/taken"), EEXIST);
  EXPECT_EQ(ContentsNow("/taken"), "x");
  EXPECT_FAILS(Recover(id, "/nowhere/file"), ENOENT);

  const auto elsewhere = Recover(id, "/again");
  ASSERT_OK(elsewhere);
  EXPECT_THAT(elsewhere->lost, IsEmpty());
  EXPECT_EQ(elsewhere->bytes, contents.size());
  EXPECT_EQ(elsewhere->blocks, 6u);
  EXPECT_TRUE(ContentsNow("/again") == contents);
  EXPECT_THAT(Problems(Check()), testing::ElementsAre("lost-inode /a/file"));

  ASSERT_OK(Recover(id, "/a/file"));  // its own name is not taken
  EXPECT_TRUE(ContentsNow("/a/file") == contents);
  EXPECT_THAT(Problems(Check()), IsEmpty());
  CollectOften();  // what nothing names any more
  ExpectClean(Check());
  EXPECT_TRUE(ContentsNow("/a/file") == contents);
  EXPECT_TRUE(ContentsNow("/again") == contents);
}

TEST_F(LostInodesTest, OfEachBlockTheNewestWriteIsTakenAndHolesStayZeros) {
  std::string contents =
      Pattern(1, 2 * kTestBlock) + std::string(2 * kTestBlock, '\0') + Pattern(2, kTestBlock + 5);
  const InodeId id = Make("file", Pattern(1, 2 * kTestBlock));
  sim_.Sleep(seconds(2));  // the times of writes are in seconds
  {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(4 * kTestBlock, AsBytes(Pattern(2, kTestBlock + 5))));
    ASSERT_OK((*file)->Commit());
    sim_.Sleep(seconds(2));
    const std::string newer = Pattern(3, kTestBlock);
    ASSERT_OK((*file)->Write(0, AsBytes(newer)));
    contents.replace(0, newer.size(), newer);
    ASSERT_OK((*file)->Close());
  }
  LoseInode(id);
  const auto recovered = Recover(id, "/again");
  ASSERT_OK(recovered);
  EXPECT_THAT(recovered->lost, IsEmpty());
  EXPECT_TRUE(ContentsNow("/again") == contents);
}

TEST_F(LostInodesTest, WhatCouldNotBeBroughtBackIsTold) {
  const std::string contents = Pattern(1, 3 * kTestBlock);
  const InodeId id = Make("file", contents);
  {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(2 * kTestBlock + 4096, AsBytes(Pattern(9, 4096))));
    ASSERT_OK((*file)->Close());
  }
  LoseInode(id);
  // Three of four shards of its second block rot.
  int rotten = 0;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    for (const std::string& key : ShardsOn(drive)) {
      const auto shard = ParseShardKey(ClusterPrefix("test"), key);
      if (shard->first.block == 1 && ++rotten <= 3) Rot(drive, key);
    }
  }
  const auto recovered = Recover(id, "/again");
  ASSERT_OK(recovered);
  EXPECT_THAT(recovered->lost, testing::UnorderedElementsAre(
                                   HasSubstr("block 1: it cannot be read, and is zeros now"),
                                   HasSubstr("block 2: 1 small overwrites of it are left out")));
  EXPECT_FALSE(recovered->had_copy);
  std::string expected = contents;
  expected.replace(kTestBlock, kTestBlock, kTestBlock, '\0');
  EXPECT_TRUE(ContentsNow("/again") == expected);
}

// Mode, owner, size, and where small overwrites belong.
TEST_F(LostInodesTest, ACopyOfTheInodeThatIsLeftSaysMore) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  const InodeId id = Make("file", contents);
  {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->SetAttributes({.mode = 0751, .user = 7, .group = 8, .modified = 5}));
    const std::string small = Pattern(9, 4096);
    ASSERT_OK((*file)->Write(kTestBlock + 4096, AsBytes(small)));
    contents.replace(kTestBlock + 4096, small.size(), small);
    contents.resize(3 * kTestBlock - 1);
    ASSERT_OK((*file)->Truncate(contents.size()));
    ASSERT_OK((*file)->Close());
  }
  const InodeId small = Make("small", "in the inode");
  // The copy that is left is not one that missed the last change.
  ASSERT_OK(SweepRegisters(**machines_.Open()));
  MakeLate(LoseInode(id, 1));
  const auto recovered = Recover(id, "/again");
  ASSERT_OK(recovered);
  EXPECT_TRUE(recovered->had_copy);
  EXPECT_THAT(recovered->lost, IsEmpty());
  EXPECT_TRUE(ContentsNow("/again") == contents);
  Host host = NewHost();
  const auto attributes = host->Resolve("/again");
  EXPECT_EQ(attributes->mode & 07777, 0751u);
  EXPECT_EQ(attributes->owner.user, 7u);
  EXPECT_EQ(attributes->owner.group, 8u);
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) machines_.drive(drive).Set({});
  MakeLate(LoseInode(small, 1));
  ASSERT_OK(Recover(small, "/small"));
  EXPECT_EQ(ContentsNow("/small"), "in the inode");
}

// What a stripe leaves out of its block only the map knows.
TEST_F(LostInodesTest, ABlockWithGapsIsBroughtBackWithTheMapAndNotWithoutIt) {
  ASSERT_OK(UseFeature(*host_.cluster, kGapsFeature));
  fs_ = (host_ = NewHost()).fs.get();
  std::string contents = Pattern(1, 2 * kTestBlock);
  const auto make = [&](std::string_view name) {
    const InodeId id = Make(name, contents);
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    EXPECT_OK(file);
    EXPECT_OK((*file)->Zero(8192, 32768, OpenFile::Size::kStays));
    EXPECT_OK((*file)->Close());
    EXPECT_EQ(InodeOf(id).map->Find(0)->gaps.size(), 1u);
    return id;
  };
  const InodeId with_copy = make("a");
  const InodeId without = make("b");
  ASSERT_OK(SweepRegisters(**machines_.Open()));
  LoseInode(without);
  MakeLate(LoseInode(with_copy, 1));
  const auto recovered = Recover(with_copy, "/a again");
  ASSERT_OK(recovered);
  EXPECT_THAT(recovered->lost, IsEmpty());
  std::string punched = contents;
  punched.replace(8192, 32768, 32768, '\0');
  EXPECT_TRUE(ContentsNow("/a again") == punched);
  // Here there may be an older write of it.
  const auto guessed = Recover(without, "/b again");
  ASSERT_OK(guessed);
  ASSERT_THAT(guessed->lost, SizeIs(1));
  EXPECT_THAT(guessed->lost.front(), HasSubstr("it had holes, and nothing says where"));
  const std::string now = ContentsNow("/b again");
  EXPECT_TRUE(now.substr(kTestBlock) == contents.substr(kTestBlock));
  EXPECT_TRUE(now.substr(0, kTestBlock) == std::string(kTestBlock, '\0') ||
              now.substr(0, kTestBlock) == contents.substr(0, kTestBlock));
}

TEST_F(LostInodesTest, ADirectoryIsThereAgainWithWhatIsInIt) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  MakeDirectory("empty", b);
  Make("file", "x", b);
  LoseInode(b);
  EXPECT_FAILS(Recover(b, "/b"), EINVAL);  // it has its name still
  const auto recovered = Recover(b, "/a/b");
  ASSERT_OK(recovered);
  EXPECT_TRUE(recovered->is_directory);
  EXPECT_EQ(recovered->entries, 2u);
  EXPECT_EQ(ContentsNow("/a/b/file"), "x");
  EXPECT_THAT(Problems(Check()), IsEmpty());
  // One of which the name is lost, too.
  LoseInode(b);
  sim_.Sleep(seconds(1));
  LoseCopies(a, Writer().Raw("E").U64(a).Take() + "b");
  ASSERT_OK(Recover(b, "/elsewhere"));
  EXPECT_EQ(ContentsNow("/elsewhere/file"), "x");
}

TEST_F(LostInodesTest, WhatIsNotLostIsNotBroughtBack) {
  const InodeId there = Make("there", "x");
  EXPECT_FAILS(Recover(there, "/again"), EEXIST);
  const InodeId removed = Make("removed", Pattern(1, kTestBlock));
  ASSERT_OK(fs_->Unlink(kRootInode, "removed"));
  EXPECT_FAILS(Recover(removed, "/again"), ENOENT);
  EXPECT_FAILS(Recover(12345, "/again"), ENOENT);
  EXPECT_THAT(List(), testing::ElementsAre("there"));
}

}  // namespace
}  // namespace pinstripe
