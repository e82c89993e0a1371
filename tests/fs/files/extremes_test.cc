// The ends of what numbers can be: times, sizes, modes and owners, as users set them and as a drive
// may claim that they were set. Most of it is to be run under UndefinedBehaviorSanitizer.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "fs/files/copy_range.h"
#include "fs/posix_stat.h"
#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTimes[] = {INT64_MIN, INT64_MIN + 1, -kSecond - 1,  -kSecond, -1, 0,
                              1,         kSecond - 1,   INT64_MAX - 1, INT64_MAX};

TEST(Extremes, EveryTimeThatADriveMayClaimIsATimespec) {
  for (const int64_t time : kTimes) {
    const timespec split = ToTimespec(time);
    EXPECT_GE(split.tv_nsec, 0) << time;
    EXPECT_LT(split.tv_nsec, kSecond) << time;
    EXPECT_EQ(static_cast<__int128>(split.tv_sec) * kSecond + split.tv_nsec, time);
  }
}

TEST(Extremes, TimesThatCannotBeKeptBecomeTheFirstOrTheLastThatCan) {
  constexpr int64_t kMost = INT64_MAX / kSecond * kSecond;
  EXPECT_EQ(ToNanoseconds({INT64_MAX, 0}), kMost);
  EXPECT_EQ(ToNanoseconds({INT64_MAX, 999'999'999}), kMost);
  EXPECT_EQ(ToNanoseconds({INT64_MIN, 0}), -kMost);
  EXPECT_EQ(ToNanoseconds({INT64_MIN, 999'999'999}), -kMost);
  EXPECT_EQ(ToNanoseconds({-1, 999'999'999}), -1);
}

TEST(Extremes, NanosecondsThatAreNoneAreTakenForTheNearestThatAre) {
  EXPECT_EQ(ToNanoseconds({5, INT64_MAX}), 5 * kSecond + 999'999'999);
  EXPECT_EQ(ToNanoseconds({5, INT64_MIN}), 5 * kSecond);
  EXPECT_EQ(ToNanoseconds({INT64_MAX / kSecond - 1, INT64_MAX}),
            (INT64_MAX / kSecond - 1) * kSecond + 999'999'999);
}

TEST(Extremes, SpaceIsNeverCountedAroundTheEnd) {
  EXPECT_EQ(ToStat({.stored_bytes = 0}).st_blocks, 0);
  EXPECT_EQ(ToStat({.stored_bytes = 513}).st_blocks, 2);
  EXPECT_EQ(ToStat({.stored_bytes = UINT64_MAX}).st_blocks, blkcnt_t{1} << 55);
}

class ExtremesTest : public FsTest {};

TEST_F(ExtremesTest, TimesOwnersAndModesAreKeptAsTheyAreSet) {
  const InodeId file = Make("file", "x");
  for (const int64_t time : kTimes) {
    ASSERT_OK(fs_->SetAttributes(file, {.mode = UINT32_MAX,
                                        .user = UINT32_MAX,
                                        .group = UINT32_MAX - 1,
                                        .accessed = time,
                                        .modified = time}));
    Host other = NewHost();
    const auto found = other->GetAttributes(file);
    ASSERT_OK(found);
    EXPECT_EQ(found->mode, 07777u);
    EXPECT_EQ(found->owner.user, UINT32_MAX);
    EXPECT_EQ(found->owner.group, UINT32_MAX - 1);
    EXPECT_EQ(found->accessed, time);
    EXPECT_EQ(found->modified, time);
    ToStat(*found);
  }
  ExpectClean(Checker(*host_.cluster, {}).Run());
}

TEST_F(ExtremesTest, AFileMayBeAsLargeAsItsNumbersAndNoLarger) {
  Make("file", "x");
  const InodeId id = fs_->Resolve("/file")->inode;
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  EXPECT_EQ((*file)->Truncate(kMaxFileBytes + 1).code(), EFBIG);
  EXPECT_EQ((*file)->Truncate(UINT64_MAX).code(), EFBIG);
  for (const uint64_t offset : {kMaxFileBytes, kMaxFileBytes + 1, UINT64_MAX}) {
    EXPECT_EQ((*file)->Write(offset, AsBytes("x")).code(), EFBIG) << offset;
  }
  EXPECT_EQ((*file)->Write(kMaxFileBytes - 1, AsBytes("xy")).code(), EFBIG);
  EXPECT_EQ(ReadAll(**file), "x");  // nothing of all that was done

  ASSERT_OK((*file)->Write(kMaxFileBytes - 1, AsBytes("z")));
  ASSERT_OK((*file)->Close());
  Host other = NewHost();
  const auto found = other->GetAttributes(id);
  ASSERT_OK(found);
  EXPECT_EQ(found->size, kMaxFileBytes);
  EXPECT_EQ(ToStat(*found).st_size, int64_t{1} << 53);
  auto again = other->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(again);
  EXPECT_EQ(ReadAll(**again, kMaxFileBytes - 2, 10), std::string("\0z", 2));
  EXPECT_EQ(ReadAll(**again, kMaxFileBytes, 10), "");
  EXPECT_EQ(ReadAll(**again, UINT64_MAX, 10), "");
  EXPECT_EQ(ReadAll(**again, 0, 3), std::string("x\0\0", 3));
  ASSERT_OK((*again)->Truncate(kMaxFileBytes - 1));
  ASSERT_OK((*again)->Truncate(1));
  ASSERT_OK((*again)->Close());
  EXPECT_EQ(Contents("/file"), "x");
}

// Zeros cost nothing, so nobody else may be made to go through more of them than that.
TEST_F(ExtremesTest, NobodyMakesUpASizeThatIsBeyondAllMeasure) {
  const InodeId id = Make("file", "x");
  const InodeId other = Make("other", "four");
  auto file = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(file);
  auto source = fs_->Open(other, FileSystem::Access::kRead);
  ASSERT_OK(source);
  using Size = OpenFile::Size;
  for (const uint64_t far : {(uint64_t{1} << 53) + 1, uint64_t{1} << 62, uint64_t{INT64_MAX}}) {
    EXPECT_FAILS((*file)->Write(far, AsBytes("y")), EFBIG) << far;
    EXPECT_FAILS((*file)->Truncate(far), EFBIG) << far;
    EXPECT_FAILS((*file)->SetAttributes({.size = far}), EFBIG) << far;
    EXPECT_FAILS(fs_->SetAttributes(id, {.size = far}), EFBIG) << far;
    EXPECT_FAILS((*file)->Zero(far - 1, 2, Size::kGrows), EFBIG) << far;
    EXPECT_FAILS((*file)->Allocate(far - 1, 2, Size::kGrows), EFBIG) << far;
    EXPECT_FAILS((*file)->Allocate(far - 1, 2, Size::kStays), EFBIG) << far;
    EXPECT_FAILS(CopyRange(**source, 0, **file, far, 4), EFBIG) << far;
  }
  ASSERT_OK((*file)->Close());
  EXPECT_EQ(Contents("/file"), "x");
  // What fits of a copy is copied, as of a write on a mount.
  auto again = fs_->Open(id, FileSystem::Access::kWrite);
  ASSERT_OK(again);
  EXPECT_EQ(*CopyRange(**source, 0, **again, kMaxFileBytes - 3, 4), 3u);
  EXPECT_FAILS(CopyRange(**source, 0, **again, kMaxFileBytes, 4), EFBIG);
  EXPECT_FAILS((*again)->Append(AsBytes("y")), EFBIG);
  ASSERT_OK((*again)->Close());
  EXPECT_EQ(NewHost()->GetAttributes(id)->size, kMaxFileBytes);
}

// As they could be before.
TEST_F(ExtremesTest, AFileThatIsLargerAlreadyIsReadCutAndRemoved) {
  for (const uint64_t size : {kMaxFileBytes + 1, uint64_t{1} << 62, uint64_t{INT64_MAX}}) {
    auto made = fs_->Create(kRootInode, "file", {});
    ASSERT_OK(made);
    const std::string contents = Pattern(1, kTestBlock);
    ASSERT_OK((*made)->Write(0, AsBytes(contents)));
    ASSERT_OK((*made)->Write(3 * kTestBlock, AsBytes("in the middle")));
    ASSERT_OK((*made)->Close());
    const InodeId id = (*made)->inode();
    ChangeInode(id, [&](Inode& inode) {
      inode.size = size;
      inode.map->Resize(size);
    });
    Host host = NewHost();
    EXPECT_EQ(host->GetAttributes(id)->size, size);
    EXPECT_OK(host->Checksums(id));
    auto file = host->Open(id, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    EXPECT_EQ(ReadAll(**file, 3 * kTestBlock, 5), "in th");
    EXPECT_EQ(ReadAll(**file, size - 2, 5), std::string(2, '\0'));
    EXPECT_FAILS((*file)->Append(AsBytes("y")), EFBIG);
    EXPECT_FAILS((*file)->Truncate(size), EFBIG);
    ASSERT_OK((*file)->Zero(3 * kTestBlock, size, OpenFile::Size::kStays));
    ASSERT_OK((*file)->Write(10, AsBytes("new")));
    ASSERT_OK((*file)->Commit());
    EXPECT_EQ(NewHost()->GetAttributes(id)->size, size);
    ASSERT_OK((*file)->Truncate(5 * kTestBlock));
    ASSERT_OK((*file)->Close());
    EXPECT_TRUE(Contents("/file").ends_with(std::string(2 * kTestBlock, '\0')));
    ASSERT_OK(fs_->Unlink(kRootInode, "file"));
  }
  sim_.Sleep(std::chrono::minutes(2));  // until what was removed is gone
  ExpectClean(Checker(*host_.cluster, {}).Run());
}

}  // namespace
}  // namespace pinstripe
