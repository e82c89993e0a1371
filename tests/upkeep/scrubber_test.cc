// Scrubber: everything is read once, by however many processes, whichever of them dies.

#include "upkeep/scrubber.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ended = Scrubber::Ended;

class ScrubberTest : public FsTest {
 protected:
  ScrubberTest() : FsTest({.drives = 5, .layout = {2, 1, 64 << 10}}) {
    SetLogLevel(LogLevel::kError);
    options_ = kSmallPages;
  }

  // One group at a time, so that there is something to go on with.
  static Scrubber::Options Slowly(uint64_t bytes_per_second = 0) {
    return {.repair = {.bytes_per_second = bytes_per_second, .groups_at_once = 1}};
  }

  void MakeFiles() {
    // Inodes lie beside their entries: those of a directory are in one group.
    for (int i = 0; i < 24; ++i) {
      const std::string directory = fmt::format("d{}", i);
      const std::string contents =
          Pattern(static_cast<uint64_t>(i), 30'000 * static_cast<size_t>(1 + i % 9));
      Make("file", contents, MakeDirectory(directory));
      files_[directory + "/file"] = contents;
    }
    files_["pieces"] = MakeInPieces("pieces");
    blocks_ = 0;
    Scrubber scrubber(*host_.cluster, {});
    EXPECT_EQ(*scrubber.Read(), Ended::kAllIsRead);
    blocks_ = scrubber.own().blocks;
    EXPECT_GT(blocks_, 30u);
    EXPECT_OK(scrubber.Forget());
  }

  uint64_t RotAllOf(DriveId drive) {
    const auto keys = ShardsOn(drive);
    for (const std::string& key : keys) Rot(drive, key);
    return keys.size();
  }

  // As RunRepair() ends a scrub.
  RepairReport End(Scrubber& scrubber) {
    Repairer repairer(*host_.cluster, {.read_all = true, .scrubbed = scrubber.note().found});
    RepairReport report = repairer.Run();
    EXPECT_OK(scrubber.Forget());
    return report;
  }

  void ExpectFilesReadBack() {
    Host host = NewHost();
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
  uint64_t blocks_ = 0;  // that a scrub looks into
};

TEST_F(ScrubberTest, OneProcessReadsEverythingAndMendsWhatItCan) {
  MakeFiles();
  const uint64_t rotten = RotAllOf(1);
  Scrubber scrubber(*host_.cluster, {});
  EXPECT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  EXPECT_EQ(scrubber.own().damaged, rotten);
  const RepairReport report = End(scrubber);
  EXPECT_EQ(report.blocks, blocks_);
  EXPECT_EQ(report.damaged, rotten);
  EXPECT_EQ(report.written, rotten);
  EXPECT_EQ(report.unread, 0u);
  EXPECT_THAT(report.not_whole, IsEmpty());
  ExpectClean(report.check);
  ExpectAnyDriveMayBeAway();
}

// Wherever it is interrupted, the next one goes on there.
TEST_F(ScrubberTest, WhatWasReadIsNotReadAgain) {
  MakeFiles();
  for (int most = 1; most < 400; most += 37) {
    SCOPED_TRACE(fmt::format("stopped after {} looks", most));
    uint64_t blocks = 0;
    int processes = 0;
    std::vector<double> begun_at;
    for (;;) {
      ASSERT_LT(++processes, 500);
      Host host = NewHost();
      int looks = 0;
      Scrubber::Options options = Slowly();
      options.goes_on = [&](const ScrubNote& note) { begun_at.push_back(note.Done()); };
      // Before each group and each block.
      options.repair.go_on = [&, most = most + processes] { return ++looks <= most; };
      Scrubber scrubber(*host.cluster, options);
      const auto ended = scrubber.Read();
      ASSERT_OK(ended);
      blocks += scrubber.own().blocks;
      if (*ended == Ended::kStopped) continue;
      ASSERT_EQ(*ended, Ended::kAllIsRead);
      EXPECT_EQ(scrubber.note().found.blocks, blocks);
      ASSERT_OK(scrubber.Forget());
      break;
    }
    EXPECT_EQ(begun_at.size(), static_cast<size_t>(processes) - 1);
    EXPECT_TRUE(std::ranges::is_sorted(begun_at));
    // Each may have been in the middle of a group.
    EXPECT_GE(blocks, blocks_);
    EXPECT_LT(blocks, blocks_ + static_cast<uint64_t>(processes) * 24);
  }
}

// At each of its requests a process dies, once. The next one waits until that is sure, and nothing
// is left out.
TEST_F(ScrubberTest, WhoDiesIsReplaced) {
  MakeFiles();
  uint64_t step = 1;
  for (uint64_t requests = 0;; requests += step, step += 7) {
    SCOPED_TRACE(fmt::format("dies after {} requests", requests));
    const uint64_t rotten = RotAllOf(1 + requests % 5);
    auto life = std::make_shared<ClientLife>();
    {
      auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      life->CrashAfter(requests);
      Scrubber scrubber(**cluster, Slowly());
      const auto ended = scrubber.Read();
      if (!life->crashed()) {
        ASSERT_EQ(*ended, Ended::kAllIsRead);
        EXPECT_EQ(scrubber.own().damaged, rotten);
        ASSERT_OK(scrubber.Forget());
        break;
      }
    }
    sim_.Sleep(seconds(20));  // until what it has sent has come
    const Time began = sim_.Now();
    Scrubber scrubber(*host_.cluster, Slowly());
    ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
    EXPECT_LT(sim_.Now() - began, seconds(60));
    const RepairReport report = End(scrubber);
    ExpectClean(report.check);
    EXPECT_THAT(report.not_whole, IsEmpty());
    EXPECT_GE(report.blocks + 30, blocks_);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(Repairer(*host_.cluster, {.read_all = true}).Run().damaged, 0u);
  ExpectAnyDriveMayBeAway();
}

TEST_F(ScrubberTest, SeveralHostsShareIt) {
  MakeFiles();
  const uint64_t rotten = RotAllOf(2);
  std::vector<ScrubFound> own(3);
  std::vector<Ended> ended(3);
  ScrubFound all;
  RunTogether(3, [&](int client) {
    Host host = NewHost();
    Scrubber scrubber(*host.cluster, Slowly(100'000));
    const auto how = scrubber.Read();
    ASSERT_OK(how);
    ended[static_cast<size_t>(client)] = *how;
    own[static_cast<size_t>(client)] = scrubber.own();
    if (*how != Ended::kAllIsRead) return;
    all = scrubber.note().found;
    End(scrubber);
  });
  EXPECT_EQ(std::ranges::count(ended, Ended::kAllIsRead), 1);
  EXPECT_EQ(std::ranges::count(ended, Ended::kOthersRead), 2);
  uint64_t blocks = 0;
  for (const ScrubFound& one : own) {
    EXPECT_GT(one.blocks, blocks_ / 10) << "each has its part";
    blocks += one.blocks;
  }
  EXPECT_GE(blocks, blocks_);
  EXPECT_LT(blocks, blocks_ + blocks_ / 2);
  EXPECT_EQ(all.blocks, blocks);
  EXPECT_EQ(all.damaged, rotten);
  ExpectAnyDriveMayBeAway();
}

// A drive that is away for a moment is read when the rest was.
TEST_F(ScrubberTest, ADriveThatComesBackIsReadThen) {
  MakeFiles();
  const uint64_t rotten = RotAllOf(3);
  machines_.SetDown(3, true);
  Scrubber::Options options = Slowly(1'000'000);
  bool is_down = true;
  options.repair.progress = [&](std::string_view, double done, uint64_t) {
    if (!is_down || done < 0.5) return;
    is_down = false;
    machines_.SetDown(3, false);
  };
  Scrubber scrubber(*host_.cluster, options);
  ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  EXPECT_FALSE(is_down);
  EXPECT_EQ(scrubber.note().round, 2);
  EXPECT_EQ(scrubber.note().found.unread, 0u);
  EXPECT_EQ(scrubber.note().found.damaged, rotten);
  End(scrubber);
  ExpectAnyDriveMayBeAway();
}

// One that is back only when all was read is no reason to call everything whole.
TEST_F(ScrubberTest, WhatNobodyCouldReadIsCounted) {
  MakeFiles();
  const auto shards = ShardsOn(3);
  machines_.SetDown(3, true);
  Scrubber scrubber(*host_.cluster, Slowly());
  ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  machines_.SetDown(3, false);
  EXPECT_EQ(scrubber.note().found.unread, shards.size());
  EXPECT_EQ(scrubber.note().found.blocks, blocks_) << "nothing was read twice for it";
  EXPECT_EQ(End(scrubber).unread, shards.size());
}

TEST_F(ScrubberTest, WhatOneFindsThatCannotBeMendedTheLastOneTells) {
  MakeFiles();
  Make("lost", Pattern(77, kTestBlock));
  const InodeId id = fs_->Resolve("/lost")->inode;
  const std::string of_it = Writer().U64(id).Take();
  int rotten = 0;
  for (DriveId drive = 1; drive <= machines_.size() && rotten < 2; ++drive) {
    for (const std::string& key : ShardsOn(drive)) {
      if (key.find(of_it) == std::string::npos) continue;
      Rot(drive, key);
      ++rotten;
    }
  }
  ASSERT_EQ(rotten, 2);
  {
    Host host = NewHost();
    Scrubber first(*host.cluster, Slowly());
    ASSERT_EQ(*first.Read(), Ended::kAllIsRead);
    EXPECT_THAT(first.own().not_whole, ElementsAre(FileBlock(id, 0)));
  }  // and leaves the end to somebody else
  Scrubber last(*host_.cluster, Slowly());
  ASSERT_EQ(*last.Read(), Ended::kAllIsRead);
  EXPECT_EQ(last.own().blocks, 0u);
  const RepairReport report = End(last);
  EXPECT_THAT(report.lost, ElementsAre("/lost: block 0"));
  EXPECT_THAT(report.found_by_reading, ElementsAre(FileBlock(id, 0)));
  EXPECT_EQ(report.lost_by_reading.size(), 1u);
  EXPECT_THAT(report.failures, ElementsAre(HasSubstr("/lost: block 0")));
}

// Nobody has seen that it is whole, so it is not forgotten when its drive is away at the end.
TEST_F(ScrubberTest, WhatWasFoundIsKnownUntilSomebodySeesThatItIsWhole) {
  MakeFiles();
  Scrubber scrubber(*host_.cluster, {});
  ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  const InodeId pieces = fs_->Resolve("/pieces")->inode;
  const InodeId gone = Make("gone", "contents");
  ASSERT_OK(fs_->Unlink(kRootInode, "gone"));
  const auto end = [&] {
    ScrubFound found = scrubber.note().found;
    found.not_whole = {{pieces, 3}, {gone, 0}, {pieces, 1'000'000}};
    found.contradicted = {{pieces, "block 3: shard 1"}, {pieces, "block 3: shard 1"}};
    return Repairer(*host_.cluster, {.read_all = true, .scrubbed = std::move(found)}).Run();
  };
  EXPECT_THAT(end().not_whole, IsEmpty()) << "it is whole, or is no more";
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    machines_.SetDown(drive, true);
    const RepairReport report = end();
    machines_.SetDown(drive, false);
    EXPECT_THAT(report.contradicted, ElementsAre("/pieces: block 3: shard 1"));
    EXPECT_EQ(report.not_whole.size(), report.found_by_reading.size());
    if (report.not_whole.empty()) continue;  // it has nothing of it
    EXPECT_THAT(report.not_whole, ElementsAre(FileBlock(pieces, 3)));
    EXPECT_EQ(report.unread, 1u);
    return;
  }
  FAIL() << "the block is on no drive";
}

TEST_F(ScrubberTest, OneMayBeBegunAnewAndAnOldOneIs) {
  MakeFiles();
  int looks = 0;
  Scrubber::Options stopped = Slowly();
  stopped.repair.go_on = [&] { return ++looks <= 60; };
  const auto stop_one = [&] {
    looks = 0;
    Scrubber scrubber(*host_.cluster, stopped);
    ASSERT_EQ(*scrubber.Read(), Ended::kStopped);
    EXPECT_GT(scrubber.own().blocks, 0u);
  };
  stop_one();
  Scrubber::Options anew = Slowly();
  anew.anew = true;
  {
    Scrubber scrubber(*host_.cluster, anew);
    ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
    EXPECT_EQ(scrubber.own().blocks, blocks_);
    EXPECT_OK(scrubber.Forget());
  }
  stop_one();
  sim_.Sleep(kScrubIsStaleAfter + hours(1));
  Scrubber scrubber(*host_.cluster, Slowly());
  ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  EXPECT_EQ(scrubber.own().blocks, blocks_);
}

// Eight threads are at one file, and all of its blocks have a shard to come home.
TEST_F(ScrubberTest, TheBlocksOfOneLargeFileComeHome) {
  constexpr size_t kBlocks = 64 * 10;
  machines_.SetDown(1, true);
  files_["large"] = Pattern(5, kBlocks * kTestBlock);
  {
    Host host = NewHost();  // its mender ends with it
    auto file = host->Create(kRootInode, "large", {.truncate = true});
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(0, AsBytes(files_["large"])));
    ASSERT_OK((*file)->Close());
  }
  host_.fs.reset();
  machines_.SetDown(1, false);
  Scrubber scrubber(*host_.cluster, {});
  ASSERT_EQ(*scrubber.Read(), Ended::kAllIsRead);
  const ScrubFound& found = scrubber.own();
  EXPECT_GE(found.blocks, kBlocks);
  EXPECT_GT(found.relocated, kBlocks / 4);
  EXPECT_EQ(found.unread, 0u) << "no thread gave up";
  EXPECT_THAT(found.not_whole, IsEmpty());
  const RepairReport report = End(scrubber);
  EXPECT_EQ(report.relocated, found.relocated) << "nothing was left";
  ExpectClean(report.check);
}

TEST_F(ScrubberTest, WhoIsOnlyToJoinBeginsNothing) {
  Scrubber::Options options;
  options.only_join = true;
  EXPECT_EQ(*Scrubber(*host_.cluster, options).Read(), Ended::kOthersRead);
  bool was_begun = false;
  Scrubber::Options next;
  next.goes_on = [&](const ScrubNote&) { was_begun = true; };
  EXPECT_EQ(*Scrubber(*host_.cluster, next).Read(), Ended::kAllIsRead);
  EXPECT_FALSE(was_begun);
}

// Whoever wants to begin anew is told when somebody is at it.
TEST_F(ScrubberTest, NobodyIsInterrupted) {
  MakeFiles();
  bool is_reading = true;
  RunTogether(2, [&](int client) {
    Host host = NewHost();
    if (client == 0) {
      Scrubber scrubber(*host.cluster, Slowly(50'000));
      EXPECT_EQ(*scrubber.Read(), Ended::kAllIsRead);
      EXPECT_OK(scrubber.Forget());
      is_reading = false;
      return;
    }
    sim_.Sleep(seconds(2));
    Scrubber::Options anew = Slowly();
    anew.anew = true;
    Scrubber scrubber(*host.cluster, anew);
    EXPECT_FAILS(scrubber.Read(), EBUSY);
    EXPECT_TRUE(is_reading);
  });
}

// While others write, replace and remove.
TEST_F(ScrubberTest, LiveClientsAreNotCalledDamage) {
  MakeFiles();
  bool scrubbing = true;
  RunTogether(2, [&](int client) {
    Host host = NewHost();
    if (client == 0) {
      for (int i = 0; i < 5; ++i) {
        Scrubber scrubber(*host.cluster, Slowly(1'000'000));
        EXPECT_EQ(*scrubber.Read(), Ended::kAllIsRead);
        EXPECT_THAT(scrubber.own().not_whole, IsEmpty());
        EXPECT_EQ(scrubber.own().damaged + scrubber.own().missing, 0u);
        EXPECT_EQ(scrubber.own().unread, 0u);
        EXPECT_OK(scrubber.Forget());
      }
      scrubbing = false;
      return;
    }
    for (uint64_t i = 0; scrubbing; ++i) {
      const std::string name = fmt::format("f{}", i % 5);
      auto file = host->Create(kRootInode, name, {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(Pattern(i, kTestBlock * 2 + 7))));
      ASSERT_OK((*file)->Close());
      if (i % 3 == 0) {
        ASSERT_OK(host->Unlink(kRootInode, name));
      }
      sim_.Sleep(std::chrono::milliseconds(300));
    }
  });
}

}  // namespace
}  // namespace pinstripe
