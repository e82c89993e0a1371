// A file is removed by what the host has seen of its entry and its inode before. What others have
// done since to the name, or to the file, is not undone by that.

#include <gtest/gtest.h>

#include "fs/names/records.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

// `other_` has listed everything: it removes by that, without another look.
class RemovalByOldLookTest : public FsTest {
 protected:
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
    Make("file", "contents");
    file_ = fs_->Lookup(kRootInode, "file")->inode;
  }
  void OtherLists() { ASSERT_FALSE(List(kRootInode, other_.fs.get()).empty()); }

  bool IsThere(InodeId inode) {
    const auto found = Records(*host_.cluster).FindInode(inode);
    EXPECT_OK(found);
    return found->has_value();
  }
  std::string Read(std::string_view name) {
    const auto file = fs_->OpenPath({.path = "/" + std::string(name)});
    return file.has_value() ? ReadAll(**file) : "(" + ErrnoText(file.error().code()) + ")";
  }

  const std::string kNone = "(" + ErrnoText(ENOENT) + ")";
  Host other_;
  InodeId file_ = 0;
};

TEST_F(RemovalByOldLookTest, NothingIsLeft) {
  OtherLists();
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_FALSE(IsThere(file_));
  EXPECT_TRUE(List().empty());
  EXPECT_FAILS(other_->Unlink(kRootInode, "file"), ENOENT);
  Make("file", "anew");
  EXPECT_EQ(Read("file"), "anew");
}

TEST_F(RemovalByOldLookTest, AFileThatWasRenamedStays) {
  OtherLists();
  ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "moved"));
  EXPECT_FAILS(other_->Unlink(kRootInode, "file"), ENOENT);
  EXPECT_EQ(Read("moved"), "contents");
}

TEST_F(RemovalByOldLookTest, AFileThatGotAnotherNameStays) {
  OtherLists();
  ASSERT_OK(fs_->Link(file_, kRootInode, "second"));
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_EQ(Read("second"), "contents");
  EXPECT_EQ(fs_->GetAttributes(file_, {})->links, 1u);
}

// As if it had been removed after that.
TEST_F(RemovalByOldLookTest, WhatTheNameIsByNowGoes) {
  OtherLists();
  auto upload = fs_->Create(kRootInode, "file", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK(upload);
  ASSERT_OK((*upload)->Write(0, AsBytes("uploaded")));
  ASSERT_OK((*upload)->Close());
  const InodeId uploaded = fs_->Lookup(kRootInode, "file")->inode;
  EXPECT_NE(uploaded, file_);
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_FALSE(IsThere(uploaded));
  EXPECT_FALSE(IsThere(file_));
}

TEST_F(RemovalByOldLookTest, OfTwoThatWereExchangedTheOtherOneGoes) {
  Make("peer", "of the peer");
  OtherLists();
  ASSERT_OK(fs_->Exchange(kRootInode, "file", kRootInode, "peer"));
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_EQ(Read("peer"), "contents");
}

TEST_F(RemovalByOldLookTest, AFileThatReplacedItGoes) {
  Make("mover", "of the mover");
  OtherLists();
  ASSERT_OK(fs_->Rename(kRootInode, "mover", kRootInode, "file"));
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_TRUE(List().empty());
}

TEST_F(RemovalByOldLookTest, AFileThatWasWrittenSinceGoes) {
  OtherLists();
  Make("file", "other contents");
  ASSERT_OK(other_->Unlink(kRootInode, "file"));
  EXPECT_EQ(Read("file"), kNone);
  EXPECT_FALSE(IsThere(file_));
}

// An fsync of a new file writes its entry anew, and leaves the inode as it is.
TEST_F(RemovalByOldLookTest, AnEntryThatWasMadeSafeSinceGoes) {
  auto made = fs_->Create(kRootInode, "synced", {.exclusive = true});
  ASSERT_OK(made);
  ASSERT_OK((*made)->Write(0, AsBytes("x")));
  ASSERT_OK((*made)->Commit());
  OtherLists();
  ASSERT_OK((*made)->Sync());
  ASSERT_OK(other_->Unlink(kRootInode, "synced"));
  EXPECT_EQ(Read("synced"), kNone);
  EXPECT_EQ(List().size(), 1u) << "not even the name is left";
}

// It lies elsewhere then.
TEST_F(RemovalByOldLookTest, AFileThatCameFromAnotherDirectoryIsRemovedInTwoSteps) {
  const InodeId directory = MakeDirectory("d");
  ASSERT_OK(fs_->Rename(kRootInode, "file", directory, "file"));
  ASSERT_OK(fs_->Unlink(directory, "file"));
  EXPECT_FALSE(IsThere(file_));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
}

// A host that has not seen the name reads the entry first and then the inode. Between the two
// another host may give the file another name: then it has one name and no rename under way, as it
// had before.
TEST_F(RemovalByOldLookTest, AFileThatWasRenamedBetweenTheTwoReadsStays) {
  using std::chrono::milliseconds;
  const auto set_latency = [&](milliseconds one_way) {
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      machines_.drive(id).Set({.least_latency = one_way, .most_latency = one_way});
    }
  };
  Host late = NewHost();
  set_latency(milliseconds(50));
  const auto done = sim_.NewSignal();
  sim_.Spawn("late", [&] {
    const auto found = late->Lookup(kRootInode, "file");
    EXPECT_OK(found);
    EXPECT_FAILS(late->Unlink(kRootInode, "file"), ENOENT);
    done->Set();
  });
  sim_.Sleep(milliseconds(120));  // the inode is being asked for
  set_latency(milliseconds(0));
  ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "moved"));
  done->WaitUntil(Time::max());
  EXPECT_EQ(Read("moved"), "contents");
}

// The host dies after any number of its requests. Others find the file whole, or not at all.
TEST_F(RemovalByOldLookTest, AHostThatDiesLeavesAllOrNothing) {
  int whole = 0;
  int gone = 0;
  for (uint64_t requests = 0; requests < 12; ++requests) {
    SCOPED_TRACE(requests);
    const std::string name = fmt::format("f{}", requests);
    Make(name, "contents");
    const auto life = std::make_shared<ClientLife>();
    {
      const auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      const auto dying = FileSystem::Open(**cluster, {});
      ASSERT_OK(dying);
      ASSERT_FALSE(List(kRootInode, dying->get()).empty());
      life->CrashAfter(requests);
      (void)(*dying)->Unlink(kRootInode, name);
    }
    sim_.Sleep(std::chrono::seconds(30));
    const std::string read = Read(name);
    EXPECT_TRUE(read == "contents" || read == kNone) << read;
    ++(read == kNone ? gone : whole);
    // Whatever was left, the name is of use.
    if (read == kNone) Make(name, "anew");
    ASSERT_OK(fs_->Unlink(kRootInode, name));
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(gone, 0);
}

}  // namespace
}  // namespace pinstripe
