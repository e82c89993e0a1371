// The daemon's sockets, from outside: bytes in, bytes out, over real loopback connections.

#include "daemon/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/coding.h"
#include "base/log.h"
#include "kinetic/covering_tag.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/message.h"
#include "store/memory_store.h"
#include "tests/daemon/vector_runtime.h"
#include "tests/daemon/wire_client.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/expect_ok.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Command;
using kinetic::Header;
using Client = WireClient;

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    const Result<uint16_t> port = server_->Listen("127.0.0.1", 0, service_);
    EXPECT_OK(port);
    port_ = *port;
  }

  VectorRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>(64 << 20)};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1", .world_wide_name = "WWN1"}, security_, engine_};
  std::unique_ptr<Server> server_ = std::make_unique<Server>(runtime_, Server::Options{});
  uint16_t port_ = 0;
};

TEST_F(ServerTest, GreetsWithItsConfigurationAndLimits) {
  Client client(port_);
  const Client::Answer hello = client.ReceiveAnswer();
  EXPECT_EQ(hello.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  EXPECT_FALSE(hello.command.header().has_acksequence());
  EXPECT_FALSE(hello.command.header().has_messagetype());
  EXPECT_GT(hello.command.header().connectionid(), 0);
  EXPECT_EQ(hello.code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(hello.command.body().getlog().configuration().serialnumber(), "SN1");
  EXPECT_EQ(hello.command.body().getlog().configuration().port(), port_);
  EXPECT_EQ(hello.command.body().getlog().limits().maxvaluesize(), kMaxValueBytes);
}

// What another implementation answered, byte for byte, as far as the operations are served.
TEST_F(ServerTest, AnswersAsOtherDevicesDoByteForByte) {
  Client client(port_);
  client.ReceiveFrame();
  int compared = 0;
  for (const KineticVector& vector : kKineticVectors) {
    for (std::string_view name :
         {"NOOP", "PUT new key", "PUT with a stale dbVersion", "GET", "GETVERSION", "GETNEXT",
          "GETKEYRANGE", "FLUSHALLDATA", "NOOP with a wrong HMAC (20 zero bytes)", "DELETE",
          "SETUP newClusterVersion 0"}) {
      if (vector.name != name) continue;
      SCOPED_TRACE(name);
      ASSERT_TRUE(client.Send(Unhex(vector.request)));
      std::string answer = client.ReceiveFrame();
      // The sentence of a refusal is ours; its code and all the rest are the protocol's.
      if (name == "PUT with a stale dbVersion") {
        Reader reader(answer);
        reader.Raw(1);
        const uint32_t size = reader.U32();
        reader.U32();
        kinetic::Message message;
        Command command;
        ASSERT_OK(ParseMessage(AsBytes(reader.Raw(size)), &message));
        ASSERT_OK(ParseCommand(message, &command));
        EXPECT_EQ(command.status().code(), kinetic::Status::VERSION_MISMATCH);
      } else {
        EXPECT_EQ(Hex(AsBytes(answer)), vector.response);
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 11);
}

// A device that is full of data takes what its clients say frees some; from those that say nothing,
// or something that nobody knows, it takes no more.
TEST(ServerRooms, AFullDeviceTakesWhatIsSaidToFreeSpace) {
  RealRuntime runtime;
  Engine engine{std::make_unique<MemoryStore>(1 << 20, 1 << 18)};
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}}};
  KineticService service{{.serial_number = "SN1", .world_wide_name = "WWN1"}, security, engine};
  Server server(runtime, Server::Options{});
  const Result<uint16_t> port = server.Listen("127.0.0.1", 0, service);
  ASSERT_OK(port);
  Client client(*port);
  client.ReceiveFrame();
  int keys = 0;
  const auto put = [&](std::optional<uint32_t> room) {
    const auto fill = [&](kinetic::Body* body) {
      kinetic::KeyValue* entry = body->mutable_keyvalue();
      entry->set_key(fmt::format("key {}", keys++));
      entry->set_force(true);
      entry->set_synchronization(kinetic::KeyValue::WRITEBACK);
      if (room) entry->set_room(*room);
    };
    EXPECT_TRUE(client.Request(Header::PUT, fill, std::string(1 << 16, 'x')));
    return client.ReceiveAnswer().code();
  };
  const auto fill_up = [&](std::optional<uint32_t> room) {
    for (int count = 0;; ++count) {
      const auto code = put(room);
      if (code == kinetic::Status::SUCCESS) continue;
      EXPECT_EQ(code, kinetic::Status::NO_SPACE);
      return count;
    }
  };
  EXPECT_GE(fill_up(std::nullopt), 10);
  EXPECT_EQ(fill_up(0), 0);
  EXPECT_EQ(fill_up(77), 0);
  EXPECT_GE(fill_up(1), 1);
  EXPECT_GE(fill_up(2), 1);
  EXPECT_GE(fill_up(3), 1);
  EXPECT_EQ(fill_up(2), 0);
}

TEST_F(ServerTest, RefusesAWrongSignatureAndGoesOn) {
  Client client(port_);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Request(Header::NOOP, nullptr, {}, "wrong key"));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::HMAC_FAILURE);
  ASSERT_TRUE(client.Request(Header::NOOP));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ServerTest, AForgedPutChangesNothing) {
  Client client(port_);
  client.ReceiveFrame();
  const auto put = [](kinetic::Body* body) {
    body->mutable_keyvalue()->set_key("k");
    body->mutable_keyvalue()->set_force(true);
  };
  ASSERT_TRUE(client.Request(Header::PUT, put, "evil", "wrong key"));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::HMAC_FAILURE);
  EXPECT_FAILS(engine_.Get("k"), ENOENT);
}

TEST_F(ServerTest, TellsAnUnknownIdentityUnsigned) {
  Client client(port_);
  client.ReceiveFrame();
  Command command;
  command.mutable_header()->set_sequence(7);
  command.mutable_header()->set_messagetype(Header::NOOP);
  ASSERT_TRUE(client.Send(SignedFrame(command, 99, HmacKey("asdfasdf"), 0)));
  const Client::Answer answer = client.ReceiveAnswer();
  EXPECT_FALSE(answer.message.has_hmacauth());
  EXPECT_EQ(answer.command.header().acksequence(), 7u);
  EXPECT_EQ(answer.code(), kinetic::Status::HMAC_FAILURE);
}

TEST_F(ServerTest, ARepeatedSequenceNumberIsRefused) {
  Client client(port_);
  client.ReceiveFrame();
  Command command;
  command.mutable_header()->set_sequence(0);  // a legal first one
  command.mutable_header()->set_messagetype(Header::NOOP);
  const std::string frame = SignedFrame(command, 1, HmacKey("asdfasdf"), 0);
  ASSERT_TRUE(client.Send(frame + frame));
  // Two answers, the refusal possibly first: it needs no worker.
  const Client::Answer a = client.ReceiveAnswer();
  const Client::Answer b = client.ReceiveAnswer();
  EXPECT_EQ(std::min(a.code(), b.code()), kinetic::Status::SUCCESS);
  EXPECT_EQ(std::max(a.code(), b.code()), kinetic::Status::INVALID_REQUEST);
  EXPECT_TRUE(a.command.header().has_acksequence() && b.command.header().has_acksequence());
}

// A request as our own clients make them, and one as others do.
Command Noop(int64_t connection, uint64_t sequence, bool bound) {
  Command command;
  command.mutable_header()->set_sequence(sequence);
  command.mutable_header()->set_messagetype(Header::NOOP);
  if (connection != 0) command.mutable_header()->set_connectionid(connection);
  if (bound) command.mutable_header()->set_bound(true);
  return command;
}
std::string NoopFrame(int64_t connection, uint64_t sequence, bool bound) {
  return SignedFrame(Noop(connection, sequence, bound), 1, HmacKey("asdfasdf"), 0);
}

TEST_F(ServerTest, EachConnectionHasANumberOfItsOwnAndEveryAnswerHasIt) {
  std::set<int64_t> numbers;
  int long_ones = 0;
  for (int i = 0; i < 100; ++i) {
    Client client(port_);
    const int64_t number = client.ReceiveAnswer().command.header().connectionid();
    EXPECT_GT(number, 0);
    EXPECT_TRUE(numbers.insert(number).second) << number;
    if (number >> 61 != 0) ++long_ones;
    for (const int64_t said : {number, int64_t{0}}) {
      ASSERT_TRUE(client.Send(NoopFrame(said, said == 0 ? 2 : 1, /*bound=*/false)));
      const Client::Answer answer = client.ReceiveAnswer();
      EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
      EXPECT_EQ(answer.command.header().connectionid(), number);
    }
  }
  EXPECT_GT(long_ones, 40) << "three of four begin within 2 bits; they are not by chance";
}

// Who says nothing of connections is served, as simulators serve it. Who says something says the
// truth.
TEST_F(ServerTest, ARequestOfAnotherConnectionEndsItsConnection) {
  Client witness(port_);
  const int64_t number = witness.ReceiveAnswer().command.header().connectionid();
  for (const bool bound : {false, true}) {
    Client client(port_);
    client.ReceiveFrame();
    ASSERT_TRUE(client.Send(NoopFrame(number, 1, bound)));
    const Client::Answer last = client.ReceiveAnswer();
    EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
    EXPECT_EQ(last.code(), kinetic::Status::INVALID_REQUEST);
    EXPECT_FALSE(last.command.header().has_acksequence());
    EXPECT_TRUE(client.SeesTheEnd());
  }
  ASSERT_TRUE(witness.Send(NoopFrame(number, 1, true)));
  EXPECT_EQ(witness.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ServerTest, AConnectionThatIsBoundEndsWithTheFirstRequestThatIsNot) {
  struct Case {
    std::string_view what;
    bool of_it;  // the connection's number, else none
    uint64_t sequence;
    bool bound;
  };
  const Case cases[] = {{"without a connection", false, 11, true},
                        {"not bound", true, 11, false},
                        {"not bound and without a connection", false, 11, false},
                        {"repeated", true, 10, true},
                        {"late", true, 9, true}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    Client client(port_);
    const int64_t number = client.ReceiveAnswer().command.header().connectionid();
    ASSERT_TRUE(client.Send(NoopFrame(number, 10, true)));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
    ASSERT_TRUE(client.Send(NoopFrame(each.of_it ? number : 0, each.sequence, each.bound)));
    const Client::Answer last = client.ReceiveAnswer();
    EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
    EXPECT_EQ(last.code(), kinetic::Status::INVALID_REQUEST);
    EXPECT_TRUE(client.SeesTheEnd());
  }
}

// A signed refusal is worth something to somebody who waits for the answer to a true request.
TEST_F(ServerTest, ANumberIsLookedAtOnlyWhereTheSignatureIsRight) {
  Client client(port_);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Request(Header::NOOP));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  const std::string forged = SignedFrame(Noop(0, 1, false), 1, HmacKey("wrong key"), 0);
  ASSERT_TRUE(client.Send(forged));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::HMAC_FAILURE);
}

// A bound put, alone and in a batch. Other people's tags may be anything, and so may ours without a
// value.
TEST_F(ServerTest, AValueWithoutItsTagIsStoredOnlyForThoseWhoDoNotPromiseOne) {
  struct Case {
    std::string_view value;
    std::string_view tag;
    std::optional<int> algorithm;
    bool right;
  };
  const Case cases[] = {{"123456789", std::string_view("\xe3\x06\x92\x83", 4), 4, true},
                        {"123456789", std::string_view("\xe3\x06\x92\x84", 4), 4, false},
                        {"123456789", std::string_view("\xe3\x06\x92\x83", 4), 6, false},
                        {"123456789", std::string_view("\xe3\x06\x92\x83", 4), {}, false},
                        {"123456789", std::string_view("\xe3\x06\x92\x83\0", 5), 4, false},
                        {"123456789", "", 4, false},
                        {"123456789", "", {}, false},
                        {"", "", {}, true},
                        {"", std::string_view("\0\0\0\0", 4), 4, true},
                        {"", std::string_view("\xe3\x06\x92\x83", 4), 4, false}};
  for (const bool bound : {true, false}) {
    for (const Case& each : cases) {
      SCOPED_TRACE(
          fmt::format("bound {}: '{}' with tag {}", bound, each.value, Hex(AsBytes(each.tag))));
      Client client(port_);
      Command put = Noop(client.ReceiveAnswer().command.header().connectionid(), 1, bound);
      put.mutable_header()->set_messagetype(Header::PUT);
      kinetic::KeyValue* entry = put.mutable_body()->mutable_keyvalue();
      entry->set_key("k");
      entry->set_force(true);
      entry->set_tag(std::string(each.tag));
      if (each.algorithm) entry->set_algorithm(*each.algorithm);
      const bool taken = each.right || !bound;
      ASSERT_TRUE(client.SendCommand(put, each.value));
      const int code = client.ReceiveAnswer().code();
      EXPECT_EQ(code, taken ? kinetic::Status::SUCCESS : kinetic::Status::PERM_DATA_ERROR);
      EXPECT_EQ(engine_.Delete("k", Expected::Any()).ok(), taken);

      Command batch = put;
      batch.clear_body();
      batch.mutable_header()->set_batchid(1);
      batch.mutable_header()->set_messagetype(Header::START_BATCH);
      ASSERT_TRUE(client.SendCommand(batch));
      EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
      put.mutable_header()->set_batchid(1);
      ASSERT_TRUE(client.SendCommand(put, each.value));
      batch.mutable_header()->set_messagetype(Header::END_BATCH);
      ASSERT_TRUE(client.SendCommand(batch));
      const Client::Answer ended = client.ReceiveAnswer();
      EXPECT_EQ(ended.code(), taken ? kinetic::Status::SUCCESS : kinetic::Status::INVALID_BATCH);
      EXPECT_EQ(engine_.Delete("k", Expected::Any()).ok(), taken);
    }
  }
}

TEST_F(ServerTest, OperationsItDoesNotKnowAreInvalid) {
  Client client(port_);
  client.ReceiveFrame();
  for (const Header::MessageType type : {Header::SET_POWER_LEVEL, Header::GET_RESPONSE}) {
    ASSERT_TRUE(client.Request(type));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::INVALID_REQUEST) << type;
  }
}

TEST_F(ServerTest, AValueOverTheLimitIsRefusedAndTheConnectionStays) {
  Client client(port_);
  client.ReceiveFrame();
  const auto put = [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("big"); };
  ASSERT_TRUE(client.Request(Header::PUT, put, std::string(kMaxValueBytes + 1, 'x')));
  const Client::Answer refused = client.ReceiveAnswer();
  EXPECT_EQ(refused.code(), kinetic::Status::INVALID_REQUEST);
  EXPECT_TRUE(refused.command.body().has_keyvalue()) << "as in the answer to any PUT";
  ASSERT_TRUE(client.Request(Header::PUT, put, std::string(kMaxValueBytes, 'x')));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ServerTest, MetadataComesWithoutTheValueWhereOnlyItIsWanted) {
  ASSERT_OK(engine_.Put(
      "k", {{.version = "v", .tag = "t", .algorithm = 1234}, SharedBytes(std::string("value"))},
      Expected::Any()));
  Client client(port_);
  client.ReceiveFrame();
  const std::pair<Header::MessageType, const char*> asked[] = {
      {Header::GET, "k"}, {Header::GETNEXT, "j"}, {Header::GETPREVIOUS, "l"}};
  for (const auto& [type, key] : asked) {
    for (const bool metadata_only : {true, false}) {
      client.Request(type, [&, key = key](kinetic::Body* body) {
        body->mutable_keyvalue()->set_key(key);
        body->mutable_keyvalue()->set_metadataonly(metadata_only);
      });
      const Client::Answer answer = client.ReceiveAnswer();
      EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS) << type;
      EXPECT_EQ(answer.value, metadata_only ? "" : "value");
      const kinetic::KeyValue& entry = answer.command.body().keyvalue();
      EXPECT_EQ(entry.key() + entry.dbversion() + entry.tag(), "kvt");
      EXPECT_EQ(entry.algorithm(), 1234) << "whatever it means, it comes back";
      EXPECT_FALSE(entry.has_newversion());
    }
  }
}

TEST_F(ServerTest, RequestsThatComeInOnePieceAreAnsweredEachForItself) {
  Client client(port_);
  client.ReceiveFrame();
  std::string stream;
  std::map<uint64_t, int> wanted;  // code by sequence
  uint64_t sequence = 0;
  const auto add = [&](Header::MessageType type, const std::string& key, std::string_view value,
                       int code, const std::function<void(Command*)>& change = nullptr) {
    Command command;
    command.mutable_header()->set_sequence(++sequence);
    command.mutable_header()->set_messagetype(type);
    kinetic::KeyValue* entry = command.mutable_body()->mutable_keyvalue();
    entry->set_key(key);
    if (change) change(&command);
    stream += SignedFrame(command, 1, HmacKey("asdfasdf"), value.size());
    stream += value;
    wanted[sequence] = code;
  };
  const auto through = [](Command* command) {
    command->mutable_body()->mutable_keyvalue()->set_synchronization(
        kinetic::KeyValue::WRITETHROUGH);
  };
  const auto back = [](Command* command) {
    command->mutable_body()->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITEBACK);
    command->mutable_header()->set_priority(9);
  };
  for (int i = 0; i < 40; ++i) {
    const std::string key = std::to_string(i);
    add(Header::PUT, key, std::string(1000, 'x'), kinetic::Status::SUCCESS, i % 2 ? through : back);
    add(Header::GET, "missing", {}, kinetic::Status::NOT_FOUND);
    if (i % 8 == 1) {
      add(Header::PUT, std::string(5000, 'k'), {}, kinetic::Status::INVALID_REQUEST, through);
    }
  }
  ASSERT_TRUE(client.Send(stream));
  const size_t requests = wanted.size();
  for (size_t i = 0; i < requests; ++i) {
    const Client::Answer answer = client.ReceiveAnswer();
    const auto found = wanted.find(answer.command.header().acksequence());
    ASSERT_NE(found, wanted.end()) << "answered twice";
    EXPECT_EQ(answer.code(), found->second) << answer.command.status().statusmessage();
    wanted.erase(found);
  }
  for (int i = 0; i < 40; ++i) {
    const auto record = engine_.Get(std::to_string(i));
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), std::string(1000, 'x'));
  }
}

TEST_F(ServerTest, HowAChangeIsToBeKeptIsOneOfThreeWaysOrLeftOpen) {
  Client client(port_);
  client.ReceiveFrame();
  for (const Header::MessageType type : {Header::PUT, Header::DELETE}) {
    for (const std::optional<int> way : {std::optional<int>(), {1}, {2}, {3}, {0}, {-1}, {4}}) {
      client.Request(type, [&](kinetic::Body* body) {
        body->mutable_keyvalue()->set_key("k");
        body->mutable_keyvalue()->set_force(true);
        if (way) body->mutable_keyvalue()->set_synchronization(*way);
      });
      const bool known = !way || (*way >= 1 && *way <= 3);
      EXPECT_EQ(client.ReceiveAnswer().code(),
                known ? kinetic::Status::SUCCESS : kinetic::Status::INVALID_REQUEST)
          << type << ' ' << way.value_or(99);
    }
  }
}

TEST_F(ServerTest, BytesThatAreNotKineticEndTheirConnectionOnly) {
  Client witness(port_);
  witness.ReceiveFrame();
  const std::string frames[] = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string("F\xff\xff\xff\xff\xff\xff\xff\xff", 9),
      std::string("F\x7f\xff\xff\xff\0\0\0\0", 9),
      std::string("F\0\0\0\x05\0\0\0\0", 9) + "\xff\xff\xff\xff\xff",
  };
  for (const std::string& frame : frames) {
    Client client(port_);
    client.ReceiveFrame();
    client.Send(frame);
    EXPECT_TRUE(client.SeesTheEnd()) << Hex(AsBytes(frame));
  }
  ASSERT_TRUE(witness.Request(Header::NOOP));
  EXPECT_EQ(witness.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ServerTest, AFrameMayComeByteByByte) {
  Client client(port_);
  client.ReceiveFrame();
  const std::string request = Unhex(kKineticVectors[0].request);
  for (char byte : request) ASSERT_TRUE(client.Send(std::string(1, byte)));
  EXPECT_EQ(Hex(AsBytes(client.ReceiveFrame())), kKineticVectors[0].response);
}

// Everything there is to ask, at once.
TEST_F(ServerTest, TellsAboutItselfWhatItIsAsked) {
  using Log = kinetic::GetLog;
  Client client(port_);
  client.ReceiveFrame();
  const auto put = [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("k"); };
  client.Request(Header::PUT, put, std::string(1000, 'v'));
  client.ReceiveAnswer();
  const auto get = [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("k"); };
  for (int i = 0; i < 2; ++i) {
    client.Request(Header::GET, get);
    client.ReceiveAnswer();
  }
  client.Request(Header::GETLOG, [](kinetic::Body* body) {
    for (const Log::Type type : {Log::UTILIZATIONS, Log::TEMPERATURES, Log::CAPACITIES,
                                 Log::CONFIGURATION, Log::STATISTICS, Log::MESSAGES, Log::LIMITS}) {
      body->mutable_getlog()->add_types(type);
    }
  });
  const Client::Answer answer = client.ReceiveAnswer();
  ASSERT_EQ(answer.code(), kinetic::Status::SUCCESS);
  const Log& log = answer.command.body().getlog();
  EXPECT_EQ(log.types_size(), 7) << "the types are said again";
  std::string names;
  for (const auto& each : log.utilizations()) {
    names += each.name() + " ";
    EXPECT_GE(each.value(), 0);
    EXPECT_LE(each.value(), 1);
  }
  EXPECT_EQ(names, "HDA EN0 EN1 CPU ") << "clients take them by their place";
  ASSERT_EQ(log.temperatures_size(), 2);
  EXPECT_EQ(log.temperatures(0).name() + log.temperatures(1).name(), "HDACPU");
  EXPECT_EQ(log.capacity().nominalcapacityinbytes(), uint64_t{64} << 20);
  EXPECT_GT(log.capacity().portionfull(), 0);
  EXPECT_TRUE(std::any_of(log.configuration().interface().begin(),
                          log.configuration().interface().end(),
                          [](const auto& each) { return each.ipv4address() == "127.0.0.1"; }));
  EXPECT_EQ(log.configuration().currentpowerlevel(), kinetic::PowerManagement::OPERATIONAL);
  const auto is_hash = [](std::string_view text) {
    return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == text.npos;
  };
  EXPECT_TRUE(is_hash(log.configuration().sourcehash()));
  EXPECT_TRUE(is_hash(log.configuration().protocolsourcehash()));
  EXPECT_NE(log.configuration().sourcehash(), log.configuration().protocolsourcehash());
  tm date{};
  for (const std::string& text :
       {log.configuration().compilationdate(), log.configuration().protocolcompilationdate()}) {
    EXPECT_NE(strptime(text.c_str(), "%a %b %d %H:%M:%S UTC %Y", &date), nullptr) << text;
  }
  EXPECT_EQ(log.limits().maxoperationcountperbatch(), kMaxBatchOperations);
  std::map<int, const Log::Statistics*> statistics;
  for (const auto& each : log.statistics()) statistics[each.messagetype()] = &each;
  EXPECT_EQ(statistics.at(Header::PUT)->count(), 1u);
  EXPECT_EQ(statistics.at(Header::PUT)->bytes(), 1000u);
  EXPECT_EQ(statistics.at(Header::GET)->count(), 2u);
  EXPECT_EQ(statistics.at(Header::GET)->bytes(), 2000u);
  EXPECT_GE(statistics.at(Header::GET)->maxlatency(), 1u) << "in milliseconds, rounded up";
  EXPECT_LT(statistics.at(Header::GET)->maxlatency(), 10'000u);
  EXPECT_EQ(statistics.at(Header::DELETE)->count(), 0u);
  EXPECT_TRUE(statistics.contains(Header::PEER2PEERPUSH));
}

// Where there is no key there is no body either: a client that sees one takes it for a list.
TEST_F(ServerTest, AnEmptyRangeHasNoBody) {
  ASSERT_OK(engine_.Put("k", {}, Expected::Any()));
  Client client(port_);
  const Client::Answer greeting = client.ReceiveAnswer();
  EXPECT_TRUE(greeting.command.body().getlog().configuration().has_sourcehash());
  const auto ask = [&](const std::string& first) {
    client.Request(Header::GETKEYRANGE, [&](kinetic::Body* body) {
      body->mutable_range()->set_startkey(first);
      body->mutable_range()->set_maxreturned(10);
    });
    return client.ReceiveAnswer();
  };
  EXPECT_EQ(ask("a").command.body().range().keys_size(), 1);
  const Client::Answer none = ask("x");
  EXPECT_EQ(none.code(), kinetic::Status::SUCCESS);
  EXPECT_FALSE(none.command.has_body());
}

// A peer that does not know of our extensions sees nothing of them.
TEST_F(ServerTest, RecordsOfARangeComeOnlyWhenTheyAreAskedFor) {
  ASSERT_OK(engine_.Put("a", {{.version = "v"}, SharedBytes(std::string("one"))}, Expected::Any()));
  ASSERT_OK(engine_.Put("b", {{}, SharedBytes(std::string("second"))}, Expected::Any()));
  ASSERT_OK(engine_.Put("c", {{}, SharedBytes(std::string("three"))}, Expected::Any()));
  Client client(port_);
  client.ReceiveFrame();
  const auto ask = [&](std::optional<uint32_t> limit, uint32_t most) {
    client.Request(Header::GETKEYRANGE, [&](kinetic::Body* body) {
      body->mutable_range()->set_startkey("a");
      body->mutable_range()->set_startkeyinclusive(true);
      body->mutable_range()->set_maxreturned(most);
      if (limit) body->mutable_range()->set_valuelimit(*limit);
    });
    return client.ReceiveAnswer();
  };
  const Client::Answer plain = ask(std::nullopt, 3);
  EXPECT_EQ(plain.command.body().range().keys_size(), 3);
  EXPECT_EQ(plain.command.body().range().records_size(), 0);
  EXPECT_TRUE(plain.value.empty());
  const Client::Answer records = ask(5, 3);
  EXPECT_EQ(records.value, "onethree") << "the second is too long";
  ASSERT_EQ(records.command.body().range().records_size(), 3);
  EXPECT_EQ(records.command.body().range().records(0).version(), "v");
  EXPECT_EQ(records.command.body().range().records(1).valuebytes(), 6u);
  EXPECT_FALSE(records.command.body().range().records(1).hasvalue());
  EXPECT_FALSE(records.command.body().range().more());
  EXPECT_TRUE(ask(5, 2).command.body().range().more());
  EXPECT_EQ(ask(5, 0).code(), kinetic::Status::INVALID_REQUEST);
  EXPECT_EQ(ask(5, kMaxRangeRecords).code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(ask(5, kMaxRangeRecords + 1).code(), kinetic::Status::INVALID_REQUEST);
  EXPECT_EQ(ask(std::nullopt, 201).code(), kinetic::Status::INVALID_REQUEST);
}

TEST_F(ServerTest, ItsLastMessagesAreKeptInBoundedSpace) {
  {
    Client nonsense(port_);
    nonsense.ReceiveFrame();
    nonsense.Send("nonsense that is not Kinetic");
    EXPECT_TRUE(nonsense.SeesTheEnd());
  }
  const auto messages = [&] {
    Client client(port_);
    client.ReceiveFrame();
    client.Request(Header::GETLOG, [](kinetic::Body* body) {
      body->mutable_getlog()->add_types(kinetic::GetLog::MESSAGES);
    });
    return client.ReceiveAnswer().command.body().getlog().messages();
  };
  EXPECT_NE(messages().find("warn connection given up"), std::string::npos) << messages();
  SetLogSink([](LogLevel, std::string_view) {});
  for (int i = 0; i < 3; ++i) service_.events().Add(1, LogLevel::kInfo, "again");
  EXPECT_NE(messages().find("1970-01-01T00:00:00Z info again (3 times)\n"), std::string::npos);
  for (int i = 0; i < 3000; ++i) {
    service_.events().Add(1, LogLevel::kInfo, "event",
                          {{"number", i}, {"what", std::string(100, 'x')}});
  }
  SetLogSink(nullptr);
  EXPECT_LT(messages().size(), 2 * DeviceEvents::kMaxBytes);
  EXPECT_NE(messages().find("number=2999"), std::string::npos);
  EXPECT_EQ(messages().find("again"), std::string::npos);
}

// A peer that asks and never reads feels back-pressure; the daemon's memory does not grow with what
// it sends, and others are served.
TEST_F(ServerTest, APeerThatNeverReadsHoldsUpOnlyItself) {
  ASSERT_OK(engine_.Put("v", {{}, SharedBytes(Buffer::Zeroed(kMaxValueBytes))}, Expected::Any()));
  Client greedy(port_);
  greedy.ReceiveFrame();
  const auto get = [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("v"); };
  // Far more answers than the sockets and the server's bound can hold.
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(greedy.Request(Header::GET, get));

  Client other(port_);
  other.ReceiveFrame();
  ASSERT_TRUE(other.Request(Header::GET, get));
  EXPECT_EQ(other.ReceiveAnswer().value.size(), kMaxValueBytes);

  // What the sockets hold, and 1 MiB and an answer for each worker beside them.
  const uint64_t executed = engine_.CountOf(Engine::Operation::kGet).operations;
  EXPECT_LT(executed, 30u) << "values were read that nobody takes";
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(greedy.ReceiveAnswer().value.size(), kMaxValueBytes) << i;
  }
}

TEST_F(ServerTest, StopsWithClientsConnectedAndRequestsUnderWay) {
  Client client(port_);
  client.ReceiveFrame();
  for (int i = 0; i < 50; ++i) client.Request(Header::NOOP);
  server_.reset();
  EXPECT_TRUE(client.SeesTheEnd());
}

TEST_F(ServerTest, APortInUseIsAnErrorThatSaysSo) {
  const Result<uint16_t> again = server_->Listen("127.0.0.1", port_, service_);
  EXPECT_FAILS(again, EADDRINUSE);
  EXPECT_NE(again.error().message().find(std::to_string(port_)), std::string_view::npos);
  EXPECT_FAILS(server_->Listen("no address", 0, service_), EINVAL);
}

TEST_F(ServerTest, AQuestionOfAnySizeGetsAnAnswerThatFits) {
  Client client(port_);
  client.ReceiveAnswer();
  client.Request(Header::GETLOG, [](kinetic::Body* body) {
    for (int i = 0; i < 300'000; ++i)
      body->mutable_getlog()->add_types(kinetic::GetLog::CONFIGURATION);
  });
  EXPECT_EQ(client.ReceiveAnswer().command.status().code(), kinetic::Status::INVALID_REQUEST);
  client.Request(Header::GETLOG, [](kinetic::Body* body) {
    body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(1'000'000, 'x'));
  });
  EXPECT_EQ(client.ReceiveAnswer().command.status().code(), kinetic::Status::NOT_FOUND);
}

// --- Durability

// A store whose flushes, and whose reads of the key "held", wait until the test lets them go.
class GatedStore final : public Store {
 public:
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    if (key == "held") {
      std::unique_lock lock(mutex_);
      ++held_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    return store_.Get(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override { return store_.Head(key); }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_.Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override {
    return store_.Put(key, record, room);
  }
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override {
    {
      const std::lock_guard lock(mutex_);
      put_together_.push_back(puts.size());
    }
    return store_.PutEach(puts);
  }
  // As long as the gate is not open, and the test has said so.
  bool PutAllAtOnce(std::span<const StoreChange> puts) override {
    {
      const std::lock_guard lock(mutex_);
      if (!puts_at_once_ || open_) return false;
    }
    for (const Status& status : store_.PutEach(puts)) EXPECT_OK(status);
    return true;
  }
  Status Delete(std::string_view key) override { return store_.Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override { return store_.Apply(changes); }
  StoreUsage Usage() override { return store_.Usage(); }

  Status Flush() override {
    std::unique_lock lock(mutex_);
    ++flushes_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return answer_;
  }

  void AllowPutsAtOnce() {
    const std::lock_guard lock(mutex_);
    puts_at_once_ = true;
  }
  void AwaitFlush() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return flushes_ > 0; });
  }
  void AwaitHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_ > 0; });
  }
  void OpenGate(Status answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    open_ = true;
    changed_.notify_all();
  }
  int flushes() {
    const std::lock_guard lock(mutex_);
    return flushes_;
  }
  std::vector<size_t> put_together() {
    const std::lock_guard lock(mutex_);
    return put_together_;
  }

 private:
  MemoryStore store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int flushes_ = 0;                   // guarded by mutex_
  int held_ = 0;                      // guarded by mutex_
  bool open_ = false;                 // guarded by mutex_
  bool puts_at_once_ = false;         // guarded by mutex_
  std::vector<size_t> put_together_;  // guarded by mutex_
  Status answer_;                     // guarded by mutex_
};

class DurabilityTest : public testing::Test {
 protected:
  DurabilityTest() { port_ = *server_.Listen("127.0.0.1", 0, service_); }
  ~DurabilityTest() override { store_.OpenGate({}); }

  static void PutThrough(Client& client, int number) {
    client.Request(Header::PUT, [&](kinetic::Body* body) {
      body->mutable_keyvalue()->set_key(std::to_string(number));
      body->mutable_keyvalue()->set_force(true);
      body->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
    });
  }

  RealRuntime runtime_;
  GatedStore& store_ = *new GatedStore;  // the engine's
  Engine engine_{std::unique_ptr<Store>(&store_)};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, {.workers = 2}};
  uint16_t port_ = 0;
};

TEST_F(DurabilityTest, ManyShareOneFlushAndHoldUpNobodyElse) {
  constexpr int kPuts = 50;
  Client writer(port_);
  writer.ReceiveAnswer();
  PutThrough(writer, 0);
  store_.AwaitFlush();
  for (int i = 1; i < kPuts; ++i) PutThrough(writer, i);
  // While the disk syncs, and many more puts wait than there are workers, others are served.
  Client reader(port_);
  reader.ReceiveAnswer();
  reader.Request(Header::GET, [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("0"); });
  EXPECT_EQ(reader.ReceiveAnswer().command.status().code(), kinetic::Status::SUCCESS);
  // The puts were read before this question.
  writer.Request(Header::NOOP);
  EXPECT_EQ(writer.ReceiveAnswer().command.header().messagetype(), Header::NOOP_RESPONSE);
  store_.OpenGate({});
  for (int i = 0; i < kPuts; ++i) {
    const Client::Answer answer = writer.ReceiveAnswer();
    EXPECT_EQ(answer.command.header().messagetype(), Header::PUT_RESPONSE);
    EXPECT_EQ(answer.command.status().code(), kinetic::Status::SUCCESS);
  }
  EXPECT_LE(store_.flushes(), 5);
}

TEST_F(DurabilityTest, AFlushThatFailsFailsWhatWaitedForIt) {
  Client writer(port_);
  writer.ReceiveAnswer();
  PutThrough(writer, 0);
  writer.Request(Header::FLUSHALLDATA);
  store_.OpenGate(Fail(EIO, "the disk is gone"));
  for (int i = 0; i < 2; ++i) {
    const Client::Answer answer = writer.ReceiveAnswer();
    EXPECT_EQ(answer.command.status().code(), kinetic::Status::INTERNAL_ERROR);
    EXPECT_EQ(answer.command.status().statusmessage(), "the disk is gone");
  }
  const std::string told = service_.events().Text();
  EXPECT_NE(told.find("type=PUT record=30 status=INTERNAL_ERROR"), std::string::npos) << told;
}

// A client takes a refusal for lack of room as "certainly not there", and this may be there.
TEST_F(DurabilityTest, ADiskThatIsFullWhenItIsToSyncIsNoRefusal) {
  Client client(port_);
  client.ReceiveAnswer();
  PutThrough(client, 0);
  store_.AwaitFlush();
  store_.OpenGate(Fail(ENOSPC, "no space left on the device"));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::INTERNAL_ERROR);
  client.Request(Header::DELETE, [](kinetic::Body* body) {
    body->mutable_keyvalue()->set_key("0");
    body->mutable_keyvalue()->set_force(true);
    body->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITETHROUGH);
  });
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::INTERNAL_ERROR);
  client.Request(Header::FLUSHALLDATA);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::INTERNAL_ERROR);
}

// One worker, held by a first request, and others that wait for it.
class QueueTest : public testing::Test {
 protected:
  QueueTest() {
    port_ = *server_.Listen("127.0.0.1", 0, service_);
    client_.emplace(port_);
    client_->ReceiveAnswer();
    client_->Request(Header::GET,
                     [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("held"); });
    store_.AwaitHeld();
  }
  ~QueueTest() override { store_.OpenGate({}); }

  uint64_t Say(Header::MessageType type, const std::function<void(Header*)>& fill,
               const std::function<void(kinetic::Body*)>& fill_body = nullptr) {
    Command command;
    command.mutable_header()->set_messagetype(type);
    fill(command.mutable_header());
    if (fill_body) fill_body(command.mutable_body());
    EXPECT_TRUE(client_->SendCommand(command));
    return client_->last_sequence();
  }
  // The server has read what was said before, and handed it on: a wrong priority is refused without
  // a worker. Twice, because the first may come in one read with what was said before, and be
  // answered before that is handed on.
  void AwaitRead() {
    for (int i = 0; i < 2; ++i) {
      Say(Header::NOOP, [](Header* header) { header->set_priority(10); });
      EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::INVALID_REQUEST);
    }
  }

  RealRuntime runtime_;
  GatedStore& store_ = *new GatedStore;  // the engine's
  Engine engine_{std::unique_ptr<Store>(&store_)};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, {.workers = 1, .long_put = 1h}};  // however busy the machine is
  uint16_t port_ = 0;
  std::optional<Client> client_;
};

TEST_F(QueueTest, HigherPrioritiesComeFirst) {
  std::vector<uint64_t> expected(5);
  expected[3] = Say(Header::NOOP, [](Header* header) { header->set_priority(4); });
  expected[1] = Say(Header::NOOP, [](Header*) {});  // 5
  expected[4] = Say(Header::NOOP, [](Header* header) { header->set_priority(1); });
  expected[0] = Say(Header::NOOP, [](Header* header) { header->set_priority(9); });
  expected[2] = Say(Header::NOOP, [](Header* header) { header->set_priority(5); });
  AwaitRead();
  store_.OpenGate({});
  EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::NOT_FOUND);  // what held the worker
  for (const uint64_t sequence : expected) {
    EXPECT_EQ(client_->ReceiveAnswer().command.header().acksequence(), sequence);
  }
}

TEST_F(QueueTest, ARequestWhoseTimeRunsOutInTheQueueIsNotExecuted) {
  const auto put = [&](uint64_t timeout_ms) {
    Command command;
    command.mutable_header()->set_messagetype(Header::PUT);
    command.mutable_header()->set_timeout(timeout_ms);
    command.mutable_body()->mutable_keyvalue()->set_key(fmt::format("{}", timeout_ms));
    command.mutable_body()->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITEBACK);
    EXPECT_TRUE(client_->SendCommand(command));
  };
  put(1);
  put(0);  // has none
  put(600'000);
  put(UINT64_MAX);
  AwaitRead();
  const Time later = runtime_.Now() + 2ms;
  while (runtime_.Now() < later) std::this_thread::yield();
  store_.OpenGate({});
  client_->ReceiveAnswer();
  EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::SERVICE_BUSY);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  EXPECT_FAILS(engine_.Head("1"), ENOENT);
  EXPECT_OK(engine_.Head("600000"));
}

TEST_F(QueueTest, SmallPutsThatComeWhileOthersWaitAreMadeTogether) {
  int puts = 0;
  const auto put = [&](int priority, size_t value_bytes) {
    Command command;
    command.mutable_header()->set_messagetype(Header::PUT);
    command.mutable_header()->set_priority(priority);
    command.mutable_body()->mutable_keyvalue()->set_key(fmt::format("{}", ++puts));
    command.mutable_body()->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITEBACK);
    EXPECT_TRUE(client_->SendCommand(command, std::string(value_bytes, 'v')));
    AwaitRead();
  };
  put(5, 10);         // waits for the worker
  put(5, 10);         // waits for the one before
  put(9, 10);         // does not, for it is urgent
  put(5, 100 << 10);  // this one is large
  put(5, 10);
  put(5, 10);
  store_.OpenGate({});
  EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::NOT_FOUND);  // what held the worker
  for (int i = 0; i < puts; ++i) {
    EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }
  for (int i = 1; i <= puts; ++i) EXPECT_OK(engine_.Head(std::to_string(i)));
  // The urgent one first, beside the others; then the first, the large one, and all that waited.
  EXPECT_EQ(store_.put_together(), (std::vector<size_t>{1, 1, 1, 3}));
}

// Whoever has raised the cluster version goes by what he reads after that: nothing of those who did
// not know of it may come later.
TEST_F(QueueTest, WhatWaitedWhileTheClusterVersionChangedIsRefused) {
  const auto change = [&](Header::MessageType type, const std::string& key) {
    return Say(
        type, [](Header*) {},
        [&](kinetic::Body* body) {
          body->mutable_keyvalue()->set_key(key);
          body->mutable_keyvalue()->set_force(true);
          body->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITEBACK);
        });
  };
  ASSERT_OK(engine_.Put("old", {}, Expected::Any()));
  std::set<uint64_t> refused;
  refused.insert(change(Header::PUT, "new"));
  refused.insert(change(Header::DELETE, "old"));
  refused.insert(change(Header::GET, "old"));
  const auto in_batch = [](Header* header) { header->set_batchid(1); };
  const uint64_t begun = Say(Header::START_BATCH, in_batch);
  Say(Header::PUT, in_batch, [](kinetic::Body* body) {
    body->mutable_keyvalue()->set_key("of a batch");
    body->mutable_keyvalue()->set_synchronization(kinetic::KeyValue::WRITEBACK);
  });
  refused.insert(Say(Header::END_BATCH, in_batch));
  // Two who want to raise it, of whom one comes too late.
  const auto raise = [&](int64_t version, int priority) {
    return Say(
        Header::SETUP, [&](Header* header) { header->set_priority(priority); },
        [&](kinetic::Body* body) { body->mutable_setup()->set_newclusterversion(version); });
  };
  const uint64_t raised = raise(7, 9);
  refused.insert(raise(8, 1));
  AwaitRead();
  store_.OpenGate({});
  EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::NOT_FOUND);  // what held the worker
  for (size_t i = 0; i < refused.size() + 2; ++i) {
    const Client::Answer answer = client_->ReceiveAnswer();
    const uint64_t sequence = answer.command.header().acksequence();
    if (sequence == raised || sequence == begun) {
      EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS) << sequence;
      continue;
    }
    EXPECT_TRUE(refused.contains(sequence));
    EXPECT_EQ(answer.code(), kinetic::Status::VERSION_FAILURE) << sequence;
    EXPECT_EQ(answer.command.header().clusterversion(), 7) << sequence;
  }
  EXPECT_EQ(security_.cluster_version(), 7);
  EXPECT_FAILS(engine_.Head("new"), ENOENT);
  EXPECT_FAILS(engine_.Head("of a batch"), ENOENT);
  EXPECT_OK(engine_.Head("old"));
}

// While every worker is busy.
TEST_F(QueueTest, AFewSmallPutsAreMadeWithoutAWorker) {
  store_.AllowPutsAtOnce();
  const auto put = [&](int number, size_t value_bytes, kinetic::KeyValue::Synchronization how) {
    Command command;
    command.mutable_header()->set_messagetype(Header::PUT);
    command.mutable_body()->mutable_keyvalue()->set_key(fmt::format("{}", number));
    command.mutable_body()->mutable_keyvalue()->set_newversion("1");
    command.mutable_body()->mutable_keyvalue()->set_synchronization(how);
    EXPECT_TRUE(client_->SendCommand(command, std::string(value_bytes, 'v')));
    return client_->last_sequence();
  };
  for (int i = 0; i < 100; ++i) {
    const uint64_t sequence = put(i, 10, kinetic::KeyValue::WRITEBACK);
    const Client::Answer answer = client_->ReceiveAnswer();
    EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
    EXPECT_EQ(answer.command.header().messagetype(), Header::PUT_RESPONSE);
    EXPECT_EQ(answer.command.header().acksequence(), sequence);
  }
  // To be durable they still have to be flushed, and nobody holds up those who need not.
  const uint64_t durable = put(100, 10, kinetic::KeyValue::WRITETHROUGH);
  store_.AwaitFlush();
  const uint64_t other = put(101, 10, kinetic::KeyValue::WRITEBACK);
  EXPECT_EQ(client_->ReceiveAnswer().command.header().acksequence(), other);
  // Large ones wait for a worker, and so do small ones when there may be something to tell.
  put(102, 100 << 10, kinetic::KeyValue::WRITEBACK);
  AwaitRead();
  EXPECT_FAILS(engine_.Head("102"), ENOENT);
  EXPECT_TRUE(store_.put_together().empty());
  store_.OpenGate({});
  std::set<uint64_t> answered;
  for (int i = 0; i < 3; ++i) {
    const Client::Answer answer = client_->ReceiveAnswer();
    const bool held = answer.command.header().messagetype() == Header::GET_RESPONSE;
    EXPECT_EQ(answer.code(), held ? kinetic::Status::NOT_FOUND : kinetic::Status::SUCCESS);
    answered.insert(answer.command.header().acksequence());
  }
  EXPECT_TRUE(answered.contains(durable));
  put(0, 10, kinetic::KeyValue::WRITEBACK);  // which is there already, and has a version
  EXPECT_EQ(client_->ReceiveAnswer().code(), kinetic::Status::VERSION_MISMATCH);
  for (int i = 0; i <= 102; ++i) EXPECT_OK(engine_.Head(std::to_string(i)));
}

// --- With our own client

class ClientAndServerTest : public ServerTest {
 protected:
  ClientAndServerTest() {
    drive_ = std::make_unique<KineticDrive>(
        io_, KineticDrive::Options{.name = "drive 1",
                                   .addresses = {fmt::format("127.0.0.1:{}", port_)},
                                   .identity = 1,
                                   .key = "asdfasdf"});
  }

  template <typename R, typename Ask>
  R Await(Ask ask) {
    std::promise<R> promise;
    ask([&promise](R result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  Time Deadline() { return runtime_.Now() + 10s; }

  Status Put(std::string key, std::string value, std::string version, Expected expected) {
    return Await<Status>([&](StatusCallback done) {
      drive_->Put({.key = key,
                   .value = SharedBytes(value),
                   .version = version,
                   .tag = CoveringTag(AsBytes(value)),
                   .expected = expected,
                   .durability = Durability::kWriteThrough},
                  Deadline(), std::move(done));
    });
  }
  Result<Record> Get(std::string key, ValueRange range = {}) {
    return Await<Result<Record>>(
        [&](auto done) { drive_->Get(key, range, Deadline(), std::move(done)); });
  }

  KineticIo io_{runtime_};
  std::unique_ptr<KineticDrive> drive_;
};

TEST_F(ClientAndServerTest, ADriveBehindASocketIsADrive) {
  EXPECT_FAILS(Get("k"), ENOENT);
  ASSERT_OK(Put("k", "hello", "v1", Expected::Absent()));
  EXPECT_FAILS(Put("k", "other", "v2", Expected::Absent()), ESTALE);
  EXPECT_FAILS(Put("k", "other", "v2", Expected::Version("v0")), ESTALE);
  ASSERT_OK(Put("k", "world", "v2", Expected::Version("v1")));
  const Result<Record> record = Get("k");
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "world");
  EXPECT_EQ(record->version, "v2");
  EXPECT_EQ(record->tag, CoveringTag(AsBytes("world")));
  EXPECT_TRUE(drive_->IsUp());

  const auto head =
      Await<Result<RecordHead>>([&](auto done) { drive_->Head("k", Deadline(), std::move(done)); });
  ASSERT_OK(head);
  EXPECT_EQ(head->version, "v2");

  ASSERT_OK(Await<Status>([&](auto done) { drive_->Flush(Deadline(), std::move(done)); }));
  EXPECT_FAILS(Await<Status>([&](auto done) {
                 drive_->Delete("k", Expected::Version("v1"), Durability::kWriteBack, Deadline(),
                                std::move(done));
               }),
               ESTALE);
  EXPECT_OK(Await<Status>([&](auto done) {
    drive_->Delete("k", Expected::Version("v2"), Durability::kWriteBack, Deadline(),
                   std::move(done));
  }));
  EXPECT_FAILS(Get("k"), ENOENT);
}

TEST_F(ClientAndServerTest, APartOfAValueMovesOnlyThatPart) {
  ASSERT_OK(Put("k", std::string(1 << 20, 'a').replace(70000, 3, "xyz"), "v", Expected::Any()));
  const Result<Record> part = Get("k", {70000, 3});
  ASSERT_OK(part);
  EXPECT_EQ(part->value.text(), "xyz");
  EXPECT_EQ(engine_.CountOf(Engine::Operation::kGet).value_bytes, 3u);
  EXPECT_TRUE(drive_->capabilities().range_get);
}

TEST_F(ClientAndServerTest, APartOfAVersionMovesOnlyThatPart) {
  std::string version(2000, 'a');
  version.replace(1500, 3, "xyz");
  ASSERT_OK(Put("k", "value", version, Expected::Any()));
  const Result<Record> part =
      Get("k", {.offset = 1, .length = 3, .version = {.head = 4, .offset = 1500, .length = 3}});
  ASSERT_OK(part);
  EXPECT_EQ(part->version, "aaaaxyz");
  EXPECT_EQ(part->value.text(), "alu");
  EXPECT_EQ(Get("k")->version, version);
  EXPECT_TRUE(drive_->capabilities().version_part);
}

TEST_F(ClientAndServerTest, RangesAndInfo) {
  for (int i = 0; i < 250; ++i) ASSERT_OK(Put(fmt::format("k{:03}", i), "", "", Expected::Any()));
  const auto keys = Await<Result<std::vector<std::string>>>(
      [&](auto done) { drive_->Range("k010", "k999", 200, false, Deadline(), std::move(done)); });
  ASSERT_OK(keys);
  ASSERT_EQ(keys->size(), 200u);
  EXPECT_EQ(keys->front(), "k010");
  EXPECT_EQ(keys->back(), "k209");
  const auto info =
      Await<Result<DriveInfo>>([&](auto done) { drive_->Info(Deadline(), std::move(done)); });
  ASSERT_OK(info);
  EXPECT_EQ(info->capacity_bytes, uint64_t{64} << 20);
  EXPECT_EQ(info->serial_number, "SN1");
  EXPECT_EQ(info->world_wide_name, "WWN1");
}

TEST_F(ClientAndServerTest, ManyRecordsComeInOneAnswer) {
  constexpr int kRecords = 10'000;
  for (int i = 0; i < kRecords; ++i) {
    ASSERT_OK(engine_.Put(fmt::format("dir/{:05}", i),
                          {{.version = fmt::format("v{}", i), .tag = "\1\2\3\4", .algorithm = 4},
                           SharedBytes(fmt::format("value {}", i))},
                          Expected::Any()));
  }
  const auto list = [&](std::string first, std::string last, uint32_t max, bool reverse,
                        uint32_t limit) {
    return Await<Result<RangeRecords>>([&](auto done) {
      drive_->ListRecords(first, last, max, reverse, limit, Deadline(), std::move(done));
    });
  };
  int answers = 0;
  int next = 0;
  for (std::string first = "dir/";; ++answers) {
    const auto found = list(first, "dir0", kMaxRangeRecords, false, 1000);
    ASSERT_OK(found);
    for (const RangeRecord& each : found->records) {
      ASSERT_EQ(each.key, fmt::format("dir/{:05}", next));
      ASSERT_EQ(each.record.version, fmt::format("v{}", next));
      ASSERT_EQ(each.record.tag, "\1\2\3\4");
      ASSERT_TRUE(each.has_value);
      ASSERT_EQ(each.record.value.text(), fmt::format("value {}", next));
      ++next;
    }
    if (!found->more) break;
    first = found->records.back().key + '\0';
  }
  EXPECT_EQ(next, kRecords);
  EXPECT_EQ(answers, 2) << "of at most 4096 records, and one more";
  EXPECT_TRUE(drive_->capabilities().range_records);
  EXPECT_TRUE(drive_->capabilities().rooms);

  const auto last = list("", "dir0", 2, true, 0);
  ASSERT_OK(last);
  EXPECT_TRUE(last->more);
  ASSERT_EQ(last->records.size(), 2u);
  EXPECT_EQ(last->records[0].key, "dir/09999");
  EXPECT_FALSE(last->records[0].has_value) << "longer than nothing";
  EXPECT_OK(list("x", "y", 1, false, 0));
  EXPECT_FAILS(list("", "z", kMaxRangeRecords + 1, false, 0), EINVAL);
  EXPECT_FAILS(list("", "z", 0, false, 0), EINVAL);
}

// The largest keys, versions and values: the answer stays within what a message and a value may be.
TEST_F(ClientAndServerTest, LargeRecordsComeInAsManyAnswersAsTheyNeed) {
  constexpr int kRecords = 300;
  const auto key = [](int i) {
    return fmt::format("{:03}", i) + std::string(kMaxKeyBytes - 3, 'k');
  };
  for (int i = 0; i < kRecords; ++i) {
    ASSERT_OK(engine_.Put(key(i),
                          {{.version = std::string(kMaxVersionBytes, 'v'),
                            .tag = std::string(kMaxTagBytes, 't'),
                            .algorithm = -1},
                           SharedBytes(std::string(i % 10 == 0 ? 700'000 : 100, 'x'))},
                          Expected::Any()));
  }
  int seen = 0;
  for (std::string first; seen < kRecords;) {
    const auto found = Await<Result<RangeRecords>>([&](auto done) {
      drive_->ListRecords(first, "9", kMaxRangeRecords, false, kMaxValueBytes, Deadline(),
                          std::move(done));
    });
    ASSERT_OK(found);
    ASSERT_FALSE(found->records.empty());
    for (const RangeRecord& each : found->records) {
      ASSERT_EQ(each.key, key(seen));
      ASSERT_EQ(each.record.value.size(), seen % 10 == 0 ? 700'000u : 100u);
      ++seen;
    }
    EXPECT_EQ(found->more, seen < kRecords);
    first = found->records.back().key;
    first.back() = 'l';  // the next one can only be behind that
  }
}

// About as many bytes as a connection may have under way, so that the server stops reading again
// and again, and must each time go on.
TEST_F(ClientAndServerTest, AConnectionThatIsOftenFullNeverStaysSo) {
  constexpr int kPuts = 200;
  const SharedBytes value(std::string(1 << 20, 'v'));
  for (const int window : {16, 31, 64}) {
    std::atomic<int> issued = 0;
    std::atomic<int> outstanding = window;
    std::promise<void> finished;
    Status failure;
    std::mutex mutex;
    const std::function<void()> next = [&] {
      drive_->Put({.key = fmt::format("k{}", issued++ % 16), .value = value}, Deadline(),
                  [&](const Status& status) {
                    if (status.ok() && issued < kPuts) return next();
                    const std::lock_guard lock(mutex);
                    if (!status.ok()) failure = status;
                    if (--outstanding == 0) finished.set_value();
                  });
    };
    for (int i = 0; i < window; ++i) next();
    finished.get_future().wait();
    const std::lock_guard lock(mutex);
    ASSERT_OK(failure) << "with " << window << " at a time";
  }
}

TEST_F(ClientAndServerTest, KeysAndVersionsAreBytesOfAnyKindAndOfEveryAllowedLength) {
  const std::string longest_key = std::string(kMaxKeyBytes - 1, '\xff') + '\0';
  const std::string longest_version(kMaxVersionBytes, '\0');
  for (const std::string& key : {std::string(1, '\0'), std::string("a\0b", 3), longest_key}) {
    ASSERT_OK(Put(key, key, longest_version, Expected::Absent()));
    const Result<Record> record = Get(key);
    ASSERT_OK(record);
    EXPECT_EQ(record->value.text(), key);
    EXPECT_EQ(record->version, longest_version);
    EXPECT_FAILS(Put(key, "", "", Expected::Version(longest_version.substr(1))), ESTALE);
    ASSERT_OK(Put(key, "", "", Expected::Version(longest_version)));
    ASSERT_OK(Put(key, "again", "v", Expected::Absent()));  // its version was the empty one
  }
  const auto keys = Await<Result<std::vector<std::string>>>(
      [&](auto done) { drive_->Range("", longest_key, 2, true, Deadline(), std::move(done)); });
  ASSERT_OK(keys);
  EXPECT_EQ(*keys, (std::vector<std::string>{longest_key, std::string("a\0b", 3)}));
}

TEST_F(ClientAndServerTest, APartBeyondTheEndComesBackShortOrEmpty) {
  ASSERT_OK(Put("k", "0123456789", "v", Expected::Any()));
  EXPECT_EQ(Get("k", {.offset = 8, .length = 100})->value.text(), "89");
  EXPECT_EQ(Get("k", {.offset = 10, .length = 1})->value.text(), "");
  EXPECT_EQ(Get("k", {.offset = UINT32_MAX, .length = UINT32_MAX})->value.text(), "");
  EXPECT_EQ(Get("k", {.offset = 0, .length = 0})->value.text(), "");
  EXPECT_EQ(Get("k", {.offset = 4})->value.text(), "456789");
}

TEST_F(ClientAndServerTest, DeletingWhateverIsThereLeavesNothing) {
  ASSERT_OK(Put("k", "x", "v", Expected::Any()));
  const auto remove = [&](Expected expected) {
    return Await<Status>([&](auto done) {
      drive_->Delete("k", expected, Durability::kWriteThrough, Deadline(), std::move(done));
    });
  };
  EXPECT_OK(remove(Expected::Any()));
  EXPECT_FAILS(Get("k"), ENOENT);
  EXPECT_FAILS(remove(Expected::Version("v")), ENOENT);
  const Status again = remove(Expected::Any());
  EXPECT_TRUE(again.ok() || again.code() == ENOENT) << again.message();
}

TEST_F(ClientAndServerTest, TheDriveComesBackWithItsServer) {
  ASSERT_OK(Put("k", "kept", "v", Expected::Any()));
  server_.reset();
  while (drive_->IsUp()) std::this_thread::yield();
  EXPECT_FAILS(Get("k"), EHOSTUNREACH);
  server_ = std::make_unique<Server>(runtime_, Server::Options{});
  ASSERT_OK(server_->Listen("127.0.0.1", port_, service_));
  while (!drive_->IsUp()) std::this_thread::yield();
  EXPECT_EQ(Get("k")->value.text(), "kept");
}

TEST_F(ClientAndServerTest, ManyThreadsSeeTheirOwnWrites) {
  std::vector<std::future<void>> threads;
  for (int t = 0; t < 8; ++t) {
    threads.push_back(std::async(std::launch::async, [this, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = fmt::format("{}/{}", t, i);
        const std::string value(static_cast<size_t>(i) * 4001, static_cast<char>('a' + t));
        ASSERT_OK(Put(key, value, "v", Expected::Absent()));
        const Result<Record> record = Get(key);
        ASSERT_OK(record);
        ASSERT_EQ(record->value.text(), value);
      }
    }));
  }
  for (auto& thread : threads) thread.get();
}

}  // namespace
}  // namespace pinstripe
