#include "cluster/registers/cache.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace pinstripe {

RegisterCache::RegisterCache(size_t entries)
    : entries_per_generation_(std::max<size_t>(1, entries / (2 * kShards))) {}

RegisterCache::Shard& RegisterCache::ShardOf(const std::string& key) {
  return shards_[std::hash<std::string>()(key) % kShards];
}

void RegisterCache::Insert(Shard& shard, const std::string& key,
                           std::shared_ptr<const RememberedRegister> remembered) {
  if (shard.young.size() >= entries_per_generation_ && !shard.young.contains(key)) {
    shard.old = std::exchange(shard.young, {});
  }
  shard.young[key] = std::move(remembered);
}

std::shared_ptr<const RememberedRegister> RegisterCache::Find(const std::string& key) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  return FindIn(shard, key);
}

void RegisterCache::Learn(const std::string& key, size_t replica,
                          const RememberedRegister::Replica& state) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  const auto found = FindIn(shard, key);
  if (found == nullptr || replica >= found->replicas.size() || found->replicas[replica]) return;
  RememberedRegister more = *found;
  more.replicas[replica] = state;
  Insert(shard, key, std::make_shared<const RememberedRegister>(std::move(more)));
}

std::shared_ptr<const RememberedRegister> RegisterCache::FindIn(Shard& shard,
                                                                const std::string& key) {
  if (const auto found = shard.young.find(key); found != shard.young.end()) return found->second;
  auto node = shard.old.extract(key);
  if (node.empty()) return nullptr;
  Insert(shard, key, node.mapped());
  return node.mapped();
}

void RegisterCache::Remember(const std::string& key, RememberedRegister remembered) {
  auto shared = std::make_shared<const RememberedRegister>(std::move(remembered));
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  shard.old.erase(key);
  Insert(shard, key, std::move(shared));
}

void RegisterCache::Forget(const std::string& key) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  shard.young.erase(key);
  shard.old.erase(key);
}

}  // namespace pinstripe
