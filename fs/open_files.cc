#include "fs/open_files.h"

#include <algorithm>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kMostRemovedDirectories = 256;
constexpr Duration kBlockIsIdleAfter = std::chrono::milliseconds(50);

}  // namespace

OpenFiles::OpenFiles(Cluster& cluster, const FileSystemOptions& options)
    : context_(cluster, options), reserving_(cluster.runtime()) {
  if (options.caretaker != nullptr) {
    caretaker_ =
        options.caretaker(cluster, {.is_changing = [this](InodeId id) { return IsChanging(id); },
                                    .mended = [this](InodeId id) { Reload(id); }});
  }
  context_.committed_short = [this](InodeId id) {
    if (caretaker_) caretaker_->CommittedShort(id);
  };
  context_.dispose = [this](InodeId id, const Inode& inode, uint64_t losses) {
    Dispose(id, inode, losses);
  };
  context_.reserve = [this](uint64_t bytes) { return Reserve(bytes); };
}

std::shared_ptr<FileState> OpenFiles::Take(InodeId id) {
  const MutexLock lock(mutex_);
  Open& open = files_[id];
  if (!open.state) open.state = std::make_shared<FileState>(context_, id);
  ++open.users;
  return open.state;
}

std::shared_ptr<FileState> OpenFiles::TakeNew(const Inode& inode,
                                              std::optional<Names::NewName> name) {
  const MutexLock lock(mutex_);
  InodeId id = 0;
  do {
    id = name ? context_.records.NewInodeIdBeside(name->directory, name->name)
              : context_.records.NewInodeId();
  } while (files_.contains(id));
  auto state = std::make_shared<FileState>(context_, id, inode, std::move(name));
  files_[id] = {state, 1};
  return state;
}

std::shared_ptr<FileState> OpenFiles::TakeIfOpen(InodeId id) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end()) return nullptr;
  ++found->second.users;
  return found->second.state;
}

void OpenFiles::Release(InodeId id) {
  std::shared_ptr<FileState> last;
  {
    const MutexLock lock(mutex_);
    const auto found = files_.find(id);
    if (--found->second.users > 0) return;
    last = found->second.state;
    files_.erase(found);
  }
  last->Abandon();
}

std::shared_ptr<FileState> OpenFiles::Find(InodeId id) {
  const MutexLock lock(mutex_);
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : found->second.state;
}

void OpenFiles::StoreExcess() {
  std::set<InodeId> failed;
  while (context_.budget.used() > context_.budget.limit()) {
    const auto [file, holding] = OldestBlock([&](InodeId id) { return !failed.contains(id); });
    if (!file) return;
    if (!file->Relieve().ok()) failed.insert(file->id());
  }
}

std::optional<Inode> OpenFiles::FindRemoved(InodeId id, const std::function<void(Inode&)>& change) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(removed_directories_, id, &std::pair<InodeId, Inode>::first);
  if (found == removed_directories_.end()) return std::nullopt;
  if (change) change(found->second);
  return found->second;
}

std::optional<Attributes> OpenFiles::DescribeRemoved(InodeId id,
                                                     const std::function<void(Inode&)>& change) {
  const std::optional<Inode> removed = FindRemoved(id, change);
  if (!removed) return std::nullopt;
  Attributes attributes = removed->Describe(id);
  attributes.links = 0;
  return attributes;
}

void OpenFiles::Dispose(InodeId id, const Inode& inode, uint64_t losses) {
  {
    const MutexLock lock(mutex_);
    const auto found = files_.find(id);
    if (found != files_.end()) return found->second.state->Removed(inode, losses);
    if (inode.kind == FileKind::kDirectory) {
      if (removed_directories_.size() == kMostRemovedDirectories) {
        removed_directories_.pop_front();
      }
      removed_directories_.emplace_back(id, inode);
    }
  }
  context_.reaper.AddRemoved(id, inode, losses);
}

bool OpenFiles::IsChanging(InodeId id) {
  const auto state = Find(id);
  return state != nullptr && state->HasChanges();
}

// Readers that have it open look where its shards are now. One that cannot does so when it misses
// them.
void OpenFiles::Reload(InodeId id) {
  if (const auto state = Find(id)) (void)state->Refresh();
}

std::vector<std::shared_ptr<FileState>> OpenFiles::All() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<FileState>> all;
  for (const auto& [id, open] : files_) all.push_back(open.state);
  return all;
}

template <typename Filter>
OpenFiles::OldBlock OpenFiles::OldestBlock(const Filter& is_considered) {
  OldBlock oldest;
  for (const auto& file : All()) {
    const auto holding = is_considered(file->id()) ? file->Oldest() : std::nullopt;
    if (!holding || (oldest.file && !holding->GoesBefore(oldest.holding))) continue;
    oldest = {file, *holding};
  }
  return oldest;
}

// In the order of coming, so that small requests do not starve a large one.
Result<MemoryBudget::Share> OpenFiles::Reserve(uint64_t bytes) {
  if (waiting_ == 0) {
    if (auto share = context_.budget.TryTake(bytes)) return *std::move(share);
  }
  ++waiting_;
  const OperationTrace::Waiting waiting(context_.cluster.runtime(), OperationTrace::Wait::kMemory);
  auto share = [&] {
    const Turn::Holder turn(reserving_);
    return WaitForRoom(bytes);
  }();
  --waiting_;
  return share;
}

// Stores blocks that are in memory, whichever file they belong to, until there is room.
Result<MemoryBudget::Share> OpenFiles::WaitForRoom(uint64_t bytes) {
  const auto signal = context_.cluster.runtime().NewSignal();
  const MemoryBudget::Watch watch(context_.budget, signal);
  Runtime& runtime = context_.cluster.runtime();
  std::map<InodeId, Status> failed;
  // Files at work on something, a commit say, which takes as long as it takes: they give back
  // what they can by themselves. Looked at again after a moment.
  std::set<InodeId> busy;
  for (;;) {
    if (auto share = context_.budget.TryTake(bytes)) return *std::move(share);
    const auto [file, holding] =
        OldestBlock([&](InodeId id) { return !failed.contains(id) && !busy.contains(id); });
    if (!file && !busy.empty()) {
      signal->WaitUntil(runtime.Now() + kBlockIsIdleAfter);
      busy.clear();
      continue;
    }
    if (!file && !failed.empty()) {
      return tl::unexpected(
          failed.begin()->second.Context("no memory left for what cannot be stored"));
    }
    // Without a block to store, what takes the room comes back by itself: reads, and what slow
    // drives are still being sent. A block that is just being filled is worth waiting for a
    // little: stored in parts it would have to be written more than once.
    const Time busy_until = holding.written_at + kBlockIsIdleAfter;
    if (!file) {
      signal->WaitUntil(Time::max());
    } else if (!holding.sent && busy_until > runtime.Now()) {
      signal->WaitUntil(busy_until);
    } else if (const auto status = file->TryRelieve(); !status) {
      busy.insert(file->id());
    } else if (!status->ok()) {
      failed.emplace(file->id(), *status);
    }
  }
}

}  // namespace pinstripe
