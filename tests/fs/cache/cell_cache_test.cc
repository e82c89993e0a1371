// The cache of verified cells: what is used again stays, what is read once goes.

#include "fs/cache/cell_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace pinstripe {
namespace {

constexpr uint64_t kCell = 1000;
constexpr uint64_t kCost = kCell + kCellOverhead;

CellKey Key(uint64_t block, uint32_t offset = 0) { return {{7, block, {}}, offset}; }

// As a reader uses it: what is not there is brought, and put there.
class Reader {
 public:
  explicit Reader(uint64_t cells) : budget_(cells * kCost) {
    budget_.SetReclaim([this](uint64_t bytes) { return cache_.Evict(bytes); });
  }

  // Whether it was there.
  bool Read(uint64_t block) {
    if (const auto found = cache_.Find(Key(block))) {
      EXPECT_EQ(found->text(), std::string(kCell, static_cast<char>(block)));
      return true;
    }
    auto share = budget_.TryTake(kCost);
    EXPECT_TRUE(share);
    SharedBytes bytes(std::string(kCell, static_cast<char>(block)));
    AttachShare({&bytes, 1}, *std::move(share));
    cache_.Insert(Key(block), bytes, true);
    return false;
  }

  MemoryBudget budget_;
  CellCache cache_{budget_};
};

TEST(CellCache, KeepsSumsBesideTheBytes) {
  Reader reader(10);
  CellSums sums;
  sums.Set(3, 77);
  reader.cache_.Insert(Key(1), SharedBytes(std::string(kCell, 'x')), true, sums);
  CellSums found;
  ASSERT_TRUE(reader.cache_.Find(Key(1), &found));
  EXPECT_EQ(found.Of(3), 77u);
  EXPECT_EQ(found.Of(2), std::nullopt);
}

TEST(CellCache, WhatIsErasedIsGone) {
  Reader reader(4);
  for (uint64_t block : {1, 2, 3, 4, 5, 6, 1, 2}) reader.Read(block);  // some come again
  for (uint64_t block = 1; block <= 6; ++block) reader.cache_.Erase(Key(block));
  EXPECT_FALSE(reader.cache_.Has(Key(1)));
  EXPECT_EQ(reader.cache_.bytes(), 0u);
  EXPECT_EQ(reader.budget_.used(), 0u);
  EXPECT_FALSE(reader.Read(1));
  EXPECT_TRUE(reader.Read(1));
}

TEST(CellCache, FindsWhatWasPutThere) {
  Reader reader(10);
  EXPECT_FALSE(reader.Read(1));
  EXPECT_TRUE(reader.Read(1));
  EXPECT_FALSE(reader.cache_.Find(Key(1, 65536)));
  EXPECT_FALSE(reader.cache_.Find({{7, 1, {1}}, 0}));  // another write of the block
  EXPECT_EQ(reader.cache_.bytes(), kCell);
  EXPECT_EQ(reader.budget_.used(), kCost);
}

TEST(CellCache, GivesEverythingBackWhenAsked) {
  Reader reader(100);
  for (uint64_t block = 0; block < 50; ++block) reader.Read(block);
  const SharedBytes in_use = *reader.cache_.Find(Key(3));
  EXPECT_TRUE(reader.cache_.Evict(UINT64_MAX));
  EXPECT_FALSE(reader.cache_.Evict(1));
  EXPECT_EQ(reader.cache_.bytes(), 0u);
  EXPECT_EQ(reader.budget_.used(), kCost);  // of what somebody still uses
  EXPECT_EQ(in_use.text(), std::string(kCell, 3));
}

// Whose working set fits finds nearly all of it, in spite of somebody who reads a large file, in
// small pieces, once.
TEST(CellCache, AScanDoesNotDriveOutWhatIsUsed) {
  constexpr uint64_t kCells = 1000;
  constexpr uint64_t kWorkingSet = 300;
  Reader reader(kCells);
  uint64_t scanned = 1'000'000;
  const auto round = [&] {
    uint64_t hits = 0;
    for (uint64_t block = 0; block < kWorkingSet; ++block) {
      hits += reader.Read(block);
      for (int i = 0; i < 5; ++i, ++scanned) {
        for (int piece = 0; piece < 16; ++piece) EXPECT_EQ(reader.Read(scanned), piece > 0);
      }
    }
    return hits;
  };
  round();
  round();
  for (int i = 0; i < 5; ++i) EXPECT_GT(round(), kWorkingSet * 9 / 10);
  EXPECT_LE(reader.budget_.used(), kCells * kCost);
}

// And the working set may change.
TEST(CellCache, WhatIsNotUsedAnyMoreGoes) {
  Reader reader(200);
  for (uint64_t set = 0; set < 5; ++set) {
    uint64_t hits = 0;
    for (int round = 0; round < 20; ++round) {
      for (uint64_t block = 0; block < 120; ++block) {
        hits += reader.Read(set * 1000 + block);
        reader.Read(1'000'000 * (set + 1) + static_cast<uint64_t>(round) * 1000 + block);
      }
    }
    EXPECT_GT(hits, 120u * 20 / 2) << "set " << set;
  }
}

// Cells of one answer share its memory, so that nothing is copied; who stays while the others go
// takes no more than a cell.
TEST(CellCache, ACellDoesNotKeepItsNeighbours) {
  MemoryBudget budget(UINT64_MAX);
  CellCache cache(budget);
  constexpr uint32_t kTogether = 16;
  const auto answer = [&](uint64_t block) {
    const SharedBytes whole(std::string(kTogether * kCell, static_cast<char>(block)));
    std::vector<SharedBytes> cells;
    for (uint32_t i = 0; i < kTogether; ++i) cells.push_back(whole.Slice(i * kCell, kCell));
    AttachShare(cells, *budget.TryTake(kTogether * kCost));
    for (uint32_t i = 0; i < kTogether; ++i) cache.Insert(Key(block, i), cells[i], false);
  };
  for (int round = 0; round < 2; ++round) {
    for (uint64_t block = 0; block < 100; ++block) answer(block);
    if (round == 0) cache.Evict(UINT64_MAX);
  }
  EXPECT_EQ(budget.used(), 100 * kTogether * kCost);
  // One cell of each is used all the time, until nothing else is left.
  for (int i = 0; i < 190; ++i) {
    for (uint64_t block = 0; block < 100; ++block) cache.Find(Key(block, 5));
    cache.Evict(8 * kCost);
  }
  uint64_t left = 0;
  for (uint64_t block = 0; block < 100; ++block) left += cache.Has(Key(block, 5));
  EXPECT_GT(left, 0u);
  // What goes next may be in the middle of an answer, in each of the cache's 16 parts.
  EXPECT_LE(budget.used(), cache.bytes() / kCell * kCost + 16 * kTogether * kCost);
}

TEST(CellCache, ManyThreadsMayUseIt) {
  Reader reader(50);
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] {
      uint64_t x = seed;
      for (int i = 0; i < 20'000; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (const auto found = reader.cache_.Find(Key(x >> 57))) {
          EXPECT_EQ((*found).text()[0], static_cast<char>(x >> 57));
        } else if (auto share = reader.budget_.TryTake(kCost)) {
          SharedBytes bytes(std::string(kCell, static_cast<char>(x >> 57)));
          AttachShare({&bytes, 1}, *std::move(share));
          reader.cache_.Insert(Key(x >> 57), bytes, true);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(reader.budget_.used(), 50 * kCost);
  reader.cache_.Evict(UINT64_MAX);
  EXPECT_EQ(reader.budget_.used(), 0u);
}

}  // namespace
}  // namespace pinstripe
