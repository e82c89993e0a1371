// Small overwrites of stored blocks: what is planned, what it costs, and that it is what is read,
// whoever has written, cut, repaired or collected meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "base/checksum.h"
#include "cluster/gather.h"
#include "fs/files/map_pages.h"
#include "fs/files/patch_plan.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

// ---- The plan

// A block, the records that it has, and what should be read.
class ModelBlock {
 public:
  ModelBlock(const StripeLayout& layout, uint64_t seed) : random_(seed) {
    place_.layout = layout;
    bytes_ = Pattern(seed, layout.block_bytes());
    StoreAnew();
  }

  void Overwrite(const IntervalSet& where) {
    for (const auto& part : where.Within(0, UINT64_MAX)) {
      for (uint64_t i = part.first; i < part.end; ++i) bytes_[i] = static_cast<char>(random_());
    }
    ++overwrites_;
    const auto plan = PlanPatch(place_, where);
    if (!plan) return StoreAnew();
    EXPECT_EQ(PlanPatch(place_, *plan)->Within(0, UINT64_MAX), plan->Within(0, UINT64_MAX));
    BlockPatch patch{.layout = CopiesOf(plan->Count(), 2)};
    patch.write = NextId();
    std::string& record = records_[patch.write];
    for (const auto& part : plan->Within(0, UINT64_MAX)) {
      const auto length = static_cast<uint32_t>(part.end - part.first);
      patch.extents.push_back({static_cast<uint32_t>(part.first), length});
      record += bytes_.substr(part.first, length);
      patch.stored += length;
    }
    patched_bytes_ += patch.stored;
    place_.Lay(std::move(patch));
  }

  void Cut(uint32_t valid) {
    place_.CutTo(valid);
    bytes_.resize(valid);
  }

  void ExpectRead(uint64_t first, uint64_t end) {
    std::string read(end - first, '?');
    for (const BlockPart& part : PartsOf(place_, first, end)) {
      ASSERT_GE(part.first, first);
      ASSERT_LE(part.first + part.size, end);
      ASSERT_EQ(read.find_first_not_of('?', part.first - first) < part.first - first + part.size,
                false)
          << "read twice";
      const std::string& record = records_.at(part.stripe.write);
      ASSERT_LE(part.offset + part.size, record.size());
      read.replace(part.first - first, part.size, record.substr(part.offset, part.size));
    }
    ASSERT_TRUE(read == bytes_.substr(first, end - first));
  }

  void ExpectBounded() const {
    size_t extents = 0;
    uint64_t stored = 0;
    for (const BlockPatch& patch : place_.patches) {
      extents += patch.extents.size();
      stored += patch.stored;
    }
    ASSERT_LE(place_.patches.size(), kMaxPatches);
    ASSERT_LE(extents, kMaxPatchExtents);
    ASSERT_LE(stored, place_.stored / 16);
    ASSERT_LE(stored, kMaxPatchBytes);
  }

  uint32_t size() const { return static_cast<uint32_t>(bytes_.size()); }
  const BlockPlace& place() const { return place_; }
  uint64_t overwrites() const { return overwrites_; }
  uint64_t stored_anew() const { return stored_anew_; }
  uint64_t patched_bytes() const { return patched_bytes_; }
  std::mt19937_64& random() { return random_; }

 private:
  WriteId NextId() {
    WriteId id{};
    const std::string bytes = Writer().U64(1).U64(++writes_).Take();
    std::copy(bytes.begin(), bytes.end(), id.begin());
    return id;
  }
  void StoreAnew() {
    place_.patches.clear();
    place_.write = NextId();
    place_.stored = place_.valid = size();
    records_[place_.write] = bytes_;
    ++stored_anew_;
  }

  std::mt19937_64 random_;
  std::string bytes_;
  BlockPlace place_;
  std::map<WriteId, std::string> records_;
  uint64_t writes_ = 0;
  uint64_t overwrites_ = 0;
  uint64_t stored_anew_ = 0;
  uint64_t patched_bytes_ = 0;
};

const StripeLayout kLarge{4, 2, 1 << 20};

IntervalSet Interval(uint64_t first, uint64_t length) {
  IntervalSet set;
  set.Add(first, first + length);
  return set;
}

TEST(PatchPlanTest, WhateverIsOverwrittenIsReadAndTheListStaysBounded) {
  size_t most_patches = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    ModelBlock block(seed % 2 ? StripeLayout{2, 1, 64 << 10} : StripeLayout{4, 2, 256 << 10}, seed);
    std::mt19937_64& random = block.random();
    const uint32_t longest = seed % 3 ? 300 : 9000;
    const uint32_t hot = seed % 4 ? block.size() : 10'000;  // where most of it is
    for (int step = 0; step < 300 && !testing::Test::HasFatalFailure(); ++step) {
      IntervalSet where;
      for (uint64_t n = 1 + random() % 3; n > 0; --n) {
        const uint64_t first = random() % std::min(hot, block.size());
        where.Add(first, std::min<uint64_t>(first + 1 + random() % longest, block.size()));
      }
      block.Overwrite(where);
      if (random() % 60 == 0) block.Cut(block.size() - static_cast<uint32_t>(random() % 1000));
      block.ExpectBounded();
      const uint64_t first = random() % block.size();
      block.ExpectRead(first, first + 1 + random() % (block.size() - first));
      most_patches = std::max(most_patches, block.place().patches.size());
    }
    block.ExpectRead(0, block.size());
    EXPECT_LT(block.stored_anew(), block.overwrites());
  }
  EXPECT_EQ(most_patches, kMaxPatches);
}

// Of 4 KiB here and there: how often all is written anew, and how much more is written for what
// goes from patch to patch.
TEST(PatchPlanTest, WhatOverwritesCostIsBounded) {
  const auto run = [](const std::function<uint64_t(ModelBlock&, uint64_t)>& where) {
    ModelBlock block(kLarge, 1);
    for (uint64_t i = 0; i < 1000; ++i) block.Overwrite(Interval(where(block, i), 4096));
    block.ExpectRead(0, block.size());
    EXPECT_LT(block.patched_bytes(), 1000u * 4096 * 4);
    return block.stored_anew();
  };
  const auto anywhere = [](ModelBlock& block, uint64_t) { return block.random()() % 1024 * 4096; };
  EXPECT_LE(run(anywhere), 1000u / 40);
  EXPECT_LE(run([](ModelBlock&, uint64_t i) { return i * 4096; }), 1000u / 40);
  // The same few pages again and again, as a data base does.
  const auto hot = [](ModelBlock& block, uint64_t) { return block.random()() % 10 * 4096; };
  EXPECT_EQ(run(hot), 1u) << "once, at the beginning";
  EXPECT_EQ(run([](ModelBlock&, uint64_t) { return uint64_t{0}; }), 1u);
}

TEST(PatchPlanTest, NothingElseIsPatched) {
  BlockPlace place{.layout = kLarge, .stored = 4 << 20, .valid = 4 << 20};
  EXPECT_TRUE(PlanPatch(place, Interval(0, 1)));
  EXPECT_TRUE(PlanPatch(place, Interval((4 << 20) - 1, 1)));
  EXPECT_FALSE(PlanPatch(place, IntervalSet()));
  EXPECT_TRUE(PlanPatch(place, Interval(0, 256 << 10)));
  EXPECT_FALSE(PlanPatch(place, Interval(0, (256 << 10) + 1))) << "too much of it";
  IntervalSet dust;
  for (uint64_t i = 0; i <= kMaxPatchExtents; ++i) dust.Add(2 * i, 2 * i + 1);
  EXPECT_FALSE(PlanPatch(place, dust)) << "too many parts";
  place.valid = 1000;
  EXPECT_TRUE(PlanPatch(place, Interval(999, 1)));
  EXPECT_FALSE(PlanPatch(place, Interval(999, 2))) << "it grows";
  place.stored = place.valid = kCellBytes;
  EXPECT_FALSE(PlanPatch(place, Interval(0, 1))) << "it is small";
}

// ---- Files

class PatchesTest : public FsTest {
 protected:
  explicit PatchesTest(TestCluster::Options options = {.drives = 5, .layout = {2, 1, 64 << 10}})
      : FsTest(std::move(options)) {
    SetLogLevel(LogLevel::kError);
  }

  std::unique_ptr<OpenFile> Open(std::string_view path, Host& host) {
    const auto attributes = host->Resolve(path);
    EXPECT_OK(attributes);
    auto file = host->Open(attributes->inode, FileSystem::Access::kWrite);
    EXPECT_OK(file);
    return *std::move(file);
  }
  // Overwrites a part, commits, and does the same with `contents`.
  void Patch(OpenFile& file, std::string& contents, uint64_t offset, size_t length) {
    const std::string bytes = Pattern(++seed_, length);
    ASSERT_OK(file.Write(offset, AsBytes(bytes)));
    ASSERT_OK(file.Commit());
    contents.replace(offset, length, bytes);
  }
  void ExpectContents(std::string_view path, const std::string& contents) {
    Host fresh = NewHost();
    for (Host* host : {&fresh, &host_}) {
      auto file = Open(path, *host);
      EXPECT_TRUE(ReadAll(*file, 0, contents.size() + 1) == contents) << path;
    }
  }
  std::vector<BlockPatch> PatchesOf(InodeId id, uint64_t block) {
    Inode inode = InodeOf(id);
    EXPECT_OK(LoadPages(host_.cluster->stripes(), id, inode, block, block + 1));
    const auto place = inode.map->Find(block);
    return place ? place->patches : std::vector<BlockPatch>();
  }
  CheckReport Check() {
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
  DriveRequests Requests() {
    DriveRequests sum;
    for (size_t id = 1; id <= machines_.size(); ++id) {
      const DriveRequests one = machines_.drive(static_cast<DriveId>(id)).requests();
      sum.get += one.get;
      sum.put += one.put;
      sum.durable_put += one.durable_put;
      sum.put_bytes += one.put_bytes;
      sum.flush += one.flush;
    }
    return sum;
  }
  void LoseShardsOf(DriveId drive) {
    const std::string prefix = ClusterPrefix("test") + "D";
    Gather<Result<std::vector<std::string>>> keys(sim_);
    machines_.memory(drive).Range(prefix, prefix + std::string(64, '\xff'), 200, false, Time::max(),
                                  keys.Ask(0));
    const std::vector<std::string> listed = *keys.Next(Time::max())->value;
    for (const std::string& key : listed) {
      Gather<Status> gather(sim_);
      machines_.memory(drive).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                     gather.Ask(0));
      (void)gather.Next(Time::max());
    }
  }

  uint64_t seed_ = 100;
};

TEST_F(PatchesTest, ASmallOverwriteReadsNothingAndIsWhatIsRead) {
  std::string contents = Pattern(1, 3 * kTestBlock + 70'000);
  const InodeId id = Make("file", contents);
  Host fresh = NewHost();
  auto file = Open("/file", fresh);
  const StripeCounters before = fresh.cluster->stripes().counters();
  Patch(*file, contents, kTestBlock + 5000, 4096);
  Patch(*file, contents, 3 * kTestBlock + 10, 1);  // in the short one at the end
  const StripeCounters after = fresh.cluster->stripes().counters();
  EXPECT_EQ(after.read_requests, before.read_requests);
  EXPECT_EQ(PatchesOf(id, 0).size(), 0u);
  EXPECT_EQ(PatchesOf(id, 1).size(), 1u);
  EXPECT_EQ(PatchesOf(id, 3).size(), 1u);
  ExpectContents("/file", contents);

  // What a patch has whole is read from it alone.
  Host reader = NewHost();
  auto opened = Open("/file", reader);
  EXPECT_TRUE(ReadAll(*opened, kTestBlock + 5000, 4096) ==
              contents.substr(kTestBlock + 5000, 4096));
  EXPECT_EQ(reader.cluster->stripes().counters().read_requests, 1u);
  EXPECT_EQ(reader.cluster->stripes().counters().bytes_fetched, 4096u);
  ASSERT_OK(file->Close());
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
  EXPECT_EQ(Check().patches, 2u);
}

TEST_F(PatchesTest, OneHandleSeesThemInEveryStateInWhichTheyAre) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  Make("file", contents);
  auto file = Open("/file", host_);
  for (int i = 0; i < 40; ++i) {
    const uint64_t offset = 997u * static_cast<uint64_t>(i);
    const std::string bytes = Pattern(++seed_, 100 + 13u * static_cast<uint64_t>(i));
    ASSERT_OK(file->Write(offset, AsBytes(bytes)));
    contents.replace(offset, bytes.size(), bytes);
    ASSERT_TRUE(ReadAll(*file) == contents) << "dirty";
    if (i % 3 == 0) {
      ASSERT_OK(file->Commit());
    }
    if (i % 7 == 0) {
      ASSERT_OK(file->Sync());
    }
    ASSERT_TRUE(ReadAll(*file) == contents) << i;
  }
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

TEST_F(PatchesTest, WhatATruncationLeavesOfThemIsReadAndZerosBeyond) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  const InodeId id = Make("file", contents);
  auto file = Open("/file", host_);
  Patch(*file, contents, kTestBlock + 1000, 2000);
  Patch(*file, contents, kTestBlock + 5000, 2000);
  ASSERT_OK(file->Truncate(kTestBlock + 2000));
  contents.resize(kTestBlock + 2000);
  ASSERT_OK(file->Commit());
  EXPECT_EQ(PatchesOf(id, 1).size(), 1u);
  ExpectContents("/file", contents);
  ASSERT_OK(file->Truncate(2 * kTestBlock));
  contents.resize(2 * kTestBlock);
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

TEST_F(PatchesTest, AFullBlockDropsThemAndWhatIsReplacedGoes) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  const InodeId id = Make("file", contents);
  auto file = Open("/file", host_);
  for (uint64_t i = 0; i < 5; ++i) Patch(*file, contents, 10'000 * i, 500);
  Patch(*file, contents, 0, 500);  // covers the first one
  EXPECT_EQ(PatchesOf(id, 0).size(), 5u);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
  Patch(*file, contents, 0, kTestBlock);
  EXPECT_EQ(PatchesOf(id, 0).size(), 0u);
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

TEST_F(PatchesTest, ManyOfThemAreMergedAndThenTheBlockIsWrittenAnew) {
  std::string contents = Pattern(1, kTestBlock);
  const InodeId id = Make("file", contents);
  auto file = Open("/file", host_);
  std::set<size_t> seen;
  const StripeCounters before = host_.cluster->stripes().counters();
  for (uint64_t i = 0; i < 60; ++i) {
    Patch(*file, contents, i * 2000, 300);
    seen.insert(PatchesOf(id, 0).size());
    ASSERT_LE(*seen.rbegin(), kMaxPatches);
  }
  EXPECT_TRUE(seen.contains(kMaxPatches));
  EXPECT_TRUE(seen.contains(0)) << "it was never written anew";
  EXPECT_GT(host_.cluster->stripes().counters().read_requests, before.read_requests);
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

// Two hosts overwrite parts of one block between the same commits, patched already or not: the
// bytes of both are there, and where they overlap those of the later commit. Cutting at the same
// time is in its order among the cutter's.
TEST_F(PatchesTest, OfTwoHostsAreLaidOneOverTheOther) {
  Host other = NewHost();
  struct Range {
    uint64_t first, length;
  };
  const std::vector<Range> ranges{{0, 10}, {5, 100}, {90, 3000}, {60'000, 8000}, {0, kTestBlock}};
  for (int patches : {0, 1, 8}) {
    for (const Range& a : ranges) {
      for (const Range& b : ranges) {
        SCOPED_TRACE(fmt::format("{} patches, {}+{} and {}+{}", patches, a.first, a.length, b.first,
                                 b.length));
        std::string expected = Pattern(1, 2 * kTestBlock);
        const InodeId id = Make("file", expected);
        {
          auto file = Open("/file", host_);
          for (int i = 0; i < patches; ++i) {
            Patch(*file, expected, 50u * static_cast<uint64_t>(i), 40);
          }
        }
        ASSERT_EQ(PatchesOf(id, 0).size(), static_cast<size_t>(patches));
        auto one = Open("/file", host_);
        auto two = Open("/file", other);
        const auto write = [&](OpenFile& file, const Range& range, uint64_t seed) {
          const std::string bytes = Pattern(seed, range.length);
          ASSERT_OK(file.Write(range.first, AsBytes(bytes)));
          expected.replace(range.first, range.length, bytes);
        };
        write(*one, a, 2);
        write(*two, b, 3);
        ASSERT_OK(one->Close());
        ASSERT_OK(two->Close());
        ASSERT_TRUE(Contents("/file") == expected);
        ASSERT_TRUE(Contents("/file", other.fs.get()) == expected);
      }
    }
  }
  sim_.Sleep(seconds(90));
  ExpectClean(Check());
}

// While one host stores what it wrote, what lies below a block that it has to complete is gone,
// because another host has committed: what it has stored of other blocks by then has to be stored
// over that, and again if need be.
TEST_F(PatchesTest, WhatWasStoredBeforeAnotherHostsCommitIsFoundIsNotLost) {
  const std::string before = Pattern(1, 6 * kTestBlock);
  Make("file", before);
  std::string expected = before;
  Host other = NewHost();
  auto one = Open("/file", other);
  auto two = Open("/file", host_);
  const auto write = [&](OpenFile& file, uint64_t offset, size_t length) {
    const std::string bytes = Pattern(++seed_, length);
    ASSERT_OK(file.Write(offset, AsBytes(bytes)));
    expected.replace(offset, length, bytes);
  };
  write(*two, 2000, 10);
  write(*two, 5 * kTestBlock, kTestBlock);
  write(*one, 1000, 4096);
  write(*one, 5 * kTestBlock + 1000, kTestBlock / 8);  // not by a patch
  ASSERT_OK(two->Close());
  sim_.Sleep(seconds(30));  // what it replaced is gone
  ASSERT_OK(one->Sync());
  // Ours were committed later, so they are above.
  ExpectContents("/file", expected);
  ASSERT_OK(one->Close());
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

// As above, and the other has made the file so small that it is kept in its inode.
TEST_F(PatchesTest, WhatAnotherHostHasMadeSmallIsNotLost) {
  for (const bool first_too : {false, true}) {
    SCOPED_TRACE(first_too);
    Make("file", Pattern(1, 6 * kTestBlock));
    Host other = NewHost();
    auto one = Open("/file", other);
    auto two = Open("/file", host_);
    const std::string small = Pattern(2, 100);
    ASSERT_OK(two->Truncate(0));
    ASSERT_OK(two->Write(0, AsBytes(small)));
    const std::string large = Pattern(3, kTestBlock / 8);
    const std::string patch = Pattern(4, 50);
    if (first_too) {
      ASSERT_OK(one->Write(80, AsBytes(patch)));
    }
    ASSERT_OK(one->Write(5 * kTestBlock + 1000, AsBytes(large)));
    ASSERT_OK(two->Close());
    ASSERT_TRUE(Contents("/file") == small);
    sim_.Sleep(seconds(30));
    ASSERT_OK(one->Sync());
    std::string expected = small;
    expected.resize(5 * kTestBlock + 1000);
    expected += large;
    if (first_too) expected.replace(80, patch.size(), patch);
    ExpectContents("/file", expected);
    ASSERT_OK(one->Close());
    sim_.Sleep(seconds(30));
    ExpectClean(Check());
  }
}

// A small file is completed to be kept in its inode, and another host has made it large.
TEST_F(PatchesTest, WhatAnotherHostHasMadeLargeIsNotKeptInTheInode) {
  const InodeId id = Make("file", Pattern(1, kTestBlock));
  {
    auto file = Open("/file", host_);
    ASSERT_OK(file->Truncate(100));
    ASSERT_OK(file->Close());
  }
  ASSERT_TRUE(InodeOf(id).map) << "it has no block to be completed from";
  Host other = NewHost();
  auto one = Open("/file", other);
  auto two = Open("/file", host_);
  std::string expected = Pattern(2, 3 * kTestBlock);
  ASSERT_OK(two->Write(0, AsBytes(expected)));
  const std::string bytes = Pattern(3, 10);
  ASSERT_OK(one->Write(50, AsBytes(bytes)));
  ASSERT_OK(two->Close());
  sim_.Sleep(seconds(30));
  ASSERT_OK(one->Sync());
  expected.replace(50, bytes.size(), bytes);
  ExpectContents("/file", expected);
  ASSERT_OK(one->Close());
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

TEST_F(PatchesTest, AReaderElsewhereGoesOnWhenTheyAreReplaced) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  Make("file", contents);
  auto file = Open("/file", host_);
  Patch(*file, contents, 1000, 2000);
  Host other = NewHost();
  auto reader = Open("/file", other);
  EXPECT_TRUE(ReadAll(*reader, 0, 100) == contents.substr(0, 100));
  Patch(*file, contents, 1000, 2000);
  sim_.Sleep(seconds(30));  // the first one is gone
  EXPECT_TRUE(ReadAll(*reader) == contents);
}

// A host that does not learn that its commit happened, and goes on.
TEST_F(PatchesTest, ACommitOfWhichNobodyLearnedIsNotLaidTwice) {
  for (uint64_t requests = 1; requests < 40; ++requests) {
    SCOPED_TRACE(requests);
    std::string before = Pattern(1, 2 * kTestBlock);
    const InodeId id = Make("file", before);
    auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    auto fs = FileSystem::Open(**cluster, {});
    ASSERT_OK(fs);
    auto file = (*fs)->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    std::string after = before;
    life->CrashAfter(requests);
    const std::string bytes = Pattern(2, 3000);
    Status status = (*file)->Write(77, AsBytes(bytes));
    if (status.ok()) status = (*file)->Close();
    after.replace(77, bytes.size(), bytes);
    Host fresh = NewHost();
    const std::string now = Contents("/file", fresh.fs.get());
    if (status.ok()) {
      ASSERT_TRUE(now == after);
    } else {
      ASSERT_TRUE(now == before || now == after);
    }
    file->reset();
    fs->reset();
    cluster->reset();
    if (status.ok()) return;
  }
  FAIL() << "no commit was long enough";
}

TEST_F(PatchesTest, AreMovedAndRepairedLikeOtherStripes) {
  for (const FileSystem::Options& options : {FileSystem::Options{}, kSmallPages}) {
    options_ = options;
    Host host = NewHost();
    std::string contents = MakeInPieces("file");
    {
      machines_.SetDown(1, true);  // so that some are on spares
      auto file = Open("/file", host);
      for (uint64_t i = 0; i < 12; ++i) Patch(*file, contents, i * kTestBlock + 5000, 1000);
      machines_.SetDown(1, false);
      for (uint64_t i = 0; i < 12; ++i) Patch(*file, contents, i * kTestBlock + 9000, 1000);
      ASSERT_OK(file->Close());
    }
    const auto repair = [&](Repairer::Options repair_options) {
      Repairer repairer(*host_.cluster, std::move(repair_options));
      const RepairReport report = repairer.Run();
      for (const Finding& finding : report.check.findings) {
        EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.where << ": " << finding.what;
      }
      EXPECT_THAT(report.failures, testing::IsEmpty());
      EXPECT_THAT(report.not_whole, testing::IsEmpty());
      EXPECT_EQ(report.check.patches, 24u);
      return report;
    };
    EXPECT_GT(repair({}).relocated, 0u) << "home again";
    EXPECT_EQ(repair({}).blocks, 0u);
    ExpectContents("/file", contents);
    for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
      LoseShardsOf(drive);
      const CheckReport found = Check();
      EXPECT_EQ(found.Count(Severity::kError), 0u);
      EXPECT_GT(found.Count(Severity::kShort), 0u);
      EXPECT_GT(repair({}).written, 0u);
    }
    ExpectContents("/file", contents);
    repair({.read_all = true, .without = {2}});
    machines_.SetDown(2, true);
    EXPECT_EQ(Check().shards_by_drive.contains(2), false);
    ExpectContents("/file", contents);
    machines_.SetDown(2, false);
    repair({.read_all = true});
    ASSERT_OK(host_->Unlink(kRootInode, "file"));
    sim_.Sleep(seconds(90));
    Collector collector(*host_.cluster, {.older_than = seconds(0)});
    EXPECT_THAT(collector.Run().not_collected, testing::IsEmpty());
    EXPECT_EQ(Check().unused_shards, 0u);
  }
}

TEST_F(PatchesTest, AreNotCollectedAsLongAsTheyCountAndThenTheyAre) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  const InodeId id = Make("file", contents);
  {
    auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    auto fs = FileSystem::Open(**cluster, {});
    ASSERT_OK(fs);
    auto file = (*fs)->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    Patch(**file, contents, 1000, 2000);
    Patch(**file, contents, 1000, 2000);
    // It dies before it has removed the first one, and in the middle of a third.
    ASSERT_OK((*file)->Write(70'000, AsBytes(Pattern(9, 100))));
    life->CrashAfter(2);
    (void)(*file)->Close();
    ASSERT_TRUE(life->crashed());
  }
  sim_.Sleep(seconds(5));
  EXPECT_GT(Check().unused_shards, 0u);
  Collector collector(*host_.cluster, {.older_than = seconds(0)});
  EXPECT_GT(collector.Run().shards, 0u);
  ExpectClean(Check());
  EXPECT_EQ(Check().patches, 1u);
  ExpectContents("/file", contents);
}

TEST_F(PatchesTest, OneThatIsLostIsToldAndNoHole) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  const InodeId id = Make("file", contents);
  auto file = Open("/file", host_);
  Patch(*file, contents, 1000, 2000);
  ASSERT_OK(file->Close());
  const BlockPatch patch = PatchesOf(id, 0).front();
  ASSERT_OK(host_.cluster->stripes().Delete({id, 0, patch.write}, patch.layout, patch.place));
  const CheckReport found = Check();
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].problem, "lost-data");
  Host fresh = NewHost();
  auto reader = Open("/file", fresh);
  std::string bytes(100, '?');
  EXPECT_FAILS(reader->Read(1500, std::as_writable_bytes(std::span(bytes))), EIO);
  EXPECT_TRUE(ReadAll(*reader, 3000, 5000) == contents.substr(3000, 5000));
}

TEST_F(PatchesTest, ChecksumsAreThoseOfWhatIsRead) {
  std::string contents = Pattern(1, 4 * kTestBlock);
  const InodeId id = Make("file", contents);
  auto file = Open("/file", host_);
  Patch(*file, contents, kTestBlock + 10, 1000);
  Patch(*file, contents, kTestBlock + 500, 1000);
  Patch(*file, contents, 3 * kTestBlock - 10, 20);  // in two blocks
  ASSERT_OK(file->Close());
  const auto sums = host_->Checksums(id);
  ASSERT_OK(sums);
  EXPECT_EQ(sums->adler32, Adler32(AsBytes(contents)));
  EXPECT_EQ(sums->crc32c, Crc32c(AsBytes(contents)));
}

// They survive a loss of power as what a commit keeps of the old contents does: they are on the
// disks of two drives before the inode names them.
TEST_F(PatchesTest, AreSafeBeforeTheyCount) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  Make("file", contents);
  auto file = Open("/file", host_);
  const uint64_t written_through = Requests().durable_put;
  Patch(*file, contents, 1000, 2000);
  EXPECT_GE(Requests().durable_put, written_through + 2);
}

TEST_F(PatchesTest, AreStoredOnWhatLivesAndKeptWhereTooLittleDoes) {
  std::string contents = Pattern(1, 2 * kTestBlock);
  Make("file", contents);
  auto file = Open("/file", host_);
  for (DriveId id = 1; id <= 4; ++id) machines_.SetDown(id, true);
  const std::string bytes = Pattern(3, 2000);
  ASSERT_OK(file->Write(1000, AsBytes(bytes)));
  contents.replace(1000, bytes.size(), bytes);
  EXPECT_FAILS(file->Commit(), EIO);
  for (DriveId id = 1; id <= 4; ++id) machines_.SetDown(id, false);
  EXPECT_TRUE(ReadAll(*file) == contents) << "it is in memory still";
  const std::string more = Pattern(4, 2000);
  ASSERT_OK(file->Write(2500, AsBytes(more)));
  contents.replace(2500, more.size(), more);
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
}

TEST_F(PatchesTest, LittleMemoryIsEnough) {
  Host host = NewHost(1 << 20);
  std::string contents = Pattern(1, 40 * kTestBlock);
  Make("file", contents);
  auto file = Open("/file", host);
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string bytes = Pattern(++seed_, 700);
    const uint64_t offset = i * 7919 * 31 % (contents.size() - bytes.size());
    ASSERT_OK(file->Write(offset, AsBytes(bytes)));
    contents.replace(offset, bytes.size(), bytes);
  }
  ASSERT_OK(file->Close());
  ExpectContents("/file", contents);
  sim_.Sleep(seconds(30));
  ExpectClean(Check());
}

// ---- What it costs

// Everything that goes to the drives counts: keys, versions and tags of all records, data and
// metadata.
class PatchCostTest : public PatchesTest {
 protected:
  explicit PatchCostTest(TestCluster::Options options = {.drives = 14,
                                                         .layout = {10, 2, DefaultShardBytes(10)}})
      : PatchesTest(std::move(options)) {}

  uint64_t BytesOf(const std::function<void()>& body) {
    const uint64_t before = Requests().put_bytes;
    body();
    return Requests().put_bytes - before;
  }
  void ExpectCheap() {
    const uint64_t block = machines_.config().layout.block_bytes();
    std::string contents = Pattern(1, 4 * block);
    Make("file", contents);
    auto file = Open("/file", host_);
    std::mt19937_64 random(1);
    const auto anywhere = [&](uint64_t in_block) {
      return in_block * block + random() % (block - 4096);
    };
    for (uint64_t i = 0; i < 20; ++i) {
      const uint64_t written = BytesOf([&] {
        Patch(*file, contents, anywhere(i % 4), 4096);
        ASSERT_OK(file->Sync());
      });
      EXPECT_GT(written, 3u * 4096);
      EXPECT_LE(written, 24u << 10) << i;
    }
    // With merging, and writing blocks anew, for a long time: the worst there is, one at a time.
    const uint64_t all = BytesOf([&] {
      for (uint64_t i = 0; i < 300; ++i) Patch(*file, contents, anywhere(i % 4), 4096);
    });
    EXPECT_LE(all / 300, 128u << 10);
    EXPECT_GT(all / 300, 24u << 10) << "nothing was written anew";
    ASSERT_OK(file->Close());
    ExpectContents("/file", contents);
  }
};

TEST_F(PatchCostTest, AnOverwriteOf4KiBWritesItsCopiesAndLittleElse) { ExpectCheap(); }

class PatchCost4Plus2Test : public PatchCostTest {
 protected:
  PatchCost4Plus2Test() : PatchCostTest({.drives = 8, .layout = {4, 2, 1 << 20}}) {}
};

TEST_F(PatchCost4Plus2Test, AnOverwriteOf4KiBWritesItsCopiesAndLittleElse) { ExpectCheap(); }

}  // namespace
}  // namespace pinstripe
