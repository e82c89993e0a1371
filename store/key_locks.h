// KeyLocks: who may change which key. Waiting for one key never keeps changes of other keys from
// going on, and no mutex is held while a change is made.
//
//   const KeyLocks::Hold hold(locks_, key);
//   const KeyLocks::Hold hold(locks_, keys, KeyLocks::Wait::kMayNot);  // all of them, if
//   hold.holds()
//
// Some keys may only have to stay as they are: these are shared with others who want the same of
// them. Whoever is going to change one waits for those who share it, and nobody joins them then, so
// that its turn comes however many there are.
//
// Thread-safe.

#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace pinstripe {

class KeyLocks {
  struct Sharers {
    size_t holders = 0;
    size_t waiting = 0;  // who will change it
  };
  struct Shard {
    Mutex mutex;
    Condition released;
    std::unordered_set<std::string_view> keys GUARDED_BY(mutex);  // owned by the Holds
    std::map<std::string, Sharers, std::less<>> shared GUARDED_BY(mutex);
  };

 public:
  enum class Wait { kMay, kMayNot };

  // Keeps everybody else from changing some keys, for as long as it lives. The keys' bytes live as
  // long. A caller that may not wait holds none of them where somebody else has one.
  class Hold {
   public:
    Hold(KeyLocks& locks, std::string_view key) : Hold(locks, std::vector{key}) {}

    // Each key once, in one list or the other; those in `shared` are not going to be changed here
    // either. They are taken in their order, so that nobody waits in a circle.
    Hold(KeyLocks& locks, std::vector<std::string_view> keys, Wait wait = Wait::kMay,
         std::vector<std::string_view> shared = {})
        : locks_(locks), keys_(std::move(keys)), shared_(std::move(shared)) {
      Sort(keys_);
      Sort(shared_);
      while (!holds()) {
        const bool shared_is_next = held_ == keys_.size() || (held_shared_ < shared_.size() &&
                                                              shared_[held_shared_] < keys_[held_]);
        if (shared_is_next) {
          if (!locks_.Share(shared_[held_shared_], wait)) break;
          ++held_shared_;
        } else {
          assert(held_shared_ == shared_.size() || shared_[held_shared_] != keys_[held_]);
          if (!locks_.Take(keys_[held_], wait)) break;
          ++held_;
        }
      }
      if (!holds()) Release();
    }
    ~Hold() { Release(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    bool holds() const { return held_ == keys_.size() && held_shared_ == shared_.size(); }

   private:
    static void Sort(std::vector<std::string_view>& keys) {
      std::sort(keys.begin(), keys.end());
      assert(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
    }

    void Release() {
      while (held_ > 0) locks_.GiveBack(keys_[--held_]);
      while (held_shared_ > 0) locks_.GiveBackShared(shared_[--held_shared_]);
    }

    KeyLocks& locks_;
    std::vector<std::string_view> keys_;
    std::vector<std::string_view> shared_;
    size_t held_ = 0;         // the first ones
    size_t held_shared_ = 0;  // likewise
  };

 private:
  Shard& ShardOf(std::string_view key) {
    return shards_[std::hash<std::string_view>()(key) % shards_.size()];
  }

  // False: somebody has it, and is not waited for.
  bool Take(std::string_view key, Wait wait) {
    Shard& shard = ShardOf(key);
    const MutexLock lock(shard.mutex);
    while (true) {
      const auto sharers = shard.shared.find(key);
      const bool is_shared = sharers != shard.shared.end() && sharers->second.holders > 0;
      if (!is_shared && shard.keys.insert(key).second) return true;
      if (wait == Wait::kMayNot) return false;
      Sharers& wanted = shard.shared[std::string(key)];
      ++wanted.waiting;
      shard.released.Wait(lock);
      --wanted.waiting;
      ForgetIfUnused(shard, key);
    }
  }

  // Likewise, also where somebody waits for it to change it.
  bool Share(std::string_view key, Wait wait) {
    Shard& shard = ShardOf(key);
    const MutexLock lock(shard.mutex);
    while (true) {
      const auto sharers = shard.shared.find(key);
      const bool is_wanted = sharers != shard.shared.end() && sharers->second.waiting > 0;
      if (!is_wanted && !shard.keys.contains(key)) break;
      if (wait == Wait::kMayNot) return false;
      shard.released.Wait(lock);
    }
    ++shard.shared[std::string(key)].holders;
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

  void GiveBackShared(std::string_view key) {
    Shard& shard = ShardOf(key);
    {
      const MutexLock lock(shard.mutex);
      --shard.shared.find(key)->second.holders;
      ForgetIfUnused(shard, key);
    }
    shard.released.WakeAll();
  }

  static void ForgetIfUnused(Shard& shard, std::string_view key) REQUIRES(shard.mutex) {
    const auto sharers = shard.shared.find(key);
    if (sharers->second.holders == 0 && sharers->second.waiting == 0) shard.shared.erase(sharers);
  }

  std::array<Shard, 16> shards_;
};

}  // namespace pinstripe
