#include "store/index_cache.h"

#include <rocksdb/cache.h>

#include <functional>

#include "base/coding.h"

namespace pinstripe {
namespace {

constexpr size_t kOverhead = 128;  // of an entry, about

void Delete(const rocksdb::Slice&, void* record) { delete static_cast<std::string*>(record); }

}  // namespace

// RocksDB's names of blocks are 16 bytes long, ours never.
IndexCache::IndexCache(std::shared_ptr<rocksdb::Cache> memory)
    : memory_(std::move(memory)),
      prefix_(Writer().Raw(std::string_view("pinstripe")).U64(memory_->NewId()).Take()) {}

// Until this thread asks for another one.
const std::string& IndexCache::Name(std::string_view key) const {
  thread_local std::string name;
  return name.assign(prefix_).append(key);
}

IndexCache::Shard& IndexCache::ShardOf(std::string_view key) const {
  return shards_[std::hash<std::string_view>()(key) % shards_.size()];
}

std::optional<std::string> IndexCache::Find(std::string_view key) const {
  rocksdb::Cache::Handle* const found = memory_->Lookup(Name(key));
  if (found == nullptr) return std::nullopt;
  std::string record = *static_cast<const std::string*>(memory_->Value(found));
  memory_->Release(found);
  return record;
}

uint64_t IndexCache::Begin(std::string_view key) const {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  return shard.changes;
}

void IndexCache::Remember(std::string_view key, std::string_view record, uint64_t ticket) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  if (shard.changing == 0 && shard.changes == ticket) Insert(key, record);
}

void IndexCache::BeforeChange(std::string_view key) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  ++shard.changes;
  ++shard.changing;
  memory_->Erase(Name(key));
}

void IndexCache::AfterChange(std::string_view key, std::string_view after) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  ++shard.changes;  // who asked in between may have seen what was there before
  --shard.changing;
  if (!after.empty()) Insert(key, after);
}

// With the shard's mutex held.
void IndexCache::Insert(std::string_view key, std::string_view record) {
  const std::string& name = Name(key);
  // It takes the record over whatever it answers.
  (void)memory_->Insert(name, new std::string(record), name.size() + record.size() + kOverhead,
                        &Delete);
}

}  // namespace pinstripe
