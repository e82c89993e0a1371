// What a LogLedger says of the entries of a log, and that its invariants hold after each transition
// whatever comes after what.

#include "store/log_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

constexpr uint64_t kSegmentBytes = 1000;

class LogLedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    ledger_.Load({}, {}, 0);
    ASSERT_OK(ledger_.BeginAt({}, /*in_new_segment=*/true));
    ledger_.Begin({}, {});
    ledger_.CheckInvariants();
  }

  LogLedger::Change Reserve(std::vector<uint64_t> bytes) {
    LogLedger::Change change;
    EXPECT_OK(ledger_.Reserve(bytes, change));
    ledger_.CheckInvariants();
    return change;
  }
  LogLedger::Entry Put(uint64_t bytes) {
    const LogLedger::Change change = Reserve({bytes});
    ledger_.Commit(change);
    ledger_.CheckInvariants();
    return change.added.front();
  }
  void Delete(const LogLedger::Entry& entry) {
    LogLedger::Change change;
    change.removed.push_back(entry);
    ledger_.BeginDying(change);
    ledger_.CheckInvariants();
    ledger_.Commit(change);
    ledger_.CheckInvariants();
  }
  LogLedger::Round Flush() {
    const LogLedger::Round round = ledger_.BeginRound();
    ledger_.CheckInvariants();
    ledger_.EndRound(round);
    ledger_.CheckInvariants();
    return round;
  }

  TemporaryDirectory directory_;
  SegmentFiles files_{FileCalls::Kernel(), directory_.path()};
  LogLedger ledger_{files_, kSegmentBytes};
};

TEST_F(LogLedgerTest, GivesBackOnlyWhatIsDurablyForgotten) {
  const LogLedger::Entry entry = Put(400);
  EXPECT_EQ(ledger_.used_bytes(), 400u);
  Delete(entry);
  EXPECT_EQ(ledger_.used_bytes(), 400u);
  EXPECT_FALSE(ledger_.HasReturnable());
  const LogLedger::Round round = ledger_.BeginRound();
  EXPECT_FALSE(ledger_.HasReturnable());
  ledger_.EndRound(round);
  EXPECT_EQ(ledger_.used_bytes(), 0u);
  EXPECT_THAT(ledger_.TakeReturnable().free,
              testing::ElementsAre(testing::Pair(entry.location, 400u)));
  ledger_.CheckInvariants();
}

TEST_F(LogLedgerTest, NothingIsDurableFromAnEntryInFlightOn) {
  Put(100);
  const LogLedger::Change in_flight = Reserve({100});
  Put(100);
  EXPECT_EQ(Flush().durable, in_flight.added.front().location);
  ledger_.Commit(in_flight);
  EXPECT_EQ(Flush().durable, ledger_.cursor());
}

TEST_F(LogLedgerTest, ASegmentDiesWhenNothingInItCanComeBack) {
  const LogLedger::Entry first = Put(900);
  Put(900);
  Delete(first);
  EXPECT_THAT(ledger_.TakeDeadSegments(), testing::IsEmpty());
  const LogLedger::Round round = ledger_.BeginRound();
  EXPECT_THAT(ledger_.TakeDeadSegments(), testing::IsEmpty());
  ledger_.EndRound(round);
  EXPECT_THAT(ledger_.TakeDeadSegments(), testing::ElementsAre(first.location.segment));
  ledger_.CheckInvariants();
}

TEST_F(LogLedgerTest, ADeletionThatWasNotMadeLeavesTheEntryLive) {
  LogLedger::Change change;
  change.removed.push_back(Put(100));
  ledger_.BeginDying(change);
  LogLedger::Gap gap{0, kSegmentBytes};
  ledger_.ShrinkToFree({change.removed[0].location.segment, 500}, gap);
  EXPECT_EQ(gap.begin, 100u);
  ledger_.ForgetDying(change);
  ledger_.CheckInvariants();
  EXPECT_EQ(ledger_.used_bytes(), 100u);
}

TEST_F(LogLedgerTest, InvariantsHoldWhateverComesAfterWhat) {
  std::mt19937 random(7);
  const auto below = [&](size_t bound) { return random() % bound; };
  std::vector<LogLedger::Entry> live;
  std::vector<LogLedger::Change> in_flight;
  std::optional<LogLedger::Round> round;
  uint64_t live_bytes = 0;
  for (int step = 0; step < 20000; ++step) {
    switch (below(8)) {
      case 0:
      case 1: in_flight.push_back(Reserve({1 + below(300), 1 + below(300)})); break;
      case 2:
      case 3:
      case 4: {
        if (in_flight.empty()) break;
        const size_t at = below(in_flight.size());
        LogLedger::Change change = std::move(in_flight[at]);
        in_flight.erase(in_flight.begin() + static_cast<ptrdiff_t>(at));
        if (below(4) == 0) {
          ledger_.Abandon(change);
          break;
        }
        if (!live.empty()) {  // replaces something
          std::swap(live[below(live.size())], live.back());
          change.removed.push_back(live.back());
          change.replacing.push_back(change.added.front().location);
          live.pop_back();
          ledger_.BeginDying(change);
          ledger_.CheckInvariants();
          live_bytes -= change.removed.front().bytes;
        }
        ledger_.Commit(change);
        for (const LogLedger::Entry& entry : change.added) {
          live.push_back(entry);
          live_bytes += entry.bytes;
        }
        break;
      }
      case 5: {
        if (live.size() < 30) break;
        Delete(live.back());
        live_bytes -= live.back().bytes;
        live.pop_back();
        break;
      }
      case 6:
        if (round) {
          ledger_.EndRound(*round);
          round.reset();
        } else {
          round = ledger_.BeginRound();
          ledger_.TakeReplacingBelow(round->durable_before);
        }
        break;
      case 7:
        ledger_.TakeReturnable();
        for (const uint32_t segment : ledger_.TakeDeadSegments()) {
          for (const LogLedger::Entry& entry : live) ASSERT_NE(entry.location.segment, segment);
        }
        break;
    }
    ledger_.CheckInvariants();
  }
  for (const LogLedger::Change& change : in_flight) ledger_.Abandon(change);
  if (round) ledger_.EndRound(*round);
  Flush();
  EXPECT_EQ(ledger_.used_bytes(), live_bytes);
}

using LogLedgerDeathTest = LogLedgerTest;

TEST_F(LogLedgerDeathTest, AnEntryThatDiesTwiceIsSeen) {
  const LogLedger::Entry entry = Put(100);
  Put(100);
  Delete(entry);
  LogLedger::Change change;
  change.removed.push_back(entry);
  ledger_.BeginDying(change);
  EXPECT_DEATH(ledger_.CheckInvariants(), "two things at once");
}

TEST_F(LogLedgerDeathTest, EntriesThatOverlapAreSeen) {
  const LogLedger::Entry entry = Put(100);
  Put(100);
  LogLedger::Change change;
  change.removed = {{entry.location, 60}, {{entry.location.segment, 50}, 50}};
  ledger_.BeginDying(change);
  EXPECT_DEATH(ledger_.CheckInvariants(), "overlap");
}

}  // namespace
}  // namespace pinstripe
