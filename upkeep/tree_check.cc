#include "upkeep/tree_check.h"

#include <algorithm>
#include <set>
#include <span>
#include <tuple>

#include "fs/names/inode.h"

namespace pinstripe {
namespace {

using Entries = std::vector<EntryFact>;

bool IsDirectory(const InodeFact* inode) {
  return inode != nullptr && inode->kind == FileKind::kDirectory;
}

// The entries that name an inode. Sorted by inode.
std::span<const EntryFact> NamesOf(const Entries& entries, InodeId id) {
  const auto [first, end] =
      std::equal_range(entries.begin(), entries.end(), EntryFact{.inode = id},
                       [](const EntryFact& a, const EntryFact& b) { return a.inode < b.inode; });
  return {first, end};
}

// The directories that can be reached from the root, in ascending order.
std::vector<InodeId> ReachableDirectories(const TreeFacts& facts) {
  std::vector<std::pair<InodeId, InodeId>> below;  // directory, directory in it
  for (const EntryFact& entry : facts.entries) {
    if (IsDirectory(facts.Find(entry.inode))) below.emplace_back(entry.directory, entry.inode);
  }
  std::sort(below.begin(), below.end());
  std::vector<InodeId> todo{kRootInode};
  std::vector<InodeId> reached;
  std::map<InodeId, bool> seen;
  while (!todo.empty()) {
    const InodeId directory = todo.back();
    todo.pop_back();
    if (std::exchange(seen[directory], true)) continue;
    reached.push_back(directory);
    auto at = std::lower_bound(below.begin(), below.end(), std::pair(directory, InodeId{0}));
    for (; at != below.end() && at->first == directory; ++at) todo.push_back(at->second);
  }
  std::sort(reached.begin(), reached.end());
  return reached;
}

class Judge {
 public:
  explicit Judge(const TreeFacts& facts) : facts_(facts) {}

  std::vector<Suspicion> Run() {
    if (!IsDirectory(facts_.Find(kRootInode))) {
      Suspect(TreeProblem::kNoRoot, InodeFact{.id = kRootInode}, {});
    }
    for (const EntryFact& entry : facts_.entries) CheckEntry(entry);
    const std::vector<InodeId> reached = ReachableDirectories(facts_);
    std::vector<InodeId> filled;  // directories with something in them that is not settled
    std::vector<InodeId> above;   // the directory of each entry that names one
    for (const EntryFact& entry : facts_.entries) {
      if (facts_.Find(entry.inode)) filled.push_back(entry.directory);
      if (entry.kind == FileKind::kDirectory) above.push_back(entry.directory);
    }
    std::sort(filled.begin(), filled.end());
    std::sort(above.begin(), above.end());
    const auto is_in = [](const std::vector<InodeId>& all, InodeId id) {
      return std::binary_search(all.begin(), all.end(), id);
    };
    for (const InodeFact& inode : facts_.inodes) {
      if (IsDirectory(&inode)) CheckCount(inode, above);
      if (inode.id == kRootInode) continue;
      if (inode.kind == FileKind::kDirectory) {
        CheckDirectory(inode, is_in(reached, inode.id), inode.is_filled || is_in(filled, inode.id));
      } else {
        CheckLinks(inode);
      }
    }
    return std::move(suspicions_);
  }

 private:
  void Suspect(TreeProblem problem, const InodeFact& inode, Entries entries) {
    suspicions_.push_back({problem, inode, std::move(entries)});
  }

  void CheckEntry(const EntryFact& entry) {
    const InodeFact* inode = facts_.Find(entry.inode);
    if (!facts_.Find(entry.directory)) {
      Suspect(TreeProblem::kEntryInNothing, inode ? *inode : InodeFact{}, {entry});
    } else if (!inode) {
      Suspect(TreeProblem::kEntryOfNothing, {}, {entry});
    } else if (inode->kind != entry.kind) {
      Suspect(TreeProblem::kWrongKind, *inode, {entry});
    }
  }

  // The names that lead somewhere: an entry in a directory that is gone is not a name.
  Entries GoodNames(InodeId id) const {
    Entries names;
    for (const EntryFact& entry : NamesOf(facts_.entries, id)) {
      if (facts_.Find(entry.directory)) names.push_back(entry);
    }
    return names;
  }

  void CheckLinks(const InodeFact& inode) {
    Entries names = GoodNames(inode.id);
    const size_t count = names.size() + (inode.parent != 0 ? 1 : 0);
    if (count == 0) return Suspect(TreeProblem::kOrphan, inode, {});
    if (count > inode.links) {
      Suspect(TreeProblem::kTooFewLinks, inode, std::move(names));
    } else if (count < inode.links) {
      Suspect(TreeProblem::kTooManyLinks, inode, std::move(names));
    }
  }

  void CheckCount(const InodeFact& inode, const std::vector<InodeId>& above) {
    const auto [first, end] = std::equal_range(above.begin(), above.end(), inode.id);
    if (inode.links != kLinksOfEmptyDirectory + static_cast<uint64_t>(end - first)) {
      Suspect(TreeProblem::kWrongCount, inode, {});
    }
  }

  void CheckDirectory(const InodeFact& inode, bool reached, bool filled) {
    Entries names = GoodNames(inode.id);
    if (names.size() > 1) return Suspect(TreeProblem::kTwoNames, inode, std::move(names));
    if (names.empty() && !filled) return Suspect(TreeProblem::kOrphan, inode, {});
    // Where the root could not be read, what is in it has no name that leads anywhere.
    if (!reached || names.empty()) {
      return Suspect(TreeProblem::kUnreachable, inode, std::move(names));
    }
    if (names.front().directory != inode.parent) {
      Suspect(TreeProblem::kWrongParent, inode, std::move(names));
    }
  }

  const TreeFacts& facts_;
  std::vector<Suspicion> suspicions_;
};

}  // namespace

void TreeFacts::SortInodes() {
  const auto by_id = [](const InodeFact& a, const InodeFact& b) { return a.id < b.id; };
  if (!std::is_sorted(inodes.begin(), inodes.end(), by_id)) {
    std::sort(inodes.begin(), inodes.end(), by_id);
  }
}

const InodeFact* TreeFacts::Find(InodeId id) const {
  const auto at = std::ranges::lower_bound(inodes, id, {}, &InodeFact::id);
  return at == inodes.end() || at->id != id ? nullptr : &*at;
}

InodeFact* TreeFacts::Find(InodeId id) {
  return const_cast<InodeFact*>(std::as_const(*this).Find(id));
}

void TreeFacts::Settle(size_t first) {
  const auto begin = entries.begin() + static_cast<ptrdiff_t>(first);
  std::sort(begin, entries.end(),
            [](const EntryFact& a, const EntryFact& b) { return a.inode < b.inode; });
  const auto settles = [this](const EntryFact& entry) {
    if (!entry.is_in_place || entry.kind == FileKind::kDirectory) return false;
    InodeFact* const inode = Find(entry.inode);
    if (inode == nullptr || inode->kind != entry.kind) return false;
    if (inode->links != 1 || inode->parent != 0) return false;
    InodeFact* const directory = Find(entry.directory);
    if (!IsDirectory(directory)) return false;
    inode->parent = entry.directory;
    directory->is_filled = true;
    ++settled;
    return true;
  };
  auto kept = begin;
  for (auto at = begin; at != entries.end();) {
    auto next = at + 1;
    while (next != entries.end() && next->inode == at->inode) ++next;
    if (next - at == 1 && settles(*at)) {
      at = next;
      continue;
    }
    for (; at != next; ++at, ++kept) {
      if (kept != at) *kept = std::move(*at);
    }
  }
  entries.erase(kept, entries.end());
}

bool IsLeftover(TreeProblem problem) { return problem >= TreeProblem::kEntryOfNothing; }

std::string_view NameOf(TreeProblem problem) {
  switch (problem) {
    case TreeProblem::kNoRoot: return "no-root";
    case TreeProblem::kWrongKind: return "wrong-kind";
    case TreeProblem::kTooFewLinks: return "too-few-links";
    case TreeProblem::kTwoNames: return "directory-with-two-names";
    case TreeProblem::kWrongParent: return "wrong-parent";
    case TreeProblem::kUnreachable: return "unreachable-directory";
    case TreeProblem::kEntryOfNothing: return "entry-of-nothing";
    case TreeProblem::kEntryInNothing: return "entry-in-nothing";
    case TreeProblem::kOrphan: return "orphan";
    case TreeProblem::kTooManyLinks: return "too-many-links";
    case TreeProblem::kWrongCount: return "wrong-number-of-subdirectories";
  }
  return "unknown";
}

std::string_view Describe(TreeProblem problem) {
  switch (problem) {
    case TreeProblem::kNoRoot: return "there is no root directory";
    case TreeProblem::kWrongKind: return "the entry calls its inode something else than it is";
    case TreeProblem::kTooFewLinks: return "it has more names than its inode counts";
    case TreeProblem::kTwoNames: return "a directory with more than one name";
    case TreeProblem::kWrongParent: return "its inode names another parent";
    case TreeProblem::kUnreachable: return "a directory that cannot be reached from the root";
    case TreeProblem::kEntryOfNothing: return "a name whose inode is gone";
    case TreeProblem::kEntryInNothing: return "an entry of a directory that is gone";
    case TreeProblem::kOrphan: return "an inode without a name";
    case TreeProblem::kTooManyLinks: return "its inode counts more names than it has";
    case TreeProblem::kWrongCount: return "its inode does not count its subdirectories right";
  }
  return "unknown";
}

std::vector<Suspicion> CheckTree(TreeFacts& facts) {
  facts.SortInodes();
  std::sort(facts.entries.begin(), facts.entries.end(), [](const EntryFact& a, const EntryFact& b) {
    return std::tie(a.inode, a.directory, a.name) < std::tie(b.inode, b.directory, b.name);
  });
  // In a directory that grows, one may have been read where it was and where it is.
  const auto is_same = [](const EntryFact& a, const EntryFact& b) {
    return std::tie(a.inode, a.directory, a.name) == std::tie(b.inode, b.directory, b.name);
  };
  facts.entries.erase(std::unique(facts.entries.begin(), facts.entries.end(), is_same),
                      facts.entries.end());
  return Judge(facts).Run();
}

std::string PathOf(const TreeFacts& facts, InodeId inode) {
  std::string path;
  std::set<InodeId> seen;  // names may form a circle
  while (inode != kRootInode) {
    const auto names = NamesOf(facts.entries, inode);
    const InodeFact* const fact = names.empty() ? facts.Find(inode) : nullptr;
    if (fact != nullptr && !IsDirectory(fact) && fact->parent != 0) {
      path = fmt::format("/(inode {:016x})", inode) + path;
      inode = fact->parent;
      continue;
    }
    if (names.empty() || !seen.insert(inode).second) {
      return fmt::format("(inode {:016x}){}", inode, path);
    }
    path = "/" + names.front().name + path;
    inode = names.front().directory;
  }
  return path.empty() ? "/" : path;
}

std::string PathOf(const TreeFacts& facts, const EntryFact& entry) {
  const std::string directory = PathOf(facts, entry.directory);
  return (directory == "/" ? "" : directory) + "/" + entry.name;
}

}  // namespace pinstripe
