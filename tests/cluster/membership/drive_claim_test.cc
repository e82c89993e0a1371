// Who works on a drive says so, and others leave it to them, until they stand still.

#include "cluster/membership/drive_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr DriveId kDrive = 2;

DriveClaimRecord SmallRecord() {
  DriveClaimRecord record;
  record.work = DriveWork::kDrain;
  record.host = "box1";
  record.process = 258;
  for (size_t i = 0; i < record.run.size(); ++i) record.run[i] = static_cast<uint8_t>(i);
  record.since = 1'700'000'000'000'000'000;
  record.renewed = record.since + 60'000'000'000;
  return record;
}

// These bytes are the format. If a test here fails, what is in the group of the drive map cannot be
// read by those who wrote it.
TEST(DriveClaimRecord, ItsBytesNeverChange) {
  EXPECT_EQ(Hex(AsBytes(DriveClaimKey(258))), "570102");
  EXPECT_EQ(Hex(AsBytes(CareClaimKey())), "57000007");
  EXPECT_EQ(Hex(AsBytes(SmallRecord().Encode())),
            "01"
            "02"
            "04"
            "626f7831"
            "00000102"
            "000102030405060708090a0b0c0d0e0f"
            "17979cfe362a0000"
            "17979d0c2e715800");
  const auto again = DriveClaimRecord::Decode(SmallRecord().Encode());
  ASSERT_OK(again);
  EXPECT_EQ(again->Encode(), SmallRecord().Encode());
}

TEST(DriveClaimRecord, AnythingElseIsDamage) {
  const std::string good = SmallRecord().Encode();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(DriveClaimRecord::Decode(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DriveClaimRecord::Decode(good + '\0'), EBADMSG);
  EXPECT_FAILS(DriveClaimRecord::Decode("\x02" + good.substr(1)), EBADMSG);
  const auto refuses = [](auto change) {
    DriveClaimRecord record = SmallRecord();
    change(record);
    return !DriveClaimRecord::Decode(record.Encode()).has_value();
  };
  EXPECT_FALSE(refuses([](DriveClaimRecord&) {}));
  EXPECT_TRUE(refuses([](DriveClaimRecord& record) { record.work = DriveWork{0}; }));
  EXPECT_TRUE(refuses([](DriveClaimRecord& record) { record.work = DriveWork{8}; }));
  EXPECT_TRUE(refuses([](DriveClaimRecord& record) { record.host = ""; }));
  EXPECT_TRUE(refuses([](DriveClaimRecord& record) { record.host = "red\x1b[31m"; }));
  EXPECT_TRUE(refuses([](DriveClaimRecord& record) { record.host = std::string(256, 'x'); }));
}

TEST(DriveClaimRecord, SaysWhoAndSinceWhen) {
  DriveClaimRecord record = SmallRecord();
  EXPECT_EQ(
      record.Text(4),
      "drive 4 is being drained by process 258 on box1 since 2023-11-14 22:13:20 UTC, with a last "
      "sign of life at 22:14:20");
  for (const int64_t time : {INT64_MIN, int64_t{-1}, INT64_MAX}) {
    record.since = time;
    record.renewed = time;
    EXPECT_THAT(record.Text(4), HasSubstr("by process 258 on box1 since "));
  }
}

class DriveClaimTest : public testing::Test {
 protected:
  DriveClaimTest() : sim_(1), machines_(sim_, {.drives = 5, .layout = {2, 1, 64 << 10}}) {
    SetLogLevel(LogLevel::kError);
    EXPECT_OK(machines_.Format());
  }
  ~DriveClaimTest() override { SetLogLevel(LogLevel::kInfo); }

  std::unique_ptr<Cluster> Open(std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(std::move(life));
    EXPECT_OK(cluster);
    return *std::move(cluster);
  }
  static DriveClaimOptions From(const std::string& host) { return {.host = host, .process = 77}; }

  static std::optional<DriveClaimRecord> ClaimOn(Cluster& cluster, DriveId drive) {
    const auto claims = FindDriveClaims(cluster, {drive}).found;
    return claims.empty() ? std::nullopt : std::optional(claims.at(drive));
  }

  SimRuntime sim_;
  TestCluster machines_;
};

TEST_F(DriveClaimTest, TheFirstOneHasItAndTheSecondIsToldWho) {
  const auto one = Open();
  const auto two = Open();
  DriveClaim first(*one, kDrive, DriveWork::kRebuild, From("box1"));
  ASSERT_OK(first.Take());
  EXPECT_FALSE(first.IsLost());
  const Time begin = sim_.Now();
  DriveClaim second(*two, kDrive, DriveWork::kDrain, From("box2"));
  const Status busy = second.Take();
  EXPECT_EQ(busy.code(), EBUSY);
  EXPECT_THAT(std::string(busy.message()),
              HasSubstr("drive 2 is being rebuilt by process 77 on box1 since "));
  // It is seen to be alive long before it could be taken over.
  EXPECT_LT(sim_.Now() - begin, seconds(10));
  EXPECT_FALSE(first.IsLost());
  // Other drives are others' business.
  DriveClaim other(*two, kDrive + 1, DriveWork::kDrain, From("box2"));
  EXPECT_OK(other.Take());
}

TEST_F(DriveClaimTest, WhatIsGivenBackIsFree) {
  const auto one = Open();
  const auto two = Open();
  {
    DriveClaim first(*one, kDrive, DriveWork::kRebuild);
    ASSERT_OK(first.Take());
    EXPECT_OK(first.Take());  // it has it
    EXPECT_TRUE(ClaimOn(*two, kDrive).has_value());
  }
  EXPECT_FALSE(ClaimOn(*two, kDrive).has_value());
  DriveClaim second(*two, kDrive, DriveWork::kRebuild);
  const Time begin = sim_.Now();
  EXPECT_OK(second.Take());
  EXPECT_LT(sim_.Now() - begin, seconds(1));
}

TEST_F(DriveClaimTest, ItIsRenewedAsLongAsItIsHeld) {
  const auto one = Open();
  const auto two = Open();
  DriveClaim claim(*one, kDrive, DriveWork::kCompare);
  ASSERT_OK(claim.Take());
  for (int minute = 0; minute < 60; ++minute) {
    DriveClaim other(*two, kDrive, DriveWork::kCompare);
    EXPECT_FAILS(other.Take(), EBUSY);
    sim_.Sleep(seconds(60));
  }
  EXPECT_FALSE(claim.IsLost());
  const auto record = ClaimOn(*two, kDrive);
  ASSERT_TRUE(record.has_value());
  EXPECT_LE(record->since, sim_.WallClock() - seconds(3600) / std::chrono::nanoseconds(1));
  EXPECT_GE(record->renewed, sim_.WallClock() - seconds(6) / std::chrono::nanoseconds(1));
}

TEST_F(DriveClaimTest, WhoDiedIsWaitedForAndSucceeded) {
  const auto life = std::make_shared<ClientLife>();
  const auto one = Open(life);
  const auto two = Open();
  DriveClaim first(*one, kDrive, DriveWork::kRebuild, From("box1"));
  ASSERT_OK(first.Take());
  life->Crash();
  const Time begin = sim_.Now();
  std::vector<std::string> told;
  DriveClaim second(*two, kDrive, DriveWork::kRebuild, From("box2"));
  ASSERT_OK(second.Take([&](const Status& who) { told.emplace_back(who.message()); }));
  EXPECT_GE(sim_.Now() - begin, seconds(30));
  EXPECT_LT(sim_.Now() - begin, seconds(40));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told.front(), HasSubstr("process 77 on box1"));
  EXPECT_EQ(ClaimOn(*two, kDrive)->host, "box2");
}

// Who only asks now and then, and never waits, learns the same.
TEST_F(DriveClaimTest, WhoTriesNowAndThenSucceedsWhoDied) {
  const auto life = std::make_shared<ClientLife>();
  const auto one = Open(life);
  const auto two = Open();
  DriveClaim first(*one, kDrive, DriveWork::kCompare);
  ASSERT_OK(first.Try());
  DriveClaim second(*two, kDrive, DriveWork::kCompare);
  EXPECT_FAILS(second.Try(), EBUSY);
  sim_.Sleep(seconds(20));
  EXPECT_FAILS(second.Try(), EBUSY);
  sim_.Sleep(seconds(29));
  EXPECT_FAILS(second.Try(), EBUSY);  // it was renewed since the first look
  life->Crash();
  sim_.Sleep(seconds(29));
  EXPECT_FAILS(second.Try(), EBUSY);
  sim_.Sleep(seconds(31));
  EXPECT_OK(second.Try());
}

// A process that was stopped, and goes on when somebody else has taken over.
TEST_F(DriveClaimTest, WhoStoodStillIsToldThatItIsLost) {
  const auto one = Open();
  const auto two = Open();
  DriveClaimOptions slow = From("box1");
  slow.renewed_every = seconds(100);
  DriveClaim first(*one, kDrive, DriveWork::kRebuild, slow);
  ASSERT_OK(first.Take());
  DriveClaim second(*two, kDrive, DriveWork::kRebuild, From("box2"));
  ASSERT_OK(second.Take());
  EXPECT_FALSE(first.IsLost());  // it does not know yet
  sim_.Sleep(seconds(100));
  EXPECT_TRUE(first.IsLost());
  EXPECT_EQ(first.Check().code(), EBUSY);
  EXPECT_THAT(std::string(first.Check().message()), HasSubstr("process 77 on box2"));
  EXPECT_FALSE(second.IsLost());
  // What it has lost it does not give back.
  first.GiveBack();
  EXPECT_EQ(ClaimOn(*two, kDrive)->host, "box2");
}

TEST_F(DriveClaimTest, OfManyWhoTryAtOnceOneHasIt) {
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::unique_ptr<DriveClaim>> claims;
  for (int i = 0; i < 12; ++i) {
    clusters.push_back(Open());
    claims.push_back(std::make_unique<DriveClaim>(*clusters.back(), kDrive, DriveWork::kCompare));
  }
  int winners = 0;
  int running = 0;
  for (const auto& claim : claims) {
    ++running;
    sim_.Spawn("client", [&] {
      const Status status = claim->Try();
      if (status.ok()) {
        ++winners;
      } else {
        EXPECT_EQ(status.code(), EBUSY) << status.message();
      }
      --running;
    });
  }
  while (running > 0) sim_.Sleep(seconds(1));
  EXPECT_EQ(winners, 1);
}

TEST_F(DriveClaimTest, WhatCannotBeReadIsRespectedAndTakenOverWhenItStandsStill) {
  const auto cluster = Open();
  ASSERT_OK(cluster->registers().Change({kMapGroup, DriveClaimKey(kDrive)}, {}, "\x09who knows"));
  DriveClaim claim(*cluster, kDrive, DriveWork::kRebuild);
  const Status status = claim.Try();
  EXPECT_EQ(status.code(), EBUSY);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("by somebody else: claim on a drive: format"));
  EXPECT_OK(claim.Take());
}

TEST_F(DriveClaimTest, SurvivesLostAnswersAndDrivesThatComeAndGo) {
  const auto one = Open();
  const auto two = Open();
  for (DriveId id = 1; id <= machines_.size(); ++id) {
    machines_.drive(id).Set({.lose_request = 0.05, .lose_answer = 0.1, .duplicate_request = 0.2});
  }
  DriveClaim claim(*one, kDrive, DriveWork::kCompare, From("box1"));
  while (!claim.Try().ok()) sim_.Sleep(seconds(1));
  for (int i = 0; i < 100; ++i) {
    const auto down = static_cast<DriveId>(1 + sim_.Below(machines_.size()));
    machines_.SetDown(down, true);
    sim_.Sleep(seconds(2));
    machines_.SetDown(down, false);
  }
  EXPECT_FALSE(claim.IsLost()) << claim.Check().message();
  for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set({});
  claim.GiveBack();
  EXPECT_FALSE(ClaimOn(*two, kDrive).has_value());
}

TEST_F(DriveClaimTest, WithoutAMajorityOfTheMapNobodyHasIt) {
  const auto cluster = Open();
  const std::vector<DriveId> map_drives = cluster->map_drives();
  for (size_t i = 0; i <= map_drives.size() / 2; ++i) machines_.SetDown(map_drives[i], true);
  DriveClaim claim(*cluster, kDrive, DriveWork::kRebuild);
  const Status status = claim.Take();
  EXPECT_EQ(status.code(), EIO);
  EXPECT_THAT(std::string(status.message()), HasSubstr("find out who works on drive 2: "));
}

}  // namespace
}  // namespace pinstripe
