#include "store/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/file_descriptor.h"
#include "store/descriptor_reserve.h"
#include "store/directory.h"

namespace pinstripe {

int FileCalls::Create(const std::string& path) {
  return OpenFile(path, O_RDWR | O_CREAT | O_EXCL, 0640);
}

int FileCalls::Open(const std::string& path) { return OpenFile(path, O_RDWR); }

int FileCalls::Unlink(const std::string& path) { return unlink(path.c_str()); }

ssize_t FileCalls::Write(int fd, const iovec* pieces, int count, uint64_t offset) {
  return pwritev(fd, pieces, count, static_cast<off_t>(offset));
}

int FileCalls::Truncate(int fd, uint64_t size) { return ftruncate(fd, static_cast<off_t>(size)); }

int FileCalls::Punch(int fd, uint64_t begin, uint64_t end) {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                   static_cast<off_t>(end - begin));
}

int FileCalls::Sync(int fd) { return fdatasync(fd); }

int FileCalls::Allocate(int fd, uint64_t begin, uint64_t end) {
  return fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                   static_cast<off_t>(end - begin));
}

Status FileCalls::SyncDirectory(const std::string& path) { return pinstripe::SyncDirectory(path); }

// Where a file system cannot, it forgets what it may, which is all that nobody else uses.
int FileCalls::OpenDirect(const std::string& path) {
  FileDescriptor file(OpenFile(path, O_RDONLY | O_DIRECT));
  const bool cannot = file.get() < 0 && errno == EINVAL;
  if (file.get() < 0 && !cannot) return -1;
  alignas(kDirectBlock) std::byte block[kDirectBlock];
  if (!cannot && (pread(file.get(), block, sizeof block, 0) >= 0 || errno != EINVAL)) {
    return file.Release();
  }
  file = FileDescriptor(OpenFile(path, O_RDONLY));
  if (file.get() >= 0) (void)posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  return file.Release();
}

ssize_t FileCalls::ReadDirect(int fd, void* into, size_t size, uint64_t offset) {
  return pread(fd, into, size, static_cast<off_t>(offset));
}

int FileCalls::OpenFileSystem(const std::string& path) {
  return OpenFile(path, O_RDONLY | O_DIRECTORY);
}

int FileCalls::SyncFileSystem(int fd) { return syncfs(fd); }

FileCalls& FileCalls::Kernel() {
  static FileCalls calls;
  return calls;
}

}  // namespace pinstripe
