#include "daemon/housekeeper.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

class HousekeeperTest : public testing::Test {
 protected:
  // A disk, that hangs where it is told to.
  struct Disk {
    int flushes = 0;
    int pieces = 0;
    std::vector<Status> complaints;
    std::shared_ptr<Signal> mended;  // null: it does not hang
    Status failure;
    Housekeeper::Work Work() {
      return {.flush =
                  [this] {
                    ++flushes;
                    return failure;
                  },
              .tidy = [this]() -> Result<bool> {
                if (mended != nullptr) mended->WaitUntil(Time::max());
                ++pieces;
                return true;
              },
              .complain = [this](const Status& why) { complaints.push_back(why); }};
    }
  };
  SimRuntime sim_{1};
};

TEST_F(HousekeeperTest, TidiesFourTimesASecondAndFlushesTwiceAMinute) {
  Disk disk;
  {
    const Housekeeper keeper(sim_, disk.Work());
    sim_.Sleep(61s);
    EXPECT_GE(disk.pieces, 200);
    EXPECT_EQ(disk.flushes, 2);
  }
  EXPECT_TRUE(disk.complaints.empty());
}

TEST_F(HousekeeperTest, ADiskThatHangsHoldsUpNoOther) {
  Disk hangs;
  Disk other;
  hangs.mended = sim_.NewSignal();
  const Housekeeper one(sim_, hangs.Work());
  const Housekeeper two(sim_, other.Work());
  sim_.Sleep(61s);
  EXPECT_EQ(hangs.pieces, 0);
  EXPECT_GE(other.pieces, 200);
  EXPECT_EQ(other.flushes, 2);
  const std::shared_ptr<Signal> mended = std::exchange(hangs.mended, nullptr);
  mended->Set();
  sim_.Sleep(1s);
  EXPECT_GT(hangs.pieces, 0);
}

TEST_F(HousekeeperTest, WhatFailsIsToldAndTriedAgain) {
  Disk disk;
  disk.failure = Status(EIO, "the disk is gone");
  {
    const Housekeeper keeper(sim_, disk.Work());
    sim_.Sleep(61s);
  }
  ASSERT_EQ(disk.complaints.size(), 2u);
  EXPECT_EQ(disk.complaints[0].message(), "the disk is gone");
}

}  // namespace
}  // namespace pinstripe
