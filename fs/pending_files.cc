#include "fs/pending_files.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/side_by_side.h"
#include "base/try.h"

namespace pinstripe {
namespace {

// What is due so soon is committed together, so that the thread need not wake for each file.
constexpr Duration kTogether = std::chrono::milliseconds(100);
constexpr size_t kMostAtOnce = 16;

}  // namespace

PendingFiles::PendingFiles(OpenFiles& files)
    : files_(files),
      runtime_(files.context().cluster.runtime()),
      thread_(runtime_, "pending files", [this] { Run(); }) {}

bool PendingFiles::Add(InodeId directory, std::string_view name, InodeId file) {
  const Pending added{file, runtime_.Now() + kWait, runtime_.WallClock()};
  bool is_first = false;
  for (InodeId former = 0;;) {  // one that is none any more
    InodeId there = 0;
    {
      const MutexLock lock(mutex_);
      is_first = directories_.empty();
      const auto [it, is_new] = directories_[directory].try_emplace(std::string(name), added);
      there = it->second.file;
      if (!is_new && there == former) {
        ids_.erase(former);
        it->second = added;
        there = file;
      }
      if (there == file) ids_.insert(file);
    }
    if (there == file) break;
    if (IsPending(there)) return false;
    former = there;
  }
  if (is_first) thread_.Wake();
  return true;
}

InodeId PendingFiles::Find(InodeId directory, std::string_view name) {
  InodeId file = 0;
  {
    const MutexLock lock(mutex_);
    const auto in = directories_.find(directory);
    if (in == directories_.end()) return 0;
    const auto found = in->second.find(name);
    if (found == in->second.end()) return 0;
    file = found->second.file;
  }
  return IsPending(file) ? file : 0;
}

std::vector<DirectoryEntry> PendingFiles::List(InodeId directory, std::string_view after,
                                               bool with_attributes) {
  std::vector<DirectoryEntry> entries;
  {
    const MutexLock lock(mutex_);
    const auto in = directories_.find(directory);
    if (in == directories_.end()) return entries;
    for (auto it = in->second.upper_bound(after); it != in->second.end(); ++it) {
      entries.push_back({it->first, it->second.file, FileKind::kRegular, std::nullopt});
    }
  }
  std::erase_if(entries, [&](DirectoryEntry& entry) {
    const auto file = files_.Find(entry.inode);
    if (file == nullptr || !file->IsToAppear()) return true;
    if (with_attributes) entry.attributes = file->Describe({});
    return false;
  });
  return entries;
}

bool PendingFiles::MayBeOutside(InodeId directory) const {
  const MutexLock lock(mutex_);
  return directories_.size() > (directories_.contains(directory) ? 1u : 0u);
}

void PendingFiles::Complete(InodeId directory, Inode& inode) {
  std::vector<Pending> later;
  {
    const MutexLock lock(mutex_);
    const auto in = directories_.find(directory);
    if (in == directories_.end()) return;
    for (const auto& [name, pending] : in->second) {
      if (pending.created_at > inode.modified) later.push_back(pending);
    }
  }
  for (const Pending& pending : later) {
    if (pending.created_at <= inode.modified || !IsPending(pending.file)) continue;
    inode.modified = pending.created_at;
    inode.changed = std::max(inode.changed, pending.created_at);
  }
}

Result<bool> PendingFiles::Drop(InodeId directory, std::string_view name) {
  const InodeId file = Find(directory, name);
  if (file == 0) return false;
  Use use = Use::IfOpen(files_, file);
  return use ? use->Discard() : false;
}

Status PendingFiles::Settle(InodeId directory, std::string_view name) {
  const InodeId file = Find(directory, name);
  return file != 0 ? Commit(file) : Status();
}

Status PendingFiles::SettleFile(InodeId file) {
  {
    const MutexLock lock(mutex_);
    if (!ids_.contains(file)) return {};
  }
  return Commit(file);
}

Status PendingFiles::SettleIn(InodeId directory) {
  std::vector<InodeId> files;
  {
    const MutexLock lock(mutex_);
    const auto in = directories_.find(directory);
    if (in == directories_.end()) return {};
    for (const auto& [name, pending] : in->second) files.push_back(pending.file);
  }
  return CommitAll(files);
}

Status PendingFiles::SettleAll() {
  std::vector<InodeId> files;
  {
    const MutexLock lock(mutex_);
    files.assign(ids_.begin(), ids_.end());
  }
  return CommitAll(files);
}

bool PendingFiles::IsPending(InodeId file) {
  const auto state = files_.Find(file);
  return state != nullptr && state->IsToAppear();
}

Status PendingFiles::Commit(InodeId file, Asked asked) {
  Use use = Use::IfOpen(files_, file);
  if (!use || !use->IsToAppear()) return {};
  return asked == Asked::kYes ? use->Commit(/*durably=*/false) : use->Appear();
}

Status PendingFiles::CommitAll(const std::vector<InodeId>& files, Asked asked) {
  Mutex mutex;
  Status why;
  SideBySide(runtime_, "pending files", files.size(), kMostAtOnce, [&](size_t i) {
    const Status status = Commit(files[i], asked);
    const MutexLock lock(mutex);
    if (why.ok()) why = status;
  });
  return why;
}

Time PendingFiles::NextDue() const {
  Time next = Time::max();
  const MutexLock lock(mutex_);
  for (const auto& [directory, names] : directories_) {
    for (const auto& [name, pending] : names) next = std::min(next, pending.due);
  }
  return next;
}

// One whose commit fails is tried again for as long as somebody has it open.
std::vector<PendingFiles::Due> PendingFiles::TakeDue(Time until) {
  std::vector<Due> due;
  const MutexLock lock(mutex_);
  for (auto& [directory, names] : directories_) {
    for (auto& [name, pending] : names) {
      if (pending.due > until) continue;
      pending.due = until + kWait;
      due.push_back({directory, name, pending.file});
    }
  }
  return due;
}

void PendingFiles::Forget(const Due& due) {
  const MutexLock lock(mutex_);
  const auto in = directories_.find(due.directory);
  if (in == directories_.end()) return;
  const auto found = in->second.find(due.name);
  if (found == in->second.end() || found->second.file != due.file) return;
  ids_.erase(due.file);
  in->second.erase(found);
  if (in->second.empty()) directories_.erase(in);
}

void PendingFiles::CommitDue() {
  const std::vector<Due> due = TakeDue(runtime_.Now() + kTogether);
  std::vector<InodeId> files;
  for (const Due& it : due) {
    if (IsPending(it.file)) files.push_back(it.file);
  }
  const Status committed = CommitAll(files, Asked::kNo);
  if (!committed.ok()) {
    Log(LogLevel::kWarn, "new files are not there yet for other hosts",
        {{"files", files.size()}, {"why", committed}});
  }
  for (const Due& it : due) {
    if (!IsPending(it.file)) Forget(it);
  }
}

void PendingFiles::Run() {
  for (;;) {
    const Time next = NextDue();
    if (next == Time::max()) return;
    while (!thread_.IsEnding() && thread_.WaitUntil(next)) {
    }
    if (thread_.IsEnding()) return;
    CommitDue();
  }
}

std::vector<DirectoryEntry> MergeListing(std::vector<DirectoryEntry> listed,
                                         std::vector<DirectoryEntry> pending, bool is_end,
                                         size_t max) {
  if (pending.empty()) return listed;
  if (!is_end) {
    const std::string last = listed.empty() ? std::string() : listed.back().name;
    std::erase_if(pending, [&](const DirectoryEntry& entry) { return entry.name > last; });
  }
  std::vector<DirectoryEntry> merged;
  std::ranges::merge(listed, pending, std::back_inserter(merged), {}, &DirectoryEntry::name,
                     &DirectoryEntry::name);
  // (Of equal ones the one that was listed comes first.)
  const auto is_same = [](const DirectoryEntry& a, const DirectoryEntry& b) {
    return a.name == b.name;
  };
  merged.erase(std::unique(merged.begin(), merged.end(), is_same), merged.end());
  if (merged.size() > max) merged.resize(max);
  return merged;
}

}  // namespace pinstripe
