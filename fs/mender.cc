#include "fs/mender.h"

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace pinstripe {

Mender::Mender(Cluster& cluster, Hooks hooks)
    : cluster_(cluster),
      hooks_(std::move(hooks)),
      repairer_(cluster, {}),
      wake_(cluster.runtime().NewSignal()),
      idle_(cluster.runtime().NewSignal()) {}

Mender::~Mender() {
  repairer_.Cancel();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!has_thread_) return;
  }
  wake_->Set();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) break;
    }
    idle_->WaitUntil(Time::max());
  }
}

void Mender::Add(InodeId file) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (items_.size() >= kMaxQueue && !items_.contains(file)) {
      Log(LogLevel::kWarn,
          "too many files wait for drives: run `pinstripe repair` when these are back",
          {{"file", fmt::format("{:016x}", file)}});
      return;
    }
    items_[file] = {.due = cluster_.runtime().Now() + kDelay, .drives_needed = {}};
    if (!has_thread_) {
      has_thread_ = true;
      cluster_.runtime().Spawn("mender", [this] { Run(); });
    }
  }
  wake_->Set();
}

size_t Mender::waiting() {
  const std::lock_guard lock(mutex_);
  return items_.size();
}

void Mender::Run() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    for (const InodeId file : TakeDue(cluster_.runtime().Now())) Mend(file);
    wake_->WaitUntil(NextDue());
  }
  const std::lock_guard lock(mutex_);
  if (!items_.empty()) {
    Log(LogLevel::kInfo, "files wait for drives: `pinstripe repair` makes them whole",
        {{"files", items_.size()}});
  }
  ended_ = true;
  const std::shared_ptr<Signal> idle = idle_;  // *this is gone as soon as the lock is
  idle->Set();
}

std::vector<InodeId> Mender::TakeDue(Time now) {
  const auto is_up = [this](DriveId id) {
    const Drive* drive = cluster_.FindDrive(id);
    return drive != nullptr && drive->IsUp();
  };
  std::vector<InodeId> due;
  const std::lock_guard lock(mutex_);
  for (auto& [file, item] : items_) {
    if (item.due > now) continue;
    const auto& needed = item.drives_needed;
    if (needed.empty() || std::any_of(needed.begin(), needed.end(), is_up)) {
      due.push_back(file);
    } else {
      item.due = now + kLook;
    }
  }
  return due;
}

Time Mender::NextDue() {
  const std::lock_guard lock(mutex_);
  if (stopping_) return cluster_.runtime().Now();
  Time next = Time::max();
  for (const auto& [file, item] : items_) next = std::min(next, item.due);
  return next;
}

void Mender::Mend(InodeId file) {
  const Time begin = cluster_.runtime().Now();
  bool is_whole = false;
  bool tried = false;
  std::set<DriveId> needed;
  if (!hooks_.is_changing(file)) {
    tried = true;
    const auto mended = repairer_.MendFile(file, needed);
    if (mended.has_value()) {
      is_whole = mended->lacking == 0;
      if (mended->changed) hooks_.mended(file);
      if (is_whole && mended->changed) {
        Log(LogLevel::kInfo, "file is whole again", {{"inode", fmt::format("{:016x}", file)}});
      }
    } else {
      Log(LogLevel::kWarn, "file could not be repaired yet",
          {{"inode", fmt::format("{:016x}", file)}, {"why", mended.error()}});
    }
  }
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(file);
  if (found->second.due > begin) return;  // it was committed again meanwhile
  if (is_whole) {
    items_.erase(found);
    return;
  }
  Item& item = found->second;
  item.drives_needed = std::move(needed);
  item.due = cluster_.runtime().Now() + item.delay;
  if (tried) item.delay = std::min(2 * item.delay, kLongestDelay);
}

}  // namespace pinstripe
