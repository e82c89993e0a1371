#include "base/background_thread.h"

#include <utility>

namespace pinstripe {

struct BackgroundThread::State {
  State(Runtime& runtime, std::string name_in, Task body_in)
      : name(std::move(name_in)),
        body(std::move(body_in)),
        wake(runtime.NewSignal()),
        ended(runtime.NewSignal()) {}

  // Whether the thread is to go on; else it is gone for everybody.
  bool TakeWork() EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (wanted && !ending) {
      wanted = false;
      return true;
    }
    running = false;
    return false;
  }

  const std::string name;
  const Task body;
  const std::shared_ptr<Signal> wake;
  const std::shared_ptr<Signal> ended;
  mutable Mutex mutex;
  bool wanted GUARDED_BY(mutex) = false;   // there may be work that the body has not seen
  bool running GUARDED_BY(mutex) = false;  // there is a thread
  bool ending GUARDED_BY(mutex) = false;
};

BackgroundThread::BackgroundThread(Runtime& runtime, std::string name, Task body)
    : runtime_(runtime),
      state_(std::make_shared<State>(runtime, std::move(name), std::move(body))) {}

void BackgroundThread::Wake() {
  {
    const MutexLock lock(state_->mutex);
    if (state_->ending) return;
    state_->wanted = true;
    if (state_->running) {
      state_->wake->Set();
      return;
    }
    state_->running = true;
  }
  runtime_.Spawn(state_->name, [state = state_] {
    while (state->TakeWork()) state->body();
    state->ended->Set();  // from TakeWork() on, nothing but `state` need be there
  });
}

bool BackgroundThread::IsRunning() const {
  const MutexLock lock(state_->mutex);
  return state_->running;
}

bool BackgroundThread::IsEnding() const {
  const MutexLock lock(state_->mutex);
  return state_->ending;
}

bool BackgroundThread::WaitUntil(Time until) {
  for (bool in_time = true;;) {
    {
      const MutexLock lock(state_->mutex);
      if (std::exchange(state_->wanted, false) || state_->ending) return true;
    }
    if (!in_time) return false;
    in_time = state_->wake->WaitUntil(until);
  }
}

void BackgroundThread::TellToEnd() {
  {
    const MutexLock lock(state_->mutex);
    state_->ending = true;
  }
  state_->wake->Set();
}

void BackgroundThread::End() {
  TellToEnd();
  while (IsRunning()) state_->ended->WaitUntil(Time::max());
}

}  // namespace pinstripe
