// StoreResources: what all stores of a process share: memory for their indexes (block cache and
// write buffers), the threads of RocksDB, and the commits of those that lie on one file system.
//
// Thread-safe.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "store/commit_group.h"
#include "store/file_calls.h"

namespace rocksdb {
class Cache;
class WriteBufferManager;
}  // namespace rocksdb

namespace pinstripe {

class StoreResources {
 public:
  explicit StoreResources(uint64_t block_cache_bytes = 64 << 20,
                          uint64_t write_buffer_bytes = 64 << 20);

  const std::shared_ptr<rocksdb::Cache>& index_cache() const { return index_cache_; }
  const std::shared_ptr<rocksdb::WriteBufferManager>& write_buffers() const {
    return write_buffers_;
  }

  // That of the stores on the file system of `path`. `calls` are those of the first of them.
  Result<std::shared_ptr<CommitGroup>> GroupOf(const std::string& path, FileCalls& calls);

 private:
  const std::shared_ptr<rocksdb::Cache> index_cache_;
  const std::shared_ptr<rocksdb::WriteBufferManager> write_buffers_;
  Mutex mutex_;
  // By file system, as long as there are stores on it.
  std::map<dev_t, std::weak_ptr<CommitGroup>> groups_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
