// Recovery: what is left of an inode that is lost, as a file again. Shards describe themselves: of
// which object and block they are, by which write, how they were coded, how long the block is. So
// for each block the newest write is taken that can be read; blocks without shards are holes.
//
// It tells what it cannot know, instead of guessing: which of the writes was committed; where in a
// block small overwrites belong, unless a copy of the inode is left that says so; mode and owner
// without such a copy. Nothing of what is left is removed.
//
// A directory is made anew, with the inode number that it had, so what is in it is there again.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "fs/file_system.h"

namespace pinstripe {

struct RecoverReport {
  bool is_directory = false;
  uint64_t bytes = 0;             // size of the file
  uint64_t blocks = 0;            // brought back
  uint64_t entries = 0;           // of the directory
  bool had_copy = false;          // of the inode: mode, owner and size are its
  std::vector<std::string> lost;  // what could not be brought back, or may be older than it was
};

using RecoverProgress = std::function<void(std::string_view phase, double done)>;

// As a new file at `path`. `fs` is open on `cluster`. Nothing is there afterwards if it fails.
//   EEXIST        something has that name; or the inode is there
//   ENOENT        the inode was removed; or nothing is left of it; or the directory is not there
//   EHOSTUNREACH  drives are away, so it cannot be told whether it is lost
//   EINVAL        a directory has its name still, and that is not `path`
// and others as of FileSystem::Create and of writing.
Result<RecoverReport> RecoverInode(Cluster& cluster, FileSystem& fs, InodeId id,
                                   std::string_view path, const RecoverProgress& progress);

}  // namespace pinstripe
