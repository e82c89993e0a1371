// EngineDrive on an engine in memory that goes away, is emptied, and loses what is asked. What a
// drive promises anyway, tests/drive/drive_suite_test.cc asks.

#include "engines/engine_drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/real_runtime.h"
#include "base/send_together.h"
#include "engines/engine_checks.h"
#include "tests/support/expect_ok.h"
#include "tests/support/memory_engine.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Answer, typename Ask>
Answer Await(Ask ask) {
  std::promise<Answer> answer;
  ask([&](Answer got) { answer.set_value(std::move(got)); });
  return answer.get_future().get();
}

Drive::PutRequest NewPut(std::string key, std::string value = "", std::string version = "1",
                         Expected expected = Expected::Any()) {
  return {.key = std::move(key),
          .value = SharedBytes(std::move(value)),
          .version = std::move(version),
          .expected = std::move(expected)};
}

class EngineDriveTest : public testing::Test {
 protected:
  EngineDriveTest() { SetLogLevel(LogLevel::kError); }
  ~EngineDriveTest() override { SetLogLevel(LogLevel::kInfo); }

  // Another drive on the same store. `before`: what is done to its engine before it starts.
  template <typename Before>
  std::unique_ptr<EngineDrive> Connect(EngineDrive::Options options, Before before) {
    auto engine = std::make_unique<MemoryEngine>(runtime_, store_);
    engine_ = engine.get();
    before(*engine);
    options.name = "the engine";
    return std::make_unique<EngineDrive>(runtime_, std::move(engine), std::move(options));
  }
  std::unique_ptr<EngineDrive> Connect(EngineDrive::Options options = {}) {
    return Connect(std::move(options), [](MemoryEngine&) {});
  }

  Time Soon() { return runtime_.Now() + 20s; }
  Status Put(Drive& drive, Drive::PutRequest request, std::optional<Terms> terms = {}) {
    return Await<Status>([&](StatusCallback done) {
      drive.Put(std::move(request), terms.value_or(Soon()), std::move(done));
    });
  }
  Result<Record> Get(Drive& drive, std::string key, ValueRange range = {},
                     std::optional<Terms> terms = {}) {
    return Await<Result<Record>>([&](Callback<Record> done) {
      drive.Get(std::move(key), range, terms.value_or(Soon()), std::move(done));
    });
  }
  Status Flush(Drive& drive, std::optional<Terms> terms = {}) {
    return Await<Status>(
        [&](StatusCallback done) { drive.Flush(terms.value_or(Soon()), std::move(done)); });
  }
  std::vector<std::string> Range(Drive& drive, std::string first, std::string last, uint32_t max,
                                 bool reverse) {
    const auto keys =
        Await<Result<std::vector<std::string>>>([&](Callback<std::vector<std::string>> done) {
          drive.Range(std::move(first), std::move(last), max, reverse, Soon(), std::move(done));
        });
    EXPECT_OK(keys);
    return keys.value_or(std::vector<std::string>());
  }
  // Asks until the drive is not away any more.
  Result<Record> GetOnceItIsBack(Drive& drive, const std::string& key) {
    for (;;) {
      Result<Record> record = Get(drive, key);
      if (record || record.error().code() != EHOSTUNREACH) return record;
      std::this_thread::yield();
    }
  }
  static void WaitUntil(const std::function<bool()>& holds) {
    while (!holds()) std::this_thread::yield();
  }

  RealRuntime runtime_;
  std::shared_ptr<MemoryEngineStore> store_ = std::make_shared<MemoryEngineStore>(runtime_);
  MemoryEngine* engine_ = nullptr;  // of the drive that was connected last
};

// --- What is asked of it

TEST_F(EngineDriveTest, KeepsRecordsAsDocumented) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key", "value", "v1")));
  EXPECT_EQ(store_->Find("key"), EncodeEngineRecord({.version = "v1",
                                                     .tag = EngineTag(AsBytes("value")),
                                                     .value = SharedBytes(std::string("value"))}));
  EXPECT_EQ(drive->name(), "the engine");
  EXPECT_TRUE(drive->IsUp());
  EXPECT_TRUE(drive->capabilities().then_gets);
}

TEST_F(EngineDriveTest, DoesNotBelieveARecordThatIsNotWhatItWasStoredWith) {
  const auto drive = Connect();
  store_->Set("rubbish", "rubbish");
  store_->Set("other", EncodeEngineRecord({.version = "1",
                                           .tag = EngineTag(AsBytes("value")),
                                           .value = SharedBytes(std::string("VALUE"))}));
  EXPECT_FAILS(Get(*drive, "rubbish"), EBADMSG);
  EXPECT_FAILS(Get(*drive, "other"), EBADMSG);
  EXPECT_FAILS(Get(*drive, "other", {.offset = 1, .length = 1}), EBADMSG);
  EXPECT_THAT(Get(*drive, "other").error().message(), HasSubstr("the engine: "));
  EXPECT_EQ(drive->times()->failures, 4u);
  EXPECT_OK(Put(*drive, NewPut("rubbish", "value")));
  EXPECT_OK(Get(*drive, "rubbish"));
}

TEST_F(EngineDriveTest, FindsAllKeysThoughPagesEndEarly) {
  const auto drive = Connect();
  std::vector<std::string> keys;
  for (int i = 0; i < 30; ++i) {
    keys.push_back(fmt::format("{:02}", i));
    if (i % 3 == 0) keys.back() += '\0';
    ASSERT_OK(Put(*drive, NewPut(keys.back())));
  }
  store_->SetPageBytes(6);  // three of them
  EXPECT_EQ(Range(*drive, "", "\xff", 200, false), keys);
  EXPECT_GE(engine_->requests().lists, 10u);
  const std::vector<std::string> backwards(keys.rbegin(), keys.rend());
  EXPECT_EQ(Range(*drive, "", "\xff", 200, true), backwards);
  EXPECT_THAT(Range(*drive, "", "\xff", 7, false), testing::ElementsAreArray(keys.data(), 7));
  EXPECT_THAT(Range(*drive, "", "\xff", 7, true), testing::ElementsAreArray(backwards.data(), 7));
}

TEST_F(EngineDriveTest, CountsWhatItDid) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key", "value")));
  EXPECT_FAILS(Put(*drive, NewPut("key", "value", "2", Expected::Absent())), ESTALE);
  ASSERT_OK(Get(*drive, "key"));
  EXPECT_FAILS(Get(*drive, "none"), ENOENT);
  ASSERT_OK(Flush(*drive));
  const DriveTimes& times = *drive->times();
  EXPECT_EQ(times.writes.Load().count(), 3u);
  EXPECT_EQ(times.reads.Load().count(), 2u);
  EXPECT_EQ(times.written_bytes, 5u);
  EXPECT_EQ(times.read_bytes, 5u);
  EXPECT_EQ(times.failures, 0u);
  EXPECT_EQ(times.timeouts, 0u);
}

TEST_F(EngineDriveTest, TellsOfItselfAlsoWhenItIsAway) {
  store_->SetState({.software = "memory 2.0", .limit_bytes = 1000, .alarms = {"it is full"}});
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key", "value")));
  const auto info = Await<Result<DriveInfo>>(
      [&](Callback<DriveInfo> done) { drive->Info(Soon(), std::move(done)); });
  ASSERT_OK(info);
  EXPECT_EQ(info->vendor, "memory");
  EXPECT_EQ(info->software_version, "2.0");
  EXPECT_EQ(info->capacity_bytes, 1000u);
  EXPECT_GT(info->portion_full, 0);
  EXPECT_EQ(info->serial_number, Hex(AsBytes(store_->id())));
  EXPECT_EQ(info->failure, "it is full");
  engine_->GoAway("for the test");
  WaitUntil([&] { return !drive->IsUp(); });
  const auto state = Await<Result<EngineState>>(
      [&](Callback<EngineState> done) { drive->LookAt(Soon(), std::move(done)); });
  ASSERT_OK(state);
  ASSERT_EQ(state->members.size(), 1u);
  EXPECT_FALSE(state->members[0].is_up);
}

TEST_F(EngineDriveTest, AFlushFailsUnderAnEarlierClusterVersion) {
  const auto drive = Connect();
  ASSERT_OK(Flush(*drive, Terms(Soon(), 7)));
  EXPECT_EQ(store_->cluster_version(), 7);
  EXPECT_FAILS(Flush(*drive, Terms(Soon(), 6)), EREMCHG);
}

TEST_F(EngineDriveTest, DrivesOfAStoreSeeOneAnothersChanges) {
  const auto one = Connect();
  const auto other = Connect();
  ASSERT_OK(Put(*one, NewPut("key", "value", "1", Expected::Absent())));
  EXPECT_FAILS(Put(*other, NewPut("key", "value", "1", Expected::Absent())), ESTALE);
  EXPECT_OK(Put(*other, NewPut("key", "value", "2", Expected::Version("1"))));
  EXPECT_EQ(Get(*one, "key")->version, "2");
}

// --- Together

TEST_F(EngineDriveTest, WhatAThreadAsksTogetherIsOneBatch) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key", "value")));
  engine_->ForgetRequests();
  std::promise<void> all;
  std::atomic<int> answers = 0;
  const auto answered = [&] {
    if (++answers == 12) all.set_value();
  };
  const Time deadline = Soon();
  {
    const SendTogether together;
    for (int i = 0; i < 4; ++i) {
      drive->Get("key", kSmallRecord, deadline, [&](const Result<Record>& record) {
        EXPECT_OK(record);
        answered();
      });
      drive->Put(NewPut(fmt::format("{}", i)), deadline, [&](const Status& status) {
        EXPECT_OK(status);
        answered();
      });
      drive->PutThenGet(
          NewPut(fmt::format("then {}", i)), "then 3", deadline, [](const Status&) {},
          [&](const Result<Record>& record) {
            EXPECT_OK(record) << "a read comes after all puts of its batch";
            answered();
          });
    }
    EXPECT_EQ(engine_->requests().batches, 0u);
  }
  all.get_future().get();
  const EngineRequests made = engine_->requests();
  EXPECT_EQ(made.batches, 1u);
  EXPECT_EQ(made.changes, 8u);
  EXPECT_EQ(made.reads, 8u);
}

TEST_F(EngineDriveTest, ABatchHasNoMoreThanAnEngineTakes) {
  const auto drive = Connect();
  ASSERT_OK(Flush(*drive));
  engine_->ForgetRequests();
  std::atomic<int> answers = 0;
  const int kAsked = 3 * static_cast<int>(kMaxEngineBatch) + 1;
  const Time deadline = Soon();
  {
    const SendTogether together;
    for (int i = 0; i < kAsked; ++i) {
      drive->Put(NewPut(fmt::format("{}", i)), deadline, [&](const Status& status) {
        EXPECT_OK(status);
        ++answers;
      });
    }
  }
  WaitUntil([&] { return answers == kAsked; });
  EXPECT_EQ(engine_->requests().batches, 4u);
  EXPECT_EQ(engine_->requests().largest, kMaxEngineBatch);
}

TEST_F(EngineDriveTest, WhatDiffersInVersionSizeOrPatienceGoesApart) {
  const auto drive = Connect();
  ASSERT_OK(Flush(*drive));
  const auto count = [&](Terms one, Terms other, size_t bytes) {
    engine_->ForgetRequests();
    std::atomic<int> answers = 0;
    {
      const SendTogether together;
      for (const Terms& terms : {one, other}) {
        drive->Put(NewPut("key", std::string(bytes, 'v')), terms,
                   [&](const Status&) { ++answers; });
      }
    }
    WaitUntil([&] { return answers == 2; });
    return engine_->requests().batches;
  };
  const Time soon = Soon();
  EXPECT_EQ(count(soon, soon, 1), 1u);
  EXPECT_EQ(count(soon, soon + 1s, 1), 2u);
  EXPECT_EQ(count(Terms(soon, 1), Terms(soon, 1), 1), 1u);
  EXPECT_EQ(count(Terms(soon, 1), Terms(soon, 2), 1), 2u);
  EXPECT_EQ(count(Terms(soon, 2), soon, 1), 2u);
  EXPECT_EQ(count(soon, soon, kMaxValueBytes), 2u);
}

TEST_F(EngineDriveTest, EachOfABatchHasItsOwnAnswer) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("there", "", "1")));
  std::vector<std::future<Status>> answers;
  const auto answer = [&] {
    auto promise = std::make_shared<std::promise<Status>>();
    answers.push_back(promise->get_future());
    return [promise](const auto& got) { promise->set_value(StatusOf(got)); };
  };
  const Time deadline = Soon();
  {
    const SendTogether together;
    drive->Put(NewPut("new", "", "1", Expected::Absent()), deadline, answer());
    drive->Put(NewPut("there", "", "2", Expected::Absent()), deadline, answer());
    drive->Put({.key = "guarded", .guard = Guard{"new", Expected::Version("1")}}, deadline,
               answer());
    drive->Put({.key = "guarded", .guard = Guard{"new", Expected::Absent()}}, deadline, answer());
    drive->Delete("none", Expected::Version("1"), Durability::kWriteBack, deadline, answer());
    drive->Delete("there", Expected::Version("1"), Durability::kWriteBack, deadline, answer());
    drive->Get("there", {}, deadline, answer());
    drive->Get("guarded", {}, deadline, answer());
  }
  std::vector<int> codes;
  for (auto& each : answers) codes.push_back(each.get().code());
  EXPECT_THAT(codes, ElementsAre(0, ESTALE, 0, ECANCELED, ENOENT, 0, ENOENT, 0));
}

TEST_F(EngineDriveTest, OfAPutThatFailsTheReadFailsWithIt) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key")));
  std::vector<std::string> order;
  std::promise<void> both;
  drive->PutThenGet(
      NewPut("key", "", "2", Expected::Absent()), "key", Soon(),
      [&](const Status& put) {
        EXPECT_FAILS(put, ESTALE);
        order.emplace_back("put");
        both.set_value();
      },
      [&](const Result<Record>& read) {
        EXPECT_FAILS(read, ESTALE);
        order.emplace_back("read");
      });
  both.get_future().get();
  EXPECT_THAT(order, ElementsAre("read", "put"));
}

// While as many batches as may be are under way, what comes goes in the next one.
TEST_F(EngineDriveTest, GathersWhatWaitsForItsTurn) {
  const auto drive = Connect({.max_in_flight = 1});
  ASSERT_OK(Flush(*drive));
  engine_->Set({.delay = 500ms});
  engine_->ForgetRequests();
  std::atomic<int> answers = 0;
  constexpr int kAsked = 20;
  const Time deadline = Soon();
  for (int i = 0; i < kAsked; ++i) {
    drive->Put(NewPut(fmt::format("{}", i)), deadline, [&](const Status& status) {
      EXPECT_OK(status);
      ++answers;
    });
  }
  WaitUntil([&] { return answers == kAsked; });
  EXPECT_EQ(engine_->requests().batches, 2u);
}

TEST_F(EngineDriveTest, WhatWaitsTooLongForItsTurnTimesOut) {
  const auto drive = Connect({.max_in_flight = 1});
  ASSERT_OK(Flush(*drive));
  engine_->Set({.lose_request = 1});
  std::promise<Status> lost;
  drive->Put(NewPut("1"), runtime_.Now() + 20s,
             [&](Status status) { lost.set_value(std::move(status)); });
  const Status late = Put(*drive, NewPut("2"), Terms(runtime_.Now() + 10ms));
  EXPECT_FAILS(late, ETIMEDOUT);
  EXPECT_FAILS(Get(*drive, "1", {}, Terms(runtime_.Now() + 10ms)), ETIMEDOUT);
  EXPECT_EQ(drive->times()->timeouts, 2u);
  engine_->GoAway("for the test");
  EXPECT_FAILS(lost.get_future().get(), EHOSTUNREACH);
}

// --- What goes wrong

TEST_F(EngineDriveTest, WhatIsAskedBeforeItIsReachedWaits) {
  const auto drive = Connect({}, [](MemoryEngine& engine) { engine.Set({.delay = 20ms}); });
  EXPECT_FALSE(drive->IsUp());
  EXPECT_OK(Put(*drive, NewPut("key")));
  EXPECT_TRUE(drive->IsUp());
}

TEST_F(EngineDriveTest, WhatIsAskedBeforeItIsReachedTimesOut) {
  const auto drive = Connect({}, [](MemoryEngine& engine) { engine.Set({.delay = 1h}); });
  EXPECT_FAILS(Put(*drive, NewPut("key"), Terms(runtime_.Now() + 10ms)), ETIMEDOUT);
  EXPECT_FAILS(Get(*drive, "key", {}, Terms(runtime_.Now() + 10ms)), ETIMEDOUT);
  EXPECT_EQ(drive->WhyAway(), "away");
}

TEST_F(EngineDriveTest, FailsAtOnceWhileItIsAway) {
  const auto drive = Connect({}, [](MemoryEngine& engine) { engine.GoAway("connection refused"); });
  const Status away = Put(*drive, NewPut("key"));
  EXPECT_FAILS(away, EHOSTUNREACH);
  EXPECT_EQ(away.message(), "the engine: connection refused");
  EXPECT_EQ(drive->WhyAway(), "connection refused");
  EXPECT_FALSE(drive->IsUp());
  // Also together.
  std::promise<Status> answer;
  {
    const SendTogether together;
    drive->Put(NewPut("key"), Soon(), [&](Status status) { answer.set_value(std::move(status)); });
  }
  EXPECT_FAILS(answer.get_future().get(), EHOSTUNREACH);
  engine_->ComeBack();
  EXPECT_FAILS(GetOnceItIsBack(*drive, "key"), ENOENT);
  EXPECT_EQ(drive->CountLosses(), 0u);
}

TEST_F(EngineDriveTest, FailsWhatIsHeldOrWaitsWhenItIsLost) {
  const auto drive = Connect({.max_in_flight = 1});
  ASSERT_OK(Flush(*drive));
  engine_->Set({.lose_request = 1});
  std::atomic<int> failed = 0;
  const auto count = [&](const Status& status) {
    EXPECT_FAILS(status, EHOSTUNREACH);
    ++failed;
  };
  drive->Put(NewPut("under way"), Soon(), count);
  drive->Put(NewPut("waits"), Soon() + 10s, count);
  {
    const SendTogether together;
    drive->Put(NewPut("held"), Soon(), count);
    engine_->GoAway("for the test");
    WaitUntil([&] { return !drive->IsUp(); });
  }
  WaitUntil([&] { return failed == 3; });
}

// Which may have been done, so that it is for who asked to look.
TEST_F(EngineDriveTest, NeverAsksAgain) {
  const auto drive = Connect();
  ASSERT_OK(Flush(*drive));
  engine_->ForgetRequests();
  engine_->Set({.lose_answer = 1});
  EXPECT_FAILS(Put(*drive, NewPut("key", "", "1", Expected::Absent())), EHOSTUNREACH);
  EXPECT_EQ(engine_->requests().batches, 1u);
  engine_->Set({.lose_request = 1});
  EXPECT_FAILS(Put(*drive, NewPut("other"), Terms(runtime_.Now() + 10ms)), ETIMEDOUT);
  EXPECT_EQ(drive->times()->timeouts, 1u);
  engine_->Set({});
  EXPECT_EQ(Get(*drive, "key")->version, "1");
  EXPECT_FAILS(Get(*drive, "other"), ENOENT);
}

TEST_F(EngineDriveTest, AFullOneStillRemoves) {
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, NewPut("key")));
  store_->SetFull(true);
  EXPECT_FAILS(Put(*drive, NewPut("other")), ENOSPC);
  EXPECT_OK(Await<Status>([&](StatusCallback done) {
    drive->Delete("key", Expected::Any(), Durability::kWriteBack, Soon(), std::move(done));
  }));
}

// --- Which drive it is

TEST_F(EngineDriveTest, OnlyTheStoreThatTheCheckAcceptsIsUp) {
  ASSERT_OK(Put(*Connect(), NewPut("who", "drive 4")));
  std::atomic<int> checks = 0;
  EngineDrive::Options options;
  options.identity_key = "who";
  options.check_again = 1ms;
  std::atomic<bool> wanted = false;
  options.check_identity = [&](const Result<Record>& record, const Result<DriveInfo>& info) {
    ++checks;
    EXPECT_OK(info);
    if (!record) return record.error();
    if (wanted && record->value.text() == "drive 4") return Status();
    return Status(Fail(EHOSTUNREACH, "it is {}", record->value.text()));
  };
  const auto drive = Connect(options);
  const Result<Record> refused = Get(*drive, "who");
  EXPECT_FAILS(refused, EHOSTUNREACH);
  EXPECT_EQ(refused.error().message(), "the engine: it is drive 4");
  EXPECT_EQ(drive->WhyAway(), "it is drive 4");
  WaitUntil([&] { return checks > 3; });  // it is asked again
  EXPECT_FALSE(drive->IsUp());
  wanted = true;
  EXPECT_OK(GetOnceItIsBack(*drive, "who"));
}

TEST_F(EngineDriveTest, AStoreThatIsEmptiedIsNotTheSameAnyMore) {
  ASSERT_OK(Put(*Connect(), NewPut("who")));
  EngineDrive::Options options;
  options.identity_key = "who";
  options.check_again = 1ms;
  options.check_identity = [&](const Result<Record>& record, const Result<DriveInfo>&) {
    return StatusOf(record);
  };
  const auto drive = Connect(options);
  ASSERT_OK(Put(*drive, NewPut("key")));
  store_->Empty();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FAILS(Put(*drive, NewPut("key", "", "1", Expected::Absent())), EHOSTUNREACH);
  }
  EXPECT_EQ(store_->Find("key"), std::nullopt);
  WaitUntil([&] { return drive->WhyAway().find("no such key") != std::string::npos; });
  ASSERT_OK(Put(*Connect(), NewPut("who")));
  EXPECT_FAILS(GetOnceItIsBack(*drive, "key"), ENOENT);
}

// Its identity is not known while nobody answers: that says nothing of the store.
TEST_F(EngineDriveTest, ACheckThatCannotBeMadeIsMadeAgain) {
  ASSERT_OK(Put(*Connect(), NewPut("who")));
  std::atomic<int> checks = 0;
  EngineDrive::Options options;
  options.identity_key = "who";
  options.check_timeout = 1ms;
  options.check_again = 1ms;
  options.check_identity = [&](const Result<Record>&, const Result<DriveInfo>&) {
    ++checks;
    return Status();
  };
  const auto drive =
      Connect(options, [](MemoryEngine& engine) { engine.Set({.lose_request = 1}); });
  const Status away = Put(*drive, NewPut("key"));
  EXPECT_FAILS(away, EHOSTUNREACH);
  EXPECT_EQ(away.message(), "the engine: no answer in time");
  EXPECT_EQ(checks, 0);
  engine_->Set({});
  EXPECT_FAILS(GetOnceItIsBack(*drive, "key"), ENOENT);
  EXPECT_EQ(checks, 1);
}

// --- Its end

TEST_F(EngineDriveTest, AnswersEverythingBeforeItIsGone) {
  for (const bool reached : {true, false}) {
    auto drive = Connect({.max_in_flight = 2}, [&](MemoryEngine& engine) {
      if (!reached) engine.Set({.delay = 1h});
    });
    if (reached) {
      ASSERT_OK(Flush(*drive));
      engine_->Set({.lose_request = 1});
    }
    std::atomic<int> answers = 0;
    constexpr int kAsked = 50;
    const auto count = [&](const auto& answer) {
      EXPECT_FAILS(answer, EHOSTUNREACH);
      ++answers;
    };
    const Time deadline = runtime_.Now() + 1h;
    for (int i = 0; i < kAsked; ++i) {
      drive->Put(NewPut(fmt::format("{}", i)), deadline, count);
      drive->Range("a", "b", 1, false, deadline, count);
    }
    const SendTogether together;
    drive->Get("held", {}, deadline, count);
    drive.reset();
    EXPECT_EQ(answers, 2 * kAsked + 1);
  }
}

TEST_F(EngineDriveTest, MayEndWhileManyAsk) {
  for (int round = 0; round < 20; ++round) {
    auto drive = Connect();
    std::atomic<int> asked = 0;
    std::atomic<int> answers = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 100; ++j) {
          const SendTogether together;
          asked += 2;
          drive->Put(NewPut(fmt::format("{} {}", i, j)), Soon(), [&](const Status&) { ++answers; });
          drive->Get("key", {}, Soon(), [&](const Result<Record>&) { ++answers; });
          if (j % 10 == 0) engine_->GoAway("for the test");
          if (j % 10 == 5) engine_->ComeBack();
        }
      });
    }
    for (std::thread& each : threads) each.join();
    drive.reset();
    EXPECT_EQ(answers, asked);
  }
}

// --- In a simulation

// Clients count on a record, each by what it saw last, while the engine goes and comes and loses
// what it is asked. Nothing that was confirmed is missing, and nothing is there that nobody asked.
class CountingStorm {
 public:
  explicit CountingStorm(uint64_t seed) : sim_(seed) {}

  void Run() {
    const auto store = std::make_shared<MemoryEngineStore>(sim_);
    for (int i = 0; i < kClients; ++i) {
      auto engine = std::make_unique<MemoryEngine>(sim_, store);
      engine->Set(Ill());
      engines_.push_back(engine.get());
      EngineDrive::Options options;
      options.max_in_flight = 2;
      drives_.push_back(std::make_unique<EngineDrive>(sim_, std::move(engine), options));
    }
    for (int i = 0; i < kClients; ++i) {
      sim_.Spawn(fmt::format("client {}", i),
                 [this, i] { Client(*drives_[static_cast<size_t>(i)]); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    sim_.Run();
    drives_.clear();
    const auto last = store->Find("count");
    const uint64_t count = last ? std::stoull(DecodeEngineRecord(SharedBytes(*last))->version) : 0;
    EXPECT_GE(count, confirmed_);
    EXPECT_LE(count, confirmed_ + unsure_);
    EXPECT_GT(confirmed_, 0u) << "it tested nothing";
  }

  uint64_t trace_hash() const { return sim_.trace_hash(); }

 private:
  static constexpr int kClients = 3;

  EngineFaults Ill() {
    return {.delay = sim_.Between(1ms, 20ms), .lose_request = 0.1, .lose_answer = 0.1};
  }
  template <typename Answer, typename Ask>
  Answer Wait(Ask ask) {
    const std::shared_ptr<Signal> signal = sim_.NewSignal();
    const auto answer = std::make_shared<std::optional<Answer>>();
    ask([signal, answer](Answer got) {
      *answer = std::move(got);
      signal->Set();
    });
    while (!*answer) signal->WaitUntil(Time::max());
    return **std::move(answer);
  }
  void Client(Drive& drive) {
    for (int step = 0; step < 40; ++step) {
      const Time deadline = sim_.Now() + 100ms;
      const auto now = Wait<Result<Record>>(
          [&](auto done) { drive.Get("count", kSmallRecord, deadline, done); });
      if (!now && now.error().code() != ENOENT) {
        sim_.Sleep(10ms);
        continue;
      }
      const std::string version = now ? now->version : "";
      const uint64_t next = version.empty() ? 1 : std::stoull(version) + 1;
      const Status put = Wait<Status>([&](auto done) {
        drive.Put(NewPut("count", "", std::to_string(next), Expected::Version(version)), deadline,
                  done);
      });
      confirmed_ += put.ok() ? 1 : 0;
      unsure_ += put.code() == ETIMEDOUT || put.code() == EHOSTUNREACH ? 1 : 0;
      EXPECT_TRUE(put.ok() || put.code() == ESTALE || put.code() == ETIMEDOUT ||
                  put.code() == EHOSTUNREACH)
          << put.message();
    }
    ++clients_done_;
  }
  void Weather() {
    while (clients_done_ < kClients) {
      sim_.Sleep(sim_.Between(1ms, 200ms));
      MemoryEngine& engine = *engines_[sim_.Below(engines_.size())];
      if (sim_.Chance(0.5)) engine.GoAway("bad weather");
      sim_.Sleep(sim_.Between(1ms, 100ms));
      engine.ComeBack();
      engine.Set(Ill());
    }
  }

  SimRuntime sim_;
  std::vector<MemoryEngine*> engines_;
  std::vector<std::unique_ptr<EngineDrive>> drives_;
  int clients_done_ = 0;
  uint64_t confirmed_ = 0;
  uint64_t unsure_ = 0;
};

TEST(EngineDriveSim, ConfirmsWhatIsDoneAndNothingElse) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    CountingStorm storm(seed);
    storm.Run();
  }
  SetLogLevel(LogLevel::kInfo);
}

TEST(EngineDriveSim, RepeatsItselfFromItsSeed) {
  SetLogLevel(LogLevel::kError);
  CountingStorm one(7);
  CountingStorm other(7);
  one.Run();
  other.Run();
  EXPECT_EQ(one.trace_hash(), other.trace_hash());
  SetLogLevel(LogLevel::kInfo);
}

}  // namespace
}  // namespace pinstripe
