// StripeListing: which shards lie on which drives, found out by listing the keys of all drives, and
// nothing else. For those who compare what is there with what should be there.
//
// The shards of all drives are merged in the order of their keys, so that all copies of a stripe
// come together; a page of keys per drive is in memory. Shards that come or go meanwhile may or may
// not be seen.
//
// Used by one thread. The drives outlive it.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct ListedStripe {
  StripeId id;
  std::vector<ShardCopy> copies;  // ascending by shard, then drive
};

class StripeListing {
 public:
  // `prefix` is that of all keys of the cluster; `timeout` is for one request, of which three are
  // tried before a drive is given up. With an `object`, only the shards of that one.
  StripeListing(Runtime& runtime, const std::map<DriveId, Drive*>& drives, std::string prefix,
                Duration timeout, std::optional<uint64_t> object = std::nullopt);

  // Before the first Next(): with nothing before this one.
  void StartAt(const StripeId& first);

  // The next stripes in the order of object, block and write id, at least one unless there are no
  // more.
  std::vector<ListedStripe> Next();

  // Drives that could not be listed to their end, and why. Shards beyond these are not known, and a
  // stripe that seems to lack a shard may have it there.
  const std::map<DriveId, Status>& unlisted() const { return unlisted_; }

  // Keys among the shards that are none, such as no version of this program writes.
  struct StrangeKey {
    DriveId drive = 0;
    std::string key;
  };
  const std::vector<StrangeKey>& strange_keys() const { return strange_keys_; }

 private:
  struct Cursor {
    Drive* drive = nullptr;
    std::string next;    // where to go on
    bool ended = false;  // nothing is left, or it was given up
    int failures = 0;    // of the request that is tried now
    size_t held = 0;     // of its shards, those that are in pending_
  };
  void AskForMore();
  void Take(DriveId id, const Result<std::vector<std::string>>& keys);
  std::vector<ListedStripe> TakeComplete();

  Runtime& runtime_;
  const std::string prefix_;
  const std::string first_;
  const std::string last_;
  const Duration timeout_;
  std::map<DriveId, Cursor> cursors_;
  // By their keys without the shard: stripes of which more copies may come.
  std::map<std::string, ListedStripe> pending_;
  std::map<DriveId, Status> unlisted_;
  std::vector<StrangeKey> strange_keys_;
};

}  // namespace pinstripe
