// DirectoryTimes: which directories' entries this process has changed, until the directories'
// inodes tell it. Who makes, links, renames or removes a file leaves its directory's inode alone:
// its time follows soon, once for all that happened meanwhile. So hosts that make files in one
// directory do not wait for each other, and a file costs its directory nothing.
//
// Within this process a directory's times are right at once: Complete() adds what is not noted yet.
// If the process dies before it has noted a time, the directory keeps the older one until somebody
// changes it again.
//
// Thread-safe.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "fs/names/records.h"

namespace pinstripe {

// That entries of a directory were changed, last at `at` by the wall clock.
struct EntriesChanged {
  int64_t at = 0;             // nanoseconds since 1970
  uint64_t seen_slot = 0;     // of its inode as it was found at that change, or before
  int64_t seen_modified = 0;  // likewise
};

// The directory's inode with that time; null: it tells it already. If somebody has given it another
// time since it was seen, that one stays, unless the clocks say that it was given before.
std::optional<Inode> WithTimeOf(const EntriesChanged& change, const Inode& inode);

class DirectoryTimes {
 public:
  // How long a change waits for others. Together with what it takes to note the times of
  // kMostWaiting directories, one after the other: 0.1 s, while the drives answer as they should.
  static constexpr Duration kWait = std::chrono::milliseconds(50);
  // Where more directories wait, whoever changes entries notes the time of his own himself.
  static constexpr size_t kMostWaiting = 64;

  // `records` outlives it.
  explicit DirectoryTimes(Records& records);
  ~DirectoryTimes();  // notes what is left, as long as the drives take it

  // An entry of the directory was changed just now. `seen` is its inode as it was found since, or
  // before. Asks the drives only where many directories wait.
  void Add(InodeId directory, const StoredInode& seen);

  // The directory's inode as it is with what is not noted yet. Any other inode: as it is.
  void Complete(InodeId id, Inode& inode) const;
  // What was completed was written, or the directory is gone.
  void Forget(InodeId directory, int64_t up_to);

  // What is known by now is noted after this.
  Status Note(InodeId directory);

 private:
  void Run();
  bool IsIdle() const;
  // What waits by now. What fails is told, and left to the next change of the directory.
  void NoteAll();
  bool NoteOrTell(InodeId directory);
  std::optional<EntriesChanged> Find(InodeId directory) const;
  Status Note(InodeId directory, const EntriesChanged& change);

  Records& records_;
  mutable Mutex mutex_;
  std::map<InodeId, EntriesChanged> waiting_ GUARDED_BY(mutex_);
  BackgroundThread thread_;  // last: it uses the others
};

}  // namespace pinstripe
