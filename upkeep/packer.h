// Packer: puts small files that have not changed for a while together into packs.
//
// A small file lies in its inode, or is kept as copies: as often as there are replicas. In a pack
// many of them are coded together, k+m, as a large file is. A pack is a keeper (fs/files/keepers.h)
// whose stripes have the contents of its files one behind the other, none of them across the end of
// a block. The map of a file names the pack, the block and where in it its bytes begin. So whoever
// repairs, drains, checks or collects sees a keeper like others.
//
// Directories are gone through in the order of names, each before those in it, and packs are filled
// in that order: who reads a directory's files by name reads a pack from its beginning to its end.
//
// Nothing of a pack is ever written again. A file whose bytes are changed gets contents of its own,
// and leaves the pack; so does one that is removed. A pack of which less than half is used by then
// is left by the others, too, which go into a new one, and then it goes.
//
// It may run beside clients and other packers at any time: a file that was changed since it was
// read stays as it is. A process that dies leaves a pack that some files do not name, which the
// collection puts right. docs/format.md, "Packs"; docs/decisions/0048-packs.md.
//
// Memory grows with the number of directories, of which it keeps number and path.
//
// Used by one thread, which has others do the changes of inodes.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/files/keepers.h"
#include "fs/files/layout.h"
#include "fs/files/reaper.h"
#include "fs/names/records.h"

namespace pinstripe {

struct PackReport {
  uint64_t packs = 0;       // that were made, or would be
  uint64_t files = 0;       // in them
  uint64_t bytes = 0;       // of these
  uint64_t repacked = 0;    // of these files, those that were in packs of which little was used
  uint64_t left_packs = 0;  // that these were in
  uint64_t too_young = 0;   // files that have changed since then
  uint64_t too_few = 0;     // files that would make no pack yet
  uint64_t too_few_bytes = 0;
  uint64_t changed = 0;                 // files that were changed while they were about to go in
  std::vector<std::string> not_packed;  // "path: why"; the rest went on
};

class Packer {
 public:
  struct Options {
    Duration older_than = std::chrono::hours(24);
    uint64_t least_bytes = 4 << 20;  // that are worth a pack; so are kMostFilesOfKeeper files
    uint64_t most_bytes = 64 << 20;
    size_t most_files = kMostFilesOfKeeper;
    // Smaller ones take less in the inode than their place in a pack would.
    uint64_t smallest_file = 512;
    uint64_t largest_file = kCellBytes;
    bool dry_run = false;
    size_t jobs = 32;  // inodes that are changed at once
    std::function<void(const PackReport& so_far)> progress;
    // Asked then, too. It may wait. False: Run() ends soon, and leaves the rest as it is.
    std::function<bool()> go_on;
    // While so much waits to be freed nothing is added to that, unless it has become no less within
    // two minutes: what is too much for a reaper is left to a collection.
    size_t most_to_free = 50'000;
    // False is for tests of the tests: what was changed meanwhile is packed as it was read.
    bool fences = true;
  };

  Packer(Cluster& cluster, Options options);
  ~Packer();

  // Everything below this directory. The cluster comes to use the feature "packs" with the first
  // one; a failure is that of UseFeature(). Everything in the report has happened, also then.
  Status Run(InodeId directory);
  const PackReport& report() const { return report_; }

  // Until what was packed does not lie where it was any more, a minute later. False: for some time
  // it has become no less, or this was stopped; a collection removes it.
  bool WaitUntilFree(const std::function<void(size_t waiting)>& progress = nullptr);

 private:
  struct Candidate {
    InodeId id = 0;
    StoredInode stored;
    std::string path;
    uint64_t block = 0;  // of the file
    uint32_t valid = 0;  // bytes of that
    InodeId leaves = 0;  // the pack in which it is; 0: in none
    uint64_t at = 0;     // block of the new pack
    uint32_t skip = 0;   // in that
  };
  // A pack that is being made.
  struct Batch;
  // One that there is.
  struct Known {
    bool is_sparse = false;  // a pack of which less than half is used
    uint64_t used_bytes = 0;
    uint64_t unused_bytes = 0;
  };

  Status PackDirectory(InodeId directory, const std::string& path,
                       std::vector<std::pair<InodeId, std::string>>& below);
  Status Consider(InodeId id, StoredInode stored, std::string path);
  // What of the file is in a pack that is to be left. Null: nothing.
  Result<std::optional<Candidate>> FindSparse(InodeId id, const StoredInode& stored);
  bool IsToBePacked(const Inode& inode);
  Result<Known> LookAtPack(InodeId keeper);
  Result<Buffer> ReadContents(const Candidate& candidate);
  Batch& BatchOf(const StripeLayout& layout);
  Status Add(Batch& batch, Candidate candidate, Bytes contents);
  Status StoreBlock(Batch& batch);
  Status Store(Batch& batch);
  Status WaitForStores(Batch& batch, size_t most_under_way);
  Status Finish(Batch& batch);
  Status MakePack(Batch& batch);
  void Abandon(Batch& batch, const Status& why);
  void Discard(Batch& batch);
  void Change(Batch& batch);
  void ChangeOne(Candidate& file, const Batch& batch);
  // Does not wait once it has waited in vain.
  void WaitForRoom();
  bool GoOn();
  void NotPacked(const std::string& path, const Status& why);

  Cluster& cluster_;
  const Options options_;
  const FileLayout layout_;  // of files that have none of their own
  const int64_t changed_before_;
  Records records_;
  Keepers keepers_{cluster_, records_};
  KeeperMaps maps_{cluster_, records_};
  Reaper reaper_{cluster_};
  std::map<InodeId, Known> known_;
  std::vector<std::unique_ptr<Batch>> batches_;  // one for each layout
  Status unusable_;                              // the cluster can have no packs
  bool has_waited_in_vain_ = false;
  PackReport report_;  // the threads' part of it under mutex_
  Mutex mutex_;
  std::vector<InodeId> foiled_ GUARDED_BY(mutex_);  // of the batch: they do not name the pack
};

}  // namespace pinstripe
