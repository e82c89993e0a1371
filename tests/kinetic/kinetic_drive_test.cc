// The Kinetic client against devices that behave well, and against devices that do not.

#include "kinetic/kinetic_drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <thread>

#include "base/log.h"
#include "base/program.h"
#include "base/real_runtime.h"
#include "base/send_together.h"
#include "kinetic/frame.h"
#include "kinetic/message.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/kinetic/fake_device.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Session = FakeDevice::Session;
using Request = FakeDevice::Request;
using testing::HasSubstr;

// An answer that comes later. A second answer throws, on the drive's thread, and ends the test.
template <typename T>
class Later {
 public:
  auto callback() {
    return [promise = promise_](T answer) { promise->set_value(std::move(answer)); };
  }
  T Wait() { return future_.get(); }
  bool IsThere() const { return future_.wait_for(0s) == std::future_status::ready; }

 private:
  std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
  std::future<T> future_ = promise_->get_future();
};

std::string Letters(size_t size, size_t salt = 0) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i + salt) % 23);
  return text;
}

class KineticDriveTest : public testing::Test {
 protected:
  KineticDriveTest() { SetLogLevel(LogLevel::kError); }
  ~KineticDriveTest() override { SetLogLevel(LogLevel::kInfo); }

  KineticDrive::Options OptionsFor(std::vector<std::string> addresses) {
    KineticDrive::Options options;
    options.name = "drive 3";
    options.addresses = std::move(addresses);
    options.key = FakeDevice::kKey;
    options.least_backoff = 1ms;
    options.most_backoff = 10ms;
    return options;
  }

  std::unique_ptr<KineticDrive> DriveAt(std::vector<std::string> addresses) {
    return std::make_unique<KineticDrive>(io_, OptionsFor(std::move(addresses)));
  }

  Time In(Duration delay) { return runtime_.Now() + delay; }
  Time Soon() { return In(20s); }  // long enough for a machine that is busy with something else

  Result<Record> Get(Drive& drive, std::string key, ValueRange range = {}) {
    Later<Result<Record>> later;
    drive.Get(std::move(key), range, Soon(), later.callback());
    return later.Wait();
  }

  Result<RecordHead> Head(Drive& drive, std::string key) {
    Later<Result<RecordHead>> later;
    drive.Head(std::move(key), Soon(), later.callback());
    return later.Wait();
  }

  Status Put(Drive& drive, Drive::PutRequest request) {
    Later<Status> later;
    drive.Put(std::move(request), Soon(), later.callback());
    return later.Wait();
  }

  // Asks until the drive is not away any more.
  Result<Record> GetOnceItIsBack(Drive& drive, const std::string& key) {
    for (;;) {
      Result<Record> record = Get(drive, key);
      if (record || record.error().code() != EHOSTUNREACH) return record;
      std::this_thread::yield();
    }
  }

  void WaitUntilUp(Drive& drive) {
    while (!drive.IsUp()) std::this_thread::yield();
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
};

// --- Devices that are erased

// Foreign ones keep the connection, and have no word for it: so what an empty one would say as well
// is believed only when the superblock is still there after it.
TEST_F(KineticDriveTest, WhatAForeignDeviceDoesNotHaveIsBelievedWhenItIsStillTheSameDrive) {
  std::vector<std::string> asked;  // of the first connection
  std::atomic<bool> emptied = false;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    for (;;) {
      const Request request = session.Next();
      const kinetic::Header::MessageType type = request.command.header().messagetype();
      const std::string& key = request.command.body().keyvalue().key();
      if (session.number() == 0) asked.push_back(key);
      if (type == kinetic::Header::GET && key == "superblock" && !emptied) {
        session.AnswerEntry(request, "1", "who I am");
      } else if (type == kinetic::Header::GET || type == kinetic::Header::DELETE) {
        session.Answer(request, kinetic::Status::NOT_FOUND);
      } else {
        session.Answer(request);
      }
    }
  });
  KineticDrive::Options options = OptionsFor({device.address()});
  options.identity_key = "superblock";
  options.check_identity = [](const Result<Record>& record, const Result<DriveInfo>&) {
    return record.has_value() ? Status() : Status(record.error());
  };
  KineticDrive drive(io_, options);
  const auto range = [&] {
    Later<Result<std::vector<std::string>>> later;
    drive.Range("a", "z", 10, false, Soon(), later.callback());
    return later.Wait();
  };
  EXPECT_FAILS(Get(drive, "k"), ENOENT);
  EXPECT_FAILS(Head(drive, "k"), ENOENT);
  EXPECT_OK(range());
  EXPECT_OK(Put(drive, {.key = "k", .expected = Expected::Absent()}));
  EXPECT_OK(Put(drive, {.key = "k", .expected = Expected::Any()}));
  emptied = true;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FAILS(Get(drive, "k"), EHOSTUNREACH);
    EXPECT_FAILS(Head(drive, "k"), EHOSTUNREACH);
    EXPECT_FAILS(range(), EHOSTUNREACH);
    EXPECT_FAILS(Put(drive, {.key = "k", .expected = Expected::Absent()}), EHOSTUNREACH);
  }
  EXPECT_FALSE(drive.IsUp());
  device.Stop();
  const std::vector<std::string> expected = {
      "superblock", "",                               // when it connected
      "k",          "superblock", "k", "superblock",  // two reads
      "",           "superblock", "k", "superblock",  // list and put
      "k",                                            // a forced one
      "k",          "superblock"};                    // emptied
  EXPECT_EQ(asked, expected);
}

// --- Operations

// A name is for devices that want to know it; others may do without what they do not expect.
TEST_F(KineticDriveTest, ADeviceOfOthersIsNotToldWhoWeAre) {
  SetProgram({.name = "test", .version = "1", .detail = ""});
  std::vector<Request> asked;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    asked.push_back(session.Next());
    session.Answer(asked.back(), kinetic::Status::NOT_FOUND);
    asked.push_back(session.Next());
    session.Answer(asked.back(),
                   [](kinetic::Body* body) { body->mutable_getlog()->add_clients(); });
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  for (int i = 0; i < 2; ++i) {
    Later<Result<DriveUse>> later;
    drive->AskUse(Soon(), later.callback());
    EXPECT_FAILS(later.Wait(), ENOTSUP);
  }
  drive.reset();
  device.Stop();
  SetProgram({});
  ASSERT_EQ(asked.size(), 2u);
  for (const Request& request : asked) {
    EXPECT_EQ(request.command.body().getlog().device().name(), kClientsLog);
    EXPECT_FALSE(request.command.body().getlog().has_client());
  }
}

TEST_F(KineticDriveTest, AGetIsByteForByteWhatKineticExpects) {
  std::string frame;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request get = session.Next();
    frame = get.frame;
    session.AnswerEntry(get, "v1", "world");
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const Result<Record> record = Get(*drive, "hello");
  ASSERT_OK(record);
  EXPECT_EQ(record->version, "v1");
  EXPECT_EQ(record->tag, "tag.");
  EXPECT_EQ(record->value.text(), "world");
  device.Stop();
  // But for what is ours alone, and for the number, which begins anywhere.
  kinetic::Message message;
  kinetic::Command command;
  ASSERT_OK(ParseMessage(AsBytes(frame).subspan(kFrameHeaderBytes), &message));
  ASSERT_OK(ParseCommand(message, &command));
  EXPECT_TRUE(command.header().bound());
  command.mutable_header()->clear_bound();
  command.mutable_header()->set_sequence(4);
  EXPECT_EQ(Hex(AsBytes(SignedFrame(command, FakeDevice::kIdentity, HmacKey(FakeDevice::kKey), 0))),
            kKineticVectors[3].request);
}

TEST_F(KineticDriveTest, APutSaysWhatItRequiresAndHowDurableItMustBe) {
  std::vector<Request> puts;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    for (;;) {
      puts.push_back(session.Next());
      session.Answer(puts.back());
    }
  });
  {
    auto drive = DriveAt({device.address()});
    ASSERT_OK(Put(*drive, {.key = "k",
                           .value = std::string("value"),
                           .version = "v2",
                           .tag = "tag4",
                           .expected = Expected::Version("v1"),
                           .durability = Durability::kWriteThrough}));
    ASSERT_OK(Put(*drive, {.key = "k", .expected = Expected::Absent()}));
    ASSERT_OK(Put(*drive, {.key = "k", .expected = Expected::Any()}));
  }
  device.Stop();
  ASSERT_EQ(puts.size(), 3u);
  EXPECT_TRUE(puts[0].authentic && puts[1].authentic && puts[2].authentic);
  const kinetic::KeyValue& first = puts[0].command.body().keyvalue();
  EXPECT_EQ(puts[0].command.header().connectionid(), FakeDevice::kConnectionId);
  EXPECT_EQ(puts[0].value, "value");
  EXPECT_EQ(first.key() + first.newversion() + first.dbversion() + first.tag(), "kv2v1tag4");
  EXPECT_EQ(first.algorithm(), 4);
  EXPECT_EQ(first.synchronization(), kinetic::KeyValue::WRITETHROUGH);
  EXPECT_FALSE(first.force());
  const kinetic::KeyValue& second = puts[1].command.body().keyvalue();
  EXPECT_EQ(second.dbversion(), "");
  EXPECT_FALSE(second.force());
  EXPECT_EQ(second.synchronization(), kinetic::KeyValue::WRITEBACK);
  EXPECT_TRUE(puts[2].command.body().keyvalue().force());
}

TEST_F(KineticDriveTest, RangeFlushInfoAndDeleteAskAndUnderstandWhatTheyShould) {
  std::vector<Request> asked;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    asked.push_back(session.Next());
    session.Answer(asked.back(), [](kinetic::Body* body) {
      body->mutable_range()->add_keys("k2");
      body->mutable_range()->add_keys("k1");
    });
    asked.push_back(session.Next());
    session.Answer(asked.back());
    asked.push_back(session.Next());
    session.Answer(asked.back(), [](kinetic::Body* body) {
      kinetic::GetLog* log = body->mutable_getlog();
      log->mutable_capacity()->set_nominalcapacityinbytes(1000);
      log->mutable_capacity()->set_portionfull(0.25f);
      log->add_temperatures()->set_current(30);
      log->add_temperatures()->set_current(41);
      log->mutable_configuration()->set_vendor("Acme");
      log->mutable_configuration()->set_serialnumber("S1");
    });
    asked.push_back(session.Next());
    session.Answer(asked.back(), kinetic::Status::NOT_FOUND);
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});

  Later<Result<std::vector<std::string>>> keys;
  drive->Range("k1", "k9", 2, true, Soon(), keys.callback());
  const auto found = keys.Wait();
  ASSERT_OK(found);
  EXPECT_THAT(*found, testing::ElementsAre("k2", "k1"));
  Later<Status> flushed;
  drive->Flush(Soon(), flushed.callback());
  EXPECT_OK(flushed.Wait());
  Later<Result<DriveInfo>> info;
  drive->Info(Soon(), info.callback());
  const Result<DriveInfo> told = info.Wait();
  ASSERT_OK(told);
  EXPECT_EQ(told->capacity_bytes, 1000u);
  EXPECT_EQ(told->portion_full, 0.25);
  EXPECT_EQ(told->temperature_celsius, 41);
  EXPECT_EQ(told->vendor + told->serial_number, "AcmeS1");
  Later<Status> deleted;
  drive->Delete("k1", Expected::Version("v1"), Durability::kWriteBack, Soon(), deleted.callback());
  const Status absent = deleted.Wait();
  EXPECT_FAILS(absent, ENOENT);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("drive 3 (" + device.address() + "): "));

  device.Stop();
  const kinetic::Range& range = asked[0].command.body().range();
  EXPECT_EQ(range.startkey() + range.endkey(), "k1k9");
  EXPECT_TRUE(range.startkeyinclusive() && range.endkeyinclusive() && range.reverse());
  EXPECT_EQ(range.maxreturned(), 2u);
  EXPECT_EQ(asked[1].command.header().messagetype(), kinetic::Header::FLUSHALLDATA);
  EXPECT_EQ(asked[3].command.body().keyvalue().dbversion(), "v1");
}

// --- What a device says of its starts

class KineticDriveStarts : public KineticDriveTest {
 protected:
  // What the drive makes of such an answer.
  Result<DriveInfo> Info(const std::function<void(kinetic::GetLog*)>& fill) {
    FakeDevice device([&](Session& session) {
      session.Handshake();
      session.Answer(session.Next(), [&](kinetic::Body* body) { fill(body->mutable_getlog()); });
      session.WaitForEnd();
    });
    const auto drive = DriveAt({device.address()});
    Later<Result<DriveInfo>> info;
    drive->Info(Soon(), info.callback());
    return info.Wait();
  }
  static void Add(kinetic::GetLog* log, uint64_t id, bool clean) {
    log->add_starts()->set_id(id);
    log->mutable_starts(log->starts_size() - 1)->set_clean(clean);
    log->set_startcount(log->startcount() + 1);
  }
};

TEST_F(KineticDriveStarts, AreAskedForWithEverythingElse) {
  const Result<DriveInfo> info = Info([](kinetic::GetLog* log) {
    Add(log, UINT64_MAX, false);
    Add(log, 1, true);
    log->set_startcount(1000);
    log->set_upmilliseconds(1500);
  });
  ASSERT_OK(info);
  EXPECT_THAT(info->starts,
              testing::ElementsAre(DriveStart{UINT64_MAX, false}, DriveStart{1, true}));
  EXPECT_EQ(info->start_count, 1000u);
  EXPECT_EQ(info->up, 1500ms);
}

TEST_F(KineticDriveStarts, OfADeviceThatDoesNotKnowThemThereAreNone) {
  const Result<DriveInfo> info = Info([](kinetic::GetLog*) {});
  ASSERT_OK(info);
  EXPECT_THAT(info->starts, testing::IsEmpty());
  EXPECT_EQ(info->start_count, 0u);
  EXPECT_EQ(info->up, std::nullopt);
}

TEST_F(KineticDriveStarts, ThatCannotBeAreNotGoneBy) {
  const std::function<void(kinetic::GetLog*)> impossible[] = {
      [](kinetic::GetLog* log) { Add(log, 0, true); },
      [](kinetic::GetLog* log) { log->set_startcount(1), log->add_starts(); },
      [](kinetic::GetLog* log) { Add(log, 5, true), Add(log, 5, true); },
      [](kinetic::GetLog* log) { Add(log, 5, true), log->set_startcount(0); },
      [](kinetic::GetLog* log) { log->set_upmilliseconds(UINT64_MAX); },
      [](kinetic::GetLog* log) {
        for (uint64_t id = 1; id <= kMaxDriveStarts + 1; ++id) Add(log, id, true);
      },
  };
  for (const auto& fill : impossible) {
    const Result<DriveInfo> info = Info(fill);
    ASSERT_FAILS(info, EIO);
    EXPECT_THAT(std::string(info.error().message()), HasSubstr("its starts cannot be"));
  }
  const Result<DriveInfo> most = Info([](kinetic::GetLog* log) {
    for (uint64_t id = 1; id <= kMaxDriveStarts; ++id) Add(log, id, true);
  });
  ASSERT_OK(most);
  EXPECT_EQ(most->starts.size(), kMaxDriveStarts);
}

TEST_F(KineticDriveTest, APartIsAskedForWhereTheDeviceCanAndCutOutWhereItCannot) {
  for (const bool range_get : {true, false}) {
    std::vector<Request> gets;
    FakeDevice device([&](Session& session) {
      session.Handshake(range_get);
      for (;;) {
        gets.push_back(session.Next());
        const kinetic::KeyValue& entry = gets.back().command.body().keyvalue();
        std::string value = "0123456789";
        if (entry.has_valueoffset()) {
          value = entry.valueoffset() < value.size()
                      ? value.substr(entry.valueoffset(), entry.valuelength())
                      : "";
        }
        session.AnswerEntry(gets.back(), "v", value);
      }
    });
    {
      auto drive = DriveAt({device.address()});
      EXPECT_EQ(Get(*drive, "k", {.offset = 3, .length = 4})->value.text(), "3456");
      EXPECT_EQ(Get(*drive, "k", {.offset = 8, .length = 4})->value.text(), "89");
      EXPECT_EQ(Get(*drive, "k", {.offset = 10, .length = 4})->value.text(), "");
      EXPECT_EQ(Get(*drive, "k", {.offset = 4000000000, .length = 4})->value.text(), "");
      EXPECT_EQ(Get(*drive, "k")->value.text(), "0123456789");
      EXPECT_EQ(drive->capabilities().range_get, range_get);
    }
    device.Stop();
    EXPECT_EQ(gets[0].command.body().keyvalue().has_valueoffset(), range_get);
    EXPECT_FALSE(gets[4].command.body().keyvalue().has_valueoffset());
  }
}

TEST_F(KineticDriveTest, OfAVersionAPartIsAskedForWhereTheDeviceCanAndCutOutWhereItCannot) {
  for (const bool version_part : {true, false}) {
    std::vector<Request> gets;
    FakeDevice device([&](Session& session) {
      session.Handshake(version_part);
      for (;;) {
        gets.push_back(session.Next());
        const kinetic::KeyValue& entry = gets.back().command.body().keyvalue();
        VersionPart part;
        if (entry.has_versionhead()) {
          part = {entry.versionhead(), entry.versionoffset(), entry.versionlength()};
        }
        session.AnswerEntry(gets.back(), part.CutFrom("0123456789"), "");
      }
    });
    {
      auto drive = DriveAt({device.address()});
      const auto version = [&](const VersionPart& part) {
        return Get(*drive, "k", {.offset = 0, .length = 4, .version = part})->version;
      };
      EXPECT_EQ(version({.head = 2, .offset = 5, .length = 3}), "01567");
      EXPECT_EQ(version({.head = 2, .offset = 8, .length = 3}), "0189");
      EXPECT_EQ(version({.head = 2, .offset = 10, .length = 3}), "01");
      EXPECT_EQ(version({.head = 0, .offset = 4000000000, .length = UINT32_MAX}), "");
      EXPECT_EQ(version({.head = 20, .offset = 0, .length = 0}), "0123456789");
      EXPECT_EQ(version({}), "0123456789");
      EXPECT_EQ(drive->capabilities().version_part, version_part);
    }
    device.Stop();
    EXPECT_EQ(gets[0].command.body().keyvalue().has_versionhead(), version_part);
    EXPECT_FALSE(gets[5].command.body().keyvalue().has_versionhead());
  }
}

TEST_F(KineticDriveTest, MoreOfAVersionThanWasAskedForIsDamage) {
  FakeDevice device([&](Session& session) {
    session.Handshake(true);
    for (;;) session.AnswerEntry(session.Next(), "0123456789", "");
  });
  auto drive = DriveAt({device.address()});
  EXPECT_FAILS(Get(*drive, "k", {.version = {.head = 2, .offset = 5, .length = 3}}), EBADMSG);
}

// A device that has one kind of space is told nothing that it does not know.
TEST_F(KineticDriveTest, WhatAPutMayTakeIsSaidWhereTheDeviceKnowsOfIt) {
  for (const bool rooms : {true, false}) {
    std::vector<Request> puts;
    FakeDevice device([&](Session& session) {
      session.Handshake(rooms);
      for (;;) {
        puts.push_back(session.Next());
        session.Answer(puts.back());
      }
    });
    {
      auto drive = DriveAt({device.address()});
      for (const Room room : {Room::kData, Room::kNames, Room::kFreeing}) {
        Later<Status> put;
        drive->Put({.key = "k", .value = {}, .version = "v", .tag = {}, .room = room}, Soon(),
                   put.callback());
        EXPECT_OK(put.Wait());
      }
      EXPECT_EQ(drive->capabilities().rooms, rooms);
    }
    device.Stop();
    EXPECT_FALSE(puts[0].command.body().keyvalue().has_room());
    EXPECT_EQ(puts[1].command.body().keyvalue().room(), rooms ? 2u : 0u);
    EXPECT_EQ(puts[2].command.body().keyvalue().room(), rooms ? 3u : 0u);
  }
}

// Never without it: the put would be made whatever became of the guard.
TEST_F(KineticDriveTest, APutWithAGuardIsNotSentToADeviceThatKnowsNone) {
  std::vector<Request> puts;
  FakeDevice device([&](Session& session) {
    session.Handshake(/*range_get=*/true);  // and all else
    for (;;) {
      puts.push_back(session.Next());
      session.Answer(puts.back());
    }
  });
  {
    auto drive = DriveAt({device.address()});
    const Guard guard{"dir", Expected::Version("open")};
    const Status early = Put(*drive, {.key = "early", .guard = guard});
    EXPECT_FAILS(early, ENOTSUP);
    EXPECT_THAT(std::string(early.message()), HasSubstr("drive 3"));
    EXPECT_THAT(std::string(early.message()), HasSubstr("update it"));
    WaitUntilUp(*drive);
    EXPECT_FALSE(drive->capabilities().guards);
    EXPECT_FAILS(Put(*drive, {.key = "late", .guard = guard}), ENOTSUP);
    EXPECT_OK(Put(*drive, {.key = "without"}));
  }
  device.Stop();
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_EQ(puts[0].command.body().keyvalue().key(), "without");
  EXPECT_FALSE(puts[0].command.body().keyvalue().has_guard());
}

TEST_F(KineticDriveTest, AGuardIsSaidWhereTheDeviceKnowsThem) {
  std::vector<Request> puts;
  FakeDevice device([&](Session& session) {
    session.Greet();
    session.Answer(session.Next(), nullptr, "guards 1\n");
    for (int i = 0; i < 2; ++i) {
      puts.push_back(session.Next());
      session.Answer(puts.back(),
                     i == 0 ? kinetic::Status::SUCCESS : kinetic::Status::GUARD_MISMATCH);
    }
    session.WaitForEnd();
  });
  {
    auto drive = DriveAt({device.address()});
    EXPECT_OK(Put(*drive, {.key = "k", .guard = Guard{"dir", Expected::Version("open")}}));
    EXPECT_FAILS(Put(*drive, {.key = "k", .guard = Guard{"dir", Expected::Absent()}}), ECANCELED);
    EXPECT_EQ(drive->times()->failures, 0u) << "it is an answer like others";
  }
  device.Stop();
  ASSERT_EQ(puts.size(), 2u);
  EXPECT_EQ(puts[0].command.body().keyvalue().guard().key(), "dir");
  EXPECT_EQ(puts[0].command.body().keyvalue().guard().version(), "open");
  EXPECT_EQ(puts[1].command.body().keyvalue().guard().version(), "");
}

TEST_F(KineticDriveTest, RecordsAreAskedForOneByOneWhereTheDeviceCannotListThem) {
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request range = session.Next();
    EXPECT_EQ(range.command.header().messagetype(), kinetic::Header::GETKEYRANGE);
    EXPECT_FALSE(range.command.body().range().has_valuelimit());
    EXPECT_EQ(range.command.body().range().maxreturned(), kMaxRangeKeys);
    session.Answer(range, [](kinetic::Body* body) {
      for (const char* key : {"a", "b", "c", "d"}) body->mutable_range()->add_keys(key);
    });
    for (int i = 0; i < 4; ++i) {
      const Request get = session.Next();
      const std::string key = get.command.body().keyvalue().key();
      if (key == "b") {
        session.Answer(get, kinetic::Status::NOT_FOUND);
      } else if (key == "c") {
        session.Answer(get, kinetic::Status::PERM_DATA_ERROR);
      } else {
        session.AnswerEntry(get, "v", key == "d" ? "too long" : "value");
      }
    }
    const Request again = session.Next();
    session.Answer(again);
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const auto list = [&] {
    Later<Result<RangeRecords>> later;
    drive->ListRecords("a", "z", kMaxRangeRecords, false, 5, Soon(), later.callback());
    return later.Wait();
  };
  const auto found = list();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_FALSE(found->more);
  ASSERT_EQ(found->records.size(), 3u) << "the second one was deleted meanwhile";
  EXPECT_EQ(found->records[0].key, "a");
  EXPECT_EQ(found->records[0].record.version, "v");
  EXPECT_EQ(found->records[0].record.value.text(), "value");
  EXPECT_TRUE(found->records[1].damaged);
  EXPECT_FALSE(found->records[2].has_value);
  EXPECT_TRUE(found->records[2].record.value.empty());
  EXPECT_TRUE(list()->records.empty());
}

TEST_F(KineticDriveTest, RecordsThatDoNotFitTheirValuesAreNotBelieved) {
  const std::vector<std::function<void(kinetic::Range*)>> lies = {
      [](kinetic::Range* range) { range->add_keys("another without a record"); },
      [](kinetic::Range* range) { range->set_keys(0, "~ outside"); },
      [](kinetic::Range* range) { range->mutable_records(0)->set_valuebytes(6); },
      [](kinetic::Range* range) { range->mutable_records(0)->set_valuebytes(4); },
      [](kinetic::Range* range) { range->mutable_records(0)->set_valuebytes(UINT32_MAX); },
      [](kinetic::Range* range) { range->mutable_records(0)->set_hasvalue(false); },
      [](kinetic::Range*) {},  // the truth
  };
  FakeDevice device([&](Session& session) {
    session.Greet();
    session.Answer(session.Next(), nullptr, "range_records 1\n");
    for (const auto& lie : lies) {
      session.Answer(
          session.Next(),
          [&](kinetic::Body* body) {
            kinetic::Range* range = body->mutable_range();
            range->add_keys("k");
            range->add_records()->set_valuebytes(5);
            range->mutable_records(0)->set_hasvalue(true);
            lie(range);
          },
          "value");
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  for (size_t i = 0; i < lies.size(); ++i) {
    Later<Result<RangeRecords>> later;
    drive->ListRecords("a", "z", 10, false, 100, Soon(), later.callback());
    const auto found = later.Wait();
    if (i + 1 < lies.size()) {
      EXPECT_FAILS(found, EBADMSG) << i;
    } else {
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(found->records[0].record.value.text(), "value");
    }
  }
}

TEST_F(KineticDriveTest, WhatIsOverALimitIsRefusedBeforeItIsSent) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  EXPECT_FAILS(Get(*drive, ""), EINVAL);
  EXPECT_FAILS(Get(*drive, std::string(kMaxKeyBytes + 1, 'k')), EINVAL);
  EXPECT_FAILS(Put(*drive, {.key = "k", .value = Buffer(kMaxValueBytes + 1)}), EINVAL);
  EXPECT_FAILS(Put(*drive, {.key = "k", .version = std::string(kMaxVersionBytes + 1, 'v')}),
               EINVAL);
  EXPECT_FAILS(Put(*drive, {.key = "k", .tag = std::string(kMaxTagBytes + 1, 't')}), EINVAL);
  Later<Result<std::vector<std::string>>> keys;
  drive->Range("a", "b", kMaxRangeKeys + 1, false, Soon(), keys.callback());
  EXPECT_FAILS(keys.Wait(), EINVAL);
}

TEST_F(KineticDriveTest, AnswersNeverComeInsideTheCall) {
  auto drive = DriveAt({DeadAddress()});
  ASSERT_FAILS(Get(*drive, "k"), EHOSTUNREACH);
  Later<std::thread::id> answered;
  auto callback = answered.callback();
  drive->Get("k", {}, Soon(), [&](Result<Record>) { callback(std::this_thread::get_id()); });
  EXPECT_NE(answered.Wait(), std::this_thread::get_id());
}

// --- Many at a time

TEST_F(KineticDriveTest, AnswersMayComeInAnyOrder) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    std::vector<Request> gets;
    for (int i = 0; i < 5; ++i) gets.push_back(session.Next());
    for (auto get = gets.rbegin(); get != gets.rend(); ++get) {
      session.AnswerEntry(*get, "v", "value of " + get->command.body().keyvalue().key());
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  std::vector<Later<Result<Record>>> later(5);
  for (int i = 0; i < 5; ++i) {
    drive->Get(fmt::format("k{}", i), {}, Soon(), later[i].callback());
  }
  for (int i = 0; i < 5; ++i) {
    const Result<Record> record = later[i].Wait();
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), fmt::format("value of k{}", i));
  }
}

// What is asked for together goes out at the end, whatever others send at the same time.
TEST_F(KineticDriveTest, WhatIsSentTogetherIsAnsweredLikeTheRest) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    for (int i = 0; i < 6; ++i) {
      const Request get = session.Next();
      session.AnswerEntry(get, "v", "value of " + get.command.body().keyvalue().key());
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  WaitUntilUp(*drive);
  std::vector<Later<Result<Record>>> later(5);
  {
    const SendTogether together;
    for (int i = 0; i < 4; ++i) {
      drive->Get(fmt::format("k{}", i), {}, Soon(), later[i].callback());
    }
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(later[i].IsThere());
    Later<Result<Record>> of_another_thread;
    std::jthread([&] { drive->Get("other", {}, Soon(), of_another_thread.callback()); });
    ASSERT_OK(of_another_thread.Wait());
    drive->Get("k4", {}, Soon(), later[4].callback());
  }
  for (int i = 0; i < 5; ++i) {
    const Result<Record> record = later[i].Wait();
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), fmt::format("value of k{}", i));
  }
}

TEST_F(KineticDriveTest, NoMoreIsInFlightThanTheDeviceAllowsAndTheRestWaitsItsTurn) {
  constexpr int kGets = 12;
  size_t most = 0;
  std::vector<std::string> order;
  FakeDevice device([&](Session& session) {
    kinetic::GetLog::Limits limits;
    limits.set_maxoutstandingreadrequests(3);
    session.Handshake(false, limits);
    std::deque<Request> outstanding;
    while (order.size() < kGets || !outstanding.empty()) {
      Request request;
      while (session.NextWithin(10, &request)) {
        order.push_back(request.command.body().keyvalue().key());
        outstanding.push_back(request);
        most = std::max(most, outstanding.size());
      }
      if (outstanding.empty()) continue;  // on a busy machine the first one may take a while
      session.AnswerEntry(outstanding.front(), "v", "");
      outstanding.pop_front();
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  WaitUntilUp(*drive);
  std::vector<Later<Result<Record>>> later(kGets);
  std::vector<std::string> asked;
  for (int i = 0; i < kGets; ++i) {
    asked.push_back(fmt::format("k{}", i));
    drive->Get(asked.back(), {}, Soon(), later[i].callback());
  }
  for (auto& each : later) EXPECT_OK(each.Wait());
  device.Stop();
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(order, asked);
}

TEST_F(KineticDriveTest, MoreThanTheSocketTakesIsSentWhenItCan) {
  constexpr int kPuts = 48;
  std::promise<void> all_issued;
  std::map<std::string, std::string> stored;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    all_issued.get_future().wait();
    for (int i = 0; i < kPuts; ++i) {
      Request put = session.Next();
      stored[put.command.body().keyvalue().key()] = std::move(put.value);
      session.Answer(put);
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  std::vector<Later<Status>> later(kPuts);
  for (int i = 0; i < kPuts; ++i) {
    drive->Put({.key = fmt::format("k{}", i), .value = Letters(kMaxValueBytes, i)}, Soon(),
               later[i].callback());
  }
  all_issued.set_value();
  for (auto& each : later) EXPECT_OK(each.Wait());
  device.Stop();
  ASSERT_EQ(stored.size(), static_cast<size_t>(kPuts));
  for (int i = 0; i < kPuts; ++i) {
    EXPECT_TRUE(stored[fmt::format("k{}", i)] == Letters(kMaxValueBytes, i)) << i;
  }
}

TEST_F(KineticDriveTest, ManyThreadsMayUseItAtOnce) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    for (;;) {
      const Request request = session.Next();
      session.AnswerEntry(request, "v", request.command.body().keyvalue().key() + request.value);
    }
  });
  auto drive = DriveAt({device.address()});
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = fmt::format("{}-{}", t, i);
        const Result<Record> record = Get(*drive, key);
        if (record && record->value.text() == key) ++good;
        if (Put(*drive, {.key = key, .value = Letters(5000)}).ok()) ++good;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(good, 1200);
}

// --- Deadlines

TEST_F(KineticDriveTest, AnOperationWithoutAnAnswerTimesOutAndOthersAreNotAffected) {
  std::promise<void> timed_out;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request ignored = session.Next();
    session.AnswerEntry(session.Next(), "v", "other");
    timed_out.get_future().wait();
    session.AnswerEntry(ignored, "v", Letters(300000));  // nobody waits for it any more
    session.AnswerEntry(session.Next(), "v", "last");
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  WaitUntilUp(*drive);
  Later<Result<Record>> first;
  Later<Result<Record>> second;
  drive->Get("first", {}, In(300ms), first.callback());
  drive->Get("second", {}, Soon(), second.callback());
  const Result<Record> other = second.Wait();
  ASSERT_OK(other);
  EXPECT_EQ(other->value.text(), "other");
  EXPECT_FAILS(first.Wait(), ETIMEDOUT);
  timed_out.set_value();
  const Result<Record> last = Get(*drive, "third");
  ASSERT_OK(last);
  EXPECT_EQ(last->value.text(), "last");
}

// As on a machine without a processor to spare: its turn comes, and late.
TEST_F(KineticDriveTest, ASlowAnswerIsWaitedForAsLongAsOthersCome) {
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request slow = session.Next();
    for (int i = 0; i < 8; ++i) session.AnswerEntry(session.Next(), "v", "other");
    session.AnswerEntry(slow, "v", "at last");
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  WaitUntilUp(*drive);
  Later<Result<Record>> slow;
  const Time begin = runtime_.Now();
  drive->Get("slow", {}, In(1200ms), slow.callback());
  for (int i = 0; i < 8; ++i) {
    runtime_.NewSignal()->WaitUntil(begin + i * 320ms);
    ASSERT_OK(Get(*drive, "other"));
  }
  const Result<Record> answer = slow.Wait();
  ASSERT_OK(answer);
  EXPECT_EQ(answer->value.text(), "at last");
  EXPECT_GT(runtime_.Now() - begin, 2000ms);
}

TEST_F(KineticDriveTest, AnAnswerThatDoesNotComeIsNotWaitedForForEverWhileOthersDo) {
  FakeDevice device([&](Session& session) {
    session.Handshake();
    (void)session.Next();
    for (bool ended = false; !ended;) {
      const Request request = session.Next();
      ended = request.command.body().keyvalue().key() == "last";
      session.AnswerEntry(request, "v", "other");
    }
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  WaitUntilUp(*drive);
  std::promise<Status> failed;
  const Time begin = runtime_.Now();
  drive->Get("lost", {}, In(500ms),
             [&](Result<Record> record) { failed.set_value(record.error()); });
  auto failure = failed.get_future();
  while (failure.wait_for(0s) != std::future_status::ready && runtime_.Now() < begin + 10s) {
    ASSERT_OK(Get(*drive, "other"));
  }
  EXPECT_GE(runtime_.Now() - begin, 1s);  // twice what it was given
  ASSERT_OK(Get(*drive, "last"));
  EXPECT_FAILS(failure.get(), ETIMEDOUT);
}

TEST_F(KineticDriveTest, ADeviceThatTakesRequestsAndNeverAnswersIsLeftAndConnectedToAgain) {
  std::promise<void> connected_again;
  FakeDevice device([&](Session& session) {
    if (session.number() == 1) connected_again.set_value();
    session.Handshake();
    const Request get = session.Next();
    if (session.number() > 0) session.AnswerEntry(get, "v", "");
    session.WaitForEnd();
  });
  KineticDrive::Options options = OptionsFor({device.address()});
  options.patience = 10ms;
  KineticDrive drive(io_, options);
  WaitUntilUp(drive);
  Later<Result<Record>> later;
  drive.Get("k", {}, In(100ms), later.callback());
  EXPECT_FAILS(later.Wait(), ETIMEDOUT);
  connected_again.get_future().wait();
  EXPECT_OK(GetOnceItIsBack(drive, "k"));
}

TEST_F(KineticDriveTest, ABusyDeviceIsAskedAgainUntilTheDeadline) {
  std::atomic<int> asked = 0;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    for (;;) {
      const Request get = session.Next();
      const bool always = get.command.body().keyvalue().key() == "always busy";
      if (++asked <= 2 || always) {
        session.Answer(get, kinetic::Status::SERVICE_BUSY);
      } else {
        session.AnswerEntry(get, "v", "");
      }
    }
  });
  auto drive = DriveAt({device.address()});
  EXPECT_OK(Get(*drive, "busy twice"));
  EXPECT_EQ(asked, 3);
  Later<Result<Record>> later;
  drive->Get("always busy", {}, In(500ms), later.callback());
  EXPECT_FAILS(later.Wait(), ETIMEDOUT);
  EXPECT_GT(asked, 4);
}

// The first one is not taken for the second.
TEST_F(KineticDriveTest, ADeviceMayBeAskedToRaiseItsClusterVersionTwiceAtOnce) {
  std::vector<Request> raises;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    while (raises.size() < 2) {
      const Request request = session.Next();
      if (request.command.header().messagetype() == kinetic::Header::SETUP) {
        raises.push_back(request);
      } else {
        session.Answer(request, kinetic::Status::VERSION_FAILURE);
      }
    }
    for (const Request& raise : raises) session.Answer(raise);
    for (;;) {
      const Request request = session.Next();
      if (request.command.header().messagetype() == kinetic::Header::SETUP) {
        session.Answer(request);
      } else {
        session.AnswerEntry(request, "v", "");
      }
    }
  });
  auto drive = DriveAt({device.address()});
  Later<Result<Record>> one;
  Later<Result<Record>> two;
  drive->Get("one", {}, {Soon(), 1}, one.callback());
  drive->Get("two", {}, {Soon(), 2}, two.callback());
  EXPECT_OK(one.Wait());
  EXPECT_OK(two.Wait());
  drive.reset();
  device.Stop();
  ASSERT_EQ(raises.size(), 2u);
  std::set<int64_t> versions;
  for (const Request& raise : raises) {
    versions.insert(raise.command.body().setup().newclusterversion());
  }
  EXPECT_EQ(versions, (std::set<int64_t>{1, 2}));
}

// --- Connecting

TEST_F(KineticDriveTest, OperationsWaitForTheEndOfTheVeryFirstAttempt) {
  std::promise<void> greet;
  FakeDevice device([&](Session& session) {
    greet.get_future().wait();
    session.Handshake();
    session.AnswerEntry(session.Next(), "v", "late");
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  Later<Result<Record>> impatient;
  drive->Get("k", {}, In(30ms), impatient.callback());
  EXPECT_FAILS(impatient.Wait(), ETIMEDOUT);
  EXPECT_FALSE(drive->IsUp());
  Later<Result<Record>> patient;
  drive->Get("k", {}, Soon(), patient.callback());
  greet.set_value();
  const Result<Record> record = patient.Wait();
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "late");
}

TEST_F(KineticDriveTest, WhileTheDriveIsAwayOperationsFailAtOnceWithTheReason) {
  const std::string address = DeadAddress();
  auto drive = DriveAt({address});
  for (int i = 0; i < 2; ++i) {  // the first one waits for the first attempt
    const Result<Record> record = Get(*drive, "k");
    ASSERT_FAILS(record, EHOSTUNREACH);
    EXPECT_EQ(record.error().message(), "drive 3 (" + address + "): Connection refused");
  }
  EXPECT_FALSE(drive->IsUp());
  EXPECT_EQ(drive->name(), "drive 3 (" + address + ")");
}

TEST_F(KineticDriveTest, ADeviceThatDoesNotGreetIsAway) {
  FakeDevice device([](Session& session) { session.WaitForEnd(); });
  KineticDrive::Options options = OptionsFor({device.address()});
  options.connect_timeout = 30ms;
  KineticDrive drive(io_, options);
  const Result<Record> record = Get(drive, "k");
  ASSERT_FAILS(record, EHOSTUNREACH);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("no connection within 30 ms"));
}

TEST_F(KineticDriveTest, AnAddressThatIsNoneIsTheReasonGiven) {
  auto drive = DriveAt({"127.0.0.1:port"});
  const Result<Record> record = Get(*drive, "k");
  ASSERT_FAILS(record, EHOSTUNREACH);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("the port is not a number"));
}

TEST_F(KineticDriveTest, TheSecondAddressServesWhenTheFirstDoesNot) {
  const auto serve = [](Session& session) {
    session.Handshake();
    for (;;) session.AnswerEntry(session.Next(), "v", "");
  };
  FakeDevice second(serve);
  const std::string dead = DeadAddress();
  {
    auto drive = DriveAt({dead, second.address()});
    EXPECT_OK(Get(*drive, "k"));
  }
  auto first = std::make_unique<FakeDevice>(serve);
  auto drive = DriveAt({first->address(), second.address()});
  EXPECT_OK(Get(*drive, "k"));
  first.reset();
  EXPECT_OK(GetOnceItIsBack(*drive, "k"));
}

TEST_F(KineticDriveTest, ALostConnectionFailsWhatIsInFlightAndIsMadeAgain) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    const Request get = session.Next();
    if (session.number() == 0) return;  // hangs up
    session.AnswerEntry(get, "v", "back");
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const Result<Record> lost = Get(*drive, "k");
  ASSERT_FAILS(lost, EHOSTUNREACH);
  EXPECT_THAT(std::string(lost.error().message()), HasSubstr("closed the connection"));
  const Result<Record> back = GetOnceItIsBack(*drive, "k");
  ASSERT_OK(back);
  EXPECT_EQ(back->value.text(), "back");
}

TEST_F(KineticDriveTest, ADriveThatHasMovedIsGoneOnWithWhereItIsNow) {
  std::promise<void> asked;
  FakeDevice before([&](Session& session) {
    session.Handshake();
    session.Next();
    asked.set_value();
    session.WaitForEnd();
  });
  FakeDevice after([](Session& session) {
    session.Handshake();
    session.AnswerEntry(session.Next(), "v", "here");
    session.WaitForEnd();
  });
  auto drive = DriveAt({before.address()});
  const std::string_view name_before = drive->name();
  Later<Result<Record>> under_way;
  drive->Get("k", {}, Soon(), under_way.callback());
  asked.get_future().wait();
  const uint64_t losses = drive->CountLosses();
  drive->Redirect(OptionsFor({after.address()}));
  EXPECT_GT(drive->CountLosses(), losses);
  const Result<Record> record = Get(*drive, "k");  // waits for the connection
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "here");
  EXPECT_FAILS(under_way.Wait(), EHOSTUNREACH);
  EXPECT_THAT(std::string(drive->name()), HasSubstr(after.address()));
  EXPECT_THAT(std::string(name_before), HasSubstr(before.address())) << "whoever keeps it may";
}

TEST_F(KineticDriveTest, AConnectionCutInTheMiddleOfAValueLosesOnlyThatAnswer) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    const Request get = session.Next();
    if (session.number() == 0) {
      const std::string frame = Session::AnswerFrame(get, Letters(500000));
      session.Send(std::string_view(frame).substr(0, 300000));
      return;
    }
    session.AnswerEntry(get, "v", Letters(500000));
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  EXPECT_FAILS(Get(*drive, "k"), EHOSTUNREACH);
  const Result<Record> record = GetOnceItIsBack(*drive, "k");
  ASSERT_OK(record);
  EXPECT_TRUE(record->value.text() == Letters(500000));
}

TEST_F(KineticDriveTest, DestroyingItAnswersWhatIsOutstanding) {
  std::promise<void> got;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    session.Next();
    got.set_value();
    session.WaitForEnd();
  });
  FakeDevice silent([](Session& session) { session.WaitForEnd(); });
  auto drive = DriveAt({device.address()});
  auto never_up = DriveAt({silent.address()});
  Later<Result<Record>> sent;
  Later<Result<Record>> waiting;
  drive->Get("k", {}, Soon(), sent.callback());
  never_up->Get("k", {}, Soon(), waiting.callback());
  got.get_future().wait();
  drive.reset();
  never_up.reset();
  ASSERT_TRUE(sent.IsThere() && waiting.IsThere());
  EXPECT_FAILS(sent.Wait(), EHOSTUNREACH);
  EXPECT_FAILS(waiting.Wait(), EHOSTUNREACH);
}

// --- Which drive it is

TEST_F(KineticDriveTest, OnlyTheDriveThatTheCheckAcceptsIsUp) {
  std::atomic<bool> right = false;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request identity = session.Next();
    EXPECT_EQ(identity.command.body().keyvalue().key(), "superblock");
    session.AnswerEntry(identity, "", right ? "drive 3" : "drive 4");
    session.Answer(session.Next(), kinetic::Status::INVALID_REQUEST);  // its log
    for (;;) session.AnswerEntry(session.Next(), "v", "");
  });
  KineticDrive::Options options = OptionsFor({device.address()});
  options.identity_key = "superblock";
  options.check_identity = [](const Result<Record>& record, const Result<DriveInfo>&) -> Status {
    if (!record) return record.error();
    if (record->value.text() == "drive 3") return {};
    return Fail(EINVAL, "it is {} of cluster x; is a cable swapped?", record->value.text());
  };
  KineticDrive drive(io_, options);
  const Result<Record> refused = Get(drive, "k");
  ASSERT_FAILS(refused, EHOSTUNREACH);
  EXPECT_EQ(refused.error().message(),
            "drive 3 (" + device.address() + "): it is drive 4 of cluster x; is a cable swapped?");
  EXPECT_FALSE(drive.IsUp());
  right = true;
  WaitUntilUp(drive);
  EXPECT_OK(Get(drive, "k"));
}

TEST_F(KineticDriveTest, TheCheckDecidesAboutADeviceWithoutAnIdentity) {
  FakeDevice device([](Session& session) {
    session.Handshake();
    session.Answer(session.Next(), kinetic::Status::NOT_FOUND);
    session.Answer(session.Next(), kinetic::Status::INVALID_REQUEST);  // its log
    for (;;) session.AnswerEntry(session.Next(), "v", "");
  });
  KineticDrive::Options options = OptionsFor({device.address()});
  options.identity_key = "superblock";
  options.check_identity = [](const Result<Record>& record,
                              const Result<DriveInfo>& info) -> Status {
    EXPECT_FAILS(record, ENOENT);
    EXPECT_FALSE(info.has_value());
    return {};
  };
  KineticDrive drive(io_, options);
  EXPECT_OK(Get(drive, "k"));
}

TEST_F(KineticDriveTest, AWrongKeyIsTheReasonGiven) {
  FakeDevice device([](Session& session) {
    session.Greet();
    session.Answer(session.Next(), kinetic::Status::HMAC_FAILURE);
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const Result<Record> record = Get(*drive, "k");
  ASSERT_FAILS(record, EHOSTUNREACH);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("wrong key"));
}

TEST_F(KineticDriveTest, ADeviceThatIsLockedSaysSoInItsGreeting) {
  FakeDevice device([](Session& session) {
    kinetic::Command command;
    command.mutable_header()->set_connectionid(5);
    command.mutable_status()->set_code(kinetic::Status::DEVICE_LOCKED);
    session.Send(UnsignedFrame(Unsigned::kUnsolicited, command));
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const Result<Record> record = Get(*drive, "k");
  ASSERT_FAILS(record, EHOSTUNREACH);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("unlock it with its PIN"));
}

// --- Answers that must not be believed

struct Spoiled {
  std::string_view name;
  std::string (*frame)(const Request& get);
  std::string_view reason;
};

kinetic::Command GoodAnswer(const Request& get) {
  kinetic::Command command;
  command.mutable_header()->set_acksequence(get.command.header().sequence());
  command.mutable_header()->set_messagetype(kinetic::Header::GET_RESPONSE);
  command.mutable_status()->set_code(kinetic::Status::SUCCESS);
  return command;
}

std::string Signed(const kinetic::Command& command, int64_t identity = FakeDevice::kIdentity) {
  return SignedFrame(command, identity, HmacKey(FakeDevice::kKey), 0);
}

const Spoiled kSpoiled[] = {
    {"WrongSignature",
     [](const Request& get) { return Session::AnswerFrame(get, "value", "another key"); },
     "not signed with our key"},
    {"AnotherIdentity", [](const Request& get) { return Signed(GoodAnswer(get), 7); },
     "not signed with our key"},
    {"NoSignature",
     [](const Request& get) { return UnsignedFrame(Unsigned::kUnknownIdentity, GoodAnswer(get)); },
     "not signed with our key"},
    {"AnswerToNothing",
     [](const Request& get) {
       kinetic::Command command = GoodAnswer(get);
       command.mutable_header()->set_acksequence(99);
       return Signed(command);
     },
     "what nobody had asked"},
    {"OfAnotherConnection",
     [](const Request& get) {
       kinetic::Command command = GoodAnswer(get);
       command.mutable_header()->set_connectionid(FakeDevice::kConnectionId + 1);
       return Signed(command);
     },
     "on connection 3e8 with what was said on connection 3e9"},
    {"NoAcknowledgement",
     [](const Request& get) {
       kinetic::Command command = GoodAnswer(get);
       command.mutable_header()->clear_acksequence();
       return Signed(command);
     },
     "without saying what"},
    {"AnotherType",
     [](const Request& get) {
       kinetic::Command command = GoodAnswer(get);
       command.mutable_header()->set_messagetype(kinetic::Header::PUT_RESPONSE);
       return Signed(command);
     },
     "answered a request of type 2 with one of type 3"},
    {"LastWords",
     [](const Request&) {
       kinetic::Command command;
       command.mutable_status()->set_code(kinetic::Status::CONNECTION_TERMINATED);
       return UnsignedFrame(Unsigned::kUnsolicited, command);
     },
     "it hangs up"},
    {"NotAMessage", [](const Request&) { return "F" + std::string("\0\0\0\3\0\0\0\0xyz", 11); },
     "is not Kinetic"},
    {"NotAFrame", [](const Request&) { return std::string("HTTP/1.1 400 Bad Request\r\n"); },
     "not Kinetic"},
    {"TooLong", [](const Request&) { return "F" + std::string("\x7f\xff\xff\xff\0\0\0\0", 8); },
     "the limit is"},
    {"TooLongAValue",
     [](const Request& get) { return Session::AnswerFrame(get, Letters(kMaxValueBytes + 1)); },
     "the limit is"},
};

class SpoiledAnswer : public KineticDriveTest, public testing::WithParamInterface<Spoiled> {};

TEST_P(SpoiledAnswer, EndsTheConnectionAndFailsEverythingInFlight) {
  FakeDevice device([&](Session& session) {
    session.Handshake();
    const Request first = session.Next();
    if (session.number() > 0) {
      session.AnswerEntry(first, "v", "good");
      session.WaitForEnd();
    }
    session.Next();
    session.Send(GetParam().frame(first));
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  Later<Result<Record>> first;
  Later<Result<Record>> second;
  drive->Get("first", {}, Soon(), first.callback());
  drive->Get("second", {}, Soon(), second.callback());
  const Result<Record> spoiled = first.Wait();
  ASSERT_FAILS(spoiled, EHOSTUNREACH);
  EXPECT_THAT(std::string(spoiled.error().message()), HasSubstr(GetParam().reason));
  EXPECT_FAILS(second.Wait(), EHOSTUNREACH);
  const Result<Record> again = GetOnceItIsBack(*drive, "again");
  ASSERT_OK(again);
  EXPECT_EQ(again->value.text(), "good");
}

INSTANTIATE_TEST_SUITE_P(Each, SpoiledAnswer, testing::ValuesIn(kSpoiled),
                         [](const auto& info) { return std::string(info.param.name); });

// --- Whose answer it is

TEST_F(KineticDriveTest, EachConnectionIsNumberedFromAnotherNumberOn) {
  std::mutex mutex;
  std::vector<std::vector<uint64_t>> numbers;
  FakeDevice device([&](Session& session) {
    std::vector<uint64_t> said;
    session.Greet();
    for (int i = 0; i < 3; ++i) {
      const Request request = session.Next();
      said.push_back(request.command.header().sequence());
      if (i == 0) {
        session.Answer(request, kinetic::Status::NOT_FOUND);
      } else {
        session.AnswerEntry(request, "v", "");
      }
    }
    const std::lock_guard lock(mutex);
    numbers.push_back(said);
  });
  {
    auto drive = DriveAt({device.address()});
    while (true) {
      GetOnceItIsBack(*drive, "k");
      const std::lock_guard lock(mutex);
      if (numbers.size() >= 3) break;
    }
  }
  device.Stop();
  for (size_t i = 0; i < numbers.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(numbers[i].size(), 3u);
    EXPECT_EQ(numbers[i][1], numbers[i][0] + 1);
    EXPECT_EQ(numbers[i][2], numbers[i][0] + 2);
    EXPECT_LT(numbers[i][0], uint64_t{1} << 62) << "there is not enough room above";
    for (size_t j = 0; j < i; ++j) {
      const uint64_t a = std::max(numbers[i][0], numbers[j][0]);
      const uint64_t b = std::min(numbers[i][0], numbers[j][0]);
      EXPECT_GT(a - b, uint64_t{1} << 32) << "once in 2^29 times that is chance";
    }
  }
}

TEST_F(KineticDriveTest, ADeviceThatDoesNotNumberItsConnectionsIsAway) {
  FakeDevice device([](Session& session) {
    kinetic::Command command;
    command.mutable_status()->set_code(kinetic::Status::SUCCESS);
    session.Send(UnsignedFrame(Unsigned::kUnsolicited, command));
    session.WaitForEnd();
  });
  auto drive = DriveAt({device.address()});
  const Result<Record> record = Get(*drive, "k");
  ASSERT_FAILS(record, EHOSTUNREACH);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("does not number the connection"));
}

// The value of an answer is not signed. What a device can do it says where it is; another device,
// which cannot, says it in the value only.
TEST_F(KineticDriveTest, WhatADeviceCanDoIsReadWhereItIsSigned) {
  FakeDevice device([](Session& session) {
    session.Greet();
    session.Answer(
        session.Next(),
        [](kinetic::Body* body) { body->mutable_getlog()->set_capabilities("rooms 1\nbound 1\n"); },
        "range_get 1\n");
    for (;;) session.AnswerEntry(session.Next(), "v", "");
  });
  auto drive = DriveAt({device.address()});
  ASSERT_OK(Get(*drive, "k"));
  EXPECT_TRUE(drive->capabilities().bound);
  EXPECT_TRUE(drive->capabilities().rooms);
  EXPECT_FALSE(drive->capabilities().range_get);
}

// Others may leave the number of the connection out of an answer, as some clients do of a request.
TEST_F(KineticDriveTest, ADeviceThatBindsItsAnswersLeavesTheirConnectionOutOfNone) {
  for (const bool binds : {false, true}) {
    FakeDevice device([&](Session& session) {
      session.Greet();
      session.Answer(session.Next(), [&](kinetic::Body* body) {
        body->mutable_getlog()->set_capabilities(binds ? "bound 1\n" : "");
      });
      const Request get = session.Next();
      kinetic::Command answer = GoodAnswer(get);
      answer.mutable_body()->mutable_keyvalue()->set_key("k");
      session.Send(Signed(answer));
      session.WaitForEnd();
    });
    auto drive = DriveAt({device.address()});
    const Result<Record> record = Get(*drive, "k");
    if (!binds) {
      EXPECT_OK(record);
      continue;
    }
    ASSERT_FAILS(record, EHOSTUNREACH);
    EXPECT_THAT(std::string(record.error().message()), HasSubstr("said on connection 0"));
  }
}

TEST_F(KineticDriveTest, AValueGoesOutWithTheTagThatCoversIt) {
  std::vector<Request> puts;
  FakeDevice device([&](Session& session) {
    session.Handshake();
    for (;;) {
      puts.push_back(session.Next());
      session.Answer(puts.back());
    }
  });
  {
    auto drive = DriveAt({device.address()});
    EXPECT_OK(Put(*drive, {.key = "k", .value = std::string("123456789")}));
    EXPECT_OK(Put(*drive, {.key = "k"}));
  }
  device.Stop();
  EXPECT_EQ(puts[0].command.body().keyvalue().tag(), "\xe3\x06\x92\x83");
  EXPECT_EQ(puts[0].command.body().keyvalue().algorithm(), 4);
  EXPECT_FALSE(puts[1].command.body().keyvalue().has_tag());
}

// --- Answers that are signed and numbered rightly, and speak of something else

// One connection, on which the device answers everything in this way.
class OddAnswers {
 public:
  explicit OddAnswers(std::function<void(kinetic::Body*)> fill, std::string value = {})
      : device_([fill = std::move(fill), value = std::move(value)](Session& session) {
          session.Handshake();
          for (;;) session.Answer(session.Next(), fill, value);
        }) {}
  const std::string& address() const { return device_.address(); }

 private:
  FakeDevice device_;
};

TEST_F(KineticDriveTest, AnAnswerAboutAnotherKeyIsDamage) {
  OddAnswers device([](kinetic::Body* body) { body->mutable_keyvalue()->set_key("other"); });
  auto drive = DriveAt({device.address()});
  EXPECT_FAILS(Get(*drive, "k"), EBADMSG);
  EXPECT_FAILS(Head(*drive, "k"), EBADMSG);
  EXPECT_OK(Get(*drive, "other"));
}

TEST_F(KineticDriveTest, AnAnswerWithoutAKeyIsDamage) {
  OddAnswers device([](kinetic::Body* body) { body->mutable_keyvalue()->set_dbversion("v"); },
                    "value");
  auto drive = DriveAt({device.address()});
  const auto record = Get(*drive, "k");
  ASSERT_FAILS(record, EBADMSG);
  EXPECT_THAT(std::string(record.error().message()), HasSubstr("drive 3 (" + device.address()));
  EXPECT_FAILS(Get(*drive, "k", {.offset = 0, .length = 3}), EBADMSG);
  EXPECT_FAILS(Head(*drive, "k"), EBADMSG);
  for (const bool previous : {false, true}) {
    Later<Result<KeyedRecord>> neighbour;
    drive->GetNeighbour("k", previous, Soon(), neighbour.callback());
    EXPECT_FAILS(neighbour.Wait(), EBADMSG) << previous;
  }
}

TEST_F(KineticDriveTest, ANeighbourOnTheWrongSideIsDamage) {
  OddAnswers device([](kinetic::Body* body) { body->mutable_keyvalue()->set_key("k"); });
  auto drive = DriveAt({device.address()});
  for (const auto& [key, previous, code] : {std::tuple("k", true, EBADMSG),
                                            {"k", false, EBADMSG},
                                            {"j", true, EBADMSG},
                                            {"l", false, EBADMSG},
                                            {"j", false, 0},
                                            {"l", true, 0}}) {
    Later<Result<KeyedRecord>> neighbour;
    drive->GetNeighbour(key, previous, Soon(), neighbour.callback());
    const auto found = neighbour.Wait();
    EXPECT_EQ(found.has_value() ? 0 : found.error().code(), code) << key << previous;
  }
}

// Devices confirm changes without a key, and that is enough. One that names another key may have
// made our change or not: so nothing is said that is certain.
TEST_F(KineticDriveTest, AConfirmationOfAChangeOfAnotherKeyConfirmsNothing) {
  OddAnswers device([](kinetic::Body* body) { body->mutable_keyvalue()->set_key("other"); });
  OddAnswers silent([](kinetic::Body* body) { body->mutable_keyvalue(); });
  const auto remove = [&](Drive& drive, std::string key) {
    Later<Status> later;
    drive.Delete(std::move(key), Expected::Any(), Durability::kWriteBack, Soon(), later.callback());
    return later.Wait();
  };
  auto drive = DriveAt({device.address()});
  EXPECT_FAILS(Put(*drive, {.key = "k"}), EHOSTUNREACH);
  EXPECT_FAILS(remove(*drive, "k"), EHOSTUNREACH);
  EXPECT_OK(Put(*drive, {.key = "other"}));
  EXPECT_OK(remove(*drive, "other"));
  EXPECT_TRUE(drive->IsUp());
  auto usual = DriveAt({silent.address()});
  EXPECT_OK(Put(*usual, {.key = "k"}));
  EXPECT_OK(remove(*usual, "k"));
}

TEST_F(KineticDriveTest, KeysThatWereNotAskedForOrAreOutOfOrderAreDamage) {
  const std::vector<std::vector<std::string>> lists = {
      {"a", "z"}, {"A", "b"}, {"b", "a"}, {"a", "a"}, {"a", "b", "c", "d"}, {"a", "b", "c"}};
  for (const bool records : {false, true}) {
    FakeDevice device([&](Session& session) {
      session.Greet();
      session.Answer(session.Next(), nullptr, records ? "range_records 1\n" : "other 1\n");
      for (const auto& list : lists) {
        session.Answer(session.Next(), [&](kinetic::Body* body) {
          for (const std::string& key : list) {
            body->mutable_range()->add_keys(key);
            if (records) body->mutable_range()->add_records();
          }
        });
      }
      session.Answer(session.Next(), [&](kinetic::Body* body) {
        for (const std::string& key : lists.back()) {
          body->mutable_range()->add_keys(key);
          if (records) body->mutable_range()->add_records();
        }
      });
      session.WaitForEnd();
    });
    auto drive = DriveAt({device.address()});
    const auto list = [&](bool reverse) -> int {
      if (records) {
        Later<Result<RangeRecords>> later;
        drive->ListRecords("a", "k", 3, reverse, 0, Soon(), later.callback());
        const auto found = later.Wait();
        return found.has_value() ? 0 : found.error().code();
      }
      Later<Result<std::vector<std::string>>> later;
      drive->Range("a", "k", 3, reverse, Soon(), later.callback());
      const auto found = later.Wait();
      return found.has_value() ? 0 : found.error().code();
    };
    for (size_t i = 0; i + 1 < lists.size(); ++i) EXPECT_EQ(list(false), EBADMSG) << i;
    EXPECT_EQ(list(false), 0);
    EXPECT_EQ(list(true), EBADMSG) << "the highest was to come first";
  }
}

// --- Addresses

TEST(DriveAddress, IsReadInAllItsForms) {
  const auto read = [](std::string_view text) {
    const Result<HostAndPort> host = ParseDriveAddress(text);
    return host ? host->host + " " + host->port : ErrnoText(host.error().code());
  };
  EXPECT_EQ(read("127.0.0.1:8103"), "127.0.0.1 8103");
  EXPECT_EQ(read("disk7.example.org"), "disk7.example.org 8123");
  EXPECT_EQ(read("[fe80::1]:1"), "fe80::1 1");
  EXPECT_EQ(read("[::1]"), "::1 8123");
  const std::string invalid = ErrnoText(EINVAL);
  for (const std::string_view text : {"", ":8123", "::1", "[::1", "[::1]x", "h:", "h:0", "h:65536",
                                      "h:080", "h:-1", "h:1:2", "[]:1"}) {
    EXPECT_EQ(read(text), invalid) << text;
  }
}

}  // namespace
}  // namespace pinstripe
