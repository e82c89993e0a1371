// Clients write, read, repair and delete stripes while drives come and go, lose and repeat
// requests, answer rotten bytes or with other records than were asked for, fill up, and burn down,
// one after the other: the next one not before what the last one had was repaired.
//
// What must hold, whatever happens (the promises in cluster/stripes/store.h):
//   - during the storm, a read of an acknowledged stripe returns what was written or EIO: never
//     other bytes, and never ENOENT;
//   - in the calm after it, every acknowledged stripe reads back as written, whole or in part.
// The storm stays within what the store promises to survive: any number of drives may misbehave at
// a time, since a write that finds too few of them is not acknowledged; one at a time is lost for
// good.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/stripes/store.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_drives.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kClients = 3;
constexpr uint64_t kStepsPerClient = 30;
constexpr size_t kDrives = 8;
constexpr StripeLayout kLayouts[] = {
    {4, 2, 128 << 10}, {4, 2, 128 << 10}, {1, 2, 64 << 10}, {3, 3, 64 << 10}};

// Weakened twins, which the storm must find out.
struct Weakness {
  int min_redundancy = 1;
  bool forgets_repair = false;  // drives go on burning, and nothing is repaired
  bool check_names = true;      // false: nobody looks whose a shard is
};

class Storm {
 public:
  explicit Storm(uint64_t seed, Weakness weakness = {})
      : weakness_(weakness),
        sim_(seed),
        drives_(sim_, kDrives),
        store_(std::make_unique<StripeStore>(
            sim_, drives_,
            StripeStore::Options{.prefix = "\4test",
                                 .min_redundancy = weakness.min_redundancy,
                                 .check_names = weakness.check_names})) {}

  void Run() {
    for (int client = 0; client < kClients; ++client) {
      sim_.Spawn(fmt::format("client {}", client), [this, client] { Client(client); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    sim_.Run();
    for (const auto& [number, stripe] : acknowledged_) Check(stripe, number, /*may_fail=*/false);
    if (!store_->WaitForRepairs(sim_.Now() + seconds(600))) Complain("repairs do not end");
    counters_ = store_->counters();
    store_.reset();
  }

  const std::string& complaint() const { return complaint_; }
  size_t acknowledged() const { return acknowledged_.size(); }
  uint64_t trace_hash() const { return sim_.trace_hash(); }
  const StripeCounters& counters() const { return counters_; }
  int burned() const { return burned_; }
  uint64_t relocated() const { return relocated_; }

 private:
  struct Stripe {
    StripeId id;
    StripeLayout layout;
    StripePlace place;
    std::string data;
  };

  void Client(int client) {
    for (uint64_t step = 0; step < kStepsPerClient; ++step) {
      if (sim_.Chance(0.3)) sim_.Sleep(sim_.Between(milliseconds(1), milliseconds(500)));
      if (acknowledged_.empty() || sim_.Chance(0.5)) {
        Write({static_cast<uint64_t>(client), step, MakeWriteId(1, 1, 0)});
        continue;
      }
      auto chosen = acknowledged_.begin();
      std::advance(chosen, sim_.Below(acknowledged_.size()));
      const auto [number, stripe] = *chosen;  // a copy: another client may delete it meanwhile
      if (sim_.Chance(0.1)) {
        acknowledged_.erase(number);
        (void)store_->Delete(stripe.id, stripe.layout, stripe.place);
      } else if (sim_.Chance(0.2)) {
        std::set<DriveId> without;
        if (sim_.Chance(0.2)) without.insert(AnyDrive());
        (void)Repair(number, without);
      } else {
        Check(stripe, number, /*may_fail=*/true);
      }
    }
    ++clients_done_;
  }

  void Write(const StripeId& id) {
    Stripe stripe{id, kLayouts[sim_.Below(std::size(kLayouts))], {}, {}};
    // Some of one length, so that their shards can be taken for each other.
    stripe.data.resize(sim_.Chance(0.5)   ? 1000
                       : sim_.Chance(0.3) ? 1 + sim_.Below(stripe.layout.block_bytes())
                                          : 1 + sim_.Below(2000));
    const uint64_t salt = sim_.Random();
    for (size_t i = 0; i < stripe.data.size(); ++i) {
      stripe.data[i] = static_cast<char>((salt >> (i % 57)) + i * 31);
    }
    auto buffer = std::make_shared<StripeBuffer>(stripe.layout);
    CopyBytes(buffer->data(), AsBytes(stripe.data));
    const auto write = store_->StartWrite(id, buffer, stripe.data.size());
    if (sim_.Chance(0.05)) return;  // nobody waits for it
    if (sim_.Chance(0.1)) sim_.Sleep(seconds(30));
    const Result<StripePlace> place = write->Wait();
    if (place.has_value()) {
      stripe.place = *place;
      acknowledged_[next_number_++] = std::move(stripe);
    } else if (place.error().code() != EIO && place.error().code() != ENOSPC) {
      Complain(std::string(place.error().message()));
    }
  }

  void Check(const Stripe& stripe, uint64_t number, bool may_fail) {
    const size_t length = stripe.data.size();
    uint64_t offset = 0;
    uint64_t size = length;
    if (sim_.Chance(0.5)) {
      offset = sim_.Below(length);
      size = 1 + sim_.Below(length - offset);
    }
    std::string text(size, '?');
    const Status read = store_->Read({stripe.id,
                                      stripe.layout,
                                      length,
                                      &stripe.place,
                                      offset,
                                      {reinterpret_cast<std::byte*>(text.data()), text.size()},
                                      /*only_pages=*/sim_.Chance(0.5)});
    if (read.ok() && text != stripe.data.substr(offset, size)) Complain("other bytes");
    const bool deleted = !acknowledged_.contains(number);
    if (!read.ok() && !deleted && !(may_fail && read.code() == EIO)) {
      Complain(std::string(read.message()));
    }
  }

  // As whoever keeps the places of stripes does it. False: it is not whole.
  bool Repair(uint64_t number, const std::set<DriveId>& without = {}) {
    const Stripe before = acknowledged_.at(number);
    const auto repair = store_->Repair({.id = before.id,
                                        .layout = before.layout,
                                        .length = before.data.size(),
                                        .place = &before.place,
                                        .read_all = sim_.Chance(0.3),
                                        .without = without});
    if (!repair.has_value()) {
      Complain(std::string(repair.error().message()));
      return false;
    }
    if (repair->inconsistent) Complain("shards that contradict each other");
    for (const std::string& shard : repair->contradicted) Complain(shard + " is contradicted");
    const auto now = acknowledged_.find(number);
    if (now == acknowledged_.end() || now->second.place != before.place) return false;
    now->second.place = repair->place;
    (void)store_->DeleteObsolete(before.id, repair->obsolete);
    relocated_ += static_cast<uint64_t>(repair->relocated);
    why_not_whole_ = std::string(repair->why.message());
    return repair->good == before.layout.geometry().shards();
  }

  // Everything that is there, with all drives well.
  void RepairAll() {
    for (DriveId id = 1; id <= kDrives; ++id) drives_.faulty(id).Set({});
    sim_.Sleep(seconds(30));  // until what is on its way has arrived
    std::vector<uint64_t> numbers;
    for (const auto& [number, stripe] : acknowledged_) numbers.push_back(number);
    for (const uint64_t number : numbers) {
      // Clients may be repairing, or deleting, the same one.
      for (int attempt = 0; acknowledged_.contains(number) && !Repair(number); ++attempt) {
        if (attempt == 20) return Complain("all drives are well, and still " + why_not_whole_);
        sim_.Sleep(seconds(1));
      }
    }
  }

  void Burn() {
    drives_.Replace(AnyDrive());
    ++burned_;
  }

  // Drives fall ill and recover, several at a time; one burns, and when that was repaired, another.
  void Weather() {
    while (clients_done_ < kClients) {
      for (uint64_t sick = 1 + sim_.Below(4); sick > 0; --sick) FallIll(AnyDrive());
      sim_.Sleep(sim_.Between(milliseconds(1), seconds(4)));
      for (DriveId id = 1; id <= kDrives; ++id) {
        if (sim_.Chance(0.7)) drives_.faulty(id).Set({});
      }
      if (!sim_.Chance(0.2)) continue;
      if (burned_ > 0 && !weakness_.forgets_repair) RepairAll();
      Burn();
    }
    if (burned_ == 0) Burn();
    for (DriveId id = 1; id <= kDrives; ++id) drives_.faulty(id).Set({});
    sim_.Sleep(seconds(30));  // until what is on its way has arrived
  }

  void FallIll(DriveId id) {
    DriveFaults faults;
    switch (sim_.Below(8)) {
      case 0: faults.down = true; break;
      case 1: faults.lose_request = 0.5; break;
      case 2: faults.lose_answer = 0.5; break;
      case 3: faults.flip_bit = 0.8; break;
      case 4: faults.full = true; break;
      case 5: faults.duplicate_request = 0.5; break;
      case 6: faults.most_latency = seconds(4); break;
      case 7: faults.mix_up = 0.7; break;
    }
    drives_.faulty(id).Set(faults);
  }

  DriveId AnyDrive() { return static_cast<DriveId>(1 + sim_.Below(kDrives)); }

  void Complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

  const Weakness weakness_;
  SimRuntime sim_;
  TestDrives drives_;
  std::unique_ptr<StripeStore> store_;
  std::map<uint64_t, Stripe> acknowledged_;  // threads take turns, so none of this needs a lock
  uint64_t next_number_ = 1;
  int clients_done_ = 0;
  int burned_ = 0;
  uint64_t relocated_ = 0;
  std::string why_not_whole_;  // the stripe that was repaired last
  std::string complaint_;
  StripeCounters counters_;
};

class StripeStoreSim : public testing::Test {
 protected:
  StripeStoreSim() { SetLogLevel(LogLevel::kError); }
  ~StripeStoreSim() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(StripeStoreSim, AcknowledgedStripesSurviveTheStorm) {
  const Seeds seeds = SeedsFromEnvironment(100);
  StripeCounters sum;
  int most_burned = 0;
  uint64_t relocated = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed);
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: ./dev sim SEED=" << seed;
    ASSERT_GT(storm.acknowledged(), 0u) << "seed " << seed << " tested nothing";
    sum.degraded_reads += storm.counters().degraded_reads;
    sum.rewritten_shards += storm.counters().rewritten_shards;
    sum.spare_writes += storm.counters().spare_writes;
    most_burned = std::max(most_burned, storm.burned());
    relocated += storm.relocated();
  }
  // The weather was bad enough for every way of coping to be used.
  EXPECT_GT(sum.degraded_reads, 0u);
  EXPECT_GT(sum.rewritten_shards, 0u);
  EXPECT_GT(sum.spare_writes, 0u);
  EXPECT_GT(most_burned, 2);
  EXPECT_GT(relocated, 0u);
}

TEST_F(StripeStoreSim, OneSeedIsOneRun) {
  Storm one(7);
  one.Run();
  Storm two(7);
  two.Run();
  EXPECT_EQ(one.trace_hash(), two.trace_hash());
}

// A test of the test: acknowledge with k shards, and the storm must notice.
TEST_F(StripeStoreSim, TheStormFindsAStoreThatAcknowledgesWithoutRedundancy) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Storm storm(seed, {.min_redundancy = 0});
    storm.Run();
    if (!storm.complaint().empty()) return;
  }
  FAIL() << "500 storms did not find it";
}

// Take whatever a drive answers with for what was asked of it.
TEST_F(StripeStoreSim, TheStormFindsAStoreThatDoesNotLookWhoseAShardIs) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Storm storm(seed, {.check_names = false});
    storm.Run();
    if (storm.complaint() == "other bytes") return;
  }
  FAIL() << "500 storms did not find it";
}

// And burn one drive after the other without a repair.
TEST_F(StripeStoreSim, TheStormNeedsRepairs) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Storm storm(seed, {.forgets_repair = true});
    storm.Run();
    if (storm.complaint().find("shards needed can be read") != std::string::npos) return;
  }
  FAIL() << "500 storms did not find it";
}

}  // namespace
}  // namespace pinstripe
