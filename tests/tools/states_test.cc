// What the administrator's commands say of a cluster, and with which exit code they end, for the
// states that it can be in. Above all: nothing that is short, lost, forgotten, draining, full or
// unknown is called healthy; and a drive of the drive map that cluster.toml does not list is no
// drive less to ask for, unless it was found to be empty.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/retirement.h"
#include "tests/fs/fs_test_base.h"
#include "tests/support/forwarding_drive.h"
#include "tools/check_report.h"
#include "tools/repair_run.h"
#include "upkeep/collector.h"
#include "upkeep/events.h"
#include "upkeep/stop.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

struct Answer {
  int exit_code = 0;
  std::string text;
};

// What a command must end with, and say. No words: anything will do.
struct Said {
  std::string command;
  int exit_code = 0;
  std::string words;
};

class StatesTest : public FsTest {
 protected:
  // 2+2, so that two drives may be lost, and names on five of nine drives: four keep nothing of the
  // drive map.
  StatesTest()
      : FsTest({.drives = 9,
                .layout = {2, 2, 64 << 10},
                .groups = 16,
                .replicas = 5,
                .drive_bytes = 32 << 20}) {
    SetLogLevel(LogLevel::kError);
  }
  ~StatesTest() override { SetLogLevel(LogLevel::kInfo); }

  void SetUp() override {
    FsTest::SetUp();
    SetLogLevel(LogLevel::kError);
    for (const size_t size : {size_t{10}, size_t{30'000}, size_t{23 * kTestBlock + 77}}) {
      const std::string name = fmt::format("file{}", size);
      files_[name] = Pattern(size, size);
      Make(name, files_[name]);
    }
    const std::vector<DriveId>& map_drives = host_.cluster->map_drives();
    for (DriveId id = 1; id <= 9; ++id) {
      if (std::ranges::count(map_drives, id) == 0) plain_.push_back(id);
    }
    ASSERT_GE(plain_.size(), 3u);
    host_ = {};  // only administrators from here on
  }

  // ---- What is done to the drives

  Status Drain(const std::vector<DriveId>& drives, std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return cluster.error();
    const auto done = RunRepair(**cluster, machines_.Factory(life),
                                {.change = MapChange::kDrain, .drives = drives}, Nobody());
    return done.has_value() ? Status() : done.error();
  }

  // As if it had been killed as soon as the epoch is there: while it waits for the former homes to
  // be forgotten.
  void DrainAndDie(DriveId drive) {
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    const Epoch before = (*cluster)->map().epoch;
    EpochChangeOptions options;
    options.is_cancelled = [&] { return (*cluster)->map().epoch > before; };
    MappedDrive wanted;
    for (const MappedDrive& each : (*cluster)->map().drives) {
      if (each.id == drive) wanted = each;
    }
    wanted.state = DriveState::kDraining;
    EXPECT_FAILS(ChangeDrives(**cluster, machines_.Factory(), {wanted}, options), EINTR);
    EXPECT_EQ((*cluster)->map().epoch, before + 1);
    EXPECT_FALSE((*cluster)->IsSettled());
  }

  // Out of cluster.toml. Gives back what was there.
  DriveConfig Unlist(DriveId drive) {
    auto& drives = machines_.config().drives;
    const auto found = std::ranges::find(drives, drive, &DriveConfig::id);
    DriveConfig config = *found;
    drives.erase(found);
    return config;
  }
  void ListAgain(const DriveConfig& drive) {
    auto& drives = machines_.config().drives;
    drives.push_back(drive);
    std::ranges::sort(drives, {}, &DriveConfig::id);
  }

  // ---- What the commands say

  static RepairTold Nobody() {
    return {.progress = [](std::string_view, double, uint64_t) {},
            .say = [](const std::string&) {}};
  }

  Answer Run(const std::string& command) {
    auto opened = machines_.Open();
    if (!opened.has_value()) return {-1, std::string(opened.error().message())};
    Cluster& cluster = **opened;
    const std::string& file = cluster.config().file;
    if (command == "status") {
      const Survey survey = SurveyOf(cluster);
      return {ExitCodeOf(HealthOf(survey)), SurveyText(survey) + SurveyJson(survey)};
    }
    if (command == "check") {
      Checker checker(cluster, {});
      const CheckReport& report = checker.Run();
      NoteCheck(cluster, report);
      return {ExitCodeOf(report), CheckText(report, file, false, false)};
    }
    if (command.starts_with("collect")) {
      Collector collector(cluster, {.lost = command == "collect --lost"});
      const CollectReport& report = collector.Run();
      return {ExitCodeOf(report), CollectText(report, false, "7d")};
    }
    static const std::map<std::string, RepairRequest> kRequests = {
        {"repair", {}},
        {"repair --dry-run", {.dry_run = true}},
        {"scrub", {.scrub = true}},
        {"scrub --dry-run", {.scrub = true, .dry_run = true}},
        {"verify", {.wants_all_at_home = true, .scrub = true, .dry_run = true}},
        {"rebalance", {.change = MapChange::kRebalance, .wants_all_at_home = true}},
        {"expand", {.change = MapChange::kExpand, .wants_all_at_home = true}}};
    const RepairRequest& request = kRequests.at(command);
    const auto done = RunRepair(cluster, machines_.Factory(), request, Nobody());
    if (!done.has_value()) return {1, std::string(done.error().message())};
    return {ExitCodeOf(request, *done), RepairText(request, *done, file)};
  }

  void Expect(const std::vector<Said>& table) {
    for (const Said& row : table) {
      SCOPED_TRACE(row.command);
      const Answer answer = Run(row.command);
      EXPECT_EQ(answer.exit_code, row.exit_code) << answer.text;
      EXPECT_THAT(answer.text, HasSubstr(row.words));
    }
  }
  void ExpectAllIsWell() {
    Expect({{"verify", 0, "everything is in order"},  // so much is known from here on
            {"status", 0, "healthy"},
            {"check", 0, "everything is in order"},
            {"scrub --dry-run", 0, "everything is in order"},
            {"repair --dry-run", 0, "everything is in order"},
            {"collect", 0, ""}});
    EXPECT_THAT(Run("status").text, Not(HasSubstr("MISSING")));
  }
  // An upload of 12 blocks, of which some are on the drives, and nothing is committed.
  struct Upload {
    Host host;
    std::string contents;
    std::unique_ptr<OpenFile> file;
  };
  Upload BeginUpload() {
    Upload upload{NewHost(), Pattern(7, 12 * kTestBlock), nullptr};
    auto file = upload.host->Create(kRootInode, "upload", {.truncate = true});
    EXPECT_OK(file);
    EXPECT_OK((*file)->Write(0, AsBytes(upload.contents)));
    upload.file = *std::move(file);
    sim_.Sleep(seconds(5));
    return upload;
  }
  void End(Upload& upload) {
    EXPECT_OK(upload.file->Close());
    files_["upload"] = upload.contents;
  }
  // With the drives of whom this holds away, all can be read.
  void ExpectAllHoldsWithout(const std::vector<DriveId>& away) {
    for (const DriveId id : away) machines_.SetDown(id, true);
    const Host host = NewHost();
    for (const auto& [name, contents] : files_) {
      EXPECT_TRUE(Contents("/" + name, host.fs.get()) == contents) << name;
    }
    for (const DriveId id : away) machines_.SetDown(id, false);
  }

  Time moved_at_{};
  std::vector<Time> waited_since_;
  std::map<std::string, std::string> files_;
  std::vector<DriveId> plain_;  // drives that keep nothing of the drive map
};

TEST_F(StatesTest, AHealthyClusterIsCalledSo) { ExpectAllIsWell(); }

TEST_F(StatesTest, ADriveThatIsDownIsCalledDown) {
  machines_.SetDown(plain_[0], true);
  const std::string name = fmt::format("drive {}", plain_[0]);
  Expect({{"status", 1, "degraded: 1 of 9 drives is down"},
          {"check", 2, name},
          {"verify", 2, name},
          {"repair", 2, name},
          {"collect", 1, name}});
}

// A drive that may have forgotten something is up, and a failure is tolerated less for names until
// it was compared.
TEST(ForgetfulStates, ADriveWithoutASayIsShownUntilItWasCompared) {
  SetLogLevel(LogLevel::kError);
  SimRuntime sim(1);
  TestCluster machines(sim,
                       {.drives = 5, .layout = {2, 1, 64 << 10}, .groups = 4, .loses_power = true});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
  EXPECT_EQ(HealthOf(SurveyOf(**cluster)), Health::kHealthy);
  machines.LosePower(1, 0);
  Survey survey;
  for (int i = 0; i < 100 && survey.DrivesInDoubt() == 0; ++i) survey = SurveyOf(**cluster);
  EXPECT_EQ(survey.DrivesInDoubt(), 1u);
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_THAT(SurveyText(survey), testing::HasSubstr("no say in names and inodes yet: 1"));
  EXPECT_THAT(SurveyText(survey), testing::HasSubstr("drive 1: "));
  EXPECT_THAT(SurveyJson(survey), testing::HasSubstr("no_say"));
  for (int i = 0; i < 1000 && survey.DrivesInDoubt() > 0; ++i) {
    sim.Sleep(std::chrono::seconds(1));
    survey = SurveyOf(**cluster);
  }
  EXPECT_EQ(HealthOf(survey), Health::kHealthy);
  SetLogLevel(LogLevel::kInfo);
}

// Every shard is there, and what is in them is not what was written.
TEST_F(StatesTest, WhatHasRottedAwayIsCalledLost) {
  for (DriveId drive = 1; drive <= 9; ++drive) {
    for (const std::string& key : ShardsOn(drive)) Rot(drive, key);
  }
  Expect({{"verify", 1, "cannot be read, as too few of its shards are left (lost)"},
          {"status", 2, "damaged: something is lost"},
          {"scrub --dry-run", 1, "(lost)"},
          {"scrub", 1, "(lost)"},
          {"status", 2, "LOST or damaged, `pinstripe verify` names them"},
          // A check does not see it, and takes nothing of it back.
          {"check", 0, ""},
          {"status", 2, "damaged: something is lost"}});
}

TEST_F(StatesTest, WhatAVerifyFoundToBeMissingARepairTakesBack) {
  for (const std::string& key : ShardsOn(plain_[0])) {
    Gather<Status> gather(sim_);
    machines_.memory(plain_[0]).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                       gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  Expect({{"verify", 3, "blocks are not whole"},
          {"status", 1, "degraded: files lack shards"},
          {"repair", 0, "everything is in order"},
          {"status", 0, "healthy"}});
}

// It lists shards, and says that they are not there when they are asked for.
class EmptyPromises final : public ForwardingDrive {
 public:
  EmptyPromises(std::unique_ptr<Drive> drive, std::string shards)
      : ForwardingDrive(std::move(drive)), shards_(std::move(shards)) {}
  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override {
    if (key.starts_with(shards_)) return done(tl::unexpected(Fail(ENOENT, "no such key")));
    ForwardingDrive::Get(std::move(key), range, terms, std::move(done));
  }
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override {
    if (key.starts_with(shards_)) return done(tl::unexpected(Fail(ENOENT, "no such key")));
    ForwardingDrive::Head(std::move(key), terms, std::move(done));
  }

 private:
  const std::string shards_;
};

TEST_F(StatesTest, WhatADriveListsAndDoesNotHaveIsFoundByReading) {
  const DriveId liar = plain_[0];
  machines_.drive(liar).ReplaceBy(std::make_shared<EmptyPromises>(
      std::make_unique<FaultyDrive>(sim_, machines_.CopyOf(liar)), ClusterPrefix("test") + "D"));
  Expect({{"check", 0, "everything is in order"},
          {"verify", 3, "blocks are not whole"},
          {"status", 1, "degraded: files lack shards"},
          {"check", 0, "everything is in order"},  // it takes nothing of that back
          {"status", 1, "degraded: files lack shards"}});
}

TEST_F(StatesTest, WhoRepairsIsShown) {
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const DriveClaimOptions who{.host = "box1", .process = 77};
  DriveClaim claim(**cluster, kWholeCluster, DriveWork::kRepair, who);
  ASSERT_OK(claim.Take());
  Expect({{"status", 0, "the cluster is being repaired by process 77 on box1 since "},
          {"repair", 0, "everything is in order"}});  // nobody is kept from it
  claim.GiveBack();
  EXPECT_THAT(Run("status").text, Not(HasSubstr("is being repaired")));
  // A repair itself says so while it is at work.
  std::string seen;
  RepairTold told = Nobody();
  told.progress = [&](std::string_view, double, uint64_t) {
    if (seen.empty()) seen = Run("status").text;
  };
  ASSERT_OK(RunRepair(**cluster, machines_.Factory(), {.scrub = true}, told));
  EXPECT_THAT(seen, HasSubstr("the cluster is being scrubbed by process "));
  EXPECT_THAT(Run("status").text, Not(HasSubstr("is being scrubbed")));
}

TEST_F(StatesTest, ADrainedDriveMayBeTakenAway) {
  ASSERT_OK(Drain({plain_[0]}));
  Expect({{"status", 0, "drained: it may be taken out of the configuration, and away"},
          {"status", 0, "\"finished\": true"}});
  ExpectAllIsWell();
  // Switched off, and then not listed any more.
  machines_.SetDown(plain_[0], true);
  Expect({{"status", 0, "healthy"}});
  Unlist(plain_[0]);
  ExpectAllIsWell();
  Expect({{"repair", 0, "everything is in order"},
          {"rebalance", 0, "everything is in order"},
          {"expand", 0, "everything is in order"}});
  ExpectAllHoldsWithout({plain_[1], plain_[2]});
}

// The drain was killed when its epoch was made; then the drive was lost, and its lines were taken
// out of cluster.toml.
TEST_F(StatesTest, ADriveThatWasTakenOutTooEarlyIsMissingUntilItIsRepaired) {
  DrainAndDie(plain_[0]);
  machines_.SetDown(plain_[0], true);
  Unlist(plain_[0]);
  const std::string missing =
      fmt::format("drive {}: the drive map has it, and cluster.toml does not list it", plain_[0]);
  Expect({{"status", 1, "degraded: 1 of 9 drives is missing in the configuration"},
          {"status", 1, "MISSING: the drive map has it, and cluster.toml does not list it"},
          {"status", 1, "\"missing\": true"},
          {"check", 3, missing},
          {"check", 3, "files with missing shards"},
          {"check", 3, "1 drive of the drive map is missing"},
          {"verify", 3, missing},
          {"scrub --dry-run", 3, missing},
          {"repair --dry-run", 3, missing},
          {"collect", 1, missing}});
  Expect({{"repair", 0, "everything is in order"}});
  ExpectAllIsWell();
  ExpectAllHoldsWithout({plain_[1], plain_[2]});
  ExpectAllHoldsWithout({1, 2});
}

// Killed anywhere, and then lost and not listed any more: whenever the status is healthy all is
// there, and whenever it is not a repair makes it so.
TEST_F(StatesTest, WhereverADrainDiesItsDriveIsMissingOrNotNeeded) {
  const DriveId drained = plain_[0];
  bool died = true;
  int missing = 0;
  int retired = 0;
  for (uint64_t requests = 20; died; requests += 1 + requests / 2) {
    SCOPED_TRACE(requests);
    const auto life = std::make_shared<ClientLife>();
    life->CrashAfter(requests);
    (void)Drain({drained}, life);
    died = life->crashed();
    machines_.SetDown(drained, true);
    const DriveConfig config = Unlist(drained);
    const Answer status = Run("status");
    const bool is_needed = status.exit_code != 0;
    missing += is_needed;
    const auto cluster = machines_.Open();
    const bool has_begun = cluster.has_value() && (*cluster)->map().epoch % 2 == 0;
    if (!has_begun) {
      EXPECT_EQ(status.exit_code, 1) << "it is needed as it always was\n" << status.text;
    } else if (is_needed) {
      EXPECT_THAT(status.text, HasSubstr("MISSING"));
      Expect({{"repair", 0, "everything is in order"}});
    } else {
      ++retired;
    }
    if (has_begun) {
      ExpectAllIsWell();
      ExpectAllHoldsWithout({plain_[1], plain_[2]});
    }
    // Back it comes, as an empty one would; and takes part again.
    machines_.SetDown(drained, false);
    ListAgain(config);
    auto admin = machines_.Open();
    ASSERT_OK(admin);
    if (has_begun) {
      const auto back = RunRepair(**admin, machines_.Factory(),
                                  {.change = MapChange::kExpand, .drives = {drained}}, Nobody());
      ASSERT_OK(back);
    }
    ExpectAllIsWell();
  }
  EXPECT_GT(missing, 3);
  EXPECT_GT(retired, 0);
}

TEST_F(StatesTest, AnInterruptedDrainIsShownAndGoneOnWith) {
  const DriveId drained = plain_[0];
  DrainAndDie(drained);
  Expect(
      {{"status", 1, "up, draining: "},
       {"status", 1, "degraded: drives that are being drained: 1"},
       {"status", 1,
        fmt::format("nobody drains drive {} now: `pinstripe drain` goes on with it", drained)},
       {"status", 1, "\"shards_left\": "},
       {"status", 1, "not complete"},
       {"check", 3, fmt::format("shards are to leave drive {}, which is being drained", drained)},
       {"verify", 3, "blocks have shards that are not at home"}});
  ASSERT_OK(Drain({drained}));
  Expect({{"status", 0, "drained: it may be taken out of the configuration"}});
  ExpectAllIsWell();
}

TEST_F(StatesTest, ARebalanceGoesOnWithItToo) {
  DrainAndDie(plain_[0]);
  Expect({{"rebalance", 0, fmt::format("drive {} is empty: take it out", plain_[0])}});
  Unlist(plain_[0]);
  ExpectAllIsWell();
}

TEST_F(StatesTest, AnInterruptedDrainCanBeTakenBack) {
  const DriveId drained = plain_[0];
  DrainAndDie(drained);
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(RunRepair(**cluster, machines_.Factory(),
                      {.change = MapChange::kExpand, .drives = {drained}}, Nobody()));
  ExpectAllIsWell();
  EXPECT_THAT(Run("status").text, Not(HasSubstr("drain")));
  Expect({{"rebalance", 0, "everything is in order"}});
}

TEST_F(StatesTest, WhoIsAtWorkIsShown) {
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  DriveClaim claim(**cluster, plain_[0], DriveWork::kDrain, {.host = "box1", .process = 77});
  ASSERT_OK(claim.Take());
  DrainAndDie(plain_[0]);
  Expect({{"status", 1,
           fmt::format("drive {} is being drained by process 77 on box1 since ", plain_[0])}});
  EXPECT_THAT(Run("status").text, Not(HasSubstr("nobody drains")));
}

TEST_F(StatesTest, NobodyIsSaidToBeAtWorkOrNotWhereThatCannotBeRead) {
  DrainAndDie(plain_[0]);
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const RegisterName name{kMapGroup, DriveClaimKey(plain_[0])};
  RegisterStore& registers = (*cluster)->registers();
  const auto seen = registers.Read(name);
  ASSERT_OK(seen);
  ASSERT_TRUE(registers.Change(name, *seen, "\xff of a later version").applied());
  const std::string unknown = fmt::format(
      "who works on drive {} cannot be found out: claim on a drive: format 255 is not "
      "known here",
      plain_[0]);
  Expect({{"status", 1, unknown}, {"status", 1, "\"work_unknown\""}});
  EXPECT_THAT(Run("status").text, Not(HasSubstr("nobody drains")));
}

TEST_F(StatesTest, WhatSomebodyElseIsAtWorkOnIsLeftToThem) {
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  DriveClaim claim(**cluster, plain_[1], DriveWork::kRebuild, {.host = "box1", .process = 77});
  ASSERT_OK(claim.Take());
  const Status status = Drain({plain_[0], plain_[1]});
  EXPECT_EQ(status.code(), EBUSY);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr(fmt::format("drive {} is being rebuilt by process 77 on box1 since ", plain_[1])));
  EXPECT_EQ((*machines_.Open())->map().epoch, 1u);
  claim.GiveBack();
  EXPECT_OK(Drain({plain_[0], plain_[1]}));
}

// Two who change the drive map at once would wait for each other for half a minute, and one of them
// in vain: the second is told at once who is at work, and what to do.
TEST_F(StatesTest, OneAtATimeChangesTheDriveMap) {
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  DriveClaim claim(**cluster, kDriveMap, DriveWork::kExpand, {.host = "box1", .process = 77});
  ASSERT_OK(claim.Take());
  const Time begin = sim_.Now();
  const Status status = Drain({plain_[0]});
  EXPECT_EQ(status.code(), EBUSY);
  EXPECT_LT(sim_.Now() - begin, seconds(15));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the drive map is being changed by process 77 on box1 since "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Run this again when that has ended"));
  EXPECT_EQ((*machines_.Open())->map().epoch, 1u);
  Expect({{"status", 0, "the drive map is being changed by process 77 on box1"},
          {"status", 0, "\"map_work\""}});
  claim.GiveBack();
  EXPECT_OK(Drain({plain_[0]}));
  const FoundClaims left = FindDriveClaims(**machines_.Open(), {kDriveMap, plain_[0]});
  EXPECT_THAT(left.found, testing::IsEmpty());
  EXPECT_EQ(left.TextOfUnread(), "");
}

// Of several claims of one process that was killed none is waited for longer than the others.
TEST_F(StatesTest, WhoWasKilledAtWorkIsWaitedForOnce) {
  const auto life = std::make_shared<ClientLife>();
  auto cluster = machines_.Open(life);
  ASSERT_OK(cluster);
  {
    DriveClaim map(**cluster, kDriveMap, DriveWork::kDrain, {.host = "box1", .process = 77});
    DriveClaim first(**cluster, plain_[0], DriveWork::kDrain, {.host = "box1", .process = 77});
    DriveClaim second(**cluster, plain_[1], DriveWork::kDrain, {.host = "box1", .process = 77});
    for (DriveClaim* claim : {&map, &first, &second}) ASSERT_OK(claim->Take());
    life->Crash();
  }
  auto other = machines_.Open();
  ASSERT_OK(other);
  const auto done = RunRepair(**other, machines_.Factory(),
                              {.change = MapChange::kDrain, .drives = {plain_[0], plain_[1]}},
                              {.progress = [](std::string_view, double, uint64_t) {},
                               .say =
                                   [&](const std::string& line) {
                                     if (line.starts_with("epoch ")) moved_at_ = sim_.Now();
                                     if (line.find("looking for half a minute") != line.npos) {
                                       waited_since_.push_back(sim_.Now());
                                     }
                                   }});
  ASSERT_OK(done);
  ASSERT_FALSE(waited_since_.empty());
  // Half a minute for those who died, and 35 seconds for each epoch.
  EXPECT_LT(moved_at_ - waited_since_.front(), seconds(30 + 2 * 35 + 15));
}

// What is said in the end and the exit code are the same thing.
TEST_F(StatesTest, WhatADrainLeavesIsNotCalledInOrder) {
  Upload upload = BeginUpload();
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  const RepairRequest request{
      .change = MapChange::kDrain, .drives = {plain_[0]}, .wants_all_at_home = true};
  const auto done = RunRepair(**cluster, machines_.Factory(), request, Nobody());
  ASSERT_OK(done);
  const std::string text = RepairText(request, *done, "cluster.toml");
  EXPECT_EQ(ExitCodeOf(request, *done), 3);
  EXPECT_THAT(text, HasSubstr("all files are whole, and something is left to do: see above\n"));
  EXPECT_THAT(text, HasSubstr("uploads under way, or what clients left that died"));
  EXPECT_THAT(text, Not(HasSubstr("everything is in order")));
  // And how much that is.
  EXPECT_GT(done->files.check.unused_shards, 0u);
  EXPECT_EQ(done->files.check.unused_bytes % (64 << 10), 0u);
  EXPECT_GE(done->files.check.unused_bytes, done->files.check.unused_shards * (64 << 10));
  Expect({{"status", 1, " shards of uploads under way, or for `pinstripe collect`"},
          {"check", 0, " shards of uploads under way or given up, about "}});
  End(upload);
}

// Its part of the map goes to another device, wherever that is.
TEST_F(StatesTest, ADriveOfTheDriveMapCanBeHadElsewhere) {
  DriveId keeper = 1;
  while (std::ranges::count(plain_, keeper) > 0) ++keeper;
  ASSERT_OK(Drain({keeper}));
  machines_.Replace(keeper);
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(RunRepair(**cluster, machines_.Factory(), {.rebuild = keeper}, Nobody()));
  Expect({{"status", 0, "drained: it keeps a part of the drive map"}});
  ExpectAllIsWell();
}

// ---- May it be stopped?

TEST_F(StatesTest, WhatMayBeStoppedIsToldByTheMapAndByWhatIsAway) {
  const auto ask = [&](const std::vector<std::string>& what) {
    auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    const auto answer = MayStop(**cluster, SurveyOf(**cluster), what);
    EXPECT_OK(answer);
    return *answer;
  };
  using enum StopAnswer::Verdict;
  // Nobody has looked yet.
  EXPECT_THAT(ask({"1"}).risks, testing::ElementsAre(HasSubstr("nobody has looked where")));
  (void)Run("check");
  const StopAnswer two = ask({"1", "2"});
  EXPECT_EQ(two.verdict, kYes);
  EXPECT_EQ(two.drives, (std::vector<DriveId>{1, 2}));
  EXPECT_EQ(two.now.reading.drives, 2);
  EXPECT_EQ(two.then.reading.drives, 0);
  const StopAnswer all = ask({"1", "2", "3", "4", "5"});
  EXPECT_EQ(all.verdict, kNo);
  EXPECT_EQ(ExitCodeOf(all), 1);
  ASSERT_FALSE(all.risks.empty());
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_FAILS(MayStop(**cluster, SurveyOf(**cluster), {"1", "nowhere"}), EINVAL);
  EXPECT_FAILS(MayStop(**cluster, SurveyOf(**cluster), {"10"}), EINVAL);
  // The same that is away already changes nothing.
  machines_.SetDown(1, true);
  EXPECT_EQ(ask({"1", "2"}).verdict, kYes);
  EXPECT_EQ(ask({"1"}).now.reading.drives, 1);
  EXPECT_EQ(ask({"1"}).then.reading.drives, 1);
  // Nobody knows what lacks shards.
  (void)Run("check");
  const StopAnswer unknown = ask({"2"});
  EXPECT_EQ(unknown.verdict, kUnknown);
  EXPECT_EQ(ExitCodeOf(unknown), 2);
  EXPECT_THAT(unknown.risks,
              testing::ElementsAre(HasSubstr("bring back the drives that are down")));
  machines_.SetDown(1, false);
  EXPECT_THAT(ask({"2"}).risks, testing::Contains(HasSubstr("of reach: run `pinstripe repair`")));
  machines_.SetDown(1, true);
  const Survey survey = SurveyOf(**cluster);
  EXPECT_THAT(StopText(two, survey), HasSubstr("yes: drives 1, 2\n"));
  EXPECT_THAT(StopText(two, survey), HasSubstr("the cluster survives not one more drive"));
  EXPECT_THAT(StopText(all, survey), HasSubstr("no: drives 1, 2, 3, 4, 5\nrisk   "));
  EXPECT_THAT(StopJson(unknown), HasSubstr("\"answer\": \"unknown\""));
}

// A look that compares no names says nothing of their copies, and a repair that could not bring all
// up to date has left something.
TEST_F(StatesTest, CopiesOfNamesThatWereNotComparedStayBehind) {
  const auto behind = [&] {
    auto cluster = machines_.Open();
    return FindLastLook(**cluster, LookKind::kListed)->replicas_behind;
  };
  machines_.SetDown(plain_[0], true);
  const Answer repair = Run("repair");
  EXPECT_NE(repair.exit_code, 0) << repair.text;
  EXPECT_THAT(repair.text, Not(HasSubstr("everything is in order")));
  EXPECT_GT(behind(), 0u);
  machines_.SetDown(plain_[0], false);
  for (const char* const command : {"check", "verify", "repair --dry-run", "scrub --dry-run"}) {
    (void)Run(command);
    EXPECT_GT(behind(), 0u) << command;
    EXPECT_THAT(Run("status").text, HasSubstr("names and inodes lack copies"));
  }
  Expect({{"repair", 0, "everything is in order"}, {"status", 0, "healthy"}});
  EXPECT_EQ(behind(), 0u);
}

// A change of drives alone does not bring all names up to date; where some lack copies it does.
TEST_F(StatesTest, AChangeOfDrivesComparesNamesWhereSomeLackCopies) {
  machines_.SetDown(plain_[0], true);
  (void)Run("repair");
  machines_.SetDown(plain_[0], false);
  EXPECT_THAT(Run("status").text, HasSubstr("names and inodes lack copies"));
  Expect({{"rebalance", 0, "everything is in order"}, {"status", 0, "healthy"}});
}

// Drives that are down for the store alone still serve reads, so that all files are whole.
TEST_F(StatesTest, ARepairThatCouldNotWriteIsNotInOrder) {
  RepairOutcome done;
  EXPECT_EQ(ExitCodeOf({}, done), 0);
  EXPECT_THAT(RepairText({}, done, "cluster.toml"), HasSubstr("everything is in order"));
  done.registers.failed = 1;
  EXPECT_EQ(ExitCodeOf({}, done), 3);
  EXPECT_THAT(RepairText({}, done, "cluster.toml"), HasSubstr("something is left to do"));
  done.registers = {};
  done.unsettled = Status(EIO, "drive 3 is away");
  EXPECT_EQ(ExitCodeOf({}, done), 3);
}

// A host of three drives of nine is three of three hosts' drives to nobody.
TEST(StopStates, AHostMayBeStoppedWhereItsDrivesElsewhereMayNot) {
  SetLogLevel(LogLevel::kError);
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 9, .layout = {4, 2, 64 << 10}, .groups = 64});
  for (size_t i = 0; i < 9; ++i) {
    machines.config().drives[i].domain = std::string(1, static_cast<char>('a' + i / 3));
  }
  ASSERT_OK(machines.Format());
  auto cluster = machines.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
  LastPlaces places{.at = sim.WallClock(), .epoch = 1};
  ASSERT_OK(NoteLastPlaces(**cluster, places));
  Survey survey = SurveyOf(**cluster);
  EXPECT_EQ(MayStop(**cluster, survey, {"b"})->verdict, StopAnswer::Verdict::kYes);
  EXPECT_EQ(MayStop(**cluster, survey, {"b"})->drives, (std::vector<DriveId>{4, 5, 6}));
  EXPECT_EQ(MayStop(**cluster, survey, {"1", "4", "7"})->verdict, StopAnswer::Verdict::kNo);
  EXPECT_EQ(MayStop(**cluster, survey, {"b", "1"})->verdict, StopAnswer::Verdict::kNo);
  for (const DriveId id : {4, 5, 6}) machines.SetDown(id, true);
  survey = SurveyOf(**cluster);
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_THAT(SurveyText(survey), HasSubstr("degraded: all 3 drives of b are down"));
  EXPECT_EQ(MayStop(**cluster, survey, {"a"})->verdict, StopAnswer::Verdict::kNo);
  EXPECT_EQ(MayStop(**cluster, survey, {"5"})->verdict, StopAnswer::Verdict::kYes);
  for (const DriveId id : {4, 5, 6}) machines.SetDown(id, false);
  // What was written meanwhile may lie several times on one host, and only a look tells.
  EventLog events(**cluster);
  Event event{.kind = EventKind::kDriveWent, .actor = {}, .drives = {4}};
  events.Add(std::move(event));
  ASSERT_TRUE(events.Flush());
  const auto risks = [&](const std::string& host) {
    return MayStop(**cluster, SurveyOf(**cluster), {host})->risks;
  };
  EXPECT_THAT(risks("a"), testing::ElementsAre(HasSubstr("drives were away since")));
  sim.Sleep(std::chrono::minutes(1));
  places.at = sim.WallClock();
  places.displaced_blocks = 3;
  ASSERT_OK(NoteLastPlaces(**cluster, places));
  EXPECT_THAT(risks("a"), testing::ElementsAre(HasSubstr("3 blocks have shards that are not at")));
  places.displaced_blocks = 0;
  ASSERT_OK(NoteLastPlaces(**cluster, places));
  EXPECT_THAT(risks("a"), testing::IsEmpty());
  // A drive that is full takes no new data. Of nine, of which three are away, six are needed.
  survey = SurveyOf(**cluster);
  for (DriveReport& drive : survey.drives) {
    if (drive.id >= 4 && drive.id <= 5) drive.info->portion_full = 0.97;
  }
  EXPECT_EQ(MayStop(**cluster, survey, {"a"})->verdict, StopAnswer::Verdict::kNo);
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  // Events that are lost may have told of drives that were away.
  Event dropped{.kind = EventKind::kDropped, .at = places.at + 1, .actor = {}};
  dropped.count = 3;
  events.Add(std::move(dropped));
  ASSERT_TRUE(events.Flush());
  EXPECT_THAT(risks("a"), testing::ElementsAre(HasSubstr("drives were away since")));
  // A directory without any redundancy.
  places.stripes = {{1, 0}};
  ASSERT_OK(NoteLastPlaces(**cluster, places));
  EXPECT_THAT(risks("a"), testing::Not(testing::IsEmpty()));
  EXPECT_EQ(MayStop(**cluster, SurveyOf(**cluster), {"a"})->verdict, StopAnswer::Verdict::kNo);
  places = {.at = sim.WallClock(), .epoch = 1};
  ASSERT_OK(NoteLastPlaces(**cluster, places));
  sim.Sleep(std::chrono::hours(24 * 8));
  EXPECT_THAT(risks("a"), testing::ElementsAre(HasSubstr("more than a week ago")));
  SetLogLevel(LogLevel::kInfo);
}

// As far as the map is concerned: whenever it says that all can be read, all can be.
TEST_F(StatesTest, WhatIsSaidToBeReadableIs) {
  size_t readable = 0;
  for (DriveId a = 1; a <= 7; ++a) {
    const std::vector<DriveId> away{a, static_cast<DriveId>(a + 1), static_cast<DriveId>(a + 2)};
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    const Margin margin = MarginOf(**cluster, SurveyOf(**cluster), {away.begin(), away.end()});
    if (margin.unreadable > 0) continue;
    ++readable;
    ExpectAllHoldsWithout(away);
  }
  RecordProperty("readable", static_cast<int>(readable));
  ExpectAllHoldsWithout({plain_[0], plain_[1]});
}

// Each reads as what it is, with its own advice, and none of them is an alarm.
TEST(OtherDrives, ADrainedHostAndDrivesThatNobodyHasAddedAreNotDown) {
  SetLogLevel(LogLevel::kError);
  SimRuntime sim(1);
  TestCluster machines(sim, {.drives = 9, .layout = {2, 1, 64 << 10}, .groups = 16, .replicas = 3});
  for (size_t i = 0; i < 9; ++i) {
    machines.config().drives[i].domain = std::string(1, static_cast<char>('a' + i / 2));
  }
  const DriveConfig newcomer = machines.config().drives.back();
  machines.config().drives.pop_back();
  ASSERT_OK(machines.Format());
  machines.config().drives.push_back(newcomer);
  std::set<DriveId> drained;
  {
    auto cluster = machines.Open();
    ASSERT_OK(cluster);
    ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
    const auto& map_drives = (*cluster)->map_drives();
    for (DriveId id = 1; id <= 7 && drained.empty(); id += 2) {
      if (std::ranges::count(map_drives, id) + std::ranges::count(map_drives, id + 1) > 0) continue;
      drained = {id, static_cast<DriveId>(id + 1)};
    }
    ASSERT_EQ(drained.size(), 2u) << "choose another seed for the placement";
    ASSERT_OK(RunRepair(
        **cluster, machines.Factory(),
        {.change = MapChange::kDrain, .drives = {drained.begin(), drained.end()}},
        {.progress = [](std::string_view, double, uint64_t) {}, .say = [](const std::string&) {}}));
  }
  for (const DriveId id : drained) machines.SetDown(id, true);
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  const Survey survey = SurveyOf(**cluster);
  const std::string text = SurveyText(survey);
  EXPECT_EQ(HealthOf(survey), Health::kHealthy) << text;
  EXPECT_EQ(survey.drives[8].Condition(), DriveCondition::kNotAdded);
  for (const DriveId id : drained) {
    EXPECT_EQ(survey.drives[id - 1u].Condition(), DriveCondition::kDrained);
  }
  EXPECT_THAT(text, HasSubstr("not added: `pinstripe expand` brings it in\n"));
  EXPECT_THAT(text, HasSubstr("drained: it may be taken out of the configuration, and away\n"));
  EXPECT_THAT(text, HasSubstr(": drained\n"));
  EXPECT_THAT(text, HasSubstr(": 1 not added yet\n"));
  EXPECT_THAT(text, Not(HasSubstr("DOWN")));
  EXPECT_THAT(text, Not(HasSubstr("pinstripe format")));
  EXPECT_THAT(text, Not(HasSubstr("pinstripe rebuild")));
  SetLogLevel(LogLevel::kInfo);
}

// The file of one client says something else, or lists a drive that nobody has added.
TEST_F(StatesTest, WhatTheFileSaysOtherwiseIsTold) {
  machines_.config().drives[0].domain = "elsewhere";
  machines_.config().layout = {3, 2, 64 << 10};
  Expect({{"status", 0, "layout.data_shards is 3 in the file and 2 in the cluster"},
          {"status", 0, "domain of drive 1 is elsewhere in the file and not given in the cluster"},
          {"status", 0, "\"differences\""}});
}

TEST_F(StatesTest, WhatIsMovedHasToFit) {
  TestCluster small(
      sim_, {.drives = 6, .layout = {2, 1, 64 << 10}, .groups = 16, .drive_bytes = 2 << 20});
  ASSERT_OK(small.Format());
  auto cluster = small.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(FileSystem::Format(**cluster, {10, 20}, 0755));
  auto fs = FileSystem::Open(**cluster, {});
  ASSERT_OK(fs);
  auto file = (*fs)->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, 6 << 20))));
  ASSERT_OK((*file)->Close());
  RepairRequest drain{.change = MapChange::kDrain, .drives = {1, 2, 3}};
  const auto refused = RunRepair(**cluster, small.Factory(), drain, Nobody());
  ASSERT_FAILS(refused, ENOSPC);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("Nothing was changed"));
  EXPECT_EQ((*small.Open())->map().epoch, 1u);
  drain.drives = {1};
  EXPECT_OK(RunRepair(**cluster, small.Factory(), drain, Nobody()));
  fs->reset();
}

TEST_F(StatesTest, WhoWasKilledIsShownToGiveNoSignOfLife) {
  {
    const auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    DriveClaim claim(**cluster, plain_[0], DriveWork::kDrain, {.host = "box1", .process = 77});
    ASSERT_OK(claim.Take());
    life->Crash();
  }
  DrainAndDie(plain_[0]);
  sim_.Sleep(seconds(40));
  Expect({{"status", 1, "process 77 on box1 since "},
          {"status", 1, "with a last sign of life at "},
          {"status", 1, "\"alive\": false"},
          {"status", 1, "nobody drains"}});
}

// A lost drive that nobody has drained.
TEST_F(StatesTest, AnActiveDriveThatIsNotListedIsMissingUntilItIsDrained) {
  const DriveId lost = plain_[0];
  machines_.SetDown(lost, true);
  const DriveConfig config = Unlist(lost);
  const std::string missing = fmt::format("drive {}: the drive map has it", lost);
  Expect({{"status", 1, "degraded: 1 of 9 drives is missing in the configuration"},
          {"status", 1, "or, if it is lost, give it up with `pinstripe drain`"},
          {"check", 2, missing},
          {"verify", 2, missing},
          {"scrub", 2, missing},
          {"repair", 2, missing},
          {"collect", 1, missing},
          {"rebalance", 2, missing}});
  // It may be a mistake: nothing was moved off it.
  ListAgain(config);
  machines_.SetDown(lost, false);
  // Nobody has compared its names with those of the others since.
  Expect({{"verify", 0, "everything is in order"},
          {"status", 1, "degraded: names and inodes lack copies"},
          {"repair", 0, "everything is in order"}});
  ExpectAllIsWell();
  machines_.SetDown(lost, true);
  Unlist(lost);
  ASSERT_OK(Drain({lost}));
  ExpectAllIsWell();
  ExpectAllHoldsWithout({plain_[1], plain_[2]});
}

TEST_F(StatesTest, ALostDriveThatIsListedIsNotRetiredBeforeItIsNot) {
  const DriveId lost = plain_[0];
  machines_.SetDown(lost, true);
  ASSERT_OK(Drain({lost}));
  Expect({{"status", 1, "DOWN"},
          {"rebalance", 2,
           fmt::format("drive {} is away: what it holds could not be looked at. If "
                       "it is lost, take it out of cluster.toml, and run "
                       "`pinstripe repair`",
                       lost)}});
  Unlist(lost);
  Expect({{"status", 1, "MISSING"}, {"repair", 0, "everything is in order"}});
  ExpectAllIsWell();
}

TEST_F(StatesTest, ADriveOfTheDriveMapHasToStay) {
  DriveId keeper = 1;
  while (std::ranges::count(plain_, keeper) > 0) ++keeper;
  ASSERT_OK(Drain({keeper}));
  Expect({{"status", 0, "drained: it keeps a part of the drive map, and has to stay"},
          {"status", 0, "\"keeps_drive_map\": true"},
          {"rebalance", 0, "is empty but for its part of the drive map: it has to stay"}});
  ExpectAllIsWell();
  machines_.SetDown(keeper, true);
  Unlist(keeper);
  const std::string words = "it keeps a part of the drive map itself. List it again";
  Expect({{"status", 1, words}, {"check", 3, words}, {"repair", 3, words}, {"verify", 3, words}});
}

TEST_F(StatesTest, WhatIsOutOfReachIsNotCalledLost) {
  std::vector<DriveConfig> configs;
  for (int i = 0; i < 3; ++i) DrainAndDie(plain_[static_cast<size_t>(i)]);
  for (int i = 0; i < 3; ++i) {
    machines_.SetDown(plain_[static_cast<size_t>(i)], true);
    configs.push_back(Unlist(plain_[static_cast<size_t>(i)]));
  }
  Expect({{"status", 2, "unavailable: some files cannot be read"},
          {"check", 1, "(out-of-reach)"},
          {"verify", 1, "(out-of-reach)"},
          {"repair", 1, "(out-of-reach)"}});
  EXPECT_THAT(Run("check").text, Not(HasSubstr("lost-data")));
  for (const DriveConfig& config : configs) {
    machines_.SetDown(config.id, false);
    ListAgain(config);
  }
  // What was written again elsewhere is there twice.
  Expect({{"rebalance", 3, "uploads under way, or what clients left that died"},
          {"collect", 0, ""},
          {"rebalance", 0, "everything is in order"}});
  ExpectAllIsWell();
}

// What was found of it once does not count any more.
TEST_F(StatesTest, ARetiredDriveThatWasUsedAgainIsNotRetired) {
  const DriveId drive = plain_[0];
  ASSERT_OK(Drain({drive}));
  auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_TRUE((*cluster)->IsRetired(drive));
  ASSERT_OK(RunRepair(**cluster, machines_.Factory(),
                      {.change = MapChange::kExpand, .drives = {drive}}, Nobody()));
  EXPECT_FALSE((*cluster)->IsRetired(drive));
  EXPECT_FALSE((*machines_.Open())->IsRetired(drive));
  DrainAndDie(drive);
  EXPECT_FALSE((*machines_.Open())->IsRetired(drive));
  machines_.SetDown(drive, true);
  Unlist(drive);
  Expect({{"status", 1, "MISSING"}, {"repair", 0, "everything is in order"}});
  ExpectAllIsWell();
}

// Before there were retirements, drives were drained, and taken away.
TEST_F(StatesTest, ADriveThatWasTakenAwayLongAgoIsFoundNotToBeNeededByARepair) {
  const DriveId drive = plain_[0];
  ASSERT_OK(Drain({drive}));
  {
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    const RegisterName name{kMapGroup, RetirementKey(drive)};
    const auto seen = (*cluster)->registers().Read(name);
    ASSERT_OK(seen);
    ASSERT_OK((*cluster)->registers().Change(name, *seen, std::nullopt));
  }
  Unlist(drive);
  Expect({{"status", 1, "MISSING"},
          {"check", 3, "is missing"},
          {"repair", 0, "0 blocks looked into"}});
  ExpectAllIsWell();
}

TEST_F(StatesTest, WhatAnUploadHasOnADriveKeepsItFromBeingRetired) {
  const DriveId drained = plain_[0];
  Upload upload = BeginUpload();
  ASSERT_OK(Drain({drained}));
  Expect({{"status", 1, "up, draining: "}});
  EXPECT_FALSE((*machines_.Open())->IsRetired(drained));
  End(upload);
  Expect({{"rebalance", 0, fmt::format("drive {} is empty: take it out", drained)}});
  Unlist(drained);
  ExpectAllIsWell();
  ExpectAllHoldsWithout({plain_[1], plain_[2]});
}

// Of a drive that does not answer nobody can tell which uploads had something there. A check finds
// those that were committed later, whatever was said before.
TEST_F(StatesTest, AnUploadThatHadSomethingOnALostDriveIsFoundByACheck) {
  const DriveId lost = plain_[0];
  Upload upload = BeginUpload();
  machines_.SetDown(lost, true);
  Unlist(lost);
  ASSERT_OK(Drain({lost}));
  ExpectAllIsWell();
  End(upload);
  Expect({{"check", 3, "files with missing shards"},
          {"verify", 3, "blocks are not whole"},
          {"repair", 0, "everything is in order"}});
  ExpectAllIsWell();
  ExpectAllHoldsWithout({plain_[1], plain_[2]});
}

// ---- Each state, and each command

struct State {
  std::string name;
  std::function<void(class EveryState&)> make;
  std::vector<Said> says;
};
void PrintTo(const State& state, std::ostream* out) { *out << state.name; }

class EveryState : public StatesTest, public testing::WithParamInterface<State> {
 public:
  std::string PathOfRegister(uint64_t object, const std::string& key) {
    const auto cluster = machines_.Open();
    return Writer()
        .Raw(ClusterPrefix("test"))
        .Raw("R")
        .U32((*cluster)->GroupOfObject(object))
        .Raw(key)
        .Take();
  }
  std::string RegisterOfInode(const std::string& path) {
    const Host host = NewHost();
    const InodeId id = host.fs->Resolve(path)->inode;
    return PathOfRegister(id, Writer().Raw("I").U64(id).Take());
  }
  // On so many drives of those that have it.
  void Remove(const std::string& key, size_t copies) {
    for (DriveId drive = 1; drive <= 9 && copies > 0; ++drive) {
      Gather<Status> gather(sim_);
      machines_.memory(drive).Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                                     gather.Ask(0));
      if (gather.Next(Time::max())->value.ok()) --copies;
    }
  }
  // So many shards of one block of a large file.
  void RemoveShards(size_t count) {
    const std::string large = fmt::format("/file{}", 23 * kTestBlock + 77);
    const Host host = NewHost();
    const InodeId id = host.fs->Resolve(large)->inode;
    for (DriveId drive = 1; drive <= 9 && count > 0; ++drive) {
      for (const std::string& key : ShardsOn(drive)) {
        const auto shard = ParseShardKey(ClusterPrefix("test"), key);
        if (shard->first.object != id || shard->first.block != 3 || count == 0) continue;
        Remove(key, 1);
        --count;
      }
    }
  }
  DriveId plain(size_t which) const { return plain_[which]; }
  void Down(DriveId drive) { machines_.SetDown(drive, true); }
  void BeginDrain(DriveId drive) { DrainAndDie(drive); }
  void EndDrain(DriveId drive) { ASSERT_OK(Drain({drive})); }
  void TakeOut(DriveId drive) { Unlist(drive); }
  void Swap(DriveId a, DriveId b) {
    auto& drives = machines_.config().drives;
    std::swap(std::ranges::find(drives, a, &DriveConfig::id)->addresses,
              std::ranges::find(drives, b, &DriveConfig::id)->addresses);
  }
  // What others keep there takes nearly all of it.
  void Fill(DriveId drive) {
    const std::string megabyte(1 << 20, 'x');
    for (uint64_t i = 0; i < 31; ++i) {
      Gather<Status> gather(sim_);
      machines_.memory(drive).Put(
          {.key = fmt::format("other {}", i), .value = SharedBytes(megabyte)}, Time::max(),
          gather.Ask(0));
      ASSERT_OK(gather.Next(Time::max())->value);
    }
  }
  void CheckWhileDown(DriveId drive) {
    machines_.SetDown(drive, true);
    (void)Run("check");
    machines_.SetDown(drive, false);
  }
};

TEST_P(EveryState, IsCalledByItsName) {
  GetParam().make(*this);
  Expect(GetParam().says);
}

const std::string kInOrder = "everything is in order";

// Of each state: what each command says of it. The last status comes after a check.
const std::vector<State> kStates = {
    {"healthy",
     [](EveryState&) {},
     {{"status", 0, "healthy"},
      {"check", 0, kInOrder},
      {"verify", 0, kInOrder},
      {"scrub", 0, kInOrder},
      {"repair --dry-run", 0, kInOrder},
      {"repair", 0, kInOrder},
      {"collect", 0, ""},
      {"status", 0, "everything was in order"}}},
    {"drive_away",
     [](EveryState& test) { test.Down(test.plain(0)); },
     {{"status", 1, "degraded: 1 of 9 drives is down"},
      {"check", 2, "not everything could be looked at"},
      {"verify", 2, "not everything could be looked at"},
      {"scrub", 2, "not everything could be looked at"},
      {"repair --dry-run", 2, "not everything could be looked at"},
      {"repair", 2, "not everything could be looked at"},
      {"collect", 1, "stays"},
      {"status", 1, "NOT KNOWN"}}},
    {"wrong_identity",
     [](EveryState& test) { test.Swap(test.plain(0), test.plain(1)); },
     {{"status", 1, "degraded: 2 of 9 drives are down"},
      {"check", 2, "not everything could be looked at"},
      {"verify", 2, "not everything could be looked at"},
      {"repair", 2, "not everything could be looked at"},
      {"collect", 1, "stays"},
      {"status", 1, "NOT KNOWN"}}},
    {"registers_short",
     [](EveryState& test) {
       test.Remove(test.RegisterOfInode("/file10"), 1);
       test.Down(test.plain(0));
     },
     {{"repair", 2, "replicas were behind"},
      {"status", 1, "degraded: "},
      {"check", 2, "not everything could be looked at"}}},
    {"data_short",
     [](EveryState& test) { test.RemoveShards(2); },
     {{"check", 3, "files with missing shards"},
      {"status", 1, "degraded: files lack shards"},
      {"repair --dry-run", 3, ""},
      {"verify", 3, ""},
      {"status", 1, "SHORT of shards"},
      {"collect", 0, ""},
      {"repair", 0, kInOrder},
      {"verify", 0, kInOrder},
      {"status", 0, "healthy"}}},
    {"data_lost",
     [](EveryState& test) { test.RemoveShards(3); },
     {{"check", 1, "(lost-data)"},
      {"status", 2, "damaged: something is lost"},
      {"verify", 1, "(lost)"},
      {"scrub", 1, "(lost)"},
      {"repair --dry-run", 1, "(lost-data)"},
      {"repair", 1, "(lost-data)"},
      {"collect", 0, ""},
      {"status", 2, "damaged: something is lost"}}},
    {"inode_lost",
     [](EveryState& test) {
       test.Remove(test.RegisterOfInode(fmt::format("/file{}", 23 * kTestBlock + 77)), 5);
     },
     {{"check", 1, "1 inodes are lost"},
      {"status", 2, "damaged: something is lost"},
      {"verify", 1, "(lost-inode)"},
      {"scrub", 1, "(lost-inode)"},
      {"repair --dry-run", 1, "(lost-inode)"},
      {"repair", 1, "(lost-inode)"},
      {"collect", 1, "what is left of 1 lost inodes stays"},
      {"status", 2, "LOST"}}},
    {"draining",
     [](EveryState& test) { test.BeginDrain(test.plain(0)); },
     {{"status", 1, "degraded: drives that are being drained: 1"},
      {"check", 3, "which is being drained"},
      {"verify", 3, "which is being drained"},
      {"repair --dry-run", 3, "which is being drained"},
      {"collect", 1, "4 of its 5 drives answered"},  // the one that takes over has no say yet
      {"rebalance", 0, kInOrder},
      {"status", 0, "healthy"}}},
    {"drained",
     [](EveryState& test) {
       test.EndDrain(test.plain(0));
       test.TakeOut(test.plain(0));
     },
     {{"status", 0, "healthy"},
      {"check", 0, kInOrder},
      {"verify", 0, kInOrder},
      {"repair", 0, kInOrder},
      {"collect", 0, ""}}},
    {"full",
     [](EveryState& test) { test.Fill(test.plain(0)); },
     {{"status", 1, "degraded: drives that are full: 1"},
      {"check", 3, "full: drive "},
      {"verify", 3, "full: drive "},
      {"scrub", 3, "full: drive "},
      {"repair", 3, "full: drive "},
      {"collect", 0, ""}}},
    {"unknown",
     [](EveryState& test) { test.CheckWhileDown(test.plain(0)); },
     {{"status", 1, "degraded: not everything could be looked at"},
      {"check", 0, kInOrder},
      {"status", 0, "healthy"}}},
};

INSTANTIATE_TEST_SUITE_P(Cluster, EveryState, testing::ValuesIn(kStates),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pinstripe
