// Collector: removes what clients left behind that died between two requests: inodes without a
// name, entries that lead nowhere, stripes that no file names.
//
// It may run beside clients, and beside other collectors, at any time: docs/format.md,
// "Collecting", says why nothing is lost that way. Nothing younger than `older_than` is touched. If
// it cannot decide, because a drive is away or something is damaged, it leaves things as they are.
// So does what is left of inodes that are lost (upkeep/lost_inodes.h), until somebody says that it
// is to go.
//
// At the end it erases what removed inodes and names have left: see docs/format.md, "Erasing".
// Traces of names in directories that still exist can go only in a later epoch of the drive map. If
// there are many, it makes a new epoch with the same drives.
//
// Used by one thread.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "upkeep/checker.h"

namespace pinstripe {

// Nothing that was removed is erased before this, however young what is collected may be. By then
// the process that was changing it has ended. A client that tried to write an inode first, and did
// not learn whether it did, has given up (kFirstWriteRetries).
inline constexpr Duration kLeastTombstoneAge = std::chrono::hours(24);

struct CollectReport {
  uint64_t inodes = 0;  // removed, or to be removed if nothing is
  uint64_t entries = 0;
  uint64_t shards = 0;
  uint64_t bytes = 0;                      // of these; a guess by some of them
  uint64_t counts = 0;                     // of subdirectories, made right
  uint64_t tombstones = 0;                 // erased, or to be erased
  uint64_t waiting = 0;                    // tombstones that may go in the next epoch
  uint64_t too_young = 0;                  // of all these, those that stay for now
  std::vector<std::string> lost;           // what stays because its inode is lost: "path: ..."
  std::vector<std::string> unfinished;     // or may be, and may as well never have been there
  std::vector<std::string> not_collected;  // what stays for another reason
};

class Collector {
 public:
  struct Options {
    Duration older_than = std::chrono::hours(7 * 24);
    bool dry_run = false;  // says what it would do
    bool lost = false;     // removes what is left of inodes that are lost, too
    // How many names' tombstones are worth a new epoch, of which every process has to hear.
    uint64_t renew_epoch_for = 1000;
    // For storms that do not last for days: of names in directories that are there.
    Duration least_age_of_names = kLeastTombstoneAge;
    std::function<void(std::string_view phase, double done)> progress;
    // Asked then, too. It may wait. False: Run() ends soon, and leaves the rest as it is.
    std::function<bool()> go_on;
    CheckState* state = nullptr;  // as of Checker::Options
    bool fences = true;  // false is for tests of the tests: whoever is late loses what was there
  };

  Collector(Cluster& cluster, Options options);

  // Everything in the report has happened, also if this fails later on.
  const CollectReport& Run();

 private:
  bool OldEnough(int64_t time) const;
  bool GoOn(std::string_view phase, double done);
  void Keep(std::string what, const Status& why);

  void CollectLost(const Checker& checker);
  // Why something may belong to an inode that is lost. Success: nothing does.
  Status CheckDirectories(const Checker& checker) const;
  Status CheckKeepers(const Checker& checker) const;
  void GoOnWithGrowth(const Checker& checker);
  Status CollectEntry(const EntryFact& entry);
  Status CollectOrphan(const Suspicion& suspicion);
  Status CollectCount(InodeId directory);

  // The stripes of one object, in the order of blocks.
  Status CollectStripes(std::span<const ListedStripe> stripes);
  Status CollectUnnamed(InodeId object, StoredInode stored, std::span<const ListedStripe> stripes);
  Status CollectStrays(InodeId object, const ListedStripe& stripe);
  void DeleteAll(std::span<const ListedStripe> stripes);
  // Those that keepers do not name either.
  void DeleteUnnamed(const Status& may_be_kept);
  Status DeleteUnkept(std::span<const ListedStripe> stripes, Keepers::ByObject& keepers);
  void CollectKeepers(const Checker& checker);
  Status CollectShares(InodeId keeper, const std::vector<InodeId>& files, const Checker& checker);

  void EraseTombstones();
  bool EraseInAllGroups();
  Result<std::vector<bool>> MayErase(std::span<const Tombstone> tombstones);

  Cluster& cluster_;
  const Options options_;
  const int64_t now_;
  Records records_;
  Names names_;
  Keepers keepers_{cluster_, records_};
  CollectReport report_;
  std::vector<std::vector<ListedStripe>> unnamed_;  // of an object each; fenced
  std::map<InodeId, bool> gone_;                    // directories that tombstones have asked for
};

}  // namespace pinstripe
