// Puts that go to a device in one message, on the client's side: what goes together, what a device
// is told, and that each is answered for itself whatever becomes of the message.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "base/real_runtime.h"
#include "base/send_together.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/message.h"
#include "kinetic/put_operation.h"
#include "tests/kinetic/fake_device.h"
#include "tests/kinetic/together_test_base.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Header;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(TogetherTest, EachSaysAllThatItWouldSayAlone) {
  Serve(Good());
  std::vector<Drive::PutRequest> puts;
  puts.push_back({.key = "a",
                  .value = std::string("first"),
                  .version = "2",
                  .tag = "tag4",
                  .expected = Expected::Version("1"),
                  .durability = Durability::kWriteThrough});
  puts.push_back({.key = "b",
                  .expected = Expected::Absent(),
                  .durability = Durability::kWriteThrough,
                  .room = Room::kNames});
  puts.push_back({.key = "c",
                  .value = std::string("third"),
                  .durability = Durability::kWriteThrough,
                  .guard = Guard{"dir", Expected::Version("open")}});
  EXPECT_THAT(CodesOf(PutTogether(std::move(puts))), Each(0));
  EXPECT_TRUE(drive_->capabilities().puts);
  ASSERT_THAT(Messages(), ElementsAre(3));
  const Asked& asked = asked_[0];
  EXPECT_TRUE(asked.authentic);
  EXPECT_TRUE(asked.command.header().bound());
  EXPECT_TRUE(asked.command.header().unerased());
  EXPECT_FALSE(asked.command.body().has_keyvalue());
  EXPECT_EQ(asked.value, "firstthird");
  const auto& records = asked.command.body().puts().records();
  const kinetic::KeyValue& a = records[0].keyvalue();
  EXPECT_EQ(records[0].valuebytes(), 5u);
  EXPECT_EQ(a.key() + a.newversion() + a.dbversion() + a.tag(), "a21tag4");
  EXPECT_EQ(a.algorithm(), 4);
  EXPECT_EQ(a.synchronization(), kinetic::KeyValue::WRITETHROUGH);
  const kinetic::KeyValue& b = records[1].keyvalue();
  EXPECT_EQ(records[1].valuebytes(), 0u);
  EXPECT_EQ(b.room(), 2u);
  EXPECT_FALSE(b.force());
  EXPECT_EQ(b.synchronization(), kinetic::KeyValue::WRITETHROUGH);
  const kinetic::KeyValue& c = records[2].keyvalue();
  EXPECT_EQ(records[2].valuebytes(), 5u);
  EXPECT_TRUE(c.force());
  EXPECT_EQ(c.tag().size(), 4u) << "what is signed covers the value";
  EXPECT_EQ(c.guard().key() + c.guard().version(), "diropen");
}

TEST_F(TogetherTest, EachHasItsOwnAnswer) {
  Serve([](Connection& session, const Asked& request) {
    session.Answer(request, [](kinetic::Body* body) {
      using Code = kinetic::Status;
      for (const Code::Code code : {Code::SUCCESS, Code::VERSION_MISMATCH, Code::GUARD_MISMATCH,
                                    Code::NO_SPACE, Code::SUCCESS, Code::SUCCESS}) {
        body->mutable_puts()->add_records()->mutable_status()->set_code(code);
      }
      body->mutable_puts()->mutable_records(4)->mutable_keyvalue()->set_key("k4");
      body->mutable_puts()->mutable_records(5)->mutable_keyvalue()->set_key("k4");
    });
  });
  const std::vector<Status> statuses = PutTogether(Small(6));
  EXPECT_THAT(CodesOf(statuses), ElementsAre(0, ESTALE, ECANCELED, ENOSPC, 0, EHOSTUNREACH));
  for (const Status& each : statuses) {
    if (each.ok()) continue;
    EXPECT_THAT(std::string(each.message()), HasSubstr("drive 3"));
  }
  const DriveTimes& times = *drive_->times();
  EXPECT_EQ(times.writes.Load().count(), 6u);
  EXPECT_EQ(times.failures, 1u) << "another version is an answer like others";
  EXPECT_EQ(times.written_bytes, 6u);
}

TEST_F(TogetherTest, OneThatIsAloneIsAnOrdinaryPut) {
  Serve(Good());
  EXPECT_THAT(CodesOf(PutTogether(Small(1))), ElementsAre(0));
  EXPECT_EQ(asked_[0].command.header().messagetype(), Header::PUT);
}

// Whatever else it can.
TEST_F(TogetherTest, ADeviceThatCannotHasThemOneByOne) {
  Serve(Good(), "guards 1\nrooms 1\nunerased 1\n");
  EXPECT_THAT(CodesOf(PutTogether(Small(3))), Each(0));
  EXPECT_FALSE(drive_->capabilities().puts);
  EXPECT_THAT(Messages(), ElementsAre(1, 1, 1));
}

TEST_F(TogetherTest, NoMoreThanFitGoTogether) {
  Serve(Good());
  EXPECT_THAT(CodesOf(PutTogether(Small(2 * kMostPutsTogether + 1))), Each(0));
  std::vector<int> messages = Messages();
  EXPECT_EQ(std::ranges::max(messages), static_cast<int>(kMostPutsTogether));
  EXPECT_EQ(std::accumulate(messages.begin(), messages.end(), 0),
            static_cast<int>(2 * kMostPutsTogether + 1));
  asked_.clear();
  std::vector<Drive::PutRequest> large;
  for (const size_t size : {size_t{1}, kMostBytesTogether, kMostBytesTogether / 2,
                            kMostBytesTogether / 2, size_t{1}, kMaxValueBytes, size_t{2}}) {
    large.push_back({.key = "k", .value = SharedBytes(std::string(size, 'v'))});
  }
  EXPECT_THAT(CodesOf(PutTogether(std::move(large))), Each(0));
  EXPECT_THAT(Messages(), ElementsAre(1, 1, 2, 1, 1, 1));
  for (const Asked& each : asked_) EXPECT_TRUE(each.authentic);
}

TEST_F(TogetherTest, TheLargestRecordsFitIntoAMessage) {
  Serve(Good());
  std::vector<Drive::PutRequest> puts;
  for (size_t i = 0; i < kMostPutsTogether; ++i) {
    puts.push_back({.key = std::string(kMaxKeyBytes, 'k'),
                    .value = SharedBytes(std::string(kMostBytesTogether / kMostPutsTogether, 'v')),
                    .version = std::string(kMaxVersionBytes, 'v'),
                    .tag = std::string(kMaxTagBytes, 't'),
                    .expected = Expected::Version(std::string(kMaxVersionBytes, 'e')),
                    .room = Room::kFreeing,
                    .guard = Guard{std::string(kMaxKeyBytes, 'g'),
                                   Expected::Version(std::string(kMaxVersionBytes, 'g'))}});
  }
  EXPECT_THAT(CodesOf(PutTogether(std::move(puts))), Each(0));
  EXPECT_THAT(Messages(), ElementsAre(kMostPutsTogether));
  EXPECT_EQ(asked_[0].value.size(), kMostBytesTogether);
}

TEST_F(TogetherTest, WhatIsAskedUnderOtherTermsGoesAlone) {
  Serve([](Connection& session, const Asked& request) {
    AnswerAll(session, request, kinetic::Status::SUCCESS);
  });
  const Time deadline = Soon();
  const std::vector<Status> statuses = PutTogether(Small(5), [&](size_t i) -> Terms {
    switch (i) {
      case 0: return {deadline, 7};
      case 1: return {deadline + 5ms, 7};
      case 2: return {deadline};  // whatever version it has
      case 3: return {deadline + 10s};
      default: return {deadline + 10s, 7};
    }
  });
  EXPECT_THAT(CodesOf(statuses), Each(0));
  EXPECT_THAT(Messages(), ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(asked_[0].command.header().clusterversion(), 7);
}

// Whichever of them comes first.
TEST_F(TogetherTest, NoTwoOfThemHaveDeadlinesFarApart) {
  Serve(Good());
  const Time deadline = Soon();
  const std::chrono::milliseconds shifts[] = {0ms, -20ms, 20ms, 40ms};
  EXPECT_THAT(CodesOf(PutTogether(Small(4), [&](size_t i) { return Terms(deadline + shifts[i]); })),
              Each(0));
  EXPECT_THAT(Messages(), ElementsAre(2, 2));
}

// It would wait for their flush.
TEST_F(TogetherTest, WhatNeedNotBeDurableDoesNotGoWithWhatMust) {
  Serve(Good());
  std::vector<Drive::PutRequest> puts = Small(5);
  for (const size_t i : {0, 1, 4}) puts[i].durability = Durability::kWriteThrough;
  EXPECT_THAT(CodesOf(PutTogether(std::move(puts))), Each(0));
  EXPECT_THAT(Messages(), ElementsAre(2, 2, 1));
  const auto when = [&](int message, int record) {
    return asked_[message].command.body().puts().records(record).keyvalue().synchronization();
  };
  EXPECT_EQ(when(0, 1), kinetic::KeyValue::WRITETHROUGH);
  EXPECT_EQ(when(1, 1), kinetic::KeyValue::WRITEBACK);
}

TEST_F(TogetherTest, EachTakesItsPlaceInTheLimitsOfTheDevice) {
  kinetic::GetLog::Limits limits;
  limits.set_maxoutstandingwriterequests(3);
  std::atomic<int> outstanding = 0;
  std::atomic<int> most = 0;
  std::vector<Asked> held;  // of the script
  Serve(
      [&](Connection& session, const Asked& request) {
        held.push_back(request);
        outstanding += std::max(1, request.command.body().puts().records_size());
        most = std::max<int>(most, outstanding);
        Asked next;
        while (session.NextWithin(20, &next)) {
          held.push_back(next);
          {
            const std::lock_guard lock(mutex_);
            asked_.push_back(next);
          }
          outstanding += std::max(1, next.command.body().puts().records_size());
          most = std::max<int>(most, outstanding);
        }
        for (const Asked& each : std::exchange(held, {})) {
          outstanding -= std::max(1, each.command.body().puts().records_size());
          AnswerAll(session, each, kinetic::Status::SUCCESS);
        }
      },
      kCan, limits);
  EXPECT_THAT(CodesOf(PutTogether(Small(10))), Each(0));
  EXPECT_EQ(most, 3);
  EXPECT_THAT(Messages(), ElementsAre(3, 3, 3, 1));
}

TEST_F(TogetherTest, ABusyDeviceIsAskedAgainForAllOfThem) {
  std::atomic<int> busy = 0;
  Serve([&](Connection& session, const Asked& request) {
    if (++busy <= 2) return session.Answer(request, kinetic::Status::SERVICE_BUSY);
    AnswerAll(session, request, kinetic::Status::SUCCESS);
  });
  EXPECT_THAT(CodesOf(PutTogether(Small(4))), Each(0));
  EXPECT_THAT(Messages(), ElementsAre(4, 4, 4));
  EXPECT_EQ(asked_[2].value, "v0v1v2v3");
}

// They do not wait for as many places at once as they had before.
TEST_F(TogetherTest, TheyAreAskedAgainAsPlacesAllow) {
  kinetic::GetLog::Limits limits;
  limits.set_maxoutstandingwriterequests(3);
  std::promise<Status> stuck;
  std::optional<Asked> held;
  int answered = 0;
  Serve(
      [&](Connection& session, const Asked& request) {
        const kinetic::Body& body = request.command.body();
        if (body.keyvalue().key() == "stuck") {
          held = request;
          return;
        }
        if (answered == 0 && body.puts().records_size() == 3) {
          drive_->Put({.key = "stuck"}, Soon(),
                      [&](Status status) { stuck.set_value(std::move(status)); });
          return session.Answer(request, kinetic::Status::SERVICE_BUSY);
        }
        AnswerAll(session, request, kinetic::Status::SUCCESS);
        answered += std::max(1, body.puts().records_size());
        if (answered == 3) AnswerAll(session, *held, kinetic::Status::SUCCESS);
      },
      kCan, limits);
  EXPECT_THAT(CodesOf(PutTogether(Small(3))), Each(0));
  EXPECT_OK(stuck.get_future().get());
  EXPECT_THAT(Messages(), ElementsAre(3, 1, 2, 1));
}

TEST_F(TogetherTest, WhatRefusesTheWholeRefusesEach) {
  Serve([](Connection& session, const Asked& request) {
    session.Answer(request, kinetic::Status::NOT_AUTHORIZED);
  });
  EXPECT_THAT(CodesOf(PutTogether(Small(3))), ElementsAre(EACCES, EACCES, EACCES));
  EXPECT_EQ(drive_->times()->failures, 3u);
}

TEST_F(TogetherTest, ADeviceOfALaterClusterVersionChangesNothing) {
  Serve([](Connection& session, const Asked& request) {
    session.Answer(request, kinetic::Status::VERSION_FAILURE);
  });
  const Time deadline = Soon();
  // It says no version of its own: that of its greeting, 0, is later than this one.
  EXPECT_THAT(CodesOf(PutTogether(Small(3), [&](size_t) { return Terms(deadline, -1); })),
              ElementsAre(EREMCHG, EREMCHG, EREMCHG));
}

// What became of them nobody knows then.
TEST_F(TogetherTest, AnAnswerThatTellsOfMoreOrFewerTellsOfNone) {
  for (const int told : {0, 2, 4}) {
    asked_.clear();
    Serve([&](Connection& session, const Asked& request) {
      session.Answer(request, [&](kinetic::Body* body) {
        for (int i = 0; i < told; ++i) {
          body->mutable_puts()->add_records()->mutable_status()->set_code(kinetic::Status::SUCCESS);
        }
      });
    });
    const std::vector<Status> statuses = PutTogether(Small(3));
    EXPECT_THAT(CodesOf(statuses), Each(EHOSTUNREACH));
    EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("made or not"));
    EXPECT_EQ(drive_->times()->failures, 3u);
    drive_.reset();
  }
}

TEST_F(TogetherTest, ALostConnectionAnswersAllOfThem) {
  Serve([](Connection& session, const Asked&) { session.Send("no Kinetic"); });
  EXPECT_THAT(CodesOf(PutTogether(Small(5))), Each(EHOSTUNREACH));
}

TEST_F(TogetherTest, WithoutAnAnswerAllOfThemTimeOutOnce) {
  std::atomic<bool> heard = false;
  std::promise<void> answer;
  Serve([&](Connection& session, const Asked& request) {
    if (heard.exchange(true)) return AnswerAll(session, request, kinetic::Status::SUCCESS);
    answer.get_future().wait();
    AnswerAll(session, request, kinetic::Status::SUCCESS);  // too late
  });
  const Time begin = runtime_.Now();
  const auto terms = [&](size_t i) { return Terms(begin + 100ms + static_cast<int>(i) * 1ms); };
  EXPECT_THAT(CodesOf(PutTogether(Small(4), terms)), Each(ETIMEDOUT));
  EXPECT_GE(runtime_.Now() - begin, 103ms) << "the last of them had so long";
  EXPECT_EQ(drive_->times()->timeouts, 4u);
  answer.set_value();
  EXPECT_THAT(CodesOf(PutTogether(Small(2))), Each(0)) << "the connection is as good as before";
}

// Nor does it wait for ever who does what he should not.
TEST_F(TogetherTest, WhatIsHeldBackTimesOutAsWell) {
  Serve(Good());
  const SendTogether together;
  std::promise<Status> put;
  drive_->Put({.key = "k"}, runtime_.Now() + 30ms,
              [&](Status status) { put.set_value(std::move(status)); });
  EXPECT_FAILS(put.get_future().get(), ETIMEDOUT);
  std::promise<Status> lost;
  drive_->Put({.key = "k"}, Soon(), [&](Status status) { lost.set_value(std::move(status)); });
  drive_.reset();
  EXPECT_FAILS(lost.get_future().get(), EHOSTUNREACH);
}

// Other threads, and answers that come meanwhile, leave alone what is to go together.
TEST_F(TogetherTest, NobodyElseSendsAPartOfThem) {
  Serve(Good());
  std::vector<std::promise<Status>> answers(3);
  {
    const SendTogether together;
    for (int i = 0; i < 3; ++i) {
      drive_->Put({.key = "k"}, runtime_.Now() + 20s,
                  [&answers, i](Status status) { answers[i].set_value(std::move(status)); });
      std::promise<Status> other;
      std::jthread([&] {
        drive_->Put({.key = "other"}, Soon(),
                    [&](Status status) { other.set_value(std::move(status)); });
      });
      EXPECT_OK(other.get_future().get());
    }
  }
  for (auto& each : answers) EXPECT_OK(each.get_future().get());
  EXPECT_THAT(Messages(), ElementsAre(1, 1, 1, 3));
}

TEST_F(TogetherTest, DestroyingTheDriveAnswersThem) {
  std::promise<void> came;
  Serve([&](Connection& session, const Asked&) {
    came.set_value();
    session.WaitForEnd();
  });
  std::vector<std::promise<Status>> answers(3);
  {
    const SendTogether together;
    const Time deadline = Soon();
    for (int i = 0; i < 3; ++i) {
      drive_->Put({.key = "k"}, deadline,
                  [&answers, i](Status status) { answers[i].set_value(std::move(status)); });
    }
  }
  came.get_future().wait();
  drive_.reset();
  for (auto& each : answers) EXPECT_FAILS(each.get_future().get(), EHOSTUNREACH);
}

// Reads that follow puts.
class ThenGetTest : public TogetherTest {
 protected:
  static constexpr std::string_view kCanRead =
      "guards 1\nrooms 1\nunerased 1\nputs 1\nthen_gets 1\n";

  struct Answers {
    std::promise<Status> put;
    std::promise<Result<Record>> read;
    std::atomic<bool> read_came_first = false;
    std::atomic<bool> put_came = false;
    Status Put() { return put.get_future().get(); }
    Result<Record> Read() { return read.get_future().get(); }
  };
  using AnswersPtr = std::shared_ptr<Answers>;

  AnswersPtr Ask(const std::string& key, const std::string& then_get, Time deadline,
                 const std::string& value = "v") {
    const auto answers = std::make_shared<Answers>();
    drive_->PutThenGet(
        {.key = key, .value = SharedBytes(value)}, then_get, deadline,
        [answers](Status status) {
          answers->put_came = true;
          answers->put.set_value(std::move(status));
        },
        [answers](Result<Record> record) {
          answers->read_came_first = !answers->put_came;
          answers->read.set_value(std::move(record));
        });
    return answers;
  }
  AnswersPtr Ask(const std::string& key, const std::string& then_get) {
    return Ask(key, then_get, Soon());
  }
  // Two puts with reads, and a plain one between them, all of which are made.
  std::pair<AnswersPtr, AnswersPtr> AskAroundAPut(const std::string& get_first,
                                                  const std::string& get_last) {
    const Time deadline = Soon();
    std::promise<Status> plain;
    std::pair<AnswersPtr, AnswersPtr> asked;
    {
      const SendTogether together;
      asked.first = Ask("a", get_first, deadline);
      drive_->Put({.key = "b"}, deadline, [&](Status put) { plain.set_value(std::move(put)); });
      asked.second = Ask("c", get_last, deadline);
    }
    EXPECT_OK(asked.first->Put());
    EXPECT_OK(plain.get_future().get());
    EXPECT_OK(asked.second->Put());
    return asked;
  }

  static void Tell(kinetic::Puts::Record* told, const std::string& key, uint32_t value_bytes) {
    kinetic::Puts::Read* read = told->mutable_read();
    read->mutable_status()->set_code(kinetic::Status::SUCCESS);
    read->mutable_keyvalue()->set_key(key);
    read->mutable_keyvalue()->set_dbversion("version of " + key);
    read->mutable_keyvalue()->set_tag("tag4");
    if (value_bytes > 0) read->set_valuebytes(value_bytes);
  }

  // All was made, and what was to be read has its key for a value. `spoil` changes the answer.
  static Script Reads(const std::function<void(kinetic::Puts*, std::string*)>& spoil =
                          [](auto*, auto*) {}) {
    return [spoil](Connection& session, const Asked& request) {
      const kinetic::Body& asked = request.command.body();
      if (request.command.header().messagetype() == Header::GET) {
        return session.AnswerEntry(request, "asked for alone", "by itself");
      }
      kinetic::Puts told;
      std::string values;
      for (const kinetic::Puts::Record& record : asked.puts().records()) {
        told.add_records()->mutable_status()->set_code(kinetic::Status::SUCCESS);
        if (!record.has_thenget()) continue;
        Tell(&*told.mutable_records()->rbegin(), record.thenget(),
             static_cast<uint32_t>(record.thenget().size()));
        values += record.thenget();
      }
      spoil(&told, &values);
      session.Answer(
          request, [&](kinetic::Body* body) { *body->mutable_puts() = told; }, values);
    };
  }

  std::vector<int> Types() {
    const std::lock_guard lock(mutex_);
    std::vector<int> types;
    for (const Asked& each : asked_) types.push_back(each.command.header().messagetype());
    return types;
  }
};

TEST_F(ThenGetTest, AloneIsAMessageOfOnePut) {
  Serve(Reads(), kCanRead);
  const uint64_t reads = drive_->times()->reads.Load().count();
  const uint64_t read_bytes = drive_->times()->read_bytes;
  const AnswersPtr answers = Ask("entry", "inode");
  const Result<Record> record = answers->Read();
  EXPECT_OK(answers->Put());
  ASSERT_OK(record);
  EXPECT_EQ(record->version, "version of inode");
  EXPECT_EQ(record->tag, "tag4");
  EXPECT_EQ(record->value.text(), "inode");
  EXPECT_TRUE(answers->read_came_first);
  EXPECT_TRUE(drive_->capabilities().then_gets);
  EXPECT_THAT(Types(), ElementsAre(Header::PUTS));
  EXPECT_EQ(asked_[0].command.body().puts().records(0).thenget(), "inode");
  EXPECT_EQ(asked_[0].value, "v");
  EXPECT_EQ(drive_->times()->writes.Load().count(), 1u);
  EXPECT_EQ(drive_->times()->reads.Load().count(), reads + 1);
  EXPECT_EQ(drive_->times()->read_bytes, read_bytes + 5);
}

TEST_F(ThenGetTest, GoTogetherWithOtherPuts) {
  Serve(Reads(), kCanRead);
  const auto [first, last] = AskAroundAPut("inode 1", "2");
  EXPECT_EQ(first->Read()->value.text(), "inode 1");
  EXPECT_EQ(last->Read()->value.text(), "2");
  EXPECT_THAT(Messages(), ElementsAre(3));
}

TEST_F(ThenGetTest, NoMoreThanFitAreInAMessage) {
  Serve(Reads(), kCanRead);
  const Time deadline = Soon();
  std::vector<AnswersPtr> answers;
  {
    const SendTogether together;
    for (size_t i = 0; i < kMostThenGetsTogether + 3; ++i)
      answers.push_back(Ask("k", "r", deadline));
  }
  for (const AnswersPtr& each : answers) {
    EXPECT_OK(each->Put());
    EXPECT_OK(each->Read());
  }
  EXPECT_THAT(Messages(), ElementsAre(kMostThenGetsTogether, 3));
}

TEST_F(ThenGetTest, ALargePutMayBeFollowedToo) {
  Serve(Reads(), kCanRead);
  const AnswersPtr answers = Ask("k", "r", Soon(), std::string(kMaxValueBytes, 'v'));
  EXPECT_OK(answers->Put());
  EXPECT_OK(answers->Read());
  EXPECT_THAT(Types(), ElementsAre(Header::PUTS));
}

TEST_F(ThenGetTest, ADeviceThatCannotIsAskedForTheRecordAfterThePut) {
  for (const std::string_view can :
       {std::string_view("guards 1\nrooms 1\nunerased 1\nputs 1\n"),
        std::string_view("unerased 1\nthen_gets 1\n"), std::string_view("puts 1\nthen_gets 1\n")}) {
    asked_.clear();
    Serve(
        [](Connection& session, const Asked& request) {
          if (request.command.header().messagetype() == Header::GET) {
            return session.AnswerEntry(request, "1", "by itself");
          }
          AnswerAll(session, request, kinetic::Status::SUCCESS);
        },
        can);
    EXPECT_FALSE(drive_->capabilities().then_gets);
    const AnswersPtr answers = Ask("entry", "inode");
    EXPECT_OK(answers->Put());
    EXPECT_EQ(answers->Read()->value.text(), "by itself");
    EXPECT_THAT(Types(), ElementsAre(Header::PUT, Header::GET));
    drive_.reset();
  }
}

TEST_F(ThenGetTest, WhatDidNotFitIsAskedForByItself) {
  Serve(Reads([](kinetic::Puts* told, std::string* values) {
          told->mutable_records(0)->mutable_read()->Clear();
          told->mutable_records(0)->mutable_read()->mutable_status()->set_code(
              kinetic::Status::SERVICE_BUSY);
          values->clear();
        }),
        kCanRead);
  const AnswersPtr answers = Ask("entry", "inode");
  EXPECT_OK(answers->Put());
  EXPECT_EQ(answers->Read()->value.text(), "by itself");
  EXPECT_THAT(Types(), ElementsAre(Header::PUTS, Header::GET));
}

TEST_F(ThenGetTest, EachHasItsOwnFailure) {
  const struct {
    kinetic::Status::Code code;
    int error;
  } kFailures[] = {{kinetic::Status::NOT_FOUND, ENOENT},
                   {kinetic::Status::NOT_AUTHORIZED, EACCES},
                   {kinetic::Status::PERM_DATA_ERROR, EBADMSG}};
  for (const auto& failure : kFailures) {
    Serve(Reads([&](kinetic::Puts* told, std::string* values) {
            told->mutable_records(0)->clear_read();
            told->mutable_records(0)->mutable_read()->mutable_status()->set_code(failure.code);
            values->clear();
          }),
          kCanRead);
    const AnswersPtr answers = Ask("entry", "inode");
    EXPECT_OK(answers->Put());
    const Result<Record> read = answers->Read();
    EXPECT_FAILS(read, failure.error);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr("drive 3"));
    drive_.reset();
  }
  Serve(Reads([](kinetic::Puts* told, std::string* values) {
          told->mutable_records(0)->clear_read();
          told->mutable_records(0)->mutable_status()->set_code(kinetic::Status::VERSION_MISMATCH);
          values->clear();
        }),
        kCanRead);
  const AnswersPtr stale = Ask("entry", "inode");
  EXPECT_FAILS(stale->Put(), ESTALE);
  EXPECT_FAILS(stale->Read(), ESTALE);
}

// Of two reads, and a put without one, in one message.
TEST_F(ThenGetTest, AnswersThatDoNotAddUpTellOfNoRead) {
  using Puts = kinetic::Puts;
  const std::function<void(Puts*, std::string*)> kSpoilers[] = {
      [](Puts* told, auto*) { told->mutable_records(0)->clear_read(); },
      [](Puts* told, auto*) { Tell(told->mutable_records(1), "nobody asked", 0); },
      [](auto*, std::string* values) { *values += "more"; },
      [](auto*, std::string* values) { values->pop_back(); },
      [](auto*, std::string* values) { values->clear(); },
      [](Puts* told, auto*) {
        told->mutable_records(0)->mutable_read()->set_valuebytes(0x80000000);
        told->mutable_records(2)->mutable_read()->set_valuebytes(0x80000002);  // in 32 bits, 2
      },
      [](Puts* told, auto*) {
        told->mutable_records(0)->mutable_read()->mutable_status()->set_code(
            kinetic::Status::NOT_FOUND);  // but has a value
      },
      [](Puts* told, auto*) {
        told->mutable_records(0)->mutable_read()->mutable_status()->clear_code();
      },
  };
  for (const auto& spoil : kSpoilers) {
    Serve(Reads(spoil), kCanRead);
    const auto [first, last] = AskAroundAPut("x", "y");
    EXPECT_FAILS(first->Read(), EHOSTUNREACH);
    EXPECT_FAILS(last->Read(), EHOSTUNREACH);
    drive_.reset();
  }
  // One that is sound, but for its key, is no better.
  Serve(Reads([](Puts* told, auto*) {
          told->mutable_records(0)->mutable_read()->mutable_keyvalue()->set_key("another");
        }),
        kCanRead);
  const AnswersPtr mixed_up = Ask("entry", "inode");
  EXPECT_OK(mixed_up->Put());
  EXPECT_FAILS(mixed_up->Read(), EBADMSG);
}

TEST_F(ThenGetTest, WithoutAnAnswerBothFail) {
  Serve([](Connection& session, const Asked&) { session.Send("no Kinetic"); }, kCanRead);
  const AnswersPtr lost = Ask("entry", "inode");
  EXPECT_FAILS(lost->Put(), EHOSTUNREACH);
  EXPECT_FAILS(lost->Read(), EHOSTUNREACH);
  const AnswersPtr wrong = Ask("entry", std::string(kMaxKeyBytes + 1, 'k'));
  EXPECT_FAILS(wrong->Put(), EINVAL);
  EXPECT_FAILS(wrong->Read(), EINVAL);
}

// The bytes on the wire.
TEST(PutsBytes, AreTheseForTwoPuts) {
  kinetic::Command command;
  command.mutable_header()->set_messagetype(Header::PUTS);
  const std::vector<KineticOperationPtr> puts = {
      NewPut({.key = "a", .value = std::string("xy"), .version = "1"}, Time(), nullptr),
      NewPut({.key = "b", .expected = Expected::Absent()}, Time(), nullptr)};
  const KineticOperationPtr together = NewPutsTogether(puts, Time());
  EXPECT_EQ(together->message_type(), Header::PUTS);
  together->Describe({.puts = true}, command.mutable_body());
  EXPECT_EQ(Hex(AsBytes(command.SerializeAsString())),
            "0a023864"                          // header
            "121ca20619"                        // body, puts
            "0a0e0a0a1201311a0161400148021002"  // version, key, force, when; bytes
            "0a070a051a01624802");
  EXPECT_EQ(together->value().text(), "xy");
}

TEST(PutsBytes, AreTheseForAReadAfterAPut) {
  kinetic::Command command;
  command.mutable_header()->set_messagetype(Header::PUTS);
  const KineticOperationPtr together =
      NewPutsTogether({NewPutThenGet({.key = "a", .value = std::string("xy"), .version = "1"}, "r",
                                     Time(), nullptr, nullptr, nullptr)},
                      Time());
  together->Describe({.puts = true, .then_gets = true}, command.mutable_body());
  EXPECT_EQ(Hex(AsBytes(command.SerializeAsString())),
            "0a023864"                                  // header
            "1216a20613"                                // body, puts
            "0a110a0a1201311a0161400148021002220172");  // as above; what is read
  EXPECT_EQ(together->value().text(), "xy");
  kinetic::Puts told;
  kinetic::Puts::Record* record = told.add_records();
  record->mutable_status()->set_code(kinetic::Status::SUCCESS);
  record->mutable_read()->mutable_status()->set_code(kinetic::Status::SUCCESS);
  record->mutable_read()->mutable_keyvalue()->set_key("r");
  record->mutable_read()->set_valuebytes(2);
  EXPECT_EQ(Hex(AsBytes(told.SerializeAsString())),
            "0a111a020801"            // of the put
            "2a0b0a02080112031a0172"  // of the read: status, key
            "1802");                  // bytes
}

}  // namespace
}  // namespace pinstripe
