#include "store/descriptor_reserve.h"

#include <fcntl.h>

#include <cerrno>

namespace pinstripe {

DescriptorReserve& DescriptorReserve::OfProcess() {
  // RocksDB's threads may ask it until the very end.
  static auto* const reserve = new DescriptorReserve;
  return *reserve;
}

void DescriptorReserve::Keep(size_t count) {
  const MutexLock lock(mutex_);
  if (kept_.size() > count) kept_.resize(count);
  while (kept_.size() < count) {
    FileDescriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (one.get() < 0) return;
    kept_.push_back(std::move(one));
  }
}

bool DescriptorReserve::Yield(int error) {
  if (error != EMFILE && error != ENFILE) return false;
  const MutexLock lock(mutex_);
  if (kept_.empty()) return false;
  kept_.pop_back();
  errno = error;
  return true;
}

size_t DescriptorReserve::size() const {
  const MutexLock lock(mutex_);
  return kept_.size();
}

int OpenFile(const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && DescriptorReserve::OfProcess().Yield(errno));
  return fd;
}

}  // namespace pinstripe
