// DescriptorReserve: descriptors that a process keeps open for nothing, so that a store that has to
// open a file finds one when everything else is used. A store whose index cannot open a file has
// failed until it is started again, and its drive with it, for what would have passed.
//
//   DescriptorReserve::OfProcess().Keep(64);  // at the start, and now and then
//   const FileDescriptor file(OpenFile(path, O_RDONLY));
//
// Thread-safe.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mutex.h"

namespace pinstripe {

class DescriptorReserve {
 public:
  static DescriptorReserve& OfProcess();

  // Keeps so many from now on, or as many as there are to be had.
  void Keep(size_t count);

  // Of a call that has failed so: true when that was for want of descriptors and one of the reserve
  // has been closed, so that the call may be tried again. Leaves errno as it was.
  bool Yield(int error);

  size_t size() const;

 private:
  mutable Mutex mutex_;
  std::vector<FileDescriptor> kept_ GUARDED_BY(mutex_);
};

// open(2), which takes one of the reserve where there is no other. O_CLOEXEC goes without saying.
int OpenFile(const std::string& path, int flags, mode_t mode = 0);

}  // namespace pinstripe
