// IndexCache: index records that were read or written lately, by their keys, so that not every
// question goes through RocksDB. It is always what the index says: who changes a record says so
// before and after, and in between nothing is remembered of its key.
//
// Its memory is that of a RocksDB cache, in which all stores of a process have their blocks too;
// what has not been asked for longest goes first. A store that is opened again starts with nothing.
//
// Thread-safe; changes of one key one after the other.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/mutex.h"

namespace rocksdb {
class Cache;
}  // namespace rocksdb

namespace pinstripe {

class IndexCache {
 public:
  explicit IndexCache(std::shared_ptr<rocksdb::Cache> memory);

  // None: it is not known whether there is one.
  std::optional<std::string> Find(std::string_view key) const;

  // What the index says, asked for after Begin() had given the ticket. Forgotten if the key was
  // changed meanwhile.
  uint64_t Begin(std::string_view key) const;
  void Remember(std::string_view key, std::string_view record, uint64_t ticket);

  // Around a change of the index. `after`: what it says then; none: nothing, or a record that is
  // not to be remembered.
  void BeforeChange(std::string_view key);
  void AfterChange(std::string_view key, std::string_view after);

 private:
  struct Shard {
    Mutex mutex;
    uint64_t changes GUARDED_BY(mutex) = 0;   // begun or ended
    uint64_t changing GUARDED_BY(mutex) = 0;  // under way
  };

  const std::string& Name(std::string_view key) const;
  Shard& ShardOf(std::string_view key) const;
  void Insert(std::string_view key, std::string_view record);

  const std::shared_ptr<rocksdb::Cache> memory_;
  const std::string prefix_;  // of our names in it
  mutable std::array<Shard, 64> shards_;
};

}  // namespace pinstripe
