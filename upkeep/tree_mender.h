// TreeMender: puts right in the tree of names what a loss of power may have left and no reader puts
// right by the way (docs/format.md, "What a loss of power leaves"). That is a directory that lost
// its name and has something in it, a count of names that is too low, or a wrong parent.
//
// It may run beside clients, and beside others of its kind, at any time: every change requires what
// was found, as it was found. It removes nothing. A directory gets the name again that it was made
// with; where that is not free, or its directory is gone, one in `/lost+found`, which is then made
// if need be: its inode, 16 hexadecimal digits.
//
// Used by one thread.

#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/names.h"
#include "upkeep/checker.h"

namespace pinstripe {

inline constexpr std::string_view kLostAndFound = "lost+found";

// Whether mending can do something about it; by its name, as in a Finding, too.
bool IsMendable(TreeProblem problem);
bool IsMendable(std::string_view problem);

struct TreeMendReport {
  std::vector<std::string> mended;      // what was done, each: "/a/b: it has its name again"
  std::vector<std::string> not_mended;  // each with the reason
};

class TreeMender {
 public:
  using Progress = std::function<void(std::string_view phase, double done)>;

  // `go_on` as Checker::Options has it.
  explicit TreeMender(Cluster& cluster, Progress progress = {},
                      std::function<bool()> go_on = nullptr);

  // Everything in the report has happened, also if more is left.
  TreeMendReport Run();

 private:
  Status Mend(const Checker& checker, const Suspicion& found);
  Status GiveName(InodeId directory);
  // Null: it is not free, or not there.
  Result<std::optional<GivenName>> FormerPlace(InodeId directory);
  Result<InodeId> LostAndFound();
  Status Change(const Suspicion& found, const std::function<void(Inode&)>& edit);

  Cluster& cluster_;
  const Progress progress_;
  const std::function<bool()> go_on_;
  Records records_;
  Names names_;
  std::set<InodeId> nameless_;  // directories that were found so, and still are
  TreeMendReport report_;
};

}  // namespace pinstripe
