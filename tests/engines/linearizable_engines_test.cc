// Registers on real engines, used by real processes on hosts whose cables are pulled.
//
// Goal: whatever is killed, stopped or cut off, reads and changes of a register have an order in
// which each answers what it had to. Method: an etcd of three members, each on a host of its own
// (tests/support/host_network.h), or a PostgreSQL that waits for its standby; client processes on
// two hosts read and change a few registers (tests/support/register_clients.h). Members are killed,
// stopped, cut off from one another while clients reach them, and from clients while they reach one
// another; clients are cut off and killed. The histories are checked in the end
// (tests/support/linearizability.h).
//
//   CRASH_SECONDS=600 linearizable_engines_test    for so long

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "tests/crash/daemon.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/free_ports.h"
#include "tests/support/host_network.h"
#include "tests/support/postgres_server.h"
#include "tests/support/register_clients.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Side = HostNetwork::Side;

constexpr size_t kMembers = 3;
constexpr size_t kClientHosts = 2;
constexpr size_t kClients = 4;

// How long troubles last; nothing is waited for. A Signal would need a runtime, and so a thread.
void Pause(milliseconds time) { std::this_thread::sleep_for(time); }

class LinearizableEnginesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HostNetwork::IsAllowed()) {
      GTEST_SKIP()
          << "hosts with a network of their own need root, and a kernel with bridges and veth";
    }
    network_.emplace(kMembers + kClientHosts);
    config_.file = "cluster.toml";
    config_.name = "test";
    config_.layout = {3, 2, 64 << 10};
    config_.replicas = 5;
    config_.groups = 4;
    config_.memory_bytes = 64 << 20;
    config_.drive_timeout = milliseconds(1000);
    StartDrives();
  }

  // The drives keep what belongs to the cluster itself, and are always there.
  void StartDrives() {
    const std::vector<uint16_t> ports = FreePorts(5);
    const std::string here = network_->address_here(Side::kFront);
    std::string daemon = fmt::format("[daemon]\nlisten = \"{}\"\nfactory_key = \"allow\"\n", here);
    for (const uint16_t port : ports) {
      const std::string path = directory_ / fmt::format("drive-{}", port);
      MakeDrive(path);
      daemon += fmt::format("[[drive]]\npath = \"{}\"\nport = {}\n", path, port);
      DriveConfig drive;
      drive.id = static_cast<DriveId>(config_.drives.size() + 1);
      drive.addresses = {fmt::format("{}:{}", here, port)};
      config_.drives.push_back(drive);
    }
    const std::string file = directory_ / "pinstriped.toml";
    std::ofstream(file) << daemon;
    drives_.emplace(std::vector<std::string>{"--config", file, "--log-level", "error"});
    ASSERT_TRUE(drives_->IsReady()) << drives_->Messages();
  }

  void StartClients(EngineConfig engine) {
    engine.cluster = "test";
    config_.engine = std::move(engine);
    clients_.emplace(config_, kClients,
                     [this](size_t client) { network_->MoveTo(kMembers + client % kClientHosts); });
    clients_->Format();
    if (HasFailure()) return;
    for (size_t i = 0; i < kClients; ++i) clients_->Start(i);
  }

  // Runs `trouble` again and again, which returns what ends it. Times of trouble alternate with
  // times without.
  template <typename Trouble>
  void LiveThrough(Trouble trouble) {
    const char* wanted = std::getenv("CRASH_SECONDS");
    const auto end = std::chrono::steady_clock::now() + seconds(wanted ? std::atoi(wanted) : 8);
    // Where everything is slow it takes longer until there is something to judge.
    const auto goes_on = [&] {
      const auto now = std::chrono::steady_clock::now();
      if (now < end) return true;
      return now < end + seconds(60) && clients_->CountAnswers() <= RegisterClients::kEnoughAnswers;
    };
    while (goes_on() && !HasFailure()) {
      const std::function<void()> mend = trouble();
      if (Chance(4)) {
        ++happened_["clients killed"];
        clients_->Restart(random_() % kClients);
      }
      Pause(milliseconds(random_() % 1500));
      mend();
      clients_->StartThoseThatEnded();
      Pause(milliseconds(random_() % 500));  // all is well for a while
    }
    clients_->KillAll();
    std::string words;
    for (const auto& [what, times] : happened_) {
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", times, what);
    }
    clients_->ExpectLinearizable(words);
  }

  bool Chance(unsigned one_in) { return random_() % one_in == 0; }

  std::function<void()> Cut(size_t host, Side side, const char* what) {
    ++happened_[what];
    network_->Pull(host, side);
    return [this, host, side] { network_->Plug(host, side); };
  }
  std::function<void()> CutClient() {
    return Cut(kMembers + random_() % kClientHosts, Side::kFront, "clients' hosts cut off");
  }

  TemporaryDirectory directory_;
  ClusterConfig config_;
  std::mt19937_64 random_{SeedsFromEnvironment(1).first};
  std::map<std::string, int> happened_;
  std::optional<HostNetwork> network_;
  std::optional<Daemon> drives_;
  std::optional<RegisterClients> clients_;
};

TEST_F(LinearizableEnginesTest, Etcd) {
  EtcdCluster etcd({.members = kMembers, .network = &*network_});
  EngineConfig engine;
  engine.kind = "etcd";
  engine.endpoints = etcd.urls();
  StartClients(engine);
  if (HasFailure()) return;
  LiveThrough([&]() -> std::function<void()> {
    // The one that leads is worth more trouble than the others.
    const size_t member = Chance(2) ? etcd.Leader() : random_() % kMembers;
    switch (random_() % 6) {
      case 0:
        ++happened_["members killed"];
        etcd.Kill(member);
        return [&etcd, member] { etcd.Start(member); };
      case 1:
        ++happened_["members stopped"];
        etcd.Signal(member, SIGSTOP);
        return [&etcd, member] { etcd.Signal(member, SIGCONT); };
      case 2: return Cut(member, Side::kFront, "members cut off from clients");
      case 3:
      case 4: return Cut(member, Side::kBack, "members cut off from one another");
      default: return CutClient();
    }
  });
}

TEST_F(LinearizableEnginesTest, PostgreSql) {
  PostgresServer server(PostgresServer::Settings{{"listen_addresses", "*"}});
  PostgresServer standby(server, "other");
  server.Set("synchronous_standby_names", "other");
  EngineConfig engine;
  engine.kind = "postgresql";
  engine.connection = fmt::format("host={} port={} dbname=names user=pin",
                                  network_->address_here(Side::kFront), server.port());
  StartClients(engine);
  if (HasFailure()) return;
  LiveThrough([&]() -> std::function<void()> {
    switch (random_() % 5) {
      case 0:
        ++happened_["servers killed"];
        server.Kill();
        return [&] { server.Start(); };
      case 1:
        ++happened_["servers stopped"];
        server.Pause();
        return [&] { server.Resume(); };
      case 2:
        ++happened_["standbys stopped"];
        standby.Pause();
        return [&] { standby.Resume(); };
      case 3:
        ++happened_["times all sessions ended"];
        server.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'pin'");
        return [] {};
      default: return CutClient();
    }
  });
}

}  // namespace
}  // namespace pinstripe
