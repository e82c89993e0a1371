#include "engines/etcd/errors.h"

#include <grpcpp/support/status_code_enum.h>

#include <initializer_list>
#include <string>

namespace pinstripe {
namespace {

using Fate = EtcdFailure::Fate;

EtcdFailure Meaning(Fate fate, bool spoke, Status why) {
  return {.fate = fate, .spoke = spoke, .why = std::move(why)};
}

}  // namespace

std::string SaidByEtcd(std::string_view sentence) {
  constexpr size_t kMostBytes = 300;
  std::string said(sentence.substr(0, kMostBytes));
  for (char& c : said) {
    if (c < ' ' || c > '~') c = '?';
  }
  return said;
}

// The sentences are those of etcd's interface: its own clients go by them, too.
EtcdFailure MeaningOfFailure(int code, std::string_view message) {
  const auto has = [message](std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts) {
      if (message.find(part) != message.npos) return true;
    }
    return false;
  };
  const std::string said = SaidByEtcd(message);
  const bool spoke = message.starts_with("etcdserver:");
  if (has({"etcdserver: mvcc: database space exceeded"})) {
    return Meaning(Fate::kRefused, true,
                   Fail(ENOSPC,
                        "etcd is full: compact its history, defragment each member, then 'etcdctl "
                        "alarm disarm'; or give it a larger --quota-backend-bytes"));
  }
  if (has({"etcdserver: request is too large", "grpc: received message larger than max"})) {
    return Meaning(Fate::kRefused, true,
                   Fail(EINVAL,
                        "etcd takes no request of that size: leave --max-request-bytes at "
                        "1572864 or more"));
  }
  if (has({"etcdserver: too many operations in txn request"})) {
    return Meaning(Fate::kRefused, true,
                   Fail(EINVAL,
                        "etcd takes no transaction of that many steps: leave --max-txn-ops "
                        "at 128 or more"));
  }
  if (has({"etcdserver: authentication failed"})) {
    return Meaning(Fate::kRefused, true, Fail(EACCES, "etcd refuses user or password"));
  }
  if (has({"etcdserver: permission denied"}) || code == grpc::StatusCode::PERMISSION_DENIED) {
    return Meaning(Fate::kRefused, true,
                   Fail(EACCES,
                        "etcd does not let this user read and write what begins with "
                        "'pinstripe/' and the cluster's name"));
  }
  if (has({"etcdserver: invalid auth token", "etcdserver: revision of auth store is old",
           "etcdserver: user name is empty"}) ||
      code == grpc::StatusCode::UNAUTHENTICATED) {
    return Meaning(Fate::kToken, true, Fail(EACCES, "etcd wants to know who asks ('{}')", said));
  }
  if (has({"etcdserver: no leader", "etcdserver: not capable",
           "etcdserver: rpc not supported for learner", "etcdserver: too many requests"})) {
    return Meaning(Fate::kNotDone, true, Fail(EHOSTUNREACH, "it answered '{}'", said));
  }
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      // What gRPC itself says where there was no connection to send anything on.
      if (message.starts_with("failed to connect to all addresses") ||
          message.starts_with("DNS resolution failed")) {
        return Meaning(Fate::kNotDone, false, Fail(EHOSTUNREACH, "{}", said));
      }
      return Meaning(Fate::kUnknown, spoke, Fail(EHOSTUNREACH, "{}", said));
    case grpc::StatusCode::UNIMPLEMENTED:
      return Meaning(Fate::kNotDone, false,
                     Fail(EHOSTUNREACH, "what answers there is no etcd of version 3 ('{}')", said));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Meaning(Fate::kUnknown, false, Fail(ETIMEDOUT, "it did not answer in time"));
    case grpc::StatusCode::RESOURCE_EXHAUSTED: {
      EtcdFailure failure =
          Meaning(Fate::kUnknown, spoke, Fail(EMSGSIZE, "its answer is too large ('{}')", said));
      failure.again = false;
      return failure;
    }
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::DATA_LOSS: {
      EtcdFailure failure = Meaning(Fate::kUnknown, spoke, Fail(EIO, "it answered '{}'", said));
      failure.again = false;
      return failure;
    }
    default: return Meaning(Fate::kUnknown, spoke, Fail(EHOSTUNREACH, "it answered '{}'", said));
  }
}

}  // namespace pinstripe
