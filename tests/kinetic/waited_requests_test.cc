// What is remembered of requests that took long.

#include "kinetic/waited_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

std::vector<uint64_t> SequencesOf(const WaitedRequests& waited, std::vector<uint64_t> operations) {
  std::vector<uint64_t> sequences;
  for (const WaitedRequest& each : waited.Of(operations)) sequences.push_back(each.sequence);
  return sequences;
}

TEST(WaitedRequests, AreFoundByTheOperationThatAsked) {
  WaitedRequests waited;
  EXPECT_THAT(SequencesOf(waited, {1, 2}), IsEmpty());
  waited.Note(1, {.sequence = 10, .took = 1s});
  waited.Note(2, {.sequence = 20, .took = 1s});
  waited.Note(1, {.sequence = 11, .took = 2s});
  EXPECT_THAT(SequencesOf(waited, {1}), UnorderedElementsAre(10, 11));
  EXPECT_THAT(SequencesOf(waited, {2, 1}), UnorderedElementsAre(10, 11, 20));
  EXPECT_THAT(SequencesOf(waited, {3}), IsEmpty());
}

TEST(WaitedRequests, TheSlowestOfEachOperationAreKept) {
  WaitedRequests waited;
  for (uint64_t i = 0; i < 100; ++i) {
    waited.Note(1, {.sequence = i, .took = std::chrono::milliseconds(i * 37 % 100)});
  }
  std::vector<int64_t> times;
  const std::vector<uint64_t> one = {1};
  for (const WaitedRequest& each : waited.Of(one)) times.push_back(each.took / 1ms);
  EXPECT_THAT(times, UnorderedElementsAre(96, 97, 98, 99));
}

TEST(WaitedRequests, HaveABound) {
  WaitedRequests waited;
  std::vector<uint64_t> operations;
  for (uint64_t i = 1; i <= 100'000; ++i) {
    waited.Note(i, {.sequence = i, .took = 1s});
    operations.push_back(i);
  }
  EXPECT_THAT(SequencesOf(waited, operations), SizeIs(WaitedRequests::kOperations));
  EXPECT_THAT(SequencesOf(waited, {100'000}), SizeIs(1)) << "the last one counts";
}

}  // namespace
}  // namespace pinstripe
