// PIN operations and SECURITY messages over real TLS connections: locking, erasing, and what is
// left.

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "base/real_runtime.h"
#include "daemon/server.h"
#include "kinetic/kinetic_drive.h"
#include "store/memory_store.h"
#include "tests/daemon/tls_wire_client.h"
#include "tests/daemon/vector_runtime.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::Status;
using Pin = kinetic::PinOperation;

class PinTest : public testing::Test {
 protected:
  PinTest() {
    const TlsFiles files{directory_ / "tls.crt", directory_ / "tls.key"};
    MakeCertificate(files.certificate, files.key);
    plain_port_ = *server_.Listen("127.0.0.1", 0, service_);
    port_ = *server_.Listen("127.0.0.1", 0, service_, *TlsServer::Load(files));
    EXPECT_OK(engine_.Put("k", {}, Expected::Any()));
    client_.emplace(port_);
    client_->ReceiveFrame();
  }

  int Operate(std::string_view pin, Pin::Type type) {
    client_->PinRequest(pin, type);
    const WireClient::Answer answer = client_->ReceiveAnswer();
    EXPECT_EQ(answer.message.authtype(), kinetic::Message::PINAUTH);
    EXPECT_FALSE(answer.message.has_hmacauth());
    EXPECT_FALSE(answer.message.has_pinauth());
    EXPECT_EQ(answer.command.header().messagetype(), Header::PINOP_RESPONSE);
    EXPECT_EQ(answer.command.header().acksequence(), client_->last_sequence());
    return answer.code();
  }
  int SetPin(bool erase, std::string_view old_pin, std::string_view new_pin) {
    client_->Request(Header::SECURITY, [&](kinetic::Body* body) {
      kinetic::Security* security = body->mutable_security();
      if (erase) {
        security->set_olderasepin(std::string(old_pin));
        security->set_newerasepin(std::string(new_pin));
      } else {
        security->set_oldlockpin(std::string(old_pin));
        security->set_newlockpin(std::string(new_pin));
      }
    });
    return client_->ReceiveAnswer().code();
  }
  static int Noop(WireClient& client) {
    client.Request(Header::NOOP);
    return client.ReceiveAnswer().code();
  }
  bool KeyIsThere() { return engine_.Head("k").has_value(); }

  TemporaryDirectory directory_;
  VectorRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, Server::Options{}};
  uint16_t plain_port_ = 0;
  uint16_t port_ = 0;
  std::optional<TlsWireClient> client_;
};

TEST_F(PinTest, EraseIsAnsweredAsByOtherDevices) {
  for (const KineticVector& vector : kKineticVectors) {
    if (vector.name != "PINOP erase, empty pin") continue;
    ASSERT_TRUE(client_->Send(Unhex(vector.request)));
    EXPECT_EQ(Hex(AsBytes(client_->ReceiveFrame())), vector.response);
    EXPECT_FALSE(KeyIsThere());
    return;
  }
  FAIL() << "the vector is gone";
}

TEST_F(PinTest, AnErasedDeviceIsAsNew) {
  for (const Pin::Type type : {Pin::ERASE_PINOP, Pin::SECURE_ERASE_PINOP}) {
    ASSERT_OK(engine_.Put("k", {}, Expected::Any()));
    ASSERT_EQ(SetPin(/*erase=*/true, "", "e"), Status::SUCCESS);
    ASSERT_EQ(SetPin(/*erase=*/false, "", "l"), Status::SUCCESS);
    ASSERT_OK(security_.MergeIdentities({{2, FullAccess("two")}}));
    ASSERT_OK(security_.SetClusterVersion(4));
    EXPECT_EQ(Operate("wrong", type), Status::NOT_AUTHORIZED);
    EXPECT_EQ(Operate("", type), Status::NOT_AUTHORIZED);
    EXPECT_TRUE(KeyIsThere());
    EXPECT_EQ(Operate("e", type), Status::SUCCESS);
    EXPECT_FALSE(KeyIsThere());
    EXPECT_EQ(security_.Find(2), nullptr);
    EXPECT_EQ(security_.cluster_version(), 0);
    EXPECT_OK(security_.CheckErasePin("any"));
    EXPECT_FAILS(security_.Lock("l"), EACCES);
    // The connection stays: who has erased the device knows.
    EXPECT_EQ(Noop(*client_), Status::SUCCESS);
  }
}

// As pinstriped serves drives, unless it is told otherwise: a port that others reach erases
// nothing.
TEST_F(PinTest, WithoutAPinNobodyErasesADeviceThatMayNotBeErasedSo) {
  KineticService careful({.serial_number = "SN1", .erase_without_pin = false}, security_, engine_);
  const TlsFiles files{directory_ / "tls.crt", directory_ / "tls.key"};
  Server server{runtime_, Server::Options{}};
  client_.emplace(*server.Listen("127.0.0.1", 0, careful, *TlsServer::Load(files)));
  client_->ReceiveFrame();
  for (const Pin::Type type : {Pin::ERASE_PINOP, Pin::SECURE_ERASE_PINOP}) {
    EXPECT_EQ(Operate("", type), Status::NOT_AUTHORIZED);
    EXPECT_EQ(Operate("any", type), Status::NOT_AUTHORIZED);
  }
  EXPECT_TRUE(KeyIsThere());
  ASSERT_EQ(SetPin(/*erase=*/true, "", "e"), Status::SUCCESS);
  EXPECT_EQ(Operate("", Pin::ERASE_PINOP), Status::NOT_AUTHORIZED);
  EXPECT_EQ(Operate("e", Pin::ERASE_PINOP), Status::SUCCESS);
  EXPECT_FALSE(KeyIsThere());
}

TEST_F(PinTest, ALockedDeviceIsUnlockedWithItsPin) {
  ASSERT_EQ(SetPin(/*erase=*/false, "", "secret"), Status::SUCCESS);
  WireClient plain(plain_port_);
  plain.ReceiveFrame();
  EXPECT_EQ(Operate("wrong", Pin::LOCK_PINOP), Status::NOT_AUTHORIZED);
  EXPECT_EQ(Operate("", Pin::LOCK_PINOP), Status::INVALID_REQUEST);
  EXPECT_EQ(Noop(plain), Status::SUCCESS);
  EXPECT_EQ(Operate("secret", Pin::LOCK_PINOP), Status::SUCCESS);
  EXPECT_EQ(Operate("secret", Pin::LOCK_PINOP), Status::SUCCESS);
  EXPECT_EQ(Noop(plain), Status::DEVICE_LOCKED);
  EXPECT_EQ(Noop(*client_), Status::DEVICE_LOCKED);
  EXPECT_EQ(SetPin(/*erase=*/false, "secret", ""), Status::DEVICE_LOCKED);
  EXPECT_EQ(Operate("wrong", Pin::UNLOCK_PINOP), Status::NOT_AUTHORIZED);
  EXPECT_EQ(Noop(plain), Status::DEVICE_LOCKED);
  EXPECT_EQ(Operate("secret", Pin::UNLOCK_PINOP), Status::SUCCESS);
  EXPECT_EQ(Operate("secret", Pin::UNLOCK_PINOP), Status::SUCCESS);
  EXPECT_EQ(Noop(plain), Status::SUCCESS);
}

TEST_F(PinTest, ALockedDeviceCanBeErasedWithTheErasePin) {
  ASSERT_EQ(SetPin(/*erase=*/false, "", "l"), Status::SUCCESS);
  ASSERT_EQ(SetPin(/*erase=*/true, "", "e"), Status::SUCCESS);
  ASSERT_EQ(Operate("l", Pin::LOCK_PINOP), Status::SUCCESS);
  EXPECT_EQ(Operate("l", Pin::ERASE_PINOP), Status::NOT_AUTHORIZED);
  EXPECT_TRUE(KeyIsThere());
  EXPECT_EQ(Operate("e", Pin::ERASE_PINOP), Status::SUCCESS);
  EXPECT_FALSE(KeyIsThere());
  EXPECT_EQ(Noop(*client_), Status::SUCCESS);
}

TEST_F(PinTest, PinsAreForPinOperationsAndTheseForPins) {
  client_->PinRequest("", Pin::ERASE_PINOP, Header::DELETE);
  EXPECT_EQ(client_->ReceiveAnswer().code(), Status::INVALID_REQUEST);
  client_->Request(Header::PINOP, [](kinetic::Body* body) {
    body->mutable_pinop()->set_pinoptype(Pin::ERASE_PINOP);
  });
  EXPECT_EQ(client_->ReceiveAnswer().code(), Status::INVALID_REQUEST);
  EXPECT_EQ(Operate("", Pin::INVALID_PINOP), Status::INVALID_REQUEST);
  WireClient plain(plain_port_);
  plain.ReceiveFrame();
  plain.PinRequest("", Pin::ERASE_PINOP);
  const WireClient::Answer answer = plain.ReceiveAnswer();
  EXPECT_EQ(answer.code(), Status::INVALID_REQUEST);
  EXPECT_EQ(answer.command.status().statusmessage(), "TLS channel is required for Pin operation");
  EXPECT_TRUE(KeyIsThere());
}

// Whoever sends it has proved nothing: it may not end the process that serves all drives.
TEST_F(PinTest, APriorityThatIsNoneIsRefused) {
  for (const int priority : {-1, 0, 10, INT32_MAX}) {
    client_->PinRequest("", Pin::ERASE_PINOP, Header::PINOP,
                        [priority](Header* header) { header->set_priority(priority); });
    EXPECT_EQ(client_->ReceiveAnswer().code(), Status::INVALID_REQUEST) << priority;
  }
  EXPECT_TRUE(KeyIsThere());
}

TEST_F(PinTest, AWrongClusterVersionDoesNotMatterToAPin) {
  ASSERT_OK(security_.SetClusterVersion(77));
  EXPECT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
}

void SayInBatch(WireClient& client, Header::MessageType type) {
  Command request;
  request.mutable_header()->set_messagetype(type);
  request.mutable_header()->set_batchid(1);
  request.mutable_body()->mutable_keyvalue()->set_key("late");
  client.SendCommand(request);
}

// What was begun before an erase is not finished after it, not even by who made it.
TEST_F(PinTest, ABatchFromBeforeAnEraseEndsItsConnection) {
  SayInBatch(*client_, Header::START_BATCH);
  EXPECT_EQ(client_->ReceiveAnswer().code(), Status::SUCCESS);
  SayInBatch(*client_, Header::PUT);
  EXPECT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
  SayInBatch(*client_, Header::END_BATCH);
  const WireClient::Answer last = client_->ReceiveAnswer();
  EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  EXPECT_EQ(last.code(), Status::INVALID_BATCH);
  EXPECT_TRUE(client_->SeesTheEnd());
  EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 0u);
}

// As other devices do: clients that know nothing of an erase go on with what is now an empty one.
TEST_F(PinTest, AnEraseKeepsTheConnectionsOfOthers) {
  WireClient idle(plain_port_);
  WireClient in_batch(plain_port_);
  TlsWireClient secure(port_);
  for (WireClient* each : {&idle, &in_batch, static_cast<WireClient*>(&secure)}) {
    each->ReceiveFrame();
    EXPECT_EQ(Noop(*each), Status::SUCCESS);
  }
  SayInBatch(in_batch, Header::START_BATCH);
  EXPECT_EQ(in_batch.ReceiveAnswer().code(), Status::SUCCESS);
  SayInBatch(in_batch, Header::PUT);
  EXPECT_EQ(Noop(in_batch), Status::SUCCESS);
  for (const Pin::Type type : {Pin::ERASE_PINOP, Pin::SECURE_ERASE_PINOP}) {
    ASSERT_OK(engine_.Put("k", {}, Expected::Any()));
    EXPECT_EQ(Operate("", type), Status::SUCCESS);
    for (WireClient* each :
         {&idle, static_cast<WireClient*>(&secure), static_cast<WireClient*>(&*client_)}) {
      each->Request(Header::GET,
                    [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("k"); });
      EXPECT_EQ(each->ReceiveAnswer().code(), Status::NOT_FOUND);
      EXPECT_EQ(Noop(*each), Status::SUCCESS);
    }
  }
  SayInBatch(in_batch, Header::END_BATCH);
  const WireClient::Answer last = in_batch.ReceiveAnswer();
  EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  EXPECT_EQ(last.code(), Status::INVALID_BATCH);
  EXPECT_TRUE(in_batch.SeesTheEnd());
}

// Our extension: who relies on what a device has said before says so in each request.
TEST_F(PinTest, WhoAsksForADeviceThatWasNotErasedHearsOfTheErase) {
  const auto put = [](WireClient& client) {
    Command request;
    request.mutable_header()->set_messagetype(Header::PUT);
    request.mutable_header()->set_unerased(true);
    request.mutable_body()->mutable_keyvalue()->set_key("put");
    client.SendCommand(request);
    return client.ReceiveAnswer().code();
  };
  EXPECT_EQ(put(*client_), Status::SUCCESS);
  ASSERT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
  EXPECT_EQ(put(*client_), Status::CONNECTION_TERMINATED);
  // Who knew another cluster version learns it as well, and changes nothing.
  ASSERT_OK(security_.SetClusterVersion(7));
  EXPECT_EQ(put(*client_), Status::CONNECTION_TERMINATED);
  ASSERT_OK(security_.SetClusterVersion(0));
  EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 0u);
  EXPECT_EQ(Noop(*client_), Status::SUCCESS) << "who does not say it goes on";
  WireClient next(plain_port_);
  next.ReceiveFrame();
  EXPECT_EQ(put(next), Status::SUCCESS);
}

// A client of a cluster, which has an open connection to a drive and takes it for the one that it
// was. Its socket stays open; all that it may say of the erased drive is that it is away.
class ClusterClientTest : public PinTest, public testing::WithParamInterface<int64_t> {
 protected:
  const int64_t cluster_version_ = GetParam();  // that of an erased drive is 0

  ClusterClientTest() {
    SetSuperblock("the first");
    EXPECT_OK(security_.SetClusterVersion(cluster_version_));
  }
  void SetSuperblock(const std::string& text) {
    EXPECT_OK(engine_.Put("superblock", {{.version = "1"}, SharedBytes(text)}, Expected::Any()));
  }
  template <typename Answer>
  Answer Wait(const std::function<void(std::function<void(Answer)>)>& ask) {
    const auto answered = runtime_.NewSignal();
    std::optional<Answer> answer;
    ask([&](Answer each) {
      answer = std::move(each);
      answered->Set();
    });
    answered->WaitUntil(Time::max());
    return *std::move(answer);
  }
  Time Soon() { return runtime_.Now() + std::chrono::seconds(20); }
  // Each way in which a client may find that something is not there, under each kind of terms.
  std::vector<std::pair<std::string, int>> AskAll() {
    std::vector<std::pair<std::string, int>> codes;
    for (const std::optional<int64_t> version : {std::optional<int64_t>(), {cluster_version_}}) {
      const Terms terms(Soon(), version);
      const auto add = [&](const char* what, int code) {
        codes.emplace_back(fmt::format("{} {}", what, version.value_or(-1)), code);
      };
      const auto code = [](const auto& result) {
        return result.has_value() ? 0 : result.error().code();
      };
      add("get", code(Wait<Result<Record>>([&](auto done) { drive_->Get("k", {}, terms, done); })));
      add("head",
          code(Wait<Result<RecordHead>>([&](auto done) { drive_->Head("k", terms, done); })));
      add("range", code(Wait<Result<std::vector<std::string>>>(
                       [&](auto done) { drive_->Range("a", "z", 10, false, terms, done); })));
      add("list", code(Wait<Result<RangeRecords>>([&](auto done) {
            drive_->ListRecords("a", "z", 10, false, 100, terms, done);
          })));
      add("put", Wait<pinstripe::Status>([&](auto done) {
                   drive_->Put({.key = "new", .expected = Expected::Absent()}, terms, done);
                 }).code());
      add("delete", Wait<pinstripe::Status>([&](auto done) {
                      drive_->Delete("k", Expected::Version("v"), Durability::kWriteBack, terms,
                                     done);
                    }).code());
      add("flush", Wait<pinstripe::Status>([&](auto done) { drive_->Flush(terms, done); }).code());
    }
    return codes;
  }

  KineticIo io_{runtime_};
  std::unique_ptr<KineticDrive> drive_ = std::make_unique<KineticDrive>(
      io_,
      KineticDrive::Options{.name = "drive 3",
                            .addresses = {fmt::format("127.0.0.1:{}", plain_port_)},
                            .key = "asdfasdf",
                            .identity_key = "superblock",
                            .check_identity = [](const Result<Record>& record,
                                                 const Result<DriveInfo>&) -> pinstripe::Status {
                              if (!record.has_value()) return Failed(record.error());
                              if (record->value.text() == "the first") return {};
                              return Fail(EINVAL, "it is another drive: {}", record->value.text());
                            },
                            .least_backoff = std::chrono::milliseconds(1),
                            .most_backoff = std::chrono::milliseconds(10)});
};

TEST_P(ClusterClientTest, NeverTakesAnErasedDriveForTheOneThatItWas) {
  EXPECT_EQ(AskAll()[0].second, 0);
  ASSERT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
  for (int round = 0; round < 20; ++round) {
    for (const auto& [what, code] : AskAll()) ASSERT_EQ(code, EHOSTUNREACH) << what;
  }
  EXPECT_FALSE(drive_->IsUp());
  EXPECT_EQ(security_.cluster_version(), 0) << "an erased drive is not brought to any version";
  EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 0u);
}

// The client said nothing while all of that happened, so that its connection is as it was.
TEST_P(ClusterClientTest, NeverTakesADriveThatWasFormattedAnewForTheOneThatItWas) {
  EXPECT_EQ(AskAll()[0].second, 0);
  ASSERT_EQ(Operate("", Pin::SECURE_ERASE_PINOP), Status::SUCCESS);
  SetSuperblock("another");
  ASSERT_OK(security_.SetClusterVersion(cluster_version_));
  for (int round = 0; round < 20; ++round) {
    for (const auto& [what, code] : AskAll()) ASSERT_EQ(code, EHOSTUNREACH) << what;
  }
  EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 1u) << "nothing but the superblock";
}

TEST_P(ClusterClientTest, MeetsAnErasedDriveAgainThatIsTheRightOneNow) {
  EXPECT_EQ(AskAll()[0].second, 0);
  ASSERT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
  EXPECT_EQ(AskAll()[0].second, EHOSTUNREACH);
  SetSuperblock("the first");
  ASSERT_OK(engine_.Put("k", {}, Expected::Any()));
  while (!drive_->IsUp()) std::this_thread::yield();
  EXPECT_EQ(AskAll()[0].second, 0);
}

INSTANTIATE_TEST_SUITE_P(OfTheFirstEpochAndALaterOne, ClusterClientTest, testing::Values(0, 5));

TEST_F(PinTest, WhoWasAdmittedBeforeAnEraseIsRefusedAfterIt) {
  const KineticService::Caller before{.identity = security_.Find(1)};
  ASSERT_EQ(Operate("", Pin::ERASE_PINOP), Status::SUCCESS);
  Command put;
  put.mutable_header()->set_messagetype(Header::PUT);
  put.mutable_body()->mutable_keyvalue()->set_key("late");
  Command answer;
  service_.Execute(before, put, {}, &answer);
  EXPECT_EQ(answer.status().code(), Status::NOT_AUTHORIZED);
  service_.Execute({.identity = before.identity, .unerased = true}, put, {}, &answer);
  EXPECT_EQ(answer.status().code(), Status::CONNECTION_TERMINATED);
  EXPECT_EQ(engine_.Keys({}, 10, false)->size(), 0u);
  service_.Execute({.identity = security_.Find(1)}, put, {}, &answer);
  EXPECT_EQ(answer.status().code(), Status::SUCCESS);
}

TEST_F(PinTest, AStoreThatCannotBeErasedKeepsEverything) {
  class Fixed final : public Store {
   public:
    Result<StoredRecord> Get(std::string_view, ValueRange) override { return Fail(ENOENT, "none"); }
    Result<StoredHead> Head(std::string_view) override { return Fail(ENOENT, "none"); }
    Result<std::vector<std::string>> Keys(const KeyRange&, size_t, bool) override {
      return std::vector<std::string>();
    }
    pinstripe::Status Put(std::string_view, const StoredRecord&, Room = Room::kData) override {
      return {};
    }
    pinstripe::Status Delete(std::string_view) override { return {}; }
    pinstripe::Status Apply(std::span<const StoreChange>) override { return {}; }
    pinstripe::Status Flush() override { return {}; }
    StoreUsage Usage() override { return {}; }
  };
  Engine engine(std::make_unique<Fixed>());
  KineticService service({.serial_number = "SN2"}, security_, engine);
  ASSERT_OK(security_.MergeIdentities({{2, FullAccess("two")}}));
  Command request;
  request.mutable_body()->mutable_pinop()->set_pinoptype(Pin::ERASE_PINOP);
  Command answer;
  service.ExecutePin(request, "", &answer);
  EXPECT_EQ(answer.status().code(), Status::INTERNAL_ERROR);
  EXPECT_NE(security_.Find(2), nullptr);
}

}  // namespace
}  // namespace pinstripe
