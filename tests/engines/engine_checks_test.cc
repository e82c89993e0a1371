#include "engines/engine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

RangeRecord Listed(std::string key, std::string value = "v") {
  RangeRecord record;
  record.key = std::move(key);
  record.record = {.version = "1", .tag = EngineTag(AsBytes(value)), .value = {}};
  record.record.value = SharedBytes(std::move(value));
  record.has_value = true;
  return record;
}

RangeRecords Of(std::vector<RangeRecord> records, bool more = false) {
  return {.records = std::move(records), .more = more};
}

EngineRange FromTo(std::string first, std::string last, bool reverse = false) {
  return {.first = std::move(first),
          .last = std::move(last),
          .max = 3,
          .reverse = reverse,
          .value_limit = 10};
}

TEST(EngineChecks, TakeAListInItsOrder) {
  EXPECT_OK(CheckedList(Of({}), FromTo("a", "c")));
  EXPECT_OK(CheckedList(Of({Listed("a"), Listed("b"), Listed("c")}, true), FromTo("a", "c")));
  EXPECT_OK(CheckedList(Of({Listed("c"), Listed("b")}), FromTo("a", "c", true)));
}

TEST(EngineChecks, RefuseWhatWasNotAskedFor) {
  const EngineRange range = FromTo("b", "d");
  EXPECT_FAILS(CheckedList(Of({Listed("a")}), range), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("e")}), range), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("c"), Listed("b")}), range), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("b"), Listed("b")}), range), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("b"), Listed("c")}), FromTo("b", "d", true)), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("b"), Listed("ba"), Listed("bb"), Listed("c")}), range),
               EBADMSG);
  EXPECT_FAILS(CheckedList(Of({}, true), range), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed("")}), FromTo("", "d")), EBADMSG);
  EXPECT_FAILS(CheckedList(Of({Listed(std::string(kMaxKeyBytes + 1, 'b'))}), range), EBADMSG);
}

TEST(EngineChecks, ARecordThatCannotBeRightIsADamagedOne) {
  RangeRecord other = Listed("b");
  other.record.value = SharedBytes(std::string("w"));
  RangeRecord unasked = Listed("c", "12345678901");
  RangeRecord hidden = Listed("d");
  hidden.has_value = false;
  const auto found = CheckedList(Of({other, unasked, hidden}), FromTo("b", "d"));
  ASSERT_OK(found);
  for (const RangeRecord& each : found->records) {
    EXPECT_TRUE(each.damaged) << each.key;
    EXPECT_FALSE(each.has_value);
    EXPECT_TRUE(each.record.value.empty());
  }
}

TEST(EngineChecks, ATagOfAnotherSizeIsSomebodysOwn) {
  EXPECT_OK(CheckedRecord(Record{.version = "1", .tag = "tag", .value = {}}));
  EXPECT_OK(CheckedRecord(Record{.version = "1", .tag = "", .value = {}}));
  EXPECT_FAILS(CheckedRecord(Record{.version = "1", .tag = "four", .value = {}}), EBADMSG);
  EXPECT_FAILS(CheckedRecord(Record{.version = std::string(kMaxVersionBytes + 1, 'x')}), EBADMSG);
  EXPECT_FAILS(CheckedRecord(Fail(ENOENT, "no such key")), ENOENT);
}

TEST(EngineChecks, WhatComesBehindAKeyBeginsWithTheNextOne) {
  const auto left = RangeBehind(FromTo("a", "c"), "b", 2);
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->first, std::string("b\0", 2));
  EXPECT_EQ(left->last, "c");
  EXPECT_EQ(left->max, 2u);
  EXPECT_FALSE(RangeBehind(FromTo("a", "b"), "b", 2).has_value());
  // Behind a longest key there is none that is longer.
  const std::string longest = "b" + std::string(kMaxKeyBytes - 1, '\xff');
  EXPECT_EQ(RangeBehind(FromTo("a", "c"), longest, 2)->first, "c");
  EXPECT_FALSE(RangeBehind(FromTo("a", "bz"), longest, 2).has_value());
  EXPECT_FALSE(RangeBehind(FromTo("a", std::string(kMaxKeyBytes, '\xff')),
                           std::string(kMaxKeyBytes, '\xff'), 2)
                   .has_value());
}

TEST(EngineChecks, BackwardsItEndsWithTheOneBefore) {
  EXPECT_EQ(RangeBehind(FromTo("a", "c", true), std::string("b\0", 2), 2)->last, "b");
  const auto left = RangeBehind(FromTo("a", "c", true), "bc", 2);
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->last, "bb" + std::string(kMaxKeyBytes - 2, '\xff'));
  EXPECT_EQ(left->first, "a");
  EXPECT_FALSE(RangeBehind(FromTo("b", "c", true), "b", 2).has_value());
  EXPECT_FALSE(RangeBehind(FromTo("", "c", true), std::string(1, '\0'), 2).has_value());
}

TEST(EngineChecks, TellWhatAnEngineIs) {
  EngineState state{.software = "etcd 3.4.23", .used_bytes = 250, .limit_bytes = 1000};
  DriveInfo info = InfoOfEngine(state, std::string(16, '\x12'));
  EXPECT_EQ(info.vendor, "etcd");
  EXPECT_EQ(info.software_version, "3.4.23");
  EXPECT_EQ(info.capacity_bytes, 1000u);
  EXPECT_EQ(info.portion_full, 0.25);
  EXPECT_EQ(info.serial_number, "12121212121212121212121212121212");
  EXPECT_EQ(info.failure, "");
  EXPECT_TRUE(info.starts.empty());
  state = {.software = "engine", .used_bytes = 2000, .alarms = {"it is full", "\x1b[31m"}};
  info = InfoOfEngine(state, "");
  EXPECT_EQ(info.vendor, "engine");
  EXPECT_EQ(info.software_version, "");
  EXPECT_EQ(info.portion_full, 0);
  EXPECT_EQ(info.failure, "it is full; ?[31m");
}

}  // namespace
}  // namespace pinstripe
