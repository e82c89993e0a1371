// Directories that have grown, or do: what grows them, and what those make of it who read all
// registers, remove what is left over, and bring back what is lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "base/coding.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/registers/record.h"
#include "fs/names/spreader.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/recovery.h"

namespace pinstripe {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Stage = DirectoryParts::Stage;
using testing::HasSubstr;
using testing::IsEmpty;

class GrownDirectoriesTest : public FsTest {
 protected:
  void SetUp() override {
    options_.grow_at_names = 30;
    FsTest::SetUp();
    ASSERT_OK(UseFeature(*host_.cluster, kGrownDirectoriesFeature));
    host_ = Host();
    host_ = NewHost();
    fs_ = host_.fs.get();
    directory_ = MakeDirectory("d");
  }

  DirectoryParts Parts() { return InodeOf(directory_).parts; }
  void MakeMany(int count) {
    for (int i = 0; i < count; ++i) Make("file" + std::to_string(i), "x", directory_);
  }
  // Another process, which ends when it has come to this stage.
  void SpreadUntil(std::optional<Stage> stage, size_t in_parts = 0) {
    Host other = NewHost();
    Records records(*other.cluster);
    Names names(records, [](InodeId, const Inode&, uint64_t) {});
    Spreader::Options options;
    options.names_in_page = 5;
    options.go_on = [&] {
      return Parts().bits == 0 || Parts().stage != stage || CountInParts() < in_parts;
    };
    ASSERT_OK(
        Spreader(*other.cluster, records, names, options).Run(directory_, Spreader::Begin::kYes));
  }
  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
  CollectReport Collect() { return Collector(*host_.cluster, {.older_than = -seconds(1)}).Run(); }
  size_t CountNames() {
    const auto listed = fs_->ReadDirectory(directory_, "", 1000, false);
    EXPECT_OK(listed);
    return listed->size();
  }
  // Where entries are that are not in the directory's own group.
  size_t CountInParts() {
    size_t count = 0;
    const std::string first = Writer().Raw("E").U64(directory_).Take();
    for (uint32_t group = 0; group < host_.cluster->map().groups; ++group) {
      if (group == host_.cluster->GroupOfObject(directory_)) continue;
      const auto page =
          host_.cluster->registers().Scan(group, first, first + std::string(256, '\xff'), 1000);
      EXPECT_OK(page);
      count += page->entries.size();
    }
    return count;
  }

  InodeId directory_ = 0;
};

TEST_F(GrownDirectoriesTest, ADirectoryGrowsByItselfWhenManyNamesAreMadeInIt) {
  MakeMany(29);
  sim_.Sleep(minutes(20));
  EXPECT_EQ(Parts().bits, 0);
  Make("one more", "x", directory_);
  sim_.Sleep(minutes(20));
  EXPECT_EQ(Parts(), (DirectoryParts{.bits = 6, .stage = Stage::kSettled}));
  EXPECT_EQ(CountNames(), 30u);
  EXPECT_GT(CountInParts(), 20u);
  ExpectClean(Check());
}

TEST_F(GrownDirectoriesTest, ADirectoryGrowsByItselfWhenManyNamesAreListed) {
  MakeMany(20);
  Host other = NewHost();
  for (int i = 0; i < 15; ++i) {
    auto file = other->Create(directory_, "other" + std::to_string(i), {});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Close());
  }
  sim_.Sleep(minutes(20));
  EXPECT_EQ(Parts().bits, 0) << "neither of them has made so many";
  EXPECT_EQ(CountNames(), 35u);
  sim_.Sleep(minutes(20));
  EXPECT_EQ(Parts().bits, 6);
  EXPECT_EQ(CountNames(), 35u);
}

// It never has many.
TEST_F(GrownDirectoriesTest, ADirectoryWhoseNamesComeAndGoStaysAsItIs) {
  for (int i = 0; i < 40; ++i) {
    Make("file" + std::to_string(i), "x", directory_);
    ASSERT_OK(fs_->Unlink(directory_, "file" + std::to_string(i)));
    auto again = fs_->Create(directory_, "same", {.truncate = true, .publish_at_commit = true});
    ASSERT_OK(again);
    ASSERT_OK((*again)->Write(0, AsBytes("x")));
    ASSERT_OK((*again)->Close());
  }
  sim_.Sleep(minutes(20));
  EXPECT_EQ(Parts().bits, 0);
}

// A version that does not know it would not find the names.
TEST_F(GrownDirectoriesTest, NoDirectoryGrowsByItselfWhereTheClusterDoesNotSaySo) {
  TestCluster plain(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .name = "plain"});
  ASSERT_OK(plain.Format());
  auto cluster = plain.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
  auto fs = FileSystem::Open(**cluster, options_);
  ASSERT_OK(fs);
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK((*fs)->MakeNode(kRootInode, std::to_string(i), FileKind::kRegular, 0644, {}, {}));
  }
  sim_.Sleep(minutes(20));
  const auto root = Records(**cluster).FindInode(kRootInode);
  ASSERT_OK(root);
  EXPECT_EQ((*root)->inode.parts.bits, 0);
}

TEST_F(GrownDirectoriesTest, ACheckSeesEachNameOnceInEachStage) {
  MakeMany(25);
  for (const auto stage :
       {std::optional(Stage::kMoving), std::optional(Stage::kClearing), std::optional<Stage>()}) {
    SpreadUntil(stage, stage == Stage::kMoving ? 10 : 0);
    const CheckReport report = Check();
    ExpectClean(report);
    EXPECT_EQ(report.entries, 26u);
  }
}

// Some names were read where they were not yet, or not any more.
TEST_F(GrownDirectoriesTest, ACheckDuringWhichADirectoryHasGrownKnowsThatItDoesNotKnow) {
  MakeMany(25);
  bool is_done = false;
  Checker checker(*host_.cluster, {.progress = [&](std::string_view phase, double done) {
    if (phase != "reading names" || done < 0.5 || is_done) return;
    is_done = true;
    SpreadUntil({});
  }});
  const CheckReport& report = checker.Run();
  EXPECT_TRUE(is_done);
  EXPECT_FALSE(checker.knows_all_names());
  ASSERT_FALSE(report.not_checked.empty());
  EXPECT_THAT(report.not_checked.back(), HasSubstr("has grown"));
  ExpectClean(Check());
}

TEST_F(GrownDirectoriesTest, ACollectionEndsWhatSomebodyHasBegun) {
  for (const Stage stage : {Stage::kMoving, Stage::kClearing}) {
    directory_ = MakeDirectory(stage == Stage::kMoving ? "one" : "two");
    MakeMany(25);
    SpreadUntil(stage, stage == Stage::kMoving ? 10 : 0);
    EXPECT_THAT(Collect().not_collected, IsEmpty());
    EXPECT_EQ(Parts(), (DirectoryParts{.bits = 6, .stage = Stage::kSettled}));
    EXPECT_EQ(CountNames(), 25u);
  }
}

// As a request may leave it that was a day on its way.
TEST_F(GrownDirectoriesTest, WhatComesTooLateIsNotANameAndGoes) {
  SpreadUntil({});
  Records records(*host_.cluster);
  std::string name = "late";
  while (PartOf(name, 6) == 0) name += "r";
  const RegisterName home =
      EntryPlaces::NameIn(host_.cluster->GroupOfObject(directory_), directory_, name);
  const pinstripe::Entry entry{.inode = 4711, .kind = FileKind::kRegular, .nonce = {}};
  const auto seen = host_.cluster->registers().Read(home);
  ASSERT_OK(seen);
  ASSERT_TRUE(host_.cluster->registers().Change(home, *seen, entry.Encode()).applied());
  EXPECT_FAILS(fs_->Lookup(directory_, name), ENOENT);
  EXPECT_EQ(CountNames(), 0u);
  ExpectClean(Check());
  EXPECT_THAT(Collect().not_collected, IsEmpty());
  EXPECT_FALSE(host_.cluster->registers().Read(home)->value.has_value());
}

TEST_F(GrownDirectoriesTest, WhatIsLeftInThePartsOfADirectoryThatIsGoneGoes) {
  MakeMany(25);
  SpreadUntil({});
  ASSERT_GT(CountInParts(), 0u);
  RemoveInode(directory_);
  PutEntry(kRootInode, "d", std::nullopt);
  for (int day = 0; day < 3; ++day) {
    EXPECT_THAT(Collect().not_collected, IsEmpty());
    sim_.Sleep(std::chrono::hours(24));
  }
  EXPECT_EQ(CountInParts(), 0u);
  const CheckReport report = Check();
  ExpectClean(report);
  EXPECT_EQ(report.files, 0u);
}

// What says at home that it was moved stays behind, and is not a name.
TEST_F(GrownDirectoriesTest, ADirectoryThatIsRemovedWhileItGrowsLeavesNothingForLong) {
  MakeMany(25);
  SpreadUntil(Stage::kMoving, 20);
  for (int i = 0; i < 25; ++i) ASSERT_OK(fs_->Unlink(directory_, "file" + std::to_string(i)));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  sim_.Sleep(minutes(2));
  ExpectClean(Check());
  const uint32_t home = host_.cluster->GroupOfObject(directory_);
  const std::string first = Writer().Raw("E").U64(directory_).Take();
  const std::string last = first + std::string(256, '\xff');
  EXPECT_FALSE(host_.cluster->registers().Scan(home, first, last, 100)->entries.empty());
  EXPECT_THAT(Collect().not_collected, IsEmpty());
  EXPECT_TRUE(host_.cluster->registers().Scan(home, first, last, 100)->entries.empty());
  ExpectClean(Check());
}

// Its newest copy may be from before it had grown, and nothing says how far it had.
TEST_F(GrownDirectoriesTest, ADirectoryThatIsBroughtBackHidesNothing) {
  for (const auto stage :
       {std::optional(Stage::kMoving), std::optional(Stage::kClearing), std::optional<Stage>()}) {
    directory_ = MakeDirectory("d" + std::to_string(stage ? static_cast<int>(*stage) : 3));
    MakeMany(25);
    SpreadUntil(stage, stage == Stage::kMoving ? 10 : 0);
    sim_.Sleep(seconds(5));
    LoseCopies(directory_, Writer().Raw("I").U64(directory_).Take());
    Host other = NewHost();
    ASSERT_OK(RecoverInode(*other.cluster, *other.fs, directory_,
                           "/d" + std::to_string(stage ? static_cast<int>(*stage) : 3), {}));
    EXPECT_EQ(CountNames(), 25u);
    EXPECT_THAT(Collect().not_collected, IsEmpty());
    EXPECT_EQ(Parts(), (DirectoryParts{.bits = 6, .stage = Stage::kSettled}));
    EXPECT_EQ(CountNames(), 25u);
  }
}

}  // namespace
}  // namespace pinstripe
