#include "daemon/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

class DaemonConfigTest : public testing::Test {
 protected:
  DaemonConfigTest() {
    char name[] = "/tmp/pinstriped-config-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~DaemonConfigTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  Status Refusal(const std::string& text) {
    const Result<DaemonConfig> config = DaemonConfig::Load(Write("pinstriped.toml", text));
    return config.has_value() ? Status() : config.error();
  }

  std::string directory_;
};

TEST_F(DaemonConfigTest, ReadsWhatIsServedAndPathsFromWhereItIs) {
  const auto config = DaemonConfig::Load(Write("pinstriped.toml", R"(
[daemon]
listen = "127.0.0.1"
workers = 2
connections_per_drive = 4000
connections = 5000
connections_per_address = 500
strangers = 50
strangers_per_address = 5
values_under_way = "1 GiB"
index_cache = "256 MiB"
metrics = "127.0.0.1:9464"
slow_request = "250 ms"
log_format = "json"
[[drive]]
path = "d1"
port = 8101
capacity = "1 GiB"
[[drive]]
path = "/srv/d2"
port = 0
serial = "S2"
store = "leveldb"
)"));
  ASSERT_OK(config);
  EXPECT_EQ(config->listen, "127.0.0.1");
  EXPECT_EQ(config->workers, 2);
  EXPECT_EQ(config->log_format, LogFormat::kJson);
  EXPECT_EQ(config->connections_per_drive, 4000u);
  EXPECT_EQ(config->connections, 5000u);
  EXPECT_EQ(config->connections_per_address, 500u);
  EXPECT_EQ(config->strangers, 50u);
  EXPECT_EQ(config->strangers_per_address, 5u);
  EXPECT_EQ(config->value_bytes, uint64_t{1} << 30);
  EXPECT_EQ(config->index_cache_bytes, uint64_t{256} << 20);
  EXPECT_EQ(config->metrics, "127.0.0.1:9464");
  EXPECT_EQ(config->slow_request, std::chrono::milliseconds(250));
  ASSERT_EQ(config->drives.size(), 2u);
  EXPECT_EQ(config->drives[0].path, directory_ + "/d1");
  EXPECT_EQ(config->drives[0].capacity_bytes, uint64_t{1} << 30);
  EXPECT_EQ(config->drives[1].path, "/srv/d2");
  EXPECT_EQ(config->drives[1].serial_number, "S2");
  EXPECT_EQ(config->drives[0].store, StoreKind::kLog);
  EXPECT_EQ(config->drives[1].store, StoreKind::kLevelDb);
  EXPECT_EQ(config->identities, (RightsById{{1, FullAccess("asdfasdf")}}));
}

TEST_F(DaemonConfigTest, MistakesNameTheirLine) {
  const struct {
    const char* text;
    const char* says;
  } kMistakes[] = {
      {"[daemon]\nlisten = \"nowhere\"\n[[drive]]\npath = \"d\"\nport = 1\n", ":2: 'nowhere'"},
      {"[[drive]]\npath = \"d\"\nport = 70000\n", ":3:"},
      {"[[drive]]\npath = \"d\"\nport = 1\n[[drive]]\npath = \"d\"\nport = 2\n", "served twice"},
      {"[[drive]]\npath = \"d\"\nport = 1\n[[drive]]\npath = \"e\"\nport = 1\n", "used twice"},
      {"[[drive]]\npath = \"d\"\nport = 1\ncolour = 3\n", ":4:"},
      {"[[drive]]\npath = \"d\"\nport = 1\nstore = \"sql\"\n", ":4: no store 'sql'"},
      {"[daemon]\nmetrics = \"host:1\"\n[[drive]]\npath = \"d\"\nport = 1\n", ":2: 'host:1'"},
      {"[daemon]\n", "no [[drive]]"},
  };
  for (const auto& mistake : kMistakes) {
    const Status refusal = Refusal(mistake.text);
    EXPECT_FAILS(refusal, EINVAL);
    EXPECT_NE(refusal.message().find(mistake.says), std::string_view::npos) << refusal.message();
  }
}

// Whoever reaches a drive with the factory's key is its master.
TEST_F(DaemonConfigTest, TheFactorysKeyIsForThisMachineUnlessItIsAllowed) {
  const auto load = [&](const std::string& settings) {
    return *DaemonConfig::Load(
        Write("pinstriped.toml", "[daemon]\n" + settings + "[[drive]]\npath = \"d\"\nport = 1\n"));
  };
  const RightsById factory = load("").identities;
  const RightsById own{{1, FullAccess("a key of the site")}};
  for (const char* listen : {"127.0.0.1", "127.3.4.5", "::1"}) {
    EXPECT_OK(load(fmt::format("listen = \"{}\"\n", listen)).CheckFactoryKey(factory)) << listen;
  }
  for (const char* listen : {"0.0.0.0", "::", "10.0.0.1", "::ffff:127.0.0.1"}) {
    const DaemonConfig config = load(fmt::format("listen = \"{}\"\n", listen));
    const Status refused = config.CheckFactoryKey(factory);
    EXPECT_FAILS(refused, EACCES) << listen;
    EXPECT_NE(refused.message().find("credentials"), std::string_view::npos);
    EXPECT_OK(config.CheckFactoryKey(own));
    // An identity that was added beside it does not make it better.
    RightsById both = own;
    both.emplace(2, factory.at(1));
    EXPECT_FAILS(config.CheckFactoryKey(both), EACCES);
  }
  EXPECT_OK(load("factory_key = \"allow\"\n").CheckFactoryKey(factory));
  EXPECT_FALSE(load("").erase_without_pin);
  EXPECT_TRUE(load("erase_without_pin = \"allow\"\n").erase_without_pin);
  EXPECT_FAILS(Refusal("[daemon]\nfactory_key = \"perhaps\"\n[[drive]]\npath = \"d\"\nport = 1\n"),
               EINVAL);
}

TEST_F(DaemonConfigTest, TlsHasPortsOfItsOwnAndThePlainOneCanBeLeftOut) {
  const auto config = DaemonConfig::Load(Write("pinstriped.toml", R"(
[daemon]
tls_certificate = "tls.crt"
tls_key = "/etc/keys/tls.key"
[[drive]]
path = "d1"
port = 8123
tls_port = 8443
[[drive]]
path = "d2"
tls_port = 0
)"));
  ASSERT_OK(config);
  EXPECT_EQ(config->tls->certificate, directory_ + "/tls.crt");
  EXPECT_EQ(config->tls->key, "/etc/keys/tls.key");
  EXPECT_EQ(config->drives[0].port, 8123);
  EXPECT_EQ(config->drives[0].tls_port, 8443);
  EXPECT_FALSE(config->drives[1].port.has_value());
  EXPECT_EQ(config->drives[1].tls_port, 0);
}

TEST_F(DaemonConfigTest, TlsWithoutACertificateIsRefusedWithTheWayToMakeOne) {
  const std::string tls = "[daemon]\ntls_certificate = \"c\"\ntls_key = \"k\"\n";
  const std::pair<std::string, const char*> kMistakes[] = {
      {"[[drive]]\npath = \"d\"\ntls_port = 8443\n", ":3: TLS needs a certificate"},
      {"[[drive]]\npath = \"d\"\ntls_port = 8443\n", "openssl req -x509"},
      {"[daemon]\ntls_certificate = \"c\"\n[[drive]]\npath = \"d\"\nport = 1\n", "given together"},
      {"[daemon]\ntls_key = \"c\"\n[[drive]]\npath = \"d\"\nport = 1\n", "given together"},
      {tls + "[[drive]]\npath = \"d\"\n", "needs a port, a tls_port, or both"},
      {tls + "[[drive]]\npath = \"d\"\nport = 1\ntls_port = 1\n", ":7: port 1 is used twice"},
      {tls + "[[drive]]\npath = \"d\"\nport = 1\n[[drive]]\npath = \"e\"\ntls_port = 1\n",
       ":9: port 1 is used twice"},
  };
  for (const auto& [text, says] : kMistakes) {
    const Status refusal = Refusal(text);
    EXPECT_FAILS(refusal, EINVAL);
    EXPECT_NE(refusal.message().find(says), std::string_view::npos) << refusal.message();
  }
}

TEST_F(DaemonConfigTest, ClientsOfTheRedisProtocolHavePortsOfTheirOwn) {
  const std::string tls = "[daemon]\ntls_certificate = \"c\"\ntls_key = \"k\"\n";
  const auto config = DaemonConfig::Load(Write("pinstriped.toml", tls + R"(
listen = "127.0.0.1"
[[drive]]
path = "d1"
port = 8123
resp_port = 6379
resp_tls_port = 6380
resp_sync = "write-through"
[[drive]]
path = "d2"
port = 8124
[[drive]]
path = "d3"
resp_tls_port = 6381
)"));
  ASSERT_OK(config);
  EXPECT_EQ(config->drives[0].resp_port, 6379);
  EXPECT_EQ(config->drives[0].resp_tls_port, 6380);
  EXPECT_TRUE(config->drives[0].resp_write_through);
  EXPECT_FALSE(config->drives[1].resp_port.has_value());
  EXPECT_FALSE(config->drives[1].resp_write_through);
  const std::string local = "[daemon]\nlisten = \"::1\"\n[[drive]]\npath = \"d\"\n";
  const std::pair<std::string, const char*> kMistakes[] = {
      {local + "resp_sync = \"write-back\"\n", "needs a port, a tls_port, or both"},
      {local + "port = 1\nresp_port = 1\n", ":6: port 1 is used twice"},
      {local + "port = 1\nresp_tls_port = 2\n", "TLS needs a certificate"},
      {local + "port = 1\nresp_port = 2\nresp_sync = \"never\"\n", "neither write-back nor"},
      {local + "port = 1\nresp_port = 2\n[[drive]]\npath = \"e\"\nport = 2\n",
       ":9: port 2 is used twice"},
  };
  for (const auto& [text, says] : kMistakes) {
    const Status refusal = Refusal(text);
    EXPECT_FAILS(refusal, EINVAL);
    EXPECT_NE(refusal.message().find(says), std::string_view::npos) << refusal.message();
  }
}

TEST_F(DaemonConfigTest, KeysInClearTextAreForLoopback) {
  const std::string drive = "[[drive]]\npath = \"d\"\nport = 1\nresp_port = 2\n";
  const Status refusal = Refusal(drive);
  EXPECT_FAILS(refusal, EINVAL);
  EXPECT_NE(refusal.message().find("clear_keys"), std::string_view::npos) << refusal.message();
  EXPECT_OK(Refusal("[daemon]\nlisten = \"127.0.0.1\"\n" + drive));
  EXPECT_OK(Refusal("[daemon]\nclear_keys = \"allow\"\n" + drive));
  EXPECT_OK(
      Refusal("[daemon]\ntls_certificate = \"c\"\ntls_key = \"k\"\n"
              "[[drive]]\npath = \"d\"\nport = 1\nresp_tls_port = 2\n"));
}

TEST_F(DaemonConfigTest, KeysThatOthersCanReadAreRefused) {
  const std::string text =
      "[daemon]\ncredentials = \"keys.toml\"\n[[drive]]\npath = \"d\"\nport = 1\n";
  Write("keys.toml", "[[identity]]\nid = 7\nkey = \"secret\"\n", 0644);
  const Status refusal = Refusal(text);
  EXPECT_FAILS(refusal, EACCES);
  EXPECT_NE(refusal.message().find("chmod 0600"), std::string_view::npos);

  Write("keys.toml", "[[identity]]\nid = 7\nkey = \"secret\"\n", 0600);
  const auto config = DaemonConfig::Load(directory_ + "/pinstriped.toml");
  ASSERT_OK(config);
  EXPECT_EQ(config->identities, (RightsById{{7, FullAccess("secret")}}));
}

TEST_F(DaemonConfigTest, IdentitiesHaveScopes) {
  Write("keys.toml", R"(
[[identity]]
id = 7
key = "secret"
max_priority = 3
[[identity.scope]]
permissions = ["read", "range"]
value = "a/"
[[identity.scope]]
permissions = "all"
offset = 2
value_hex = "00fF"
tls_required = true
)");
  const auto config = DaemonConfig::Load(
      Write("pinstriped.toml",
            "[daemon]\ncredentials = \"keys.toml\"\n[[drive]]\npath = \"d\"\nport = 1\n"));
  ASSERT_OK(config);
  Permissions some;
  some.Add(Permission::kRead);
  some.Add(Permission::kRange);
  const Rights expected{.key = "secret",
                        .max_priority = 3,
                        .scopes = {{.value = "a/", .permissions = some},
                                   {.offset = 2,
                                    .value = std::string("\0\xff", 2),
                                    .permissions = Permissions::All(),
                                    .tls_required = true}}};
  EXPECT_EQ(config->identities, (RightsById{{7, expected}}));
}

TEST_F(DaemonConfigTest, MistakesInIdentitiesNameTheirLine) {
  const std::string begin = "[[identity]]\nid = 1\nkey = \"k\"\n";
  const std::string scope = begin + "[[identity.scope]]\n";
  const std::pair<std::string, const char*> kMistakes[] = {
      {"[[identity]]\nid = 1\nkey = \"\"\n", ":3: identity 1: an empty key"},
      {begin + begin, "listed twice"},
      {begin + "max_priority = 10\n", ":4:"},
      {scope, "without a permission"},
      {scope + "permissions = [\"reed\"]\n",
       ":5: no permission 'reed'; there are all, read, write"},
      {scope + "permissions = [\"read\"]\nvalue_hex = \"0g\"\n", ":6:"},
      {scope + "permissions = [\"read\"]\nvalue_hex = \"012\"\n", ":6:"},
      {scope + "permissions = [\"read\"]\nvalue = \"a\"\nvalue_hex = \"01\"\n", "not both"},
      {scope + "permissions = [\"read\"]\noffset = 4097\n", ":6:"},
      {"", "no [[identity]]"},
  };
  for (const auto& [text, says] : kMistakes) {
    Write("keys.toml", text);
    const Status refusal =
        Refusal("[daemon]\ncredentials = \"keys.toml\"\n[[drive]]\npath = \"d\"\nport = 1\n");
    EXPECT_FAILS(refusal, EINVAL);
    EXPECT_NE(refusal.message().find(says), std::string_view::npos) << refusal.message();
  }
}

TEST_F(DaemonConfigTest, IdentitiesHaveALimit) {
  const auto load = [&](size_t count) {
    std::string text;
    for (size_t id = 1; id <= count; ++id)
      text += fmt::format("[[identity]]\nid = {}\nkey = \"k\"\n", id);
    Write("keys.toml", text);
    return Refusal("[daemon]\ncredentials = \"keys.toml\"\n[[drive]]\npath = \"d\"\nport = 1\n");
  };
  EXPECT_OK(load(kMaxIdentities));
  EXPECT_FAILS(load(kMaxIdentities + 1), EINVAL);
}

TEST_F(DaemonConfigTest, TheSamplesAreRight) {
  ASSERT_OK(DaemonConfig::Load(PINSTRIPE_SOURCE_DIR "/etc/pinstriped.toml"));
  std::filesystem::copy(PINSTRIPE_SOURCE_DIR "/etc/pinstriped-credentials.toml", directory_);
  chmod((directory_ + "/pinstriped-credentials.toml").c_str(), 0600);
  ASSERT_OK(DaemonConfig::Load(
      Write("pinstriped.toml",
            "[daemon]\ncredentials = \"pinstriped-credentials.toml\"\n[[drive]]\npath = "
            "\"d\"\nport = 1\n")));
}

}  // namespace
}  // namespace pinstripe
