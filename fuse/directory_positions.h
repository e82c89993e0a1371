// DirectoryPositions: gives every name that is handed out from an open directory one position, for
// as long as the directory is open, so that a listing can go on behind it however many entries have
// come and gone meanwhile (seekdir).
//
// Position 0 is the start, 1 is behind ".", 2 is behind "..", p + 2 is behind the p-th name that
// was handed out. Pure; not thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pinstripe {

class DirectoryPositions {
 public:
  static constexpr uint64_t kStart = 0;
  static constexpr uint64_t kAfterDot = 1;
  static constexpr uint64_t kAfterDotDot = 2;

  bool Knows(uint64_t position) const { return position <= kAfterDotDot + names_.size(); }

  // The name behind which `position` lies; empty up to "..". Knows(position).
  std::string_view NameBefore(uint64_t position) const;

  // The position behind `name`.
  uint64_t After(std::string_view name);

 private:
  std::deque<std::string> names_;  // they do not move
  std::unordered_map<std::string_view, uint64_t> positions_;
};

}  // namespace pinstripe
