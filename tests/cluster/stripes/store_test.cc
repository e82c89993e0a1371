// What StripeStore promises, one promise after the other. Everything runs in simulated time.

#include "cluster/stripes/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>

#include "base/checksum.h"
#include "base/real_runtime.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "tests/support/expect_ok.h"
#include "tests/support/gen.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_drives.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kKiB = 1024;
constexpr StripeLayout k42{4, 2, 256 * kKiB};

std::string RandomText(size_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class StripeStoreTest : public testing::Test {
 protected:
  StripeStoreTest() : sim_(1), drives_(sim_, 8), store_(sim_, drives_, {.prefix = "\4test"}) {}

  static std::shared_ptr<StripeBuffer> BufferOf(const StripeLayout& layout, std::string_view data) {
    auto buffer = std::make_shared<StripeBuffer>(layout);
    std::ranges::fill(buffer->data(), std::byte{0xee});  // what was in the memory before
    CopyBytes(buffer->data(), AsBytes(data));
    return buffer;
  }

  Result<StripePlace> Write(const StripeId& id, std::string_view data,
                            const StripeLayout& layout = k42) {
    return store_.StartWrite(id, BufferOf(layout, data), data.size())->Wait();
  }

  Result<std::string> Read(const StripeId& id, const StripePlace& place, uint64_t length,
                           uint64_t offset, uint64_t size, const StripeLayout& layout = k42) {
    std::string text(size, '?');
    const MutableBytes out(reinterpret_cast<std::byte*>(text.data()), text.size());
    const Status status = store_.Read({id, layout, length, &place, offset, out});
    if (!status.ok()) return Failed(status);
    return text;
  }
  // As for somebody who reads here and there.
  Result<std::string> ReadPages(const StripeId& id, const StripePlace& place, uint64_t length,
                                uint64_t offset, uint64_t size) {
    std::string text(size, '?');
    const MutableBytes out(reinterpret_cast<std::byte*>(text.data()), text.size());
    const Status status = store_.Read({id, k42, length, &place, offset, out, true});
    if (!status.ok()) return Failed(status);
    return text;
  }

  std::vector<DriveId> Order(const StripeId& id, const StripeLayout& layout = k42) {
    return *drives_.StripeDrives(1, id.object, id.block, layout.geometry());
  }

  // What a drive holds under the key of a shard, past all faults.
  Result<Record> Stored(const StripeId& id, int shard, DriveId drive) {
    Gather<Result<Record>> gather(sim_);
    drives_.memory(drive).Get(ShardKey("\4test", id, shard), {}, Time::max(), gather.Ask(0));
    return std::move(gather.Next(Time::max())->value);
  }
  void PutAside(const StripeId& id, int shard, DriveId drive, Record record) {
    Gather<Status> gather(sim_);
    record.tag = RecordTag(Crc32c(record.value));
    drives_.memory(drive).Put({.key = ShardKey("\4test", id, shard),
                               .value = record.value,
                               .version = record.version,
                               .tag = record.tag},
                              Time::max(), gather.Ask(0));
    ASSERT_OK(gather.Next(Time::max())->value);
  }
  // One bit of a stored shard turns over; the drive notices nothing.
  void Rot(const StripeId& id, int shard, DriveId drive, size_t byte) {
    Record record = *Stored(id, shard, drive);
    std::string value(record.value.text());
    value[byte] = static_cast<char>(value[byte] ^ 4);
    record.value = SharedBytes(value);
    PutAside(id, shard, drive, record);
  }
  size_t ShardsStored(const StripeId& id, int shards) {
    size_t count = 0;
    for (int shard = 0; shard < shards; ++shard) {
      for (DriveId drive = 1; drive <= drives_.size(); ++drive) {
        count += Stored(id, shard, drive).has_value();
      }
    }
    return count;
  }
  void WaitForRepairs() { ASSERT_TRUE(store_.WaitForRepairs(sim_.Now() + seconds(60))); }

  SimRuntime sim_;
  TestDrives drives_;
  StripeStore store_;
  const StripeId id_{17, 3, {1, 2, 3}};
};

TEST_F(StripeStoreTest, ReadsWhatWasWritten) {
  const Result<StripePlace> place = Write(id_, "hello");
  ASSERT_OK(place);
  EXPECT_EQ(place->epoch, 1u);
  EXPECT_TRUE(place->moved.empty());
  const Result<std::string> text = Read(id_, *place, 5, 0, 5);
  ASSERT_OK(text);
  EXPECT_EQ(*text, "hello");
  EXPECT_EQ(*Read(id_, *place, 5, 1, 3), "ell");
  EXPECT_EQ(*Read(id_, *place, 5, 5, 0), "");
}

// ---- Sums that come with the bytes

TEST_F(StripeStoreTest, ABitThatTurnedOverBeforeTheCoderIsFoundBeforeAnythingIsSent) {
  std::mt19937 random(3);
  for (const uint64_t length : {k42.block_bytes(), uint64_t{300'000}, uint64_t{5000}}) {
    for (const auto& layout : {k42, StripeLayout{1, 2, 1024 * kKiB}}) {
      const std::string data = RandomText(length);
      // Pages of the file, and pieces of some.
      std::vector<RangeSums::Range> ranges;
      for (uint64_t first = 0; first < length;) {
        const uint64_t end = std::min(length, first % 3 == 0 ? first + 4096 : first + 1000);
        const auto size = static_cast<uint32_t>(end - first);
        ranges.push_back({first, size, Crc32c(AsBytes(data).subspan(first, size))});
        first = end;
      }
      for (int i = 0; i < 10; ++i) {
        const auto buffer = BufferOf(layout, data);
        buffer->sums().Add(ranges);
        const size_t at = i == 0 ? 0 : i == 1 ? length - 1 : random() % length;
        buffer->data()[at] ^= std::byte{0x10};
        EXPECT_FAILS(store_.StartWrite(id_, buffer, length)->Wait(), EDOM);
        EXPECT_EQ(ShardsStored(id_, 6), 0u);
      }
      const auto buffer = BufferOf(layout, data);
      buffer->sums().Add(ranges);
      const auto place = store_.StartWrite(id_, buffer, length)->Wait();
      ASSERT_OK(place);
      EXPECT_EQ(*Read(id_, *place, length, 0, length, layout), data);
      EXPECT_OK(store_.Delete(id_, layout, *place));
    }
  }
}

// The shard is stored with the sum of what was sent, and parity is of what was sent.
TEST_F(StripeStoreTest, ABitThatTurnsOverBehindTheCoderIsNotReadAsGood) {
  const std::string data = RandomText(k42.block_bytes());
  const auto buffer = BufferOf(k42, data);
  const auto pending = store_.StartWrite(id_, buffer, data.size());
  buffer->data()[5000] ^= std::byte{1};
  const auto place = pending->Wait();
  if (!place.has_value()) return;  // a drive has noticed
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
}

TEST_F(StripeStoreTest, AnyPartOfAnyLengthUnderAnyGeometryReadsBack) {
  std::mt19937 random(7);
  uint64_t block = 0;
  for (const StripeLayout& layout : {StripeLayout{1, 0, kCellBytes},
                                     {1, 2, 128 * kKiB},
                                     {2, 1, kCellBytes},
                                     {4, 2, 256 * kKiB},
                                     {5, 3, 192 * kKiB}}) {
    const uint64_t whole = layout.block_bytes();
    for (const uint64_t length :
         {uint64_t{1}, uint64_t{64}, uint64_t{65}, whole / 2 + 1, whole - 1, whole}) {
      SCOPED_TRACE(
          fmt::format("{}+{}, {} bytes", layout.data_shards, layout.parity_shards, length));
      const StripeId id{1, block++, {}};
      const std::string data = RandomText(length, static_cast<uint32_t>(block));
      const Result<StripePlace> place = Write(id, data, layout);
      ASSERT_OK(place);
      for (int i = 0; i < 8; ++i) {
        const uint64_t offset = i == 0 ? 0 : random() % length;
        const uint64_t size = i == 0 ? length : 1 + random() % (length - offset);
        const Result<std::string> text = Read(id, *place, length, offset, size, layout);
        ASSERT_OK(text);
        ASSERT_TRUE(*text == data.substr(offset, size)) << offset << " " << size;
      }
    }
  }
  // Nothing is away, but one answer in a hundred is late.
  EXPECT_LE(store_.counters().degraded_reads, store_.counters().read_requests / 100);
}

// Asked for now, looked at later: whole cells, which hold what is wanted.
TEST_F(StripeStoreTest, AReadThatWasStartedIsThereWhenSomebodyWaits) {
  const std::string data = RandomText(k42.block_bytes() - 100);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  auto pending = store_.StartRead({{id_, k42, data.size(), *place, 70'000, 100'000},
                                   {id_, k42, data.size(), *place, data.size() - 1, 1}});
  const uint64_t asked = store_.counters().read_requests;
  EXPECT_EQ(asked, 2u);
  sim_.Sleep(seconds(100));  // longer than any time limit of a call
  ASSERT_OK(pending->Wait());
  EXPECT_EQ(store_.counters().read_requests, asked);
  uint64_t next = 65536;
  for (const ReadCell& cell : pending->TakeCells(0)) {
    EXPECT_EQ(cell.offset, next);
    EXPECT_TRUE(cell.bytes.text() == data.substr(cell.offset, cell.bytes.size()));
    const StripeLayout::Cell there = k42.CellAt(data.size(), cell.offset + cell.bytes.size() / 2);
    EXPECT_EQ(there.begin, cell.offset);
    EXPECT_EQ(there.end, cell.offset + cell.bytes.size());
    next += cell.bytes.size();
  }
  EXPECT_EQ(next, 3u * 65536);
  const std::vector<ReadCell> last = pending->TakeCells(1);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].offset + last[0].bytes.size(), data.size());  // without what fills the shard up
}

TEST_F(StripeStoreTest, WhoWaitsLateStillReadsAroundADriveThatWasAway) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  drives_.SetDown(Order(id_)[0], true);
  auto pending = store_.StartRead({{id_, k42, data.size(), *place, 0, 1000}});
  sim_.Sleep(seconds(1));
  ASSERT_OK(pending->Wait());
  EXPECT_TRUE(pending->TakeCells(0).at(0).bytes.text() == data.substr(0, 65536));
  EXPECT_EQ(store_.counters().degraded_reads, 1u);
}

TEST_F(StripeStoreTest, AReadThatNobodyWaitsForHarmsNothing) {
  const auto place = Write(id_, RandomText(k42.block_bytes()));
  ASSERT_OK(place);
  store_.StartRead({{id_, k42, k42.block_bytes(), *place, 0, k42.block_bytes()}}).reset();
  sim_.Sleep(seconds(10));
  EXPECT_OK(Read(id_, *place, k42.block_bytes(), 0, 10));
}

// Every byte of a block is in one cell and in one page of it, whatever its length.
TEST(StripeLayout, CellsAndPagesFollowEachOther) {
  for (const uint64_t length : {1ul, 64ul, 100'000ul, 4 * 65536ul, 300'000ul, 1ul << 20}) {
    uint64_t at = 0;
    while (at < length) {
      const StripeLayout::Cell cell = k42.CellAt(length, at);
      EXPECT_EQ(cell.begin, at);
      EXPECT_GT(cell.end, at);
      EXPECT_LE(cell.end, std::min<uint64_t>(length, at + kCellBytes));
      EXPECT_EQ(k42.CellAt(length, cell.end - 1).begin, at);
      while (at < cell.end) {
        const StripeLayout::Cell page = k42.PageAt(length, at);
        EXPECT_EQ(page.begin, at);
        EXPECT_GT(page.end, at);
        EXPECT_LE(page.end, std::min<uint64_t>(cell.end, at + kShardPageBytes));
        at = page.end;
      }
      EXPECT_EQ(at, cell.end);
    }
    EXPECT_EQ(at, length);
  }
}

TEST_F(StripeStoreTest, ALargeBlockTakesOneRequestPerDrive) {
  const auto place = Write(id_, RandomText(k42.block_bytes()));
  ASSERT_OK(place);
  EXPECT_EQ(drives_.requests().put, 6u);
  ASSERT_OK(Read(id_, *place, k42.block_bytes(), 0, k42.block_bytes()));
  EXPECT_EQ(drives_.requests().get, 4u);
  EXPECT_EQ(store_.counters().read_requests, 4u);
  EXPECT_EQ(store_.counters().bytes_fetched, k42.block_bytes());
}

// Defect 11 of the ancestor: reading 300 bytes fetched 16 stripes' worth of shards.
TEST_F(StripeStoreTest, ThreeHundredBytesFetchOneCell) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  EXPECT_EQ(*Read(id_, *place, data.size(), 500 * kKiB, 300), data.substr(500 * kKiB, 300));
  EXPECT_EQ(store_.counters().read_requests, 1u);
  EXPECT_EQ(store_.counters().bytes_fetched, kCellBytes);
}

TEST_F(StripeStoreTest, WhoWantsPagesFetchesPages) {
  for (const uint64_t length : {k42.block_bytes(), uint64_t{100'000}, uint64_t{300}}) {
    const StripeId id{20, length, {1}};
    const std::string data = RandomText(length);
    const auto place = Write(id, data);
    ASSERT_OK(place);
    const uint64_t shard = k42.ShardBytesOf(length);
    for (const uint64_t offset : {uint64_t{0}, shard - 1, length / 2, length - 1}) {
      const uint64_t size = std::min<uint64_t>(300, length - offset);
      const uint64_t before = store_.counters().bytes_fetched;
      EXPECT_EQ(*ReadPages(id, *place, length, offset, size), data.substr(offset, size));
      uint64_t pages = 0;
      for (const PageRange& range : PagesOf(k42, length, offset, size)) {
        pages += RangeBytes(static_cast<uint32_t>(shard), range);
      }
      EXPECT_EQ(store_.counters().bytes_fetched - before, pages) << length << " " << offset;
    }
  }
}

TEST_F(StripeStoreTest, DamageIsFoundByWhoReadsThePageAndReplacedByTheSamePageOfOthers) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  Rot(id_, 1, Order(id_)[1], 5 * kShardPageBytes + 9);
  const uint64_t damaged = k42.shard_bytes + 5 * kShardPageBytes;
  for (const uint64_t offset : {damaged - kShardPageBytes, damaged + kShardPageBytes, damaged}) {
    const uint64_t before = store_.counters().bytes_fetched;
    EXPECT_EQ(*ReadPages(id_, *place, data.size(), offset, kShardPageBytes),
              data.substr(offset, kShardPageBytes));
    const bool is_damaged = offset == damaged;
    EXPECT_EQ(store_.counters().damaged_shards, is_damaged ? 1u : 0u);
    EXPECT_EQ(store_.counters().bytes_fetched - before, (is_damaged ? 5 : 1) * kShardPageBytes);
  }
  ASSERT_TRUE(store_.WaitForRepairs(sim_.Now() + seconds(60)));
  EXPECT_EQ(store_.counters().rewritten_shards, 1u);
  EXPECT_OK(ReadPages(id_, *place, data.size(), damaged, kShardPageBytes));
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
}

// More shards are damaged than may be lost, but no page is in too many of them.
TEST_F(StripeStoreTest, ABlockIsReadableWhereEachPageIs) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  for (int shard = 0; shard < 6; ++shard) {
    Rot(id_, shard, Order(id_)[static_cast<size_t>(shard)],
        static_cast<size_t>(shard) * kShardPageBytes);
  }
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
}

TEST_F(StripeStoreTest, ASmallReadOfALostShardFetchesTheSameCellOfOthers) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  drives_.SetDown(Order(id_)[1], true);
  EXPECT_EQ(*Read(id_, *place, data.size(), 300 * kKiB, 300), data.substr(300 * kKiB, 300));
  EXPECT_EQ(store_.counters().bytes_fetched, 4 * kCellBytes);
  EXPECT_EQ(store_.counters().degraded_reads, 1u);
}

// Goal: any m drives may be lost. Method: all sets of drives, read whole and in part.
TEST_F(StripeStoreTest, SurvivesEveryLossOfMDrivesAndNamesMore) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  Gen gen;
  while (gen.Next()) {
    int lost = 0;
    for (size_t i = 0; i < 6; ++i) {
      const bool down = gen.Bool();
      lost += down;
      drives_.SetDown(order[i], down);
    }
    const Result<std::string> text = Read(id_, *place, data.size(), 0, data.size());
    if (lost <= 2) {
      ASSERT_OK(text);
      ASSERT_TRUE(*text == data);
      ASSERT_TRUE(*Read(id_, *place, data.size(), 140 * kKiB, 50 * kKiB) ==
                  data.substr(140 * kKiB, 50 * kKiB));
    } else {
      ASSERT_FAILS(text, EIO);
    }
  }
}

TEST_F(StripeStoreTest, AFailureNamesTheDrivesAndTheReasons) {
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {0, 2, 5}) drives_.SetDown(order[i], true);
  const Status status = Read(id_, *place, 5, 0, 5).error();
  EXPECT_EQ(status.code(), EIO);
  for (size_t i : {0, 2, 5}) {
    EXPECT_NE(status.message().find(fmt::format("shard {}: drive {}", i, order[i])),
              std::string::npos)
        << status.message();
  }
  EXPECT_NE(status.message().find("block 3 of object 0000000000000011: 3 of 4 shards"),
            std::string::npos)
      << status.message();
}

TEST_F(StripeStoreTest, AReadThatTooManyDrivesAreAwayForWaitsForThemALittle) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {0, 4, 5}) drives_.SetDown(order[i], true);
  const Time begin = sim_.Now();
  sim_.RunAt(begin + seconds(1), [&] { drives_.SetDown(order[4], false); });
  const Result<std::string> text = Read(id_, *place, data.size(), 0, data.size());
  ASSERT_OK(text);
  EXPECT_TRUE(*text == data);
  EXPECT_LT(sim_.Now() - begin, milliseconds(1300));

  // What is lost is said at once.
  for (size_t i : {0, 5}) drives_.SetDown(order[i], false);
  for (size_t i : {1, 2, 3}) drives_.Replace(order[i]);
  const Time second = sim_.Now();
  EXPECT_FAILS(Read(id_, *place, data.size(), 0, data.size()), EIO);
  EXPECT_LT(sim_.Now() - second, milliseconds(200));
}

// Defect 4 of the ancestor: what was left of a lost stripe read as zeros, like a hole.
TEST_F(StripeStoreTest, ALostStripeNeverReadsAsZeros) {
  const auto place = Write(id_, RandomText(600 * kKiB));
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {0, 1, 2}) drives_.Replace(order[i]);
  EXPECT_FAILS(Read(id_, *place, 600 * kKiB, 0, 100), EIO);
  // What is left of it is not touched.
  WaitForRepairs();
  EXPECT_EQ(ShardsStored(id_, 6), 3u);
}

TEST_F(StripeStoreTest, ADeletedStripeIsKnownNotToExist) {
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  ASSERT_OK(store_.Delete(id_, k42, *place));
  EXPECT_EQ(ShardsStored(id_, 6), 0u);
  EXPECT_FAILS(Read(id_, *place, 5, 0, 5), ENOENT);
  EXPECT_OK(store_.Delete(id_, k42, *place));  // again is no failure
  // One drive that cannot tell is enough to doubt it.
  drives_.SetDown(Order(id_)[5], true);
  EXPECT_FAILS(Read(id_, *place, 5, 0, 5), EIO);
  EXPECT_FAILS(store_.Delete(id_, k42, *place), EIO);
}

// Writing ----------------------------------------------------------------------------------------

TEST_F(StripeStoreTest, AShardWhoseHomeIsAwayGoesToASpareFirst) {
  const std::vector<DriveId> order = Order(id_);
  drives_.SetDown(order[1], true);
  drives_.SetDown(order[4], true);
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  EXPECT_EQ(place->moved, (std::vector<StripePlace::Moved>{{1, order[6]}, {4, order[7]}}));
  EXPECT_EQ(store_.counters().spare_writes, 2u);
  EXPECT_EQ(ShardsStored(id_, 6), 6u);

  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  EXPECT_EQ(store_.counters().degraded_reads, 0u);
  EXPECT_EQ(*store_.DrivesOf(id_, k42, *place),
            (std::set<DriveId>{order[0], order[6], order[2], order[3], order[7], order[5]}));
  drives_.SetDown(order[1], false);
  drives_.SetDown(order[4], false);
  ASSERT_OK(store_.Delete(id_, k42, *place));
  EXPECT_EQ(ShardsStored(id_, 6), 0u);
}

// Defect 12 of the ancestor: acknowledged when k shards made it and the spares failed unnoticed.
// Goal: never fewer than k+1 shards behind an acknowledgement. Method: all sets of drives that are
// away.
TEST_F(StripeStoreTest, NeverAcknowledgedWithoutRedundancy) {
  Gen gen;
  StripeId id{5, 0, {}};
  while (gen.Next()) {
    ++id.block;
    int up = 0;
    for (DriveId drive = 1; drive <= 8; ++drive) {
      const bool down = gen.Bool();
      up += !down;
      drives_.SetDown(drive, down);
    }
    const auto place = Write(id, "some bytes");
    if (up >= 5) {
      ASSERT_OK(place);
      ASSERT_EQ(ShardsStored(id, 6), static_cast<size_t>(std::min(up, 6)));
      ASSERT_EQ(store_.DrivesOf(id, k42, *place)->size(), static_cast<size_t>(std::min(up, 6)));
      ASSERT_EQ(*Read(id, *place, 10, 0, 10), "some bytes");
    } else {
      ASSERT_FAILS(place, EIO);
      ASSERT_TRUE(store_.WaitForRepairs(sim_.Now() + seconds(60)));
      ASSERT_EQ(ShardsStored(id, 6), 0u);  // and what was stored is removed again
    }
  }
}

TEST_F(StripeStoreTest, ASlowDriveIsNotWaitedForWhenThereIsASpare) {
  const std::vector<DriveId> order = Order(id_);
  drives_.faulty(order[2]).Set({.least_latency = seconds(20), .most_latency = seconds(21)});
  const Time begin = sim_.Now();
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  EXPECT_LT(sim_.Now() - begin, seconds(3));
  EXPECT_EQ(place->moved, (std::vector<StripePlace::Moved>{{2, order[6]}}));
  // What the slow drive stores in the end is removed again, so that no space leaks.
  sim_.Sleep(seconds(60));
  WaitForRepairs();
  EXPECT_EQ(*Read(id_, *place, 5, 0, 5), "hello");
  EXPECT_EQ(ShardsStored(id_, 6), 6u);
}

// A process that stood still has lost all its connections at once, and has them back a moment
// later.
TEST_F(StripeStoreTest, AWriteWaitsForDrivesThatComeBackSoon) {
  for (DriveId drive = 1; drive <= 8; ++drive) drives_.SetDown(drive, true);
  sim_.Spawn("the way back", [&] {
    sim_.Sleep(seconds(1));
    for (DriveId drive = 1; drive <= 8; ++drive) drives_.SetDown(drive, false);
  });
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  EXPECT_EQ(*Read(id_, *place, 5, 0, 5), "hello");
  for (DriveId drive = 1; drive <= 8; ++drive) drives_.SetDown(drive, true);
  const Time begin = sim_.Now();
  EXPECT_FAILS(Write({9, 9, {}}, "hello"), EIO);
  EXPECT_LE(sim_.Now() - begin, seconds(4)) << "and not for ever";
}

TEST_F(StripeStoreTest, FullDrivesAreNamedAsSuch) {
  for (DriveId drive = 1; drive <= 8; ++drive) drives_.faulty(drive).Set({.full = true});
  EXPECT_FAILS(Write(id_, "hello"), ENOSPC);
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {0, 1}) drives_.faulty(order[i]).Set({});
  const auto status = Write(id_, "hello").error();
  EXPECT_EQ(status.code(), ENOSPC);
  EXPECT_NE(status.message().find("2 of 6 shards were stored, 5 are needed"), std::string::npos)
      << status.message();
  WaitForRepairs();
  EXPECT_EQ(ShardsStored(id_, 6), 0u);
}

// Two drives have no room, one hangs, and one that has room comes back before the write gives up.
TEST_F(StripeStoreTest, ADriveThatIsBackTakesWhatFullOnesDoNot) {
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {6, 7}) drives_.faulty(order[i]).Set({.full = true});
  drives_.faulty(order[1]).Set({.least_latency = seconds(20), .most_latency = seconds(21)});
  drives_.SetDown(order[0], true);
  sim_.RunAt(sim_.Now() + std::chrono::milliseconds(100),
             [&] { drives_.SetDown(order[0], false); });
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  EXPECT_EQ(*Read(id_, *place, 5, 0, 5), "hello");
}

TEST_F(StripeStoreTest, WritingTheSameAgainIsNoFailureAndWritingAnotherThingIs) {
  ASSERT_OK(Write(id_, "hello"));
  const auto again = Write(id_, "hello");
  ASSERT_OK(again);
  EXPECT_TRUE(again->moved.empty());
  EXPECT_FAILS(Write(id_, "other"), EIO);
  EXPECT_EQ(*Read(id_, *again, 5, 0, 5), "hello");
}

TEST_F(StripeStoreTest, AWriteNobodyWaitsForIsRemovedAgain) {
  { const auto write = store_.StartWrite(id_, BufferOf(k42, "hello"), 5); }
  sim_.Sleep(seconds(1));
  WaitForRepairs();
  EXPECT_EQ(ShardsStored(id_, 6), 0u);
}

// Defect 8 of the ancestor: recycled buffers leaked another file's bytes.
TEST_F(StripeStoreTest, BytesBeyondTheDataAreZerosOnTheDrives) {
  ASSERT_OK(Write(id_, "secret"));  // BufferOf filled the memory with 0xee before
  const std::vector<DriveId> order = Order(id_);
  EXPECT_EQ(Stored(id_, 0, order[0])->value.text(), "secret" + std::string(58, '\0'));
  for (int shard : {1, 2, 3}) {
    EXPECT_EQ(Stored(id_, shard, order[static_cast<size_t>(shard)])->value.text(),
              std::string(64, '\0'));
  }
}

TEST_F(StripeStoreTest, ACopyIsAnyOfMPlusOne) {
  const StripeLayout copies{1, 2, kCellBytes};
  const auto place = Write(id_, "a small file", copies);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_, copies);
  EXPECT_EQ(Stored(id_, 2, order[2])->value.text().substr(0, 12), "a small file");
  EXPECT_EQ(*Read(id_, *place, 12, 2, 5, copies), "small");
  EXPECT_EQ(store_.counters().read_requests, 1u);
  drives_.SetDown(order[0], true);
  drives_.SetDown(order[1], true);
  EXPECT_EQ(*Read(id_, *place, 12, 0, 12, copies), "a small file");
}

// Damage -----------------------------------------------------------------------------------------

// Defect 2 of the ancestor: a rotten shard was reported as repaired, and left as it was.
TEST_F(StripeStoreTest, ARottenShardIsReadAroundWrittenAgainAndVerified) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  const std::string good(Stored(id_, 1, order[1])->value.text());
  Rot(id_, 1, order[1], 70000);

  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
  EXPECT_EQ(store_.counters().rewritten_shards, 1u);
  EXPECT_TRUE(Stored(id_, 1, order[1])->value.text() == good);

  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  EXPECT_EQ(store_.counters().degraded_reads, 1u);  // the second read was not
}

TEST_F(StripeStoreTest, AShardIsNotCountedAsRepairedBeforeItReadsBack) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  drives_.faulty(Order(id_)[1]).Set({.flip_bit = 1});  // whatever is written there
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
  EXPECT_EQ(store_.counters().rewritten_shards, 0u);
}

TEST_F(StripeStoreTest, DifferentCellsMayRotInMoreThanMShards) {
  const std::string data = RandomText(k42.block_bytes());
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {0, 1, 2, 3}) Rot(id_, static_cast<int>(i), order[i], i * kCellBytes + 5);
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  EXPECT_EQ(store_.counters().rewritten_shards, 4u);
}

TEST_F(StripeStoreTest, AMissingShardIsWrittenAgainWhereItBelongs) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const DriveId home = Order(id_)[2];
  drives_.Replace(home);
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  EXPECT_EQ(store_.counters().missing_shards, 1u);
  EXPECT_EQ(store_.counters().rewritten_shards, 1u);
  ASSERT_OK(Stored(id_, 2, home));
}

// A shard that could not be stored anywhere comes home with the first read that misses it.
TEST_F(StripeStoreTest, AShardThatWasNotStoredIsWrittenOnceItsHomeIsBack) {
  const std::vector<DriveId> order = Order(id_);
  for (size_t i : {3, 6, 7}) drives_.SetDown(order[i], true);
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  EXPECT_EQ(place->moved, (std::vector<StripePlace::Moved>{{3, 0}}));
  EXPECT_EQ(store_.counters().short_writes, 1u);
  drives_.SetDown(order[3], false);
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  WaitForRepairs();
  ASSERT_OK(Stored(id_, 3, order[3]));
}

TEST_F(StripeStoreTest, AShardOfAnotherStripeIsDamage) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const std::vector<DriveId> order = Order(id_);
  PutAside(id_, 0, order[0], *Stored(id_, 1, order[1]));
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  EXPECT_EQ(store_.counters().damaged_shards, 1u);
}

TEST_F(StripeStoreTest, ALateAnswerIsReplacedByOthers) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  drives_.faulty(Order(id_)[0]).Set({.least_latency = seconds(3), .most_latency = seconds(3)});
  const Time begin = sim_.Now();
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
  EXPECT_LT(sim_.Now() - begin, milliseconds(500));
  WaitForRepairs();
  EXPECT_EQ(store_.counters().rewritten_shards, 0u);  // slow is not damaged
}

// Its part is asked of others at once, and of it, too, which tells when it is fast again.
TEST_F(StripeStoreTest, NobodyWaitsForADriveThatIsKnownToBeSlow) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  const auto answer_after = [&](Duration slow) {
    for (DriveId drive = 1; drive <= 8; ++drive) {
      const Duration latency = drive == Order(id_)[0] ? slow : milliseconds(1);
      drives_.faulty(drive).Set({.least_latency = latency, .most_latency = latency});
    }
  };
  const auto longest_of = [&](int reads) {
    Duration longest{};
    for (int i = 0; i < reads; ++i) {
      const Time begin = sim_.Now();
      EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
      longest = std::max(longest, sim_.Now() - begin);
    }
    return longest;
  };
  answer_after(milliseconds(100));
  longest_of(100);
  EXPECT_LT(longest_of(200), milliseconds(20));
  EXPECT_EQ(store_.counters().rewritten_shards, 0u);

  answer_after(milliseconds(1));
  longest_of(1000);
  const uint64_t before = store_.counters().read_requests;
  longest_of(100);
  EXPECT_LE(store_.counters().read_requests - before, 100u * 4 + 4);
}

// Where every drive is busy, asking more of them only makes it worse.
TEST_F(StripeStoreTest, ReadersAreMorePatientWithDrivesThatAreAllSlow) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  for (DriveId drive = 1; drive <= 8; ++drive) {
    drives_.faulty(drive).Set(
        {.least_latency = milliseconds(200), .most_latency = milliseconds(220)});
  }
  for (int i = 0; i < 20; ++i) ASSERT_OK(Read(id_, *place, data.size(), 0, data.size()));
  const uint64_t before = store_.counters().read_requests;
  for (int i = 0; i < 20; ++i) ASSERT_OK(Read(id_, *place, data.size(), 0, data.size()));
  EXPECT_LE(store_.counters().read_requests - before, 20u * 4 + 4);
  EXPECT_EQ(store_.counters().rewritten_shards, 0u);
}

TEST_F(StripeStoreTest, EvenWhenAllAreLateTheAnswersCount) {
  const std::string data = RandomText(600 * kKiB);
  const auto place = Write(id_, data);
  ASSERT_OK(place);
  for (DriveId drive = 1; drive <= 8; ++drive) {
    drives_.faulty(drive).Set({.least_latency = seconds(1), .most_latency = seconds(1)});
  }
  EXPECT_TRUE(*Read(id_, *place, data.size(), 0, data.size()) == data);
}

// More than one
// --------------------------------------------------------------------------------------

TEST_F(StripeStoreTest, ManyReadsTakeTheTimeOfOne) {
  std::vector<StripePlace> places;
  std::vector<std::string> texts;
  for (uint64_t block = 0; block < 10; ++block) {
    places.push_back(*Write({9, block, {}}, fmt::format("block {}", block)));
    texts.emplace_back(7, '?');
  }
  for (DriveId drive = 1; drive <= 8; ++drive) {
    drives_.faulty(drive).Set(
        {.least_latency = milliseconds(50), .most_latency = milliseconds(50)});
  }
  std::vector<StripeReadRequest> requests;
  for (uint64_t block = 0; block < 10; ++block) {
    requests.push_back({{9, block, {}},
                        k42,
                        7,
                        &places[block],
                        0,
                        {reinterpret_cast<std::byte*>(texts[block].data()), 7}});
  }
  const Time begin = sim_.Now();
  ASSERT_OK(store_.ReadMany(requests));
  EXPECT_LT(sim_.Now() - begin, milliseconds(150));
  for (uint64_t block = 0; block < 10; ++block)
    EXPECT_EQ(texts[block], fmt::format("block {}", block));

  ASSERT_OK(store_.Delete({9, 4, {}}, k42, places[4]));
  EXPECT_FAILS(store_.ReadMany(requests), ENOENT);
}

// Defect 5 of the ancestor: two clusters on shared drives damaged each other when the name of one
// was a prefix of the other's.
TEST_F(StripeStoreTest, ClustersOnSharedDrivesDoNotSeeEachOther) {
  StripeStore a(sim_, drives_, {.prefix = ClusterPrefix("a")});
  StripeStore ab(sim_, drives_, {.prefix = ClusterPrefix("ab")});
  const auto place_a = a.StartWrite(id_, BufferOf(k42, "of a"), 4)->Wait();
  const auto place_ab = ab.StartWrite(id_, BufferOf(k42, "of ab"), 5)->Wait();
  ASSERT_OK(place_a);
  ASSERT_OK(place_ab);
  ASSERT_OK(a.Delete(id_, k42, *place_a));
  std::string text(5, '?');
  ASSERT_OK(ab.Read({id_, k42, 5, &*place_ab, 0, {reinterpret_cast<std::byte*>(text.data()), 5}}));
  EXPECT_EQ(text, "of ab");
}

// On real threads and in real time, with damage to repair meanwhile; what ThreadSanitizer looks at.
TEST(StripeStoreThreads, ManyThreadsMayUseOneStore) {
  RealRuntime runtime;
  TestDrives drives(runtime, 8);
  drives.faulty(3).Set({.flip_bit = 0.3});
  drives.SetDown(6, true);
  StripeStore store(runtime, drives, {.prefix = "\4test"});
  std::vector<std::thread> threads;
  for (uint64_t object = 1; object <= 4; ++object) {
    threads.emplace_back([&, object] {
      for (uint64_t block = 0; block < 25; ++block) {
        const std::string data =
            RandomText(1 + 5000 * block, static_cast<uint32_t>(object + block));
        auto buffer = std::make_shared<StripeBuffer>(k42);
        CopyBytes(buffer->data(), AsBytes(data));
        const StripeId id{object, block, {}};
        const auto place = store.StartWrite(id, buffer, data.size())->Wait();
        ASSERT_OK(place);
        std::string text(data.size(), '?');
        ASSERT_OK(store.Read({id,
                              k42,
                              data.size(),
                              &*place,
                              0,
                              {reinterpret_cast<std::byte*>(text.data()), text.size()}}));
        EXPECT_TRUE(text == data);
        (void)store.counters();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store.WaitForRepairs(runtime.Now() + seconds(60)));
}

TEST_F(StripeStoreTest, FlushNamesTheDrivesThatFailed) {
  drives_.SetDown(3, true);
  EXPECT_EQ(store_.Flush({1, 2, 3, 99}, {}), (std::set<DriveId>{3, 99}));
  EXPECT_TRUE(store_.Flush({1, 2}, {}).empty());
  // And those that were lost since.
  EXPECT_EQ(store_.Flush({1, 2}, {{1, 0}, {2, 7}}), (std::set<DriveId>{2}));
}

TEST_F(StripeStoreTest, AnEpochNobodyKnowsIsAFailure) {
  const auto place = Write(id_, "hello");
  ASSERT_OK(place);
  EXPECT_FAILS(Read(id_, {7, {}}, 5, 0, 5), EIO);
  EXPECT_FAILS(Read(id_, {1, {{6, 1}}}, 5, 0, 5), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
