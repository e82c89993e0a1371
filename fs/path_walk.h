// PathWalk: goes through the tree by names, from the root, as POSIX says: a symbolic link on the
// way is followed, a target that begins with '/' starts at the root again, and ".." is the parent
// of what was reached. More than kMaxSymlinks links on one way are a loop (ELOOP).
//
// One walk is for one thread.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fs/names.h"

namespace pinstripe {

inline constexpr int kMaxSymlinks = 40;

class PathWalk {
 public:
  explicit PathWalk(Names& names) : names_(names) {}

  // The directory that was reached.
  InodeId at() const { return at_; }

  // Goes into a directory that is in it, or stands for one. ENOENT, ENOTDIR, ELOOP.
  Status Enter(std::string_view name);
  // Goes into one of these after the other, but not into the last.
  Status EnterAllButLast(const std::vector<std::string>& names);
  // Goes into a directory that is known to be in it.
  void Descend(InodeId directory) { at_ = directory; }

  // Where the name leads in the end: no symbolic link, and found or not.
  struct End {
    InodeId directory = 0;
    std::string name;  // empty: a directory that the way led up to, the root or by ".."
    Names::Place place;
  };
  Result<End> Follow(std::string_view name);

 private:
  Names& names_;
  InodeId at_ = kRootInode;
  int links_ = 0;
};

}  // namespace pinstripe
