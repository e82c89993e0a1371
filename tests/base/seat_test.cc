#include "base/seat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <optional>

namespace pinstripe {
namespace {

// Of this test alone, whoever else runs on the machine.
std::string Kind(const char* what) { return fmt::format("pinstripe-test-{}-{}", getpid(), what); }

TEST(Seat, TheyCountEachOther) {
  const Seat first(Kind("a"));
  EXPECT_EQ(first.CountTaken(), 1u);
  std::optional<Seat> second(Kind("a"));
  const Seat third(Kind("a"));
  const Seat other(Kind("b"));
  EXPECT_EQ(first.CountTaken(), 3u);
  EXPECT_EQ(third.CountTaken(), 3u);
  EXPECT_EQ(other.CountTaken(), 1u);
  second.reset();
  EXPECT_EQ(first.CountTaken(), 2u);
  EXPECT_EQ(third.CountTaken(), 2u);
  second.emplace(Kind("a"));
  EXPECT_EQ(third.CountTaken(), 3u);
}

TEST(Seat, AProcessThatIsKilledGivesItsOwnBack) {
  const std::string kind = Kind("killed");
  const Seat mine(kind);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Seat seat(kind);
    (void)!write(ready[1], "x", 1);
    for (;;) pause();
  }
  char said = 0;
  ASSERT_EQ(read(ready[0], &said, 1), 1);
  EXPECT_EQ(mine.CountTaken(), 2u);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(mine.CountTaken(), 1u);
}

TEST(Seat, WhereAllAreTakenOneMoreCountsItself) {
  std::deque<Seat> seats;
  while (seats.size() < Seat::kSeats + 2) seats.emplace_back(Kind("full"));
  EXPECT_EQ(seats.front().CountTaken(), Seat::kSeats);
  EXPECT_EQ(seats.back().CountTaken(), Seat::kSeats + 1);
}

}  // namespace
}  // namespace pinstripe
