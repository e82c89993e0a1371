// Packer: small files that have not changed for long lie together in packs. They read as before,
// whatever becomes of them and of drives, and a pack goes when nobody uses it.

#include "upkeep/packer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"
#include "cluster/map/features.h"
#include "cluster/membership/drive_identity.h"
#include "fs/files/copy_range.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"
#include "upkeep/whereabouts.h"

namespace pinstripe {
namespace {

using Access = FileSystem::Access;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PackerTest : public FsTest {
 protected:
  PackerTest() = default;
  explicit PackerTest(const TestCluster::Options& options) : FsTest(options) {}

  // By its clock everything is old, and every pack is worth it.
  static Packer::Options Eager() { return {.older_than = seconds(-1), .least_bytes = 1}; }

  PackReport Pack(Packer::Options options = Eager(), InodeId directory = kRootInode) {
    Packer packer(*host_.cluster, std::move(options));
    EXPECT_OK(packer.Run(directory));
    EXPECT_TRUE(packer.WaitUntilFree());
    EXPECT_THAT(packer.report().not_packed, IsEmpty());
    return packer.report();
  }

  // "f00", "f01", ..., of so many bytes each.
  void MakeFiles(size_t count, size_t size, InodeId directory = kRootInode,
                 const std::string& below = "/") {
    for (size_t i = 0; i < count; ++i) {
      const std::string name = fmt::format("f{:02}", i);
      files_[below + name] = Pattern(i, size);
      Make(name, files_[below + name], directory);
    }
  }

  void ExpectAllReadBack() {
    Host host = NewHost();  // that has nothing in memory
    for (const auto& [path, contents] : files_) {
      EXPECT_TRUE(Contents(path, host.fs.get()) == contents) << path;
    }
  }

  InodeId IdOf(std::string_view path) { return fs_->Resolve(path)->inode; }
  // Where it is in a pack; null: in none.
  std::optional<BlockPlace> PlaceOf(std::string_view path) {
    const Inode inode = InodeOf(IdOf(path));
    const auto place = inode.map ? inode.map->Find(0) : std::nullopt;
    return place && place->shared ? place : std::nullopt;
  }
  bool IsPacked(std::string_view path) { return PlaceOf(path).has_value(); }
  bool Exists(InodeId id) {
    Records records(*host_.cluster);
    const auto found = records.FindInode(id);
    EXPECT_OK(found);
    return found->has_value();
  }

  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
  void ExpectNothingLeftOver() {
    sim_.Sleep(minutes(4));  // for two turns of the reaper
    ExpectClean(Check());
  }

  Result<std::unique_ptr<OpenFile>> OpenToWrite(std::string_view path) {
    return fs_->Open(TRY(fs_->Resolve(path)).inode, Access::kWrite);
  }

  std::map<std::string, std::string> files_;  // what they should contain, by path
};

TEST_F(PackerTest, FilesLieOneBehindTheOtherInTheOrderOfNames) {
  MakeFiles(20, 10'000);
  const PackReport report = Pack();
  EXPECT_EQ(report.files, 20u);
  EXPECT_EQ(report.bytes, 200'000u);
  EXPECT_EQ(report.packs, 1u);
  const InodeId pack = PlaceOf("/f00")->object;
  for (uint64_t i = 0; i < 20; ++i) {
    const auto place = PlaceOf(fmt::format("/f{:02}", i));
    ASSERT_TRUE(place);
    EXPECT_EQ(place->object, pack);
    // None lies across the end of a block.
    EXPECT_EQ(place->shift, i / 13);
    EXPECT_EQ(place->skip, i % 13 * 10'000);
    EXPECT_EQ(place->valid, 10'000u);
  }
  EXPECT_EQ(InodeOf(pack).size, kTestBlock + 7 * 10'000);
  ExpectAllReadBack();
  ExpectNothingLeftOver();
  EXPECT_EQ(Pack().files, 0u) << "they are in a pack already";
}

TEST_F(PackerTest, TheClusterNamesWhatItUsesFromTheFirstPackOn) {
  EXPECT_THAT(host_.cluster->map().features, IsEmpty());
  Pack();
  EXPECT_THAT(host_.cluster->map().features, IsEmpty()) << "there was nothing to pack";
  MakeFiles(1, 1000);
  Pack();
  const Epoch epoch = host_.cluster->map().epoch;
  EXPECT_THAT(host_.cluster->map().features,
              ElementsAre(Feature{"packs", FeatureKind::kMustBeUnderstood, ""}));
  Make("another", Pattern(1, 1000));
  EXPECT_EQ(Pack().files, 1u);
  EXPECT_EQ(host_.cluster->map().epoch, epoch);
}

// What is inline, what is kept as copies, and what is coded by itself.
TEST_F(PackerTest, WhatIsTooSmallOrTooLargeStaysAsItIs) {
  const std::map<size_t, bool> sizes = {{0, false},    {1, false},     {511, false},
                                        {512, true},   {4096, true},   {4097, true},
                                        {65536, true}, {65537, false}, {kTestBlock, false}};
  for (const auto& [size, packed] : sizes) {
    files_[fmt::format("/{}", size)] = Pattern(size, size);
    Make(fmt::to_string(size), Pattern(size, size));
  }
  EXPECT_EQ(Pack().files, 4u);
  for (const auto& [size, packed] : sizes) {
    EXPECT_EQ(IsPacked(fmt::format("/{}", size)), packed) << size;
  }
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

TEST_F(PackerTest, OnlyWhatHasNotChangedForLongIsPacked) {
  MakeFiles(3, 1000);
  sim_.Sleep(hours(2));
  ASSERT_OK(fs_->SetAttributes(IdOf("/f01"), {.mode = 0600}));
  Packer::Options options = Eager();
  options.older_than = hours(1);
  const PackReport report = Pack(options);
  EXPECT_EQ(report.files, 2u);
  EXPECT_EQ(report.too_young, 1u);
  EXPECT_FALSE(IsPacked("/f01"));
}

TEST_F(PackerTest, WhatWouldBeATinyPackWaits) {
  MakeFiles(3, 1000);
  Packer::Options options = Eager();
  options.least_bytes = 3001;
  PackReport report = Pack(options);
  EXPECT_EQ(report.packs, 0u);
  EXPECT_EQ(report.too_few, 3u);
  EXPECT_EQ(report.too_few_bytes, 3000u);
  ExpectNothingLeftOver();
  Make("g", Pattern(9, 1000));
  report = Pack(options);
  EXPECT_EQ(report.files, 4u);
  ExpectAllReadBack();
}

TEST_F(PackerTest, ADryRunChangesNothing) {
  MakeFiles(20, 10'000);
  Packer::Options options = Eager();
  options.dry_run = true;
  const PackReport report = Pack(options);
  EXPECT_EQ(report.files, 20u);
  EXPECT_EQ(report.packs, 1u);
  EXPECT_FALSE(IsPacked("/f00"));
  EXPECT_THAT(host_.cluster->map().features, IsEmpty());
  ExpectClean(Check());
}

TEST_F(PackerTest, PacksEndWhenTheyAreFull) {
  MakeFiles(20, 10'000);
  Packer::Options options = Eager();
  options.largest_file = 10'000;
  options.most_bytes = 60'000;
  EXPECT_EQ(Pack(options).packs, 4u);  // of 6, 6, 6 and 2 files, or so
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

TEST_F(PackerTest, DirectoriesFollowOneAnother) {
  const InodeId a = MakeDirectory("a");
  const InodeId below = MakeDirectory("b", a);
  const InodeId c = MakeDirectory("c");
  MakeFiles(2, 1000, c, "/c/");
  MakeFiles(2, 1000, below, "/a/b/");
  MakeFiles(2, 1000, a, "/a/");
  EXPECT_EQ(Pack().files, 6u);
  uint32_t at = 0;
  for (const char* path : {"/a/f00", "/a/f01", "/a/b/f00", "/a/b/f01", "/c/f00", "/c/f01"}) {
    EXPECT_EQ(PlaceOf(path)->skip, at) << path;
    at += 1000;
  }
  ExpectAllReadBack();
  Make("new", Pattern(7, 1000), c);
  Make("new", Pattern(7, 1000), a);
  EXPECT_EQ(Pack(Eager(), c).files, 1u);
  EXPECT_FALSE(IsPacked("/a/new"));
}

TEST_F(PackerTest, AFileWithSeveralNamesIsPackedOnce) {
  const InodeId id = Make("a", Pattern(1, 1000));
  ASSERT_OK(fs_->Link(id, kRootInode, "b"));
  EXPECT_EQ(Pack().files, 1u);
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  EXPECT_EQ(Contents("/b"), Pattern(1, 1000));
  ASSERT_OK(fs_->Unlink(kRootInode, "b"));
  ExpectNothingLeftOver();
  EXPECT_EQ(Check().shards, 0u);
}

TEST_F(PackerTest, FilesOfOtherLayoutsHavePacksOfTheirOwn) {
  const InodeId other = MakeDirectory("other");
  ASSERT_OK(fs_->SetExtended(other, kLayoutAttribute, "3+2"));
  const InodeId precious = MakeDirectory("precious");
  ASSERT_OK(fs_->SetExtended(precious, kLayoutAttribute, "2+1 copies=3"));
  MakeFiles(3, 1000);
  MakeFiles(3, 1000, other, "/other/");
  MakeFiles(1, 1000, precious, "/precious/");
  const PackReport report = Pack();
  EXPECT_EQ(report.files, 6u);
  EXPECT_EQ(report.packs, 2u);
  EXPECT_EQ(InodeOf(PlaceOf("/other/f00")->object).map->layout().data_shards, 3);
  EXPECT_FALSE(IsPacked("/precious/f00")) << "somebody wants more copies of it";
  // What such a file becomes later on is as its layout says.
  auto file = OpenToWrite("/other/f00");
  ASSERT_OK(file);
  files_["/other/f00"] += std::string(400'000 - 1000, '\0') + "end";
  ASSERT_OK((*file)->Write(400'000, AsBytes(std::string("end"))));
  ASSERT_OK((*file)->Close());
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

TEST_F(PackerTest, AttributesAreAsBefore) {
  const InodeId id = Make("a", Pattern(1, 3000));
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0640, .user = 7, .modified = 1'000'000'007}));
  ASSERT_OK(fs_->SetExtended(id, "user.x", "y", FileSystem::ExtendedMode::kSet));
  const Attributes before = *fs_->GetAttributes(id);
  Pack();
  Host host = NewHost();
  const Attributes after = *host->GetAttributes(id);
  EXPECT_EQ(after.mode, before.mode);
  EXPECT_EQ(after.owner, before.owner);
  EXPECT_EQ(after.modified, before.modified);
  EXPECT_EQ(after.changed, before.changed);
  EXPECT_EQ(after.size, before.size);
  EXPECT_EQ(after.stored_bytes, 3000u);
  ASSERT_OK(fs_->SetAttributes(id, {.mode = 0600}));
  EXPECT_TRUE(IsPacked("/a"));
  EXPECT_EQ(Contents("/a"), Pattern(1, 3000));
}

TEST_F(PackerTest, ChecksumsAreThoseOfTheFile) {
  MakeFiles(3, 5000);
  Pack();
  for (const auto& [path, contents] : files_) {
    const auto sums = fs_->Checksums(IdOf(path));
    ASSERT_OK(sums);
    EXPECT_EQ(sums->crc32c, Crc32c(AsBytes(contents)));
    EXPECT_EQ(sums->adler32, Adler32(AsBytes(contents)));
  }
}

// Each way of changing a file, beside one that stays.
TEST_F(PackerTest, AFileThatIsChangedLeavesThePack) {
  const std::string old = Pattern(1, 5000);
  const std::string more = Pattern(2, 100'000);
  struct Way {
    const char* name;
    std::function<Status(OpenFile&)> change;
    std::string contents;
    bool stays = false;
  };
  const std::vector<Way> ways = {
      {"over", [](OpenFile& f) { return f.Write(100, AsBytes(std::string("new"))); },
       old.substr(0, 100) + "new" + old.substr(103)},
      {"append", [](OpenFile& f) { return f.Write(5000, AsBytes(std::string("new"))); },
       old + "new"},
      {"grow", [&](OpenFile& f) { return f.Write(5000, AsBytes(more)); }, old + more},
      {"anew",
       [](OpenFile& f) -> Status {
         TRY(f.Truncate(0));
         return f.Write(0, AsBytes(std::string("new")));
       },
       "new"},
      {"empty", [](OpenFile& f) { return f.Truncate(0); }, ""},
      {"cut", [](OpenFile& f) { return f.Truncate(77); }, old.substr(0, 77), true},
      {"longer", [](OpenFile& f) { return f.Truncate(200'000); }, old + std::string(195'000, '\0'),
       true},
      {"far", [](OpenFile& f) { return f.Write(300'000, AsBytes(std::string("new"))); },
       old + std::string(295'000, '\0') + "new", true},
      {"hole", [](OpenFile& f) { return f.Zero(0, 2000, OpenFile::Size::kStays); },
       std::string(2000, '\0') + old.substr(2000)},
  };
  Make("stays", old);
  for (const Way& way : ways) Make(way.name, old);
  Pack();
  const InodeId pack = PlaceOf("/stays")->object;
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    auto file = OpenToWrite(fmt::format("/{}", way.name));
    ASSERT_OK(file);
    ASSERT_OK(way.change(**file));
    EXPECT_TRUE(ReadAll(**file) == way.contents);
    ASSERT_OK((*file)->Close());
    files_[fmt::format("/{}", way.name)] = way.contents;
    EXPECT_EQ(IsPacked(fmt::format("/{}", way.name)), way.stays);
  }
  files_["/stays"] = old;
  ExpectAllReadBack();
  ExpectNothingLeftOver();
  EXPECT_EQ(InodeOf(pack).keeping->files.size(), 4u);
  for (const auto& [path, contents] : std::exchange(files_, {})) {
    ASSERT_OK(fs_->Unlink(kRootInode, path.substr(1)));
  }
  ExpectNothingLeftOver();
  EXPECT_FALSE(Exists(pack));
  EXPECT_EQ(Check().shards, 0u);
}

// Many that are removed leave with a few changes of it.
TEST_F(PackerTest, APackGoesWithItsLastFile) {
  MakeFiles(60, 1000);
  Pack();
  const InodeId pack = PlaceOf("/f00")->object;
  Records records(*host_.cluster);
  const uint64_t slot = records.FindInodeRegister(pack)->slot;
  for (int i = 0; i < 59; ++i) ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{:02}", i)));
  sim_.Sleep(minutes(3));
  EXPECT_TRUE(Exists(pack));
  EXPECT_EQ(InodeOf(pack).keeping->files, std::vector<InodeId>{IdOf("/f59")});
  EXPECT_LE(records.FindInodeRegister(pack)->slot, slot + 3);
  EXPECT_EQ(Contents("/f59"), Pattern(59, 1000));
  ASSERT_OK(fs_->Unlink(kRootInode, "f59"));
  ExpectNothingLeftOver();
  EXPECT_FALSE(Exists(pack));
  EXPECT_EQ(Check().shards, 0u);
}

TEST_F(PackerTest, APackThatIsLittleUsedIsLeftByTheOthers) {
  MakeFiles(20, 10'000);
  Pack();
  const InodeId first = PlaceOf("/f00")->object;
  for (int i = 0; i < 8; ++i) {
    ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{:02}", i)));
    files_.erase(fmt::format("/f{:02}", i));
  }
  sim_.Sleep(minutes(4));
  PackReport report = Pack();
  EXPECT_EQ(report.files, 0u) << "more than half of it is used";
  for (const char* name : {"f17", "f18", "f19"}) {
    ASSERT_OK(fs_->Unlink(kRootInode, name));
    files_.erase(fmt::format("/{}", name));
  }
  sim_.Sleep(minutes(4));
  report = Pack();
  EXPECT_EQ(report.files, 9u);
  EXPECT_EQ(report.repacked, 9u);
  EXPECT_EQ(report.left_packs, 1u);
  EXPECT_NE(PlaceOf("/f08")->object, first);
  EXPECT_FALSE(Exists(first));
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

// A reader who has it open goes on with what there was, and finds the new place when that is gone.
TEST_F(PackerTest, ReadersGoOnWhileFilesArePackedAndRepacked) {
  Make("other", Pattern(1, 50'000));
  Make("a", Pattern(2, 20'000));
  Host host = NewHost();
  auto file = host->Open(IdOf("/a"), Access::kRead);
  ASSERT_OK(file);
  EXPECT_EQ(ReadAll(**file), Pattern(2, 20'000));
  Pack();
  EXPECT_EQ(ReadAll(**file), Pattern(2, 20'000));
  auto later = host->Open(IdOf("/a"), Access::kRead);  // that knows the first pack
  ASSERT_OK(later);
  EXPECT_EQ(ReadAll(**later, 0, 10), Pattern(2, 10));
  ASSERT_OK(fs_->Unlink(kRootInode, "other"));
  sim_.Sleep(minutes(4));
  EXPECT_EQ(Pack().repacked, 1u);
  sim_.Sleep(minutes(4));
  EXPECT_EQ(ReadAll(**later), Pattern(2, 20'000));
  EXPECT_EQ(ReadAll(**file), Pattern(2, 20'000));
}

// What a host has written and not committed is laid over the file, wherever that is by then.
TEST_F(PackerTest, AWriterWhoCommitsAfterItWasPackedLosesNothing) {
  for (const size_t size : {3000u, 60'000u}) {
    const std::string old = Pattern(1, size);
    Make("a", old);
    Host host = NewHost();
    auto file = host->Open(IdOf("/a"), Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Write(1000, AsBytes(std::string("new"))));
    EXPECT_EQ(Pack().files, 1u);
    ASSERT_OK((*file)->Close());
    EXPECT_TRUE(Contents("/a") == old.substr(0, 1000) + "new" + old.substr(1003)) << size;
    EXPECT_FALSE(IsPacked("/a"));
    ASSERT_OK(fs_->Unlink(kRootInode, "a"));
    ExpectNothingLeftOver();
  }
}

TEST_F(PackerTest, ACloneOfWhatIsPackedIsInThePack) {
  options_.least_shared_bytes = 1;
  Host host = NewHost();
  Make("a", Pattern(1, 20'000));
  Make("b", Pattern(2, 20'000));
  Pack();
  auto source = host->Open(IdOf("/b"), Access::kRead);
  auto target = host->Create(kRootInode, "c", {});
  ASSERT_OK(source);
  ASSERT_OK(target);
  EXPECT_EQ(CopyRange(**source, 0, **target, 0, 1 << 20).value_or(0), 20'000u);
  ASSERT_OK((*target)->Close());
  ASSERT_OK((*source)->Close());
  EXPECT_EQ(PlaceOf("/c"), PlaceOf("/b"));
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  ASSERT_OK(fs_->Unlink(kRootInode, "b"));
  ExpectNothingLeftOver();
  EXPECT_EQ(Contents("/c"), Pattern(2, 20'000));
}

TEST_F(PackerTest, AnyDriveMayBeAwayAndIsReplaced) {
  MakeFiles(40, 9'000);
  Pack();
  for (DriveId away = 1; away <= 5; ++away) {
    machines_.SetDown(away, true);
    ExpectAllReadBack();
    machines_.SetDown(away, false);
  }
  {
    Repairer repairer(*host_.cluster, {.without = {2}});
    const RepairReport report = repairer.Run();
    EXPECT_GT(report.relocated, 0u);
  }
  EXPECT_THAT(ShardsOn(2), IsEmpty());
  ExpectAllReadBack();
}

// A pack is in no file's place before it is safe, and no file in its pack's before the pack is.
TEST_F(PackerTest, AProcessThatDiesAnywhereLosesNothing) {
  MakeFiles(30, 6'000);
  bool died = true;
  int deaths = 0;
  for (uint64_t requests = 1; died; requests += 3) {
    auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    life->CrashAfter(requests);
    {
      Packer packer(**cluster, Eager());
      (void)packer.Run(kRootInode);
      died = life->crashed();
    }
    cluster->reset();
    deaths += died ? 1 : 0;
    ExpectAllReadBack();
    if (HasFailure()) FAIL() << "after " << requests << " requests";
  }
  EXPECT_GT(deaths, 20);
  sim_.Sleep(minutes(4));
  for (int i = 0; i < 6; ++i) {
    Collector collector(*host_.cluster, {.older_than = seconds(-1)});
    EXPECT_THAT(collector.Run().not_collected, IsEmpty());
    sim_.Sleep(minutes(4));
  }
  ExpectAllReadBack();
  ExpectClean(Check());
}

TEST_F(PackerTest, AFileThatIsChangedMeanwhileStays) {
  MakeFiles(30, 3000);
  int calls = 0;
  Packer::Options options = Eager();
  options.go_on = [&] {  // it is asked last when all is read, and nothing changed yet
    if (++calls == 3) Make("f07", files_["/f07"] = "new");
    return true;
  };
  const PackReport report = Pack(options);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(report.files, 29u);
  EXPECT_EQ(report.changed, 1u);
  EXPECT_FALSE(IsPacked("/f07"));
  EXPECT_EQ(InodeOf(PlaceOf("/f00")->object).keeping->files.size(), 29u);
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

// All inodes of a directory are read before the first pack is made, and the copies of one that is
// replaced meanwhile are gone by then.
TEST_F(PackerTest, AFileThatIsReplacedBeforeItIsReadIsLeftAlone) {
  MakeFiles(3, 60'000);
  Packer::Options options = Eager();
  options.most_files = 1;
  options.most_to_free = 0;
  bool once = false;
  options.progress = [&](const PackReport& so_far) {
    if (so_far.files != 1 || std::exchange(once, true)) return;
    Make("f02", files_["/f02"] = Pattern(9, 50'000));
    sim_.Sleep(minutes(2));
  };
  const PackReport report = Pack(options);
  EXPECT_TRUE(once);
  EXPECT_EQ(report.files, 2u);
  EXPECT_EQ(report.changed, 1u);
  EXPECT_FALSE(IsPacked("/f02"));
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

// Data of files that were kept as copies goes some seconds after it was replaced.
TEST_F(PackerTest, NoMoreIsPackedThanCanBeFreed) {
  MakeFiles(4, 60'000);
  Packer::Options options = Eager();
  options.most_files = 1;
  options.most_to_free = 0;
  const Time began = sim_.Now();
  Packer packer(*host_.cluster, options);
  ASSERT_OK(packer.Run(kRootInode));
  EXPECT_EQ(packer.report().files, 4u);
  EXPECT_GT(sim_.Now() - began, 3 * Reaper::kGather);
}

// Nothing is stored for nothing where a cluster can have no packs.
TEST_F(PackerTest, WhereNoFeatureCanBeUsedNothingIsChanged) {
  MakeFiles(3, 60'000);
  Gather<Status> puts(sim_);
  machines_.memory(1).Put(
      {.key = ClusterPrefix("other") + "S", .value = SharedBytes("x"), .version = "1"}, Time::max(),
      puts.Ask(0));
  ASSERT_OK(puts.Next(Time::max())->value);
  const size_t shards = Check().shards;
  Packer packer(*host_.cluster, Eager());
  EXPECT_FAILS(packer.Run(kRootInode), ENOTSUP);
  EXPECT_EQ(packer.report().files + packer.report().packs, 0u);
  EXPECT_THAT(host_.cluster->map().features, IsEmpty());
  EXPECT_EQ(Check().shards, shards);
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

TEST_F(PackerTest, ACheckNamesFilesOfAPackThatIsDamaged) {
  MakeFiles(5, 10'000);
  Pack();
  const InodeId pack = PlaceOf("/f00")->object;
  Writer number;
  number.U64(pack);
  size_t removed = 0;
  for (DriveId id = 1; id <= 5 && removed < 2; ++id) {
    for (const std::string& key : ShardsOn(id)) {
      if (key.find(number.bytes()) == std::string::npos) continue;
      Gather<Status> deletes(sim_);
      machines_.memory(id).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                  deletes.Ask(0));
      ASSERT_OK(deletes.Next(Time::max())->value);
      ++removed;
    }
  }
  ASSERT_EQ(removed, 2u);
  const CheckReport report = Check();
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].problem, "lost-data");
  EXPECT_THAT(report.findings[0].where, HasSubstr("which keeps blocks of /f"));
  EXPECT_THAT(report.findings[0].where, HasSubstr(", 2 more)"));
}

TEST_F(PackerTest, WhyTellsOfTheBytesOfTheFileAlone) {
  MakeFiles(5, 10'000);
  Pack();
  const auto found = FindWhereabouts(*host_.cluster, IdOf("/f03"));
  ASSERT_OK(found);
  const auto blocks = std::ranges::find(found->parts, "blocks", &Whereabouts::Part::what);
  ASSERT_NE(blocks, found->parts.end());
  EXPECT_EQ(blocks->bytes, 10'000u);
}

// Files that use a pack in a way in which none comes into one.
TEST_F(PackerTest, APackIsLeftByFilesThatWereCutOrExtendedToo) {
  MakeFiles(20, 10'000);
  Pack();
  const InodeId first = PlaceOf("/f00")->object;
  const auto change = [&](const std::string& path, auto how) {
    auto file = OpenToWrite(path);
    ASSERT_OK(file);
    ASSERT_OK(how(**file));
    ASSERT_OK((*file)->Close());
  };
  change("/f00", [](OpenFile& file) { return file.Truncate(77); });
  files_["/f00"].resize(77);
  change("/f01", [](OpenFile& file) { return file.Truncate(200'000); });
  files_["/f01"].resize(200'000);
  change("/f02", [](OpenFile& file) { return file.Write(500'000, AsBytes(std::string("x"))); });
  files_["/f02"].resize(500'000);
  files_["/f02"] += "x";
  for (int i = 3; i < 20; ++i) {
    ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{:02}", i)));
    files_.erase(fmt::format("/f{:02}", i));
  }
  sim_.Sleep(minutes(4));
  EXPECT_EQ(Pack().repacked, 3u);
  EXPECT_FALSE(Exists(first));
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

// A pack of one directory is not taken apart bit by bit for another's sake.
TEST_F(PackerTest, LittleOfALittleUsedPackWaitsForTheRest) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b");
  MakeFiles(10, 10'000, a, "/a/");
  MakeFiles(2, 10'000, b, "/b/");
  Pack();
  for (int i = 1; i < 10; ++i) ASSERT_OK(fs_->Unlink(a, fmt::format("f{:02}", i)));
  sim_.Sleep(minutes(4));
  Packer::Options options = Eager();
  options.least_bytes = 110'000;
  EXPECT_EQ(Pack(options, a).too_few, 1u);
  EXPECT_EQ(Pack(options).repacked, 3u) << "what would be freed counts";
}

TEST_F(PackerTest, DirectoriesThatLeadToThemselvesHaveAnEnd) {
  const InodeId a = MakeDirectory("a");
  const InodeId b = MakeDirectory("b", a);
  MakeFiles(2, 1000, b, "/a/b/");
  PutEntry(b, "again", Entry{.inode = a, .kind = FileKind::kDirectory, .nonce = std::nullopt});
  EXPECT_EQ(Pack().files, 2u);
}

// One that a pack lists and that cannot be understood counts as one that is used.
TEST_F(PackerTest, AnInodeThatCannotBeReadKeepsNobodyElseBack) {
  MakeFiles(20, 10'000);
  Pack();
  const InodeId damaged = IdOf("/f00");
  for (int i = 2; i < 20; ++i) ASSERT_OK(fs_->Unlink(kRootInode, fmt::format("f{:02}", i)));
  const RegisterName name{host_.cluster->GroupOfObject(damaged),
                          Writer().Raw("I").U64(damaged).Take()};
  const auto seen = host_.cluster->registers().Read(name);
  ASSERT_OK(seen);
  ASSERT_TRUE(host_.cluster->registers().Change(name, *seen, "from the future").applied());
  sim_.Sleep(minutes(4));
  Packer packer(*host_.cluster, Eager());
  ASSERT_OK(packer.Run(kRootInode));
  EXPECT_EQ(packer.report().repacked, 1u);
  EXPECT_THAT(packer.report().not_packed, ElementsAre(HasSubstr("/f00: ")));
  EXPECT_TRUE(packer.WaitUntilFree());
  EXPECT_TRUE(Contents("/f01") == Pattern(1, 10'000));
  // Those that can leave do, when one cannot.
  Records records(*host_.cluster);
  Keepers keepers(*host_.cluster, records);
  const InodeId pack = PlaceOf("/f01")->object;
  ChangeInode(pack, [&](Inode& inode) {
    inode.keeping->files.push_back(damaged);
    std::ranges::sort(inode.keeping->files);
  });
  const InodeId gone = IdOf("/f01");
  ASSERT_OK(fs_->Unlink(kRootInode, "f01"));
  const auto left = keepers.Leave(pack, {{damaged}, {gone}});
  ASSERT_OK(left);
  EXPECT_FALSE(left->failure.ok());
  EXPECT_EQ(InodeOf(pack).keeping->files, std::vector<InodeId>{damaged});
  EXPECT_FAILS(keepers.Leave(pack, damaged), EBADMSG);
}

// A mount that stays up asks for the new places some seconds later.
TEST_F(PackerTest, AHostThatKnowsAPackFollowsItsRepair) {
  MakeFiles(3, 10'000);
  Pack();
  Host host = NewHost();
  EXPECT_TRUE(Contents("/f00", host.fs.get()) == files_["/f00"]);
  Repairer(*host_.cluster, {.without = {1, 2}}).Run();
  sim_.Sleep(minutes(1));
  EXPECT_TRUE(Contents("/f01", host.fs.get()) == files_["/f01"]);
  EXPECT_EQ(host.cluster->stripes().counters().degraded_reads, 0u);
}

// A writer's map keeps the size of its blocks, whatever is usual by now.
TEST_F(PackerTest, AFileWithBlocksKeepsTheirSize) {
  const InodeId id = Make("a", Pattern(1, 60'000));
  machines_.config().layout = {2, 1, 128 << 10};
  Host other = NewHost();
  auto file = fs_->Open(id, Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(100, AsBytes(std::string("new"))));
  {
    Packer packer(*other.cluster, Eager());
    ASSERT_OK(packer.Run(kRootInode));
    EXPECT_EQ(packer.report().files, 1u);
  }
  ASSERT_OK((*file)->Close());
  EXPECT_TRUE(Contents("/a") == Pattern(1, 60'000).replace(100, 3, "new"));
}

TEST_F(PackerTest, PagesOfAPackedFileAreReadWithTheirSums) {
  MakeFiles(5, 40'001);
  Pack();
  Host host = NewHost();
  for (const auto& [path, contents] : files_) {
    auto file = host->Open(IdOf(path), Access::kRead);
    ASSERT_OK(file);
    for (const size_t offset :
         {size_t{0}, size_t{1}, size_t{4096}, size_t{12'288}, size_t{39'000}}) {
      EXPECT_TRUE(ReadAll(**file, offset, 9000) == contents.substr(offset, 9000)) << offset;
    }
  }
}

// What a site has: 4+2, and names on five drives.
class PackerAtASiteTest : public PackerTest {
 protected:
  PackerAtASiteTest()
      : PackerTest({.drives = 8, .layout = {4, 2, 1 << 20}, .groups = 64, .replicas = 5}) {
    format_.features = {NewFeature(kContentsBesideFeature)};
  }

  // Of all records of all drives: keys, versions, tags and values.
  uint64_t StoredBytes() {
    uint64_t bytes = 0;
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      std::string first(kLowestKey);
      for (bool more = true; more;) {
        Gather<Result<RangeRecords>> gather(sim_);
        machines_.memory(id).ListRecords(first, std::string(kMaxKeyBytes, '\xff'), kMaxRangeRecords,
                                         false, 2 << 20, Time::max(), gather.Ask(0));
        const auto page = std::move(gather.Next(Time::max())->value);
        EXPECT_OK(page);
        for (const RangeRecord& each : page->records) {
          bytes += each.key.size() + each.record.version.size() + each.record.value.size();
        }
        more = page->more && !page->records.empty();
        if (more) first = page->records.back().key + '\0';
      }
    }
    return bytes;
  }
};

TEST_F(PackerAtASiteTest, AFileOf4KiBTakesLittleMoreThanItsCode) {
  const InodeId directory = MakeDirectory("d");
  const uint64_t before = StoredBytes();
  MakeFiles(1000, 4096, directory, "/d/");
  sim_.Sleep(minutes(1));
  const double contents = 1000 * 4096;
  const double beside = static_cast<double>(StoredBytes() - before) / contents;
  EXPECT_EQ(Pack().files, 1000u);
  // Some replicas have not heard of it yet, until a repair: a majority has.
  for (uint32_t group = 0; group < 64; ++group) EXPECT_OK(host_.cluster->registers().Sweep(group));
  const double packed = static_cast<double>(StoredBytes() - before) / contents;
  EXPECT_LT(beside, 2.6);
  EXPECT_LT(packed, 1.9);
  RecordProperty("beside", fmt::format("{:.2f}", beside));
  RecordProperty("packed", fmt::format("{:.2f}", packed));
  ExpectAllReadBack();
}

// Whoever reads them by name reads the pack from end to end, and asks for it once.
TEST_F(PackerAtASiteTest, AProcessReadsAPackOnce) {
  const InodeId directory = MakeDirectory("d");
  MakeFiles(64, 4096, directory, "/d/");
  Pack();
  Host host = NewHost();
  std::vector<uint64_t> gets;  // for each file
  for (const auto& [path, contents] : files_) {
    const InodeId id = IdOf(path);
    sim_.Sleep(std::chrono::milliseconds(10));
    for (DriveId drive = 1; drive <= 8; ++drive) machines_.drive(drive).ForgetRequests();
    auto file = host->Open(id, Access::kRead);
    ASSERT_OK(file);
    EXPECT_EQ(ReadAll(**file, 0, 5000), contents);
    uint64_t sum = 0;
    for (DriveId drive = 1; drive <= 8; ++drive) sum += machines_.drive(drive).requests().get;
    gets.push_back(sum);
  }
  const StripeCounters counters = host.cluster->stripes().counters();
  EXPECT_LE(counters.read_requests, 5u) << "256 KiB in cells of 64 KiB";
  // The file's inode, with five replicas, and nothing else.
  EXPECT_LE(gets[1], 5u);
  EXPECT_GT(gets[0], gets[1]);
}

TEST_F(PackerTest, TwoPackersAreNotInEachOthersWay) {
  MakeFiles(60, 2000);
  Host other = NewHost();
  PackReport reports[2];
  RunTogether(2, [&](int i) {
    Packer packer(i == 0 ? *host_.cluster : *other.cluster, Eager());
    EXPECT_OK(packer.Run(kRootInode));
    EXPECT_TRUE(packer.WaitUntilFree());
    reports[i] = packer.report();
  });
  for (const auto& [path, contents] : files_) EXPECT_TRUE(IsPacked(path)) << path;
  EXPECT_EQ(reports[0].files + reports[1].files, 60u);
  ExpectAllReadBack();
  ExpectNothingLeftOver();
}

TEST_F(PackerTest, WhatCannotBeReadIsNamedAndTheRestIsPacked) {
  MakeFiles(3, 60'000);  // as copies
  // All copies of one file rot.
  const Inode victim = InodeOf(IdOf("/f01"));
  ASSERT_TRUE(victim.map);
  Writer prefix;
  prefix.U64(IdOf("/f01"));
  for (DriveId id = 1; id <= 5; ++id) {
    for (const std::string& key : ShardsOn(id)) {
      if (key.find(prefix.bytes()) != std::string::npos) Rot(id, key);
    }
  }
  Packer packer(*host_.cluster, Eager());
  ASSERT_OK(packer.Run(kRootInode));
  EXPECT_EQ(packer.report().files, 2u);
  EXPECT_THAT(packer.report().not_packed, ElementsAre(HasSubstr("/f01: ")));
  EXPECT_FALSE(IsPacked("/f01"));
  EXPECT_EQ(InodeOf(PlaceOf("/f00")->object).keeping->files.size(), 2u);
}

}  // namespace
}  // namespace pinstripe
