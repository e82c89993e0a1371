// Many who change the same records of a PostgreSQL at once, from several processes as far as the
// server can tell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/log.h"
#include "tests/engines/postgres/engine_client.h"
#include "tests/support/postgres_server.h"

namespace pinstripe {
namespace {

class PostgresRacesTest : public testing::Test {
 protected:
  PostgresRacesTest() { SetLogLevel(LogLevel::kError); }
  ~PostgresRacesTest() override { SetLogLevel(LogLevel::kInfo); }

  PostgresServer server_;
  EngineClient one_{server_.connection()};
  EngineClient two_{server_.connection()};
};

// All begin at the same moment, where nothing is there yet.
TEST_F(PostgresRacesTest, OneStoreIsMadeWhoeverComesFirst) {
  std::vector<std::unique_ptr<EngineClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(
        std::make_unique<EngineClient>(EngineClient::OptionsFor(server_.connection(), "another")));
  }
  const std::string store = clients[0]->WaitUntilReached();
  for (const auto& client : clients) EXPECT_EQ(client->WaitUntilReached(), store);
}

TEST_F(PostgresRacesTest, ACounterLosesNoIncrement) {
  one_.WaitUntilReached();
  two_.WaitUntilReached();
  ASSERT_OK(one_.Put("counter", "", "0", Expected::Absent()));
  constexpr int kThreads = 8;
  constexpr int kEach = 40;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EngineClient& client = i % 2 == 0 ? one_ : two_;
      for (int done = 0; done < kEach;) {
        const Result<Record> record = client.Get("counter");
        ASSERT_OK(record);
        const int next = std::stoi(record->version) + 1;
        const Status put =
            client.Put("counter", "", std::to_string(next), Expected::Version(record->version));
        ASSERT_TRUE(put.ok() || put.code() == ESTALE) << put.message();
        done += put.ok() ? 1 : 0;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(one_.Get("counter")->version, std::to_string(kThreads * kEach));
}

TEST_F(PostgresRacesTest, OneOfThoseWhoMakeARecordWins) {
  one_.WaitUntilReached();
  two_.WaitUntilReached();
  for (int round = 0; round < 40; ++round) {
    std::atomic<int> winners = 0;
    std::atomic<int> answers = 0;
    constexpr int kMakers = 12;
    for (int i = 0; i < kMakers; ++i) {
      EngineClient& client = i % 2 == 0 ? one_ : two_;
      EngineBatch batch;
      batch.changes.push_back({.key = std::to_string(round),
                               .put = RecordOf(std::to_string(i), std::to_string(i + 1)),
                               .expected = Expected::Absent()});
      client.engine().Do(std::move(batch), client.Soon(), [&](const Result<EngineAnswer>& answer) {
        EXPECT_OK(answer);
        const int code = answer ? answer->changes[0].code() : 0;
        EXPECT_TRUE(code == 0 || code == ESTALE) << code;
        winners += code == 0 ? 1 : 0;
        ++answers;
      });
    }
    while (answers < kMakers) std::this_thread::yield();
    ASSERT_EQ(winners, 1);
  }
}

// Batches with many keys in any order, and with guards that others change. The sum of both accounts
// stays what it was, and whoever reads both in one step sees it.
TEST_F(PostgresRacesTest, BatchesAreOneStepAndNeverDeadlock) {
  one_.WaitUntilReached();
  two_.WaitUntilReached();
  constexpr int kAccounts = 6;
  EngineBatch begin;
  for (int i = 0; i < kAccounts; ++i) {
    begin.changes.push_back({.key = std::to_string(i), .put = RecordOf("", "100")});
  }
  ASSERT_OK(one_.Do(begin));
  std::atomic<bool> ends = false;
  std::thread reader([&] {
    while (!ends) {
      EngineBatch all;
      for (int i = 0; i < kAccounts; ++i) all.reads.push_back(std::to_string(i));
      const Result<EngineAnswer> answer = two_.Do(std::move(all));
      ASSERT_OK(answer);
      int sum = 0;
      for (const auto& each : answer->reads) sum += std::stoi(each->version);
      ASSERT_EQ(sum, 100 * kAccounts);
    }
  });
  std::vector<std::thread> movers;
  for (int i = 0; i < 6; ++i) {
    movers.emplace_back([&, i] {
      EngineClient& client = i % 2 == 0 ? one_ : two_;
      for (int moved = 0, tries = 0; moved < 25; ++tries) {
        const std::string from = std::to_string((i + tries) % kAccounts);
        const std::string to = std::to_string((i + tries * 5 + 1) % kAccounts);
        if (from == to) continue;
        EngineBatch look;
        look.reads = {from, to};
        const Result<EngineAnswer> seen = client.Do(std::move(look));
        ASSERT_OK(seen);
        const std::string a = seen->reads[0]->version;
        const std::string b = seen->reads[1]->version;
        // The second is made only where the first was: it guards that.
        EngineBatch move;
        // No version comes twice.
        const std::string mine = fmt::format(" {}.{}", i, tries);
        const std::string less = std::to_string(std::stoi(a) - 1) + mine;
        const std::string more = std::to_string(std::stoi(b) + 1) + mine;
        move.changes = {{.key = from,
                         .put = RecordOf("", less),
                         .expected = Expected::Version(a),
                         .guard = Guard{to, Expected::Version(b)}},
                        {.key = to,
                         .put = RecordOf("", more),
                         .expected = Expected::Version(b),
                         .guard = Guard{from, Expected::Version(less)}}};
        move.reads = {from, to};
        const Result<EngineAnswer> answer = client.Do(std::move(move));
        ASSERT_OK(answer);
        ASSERT_EQ(answer->changes[0].ok(), answer->changes[1].ok());
        if (!answer->changes[0].ok()) continue;
        EXPECT_EQ(answer->reads[0]->version, less);
        EXPECT_EQ(answer->reads[1]->version, more);
        ++moved;
      }
    });
  }
  for (std::thread& each : movers) each.join();
  ends = true;
  reader.join();
  EXPECT_EQ(server_.Run("SELECT deadlocks FROM pg_stat_database WHERE datname = 'names'"), "0\n");
}

// What was done under a version is there before anybody has a later one: once a raise is answered,
// nothing under an earlier version is done any more.
TEST_F(PostgresRacesTest, NothingIsDoneUnderAnEarlierVersionOnceItWasRaised) {
  one_.WaitUntilReached();
  two_.WaitUntilReached();
  std::atomic<int64_t> raised = 0;  // that was answered
  std::atomic<bool> ends = false;
  std::atomic<int> done = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 6; ++i) {
    writers.emplace_back([&, i] {
      for (int n = 0; !ends; ++n) {
        const int64_t version = raised;
        const std::string key = fmt::format("{}.{}", i, n);
        const Status put = two_.Change({.key = key, .put = RecordOf("", std::to_string(version))},
                                       Terms(two_.Soon(), version));
        ASSERT_TRUE(put.ok() || put.code() == EREMCHG) << put.message();
        put.ok() ? ++done : ++refused;
        // Who begins now under an earlier one than was answered is refused.
        const int64_t now = raised;
        if (now == 0) continue;
        EXPECT_FAILS(
            two_.Change({.key = key, .put = RecordOf("", "x")}, Terms(two_.Soon(), now - 1)),
            EREMCHG);
        EXPECT_FAILS(two_.Get(key, Terms(two_.Soon(), now - 1)), EREMCHG);
      }
    });
  }
  for (int64_t version = 1; version <= 20; ++version) {
    const int enough = done + 3;
    while (done < enough) std::this_thread::yield();
    // All that is done under an earlier version is seen by whoever raises it, in the same step.
    EngineBatch raise;
    raise.changes.push_back({.key = "raised", .put = RecordOf("", std::to_string(version))});
    ASSERT_OK(one_.Do(std::move(raise), Terms(one_.Soon(), version)));
    raised = version;
    const auto count_earlier = [&] {
      return server_.Run(
          fmt::format("SELECT count(*) FROM pinstripe_test.records WHERE "
                      "convert_from(version, 'UTF8')::int < {}",
                      version));
    };
    const std::string earlier = count_earlier();
    ASSERT_EQ(count_earlier(), earlier) << version;
  }
  ends = true;
  for (std::thread& each : writers) each.join();
  EXPECT_GT(done, 0);
}

}  // namespace
}  // namespace pinstripe
