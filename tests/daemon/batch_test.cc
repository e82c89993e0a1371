// Batches over real connections: nothing before the end, all or nothing at it, nothing left after a
// connection that ends before.

#include "daemon/batch.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "daemon/server.h"
#include "store/memory_store.h"
#include "tests/daemon/vector_runtime.h"
#include "tests/daemon/wire_client.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::KeyValue;
using Code = kinetic::Status;

// A client that knows how batches are said.
class BatchClient : public WireClient {
 public:
  explicit BatchClient(uint16_t port) : WireClient(port) { ReceiveAnswer(); }

  bool Say(Header::MessageType type, uint32_t batch) {
    Command command;
    command.mutable_header()->set_messagetype(type);
    command.mutable_header()->set_batchid(batch);
    return SendCommand(command);
  }
  Answer Ask(Header::MessageType type, uint32_t batch) {
    EXPECT_TRUE(Say(type, batch));
    return ReceiveAnswer();
  }
  Answer Start(uint32_t batch) { return Ask(Header::START_BATCH, batch); }
  Answer End(uint32_t batch) { return Ask(Header::END_BATCH, batch); }

  // Without an answer. No version: forced.
  uint64_t Put(uint32_t batch, const std::string& key, std::string_view value,
               std::optional<std::string> expected = std::nullopt, std::string version = "") {
    Command command = Change(Header::PUT, batch, key, std::move(expected));
    command.mutable_body()->mutable_keyvalue()->set_newversion(std::move(version));
    EXPECT_TRUE(SendCommand(command, value));
    return last_sequence();
  }
  uint64_t Delete(uint32_t batch, const std::string& key,
                  std::optional<std::string> expected = std::nullopt) {
    EXPECT_TRUE(SendCommand(Change(Header::DELETE, batch, key, std::move(expected))));
    return last_sequence();
  }

  int Noop() {
    EXPECT_TRUE(Request(Header::NOOP));
    return ReceiveAnswer().code();
  }

 private:
  static Command Change(Header::MessageType type, uint32_t batch, const std::string& key,
                        std::optional<std::string> expected) {
    Command command;
    command.mutable_header()->set_messagetype(type);
    command.mutable_header()->set_batchid(batch);
    KeyValue* entry = command.mutable_body()->mutable_keyvalue();
    entry->set_key(key);
    entry->set_synchronization(KeyValue::WRITEBACK);
    entry->set_force(!expected);
    if (expected) entry->set_dbversion(*std::move(expected));
    return command;
  }
};

class BatchTest : public testing::Test {
 protected:
  BatchTest() {
    const Result<uint16_t> port = server_.Listen("127.0.0.1", 0, service_);
    EXPECT_OK(port);
    port_ = *port;
  }
  void AwaitNoBatches() {
    while (service_.batch_budget().batches() > 0) std::this_thread::yield();
  }
  std::string Value(std::string_view key) {
    const auto record = engine_.Get(key);
    return record.has_value() ? std::string(record->value.text())
                              : "(" + ErrnoText(record.error().code()) + ")";
  }

  VectorRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>(uint64_t{1} << 30)};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, Server::Options{}};
  uint16_t port_ = 0;
};

std::vector<uint64_t> SequencesOf(const WireClient::Answer& answer) {
  const auto& found = answer.command.body().batch().sequence();
  return {found.begin(), found.end()};
}

TEST_F(BatchTest, SpeaksAsOtherDevicesDoByteForByte) {
  WireClient client(port_);
  client.ReceiveFrame();
  const auto vector = [](std::string_view name) {
    for (const KineticVector& each : kKineticVectors) {
      if (each.name == name) return each;
    }
    ADD_FAILURE() << name;
    return KineticVector{};
  };
  ASSERT_TRUE(client.Send(Unhex(vector("START_BATCH 1").request)));
  EXPECT_EQ(Hex(AsBytes(client.ReceiveFrame())), vector("START_BATCH 1").response);
  constexpr std::string_view kPut =
      "46000000370000000220012a18080112147ac01f6283e7007188eee5e305765514506446f33a190a0b080018e807"
      "200d38047001120a0a081a02626b400148026276";
  ASSERT_TRUE(client.Send(Unhex(kPut)));
  ASSERT_TRUE(client.Send(Unhex(vector("END_BATCH 1").request)));
  EXPECT_EQ(Hex(AsBytes(client.ReceiveFrame())), vector("END_BATCH 1").response);
  EXPECT_EQ(Value("bk"), "bv");
}

TEST_F(BatchTest, NothingIsVisibleBeforeTheEndAndEverythingAfter) {
  ASSERT_OK(engine_.Put("gone", {}, Expected::Any()));
  BatchClient client(port_);
  EXPECT_EQ(client.Start(7).code(), Code::SUCCESS);
  const std::vector<uint64_t> said = {client.Put(7, "a", "1"), client.Put(7, "b", "2"),
                                      client.Delete(7, "gone")};
  EXPECT_EQ(client.Noop(), Code::SUCCESS);  // what was said before it has been read
  EXPECT_FAILS(engine_.Head("a"), ENOENT);
  EXPECT_OK(engine_.Head("gone"));
  const auto ended = client.End(7);
  EXPECT_EQ(ended.code(), Code::SUCCESS);
  EXPECT_EQ(SequencesOf(ended), said);
  EXPECT_FALSE(ended.command.body().batch().has_failedsequence());
  EXPECT_EQ(Value("a"), "1");
  EXPECT_EQ(Value("b"), "2");
  EXPECT_FAILS(engine_.Head("gone"), ENOENT);
}

TEST_F(BatchTest, OneChangeThatFailsFailsAllAndIsNamed) {
  ASSERT_OK(engine_.Put("k", {{.version = "v1"}, {}}, Expected::Any()));
  BatchClient client(port_);
  client.Start(1);
  client.Put(1, "new", "value");
  const uint64_t stale = client.Put(1, "k", "value", "v0", "v2");
  client.Put(1, "third", "value");
  const auto ended = client.End(1);
  EXPECT_EQ(ended.code(), Code::INVALID_BATCH);
  EXPECT_EQ(ended.command.body().batch().failedsequence(), stale);
  EXPECT_EQ(SequencesOf(ended).size(), 3u);
  EXPECT_NE(ended.command.status().statusmessage().find("VERSION_MISMATCH"), std::string::npos);
  EXPECT_FAILS(engine_.Head("new"), ENOENT);
  EXPECT_EQ(engine_.Head("k")->version, "v1");
  client.Start(2);
  const uint64_t missing = client.Delete(2, "missing", "");
  EXPECT_EQ(client.End(2).command.body().batch().failedsequence(), missing);
  client.Start(3);
  client.Delete(3, "missing");  // forced
  EXPECT_EQ(client.End(3).code(), Code::SUCCESS);
}

TEST_F(BatchTest, WhatIsOverALimitFailsAtTheEnd) {
  BatchClient client(port_);
  const auto fails = [&](const std::function<uint64_t()>& change) {
    client.Start(1);
    client.Put(1, "before", "value");
    const uint64_t sequence = change();
    client.Put(1, "after", "value");
    const auto ended = client.End(1);
    EXPECT_EQ(ended.code(), Code::INVALID_BATCH);
    EXPECT_EQ(ended.command.body().batch().failedsequence(), sequence);
    EXPECT_EQ(SequencesOf(ended).size(), 3u);
    EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 0u);
  };
  fails([&] { return client.Put(1, "k", std::string(kMaxValueBytes + 1, 'v')); });
  fails([&] { return client.Put(1, std::string(kMaxKeyBytes + 1, 'k'), ""); });
  fails([&] { return client.Put(1, "k", "", "", std::string(kMaxVersionBytes + 1, 'v')); });
  EXPECT_EQ(service_.batch_budget().bytes(), 0u);
}

TEST_F(BatchTest, AnAbortedBatchHasNotBeen) {
  BatchClient client(port_);
  client.Start(1);
  client.Put(1, "k", "value");
  EXPECT_EQ(client.Ask(Header::ABORT_BATCH, 1).code(), Code::SUCCESS);
  EXPECT_FAILS(engine_.Head("k"), ENOENT);
  EXPECT_EQ(client.Start(1).code(), Code::SUCCESS) << "its number can be used again";
  EXPECT_EQ(client.End(1).code(), Code::SUCCESS) << "an empty one changes nothing";
}

TEST_F(BatchTest, SeveralAreOpenAtATimeAndOthersGoOnBetween) {
  BatchClient client(port_);
  for (const uint32_t id : {0u, 1u, 2u}) EXPECT_EQ(client.Start(id).code(), Code::SUCCESS);
  client.Put(0, "k0", "0");
  client.Put(2, "k2", "2");
  client.Put(1, "k1", "1");
  client.Request(Header::PUT,
                 [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("plain"); });
  EXPECT_EQ(client.ReceiveAnswer().code(), Code::SUCCESS);
  EXPECT_EQ(client.End(0).code(), Code::SUCCESS);
  EXPECT_EQ(Value("k0"), "0");
  EXPECT_FAILS(engine_.Head("k1"), ENOENT);
  EXPECT_EQ(client.End(2).code(), Code::SUCCESS);
  EXPECT_EQ(client.End(1).code(), Code::SUCCESS);
  EXPECT_EQ(Value("k1") + Value("k2"), "12");
  // Without such a batch number 0 means none.
  client.Put(0, "alone", "value");
  EXPECT_EQ(client.ReceiveAnswer().code(), Code::SUCCESS);
}

TEST_F(BatchTest, ABatchThatIsNotOpenEndsTheConnection) {
  const auto ends = [&](const std::function<void(BatchClient&)>& say) {
    BatchClient client(port_);
    EXPECT_EQ(client.Start(1).code(), Code::SUCCESS);
    say(client);
    const auto last = client.ReceiveAnswer();
    EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
    EXPECT_EQ(last.code(), Code::INVALID_BATCH);
    EXPECT_FALSE(last.command.header().has_acksequence());
    EXPECT_TRUE(client.SeesTheEnd());
  };
  ends([](BatchClient& client) { client.Put(2, "k", "value"); });
  ends([](BatchClient& client) { client.Say(Header::END_BATCH, 2); });
  ends([](BatchClient& client) { client.Say(Header::ABORT_BATCH, 2); });
  ends([](BatchClient& client) { client.Say(Header::START_BATCH, 1); });
  AwaitNoBatches();
}

TEST_F(BatchTest, AConnectionThatEndsTakesItsBatchesAlong) {
  for (int round = 0; round < 20; ++round) {
    auto client = std::make_unique<BatchClient>(port_);
    client->Start(1);
    client->Start(2);
    for (int i = 0; i < round; ++i) client->Put(1, "k", std::string(100'000, 'v'));
    // A frame that is cut in its middle, too.
    if (round % 2 == 1) client->Send(Unhex(kKineticVectors[1].request).substr(0, 40));
    client.reset();
  }
  AwaitNoBatches();
  EXPECT_EQ(service_.batch_budget().bytes(), 0u);
  EXPECT_FAILS(engine_.Head("k"), ENOENT);
}

TEST_F(BatchTest, ItHoldsAsManyOperationsAsAnnouncedAndNotOneMore) {
  BatchClient client(port_);
  for (const size_t more : {0, 1, 5}) {
    client.Start(1);
    uint64_t over = 0;
    for (size_t i = 0; i < kMaxBatchOperations + more; ++i) {
      const uint64_t sequence = client.Put(1, fmt::format("{}", i), "v");
      if (i == kMaxBatchOperations) over = sequence;
    }
    const auto ended = client.End(1);
    EXPECT_EQ(ended.code(), more == 0 ? Code::SUCCESS : Code::INVALID_BATCH);
    if (more > 0) {
      EXPECT_EQ(ended.command.body().batch().failedsequence(), over);
      EXPECT_EQ(SequencesOf(ended).size(), kMaxBatchOperations + 1);
    }
  }
}

TEST_F(BatchTest, ItHoldsAsManyBytesAsAnnouncedAndNotMuchMore) {
  BatchClient client(port_);
  const std::string value(kMaxValueBytes, 'v');
  for (const bool over : {false, true}) {
    client.Start(1);
    uint64_t last = 0;
    const size_t puts = kMaxBatchBytes / kMaxValueBytes - (over ? 0 : 1);
    for (size_t i = 0; i < puts; ++i) last = client.Put(1, fmt::format("{}", i % 3), value);
    const auto ended = client.End(1);
    EXPECT_EQ(ended.code(), over ? Code::INVALID_BATCH : Code::SUCCESS);
    EXPECT_EQ(ended.command.body().batch().failedsequence(), over ? last : 0);
  }
}

TEST_F(BatchTest, ADeviceOpensAsManyAsAnnouncedAndNotOneMore) {
  BatchClient client(port_);
  for (uint32_t id = 0; id < kMaxBatchesPerDevice; ++id) {
    ASSERT_EQ(client.Start(id).code(), Code::SUCCESS);
  }
  EXPECT_EQ(client.Start(kMaxBatchesPerDevice).code(), Code::SERVICE_BUSY);
  EXPECT_EQ(client.End(3).code(), Code::SUCCESS);
  EXPECT_EQ(client.Start(kMaxBatchesPerDevice).code(), Code::SUCCESS);
}

// What all open batches of a device hold is bounded, whatever each may.
TEST_F(BatchTest, BatchesTogetherHoldBoundedMemory) {
  BatchClient client(port_);
  const std::string value(kMaxValueBytes, 'v');
  const size_t puts = kMaxBatchBytes / kMaxValueBytes - 1;
  const uint32_t fit = kMaxBatchBytesPerDevice / kMaxBatchBytes;
  for (uint32_t id = 0; id <= fit; ++id) {
    client.Start(id);
    for (size_t i = 0; i < puts; ++i) client.Put(id, "k", value);
  }
  EXPECT_EQ(client.Noop(), Code::SUCCESS);
  EXPECT_LE(service_.batch_budget().bytes(), kMaxBatchBytesPerDevice);
  EXPECT_EQ(client.End(0).code(), Code::SUCCESS);
  const auto last = client.End(fit);
  EXPECT_EQ(last.code(), Code::INVALID_BATCH);
  EXPECT_NE(last.command.status().statusmessage().find("SERVICE_BUSY"), std::string::npos);
}

// Random batches against the plain engine, which makes the same changes one by one when all of them
// would succeed.
TEST_F(BatchTest, AgreesWithAModelWhateverIsAsked) {
  BatchClient client(port_);
  std::mt19937 random(20);
  const auto pick = [&](uint32_t end) { return random() % end; };
  std::map<std::string, std::pair<std::string, std::string>> model;  // key: version, value
  int succeeded = 0;
  for (int round = 0; round < 400; ++round) {
    auto next = model;
    std::optional<uint64_t> failed;
    client.Start(1);
    for (uint32_t i = pick(6); i > 0; --i) {
      const std::string key(1, static_cast<char>('a' + pick(6)));
      const auto known = model.find(key);  // as it was before the batch
      const std::string version = known == model.end() ? "" : known->second.first;
      std::optional<std::string> expected;
      if (pick(2) == 0) expected = pick(5) == 0 ? "another" : version;
      const bool matches = !expected || *expected == version;
      uint64_t sequence = 0;
      bool fine = matches;
      if (pick(3) == 0) {
        sequence = client.Delete(1, key, expected);
        fine = matches && (known != model.end() || !expected);
        next.erase(key);
      } else {
        const std::string now = fmt::format("v{}", pick(1000));
        const std::string value(pick(9000), static_cast<char>('a' + pick(26)));
        sequence = client.Put(1, key, value, expected, now);
        next[key] = {now, value};
      }
      if (!fine && !failed) failed = sequence;
    }
    const auto ended = client.End(1);
    ASSERT_EQ(ended.code(), failed ? Code::INVALID_BATCH : Code::SUCCESS) << round;
    ASSERT_EQ(ended.command.body().batch().failedsequence(), failed.value_or(0));
    if (!failed) model = std::move(next);
    succeeded += !failed;
    for (char letter = 'a'; letter < 'g'; ++letter) {
      const auto record = engine_.Get(std::string(1, letter));
      const auto known = model.find(std::string(1, letter));
      ASSERT_EQ(record.has_value(), known != model.end());
      if (!record.has_value()) continue;
      ASSERT_EQ(record->head.version, known->second.first);
      ASSERT_EQ(record->value.text(), known->second.second);
    }
  }
  EXPECT_GT(succeeded, 100);
  EXPECT_LT(succeeded, 350);
}

}  // namespace
}  // namespace pinstripe
