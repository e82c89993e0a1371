// Checker: nothing to say of a healthy namespace, and a word for everything that is planted.

#include "upkeep/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckerTest : public FsTest {
 protected:
  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }

  // "problem where", ascending.
  static std::vector<std::string> Problems(const CheckReport& report) {
    std::vector<std::string> problems;
    for (const Finding& finding : report.findings) {
      problems.push_back(finding.problem + " " + finding.where);
    }
    std::sort(problems.begin(), problems.end());
    return problems;
  }

  void PutRegister(InodeId of, const std::string& key, const std::string& value) {
    const RegisterName name{host_.cluster->GroupOfObject(of), key};
    const auto seen = host_.cluster->registers().Read(name);
    EXPECT_TRUE(host_.cluster->registers().Change(name, *seen, value).applied());
  }

  void Delete(DriveId drive, const std::string& key) {
    Gather<Status> gather(sim_);
    machines_.memory(drive).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                   gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  void Put(DriveId drive, const std::string& key) {
    Gather<Status> gather(sim_);
    machines_.memory(drive).Put({.key = key, .value = {}, .version = {}, .tag = {}}, Time::max(),
                                gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
};

TEST_F(CheckerTest, AHealthyTreeIsCountedAndNothingIsSaidOfIt) {
  const InodeId a = MakeDirectory("a");
  MakeDirectory("b", a);
  Make("small", "inline", a);
  Make("copies", Pattern(1, 30'000));
  Make("striped", Pattern(2, 3 * kTestBlock + 5), a);
  ASSERT_OK(fs_->Rename(kRootInode, "copies", a, "moved"));
  const CheckReport report = Check();
  EXPECT_THAT(Problems(report), IsEmpty());
  EXPECT_THAT(report.not_checked, IsEmpty());
  EXPECT_EQ(report.directories, 3u);
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.entries, 5u);
  EXPECT_EQ(report.blocks, 1u + 4u);
  EXPECT_EQ(report.shards, 2u + 4u * 3u);  // copies under 1+1, and 2+1
  EXPECT_EQ(report.unused_shards, 0u);
}

TEST_F(CheckerTest, DamageOfInodesAndEntriesIsFound) {
  const InodeId a = MakeDirectory("a");
  const InodeId file = Make("file", "x", a);
  PutRegister(file, Writer().Raw("I").U64(file).Take(), "no inode");
  EXPECT_THAT(Problems(Check()), ElementsAre(fmt::format("damaged-inode (inode {:016x})", file)));
  PutRegister(a, Writer().Raw("E").U64(a).Take() + "file", "no entry");
  PutRegister(a, "Z", "from the future");
  EXPECT_THAT(Problems(Check()), ElementsAre(fmt::format("damaged-entry (inode {:016x})/file", a),
                                             fmt::format("damaged-inode (inode {:016x})", file),
                                             "unknown-register 5a"));
}

TEST_F(CheckerTest, AMissingRootIsFound) {
  RemoveInode(kRootInode);
  EXPECT_THAT(Problems(Check()), ElementsAre("no-root /"));
}

TEST_F(CheckerTest, NamesAndLinksThatDoNotAddUpAreFound) {
  const InodeId a = MakeDirectory("a");
  const InodeId file = Make("file", "x");
  PutEntry(a, "second", Entry{file, FileKind::kRegular, std::nullopt});
  EXPECT_THAT(Problems(Check()), ElementsAre("too-few-links /file"));
  ChangeInode(file, [](Inode& inode) { inode.links = 3; });
  CheckReport report = Check();
  EXPECT_THAT(Problems(report), ElementsAre("too-many-links /file"));
  EXPECT_EQ(report.findings[0].severity, Severity::kLeftover);
  ChangeInode(file, [](Inode& inode) { inode.links = 2; });
  EXPECT_THAT(Problems(Check()), IsEmpty());

  PutEntry(a, "second", Entry{file, FileKind::kDirectory, std::nullopt});
  EXPECT_THAT(Problems(Check()),
              ElementsAre("wrong-kind /a/second", "wrong-number-of-subdirectories /a"));
}

TEST_F(CheckerTest, DirectoriesThatDoNotFormATreeAreFound) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b");
  const InodeId below = MakeDirectory("below", a);
  PutEntry(b, "again", Entry{below, FileKind::kDirectory, std::nullopt});
  EXPECT_THAT(Problems(Check()), ElementsAre(testing::StartsWith("directory-with-two-names /"),
                                             "wrong-number-of-subdirectories /b"));
  PutEntry(b, "again", std::nullopt);
  ChangeInode(below, [&](Inode& inode) { inode.parent = b; });
  EXPECT_THAT(Problems(Check()), ElementsAre("wrong-parent /a/below"));
  ChangeInode(below, [&](Inode& inode) { inode.parent = a; });

  // A circle that nothing leads to.
  PutEntry(kRootInode, "a", std::nullopt);
  PutEntry(below, "up", Entry{a, FileKind::kDirectory, std::nullopt});
  ChangeInode(a, [&](Inode& inode) { inode.parent = below; });
  EXPECT_THAT(Problems(Check()),
              testing::UnorderedElementsAre(
                  fmt::format("unreachable-directory (inode {:016x})/below/up/below", a),
                  fmt::format("unreachable-directory (inode {:016x})/up/below/up", below),
                  fmt::format("wrong-number-of-subdirectories (inode {:016x})/up/below", below),
                  "wrong-number-of-subdirectories /"));
}

TEST_F(CheckerTest, ANumberOfSubdirectoriesIsRightOrUnknown) {
  const InodeId a = MakeDirectory("a");
  MakeDirectory("b", a);
  ChangeInode(a, [](Inode& inode) { inode.links = 2; });
  const CheckReport report = Check();
  ASSERT_THAT(Problems(report), ElementsAre("wrong-number-of-subdirectories /a"));
  EXPECT_EQ(report.findings[0].severity, Severity::kLeftover);
  ChangeInode(a, [](Inode& inode) { inode.links = 1; });
  EXPECT_THAT(Problems(Check()), IsEmpty());
}

TEST_F(CheckerTest, WhatDeadClientsLeaveIsALeftover) {
  const InodeId gone = Make("gone", "x");
  const InodeId orphan = Make("orphan", "x");
  const InodeId directory = MakeDirectory("directory");
  Make("inside", "x", directory);
  RemoveInode(gone);
  PutEntry(kRootInode, "orphan", std::nullopt);
  RemoveInode(directory);
  const CheckReport report = Check();
  EXPECT_THAT(Problems(report),
              testing::UnorderedElementsAre("entry-of-nothing /gone", "entry-of-nothing /directory",
                                            "entry-in-nothing /directory/inside",
                                            fmt::format("orphan (inode {:016x})", orphan),
                                            testing::StartsWith("orphan /directory/inside")));
  EXPECT_EQ(report.Count(Severity::kLeftover), report.findings.size());
}

TEST_F(CheckerTest, ATreeWithoutItsRootIsToldOf) {
  const InodeId directory = MakeDirectory("directory");
  Make("inside", "x", directory);
  RemoveInode(kRootInode);
  EXPECT_THAT(Problems(Check()), testing::Contains(testing::StartsWith("no-root")));
}

TEST_F(CheckerTest, AFullDirectoryWithoutANameIsNoLeftover) {
  const InodeId directory = MakeDirectory("directory");
  Make("inside", "x", directory);
  PutEntry(kRootInode, "directory", std::nullopt);
  const CheckReport report = Check();
  ASSERT_THAT(Problems(report),
              ElementsAre(fmt::format("unreachable-directory (inode {:016x})", directory),
                          "wrong-number-of-subdirectories /"));
  EXPECT_EQ(report.Count(Severity::kError), 1u);
}

TEST_F(CheckerTest, MissingShardsAreShortAndTooManyOfThemAreLost) {
  Make("striped", Pattern(1, 2 * kTestBlock));  // 2+1
  int deleted = 0;
  for (DriveId drive = 1; drive <= 5 && deleted == 0; ++drive) {
    const auto shards = ShardsOn(drive);
    if (shards.empty()) continue;
    Delete(drive, shards[0]);
    ++deleted;
  }
  CheckReport report = Check();
  ASSERT_THAT(Problems(report), ElementsAre("short-of-shards /striped"));
  EXPECT_EQ(report.findings[0].severity, Severity::kShort);
  EXPECT_THAT(report.findings[0].what,
              testing::MatchesRegex("1 block; block [01]: 2 of 3 shards are there"));

  for (DriveId drive = 1; drive <= 5; ++drive) {
    for (const std::string& key : ShardsOn(drive)) Delete(drive, key);
  }
  report = Check();
  ASSERT_THAT(Problems(report), ElementsAre("lost-data /striped"));
  EXPECT_THAT(report.findings[0].what, HasSubstr("2 blocks; block 0: 0 of 3"));
}

TEST_F(CheckerTest, PathsAreThoseThatFilesHaveNow) {
  const InodeId a = MakeDirectory("a");
  Make("made", Pattern(1, kTestBlock), a);
  Make("elsewhere", Pattern(2, kTestBlock));
  Make("here", Pattern(3, kTestBlock), a);
  const InodeId linked = Make("first", Pattern(4, kTestBlock), a);
  ASSERT_OK(fs_->Rename(a, "here", a, "renamed"));
  ASSERT_OK(fs_->Rename(kRootInode, "elsewhere", a, "moved"));
  ASSERT_OK(fs_->Link(linked, a, "second"));
  ASSERT_OK(fs_->Unlink(a, "second"));
  for (DriveId drive = 1; drive <= 5; ++drive) {
    for (const std::string& key : ShardsOn(drive)) Delete(drive, key);
  }
  EXPECT_THAT(Problems(Check()), ElementsAre("lost-data /a/first", "lost-data /a/made",
                                             "lost-data /a/moved", "lost-data /a/renamed"));
}

TEST_F(CheckerTest, OfVeryManyFindingsThatAreNoErrorsTheRestIsCounted) {
  for (int i = 0; i < 5; ++i) Make(fmt::format("file{}", i), Pattern(i, kTestBlock));
  for (const std::string& key : ShardsOn(1)) Delete(1, key);
  const CheckReport all = Check();
  const size_t lacking = all.Count(Severity::kShort);
  ASSERT_GT(lacking, 1u);
  EXPECT_EQ(all.findings.size(), lacking);
  Checker checker(*host_.cluster, {.most_told = 1});
  const CheckReport report = checker.Run();
  EXPECT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.untold.at("short-of-shards").count, lacking - 1);
  EXPECT_EQ(report.Count(Severity::kShort), lacking);
  // What is lost is told of every file.
  for (DriveId drive = 1; drive <= 5; ++drive) {
    for (const std::string& key : ShardsOn(drive)) Delete(drive, key);
  }
  Checker again(*host_.cluster, {.most_told = 1});
  EXPECT_EQ(again.Run().findings.size(), 5u);
}

// However many are asked for together.
TEST_F(CheckerTest, BlocksThatSeemToLackShardsAreAskedForInParts) {
  for (int i = 0; i < 10; ++i) Make(fmt::format("file{}", i), Pattern(i, 3 * kTestBlock));
  for (const DriveId drive : {1, 2}) {
    for (const std::string& key : ShardsOn(drive)) Delete(drive, key);
  }
  const auto blocks_of = [](Checker& checker) {
    std::vector<std::string> blocks;
    for (const LackingBlock& one : checker.TakeLackingBlocks()) {
      blocks.push_back(fmt::format("{:x} {}: {} missing, {} of {}, {} needed, {}", one.file,
                                   one.block, one.missing, one.present, one.all, one.needed,
                                   one.lost ? "lost" : "there"));
    }
    std::ranges::sort(blocks);
    return blocks;
  };
  Checker whole(*host_.cluster, {});
  const CheckReport all = whole.Run();
  ASSERT_GT(all.Count(Severity::kShort) + all.Count(Severity::kError), 5u);
  size_t left = 0;  // until all have been looked at
  Checker parts(*host_.cluster,
                {.most_suspects = 2, .progress = [&](std::string_view phase, double) {
                   left += phase == "looking again for shards" ? 1 : 0;
                 }});
  EXPECT_EQ(Problems(parts.Run()), Problems(all));
  EXPECT_LT(left, all.Count(Severity::kShort));
  EXPECT_EQ(blocks_of(parts), blocks_of(whole));
  EXPECT_TRUE(blocks_of(parts).empty()) << "what was taken is not kept";
}

TEST_F(CheckerTest, WhatHasDataComesInTheOrderOfItsNumber) {
  std::set<InodeId> made;
  for (int i = 0; i < 10; ++i) {
    made.insert(Make(fmt::format("file{}", i), Pattern(i, kTestBlock)));
    Make(fmt::format("small{}", i), "x");
  }
  Checker checker(*host_.cluster, {});
  checker.Run();
  EXPECT_EQ(checker.CountWithData(), 10u);
  std::vector<InodeId> seen;
  for (InodeId last = 0;;) {
    const std::vector<InodeId> some = checker.WithData(last, 3);
    if (some.empty()) break;
    EXPECT_LE(some.size(), 3u);
    seen.insert(seen.end(), some.begin(), some.end());
    last = some.back();
  }
  EXPECT_EQ(seen, std::vector<InodeId>(made.begin(), made.end()));
}

TEST_F(CheckerTest, ShardsThatNoFileNamesAreCounted) {
  Make("file", Pattern(1, kTestBlock));
  const std::string prefix = ClusterPrefix("test") + "D";
  Put(1, ShardKey(ClusterPrefix("test"), {7, 0, {}}, 0));
  Put(2, ShardKey(ClusterPrefix("test"), {7, 0, {}}, 1));
  CheckReport report = Check();
  EXPECT_EQ(report.unused_shards, 2u);
  EXPECT_THAT(Problems(report), IsEmpty());
  Put(3, prefix + "?");
  EXPECT_THAT(Problems(Check()), ElementsAre("strange-key drive 3"));
}

TEST_F(CheckerTest, WhatCannotBeLookedAtIsSaid) {
  Make("file", Pattern(1, 4 * kTestBlock));
  machines_.SetDown(2, true);
  const CheckReport report = Check();
  EXPECT_THAT(Problems(report), IsEmpty());  // one drive away is no damage
  EXPECT_THAT(report.not_checked, ElementsAre(HasSubstr("the shards of drive 2")));
}

// Everything changes while it is read; nothing of that is a problem.
TEST_F(CheckerTest, LiveClientsAreNoProblem) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b");
  bool stop = false;
  RunTogether(3, [&](int client) {
    if (client == 2) {
      for (int i = 0; i < 5; ++i) {
        const CheckReport report = Check();
        for (const Finding& finding : report.findings) {
          EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.problem << finding.what;
        }
        EXPECT_THAT(report.not_checked, IsEmpty());
      }
      stop = true;
      return;
    }
    Host host = NewHost();
    for (int i = 0; !stop; ++i) {
      const std::string name = fmt::format("f{}-{}", client, i % 7);
      auto file = host->Create(a, name, {.truncate = true, .publish_at_commit = i % 2 == 0});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, i % 3 == 0 ? 10 : kTestBlock + 1))));
      ASSERT_OK((*file)->Close());
      ASSERT_OK(host->Rename(a, name, b, name));
      const std::string directory = fmt::format("d{}-{}", client, i % 3);
      if (host->MakeDirectory(a, directory, 0755, {}).has_value()) {
        ASSERT_OK(host->Rename(a, directory, b, directory));
      } else {
        ASSERT_OK(host->RemoveDirectory(b, directory));
      }
      if (i % 5 == 4) {
        ASSERT_OK(host->Unlink(b, name));
      }
    }
  });
  EXPECT_THAT(Problems(Check()), IsEmpty());
}

}  // namespace
}  // namespace pinstripe
