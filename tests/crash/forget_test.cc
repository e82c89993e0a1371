// Whether a drive says that it may have forgotten something. Real processes of pinstriped, which
// are stopped, or killed, on a machine that is restarted in between, as far as they can tell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "tests/crash/daemon.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"
#include "tools/dev_config.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

class ForgetTest : public testing::Test, protected DriveClient {
 protected:
  ForgetTest() {
    SetLogLevel(LogLevel::kError);
    MakeDrive(directory_ / "store");
  }

  std::unique_ptr<Daemon> Start(const std::string& boot_id, const std::string& store = "store") {
    const std::string config = directory_ / (store + ".toml");
    std::ofstream(config) << DaemonConfigText({{.port = port_, .path = directory_ / store}},
                                              kDriveBytes);
    auto daemon = std::make_unique<Daemon>(
        std::vector<std::string>{"--config", config},
        std::map<std::string, std::string>{{"PINSTRIPE_BOOT_ID", boot_id},
                                           {"PINSTRIPE_UPTIME_SECONDS", "1000"}});
    EXPECT_TRUE(daemon->IsReady()) << daemon->Messages();
    return daemon;
  }

  DriveInfo Info() {
    const auto drive = Connect(port_);
    const Result<DriveInfo> info =
        Await<Result<DriveInfo>>([&](auto done) { drive->Info(Deadline(), done); });
    EXPECT_OK(info);
    return info.value_or(DriveInfo());
  }
  void Put(const std::string& key) {
    const auto drive = Connect(port_);
    EXPECT_OK(Await<Status>([&](auto done) {
      drive->Put({.key = key, .value = SharedBytes(std::string(10'000, 'v'))}, Deadline(), done);
    }));
  }

  TemporaryDirectory directory_;
  const uint16_t port_ = FreePorts(1)[0];
};

constexpr char kWarning[] = "may have forgotten changes";

TEST_F(ForgetTest, OneThatIsStoppedStartsCleanly) {
  {
    const auto daemon = Start("boot 1");
    Info();
    Put("key");
    EXPECT_EQ(daemon->Stop(), 0) << daemon->Messages();
  }
  const auto daemon = Start("boot 2");
  const DriveInfo info = Info();
  ASSERT_EQ(info.starts.size(), 2u);
  EXPECT_EQ(info.start_count, 2u);
  EXPECT_TRUE(info.starts[0].clean && info.starts[1].clean);
  EXPECT_NE(info.starts[0].id, info.starts[1].id);
  EXPECT_GE(info.up, 1000s);
  EXPECT_LT(info.up, 2000s);
  EXPECT_THAT(daemon->Messages(), Not(HasSubstr(kWarning)));
}

TEST_F(ForgetTest, OneThatIsKilledHasForgottenNothing) {
  {
    const auto first = Start("boot 1");
    Info();  // so that somebody knows of it
    first->Kill();
  }
  const auto daemon = Start("boot 1");
  const DriveInfo info = Info();
  ASSERT_EQ(info.starts.size(), 2u);
  EXPECT_TRUE(info.starts[0].clean);
  EXPECT_THAT(daemon->Messages(), Not(HasSubstr(kWarning)));
}

TEST_F(ForgetTest, OneWhoseMachineWentDownMayHaveForgottenAndSaysSo) {
  {
    const auto first = Start("boot 1");
    Info();  // so that somebody knows of it
    first->Kill();
  }
  const auto daemon = Start("boot 2");
  const DriveInfo info = Info();
  ASSERT_EQ(info.starts.size(), 2u);
  EXPECT_FALSE(info.starts[0].clean);
  EXPECT_TRUE(info.starts[1].clean);
  EXPECT_GE(info.up, 1000s) << "what it has forgotten is older than the machine";
  EXPECT_THAT(daemon->Messages(), HasSubstr(kWarning));
  EXPECT_THAT(daemon->Messages(), HasSubstr("the machine went down without stopping it"));
}

TEST_F(ForgetTest, TheCopyOfADirectoryIsToldByItsStarts) {
  {
    const auto first = Start("boot 1");
    Info();
    first->Stop();
  }
  std::filesystem::copy(directory_ / "store", directory_ / "copy",
                        std::filesystem::copy_options::recursive);
  const auto starts_of = [&](const std::string& store) {
    const auto daemon = Start("boot 1", store);
    const DriveInfo info = Info();
    daemon->Stop();
    return info.starts;
  };
  const std::vector<DriveStart> original = starts_of("store");
  starts_of("copy");
  const std::vector<DriveStart> copy = starts_of("copy");
  ASSERT_EQ(original.size(), 2u);
  ASSERT_EQ(copy.size(), 3u);
  EXPECT_EQ(original[1], copy[2]) << "what they have in common";
  EXPECT_TRUE(copy[1].clean) << "it has all that the other one had";
  EXPECT_THAT(copy, Not(testing::Contains(original[0])));
}

// The same machine, and the kernel has all of the copy.
TEST_F(ForgetTest, TheCopyOfADriveThatIsServedMayHaveForgotten) {
  const auto daemon = Start("boot 1");
  Put("key");
  std::filesystem::copy(directory_ / "store", directory_ / "copy",
                        std::filesystem::copy_options::recursive);
  Put("later");
  daemon->Kill();
  const auto copy = Start("boot 1", "copy");
  EXPECT_FALSE(Info().starts.at(0).clean);
  EXPECT_THAT(copy->Messages(), HasSubstr("it is a copy, made while the drive was served"));
}

}  // namespace
}  // namespace pinstripe
