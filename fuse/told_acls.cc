#include "fuse/told_acls.h"

#include <algorithm>

namespace pinstripe {

void ToldAcls::Tell(InodeId inode, Time now, Time until) {
  const MutexLock lock(mutex_);
  if (until_.size() >= most_inodes_ && !until_.contains(inode)) {
    std::erase_if(until_, [&](const auto& told) { return told.second < now; });
    if (until_.size() >= most_inodes_) {
      for (const auto& told : until_) all_until_ = std::max(all_until_, told.second);
      until_.clear();
    }
  }
  Time& known = until_.try_emplace(inode, until).first->second;
  known = std::max(known, until);
}

bool ToldAcls::MayUse(InodeId inode, Time now) {
  const MutexLock lock(mutex_);
  if (now <= all_until_) return true;
  const auto told = until_.find(inode);
  if (told == until_.end()) return false;
  if (now <= told->second) return true;
  until_.erase(told);
  return false;
}

}  // namespace pinstripe
