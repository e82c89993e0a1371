#include "store/store_resources.h"

#include <rocksdb/cache.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/stat.h>

#include "base/try.h"

namespace pinstripe {

StoreResources::StoreResources(uint64_t block_cache_bytes, uint64_t write_buffer_bytes)
    : index_cache_(rocksdb::NewLRUCache(block_cache_bytes)),
      write_buffers_(std::make_shared<rocksdb::WriteBufferManager>(write_buffer_bytes)) {}

Result<std::shared_ptr<CommitGroup>> StoreResources::GroupOf(const std::string& path,
                                                             FileCalls& calls) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0) return Fail(errno, "{}: {}", path, ErrnoText(errno));
  const MutexLock lock(mutex_);
  std::weak_ptr<CommitGroup>& known = groups_[about.st_dev];
  std::shared_ptr<CommitGroup> group = known.lock();
  if (group == nullptr) known = group = TRY(CommitGroup::Open(calls, path));
  return group;
}

}  // namespace pinstripe
