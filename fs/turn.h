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

#include "base/runtime.h"

namespace pinstripe {

class Turn {
 public:
  explicit Turn(Runtime& runtime) : runtime_(runtime) {}

  class Holder {
   public:
    explicit Holder(Turn& turn) : turn_(turn) { turn_.Take(); }
    ~Holder() { turn_.Give(); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    Turn& turn_;
  };

 private:
  struct Waiter {
    std::shared_ptr<Signal> signal;
    bool has_turn = false;
  };

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
