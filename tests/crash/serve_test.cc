// Several drives in one process of pinstriped, of which one cannot be served: the others are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/log.h"
#include "tests/crash/daemon.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"
#include "tools/dev_config.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int kDrives = 3;

class ServeTest : public testing::Test, protected DriveClient {
 protected:
  ServeTest() { SetLogLevel(LogLevel::kError); }

  std::string PathOf(int drive) const { return directory_ / fmt::format("{}", drive); }

  std::unique_ptr<Daemon> Start() {
    std::vector<DevDrive> drives;
    for (int i = 0; i < kDrives; ++i) drives.push_back({.port = ports_[i], .path = PathOf(i)});
    std::ofstream(config_) << DaemonConfigText(drives, kDriveBytes);
    return std::make_unique<Daemon>(std::vector<std::string>{"--config", config_});
  }
  // All drives are made, served, and stopped.
  void Make() {
    for (int i = 0; i < kDrives; ++i) MakeDrive(PathOf(i));
    const auto daemon = Start();
    ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
    EXPECT_EQ(daemon->Stop(), 0);
  }

  Status Put(Drive& drive) {
    return Await<Status>([&](auto done) {
      drive.Put({.key = "key", .value = SharedBytes(std::string("value"))}, Deadline(), done);
    });
  }
  Result<DriveInfo> Info(Drive& drive) {
    return Await<Result<DriveInfo>>([&](auto done) { drive.Info(Deadline(), done); });
  }

  TemporaryDirectory directory_;
  const std::string config_ = directory_ / "config";
  const std::vector<uint16_t> ports_ = FreePorts(kDrives);
};

// What may be wrong with the drive in a directory, and a word that then is told.
struct Fault {
  std::string name;
  std::string word;
  std::function<void(const std::string& path)> make;
};

class OneFaultTest : public ServeTest, public testing::WithParamInterface<Fault> {};

TEST_P(OneFaultTest, KeepsNoOtherDriveAway) {
  constexpr int kFaulty = 1;
  Make();
  GetParam().make(PathOf(kFaulty));
  const auto daemon = Start();
  ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
  EXPECT_THAT(daemon->Messages(), HasSubstr("error drive cannot be served"));
  for (int i = 0; i < kDrives; ++i) {
    const auto drive = Connect(ports_[i], fmt::format("drive {}", i));
    const Result<DriveInfo> info = Info(*drive);
    ASSERT_OK(info);
    if (i != kFaulty) {
      EXPECT_EQ(info->failure, "");
      EXPECT_OK(Put(*drive));
      continue;
    }
    EXPECT_THAT(info->failure, HasSubstr("cannot serve the drive in " + PathOf(i)));
    EXPECT_THAT(info->failure, HasSubstr(GetParam().word));
    EXPECT_TRUE(info->starts.empty());
    const Status put = Put(*drive);
    EXPECT_FAILS(put, EIO);
    EXPECT_THAT(std::string(put.message()), HasSubstr("cannot serve the drive in " + PathOf(i)));
    EXPECT_FAILS(Await<Status>([&](auto done) { drive->SetClusterVersion(7, Deadline(), done); }),
                 EACCES);
  }
  EXPECT_EQ(daemon->Stop(), 0) << "what it serves it has ended cleanly";
}

INSTANTIATE_TEST_SUITE_P(
    ADriveWith, OneFaultTest,
    testing::Values(
        Fault{"ADamagedSuperblock", "This drive is lost",
              [](const std::string& path) { fs::resize_file(path + "/superblock", 20); }},
        Fault{"NoIndex", "This drive is lost",
              [](const std::string& path) {
                fs::remove_all(path + "/index");
                fs::create_directory(path + "/index");
              }},
        Fault{"NoDirectory", "it has no file",
              [](const std::string& path) {
                fs::remove_all(path);
                fs::create_symlink("/proc/nothing", path);
              }},
        Fault{"ADiskThatIsNotMounted", "Is its disk mounted? (`pinstriped --init DIR`",
              [](const std::string& path) {
                fs::remove_all(path);
                fs::create_directory(path);
              }},
        Fault{"ADamagedMark", "mark of the drive is damaged",
              [](const std::string& path) { fs::resize_file(path + "/pinstripe-drive", 100); }},
        Fault{"SomebodyElsesFiles", "it has no file",
              [](const std::string& path) {
                fs::remove_all(path);
                fs::create_directory(path);
                std::ofstream(path + "/letter") << "dear";
              }},
        Fault{"DamagedIdentities", "It says who may use the drive",
              [](const std::string& path) {
                std::ofstream(path + "/security") << "x";
                fs::permissions(path + "/security", fs::perms::owner_read | fs::perms::owner_write);
              }}),
    [](const auto& info) { return info.param.name; });

TEST_F(ServeTest, ADiskThatIsNotMountedGetsNothingInItsPlace) {
  Make();
  fs::rename(PathOf(1), directory_ / "the disk");
  fs::create_directory(PathOf(1));
  {
    const auto daemon = Start();
    ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
    EXPECT_FAILS(Put(*Connect(ports_[1])), EIO);
    EXPECT_OK(Put(*Connect(ports_[2])));
    EXPECT_EQ(daemon->Stop(), 0);
  }
  EXPECT_TRUE(fs::is_empty(PathOf(1)));
  fs::remove(PathOf(1));
  fs::rename(directory_ / "the disk", PathOf(1));
  const auto daemon = Start();
  ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
  EXPECT_OK(Put(*Connect(ports_[1])));
}

// Earlier versions made no marks.
TEST_F(ServeTest, AStoreWithoutAMarkIsServedAndGetsOne) {
  Make();
  for (int i = 0; i < kDrives; ++i) fs::remove(PathOf(i) + "/pinstripe-drive");
  for (int round = 0; round < 2; ++round) {
    const auto daemon = Start();
    ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
    for (int i = 0; i < kDrives; ++i) EXPECT_OK(Put(*Connect(ports_[i])));
    EXPECT_EQ(daemon->Stop(), 0);
    for (int i = 0; i < kDrives; ++i) EXPECT_TRUE(fs::exists(PathOf(i) + "/pinstripe-drive"));
  }
}

TEST_F(ServeTest, InitMakesDrivesOfEmptyDirectoriesOrOfNone) {
  const auto init = [](std::vector<std::string> arguments, std::string* said) {
    arguments.insert(arguments.begin(), "--init");
    Daemon daemon(arguments);
    const int code = WEXITSTATUS(daemon.Wait());
    *said = daemon.Messages();
    return code;
  };
  std::string said;
  for (int i = 0; i < kDrives; ++i) fs::create_directory(PathOf(i));
  fs::create_directory(PathOf(0) + "/lost+found");
  std::ofstream(PathOf(2) + "/letter") << "dear";
  EXPECT_EQ(init({PathOf(0), PathOf(1), PathOf(2)}, &said), 1);
  EXPECT_THAT(said, HasSubstr(PathOf(2) + " is not empty: \"letter\" is in it"));
  EXPECT_TRUE(fs::is_empty(PathOf(1)));
  fs::remove(PathOf(2) + "/letter");
  EXPECT_EQ(init({PathOf(0), PathOf(1), PathOf(2)}, &said), 0) << said;
  EXPECT_EQ(init({PathOf(1)}, &said), 1);
  EXPECT_THAT(said, HasSubstr("is a drive already"));
  EXPECT_EQ(init({directory_ / "nothing"}, &said), 1);
  EXPECT_THAT(said, HasSubstr("there is no directory " + directory_ / "nothing"));
  EXPECT_EQ(init({PathOf(0), "--config", config_}, &said), 2);
  const auto daemon = Start();
  ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
  for (int i = 0; i < kDrives; ++i) EXPECT_OK(Put(*Connect(ports_[i])));
}

TEST_F(ServeTest, WithoutAnyDriveThatCanBeServedItFails) {
  Make();
  for (int i = 0; i < kDrives; ++i) fs::resize_file(PathOf(i) + "/superblock", 20);
  const auto daemon = Start();
  EXPECT_FALSE(daemon->IsReady());
  EXPECT_EQ(WEXITSTATUS(daemon->Wait()), 1);
  for (int i = 0; i < kDrives; ++i) {
    EXPECT_THAT(daemon->Messages(), HasSubstr("path=" + PathOf(i)));
  }
}

// One that another process serves stays there, whose port it is.
TEST_F(ServeTest, ADriveThatSomebodyElseServesIsLeftToHim) {
  Make();
  const std::string other_config = directory_ / "other";
  std::ofstream(other_config) << DaemonConfigText({{.port = ports_[1], .path = PathOf(1)}},
                                                  kDriveBytes);
  Daemon other({"--config", other_config});
  ASSERT_TRUE(other.IsReady());
  const auto daemon = Start();
  ASSERT_TRUE(daemon->IsReady()) << daemon->Messages();
  for (int i = 0; i < kDrives; ++i) EXPECT_OK(Put(*Connect(ports_[i])));
  EXPECT_EQ(daemon->Stop(), 0);
  EXPECT_EQ(other.Stop(), 0);
}

}  // namespace
}  // namespace pinstripe
