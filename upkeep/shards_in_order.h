// ShardsInOrder: a StripeListing, one stripe after the other, that a process goes on with where
// another one was.
//
// Used by one thread. The drives outlive it.

#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/stripes/listing.h"
#include "upkeep/state_file.h"

namespace pinstripe {

void ArchiveStripe(StateFile& file, StripeId& id);

class ShardsInOrder {
 public:
  // As of StripeListing.
  ShardsInOrder(Runtime& runtime, const std::map<DriveId, Drive*>& drives, std::string prefix,
                Duration timeout)
      : listing_(runtime, drives, std::move(prefix), timeout) {}

  // The next stripe on the drives; null at the end.
  const ListedStripe* Peek();
  void Take() { ++at_; }  // goes on behind it

  // As of StripeListing, of those before as well.
  std::map<DriveId, std::string> unlisted() const;
  std::set<std::pair<DriveId, std::string>> strange_keys() const;

  // Where it is. What is read comes before the first Peek().
  void Archive(StateFile& file);

 private:
  StripeListing listing_;
  std::vector<ListedStripe> page_;
  size_t at_ = 0;  // in it
  bool all_listed_ = false;
  std::map<DriveId, std::string> unlisted_before_;
  std::set<std::pair<DriveId, std::string>> strange_before_;
};

}  // namespace pinstripe
