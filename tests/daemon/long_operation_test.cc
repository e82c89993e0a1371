// What devices do beside the requests of others: scans and compactions of their medium, pushes to
// peers.

#include "store/long_operation.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <thread>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/real_runtime.h"
#include "daemon/peer_push.h"
#include "daemon/server.h"
#include "kinetic/tls.h"
#include "store/background.h"
#include "store/log_store.h"
#include "store/memory_store.h"
#include "store/tag_check.h"
#include "tests/daemon/wire_client.h"
#include "tests/kinetic/certificate.h"
#include "tests/kinetic/fake_device.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Command;
using kinetic::Header;
using kinetic::P2POperation;
using Code = kinetic::Status;

std::string BigEndian(uint32_t sum) { return Writer().U32(sum).Take(); }

StoredRecord RecordOf(std::string value, std::string tag, std::optional<int32_t> algorithm,
                      std::string version = "v") {
  return {{.version = std::move(version), .tag = std::move(tag), .algorithm = algorithm},
          SharedBytes(std::move(value))};
}
StoredRecord Tagged(const std::string& value) {
  return RecordOf(value, BigEndian(Crc32c(AsBytes(value))), 4);
}

TEST(TagCheck, TheSpecifiedAlgorithmsAreComputed) {
  const std::string value = "123456789";
  unsigned char sha1[SHA_DIGEST_LENGTH];
  unsigned char sha256[SHA256_DIGEST_LENGTH];
  const auto* bytes = reinterpret_cast<const unsigned char*>(value.data());
  SHA1(bytes, value.size(), sha1);
  SHA256(bytes, value.size(), sha256);
  const std::map<int, std::string> right = {
      {1, std::string(reinterpret_cast<char*>(sha1), sizeof sha1)},
      {2, std::string(reinterpret_cast<char*>(sha256), sizeof sha256)},
      {4, "\xe3\x06\x92\x83"},
      {6, "\xcb\xf4\x39\x26"},
  };
  const auto check = [&](std::optional<int> algorithm, const std::string& tag) {
    return CheckTag({.tag = tag, .algorithm = algorithm}, AsBytes(value));
  };
  for (const auto& [algorithm, tag] : right) {
    EXPECT_EQ(check(algorithm, tag), TagVerdict::kRight) << algorithm;
    EXPECT_EQ(check(algorithm, tag + "x"), TagVerdict::kWrong);
    EXPECT_EQ(check(algorithm, "t1"), TagVerdict::kWrong);
    EXPECT_EQ(check(algorithm, ""), TagVerdict::kUnknown);
  }
  EXPECT_EQ(check(5, "whatever"), TagVerdict::kUnknown);
  EXPECT_EQ(check(100, "whatever"), TagVerdict::kUnknown);
  EXPECT_EQ(check(std::nullopt, "whatever"), TagVerdict::kUnknown);
}

// May do everything, but only with keys that begin with "mine/".
Rights Limited() {
  Rights rights = FullAccess("two");
  rights.scopes[0].value = "mine/";
  return rights;
}

// A store in which reads wait, of one key and those that follow.
class GatedStore final : public MemoryStore {
 public:
  static constexpr auto kForEver = 1h;

  // Before reads begin.
  void CloseAt(std::string key, std::chrono::milliseconds time) {
    closed_from_ = std::move(key);
    time_ = time;
  }
  void Open() { open_.set_value(); }

  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    if (closed_from_ && key >= *closed_from_) opened_.wait_for(time_);
    return MemoryStore::Get(key, range);
  }

 private:
  std::promise<void> open_;
  const std::shared_future<void> opened_ = open_.get_future();
  std::optional<std::string> closed_from_;
  std::chrono::milliseconds time_{};
};

// A device, on any store.
class Device {
 public:
  Device(Runtime& runtime, std::unique_ptr<Store> store, Server::Options options = {})
      : engine(std::move(store)), server(runtime, options) {
    const Result<uint16_t> bound = server.Listen("127.0.0.1", 0, service);
    EXPECT_OK(bound);
    port = *bound;
  }
  Engine engine;
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}, {2, Limited()}}};
  KineticService service{{.serial_number = "SN1"}, security, engine};
  Server server;
  uint16_t port = 0;
};

class MediaTest : public testing::Test {
 protected:
  MediaTest() { client_.ReceiveAnswer(); }

  void Say(Header::MessageType type, uint32_t most, const std::function<void(Command*)>& more = {},
           std::string first = "", std::string last = "") {
    Command command;
    command.mutable_header()->set_messagetype(type);
    kinetic::Range* range = command.mutable_body()->mutable_range();
    range->set_startkey(std::move(first));
    range->set_endkey(std::move(last));
    range->set_startkeyinclusive(true);
    range->set_endkeyinclusive(true);
    if (most > 0) range->set_maxreturned(most);
    if (more) more(&command);
    ASSERT_TRUE(client_.SendCommand(command));
  }
  WireClient::Answer Scan(uint32_t most, const std::function<void(Command*)>& more = {},
                          std::string first = "", std::string last = "") {
    Say(Header::MEDIASCAN, most, more, std::move(first), std::move(last));
    return client_.ReceiveAnswer();
  }
  static std::vector<std::string> KeysOf(const WireClient::Answer& answer) {
    const auto& keys = answer.command.body().range().keys();
    return {keys.begin(), keys.end()};
  }
  void Put(const std::string& key, const StoredRecord& record) {
    ASSERT_OK(device_.engine.Put(key, record, Expected::Any()));
  }

  RealRuntime runtime_;
  GatedStore* gate_ = new GatedStore;
  Device device_{runtime_, std::unique_ptr<Store>(gate_)};
  WireClient client_{device_.port};
};

TEST_F(MediaTest, AScanNamesTheKeysWhoseTagsDoNotFit) {
  for (int i = 0; i < 500; ++i) Put(fmt::format("k{:03}", i), Tagged(fmt::format("value {}", i)));
  for (const int i : {3, 100, 499}) Put(fmt::format("k{:03}", i), RecordOf("value", "t1", 4));
  Put("k200", RecordOf("value", "SomeTagValue", 99));  // nobody knows this one
  const auto all = Scan(0);
  EXPECT_EQ(all.code(), Code::SUCCESS);
  EXPECT_EQ(all.command.header().messagetype(), Header::MEDIASCAN_RESPONSE);
  EXPECT_EQ(KeysOf(all), (std::vector<std::string>{"k003", "k100", "k499"}));
  const auto bounded = Scan(200, {}, "k004", "k300");
  EXPECT_EQ(KeysOf(bounded), (std::vector<std::string>{"k100"}));
  EXPECT_EQ(bounded.command.body().range().endkey(), "k300") << "all of it was read";
  const auto stopped = Scan(2, {}, "", "z");
  EXPECT_EQ(KeysOf(stopped).size(), 2u);
  EXPECT_EQ(stopped.command.body().range().endkey(), "k499") << "the first that is not named";
  const auto rest = Scan(2, {}, "k499", "z");
  EXPECT_EQ(KeysOf(rest), (std::vector<std::string>{"k499"})) << "and there it goes on";
  EXPECT_EQ(rest.command.body().range().endkey(), "z");
  EXPECT_EQ(Scan(3, {}, "", "z").command.body().range().endkey(), "z") << "no more is damaged";
  EXPECT_EQ(Scan(200, {}, "x", "z").command.body().range().endkey(), "z");
  EXPECT_EQ(Scan(201).code(), Code::INVALID_REQUEST);
  EXPECT_EQ(Scan(200).code(), Code::SUCCESS);
  EXPECT_EQ(Scan(1, {}, std::string(kMaxKeyBytes + 1, 'k')).code(), Code::INVALID_REQUEST);
}

TEST_F(MediaTest, AChecksumScanLeavesTagsAloneAndSaysWhatItRead) {
  Put("a", RecordOf("value", "t1", 4));
  Put("b", RecordOf("longer value", "", std::nullopt));
  const auto scanned = Scan(0, [](Command* command) {
    command->mutable_body()->mutable_range()->set_checksumsonly(true);
  });
  EXPECT_EQ(scanned.code(), Code::SUCCESS);
  EXPECT_EQ(scanned.command.body().range().keys_size(), 0);
  EXPECT_EQ(scanned.command.body().range().scannedrecords(), 2u);
  EXPECT_EQ(scanned.command.body().range().scannedbytes(), 17u);
  EXPECT_FALSE(Scan(0).command.body().range().has_scannedrecords()) << "nobody else sees any of it";
}

TEST_F(MediaTest, AScanThatIsOutOfTimeSaysWhereItIs) {
  for (int i = 0; i < 30; ++i) Put(fmt::format("k{:02}", i), Tagged("value"));
  static constexpr auto kTimeout = 2000ms;
  gate_->CloseAt("k10", 2 * kTimeout);
  const auto cut = Scan(0, [](Command* command) {
    command->mutable_header()->set_timeout(kTimeout.count());
    command->mutable_header()->set_timequanta(0);
  });
  EXPECT_EQ(cut.code(), Code::EXPIRED);
  const std::string reached = cut.command.body().range().endkey();
  EXPECT_LE(reached, "k10");
  EXPECT_GE(reached, "k09");
  // And goes on from there.
  gate_->Open();
  EXPECT_EQ(Scan(
                0, [](Command* command) { command->mutable_header()->set_priority(9); }, reached)
                .code(),
            Code::SUCCESS);
}

TEST_F(MediaTest, OthersAreServedWhileItScansAndItsEndEndsTheScan) {
  for (int i = 0; i < 300; ++i) Put(fmt::format("k{:03}", i), Tagged("value"));
  gate_->CloseAt("k000", GatedStore::kForEver);
  for (int i = 0; i < 5; ++i) {
    Say(Header::MEDIASCAN, 0,
        [](Command* command) { command->mutable_header()->set_timequanta(0); });
  }
  client_.Request(Header::NOOP);
  EXPECT_EQ(client_.ReceiveAnswer().command.header().messagetype(), Header::NOOP_RESPONSE);
  gate_->Open();
  // The destructors: with scans under way, in the middle of taking turns, the server ends at once.
}

TEST_F(MediaTest, OnlyAPermittedRangeIsScanned) {
  Put("mine/k", RecordOf("value", "t1", 4));
  Put("other", RecordOf("value", "t1", 4));
  for (const auto type : {Header::MEDIASCAN, Header::MEDIAOPTIMIZE}) {
    for (const auto& [last, code] : {std::pair{"mine/z", Code::SUCCESS},
                                     {"mine0", Code::NOT_AUTHORIZED},
                                     {"", Code::NOT_AUTHORIZED}}) {
      Command command;
      command.mutable_header()->set_messagetype(type);
      command.mutable_body()->mutable_range()->set_startkey("mine/");
      command.mutable_body()->mutable_range()->set_endkey(last);
      client_.SetIdentity(2);
      ASSERT_TRUE(client_.SendCommand(command, {}, "two"));
      const auto answer = client_.ReceiveAnswer();
      EXPECT_EQ(answer.code(), code) << last;
      EXPECT_EQ(answer.command.body().range().keys_size(),
                code == Code::SUCCESS && type == Header::MEDIASCAN ? 1 : 0);
    }
  }
}

TEST_F(MediaTest, OptimizingAnswersWithTheEndOfItsRange) {
  Say(Header::MEDIAOPTIMIZE, 0, {}, "a", "z");
  const auto optimized = client_.ReceiveAnswer();
  EXPECT_EQ(optimized.code(), Code::SUCCESS);
  EXPECT_EQ(optimized.command.header().messagetype(), Header::MEDIAOPTIMIZE_RESPONSE);
  EXPECT_EQ(optimized.command.body().range().endkey(), "z");
}

TEST(MediaOnDisk, DamageIsFoundAndCompactingGivesBackSpace) {
  TemporaryDirectory directory;
  StoreResources resources;
  RealRuntime runtime;
  auto store = LogStore::Open({.path = directory.path(), .reserve_bytes = 0}, resources);
  ASSERT_OK(store);
  Device device(runtime, *std::move(store));
  for (const char* key : {"a", "b", "c"}) {
    ASSERT_OK(device.engine.Put(key, RecordOf(std::string(50'000, 'v'), "", std::nullopt),
                                Expected::Any()));
  }
  const std::filesystem::path segment = directory / "segments/00000001.log";
  {
    std::fstream file(segment, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(75'000);  // in the second one's value
    file.put('x');
  }
  WireClient client(device.port);
  client.ReceiveAnswer();
  client.Request(Header::MEDIASCAN, [](kinetic::Body* body) { body->mutable_range(); });
  const auto scanned = client.ReceiveAnswer();
  ASSERT_EQ(scanned.command.body().range().keys_size(), 1);
  EXPECT_EQ(scanned.command.body().range().keys(0), "b");
  ASSERT_OK(device.engine.Delete("c", Expected::Any()));
  const uint64_t before = device.engine.Usage().used_bytes;
  client.Request(Header::MEDIAOPTIMIZE, [](kinetic::Body* body) { body->mutable_range(); });
  EXPECT_EQ(client.ReceiveAnswer().code(), Code::SUCCESS);
  EXPECT_LT(device.engine.Usage().used_bytes, before - 40'000);
}

// --- Pushes

class PushTest : public testing::Test {
 protected:
  PushTest() { client_.ReceiveAnswer(); }

  static P2POperation To(uint16_t port) {
    P2POperation push;
    push.mutable_peer()->set_hostname("127.0.0.1");
    push.mutable_peer()->set_port(port);
    return push;
  }
  static uint16_t PortOf(const std::string& address) {
    return static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1)));
  }
  static P2POperation::Operation* Add(P2POperation& push, const std::string& key) {
    P2POperation::Operation* operation = push.add_operation();
    operation->set_key(key);
    return operation;
  }
  WireClient::Answer Push(const P2POperation& push, uint64_t timeout_ms = 0) {
    Command command;
    command.mutable_header()->set_messagetype(Header::PEER2PEERPUSH);
    if (timeout_ms > 0) command.mutable_header()->set_timeout(timeout_ms);
    *command.mutable_body()->mutable_p2poperation() = push;
    EXPECT_TRUE(client_.SendCommand(command));
    return client_.ReceiveAnswer();
  }
  void Put(Device& device, const std::string& key, const StoredRecord& record) {
    ASSERT_OK(device.engine.Put(key, record, Expected::Any()));
  }

  RealRuntime runtime_;
  Device a_{runtime_, std::make_unique<MemoryStore>()};
  Device b_{runtime_, std::make_unique<MemoryStore>()};
  Device c_{runtime_, std::make_unique<MemoryStore>()};
  WireClient client_{a_.port};
};

TEST_F(PushTest, ARecordArrivesWithEverythingThatItHas) {
  Put(a_, "k", RecordOf(std::string(300'000, 'x'), "the tag", 1234, "version"));
  Put(a_, "empty", RecordOf("", "", std::nullopt, ""));
  P2POperation push = To(b_.port);
  P2POperation::Operation* first = Add(push, "k");
  first->set_newkey("another key");
  first->set_force(true);
  Add(push, "empty");
  const auto pushed = Push(push);
  EXPECT_EQ(pushed.code(), Code::SUCCESS);
  const P2POperation& answer = pushed.command.body().p2poperation();
  EXPECT_TRUE(answer.allchildoperationssucceeded());
  ASSERT_EQ(answer.operation_size(), 2);
  EXPECT_EQ(answer.operation(0).key(), "k");
  EXPECT_EQ(answer.operation(0).newkey(), "another key");
  EXPECT_TRUE(answer.operation(0).force()) << "what was asked is said again";
  EXPECT_FALSE(answer.operation(1).has_force());
  EXPECT_EQ(answer.operation(0).status().code(), Code::SUCCESS);
  const auto record = b_.engine.Get("another key");
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), std::string(300'000, 'x'));
  EXPECT_EQ(record->head.version, "version");
  EXPECT_EQ(record->head.tag, "the tag");
  EXPECT_EQ(record->head.algorithm, 1234);
  EXPECT_FALSE(b_.engine.Head("empty")->algorithm);
}

TEST_F(PushTest, EachOperationHasAnOutcomeOfItsOwn) {
  Put(a_, "k", Tagged("new"));
  Put(b_, "k", RecordOf("old", "", std::nullopt, "v7"));
  P2POperation push = To(b_.port);
  Add(push, "missing");
  Add(push, "k")->set_version("v6");  // the peer has v7
  const auto pushed = Push(push);
  EXPECT_EQ(pushed.code(), Code::SUCCESS) << "peers look at the operations only then";
  const P2POperation& answer = pushed.command.body().p2poperation();
  EXPECT_FALSE(answer.allchildoperationssucceeded());
  EXPECT_EQ(answer.operation(0).status().code(), Code::NOT_FOUND);
  EXPECT_EQ(answer.operation(1).status().code(), Code::VERSION_MISMATCH);
  EXPECT_EQ(b_.engine.Get("k")->value.text(), "old");
  push.mutable_operation(1)->set_version("v7");
  EXPECT_EQ(Push(push).command.body().p2poperation().operation(1).status().code(), Code::SUCCESS);
  EXPECT_EQ(b_.engine.Head("k")->version, "v") << "the version that it has here";
  push.mutable_operation(1)->set_version("v6");
  push.mutable_operation(1)->set_force(true);
  EXPECT_EQ(Push(push).command.body().p2poperation().operation(1).status().code(), Code::SUCCESS);
}

TEST_F(PushTest, ManyGoThroughInTurn) {
  P2POperation push = To(b_.port);
  for (int i = 0; i < kMaxPushOperations; ++i) {
    Put(a_, fmt::format("{}", i), Tagged(std::string(static_cast<size_t>(i % 7) * 30'000, 'x')));
    Add(push, fmt::format("{}", i));
  }
  const auto pushed = Push(push);
  EXPECT_TRUE(pushed.command.body().p2poperation().allchildoperationssucceeded());
  for (int i = 0; i < kMaxPushOperations; ++i) ASSERT_OK(b_.engine.Get(fmt::format("{}", i)));
}

TEST_F(PushTest, ARecordGoesOnFromDeviceToDevice) {
  Put(a_, "k", Tagged("value"));
  P2POperation push = To(b_.port);
  P2POperation& onward = *Add(push, "k")->mutable_p2pop();
  onward = To(c_.port);
  Add(onward, "k")->set_newkey("at its end");
  Add(onward, "missing there");
  const auto pushed = Push(push);
  EXPECT_EQ(c_.engine.Get("at its end")->value.text(), "value");
  const P2POperation& answer = pushed.command.body().p2poperation();
  EXPECT_FALSE(answer.allchildoperationssucceeded());
  EXPECT_EQ(answer.operation(0).status().code(), Code::NESTED_OPERATION_ERRORS);
  ASSERT_EQ(answer.operation(0).p2pop().operation_size(), 2);
  EXPECT_EQ(answer.operation(0).p2pop().operation(0).status().code(), Code::SUCCESS);
  EXPECT_EQ(answer.operation(0).p2pop().operation(1).status().code(), Code::NOT_FOUND);
}

TEST_F(PushTest, ItIsAskedForWithinBounds) {
  const auto code = [&](const P2POperation& push) { return Push(push).code(); };
  P2POperation nobody = To(b_.port);
  nobody.mutable_peer()->clear_hostname();
  EXPECT_EQ(code(nobody), Code::INVALID_REQUEST);
  EXPECT_EQ(code(To(0)), Code::INVALID_REQUEST);
  P2POperation many = To(b_.port);
  for (int i = 0; i <= kMaxPushOperations; ++i) Add(many, "k");
  EXPECT_EQ(code(many), Code::INVALID_REQUEST);
  P2POperation large = To(b_.port);
  for (int i = 0; i < 200; ++i) Add(large, std::string(4000, 'k'));
  EXPECT_EQ(code(large), Code::INVALID_REQUEST);
  for (const int depth : {kMaxPushDepth, kMaxPushDepth + 1}) {
    P2POperation deep = To(b_.port);
    P2POperation* innermost = &deep;
    for (int i = 1; i < depth; ++i) {
      P2POperation* next = Add(*innermost, "k")->mutable_p2pop();
      *next = To(b_.port);
      innermost = next;
    }
    EXPECT_EQ(code(deep), depth == kMaxPushDepth ? Code::SUCCESS : Code::INVALID_REQUEST);
  }
}

// Neither can records leave to where the requester may not write, nor those that it may not read.
TEST_F(PushTest, WhoMayNotReadARecordCannotPushItEither) {
  Put(a_, "mine/k", Tagged("value"));
  Put(a_, "theirs/k", Tagged("secret"));
  P2POperation push = To(b_.port);
  Add(push, "theirs/k")->set_newkey("mine/copy");
  Add(push, "mine/k")->set_newkey("theirs/copy");
  Add(push, "mine/k");
  Command command;
  command.mutable_header()->set_messagetype(Header::PEER2PEERPUSH);
  *command.mutable_body()->mutable_p2poperation() = push;
  client_.SetIdentity(2);
  ASSERT_TRUE(client_.SendCommand(command, {}, "two"));
  const auto pushed = client_.ReceiveAnswer();
  EXPECT_EQ(pushed.code(), Code::SUCCESS);
  const P2POperation& answer = pushed.command.body().p2poperation();
  EXPECT_EQ(answer.operation(0).status().code(), Code::NOT_AUTHORIZED);
  EXPECT_EQ(answer.operation(1).status().code(), Code::NOT_AUTHORIZED) << "says the peer";
  EXPECT_EQ(answer.operation(2).status().code(), Code::SUCCESS);
  EXPECT_EQ(b_.engine.Keys({}, 10, false).value(), std::vector<std::string>{"mine/k"});
}

TEST_F(PushTest, APeerIsReachedOverTlsWhereItIsSaidSo) {
  TemporaryDirectory directory;
  const TlsFiles files{directory / "tls.crt", directory / "tls.key"};
  MakeCertificate(files.certificate, files.key);
  const Result<uint16_t> port =
      b_.server.Listen("127.0.0.1", 0, b_.service, *TlsServer::Load(files));
  ASSERT_OK(port);
  Put(a_, "k", Tagged(std::string(500'000, 'x')));
  P2POperation push = To(*port);
  Add(push, "k");
  EXPECT_EQ(Push(push, 3000).code(), Code::REMOTE_CONNECTION_ERROR) << "without TLS";
  push.mutable_peer()->set_tls(true);
  EXPECT_TRUE(Push(push).command.body().p2poperation().allchildoperationssucceeded());
  EXPECT_EQ(b_.engine.Get("k")->value.size(), 500'000u);
}

TEST_F(PushTest, APeerThatIsAwayIsSaidToBe) {
  Put(a_, "k", Tagged("value"));
  P2POperation push = To(PortOf(DeadAddress()));
  Add(push, "k");
  EXPECT_EQ(Push(push).code(), Code::REMOTE_CONNECTION_ERROR);
  push.mutable_peer()->set_hostname("no-such-host.invalid");
  const auto pushed = Push(push);
  EXPECT_EQ(pushed.code(), Code::REMOTE_CONNECTION_ERROR);
  EXPECT_EQ(pushed.command.body().p2poperation().operation_size(), 0);
}

// A peer that says nothing, while a slow one is waited for by more pushes than there are threads.
TEST_F(PushTest, PeersThatNeverAnswerHoldUpOnlyTheirPushes) {
  Put(a_, "k", Tagged("value"));
  FakeDevice silent([](FakeDevice::Session& session) { session.WaitForEnd(); });
  P2POperation push = To(PortOf(silent.address()));
  Add(push, "k");
  Command command;
  command.mutable_header()->set_messagetype(Header::PEER2PEERPUSH);
  command.mutable_header()->set_timeout(1000);
  *command.mutable_body()->mutable_p2poperation() = push;
  constexpr int kPushes = 12;
  for (int i = 0; i < kPushes; ++i) ASSERT_TRUE(client_.SendCommand(command));
  client_.Request(Header::NOOP);
  EXPECT_EQ(client_.ReceiveAnswer().command.header().messagetype(), Header::NOOP_RESPONSE);
  std::map<int, int> codes;
  for (int i = 0; i < kPushes; ++i) ++codes[client_.ReceiveAnswer().code()];
  const int threads = Server::Options{}.pushers;
  // Those that had a turn, among them perhaps some that came last and had a moment left when the
  // first ones ended; and those whose turn never came.
  EXPECT_GE(codes[Code::REMOTE_CONNECTION_ERROR], threads);
  EXPECT_EQ(codes[Code::REMOTE_CONNECTION_ERROR] + codes[Code::SERVICE_BUSY], kPushes);
}

TEST_F(PushTest, TheServerEndsWhileItPushes) {
  Put(a_, "k", Tagged("value"));
  FakeDevice silent([](FakeDevice::Session& session) { session.WaitForEnd(); });
  P2POperation push = To(PortOf(silent.address()));
  Add(push, "k");
  client_.Request(Header::PEER2PEERPUSH,
                  [&](kinetic::Body* body) { *body->mutable_p2poperation() = push; });
  client_.Request(Header::NOOP);
  client_.ReceiveAnswer();
}

// --- Background

TEST(Background, JobsTakeTurnsAndEndWhenTheirTimeIsUp) {
  class Counting final : public LongOperation {
   public:
    Counting(std::vector<int>& order, int name, int steps)
        : order_(order), name_(name), steps_(steps) {}
    bool Work(Time, Cancellation& cancellation) override {
      if (cancellation.ended()) return true;
      order_.push_back(name_);  // one thread
      return --steps_ == 0;
    }

   private:
    std::vector<int>& order_;
    const int name_;
    int steps_;
  };
  RealRuntime runtime;
  std::vector<int> order;
  const auto all_done = runtime.NewSignal();
  std::atomic<int> left = 3;
  {
    Background background(runtime, "test", 1);
    const auto start = [&](int name, int steps, Time expiry) {
      background.Start({.done =
                            [&] {
                              if (--left == 0) all_done->Set();
                            },
                        .late = [] { ADD_FAILURE(); },
                        .operation = std::make_unique<Counting>(order, name, steps),
                        .cancellation = std::make_shared<Cancellation>(runtime),
                        .priority = 9,
                        .expiry = expiry});
    };
    start(1, 3, Time::max());
    start(2, 3, Time::max());
    start(3, -1, runtime.Now() + 500ms);  // for ever
    while (left > 0) all_done->WaitUntil(runtime.Now() + 10s);
  }
  EXPECT_EQ(std::count(order.begin(), order.end(), 1), 3);
  EXPECT_EQ(std::count(order.begin(), order.end(), 2), 3);
  EXPECT_GT(std::count(order.begin(), order.end(), 3), 3);
  const auto last_of = [&](int name) {
    return std::find(order.rbegin(), order.rend(), name) - order.rbegin();
  };
  EXPECT_GT(last_of(1), last_of(3)) << "the endless one did not hold up the others";
}

// A timer cannot be taken back. A client that gives each of many short jobs a year would fill the
// memory with them.
TEST(Background, NoTimerOutlivesItsJobForLong) {
  class Timers final : public Runtime {
   public:
    Time Now() override { return real_.Now(); }
    int64_t WallClock() override { return real_.WallClock(); }
    void RunAt(Time when, Task task) override {
      longest = std::max(longest, when - Now());
      real_.RunAt(when, std::move(task));
    }
    void Spawn(std::string name, Task body) override {
      real_.Spawn(std::move(name), std::move(body));
    }
    std::shared_ptr<Signal> NewSignal() override { return real_.NewSignal(); }
    uint64_t Random() override { return real_.Random(); }

    Duration longest{};

   private:
    RealRuntime real_;
  };
  class Nothing final : public LongOperation {
   public:
    bool Work(Time, Cancellation&) override { return true; }
  };
  Timers runtime;
  const auto done = runtime.NewSignal();
  auto cancellation = std::make_shared<Cancellation>(runtime);
  const std::weak_ptr<Cancellation> kept = cancellation;
  {
    Background background(runtime, "test", 1);
    background.Start({.done = [&] { done->Set(); },
                      .late = [] { ADD_FAILURE(); },
                      .operation = std::make_unique<Nothing>(),
                      .cancellation = std::move(cancellation),
                      .expiry = runtime.Now() + std::chrono::hours(24 * 364)});
    done->WaitUntil(runtime.Now() + 10s);
  }
  EXPECT_GT(runtime.longest, Duration()) << "no timer was set";
  EXPECT_LE(runtime.longest, std::chrono::seconds(10));
  EXPECT_TRUE(kept.expired()) << "the timer keeps what is left of the job";
}

}  // namespace
}  // namespace pinstripe
