#include "store/commit_group.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace pinstripe {

Result<std::shared_ptr<CommitGroup>> CommitGroup::Open(FileCalls& calls, const std::string& path) {
  FileDescriptor file_system(calls.OpenFileSystem(path));
  if (file_system.get() < 0) {
    return Fail(errno, "cannot open {}: {}", path, ErrnoText(errno));
  }
  std::shared_ptr<CommitGroup> group(new CommitGroup(calls, path, std::move(file_system)));
  const Status before = group->SyncFileSystem();
  group->had_failed_ = !before.ok();
  if (group->had_failed_) {
    Log(LogLevel::kWarn, "file system has lost what somebody wrote to it before",
        {{"path", path}, {"why", before}});
  }
  return group;
}

void CommitGroup::Join(Member& member) {
  const MutexLock lock(mutex_);
  members_.emplace(&member, Status());
}

void CommitGroup::Leave(Member& member) {
  const MutexLock lock(mutex_);
  while (begun_ != finished_) round_finished_.Wait(lock);
  members_.erase(&member);
}

// A round that is under way may have begun before our changes; whether it has taken them along the
// member knows. Whoever needs one and finds none under way runs it for everybody.
Status CommitGroup::Flush(Member& member) {
  MutexLock lock(mutex_);
  const uint64_t wanted = begun_ + (member.HasChanges() ? 1 : 0);
  while (finished_ < wanted) {
    if (begun_ > finished_) {
      round_finished_.Wait(lock);
      continue;
    }
    ++begun_;
    Statuses statuses = members_;
    lock.Unlock();
    const Status file_system = RunRound(statuses);
    lock.Lock();
    if (!file_system.ok()) {
      // Those who have joined since included: what they wrote until now may be what was lost.
      const Statuses members = members_;
      lock.Unlock();
      for (const auto& [each, status] : members) each->LoseFaith(file_system);
      lock.Lock();
    }
    for (auto& [each, status] : statuses) {
      if (const auto found = members_.find(each); found != members_.end()) {
        found->second = std::move(status);
      }
    }
    finished_ = begun_;
    round_finished_.WakeAll();
  }
  return members_.at(&member);
}

Status CommitGroup::SyncFileSystem() {
  if (calls_.SyncFileSystem(file_system_.get()) == 0) return {};
  return Fail(errno, "cannot sync the file system of {}: {}", path_, ErrnoText(errno));
}

// How the file system has fared, if it was asked. Nobody leaves meanwhile.
Status CommitGroup::RunRound(Statuses& statuses) {
  std::vector<Member*> members;
  for (const auto& [member, status] : statuses) {
    if (!member->HasChanges()) continue;
    member->BeginRound();
    members.push_back(member);
  }
  if (members.empty()) return {};
  if (members.size() == 1) {
    statuses[members[0]] = members[0]->EndRound(members[0]->SyncRound());
    return {};
  }
  std::map<Member*, Status> handed_over;
  for (Member* member : members) handed_over[member] = member->HandOverRound();
  const Status synced = SyncFileSystem();
  for (Member* member : members) {
    Status& status = handed_over[member];
    statuses[member] = member->EndRound(status.ok() ? synced : status);
  }
  return synced;
}

}  // namespace pinstripe
