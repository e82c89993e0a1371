// KeyLocks: who may change which key. Waiting for one key never keeps changes of other keys from
// going on, and no mutex is held while a change is made.
//
//   const KeyLocks::Hold hold(locks_, key);
//   const KeyLocks::Hold hold(locks_, keys, KeyLocks::Wait::kMayNot);  // all of them, if
//   hold.holds()
//
// Thread-safe.

#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <functional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace pinstripe {

class KeyLocks {
  struct Shard {
    Mutex mutex;
    Condition released;
    std::unordered_set<std::string_view> keys GUARDED_BY(mutex);  // owned by the Holds
  };

 public:
  enum class Wait { kMay, kMayNot };

  // Keeps everybody else from changing some keys, for as long as it lives. The keys' bytes live as
  // long. A caller that may not wait holds none of them where somebody else has one.
  class Hold {
   public:
    Hold(KeyLocks& locks, std::string_view key) : Hold(locks, std::vector{key}) {}

    // Each key once. They are taken in their order, so that nobody waits in a circle.
    Hold(KeyLocks& locks, std::vector<std::string_view> keys, Wait wait = Wait::kMay)
        : locks_(locks), keys_(std::move(keys)) {
      std::sort(keys_.begin(), keys_.end());
      assert(std::adjacent_find(keys_.begin(), keys_.end()) == keys_.end());
      for (const std::string_view key : keys_) {
        if (!locks_.Take(key, wait)) break;
        ++held_;
      }
      if (!holds()) Release();
    }
    ~Hold() { Release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    bool holds() const { return held_ == keys_.size(); }

   private:
    void Release() {
      while (held_ > 0) locks_.GiveBack(keys_[--held_]);
    }

    KeyLocks& locks_;
    std::vector<std::string_view> keys_;
    size_t held_ = 0;  // the first ones
  };

 private:
  Shard& ShardOf(std::string_view key) {
    return shards_[std::hash<std::string_view>()(key) % shards_.size()];
  }

  // False: somebody has it, and is not waited for.
  bool Take(std::string_view key, Wait wait) {
    Shard& shard = ShardOf(key);
    const MutexLock lock(shard.mutex);
    while (!shard.keys.insert(key).second) {
      if (wait == Wait::kMayNot) return false;
      shard.released.Wait(lock);
    }
    return true;
  }

  void GiveBack(std::string_view key) {
    Shard& shard = ShardOf(key);
    {
      const MutexLock lock(shard.mutex);
      shard.keys.erase(key);
    }
    shard.released.WakeAll();
  }

  std::array<Shard, 16> shards_;
};

}  // namespace pinstripe
