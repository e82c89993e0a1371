// Retiring drained drives: when it is refused, and that a retirement does not outlive the use of
// the drive. What commands make of it is in tests/tools/states_test.cc.

#include "cluster/membership/retirement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cluster/gather.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/stripes/shard.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/repairer.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

class RetirementTest : public FsTest {
 protected:
  RetirementTest() : FsTest({.drives = 8, .layout = {2, 1, 64 << 10}, .groups = 16}) {
    SetLogLevel(LogLevel::kError);
  }
  ~RetirementTest() override { SetLogLevel(LogLevel::kInfo); }

  void SetUp() override {
    FsTest::SetUp();
    Make("file", Pattern(1, 9 * kTestBlock));
    admin_ = *machines_.Open();
    const auto& map_drives = admin_->map_drives();
    while (std::ranges::count(map_drives, plain_) > 0) ++plain_;
  }

  static MappedDrive As(DriveId id, DriveState state) {
    return {.id = id, .weight = 100, .state = state};
  }
  void Change(DriveId id, DriveState state) {
    ASSERT_OK(ChangeDrives(*admin_, machines_.Factory(), {As(id, state)}));
  }
  void ExpectRefused(DriveId id, int code, std::string_view part) {
    const Status status = RetireDrive(*admin_, id, admin_->map().epoch);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_FALSE(admin_->IsRetired(id));
  }

  std::unique_ptr<Cluster> admin_;
  DriveId plain_ = 1;  // that keeps nothing of the drive map
};

TEST_F(RetirementTest, IsRefusedBeforeEverythingHasLeftTheDrive) {
  ExpectRefused(plain_, EINVAL, "it was not drained");
  {
    EpochChangeOptions options;
    options.is_cancelled = [&] { return admin_->map().epoch > 1; };
    EXPECT_FAILS(
        ChangeDrives(*admin_, machines_.Factory(), {As(plain_, DriveState::kDraining)}, options),
        EINTR);
    ExpectRefused(plain_, EBUSY, "a change of the drive map is not complete");
  }
  Change(plain_, DriveState::kDraining);
  ExpectRefused(plain_, ENOTEMPTY, " shards and 0 replicas of names");
  machines_.SetDown(plain_, true);
  EXPECT_EQ(RetireDrive(*admin_, plain_, admin_->map().epoch).code(), EHOSTUNREACH);
  machines_.SetDown(plain_, false);
  Repairer repairer(*admin_, {});
  repairer.Run();  // and retires it
  EXPECT_TRUE(admin_->IsRetired(plain_));
  EXPECT_OK(RetireDrive(*admin_, plain_, admin_->map().epoch));
  EXPECT_TRUE((*machines_.Open())->IsRetired(plain_));
}

// The console has had the cluster open since before, and the drive is taken away.
TEST_F(RetirementTest, WhoLooksAgainHearsOfIt) {
  const auto console = *machines_.Open();
  Change(plain_, DriveState::kDraining);
  Repairer repairer(*admin_, {});
  repairer.Run();
  ASSERT_TRUE(admin_->IsRetired(plain_));
  machines_.SetDown(plain_, true);
  EXPECT_EQ(HealthOf(SurveyOf(*console)), Health::kHealthy);
}

TEST_F(RetirementTest, ADriveThatKeepsAPartOfTheDriveMapIsNotRetired) {
  const DriveId keeper = admin_->map_drives().front();
  Change(keeper, DriveState::kDraining);
  Repairer repairer(*admin_, {});
  const RepairReport& report = repairer.Run();
  ASSERT_TRUE(report.not_retired.contains(keeper));
  EXPECT_EQ(report.not_retired.at(keeper).code(), EPERM);
}

// Who looked through all maps was slow, and the drive was in use again in between.
TEST_F(RetirementTest, WhatWasFoundBeforeTheDriveWasUsedAgainDoesNotCount) {
  Change(plain_, DriveState::kDraining);
  const Epoch looked = admin_->map().epoch;
  Change(plain_, DriveState::kActive);
  Change(plain_, DriveState::kDraining);
  EXPECT_FAILS(RetireDrive(*admin_, plain_, looked), EINVAL);

  // And one that was written by somebody who did not know of it.
  const RegisterName name{kMapGroup, RetirementKey(plain_)};
  ASSERT_OK(admin_->registers().Change(name, {}, Retirement{looked}.Encode()));
  EXPECT_FALSE((*machines_.Open())->IsRetired(plain_));
  ASSERT_OK(admin_->Refresh());
  EXPECT_FALSE(admin_->IsRetired(plain_));
  // Nor does one of an epoch that is not there, or one that cannot be read.
  for (const std::string& value : {Retirement{99}.Encode(), std::string("\x07?")}) {
    const auto seen = admin_->registers().Read(name);
    ASSERT_OK(seen);
    ASSERT_OK(admin_->registers().Change(name, *seen, value));
    EXPECT_FALSE((*machines_.Open())->IsRetired(plain_));
  }
  Repairer repairer(*admin_, {});
  repairer.Run();
  EXPECT_TRUE((*machines_.Open())->IsRetired(plain_));
}

// Those who run learn of it, too, and stop looking for the drive.
TEST_F(RetirementTest, WhoRunsDoesNotMissTheDriveAnyMore) {
  Change(plain_, DriveState::kDraining);
  std::erase_if(machines_.config().drives,
                [this](const DriveConfig& drive) { return drive.id == plain_; });
  const auto other = machines_.Open();
  ASSERT_OK(other);
  ASSERT_EQ((*other)->MissingDrives().size(), 1u);
  EXPECT_EQ((*other)->MissingDrives()[0].id, plain_);
  EXPECT_TRUE((*other)->MissingDrives()[0].is_draining);
  Repairer repairer(*admin_, {});  // that has the drive
  repairer.Run();
  ASSERT_OK((*other)->Refresh());
  EXPECT_TRUE((*other)->MissingDrives().empty());
  EXPECT_TRUE((*other)->IsRetired(plain_));
}

}  // namespace
}  // namespace pinstripe
