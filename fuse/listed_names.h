// ListedNames: what was just listed of an open directory. A program that goes to and fro in it
// (seekdir) is answered from here, and not by the drives each time.
//
// A name is told as long as the kernel would believe a look-up of it, and only if nobody has
// changed names through this mount since it was listed.
//
// Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "fs/file_system.h"

namespace pinstripe {

class ListedNames {
 public:
  struct Name {
    std::string name;
    InodeId inode = 0;
    FileKind kind = FileKind::kRegular;
    uint64_t previous = 0;  // position before it
    Time listed_at{};
    uint64_t changes = 0;  // how many changes of names had begun, and ended, when it was asked for
  };

  explicit ListedNames(size_t most_names = 4096) : most_names_(most_names) {}

  // A listing begins: positions may be given anew.
  void Clear() { names_.clear(); }
  // `position` is the one behind the name. Only the last ones of one sequence of positions are
  // kept.
  void Add(uint64_t position, Name name);
  // Up to `most` names that follow a position, listed after `since`, and since the last of
  // `changes` changes. None: the drives have to be asked.
  std::vector<Name> After(uint64_t position, size_t most, Time since, uint64_t changes) const;

 private:
  const size_t most_names_;
  uint64_t first_ = 0;      // the position behind the first
  std::deque<Name> names_;  // position by position
};

}  // namespace pinstripe
