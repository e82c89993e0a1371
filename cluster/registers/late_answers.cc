#include "cluster/registers/late_answers.h"

namespace pinstripe {

bool LateAnswers::Take(size_t replica, Drive& drive, const Result<Record>& record) {
  const std::optional<Chosen> chosen = this->chosen();
  if (!chosen.has_value()) return false;
  const Result<ReplicaState> state = StateFrom(key_, drive, record);
  if (!state.has_value()) return true;
  cache_->Learn(key_, replica, {state->promised, state->accepted});
  Keep(replica, *state, *chosen);
  Bring(drive, *state, *chosen);
  return true;
}

void LateAnswers::Keep(size_t replica, const Drive& drive, const Result<Record>& record) {
  const std::optional<Chosen> chosen = this->chosen();
  if (!chosen.has_value()) return;
  const Result<ReplicaState> state = StateFrom(key_, drive, record);
  if (state.has_value()) Keep(replica, *state, *chosen);
}

void LateAnswers::Keep(size_t replica, const ReplicaState& state, const Chosen& chosen) {
  if (state.accepted != chosen.ballot) return;
  const MutexLock lock(mutex_);
  kept_.emplace_back(replica, RememberedRegister::Replica{state.promised, state.accepted});
}

void LateAnswers::Bring(Drive& drive, const ReplicaState& state, const Chosen& chosen) {
  if (!catch_up_) return;
  auto request = CatchUp(key_, state, chosen);
  if (!request) return;
  drive.Put(*std::move(request), {runtime_.Now() + drive_timeout_, cluster_version_},
            [cache = cache_, key = key_](const Status&) { cache->Forget(key); });
}

}  // namespace pinstripe
