// Keepers: how files share stripes.
//
// A keeper is an inode without a name, whose block map names stripes that were written for a file
// (its `object`), and which says in its section "keeping" which files may name it. These have
// shared runs in their block maps: "these blocks are those of that keeper". So what is repaired or
// moved is written down once, in the keeper's map, and a keeper goes, with its stripes, when no
// file names it any more.
//
// docs/format.md, "Shared blocks", says why no stripe goes that a file names: whoever takes a file
// out of the list (Leave) has read the keeper before the file, and has changed the file's inode
// since; whoever is about to name a keeper (Join) has read the file's inode before, and changes the
// keeper first. So one of the two always finds what it requires changed.
//
// A pack is a keeper whose stripes were written for itself, and have the contents of many small
// files, one behind the other (upkeep/packer.h). Each of these names its part of a block.
//
// Keepers: thread-safe. KeeperMaps: used by one thread.

#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/records.h"

namespace pinstripe {

// Where a shared block is, by the keeper's inode, of whose map that part is loaded. EIO: the keeper
// does not have it, which is damage.
Result<BlockPlace> ResolveShared(const BlockPlace& shared, uint64_t block, InodeId id,
                                 const Inode& keeper);

class KeeperMaps {
 public:
  static constexpr size_t kMostMaps = 64;
  KeeperMaps(Cluster& cluster, Records& records, size_t most_maps = kMostMaps)
      : cluster_(cluster), records_(records), most_maps_(most_maps) {}

  // Where the block is: of one that is not shared, as it is. EIO: the keeper is gone, or does not
  // have it.
  Result<BlockPlace> Resolve(const BlockPlace& place, uint64_t block);
  // The keepers as they were read; they may have changed since.
  void Forget() { keepers_.clear(); }
  void ForgetSome();   // where they are more than `most_maps`
  void ForgetPages();  // most of them

 private:
  Cluster& cluster_;
  Records& records_;
  const size_t most_maps_;
  std::map<InodeId, Inode> keepers_;  // without the lists of files
};

class Keepers {
 public:
  Keepers(Cluster& cluster, Records& records) : cluster_(cluster), records_(records) {}

  // A keeper of what `map`, of a file of `size` bytes, names, for `object` alone; not settled. It
  // is safe from power loss. `parity`: of its map's pages.
  Result<std::pair<InodeId, StoredInode>> Create(InodeId object, const BlockMap& map, uint64_t size,
                                                 const MapLimits& limits, int parity);
  // After the inode of the object was changed to name it: from now on the stripes are the keeper's.
  Status Settle(InodeId keeper);  // ENOENT: it is gone
  // Removes one that was not settled and that the object does certainly not name, as if there had
  // been none. If it cannot be removed, it is collected.
  void Discard(InodeId keeper, const StoredInode& stored);

  // A pack of its own number, whose stripes are stored and safe from power loss, for those files;
  // they name it after this. It is safe, too. EEXIST: a collection took it for dead.
  Result<StoredInode> CreatePack(InodeId id, const BlockMap& map, uint64_t size,
                                 std::vector<InodeId> files);
  static bool IsPack(InodeId id, const Inode& inode) {
    return inode.keeping && inode.keeping->object == id;
  }

  // That file is about to name the keeper. The caller has read the file's inode before, and changes
  // it conditionally after. ENOENT: the keeper is gone; EMLINK: too many files share it.
  Status Join(InodeId keeper, InodeId file);

  // What became of a keeper when a file was to leave it.
  struct Departure {
    bool stays = false;  // some of the files name it still
    Status failure;      // what kept some of the files from leaving, if others have left
    // It has been removed, as the last file has left it: its stripes may go, by this inode.
    std::optional<Inode> removed;
    uint64_t losses = 0;  // Records::CountLosses() before that
  };
  struct Leaving {
    InodeId file = 0;
    bool is_safely_removed = false;  // if it is gone, that is safe from power loss
  };
  // Takes files out of the keeper's list unless they name the keeper, and out of the files' inodes
  // what does not belong there any more. If the keeper was not settled it finds out what happened.
  // A failure: none of them has left.
  Result<Departure> Leave(InodeId keeper, std::vector<Leaving> files);
  Result<Departure> Leave(InodeId keeper, InodeId file) { return Leave(keeper, {{file}}); }

  // All of them, or those of some objects, by these.
  using ByObject = std::map<InodeId, std::vector<std::pair<InodeId, StoredInode>>>;
  static Result<ByObject> FindAll(Cluster& cluster, const std::set<InodeId>* objects = nullptr);

 private:
  // Conditionally, until nobody is faster. `edit` says whether there is anything to write.
  Status Change(InodeId keeper, const std::function<Result<bool>(Keeping&)>& edit);
  // What Leave() is to do next.
  enum class Step { kAgain, kStays, kGone };
  std::vector<Result<std::optional<StoredInode>>> FindSome(std::span<const Leaving> files);
  Result<Step> TakeOutOfFile(InodeId keeper, const StoredInode& kept, const Leaving& leaving,
                             std::optional<StoredInode> file);

  Cluster& cluster_;
  Records& records_;
};

}  // namespace pinstripe
