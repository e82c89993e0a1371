// KeyLocks: who may change which key. Waiting for one key never keeps changes of other keys from
// going on, and no mutex is held while a change is made.
//
// Thread-safe. Who needs several keys takes them in their order, so that nobody waits in a circle.

#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace pinstripe {

class KeyLocks {
  struct Shard {
    std::mutex mutex;
    std::condition_variable released;
    std::unordered_set<std::string_view> keys;  // guarded by mutex; owned by the Holds
  };

 public:
  // Keeps everybody else from changing a key, for as long as it lives. The key's bytes live as
  // long.
  class Hold {
   public:
    Hold(KeyLocks& locks, std::string_view key)
        : shard_(locks.shards_[std::hash<std::string_view>()(key) % locks.shards_.size()]),
          key_(key) {
      std::unique_lock lock(shard_.mutex);
      shard_.released.wait(lock, [&] { return !shard_.keys.contains(key_); });
      shard_.keys.insert(key_);
    }
    ~Hold() {
      {
        const std::lock_guard lock(shard_.mutex);
        shard_.keys.erase(key_);
      }
      shard_.released.notify_all();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Shard& shard_;
    const std::string_view key_;
  };

 private:
  std::array<Shard, 16> shards_;
};

}  // namespace pinstripe
