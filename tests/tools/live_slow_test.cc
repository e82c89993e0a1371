// Why something was slow, from the disk of one drive to what `pinstripe slow` says: drives behind
// real sockets, and a file system that waits for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/program.h"
#include "base/real_runtime.h"
#include "cluster/connect.h"
#include "daemon/server.h"
#include "fs/file_system.h"
#include "kinetic/io.h"
#include "store/memory_store.h"
#include "tests/support/expect_ok.h"
#include "tools/dev_config.h"
#include "upkeep/slow_operations.h"
#include "upkeep/slow_report.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr Duration kSlow = 100ms;

// A disk whose puts take as long as a test wants.
class DelayedStore final : public MemoryStore {
 public:
  DelayedStore(Runtime& runtime, const std::atomic<Duration>& delay)
      : runtime_(runtime), delay_(delay) {}
  Status Put(std::string_view key, const StoredRecord& record, Room room) override {
    const Duration delay = delay_;
    if (delay > Duration()) runtime_.NewSignal()->WaitUntil(runtime_.Now() + delay);
    return MemoryStore::Put(key, record, room);
  }

 private:
  Runtime& runtime_;
  const std::atomic<Duration>& delay_;
};

struct LiveDrive {
  LiveDrive(Runtime& runtime, const std::string& serial)
      : engine(std::make_unique<DelayedStore>(runtime, delay)),
        service({.serial_number = serial, .world_wide_name = serial, .slow_request = kSlow},
                security, engine),
        server(std::make_unique<Server>(runtime, Server::Options{})) {
    const Result<uint16_t> listening = server->Listen("127.0.0.1", 0, service);
    EXPECT_OK(listening);
    port = listening.value_or(0);
  }

  std::atomic<Duration> delay{};
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}}};
  Engine engine;
  KineticService service;
  uint16_t port = 0;
  std::unique_ptr<Server> server;
};

class LiveSlow : public testing::Test {
 protected:
  LiveSlow() {
    SetProgram({.name = "a-mount", .version = "1", .detail = "/mnt"});
    char name[] = "/tmp/pinstripe-live-slow-XXXXXX";
    directory_ = mkdtemp(name);
    DevClusterText text{.name = "slow",
                        .layout = {2, 1},
                        .close = "commit",
                        .credentials_file = "credentials.toml"};
    for (int id = 1; id <= 3; ++id) {
      drives_.push_back(std::make_unique<LiveDrive>(runtime_, fmt::format("serial-{}", id)));
      text.drives.push_back({.id = id, .port = drives_.back()->port, .path = ""});
    }
    Write("cluster.toml", ClusterConfigText(text));
    Write("credentials.toml", CredentialsText());
    const Result<ClusterConfig> config = ClusterConfig::Load(directory_ + "/cluster.toml");
    EXPECT_OK(config);
    config_ = *config;
    KineticIo io(runtime_);
    EXPECT_OK(Cluster::Format(runtime_, config_, RealDriveFactory(io, config_.drive_timeout), {}));
  }
  ~LiveSlow() override {
    std::filesystem::remove_all(directory_);
    SetProgram({});
  }

  void Write(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
  }

  // What `pinstripe slow` says when drives have heard of the operation, and which entry that is.
  SlowEntry EntryOf(uint64_t operation, std::string* text) {
    for (;;) {
      const ClusterSlow slow = AskSlow(runtime_, config_);
      const std::vector<SlowEntry> entries = JoinSlow(slow, {});
      for (const SlowEntry& each : entries) {
        if (!each.operation || each.operation->id != operation) continue;
        *text = SlowText(entries, slow, {});
        return each;
      }
    }
  }

  RealRuntime runtime_;
  std::string directory_;
  ClusterConfig config_;
  std::vector<std::unique_ptr<LiveDrive>> drives_;
};

// Three drives for two data shards and one of parity: nobody can do without the slow one. The
// blocks were sent by the write, and the close waits for them.
TEST_F(LiveSlow, ACloseThatWaitsForOneDiskNamesIt) {
  const auto connected = Connect(runtime_, directory_ + "/cluster.toml");
  ASSERT_OK(connected);
  Cluster& cluster = (*connected)->cluster();
  ASSERT_OK(FileSystem::Format(cluster, {10, 20}, 0755));
  const auto fs = FileSystem::Open(cluster, {});
  ASSERT_OK(fs);
  SlowOperations slow(cluster, kSlow);
  const auto file = (*fs)->Create(kRootInode, "file", {});
  ASSERT_OK(file);
  drives_[2]->delay = 300ms;
  const Buffer data(5 << 20);
  {
    const OperationTrace trace;
    ASSERT_OK((*file)->Write(0, data));
  }
  const OperationTrace trace;
  const Time start = runtime_.Now();
  ASSERT_OK((*file)->Close());
  const Duration took = runtime_.Now() - start;
  ASSERT_TRUE(slow.IsSlow(took));
  slow.Add(trace, "close", "inode 9", took);
  drives_[2]->delay = Duration();

  std::string text;
  const SlowEntry entry = EntryOf(trace.id(), &text);
  EXPECT_EQ(entry.client.program.name, "a-mount");
  EXPECT_EQ(entry.operation->subject, "inode 9");
  EXPECT_GE(entry.operation->drives, kSlow);
  EXPECT_LE(entry.operation->drives, took);
  ASSERT_FALSE(entry.parts.empty()) << text;
  const SlowPart& slowest = entry.parts.front();
  EXPECT_EQ(slowest.drive, 3) << text;
  EXPECT_EQ(slowest.tells, SlowPart::Drive::kTells) << text;
  EXPECT_GE(slowest.at_drive->queue + slowest.at_drive->store, 300ms) << text;
  EXPECT_THAT(slowest.at_drive->record, HasSubstr("of object")) << text;
  EXPECT_THAT(text, HasSubstr("close inode 9\n    a-mount on ")) << text;
}

TEST_F(LiveSlow, WhoReadsWhatIsNotSlowTellsNothing) {
  const auto connected = Connect(runtime_, directory_ + "/cluster.toml");
  ASSERT_OK(connected);
  Cluster& cluster = (*connected)->cluster();
  SlowOperations never(cluster, Duration());
  EXPECT_FALSE(never.IsSlow(1h));
  SlowOperations slow(cluster, 1s);
  EXPECT_FALSE(slow.IsSlow(999ms));
  EXPECT_TRUE(slow.IsSlow(1s));
  const ClusterSlow told = AskSlow(runtime_, config_);
  EXPECT_EQ(told.Silent(), 0u);
  EXPECT_THAT(SlowText(JoinSlow(told, {}), told, {}), HasSubstr("nothing took long"));
}

// The slowest of those that came together are told of, at most so many at a time.
TEST_F(LiveSlow, TheSlowestAreToldOf) {
  const auto connected = Connect(runtime_, directory_ + "/cluster.toml");
  ASSERT_OK(connected);
  SlowOperations slow((*connected)->cluster(), 1s);
  std::string text;
  uint64_t slowest = 0;
  for (int i = 0; i < 200; ++i) {
    const OperationTrace trace;
    slow.Add(trace, "read", "inode 9", std::chrono::seconds(i == 150 ? 1000 : 2 + i % 50));
    if (i == 150) slowest = trace.id();
  }
  EXPECT_EQ(EntryOf(slowest, &text).took, 1000s);
  const ClusterSlow told = AskSlow(runtime_, config_);
  size_t most = 0;
  for (const auto& drive : told.drives) most = std::max(most, drive.slow->operations.size());
  EXPECT_LT(most, 100u) << "at once, and each second later";
}

TEST(SlowOperations, ThresholdsAreNumbersOfSeconds) {
  EXPECT_EQ(*SlowOperations::ParseAfter("2"), 2s);
  EXPECT_EQ(*SlowOperations::ParseAfter("0.25"), 250ms);
  EXPECT_EQ(*SlowOperations::ParseAfter("0"), 0s);
  for (const char* wrong : {"", "-1", "1s", "nan", "inf", "1e9", "86401", " 1"}) {
    EXPECT_FAILS(SlowOperations::ParseAfter(wrong), EINVAL) << wrong;
  }
}

}  // namespace
}  // namespace pinstripe
