#include "fuse/kept_pages.h"

namespace pinstripe {

uint64_t KeptPages::Writers() {
  const MutexLock lock(mutex_);
  return writers_;
}

KeptPages::Opened KeptPages::OpenToRead(InodeId file, uint64_t version, uint64_t writers) {
  const MutexLock lock(mutex_);
  Opened opened{.version = version, .writers = writers};
  const auto known = versions_.find(file);
  if (known == versions_.end()) return opened;
  opened.keep = known->second == version;
  if (!opened.keep) versions_.erase(known);
  return opened;
}

void KeptPages::ReadBegins(InodeId file, const Opened& opened) {
  if (opened.keep) return;
  const MutexLock lock(mutex_);
  if (opened.writers != writers_ || writing_.contains(file)) return;
  if (versions_.size() >= most_files_) versions_.erase(versions_.begin());
  versions_[file] = opened.version;
}

void KeptPages::OpenToWrite(InodeId file) {
  const MutexLock lock(mutex_);
  ++writers_;
  ++writing_[file];
  versions_.erase(file);
}

void KeptPages::CloseWritten(InodeId file) {
  const MutexLock lock(mutex_);
  ++writers_;  // a handle opened meanwhile may have pages that this one wrote and did not commit
  const auto open = writing_.find(file);
  if (open != writing_.end() && --open->second == 0) writing_.erase(open);
}

}  // namespace pinstripe
