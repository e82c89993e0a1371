#include "tests/support/linearizability.h"

#include <gtest/gtest.h>

namespace pinstripe {
namespace {

using Kind = RegisterOperation::Kind;
using Span = std::pair<uint64_t, uint64_t>;

RegisterOperation Read(Span span, uint64_t slot, std::optional<std::string> value) {
  return {
      .kind = Kind::kRead, .called = span.first, .returned = span.second, .result = {slot, value}};
}
RegisterOperation Change(Kind kind, Span span, uint64_t seen, std::optional<std::string> value,
                         RegisterValue result = {}) {
  return {.kind = kind,
          .called = span.first,
          .returned = span.second,
          .seen_slot = seen,
          .value = value,
          .result = result};
}
bool Linearizable(std::vector<RegisterOperation> history) {
  return WhyNotLinearizable(std::move(history)).empty();
}

TEST(Linearizability, NothingHappenedIsFine) { EXPECT_TRUE(Linearizable({})); }

TEST(Linearizability, ARegisterStartsAbsentInSlotZero) {
  EXPECT_TRUE(Linearizable({Read({1, 2}, 0, std::nullopt)}));
  EXPECT_FALSE(Linearizable({Read({1, 2}, 1, "a")}));
}

TEST(Linearizability, AReadSeesTheChangeBeforeIt) {
  const auto change = Change(Kind::kApplied, {1, 2}, 0, "a");
  EXPECT_TRUE(Linearizable({change, Read({3, 4}, 1, "a")}));
  EXPECT_FALSE(Linearizable({change, Read({3, 4}, 0, std::nullopt)}));
  EXPECT_FALSE(Linearizable({change, Read({3, 4}, 1, "b")}));
}

TEST(Linearizability, AReadDuringAChangeSeesEither) {
  const auto change = Change(Kind::kApplied, {1, 4}, 0, "a");
  EXPECT_TRUE(Linearizable({change, Read({2, 3}, 0, std::nullopt)}));
  EXPECT_TRUE(Linearizable({change, Read({2, 3}, 1, "a")}));
}

TEST(Linearizability, WhatWasSeenIsNotUnseen) {
  const auto change = Change(Kind::kApplied, {1, 10}, 0, "a");
  EXPECT_TRUE(Linearizable({change, Read({2, 3}, 0, std::nullopt), Read({4, 5}, 1, "a")}));
  EXPECT_FALSE(Linearizable({change, Read({2, 3}, 1, "a"), Read({4, 5}, 0, std::nullopt)}));
}

TEST(Linearizability, OfTwoChangesOfOneSlotOneIsApplied) {
  const auto one = Change(Kind::kApplied, {1, 4}, 0, "a");
  EXPECT_FALSE(Linearizable({one, Change(Kind::kApplied, {2, 3}, 0, "b")}));
  EXPECT_TRUE(Linearizable({one, Change(Kind::kRefused, {2, 3}, 0, "b", {1, "a"})}));
  EXPECT_FALSE(Linearizable({one, Change(Kind::kRefused, {2, 3}, 0, "b", {1, "c"})}));
}

TEST(Linearizability, AChangeIsNotRefusedWhileItWouldApply) {
  EXPECT_FALSE(Linearizable({Change(Kind::kRefused, {1, 2}, 0, "a", {0, std::nullopt})}));
}

TEST(Linearizability, WhatMayHaveHappenedHappensLateOrNever) {
  const auto unknown = Change(Kind::kUnknown, {1, 2}, 0, "a");
  EXPECT_TRUE(Linearizable({unknown}));
  EXPECT_TRUE(Linearizable({unknown, Read({3, 4}, 0, std::nullopt), Read({5, 6}, 1, "a")}));
  EXPECT_TRUE(
      Linearizable({unknown, Change(Kind::kApplied, {3, 4}, 0, "b"), Read({5, 6}, 1, "b")}));
  EXPECT_FALSE(
      Linearizable({unknown, Change(Kind::kApplied, {3, 4}, 0, "b"), Read({5, 6}, 1, "a")}));
  EXPECT_FALSE(Linearizable({Read({1, 2}, 1, "a"), Change(Kind::kUnknown, {3, 4}, 0, "a")}));
}

TEST(Linearizability, NothingIsSeenOnlyWhereThereIsNothing) {
  const RegisterOperation nothing{.kind = Kind::kSawNothing, .called = 3, .returned = 4};
  EXPECT_FALSE(Linearizable({Change(Kind::kApplied, {1, 2}, 0, "a"), nothing}));
  EXPECT_TRUE(Linearizable({Change(Kind::kApplied, {1, 2}, 0, std::nullopt), nothing}));
}

TEST(Linearizability, AChangeAppliedTwiceIsFound) {
  EXPECT_FALSE(Linearizable({Change(Kind::kApplied, {1, 2}, 0, "a"),
                             Change(Kind::kApplied, {3, 4}, 1, "b"), Read({5, 6}, 3, "a")}));
}

// The first slot of the second epoch comes after this one.
constexpr uint64_t kSecond = uint64_t{1} << 32;

TEST(Linearizability, AnAbsentRegisterMayBeRenumberedInALaterEpoch) {
  const auto removed = Change(Kind::kApplied, {1, 2}, 0, std::nullopt);
  for (const uint64_t slot : {kSecond, kSecond + 1, kSecond + 2, 3 * kSecond}) {
    EXPECT_TRUE(Linearizable({removed, Read({3, 4}, slot, std::nullopt)})) << slot;
    EXPECT_FALSE(Linearizable({Read({1, 2}, slot, std::nullopt), Read({3, 4}, 0, std::nullopt)}));
  }
  for (const uint64_t slot : {uint64_t{2}, kSecond - 1, kSecond + 3}) {
    EXPECT_FALSE(Linearizable({removed, Read({3, 4}, slot, std::nullopt)})) << slot;
  }
}

TEST(Linearizability, AValueKeepsItsSlotWhateverTheEpoch) {
  const auto change = Change(Kind::kApplied, {1, 2}, 0, "a", {1, "a"});
  EXPECT_TRUE(Linearizable({change, Read({3, 4}, 1, "a")}));
  for (const uint64_t slot : {kSecond, kSecond + 1, kSecond + 2}) {
    EXPECT_FALSE(Linearizable({change, Read({3, 4}, slot, "a")})) << slot;
  }
}

TEST(Linearizability, AChangeMayBeAmongTheFirstOfALaterEpoch) {
  const auto change = Change(Kind::kApplied, {1, 2}, 0, "a");
  for (const uint64_t slot : {uint64_t{1}, kSecond + 1, kSecond + 2}) {
    EXPECT_TRUE(Linearizable({change, Read({3, 4}, slot, "a")})) << slot;
  }
  EXPECT_FALSE(Linearizable({change, Read({3, 4}, kSecond, "a")})) << "only what is absent";
  EXPECT_FALSE(Linearizable({change, Read({3, 4}, kSecond + 3, "a")}));
  const auto told = Change(Kind::kApplied, {1, 2}, 0, "a", {kSecond + 1, "a"});
  EXPECT_TRUE(Linearizable({told, Read({3, 4}, kSecond + 1, "a")}));
  EXPECT_FALSE(Linearizable({told, Read({3, 4}, kSecond + 2, "a")}));
}

TEST(Linearizability, WhatWasRefusedInALaterEpochHappensNeither) {
  const auto renumbered = Read({1, 2}, kSecond, std::nullopt);
  const auto refused = Change(Kind::kRefused, {3, 4}, 0, "a", {kSecond, std::nullopt});
  EXPECT_TRUE(Linearizable({renumbered, refused, Read({5, 6}, kSecond, std::nullopt)}));
  EXPECT_FALSE(Linearizable({renumbered, refused, Read({5, 6}, kSecond + 1, "a")}));
}

// Eight writers at once, again and again: enough to hang a search that forgets where it was.
TEST(Linearizability, ALongHistoryWithManyAtOnceTakesNoTime) {
  std::vector<RegisterOperation> history;
  uint64_t clock = 0;
  for (uint64_t slot = 0; slot < 60; ++slot) {
    const uint64_t start = clock;
    for (uint64_t i = 0; i < 8; ++i) {
      const Span span{start + i, start + 20 - i};
      history.push_back(
          i == 3 ? Change(Kind::kApplied, span, slot, fmt::format("{}", slot))
                 : Change(Kind::kRefused, span, slot, "x", {slot + 1, fmt::format("{}", slot)}));
    }
    clock += 30;
  }
  EXPECT_TRUE(Linearizable(history));
  history.push_back(Read({clock, clock + 1}, 59, "58"));
  EXPECT_FALSE(Linearizable(history));
}

}  // namespace
}  // namespace pinstripe
