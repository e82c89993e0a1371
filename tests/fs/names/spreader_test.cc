// A directory that grows: its entries move to their parts while everybody goes on.

#include "fs/names/spreader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "fs/names/directory_parts.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using Stage = DirectoryParts::Stage;

class SpreaderTest : public FsTest {
 protected:
  using FsTest::FsTest;
  void SetUp() override {
    FsTest::SetUp();
    other_ = NewHost();
    directory_ = MakeDirectory("d");
  }

  Result<Spreader::Report> Spread(Spreader::Options options = {},
                                  Spreader::Begin begin = Spreader::Begin::kYes) {
    Records records(*other_.cluster);
    Names names(records, [](InodeId, const Inode&, uint64_t) {});
    return Spreader(*other_.cluster, records, names, std::move(options)).Run(directory_, begin);
  }
  // Until it is in this stage, and so is what it found of the first `names`.
  void SpreadUntil(Stage stage, uint64_t names = 0, Spreader::Options options = {}) {
    uint64_t done = 0;
    options.names_in_page = 10;
    options.progress = [&](std::string_view, uint64_t so_far) { done = so_far; };
    options.go_on = [&] {
      const DirectoryParts parts = Parts();
      return parts.bits == 0 || parts.stage != stage || done < names;
    };
    const auto report = Spread(options);
    ASSERT_OK(report);
    EXPECT_FALSE(report->ended);
    EXPECT_EQ(Parts().stage, stage);
  }
  DirectoryParts Parts() { return InodeOf(directory_).parts; }

  static std::set<std::string> NamesIn(FileSystem& fs, InodeId directory) {
    std::set<std::string> names;
    std::string after;
    for (;;) {
      const auto page = fs.ReadDirectory(directory, after, 7, /*with_attributes=*/false);
      EXPECT_OK(page);
      for (const DirectoryEntry& entry : *page) {
        EXPECT_GT(entry.name, after);
        after = entry.name;
        EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
      }
      if (page->size() < 7) return names;
    }
  }
  // By everybody, in a listing and by its name.
  void ExpectNames(const std::set<std::string>& expected) {
    for (FileSystem* fs : {fs_, other_.fs.get()}) {
      EXPECT_EQ(NamesIn(*fs, directory_), expected);
      for (const std::string& name : expected) EXPECT_OK(fs->Lookup(directory_, name)) << name;
    }
  }
  void ExpectNothingIsWrong() {
    sim_.Sleep(std::chrono::minutes(2));  // until what was removed is gone
    Checker checker(*other_.cluster, {});
    ExpectClean(checker.Run());
  }
  std::set<std::string> MakeMany(int count, const std::string& prefix = "file") {
    std::set<std::string> names;
    for (int i = 0; i < count; ++i) {
      const std::string name = prefix + std::to_string(i);
      Make(name, name, directory_);
      names.insert(name);
    }
    return names;
  }

  Host other_;
  InodeId directory_ = 0;
};

TEST(PartsTest, NamesFallIntoPartsByAStableHash) {
  EXPECT_EQ(PartOf("anything", 0), 0u);
  EXPECT_EQ(PartOf("run-000001.root", 9), 293u);
  EXPECT_EQ(PartOf("run-000002.root", 9), 290u);
  std::vector<int> in_part(512);
  for (int i = 0; i < 51200; ++i) ++in_part[PartOf("event-" + std::to_string(i), 9)];
  const auto [least, most] = std::minmax_element(in_part.begin(), in_part.end());
  EXPECT_GT(*least, 55);
  EXPECT_LT(*most, 150);
}

// As a cluster of 12 drives at 4+2 has it, with names on five of them.
TEST(PartsTest, TheNamesOfALargeDirectoryAreOnAllDrivesAlike) {
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 12, .layout = {4, 2, 64 << 10}, .groups = 512});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  const DriveMap& map = (*cluster)->map();
  ASSERT_EQ(BitsFor(map), 9);
  constexpr int kNames = 1'000'000;
  for (const InodeId directory : {1, 4711, 123456789}) {
    std::map<DriveId, int> on_drive;
    for (int i = 0; i < kNames; ++i) {
      const uint32_t group = GroupOfPart(map, directory, PartOf("event-" + std::to_string(i), 9));
      for (const DriveId drive : (*cluster)->RegisterHomes(group)) ++on_drive[drive];
    }
    const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto fullest = std::ranges::max_element(on_drive, by_count);
    EXPECT_LT(fullest->second / (kNames * 5 / 12.0), 1.1) << directory;
  }
}

TEST_F(SpreaderTest, EveryNameIsThereBeforeAndAfter) {
  const std::set<std::string> names = MakeMany(100);
  const auto report = Spread();
  ASSERT_OK(report);
  EXPECT_TRUE(report->ended);
  EXPECT_GT(report->moved, 80u);
  EXPECT_EQ(report->cleared, report->moved);
  EXPECT_EQ(Parts(), (DirectoryParts{.bits = 6, .stage = Stage::kSettled}));
  ExpectNames(names);
  for (const std::string& name : names) EXPECT_EQ(Contents("/d/" + name), name);
  ExpectNothingIsWrong();
}

// In all stages, by a host that has not heard of it and by one that has.
TEST_F(SpreaderTest, EverybodyGoesOnInEachStage) {
  std::set<std::string> names = MakeMany(40);
  const auto work = [&](const std::string& stage) {
    for (FileSystem* fs : {fs_, other_.fs.get()}) {
      const std::string by = fs == fs_ ? "-one-" : "-two-";
      for (int i = 0; i < 6; ++i) {
        const std::string made = stage + by + std::to_string(i);
        auto file = fs->Create(directory_, made, {.exclusive = true});
        ASSERT_OK(file);
        ASSERT_OK((*file)->Close());
        EXPECT_FAILS(fs->Create(directory_, made, {.exclusive = true}), EEXIST);
        names.insert(made);
        // What was made at first, or in another stage.
        const auto first = [&] {
          return *names.begin() != made ? *names.begin() : *names.rbegin();
        };
        const std::string goes = first();
        ASSERT_OK(fs->Unlink(directory_, goes)) << goes;
        EXPECT_FAILS(fs->Lookup(directory_, goes), ENOENT);
        names.erase(goes);
        const std::string moved = first();
        ASSERT_OK(fs->Rename(directory_, moved, directory_, "x" + moved)) << moved;
        names.erase(moved);
        names.insert("x" + moved);
        // Over one that is there.
        const std::string over = first();
        ASSERT_OK(fs->Rename(directory_, over, directory_, made)) << over;
        names.erase(over);
        const auto link = fs->Lookup(directory_, made);
        ASSERT_OK(link);
        ASSERT_OK(fs->Link(link->inode, directory_, "link" + made));
        names.insert("link" + made);
      }
    }
    ExpectNames(names);
  };
  work("1-before");
  SpreadUntil(Stage::kMoving, 0);
  work("2-begun");
  SpreadUntil(Stage::kMoving, 30);
  work("3-moving");
  SpreadUntil(Stage::kClearing);
  work("4-clearing");
  ASSERT_OK(Spread());
  work("5-settled");
  ExpectNothingIsWrong();
}

// Whatever was read, or changed, by what was known before takes its effect, or is refused.
TEST_F(SpreaderTest, AHostThatHasNotHeardOfItHarmsNothing) {
  std::set<std::string> names = MakeMany(64);
  for (const Stage stage : {Stage::kMoving, Stage::kClearing}) {
    // It has seen the directory a moment ago.
    for (const std::string& name : names) ASSERT_OK(fs_->Lookup(directory_, name));
    SpreadUntil(stage);
    for (int i = 0; i < 20; ++i) {
      const std::string made = std::to_string(static_cast<int>(stage)) + std::to_string(i);
      Make(made, made, directory_);
      names.insert(made);
      const std::string goes = "file" + std::to_string(20 * static_cast<int>(stage) + i);
      ASSERT_OK(fs_->Unlink(directory_, goes));
      names.erase(goes);
    }
    ExpectNames(names);
  }
  ASSERT_OK(Spread());
  ExpectNames(names);
  ExpectNothingIsWrong();
}

// To its knowledge the directory still grows, and what is not in the directory's own group is not
// there. Others make things in the parts alone by then.
TEST_F(SpreaderTest, AHostThatHasNotHeardOfItsEndFindsWhatWasMadeSince) {
  MakeMany(20);
  Host third = NewHost();
  Records late(*third.cluster);
  const auto name = [](int i) { return "new" + std::to_string(i); };
  std::vector<StoredEntry> seen(10);
  Spreader::Options options;
  options.waits = [&] {
    ASSERT_OK(late.FindInode(directory_));
    for (int i = 0; i < 10; ++i) seen[i] = *late.FindEntry(directory_, name(i));
  };
  SpreadUntil(Stage::kClearing, 0, options);
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(seen[i].entry);
    const auto made = fs_->MakeNode(directory_, name(i), FileKind::kRegular, 0644, {}, {});
    ASSERT_OK(made);
    if (i % 2 == 0) {
      const auto found = late.FindEntry(directory_, name(i));
      ASSERT_OK(found);
      ASSERT_TRUE(found->entry) << name(i);
      EXPECT_EQ(found->entry->inode, made->inode);
    } else {
      const pinstripe::Entry entry{.inode = 4711, .kind = FileKind::kRegular, .nonce = {}};
      const auto change = late.ChangeEntry(directory_, name(i), seen[i].slot, entry);
      EXPECT_OK(change.why);
      EXPECT_EQ(change.effect, Effect::kRefused);
      EXPECT_EQ(change.now.entry->inode, made->inode);
    }
    EXPECT_EQ(fs_->Lookup(directory_, name(i))->inode, made->inode);
  }
}

TEST_F(SpreaderTest, ADirectoryIsRemovedOnlyIfNothingIsInIt) {
  MakeMany(20);
  for (const Stage stage : {Stage::kMoving, Stage::kClearing, Stage::kSettled}) {
    if (stage == Stage::kSettled) {
      ASSERT_OK(Spread());
    } else {
      SpreadUntil(stage, stage == Stage::kMoving ? 10 : 0);
    }
    EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
    EXPECT_FAILS(other_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
    Make("later", "x", directory_);
    ASSERT_OK(fs_->Unlink(directory_, "later"));
  }
  for (int i = 0; i < 20; ++i) {
    if (i == 19) {
      EXPECT_FAILS(fs_->RemoveDirectory(kRootInode, "d"), ENOTEMPTY);
    }
    ASSERT_OK(fs_->Unlink(directory_, "file" + std::to_string(i)));
  }
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  EXPECT_FAILS(other_->Create(directory_, "late", {}), ENOENT);
  ExpectNothingIsWrong();
}

// Its inode lies beside its entry, and both are made at once, as in any directory.
TEST_F(SpreaderTest, AFileThatIsMadeInItLiesBesideItsEntry) {
  ASSERT_OK(Spread());
  std::set<uint32_t> groups;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "file" + std::to_string(i);
    const uint32_t group =
        GroupOfPart(host_.cluster->map(), directory_, PartOf(name, Parts().bits));
    EXPECT_EQ(host_.cluster->GroupOfObject(Make(name, "x", directory_)), group);
    groups.insert(group);
  }
  EXPECT_GT(groups.size(), 25u);
}

// What was read ahead of a listing is not what a later one shows.
TEST_F(SpreaderTest, AListingShowsWhatWasThereWhenItBegan) {
  std::set<std::string> names = MakeMany(200);
  ASSERT_OK(Spread());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(NamesIn(*fs_, directory_), names);
    for (FileSystem* by : {fs_, other_.fs.get()}) {
      const std::string made = "zz" + std::to_string(i) + (by == fs_ ? "own" : "other");
      ASSERT_OK(by->MakeNode(directory_, made, FileKind::kRegular, 0644, {}, {}));
      names.insert(made);
      EXPECT_EQ(NamesIn(*fs_, directory_), names);
    }
    ASSERT_OK(fs_->Unlink(directory_, *names.begin()));
    names.erase(names.begin());
  }
}

// A file that appears later is in the process until it is on the drives, and listed all the time.
TEST_F(SpreaderTest, AListingThatGoesOnHasWhatWasAddedHere) {
  MakeMany(200);
  ASSERT_OK(Spread());
  auto file = fs_->Create(directory_, "zz", {.appears_later = true});
  ASSERT_OK(file);
  const auto page = fs_->ReadDirectory(directory_, "", 10, false);
  ASSERT_OK(page);
  ASSERT_OK((*file)->Close());
  const auto rest = fs_->ReadDirectory(directory_, page->back().name, 1000, false);
  ASSERT_OK(rest);
  EXPECT_EQ(rest->back().name, "zz");
}

// To ask all parts for each of them would take long.
TEST_F(SpreaderTest, PagesAfterTheFirstAreReadAheadForTenSeconds) {
  MakeMany(200);
  ASSERT_OK(Spread());
  const auto ranges = [&](const std::function<void()>& work) {
    const auto count = [&] {
      uint64_t sum = 0;
      for (DriveId id = 1; id <= machines_.size(); ++id)
        sum += machines_.drive(id).requests().range;
      return sum;
    };
    const uint64_t before = count();
    work();
    return count() - before;
  };
  const auto first = fs_->ReadDirectory(directory_, "", 20, false);
  ASSERT_OK(first);
  const auto next = [&] {
    EXPECT_EQ(fs_->ReadDirectory(directory_, first->back().name, 20, false)->size(), 20u);
  };
  EXPECT_EQ(ranges(next), 0u);
  EXPECT_EQ(ranges(next), 0u) << "the kernel asks again for what it had no room for";
  sim_.Sleep(std::chrono::seconds(11));
  EXPECT_GT(ranges(next), 0u);
}

// Whoever asks where an entry is goes by what was read for that, and not by what others remember.
TEST_F(SpreaderTest, WhatWasReadOfADirectoryCountsWhateverIsForgotten) {
  const std::set<std::string> names = MakeMany(30);
  ASSERT_OK(Spread());
  Records records(*other_.cluster);
  UnsyncedChanges unsynced(*other_.cluster);
  EntryPlaces places(*other_.cluster, unsynced, [&](InodeId directory) {
    return records.FindInode(directory).map(
        [](const std::optional<StoredInode>& found) { return std::optional(found->inode.parts); });
  });
  for (const std::string& name : names) EXPECT_TRUE(places.Find(directory_, name)->entry) << name;
  size_t listed = 0;
  for (std::optional<std::string> next = ""; next;) {
    const auto page = places.List(directory_, *next, 10, nullptr);
    ASSERT_OK(page);
    listed += page->entries.size();
    next = page->next;
  }
  EXPECT_EQ(listed, names.size());
}

// What says of names in it that they were moved is still there.
TEST_F(SpreaderTest, ADirectoryThatWasRemovedWhileItGrewHasNoNames) {
  const std::set<std::string> names = MakeMany(20);
  SpreadUntil(Stage::kMoving, 15);
  for (const std::string& name : names) ASSERT_OK(fs_->Unlink(directory_, name));
  ASSERT_OK(fs_->RemoveDirectory(kRootInode, "d"));
  Records records(*other_.cluster);
  const Time before = sim_.Now();
  for (const std::string& name : names) {
    const auto found = records.FindEntry(directory_, name);
    ASSERT_OK(found);
    EXPECT_FALSE(found->entry);
  }
  EXPECT_TRUE(records.List(directory_, "", 100)->entries.empty());
  EXPECT_LT(sim_.Now() - before, std::chrono::seconds(1));
  EXPECT_FAILS(other_->Lookup(directory_, *names.begin()), ENOENT);
}

// As a loss of power leaves it: what was copied is there, and what it was copied from is not.
TEST_F(SpreaderTest, WhatIsInAPartAloneWhileItGrowsIsNotANameAndGoes) {
  MakeMany(20);
  SpreadUntil(Stage::kMoving, 10);
  std::string name = "stray";
  while (PartOf(name, 6) == 0) name += "s";
  const uint32_t group = GroupOfPart(host_.cluster->map(), directory_, PartOf(name, 6));
  const RegisterName part = EntryPlaces::NameIn(group, directory_, name);
  const pinstripe::Entry entry{
      .inode = fs_->Lookup(directory_, "file1")->inode, .kind = FileKind::kRegular, .nonce = {}};
  ASSERT_TRUE(host_.cluster->registers().Change(part, {}, entry.Encode()).applied());
  EXPECT_FAILS(other_->Lookup(directory_, name), ENOENT);
  EXPECT_EQ(NamesIn(*fs_, directory_).count(name), 0u);
  ASSERT_OK(Spread());
  EXPECT_FALSE(host_.cluster->registers().Read(part)->value);
  EXPECT_FAILS(other_->Lookup(directory_, name), ENOENT);
  EXPECT_EQ(NamesIn(*fs_, directory_).size(), 20u);
}

TEST_F(SpreaderTest, MorePartsThanTheClusterHasGroupsAreRefused) {
  MakeMany(3);
  Records records(*host_.cluster);
  const auto stored = records.FindInode(directory_);
  Inode damaged = (*stored)->inode;
  damaged.parts = {.bits = 7, .stage = Stage::kMoving};
  ASSERT_TRUE(records.ChangeInode(directory_, (*stored)->slot, damaged).applied());
  EXPECT_FAILS(Spread(), EBADMSG);
  EXPECT_FAILS(other_->Lookup(directory_, "file1"), EBADMSG);
  EXPECT_FAILS(other_->ReadDirectory(directory_, "", 10, false), EBADMSG);
}

class SpreaderPowerTest : public SpreaderTest {
 protected:
  SpreaderPowerTest()
      : SpreaderTest({.drives = 9, .layout = {2, 1, 64 << 10}, .loses_power = true}) {}
};

// What was safe where it was is safe where it goes.
TEST_F(SpreaderPowerTest, ALossOfPowerTakesNoNameThatWasSafe) {
  const std::set<std::string> names = MakeMany(60);
  ASSERT_OK(fs_->SyncDirectory(directory_));
  for (const int step : {1, 2, 3, 4}) {
    switch (step) {
      case 1: SpreadUntil(Stage::kMoving, 20); break;
      case 2: SpreadUntil(Stage::kMoving, 50); break;
      case 3: SpreadUntil(Stage::kClearing); break;
      default: ASSERT_OK(Spread());
    }
    other_ = Host();
    host_ = Host();
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.LosePower(id, 0);
    sim_.Sleep(std::chrono::seconds(5));
    host_ = NewHost();
    other_ = NewHost();
    fs_ = host_.fs.get();
    ExpectNames(names);
  }
}

TEST_F(SpreaderTest, OnlyADirectoryIsSpread) {
  directory_ = Make("file", "x");
  EXPECT_FAILS(Spread(), ENOTDIR);
  directory_ = 4711;
  EXPECT_FAILS(Spread(), ENOENT);
}

}  // namespace
}  // namespace pinstripe
