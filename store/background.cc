#include "store/background.h"

#include <algorithm>
#include <utility>

namespace pinstripe {
namespace {

// How long a job rests, as a multiple of the time it has worked.
int RestFactor(int priority) {
  switch (priority) {
    case 1: return 9;
    case 2: return 6;
    case 3: return 4;
    case 4: return 2;
    case 5: return 1;
    default: return 0;
  }
}

// A client may give its job a year. What is left of one that is done goes after this time, so that
// many short jobs of long patience do not fill the memory.
constexpr Duration kLongestTimer = std::chrono::seconds(10);

void ExpireAt(Runtime& runtime, const std::weak_ptr<Cancellation>& job, Time expiry) {
  runtime.RunAt(std::min(expiry, runtime.Now() + kLongestTimer), [&runtime, job, expiry] {
    const std::shared_ptr<Cancellation> alive = job.lock();
    if (!alive) return;
    if (runtime.Now() < expiry) return ExpireAt(runtime, job, expiry);
    alive->Expire();
  });
}

}  // namespace

Background::Background(Runtime& runtime, const std::string& name, int threads)
    : runtime_(runtime), workers_(runtime, name, threads) {}

Background::~Background() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  for (const JobPtr& job : jobs_) job->cancellation->Cancel();
}

void Background::Start(Job started) {
  const auto job = std::make_shared<Job>(std::move(started));
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    jobs_.insert(job);
  }
  if (job->expiry != Time::max()) ExpireAt(runtime_, job->cancellation, job->expiry);
  workers_.Add([this, job] { Run(job); }, job->priority);
}

// One piece of the job's work.
void Background::Run(const JobPtr& job) {
  const Time began = runtime_.Now();
  const bool late = !std::exchange(job->begun, true) && job->cancellation->ended();
  if (late && !job->cancellation->cancelled()) job->late();
  if (!late && !job->cancellation->cancelled() &&
      !job->operation->Work(began + job->quantum, *job->cancellation)) {
    RestAfter(job, began);
    // Whoever stops waits for the workers, which run what was added before.
    return workers_.Add([this, job] { Run(job); }, job->priority);
  }
  if (!job->cancellation->cancelled()) job->done();
  const MutexLock lock(mutex_);
  jobs_.erase(job);
}

void Background::RestAfter(const JobPtr& job, Time began) {
  const Time now = runtime_.Now();
  const Time until = now + RestFactor(job->priority) * (now - began);
  while (!job->cancellation->ended() && runtime_.Now() < until) {
    job->cancellation->signal()->WaitUntil(until);
  }
}

}  // namespace pinstripe
