// Reading while more drives are away than the layout tolerates: it fails, and soon. And works again
// when they are back.

#include <gtest/gtest.h>

#include "tests/fs/fs_test_base.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

// Four hosts of three drives, of which two go.
class AwayTest : public FsTest {
 protected:
  AwayTest() : FsTest({.drives = 12, .layout = {4, 2, 64 << 10}}) {}

  void SetUp() override {
    FsTest::SetUp();
    directory_ = MakeDirectory("directory");
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(fs_->Create(directory_, fmt::format("file{}", i), {}));
    }
    Make("file", Pattern(1, 2'000'000));
    OpenAtReader();
  }

  void Lose(const DriveFaults& faults) {
    for (DriveId id = 1; id <= 6; ++id) machines_.drive(id).Set(faults);
  }

  // Whoever reads is answered within `most`, with what is there or EIO.
  void ExpectSoonAnswered(Duration most) {
    const std::pair<const char*, std::function<Status()>> reads[] = {
        {"read", [this] { return Read(700'000); }},
        {"read elsewhere", [this] { return Read(1'700'000); }},
        {"open", [this] { return StatusOf(reader_->Open(id_, FileSystem::Access::kRead)); }},
        {"look up", [this] { return StatusOf(reader_->Lookup(kRootInode, "file")); }},
        {"list", [this] { return StatusOf(reader_->ReadDirectory(kRootInode, "", 100, true)); }},
        {"list another",
         [this] { return StatusOf(reader_->ReadDirectory(directory_, "", 100, true)); }}};
    int failed = 0;
    for (const auto& [what, read] : reads) {
      const Time begin = sim_.Now();
      const Status status = read();
      EXPECT_LE(sim_.Now() - begin, most) << what << ": " << status.message();
      EXPECT_TRUE(status.ok() || status.code() == EIO) << what << ": " << status.message();
      failed += !status.ok();
    }
    EXPECT_GE(failed, 2) << "at least the contents";
  }

  Status Read(uint64_t offset) {
    std::string bytes(100'000, '?');
    return StatusOf(file_->Read(offset, std::as_writable_bytes(std::span(bytes))));
  }

  void OpenAtReader() {
    reader_ = NewHost();
    id_ = reader_->Lookup(kRootInode, "file")->inode;
    auto file = reader_->Open(id_, FileSystem::Access::kRead);
    ASSERT_OK(file);
    file_ = *std::move(file);
  }

  Host reader_;
  InodeId id_ = 0;
  InodeId directory_ = 0;
  std::unique_ptr<OpenFile> file_;
};

TEST_F(AwayTest, ReadingFailsSoonAndWorksAgain) {
  Lose({.down = true});
  ExpectSoonAnswered(seconds(6) + std::chrono::milliseconds(500));
  Lose({});
  EXPECT_OK(Read(700'000));
}

// As hosts that lost their power, and whose connections nobody has closed yet. A drive that does
// not answer has five seconds for each request.
TEST_F(AwayTest, ReadingFromDrivesThatSayNothingFailsBeforeLong) {
  Lose({.lose_request = 1});
  ExpectSoonAnswered(seconds(15) + std::chrono::milliseconds(500));
  Lose({});
  EXPECT_OK(Read(700'000));
}

// As a machine that stood still, and has much to do afterwards: its drives are there, and slow.
TEST_F(AwayTest, DrivesThatAreSlowAfterTheyStoodStillAreWaitedFor) {
  Lose({.lose_request = 1});
  sim_.RunAt(sim_.Now() + seconds(5), [this] {
    Lose({.least_latency = seconds(2), .most_latency = std::chrono::milliseconds(2200)});
  });
  EXPECT_OK(Read(700'000));
}

// A restart is waited for.
TEST_F(AwayTest, DrivesThatAreBackInTimeAreWaitedFor) {
  Lose({.down = true});
  sim_.RunAt(sim_.Now() + seconds(2), [this] { Lose({}); });
  EXPECT_OK(Read(700'000));
  Lose({.down = true});
  sim_.RunAt(sim_.Now() + seconds(2), [this] { Lose({}); });
  EXPECT_OK(reader_->Lookup(kRootInode, "file"));
}

}  // namespace
}  // namespace pinstripe
