// Strangers open connections to a pinstriped that may have few descriptors, and say nothing: its
// drives go on, its clients come and go, and nothing is left of it afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/log.h"
#include "tests/crash/daemon.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/drive_client.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"
#include "tools/dev_config.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr unsigned kDescriptors = 400;
constexpr size_t kStrangers = 2000;

class StrangersTest : public testing::Test, protected DriveClient {
 protected:
  StrangersTest() {
    SetLogLevel(LogLevel::kError);
    std::ofstream(config_) << DaemonConfigText({{.port = port_, .path = directory_ / "drive"}},
                                               kDriveBytes);
    MakeDrive(directory_ / "drive");
  }

  std::unique_ptr<Daemon> Start() {
    return std::make_unique<Daemon>(std::vector<std::string>{"--config", config_},
                                    std::map<std::string, std::string>(), kDescriptors);
  }

  Status Put(Drive& drive, const std::string& key, size_t bytes) {
    return Await<Status>([&](auto done) {
      drive.Put({.key = key, .value = SharedBytes(std::string(bytes, 'v'))}, Deadline(), done);
    });
  }
  std::string Failure(Drive& drive) {
    const auto info = Await<Result<DriveInfo>>([&](auto done) { drive.Info(Deadline(), done); });
    return info.has_value() ? info->failure : std::string(info.error().message());
  }

  static size_t Descriptors(pid_t pid) {
    const fs::directory_iterator open(fmt::format("/proc/{}/fd", pid));
    return static_cast<size_t>(std::distance(begin(open), end(open)));
  }
  // What the process has taken of processors.
  static Duration Cpu(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    long user = 0;
    long system = 0;
    fields >> user >> system;
    return (user + system) * Duration(1s) / sysconf(_SC_CLK_TCK);
  }

  TemporaryDirectory directory_;
  const std::string config_ = directory_ / "config";
  const uint16_t port_ = FreePorts(1)[0];
};

// The store has to open files all the while: the index makes its tables from 8 MiB on.
TEST_F(StrangersTest, ThoseWhoSayNothingKeepNobodyAway) {
  ASSERT_TRUE(CanHaveConnections(kStrangers));
  const auto daemon = Start();
  ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
  const auto client = Connect(port_);
  ASSERT_OK(Put(*client, "before", 100));
  const size_t before = Descriptors(daemon->pid());
  {
    std::vector<WireClient> strangers;
    for (size_t i = 0; i < kStrangers; ++i) strangers.emplace_back(port_);
    for (int i = 0; i < 5000; ++i) ASSERT_OK(Put(*client, fmt::format("key {}", i), 3000));
    EXPECT_EQ(Failure(*client), "");
    EXPECT_OK(Put(*Connect(port_), "of one who comes now", 100));
    EXPECT_LE(Descriptors(daemon->pid()), kDescriptors * 3 / 4);

    const Duration cpu = Cpu(daemon->pid());
    const auto never = runtime_.NewSignal();
    never->WaitUntil(runtime_.Now() + 1s);
    EXPECT_LT(Cpu(daemon->pid()) - cpu, 300ms) << "they wait, and it works";
  }
  EXPECT_OK(Put(*Connect(port_), "after", 100));
  const Time patience = Deadline();
  while (Descriptors(daemon->pid()) > before + 30 && runtime_.Now() < patience) {
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + 10ms);
  }
  EXPECT_LE(Descriptors(daemon->pid()), before + 30) << "files of the index may have come";
  EXPECT_EQ(Failure(*client), "");
  EXPECT_EQ(daemon->Stop(), 0) << daemon->Messages();
  EXPECT_THAT(daemon->Messages(), testing::Not(testing::HasSubstr("failed")));
}

}  // namespace
}  // namespace pinstripe
