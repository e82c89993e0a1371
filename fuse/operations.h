// The kernel's requests, translated into calls of a FileSystem: one function per request, which
// calls and replies. Inode numbers are the file system's own, so nothing has to be remembered for a
// name that the kernel knows, and a forget is nothing to do. Only the root's is always 1, whichever
// directory it is.
//
// The kernel keeps directories, and what a listing with attributes brought, for a second, or as
// long as it is told when it is mounted: so `ls -l` asks once for each directory, not for each
// file. Other names it does not keep, and other attributes for 50 ms, which is for the rest of the
// call that has looked the name up; an open takes them back. It keeps a file's pages from one open
// to the next only if the file has not changed (kept_pages.h): what other hosts committed is seen
// by the next open, and mmap works. An inode that is gone is answered with ESTALE, so that the
// kernel looks the name up anew.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/file_system.h"
#include "fuse/kept_pages.h"
#include "fuse/mount_options.h"
#include "fuse/request_counters.h"
#include "fuse/told_acls.h"

struct fuse_lowlevel_ops;
struct fuse_session;
struct iovec;

namespace pinstripe {

struct FileHandle {
  std::unique_ptr<OpenFile> file;
  bool writes = false;
  KeptPages::Opened opened;  // if it only reads
  std::atomic<bool> was_read = false;
};

// What the requests of one session work on: its user data. Thread-safe.
class Mount {
 public:
  // `root` is the directory that is mounted, and `description` says for people what is mounted how.
  Mount(Runtime& runtime, FileSystem& file_system, const MountOptions& options, InodeId root,
        std::string description)
      : runtime_(runtime),
        file_system_(file_system),
        options_(options),
        root_(root),
        description_(std::move(description)) {}

  Runtime& runtime() { return runtime_; }
  FileSystem& file_system() { return file_system_; }
  const MountOptions& options() const { return options_; }
  InodeId root() const { return root_; }
  const std::string& description() const { return description_; }
  RequestCounters& counters() { return counters_; }
  KeptPages& kept_pages() { return kept_pages_; }

  // Whether the kernel goes by ACLs. Told before the first request.
  bool has_acls() const { return has_acls_; }
  void HaveAcls() { has_acls_ = true; }
  // Told before these attributes are given to the kernel.
  void NoteAcl(const Attributes& attributes);
  // Whether the kernel may go by bits that come with an access ACL.
  bool MayGoByAcl(InodeId inode) { return told_acls_.MayUse(inode, runtime_.Now()); }

  // The session that requests come from, once there is one.
  void Serve(fuse_session* session) { session_ = session; }
  // Noted when a listing gives the kernel names and attributes to keep.
  void AttributesWereListed() { listed_at_ = runtime_.Now(); }
  // Takes back what the kernel may keep of a file, of which an older answer may be on its way.
  void ForgetAttributes(InodeId inode);
  // Whether the kernel asks for a file's name before it opens it, because none was listed lately.
  bool LooksNamesUp() const;

  // Handles are the kernel's until it releases them.
  FileHandle* Add(std::unique_ptr<OpenFile> file, bool writes, KeptPages::Opened opened = {});
  Status Release(FileHandle* handle);  // closes and forgets

  // Closes what the kernel has not released, when the session has ended: the first failure.
  Status ReleaseAll();

 private:
  Runtime& runtime_;
  FileSystem& file_system_;
  const MountOptions options_;
  const InodeId root_;
  const std::string description_;
  RequestCounters counters_;
  KeptPages kept_pages_;
  ToldAcls told_acls_;
  std::atomic<bool> has_acls_ = false;
  std::atomic<fuse_session*> session_ = nullptr;
  std::atomic<Time> listed_at_ = Time::min();
  Mutex mutex_;
  std::unordered_set<FileHandle*> handles_ GUARDED_BY(mutex_);
};

// For fuse_session_new, with a Mount as user data.
const fuse_lowlevel_ops& Operations();

// For fuse_session_custom_io: as libfuse itself does it, and with files that have no name.
ssize_t ReadRequest(int fd, void* buffer, size_t size, void* mount);
ssize_t WriteAnswer(int fd, iovec* pieces, int count, void* mount);

}  // namespace pinstripe
