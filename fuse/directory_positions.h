// DirectoryPositions: gives every name that was handed out from an open directory a position, so that
// a listing can go on behind it however many entries have come and gone meanwhile (seekdir).
//
// Position 0 is the start, 1 is behind ".", 2 is behind "..", p + 2 is behind the p-th name. Pure; not
// thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinstripe {

class DirectoryPositions {
 public:
  static constexpr uint64_t kStart = 0;
  static constexpr uint64_t kAfterDot = 1;
  static constexpr uint64_t kAfterDotDot = 2;

  // Forgets all: the directory is read from its start again.
  void Restart() { names_.clear(); }

  bool Knows(uint64_t position) const { return position <= kAfterDotDot + names_.size(); }

  // The name behind which `position` lies; empty up to "..". Knows(position).
  std::string_view NameBefore(uint64_t position) const;

  // The position behind `name`, which was handed out at `position`.
  uint64_t After(uint64_t position, std::string_view name);

 private:
  std::vector<std::string> names_;
};

}  // namespace pinstripe
