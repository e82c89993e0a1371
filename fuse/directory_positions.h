// DirectoryPositions: gives every name that is handed out from an open directory a position, so
// that a listing can go on behind it however many entries have come and gone meanwhile (seekdir).
//
// Names come in ascending order. Only four bytes are kept of most of them, so that a directory of a
// million entries takes a few megabytes while it is open: a position that was handed out long ago
// is found again by listing from a name before it, of those that are kept whole, and recognising
// which of the names there were handed out up to it (Resume).
//
// Position 0 is the start, 1 is behind ".", 2 is behind "..". A listing that is begun again gives
// the same names the same positions if nothing has changed; if something has, positions from before
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

  // Where a position is, which Knows(). If `passed` is empty it is behind `after`. Else it is
  // behind the last of the names following `after` that bears one of the sums in `passed`; one that
  // bears the last of these, or one of `later`, or is `until` (if that is given) or follows it,
  // ends the search.
  struct Resume {
    std::string after;  // empty: the beginning
    std::vector<uint32_t> passed;
    std::vector<uint32_t> later;
    std::string until;
  };
  Resume At(uint64_t position) const;
  static uint32_t SumOf(std::string_view name);

  // The position behind `name`, which was handed out behind `previous`, where `previous_name` is
  // (empty up to "..").
  uint64_t After(uint64_t previous, std::string_view previous_name, std::string_view name);

 private:
  // Names handed out one after the other, from the number `first` on (0: that at kAfterDotDot + 1).
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
