// TreeRemover: removes names and all that is in them, many at once, from the listings of the
// directories: `pinstripe rm`.
//
//   TreeRemover remover(runtime, fs, {.recursive = true});
//   const bool to_its_end = remover.Remove("/data/old");         // one path after the other
//   if (to_its_end) remover.WaitUntilFree();
//   remover.report();                                            // what was done so far
//
// Every name goes the way of each other removal (FileSystem::Unlink, RemoveDirectory), so others
// may work in the tree meanwhile, and remove the same. Symbolic links are removed and not followed.
// As with rm(1), a directory that is moved out of the tree while it is being emptied is emptied
// where it is. Others who put names into a directory for ever do not keep it from its end, unless
// they are faster than it is.
//
// Memory is bounded by the depth of the tree and not by the size of its directories: of each
// directory that is being emptied two pages of names are known at most. Depth takes no stack.
//
// Used by one thread, which has its own.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/file_system.h"

namespace pinstripe {

struct RemovalReport {
  uint64_t files = 0;        // names of what is no directory
  uint64_t directories = 0;  // removed
  uint64_t bytes = 0;     // that those files occupied which have no other name, net of redundancy
  uint64_t failures = 0;  // names that stay, without those above them
  uint64_t names() const { return files + directories; }
};

class TreeRemover {
 public:
  struct Options {
    bool recursive = false;       // directories, too, with all that is in them
    bool ignore_missing = false;  // a path that leads nowhere is no failure
    size_t jobs = 32;             // so many requests at once
    size_t page = 128;            // names that are listed at once
    // So often a directory is listed from its beginning, if others put names into it meanwhile.
    int most_scans = 8;
    // While the data of so many files waits to be freed no more are removed: what is too much for
    // the FileSystem would be left to a collection.
    size_t most_to_free = 50'000;
    // Asked by all threads before each step; it may wait. False: Remove() ends soon, and leaves the
    // rest as it is.
    std::function<bool()> go_on;
    // Both on the thread of the caller; `progress` several times a second.
    std::function<void(const RemovalReport& so_far)> progress;
    std::function<void(const std::string& path, const Status& why)> failed;
  };

  TreeRemover(Runtime& runtime, FileSystem& fs, Options options);
  ~TreeRemover();

  // What fails is told, and the rest goes on. False: it was stopped.
  bool Remove(std::string_view path);

  // Until the data of what was removed is gone from the drives, a minute later. `progress` is told
  // of how many files it is. False: some of it stays, for a collection to remove: it was stopped, a
  // drive did not take it, or for two minutes it has become no less.
  bool WaitUntilFree(const std::function<void(size_t files)>& progress = nullptr);

  const RemovalReport& report() const { return report_; }

 private:
  // One that is being emptied, and is to be removed then.
  struct Directory {
    Directory* parent = nullptr;  // it has its name in; null: the path names it
    InodeId in = 0;               // the same
    std::string name;
    InodeId inode = 0;
    std::string after;   // the last name that was listed
    size_t pending = 0;  // names that were listed and not removed yet
    bool is_being_listed = false;
    bool has_ended = false;   // there were no more names
    bool has_failed = false;  // something in it stays
    int scans = 1;
    std::list<Directory>::iterator self;
  };
  struct Step {
    enum class Kind { kList, kUnlink, kRemoveDirectory };
    Kind kind;
    Directory* directory;
    std::string name;    // of what is to be unlinked in it
    uint64_t bytes = 0;  // that this frees
  };
  struct Failure {
    std::string path;
    Status why;
  };

  // False: it was stopped.
  Result<bool> RemoveOne(std::string_view path);
  Result<FileSystem::Place> FindPlace(std::string_view path);
  bool RemoveTree(std::string_view path, const FileSystem::Place& place, InodeId inode);
  bool GoOn() { return options_.go_on == nullptr || options_.go_on(); }
  void Tell(const std::string& path, const Status& why);
  void TellOfProgress();

  // On the threads.
  void Work(size_t thread);
  std::optional<Step> NextStep(size_t thread);
  void Do(const Step& step);
  void List(Directory& directory);
  void Unlink(const Step& step);
  void RemoveDirectory(Directory& directory);
  // Does not wait once it has waited for two minutes in vain: data stays then, and names go on.
  bool WaitForRoom();

  void Push(Step step) REQUIRES(mutex_);
  void WakeOne() REQUIRES(mutex_);
  void TakeListed(Directory& directory, std::vector<DirectoryEntry> entries) REQUIRES(mutex_);
  // What is next for it, and for those above it that have waited for that.
  void Settle(Directory* directory) REQUIRES(mutex_);
  Directory* Leave(Directory& directory) REQUIRES(mutex_);
  void NoteFailure(Directory& directory, std::string_view name, Status why) REQUIRES(mutex_);
  std::string PathOf(const Directory& directory) const REQUIRES(mutex_);

  Runtime& runtime_;
  FileSystem& fs_;
  const Options options_;
  RemovalReport report_;  // of the caller's thread
  const uint64_t not_freed_before_;
  std::atomic<bool> has_waited_in_vain_ = false;
  const std::shared_ptr<Signal> changed_;

  Mutex mutex_;
  std::string top_ GUARDED_BY(mutex_);  // the path
  std::list<Directory> directories_ GUARDED_BY(mutex_);
  std::vector<Step> steps_ GUARDED_BY(mutex_);        // the last one is next
  std::vector<size_t> idle_ GUARDED_BY(mutex_);       // threads that wait for one
  std::vector<Failure> failures_ GUARDED_BY(mutex_);  // that were not told yet
  RemovalReport done_ GUARDED_BY(mutex_);
  bool is_stopped_ GUARDED_BY(mutex_) = false;

  std::deque<BackgroundThread> threads_;  // they go first
};

}  // namespace pinstripe
