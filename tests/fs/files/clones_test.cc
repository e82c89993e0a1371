// Clones: copies that share their blocks. They take no space, go their own ways from then on, and
// whatever dies, is removed or repaired meanwhile, no block goes that a file names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/try.h"
#include "fs/files/copy_range.h"
#include "fs/files/keepers.h"
#include "fs/files/state.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using Access = FileSystem::Access;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::IsEmpty;

class ClonesTest : public FsTest {
 protected:
  ClonesTest() { options_.least_shared_bytes = kTestBlock; }

  static Result<std::unique_ptr<OpenFile>> OpenAt(FileSystem& fs, std::string_view path) {
    return fs.Open(TRY(fs.Resolve(path)).inode, Access::kWrite);
  }

  // As cp does it.
  static Status Clone(FileSystem& fs, std::string_view from, std::string_view to) {
    auto source = TRY(fs.Open(TRY(fs.Resolve(from)).inode, Access::kRead));
    auto target = TRY(fs.Create(kRootInode, to, {.truncate = true}));
    uint64_t done = 0;
    while (const uint64_t copied = TRY(CopyRange(*source, done, *target, done, UINT64_MAX / 2))) {
      done += copied;
    }
    TRY(target->Close());
    return source->Close();
  }
  Status Clone(std::string_view from, std::string_view to) { return Clone(*fs_, from, to); }

  Status Overwrite(std::string_view path, uint64_t offset, std::string_view bytes) {
    auto file = TRY(OpenAt(*fs_, path));
    TRY(file->Write(offset, AsBytes(bytes)));
    return file->Close();
  }

  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
  CollectReport Collect() {
    Collector collector(*host_.cluster, {.older_than = seconds(0)});
    return collector.Run();
  }
  RepairReport Repair(Repairer::Options options = {}) {
    Repairer repairer(*host_.cluster, std::move(options));
    return repairer.Run();
  }
  // Of data, on all drives.
  uint64_t Shards() {
    const CheckReport report = Check();
    return report.shards + report.unused_shards;
  }
  void ExpectNothingLeftOver() {
    sim_.Sleep(minutes(4));  // for two turns of the reaper
    ExpectClean(Check());
  }
  void ExpectReadsBack(std::string_view path, const std::string& contents) {
    Host host = NewHost();  // that has nothing in memory
    const std::string there = Contents(path, host.fs.get());
    EXPECT_TRUE(there == contents) << path << ": " << there.size() << " bytes";
  }
};

class ClonesInPagesTest : public ClonesTest {
 protected:
  ClonesInPagesTest() {
    options_ = kSmallPages;
    options_.least_shared_bytes = kTestBlock;
  }
};

class ClonesInManyPagesTest : public ClonesTest {
 protected:
  ClonesInManyPagesTest() {
    options_.inline_map_bytes = 7000;
    options_.map_page_bytes = 60;
  }
};

TEST_F(ClonesTest, ACloneTakesNoSpace) {
  const std::string bytes = Pattern(1, 5 * kTestBlock + 1000);
  Make("a", bytes);
  const uint64_t before = Shards();
  ASSERT_OK(Clone("/a", "b"));
  ASSERT_OK(Clone("/a", "c"));
  ASSERT_OK(Clone("/b", "d"));
  EXPECT_EQ(Shards(), before);
  for (const auto* path : {"/a", "/b", "/c", "/d"}) ExpectReadsBack(path, bytes);
  ExpectClean(Check());
  EXPECT_EQ(InodeOf(fs_->Resolve("/d")->inode).keepers, InodeOf(fs_->Resolve("/a")->inode).keepers);
}

TEST_F(ClonesTest, EachGoesItsOwnWay) {
  std::string a = Pattern(1, 4 * kTestBlock);
  Make("a", a);
  ASSERT_OK(Clone("/a", "b"));
  std::string b = a;
  const std::string small = Pattern(2, 100);
  ASSERT_OK(Overwrite("/a", kTestBlock + 5, small));
  a.replace(kTestBlock + 5, small.size(), small);
  const std::string large = Pattern(3, 2 * kTestBlock);
  ASSERT_OK(Overwrite("/b", 2 * kTestBlock + 1, large));
  b.resize(4 * kTestBlock + 1);
  b.replace(2 * kTestBlock + 1, large.size(), large);
  ExpectReadsBack("/a", a);
  ExpectReadsBack("/b", b);
  // The next small change of a block is a patch again: it is the file's own since the first one.
  ASSERT_OK(Overwrite("/a", kTestBlock + 500, small));
  a.replace(kTestBlock + 500, small.size(), small);
  EXPECT_EQ(InodeOf(fs_->Resolve("/a")->inode).map->Find(1)->patches.size(), 1u);
  {
    auto file = OpenAt(*fs_, "/b");
    ASSERT_OK((*file)->Truncate(kTestBlock / 2));
    ASSERT_OK((*file)->Truncate(kTestBlock));
    ASSERT_OK((*file)->Close());
  }
  b.resize(kTestBlock / 2);
  b.resize(kTestBlock);
  ExpectReadsBack("/a", a);
  ExpectReadsBack("/b", b);
  ExpectNothingLeftOver();
}

TEST_F(ClonesTest, WhatNobodyNamesAnyMoreGoes) {
  Make("a", Pattern(1, 4 * kTestBlock));
  ASSERT_OK(Clone("/a", "b"));
  ASSERT_OK(Clone("/b", "c"));
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  ExpectNothingLeftOver();
  EXPECT_EQ(Shards(), 4u * 3);
  ExpectReadsBack("/b", Pattern(1, 4 * kTestBlock));
  {
    auto file = fs_->Open(fs_->Resolve("/b")->inode, Access::kWrite, /*truncate=*/true);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Close());
  }
  ExpectNothingLeftOver();
  ExpectReadsBack("/c", Pattern(1, 4 * kTestBlock));
  ASSERT_OK(fs_->Unlink(kRootInode, "c"));
  ExpectNothingLeftOver();
  EXPECT_EQ(Shards(), 0u);
  const auto keepers = Keepers::FindAll(*host_.cluster);
  ASSERT_OK(keepers);
  EXPECT_THAT(*keepers, IsEmpty());
}

TEST_F(ClonesTest, RangesMayLieElsewhere) {
  std::string a = Pattern(1, 6 * kTestBlock + 10);
  Make("a", a);
  {
    auto file = OpenAt(*fs_, "/a");
    ASSERT_OK((*file)->Zero(2 * kTestBlock, kTestBlock, OpenFile::Size::kStays));
    ASSERT_OK((*file)->Close());
    a.replace(2 * kTestBlock, kTestBlock, kTestBlock, '\0');
  }
  std::string b = Pattern(2, 8 * kTestBlock);
  Make("b", b);
  struct Case {
    uint64_t from, to, length, shared;
  };
  for (const Case& it : {Case{1 * kTestBlock, 0, 3 * kTestBlock, 3 * kTestBlock},
                         Case{0, 4 * kTestBlock, 2 * kTestBlock + 5, 2 * kTestBlock},
                         Case{5 * kTestBlock, 7 * kTestBlock, 10 * kTestBlock, kTestBlock + 10}}) {
    auto source = OpenAt(*fs_, "/a");
    auto target = OpenAt(*fs_, "/b");
    EXPECT_EQ(CopyRange(**source, it.from, **target, it.to, it.length).value_or(0), it.shared);
    ASSERT_OK((*target)->Close());
    b.resize(std::max<size_t>(b.size(), it.to + it.shared));
    b.replace(it.to, it.shared, a, it.from, it.shared);
    ExpectReadsBack("/b", b);
  }
  EXPECT_EQ(fs_->Resolve("/b")->stored_bytes, 8 * kTestBlock + 10 - kTestBlock);
  // And within one file.
  {
    auto file = OpenAt(*fs_, "/a");
    EXPECT_EQ(CopyRange(**file, 0, **file, 3 * kTestBlock, 2 * kTestBlock).value_or(0),
              2 * kTestBlock);
    ASSERT_OK((*file)->Close());
    a.replace(3 * kTestBlock, 2 * kTestBlock, std::string(a), 0, 2 * kTestBlock);
  }
  ExpectReadsBack("/a", a);
  ExpectReadsBack("/b", b);
  ExpectNothingLeftOver();
}

TEST_F(ClonesTest, WhatCannotBeSharedIsCopied) {
  Make("a", Pattern(1, 3 * kTestBlock + 10));
  Make("longer", Pattern(2, 5 * kTestBlock));
  auto source = OpenAt(*fs_, "/a");
  auto longer = OpenAt(*fs_, "/longer");
  EXPECT_EQ((*source)->ShareBlocks(1, 2 * kTestBlock, **longer, 1).value_or(9), 0u);
  EXPECT_EQ((*source)->ShareBlocks(0, kTestBlock - 1, **longer, 0).value_or(9), 0u);
  // The last block of the one would be a part of a block of the other.
  EXPECT_EQ((*source)->ShareBlocks(3 * kTestBlock, kTestBlock, **longer, 0).value_or(9), 0u);
  EXPECT_EQ((*source)->ShareBlocks(0, 4 * kTestBlock, **longer, 0).value_or(9), 0u);
  EXPECT_EQ(*CopyRange(**source, 0, **longer, 0, 4 * kTestBlock), 3 * kTestBlock + 10);
  // A file that has another layout, of its directory, keeps it.
  const auto directory = fs_->MakeDirectory(kRootInode, "copies", 0755, {});
  ASSERT_OK(directory);
  ASSERT_OK(fs_->SetExtended(directory->inode, "user.pinstripe.layout", "1+1 shard=64KiB"));
  auto other = fs_->Create(directory->inode, "file", {});
  ASSERT_OK(other);
  EXPECT_EQ((*source)->ShareBlocks(0, 2 * kTestBlock, **other, 0).value_or(9), 0u);
  EXPECT_EQ(*CopyRange(**source, 0, **other, 0, 4 * kTestBlock), 3 * kTestBlock + 10);
  ASSERT_OK((*other)->Close());
  ASSERT_OK((*longer)->Close());
  ExpectReadsBack("/copies/file", Pattern(1, 3 * kTestBlock + 10));
  ExpectNothingLeftOver();
}

TEST_F(ClonesTest, SoIsWhatTooManyShareAlready) {
  const std::string bytes = Pattern(1, 2 * kTestBlock);
  Make("a", bytes);
  ASSERT_OK(Clone("/a", "b"));
  Records records(*host_.cluster);
  const InodeId keeper = InodeOf(fs_->Resolve("/a")->inode).keepers.front();
  auto kept = *records.FindInode(keeper);
  for (InodeId id = 2; kept->inode.keeping->files.size() < kMostFilesOfKeeper; ++id) {
    auto& files = kept->inode.keeping->files;
    files.insert(std::ranges::lower_bound(files, id), id);
  }
  ASSERT_OK(records.ChangeInode(keeper, kept->slot, kept->inode));
  Keepers keepers(*host_.cluster, records);
  EXPECT_FAILS(keepers.Join(keeper, 1), EMLINK);
  ASSERT_OK(Clone("/a", "c"));
  EXPECT_TRUE(InodeOf(fs_->Resolve("/c")->inode).keepers.empty());
  ExpectReadsBack("/c", bytes);
  // And of a file that shares with too many.
  Make("d", bytes);
  const InodeId d = fs_->Resolve("/d")->inode;
  auto stored = *records.FindInode(d);
  for (InodeId id = 1; id <= kMostKeepersOfFile; ++id) stored->inode.keepers.push_back(id);
  ASSERT_OK(records.ChangeInode(d, stored->slot, stored->inode));
  ASSERT_OK(Clone("/d", "e"));
  EXPECT_TRUE(InodeOf(fs_->Resolve("/e")->inode).keepers.empty());
  ExpectReadsBack("/e", bytes);
}

TEST_F(ClonesTest, NoMoreIsCopiedAtOnceThanWasAskedFor) {
  Make("a", Pattern(1, 3 * kTestBlock));
  Make("b", "");
  auto source = OpenAt(*fs_, "/a");
  auto target = OpenAt(*fs_, "/b");
  EXPECT_EQ(*CopyRange(**source, 1, **target, 0, 2 * kTestBlock, 1000), 1000u);
  EXPECT_EQ(ReadAll(**target), Pattern(1, 1000, 1));
  // What is shared does not count.
  ASSERT_OK((*target)->Truncate(0));
  EXPECT_EQ(*CopyRange(**source, 0, **target, 0, 2 * kTestBlock, 1000), 2 * kTestBlock);
}

TEST_F(ClonesTest, WhatIsNotCommittedYetIsSharedAsWell) {
  Make("a", Pattern(1, 3 * kTestBlock));
  auto source = OpenAt(*fs_, "/a");
  const std::string bytes = Pattern(2, 1000);
  ASSERT_OK((*source)->Write(kTestBlock - 500, AsBytes(bytes)));
  auto target = fs_->Create(kRootInode, "b", {});
  ASSERT_OK((*target)->Write(0, AsBytes(Pattern(3, 2 * kTestBlock))));
  EXPECT_EQ(CopyRange(**source, 0, **target, 0, UINT64_MAX / 2).value_or(0), 3 * kTestBlock);
  std::string expected = Pattern(1, 3 * kTestBlock);
  expected.replace(kTestBlock - 500, 1000, bytes);
  EXPECT_TRUE(ReadAll(**target) == expected);
  ExpectReadsBack("/b", expected);
  ExpectReadsBack("/a", expected);
  ASSERT_OK((*source)->Close());
  ASSERT_OK((*target)->Close());
  ExpectNothingLeftOver();
}

TEST_F(ClonesInPagesTest, MapsInPagesShareTheirBlocksToo) {
  const std::string contents = MakeInPieces("a");
  const uint64_t before = Check().shards - Check().map_pages * 2;
  ASSERT_OK(Clone("/a", "b"));
  ASSERT_OK(Clone("/b", "c"));
  ExpectReadsBack("/a", contents);
  ExpectReadsBack("/b", contents);
  std::string c = contents;
  for (uint64_t block = 0; block < 12; block += 2) {
    const std::string bytes = Pattern(100 + block, 10);
    ASSERT_OK(Overwrite("/c", block * kTestBlock, bytes));
    c.replace(block * kTestBlock, bytes.size(), bytes);
  }
  ExpectReadsBack("/c", c);
  ExpectReadsBack("/a", contents);
  ExpectNothingLeftOver();
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  ASSERT_OK(fs_->Unlink(kRootInode, "c"));
  ExpectNothingLeftOver();
  ExpectReadsBack("/b", contents);
  const CheckReport report = Check();
  EXPECT_EQ(report.shards - report.map_pages * 2, before);
}

// More of them than a file keeps in memory.
TEST_F(ClonesInManyPagesTest, TheyShareTheirBlocks) {
  constexpr uint64_t kBlocks = 300;
  std::string contents;
  auto file = fs_->Create(kRootInode, "a", {});
  ASSERT_OK(file);
  for (uint64_t block = 0; block < kBlocks; ++block) {
    const std::string bytes = Pattern(block, kTestBlock);
    contents += bytes;
    ASSERT_OK((*file)->Write(block * kTestBlock, AsBytes(bytes)));
  }
  ASSERT_OK((*file)->Commit());
  for (uint64_t block = 0; block < kBlocks; block += 2) {
    const std::string bytes = Pattern(1000 + block, kTestBlock);
    contents.replace(block * kTestBlock, kTestBlock, bytes);
    ASSERT_OK((*file)->Write(block * kTestBlock, AsBytes(bytes)));
  }
  ASSERT_OK((*file)->Close());
  EXPECT_GT(Check().map_pages, kMostPages);
  auto source = OpenAt(*fs_, "/a");
  auto target = fs_->Create(kRootInode, "b", {});
  for (uint64_t at = 0; at < contents.size();) {  // as the kernel divides it
    const auto copied = CopyRange(**source, at, **target, at, 100 * kTestBlock + 1);
    ASSERT_OK(copied);
    ASSERT_EQ(*copied, 100 * kTestBlock);
    at += *copied;
  }
  ASSERT_OK((*target)->Close());
  ASSERT_OK((*source)->Close());
  for (const auto* path : {"/a", "/b"}) {
    Host host = NewHost();
    auto read = host->Open(host->Resolve(path)->inode, Access::kRead);
    for (uint64_t at = 0; at < contents.size(); at += 4 << 20) {
      ASSERT_TRUE(ReadAll(**read, at) == contents.substr(at, 4 << 20)) << path << " " << at;
    }
  }
  ExpectNothingLeftOver();
  for (const auto* name : {"a", "b"}) ASSERT_OK(fs_->Unlink(kRootInode, name));
  ExpectNothingLeftOver();
  EXPECT_EQ(Shards(), 0u);
}

TEST_F(ClonesTest, ChecksumsAreThoseOfTheContents) {
  Make("a", Pattern(1, 3 * kTestBlock + 77));
  const auto sums = fs_->Checksums(fs_->Resolve("/a")->inode);
  ASSERT_OK(sums);
  ASSERT_OK(Clone("/a", "b"));
  for (const auto* path : {"/a", "/b"}) {
    const auto cloned = fs_->Checksums(fs_->Resolve(path)->inode);
    ASSERT_OK(cloned);
    EXPECT_EQ(cloned->crc32c, sums->crc32c);
    EXPECT_EQ(cloned->adler32, sums->adler32);
  }
}

// However long the holes are.
TEST_F(ClonesTest, ASparseFileIsClonedInNoTime) {
  constexpr uint64_t kSize = kMaxFileBytes;
  Make("a", Pattern(1, 2 * kTestBlock));
  auto source = OpenAt(*fs_, "/a");
  ASSERT_OK((*source)->Truncate(kSize));
  ASSERT_OK((*source)->Write(kSize - kTestBlock, AsBytes(Pattern(2, kTestBlock))));
  auto target = fs_->Create(kRootInode, "b", {});
  ASSERT_OK(target);
  constexpr uint64_t kFirst = uint64_t{2} << 30;  // as the kernel divides it
  EXPECT_EQ(CopyRange(**source, 0, **target, 0, kFirst).value_or(0), kFirst);
  EXPECT_EQ(CopyRange(**source, kFirst, **target, kFirst, UINT64_MAX / 2).value_or(0),
            kSize - kFirst);
  EXPECT_EQ(InodeOf((*source)->inode()).keepers.size(), 1u);
  ASSERT_OK((*source)->Close());
  ASSERT_OK((*target)->Close());
  Host host = NewHost();
  auto read = OpenAt(*host.fs, "/b");
  EXPECT_EQ((*read)->Stat()->size, kSize);
  EXPECT_TRUE(ReadAll(**read, 0, 2 * kTestBlock) == Pattern(1, 2 * kTestBlock));
  EXPECT_TRUE(ReadAll(**read, kSize - kTestBlock) == Pattern(2, kTestBlock));
  EXPECT_EQ((*read)->Seek(2 * kTestBlock, OpenFile::Contents::kData).value_or(0),
            kSize - kTestBlock);
  ExpectNothingLeftOver();
}

// ---- Damage, and what is done about it

TEST_F(ClonesInPagesTest, WhatIsSharedIsRepairedOnce) {
  const std::string contents = MakeInPieces("a");
  ASSERT_OK(Clone("/a", "b"));
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  ExpectNothingLeftOver();
  auto open = OpenAt(*fs_, "/b");
  ASSERT_TRUE(ReadAll(**open) == contents);
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    // All shards of it move elsewhere, under the eyes of who has the file open.
    const RepairReport report = Repair({.without = {drive}});
    EXPECT_THAT(report.failures, IsEmpty());
    EXPECT_EQ(report.check.Count(Severity::kError), 0u);
    EXPECT_GT(report.relocated, 0u);
    EXPECT_TRUE(ReadAll(**open) == contents);
    ExpectReadsBack("/b", contents);
  }
  ASSERT_OK((*open)->Close());
  EXPECT_EQ(Repair({.read_all = true}).check.Count(Severity::kError), 0u);
  sim_.Sleep(minutes(2));
  Collect();
  ExpectClean(Check());
  ExpectReadsBack("/b", contents);
}

TEST_F(ClonesTest, ACloneWhoseKeeperIsGoneIsToldOf) {
  Make("a", Pattern(1, 3 * kTestBlock));
  ASSERT_OK(Clone("/a", "b"));
  const InodeId keeper = InodeOf(fs_->Resolve("/b")->inode).keepers.front();
  Records records(*host_.cluster);
  const auto stored = records.FindInode(keeper);
  ASSERT_OK(stored);
  ASSERT_TRUE((*stored)->inode.keeping->settled);
  ASSERT_OK(records.ChangeInode(keeper, (*stored)->slot, std::nullopt));
  const CheckReport report = Check();
  EXPECT_EQ(report.Count(Severity::kError), 2u);  // each file
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kError) {
      EXPECT_EQ(finding.problem, "lost-shared-blocks") << finding.what;
    }
  }
  Host host = NewHost();
  const auto attributes = host->Resolve("/b");
  auto file = host->Open(attributes->inode, Access::kRead);
  std::string bytes(10, 'x');
  EXPECT_FAILS((*file)->Read(0, std::as_writable_bytes(std::span(bytes))), EIO);
}

// A keeper that nobody can read now is not one that is gone.
TEST_F(ClonesTest, WhatCannotBeLookedAtIsNotCalledLost) {
  Make("a", Pattern(1, 3 * kTestBlock));
  ASSERT_OK(Clone("/a", "b"));
  for (DriveId first = 1; first <= machines_.size(); ++first) {
    for (DriveId second = first + 1; second <= machines_.size(); ++second) {
      machines_.SetDown(first, true);
      machines_.SetDown(second, true);
      const CheckReport report = Check();
      EXPECT_FALSE(report.not_checked.empty());
      for (const Finding& finding : report.findings) {
        EXPECT_NE(finding.problem, "lost-shared-blocks") << finding.where << ": " << finding.what;
      }
      machines_.SetDown(first, false);
      machines_.SetDown(second, false);
    }
  }
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

// ---- Whoever dies, and whoever is faster

// At each of its requests the one who clones dies, once. What was there before is there after, the
// copy has all or is one of which not all was copied, and a few collections leave nothing behind.
TEST_F(ClonesTest, WhoeverDiesWhileHeClonesLosesNothing) {
  const std::string contents = Pattern(1, 3 * kTestBlock + 100);
  for (uint64_t requests = 0;; ++requests) {
    SCOPED_TRACE(fmt::format("dies after {} requests", requests));
    Make("a", contents);
    auto life = std::make_shared<ClientLife>();
    {
      auto cluster = machines_.Open(life);
      ASSERT_OK(cluster);
      auto fs = FileSystem::Open(**cluster, options_);
      ASSERT_OK(fs);
      life->CrashAfter(requests);
      (void)Clone(**fs, "/a", "b");
    }
    sim_.Sleep(seconds(30));
    ExpectReadsBack("/a", contents);
    const auto b = fs_->Resolve("/b");
    if (b.has_value() && b->size > 0) ExpectReadsBack("/b", contents);
    // In the middle of it all, somebody goes on with both.
    if (requests % 2 == 0 && b.has_value()) {
      ASSERT_OK(Clone("/a", "b"));
      ExpectReadsBack("/b", contents);
      ASSERT_OK(fs_->Unlink(kRootInode, "a"));
      sim_.Sleep(minutes(4));
      ExpectReadsBack("/b", contents);
    }
    for (int run = 0; run < 5; ++run) EXPECT_THAT(Collect().not_collected, IsEmpty());
    ExpectClean(Check());
    if (b.has_value()) {
      const auto size = fs_->Resolve("/b")->size;
      if (size > 0) ExpectReadsBack("/b", contents);
      ASSERT_OK(fs_->Unlink(kRootInode, "b"));
    }
    (void)fs_->Unlink(kRootInode, "a");
    sim_.Sleep(minutes(4));
    for (int run = 0; run < 3; ++run) Collect();
    EXPECT_EQ(Shards(), 0u);
    const auto keepers = Keepers::FindAll(*host_.cluster);
    ASSERT_OK(keepers);
    EXPECT_THAT(*keepers, IsEmpty());
    ASSERT_FALSE(HasFailure());
    if (!life->crashed()) break;
  }
}

// A commit has happened whose outcome its host did not learn, and somebody shares what it named:
// then the host does not name that as its own when it tries again.
TEST_F(ClonesTest, WhatMayHaveBeenCommittedIsNotNamedTwice) {
  enum Kind { kReplaced, kInPlace, kBehindACut };
  const auto set_all = [&](const DriveFaults& faults) {
    for (DriveId drive = 1; drive <= machines_.size(); ++drive) machines_.drive(drive).Set(faults);
  };
  const std::string bytes = Pattern(2, 3 * kTestBlock);
  // True: the commit failed, and had happened.
  const auto is_uncertain = [&](Kind kind, Duration answers_until) {
    Make("a", Pattern(1, 3 * kTestBlock));
    const InodeId id = fs_->Resolve("/a")->inode;
    auto file = fs_->Open(id, Access::kWrite, /*truncate=*/kind == kReplaced);
    if (kind == kBehindACut) {
      EXPECT_OK((*file)->Truncate(kTestBlock / 2));
    }
    EXPECT_OK((*file)->Write(0, AsBytes(bytes)));
    fs_->SetMemory(1);  // it is stored now, as far as it is not named yet
    fs_->SetMemory(64 << 20);
    bool is_set = false;
    sim_.Spawn("fault", [&, answers_until] {
      sim_.Sleep(answers_until);
      set_all({.lose_answer = 1});
      is_set = true;
    });
    const Status committed = (*file)->Commit();
    while (!is_set) sim_.Sleep(std::chrono::milliseconds(1));
    set_all({});
    Host other = NewHost();
    const bool happened = Contents("/a", other.fs.get()) == bytes;
    EXPECT_TRUE(happened || !committed.ok());
    if (!committed.ok() && happened) {
      EXPECT_OK(Clone(*other.fs, "/a", "b"));
    }
    EXPECT_OK((*file)->Close());  // tries again
    return !committed.ok() && happened;
  };
  for (const Kind kind : {kReplaced, kInPlace, kBehindACut}) {
    int times = 0;
    for (int delay = 0; delay < 2000; delay += 100) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(kind), delay));
      const bool uncertain = is_uncertain(kind, std::chrono::microseconds(delay));
      ExpectReadsBack("/a", bytes);
      ASSERT_OK(fs_->Unlink(kRootInode, "a"));
      if (!uncertain) continue;
      ++times;
      ExpectReadsBack("/b", bytes);
      sim_.Sleep(minutes(4));
      ExpectReadsBack("/b", bytes);
      for (int run = 0; run < 3; ++run) Collect();
      ExpectReadsBack("/b", bytes);
      ExpectClean(Check());
      ASSERT_OK(fs_->Unlink(kRootInode, "b"));
    }
    EXPECT_GT(times, 0) << kind;
  }
  sim_.Sleep(minutes(4));
  for (int run = 0; run < 3; ++run) Collect();
  EXPECT_EQ(Shards(), 0u);
}

// Whoever writes to a file that others clone meanwhile neither loses anything nor reads it all
// again.
TEST_F(ClonesTest, WhatIsBeingWrittenMayBeCloned) {
  Make("a", Pattern(1, 6 * kTestBlock));
  auto file = OpenAt(*fs_, "/a");
  std::string a = Pattern(1, 6 * kTestBlock);
  const std::string whole = Pattern(2, 2 * kTestBlock);
  const std::string part = Pattern(3, 1000);
  const auto write = [&](uint64_t offset, const std::string& bytes) {
    ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
    a.replace(offset, bytes.size(), bytes);
  };
  write(0, whole);
  write(2 * kTestBlock + 10, part);
  write(3 * kTestBlock + 10, Pattern(5, kTestBlock / 2));
  fs_->SetMemory(1);
  fs_->SetMemory(64 << 20);
  write(4 * kTestBlock + 10, part);  // in memory still
  Host other = NewHost();
  ASSERT_OK(Clone(*other.fs, "/a", "b"));
  ASSERT_OK((*file)->Close());
  ExpectReadsBack("/a", a);
  ExpectReadsBack("/b", Pattern(1, 6 * kTestBlock));
  ExpectNothingLeftOver();
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  ExpectNothingLeftOver();
  ExpectReadsBack("/b", Pattern(1, 6 * kTestBlock));
}

// Whoever takes a file out of a keeper's list for not naming it, and whoever is about to name it,
// meet at any two of their steps.
TEST_F(ClonesTest, WhoeverLeavesMeetsWhoeverJoins) {
  Make("a", Pattern(1, 2 * kTestBlock));
  ASSERT_OK(Clone("/a", "b"));
  const InodeId b = fs_->Resolve("/b")->inode;
  const InodeId keeper = InodeOf(b).keepers.front();
  bool done = false;
  bool left = false;
  int departures = 0;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    machines_.drive(drive).Set({.most_latency = std::chrono::milliseconds(2)});
  }
  sim_.Spawn("leaver", [&] {
    Host host = NewHost();
    Records records(*host.cluster);
    Keepers keepers(*host.cluster, records);
    while (!done) {
      const auto departure = keepers.Leave(keeper, b);
      EXPECT_OK(departure);
      departures += departure.has_value() && !departure->stays ? 1 : 0;
      sim_.Sleep(std::chrono::microseconds(sim_.Below(5000)));
    }
    left = true;
  });
  auto source = OpenAt(*fs_, "/a");
  auto target = OpenAt(*fs_, "/b");
  Records records(*host_.cluster);
  int shared = 0;
  const auto try_once = [&] {
    EXPECT_OK((*target)->Truncate(0));
    EXPECT_OK((*target)->Commit());
    sim_.Sleep(std::chrono::microseconds(sim_.Below(3000)));
    const auto bytes = (*source)->ShareBlocks(0, 2 * kTestBlock, **target, 0);
    EXPECT_OK(bytes);
    if (bytes.value_or(0) == 0) return;
    ++shared;
    sim_.Sleep(std::chrono::microseconds(sim_.Below(2000)));
    const auto kept = records.FindInode(keeper);
    EXPECT_OK(kept);
    const bool is_listed =
        kept.has_value() && *kept && std::ranges::binary_search((*kept)->inode.keeping->files, b);
    EXPECT_TRUE(is_listed);
  };
  for (int round = 0; round < 400 && !HasFailure(); ++round) try_once();
  done = true;
  while (!left) sim_.Sleep(std::chrono::milliseconds(1));
  EXPECT_GT(shared, 20);
  EXPECT_GT(departures, 20);
  ExpectReadsBack("/a", Pattern(1, 2 * kTestBlock));
}

// A removed file that is open is read for as long as the collection leaves what is young.
TEST_F(ClonesTest, WhatWasJustRemovedKeepsWhatItShares) {
  Make("a", Pattern(1, 3 * kTestBlock));
  ASSERT_OK(Clone("/a", "b"));
  sim_.Sleep(std::chrono::hours(2));
  Host other = NewHost();
  auto open = OpenAt(*other.fs, "/b");
  ASSERT_OK(fs_->Unlink(kRootInode, "a"));
  auto life = std::make_shared<ClientLife>();
  {
    auto cluster = machines_.Open(life);
    auto fs = FileSystem::Open(**cluster, options_);
    ASSERT_OK((*fs)->Unlink(kRootInode, "b"));
    life->Crash();  // its reaper does nothing
  }
  Collector(*host_.cluster, {.older_than = std::chrono::hours(1)}).Run();
  EXPECT_TRUE(ReadAll(**open) == Pattern(1, 3 * kTestBlock));
  sim_.Sleep(std::chrono::hours(2));
  for (int run = 0; run < 3; ++run) {
    Collector(*host_.cluster, {.older_than = std::chrono::hours(1)}).Run();
  }
  EXPECT_EQ(Shards(), 0u);
}

// Several hosts clone, write, truncate and remove files of which each has one contents at a time,
// while others collect and repair without any patience.
class CloneStormTest : public ClonesTest, public testing::WithParamInterface<int> {};

TEST_P(CloneStormTest, EachFileHasWhatWasWrittenToIt) {
  for (int i = 0; i < GetParam(); ++i) (void)sim_.Random();
  constexpr int kHosts = 3;
  constexpr int kFiles = 4;
  std::vector<Host> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(NewHost());
  // Only its own host writes to a file; everybody clones it. So the contents of one are known but
  // for those of a clone, which is one of those that the source had while it was made.
  std::map<std::string, std::string> contents;
  std::map<std::string, std::vector<std::string>> history;
  const auto name_of = [](int host, uint64_t file) { return fmt::format("{}-{}", host, file); };
  const auto set = [&](const std::string& name, const std::string& bytes) {
    contents[name] = bytes;
    history[name].push_back(bytes);
  };
  const auto work = [&](int number) {
    FileSystem& fs = *hosts[static_cast<size_t>(number)].fs;
    for (int step = 0; step < 25; ++step) {
      sim_.Sleep(std::chrono::milliseconds(sim_.Below(3000)));
      const std::string name = name_of(number, sim_.Below(kFiles));
      const uint64_t what = sim_.Below(10);
      if (what < 2) {
        const std::string bytes = Pattern(sim_.Random(), kTestBlock * (1 + sim_.Below(4)));
        auto file = fs.Create(kRootInode, name, {.truncate = true});
        ASSERT_OK(file);
        history[name].push_back("");
        ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
        set(name, bytes);  // it may be seen before Close() comes back
        ASSERT_OK((*file)->Close());
      } else if (what < 4 && contents.contains(name)) {
        auto file = OpenAt(fs, "/" + name);
        ASSERT_OK(file);
        std::string bytes = contents[name];
        const std::string piece = Pattern(sim_.Random(), 1 + sim_.Below(kTestBlock));
        const uint64_t at = sim_.Below(bytes.size() + 1);
        bytes.resize(std::max<size_t>(bytes.size(), at + piece.size()));
        bytes.replace(at, piece.size(), piece);
        set(name, bytes);
        ASSERT_OK((*file)->Write(at, AsBytes(piece)));
        ASSERT_OK((*file)->Close());
      } else if (what < 5 && contents.contains(name)) {
        contents.erase(name);
        ASSERT_OK(fs.Unlink(kRootInode, name));
      } else {
        const std::string source =
            name_of(static_cast<int>(sim_.Below(kHosts)), sim_.Below(kFiles));
        if (source == name || !contents.contains(source)) continue;
        const size_t from = history[source].empty() ? 0 : history[source].size() - 1;
        contents.erase(name);
        history[name].push_back("");
        const Status status = Clone(fs, "/" + source, name);
        const auto file = fs.Resolve("/" + name);
        if (!file.has_value()) continue;  // the source was gone
        const std::string now = Contents("/" + name, &fs);
        const auto& were = history[source];
        const bool is_one_of_them =
            std::any_of(were.begin() + static_cast<ptrdiff_t>(from), were.end(),
                        [&](const std::string& bytes) { return bytes == now; });
        // While its source is written to, or removed, a copy may be of several moments, or a part.
        const bool changed_meanwhile = were.size() > from + 1 || !contents.contains(source);
        EXPECT_TRUE(is_one_of_them || changed_meanwhile) << name << " from " << source;
        EXPECT_TRUE(status.ok() || changed_meanwhile) << status.message();
        set(name, now);
      }
    }
  };
  bool done = false;
  bool tidied = false;
  sim_.Spawn("tidy", [&] {
    Host host = NewHost();
    while (!done) {
      Collector collector(*host.cluster, {.older_than = seconds(sim_.Below(3))});
      collector.Run();
      Repairer repairer(*host.cluster, {.without = {static_cast<DriveId>(1 + sim_.Below(5))}});
      repairer.Run();
      sim_.Sleep(std::chrono::milliseconds(sim_.Below(2000)));
    }
    tidied = true;
  });
  RunTogether(kHosts, work);
  done = true;
  while (!tidied) sim_.Sleep(seconds(1));
  hosts.clear();
  for (const auto& [name, bytes] : contents) ExpectReadsBack("/" + name, bytes);
  sim_.Sleep(minutes(4));
  for (int run = 0; run < 6; ++run) Collect();
  Repair();
  for (int run = 0; run < 2; ++run) Collect();
  ExpectClean(Check());
  for (const auto& [name, bytes] : contents) ExpectReadsBack("/" + name, bytes);
  for (const std::string& name : List()) ASSERT_OK(fs_->Unlink(kRootInode, name));
  sim_.Sleep(minutes(4));
  for (int run = 0; run < 3; ++run) Collect();
  EXPECT_EQ(Shards(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CloneStormTest, testing::Range(1, 6));

}  // namespace
}  // namespace pinstripe
