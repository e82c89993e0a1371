// PathWalk: goes through the tree by names, from the root, as POSIX says: a symbolic link on the
// way is followed, a target that begins with '/' starts at the root again, and ".." is the parent
// of what was reached. More than kMaxSymlinks links on one way are a loop (ELOOP).
//
// Where the way has been gone before, all of it is asked for at once.
//
// One walk is for one thread.

#pragma once

#include <deque>
#include <span>
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
  // The same; and if it costs no waiting, the last one is looked up for who is going to do that
  // (Names::Recall).
  Status EnterParentOf(const std::vector<std::string>& names);
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
  Result<Names::Place> Look(const std::string& name);
  bool IsForeseen(std::string_view name) const;

  Names& names_;
  std::span<const std::string> coming_;  // what is asked for next, as far as that is known
  std::deque<Names::Foreseen> foreseen_;
  InodeId at_ = kRootInode;
  int links_ = 0;
};

}  // namespace pinstripe
