// Remembers for recently used registers which state each replica was last known to be in, so that a
// change that follows a read, or another change, needs one round trip. It may be stale. The puts
// made from it are conditional, so that costs a retry and nothing else.
//
// Thread-safe; bounded. Shared with requests that may still be on their way when the store is gone:
// whose put fails forgets what was remembered.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "cluster/registers/record.h"

namespace pinstripe {

struct RememberedRegister {
  struct Replica {
    Ballot promised;
    Ballot accepted;
  };
  uint64_t slot = 0;          // that is known to be chosen, with the nonces of its value
  uint64_t visible_slot = 0;  // by which the register's users know it
  uint64_t floor = 0;         // of the epoch in which a majority said so
  Nonce nonce;
  std::vector<uint64_t> earlier;
  std::vector<std::optional<Replica>> replicas;  // null where it was not known
};

class RegisterCache {
 public:
  // Keeps up to about `entries` registers; those that were not used longest go first.
  explicit RegisterCache(size_t entries);

  std::shared_ptr<const RememberedRegister> Find(const std::string& key);
  void Remember(const std::string& key, RememberedRegister remembered);
  void Forget(const std::string& key);

  // Adds what was not known about one replica.
  void Learn(const std::string& key, size_t replica, const RememberedRegister::Replica& state);

 private:
  using Map = std::unordered_map<std::string, std::shared_ptr<const RememberedRegister>>;
  // Two generations: what is used moves to the young one, and when that is full it becomes the old
  // one, whose entries go.
  struct Shard {
    Mutex mutex;
    Map young GUARDED_BY(mutex);
    Map old GUARDED_BY(mutex);
  };

  // Null if there is none.
  std::shared_ptr<const RememberedRegister> FindIn(Shard& shard, const std::string& key)
      REQUIRES(shard.mutex);
  Shard& ShardOf(const std::string& key);
  void Insert(Shard& shard, const std::string& key,
              std::shared_ptr<const RememberedRegister> remembered) REQUIRES(shard.mutex);

  static constexpr size_t kShards = 16;
  const size_t entries_per_generation_;
  std::array<Shard, kShards> shards_;
};

}  // namespace pinstripe
