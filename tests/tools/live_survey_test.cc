// A survey of drives behind real sockets, as `pinstripe status` takes it, while they come and go.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "base/real_runtime.h"
#include "cluster/connect.h"
#include "daemon/server.h"
#include "fs/file_system.h"
#include "kinetic/io.h"
#include "store/memory_store.h"
#include "tests/support/expect_ok.h"
#include "tools/dev_config.h"
#include "tools/names_load.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Says, when told to, that it takes no changes any more.
class FailableStore final : public Store {
 public:
  explicit FailableStore(const std::atomic<bool>& failed) : failed_(failed) {}
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    return store_.Get(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override { return store_.Head(key); }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_.Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override {
    return store_.Put(key, record, room);
  }
  Status Delete(std::string_view key) override { return store_.Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override { return store_.Apply(changes); }
  Status Flush() override { return store_.Flush(); }
  StoreUsage Usage() override {
    StoreUsage usage = store_.Usage();
    if (failed_) usage.failure = Status(EIO, "the disk is worn out");
    return usage;
  }

 private:
  const std::atomic<bool>& failed_;
  MemoryStore store_;
};

// A device that can be switched off and on again, and keeps its records meanwhile.
class SwitchableDrive {
 public:
  SwitchableDrive(Runtime& runtime, const std::string& serial)
      : runtime_(runtime),
        engine_(std::make_unique<FailableStore>(failed_)),
        service_({.serial_number = serial, .world_wide_name = serial}, security_, engine_) {
    On();
  }

  void On() {
    server_ = std::make_unique<Server>(runtime_, Server::Options{});
    const Result<uint16_t> port = server_->Listen("127.0.0.1", port_, service_);
    ASSERT_TRUE(port) << port.error().message();
    port_ = *port;
  }
  void Off() { server_.reset(); }
  void BreakStore() { failed_ = true; }
  uint16_t port() const { return port_; }

 private:
  Runtime& runtime_;
  std::atomic<bool> failed_ = false;
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  Engine engine_;
  KineticService service_;
  uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
};

class LiveSurvey : public testing::Test {
 protected:
  LiveSurvey() {
    char name[] = "/tmp/pinstripe-live-survey-XXXXXX";
    directory_ = mkdtemp(name);
    for (int id = 1; id <= 4; ++id) {
      drives_.push_back(std::make_unique<SwitchableDrive>(runtime_, fmt::format("serial-{}", id)));
    }
    WriteConfig("live");
    WriteFile("credentials.toml", CredentialsText());
  }
  ~LiveSurvey() override { std::filesystem::remove_all(directory_); }

  void WriteFile(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
  }

  void WriteConfig(const std::string& cluster_name) {
    DevClusterText text{.name = cluster_name,
                        .layout = {2, 1},
                        .close = "commit",
                        .credentials_file = "credentials.toml"};
    for (size_t i = 0; i < drives_.size(); ++i) {
      text.drives.push_back(
          {.id = static_cast<int>(i + 1), .port = drives_[i]->port(), .path = ""});
    }
    WriteFile("cluster.toml", ClusterConfigText(text) +
                                  "\n[limits]\ndrive_timeout = \"2 s\"\nopen_timeout = \"2 s\"\n");
  }

  std::string ConfigFile() const { return directory_ + "/cluster.toml"; }

  void Format() {
    const Result<ClusterConfig> config = ClusterConfig::Load(ConfigFile());
    ASSERT_TRUE(config) << config.error().message();
    KineticIo io(runtime_);
    EXPECT_OK(Cluster::Format(runtime_, *config, RealDriveFactory(io, config->drive_timeout), {}));
  }

  Survey Take() {
    Result<Survey> survey = TakeSurvey(runtime_, ConfigFile());
    EXPECT_TRUE(survey) << survey.error().message();
    return *std::move(survey);
  }

  RealRuntime runtime_;
  std::string directory_;
  std::vector<std::unique_ptr<SwitchableDrive>> drives_;
};

TEST_F(LiveSurvey, FollowsDrivesAsTheyGoAndReturn) {
  Format();
  const Survey all = Take();
  EXPECT_EQ(HealthOf(all), Health::kHealthy) << SurveyText(all);
  EXPECT_EQ(all.uuid.size(), 16u);
  EXPECT_EQ(all.epoch, 1u);
  ASSERT_TRUE(all.space);
  EXPECT_GT(all.space->raw_bytes, all.space->usable_bytes);
  for (const DriveReport& drive : all.drives) {
    ASSERT_TRUE(drive.service) << drive.id;
    EXPECT_GT(drive.service->writes.count(), 0u) << drive.id;  // its superblock, at least
    EXPECT_EQ(drive.errors, 0u) << drive.id;
  }

  drives_[2]->Off();
  const Survey without_one = Take();
  EXPECT_EQ(HealthOf(without_one), Health::kDegraded) << SurveyText(without_one);
  ASSERT_EQ(without_one.drives.size(), 4u);
  EXPECT_FALSE(without_one.drives[2].info);

  drives_[2]->On();
  EXPECT_EQ(HealthOf(Take()), Health::kHealthy);
}

TEST_F(LiveSurvey, ADriveThatServesReadsOnlyCountsAsDown) {
  Format();
  drives_[1]->BreakStore();
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kDegraded);
  EXPECT_EQ(survey.DrivesDown(), 1u);
  EXPECT_THAT(SurveyText(survey), HasSubstr("FAILED: the disk is worn out"));
}

TEST_F(LiveSurvey, ShowsEveryDriveWhenTheClusterCannotBeOpened) {
  Format();
  for (const int i : {0, 1, 3}) drives_[i]->Off();
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  ASSERT_EQ(survey.drives.size(), 4u);
  EXPECT_TRUE(survey.drives[2].info) << survey.drives[2].info.error().message();
  EXPECT_EQ(survey.DrivesDown(), 3u);
  EXPECT_THAT(SurveyText(survey), HasSubstr("unavailable"));
}

// What `pinstripe bench names` runs needs such drives as well.
TEST_F(LiveSurvey, NamesAreMeasuredAndGoneAfterwards) {
  Format();
  const auto connected = Connect(runtime_, ConfigFile());
  ASSERT_OK(connected);
  ASSERT_OK(FileSystem::Format((*connected)->cluster(), {}, 0755));
  for (const bool shared : {false, true}) {
    std::vector<std::string> done;
    const NamesLoadTold tell{[&](const NamesLoadResult& result) {
                               done.push_back(fmt::format("{} {}", result.op, result.operations));
                             },
                             [](std::string_view, double) {}};
    NamesLoad load{.config = ConfigFile(), .clients = {2}, .files = 5, .shared = shared};
    ASSERT_OK(RunNamesLoad(runtime_, load, tell));
    EXPECT_THAT(done, ElementsAre("create 10", "stat 10", "list 10", "rename 10", "delete 10"));
    done.clear();
    load.fill = 7;
    if (!shared) {
      EXPECT_FAILS(RunNamesLoad(runtime_, load, tell), EINVAL);
      continue;
    }
    ASSERT_OK(RunNamesLoad(runtime_, load, tell));
    EXPECT_THAT(done, ElementsAre("fill 7", "create 10", "stat 10", "list 17", "rename 10",
                                  "delete 10", "clear 7"));
  }
  const auto fs = FileSystem::Open((*connected)->cluster(), {});
  ASSERT_OK(fs);
  EXPECT_TRUE((*fs)->ReadDirectory(kRootInode, "", 10, false)->empty());
  EXPECT_FAILS(RunNamesLoad(runtime_, {.config = ConfigFile(), .clients = {0}}, {}), EINVAL);
}

TEST_F(LiveSurvey, SaysThatDrivesWereNeverFormatted) {
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_THAT(SurveyText(survey), HasSubstr("run `pinstripe format`"));
}

TEST_F(LiveSurvey, SaysWhichOtherClusterTheDrivesHold) {
  Format();
  WriteConfig("lvie");
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr("DOWN: it holds the cluster 'live', not 'lvie'"));
  EXPECT_THAT(text, HasSubstr("is the name in " + ConfigFile() + " right?"));
  EXPECT_THAT(text, testing::Not(HasSubstr("it is empty")));
}

TEST_F(LiveSurvey, SaysWhoseDriveAnswersInPlaceOfTheRightOne) {
  Format();
  std::swap(drives_[0], drives_[1]);
  WriteConfig("live");
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_THAT(SurveyText(survey), HasSubstr("drive 2"));
}

TEST_F(LiveSurvey, SaysThatTheKeyIsWrong) {
  Format();
  WriteFile("credentials.toml", "[default]\nidentity = 1\nkey = \"another\"\n");
  const Survey survey = Take();
  EXPECT_EQ(HealthOf(survey), Health::kUnavailable);
  EXPECT_EQ(survey.DrivesDown(), 4u);
  const std::string text = SurveyText(survey);
  EXPECT_THAT(text, HasSubstr("DOWN: wrong key"));
  EXPECT_THAT(text,
              testing::ContainsRegex("can be used: drive 1 \\(127.0.0.1:[0-9]+\\): wrong key"));
}

TEST_F(LiveSurvey, FailsOnlyForABadConfiguration) {
  WriteFile("cluster.toml", "[cluster]\nname = \"live\"\ncolour = \"blue\"\n");
  const Result<Survey> survey = TakeSurvey(runtime_, ConfigFile());
  ASSERT_FALSE(survey);
  EXPECT_EQ(survey.error().code(), EINVAL);
}

}  // namespace
}  // namespace pinstripe
