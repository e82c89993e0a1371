// Gather: ask many drives, take their answers as they come, stop when there are enough. The one
// seam where asynchronous becomes blocking.
//
//   Gather<Result<Record>> gather(runtime);
//   for (size_t i = 0; i < drives.size(); ++i) drives[i]->Get(key, {}, until, gather.Ask(i));
//   while (auto answer = gather.Next(deadline)) {
//     if (answer->value.has_value()) ++good;
//     if (good == needed) break;                 // what comes later is dropped
//   }
//
// A caller that needs several answers says so to Next, and is woken once, not for each: to wake a
// thread costs more than most answers do.
//
// More may be asked at any time, for instance when an answer is late. Ask, Next and the destructor
// belong to one thread; the callbacks that Ask returns may be called on any thread, also after the
// Gather is gone: then the answer is dropped. A is Result<T> or Status.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/operation_trace.h"
#include "base/runtime.h"

namespace pinstripe {

template <typename A>
class Gather {
 public:
  struct Answer {
    size_t index;  // as given to Ask
    A value;
  };

  explicit Gather(Runtime& runtime)
      : runtime_(runtime), state_(std::make_shared<State>(runtime.NewSignal())) {}

  ~Gather() {
    std::deque<std::unique_ptr<Answer>> unwanted;  // goes after the lock
    const MutexLock lock(state_->mutex);
    state_->closed = true;
    unwanted.swap(state_->arrived);
  }

  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;

  // Where the answer to one more question goes. It is called once.
  std::function<void(A)> Ask(size_t index) {
    ++outstanding_;
    return [state = state_, index](A value) {
      auto answer = std::make_unique<Answer>(Answer{index, std::move(value)});
      {
        const MutexLock lock(state->mutex);
        if (state->closed) return;
        state->arrived.push_back(std::move(answer));
        if (state->awaited == 0 || state->arrived.size() < state->awaited) return;
        state->awaited = 0;
      }
      state->signal->Set();  // who wakes up finds the lock free
    };
  }

  // The next answer, in the order of arrival. Null when the deadline came first, or when nothing
  // that was asked is unanswered. Until `patience` is over it waits for `together` answers, or for
  // all that are left, before it returns the first of them.
  std::unique_ptr<Answer> Next(Time deadline, size_t together = 1, Time patience = Time::max()) {
    while (outstanding_ > 0) {
      size_t awaited = std::min(together, outstanding_);
      if (awaited > 1 && runtime_.Now() >= patience) awaited = 1;
      if (auto answer = TakeArrived(awaited)) return answer;
      const Time until = awaited > 1 ? std::min(deadline, patience) : deadline;
      const OperationTrace::Waiting waiting(runtime_, OperationTrace::Wait::kDrives, asked_by_);
      if (!state_->signal->WaitUntil(until) && until == deadline) {
        return TakeArrived(1);  // it may have come at the last moment
      }
    }
    return nullptr;
  }

  // One that has come already.
  std::unique_ptr<Answer> TakeIfThere() { return outstanding_ > 0 ? TakeArrived(1) : nullptr; }

  // Questions whose answers Next() did not return yet.
  size_t outstanding() const { return outstanding_; }

 private:
  struct State {
    explicit State(std::shared_ptr<Signal> signal_in) : signal(std::move(signal_in)) {}
    const std::shared_ptr<Signal> signal;
    Mutex mutex;
    std::deque<std::unique_ptr<Answer>> arrived GUARDED_BY(mutex);
    bool closed GUARDED_BY(mutex) = false;
    // How many have to be there before the waiter is woken; 0: it does not wait.
    size_t awaited GUARDED_BY(mutex) = 0;
  };

  // Null unless `least` of them are there; then the next Set() comes when they are.
  std::unique_ptr<Answer> TakeArrived(size_t least) {
    const MutexLock lock(state_->mutex);
    state_->awaited = least;
    if (state_->arrived.size() < least) return nullptr;
    state_->awaited = 0;
    auto first = std::move(state_->arrived.front());
    state_->arrived.pop_front();
    --outstanding_;
    return first;
  }

  Runtime& runtime_;
  const std::shared_ptr<State> state_;  // shared with late answers
  const uint64_t asked_by_ = OperationTrace::CurrentId();
  size_t outstanding_ = 0;
};

}  // namespace pinstripe
