// What there is to say of an etcd: its members, how full it is, and what should be set otherwise.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/engine.h"
#include "engines/etcd/client.h"
#include "engines/etcd/etcd.pb.h"
#include "engines/etcd/txn.h"

namespace pinstripe {

// What was answered. `looks` are the endpoints', and then those of members that are none.
struct EtcdFacts {
  struct Look {
    std::string url;
    Result<etcdserverpb::StatusResponse> answer;
  };
  std::vector<Look> looks;
  std::vector<etcdserverpb::Member> members;  // empty: nobody told
  std::vector<etcdserverpb::AlarmMember> alarms;
  bool keeps_history = false;  // what was a million changes ago
};
inline constexpr int64_t kEtcdLongHistory = 1'000'000;  // changes

EngineState StateOfEtcd(const EtcdFacts& facts);

// Asks all endpoints and members at once; `deadline` is that of all of it. The client's thread
// answers.
void LookAtEtcd(EtcdClient& client, const EtcdKeys& keys, std::string token, Time deadline,
                Callback<EngineState> done);

}  // namespace pinstripe
