// What took long at a drive, and what clients tell it of.

#include "daemon/slow_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "base/operation_trace.h"
#include "base/program.h"
#include "daemon/server.h"
#include "kinetic/frame.h"
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
using testing::Each;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

// A disk that takes its time, or until `enough` is set.
class SlowStore final : public MemoryStore {
 public:
  SlowStore(Runtime& runtime, Duration put, Duration flush, std::shared_ptr<Signal> enough)
      : runtime_(runtime), put_(put), flush_(flush), enough_(std::move(enough)) {}
  Status Put(std::string_view key, const StoredRecord& record, Room room) override {
    Take(put_);
    return MemoryStore::Put(key, record, room);
  }
  Status Flush() override {
    Take(flush_);
    return MemoryStore::Flush();
  }

 private:
  void Take(Duration time) {
    if (time > Duration()) enough_->WaitUntil(runtime_.Now() + time);
  }

  Runtime& runtime_;
  const Duration put_;
  const Duration flush_;
  const std::shared_ptr<Signal> enough_;
};

class SlowLogTest : public testing::Test, protected DriveClient {
 protected:
  ~SlowLogTest() override { SetProgram({}); }

  void Serve(Duration slow_after, Duration put = {}, Duration flush = {}) {
    engine_ = std::make_unique<Engine>(std::make_unique<SlowStore>(runtime_, put, flush, enough_));
    service_ = std::make_unique<KineticService>(
        DeviceDescription{
            .serial_number = "SN1", .world_wide_name = "WWN1", .slow_request = slow_after},
        security_, *engine_);
    server_ = std::make_unique<Server>(runtime_, Server::Options{});
    const Result<uint16_t> port = server_->Listen("127.0.0.1", 0, *service_);
    ASSERT_OK(port);
    port_ = *port;
  }
  std::unique_ptr<KineticDrive> Connect() { return DriveClient::Connect(port_); }
  DriveSlow Slow(KineticDrive& drive) {
    const auto slow =
        Await<Result<DriveSlow>>([&](auto done) { drive.AskSlow(Deadline(), std::move(done)); });
    EXPECT_OK(slow);
    return slow.value_or(DriveSlow());
  }
  Status Put(KineticDrive& drive, Durability durability) {
    return Await<Status>([&](auto done) {
      drive.Put({.key = "k",
                 .value = SharedBytes(std::string("12345")),
                 .version = "1",
                 .durability = durability},
                Deadline(), std::move(done));
    });
  }
  // What a client tells of, when nothing else does.
  void Tell(WireClient& client, const std::function<void(kinetic::GetLog*)>& fill) {
    client.ReceiveFrame();
    ASSERT_TRUE(
        client.Request(Header::GETLOG, [&](kinetic::Body* body) { fill(body->mutable_getlog()); }));
    EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  }

  const std::shared_ptr<Signal> enough_ = runtime_.NewSignal();
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}, {2, {.key = "two", .scopes = {}}}}};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<KineticService> service_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
};

TEST_F(SlowLogTest, ARequestIsToldOfWithItsParts) {
  Serve(50ms, /*put=*/60ms, /*flush=*/70ms);
  SetProgram({.name = "pinstripe-fuse", .version = "1.2", .detail = "/mnt"});
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, Durability::kWriteThrough));
  const DriveSlow slow = Slow(*drive);
  EXPECT_EQ(slow.slow_after, 50ms);
  ASSERT_THAT(slow.requests, SizeIs(1));
  const SlowRequest& put = slow.requests[0];
  EXPECT_EQ(RequestWord(put.type), "write");
  EXPECT_EQ(put.bytes, 5u);
  EXPECT_EQ(put.record, "6b") << "no record of a cluster";
  EXPECT_EQ(put.status, kinetic::Status::SUCCESS);
  EXPECT_EQ(put.client.program.name, "pinstripe-fuse");
  EXPECT_EQ(put.client.program.detail, "/mnt");
  EXPECT_EQ(put.client.host, HostName());
  EXPECT_GE(put.store, 60ms);
  EXPECT_GE(put.sync, 70ms);
  EXPECT_EQ(put.held, 0ms);
  const Duration parts = put.queue + put.held + put.store + put.sync;
  EXPECT_LE(parts, put.took);
  EXPECT_GE(parts, put.took - 4us) << "rounded down, each of them";
}

TEST_F(SlowLogTest, WhatNeedNotBeDurableHasNoSync) {
  Serve(50ms, /*put=*/60ms, /*flush=*/0ms);
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, Durability::kWriteBack));
  const DriveSlow slow = Slow(*drive);
  ASSERT_THAT(slow.requests, SizeIs(1));
  EXPECT_EQ(slow.requests[0].sync, 0ms);
  EXPECT_GE(slow.requests[0].store, 60ms);
}

TEST_F(SlowLogTest, OnlyWhatTookLongIsToldOf) {
  Serve(1h);
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, Durability::kWriteThrough));
  EXPECT_THAT(Slow(*drive).requests, IsEmpty());
}

TEST_F(SlowLogTest, ZeroTellsOfNothing) {
  Serve(0s, 20ms);
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, Durability::kWriteThrough));
  EXPECT_THAT(Slow(*drive).requests, IsEmpty());
}

TEST_F(SlowLogTest, TheLastOnesAreKept) {
  Serve(1ns);
  const auto drive = Connect();
  for (size_t i = 0; i < kMostSlowRequests + 10; ++i) {
    ASSERT_OK(Put(*drive, Durability::kWriteBack));
  }
  const DriveSlow slow = Slow(*drive);
  ASSERT_THAT(slow.requests, SizeIs(kMostSlowRequests));
  EXPECT_THAT(slow.requests, Each(Field(&SlowRequest::type, Header::PUT)));
  for (size_t i = 1; i < slow.requests.size(); ++i) {
    EXPECT_GT(slow.requests[i].sequence, slow.requests[i - 1].sequence);
  }
}

// Connection and sequence are what both sides know of a request.
TEST_F(SlowLogTest, AClientFindsItsRequestsAgain) {
  Serve(50ms, /*put=*/60ms);
  const auto drive = Connect();
  const OperationTrace trace;
  ASSERT_OK(Put(*drive, Durability::kWriteBack));
  const std::vector<uint64_t> ids = trace.Ids();
  const std::vector<WaitedRequest> waited = drive->WaitedFor(ids);
  ASSERT_THAT(waited, SizeIs(1));
  EXPECT_TRUE(waited[0].answered);
  const DriveSlow slow = Slow(*drive);
  ASSERT_THAT(slow.requests, SizeIs(1));
  EXPECT_EQ(waited[0].connection, slow.requests[0].connection);
  EXPECT_EQ(waited[0].sequence, slow.requests[0].sequence);
  EXPECT_EQ(waited[0].type, slow.requests[0].type);
  EXPECT_GE(waited[0].took, slow.requests[0].took);
}

TEST_F(SlowLogTest, WhatIsUnansweredCountsUntilNow) {
  Serve(1h, /*put=*/1h);
  auto drive = Connect();
  const OperationTrace trace;
  const std::vector<uint64_t> ids = trace.Ids();
  drive->Put({.key = "k"}, Deadline(), [](const Status&) {});
  const auto has_taken = [&] {
    const auto waited = drive->WaitedFor(ids);
    return waited.empty() ? Duration() : waited[0].took;
  };
  while (has_taken() < 30ms) {
  }
  EXPECT_FALSE(drive->WaitedFor(ids)[0].answered);
  enough_->Set();
}

TEST_F(SlowLogTest, AClientTellsOfItsOperations) {
  Serve(1h);
  SetProgram({.name = "xrootd-pinstripe", .version = "1", .detail = "gate"});
  const auto drive = Connect();
  ASSERT_OK(Put(*drive, Durability::kWriteBack));
  const SlowOperation told{.id = 77,
                           .operation = "close",
                           .subject = "/store/file",
                           .took = 4s,
                           .ago = 2s,
                           .memory = 300ms,
                           .drives = 3600ms,
                           .turn = 100ms,
                           .requests = {{.drive = 3,
                                         .waited = {.connection = 5,
                                                    .sequence = uint64_t{1} << 61,
                                                    .type = Header::PUT,
                                                    .took = 3s,
                                                    .answered = true}}}};
  drive->Tell({told}, Deadline());
  const DriveSlow slow = Slow(*drive);
  ASSERT_THAT(slow.operations, SizeIs(1));
  const SlowOperation& heard = slow.operations[0].operation;
  EXPECT_EQ(heard.id, 77u);
  EXPECT_EQ(heard.operation, "close");
  EXPECT_EQ(heard.subject, "/store/file");
  EXPECT_EQ(heard.took, 4s);
  EXPECT_GE(heard.ago, 2s);
  EXPECT_LT(heard.ago, 60s);
  EXPECT_EQ(heard.memory, 300ms);
  EXPECT_EQ(heard.drives, 3600ms);
  EXPECT_EQ(heard.turn, 100ms);
  ASSERT_THAT(heard.requests, SizeIs(1));
  EXPECT_EQ(heard.requests[0].drive, 3u);
  EXPECT_EQ(heard.requests[0].waited.connection, 5u);
  EXPECT_EQ(heard.requests[0].waited.sequence, uint64_t{1} << 61);
  EXPECT_EQ(heard.requests[0].waited.took, 3s);
  EXPECT_TRUE(heard.requests[0].waited.answered);
  EXPECT_EQ(slow.operations[0].client.program.name, "xrootd-pinstripe");
}

TEST_F(SlowLogTest, WhatAClientSaysIsBoundedAndPrintable) {
  Serve(1h);
  WireClient client(port_);
  Tell(client, [](kinetic::GetLog* log) {
    for (int i = 0; i < 100; ++i) {
      kinetic::GetLog::SlowOperation* said = log->add_slowoperations();
      said->set_operation("evil\x1b[2J" + std::string(200, 'x'));
      said->set_subject(std::string(500, '\n'));
      said->set_microseconds(UINT64_MAX);
      said->set_agomilliseconds(UINT64_MAX);
      for (int each = 0; each < 20; ++each) {
        said->add_requests()->set_microseconds(UINT64_MAX);
        said->mutable_requests(each)->set_messagetype(-1);
      }
      // Only a drive says who it is.
      said->mutable_client()->set_program("somebody else");
    }
  });
  const auto drive = Connect();
  const DriveSlow slow = Slow(*drive);
  ASSERT_THAT(slow.operations, SizeIs(kMostToldOperations));
  const SlowOperation& heard = slow.operations[0].operation;
  EXPECT_EQ(heard.operation.substr(0, 9), "evil?[2Jx");
  EXPECT_THAT(heard.operation, SizeIs(SlowOperation::kMostOperationBytes));
  EXPECT_EQ(heard.subject, std::string(SlowOperation::kMostSubjectBytes, '?'));
  EXPECT_THAT(heard.requests, SizeIs(SlowOperation::kMostRequests));
  EXPECT_EQ(RequestWord(heard.requests[0].waited.type), "other");
  EXPECT_GT(heard.took, 0s);
  EXPECT_GT(heard.ago, 0s);
  EXPECT_EQ(slow.operations[0].client.program.name, "");
}

// However much is told, and however often it is asked for, the answer is one that can be sent.
TEST_F(SlowLogTest, TheAnswerHasABound) {
  Serve(1ns);
  for (size_t i = 0; i < kMostSlowRequests; ++i) {
    WireClient client(port_);
    Tell(client, [](kinetic::GetLog* log) {
      for (std::string* text :
           {log->mutable_client()->mutable_program(), log->mutable_client()->mutable_version(),
            log->mutable_client()->mutable_host(), log->mutable_client()->mutable_detail()}) {
        text->assign(1000, 'x');
      }
      kinetic::GetLog::SlowOperation* said = log->add_slowoperations();
      said->set_operation(std::string(1000, 'x'));
      said->set_subject(std::string(1000, 'x'));
      for (size_t each = 0; each < SlowOperation::kMostRequests; ++each) {
        kinetic::GetLog::SlowOperation::Request* request = said->add_requests();
        request->set_drive(UINT32_MAX);
        request->set_connection(UINT64_MAX);
        request->set_sequence(UINT64_MAX);
        request->set_messagetype(-1);
        request->set_microseconds(UINT64_MAX);
      }
    });
  }
  WireClient client(port_);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Request(Header::GETLOG, [](kinetic::Body* body) {
    for (int i = 0; i < 32; ++i) body->mutable_getlog()->add_types(kinetic::GetLog::DEVICE);
    body->mutable_getlog()->mutable_device()->set_name(std::string(kSlowLog));
  }));
  const WireClient::Answer answer = client.ReceiveAnswer();
  EXPECT_EQ(answer.code(), kinetic::Status::SUCCESS);
  EXPECT_LT(answer.command.ByteSizeLong(), kMaxMessageBytes);
  const kinetic::GetLog& log = answer.command.body().getlog();
  EXPECT_EQ(log.slowoperations_size(), static_cast<int>(kMostSlowOperations));
  EXPECT_EQ(log.slowrequests_size(), static_cast<int>(kMostSlowRequests));
}

TEST_F(SlowLogTest, WhoMayNotAskForLogsTellsNothing) {
  Serve(1h);
  WireClient client(port_);
  client.SetIdentity(2);
  client.ReceiveFrame();
  ASSERT_TRUE(client.Request(
      Header::GETLOG,
      [](kinetic::Body* body) {
        body->mutable_getlog()->add_slowoperations()->set_operation("read");
      },
      {}, "two"));
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::NOT_AUTHORIZED);
  const auto drive = Connect();
  EXPECT_THAT(Slow(*drive).operations, IsEmpty());
}

}  // namespace
}  // namespace pinstripe
