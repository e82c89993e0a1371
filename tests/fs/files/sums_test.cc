// Checksums of files are those of their bytes, whatever was done to these, and cost no reading.

#include "fs/files/sums.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class FileSumsTest : public FsTest {
 protected:
  // Of contents that were read, by another host, too.
  void ExpectRight(InodeId id, std::string_view contents, FileSystem* fs = nullptr) {
    const auto sums = (fs ? fs : fs_)->Checksums(id);
    ASSERT_OK(sums);
    EXPECT_EQ(sums->adler32, Adler32(AsBytes(contents))) << contents.size() << " bytes";
    EXPECT_EQ(sums->crc32c, Crc32c(AsBytes(contents))) << contents.size() << " bytes";
    EXPECT_EQ(sums->modified, InodeOf(id).modified);
  }
  uint64_t Fetched() { return host_.cluster->stripes().counters().bytes_fetched; }
};

TEST(SumsOfZeros, AreThoseOfZeros) {
  for (const size_t length : {0, 1, 2, 3, 64, 1000, 65521, 65536, 131072 + 5}) {
    const std::string zeros(length, '\0');
    EXPECT_EQ(SumsOfZeros(length).adler32, Adler32(AsBytes(zeros)));
    EXPECT_EQ(SumsOfZeros(length).crc32c, Crc32c(AsBytes(zeros)));
  }
}

TEST_F(FileSumsTest, OfEverySizeAreThoseOfTheBytes) {
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{65536}, uint64_t{65537},
        kTestBlock - 1, kTestBlock, kTestBlock + 1, 3 * kTestBlock, 100 * kTestBlock + 77}) {
    const std::string contents = Pattern(size, size);
    ExpectRight(Make(fmt::format("file{}", size), contents), contents);
  }
}

TEST_F(FileSumsTest, OfALargeFileReadNextToNothing) {
  const std::string contents = Pattern(1, 50 * kTestBlock + 1000);
  const InodeId id = Make("file", contents);
  const uint64_t before = Fetched();
  ExpectRight(id, contents);
  EXPECT_LE(Fetched() - before, kTestBlock) << "the last block, which is not full";
}

TEST_F(FileSumsTest, FollowEveryChange) {
  std::string contents = Pattern(1, 5 * kTestBlock + 1000);
  const InodeId id = Make("file", contents);
  ExpectRight(id, contents);
  Host other = NewHost();
  const auto change = [&](FileSystem* fs, const std::function<Status(OpenFile&)>& body) {
    auto file = fs->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    ASSERT_OK(body(**file));
    ASSERT_OK((*file)->SetAttributes({.modified = 5}));  // the time tells nothing
    ASSERT_OK((*file)->Close());
    ExpectRight(id, contents);
    ExpectRight(id, contents, other.fs.get());
  };
  for (FileSystem* fs : {fs_, other.fs.get()}) {
    contents.replace(kTestBlock + 10, 5, "other");
    change(fs, [](OpenFile& file) { return file.Write(kTestBlock + 10, AsBytes("other")); });
    contents += "more";
    change(fs, [](OpenFile& file) -> Status {
      return file.Append(AsBytes("more")).has_value() ? Status() : Fail(EIO, "append");
    });
    for (const uint64_t size : {2 * kTestBlock + 100, 2 * kTestBlock + 60, 30 * kTestBlock,
                                4 * kTestBlock, uint64_t{3000}, 6 * kTestBlock + 5}) {
      contents.resize(size);
      change(fs, [&](OpenFile& file) { return file.Truncate(size); });
    }
    contents.replace(3 * kTestBlock + 9, 4, "deep");
    change(fs, [](OpenFile& file) { return file.Write(3 * kTestBlock + 9, AsBytes("deep")); });
  }
}

TEST_F(FileSumsTest, OfAFileThatIsBeingWrittenAreNotTold) {
  const InodeId id = Make("file", "old");
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK((*file)->Write(0, AsBytes("new")));
  EXPECT_FAILS(fs_->Checksums(id), EBUSY);
  Host other = NewHost();
  ExpectRight(id, "old", other.fs.get());
  ASSERT_OK((*file)->Commit());
  ExpectRight(id, "new");
  EXPECT_FAILS(fs_->Checksums(kRootInode), EISDIR);
}

TEST_F(FileSumsTest, AreRightWithDrivesAwayAndShardsGone) {
  const std::string contents = Pattern(1, 20 * kTestBlock + 1000);
  const InodeId id = Make("file", contents);
  for (DriveId drive = 1; drive <= 5; ++drive) {
    machines_.drive(drive).Set({.down = true});
    ExpectRight(id, contents);
    machines_.drive(drive).Set({});
    sim_.Sleep(std::chrono::seconds(10));
  }
}

class FileSumsInPagesTest : public FileSumsTest {
 protected:
  FileSumsInPagesTest() { options_ = kSmallPages; }
};

TEST_F(FileSumsInPagesTest, OfAFileInManyPieces) {
  std::string contents(40 * kTestBlock, '\0');
  const InodeId id = Make("file", "");
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK((*file)->Truncate(contents.size()));
  for (const uint64_t block : {3, 4, 7, 11, 20, 21, 30, 39, 4}) {
    const std::string bytes = Pattern(block, kTestBlock / 2);
    contents.replace(block * kTestBlock + 30, bytes.size(), bytes);
    ASSERT_OK((*file)->Write(block * kTestBlock + 30, AsBytes(bytes)));
    ASSERT_OK((*file)->Commit());
    ExpectRight(id, contents);
  }
}

TEST_F(FileSumsTest, OfAHoleThatHasNoEndAreToldAtOnce) {
  auto file = fs_->Create(kRootInode, "sparse", {});
  ASSERT_OK((*file)->Truncate(kMaxFileBytes - 5));
  ASSERT_OK((*file)->Close());
  const auto sums = fs_->Checksums((*fs_->Lookup(kRootInode, "sparse")).inode);
  ASSERT_OK(sums);
  EXPECT_EQ(sums->crc32c, SumsOfZeros(kMaxFileBytes - 5).crc32c);
}

}  // namespace
}  // namespace pinstripe
