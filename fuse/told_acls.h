// ToldAcls: for which inodes the kernel may hold permission bits that came with an access ACL.
//
// In such bits the group's are the ACL's mask. If another host has removed the ACL meanwhile, the
// kernel must not hear that there is none: it would let the group do what the mask says. It gets a
// list then that says what the bits say now. Otherwise the answer is that there is none, and
// `ls -l` shows no "+".
//
// Thread-safe.

#pragma once

#include <unordered_map>

#include "base/mutex.h"
#include "base/runtime.h"
#include "fs/file_system.h"

namespace pinstripe {

class ToldAcls {
 public:
  explicit ToldAcls(size_t most_inodes = 100'000) : most_inodes_(most_inodes) {}

  // To be called before the kernel gets such bits, which it may use until `until`.
  void Tell(InodeId inode, Time now, Time until);
  // Whether it may use some. With too many inodes at once it is true for all.
  bool MayUse(InodeId inode, Time now);

 private:
  const size_t most_inodes_;
  Mutex mutex_;
  std::unordered_map<InodeId, Time> until_ GUARDED_BY(mutex_);
  Time all_until_ GUARDED_BY(mutex_) = Time::min();
};

}  // namespace pinstripe
