// What a LogStore promises beyond every store: what is left after kills, power loss and damage.

#include "store/log_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "store/descriptor_reserve.h"
#include "store/disk_reader.h"
#include "store/file_turns.h"
#include "store/index_files.h"
#include "tests/fuzz/mutator.h"
#include "tests/store/pretended_machine.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

class LogStoreTest : public testing::Test {
 protected:
  LogStoreOptions Options() const {
    return {.path = path_, .segment_bytes = 4 << 20, .reserve_bytes = 0};
  }
  void Open() {
    auto opened = LogStore::Open(Options(), resources_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
    store_->CheckInvariants();
  }
  void Close() { store_.reset(); }
  void TidyUp() {
    ASSERT_OK(store_->Flush());
    while (true) {
      const auto more = store_->Tidy();
      ASSERT_OK(more);
      store_->CheckInvariants();
      if (!*more) return;
    }
  }

  Status Put(std::string_view key, std::string value, std::string version = "") {
    Status put = store_->Put(key, {{.version = std::move(version)}, SharedBytes(std::move(value))});
    store_->CheckInvariants();
    return put;
  }
  std::string Value(std::string_view key) {
    const auto record = store_->Get(key, {});
    EXPECT_OK(record);
    return record.has_value() ? std::string(record->value.text()) : "";
  }
  std::vector<fs::path> Segments() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(path_ + "/segments")) found.push_back(entry);
    std::sort(found.begin(), found.end());
    return found;
  }
  uint64_t AllocatedBytes() const {
    uint64_t bytes = 0;
    for (const fs::path& segment : Segments()) {
      struct stat about;
      EXPECT_EQ(stat(segment.c_str(), &about), 0);
      bytes += static_cast<uint64_t>(about.st_blocks) * 512;
    }
    return bytes;
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "store";
  StoreResources resources_;
  std::unique_ptr<LogStore> store_;
};

std::string Pattern(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  std::mt19937 random(seed);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

void FlipBit(const fs::path& file, uint64_t offset, int mask = 0x10) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(stream.get() ^ mask);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(byte);
  ASSERT_TRUE(stream.good());
}

TEST_F(LogStoreTest, ADeviceKeepsItsIdentity) {
  Open();
  const DeviceIdentity identity = store_->identity();
  EXPECT_FALSE(identity.serial_number.empty());
  EXPECT_EQ(identity.world_wide_name.size(), 16u);
  Close();
  Open();
  EXPECT_EQ(store_->identity().serial_number, identity.serial_number);
  EXPECT_EQ(store_->identity().world_wide_name, identity.world_wide_name);
  Close();
  LogStoreOptions other = Options();
  other.serial_number = "other";
  EXPECT_FAILS(LogStore::Open(other, resources_), EINVAL);
}

TEST_F(LogStoreTest, IsOpenedByOneAtATime) {
  Open();
  EXPECT_FAILS(LogStore::Open(Options(), resources_), EBUSY);
  EXPECT_FAILS(LogStore::Check(path_, resources_), EBUSY);
}

// Nobody else has left any, as where connections have taken them all; a store that failed for that
// would have failed for good.
TEST_F(LogStoreTest, OpensFilesThoughDescriptorsHaveRunOut) {
  Open();
  DescriptorReserve::OfProcess().Keep(64);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{std::min<rlim_t>(512, limit.rlim_max), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<FileDescriptor> others;
  while (others.empty() || others.back().get() >= 0) others.emplace_back(dup(STDERR_FILENO));
  // Tables of the index, from 8 MiB on, its journals, and segments.
  for (int i = 0; i < 5000; ++i) ASSERT_OK(Put(fmt::format("small {}", i), std::string(3000, 's')));
  for (int i = 0; i < 12; ++i) ASSERT_OK(Put(fmt::format("{}", i), Pattern(1 << 20, 1)));
  ASSERT_OK(store_->Flush());
  EXPECT_LT(DescriptorReserve::OfProcess().size(), 64u) << "it was needed";
  others.clear();
  DescriptorReserve::OfProcess().Keep(0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Close();
  Open();
  EXPECT_EQ(Value("small 4999"), std::string(3000, 's'));
}

TEST_F(LogStoreTest, DoesNotMoveIntoADirectoryOfSomebodyElse) {
  fs::create_directories(path_);
  std::ofstream(path_ + "/letter") << "dear";
  EXPECT_FAILS(LogStore::Open(Options(), resources_), ENOTEMPTY);
}

TEST_F(LogStoreTest, ANewerFormatIsRefused) {
  Open();
  Close();
  const std::string superblock = path_ + "/superblock";
  std::fstream stream(superblock, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(16 + 3);
  stream.put(3);
  stream.close();
  EXPECT_FAILS(LogStore::Open(Options(), resources_), ENOTSUP);
}

TEST_F(LogStoreTest, ADamagedSuperblockIsRefused) {
  Open();
  Close();
  FlipBit(path_ + "/superblock", 22);
  const auto opened = LogStore::Open(Options(), resources_);
  EXPECT_FAILS(opened, EBADMSG);
  EXPECT_NE(opened.error().message().find("This drive is lost"), std::string::npos);
}

TEST_F(LogStoreTest, AStoreThatLostItsIndexIsNotTakenForANewOne) {
  Open();
  Close();
  fs::remove_all(path_ + "/index");
  fs::create_directory(path_ + "/index");
  const auto opened = LogStore::Open(Options(), resources_);
  EXPECT_FAILS(opened, EBADMSG);
  EXPECT_NE(opened.error().message().find("This drive is lost"), std::string::npos);
}

TEST_F(LogStoreTest, SpaceOfDeletedValuesGoesBackToTheFileSystem) {
  Open();
  for (int i = 0; i < 32; ++i) ASSERT_OK(Put(fmt::format("{}", i), Pattern(500'000, 1)));
  ASSERT_OK(store_->Flush());
  EXPECT_GE(AllocatedBytes(), 32u * 500'000);
  const size_t segments = Segments().size();
  // Every second one: no segment dies, every one gets holes.
  for (int i = 0; i < 32; i += 2) ASSERT_OK(store_->Delete(fmt::format("{}", i)));
  TidyUp();
  EXPECT_EQ(Segments().size(), segments);
  EXPECT_LE(AllocatedBytes(), 16u * 520'000);
  for (int i = 1; i < 32; i += 2) EXPECT_EQ(Value(fmt::format("{}", i)), Pattern(500'000, 1));
  for (int i = 1; i < 32; i += 2) ASSERT_OK(store_->Delete(fmt::format("{}", i)));
  TidyUp();
  EXPECT_EQ(Segments().size(), 1u);  // the one that is written to
}

// An open store has asked for as much again as it has written, up to 32 MiB.
TEST_F(LogStoreTest, SpaceThatWasAskedForAheadGoesBackWithEverySegment) {
  Open();
  ASSERT_OK(Put("first", Pattern(100'000, 1)));
  EXPECT_GE(AllocatedBytes(), 1u << 20);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Put(fmt::format("{}", i), Pattern(500'000, 1)));
  TidyUp();
  ASSERT_EQ(Segments().size(), 3u);
  uint64_t full = 0;
  for (const fs::path& segment : {Segments().at(0), Segments().at(1)}) {
    struct stat about;
    ASSERT_EQ(stat(segment.c_str(), &about), 0);
    EXPECT_LE(static_cast<uint64_t>(about.st_blocks) * 512, fs::file_size(segment) + 4096);
    full += fs::file_size(segment);
  }
  EXPECT_GT(full, 7u << 20);
  Close();
  EXPECT_LE(AllocatedBytes(), 20u * 500'000 + 100'000 + 50'000);
}

// Counts what is synced.
class CountingCalls final : public FileCalls {
 public:
  int Sync(int fd) override {
    ++files;
    return FileCalls::Sync(fd);
  }
  int SyncFileSystem(int fd) override {
    ++file_systems;
    return FileCalls::SyncFileSystem(fd);
  }
  std::atomic<int> files = 0;
  std::atomic<int> file_systems = 0;
};

// A disk that does not sync any more once it is told to.
class FailingCalls final : public FileCalls {
 public:
  int Sync(int fd) override {
    if (!fails) return FileCalls::Sync(fd);
    errno = EIO;
    return -1;
  }
  std::atomic<bool> fails = false;
};

TEST_F(LogStoreTest, AStoreThatCouldNotSyncServesReadsOnlyAndSaysWhy) {
  FailingCalls calls;
  LogStoreOptions options = Options();
  options.calls = &calls;
  auto opened = LogStore::Open(options, resources_);
  ASSERT_OK(opened);
  const std::unique_ptr<LogStore> store = *std::move(opened);
  ASSERT_OK(store->Put("key", {{}, SharedBytes(Pattern(10'000, 1))}));
  EXPECT_OK(store->Usage().failure);

  calls.fails = true;
  EXPECT_FAILS(store->Flush(), EIO);
  calls.fails = false;  // whatever the disk does from now on
  EXPECT_FAILS(store->Put("key", {{}, SharedBytes(Pattern(10'000, 2))}), EIO);
  const Result<StoredRecord> read = store->Get("key", {});
  ASSERT_OK(read);
  EXPECT_EQ(read->value.text(), Pattern(10'000, 1));
  const std::string why(store->Usage().failure.message());
  EXPECT_NE(why.find("Input/output error"), std::string::npos) << why;
  EXPECT_NE(why.find("start pinstriped again"), std::string::npos) << why;
}

// --- Whether it may have forgotten something (starts_test.cc has all cases)

bool LastStartWasClean(LogStore& store) { return store.Starts().starts.at(0).clean; }

TEST_F(LogStoreTest, AStoreThatIsDroppedHasForgottenNothingUnlessTheMachineWentDown) {
  PretendedMachine machine("boot 1");
  Open();
  EXPECT_TRUE(LastStartWasClean(*store_));
  const uint64_t first = store_->Starts().starts.at(0).id;
  ASSERT_OK(Put("key", Pattern(10'000, 1)));
  Close();
  Open();
  EXPECT_TRUE(LastStartWasClean(*store_)) << "the kernel has what it was given";
  ASSERT_OK(Put("key", Pattern(10'000, 2)));
  Close();
  machine.Restart("boot 2");
  Open();
  const StoreStarts starts = store_->Starts();
  ASSERT_EQ(starts.starts.size(), 3u);
  EXPECT_EQ(starts.count, 3u);
  EXPECT_FALSE(starts.starts[0].clean);
  EXPECT_EQ(starts.starts[2], (DriveStart{first, true}));
}

TEST_F(LogStoreTest, AStoreThatEndsCleanlyStartsCleanlyOnAnyMachine) {
  PretendedMachine machine("boot 1");
  Open();
  ASSERT_OK(Put("key", Pattern(10'000, 1)));
  ASSERT_OK(Put("small", "value"));
  ASSERT_OK(store_->EndCleanly());
  EXPECT_FAILS(Put("key", "later"), EIO);
  Close();
  machine.Restart("boot 2");
  Open();
  EXPECT_TRUE(LastStartWasClean(*store_));
  EXPECT_EQ(Value("key"), Pattern(10'000, 1));
  EXPECT_EQ(Value("small"), "value");
  ASSERT_OK(Put("key", Pattern(10'000, 2)));
}

TEST_F(LogStoreTest, AStoreThatCannotSyncDoesNotEndCleanlyAndItsNextStartIsUnclean) {
  PretendedMachine machine("boot 1");
  FailingCalls calls;
  LogStoreOptions options = Options();
  options.calls = &calls;
  {
    auto opened = LogStore::Open(options, resources_);
    ASSERT_OK(opened);
    ASSERT_OK((*opened)->Put("key", {{}, SharedBytes(Pattern(10'000, 1))}));
    calls.fails = true;
    EXPECT_FAILS((*opened)->EndCleanly(), EIO);
    calls.fails = false;
    EXPECT_FAILS((*opened)->EndCleanly(), EIO) << "whatever the disk does from now on";
  }
  Open();
  EXPECT_FALSE(LastStartWasClean(*store_));
  Close();
  Open();
  EXPECT_TRUE(LastStartWasClean(*store_)) << "that was told once";
}

// What is written to a file between two syncs, the descriptor must have been open for that is asked
// for the second of them: the kernel tells no younger one what it could not write.
class DescriptorCalls final : public FileCalls {
 public:
  int Create(const std::string& path) override { return Opened(FileCalls::Create(path)); }
  int Open(const std::string& path) override { return Opened(FileCalls::Open(path)); }
  ssize_t Write(int fd, const iovec* pieces, int count, uint64_t offset) override {
    {
      const std::lock_guard lock(mutex_);
      unsynced_.try_emplace(FileOf(fd), ++now_);
    }
    return FileCalls::Write(fd, pieces, count, offset);
  }
  int Sync(int fd) override {
    const std::lock_guard lock(mutex_);
    ++syncs;
    if (const auto found = unsynced_.find(FileOf(fd)); found != unsynced_.end()) {
      EXPECT_LT(opened_.at(fd), found->second) << "this descriptor may not have heard of all";
      unsynced_.erase(found);
    }
    return FileCalls::Sync(fd);
  }
  int syncs = 0;

 private:
  int Opened(int fd) {
    const std::lock_guard lock(mutex_);
    opened_[fd] = ++now_;
    return fd;
  }
  static ino_t FileOf(int fd) {
    struct stat about {};
    EXPECT_EQ(fstat(fd, &about), 0);
    return about.st_ino;
  }
  std::mutex mutex_;
  uint64_t now_ = 0;                    // guarded by mutex_, like all below
  std::map<int, uint64_t> opened_;      // when
  std::map<ino_t, uint64_t> unsynced_;  // when it was first written since its last sync
};

TEST_F(LogStoreTest, ASegmentIsSyncedThroughADescriptorThatIsOlderThanWhatWasWritten) {
  DescriptorCalls calls;
  LogStoreOptions options = Options();
  options.calls = &calls;
  options.segment_bytes = 20'000;  // two values
  const auto open = [&] { store_ = *LogStore::Open(options, resources_); };
  const auto key = [](int i) { return fmt::format("{}", i); };
  constexpr int kKeys = 199;  // in more segments than are kept open for reading
  open();
  for (int i = 0; i < kKeys; ++i) EXPECT_OK(Put(key(i), Pattern(8'000, 1)));
  Close();
  open();
  for (int i = 2; i < kKeys; ++i) EXPECT_OK(store_->Delete(key(i)));
  TidyUp();
  EXPECT_EQ(Segments().size(), 2u) << "one that is not open, and the one that is written";
  calls.syncs = 0;
  for (int i = 2; i < kKeys; ++i) EXPECT_OK(Put(key(i), Pattern(8'000, 1)));
  EXPECT_EQ(Value(key(0)), Pattern(8'000, 1));  // for which the oldest one is closed
  EXPECT_OK(store_->Flush());
  EXPECT_GE(calls.syncs, kKeys / 2);
  Close();
}

// A file system as its kernel tells of it: each descriptor hears once of what was lost since it was
// opened, and of what was lost before only where nobody has heard of that yet.
class TellingCalls final : public FileCalls {
 public:
  void LoseSomething() { ++lost_; }
  void TellSomebodyElse() { told_ = lost_.load(); }
  int OpenFileSystem(const std::string& path) override {
    const int fd = FileCalls::OpenFileSystem(path);
    told_to_[fd] = told_;
    return fd;
  }
  int SyncFileSystem(int fd) override {
    if (during_sync) during_sync();
    const int lost = lost_;
    if (std::exchange(told_to_.at(fd), lost) == lost) return 0;
    told_ = lost;
    errno = EIO;
    return -1;
  }
  std::function<void()> during_sync;

 private:
  std::atomic<int> lost_ = 0;
  int told_ = 0;
  std::map<int, int> told_to_;
};

class LosingFileSystemTest : public testing::Test {
 protected:
  std::unique_ptr<LogStore> Open(const std::string& name) {
    auto opened = LogStore::Open({.path = directory_ / name, .reserve_bytes = 0, .calls = &calls_},
                                 resources_);
    EXPECT_OK(opened);
    return opened.has_value() ? *std::move(opened) : nullptr;
  }
  static Status Put(LogStore& store) {
    return store.Put("key", {{}, SharedBytes(Pattern(10'000, 1))});
  }

  PretendedMachine machine_{"boot 1"};
  TemporaryDirectory directory_;
  TellingCalls calls_;
  StoreResources resources_;
};

TEST_F(LosingFileSystemTest, AFlushFailsAlsoWhenSomebodyElseWasToldWhatWasLost) {
  const auto one = Open("one");
  const auto other = Open("other");
  ASSERT_OK(Put(*one));
  ASSERT_OK(Put(*other));
  calls_.LoseSomething();
  calls_.TellSomebodyElse();
  EXPECT_FAILS(one->Flush(), EIO);
  EXPECT_FAILS(other->Flush(), EIO);
}

// The kernel tells of it once, and the third store would not hear of it when it flushes.
TEST_F(LosingFileSystemTest, WhatIsWrittenWhileOthersCommitIsLostWithTheirs) {
  const auto one = Open("one");
  const auto other = Open("other");
  const auto third = Open("third");
  const auto idle = Open("idle");
  ASSERT_OK(Put(*one));
  ASSERT_OK(Put(*other));
  calls_.during_sync = [&] {
    EXPECT_OK(Put(*third));
    calls_.LoseSomething();
  };
  EXPECT_FAILS(one->Flush(), EIO);
  calls_.during_sync = nullptr;
  EXPECT_FAILS(other->Flush(), EIO);
  EXPECT_FAILS(third->Flush(), EIO);
  EXPECT_FAILS(third->Usage().failure, EIO);
  EXPECT_FAILS(Put(*idle), EIO) << "what it was to say next could not be believed either";
}

TEST_F(LosingFileSystemTest, WhoIsWaitingForTheNextRoundHearsThatThisOneFailed) {
  const auto one = Open("one");
  const auto other = Open("other");
  const auto third = Open("third");
  ASSERT_OK(Put(*one));
  ASSERT_OK(Put(*other));
  std::thread waiting;
  calls_.during_sync = [&] {
    EXPECT_OK(Put(*third));
    waiting = std::thread([&] { EXPECT_FAILS(third->Flush(), EIO); });
    calls_.LoseSomething();
  };
  EXPECT_FAILS(one->Flush(), EIO);
  calls_.during_sync = nullptr;
  waiting.join();
}

TEST_F(LosingFileSystemTest, WhatWasLostBeforeTheStartIsNoFailureOfThisRunButMayBeALossOfTheLast) {
  ASSERT_NE(Open("killed"), nullptr);
  ASSERT_OK(Open("ended")->EndCleanly());
  calls_.LoseSomething();
  const auto killed = Open("killed");
  const auto ended = Open("ended");
  EXPECT_FALSE(LastStartWasClean(*killed));
  EXPECT_TRUE(LastStartWasClean(*ended));
  ASSERT_OK(Put(*killed));
  ASSERT_OK(Put(*ended));
  EXPECT_OK(killed->Flush());
  EXPECT_OK(ended->Flush());
}

TEST(SharedCommit, AFlushOfManyStoresOfAFileSystemIsOneSync) {
  constexpr int kStores = 36;
  const TemporaryDirectory directory;
  CountingCalls calls;
  StoreResources resources;
  std::vector<std::unique_ptr<LogStore>> stores;
  for (int i = 0; i < kStores; ++i) {
    auto opened = LogStore::Open(
        {.path = directory / fmt::format("{}", i), .reserve_bytes = 0, .calls = &calls}, resources);
    ASSERT_OK(opened);
    stores.push_back(*std::move(opened));
  }
  for (int round = 0; round < 3; ++round) {
    for (auto& store : stores) {
      ASSERT_OK(store->Put("key", {{}, SharedBytes(Pattern(10'000, 1))}));
    }
    calls.files = calls.file_systems = 0;
    std::vector<std::thread> flushes;
    for (auto& store : stores) flushes.emplace_back([&store] { EXPECT_OK(store->Flush()); });
    for (std::thread& flush : flushes) flush.join();
    EXPECT_EQ(calls.file_systems, 1);
    EXPECT_EQ(calls.files, 0);
  }
  // One store alone does not wait for what others write to the file system.
  ASSERT_OK(stores[0]->Put("key", {{}, SharedBytes(Pattern(10'000, 2))}));
  calls.files = calls.file_systems = 0;
  ASSERT_OK(stores[0]->Flush());
  EXPECT_EQ(calls.file_systems, 0);
  EXPECT_EQ(calls.files, 1);
}

TEST_F(LogStoreTest, SmallEntriesLeaveNothingBehindBetweenThem) {
  Open();
  // Not one of these covers two pages of 4 KiB, so only together they give some back.
  for (int i = 0; i < 200; ++i) ASSERT_OK(Put(fmt::format("{}", i), Pattern(4096, 1)));
  ASSERT_OK(store_->Flush());
  for (int i = 0; i < 200; i += 2) ASSERT_OK(store_->Delete(fmt::format("{}", i)));
  ASSERT_OK(store_->Flush());
  for (int i = 1; i < 199; i += 2) ASSERT_OK(store_->Delete(fmt::format("{}", i)));
  Close();  // and with it goes what was asked of the file system ahead
  EXPECT_LE(AllocatedBytes(), 16u * 1024);
  Open();
  EXPECT_EQ(Value("199"), Pattern(4096, 1));
}

// Otherwise puts stand still for seconds while space is given back.
TEST(FileTurns, WhoPunchesLetsThoseWhoWriteAlreadyPass) {
  FileTurns turns;
  turns.AwaitWrites();  // nobody writes
  auto one = std::make_unique<FileTurns::Write>(turns);
  auto another = std::make_unique<FileTurns::Write>(turns);
  std::atomic<int> ended = 0;
  std::thread puncher([&] {
    turns.AwaitWrites();
    EXPECT_EQ(ended, 2);
  });
  while (turns.waiting() == 0) std::this_thread::yield();
  const FileTurns::Write later(turns);  // is not waited for
  ++ended;
  one.reset();
  ++ended;
  another.reset();
  puncher.join();
}

// What a store may take of the file system: a tenth more than what is in it, and what its options
// leave alone. Small entries are the worst case, because only whole pages can be punched out of a
// file.
class SpaceTest : public LogStoreTest {
 protected:
  static constexpr uint64_t kSlack = 1 << 20;
  static constexpr uint64_t kAhead = 4 << 20;    // at most as much again as the segment has
  static constexpr uint64_t kSegment = 4 << 20;  // the one that is written is not compacted

  void OpenWithLittleSlack() {
    LogStoreOptions options = Options();
    options.slack_bytes = kSlack;
    auto opened = LogStore::Open(options, resources_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }
  void Replace(int key, size_t size) {
    ASSERT_OK(Put(fmt::format("{}", key), Pattern(size, static_cast<unsigned>(size))));
    live_ += size - std::exchange(sizes_[key], size);
    changed_ += size;
  }
  void Remove(int key) {
    if (sizes_[key] == 0) return;
    ASSERT_OK(store_->Delete(fmt::format("{}", key)));
    live_ -= std::exchange(sizes_[key], 0);
  }
  uint64_t Bound() const { return live_ + live_ / 10 + kSlack + kAhead + kSegment; }

  std::map<int, size_t> sizes_;
  uint64_t live_ = 0;
  uint64_t changed_ = 0;
};

TEST_F(SpaceTest, SmallDeletesAndRewritesLeaveNoMoreThanATenthBehind) {
  if (kSanitized) GTEST_SKIP() << "takes long, and does nothing that others do not";
  OpenWithLittleSlack();
  constexpr int kKeys = 8'000;
  std::mt19937 random(1);
  const auto any_size = [&] { return 4'096 + random() % 4'096; };
  for (int key = 0; key < kKeys; ++key) Replace(key, any_size());
  for (int key = 0; key < kKeys; key += 2) Remove(key);
  ASSERT_OK(store_->Flush());
  EXPECT_GT(AllocatedBytes(), Bound()) << "this is too easy: there is nothing to compact";
  TidyUp();
  EXPECT_LE(AllocatedBytes(), Bound());
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 5'000; ++i) {
      const int key = static_cast<int>(random() % kKeys);
      if (random() % 3 == 0) {
        Remove(key);
      } else {
        Replace(key, any_size());
      }
    }
    TidyUp();
    EXPECT_LE(AllocatedBytes(), Bound());
  }
  EXPECT_LE(store_->moved_bytes(), 16 * changed_);
  EXPECT_GT(store_->moved_bytes(), 0u);
  for (const auto& [key, size] : sizes_) {
    if (size == 0) continue;
    ASSERT_EQ(Value(fmt::format("{}", key)), Pattern(size, static_cast<unsigned>(size)));
  }
  Close();
  const auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
}

TEST_F(SpaceTest, AnEntryThatIsDamagedIsNotMovedAndStaysDamaged) {
  OpenWithLittleSlack();
  constexpr int kKeys = 4'000;
  for (int key = 0; key < kKeys; ++key) Replace(key, 4'500);
  FlipBit(Segments().at(0), 2'000);
  for (int key = 1; key < kKeys; key += 2) Remove(key);
  TidyUp();
  EXPECT_GT(store_->moved_bytes(), 0u);
  EXPECT_FAILS(store_->Get("0", {}), EBADMSG);
  EXPECT_EQ(Value("2"), Pattern(4'500, 4'500));
}

TEST_F(SpaceTest, ReadersAndWritersGoOnWhileEntriesAreMoved) {
  OpenWithLittleSlack();
  constexpr int kKeys = 1'500;
  std::atomic<int> writing = 2;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      std::mt19937 random(static_cast<unsigned>(writer));
      std::map<int, unsigned> versions;
      for (unsigned i = 1; i <= 5'000; ++i) {
        const int key = 2 * static_cast<int>(random() % kKeys) + writer;
        const std::string name = fmt::format("{}", key);
        if (const auto found = versions.find(key); found != versions.end()) {
          const auto record = store_->Get(name, {});
          ASSERT_OK(record);
          ASSERT_EQ(record->value.text(), Pattern(4'096 + found->second % 3'000, found->second));
        }
        if (i % 3 == 0 && versions.erase(key) > 0) {
          ASSERT_OK(store_->Delete(name));
        } else {
          ASSERT_OK(Put(name, Pattern(4'096 + i % 3'000, i)));
          versions[key] = i;
        }
      }
      for (const auto& [key, version] : versions) {
        ASSERT_EQ(Value(fmt::format("{}", key)), Pattern(4'096 + version % 3'000, version));
      }
      --writing;
    });
  }
  while (writing > 0) TidyUp();
  for (std::thread& thread : threads) thread.join();
  TidyUp();
  EXPECT_GT(store_->moved_bytes(), 0u);
  Close();
  const auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
}

// The index gives back in the background what deletions have left.
TEST_F(SpaceTest, DeletedSmallValuesLeaveTheIndex) {
  if (kSanitized) GTEST_SKIP() << "takes long, and does nothing that others do not";
  Open();
  constexpr int kKeys = 200'000;
  const std::string value = Pattern(1'500, 1);
  for (int key = 0; key < kKeys; ++key) {
    ASSERT_OK(store_->Put(fmt::format("{}", key), {{}, SharedBytes(value)}));
  }
  for (int key = 0; key < kKeys; ++key) {
    if (key % 10 != 0) {
      ASSERT_OK(store_->Delete(fmt::format("{}", key)));
    }
  }
  const auto index_bytes = [&] {
    uint64_t bytes = 0;
    std::error_code vanished;
    for (const auto& entry : fs::directory_iterator(path_ + "/index")) {
      const uint64_t size = entry.file_size(vanished);
      if (!vanished) bytes += size;
    }
    return bytes;
  };
  // 30 of 300 MB are live; 32 may stay dead, and the rest is the index's own.
  constexpr uint64_t kBound = 100'000'000;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  EXPECT_GT(index_bytes(), kBound) << "this is too easy: nothing is left to do";
  while (index_bytes() > kBound && std::chrono::steady_clock::now() < deadline) TidyUp();
  EXPECT_LE(index_bytes(), kBound);
}

TEST_F(LogStoreTest, EveryFlippedBitOfAnEntryIsFoundInThatRecordOnly) {
  Open();
  ASSERT_OK(Put("before", Pattern(10'000, 1)));
  ASSERT_OK(Put("victim", Pattern(5'000, 2), "version"));
  ASSERT_OK(Put("after", Pattern(10'000, 3)));
  Close();
  const fs::path segment = Segments().at(0);
  const uint64_t end = fs::file_size(segment);
  const uint64_t begin = EncodeLogHeader("before", {.value_bytes = 10'000}, 0).size() + 10'000;
  const uint64_t size =
      EncodeLogHeader("victim", {.version = "version", .value_bytes = 5'000}, 0).size() + 5'000;
  ASSERT_LT(begin + size, end);
  Open();
  for (uint64_t offset = begin; offset < begin + size; offset += offset < begin + 100 ? 1 : 97) {
    FlipBit(segment, offset);
    EXPECT_FAILS(store_->Get("victim", {}), EBADMSG) << offset;
    EXPECT_OK(store_->Get("before", {}));
    EXPECT_OK(store_->Get("after", {}));
    FlipBit(segment, offset);
  }
  EXPECT_EQ(Value("victim"), Pattern(5'000, 2));
}

TEST_F(LogStoreTest, ADamagedRecordCanBeReplacedAndDeleted) {
  Open();
  ASSERT_OK(Put("a", Pattern(10'000, 1)));
  ASSERT_OK(Put("b", Pattern(10'000, 1)));
  ASSERT_OK(store_->Flush());
  const fs::path segment = Segments().at(0);
  FlipBit(segment, 5'000);
  FlipBit(segment, 15'000);
  ASSERT_FAILS(store_->Get("a", {}), EBADMSG);
  ASSERT_FAILS(store_->Get("b", {}), EBADMSG);
  ASSERT_OK(Put("a", Pattern(10'000, 2)));
  EXPECT_EQ(Value("a"), Pattern(10'000, 2));
  ASSERT_OK(store_->Delete("b"));
  EXPECT_FAILS(store_->Get("b", {}), ENOENT);
}

TEST_F(LogStoreTest, CheckFindsDamageAndNothingElse) {
  Open();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(Put(fmt::format("large {}", i), Pattern(100'000, 1)));
    ASSERT_OK(Put(fmt::format("small {}", i), Pattern(100, 1)));
  }
  for (int i = 0; i < 20; i += 3) ASSERT_OK(store_->Delete(fmt::format("large {}", i)));
  Close();
  auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
  EXPECT_EQ(report->records, 33u);
  FlipBit(Segments().at(0), 150'000);
  report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 1u);
  EXPECT_EQ(report->sentences.size(), 1u);
}

// Writers replace and delete, somebody flushes, so that bytes are given back and segments vanish,
// and readers must never see anything but whole records.
TEST_F(LogStoreTest, WhatIsInMemoryIsGivenAtOnce) {
  Open();
  ASSERT_OK(Put("small", Pattern(100, 1)));
  ASSERT_OK(Put("large", Pattern(kMaxBytesAtOnce + 1, 2)));
  const auto small = store_->GetAtOnce("small", {});
  ASSERT_OK(small);
  EXPECT_EQ(small->value.text(), Pattern(100, 1));
  EXPECT_FAILS(store_->GetAtOnce("missing", {}), ENOENT);
  EXPECT_FAILS(store_->GetAtOnce("large", {}), EAGAIN) << "too long to be copied meanwhile";
  ASSERT_OK(store_->Delete("small"));
  EXPECT_FAILS(store_->GetAtOnce("small", {}), ENOENT);
}

// Whether a file there can be asked for what the kernel has in memory. (In tmpfs none can.)
bool CanReadAtOnce(const std::string& directory) {
  const std::string path = directory + "/probe";
  std::ofstream(path) << "x";
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  const iovec into{&byte, 1};
  return preadv2(fd.get(), &into, 1, 0, RWF_NOWAIT) == 1;
}

// RocksDB opens sixteen tables by itself, and the others when they are needed.
class ManyTablesTest : public LogStoreTest {
 protected:
  static constexpr int kRecords = 90'000;
  static constexpr size_t kValueBytes = 4'000;  // in the index

  static std::string Key(int i) { return fmt::format("{:08}", i * 7919 % kRecords); }
  static std::string ValueOf(int i) { return Pattern(8, static_cast<unsigned>(i)); }

  void FillAndOpenAgain() {
    Open();
    const std::string filling(kValueBytes, 'x');
    for (int first = 0; first < kRecords; first += 1000) {
      std::vector<std::string> keys;
      std::vector<StoredRecord> records;
      for (int i = first; i < first + 1000; ++i) {
        keys.push_back(Key(i));
        records.push_back({{.version = "1"}, SharedBytes(ValueOf(i) + filling)});
      }
      std::vector<StoreChange> puts;
      for (size_t i = 0; i < keys.size(); ++i) puts.push_back({keys[i], &records[i]});
      for (const Status& put : store_->PutEach(puts)) ASSERT_OK(put);
    }
    Close();
    int tables = 0;
    for (const auto& file : fs::directory_iterator(path_ + "/index")) {
      if (file.path().extension() == ".sst") ++tables;
    }
    ASSERT_GT(tables, 16);
    Open();
  }
};

TEST_F(ManyTablesTest, RecordsInTablesThatAreNotOpenYetAreNeitherDamagedNorMissing) {
  FillAndOpenAgain();
  int later = 0;
  for (int i = 0; i < kRecords; i += 97) {
    auto record = store_->GetAtOnce(Key(i), {});
    if (!record.has_value()) {
      ASSERT_FAILS(record, EAGAIN) << "record " << i;
      record = store_->Get(Key(i), {});
      ++later;
    }
    ASSERT_OK(record) << "record " << i;
    ASSERT_EQ(record->value.text().substr(0, 8), ValueOf(i));
  }
  EXPECT_GT(later, 0) << "all tables were open";
  EXPECT_FAILS(store_->Get("missing", {}), ENOENT);
}

TEST_F(ManyTablesTest, WhatTheKernelHasOfTheIndexIsGivenAtOnce) {
  std::string on_disk = testing::TempDir() + "pinstripe-XXXXXX";
  ASSERT_NE(mkdtemp(on_disk.data()), nullptr) << on_disk;
  const auto remove = [](const std::string* path) { fs::remove_all(*path); };
  const std::unique_ptr<std::string, decltype(remove)> guard(&on_disk, remove);
  if (!CanReadAtOnce(on_disk)) GTEST_SKIP() << "the file system of " << on_disk << " always waits";
  path_ = on_disk + "/store";
  FillAndOpenAgain();
  for (int i = 0; i < kRecords; i += 97) ASSERT_OK(store_->Get(Key(i), {}));  // opens all tables
  // RocksDB's own memory has one block in five. The kernel's may have lost some, too.
  int asked = 0;
  int given = 0;
  for (int i = 1; i < kRecords; i += 97) {
    const auto record = store_->GetAtOnce(Key(i), {});
    ++asked;
    if (!record.has_value()) {
      ASSERT_FAILS(record, EAGAIN);
      continue;
    }
    ASSERT_EQ(record->value.text().substr(0, 8), ValueOf(i));
    ++given;
  }
  EXPECT_GT(given, asked / 2);
  Close();
}

// RocksDB opens a table under a lock. A disk that hangs then holds up who may wait, and nobody
// else.
TEST_F(LogStoreTest, WhoMustNotWaitAsksNothingWhileATableIsOpened) {
  Open();
  ASSERT_OK(Put("key", "value"));
  Close();
  Open();
  const std::string table = directory_ / "table";
  std::ofstream(table) << "x";
  const auto open_table = [&] {
    std::unique_ptr<rocksdb::RandomAccessFile> file;
    return IndexFiles::Env()->NewRandomAccessFile(table, &file, rocksdb::EnvOptions());
  };
  ASSERT_TRUE(open_table().ok());
  EXPECT_FALSE(IndexFiles::IsOpening()) << "not for a question";
  {
    const IndexFiles::Wait question;
    EXPECT_FALSE(IndexFiles::IsOpening());
    ASSERT_TRUE(open_table().ok());
    EXPECT_TRUE(IndexFiles::IsOpening());
    EXPECT_FAILS(store_->GetAtOnce("key", {}), EAGAIN);
  }
  EXPECT_FALSE(IndexFiles::IsOpening());
  EXPECT_OK(store_->GetAtOnce("key", {}));
  const IndexFiles::NoWait no_wait;
  EXPECT_TRUE(open_table().IsBusy());
}

TEST_F(LogStoreTest, SmallRecordsArePutAtOnce) {
  Open();
  const StoredRecord small{{.version = "1"}, SharedBytes(Pattern(100, 1))};
  const StoredRecord large{{.version = "1"}, SharedBytes(Pattern(5'000, 2))};
  const StoreChange one{"small", &small};
  EXPECT_TRUE(store_->PutAllAtOnce({&one, 1}));
  EXPECT_EQ(Value("small"), Pattern(100, 1));
  const StoreChange both[] = {{"another", &small}, {"large", &large}};
  EXPECT_FALSE(store_->PutAllAtOnce(both)) << "the log may have to be waited for";
  EXPECT_FAILS(store_->Head("another"), ENOENT);
  // What lies in the log may be replaced, and what it used is given back.
  ASSERT_OK(Put("small", Pattern(5'000, 2)));
  EXPECT_TRUE(store_->PutAllAtOnce({&one, 1}));
  EXPECT_EQ(Value("small"), Pattern(100, 1));
  ASSERT_OK(store_->Delete("small"));
  TidyUp();
  EXPECT_EQ(store_->Usage().used_bytes, 0u);
}

// A disk on which a sync of the index ends when the test says so.
class HeldSyncs final : public rocksdb::EnvWrapper {
 public:
  HeldSyncs() : EnvWrapper(Env::Default()) {}

  rocksdb::Status NewWritableFile(const std::string& path,
                                  std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    const rocksdb::Status opened = EnvWrapper::NewWritableFile(path, file, options);
    if (opened.ok()) *file = std::make_unique<File>(*this, std::move(*file));
    return opened;
  }

  void Hold() {
    const std::lock_guard lock(mutex_);
    hold_ = true;
  }
  void AwaitHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  void LetGo() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    changed_.notify_all();
  }

 private:
  class File final : public rocksdb::WritableFileWrapper {
   public:
    File(HeldSyncs& env, std::unique_ptr<rocksdb::WritableFile> file)
        : WritableFileWrapper(file.get()), env_(env), file_(std::move(file)) {}
    rocksdb::Status Sync() override {
      env_.Wait();
      return file_->Sync();
    }
    rocksdb::Status Fsync() override {
      env_.Wait();
      return file_->Fsync();
    }

   private:
    HeldSyncs& env_;
    const std::unique_ptr<rocksdb::WritableFile> file_;
  };

  void Wait() {
    std::unique_lock lock(mutex_);
    held_ = hold_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !hold_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool hold_ = false;  // guarded by mutex_, like the next
  bool held_ = false;
};

TEST_F(LogStoreTest, WhoMustNotWaitIsNotHeldUpByASync) {
  HeldSyncs disk;
  LogStoreOptions options = Options();
  options.index_env = &disk;
  auto opened = LogStore::Open(options, resources_);
  ASSERT_OK(opened);
  store_ = *std::move(opened);
  ASSERT_OK(Put("before", Pattern(100, 1)));
  disk.Hold();
  std::thread flusher([&] { EXPECT_OK(store_->Flush()); });
  disk.AwaitHeld();
  const StoredRecord record{{}, SharedBytes(Pattern(100, 2))};
  const StoreChange put{"meanwhile", &record};
  EXPECT_FALSE(store_->PutAllAtOnce({&put, 1}));
  EXPECT_EQ(Value("before"), Pattern(100, 1));
  disk.LetGo();
  flusher.join();
  EXPECT_FAILS(store_->Head("meanwhile"), ENOENT);
  EXPECT_TRUE(store_->PutAllAtOnce({&put, 1}));
  EXPECT_EQ(Value("meanwhile"), Pattern(100, 2));
  Close();
}

// Index records are remembered: none that was replaced may come back.
TEST_F(LogStoreTest, NobodySeesARecordThatIsOlderThanOneSeenBefore) {
  Open();
  ASSERT_OK(Put("key", Pattern(1, 0), "0"));
  std::atomic<bool> writing = true;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      int last = 0;
      while (writing) {
        int seen = last;
        if (reader == 0) {
          const auto head = store_->Head("key");
          ASSERT_OK(head);
          seen = std::stoi(head->version);
        } else {
          const auto record = reader == 1 ? store_->Get("key", {}) : store_->GetAtOnce("key", {});
          if (!record.has_value() && record.error().code() == EAGAIN) continue;
          ASSERT_OK(record);
          seen = std::stoi(record->head.version);
          ASSERT_EQ(record->value.text(),
                    Pattern(record->value.size(), static_cast<unsigned>(seen)));
        }
        ASSERT_GE(seen, last);
        last = seen;
      }
    });
  }
  for (int i = 1; i <= 3'000; ++i) {
    const size_t size = i % 3 == 0 ? 10 : 4'500;
    const StoredRecord record{{.version = fmt::format("{}", i)},
                              SharedBytes(Pattern(size, static_cast<unsigned>(i)))};
    const StoreChange put{"key", &record};
    const bool at_once = store_->PutAllAtOnce({&put, 1});
    if (!at_once) {
      ASSERT_OK(store_->Put("key", record));
    }
    const auto head = store_->Head("key");
    ASSERT_OK(head);
    ASSERT_EQ(head->version, fmt::format("{}", i));
  }
  writing = false;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(LogStoreTest, ReadersSeeWholeRecordsWhateverIsGivenBackMeanwhile) {
  Open();
  constexpr int kKeys = 4;
  constexpr int kVersions = 120;
  const auto value_of = [](int key, int version) {
    return Pattern(5'000 + 997 * static_cast<size_t>(version % 200),
                   static_cast<unsigned>(key * 100'000 + version));
  };
  std::atomic<int> writing = kKeys;
  std::atomic<uint64_t> seen = 0;
  std::vector<std::thread> threads;
  for (int key = 0; key < kKeys; ++key) {
    threads.emplace_back([&, key] {
      const std::string name = fmt::format("{}", key);
      for (int version = 1; version <= kVersions; ++version) {
        EXPECT_OK(Put(name, value_of(key, version), fmt::format("{}", version)));
        if (version % 7 == 0) {
          EXPECT_OK(store_->Delete(name));
        }
        if (version % 5 == 0) {
          EXPECT_OK(store_->Flush());
        }
      }
      --writing;
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&, reader] {
      for (int key = reader; writing > 0; key = (key + 1) % kKeys) {
        const auto record = store_->Get(fmt::format("{}", key), {});
        if (!record.has_value()) {
          EXPECT_FAILS(record, ENOENT);
          continue;
        }
        EXPECT_EQ(record->value.text(), value_of(key, std::stoi(record->head.version)));
        ++seen;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
  Close();
  const auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
}

// Power loss may take any part of what was not flushed. Played by stopping a process without the
// end of its store, and cutting the log.
//
// The other process is this program again, started anew: a fork alone would lack RocksDB's threads.
constexpr char kScriptVariable[] = "PINSTRIPE_STORE_SCRIPT";
constexpr char kPathVariable[] = "PINSTRIPE_STORE_PATH";
constexpr char kArgumentVariable[] = "PINSTRIPE_STORE_ARGUMENT";

constexpr int kWriters = 3;
constexpr int kKeysOfWriter = 20;
constexpr int kNotes = 3;  // file descriptor for the notes below

// What a writer says after each acknowledged change.
struct Note {
  int32_t writer;
  int32_t key;
  int32_t version;  // negative: deleted
};

std::string KeyOf(int writer, int key) { return fmt::format("{}/{}", writer, key); }
std::string ValueOf(int writer, int key, int version) {
  const size_t sizes[] = {100, 4'000, 9'000, 70'000, 300'000};
  return Pattern(sizes[(version + key) % 5], static_cast<unsigned>(writer * 7919 + version));
}

Status PutPattern(LogStore& store, std::string_view key, size_t size, unsigned seed,
                  std::string version = "") {
  return store.Put(key, {{.version = std::move(version)}, SharedBytes(Pattern(size, seed))});
}

void WriteForEver(LogStore& store, int writer, int first_version) {
  std::mt19937 choice(static_cast<unsigned>(first_version * 10 + writer));
  for (int version = first_version;; ++version) {
    const int key = static_cast<int>(choice() % kKeysOfWriter);
    const bool remove = choice() % 4 == 0;
    const std::string name = KeyOf(writer, key);
    const Status status = remove ? store.Delete(name)
                                 : store.Put(name, {{.version = fmt::format("{}", version)},
                                                    SharedBytes(ValueOf(writer, key, version))});
    if (!status.ok() && status.code() != ENOENT) _exit(3);
    const Note note{writer, key, remove ? -version : version};
    if (write(kNotes, &note, sizeof note) != sizeof note) _exit(4);
    if (choice() % 10 == 0 && !store.Flush().ok()) _exit(5);
  }
}

// Keys of all kinds of places, changed together; with odd numbers "gone" is not there.
Status ApplyNumber(LogStore& store, int number) {
  const auto seed = static_cast<unsigned>(number);
  const std::string version = fmt::format("{}", number);
  std::vector<StoredRecord> records;
  for (const size_t size : {100, 9'000, 70'000}) {
    records.push_back({{.version = version}, SharedBytes(Pattern(size, seed))});
  }
  const StoreChange changes[] = {{"small", &records[0]},
                                 {"middle", &records[1]},
                                 {"large", &records[2]},
                                 {"gone", number % 2 == 0 ? &records[1] : nullptr}};
  return store.Apply(changes);
}

void ApplyForEver(LogStore& store, int first) {
  for (int number = first;; ++number) {
    if (!ApplyNumber(store, number).ok()) _exit(3);
    const Note note{0, 0, number};
    if (write(kNotes, &note, sizeof note) != sizeof note) _exit(4);
    if (number % 7 == 0 && !store.Flush().ok()) _exit(5);
  }
}

// Large and small records, some replaced, some deleted, all flushed.
constexpr int kSomeKeys = 16;
std::string SomeKey(int i) { return fmt::format("{}/{}", i % 2 == 0 ? "large" : "small", i); }
std::string SomeValue(int i) {
  return Pattern(i % 2 == 0 ? 5'000 + 100 * static_cast<size_t>(i) : 40, static_cast<unsigned>(i));
}
bool SomeDeleted(int i) { return i % 8 >= 6; }
void PutSomeOfEachKind(LogStore& store) {
  for (int i = 0; i < kSomeKeys; ++i) {
    ASSERT_OK(PutPattern(store, SomeKey(i), SomeValue(i).size(), 77, "old"));
  }
  ASSERT_OK(store.Flush());
  for (int i = 0; i < kSomeKeys; ++i) {
    const std::string value = SomeValue(i);
    ASSERT_OK(store.Put(SomeKey(i), {{.version = "new", .tag = "tag"}, SharedBytes(value)}));
    if (SomeDeleted(i)) {
      ASSERT_OK(store.Delete(SomeKey(i)));
    }
  }
  ASSERT_OK(store.Flush());
}

const std::map<std::string, std::function<void(LogStore&, const std::string& argument)>> kScripts =
    {
        {"flush one number, apply the next",
         [](LogStore& store, const std::string&) {
           ASSERT_OK(ApplyNumber(store, 1));
           ASSERT_OK(store.Flush());
           ASSERT_OK(ApplyNumber(store, 2));
         }},
        {"apply for ever",
         [](LogStore& store, const std::string& first) { ApplyForEver(store, std::stoi(first)); }},
        {"flush one, put one",
         [](LogStore& store, const std::string&) {
           ASSERT_OK(PutPattern(store, "flushed", 20'000, 1));
           ASSERT_OK(store.Flush());
           ASSERT_OK(PutPattern(store, "unflushed", 5'000, 2, "v"));
         }},
        {"put some of each kind, replace and delete, flush",
         [](LogStore& store, const std::string&) { PutSomeOfEachKind(store); }},
        {"flush one, replace it twice",
         [](LogStore& store, const std::string& size) {
           ASSERT_OK(PutPattern(store, "key", std::stoul(size), 1, "1"));
           ASSERT_OK(store.Flush());
           ASSERT_OK(PutPattern(store, "key", 60'000, 2, "2"));
           ASSERT_OK(PutPattern(store, "key", 50'000, 3, "3"));
         }},
        {"flush one, keep the index, delete it",
         [](LogStore& store, const std::string& path) {
           ASSERT_OK(PutPattern(store, "key", 100'000, 1));
           ASSERT_OK(store.Flush());
           fs::copy(path + "/index", path + "/../index", fs::copy_options::recursive);
           ASSERT_OK(store.Delete("key"));
         }},
        {"put many, delete most",
         [](LogStore& store, const std::string&) {
           for (int i = 0; i < 30; ++i)
             ASSERT_OK(PutPattern(store, fmt::format("{}", i), 500'000, 1));
           for (int i = 0; i < 30; ++i) {
             if (i % 5 == 0) continue;
             ASSERT_OK(store.Delete(fmt::format("{}", i)));
           }
         }},
        {"write for ever",
         [](LogStore& store, const std::string& first_version) {
           std::vector<std::thread> writers;
           for (int writer = 0; writer < kWriters; ++writer) {
             writers.emplace_back(
                 [&, writer] { WriteForEver(store, writer, std::stoi(first_version)); });
           }
           for (std::thread& writer : writers) writer.join();
         }},
};

// The other process. Does nothing in an ordinary run.
TEST(StoreScript, Runs) {
  const char* script = getenv(kScriptVariable);
  if (script == nullptr) GTEST_SKIP() << "runs only as the other process of the tests below";
  StoreResources resources;
  const auto opened = LogStore::Open(
      {.path = getenv(kPathVariable), .segment_bytes = 4 << 20, .reserve_bytes = 0}, resources);
  ASSERT_OK(opened);
  kScripts.at(script)(**opened, getenv(kArgumentVariable));
  _exit(HasFailure() ? 1 : 0);  // as if killed: nothing is closed
}

class PowerLossTest : public LogStoreTest {
 protected:
  // With `notes_end` as the place for its notes, if it makes any.
  pid_t StartProcess(const char* script, const std::string& argument, int notes_end = -1) {
    const pid_t child = fork();
    if (child != 0) return child;
    if (notes_end >= 0) dup2(notes_end, kNotes);
    setenv(kScriptVariable, script, 1);
    setenv(kPathVariable, path_.c_str(), 1);
    setenv(kArgumentVariable, argument.c_str(), 1);
    execl("/proc/self/exe", "store script", "--gtest_filter=StoreScript.Runs", "--gtest_brief=1",
          nullptr);
    _exit(127);
  }
  // Runs a script on the store in a process that then stops as if killed.
  void InKilledProcess(const char* script, const std::string& argument = "") {
    const pid_t child = StartProcess(script, argument);
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
};

TEST_F(PowerLossTest, AKillLeavesNothingTornAndAStoreThatFindsSomethingHasForgottenIt) {
  InKilledProcess("flush one, put one");
  Open();
  EXPECT_EQ(store_->torn_entries(), 0u);
  EXPECT_TRUE(LastStartWasClean(*store_));
  Close();
  fs::remove_all(path_);
  InKilledProcess("flush one, put one");
  fs::resize_file(Segments().at(0), fs::file_size(Segments().at(0)) - 1);
  Open();
  EXPECT_EQ(store_->torn_entries(), 1u);
  EXPECT_FALSE(LastStartWasClean(*store_));
}

// A disk that does not have what it was given from some place on. The kernel has it, as long as it
// is not asked to look at the disk.
class LosingCalls final : public FileCalls {
 public:
  void LoseFrom(uint64_t offset) { lost_from_ = offset; }
  ssize_t ReadDirect(int fd, void* into, size_t size, uint64_t offset) override {
    ++looks;
    const ssize_t got = FileCalls::ReadDirect(fd, into, size, offset);
    for (ssize_t i = 0; i < got; ++i) {
      if (offset + static_cast<uint64_t>(i) >= lost_from_) static_cast<char*>(into)[i] = 0;
    }
    return got;
  }
  int looks = 0;

 private:
  uint64_t lost_from_ = UINT64_MAX;
};

class LosingDiskTest : public PowerLossTest {
 protected:
  ~LosingDiskTest() override { Close(); }
  void Open() {
    LogStoreOptions options = Options();
    options.calls = &calls_;
    auto opened = LogStore::Open(options, resources_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }

  LosingCalls calls_;
};

TEST_F(LosingDiskTest, AfterAKillTheDiskIsAskedAndNotTheKernel) {
  InKilledProcess("flush one, put one");
  const uint64_t end = fs::file_size(Segments().at(0));
  calls_.LoseFrom(end - 2'500);  // half of what was not flushed
  Open();
  EXPECT_GT(calls_.looks, 0);
  EXPECT_EQ(store_->torn_entries(), 1u);
  EXPECT_FALSE(LastStartWasClean(*store_)) << "a kill alone loses nothing";
  EXPECT_EQ(Value("flushed"), Pattern(20'000, 1));
  EXPECT_FAILS(store_->Get("unflushed", {}), ENOENT);
  EXPECT_LT(fs::file_size(Segments().at(0)), end - 5'000) << "nor does the kernel have it any more";
}

TEST_F(LosingDiskTest, WhatTheDiskHasIsThereAfterAKillAndNotLookedAtAgain) {
  InKilledProcess("flush one, put one");
  Open();
  EXPECT_GT(calls_.looks, 0);
  EXPECT_TRUE(LastStartWasClean(*store_));
  calls_.looks = 0;
  EXPECT_EQ(Value("unflushed"), Pattern(5'000, 2));
  ASSERT_OK(store_->EndCleanly());
  Close();
  Open();
  EXPECT_EQ(calls_.looks, 0) << "all of it was durable";
}

// Whoever reads a file whose size is not one of blocks gets the rest as it is.
TEST_F(LosingDiskTest, APieceOfAFileIsReadFromTheDiskWhereverItIs) {
  const std::string path = directory_ / "file";
  const std::string bytes = Pattern((1 << 20) + 70'001, 1);
  std::ofstream(path, std::ios::binary) << bytes;
  Result<DiskReader> reader = DiskReader::Open(FileCalls::Kernel(), path);
  ASSERT_OK(reader);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t begin = random() % bytes.size();
    const size_t size = std::min<size_t>(random() % 200'000, bytes.size() - begin);
    std::string into(size, '\0');
    ASSERT_OK(reader->Read(begin, std::as_writable_bytes(std::span(into))));
    ASSERT_EQ(into, bytes.substr(begin, size));
  }
  std::string beyond(10, '\0');
  EXPECT_FAILS(reader->Read(bytes.size() - 9, std::as_writable_bytes(std::span(beyond))), EBADMSG);
}

// Goal: a bit that rots anywhere in a store's files is never served. Method: flip one, open the
// store, and read everything: each record comes as it was written, or is called damaged, or the
// store does not open; and whatever is called damaged is found by the check too. Bits are taken all
// over every file, in a store that was closed and in one whose process was killed, which still has
// its write-ahead log.
class BitRotTest : public PowerLossTest {
 protected:
  enum class Outcome { kHarmless, kRecordDamaged, kNotOpened };

  Outcome ReadAllIn(const std::string& path) {
    LogStoreOptions options = Options();
    options.path = path;
    const auto opened = LogStore::Open(options, resources_);
    if (!opened.has_value()) {
      EXPECT_NE(opened.error().code(), ENOENT);
      return Outcome::kNotOpened;
    }
    Outcome outcome = Outcome::kHarmless;
    const auto note = [&](const Status& failure) {
      EXPECT_EQ(failure.code(), EBADMSG) << failure.message();
      outcome = Outcome::kRecordDamaged;
    };
    std::vector<std::string> expected;
    for (int i = 0; i < kSomeKeys; ++i) {
      const auto record = (*opened)->Get(SomeKey(i), {});
      const auto head = (*opened)->Head(SomeKey(i));
      if (!SomeDeleted(i)) expected.push_back(SomeKey(i));
      if (record.has_value()) {
        EXPECT_FALSE(SomeDeleted(i)) << "a deleted record is back";
        EXPECT_EQ(record->value.text(), SomeValue(i));
        EXPECT_EQ(record->head.version, "new");
        EXPECT_EQ(record->head.tag, "tag");
      } else if (!SomeDeleted(i) || record.error().code() != ENOENT) {
        note(record.error());
      }
      if (head.has_value()) {
        EXPECT_EQ(head->version, "new");
      } else if (!SomeDeleted(i) || head.error().code() != ENOENT) {
        note(head.error());
      }
    }
    std::sort(expected.begin(), expected.end());
    const auto keys = (*opened)->Keys({}, 100, false);
    if (keys.has_value()) {
      EXPECT_EQ(*keys, expected);
    } else {
      note(keys.error());
    }
    return outcome;
  }

  void FlipBitsAllOver(int samples_of_file) {
    const std::string master = path_;
    std::map<Outcome, int> outcomes;
    std::mt19937_64 random(1);
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(master)) {
      if (entry.is_regular_file()) names.push_back(fs::relative(entry.path(), master));
    }
    ASSERT_GE(names.size(), 8u);
    for (const std::string& name : names) {
      const uint64_t bits = fs::file_size(master + "/" + name) * 8;
      for (int sample = 0; sample < samples_of_file && bits > 0; ++sample) {
        const uint64_t bit = random() % bits;
        SCOPED_TRACE(fmt::format("bit {} of {}", bit, name));
        const std::string copy = directory_ / "copy";
        fs::remove_all(copy);
        fs::copy(master, copy, fs::copy_options::recursive);
        FlipBit(copy + "/" + name, bit / 8, 1 << bit % 8);
        const auto report = LogStore::Check(copy, resources_);
        const Outcome outcome = ReadAllIn(copy);
        ++outcomes[outcome];
        if (outcome != Outcome::kHarmless) {
          EXPECT_TRUE(!report.has_value() || report->damaged > 0) << "the check has not found it";
        }
        if (HasFailure()) return;
      }
    }
    // The method has teeth: much of a store's bytes matter.
    EXPECT_GE(outcomes[Outcome::kRecordDamaged], samples_of_file / 8);
    EXPECT_GE(outcomes[Outcome::kNotOpened], samples_of_file);
  }
};

// Wilder than bits: pieces of files cut off, doubled, lost, or taken from other files, as recovery
// may find them after a disaster.
TEST_F(BitRotTest, NothingOfAMangledStoreIsServed) {
  InKilledProcess("put some of each kind, replace and delete, flush");
  std::vector<std::string> names;
  std::vector<std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;
    names.push_back(fs::relative(entry.path(), path_));
    std::ifstream file(entry.path(), std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  int not_harmless = 0;
  constexpr int kInputs = kSanitized ? 20 : 150;
  for (int input = 0; input < kInputs; ++input) {
    const size_t victim = static_cast<size_t>(input) % names.size();
    Mutator mutator({contents[victim]}, static_cast<uint64_t>(input));
    const std::string copy = directory_ / "copy";
    fs::remove_all(copy);
    fs::copy(path_, copy, fs::copy_options::recursive);
    std::ofstream(copy + "/" + names[victim], std::ios::binary) << mutator.Next();
    SCOPED_TRACE(fmt::format("input {}: {}", input, names[victim]));
    const auto report = LogStore::Check(copy, resources_);
    const Outcome outcome = ReadAllIn(copy);
    if (outcome != Outcome::kHarmless) {
      ++not_harmless;
      EXPECT_TRUE(!report.has_value() || report->damaged > 0) << "the check has not found it";
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(not_harmless, kInputs / 4);
}

TEST_F(BitRotTest, NoBitOfAClosedStoreIsServedRotten) {
  Open();
  PutSomeOfEachKind(*store_);
  Close();
  FlipBitsAllOver(kSanitized ? 2 : 16);
}

TEST_F(BitRotTest, NoBitOfAKilledStoreIsServedRotten) {
  InKilledProcess("put some of each kind, replace and delete, flush");
  FlipBitsAllOver(kSanitized ? 2 : 16);
}

TEST_F(PowerLossTest, ATornTailIsCutAtWhateverByteItTore) {
  InKilledProcess("flush one, put one");
  const fs::path segment = Segments().at(0);
  const std::string master = path_;
  const uint64_t end = fs::file_size(segment);
  const uint64_t last = EncodeLogHeader("unflushed", {.version = "v"}, 0).size() + 5'000;
  for (uint64_t size = end - last; size <= end;
       size += size < end - last + 3 || size >= end - 2 ? 1 : 613) {
    path_ = directory_ / "copy";
    fs::remove_all(path_);
    fs::copy(master, path_, fs::copy_options::recursive);
    fs::resize_file(Segments().at(0), std::min(size, end));
    Open();
    EXPECT_EQ(Value("flushed"), Pattern(20'000, 1));
    const bool whole = size == end;
    EXPECT_EQ(store_->torn_entries(), whole ? 0u : 1u);
    if (whole) {
      EXPECT_EQ(Value("unflushed"), Pattern(5'000, 2));
    } else {
      EXPECT_FAILS(store_->Get("unflushed", {}), ENOENT);
      EXPECT_EQ(fs::file_size(Segments().at(0)), end - last);
    }
    // What is written next is found again.
    ASSERT_OK(Put("next", Pattern(9'000, 3)));
    Close();
    Open();
    EXPECT_EQ(Value("next"), Pattern(9'000, 3));
    Close();
    const auto report = LogStore::Check(path_, resources_);
    ASSERT_OK(report);
    EXPECT_EQ(report->damaged, 0u);
  }
}

TEST_F(PowerLossTest, AnEntryThatWasFlushedAndIsCutOffIsDamageNotAbsence) {
  Open();
  ASSERT_OK(Put("key", Pattern(20'000, 1)));
  Close();
  fs::resize_file(Segments().at(0), 10'000);
  Open();
  EXPECT_FAILS(store_->Get("key", {}), EBADMSG);
  ASSERT_OK(Put("other", Pattern(20'000, 2)));
  EXPECT_EQ(Value("other"), Pattern(20'000, 2));
  EXPECT_FAILS(store_->Get("key", {}), EBADMSG);
}

TEST_F(PowerLossTest, AReplacementThatIsLostBringsBackWhatWasFlushed) {
  // Of a chain of replacements any number may be lost: the newest that is whole remains.
  for (const std::string first : {"100", "100000"}) {
    fs::remove_all(path_);
    InKilledProcess("flush one, replace it twice", first);
    const std::string master = path_;
    const auto value = [&](uint64_t log_bytes) {
      path_ = directory_ / "copy";
      fs::remove_all(path_);
      fs::copy(master, path_, fs::copy_options::recursive);
      fs::resize_file(Segments().at(0), log_bytes);
      Open();
      const std::string found = Value("key");
      Close();
      const auto report = LogStore::Check(path_, resources_);
      EXPECT_OK(report);
      EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
      return found;
    };
    const uint64_t end = fs::file_size(Segments().at(0));
    EXPECT_EQ(value(end), Pattern(50'000, 3));
    EXPECT_EQ(value(end - 1), Pattern(60'000, 2));
    EXPECT_EQ(value(end - 50'000), Pattern(60'000, 2));
    EXPECT_EQ(value(end - 60'000), Pattern(std::stoul(first), 1));
    EXPECT_EQ(value(end - 110'060), Pattern(std::stoul(first), 1));
    path_ = master;
  }
}

TEST_F(PowerLossTest, ADeletionThatIsUndoneFindsItsValueAgain) {
  InKilledProcess("flush one, keep the index, delete it", path_);
  fs::remove_all(path_ + "/index");
  fs::rename(directory_ / "index", path_ + "/index");
  Open();
  EXPECT_EQ(Value("key"), Pattern(100'000, 1));
}

// The number whose changes are there, all of them and nothing else.
int AppliedNumber(LogStore& store) {
  const auto small = store.Get("small", {});
  if (!small.has_value()) {
    for (const char* key : {"middle", "large", "gone"}) EXPECT_FAILS(store.Get(key, {}), ENOENT);
    return 0;
  }
  const int number = std::stoi(small->head.version);
  const auto seed = static_cast<unsigned>(number);
  EXPECT_EQ(small->value.text(), Pattern(100, seed));
  for (const auto& [key, size] : {std::pair{"middle", 9'000}, {"large", 70'000}, {"gone", 9'000}}) {
    const auto record = store.Get(key, {});
    if (number % 2 == 1 && std::string_view(key) == "gone") {
      EXPECT_FAILS(record, ENOENT);
      continue;
    }
    EXPECT_OK(record) << key;
    if (!record.has_value()) continue;
    EXPECT_EQ(record->head.version, small->head.version) << key;
    EXPECT_EQ(record->value.text(), Pattern(static_cast<size_t>(size), seed)) << key;
  }
  return number;
}

// Wherever the power cuts the index's log, which decides.
TEST_F(PowerLossTest, ChangesThatAreAppliedTogetherAreLostTogetherOrNot) {
  InKilledProcess("flush one number, apply the next");
  const std::string master = path_;
  fs::path journal;
  for (const auto& file : fs::directory_iterator(master + "/index")) {
    if (file.path().extension() == ".log" && fs::file_size(file.path()) > 0) journal = file.path();
  }
  const uint64_t end = fs::file_size(journal);
  std::map<int, int> seen;
  for (uint64_t cut = 0; cut < 400; cut += cut < 20 ? 1 : 19) {
    path_ = directory_ / "copy";
    fs::remove_all(path_);
    fs::copy(master, path_, fs::copy_options::recursive);
    fs::resize_file(fs::path(path_) / "index" / journal.filename(), end - cut);
    Open();
    ++seen[AppliedNumber(*store_)];
    Close();
    const auto report = LogStore::Check(path_, resources_);
    ASSERT_OK(report);
    EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
  }
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[2], 1) << "a journal that is cut does not hold the last write";
  EXPECT_GT(seen[1], 10);
}

TEST_F(PowerLossTest, SpaceThatAKilledProcessDidNotGiveBackIsFoundAtOpening) {
  InKilledProcess("put many, delete most");
  EXPECT_GE(AllocatedBytes(), 30u * 500'000);
  Open();
  EXPECT_LE(AllocatedBytes(), 6u * 520'000);
  for (int i = 0; i < 30; i += 5) EXPECT_EQ(Value(fmt::format("{}", i)), Pattern(500'000, 1));
}

// Another process writes under load and says on a pipe what was acknowledged; it is killed in the
// middle. Everything acknowledged is there, and everything there is whole.
class KillTest : public PowerLossTest {
 protected:
  // What was acknowledged before the process was killed.
  std::vector<Note> KillAfter(int notes, const char* script = "write for ever") {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = StartProcess(script, fmt::format("{}", first_version_), ends[1]);
    close(ends[1]);
    std::vector<Note> heard;
    Note note;
    while (read(ends[0], &note, sizeof note) == sizeof note) {
      heard.push_back(note);
      if (--notes == 0) {
        EXPECT_EQ(kill(child, SIGKILL), 0);
      }
    }
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the process ended by itself: " << status;
    return heard;
  }

  // The store holds what was acknowledged; each writer may have done one change more than it could
  // tell.
  void Compare() {
    for (int writer = 0; writer < kWriters; ++writer) {
      int vanished = 0;
      for (int key = 0; key < kKeysOfWriter; ++key) {
        int& acknowledged = versions_[{writer, key}];  // 0 or negative: not there
        const auto record = store_->Get(KeyOf(writer, key), {});
        if (!record.has_value()) {
          ASSERT_FAILS(record, ENOENT);
          if (acknowledged > 0) ++vanished;
          acknowledged = 0;
          continue;
        }
        const int version = std::stoi(record->head.version);
        EXPECT_GE(version, std::abs(acknowledged)) << "an acknowledged change is gone";
        EXPECT_EQ(record->value.text(), ValueOf(writer, key, version));
        acknowledged = version;
      }
      EXPECT_LE(vanished, 1) << "an acknowledged put is gone";
    }
  }

  std::map<std::pair<int, int>, int> versions_;
  int first_version_ = 1;
};

TEST_F(KillTest, WhatWasAcknowledgedSurvivesAKill) {
  std::mt19937 random(5);
  for (int round = 0; round < (kSanitized ? 4 : 24); ++round) {
    for (const Note& note : KillAfter(20 + static_cast<int>(random() % 200))) {
      versions_[{note.writer, note.key}] = note.version;
      first_version_ = std::max(first_version_, std::abs(note.version) + 10);
    }
    Open();
    EXPECT_EQ(store_->torn_entries(), 0u);
    Compare();
    Close();
  }
  const auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
}

TEST_F(KillTest, ChangesThatAreAppliedTogetherSurviveAKillTogether) {
  std::mt19937 random(6);
  for (int round = 0; round < (kSanitized ? 4 : 12); ++round) {
    const auto heard = KillAfter(1 + static_cast<int>(random() % 60), "apply for ever");
    Open();
    const int number = AppliedNumber(*store_);
    EXPECT_GE(number, heard.back().version) << "what was acknowledged is gone";
    EXPECT_LE(number, heard.back().version + 1);
    first_version_ = number + 1;
    Close();
  }
  const auto report = LogStore::Check(path_, resources_);
  ASSERT_OK(report);
  EXPECT_EQ(report->damaged, 0u) << report->sentences.at(0);
}

}  // namespace
}  // namespace pinstripe
