#include "cluster/stripes/janitor.h"

#include "base/log.h"

namespace pinstripe {
namespace {

constexpr size_t kMaxJobs = 1024;
constexpr Duration kLinger = std::chrono::seconds(5);  // how long an idle thread waits for more

}  // namespace

Janitor::Janitor(Runtime& runtime)
    : runtime_(runtime),
      idle_signal_(runtime.NewSignal()),
      thread_(runtime, "janitor", [this] { Work(); }) {}

void Janitor::Close() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    jobs_.clear();
  }
  thread_.End();
}

bool Janitor::Add(std::string name, Task job) {
  {
    const MutexLock lock(mutex_);
    if (closing_) return false;
    if (jobs_.size() >= kMaxJobs) {
      Log(LogLevel::kWarn, "background work on stripes dropped", {{"job", name}});
      return false;
    }
    if (!names_.insert(name).second) return false;
    jobs_.push_back({std::move(name), std::move(job)});
  }
  thread_.Wake();
  return true;
}

bool Janitor::WaitUntilIdle(Time deadline) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (names_.empty()) return true;
    }
    if (!idle_signal_->WaitUntil(deadline)) return false;
  }
}

std::optional<Janitor::Job> Janitor::TakeJob() {
  const MutexLock lock(mutex_);
  if (jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void Janitor::Work() {
  for (;;) {
    if (const std::optional<Job> job = TakeJob()) {
      job->work();
      const MutexLock lock(mutex_);
      names_.erase(job->name);
      continue;
    }
    idle_signal_->Set();
    if (!thread_.WaitUntil(runtime_.Now() + kLinger) || thread_.IsEnding()) return;
  }
}

}  // namespace pinstripe
