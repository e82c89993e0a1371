#include "fuse/listed_names.h"

#include <utility>

namespace pinstripe {

void ListedNames::Add(uint64_t position, Name name) {
  if (position >= first_ && position - first_ < names_.size()) {
    names_[position - first_] = std::move(name);
    return;
  }
  if (names_.empty() || position != first_ + names_.size()) {
    names_.clear();
    first_ = position;
  }
  names_.push_back(std::move(name));
  if (names_.size() <= most_names_) return;
  names_.pop_front();
  ++first_;
}

std::vector<ListedNames::Name> ListedNames::After(uint64_t position, size_t most, Time since,
                                                  uint64_t changes) const {
  std::vector<Name> found;
  for (uint64_t at = position + 1; found.size() < most; ++at) {
    if (at < first_ || at - first_ >= names_.size()) break;
    const Name& name = names_[at - first_];
    // Positions that follow one another may be of different listings.
    if (name.previous != at - 1 || name.changes != changes || name.listed_at <= since) break;
    found.push_back(name);
  }
  return found;
}

}  // namespace pinstripe
