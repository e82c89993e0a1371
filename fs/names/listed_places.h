// ListedPlaces: what the last listings have found under the names that they brought, for whoever
// removes one of them just after (`rm -r`). He goes by it in conditional changes, so a place that
// is old by now costs him a look, and nothing else.
//
// Thread-safe; of bounded size.

#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "base/runtime.h"
#include "fs/names/inode.h"

namespace pinstripe {

class ListedPlaces {
 public:
  // No directory is listed and removed page by page for longer than that.
  static constexpr Duration kKept = std::chrono::seconds(10);

  explicit ListedPlaces(Runtime& runtime, size_t most_bytes = 4 << 20)
      : runtime_(runtime), most_bytes_(most_bytes) {}

  // An entry, by its slot, and the inode that it named, which was read after it. One that is being
  // renamed or replaced is not kept.
  struct Listed {
    uint64_t slot = 0;
    InodeId id = 0;
    StoredInode inode;
  };
  void Learn(InodeId directory, std::string_view name, Listed listed);
  // Once.
  std::optional<Listed> Take(InodeId directory, std::string_view name);

 private:
  struct Known {
    Time at{};
    Listed listed;
  };
  // In the order in which they were learned, to be dropped in that order.
  struct Learned {
    std::string key;
    Time at{};
    size_t bytes = 0;
  };
  static std::string KeyOf(InodeId directory, std::string_view name);
  void DropFirst() REQUIRES(mutex_);

  Runtime& runtime_;
  const size_t most_bytes_;
  Mutex mutex_;
  std::unordered_map<std::string, Known> known_ GUARDED_BY(mutex_);
  std::deque<Learned> learned_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;  // of all in learned_
};

}  // namespace pinstripe
