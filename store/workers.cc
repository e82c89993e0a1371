#include "store/workers.h"

#include <cassert>
#include <utility>

namespace pinstripe {

Workers::Workers(Runtime& runtime, const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    runtime.Spawn(name, [this] { Run(); });
  }
}

Workers::~Workers() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  added_.notify_all();
  ended_.wait(lock, [this] { return running_ == 0; });
}

void Workers::Add(Task task, int priority) {
  bool wake;
  {
    const std::lock_guard lock(mutex_);
    Enqueue(std::move(task), priority);
    wake = idle_ > 0;
  }
  if (wake) added_.notify_one();  // who wakes finds the mutex free
}

void Workers::AddLast(Task task, int priority) {
  const std::lock_guard lock(mutex_);
  Enqueue(std::move(task), priority);
}

// With mutex_ held.
void Workers::Enqueue(Task task, int priority) {
  assert(priority >= kLowest && priority <= kHighest);
  queues_[static_cast<size_t>(priority)].push_back({count_added_++, std::move(task)});
  ++waiting_;
}

void Workers::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (waiting_ == 0 && !stopping_) {
      ++idle_;
      added_.wait(lock);
      --idle_;
    }
    if (waiting_ == 0) break;
    Task task = Take();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
  --running_;
  ended_.notify_all();
}

// With mutex_ held, and something waiting.
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
