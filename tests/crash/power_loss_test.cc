// Stores whose disk loses its power, again and again, while they are written.
//
// Goal: whatever moment the power fails at, and whatever the disk had written of what was not
// synced, all that was promised is there (changes that were flushed, batches wholly or not at all),
// the store opens, and nothing in it is damaged. Method: the store works on a LossyDisk under load
// from several threads, with values of all kinds of places, flushes and compaction; meanwhile
// images are taken of what the disk might hold, opened as stores, and compared with what was
// acknowledged.
//
//   SEED=42 power_loss_test    one seed, to look at (threads make runs of one seed differ)
//   CRASH_SECONDS=600          as many seeds as there is time for

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "base/log.h"
#include "store/log_store.h"
#include "tests/crash/operation_log.h"
#include "tests/support/expect_ok.h"
#include "tests/support/lossy_disk.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr int kWriters = 2;  // of each store
constexpr int kKeysOfWriter = 10;
constexpr int kImages = 4;
constexpr uint64_t kChangesBetweenImages = 150;

LogStoreOptions OptionsFor(const std::string& path, LossyDisk& disk) {
  return {.path = path,
          .segment_bytes = 1 << 20,
          .reserve_bytes = 0,
          .slack_bytes = 64 << 10,
          .calls = &disk,
          .index_env = disk.env()};
}

// A store under load, and what it has acknowledged.
class LoadedStore {
 public:
  LoadedStore(std::unique_ptr<LogStore> store, uint64_t seed) : store_(std::move(store)) {
    for (int writer = 0; writer < kWriters; ++writer) {
      threads_.emplace_back([this, writer, seed] { Write(writer, seed * kWriters + writer); });
    }
    threads_.emplace_back([this] {
      while (!stop_) EXPECT_OK(store_->Tidy());
    });
  }
  ~LoadedStore() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  const OperationLog& log() const { return log_; }

 private:
  void Write(int writer, uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto key = [&] { return fmt::format("{}/{}", writer, random() % kKeysOfWriter); };
    while (!stop_) {
      switch (random() % 10) {
        case 0: Remove(key()); break;
        case 1:
        case 2: PutTogether(key(), key()); break;
        case 3: Flush(); break;
        default: Put(key(), /*flush=*/random() % 4 == 0); break;
      }
    }
  }
  void Put(const std::string& key, bool flush) {
    const uint64_t number = log_.Begin({key}, false)[0];
    EXPECT_OK(store_->Put(key, OperationLog::RecordOf(key, number)));
    if (flush) {
      EXPECT_OK(store_->Flush());
    }
    log_.Acknowledge(key, flush);
  }
  void Remove(const std::string& key) {
    const bool is_there = store_->Head(key).has_value();
    log_.Begin({key}, true);
    if (is_there) {
      EXPECT_OK(store_->Delete(key));
    }
    log_.Acknowledge(key, false);
  }
  void PutTogether(const std::string& one, const std::string& other) {
    if (one == other) return;
    const std::vector<uint64_t> numbers = log_.Begin({one, other}, false);
    const StoredRecord records[] = {OperationLog::RecordOf(one, numbers[0]),
                                    OperationLog::RecordOf(other, numbers[1])};
    const StoreChange changes[] = {{one, &records[0]}, {other, &records[1]}};
    EXPECT_OK(store_->Apply(changes));
    log_.Acknowledge(one, false);
    log_.Acknowledge(other, false);
  }
  void Flush() {
    const auto acknowledged = log_.Acknowledged();
    EXPECT_OK(store_->Flush());
    log_.Flushed(acknowledged);
  }

  const std::unique_ptr<LogStore> store_;
  OperationLog log_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

// What is wrong with the stores of an image, or nothing. They are opened on a disk that may fail
// once more, just after: what opening a store does must not make it worse.
std::string ComplaintAbout(const std::string& image, const std::string& second_image, uint64_t seed,
                           const std::vector<std::map<std::string, uint64_t>>& floors,
                           const std::vector<std::map<std::string, uint64_t>>& ceilings,
                           const std::vector<std::unique_ptr<LoadedStore>>& loads) {
  StoreResources resources;
  LossyDisk disk(image);
  for (size_t i = 0; i < loads.size(); ++i) {
    const std::string path = fmt::format("{}/{}", image, i);
    auto store = LogStore::Open(OptionsFor(path, disk), resources);
    if (!store.has_value()) return fmt::format("not opened: {}", store.error().message());
    const std::string complaint = loads[i]->log().Complaint(
        floors[i], ceilings[i], [&](const std::string& key) { return (*store)->Get(key, {}); });
    if (!complaint.empty()) return complaint;
    const auto keys = (*store)->Keys({}, 1'000, false);
    if (!keys.has_value()) return std::string(keys.error().message());
    for (const std::string& key : *keys) {
      if (!ceilings[i].contains(key)) return fmt::format("{}: nobody has put that key", key);
    }
    if (!second_image.empty()) disk.TakeImage(fmt::format("{}-{}", second_image, i), seed);
    store->reset();
    const auto report = LogStore::Check(path, resources);
    if (!report.has_value()) return fmt::format("not checked: {}", report.error().message());
    if (report->damaged > 0) return report->sentences.at(0);
  }
  for (size_t i = 0; i < loads.size() && !second_image.empty(); ++i) {
    const std::string complaint =
        ComplaintAbout(fmt::format("{}-{}", second_image, i), "", seed, floors, ceilings, loads);
    if (!complaint.empty()) return "after a second power loss: " + complaint;
  }
  return "";
}

// The first thing that is wrong with any of the images of one run.
std::string RunOnce(uint64_t seed, bool lies) {
  const TemporaryDirectory directory;
  const std::string live = directory / "live";
  fs::create_directories(live);
  LossyDisk disk(live, lies);
  StoreResources resources;
  std::vector<std::unique_ptr<LoadedStore>> loads;
  // Two of them share their commits, one syncs its own files.
  const size_t stores = 1 + seed % 2;
  for (size_t i = 0; i < stores; ++i) {
    auto opened = LogStore::Open(OptionsFor(fmt::format("{}/{}", live, i), disk), resources);
    EXPECT_OK(opened);
    if (!opened.has_value()) return "";
    loads.push_back(std::make_unique<LoadedStore>(*std::move(opened), seed * 2 + i));
  }
  const auto changes = [&] {
    uint64_t sum = 0;
    for (const auto& load : loads) sum += load->log().changes();
    return sum;
  };
  std::mt19937_64 random(seed);
  for (int image = 0; image < kImages; ++image) {
    const uint64_t wanted = changes() + 1 + random() % kChangesBetweenImages;
    while (changes() < wanted) std::this_thread::yield();
    // What is promised before the image is in it; what is in it was begun before it was finished.
    std::vector<std::map<std::string, uint64_t>> floors;
    std::vector<std::map<std::string, uint64_t>> ceilings;
    for (const auto& load : loads)
      floors.push_back(load->log().Floors(OperationLog::Crash::kPowerLoss));
    const std::string target = directory / fmt::format("image-{}", image);
    const uint64_t image_seed = seed * kImages + image;
    disk.TakeImage(target, image_seed);
    for (const auto& load : loads) ceilings.push_back(load->log().Ceilings());
    const std::string complaint =
        ComplaintAbout(target, target + "-again", image_seed, floors, ceilings, loads);
    if (!complaint.empty()) return fmt::format("image {}: {}", image, complaint);
  }
  return "";
}

bool TimeIsLeft() {
  static const auto begin = std::chrono::steady_clock::now();
  const char* seconds = std::getenv("CRASH_SECONDS");
  return seconds != nullptr &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(std::atoi(seconds));
}

TEST(PowerLoss, WhatWasPromisedIsThereAndNothingElseIsDamaged) {
  SetLogLevel(LogLevel::kError);
  const Seeds seeds = SeedsFromEnvironment(4);
  uint64_t seed = seeds.first;
  for (; seed < seeds.end || TimeIsLeft(); ++seed) {
    ASSERT_EQ(RunOnce(seed, /*lies=*/false), "") << "seed " << seed;
    if (HasFailure()) return;
  }
  std::printf("%llu times the power failed\n",
              static_cast<unsigned long long>(2 * kImages * (seed - seeds.first)));
}

// A test of the test: of a disk that only says that it has synced, losses must be noticed.
TEST(PowerLoss, ADiskThatLiesAboutItsSyncsIsFoundOut) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    if (!RunOnce(seed, /*lies=*/true).empty()) return;
  }
  FAIL() << "nothing was ever missing";
}

}  // namespace
}  // namespace pinstripe
