// Workers: a few threads that run tasks which may wait, in the order of their priority.
//
// The task with the highest priority runs first, and of those the oldest. But each kOldestEvery-th
// task that is taken is the one that has waited longest, whatever its priority: so low priorities
// are slow under load, and never stand still.
//
// Thread-safe.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class Workers {
 public:
  // The protocol's priorities.
  static constexpr int kLowest = 1;
  static constexpr int kNormal = 5;
  static constexpr int kHighest = 9;

  static constexpr uint64_t kOldestEvery = 8;

  Workers(Runtime& runtime, const std::string& name, int count);

  // Runs what was added, and waits until all workers have ended.
  ~Workers();

  void Add(Task task, int priority = kNormal);

  // The same, for a task of ours that ends with it: no other worker is woken, since this one will
  // look for work in a moment.
  void AddLast(Task task, int priority = kNormal);

 private:
  struct Waiting {
    uint64_t number;  // counts what was added
    Task task;
  };
  using Queue = std::deque<Waiting>;

  void Run();
  void Enqueue(Task task, int priority) REQUIRES(mutex_);
  Task Take() REQUIRES(mutex_);  // something is waiting
  Queue& NextQueue() REQUIRES(mutex_);

  Mutex mutex_;
  Condition added_;
  Condition ended_;
  std::array<Queue, kHighest + 1> queues_ GUARDED_BY(mutex_);  // by priority
  size_t waiting_ GUARDED_BY(mutex_) = 0;                      // in all queues
  uint64_t count_added_ GUARDED_BY(mutex_) = 0;
  uint64_t count_taken_ GUARDED_BY(mutex_) = 0;
  int idle_ GUARDED_BY(mutex_) = 0;
  int running_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinstripe
