// ListedInodes: what the last listings brought of inodes beside their attributes: ACLs and
// capabilities, and where the contents of small files are. The kernel keeps the attributes of what
// was listed, and asks for the others file by file just after that (`ls -l`); or somebody reads
// file by file (`cp -r`), and the contents are asked for together with the inode.
//
// An answer is no older than Keep() says. It is never older than what this process has read or
// changed of the inode since: whoever knows newer permission bits gets a list at least as new.
//
// Thread-safe; of bounded size.

#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "base/runtime.h"
#include "fs/names/inode.h"

namespace pinstripe {

class ListedInodes {
 public:
  explicit ListedInodes(Runtime& runtime, size_t most_bytes = 4 << 20)
      : runtime_(runtime), most_bytes_(most_bytes) {}

  // Whether an extended attribute is one of those that are kept.
  static bool Has(std::string_view name);

  // How long what a listing brought may be used. Zero, as in the beginning: nothing is kept.
  void Keep(Duration age);
  // A listing found it to be that, at some moment after `at`.
  void Learn(InodeId id, const StoredInode& stored, Time at);
  // It was read by other means, or changed here. No listing that began before is kept.
  void Forget(InodeId id);
  // All that it has of the attributes that are kept; null: no listing says.
  std::optional<ExtendedAttributes> Find(InodeId id);
  // Where the contents of a file were that are one small block without patches; null: no listing
  // says, or they are something else.
  std::optional<BlockPlace> FindSmall(InodeId id);

 private:
  static constexpr size_t kSlots = 1024;

  struct Listed {
    Time at{};
    uint64_t slot = 0;
    ExtendedAttributes attributes;
    std::optional<BlockPlace> small;
  };
  // In the order in which they were learned, to be dropped in that order.
  struct Learned {
    InodeId id = 0;
    Time at{};
    size_t bytes = 0;
  };
  bool IsTooMuch(Time now) const REQUIRES(mutex_);
  void DropFirst() REQUIRES(mutex_);
  Time& ForgottenAt(InodeId id) REQUIRES(mutex_) { return forgotten_at_[id % kSlots]; }

  Runtime& runtime_;
  const size_t most_bytes_;
  Mutex mutex_;
  Duration age_ GUARDED_BY(mutex_){};
  std::unordered_map<InodeId, Listed> listed_ GUARDED_BY(mutex_);
  std::deque<Learned> learned_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;  // of all in learned_
  // Of any inode that has this slot: what was listed before is old.
  std::array<Time, kSlots> forgotten_at_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
