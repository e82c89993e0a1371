// Merging: what becomes of a file when another host has committed it while we have changes that are
// not committed. Pure: it looks at three inodes, and reads and writes nothing.
//
// Ours is laid over theirs, as if we had made our changes after they had made theirs: their bytes
// are cut where we have truncated, become zeros where we have cleared, and are replaced where we
// have written. Attributes are theirs; a commit sets its own later.
//
// A block that we have stored already holds our bytes over those of `base`. It can be named as it
// is, if theirs has the same bytes below ours. Otherwise our bytes have to be taken out of it and
// laid over what is there now: such blocks are `relaid`.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "fs/files/interval_set.h"
#include "fs/names/inode.h"

namespace pinstripe {

// What a host did to a file since its last commit. What `now` says of the blocks that are named
// here is loaded.
struct LocalChanges {
  Inode now;  // size and contents with everything that was done, as far as it is stored
  uint64_t block_bytes = 0;
  // The blocks of which something is in memory or was stored, and where in them the bytes end that
  // were written; 0: none were.
  std::map<uint64_t, uint64_t> written_ends;
  bool size_set = false;           // by a truncation
  std::optional<uint64_t> cut_to;  // the least size that a truncation set; not 0
  IntervalSet cleared;             // blocks that were made holes as a whole
  uint64_t grown_to = 0;           // the size that it had without being written to
};

// What others committed. Loaded are the blocks that we have, the ends of those that we cleared, and
// those where we cut.
struct TheirChanges {
  const Inode& inode;
  // Where those of our blocks are that others have come to share, as far as it can be found out.
  const std::map<uint64_t, BlockPlace>& resolved;
};

struct Merged {
  Inode inode;
  std::set<uint64_t> relaid;  // of these, memory is to have the bytes that we wrote, and no others
  // Contents of theirs that were kept inline, which become the first bytes of block 0 in memory,
  // under what is there.
  std::string under_block0;
};

// False: blocks of both have to be put together, and they are not of the same size.
bool CanMerge(const LocalChanges& ours, const Inode& theirs);

// Of what can be merged. With `cut_to` 0 there is nothing to merge: all contents are ours.
Merged Merge(const Inode& base, const LocalChanges& ours, const TheirChanges& theirs);

}  // namespace pinstripe
