// BlockReader: reads parts of stored blocks, through the cache of cells. Cells that are not in the
// cache are asked for all at once. A reader who wants a cell that somebody else has asked for
// already, to read it or ahead of need, waits for that answer.
//
// Who reads here and there (StripeReadRequest::only_pages) is given single pages of cells, until
// some of a cell were read so: then all of it is. A local disk keeps whole cells, so where there is
// one, cells are read.
//
// Reading ahead only asks. The first reader who wants one of the cells looks at the answers, and
// then all cells that came together go to the cache. Cells that nobody has wanted yet are dropped
// when memory is short.
//
// A cell that is not in memory is looked for in the cache on a local disk, if there is one. That
// cache is offered what came from drives.
//
// Thread-safe. Only for reading files: a caller that wants to know what drives really have (repair,
// check) asks StripeStore.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "cluster/stripes/store.h"
#include "fs/cache/cell_cache.h"
#include "fs/cache/disk_cache.h"
#include "fs/turn.h"

namespace pinstripe {

class BlockReader {
  struct Flight;

 public:
  // Sets what `budget` reclaims.
  BlockReader(Runtime& runtime, StripeStore& stripes, MemoryBudget& budget,
              std::unique_ptr<DiskCache> disk);
  ~BlockReader();

  // Gives a share for data under way. May wait.
  using Reserve = std::function<MemoryBudget::Share(uint64_t bytes)>;

  // As StripeStore::ReadMany. `meanwhile` is called once, when everything has been asked for and
  // before anybody waits. Pages of which the sum is told are compared with it where they were
  // copied to. A cell that turns out to be damaged is dropped, and read anew.
  Status Read(std::span<const StripeReadRequest> requests, const Reserve& reserve,
              const std::function<void()>& meanwhile = {});

  // Keeps what a small stripe was just written with, as if somebody had read it: an append reads it
  // next, and so do programs that look at what they wrote. `data` is all that was stored.
  void Keep(const StripeId& id, const StripeLayout& layout, Bytes data);

  // The cells that one reader has asked for ahead of need. Dropped with it, unless others want it
  // by then.
  class Ahead {
   public:
    explicit Ahead(BlockReader& reader) : reader_(reader) {}
    ~Ahead();
    Ahead(const Ahead&) = delete;
    Ahead& operator=(const Ahead&) = delete;

   private:
    friend class BlockReader;
    BlockReader& reader_;
    Mutex mutex_;
    std::vector<std::weak_ptr<Flight>> flights_ GUARDED_BY(mutex_);
  };

  // Asks for the cells of `part` that are neither here nor asked for, and does not wait. False:
  // there is no memory for it now.
  bool ReadAhead(const StripePart& part, Ahead& ahead);

  struct Counters {
    uint64_t hits = 0;    // cells, and single pages of others, that were found in the cache
    uint64_t misses = 0;  // cells read from drives because they were wanted
    uint64_t shared = 0;  // wanted cells that were on their way already
    uint64_t ahead = 0;   // cells asked for before
  };
  Counters counters() const;
  uint64_t cached_bytes() const { return cache_.bytes(); }
  DiskCacheCounters disk() const;

 private:
  struct Cell {
    SharedBytes bytes;
    CellSums sums;
  };
  // A cell, or a page of one, that is wanted for a request.
  struct Want {
    CellKey key;
    uint64_t end = 0;
    const StripeReadRequest* request = nullptr;
    std::shared_ptr<Flight> flight;
    std::optional<Cell> cell;  // or itself

    uint64_t memory_bytes() const { return end - key.offset + kCellOverhead; }
  };
  // Cells that were asked for together. The holder of a flight's turn waits for drives alone, so it
  // may be taken while another turn is held; of two flights', one is free.
  struct Flight {
    struct OnDisk {
      CellKey key;
      uint64_t bytes = 0;
    };
    explicit Flight(Runtime& runtime) : turn(runtime) {}
    Turn turn;
    // Under the turn.
    bool done = false;
    Status status;
    std::vector<StripePart> parts;  // from drives
    std::vector<OnDisk> on_disk;    // from the local one
    MemoryBudget::Share share;
    std::unique_ptr<StripeStore::PendingRead> pending;
    std::unordered_map<CellKey, Cell, CellKeyHash> cells;
    // Guarded by the reader's mutex_.
    std::vector<CellKey> keys;
    uint64_t ahead_bytes = 0;  // as long as nobody wants any of it
    Time asked_at{};
    std::list<std::shared_ptr<Flight>>::iterator in_ahead;
  };

  std::vector<Want> LookUp(std::span<const StripeReadRequest> requests);
  std::optional<Cell> FindInCache(const CellKey& key);
  bool Deliver(const CellKey& key, const Cell& cell, const StripeReadRequest& request);
  bool ReadsPages(const StripeReadRequest& request, const StripeLayout::Cell& cell);
  bool Join(std::vector<Want>& wants, const std::shared_ptr<Flight>& own, bool share);
  void Start(Flight& flight);
  void Finish(const std::shared_ptr<Flight>& flight);
  void Keep(Flight& flight);
  void ReadFromDisk(Flight& flight);
  bool IsOnDisk(const CellKey& key, uint64_t end) const;
  void Forget(const std::shared_ptr<Flight>& flight) REQUIRES(mutex_);
  void NoLongerAhead(Flight& flight) REQUIRES(mutex_);
  bool AheadIsFull(uint64_t more) const;
  bool DropAhead(Time asked_by);
  void Drop(const std::shared_ptr<Flight>& flight);

  Runtime& runtime_;
  StripeStore& stripes_;
  MemoryBudget& budget_;
  CellCache cache_;
  const std::unique_ptr<DiskCache> disk_;  // null: there is none

  mutable Mutex mutex_;
  std::unordered_map<CellKey, std::shared_ptr<Flight>, CellKeyHash> flights_
      GUARDED_BY(mutex_);  // not done yet
  std::list<std::shared_ptr<Flight>> ahead_
      GUARDED_BY(mutex_);                        // those that nobody wants yet, the oldest first
  uint64_t ahead_bytes_ GUARDED_BY(mutex_) = 0;  // of these

  std::atomic<uint64_t> hits_ = 0;
  std::atomic<uint64_t> misses_ = 0;
  std::atomic<uint64_t> shared_ = 0;
  std::atomic<uint64_t> read_ahead_ = 0;
};

}  // namespace pinstripe
