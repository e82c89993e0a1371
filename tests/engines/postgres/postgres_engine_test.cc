// PostgresEngine against a real server: what engines/engine.h promises of a batch, a list and the
// cluster version.

#include "engines/postgres/postgres_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/log.h"
#include "tests/engines/postgres/engine_client.h"
#include "tests/support/postgres_server.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string AllBytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

// One server for all of them; each has a cluster of its own.
class PostgresEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogLevel(LogLevel::kError);
    server_ = std::make_unique<PostgresServer>();
  }
  static void TearDownTestSuite() {
    server_.reset();
    SetLogLevel(LogLevel::kInfo);
  }

  static std::string Cluster() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.substr(0, 32);
  }

  std::vector<std::string> KeysOf(EngineRange range) {
    const Result<RangeRecords> list = client_.List(std::move(range));
    EXPECT_OK(list);
    std::vector<std::string> keys;
    for (const RangeRecord& each : list.value_or(RangeRecords()).records) keys.push_back(each.key);
    return keys;
  }
  static std::unique_ptr<PostgresServer> server_;
  EngineClient client_{EngineClient::OptionsFor(server_->connection(), Cluster())};
  const std::string store_ = client_.WaitUntilReached();
};
std::unique_ptr<PostgresServer> PostgresEngineTest::server_;

TEST_F(PostgresEngineTest, GivesBackWhatWasPut) {
  EXPECT_EQ(store_.size(), 16u);
  const std::string large(kMaxValueBytes, 'v');
  for (const std::string& value : {std::string(), std::string("v"), AllBytes(), large}) {
    for (const std::string& version :
         {std::string(), std::string("1"), std::string(kMaxVersionBytes, '\xff')}) {
      ASSERT_OK(client_.Change(
          {.key = "key", .put = RecordOf(value, version, AllBytes().substr(0, 128))}));
      const Result<Record> record = client_.Get("key");
      ASSERT_OK(record);
      EXPECT_EQ(record->value.text(), value);
      EXPECT_EQ(record->version, version);
      EXPECT_EQ(record->tag, AllBytes().substr(0, 128));
    }
  }
  ASSERT_OK(client_.Remove("key"));
  EXPECT_FAILS(client_.Get("key"), ENOENT);
}

// A B-tree of PostgreSQL has no room for the longest keys, where they do not compress.
TEST_F(PostgresEngineTest, TakesAnyBytesForAKeyUpToTheLimit) {
  std::string longest;
  for (uint32_t state = 1; longest.size() < kMaxKeyBytes;) {
    state = state * 1664525 + 1013904223;
    longest.push_back(static_cast<char>(state >> 24));
  }
  std::string other = longest;
  other.back() = static_cast<char>(other.back() + 1);
  const std::string head = longest.substr(0, 2000);
  std::vector<std::string> keys = {AllBytes(),
                                   std::string(1, '\0'),
                                   longest,
                                   other,
                                   head,
                                   longest.substr(0, 2001),
                                   std::string(kMaxKeyBytes, '\xff')};
  for (const std::string& key : keys) {
    ASSERT_OK(client_.Put(key, key, "1", Expected::Absent()));
    EXPECT_EQ(client_.Get(key)->value.text(), key);
  }
  for (const std::string& key : keys) {
    EXPECT_FAILS(client_.Put(key, "", "2", Expected::Absent()), ESTALE);
    EXPECT_OK(
        client_.Put(key, key, "2", Expected::Version("1"), Guard{"none", Expected::Absent()}));
  }
  EXPECT_OK(client_.Put("key", "", "1", Expected::Any(), Guard{longest, Expected::Version("2")}));
  EXPECT_FAILS(client_.Put("key", "", "1", Expected::Any(), Guard{other, Expected::Version("1")}),
               ECANCELED);
  ASSERT_OK(client_.Remove("key"));
  std::ranges::sort(keys);
  EXPECT_EQ(KeysOf({.first = "", .last = std::string(kMaxKeyBytes, '\xff'), .max = 100}), keys);
  EXPECT_THAT(KeysOf({.first = head, .last = other, .max = 100}), testing::Contains(longest));
  EXPECT_EQ(KeysOf({.first = longest, .last = longest, .max = 100}), std::vector{longest});
  std::ranges::reverse(keys);
  EXPECT_EQ(
      KeysOf({.first = "", .last = std::string(kMaxKeyBytes, '\xff'), .max = 100, .reverse = true}),
      keys);
  for (const std::string& key : keys) EXPECT_OK(client_.Remove(key, Expected::Version("2")));
  longest.push_back('x');
  EXPECT_FAILS(client_.Put(longest, "", ""), EINVAL);
  EXPECT_FAILS(client_.Put("", "", ""), EINVAL);
  EXPECT_FAILS(client_.Get(longest), EINVAL);
}

// One that is not there, and one with the empty version, are as expected alike.
TEST_F(PostgresEngineTest, ChangesARecordOnlyWhereItHasTheExpectedVersion) {
  EXPECT_FAILS(client_.Put("key", "v", "1", Expected::Version("0")), ESTALE);
  EXPECT_OK(client_.Put("key", "v", "1", Expected::Absent()));
  EXPECT_FAILS(client_.Put("key", "w", "2", Expected::Absent()), ESTALE);
  EXPECT_FAILS(client_.Put("key", "w", "2", Expected::Version("2")), ESTALE);
  EXPECT_EQ(client_.Get("key")->value.text(), "v");
  EXPECT_OK(client_.Put("key", "w", "", Expected::Version("1")));
  EXPECT_OK(client_.Put("key", "x", "3", Expected::Absent()));
  EXPECT_OK(client_.Put("key", "y", "4"));
  EXPECT_EQ(client_.Get("key")->value.text(), "y");
  EXPECT_OK(client_.Put("other", "z", "1"));
}

TEST_F(PostgresEngineTest, RemovesByTheSameRules) {
  EXPECT_FAILS(client_.Remove("key", Expected::Version("1")), ENOENT);
  EXPECT_FAILS(client_.Remove("key", Expected::Absent()), ENOENT);
  EXPECT_OK(client_.Remove("key"));
  ASSERT_OK(client_.Put("key", "v", "1"));
  EXPECT_FAILS(client_.Remove("key", Expected::Version("2")), ESTALE);
  EXPECT_FAILS(client_.Remove("key", Expected::Absent()), ESTALE);
  EXPECT_OK(client_.Remove("key", Expected::Version("1")));
  EXPECT_FAILS(client_.Get("key"), ENOENT);
}

TEST_F(PostgresEngineTest, AGuardMustHaveItsVersion) {
  const Guard absent{"guard", Expected::Absent()};
  const Guard first{"guard", Expected::Version("1")};
  EXPECT_OK(client_.Put("key", "v", "1", Expected::Any(), absent));
  EXPECT_FAILS(client_.Put("key", "v", "2", Expected::Any(), first), ECANCELED);
  ASSERT_OK(client_.Put("guard", "g", "1"));
  EXPECT_FAILS(client_.Put("key", "v", "2", Expected::Version("1"), absent), ECANCELED);
  EXPECT_FAILS(client_.Put("key", "v", "2", Expected::Version("7"), absent), ESTALE);
  EXPECT_FAILS(client_.Put("none", "v", "2", Expected::Version("7"), absent), ESTALE);
  EXPECT_EQ(client_.Get("key")->version, "1");
  EXPECT_OK(client_.Put("key", "v", "2", Expected::Version("1"), first));
  const auto remove = [&](std::string key, Expected expected, Guard guard) {
    return client_.Change(
        {.key = std::move(key), .expected = std::move(expected), .guard = std::move(guard)});
  };
  EXPECT_FAILS(remove("key", Expected::Version("2"), absent), ECANCELED);
  EXPECT_FAILS(remove("key", Expected::Version("1"), absent), ESTALE);
  EXPECT_FAILS(remove("none", Expected::Version("1"), absent), ENOENT);
  EXPECT_OK(remove("key", Expected::Version("2"), first));
  EXPECT_FAILS(client_.Put("key", "v", "2", Expected::Any(), Guard{"key", Expected::Absent()}),
               EINVAL);
}

TEST_F(PostgresEngineTest, ABatchIsDoneInItsOrderAndEachHasItsAnswer) {
  EngineBatch batch;
  batch.changes = {
      {.key = "a", .put = RecordOf("1", "1"), .expected = Expected::Absent()},
      {.key = "a", .put = RecordOf("x", "x"), .expected = Expected::Absent()},
      {.key = "a", .put = RecordOf("2", "2"), .expected = Expected::Version("1")},
      {.key = "b", .put = RecordOf("1", "1"), .guard = Guard{"a", Expected::Version("2")}},
      {.key = "c", .put = RecordOf("1", "1"), .guard = Guard{"a", Expected::Version("1")}},
      {.key = "d", .expected = Expected::Version("1")},
      {.key = "b"},
      {.key = "e", .put = RecordOf("1", "1"), .guard = Guard{"b", Expected::Absent()}}};
  batch.reads = {"e", "none", "a", "b", "a"};
  const Result<EngineAnswer> answer = client_.Do(std::move(batch));
  ASSERT_OK(answer);
  std::vector<int> codes;
  for (const Status& each : answer->changes) codes.push_back(each.code());
  EXPECT_THAT(codes, ElementsAre(0, ESTALE, 0, 0, ECANCELED, ENOENT, 0, 0));
  ASSERT_EQ(answer->reads.size(), 5u);
  EXPECT_EQ(answer->reads[0]->value.text(), "1");
  EXPECT_FAILS(answer->reads[1], ENOENT);
  EXPECT_EQ(answer->reads[2]->value.text(), "2");
  EXPECT_FAILS(answer->reads[3], ENOENT);
  EXPECT_EQ(answer->reads[4]->version, "2");
}

TEST_F(PostgresEngineTest, TakesTheLargestBatchAndNoLargerOne) {
  EngineBatch batch;
  for (size_t i = 0; i < kMaxEngineBatch / 2; ++i) {
    batch.changes.push_back(
        {.key = std::to_string(i), .put = RecordOf(std::string(128 << 10, 'v'), "1")});
    batch.reads.push_back(std::to_string(i));
  }
  const Result<EngineAnswer> answer = client_.Do(batch);
  ASSERT_OK(answer);
  for (const Status& each : answer->changes) EXPECT_OK(each);
  for (const auto& each : answer->reads) EXPECT_EQ(each->value.size(), 128u << 10);
  batch.reads.emplace_back("one more");
  EXPECT_FAILS(client_.Do(std::move(batch)), EINVAL);
  const Result<EngineAnswer> nothing = client_.Do({});
  ASSERT_OK(nothing);
  EXPECT_THAT(nothing->changes, IsEmpty());
  EXPECT_THAT(nothing->reads, IsEmpty());
}

TEST_F(PostgresEngineTest, ListsARangeBothWays) {
  const std::string zero("a\0", 2);
  for (const std::string& key :
       {std::string("a"), zero, std::string("ab"), std::string("b"), std::string("\xff")}) {
    ASSERT_OK(client_.Put(key, "value", "v" + key));
  }
  EXPECT_THAT(KeysOf({.first = "", .last = "\xff", .max = 10}),
              ElementsAre("a", zero, "ab", "b", "\xff"));
  EXPECT_THAT(KeysOf({.first = "a", .last = "ab", .max = 10}), ElementsAre("a", zero, "ab"));
  EXPECT_THAT(KeysOf({.first = "aa", .last = "c", .max = 10}), ElementsAre("ab", "b"));
  EXPECT_THAT(KeysOf({.first = "", .last = "\xff", .max = 2}), ElementsAre("a", zero));
  EXPECT_THAT(KeysOf({.first = "", .last = "\xff", .max = 2, .reverse = true}),
              ElementsAre("\xff", "b"));
  EXPECT_THAT(KeysOf({.first = "c", .last = "a", .max = 2}), IsEmpty());
  EXPECT_THAT(KeysOf({.first = "c", .last = "d", .max = 2}), IsEmpty());
  const Result<RangeRecords> some =
      client_.List({.first = "", .last = "\xff", .max = 5, .value_limit = 5});
  ASSERT_OK(some);
  EXPECT_FALSE(some->more);
  EXPECT_TRUE(some->records[0].has_value);
  EXPECT_EQ(some->records[0].record.value.text(), "value");
  EXPECT_EQ(some->records[0].record.version, "va");
  const Result<RangeRecords> less =
      client_.List({.first = "", .last = "\xff", .max = 4, .value_limit = 4});
  ASSERT_OK(less);
  EXPECT_TRUE(less->more);
  EXPECT_EQ(less->records.size(), 4u);
  EXPECT_FALSE(less->records[0].has_value);
  EXPECT_FAILS(client_.List({.first = "", .last = "", .max = 0}), EINVAL);
}

TEST_F(PostgresEngineTest, APageEndsBeforeItIsTooLarge) {
  constexpr int kRecords = 60;
  for (int i = 0; i < kRecords; ++i) {
    ASSERT_OK(client_.Put(fmt::format("{:03}", i), std::string(128 << 10, 'v'), "1"));
  }
  for (const bool reverse : {false, true}) {
    int found = 0;
    int pages = 0;
    std::string first;
    std::string last = "\xff";
    for (bool more = true; more; ++pages) {
      const Result<RangeRecords> page = client_.List(
          {.first = first, .last = last, .max = 4096, .reverse = reverse, .value_limit = 1 << 20});
      ASSERT_OK(page);
      ASSERT_FALSE(page->records.empty());
      EXPECT_LE(page->records.size(), 33u);
      found += static_cast<int>(page->records.size());
      more = page->more;
      (reverse ? last : first) = page->records.back().key + (reverse ? "" : std::string(1, '\0'));
      if (reverse) last.back() = static_cast<char>(last.back() - 1), last += "\xff";
    }
    EXPECT_EQ(found, kRecords);
    EXPECT_GE(pages, 2);
  }
  const Result<RangeRecords> heads = client_.List({.first = "", .last = "\xff", .max = 4096});
  EXPECT_EQ(heads->records.size(), static_cast<size_t>(kRecords));
  EXPECT_FALSE(heads->more);
}

TEST_F(PostgresEngineTest, WhoKnowsAnEarlierClusterVersionIsRefused) {
  const auto under = [&](int64_t version) { return Terms(client_.Soon(), version); };
  EXPECT_OK(client_.Change({.key = "key", .put = RecordOf("v", "1")}, under(0)));
  EXPECT_OK(client_.Change({.key = "key", .put = RecordOf("v", "2")}, under(7)));
  const Status refused = client_.Change({.key = "key", .put = RecordOf("v", "3")}, under(6));
  EXPECT_FAILS(refused, EREMCHG);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cluster version 7"));
  EXPECT_FAILS(client_.Get("key", under(6)), EREMCHG);
  EXPECT_EQ(client_.Get("key", under(7))->version, "2");
  // One that only reads raises it, too.
  EXPECT_OK(client_.Get("key", under(8)));
  EXPECT_FAILS(client_.Get("key", under(7)), EREMCHG);
  EngineBatch nothing;
  EXPECT_OK(client_.Do(nothing, under(9)));
  EXPECT_FAILS(client_.Do(nothing, under(8)), EREMCHG);
  const auto list = EngineClient::Await<Result<RangeRecords>>([&](Callback<RangeRecords> done) {
    client_.engine().List({.first = "", .last = "\xff", .max = 1}, under(10), std::move(done));
  });
  ASSERT_OK(list);
  EXPECT_EQ(list->records.size(), 1u);
  EXPECT_FAILS(client_.Get("key", under(9)), EREMCHG);
  ASSERT_OK(client_.SetClusterVersion(3));
  EXPECT_OK(client_.Get("key", under(3)));
  EXPECT_FAILS(client_.Get("key", under(2)), EREMCHG);
  ASSERT_OK(client_.SetClusterVersion(-5));
  EXPECT_OK(client_.Get("key", under(-5)));
  EXPECT_EQ(client_.reached(), 1);
}

TEST_F(PostgresEngineTest, ARecordThatWasSpoiledIsDamaged) {
  ASSERT_OK(client_.Put("key", "value", "1"));
  ASSERT_OK(client_.Put("other", "value", "1"));
  server_->Run(
      fmt::format("UPDATE pinstripe_{}.records SET value = 'valve' WHERE key = 'key'", Cluster()));
  EXPECT_FAILS(client_.Get("key"), EBADMSG);
  EngineBatch batch;
  batch.reads = {"key", "other"};
  const Result<EngineAnswer> both = client_.Do(std::move(batch));
  ASSERT_OK(both);
  EXPECT_FAILS(both->reads[0], EBADMSG);
  EXPECT_OK(both->reads[1]);
  const Result<RangeRecords> list =
      client_.List({.first = "", .last = "\xff", .max = 5, .value_limit = 100});
  ASSERT_OK(list);
  EXPECT_TRUE(list->records[0].damaged);
  EXPECT_FALSE(list->records[1].damaged);
  EXPECT_OK(client_.Put("key", "value", "2", Expected::Version("1")));
  EXPECT_OK(client_.Get("key"));
}

TEST_F(PostgresEngineTest, KeepsClustersApart) {
  ASSERT_OK(client_.Put("key", "v", "1"));
  EngineClient other(EngineClient::OptionsFor(server_->connection(), "other-cluster_1.x"));
  EXPECT_NE(other.WaitUntilReached(), store_);
  EXPECT_FAILS(other.Get("key"), ENOENT);
  EXPECT_EQ(server_->Run("SELECT cluster FROM pinstripe_other_2dcluster__1_2ex.store"),
            "other-cluster_1.x\n");
}

TEST_F(PostgresEngineTest, TellsWhatItIs) {
  const Result<EngineState> state = client_.LookAt();
  ASSERT_OK(state);
  EXPECT_EQ(state->software + "\n", "PostgreSQL " + server_->Run("SHOW server_version"));
  EXPECT_GT(state->used_bytes, 1u << 20);
  EXPECT_THAT(state->alarms, IsEmpty());
  EXPECT_THAT(state->warnings, IsEmpty());
  ASSERT_EQ(state->members.size(), 1u);
  EXPECT_TRUE(state->members[0].is_up);
  EXPECT_TRUE(state->members[0].is_leader);
  EXPECT_EQ(state->members[0].name, fmt::format("127.0.0.1:{}", server_->port()));
  EXPECT_EQ(state->members[0].address, "127.0.0.1");
}

// Everything that is asked is answered before it is gone.
TEST_F(PostgresEngineTest, AnswersWhatIsOutstandingWhenItIsDestroyed) {
  constexpr int kAsked = 300;
  int answers = 0;
  {
    EngineClient client(EngineClient::OptionsFor(server_->connection(), Cluster()));
    client.WaitUntilReached();
    for (int i = 0; i < kAsked; ++i) {
      EngineBatch batch;
      batch.changes.push_back({.key = std::to_string(i), .put = RecordOf("v", "1")});
      client.engine().Do(std::move(batch), client.Soon(), [&](const Result<EngineAnswer>& answer) {
        EXPECT_TRUE(answer.has_value() || answer.error().code() == EHOSTUNREACH);
        ++answers;
      });
    }
  }
  EXPECT_EQ(answers, kAsked);
}

}  // namespace
}  // namespace pinstripe
