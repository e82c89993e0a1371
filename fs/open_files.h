// OpenFiles: which files are open in a FileSystem, and what they share: memory, and the looking
// after what is committed. When the memory budget is used up, it chooses the file whose dirty block
// is stored first (eviction). A file is there for as long as somebody uses it (Use, or a handle).
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fs/caretaker.h"
#include "fs/files/state.h"
#include "fs/options.h"
#include "fs/turn.h"

namespace pinstripe {

class OpenFiles {
 public:
  OpenFiles(Cluster& cluster, const FileSystemOptions& options);

  FileContext& context() { return context_; }
  Caretaker* caretaker() { return caretaker_.get(); }  // null: nobody looks after the files
  size_t FilesToMend() { return caretaker_ == nullptr ? 0 : caretaker_->waiting(); }

  // Adds a user of the file. Each Take is followed by one Release.
  std::shared_ptr<FileState> Take(InodeId id) EXCLUDES(mutex_);
  std::shared_ptr<FileState> TakeNew(const Inode& inode, std::optional<Names::NewName> name)
      EXCLUDES(mutex_);
  // Null when it is not open; else as Take().
  std::shared_ptr<FileState> TakeIfOpen(InodeId id) EXCLUDES(mutex_);
  void Release(InodeId id) EXCLUDES(mutex_);

  // Null when it is not open.
  std::shared_ptr<FileState> Find(InodeId id) EXCLUDES(mutex_);

  // Stores what is in memory until the budget is kept, or what is left cannot be stored.
  void StoreExcess();

  // The rest of a directory that was removed here, one of the last, for a process that still has it
  // open, or is in it. It may be changed by that. Null: it was none of them.
  std::optional<Inode> FindRemoved(InodeId id, const std::function<void(Inode&)>& change = {})
      EXCLUDES(mutex_);
  std::optional<Attributes> DescribeRemoved(InodeId id,
                                            const std::function<void(Inode&)>& change = {});

 private:
  struct Open {
    std::shared_ptr<FileState> state;
    int users = 0;
  };
  struct OldBlock {
    std::shared_ptr<FileState> file;  // null: there is none
    DirtyBlocks::Holding holding;
  };

  void Dispose(InodeId id, const Inode& inode, uint64_t losses) EXCLUDES(mutex_);
  bool IsChanging(InodeId id);
  void Reload(InodeId id);
  std::vector<std::shared_ptr<FileState>> All() EXCLUDES(mutex_);
  template <typename Filter>
  OldBlock OldestBlock(const Filter& is_considered);
  Result<MemoryBudget::Share> Reserve(uint64_t bytes);
  Result<MemoryBudget::Share> WaitForRoom(uint64_t bytes);

  FileContext context_;
  Turn reserving_;  // held while files' turns are taken, and never taken while one is held
  std::atomic<int> waiting_ = 0;
  Mutex mutex_;
  std::map<InodeId, Open> files_ GUARDED_BY(mutex_);
  std::deque<std::pair<InodeId, Inode>> removed_directories_ GUARDED_BY(mutex_);  // the last ones
  std::unique_ptr<Caretaker> caretaker_;  // goes first: its threads look at the files
};

// A user of a file for the time of one call.
class Use {
 public:
  Use(OpenFiles& files, InodeId id) : Use(files, id, files.Take(id)) {}
  static Use IfOpen(OpenFiles& files, InodeId id) { return {files, id, files.TakeIfOpen(id)}; }
  ~Use() {
    if (state_ != nullptr) files_.Release(id_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  explicit operator bool() const { return state_ != nullptr; }
  FileState* operator->() { return state_.get(); }

 private:
  Use(OpenFiles& files, InodeId id, std::shared_ptr<FileState> state)
      : files_(files), id_(id), state_(std::move(state)) {}

  OpenFiles& files_;
  const InodeId id_;
  const std::shared_ptr<FileState> state_;
};

}  // namespace pinstripe
