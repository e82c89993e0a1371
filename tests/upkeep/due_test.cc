// What is to be done with a cluster, by when it was done last.

#include "upkeep/due.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kDay = int64_t{86'400} * 1'000'000'000;
constexpr int64_t kNow = 20'000 * kDay;

// So many days ago.
LastLooks Ago(int64_t listed, int64_t read, int64_t collected) {
  return {.listed = LastLook{.at = kNow - listed * kDay},
          .read = LastLook{.at = kNow - read * kDay},
          .collected = LastLook{.at = kNow - collected * kDay}};
}

TEST(Due, IsWhatWasDoneLongAgo) {
  const auto due = [](const LastLooks& looks) { return WhatIsDue(looks, {}, kNow); };
  EXPECT_THAT(due(Ago(0, 0, 0)), IsEmpty());
  EXPECT_THAT(due(Ago(1, 0, 0)), ElementsAre(CareTask::kCheck));
  EXPECT_THAT(due(Ago(0, 0, 7)), ElementsAre(CareTask::kCollect));
  EXPECT_THAT(due(Ago(0, 29, 6)), IsEmpty());
  EXPECT_THAT(due(Ago(1, 29, 7)), ElementsAre(CareTask::kCheck, CareTask::kCollect));
  // A scrub lists everything, too.
  EXPECT_THAT(due(Ago(5, 30, 7)), ElementsAre(CareTask::kCollect, CareTask::kScrub));
  EXPECT_THAT(WhatIsDue(Ago(1, 1, 1), {.check = std::chrono::hours(25)}, kNow), IsEmpty());
}

// It takes weeks, and says all that a check does only at its end.
TEST(Due, IsMoreWhileAScrubGoesOn) {
  const auto due = [](const LastLooks& looks) { return WhatIsDueMeanwhile(looks, {}, kNow); };
  EXPECT_THAT(due(Ago(0, 40, 6)), IsEmpty());
  EXPECT_THAT(due(Ago(1, 40, 6)), ElementsAre(CareTask::kCheck));
  EXPECT_THAT(due(Ago(1, 40, 7)), ElementsAre(CareTask::kCheck, CareTask::kCollect));
}

// Drives were away then.
TEST(Due, IsAScrubThatCouldNotReadEverything) {
  LastLooks looks = Ago(0, 1, 0);
  looks.read->not_looked_at = 2;
  EXPECT_THAT(WhatIsDue(looks, {}, kNow), ElementsAre(CareTask::kScrub));
  EXPECT_THAT(WhatIsDue(looks, {}, kNow, /*all_are_up=*/false), IsEmpty());
  looks.read->at = kNow - kDay + 1;
  EXPECT_THAT(WhatIsDue(looks, {}, kNow), IsEmpty());
}

TEST(Due, IsWhatNobodyEverDidAndWhatAWrongClockDid) {
  EXPECT_THAT(WhatIsDue({}, {}, kNow), ElementsAre(CareTask::kCollect, CareTask::kScrub));
  EXPECT_THAT(WhatIsDue(Ago(-2, 0, 0), {}, kNow), ElementsAre(CareTask::kCheck));
  LastLooks wrong = Ago(0, 0, 0);
  for (const int64_t at : {INT64_MIN, int64_t{-1}, INT64_MAX}) {
    wrong.read->at = at;
    EXPECT_THAT(WhatIsDue(wrong, {}, kNow), ElementsAre(CareTask::kScrub));
    EXPECT_THAT(Overdue(wrong, kNow),
                ElementsAre("it is not known when somebody has last scrubbed the cluster, as the "
                            "clock of who did so was wrong"));
  }
  // Clocks that differ a little do no harm.
  EXPECT_THAT(Overdue(Ago(0, -1, 0), kNow), IsEmpty());
}

TEST(Due, IsComplainedOfWhenItIsLate) {
  EXPECT_THAT(Overdue({}, kNow), IsEmpty());
  EXPECT_THAT(Overdue(Ago(3, 60, 27), kNow), IsEmpty());
  EXPECT_THAT(Overdue(Ago(5, 80, 30), kNow),
              ElementsAre("nobody has checked the cluster for 5.0 days",
                          "nobody has scrubbed the cluster for 80.0 days",
                          "nobody has collected what dead clients left for 30.0 days"));
}

}  // namespace
}  // namespace pinstripe
