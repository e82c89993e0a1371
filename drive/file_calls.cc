#include "drive/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include "drive/io_loop.h"
#include "drive/store_directory.h"

namespace pinstripe {

int FileCalls::Create(const std::string& path) {
  return open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
}

int FileCalls::Open(const std::string& path) { return open(path.c_str(), O_RDWR | O_CLOEXEC); }

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

Status FileCalls::SyncFileSystem(const std::string& path) {
  const FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return Fail(errno, "cannot open {}: {}", path, ErrnoText(errno));
  if (syncfs(directory.get()) == 0) return {};
  return Fail(errno, "cannot sync the file system of {}: {}", path, ErrnoText(errno));
}

FileCalls& FileCalls::Kernel() {
  static FileCalls calls;
  return calls;
}

}  // namespace pinstripe
