#include "base/real_runtime.h"

#include <pthread.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/send_together.h"

namespace pinstripe {
namespace {

using Steady = std::chrono::steady_clock;

constexpr Duration kBeat = std::chrono::seconds(1);
constexpr Duration kLate = 2 * kBeat;

// What a thread has lost that was seen at work at `beat`, and comes round once in kBeat.
Duration LostSince(Time beat, Time now) {
  const Duration passed = now - beat;
  return passed > kLate ? passed - kBeat : Duration();
}

Steady::time_point ToSteady(Time time) {
  return Steady::time_point(std::chrono::duration_cast<Steady::duration>(time.time_since_epoch()));
}

class RealSignal final : public Signal {
 public:
  void Set() override {
    // Notifying under the lock: once the waiter has seen the signal it may destroy its last
    // reference, so nothing of this object may be touched after the lock is gone.
    const MutexLock lock(mutex_);
    set_ = true;
    changed_.WakeOne();
  }

  bool WaitUntil(Time deadline) override {
    SendTogether::SendBeforeWaiting();
    MutexLock lock(mutex_);
    bool in_time = true;
    while (!set_ && in_time) {
      if (deadline == Time::max()) {
        changed_.Wait(lock);
      } else {
        in_time = changed_.WaitUntil(lock, ToSteady(deadline));
      }
    }
    return std::exchange(set_, false);
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool set_ GUARDED_BY(mutex_) = false;
};

void NameThisThread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());  // Linux keeps 15 characters
}

}  // namespace

RealRuntime::RealRuntime()
    : timer_thread_([this] {
        NameThisThread("pin-timer");
        RunTimers();
      }) {}

RealRuntime::~RealRuntime() {
  WaitForThreads();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    tasks_changed_.WakeOne();
  }
  timer_thread_.join();
  WaitForThreads();  // which the last task may have started

  // The objects that a task holds may call us back when it is let go, so nothing is locked
  // meanwhile.
  for (std::multimap<Time, Task> dropped;; dropped.clear()) {
    const MutexLock lock(mutex_);
    if (tasks_.empty()) break;
    dropped.swap(tasks_);
  }
}

void RealRuntime::WaitForThreads() {
  std::list<std::thread> ended;
  {
    MutexLock lock(mutex_);
    while (!threads_.empty()) thread_ended_.Wait(lock);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

Time RealRuntime::Now() {
  return Time(std::chrono::duration_cast<Duration>(Steady::now().time_since_epoch()));
}

int64_t RealRuntime::WallClock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void RealRuntime::RunAt(Time when, Task task) {
  const MutexLock lock(mutex_);
  const auto added = tasks_.emplace(when, std::move(task));
  if (added == tasks_.begin()) tasks_changed_.WakeOne();
}

// A caller that asks before the timer thread has come round finds the same.
Duration RealRuntime::TimeLost() {
  const Duration lost = lost_;
  return lost + LostSince(beat_, Now());
}

void RealRuntime::RunTimers() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const Time now = Now();
    lost_ = lost_.load() + LostSince(beat_, now);
    beat_ = now;
    if (tasks_.empty() || tasks_.begin()->first > now) {
      const Time next = tasks_.empty() ? now + kBeat : tasks_.begin()->first;
      tasks_changed_.WaitUntil(lock, ToSteady(std::min(next, now + kBeat)));
    } else {
      Task task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      lock.Unlock();
      task();
      task = nullptr;  // what it holds may call us back when it is let go
      lock.Lock();
    }
  }
}

void RealRuntime::Spawn(std::string name, Task body) {
  std::list<std::thread> ended;
  {
    const MutexLock lock(mutex_);
    std::list<std::thread> started(1);
    const auto self = started.begin();
    *self = std::thread([this, self, name = std::move(name), body = std::move(body)]() mutable {
      NameThisThread(name);
      body();
      body = nullptr;
      const MutexLock lock(mutex_);
      ended_.splice(ended_.end(), threads_, self);
      thread_ended_.WakeAll();
    });
    threads_.splice(threads_.end(), started);
    ended.swap(ended_);  // only now: without a thread to start, nobody would join them
  }
  for (std::thread& thread : ended) thread.join();  // they have nothing left to do but to return
}

std::shared_ptr<Signal> RealRuntime::NewSignal() { return std::make_shared<RealSignal>(); }

uint64_t RealRuntime::Random() {
  uint64_t bits = 0;
  ssize_t got = 0;
  do {
    got = getrandom(&bits, sizeof bits, 0);  // interrupted only before the kernel's pool is ready
  } while (got < 0 && errno == EINTR);
  // Ids that repeat destroy data: better to stop than to go on without chance.
  if (got != sizeof bits) std::abort();
  return bits;
}

}  // namespace pinstripe
