// UnsafeStripes: the stripes of one open file that are not known to be safe from power loss, and
// how they become so: the drives that have them are flushed.
//
// Used under the file's turn alone.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "fs/files/interval_set.h"
#include "fs/names/inode.h"

namespace pinstripe {

class UnsafeStripes {
 public:
  UnsafeStripes(Cluster& cluster, InodeId inode) : cluster_(cluster), inode_(inode) {}

  // Blocks, or pages of the map, of which nobody knows that they are safe.
  void Add(uint64_t first, uint64_t end) { blocks_.Add(first, end); }

  // A stripe that was written through: nobody has to flush it.
  void NoteDurable(uint64_t block, const WriteId& write);

  // Called before a stripe is sent. The drives that are lost between the first stripe and a flush
  // are compared.
  void NoteLosses();
  // Everything that was sent before is safe, or was stored again since these.
  void ForgetLosses(const DriveLosses& now) { losses_ = now; }

  // Blocks of which too few shards are on drives that could be flushed, and an error that says so;
  // none: all is well.
  struct Unsafe {
    std::vector<uint64_t> blocks;
    Status why;
  };
  // Flushes those that the inode does not name as it is committed, with this map. The others are no
  // less safe than before.
  Result<Unsafe> FlushNew(const BlockMap& committed, Inode& inode);
  // Flushes all that this inode names. If all is well, nothing is unsafe any more.
  Result<Unsafe> FlushAll(Inode& inode);

 private:
  class Unflushed;

  Result<Unsafe> FlushWithoutForgetting(Inode& inode);
  Status AddUnflushed(const BlockMap& map, Unflushed& unflushed) const;
  std::set<DriveId> Flush(const std::set<DriveId>& drives);

  Cluster& cluster_;
  const InodeId inode_;
  static constexpr size_t kMostDurable = 1024;  // that are remembered; the others are flushed

  IntervalSet blocks_;
  std::set<std::pair<uint64_t, WriteId>> durable_;  // since all was flushed
  std::optional<DriveLosses> losses_;  // before the first of them that we wrote was sent
};

}  // namespace pinstripe
