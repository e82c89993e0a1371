// DirectoryPositions: gives every name that is handed out from an open directory a position. A
// listing can go on behind it however many entries have come and gone meanwhile (seekdir).
//
// Names come in ascending order. Most of them are kept as four bytes only, so a directory of a
// million entries takes a few megabytes while it is open. Some names are kept whole. To find an old
// position again, the caller lists from a whole name before it, and recognises which of the names
// there were handed out up to the position (Resume).
//
// Position 0 is the start, 1 is behind ".", 2 is behind "..". If nothing has changed, a listing
// that begins again gives the same names the same positions. If something has, earlier positions
// are forgotten, as rewinddir(3) allows.
//
// Pure; not thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pinstripe {

class DirectoryPositions {
 public:
  static constexpr uint64_t kStart = 0;
  static constexpr uint64_t kAfterDot = 1;
  static constexpr uint64_t kAfterDotDot = 2;

  // A listing begins at kStart.
  void Begin();

  bool Knows(uint64_t position) const { return position <= kAfterDotDot + sums_.size(); }

  // Where a position is that Knows() knows. If `passed` is empty it is behind `after`. Otherwise it
  // is behind the last of the names following `after` that has one of the sums in `passed`. The
  // search ends at a name that has the last of these sums or one of `later`, or that does not come
  // before `until` (if that is given).
  struct Resume {
    std::string after;  // empty: the beginning
    std::vector<uint32_t> passed;
    std::vector<uint32_t> later;
    std::string until;
  };
  Resume At(uint64_t position) const;
  static uint32_t SumOf(std::string_view name);

  // The position behind `name`. It is handed out behind the position `previous`, which is that of
  // `previous_name` (empty up to "..").
  uint64_t After(uint64_t previous, std::string_view previous_name, std::string_view name);

 private:
  // Names handed out one after the other, from the number `first` on (0 is at kAfterDotDot + 1).
  struct Chunk {
    size_t first = 0;
    std::string before;    // the name before the first; empty: the beginning
    bool follows = false;  // the chunk before this one: `before` is its last name
  };

  std::vector<uint32_t> sums_;      // of all names
  std::vector<Chunk> chunks_;       // ascending
  std::deque<std::string> recent_;  // the last names of all, whole
  bool forked_ = false;             // not all names are one listing in ascending order
};

}  // namespace pinstripe
