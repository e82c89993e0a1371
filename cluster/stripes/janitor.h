// Janitor: work on stripes that nobody waits for: erasing shards that lost a race, writing shards
// again that were found damaged or missing. One job at a time, on a thread that exists while there
// is work.
//
// The queue is bounded; what does not fit is dropped and counted: a damaged shard is found again by
// the next read, and a shard nobody refers to is garbage like any other. Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class Janitor {
 public:
  explicit Janitor(Runtime& runtime);

  // Waits for the job at hand, drops the others and takes no more. Called before whatever jobs
  // refer to is destroyed; late answers of drives may hold on to the Janitor for longer.
  void Close();

  // False when closed, when the queue is full, or when a job of this name waits already.
  bool Add(std::string name, Task job);

  // Until nothing is left to do, or the deadline: then false.
  bool WaitUntilIdle(Time deadline);

 private:
  struct Job {
    std::string name;
    Task work;
  };
  void Work();
  std::optional<Job> TakeJob();

  Runtime& runtime_;
  const std::shared_ptr<Signal> idle_signal_;
  Mutex mutex_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::set<std::string> names_ GUARDED_BY(mutex_);  // of what waits or is worked on
  bool closing_ GUARDED_BY(mutex_) = false;
  BackgroundThread thread_;  // the last member: it uses the others
};

}  // namespace pinstripe
