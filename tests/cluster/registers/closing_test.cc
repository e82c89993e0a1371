// A directory is closed while others put something into it: ChangeBoth() with a witness against
// ScanAfter() and ReadPinned(), as fs/names uses them ("Removing directories" in docs/format.md).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/gather.h"
#include "cluster/registers/call.h"
#include "cluster/registers/record.h"
#include "cluster/registers/store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/replica_set.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

const RegisterName kDirectory{7, "I0"};

RegisterName EntryOf(int maker) { return {7, fmt::format("E{}", maker)}; }

// Makers, each with one name, and removers of the directory, on five drives whose answers take
// anything between no time and long.
class ClosingGame {
 public:
  explicit ClosingGame(uint64_t seed) : sim_(seed), set_(sim_, 5) {}

  // Whether a maker has a name that he was told he has, in a directory that is gone.
  bool LosesAFile() {
    set_.SetAll({.least_latency = 0ms,
                 .most_latency = sim_.Between(2ms, 60ms),
                 .lose_request = 0.01,
                 .lose_answer = 0.01,
                 .duplicate_request = 0.02,
                 .duplicate_delay = 100ms});
    const auto first = NewStore();
    EXPECT_OK(first->Change(kDirectory, {}, "open"));
    constexpr int kMakers = 2;
    constexpr int kRemovers = 2;
    int busy = kMakers + kRemovers;
    const auto done = sim_.NewSignal();
    const auto run = [&](std::string what, auto body) {
      sim_.Spawn(std::move(what), [&, body, store = std::shared_ptr(NewStore())] {
        body(*store);
        if (--busy == 0) done->Set();
      });
    };
    for (int i = 0; i < kMakers; ++i) {
      run("maker", [this, i](RegisterStore& store) { Make(store, i); });
    }
    for (int i = 0; i < kRemovers; ++i) {
      run("remover", [this](RegisterStore& store) { Remove(store); });
    }
    while (busy > 0) done->WaitUntil(Time::max());
    return removed_ && std::ranges::count(told_, true) > 0;
  }

  int witnessed() const { return witnessed_; }
  bool removed() const { return removed_; }

 private:
  std::unique_ptr<RegisterStore> NewStore() {
    clients_.push_back(std::make_unique<ReplicaClient>(sim_, set_));
    return std::make_unique<RegisterStore>(
        sim_, *clients_.back(), RegisterStore::Options{.prefix = "\1c", .drive_timeout = 300ms});
  }

  // False: the directory is gone.
  bool IsOpen(RegisterStore& store) {
    for (;;) {
      const auto read = store.Read(kDirectory);
      if (!read.has_value()) continue;
      if (!read->value) return false;
      if (*read->value == "open") return true;
      if (store.Change(kDirectory, *read, "open").applied()) return true;
    }
  }

  // A new file its name, or one that is there already.
  std::pair<bool, std::optional<RegisterValue>> Give(RegisterStore& store,
                                                     const RegisterName& inode,
                                                     const RegisterName& name,
                                                     const RegisterValue& entry) {
    if (sim_.Chance(0.5)) {
      auto both = store.ChangeBoth({inode, {}, "inode"}, {name, entry, inode.key}, {}, &kDirectory);
      return {both.first.applied() && both.second.applied(), std::move(both.witness)};
    }
    if (!store.Change(inode, {}, "inode").applied()) return {};
    auto [change, witness] = store.ChangeWitnessed({name, entry, inode.key}, {}, kDirectory);
    return {change.applied(), std::move(witness)};
  }

  void Make(RegisterStore& store, int maker) {
    RegisterValue entry;
    for (int round = 0; round < 6; ++round) {
      sim_.Sleep(sim_.Between(0ms, 80ms));
      const RegisterName inode{7, fmt::format("I{} {}", maker + 1, round)};
      const auto [is_made, witness] = Give(store, inode, EntryOf(maker), entry);
      if (is_made) {
        const bool told = witness && witness->value == "open";
        witnessed_ += told;
        if (told || IsOpen(store)) told_[maker] = true;
      }
      if (told_[maker] && sim_.Between(0ms, 3ms) < 1ms) return;  // it stays
      told_[maker] = false;
      // What became of an uncertain one is found out by the next.
      for (;;) {
        const auto read = store.Read(EntryOf(maker));
        if (!read.has_value()) continue;
        entry = *read;
        if (!entry.value) break;
        (void)store.Change(EntryOf(maker), entry, std::nullopt);
      }
    }
  }

  void Remove(RegisterStore& store) {
    for (int round = 0; round < 6; ++round) {
      sim_.Sleep(sim_.Between(0ms, 100ms));
      const auto found = store.Read(kDirectory);
      if (!found.has_value()) continue;
      if (!found->value) return;
      RegisterHolding mark{.name = kDirectory};
      const auto marked =
          store.Change(kDirectory, *found, fmt::format("closed {}", ++marks_), {}, &mark);
      if (!marked.applied()) continue;
      mark.slot = marked.now.slot;
      const auto is_empty = IsEmpty(store, mark);
      if (!is_empty.has_value()) continue;
      const auto removed = store.Change(
          kDirectory, marked.now,
          *is_empty ? std::optional<std::string>() : std::optional<std::string>("open"));
      if (*is_empty && removed.applied()) {
        removed_ = true;
        return;
      }
    }
  }

  Result<bool> IsEmpty(RegisterStore& store, RegisterHolding& mark) {
    const auto page = store.ScanAfter(mark, "E", "F", 10);
    if (!page.has_value()) return Failed(page.error());
    EXPECT_FALSE(page->next);
    for (const auto& [key, value] : page->entries) {
      const RegisterName inode{7, *value.value};
      const auto read = store.ReadPinned(inode);
      if (!read.has_value()) return Failed(read.error());
      if (read->value) return false;
    }
    return true;
  }

  SimRuntime sim_;
  ReplicaSet set_;
  std::vector<std::unique_ptr<ReplicaClient>> clients_;
  bool told_[2] = {};
  bool removed_ = false;
  int witnessed_ = 0;
  int marks_ = 0;
};

TEST(Closing, NobodyIsToldOfAFileInADirectoryThatGoes) {
  int witnessed = 0;
  int removed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    ClosingGame game(seed);
    ASSERT_FALSE(game.LosesAFile()) << "seed " << seed;
    witnessed += game.witnessed();
    removed += game.removed();
  }
  EXPECT_GT(witnessed, 100);
  EXPECT_GT(removed, 20);
}

// The worst that may happen, step by step, on five drives. The maker's message is at drives 3 and 4
// before the directory is marked, and reaches 1 and 2 when all is over. Drive 5 never gets it. What
// the remover does goes by three of the drives each time.
class ClosingTest : public testing::Test {
 protected:
  ClosingTest() {
    set_.SetAll({.least_latency = 1ms, .most_latency = 1ms});
    EXPECT_OK(NewStore()->Change(kDirectory, {}, "open"));
    sim_.Sleep(1s);
    maker_ = NewStore();
    std::span drives(clients_.back()->drives);
    for (FaultyDrive* drive : {drives[0].get(), drives[1].get()}) {
      drive->Set({.least_latency = 1s, .most_latency = 1s});
    }
    drives[4]->Set({.lose_request = 1});
    remover_ = NewStore();
    sim_.Spawn("maker", [this] {
      const auto both =
          maker_->ChangeBoth({{7, "I1"}, {}, "inode"}, {{7, "E1"}, {}, "I1"}, {}, &kDirectory);
      is_made_ = both.first.applied() && both.second.applied();
      is_told_ = is_made_ && both.witness && both.witness->value == "open";
      is_over_ = true;
      done_->Set();
    });
    sim_.Sleep(100ms);
  }
  void TearDown() override { WaitForTheMaker(); }

  void WaitForTheMaker() {
    while (!is_over_) done_->WaitUntil(Time::max());
  }

  std::unique_ptr<RegisterStore> NewStore() {
    clients_.push_back(std::make_unique<ReplicaClient>(sim_, set_));
    return std::make_unique<RegisterStore>(sim_, *clients_.back(),
                                           RegisterStore::Options{.prefix = "\1c"});
  }
  // From now on the remover does not reach these two drives.
  void Without(size_t a, size_t b) {
    for (size_t i = 0; i < 5; ++i)
      clients_.back()->drives[i]->Set({.down = i + 1 == a || i + 1 == b});
  }
  RegisterHolding Mark() {
    Without(1, 2);
    RegisterHolding mark{.name = kDirectory};
    const auto marked = remover_->Change(kDirectory, {.slot = 1}, "closed", {}, &mark);
    EXPECT_TRUE(marked.applied());
    EXPECT_EQ(mark.slot, 2u);
    EXPECT_EQ(mark.drives.size(), 3u);
    return mark;
  }
  void PromiseLater(size_t drive) {
    MemoryDrive& memory = *set_.memory[drive - 1];
    const std::string key = RegisterRecordKey("\1c", kDirectory);
    Gather<Result<Record>> records(sim_);
    memory.Get(key, {}, sim_.Now() + 1s, records.Ask(0));
    const auto state = DecodeRegister(key, *records.Next(Time::max())->value);
    ASSERT_OK(state);
    const Ballot later{.slot = 3, .round = 1, .proposer = 7};
    Gather<Status> puts(sim_);
    memory.Put(EncodeRegisterPut(key, EncodeRegisterVersion(state->promised, state->accepted),
                                 {later, state->accepted, state->proposal}, Durability::kWriteBack),
               sim_.Now() + 1s, puts.Ask(0));
    EXPECT_OK(puts.Next(Time::max())->value);
  }
  // The name is found. Its inode is looked for at drives that do not have it.
  void RemoveWhatLooksEmptyBy(Result<RegisterValue> (RegisterStore::*read)(const RegisterName&)) {
    RegisterHolding mark = Mark();
    ASSERT_EQ(remover_->ScanAfter(mark, "E", "F", 10)->entries.size(), 1u);
    Without(3, 4);
    const auto inode = ((*remover_).*read)({7, "I1"});
    ASSERT_OK(inode);
    EXPECT_FALSE(inode->value);
    EXPECT_TRUE(Remove());
  }
  // Then the rest of the maker's messages arrives.
  bool Remove() {
    Without(1, 2);
    const bool removed = remover_->Change(kDirectory, {.slot = 2}, std::nullopt).applied();
    WaitForTheMaker();
    return removed;
  }

  SimRuntime sim_{1};
  ReplicaSet set_{sim_, 5};
  std::vector<std::unique_ptr<ReplicaClient>> clients_;
  std::unique_ptr<RegisterStore> maker_;
  std::unique_ptr<RegisterStore> remover_;
  const std::shared_ptr<Signal> done_ = sim_.NewSignal();
  bool is_over_ = false;
  bool is_made_ = false;
  bool is_told_ = false;
};

TEST_F(ClosingTest, TheMakerKnowsByTheWitnessThatItWasOpen) {
  WaitForTheMaker();
  EXPECT_TRUE(is_told_);
}

TEST_F(ClosingTest, ADriveThatHasTheMarkTellsOfWhatItTookBefore) {
  RegisterHolding mark = Mark();
  const auto page = remover_->ScanAfter(mark, "E", "F", 10);
  ASSERT_OK(page);
  ASSERT_EQ(page->entries.size(), 1u);
  EXPECT_EQ(*remover_->ReadPinned({7, "I1"})->value, "inode");
}

// Drives without the mark do not count, and those that get it now tell the maker.
TEST_F(ClosingTest, WhoListsByOtherDrivesBringsThemTheMark) {
  RegisterHolding mark = Mark();
  Without(3, 4);
  const auto page = remover_->ScanAfter(mark, "E", "F", 10);
  ASSERT_OK(page);
  EXPECT_TRUE(page->entries.empty());
  EXPECT_TRUE(Remove());
  EXPECT_FALSE(is_told_);
}
TEST_F(ClosingTest, AndIsDeceivedIfHeDoesNot) {
  (void)Mark();
  Without(3, 4);
  const auto page = remover_->Scan(7, "E", "F", 10);
  ASSERT_OK(page);
  EXPECT_TRUE(page->entries.empty());
  EXPECT_TRUE(Remove());
  EXPECT_TRUE(is_told_);
}

// The name is found, and its inode is on drives that do not answer.
TEST_F(ClosingTest, AnInodeThatIsReadForGoodIsNotWrittenInTheFastRoundAnyMore) {
  RemoveWhatLooksEmptyBy(&RegisterStore::ReadPinned);
  EXPECT_FALSE(is_told_);
}
TEST_F(ClosingTest, OneThatIsJustReadIs) {
  RemoveWhatLooksEmptyBy(&RegisterStore::Read);
  EXPECT_TRUE(is_told_);
}

// Drives 1 and 2 have promised something later to somebody who died. So nobody brings them the
// mark, and with 4 and 5 away too few have it.
TEST_F(ClosingTest, ItIsSaidWhereTooFewCanBeMadeToHoldTheMark) {
  RegisterHolding mark = Mark();
  for (const size_t drive : {1, 2, 3}) PromiseLater(drive);
  Without(4, 5);
  EXPECT_EQ(remover_->Read(kDirectory)->slot, 2u);
  EXPECT_FAILS(remover_->ScanAfter(mark, "E", "F", 10), ESTALE);
}

TEST_F(ClosingTest, WhoListsAfterAMarkThatIsGoneIsToldSo) {
  RegisterHolding mark = Mark();
  Without(0, 0);
  ASSERT_TRUE(NewStore()->Change(kDirectory, {.slot = 2}, "open").applied());
  mark.drives.clear();
  EXPECT_FAILS(remover_->ScanAfter(mark, "E", "F", 10), ESTALE);
}

// It takes several times as long as answers count.
TEST(Closing, ADirectoryFromWhichVeryManyWereRemovedIsListedToItsEnd) {
  SimRuntime sim{1};
  ReplicaSet set{sim, 3};
  ReplicaClient client{sim, set};
  RegisterStore store(sim, client, {.prefix = "\1c", .drive_timeout = 3s, .answers_count = 4s});
  set.SetAll({.least_latency = 0ms, .most_latency = 0ms});
  for (int i = 0; i < 5000; ++i) {
    const RegisterName name{7, fmt::format("E{}", i)};
    ASSERT_TRUE(store.Change(name, {}, "entry").applied());
    ASSERT_TRUE(store.Change(name, {.slot = 1}, std::nullopt).applied());
  }
  sim.Sleep(1s);
  set.SetAll({.least_latency = 700ms, .most_latency = 700ms});
  RegisterHolding mark{.name = kDirectory};
  ASSERT_TRUE(store.Change(kDirectory, {}, "closed", {}, &mark).applied());
  const Time start = sim.Now();
  const auto page = store.ScanAfter(mark, "E", "F", 10);
  ASSERT_OK(page);
  EXPECT_TRUE(page->entries.empty());
  EXPECT_FALSE(page->next);
  EXPECT_GT(sim.Now() - start, 8s);
}

}  // namespace
}  // namespace pinstripe
