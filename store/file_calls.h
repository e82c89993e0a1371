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

  // To read what is on the disk and not what the kernel remembers of the file, which was synced. By
  // whole blocks of kDirectBlock bytes, also in memory; fewer only at the file's end.
  static constexpr size_t kDirectBlock = 4096;
  virtual int OpenDirect(const std::string& path);
  virtual ssize_t ReadDirect(int fd, void* into, size_t size, uint64_t offset);

  // A directory, to sync the file system that it is in.
  virtual int OpenFileSystem(const std::string& path);

  // Everything in it survives power loss (syncfs). The kernel tells each descriptor once of a write
  // that has failed since the descriptor was opened; of what failed before, and was told to
  // somebody else, it says nothing. So the descriptor must be older than what it is to vouch for.
  virtual int SyncFileSystem(int fd);

  static FileCalls& Kernel();
};

}  // namespace pinstripe
