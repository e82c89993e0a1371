#include "engines/etcd/look.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/byte_text.h"
#include "engines/etcd/errors.h"

namespace pinstripe {
namespace {

using etcdserverpb::Member;
using etcdserverpb::StatusResponse;

constexpr size_t kMostMembers = 32;
constexpr int64_t kMuchUnused = 256 << 20;

const EtcdFacts::Look* LookOf(const EtcdFacts& facts, const Member& member) {
  for (const EtcdFacts::Look& look : facts.looks) {
    if (look.answer && look.answer->header().member_id() == member.id()) return &look;
  }
  // Why it did not answer.
  for (const EtcdFacts::Look& look : facts.looks) {
    const auto& urls = member.client_urls();
    if (!look.answer && std::ranges::find(urls, look.url) != urls.end()) return &look;
  }
  return nullptr;
}

EngineMember MemberOf(const EtcdFacts::Look& look, std::string name, std::string address) {
  EngineMember member{.name = std::move(name), .address = std::move(address)};
  member.is_up = look.answer.has_value();
  if (!look.answer) {
    member.note = look.answer.error().message();
    return member;
  }
  const StatusResponse& told = *look.answer;
  member.is_leader = told.leader() != 0 && told.leader() == told.header().member_id();
  if (told.is_learner()) member.note = "learner";
  if (told.leader() == 0) member.note = "knows of no leader";
  return member;
}

void AddMembers(const EtcdFacts& facts, EngineState& state) {
  for (const Member& each : facts.members) {
    const EtcdFacts::Look* const look = LookOf(facts, each);
    std::string name = SaidByEtcd(each.name());
    std::string url = each.client_urls_size() > 0 ? SaidByEtcd(each.client_urls(0)) : "";
    if (look != nullptr) {
      state.members.push_back(MemberOf(*look, std::move(name), std::move(url)));
    } else {
      state.members.push_back({.name = std::move(name),
                               .address = std::move(url),
                               .note = each.name().empty() ? "never started" : "was not asked"});
    }
  }
  if (!facts.members.empty()) return;
  for (const EtcdFacts::Look& look : facts.looks) {
    state.members.push_back(MemberOf(look, "", look.url));
  }
}

std::string NameOf(const EtcdFacts& facts, uint64_t member) {
  for (const Member& each : facts.members) {
    if (each.id() == member) return SaidByEtcd(each.name());
  }
  return fmt::format("{:x}", member);
}

void AddAlarms(const EtcdFacts& facts, EngineState& state) {
  for (const auto& alarm : facts.alarms) {
    const std::string name = NameOf(facts, alarm.member_id());
    if (alarm.alarm() == etcdserverpb::NOSPACE) {
      state.alarms.push_back(
          fmt::format("member {} is full, and no names can be made: compact etcd's history, "
                      "defragment each member, then 'etcdctl alarm disarm'",
                      name));
    } else if (alarm.alarm() == etcdserverpb::CORRUPT) {
      state.alarms.push_back(
          fmt::format("member {} has other data than the others: replace it", name));
    } else {
      state.alarms.push_back(
          fmt::format("member {} raised alarm {}", name, static_cast<int>(alarm.alarm())));
    }
  }
}

void AddWarnings(const EtcdFacts& facts, EngineState& state) {
  const auto votes = static_cast<size_t>(std::ranges::count_if(
      facts.members, [](const Member& member) { return !member.is_learner(); }));
  if (votes == 1) {
    state.warnings.emplace_back("etcd has one member: a lost machine loses all names");
  } else if (votes == 2) {
    state.warnings.emplace_back(
        "etcd has two members: it stops when one of them is away, as neither is a majority");
  }
  if (facts.keeps_history) {
    state.warnings.push_back(fmt::format(
        "etcd keeps more than {} old changes: give it --auto-compaction-mode=periodic and "
        "--auto-compaction-retention=5m, and defragment it",
        kEtcdLongHistory));
  }
  for (const EtcdFacts::Look& look : facts.looks) {
    if (!look.answer) continue;
    const int64_t size = std::max<int64_t>(look.answer->db_size(), 0);
    const int64_t used = std::clamp<int64_t>(look.answer->db_size_in_use(), 0, size);
    if (size - used < kMuchUnused || used > size / 2) continue;
    state.warnings.push_back(fmt::format("of the {} that {} has taken {} are unused: defragment it",
                                         BytesText(static_cast<uint64_t>(size)), look.url,
                                         BytesText(static_cast<uint64_t>(size - used))));
  }
}

// One look at everything.
class Looking : public std::enable_shared_from_this<Looking> {
 public:
  Looking(EtcdClient& client, const EtcdKeys& keys, std::string token, Time deadline,
          Callback<EngineState> done)
      : client_(client),
        keys_(keys),
        token_(std::move(token)),
        deadline_(deadline),
        done_(std::move(done)) {}

  void Start() {
    awaited_ = 3 * client_.size();
    for (size_t i = 0; i < client_.size(); ++i) {
      facts_.looks.push_back(
          {.url = client_.NameOf(i), .answer = Fail(ETIMEDOUT, "it did not answer in time")});
    }
    const auto self = shared_from_this();
    for (size_t i = 0; i < client_.size(); ++i) {
      const EtcdClient::Whom whom{.endpoint = i, .token = token_, .deadline = deadline_};
      client_.Look(whom, [self, i](const grpc::Status& status, StatusResponse& answer) {
        self->OnLook(i, status, answer);
        self->OnFirst();
      });
      client_.Members(whom, [self](const grpc::Status& status, auto& answer) {
        self->OnMembers(status, answer);
        self->OnFirst();
      });
      client_.Alarms(whom, [self](const grpc::Status& status, auto& answer) {
        if (status.ok() && self->facts_.alarms.empty()) self->OnAlarms(answer);
        self->OnFirst();
      });
    }
  }

 private:
  void OnLook(size_t i, const grpc::Status& status, StatusResponse& answer) {
    auto& look = facts_.looks[i].answer;
    if (status.ok()) {
      look = std::move(answer);
    } else {
      look = tl::unexpected(MeaningOfFailure(status.error_code(), status.error_message()).why);
    }
  }
  void OnMembers(const grpc::Status& status, etcdserverpb::MemberListResponse& answer) {
    if (!status.ok() || !facts_.members.empty()) return;
    for (Member& member : *answer.mutable_members()) {
      if (facts_.members.size() < kMostMembers) facts_.members.push_back(std::move(member));
    }
  }
  void OnAlarms(etcdserverpb::AlarmResponse& answer) {
    for (auto& alarm : *answer.mutable_alarms()) {
      if (facts_.alarms.size() < kMostMembers) facts_.alarms.push_back(std::move(alarm));
    }
  }

  // Then those who are members and no endpoints, and the history.
  void OnFirst() {
    if (--awaited_ > 0) return;
    const auto self = shared_from_this();
    awaited_ = 1;
    for (const Member& member : facts_.members) {
      if (LookOf(facts_, member) != nullptr || member.client_urls_size() == 0) continue;
      const auto endpoint = ParseEtcdEndpoint(member.client_urls(0));
      if (!endpoint || endpoint->tls != client_.NameOf(0).starts_with("https")) continue;
      ++awaited_;
      const size_t i = facts_.looks.size();
      facts_.looks.push_back(
          {.url = endpoint->url, .answer = Fail(ETIMEDOUT, "it did not answer in time")});
      client_.LookAt(*endpoint, deadline_,
                     [self, i](const grpc::Status& status, StatusResponse& answer) {
                       self->OnLook(i, status, answer);
                       self->OnSecond();
                     });
    }
    AskHistory();
    OnSecond();
  }
  void AskHistory() {
    for (size_t i = 0; i < client_.size(); ++i) {
      const auto& look = facts_.looks[i].answer;
      if (!look || look->header().revision() <= kEtcdLongHistory) continue;
      etcdserverpb::TxnRequest request;
      auto& range = *request.add_success()->mutable_range();
      range.set_key(keys_.store());
      range.set_revision(look->header().revision() - kEtcdLongHistory);
      range.set_serializable(true);
      range.set_keys_only(true);
      ++awaited_;
      client_.Txn({.endpoint = i, .token = token_, .deadline = deadline_}, request,
                  [self = shared_from_this()](const grpc::Status& status, auto& /*answer*/) {
                    self->facts_.keeps_history = status.ok();
                    self->OnSecond();
                  });
      return;
    }
  }
  void OnSecond() {
    if (--awaited_ > 0) return;
    done_(StateOfEtcd(facts_));
  }

  EtcdClient& client_;
  const EtcdKeys& keys_;
  const std::string token_;
  const Time deadline_;
  const Callback<EngineState> done_;
  size_t awaited_ = 0;
  EtcdFacts facts_;
};

}  // namespace

EngineState StateOfEtcd(const EtcdFacts& facts) {
  EngineState state{.software = "etcd"};
  int64_t used = 0;
  int64_t limit = 0;
  for (const EtcdFacts::Look& look : facts.looks) {
    if (!look.answer) continue;
    state.software = "etcd " + SaidByEtcd(look.answer->version());
    used = std::max<int64_t>(used, look.answer->db_size());
    limit = std::max<int64_t>(limit, look.answer->db_size_quota());
  }
  state.used_bytes = static_cast<uint64_t>(used);
  state.limit_bytes = static_cast<uint64_t>(limit);
  AddMembers(facts, state);
  AddAlarms(facts, state);
  AddWarnings(facts, state);
  return state;
}

void LookAtEtcd(EtcdClient& client, const EtcdKeys& keys, std::string token, Time deadline,
                Callback<EngineState> done) {
  if (client.size() == 0) {
    return client.RunSoon([done = std::move(done)] { done(EngineState{.software = "etcd"}); });
  }
  std::make_shared<Looking>(client, keys, std::move(token), deadline, std::move(done))->Start();
}

}  // namespace pinstripe
