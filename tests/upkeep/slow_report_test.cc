// What is made of what drives tell of what took long.

#include "upkeep/slow_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "kinetic/message.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr int kGet = 2;
constexpr int kPut = 4;
constexpr int64_t kNow = 1'800'000'000'000'000'000;

DriveUser Fuse() {
  DriveUser user;
  user.program = {.name = "pinstripe-fuse", .version = "1", .detail = "/mnt"};
  user.host = "host-a";
  user.process = 7;
  user.address = "10.0.0.1:50";
  return user;
}

SlowOperation::Request WaitedFor(uint32_t drive, uint64_t connection, uint64_t sequence,
                                 Duration took, bool answered = true) {
  return {.drive = drive,
          .waited = {.connection = connection,
                     .sequence = sequence,
                     .type = kPut,
                     .took = took,
                     .answered = answered}};
}

ToldOperation Close(uint64_t id, Duration took, Duration ago,
                    std::vector<SlowOperation::Request> requests) {
  return {{.id = id,
           .operation = "close",
           .subject = "inode 12",
           .took = took,
           .ago = ago,
           .memory = 300ms,
           .drives = took - 300ms,
           .turn = {},
           .requests = std::move(requests)},
          Fuse()};
}

SlowRequest Put(uint64_t connection, uint64_t sequence, Duration took, Duration ago = 5s) {
  SlowRequest request;
  request.connection = connection;
  request.sequence = sequence;
  request.type = kPut;
  request.bytes = 1 << 20;
  request.record = "shard 3 of block 7 of object 9d13";
  request.ago = ago;
  request.took = took;
  request.queue = took / 40;
  request.store = took - took / 40 - took / 40;
  request.sync = took / 40;
  request.client = Fuse();
  return request;
}

DriveSlow Tells(std::vector<SlowRequest> requests, std::vector<ToldOperation> operations = {}) {
  return {.requests = std::move(requests), .operations = std::move(operations), .slow_after = 1s};
}

ClusterSlow Now(std::vector<ClusterSlow::OfDrive> drives) {
  return {.when = kNow, .drives = std::move(drives)};
}

TEST(SlowReport, AnOperationIsJoinedWithWhatItsDriveSays) {
  const auto slow =
      Now({{1, "a:1", Tells({}, {Close(9, 4400ms, 10s, {WaitedFor(3, 33, 5, 4100ms)})})},
           {3, "b:1", Tells({Put(33, 5, 4s), Put(33, 6, 2s)})}});
  const auto entries = JoinSlow(slow, {});
  ASSERT_THAT(entries, SizeIs(2));
  const SlowEntry& close = entries[0];
  EXPECT_EQ(close.ended, kNow - 10'000'000'000);
  ASSERT_TRUE(close.operation);
  ASSERT_THAT(close.parts, SizeIs(1));
  EXPECT_EQ(close.parts[0].drive, 3);
  EXPECT_EQ(close.parts[0].tells, SlowPart::Drive::kTells);
  EXPECT_EQ(close.parts[0].at_drive->store, 3800ms);
  EXPECT_FALSE(entries[1].operation) << "nobody has told of an operation that waited for it";
  EXPECT_EQ(entries[1].parts[0].at_drive->sequence, 6u);
  const std::string text = SlowText(entries, slow, {});
  EXPECT_THAT(text, HasSubstr("  4.4 s  close inode 12\n"
                              "    pinstripe-fuse on host-a (/mnt), operation 9\n"
                              "    waited 4.1 s for drives, 0.3 s for memory\n"
                              "      4.1 s  drive 3 (b:1), write of shard 3 of block 7 of object "
                              "9d13: queue 0.1 s, disk 3.8 s, sync 0.1 s, on the way 0.1 s\n"));
  EXPECT_THAT(text, HasSubstr("  2.0 s  drive 3 (b:1), write of shard 3 of block 7 of object 9d13: "
                              "queue 0.1 s, disk 1.9 s, sync 0.1 s\n"
                              "    asked by pinstripe-fuse on host-a (/mnt)\n"));
}

TEST(SlowReport, WaitsThatAreAPartOfItAreShownHoweverShort) {
  ToldOperation read = Close(9, 9ms, 1s, {});
  read.operation.memory = 100us;
  read.operation.drives = 8ms;
  const auto slow = Now({{1, "a:1", Tells({}, {read})}});
  EXPECT_THAT(SlowText(JoinSlow(slow, {}), slow, {}), HasSubstr("\n    waited 8 ms for drives\n"));
}

// Each of several drives is told; that one of them has died, or the client, takes nothing away.
TEST(SlowReport, AnOperationIsToldOfOnce) {
  const auto told = Close(9, 4s, 10s, {});
  const auto other = Close(10, 4s, 9s, {});
  const auto slow = Now({{1, "a:1", Tells({}, {told, other})}, {2, "b:1", Tells({}, {told})}});
  EXPECT_THAT(JoinSlow(slow, {}), SizeIs(2));
}

// The numbers of connections never come again, and so tell the drive, whatever the client says.
TEST(SlowReport, OnlyTheConnectionAndTheNumberNameARequest) {
  const auto slow =
      Now({{1, "a:1", Tells({Put(33, 6, 4s)}, {Close(9, 4s, 1s, {WaitedFor(1, 33, 5, 4s)})})},
           {2, "b:1", Tells({Put(44, 5, 4s)})}});
  const auto entries = JoinSlow(slow, {});
  ASSERT_THAT(entries, SizeIs(3)) << "neither of the requests is the one that was waited for";
  EXPECT_EQ(entries[2].parts[0].tells, SlowPart::Drive::kKnowsNothing);
}

TEST(SlowReport, SaysWhyADriveDoesNotSay) {
  const auto silent = tl::unexpected(Status(ENOTSUP, "this version cannot"));
  const auto slow = Now(
      {{1, "a:1",
        Tells({}, {Close(9, 4s, 1s,
                         {WaitedFor(1, 1, 1, 3s), WaitedFor(1, 1, 2, 500ms),
                          WaitedFor(2, 1, 3, 2s, /*answered=*/false), WaitedFor(99, 1, 4, 2s)})})},
       {2, "b:1", silent}});
  EXPECT_EQ(slow.Silent(), 1u);
  const auto entries = JoinSlow(slow, {});
  ASSERT_THAT(entries, SizeIs(1));
  const auto& parts = entries[0].parts;
  ASSERT_THAT(parts, SizeIs(4));
  EXPECT_EQ(parts[0].tells, SlowPart::Drive::kKnowsNothing);
  EXPECT_EQ(parts[1].tells, SlowPart::Drive::kIsSilent);
  EXPECT_EQ(parts[2].tells, SlowPart::Drive::kIsSilent) << "the configuration has no such drive";
  EXPECT_EQ(parts[3].tells, SlowPart::Drive::kWasQuick);
  const std::string text = SlowText(entries, slow, {});
  EXPECT_THAT(text, HasSubstr("drive 1 (a:1), write: the drive noticed nothing"));
  EXPECT_THAT(text, HasSubstr("drive 2 (b:1), write, not answered yet then: the drive does not"));
  EXPECT_THAT(text, HasSubstr("  0.5 s  drive 1 (a:1), write\n"));
  EXPECT_THAT(text, HasSubstr("drive 2 (b:1) does not tell: this version cannot\n"));
}

TEST(SlowReport, ShowsWhatWasAskedForOldestFirst) {
  const auto slow = Now({{1, "a:1",
                          Tells({Put(1, 1, 2s, 30s), Put(1, 2, 5s, 20s), Put(1, 3, 3s, 10s)},
                                {Close(1, 9s, 5s, {WaitedFor(1, 1, 3, 3s)})})}});
  const auto sequences = [&](const SlowFilter& filter) {
    std::string text;
    for (const SlowEntry& each : JoinSlow(slow, filter)) {
      text += each.operation ? "close " : fmt::format("{} ", each.parts[0].at_drive->sequence);
    }
    return text;
  };
  EXPECT_EQ(sequences({}), "1 2 close ");
  EXPECT_EQ(sequences({.since = kNow - 25'000'000'000}), "2 close ");
  EXPECT_EQ(sequences({.at_least = 3s}), "2 close ");
  EXPECT_EQ(sequences({.at_least = 6s}), "close ");
  EXPECT_EQ(sequences({.since = kNow - 1}), "") << "3 belongs to the close, shown or not";
  EXPECT_THAT(SlowText({}, slow, {.since = kNow}), HasSubstr("nothing took long since 2027-01-15"));
}

TEST(SlowReport, JsonHasWhatTheReferenceSays) {
  const auto slow =
      Now({{1, "a:1", Tells({}, {Close(9, 4s, 10s, {WaitedFor(3, 33, 5, 4s, false)})})},
           {2, "b:1", tl::unexpected(Status(ETIMEDOUT, "no answer"))},
           {3, "c:1", Tells({Put(33, 5, 4s), Put(33, 6, 2s)})}});
  const auto json = nlohmann::json::parse(SlowJson(JoinSlow(slow, {}), slow));
  ASSERT_THAT(json["slow"], SizeIs(2));
  const auto& close = json["slow"][0];
  EXPECT_EQ(close["time"], "2027-01-15 07:59:50 UTC");
  EXPECT_EQ(close["seconds"], 4.0);
  EXPECT_EQ(close["client"]["program"], "pinstripe-fuse");
  EXPECT_EQ(close["client"]["detail"], "/mnt");
  EXPECT_EQ(close["operation"]["id"], "0000000000000009");
  EXPECT_EQ(close["operation"]["name"], "close");
  EXPECT_EQ(close["operation"]["subject"], "inode 12");
  EXPECT_EQ(close["operation"]["memory_seconds"], 0.3);
  EXPECT_EQ(close["operation"]["drives_seconds"], 3.7);
  EXPECT_EQ(close["operation"]["turn_seconds"], 0.0);
  const auto& request = close["requests"][0];
  EXPECT_EQ(request["drive"], 3);
  EXPECT_EQ(request["address"], "c:1");
  EXPECT_EQ(request["connection"], "0000000000000021");
  EXPECT_EQ(request["sequence"], "0000000000000005");
  EXPECT_EQ(request["request"], "write");
  EXPECT_EQ(request["answered"], false);
  EXPECT_EQ(request["drive_says"], "told");
  EXPECT_EQ(request["at_drive"]["disk_seconds"], 3.8);
  EXPECT_EQ(request["at_drive"]["bytes"], 1 << 20);
  EXPECT_TRUE(json["slow"][1]["operation"].is_null());
  EXPECT_EQ(json["silent_drives"][0]["drive"], 2);
  EXPECT_EQ(json["silent_drives"][0]["why"], "no answer");
}

// Whatever drives and clients say, however large.
TEST(SlowReport, NumbersThatCannotBeAreShown) {
  constexpr Duration kLongest = std::chrono::milliseconds(int64_t{1} << 42);
  SlowRequest request = Put(1, 1, kLongest, kLongest);
  request.type = -7;
  request.status = -7;
  request.queue = request.store = request.sync = request.held = kLongest;
  const auto slow =
      Now({{1, "a:1",
            Tells({request},
                  {Close(9, kLongest, kLongest, {WaitedFor(UINT32_MAX, 1, 1, kLongest)})})}});
  const SlowFilter all{.since = INT64_MIN};
  const auto entries = JoinSlow(slow, all);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_THAT(SlowText(entries, slow, all), HasSubstr("write of shard 3"));
  EXPECT_TRUE(nlohmann::json::accept(SlowJson(entries, slow)));
}

}  // namespace
}  // namespace pinstripe
