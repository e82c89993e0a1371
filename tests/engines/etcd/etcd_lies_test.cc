// EtcdEngine against what is no etcd, or one that answers what no etcd would.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "base/file_descriptor.h"
#include "engines/etcd/etcd.grpc.pb.h"
#include "engines/etcd/txn.h"
#include "tests/engines/etcd/etcd_engine_fixture.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;
using testing::HasSubstr;

constexpr uint64_t kEtcd = 7;

// Says which store it is, and to everything else what the test wants.
class FalseEtcd final : public etcdserverpb::KV::Service {
 public:
  using Answer = std::function<grpc::Status(const TxnRequest& request, TxnResponse& answer)>;

  explicit FalseEtcd(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FalseEtcd() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }

  static void SayStore(TxnResponse& answer) {
    answer.mutable_header()->set_cluster_id(kEtcd);
    auto& record = *answer.add_responses()->mutable_range()->add_records();
    record.set_key("pinstripe/test/store");
    record.set_mod_revision(1);
    record.set_value(EncodeEtcdStore({.id = std::string(kEtcdStoreIdBytes, 's')}));
  }

 private:
  grpc::Status Txn(grpc::ServerContext* /*context*/, const TxnRequest* request,
                   TxnResponse* answer) override {
    const bool asks_store = request->success_size() == 0 && request->failure_size() == 1;
    if (!asks_store) return answer_(*request, *answer);
    SayStore(*answer);
    return grpc::Status::OK;
  }

  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class EtcdLiesTest : public EtcdEngineFixture {
 protected:
  static EngineOptions OptionsAt(std::string url) {
    EngineOptions options;
    options.cluster = "test";
    options.endpoints = {std::move(url)};
    options.least_backoff = 10ms;
    options.most_backoff = 100ms;
    options.connect_timeout = 1s;
    return options;
  }
};

// A change that is always refused, for a reason that is not there.
TEST_F(EtcdLiesTest, IsNotKeptBusyForever) {
  std::atomic<int> asked = 0;
  FalseEtcd etcd([&](const TxnRequest& request, TxnResponse& answer) {
    ++asked;
    FalseEtcd::SayStore(answer);
    for (int i = 1; i < request.failure_size(); ++i) answer.add_responses()->mutable_range();
    return grpc::Status::OK;
  });
  const auto asker = Connect(OptionsAt(etcd.url()));
  asker->listener.AwaitStore();
  EXPECT_FAILS(asker->Put("a", "", "1", Expected::Absent()), EHOSTUNREACH);
  EXPECT_LE(asked, 201);
}

TEST_F(EtcdLiesTest, DoesNotSendAChangeOfUnknownFateAgain) {
  std::atomic<int> asked = 0;
  FalseEtcd etcd([&](const TxnRequest& /*request*/, TxnResponse& /*answer*/) {
    ++asked;
    return grpc::Status(grpc::UNAVAILABLE, "etcdserver: request timed out");
  });
  const auto asker = Connect(OptionsAt(etcd.url()));
  asker->listener.AwaitStore();
  const Status put = asker->Put("a", "", "1", Expected::Absent());
  EXPECT_FAILS(put, EHOSTUNREACH);
  EXPECT_THAT(std::string(put.message()), HasSubstr("may have been done"));
  EXPECT_EQ(asked, 1);
}

// What certainly was not done is sent again, until its time is over.
TEST_F(EtcdLiesTest, SendsAChangeAgainThatWasNotDone) {
  std::atomic<int> asked = 0;
  FalseEtcd etcd([&](const TxnRequest& /*request*/, TxnResponse& answer) {
    if (++asked < 4) return grpc::Status(grpc::UNAVAILABLE, "etcdserver: no leader");
    answer.mutable_header()->set_cluster_id(kEtcd);
    answer.set_succeeded(true);
    return grpc::Status::OK;
  });
  const auto asker = Connect(OptionsAt(etcd.url()));
  asker->listener.AwaitStore();
  EXPECT_OK(asker->Put("a", "", "1", Expected::Absent()));
  EXPECT_EQ(asked, 4);
}

TEST_F(EtcdLiesTest, BelievesNoAnswerThatCannotBe) {
  std::mt19937 random(1);
  FalseEtcd etcd([&](const TxnRequest& /*request*/, TxnResponse& answer) {
    answer.mutable_header()->set_cluster_id(kEtcd);
    answer.set_succeeded(random() % 2 == 0);
    for (size_t i = random() % 4; i > 0; --i) {
      auto& response = *answer.add_responses();
      if (random() % 2 == 0) continue;
      auto& record = *response.mutable_range()->add_records();
      record.set_key(std::string(random() % 20, 'k'));
      record.set_value(std::string(random() % 50, static_cast<char>(random())));
      record.set_mod_revision(static_cast<int64_t>(random()));
    }
    return grpc::Status::OK;
  });
  const auto asker = Connect(OptionsAt(etcd.url()));
  asker->listener.AwaitStore();
  for (int i = 0; i < 200; ++i) {
    const Result<Record> record = asker->Get("a");
    EXPECT_FALSE(record.has_value());
    (void)asker->Put("a", "", "1", Expected::Absent());
    const Result<RangeRecords> listed = asker->List({.first = "a", .last = "z", .max = 10});
    EXPECT_TRUE(!listed || listed->records.empty());
  }
}

TEST_F(EtcdLiesTest, LeavesAnEtcdThatIsAnotherOne) {
  FalseEtcd etcd([&](const TxnRequest& /*request*/, TxnResponse& answer) {
    answer.mutable_header()->set_cluster_id(kEtcd + 1);
    answer.set_succeeded(true);
    return grpc::Status::OK;
  });
  const auto asker = Connect(OptionsAt(etcd.url()));
  asker->listener.AwaitStore();
  EXPECT_FAILS(asker->Put("a", "", "1"), EHOSTUNREACH);
  EXPECT_THAT(std::string(asker->listener.AwaitLoss().message()), HasSubstr("another etcd"));
}

// Somebody who takes connections and says nothing, or nonsense.
TEST_F(EtcdLiesTest, GivesUpSomebodyWhoIsNoEtcd) {
  for (const bool says_nonsense : {false, true}) {
    const FileDescriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listening.get(), 16), 0);
    getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size);
    std::thread server([&] {
      std::vector<FileDescriptor> taken;
      for (;;) {
        FileDescriptor peer(accept(listening.get(), nullptr, nullptr));
        if (peer.get() < 0) return;
        const std::string nonsense(100000, '\x5a');
        if (says_nonsense) (void)send(peer.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
        taken.push_back(std::move(peer));
      }
    });
    {
      const auto asker =
          Connect(OptionsAt(fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port))));
      EXPECT_FALSE(asker->listener.AwaitLoss().ok());
      EXPECT_FAILS(asker->Get("a"), EHOSTUNREACH);
      EXPECT_FALSE(asker->LookAt().members.at(0).is_up);
    }
    shutdown(listening.get(), SHUT_RDWR);
    server.join();
  }
}

}  // namespace
}  // namespace pinstripe
