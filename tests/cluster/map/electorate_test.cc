// Which drives have a say, from what they tell of their starts and what was noted of them.

#include "cluster/map/electorate.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using Starts = std::vector<DriveStart>;

DriveInfo InfoOf(Starts starts, uint64_t count) {
  return {.starts = std::move(starts), .start_count = count};
}

TEST(JudgeStartsTest, ADeviceThatTellsNoStartsAlwaysHasASay) {
  EXPECT_EQ(JudgeStarts({}, 0, std::nullopt), Say::kFull);
  EXPECT_EQ(JudgeStarts({}, 0, 7), Say::kFull);
}

TEST(JudgeStartsTest, WhatFollowsOnTheNotedStartWithoutABreakIsToBeNoted) {
  EXPECT_EQ(JudgeStarts({{7, true}}, 1, 7), Say::kFull);
  EXPECT_EQ(JudgeStarts({{8, true}, {7, true}}, 2, 7), Say::kUnnoted);
  EXPECT_EQ(JudgeStarts({{9, true}, {8, true}, {7, false}}, 3, 7), Say::kUnnoted);
}

TEST(JudgeStartsTest, AnUncleanStartSinceTheNotedOneIsALossOfMemory) {
  EXPECT_EQ(JudgeStarts({{8, false}, {7, true}}, 2, 7), Say::kForgetful);
  EXPECT_EQ(JudgeStarts({{9, true}, {8, false}, {7, true}}, 3, 7), Say::kForgetful);
}

// The disk was copied in start 7, or before; the drive that is known went on to 8.
TEST(JudgeStartsTest, ACopyDoesNotHaveTheNotedStart) {
  EXPECT_EQ(JudgeStarts({{7, true}}, 1, 8), Say::kStale);
  EXPECT_EQ(JudgeStarts({{9, true}, {7, true}}, 2, 8), Say::kStale);
}

TEST(JudgeStartsTest, WhatNobodyHasNotedMustHaveTheWholeOfItsPast) {
  EXPECT_EQ(JudgeStarts({{7, true}}, 1, std::nullopt), Say::kUnnoted);
  EXPECT_EQ(JudgeStarts({{8, true}, {7, true}}, 2, std::nullopt), Say::kUnnoted);
  EXPECT_EQ(JudgeStarts({{8, false}, {7, true}}, 2, std::nullopt), Say::kForgetful);
  EXPECT_EQ(JudgeStarts({{8, true}, {7, true}}, 90, std::nullopt), Say::kForgetful);
}

TEST(JudgeStartsTest, OneThatWasLeftOutIsCompared) {
  EXPECT_EQ(JudgeStarts({{7, true}}, 1, kNoStart), Say::kForgetful);
}

TEST(ElectorateTest, NobodyHasASayBeforeItIsKnownWhatWasNoted) {
  Electorate electorate;
  electorate.Meet(1, InfoOf({{7, true}}, 1), Time());
  EXPECT_FALSE(electorate.HasSay(1));
  EXPECT_TRUE(electorate.HasSayInMap(1));
  electorate.Note({{1, 7}});
  EXPECT_TRUE(electorate.HasSay(1));
}

TEST(ElectorateTest, ADriveLosesItsSayWhenItIsMetInAnotherStart) {
  Electorate electorate;
  electorate.Note({{1, 7}});
  electorate.Meet(1, InfoOf({{7, true}}, 1), Time());
  EXPECT_TRUE(electorate.HasSay(1));
  electorate.Meet(1, InfoOf({{8, false}, {7, true}}, 2), Time());
  EXPECT_FALSE(electorate.HasSay(1));
  EXPECT_TRUE(electorate.HasSayInMap(1));
  EXPECT_NE(electorate.WhyNot(1).find("may have forgotten"), std::string::npos);
  EXPECT_EQ(electorate.Doubtful(), std::vector<DriveId>{1});
  electorate.Note(1, 8);
  EXPECT_TRUE(electorate.HasSay(1));
}

TEST(ElectorateTest, ADriveIsNewsUnlessWeOnlyClosedTheConnectionToIt) {
  Electorate electorate;
  electorate.Note({{1, 7}});
  Result<DriveInfo> info = InfoOf({{7, true}}, 1);
  electorate.Meet(1, info, Time());
  electorate.Meet(1, info, Time());
  EXPECT_EQ(electorate.news(), 2u);
  info->goes_on = true;
  electorate.Meet(1, info, Time());
  EXPECT_EQ(electorate.news(), 2u);
  info = InfoOf({{8, true}, {7, true}}, 2);
  info->goes_on = true;
  electorate.Meet(1, info, Time());
  EXPECT_EQ(electorate.news(), 3u) << "whatever is said, it was started anew";
}

TEST(ElectorateTest, ACopyHasNoSayInTheMapEither) {
  Electorate electorate;
  electorate.Note({{1, 8}});
  electorate.Meet(1, InfoOf({{9, true}, {7, true}}, 2), Time());
  EXPECT_FALSE(electorate.HasSay(1));
  EXPECT_FALSE(electorate.HasSayInMap(1));
  EXPECT_NE(electorate.WhyNot(1).find("a copy"), std::string::npos);
}

TEST(ElectorateTest, WhoCannotBeAskedForItsStartsIsTakenAsADeviceThatTellsNone) {
  Electorate electorate;
  electorate.Note({});
  electorate.Meet(1, Fail(EACCES, "GETLOG is not allowed"), Time());
  EXPECT_TRUE(electorate.HasSay(1));
}

TEST(StartRegisterTest, BytesNeverChange) {
  EXPECT_EQ(StartKey(3), Unhex("540003"));
  EXPECT_EQ(EncodeStart(0x0102030405060708), Unhex("010102030405060708"));
  EXPECT_EQ(*DecodeStart(Unhex("010102030405060708")), 0x0102030405060708u);
  EXPECT_FAILS(DecodeStart(Unhex("020102030405060708")), EBADMSG);
  EXPECT_FAILS(DecodeStart(Unhex("0101020304050607")), EBADMSG);
  EXPECT_FAILS(DecodeStart(Unhex("01010203040506070809")), EBADMSG);
}

}  // namespace
}  // namespace pinstripe
