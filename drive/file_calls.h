// FileCalls: the system calls by which a store changes files and makes them durable. A seam: the
// tests put a disk behind it that loses what was not synced.
//
// They do what the calls of the same name do, and fail with -1 and errno. Thread-safe.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace pinstripe {

class FileCalls {
 public:
  virtual ~FileCalls() = default;

  virtual int Create(const std::string& path);  // exclusively, to read and write
  virtual int Open(const std::string& path);    // to read and write
  virtual int Unlink(const std::string& path);
  virtual ssize_t Write(int fd, const iovec* pieces, int count, uint64_t offset);
  virtual int Truncate(int fd, uint64_t size);
  virtual int Punch(int fd, uint64_t begin, uint64_t end);
  virtual int Sync(int fd);  // fdatasync

  // Space for what will be written between two offsets, beyond the file's end.
  virtual int Allocate(int fd, uint64_t begin, uint64_t end);

  // Names in it survive power loss.
  virtual Status SyncDirectory(const std::string& path);

  // Everything in the file system of `path` survives power loss.
  virtual Status SyncFileSystem(const std::string& path);

  static FileCalls& Kernel();
};

}  // namespace pinstripe
