// A pinstriped that is killed at random moments while clients put, delete and flush, and started
// again.
//
// Goal: a kill of the process loses nothing that was acknowledged, whatever durability was asked
// for, and damages nothing. Method: real processes on a real directory; several clients, each with
// keys of its own, note what they begin and what is acknowledged; after each kill everything is
// read and compared, and now and then, and at the end, pinstriped --check reads the store.
//
//   CRASH_SECONDS=600 kill_test    for so long, thousands of rounds

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "base/log.h"
#include "tests/crash/daemon.h"
#include "tests/crash/operation_log.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"
#include "tools/dev_config.h"

namespace pinstripe {
namespace {

constexpr int kClients = 4;
constexpr int kKeysOfClient = 16;
constexpr int kFewRounds = 10;  // of an ordinary run
constexpr int kRoundsBetweenChecks = 50;
constexpr int kMostLoadMs = 150;

class KillTest : public testing::Test, protected DriveClient {
 protected:
  KillTest() {
    SetLogLevel(LogLevel::kError);
    std::ofstream(config_) << DaemonConfigText({{.port = port_, .path = path_}}, kDriveBytes);
    MakeDrive(path_);
  }

  // Puts, deletes and flushes until the drive fails.
  void Load(KineticDrive& drive, int client, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (true) {
      const std::string key = fmt::format("{}/{}", client, random() % kKeysOfClient);
      const auto durability =
          random() % 3 == 0 ? Durability::kWriteThrough : Durability::kWriteBack;
      Status status;
      if (random() % 8 == 0) {
        status = Await<Status>([&](auto done) { drive.Flush(Deadline(), done); });
      } else if (random() % 4 == 0) {
        log_.Begin({key}, true);
        status = Await<Status>(
            [&](auto done) { drive.Delete(key, Expected::Any(), durability, Deadline(), done); });
        if (status.ok()) log_.Acknowledge(key, true);
      } else {
        const uint64_t number = log_.Begin({key}, false)[0];
        StoredRecord record = OperationLog::RecordOf(key, number);
        status = Await<Status>([&](auto done) {
          drive.Put({.key = key,
                     .value = record.value,
                     .version = record.head.version,
                     .tag = record.head.tag,
                     .durability = durability},
                    Deadline(), done);
        });
        if (status.ok()) log_.Acknowledge(key, true);
      }
      if (!status.ok()) return;
    }
  }

  std::string Compare(KineticDrive& drive) {
    const auto look = [&](const std::string& key) -> Result<StoredRecord> {
      Result<Record> record =
          Await<Result<Record>>([&](auto done) { drive.Get(key, {}, Deadline(), done); });
      if (!record.has_value()) return Failed(std::move(record).error());
      return StoredRecord{{.version = record->version, .tag = record->tag}, record->value};
    };
    const std::string complaint =
        log_.Complaint(log_.Floors(OperationLog::Crash::kKill), log_.Ceilings(), look);
    if (complaint.empty()) log_.GoOnFrom(look);
    return complaint;
  }

  // One life of the daemon.
  void Round(int round) {
    const Time start = runtime_.Now();
    Daemon daemon({"--config", config_, "--log-level", "error"});
    ASSERT_TRUE(daemon.IsReady());
    longest_start_ = std::max(longest_start_, runtime_.Now() - start);
    const auto drive = Connect(port_);
    ASSERT_EQ(Compare(*drive), "") << "round " << round;
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back(
          [&, client] { Load(*drive, client, static_cast<uint64_t>(round * kClients + client)); });
    }
    const auto moment = std::chrono::milliseconds(random_() % kMostLoadMs);
    const auto never = runtime_.NewSignal();
    never->WaitUntil(runtime_.Now() + moment);
    daemon.Kill();
    for (std::thread& client : clients) client.join();
  }

  void Check() {
    Daemon check({"--check", path_});
    EXPECT_EQ(check.Wait(), 0) << "pinstriped --check has found damage";
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "store";
  const std::string config_ = directory_ / "config";
  const uint16_t port_ = FreePorts(1)[0];
  OperationLog log_;
  std::mt19937_64 random_{7};
  Duration longest_start_{};
};

TEST_F(KillTest, WhatWasAcknowledgedSurvivesKills) {
  const char* seconds = std::getenv("CRASH_SECONDS");
  const Time end =
      runtime_.Now() + std::chrono::seconds(seconds == nullptr ? 0 : std::atoi(seconds));
  int round = 0;
  for (; round < kFewRounds || runtime_.Now() < end; ++round) {
    Round(round);
    if (HasFailure()) return;
    if (round % kRoundsBetweenChecks == 0) Check();
  }
  Check();
  EXPECT_GT(log_.changes(), static_cast<uint64_t>(round)) << "there was no load";
  std::printf("%d kills, %llu changes; the longest start took %lld ms\n", round,
              static_cast<unsigned long long>(log_.changes()),
              static_cast<long long>(
                  std::chrono::duration_cast<std::chrono::milliseconds>(longest_start_).count()));
}

}  // namespace
}  // namespace pinstripe
