#include "cluster/membership/group_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pinstripe {

void Sleep(Runtime& runtime, Time until) { runtime.NewSignal()->WaitUntil(until); }

Status Cancelled() { return Fail(EINTR, "stopped before it was finished; it can be done again"); }

bool IsCancelled(const SweepOptions& options) {
  return options.is_cancelled != nullptr && options.is_cancelled();
}

void Report(const SweepOptions& options, std::string_view phase, double done) {
  if (options.progress != nullptr) options.progress(phase, done);
}

Status WaitAndTell(Runtime& runtime, Time until, Duration all, std::string_view phase,
                   const SweepOptions& options) {
  for (Time now = runtime.Now(); now < until; now = runtime.Now()) {
    if (IsCancelled(options)) return Cancelled();
    Report(options, phase, 1 - std::chrono::duration<double>(until - now) / all);
    Sleep(runtime, std::min(until, now + std::chrono::seconds(1)));
  }
  return {};
}

GroupWork::GroupWork(Runtime& runtime, std::vector<uint32_t> groups, Work work,
                     const SweepOptions& options)
    : runtime_(runtime),
      groups_(std::move(groups)),
      work_(std::move(work)),
      options_(options),
      done_(runtime.NewSignal()),
      next_page_(runtime.Now()) {}

Result<SweepReport> GroupWork::Run(std::string_view phase) {
  const auto workers = std::min<size_t>(std::max(options_.groups_at_once, 1), groups_.size());
  {
    const MutexLock lock(mutex_);
    running_ = workers;
  }
  for (size_t i = 0; i < workers; ++i) {
    runtime_.Spawn("sweep", [this, done = done_] {
      Loop();
      done->Set();
    });
  }
  for (;;) {
    double part = 1;
    {
      const MutexLock lock(mutex_);
      if (running_ == 0) break;
      part = static_cast<double>(finished_) / static_cast<double>(groups_.size());
      if (IsCancelled(options_) && failure_.ok()) failure_ = Cancelled();
    }
    Report(options_, phase, part);
    done_->WaitUntil(runtime_.Now() + std::chrono::seconds(1));
  }
  Result<SweepReport> result;
  {
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return Failed(failure_);
    result = report_;
  }
  Report(options_, phase, 1);
  return result;
}

void GroupWork::Loop() {
  while (const auto group = Next()) {
    if (options_.may_wait != nullptr) options_.may_wait();
    Finish(work_(*group, [this](size_t registers) { Pace(registers); }));
  }
}

std::optional<uint32_t> GroupWork::Next() {
  const MutexLock lock(mutex_);
  if (next_ == groups_.size() || !failure_.ok()) {
    --running_;
    return std::nullopt;
  }
  return groups_[next_++];
}

void GroupWork::Finish(const Result<SweepReport>& result) {
  {
    const MutexLock lock(mutex_);
    ++finished_;
    if (result.has_value()) {
      report_ += *result;
    } else if (failure_.ok()) {
      failure_ = result.error();
    }
  }
  done_->Set();
}

void GroupWork::Pace(size_t registers) {
  if (options_.registers_per_second <= 0) return;
  const auto takes = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
      static_cast<double>(registers) / options_.registers_per_second));
  Time until;
  {
    const MutexLock lock(mutex_);
    next_page_ = std::max(next_page_, runtime_.Now()) + takes;
    until = next_page_;
  }
  Sleep(runtime_, until);
}

}  // namespace pinstripe
