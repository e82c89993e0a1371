// PendingFiles: files that were created here and that nobody else sees yet. Each one waits for its
// first commit, by close or fsync, so that inode, name and contents go to the drives at once
// (docs/decisions/0047-names-at-close.md). One that is not committed for about a second is
// committed here, and goes on as any other file.
//
// For this process they exist. So FileSystem asks here before it asks the drives, and has a file
// committed before it does anything to its name that is not simple:
//
//   looked up, listed, opened, changed   from memory: Find(), List()
//   unlinked                             it never comes to exist: Drop()
//   renamed, linked, replaced, synced    committed first: Settle() and so on
//
// What is said here of a file is looked up in the file itself, so that nobody need tell when it was
// committed, removed or closed. A name is forgotten when it is due. Thread-safe; whoever commits
// waits for the drives.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "fs/open_files.h"
#include "fs/types.h"

namespace pinstripe {

class PendingFiles {
 public:
  // How long a file waits here. What it takes to commit it comes on top: a second, while the drives
  // answer as they should.
  static constexpr Duration kWait = std::chrono::milliseconds(800);

  // `files` outlives it.
  explicit PendingFiles(OpenFiles& files);

  // A file that is open, and is to appear under that name with its first commit. False: another one
  // is.
  bool Add(InodeId directory, std::string_view name, InodeId file) EXCLUDES(mutex_);

  // The file that is to appear under that name; 0: none.
  InodeId Find(InodeId directory, std::string_view name) EXCLUDES(mutex_);
  // Those whose names follow `after`, in the order of their bytes.
  std::vector<DirectoryEntry> List(InodeId directory, std::string_view after, bool with_attributes)
      EXCLUDES(mutex_);
  // Whether there may be one in another directory than this one.
  bool MayBeOutside(InodeId directory) const EXCLUDES(mutex_);
  // The directory's inode with the time at which the last of them was created in it.
  void Complete(InodeId directory, Inode& inode) EXCLUDES(mutex_);

  // The file of that name never appears. False: there is none, or it has appeared. EIO: nobody
  // knows.
  Result<bool> Drop(InodeId directory, std::string_view name) EXCLUDES(mutex_);

  // Has it appear now, if it is here: that name, that file, all in that directory, or all. What
  // they fail with is what its close fails with: see FileSystem::CreateOptions.
  Status Settle(InodeId directory, std::string_view name);
  Status SettleFile(InodeId file) EXCLUDES(mutex_);
  Status SettleIn(InodeId directory) EXCLUDES(mutex_);
  Status SettleAll() EXCLUDES(mutex_);

 private:
  struct Pending {
    InodeId file = 0;
    Time due{};
    int64_t created_at = 0;  // nanoseconds since 1970
  };
  struct Due {
    InodeId directory = 0;
    std::string name;
    InodeId file = 0;
  };
  using Names = std::map<std::string, Pending, std::less<>>;

  bool IsPending(InodeId file);
  // FileState::Commit(), or Appear().
  enum class Asked { kYes, kNo };
  Status Commit(InodeId file, Asked asked = Asked::kYes);
  // Several at a time; the first failure.
  Status CommitAll(const std::vector<InodeId>& files, Asked asked = Asked::kYes);

  void Run();
  Time NextDue() const EXCLUDES(mutex_);
  void CommitDue() EXCLUDES(mutex_);
  std::vector<Due> TakeDue(Time until) EXCLUDES(mutex_);
  void Forget(const Due& due) EXCLUDES(mutex_);

  OpenFiles& files_;
  Runtime& runtime_;
  mutable Mutex mutex_;
  std::map<InodeId, Names> directories_ GUARDED_BY(mutex_);
  std::set<InodeId> ids_ GUARDED_BY(mutex_);  // of the files
  BackgroundThread thread_;                   // last: it uses the others
};

// A part of a listing with those files that belong in it: up to its last name, or all at its end;
// at most so many. What is in both is there once, as it was listed.
std::vector<DirectoryEntry> MergeListing(std::vector<DirectoryEntry> listed,
                                         std::vector<DirectoryEntry> pending, bool is_end,
                                         size_t max);

}  // namespace pinstripe
