#include "base/memory_budget.h"

#include <algorithm>
#include <cassert>

namespace pinstripe {

// Waits for nobody, so it may be called with the mutex held.
void MemoryBudget::State::WakeWatchers() {
  for (const auto& watcher : watchers) watcher->Set();
}

MemoryBudget::Share MemoryBudget::Share::Split(uint64_t bytes) {
  assert(bytes <= bytes_);
  bytes_ -= bytes;
  return {state_, bytes};
}

void MemoryBudget::Share::Return() {
  if (bytes_ > 0) {
    const MutexLock lock(state_->mutex);
    assert(state_->used >= bytes_);
    state_->used -= bytes_;
    state_->WakeWatchers();
  }
  bytes_ = 0;
  state_.reset();
}

MemoryBudget::MemoryBudget(uint64_t limit) : state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  state_->limit = limit;
}

std::optional<MemoryBudget::Share> MemoryBudget::TryTakeUnused(uint64_t bytes) {
  const MutexLock lock(state_->mutex);
  if (!state_->HasRoom(bytes)) return std::nullopt;
  state_->used += bytes;
  return Share(state_, bytes);
}

std::optional<MemoryBudget::Share> MemoryBudget::TryTake(uint64_t bytes) {
  for (;;) {
    if (auto share = TryTakeUnused(bytes)) return share;
    if (!reclaim_ || !reclaim_(bytes)) return std::nullopt;
  }
}

MemoryBudget::Share MemoryBudget::TakeAnyway(uint64_t bytes) {
  const MutexLock lock(state_->mutex);
  state_->used += bytes;
  return Share(state_, bytes);
}

uint64_t MemoryBudget::used() const {
  const MutexLock lock(state_->mutex);
  return state_->used;
}

uint64_t MemoryBudget::limit() const {
  const MutexLock lock(state_->mutex);
  return state_->limit;
}

void MemoryBudget::SetLimit(uint64_t limit) {
  {
    const MutexLock lock(state_->mutex);
    state_->limit = limit;
    state_->WakeWatchers();
  }
  ReclaimExcess();
}

void MemoryBudget::ReclaimExcess() {
  for (;;) {
    const uint64_t most = limit();
    const uint64_t held = used();
    if (held <= most || !reclaim_ || !reclaim_(held - most)) return;
  }
}

void MemoryBudget::NoteChange() {
  const MutexLock lock(state_->mutex);
  state_->WakeWatchers();
}

MemoryBudget::Watch::Watch(MemoryBudget& budget, std::shared_ptr<Signal> signal)
    : state_(budget.state_), signal_(std::move(signal)) {
  const MutexLock lock(state_->mutex);
  state_->watchers.push_back(signal_);
}

MemoryBudget::Watch::~Watch() {
  const MutexLock lock(state_->mutex);
  state_->watchers.erase(std::find(state_->watchers.begin(), state_->watchers.end(), signal_));
}

}  // namespace pinstripe
