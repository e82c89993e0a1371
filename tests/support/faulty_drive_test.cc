#include "tests/support/faulty_drive.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "base/send_together.h"
#include "daemon/memory_drive.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

// Holds one value and counts what reaches it.
class OneValueDrive : public Drive {
 public:
  explicit OneValueDrive(Runtime& runtime) : runtime_(runtime) {}

  std::string_view name() const override { return "drive 1 (nowhere)"; }
  DriveCapabilities capabilities() const override { return {}; }
  bool IsUp() const override { return true; }
  uint64_t CountLosses() const override { return 0; }
  void Get(std::string, ValueRange, Terms, Callback<Record> done) override {
    Answer(done, Result<Record>(Record{.version = "v", .value = SharedBytes(value)}));
  }
  void Head(std::string, Terms, Callback<RecordHead> done) override {
    Answer(done, Result<RecordHead>(RecordHead{.version = "v"}));
  }
  void Put(PutRequest request, Terms, StatusCallback done) override {
    ++puts;
    value = request.value.text();
    Answer(done, Status());
  }
  void Delete(std::string, Expected, Durability, Terms, StatusCallback done) override {
    Answer(done, Status());
  }
  void Range(std::string, std::string, uint32_t, bool, Terms,
             Callback<std::vector<std::string>> done) override {
    Answer(done, Result<std::vector<std::string>>(std::vector<std::string>{"key"}));
  }
  void ListRecords(std::string, std::string, uint32_t, bool, uint32_t, Terms,
                   Callback<RangeRecords> done) override {
    RangeRecords records;
    records.records.push_back(
        {.key = "key", .record = {.version = "v", .value = SharedBytes(value)}, .has_value = true});
    Answer(done, Result<RangeRecords>(std::move(records)));
  }
  void Flush(Terms, StatusCallback done) override { Answer(done, Status()); }
  void Info(Terms, Callback<DriveInfo> done) override {
    Answer(done, Result<DriveInfo>(DriveInfo{.starts = {{7, false}}, .start_count = 1, .up = 5s}));
  }
  void SetClusterVersion(int64_t, Terms, StatusCallback done) override { Answer(done, Status()); }

  std::string value = "hello";
  int puts = 0;

 protected:
  template <typename Done, typename R>
  void Answer(Done done, R result) {
    runtime_.RunAt(runtime_.Now(), [done, result] { done(result); });
  }

 private:
  Runtime& runtime_;
};

class FaultyDriveTest : public testing::Test {
 protected:
  Status Put(Drive& drive, Duration patience = 1s) {
    std::optional<Status> answer;
    auto signal = sim_.NewSignal();
    drive.Put({.key = "key", .value = SharedBytes(std::string("new"))}, sim_.Now() + patience,
              [&](Status status) {
                EXPECT_FALSE(answer.has_value()) << "answered twice";
                answer = std::move(status);
                signal->Set();
              });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    while (!answer.has_value()) signal->WaitUntil(Time::max());
    return *answer;
  }

  Result<Record> Get(Drive& drive) {
    std::optional<Result<Record>> answer;
    auto signal = sim_.NewSignal();
    drive.Get("key", {}, sim_.Now() + 1s, [&](Result<Record> record) {
      answer = std::move(record);
      signal->Set();
    });
    while (!answer.has_value()) signal->WaitUntil(Time::max());
    return *answer;
  }

  SimRuntime sim_{1};
  std::shared_ptr<OneValueDrive> inner_ = std::make_shared<OneValueDrive>(sim_);
  FaultyDrive drive_{sim_, inner_};
};

TEST_F(FaultyDriveTest, AHealthyOnePassesEverythingOn) {
  ASSERT_OK(Put(drive_));
  const Result<Record> record = Get(drive_);
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "new");
  EXPECT_EQ(drive_.requests().put, 1u);
  EXPECT_EQ(drive_.requests().total(), 2u);
  std::optional<Result<DriveInfo>> info;
  const auto signal = sim_.NewSignal();
  drive_.Info(sim_.Now() + 1s, [&](Result<DriveInfo> got) {
    info = std::move(got);
    signal->Set();
  });
  while (!info) signal->WaitUntil(Time::max());
  ASSERT_OK(*info);
  EXPECT_EQ((*info)->starts, (std::vector<DriveStart>{{7, false}}));
  EXPECT_EQ((*info)->up, 5s);
}

TEST_F(FaultyDriveTest, ALostRequestIsNotExecutedAndTimesOutAtItsDeadline) {
  drive_.Set({.lose_request = 1});
  const Time start = sim_.Now();
  EXPECT_FAILS(Put(drive_, 3s), ETIMEDOUT);
  EXPECT_GE(sim_.Now() - start, 3s);
  EXPECT_EQ(inner_->puts, 0);
}

TEST_F(FaultyDriveTest, ALostAnswerIsDoneButNotTold) {
  drive_.Set({.lose_answer = 1});
  EXPECT_FAILS(Put(drive_), ETIMEDOUT);
  EXPECT_EQ(inner_->puts, 1);
}

TEST_F(FaultyDriveTest, ARepeatedRequestIsExecutedTwiceAndAnsweredOnce) {
  drive_.Set({.duplicate_request = 1});
  EXPECT_OK(Put(drive_));
  sim_.Sleep(3s);
  EXPECT_EQ(inner_->puts, 2);
}

TEST_F(FaultyDriveTest, ASlowRequestIsExecutedAfterItsCallerGaveUp) {
  drive_.Set({.least_latency = 5s, .most_latency = 5s});
  EXPECT_FAILS(Put(drive_, 1s), ETIMEDOUT);
  EXPECT_EQ(inner_->puts, 0);
  sim_.Sleep(10s);
  EXPECT_EQ(inner_->puts, 1);
}

TEST_F(FaultyDriveTest, OneThatIsDownSaysSoAtOnce) {
  drive_.Set({.down = true});
  EXPECT_FALSE(drive_.IsUp());
  const Time start = sim_.Now();
  EXPECT_FAILS(Put(drive_, 1h), EHOSTUNREACH);
  EXPECT_LT(sim_.Now() - start, 1s);
  EXPECT_EQ(inner_->puts, 0);
}

TEST_F(FaultyDriveTest, AFullOneStillReads) {
  drive_.Set({.full = true});
  EXPECT_FAILS(Put(drive_), ENOSPC);
  EXPECT_OK(Get(drive_));
}

TEST_F(FaultyDriveTest, ABitMayFlip) {
  drive_.Set({.flip_bit = 1});
  const Result<Record> record = Get(drive_);
  ASSERT_OK(record);
  EXPECT_NE(record->value.text(), "hello");
  EXPECT_EQ(record->value.size(), 5u);
  EXPECT_EQ(inner_->value, "hello");
}

// Has a record of each key, which tells whose it is.
class RecordsDrive final : public OneValueDrive {
 public:
  using OneValueDrive::OneValueDrive;

  static Record RecordOf(const std::string& key) {
    return {"version of " + key, "tag of " + key, SharedBytes("value of " + key)};
  }
  void Get(std::string key, ValueRange, Terms, Callback<Record> done) override {
    Answer(done, key == "gone" ? Result<Record>(Fail(ENOENT, "no such key"))
                               : Result<Record>(RecordOf(key)));
  }
  void Head(std::string key, Terms, Callback<RecordHead> done) override {
    const Record record = RecordOf(key);
    Answer(done, Result<RecordHead>(RecordHead{record.version, record.tag}));
  }
  void ListRecords(std::string, std::string, uint32_t, bool, uint32_t, Terms,
                   Callback<RangeRecords> done) override {
    RangeRecords records;
    for (const std::string key : {"key1", "key2", "key3"}) {
      records.records.push_back({.key = key, .record = RecordOf(key), .has_value = true});
    }
    Answer(done, Result<RangeRecords>(std::move(records)));
  }
};

// Of a record it says what another one is, wholly or in part; that there is one, or none, is true.
TEST_F(FaultyDriveTest, ItMayMixUpItsAnswers) {
  FaultyDrive drive(sim_, std::make_shared<RecordsDrive>(sim_));
  auto signal = sim_.NewSignal();
  for (const char* key : {"key1", "key2", "longer"}) {
    drive.Put({.key = key}, sim_.Now() + 1s, [](const Status& status) { EXPECT_OK(status); });
  }
  drive.Set({.mix_up = 1});
  std::set<std::string> seen;
  for (int i = 0; i < 30; ++i) {
    drive.Get("key1", {}, sim_.Now() + 1s, [&](const Result<Record>& record) {
      ASSERT_OK(record);
      seen.insert(fmt::format("{}, {}, {}", record->version, record->tag, record->value.text()));
    });
  }
  drive.Head("key1", sim_.Now() + 1s, [&](const Result<RecordHead>& head) { ASSERT_OK(head); });
  drive.Get("gone", {}, sim_.Now() + 1s,
            [](const Result<Record>& record) { EXPECT_FAILS(record, ENOENT); });
  drive.Get("longer", {}, sim_.Now() + 1s, [](const Result<Record>& record) {
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), "value of longer") << "no other key is as long";
  });
  int mixed = 0;
  drive.ListRecords("a", "z", 10, false, 100, sim_.Now() + 1s,
                    [&](const Result<RangeRecords>& range) {
                      ASSERT_TRUE(range.has_value());
                      for (const RangeRecord& each : range->records) {
                        const Record right = RecordsDrive::RecordOf(each.key);
                        mixed += each.record.version != right.version ||
                                 each.record.value.text() != right.value.text();
                      }
                    });
  sim_.Sleep(2s);
  EXPECT_EQ(seen, (std::set<std::string>{"version of key1, tag of key1, value of key2",
                                         "version of key2, tag of key2, value of key1",
                                         "version of key2, tag of key2, value of key2"}));
  EXPECT_GT(mixed, 0);
}

TEST_F(FaultyDriveTest, AnotherDriveMayTakeItsPlace) {
  ASSERT_OK(Put(drive_));
  drive_.ReplaceBy(std::make_shared<OneValueDrive>(sim_));
  EXPECT_EQ(Get(drive_)->value.text(), "hello");
}

TEST_F(FaultyDriveTest, NothingOfACrashedClientReachesADrive) {
  auto life = std::make_shared<ClientLife>();
  FaultyDrive one(sim_, inner_, life);
  FaultyDrive two(sim_, inner_, life);
  life->CrashAfter(2);
  EXPECT_OK(Put(one));
  EXPECT_OK(Put(two));
  EXPECT_TRUE(life->crashed());
  EXPECT_FAILS(Put(one), EHOSTUNREACH);
  EXPECT_EQ(inner_->puts, 2);
}

TEST_F(FaultyDriveTest, WhatIsOutstandingIsAnsweredBeforeItIsGone) {
  std::optional<Status> answer;
  {
    FaultyDrive drive(sim_, inner_);
    drive.Put({.key = "key"}, sim_.Now() + 1s, [&](Status status) { answer = std::move(status); });
  }
  ASSERT_TRUE(answer.has_value());
  EXPECT_FAILS(*answer, EHOSTUNREACH);
  sim_.Sleep(2s);
}

// A read that follows a put, at a drive that has both in one message.
class PutThenGetTest : public testing::Test {
 protected:
  struct Answers {
    std::optional<Status> put;
    std::optional<Result<Record>> read;
    bool read_came_first = false;
  };

  void Ask(const std::string& key, const std::string& value, const std::string& then_get,
           Answers* answers, Expected expected = Expected::Any()) {
    drive_.PutThenGet(
        {.key = key, .value = SharedBytes(value), .version = value, .expected = expected}, then_get,
        sim_.Now() + 1s,
        [answers](Status status) {
          EXPECT_FALSE(answers->put.has_value()) << "answered twice";
          answers->put = std::move(status);
        },
        [answers](Result<Record> record) {
          EXPECT_FALSE(answers->read.has_value()) << "answered twice";
          answers->read_came_first = !answers->put.has_value();
          answers->read = std::move(record);
        });
    EXPECT_FALSE(answers->put.has_value()) << "answered inside the call";
  }
  void Put(const std::string& key, const std::string& value) {
    drive_.Put({.key = key, .value = SharedBytes(value)}, sim_.Now() + 1s, [](const Status&) {});
  }

  SimRuntime sim_{1};
  FaultyDrive drive_{sim_, std::make_shared<MemoryDrive>(sim_, "drive 1 (memory)")};
};

TEST_F(PutThenGetTest, IsOneRequestAndTheReadComesFirst) {
  Answers answers;
  Ask("entry", "1", "entry", &answers);
  sim_.Sleep(2s);
  ASSERT_OK(*answers.put);
  ASSERT_OK(*answers.read);
  EXPECT_EQ((*answers.read)->value.text(), "1");
  EXPECT_TRUE(answers.read_came_first);
  EXPECT_EQ(drive_.requests().total(), 1u);
}

TEST_F(PutThenGetTest, SharesItsMessageAndSeesAllPutsOfIt) {
  Answers answers;
  {
    const SendTogether together;
    Ask("entry", "1", "inode", &answers);
    Put("inode", "of the same message");
  }
  sim_.Sleep(2s);
  ASSERT_OK(*answers.read);
  EXPECT_EQ((*answers.read)->value.text(), "of the same message");
  EXPECT_EQ(drive_.requests().total(), 1u);
}

TEST_F(PutThenGetTest, AReadOfNothingDoesNotFailThePut) {
  Answers answers;
  Ask("entry", "1", "nothing", &answers);
  sim_.Sleep(2s);
  EXPECT_OK(*answers.put);
  EXPECT_FAILS(*answers.read, ENOENT);
}

TEST_F(PutThenGetTest, APutThatFailsIsNotFollowed) {
  Put("inode", "1");
  Answers answers;
  Ask("entry", "1", "inode", &answers, Expected::Version("another"));
  sim_.Sleep(2s);
  EXPECT_FAILS(*answers.put, ESTALE);
  EXPECT_FAILS(*answers.read, ESTALE);
}

TEST_F(PutThenGetTest, AreLostTogether) {
  drive_.Set({.lose_answer = 1});
  Answers lost;
  Ask("entry", "1", "entry", &lost);
  sim_.Sleep(2s);
  EXPECT_FAILS(*lost.put, ETIMEDOUT);
  EXPECT_FAILS(*lost.read, ETIMEDOUT);
  drive_.Set({.down = true});
  Answers down;
  Ask("entry", "1", "entry", &down);
  sim_.Sleep(2s);
  EXPECT_FAILS(*down.put, EHOSTUNREACH);
  EXPECT_FAILS(*down.read, EHOSTUNREACH);
}

TEST_F(PutThenGetTest, AreTwoRequestsToADriveThatCannot) {
  const auto inner = std::make_shared<OneValueDrive>(sim_);
  FaultyDrive drive(sim_, inner);
  Answers answers;
  drive.PutThenGet(
      {.key = "key", .value = SharedBytes(std::string("new"))}, "key", sim_.Now() + 1s,
      [&](Status status) { answers.put = std::move(status); },
      [&](Result<Record> record) { answers.read = std::move(record); });
  sim_.Sleep(2s);
  ASSERT_OK(*answers.put);
  ASSERT_OK(*answers.read);
  EXPECT_EQ((*answers.read)->value.text(), "new");
  EXPECT_EQ(drive.requests().put, 1u);
  EXPECT_EQ(drive.requests().get, 1u);
}

}  // namespace
}  // namespace pinstripe
