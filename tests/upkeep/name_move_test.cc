// Names on an engine, and their move there and back, beside hosts that use them: whatever was
// acknowledged is there, whatever dies in the middle, and nobody reads what is not so any more.

#include "cluster/membership/name_move.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "cluster/map/names_place.h"
#include "cluster/membership/drive_contents.h"
#include "cluster/membership/rebuild.h"
#include "tests/fs/fs_test_base.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Where = NamesPlace::Where;

class NamesTest : public FsTest {
 protected:
  explicit NamesTest(bool on_engine)
      : FsTest({.drives = 6,
                .layout = {2, 1, 64 << 10},
                .groups = 16,
                .replicas = 3,
                .engine = true}) {
    SetLogLevel(LogLevel::kError);
    engine_ = machines_.config().engine;
    if (!on_engine) machines_.config().engine.reset();
    format_.features = {NewFeature(kContentsBesideFeature), NewFeature(kGrownDirectoriesFeature)};
  }
  ~NamesTest() override { SetLogLevel(LogLevel::kInfo); }

  void MakeFiles() {
    for (const size_t size : {size_t{10}, size_t{3000}, size_t{30'000}, size_t{9 * kTestBlock}}) {
      const std::string name = fmt::format("file{}", size);
      files_[name] = Pattern(size, size);
      Make(name, files_[name]);
    }
    const InodeId directory = MakeDirectory("directory");
    for (int i = 0; i < 40; ++i) Make(fmt::format("small{}", i), "contents", directory);
    EXPECT_OK(fs_->Rename(kRootInode, "file10", directory, "renamed"));
    files_["directory/renamed"] = files_["file10"];
    files_.erase("file10");
    Make("gone", "gone");
    EXPECT_OK(fs_->Unlink(kRootInode, "gone"));
  }
  void ExpectAllHolds(FileSystem* fs = nullptr) {
    for (const auto& [name, contents] : files_) {
      EXPECT_TRUE(Contents("/" + name, fs) == contents) << name;
    }
  }
  // Replicas of names on all drives, and on the engine.
  uint64_t RegistersOnDrives() {
    const auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    uint64_t count = 0;
    for (const DriveConfig& drive : machines_.config().drives) {
      const auto contents = ListDrive(**cluster, drive.id);
      EXPECT_OK(contents);
      count += contents.value_or(DriveContents()).registers;
    }
    return count;
  }
  uint64_t RegistersOnEngine() {
    const std::string prefix = ClusterPrefix("test") + "R";
    uint64_t count = 0;
    for (std::string first = prefix;;) {
      Gather<Result<std::vector<std::string>>> gather(sim_);
      machines_.memory(kEngineDrive)
          .Range(first, prefix + std::string(64, '\xff'), 200, false, Time::max(), gather.Ask(0));
      const auto keys = *gather.Next(Time::max())->value;
      count += keys.size();
      if (keys.size() < 200) return count;
      first = keys.back() + '\0';
    }
  }

  Result<NameMoveReport> MoveIn(std::shared_ptr<ClientLife> life = nullptr) {
    machines_.config().engine = engine_;
    const auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return tl::unexpected(cluster.error());
    return MoveNamesToEngine(**cluster, machines_.Factory(life));
  }
  Result<NameMoveReport> MoveOut(std::shared_ptr<ClientLife> life = nullptr) {
    const auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return tl::unexpected(cluster.error());
    return MoveNamesToDrives(**cluster);
  }
  NamesPlace Place() {
    const auto cluster = machines_.Open();
    EXPECT_OK(cluster);
    return (*cluster)->NewestPlacement()->names();
  }
  void ExpectInOrder() {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    Repairer repairer(**cluster, {});
    const RepairReport& report = repairer.Run();
    for (const std::string& what : report.check.not_checked) ADD_FAILURE() << what;
    for (const Finding& finding : report.check.findings) {
      if (finding.severity == Severity::kLeftover) continue;
      ADD_FAILURE() << finding.problem << " " << finding.where << ": " << finding.what;
    }
  }

  std::optional<EngineConfig> engine_;
  std::map<std::string, std::string> files_;
};

// ---- A cluster that was formatted so

class EngineTest : public NamesTest {
 protected:
  EngineTest() : NamesTest(/*on_engine=*/true) {}
};

TEST_F(EngineTest, NamesAreOnTheEngineAndDataIsOnTheDrives) {
  MakeFiles();
  ExpectAllHolds();
  EXPECT_EQ(RegistersOnDrives(), 0u);
  EXPECT_GT(RegistersOnEngine(), 80u);
  Host other = NewHost();
  ExpectAllHolds(other.fs.get());
  ExpectInOrder();
}

// One to see what is there, and one that brings entry and inode.
TEST_F(EngineTest, AFileIsMadeWithTwoRequests) {
  Make("first", "");
  sim_.Sleep(1s);
  const DriveRequests before = machines_.drive(kEngineDrive).requests();
  const auto made = fs_->Create(kRootInode, "second", {.exclusive = true});
  ASSERT_OK(made);
  const DriveRequests after = machines_.drive(kEngineDrive).requests();
  EXPECT_LE(after.get_messages - before.get_messages, 1u);
  EXPECT_EQ(after.put - before.put, 1u);
  EXPECT_EQ(after.range - before.range, 0u);
  ASSERT_OK((*made)->Close());
}

TEST_F(EngineTest, ADriveMayBeLostAndWithoutTheEngineNothingIsAnswered) {
  MakeFiles();
  machines_.SetDown(2, true);
  ExpectAllHolds();
  Make("more", "while it is away");
  machines_.SetDown(2, false);

  machines_.SetDown(kEngineDrive, true);
  const auto made = fs_->Create(kRootInode, "lost", {});
  EXPECT_EQ(made.has_value() ? 0 : made.error().code(), EIO);
  machines_.SetDown(kEngineDrive, false);
  EXPECT_EQ(Contents("/more"), "while it is away");
  Make("again", "it is back");
  ExpectInOrder();
}

TEST_F(EngineTest, AConfigurationWithoutItIsRefused) {
  machines_.config().engine.reset();
  const auto cluster = machines_.Open();
  ASSERT_FAILS(cluster, EINVAL);
  EXPECT_NE(cluster.error().message().find("[metadata]"), std::string::npos)
      << cluster.error().message();
}

TEST_F(EngineTest, GarbageIsCollected) {
  MakeFiles();
  const uint64_t before = RegistersOnEngine();
  for (int i = 0; i < 20; ++i) {
    const std::string name = fmt::format("small{}", i);
    ASSERT_OK(fs_->Unlink(fs_->Resolve("/directory")->inode, name));
  }
  sim_.Sleep(24h * 20);
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  Collector collector(**cluster, {.older_than = 1min, .renew_epoch_for = 1});
  const CollectReport& report = collector.Run();
  EXPECT_TRUE(report.not_collected.empty());
  EXPECT_GT(report.tombstones, 10u);
  EXPECT_LT(RegistersOnEngine(), before);
  ExpectAllHolds();
}

// ---- A move

class NameMoveTest : public NamesTest {
 protected:
  NameMoveTest() : NamesTest(/*on_engine=*/false) {}

  EpochChangeOptions UntilItCopies() {
    auto copies = std::make_shared<bool>(false);
    EpochChangeOptions options;
    options.progress = [copies](std::string_view phase, double) {
      *copies = *copies || phase.starts_with("copying");
    };
    options.is_cancelled = [copies] { return *copies; };
    return options;
  }
};

TEST_F(NameMoveTest, GoesThereAndBack) {
  MakeFiles();
  const uint64_t on_drives = RegistersOnDrives();
  EXPECT_GT(on_drives, 200u);
  const auto there = MoveIn();
  ASSERT_OK(there);
  EXPECT_FALSE(there->was_there);
  EXPECT_GT(there->registers, 80u);
  EXPECT_EQ(Place().where, Where::kEngine);
  EXPECT_EQ(RegistersOnDrives(), 0u);
  // The host that was there all the time goes on, and so does another.
  ExpectAllHolds();
  files_["later"] = Pattern(3, 2 * kTestBlock);
  Make("later", files_["later"]);
  Host other = NewHost();
  ExpectAllHolds(other.fs.get());
  ExpectInOrder();
  EXPECT_TRUE(MoveIn()->was_there);

  const auto back = MoveOut();
  ASSERT_OK(back);
  EXPECT_EQ(Place(), NamesPlace{});
  EXPECT_EQ(RegistersOnEngine(), 0u);
  EXPECT_GT(RegistersOnDrives(), on_drives - 20);
  ExpectAllHolds();
  ExpectAllHolds(other.fs.get());
  Make("last", "of all");
  ExpectInOrder();
  EXPECT_TRUE(MoveOut()->was_there);
}

TEST_F(NameMoveTest, NothingIsDoneWithoutWhatItNeeds) {
  MakeFiles();
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_FAILS(MoveNamesToEngine(**cluster, machines_.Factory()), EINVAL);
  machines_.SetDown(kEngineDrive, true);
  EXPECT_FAILS(MoveIn(), EIO);
  machines_.SetDown(kEngineDrive, false);
  EXPECT_EQ(Place(), NamesPlace{});
  ASSERT_OK(MoveIn());
  machines_.SetDown(3, true);
  EXPECT_FAILS(MoveOut(), EIO);
  machines_.SetDown(3, false);
  ASSERT_OK(MoveOut());
  ExpectAllHolds();
}

// What a cluster of another name, or an earlier one of this name, has there is left alone.
TEST_F(NameMoveTest, AnEngineOfAnotherClusterIsRefused) {
  MakeFiles();
  Superblock block{.cluster_name = "test",
                   .cluster_uuid = std::string(16, 'x'),
                   .drive = kEngineDrive,
                   .map_drives = {1, 2, 3}};
  const std::string value = block.Encode();
  Gather<Status> puts(sim_);
  machines_.memory(kEngineDrive)
      .Put({.key = SuperblockKey("test"),
            .value = SharedBytes(value),
            .version = block.Version(),
            .tag = RecordTag(Crc32c(AsBytes(value)))},
           Time::max(), puts.Ask(0));
  ASSERT_OK(puts.Next(Time::max())->value);
  EXPECT_FAILS(MoveIn(), EEXIST);
  EXPECT_EQ(Place(), NamesPlace{});
}

TEST_F(NameMoveTest, IsTakenBackByMovingToWhereTheyCameFrom) {
  MakeFiles();
  machines_.config().engine = engine_;
  for (const bool in : {true, false}) {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    const EpochChangeOptions options = UntilItCopies();
    if (in) {
      EXPECT_FAILS(MoveNamesToEngine(**cluster, machines_.Factory(), options), EINTR);
      EXPECT_EQ(Place().where, Where::kMovingIn);
      ASSERT_OK(MoveOut());
      EXPECT_EQ(Place(), NamesPlace{});
      ExpectAllHolds();
      ASSERT_OK(MoveIn());
    } else {
      EXPECT_FAILS(MoveNamesToDrives(**cluster, options), EINTR);
      EXPECT_EQ(Place().where, Where::kMovingOut);
      ASSERT_OK(MoveIn());
      EXPECT_EQ(Place().where, Where::kEngine);
      EXPECT_EQ(RegistersOnDrives(), 0u);
    }
    ExpectAllHolds();
    ExpectInOrder();
  }
}

TEST_F(NameMoveTest, TheMapStaysAsItIsMeanwhileAndReadsGoOn) {
  MakeFiles();
  machines_.config().engine = engine_;
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_FAILS(MoveNamesToEngine(**cluster, machines_.Factory(), UntilItCopies()), EINTR);
  Host reader = NewHost();
  ExpectAllHolds(reader.fs.get());
  EXPECT_EQ(List(kRootInode, reader.fs.get()).size(), 4u);
  EXPECT_FAILS(RenewEpoch(**cluster), EBUSY);
  const auto drained = ChangeDrives(**cluster, machines_.Factory(),
                                    {{.id = 2, .weight = 100, .state = DriveState::kDraining}});
  EXPECT_FAILS(drained, EBUSY);
  // A change waits, and is made when the move is done.
  bool is_made = false;
  sim_.Spawn("maker", [&] {
    Make("made", "meanwhile");
    is_made = true;
  });
  sim_.Sleep(5s);
  EXPECT_FALSE(is_made);
  ASSERT_OK(MoveIn());
  while (!is_made) sim_.Sleep(10ms);
  EXPECT_EQ(Contents("/made", reader.fs.get()), "meanwhile");
}

// When the first change is made in the new place, nobody is answered in the old one any more, also
// who has not heard of it.
TEST_F(NameMoveTest, NobodyReadsInTheOldPlaceOnceNamesChangeInTheNewOne) {
  MakeFiles();
  machines_.config().engine = engine_;
  for (const bool in : {true, false}) {
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    Host late;
    bool changed = false;
    const std::string name = fmt::format("new{}", in);
    EpochChangeOptions options;
    options.progress = [&](std::string_view phase, double part) {
      if (phase.starts_with("comparing") && part >= 1 && !late.fs) late = NewHost();
      if (changed || late.fs == nullptr || Place().IsMoving()) return;
      changed = true;
      EXPECT_OK(NewHost()->MakeDirectory(kRootInode, name, 0755, {}));
      EXPECT_TRUE(late.cluster->NewestPlacement()->names().IsMoving());
      EXPECT_OK(late->Resolve("/" + name));
    };
    if (in) {
      ASSERT_OK(MoveNamesToEngine(**cluster, machines_.Factory(), options));
      EXPECT_TRUE(changed);
    } else {
      ASSERT_OK(MoveNamesToDrives(**cluster, options));
    }
    ExpectAllHolds();
  }
}

// Hosts change and read all the time. Each says what it was told: a file that was made is there
// with the contents of its last change, for every host, whatever was moved meanwhile.
TEST_F(NameMoveTest, HostsGoOnWhileNamesMove) {
  MakeFiles();
  machines_.config().engine = engine_;
  std::vector<Host> hosts;
  constexpr int kHosts = 3;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(NewHost());
  bool ended = false;
  std::vector<int> made(kHosts);
  std::atomic<int> running = kHosts;
  for (int i = 0; i < kHosts; ++i) {
    sim_.Spawn(fmt::format("host {}", i), [&, i] {
      FileSystem& fs = *hosts[static_cast<size_t>(i)].fs;
      while (!ended) {
        const std::string name = fmt::format("h{}-{}", i, made[static_cast<size_t>(i)]);
        auto file = fs.Create(kRootInode, name, {.truncate = true});
        EXPECT_OK(file);
        if (!file.has_value()) break;
        EXPECT_OK((*file)->Write(0, AsBytes(name)));
        EXPECT_OK((*file)->Close());
        ++made[static_cast<size_t>(i)];
        // What it has made before is there, by another host's word.
        FileSystem& other = *hosts[static_cast<size_t>((i + 1) % kHosts)].fs;
        EXPECT_EQ(Contents("/" + name, &other), name);
        sim_.Sleep(20ms);
      }
      --running;
    });
  }
  sim_.Sleep(1s);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_OK(MoveIn());
    sim_.Sleep(3s);
    ASSERT_OK(MoveOut());
    sim_.Sleep(3s);
  }
  ended = true;
  while (running > 0) sim_.Sleep(10ms);
  for (int i = 0; i < kHosts; ++i) {
    EXPECT_GT(made[static_cast<size_t>(i)], 30);
    for (int j = 0; j < made[static_cast<size_t>(i)]; ++j) {
      const std::string name = fmt::format("h{}-{}", i, j);
      EXPECT_EQ(Contents("/" + name), name);
    }
  }
  ExpectAllHolds();
  hosts.clear();
  ExpectInOrder();
}

// Somebody stands still when everything is copied and compared. Meanwhile another takes the move
// back, and a host changes something. What was copied is not what counts any more.
TEST_F(NameMoveTest, WhoeverStandsStillMovesNothingThatOthersHaveTakenBack) {
  MakeFiles();
  for (const bool in : {true, false}) {
    machines_.config().engine = engine_;
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    bool done = false;
    EpochChangeOptions options;
    options.progress = [&](std::string_view phase, double part) {
      if (done || !phase.starts_with("comparing") || part < 1) return;
      done = true;
      if (in) {
        EXPECT_OK(MoveOut());
      } else {
        EXPECT_OK(MoveIn());
      }
      Host other = NewHost();
      EXPECT_OK(other->MakeDirectory(kRootInode, fmt::format("acknowledged{}", in), 0755, {}));
    };
    const auto moved = in ? MoveNamesToEngine(**cluster, machines_.Factory(), options)
                          : MoveNamesToDrives(**cluster, options);
    EXPECT_TRUE(done);
    EXPECT_FAILS(moved, EBUSY);
    EXPECT_EQ(Place().where, in ? Where::kDrives : Where::kEngine);
    EXPECT_OK(fs_->Resolve(fmt::format("/acknowledged{}", in)));
    ExpectAllHolds();
    ExpectInOrder();
    if (!in) break;
    ASSERT_OK(MoveIn());
  }
}

// A store that was made ready, and never used, is not taken for the one that names are in, however
// often its address stays in somebody's configuration.
TEST_F(NameMoveTest, AStoreThatWasOnlyMadeReadyIsNotUsed) {
  MakeFiles();
  {
    machines_.config().engine = engine_;
    const auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    EpochChangeOptions options;
    options.is_cancelled = [] { return true; };
    EXPECT_FAILS(MoveNamesToEngine(**cluster, machines_.Factory(), options), EINTR);
    EXPECT_EQ(Place(), NamesPlace{});
  }
  // Another server stands at the address when it is tried again.
  const auto never_used = machines_.Replace(kEngineDrive);
  ASSERT_OK(MoveIn());
  ExpectAllHolds();
  const auto used = machines_.Plug(kEngineDrive, never_used);
  EXPECT_FAILS(machines_.Open(), EIO);
  EXPECT_FAILS(fs_->Resolve("/file3000"), EIO);
  machines_.Plug(kEngineDrive, used);
  sim_.Sleep(1s);
  ExpectAllHolds();
}

TEST_F(NameMoveTest, DrivesAreNotRebuiltWhileNamesMove) {
  MakeFiles();
  machines_.config().engine = engine_;
  const auto cluster = machines_.Open();
  ASSERT_OK(cluster);
  EXPECT_FAILS(MoveNamesToEngine(**cluster, machines_.Factory(), UntilItCopies()), EINTR);
  machines_.Replace(2);
  EXPECT_FAILS(RebuildDrive(**cluster, machines_.Factory(), 2, {}), EBUSY);
  ASSERT_OK(MoveIn());
  ASSERT_OK(RebuildDrive(**cluster, machines_.Factory(), 2, {}));
  Repairer(**cluster, {}).Run();
  ExpectAllHolds();
  ExpectInOrder();
  ASSERT_OK(MoveOut());
  ExpectAllHolds();
  ExpectInOrder();
}

// Who moves them dies at each of its requests in turn; another goes on, in either direction.
TEST_F(NameMoveTest, WhoeverMovesThemMayDieAtAnyRequest) {
  for (int i = 0; i < 3; ++i) {
    const std::string name = fmt::format("file{}", i);
    files_[name] = Pattern(1, 100);
    Make(name, files_[name]);
  }
  machines_.config().engine = engine_;
  int deaths = 0;
  for (uint64_t requests = 1;; requests += 1 + requests / 3) {
    auto life = std::make_shared<ClientLife>();
    const auto cluster = machines_.Open(life);
    ASSERT_OK(cluster);
    life->CrashAfter(requests);
    const bool in = Place().where == Where::kDrives;
    const auto moved =
        in ? MoveNamesToEngine(**cluster, machines_.Factory(life)) : MoveNamesToDrives(**cluster);
    if (moved.has_value()) break;
    ++deaths;
    // Somebody else goes on with it, or takes it back.
    if (requests % 2 == 0) {
      ASSERT_OK(MoveIn());
    } else {
      ASSERT_OK(MoveOut());
    }
    const std::string name = fmt::format("after{}", requests);
    files_[name] = name;
    Make(name, name);
    ExpectAllHolds();
  }
  EXPECT_GT(deaths, 10);
  ExpectInOrder();
}

}  // namespace
}  // namespace pinstripe
