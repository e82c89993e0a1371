// EtcdEngine against an etcd whose members are killed, stopped, full, or want to know who asks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "tests/engines/etcd/etcd_engine_fixture.h"
#include "tests/support/free_ports.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;

class EtcdAwayTest : public EtcdEngineFixture {};

// Each thread makes its own record go from one version to the next. What was acknowledged is there,
// and of what has failed it is there or not.
TEST_F(EtcdAwayTest, LosesNothingThatWasAcknowledgedWhenLeadersDie) {
  EtcdCluster etcd({.members = 3});
  const auto asker = Connect(etcd);
  constexpr int kThreads = 4;
  std::atomic<bool> stop = false;
  std::atomic<int> acknowledged = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const std::string key = fmt::format("key{}", thread);
      std::string known = "-";  // it is this one, or `tried`
      std::string tried;
      for (int i = 0; !stop; ++i) {
        if (!tried.empty()) {
          const Result<Record> record = asker->Get(key);
          if (!record && record.error().code() != ENOENT) {
            std::this_thread::yield();
            continue;
          }
          const std::string version = record ? record->version : "-";
          EXPECT_THAT(version, AnyOf(known, tried));
          known = version;
          tried.clear();
        }
        const std::string next = fmt::format("{}", i);
        const Status put = asker->Put(key, "value", next,
                                      known == "-" ? Expected::Absent() : Expected::Version(known));
        if (put.ok()) {
          known = next;
          ++acknowledged;
        } else {
          EXPECT_THAT(put.code(), AnyOf(EHOSTUNREACH, ETIMEDOUT)) << put.message();
          tried = next;
        }
      }
    });
  }
  const auto await_more = [&] {
    const int before = acknowledged;
    while (acknowledged < before + 50) std::this_thread::yield();
  };
  await_more();
  for (int round = 0; round < 2; ++round) {
    const size_t leader = etcd.Leader();
    etcd.Kill(leader);
    await_more();
    etcd.Start(leader);
    etcd.WaitUntilItServes();
    await_more();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// A member that takes everything and answers nothing is left for another one.
TEST_F(EtcdAwayTest, LeavesAMemberThatHangs) {
  EtcdCluster etcd({.members = 3});
  const auto asker = Connect(etcd);
  ASSERT_OK(asker->Put("a", "", "1"));
  for (size_t member = 0; member < etcd.size(); ++member) {
    etcd.Signal(member, SIGSTOP);
    EXPECT_EQ(asker->VersionOf("a"), "1");
    etcd.Signal(member, SIGCONT);
  }
  EXPECT_EQ(asker->listener.stores(), 1u);
}

TEST_F(EtcdAwayTest, FailsInTimeWithoutAnEtcdAndComesBack) {
  EtcdCluster etcd({.members = 3});
  const auto asker = Connect(etcd);
  const std::string store = asker->listener.AwaitStore();
  ASSERT_OK(asker->Put("a", "", "1"));
  for (size_t member = 0; member < etcd.size(); ++member) etcd.Kill(member);
  const Time before = runtime_.Now();
  EXPECT_THAT(asker->Get("a", before + 3s).error().code(), AnyOf(EHOSTUNREACH, ETIMEDOUT));
  EXPECT_LT(runtime_.Now() - before, 6s);
  EXPECT_FALSE(asker->listener.AwaitLoss().ok());
  const EngineState state = asker->LookAt();
  EXPECT_EQ(state.members.size(), 3u);
  for (const EngineMember& member : state.members) {
    EXPECT_FALSE(member.is_up);
    EXPECT_NE(member.note, "");
  }
  const Time lost = runtime_.Now();
  EXPECT_FAILS(asker->Put("a", "", "2"), EHOSTUNREACH);
  EXPECT_FAILS(asker->List({.first = "a", .last = "b"}), EHOSTUNREACH);
  EXPECT_FAILS(asker->SetVersion(1), EHOSTUNREACH);
  EXPECT_LT(runtime_.Now() - lost, 5s) << "each call may wait for 20 s";
  for (size_t member = 0; member < etcd.size(); ++member) etcd.Start(member);
  EXPECT_EQ(asker->listener.AwaitStore(2), store);
  EXPECT_EQ(asker->VersionOf("a"), "1");
}

// Without a majority there is no answer, but members that say so.
TEST_F(EtcdAwayTest, TellsThatThereIsNoMajority) {
  EtcdCluster etcd({.members = 3});
  const auto asker = Connect(etcd);
  ASSERT_OK(asker->Put("a", "", "1"));
  etcd.Kill(1);
  etcd.Kill(2);
  const Time before = runtime_.Now();
  EXPECT_FALSE(asker->Get("a", before + 3s).has_value());
  EXPECT_LT(runtime_.Now() - before, 12s);
  EXPECT_FALSE(asker->listener.AwaitLoss().ok());
  etcd.Start(1);
  asker->listener.AwaitStore(2);
  EXPECT_EQ(asker->VersionOf("a"), "1");
  // One of the two that have the majority may have been busy with becoming that when it was asked.
  EngineState state = asker->LookAt();
  const auto count_up = [&] { return std::ranges::count_if(state.members, &EngineMember::is_up); };
  for (const Time until = runtime_.Now() + 20s; count_up() < 2 && runtime_.Now() < until;) {
    state = asker->LookAt();
  }
  EXPECT_EQ(count_up(), 2);
  EXPECT_EQ(std::ranges::count_if(state.members, &EngineMember::is_leader), 1);
}

// It finds members that it was not told of, for `pinstripe status`.
TEST_F(EtcdAwayTest, KnowsAllMembersByOne) {
  EtcdCluster etcd({.members = 3});
  EngineOptions options = OptionsFor(etcd);
  options.endpoints = {etcd.url(1)};
  const auto asker = Connect(options);
  asker->listener.AwaitStore();
  const EngineState state = asker->LookAt();
  EXPECT_EQ(state.members.size(), 3u);
  EXPECT_EQ(std::ranges::count_if(state.members, &EngineMember::is_up), 3);
  EXPECT_THAT(state.warnings, testing::IsEmpty());
}

TEST_F(EtcdAwayTest, AnotherEtcdIsAnotherStore) {
  EtcdCluster etcd;
  const auto asker = Connect(etcd);
  const std::string store = asker->listener.AwaitStore();
  ASSERT_OK(asker->Put("a", "", "1"));
  etcd.Kill(0);
  etcd.Erase(0);
  etcd.Start(0);
  EXPECT_NE(asker->listener.AwaitStore(2), store);
  EXPECT_FAILS(asker->Get("a"), ENOENT);
}

TEST_F(EtcdAwayTest, ReadsAndRemovesOfAFullEtcd) {
  EtcdCluster etcd({.quota_bytes = 16 << 20});
  const auto asker = Connect(etcd);
  ASSERT_OK(asker->Put("a", "value", "1"));
  ASSERT_OK(asker->Put("b", "value", "1"));
  Status put;
  for (int i = 0; i < 200 && put.ok(); ++i) {
    put = asker->Put(fmt::format("large{}", i % 3), std::string(512 << 10, 'v'), "1");
  }
  EXPECT_FAILS(put, ENOSPC);
  EXPECT_THAT(std::string(put.message()), HasSubstr("alarm disarm"));
  EXPECT_EQ(asker->VersionOf("a"), "1");
  EXPECT_OK(asker->Remove("a", Expected::Version("1")));
  // Of a batch, what needs no room is done.
  EngineBatch batch{.changes = {{.key = "c", .put = RecordOf("", "1")}, {.key = "b", .put = {}}},
                    .reads = {"b"}};
  const Result<EngineAnswer> answer = asker->Do(std::move(batch));
  if (answer) {
    EXPECT_FAILS(answer->changes[0], ENOSPC);
  } else {
    EXPECT_FAILS(answer, ENOSPC);
  }
  EXPECT_OK(asker->List({.first = "a", .last = "z", .max = 10}));
  EXPECT_THAT(asker->LookAt().alarms, Contains(HasSubstr("is full")));
}

TEST_F(EtcdAwayTest, LogsInWithUserAndPassword) {
  EtcdCluster etcd({.more = {"--bcrypt-cost=4"}});
  etcd.Run({"user", "add", "root:secret"});
  etcd.Run({"user", "grant-role", "root", "root"});
  etcd.Run({"user", "add", "pin:word"});
  etcd.Run({"role", "add", "names"});
  etcd.Run({"role", "grant-permission", "--prefix=true", "names", "readwrite", "pinstripe/test/"});
  etcd.Run({"user", "grant-role", "pin", "names"});
  EXPECT_THAT(etcd.Run({"auth", "enable"}), HasSubstr("Authentication Enabled"));
  EngineOptions options = OptionsFor(etcd);
  {
    const auto asker = Connect(options);
    EXPECT_EQ(asker->listener.AwaitLoss().code(), EACCES);
    EXPECT_FAILS(asker->Get("a"), EHOSTUNREACH);
  }
  options.user = "pin";
  options.password = "wrong";
  {
    const auto asker = Connect(options);
    EXPECT_EQ(asker->listener.AwaitLoss().code(), EACCES);
    EXPECT_THAT(std::string(asker->Get("a").error().message()),
                HasSubstr("refuses user or password"));
  }
  options.password = "word";
  const auto asker = Connect(options);
  asker->listener.AwaitStore();
  EXPECT_OK(asker->Put("a", "", "1"));
  options.cluster = "other";
  const auto other = Connect(options);
  EXPECT_EQ(other->listener.AwaitLoss().code(), EACCES);
  // A restart forgets the tokens.
  etcd.Kill(0);
  etcd.Start(0);
  while (!asker->Get("a")) std::this_thread::yield();
  EXPECT_OK(asker->Put("a", "", "2", Expected::Version("1")));
  etcd.Run({"--user=root:secret", "user", "revoke-role", "pin", "names"});
  EXPECT_FAILS(asker->Put("a", "", "3"), EACCES);
}

TEST_F(EtcdAwayTest, SpeaksTls) {
  EtcdCluster etcd({.tls = true});
  EngineOptions options = OptionsFor(etcd);
  {
    const auto asker = Connect(options);
    EXPECT_FALSE(asker->listener.AwaitLoss().ok());
    EXPECT_FAILS(asker->Get("a"), EHOSTUNREACH);
  }
  options.ca_file = etcd.certificate_file();
  options.certificate_file = etcd.certificate_file();
  options.key_file = etcd.key_file();
  const auto asker = Connect(options);
  asker->listener.AwaitStore();
  EXPECT_OK(asker->Put("a", "", "1"));
  EXPECT_EQ(asker->VersionOf("a"), "1");
  EXPECT_THAT(asker->LookAt().software, HasSubstr("etcd 3."));
}

TEST_F(EtcdAwayTest, TellsWhatIsWrongWithItsOptions) {
  EngineOptions options;
  options.cluster = "test";
  for (const auto& endpoints :
       {std::vector<std::string>{}, {"host"}, {"http://a:1", "https://a:1"}}) {
    options.endpoints = endpoints;
    const auto asker = Connect(options);
    EXPECT_EQ(asker->listener.AwaitLoss().code(), EINVAL);
    EXPECT_FAILS(asker->Get("a"), EHOSTUNREACH);
    asker->LookAt();
  }
  options.endpoints = {"https://127.0.0.1:1"};
  options.ca_file = "/nonexistent/ca.pem";
  const auto asker = Connect(options);
  EXPECT_THAT(std::string(asker->listener.AwaitLoss().message()), HasSubstr("/nonexistent/ca.pem"));
}

TEST_F(EtcdAwayTest, EndsThoughNobodyEverAnswered) {
  EngineOptions options;
  options.cluster = "test";
  options.endpoints = {fmt::format("http://127.0.0.1:{}", FreePorts(1)[0])};
  const auto asker = Connect(options);
  EXPECT_EQ(asker->listener.AwaitLoss().code(), EHOSTUNREACH);
  EXPECT_THAT(std::string(asker->Get("a").error().message()), HasSubstr("refused"));
}

}  // namespace
}  // namespace pinstripe
