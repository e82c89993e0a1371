// Background: a few threads for long operations, so that these never hold up the workers that serve
// others.
//
// An operation works for its quantum, then the next one has its turn, by priority as with workers.
// It rests between two pieces, the longer the lower its priority, so that it leaves the disk to
// others: with priority 5 it works half of the time, with 1 a tenth, above 5 all of it.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "base/runtime.h"
#include "store/long_operation.h"
#include "store/workers.h"

namespace pinstripe {

class Background {
 public:
  static constexpr Duration kQuantum = std::chrono::milliseconds(50);

  struct Job {
    // Not called after it was cancelled. They go after the operation, which may use what they keep.
    std::function<void()> done;
    std::function<void()> late;  // before done, when its time ran out before its first turn
    std::unique_ptr<LongOperation> operation;
    std::shared_ptr<Cancellation> cancellation;
    int priority = Workers::kNormal;
    Duration quantum = kQuantum;  // 0: one step at a time
    bool begun = false;           // has had its first turn
    Time expiry = Time::max();    // when it must end, finished or not
  };

  Background(Runtime& runtime, const std::string& name, int threads);

  // Cancels what is there, and waits until it has ended.
  ~Background();

  void Start(Job job);

 private:
  using JobPtr = std::shared_ptr<Job>;

  void Run(const JobPtr& job);
  void RestAfter(const JobPtr& job, Time began);

  Runtime& runtime_;
  Mutex mutex_;
  std::set<JobPtr> jobs_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  Workers workers_;  // the last member: until it has ended its threads use all the others
};

}  // namespace pinstripe
