#include "cluster/registers/late_answers.h"

namespace pinstripe {

bool LateAnswers::Take(size_t replica, Drive& drive, const Result<Record>& record) {
  const std::optional<Chosen> chosen = this->chosen();
  if (!chosen.has_value()) return false;
  const Result<ReplicaState> state = StateFrom(key_, drive, record);
  if (!state.has_value()) return true;
  const RememberedRegister::Replica known{state->promised, state->accepted};
  cache_->Learn(key_, replica, known);
  if (Bring(drive, *state, *chosen)) return true;
  const MutexLock lock(mutex_);
  came_.emplace_back(replica, known);
  return true;
}

bool LateAnswers::Bring(Drive& drive, const ReplicaState& state, const Chosen& chosen) {
  if (!catch_up_) return false;
  auto request = pinstripe::CatchUp(key_, state, chosen);
  if (!request) return false;
  drive.Put(*std::move(request), {runtime_.Now() + drive_timeout_, cluster_version_},
            [cache = cache_, key = key_](const Status&) { cache->Forget(key); });
  return true;
}

}  // namespace pinstripe
