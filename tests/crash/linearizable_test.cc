// Registers on real drives, used by real processes: what the simulation does to the protocol, done
// to the programs.
//
// Goal: whatever is killed or stopped, reads and changes of a register have an order in which each
// answers what it had to. Method: five pinstriped processes; client processes read and change a few
// registers and write down what they begin and what they were answered; drives are killed (SIGKILL)
// and started again, or stopped (SIGSTOP) and go on later, up to two at a time; clients are killed
// and replaced. The histories are checked in the end (tests/support/linearizability.h).
//
//   CRASH_SECONDS=600 linearizable_test    for so long

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/real_runtime.h"
#include "cluster/connect.h"
#include "kinetic/io_loop.h"
#include "kinetic/kinetic_drive.h"
#include "store/drive_mark.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/linearizability.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using Kind = RegisterOperation::Kind;
using std::chrono::milliseconds;

constexpr int kDrives = 5;
constexpr int kMostIll = 2;  // of five replicas
constexpr int kClients = 4;
constexpr int kRegisters = 3;              // that are used at a time
constexpr uint64_t kTermNs = 500'000'000;  // after which others are

// One clock for all processes of a machine.
uint64_t Nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// How long troubles last; nothing is waited for. A Signal would need a runtime, and so a thread.
void Pause(milliseconds time) { std::this_thread::sleep_for(time); }

// What a client process does until it is killed. Only registers of the present term are used: the
// histories stay short enough to be checked.
[[noreturn]] void LiveAsClient(const ClusterConfig& config, const std::string& notes, int number) {
  SetLogLevel(LogLevel::kError);
  RealRuntime runtime;
  KineticIo io(runtime);
  std::ofstream out(notes, std::ios::app);
  std::mt19937_64 random(static_cast<uint64_t>(number));
  auto cluster = Cluster::Open(runtime, config, RealDriveFactory(io, milliseconds(500)));
  if (!cluster.has_value()) _exit(0);  // too few drives just now
  std::map<std::string, RegisterValue> seen;
  for (int step = 0;; ++step) {
    const std::string key = fmt::format("L{}-{}", Nanoseconds() / kTermNs, random() % kRegisters);
    const std::string who = fmt::format("{}.{}", number, step);
    const RegisterName name{0, key};
    const uint64_t called = Nanoseconds();
    if (random() % 3 == 0) {
      const auto read = (*cluster)->registers().Read(name);
      if (!read.has_value()) continue;
      seen[key] = *read;
      out << fmt::format("read {} {} {} {} {} {}\n", key, who, called, Nanoseconds(), read->slot,
                         read->value.value_or("-"))
          << std::flush;
      continue;
    }
    const bool removes = random() % 6 == 0;
    const RegisterValue before = seen[key];
    out << fmt::format("begin {} {} {} {} {}\n", key, who, called, before.slot, removes ? "-" : who)
        << std::flush;
    const auto outcome = (*cluster)->registers().Change(
        name, before, removes ? std::nullopt : std::optional(who),
        random() % 4 == 0 ? Durability::kWriteThrough : Durability::kWriteBack);
    if (!outcome.why.ok()) continue;  // it did not happen, or nobody knows
    seen[key] = outcome.now;
    out << fmt::format("{} {} {} {} {} {}\n", outcome.applied() ? "applied" : "refused", key, who,
                       Nanoseconds(), outcome.now.slot, outcome.now.value.value_or("-"))
        << std::flush;
  }
}

class LinearizableTest : public testing::Test {
 protected:
  LinearizableTest() {
    config_.file = "cluster.toml";
    config_.name = "test";
    config_.layout = {3, 2, 64 << 10};
    config_.replicas = kDrives;
    config_.groups = 4;
    config_.memory_bytes = 64 << 20;
    config_.drive_timeout = milliseconds(1000);
    for (size_t i = 0; i < kDrives; ++i) {
      DriveConfig drive;
      drive.id = static_cast<DriveId>(i + 1);
      drive.addresses = {fmt::format("127.0.0.1:{}", ports_[i])};
      config_.drives.push_back(drive);
      drives_.push_back(0);
    }
  }
  ~LinearizableTest() override {
    for (const pid_t pid : drives_) End(pid);
    for (const pid_t pid : clients_) End(pid);
  }

  static void End(pid_t pid) {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  // Ready when it answers; whoever asks earlier counts it as away.
  void StartDrive(size_t i) {
    const std::string path = directory_ / fmt::format("drive{}", i);
    if (!std::filesystem::exists(path)) {
      std::filesystem::create_directory(path);
      ASSERT_OK(InitDrive(path, "of a test"));
    }
    const std::string config = directory_ / fmt::format("drive{}.toml", i);
    std::ofstream(config) << fmt::format(
        "[daemon]\nlisten = \"127.0.0.1\"\n[[drive]]\npath = \"{}\"\nport = {}\n", path, ports_[i]);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const FileDescriptor output(ends[0]);
    FileDescriptor input(ends[1]);
    drives_[i] = fork();
    if (drives_[i] == 0) {
      dup2(input.get(), STDOUT_FILENO);
      execl(PINSTRIPED, PINSTRIPED, "--config", config.c_str(), "--log-level", "error", nullptr);
      _exit(127);
    }
    input = FileDescriptor();
    char byte = 0;
    while (read(output.get(), &byte, 1) == 1 && byte != '\n') {
    }
  }

  void StartClient(size_t i) {
    const int number = ++last_client_;
    const std::string notes = directory_ / fmt::format("notes-{}", number);
    clients_[i] = fork();
    if (clients_[i] == 0) LiveAsClient(config_, notes, number);
  }

  // In a process of its own: this one must have no threads, because it forks.
  void Format() {
    const pid_t pid = fork();
    if (pid == 0) {
      RealRuntime runtime;
      KineticIo io(runtime);
      const Status status = Cluster::Format(
          runtime, config_, RealDriveFactory(io, milliseconds(5000)), {.force = true});
      if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      std::fflush(stderr);
      _exit(status.ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_EQ(status, 0);
  }

  // Some drives fall ill, and get well again.
  void Trouble() {
    std::vector<std::pair<size_t, bool>> ill;  // drive, killed
    const size_t count = random_() % (kMostIll + 1);
    while (ill.size() < count) {
      const size_t drive = random_() % kDrives;
      bool known = false;
      for (const auto& [other, killed] : ill) known |= other == drive;
      if (known) continue;
      const bool kills = random_() % 2 == 0;
      ASSERT_EQ(kill(drives_[drive], kills ? SIGKILL : SIGSTOP), 0);
      if (kills) waitpid(drives_[drive], nullptr, 0);
      ++(kills ? killed_ : stopped_);
      ill.emplace_back(drive, kills);
    }
    if (random_() % 2 == 0) {
      const size_t client = random_() % kClients;
      End(clients_[client]);
      StartClient(client);
      ++clients_killed_;
    }
    Pause(milliseconds(random_() % 400));
    for (const auto& [drive, killed] : ill) {
      if (killed) {
        StartDrive(drive);
      } else {
        kill(drives_[drive], SIGCONT);
      }
    }
    for (size_t i = 0; i < kClients; ++i) {  // those that could not open the cluster
      if (waitpid(clients_[i], nullptr, WNOHANG) == clients_[i]) StartClient(i);
    }
  }

  using Histories = std::map<std::string, std::vector<RegisterOperation>>;

  Histories ReadNotes() {
    Histories histories;
    for (int client = 1; client <= last_client_; ++client) {
      std::ifstream in(directory_ / fmt::format("notes-{}", client));
      std::map<std::string, size_t> begun;  // who: where it is
      for (std::string line; std::getline(in, line) && !in.eof();) {
        std::istringstream words(line);
        std::string kind, key, who, value;
        uint64_t slot = 0;
        words >> kind >> key >> who;
        std::vector<RegisterOperation>& history = histories[key];
        const auto parse = [&] { words >> slot >> value; };
        const auto content = [&] {
          return value == "-" ? std::nullopt : std::optional<std::string>(value);
        };
        if (kind == "read") {
          RegisterOperation operation{.kind = Kind::kRead, .who = who};
          words >> operation.called >> operation.returned;
          parse();
          operation.result = {slot, content()};
          history.push_back(operation);
        } else if (kind == "begin") {
          RegisterOperation operation{.kind = Kind::kUnknown, .who = who};
          words >> operation.called;
          parse();
          operation.seen_slot = slot;
          operation.value = content();
          begun[who] = history.size();
          history.push_back(operation);
        } else {
          RegisterOperation& operation = history[begun.at(who)];
          operation.kind = kind == "applied" ? Kind::kApplied : Kind::kRefused;
          words >> operation.returned;
          parse();
          operation.result = {slot, content()};
        }
      }
    }
    return histories;
  }

  TemporaryDirectory directory_;
  ClusterConfig config_;
  const std::vector<uint16_t> ports_ = FreePorts(kDrives);
  std::vector<pid_t> drives_;
  std::vector<pid_t> clients_ = std::vector<pid_t>(kClients);
  int last_client_ = 0;
  int killed_ = 0;
  int stopped_ = 0;
  int clients_killed_ = 0;
  std::mt19937_64 random_{SeedsFromEnvironment(1).first};
};

TEST_F(LinearizableTest, WhateverIsKilledOrStopped) {
  const char* wanted = std::getenv("CRASH_SECONDS");
  const auto seconds = std::chrono::seconds(wanted ? std::atoi(wanted) : 8);
  for (size_t i = 0; i < kDrives; ++i) StartDrive(i);
  Format();
  if (HasFailure()) return;
  for (size_t i = 0; i < kClients; ++i) StartClient(i);
  const auto end = std::chrono::steady_clock::now() + seconds;
  while (std::chrono::steady_clock::now() < end && !HasFailure()) {
    Trouble();
    Pause(milliseconds(random_() % 200));  // all is well for a while
  }
  for (pid_t& client : clients_) End(std::exchange(client, 0));

  Histories histories = ReadNotes();
  size_t certain = 0, uncertain = 0;
  for (const auto& [key, history] : histories) {
    for (const auto& operation : history) {
      ++(operation.kind == Kind::kUnknown ? uncertain : certain);
    }
    const std::string why = WhyNotLinearizable(history);
    ASSERT_EQ(why, "") << key;
  }
  std::printf(
      "%zu operations, %zu uncertain, on %zu registers; %d drives killed, %d stopped, "
      "%d clients killed\n",
      certain, uncertain, histories.size(), killed_, stopped_, clients_killed_);
  EXPECT_GT(certain, 100u) << "nothing was tested";

  // A test of the test: a change that replaced what was never there is found.
  for (auto& [key, history] : histories) {
    for (RegisterOperation& operation : history) {
      if (operation.kind != Kind::kApplied) continue;
      operation.seen_slot += 1000;
      EXPECT_NE(WhyNotLinearizable(history), "");
      return;
    }
  }
  FAIL() << "nothing was ever changed";
}

}  // namespace
}  // namespace pinstripe
