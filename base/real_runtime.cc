#include "base/real_runtime.h"

#include <pthread.h>
#include <sys/random.h>

#include <cassert>

namespace pinstripe {
namespace {

using Steady = std::chrono::steady_clock;

Steady::time_point ToSteady(Time time) {
  return Steady::time_point(
      std::chrono::duration_cast<Steady::duration>(time.time_since_epoch()));
}

class RealSignal final : public Signal {
 public:
  void Set() override {
    // Notifying under the lock: once the waiter has seen the signal it may destroy its last
    // reference, so nothing of this object may be touched after the lock is gone.
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_one();
  }

  bool WaitUntil(Time deadline) override {
    std::unique_lock lock(mutex_);
    const bool was_set = deadline == Time::max()
                             ? (changed_.wait(lock, [this] { return set_; }), true)
                             : changed_.wait_until(lock, ToSteady(deadline), [this] { return set_; });
    set_ = false;
    return was_set;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;  // guarded by mutex_
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
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  timer_thread_.join();
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
  const std::lock_guard lock(mutex_);
  const auto added = tasks_.emplace(when, std::move(task));
  if (added == tasks_.begin()) changed_.notify_all();
}

void RealRuntime::RunTimers() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (tasks_.empty()) {
      changed_.wait(lock);
    } else if (tasks_.begin()->first > Now()) {
      changed_.wait_until(lock, ToSteady(tasks_.begin()->first));
    } else {
      const Task task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      lock.unlock();
      task();
      lock.lock();
    }
  }
}

void RealRuntime::Spawn(std::string name, Task body) {
  const std::lock_guard lock(mutex_);
  assert(!stopping_);
  threads_.emplace_back([name = std::move(name), body = std::move(body)] {
    NameThisThread(name);
    body();
  });
}

std::shared_ptr<Signal> RealRuntime::NewSignal() { return std::make_shared<RealSignal>(); }

uint64_t RealRuntime::Random() {
  uint64_t bits = 0;
  const ssize_t got = getrandom(&bits, sizeof bits, 0);
  assert(got == sizeof bits);  // up to 256 bytes never fail once the kernel's pool is ready
  return got == sizeof bits ? bits : 0;
}

}  // namespace pinstripe
