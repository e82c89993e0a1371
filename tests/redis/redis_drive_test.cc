// RedisDrive against real servers, which are set up badly, restarted, emptied, killed and lied
// with. What a drive promises anyway, tests/drive/drive_suite_test.cc asks.

#include "redis/redis_drive.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/real_runtime.h"
#include "redis/scripts.h"
#include "tests/support/expect_ok.h"
#include "tests/support/redis_server.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class RedisDriveTest : public testing::Test {
 protected:
  RedisDriveTest() { SetLogLevel(LogLevel::kError); }
  ~RedisDriveTest() override { SetLogLevel(LogLevel::kInfo); }

  RedisDrive::Options OptionsFor(const std::string& address) {
    RedisDrive::Options options;
    options.name = "drive 3";
    options.addresses = {address};
    options.least_backoff = 1ms;
    options.most_backoff = 10ms;
    return options;
  }
  std::unique_ptr<RedisDrive> Connect(const std::string& address) {
    return std::make_unique<RedisDrive>(io_, OptionsFor(address));
  }

  template <typename Answer, typename Ask>
  static Answer Await(Ask ask) {
    std::promise<Answer> answer;
    ask([&](Answer got) { answer.set_value(std::move(got)); });
    return answer.get_future().get();
  }
  Time Soon() { return runtime_.Now() + 20s; }
  Status Put(Drive& drive, Drive::PutRequest request) {
    return Await<Status>(
        [&](StatusCallback done) { drive.Put(std::move(request), Soon(), std::move(done)); });
  }
  Result<Record> Get(Drive& drive, std::string key, ValueRange range = {}) {
    return Await<Result<Record>>(
        [&](Callback<Record> done) { drive.Get(std::move(key), range, Soon(), std::move(done)); });
  }
  Status Delete(Drive& drive, std::string key) {
    return Await<Status>([&](StatusCallback done) {
      drive.Delete(std::move(key), Expected::Any(), Durability::kWriteBack, Soon(),
                   std::move(done));
    });
  }
  Status Flush(Drive& drive) {
    return Await<Status>([&](StatusCallback done) { drive.Flush(Soon(), std::move(done)); });
  }
  DriveInfo Info(Drive& drive) {
    const auto info = Await<Result<DriveInfo>>(
        [&](Callback<DriveInfo> done) { drive.Info(Soon(), std::move(done)); });
    EXPECT_OK(info);
    return info.value_or(DriveInfo());
  }
  // Asks until the drive is not away any more.
  Result<Record> GetOnceItIsBack(Drive& drive, const std::string& key) {
    for (;;) {
      Result<Record> record = Get(drive, key);
      if (record || record.error().code() != EHOSTUNREACH) return record;
      std::this_thread::yield();
    }
  }
  // What an operation is told of a server that is refused.
  std::string WhyAway(Drive& drive) {
    const Result<Record> record = Get(drive, "key");
    EXPECT_FALSE(record.has_value());
    return record ? "" : std::string(record.error().message());
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
};

TEST_F(RedisDriveTest, IsNamedByItsAddressAndTellsWhatItStandsOn) {
  RedisServer server(RedisServer::Settings{{"maxmemory", "100mb"}});
  const auto drive = Connect(server.address());
  EXPECT_EQ(drive->name(), fmt::format("drive 3 ({})", server.address()));
  const DriveInfo info = Info(*drive);
  EXPECT_THAT(info.vendor, testing::AnyOf("Redis", "Valkey"));
  EXPECT_EQ(info.capacity_bytes, 100u << 20);
  EXPECT_EQ(info.starts.size(), 1u);
  EXPECT_EQ(info.start_count, 1u);
}

// One string for each record, and a list of the keys: anybody can look.
TEST_F(RedisDriveTest, KeepsRecordsAsDocumented) {
  RedisServer server;
  const auto drive = Connect(server.address());
  ASSERT_OK(Put(
      *drive,
      {.key = "key", .value = SharedBytes(std::string("value")), .version = "v1", .tag = "tag"}));
  EXPECT_EQ(server.Run({"GETRANGE", "pinstripe:r:key", "0", "6"}), "valuev1\n");
  EXPECT_EQ(server.Run({"STRLEN", "pinstripe:r:key"}), "18\n");
  EXPECT_EQ(server.Run({"ZRANGE", "pinstripe:keys", "0", "-1"}), "key\n");
  ASSERT_OK(Delete(*drive, "key"));
  EXPECT_EQ(server.Run({"EXISTS", "pinstripe:r:key"}), "0\n");
  EXPECT_EQ(server.Run({"ZCARD", "pinstripe:keys"}), "0\n");
}

TEST_F(RedisDriveTest, KeepsDatabasesApart) {
  RedisServer server;
  const auto one = Connect(server.address(1));
  const auto two = Connect(server.address(2));
  ASSERT_OK(Put(*one, {.key = "key", .version = "1"}));
  EXPECT_FAILS(Get(*two, "key"), ENOENT);
  EXPECT_OK(Get(*one, "key"));
  EXPECT_NE(Info(*one).serial_number, Info(*two).serial_number);
}

// --- Servers that are no drives

TEST_F(RedisDriveTest, RefusesAServerThatCouldLoseWhatItConfirmed) {
  const std::vector<std::pair<RedisServer::Settings, std::string>> cases = {
      {{{"appendonly", "no"}}, "set 'appendonly yes'"},
      {{{"appendfsync", "everysec"}}, "set 'appendfsync always'"},
      {{{"no-appendfsync-on-rewrite", "yes"}}, "set 'no-appendfsync-on-rewrite no'"},
      {{{"maxmemory-policy", "allkeys-lru"}}, "set 'maxmemory-policy noeviction'"},
      {{{"replicaof", "127.0.0.1 1"}}, "'replicaof no one'"},
      {{{"cluster-enabled", "yes"}}, "'cluster-enabled no'"},
      {{{"rename-command", "CONFIG hidden"}}, "let us use CONFIG GET"}};
  for (const auto& [settings, why] : cases) {
    RedisServer server(settings);
    const auto drive = Connect(server.address());
    EXPECT_THAT(WhyAway(*drive), HasSubstr(why));
    EXPECT_FALSE(drive->IsUp());
    EXPECT_THAT(drive->WhyAway(), HasSubstr(why));
  }
}

// They speak through a channel of each server that they watch.
TEST_F(RedisDriveTest, RefusesAServerThatSentinelsWatch) {
  RedisServer server;
  std::thread sentinel([&] {
    // Ends when the server is killed.
    server.Run({"SUBSCRIBE", "__sentinel__:hello"});
  });
  while (server.Run({"PUBSUB", "NUMSUB", "__sentinel__:hello"}).find("1") == std::string::npos) {
    std::this_thread::yield();
  }
  const auto drive = Connect(server.address());
  EXPECT_THAT(WhyAway(*drive), HasSubstr("Sentinels watch it (1)"));
  server.Kill();
  sentinel.join();
}

TEST_F(RedisDriveTest, LogsInWithUserAndPassword) {
  RedisServer server(RedisServer::Settings{{"requirepass", "secret"}});
  RedisDrive::Options options = OptionsFor(server.address());
  {
    RedisDrive drive(io_, options);
    EXPECT_THAT(WhyAway(drive), HasSubstr("NOAUTH"));
  }
  options.password = "wrong";
  {
    RedisDrive drive(io_, options);
    EXPECT_THAT(WhyAway(drive),
                HasSubstr("it refuses user and password, or wants none (it answered 'WRONGPASS')"));
  }
  options.password = "secret";
  {
    RedisDrive drive(io_, options);
    EXPECT_OK(Put(drive, {.key = "key"}));
  }
  server.Run({"-a", "secret", "ACL", "SETUSER", "pin", "on", ">word", "~pinstripe:*",
              "&__sentinel__:hello", "+@all"});
  options.user = "pin";
  options.password = "word";
  RedisDrive drive(io_, options);
  EXPECT_OK(Get(drive, "key"));
}

// A server that does not know the command repeats its words.
TEST_F(RedisDriveTest, DoesNotTellThePassword) {
  RedisServer server(RedisServer::Settings{{"rename-command", "AUTH hidden"}});
  RedisDrive::Options options = OptionsFor(server.address());
  options.user = "pin";
  options.password = "secret";
  RedisDrive drive(io_, options);
  EXPECT_THAT(WhyAway(drive), testing::AllOf(HasSubstr("it refuses user and password"),
                                             testing::Not(HasSubstr("secret"))));
}

// Else each change would fail, and half of it be there.
TEST_F(RedisDriveTest, AUserWhoMayNotDoWhatIsNeededIsRefused) {
  RedisServer server;
  for (const char* command : {"set", "get", "getrange", "strlen", "del", "zadd", "zrem", "hset",
                              "zrangebylex", "lpush", "evalsha", "config|get"}) {
    server.Run({"ACL", "SETUSER", "pin", "reset", "on", ">word", "~pinstripe:*", "&*", "+@all",
                std::string("-") + command});
    RedisDrive::Options options = OptionsFor(server.address());
    options.user = "pin";
    options.password = "word";
    RedisDrive drive(io_, options);
    EXPECT_FALSE(WhyAway(drive).empty()) << command;
    EXPECT_FALSE(drive.IsUp()) << command;
  }
}

TEST_F(RedisDriveTest, OnlyTheDriveThatTheCheckAcceptsIsUp) {
  RedisServer server;
  ASSERT_OK(Put(*Connect(server.address()),
                {.key = "who", .value = SharedBytes(std::string("drive 4"))}));
  RedisDrive::Options options = OptionsFor(server.address());
  options.identity_key = "who";
  std::string wanted = "drive 3";
  options.check_identity = [&wanted](const Result<Record>& record, const Result<DriveInfo>& info) {
    EXPECT_OK(info);
    if (!record) return record.error();
    if (record->value.text() == wanted) return Status();
    return Status(Fail(EHOSTUNREACH, "it is {}", record->value.text()));
  };
  {
    RedisDrive drive(io_, options);
    EXPECT_THAT(WhyAway(drive), HasSubstr("it is drive 4"));
  }
  wanted = "drive 4";
  RedisDrive drive(io_, options);
  EXPECT_OK(Get(drive, "who"));
}

// --- What happens to servers

TEST_F(RedisDriveTest, AServerThatWasStartedAgainIsAnotherStart) {
  RedisServer server;
  const auto drive = Connect(server.address());
  ASSERT_OK(Put(*drive, {.key = "key", .version = "1"}));
  const DriveInfo before = Info(*drive);
  server.Kill();
  server.Start();
  ASSERT_OK(GetOnceItIsBack(*drive, "key"));
  const DriveInfo after = Info(*drive);
  EXPECT_EQ(drive->CountLosses(), 1u);
  EXPECT_EQ(after.serial_number, before.serial_number);
  ASSERT_EQ(after.starts.size(), 2u);
  EXPECT_NE(after.starts[0].id, before.starts[0].id);
  EXPECT_FALSE(after.starts[0].clean);
  EXPECT_EQ(after.starts[1], before.starts[0]);
  EXPECT_EQ(after.start_count, 2u);
}

// Nothing that was confirmed is missing after kill -9, and nothing is half there.
TEST_F(RedisDriveTest, KeepsWhatItConfirmedWhenTheServerIsKilled) {
  RedisServer server;
  const auto drive = Connect(server.address());
  std::atomic<int> confirmed = 0;
  std::atomic<int> answers = 0;
  constexpr int kPuts = 3000;
  std::vector<std::atomic<bool>> done(kPuts);
  for (int i = 0; i < kPuts; ++i) {
    drive->Put({.key = fmt::format("{:05}", i),
                .value = SharedBytes(std::string(1000, 'v')),
                .version = "1",
                .expected = Expected::Absent()},
               Soon(), [&, i](const Status& status) {
                 done[static_cast<size_t>(i)] = status.ok();
                 confirmed += status.ok() ? 1 : 0;
                 ++answers;
               });
  }
  while (confirmed < 300) std::this_thread::yield();
  server.Kill();
  while (answers < kPuts) std::this_thread::yield();
  server.Start();
  ASSERT_FAILS(GetOnceItIsBack(*drive, "none"), ENOENT);
  for (int i = 0; i < kPuts; ++i) {
    const std::string key = fmt::format("{:05}", i);
    const Result<Record> record = Get(*drive, key);
    EXPECT_TRUE(record.has_value() || !done[static_cast<size_t>(i)]) << key;
    const auto keys =
        Await<Result<std::vector<std::string>>>([&](Callback<std::vector<std::string>> range) {
          drive->Range(key, key, 1, false, Soon(), std::move(range));
        });
    ASSERT_OK(keys);
    EXPECT_EQ(keys->size(), record.has_value() ? 1u : 0u) << "the list of keys knows it";
  }
}

TEST_F(RedisDriveTest, AStoreThatIsEmptiedWhileNobodyUsesItCountsAsLost) {
  RedisServer server;
  RedisDrive::Options options = OptionsFor(server.address());
  options.idle_timeout = 5ms;
  RedisDrive drive(io_, options);
  const auto rest = [&server] {
    while (server.Run({"CLIENT", "LIST", "TYPE", "normal"}).find("cmd=evalsha") !=
           std::string::npos) {
      std::this_thread::yield();
    }
  };
  ASSERT_OK(Put(drive, {.key = "k", .value = SharedBytes("v"), .version = "1", .tag = {}}));
  rest();
  EXPECT_OK(Get(drive, "k"));
  EXPECT_EQ(drive.CountLosses(), 0u);
  rest();
  EXPECT_TRUE(drive.IsUp());
  server.Run({"FLUSHALL"});  // by the same run of the server
  EXPECT_FAILS(Get(drive, "k"), ENOENT);
  EXPECT_EQ(drive.CountLosses(), 1u);
}

// Whoever was connected to what it was before hears nothing of what it is now.
TEST_F(RedisDriveTest, AStoreThatIsEmptiedIsNotTheSameAnyMore) {
  RedisServer server;
  RedisDrive::Options options = OptionsFor(server.address());
  options.identity_key = "who";
  std::atomic<bool> strict = false;
  options.check_identity = [&](const Result<Record>& record, const Result<DriveInfo>&) {
    return strict && !record ? record.error() : Status();
  };
  RedisDrive drive(io_, options);
  ASSERT_OK(Put(drive, {.key = "who"}));
  strict = true;
  server.Run({"FLUSHALL"});
  EXPECT_FAILS(Get(drive, "key"), EHOSTUNREACH);
  EXPECT_EQ(drive.CountLosses(), 1u);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FAILS(Put(drive, {.key = "key", .expected = Expected::Absent()}), EHOSTUNREACH);
  }
}

// No answer says so: only who asks for it is told.
TEST_F(RedisDriveTest, AFlushNoticesThatTheStoreIsNotWhatItWas) {
  const std::vector<std::vector<std::string>> changes = {
      {"FLUSHALL"}, {"SWAPDB", "0", "1"}, {"REPLICAOF", "127.0.0.1", "1"}};
  for (const auto& change : changes) {
    RedisServer server;
    const auto drive = Connect(server.address());
    ASSERT_OK(Put(*drive, {.key = "key"}));
    EXPECT_OK(Flush(*drive));
    server.Run(change);
    EXPECT_FAILS(Flush(*drive), EHOSTUNREACH) << change[0];
    EXPECT_EQ(drive->CountLosses(), 1u);
  }
}

TEST_F(RedisDriveTest, AFlushOfWhoKnowsAnEarlierClusterVersionIsRefused) {
  RedisServer server;
  const auto drive = Connect(server.address());
  ASSERT_OK(Await<Status>(
      [&](StatusCallback done) { drive->SetClusterVersion(7, Soon(), std::move(done)); }));
  EXPECT_FAILS(
      Await<Status>([&](StatusCallback done) { drive->Flush(Terms(Soon(), 6), std::move(done)); }),
      EREMCHG);
  EXPECT_FAILS(Await<Result<DriveInfo>>([&](Callback<DriveInfo> done) {
                 drive->Info(Terms(Soon(), 6), std::move(done));
               }),
               EREMCHG);
}

TEST_F(RedisDriveTest, AChangeThatHasToBeSafeIsNotConfirmedByAServerThatStoppedSyncing) {
  RedisServer server;
  const auto drive = Connect(server.address());
  const Drive::PutRequest request{.key = "key", .durability = Durability::kWriteThrough};
  EXPECT_OK(Put(*drive, request));
  server.Run({"CONFIG", "SET", "appendfsync", "everysec"});
  EXPECT_FAILS(Put(*drive, request), EHOSTUNREACH);
  EXPECT_THAT(WhyAway(*drive), HasSubstr("set 'appendfsync always'"));
}

// What is on it can be read and deleted, also by who comes now and knows a later drive map.
TEST_F(RedisDriveTest, AFullStoreIsConnectedToAndGoesOn) {
  RedisServer server(
      RedisServer::Settings{{"maxmemory", "20mb"}, {"maxmemory-policy", "noeviction"}});
  {
    const auto drive = Connect(server.address());
    for (int i = 0; Put(*drive, {.key = std::to_string(i),
                                .value = SharedBytes(std::string(kMaxValueBytes, 'v'))})
                        .ok();
         ++i) {
      ASSERT_LT(i, 100);
    }
  }
  const auto drive = Connect(server.address());
  EXPECT_OK(Get(*drive, "0"));
  EXPECT_OK(Await<Result<Record>>(
      [&](Callback<Record> done) { drive->Get("0", {}, Terms(Soon(), 7), std::move(done)); }));
  EXPECT_OK(Await<Status>([&](StatusCallback done) {
    drive->Delete("0", Expected::Any(), Durability::kWriteBack, Terms(Soon(), 8), std::move(done));
  }));
  server.Kill();
  server.Start();
  EXPECT_OK(GetOnceItIsBack(*drive, "1"));
}

// It confirms and would not find it again: nothing of it counts until its file is whole.
TEST_F(RedisDriveTest, RefusesAServerWhoseFileDoesNotHaveEverythingYet) {
  RedisServer server(RedisServer::Settings{{"appendonly", "no"}, {"rdb-key-save-delay", "100000"}});
  for (int i = 0; i < 40; ++i) server.Run({"SET", std::to_string(i), "x"});
  server.Run({"CONFIG", "SET", "appendonly", "yes"});
  const auto drive = Connect(server.address());
  EXPECT_THAT(WhyAway(*drive), HasSubstr("does not have everything yet"));
  EXPECT_FAILS(GetOnceItIsBack(*drive, "key"), ENOENT) << "when it is written";
}

TEST_F(RedisDriveTest, ScriptsThatTheServerHasForgottenAreSentAgain) {
  RedisServer server;
  const auto drive = Connect(server.address());
  ASSERT_OK(Put(*drive, {.key = "key", .version = "1"}));
  server.Run({"SCRIPT", "FLUSH"});
  EXPECT_OK(Put(*drive, {.key = "key", .version = "2", .expected = Expected::Version("1")}));
  EXPECT_EQ(Get(*drive, "key")->version, "2");
  EXPECT_EQ(drive->CountLosses(), 0u);
}

// What has to be safe is followed by a look, also where the script had to be sent once more.
TEST_F(RedisDriveTest, LooksAfterTheChangeThatWasSentAgain) {
  RedisServer server;
  const auto drive = Connect(server.address());
  const Drive::PutRequest request{.key = "key", .durability = Durability::kWriteThrough};
  ASSERT_OK(Put(*drive, request));
  const auto looks = [&] {
    server.Run({"CONFIG", "RESETSTAT"});
    EXPECT_OK(Put(*drive, request));
    const std::string calls = server.Run({"INFO", "commandstats"});
    const std::string name = "cmdstat_config|get:calls=";
    const size_t at = calls.find(name);
    return at == calls.npos ? "none" : calls.substr(at + name.size(), 1);
  };
  EXPECT_EQ(looks(), "1");
  server.Run({"SCRIPT", "FLUSH"});
  EXPECT_EQ(looks(), "2") << "the first one was before the change";
}

// A command of the handshake may come back when nobody is there any more.
TEST_F(RedisDriveTest, MayBeDestroyedWhileItShakesHands) {
  RedisServer server;
  for (int i = 0; i < 100; ++i) {
    const auto drive = Connect(server.address());
    for (int turn = 0; turn < i; ++turn) std::this_thread::yield();
  }
}

TEST_F(RedisDriveTest, NoticesWhenTheServerStopsSyncing) {
  RedisServer server;
  const auto drive = Connect(server.address());
  EXPECT_OK(Flush(*drive));
  server.Run({"CONFIG", "SET", "appendfsync", "everysec"});
  const Status flushed = Flush(*drive);
  EXPECT_FAILS(flushed, EHOSTUNREACH);
  EXPECT_THAT(std::string(flushed.message()), HasSubstr("set 'appendfsync always'"));
  EXPECT_THAT(WhyAway(*drive), HasSubstr("set 'appendfsync always'"));
  server.Run({"CONFIG", "SET", "appendfsync", "always"});
  EXPECT_FAILS(GetOnceItIsBack(*drive, "key"), ENOENT);
}

TEST_F(RedisDriveTest, IsFullWhenItsMemoryIsAndStillDeletes) {
  RedisServer server(
      RedisServer::Settings{{"maxmemory", "20mb"}, {"maxmemory-policy", "noeviction"}});
  const auto drive = Connect(server.address());
  Status status;
  int stored = 0;
  while (status.ok()) {
    status = Put(*drive, {.key = std::to_string(stored),
                          .value = SharedBytes(std::string(kMaxValueBytes, 'v'))});
    if (status.ok()) ++stored;
    ASSERT_LT(stored, 100);
  }
  EXPECT_FAILS(status, ENOSPC);
  EXPECT_GT(Info(*drive).portion_full, 0.8);
  EXPECT_OK(Get(*drive, "0"));
  for (int i = 0; i < stored; ++i) EXPECT_OK(Delete(*drive, std::to_string(i)));
  EXPECT_OK(Put(*drive, {.key = "key"}));
}

// --- Records that somebody else has spoiled

TEST_F(RedisDriveTest, ARecordThatWasSpoiledIsDamagedAndNeverBelieved) {
  RedisServer server;
  const auto drive = Connect(server.address());
  const auto put = [&] {
    ASSERT_OK(
        Put(*drive, {.key = "key", .value = SharedBytes(std::string("value")), .version = "v1"}));
  };
  const std::vector<std::vector<std::string>> spoils = {
      {"SETRANGE", "pinstripe:r:key", "2", "X"},    // the value
      {"SETRANGE", "pinstripe:r:key", "6", "X"},    // the version
      {"SETRANGE", "pinstripe:r:key", "14", "XX"},  // a length
      {"SET", "pinstripe:r:key", "something else"},
      {"SET", "pinstripe:r:key", "x"}};
  for (const auto& spoil : spoils) {
    put();
    server.Run(spoil);
    EXPECT_FAILS(Get(*drive, "key"), EBADMSG) << spoil[2];
  }
  const Status changed =
      Put(*drive, {.key = "key", .version = "v2", .expected = Expected::Version("v1")});
  EXPECT_FAILS(changed, EBADMSG);
  const auto listed = Await<Result<RangeRecords>>([&](Callback<RangeRecords> done) {
    drive->ListRecords("", "\xff", 10, false, 100, Soon(), std::move(done));
  });
  ASSERT_OK(listed);
  ASSERT_EQ(listed->records.size(), 1u);
  EXPECT_TRUE(listed->records[0].damaged);
  put();  // whoever expects nothing makes it good
  EXPECT_OK(Get(*drive, "key"));
  server.Run({"DEL", "pinstripe:r:key"});
  server.Run({"LPUSH", "pinstripe:r:key", "x"});
  EXPECT_FAILS(Get(*drive, "key"), EBADMSG);
}

// --- Servers that lie

// Answers each connection with some bytes, and closes it.
class LyingServer {
 public:
  explicit LyingServer(std::string bytes) : bytes_(std::move(bytes)) {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~LyingServer() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string address() const { return fmt::format("redis://127.0.0.1:{}", port_); }

 private:
  void Serve() {
    for (;;) {
      const FileDescriptor peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.get() < 0) return;
      for (size_t sent = 0; sent < bytes_.size();) {
        const ssize_t some =
            send(peer.get(), bytes_.data() + sent, bytes_.size() - sent, MSG_NOSIGNAL);
        if (some <= 0) break;
        sent += static_cast<size_t>(some);
      }
    }
  }

  const std::string bytes_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST_F(RedisDriveTest, AServerThatDoesNotSpeakTheProtocolIsAway) {
  std::string nulls;
  std::string lists;
  for (int i = 0; i < 100; ++i) nulls += "$-1\r\n";
  for (int i = 0; i < 100; ++i) lists += "*2\r\n:1\r\n:2\r\n";
  for (const std::string& bytes :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), nulls, lists, std::string(),
        std::string("$99999999999\r\n") + std::string(32 << 20, 'x')}) {
    LyingServer server(bytes);
    const auto drive = Connect(server.address());
    EXPECT_FAILS(Get(*drive, "key"), EHOSTUNREACH);
    EXPECT_FALSE(drive->IsUp());
  }
}

TEST_F(RedisDriveTest, ADriveThatHasMovedIsGoneOnWithWhereItIsNow) {
  RedisServer one;
  RedisServer two;
  const auto drive = Connect(one.address());
  ASSERT_OK(Put(*drive, {.key = "key", .version = "1"}));
  drive->Redirect(OptionsFor(two.address()));
  EXPECT_FAILS(Get(*drive, "key"), ENOENT);
  EXPECT_EQ(drive->CountLosses(), 1u);
  EXPECT_THAT(std::string(drive->name()), HasSubstr(two.address()));
}

TEST_F(RedisDriveTest, AServerThatHangsIsNotWaitedForLongerThanAsked) {
  RedisServer server;
  const auto drive = Connect(server.address());
  ASSERT_OK(Put(*drive, {.key = "key"}));
  server.Run({"CLIENT", "PAUSE", "600000", "ALL"});
  const Status status = Await<Status>([&](StatusCallback done) {
    drive->Put({.key = "key"}, runtime_.Now() + 50ms, std::move(done));
  });
  EXPECT_FAILS(status, ETIMEDOUT);
}

TEST(RedisFence, ComparesAsTextAsItDoesAsANumber) {
  const std::vector<int64_t> numbers = {INT64_MIN, -1, 0, 1, 9, 10, INT64_MAX};
  for (const int64_t a : numbers) {
    EXPECT_EQ(ParseFence(FenceText(a)), a);
    for (const int64_t b : numbers) EXPECT_EQ(FenceText(a) < FenceText(b), a < b);
  }
  EXPECT_EQ(FenceText(0), "09223372036854775808");
  EXPECT_EQ(FenceText(std::nullopt), "");
  EXPECT_EQ(ParseFence("7"), std::nullopt);
}

}  // namespace
}  // namespace pinstripe
