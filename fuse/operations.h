// Mount, which the requests of one mount share, and the table of functions that libfuse calls
// (Operations). The functions are in requests.h: each translates one request of the kernel into
// calls of a FileSystem, and replies.
//
// Inode numbers are the file system's own, except that the kernel calls the mounted directory 1. So
// the mount remembers nothing for a name that the kernel knows, and a forget has nothing to do.
//
// The kernel keeps names and attributes of directories for a second, or as long as the mount
// options say. It keeps those that a listing brought as long, so `ls -l` asks once for each
// directory, not for each file. The ACL of each file it does ask for, and the file system has that
// from the listing (fs/names/listed_inodes.h). The kernel keeps no other names. It keeps other
// attributes for 50 ms, which serves the rest of the call that has looked the name up; an open
// takes them back. It keeps a file's pages from one open to the next only if the file has not
// changed (kept_pages.h). So the next open sees what other hosts committed, and mmap works. The
// answer about an inode that is gone is ESTALE, which has the kernel look the name up anew.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
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
#include "upkeep/slow_operations.h"

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

// What the requests of one session share. It is the session's user data. Thread-safe.
class Mount {
 public:
  // `root` is the directory that is mounted. `description` tells people what is mounted, and how.
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
  // Who is told of requests that took long; null: nobody. Set before the first request, and
  // outlives the last one.
  SlowOperations* slow() { return slow_; }
  void TellSlow(SlowOperations& slow) { slow_ = &slow; }
  KeptPages& kept_pages() { return kept_pages_; }

  // Whether the kernel goes by ACLs. HaveAcls is called before the first request.
  bool has_acls() const { return has_acls_; }
  void HaveAcls() { has_acls_ = true; }
  // To be called before the kernel gets these attributes.
  void NoteAcl(const Attributes& attributes);
  // Whether the kernel may go by bits that come with an access ACL.
  bool MayGoByAcl(InodeId inode) { return told_acls_.MayUse(inode, runtime_.Now()); }

  // The session that requests come from, once there is one.
  void Serve(fuse_session* session) { session_ = session; }
  // To be called when a listing gives the kernel names and attributes to keep.
  void AttributesWereListed() { listed_at_ = runtime_.Now(); }
  // Takes back the attributes that the kernel may keep of a file. An older answer may be on its
  // way.
  void ForgetAttributes(InodeId inode);
  // Whether the kernel asks for a file's name before it opens it. It does so if no listing brought
  // names lately.
  bool LooksNamesUp() const;

  // A request that may change a name: before it does, and when it was answered.
  void BeginNameChange() { ++name_changes_begun_; }
  void EndNameChange() { ++name_changes_ended_; }
  // How many there were, all of which have ended; null: there are some under way.
  std::optional<uint64_t> NameChanges() const {
    const uint64_t ended = name_changes_ended_;
    return name_changes_begun_ == ended ? std::optional(ended) : std::nullopt;
  }

  // A handle belongs to the kernel until the kernel releases it.
  FileHandle* Add(std::unique_ptr<OpenFile> file, bool writes, KeptPages::Opened opened = {});
  Status Release(FileHandle* handle);  // closes and forgets

  // Closes the files that the kernel has not released, after the session's end. The first failure.
  Status ReleaseAll();

 private:
  Runtime& runtime_;
  FileSystem& file_system_;
  const MountOptions options_;
  const InodeId root_;
  const std::string description_;
  RequestCounters counters_;
  SlowOperations* slow_ = nullptr;
  KeptPages kept_pages_;
  ToldAcls told_acls_;
  std::atomic<bool> has_acls_ = false;
  std::atomic<fuse_session*> session_ = nullptr;
  std::atomic<Time> listed_at_ = Time::min();
  std::atomic<uint64_t> name_changes_begun_ = 0;
  std::atomic<uint64_t> name_changes_ended_ = 0;
  Mutex mutex_;
  std::unordered_set<FileHandle*> handles_ GUARDED_BY(mutex_);
};

// For fuse_session_new, with a Mount as user data.
const fuse_lowlevel_ops& Operations();

// For fuse_session_custom_io. They do what libfuse does, and also take requests for files without a
// name (O_TMPFILE).
ssize_t ReadRequest(int fd, void* buffer, size_t size, void* mount);
ssize_t WriteAnswer(int fd, iovec* pieces, int count, void* mount);

}  // namespace pinstripe
