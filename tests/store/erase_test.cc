// Erasing a drive: all of it or nothing, whatever happens in between, and a drive afterwards.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "daemon/device_security.h"
#include "store/directory.h"
#include "store/drive_mark.h"
#include "store/erasable_store.h"
#include "store/gate.h"
#include "store/key_locks.h"
#include "store/log_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr int kRecords = 20;

// --- The gate

TEST(Gate, WhoClosesItIsAloneAndNobodyWaitsForEver) {
  Gate gate;
  std::atomic<int> inside = 0;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> visits = 0;
  int guarded = 0;
  std::vector<std::thread> visitors;
  for (int i = 0; i < 4; ++i) {
    visitors.emplace_back([&] {
      while (!stop) {
        const Gate::Visit visit(gate);
        ++inside;
        EXPECT_EQ(guarded % 2, 0);
        ++visits;
        --inside;
      }
    });
  }
  std::vector<std::thread> closers;
  for (int i = 0; i < 2; ++i) {
    closers.emplace_back([&] {
      for (int round = 0; round < 40; ++round) {
        const uint64_t before = visits;
        while (visits == before) std::this_thread::yield();  // they do get in, too
        const Gate::Closure alone(gate);
        ++guarded;
        EXPECT_EQ(inside, 0);
        ++guarded;
      }
    });
  }
  for (std::thread& closer : closers) closer.join();
  stop = true;
  for (std::thread& visitor : visitors) visitor.join();
  EXPECT_EQ(guarded, 160);
}

// --- Locks of keys

using Keys = std::vector<std::string_view>;

TEST(KeyLocks, WhoMustNotWaitHasAllKeysOrNone) {
  KeyLocks locks;
  const auto try_to_hold = [&](Keys keys) {
    return KeyLocks::Hold(locks, std::move(keys), KeyLocks::Wait::kMayNot).holds();
  };
  {
    const KeyLocks::Hold hold(locks, Keys{"d", "b"});
    EXPECT_TRUE(hold.holds());
    EXPECT_FALSE(try_to_hold({"a", "b", "c"}));
    EXPECT_FALSE(try_to_hold({"d"}));
    EXPECT_TRUE(try_to_hold({"c", "a"})) << "the attempt before has left one behind";
  }
  EXPECT_TRUE(try_to_hold({"a", "b", "c", "d"}));
}

TEST(KeyLocks, OnlyOneAtATimeHasAKeyInWhateverOrderTheyAreAskedFor) {
  KeyLocks locks;
  int guarded[3] = {};  // each by the key of its number
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const Keys names = {"0", "1", "2"};
      for (int i = 0; i < 3'000; ++i) {
        const int first = (i + thread) % 3;
        const int second = (first + 1 + i % 2) % 3;
        const KeyLocks::Hold hold(locks, Keys{names[first], names[second]});
        ++guarded[first];
        ++guarded[second];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guarded[0] + guarded[1] + guarded[2], 4 * 3'000 * 2);
}

TEST(KeyLocks, AKeyThatIsOnlyToStayIsSharedWithOthersWhoWantTheSame) {
  KeyLocks locks;
  const auto may = [&](Keys keys, Keys shared) {
    return KeyLocks::Hold(locks, std::move(keys), KeyLocks::Wait::kMayNot, std::move(shared))
        .holds();
  };
  {
    const KeyLocks::Hold hold(locks, Keys{"a"}, KeyLocks::Wait::kMay, Keys{"dir"});
    EXPECT_TRUE(may({"b"}, {"dir"}));
    EXPECT_FALSE(may({"dir"}, {})) << "it is to stay";
    EXPECT_FALSE(may({"b", "dir"}, {"c"}));
    EXPECT_FALSE(may({"c"}, {"a"})) << "it is being changed";
    EXPECT_TRUE(may({"b"}, {"c", "dir"})) << "the attempt before has left one behind";
  }
  EXPECT_TRUE(may({"a", "b", "dir"}, {"c"}));
}

// Else it would wait for as long as the next one comes before the last one goes.
TEST(KeyLocks, WhoChangesAKeyHasItsTurnHoweverManyShareIt) {
  KeyLocks locks;
  const auto may_share = [&] {
    return KeyLocks::Hold(locks, Keys{}, KeyLocks::Wait::kMayNot, Keys{"dir"}).holds();
  };
  std::atomic<bool> changed = false;
  std::thread writer;
  std::thread reader;
  {
    const KeyLocks::Hold first(locks, Keys{}, KeyLocks::Wait::kMay, Keys{"dir"});
    EXPECT_TRUE(may_share());
    writer = std::thread([&] {
      const KeyLocks::Hold hold(locks, "dir");
      changed = true;
    });
    while (may_share()) std::this_thread::yield();
    reader = std::thread([&] {
      const KeyLocks::Hold next(locks, Keys{}, KeyLocks::Wait::kMay, Keys{"dir"});
      EXPECT_TRUE(changed) << "it came before somebody who had waited";
    });
    EXPECT_FALSE(changed);
  }
  writer.join();
  reader.join();
  EXPECT_TRUE(KeyLocks::Hold(locks, Keys{"dir"}, KeyLocks::Wait::kMayNot).holds())
      << "somebody has left it behind";
}

// --- The directory

class EraseTest : public testing::Test {
 public:
  static Result<std::unique_ptr<Store>> OpenIn(const std::string& path, StoreResources& resources) {
    return LogStore::Open({.path = path, .segment_bytes = 1 << 20, .reserve_bytes = 0}, resources);
  }
  static std::unique_ptr<ErasableStore> OpenErasable(const std::string& path,
                                                     StoreResources& resources) {
    Result<std::unique_ptr<Store>> store = OpenIn(path, resources);
    EXPECT_OK(store);
    if (!store.has_value()) return nullptr;
    return std::make_unique<ErasableStore>(path, *std::move(store),
                                           [path, &resources] { return OpenIn(path, resources); });
  }
  static void Fill(Store& store) {
    for (int i = 0; i < kRecords; ++i) {
      EXPECT_OK(store.Put(std::to_string(i), {{}, SharedBytes(std::string(100 * i * i, 'v'))}));
    }
    EXPECT_OK(store.Flush());
  }
  static size_t Count(Store& store) { return store.Keys({}, 10 * kRecords, false)->size(); }

 protected:
  std::string Path(const std::string& name) const { return directory_ / name; }

  TemporaryDirectory directory_;
  StoreResources resources_;
};

// Each state of the directory in which a kill may leave an erase.
TEST_F(EraseTest, WhereverItIsInterruptedItIsFinishedWhenTheStoreIsOpened) {
  const std::string path = Path("store");
  fs::create_directory(path);
  const Result<DriveMark> mark = InitDrive(path, "1.2.3");
  ASSERT_OK(mark);
  const auto fill = [&] {
    const auto store = OpenErasable(path, resources_);
    Fill(*store);
    std::ofstream(path + "/security") << "who may use it";
  };
  fill();
  const DeviceIdentity identity = StoreDirectory::Open(path, "")->identity();
  const std::vector<std::string> names = {"index", "segments", "durable", "security", "starts"};
  // How many names were put aside; beyond: the new layout was made in part, or wholly.
  for (size_t moved = 0; moved <= names.size() + 2; ++moved) {
    SCOPED_TRACE(moved);
    ASSERT_OK(StoreDirectory::MarkErased(path));
    fs::create_directories(path + "/erased/1");
    for (size_t i = 0; i < std::min(moved, names.size()); ++i) {
      const std::string aside = path + "/erased/1/" + names[i];
      fs::remove_all(aside);
      fs::rename(path + "/" + names[i], aside);
    }
    if (moved > names.size()) fs::create_directory(path + "/index");
    if (moved > names.size() + 1) fs::create_directory(path + "/segments");
    {
      const auto store = OpenErasable(path, resources_);
      ASSERT_NE(store, nullptr);
      EXPECT_EQ(Count(*store), 0u);
      EXPECT_FALSE(fs::exists(path + "/security"));
      EXPECT_FALSE(fs::exists(path + "/erasing"));
      EXPECT_EQ(*RequireDriveMark(path, "1.2.3"), *mark);
    }
    EXPECT_EQ(StoreDirectory::Open(path, "")->identity().serial_number, identity.serial_number);
    fill();
    EXPECT_EQ(Count(*OpenErasable(path, resources_)), static_cast<size_t>(kRecords));
  }
  const auto store = OpenErasable(path, resources_);
  EXPECT_TRUE(fs::exists(path + "/erased"));
  ASSERT_OK(store->RemoveErased());
  EXPECT_FALSE(fs::exists(path + "/erased"));
  EXPECT_EQ(Count(*store), static_cast<size_t>(kRecords));
}

// It is another drive for those who knew it: what it holds it was given after.
TEST_F(EraseTest, AnErasedStoreHasNoStartButThatOfItsErase) {
  const std::string path = Path("store");
  OpenErasable(path, resources_)->Starts();
  OpenErasable(path, resources_)->Starts();
  const auto store = OpenErasable(path, resources_);
  const StoreStarts before = store->Starts();
  ASSERT_EQ(before.starts.size(), 3u);
  ASSERT_OK(store->Erase());
  const StoreStarts after = store->Starts();
  ASSERT_EQ(after.starts.size(), 1u);
  EXPECT_EQ(after.count, 1u);
  EXPECT_TRUE(after.starts[0].clean);
  for (const DriveStart& start : before.starts) EXPECT_NE(start.id, after.starts[0].id);
}

TEST_F(EraseTest, AnUnfinishedOneIsNotCheckedButNamed) {
  const std::string path = Path("store");
  OpenErasable(path, resources_);
  ASSERT_OK(StoreDirectory::MarkErased(path));
  EXPECT_FAILS(LogStore::Check(path, resources_), EBUSY);
}

TEST_F(EraseTest, TidyingRemovesWhatWasErasedPieceByPiece) {
  const std::string path = Path("store");
  const auto store = OpenErasable(path, resources_);
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(store->Put(std::to_string(i), {{}, SharedBytes(Buffer::Zeroed(kMaxValueBytes))}));
  }
  ASSERT_OK(store->Erase());
  EXPECT_TRUE(fs::exists(path + "/erased/1/segments"));
  int pieces = 0;
  while (true) {
    const Result<bool> more = store->Tidy();
    ASSERT_OK(more);
    ++pieces;
    if (!*more) break;
  }
  EXPECT_GT(pieces, 3) << "so many segments are no small piece";
  EXPECT_FALSE(fs::exists(path + "/erased"));
}

// A secure erase removes what the housekeeper removes as well, at the same time. Neither may fail
// because of the other, and nothing is left when either says that nothing is.
TEST_F(EraseTest, SeveralMayRemoveWhatWasErasedAtOnce) {
  const std::string path = Path("store");
  for (int round = 0; round < 100; ++round) {
    for (int directory = 0; directory < 20; ++directory) {
      const std::string name = fmt::format("{}/erased/{}/segments", path, directory);
      fs::create_directories(name);
      std::ofstream(name + "/1") << "a segment";
    }
    std::atomic<int> ready = 0;
    const auto remove = [&](size_t most) {
      ++ready;
      while (ready < 3) std::this_thread::yield();
      Result<bool> more = true;
      while (more.has_value() && *more) more = RemoveErasedFiles(path, most);
      EXPECT_OK(more);
      EXPECT_FALSE(fs::exists(path + "/erased"));
    };
    std::thread housekeeper(remove, 4);
    std::thread eraser(remove, SIZE_MAX);
    remove(SIZE_MAX);
    housekeeper.join();
    eraser.join();
  }
}

TEST_F(EraseTest, AStoreThatCannotBeOpenedAgainSaysSoAndTheNextStartFinishesIt) {
  const std::string path = Path("store");
  {
    Result<std::unique_ptr<Store>> inner = OpenIn(path, resources_);
    ASSERT_OK(inner);
    Fill(**inner);
    ErasableStore store(path, *std::move(inner), []() -> Result<std::unique_ptr<Store>> {
      return Fail(EMFILE, "no descriptor is left");
    });
    EXPECT_FAILS(store.Erase(), EIO);
    const Status lost = store.Put("k", {});
    EXPECT_FAILS(lost, EIO);
    EXPECT_NE(lost.message().find("no descriptor is left"), std::string_view::npos);
    EXPECT_FAILS(store.Get("1", {}), EIO);
    EXPECT_FAILS(store.Erase(), EIO);
    EXPECT_EQ(store.Usage().used_bytes, 0u);
  }
  EXPECT_EQ(Count(*OpenErasable(path, resources_)), 0u);
}

TEST_F(EraseTest, OthersGoOnWhileItIsErased) {
  const auto store = OpenErasable(Path("store"), resources_);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&, i] {
      const std::string key = std::to_string(i);
      const SharedBytes value(std::string(5000, 'v'));
      while (!stop) {
        const Result<StoredRecord> read = store->Get(key, {});
        if (!read.has_value() && read.error().code() != ENOENT) ++wrong;
        if (!store->Put(key, {{}, value}).ok() || !store->Keys({}, 10, false).has_value()) ++wrong;
        if (!store->Flush().ok()) ++wrong;
      }
    });
  }
  for (int round = 0; round < 10; ++round) EXPECT_OK(store->Erase());
  stop = true;
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
  ASSERT_OK(store->Erase());
  EXPECT_EQ(Count(*store), 0u);
}

// --- kill -9

// This program again, as somebody who is killed: threads do not come along with a fork, and stores
// have some. It runs one of the tests named Victim, which has words to say.
class Victim {
 public:
  Victim(const char* test, const std::string& path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], kSayTo);
      setenv("PINSTRIPE_VICTIM", path.c_str(), 1);
      const std::string filter = fmt::format("--gtest_filter=Victim.{}", test);
      execl("/proc/self/exe", "victim", filter.c_str(), "--gtest_brief=1", nullptr);
      _exit(1);
    }
    close(ends[1]);
    hear_ = FileDescriptor(ends[0]);
  }

  // For the victim itself: where its store is; null: nobody asked for a victim.
  static const char* Path() { return getenv("PINSTRIPE_VICTIM"); }
  static bool Say(char word) { return write(kSayTo, &word, 1) == 1; }

  // The next thing it says; 0 when it has ended.
  char Hear() {
    char word = 0;
    return read(hear_.get(), &word, 1) == 1 ? word : '\0';
  }
  // Lets it go on for so long, and kills it. All it has said meanwhile.
  std::string KillAfter(std::chrono::microseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::string said;
    for (char word = Hear(); word != 0; word = Hear()) said += word;
    return said;
  }

 private:
  static constexpr int kSayTo = 50;
  pid_t pid_;
  FileDescriptor hear_;
};

TEST(Victim, ErasesItsStore) {
  if (Victim::Path() == nullptr) return;
  const std::string path = Victim::Path();
  StoreResources resources;
  const auto store = EraseTest::OpenErasable(path, resources);
  EraseTest::Fill(*store);
  std::ofstream(path + "/security") << "who may use it";
  if (Victim::Say('f') && store->Erase().ok() && Victim::Say('e')) pause();
}

TEST(Victim, SetsClusterVersions) {
  if (Victim::Path() == nullptr) return;
  auto security = DeviceSecurity::Open({}, Victim::Path());
  for (int64_t i = 1; (*security)->SetClusterVersion(i).ok() && Victim::Say('w');) ++i;
}

TEST_F(EraseTest, AKillInTheMiddleLeavesEverythingOrNothing) {
  const std::string path = Path("store");
  std::minstd_rand random(1);
  int everything = 0;
  int nothing = 0;
  constexpr int kRounds = kSanitized ? 6 : 30;
  constexpr int kLongest = kSanitized ? 40'000 : 4000;  // microseconds; it takes less
  for (int round = 0; round < kRounds; ++round) {
    Victim victim("ErasesItsStore", path);
    ASSERT_EQ(victim.Hear(), 'f');
    // The last one has all the time that it needs.
    const auto time =
        round + 1 == kRounds ? 10 * kLongest : random() % (round % 2 == 0 ? 100 : kLongest);
    const std::string said = victim.KillAfter(std::chrono::microseconds(time));
    const auto store = OpenErasable(path, resources_);
    ASSERT_NE(store, nullptr) << "round " << round;
    const size_t left = Count(*store);
    ASSERT_TRUE(left == 0 || left == kRecords) << left << " in round " << round;
    ASSERT_EQ(fs::exists(path + "/security"), left != 0) << "round " << round;
    if (said == "e") {
      ASSERT_EQ(left, 0u) << "it was answered in round " << round;
    }
    ++(left == 0 ? nothing : everything);
  }
  EXPECT_GT(nothing, 0);
  std::printf("everything was left %d times, nothing %d times\n", everything, nothing);
}

// What SECURITY has set is there after a kill once it was answered.
TEST_F(EraseTest, AKillLeavesTheSecurityThatWasAnsweredOrWasBeingWritten) {
  const std::string file = Path("security");
  std::minstd_rand random(1);
  for (int round = 0; round < (kSanitized ? 5 : 20); ++round) {
    Victim victim("SetsClusterVersions", file);
    ASSERT_EQ(victim.Hear(), 'w');
    const auto answered = static_cast<int64_t>(
        1 + victim.KillAfter(std::chrono::microseconds(random() % 3000)).size());
    const auto security = DeviceSecurity::Open({}, file);
    ASSERT_OK(security);
    const int64_t kept = (*security)->cluster_version();
    ASSERT_GE(kept, answered);
    ASSERT_LE(kept, answered + 1);
  }
}

}  // namespace
}  // namespace pinstripe
