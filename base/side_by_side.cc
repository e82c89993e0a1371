#include "base/side_by_side.h"

#include <algorithm>
#include <memory>

#include "base/mutex.h"

namespace pinstripe {
namespace {

struct Shared {
  explicit Shared(std::shared_ptr<Signal> signal) : ended(std::move(signal)) {}
  const std::shared_ptr<Signal> ended;
  Mutex mutex;
  size_t next GUARDED_BY(mutex) = 0;
  size_t helpers GUARDED_BY(mutex) = 0;  // threads that have not ended
};

void WorkOff(Shared& shared, size_t count, const std::function<void(size_t)>& work) {
  for (;;) {
    size_t i = 0;
    {
      const MutexLock lock(shared.mutex);
      if (shared.next == count) return;
      i = shared.next++;
    }
    work(i);
  }
}

}  // namespace

void SideBySide(Runtime& runtime, const std::string& thread_name, size_t count, size_t width,
                const std::function<void(size_t)>& work) {
  const auto shared = std::make_shared<Shared>(runtime.NewSignal());
  const size_t helpers = std::max<size_t>(std::min(count, width), 1) - 1;
  {
    const MutexLock lock(shared->mutex);
    shared->helpers = helpers;
  }
  for (size_t i = 0; i < helpers; ++i) {
    // `work` lives until the caller has seen that the last helper has ended.
    runtime.Spawn(thread_name, [shared, count, &work] {
      WorkOff(*shared, count, work);
      const MutexLock lock(shared->mutex);
      if (--shared->helpers == 0) shared->ended->Set();
    });
  }
  WorkOff(*shared, count, work);
  for (;;) {
    {
      const MutexLock lock(shared->mutex);
      if (shared->helpers == 0) return;
    }
    shared->ended->WaitUntil(Time::max());
  }
}

}  // namespace pinstripe
