// Which bytes will be wanted next, guessed from those that were.

#include "fs/files/read_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace pinstripe {
namespace {

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kMiB = 1 << 20;

// Reads, and notes what is guessed.
class Reader {
 public:
  // Whether all of it was guessed before.
  bool Read(uint64_t offset, uint64_t size) {
    bool known = true;
    for (uint64_t at = offset / kCell; at <= (offset + size - 1) / kCell; ++at) {
      known &= guessed_.contains(at);
      read_.insert(at);
    }
    for (const ReadPattern::Range& range : pattern_.Read(offset, size)) {
      EXPECT_GT(range.size, 0u);
      for (uint64_t at = range.offset / kCell; at <= (range.offset + range.size - 1) / kCell;
           ++at) {
        guessed_.insert(at);
      }
    }
    return known;
  }

  // Bytes that came from drives: each cell once.
  uint64_t Fetched() const {
    std::set<uint64_t> all = read_;
    all.insert(guessed_.begin(), guessed_.end());
    return all.size() * kCell;
  }
  uint64_t Wanted() const { return read_.size() * kCell; }

  ReadPattern pattern_;

 private:
  static constexpr uint64_t kCell = 64 * kKiB;
  std::set<uint64_t> read_;
  std::set<uint64_t> guessed_;
};

TEST(ReadPattern, WhoReadsOnIsGuessedAhead) {
  for (const uint64_t size : {4 * kKiB, 128 * kKiB, kMiB, 2 * kMiB}) {
    Reader reader;
    uint64_t known = 0;
    for (uint64_t at = 0; at < 64 * kMiB; at += size) known += reader.Read(at, size) ? size : 0;
    EXPECT_GT(known, 60 * kMiB) << size;
  }
}

// In the middle of a file as well, but not before there is a second read.
TEST(ReadPattern, ASingleReadIsNoPattern) {
  ReadPattern pattern;
  EXPECT_TRUE(pattern.Read(10 * kMiB, kMiB).empty());
  EXPECT_TRUE(pattern.Read(20 * kMiB, kMiB).empty());
  EXPECT_FALSE(pattern.Read(21 * kMiB, kMiB).empty());
}

// Or at the beginning of a file, as xrdcp does.
TEST(ReadPattern, ALargeFirstReadWantsTheWholeFile) {
  ReadPattern pattern;
  const std::vector<ReadPattern::Range> expected = {{kMiB, kMiB}};
  EXPECT_EQ(pattern.Read(0, kMiB), expected);
  ReadPattern small;
  EXPECT_TRUE(small.Read(0, 4 * kKiB).empty());
}

TEST(ReadPattern, TheGuessDoublesUpToItsLimit) {
  ReadPattern pattern;
  uint64_t end = 0;
  uint64_t most = 0;
  for (uint64_t at = 0; at < 64 * kMiB; at += kMiB) {
    for (const ReadPattern::Range& range : pattern.Read(at, kMiB)) {
      EXPECT_EQ(range.offset, std::max(end, at + kMiB));
      EXPECT_EQ((range.offset + range.size) % kMiB, 0u);
      end = range.offset + range.size;
    }
    EXPECT_LE(end - std::min(end, at + kMiB), at + kMiB);  // no more than was read
    most = std::max(most, end - std::min(end, at + kMiB));
  }
  EXPECT_EQ(most, ReadPattern::kMostAhead);
}

TEST(ReadPattern, SeveralReadersOfOneHandleAndRequestsThatOvertakeEachOther) {
  Reader reader;
  uint64_t known = 0;
  for (uint64_t at = 0; at < 32 * kMiB; at += 512 * kKiB) {
    for (uint64_t start : {0 * kMiB, 100 * kMiB, 200 * kMiB, 300 * kMiB}) {
      const uint64_t swapped = at / (512 * kKiB) % 4 == 2   ? at + 512 * kKiB
                               : at / (512 * kKiB) % 4 == 3 ? at - 512 * kKiB
                                                            : at;
      known += reader.Read(start + swapped, 512 * kKiB);
    }
  }
  EXPECT_GT(known, 4u * 64 * 9 / 10);
}

TEST(ReadPattern, EqualStepsForwardAndBack) {
  for (const bool back : {false, true}) {
    Reader reader;
    int known = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      const uint64_t at = (back ? 99 - i : i) * 3 * kMiB + 12345;
      known += reader.Read(at, 100 * kKiB);
    }
    EXPECT_GT(known, 90);
    EXPECT_LE(reader.Fetched(), reader.Wanted() * 2);  // no more ahead than was read
  }
}

// Here and there, in pieces of any size, in files of any size; also with some pages read in a row,
// as in a file of records that are larger than the reader's buffer.
// A file may be sparse, and end at 2^63 - 1.
TEST(ReadPattern, StepsAreGuessedToTheEndsOfAFileAndNotBeyond) {
  constexpr uint64_t kStep = uint64_t{1} << 60;
  for (const bool forward : {true, false}) {
    ReadPattern pattern;
    for (uint64_t i = 0; i < 8; ++i) {
      for (const auto& [offset, size] : pattern.Read((forward ? i : 7 - i) * kStep, 4096)) {
        EXPECT_EQ(offset % kStep, 0u);
        EXPECT_LT(offset, uint64_t{1} << 63);
        EXPECT_EQ(size, 4096u);
      }
    }
  }
}

TEST(ReadPattern, ReadsHereAndThereCostATenthMoreAtMost) {
  for (const uint64_t file : {4 * kMiB, 64 * kMiB, 4096 * kMiB}) {
    for (const uint64_t size : {4 * kKiB, 64 * kKiB, 300 * kKiB}) {
      for (const uint64_t in_a_row : {1, 2, 3, 5}) {
        std::mt19937_64 random(file + size + in_a_row);
        Reader reader;
        uint64_t asked = 0;
        uint64_t guessed = 0;
        for (int i = 0; i < 3000; ++i) {
          uint64_t at = random() % (file - in_a_row * size);
          for (uint64_t j = 0; j < in_a_row; ++j, at += size) {
            for (const auto& range : reader.pattern_.Read(at, size)) guessed += range.size;
            asked += size;
          }
        }
        // What was guessed and then read is no waste, so this is more than is promised.
        EXPECT_LE(guessed, asked * (in_a_row + 1) / in_a_row / 10 + asked * (in_a_row - 1) +
                               8 * ReadPattern::kTrust)
            << file << " " << size << " " << in_a_row;
        if (in_a_row == 1 && file > 64 * kMiB) {
          EXPECT_LE(guessed, asked / 10 + ReadPattern::kTrust) << size;
        }
      }
    }
  }
}

TEST(ReadPattern, WhatWasRefusedIsGuessedAgainLater) {
  ReadPattern pattern;
  pattern.Read(0, kMiB);
  const auto guess = pattern.Read(kMiB, kMiB);
  ASSERT_FALSE(guess.empty());
  pattern.Refused(guess.front().offset);
  const auto again = pattern.Read(2 * kMiB, kMiB);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().offset, 3 * kMiB);
}

TEST(ReadPattern, SmallReadsHereAndThereAreKnownAfterSome) {
  ReadPattern pattern;
  constexpr uint64_t kPage = 4096;
  uint64_t at = 7 << 20;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(pattern.IsScattered(at, kPage)) << i;
    pattern.Read(at, kPage);
    at = at * 5 % (1 << 30) / kPage * kPage;
  }
  EXPECT_TRUE(pattern.IsScattered(at, kPage));
  EXPECT_FALSE(pattern.IsScattered(at, 64 << 10)) << "that is not small";
  pattern.Read(at, kPage);
  EXPECT_FALSE(pattern.IsScattered(at + kPage, kPage)) << "that goes on";
  // One that goes on by chance changes nothing, and several do.
  for (int i = 0; i < 20; ++i) pattern.Read((uint64_t{1} << 30) + i * i * (3 << 20), kPage);
  at = 3 << 20;
  pattern.Read(at, kPage);
  pattern.Read(at + kPage, kPage);
  EXPECT_TRUE(pattern.IsScattered(2 << 20, kPage));
  for (int i = 2; i < 6; ++i) pattern.Read(at + i * kPage, kPage);
  EXPECT_FALSE(pattern.IsScattered(2 << 20, kPage));
}

TEST(ReadPattern, WhoReadsOnOrInStepsDoesNotReadHereAndThere) {
  ReadPattern forward;
  ReadPattern steps;
  ReadPattern pairs;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(forward.IsScattered(i * 4096, 4096));
    forward.Read(i * 4096, 4096);
    EXPECT_FALSE(steps.IsScattered(i << 21, 4096));
    steps.Read(i << 21, 4096);
    const uint64_t at = (i * i) << 22;
    EXPECT_FALSE(pairs.IsScattered(at, 4096));
    pairs.Read(at, 4096);
    EXPECT_FALSE(pairs.IsScattered(at + 4096, 4096));
    pairs.Read(at + 4096, 4096);
  }
}

}  // namespace
}  // namespace pinstripe
