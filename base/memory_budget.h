// MemoryBudget: how many bytes something may hold, and how many it does. A user of memory takes a
// share of the budget and keeps it for as long as the memory:
//
//   MemoryBudget budget(1 << 30);
//   std::optional<MemoryBudget::Share> share = budget.TryTake(buffer.size());
//   if (!share) ...                                // wait, do without, or TakeAnyway()
//
// It counts, and decides only whether there is room. Its user waits, and can watch for bytes that
// come back. Before it says that there is no room, it asks `reclaim` for what is kept only because
// there was room (a cache).
//
// Thread-safe. Shares may outlive the budget.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class MemoryBudget {
  struct State;

 public:
  // Bytes that count until it is gone. One thread at a time.
  class Share {
   public:
    Share() = default;  // of nothing
    ~Share() { Return(); }
    Share(Share&& other) noexcept
        : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      Return();
      state_ = std::move(other.state_);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }

    uint64_t bytes() const { return bytes_; }
    // A part of it (at most all) as a share of its own.
    Share Split(uint64_t bytes);
    void Return();

   private:
    friend class MemoryBudget;
    Share(std::shared_ptr<State> state, uint64_t bytes) : state_(std::move(state)), bytes_(bytes) {}
    std::shared_ptr<State> state_;
    uint64_t bytes_ = 0;
  };

  explicit MemoryBudget(uint64_t limit);

  // Frees about so many bytes at once, without waiting, and says whether it freed any. Called
  // without a lock, on the threads of those who take. Set before the first of them.
  void SetReclaim(std::function<bool(uint64_t bytes)> reclaim) { reclaim_ = std::move(reclaim); }

  // Null: there is no room. When nothing at all is in use there is room for anything, so that a
  // user who needs more than the whole budget can go on, alone.
  std::optional<Share> TryTake(uint64_t bytes);
  // As TryTake(), but leaves alone what could be reclaimed: for what is not worth it.
  std::optional<Share> TryTakeUnused(uint64_t bytes);
  // For what must go on, and is bounded otherwise: may exceed the limit. Reclaims nothing, so that
  // `reclaim` may call it.
  Share TakeAnyway(uint64_t bytes);

  uint64_t used() const;
  uint64_t limit() const;
  // Memory over a lower limit is reclaimed as far as that can be done at once.
  void SetLimit(uint64_t limit);
  void ReclaimExcess();

  // From now on somebody's memory can be had back, by reclaiming it or by asking him. Those who
  // watch should look again.
  void NoteChange();

  // Sets a signal whenever bytes came back, the limit was raised, or there was a change as above,
  // while it exists: TryTake(), and wait for the signal if that fails.
  class Watch {
   public:
    Watch(MemoryBudget& budget, std::shared_ptr<Signal> signal);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    const std::shared_ptr<State> state_;
    const std::shared_ptr<Signal> signal_;
  };

 private:
  struct State {
    mutable Mutex mutex;
    uint64_t limit GUARDED_BY(mutex) = 0;
    uint64_t used GUARDED_BY(mutex) = 0;
    std::vector<std::shared_ptr<Signal>> watchers GUARDED_BY(mutex);

    bool HasRoom(uint64_t bytes) const REQUIRES(mutex) {
      return used == 0 || (bytes <= limit && used <= limit - bytes);
    }
    void WakeWatchers() REQUIRES(mutex);
  };

  const std::shared_ptr<State> state_;
  std::function<bool(uint64_t)> reclaim_;
};

}  // namespace pinstripe
