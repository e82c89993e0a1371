// The Runtime of real programs: the monotonic clock, std::thread, one timer thread.

#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

class RealRuntime final : public Runtime {
 public:
  RealRuntime();

  // Tasks that are not due yet are dropped; threads of Spawn() are joined, so whoever started them
  // has told them to end.
  ~RealRuntime() override;

  Time Now() override;
  int64_t WallClock() override;
  void RunAt(Time when, Task task) override;
  void Spawn(std::string name, Task body) override;
  std::shared_ptr<Signal> NewSignal() override;
  uint64_t Random() override;

 private:
  void RunTimers();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Time, Task> tasks_;   // guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::vector<std::thread> threads_;  // guarded by mutex_
  std::thread timer_thread_;
};

}  // namespace pinstripe
