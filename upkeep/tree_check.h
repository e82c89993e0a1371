// TreeCheck: from everything that a namespace consists of to what is wrong with it. A pure function
// over facts that somebody has read (upkeep/checker.h).
//
// Facts that were read one after the other while clients work need not fit together, so what comes
// out is a suspicion. Before it is reported, the registers that it is about are read once more.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fs/types.h"

namespace pinstripe {

struct InodeFact {
  InodeId id = 0;
  uint64_t slot = 0;
  // Of a directory: as its inode says. Of anything else: the directory of its name, if that is
  // settled, and 0 if not.
  InodeId parent = 0;
  uint32_t links = 1;  // see Inode
  FileKind kind = FileKind::kRegular;
  bool has_data = false;   // it names blocks
  bool is_filled = false;  // of a directory: a settled name is in it
};

struct EntryFact {
  InodeId directory = 0;
  std::string name;
  InodeId inode = 0;
  FileKind kind = FileKind::kRegular;
  bool is_in_place = false;  // where this directory has its names, and nobody moves them
  uint32_t group = 0;        // in which it lies
};

// A name takes a hundred bytes, and most names are the only one of a file that is as they say. So
// these are settled: nothing is kept of such a name but what its file's inode and its directory's
// have in InodeFact.
struct TreeFacts {
  std::deque<InodeFact> inodes;    // in the order of their numbers, from SortInodes() on
  std::vector<EntryFact> entries;  // without those that are settled
  uint64_t settled = 0;

  void SortInodes();
  InodeFact* Find(InodeId id);
  const InodeFact* Find(InodeId id) const;
  // Settles what can be, of the entries from `first` on. All inodes were read before them.
  void Settle(size_t first);
};

enum class TreeProblem {
  // Errors: states that must not be, whoever died when.
  kNoRoot,
  kWrongKind,    // an entry calls its inode something else than it is
  kTooFewLinks,  // more names than links: the data would go with one of them
  kTwoNames,     // of a directory
  kWrongParent,  // a directory's inode names another parent than the one that has its entry
  kUnreachable,  // no way leads from the root to this directory, and it is not empty
  // Leftovers of clients that died. They harm nobody, and can be collected.
  kEntryOfNothing,  // its inode is gone
  kEntryInNothing,  // its directory is gone
  kOrphan,          // an inode without a name
  kTooManyLinks,
  kWrongCount,  // of subdirectories; or they were not counted
};

// Whether it is one of the second kind.
bool IsLeftover(TreeProblem problem);
// In a few words, for people; and as one word, for programs.
std::string_view Describe(TreeProblem problem);
std::string_view NameOf(TreeProblem problem);

struct Suspicion {
  TreeProblem problem;
  InodeFact inode;                 // id 0: the entry's inode is gone
  std::vector<EntryFact> entries;  // those that it is about
};

// Sorts the facts. Linear in their number but for that. Of a file that has a settled name and
// others, only the others can be told.
std::vector<Suspicion> CheckTree(TreeFacts& facts);

// Where in the tree something is, as far as the facts lead: "/a/b", "(inode 00ab...)/b" below what
// has no name, or "/a/(inode 00ab...)" where the name is settled. CheckTree() came before.
std::string PathOf(const TreeFacts& facts, InodeId inode);
std::string PathOf(const TreeFacts& facts, const EntryFact& entry);

}  // namespace pinstripe
