// Turn: one at a time, for work that waits. Where a mutex guards memory for moments, a turn is held
// through whole conversations with the cluster; who comes meanwhile waits, through the Runtime, in
// the order of coming. A turn is never taken while a mutex is held, or another turn, unless that
// one says so.
//
//   const Turn::Holder turn(turn_);

#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/runtime.h"

namespace pinstripe {

class Turn {
 public:
  explicit Turn(Runtime& runtime) : runtime_(runtime) {}

  class Holder {
   public:
    explicit Holder(Turn& turn) : turn_(turn) { turn_.Take(); }
    // Without waiting.
    Holder(Turn& turn, std::try_to_lock_t) : turn_(turn), holds_(turn.TryTake()) {}
    ~Holder() {
      if (holds_) turn_.Give();
    }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

    bool holds() const { return holds_; }

   private:
    Turn& turn_;
    const bool holds_ = true;
  };

 private:
  struct Waiter {
    std::shared_ptr<Signal> signal;
    bool has_turn = false;
  };

  bool TryTake() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(taken_, true);
  }

  void Take() {
    Waiter self;
    {
      const std::lock_guard lock(mutex_);
      if (!taken_) {
        taken_ = true;
        return;
      }
      self.signal = runtime_.NewSignal();
      waiters_.push_back(&self);
    }
    while (true) {
      self.signal->WaitUntil(Time::max());
      const std::lock_guard lock(mutex_);
      if (self.has_turn) return;
    }
  }

  void Give() {
    const std::lock_guard lock(mutex_);
    if (waiters_.empty()) {
      taken_ = false;
      return;
    }
    Waiter& next = *waiters_.front();
    waiters_.pop_front();
    next.has_turn = true;
    const std::shared_ptr<Signal> signal = next.signal;  // `next` ends as soon as its thread runs
    signal->Set();
  }

  Runtime& runtime_;
  std::mutex mutex_;
  bool taken_ = false;           // guarded by mutex_
  std::deque<Waiter*> waiters_;  // guarded by mutex_
};

}  // namespace pinstripe
