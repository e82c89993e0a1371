// Defects of the ancestor, the Kinetic IO plugin of EOS, each reproduced there and impossible here.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

class AncestorTest : public FsTest {
 protected:
  AncestorTest() : FsTest({.drives = 8, .layout = {4, 2, 64 << 10}}) {}

  static constexpr uint64_t kBlock = 256 << 10;

  void Break(size_t first, size_t last, const DriveFaults& faults) {
    for (size_t id = first; id <= last; ++id) {
      machines_.drive(static_cast<DriveId>(id)).Set(faults);
    }
  }

  // Requests that reach the drives, and what comes back, during `body`.
  DriveRequests Count(const std::function<void()>& body) {
    for (size_t id = 1; id <= machines_.size(); ++id) {
      machines_.drive(static_cast<DriveId>(id)).ForgetRequests();
    }
    body();
    DriveRequests sum;
    for (size_t id = 1; id <= machines_.size(); ++id) {
      const DriveRequests one = machines_.drive(static_cast<DriveId>(id)).requests();
      sum.get += one.get;
      sum.put += one.put;
    }
    return sum;
  }
};

// 1: an overwrite that reaches some drives and not others destroyed old and new contents.
TEST_F(AncestorTest, AnOverwriteThatDiesBetweenShardsLeavesTheOldContents) {
  const std::string old_bytes = Pattern(1, 3 * kBlock);
  Make("file", old_bytes);
  // Of those that died in the middle of their commit it is not known whether it happened: it may
  // take effect while the next one is at work.
  std::vector<std::string> allowed = {old_bytes};
  for (uint64_t requests = 0; requests < 60; ++requests) {
    allowed.push_back(Pattern(requests + 2, 3 * kBlock));
    auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    {
      auto fs = FileSystem::Open(**cluster, {});
      ASSERT_OK(fs);
      auto file = (*fs)->Open((*fs)->Resolve("/file")->inode, FileSystem::Access::kWrite);
      ASSERT_OK(file);
      life->CrashAfter(requests);
      Status status = (*file)->Write(0, AsBytes(allowed.back()));
      if (status.ok()) status = (*file)->Close();
      if (status.ok()) break;  // all requests were made before the crash
      file->reset();
    }
    cluster->reset();
    const std::string now = Contents("/file");
    ASSERT_TRUE(std::find(allowed.begin(), allowed.end(), now) != allowed.end())
        << "a mixture after " << requests << " requests";
    if (now != old_bytes) break;  // the commit itself got through
  }
}

// 6: the size came out wrong when the cluster has more drives than a stripe.
TEST_F(AncestorTest, SizesAreRightWithMoreDrivesThanAStripeHas) {
  for (const uint64_t size : {0ul, 1ul, kBlock, kBlock + 1, 5 * kBlock - 1, 9 * kBlock + 3}) {
    Make("file", Pattern(size, size));
    EXPECT_EQ(fs_->Resolve("/file")->size, size);
    EXPECT_EQ(fs_->Resolve("/file")->stored_bytes, size);
  }
}

// 7: stat through a second handle dropped a writer's data, and close reported success.
TEST_F(AncestorTest, StatThroughASecondHandleKeepsAWritersData) {
  Make("file", "old");
  const InodeId id = fs_->Resolve("/file")->inode;
  auto writer = fs_->Open(id, FileSystem::Access::kWrite);
  auto second = fs_->Open(id, FileSystem::Access::kRead);
  const std::string bytes = Pattern(1, 2 * kBlock + 9);
  ASSERT_OK((*writer)->Write(0, AsBytes(bytes)));
  EXPECT_EQ((*second)->Stat()->size, bytes.size());
  EXPECT_EQ(fs_->GetAttributes(id)->size, bytes.size());
  ASSERT_OK((*second)->Close());
  ASSERT_OK((*writer)->Close());
  EXPECT_TRUE(Contents("/file") == bytes);
}

// 8: bytes never written read as something else than zero, even as another file's.
TEST_F(AncestorTest, BytesNeverWrittenAreZero) {
  for (int i = 0; i < 4; ++i) {  // dirty buffers that are used again
    Make("filler", std::string(3 * kBlock, 'X'));
    for (const uint64_t at : {10ul, 5000ul, 70'000ul, kBlock + 7, 3 * kBlock + 1}) {
      SCOPED_TRACE(at);
      auto file = fs_->Create(kRootInode, "sparse", {.truncate = true});
      ASSERT_OK(file);
      ASSERT_OK((*file)->Write(at, AsBytes("end")));
      const std::string expected = std::string(at, '\0') + "end";
      EXPECT_TRUE(ReadAll(**file) == expected);
      ASSERT_OK((*file)->Close());
      EXPECT_TRUE(Contents("/sparse") == expected);
      Host other = NewHost();
      EXPECT_TRUE(Contents("/sparse", other.fs.get()) == expected);
    }
  }
}

// 9: truncations were lost in some orders of open, read and truncate.
TEST_F(AncestorTest, TruncationsCountInWhateverOrder) {
  const std::vector<uint64_t> sizes{0, 7, 5000, kBlock - 1, kBlock + 1, 3 * kBlock};
  for (const uint64_t first : sizes) {
    for (const uint64_t second : sizes) {
      for (const bool reads : {false, true}) {
        SCOPED_TRACE(fmt::format("{} then {}, reads {}", first, second, reads));
        std::string expected = Pattern(1, 2 * kBlock + 100);
        Make("file", expected);
        auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
        ASSERT_OK(file);
        for (const uint64_t size : {first, second}) {
          if (reads) {
            EXPECT_TRUE(ReadAll(**file) == expected);
          }
          ASSERT_OK((*file)->Truncate(size));
          expected.resize(size);
        }
        EXPECT_TRUE(ReadAll(**file) == expected);
        ASSERT_OK((*file)->Close());
        EXPECT_TRUE(Contents("/file") == expected);
      }
    }
  }
}

// 11: a read of 300 bytes fetched 16 stripes, and a file of one byte took k+m records.
TEST_F(AncestorTest, ASmallReadFetchesOneCellAndASmallFileHasNoDataRecord) {
  const std::string bytes = Pattern(1, 8 * kBlock);
  Make("big", bytes);
  auto file = fs_->Open(fs_->Resolve("/big")->inode, FileSystem::Access::kRead);
  ASSERT_OK(file);
  const uint64_t before = host_.cluster->stripes().counters().bytes_fetched;
  const DriveRequests read =
      Count([&] { EXPECT_EQ(ReadAll(**file, kBlock + 5000, 300).size(), 300u); });
  EXPECT_EQ(read.get, 1u);
  EXPECT_EQ(host_.cluster->stripes().counters().bytes_fetched - before, uint64_t{kCellBytes});

  Make("tiny", "");
  const InodeId tiny = fs_->Resolve("/tiny")->inode;
  auto writer = fs_->Open(tiny, FileSystem::Access::kWrite);
  ASSERT_OK(writer);
  const DriveRequests write = Count([&] {
    ASSERT_OK((*writer)->Write(0, AsBytes("x")));
    ASSERT_OK((*writer)->Close());
  });
  const size_t replicas = host_.cluster->Replicas(host_.cluster->GroupOfObject(tiny)).drives.size();
  EXPECT_LE(write.put, replicas);  // the inode, and nothing else
  EXPECT_EQ(fs_->Resolve("/tiny")->size, 1u);
}

// 14: mode and times were zero, and statfs did not know of parity.
TEST_F(AncestorTest, ModesTimesAndSpaceAreReal) {
  auto file = fs_->Create(kRootInode, "file", {.mode = 0604});
  ASSERT_OK(file);
  const int64_t made = (*file)->Stat()->modified;
  EXPECT_EQ((*file)->Stat()->mode, 0604u);
  EXPECT_GT(made, 0);
  ASSERT_OK((*file)->Write(0, AsBytes("x")));
  ASSERT_OK((*file)->Close());
  EXPECT_GT(fs_->Resolve("/file")->modified, made);
  EXPECT_EQ(fs_->Resolve("/")->mode, 0755u);
  EXPECT_EQ(fs_->Resolve("/")->owner.group, 20u);
  const auto space = fs_->Space();
  ASSERT_OK(space);
  EXPECT_NEAR(static_cast<double>(space->usable_bytes),
              static_cast<double>(space->raw_bytes) * 4 / 6,
              static_cast<double>(space->raw_bytes) / 100);
}

// 15: an error of a write in the background was lost if the file was closed next.
TEST_F(AncestorTest, AWriteThatFailedInTheBackgroundIsReportedByClose) {
  Make("file", "old");
  auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
  auto second = fs_->Open((*file)->inode(), FileSystem::Access::kWrite);
  ASSERT_OK((*second)->Write(kBlock, AsBytes("x")));
  Break(1, 8, {.full = true});
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, kBlock))));  // goes out in the background
  EXPECT_FAILS((*file)->Sync(), ENOSPC);
  EXPECT_FAILS((*file)->Close(), ENOSPC);
  EXPECT_FAILS((*second)->Close(), ENOSPC);
  Break(1, 8, {});
  EXPECT_EQ(Contents("/file"), "old");
}

TEST_F(AncestorTest, AWriteThatFailedForAWhileIsStoredInTheEnd) {
  Make("file", "old");
  auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kWrite);
  const std::string bytes = Pattern(1, 3 * kBlock);
  Break(1, 8, {.full = true});
  ASSERT_OK((*file)->Write(0, AsBytes(bytes)));
  EXPECT_FAILS((*file)->Commit(), ENOSPC);
  EXPECT_TRUE(ReadAll(**file) == bytes);
  Break(1, 8, {});
  EXPECT_OK((*file)->Close());
  EXPECT_TRUE(Contents("/file") == bytes);
}

// 4: a lost stripe read as zeros.
TEST_F(AncestorTest, ALostStripeIsAnErrorNeverAHole) {
  Make("file", Pattern(1, 12 * kBlock));
  const auto id = fs_->Resolve("/file");
  ASSERT_OK(id);
  auto file = fs_->Open(id->inode, FileSystem::Access::kRead);
  Break(1, 3, {.down = true});
  std::string bytes(12 * kBlock, '?');
  EXPECT_FAILS((*file)->Read(0, std::as_writable_bytes(std::span(bytes))), EIO);
  Break(1, 8, {});
  EXPECT_TRUE(ReadAll(**file) == Pattern(1, 12 * kBlock));
}

TEST_F(AncestorTest, TwoDrivesMayBeLostForEver) {
  std::map<std::string, std::string> files;
  for (const size_t size : {5ul, 5000ul, 3 * kBlock}) {
    files[fmt::format("f{}", size)] = Pattern(size, size);
  }
  for (const auto& [name, bytes] : files) Make(name, bytes);
  Break(3, 4, {.down = true});
  Host other = NewHost();
  for (const auto& [name, bytes] : files) {
    EXPECT_TRUE(Contents("/" + name, other.fs.get()) == bytes);
  }
}

// Nothing that an overwrite or an unlink left behind stays on the drives.
TEST_F(AncestorTest, GarbageIsDeleted) {
  const auto used = [&] { return fs_->Space()->raw_used_bytes; };
  sim_.Sleep(std::chrono::minutes(1));
  const uint64_t before = used();
  for (int i = 0; i < 5; ++i) Make("file", Pattern(i, 4 * kBlock));
  ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  {
    auto dropped = fs_->Create(kRootInode, "dropped", {.publish_at_commit = true});
    ASSERT_OK((*dropped)->Write(0, AsBytes(Pattern(9, 4 * kBlock))));
  }
  sim_.Sleep(std::chrono::minutes(2));
  EXPECT_LT(used(), before + 64 * 1024) << "registers' tombstones, and no stripe";
}

}  // namespace
}  // namespace pinstripe
