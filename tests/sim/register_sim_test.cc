// Clients read, change and list a few registers while drives go away, are slow, lose requests and
// answers, repeat requests late and flip bits, and while clients die in the middle of anything.
//
// What must hold, whatever happens (the promises in cluster/register_store.h):
//   - the history of each register is linearizable; an operation that failed may have happened or
//     not;
//   - during the storm nothing fails in another way than EIO;
//   - in the calm after it, every register can be read and changed.
// The storm stays within what is promised: a minority of the drives misbehaves at any moment
// (requests may be repeated anywhere), and none forgets what it acknowledged.
//
//   SEED=42 register_sim_test        one seed, to look at
//   SEEDS=100000 register_sim_test   as many as there is time for

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/register_rules.h"
#include "cluster/register_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/linearizability.h"
#include "tests/support/replica_set.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Kind = RegisterOperation::Kind;

constexpr uint32_t kGroup = 3;
constexpr int kRegisters = 3;
constexpr int kClients = 5;
constexpr int kStepsPerClient = 24;

class Storm {
 public:
  Storm(uint64_t seed, size_t replicas, Quorums (*quorums)(size_t) = nullptr)
      : sim_(seed), drives_(sim_, replicas), quorums_(quorums) {}

  void Run() {
    drives_.SetAll(Calm());
    clients_left_ = kClients;
    for (int i = 0; i < kClients; ++i) {
      sim_.Spawn(fmt::format("client {}", i), [this, i] { Client(i); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    sim_.Run();
    drives_.SetAll(Calm());
    sim_.Sleep(10s);  // what is on its way arrives
    Inspect();
    for (auto& [key, history] : histories_) Complain(WhyNotLinearizable(history));
  }

  const std::string& complaint() const { return complaint_; }
  size_t certain() const { return certain_; }
  uint64_t trace_hash() const { return sim_.trace_hash(); }

 private:
  // One process: a store of its own, drives that it may die in front of.
  struct Process {
    explicit Process(Storm& storm)
        : view(storm.sim_, storm.drives_),
          store(storm.sim_, view, {.prefix = "\4test", .quorums = storm.quorums_}) {}
    ReplicaClient view;
    RegisterStore store;
    std::map<std::string, RegisterValue> seen;
  };

  static DriveFaults Calm() { return {.duplicate_request = 0.05}; }

  // ---- Clients

  void Client(int number) {
    auto process = std::make_unique<Process>(*this);
    for (int step = 0; step < kStepsPerClient; ++step) {
      if (sim_.Chance(0.03)) process->view.life->CrashAfter(sim_.Below(30));
      const std::string key = fmt::format("register {}", sim_.Below(kRegisters));
      const std::string who = fmt::format("{}.{}", number, step);
      if (sim_.Chance(0.1)) {
        Scan(*process, who);
      } else if (sim_.Chance(0.35)) {
        Read(*process, key, who);
      } else {
        Change(*process, key, who);
      }
      if (sim_.Chance(0.3)) sim_.Sleep(sim_.Between(0us, 200ms));
      if (process->view.life->crashed()) {
        graveyard_.push_back(std::move(process));  // requests of the dead are still on their way
        process = std::make_unique<Process>(*this);
      }
    }
    graveyard_.push_back(std::move(process));
    --clients_left_;
  }

  void Read(Process& process, const std::string& key, const std::string& who) {
    RegisterOperation operation{.kind = Kind::kRead, .called = ++clock_, .who = who};
    const Result<RegisterValue> value = process.store.Read({kGroup, key});
    if (!Certain(value)) return;
    operation.result = process.seen[key] = *value;
    Record(key, operation);
  }

  void Change(Process& process, const std::string& key, const std::string& who) {
    const RegisterValue seen = sim_.Chance(0.1) ? RegisterValue{} : process.seen[key];
    const auto value = sim_.Chance(0.2) ? std::nullopt : std::optional(who);
    const auto durability = sim_.Chance(0.2) ? Durability::kWriteThrough : Durability::kWriteBack;
    RegisterOperation operation{
        .called = ++clock_, .seen_slot = seen.slot, .value = value, .who = who};
    const auto outcome = process.store.Change({kGroup, key}, seen, value, durability);
    if (!Certain(outcome)) {
      operation.kind = Kind::kUnknown;
    } else {
      operation.kind = outcome->applied ? Kind::kApplied : Kind::kRefused;
      operation.result = process.seen[key] = outcome->now;
    }
    Record(key, operation);
  }

  void Scan(Process& process, const std::string& who) {
    const uint64_t called = ++clock_;
    const auto page = process.store.Scan(kGroup, "register", "register ~", 100);
    if (!Certain(page)) return;
    for (int i = 0; i < kRegisters; ++i) {
      const std::string key = fmt::format("register {}", i);
      RegisterOperation operation{.kind = Kind::kSawNothing, .called = called, .who = who};
      for (const auto& entry : page->entries) {
        if (entry.key != key) continue;
        operation.kind = Kind::kRead;
        operation.result = process.seen[key] = entry.value;
      }
      Record(key, operation);
    }
  }

  template <typename T>
  bool Certain(const Result<T>& result) {
    if (result.has_value()) {
      ++certain_;
      return true;
    }
    last_failure_ = result.error().message();
    if (result.error().code() != EIO) Complain(last_failure_);
    return false;
  }

  void Record(const std::string& key, RegisterOperation operation) {
    operation.returned = ++clock_;
    histories_[key].push_back(std::move(operation));
  }

  // ---- Weather

  // A minority falls ill, each in its own way, for a while.
  void Weather() {
    while (clients_left_ > 0) {
      drives_.SetAll(Calm());
      size_t ill = sim_.Below((drives_.drives.size() - 1) / 2 + 1);
      for (; ill > 0; --ill) {
        drives_.drives[sim_.Below(drives_.drives.size())]->Set(Illness());
      }
      sim_.Sleep(sim_.Between(1ms, sim_.Chance(0.2) ? Duration(10s) : Duration(300ms)));
    }
  }

  DriveFaults Illness() {
    DriveFaults faults = Calm();
    switch (sim_.Below(6)) {
      case 0: faults.down = true; break;
      case 1: faults.lose_request = 0.5; break;
      case 2: faults.lose_answer = 0.5; break;
      case 3: faults.duplicate_request = 0.7; break;
      case 4: faults.flip_bit = 0.5; break;
      default: faults.most_latency = sim_.Chance(0.5) ? Duration(5ms) : Duration(8s);
    }
    return faults;
  }

  // ---- After the storm

  void Inspect() {
    Process process(*this);
    last_failure_.clear();
    for (int i = 0; i < kRegisters; ++i) {
      const std::string key = fmt::format("register {}", i);
      const Time start = sim_.Now();
      Read(process, key, "inspector");
      Change(process, key, "inspector");
      if (!last_failure_.empty()) Complain(last_failure_ + ", in the calm");
      if (sim_.Now() - start > 2s) Complain(key + " is slow in the calm");
    }
  }

  void Complain(const std::string& why) {
    if (complaint_.empty()) complaint_ = why;
  }

  SimRuntime sim_;
  ReplicaSet drives_;
  Quorums (*const quorums_)(size_t);
  int clients_left_ = 0;
  uint64_t clock_ = 0;
  size_t certain_ = 0;
  std::map<std::string, std::vector<RegisterOperation>> histories_;
  std::vector<std::unique_ptr<Process>> graveyard_;
  std::string last_failure_;
  std::string complaint_;  // the first
};

class RegisterSim : public testing::TestWithParam<size_t> {
 protected:
  RegisterSim() { SetLogLevel(LogLevel::kError); }  // damaged replicas are reported as warnings
  ~RegisterSim() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_P(RegisterSim, HistoriesAreLinearizable) {
  const Seeds seeds = SeedsFromEnvironment(200);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed, GetParam());
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
    ASSERT_GT(storm.certain(), 20u) << "seed " << seed << " tested next to nothing";
  }
}

TEST_P(RegisterSim, TheSameSeedIsTheSameStorm) {
  Storm one(1, GetParam());
  Storm two(1, GetParam());
  one.Run();
  two.Run();
  EXPECT_EQ(one.trace_hash(), two.trace_hash());
}

INSTANTIATE_TEST_SUITE_P(Replicas, RegisterSim, testing::Values(1, 3, 5, 9),
                         testing::PrintToStringParamName());

// ---- Tests of the test: with quorums that are too small it must find something.

bool FindsAFault(size_t replicas, Quorums (*quorums)(size_t)) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Storm storm(seed, replicas, quorums);
    storm.Run();
    if (!storm.complaint().empty()) {
      testing::Test::RecordProperty("seed", static_cast<int>(seed));
      return true;
    }
  }
  return false;
}

TEST(RegisterSimIsStrict, AMajorityThatIsOneTooSmallIsFound) {
  const auto one_less = [](size_t replicas) {
    Quorums quorums = QuorumsOf(replicas);
    --quorums.majority;
    return quorums;
  };
  EXPECT_TRUE(FindsAFault(3, one_less));
  EXPECT_TRUE(FindsAFault(5, one_less));
}

TEST(RegisterSimIsStrict, AFastQuorumThatIsOnlyAMajorityIsFound) {
  const auto majority = [](size_t replicas) {
    Quorums quorums = QuorumsOf(replicas);
    quorums.fast = quorums.majority;
    return quorums;
  };
  EXPECT_TRUE(FindsAFault(3, majority));
  EXPECT_TRUE(FindsAFault(5, majority));
}

}  // namespace
}  // namespace pinstripe
