// PostgresEngine and what happens to servers: they are set up badly, killed, paused, replaced by a
// standby, emptied, and lied with.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "tests/engines/postgres/engine_client.h"
#include "tests/support/postgres_server.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A resolver may know that there is no such name, or nothing at all.
auto WithoutAName() { return testing::AnyOf(HasSubstr("its name"), HasSubstr("resolver")); }

class PostgresServersTest : public testing::Test {
 protected:
  PostgresServersTest() { SetLogLevel(LogLevel::kError); }
  ~PostgresServersTest() override { SetLogLevel(LogLevel::kInfo); }
};

std::string WhyLost(EngineClient& client) { return std::string(client.WaitUntilLost().message()); }

// --- Servers that will not do

TEST_F(PostgresServersTest, RefusesAServerThatCouldLoseWhatItConfirmed) {
  for (const auto& [name, value, why] : std::vector<std::array<std::string, 3>>{
           {"fsync", "off", "set 'fsync = on'"},
           {"full_page_writes", "off", "set 'full_page_writes = on'"},
           {"default_transaction_read_only", "on", "set 'default_transaction_read_only = off'"}}) {
    PostgresServer server(PostgresServer::Settings{{name, value}});
    EngineClient client(server.connection());
    EXPECT_THAT(WhyLost(client), HasSubstr(why));
    EXPECT_FAILS(client.Put("key", "v", "1"), EHOSTUNREACH);
  }
}

TEST_F(PostgresServersTest, WaitsForTheDiskWhateverTheDefaultIs) {
  for (const auto& [is, becomes] : std::vector<std::pair<std::string, std::string>>{
           {"off", "on"}, {"local", "on"}, {"remote_apply", "remote_apply"}}) {
    PostgresServer server(PostgresServer::Settings{{"synchronous_commit", is}});
    EngineClient client(server.connection());
    client.WaitUntilReached();
    ASSERT_OK(client.Put("key", "v", "1"));
    // Whoever owns the table can have it tell.
    server.Run(
        "CREATE FUNCTION public.tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.tag = "
        "pg_catalog.convert_to(pg_catalog.current_setting(''synchronous_commit''), ''UTF8''); "
        "RETURN NEW; END'; CREATE TRIGGER tell BEFORE UPDATE ON pinstripe_test.records FOR EACH "
        "ROW EXECUTE FUNCTION public.tell()");
    ASSERT_OK(client.Put("key", "v", "2"));
    EXPECT_EQ(server.Run("SELECT convert_from(tag, 'UTF8') FROM pinstripe_test.records"),
              becomes + "\n");
  }
}

TEST_F(PostgresServersTest, AServerThatIsMadeUnsafeIsLeft) {
  PostgresServer server;
  EngineClient client(server.connection());
  client.WaitUntilReached();
  ASSERT_OK(client.Put("key", "v", "1"));
  server.Set("fsync", "off");
  while (client.Put("key", "v", "2").ok()) std::this_thread::yield();
  EXPECT_THAT(WhyLost(client), HasSubstr("'fsync"));
  EXPECT_FAILS(client.Put("key", "v", "3"), EHOSTUNREACH);
  server.Set("fsync", "on");
  EXPECT_OK(client.GetOnceItIsBack("key"));
}

TEST_F(PostgresServersTest, AWrongPasswordIsAccessDenied) {
  PostgresServer server;
  EngineOptions options = EngineClient::OptionsFor(server.connection("secret"));
  for (const char* password : {"", "wrong"}) {
    options.password = password;
    EngineClient client(options);
    EXPECT_FAILS(client.WaitUntilLost(), EACCES);
    EXPECT_FAILS(client.Get("key"), EACCES);
  }
  options.password = "secret";
  EngineClient client(options);
  // It may not make a schema in the database of another, and it is said what to grant.
  EXPECT_FAILS(client.WaitUntilLost(), EACCES);
  EXPECT_THAT(WhyLost(client), HasSubstr("grant the role CREATE on the database"));
  server.Run("GRANT CREATE ON DATABASE names TO secret");
  EXPECT_FAILS(client.GetOnceItIsBack("key"), ENOENT);
}

TEST_F(PostgresServersTest, WhatIsNotThereIsSaid) {
  PostgresServer server;
  const auto why = [&](const std::string& connection) {
    EngineClient client(connection);
    EXPECT_FAILS(client.Get("key"), EHOSTUNREACH);
    return WhyLost(client);
  };
  EXPECT_THAT(why(fmt::format("host=127.0.0.1 port={} dbname=none user=pin", server.port())),
              HasSubstr("\"none\" does not exist"));
  EXPECT_THAT(why("host=127.0.0.1 port=1 dbname=names user=pin"), HasSubstr("refused"));
  EXPECT_THAT(why("host=no.such.host.invalid dbname=names user=pin"), WithoutAName());
  EXPECT_THAT(why("host=/no/such/directory dbname=names user=pin"), HasSubstr("No such file"));
}

TEST_F(PostgresServersTest, AStoreOfALaterLayoutIsRefused) {
  PostgresServer server;
  {
    EngineClient client(server.connection());
    client.WaitUntilReached();
  }
  server.Run("UPDATE pinstripe_test.store SET layout = 2");
  EngineClient client(server.connection());
  EXPECT_THAT(WhyLost(client), HasSubstr("layout 2"));
}

// --- What happens to servers

TEST_F(PostgresServersTest, AChangeIsOneRoundTripAndOneStatement) {
  PostgresServer server(PostgresServer::Settings{{"log_statement", "all"}});
  EngineClient client(server.connection());
  client.WaitUntilReached();
  const auto executed = [&] {
    return server.Run(
        "SELECT count(*) FROM regexp_matches(pg_read_file('../log'), 'execute [p]instripe', 'g')");
  };
  ASSERT_EQ(executed(), "0\n");
  ASSERT_OK(client.Put("key", "v", "1", Expected::Absent(), Guard{"none", Expected::Absent()}));
  ASSERT_OK(client.Put("key", "v", "2", Expected::Version("1")));
  ASSERT_OK(client.Get("key"));
  EXPECT_EQ(executed(), "3\n");
}

TEST_F(PostgresServersTest, AStoreThatIsEmptiedIsNotTheSameAnyMore) {
  PostgresServer server;
  EngineClient client(server.connection());
  std::string store = client.WaitUntilReached();
  for (const char* empty :
       {"DROP SCHEMA pinstripe_test CASCADE", "TRUNCATE pinstripe_test.store",
        "DROP TABLE pinstripe_test.records", "DROP TABLE pinstripe_test.store"}) {
    ASSERT_OK(client.Put("key", "v", "1"));
    const int reached = client.reached();
    server.Run(empty);
    // Whoever comes first notices: this one, or a connection that is being made.
    while (client.reached() == reached) (void)client.Put("key", "v", "2");
    const std::string other = client.WaitUntilReached();
    EXPECT_NE(other, store) << empty;
    store = other;
  }
}

TEST_F(PostgresServersTest, ASessionThatIsEndedIsMadeAgain) {
  PostgresServer server;
  EngineClient client(server.connection());
  const std::string store = client.WaitUntilReached();
  ASSERT_OK(client.Put("key", "v", "1"));
  for (int i = 0; i < 5; ++i) {
    server.Run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
        "'pinstripe'");
    EXPECT_EQ(client.GetOnceItIsBack("key")->version, "1");
    EXPECT_EQ(client.WaitUntilReached(), store);
  }
}

TEST_F(PostgresServersTest, HasFurtherSessionsOnlyWhileSeveralRequestsAreUnderWay) {
  PostgresServer server;
  EngineOptions options = EngineClient::OptionsFor(server.connection());
  options.idle_timeout = std::chrono::seconds(1);
  EngineClient client(options);
  client.WaitUntilReached();
  const auto sessions = [&] {
    return server.Run("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pinstripe'");
  };
  for (int i = 0; i < 20; ++i) ASSERT_OK(client.Put("key", "v", std::to_string(i)));
  EXPECT_EQ(sessions(), "1\n");
  for (int round = 0; round < 2; ++round) {
    while (sessions() != "4\n") {
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_OK(client.Get("key")); });
      for (std::thread& each : threads) each.join();
    }
    while (sessions() != "1\n") std::this_thread::yield();
  }
  EXPECT_EQ(client.reached(), 1) << "it was never lost meanwhile";
}

TEST_F(PostgresServersTest, AChangeThatWaitsForALockIsNotWaitedForLongerThanAsked) {
  PostgresServer server;
  EngineClient client(server.connection());
  client.WaitUntilReached();
  ASSERT_OK(client.Put("key", "v", "1"));
  std::thread holder([&] {
    server.Run(
        "BEGIN; LOCK TABLE pinstripe_test.records IN EXCLUSIVE MODE; SELECT pg_sleep(100); "
        "COMMIT");
  });
  while (server.Run("SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND locktype = "
                    "'relation'") != "1\n") {
    std::this_thread::yield();
  }
  std::atomic<int> answers = 0;
  EngineBatch batch;
  batch.changes.push_back({.key = "key", .put = RecordOf("v", "2")});
  client.engine().Do(std::move(batch), client.runtime().Now() + 200ms,
                     [&](const Result<EngineAnswer>& answer) {
                       EXPECT_FAILS(answer, ETIMEDOUT);
                       ++answers;
                     });
  // Others are asked meanwhile.
  EXPECT_EQ(client.Get("key")->version, "1");
  while (answers == 0) std::this_thread::yield();
  server.Run("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'BEGIN; LOCK%'");
  holder.join();
  // It may be done after all, and is not answered again.
  while (client.Get("key")->version != "2") std::this_thread::yield();
  EXPECT_EQ(answers, 1);
}

TEST_F(PostgresServersTest, AServerThatHangsIsNotWaitedForLongerThanAsked) {
  PostgresServer server;
  EngineClient client(server.connection());
  client.WaitUntilReached();
  ASSERT_OK(client.Put("key", "v", "1"));
  server.Pause();
  EXPECT_FAILS(client.Change({.key = "key", .put = RecordOf("v", "2")},
                             Terms(client.runtime().Now() + 100ms)),
               ETIMEDOUT);
  EngineClient other(EngineClient::OptionsFor(server.connection()));
  EXPECT_FAILS(other.Get("key"), EHOSTUNREACH);
  server.Resume();
  other.WaitUntilReached();
  EXPECT_OK(client.Put("key", "v", "3"));
}

// Puts under way when something happens to the server. What was confirmed is there after it, and
// what was refused for sure is not; of the others each is there or not.
class Load {
 public:
  explicit Load(EngineClient& client) : client_(client) {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, i] {
        for (int n = 0; !ends_ && n < kMost; ++n) {
          const Status put =
              client_.Put(KeyOf(i, n), std::string(500, 'v'), "1", Expected::Absent());
          outcomes_[i].push_back(put.code());
          if (put.ok()) {
            ++confirmed_;
          } else {
            EXPECT_TRUE(put.code() == EHOSTUNREACH || put.code() == ETIMEDOUT) << put.message();
            client_.WaitUntilReached();
          }
        }
      });
    }
  }
  ~Load() { End(); }

  void WaitForMore(int count) const {
    const int enough = confirmed_ + count;
    while (confirmed_ < enough) std::this_thread::yield();
  }
  void End() {
    ends_ = true;
    for (std::thread& each : threads_) {
      if (each.joinable()) each.join();
    }
  }
  void Check(EngineClient& client) {
    End();
    for (int i = 0; i < kThreads; ++i) {
      for (size_t n = 0; n < outcomes_[i].size(); ++n) {
        const Result<Record> record = client.Get(KeyOf(i, static_cast<int>(n)));
        if (record) {
          EXPECT_EQ(record->value.size(), 500u);
        } else {
          EXPECT_FAILS(record, ENOENT);
          EXPECT_NE(outcomes_[i][n], 0) << KeyOf(i, static_cast<int>(n)) << " is lost";
        }
      }
    }
  }

 private:
  static constexpr int kThreads = 6;
  static constexpr int kMost = 3000;
  static std::string KeyOf(int thread, int n) { return fmt::format("{}.{:05}", thread, n); }

  EngineClient& client_;
  std::atomic<bool> ends_ = false;
  std::atomic<int> confirmed_ = 0;
  std::array<std::vector<int>, kThreads> outcomes_;
  std::vector<std::thread> threads_;
};

TEST_F(PostgresServersTest, KeepsWhatItConfirmedWhenTheServerIsKilled) {
  PostgresServer server;
  EngineClient client(server.connection());
  const std::string store = client.WaitUntilReached();
  Load load(client);
  for (int i = 0; i < 3; ++i) {
    load.WaitForMore(150);
    server.Kill();
    server.Start();
  }
  load.WaitForMore(50);
  load.Check(client);
  EXPECT_EQ(client.WaitUntilReached(), store);
}

TEST_F(PostgresServersTest, AnAdministratorWhoRestartsTheServerLosesNothing) {
  PostgresServer server;
  EngineClient client(server.connection());
  client.WaitUntilReached();
  Load load(client);
  load.WaitForMore(150);
  server.Stop();
  server.Start();
  load.WaitForMore(50);
  load.Check(client);
}

TEST_F(PostgresServersTest, GoesOnWithASynchronousStandbyThatTakesTheServersPlace) {
  PostgresServer primary;
  PostgresServer standby(primary, "standby");
  const std::string both = fmt::format("host=127.0.0.1,127.0.0.1 port={},{} dbname=names user=pin",
                                       standby.port(), primary.port());
  {
    EngineClient warned(both);
    warned.WaitUntilReached();
    const Result<EngineState> state = warned.LookAt();
    ASSERT_OK(state);
    EXPECT_THAT(state->warnings, testing::ElementsAre(HasSubstr("synchronous_standby_names")));
    EngineClient refused(standby.connection());
    EXPECT_THAT(WhyLost(refused), HasSubstr("it is a standby"));
  }
  primary.Set("synchronous_standby_names", "standby");
  EngineClient client(both);
  const std::string store = client.WaitUntilReached();
  const Result<EngineState> state = client.LookAt();
  ASSERT_OK(state);
  EXPECT_THAT(state->warnings, testing::IsEmpty());
  ASSERT_EQ(state->members.size(), 2u);
  EXPECT_TRUE(state->members[0].is_leader);
  EXPECT_EQ(state->members[0].name, fmt::format("127.0.0.1:{}", primary.port()));
  EXPECT_TRUE(state->members[1].is_up);
  EXPECT_FALSE(state->members[1].is_leader);
  EXPECT_THAT(state->members[1].note, HasSubstr("standby"));
  Load load(client);
  load.WaitForMore(200);
  primary.Kill();
  standby.Promote();
  load.WaitForMore(100);
  load.Check(client);
  EXPECT_EQ(client.WaitUntilReached(), store);
  const Result<EngineState> after = client.LookAt();
  ASSERT_OK(after);
  ASSERT_EQ(after->members.size(), 2u);
  EXPECT_EQ(after->members[0].name, fmt::format("127.0.0.1:{}", standby.port()));
  EXPECT_FALSE(after->members[1].is_up);
  EXPECT_THAT(after->members[1].note, HasSubstr("refused"));
  // The one before comes back as if nothing had happened, and the new one goes.
  primary.Start();
  standby.Kill();
  EXPECT_FAILS(client.Get("key"), EHOSTUNREACH);
  while (WhyLost(client).find("another server has taken its place") == std::string::npos) {
    std::this_thread::yield();
  }
}

// It is committed on the server alone when somebody cancels the wait for the standby.
TEST_F(PostgresServersTest, ACommitThatDidNotWaitForTheStandbyIsNotConfirmed) {
  PostgresServer server;
  EngineClient client(server.connection());
  client.WaitUntilReached();
  ASSERT_OK(client.Put("key", "v", "1"));
  server.Set("synchronous_standby_names", "nobody");
  std::atomic<int> code = -1;
  EngineBatch batch;
  batch.changes.push_back({.key = "key", .put = RecordOf("v", "2")});
  client.engine().Do(std::move(batch), client.Soon(), [&](const Result<EngineAnswer>& answer) {
    code = answer ? 0 : answer.error().code();
  });
  while (code < 0) {
    server.Run("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
  }
  EXPECT_EQ(code, EHOSTUNREACH);
  // The server sends its warning a moment before it shows the change to other sessions.
  while (client.GetOnceItIsBack("key")->version != "2") {
    std::this_thread::yield();
  }
  const Result<EngineState> state = client.LookAt();
  ASSERT_OK(state);
  EXPECT_THAT(state->alarms, testing::ElementsAre(HasSubstr("changes hang")));
}

TEST_F(PostgresServersTest, TellsOfServersThatAreDown) {
  EngineClient client("host=127.0.0.1,no.such.host.invalid port=1,5432 dbname=names user=pin");
  EXPECT_THAT(WhyLost(client), testing::AllOf(HasSubstr("127.0.0.1:1: "), WithoutAName()));
  const Result<EngineState> state = client.LookAt();
  ASSERT_OK(state);
  ASSERT_EQ(state->members.size(), 2u);
  EXPECT_FALSE(state->members[0].is_up);
  EXPECT_EQ(state->alarms.size(), 1u);
  EngineClient wrong("nonsense");
  EXPECT_FAILS(wrong.LookAt(), EINVAL);
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
  uint16_t port() const { return port_; }

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

TEST_F(PostgresServersTest, AServerThatDoesNotSpeakTheProtocolIsAway) {
  // "Authentication is done", then ready, and what a query may get.
  const std::string ready("R\0\0\0\x08\0\0\0\0Z\0\0\0\5I", 15);
  const std::string version(
      "S\0\0\0\x18server_version\0"
      "15.1\0",
      25);
  std::string rows = ready;
  for (int i = 0; i < 100; ++i) rows += std::string("D\0\0\0\x06\0\0Z\0\0\0\5I", 13);
  for (const std::string& bytes :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string(), ready, rows,
        version + ready, std::string("E\xff\xff\xff\xff", 5), std::string(1 << 20, 'R'),
        std::string("R\0\0\0\x08\0\0\0\x0a", 9)}) {
    LyingServer server(bytes);
    EngineClient client(
        fmt::format("host=127.0.0.1 port={} dbname=names user=pin sslmode=disable", server.port()));
    EXPECT_FAILS(client.WaitUntilLost(), EHOSTUNREACH);
    EXPECT_FAILS(client.Get("key"), EHOSTUNREACH);
  }
}

}  // namespace
}  // namespace pinstripe
