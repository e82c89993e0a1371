// Gaps: what a stripe leaves out of its block, as it is zeros. So holes that are smaller than a
// block take no space, and everything reads as if they were stored.

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>

#include "base/checksum.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/files/block_gaps.h"
#include "fs/files/copy_range.h"
#include "fs/files/map_pages.h"
#include "tests/fs/files/holes_test_base.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using Access = FileSystem::Access;
using Contents = OpenFile::Contents;
using Size = OpenFile::Size;

constexpr uint64_t kUnit = kGapUnit;

// ---- What is left out

// What a stripe has of a block, in which the zeros are left out.
std::string Compact(std::string_view block, const ZerosOfBlock& zeros) {
  std::string compact(block.substr(0, zeros.end));
  for (auto gap = zeros.gaps.rbegin(); gap != zeros.gaps.rend(); ++gap) {
    EXPECT_EQ(compact.substr(gap->first, gap->length), std::string(gap->length, '\0'));
    compact.erase(gap->first, gap->length);
  }
  return compact;
}

// And the other way.
std::string Expand(std::string compact, const std::vector<BlockExtent>& gaps, size_t size) {
  for (const BlockExtent& gap : gaps) compact.insert(gap.first, gap.length, '\0');
  compact.resize(size);
  return compact;
}

TEST(FindZerosTest, EveryPatternOfPagesIsWhatItWasWhenItIsPutTogetherAgain) {
  constexpr size_t kPages = 7;
  for (size_t tail : {size_t{0}, size_t{1}, size_t{100}}) {
    for (unsigned pattern = 0; pattern < 1u << kPages; ++pattern) {
      std::string block((kPages - 1) * kUnit + (tail == 0 ? kUnit : tail), '\0');
      for (size_t page = 0; page < kPages; ++page) {
        const size_t last = std::min((page + 1) * kUnit, block.size()) - 1;
        if (pattern & 1u << page) block[page % 2 ? page * kUnit : last] = 'x';
      }
      const ZerosOfBlock zeros = FindZeros(AsBytes(block));
      const std::string compact = Compact(block, zeros);
      EXPECT_TRUE(Expand(compact, zeros.gaps, block.size()) == block) << pattern;
      EXPECT_EQ(zeros.end == 0, pattern == 0);
      EXPECT_EQ(compact.size() / kUnit + (compact.size() % kUnit != 0),
                static_cast<size_t>(std::popcount(pattern)));
      if (!zeros.gaps.empty()) {
        EXPECT_TRUE(ArePossibleGaps(zeros.gaps, static_cast<uint32_t>(compact.size())));
        EXPECT_FALSE(ArePossibleGaps(zeros.gaps, 0)) << "there is something behind the last";
      }
    }
  }
}

TEST(FindZerosTest, ABlockWithTooManyHolesKeepsTheLongest) {
  std::string block(3 * kUnit * 200, '\0');
  for (size_t i = 0; i < 200; ++i) block[i * 3 * kUnit + kUnit] = 'x';  // two pages between each
  block.replace(9 * kUnit, 30 * kUnit, 30 * kUnit, 'y');
  block.replace(12 * kUnit, 7 * kUnit, 7 * kUnit, '\0');  // one of seven
  const ZerosOfBlock zeros = FindZeros(AsBytes(block));
  EXPECT_EQ(zeros.gaps.size(), kMaxGaps);
  EXPECT_EQ(std::ranges::count(zeros.gaps, BlockExtent{12 * kUnit, 7 * kUnit}), 1);
  EXPECT_TRUE(Expand(Compact(block, zeros), zeros.gaps, block.size()) == block);
}

TEST(FindZerosTest, ImpossibleGapsAreCalledSo) {
  const BlockExtent good{kUnit, kUnit};
  EXPECT_TRUE(ArePossibleGaps({{good}}, kUnit + 1));
  EXPECT_TRUE(ArePossibleGaps({{{0, kUnit}}}, 1));
  EXPECT_FALSE(ArePossibleGaps({}, 1));
  EXPECT_FALSE(ArePossibleGaps({{good}}, kUnit)) << "at the end";
  EXPECT_FALSE(ArePossibleGaps({{{kUnit, 0}}}, 3 * kUnit));
  EXPECT_FALSE(ArePossibleGaps({{{kUnit + 1, kUnit}}}, 3 * kUnit));
  EXPECT_FALSE(ArePossibleGaps({{{kUnit, kUnit + 1}}}, 3 * kUnit));
  EXPECT_FALSE(ArePossibleGaps({{good, {2 * kUnit, kUnit}}}, 9 * kUnit)) << "side by side";
  EXPECT_FALSE(ArePossibleGaps({{good, good}}, 9 * kUnit));
  EXPECT_FALSE(ArePossibleGaps({{{4 * kUnit, kUnit}, good}}, 9 * kUnit));
  EXPECT_FALSE(ArePossibleGaps({{{0xfffff000u, kUnit}}}, 9 * kUnit)) << "beyond all blocks";
  std::vector<BlockExtent> many;
  for (uint32_t i = 0; i <= kMaxGaps; ++i) many.push_back({2 * i * kGapUnit, kGapUnit});
  EXPECT_FALSE(ArePossibleGaps(many, 1 << 20));
  many.pop_back();
  EXPECT_TRUE(ArePossibleGaps(many, 1 << 20));
}

// ---- Where the rest is

// A block of holes and data, overwritten, cut, and shared from some byte on: what the place says
// is what a plain string has.
TEST(GapsOfPlaceTest, WhatIsReadIsWhatABlockWithoutGapsWouldHave) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::string block = Pattern(seed, 32 * kUnit - seed % 3 * 77);
    for (int n = 0; n < 5; ++n) {
      const size_t first = random() % 32 * kUnit;
      const size_t length = std::min<size_t>(random() % 8 * kUnit, block.size() - first);
      block.replace(first, length, length, '\0');
    }
    const ZerosOfBlock zeros = FindZeros(AsBytes(block));
    if (zeros.end == 0) continue;
    std::map<WriteId, std::string> records;
    BlockPlace place{.layout = {2, 1, 64 << 10}, .gaps = zeros.gaps};
    place.write = {1};
    records[place.write] = Compact(block, zeros);
    place.stored = static_cast<uint32_t>(records[place.write].size());
    place.valid = zeros.end;
    ASSERT_EQ(place.stored + GapBytes(place.gaps), place.valid);
    block.resize(zeros.end);
    for (uint8_t n = 2; n < 5; ++n) {
      const auto first = static_cast<uint32_t>(random() % block.size());
      const auto length =
          static_cast<uint32_t>(1 + random() % std::min<uint64_t>(9000, block.size() - first));
      BlockPatch patch{.extents = {{first, length}}};
      patch.write = {n};
      patch.stored = length;
      records[patch.write] = Pattern(n, length);
      block.replace(first, length, records[patch.write]);
      place.Lay(std::move(patch));
    }
    if (seed % 3 == 0) {
      const auto valid = static_cast<uint32_t>(random() % (block.size() + 1));
      place.CutTo(valid);
      block.resize(valid);
    }
    if (seed % 5 == 0 && !block.empty()) {
      place.skip = static_cast<uint32_t>(random() % block.size());
      place.valid -= place.skip;
      block = block.substr(place.skip);
    }
    for (int n = 0; n < 20; ++n) {
      const uint64_t first = random() % (block.size() + 1);
      const uint64_t end = first + random() % (block.size() - first + 1);
      std::string read(end - first, '?');
      for (const auto& gap : ZerosOf(place, first, end)) {
        read.replace(gap.first - first, gap.end - gap.first, gap.end - gap.first, '\0');
      }
      for (const BlockPart& part : PartsOf(place, first, end)) {
        ASSERT_GE(part.first, first);
        ASSERT_LE(part.first + part.size, end);
        const std::string& record = records.at(part.stripe.write);
        ASSERT_LE(part.offset + part.size, record.size());
        read.replace(part.first - first, part.size, record.substr(part.offset, part.size));
      }
      ASSERT_TRUE(read == block.substr(first, end - first));
    }
    if (place.skip != 0) continue;
    for (const auto& hole : DataOf(place).GapsWithin(0, block.size())) {
      ASSERT_EQ(block.find_first_not_of('\0', hole.first) < hole.end, false);
    }
  }
}

// ---- Files

class GapsTest : public HolesTest {
 protected:
  void SetUp() override {
    format_.features = {NewFeature(kGapsFeature)};
    options_.least_shared_bytes = kTestBlock;
    FsTest::SetUp();
  }

  BlockPlace PlaceOf(InodeId id, uint64_t block) {
    Inode inode = InodeOf(id);
    EXPECT_OK(LoadPages(host_.cluster->stripes(), id, inode, block, block + 1));
    return inode.map->Find(block).value_or(BlockPlace());
  }

  // Punched into a file of four blocks: `first` to `end`.
  InodeId MakePunched(std::string_view name, uint64_t first, uint64_t end) {
    const InodeId id = Make(name, Pattern(1, 4 * kTestBlock));
    contents_ = Pattern(1, 4 * kTestBlock);
    Punch(name, first, end);
    return id;
  }
  void Punch(std::string_view name, uint64_t first, uint64_t end) {
    auto file = Open("/" + std::string(name));
    EXPECT_OK(file->Zero(first, end - first, Size::kStays));
    contents_.replace(first, end - first, end - first, '\0');
    EXPECT_TRUE(ReadAll(*file) == contents_);
    EXPECT_OK(file->Close());
  }
  void Write(std::string_view name, uint64_t offset, std::string_view bytes) {
    auto file = Open("/" + std::string(name));
    EXPECT_OK(file->Write(offset, AsBytes(bytes)));
    contents_.replace(offset, bytes.size(), bytes);
    EXPECT_TRUE(ReadAll(*file) == contents_);
    EXPECT_OK(file->Close());
  }
  // As it was made, by hosts that see it for the first time, one of which has a drive away.
  void ExpectContents(std::string_view path) {
    EXPECT_TRUE(Contents(path) == contents_);
    EXPECT_TRUE(Contents(path, NewHost().fs.get()) == contents_);
    const auto sums = fs_->Checksums(fs_->Resolve(path)->inode);
    ASSERT_OK(sums);
    EXPECT_EQ(sums->crc32c, Crc32c(AsBytes(contents_)));
  }
  std::string contents_;
};

TEST_F(GapsTest, AHoleInTheMiddleOfABlockTakesNoSpaceAndIsFound) {
  const InodeId id = MakePunched("file", kTestBlock + 5000, kTestBlock + 60000);
  const uint64_t hole = 14 * kUnit - 2 * kUnit;  // of whole pages
  EXPECT_EQ(StoredBytes("/file"), 4 * kTestBlock - hole);
  EXPECT_EQ(PlaceOf(id, 1).stored, kTestBlock - hole);
  EXPECT_EQ(DataOf("/file"), fmt::format("0-{} {}-{}", kTestBlock + 2 * kUnit,
                                         kTestBlock + 14 * kUnit, 4 * kTestBlock));
  ExpectContents("/file");
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, AHoleIsFoundAtOnceAndNotOnlyWhenItIsCommitted) {
  Make("file", Pattern(1, 2 * kTestBlock));
  auto file = Open("/file");
  ASSERT_OK(file->Zero(2 * kUnit - 5, 6 * kUnit + 10, Size::kStays));
  EXPECT_EQ(DataOf(*file), fmt::format("0-{} {}-{}", 2 * kUnit, 8 * kUnit, 2 * kTestBlock));
  ASSERT_OK(file->Write(4 * kUnit, AsBytes("x")));
  EXPECT_EQ(DataOf(*file), fmt::format("0-{} {}-{} {}-{}", 2 * kUnit, 4 * kUnit, 5 * kUnit,
                                       8 * kUnit, 2 * kTestBlock));
  const std::string before = DataOf(*file);
  ASSERT_OK(file->Commit());
  EXPECT_EQ(DataOf(*file), before);
  ASSERT_OK(file->Close());
  EXPECT_EQ(DataOf("/file"), before);
}

TEST_F(GapsTest, ABlockOfWhichThePiecesWerePunchedOneAfterTheOtherIsAHole) {
  for (const bool at_once : {true, false}) {
    SCOPED_TRACE(at_once);
    Make("file", Pattern(1, 3 * kTestBlock));
    auto file = Open("/file");
    for (const uint64_t first : {uint64_t{0}, 3 * kTestBlock / 4, kTestBlock / 4, kTestBlock / 2}) {
      ASSERT_OK(file->Zero(kTestBlock + first, kTestBlock / 4, Size::kStays));
      if (!at_once) {
        ASSERT_OK(file->Commit());
      }
    }
    ASSERT_OK(file->Close());
    EXPECT_EQ(StoredBytes("/file"), 2 * kTestBlock);
    EXPECT_EQ(DataOf("/file"),
              fmt::format("0-{} {}-{}", kTestBlock, 2 * kTestBlock, 3 * kTestBlock));
    ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  }
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, WhatIsWrittenHereAndThereIntoANewFileTakesWhatWasWritten) {
  auto file = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  contents_.assign(3 * kTestBlock, '\0');
  for (const uint64_t offset : {20 * kUnit, kTestBlock + 3 * kUnit, 3 * kTestBlock - kUnit}) {
    const std::string bytes = Pattern(offset, kUnit);
    ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
    contents_.replace(offset, bytes.size(), bytes);
  }
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(StoredBytes("/file"), 3 * kUnit);
  ExpectContents("/file");
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, WhatIsWrittenIntoAGapIsThere) {
  const InodeId id = MakePunched("file", 4 * kUnit, 20 * kUnit);
  Write("file", 10 * kUnit, "a few bytes");
  EXPECT_EQ(PlaceOf(id, 0).patches.size() + PlaceOf(id, 0).gaps.size() > 1, true);
  ExpectContents("/file");
  Write("file", 4 * kUnit, Pattern(7, 16 * kUnit));
  ExpectContents("/file");
  EXPECT_EQ(StoredBytes("/file"), 4 * kTestBlock);
  Write("file", 0, Pattern(8, kTestBlock));  // as a whole
  EXPECT_TRUE(PlaceOf(id, 0).gaps.empty());
  ExpectContents("/file");
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, AFileThatIsCutInAGapAndGrownAgainHasZerosThere) {
  for (const uint64_t size : {3 * kUnit, 5 * kUnit + 7, 20 * kUnit, 20 * kUnit + 1}) {
    SCOPED_TRACE(size);
    MakePunched("file", 4 * kUnit, 20 * kUnit);
    auto file = Open("/file");
    ASSERT_OK(file->Truncate(size));
    ASSERT_OK(file->Truncate(2 * kTestBlock));
    contents_.resize(size);
    contents_.resize(2 * kTestBlock);
    EXPECT_TRUE(ReadAll(*file) == contents_);
    ASSERT_OK(file->Close());
    ExpectContents("/file");
    EXPECT_LE(StoredBytes("/file"), size);
  }
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, ZerosThatSomebodyHasWrittenAreData) {
  Make("file", Pattern(1, 2 * kTestBlock));
  contents_ = Pattern(1, 2 * kTestBlock);
  Write("file", 0, std::string(kTestBlock, '\0'));
  EXPECT_EQ(StoredBytes("/file"), 2 * kTestBlock);
}

// A version that does not know gaps would refuse the file.
TEST_F(GapsTest, AClusterThatDoesNotSaySoGetsNone) {
  TestCluster plain(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}, .name = "plain"});
  ASSERT_OK(plain.Format());
  auto cluster = plain.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
  auto fs = FileSystem::Open(**cluster, options_);
  ASSERT_OK(fs);
  auto file = (*fs)->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kTestBlock))));
  ASSERT_OK((*file)->Zero(4 * kUnit, 20 * kUnit, Size::kStays));
  ASSERT_OK((*file)->Commit());
  EXPECT_TRUE(ReadAll(**file) == Pattern(1, 4 * kUnit) + std::string(20 * kUnit, '\0') +
                                     Pattern(1, kTestBlock).substr(24 * kUnit));
  const auto stored = Records(**cluster).FindInode((*file)->inode());
  EXPECT_TRUE((*stored)->inode.map->Find(0)->gaps.empty());
  ASSERT_OK((*file)->Close());
}

TEST_F(GapsTest, AWriteThatTheDrivesRefusedIsDoneAgainWithItsHoles) {
  MakePunched("file", 4 * kUnit, 20 * kUnit);
  auto file = Open("/file");
  ASSERT_OK(file->Zero(kTestBlock + 4 * kUnit, 20 * kUnit, Size::kStays));
  contents_.replace(kTestBlock + 4 * kUnit, 20 * kUnit, 20 * kUnit, '\0');
  for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, true);
  EXPECT_FALSE(file->Commit().ok());
  for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, false);
  EXPECT_TRUE(ReadAll(*file) == contents_);
  ASSERT_OK(file->Write(kTestBlock + 9 * kUnit, AsBytes("in between")));
  contents_.replace(kTestBlock + 9 * kUnit, 10, "in between");
  ASSERT_OK(file->Commit());
  EXPECT_TRUE(ReadAll(*file) == contents_);
  ASSERT_OK(file->Close());
  ExpectContents("/file");
  EXPECT_EQ(StoredBytes("/file"), 4 * kTestBlock - 16 * kUnit - 19 * kUnit);
}

// What was punched at the end of a block is not in its stripe, and must not come back from below.
TEST_F(GapsTest, AWriteThatTheDrivesRefusedIsDoneAgainWithTheZerosAtTheEnd) {
  {
    Make("file", Pattern(1, 4 * kTestBlock));
    contents_ = Pattern(1, 4 * kTestBlock);
    auto file = Open("/file");
    for (const uint64_t first : {kTestBlock + 20 * kUnit, 3 * kTestBlock + 20 * kUnit + 7}) {
      const uint64_t length = 12 * kUnit - first % kUnit;
      ASSERT_OK(file->Zero(first, length, Size::kStays));
      contents_.replace(first, length, length, '\0');
    }
    for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, true);
    EXPECT_FALSE(file->Commit().ok());
    for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, false);
    EXPECT_TRUE(ReadAll(*file) == contents_);
    ASSERT_OK(file->Commit());
    EXPECT_TRUE(ReadAll(*file) == contents_);
    ASSERT_OK(file->Close());
    ExpectContents("/file");
    EXPECT_EQ(StoredBytes("/file"), 4 * kTestBlock - 12 * kUnit - 11 * kUnit);
    ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  }
  ExpectNothingLeftOver();
}

// The layout of contents beside the inode, that of copies, and of blocks may be the same.
TEST_F(GapsTest, AFileOfAFewKilobytesHasWhatWasWrittenIntoIt) {
  ASSERT_OK(UseFeature(*host_.cluster, kContentsBesideFeature));
  fs_ = (host_ = NewHost()).fs.get();
  for (const char* layout : {"2+1", "2+1 shard=64KiB", "1+1", "3+1"}) {
    const InodeId directory = MakeDirectory(layout);
    (void)fs_->SetExtended(directory, std::string(kLayoutAttribute), layout);
    for (const uint64_t apart : {2 * kUnit, 6 * kUnit, 14 * kUnit, 20 * kUnit}) {
      SCOPED_TRACE(fmt::format("{} {}", layout, apart));
      auto file = fs_->Create(directory, "file", {.truncate = true});
      ASSERT_OK(file);
      contents_ = Pattern(1, kUnit) + std::string(apart - kUnit, '\0') + Pattern(2, kUnit);
      ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kUnit))));
      ASSERT_OK((*file)->Write(apart, AsBytes(Pattern(2, kUnit))));
      ASSERT_OK((*file)->Close());
      ExpectContents(fmt::format("/{}/file", layout));
    }
  }
  ExpectNothingLeftOver();
}

// Nothing is left of the stripe itself, but of what was laid over its gap.
TEST_F(GapsTest, WhatWasWrittenIntoAGapStaysWhenTheRestIsCutOff) {
  const uint64_t end = kTestBlock;
  for (const bool writes : {true, false}) {
    SCOPED_TRACE(writes);
    auto file = fs_->Create(kRootInode, "file", {.truncate = true});
    ASSERT_OK(file);
    contents_ = std::string(end + 4 * kUnit, '\0') + Pattern(1, kTestBlock - 4 * kUnit);
    ASSERT_OK((*file)->Write(end + 4 * kUnit, AsBytes(Pattern(1, kTestBlock - 4 * kUnit))));
    ASSERT_OK((*file)->Commit());
    if (writes) {
      ASSERT_OK((*file)->Write(end + 100, AsBytes("something")));
      contents_.replace(end + 100, 9, "something");
    }
    ASSERT_OK((*file)->Commit());
    EXPECT_EQ(PlaceOf((*file)->inode(), 1).patches.size(), writes ? 1u : 0u);
    ASSERT_OK((*file)->Truncate(end + 3 * kUnit));
    contents_.resize(end + 3 * kUnit);
    ASSERT_OK((*file)->Close());
    ExpectContents("/file");
    EXPECT_EQ(StoredBytes("/file"), writes ? 9u : 0u);
    EXPECT_EQ(DataOf("/file"), writes ? fmt::format("{}-{}", end + 100, end + 109) : "");
    ExpectNothingLeftOver();
  }
}

TEST_F(GapsTest, AFileIsCutInAGapOfABlockThatIsOnItsWay) {
  auto file = fs_->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  for (uint64_t block = 0; block < 4; ++block) {
    ASSERT_OK((*file)->Write(block * kTestBlock + 8 * kUnit,
                             AsBytes(Pattern(1, kTestBlock - 8 * kUnit))));
  }
  for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, true);
  EXPECT_FALSE((*file)->Commit().ok());
  ASSERT_OK((*file)->Truncate(3 * kTestBlock + 5 * kUnit));
  for (DriveId drive = 1; drive <= 5; ++drive) machines_.SetDown(drive, false);
  contents_.clear();
  for (uint64_t block = 0; block < 3; ++block) {
    contents_ += std::string(8 * kUnit, '\0') + Pattern(1, kTestBlock - 8 * kUnit);
  }
  contents_ += std::string(5 * kUnit, '\0');
  EXPECT_TRUE(ReadAll(**file) == contents_);
  ASSERT_OK((*file)->Close());
  ExpectContents("/file");
  EXPECT_EQ(StoredBytes("/file"), 3 * (kTestBlock - 8 * kUnit));
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, AnotherHostWritesAtTheSameTime) {
  MakePunched("file", 4 * kUnit, 20 * kUnit);
  Host other = NewHost();
  auto ours = Open("/file");
  auto theirs = Open("/file", other.fs.get());
  ASSERT_OK(ours->Zero(2 * kTestBlock, 20 * kUnit, Size::kStays));
  ASSERT_OK(theirs->Write(2 * kTestBlock + 10 * kUnit, AsBytes("theirs")));
  ASSERT_OK(theirs->Write(10 * kUnit, AsBytes("theirs")));
  ASSERT_OK(ours->Write(12 * kUnit, AsBytes("ours")));
  ASSERT_OK(theirs->Close());
  ASSERT_OK(ours->Close());
  contents_.replace(2 * kTestBlock, 20 * kUnit, 20 * kUnit, '\0');
  contents_.replace(10 * kUnit, 6, "theirs");
  contents_.replace(12 * kUnit, 4, "ours");
  ExpectContents("/file");
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, ACloneHasTheSameBytes) {
  MakePunched("file", 4 * kUnit, 20 * kUnit);
  {
    auto source = Open("/file");
    auto target = fs_->Create(kRootInode, "clone", {});
    ASSERT_OK(target);
    uint64_t done = 0;
    for (;;) {
      const auto copied = CopyRange(*source, done, **target, done, UINT64_MAX / 2);
      ASSERT_OK(copied);
      if (*copied == 0) break;
      done += *copied;
    }
    ASSERT_OK((*target)->Close());
    ASSERT_OK(source->Close());
  }
  ExpectContents("/clone");
  ExpectContents("/file");
  Write("clone", 10 * kUnit, "now another");
  ExpectContents("/clone");
  ExpectNothingLeftOver();
}

TEST_F(GapsTest, ARepairBringsABlockWithGapsBack) {
  const InodeId id = MakePunched("file", 4 * kUnit, 20 * kUnit);
  size_t relocated = 0;
  for (DriveId drive = 1; drive <= 5; ++drive) {
    Repairer repairer(*host_.cluster, {.without = {drive}});
    relocated += repairer.Run().relocated;
    ExpectContents("/file");
  }
  EXPECT_GT(relocated, 4u);
  EXPECT_EQ(Repairer(*host_.cluster, {}).Run().check.Count(Severity::kError), 0u);
  EXPECT_EQ(PlaceOf(id, 0).gaps, (std::vector<BlockExtent>{{4 * kUnit, 16 * kUnit}}));
  ExpectContents("/file");
  ExpectNothingLeftOver();
}

}  // namespace
}  // namespace pinstripe
