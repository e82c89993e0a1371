// GrowthFacts: what a reader of all registers has to know of directories that have grown, or do
// (docs/format.md, "Directories that grow"): which entries are names where they lie, and which were
// moved and may have been missed where they went.
//
// Not thread-safe.

#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/map/drive_map.h"
#include "fs/names/records.h"
#include "upkeep/tree_check.h"

namespace pinstripe {

class GrowthFacts {
 public:
  // All directories before any entry.
  void TakeDirectory(InodeId id, const DirectoryParts& parts);
  // Whether it is a name, as it was read there. Says whether it is in place.
  bool TakeEntry(const DriveMap& map, const Entry& entry, EntryFact& fact);
  // Looks up those that say that they were moved, in directories that are there, once all was read.
  // What cannot be: why.
  std::vector<std::string> FindMoved(Records& records, std::vector<EntryFact>& entries) const;

  // Where a name lies that is in place.
  uint32_t GroupOf(const DriveMap& map, InodeId directory, std::string_view name) const;

  // As they were found.
  const std::map<InodeId, DirectoryParts>& grown() const { return grown_; }
  // Also of a directory that is lost: entries of it say so.
  bool SeemsGrown(InodeId directory) const { return seem_grown_.contains(directory); }
  // Entries that say that they were moved, without what they were.
  const std::vector<EntryFact>& moved() const { return moved_; }

  // For who keeps them, or puts them back: calls `each` with all of its parts.
  template <typename Each>
  void Visit(Each each) {
    each(grown_, seem_grown_, moved_);
  }

 private:
  std::map<InodeId, DirectoryParts> grown_;
  std::set<InodeId> seem_grown_;
  std::vector<EntryFact> moved_;
};

}  // namespace pinstripe
