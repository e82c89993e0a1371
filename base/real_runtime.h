// The Runtime of real programs: the monotonic clock, std::thread, one timer thread.

#pragma once

#include <atomic>
#include <list>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class RealRuntime final : public Runtime {
 public:
  RealRuntime();

  // Waits for the threads of Spawn(), so their starter has told them to end. Timers run until the
  // last of them has ended; then tasks that are not due yet are dropped.
  ~RealRuntime() override;

  Time Now() override;
  Duration TimeLost() override;
  int64_t WallClock() override;
  void RunAt(Time when, Task task) override;
  void Spawn(std::string name, Task body) override;
  std::shared_ptr<Signal> NewSignal() override;
  uint64_t Random() override;

 private:
  void RunTimers();
  void WaitForThreads();

  Mutex mutex_;
  Condition tasks_changed_;
  Condition thread_ended_;
  std::multimap<Time, Task> tasks_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  // When the timer thread was last seen at work, and what it found to be lost until then.
  std::atomic<Time> beat_{Now()};
  std::atomic<Duration> lost_{};
  std::list<std::thread> threads_ GUARDED_BY(mutex_);  // running
  std::list<std::thread> ended_ GUARDED_BY(mutex_);    // to be joined, which frees their stacks
  std::thread timer_thread_;                           // the last member: it uses all the others
};

}  // namespace pinstripe
