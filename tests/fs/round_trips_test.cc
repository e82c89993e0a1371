// How often an operation waits for the drives, on an idle cluster. Every request and every answer
// is on its way for exactly as long, so simulated time counts round trips.

#include <gtest/gtest.h>

#include "cluster/epoch_change.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class RoundTripsTest : public FsTest {
 protected:
  static constexpr auto kOneWay = std::chrono::milliseconds(50);

  void SetUp() override {
    FsTest::SetUp();
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id))
          .Set({.least_latency = kOneWay, .most_latency = kOneWay});
    }
  }

  int64_t Count(const std::function<void()>& body) {
    const Time start = sim_.Now();
    body();
    return (sim_.Now() - start) / (2 * kOneWay);
  }

  void Write(std::string_view name, size_t size, bool publish_at_commit) {
    auto file =
        fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = publish_at_commit});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, size))));
    ASSERT_OK((*file)->Close());
  }
};

TEST_F(RoundTripsTest, AStatIsOneOnceTheNameWasSeen) {
  Make("file", "x");
  Host other = NewHost();
  EXPECT_EQ(Count([&] { ASSERT_OK(other->Lookup(kRootInode, "file")); }), 2);
  EXPECT_EQ(Count([&] { ASSERT_OK(other->Lookup(kRootInode, "file")); }), 1);
  EXPECT_EQ(
      Count([&] { ASSERT_OK(other->GetAttributes(other->Lookup(kRootInode, "file")->inode)); }), 2);
  EXPECT_EQ(Count([&] { EXPECT_FAILS(other->Lookup(kRootInode, "none"), ENOENT); }), 1);
}

// A guess that has become wrong costs what no guess costs.
TEST_F(RoundTripsTest, AStatOfANameThatWasGivenToAnotherFileIsTwo) {
  Make("file", "x");
  ASSERT_OK(fs_->Lookup(kRootInode, "file"));
  Host other = NewHost();
  ASSERT_OK(other->Unlink(kRootInode, "file"));
  auto file = other->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  const InodeId inode = (*file)->inode();
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Count([&] { EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, inode); }), 2);
  EXPECT_EQ(Count([&] { EXPECT_EQ(fs_->Lookup(kRootInode, "file")->inode, inode); }), 1);
}

// Entry and inode at once, as the name was seen before; the contents of a small file come along.
TEST_F(RoundTripsTest, OpeningAPathIsOneAndSeesWhatOthersCommitted) {
  Make("file", "before");
  Host other = NewHost();
  const auto opens = [&](std::string_view contents) {
    const auto file = other->OpenPath("/file", FileSystem::Access::kRead);
    ASSERT_OK(file);
    EXPECT_EQ(ReadAll(**file), contents);
  };
  ASSERT_OK(other->Lookup(kRootInode, "file"));
  EXPECT_EQ(Count([&] { opens("before"); }), 1);
  auto handle = fs_->OpenPath("/file", FileSystem::Access::kWrite, /*truncate=*/true);
  ASSERT_OK(handle);
  ASSERT_OK((*handle)->Write(0, AsBytes("after")));
  ASSERT_OK((*handle)->Close());
  EXPECT_EQ(Count([&] { opens("after"); }), 1);
  ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {}));
  EXPECT_FAILS(other->OpenPath("/d", FileSystem::Access::kRead), EISDIR);
  EXPECT_FAILS(other->OpenPath("/", FileSystem::Access::kRead), EISDIR);
  EXPECT_FAILS(other->OpenPath("/none", FileSystem::Access::kRead), ENOENT);
}

// Look the name up, write inode and contents, the entry, the directory's time.
TEST_F(RoundTripsTest, AnUploadOfASmallFileIsFour) {
  EXPECT_EQ(Count([&] { Write("new", 1000, /*publish_at_commit=*/true); }), 4);
}

// The name appears at once, and the contents with the close.
TEST_F(RoundTripsTest, ASmallFileThatAppearsAtOnceIsOneMore) {
  EXPECT_EQ(Count([&] { Write("new", 1000, /*publish_at_commit=*/false); }), 5);
}

// As a mount does it: the kernel looks up each name just before.
TEST_F(RoundTripsTest, AFileWhoseNameWasJustLookedUpIsOneLess) {
  EXPECT_FAILS(fs_->Lookup(kRootInode, "new"), ENOENT);
  std::unique_ptr<OpenFile> file;
  EXPECT_EQ(Count([&] { file = *fs_->Create(kRootInode, "new", {.exclusive = true}); }), 3);
  EXPECT_EQ(Count([&] { EXPECT_EQ(file->Known().links, 1u); }), 0);
  ASSERT_OK(file->Write(0, AsBytes("x")));
  EXPECT_EQ(Count([&] { ASSERT_OK(file->Close()); }), 1);
  EXPECT_FAILS(fs_->Lookup(kRootInode, "d"), ENOENT);
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {})); }), 3);
  ASSERT_OK(fs_->Lookup(kRootInode, "new"));
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, "new")); }), 3);
  ASSERT_OK(fs_->Lookup(kRootInode, "d"));
  sim_.Sleep(std::chrono::seconds(1));
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d")); }), 5);
}

TEST_F(RoundTripsTest, UnlinkIsFour) {
  Make("file", "x");
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, "file")); }), 4);
}

// Look both names up, then the steps of fs/rename.cc that concern a file and one directory.
TEST_F(RoundTripsTest, ARenameInADirectoryIsSeven) {
  Make("file", "x");
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->Rename(kRootInode, "file", kRootInode, "new")); }), 7);
}

// Names begin new slots there, whether they are new, were removed before, or are there.
TEST_F(RoundTripsTest, InALaterEpochTheyAreAsMany) {
  const auto prepare = [&](const std::string& mark) {
    Make("there" + mark, "x");
    Make("removed" + mark, "x");
    ASSERT_OK(fs_->Unlink(kRootInode, "removed" + mark));
  };
  const auto measure = [&](const std::string& mark) {
    std::vector<int64_t> counts;
    const auto rename = [&](const std::string& from, const std::string& to) {
      counts.push_back(Count([&] { ASSERT_OK(fs_->Rename(kRootInode, from, kRootInode, to)); }));
    };
    for (const std::string& name : {"new" + mark, "removed" + mark}) {
      counts.push_back(Count([&] { Write(name, 1000, /*publish_at_commit=*/true); }));
    }
    rename("there" + mark, "moved" + mark);
    rename("moved" + mark, "there" + mark);
    for (const std::string& name : {"new" + mark, "removed" + mark, "there" + mark}) {
      counts.push_back(Count([&] { ASSERT_OK(fs_->Unlink(kRootInode, name)); }));
    }
    return counts;
  };
  prepare(" 1");
  prepare(" 2");
  const std::vector<int64_t> first = measure(" 1");
  ASSERT_OK(RenewEpoch(*host_.cluster));
  EXPECT_EQ(measure(" 2"), first);
}

TEST_F(RoundTripsTest, MkdirIsFour) {
  EXPECT_EQ(Count([&] { ASSERT_OK(fs_->MakeDirectory(kRootInode, "d", 0755, {})); }), 4);
}

}  // namespace
}  // namespace pinstripe
