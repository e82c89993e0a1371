// Work on many groups of registers, a few at a time: what rebuilding, sweeping and moving have in
// common.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/registers/store.h"

namespace pinstripe {

struct SweepOptions {
  // The work that is done, and which part of it (0..1) is behind us. On the calling thread.
  std::function<void(std::string_view phase, double done)> progress;

  double registers_per_second = 0;  // at most about so many; 0: as they come
  int groups_at_once = 8;

  // Called before each group, on the thread that is about to do it. It may wait.
  std::function<void()> may_wait;

  // Never waits. The caller hears of it by EINTR soon after this says so. Everything can be done
  // again.
  std::function<bool()> is_cancelled;
};

bool IsCancelled(const SweepOptions& options);
Status Cancelled();  // EINTR
void Report(const SweepOptions& options, std::string_view phase, double done);

void Sleep(Runtime& runtime, Time until);

// Until `until`. EINTR when it is cancelled.
Status WaitAndTell(Runtime& runtime, Time until, Duration all, std::string_view phase,
                   const SweepOptions& options);

// Each group on a thread of its own. Stops at the first failure.
class GroupWork {
 public:
  using Work = std::function<Result<SweepReport>(uint32_t group,
                                                 const RegisterStore::SweepProgress& progress)>;

  // `options` outlives it.
  GroupWork(Runtime& runtime, std::vector<uint32_t> groups, Work work, const SweepOptions& options);

  Result<SweepReport> Run(std::string_view phase);

 private:
  void Loop();
  std::optional<uint32_t> Next();
  void Finish(const Result<SweepReport>& result);
  void Pace(size_t registers);

  Runtime& runtime_;
  const std::vector<uint32_t> groups_;
  const Work work_;
  const SweepOptions& options_;
  const std::shared_ptr<Signal> done_;
  Mutex mutex_;
  size_t next_ GUARDED_BY(mutex_) = 0;
  size_t running_ GUARDED_BY(mutex_) = 0;   // workers
  size_t finished_ GUARDED_BY(mutex_) = 0;  // groups
  Time next_page_ GUARDED_BY(mutex_);       // when the next one may be begun
  SweepReport report_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);  // the first
};

}  // namespace pinstripe
