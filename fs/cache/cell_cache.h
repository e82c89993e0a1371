// CellCache: cells of stripes that were read and verified, kept for whoever reads them next; one
// for all files of a FileSystem. A cell is named by its stripe and where in the block it begins. As
// a stripe never changes, what is found is never stale. Single pages of cells that are read here
// and there are kept in the same manner.
//
// It has no size of its own: it fills what the memory budget leaves, and gives back when asked
// (Evict). Large files that are read once do not drive out what is used again and again. That is 2Q
// (Johnson and Shasha, VLDB 1994). A new cell goes through a first-in-first-out queue. Being found
// there does not count, as somebody who reads in small pieces finds it many times. The cache
// remembers the names of cells that have left it. A cell that is asked for again after it has left
// comes among the frequent ones. These are a FIFO as well, in which a cell that was found gets
// another round (as in S3-FIFO, Yang et al., SOSP 2023): so to find something changes no list.
//
// Thread-safe. Cells of one block are in one of several parts, each with its own lock.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct CellKey {
  StripeId stripe;
  uint32_t offset = 0;   // of the cell's first byte in the block
  bool is_page = false;  // a page of a cell, which is not there as a whole

  uint64_t Hash() const;
  uint64_t BlockHash() const;
  friend bool operator==(const CellKey& a, const CellKey& b) {
    return a.offset == b.offset && a.is_page == b.is_page && a.stripe.object == b.stripe.object &&
           a.stripe.block == b.stripe.block && a.stripe.write == b.stripe.write;
  }
};

struct CellKeyHash {
  size_t operator()(const CellKey& key) const { return key.Hash(); }
};

// About what a cell costs beyond its bytes.
inline constexpr uint64_t kCellOverhead = 320;

class CellCache {
 public:
  explicit CellCache(MemoryBudget& budget) : budget_(budget) {}

  std::optional<SharedBytes> Find(const CellKey& key, CellSums* sums = nullptr);
  // Without counting as a use.
  bool Has(const CellKey& key);

  // `bytes` keep their share of the budget with them; `alone` unless they are a part of something
  // larger that they keep in memory, too.
  void Insert(const CellKey& key, SharedBytes bytes, bool alone, const CellSums& sums = {});

  // It is damaged.
  void Erase(const CellKey& key);

  // Removes cells of about so many bytes; false when there are none. (The bytes of cells that other
  // cells of one answer, or readers, still use stay in memory until they are gone.)
  bool Evict(uint64_t bytes);

  uint64_t bytes() const { return bytes_; }

 private:
  struct Cell {
    CellKey key;
    SharedBytes bytes;
    CellSums sums;
    bool alone = false;
    bool frequent = false;  // which queue it is in
    bool found = false;     // since it came, or its last round
  };
  using Queue = std::list<Cell>;
  struct Part {
    Mutex mutex;
    Queue fresh GUARDED_BY(mutex);
    Queue frequent GUARDED_BY(mutex);
    uint64_t fresh_bytes GUARDED_BY(mutex) = 0;
    uint64_t frequent_bytes GUARDED_BY(mutex) = 0;
    std::unordered_map<CellKey, Queue::iterator, CellKeyHash> cells GUARDED_BY(mutex);
    std::deque<uint64_t> left
        GUARDED_BY(mutex);  // hashes of the cells that left `fresh` lately, in that order
    std::unordered_set<uint64_t> left_set GUARDED_BY(mutex);
  };
  static constexpr size_t kParts = 16;

  Part& PartOf(const CellKey& key) { return parts_[key.BlockHash() % kParts]; }
  uint64_t EvictFrom(Part& part, uint64_t bytes);
  // To where its memory goes when the lock is gone: its size.
  uint64_t TakeOut(Part& part, Queue::iterator cell, Queue& to) REQUIRES(part.mutex);
  void GiveAnotherRound(Part& part) REQUIRES(part.mutex);
  static void Remember(Part& part, uint64_t hash) REQUIRES(part.mutex);

  MemoryBudget& budget_;
  std::array<Part, kParts> parts_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<size_t> next_ = 0;  // where to evict from next
};

// Gives these bytes a share of the budget, together, for as long as anybody refers to any of them.
void AttachShare(std::span<SharedBytes> together, MemoryBudget::Share share);

}  // namespace pinstripe
