// Small contents in pieces beside the inode (docs/format.md, "Contents beside the inode"): where
// they lie, what they cost, and that a writer which dies anywhere leaves all of them or none.

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
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
  explicit ContentsBesideTest(TestCluster::Options options = {.drives = 8,
                                                              .layout = {4, 2, 64 << 10}})
      : FsTest(options) {
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

  // How contents come into a file that has none to keep.
  enum class Way { kUploaded, kMade, kReplaced };
  // What is there before, and stays there unless the contents come.
  std::string Before(Way way) { return way == Way::kReplaced ? Pattern(9, 2 * kSmall) : ""; }
  std::unique_ptr<OpenFile> Begin(FileSystem& fs, Way way, const std::string& name) {
    if (way == Way::kReplaced) {
      Make(name, Before(way));
      sim_.Sleep(std::chrono::seconds(1));  // until all homes have taken it
    }
    auto file =
        way == Way::kReplaced
            ? fs.OpenPath(
                  {.path = "/" + name, .access = FileSystem::Access::kWrite, .truncate = true})
            : fs.Create(kRootInode, name,
                        {.truncate = true, .publish_at_commit = way == Way::kUploaded});
    EXPECT_OK(file);
    return *std::move(file);
  }

  // A commit that reaches two homes, and nobody knows what becomes of it.
  void FailToCommit(OpenFile& file) {
    const std::vector<DriveId> homes = HomesOf(file.inode());
    for (size_t i = 0; i < 3; ++i) machines_.drive(homes[i]).Set({.lose_request = 1});
    EXPECT_FAILS(file.Commit(), EIO);
    for (const DriveId home : homes) machines_.drive(home).Set({});
    sim_.Sleep(std::chrono::seconds(10));
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
  for (const Way way : {Way::kUploaded, Way::kMade, Way::kReplaced}) {
    auto file = Begin(*fs_, way, std::to_string(static_cast<int>(way)));
    ASSERT_OK(file->Write(0, AsBytes(Pattern(1, kSmall))));
    sim_.Sleep(std::chrono::seconds(1));  // until each home has told its state
    const uint64_t before = puts();
    ASSERT_OK(file->Close());
    EXPECT_EQ(puts() - before, kReplicas);
    ExpectBeside(file->inode(), kSmall);
  }
  ExpectNothingIsWrong();
}

// What is kept of a file would have to be safe before an inode names it elsewhere.
TEST_F(ContentsBesideTest, SmallOnesThatAreChangedMoveIntoTheInode) {
  std::string contents = Pattern(1, 1500);
  const InodeId id = Make("file", contents);
  ExpectBeside(id, contents.size());
  const auto append = [&](size_t size) {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Append(AsBytes(Pattern(2, size))));
    ASSERT_OK((*file)->Close());
    contents += Pattern(2, size);
    Host other = NewHost();
    EXPECT_EQ(Contents("/file", other.fs.get()), contents);
  };
  append(100);
  EXPECT_EQ(InodeOf(id).map, std::nullopt);
  EXPECT_EQ(InodeOf(id).inline_data, contents);
  append(2496);
  EXPECT_EQ(InodeOf(id).inline_data, contents) << "4 KiB";
  append(1);
  ExpectBeside(id, contents.size());
  ExpectNothingIsWrong();
}

// Its homes have no room for data, and the other drives have.
class FullHomesTest : public ContentsBesideTest {
 protected:
  FullHomesTest()
      : ContentsBesideTest({.drives = 12,
                            .layout = {4, 2, 64 << 10},
                            .drive_bytes = 8 << 20,
                            .reserve_bytes = 2 << 20}) {}

  void Fill(DriveId id) {
    Status status;
    int number = 0;
    for (const size_t size : {1 << 19, 1 << 14, 1 << 9}) {
      for (status = {}; status.ok();) {
        Gather<Status> gather(sim_);
        machines_.memory(id).Put({.key = fmt::format("junk{}", number++),
                                  .value = SharedBytes(std::string(size, 'x')),
                                  .room = Room::kData},
                                 Time::max(), gather.Ask(0));
        status = std::move(gather.Next(Time::max())->value);
      }
      ASSERT_EQ(status.code(), ENOSPC) << status.message();
    }
    junk_ = std::max(junk_, number);
  }

  void Empty(DriveId id) {
    for (int number = 0; number < junk_; ++number) {
      Gather<Status> gather(sim_);
      machines_.memory(id).Delete(fmt::format("junk{}", number), Expected::Any(),
                                  Durability::kWriteBack, Time::max(), gather.Ask(0));
      (void)gather.Next(Time::max());  // it may have fewer
    }
  }

 private:
  int junk_ = 0;  // keys that a drive may have
};

TEST_F(FullHomesTest, ContentsGoToOtherDrives) {
  // Some are tried with their inodes, those of which each home has told its state.
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    auto file = Begin(*fs_, static_cast<Way>(i % 3), std::to_string(i));
    const std::vector<DriveId> homes = HomesOf(file->inode());
    for (const DriveId home : homes) Fill(home);
    ASSERT_OK(file->Write(0, AsBytes(Pattern(1, kSmall))));
    sim_.Sleep(std::chrono::seconds(1));
    ASSERT_OK(file->Close());
    for (const DriveId home : homes) Empty(home);
    Host other = NewHost();
    EXPECT_EQ(Contents("/" + std::to_string(i), other.fs.get()), Pattern(1, kSmall));
  }
}

// The replicas would keep all that is replaced until the next change.
TEST_F(ContentsBesideTest, TheyDoNotGoWithAnInodeThatReplacesALargeOne) {
  const InodeId id = Make("file", Pattern(1, 1500));
  const auto write = [&](std::string_view contents, bool truncate) {
    sim_.Sleep(std::chrono::seconds(1));  // until all homes have taken what was before
    auto file = fs_->Open(id, FileSystem::Access::kWrite, truncate);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(contents)));
    sim_.Sleep(std::chrono::seconds(1));  // and told their state
    ASSERT_OK((*file)->Close());
  };
  write(Pattern(2, 4000), /*truncate=*/false);
  EXPECT_EQ(InodeOf(id).inline_data, Pattern(2, 4000));
  const uint64_t before = PutBytes();
  write(Pattern(3, 600), /*truncate=*/true);
  EXPECT_LT(PutBytes() - before, 12'000u) << "each replica would have both";
  ExpectBeside(id, 600);
  Host other = NewHost();
  EXPECT_EQ(Contents("/file", other.fs.get()), Pattern(3, 600));
  ExpectNothingIsWrong();
}

// The old pieces are there until the inode says for certain where the new ones are.
TEST_F(ContentsBesideTest, WhatIsReplacedWhereAHomeTakesNoneLeavesNothingBehind) {
  auto file = Begin(*fs_, Way::kReplaced, "file");
  const InodeId id = file->inode();
  const std::vector<DriveId> homes = HomesOf(id);
  machines_.drive(homes[2]).Set({.full = true});
  ASSERT_OK(file->Write(0, AsBytes(Pattern(1, kSmall))));
  ASSERT_OK(file->Close());
  machines_.drive(homes[2]).Set({});
  Host other = NewHost();
  EXPECT_EQ(Contents("/file", other.fs.get()), Pattern(1, kSmall));
  ExpectNothingIsWrong();
}

// As contents in the inode: one wait less than where they are stored before the inode names them.
TEST_F(ContentsBesideTest, AnUploadWaitsTwiceAndACloseOnce) {
  constexpr auto kOneWay = std::chrono::milliseconds(50);
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = kOneWay, .most_latency = kOneWay});
  }
  const auto count = [&](const std::function<void()>& body) {
    const Time start = sim_.Now();
    body();
    return (sim_.Now() - start) / (2 * kOneWay);
  };
  EXPECT_EQ(count([&] { ASSERT_OK(Upload(*fs_, "uploaded", Pattern(1, kSmall))); }), 2);
  auto file = fs_->Create(kRootInode, "made", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kSmall))));
  EXPECT_EQ(count([&] { ASSERT_OK((*file)->Close()); }), 1);
  // Whoever opens it elsewhere waits for the pieces, too.
  Host other = NewHost();
  const InodeId id = other->Resolve("/made")->inode;
  auto there = other->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(there);
  EXPECT_EQ(count([&] { ReadAll(**there); }), 1);
}

// A gateway tells its client that the file is open, and then the client asks for it.
TEST_F(ContentsBesideTest, WhatAPathLeadsToIsOnItsWayWhenItIsOpen) {
  constexpr auto kOneWay = std::chrono::milliseconds(50);
  ASSERT_OK(Upload(*fs_, "beside", Pattern(1, kSmall)));
  Host other = NewHost();
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = kOneWay, .most_latency = kOneWay});
  }
  auto file = other->OpenPath({.path = "/beside"});
  ASSERT_OK(file);
  sim_.Sleep(2 * kOneWay);
  const Time before = sim_.Now();
  EXPECT_EQ(ReadAll(**file), Pattern(1, kSmall));
  EXPECT_LT(sim_.Now() - before, kOneWay) << "nobody asked a drive";
}

// `cp -r` and `grep -r`: whoever has just listed it waits once to open it and to read all of it.
TEST_F(ContentsBesideTest, WhatWasJustListedIsReadWithOneWait) {
  constexpr auto kOneWay = std::chrono::milliseconds(50);
  ASSERT_OK(Upload(*fs_, "beside", Pattern(1, kSmall)));
  ASSERT_OK(Upload(*fs_, "changed", Pattern(2, kSmall)));
  ASSERT_OK(Upload(*fs_, "removed", Pattern(3, kSmall)));
  options_.listed_age = std::chrono::seconds(20);
  Host other = NewHost();
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.least_latency = kOneWay, .most_latency = kOneWay});
  }
  const auto count = [&](const std::function<void()>& body) {
    const Time start = sim_.Now();
    body();
    return (sim_.Now() - start) / (2 * kOneWay);
  };
  const auto read = [&](InodeId id) {
    auto file = other->Open(id, FileSystem::Access::kRead);
    EXPECT_OK(file);
    return file ? ReadAll(**file) : "";
  };
  const auto listed = other->ReadDirectory(kRootInode, "", 10, /*with_attributes=*/true);
  ASSERT_OK(listed);
  ASSERT_EQ(listed->size(), 3u);
  const auto messages = [&] {
    uint64_t all = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      all += machines_.drive(id).requests().get_messages;
    }
    return all;
  };
  const uint64_t before = messages();
  EXPECT_EQ(count([&] { EXPECT_EQ(read((*listed)[0].inode), Pattern(1, kSmall)); }), 1);
  EXPECT_EQ(messages() - before, kReplicas) << "a piece is asked for with the inode";
  // It is only asked for early: what counts is what the inode says now.
  auto file = fs_->Open((*listed)[1].inode, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(4, kSmall / 2))));
  ASSERT_OK((*file)->Close());
  const std::string changed = Pattern(4, kSmall / 2) + Pattern(2, kSmall).substr(kSmall / 2);
  EXPECT_EQ(read((*listed)[1].inode), changed);
  ASSERT_OK(fs_->Unlink(kRootInode, "removed"));
  EXPECT_FAILS(other->Open((*listed)[2].inode, FileSystem::Access::kRead), ENOENT);
}

// A piece whose drive is away or full goes to a spare, as of any stripe, and comes home later.
TEST_F(ContentsBesideTest, APieceGoesToASpareWhereItsHomeTakesNone) {
  const std::string contents = Pattern(1, kSmall);
  for (const DriveFaults& faults : {DriveFaults{.down = true}, DriveFaults{.full = true}}) {
    const std::string name = faults.down ? "down" : "full";
    auto file = fs_->Create(kRootInode, name, {});
    ASSERT_OK(file);
    const std::vector<DriveId> homes = HomesOf((*file)->inode());
    machines_.drive(homes[2]).Set(faults);
    ASSERT_OK((*file)->Write(0, AsBytes(contents)));
    ASSERT_OK((*file)->Close());
    const auto place = InodeOf((*file)->inode()).map->Find(0);
    ASSERT_TRUE(place);
    ASSERT_EQ(place->place.moved.size(), 1u);
    EXPECT_EQ(place->place.moved[0].shard, 2);
    EXPECT_NE(place->place.moved[0].drive, 0);
    EXPECT_EQ(Contents("/" + name), contents);
    machines_.drive(homes[2]).Set({});
    sim_.Sleep(std::chrono::seconds(30));  // somebody brings it home
    ExpectBeside((*file)->inode(), kSmall);
  }
  ExpectNothingIsWrong();
}

// The inode is changed twice then, and another host may change it in between.
TEST_F(ContentsBesideTest, WherePiecesAreIsKnownThoughOthersChangeTheInode) {
  Host other = NewHost();
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    auto file = fs_->Create(kRootInode, fmt::format("{}", i), {});
    ASSERT_OK(file);
    const InodeId id = (*file)->inode();
    const std::vector<DriveId> homes = HomesOf(id);
    machines_.drive(homes[4]).Set({.full = true});
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kSmall))));
    bool is_closed = false;
    uint32_t mode = 0;
    RunTogether(2, [&](int host) {
      if (host == 0) {
        EXPECT_OK((*file)->Close());
        is_closed = true;
        return;
      }
      for (int changes = 0; !is_closed && changes < 4; ++changes) {
        sim_.Sleep(std::chrono::microseconds(sim_.Below(300)));
        mode = (mode + 1) % 0777;
        (void)other->SetAttributes(id, {.mode = mode});
      }
    });
    const auto place = InodeOf(id).map->Find(0);
    ASSERT_TRUE(place);
    const auto places =
        host_.cluster->stripes().PlacesOf(place->IdOf(0), place->layout, place->place);
    ASSERT_OK(places);
    EXPECT_NE((*places)[4], homes[4]);
    machines_.drive(homes[4]).Set({});
  }
}

// It may even replace the contents, and delete the pieces that our first change named.
TEST_F(ContentsBesideTest, PiecesThatAnotherHostHasReplacedAreNotNamedAgain) {
  Host other = NewHost();
  const std::string contents = Pattern(1, kSmall);
  const std::string theirs = Pattern(2, kSmall);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const std::string name = std::to_string(i);
    auto file = Begin(*fs_, i % 2 == 0 ? Way::kMade : Way::kReplaced, name);
    const std::vector<DriveId> homes = HomesOf(file->inode());
    machines_.drive(homes[4]).Set({.full = true});
    ASSERT_OK(file->Write(0, AsBytes(contents)));
    sim_.Sleep(std::chrono::seconds(1));
    RunTogether(2, [&](int host) {
      if (host == 0) {
        EXPECT_OK(file->Close());
        return;
      }
      sim_.Sleep(std::chrono::microseconds(sim_.Below(1500)));
      auto there = other->Open(file->inode(), FileSystem::Access::kWrite, /*truncate=*/true);
      ASSERT_OK(there);
      ASSERT_OK((*there)->Write(0, AsBytes(theirs)));
      EXPECT_OK((*there)->Close());
    });
    file.reset();
    machines_.drive(homes[4]).Set({});
    sim_.Sleep(std::chrono::minutes(1));
    Host third = NewHost();
    const std::string now = Contents("/" + name, third.fs.get());
    EXPECT_TRUE(now == contents || now == theirs) << now.size() << " bytes";
  }
  // A piece on a spare that the other host did not know of is for a collection.
  EXPECT_TRUE(Checker(*host_.cluster, {}).Run().findings.empty());
}

// Nor does the host that could not store all of them delete what is named.
TEST_F(ContentsBesideTest, WhatWasChosenWithTooFewPiecesIsThereLater) {
  for (const Way way : {Way::kMade, Way::kReplaced}) {
    const std::string name = std::to_string(static_cast<int>(way));
    auto file = Begin(*fs_, way, name);
    ASSERT_OK(file->Write(0, AsBytes(Pattern(1, kSmall))));
    sim_.Sleep(std::chrono::seconds(1));
    const std::vector<DriveId> homes = HomesOf(file->inode());
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      const auto home = std::ranges::find(homes, id);
      if (home == homes.end()) machines_.SetDown(id, true);
      if (home == homes.begin() || home == homes.begin() + 1) {
        machines_.drive(id).Set({.lose_request = 1});
      }
    }
    EXPECT_FAILS(file->Close(), EIO);
    file.reset();
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      machines_.SetDown(id, false);
      machines_.drive(id).Set({});
    }
    sim_.Sleep(std::chrono::minutes(2));
    Host other = NewHost();
    const std::string now = Contents("/" + name, other.fs.get());
    EXPECT_TRUE(now == Before(way) || now == Pattern(1, kSmall)) << now.size() << " bytes";
  }
}

TEST_F(ContentsBesideTest, AnUploadOverAFileLeavesTheOldContentsOrTheNew) {
  Make("file", Pattern(2, 3 * kSmall));
  ASSERT_OK(Upload(*fs_, "file", Pattern(1, kSmall)));
  EXPECT_EQ(Contents("/file"), Pattern(1, kSmall));
  ExpectBeside(fs_->Resolve("/file")->inode, kSmall);
  ExpectNothingIsWrong();
}

// What became of the first attempt is found out, and the next one goes on from there: also where
// others have seen to it that it did not happen.
TEST_F(ContentsBesideTest, ACommitThatFailedMayBeTriedAgain) {
  const std::string contents = Pattern(1, kSmall);
  for (const bool uploads : {true, false}) {
    for (const bool others_look : {true, false}) {
      const std::string name = fmt::format("{}{}", uploads, others_look);
      SCOPED_TRACE(name);
      auto file = fs_->Create(kRootInode, name, {.truncate = true, .publish_at_commit = uploads});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(contents)));
      FailToCommit(**file);
      Host other = NewHost();
      if (others_look && !uploads) {
        EXPECT_EQ(Contents("/" + name, other.fs.get()), "");
      }
      if (others_look && uploads) {
        Records records(*other.cluster);
        EXPECT_EQ(*records.FindInode((*file)->inode()), std::nullopt);
      }
      EXPECT_OK((*file)->Commit());
      EXPECT_OK((*file)->Close());
      EXPECT_EQ(Contents("/" + name, other.fs.get()), contents);
    }
  }
  // Pieces of attempts whose outcome nobody knew are for a collection.
  sim_.Sleep(std::chrono::minutes(3));
  EXPECT_TRUE(Checker(*host_.cluster, {}).Run().findings.empty());
}

// Another one may make the name meanwhile. Then nobody writes that inode any more.
TEST_F(ContentsBesideTest, ANameThatWasTakenMeanwhileStaysTaken) {
  auto file = fs_->Create(kRootInode, "name", {.truncate = true, .publish_at_commit = true});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kSmall))));
  FailToCommit(**file);
  Host other = NewHost();
  auto theirs = other->Create(kRootInode, "name", {.exclusive = true});
  ASSERT_OK(theirs);
  ASSERT_OK((*theirs)->Write(0, AsBytes(Pattern(2, kSmall))));
  ASSERT_OK((*theirs)->Close());
  EXPECT_FAILS((*file)->Close(), ESTALE);
  Host third = NewHost();
  EXPECT_EQ(Contents("/name", third.fs.get()), Pattern(2, kSmall));
}

// The drives of an old drive map refuse it. It is made again with those of the new one.
TEST_F(ContentsBesideTest, AnEpochMayBeginMeanwhile) {
  for (const bool uploads : {true, false}) {
    auto file = fs_->Create(kRootInode, uploads ? "u" : "m", {.publish_at_commit = uploads});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kSmall))));
    auto admin = machines_.Open();
    ASSERT_OK(admin);
    const std::string feature(uploads ? kPacksFeature : kGrownDirectoriesFeature);
    ASSERT_OK(UseFeature(**admin, feature));
    EXPECT_OK((*file)->Close());
    EXPECT_EQ(Contents(uploads ? "/u" : "/m"), Pattern(1, kSmall));
  }
  ExpectNothingIsWrong();
}

// A cluster that an earlier version has formatted, and hosts that are at work in it while it comes
// to use what new ones do.
class UpgradeTest : public ContentsBesideTest {
 protected:
  UpgradeTest() { format_.features.clear(); }

  bool IsBesideInode(InodeId id) {
    const auto& map = InodeOf(id).map;
    return map && IsBeside(map->Find(0)->IdOf(0).block);
  }
};

TEST_F(UpgradeTest, WhoIsAtWorkGoesOnAndUsesIt) {
  const std::string small = Pattern(1, kSmall);
  Host other = NewHost();
  const InodeId before = Make("before", small);
  EXPECT_FALSE(IsBesideInode(before));
  const uint64_t block = StripeLayout{4, 2, 64 << 10}.block_bytes();
  const std::string large = Pattern(2, block);
  const InodeId punched = Make("punched", large);
  auto open = fs_->Create(kRootInode, "open", {});
  ASSERT_OK(open);
  ASSERT_OK((*open)->Write(0, AsBytes(small)));
  auto theirs = other->Open(before, FileSystem::Access::kWrite);
  ASSERT_OK(theirs);
  ASSERT_OK((*theirs)->Write(5, AsBytes("theirs")));
  {
    auto admin = machines_.Open();
    ASSERT_OK(admin);
    ASSERT_OK(UseFeatures(**admin, FeaturesToUse((*admin)->map().features, false)));
    EXPECT_TRUE(FeaturesToUse((*admin)->map().features, false).empty());
    const Epoch epoch = (*admin)->map().epoch;
    ASSERT_OK(UseFeatures(**admin, FeaturesOfNewCluster(false)));
    EXPECT_EQ((*admin)->map().epoch, epoch) << "once is enough";
  }
  ASSERT_OK((*open)->Close());
  ASSERT_OK((*theirs)->Close());
  ASSERT_EQ(host_.cluster->map().features, FeaturesOfNewCluster(false));
  const InodeId after = Make("after", small);
  EXPECT_TRUE(IsBesideInode(after));
  {
    auto file = fs_->Open(punched, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Zero(block / 4, block / 2, OpenFile::Size::kStays));
    ASSERT_OK((*file)->Close());
  }
  EXPECT_EQ(fs_->Resolve("/punched")->stored_bytes, block / 2);
  Host third = NewHost();
  std::string changed = small;
  changed.replace(5, 6, "theirs");
  std::string zeroed = large;
  zeroed.replace(block / 4, block / 2, block / 2, '\0');
  for (FileSystem* fs : {fs_, other.fs.get(), third.fs.get()}) {
    EXPECT_TRUE(Contents("/before", fs) == changed);
    EXPECT_TRUE(Contents("/open", fs) == small);
    EXPECT_TRUE(Contents("/after", fs) == small);
    EXPECT_TRUE(Contents("/punched", fs) == zeroed);
  }
  ExpectNothingIsWrong();
}

// A layout that survives more than names do keeps its copies.
TEST_F(ContentsBesideTest, AreNotForALayoutThatSurvivesMore) {
  const InodeId directory = MakeDirectory("safe");
  ASSERT_OK(fs_->SetExtended(directory, std::string(kLayoutAttribute), "4+2 copies=4"));
  const InodeId id = Make("file", Pattern(1, kSmall), directory);
  EXPECT_EQ(InodeOf(id).map->Find(0)->layout.data_shards, 1);
  EXPECT_EQ(InodeOf(id).map->Find(0)->shift, 0u);
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
// was before.
TEST_F(ContentsBesideTest, AWriterThatDiesLeavesAllOfThemOrNone) {
  const std::string contents = Pattern(1, kSmall);
  int wholes = 0;
  int nones = 0;
  for (const Way way : {Way::kUploaded, Way::kMade, Way::kReplaced}) {
    const bool uploads = way == Way::kUploaded;
    const std::string before = Before(way);
    for (uint64_t requests = 0; requests < 40; ++requests) {
      const std::string name = fmt::format("{}-{}", static_cast<int>(way), requests);
      auto life = std::make_shared<ClientLife>();
      Host dying = NewHost(64 << 20, life);
      auto file = Begin(*dying.fs, way, name);
      ASSERT_OK(file->Write(0, AsBytes(contents)));
      life->CrashAfter(requests);
      const Status closed = file->Close();
      sim_.Sleep(std::chrono::seconds(1));
      Host other = NewHost();
      const auto found = other->Resolve("/" + name);
      const bool is_there = found.has_value();
      EXPECT_TRUE(uploads || is_there) << name;
      const std::string first = is_there ? Contents("/" + name, other.fs.get()) : "";
      SCOPED_TRACE(fmt::format("{}: {} bytes", name, first.size()));
      if (closed.ok() || (uploads && is_there) || first != before) {
        EXPECT_EQ(first, contents);
      }
      ++(first == before ? nones : wholes);
      Host third = NewHost();
      EXPECT_EQ(third->Resolve("/" + name).has_value(), is_there);
      if (is_there) {
        // Whoever meets an ordinary change that was begun may finish it.
        const std::string again = Contents("/" + name, third.fs.get());
        EXPECT_TRUE(again == first || (again == contents && way == Way::kReplaced));
      }
      file.reset();
    }
  }
  EXPECT_GT(wholes, 10);
  EXPECT_GT(nones, 5);
}

// The same by drives: those of `reached` get all that a host sends before it dies.
TEST_F(ContentsBesideTest, WhicheverDrivesADyingWriterReachesTheyAreThereAsAWholeOrNotAtAll) {
  const std::string contents = Pattern(1, kSmall);
  std::map<std::string, std::set<int>> outcomes;
  for (const Way way : {Way::kUploaded, Way::kMade, Way::kReplaced}) {
    const bool uploads = way == Way::kUploaded;
    const std::string before = Before(way);
    for (unsigned reached = 0; reached < 1u << kReplicas; ++reached) {
      const std::string name = fmt::format("{}-{}", static_cast<int>(way), reached);
      auto life = std::make_shared<ClientLife>();
      Host dying = NewHost(64 << 20, life);
      auto file = Begin(*dying.fs, way, name);
      ASSERT_OK(file->Write(0, AsBytes(contents)));
      const std::vector<DriveId> homes = HomesOf(file->inode());
      sim_.Sleep(std::chrono::seconds(1));  // until the directory's time was noted
      for (size_t i = 0; i < kReplicas; ++i) {
        if ((reached >> i & 1) == 0) machines_.drive(homes[i]).Set({.lose_request = 1});
      }
      life->CrashAfter(kReplicas);  // a message to each
      const bool closed = file->Close().ok();
      for (const DriveId home : homes) machines_.drive(home).Set({});
      sim_.Sleep(std::chrono::seconds(20));
      Host other = NewHost();
      const bool is_there = other->Resolve("/" + name).has_value();
      const std::string first = is_there ? Contents("/" + name, other.fs.get()) : "";
      SCOPED_TRACE(fmt::format("{}: {} bytes", name, first.size()));
      EXPECT_TRUE(uploads || is_there);
      if (closed || (uploads && is_there) || first != before) {
        EXPECT_EQ(first, contents);
      }
      // What was on its way may be finished by whoever meets it, and is there from then on.
      for (int looks = 0; looks < 3; ++looks) {
        Host third = NewHost();
        const bool is_still_there = third->Resolve("/" + name).has_value();
        EXPECT_TRUE(is_still_there || !is_there);
        if (!is_still_there) continue;
        const std::string again = Contents("/" + name, third.fs.get());
        EXPECT_TRUE(again == contents || (again == before && first == before && !uploads));
      }
      file.reset();
      // One that is replaced may go piece by piece, where the last home has not told its state.
      if (way == Way::kReplaced) continue;
      outcomes[first == before ? "none" : "all"].insert(std::popcount(reached));
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
