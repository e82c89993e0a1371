#include "upkeep/mender.h"

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace pinstripe {

Mender::Mender(Cluster& cluster, Hooks hooks, std::function<void()> is_whole)
    : cluster_(cluster),
      hooks_(std::move(hooks)),
      is_whole_(std::move(is_whole)),
      repairer_(cluster, {}),
      thread_(cluster.runtime(), "mender", [this] { Run(); }) {}

Mender::~Mender() {
  repairer_.Cancel();
  thread_.End();
  const MutexLock lock(mutex_);
  if (items_.empty()) return;
  Log(LogLevel::kInfo, "files wait for drives: `pinstripe repair` makes them whole",
      {{"files", items_.size()}});
}

void Mender::Add(InodeId file) {
  {
    const MutexLock lock(mutex_);
    if (items_.size() >= kMaxQueue && !items_.contains(file)) {
      Log(LogLevel::kWarn,
          "too many files wait for drives: run `pinstripe repair` when these are back",
          {{"file", fmt::format("{:016x}", file)}});
      return;
    }
    const auto [at, is_new] = items_.try_emplace(file);
    if (is_new) {
      at->second.due = cluster_.runtime().Now() + kDelay;
    } else {  // who commits all the time does not put it off
      at->second.committed_again = true;
      at->second.drives_needed.clear();
    }
    if (thread_.IsRunning() && at->second.due >= wakes_at_) return;
  }
  thread_.Wake();
}

size_t Mender::waiting() {
  const MutexLock lock(mutex_);
  return items_.size();
}

void Mender::Run() {
  while (!thread_.IsEnding()) {
    const Time begin = cluster_.runtime().Now();
    for (const InodeId file : TakeDue(begin)) {
      if (thread_.IsEnding()) break;
      Mend(file);
    }
    thread_.WaitUntil(NextDue(begin + kStep));
  }
}

std::vector<InodeId> Mender::TakeDue(Time now) {
  const auto is_up = [this](DriveId id) {
    const Drive* drive = cluster_.FindDrive(id);
    return drive != nullptr && drive->IsUp();
  };
  std::vector<InodeId> due;
  const MutexLock lock(mutex_);
  for (auto& [file, item] : items_) {
    if (item.due > now) continue;
    const auto& needed = item.drives_needed;
    if (needed.empty() || std::any_of(needed.begin(), needed.end(), is_up)) {
      item.committed_again = false;
      due.push_back(file);
    } else {
      item.due = now + kLook;
    }
  }
  return due;
}

Time Mender::NextDue(Time not_before) {
  const MutexLock lock(mutex_);
  Time next = Time::max();
  for (const auto& [file, item] : items_) next = std::min(next, item.due);
  wakes_at_ = std::max(next, not_before);
  return wakes_at_;
}

void Mender::Mend(InodeId file) {
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
        if (is_whole_ != nullptr) is_whole_();
      }
    } else {
      Log(LogLevel::kWarn, "file could not be repaired yet",
          {{"inode", fmt::format("{:016x}", file)}, {"why", mended.error()}});
    }
  }
  const MutexLock lock(mutex_);
  const auto found = items_.find(file);
  Item& item = found->second;
  if (is_whole && !item.committed_again) {
    items_.erase(found);
    return;
  }
  if (item.committed_again) needed.clear();
  item.drives_needed = std::move(needed);
  item.due = cluster_.runtime().Now() + item.delay;
  if (tried && !is_whole) item.delay = std::min(2 * item.delay, kLongestDelay);
}

}  // namespace pinstripe
