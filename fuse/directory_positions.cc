#include "fuse/directory_positions.h"

#include <cassert>

namespace pinstripe {

std::string_view DirectoryPositions::NameBefore(uint64_t position) const {
  assert(Knows(position));
  return position <= kAfterDotDot ? std::string_view() : names_[position - kAfterDotDot - 1];
}

uint64_t DirectoryPositions::After(uint64_t position, std::string_view name) {
  assert(position >= kAfterDotDot && Knows(position));
  const uint64_t index = position - kAfterDotDot;
  if (index < names_.size() && names_[index] == name) return position + 1;
  // Positions already handed out keep their meaning; another name here gets a new one at the end.
  names_.emplace_back(name);
  return kAfterDotDot + names_.size();
}

}  // namespace pinstripe
