#include "daemon/memory_drive.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/support/expect_ok.h"
#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

class MemoryDriveTest : public testing::Test {
 protected:
  // Asks, and waits for the answer.
  template <typename R, typename Ask>
  R Await(Ask ask) {
    std::optional<R> answer;
    const auto signal = sim_.NewSignal();
    ask([&](R result) {
      EXPECT_FALSE(answer.has_value()) << "answered twice";
      answer = std::move(result);
      signal->Set();
    });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    while (!answer.has_value()) signal->WaitUntil(Time::max());
    return *std::move(answer);
  }

  Status Put(std::string key, std::string value, std::string version, Expected expected) {
    return Await<Status>([&](StatusCallback done) {
      drive_.Put({.key = key,
                  .value = SharedBytes(value),
                  .version = version,
                  .tag = "tag",
                  .expected = expected},
                 sim_.Now() + 1s, std::move(done));
    });
  }

  SimRuntime sim_{1};
  MemoryDrive drive_{sim_, "drive 7 (memory)"};
};

TEST_F(MemoryDriveTest, WhatWasPutCanBeReadWholeAndInPart) {
  ASSERT_OK(Put("key", "hello, world", "v1", Expected::Absent()));
  const auto whole = Await<Result<Record>>(
      [&](auto done) { drive_.Get("key", {}, sim_.Now() + 1s, std::move(done)); });
  ASSERT_OK(whole);
  EXPECT_EQ(whole->value.text(), "hello, world");
  EXPECT_EQ(whole->version, "v1");
  EXPECT_EQ(whole->tag, "tag");
  const auto part = Await<Result<Record>>([&](auto done) {
    drive_.Get("key", {7, 100}, sim_.Now() + 1s, std::move(done));
  });
  ASSERT_OK(part);
  EXPECT_EQ(part->value.text(), "world");
}

TEST_F(MemoryDriveTest, FailuresNameTheDrive) {
  ASSERT_OK(Put("key", "value", "v1", Expected::Absent()));
  const Status stale = Put("key", "other", "v2", Expected::Version("v0"));
  EXPECT_FAILS(stale, ESTALE);
  EXPECT_NE(stale.message().find("drive 7 (memory)"), std::string_view::npos) << stale.message();
}

TEST_F(MemoryDriveTest, KeysComeInTheOrderOfTheirBytes) {
  for (const char* key : {"b", "a\xff", "a", "c"}) ASSERT_OK(Put(key, "", "", Expected::Any()));
  const auto keys = Await<Result<std::vector<std::string>>>([&](auto done) {
    drive_.Range("a", "b", 10, /*reverse=*/true, sim_.Now() + 1s, std::move(done));
  });
  ASSERT_OK(keys);
  EXPECT_EQ(*keys, (std::vector<std::string>{"b", "a\xff", "a"}));
}

TEST_F(MemoryDriveTest, SaysOfItsStartsWhatItIsTold) {
  const auto info = [&] {
    return *Await<Result<DriveInfo>>(
        [&](auto done) { drive_.Info(sim_.Now() + 1s, std::move(done)); });
  };
  EXPECT_EQ(info().starts, std::vector<DriveStart>());
  EXPECT_EQ(info().start_count, 0u);
  EXPECT_EQ(info().up, std::nullopt);
  const std::vector<DriveStart> starts = {{2, false}, {1, true}};
  drive_.SetStarts(starts, 60s);
  EXPECT_EQ(info().starts, starts);
  EXPECT_EQ(info().start_count, 2u);
  EXPECT_EQ(info().up, 60s);
  drive_.SetStarts(starts, std::nullopt, 100);
  EXPECT_EQ(info().start_count, 100u);
}

TEST(MemoryDriveEnd, OperationsOutstandingWhenItIsDestroyedAreAnsweredBefore) {
  SimRuntime sim(1);
  std::optional<Result<DriveInfo>> answer;
  {
    MemoryDrive drive(sim, "drive 1");
    drive.Info(sim.Now() + 1s, [&](Result<DriveInfo> info) { answer = std::move(info); });
    EXPECT_FALSE(answer.has_value());
  }
  ASSERT_TRUE(answer.has_value());
  EXPECT_FAILS(*answer, EHOSTUNREACH);
}

}  // namespace
}  // namespace pinstripe
