// Several puts in one message: what a device makes of them, and the client's of its answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/real_runtime.h"
#include "base/send_together.h"
#include "kinetic/covering_tag.h"
#include "kinetic/kinetic_drive.h"
#include "store/log_store.h"
#include "store/memory_store.h"
#include "store/store_resources.h"
#include "tests/daemon/served_device.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using testing::ElementsAre;
using testing::HasSubstr;
using Code = kinetic::Status;

// Says how often it was asked for changes and values, and fails to flush, or knows at once all that
// is not cold, where a test wants that.
class CountingStore final : public Store {
 public:
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    ++reads;
    if (key.starts_with("damaged")) return Fail(EBADMSG, "a wrong checksum");
    return store_.Get(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override { return store_.Head(key); }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_.Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room) override {
    return store_.Put(key, record, room);
  }
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range) override {
    if (!at_once || key.starts_with("cold") || key.starts_with("damaged")) return WouldWait();
    ++reads_at_once;
    return store_.Get(key, range);
  }
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override {
    ++writes;
    return store_.PutEach(puts);
  }
  bool PutAllAtOnce(std::span<const StoreChange> puts) override {
    if (!at_once) return false;
    for (const StoreChange& put : puts) {
      if (!store_.CheckThere(put.key, *put.expected).ok()) return false;
    }
    for (const Status& status : store_.PutEach(puts)) EXPECT_OK(status);
    ++writes_at_once;
    return true;
  }
  Status Delete(std::string_view key) override { return store_.Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override { return store_.Apply(changes); }
  Status Flush() override {
    ++flushes;
    return fails_to_flush ? Fail(EIO, "the disk has failed") : Status();
  }
  StoreUsage Usage() override { return store_.Usage(); }

  std::atomic<int> writes = 0;
  std::atomic<int> writes_at_once = 0;
  std::atomic<int> reads = 0;
  std::atomic<int> reads_at_once = 0;
  std::atomic<int> flushes = 0;
  std::atomic<bool> at_once = false;
  std::atomic<bool> fails_to_flush = false;

 private:
  MemoryStore store_;
};

class PutsTest : public testing::Test {
 protected:
  PutsTest() {
    auto store = std::make_unique<CountingStore>();
    store_ = store.get();
    device_ = std::make_unique<ServedDevice>(runtime_, std::move(store));
    client_ = std::make_unique<WireClient>(device_->port());
    connection_ = client_->ReceiveAnswer().command.header().connectionid();
  }

  // A message of puts, one after the other.
  struct Message {
    Message() { command.mutable_header()->set_messagetype(Header::PUTS); }

    kinetic::KeyValue* Add(const std::string& key, const std::string& version,
                           std::string_view value = "") {
      kinetic::Puts::Record* record = command.mutable_body()->mutable_puts()->add_records();
      record->set_valuebytes(static_cast<uint32_t>(value.size()));
      values += value;
      kinetic::KeyValue* entry = record->mutable_keyvalue();
      entry->set_key(key);
      entry->set_newversion(version);
      entry->set_synchronization(kinetic::KeyValue::WRITEBACK);
      return entry;
    }

    // The last one is followed by a read.
    void ThenGet(const std::string& key) {
      command.mutable_body()->mutable_puts()->mutable_records()->rbegin()->set_thenget(key);
    }

    Command command;
    std::string values;
  };

  WireClient::Answer Ask(const Message& message) {
    EXPECT_TRUE(client_->SendCommand(message.command, message.values));
    return client_->ReceiveAnswer();
  }
  static std::vector<int> Codes(const WireClient::Answer& answer) {
    std::vector<int> codes;
    for (const auto& record : answer.command.body().puts().records()) {
      codes.push_back(record.status().code());
    }
    return codes;
  }
  // What it tells of each read: "version=value", or the status; "-" without one.
  static std::vector<std::string> Reads(const WireClient::Answer& answer) {
    std::vector<std::string> reads;
    std::string_view left = answer.value;
    for (const auto& record : answer.command.body().puts().records()) {
      const kinetic::Puts::Read& read = record.read();
      const std::string_view value = left.substr(0, read.valuebytes());
      left.remove_prefix(value.size());
      reads.push_back(!record.has_read() ? "-"
                      : read.status().code() != Code::SUCCESS
                          ? std::string(StatusCodeName(read.status().code()))
                          : fmt::format("{}={}", read.keyvalue().dbversion(), value));
    }
    EXPECT_EQ(left, "");
    return reads;
  }
  // Refused as a whole, and nothing of it was done.
  void ExpectRefused(const Message& message) {
    const WireClient::Answer answer = Ask(message);
    EXPECT_EQ(answer.code(), Code::INVALID_REQUEST);
    EXPECT_FALSE(answer.command.status().statusmessage().empty());
    EXPECT_TRUE(Codes(answer).empty());
    EXPECT_TRUE(device_->engine().Keys({}, kMaxRangeKeys, false)->empty());
  }
  std::string VersionOf(std::string_view key) { return device_->VersionOf(key); }
  std::string ValueOf(std::string_view key) {
    const auto record = device_->engine().Get(key);
    return record.has_value() ? std::string(record->value.text()) : "(none)";
  }

  const std::string kNone = "(" + ErrnoText(ENOENT) + ")";
  RealRuntime runtime_;
  CountingStore* store_ = nullptr;
  std::unique_ptr<ServedDevice> device_;
  std::unique_ptr<WireClient> client_;
  int64_t connection_ = 0;
};

TEST_F(PutsTest, EachHasAnAnswerOfItsOwnAndAllAreOneWrite) {
  Message message;
  message.Add("a", "1", "value of a");
  message.Add("b", "1");
  message.Add("c", "1", "c's");
  const WireClient::Answer answer = Ask(message);
  EXPECT_EQ(answer.code(), Code::SUCCESS);
  EXPECT_EQ(answer.command.header().messagetype(), Header::PUTS_RESPONSE);
  EXPECT_THAT(Codes(answer), ElementsAre(Code::SUCCESS, Code::SUCCESS, Code::SUCCESS));
  EXPECT_EQ(ValueOf("a") + "," + ValueOf("b") + "," + ValueOf("c"), "value of a,,c's");
  EXPECT_EQ(store_->writes, 1);
  EXPECT_EQ(store_->flushes, 0);
}

TEST_F(PutsTest, OneThatFailsUndoesNoOther) {
  ASSERT_OK(device_->engine().Put("dir", {{.version = "open"}, {}}, Expected::Any()));
  Message message;
  message.Add("a", "1", "aaa");
  message.Add("stale", "2", "sss")->set_dbversion("1");
  message.Add("guarded", "1", "ggg")->mutable_guard()->set_key("dir");
  message.Add(std::string(kMaxKeyBytes + 1, 'k'), "1");
  message.Add("version", std::string(kMaxVersionBytes + 1, 'v'), "v");
  message.Add("when", "1", "w")->set_synchronization(77);
  kinetic::KeyValue::Guard* guard = message.Add("z", "1", "zzz")->mutable_guard();
  guard->set_key("dir");
  guard->set_version("open");
  const WireClient::Answer answer = Ask(message);
  EXPECT_EQ(answer.code(), Code::SUCCESS);
  EXPECT_THAT(Codes(answer),
              ElementsAre(Code::SUCCESS, Code::VERSION_MISMATCH, Code::GUARD_MISMATCH,
                          Code::INVALID_REQUEST, Code::INVALID_REQUEST, Code::INVALID_REQUEST,
                          Code::SUCCESS));
  EXPECT_EQ(ValueOf("a") + ValueOf("z"), "aaazzz") << "each with its own value";
  for (const char* key : {"stale", "guarded", "version", "when"}) EXPECT_EQ(VersionOf(key), kNone);
}

TEST_F(PutsTest, ThoseOfOneKeyAndOfItsGuardsAreMadeInTheirOrder) {
  Message message;
  message.Add("k", "1", "one");
  message.Add("k", "2", "two")->set_dbversion("1");
  message.Add("k", "3", "three")->set_dbversion("1");
  kinetic::KeyValue::Guard* guard = message.Add("after", "1")->mutable_guard();
  guard->set_key("k");
  guard->set_version("2");
  EXPECT_THAT(Codes(Ask(message)),
              ElementsAre(Code::SUCCESS, Code::SUCCESS, Code::VERSION_MISMATCH, Code::SUCCESS));
  EXPECT_EQ(ValueOf("k"), "two");
  EXPECT_EQ(VersionOf("after"), "1");
}

TEST_F(PutsTest, OneFlushMakesThoseDurableThatMustBe) {
  Message message;
  for (int i = 0; i < 10; ++i) {
    message.Add(fmt::format("k{}", i), "1")->clear_synchronization();  // as if WRITETHROUGH
  }
  EXPECT_EQ(Codes(Ask(message)).size(), 10u);
  EXPECT_EQ(store_->flushes, 1);
  store_->fails_to_flush = true;
  Message second;
  second.Add("back", "1");
  second.Add("through", "1")->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  second.Add("k0", "2")->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  EXPECT_THAT(Codes(Ask(second)),
              ElementsAre(Code::SUCCESS, Code::INTERNAL_ERROR, Code::VERSION_MISMATCH));
}

// The log of slow requests does not say that all went well.
TEST_F(PutsTest, ASlowOneIsToldWithWhatFailed) {
  SetLogLevel(LogLevel::kError);  // each one is slow here
  auto store = std::make_unique<CountingStore>();
  store->fails_to_flush = true;
  ServedDevice device(runtime_, std::move(store), std::chrono::nanoseconds(1));
  WireClient client(device.port());
  client.ReceiveAnswer();
  Message message;
  message.Add("back", "1");
  message.Add("through", "1")->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  ASSERT_TRUE(client.SendCommand(message.command, message.values));
  EXPECT_EQ(client.ReceiveAnswer().code(), Code::SUCCESS);
  kinetic::GetLog log;
  while (log.slowrequests_size() == 0) device.service().slow().Fill(runtime_.Now(), &log);
  EXPECT_EQ(log.slowrequests(0).messagetype(), Header::PUTS);
  EXPECT_EQ(log.slowrequests(0).status(), Code::INTERNAL_ERROR);
  SetLogLevel(LogLevel::kInfo);
}

TEST_F(PutsTest, AreCountedAsIfTheyHadComeAlone) {
  Message message;
  message.Add("a", "1", "12345");
  message.Add("b", "1", "678");
  message.Add("a", "1", "never")->set_dbversion("0");
  Ask(message);
  const auto count = device_->service().statistics().Of(Header::PUT);
  EXPECT_EQ(count.operations, 3u);
  EXPECT_EQ(count.value_bytes, 8u);
  EXPECT_EQ(device_->service().statistics().FailuresOf(Code::VERSION_MISMATCH), 1u);
  const auto clients = device_->service().clients().All();
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0]->requests(), 3u);
  EXPECT_EQ(clients[0]->bytes_written(), 8u);
}

TEST_F(PutsTest, AMessageThatCannotBeIsRefusedAsAWhole) {
  ExpectRefused(Message());
  for (const int count : {static_cast<int>(kMostPutsTogether) + 1, 10'000}) {
    Message many;
    for (int i = 0; i < count; ++i) many.Add(fmt::format("k{}", i), "1", "v");
    ExpectRefused(many);
  }
  Message without_values;
  without_values.Add("a", "1", "123");
  without_values.values = "12";
  ExpectRefused(without_values);
  without_values.values = "1234";
  ExpectRefused(without_values);
  Message huge;
  huge.Add("a", "1", "123");
  huge.Add("b", "1", "456");
  for (int i = 0; i < 2; ++i) {  // together they are 6, in 32 bits
    huge.command.mutable_body()->mutable_puts()->mutable_records(i)->set_valuebytes(0x80000003);
  }
  ExpectRefused(huge);
  Message of_batch;
  of_batch.Add("a", "1", "123");
  of_batch.command.mutable_header()->set_batchid(0);
  ExpectRefused(of_batch);
  EXPECT_EQ(device_->service().statistics().FailuresOf(Code::INVALID_REQUEST),
            1 + 2 * kMostPutsTogether + 2 + 2 + 1);
  Message most;
  for (size_t i = 0; i < kMostPutsTogether; ++i) most.Add(fmt::format("k{}", i), "1", "v");
  EXPECT_EQ(Codes(Ask(most)).size(), kMostPutsTogether);
  EXPECT_EQ(device_->engine().Keys({}, kMaxRangeKeys, false)->size(), kMostPutsTogether);
}

TEST_F(PutsTest, AValueThatIsTooLongIsRefusedAndTheConnectionStays) {
  Message message;
  message.Add("a", "1", std::string(kMaxValueBytes, 'x'));
  message.Add("b", "1", "x");
  ExpectRefused(message);
  ASSERT_TRUE(client_->Request(Header::NOOP));
  EXPECT_EQ(client_->ReceiveAnswer().code(), Code::SUCCESS);
}

TEST_F(PutsTest, WhatIsSignedCoversEachValue) {
  Message message;
  const auto add = [&](const std::string& key, std::string_view value, std::string tag) {
    kinetic::KeyValue* entry = message.Add(key, "1", value);
    entry->set_tag(std::move(tag));
    entry->set_algorithm(4);
  };
  add("a", "first", CoveringTag(AsBytes("first")));
  add("b", "second", CoveringTag(AsBytes("first")));
  add("c", "", "");  // nothing to cover
  message.command.mutable_header()->set_bound(true);
  message.command.mutable_header()->set_connectionid(connection_);
  EXPECT_THAT(Codes(Ask(message)),
              ElementsAre(Code::SUCCESS, Code::PERM_DATA_ERROR, Code::SUCCESS));
  EXPECT_EQ(VersionOf("b"), kNone);
}

TEST_F(PutsTest, UnderAnotherClusterVersionNothingIsDone) {
  ASSERT_OK(device_->security().SetClusterVersion(5));
  Message message;
  message.Add("a", "1");
  const WireClient::Answer answer = Ask(message);
  EXPECT_EQ(answer.code(), Code::VERSION_FAILURE);
  EXPECT_TRUE(Codes(answer).empty());
  EXPECT_EQ(VersionOf("a"), kNone);
}

// Whoever makes it: the loop, workers, or one after the other.
class ThenGetsTest : public PutsTest, public testing::WithParamInterface<const char*> {
 protected:
  ThenGetsTest() { store_->at_once = Case() != "workers"; }
  static std::string_view Case() { return GetParam(); }
  // Of a record that the loop cannot read, or can.
  static std::string Key(const std::string& name) {
    return (Case() == "both" ? "cold " : "") + name;
  }
  void PutRecord(const std::string& key, const std::string& version, const std::string& value) {
    ASSERT_OK(device_->engine().Put(
        key, {{.version = version, .tag = "tag4", .algorithm = 4}, SharedBytes(value)},
        Expected::Any()));
  }
};
INSTANTIATE_TEST_SUITE_P(By, ThenGetsTest, testing::Values("workers", "loop", "both"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ThenGetsTest, EachIsMadeAfterAllPutsOfItsMessage) {
  PutRecord(Key("inode"), "open", "there before");
  Message message;
  message.Add("entry", "1", "e");
  message.ThenGet(Key("inode"));
  message.Add("other", "1");
  message.Add(Key("late"), "2", "put after what is followed by this read");
  const WireClient::Answer without = Ask(message);
  EXPECT_EQ(without.code(), Code::SUCCESS);
  EXPECT_THAT(Codes(without), ElementsAre(Code::SUCCESS, Code::SUCCESS, Code::SUCCESS));
  EXPECT_THAT(Reads(without), ElementsAre("open=there before", "-", "-"));
  const kinetic::KeyValue& read = without.command.body().puts().records(0).read().keyvalue();
  EXPECT_EQ(read.key() + read.tag(), Key("inode") + "tag4");
  EXPECT_EQ(read.algorithm(), 4);
  Message second;
  second.Add("entry", "2", "of its own")->set_dbversion("1");
  second.ThenGet(Key("late"));
  second.Add(Key("late"), "3", "new")->set_dbversion("2");
  second.ThenGet("entry");
  EXPECT_THAT(Reads(Ask(second)), ElementsAre("3=new", "2=of its own"));
}

TEST_P(ThenGetsTest, TheLoopMakesWhatItNeedNotWaitFor) {
  PutRecord(Key("inode"), "open", "value");
  const auto was_made = [&] {
    return Case() == "workers" ? store_->writes > 0 && store_->reads > 0
           : Case() == "loop"  ? store_->writes_at_once > 0 && store_->reads_at_once > 0
                               : store_->writes_at_once > 0 && store_->reads > 0;
  };
  for (int i = 0; !was_made(); ++i) {  // it leaves them to workers where it has other things to do
    Message message;
    message.Add(fmt::format("k{}", i), "1", "v");
    message.ThenGet(Key("inode"));
    ASSERT_THAT(Reads(Ask(message)), ElementsAre("open=value"));
  }
  if (Case() == "workers") {
    EXPECT_EQ(store_->reads_at_once, 0);
  }
}

TEST_P(ThenGetsTest, FailByThemselves) {
  PutRecord("damaged", "1", "x");
  Message message;
  message.Add("a", "1");
  message.ThenGet(Key("nothing"));
  message.Add("b", "1");
  message.ThenGet("damaged");
  message.Add("c", "1");
  message.ThenGet("a");
  const WireClient::Answer answer = Ask(message);
  EXPECT_THAT(Codes(answer), ElementsAre(Code::SUCCESS, Code::SUCCESS, Code::SUCCESS));
  EXPECT_THAT(Reads(answer), ElementsAre("NOT_FOUND", "PERM_DATA_ERROR", "1="));
}

TEST_P(ThenGetsTest, APutThatFailsIsNotFollowed) {
  PutRecord(Key("inode"), "open", "value");
  Message message;
  message.Add("a", "2")->set_dbversion("1");
  message.ThenGet(Key("inode"));
  message.Add("b", "1");
  message.ThenGet(Key("inode"));
  const WireClient::Answer answer = Ask(message);
  EXPECT_THAT(Codes(answer), ElementsAre(Code::VERSION_MISMATCH, Code::SUCCESS));
  EXPECT_THAT(Reads(answer), ElementsAre("-", "open=value"));
}

// Also where it is only the flush that fails.
TEST_P(ThenGetsTest, APutThatIsNotDurableIsNotFollowed) {
  PutRecord(Key("one"), "1", "first");
  PutRecord(Key("two"), "2", "second");
  store_->fails_to_flush = true;
  Message message;
  message.Add("a", "1")->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  message.ThenGet(Key("one"));
  message.Add("b", "1");
  message.ThenGet(Key("two"));
  message.Add("c", "1")->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  const WireClient::Answer answer = Ask(message);
  EXPECT_THAT(Codes(answer),
              ElementsAre(Code::INTERNAL_ERROR, Code::SUCCESS, Code::INTERNAL_ERROR));
  EXPECT_THAT(Reads(answer), ElementsAre("-", "2=second", "-"));
}

TEST_P(ThenGetsTest, WhatDoesNotFitIsLeftOut) {
  PutRecord(Key("half"), "1", std::string(kMostThenGetBytes / 2, 'h'));
  PutRecord(Key("more"), "1", std::string(kMostThenGetBytes / 2 + 1, 'm'));
  PutRecord(Key("large"), "1", std::string(kMaxValueBytes, 'l'));
  Message message;
  for (const std::string name : {"large", "half", "more", "half"}) {
    message.Add(fmt::format("put {}", message.command.body().puts().records_size()), "1");
    message.ThenGet(Key(name));
  }
  const WireClient::Answer answer = Ask(message);
  const std::string half = "1=" + std::string(kMostThenGetBytes / 2, 'h');
  EXPECT_THAT(Codes(answer), testing::Each(Code::SUCCESS));
  EXPECT_THAT(Reads(answer), ElementsAre("SERVICE_BUSY", half, "SERVICE_BUSY", half));
}

TEST_P(ThenGetsTest, AreCountedAsIfTheyHadComeAlone) {
  PutRecord(Key("inode"), "open", "1234567");
  Message message;
  message.Add("a", "1", "12345");
  message.ThenGet(Key("inode"));
  message.Add("b", "1");
  message.ThenGet("nothing");
  Ask(message);
  OperationStatistics& statistics = device_->service().statistics();
  EXPECT_EQ(statistics.Of(Header::PUT).operations, 2u);
  EXPECT_EQ(statistics.Of(Header::PUT).value_bytes, 5u);
  EXPECT_EQ(statistics.Of(Header::GET).operations, 2u);
  EXPECT_EQ(statistics.Of(Header::GET).value_bytes, 7u);
  EXPECT_EQ(statistics.FailuresOf(Code::NOT_FOUND), 1u);
}

TEST_P(ThenGetsTest, AMessageThatCannotBeIsRefusedAsAWhole) {
  Message many;
  for (size_t i = 0; i <= kMostThenGetsTogether; ++i) {
    many.Add(fmt::format("k{}", i), "1");
    many.ThenGet("r");
  }
  ExpectRefused(many);
  for (const size_t length : {size_t{0}, kMaxKeyBytes + 1}) {
    Message wrong;
    wrong.Add("a", "1");
    wrong.ThenGet(std::string(length, 'k'));
    ExpectRefused(wrong);
  }
  Message of_batch;
  of_batch.Add("a", "1");
  of_batch.ThenGet("a");
  of_batch.command.mutable_header()->set_batchid(0);
  ExpectRefused(of_batch);
  // A put by itself, which would pass it over.
  Message alone;
  alone.Add("a", "1");
  alone.ThenGet("a");
  alone.command.mutable_header()->set_messagetype(Header::PUT);
  alone.command.mutable_body()->mutable_keyvalue()->set_key("a");
  ExpectRefused(alone);
  Command batch;
  batch.mutable_header()->set_messagetype(Header::START_BATCH);
  batch.mutable_header()->set_batchid(7);
  ASSERT_TRUE(client_->SendCommand(batch));
  EXPECT_EQ(client_->ReceiveAnswer().code(), Code::SUCCESS);
  alone.command.mutable_header()->set_batchid(7);
  ASSERT_TRUE(client_->SendCommand(alone.command));
  batch.mutable_header()->set_messagetype(Header::END_BATCH);
  ASSERT_TRUE(client_->SendCommand(batch));
  EXPECT_EQ(client_->ReceiveAnswer().code(), Code::INVALID_BATCH);
  EXPECT_EQ(VersionOf("a"), kNone);
  ASSERT_TRUE(client_->Request(Header::NOOP));
  EXPECT_EQ(client_->ReceiveAnswer().code(), Code::SUCCESS);
}

TEST_P(ThenGetsTest, UnderAnotherClusterVersionNothingIsDone) {
  ASSERT_OK(device_->security().SetClusterVersion(5));
  PutRecord(Key("inode"), "open", "value");
  Message message;
  message.Add("a", "1");
  message.ThenGet(Key("inode"));
  const WireClient::Answer answer = Ask(message);
  EXPECT_EQ(answer.code(), Code::VERSION_FAILURE);
  EXPECT_TRUE(Reads(answer).empty());
  EXPECT_EQ(VersionOf("a"), kNone);
}

// Our client and our server, on a store in files.
class PutsOverSockets : public testing::Test {
 protected:
  std::unique_ptr<Store> OpenStore() {
    auto store = LogStore::Open({.path = directory_.path(), .reserve_bytes = 0}, resources_);
    EXPECT_OK(store);
    return *std::move(store);
  }

  RealRuntime runtime_;
  const TemporaryDirectory directory_;
  StoreResources resources_;
  ServedDevice device_{runtime_, OpenStore()};
  KineticIo io_{runtime_};
  KineticDrive drive_{io_,
                      {.name = "drive",
                       .addresses = {fmt::format("127.0.0.1:{}", device_.port())},
                       .key = "asdfasdf"}};
};

// Values of different places in one message end where they should, whatever a store does with them.
TEST_F(PutsOverSockets, OfManyThreadsAreAllMadeAndAnswered) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 40;
  constexpr int kTogether = 20;
  const auto value = [](int thread, int round, int i) {
    return std::string(static_cast<size_t>(thread + 97 * i + round) % 6000,
                       static_cast<char>('a' + (thread + round + i) % 26));
  };
  const auto key = [](int thread, int i) { return fmt::format("{}/{}", thread, i); };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<std::promise<Status>> answers(kTogether);
        {
          const SendTogether together;
          for (int i = 0; i < kTogether; ++i) {
            drive_.Put(
                {.key = key(thread, i),
                 .value = SharedBytes(value(thread, round, i)),
                 .version = std::to_string(round + 1),
                 // Each third one expects what was there the round before last.
                 .expected = Expected::Version(round == 0   ? ""
                                               : i % 3 == 0 ? "never"
                                                            : std::to_string(round)),
                 .durability = i % 7 == 0 ? Durability::kWriteThrough : Durability::kWriteBack},
                runtime_.Now() + std::chrono::seconds(60),
                [&answers, i](Status status) { answers[i].set_value(std::move(status)); });
          }
        }
        for (int i = 0; i < kTogether; ++i) {
          const Status status = answers[i].get_future().get();
          const int wanted = round > 0 && i % 3 == 0 ? ESTALE : 0;
          EXPECT_EQ(status.code(), wanted) << status.message();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int i = 0; i < kTogether; ++i) {
      const auto record = device_.engine().Get(key(thread, i));
      ASSERT_OK(record);
      const int round = i % 3 == 0 ? 0 : kRounds - 1;
      EXPECT_EQ(record->head.version, std::to_string(round + 1));
      EXPECT_EQ(record->value.text(), value(thread, round, i));
    }
  }
  EXPECT_TRUE(drive_.capabilities().puts);
  EXPECT_EQ(device_.service().statistics().Of(Header::PUT).operations,
            static_cast<uint64_t>(kThreads * kRounds * kTogether));
}

// Records of all sizes.
TEST_F(PutsOverSockets, AreFollowedByReadsOfWhatIsThereThen) {
  while (!drive_.IsUp()) std::this_thread::yield();
  EXPECT_TRUE(drive_.capabilities().then_gets);
  constexpr int kRounds = 60;
  constexpr int kTogether = 11;     // in several messages
  constexpr int kInOneMessage = 8;  // of them, the first ones
  const auto value = [](int round, int i) {
    return std::string(static_cast<size_t>(i * i * i * 70 + round), static_cast<char>('a' + i));
  };
  const auto key = [](int i) { return fmt::format("{}", i); };
  // What another one of the same message puts, before it or after it, or what it puts itself.
  const auto read_by = [](int i) { return i < kInOneMessage ? (i + 3) % kInOneMessage : i; };
  for (int round = 1; round <= kRounds; ++round) {
    std::vector<std::promise<Status>> puts(kTogether);
    std::vector<std::promise<Result<Record>>> reads(kTogether);
    {
      const SendTogether together;
      const Time deadline = runtime_.Now() + std::chrono::seconds(60);
      for (int i = 0; i < kTogether; ++i) {
        drive_.PutThenGet(
            {.key = key(i),
             .value = SharedBytes(value(round, i)),
             .version = std::to_string(round),
             .durability = round % 7 == 0 ? Durability::kWriteThrough : Durability::kWriteBack},
            key(read_by(i)), deadline,
            [&puts, i](Status status) { puts[i].set_value(std::move(status)); },
            [&reads, i](Result<Record> record) { reads[i].set_value(std::move(record)); });
      }
    }
    for (int i = 0; i < kTogether; ++i) {
      EXPECT_OK(puts[i].get_future().get());
      const Result<Record> record = reads[i].get_future().get();
      ASSERT_OK(record);
      EXPECT_EQ(record->version, std::to_string(round));
      EXPECT_EQ(record->value.text(), value(round, read_by(i)));
      EXPECT_EQ(record->tag, CoveringTag(record->value));
    }
  }
  const auto& statistics = device_.service().statistics();
  EXPECT_EQ(statistics.Of(Header::PUT).operations, static_cast<uint64_t>(kRounds * kTogether));
  EXPECT_GE(statistics.Of(Header::GET).operations, static_cast<uint64_t>(kRounds * kTogether));
}

}  // namespace
}  // namespace pinstripe
