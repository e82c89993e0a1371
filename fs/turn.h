// Turn: one at a time, for work that waits. Where a mutex guards memory for moments, a turn is held
// through whole conversations with the cluster; a thread that comes meanwhile waits, through the
// Runtime, in the order of coming. A turn is never taken while a mutex is held, or another turn,
// unless that one says so.
//
//   const Turn::Holder turn(turn_);

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "base/mutex.h"
#include "base/operation_trace.h"
#include "base/runtime.h"

namespace pinstripe {

class CAPABILITY("turn") Turn {
 public:
  explicit Turn(Runtime& runtime) : runtime_(runtime) {}

  class SCOPED_CAPABILITY Holder {
   public:
    explicit Holder(Turn& turn) ACQUIRE(turn) : turn_(turn) { turn_.Take(); }
    // The caller has taken it.
    Holder(Turn& turn, std::adopt_lock_t) REQUIRES(turn) : turn_(turn) {}
    ~Holder() RELEASE() { turn_.Give(); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

   private:
    Turn& turn_;
  };

  // Holder is the usual way. TryTake() does not wait.
  bool TryTake() TRY_ACQUIRE(true) {
    const MutexLock lock(mutex_);
    if (taken_) return false;
    taken_ = true;
    taken_by_ = OperationTrace::CurrentId();
    return true;
  }
  void Take() ACQUIRE();
  void Give() RELEASE();

 private:
  struct Waiter {
    std::shared_ptr<Signal> signal;
    bool has_turn = false;  // guarded by mutex_
  };

  Runtime& runtime_;
  Mutex mutex_;
  bool taken_ GUARDED_BY(mutex_) = false;
  uint64_t taken_by_ GUARDED_BY(mutex_) = 0;  // an operation; 0: by none
  std::deque<Waiter*> waiters_ GUARDED_BY(mutex_);
};

inline void Turn::Take() {
  Waiter self;
  uint64_t taken_by = 0;
  {
    const MutexLock lock(mutex_);
    if (!taken_) {
      taken_ = true;
      taken_by_ = OperationTrace::CurrentId();
      return;
    }
    self.signal = runtime_.NewSignal();
    waiters_.push_back(&self);
    taken_by = taken_by_;
  }
  const OperationTrace::Waiting waiting(runtime_, OperationTrace::Wait::kTurn, taken_by);
  while (true) {
    self.signal->WaitUntil(Time::max());
    const MutexLock lock(mutex_);
    if (!self.has_turn) continue;
    taken_by_ = OperationTrace::CurrentId();
    return;
  }
}

inline void Turn::Give() {
  const MutexLock lock(mutex_);
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

}  // namespace pinstripe
