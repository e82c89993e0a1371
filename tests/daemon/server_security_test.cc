// Who is served over real connections, and who is not.

#include <gtest/gtest.h>

#include "daemon/server.h"
#include "kinetic/kinetic.pb.h"
#include "store/memory_store.h"
#include "tests/daemon/vector_runtime.h"
#include "tests/daemon/wire_client.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using Client = WireClient;

const KineticVector& VectorNamed(std::string_view name) {
  for (const KineticVector& vector : kKineticVectors) {
    if (vector.name == name) return vector;
  }
  ADD_FAILURE() << "no vector " << name;
  return kKineticVectors[0];
}

class ServerSecurity : public testing::Test {
 protected:
  ServerSecurity() { port_ = *server_.Listen("127.0.0.1", 0, service_); }

  VectorRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  Server server_{runtime_, Server::Options{}};
  uint16_t port_ = 0;
};

TEST_F(ServerSecurity, EveryRequestMustKnowTheClusterVersion) {
  const KineticVector& vector = VectorNamed("NOOP with wrong clusterVersion 5");
  Client old(port_);
  EXPECT_EQ(old.ReceiveAnswer().command.header().clusterversion(), 0);
  ASSERT_TRUE(old.Send(Unhex(vector.request)));
  const Client::Answer refusal = old.ReceiveAnswer();
  Command other;  // another device's, whose sentence is its own
  ASSERT_TRUE(other.ParseFromString(Unhex(vector.response_command)));
  other.mutable_status()->set_statusmessage(refusal.command.status().statusmessage());
  EXPECT_EQ(refusal.command.SerializeAsString(), other.SerializeAsString());

  Client client(port_);
  client.ReceiveFrame();
  client.Request(Header::SETUP,
                 [](kinetic::Body* body) { body->mutable_setup()->set_newclusterversion(5); });
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  for (const Header::MessageType type : {Header::NOOP, Header::GET, Header::PUT, Header::SETUP}) {
    client.Request(type);  // with version 0, which is the old one now
    const Client::Answer answer = client.ReceiveAnswer();
    EXPECT_EQ(answer.code(), kinetic::Status::VERSION_FAILURE);
    EXPECT_EQ(answer.command.header().clusterversion(), 5);
  }
  EXPECT_EQ(Client(port_).ReceiveAnswer().command.header().clusterversion(), 5);
}

TEST_F(ServerSecurity, ALockedDeviceAnswersNothingElse) {
  ASSERT_OK(security_.ChangeLockPin("", "pin"));
  ASSERT_OK(security_.Lock("pin"));
  Client client(port_);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  for (const Header::MessageType type :
       {Header::NOOP, Header::GET, Header::GETLOG, Header::SECURITY, Header::START_BATCH}) {
    client.Request(type);
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::DEVICE_LOCKED);
  }
  client.Request(Header::NOOP, nullptr, {}, "wrong key");
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::HMAC_FAILURE);
}

TEST_F(ServerSecurity, ANewKeyHoldsForTheNextRequest) {
  Client client(port_);
  client.ReceiveFrame();
  ASSERT_OK(security_.MergeIdentities({{1, FullAccess("new key")}}));
  client.Request(Header::NOOP);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::HMAC_FAILURE);
  client.Request(Header::NOOP, nullptr, {}, "new key");
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(ServerSecurity, APriorityAboveTheIdentitysIsRefused) {
  Rights rights = FullAccess("asdfasdf");
  rights.max_priority = 5;
  ASSERT_OK(security_.MergeIdentities({{2, rights}}));
  Client client(port_);
  client.ReceiveFrame();
  const auto ask = [&](int64_t identity, int priority) {
    client.SetIdentity(identity);
    Command request;
    request.mutable_header()->set_messagetype(Header::PUT);
    request.mutable_header()->set_priority(priority);
    request.mutable_body()->mutable_keyvalue()->set_key(fmt::format("{}.{}", identity, priority));
    client.SendCommand(request);
    return client.ReceiveAnswer().code();
  };
  EXPECT_EQ(ask(2, 6), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_FAILS(engine_.Head("2.6"), ENOENT);
  EXPECT_EQ(ask(2, 5), kinetic::Status::SUCCESS);
  EXPECT_EQ(ask(1, 9), kinetic::Status::SUCCESS);
}

// A batch is no way around what its parts may not do.
TEST_F(ServerSecurity, ABatchWithAForbiddenChangeIsNotMade) {
  Scope prefix{.value = "mine/"};
  prefix.permissions.Add(Permission::kWrite);
  ASSERT_OK(security_.MergeIdentities({{2, {.key = "asdfasdf", .scopes = {prefix}}}}));
  ASSERT_OK(engine_.Put("mine/old", {}, Expected::Any()));
  const std::pair<Header::MessageType, const char*> kForbidden[] = {
      {Header::PUT, "yours"}, {Header::PUT, "mine"}, {Header::DELETE, "mine/old"}};
  uint32_t id = 0;
  for (const auto& [type, key] : kForbidden) {
    Client client(port_);
    client.ReceiveFrame();
    client.SetIdentity(2);
    ++id;
    const auto say = [&](Header::MessageType what, std::string_view about = {}) {
      Command request;
      request.mutable_header()->set_messagetype(what);
      request.mutable_header()->set_batchid(id);
      if (!about.empty()) request.mutable_body()->mutable_keyvalue()->set_key(std::string(about));
      if (!about.empty()) request.mutable_body()->mutable_keyvalue()->set_force(true);
      client.SendCommand(request);
    };
    say(Header::START_BATCH);
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
    say(Header::PUT, "mine/new");
    say(type, key);
    const uint64_t failed = client.last_sequence();
    say(Header::END_BATCH);
    const Client::Answer end = client.ReceiveAnswer();
    EXPECT_EQ(end.code(), kinetic::Status::INVALID_BATCH);
    EXPECT_EQ(end.command.body().batch().failedsequence(), failed);
    EXPECT_EQ(end.command.status().statusmessage(), "NOT_AUTHORIZED: permission denied");
    EXPECT_FAILS(engine_.Head("mine/new"), ENOENT);
    EXPECT_FAILS(engine_.Head("yours"), ENOENT);
    EXPECT_OK(engine_.Head("mine/old"));
  }
}

// --- Limits

TEST_F(ServerSecurity, ConnectionNumber1001IsToldWhyAndTheOthersAreServed) {
  ASSERT_TRUE(CanHaveConnections(kUsualConnections));
  const uint16_t other_port = *server_.Listen("127.0.0.1", 0, service_);
  std::vector<Client> clients;
  for (uint32_t i = 0; i < kUsualConnections; ++i) {
    clients.emplace_back(i % 2 == 0 ? port_ : other_port);
    ASSERT_EQ(clients.back().ReceiveAnswer().code(), kinetic::Status::SUCCESS) << i;
    clients.back().Request(Header::NOOP);  // a stranger would give way
    ASSERT_EQ(clients.back().ReceiveAnswer().code(), kinetic::Status::SUCCESS) << i;
  }
  for (const uint16_t port : {port_, other_port}) {
    Client one_too_many(port);
    const Client::Answer last = one_too_many.ReceiveAnswer();
    EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
    EXPECT_EQ(last.code(), kinetic::Status::SERVICE_BUSY);
    EXPECT_FALSE(last.command.header().has_connectionid());
    EXPECT_TRUE(one_too_many.SeesTheEnd());
  }
  clients.front().Request(Header::NOOP);
  EXPECT_EQ(clients.front().ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  clients.pop_back();
  const Time patience = runtime_.Now() + std::chrono::seconds(10);
  int code = kinetic::Status::SERVICE_BUSY;  // until the server has seen that one has gone
  while (code != kinetic::Status::SUCCESS && runtime_.Now() < patience) {
    code = Client(port_).ReceiveAnswer().code();
  }
  EXPECT_EQ(code, kinetic::Status::SUCCESS);
}

TEST_F(ServerSecurity, ADeviceTakesAsManyConnectionsAsItIsTold) {
  KineticService service({.serial_number = "SN2", .max_connections = 2}, security_, engine_);
  Server::Options options;
  options.places.per_device = 2;
  Server server(runtime_, options);
  const uint16_t port = *server.Listen("127.0.0.1", 0, service);
  std::vector<Client> clients;
  for (int i = 0; i < 2; ++i) {
    const auto limits = clients.emplace_back(port).ReceiveAnswer().command.body().getlog().limits();
    EXPECT_EQ(limits.maxconnections(), 2u);
    clients.back().Request(Header::NOOP);
    ASSERT_EQ(clients.back().ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }
  EXPECT_EQ(Client(port).ReceiveAnswer().code(), kinetic::Status::SERVICE_BUSY);
}

// A request whose message has exactly so many bytes.
std::string FrameOf(size_t message_bytes) {
  kinetic::Message message;
  size_t padding = message_bytes - 100;
  while (message.ByteSizeLong() != message_bytes) {
    padding += message.commandbytes().empty() ? 0 : message_bytes - message.ByteSizeLong();
    Command command;
    command.mutable_header()->set_sequence(1);
    command.mutable_header()->set_messagetype(Header::GETLOG);
    command.mutable_body()->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    command.mutable_body()->mutable_getlog()->mutable_device()->set_name(std::string(padding, 'x'));
    message.set_authtype(kinetic::Message::HMACAUTH);
    command.SerializeToString(message.mutable_commandbytes());
    const Hmac hmac = HmacKey("asdfasdf").Sign(AsBytes(message.commandbytes()));
    message.mutable_hmacauth()->set_identity(1);
    message.mutable_hmacauth()->set_hmac(hmac.data(), hmac.size());
  }
  const auto header = EncodeFrameHeader({static_cast<uint32_t>(message_bytes), 0});
  return std::string(AsText(header)) + message.SerializeAsString();
}

TEST_F(ServerSecurity, AMessageHasALimit) {
  for (const size_t bytes : {kMaxMessageBytes, kMaxAcceptedMessageBytes}) {
    Client client(port_);
    client.ReceiveFrame();
    ASSERT_TRUE(client.Send(FrameOf(bytes)));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::NOT_FOUND) << bytes;
  }
  Client client(port_);
  client.ReceiveFrame();
  client.Send(FrameOf(kMaxAcceptedMessageBytes + 1).substr(0, 1000));
  const Client::Answer last = client.ReceiveAnswer();
  EXPECT_EQ(last.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  EXPECT_EQ(last.code(), kinetic::Status::INVALID_REQUEST);
  EXPECT_TRUE(client.SeesTheEnd());
}

TEST_F(ServerSecurity, TheGreetingNamesTheLimits) {
  const auto limits = Client(port_).ReceiveAnswer().command.body().getlog().limits();
  EXPECT_EQ(limits.maxidentitycount(), 1000u);
  EXPECT_EQ(limits.maxpinsize(), 200u);
  EXPECT_EQ(limits.maxconnections(), kUsualConnections);
  EXPECT_EQ(limits.maxmessagesize(), kMaxMessageBytes);
}

}  // namespace
}  // namespace pinstripe
