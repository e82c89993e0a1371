#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/try.h"

namespace pinstripe {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Fail(EINVAL, "{} is odd", n);
  return n / 2;
}

Status CheckEven(int n) {
  TRY(Half(n));
  return {};
}

Result<int> Quarter(int n) {
  const int half = TRY_CONTEXT(Half(n), "first half of {}", n);
  return TRY(Half(half));
}

Result<std::unique_ptr<int>> Owned(int n) {
  TRY(CheckEven(n));
  return std::make_unique<int>(n);
}

Result<int> Sum(int a, int b) { return *TRY(Owned(a)) + TRY(Half(b)); }

TEST(Status, IsSuccessUnlessSaidOtherwise) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), 0);
  EXPECT_EQ(status.message(), "success");
  EXPECT_TRUE(status.Context("open").ok());
}

TEST(Status, HasACodeForMachinesAndASentenceForPeople) {
  const Status status = Fail(ENOENT, "no drive {} in {}", 7, "cluster.toml");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ENOENT);
  EXPECT_EQ(status.message(), "no drive 7 in cluster.toml");
}

TEST(Status, ReadsFromIntentionToCause) {
  const Status cause = Fail(EHOSTUNREACH, "connection refused");
  const Status status = cause.Context("drive 4").Context("read inode 17");
  EXPECT_EQ(status.code(), EHOSTUNREACH);
  EXPECT_EQ(status.message(), "read inode 17: drive 4: connection refused");
  EXPECT_EQ(cause.message(), "connection refused") << "the cause is not changed";
}

TEST(Status, KnowsWhichOfItsWordsNameTheDrive) {
  const Status answer = Fail(EACCES, "no permission for GET");
  const Status named = answer.OfDrive("drive 4 (h:1)");
  EXPECT_EQ(named.code(), EACCES);
  EXPECT_EQ(named.message(), "drive 4 (h:1): no permission for GET");
  EXPECT_EQ(named.WithoutDriveName(), "no permission for GET");
  const Status in_context = named.Context("read superblock").Context("open");
  EXPECT_EQ(in_context.message(), "open: read superblock: drive 4 (h:1): no permission for GET");
  EXPECT_EQ(in_context.WithoutDriveName(), "open: read superblock: no permission for GET");
}

TEST(Status, DoesNotTakeWordsForTheNameOfADrive) {
  const Status status = Fail(EIO, "drive 4 (h:1): it says it is drive 5 (h:2): odd");
  EXPECT_EQ(status.WithoutDriveName(), status.message());
  EXPECT_EQ(status.OfDrive("disk (of ): names)").WithoutDriveName(), status.message());
  EXPECT_EQ(Status().OfDrive("drive 4 (h:1)").WithoutDriveName(), "success");
}

TEST(Status, WithoutACodeIsAMistakeOfOurs) { EXPECT_DEATH(Status(0, "nothing"), "code"); }

TEST(Try, IsTheValueOfWhatSucceeded) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(*Sum(2, 8), 6) << "values that only move are moved";
}

TEST(Try, ReturnsTheFailureOfWhatFailed) {
  EXPECT_EQ(Quarter(6).error().message(), "3 is odd");
  EXPECT_EQ(CheckEven(3).code(), EINVAL);
  EXPECT_EQ(Sum(1, 8).error().message(), "1 is odd");
  EXPECT_EQ(Sum(2, 1).error().message(), "1 is odd");
}

TEST(Try, AddsWhatOnlyThisPlaceKnows) {
  EXPECT_EQ(Quarter(5).error().message(), "first half of 5: 5 is odd");
}

TEST(HostErrno, HidesCodesThatAHostWouldMisread) {
  for (int code : {EBADMSG, EBUSY, EHOSTUNREACH, ESTALE, ETIMEDOUT, EIO}) {
    EXPECT_EQ(HostErrno(Status(code, "x")), EIO) << code;
  }
  for (int code : {ENOENT, EEXIST, ENOSPC, EACCES, ENOTEMPTY}) {
    EXPECT_EQ(HostErrno(Status(code, "x")), code);
  }
  EXPECT_EQ(HostErrno(Status()), 0);
}

TEST(ErrnoText, IsWhatPeopleKnow) { EXPECT_EQ(ErrnoText(ENOENT), "No such file or directory"); }

}  // namespace
}  // namespace pinstripe
