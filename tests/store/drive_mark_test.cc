// The file that makes a directory a drive's. Its bytes are the format: docs/format.md, "Mark of a
// drive".

#include "store/drive_mark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "store/log_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::string_view kGolden =
    "# This directory is a drive's. pinstriped serves no drive without this file.\n"
    "format = 1\n"
    "id = \"0123456789abcdef0123456789abcdef\"\n"
    "made = \"2026-11-25 19:30:00 UTC\"\n"
    "made_by = \"1.2.3\"\n";

TEST(DriveMarkFormat, HasTheseBytes) {
  const DriveMark mark{.id = "0123456789abcdef0123456789abcdef",
                       .made = "2026-11-25 19:30:00 UTC",
                       .made_by = "1.2.3"};
  EXPECT_EQ(EncodeDriveMark(mark), kGolden);
  const auto decoded = DecodeDriveMark(kGolden, "file");
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, mark);
}

TEST(DriveMarkFormat, ANewerOneAndADamagedOneAreRefused) {
  EXPECT_FAILS(DecodeDriveMark("format = 2\nand = \"more\"\n", "file"), ENOTSUP);
  EXPECT_FAILS(DecodeDriveMark("", "file"), EBADMSG);
  EXPECT_FAILS(DecodeDriveMark(std::string(200, '\0'), "file"), EBADMSG);
  for (size_t bytes = 0; bytes + 1 < kGolden.size(); ++bytes) {
    const auto cut = DecodeDriveMark(kGolden.substr(0, bytes), "the file");
    ASSERT_FAILS(cut, EBADMSG);
    EXPECT_THAT(std::string(cut.error().message()), HasSubstr("the file"));
  }
}

class DriveMarkTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_.path();
  StoreResources resources_;
};

TEST_F(DriveMarkTest, AnEmptyDirectoryBecomesADriveOnce) {
  EXPECT_FAILS(RequireDriveMark(path_, "2"), ENOENT);
  EXPECT_TRUE(fs::is_empty(path_));
  const auto made = InitDrive(path_, "1.2.3");
  ASSERT_OK(made);
  EXPECT_EQ(made->made_by, "1.2.3");
  EXPECT_EQ(*RequireDriveMark(path_, "2"), *made);
  EXPECT_FAILS(InitDrive(path_, "1.2.3"), EEXIST);
  ASSERT_OK(LogStore::Open({.path = path_, .reserve_bytes = 0}, resources_));
  EXPECT_EQ(*RequireDriveMark(path_, "2"), *made);
}

TEST_F(DriveMarkTest, EachDirectoryHasAnIdOfItsOwn) {
  fs::create_directory(directory_ / "a");
  fs::create_directory(directory_ / "b");
  EXPECT_NE(InitDrive(directory_ / "a", "1")->id, InitDrive(directory_ / "b", "1")->id);
}

// A disk where a file system has just been made is not quite empty.
TEST_F(DriveMarkTest, OnlyAnEmptyDirectoryBecomesOne) {
  std::ofstream(directory_ / "letter") << "dear";
  EXPECT_FAILS(InitDrive(path_, "1.2.3"), ENOTEMPTY);
  fs::remove(directory_ / "letter");
  fs::create_directory(directory_ / "lost+found");
  EXPECT_OK(InitDrive(path_, "1.2.3"));
  EXPECT_FAILS(InitDrive(directory_ / "nothing", "1.2.3"), ENOENT);
  EXPECT_FAILS(InitDrive(directory_ / DriveMark::kFileName, "1.2.3"), ENOTDIR);
}

TEST_F(DriveMarkTest, WhatAnInterruptedOneHasLeftIsNoObstacle) {
  std::ofstream(directory_ / "pinstripe-drive.new") << "for";
  EXPECT_OK(CheckCanBecomeDrives({path_}));
  EXPECT_OK(InitDrive(path_, "1.2.3"));
  EXPECT_OK(RequireDriveMark(path_, "1.2.3"));
  EXPECT_OK(LogStore::Open({.path = path_, .reserve_bytes = 0}, resources_));
}

TEST_F(DriveMarkTest, TwoNamesOfOneDirectoryAreRefused) {
  fs::create_directory(directory_ / "a");
  fs::create_directory(directory_ / "b");
  EXPECT_OK(CheckCanBecomeDrives({directory_ / "a", directory_ / "b"}));
  EXPECT_FAILS(CheckCanBecomeDrives({directory_ / "a", directory_ / "a/"}), EINVAL);
  fs::create_directory_symlink(directory_ / "a", directory_ / "c");
  EXPECT_FAILS(CheckCanBecomeDrives({directory_ / "a", directory_ / "c"}), EINVAL);
}

TEST_F(DriveMarkTest, AStoreOfBeforeThereWereMarksGetsOne) {
  ASSERT_OK(LogStore::Open({.path = path_, .reserve_bytes = 0}, resources_));
  EXPECT_FAILS(InitDrive(path_, "1.2.3"), EEXIST);
  const auto given = RequireDriveMark(path_, "1.2.3");
  ASSERT_OK(given);
  EXPECT_EQ(*RequireDriveMark(path_, "2"), *given);
}

TEST_F(DriveMarkTest, RootMakesItForTheOwnerOfTheDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can";
  ASSERT_EQ(chown(path_.c_str(), 12345, 23456), 0);
  ASSERT_OK(InitDrive(path_, "1.2.3"));
  struct stat about {};
  ASSERT_EQ(stat((directory_ / DriveMark::kFileName).c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 12345u);
  EXPECT_EQ(about.st_gid, 23456u);
  EXPECT_EQ(about.st_mode & 0777, 0640u);
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 1);
}

}  // namespace
}  // namespace pinstripe
