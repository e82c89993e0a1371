// The cache on a local disk, over real files in a temporary directory, or over some that misbehave.
// What it may do wrong is to lose cells; it may never return other bytes, nor take more room.

#include "fs/cache/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/coding.h"
#include "tests/fs/fs_test_base.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kUuid(16, 'u');
constexpr uint64_t kQueueBytes = 4 << 20;
constexpr Duration kMoment = seconds(1);  // in which the writer has no trouble to write

CellKey Key(uint64_t block, uint32_t offset = 0) {
  CellKey key;
  key.stripe = {.object = 7, .block = block, .write = {}};
  key.stripe.write[0] = 5;
  key.offset = offset;
  return key;
}

SharedBytes Contents(uint64_t seed, size_t size = kCellBytes) { return {Pattern(seed, size)}; }

std::string FileBytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void SetFileBytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Does as the real one, or what the test wants.
struct Trouble {
  int write_error = 0;
  int read_error = 0;
  Duration write_takes{};
  Duration read_takes{};
  bool in_memory = false;  // nothing that is read waits for the disk
};
class TroubledFile final : public CacheFile {
 public:
  TroubledFile(SimRuntime& sim, const Trouble& trouble, std::unique_ptr<CacheFile> file)
      : sim_(sim), trouble_(trouble), file_(std::move(file)) {}
  Status Write(uint64_t position, Bytes bytes) override {
    if (trouble_.write_takes > Duration(0)) sim_.Sleep(trouble_.write_takes);
    if (trouble_.write_error != 0) {  // half of it is there
      (void)file_->Write(position, bytes.first(bytes.size() / 2));
      return Fail(trouble_.write_error, "planted");
    }
    return file_->Write(position, bytes);
  }
  Result<size_t> Read(uint64_t position, MutableBytes out) override {
    if (trouble_.read_takes > Duration(0)) sim_.Sleep(trouble_.read_takes);
    if (trouble_.read_error != 0) return Fail(trouble_.read_error, "planted");
    return file_->Read(position, out);
  }
  bool ReadFromMemory(uint64_t position, MutableBytes out) override {
    return trouble_.in_memory && file_->Read(position, out).value_or(0) == out.size();
  }
  Result<uint64_t> Size() override { return file_->Size(); }
  bool IsRemoved() override { return file_->IsRemoved(); }

 private:
  SimRuntime& sim_;
  const Trouble& trouble_;
  const std::unique_ptr<CacheFile> file_;
};
class TroubledDirectory final : public CacheDirectory {
 public:
  TroubledDirectory(SimRuntime& sim, const Trouble& trouble, std::unique_ptr<CacheDirectory> real)
      : sim_(sim), trouble_(trouble), real_(std::move(real)) {}
  Status Claim() override { return real_->Claim(); }
  bool IsClaimed() override { return real_->IsClaimed(); }
  Result<std::vector<std::string>> List() override { return real_->List(); }
  Result<std::unique_ptr<CacheFile>> Open(const std::string& name) override {
    return Wrapped(real_->Open(name));
  }
  Result<std::unique_ptr<CacheFile>> Create(const std::string& name) override {
    return Wrapped(real_->Create(name));
  }
  Status Remove(const std::string& name) override { return real_->Remove(name); }
  const std::string& path() const override { return real_->path(); }

 private:
  Result<std::unique_ptr<CacheFile>> Wrapped(Result<std::unique_ptr<CacheFile>> file) {
    if (!file.has_value()) return file;
    return std::make_unique<TroubledFile>(sim_, trouble_, *std::move(file));
  }

  SimRuntime& sim_;
  const Trouble& trouble_;
  const std::unique_ptr<CacheDirectory> real_;
};

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    SetLogSink([this](LogLevel level, std::string_view line) {
      if (level >= LogLevel::kWarn) warnings_.emplace_back(line);
    });
  }
  ~DiskCacheTest() override { SetLogSink(nullptr); }

  std::unique_ptr<DiskCache> Make(uint64_t bytes = kLeastDiskCacheBytes,
                                  const std::string& uuid = kUuid) {
    auto real = LocalCacheDirectory(directory_.path(), "cache-" + Hex(AsBytes(uuid)));
    return std::make_unique<DiskCache>(
        sim_, std::make_unique<TroubledDirectory>(sim_, trouble_, std::move(real)),
        DiskCache::Options{.cluster = uuid, .bytes = bytes, .queue_bytes = kQueueBytes});
  }
  // With its directory looked at.
  std::unique_ptr<DiskCache> Open(uint64_t bytes = kLeastDiskCacheBytes) {
    auto cache = Make(bytes);
    EXPECT_TRUE(cache->WaitUntilIdle(sim_.Now() + kMoment));
    return cache;
  }
  void Keep(DiskCache& cache, const CellKey& key, SharedBytes bytes) {
    cache.Offer({{key, std::move(bytes)}});
    EXPECT_TRUE(cache.WaitUntilIdle(sim_.Now() + kMoment));
  }
  // "" for what is not there.
  static std::string Get(DiskCache& cache, const CellKey& key, size_t size = kCellBytes) {
    const bool has = cache.Has(key, size);
    auto found = cache.Find(key, size);
    EXPECT_TRUE(has || !found);
    return found ? std::string(AsText(found->bytes)) : "";
  }

  std::filesystem::path Home() const { return directory_ / ("cache-" + Hex(AsBytes(kUuid))); }
  std::vector<std::filesystem::path> Segments() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(Home())) {
      if (entry.path().filename() != "lock") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  uint64_t BytesOfFiles() const {
    uint64_t bytes = 0;
    for (const auto& file : Segments()) bytes += std::filesystem::file_size(file);
    return bytes;
  }

  TemporaryDirectory directory_;
  Trouble trouble_;
  std::vector<std::string> warnings_;
  SimRuntime sim_{1};
};

// These bytes are the format. If this test fails, what was kept yesterday is of no use today, which
// is only slow; but a reader of the old format has to refuse the new one.
TEST(DiskCacheFormat, BytesNeverChange) {
  const std::string header =
      CacheSegmentHeader{.cluster = "0123456789abcdef", .number = 0x1122334455667788, .slots = 64}
          .Encode();
  EXPECT_EQ(Hex(AsBytes(header)),
            "70696e7374726970652063656c6c730a00000001"
            "303132333435363738396162636465661122334455667788"
            "00000040"
            "6918b0cd");
  EXPECT_EQ(header.size(), CacheSegmentHeader::kBytes);
  CacheSlot slot{
      .key = Key(0x0102030405060708, 0x10000), .bytes = 4097, .position = 8192, .crc = 9};
  const std::string bytes = slot.Encode(header);
  EXPECT_EQ(Hex(AsBytes(bytes)),
            "0000000000000007"
            "0102030405060708"
            "05000000000000000000000000000000"
            "00010000"
            "00001001"
            "0000000000002000"
            "00000009"
            "991a328e");
  EXPECT_EQ(bytes.size(), CacheSlot::kBytes);
  EXPECT_FAILS(CacheSlot::Decode(bytes, "another segment"), EBADMSG);
}

TEST_F(DiskCacheTest, FindsWhatWasOffered) {
  auto cache = Open();
  EXPECT_EQ(Get(*cache, Key(1)), "");
  Keep(*cache, Key(1), Contents(1));
  Keep(*cache, Key(1, kCellBytes), Contents(2, 5));
  EXPECT_EQ(Get(*cache, Key(1)), Pattern(1, kCellBytes));
  EXPECT_EQ(Get(*cache, Key(1, kCellBytes), 5), Pattern(2, 5));
  EXPECT_EQ(Get(*cache, Key(1, kCellBytes), 6), "") << "a cell of another size";
  EXPECT_EQ(Get(*cache, Key(2)), "");
  EXPECT_EQ(cache->counters().cells, 2u);
  EXPECT_EQ(cache->counters().cells_found, 2u);
  Keep(*cache, Key(1), Contents(1));
  EXPECT_EQ(cache->counters().cells_written, 2u) << "what is there is not written again";
}

TEST_F(DiskCacheTest, SurvivesARestart) {
  for (uint64_t life = 0; life < 3; ++life) {
    auto cache = Open();
    for (uint64_t i = 0; i < 10 * life; ++i) {
      ASSERT_EQ(Get(*cache, Key(i), 1000 + i), Pattern(i, 1000 + i));
    }
    for (uint64_t i = 10 * life; i < 10 * life + 10; ++i) {
      cache->Offer({{Key(i), Contents(i, 1000 + i)}});
    }
  }  // what was offered is written
  EXPECT_EQ(Segments().size(), 3u);
  EXPECT_EQ(Open()->counters().cells, 30u);
}

TEST_F(DiskCacheTest, AFlippedBitIsNeverReturned) {
  constexpr size_t kSize = 3000;
  Keep(*Open(), Key(1), Contents(1, kSize));
  const auto file = Segments().at(0);
  const std::string good = FileBytes(file);
  const uint64_t data = good.size() - kSize;
  const uint64_t table_end = CacheSlot::PositionOf(1);
  int noticed = 0;
  for (size_t bit = 0; bit < 8 * good.size(); bit += bit < 8 * table_end ? 1 : 101) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    SetFileBytes(file, bad);
    auto cache = Open();
    const std::string got = Get(*cache, Key(1), kSize);
    const bool matters = bit / 8 < table_end || bit / 8 >= data;
    ASSERT_EQ(got, matters ? "" : Pattern(1, kSize)) << "bit " << bit;
    ASSERT_FALSE(cache->Has(Key(1), kSize) && matters);
    noticed += matters;
  }
  EXPECT_GT(noticed, 8 * 108);
}

TEST_F(DiskCacheTest, DamageIsReadAroundAndWrittenAnew) {
  auto cache = Open();
  Keep(*cache, Key(1), Contents(1));
  std::string bytes = FileBytes(Segments().at(0));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  SetFileBytes(Segments().at(0), bytes);
  EXPECT_EQ(Get(*cache, Key(1)), "");
  EXPECT_EQ(cache->counters().cells_damaged, 1u);
  Keep(*cache, Key(1), Contents(1));  // as it came from the drives
  EXPECT_EQ(Get(*cache, Key(1)), Pattern(1, kCellBytes));
  cache = nullptr;
  EXPECT_EQ(Get(*Open(), Key(1)), Pattern(1, kCellBytes)) << "the later one counts";
}

TEST_F(DiskCacheTest, ATornFileGivesWhatIsWhole) {
  {
    auto cache = Open();
    for (uint64_t i = 0; i < 4; ++i) Keep(*cache, Key(i), Contents(i, 5000));
  }
  const auto file = Segments().at(0);
  const std::string good = FileBytes(file);
  size_t most = 0;
  for (size_t size = 0; size < good.size(); size += 777) {
    SetFileBytes(file, good.substr(0, size));
    auto cache = Open();
    size_t found = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      const std::string got = Get(*cache, Key(i), 5000);
      ASSERT_TRUE(got.empty() || got == Pattern(i, 5000)) << size;
      found += !got.empty();
    }
    ASSERT_GE(found, most);
    most = found;
  }
  EXPECT_EQ(most, 3u);
}

TEST_F(DiskCacheTest, AReadThatFailsIsNone) {
  auto cache = Open();
  Keep(*cache, Key(1), Contents(1));
  trouble_.read_error = EIO;
  EXPECT_EQ(Get(*cache, Key(1)), "");
  trouble_.read_error = 0;
}

TEST_F(DiskCacheTest, WhatIsNotOursIsNotUsed) {
  {
    auto other = Make(kLeastDiskCacheBytes, std::string(16, 'o'));
    ASSERT_TRUE(other->WaitUntilIdle(sim_.Now() + kMoment));
    Keep(*other, Key(1), Contents(9));
  }
  auto cache = Open();
  EXPECT_EQ(Get(*cache, Key(1)), "") << "clusters in one directory are apart";
  Keep(*cache, Key(1), Contents(1));
  cache = nullptr;
  // A file of the other cluster, by mistake, and one that is none of a cache.
  const auto others =
      directory_ / ("cache-" + Hex(AsBytes(std::string(16, 'o')))) + "/cells-0000000000000001";
  std::filesystem::copy_file(others, Home() / "cells-0000000000000001",
                             std::filesystem::copy_options::overwrite_existing);
  SetFileBytes(Home() / "cells-0000000000000007", "garbage");
  SetFileBytes(Home() / "notes.txt", "somebody's");
  cache = Open();
  EXPECT_EQ(Get(*cache, Key(1)), "");
  EXPECT_EQ(Segments(), std::vector<std::filesystem::path>{Home() / "notes.txt"});
}

TEST_F(DiskCacheTest, TakesNoMoreRoomThanItMay) {
  auto cache = Open();
  constexpr uint64_t kCells = 4 * kLeastDiskCacheBytes / kCellBytes;
  for (uint64_t i = 0; i < kCells; ++i) {
    Keep(*cache, Key(i), Contents(i, kCellBytes - 10 * (i % 7)));
    ASSERT_LE(BytesOfFiles(), kLeastDiskCacheBytes);
    ASSERT_LE(cache->counters().used_bytes, kLeastDiskCacheBytes);
  }
  EXPECT_GT(BytesOfFiles(), kLeastDiskCacheBytes * 8 / 10);
  const DiskCacheCounters counters = cache->counters();
  EXPECT_EQ(counters.cells_written, kCells);
  EXPECT_EQ(counters.cells_evicted + counters.cells, kCells);
  EXPECT_EQ(Get(*cache, Key(0)), "") << "the oldest went";
  const uint64_t last = kCells - 1;
  const size_t size = kCellBytes - 10 * (last % 7);
  EXPECT_EQ(Get(*cache, Key(last), size), Pattern(last, size));
}

TEST_F(DiskCacheTest, TinyCellsDoNotTakeMoreRoomEither) {
  auto cache = Open();
  for (uint64_t i = 0; i < 3000; ++i) cache->Offer({{Key(i), Contents(i, 64)}});
  ASSERT_TRUE(cache->WaitUntilIdle(sim_.Now() + kMoment));
  EXPECT_LE(BytesOfFiles(), kLeastDiskCacheBytes);
  EXPECT_EQ(Get(*cache, Key(2999), 64), Pattern(2999, 64));
}

TEST_F(DiskCacheTest, IsMadeSmaller) {
  {
    auto cache = Open(4 * kLeastDiskCacheBytes);
    for (uint64_t i = 0; i < 400; ++i) Keep(*cache, Key(i), Contents(i));
    EXPECT_GT(BytesOfFiles(), kLeastDiskCacheBytes);
  }
  auto cache = Open();
  EXPECT_LE(BytesOfFiles(), kLeastDiskCacheBytes);
  EXPECT_EQ(Get(*cache, Key(399)), Pattern(399, kCellBytes));
}

TEST_F(DiskCacheTest, WhatIsUsedStays) {
  auto cache = Open();
  constexpr uint64_t kCells = 4 * kLeastDiskCacheBytes / kCellBytes;
  Keep(*cache, Key(0), Contents(0));
  for (uint64_t i = 1; i < kCells; ++i) {
    Keep(*cache, Key(i), Contents(i));
    if (i % 10 != 0) continue;
    auto found = cache->Find(Key(0), kCellBytes);
    ASSERT_TRUE(found) << i;
    if (found->leaves_soon) Keep(*cache, Key(0), SharedBytes(std::move(found->bytes)));
  }
  EXPECT_LT(cache->counters().cells_written, kCells + 20) << "and is not written all the time";
}

TEST_F(DiskCacheTest, GoesWithoutAFullDiskAndSaysSoOnce) {
  auto cache = Open();
  for (uint64_t i = 0; i < 100; ++i) Keep(*cache, Key(i), Contents(i));
  const uint64_t before = BytesOfFiles();
  trouble_.write_error = ENOSPC;
  for (uint64_t i = 100; i < 200; ++i) Keep(*cache, Key(i), Contents(i));
  EXPECT_EQ(cache->counters().cells_dropped, 100u);
  EXPECT_LT(BytesOfFiles(), before) << "a part of the room goes to others";
  EXPECT_EQ(Get(*cache, Key(99)), Pattern(99, kCellBytes)) << "what is there is still of use";
  sim_.Sleep(seconds(61));
  Keep(*cache, Key(200), Contents(200));
  EXPECT_EQ(warnings_.size(), 1u);
  trouble_.write_error = 0;
  sim_.Sleep(seconds(61));
  Keep(*cache, Key(300), Contents(300));
  EXPECT_EQ(Get(*cache, Key(300)), Pattern(300, kCellBytes));
  EXPECT_EQ(warnings_.size(), 1u);
  cache = nullptr;
  cache = Open();
  for (uint64_t i = 0; i < 301; ++i) {
    const std::string got = Get(*cache, Key(i));
    ASSERT_TRUE(got.empty() || got == Pattern(i, kCellBytes));
  }
}

TEST_F(DiskCacheTest, NobodyWaitsForSlowWrites) {
  auto cache = Open();
  trouble_.write_takes = seconds(3);
  const Time begin = sim_.Now();
  for (uint64_t i = 0; i < 1000; ++i) cache->Offer({{Key(i), Contents(i)}});
  EXPECT_LT(sim_.Now() - begin, milliseconds(10));
  EXPECT_GE(cache->counters().cells_dropped, 1000 - kQueueBytes / kCellBytes);
  EXPECT_LT(cache->counters().cells_dropped, 1000u);
  trouble_.write_takes = {};
}

TEST_F(DiskCacheTest, ASlowDiskIsNotWaitedForNorAskedForAWhile) {
  auto cache = Open();
  Keep(*cache, Key(1), Contents(1));
  trouble_.read_takes = milliseconds(300);
  const Time begin = sim_.Now();
  EXPECT_EQ(Get(*cache, Key(1)), "");
  EXPECT_LE(sim_.Now() - begin, milliseconds(110));
  EXPECT_FALSE(cache->Has(Key(1), kCellBytes));
  EXPECT_EQ(warnings_.size(), 1u);
  sim_.Sleep(seconds(11));
  trouble_.read_takes = {};
  EXPECT_EQ(Get(*cache, Key(1)), Pattern(1, kCellBytes));
  EXPECT_TRUE(cache->Has(Key(1), kCellBytes));
  EXPECT_EQ(cache->counters().cells_damaged, 0u);
}

// Each time that it is tried again it keeps some of our threads, and then no more.
TEST_F(DiskCacheTest, ADiskThatHangsStopsNobody) {
  auto cache = Open();
  for (uint64_t i = 0; i < 4; ++i) Keep(*cache, Key(i), Contents(i));
  trouble_.read_takes = seconds(100'000);
  for (int again = 0; again < 10; ++again) {
    int left = 4;
    const auto done = sim_.NewSignal();
    const Time begin = sim_.Now();
    for (uint64_t i = 0; i < 4; ++i) {
      sim_.Spawn("reader", [&, i] {
        EXPECT_EQ(Get(*cache, Key(i)), "");
        if (--left == 0) done->Set();
      });
    }
    while (left > 0) done->WaitUntil(Time::max());
    EXPECT_LE(sim_.Now() - begin, milliseconds(110));
    sim_.Sleep(seconds(11));
  }
  EXPECT_EQ(warnings_.size(), 10u);
  // What the kernel has in its memory is read all the same.
  trouble_.in_memory = true;
  EXPECT_EQ(Get(*cache, Key(1)), Pattern(1, kCellBytes));
  trouble_.in_memory = false;
  sim_.Sleep(seconds(100'000));
  trouble_.read_takes = {};
  EXPECT_EQ(Get(*cache, Key(2)), Pattern(2, kCellBytes));
}

TEST_F(DiskCacheTest, MayBeRemovedWhileItIsUsed) {
  auto cache = Open();
  Keep(*cache, Key(1), Contents(1));
  for (const auto& file : Segments()) std::filesystem::remove(file);
  sim_.Sleep(seconds(6));
  EXPECT_EQ(cache->counters().used_bytes, 0u) << "or their room would be lost";
  EXPECT_EQ(Get(*cache, Key(1)), "");
  Keep(*cache, Key(1), Contents(1));
  EXPECT_EQ(Get(*cache, Key(1)), Pattern(1, kCellBytes));

  std::filesystem::remove_all(Home());
  sim_.Sleep(seconds(8));
  EXPECT_EQ(Get(*cache, Key(1)), "");
  Keep(*cache, Key(2), Contents(2));
  EXPECT_EQ(Get(*cache, Key(2)), Pattern(2, kCellBytes));
  EXPECT_EQ(Segments().size(), 1u);
}

// On file systems that cannot tell, nothing is.
TEST_F(DiskCacheTest, WhatIsInTheKernelsMemoryIsReadWithoutWaiting) {
  const auto directory = LocalCacheDirectory(Home().parent_path(), "of this test");
  ASSERT_OK(directory->Claim());
  const auto file = directory->Create("file");
  ASSERT_OK(file);
  ASSERT_OK((*file)->Write(0, AsBytes(Pattern(1, 3 * kCellBytes))));
  std::string read(kCellBytes, '?');
  const auto in_memory = [&](uint64_t position) {
    return (*file)->ReadFromMemory(position, std::as_writable_bytes(std::span(read)));
  };
  if (in_memory(kCellBytes)) {
    EXPECT_EQ(read, Pattern(1, 3 * kCellBytes).substr(kCellBytes, kCellBytes));
  }
  EXPECT_FALSE(in_memory(2 * kCellBytes + 1)) << "it ends before that";
}

TEST_F(DiskCacheTest, TwoDoNotUseOneDirectory) {
  auto first = Open();
  Keep(*first, Key(1), Contents(1));
  auto second = Make();
  sim_.Sleep(seconds(10));
  EXPECT_FALSE(second->counters().ready);
  EXPECT_EQ(warnings_.size(), 1u) << "it says so, once";
  second->Offer({{Key(2), Contents(2)}});
  EXPECT_EQ(Get(*second, Key(1)), "");
  EXPECT_EQ(Segments().size(), 1u);
  first = nullptr;
  EXPECT_TRUE(second->WaitUntilIdle(sim_.Now() + seconds(2)));
  EXPECT_EQ(Get(*second, Key(1)), Pattern(1, kCellBytes));
}

// Somebody has removed the lock, so that a second one claims what the first still uses: neither
// returns wrong bytes.
TEST_F(DiskCacheTest, NotEvenWithoutTheLockDoTwoDamageEachOther) {
  auto first = Open();
  for (uint64_t i = 0; i < 100; ++i) Keep(*first, Key(i), Contents(i));
  std::filesystem::remove(Home() / "lock");
  auto second = Open();
  for (uint64_t i = 100; i < 600; ++i) {
    for (DiskCache* one : {first.get(), second.get()}) {
      one->Offer({{Key(i), Contents(i)}});
      sim_.Sleep(milliseconds(20));
      for (uint64_t back : {uint64_t{0}, i / 2, i}) {
        const std::string got = Get(*one, Key(back));
        ASSERT_TRUE(got.empty() || got == Pattern(back, kCellBytes));
      }
    }
  }
}

TEST_F(DiskCacheTest, IsForItsOwnerAlone) {
  Keep(*Open(), Key(1), Contents(1));
  struct stat about {};
  ASSERT_EQ(stat(Home().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0700u);
  ASSERT_EQ(stat(Segments().at(0).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
  ASSERT_EQ(chmod(Home().c_str(), 0755), 0);
  auto cache = Make();
  sim_.Sleep(seconds(5));
  EXPECT_FALSE(cache->counters().ready) << "others may have seen, or put, what is there";
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("mode 0700"), std::string::npos) << warnings_[0];
}

// Whatever happens to it, what it returns is what was offered under that name.
TEST(DiskCacheModel, ReturnsWhatWasOfferedOrNothing) {
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    SetLogLevel(LogLevel::kError);
    SimRuntime sim(seed);
    TemporaryDirectory directory;
    Trouble trouble;
    std::map<uint64_t, size_t> sizes;  // of what was offered
    const auto home = std::filesystem::path(directory / "cache");
    const auto make = [&] {
      return std::make_unique<DiskCache>(
          sim,
          std::make_unique<TroubledDirectory>(sim, trouble,
                                              LocalCacheDirectory(directory.path(), "cache")),
          DiskCache::Options{.cluster = kUuid,
                             .bytes = kLeastDiskCacheBytes,
                             .queue_bytes = sim.Chance(0.5) ? kQueueBytes : 2 * kCellBytes});
    };
    const auto any_file = [&]() -> std::optional<std::filesystem::path> {
      std::vector<std::filesystem::path> files;
      if (!std::filesystem::exists(home)) return std::nullopt;
      for (const auto& entry : std::filesystem::directory_iterator(home)) {
        files.push_back(entry.path());
      }
      if (files.empty()) return std::nullopt;
      return files[sim.Below(files.size())];
    };
    auto cache = make();
    uint64_t found = 0;
    for (int step = 0; step < 3000; ++step) {
      const uint64_t number = sim.Below(500);
      const size_t size = 1 + (number * 7919) % kCellBytes;
      switch (sim.Below(40)) {
        case 0: cache = nullptr, cache = make(); break;
        case 1: sim.Sleep(sim.Between(milliseconds(1), seconds(70))); break;
        case 2: trouble.write_error = sim.Chance(0.05) ? ENOSPC : 0; break;
        case 3: trouble.read_error = sim.Chance(0.05) ? EIO : 0; break;
        case 4: trouble.read_takes = milliseconds(sim.Chance(0.02) ? 150 : 0); break;
        case 5:
          if (const auto file = any_file(); file && sim.Chance(0.2)) {
            std::filesystem::remove(*file);
          }
          break;
        case 6:
          if (const auto file = any_file(); file && std::filesystem::file_size(*file) > 0) {
            if (sim.Chance(0.3)) {
              std::filesystem::resize_file(*file, sim.Below(std::filesystem::file_size(*file)));
            } else {
              std::fstream out(*file, std::ios::in | std::ios::out | std::ios::binary);
              out.seekp(static_cast<int64_t>(sim.Below(std::filesystem::file_size(*file))));
              out.put(static_cast<char>(sim.Below(256)));
            }
          }
          break;
        default:
          if (sim.Chance(0.6)) {
            cache->Offer({{Key(number), Contents(number, size)}});
            sim.Sleep(milliseconds(5));
          } else if (const auto got = cache->Find(Key(number), size)) {
            ASSERT_EQ(AsText(got->bytes), Pattern(number, size)) << "SEED=" << seed;
            ++found;
          }
      }
    }
    EXPECT_GT(found, 50u) << "seed " << seed << " tested nothing";
    cache = nullptr;
  }
  SetLogLevel(LogLevel::kWarn);
}

// ---- Below a file system

class DiskCachedFilesTest : public FsTest {
 protected:
  DiskCachedFilesTest() {
    options_.disk_cache_directory = directory_.path();
    options_.disk_cache_bytes = kLeastDiskCacheBytes;
  }

  // Another process, or this one after a restart, with nothing in memory, when it has looked at its
  // directory.
  void Restart() {
    host_.fs = nullptr;
    host_.cluster = nullptr;
    host_ = NewHost();
    fs_ = host_.fs.get();
    while (!fs_->Memory().disk.ready) sim_.Sleep(milliseconds(10));
  }
  uint64_t FetchedBytes() { return host_.cluster->stripes().counters().bytes_fetched; }

  TemporaryDirectory directory_;
};

TEST_F(DiskCachedFilesTest, WhatWasReadIsNotAskedOfDrivesAfterARestart) {
  const std::string bytes = Pattern(1, 20 * kTestBlock + 77);
  Make("file", bytes);
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  EXPECT_GE(FetchedBytes(), bytes.size());
  EXPECT_EQ(fs_->Memory().disk.cells_found, 0u);
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  EXPECT_EQ(FetchedBytes(), 0u);
  const MemoryCounters memory = fs_->Memory();
  EXPECT_GT(memory.disk.cells_found, 0u);
  EXPECT_EQ(memory.disk.cells_missed, 0u);
  EXPECT_EQ(memory.cache_misses, 0u);
  EXPECT_EQ(FsTest::Contents("/file"), bytes) << "from memory";
  EXPECT_EQ(fs_->Memory().disk.cells_found, memory.disk.cells_found);
}

TEST_F(DiskCachedFilesTest, ReadsWhatLeftTheMemoryFromDiskAndTheRestFromDrives) {
  const std::string bytes = Pattern(1, 20 * kTestBlock);
  Make("file", bytes);
  Restart();
  auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kRead);
  ASSERT_OK(file);
  for (uint64_t block = 0; block < 20; block += 3) {  // of each a part
    EXPECT_EQ(ReadAll(**file, block * kTestBlock + 100, 5000),
              bytes.substr(block * kTestBlock + 100, 5000));
  }
  ASSERT_OK((*file)->Close());
  file->reset();
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  const uint64_t found = fs_->Memory().disk.cells_found;
  EXPECT_GE(found, 7u);
  EXPECT_LT(found, 40u);
  EXPECT_EQ(FetchedBytes() + found * kCellBytes, bytes.size());
}

// Reads here and there fetch cells, and no pages: those would not be found again.
TEST_F(DiskCachedFilesTest, ReadsHereAndThereFetchCells) {
  const std::string bytes = Pattern(1, 40 * kTestBlock);
  Make("file", bytes);
  const auto read = [&] {
    Restart();
    auto file = fs_->Open(fs_->Resolve("/file")->inode, FileSystem::Access::kRead);
    ASSERT_OK(file);
    for (uint64_t i = 0; i < 20; ++i) {
      const uint64_t at = (i * i * 7 % 80) * kCellBytes + 4096;
      EXPECT_EQ(ReadAll(**file, at, 4096), bytes.substr(at, 4096)) << at;
    }
    ASSERT_OK((*file)->Close());
  };
  read();
  EXPECT_EQ(FetchedBytes() % kCellBytes, 0u);
  EXPECT_GE(FetchedBytes(), 10 * kCellBytes);
  read();
  EXPECT_EQ(FetchedBytes(), 0u);
}

TEST_F(DiskCachedFilesTest, AFileThatWasChangedMeanwhileIsReadAsItIs) {
  Make("file", Pattern(1, 5 * kTestBlock));
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), Pattern(1, 5 * kTestBlock));
  std::string bytes = Pattern(1, 5 * kTestBlock);
  {
    FileSystem::Options without;
    auto cluster = machines_.Open();
    auto other = FileSystem::Open(**cluster, without);
    auto file = (*other)->Open((*other)->Resolve("/file")->inode, FileSystem::Access::kWrite);
    const std::string change = Pattern(2, kTestBlock + 999);
    ASSERT_OK((*file)->Write(kTestBlock - 5, AsBytes(change)));
    bytes.replace(kTestBlock - 5, change.size(), change);
    ASSERT_OK((*file)->Close());
    file->reset();
  }
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
}

TEST_F(DiskCachedFilesTest, DamageAndLossOfTheCacheAreNotNoticedByReaders) {
  const std::string bytes = Pattern(1, 20 * kTestBlock);
  Make("file", bytes);
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  Restart();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
    if (entry.path().filename() == "lock" || !entry.is_regular_file()) continue;
    std::string all = FileBytes(entry.path());
    for (size_t at = 5000; at < all.size(); at += 100000) all[at] = static_cast<char>(~all[at]);
    std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary) << all;
  }
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  EXPECT_GT(fs_->Memory().disk.cells_damaged, 0u);
  EXPECT_GT(fs_->Memory().disk.cells_found, 0u);
  Restart();
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
  EXPECT_EQ(FetchedBytes(), 0u) << "what was damaged was kept anew";
  Restart();
  std::filesystem::remove_all(directory_.path());
  EXPECT_EQ(FsTest::Contents("/file"), bytes);
}

}  // namespace
}  // namespace pinstripe
