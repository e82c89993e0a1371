// Registers on real drives, used by real processes: what the simulation does to the protocol, done
// to the programs.
//
// Goal: whatever is killed or stopped, reads and changes of a register have an order in which each
// answers what it had to. Method: five pinstriped processes; client processes read and change a few
// registers (tests/support/register_clients.h); drives are killed (SIGKILL) and started again, or
// stopped (SIGSTOP) and go on later, up to two at a time; clients are killed and replaced. The
// histories are checked in the end (tests/support/linearizability.h).
//
//   CRASH_SECONDS=600 linearizable_test    for so long

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "tests/crash/daemon.h"
#include "tests/support/free_ports.h"
#include "tests/support/register_clients.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

constexpr int kDrives = 5;
constexpr int kMostIll = 2;  // of five replicas
constexpr int kClients = 4;

// How long troubles last; nothing is waited for. A Signal would need a runtime, and so a thread.
void Pause(milliseconds time) { std::this_thread::sleep_for(time); }

class LinearizableTest : public testing::Test {
 protected:
  LinearizableTest() : ports_(FreePorts(kDrives)), drives_(kDrives), clients_(Config(), kClients) {}

  ClusterConfig Config() const {
    ClusterConfig config;
    config.file = "cluster.toml";
    config.name = "test";
    config.layout = {3, 2, 64 << 10};
    config.replicas = kDrives;
    config.groups = 4;
    config.memory_bytes = 64 << 20;
    config.drive_timeout = milliseconds(1000);
    for (size_t i = 0; i < kDrives; ++i) {
      DriveConfig drive;
      drive.id = static_cast<DriveId>(i + 1);
      drive.addresses = {fmt::format("127.0.0.1:{}", ports_[i])};
      config.drives.push_back(drive);
    }
    return config;
  }

  // Ready when it answers; whoever asks earlier counts it as away.
  void StartDrive(size_t i) {
    const std::string path = directory_ / fmt::format("drive{}", i);
    if (!std::filesystem::exists(path)) MakeDrive(path);
    const std::string config = directory_ / fmt::format("drive{}.toml", i);
    std::ofstream(config) << fmt::format(
        "[daemon]\nlisten = \"127.0.0.1\"\n[[drive]]\npath = \"{}\"\nport = {}\n", path, ports_[i]);
    drives_[i] = std::make_unique<Daemon>(
        std::vector<std::string>{"--config", config, "--log-level", "error"});
    ASSERT_TRUE(drives_[i]->IsReady()) << drives_[i]->Messages();
  }

  // Some drives fall ill, and get well again.
  void Trouble() {
    std::set<size_t> killed;
    std::set<size_t> stopped;
    const size_t count = random_() % (kMostIll + 1);
    while (killed.size() + stopped.size() < count) {
      const size_t drive = random_() % kDrives;
      if (killed.contains(drive) || stopped.contains(drive)) continue;
      if (random_() % 2 == 0) {
        drives_[drive]->Kill();
        killed.insert(drive);
      } else {
        ASSERT_EQ(kill(drives_[drive]->pid(), SIGSTOP), 0);
        stopped.insert(drive);
      }
    }
    killed_ += killed.size();
    stopped_ += stopped.size();
    if (random_() % 2 == 0) {
      clients_.Restart(random_() % kClients);
      ++clients_killed_;
    }
    Pause(milliseconds(random_() % 400));
    for (const size_t drive : killed) StartDrive(drive);
    for (const size_t drive : stopped) kill(drives_[drive]->pid(), SIGCONT);
    clients_.StartThoseThatEnded();
  }

  TemporaryDirectory directory_;
  const std::vector<uint16_t> ports_;
  std::vector<std::unique_ptr<Daemon>> drives_;
  RegisterClients clients_;
  size_t killed_ = 0;
  size_t stopped_ = 0;
  size_t clients_killed_ = 0;
  std::mt19937_64 random_{SeedsFromEnvironment(1).first};
};

TEST_F(LinearizableTest, WhateverIsKilledOrStopped) {
  const char* wanted = std::getenv("CRASH_SECONDS");
  const auto seconds = std::chrono::seconds(wanted ? std::atoi(wanted) : 8);
  for (size_t i = 0; i < kDrives; ++i) StartDrive(i);
  clients_.Format();
  if (HasFailure()) return;
  for (size_t i = 0; i < kClients; ++i) clients_.Start(i);
  const auto end = std::chrono::steady_clock::now() + seconds;
  while (std::chrono::steady_clock::now() < end && !HasFailure()) {
    Trouble();
    Pause(milliseconds(random_() % 200));  // all is well for a while
  }
  clients_.KillAll();
  clients_.ExpectLinearizable(fmt::format("{} drives killed, {} stopped, {} clients killed",
                                          killed_, stopped_, clients_killed_));
}

}  // namespace
}  // namespace pinstripe
