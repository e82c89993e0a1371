#include "cluster/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/machine_memory.h"
#include "base/read_file.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  ASSERT_TRUE(out.good()) << path;
}

std::string Drives(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i) {
    text += fmt::format("[[drive]]\nid = {}\naddress = 'h:{}'\n", i, 8000 + i);
  }
  return text;
}

class ClusterConfigTest : public testing::Test {
 protected:
  ClusterConfigTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("pinstripe-config-{}-{}", getpid(), test->name());
    std::filesystem::create_directories(folder_);
    WriteCredentials("");
  }
  ~ClusterConfigTest() override { std::filesystem::remove_all(folder_); }

  void WriteCredentials(const std::string& text, mode_t mode = 0600) {
    const auto path = folder_ / "credentials.toml";
    std::filesystem::remove(path);
    WriteFile(path, text);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }

  Result<ClusterConfig> Load(const std::string& text) {
    WriteFile(folder_ / "cluster.toml", text);
    return ClusterConfig::Load((folder_ / "cluster.toml").string());
  }

  // The message, without the folder that differs from run to run.
  std::string Refusal(const std::string& text) {
    const Result<ClusterConfig> config = Load(text);
    if (config.has_value()) return "accepted";
    EXPECT_EQ(config.error().code(), EINVAL) << config.error().message();
    return WithoutFolder(config.error().message());
  }
  std::string WithoutFolder(std::string_view message) {
    std::string text(message);
    const std::string folder = folder_.string() + "/";
    for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  static inline const std::string kSmall =
      "[cluster]\nname = 'home'\n[layout]\ndata_shards = 4\nparity_shards = 2\n";

  std::filesystem::path folder_;
};

TEST_F(ClusterConfigTest, WhatIsNotSaidHasADefault) {
  const Result<ClusterConfig> config = Load(kSmall + Drives(8));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->name, "home");
  EXPECT_EQ(config->layout, (StripeLayout{4, 2, 1 << 20}));
  EXPECT_EQ(config->inline_limit, 512u);
  EXPECT_EQ(config->replicate_limit, kCellBytes);
  EXPECT_EQ(config->min_redundancy, 1);
  EXPECT_EQ(config->replicas, 5);
  EXPECT_EQ(config->groups, 512u);
  EXPECT_EQ(config->memory_bytes, std::max<uint64_t>(MachineMemory() / 8, 16 << 20));
  EXPECT_FALSE(config->memory_is_said);
  EXPECT_FALSE(config->durable_close);
  EXPECT_EQ(config->drive_timeout, seconds(5));
  EXPECT_EQ(config->open_timeout, seconds(10));
  EXPECT_EQ(config->idle_timeout, std::chrono::minutes(5));
  EXPECT_FALSE(config->share_connections);
  ASSERT_EQ(config->drives.size(), 8u);
  EXPECT_EQ(config->drives[7].id, 8);
  EXPECT_EQ(config->drives[7].addresses, std::vector<std::string>{"h:8008"});
  EXPECT_EQ(config->drives[7].weight, 100u);
  EXPECT_EQ(config->drives[7].credentials.identity, 1);
  EXPECT_EQ(config->drives[7].credentials.key, "asdfasdf");
  EXPECT_TRUE(config->Check().ok());
}

TEST_F(ClusterConfigTest, EverythingCanBeSaid) {
  WriteCredentials("[default]\nidentity = 7\nkey = 'k'\n[[drive]]\nid = 2\nkey = 'other'\n", 0400);
  const Result<ClusterConfig> config = Load(
      "[cluster]\nname = 'x'\ncredentials = 'credentials.toml'\n"
      "[layout]\ndata_shards = 1\nparity_shards = 1\nshard_size = '128 KiB'\ninline_limit = 0\n"
      "replicate_limit = '1 MiB'\nmin_redundancy = 0\n"
      "[registers]\nreplicas = 1\ngroups = 64\n"
      "[limits]\nmemory = '64 MiB'\ncache_dir = '/c'\ncache_dir_size = '1 GiB'\ndrive_timeout = "
      "'250 ms'\nopen_timeout = '1 s'\nidle_timeout = '2 h'\nshare_connections = true\n"
      "[files]\nclose = 'durable'\n"
      "[[drive]]\nid = 2\naddresses = ['[::1]:1', 'h:2']\ndomain = 'rack'\nweight = 5\n"
      "[[drive]]\nid = 1\naddress = 'h:1'\n");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->layout, (StripeLayout{1, 1, 128 << 10}));
  EXPECT_EQ(config->inline_limit, 0u);
  EXPECT_EQ(config->replicate_limit, 1u << 20);
  EXPECT_EQ(config->min_redundancy, 0);
  EXPECT_EQ(config->replicas, 1);
  EXPECT_EQ(config->groups, 64u);
  EXPECT_EQ(config->memory_bytes, 64u << 20);
  EXPECT_TRUE(config->memory_is_said);
  EXPECT_EQ(config->cache_directory, "/c");
  EXPECT_EQ(config->cache_directory_bytes, 1u << 30);
  EXPECT_EQ(config->drive_timeout, milliseconds(250));
  EXPECT_EQ(config->idle_timeout, std::chrono::hours(2));
  EXPECT_TRUE(config->share_connections);
  EXPECT_TRUE(config->durable_close);
  EXPECT_EQ(config->drives[0].id, 1);
  EXPECT_EQ(config->drives[0].credentials.identity, 7);
  EXPECT_EQ(config->drives[0].credentials.key, "k");
  EXPECT_EQ(config->drives[1].domain, "rack");
  EXPECT_EQ(config->drives[1].addresses.size(), 2u);
  EXPECT_EQ(config->drives[1].credentials.identity, 7);
  EXPECT_EQ(config->drives[1].credentials.key, "other");
}

TEST_F(ClusterConfigTest, TlsIsForTheClusterOrForADrive) {
  MakeCertificate(folder_ / "ca.pem", folder_ / "ca.key");
  MakeCertificate(folder_ / "other.pem", folder_ / "other.key");
  const std::string rest = "[layout]\ndata_shards = 1\nparity_shards = 1\n";
  const Result<ClusterConfig> mixed =
      Load("[cluster]\nname = 'x'\ntls = true\nca = 'ca.pem'\n" + rest +
           "[[drive]]\nid = 1\naddress = 'h:1'\n"
           "[[drive]]\nid = 2\naddress = 'h:2'\ntls = false\n" +
           fmt::format("[[drive]]\nid = 3\naddress = 'h:3'\nca = '{}'\n",
                       (folder_ / "other.pem").string()));
  ASSERT_TRUE(mixed.has_value()) << mixed.error().message();
  EXPECT_EQ(mixed->drives[0].tls->ca_file, (folder_ / "ca.pem").string());
  EXPECT_FALSE(mixed->drives[1].tls.has_value());
  EXPECT_EQ(mixed->drives[2].tls->ca_file, (folder_ / "other.pem").string());
  const Result<ClusterConfig> one = Load("[cluster]\nname = 'x'\n" + rest +
                                         "[[drive]]\nid = 1\naddress = 'h:1'\ntls = true\n"
                                         "[[drive]]\nid = 2\naddress = 'h:2'\n");
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_EQ(one->drives[0].tls->ca_file, "");
  EXPECT_FALSE(one->drives[1].tls.has_value());
  EXPECT_EQ(Refusal("[cluster]\nname = 'x'\nca = 'ca.pem'\n" + rest + Drives(2)),
            "cluster.toml:3: ca is for tls = true");
}

// A site that changes its authority appends the new one to the file, and has it read again.
TEST_F(ClusterConfigTest, OtherCertificatesInTheSameFileAreAnotherWay) {
  MakeCertificate(folder_ / "ca.pem", folder_ / "ca.key");
  MakeCertificate(folder_ / "new.pem", folder_ / "new.key");
  const std::string text =
      "[cluster]\nname = 'x'\ntls = true\nca = 'ca.pem'\n"
      "[layout]\ndata_shards = 1\nparity_shards = 1\n" +
      Drives(2);
  const auto before = Load(text);
  ASSERT_OK(before);
  const auto same = Load(text);
  ASSERT_OK(same);
  EXPECT_TRUE(before->drives[0].SameWay(same->drives[0]));
  std::ofstream(folder_ / "ca.pem", std::ios::app) << *ReadFile(folder_ / "new.pem");
  const auto after = Load(text);
  ASSERT_OK(after);
  EXPECT_FALSE(before->drives[0].SameWay(after->drives[0]));
}

TEST_F(ClusterConfigTest, AFileWithoutCertificatesIsRefused) {
  const std::string text =
      "[cluster]\nname = 'x'\ntls = true\nca = 'ca.pem'\n"
      "[layout]\ndata_shards = 1\nparity_shards = 1\n" +
      Drives(2);
  EXPECT_EQ(Refusal(text), "cluster.toml:4: cannot read ca.pem: No such file or directory");
  std::ofstream(folder_ / "ca.pem").close();
  EXPECT_EQ(Refusal(text), "cluster.toml:4: ca.pem: it is empty");
  std::ofstream(folder_ / "ca.pem") << "hello";
  EXPECT_EQ(Refusal(text), "cluster.toml:4: ca.pem: there is no certificate in it");
}

TEST_F(ClusterConfigTest, EveryMistakeIsNamedByFileLineAndReason) {
  EXPECT_EQ(
      Refusal("[cluster]\nname = 'Home'\n" + kSmall.substr(kSmall.find("[layout]")) + Drives(6)),
      "cluster.toml:2: 'Home' cannot be the name of a cluster: 1 to 32 characters of a-z 0-9 - _ "
      ".");
  EXPECT_EQ(Refusal(kSmall + "shard_sise = 1\n" + Drives(6)),
            "cluster.toml:6: 'shard_sise' in [layout] is not an option known here");
  EXPECT_EQ(Refusal(kSmall + Drives(3)),
            "cluster.toml:4: 4 data and 2 parity shards need 6 drives, but only 3 are listed");
  EXPECT_EQ(
      Refusal(kSmall + "shard_size = '100 KiB'\n" + Drives(6)),
      "cluster.toml:6: a shard size of 102400 bytes: it must be a multiple of 65536 up to 1048576");
  EXPECT_EQ(Refusal(kSmall + "min_redundancy = 3\n" + Drives(6)),
            "cluster.toml:6: min_redundancy is 3, but with 2 parity shards it must be 0 to 2");
  EXPECT_EQ(Refusal(kSmall + "[registers]\nreplicas = 4\n" + Drives(6)),
            "cluster.toml:7: replicas is 4, but a majority needs an odd number");
  EXPECT_EQ(Refusal(kSmall + "[registers]\nreplicas = 9\n" + Drives(4)),
            "cluster.toml:7: 9 replicas need as many drives, but only 4 are listed");
  EXPECT_EQ(Refusal(kSmall + "[registers]\ngroups = 100\n" + Drives(6)),
            "cluster.toml:7: groups is 100, but must be a power of two from 1 to 65536");
  EXPECT_EQ(Refusal("[cluster]\nname = 'c'\nlog_format = 'xml'\n[layout]\ndata_shards = 4\n"
                    "parity_shards = 2\n" +
                    Drives(6)),
            "cluster.toml:3: log format 'xml' is neither text nor json");
  EXPECT_EQ(Refusal(kSmall + "[files]\nclose = 'maybe'\n" + Drives(6)),
            "cluster.toml:7: close is 'maybe', but must be \"commit\" or \"durable\"");
  EXPECT_EQ(Refusal(kSmall + "[limits]\nmemory = '1 MiB'\n" + Drives(6)),
            "cluster.toml:7: less than 16 MiB is not enough to work with");
  EXPECT_EQ(Refusal(kSmall + Drives(6) + "[[drive]]\nid = 3\naddress = 'x:1'\n"),
            "cluster.toml:25: two drives have the id 3");
  EXPECT_EQ(Refusal(kSmall + Drives(6) + "[[drive]]\nid = 7\naddress = 'h:8002'\n"),
            "cluster.toml:26: drive 7 has the address h:8002 of drive 2");
  EXPECT_EQ(Refusal(kSmall + Drives(6) + "[[drive]]\nid = 7\naddress = 'host'\n"),
            "cluster.toml:26: drive 7: 'host' is not an address: write host:port, or "
            "[address]:port for IPv6, or redis://host:port/database");
  EXPECT_EQ(Refusal(kSmall + Drives(6) + "[[drive]]\nid = 7\n"),
            "cluster.toml:24: 'address' in [drive] is required");
  EXPECT_EQ(Refusal(kSmall), "cluster.toml:1: no [[drive]] is listed");
  EXPECT_EQ(Refusal(kSmall + "= 3\n").substr(0, 34), "cluster.toml:6: not valid TOML: Er");
}

TEST_F(ClusterConfigTest, AConfigurationWithoutALayoutIsRefusedLikeAnyOther) {
  EXPECT_NE(Refusal("[cluster]\nname = 'c'\n" + Drives(6)).find("data_shards"), std::string::npos);
  EXPECT_NE(Refusal("").find("cluster.toml"), std::string::npos);
}

TEST_F(ClusterConfigTest, AnAddressIsAHostAndAPort) {
  for (const char* good : {"h:1", "10.0.0.1:65535", "[fe80::1]:8123", "a-b.c.org:8123"}) {
    const std::string drive = fmt::format("[[drive]]\nid = 7\naddress = '{}'\n", good);
    EXPECT_EQ(Refusal(kSmall + Drives(6) + drive), "accepted") << good;
  }
  for (const char* bad :
       {"", ":1", "h:", "h:0", "h:65536", "h:1x", "fe80::1:8123", "[]:1", "h h:1", "h:-1"}) {
    const std::string drive = fmt::format("[[drive]]\nid = 7\naddress = '{}'\n", bad);
    EXPECT_NE(Refusal(kSmall + Drives(6) + drive).find("is not an address"), std::string::npos)
        << bad;
  }
}

TEST_F(ClusterConfigTest, KeysThatOthersCanReadAreRefused) {
  for (const mode_t mode : {0644, 0640, 0604, 0660, 0602}) {
    WriteCredentials("", mode);
    const Status status = Load(kSmall + Drives(6)).error();
    EXPECT_EQ(status.code(), EACCES);
    EXPECT_EQ(
        WithoutFolder(status.message()),
        fmt::format("credentials.toml has mode {:04o}, so others can reach the keys in it: run "
                    "`chmod 0600 credentials.toml`",
                    mode));
  }
}

TEST_F(ClusterConfigTest, CredentialsAreCheckedLikeTheRest) {
  WriteCredentials("[[drive]]\nid = 9\nkey = 'x'\n");
  EXPECT_EQ(Refusal(kSmall + Drives(6)), "credentials.toml:2: there is no drive 9 in cluster.toml");
  WriteCredentials("[default]\nkey = ''\n");
  EXPECT_EQ(Refusal(kSmall + Drives(6)), "credentials.toml:2: the key is empty");
  WriteCredentials("[default]\npassphrase = 'x'\n");
  EXPECT_EQ(Refusal(kSmall + Drives(6)),
            "credentials.toml:2: 'passphrase' in [default] is not an option known here");
  std::filesystem::remove(folder_ / "credentials.toml");
  EXPECT_EQ(Load(kSmall + Drives(6)).error().code(), ENOENT);
}

// --- An engine that keeps names

TEST_F(ClusterConfigTest, AnEngineIsNamedByItsTable) {
  EXPECT_EQ(Load(kSmall + Drives(6))->engine, std::nullopt);
  EXPECT_EQ(Load(kSmall + Drives(6) + "[metadata]\nengine = 'drives'\n")->engine, std::nullopt);
  WriteCredentials("[metadata]\nuser = 'keeper'\npassword = 'secret'\n");
  const auto etcd = Load(kSmall + Drives(6) +
                         "[metadata]\nengine = 'etcd'\nendpoints = ['https://a:2379', "
                         "'https://[fe80::1]:2379']\nca = 'ca.pem'\ncertificate = 'us.pem'\n"
                         "key = 'key.pem'\n");
  ASSERT_OK(etcd);
  ASSERT_TRUE(etcd->engine.has_value());
  EXPECT_EQ(etcd->engine->kind, "etcd");
  EXPECT_EQ(etcd->engine->cluster, "home");
  EXPECT_EQ(etcd->engine->endpoints.size(), 2u);
  EXPECT_EQ(etcd->engine->ca_file, (folder_ / "ca.pem").string());
  EXPECT_EQ(etcd->engine->key_file, (folder_ / "key.pem").string());
  EXPECT_EQ(etcd->engine->user, "keeper");
  EXPECT_EQ(etcd->engine->password, "secret");
  const auto postgres = Load(kSmall + Drives(6) +
                             "[metadata]\nengine = 'postgresql'\nconnection = 'host=a,b "
                             "dbname=passwords'\n");
  ASSERT_OK(postgres);
  EXPECT_EQ(postgres->engine->connection, "host=a,b dbname=passwords");
}

TEST_F(ClusterConfigTest, MistakesOfEnginesAreNamed) {
  const auto refusal = [this](const std::string& table) {
    return Refusal(kSmall + Drives(6) + "[metadata]\n" + table);
  };
  EXPECT_THAT(refusal("engine = 'mysql'\n"), testing::HasSubstr("engine is 'mysql'"));
  EXPECT_THAT(refusal("engine = 'etcd'\n"), testing::HasSubstr("etcd needs endpoints"));
  const std::string etcd = "engine = 'etcd'\nendpoints = ";
  EXPECT_THAT(refusal(etcd + "['a:2379']\n"), testing::HasSubstr("is not an endpoint of etcd"));
  EXPECT_THAT(refusal(etcd + "['http://a']\n"), testing::HasSubstr("is not an address"));
  EXPECT_THAT(refusal(etcd + "['http://a:1', 'https://b:1']\n"), testing::HasSubstr("or none"));
  EXPECT_THAT(refusal(etcd + "['http://a:1']\nca = 'ca.pem'\n"), testing::HasSubstr("https://"));
  EXPECT_THAT(refusal(etcd + "['https://a:1']\nkey = 'k.pem'\n"),
              testing::HasSubstr("belong together"));
  EXPECT_THAT(refusal("engine = 'postgresql'\n"), testing::HasSubstr("connection"));
  for (const char* connection :
       {"host=a password=x", "host=a sslpassword = x", "postgresql://u:x@a/names"}) {
    const std::string said =
        refusal(fmt::format("engine = 'postgresql'\nconnection = '{}'\n", connection));
    EXPECT_THAT(said, testing::HasSubstr("credentials.toml")) << connection;
  }
  EXPECT_THAT(refusal("engine = 'drives'\nendpoints = ['http://a:1']\n"),
              testing::HasSubstr("endpoints"));
  WriteCredentials("[metadata]\nuser = 'keeper'\n");
  EXPECT_THAT(Refusal(kSmall + Drives(6)), testing::HasSubstr("a user needs a password"));
  // No drive may have the number of the engine.
  WriteCredentials("");
  EXPECT_THAT(Refusal(kSmall + "[[drive]]\nid = 65535\naddress = 'h:1'\n"),
              testing::HasSubstr("from 1 to 65534"));
}

// --- Drives that are Redis stores

TEST_F(ClusterConfigTest, ARedisStoreIsNamedByItsAddressWhichSaysWhetherItHasTls) {
  MakeCertificate(folder_ / "ca.pem", folder_ / "ca.key");
  WriteCredentials(
      "[default]\npassword = 'common'\n[[drive]]\nid = 8\nuser = 'u'\npassword = 'p'\n");
  const Result<ClusterConfig> config =
      Load(kSmall + Drives(6) + "[[drive]]\nid = 7\naddress = 'redis://h:6379/0'\n" +
           "[[drive]]\nid = 8\naddresses = ['rediss://h:6380/1', 'rediss://i:6380/1']\n" +
           "ca = 'ca.pem'\n");
  ASSERT_OK(config);
  EXPECT_FALSE(config->drives[0].IsRedis());
  EXPECT_TRUE(config->drives[6].IsRedis());
  EXPECT_FALSE(config->drives[6].tls.has_value());
  EXPECT_EQ(config->drives[6].credentials.user, "");
  EXPECT_EQ(config->drives[6].credentials.password, "common");
  EXPECT_EQ(config->drives[7].tls->ca_file, (folder_ / "ca.pem").string());
  EXPECT_EQ(config->drives[7].credentials.user, "u");
  EXPECT_EQ(config->drives[7].credentials.password, "p");
}

// Who changes the password of one kind does not have drives of the other connected to anew.
TEST_F(ClusterConfigTest, CredentialsOfOneKindAreNoPartOfTheWayToTheOther) {
  const std::string text = kSmall + Drives(6) + "[[drive]]\nid = 7\naddress = 'redis://h'\n";
  WriteCredentials("[default]\nkey = 'k'\npassword = 'p'\n");
  const Result<ClusterConfig> before = Load(text);
  WriteCredentials("[default]\nkey = 'k'\npassword = 'q'\n");
  const Result<ClusterConfig> password = Load(text);
  WriteCredentials("[default]\nkey = 'l'\npassword = 'p'\n");
  const Result<ClusterConfig> key = Load(text);
  ASSERT_TRUE(before && password && key);
  EXPECT_TRUE(before->drives[0].SameWay(password->drives[0]));
  EXPECT_FALSE(before->drives[6].SameWay(password->drives[6]));
  EXPECT_FALSE(before->drives[0].SameWay(key->drives[0]));
  EXPECT_TRUE(before->drives[6].SameWay(key->drives[6]));
}

TEST_F(ClusterConfigTest, MistakesOfRedisStoresAreNamed) {
  const auto refusal = [&](const std::string& drive) {
    return Refusal(kSmall + Drives(6) + "[[drive]]\nid = 7\n" + drive);
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal("address = 'redis://h:x'\n"), HasSubstr("the port is not a number"));
  EXPECT_THAT(refusal("address = 'redis://u:p@h'\n"), HasSubstr("credentials.toml has them"));
  // The password would go out without TLS, or to another database.
  EXPECT_THAT(refusal("addresses = ['redis://h:1', 'rediss://h:2']\n"),
              HasSubstr("all its addresses must be of one kind"));
  EXPECT_THAT(refusal("addresses = ['redis://h:1/0', 'redis://i:1/5']\n"),
              HasSubstr("database 0 of a Redis store without TLS and database 5"));
  EXPECT_THAT(refusal("addresses = ['h:1', 'redis://i:1/5']\n"), HasSubstr("a Kinetic device and"));
  // One store, however it is written.
  EXPECT_THAT(refusal("address = 'redis://h'\n[[drive]]\nid = 8\naddress = 'redis://h:6379/0'\n"),
              HasSubstr("drive 8 has the address redis://h:6379/0 of drive 7"));
  EXPECT_THAT(refusal("address = 'redis://h'\nca = 'ca.pem'\n"), HasSubstr("ca is for rediss://"));
  EXPECT_THAT(refusal("address = 'redis://h'\ntls = true\n"),
              HasSubstr("redis:// is without TLS, rediss:// with it"));
  WriteCredentials("[[drive]]\nid = 7\nuser = 'u'\n");
  EXPECT_THAT(refusal("address = 'redis://h'\n"), HasSubstr("a user needs a password"));
  WriteCredentials("[[drive]]\nid = 1\npassword = 'p'\n");
  EXPECT_THAT(refusal("address = 'redis://h'\n"), HasSubstr("drive 1 is a Kinetic device"));
}

TEST_F(ClusterConfigTest, AMissingFileIsNamed) {
  const Status status = ClusterConfig::Load("/nowhere/cluster.toml").error();
  EXPECT_EQ(status.code(), ENOENT);
  EXPECT_NE(status.message().find("/nowhere/cluster.toml"), std::string::npos);
}

TEST_F(ClusterConfigTest, TheSamplesCanBeLoaded) {
  const std::filesystem::path samples = std::filesystem::path(PINSTRIPE_SOURCE_DIR) / "etc";
  for (const char* name : {"cluster.toml", "credentials.toml"}) {
    std::filesystem::copy_file(samples / name, folder_ / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  ASSERT_EQ(chmod((folder_ / "credentials.toml").c_str(), 0600), 0);
  const Result<ClusterConfig> config = ClusterConfig::Load((folder_ / "cluster.toml").string());
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->drives.size(), 6u);
  EXPECT_EQ(config->drives[1].addresses.size(), 2u);
}

// Configurations made by hand, as tests and tools do.
TEST_F(ClusterConfigTest, CheckFindsTheImpossibleCombinations) {
  const ClusterConfig good = *Load(kSmall + Drives(6));
  const auto refuses = [&](auto change) {
    ClusterConfig config = good;
    change(config);
    return config.Check().code() == EINVAL;
  };
  EXPECT_FALSE(refuses([](ClusterConfig&) {}));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.name = "A"; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives.resize(3); }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives.clear(); }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives[0].id = 0; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives[0].id = 2; }));
  EXPECT_TRUE(
      refuses([](ClusterConfig& config) { std::swap(config.drives[0], config.drives[1]); }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives[0].addresses.clear(); }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives[0].weight = 0; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.drives[0].domain.assign(300, 'x'); }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.layout.shard_bytes = 1000; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.min_redundancy = -1; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.replicas = 0; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.groups = 3; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.inline_limit = 64 << 10; }));
  EXPECT_TRUE(refuses([](ClusterConfig& config) { config.replicate_limit = 2 << 20; }));
}

// A cluster of which a drive is lost, and not listed any more, is used and repaired all the same.
TEST_F(ClusterConfigTest, FewerDrivesThanAStripeHasAreEnoughToUseAClusterNotToFormatOne) {
  for (size_t drives = 4; drives <= 6; ++drives) {
    const auto config = Load(kSmall + Drives(drives));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    EXPECT_OK(config->Check());
    EXPECT_EQ(config->CheckForFormat().ok(), drives == 6);
  }
  const auto config = Load(kSmall + "[registers]\nreplicas = 7\n" + Drives(6));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  const Status status = config->CheckForFormat();
  EXPECT_EQ(status.code(), EINVAL);
  EXPECT_EQ(WithoutFolder(status.message()),
            "cluster.toml: 7 replicas need as many drives, but only 6 are listed");
}

TEST(ParseGeometry, ReadsDataPlusParity) {
  EXPECT_EQ(*ParseGeometry("4+2"), (Geometry{4, 2}));
  EXPECT_EQ(*ParseGeometry("32+4"), (Geometry{32, 4}));
  EXPECT_EQ(*ParseGeometry("1+0"), (Geometry{1, 0}));
  EXPECT_EQ(*ParseGeometry("60+4"), (Geometry{60, 4}));
}

TEST(ParseGeometry, RefusesWhatTheCodecDoesNotHave) {
  for (const char* text : {"", "4", "4+", "+2", "0+2", "4+-1", "61+4", "4+2+1", "4 + 2", "a+b",
                           "99999999999+1", "1+2147483647"}) {
    EXPECT_EQ(ParseGeometry(text).error().code(), EINVAL) << text;
  }
}

TEST(DefaultShardBytes, IsAboutFourMebibytesOverK) {
  EXPECT_EQ(DefaultShardBytes(1), 1u << 20);
  EXPECT_EQ(DefaultShardBytes(4), 1u << 20);
  EXPECT_EQ(DefaultShardBytes(10), 384u << 10);
  EXPECT_EQ(DefaultShardBytes(16), 256u << 10);
  EXPECT_EQ(DefaultShardBytes(32), 128u << 10);
  EXPECT_EQ(DefaultShardBytes(63), 64u << 10);
}

}  // namespace
}  // namespace pinstripe
