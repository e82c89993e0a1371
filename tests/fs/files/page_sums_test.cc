// What is written with checksums of its pages is stored with these, or not committed at all. A sum
// that is wrong from the beginning stands for a bit that turned over between the sender and the
// coder.

#include <gtest/gtest.h>

#include <map>

#include "tests/fs/fs_test_base.h"
#include "tests/support/file_page_sums.h"

namespace pinstripe {
namespace {

constexpr uint64_t kPage = kFilePageBytes;

class PageSumsTest : public FsTest {
 protected:
  // With the sums of what is to arrive.
  static Status Put(OpenFile& file, uint64_t offset, std::string_view bytes) {
    return file.Write(offset, AsBytes(bytes), FilePageSums(offset, AsBytes(bytes)));
  }
  // One bit has turned over on the way, in byte `damaged` of the file.
  static Status PutDamaged(OpenFile& file, uint64_t offset, std::string bytes, uint64_t damaged) {
    const auto sums = FilePageSums(offset, AsBytes(bytes));
    bytes[damaged - offset] ^= 1;
    return file.Write(offset, AsBytes(bytes), sums);
  }
  std::unique_ptr<OpenFile> Open(std::string_view name) {
    auto file = fs_->Create(kRootInode, name, {});
    EXPECT_OK(file);
    return *std::move(file);
  }
};

TEST_F(PageSumsTest, WhatArrivesAsItWasSentIsCommittedHoweverItIsCutUp) {
  const std::string bytes = Pattern(1, 5 * kTestBlock + 12'345);
  for (const size_t step :
       {size_t{1000}, size_t{4096}, size_t{10'000}, size_t{65536}, size_t{200'000}, bytes.size()}) {
    auto file = Open("file");
    EXPECT_OK(file->Truncate(0));
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_OK(Put(*file, at, std::string_view(bytes).substr(at, step)));
    }
    ASSERT_OK(file->Close());
    EXPECT_TRUE(Contents("/file") == bytes) << step;
  }
}

TEST_F(PageSumsTest, WhatIsDamagedIsNotCommittedAndTheOldContentsStay) {
  for (const size_t size : {size_t{100}, size_t{5000}, size_t{70'000}, size_t{kTestBlock},
                            size_t{3 * kTestBlock + 5000}, size_t{9 * kTestBlock}}) {
    const std::string old = Pattern(1, 50'000);
    const std::string bytes = Pattern(2, size);
    Make("file", old);
    for (const uint64_t damaged : {uint64_t{0}, uint64_t{size / 2}, uint64_t{size - 1}}) {
      auto file = fs_->Create(kRootInode, "file", {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK(PutDamaged(**file, 0, bytes, damaged));
      EXPECT_FAILS((*file)->Sync(), EDOM) << size << " " << damaged;
      EXPECT_FAILS((*file)->Close(), EDOM) << size << " " << damaged;
      EXPECT_TRUE(Contents("/file") == old || size == 0) << size << " " << damaged;
    }
  }
}

TEST_F(PageSumsTest, APageThatComesAgainAsItShouldMendsIt) {
  for (const size_t size : {size_t{100}, size_t{70'000}, size_t{kTestBlock},
                            size_t{3 * kTestBlock + 5000}, size_t{9 * kTestBlock}}) {
    const std::string bytes = Pattern(2, size);
    for (const bool commits_between : {false, true}) {
      auto file = Open("file");
      const uint64_t damaged = size / 2;
      ASSERT_OK(PutDamaged(*file, 0, bytes, damaged));
      if (commits_between) {
        EXPECT_FAILS(file->Commit(), EDOM);
      }
      const uint64_t page = damaged / kPage * kPage;
      ASSERT_OK(Put(*file, page, std::string_view(bytes).substr(page, kPage)));
      ASSERT_OK(Put(*file, size, "and on")) << "what comes after it is taken, too";
      ASSERT_OK(file->Close());
      EXPECT_TRUE(Contents("/file") == bytes + "and on") << size;
      ASSERT_OK(fs_->Unlink(kRootInode, "file"));
    }
  }
}

// The block was full, and is in the hands of the store, when the first of its pages comes again.
TEST_F(PageSumsTest, OneOfTwoDamagedPagesIsNotEnough) {
  const std::string bytes = Pattern(2, kTestBlock);
  for (const bool commits_between : {false, true}) {
    auto file = Open("file");
    auto sums = FilePageSums(0, AsBytes(bytes));
    sums[3] ^= 1;
    sums[20] ^= 1;
    ASSERT_OK(file->Write(0, AsBytes(bytes), sums));
    if (commits_between) {
      EXPECT_FAILS(file->Commit(), EDOM);
    }
    ASSERT_OK(Put(*file, 3 * kPage, std::string_view(bytes).substr(3 * kPage, kPage)));
    EXPECT_FAILS(file->Commit(), EDOM);
    ASSERT_OK(Put(*file, 20 * kPage, std::string_view(bytes).substr(20 * kPage, kPage)));
    EXPECT_OK(file->Close());
    EXPECT_TRUE(Contents("/file") == bytes);
    ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  }
}

TEST_F(PageSumsTest, ADamagedPageThatIsOverwrittenInPartStaysDamaged) {
  const std::string bytes = Pattern(2, 50'000);
  auto file = Open("file");
  ASSERT_OK(PutDamaged(*file, 0, bytes, 9000));
  ASSERT_OK(file->Write(8990, AsBytes(std::string(20, 'x'))));
  EXPECT_FAILS(file->Commit(), EDOM) << "who knows what else is wrong in that page";
  ASSERT_OK(file->Write(8192, AsBytes(std::string(4096, 'y'))));
  EXPECT_OK(file->Close());
}

TEST_F(PageSumsTest, DamageThatIsCutOffOrClearedDoesNotCount) {
  const std::string bytes = Pattern(2, kTestBlock + 9000);
  const auto damaged = [&] {
    auto file = Open("file");
    EXPECT_OK(PutDamaged(*file, 0, bytes, kTestBlock + 5000));
    return file;
  };
  auto cut = damaged();
  ASSERT_OK(cut->Truncate(kTestBlock + 4096));
  EXPECT_OK(cut->Close());
  EXPECT_TRUE(Contents("/file") == bytes.substr(0, kTestBlock + 4096));

  auto cut_within = damaged();
  ASSERT_OK(cut_within->Truncate(kTestBlock + 4500));
  EXPECT_FAILS(cut_within->Close(), EDOM) << "nobody knows which byte it is";

  auto cleared = damaged();
  ASSERT_OK(cleared->Zero(kTestBlock + 4096, kPage, OpenFile::Size::kStays));
  EXPECT_OK(cleared->Close());
}

TEST_F(PageSumsTest, SmallOverwritesOfStoredBlocksAreComparedToo) {
  std::string bytes = Pattern(1, 4 * kTestBlock);
  Make("file", bytes);
  for (const uint64_t at : {uint64_t{8192}, uint64_t{kTestBlock + 5000}}) {
    const std::string change = Pattern(3, 3000);
    auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK(PutDamaged(**file, at, change, at + 1500));
    EXPECT_FAILS((*file)->Commit(), EDOM);
    ASSERT_OK(Put(**file, at, change));
    ASSERT_OK((*file)->Close());
    bytes.replace(at, change.size(), change);
    EXPECT_TRUE(Contents("/file") == bytes);
  }
}

// The first block of a small file is kept as copies, and coded when the file has grown.
TEST_F(PageSumsTest, ABlockThatGetsAnotherLayoutIsComparedToo) {
  const std::string bytes = Pattern(1, 5000);
  for (const bool shrinks : {false, true}) {
    auto file = Open("file");
    ASSERT_OK(file->Truncate(0));
    if (shrinks) {
      ASSERT_OK(Put(*file, 0, Pattern(2, kTestBlock - 1)));
    }
    ASSERT_OK(PutDamaged(*file, 0, bytes, 3000));
    if (shrinks) {
      ASSERT_OK(file->Truncate(8192));
    } else {
      ASSERT_OK(Put(*file, kTestBlock, bytes));
    }
    EXPECT_FAILS(file->Commit(), EDOM);
    ASSERT_OK(Put(*file, 0, bytes));
    EXPECT_OK(file->Close());
  }
}

// A file that cannot be committed keeps nobody else's blocks from being stored.
TEST_F(PageSumsTest, OthersGoOn) {
  auto damaged = Open("damaged");
  ASSERT_OK(PutDamaged(*damaged, 0, Pattern(2, 3 * kTestBlock), 5));
  EXPECT_FAILS(damaged->Commit(), EDOM);
  const std::string bytes = Pattern(1, 3 * kTestBlock);
  auto file = Open("file");
  ASSERT_OK(Put(*file, 0, bytes));
  ASSERT_OK(file->Close());
  EXPECT_TRUE(Contents("/file") == bytes);
  EXPECT_FAILS(damaged->Close(), EDOM);
}

// The descriptors of the shards have the very sums that were handed in.
TEST_F(PageSumsTest, TheSumsOfFullBlocksAreStored) {
  const std::string bytes = Pattern(4, kTestBlock);
  auto file = Open("file");
  ASSERT_OK(Put(*file, 0, bytes));
  ASSERT_OK(file->Close());
  const auto sums = FilePageSums(0, AsBytes(bytes));
  std::map<int, std::vector<uint32_t>> stored;
  for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
    for (const std::string& key : ShardsOn(drive)) {
      Gather<Result<RecordHead>> heads(sim_);
      machines_.memory(drive).Head(key, Time::max(), heads.Ask(0));
      const auto descriptor = ShardDescriptor::Decode(heads.Next(Time::max())->value->version);
      ASSERT_OK(descriptor);
      stored[descriptor->shard] = descriptor->page_sums;
    }
  }
  ASSERT_EQ(stored.size(), 3u);
  EXPECT_EQ(stored[0], std::vector(sums.begin(), sums.begin() + 16));
  EXPECT_EQ(stored[1], std::vector(sums.begin() + 16, sums.end()));
}

}  // namespace
}  // namespace pinstripe
