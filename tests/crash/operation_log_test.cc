// A test of the tests: what OperationLog must notice.

#include "tests/crash/operation_log.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

class OperationLogTest : public testing::Test {
 protected:
  void Put(const std::string& key, bool acknowledged) {
    const uint64_t number = log_.Begin({key}, false)[0];
    there_[key] = OperationLog::RecordOf(key, number);
    if (acknowledged) log_.Acknowledge(key, false);
  }
  std::string Complaint(OperationLog::Crash crash = OperationLog::Crash::kKill) {
    return log_.Complaint(log_.Floors(crash), log_.Ceilings(),
                          [&](const std::string& key) -> Result<StoredRecord> {
                            const auto found = there_.find(key);
                            if (found == there_.end()) return Fail(ENOENT, "no such key");
                            return found->second;
                          });
  }

  OperationLog log_;
  std::map<std::string, StoredRecord> there_;
};

TEST_F(OperationLogTest, IsContentWithWhatWasAcknowledgedAndWithWhatWasBegun) {
  Put("key", true);
  EXPECT_EQ(Complaint(), "");
  Put("key", false);
  EXPECT_EQ(Complaint(), "");
  there_["key"] = OperationLog::RecordOf("key", 1);
  EXPECT_EQ(Complaint(), "");
}

TEST_F(OperationLogTest, MissesAnAcknowledgedPut) {
  Put("key", true);
  there_.clear();
  EXPECT_NE(Complaint(), "");
  EXPECT_EQ(Complaint(OperationLog::Crash::kPowerLoss), "") << "it was not flushed";
  log_.Flushed(log_.Acknowledged());
  EXPECT_NE(Complaint(OperationLog::Crash::kPowerLoss), "");
}

TEST_F(OperationLogTest, MissesAnAcknowledgedDelete) {
  Put("key", true);
  log_.Begin({"key"}, true);
  EXPECT_EQ(Complaint(), "");
  log_.Acknowledge("key", false);
  EXPECT_NE(Complaint(), "");
}

TEST_F(OperationLogTest, KnowsOldOtherAndDamagedRecords) {
  Put("key", true);
  const StoredRecord first = there_["key"];
  Put("key", true);
  there_["key"] = first;
  EXPECT_NE(Complaint(), "");
  there_["key"] = OperationLog::RecordOf("other", 2);
  EXPECT_NE(Complaint(), "");
  there_["key"] = OperationLog::RecordOf("key", 3);
  EXPECT_NE(Complaint(), "");
}

TEST_F(OperationLogTest, KnowsHalfABatch) {
  const auto numbers = log_.Begin({"one", "other"}, false);
  EXPECT_EQ(Complaint(), "");
  there_["one"] = OperationLog::RecordOf("one", numbers[0]);
  EXPECT_NE(Complaint(), "");
  there_["other"] = OperationLog::RecordOf("other", numbers[1]);
  EXPECT_EQ(Complaint(), "");
}

TEST_F(OperationLogTest, WhatAKillHasUndoneDoesNotComeBack) {
  Put("key", true);
  Put("key", false);
  there_["key"] = OperationLog::RecordOf("key", 1);
  ASSERT_EQ(Complaint(), "");
  log_.GoOnFrom([&](const std::string& key) -> Result<StoredRecord> { return there_.at(key); });
  EXPECT_EQ(Complaint(), "");
  there_.clear();
  EXPECT_NE(Complaint(), "");
}

}  // namespace
}  // namespace pinstripe
