// Holes: made by punching and zeroing ranges, found by seeking, kept by copying.

#include <gtest/gtest.h>

#include "fs/files/copy_range.h"
#include "tests/fs/files/holes_test_base.h"

namespace pinstripe {
namespace {

using Access = FileSystem::Access;
using Contents = OpenFile::Contents;
using Size = OpenFile::Size;

class HolesInPagesTest : public HolesTest {
 protected:
  HolesInPagesTest() { options_ = kSmallPages; }
};

std::string Zeroed(std::string bytes, uint64_t first, uint64_t end) {
  end = std::min<uint64_t>(end, bytes.size());
  if (first < end) bytes.replace(first, end - first, end - first, '\0');
  return bytes;
}

TEST_F(HolesTest, WhatIsPunchedReadsAsZerosAndWholeBlocksOfItTakeNoSpace) {
  struct Case {
    uint64_t size, first, end, stored;
  };
  const uint64_t block = kTestBlock;
  const Case cases[] = {
      {100, 10, 20, 100},  // in its inode
      {100, 0, 100, 100},
      {70000, 0, 70000, 0},
      {70000, 1, 70000, 4096},  // the zeros at the end of a block
      {4 * block, block, 3 * block, 2 * block},
      {4 * block, block - 1, 3 * block + 1, 2 * block},
      {4 * block, block + 1, 3 * block - 1, 3 * block + 4096},
      {4 * block, 0, 4 * block, 0},
      {4 * block + 5, 4 * block, 4 * block + 5, 4 * block},
      {4 * block + 5, 4 * block, 9 * block, 4 * block},
      {4 * block + 5, 4 * block + 1, 9 * block, 4 * block + 5},
      {4 * block, 4 * block, 5 * block, 4 * block},
  };
  for (const Case& each : cases) {
    for (const bool committed : {true, false}) {
      SCOPED_TRACE(fmt::format("{} bytes, {} to {}, {}", each.size, each.first, each.end,
                               committed ? "committed before" : "not committed before"));
      const std::string bytes = Pattern(1, each.size);
      auto file = fs_->Create(kRootInode, "file", {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
      if (committed) {
        ASSERT_OK((*file)->Commit());
      }
      ASSERT_OK((*file)->Zero(each.first, each.end - each.first, Size::kStays));
      const std::string expected = Zeroed(bytes, each.first, each.end);
      EXPECT_TRUE(ReadAll(**file) == expected);
      ASSERT_OK((*file)->Close());
      Host other = NewHost();
      EXPECT_TRUE(Contents("/file", other.fs.get()) == expected);
      EXPECT_EQ(StoredBytes("/file"), each.stored);
    }
  }
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  ExpectNothingLeftOver();
}

TEST_F(HolesTest, ASizeStaysOrGrowsAsItIsAskedFor) {
  Make("file", "some bytes");
  auto file = Open("/file");
  ASSERT_OK(file->Zero(5, 1000, Size::kStays));
  EXPECT_EQ(ReadAll(*file), std::string("some \0\0\0\0\0", 10));
  ASSERT_OK(file->Zero(5, 5, Size::kGrows));
  EXPECT_EQ(file->Stat()->size, 10u);
  ASSERT_OK(file->Zero(5, 1000, Size::kGrows));
  EXPECT_EQ(file->Stat()->size, 1005u);
  ASSERT_OK(file->Allocate(0, 3000, Size::kStays));
  EXPECT_EQ(file->Stat()->size, 1005u);
  ASSERT_OK(file->Allocate(0, 3000, Size::kGrows));
  EXPECT_EQ(file->Stat()->size, 3000u);
  ASSERT_OK(file->Close());
  EXPECT_TRUE(Contents("/file") == "some " + std::string(2995, '\0'));
}

TEST_F(HolesTest, ARangeBeyondWhatAFileMayHaveIsRefusedIfItWouldGrow) {
  Make("file", "bytes");
  auto file = Open("/file");
  EXPECT_FAILS(file->Zero(kMaxFileBytes, 1, Size::kGrows), EFBIG);
  EXPECT_FAILS(file->Zero(UINT64_MAX, UINT64_MAX, Size::kGrows), EFBIG);
  EXPECT_FAILS(file->Allocate(1, kMaxFileBytes, Size::kGrows), EFBIG);
  EXPECT_OK(file->Zero(UINT64_MAX, UINT64_MAX, Size::kStays));
  EXPECT_OK(file->Zero(1, UINT64_MAX, Size::kStays));
  EXPECT_EQ(ReadAll(*file), std::string("b\0\0\0\0", 5));
}

TEST_F(HolesTest, AHandleForReadingCanSeekAndNothingElse) {
  Make("file", "bytes");
  auto file = fs_->Open(fs_->Resolve("/file")->inode, Access::kRead);
  EXPECT_OK((*file)->Seek(0, Contents::kData));
  EXPECT_FAILS((*file)->Zero(0, 1, Size::kStays), EBADF);
  EXPECT_FAILS((*file)->Allocate(0, 1, Size::kStays), EBADF);
}

TEST_F(HolesTest, MoreThanThereIsRoomForIsNotAllocated) {
  Make("file", Pattern(1, 3 * kTestBlock));
  auto file = Open("/file");
  const uint64_t room = fs_->Space()->usable_free_bytes;
  EXPECT_FAILS(file->Allocate(0, 4 * kTestBlock + room, Size::kGrows), ENOSPC);
  EXPECT_FAILS(file->Allocate(0, 4 * kTestBlock + room, Size::kStays), ENOSPC);
  EXPECT_EQ(file->Stat()->size, 3 * kTestBlock);
  ASSERT_OK(file->Allocate(0, 3 * kTestBlock + room / 2, Size::kGrows));
  EXPECT_EQ(file->Stat()->size, 3 * kTestBlock + room / 2);
  EXPECT_EQ(file->Stat()->stored_bytes, 3 * kTestBlock);
}

TEST_F(HolesTest, SeekingTellsDataFromHoles) {
  auto file = fs_->Create(kRootInode, "file", {});
  OpenFile& it = **file;
  EXPECT_EQ(DataOf(it), "");
  EXPECT_FAILS(it.Seek(0, Contents::kHole), ENXIO);
  ASSERT_OK(it.Write(0, AsBytes("inline")));
  EXPECT_EQ(DataOf(it), "0-6");
  ASSERT_OK(it.Truncate(10 * kTestBlock));
  EXPECT_EQ(DataOf(it), "0-6");
  ASSERT_OK(it.Commit());
  EXPECT_EQ(DataOf(it), "0-6");
  ASSERT_OK(it.Write(2 * kTestBlock, AsBytes(Pattern(1, 3 * kTestBlock))));
  ASSERT_OK(it.Write(7 * kTestBlock + 1000, AsBytes("some bytes that are not stored")));
  const std::string before = fmt::format("0-6 {}-{} {}-{}", 2 * kTestBlock, 5 * kTestBlock,
                                         7 * kTestBlock + 1000, 7 * kTestBlock + 1030);
  EXPECT_EQ(DataOf(it), before);
  ASSERT_OK(it.Zero(3 * kTestBlock, kTestBlock, Size::kStays));
  const std::string punched =
      fmt::format("0-6 {}-{} {}-{} {}-{}", 2 * kTestBlock, 3 * kTestBlock, 4 * kTestBlock,
                  5 * kTestBlock, 7 * kTestBlock + 1000, 7 * kTestBlock + 1030);
  EXPECT_EQ(DataOf(it), punched);
  EXPECT_EQ(*it.Seek(2 * kTestBlock + 1, Contents::kData), 2 * kTestBlock + 1);
  EXPECT_EQ(*it.Seek(3 * kTestBlock + 1, Contents::kHole), 3 * kTestBlock + 1);
  EXPECT_EQ(*it.Seek(8 * kTestBlock, Contents::kHole), 8 * kTestBlock);
  EXPECT_FAILS(it.Seek(8 * kTestBlock, Contents::kData), ENXIO);
  EXPECT_FAILS(it.Seek(10 * kTestBlock, Contents::kHole), ENXIO);
  // A block is stored from its beginning.
  ASSERT_OK(it.Commit());
  EXPECT_EQ(DataOf(it),
            fmt::format("0-6 {}-{} {}-{} {}-{}", 2 * kTestBlock, 3 * kTestBlock, 4 * kTestBlock,
                        5 * kTestBlock, 7 * kTestBlock, 7 * kTestBlock + 1030));
}

TEST_F(HolesTest, TheLargestFileIsPunchedAndSearchedAsQuicklyAsAnother) {
  auto file = fs_->Create(kRootInode, "file", {});
  OpenFile& it = **file;
  ASSERT_OK(it.Truncate(kMaxFileBytes));
  ASSERT_OK(it.Write(kMaxFileBytes - 10, AsBytes("the end")));
  ASSERT_OK(it.Write(1 << 30, AsBytes("somewhere")));
  ASSERT_OK(it.Commit());
  const uint64_t last_block = (kMaxFileBytes - 10) / kTestBlock * kTestBlock;
  EXPECT_EQ(*it.Seek((1 << 30) + 9, Contents::kData), last_block);
  ASSERT_OK(it.Zero(1, kMaxFileBytes - 100, Size::kStays));
  EXPECT_EQ(*it.Seek(1, Contents::kData), (kMaxFileBytes - 99) / 4096 * 4096);
  ASSERT_OK(it.Close());
  EXPECT_EQ(ReadAll(*Open("/file"), kMaxFileBytes - 10), std::string("the end\0\0\0", 10));
}

TEST_F(HolesInPagesTest, ArePunchedIntoAFileWithoutReadingAllOfItsMap) {
  std::string expected = MakeInPieces("file");
  Host other = NewHost();
  auto file = Open("/file", other.fs.get());
  for (const auto& [first, end] : {std::pair(1ul, 10ul), {0ul, 1ul}, {11ul, 12ul}}) {
    ASSERT_OK(file->Zero(first * kTestBlock, (end - first) * kTestBlock, Size::kStays));
    expected = Zeroed(expected, first * kTestBlock, end * kTestBlock);
    EXPECT_TRUE(ReadAll(*file) == expected);
    ASSERT_OK(file->Commit());
    EXPECT_TRUE(Contents("/file") == expected);
  }
  EXPECT_EQ(DataOf(*file), fmt::format("{}-{}", 10 * kTestBlock, 11 * kTestBlock));
  EXPECT_EQ(StoredBytes("/file"), kTestBlock);
  ASSERT_OK(file->Close());
  ExpectNothingLeftOver();
}

// Whatever the two did and whoever commits first: what was cleared is like zeros that were written.
class TwoHosts : public HolesTest, public testing::WithParamInterface<bool> {
 protected:
  TwoHosts() {
    if (GetParam()) options_ = kSmallPages;
  }
};

TEST_P(TwoHosts, WhoClearsIsLikeWhoWritesZeros) {
  Host other = NewHost();
  struct Range {
    uint64_t first, end;
  };
  const std::vector<uint64_t> sizes{100, 5000, 70000, kTestBlock + 5, 3 * kTestBlock};
  const std::vector<Range> writes{{0, 10},         {50, 150},
                                  {65000, 66000},  {kTestBlock - 5, kTestBlock + 5},
                                  {0, kTestBlock}, {2 * kTestBlock + 7, 2 * kTestBlock + 16}};
  const std::vector<Range> cleared{{0, 40},
                                   {60, 70000},
                                   {0, kTestBlock},
                                   {kTestBlock, 2 * kTestBlock},
                                   {5, 3 * kTestBlock},
                                   {0, 4 * kTestBlock}};
  for (const uint64_t size : sizes) {
    for (const Range& write : writes) {
      for (const Range& clear : cleared) {
        for (const Size how : {Size::kStays, Size::kGrows}) {
          for (const bool clears_last : {true, false}) {
            SCOPED_TRACE(fmt::format("{} bytes, written {}-{}, cleared {}-{}{}{}", size,
                                     write.first, write.end, clear.first, clear.end,
                                     how == Size::kGrows ? ", grows" : "",
                                     clears_last ? ", last" : ""));
            std::string expected = Pattern(1, size);
            Make("file", expected);
            auto writer = Open("/file");
            auto clearer = Open("/file", other.fs.get());
            const std::string bytes = Pattern(2, write.end - write.first);
            ASSERT_OK(writer->Write(write.first, AsBytes(bytes)));
            ASSERT_OK(clearer->Zero(clear.first, clear.end - clear.first, how));
            const uint64_t end = how == Size::kGrows ? clear.end : std::min(clear.end, size);
            const auto apply_write = [&] {
              expected.resize(std::max<size_t>(expected.size(), write.end));
              expected.replace(write.first, bytes.size(), bytes);
            };
            const auto apply_clear = [&] {
              if (clear.first >= end) return;
              expected.resize(std::max<size_t>(expected.size(), end));
              expected = Zeroed(expected, clear.first, end);
            };
            if (clears_last) {
              ASSERT_OK(writer->Close());
              ASSERT_OK(clearer->Close());
              apply_write();
              apply_clear();
            } else {
              ASSERT_OK(clearer->Close());
              ASSERT_OK(writer->Close());
              apply_clear();
              apply_write();
            }
            ASSERT_TRUE(Contents("/file") == expected);
            ASSERT_TRUE(Contents("/file", other.fs.get()) == expected);
          }
        }
      }
    }
  }
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  ExpectNothingLeftOver();
}

INSTANTIATE_TEST_SUITE_P(Holes, TwoHosts, testing::Bool());

TEST_P(TwoHosts, ABlockThatWasClearedAndWrittenAgainIsOurs) {
  Host other = NewHost();
  Make("file", Pattern(1, 4 * kTestBlock));
  auto one = Open("/file");
  auto two = Open("/file", other.fs.get());
  ASSERT_OK(one->Write(0, AsBytes(Pattern(2, 4 * kTestBlock))));
  ASSERT_OK(two->Zero(kTestBlock, 2 * kTestBlock, Size::kStays));
  ASSERT_OK(two->Write(kTestBlock + 10, AsBytes("again")));
  ASSERT_OK(one->Close());
  ASSERT_OK(two->Close());
  std::string expected = Zeroed(Pattern(2, 4 * kTestBlock), kTestBlock, 3 * kTestBlock);
  expected.replace(kTestBlock + 10, 5, "again");
  EXPECT_TRUE(Contents("/file") == expected);
}

TEST_P(TwoHosts, ATruncationElsewhereAndAClearedRangeGoTogether) {
  Host other = NewHost();
  for (const uint64_t cut : {10ul, kTestBlock, 2 * kTestBlock + 7}) {
    Make("file", Pattern(1, 4 * kTestBlock));
    auto one = Open("/file");
    auto two = Open("/file", other.fs.get());
    ASSERT_OK(one->Truncate(cut));
    ASSERT_OK(two->Zero(kTestBlock, 2 * kTestBlock, Size::kStays));
    ASSERT_OK(one->Close());
    ASSERT_OK(two->Close());
    std::string expected = Pattern(1, 4 * kTestBlock).substr(0, cut);
    expected.resize(3 * kTestBlock);
    EXPECT_TRUE(Contents("/file") == Zeroed(expected, kTestBlock, 3 * kTestBlock)) << cut;
  }
}

TEST_F(HolesTest, ACopyHasTheSameBytesAndTheSameHoles) {
  const std::string bytes = Pattern(1, 9 * kTestBlock + 7);
  Make("from", bytes);
  Make("to", "");
  auto from = Open("/from");
  ASSERT_OK(from->Zero(2 * kTestBlock, 5 * kTestBlock, Size::kStays));
  ASSERT_OK(from->Zero(9 * kTestBlock, 7, Size::kStays));
  auto to = Open("/to");
  const auto copied = CopyRange(*from, 0, *to, 0, UINT64_MAX / 2);
  ASSERT_OK(copied);
  EXPECT_EQ(*copied, bytes.size());
  EXPECT_EQ(DataOf(*to), DataOf(*from));
  ASSERT_OK(to->Close());
  EXPECT_TRUE(Contents("/to") == ReadAll(*from));
  EXPECT_EQ(StoredBytes("/to"), 4 * kTestBlock);
}

TEST_F(HolesTest, ACopyEndsWhereTheSourceDoes) {
  Make("from", "0123456789");
  Make("to", "abcdefghij");
  auto from = Open("/from");
  auto to = Open("/to");
  EXPECT_EQ(*CopyRange(*from, 8, *to, 1, 100), 2u);
  EXPECT_EQ(*CopyRange(*from, 10, *to, 1, 100), 0u);
  EXPECT_EQ(*CopyRange(*from, 1000, *to, 1, 100), 0u);
  EXPECT_EQ(ReadAll(*to), "a89defghij");
}

TEST_F(HolesTest, WithinOneFileOnlyWhatDoesNotOverlapIsCopied) {
  Make("file", "0123456789");
  auto file = Open("/file");
  auto same = Open("/file");
  EXPECT_FAILS(CopyRange(*file, 0, *same, 4, 5), EINVAL);
  EXPECT_FAILS(CopyRange(*file, 4, *same, 0, 5), EINVAL);
  EXPECT_EQ(*CopyRange(*file, 0, *same, 5, 5), 5u);
  EXPECT_EQ(ReadAll(*file), "0123401234");
  // Only as much as there is counts.
  EXPECT_EQ(*CopyRange(*file, 5, *same, 10, 100), 5u);
  EXPECT_EQ(ReadAll(*file), "012340123401234");
}

TEST_F(HolesTest, WhatCannotBeCopiedIsAnError) {
  Make("from", Pattern(1, kTestBlock));
  Make("to", "");
  auto from = Open("/from");
  auto to = fs_->Open(fs_->Resolve("/to")->inode, Access::kRead);
  EXPECT_FAILS(CopyRange(*from, 0, **to, 0, 10), EBADF);
}

}  // namespace
}  // namespace pinstripe
