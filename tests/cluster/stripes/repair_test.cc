// StripeStore::Repair: what it finds, what it does about it, and what it never does. Everything
// runs in simulated time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "cluster/stripes/store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_drives.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr StripeLayout k42{4, 2, 128 << 10};
constexpr int kShards = 6;

class StripeRepairTest : public testing::Test {
 protected:
  StripeRepairTest() : sim_(1), drives_(sim_, 8), store_(sim_, drives_, {.prefix = "\4test"}) {
    SetLogLevel(LogLevel::kError);
  }
  ~StripeRepairTest() override { SetLogLevel(LogLevel::kInfo); }

  void SetUp() override {
    data_.resize(400'000);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<char>(i * 7 + i / 251);
    order_ = *drives_.StripeDrives(1, id_.object, id_.block, k42.geometry());
  }

  // Another stripe each time, on the same drives.
  void Write() {
    ++id_.write[15];
    auto buffer = std::make_shared<StripeBuffer>(k42);
    CopyBytes(buffer->data(), AsBytes(data_));
    const auto place = store_.StartWrite(id_, buffer, data_.size())->Wait();
    ASSERT_OK(place);
    place_ = *place;
  }

  // Repairs, and takes over where the shards are then.
  StripeRepair Repair(bool read_all = false, std::set<DriveId> without = {}) {
    const auto repair = store_.Repair({.id = id_,
                                       .layout = k42,
                                       .length = data_.size(),
                                       .place = &place_,
                                       .read_all = read_all,
                                       .without = std::move(without)});
    EXPECT_OK(repair);
    place_ = repair->place;
    return *repair;
  }

  bool ReadsBack() {
    std::string text(data_.size(), '?');
    const MutableBytes out(reinterpret_cast<std::byte*>(text.data()), text.size());
    const Status status = store_.Read({id_, k42, data_.size(), &place_, 0, out});
    return status.ok() && text == data_;
  }

  // Whether any m drives may be lost: reads with each pair away.
  void ExpectAnyTwoMayBeAway() {
    for (DriveId a = 1; a <= drives_.size(); ++a) {
      for (DriveId b = 1; b < a; ++b) {
        drives_.SetDown(a, true);
        drives_.SetDown(b, true);
        EXPECT_TRUE(ReadsBack()) << "without the drives " << a << " and " << b;
        drives_.SetDown(a, false);
        drives_.SetDown(b, false);
      }
    }
  }

  Result<Record> Stored(int shard, DriveId drive) {
    Gather<Result<Record>> gather(sim_);
    drives_.memory(drive).Get(ShardKey("\4test", id_, shard), {}, Time::max(), gather.Ask(0));
    return std::move(gather.Next(Time::max())->value);
  }
  void Put(int shard, DriveId drive, std::string value, std::string version, std::string tag) {
    Gather<Status> gather(sim_);
    drives_.memory(drive).Put({.key = ShardKey("\4test", id_, shard),
                               .value = SharedBytes(std::move(value)),
                               .version = std::move(version),
                               .tag = std::move(tag)},
                              Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  // One bit of a stored shard turns over; the drive notices nothing.
  void Rot(int shard, size_t byte = 70'000) {
    const DriveId drive = order_[static_cast<size_t>(shard)];
    const Record record = *Stored(shard, drive);
    std::string value(record.value.text());
    value[byte] = static_cast<char>(value[byte] ^ 4);
    Put(shard, drive, value, record.version, record.tag);
  }

  // As a drive might make it up, or a writer compute it wrongly: all sums are right.
  void Forge(int shard, const StripeLayout& layout = k42, uint64_t length = 400'000) {
    const DriveId drive = order_[static_cast<size_t>(shard)];
    std::string value(Stored(shard, drive)->value.text());
    value[5] ^= 1;
    const ShardDescriptor descriptor = DescribeShard({id_, layout, length}, shard, AsBytes(value));
    Put(shard, drive, value, descriptor.Encode(), RecordTag(Crc32c(AsBytes(value))));
  }

  SimRuntime sim_;
  TestDrives drives_;
  StripeStore store_;
  StripeId id_{17, 3, {1, 2, 3}};
  std::string data_;
  std::vector<DriveId> order_;
  StripePlace place_;
};

TEST_F(StripeRepairTest, AWholeStripeIsLeftAlone) {
  Write();
  for (const bool read_all : {false, true}) {
    const StripeRepair repair = Repair(read_all);
    EXPECT_EQ(repair.good, kShards);
    EXPECT_EQ(repair.bytes_written, 0u);
    EXPECT_OK(repair.why);
    EXPECT_EQ(repair.bytes_read, read_all ? 6 * k42.ShardBytesOf(data_.size()) : 0);
  }
  EXPECT_EQ(drives_.requests().put, 6u) << "nothing but the writing of the stripe";
}

TEST_F(StripeRepairTest, ReplacedDrivesGetTheirShardsBackWhicheverTwo) {
  for (size_t a = 0; a < kShards; ++a) {
    for (size_t b = 0; b < a; ++b) {
      SCOPED_TRACE(fmt::format("shards {} and {}", a, b));
      Write();
      drives_.Replace(order_[a]);
      drives_.Replace(order_[b]);
      const StripeRepair repair = Repair();
      EXPECT_EQ(repair.missing, 2);
      EXPECT_EQ(repair.written, 2);
      EXPECT_EQ(repair.good, kShards);
      EXPECT_OK(repair.why);
      EXPECT_THAT(place_.moved, IsEmpty());
      EXPECT_EQ(Repair(/*read_all=*/true).good, kShards);
    }
  }
  ExpectAnyTwoMayBeAway();
}

TEST_F(StripeRepairTest, ARottenShardIsFoundByReadingAndIsGoodAfterwards) {
  Write();
  Rot(1);
  Rot(5);
  EXPECT_EQ(Repair(/*read_all=*/false).damaged, 0) << "nobody looked inside";
  const StripeRepair repair = Repair(/*read_all=*/true);
  EXPECT_EQ(repair.damaged, 2);
  EXPECT_EQ(repair.written, 2);
  EXPECT_EQ(Repair(/*read_all=*/true).damaged, 0);
  ExpectAnyTwoMayBeAway();
}

TEST_F(StripeRepairTest, AShardWithAnotherDescriptorIsDamaged) {
  Write();
  const Record other = *Stored(2, order_[2]);
  Put(1, order_[1], std::string(other.value.text()), other.version, other.tag);
  EXPECT_EQ(Repair().damaged, 1);
  EXPECT_EQ(Repair(/*read_all=*/true).good, kShards);
}

// Defect 2 of the ancestor: a rotten shard was reported as repaired, and stayed.
TEST_F(StripeRepairTest, NothingIsRepairedThatDoesNotReadBack) {
  Write();
  drives_.Replace(order_[0]);
  drives_.faulty(order_[0]).Set({.flip_bit = 1});
  for (size_t i = 6; i < order_.size(); ++i) drives_.SetDown(order_[i], true);  // the spares
  const StripeRepair repair = Repair();
  EXPECT_EQ(repair.written, 0);
  EXPECT_EQ(repair.good, 5);
  EXPECT_EQ(repair.why.code(), EBADMSG) << repair.why.message();
}

TEST_F(StripeRepairTest, AFullDriveIsPassedOverForASpare) {
  Write();
  drives_.Replace(order_[0]);
  drives_.faulty(order_[0]).Set({.full = true});
  const StripeRepair repair = Repair();
  EXPECT_EQ(repair.good, kShards);
  ASSERT_EQ(place_.moved.size(), 1u);
  EXPECT_EQ(place_.moved[0].shard, 0);
  EXPECT_EQ(place_.moved[0].drive, order_[6]);
  EXPECT_THAT(repair.obsolete, IsEmpty()) << "there was nothing";
  ExpectAnyTwoMayBeAway();
}

TEST_F(StripeRepairTest, ADriveThatIsAwayIsWaitedForUnlessItIsGivenUp) {
  Write();
  drives_.SetDown(order_[3], true);
  StripeRepair repair = Repair();
  EXPECT_EQ(repair.away, 1);
  EXPECT_EQ(repair.written, 0);
  EXPECT_THAT(repair.why.message(), HasSubstr("away"));

  repair = Repair(/*read_all=*/false, {order_[3]});
  EXPECT_EQ(repair.good, kShards);
  EXPECT_THAT(place_.moved, ElementsAre(StripePlace::Moved{3, order_[6]}));
  drives_.SetDown(order_[3], false);
  ExpectAnyTwoMayBeAway();
}

TEST_F(StripeRepairTest, ADriveThatCannotBeLeftIsSaidToBeInUse) {
  Write();
  drives_.SetDown(order_[6], true);
  drives_.SetDown(order_[7], true);
  const StripeRepair repair = Repair(/*read_all=*/false, {order_[3]});
  EXPECT_EQ(repair.stranded, 1);
  EXPECT_EQ(repair.relocated, 0);
  EXPECT_THAT(repair.why.message(), HasSubstr("no drive is free"));
  EXPECT_THAT(place_.moved, IsEmpty());
}

// Defect 3 of the ancestor: repair while a drive was away deleted the copy on the spare.
TEST_F(StripeRepairTest, ACopyOnASpareGoesOnlyAfterItIsHomeAndVerified) {
  drives_.SetDown(order_[2], true);
  Write();
  ASSERT_THAT(place_.moved, ElementsAre(StripePlace::Moved{2, order_[6]}));

  StripeRepair repair = Repair();
  EXPECT_THAT(repair.obsolete, IsEmpty());
  EXPECT_TRUE(Stored(2, order_[6]).has_value());

  drives_.SetDown(order_[2], false);
  repair = Repair();
  EXPECT_EQ(repair.relocated, 1);
  EXPECT_THAT(place_.moved, IsEmpty());
  EXPECT_TRUE(Stored(2, order_[6]).has_value()) << "whoever recorded the new place removes it";
  ASSERT_EQ(repair.obsolete.size(), 1u);
  EXPECT_EQ(repair.obsolete[0].copy, (ShardCopy{2, order_[6]}));
  ASSERT_OK(store_.DeleteObsolete(id_, repair.obsolete));
  EXPECT_FALSE(Stored(2, order_[6]).has_value());
  ExpectAnyTwoMayBeAway();
}

// Found by the simulation: a request to remove a copy came so late that a repair had put the shard
// on the same drive again.
TEST_F(StripeRepairTest, ALateRemovalOfAnEarlierCopyLeavesALaterOneAlone) {
  Write();
  const StripeRepair away = Repair(/*read_all=*/false, {order_[1]});
  ASSERT_EQ(away.obsolete.size(), 1u);
  ASSERT_THAT(place_.moved, ElementsAre(StripePlace::Moved{1, order_[6]}));
  const StripeRepair home = Repair();
  ASSERT_THAT(place_.moved, IsEmpty());
  ASSERT_OK(store_.DeleteObsolete(id_, away.obsolete));
  EXPECT_TRUE(Stored(1, order_[1]).has_value());
  ASSERT_OK(store_.DeleteObsolete(id_, home.obsolete));
  EXPECT_FALSE(Stored(1, order_[6]).has_value());
  EXPECT_EQ(Repair(/*read_all=*/true).good, kShards);
}

TEST_F(StripeRepairTest, AShardThatWasNeverStoredIsStoredAndItsMarkGoes) {
  for (size_t i : {2u, 6u, 7u}) drives_.SetDown(order_[i], true);
  Write();
  ASSERT_THAT(place_.moved, ElementsAre(StripePlace::Moved{2, 0}));
  EXPECT_EQ(Repair().written, 0);
  EXPECT_THAT(place_.moved, ElementsAre(StripePlace::Moved{2, 0})) << "it still waits";

  drives_.SetDown(order_[7], false);
  EXPECT_EQ(Repair().written, 1);
  EXPECT_THAT(place_.moved, ElementsAre(StripePlace::Moved{2, order_[7]})) << "on a spare for now";

  drives_.SetDown(order_[2], false);
  EXPECT_EQ(Repair().relocated, 1);
  EXPECT_THAT(place_.moved, IsEmpty());
  drives_.SetDown(order_[6], false);
  ExpectAnyTwoMayBeAway();
}

// The mark says that nobody knows of the shard, so that it is there is not believed unseen.
TEST_F(StripeRepairTest, AMarkGoesOnlyWhenTheShardWasRead) {
  Write();
  place_.moved = {{4, 0}};
  Rot(4);
  StripeRepair repair = Repair();
  EXPECT_EQ(repair.damaged, 1);
  EXPECT_EQ(repair.written, 1);
  EXPECT_THAT(place_.moved, IsEmpty());

  place_.moved = {{4, 0}};  // it arrived late, unharmed
  repair = Repair();
  EXPECT_EQ(repair.written, 0);
  EXPECT_THAT(place_.moved, IsEmpty());
}

// Defect 4 of the ancestor: repair deleted what was left of a lost stripe.
TEST_F(StripeRepairTest, WhatIsLeftOfALostStripeStays) {
  Write();
  for (int shard : {0, 1, 2}) drives_.Replace(order_[static_cast<size_t>(shard)]);
  const StripePlace before = place_;
  const StripeRepair repair = Repair();
  EXPECT_TRUE(repair.lost);
  EXPECT_EQ(repair.written, 0);
  EXPECT_THAT(repair.obsolete, IsEmpty());
  EXPECT_EQ(place_, before);
  EXPECT_EQ(repair.why.code(), EIO);
  for (int shard : {3, 4, 5}) {
    EXPECT_TRUE(Stored(shard, order_[static_cast<size_t>(shard)]).has_value());
  }
}

TEST_F(StripeRepairTest, MoreThanMShardsMayRotIfNotInTheSameCell) {
  Write();
  Rot(0, 10);
  Rot(1, 70'000);
  Rot(2, 20);
  const StripeRepair repair = Repair(/*read_all=*/true);
  EXPECT_EQ(repair.damaged, 3);
  EXPECT_EQ(repair.good, kShards);
  EXPECT_TRUE(ReadsBack());
}

// Of six shards whose sums are all right five say what the sixth has to be.
TEST_F(StripeRepairTest, AShardThatAllOthersContradictIsFoundByReadingAndMended) {
  for (int shard = 0; shard < kShards; ++shard) {
    Write();
    Forge(shard);
    EXPECT_EQ(Repair(/*read_all=*/false).damaged, 0) << "nobody looked inside";
    const StripeRepair repair = Repair(/*read_all=*/true);
    EXPECT_FALSE(repair.inconsistent);
    EXPECT_EQ(repair.damaged, 1);
    EXPECT_EQ(repair.written, 1);
    EXPECT_THAT(repair.contradicted, ElementsAre(fmt::format("shard {} on drive {}", shard,
                                                             order_[static_cast<size_t>(shard)])));
    EXPECT_EQ(Repair(/*read_all=*/true).damaged, 0);
    ExpectAnyTwoMayBeAway();
  }
}

TEST_F(StripeRepairTest, WhereNobodyCanTellWhichShardIsWrongNothingIsTouched) {
  const auto expect_untouched = [&](int missing) {
    const uint64_t puts = drives_.requests().put;
    const StripeRepair repair = Repair(/*read_all=*/true);
    EXPECT_TRUE(repair.inconsistent);
    EXPECT_THAT(repair.contradicted, IsEmpty());
    EXPECT_EQ(repair.damaged, 0);
    EXPECT_EQ(repair.missing, missing);
    EXPECT_EQ(repair.written, 0);
    EXPECT_EQ(drives_.requests().put, puts);
  };
  Write();
  Forge(1);
  Forge(4);
  expect_untouched(0);
  // With five at hand it is known that one is wrong, and no more; what is computed from four of
  // them might be wrong, too.
  Write();
  Forge(1);
  drives_.Replace(order_[3]);
  expect_untouched(1);
}

TEST_F(StripeRepairTest, ADryRunTellsWhichShardIsContradicted) {
  Write();
  Forge(2);
  const auto repair = store_.Repair({.id = id_,
                                     .layout = k42,
                                     .length = data_.size(),
                                     .place = &place_,
                                     .read_all = true,
                                     .dry_run = true});
  ASSERT_OK(repair);
  EXPECT_EQ(repair->contradicted.size(), 1u);
  EXPECT_EQ(repair->written, 0);
  EXPECT_EQ(repair->why.code(), EBADMSG);
}

// Of copies the descriptors say enough.
TEST_F(StripeRepairTest, OfThreeCopiesTheOneThatDiffersIsMendedUnread) {
  const StripeLayout copies{1, 2, 64 << 10};
  const auto buffer = std::make_shared<StripeBuffer>(copies);
  CopyBytes(buffer->data(), AsBytes("what was written"));
  const Result<StripePlace> place = store_.StartWrite(id_, buffer, 16)->Wait();
  ASSERT_OK(place);
  order_ = *drives_.StripeDrives(1, id_.object, id_.block, copies.geometry());
  const auto repair = [&] {
    return *store_.Repair({.id = id_, .layout = copies, .length = 16, .place = &place.value()});
  };
  Forge(1, copies, 16);
  StripeRepair found = repair();
  EXPECT_THAT(found.contradicted, ElementsAre(fmt::format("shard 1 on drive {}", order_[1])));
  EXPECT_EQ(found.written, 1);
  EXPECT_EQ(Stored(1, order_[1])->value.text().substr(0, 16), "what was written");

  drives_.SetDown(order_[0], true);
  Forge(1, copies, 16);
  found = repair();
  EXPECT_TRUE(found.inconsistent) << "one copy against one";
  EXPECT_EQ(found.written, 0);
}

TEST_F(StripeRepairTest, ADryRunChangesNothing) {
  Write();
  drives_.Replace(order_[0]);
  const uint64_t puts = drives_.requests().put;
  const auto repair = store_.Repair(
      {.id = id_, .layout = k42, .length = data_.size(), .place = &place_, .dry_run = true});
  ASSERT_OK(repair);
  EXPECT_EQ(repair->missing, 1);
  EXPECT_EQ(repair->good, 5);
  EXPECT_EQ(drives_.requests().put, puts);
}

TEST_F(StripeRepairTest, ALengthThatCannotBeIsRefused) {
  Write();
  for (const uint64_t length : {uint64_t{0}, k42.block_bytes() + 1}) {
    EXPECT_EQ(store_.Repair({.id = id_, .layout = k42, .length = length, .place = &place_})
                  .error()
                  .code(),
              EBADMSG);
  }
}

}  // namespace
}  // namespace pinstripe
