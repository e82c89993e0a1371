// Files on drives that mix up their records: of whatever form they are, they read as they were
// written, or not at all; a scrub finds what is in the wrong place, and mends it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/checksum.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "fs/files/copy_range.h"
#include "fs/files/map_pages.h"
#include "fs/files/page_number.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

// 4+2: two drives may do what they like.
class MixedUpFiles : public FsTest {
 protected:
  MixedUpFiles() : FsTest({.drives = 8, .layout = {4, 2, 64 << 10}}) {
    SetLogLevel(LogLevel::kError);
    options_ = kSmallPages;
    options_.least_shared_bytes = kBlock;
  }

  static constexpr size_t kBlock = 4 * 65536;

  // Of every form that contents can have, two of each, which look alike from outside.
  void MakeFiles() {
    for (const char* which : {"a", "b"}) {
      const auto make = [&](std::string_view form, size_t size) {
        const std::string name = fmt::format("{}-{}", form, which);
        files_[name] = Pattern(files_.size() + 1, size);
        return Make(name, files_[name]);
      };
      make("inline", 100);
      make("copies", 30'000);
      make("block", kBlock);
      make("blocks", 3 * kBlock + 77);
      const InodeId cloned = make("cloned", 2 * kBlock);
      Clone(cloned, fmt::format("clone-{}", which), files_[fmt::format("cloned-{}", which)]);
      Patch(make("patched", 2 * kBlock), files_[fmt::format("patched-{}", which)]);
      MakePages(fmt::format("pages-{}", which));
    }
    sim_.Sleep(std::chrono::minutes(2));  // until what was replaced is gone
  }
  void Clone(InodeId from, const std::string& name, const std::string& contents) {
    auto source = fs_->Open(from, FileSystem::Access::kRead);
    ASSERT_OK(source);
    auto clone = fs_->Create(kRootInode, name, {});
    ASSERT_OK(clone);
    uint64_t done = 0;
    while (done < contents.size()) {
      const auto copied = CopyRange(**source, done, **clone, done, contents.size() - done);
      ASSERT_OK(copied);
      done += *copied;
    }
    ASSERT_OK((*clone)->Close());
    files_[name] = contents;
  }
  // The same small part of each block.
  void Patch(InodeId id, std::string& contents) {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    for (const size_t offset : {size_t{5000}, kBlock + 5000}) {
      const std::string bytes = Pattern(1000 + files_.size() + offset, 700);
      ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
      ASSERT_OK((*file)->Commit());
      contents.replace(offset, bytes.size(), bytes);
    }
    ASSERT_OK((*file)->Close());
  }
  void MakePages(const std::string& name) {
    std::string& contents = files_[name];
    auto file = fs_->Create(kRootInode, name, {});
    ASSERT_OK(file);
    for (uint64_t block = 0; block < 12; ++block) {
      contents += Pattern(files_.size() * 100 + block, kBlock);
      ASSERT_OK((*file)->Write(block * kBlock, AsBytes(contents).subspan(block * kBlock)));
      ASSERT_OK((*file)->Commit());
      sim_.Sleep(std::chrono::seconds(2));  // so that the next block has another write id
    }
    ASSERT_OK((*file)->Close());
  }

  // By somebody who has nothing in memory.
  void ExpectFilesReadBack() {
    Host host = NewHost();
    for (const auto& [name, contents] : files_) {
      EXPECT_TRUE(Contents("/" + name, host.fs.get()) == contents) << name;
      const auto sums = host->Checksums(host->Resolve("/" + name)->inode);
      ASSERT_OK(sums);
      EXPECT_EQ(sums->adler32, Adler32(AsBytes(contents))) << name;
      EXPECT_EQ(sums->crc32c, Crc32c(AsBytes(contents))) << name;
    }
    host.cluster->stripes().WaitForRepairs(sim_.Now() + std::chrono::minutes(1));
  }

  struct Place {
    DriveId drive = 0;
    std::string key;
  };
  pinstripe::Record Stored(const Place& place) {
    Gather<Result<pinstripe::Record>> gather(sim_);
    machines_.memory(place.drive).Get(place.key, {}, Time::max(), gather.Ask(0));
    return *std::move(gather.Next(Time::max())->value);
  }
  void Put(const Place& place, const pinstripe::Record& record) {
    Gather<Status> gather(sim_);
    machines_.memory(place.drive)
        .Put(
            {.key = place.key, .value = record.value, .version = record.version, .tag = record.tag},
            Time::max(), gather.Ask(0));
    EXPECT_OK(gather.Next(Time::max())->value);
  }
  void Delete(const Place& place) {
    Gather<Status> gather(sim_);
    machines_.memory(place.drive)
        .Delete(place.key, Expected::Any(), Durability::kWriteBack, Time::max(), gather.Ask(0));
    EXPECT_OK(gather.Next(Time::max())->value);
  }
  // Of a file of one block.
  Place PlaceOf(const std::string& name, int shard) {
    const InodeId file = fs_->Resolve("/" + name)->inode;
    for (const DriveId id : All()) {
      for (const std::string& key : ShardsOn(id)) {
        const auto named = *ParseShardKey(ClusterPrefix("test"), key);
        if (named.first.object == file && named.second == shard) return {id, key};
      }
    }
    ADD_FAILURE() << name << " has no shard " << shard;
    return {};
  }
  std::vector<DriveId> All() const {
    std::vector<DriveId> all;
    for (DriveId id = 1; id <= machines_.size(); ++id) all.push_back(id);
    return all;
  }
  // Puts each shard of these drives in the place of the next one of the same index, form and
  // length, if there is one: nothing but its name tells that it is another. Of those that `which`
  // wants. How many.
  using Which = std::function<bool(const StripeId&, const ShardDescriptor&)>;
  uint64_t MixUp(const std::vector<DriveId>& drives, const Which& which = nullptr) {
    std::map<std::string, std::vector<Place>> alike;
    for (const DriveId drive : drives) {
      for (const std::string& key : ShardsOn(drive)) {
        const auto descriptor = *ShardDescriptor::Decode(Stored({drive, key}).version);
        if (which && !which(ParseShardKey(ClusterPrefix("test"), key)->first, descriptor)) continue;
        alike[fmt::format("{} {} {} {}", descriptor.data_shards, descriptor.parity_shards,
                          descriptor.shard, descriptor.block_length)]
            .push_back({drive, key});
      }
    }
    uint64_t mixed = 0;
    for (const auto& [form, places] : alike) {
      if (places.size() < 2) continue;
      std::vector<pinstripe::Record> records;
      for (const Place& place : places) records.push_back(Stored(place));
      std::rotate(records.begin(), records.begin() + 1, records.end());
      for (size_t i = 0; i < places.size(); ++i) {
        Put(places[i], records[i]);
        ++mixed;
      }
    }
    return mixed;
  }

  // Files that somebody who has nothing in memory cannot read; the others are as they were written.
  std::set<std::string> Unreadable() {
    Host host = NewHost();
    std::set<std::string> unreadable;
    for (const auto& [name, contents] : files_) {
      const auto found = host->Resolve("/" + name);
      EXPECT_OK(found);
      auto file = host->Open(found->inode, FileSystem::Access::kRead);
      EXPECT_OK(file);
      std::string bytes(contents.size(), '?');
      const Result<size_t> read = (*file)->Read(0, std::as_writable_bytes(std::span(bytes)));
      if (read.has_value()) {
        EXPECT_TRUE(bytes == contents) << name;
      } else {
        EXPECT_FAILS(read, EIO);
        unreadable.insert(name);
      }
    }
    return unreadable;
  }

  RepairReport Scrub(bool dry_run = false) {
    Repairer repairer(*host_.cluster, {.read_all = true, .dry_run = dry_run});
    return repairer.Run();
  }

  std::map<std::string, std::string> files_;
};

TEST_F(MixedUpFiles, FilesReadAsTheyWereWrittenWhileTwoDrivesMixUpAllTheirAnswers) {
  MakeFiles();
  for (DriveId a = 1; a <= machines_.size(); ++a) {
    const auto b = static_cast<DriveId>(a % machines_.size() + 1);
    SCOPED_TRACE(fmt::format("drives {} and {}", a, b));
    for (const DriveId id : {a, b}) machines_.drive(id).Set({.mix_up = 1});
    ExpectFilesReadBack();
    for (const DriveId id : {a, b}) machines_.drive(id).Set({});
  }
  EXPECT_EQ(Scrub().damaged, 0u) << "it was the answers, and no record";
}

TEST_F(MixedUpFiles, WhatLiesUnderTheWrongKeyIsReadAroundAndMendedWhereAReaderMeetsIt) {
  MakeFiles();
  const uint64_t mixed = MixUp({3, 6});
  EXPECT_GT(mixed, 20u);
  ExpectFilesReadBack();
  const uint64_t left = Scrub(/*dry_run=*/true).damaged;
  EXPECT_LT(left, mixed / 2) << "they ask for no parity";
  ExpectFilesReadBack();
}

TEST_F(MixedUpFiles, AScrubFindsAndMendsWhatLiesUnderTheWrongKey) {
  MakeFiles();
  // Pages of maps are read, and mended, by whoever wants to know of which blocks a file is.
  const uint64_t mixed = MixUp(
      {3, 6}, [](const StripeId& id, const ShardDescriptor&) { return !PageNumber::Is(id.block); });
  Checker checker(*host_.cluster, {});
  ExpectClean(checker.Run());  // which believes the keys

  RepairReport report = Scrub(/*dry_run=*/true);
  EXPECT_EQ(report.damaged, mixed);
  EXPECT_FALSE(report.not_whole.empty());
  EXPECT_EQ(report.written, 0u);

  report = Scrub();
  // Who reads a page of a block map mends what it meets there.
  EXPECT_LE(report.damaged, mixed);
  EXPECT_GE(report.damaged + 2, mixed);
  EXPECT_EQ(report.written, report.damaged);
  EXPECT_THAT(report.not_whole, IsEmpty());
  EXPECT_THAT(report.inconsistent, IsEmpty());
  EXPECT_THAT(report.contradicted, IsEmpty());
  EXPECT_EQ(Scrub().damaged, 0u);
  ExpectFilesReadBack();
}

// A record of the right name, with right checksums, and other bytes.
TEST_F(MixedUpFiles, AScrubNamesTheDriveThatMakesUpAShard) {
  MakeFiles();
  const Place place = PlaceOf("block-a", 2);
  pinstripe::Record record = Stored(place);
  std::string bytes(record.value.text());
  bytes[5] ^= 1;
  const auto id = ParseShardKey(ClusterPrefix("test"), place.key)->first;
  record.value = SharedBytes(bytes);
  record.version = DescribeShard({id, {4, 2, 64 << 10}, kBlock}, 2, record.value).Encode();
  record.tag = RecordTag(Crc32c(record.value));
  Put(place, record);
  const std::string where =
      fmt::format("/block-a: block 0: shard 2 on drive {0} (memory:{0})", place.drive);

  RepairReport report = Scrub(/*dry_run=*/true);
  EXPECT_THAT(report.contradicted, ElementsAre(where));
  EXPECT_EQ(report.written, 0u);
  report = Scrub();
  EXPECT_THAT(report.contradicted, ElementsAre(where));
  EXPECT_EQ(report.written, 1u);
  EXPECT_THAT(Scrub().contradicted, IsEmpty());
  ExpectFilesReadBack();
}

// Of a block that lacks something all shards are looked at, by their descriptors.
TEST_F(MixedUpFiles, ACheckCountsWhatIsAnothersAmongTheShardsThatItLooksAt) {
  MakeFiles();
  Put(PlaceOf("block-a", 0), Stored(PlaceOf("block-b", 0)));
  Delete(PlaceOf("block-a", 3));
  Checker checker(*host_.cluster, {});
  checker.Run();
  const std::deque<LackingBlock> lacking = checker.TakeLackingBlocks();
  ASSERT_EQ(lacking.size(), 1u);
  EXPECT_EQ(lacking[0].file, fs_->Resolve("/block-a")->inode);
  EXPECT_EQ(lacking[0].missing, 2);
  EXPECT_EQ(lacking[0].present, 4);
}

// A copy that lies elsewhere is removed when the block is whole without it, and not before.
TEST_F(MixedUpFiles, ACollectionKeepsACopyWhoseHomeHasAnothersShard) {
  MakeFiles();
  const Place home = PlaceOf("block-a", 0);
  Place elsewhere = home;
  std::set<DriveId> used;
  for (int shard = 0; shard < 6; ++shard) used.insert(PlaceOf("block-a", shard).drive);
  for (const DriveId id : All()) {
    if (!used.contains(id)) elsewhere.drive = id;
  }
  ASSERT_NE(elsewhere.drive, home.drive);
  const auto is_elsewhere = [&] {
    return std::ranges::count(ShardsOn(elsewhere.drive), elsewhere.key) > 0;
  };
  const auto collect = [&] {
    Collector(*host_.cluster, {.older_than = std::chrono::seconds(0)}).Run();
  };
  Put(elsewhere, Stored(home));
  Put(home, Stored(PlaceOf("block-b", 0)));
  collect();
  EXPECT_TRUE(is_elsewhere());
  EXPECT_EQ(Scrub().written, 1u);
  collect();
  EXPECT_FALSE(is_elsewhere());
  ExpectFilesReadBack();
}

// Where every copy is another's there is nothing to read from, and that is said.

TEST_F(MixedUpFiles, WhereAllIsMixedUpNothingWrongIsRead) {
  MakeFiles();
  EXPECT_GT(MixUp(All()), 0u);
  EXPECT_THAT(Unreadable(), IsSupersetOf({"copies-a", "copies-b", "block-a", "block-b", "blocks-a",
                                          "clone-a", "patched-a", "pages-a"}));
  EXPECT_THAT(Unreadable(), Not(Contains("inline-a"))) << "that is in a register";
}

TEST_F(MixedUpFiles, APatchOfAnotherBlockIsNotLaidOver) {
  MakeFiles();
  const auto is_patch = [](const StripeId&, const ShardDescriptor& descriptor) {
    return descriptor.block_length == 700;
  };
  EXPECT_EQ(MixUp(All(), is_patch), 2 * 2 * 3u) << "two files, two blocks, three copies";
  EXPECT_THAT(Unreadable(), UnorderedElementsAre("patched-a", "patched-b"));
}

TEST_F(MixedUpFiles, APageOfAnotherMapIsNotBelieved) {
  MakeFiles();
  const auto is_page = [](const StripeId& id, const ShardDescriptor&) {
    return PageNumber::Is(id.block);
  };
  EXPECT_GT(MixUp(All(), is_page), 0u);
  EXPECT_THAT(Unreadable(), UnorderedElementsAre("pages-a", "pages-b"));
}

// Whoever writes shards has them named: files, patches, pages of maps, and what keeps clones.
TEST_F(MixedUpFiles, EveryShardOnTheDrivesSaysWhoseItIs) {
  MakeFiles();
  size_t pages = 0;
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    for (const std::string& key : ShardsOn(id)) {
      const auto named = ParseShardKey(ClusterPrefix("test"), key);
      ASSERT_TRUE(named);
      const auto descriptor = ShardDescriptor::Decode(Stored({id, key}).version);
      ASSERT_OK(descriptor);
      EXPECT_EQ(descriptor->id, named->first);
      EXPECT_EQ(descriptor->shard, named->second);
      pages += PageNumber::Is(named->first.block);
    }
  }
  EXPECT_GT(pages, 0u);
  const auto patched = fs_->Resolve("/patched-a");
  ASSERT_OK(patched);
  Inode inode = InodeOf(patched->inode);
  ASSERT_OK(LoadPages(host_.cluster->stripes(), patched->inode, inode, 0, 1));
  EXPECT_FALSE(inode.map->Find(0)->patches.empty()) << "nothing was patched";
}

}  // namespace
}  // namespace pinstripe
