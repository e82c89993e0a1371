// A drive that answers with another record than the one that was asked for, or with parts of two.
// Readers deliver what was written, or an error, and never other bytes; who looks for damage finds
// it; and it is mended. Here the wrong record lies where the right one should be, which looks the
// same from outside as a drive that mixes up its answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

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

using testing::HasSubstr;
using testing::IsEmpty;

constexpr StripeLayout k42{4, 2, 128 << 10};
constexpr StripeLayout kCopies{1, 2, 128 << 10};

std::string RandomText(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class MixedUp : public testing::Test {
 protected:
  MixedUp() : sim_(1), drives_(sim_, 8), store_(sim_, drives_, {.prefix = "\4test"}) {
    SetLogLevel(LogLevel::kWarn);
    SetLogSink([this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  ~MixedUp() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }

  // Blocks are full and of the same length: shards of two of them differ in nothing but their
  // bytes.
  static uint64_t LengthOf(const StripeLayout& layout) { return layout.block_bytes(); }

  StripePlace Write(const StripeId& id, const StripeLayout& layout, const std::string& data) {
    auto buffer = std::make_shared<StripeBuffer>(layout);
    CopyBytes(buffer->data(), AsBytes(data));
    const auto place = store_.StartWrite(id, buffer, data.size())->Wait();
    EXPECT_OK(place);
    return place.value_or(StripePlace());
  }
  Result<std::string> Read(const StripeId& id, const StripeLayout& layout, const StripePlace& place,
                           uint64_t offset, uint64_t size) {
    std::string text(size, '?');
    const MutableBytes out(reinterpret_cast<std::byte*>(text.data()), text.size());
    const Status status = store_.Read({id, layout, LengthOf(layout), &place, offset, out});
    if (!status.ok()) return Failed(status);
    return text;
  }
  DriveId HomeOf(const StripeId& id, const StripeLayout& layout, int shard) {
    const auto order = *drives_.StripeDrives(1, id.object, id.block, layout.geometry());
    return order[static_cast<size_t>(shard)];
  }
  Record Stored(const StripeId& id, const StripeLayout& layout, int shard) {
    Gather<Result<Record>> gather(sim_);
    drives_.memory(HomeOf(id, layout, shard))
        .Get(ShardKey("\4test", id, shard), {}, Time::max(), gather.Ask(0));
    const auto record = std::move(gather.Next(Time::max())->value);
    EXPECT_OK(record);
    return record.value_or(Record());
  }
  void PutThere(const StripeId& id, const StripeLayout& layout, int shard, const Record& record) {
    Gather<Status> gather(sim_);
    drives_.memory(HomeOf(id, layout, shard))
        .Put({.key = ShardKey("\4test", id, shard),
              .value = record.value,
              .version = record.version,
              .tag = record.tag},
             Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  void WaitForRepairs() {
    ASSERT_TRUE(store_.WaitForRepairs(sim_.Now() + std::chrono::seconds(60)));
  }

  SimRuntime sim_;
  TestDrives drives_;
  StripeStore store_;
  std::string log_;
};

// ---- One shard

enum class Mix {
  kAnotherObject,
  kAnotherBlock,
  kAnotherShard,
  kAnotherWrite,
  kAnotherValue,
  kAnotherDescriptor,
};
struct Case {
  Mix mix;
  StripeLayout layout;
};

class MixedUpShard : public MixedUp, public testing::WithParamInterface<Case> {
 protected:
  const StripeLayout layout_ = GetParam().layout;
  const uint64_t length_ = LengthOf(layout_);
  const int shard_ = layout_.data_shards == 1 ? 0 : 1;  // that is mixed up
  const StripeId id_{17, 3, MakeWriteId(1'700'000'000, 7, 0)};
  const std::string data_ = RandomText(length_, 1);

  void SetUp() override {
    place_ = Write(id_, layout_, data_);
    right_ = Stored(id_, layout_, shard_);
    PutThere(id_, layout_, shard_, Wrong());
  }

  Record Wrong() {
    StripeId other = id_;
    int shard = shard_;
    switch (GetParam().mix) {
      case Mix::kAnotherObject:
      case Mix::kAnotherValue:
      case Mix::kAnotherDescriptor: other.object = 18; break;
      case Mix::kAnotherBlock: other.block = 4; break;
      case Mix::kAnotherWrite: other.write = MakeWriteId(1'700'000'000, 7, 1); break;
      case Mix::kAnotherShard: shard = shard_ + 1; break;
    }
    // On the same drives, as a drive can only mix up what it has; it need not be so here.
    if (other != id_) Write(other, layout_, RandomText(length_, 2));
    const Record others = Stored(other, layout_, shard);
    switch (GetParam().mix) {
      case Mix::kAnotherValue: return {right_.version, right_.tag, others.value};
      case Mix::kAnotherDescriptor: return {others.version, others.tag, right_.value};
      default: return others;
    }
  }
  // Whether its descriptor is right, so that only who reads the value notices.
  bool LooksRight() const { return GetParam().mix == Mix::kAnotherValue; }

  void ExpectMended() {
    WaitForRepairs();
    const Record now = Stored(id_, layout_, shard_);
    std::vector<bool> good(PageCount(layout_.shard_bytes));
    EXPECT_OK(
        CheckPages({id_, layout_, length_}, AllPages(shard_, layout_.shard_bytes), now, good));
    EXPECT_TRUE(now.value.text() == right_.value.text());
  }
  std::string DriveName() {
    return std::string(drives_.FindDrive(HomeOf(id_, layout_, shard_))->name());
  }
  StripeRepair Repair(bool read_all) {
    const auto repair = store_.Repair(
        {.id = id_, .layout = layout_, .length = length_, .place = &place_, .read_all = read_all});
    EXPECT_OK(repair);
    return repair.value_or(StripeRepair());
  }

  StripePlace place_;
  Record right_;
};

TEST_P(MixedUpShard, IsNotWhatAReaderOfTheBlockGets) {
  const auto text = Read(id_, layout_, place_, 0, length_);
  ASSERT_OK(text);
  EXPECT_TRUE(*text == data_);
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
  ExpectMended();
  EXPECT_THAT(log_, HasSubstr("shard damaged"));
  EXPECT_THAT(log_, HasSubstr(DriveName()));
}

// Of the cells that are wanted, neither those that are read nor the descriptor that they come with
// may be another's.
TEST_P(MixedUpShard, IsNotWhatAReaderOfAPartGets) {
  const uint64_t begin = static_cast<uint64_t>(shard_) * layout_.shard_bytes;
  const auto text = Read(id_, layout_, place_, begin + 70'000, 300);
  ASSERT_OK(text);
  EXPECT_TRUE(*text == data_.substr(begin + 70'000, 300));
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
  ExpectMended();
}

TEST_P(MixedUpShard, IsNotInTheSumsOfTheBlock) {
  const std::vector<StripePart> blocks = {{id_, layout_, length_, place_, 0, length_}};
  const auto sums = store_.SumUp(blocks);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_EQ(sums[0].has_value(), LooksRight());
  if (!sums[0].has_value()) return;
  EXPECT_EQ(sums[0]->adler32, Adler32(AsBytes(data_)));
  EXPECT_EQ(sums[0]->crc32c, Crc32c(AsBytes(data_)));
}

TEST_P(MixedUpShard, IsCountedAsMissingByWhoAsksWhatIsThere) {
  const auto presence = store_.Probe(id_, layout_, length_, place_);
  ASSERT_OK(presence);
  EXPECT_EQ(presence->missing, LooksRight() ? 0 : 1);
  EXPECT_EQ(presence->present, layout_.geometry().shards() - presence->missing);
}

TEST_P(MixedUpShard, IsMendedByARepairThatAsksForDescriptors) {
  const StripeRepair repair = Repair(/*read_all=*/false);
  EXPECT_EQ(repair.damaged, LooksRight() ? 0 : 1);
  EXPECT_EQ(repair.written, repair.damaged);
  if (!LooksRight()) ExpectMended();
}

TEST_P(MixedUpShard, IsMendedByAScrub) {
  const StripeRepair repair = Repair(/*read_all=*/true);
  EXPECT_EQ(repair.damaged, 1);
  EXPECT_EQ(repair.written, 1);
  EXPECT_FALSE(repair.inconsistent);
  EXPECT_THAT(repair.contradicted, IsEmpty());
  ExpectMended();
  EXPECT_EQ(Repair(/*read_all=*/true).damaged, 0);
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const StripeLayout& layout : {k42, kCopies}) {
    for (const Mix mix : {Mix::kAnotherObject, Mix::kAnotherBlock, Mix::kAnotherShard,
                          Mix::kAnotherWrite, Mix::kAnotherValue, Mix::kAnotherDescriptor}) {
      cases.push_back({mix, layout});
    }
  }
  return cases;
}
std::string NameOf(const testing::TestParamInfo<Case>& info) {
  static constexpr const char* kNames[] = {"AnotherObjects", "AnotherBlocks", "AnotherIndex",
                                           "AnotherWrites",  "AnothersValue", "AnothersDescriptor"};
  return std::string(kNames[static_cast<int>(info.param.mix)]) +
         (info.param.layout.data_shards == 1 ? "Copy" : "Shard");
}
INSTANTIATE_TEST_SUITE_P(Kinds, MixedUpShard, testing::ValuesIn(AllCases()), NameOf);

// ---- More than one

TEST_F(MixedUp, WhereAllAreAnothersThereIsAnErrorAndNoByte) {
  for (const StripeLayout& layout : {k42, kCopies}) {
    const StripeId id{17, 3, MakeWriteId(1'700'000'000, layout.data_shards, 0)};
    const StripeId other{18, 3, id.write};
    const StripePlace place = Write(id, layout, RandomText(LengthOf(layout), 1));
    Write(other, layout, RandomText(LengthOf(layout), 2));
    for (int shard = 0; shard < layout.geometry().shards(); ++shard) {
      PutThere(id, layout, shard, Stored(other, layout, shard));
    }
    const auto text = Read(id, layout, place, 0, LengthOf(layout));
    ASSERT_FAILS(text, EIO);
    EXPECT_THAT(text.error().message(), HasSubstr("of object 0000000000000012"))
        << "it says what it got instead";
    EXPECT_THAT(text.error().message(), HasSubstr("drive "));
  }
}

// A write that finds its key taken looks whether that is itself. What is there is not: nor is it
// another stripe that has used the write id, so the shard can be stored elsewhere.
TEST_F(MixedUp, AWriteGoesAroundADriveThatHasAnothersRecordUnderItsKey) {
  const StripeId id{17, 3, MakeWriteId(1'700'000'000, 7, 0)};
  const StripeId other{18, 3, id.write};
  Write(other, k42, RandomText(LengthOf(k42), 2));
  PutThere(id, k42, 2, Stored(other, k42, 2));
  const std::string data = RandomText(LengthOf(k42), 1);
  const StripePlace place = Write(id, k42, data);
  ASSERT_EQ(place.moved.size(), 1u);
  EXPECT_EQ(place.moved[0].shard, 2);
  EXPECT_TRUE(*Read(id, k42, place, 0, data.size()) == data);
}

// ---- The test

// With the check turned off, which is for tests alone, a reader gets another's bytes.
TEST_F(MixedUp, TheNameIsWhatKeepsThemApart) {
  StripeStore careless(sim_, drives_, {.prefix = "\4test", .check_names = false});
  const StripeId id{17, 3, MakeWriteId(1'700'000'000, 7, 0)};
  const StripeId other{18, 3, id.write};
  const std::string data = RandomText(LengthOf(kCopies), 1);
  const StripePlace place = Write(id, kCopies, data);
  Write(other, kCopies, RandomText(LengthOf(kCopies), 2));
  PutThere(id, kCopies, 0, Stored(other, kCopies, 0));
  std::string text(data.size(), '?');
  const MutableBytes out(reinterpret_cast<std::byte*>(text.data()), text.size());
  ASSERT_OK(careless.Read({id, kCopies, data.size(), &place, 0, out}));
  EXPECT_FALSE(text == data);
}

}  // namespace
}  // namespace pinstripe
