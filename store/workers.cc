#include "store/workers.h"

#include <cassert>
#include <utility>

namespace pinstripe {

Workers::Workers(Runtime& runtime, const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    {
      const MutexLock lock(mutex_);
      ++running_;
    }
    runtime.Spawn(name, [this] { Run(); });
  }
}

Workers::~Workers() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  added_.WakeAll();
  while (running_ > 0) ended_.Wait(lock);
}

void Workers::Add(Task task, int priority) {
  bool wake;
  {
    const MutexLock lock(mutex_);
    Enqueue(std::move(task), priority);
    wake = idle_ > 0;
  }
  if (wake) added_.WakeOne();  // who wakes finds the mutex free
}

void Workers::AddLast(Task task, int priority) {
  const MutexLock lock(mutex_);
  Enqueue(std::move(task), priority);
}

void Workers::Enqueue(Task task, int priority) {
  assert(priority >= kLowest && priority <= kHighest);
  queues_[static_cast<size_t>(priority)].push_back({count_added_++, std::move(task)});
  ++waiting_;
}

void Workers::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (waiting_ == 0 && !stopping_) {
      ++idle_;
      added_.Wait(lock);
      --idle_;
    }
    if (waiting_ == 0) break;
    Task task = Take();
    lock.Unlock();
    task();
    task = nullptr;
    lock.Lock();
  }
  --running_;
  ended_.WakeAll();
}

Task Workers::Take() {
  Queue& queue = NextQueue();
  Task task = std::move(queue.front().task);
  queue.pop_front();
  --waiting_;
  return task;
}

Workers::Queue& Workers::NextQueue() {
  const bool oldest = ++count_taken_ % kOldestEvery == 0;
  Queue* next = nullptr;
  for (size_t priority = kHighest; priority >= kLowest; --priority) {
    Queue& queue = queues_[priority];
    if (queue.empty()) continue;
    if (!oldest) return queue;
    if (next == nullptr || queue.front().number < next->front().number) next = &queue;
  }
  assert(next != nullptr);
  return *next;
}

}  // namespace pinstripe
