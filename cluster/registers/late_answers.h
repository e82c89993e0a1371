// LateAnswers: what becomes of answers that come when their call knows enough. They complete what
// is remembered of the register, and replicas that are behind are caught up.
//
// Shared by the requests of one reading of one register. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cluster/registers/call.h"

namespace pinstripe {

class LateAnswers {
 public:
  LateAnswers(const RegisterContext& context, std::string key,
              std::optional<int64_t> cluster_version, bool catch_up)
      : runtime_(context.runtime),
        drive_timeout_(context.options.drive_timeout),
        cluster_version_(cluster_version),
        cache_(context.cache),
        key_(std::move(key)),
        catch_up_(catch_up) {}

  // From now on answers are late.
  void Know(const Chosen& chosen) {
    const MutexLock lock(mutex_);
    chosen_ = chosen;
  }

  // True if it came late, and was dealt with.
  bool Take(size_t replica, Drive& drive, const Result<Record>& record);
  // One that came in time, and was not needed. A replica that is behind is not caught up.
  void Keep(size_t replica, const Drive& drive, const Result<Record>& record);

  // Catches the replica up, if it is behind.
  void Bring(Drive& drive, const ReplicaState& state, const Chosen& chosen);

  // The replicas among them that have what is chosen.
  std::vector<std::pair<size_t, RememberedRegister::Replica>> TakeKept() {
    const MutexLock lock(mutex_);
    return std::exchange(kept_, {});
  }

 private:
  void Keep(size_t replica, const ReplicaState& state, const Chosen& chosen);
  std::optional<Chosen> chosen() {
    const MutexLock lock(mutex_);
    return chosen_;
  }

  Runtime& runtime_;
  const Duration drive_timeout_;
  const std::optional<int64_t> cluster_version_;
  const std::shared_ptr<RegisterCache> cache_;
  const std::string key_;
  const bool catch_up_;
  Mutex mutex_;
  std::optional<Chosen> chosen_ GUARDED_BY(mutex_);
  std::vector<std::pair<size_t, RememberedRegister::Replica>> kept_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
