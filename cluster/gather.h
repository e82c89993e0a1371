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
// More may be asked at any time, for instance when an answer is late. Ask, Next and the destructor
// belong to one thread; the callbacks that Ask returns may be called on any thread, also after the
// Gather is gone: then the answer is dropped. A is Result<T> or Status.

#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/runtime.h"

namespace pinstripe {

template <typename A>
class Gather {
 public:
  struct Answer {
    size_t index;  // as given to Ask
    A value;
  };

  explicit Gather(Runtime& runtime) : state_(std::make_shared<State>(runtime.NewSignal())) {}

  ~Gather() {
    std::deque<std::unique_ptr<Answer>> unwanted;  // goes after the lock
    const std::lock_guard lock(state_->mutex);
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
      const std::lock_guard lock(state->mutex);
      if (state->closed) return;
      state->arrived.push_back(std::move(answer));
      state->signal->Set();
    };
  }

  // The next answer, in the order of arrival. Null when the deadline came first, or when nothing
  // that was asked is unanswered.
  std::unique_ptr<Answer> Next(Time deadline) {
    while (outstanding_ > 0) {
      if (auto answer = TakeArrived()) {
        --outstanding_;
        return answer;
      }
      if (!state_->signal->WaitUntil(deadline)) {
        auto answer = TakeArrived();  // it may have come at the last moment
        if (answer) --outstanding_;
        return answer;
      }
    }
    return nullptr;
  }

  // Questions whose answers Next() did not return yet.
  size_t outstanding() const { return outstanding_; }

 private:
  struct State {
    explicit State(std::shared_ptr<Signal> signal_in) : signal(std::move(signal_in)) {}
    const std::shared_ptr<Signal> signal;
    std::mutex mutex;
    std::deque<std::unique_ptr<Answer>> arrived;  // guarded by mutex
    bool closed = false;                          // guarded by mutex
  };

  std::unique_ptr<Answer> TakeArrived() {
    const std::lock_guard lock(state_->mutex);
    if (state_->arrived.empty()) return nullptr;
    auto first = std::move(state_->arrived.front());
    state_->arrived.pop_front();
    return first;
  }

  const std::shared_ptr<State> state_;  // shared with late answers
  size_t outstanding_ = 0;
};

}  // namespace pinstripe
