// A device as clients of the Redis protocol see it: commands, and bytes that no client would send.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "base/real_runtime.h"
#include "daemon/resp_device.h"
#include "kinetic/kinetic.pb.h"
#include "store/log_store.h"
#include "store/memory_store.h"
#include "store/store_resources.h"
#include "tests/daemon/served_device.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

// Those between spaces.
Words TheWords(std::string_view line) {
  Words words(1);
  for (const char c : line) {
    if (c == ' ') words.emplace_back();
    if (c != ' ') words.back() += c;
  }
  return words;
}

// Says commands, and shows answers as redis-cli does, in short.
class RedisClient {
 public:
  explicit RedisClient(uint16_t port) : wire_(port) {}

  void Append(const Words& words) {
    std::string bytes = fmt::format("*{}\r\n", words.size());
    for (const std::string& word : words) bytes += fmt::format("${}\r\n{}\r\n", word.size(), word);
    wire_.Send(bytes);
  }
  void SendRaw(std::string_view bytes) { wire_.Send(bytes); }
  std::string Next() {
    const std::string line = Line();
    if (line.empty()) return "(gone)";
    const std::string rest = line.substr(1);
    const int64_t number = std::strtoll(rest.c_str(), nullptr, 10);
    switch (line[0]) {
      case '+':
      case ':': return rest;
      case '-': return "(error) " + rest;
      case '_': return "(nil)";
      case '$':
      case '=': return number < 0 ? "(nil)" : Bytes(static_cast<size_t>(number));
      case '*': return number < 0 ? "(nil)" : "[" + Entries(number) + "]";
      case '%': return "{" + Entries(2 * number) + "}";
      default: return "(strange) " + line;
    }
  }
  std::string operator()(const Words& words) {
    Append(words);
    return Next();
  }
  std::string operator()(std::string_view line) { return (*this)(TheWords(line)); }
  RedisClient& LogIn() {
    EXPECT_EQ((*this)("AUTH 1 asdfasdf"), "OK");
    return *this;
  }

 private:
  // Without its end. Empty: the device hung up.
  std::string Line() {
    std::string line;
    for (std::string next; !line.ends_with("\r\n"); line += next) {
      next = wire_.Receive(1);
      if (next.empty()) return "";
    }
    return line.substr(0, line.size() - 2);
  }
  std::string Bytes(size_t count) {
    std::string bytes = wire_.Receive(count + 2);
    EXPECT_TRUE(bytes.ends_with("\r\n"));
    return bytes.substr(0, count);
  }
  std::string Entries(int64_t count) {
    std::string all;
    for (int64_t i = 0; i < count; ++i) all += (i > 0 ? " " : "") + Next();
    return all;
  }

  WireClient wire_;
};

// Says when it was flushed, and fails to, where a test wants that.
class WatchedStore final : public Store {
 public:
  explicit WatchedStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    return store_->Get(key, range);
  }
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range) override {
    return store_->GetAtOnce(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override { return store_->Head(key); }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_->Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room) override {
    if (is_full) return Fail(ENOSPC, "no room");
    return store_->Put(key, record, room);
  }
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override {
    if (is_full) return std::vector<Status>(puts.size(), Fail(ENOSPC, "no room"));
    return store_->PutEach(puts);
  }
  bool PutAllAtOnce(std::span<const StoreChange> puts) override {
    return !is_full && store_->PutAllAtOnce(puts);
  }
  Status Delete(std::string_view key) override { return store_->Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override {
    if (is_full) return Fail(ENOSPC, "no room");
    return store_->Apply(changes);
  }
  Status Flush() override {
    ++flushes;
    if (flush_fails) return Fail(EIO, "the disk has failed");
    return store_->Flush();
  }
  StoreUsage Usage() override { return store_->Usage(); }
  Status Erase() override { return store_->Erase(); }

  std::atomic<int> flushes = 0;
  std::atomic<bool> flush_fails = false;
  std::atomic<bool> is_full = false;

 private:
  const std::unique_ptr<Store> store_;
};

// On a store that always waits, and on one that answers at once what it can.
class RespServerTest : public testing::TestWithParam<bool> {
 protected:
  RespServerTest() {
    SetLogLevel(LogLevel::kError);
    port_ = Listen({});
  }

  uint16_t Listen(Server::Resp how) {
    const Result<uint16_t> port = server_.ListenResp("127.0.0.1", 0, service_, how);
    EXPECT_OK(port);
    return *port;
  }

  std::unique_ptr<Store> NewStore() {
    if (!GetParam()) return std::make_unique<MemoryStore>(256 << 20);
    LogStoreOptions options;
    options.path = directory_.path();
    auto store = LogStore::Open(options, resources_);
    EXPECT_OK(store);
    return *std::move(store);
  }

  static RightsById Identities() {
    const auto scope = [](std::string value, std::initializer_list<Permission> permissions) {
      Scope scope{.value = std::move(value)};
      for (const Permission each : permissions) scope.permissions.Add(each);
      return scope;
    };
    return {
        {1, FullAccess("asdfasdf")},
        {2,
         {.key = "reader", .scopes = {scope("resp/a", {Permission::kRead, Permission::kRange})}}},
        {3, {.key = "elsewhere", .scopes = {scope("other", {Permission::kRead})}}},
        {4,
         {.key = "writer",
          .scopes = {scope("resp/", {Permission::kWrite}), scope("resp/a", {Permission::kRead})}}}};
  }

  RealRuntime runtime_;
  TemporaryDirectory directory_;
  StoreResources resources_;
  WatchedStore* store_ = new WatchedStore(NewStore());
  Engine engine_{std::unique_ptr<Store>(store_)};
  DeviceSecurity security_{Identities()};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, Server::Options{.frame_timeout = std::chrono::seconds(1)}};
  uint16_t port_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Stores, RespServerTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Log" : "Memory"; });

TEST_P(RespServerTest, NobodyLearnsAnythingBeforeSayingWhoHeIs) {
  RedisClient client(port_);
  for (const char* line : {"GET a", "PING", "CONFIG GET *", "COMMAND", "nonsense"}) {
    EXPECT_EQ(client(line), "(error) NOAUTH Authentication required.") << line;
  }
  for (const char* line : {"AUTH 1 wrong", "AUTH 9 asdfasdf", "AUTH x asdfasdf", "AUTH asdfasdf",
                           "AUTH 1:", "HELLO 3 AUTH 1 wrong"}) {
    EXPECT_THAT(client(line), StartsWith("(error) WRONGPASS")) << line;
  }
  EXPECT_THAT(client("HELLO 3"), StartsWith("(error) NOAUTH"));
  EXPECT_EQ(client("AUTH 1 asdfasdf"), "OK");
  EXPECT_EQ(client("PING"), "PONG");
  EXPECT_EQ(RedisClient(port_)("AUTH 1:asdfasdf"), "OK") << "who has one password to give";
  EXPECT_EQ(RedisClient(port_)("AUTH default 1:asdfasdf"), "OK");
  EXPECT_THAT(RedisClient(port_)("HELLO 3 AUTH 1 asdfasdf SETNAME me"),
              AllOf(HasSubstr("proto 3"), HasSubstr("role master")));
}

TEST_P(RespServerTest, KeysAreSetAndReadAndDeleted) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("GET k"), "(nil)");
  EXPECT_EQ(client("SET k v"), "OK");
  EXPECT_EQ(client("GET k"), "v");
  EXPECT_EQ(client("STRLEN k"), "1");
  EXPECT_EQ(client("STRLEN none"), "0");
  EXPECT_EQ(client("EXISTS k k none"), "2");
  EXPECT_EQ(client("TYPE k"), "string");
  EXPECT_EQ(client("TYPE none"), "none");
  EXPECT_EQ(client("TTL k"), "-1");
  EXPECT_EQ(client("TTL none"), "-2");
  EXPECT_EQ(client("SETNX k w"), "0");
  EXPECT_EQ(client("SETNX n w"), "1");
  EXPECT_EQ(client("GETSET k w"), "v");
  EXPECT_EQ(client("APPEND k xyz"), "4");
  EXPECT_EQ(client("GETDEL k"), "wxyz");
  EXPECT_EQ(client("GETDEL k"), "(nil)");
  EXPECT_EQ(client("DEL k n n"), "1");
  EXPECT_EQ(client("UNLINK n"), "0");
  EXPECT_EQ(client(Words{"SET", "", std::string("\0\r\n", 3)}), "OK") << "any bytes will do";
  EXPECT_EQ(client(Words{"GET", ""}), std::string("\0\r\n", 3));
}

TEST_P(RespServerTest, ASetMayDependOnWhatIsThere) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("SET k 1 XX"), "(nil)");
  EXPECT_EQ(client("SET k 1 NX"), "OK");
  EXPECT_EQ(client("SET k 2 nx"), "(nil)");
  EXPECT_EQ(client("SET k 2 XX"), "OK");
  EXPECT_EQ(client("SET k 3 GET"), "2");
  EXPECT_EQ(client("SET k 4 NX GET"), "3");
  EXPECT_EQ(client("SET none 4 XX GET"), "(nil)");
  EXPECT_EQ(client("SET k 5 IFEQ 4"), "(nil)");
  EXPECT_EQ(client("SET k 5 IFEQ 3"), "OK");
  EXPECT_EQ(client("SET none 5 IFEQ 3"), "(nil)");
  EXPECT_EQ(client("GET k"), "5");
  EXPECT_EQ(client("SET k 6 KEEPTTL"), "OK");
  EXPECT_THAT(client("SET k 1 EX 10"), HasSubstr("until it is deleted"));
  EXPECT_EQ(client("SET k 1 NX XX"), "(error) ERR syntax error");
  EXPECT_EQ(client("SET k 1 FOO"), "(error) ERR syntax error");
  EXPECT_EQ(client("SET k"), "(error) ERR wrong number of arguments for 'set' command");
  EXPECT_EQ(client("GET k"), "6");
}

TEST_P(RespServerTest, PartsOfAValueAreCountedAsRedisCountsThem) {
  RedisClient client(port_);
  client.LogIn();
  client("SET k 0123456789");
  // As redis-server 7 answers; 48-resp.sh compares many more with it.
  const std::tuple<int, int, const char*> kParts[] = {
      {0, -1, "0123456789"}, {0, 3, "0123"},   {-3, -1, "789"}, {2, 2, "2"},     {9, 20, "9"},
      {10, 20, ""},          {5, 4, ""},       {-20, 1, "01"},  {-20, -12, "0"}, {0, -100, "0"},
      {-1, -2, ""},          {-100, -101, ""}, {-2, 8, "8"},    {1, -100, ""},
  };
  for (const auto& [from, to, part] : kParts) {
    EXPECT_EQ(client(fmt::format("GETRANGE k {} {}", from, to)), part) << from << " " << to;
  }
  EXPECT_EQ(client("GETRANGE none 0 -1"), "");
  EXPECT_THAT(client("GETRANGE k a 1"), HasSubstr("not an integer"));
  EXPECT_EQ(client("GETRANGE k 0 9223372036854775807"), "0123456789");
  EXPECT_EQ(client("GETRANGE k -9223372036854775808 0"), "0");
}

TEST_P(RespServerTest, NumbersAreCounted) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("INCR n"), "1");
  EXPECT_EQ(client("INCRBY n 41"), "42");
  EXPECT_EQ(client("DECR n"), "41");
  EXPECT_EQ(client("DECRBY n 50"), "-9");
  EXPECT_EQ(client("SET n 9223372036854775807"), "OK");
  EXPECT_THAT(client("INCR n"), HasSubstr("overflow"));
  EXPECT_THAT(client("DECRBY n -9223372036854775808"), HasSubstr("overflow"));
  EXPECT_EQ(client("SET n x"), "OK");
  EXPECT_THAT(client("INCR n"), HasSubstr("not an integer"));
}

TEST_P(RespServerTest, ManyKeysAreSetTogetherOrNotAtAll) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("MSET a 1 b 2 a 3"), "OK");
  EXPECT_EQ(client("MGET a b c"), "[3 2 (nil)]");
  EXPECT_THAT(client("MSET a 1 b"), HasSubstr("wrong number of arguments"));
  EXPECT_THAT(client({"MSET", "a", "9", "b", std::string(kMaxValueBytes + 1, 'x')}),
              HasSubstr("the limit is"));
  EXPECT_EQ(client("MGET a b"), "[3 2]");
}

TEST_P(RespServerTest, ATransactionIsExecutedAsAWhole) {
  RedisClient client(port_);
  client.LogIn();
  RedisClient other(port_);
  other.LogIn();
  EXPECT_EQ(client("MULTI"), "OK");
  for (const char* line : {"SET k 1", "INCR k", "GET k", "APPEND k 0", "GETRANGE k 0 0", "DEL k",
                           "EXISTS k", "SET k x NX", "INCR k", "HSET h f v", "HGETALL h",
                           "MSET a 1 b 2", "MGET a b none", "PING"}) {
    EXPECT_EQ(client(line), "QUEUED") << line;
  }
  EXPECT_EQ(other("MGET k a"), "[(nil) (nil)]") << "nobody sees anything before";
  EXPECT_EQ(client("EXEC"),
            "[OK 2 2 2 2 1 0 OK (error) ERR value is not an integer or out of range 1 [f v] OK "
            "[1 2 (nil)] PONG]");
  EXPECT_EQ(other("MGET k a b"), "[x 1 2]");
  EXPECT_EQ(other("HGETALL h"), "[f v]");
  EXPECT_EQ(client("GET k"), "x") << "it has ended";
  EXPECT_EQ(client("MULTI"), "OK");
  EXPECT_EQ(client("SET k y"), "QUEUED");
  EXPECT_EQ(client("DISCARD"), "OK");
  EXPECT_EQ(client("GET k"), "x");
  EXPECT_THAT(client("EXEC"), HasSubstr("EXEC without MULTI"));
  EXPECT_THAT(client("DISCARD"), HasSubstr("DISCARD without MULTI"));
}

TEST_P(RespServerTest, ATransactionWithAWrongCommandIsNotExecuted) {
  RedisClient client(port_);
  client.LogIn();
  for (const char* wrong : {"SET k", "NONSENSE", "KEYS *", "FLUSHALL", "HELLO 3"}) {
    SCOPED_TRACE(wrong);
    EXPECT_EQ(client("MULTI"), "OK");
    EXPECT_EQ(client("SET k 1"), "QUEUED");
    EXPECT_THAT(client(wrong), StartsWith("(error) ERR"));
    EXPECT_THAT(client("EXEC"), StartsWith("(error) EXECABORT"));
    EXPECT_EQ(client("GET k"), "(nil)");
  }
  EXPECT_EQ(client("MULTI"), "OK");
  EXPECT_THAT(client("MULTI"), HasSubstr("nested"));
  EXPECT_THAT(client("WATCH k"), HasSubstr("not allowed"));
  EXPECT_EQ(client("EXEC"), "[]");
}

TEST_P(RespServerTest, ATransactionMayDependOnWhatWasRead) {
  RedisClient client(port_);
  client.LogIn();
  RedisClient other(port_);
  other.LogIn();
  const auto try_to_set = [&](const std::function<void()>& meanwhile) {
    EXPECT_EQ(client("WATCH k none"), "OK");
    meanwhile();
    EXPECT_EQ(client("MULTI"), "OK");
    EXPECT_EQ(client("SET mine 1"), "QUEUED");
    return client("EXEC");
  };
  other("SET k 1");
  EXPECT_EQ(try_to_set([] {}), "[OK]");
  EXPECT_EQ(try_to_set([&] { other("SET k 1"); }), "(nil)") << "the same, but another one's";
  EXPECT_EQ(try_to_set([&] { other("DEL k"); }), "(nil)");
  EXPECT_EQ(try_to_set([&] { other("SET none 1"); }), "(nil)");
  EXPECT_EQ(try_to_set([&] { other("SET elsewhere 1"); }), "[OK]");
  EXPECT_EQ(try_to_set([&] {
              other("SET k 2");
              client("UNWATCH");
            }),
            "[OK]");
}

TEST_P(RespServerTest, ATransactionMayChangeNothingInTheEnd) {
  RedisClient client(port_);
  client.LogIn();
  const auto execute = [&](std::initializer_list<const char*> lines) {
    EXPECT_EQ(client("MULTI"), "OK");
    for (const char* line : lines) EXPECT_EQ(client(line), "QUEUED");
    return client("EXEC");
  };
  EXPECT_EQ(execute({"SET k 1", "DEL k"}), "[OK 1]");
  EXPECT_EQ(execute({"DEL k"}), "[0]");
  EXPECT_EQ(execute({"HSET h f v", "HDEL h f"}), "[1 1]");
  EXPECT_EQ(execute({"SET k 1", "GETDEL k", "GETDEL k"}), "[OK 1 (nil)]");
  EXPECT_EQ(client("DBSIZE"), "0");
}

TEST_P(RespServerTest, RightsInATransactionAreThoseOutsideOfIt) {
  RedisClient writer(port_);
  EXPECT_EQ(writer("AUTH 4 writer"), "OK");
  EXPECT_EQ(writer("MULTI"), "OK");
  for (const char* line : {"MSET a 1 b 2", "SET c 3", "GET a", "GET b", "DEL a"}) {
    EXPECT_EQ(writer(line), "QUEUED");
  }
  EXPECT_EQ(writer("EXEC"),
            "[OK OK 1 (error) NOPERM permission denied (error) NOPERM permission denied]");
  RedisClient owner(port_);
  owner.LogIn();
  EXPECT_EQ(owner("MGET a b c"), "[1 2 3]");
}

TEST_P(RespServerTest, ATransactionHasBoundedAnswers) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client({"SET", "large", std::string(kMaxValueBytes, 'v')}), "OK");
  for (const char* line : {"GET large", "APPEND small"}) {
    EXPECT_EQ(client("MULTI"), "OK");
    EXPECT_EQ(client("SET k 1"), "QUEUED");
    for (int i = 0; i < 70; ++i) {
      Words words = TheWords(line);
      if (words[0] == "APPEND") words = {"SET", fmt::format("s{}", i), std::string(240'000, 'x')};
      if (words[0] == "SET" && i % 2 == 0) words = {"GET", "large"};
      client.Append(words);
    }
    for (int i = 0; i < 70; ++i) client.Next();
    const std::string answer = client("EXEC");
    if (answer.starts_with("(error)")) {
      EXPECT_THAT(answer, HasSubstr("67108864 bytes of answers"));
      EXPECT_EQ(client("GET k"), "(nil)") << "nothing was changed";
    } else {
      EXPECT_STRNE(line, "GET large");
    }
  }
}

// Many clients send all they have to say before they read.
TEST_P(RespServerTest, AnswersMayBeReadWhenAllIsSaid) {
  RedisClient client(port_);
  client.LogIn();
  const std::string value(100'000, 'v');
  for (int i = 0; i < 300; ++i) {
    client.Append({"SET", fmt::format("k{}", i), value});
    client.Append({"GET", fmt::format("k{}", i)});
  }
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(client.Next(), "OK");
    ASSERT_EQ(client.Next(), value);
  }
}

TEST_P(RespServerTest, NobodySeesAPartOfAnMset) {
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    RedisClient client(port_);
    client.LogIn();
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(client(fmt::format("MSET a {} b {} c {}", i, i, i)), "OK");
      EXPECT_EQ(i % 10 == 0 ? client("DEL a b c") : "3", "3");
    }
    ended = true;
  });
  RedisClient client(port_);
  client.LogIn();
  while (!ended) {
    const std::string all = client("MGET a b c");
    const std::string first = all.substr(1, all.find(' ') - 1);
    ASSERT_EQ(all, fmt::format("[{} {} {}]", first, first, first));
  }
  writer.join();
}

TEST_P(RespServerTest, ARecordWithoutAVersionIsThereAllTheSame) {
  RedisClient client(port_);
  client.LogIn();
  StoredRecord theirs;
  theirs.value = SharedBytes(std::string("theirs"));
  EXPECT_OK(engine_.Put("resp/t", theirs, Expected::Any()));
  EXPECT_EQ(client("SETNX t mine"), "0");
  EXPECT_EQ(client("SET t mine NX"), "(nil)");
  EXPECT_EQ(client("WATCH t"), "OK");
  EXPECT_OK(engine_.Delete("resp/t", Expected::Any()));
  EXPECT_EQ(client("MULTI"), "OK");
  EXPECT_EQ(client("SET mine 1"), "QUEUED");
  EXPECT_EQ(client("EXEC"), "(nil)") << "it has gone meanwhile";
}

TEST_P(RespServerTest, PatternsHaveABoundedLength) {
  RedisClient client(port_);
  client.LogIn();
  client("SET k v");
  EXPECT_EQ(client({"KEYS", std::string(1023, '*') + "k"}), "[k]");
  EXPECT_THAT(client({"KEYS", std::string(1025, '*')}), HasSubstr("the limit is 1024"));
  EXPECT_THAT(client({"SCAN", "0", "MATCH", std::string(1025, '*')}), HasSubstr("the limit"));
  EXPECT_THAT(client({"CONFIG", "GET", std::string(1025, '*')}), HasSubstr("the limit"));
}

// What connections have the device keep for them has bounds, and goes with them.
TEST_P(RespServerTest, TransactionsThatAreNotExecutedHaveBounds) {
  RedisClient client(port_);
  client.LogIn();
  for (int round = 0; round < 10; ++round) {  // more than all together have room for
    EXPECT_EQ(client("WATCH k"), "OK");
    EXPECT_EQ(client("MULTI"), "OK");
    const std::string value(1 << 20, 'v');
    for (int i = 0; i < 15; ++i) ASSERT_EQ(client({"SET", "k", value}), "QUEUED") << i;
    EXPECT_THAT(client({"SET", "k", value}), HasSubstr("no room"));
    EXPECT_THAT(client("EXEC"), StartsWith("(error) EXECABORT"));
  }
  for (int i = 0; i < 2000; ++i) client.Append({"WATCH", "the_same"});
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(client.Next(), "OK");
  for (int i = 0; i < 999; ++i) client.Append({"WATCH", fmt::format("k{}", i)});
  for (int i = 0; i < 999; ++i) ASSERT_EQ(client.Next(), "OK");
  EXPECT_THAT(client("WATCH one_more"), HasSubstr("too many keys are watched"));
  EXPECT_EQ(service_.batch_budget().bytes(), 0u) << "that of Kinetic clients is another one";
}

// What a transaction changes together is never seen apart.
TEST_P(RespServerTest, NobodySeesAPartOfATransaction) {
  std::atomic<bool> ended = false;
  std::vector<std::future<void>> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::async(std::launch::async, [&] {
      RedisClient client(port_);
      client.LogIn();
      for (int j = 0; j < 300; ++j) {
        for (const char* line : {"MULTI", "INCR a", "INCR b", "EXEC"})
          client.Append(TheWords(line));
        for (int k = 0; k < 3; ++k) client.Next();
        EXPECT_THAT(client.Next(), StartsWith("["));
      }
    }));
  }
  std::thread reader([&] {
    RedisClient client(port_);
    client.LogIn();
    while (!ended) {
      const std::string both = client("MGET a b");
      const size_t middle = both.find(' ');
      EXPECT_EQ(both.substr(1, middle - 1), both.substr(middle + 1, both.size() - middle - 2));
    }
  });
  for (auto& each : all) each.get();
  ended = true;
  reader.join();
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("MGET a b"), "[900 900]");
}

TEST_P(RespServerTest, HashesHaveFields) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("HSET h x 1 y 2"), "2");
  EXPECT_EQ(client("HSET h x 3 z 4"), "1");
  EXPECT_EQ(client("HMSET h w 5"), "OK");
  EXPECT_EQ(client("HGET h x"), "3");
  EXPECT_EQ(client("HGET h none"), "(nil)");
  EXPECT_EQ(client("HMGET h x none y"), "[3 (nil) 2]");
  EXPECT_EQ(client("HGETALL h"), "[w 5 x 3 y 2 z 4]");
  EXPECT_EQ(client("HKEYS h"), "[w x y z]");
  EXPECT_EQ(client("HVALS h"), "[5 3 2 4]");
  EXPECT_EQ(client("HLEN h"), "4");
  EXPECT_EQ(client("HEXISTS h x"), "1");
  EXPECT_EQ(client("TYPE h"), "hash");
  EXPECT_THAT(client("GET h"), StartsWith("(error) WRONGTYPE"));
  EXPECT_THAT(client("APPEND h x"), StartsWith("(error) WRONGTYPE"));
  EXPECT_EQ(client("MGET h"), "[(nil)]");
  EXPECT_EQ(client("HDEL h x y nothing"), "2");
  EXPECT_EQ(client("HDEL h w z"), "2");
  EXPECT_EQ(client("EXISTS h"), "0") << "nothing is left of it";
  EXPECT_EQ(client("HGETALL h"), "[]");
  client("SET s v");
  EXPECT_THAT(client("HSET s x 1"), StartsWith("(error) WRONGTYPE"));
  EXPECT_EQ(client("HELLO 3 AUTH 1 asdfasdf").substr(0, 1), "{");
  EXPECT_EQ(client("HSET h x 1"), "1");
  EXPECT_EQ(client("HGETALL h"), "{x 1}");
  EXPECT_EQ(client("SET h text"), "OK") << "a set replaces whatever is there";
  EXPECT_EQ(client("TYPE h"), "string");
}

TEST_P(RespServerTest, KeysAreListedInTheirOrder) {
  RedisClient client(port_);
  client.LogIn();
  for (const char* key : {"b", "a", "ab", "c", "aa"}) client({"SET", key, "v"});
  EXPECT_EQ(client("HSET h x 1"), "1");
  EXPECT_EQ(client("DBSIZE"), "6");
  EXPECT_EQ(client("KEYS *"), "[a aa ab b c h]");
  EXPECT_EQ(client("KEYS a?"), "[aa ab]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys - + BYLEX"), "[a aa ab b c h]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys [aa (b BYLEX"), "[aa ab]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys (b [aa BYLEX REV"), "[ab aa]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys - + BYLEX LIMIT 1 2"), "[aa ab]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys - + BYLEX LIMIT 4 -1"), "[c h]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys + - BYLEX"), "[]");
  EXPECT_EQ(client("ZRANGE pinstripe:keys [b [a BYLEX"), "[]");
  EXPECT_EQ(client("ZRANGEBYLEX pinstripe:keys (a [b LIMIT 0 2"), "[aa ab]");
  EXPECT_EQ(client("ZREVRANGEBYLEX pinstripe:keys [b (a"), "[b ab aa]");
  EXPECT_EQ(client("ZLEXCOUNT pinstripe:keys - (b"), "3");
  EXPECT_EQ(client("ZCARD pinstripe:keys"), "6");
  EXPECT_EQ(client("ZRANGE other - + BYLEX"), "[]");
  EXPECT_THAT(client("ZRANGE a - + BYLEX"), StartsWith("(error) WRONGTYPE"));
  EXPECT_THAT(client("ZRANGE pinstripe:keys 0 -1"), StartsWith("(error) ERR"));
  EXPECT_THAT(client("ZRANGE pinstripe:keys x + BYLEX"), HasSubstr("not valid string range"));
}

// Each key that is there all the time is told exactly once, others at most once.
TEST_P(RespServerTest, AScanTellsOfEveryKey) {
  RedisClient client(port_);
  client.LogIn();
  RedisClient other(port_);
  other.LogIn();
  std::set<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string key = fmt::format("key{:03}", i);
    client({"SET", key, "v"});
    expected.insert(key);
  }
  std::set<std::string> found;
  std::string cursor = "0";
  int rounds = 0;
  do {
    // Any connection may go on with it.
    const std::string answer =
        (rounds % 2 == 0 ? client : other)({"SCAN", cursor, "MATCH", "key*", "COUNT", "17"});
    const size_t end = answer.find(' ');
    cursor = answer.substr(1, end - 1);
    std::string keys = answer.substr(end + 2, answer.size() - end - 4);
    for (size_t at = 0; at < keys.size(); at += 7) {
      EXPECT_TRUE(found.insert(keys.substr(at, 6)).second) << keys.substr(at, 6);
    }
    client({"SET", fmt::format("key{:03}b", rounds), "comes meanwhile"});
    client({"DEL", fmt::format("key{:03}b", rounds)});
    ++rounds;
  } while (cursor != "0" && rounds < 100);
  EXPECT_EQ(found, expected);
  EXPECT_GE(rounds, 30);
  client("HSET hash x 1");
  EXPECT_EQ(client("SCAN 0 COUNT 10000 TYPE hash"), "[0 [hash]]");
  EXPECT_EQ(client("SCAN 0 MATCH nothing*"), "[0 []]");
  EXPECT_THAT(client("SCAN 12345"), HasSubstr("invalid cursor"));
  EXPECT_THAT(client("SCAN x"), HasSubstr("invalid cursor"));
  EXPECT_THAT(client("SCAN 0 COUNT 0"), HasSubstr("syntax error"));
  EXPECT_EQ(client("FLUSHDB"), "OK");
  EXPECT_EQ(client("DBSIZE"), "0");
}

TEST_P(RespServerTest, CommandsThatComeTogetherAreAnsweredInTheirOrder) {
  RedisClient client(port_);
  client.LogIn();
  std::vector<std::string> expected;
  const auto say = [&](const Words& words, const std::string& answer) {
    client.Append(words);
    expected.push_back(answer);
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string key = fmt::format("k{}", i % 7);
    say({"SET", key, std::to_string(i)}, "OK");
    if (i % 3 == 0) say({"SET", key, std::to_string(i + 1)}, "OK");
    say({"GET", key}, std::to_string(i % 3 == 0 ? i + 1 : i));
    if (i % 5 == 0)
      say({"STRLEN", key}, std::to_string(std::to_string(i % 3 == 0 ? i + 1 : i).size()));
    if (i % 11 == 0) say({"GET"}, "(error) ERR wrong number of arguments for 'get' command");
    if (i % 13 == 0) say({"PING", "x"}, "x");
    if (i % 17 == 0) say({"DEL", key}, "1");
  }
  for (const std::string& answer : expected) ASSERT_EQ(client.Next(), answer);
}

// However many one read brings.
TEST_P(RespServerTest, ManyTinyCommandsAreAllAnswered) {
  RedisClient client(port_);
  client.LogIn();
  std::string bytes;
  for (int i = 0; i < 10'000; ++i) bytes += i % 1000 == 999 ? "CLIENT GETNAME\r\n" : "PING\r\n";
  client.SendRaw(bytes);
  for (int i = 0; i < 10'000; ++i)
    ASSERT_EQ(client.Next(), i % 1000 == 999 ? "(nil)" : "PONG") << i;
}

// Large values, whose answers the client takes late.
TEST_P(RespServerTest, AnswersWaitForTheirReader) {
  RedisClient client(port_);
  client.LogIn();
  const std::string value(kMaxValueBytes, 'v');
  EXPECT_EQ(client({"SET", "k", value}), "OK");
  EXPECT_THAT(client({"SET", "k", value + "v"}), HasSubstr("the limit is 1048576"));
  for (int i = 0; i < 40; ++i) client.Append({"GET", "k"});
  client.Append({"SET", "k", "small"});
  client.Append({"GET", "k"});
  for (int i = 0; i < 40; ++i) ASSERT_EQ(client.Next().size(), value.size());
  EXPECT_EQ(client.Next(), "OK");
  EXPECT_EQ(client.Next(), "small");
  // What was taken is not counted any more, a moment later.
  for (int i = 0; i < 10'000 && server_.CountLoad().value_bytes > 0; ++i) usleep(1000);
  EXPECT_EQ(server_.CountLoad().value_bytes, 0u);
}

// While a command waits for room nobody reads it, so its time begins when it has that.
TEST_P(RespServerTest, WhoWaitedForRoomHasAsMuchTimeAsOthers) {
  constexpr Duration kTimeout = std::chrono::seconds(1);
  Server server(runtime_, {.frame_timeout = kTimeout, .value_bytes = kMaxValueBytes});
  const Result<uint16_t> port = server.ListenResp("127.0.0.1", 0, service_, {});
  ASSERT_OK(port);
  const auto wait = [this](Duration duration) {
    for (const Time begun = runtime_.Now(); runtime_.Now() < begun + duration;) {
      std::this_thread::yield();
    }
  };
  const std::string begun = fmt::format("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\nv", kMaxValueBytes);
  RedisClient stalled(*port);
  stalled.LogIn().SendRaw(begun);
  wait(3 * kTimeout / 10);
  RedisClient known(*port);
  known.LogIn().SendRaw(begun);
  while (server.CountLoad().waiting == 0) std::this_thread::yield();
  stalled.Next();  // it is given up
  wait(5 * kTimeout / 10);
  known.SendRaw(std::string(kMaxValueBytes - 1, 'v') + "\r\n");
  EXPECT_EQ(known.Next(), "OK");
}

TEST_P(RespServerTest, ManyClientsAtOnceDoNotLoseACount) {
  constexpr int kClients = 8;
  constexpr int kEach = 200;
  std::vector<std::future<void>> all;
  for (int i = 0; i < kClients; ++i) {
    all.push_back(std::async(std::launch::async, [&, i] {
      RedisClient client(port_);
      client.LogIn();
      for (int j = 0; j < kEach; ++j) {
        client.Append({"INCR", "shared"});
        client.Append({"SET", fmt::format("own{}", i), std::to_string(j)});
        client.Append({"GET", fmt::format("own{}", i)});
        EXPECT_EQ(client.Next().find("(error)"), std::string::npos);
        EXPECT_EQ(client.Next(), "OK");
        EXPECT_EQ(client.Next(), std::to_string(j));
      }
    }));
  }
  for (auto& each : all) each.get();
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("GET shared"), std::to_string(kClients * kEach));
}

TEST_P(RespServerTest, EveryoneMayDoWhatHisRightsSay) {
  RedisClient owner(port_);
  owner.LogIn();
  owner("MSET a 1 aa 2 b 3");
  RedisClient reader(port_);
  EXPECT_EQ(reader("AUTH 2 reader"), "OK");
  EXPECT_EQ(reader("GET a"), "1");
  EXPECT_THAT(reader("GET b"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(reader("SET a 1"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(reader("SET a 1 GET"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(reader("DEL a"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(reader("INFO"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(reader("FLUSHALL"), StartsWith("(error) NOPERM"));
  EXPECT_EQ(reader("KEYS *"), "[a aa]") << "of others it does not hear";
  EXPECT_EQ(reader("DBSIZE"), "2");
  RedisClient elsewhere(port_);
  EXPECT_EQ(elsewhere("AUTH 3 elsewhere"), "OK");
  EXPECT_THAT(elsewhere("GET a"), StartsWith("(error) NOPERM"));
  EXPECT_THAT(elsewhere("KEYS *"), StartsWith("(error) NOPERM"));
  EXPECT_EQ(owner("MGET a aa b"), "[1 2 3]");
}

TEST_P(RespServerTest, WhoseKeyIsTakenBackIsOut) {
  RedisClient reader(port_);
  EXPECT_EQ(reader("AUTH 2 reader"), "OK");
  EXPECT_EQ(reader("GET a"), "(nil)");
  RightsById changed = Identities();
  changed.at(2).key = "another";
  security_.Configure(changed);
  EXPECT_THAT(reader("GET a"), StartsWith("(error) NOAUTH"));
  EXPECT_EQ(reader("AUTH 2 another"), "OK");
  changed.at(2).scopes[0].value = "resp/b";
  security_.Configure(changed);
  EXPECT_THAT(reader("GET a"), StartsWith("(error) NOPERM")) << "rights count from the next one on";
}

TEST_P(RespServerTest, ALockedDeviceTellsNothing) {
  EXPECT_OK(security_.ChangeLockPin("", "pin"));
  RedisClient client(port_);
  client.LogIn();
  EXPECT_OK(security_.Lock("pin"));
  EXPECT_THAT(client("GET a"), HasSubstr("locked"));
  EXPECT_THAT(client("SET a 1"), HasSubstr("locked"));
  EXPECT_OK(security_.Unlock("pin"));
  EXPECT_EQ(client("GET a"), "(nil)");
}

// What a Kinetic client finds, and leaves.
TEST_P(RespServerTest, KeysAreRecordsBelowAPrefix) {
  RedisClient client(port_);
  client.LogIn();
  client("SET k value");
  const auto record = engine_.Get("resp/k");
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "value");
  EXPECT_EQ(record->head.algorithm, 4) << "with a CRC32C";
  EXPECT_EQ(record->head.tag.size(), 4u);
  StoredRecord theirs;
  theirs.value = SharedBytes(std::string("theirs"));
  EXPECT_OK(engine_.Put("resp/t", theirs, Expected::Any()));
  EXPECT_OK(engine_.Put("register", theirs, Expected::Any()));
  EXPECT_EQ(client("GET t"), "theirs");
  EXPECT_EQ(client("APPEND t x"), "7");
  EXPECT_EQ(client("KEYS *"), "[k t]");
  EXPECT_EQ(client("FLUSHALL"), "OK");
  EXPECT_OK(engine_.Get("register"));
  EXPECT_EQ(client(Words{"SET", std::string(kMaxRespKeyBytes, 'k'), "v"}), "OK");
  EXPECT_THAT(client(Words{"SET", std::string(kMaxRespKeyBytes + 1, 'k'), "v"}),
              HasSubstr("the limit is 4091"));
  EXPECT_THAT(client(Words{"GET", std::string(kMaxRespKeyBytes + 1, 'k')}),
              HasSubstr("the limit is 4091"));
}

TEST_P(RespServerTest, AFullDriveSaysSo) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("SET k 1"), "OK");
  store_->is_full = true;
  EXPECT_EQ(client("SET k 2"), "(error) OOM no room");
  EXPECT_THAT(client("SET n 2 NX"), StartsWith("(error) OOM"));
  EXPECT_THAT(client("MSET a 1 b 2"), StartsWith("(error) OOM"));
  EXPECT_EQ(client("MULTI"), "OK");
  EXPECT_EQ(client("SET k 2"), "QUEUED");
  EXPECT_EQ(client("SET l 2"), "QUEUED");
  EXPECT_THAT(client("EXEC"), StartsWith("(error) OOM"));
  EXPECT_EQ(client("MGET k l a"), "[1 (nil) (nil)]");
  store_->is_full = false;
  EXPECT_EQ(client("SET k 2"), "OK");
}

TEST_P(RespServerTest, WaitAofFlushes) {
  RedisClient client(port_);
  client.LogIn();
  client("SET k 1");
  const int before = store_->flushes;
  EXPECT_EQ(client("WAITAOF 0 0 0"), "[0 0]");
  EXPECT_EQ(store_->flushes, before);
  EXPECT_EQ(client("WAITAOF 1 0 0"), "[1 0]");
  EXPECT_EQ(store_->flushes, before + 1);
  store_->flush_fails = true;
  EXPECT_EQ(client("WAITAOF 1 0 0"), "(error) ERR the disk has failed");
  EXPECT_THAT(client("WAITAOF 2 0 0"), StartsWith("(error)"));
}

TEST_P(RespServerTest, WhereItIsToBeSafeNothingIsAnsweredBefore) {
  Server server(runtime_, {});
  const auto port = server.ListenResp("127.0.0.1", 0, service_, {.write_through = true});
  ASSERT_OK(port);
  RedisClient client(*port);
  client.LogIn();
  EXPECT_EQ(client("GET k"), "(nil)");
  EXPECT_EQ(store_->flushes, 0) << "reading needs none";
  EXPECT_EQ(client("SET k 1"), "OK");
  EXPECT_EQ(store_->flushes, 1);
  EXPECT_EQ(client("INCR k"), "2");
  EXPECT_EQ(store_->flushes, 2);
  EXPECT_EQ(client("SETNX k 1"), "0");
  EXPECT_EQ(store_->flushes, 2) << "nothing was changed";
  std::string together;
  for (int i = 0; i < 100; ++i) together += fmt::format("SET k{} v\r\n", i);
  client.SendRaw(together);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.Next(), "OK");
  EXPECT_LT(store_->flushes, 60) << "what came together is flushed together";
  EXPECT_THAT(client("CONFIG GET appendfsync"), HasSubstr("always"));
  store_->flush_fails = true;
  EXPECT_THAT(client("SET k 3"), StartsWith("(gone)")) << "nobody knows what is there";
  // Whatever comes behind it.
  for (const size_t others : {1, 100, 200, 1000}) {
    SCOPED_TRACE(others);
    RedisClient pipelined(*port);
    pipelined.LogIn();
    std::string bytes = "SET k 3\r\n";
    for (size_t i = 0; i < others; ++i) bytes += i % 2 == 0 ? "PING\r\n" : "GET k1\r\n";
    pipelined.SendRaw(bytes);
    EXPECT_EQ(pipelined.Next(), "(gone)");
  }
  RedisClient again(*port);
  again.LogIn();
  EXPECT_EQ(again("GET k1"), "v") << "reads go on";
}

// What the device says to bytes that no client sends, until it hangs up.
std::string Heard(uint16_t port, std::string_view bytes) {
  WireClient client(port);
  client.Send(bytes);
  std::string all;
  for (std::string next; !(next = client.Receive(1)).empty();) all += next;
  return all;
}

constexpr std::string_view kLogIn = "*3\r\n$4\r\nAUTH\r\n$1\r\n1\r\n$8\r\nasdfasdf\r\n";

TEST_P(RespServerTest, WhatIsNotTheProtocolEndsTheConnection) {
  const std::string in(kLogIn);
  EXPECT_EQ(Heard(port_, in + "*x\r\n"),
            "+OK\r\n-ERR Protocol error: invalid multibulk length\r\n");
  EXPECT_EQ(Heard(port_, in + "PING\r\n*1\r\n+OK\r\n"),
            "+OK\r\n+PONG\r\n-ERR Protocol error: expected '$', got '+'\r\n");
  EXPECT_EQ(Heard(port_, in + "SET k v\r\nGET k\r\n*1\r\n$-5\r\nPING\r\n"),
            "+OK\r\n+OK\r\n$1\r\nv\r\n-ERR Protocol error: invalid bulk length\r\n")
      << "what came before is answered";
  EXPECT_EQ(Heard(port_, in + "QUIT\r\nPING\r\n"), "+OK\r\n+OK\r\n");
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("PING"), "PONG") << "nobody else notices";
}

TEST_P(RespServerTest, StrangersCanSendLittle) {
  EXPECT_THAT(Heard(port_, "*11\r\n"), HasSubstr("invalid multibulk length"));
  EXPECT_THAT(Heard(port_, "*2\r\n$3\r\nGET\r\n$16385\r\n"), HasSubstr("invalid bulk length"));
  // In the same packet behind what makes him known he may send more.
  const std::string value(30'000, 'v');
  EXPECT_EQ(
      Heard(port_, std::string(kLogIn) + fmt::format("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$30000\r\n{}"
                                                     "\r\nSTRLEN k\r\nQUIT\r\n",
                                                     value)),
      "+OK\r\n+OK\r\n:30000\r\n+OK\r\n");
}

// The client may have no more to say, and still want to hear.
TEST_P(RespServerTest, HalfACommandIsNotWaitedForForEver) {
  EXPECT_EQ(Heard(port_, "*2\r\n$3\r\nGE"), "");
  EXPECT_EQ(Heard(port_, std::string(kLogIn) + "*2\r\n$3\r\nGE"), "+OK\r\n");
}

// Nor by one who sends a byte now and then.
TEST_P(RespServerTest, ACommandComesInTime) {
  WireClient client(port_);
  client.Send(kLogIn);
  EXPECT_EQ(client.Receive(5), "+OK\r\n");
  client.Send("*2\r\n$1000\r\n");
  int sent = 0;
  for (; sent < 100 && client.Send("x"); ++sent) usleep(100'000);
  EXPECT_LT(sent, 60) << "the limit is a second, looked at each second";
}

TEST_P(RespServerTest, NoPageInABrowserCanUseIt) {
  EXPECT_EQ(Heard(port_,
                  "POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nContent-Length: 60\r\n\r\n"
                  "AUTH 1 asdfasdf\r\nSET pwned yes\r\n"),
            "");
  EXPECT_EQ(engine_.Get("resp/pwned").error().code(), ENOENT);
}

TEST_P(RespServerTest, NobodyTriesKeysForLong) {
  RedisClient client(port_);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(client("AUTH 1 guess"), StartsWith("(error) WRONGPASS"));
  EXPECT_EQ(client("AUTH 1 asdfasdf"), "(gone)");
}

TEST_P(RespServerTest, OneConnectionTooManyHearsWhy) {
  Server server(runtime_, {.places = {.connections = 1}});
  const auto port = server.ListenResp("127.0.0.1", 0, service_, {});
  ASSERT_OK(port);
  RedisClient client(*port);
  client.LogIn();
  EXPECT_THAT(Heard(*port, ""), AllOf(StartsWith("-ERR "), testing::EndsWith("\r\n")));
  EXPECT_EQ(client("PING"), "PONG");
}

TEST_P(RespServerTest, WhoUsesTheDeviceIsKnown) {
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("CLIENT SETNAME me"), "OK");
  EXPECT_EQ(client("CLIENT GETNAME"), "me");
  EXPECT_THAT(client({"CLIENT", "SETNAME", "a b"}), HasSubstr("cannot contain"));
  EXPECT_EQ(client("CLIENT SETINFO LIB-NAME hiredis"), "OK");
  EXPECT_EQ(client("CLIENT SETINFO LIB-VER 1.0"), "OK");
  EXPECT_THAT(client("CLIENT LIST"), AllOf(HasSubstr("name=me"), HasSubstr("lib-name=hiredis")));
  const auto all = service_.clients().All();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]->introduction().program, "hiredis");
  EXPECT_EQ(all[0]->introduction().detail, "me");
  EXPECT_EQ(all[0]->identity(), 1);
}

TEST_P(RespServerTest, WhatIsDoneIsCountedAsOfKineticClients) {
  RedisClient client(port_);
  client.LogIn();
  client("SET k 12345");
  client("GET k");
  client("GET none");
  client("DEL k");
  const auto count = [&](kinetic::Header::MessageType type) {
    return service_.statistics().Of(type);
  };
  EXPECT_EQ(count(kinetic::Header::PUT).operations, 1u);
  EXPECT_EQ(count(kinetic::Header::PUT).value_bytes, 5u);
  EXPECT_EQ(count(kinetic::Header::GET).operations, 2u);
  EXPECT_EQ(count(kinetic::Header::DELETE).operations, 1u);
  EXPECT_THAT(client("INFO stats"), HasSubstr("total_commands_processed:"));
  EXPECT_THAT(client("INFO"), AllOf(HasSubstr("# Server"), HasSubstr("redis_mode:standalone"),
                                    HasSubstr("serial_number:SN1")));
}

TEST_P(RespServerTest, ClientsLearnWhichCommandsThereAre) {
  RedisClient client(port_);
  client.LogIn();
  const std::string count = client("COMMAND COUNT");
  EXPECT_GT(std::stoi(count), 50);
  EXPECT_EQ(client("COMMAND INFO get nothing"), "[[get 2 [readonly] 1 1 1] (nil)]");
  EXPECT_THAT(client("COMMAND LIST"), HasSubstr(" waitaof"));
  EXPECT_EQ(client("SELECT 0"), "OK");
  EXPECT_THAT(client("SELECT 1"), HasSubstr("out of range"));
  EXPECT_EQ(client("ECHO x"), "x");
  EXPECT_EQ(client("WAIT 1 0"), "0");
  EXPECT_THAT(client("CONFIG SET save x"), HasSubstr("pinstriped.toml"));
  EXPECT_EQ(client("CONFIG GET s*"), "[save ]");
  EXPECT_EQ(client("EVAL"), "(error) ERR unknown command 'EVAL'");
  EXPECT_EQ(client("RESET"), "RESET");
  EXPECT_THAT(client("PING"), StartsWith("(error) NOAUTH"));
}

// Whatever is thrown at it, it goes on.
TEST_P(RespServerTest, NoBytesHarmIt) {
  const std::vector<std::string> pieces = {std::string(kLogIn),
                                           "*1\r\n",
                                           "*3\r\n",
                                           "$3\r\nSET\r\n",
                                           "$1\r\nk\r\n",
                                           "$0\r\n\r\n",
                                           "\r\n",
                                           "GET k\r\n",
                                           "SET k \"",
                                           "\0",
                                           "$1048576\r\n",
                                           "SCAN 0 MATCH [^\r\n",
                                           "HELLO 3 AUTH 1 asdfasdf\r\n",
                                           "ZRANGE pinstripe:keys - + BYLEX LIMIT -1 -1\r\n",
                                           "HSET k a b\r\n",
                                           "GETRANGE k -1 -9\r\n"};
  std::mt19937 chance(7);
  for (int round = 0; round < 300; ++round) {
    WireClient client(port_);
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += pieces[chance() % pieces.size()];
    if (chance() % 2 == 0) bytes[chance() % bytes.size()] = static_cast<char>(chance());
    client.Send(bytes);
  }
  RedisClient client(port_);
  client.LogIn();
  EXPECT_EQ(client("PING"), "PONG");
  EXPECT_EQ(client("FLUSHALL"), "OK");
}

}  // namespace
}  // namespace pinstripe
