// ValueBudget: how many bytes of values a daemon may have under way, over all connections: those
// that it receives, executes and sends.
//
// A connection that is to receive a large value takes room for it before, or waits in the order of
// coming; a value that is larger than all of the budget has its turn when nothing else is under
// way. What is under way already only counts. So nobody waits for room while it has some that
// others wait for, and what takes room always comes back.
//
// Thread-safe. Outlives the shares.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace pinstripe {

class ValueBudget {
 public:
  // Room that was given, until it is gone. One thread at a time.
  class Share {
   public:
    Share() = default;  // of nothing
    ~Share() { Return(); }
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      Return();
      budget_ = std::exchange(other.budget_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    uint64_t bytes() const { return bytes_; }
    void Return() {
      if (budget_ != nullptr) std::exchange(budget_, nullptr)->Subtract(std::exchange(bytes_, 0));
    }

   private:
    friend class ValueBudget;
    Share(ValueBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ValueBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // Called once, on any thread, inside whatever gave room back; takes no locks that its caller may
  // have.
  using Granted = std::function<void(std::shared_ptr<Share>)>;

  explicit ValueBudget(uint64_t limit) : limit_(limit) {}

  // The room at once; or a share of nothing, and `granted` is called with it when it is there.
  // `who` waits for one thing at a time.
  Share TakeOrWait(const void* who, uint64_t bytes, Granted granted);

  // It does not wait any more; what is being granted at this moment still is.
  void Forget(const void* who);

  // What is under way already.
  void Add(uint64_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void Subtract(uint64_t bytes);

  uint64_t limit() const { return limit_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  bool exhausted() const { return used() >= limit_; }
  size_t waiting() const { return waiting_count_.load(); }
  bool is_wanted() const { return waiting_count_.load() > 0; }  // somebody waits

 private:
  struct Waiting {
    const void* who;
    uint64_t bytes;
    Granted granted;
  };
  bool TryToTake(uint64_t bytes);

  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
  std::atomic<size_t> waiting_count_ = 0;  // of waiting_
  Mutex mutex_;
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
