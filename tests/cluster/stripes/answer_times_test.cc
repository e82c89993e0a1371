// From when on an answer is late, and which drives are slow.

#include "cluster/stripes/answer_times.h"

#include <gtest/gtest.h>

#include <random>

namespace pinstripe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kFirst = milliseconds(250);
constexpr Duration kLeast = milliseconds(10);
constexpr uint64_t kCell = 64 << 10;

class AnswerTimesTest : public testing::Test {
 protected:
  // Around `typical`, up to a quarter more or less.
  void Answer(DriveId drive, int count, Duration typical, uint64_t bytes = kCell) {
    for (int i = 0; i < count; ++i) {
      times_.Note(drive, bytes, typical * (75 + random_() % 50) / 100);
    }
  }

  std::mt19937 random_{1};
  AnswerTimes times_{kFirst, kLeast};
};

TEST_F(AnswerTimesTest, WithoutMeasurementsTheFirstLimitHolds) {
  EXPECT_EQ(times_.Late(kCell), kFirst);
  Answer(1, 1000, milliseconds(1));
  EXPECT_EQ(times_.Late(kCell), kFirst) << "one drive is not to be compared with any";
  Answer(2, 10, milliseconds(1));
  EXPECT_EQ(times_.Late(kCell), kFirst);
}

TEST_F(AnswerTimesTest, TheLimitIsWhatFewAnswersExceed) {
  for (DriveId drive = 1; drive <= 6; ++drive) Answer(drive, 500, milliseconds(40));
  EXPECT_GE(times_.Late(kCell), milliseconds(48));
  EXPECT_LE(times_.Late(kCell), milliseconds(65));
  for (DriveId drive = 1; drive <= 6; ++drive) EXPECT_FALSE(times_.IsSlow(drive, kCell));
}

TEST_F(AnswerTimesTest, TheLimitIsNotBelowTheLeast) {
  for (DriveId drive = 1; drive <= 6; ++drive) Answer(drive, 500, microseconds(200));
  EXPECT_GE(times_.Late(kCell), kLeast);
  EXPECT_LE(times_.Late(kCell), kLeast * 5 / 4);
}

TEST_F(AnswerTimesTest, ADriveThatIsMuchSlowerThanTheOthersIsSlowUntilItIsNot) {
  for (int round = 0; round < 10; ++round) {
    for (DriveId drive = 1; drive <= 6; ++drive) {
      Answer(drive, 50, drive == 3 ? milliseconds(200) : milliseconds(20));
    }
  }
  EXPECT_LE(times_.Late(kCell), milliseconds(35));
  for (DriveId drive = 1; drive <= 6; ++drive) {
    EXPECT_EQ(times_.IsSlow(drive, kCell), drive == 3) << drive;
  }
  EXPECT_FALSE(times_.IsSlow(3, 1 << 20)) << "of larger answers nothing is known";
  Answer(3, 1100, milliseconds(20));
  EXPECT_FALSE(times_.IsSlow(3, kCell));
}

TEST_F(AnswerTimesTest, WhereAllAreSlowNoneIs) {
  for (const Duration typical : {milliseconds(20), milliseconds(400)}) {
    for (int round = 0; round < 30; ++round) {
      for (DriveId drive = 1; drive <= 6; ++drive) Answer(drive, 50, typical);
    }
  }
  EXPECT_GE(times_.Late(kCell), milliseconds(450));
  for (DriveId drive = 1; drive <= 6; ++drive) EXPECT_FALSE(times_.IsSlow(drive, kCell));
}

TEST_F(AnswerTimesTest, EachSizeHasALimitOfItsOwn) {
  for (DriveId drive = 1; drive <= 6; ++drive) {
    Answer(drive, 500, milliseconds(20), kCell);
    Answer(drive, 500, milliseconds(100), kCell + 1);
  }
  EXPECT_LE(times_.Late(1), milliseconds(35));
  EXPECT_LE(times_.Late(kCell), milliseconds(35));
  EXPECT_GE(times_.Late(kCell + 1), milliseconds(110));
  EXPECT_GE(times_.Late(2 * kCell), milliseconds(110));
  EXPECT_EQ(times_.Late(2 * kCell + 1), kFirst);
}

TEST_F(AnswerTimesTest, AnyTimeIsTaken) {
  for (DriveId drive = 1; drive <= 2; ++drive) {
    for (int i = 0; i < 200; ++i) {
      times_.Note(drive, UINT64_MAX, Duration::max());
      times_.Note(drive, 0, Duration(-1));
    }
  }
  EXPECT_GE(times_.Late(UINT64_MAX), std::chrono::seconds(10));
  EXPECT_GE(times_.Late(0), kLeast);
}

}  // namespace
}  // namespace pinstripe
