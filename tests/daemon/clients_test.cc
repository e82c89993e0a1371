// Who uses a drive: what clients say of themselves, what the drive tells of them, and its metrics.

#include "daemon/clients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/program.h"
#include "daemon/drive_metrics.h"
#include "daemon/server.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/memory_store.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Header;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class ClientsTest : public testing::Test, protected DriveClient {
 protected:
  ClientsTest() {
    const Result<uint16_t> port = server_->Listen("127.0.0.1", 0, service_);
    EXPECT_OK(port);
    port_ = *port;
  }
  ~ClientsTest() override { SetProgram({}); }

  std::unique_ptr<KineticDrive> Connect() { return DriveClient::Connect(port_); }
  Result<DriveUse> Use(KineticDrive& drive) {
    return Await<Result<DriveUse>>([&](auto done) { drive.AskUse(Deadline(), std::move(done)); });
  }
  std::string Metrics() { return DriveMetricsText({{&service_, "/srv/1", {}}}, *server_); }

  Engine engine_{std::make_unique<MemoryStore>(64 << 20)};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}, {2, {.key = "two", .scopes = {}}}}};
  KineticService service_{{.serial_number = "SN1", .world_wide_name = "WWN1"}, security_, engine_};
  std::unique_ptr<Server> server_ = std::make_unique<Server>(runtime_, Server::Options{});
  uint16_t port_ = 0;
};

TEST_F(ClientsTest, AProgramOfOursIsKnownByItsName) {
  SetProgram({.name = "pinstripe-fuse", .version = "1.2", .detail = "/mnt"});
  const auto drive = Connect();
  const Drive::PutRequest put{
      .key = "k", .value = SharedBytes(std::string("12345")), .version = "1"};
  ASSERT_OK(Await<Status>([&](auto done) { drive->Put(put, Deadline(), std::move(done)); }));
  ASSERT_OK(
      Await<Result<Record>>([&](auto done) { drive->Get("k", {}, Deadline(), std::move(done)); }));
  const Result<DriveUse> use = Use(*drive);
  ASSERT_OK(use);
  ASSERT_THAT(use->clients, SizeIs(1));
  const DriveUser& client = use->clients[0];
  EXPECT_EQ(client.program.name, "pinstripe-fuse");
  EXPECT_EQ(client.program.version, "1.2");
  EXPECT_EQ(client.program.detail, "/mnt");
  EXPECT_EQ(client.host, HostName());
  EXPECT_EQ(client.process, static_cast<uint32_t>(getpid()));
  EXPECT_THAT(client.address, testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(client.identity, 1);
  EXPECT_FALSE(client.tls);
  EXPECT_EQ(client.bytes_written, 5u);
  EXPECT_GE(client.bytes_read, 5u) << "and what a connection begins with";
  EXPECT_GE(client.requests, 3u);
  EXPECT_NE(client.connection, 0u);
  uint64_t written = 0;
  for (const RequestsOfType& work : use->work) {
    EXPECT_EQ(work.took.count(), work.requests);
    if (work.is_write) written += work.bytes;
  }
  EXPECT_EQ(written, 5u);
  EXPECT_GE(drive->times()->writes.Load().count(), 1u);
  EXPECT_EQ(drive->times()->written_bytes, 5u);
  EXPECT_GE(drive->times()->read_bytes, 5u);
}

TEST_F(ClientsTest, WhoSaysNothingIsToldOfByItsAddress) {
  WireClient stranger(port_);
  stranger.ReceiveFrame();
  const auto drive = Connect();
  const Result<DriveUse> use = Use(*drive);
  ASSERT_OK(use);
  ASSERT_THAT(use->clients, SizeIs(2));
  EXPECT_EQ(use->clients[0].program.name, "");
  EXPECT_EQ(use->clients[0].identity, std::nullopt) << "nothing was signed";
  EXPECT_EQ(use->clients[0].requests, 0u);
}

TEST_F(ClientsTest, WhoGoesIsForgotten) {
  {
    WireClient gone(port_);
    gone.ReceiveFrame();
  }
  const auto drive = Connect();
  while (true) {
    const Result<DriveUse> use = Use(*drive);
    ASSERT_OK(use);
    if (use->clients.size() == 1) break;
  }
}

TEST_F(ClientsTest, WhatItSaysIsBoundedAndPrintable) {
  WireClient client(port_);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Request(Header::GETLOG, [](kinetic::Body* body) {
    kinetic::GetLog::Client* said = body->mutable_getlog()->mutable_client();
    said->set_program("evil\x1b[2J" + std::string(100'000, 'x'));
    said->set_version(std::string("\xff\x00\n", 3));
    said->set_host(std::string(5000, '\n'));
    said->set_detail(std::string(5000, 'd'));
    // Only a drive says these.
    said->set_address("1.2.3.4:5");
    said->set_identity(77);
    said->set_requests(1'000'000);
  }));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  const auto drive = Connect();
  const Result<DriveUse> use = Use(*drive);
  ASSERT_OK(use);
  const DriveUser& evil = use->clients[0];
  EXPECT_EQ(evil.program.name, "evil?[2J" + std::string(56, 'x'));
  EXPECT_EQ(evil.program.version, "???");
  EXPECT_EQ(evil.host, std::string(64, '?'));
  EXPECT_THAT(evil.program.detail, SizeIs(128));
  EXPECT_THAT(evil.address, Not(HasSubstr("1.2.3.4")));
  EXPECT_EQ(evil.identity, 1);
  EXPECT_LT(evil.requests, 10u);
}

// Whoever asks as often as a request can is told once, so that the answer stays in its bounds.
TEST_F(ClientsTest, WhoAsksManyTimesInOneRequestIsToldOnce) {
  std::vector<std::unique_ptr<WireClient>> others;
  for (int i = 0; i < 100; ++i) {
    WireClient& client = *others.emplace_back(std::make_unique<WireClient>(port_));
    client.ReceiveFrame();
    ASSERT_TRUE(client.Request(Header::GETLOG, [](kinetic::Body* body) {
      kinetic::GetLog::Client* said = body->mutable_getlog()->mutable_client();
      for (std::string* text : {said->mutable_program(), said->mutable_version(),
                                said->mutable_host(), said->mutable_detail()}) {
        text->assign(1000, 'x');
      }
    }));
    ASSERT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }
  WireClient& client = *others.front();
  ASSERT_TRUE(client.Request(Header::GETLOG, [](kinetic::Body* body) {
    for (int i = 0; i < 32; ++i) body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kClientsLog));
  }));
  const WireClient::Answer answer = client.ReceiveAnswer();
  EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
  EXPECT_EQ(answer.command.body().getlog().clients_size(), 100);
}

TEST_F(ClientsTest, WhoMayNotReadLogsLearnsNothing) {
  WireClient client(port_);
  client.ReceiveFrame();
  client.SetIdentity(2);
  ASSERT_TRUE(client.Request(
      Header::GETLOG,
      [](kinetic::Body* body) {
        body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
        body->mutable_getlog()->mutable_device()->set_name(std::string(kClientsLog));
      },
      {}, "two"));
  const WireClient::Answer answer = client.ReceiveAnswer();
  EXPECT_EQ(answer.code(), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_EQ(answer.command.body().getlog().clients_size(), 0);
  EXPECT_EQ(answer.command.body().getlog().work_size(), 0);
}

TEST_F(ClientsTest, MetricsTellWhatWasDone) {
  const auto drive = Connect();
  const Drive::PutRequest put{
      .key = "k", .value = SharedBytes(std::string("12345")), .version = "1"};
  ASSERT_OK(Await<Status>([&](auto done) { drive->Put(put, Deadline(), std::move(done)); }));
  EXPECT_FAILS(Await<Result<Record>>(
                   [&](auto done) { drive->Get("none", {}, Deadline(), std::move(done)); }),
               ENOENT);
  EXPECT_EQ(drive->times()->failures, 0u) << "that nothing is there is an answer like others";
  ASSERT_OK(Await<Status>([&](auto done) { drive->Flush(Deadline(), std::move(done)); }));
  const std::string text = Metrics();
  const auto has = [&text](const std::string& line) { EXPECT_THAT(text, HasSubstr("\n" + line)); };
  has("pinstripe_drive_up{path=\"/srv/1\"} 1\n");
  has("pinstripe_drive_writable{path=\"/srv/1\"} 1\n");
  has("pinstripe_drive_connections{path=\"/srv/1\"} 1\n");
  has("pinstripe_daemon_connections 1\n");
  has("pinstripe_drive_capacity_bytes{path=\"/srv/1\"} 67108864\n");
  has("pinstripe_drive_request_seconds_count{path=\"/srv/1\",operation=\"put\"} 1\n");
  has("pinstripe_drive_value_bytes_total{path=\"/srv/1\",operation=\"put\"} 5\n");
  has("pinstripe_drive_failed_requests_total{path=\"/srv/1\",status=\"NOT_FOUND\"} 1\n");
  has("pinstripe_drive_sync_seconds_count{path=\"/srv/1\"} 1\n");
  EXPECT_THAT(text, HasSubstr("serial=\"SN1\",wwn=\"WWN1\""));
}

TEST_F(ClientsTest, MetricsTellOfADriveThatCannotBeServed) {
  const std::string text =
      DriveMetricsText({{&service_, "/srv/1", Fail(EIO, "no disk")}}, *server_);
  EXPECT_THAT(text, HasSubstr("\npinstripe_drive_up{path=\"/srv/1\"} 0\n"));
}

}  // namespace
}  // namespace pinstripe
