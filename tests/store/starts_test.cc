// What a store knows of its starts: whether it may have forgotten something, and who it is.

#include "store/starts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/file_descriptor.h"
#include "store/directory.h"
#include "store/machine.h"
#include "store/starts_file.h"
#include "tests/store/pretended_machine.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using LastRun = Starts::Run;

// --- The rules

constexpr FileIdentity kFile{12, 34};

Starts After(LastRun run, std::string boot_id) {
  return {
      .boot_id = std::move(boot_id), .run = run, .file = kFile, .count = 1, .list = {{7, true}}};
}

bool IsClean(const std::optional<Starts>& before, const StartSituation& now) {
  const Starts next = NextStart(before, now);
  EXPECT_EQ(next.list.at(0).id, now.new_id);
  EXPECT_EQ(next.list.at(0).clean, WhyUnclean(before, now).empty());
  EXPECT_EQ(next.boot_id, now.boot_id);
  EXPECT_EQ(next.run, LastRun::kUntold);
  return next.list.at(0).clean;
}

// Every way in which a run can have ended, before every start there can be.
TEST(Starts, OneIsCleanOnlyWhereNothingCanHaveBeenForgotten) {
  for (const LastRun run : {LastRun::kUnderWay, LastRun::kEnded, LastRun::kSyncFailed}) {
    for (const char* const before : {"", "boot 1"}) {
      for (const char* const now : {"", "boot 1", "boot 2"}) {
        for (const bool kept : {false, true}) {
          for (const char* const lost : {"", "3 values"}) {
            const bool same_machine = std::string(before) == "boot 1" && before == std::string(now);
            const bool only_killed = run == LastRun::kUnderWay && same_machine && kept;
            const bool clean = (run == LastRun::kEnded || only_killed) && std::string(lost).empty();
            const StartSituation situation{.boot_id = now,
                                           .file = kFile,
                                           .kernel_kept_pages = kept,
                                           .lost = lost,
                                           .new_id = 8};
            EXPECT_EQ(IsClean(After(run, before), situation), clean)
                << static_cast<int>(run) << " " << before << " " << now << " " << kept << lost;
          }
        }
      }
    }
  }
}

TEST(Starts, ThatOfACopyIsCleanOnlyIfItIsOfADriveThatWasStopped) {
  for (const FileIdentity& copy : {FileIdentity{13, 34}, FileIdentity{12, 35}}) {
    const StartSituation now{
        .boot_id = "boot 1", .file = copy, .uptime = 50s, .kernel_kept_pages = true, .new_id = 8};
    EXPECT_TRUE(IsClean(After(LastRun::kEnded, "boot 1"), now));
    for (const LastRun run : {LastRun::kUnderWay, LastRun::kSyncFailed}) {
      for (const char* const before : {"", "boot 1", "boot 2"}) {
        EXPECT_FALSE(IsClean(After(run, before), now));
        EXPECT_THAT(WhyUnclean(After(run, before), now), HasSubstr("it is a copy"));
        EXPECT_EQ(UpOf(NextStart(After(run, before), now), 60s), 10s)
            << "the drive may have answered until now";
      }
    }
  }
}

TEST(Starts, TheFirstOfANewStoreIsCleanAndTheFirstWithoutAListIsNot) {
  EXPECT_TRUE(IsClean(Starts(), {.boot_id = "boot 1", .new_id = 8}));
  EXPECT_FALSE(
      IsClean(std::nullopt, {.boot_id = "boot 1", .kernel_kept_pages = true, .new_id = 8}));
}

TEST(Starts, TheLastSixtyFourAreKnownAndAllAreCounted) {
  Starts starts;
  for (uint64_t id = 1; id <= 100; ++id) {
    starts = NextStart(
        starts,
        {.boot_id = "boot 1", .file = starts.file, .kernel_kept_pages = true, .new_id = id});
    EXPECT_TRUE(starts.list.front().clean);
    EXPECT_EQ(starts.count, id);
    EXPECT_EQ(starts.list.size(), std::min<uint64_t>(id, kMaxDriveStarts));
    EXPECT_EQ(starts.list.front().id, id);
    EXPECT_EQ(starts.list.back().id, id - starts.list.size() + 1);
    const Result<Starts> read = DecodeStarts(EncodeStarts(starts));
    ASSERT_OK(read);
    EXPECT_EQ(read->list, starts.list);
    starts.run = LastRun::kUnderWay;  // somebody was told
  }
}

// A drive is up for as long as the machine is, unless it forgot later than that.
TEST(Starts, WhatWasForgottenIsOlderThanTheDriveSaysThatItIsUp) {
  const auto start = [](const std::optional<Starts>& before, const char* boot_id, Duration uptime) {
    return NextStart(before, {.boot_id = boot_id, .file = kFile, .uptime = uptime, .new_id = 8});
  };
  // The power failed: what was lost is older than the machine's start.
  const Starts rebooted = start(After(LastRun::kUnderWay, "boot 1"), "boot 2", 50s);
  EXPECT_EQ(UpOf(rebooted, 60s), 60s);
  // The disk failed: what was lost is only older than this start.
  const Starts failed = start(After(LastRun::kSyncFailed, "boot 1"), "boot 1", 50s);
  EXPECT_EQ(UpOf(failed, 60s), 10s);
  // The list is gone: nobody knows.
  EXPECT_EQ(UpOf(start(std::nullopt, "boot 1", 50s), 60s), 10s);
  // A clean start changes nothing of that, and the next of the machine everything.
  Starts ended = failed;
  ended.run = LastRun::kEnded;
  EXPECT_EQ(UpOf(start(ended, "boot 1", 70s), 90s), 40s);
  EXPECT_EQ(UpOf(start(ended, "boot 2", 5s), 6s), 6s);
  // On a machine that does not say whether it was started again, it is at least no older than it.
  EXPECT_EQ(UpOf(start(ended, "", 5s), 6s), 1s);
}

// --- The bytes

// docs/format.md, "Starts of a drive".
TEST(StartsFileFormat, HasTheseBytes) {
  Starts starts;
  starts.boot_id = "boot";
  starts.run = LastRun::kSyncFailed;
  starts.file = {0x1112, 0x2122};
  starts.forgot_at = 258ms;
  starts.count = 2;
  starts.list = {{0x0102030405060708, false}, {9, true}};
  EXPECT_EQ(Hex(AsBytes(EncodeStarts(starts))),
            "70696e7374726970652073746172"
            "74730a"      // "pinstripe starts\n"
            "00000001"    // format
            "04626f6f74"  // boot id
            "02"          // a sync failed
            "0000000000001112"
            "0000000000002122"  // inode, born
            "0000000000000102"  // forgot at, milliseconds
            "0000000000000002"  // starts ever
            "02"                // those that follow
            "010203040506070800"
            "000000000000000901"
            "a1c34dad");
}

Starts Rich() {
  Starts starts{.boot_id = std::string(kMaxBootIdBytes, 'b'), .forgot_at = 3s};
  for (uint64_t id = 1; id <= 70; ++id) {
    starts = NextStart(starts, {.boot_id = "x", .new_id = id});
    starts.run = LastRun::kUnderWay;  // somebody was told
  }
  return starts;
}

TEST(StartsFileFormat, EveryFlippedBitAndEveryCutIsNoticed) {
  const std::string good = EncodeStarts(Rich());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FAILS(DecodeStarts(bad), EBADMSG) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FAILS(DecodeStarts(good.substr(0, size)), EBADMSG);
  }
  EXPECT_FAILS(DecodeStarts(good + '\0'), EBADMSG);
}

TEST(StartsFileFormat, ImpossibleListsAreRefused) {
  const auto expect_refused = [](const Starts& starts) {
    EXPECT_FAILS(DecodeStarts(EncodeStarts(starts)), EBADMSG);
  };
  expect_refused({.count = 1, .list = {{0, true}}});
  expect_refused({.count = 2, .list = {{1, true}, {1, false}}});
  expect_refused({.count = 1, .list = {{1, true}, {2, true}}});
  expect_refused({.count = 2, .list = {{1, true}}});
  expect_refused({.boot_id = std::string(kMaxBootIdBytes + 1, 'b')});
  Starts many = Rich();
  many.list.push_back({1000, true});
  expect_refused(many);
}

TEST(StartsFileFormat, ANewerFormatIsRefusedByName) {
  std::string newer = EncodeStarts({});
  newer[20] = 2;
  EXPECT_FAILS(DecodeStarts(newer), EBADMSG) << "that is damage";
  newer.resize(newer.size() - 4);
  newer += Writer().U32(Crc32c(AsBytes(newer))).Take();
  EXPECT_FAILS(DecodeStarts(newer), ENOTSUP);
}

// --- The file

class StartsFileTest : public testing::Test {
 protected:
  StartsFileTest() { EXPECT_OK(StartsFile::Create(directory_.path())); }

  std::unique_ptr<StartsFile> Start() {
    Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(directory_.path());
    EXPECT_OK(file);
    EXPECT_OK((*file)->Begin(""));
    (void)(*file)->starts();  // somebody was told
    return *std::move(file);
  }
  // A run of the store that ends without a word, and what it said.
  StoreStarts StartAndDie() { return Start()->starts(); }
  bool StartsCleanly() { return StartAndDie().starts.at(0).clean; }

  PretendedMachine machine_{"boot 1"};
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "starts";
};

// A program that is started again and again, and ends before it serves, as its port is taken: the
// list still has what others know the drive by.
TEST(Starts, WhatNobodyWasToldOfTakesNoPlaceInTheList) {
  for (const LastRun run : {LastRun::kUntold, LastRun::kEndedUntold}) {
    Starts starts = After(LastRun::kEnded, "boot");
    starts = NextStart(starts, {.boot_id = "boot", .file = kFile, .new_id = 8});
    for (uint64_t id = 100; id < 300; ++id) {
      starts.run = run;
      starts = NextStart(
          starts, {.boot_id = "boot", .file = kFile, .kernel_kept_pages = true, .new_id = id});
    }
    EXPECT_EQ(starts.count, 2u);
    EXPECT_EQ(starts.list, (std::vector<DriveStart>{{299, true}, {7, true}}));
  }
}

// But that one of them was not clean is not forgotten.
TEST(Starts, AnUncleanStartThatNobodyWasToldOfCounts) {
  Starts starts = After(LastRun::kUnderWay, "boot 1");
  starts = NextStart(starts, {.boot_id = "boot 2", .file = kFile, .new_id = 8});
  ASSERT_FALSE(starts.list.front().clean);
  starts = NextStart(starts,
                     {.boot_id = "boot 2", .file = kFile, .kernel_kept_pages = true, .new_id = 9});
  EXPECT_EQ(starts.list, (std::vector<DriveStart>{{9, false}, {7, true}}));
}

TEST_F(StartsFileTest, AKillForgetsNothingAndThePowerDoes) {
  EXPECT_TRUE(StartsCleanly());
  EXPECT_TRUE(StartsCleanly());
  machine_.Restart("boot 2");
  EXPECT_FALSE(StartsCleanly());
  EXPECT_TRUE(StartsCleanly());
  machine_.Restart("");  // nobody can tell
  EXPECT_FALSE(StartsCleanly());
  EXPECT_FALSE(StartsCleanly());
}

TEST_F(StartsFileTest, WhatEndedCleanlyStartsCleanlyWhateverHappensInBetween) {
  EXPECT_OK(Start()->End());
  machine_.Restart("boot 2");
  EXPECT_TRUE(StartsCleanly());
  machine_.Restart("boot 3");
  EXPECT_FALSE(StartsCleanly()) << "that word was for one start";
  machine_.Restart("");
  EXPECT_OK(Start()->End());
  EXPECT_TRUE(StartsCleanly());
}

TEST_F(StartsFileTest, TheFirstWhoIsToldMakesItAStartThatCounts) {
  const StoreStarts first = StartAndDie();
  for (int i = 0; i < 100; ++i) {
    Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(directory_.path());
    ASSERT_OK(file);
    ASSERT_OK((*file)->Begin(""));
    if (i % 2 == 0) {
      ASSERT_OK((*file)->End());
    }
  }
  const StoreStarts last = StartAndDie();
  EXPECT_EQ(last.count, first.count + 1);
  EXPECT_EQ(last.starts.at(1), first.starts.at(0));
  EXPECT_EQ(StartAndDie().count, last.count + 1);
}

TEST_F(StartsFileTest, ASyncThatFailedIsRememberedUntilTheNextStart) {
  {
    const auto file = Start();
    file->NoteFailedSync();
    EXPECT_FAILS(file->End(), EIO);
  }
  EXPECT_FALSE(StartsCleanly());
  EXPECT_TRUE(StartsCleanly());
}

TEST_F(StartsFileTest, OneThatFailedBeforeTheStoreCouldAnswerIsRememberedToo) {
  EXPECT_OK(Start()->End());
  (*StartsFile::Open(directory_.path()))->NoteFailedSync();
  EXPECT_FALSE(StartsCleanly());
}

TEST_F(StartsFileTest, OneThatFailsAfterTheCleanEndIsNotItsBusiness) {
  const auto file = Start();
  EXPECT_OK(file->End());
  file->NoteFailedSync();
  EXPECT_TRUE(StartsCleanly());
}

TEST_F(StartsFileTest, WithoutTheFileOrWithADamagedOneTheStartIsUncleanAndTheListBeginsAnew) {
  const auto expect_new_list = [&] {
    const StoreStarts starts = StartAndDie();
    ASSERT_EQ(starts.starts.size(), 1u);
    EXPECT_FALSE(starts.starts[0].clean);
    EXPECT_EQ(starts.count, 1u);
    EXPECT_TRUE(StartsCleanly());
  };
  std::filesystem::remove(path_);
  expect_new_list();
  std::filesystem::resize_file(path_, 30);
  expect_new_list();
  std::ofstream(path_) << std::string(100'000, 'x');
  expect_new_list();
  std::ofstream(path_) << "";
  expect_new_list();
}

TEST_F(StartsFileTest, TheCopyOfADirectoryGoesItsOwnWay) {
  const StoreStarts before = StartAndDie();
  const std::string copy = directory_ / "copy";
  std::filesystem::create_directory(copy);
  std::filesystem::copy_file(path_, copy + "/starts");
  std::set<uint64_t> ids = {before.starts[0].id};
  for (const std::string& path : {copy, directory_.path(), copy}) {
    Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(path);
    ASSERT_OK(file);
    ASSERT_OK((*file)->Begin(""));
    const StoreStarts starts = (*file)->starts();
    EXPECT_EQ(starts.starts.back(), before.starts[0]) << "what they have in common";
    EXPECT_TRUE(ids.insert(starts.starts[0].id).second);
    const bool first_of_copy = path == copy && starts.starts.size() == 2;
    EXPECT_EQ(starts.starts[0].clean, !first_of_copy);
  }
}

// As who brings a drive to another disk.
TEST_F(StartsFileTest, TheCopyOfOneThatWasStoppedStartsCleanly) {
  EXPECT_OK(Start()->End());
  const std::string copy = directory_ / "copy";
  std::filesystem::create_directory(copy);
  std::filesystem::copy_file(path_, copy + "/starts");
  Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(copy);
  ASSERT_OK(file);
  ASSERT_OK((*file)->Begin(""));
  EXPECT_TRUE((*file)->starts().starts[0].clean);
}

TEST_F(StartsFileTest, NothingIsToldBeforeTheStartIsWrittenDown) {
  StartAndDie();
  Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(directory_.path());
  ASSERT_OK(file);
  EXPECT_THAT((*file)->starts().starts, IsEmpty());
  ASSERT_OK((*file)->Begin(""));
  EXPECT_EQ((*file)->starts().starts.size(), 2u);
  EXPECT_GT((*file)->starts().up, 0s);
}

// The directory must be on a disk, for files in memory stay there.
class PagesTest : public testing::Test {
 protected:
  PagesTest() { EXPECT_OK(StartsFile::Create(directory_)); }
  ~PagesTest() override { std::filesystem::remove_all(directory_); }

  static std::string MakeDirectory() {
    std::string name = testing::TempDir() + "pinstripe-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }
  // The kernel lets go what it has of the file, as it does when the file system is unmounted. False
  // where it does not.
  bool DropPages() const {
    const FileDescriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    // Nothing that reads, as the kernel may have the page again by that.
    void* const mapped = mmap(nullptr, 1, PROT_READ, MAP_SHARED, file.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    unsigned char is_there = 0;
    EXPECT_EQ(mincore(mapped, 1, &is_there), 0);
    munmap(mapped, 1);
    return (is_there & 1) == 0;
  }
  std::unique_ptr<StartsFile> Start() {
    Result<std::unique_ptr<StartsFile>> file = StartsFile::Open(directory_);
    EXPECT_OK(file);
    EXPECT_OK((*file)->Begin(""));
    return *std::move(file);
  }

  PretendedMachine machine_{"boot 1"};
  const std::string directory_ = MakeDirectory();
  const std::string path_ = directory_ + "/starts";
};

TEST_F(PagesTest, WhoseKernelHasLetGoOfTheFilesMayHaveForgotten) {
  Start();
  if (!DropPages()) GTEST_SKIP() << directory_ << " is on a file system that keeps all its pages";
  EXPECT_FALSE(Start()->starts().starts.at(0).clean);
  EXPECT_TRUE(Start()->starts().starts.at(0).clean);
  EXPECT_OK(Start()->End());
  DropPages();
  EXPECT_TRUE(Start()->starts().starts.at(0).clean) << "it had nothing to forget";
}

TEST_F(PagesTest, AsLongAsTheProcessLivesTheKernelKeepsThePage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "with a sanitizer, mlock() does nothing";
#endif
  const auto file = Start();
  EXPECT_FALSE(DropPages());
}

}  // namespace
}  // namespace pinstripe
