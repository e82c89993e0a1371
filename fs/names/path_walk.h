// PathWalk: goes through the tree by names, from the root, as POSIX says. It follows a symbolic
// link on the way. A target that begins with '/' starts at the root again, and ".." is the parent
// of what was reached. More than kMaxSymlinks links on one way are a loop (ELOOP).
//
// Where only a part of the tree is exported, the first names of each way lead to that directory. It
// is the root of the rest, as with RESOLVE_IN_ROOT of openat2(2): whatever the links say, nothing
// leads out of it. The parent of a directory is the one through which it was reached; nobody asks
// for another. So a directory that somebody moves out of the part while a walk is in it takes
// nobody along, and ".." costs nothing.
//
// Where the way has been gone before, all of it is asked for at once.
//
// One walk is for one thread.

#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fs/names/names.h"

namespace pinstripe {

inline constexpr int kMaxSymlinks = 40;

class PathWalk {
 public:
  // The first `above` names that are entered lead to what is exported. They have to be directories
  // themselves: a link among them, which somebody may have put there, is not followed (ELOOP).
  explicit PathWalk(Names& names, size_t above = 0) : names_(names), above_(above) {}

  // The directory that was reached.
  InodeId at() const { return way_.back(); }

  // Where a name leads in the end: no symbolic link, and found or not.
  struct End {
    InodeId directory = 0;
    std::string name;  // empty: a directory that the way led up to, the root or by ".."
    Names::Place place;
  };
  Result<End> Follow(std::string_view name);
  // What has the name itself, be it a symbolic link.
  Result<Names::Place> Look(const std::string& name);

  // Makes a directory in a place that was found free. EEXIST: it has been taken since.
  using Maker = std::function<Result<InodeId>(const End& free)>;

  // Goes into a directory that is in it, or stands for one. ENOENT, ENOTDIR, ELOOP. With `make`, a
  // directory that is missing is made. But where a link leads nothing is, nor above the exported
  // part.
  Status Enter(std::string_view name, const Maker& make = nullptr);
  // Goes into one of these after the other, but not into the last.
  Status EnterAllButLast(const std::vector<std::string>& names, const Maker& make = nullptr);
  // The same; and if it costs no waiting, the last one is looked up for who is going to do that
  // (Names::Recall).
  Status EnterParentOf(const std::vector<std::string>& names, const Maker& make = nullptr);

 private:
  bool IsForeseen(std::string_view name) const;
  void GoToRoot() { way_.resize(std::min(way_.size(), above_ + 1)); }
  void GoUp() {
    if (way_.size() > above_ + 1) way_.pop_back();
  }

  Names& names_;
  const size_t above_;
  std::span<const std::string> coming_;  // what is asked for next, as far as that is known
  std::deque<Names::Foreseen> foreseen_;
  std::vector<InodeId> way_{kRootInode};  // from the cluster's root down to at()
  int links_ = 0;
};

}  // namespace pinstripe
