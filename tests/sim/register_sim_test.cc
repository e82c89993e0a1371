// Clients read, change and list a few registers while drives go away, are slow, lose requests and
// answers, repeat requests late and flip bits, and while clients die in the middle of anything.
//
// What must hold, whatever happens (the promises in cluster/registers/store.h):
//   - the history of each register is linearizable; an operation that failed may have happened or
//     not;
//   - during the storm nothing fails in another way than EIO;
//   - in the calm after it, every register can be read and changed;
//   - of a change with companions that anybody has seen, enough drives have the companion.
// The storm stays within what is promised: a minority of the drives misbehaves at any moment
// (requests may be repeated anywhere), and none forgets what it acknowledged. In some storms drives
// are lost for good, one after the other, and empty ones rebuilt in their places; in others drives
// are drained, taken back and weighted anew. Those who do that die, too.
//
//   SEED=42 register_sim_test        one seed, to look at
//   SEEDS=100000 register_sim_test   as many as there is time for

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/map/history.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/rebuild.h"
#include "cluster/registers/rules.h"
#include "cluster/registers/store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/linearizability.h"
#include "tests/support/replica_set.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Kind = RegisterOperation::Kind;

constexpr uint32_t kGroup = 0;
constexpr int kRegisters = 3;
constexpr int kClients = 5;

class Storm {
 public:
  virtual ~Storm() = default;

  void Run() {
    SetAll(Calm());
    clients_left_ = kClients;
    for (int i = 0; i < kClients; ++i) {
      sim_.Spawn(fmt::format("client {}", i), [this, i] { Client(i); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    SpawnMore();
    sim_.Run();
    sim_.Sleep(10s);  // what is on its way arrives
    Inspect();
    for (auto& [key, history] : histories_) Complain(WhyNotLinearizable(history));
    graveyard_.clear();
  }

  const std::string& complaint() const { return complaint_; }
  size_t certain() const { return certain_; }
  // Of the changes with companions, how many every replica has told to have, and how many were
  // given up.
  size_t everywhere() const { return everywhere_; }
  size_t otherwise() const { return otherwise_; }
  // What was done beside the clients did not come to an end.
  bool given_up() const { return given_up_; }
  uint64_t trace_hash() const { return sim_.trace_hash(); }

 protected:
  explicit Storm(uint64_t seed) : sim_(seed) {}

  // One process: a store of its own, drives that it may die in front of.
  struct Process {
    std::shared_ptr<ClientLife> life;
    std::unique_ptr<ReplicaLocator> view;
    std::unique_ptr<RegisterStore> store;
    std::map<std::string, RegisterValue> seen;
  };
  virtual std::unique_ptr<Process> NewProcess() = 0;
  virtual std::vector<FaultyDrive*> Drives() = 0;
  virtual void SpawnMore() {}
  virtual int Steps() { return 24; }  // of a client
  virtual Duration LongestPause() { return 200ms; }
  // Whether some changes have companions, records beside them on the replicas' drives.
  virtual bool HaveCompanions() { return false; }
  // Names of registers that may be used again after they were erased begin with an E.
  virtual bool IsErasable(uint64_t) { return false; }

  static DriveFaults Calm() { return {.duplicate_request = 0.05}; }
  void SetAll(const DriveFaults& faults) {
    for (FaultyDrive* drive : Drives()) drive->Set(faults);
  }

  void Complain(const std::string& why) {
    if (complaint_.empty()) complaint_ = why;
  }

  SimRuntime sim_;
  int clients_left_ = 0;
  bool given_up_ = false;

 private:
  // ---- Clients

  void Client(int number) {
    std::unique_ptr<Process> process = NewProcess();
    for (int step = 0; step < Steps(); ++step) {
      if (sim_.Chance(0.03)) process->life->CrashAfter(sim_.Below(30));
      const std::string key = Key(sim_.Below(kRegisters));
      const std::string who = fmt::format("{}.{}", number, step);
      if (sim_.Chance(0.1)) {
        Scan(*process, who);
      } else if (sim_.Chance(0.35)) {
        Read(*process, key, who);
      } else {
        Change(*process, key, who);
      }
      if (sim_.Chance(0.3)) sim_.Sleep(sim_.Between(0us, LongestPause()));
      if (process->life->crashed()) {
        graveyard_.push_back(std::move(process));  // requests of the dead are still on their way
        process = NewProcess();
      }
    }
    graveyard_.push_back(std::move(process));
    --clients_left_;
  }

  std::string Key(uint64_t number) {
    return fmt::format("{} {}", IsErasable(number) ? "Erasable" : "Register", number);
  }

  void Read(Process& process, const std::string& key, const std::string& who) {
    RegisterOperation operation{.kind = Kind::kRead, .called = ++clock_, .who = who};
    const Result<RegisterValue> value = process.store->Read({kGroup, key});
    if (!Certain(value)) return;
    operation.result = process.seen[key] = *value;
    if (value->value) values_seen_.insert(*value->value);
    Record(key, operation);
  }

  // What comes instead may be there at any time from now on, whoever puts it there.
  RegisterStore::Wanted WithCompanions(Process& process, const std::string& key,
                                       const RegisterValue& seen, const std::string& who,
                                       Companions& companions) {
    const std::string companion = "companion of " + who;
    const GroupReplicas replicas = process.view->Replicas(kGroup);
    for (const Drive* drive : replicas.drives) {
      companions.all.push_back({drive, {companion, Expected::Version("1")}});
    }
    companions.send = [this, companion, replicas] {
      for (Drive* drive : replicas.drives) {
        drive->Put({.key = companion,
                    .value = SharedBytes("x"),
                    .version = "1",
                    .expected = Expected::Absent()},
                   {sim_.Now() + 5s, replicas.cluster_version}, [](const Status&) {});
      }
    };
    companions.least = replicas.drives.size() / 2 + 1;
    if (sim_.Chance(0.5)) companions.otherwise = "instead of " + who;
    RegisterOperation instead{.kind = Kind::kUnknown,
                              .called = ++clock_,
                              .seen_slot = seen.slot,
                              .value = companions.otherwise,
                              .who = "instead of " + who};
    histories_[key].push_back(std::move(instead));
    have_companions_.emplace(who, companion);
    return {{kGroup, key}, seen, who, &companions};
  }

  void Change(Process& process, const std::string& key, const std::string& who) {
    const RegisterValue seen = sim_.Chance(0.1) ? RegisterValue{} : process.seen[key];
    const auto value = sim_.Chance(0.2) ? std::nullopt : std::optional(who);
    const auto durability = sim_.Chance(0.2) ? Durability::kWriteThrough : Durability::kWriteBack;
    RegisterOperation operation{
        .called = ++clock_, .seen_slot = seen.slot, .value = value, .who = who};
    Companions companions;
    const auto outcome = value && HaveCompanions() && sim_.Chance(0.5)
                             ? process.store->ChangeBound(
                                   WithCompanions(process, key, seen, who, companions), durability)
                             : process.store->Change({kGroup, key}, seen, value, durability);
    if (outcome.everywhere) ++everywhere_;
    if (outcome.otherwise) ++otherwise_;
    // What was refused for a reason is not in the history: nobody may ever see it.
    if (outcome.why.code() == EAGAIN && HaveCompanions()) return;  // it was not tried
    if (!outcome.why.ok()) NoteFailure(outcome.why);
    if (!outcome.why.ok() && !outcome.unknown()) return;
    if (outcome.unknown()) {
      operation.kind = Kind::kUnknown;
    } else {
      ++certain_;
      operation.kind = outcome.applied() ? Kind::kApplied : Kind::kRefused;
      operation.result = process.seen[key] = outcome.now;
    }
    Record(key, operation);
  }

  void Scan(Process& process, const std::string& who) {
    const uint64_t called = ++clock_;
    const auto page = process.store->Scan(kGroup, "E", "S", 100);
    if (!Certain(page)) return;
    for (int i = 0; i < kRegisters; ++i) {
      const std::string key = Key(i);
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
    NoteFailure(result.error());
    return false;
  }

  void NoteFailure(const Status& why) {
    last_failure_ = why.message();
    if (why.code() != EIO && why.code() != ENOSPC) Complain(last_failure_);
  }

  void Record(const std::string& key, RegisterOperation operation) {
    operation.returned = ++clock_;
    histories_[key].push_back(std::move(operation));
  }

  // ---- Weather

  // A minority falls ill, each in its own way, for a while.
  void Weather() {
    while (clients_left_ > 0) {
      SetAll(Calm());
      const std::vector<FaultyDrive*> drives = Drives();
      size_t ill = sim_.Below((drives.size() - 1) / 2 + 1);
      for (; ill > 0; --ill) drives[sim_.Below(drives.size())]->Set(Illness());
      if (sim_.Chance(0.1)) FillUp(drives);
      sim_.Sleep(sim_.Between(1ms, sim_.Chance(0.2) ? Duration(10s) : Duration(300ms)));
    }
    SetAll(Calm());
  }

  // All of them become full, or some, after some puts more.
  void FillUp(const std::vector<FaultyDrive*>& drives) {
    const auto room = std::make_shared<std::atomic<int64_t>>(sim_.Below(20));
    for (FaultyDrive* drive : drives) {
      if (sim_.Chance(0.2)) continue;
      DriveFaults faults = drive->faults();
      faults.room = room;
      drive->Set(faults);
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
    const std::unique_ptr<Process> inspector = NewProcess();
    Process& process = *inspector;
    last_failure_.clear();
    for (int i = 0; i < kRegisters; ++i) {
      const std::string key = Key(i);
      const Time start = sim_.Now();
      Read(process, key, "inspector");
      Change(process, key, "inspector");
      if (!last_failure_.empty()) Complain(last_failure_ + ", in the calm");
      if (sim_.Now() - start > 2s) Complain(key + " is slow in the calm");
    }
    for (const std::string& value : values_seen_) {
      const auto found = have_companions_.find(value);
      if (found != have_companions_.end()) CountCompanions(found->second);
    }
    InspectMore();
  }
  virtual void InspectMore() {}

  void CountCompanions(const std::string& companion) {
    Gather<Result<RecordHead>> gather(sim_);
    size_t asked = 0;
    for (FaultyDrive* drive : Drives())
      drive->Head(companion, sim_.Now() + 5s, gather.Ask(asked++));
    size_t found = 0;
    while (const auto answer = gather.Next(Time::max())) found += answer->value.has_value();
    if (found <= asked / 2) {
      Complain(fmt::format("there are {} of the {}, and somebody has seen that", found, companion));
    }
  }

  uint64_t clock_ = 0;
  size_t certain_ = 0;
  std::map<std::string, std::vector<RegisterOperation>> histories_;
  std::map<std::string, std::string> have_companions_;  // by value
  std::set<std::string> values_seen_;
  size_t everywhere_ = 0;
  size_t otherwise_ = 0;
  std::vector<std::unique_ptr<Process>> graveyard_;
  std::string last_failure_;
  std::string complaint_;  // the first
};

// Drives that are never lost.
class PlainStorm final : public Storm {
 public:
  PlainStorm(uint64_t seed, size_t replicas, Quorums (*quorums)(size_t) = nullptr)
      : Storm(seed), drives_(sim_, replicas), quorums_(quorums) {}

 private:
  std::unique_ptr<Process> NewProcess() override {
    auto process = std::make_unique<Process>();
    auto view = std::make_unique<ReplicaClient>(sim_, drives_);
    process->life = view->life;
    process->view = std::move(view);
    process->store = std::make_unique<RegisterStore>(
        sim_, *process->view, RegisterStore::Options{.prefix = "\4test", .quorums = quorums_});
    return process;
  }
  bool HaveCompanions() override { return true; }
  std::vector<FaultyDrive*> Drives() override {
    std::vector<FaultyDrive*> drives;
    for (const auto& drive : drives_.drives) drives.push_back(drive.get());
    return drives;
  }

  ReplicaSet drives_;
  Quorums (*const quorums_)(size_t);
};

// On a whole cluster, to which something is done all the time, by somebody who may die. Answers are
// forgotten sooner than in real life, so that much happens in between.
class ClusterStorm : public Storm {
 public:
 protected:
  ClusterStorm(uint64_t seed, size_t drives, size_t replicas, Duration answers_count)
      : Storm(seed),
        answers_count_(answers_count),
        machines_(sim_, {.drives = drives,
                         .layout = {1, 0, 64 << 10},
                         .groups = 1,
                         .replicas = static_cast<int>(replicas)}) {
    Check(machines_.Format());
  }

  // Something to be done, and to be tried until it is.
  virtual std::function<bool()> NextChange() = 0;
  virtual Duration CallTimeout() { return 15s; }
  virtual std::unique_ptr<ReplicaLocator> ViewOf(std::unique_ptr<Cluster> cluster) {
    return cluster;
  }

  std::unique_ptr<RegisterStore> NewStore(ReplicaLocator& view) {
    return std::make_unique<RegisterStore>(sim_, view,
                                           RegisterStore::Options{.prefix = ClusterPrefix("test"),
                                                                  .timeout = CallTimeout(),
                                                                  .answers_count = answers_count_});
  }
  // Of who may die before it has sent so many requests.
  std::shared_ptr<ClientLife> NewLife(uint64_t requests) {
    auto life = std::make_shared<ClientLife>();
    if (sim_.Chance(0.3)) life->CrashAfter(sim_.Below(requests));
    return life;
  }
  void Check(const Status& status) {
    if (!status.ok()) Complain(std::string(status.message()));
  }
  // Unless it is what faults and other people bring about. EBADMSG: a superblock that came with
  // flipped bits.
  void CheckFailure(const Status& status, std::initializer_list<int> expected) {
    for (const int code : {EIO, EBADMSG, EHOSTUNREACH, ETIMEDOUT, ENOSPC}) {
      if (status.code() == code) return;
    }
    if (std::find(expected.begin(), expected.end(), status.code()) == expected.end()) Check(status);
  }

 private:
  std::unique_ptr<Process> NewProcess() override {
    for (;;) {
      auto process = std::make_unique<Process>();
      process->life = std::make_shared<ClientLife>();
      if (auto cluster = machines_.Open(process->life); cluster.has_value()) {
        process->view = ViewOf(*std::move(cluster));
        process->store = NewStore(*process->view);
        return process;
      }
      sim_.Sleep(100ms);
    }
  }
  std::vector<FaultyDrive*> Drives() override {
    std::vector<FaultyDrive*> drives;
    for (DriveId id = 1; id <= machines_.size(); ++id) drives.push_back(&machines_.drive(id));
    return drives;
  }
  void SpawnMore() override {
    sim_.Spawn("administrator", [this] {
      while (clients_left_ > 0) {
        sim_.Sleep(sim_.Between(0us, 1s));
        const std::function<bool()> change = NextChange();
        for (int attempt = 0; !change(); ++attempt) {
          // With a weakened rule the registers may be such that it never ends.
          if (attempt == 300) {
            given_up_ = true;
            return;
          }
          sim_.Sleep(sim_.Between(0us, 200ms));
        }
      }
    });
  }
  Duration LongestPause() override { return 1s; }

  const Duration answers_count_;

 protected:
  TestCluster machines_;
};

// Drives that are lost, and empty ones that take their places.
class ReplacingStorm final : public ClusterStorm {
 public:
  struct Rules {
    Duration answers_count = 1s;
    Duration forgetting = 2s;
    bool sweep = true;
  };

  ReplacingStorm(uint64_t seed, size_t replicas, const Rules& rules)
      : ClusterStorm(seed, replicas, replicas, rules.answers_count), rules_(rules) {}

  size_t rebuilt() const { return rebuilt_; }

 private:
  std::function<bool()> NextChange() override {
    const auto id = static_cast<DriveId>(1 + sim_.Below(machines_.size()));
    machines_.Replace(id);
    return [this, id] {
      const bool done = Rebuild(id);
      rebuilt_ += done;
      return done;
    };
  }

  bool Rebuild(DriveId id) {
    const auto life = NewLife(120);
    auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return false;
    const auto store = NewStore(**cluster);
    RebuildOptions options;
    options.forgetting = rules_.forgetting;
    options.sweep = rules_.sweep;
    options.claim = false;  // who died is not waited for
    options.registers = store.get();
    const auto report = RebuildDrive(**cluster, machines_.Factory(life), id, options);
    if (report.has_value()) return true;
    CheckFailure(report.error(), {EEXIST});
    return IsInService(id);  // the answer to the last request of all may be lost
  }

  bool IsInService(DriveId id) {
    Gather<Result<pinstripe::Record>> gather(sim_);
    machines_.memory(id).Get(SuperblockKey("test"), {}, Time::max(), gather.Ask(0));
    const auto block = ReadSuperblock(gather.Next(Time::max())->value, "test", id);
    return block.has_value() && block->service == DriveService::kInService;
  }

  const Rules rules_;
  size_t rebuilt_ = 0;
};

// Drives that are drained, taken back and given other weights, so that the registers' homes move.
class MovingStorm final : public ClusterStorm {
 public:
  struct Rules {
    Duration answers_count = 1s;
    Duration forgetting = 2s;
    bool restore = true;
    bool fence = true;
    bool former_epochs_only = true;  // else whatever was removed is erased
  };

  MovingStorm(uint64_t seed, size_t replicas, const Rules& rules)
      : ClusterStorm(seed, replicas + 3, replicas, rules.answers_count), rules_(rules) {}

  size_t moved() const { return moved_; }
  uint64_t erased() const { return erased_; }
  size_t in_history() const { return in_history_; }

 private:
  // What the history of the map says, those who died writing it left, too, is what the registers
  // of the epochs say.
  void InspectMore() override {
    const auto cluster = machines_.Open();
    if (!cluster.has_value())
      return Complain("no cluster: " + std::string(cluster.error().message()));
    RegisterStore& registers = (*cluster)->registers();
    const auto history = registers.Read({kMapGroup, HistoryKey()});
    if (!history.has_value()) return Complain(std::string(history.error().message()));
    if (!history->value.has_value()) return;
    const auto epochs = DecodeHistory(*history->value);
    if (!epochs.has_value()) return Complain(std::string(epochs.error().message()));
    for (const DriveMap& map : *epochs) {
      const auto stored = registers.Read({kMapGroup, EpochKey(map.epoch)});
      if (!stored.has_value()) return Complain(std::string(stored.error().message()));
      if (stored->value == map.Encode()) continue;
      return Complain(fmt::format("epoch {} is another one in the history", map.epoch));
    }
    if (epochs->size() > (*cluster)->map().epoch)
      Complain("the history has epochs that never were");
    in_history_ = epochs->size();
  }

  // Lets its users decide with drives of whatever epoch.
  class Unfenced final : public ReplicaLocator {
   public:
    explicit Unfenced(std::unique_ptr<Cluster> cluster) : cluster_(std::move(cluster)) {}
    GroupReplicas Replicas(uint32_t group) override {
      return {cluster_->Replicas(group).drives, std::nullopt};
    }

   private:
    const std::unique_ptr<Cluster> cluster_;
  };

  std::unique_ptr<ReplicaLocator> ViewOf(std::unique_ptr<Cluster> cluster) override {
    if (rules_.fence) return cluster;
    return std::make_unique<Unfenced>(std::move(cluster));
  }
  bool IsErasable(uint64_t number) override { return number > 0; }
  int Steps() override { return 40; }
  Duration LongestPause() override { return 4s; }
  Duration CallTimeout() override { return 1s; }
  std::function<bool()> NextChange() override {
    if (sim_.Chance(0.5)) return [this] { return RenewAndErase(); };
    MappedDrive wanted{.id = static_cast<DriveId>(1 + sim_.Below(machines_.size())),
                       .weight = static_cast<uint32_t>(1 + sim_.Below(200))};
    if (sim_.Chance(0.4)) wanted.state = DriveState::kDraining;
    return [this, wanted] { return Change(wanted); };
  }

  bool Change(const MappedDrive& wanted) {
    const auto life = NewLife(150);
    auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return false;
    const auto store = NewStore(**cluster);
    EpochChangeOptions options;
    options.forgetting = rules_.forgetting;
    options.restore = rules_.restore;
    options.registers = store.get();
    const Epoch before = (*cluster)->map().epoch;
    const auto report = ChangeDrives(**cluster, machines_.Factory(life), {wanted}, options);
    if (report.has_value()) {
      moved_ += (*cluster)->map().epoch > before;
      return true;
    }
    if (report.error().code() == EINVAL) return true;  // too few would be left
    CheckFailure(report.error(), {EBUSY, EREMCHG});
    return false;
  }

  // A new epoch of the same drives, sometimes, and what was removed before it goes.
  bool RenewAndErase() {
    const auto life = NewLife(60);
    auto cluster = machines_.Open(life);
    if (!cluster.has_value()) return false;
    if (sim_.Chance(0.7)) {
      const auto store = NewStore(**cluster);
      EpochChangeOptions options;
      options.forgetting = rules_.forgetting;
      options.registers = store.get();
      const auto renewed = RenewEpoch(**cluster, options);
      if (!renewed.has_value()) {
        CheckFailure(renewed.error(), {EBUSY, EREMCHG});
        return true;
      }
    }
    const auto view = ViewOf(*std::move(cluster));
    const auto store = NewStore(*view);
    const auto erased = store->Erase(kGroup, [&](std::span<const Tombstone> tombstones) {
      std::vector<bool> may_go;
      for (const Tombstone& tombstone : tombstones) {
        const bool erasable = tombstone.key.starts_with("Erasable");
        // Nobody is at it any more who was when it was removed.
        const bool old = tombstone.removed_at <= sim_.WallClock() - (5s / 1ns);
        may_go.push_back(erasable && old &&
                         (tombstone.of_former_epoch || !rules_.former_epochs_only));
      }
      return may_go;
    });
    if (erased.has_value()) {
      erased_ += erased->erased;
    } else {
      CheckFailure(erased.error(), {});
    }
    return true;
  }

  const Rules rules_;
  size_t moved_ = 0;
  uint64_t erased_ = 0;
  size_t in_history_ = 0;
};

class RegisterSim : public testing::TestWithParam<size_t> {
 protected:
  RegisterSim() { SetLogLevel(LogLevel::kError); }  // damaged replicas are reported as warnings
  ~RegisterSim() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_P(RegisterSim, HistoriesAreLinearizable) {
  const Seeds seeds = SeedsFromEnvironment(200);
  uint64_t tested_little = 0;
  size_t everywhere = 0;
  size_t otherwise = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    PlainStorm storm(seed, GetParam());
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
    tested_little += storm.certain() <= 20;
    everywhere += storm.everywhere();
    otherwise += storm.otherwise();
  }
  // Of very many storms one or the other lets hardly anything be done.
  EXPECT_LE(tested_little, (seeds.end - seeds.first) / 500);
  EXPECT_GT(everywhere, seeds.end - seeds.first);
  if (GetParam() > 1) {
    EXPECT_GT(otherwise, (seeds.end - seeds.first) / 10);
  }
}

TEST_P(RegisterSim, TheSameSeedIsTheSameStorm) {
  PlainStorm one(1, GetParam());
  PlainStorm two(1, GetParam());
  one.Run();
  two.Run();
  EXPECT_EQ(one.trace_hash(), two.trace_hash());
}

INSTANTIATE_TEST_SUITE_P(Replicas, RegisterSim, testing::Values(1, 3, 5, 9),
                         testing::PrintToStringParamName());

class RebuildSim : public RegisterSim {};

TEST_P(RebuildSim, HistoriesAreLinearizableWhileDrivesAreReplaced) {
  const Seeds seeds = SeedsFromEnvironment(50);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ReplacingStorm storm(seed, GetParam(), {});
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
    ASSERT_GT(storm.certain(), 20u) << "seed " << seed << " tested next to nothing";
    ASSERT_GT(storm.rebuilt(), 0u) << "seed " << seed;
    ASSERT_FALSE(storm.given_up()) << "a rebuild does not end in seed " << seed;
  }
}

TEST_P(RebuildSim, TheSameSeedIsTheSameStorm) {
  ReplacingStorm one(1, GetParam(), {});
  ReplacingStorm two(1, GetParam(), {});
  one.Run();
  two.Run();
  EXPECT_EQ(one.trace_hash(), two.trace_hash());
}

INSTANTIATE_TEST_SUITE_P(Replicas, RebuildSim, testing::Values(3, 5),
                         testing::PrintToStringParamName());

class MovingSim : public RegisterSim {};

TEST_P(MovingSim, HistoriesAreLinearizableWhileTheHomesMove) {
  const Seeds seeds = SeedsFromEnvironment(50);
  size_t moved = 0;
  uint64_t erased = 0;
  size_t with_history = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    MovingStorm storm(seed, GetParam(), {});
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
    ASSERT_GT(storm.certain(), 20u) << "seed " << seed << " tested next to nothing";
    ASSERT_FALSE(storm.given_up()) << "a change of the map does not end in seed " << seed;
    moved += storm.moved();
    erased += storm.erased();
    with_history += storm.in_history() > 0;
  }
  // In some storms the clients are done before a majority of the homes was well for long enough.
  EXPECT_GE(4 * moved, seeds.end - seeds.first);
  EXPECT_GE(20 * erased, seeds.end - seeds.first);
  EXPECT_GE(4 * with_history, seeds.end - seeds.first);
}

INSTANTIATE_TEST_SUITE_P(Replicas, MovingSim, testing::Values(3, 5),
                         testing::PrintToStringParamName());

// ---- Tests of the test: with quorums that are too small it must find something.

// Whether one of many storms, made of `arguments` behind its seed, finds a fault or does not end.
template <typename AStorm, typename... Arguments>
bool FindsAFault(uint64_t storms, const Arguments&... arguments) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= storms; ++seed) {
    AStorm storm(seed, arguments...);
    storm.Run();
    if (!storm.complaint().empty() || storm.given_up()) {
      testing::Test::RecordProperty("seed", static_cast<int>(seed));
      testing::Test::RecordProperty("complaint", storm.complaint());
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
  EXPECT_TRUE(FindsAFault<PlainStorm>(1000, 3, one_less));
  EXPECT_TRUE(FindsAFault<PlainStorm>(1000, 5, one_less));
}

TEST(RegisterSimIsStrict, AFastQuorumThatIsOnlyAMajorityIsFound) {
  const auto majority = [](size_t replicas) {
    Quorums quorums = QuorumsOf(replicas);
    quorums.fast = quorums.majority;
    return quorums;
  };
  EXPECT_TRUE(FindsAFault<PlainStorm>(1000, 3, majority));
  EXPECT_TRUE(FindsAFault<PlainStorm>(1000, 5, majority));
}

TEST(RebuildSimIsStrict, ADriveThatTakesPartBeforeItWasRestoredIsFound) {
  EXPECT_TRUE(FindsAFault<ReplacingStorm>(1000, 3, ReplacingStorm::Rules{.sweep = false}));
  EXPECT_TRUE(FindsAFault<ReplacingStorm>(1000, 5, ReplacingStorm::Rules{.sweep = false}));
}

TEST(MovingSimIsStrict, WhoIsNotShutOutOfAnEarlierEpochIsFound) {
  EXPECT_TRUE(FindsAFault<MovingStorm>(300, 3, MovingStorm::Rules{.fence = false}));
}

TEST(MovingSimIsStrict, ANewHomeThatWasGivenNothingIsFound) {
  EXPECT_TRUE(FindsAFault<MovingStorm>(300, 3, MovingStorm::Rules{.restore = false}));
}

TEST(MovingSimIsStrict, WhatIsErasedInTheEpochInWhichItWasRemovedIsFound) {
  EXPECT_TRUE(FindsAFault<MovingStorm>(300, 3, MovingStorm::Rules{.former_epochs_only = false}));
}

// What happens more seldom is in RestoreTest of tests/cluster/registers/store_test.cc, step by
// step.

}  // namespace
}  // namespace pinstripe
