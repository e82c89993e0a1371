// The drive map changes under files that are in use: nobody reads a wrong byte, and in the end
// everything is where the newest epoch wants it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/gather.h"
#include "cluster/map/history.h"
#include "cluster/map_group.h"
#include "cluster/membership/drive_contents.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/rebuild.h"
#include "tests/fs/fs_test_base.h"
#include "tests/support/forwarding_drive.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"
#include "upkeep/whereabouts.h"

namespace pinstripe {
namespace {

using testing::IsEmpty;

constexpr DriveId kNew = 7;

class EpochsTest : public FsTest {
 protected:
  // Six drives that are formatted, and one that is not.
  EpochsTest() : FsTest({.drives = 7, .layout = {2, 1, 64 << 10}, .groups = 16, .replicas = 3}) {
    SetLogLevel(LogLevel::kError);
    options_ = kSmallPages;
    new_drive_ = machines_.config().drives.back();
    machines_.config().drives.pop_back();
  }

  void MakeFiles() {
    for (const size_t size :
         {size_t{10}, size_t{30'000}, size_t{kTestBlock}, size_t{23 * kTestBlock + 77}}) {
      const std::string name = fmt::format("file{}", size);
      files_[name] = Pattern(size, size);
      Make(name, files_[name]);
    }
    files_["pieces"] = MakeInPieces("pieces");
  }

  void ExpectAllHolds(FileSystem* fs = nullptr) {
    for (const auto& [name, contents] : files_) {
      EXPECT_TRUE(Contents("/" + name, fs) == contents) << name;
    }
  }

  // As somebody finds it who knows the newest epoch.
  DriveContents On(DriveId drive) {
    const auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    const auto contents = ListDrive(**cluster, drive);
    EXPECT_OK(contents);
    return contents.value_or(DriveContents());
  }

  static MappedDrive Drained(DriveId id) {
    return {.id = id, .weight = 100, .state = DriveState::kDraining};
  }

  // By somebody else than the host.
  Status Change(const MappedDrive& drive, RepairReport* repaired = nullptr,
                std::shared_ptr<ClientLife> life = nullptr) {
    auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return cluster.error();
    const auto changed = ChangeDrives(**cluster, machines_.Factory(life), {drive});
    if (!changed.has_value()) return changed.error();
    Repairer::Options options;
    if (drive.state == DriveState::kDraining) options.without = {drive.id};
    Repairer repairer(**cluster, options);
    const RepairReport& report = repairer.Run();
    if (repaired != nullptr) *repaired = report;
    return {};
  }

  Status ChangeAll(const std::vector<MappedDrive>& drives) {
    auto cluster = machines_.Open();
    if (!cluster.has_value()) return cluster.error();
    const auto changed = ChangeDrives(**cluster, machines_.Factory(), drives);
    return changed.has_value() ? Status() : changed.error();
  }
  void ExpectFirstEpoch() {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    EXPECT_EQ((*cluster)->map().epoch, 1u);
    for (const MappedDrive& drive : (*cluster)->map().drives) {
      EXPECT_EQ(drive.state, DriveState::kActive) << drive.id;
    }
  }

  static void ExpectAllAtHome(const RepairReport& report) {
    EXPECT_THAT(report.check.not_checked, IsEmpty());
    EXPECT_EQ(report.check.displaced_blocks, 0u);
    EXPECT_THAT(report.failures, IsEmpty());
    EXPECT_THAT(report.not_whole, IsEmpty());
    for (const Finding& finding : report.check.findings) {
      EXPECT_EQ(finding.severity, Severity::kLeftover) << finding.where << ": " << finding.what;
    }
  }

  DriveConfig new_drive_;
  std::map<std::string, std::string> files_;
};

// ---- Many epochs

class ManyEpochsTest : public EpochsTest {
 protected:
  // A drive is as large as it was, or not: as often as that.
  void MakeEpochs(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_OK(ChangeAll({{.id = 3, .weight = 100u + ++changes_ % 2}}));
    }
  }
  uint64_t RequestsOfAll() {
    uint64_t requests = 0;
    for (size_t id = 1; id <= machines_.size(); ++id) {
      requests += machines_.drive(static_cast<DriveId>(id)).requests().total();
    }
    return requests;
  }
  uint64_t RequestsOfOpening() {
    const uint64_t before = RequestsOfAll();
    const auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    EXPECT_EQ((*cluster)->map().epoch, 1u + changes_);
    return RequestsOfAll() - before;
  }
  // Of eight changes, so that the history is written as often in each eight.
  uint64_t RequestsOfChanging() {
    const uint64_t before = RequestsOfAll();
    MakeEpochs(8);
    return RequestsOfAll() - before;
  }
  RegisterName History() const { return {kMapGroup, HistoryKey()}; }
  void SetHistory(std::optional<std::string> value) {
    RegisterStore& registers = host_.cluster->registers();
    const auto now = registers.Read(History());
    ASSERT_OK(now);
    ASSERT_TRUE(registers.Change(History(), *now, std::move(value)).applied());
  }

  uint32_t changes_ = 0;
};

TEST_F(ManyEpochsTest, OpeningAsksNoMoreAfterFiftyThanAfterFive) {
  MakeFiles();
  MakeEpochs(5);
  const uint64_t after_few = RequestsOfOpening();
  MakeEpochs(45);
  // Those that the history lacks may be some more or less, and a drive may be brought up to date.
  EXPECT_LE(RequestsOfOpening(), after_few + 3 * 5);

  // Blocks that were written under the first epoch are found under it.
  Host host = NewHost();
  ExpectAllHolds(host.fs.get());
}

TEST_F(ManyEpochsTest, AChangeAsksNoMoreAfterFiftyThanAfterFive) {
  MakeFiles();
  MakeEpochs(5);
  const uint64_t after_few = RequestsOfChanging();
  MakeEpochs(40);
  EXPECT_LE(RequestsOfChanging(), after_few + after_few / 10);
  ExpectAllHolds();
}

TEST_F(ManyEpochsTest, WithoutAHistoryAllIsReadAndItIsWrittenAnew) {
  MakeFiles();
  MakeEpochs(25);
  const uint64_t with = RequestsOfOpening();
  SetHistory(std::nullopt);
  EXPECT_GT(RequestsOfOpening(), with);
  ASSERT_OK(KeepHistory(host_.cluster->registers(), host_.cluster->config()));
  EXPECT_LE(RequestsOfOpening(), with);
}

// It says nothing that the registers of the epochs do not say.
TEST_F(ManyEpochsTest, AHistoryThatCannotBeIsNotUsed) {
  MakeFiles();
  MakeEpochs(9);
  DriveMap other = host_.cluster->map();
  other.epoch = 1;
  for (const std::string& bad : {std::string("nonsense"), EncodeHistory({other})}) {
    SetHistory(bad);
    Host host = NewHost();
    EXPECT_EQ(host.cluster->map().epoch, 10u);
    ExpectAllHolds(host.fs.get());
  }
  ASSERT_OK(KeepHistory(host_.cluster->registers(), host_.cluster->config()));
  EXPECT_OK(DecodeHistory(*host_.cluster->registers().Read(History())->value));
}

TEST_F(ManyEpochsTest, WhoDiesWritingTheHistoryLeavesItToTheNext) {
  MakeFiles();
  MakeEpochs(9);
  bool died = true;
  for (uint64_t requests = 0; died; ++requests) {
    SCOPED_TRACE(requests);
    SetHistory(std::nullopt);
    const auto life = std::make_shared<ClientLife>();
    const auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    life->CrashAfter(requests);
    (void)KeepHistory((*cluster)->registers(), (*cluster)->config());
    died = life->crashed();
    Host host = NewHost();
    EXPECT_EQ(host.cluster->map().epoch, 10u);
    ExpectAllHolds(host.fs.get());
    ASSERT_OK(KeepHistory(host.cluster->registers(), host.cluster->config()));
    const auto history = host.cluster->registers().Read(History());
    ASSERT_OK(history);
    const auto epochs = DecodeHistory(history->value.value_or(""));
    ASSERT_OK(epochs);
    EXPECT_EQ(epochs->back().epoch, 10u);
  }
}

// Blocks are stored, and their file is not committed yet. Nothing on the drives tells that somebody
// is about to name an epoch of long ago, and nothing keeps him from it.
TEST_F(ManyEpochsTest, AFileThatIsCommittedLateNamesTheEpochOfItsBlocks) {
  MakeFiles();
  Host away = NewHost();
  auto file = away->Create(kRootInode, "late", {});
  ASSERT_OK(file);
  files_["late"] = Pattern(5, 9 * kTestBlock);
  ASSERT_OK((*file)->Write(0, AsBytes(files_["late"])));
  sim_.Sleep(std::chrono::seconds(1));  // until the blocks are stored

  ASSERT_OK(Change(Drained(4)));
  MakeEpochs(50);
  ASSERT_OK(Change(Drained(5)));
  const Host host = NewHost();
  Collector(*host.cluster, {}).Run();
  const Epoch newest = host.cluster->map().epoch;
  EXPECT_GT(newest, 50u);

  EXPECT_EQ(away.cluster->map().epoch, 1u);
  const InodeId id = (*file)->inode();
  ASSERT_OK((*file)->Close());
  ASSERT_EQ(InodeOf(id).map->runs().size(), 1u);
  EXPECT_EQ(InodeOf(id).map->runs().front().epoch, 1u);
  EXPECT_EQ(away.cluster->map().epoch, newest);
  ExpectAllHolds(away.fs.get());
  ExpectAllHolds(host.fs.get());

  Repairer repairer(*host.cluster, {});
  ExpectAllAtHome(repairer.Run());
  EXPECT_EQ(InodeOf(id).map->runs().front().epoch, newest);
  EXPECT_EQ(On(4).shards, 0u);
  ExpectAllHolds(NewHost().fs.get());
}

// ---- Drives that come and go

TEST_F(EpochsTest, ADrainedDriveIsEmptyAndNobodyHasNoticed) {
  MakeFiles();
  const auto attributes = fs_->Resolve("/pieces");
  ASSERT_OK(attributes);
  auto open = fs_->Open(attributes->inode, FileSystem::Access::kRead);
  ASSERT_OK(open);
  ASSERT_GT(On(3).shards, 0u);

  RepairReport report;
  ASSERT_OK(Change(Drained(3), &report));
  ExpectAllAtHome(report);
  EXPECT_GT(report.relocated, 0u);
  EXPECT_EQ(report.check.unused_by_drive.contains(3), false);
  EXPECT_EQ(On(3).shards, 0u);
  // What was one run is one again.
  const auto large = fs_->Resolve(fmt::format("/file{}", 23 * kTestBlock + 77));
  ASSERT_OK(large);
  EXPECT_EQ(InodeOf(large->inode).map->runs().size(), 1u);
  EXPECT_EQ(ReadAll(**open), files_["pieces"]);
  ExpectAllHolds();
  EXPECT_EQ(host_.cluster->map().epoch, 2u);

  // What this host writes from now on goes elsewhere.
  files_["later"] = Pattern(9, 5 * kTestBlock);
  Make("later", files_["later"]);
  EXPECT_EQ(On(3).shards, 0u);
  EXPECT_EQ(On(3).registers, 0u);

  // It is not needed any more, and one other drive may be lost besides.
  Host host = NewHost();
  machines_.SetDown(3, true);
  for (const DriveId other : {DriveId{1}, DriveId{2}, DriveId{5}}) {
    machines_.SetDown(other, true);
    ExpectAllHolds(host.fs.get());
    machines_.SetDown(other, false);
  }
}

// While registers move, a new home has no say until it has been given what the others know.
TEST_F(EpochsTest, WhereaboutsCountHomesThatHaveASayAlone) {
  MakeFiles();
  std::vector<InodeId> files;
  for (const auto& [name, contents] : files_) {
    const auto attributes = fs_->Resolve("/" + name);
    ASSERT_OK(attributes);
    files.push_back(attributes->inode);
  }
  machines_.config().drives.push_back(new_drive_);
  bool was_short = false;
  for (uint64_t requests = 0; !was_short && requests < 2000; requests += 20) {
    const auto life = std::make_shared<ClientLife>();
    life->CrashAfter(requests);
    (void)Change({.id = kNew, .weight = 100}, nullptr, life);
    const Host host = NewHost();
    for (const InodeId file : files) {
      const auto found = FindWhereabouts(*host.cluster, file);
      ASSERT_OK(found);
      ASSERT_NE(found->state(), Whereabouts::State::kUnreadable);
      was_short |= found->state() == Whereabouts::State::kShort;
    }
  }
  EXPECT_TRUE(was_short) << "no moment was found at which a home had no say";
}

TEST_F(EpochsTest, ALostDriveCanBeDrained) {
  MakeFiles();
  machines_.SetDown(4, true);
  RepairReport report;
  ASSERT_OK(Change(Drained(4), &report));
  EXPECT_EQ(report.check.displaced_blocks, 0u);
  Host host = NewHost();
  machines_.SetDown(2, true);
  ExpectAllHolds(host.fs.get());
}

TEST_F(EpochsTest, ANewDriveTakesItsShareAndIsFoundByThoseWhoRun) {
  MakeFiles();
  machines_.config().drives.push_back(new_drive_);
  RepairReport report;
  ASSERT_OK(Change({.id = kNew, .weight = 100}, &report));
  ExpectAllAtHome(report);
  EXPECT_GT(On(kNew).shards, 0u);
  EXPECT_GT(On(kNew).registers, 0u);

  files_["later"] = Pattern(9, 20 * kTestBlock);
  Make("later", files_["later"]);
  EXPECT_EQ(host_.cluster->map().epoch, 2u);
  ASSERT_NE(host_.cluster->FindDrive(kNew), nullptr);
  for (const DriveId other : {DriveId{1}, kNew}) {
    machines_.SetDown(other, true);
    ExpectAllHolds();
    machines_.SetDown(other, false);
  }
}

TEST_F(EpochsTest, ADrainedDriveCanBeTakenBack) {
  MakeFiles();
  RepairReport report;
  ASSERT_OK(Change(Drained(3)));
  ASSERT_OK(Change({.id = 3, .weight = 150}, &report));
  ExpectAllAtHome(report);
  ExpectAllHolds();
  Host host = NewHost();
  machines_.SetDown(1, true);
  ExpectAllHolds(host.fs.get());
}

// kill -9 after any number of requests; the next one goes on.
TEST_F(EpochsTest, WhoDiesAnywhereLeavesItToTheNext) {
  MakeFiles();
  bool died = true;
  bool drain = true;
  for (uint64_t requests = 20; died; requests += 1 + requests / 3) {
    SCOPED_TRACE(requests);
    const MappedDrive wanted = drain ? Drained(3) : MappedDrive{.id = 3, .weight = 100};
    drain = !drain;
    const auto life = std::make_shared<ClientLife>();
    life->CrashAfter(requests);
    (void)Change(wanted, nullptr, life);
    died = life->crashed();
    ExpectAllHolds();
    RepairReport report;
    ASSERT_OK(Change(wanted, &report));
    ExpectAllAtHome(report);
    ExpectAllHolds(NewHost().fs.get());
    // The dead may have recorded where shards are now, and not deleted what is of no use any more.
    Collector(*NewHost().cluster, {.older_than = -std::chrono::hours(1)}).Run();
    EXPECT_EQ(On(3).shards == 0, wanted.state == DriveState::kDraining);
  }
}

// Nobody could go on, nor back.
TEST_F(EpochsTest, NoEpochIsMadeThatTooFewHomesWouldBeLeftFor) {
  MakeFiles();
  // A change that needs a drive only as a home that stays.
  const std::shared_ptr<Placement> before = host_.cluster->NewestPlacement();
  std::optional<MappedDrive> wanted;
  DriveId needed = 0;
  for (uint32_t weight = 95; weight > 20 && needed == 0; weight -= 5) {
    for (DriveId id = 1; id <= 6 && needed == 0; ++id) {
      wanted = MappedDrive{.id = id, .weight = weight};
      Placement after(*NextEpoch(before->map(), *wanted, host_.cluster->config().layout.geometry()),
                      before);
      const auto changes = CompareHomes(*before, after);
      ASSERT_OK(changes);
      for (const uint32_t group : changes->groups) {
        for (const DriveId home : after.RegisterHomes(group)) {
          if (home != id && !changes->gaining.contains(home)) needed = home;
        }
      }
    }
  }
  ASSERT_NE(needed, 0);
  machines_.SetDown(needed, true);
  const Status status = Change(*wanted);
  EXPECT_EQ(status.code(), EIO);
  EXPECT_NE(status.message().find("Bring these drives back, or rebuild them, first"),
            std::string::npos)
      << status.message();
  ASSERT_OK(host_.cluster->Refresh());
  EXPECT_EQ(host_.cluster->map().epoch, 1u);
  ExpectAllHolds();
  machines_.SetDown(needed, false);
  ASSERT_OK(Change(*wanted));
}

// A way to a drive for an identity without the permission SETUP.
class WithoutSetup final : public ForwardingDrive {
 public:
  using ForwardingDrive::ForwardingDrive;
  void SetClusterVersion(int64_t, Terms terms, StatusCallback done) override {
    drive().Flush(terms, [done = std::move(done)](const Status&) {
      done(Fail(EACCES, "permission denied: setup"));
    });
  }
};

TEST_F(EpochsTest, NoEpochIsMadeByWhoMayNotShutOutTheEpochBefore) {
  MakeFiles();
  const DriveFactory factory = [inner = machines_.Factory()](
                                   const DriveConfig& config, std::string key,
                                   IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
    auto drive = inner(config, std::move(key), std::move(check));
    if (!drive.has_value()) return drive;
    return std::make_unique<WithoutSetup>(*std::move(drive));
  };
  auto cluster = Cluster::Open(sim_, machines_.config(), factory);
  ASSERT_OK(cluster);
  const auto changed = ChangeDrives(**cluster, factory, {Drained(3)});
  EXPECT_FAILS(changed, EACCES);
  EXPECT_NE(changed.error().message().find("needs the permission SETUP"), std::string::npos)
      << changed.error().message();
  ASSERT_OK((*cluster)->Refresh());
  EXPECT_EQ((*cluster)->map().epoch, 1u);
  ExpectAllHolds();
}

TEST_F(EpochsTest, DirectoriesAreSyncedWithoutTheDrivesThatWereTakenAway) {
  MakeFiles();
  const std::vector<DriveId> map_drives = host_.cluster->map_drives();
  std::vector<DriveId> gone;
  for (DriveId id = 1; id <= 6 && gone.size() < 2; ++id) {
    if (std::find(map_drives.begin(), map_drives.end(), id) == map_drives.end()) gone.push_back(id);
  }
  ASSERT_EQ(gone.size(), 2u);  // more than may fail
  for (const DriveId id : gone) {
    ASSERT_OK(Change(Drained(id)));
    machines_.SetDown(id, true);
  }
  ExpectAllHolds();
  EXPECT_OK(fs_->SyncDirectory(kRootInode));  // of a host that ran before
  std::erase_if(machines_.config().drives, [&](const DriveConfig& drive) {
    return std::find(gone.begin(), gone.end(), drive.id) != gone.end();
  });
  Host host = NewHost();
  EXPECT_OK(host->SyncDirectory(kRootInode));
  ExpectAllHolds(host.fs.get());
}

// One clears a former home, slowly, while another one makes a home of it again.
TEST_F(EpochsTest, WhoClearsLateClearsNothingThatCounts) {
  MakeFiles();
  machines_.SetDown(3, true);
  ASSERT_OK(Change(Drained(3)));  // it could not be cleared
  machines_.SetDown(3, false);
  auto slow = machines_.Open();
  ASSERT_OK(slow);
  bool done = false;
  EpochChangeOptions options;
  options.progress = [&](std::string_view phase, double) {
    if (phase != "clearing former homes" || std::exchange(done, true)) return;
    ASSERT_OK(Change({.id = 3, .weight = 200}));
    ASSERT_OK((*slow)->Refresh());
  };
  EXPECT_FAILS(ClearFormerHomes(**slow, options), EREMCHG);
  EXPECT_TRUE(done);
  EXPECT_GT(On(3).registers, 0u);
  Host host = NewHost();
  for (const DriveId other : {DriveId{1}, DriveId{5}}) {
    machines_.SetDown(other, true);
    ExpectAllHolds(host.fs.get());
    machines_.SetDown(other, false);
  }
}

TEST_F(EpochsTest, ADriveCanBeRebuiltUnderALaterEpoch) {
  MakeFiles();
  ASSERT_OK(Change(Drained(3)));
  machines_.Replace(1);
  ExpectAllHolds();
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  ASSERT_OK(RebuildDrive(**cluster, machines_.Factory(), 1));
  Repairer repairer(**cluster, {});
  ExpectAllAtHome(repairer.Run());
  Host host = NewHost();
  machines_.SetDown(2, true);
  ExpectAllHolds(host.fs.get());
}

// Whoever has done that: it is as if the drive were away, and nothing worse.
TEST_F(EpochsTest, ADriveOfALaterClusterVersionThanThereAreEpochsIsAway) {
  MakeFiles();
  Gather<Status> gather(sim_);
  machines_.memory(2).SetClusterVersion(7, Time::max(), gather.Ask(0));
  ASSERT_OK(gather.Next(Time::max())->value);
  files_["later"] = Pattern(9, 8 * kTestBlock);
  Make("later", files_["later"]);
  ExpectAllHolds();
  ExpectAllHolds(NewHost().fs.get());
}

TEST_F(EpochsTest, DrivesOfAChangedMapCanBeFormattedAnew) {
  MakeFiles();
  ASSERT_OK(Change(Drained(3)));
  EXPECT_EQ(machines_.memory(2).cluster_version(), 1);
  host_.fs.reset();
  EXPECT_FAILS(machines_.Format(), EEXIST);
  ASSERT_OK(machines_.Format({.force = true}));
  EXPECT_EQ(machines_.memory(2).cluster_version(), 0);
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_EQ((*cluster)->map().epoch, 1u);
}

// All of a command or nothing -------------------------------------------------------------------

TEST_F(EpochsTest, ARefusedDrainOfSeveralDrivesDrainsNone) {
  MakeFiles();
  const Status status =
      ChangeAll({Drained(1), Drained(2), Drained(5), Drained(6)});  // 2 of 6 would be left
  EXPECT_EQ(status.code(), EINVAL);
  EXPECT_NE(status.message().find("2 drives would be left to take something, and the layout in "
                                  "cluster.toml needs 3. Nothing was changed"),
            std::string::npos)
      << status.message();
  ExpectFirstEpoch();
  ASSERT_OK(ChangeAll({Drained(1), Drained(2), Drained(5)}));
  ASSERT_OK(host_.cluster->Refresh());
  EXPECT_EQ(host_.cluster->map().epoch, 4u);
  ExpectAllHolds();
}

// Where domains are too few, a drive that is drained stays a home of something. The first of the
// two would be as good as any.
TEST_F(EpochsTest, ADrainThatCannotEndIsRefusedAndTheOneBeforeItToo) {
  TestCluster machines(sim_, {.drives = 6, .layout = {2, 1, 64 << 10}, .groups = 16});
  for (const auto& [id, domain] :
       std::map<size_t, std::string>{{1, "a"}, {2, "b"}, {3, "c"}, {4, "a"}, {5, "a"}, {6, "a"}}) {
    machines.config().drives[id - 1].domain = domain;
  }
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  const MappedDrive good{.id = 4, .weight = 100, .domain = "a", .state = DriveState::kDraining};
  const MappedDrive bad{.id = 2, .weight = 100, .domain = "b", .state = DriveState::kDraining};
  const auto changed = ChangeDrives(**cluster, machines.Factory(), {good, bad});
  ASSERT_FAILS(changed, EINVAL);
  EXPECT_NE(changed.error().message().find("drive 2 would have to keep a part of everything"),
            std::string::npos)
      << changed.error().message();
  ASSERT_OK((*cluster)->Refresh());
  EXPECT_EQ((*cluster)->map().epoch, 1u);
  EXPECT_OK(ChangeDrives(**cluster, machines.Factory(), {good}));
  EXPECT_EQ((*cluster)->map().epoch, 2u);
  EXPECT_EQ(ListDrive(**cluster, 4)->registers, 0u);
}

TEST_F(EpochsTest, OfNewDrivesNoneIsAddedWhenOneCannotBe) {
  TestCluster machines(sim_, {.drives = 8, .layout = {2, 1, 64 << 10}, .groups = 16});
  ClusterConfig& config = machines.config();
  const std::vector<DriveConfig> added(config.drives.begin() + 6, config.drives.end());
  config.drives.resize(6);
  ASSERT_OK(machines.Format());
  config.drives.insert(config.drives.end(), added.begin(), added.end());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  Gather<Status> put(sim_);
  machines.memory(8).Put(
      {.key = ClusterPrefix("photos") + "Dshard", .value = {}, .version = {}, .tag = {}},
      Time::max(), put.Ask(0));
  ASSERT_OK(put.Next(Time::max())->value);
  const auto changed = ChangeDrives(**cluster, machines.Factory(),
                                    {{.id = 7, .weight = 100}, {.id = 8, .weight = 100}});
  ASSERT_FAILS(changed, EEXIST);
  EXPECT_NE(changed.error().message().find("drive 8 holds records of the cluster 'photos'"),
            std::string::npos)
      << changed.error().message();
  ASSERT_OK((*cluster)->Refresh());
  EXPECT_EQ((*cluster)->map().epoch, 1u);
  // The other one is as empty as it was.
  Gather<Result<std::vector<std::string>>> gather(sim_);
  machines.memory(7).Range(std::string(1, '\0'), "\xff", 1, false, Time::max(), gather.Ask(0));
  EXPECT_TRUE(gather.Next(Time::max())->value->empty());
}

TEST_F(EpochsTest, WhoIsToTakeOverInALaterStepMustAnswerBeforeTheFirst) {
  TestCluster machines(sim_, {.drives = 8, .layout = {2, 1, 64 << 10}, .groups = 1});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  // A home of names is drained, and then the drive that takes its place.
  const auto after_draining = [](const std::shared_ptr<Placement>& placement, DriveId id) {
    return std::make_shared<Placement>(*NextEpoch(placement->map(), Drained(id), {2, 1}),
                                       placement);
  };
  const std::shared_ptr<Placement> now = (*cluster)->NewestPlacement();
  const DriveId first = now->RegisterHomes(0).front();
  const auto then = after_draining(now, first);
  const DriveId second = *CompareHomes(*now, *then)->gaining.begin();
  const DriveId third = *CompareHomes(*then, *after_draining(then, second))->gaining.begin();
  machines.SetDown(third, true);
  const auto changed =
      ChangeDrives(**cluster, machines.Factory(), {Drained(first), Drained(second)});
  ASSERT_FAILS(changed, EIO);
  EXPECT_NE(changed.error().message().find(fmt::format("drive {} must answer", third)),
            std::string::npos)
      << changed.error().message();
  ASSERT_OK((*cluster)->Refresh());
  EXPECT_EQ((*cluster)->map().epoch, 1u);
  EXPECT_OK(ChangeDrives(**cluster, machines.Factory(), {Drained(first)}));  // that needs it not
}

TEST_F(EpochsTest, WhatCannotBeIsRefusedAndChangesNothing) {
  MakeFiles();
  const auto refuses = [&](const MappedDrive& drive, int code, std::string_view part) {
    const Status status = Change(drive);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  refuses({.id = 9, .weight = 100}, EINVAL, "is not in cluster.toml");
  refuses({.id = 3, .weight = 0}, EINVAL, "a weight is not");
  for (const DriveId id : {DriveId{1}, DriveId{2}, DriveId{5}}) ASSERT_OK(Change(Drained(id)));
  refuses(Drained(6), EINVAL, "2 drives would be left");
  EXPECT_EQ(host_.cluster->map().epoch, 1u);  // it has not asked anybody
  ExpectAllHolds();
  EXPECT_EQ(host_.cluster->map().epoch, 4u);
}

}  // namespace
}  // namespace pinstripe
