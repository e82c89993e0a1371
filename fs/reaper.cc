#include "fs/reaper.h"

#include "base/log.h"

namespace pinstripe {

Reaper::Reaper(Cluster& cluster)
    : cluster_(cluster),
      work_(cluster.runtime().NewSignal()),
      idle_(cluster.runtime().NewSignal()) {
  cluster.runtime().Spawn("reaper", [this] { Run(); });
}

Reaper::~Reaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    end_by_ = cluster_.runtime().Now() + kDrainTime;
  }
  work_->Set();
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) break;
    }
    idle_->WaitUntil(Time::max());
  }
}

void Reaper::Add(const std::vector<BlockMap::Piece>& pieces, uint64_t block_bytes) {
  size_t refused = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const BlockMap::Piece& piece : pieces) {
      if (piece.run.hole) continue;
      if (items_.size() < kMaxQueue) {
        items_.push_back({piece, block_bytes});
      } else {
        ++refused;
      }
    }
  }
  if (refused > 0) {
    Log(LogLevel::kWarn, "garbage stays on the drives: too much at once", {{"pieces", refused}});
  }
  work_->Set();
}

bool Reaper::Drain(Time deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.empty() && !busy_) return true;
    }
    if (!idle_->WaitUntil(deadline)) return false;
  }
}

void Reaper::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (stopping_ && (items_.empty() || cluster_.runtime().Now() >= end_by_)) break;
    if (items_.empty()) {
      lock.unlock();
      work_->WaitUntil(Time::max());
      lock.lock();
      continue;
    }
    const Item item = std::move(items_.front());
    items_.pop_front();
    busy_ = true;
    lock.unlock();
    Delete(item);
    lock.lock();
    busy_ = false;
    if (items_.empty()) idle_->Set();
  }
  if (!items_.empty()) {
    Log(LogLevel::kInfo, "garbage stays on the drives: no time left to delete it",
        {{"pieces", items_.size()}});
  }
  ended_ = true;
  const std::shared_ptr<Signal> idle = idle_;  // *this is gone as soon as the lock is
  idle->Set();
}

bool Reaper::MayGoOn() {
  const std::lock_guard lock(mutex_);
  return !stopping_ || cluster_.runtime().Now() < end_by_;
}

void Reaper::Delete(const Item& item) {
  const BlockMap::Piece& piece = item.piece;
  for (uint64_t i = 0; i < piece.run.count && MayGoOn(); ++i) {
    const BlockPlace place = PlaceInRun(piece.run, i, item.block_bytes);
    const Status status =
        cluster_.stripes().Delete(place.IdOf(piece.first + i), place.layout, place.place);
    if (!status.ok()) {
      Log(LogLevel::kInfo, "garbage stays on the drives", {{"why", status}});
    }
  }
}

}  // namespace pinstripe
