#include "cluster/stripes/janitor.h"

#include "base/log.h"

namespace pinstripe {
namespace {

constexpr size_t kMaxJobs = 1024;
constexpr Duration kLinger = std::chrono::seconds(5);  // how long an idle thread waits for more

}  // namespace

Janitor::Janitor(Runtime& runtime)
    : runtime_(runtime), work_signal_(runtime.NewSignal()), idle_signal_(runtime.NewSignal()) {}

void Janitor::Close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  jobs_.clear();
  while (running_) {
    lock.unlock();
    work_signal_->Set();
    idle_signal_->WaitUntil(Time::max());
    lock.lock();
  }
}

bool Janitor::Add(std::string name, Task job) {
  bool start = false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    if (jobs_.size() >= kMaxJobs) {
      Log(LogLevel::kWarn, "background work on stripes dropped", {{"job", name}});
      return false;
    }
    if (!names_.insert(name).second) return false;
    jobs_.push_back({std::move(name), std::move(job)});
    start = !running_;
    running_ = true;
  }
  if (start) {
    runtime_.Spawn("janitor", [self = shared_from_this()] { self->Work(); });
  } else {
    work_signal_->Set();
  }
  return true;
}

bool Janitor::WaitUntilIdle(Time deadline) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (names_.empty()) return true;
    }
    if (!idle_signal_->WaitUntil(deadline)) return false;
  }
}

void Janitor::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (jobs_.empty() && !closing_) {
      lock.unlock();
      idle_signal_->Set();
      const bool more = work_signal_->WaitUntil(runtime_.Now() + kLinger);
      lock.lock();
      if (more) continue;
    }
    if (jobs_.empty()) break;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.work();
    lock.lock();
    names_.erase(job.name);
  }
  running_ = false;
  lock.unlock();
  idle_signal_->Set();
}

}  // namespace pinstripe
