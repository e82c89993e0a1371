// SettledNames: reads again the names that TreeFacts does not keep, where they are to be told.
//
// For one thread.

#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/records.h"
#include "upkeep/growth_facts.h"
#include "upkeep/tree_check.h"

namespace pinstripe {

class SettledNames {
 public:
  // `go_on`: asked now and then; false: what is left to be read is not. Null: true.
  SettledNames(Cluster& cluster, Records& records, const GrowthFacts& growth,
               std::function<bool()> go_on)
      : cluster_(cluster), records_(records), growth_(growth), go_on_(std::move(go_on)) {}

  // Puts the settled names of those files back that have others, too. What cannot be read stays
  // settled: why.
  std::vector<std::string> PutBack(TreeFacts& facts);

  // Where these are in the tree. A name that cannot be read is told as PathOf() does.
  std::map<InodeId, std::string> Paths(const TreeFacts& facts, const std::set<InodeId>& ids);

 private:
  using Files = std::set<InodeId>;
  using Wanted = std::map<InodeId, Files>;  // by their directories
  using Names = std::map<InodeId, EntryFact>;

  // `take` says whether it wants more.
  Status FindIn(InodeId directory, const Files& files, const std::function<bool(EntryFact)>& take);
  // Those that still have the name that was given to them by who made or linked them.
  void FindAsGiven(std::span<const InodeId> files, Names& names);

  Cluster& cluster_;
  Records& records_;
  const GrowthFacts& growth_;
  const std::function<bool()> go_on_;
};

}  // namespace pinstripe
