// Disks that do not take what they are given. Real processes of pinstriped on a real file system,
// whose kernel tells of a write that failed once, and then shows what the disk does not have until
// it needs the memory.
//
// Goal: a flush never says that something is durable which is not there when the disk is looked at
// anew; nor does a drive that is started again after a failure say that it has what only the kernel
// has. Method: a disk without room (failing_disk.h), which takes what it is given again later; then
// the file system is mounted again, and everything is compared with what was said.
//
// Where nobody may mount, these are skipped; LogStoreTest and SharedCommit in
// tests/store/log_store_test.cc hold the store to the same with a disk in memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/log.h"
#include "tests/crash/daemon.h"
#include "tests/crash/failing_disk.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/free_ports.h"
#include "tests/support/temporary_directory.h"
#include "tools/dev_config.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int kDrives = 2;
constexpr int kKeys = 6;
// All of them within the space that a segment asks for at once: in more pieces the file system
// would need another block to tell of them, and notice that the disk does not take it.
constexpr size_t kValueBytes = 100'000;

class LostWriteTest : public testing::Test, protected DriveClient {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    std::string why;
    disk_ = FailingDisk::Make(&why);
    if (disk_ == nullptr) GTEST_SKIP() << "there is no disk that fails: " << why;
  }

  // With so many drives on the disk. Throws when that does not serve them.
  void Start(int drives) {
    std::vector<DevDrive> served;
    for (int i = 0; i < drives; ++i) {
      const std::string path = fmt::format("{}/{}", disk_->path(), i);
      if (!std::filesystem::exists(path)) MakeDrive(path);
      served.push_back({.port = ports_[i], .path = path});
    }
    std::ofstream(config_) << DaemonConfigText(served, 100'000'000);
    daemon_ = std::make_unique<Daemon>(std::vector<std::string>{"--config", config_});
    if (!daemon_->IsReady()) throw std::runtime_error(daemon_->Messages());
    drives_.clear();
    for (int i = 0; i < drives; ++i) {
      drives_.push_back(Connect(ports_[i], fmt::format("drive {}", i)));
    }
  }
  void Kill() {
    drives_.clear();
    daemon_->Kill();
  }

  Status Put(int drive, const std::string& key) {
    return Await<Status>([&](auto done) {
      drives_[drive]->Put({.key = key, .value = SharedBytes(ValueOf(key))}, Deadline(), done);
    });
  }
  Status Flush(int drive) {
    return Await<Status>([&](auto done) { drives_[drive]->Flush(Deadline(), done); });
  }
  DriveInfo Info(int drive) {
    const auto info =
        Await<Result<DriveInfo>>([&](auto done) { drives_[drive]->Info(Deadline(), done); });
    EXPECT_OK(info);
    return info.value_or(DriveInfo());
  }
  // 0: it is there, as it was put. Else how it is not.
  int Look(int drive, const std::string& key) {
    const auto record =
        Await<Result<Record>>([&](auto done) { drives_[drive]->Get(key, {}, Deadline(), done); });
    if (!record.has_value()) return record.error().code();
    EXPECT_EQ(record->value.text(), ValueOf(key)) << key;
    return 0;
  }
  static std::string ValueOf(const std::string& key) {
    std::string value(kValueBytes, '\0');
    for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(key.at(0) + i * i % 251);
    return value;
  }
  static std::string Key(int i) { return std::string(1, static_cast<char>('a' + i)); }

  std::unique_ptr<FailingDisk> disk_;
  TemporaryDirectory directory_;
  const std::string config_ = directory_ / "config";
  const std::vector<uint16_t> ports_ = FreePorts(kDrives);
  std::unique_ptr<Daemon> daemon_;
  std::vector<std::unique_ptr<KineticDrive>> drives_;
};

// The kernel tells each descriptor once of what it could not write, and of what was told to
// somebody it tells nobody who comes later.
TEST_F(LostWriteTest, AFlushFailsAlsoWhenSomebodyElseWasToldOfIt) {
  Start(kDrives);
  for (int drive = 0; drive < kDrives; ++drive) ASSERT_OK(Put(drive, "before"));
  ASSERT_OK(Flush(0));
  ASSERT_OK(Flush(1));
  disk_->Fail();
  for (int drive = 0; drive < kDrives; ++drive) {
    for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(drive, Key(i)));
  }
  ASSERT_TRUE(disk_->SyncBySomebodyElse()) << "this disk does not fail";
  disk_->Mend();
  EXPECT_FALSE(Flush(0).ok());
  EXPECT_FALSE(Flush(1).ok());
  for (int drive = 0; drive < kDrives; ++drive) {
    EXPECT_THAT(Info(drive).failure, HasSubstr("changes are refused since the store failed"));
  }
  Kill();
  disk_->Remount();
  Start(kDrives);
  int lost = 0;
  for (int drive = 0; drive < kDrives; ++drive) {
    EXPECT_EQ(Look(drive, "before"), 0);
    EXPECT_FALSE(Info(drive).starts.at(0).clean);
    for (int i = 0; i < kKeys; ++i) lost += Look(drive, Key(i)) != 0;
  }
  EXPECT_GT(lost, 0) << "this disk does not lose anything";
}

// One drive alone syncs its own files.
class StartedAgainTest : public LostWriteTest, public testing::WithParamInterface<bool> {};

TEST_P(StartedAgainTest, ADriveHasOnItsDiskWhatItShows) {
  const bool was_told = GetParam();
  Start(1);
  ASSERT_OK(Put(0, "before"));
  ASSERT_OK(Flush(0));
  disk_->Fail();
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(0, Key(i)));
  if (was_told) {
    EXPECT_FALSE(Flush(0).ok());
    EXPECT_FALSE(Put(0, "later").ok());
  }
  EXPECT_EQ(Look(0, Key(0)), 0) << "reads go on";
  ASSERT_TRUE(disk_->SyncBySomebodyElse());
  Kill();
  disk_->Mend();

  Start(1);
  EXPECT_FALSE(Info(0).starts.at(0).clean);
  EXPECT_THAT(daemon_->Messages(), HasSubstr("its disk had failed to take what was written"));
  ASSERT_OK(Flush(0));
  std::vector<int> shown;
  for (int i = 0; i < kKeys; ++i) shown.push_back(Look(0, Key(i)));
  EXPECT_EQ(Look(0, "before"), 0);
  Kill();
  disk_->Remount();

  Start(1);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(Look(0, Key(i)), shown[i]) << Key(i);
  EXPECT_EQ(Look(0, "before"), 0);
  // It goes on from there.
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(0, Key(i)));
  ASSERT_OK(Flush(0));
  Kill();
  disk_->Remount();
  Start(1);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(Look(0, Key(i)), 0) << Key(i);
}

INSTANTIATE_TEST_SUITE_P(OneThat, StartedAgainTest, testing::Bool(), [](const auto& info) {
  return info.param ? "WasToldOfTheFailure" : "WasKilledBeforeItWasTold";
});

// A disk that takes nothing any more does not take down either that it does not.
TEST_F(LostWriteTest, AFailureIsNotForgottenWhereItCouldNotBeWrittenDown) {
  Start(1);
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(0, Key(i)));
  disk_->ShutDown();
  EXPECT_FALSE(Flush(0).ok());
  Kill();
  disk_->Remount();
  Start(1);
  EXPECT_FALSE(Info(0).starts.at(0).clean);
}

TEST_F(LostWriteTest, ADriveThatIsStoppedAndCannotPutEverythingAwayDoesNotSayThatItHas) {
  Start(1);
  disk_->Fail();
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(0, Key(i)));
  drives_.clear();
  const int status = daemon_->Stop();
  EXPECT_EQ(WEXITSTATUS(status), 1) << daemon_->Messages();
  disk_->Mend();
  Start(1);
  EXPECT_FALSE(Info(0).starts.at(0).clean);
  drives_.clear();
  EXPECT_EQ(daemon_->Stop(), 0);
  disk_->Remount();
  Start(1);
  EXPECT_TRUE(Info(0).starts.at(0).clean);
}

// Nobody had been told yet.
TEST_F(LostWriteTest, ADriveWhoseFileSystemWasUnmountedAfterAKillMayHaveForgotten) {
  Start(1);
  disk_->Fail();
  for (int i = 0; i < kKeys; ++i) ASSERT_OK(Put(0, Key(i)));
  Kill();
  disk_->Remount();
  disk_->Mend();
  Start(1);
  EXPECT_FALSE(Info(0).starts.at(0).clean);
  int lost = 0;
  for (int i = 0; i < kKeys; ++i) lost += Look(0, Key(i)) != 0;
  EXPECT_GT(lost, 0) << "this disk does not lose anything";
}

}  // namespace
}  // namespace pinstripe
