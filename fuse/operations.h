// The kernel's requests, translated into calls of a FileSystem: one function per request, which
// calls and replies. Inode numbers are the file system's own, so nothing has to be remembered for a
// name that the kernel knows, and a forget is nothing to do.
//
// The kernel keeps no names and no attributes (their time-outs are 0), and keeps a file's pages
// from one open to the next only if the file has not changed: what other hosts committed is seen by
// the next open, and mmap works.

#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>

#include "base/runtime.h"
#include "base/status.h"
#include "fs/file_system.h"

struct fuse_lowlevel_ops;

namespace pinstripe {

struct FileHandle {
  std::unique_ptr<OpenFile> file;
  bool writes = false;
};

// What the requests of one session work on: its user data. Thread-safe.
class Mount {
 public:
  Mount(Runtime& runtime, FileSystem& file_system) : runtime_(runtime), file_system_(file_system) {}

  Runtime& runtime() { return runtime_; }
  FileSystem& file_system() { return file_system_; }

  // Handles are the kernel's until it releases them.
  FileHandle* Add(std::unique_ptr<OpenFile> file, bool writes);
  Status Release(FileHandle* handle);  // closes and forgets

  // Closes what the kernel has not released, when the session has ended: the first failure.
  Status ReleaseAll();

 private:
  Runtime& runtime_;
  FileSystem& file_system_;
  std::mutex mutex_;
  std::unordered_set<FileHandle*> handles_;  // guarded by mutex_
};

// For fuse_session_new, with a Mount as user data.
const fuse_lowlevel_ops& Operations();

}  // namespace pinstripe
