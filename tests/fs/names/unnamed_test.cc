// Files that are made without a name (O_TMPFILE), and may be given one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fs/files/layout.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class UnnamedTest : public FsTest {
 protected:
  std::unique_ptr<OpenFile> MakeUnnamed(std::string_view contents) {
    auto file = fs_->CreateUnnamed(kRootInode, 0640, {1, 2});
    EXPECT_OK(file);
    EXPECT_OK((*file)->Write(0, AsBytes(contents)));
    return *std::move(file);
  }
  // Whether nothing is wrong and nothing left, once what nobody needs has had time to go.
  void ExpectNothingLeft() {
    sim_.Sleep(std::chrono::minutes(2));
    Checker checker(*host_.cluster, {});
    ExpectClean(checker.Run());
  }

  const std::string contents_ = Pattern(1, 3 * kTestBlock + 5);
};

TEST_F(UnnamedTest, IsGoneWithItsLastHandle) {
  auto file = MakeUnnamed(contents_);
  ASSERT_OK(file->Sync());
  EXPECT_EQ(ReadAll(*file), contents_);
  EXPECT_THAT(List(), IsEmpty());
  ASSERT_OK(file->Close());
  EXPECT_FAILS(fs_->GetAttributes(file->inode()), ENOENT);
  ExpectNothingLeft();
}

TEST_F(UnnamedTest, HasAttributesButNoLinks) {
  auto file = MakeUnnamed("hello");
  ASSERT_OK(fs_->SetAttributes(file->inode(), {.mode = 0600}));
  ASSERT_OK(fs_->SetExtended(file->inode(), "user.a", "b"));
  for (const auto& attributes : {file->Stat(), fs_->GetAttributes(file->inode())}) {
    ASSERT_OK(attributes);
    EXPECT_EQ(attributes->links, 0u);
    EXPECT_EQ(attributes->size, 5u);
    EXPECT_EQ(attributes->mode, 0600u);
    EXPECT_EQ(attributes->owner, (Owner{1, 2}));
  }
  EXPECT_EQ(fs_->GetExtended(file->inode(), "user.a").value_or("none"), "b");
  Host other = NewHost();
  EXPECT_FAILS(other->GetAttributes(file->inode()), ENOENT) << "nobody else knows it";
}

TEST_F(UnnamedTest, AppearsAsAWholeWhenItIsGivenAName) {
  auto file = MakeUnnamed(contents_);
  ASSERT_OK(fs_->SetExtended(file->inode(), "user.a", "b"));
  const auto linked = fs_->Link(file->inode(), kRootInode, "named");
  ASSERT_OK(linked);
  EXPECT_EQ(linked->links, 1u);
  EXPECT_EQ(linked->size, contents_.size());
  Host other = NewHost();
  EXPECT_EQ(Contents("/named", other.fs.get()), contents_);
  EXPECT_EQ(other->GetExtended(file->inode(), "user.a").value_or("none"), "b");
  // From now on it is a file like others.
  ASSERT_OK(file->Write(0, AsBytes("later")));
  ASSERT_OK(fs_->Link(file->inode(), kRootInode, "second"));
  ASSERT_OK(file->Sync());
  ASSERT_OK(file->Close());
  EXPECT_EQ(Contents("/second", other.fs.get()).substr(0, 5), "later");
  EXPECT_EQ(fs_->Resolve("/named")->links, 2u);
  ExpectNothingLeft();
}

TEST_F(UnnamedTest, StaysWithoutANameWhereThatIsTaken) {
  Make("taken", "by another");
  auto file = MakeUnnamed(contents_);
  EXPECT_FAILS(fs_->Link(file->inode(), kRootInode, "taken"), EEXIST);
  EXPECT_EQ(file->Stat()->links, 0u);
  EXPECT_EQ(Contents("/taken"), "by another");
  ASSERT_OK(file->Write(2, AsBytes("more")));
  ASSERT_OK(file->Commit());
  ASSERT_OK(fs_->Link(file->inode(), kRootInode, "free"));
  std::string expected = contents_;
  expected.replace(2, 4, "more");
  EXPECT_EQ(Contents("/free"), expected);

  auto other = MakeUnnamed(contents_);
  EXPECT_FAILS(fs_->Link(other->inode(), kRootInode, "taken"), EEXIST);
  ASSERT_OK(other->Close());
  ASSERT_OK(file->Close());
  EXPECT_THAT(List(), ElementsAre("free", "taken"));
  ExpectNothingLeft();
}

TEST_F(UnnamedTest, HasWhatItsDirectoryHandsOn) {
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 02775, {5, 6}));
  const InodeId directory = fs_->Resolve("/d")->inode;
  ASSERT_OK(fs_->SetExtended(directory, kLayoutAttribute, "1+2 inline=0"));
  auto file = fs_->CreateUnnamed(directory, 0600, {1, 2});
  ASSERT_OK(file);
  EXPECT_EQ((*file)->Stat()->owner, (Owner{1, 6}));
  EXPECT_EQ(fs_->GetExtended((*file)->inode(), kLayoutAttribute).value_or("").substr(0, 3), "1+2");
  EXPECT_FAILS(fs_->CreateUnnamed((*file)->inode(), 0600, {1, 2}), ENOENT);
  const InodeId plain = Make("plain", "x");
  EXPECT_FAILS(fs_->CreateUnnamed(plain, 0600, {1, 2}), ENOTDIR);
}

// The drives fall silent at any moment of it, and come back. Where nobody can tell whether it was
// named, nothing more can be done with it, so that it never has two names that count as one.
TEST_F(UnnamedTest, WhoseNamingMayHaveHappenedIsNotUsedAnyMore) {
  const DriveFaults healthy{.least_latency = std::chrono::milliseconds(1),
                            .most_latency = std::chrono::milliseconds(1)};
  for (const DriveId drive : {1, 2, 3, 4, 5}) machines_.drive(drive).Set(healthy);
  int given_up = 0;
  int named_all_the_same = 0;
  bool succeeded = false;
  for (int wait = 0; !succeeded; ++wait) {
    ASSERT_LT(wait, 100);
    const std::string name = fmt::format("named{}", wait);
    auto file = MakeUnnamed("contents");
    bool over = false;
    sim_.Spawn("silence", [&] {
      sim_.Sleep(std::chrono::microseconds(500) * wait);
      // They are away, or do what they are asked for and do not say so.
      for (const DriveId drive : {1, 2, 3, 4, 5}) {
        DriveFaults faults = healthy;
        faults.down = wait % 2 == 0;
        faults.lose_answer = 1;
        machines_.drive(drive).Set(faults);
      }
      sim_.Sleep(std::chrono::minutes(1));
      for (const DriveId drive : {1, 2, 3, 4, 5}) machines_.drive(drive).Set(healthy);
      over = true;
    });
    auto linked = fs_->Link(file->inode(), kRootInode, name);
    succeeded = linked.has_value();
    if (!succeeded) {
      EXPECT_FAILS(linked, EIO);
    }
    while (!over) sim_.Sleep(std::chrono::seconds(1));
    sim_.Sleep(std::chrono::seconds(10));
    if (!succeeded) linked = fs_->Link(file->inode(), kRootInode, name + " again");
    const bool usable = linked.has_value();
    EXPECT_EQ(file->Sync().code(), usable ? 0 : EIO);
    EXPECT_EQ(file->Close().code(), usable ? 0 : EIO);
    int names = 0;
    for (const std::string& one : {name, name + " again"}) {
      const auto found = fs_->Resolve("/" + one);
      if (!found.has_value()) continue;
      ++names;
      EXPECT_EQ(found->links, 1u);
      EXPECT_EQ(Contents("/" + one), "contents");
    }
    EXPECT_LE(names, 1);
    EXPECT_GE(names, usable ? 1 : 0);
    given_up += usable ? 0 : 1;
    named_all_the_same += !usable && names == 1 ? 1 : 0;
  }
  EXPECT_GE(given_up, 1);
  EXPECT_GE(named_all_the_same, 1);
  Checker checker(*host_.cluster, {});
  for (const Finding& finding : checker.Run().findings) {
    EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.where << ": " << finding.what;
  }
}

// fsync, then linkat: who does that wants to find the whole file after a loss of power, or none.
TEST_F(UnnamedTest, WhatWasSyncedIsSafeWhenItIsNamed) {
  const auto flushes = [&] {
    uint64_t all = 0;
    for (const DriveId drive : {1, 2, 3, 4, 5}) all += machines_.drive(drive).requests().flush;
    return all;
  };
  auto plain = MakeUnnamed(contents_);
  uint64_t before = flushes();
  ASSERT_OK(fs_->Link(plain->inode(), kRootInode, "plain"));
  EXPECT_EQ(flushes(), before);
  auto synced = MakeUnnamed(contents_);
  ASSERT_OK(synced->Sync());
  before = flushes();
  ASSERT_OK(fs_->Link(synced->inode(), kRootInode, "synced"));
  EXPECT_GT(flushes(), before);
  ASSERT_OK(plain->Close());
  ASSERT_OK(synced->Close());
}

// The inode is on the drives by then, and others may have changed it.
TEST_F(UnnamedTest, LeavesNothingWhenItWasChangedAfterANameWasTaken) {
  Make("taken", "by another");
  auto file = MakeUnnamed(contents_);
  EXPECT_FAILS(fs_->Link(file->inode(), kRootInode, "taken"), EEXIST);
  ASSERT_OK(fs_->SetAttributes(file->inode(), {.mode = 0600}));
  ASSERT_OK(fs_->SetExtended(file->inode(), "user.a", "b"));
  EXPECT_EQ(file->Stat()->links, 0u);
  ASSERT_OK(file->Close());
  EXPECT_FAILS(fs_->GetAttributes(file->inode()), ENOENT);
  ExpectNothingLeft();
}

TEST_F(UnnamedTest, SaysUnderWhichNameItIsFoundWhenTheFirstOneWasTaken) {
  Make("taken", "by another");
  auto file = MakeUnnamed(contents_);
  EXPECT_FAILS(fs_->Link(file->inode(), kRootInode, "taken"), EEXIST);
  ASSERT_OK(fs_->SetAttributes(file->inode(), {.mode = 0600}));
  ASSERT_OK(fs_->Link(file->inode(), kRootInode, "free"));
  EXPECT_EQ(InodeOf(file->inode()).named, (GivenName{kRootInode, "free"}));
  EXPECT_EQ(fs_->Resolve("/free")->mode, 0600u);
  ASSERT_OK(file->Close());
  ExpectNothingLeft();
}

// Whatever it died in the middle of: either there is a whole file with that name, or none.
TEST_F(UnnamedTest, WhoDiesWhileNamingLeavesAWholeFileOrNone) {
  bool crashed = true;
  int named = 0;
  for (uint64_t requests = 0; crashed; ++requests) {
    const std::string name = fmt::format("named{}", requests);
    const auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    auto fs = FileSystem::Open(**cluster, options_);
    ASSERT_OK(fs);
    bool linked = false;
    {
      auto file = (*fs)->CreateUnnamed(kRootInode, 0640, {1, 2});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(contents_)));
      life->CrashAfter(requests);
      linked = (*fs)->Link((*file)->inode(), kRootInode, name).has_value();
      crashed = life->crashed();
    }
    fs->reset();
    const auto found = fs_->Resolve("/" + name);
    if (!found.has_value()) {
      EXPECT_FAILS(found, ENOENT);
      EXPECT_FALSE(linked);
      continue;
    }
    ++named;
    EXPECT_EQ(Contents("/" + name), contents_);
    EXPECT_EQ(found->links, 1u);
  }
  EXPECT_GE(named, 1);
  Checker checker(*host_.cluster, {});
  for (const Finding& finding : checker.Run().findings) {
    EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.where << ": " << finding.what;
  }
}

}  // namespace
}  // namespace pinstripe
