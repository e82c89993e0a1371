#include "fuse/directory_positions.h"

#include <cassert>

namespace pinstripe {

std::string_view DirectoryPositions::NameBefore(uint64_t position) const {
  assert(Knows(position));
  return position <= kAfterDotDot ? std::string_view() : names_[position - kAfterDotDot - 1];
}

uint64_t DirectoryPositions::After(std::string_view name) {
  if (const auto known = positions_.find(name); known != positions_.end()) return known->second;
  const uint64_t position = kAfterDotDot + names_.size() + 1;
  positions_.emplace(names_.emplace_back(name), position);
  return position;
}

}  // namespace pinstripe
