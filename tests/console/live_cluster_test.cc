// A cluster of drives behind real sockets, as the console knows it; and what the console costs one.

#include "console/live_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "base/log.h"
#include "base/real_runtime.h"
#include "cluster/connect.h"
#include "console/watch.h"
#include "daemon/server.h"
#include "fs/file_system.h"
#include "kinetic/io.h"
#include "store/memory_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_cluster.h"
#include "tools/dev_config.h"
#include "upkeep/care_notes.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

// A drive that can be switched off and on again, and keeps its records meanwhile.
class SocketDrive {
 public:
  SocketDrive(Runtime& runtime, const std::string& serial, uint16_t port)
      : runtime_(runtime),
        engine_(std::make_unique<MemoryStore>()),
        service_({.serial_number = serial, .world_wide_name = serial}, security_, engine_),
        port_(port) {
    On();
  }
  void On() {
    server_ = std::make_unique<Server>(runtime_, Server::Options{});
    ASSERT_OK(server_->Listen("127.0.0.1", port_, service_));
  }
  void Off() { server_.reset(); }
  uint16_t port() const { return port_; }

 private:
  Runtime& runtime_;
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  Engine engine_;
  KineticService service_;
  const uint16_t port_;
  std::unique_ptr<Server> server_;
};

class LiveClusterTest : public testing::Test {
 protected:
  LiveClusterTest() {
    SetLogLevel(LogLevel::kError);
    DevClusterText text{.name = "live",
                        .layout = {2, 1},
                        .close = "commit",
                        .credentials_file = "credentials.toml"};
    const std::vector<uint16_t> ports = FreePorts(5);
    for (int id = 1; id <= 5; ++id) {
      drives_.push_back(std::make_unique<SocketDrive>(runtime_, fmt::format("serial-{}", id),
                                                      ports[static_cast<size_t>(id) - 1]));
      text.drives.push_back({.id = id, .port = drives_.back()->port(), .path = ""});
    }
    Write("credentials.toml", CredentialsText());
    Write("cluster.toml", ClusterConfigText(text) +
                              "\n[limits]\ndrive_timeout = \"2 s\"\nopen_timeout = \"2 s\"\n");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    chmod((directory_ / name).c_str(), 0600);
  }

  // With one file of several stripes.
  void Format() {
    const auto config = ClusterConfig::Load(directory_ / "cluster.toml");
    ASSERT_OK(config);
    KineticIo io(runtime_);
    ASSERT_OK(Cluster::Format(runtime_, *config, RealDriveFactory(io, config->drive_timeout), {}));
    const auto connected = Connect(runtime_, directory_ / "cluster.toml");
    ASSERT_OK(connected);
    ASSERT_OK(FileSystem::Format((*connected)->cluster(), {}, 0755));
    const auto fs = FileSystem::Open((*connected)->cluster(), {});
    ASSERT_OK(fs);
    const auto file = (*fs)->Create(kRootInode, "big", {});
    ASSERT_OK(file);
    const std::string bytes(9 << 20, 'x');
    ASSERT_OK((*file)->Write(0, std::as_bytes(std::span(bytes))));
    ASSERT_OK((*file)->Close());
  }

  RealRuntime runtime_;
  TemporaryDirectory directory_;
  std::vector<std::unique_ptr<SocketDrive>> drives_;
  LiveCluster cluster_{runtime_, directory_ / "cluster.toml"};
};

TEST_F(LiveClusterTest, AClusterThatIsAwayAtFirstIsFoundLater) {
  Format();
  for (const auto& drive : drives_) drive->Off();
  const auto away = cluster_.Look();
  ASSERT_OK(away);
  EXPECT_EQ(HealthOf(*away), Health::kUnavailable);
  const auto none = cluster_.List("/", "", 10);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("the cluster is not open"));
  for (const auto& drive : drives_) drive->On();
  const auto there = cluster_.Look();
  ASSERT_OK(there);
  EXPECT_EQ(HealthOf(*there), Health::kHealthy) << SurveyText(*there);
  EXPECT_OK(cluster_.List("/", "", 10));
}

TEST_F(LiveClusterTest, TellsWhereAFileIsWhileADriveIsAway) {
  Format();
  ASSERT_OK(cluster_.Look());
  const auto entries = cluster_.List("/", "", 10);
  ASSERT_OK(entries);
  ASSERT_EQ(entries->size(), 1u);
  EXPECT_EQ(entries->front().name, "big");
  EXPECT_FAILS(cluster_.List("/big", "", 10), ENOTDIR);
  EXPECT_FAILS(cluster_.List("/none", "", 10), ENOENT);
  EXPECT_FAILS(cluster_.Find("/none", {}), ENOENT);

  const auto whole = cluster_.Find("/big", {.listed_stripes = 100});
  ASSERT_OK(whole);
  EXPECT_EQ(whole->state(), Whereabouts::State::kWhole);
  ASSERT_FALSE(whole->stripes.empty());
  const DriveId lost = whole->stripes.front().shards.front().drive;
  drives_[lost - 1u]->Off();
  const auto survey = cluster_.Look();
  ASSERT_OK(survey);
  EXPECT_EQ(HealthOf(*survey), Health::kDegraded);
  const auto lacking = cluster_.Find("/big", {.listed_stripes = 100});
  ASSERT_OK(lacking);
  EXPECT_EQ(lacking->state(), Whereabouts::State::kShort);
  EXPECT_FALSE(lacking->stripes.front().shards.front().is_there);
}

// It sees for itself that a drive goes, whatever gateways and mounts there are.
TEST_F(LiveClusterTest, ADriveThatGoesIsToldOf) {
  Format();
  ASSERT_OK(cluster_.Look());
  ASSERT_OK(cluster_.NewEvents());
  drives_[1]->Off();
  for (const Time end = runtime_.Now() + 60s;;) {
    const auto events = cluster_.NewEvents();
    ASSERT_OK(events);
    const auto went = std::ranges::find(*events, EventKind::kDriveWent, &Event::kind);
    if (went != events->end()) {
      EXPECT_THAT(went->drives, testing::ElementsAre(2));
      break;
    }
    ASSERT_LT(runtime_.Now(), end);
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + 100ms);
  }
}

// As `pinstripe work` does it, for the operator.
TEST_F(LiveClusterTest, WhatIsAskedOfWorkIsTold) {
  Format();
  ASSERT_OK(cluster_.Look());
  const auto connected = Connect(runtime_, directory_ / "cluster.toml");
  ASSERT_OK(connected);
  EventLog log((*connected)->cluster());
  RunningWork work((*connected)->cluster(), log, {.work = "scrub"});
  for (;;) {
    const auto all = cluster_.Work();
    ASSERT_OK(all);
    if (!all->empty()) break;
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + 20ms);
  }
  ASSERT_OK(cluster_.NewEvents());
  EXPECT_FAILS(cluster_.AskOfWork(7, {.ask = WorkAsk::kPause, .rate = {}}, "anna"), ENOENT);
  ASSERT_OK(cluster_.AskOfWork(1, {.ask = WorkAsk::kStop, .rate = {}}, "anna"));
  const auto events = cluster_.NewEvents();
  ASSERT_OK(events);
  const auto asked = std::ranges::find(*events, EventKind::kWorkAsked, &Event::kind);
  ASSERT_NE(asked, events->end());
  EXPECT_THAT(asked->Sentence(), HasSubstr("scrub was asked to stop by anna on "));
  EXPECT_TRUE(FindWorkStops((*connected)->cluster())->contains("scrub"));
  work.End(WorkResult::kStopped, "");
}

TEST_F(LiveClusterTest, FailsForAConfigurationThatIsNoGoodAndGoesOnWhenItIs) {
  Format();
  const std::string good = [&] {
    std::ifstream in(directory_ / "cluster.toml");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  Write("cluster.toml", "[cluster\n");
  EXPECT_FAILS(cluster_.Look(), EINVAL);
  Write("cluster.toml", good);
  EXPECT_OK(cluster_.Look());
  EXPECT_OK(cluster_.List("/", "", 10));
  EXPECT_OK(cluster_.Reload());
}

TEST_F(LiveClusterTest, TellsWhatDrivesDoAndWhichDoNotTell) {
  EXPECT_FAILS(cluster_.Use({}), EHOSTUNREACH);
  Format();
  const auto use = [this] {
    const auto survey = cluster_.Look();
    EXPECT_OK(survey);
    return cluster_.Use(*survey);
  };
  ASSERT_OK(cluster_.Look());
  const auto before = use();
  ASSERT_OK(before);
  EXPECT_EQ(before->Silent(), 0u);
  const uint64_t questions = cluster_.Questions();
  EXPECT_GE(questions, 10u) << "a state and a use of each drive";
  {
    const auto connected = Connect(runtime_, directory_ / "cluster.toml");
    ASSERT_OK(connected);
    const auto fs = FileSystem::Open((*connected)->cluster(), {});
    ASSERT_OK(fs);
    const auto file = (*fs)->Create(kRootInode, "more", {});
    ASSERT_OK(file);
    const std::string bytes(6 << 20, 'x');
    ASSERT_OK((*file)->Write(0, std::as_bytes(std::span(bytes))));
    ASSERT_OK((*file)->Close());
  }
  const auto now = use();
  ASSERT_OK(now);
  const DriveWorkReport all = WorkOfAll(WorkSince(*before, *now));
  const double seconds = std::chrono::duration<double>(now->when - before->when).count();
  EXPECT_GE(all.rates.bytes_written * seconds, 9e6) << "2+1";
  EXPECT_GT(all.writes.count(), 0u);
  EXPECT_GE(cluster_.Questions(), questions + 5);

  drives_[2]->Off();
  const auto partly = use();
  ASSERT_OK(partly);
  EXPECT_EQ(partly->Silent(), 1u);
  EXPECT_FALSE(partly->drives[2].use.has_value());
  EXPECT_THAT(partly->drives[2].address, HasSubstr(std::to_string(drives_[2]->port())));
  drives_[2]->On();
  auto again = use();
  while (again.has_value() && again->Silent() > 0) again = use();
  ASSERT_OK(again);
  EXPECT_FALSE(WorkSince(*partly, *again)[2].silent.ok()) << "nobody knows what it did between";
}

// A cluster of memory drives, whose requests are counted.
class CountedView final : public ClusterView {
 public:
  explicit CountedView(Cluster& cluster) : cluster_(cluster) {}
  Result<Survey> Look() override { return SurveyOf(cluster_); }
  uint64_t Questions() const override { return 0; }
  Result<ClusterUse> Use(const Survey&) override {
    return Fail(ENOTSUP, "memory drives do not tell");
  }
  Result<std::vector<DirectoryEntry>> List(std::string_view, std::string_view, size_t) override {
    return Fail(ENOSYS, "nobody asks");
  }
  Result<Whereabouts> Find(std::string_view, const WhereaboutsOptions&) override {
    return Fail(ENOSYS, "nobody asks");
  }
  Result<std::vector<Event>> NewEvents() override { return follower_.Poll(); }
  Result<std::vector<WorkSeen>> Work() override { return ReadWork(cluster_); }
  Status AskOfWork(int, const WorkChange&, const std::string&) override {
    return Fail(ENOSYS, "nobody asks");
  }

 private:
  Cluster& cluster_;
  EventFollower follower_{cluster_};
};

TEST(Watch, ALookCostsEachDriveARequestAndTheClusterAFewMore) {
  SetLogLevel(LogLevel::kError);
  SimRuntime sim(3);
  constexpr size_t kDrives = 40;
  TestCluster machines(sim, {.drives = kDrives});
  ASSERT_OK(machines.Format());
  const auto cluster = machines.Open();
  ASSERT_OK(cluster);
  CountedView view(**cluster);
  Watch watch(sim, view);
  sim.Sleep(120s);
  const auto requests = [&] {
    uint64_t sum = 0;
    for (DriveId id = 1; id <= kDrives; ++id) sum += machines.drive(id).requests().total();
    return sum;
  };
  // What an open cluster asks by itself counts as well.
  const uint64_t idle_before = requests();
  sim.Sleep(600s);
  const uint64_t a_second_unwatched = (requests() - idle_before) / 600;
  EXPECT_LE(a_second_unwatched, 10u);
  const uint64_t before = requests();
  for (int second = 0; second < 60; ++second) {
    watch.Newest();
    sim.Sleep(1s);
  }
  const uint64_t a_second = (requests() - before) / 60;
  EXPECT_GE(a_second, kDrives / 2);
  EXPECT_LE(a_second, 2 * kDrives);
  watch.End();
}

}  // namespace
}  // namespace pinstripe
