// Block maps in pages on the drives: written, read by others, replaced, lost, collected.

#include "fs/files/map_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "fs/files/state.h"
#include "fs/names/records.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::IsEmpty;

class MapPagesTest : public FsTest {
 protected:
  MapPagesTest() { options_ = kSmallPages; }

  static size_t CountPages(const Inode& inode) {
    size_t count = 0;
    for (const auto& part : inode.map ? inode.map->parts() : std::vector<BlockMap::Part>()) {
      count += part.stretch->page ? 1 : 0;
    }
    return count;
  }

  // Writes blocks one by one, each with its own commit, so that each is a run.
  void WriteInPieces(InodeId id, std::string& contents, uint64_t seed, size_t blocks) {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    for (size_t block = 0; block < blocks; ++block) {
      const std::string bytes = Pattern(seed + block, 1000);
      const uint64_t offset = block * kTestBlock + 10 * block;
      contents.resize(std::max<size_t>(contents.size(), offset + bytes.size()));
      contents.replace(offset, bytes.size(), bytes);
      ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
      ASSERT_OK((*file)->Commit());
    }
    ASSERT_OK((*file)->Close());
  }

  CheckReport Check() {
    sim_.Sleep(seconds(30));  // what nobody names is deleted in the background
    Checker checker(*host_.cluster, {});
    return checker.Run();
  }
};

TEST_F(MapPagesTest, AFileInManyPiecesReadsTheSameOnEveryHost) {
  std::string contents;
  const InodeId id = Make("file", "");
  WriteInPieces(id, contents, 1, 30);
  EXPECT_GT(CountPages(InodeOf(id)), 1u);
  Host other = NewHost();
  EXPECT_EQ(Contents("/file", other.fs.get()), contents);
  EXPECT_EQ(Contents("/file"), contents);
  // Cut in the middle of a page, and grown again.
  auto file = other->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  for (const size_t size : {20 * kTestBlock + 500, 11 * kTestBlock, 11 * kTestBlock - 1,
                            25 * kTestBlock, size_t{5000}, 3 * kTestBlock}) {
    ASSERT_OK((*file)->Truncate(size));
    contents.resize(size);
    ASSERT_OK((*file)->Commit());
    EXPECT_EQ(Contents("/file"), contents);
    EXPECT_EQ(InodeOf(id).size, size);
  }
  ASSERT_OK((*file)->Close());
  ExpectClean(Check());
}

TEST_F(MapPagesTest, WhatIsReplacedGoesPagesIncluded) {
  std::string contents;
  const InodeId id = Make("file", "");
  WriteInPieces(id, contents, 1, 30);
  WriteInPieces(id, contents, 100, 25);
  EXPECT_EQ(Contents("/file"), contents);
  ExpectClean(Check());
  // Written anew by a host that has none of its pages in memory.
  Host other = NewHost();
  auto file = other->Open(id, FileSystem::Access::kWrite, /*truncate=*/true);
  ASSERT_OK(file);
  contents = Pattern(7, 12 * kTestBlock);
  ASSERT_OK((*file)->Write(0, AsBytes(contents)));
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Contents("/file"), contents);
  EXPECT_EQ(CountPages(InodeOf(id)), 0u);
  ExpectClean(Check());
  // And removed by one that has never read them.
  WriteInPieces(id, contents, 200, 30);
  Host last = NewHost();
  ASSERT_OK(last->Unlink(kRootInode, "file"));
  sim_.Sleep(std::chrono::minutes(1));
  ExpectClean(Check());
}

TEST_F(MapPagesTest, TwoHostsChangeOneFileInPages) {
  std::string contents(40 * kTestBlock, '\0');
  const InodeId id = Make("file", "");
  {
    auto file = fs_->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK((*file)->Truncate(contents.size()));
    ASSERT_OK((*file)->Close());
  }
  Host hosts[2] = {NewHost(), NewHost()};
  RunTogether(2, [&](int host) {
    for (int i = 0; i < 30; ++i) {
      auto file = hosts[host]->Open(id, FileSystem::Access::kWrite);
      ASSERT_OK(file);
      const uint64_t block = static_cast<uint64_t>(i * 7 % 40);
      const uint64_t offset = block * kTestBlock + (host == 0 ? 0 : 60000);
      const std::string bytes = Pattern(static_cast<uint64_t>(host * 1000 + i), 3000);
      ASSERT_OK((*file)->Write(offset, AsBytes(bytes)));
      ASSERT_OK((*file)->Close());
      contents.replace(offset, bytes.size(), bytes);
    }
  });
  EXPECT_GT(CountPages(InodeOf(id)), 1u);
  Host other = NewHost();
  auto file = other->Open(id, FileSystem::Access::kRead);
  EXPECT_EQ(ReadAll(**file, 0, contents.size()), contents);
  sim_.Sleep(seconds(30));
  const CheckReport report = Check();
  EXPECT_THAT(report.findings, IsEmpty());
}

class ManyMapPagesTest : public MapPagesTest {
 protected:
  ManyMapPagesTest() { options_ = {.inline_map_bytes = 12000, .map_page_bytes = 60}; }
};

// A file keeps 64 pages in memory while it is only read. Who reads bytes whose places are said by
// more of them at once is not kept from it by others, whose reads have pages forgotten.
TEST_F(ManyMapPagesTest, AVectorReadOfMorePagesThanAreKeptEnds) {
  constexpr size_t kBlocks = 500;
  std::string contents;
  const InodeId id = Make("file", "");
  WriteInPieces(id, contents, 1, kBlocks);
  ASSERT_GT(CountPages(InodeOf(id)), kMostPages + 10);
  Host other = NewHost();
  auto file = other->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(file);
  bool ended = false;
  int others = 0;
  RunTogether(3, [&](int client) {
    if (client == 0) {
      std::vector<std::string> bytes(kBlocks, std::string(1000, '?'));
      std::vector<OpenFile::Part> parts;
      for (size_t block = 0; block < kBlocks; ++block) {
        const uint64_t offset = block * kTestBlock + 10 * block;
        parts.push_back({offset, std::as_writable_bytes(std::span(bytes[block]))});
      }
      EXPECT_OK((*file)->ReadParts(parts));
      ended = true;
      for (size_t block = 0; block < kBlocks; ++block) {
        EXPECT_EQ(parts[block].length, 1000u);
        EXPECT_TRUE(bytes[block] == contents.substr(parts[block].offset, 1000)) << block;
      }
      return;
    }
    while (!ended && others < 5000) {
      ++others;
      EXPECT_EQ(ReadAll(**file, 10, 5), contents.substr(10, 5));
      sim_.Sleep(std::chrono::microseconds(100));
    }
  });
  EXPECT_LT(others, 5000) << "it ended when the others did";
  // One part that goes over all of them, too.
  EXPECT_TRUE(ReadAll(**file, 0, contents.size()) == contents);
}

TEST_F(MapPagesTest, AReaderFindsANewPageWhereItsOldOneIsGone) {
  std::string contents;
  const InodeId id = Make("file", "");
  WriteInPieces(id, contents, 1, 30);
  Host other = NewHost();
  auto reader = other->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  EXPECT_EQ(ReadAll(**reader, 0, 10), contents.substr(0, 10));
  WriteInPieces(id, contents, 500, 30);
  sim_.Sleep(seconds(30));
  EXPECT_EQ(ReadAll(**reader), contents);
}

TEST_F(MapPagesTest, ALostPageIsAnErrorThatIsFoundAndNothingOfTheFileIsCollected) {
  std::string contents;
  const InodeId id = Make("file", "");
  WriteInPieces(id, contents, 1, 30);
  sim_.Sleep(seconds(30));
  const Inode inode = InodeOf(id);
  const auto& parts = inode.map->parts();
  const auto page = std::find_if(parts.begin(), parts.end(),
                                 [](const auto& part) { return part.stretch->page.has_value(); });
  ASSERT_NE(page, parts.end());
  const uint64_t shards = Check().shards;
  ASSERT_OK(host_.cluster->stripes().Delete(page->PageId(), page->stretch->page->layout,
                                            page->stretch->page->place));
  Host other = NewHost();
  auto file = other->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  std::string bytes(10, '?');
  const auto read =
      (*file)->Read(page->first * kTestBlock, std::as_writable_bytes(std::span(bytes)));
  EXPECT_FAILS(read, EIO);
  EXPECT_FAILS((*file)->Write(page->first * kTestBlock, AsBytes("x")), EIO);

  const CheckReport report = Check();
  std::vector<std::string> problems;
  for (const Finding& finding : report.findings) problems.push_back(finding.problem);
  EXPECT_THAT(problems, testing::UnorderedElementsAre("lost-map-page", "lost-data"));
  EXPECT_EQ(report.unused_shards, 0u);
  Collector collector(*host_.cluster, {.older_than = -std::chrono::hours(1)});
  EXPECT_EQ(collector.Run().shards, 0u);
  EXPECT_LT(Check().shards, shards);
}

TEST_F(MapPagesTest, ASparseFileOf16TBIsAsQuickAsAnyOther) {
  const InodeId id = Make("file", "");
  Host other = NewHost();
  const uint64_t size = uint64_t{16} << 40;
  std::map<uint64_t, std::string> written;
  {
    auto file = other->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Truncate(size));
    for (int i = 0; i < 500; ++i) {
      const uint64_t offset = sim_.Below(size - 10);
      written[offset] = fmt::format("at {:016x}", offset).substr(0, 9);
      ASSERT_OK((*file)->Write(offset, AsBytes(written[offset])));
      if (i % 50 != 0) continue;
      ASSERT_OK((*file)->Sync());
    }
    ASSERT_OK((*file)->Close());
  }
  EXPECT_GT(CountPages(InodeOf(id)), 0u);
  EXPECT_LT(InodeOf(id).Encode(id).size(), 40'000u);
  auto file = fs_->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(file);
  for (const auto& [offset, bytes] : written) {
    ASSERT_EQ(ReadAll(**file, offset, 9), bytes);
    ASSERT_EQ(ReadAll(**file, offset + 9, 1), std::string(1, '\0'));
  }
  ASSERT_OK((*file)->Close());
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  sim_.Sleep(std::chrono::minutes(1));
  EXPECT_EQ(Check().unused_shards, 0u);
}

// As many as design and issue name, in a file of 8 GB, with what is read compared.
class OverwritesTest : public FsTest {};

TEST_F(OverwritesTest, AHundredThousandRandomOnesAreBoundedAndKeptApart) {
  constexpr uint64_t kBlocks = 1 << 16;
  const InodeId id = Make("file", "");
  std::map<uint64_t, std::string> written;
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Truncate(kBlocks * kTestBlock));
  size_t largest = 0;
  Records records(*host_.cluster);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t block = sim_.Below(kBlocks);
    written[block] = fmt::format("{:09}", i);
    ASSERT_OK((*file)->Write(block * kTestBlock, AsBytes(written[block])));
    if (i % 1000 != 999) continue;
    ASSERT_OK((*file)->Commit());
    const auto stored = records.FindInode(id);
    ASSERT_OK(stored);
    largest = std::max(largest, (*stored)->inode.Encode(id).size());
  }
  ASSERT_OK((*file)->Close());
  EXPECT_LT(largest, 25'000u);
  EXPECT_GT(largest, 1000u);

  Host other = NewHost();
  auto reader = other->Open(id, FileSystem::Access::kRead);
  ASSERT_OK(reader);
  for (const auto& [block, bytes] : written) {
    ASSERT_EQ(ReadAll(**reader, block * kTestBlock, 9), bytes) << block;
  }
}

}  // namespace
}  // namespace pinstripe
