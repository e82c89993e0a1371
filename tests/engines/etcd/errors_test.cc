// What etcd's failures say, and where it may be found.

#include "engines/etcd/errors.h"

#include <grpcpp/support/status_code_enum.h>
#include <gtest/gtest.h>

#include "engines/etcd/client.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using Fate = EtcdFailure::Fate;

TEST(EtcdErrors, SaysWhetherAChangeMayHaveBeenMade) {
  struct Case {
    int code;
    std::string_view message;
    Fate fate;
    int becomes;
  };
  const std::vector<Case> cases = {
      {grpc::UNAVAILABLE, "etcdserver: no leader", Fate::kNotDone, EHOSTUNREACH},
      {grpc::UNAVAILABLE, "etcdserver: rpc not supported for learner", Fate::kNotDone,
       EHOSTUNREACH},
      {grpc::RESOURCE_EXHAUSTED, "etcdserver: too many requests", Fate::kNotDone, EHOSTUNREACH},
      {grpc::UNAVAILABLE, "failed to connect to all addresses; last error: refused", Fate::kNotDone,
       EHOSTUNREACH},
      {grpc::UNAVAILABLE, "etcdserver: request timed out", Fate::kUnknown, EHOSTUNREACH},
      {grpc::UNAVAILABLE, "etcdserver: leader changed", Fate::kUnknown, EHOSTUNREACH},
      {grpc::UNAVAILABLE, "etcdserver: server stopped", Fate::kUnknown, EHOSTUNREACH},
      {grpc::UNAVAILABLE, "Socket closed", Fate::kUnknown, EHOSTUNREACH},
      {grpc::UNKNOWN, "raft proposal dropped", Fate::kUnknown, EHOSTUNREACH},
      {grpc::DEADLINE_EXCEEDED, "Deadline Exceeded", Fate::kUnknown, ETIMEDOUT},
      {grpc::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Fate::kRefused,
       ENOSPC},
      {grpc::INVALID_ARGUMENT, "etcdserver: request is too large", Fate::kRefused, EINVAL},
      {grpc::INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password",
       Fate::kRefused, EACCES},
      {grpc::PERMISSION_DENIED, "etcdserver: permission denied", Fate::kRefused, EACCES},
      {grpc::UNAUTHENTICATED, "etcdserver: invalid auth token", Fate::kToken, EACCES},
      {grpc::INVALID_ARGUMENT, "etcdserver: user name is empty", Fate::kToken, EACCES},
      {grpc::RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)", Fate::kUnknown,
       EMSGSIZE}};
  for (const Case& each : cases) {
    const EtcdFailure failure = MeaningOfFailure(each.code, each.message);
    EXPECT_EQ(failure.fate, each.fate) << each.message;
    EXPECT_EQ(failure.why.code(), each.becomes) << each.message;
    EXPECT_EQ(failure.spoke, each.message.starts_with("etcdserver:")) << each.message;
  }
}

TEST(EtcdErrors, RepeatsNothingThatATerminalWouldActOn) {
  const EtcdFailure failure =
      MeaningOfFailure(grpc::UNAVAILABLE, "\033[2J" + std::string(10000, 'x'));
  EXPECT_EQ(failure.why.message().find('\033'), std::string::npos);
  EXPECT_LT(failure.why.message().size(), 1000u);
}

TEST(EtcdErrors, ReadsEndpoints) {
  EXPECT_EQ(ParseEtcdEndpoint("http://host:1234")->target, "dns:///host:1234");
  EXPECT_EQ(ParseEtcdEndpoint("http://host/")->target, "dns:///host:2379");
  EXPECT_EQ(ParseEtcdEndpoint("https://[::1]:5")->target, "dns:///[::1]:5");
  EXPECT_TRUE(ParseEtcdEndpoint("https://[::1]")->tls);
  for (const std::string_view url :
       {"", "host:2379", "http://", "http://:2379", "http://h:port", "http://h:123456",
        "http://user@h:1", "http://h:1/path", "ftp://h", "http://[::1", "http://h\n:1"}) {
    EXPECT_FAILS(ParseEtcdEndpoint(url), EINVAL) << url;
  }
}

}  // namespace
}  // namespace pinstripe
