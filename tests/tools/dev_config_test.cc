#include "tools/dev_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/real_runtime.h"
#include "cluster/config.h"
#include "daemon/config.h"
#include "tools/config_text.h"
#include "tools/ports.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseGroups, AddsUpToTheDrives) {
  EXPECT_THAT(*ParseGroups("4,1,31", 36), ElementsAre(4, 1, 31));
  EXPECT_THAT(*ParseGroups("8", 8), ElementsAre(8));
  for (const char* text : {"", "4,1", "4,1,32", "0,36", "4,,32", "36,", "x"}) {
    EXPECT_EQ(ParseGroups(text, 36).error().code(), EINVAL) << text;
  }
}

class DevConfigTest : public testing::Test {
 protected:
  DevConfigTest() {
    char name[] = "/tmp/pinstripe-dev-config-test-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~DevConfigTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  const std::vector<DevDrive> drives_{{1, 20001, "/d/1"}, {2, 20002, "/d/2"}, {3, 20003, "/d/3"}};
  std::string directory_;
};

TEST_F(DevConfigTest, WhatIsWrittenForAClusterIsUnderstood) {
  Write("credentials.toml", CredentialsText(), 0600);
  const std::string file = Write("cluster.toml",
                                 ClusterConfigText({.name = "dev",
                                                    .layout = {2, 1},
                                                    .close = "durable",
                                                    .credentials_file = "credentials.toml",
                                                    .drives = drives_}),
                                 0644);
  const Result<ClusterConfig> config = ClusterConfig::Load(file);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->name, "dev");
  EXPECT_EQ(config->layout.geometry(), (Geometry{2, 1}));
  EXPECT_TRUE(config->durable_close);
  ASSERT_EQ(config->drives.size(), 3u);
  EXPECT_EQ(config->drives[1].id, 2);
  EXPECT_THAT(config->drives[1].addresses, ElementsAre("127.0.0.1:20002"));
}

TEST_F(DevConfigTest, ADriveOnRedisIsReachedAndServedAsItHasToBe) {
  const DevDrive drive{.id = 4, .port = 20004, .path = "/d/4", .is_redis = true};
  Write("credentials.toml", CredentialsText(), 0600);
  std::vector<DevDrive> drives = drives_;
  drives.push_back(drive);
  const std::string file = Write("cluster.toml",
                                 ClusterConfigText({.name = "dev",
                                                    .layout = {2, 1},
                                                    .close = "commit",
                                                    .credentials_file = "credentials.toml",
                                                    .drives = drives}),
                                 0644);
  const Result<ClusterConfig> config = ClusterConfig::Load(file);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_THAT(config->drives[3].addresses, ElementsAre("redis://127.0.0.1:20004"));
  EXPECT_TRUE(config->drives[3].IsRedis());
  EXPECT_FALSE(config->drives[2].IsRedis());
  // It has no key that everybody knows.
  EXPECT_TRUE(HasFactoryKey(config->drives[2]));
  EXPECT_FALSE(HasFactoryKey(config->drives[3]));
  const std::string shown = ConfigText(*config);
  const std::string of_it = shown.substr(shown.find("redis://"));
  EXPECT_EQ(of_it.find("identity"), std::string::npos) << of_it;
  const std::string text = RedisConfigText(drive, 1000);
  for (const char* line : {"bind 127.0.0.1\n", "port 20004\n", "dir /d/4\n", "appendonly yes\n",
                           "appendfsync always\n", "maxmemory 1000\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(DevConfigTest, WhatIsWrittenForADaemonIsUnderstood) {
  const std::string file = Write("pinstriped.toml", DaemonConfigText(drives_, 5'000'000'000), 0644);
  const Result<DaemonConfig> config = DaemonConfig::Load(file);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->listen, "127.0.0.1");
  ASSERT_EQ(config->drives.size(), 3u);
  EXPECT_EQ(config->drives[2].path, "/d/3");
  EXPECT_EQ(config->drives[2].port, 20003);
  EXPECT_EQ(config->drives[2].capacity_bytes, 5'000'000'000u);
}

TEST_F(DevConfigTest, TheEffectiveConfigurationReadsBackAsItself) {
  Write("credentials.toml", CredentialsText(), 0600);
  const std::string file = Write("cluster.toml",
                                 ClusterConfigText({.name = "dev",
                                                    .layout = {2, 1},
                                                    .close = "commit",
                                                    .credentials_file = "credentials.toml",
                                                    .drives = drives_}),
                                 0644);
  const Result<ClusterConfig> config = ClusterConfig::Load(file);
  ASSERT_TRUE(config) << config.error().message();
  const std::string text = ConfigText(*config);
  EXPECT_THAT(text, testing::Not(HasSubstr("asdfasdf"))) << "keys are not printed";
  EXPECT_THAT(text, HasSubstr("# identity 1, with the factory's key\n"));

  Write("cluster.toml", text, 0644);
  const Result<ClusterConfig> again = ClusterConfig::Load(file);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(ConfigText(*again), text);
}

TEST_F(DevConfigTest, OnlyDrivesWithTheFactorysKeyAreSaidToHaveIt) {
  for (const auto& [credentials, has_it] :
       std::vector<std::pair<std::string, bool>>{{"", true},
                                                 {"[default]\nkey = \"asdfasdf\"\n", true},
                                                 {"[default]\nkey = \"own\"\n", false}}) {
    Write("credentials.toml", credentials, 0600);
    const std::string file = Write("cluster.toml",
                                   ClusterConfigText({.name = "dev",
                                                      .layout = {2, 1},
                                                      .close = "commit",
                                                      .credentials_file = "credentials.toml",
                                                      .drives = drives_}),
                                   0644);
    const Result<ClusterConfig> config = ClusterConfig::Load(file);
    ASSERT_TRUE(config) << config.error().message();
    for (const DriveConfig& drive : config->drives)
      EXPECT_EQ(HasFactoryKey(drive), has_it) << credentials;
  }
}

TEST_F(DevConfigTest, PathsWithQuotesAndControlCharactersStayInOneString) {
  EXPECT_THAT(DaemonConfigText({{1, 20001, "/a \"b\""}}, 1 << 30),
              HasSubstr("path = \"/a \\\"b\\\"\""));
  EXPECT_THAT(DaemonConfigText({{1, 20001, "/a\nport = 1"}}, 1 << 30),
              HasSubstr("path = \"/a\\nport = 1\""));
}

TEST(Ports, AreFreeAndDifferent) {
  RealRuntime runtime;
  const auto ports = PickFreePorts(runtime, 40);
  ASSERT_TRUE(ports) << ports.error().message();
  EXPECT_EQ(std::set<uint16_t>(ports->begin(), ports->end()).size(), 40u);
  for (const uint16_t port : *ports) EXPECT_FALSE(PortAnswers(port)) << port;
}

// A server that is about to be started listens nowhere yet.
TEST(Ports, ThatOthersAreAboutToUseAreLeftAlone) {
  RealRuntime runtime;
  std::set<uint16_t> odd;
  for (uint32_t port = 1; port < 65536; port += 2) odd.insert(static_cast<uint16_t>(port));
  const auto ports = PickFreePorts(runtime, 40, odd);
  ASSERT_TRUE(ports) << ports.error().message();
  for (const uint16_t port : *ports) EXPECT_EQ(port % 2, 0) << port;
}

TEST(Ports, ThatAreMoreThanThereAreAreRefused) {
  RealRuntime runtime;
  EXPECT_EQ(PickFreePorts(runtime, 65536).error().code(), EADDRINUSE);
}

TEST(Ports, AreThoseOfTheEnvironmentWhereItNamesSome) {
  RealRuntime runtime;
  ASSERT_EQ(setenv("PINSTRIPE_PORTS", "21000-21999", 1), 0);
  const auto ports = PickFreePorts(runtime, 20);
  ASSERT_TRUE(ports) << ports.error().message();
  for (const uint16_t port : *ports) {
    EXPECT_GE(port, 21000);
    EXPECT_LE(port, 21999);
  }
  for (const char* const mistake :
       {"", "all", "21000", "21000-", "21999-21000", "0-9", "1-65536", "21000-21999x"}) {
    ASSERT_EQ(setenv("PINSTRIPE_PORTS", mistake, 1), 0);
    const auto refused = PickFreePorts(runtime, 20);
    ASSERT_FALSE(refused) << mistake;
    EXPECT_EQ(refused.error().code(), EINVAL);
    EXPECT_THAT(std::string(refused.error().message()), HasSubstr("PINSTRIPE_PORTS="));
  }
  ASSERT_EQ(unsetenv("PINSTRIPE_PORTS"), 0);
}

}  // namespace
}  // namespace pinstripe
