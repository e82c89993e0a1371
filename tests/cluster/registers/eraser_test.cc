// Erasing removed registers: nothing of them stays, and nothing of them ever comes back.

#include "cluster/registers/eraser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/replica_set.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uint32_t kGroup = 7;

RegisterStore::MayErase Everything() {
  return [](std::span<const Tombstone> tombstones) {
    return std::vector<bool>(tombstones.size(), true);
  };
}

class RegisterEraserTest : public testing::Test {
 protected:
  RegisterEraserTest() : store_(sim_, client_, {.prefix = "\1c"}) {}

  RegisterValue Set(const std::string& key, const RegisterValue& seen,
                    std::optional<std::string> to) {
    const auto outcome = store_.Change({kGroup, key}, seen, std::move(to));
    EXPECT_OK(outcome);
    EXPECT_TRUE(outcome.applied());
    return outcome.now;
  }
  RegisterValue Removed(const std::string& key) {
    return Set(key, Set(key, *store_.Read({kGroup, key}), "value"), std::nullopt);
  }

  // Of all drives.
  size_t Records() {
    size_t records = 0;
    for (const auto& drive : set_.drives) {
      Gather<Result<std::vector<std::string>>> gather(sim_);
      drive->Range("\1", "\2", kMaxRangeKeys, false, Time::max(), gather.Ask(0));
      records += gather.Next(Time::max())->value->size();
    }
    return records;
  }

  SimRuntime sim_{1};
  ReplicaSet set_{sim_, 3};
  ReplicaClient client_{sim_, set_};
  RegisterStore store_;
};

TEST_F(RegisterEraserTest, OfARemovedRegisterNothingStays) {
  Removed("gone");
  sim_.Sleep(1s);
  ASSERT_EQ(Records(), 3u);
  const auto report = store_.Erase(kGroup, Everything());
  ASSERT_OK(report);
  EXPECT_EQ(report->tombstones, 1u);
  EXPECT_EQ(report->erased, 1u);
  EXPECT_EQ(Records(), 0u);
  EXPECT_EQ(store_.Read({kGroup, "gone"})->slot, 0u);
}

TEST_F(RegisterEraserTest, WhatHasAValueOrMayNotGoStays) {
  Set("there", {}, "value");
  const RegisterValue kept = Removed("kept");
  Removed("gone");
  sim_.Sleep(1s);
  std::map<std::string, Tombstone> seen;
  const auto report = store_.Erase(kGroup, [&](std::span<const Tombstone> tombstones) {
    std::vector<bool> may_go;
    for (const Tombstone& tombstone : tombstones) {
      seen[tombstone.key] = tombstone;
      may_go.push_back(tombstone.key != "kept");
    }
    return may_go;
  });
  ASSERT_OK(report);
  EXPECT_EQ(report->erased, 1u);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen["kept"].slot, 2u);
  EXPECT_EQ(seen["kept"].removed_at, kept.removed_at);
  EXPECT_EQ(store_.Read({kGroup, "there"})->value, "value");
  EXPECT_EQ(store_.Read({kGroup, "kept"})->slot, 2u);
}

TEST_F(RegisterEraserTest, PagesAreGoneThroughToTheEnd) {
  for (int i = 0; i < 1500; ++i) Removed(fmt::format("name {:05}", i));
  sim_.Sleep(1s);
  const auto report = store_.Erase(kGroup, Everything());
  ASSERT_OK(report);
  EXPECT_EQ(report->erased, 1500u);
  EXPECT_EQ(Records(), 0u);
}

TEST_F(RegisterEraserTest, NothingGoesWhileADriveIsAway) {
  Removed("gone");
  sim_.Sleep(1s);
  set_.drives[2]->Set({.down = true});
  EXPECT_EQ(store_.Erase(kGroup, Everything()).error().code(), EHOSTUNREACH);
  set_.drives[2]->Set({});
  EXPECT_EQ(Records(), 3u);
}

// It missed the removal: its value would be the only one left.
TEST_F(RegisterEraserTest, NothingGoesOfWhichADriveStillHasTheValue) {
  const RegisterValue value = Set("gone", {}, "value");
  sim_.Sleep(1s);
  set_.drives[2]->Set({.down = true});
  Set("gone", value, std::nullopt);
  sim_.Sleep(1s);
  set_.drives[2]->Set({});
  auto report = store_.Erase(kGroup, Everything());
  ASSERT_OK(report);
  EXPECT_EQ(report->erased, 0u);
  ASSERT_OK(store_.Sweep(kGroup));
  report = store_.Erase(kGroup, Everything());
  ASSERT_OK(report);
  EXPECT_EQ(report->erased, 1u);
  EXPECT_EQ(Records(), 0u);
}

// Or a loss of power could bring the value back on one of them.
TEST_F(RegisterEraserTest, TheRemovalIsSafeOnAllDrivesBeforeAnythingGoes) {
  Removed("gone");
  sim_.Sleep(1s);
  set_.ForgetRequests();
  ASSERT_OK(store_.Erase(kGroup, Everything()));
  EXPECT_EQ(set_.requests().flush, 3u);
}

TEST_F(RegisterEraserTest, WhatWentOnlyHereAndThereGoesNextTime) {
  Removed("gone");
  sim_.Sleep(1s);
  const auto report = store_.Erase(kGroup, [&](std::span<const Tombstone> tombstones) {
    set_.drives[0]->Set({.lose_request = 1});
    client_.drives[0]->Set({.lose_request = 1});
    return std::vector<bool>(tombstones.size(), true);
  });
  EXPECT_FALSE(report.has_value());  // not even flushed
  set_.drives[0]->Set({});
  client_.drives[0]->Set({});
  // As if the eraser had died in the middle of it.
  Gather<Status> gather(sim_);
  const std::string key = RegisterRecordKey("\1c", {kGroup, "gone"});
  set_.drives[1]->Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(), gather.Ask(0));
  set_.drives[2]->Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(), gather.Ask(0));
  while (gather.Next(Time::max()) != nullptr) {
  }
  EXPECT_EQ(store_.Read({kGroup, "gone"})->value, std::nullopt);
  EXPECT_EQ(store_.Erase(kGroup, Everything())->erased, 1u);
  EXPECT_EQ(Records(), 0u);
}

// ---- Names that are used again

constexpr uint64_t kSecondEpoch = uint64_t{1} << 32;  // the slot before its first
constexpr uint64_t kThirdEpoch = uint64_t{2} << 32;

class ReusableTest : public RegisterEraserTest {
 protected:
  ReusableTest() { client_.cluster_version = ClusterVersionOf(1); }

  void BeginEpoch(Epoch epoch) {
    sim_.Sleep(1s);  // what is on its way arrives
    client_.cluster_version = ClusterVersionOf(epoch);
  }
  EraseReport EraseFormer() {
    const auto report = store_.Erase(kGroup, [](std::span<const Tombstone> tombstones) {
      std::vector<bool> may_go;
      for (const Tombstone& each : tombstones) may_go.push_back(each.of_former_epoch);
      return may_go;
    });
    EXPECT_OK(report);
    return *report;
  }
  RegisterValue Read(const std::string& key) {
    const auto value = store_.Read({kGroup, key});
    EXPECT_OK(value);
    return *value;
  }
};

TEST_F(ReusableTest, AnEpochBeginsSlotsOfItsOwn) {
  const RegisterValue value = Set("Entry", {}, "a");
  const RegisterValue other = Set("other", {}, "a");
  EXPECT_EQ(value.slot, 1u);
  BeginEpoch(2);
  EXPECT_EQ(Read("Entry").slot, 1u);
  EXPECT_EQ(Set("Entry", value, "b").slot, kSecondEpoch + 1);
  EXPECT_EQ(Set("other", other, "b").slot, 2u);
}

TEST_F(ReusableTest, WhatIsAbsentIsInOneSlotErasedOrNot) {
  Removed("Entry 1");
  Removed("Entry 2");
  BeginEpoch(2);
  const auto report = store_.Erase(kGroup, [](std::span<const Tombstone> tombstones) {
    return std::vector{tombstones[0].of_former_epoch, false};
  });
  ASSERT_OK(report);
  EXPECT_EQ(report->erased, 1u);
  for (const char* key : {"Entry 1", "Entry 2", "Entry 3"}) {
    EXPECT_EQ(Read(key).slot, kSecondEpoch) << key;
    EXPECT_EQ(Set(key, Read(key), "again").slot, kSecondEpoch + 1) << key;
    EXPECT_EQ(Read(key).value, "again") << key;
  }
}

TEST_F(ReusableTest, OnlyWhatRestsSinceAFormerEpochMayGo) {
  Removed("Entry");
  Removed("other");
  sim_.Sleep(1s);
  EXPECT_EQ(EraseFormer().erased, 0u);
  BeginEpoch(2);
  const RegisterValue seen = Read("Entry");
  Removed("Entry of now");
  sim_.Sleep(1s);
  const size_t records = Records();
  EXPECT_EQ(EraseFormer().erased, 1u);
  EXPECT_EQ(Records(), records - 3);
  EXPECT_EQ(Set("Entry", seen, std::nullopt).slot, kSecondEpoch + 1);
  sim_.Sleep(1s);
  EXPECT_EQ(EraseFormer().erased, 0u);
  BeginEpoch(3);
  EXPECT_EQ(EraseFormer().erased, 2u);
}

// A promise of this epoch is what somebody relies on.
TEST_F(ReusableTest, WhatSomebodyIsAtWorkOnStays) {
  Removed("Entry");
  BeginEpoch(2);
  const std::string key = RegisterRecordKey("\1c", {kGroup, "Entry"});
  Gather<Result<Record>> gather(sim_);
  set_.memory[0]->Get(key, {}, Time::max(), gather.Ask(0));
  const auto state = DecodeRegister(key, *gather.Next(Time::max())->value);
  ASSERT_OK(state);
  ReplicaState promised = *state;
  promised.promised = {kSecondEpoch + 1, 1, 42};
  Gather<Status> put(sim_);
  set_.memory[0]->Put(
      EncodeRegisterPut(key, EncodeRegisterVersion(state->promised, state->accepted), promised,
                        Durability::kWriteBack),
      Time::max(), put.Ask(0));
  ASSERT_OK(put.Next(Time::max())->value);
  EXPECT_EQ(EraseFormer().erased, 0u);
  BeginEpoch(3);
  EXPECT_EQ(EraseFormer().erased, 1u);
}

// An erasure that ended in the middle, or a drive that was switched off.
TEST_F(ReusableTest, ANameThatIsUsedAgainIsNotLostToATraceOfItsFormerUse) {
  const RegisterValue removed = Removed("Entry");
  ASSERT_EQ(removed.slot, 2u);
  BeginEpoch(2);
  const std::string key = RegisterRecordKey("\1c", {kGroup, "Entry"});
  Gather<Status> gather(sim_);
  for (const size_t i : {1u, 2u}) {
    set_.memory[i]->Delete(key, Expected::Any(), Durability::kWriteBack, Time::max(),
                           gather.Ask(i));
  }
  while (gather.Next(Time::max()) != nullptr) {
  }
  client_.drives[0]->Set({.down = true});
  Set("Entry", Read("Entry"), "again");
  client_.drives[0]->Set({});
  for (size_t away = 0; away < 3; ++away) {
    sim_.Sleep(1s);
    client_.drives[away]->Set({.down = true});
    EXPECT_EQ(Read("Entry").value, "again") << "without drive " << away;
    client_.drives[away]->Set({});
  }
}

// A drive that answers late, or is away, makes it uncertain what is chosen in the epoch before. It
// is taken over into the new one, and nobody who knows it by its slot notices.
TEST_F(ReusableTest, WhatIsTakenOverIntoAnEpochStaysWhatItWas) {
  const RegisterValue value = Set("Entry", {}, "a");
  BeginEpoch(2);
  client_.drives[2]->Set({.down = true});
  const RegisterValue read = Read("Entry");
  EXPECT_EQ(read.slot, value.slot);
  EXPECT_EQ(read.value, "a");
  const RegisterValue changed = Set("Entry", value, "b");
  EXPECT_EQ(changed.slot, kSecondEpoch + 2) << "after what was taken over";
  BeginEpoch(3);
  EXPECT_EQ(Set("Entry", Read("Entry"), "c").slot, kThirdEpoch + 1) << "two say that they took b";
  client_.drives[2]->Set({});
  sim_.Sleep(10s);
  EXPECT_EQ(Read("Entry").value, "c");
}

TEST_F(ReusableTest, WhoIsRefusedInANewEpochIsRefusedForGood) {
  BeginEpoch(2);
  const RegisterValue seen = Read("Entry");
  // Somebody's change reaches one drive, and nobody learns of it.
  ReplicaClient dying(sim_, set_);
  dying.cluster_version = ClusterVersionOf(2);
  for (const size_t i : {1u, 2u}) dying.drives[i]->Set({.lose_request = 1});
  RegisterStore store(sim_, dying, {.prefix = "\1c", .timeout = 1s});
  EXPECT_FAILS(store.Change({kGroup, "Entry"}, seen, "late"), EIO);
  BeginEpoch(3);
  client_.drives[0]->Set({.down = true});
  const auto refused = store_.Change({kGroup, "Entry"}, seen, "mine");
  ASSERT_OK(refused);
  EXPECT_FALSE(refused.applied());
  EXPECT_EQ(refused.now.value, std::nullopt);
  client_.drives[0]->Set({});
  EXPECT_EQ(Read("Entry").value, std::nullopt);
  EXPECT_EQ(Read("Entry").slot, refused.now.slot);
}

// What it created is taken over into the new epoch, and replaced there by who had seen it before
// that. It is found all the same.
TEST_F(ReusableTest, WhoseChangeWasTakenOverAndReplacedStillKnowsIt) {
  ReplicaClient slow(sim_, set_);
  slow.cluster_version = ClusterVersionOf(1);
  slow.next_cluster_version = ClusterVersionOf(2);
  RegisterStore store(sim_, slow, {.prefix = "\1c"});
  for (auto& drive : slow.drives) drive->Set({.lose_answer = 1});
  sim_.Spawn("others", [&] {
    BeginEpoch(2);
    const RegisterValue seen = Read("Entry");
    EXPECT_EQ(seen.value, "mine");
    EXPECT_EQ(seen.slot, 1u);
    ReplicaClient other(sim_, set_);
    other.cluster_version = ClusterVersionOf(2);
    EXPECT_OK(RegisterStore(sim_, other, {.prefix = "\1c"}).MakeDurable({kGroup, "Entry"}));
    EXPECT_EQ(Set("Entry", seen, std::nullopt).slot, kSecondEpoch + 2)
        << "after what was taken over";
    for (auto& drive : slow.drives) drive->Set({});
  });
  const auto outcome = store.Change({kGroup, "Entry"}, {}, "mine");
  ASSERT_OK(outcome);
  EXPECT_TRUE(outcome.applied());
  EXPECT_EQ(Read("Entry").value, std::nullopt);
}

// ---- A storm

// Each register is written by one client, changed and removed by others, who may die, while drives
// fall ill and erasers, who may die too, erase what was removed long enough ago. What was removed,
// as far as anybody was told, is never seen again; and in the calm nearly nothing of it is left.
class Storm {
 public:
  struct Rules {
    Duration age = 30s;  // of what is erased; all that is late comes within 20 s
    bool erase_unheard = false;
  };

  Storm(uint64_t seed, size_t replicas, const Rules& rules)
      : sim_(seed), rules_(rules), set_(sim_, replicas) {}

  void Run() {
    SetLogLevel(LogLevel::kError);
    set_.SetAll(Calm());
    for (int i = 0; i < kClients; ++i) {
      sim_.Spawn("client", [this, i] { Client(i); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    sim_.Spawn("eraser", [this] { EraseAllTheTime(); });
    sim_.Run();
    Inspect();
    graveyard_.clear();
  }

  const std::string& complaint() const { return complaint_; }
  uint64_t erased() const { return erased_; }
  uint64_t erased_at_last() const { return erased_at_last_; }
  // Those of which a replica holds the value that lost against the removal in its fast round: it
  // would be the only one left.
  uint64_t kept() const { return kept_; }

 private:
  static constexpr int kClients = 4;
  static constexpr int kSteps = 60;

  struct Process {
    std::unique_ptr<ReplicaClient> view;
    std::unique_ptr<RegisterStore> store;
  };
  struct Register {
    bool written = false;  // and removed: somebody was told so
    bool removed = false;
    bool being_removed = false;  // somebody tries, or does not know whether it was
  };

  static DriveFaults Calm() { return {.duplicate_request = 0.1, .duplicate_delay = 10s}; }

  std::unique_ptr<Process> NewProcess() {
    auto process = std::make_unique<Process>();
    process->view = std::make_unique<ReplicaClient>(sim_, set_);
    process->store = std::make_unique<RegisterStore>(
        sim_, *process->view,
        RegisterStore::Options{.prefix = "\1c", .erase_unheard = rules_.erase_unheard});
    return process;
  }

  void Client(int number) {
    auto process = NewProcess();
    std::vector<std::string> keys;
    for (int step = 0; step < kSteps; ++step) {
      if (sim_.Chance(0.05)) process->view->life->CrashAfter(sim_.Below(20));
      if (sim_.Chance(0.3) || registers_.empty()) {
        const std::string key = fmt::format("{}.{}", number, step);
        registers_[key];
        const auto outcome = process->store->Change({kGroup, key}, {}, key);
        if (outcome.why.ok()) registers_[key].written = true;
      } else {
        auto at = std::next(registers_.begin(), static_cast<long>(sim_.Below(registers_.size())));
        Use(*process, at->first, at->second);
      }
      if (sim_.Chance(0.4)) sim_.Sleep(sim_.Between(0us, Duration(20s)));
      if (!process->view->life->crashed()) continue;
      graveyard_.push_back(std::move(process));
      process = NewProcess();
    }
    graveyard_.push_back(std::move(process));
    --clients_left_;
  }

  void Use(Process& process, const std::string& key, Register& known) {
    const bool was_there = known.written;
    const bool was_removed = known.removed;
    const auto value = process.store->Read({kGroup, key});
    if (!value.has_value()) return;
    if (was_removed && value->value.has_value()) Complain(key + " came back");
    if (was_there && !known.being_removed && !value->value.has_value()) {
      Complain(key + " is lost");
    }
    if (!value->value.has_value()) return;
    const bool remove = sim_.Chance(0.5);
    if (remove) known.being_removed = true;
    const auto outcome =
        process.store->Change({kGroup, key}, *value, remove ? std::nullopt : std::optional(key));
    if (!outcome.why.ok()) return;
    if (was_removed && outcome.applied()) Complain(key + " was changed after its removal");
    if (remove && outcome.applied()) known.removed = true;
  }

  void EraseAllTheTime() {
    while (clients_left_ > 0) {
      auto process = NewProcess();
      if (sim_.Chance(0.3)) process->view->life->CrashAfter(sim_.Below(100));
      Erase(*process);
      graveyard_.push_back(std::move(process));
      sim_.Sleep(sim_.Between(0us, Duration(20s)));
    }
  }
  void Erase(Process& process) {
    const auto report = process.store->Erase(kGroup, [&](std::span<const Tombstone> tombstones) {
      std::vector<bool> may_go;
      for (const Tombstone& tombstone : tombstones) {
        may_go.push_back(tombstone.removed_at <= sim_.WallClock() - rules_.age.count());
      }
      return may_go;
    });
    if (report.has_value()) erased_ += report->erased;
  }

  void Weather() {
    while (clients_left_ > 0) {
      set_.SetAll(Calm());
      for (size_t ill = sim_.Below((set_.drives.size() - 1) / 2 + 1); ill > 0; --ill) {
        DriveFaults faults = Calm();
        switch (sim_.Below(4)) {
          case 0: faults.down = true; break;
          case 1: faults.lose_request = 0.5; break;
          case 2: faults.lose_answer = 0.5; break;
          default: faults.most_latency = 4s;
        }
        set_.drives[sim_.Below(set_.drives.size())]->Set(faults);
      }
      sim_.Sleep(sim_.Between(1ms, Duration(15s)));
    }
    set_.SetAll({});
  }

  void Inspect() {
    sim_.Sleep(rules_.age + 60s);
    const auto inspector = NewProcess();
    for (auto& [key, known] : registers_) Use(*inspector, key, known);
    if (const auto swept = inspector->store->Sweep(kGroup); !swept.has_value()) {
      Complain(std::string(swept.error().message()));
    }
    sim_.Sleep(rules_.age + 60s);
    Erase(*inspector);
    for (auto& [key, known] : registers_) {
      const auto value = inspector->store->Read({kGroup, key});
      if (!value.has_value()) return Complain(std::string(value.error().message()));
      if (known.removed && value->value.has_value()) Complain(key + " came back in the calm");
      if (known.removed) ++(value->slot == 0 ? erased_at_last_ : kept_);
    }
  }

  void Complain(const std::string& why) {
    if (complaint_.empty()) complaint_ = why;
  }

  SimRuntime sim_;
  const Rules rules_;
  ReplicaSet set_;
  std::map<std::string, Register> registers_;
  int clients_left_ = kClients;
  std::vector<std::unique_ptr<Process>> graveyard_;
  uint64_t erased_ = 0;  // in the storm
  uint64_t erased_at_last_ = 0;
  uint64_t kept_ = 0;
  std::string complaint_;  // the first
};

TEST(RegisterEraserStorm, WhatWasRemovedNeverComesBack) {
  uint64_t erased = 0;
  uint64_t erased_at_last = 0;
  uint64_t kept = 0;
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed, seed % 2 == 0 ? 3 : 5, {});
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " register_test";
    erased += storm.erased();
    erased_at_last += storm.erased_at_last();
    kept += storm.kept();
  }
  if (seeds.end - seeds.first > 1) {
    EXPECT_GT(erased, 0u);
    EXPECT_LT(10 * kept, erased_at_last);
  }
}

// Tests of the test.
std::string FirstComplaint(const Storm::Rules& rules) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Storm storm(seed, 3, rules);
    storm.Run();
    if (!storm.complaint().empty()) return storm.complaint();
  }
  return "";
}

TEST(RegisterEraserStorm, FindsThatADriveWasNotHeard) {
  EXPECT_THAT(FirstComplaint({.erase_unheard = true}), HasSubstr("came back"));
}

TEST(RegisterEraserStorm, FindsThatLateRequestsWereNotWaitedFor) {
  EXPECT_THAT(FirstComplaint({.age = 0s}), HasSubstr("came back"));
}

}  // namespace
}  // namespace pinstripe
