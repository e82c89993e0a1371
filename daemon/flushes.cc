#include "daemon/flushes.h"

#include <utility>

namespace pinstripe {

void Flushes::Add(std::function<void(const Status&)> done) {
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(done));
    if (std::exchange(running_, true)) return;
  }
  workers_.Add([self = shared_from_this()] { self->Run(); });
}

void Flushes::Run() {
  std::vector<std::function<void(const Status&)>> served;
  {
    const MutexLock lock(mutex_);
    served.swap(waiting_);
  }
  const Time begin = runtime_.Now();
  const Status status = service_.Flush();
  service_.statistics().flushes().Add(runtime_.Now() - begin);
  for (const auto& done : served) done(status);
  {
    const MutexLock lock(mutex_);
    running_ = !waiting_.empty();
    if (!running_) return;
  }
  workers_.Add([self = shared_from_this()] { self->Run(); });  // after other devices' turns
}

}  // namespace pinstripe
