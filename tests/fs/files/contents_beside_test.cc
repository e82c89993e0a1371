// Small contents in pieces beside the inode (docs/format.md, "Contents beside the inode"): where
// they lie, what they cost, and that a writer which dies anywhere leaves all of them or none.

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "cluster/map/features.h"
#include "fs/files/beside_number.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

constexpr size_t kReplicas = 5;
constexpr size_t kSmall = 10'000;

class ContentsBesideTest : public FsTest {
 protected:
  ContentsBesideTest() : FsTest({.drives = 8, .layout = {4, 2, 64 << 10}}) {
    format_.features = {NewFeature(kContentsBesideFeature)};
  }

  uint64_t PutBytes() {
    uint64_t bytes = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      bytes += machines_.drive(id).requests().put_bytes;
    }
    return bytes;
  }

  std::vector<DriveId> HomesOf(InodeId id) {
    return host_.cluster->RegisterHomes(host_.cluster->GroupOfObject(id));
  }

  // As Make(), with its name at the first commit.
  Status Upload(FileSystem& fs, std::string_view name, std::string_view contents) {
    auto file = fs.Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    if (!file.has_value()) return file.error();
    Status status = (*file)->Write(0, AsBytes(contents));
    if (status.ok()) status = (*file)->Close();
    return status;
  }

  void ExpectBeside(InodeId id, size_t size) {
    const Inode inode = InodeOf(id);
    ASSERT_TRUE(inode.map && inode.map->blocks() == 1);
    const auto place = inode.map->Find(0);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->layout, (StripeLayout{3, 2, kCellBytes}));
    EXPECT_TRUE(IsBeside(place->IdOf(0).block));
    EXPECT_EQ(place->stored, size);
    EXPECT_TRUE(place->place.moved.empty());
    const auto homes = host_.cluster->stripes().HomesOf(place->IdOf(0), place->layout);
    ASSERT_OK(homes);
    EXPECT_EQ(*homes, HomesOf(id));
  }

  void ExpectNothingIsWrong() {
    sim_.Sleep(std::chrono::minutes(3));
    ExpectClean(Checker(*host_.cluster, {}).Run());
  }
};

TEST_F(ContentsBesideTest, TheyLieOnTheDrivesOfTheInode) {
  const std::string contents = Pattern(1, kSmall);
  const InodeId made = Make("made", contents);
  ASSERT_OK(Upload(*fs_, "uploaded", contents));
  const InodeId uploaded = fs_->Resolve("/uploaded")->inode;
  for (const InodeId id : {made, uploaded}) ExpectBeside(id, kSmall);
  Host other = NewHost();
  EXPECT_EQ(Contents("/made", other.fs.get()), contents);
  EXPECT_EQ(Contents("/uploaded", other.fs.get()), contents);
  ExpectNothingIsWrong();
}

// Three fifths of what a copy on each of three drives takes, and a third of what one on each of
// five does; about 1.3 KiB are inode and name.
TEST_F(ContentsBesideTest, TheyTakeFiveThirdsOfTheirBytes) {
  const uint64_t before = PutBytes();
  ASSERT_OK(Upload(*fs_, "uploaded", Pattern(1, 60'000)));
  const uint64_t bytes = PutBytes() - before;
  EXPECT_LT(bytes, 60'000 * 5 / 3 + 4000);
}

TEST_F(ContentsBesideTest, TheyGoWithTheInodeInOneMessage) {
  const auto puts = [&] {
    uint64_t count = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) count += machines_.drive(id).requests().put;
    return count;
  };
  for (const bool uploads : {true, false}) {
    auto file = fs_->Create(kRootInode, uploads ? "u" : "m", {.publish_at_commit = uploads});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kSmall))));
    const uint64_t before = puts();
    ASSERT_OK((*file)->Close());
    EXPECT_EQ(puts() - before, kReplicas);
  }
}

TEST_F(ContentsBesideTest, AnyTwoDrivesMayBeLost) {
  const std::string contents = Pattern(1, kSmall);
  const InodeId id = Make("file", contents);
  const std::vector<DriveId> homes = HomesOf(id);
  for (const DriveId a : homes) {
    for (const DriveId b : homes) {
      if (a == b) continue;
      machines_.SetDown(a, true);
      machines_.SetDown(b, true);
      Host other = NewHost();
      EXPECT_EQ(Contents("/file", other.fs.get()), contents);
      machines_.SetDown(a, false);
      machines_.SetDown(b, false);
      sim_.Sleep(std::chrono::seconds(1));
    }
  }
}

// What is written over them, or behind them, is theirs as of any contents.
TEST_F(ContentsBesideTest, TheyAreChangedAsOthersAre) {
  std::string contents = Pattern(1, kSmall);
  const InodeId id = Make("file", contents);
  const auto change = [&](uint64_t offset, size_t size) {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    const std::string bytes = Pattern(offset + size, size);
    ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
    ASSERT_OK((*file)->Close());
    contents.resize(std::max(contents.size(), offset + size));
    contents.replace(offset, size, bytes);
    EXPECT_EQ(Contents("/file"), contents);
    Host other = NewHost();
    EXPECT_EQ(Contents("/file", other.fs.get()), contents);
  };
  change(100, 300);
  ExpectBeside(id, kSmall);
  change(kSmall, 5000);
  ExpectBeside(id, kSmall + 5000);
  change(kSmall, 300'000);  // it is small no more
  EXPECT_EQ(InodeOf(id).map->Find(0)->shift, 0u);
  ExpectNothingIsWrong();
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Truncate(0));
  contents.clear();
  ASSERT_OK((*file)->Close());
  change(0, kSmall);
  ExpectBeside(id, kSmall);
  // A block that was small stays as it is while others come.
  file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Truncate(3 << 20));
  ASSERT_OK((*file)->Close());
  contents.resize(3 << 20);
  EXPECT_EQ(Contents("/file"), contents);
  change(1 << 20, 200'000);
  EXPECT_TRUE(IsBeside(InodeOf(id).map->Find(0)->IdOf(0).block));
  ExpectNothingIsWrong();
}

// Each of its requests may be the last one of a host. Then the file is there as a whole, or as it
// was before, for everybody and for ever.
TEST_F(ContentsBesideTest, AWriterThatDiesLeavesAllOfThemOrNone) {
  const std::string contents = Pattern(1, kSmall);
  int wholes = 0;
  int nones = 0;
  for (const bool uploads : {true, false}) {
    for (uint64_t requests = 0; requests < 40; ++requests) {
      const std::string name = fmt::format("{}{}", uploads ? "u" : "m", requests);
      auto life = std::make_shared<ClientLife>();
      Host dying = NewHost(64 << 20, life);
      auto file = dying->Create(kRootInode, name, {.truncate = true, .publish_at_commit = uploads});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(contents)));
      life->CrashAfter(requests);
      const Status closed = (*file)->Close();
      sim_.Sleep(std::chrono::seconds(1));
      Host other = NewHost();
      const auto found = other->Resolve("/" + name);
      const bool is_there = found.has_value();
      EXPECT_TRUE(uploads || is_there) << name;
      const std::string first = is_there ? Contents("/" + name, other.fs.get()) : "";
      SCOPED_TRACE(fmt::format("{}: {} bytes", name, first.size()));
      if (closed.ok() || (uploads && is_there) || !first.empty()) {
        EXPECT_EQ(first, contents);
      }
      ++(first.empty() ? nones : wholes);
      Host third = NewHost();
      EXPECT_EQ(third->Resolve("/" + name).has_value(), is_there);
      if (is_there) {
        EXPECT_EQ(Contents("/" + name, third.fs.get()), first);
      }
      file->reset();
    }
  }
  EXPECT_GT(wholes, 10);
  EXPECT_GT(nones, 5);
}

// The same by drives: those of `reached` get all that a host sends before it dies.
TEST_F(ContentsBesideTest, WhicheverDrivesADyingWriterReachesTheyAreThereAsAWholeOrNotAtAll) {
  const std::string contents = Pattern(1, kSmall);
  std::map<std::string, std::set<int>> outcomes;
  for (const bool uploads : {true, false}) {
    for (unsigned reached = 0; reached < 1u << kReplicas; ++reached) {
      const std::string name = fmt::format("{}{}", uploads ? "u" : "m", reached);
      auto life = std::make_shared<ClientLife>();
      Host dying = NewHost(64 << 20, life);
      auto file = dying->Create(kRootInode, name, {.truncate = true, .publish_at_commit = uploads});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(contents)));
      const std::vector<DriveId> homes = HomesOf((*file)->inode());
      sim_.Sleep(std::chrono::seconds(1));  // until the directory's time was noted
      for (size_t i = 0; i < kReplicas; ++i) {
        if ((reached >> i & 1) == 0) machines_.drive(homes[i]).Set({.lose_request = 1});
      }
      life->CrashAfter(kReplicas);  // a message to each
      const bool closed = (*file)->Close().ok();
      for (const DriveId home : homes) machines_.drive(home).Set({});
      sim_.Sleep(std::chrono::seconds(20));
      Host other = NewHost();
      const bool is_there = other->Resolve("/" + name).has_value();
      const std::string first = is_there ? Contents("/" + name, other.fs.get()) : "";
      SCOPED_TRACE(fmt::format("{}: {} bytes", name, first.size()));
      EXPECT_TRUE(uploads || is_there);
      if (closed || (uploads && is_there) || !first.empty()) {
        EXPECT_EQ(first, contents);
      }
      // What was on its way may be finished by whoever meets it, and is there from then on.
      for (int looks = 0; looks < 3; ++looks) {
        Host third = NewHost();
        const bool is_still_there = third->Resolve("/" + name).has_value();
        EXPECT_TRUE(is_still_there || !is_there);
        if (!is_still_there) continue;
        const std::string again = Contents("/" + name, third.fs.get());
        EXPECT_TRUE(again == contents || (again.empty() && first.empty() && !uploads));
      }
      outcomes[first.empty() ? "none" : "all"].insert(std::popcount(reached));
      file->reset();
    }
  }
  // Of three it may be known or not that they are enough.
  outcomes["none"].erase(3);
  outcomes["all"].erase(3);
  EXPECT_EQ(outcomes["none"], (std::set{0, 1, 2}));
  EXPECT_EQ(outcomes["all"], (std::set{4, 5}));
}

}  // namespace
}  // namespace pinstripe
