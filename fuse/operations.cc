#define FUSE_USE_VERSION 312

#include "fuse/operations.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "fuse/requests.h"

namespace pinstripe {

FileHandle* Mount::Add(std::unique_ptr<OpenFile> file, bool writes, KeptPages::Opened opened) {
  auto* handle = new FileHandle{.file = std::move(file), .writes = writes, .opened = opened};
  if (writes) kept_pages_.OpenToWrite(handle->file->inode());
  const MutexLock lock(mutex_);
  handles_.insert(handle);
  return handle;
}

Status Mount::Release(FileHandle* handle) {
  {
    const MutexLock lock(mutex_);
    handles_.erase(handle);
  }
  const std::unique_ptr<FileHandle> owned(handle);
  const Status closed = handle->file->Close();
  if (handle->writes) kept_pages_.CloseWritten(handle->file->inode());
  return closed;
}

Status Mount::ReleaseAll() {
  std::unordered_set<FileHandle*> left;
  {
    const MutexLock lock(mutex_);
    left.swap(handles_);
  }
  Status first;
  for (FileHandle* handle : left) {
    const InodeId inode = handle->file->inode();
    const Status closed = Release(handle).Context(fmt::format("close inode {}", inode));
    if (first.ok()) first = closed;
  }
  return first;
}

void Mount::ForgetAttributes(InodeId inode) {
  fuse_session* session = session_;
  if (session == nullptr) return;
  constexpr off_t kAttributesOnly = -1;
  fuse_lowlevel_notify_inval_inode(session, inode, kAttributesOnly, 0);
}

void Mount::NoteAcl(const Attributes& attributes) {
  // How long an answer may be on its way, and the process that asked may wait for a processor.
  constexpr Duration kAnswered = std::chrono::seconds(5);
  if (!has_acls_ || !attributes.has_acl) return;
  const Time now = runtime_.Now();
  told_acls_.Tell(attributes.inode, now, now + options_.attribute_age + kAnswered);
}

bool Mount::LooksNamesUp() const {
  if (options_.attribute_age == Duration::zero()) return false;  // an open asks the drives itself
  const Duration longest = std::max(options_.name_age, options_.attribute_age);
  const Time listed = listed_at_;
  // Twice as long, because the listing may have been on its way.
  return listed == Time::min() || runtime_.Now() - listed > 2 * longest;
}

namespace requests {
namespace {

constexpr unsigned kMaxWriteBytes = 1 << 20;
constexpr unsigned kRequestsInBackground = 64;  // the kernel reads ahead with so many at once
constexpr uint64_t kStatBlockBytes = 4096;

void Init(void* user_data, fuse_conn_info* connection) {
  Mount& mount = *static_cast<Mount*>(user_data);
  // Without these two the kernel keeps locks itself. With them it asks us for each, and we refuse.
  if (mount.options().locks) {
    connection->want &= ~unsigned{FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS};
  }
  // With the first the kernel asks for ACLs and goes by them. With the second it leaves the umask
  // to us, because we know whether a directory has a default ACL.
  constexpr unsigned kForAcls = FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK;
  if (mount.options().acls && (connection->capable & kForAcls) == kForAcls) {
    connection->want |= kForAcls;
    mount.HaveAcls();
  }
  // An open brings its O_TRUNC along. So the file keeps its old contents until the new ones are
  // there.
  connection->want |= connection->capable & FUSE_CAP_ATOMIC_O_TRUNC;
  // Each listing brings attributes, also where the kernel does not expect a program to ask for
  // them.
  connection->want |= connection->capable & FUSE_CAP_READDIRPLUS;
  connection->want &= ~unsigned{FUSE_CAP_READDIRPLUS_AUTO};
  // The kernel may keep the target of a symbolic link, because it never changes.
  connection->want |= connection->capable & FUSE_CAP_CACHE_SYMLINKS;
  connection->max_write = kMaxWriteBytes;
  connection->max_background = kRequestsInBackground;
}

void StatFileSystem(fuse_req_t request, fuse_ino_t) {
  const Result<SpaceInfo> space = FileSystemOf(request).Space();
  if (!space.has_value()) {
    ReplyStatus(request, space.error(), "statfs", "/");
    return;
  }
  struct statvfs out {};  // the number of files stays 0: there is no limit
  out.f_bsize = kStatBlockBytes;
  out.f_frsize = kStatBlockBytes;
  out.f_blocks = space->usable_bytes / kStatBlockBytes;
  out.f_bfree = space->usable_free_bytes / kStatBlockBytes;
  out.f_bavail = out.f_bfree;
  out.f_namemax = kMaxNameBytes;
  fuse_reply_statfs(request, &out);
}

// The file system's inode number for the kernel's.
InodeId InodeOf(fuse_req_t request, fuse_ino_t node) {
  return node == FUSE_ROOT_ID ? MountOf(request).root() : node;
}

// Counts a request for an inode, and how long its answer takes. Tells of one that took long.
class Counted {
 public:
  Counted(fuse_req_t request, InodeId inode, RequestCounters::Kind kind)
      : mount_(MountOf(request)), inode_(inode), kind_(kind), start_(mount_.runtime().Now()) {
    if (ChangesNames()) mount_.BeginNameChange();
  }
  ~Counted() {
    if (ChangesNames()) mount_.EndNameChange();
    const Duration took = mount_.runtime().Now() - start_;
    mount_.counters().Count(kind_, took);
    SlowOperations* const slow = mount_.slow();
    if (slow == nullptr || !slow->IsSlow(took)) return;
    slow->Add(trace_, RequestCounters::NameOf(kind_), Subject(inode_), took);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  bool ChangesNames() const {
    using enum RequestCounters::Kind;
    return kind_ == kMake || kind_ == kRemove || kind_ == kRename || kind_ == kCreate;
  }

  Mount& mount_;  // taken at the beginning, because the request is gone after the reply
  const InodeId inode_;
  const RequestCounters::Kind kind_;
  const Time start_;
  const OperationTrace trace_;
};

using Kind = RequestCounters::Kind;

// A function of requests.h as libfuse calls it: counts the request, and translates the inode number
// that comes first.
template <auto function, Kind kind>
struct OfNode;
template <Kind kind, typename... Rest, void (*function)(fuse_req_t, fuse_ino_t, Rest...)>
struct OfNode<function, kind> {
  static void Call(fuse_req_t request, fuse_ino_t node, Rest... rest) {
    const InodeId inode = InodeOf(request, node);
    const Counted counted(request, inode, kind);
    function(request, inode, rest...);
  }
};

// The three functions whose directory comes later, or that have two.
void MakeSymlinkIn(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name) {
  const InodeId inode = InodeOf(request, directory);
  const Counted counted(request, inode, Kind::kMake);
  MakeSymlink(request, target, inode, name);
}
void LinkIn(fuse_req_t request, fuse_ino_t inode, fuse_ino_t directory, const char* name) {
  const Counted counted(request, inode, Kind::kMake);
  Link(request, inode, InodeOf(request, directory), name);
}
void RenameIn(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
              const char* new_name, unsigned flags) {
  const InodeId inode = InodeOf(request, directory);
  const Counted counted(request, inode, Kind::kRename);
  Rename(request, inode, name, InodeOf(request, new_directory), new_name, flags);
}

// The kernel asks for locks only if the mount option locks=none refuses them (Init). To give up a
// lock that nobody can have is not a mistake.
void TellLock(fuse_req_t request, fuse_ino_t, fuse_file_info*, struct flock*) {
  fuse_reply_err(request, ENOLCK);
}

void SetLock(fuse_req_t request, fuse_ino_t, fuse_file_info*, struct flock* lock, int) {
  fuse_reply_err(request, lock->l_type == F_UNLCK ? 0 : ENOLCK);
}

void LockFile(fuse_req_t request, fuse_ino_t, fuse_file_info*, int operation) {
  fuse_reply_err(request, (operation & LOCK_UN) != 0 ? 0 : ENOLCK);
}

fuse_lowlevel_ops MakeOperations() {
  fuse_lowlevel_ops operations{};
  operations.init = Init;
  operations.lookup = OfNode<Lookup, Kind::kLookup>::Call;
  operations.forget = Forget;
  operations.forget_multi = ForgetMany;
  operations.getattr = OfNode<GetAttributes, Kind::kGetAttributes>::Call;
  operations.setattr = OfNode<SetAttributes, Kind::kSetAttributes>::Call;
  operations.getxattr = OfNode<GetExtended, Kind::kExtended>::Call;
  operations.setxattr = OfNode<SetExtended, Kind::kExtended>::Call;
  operations.removexattr = OfNode<RemoveExtended, Kind::kExtended>::Call;
  operations.listxattr = OfNode<ListExtended, Kind::kExtended>::Call;
  operations.mkdir = OfNode<MakeDirectory, Kind::kMake>::Call;
  operations.mknod = OfNode<MakeNode, Kind::kMake>::Call;
  operations.symlink = MakeSymlinkIn;
  operations.readlink = OfNode<ReadSymlink, Kind::kGetAttributes>::Call;
  operations.link = LinkIn;
  operations.unlink = OfNode<Unlink, Kind::kRemove>::Call;
  operations.rmdir = OfNode<RemoveDirectory, Kind::kRemove>::Call;
  operations.rename = RenameIn;
  operations.open = OfNode<Open, Kind::kOpen>::Call;
  operations.create = OfNode<Create, Kind::kCreate>::Call;
  operations.read = OfNode<Read, Kind::kRead>::Call;
  operations.write = OfNode<Write, Kind::kWrite>::Call;
  operations.fallocate = OfNode<Allocate, Kind::kAllocate>::Call;
  operations.getlk = TellLock;
  operations.setlk = SetLock;
  operations.flock = LockFile;
  operations.lseek = OfNode<Seek, Kind::kSeek>::Call;
  operations.copy_file_range = OfNode<CopyFileRange, Kind::kCopy>::Call;
  operations.flush = OfNode<Flush, Kind::kClose>::Call;
  operations.release = OfNode<Release, Kind::kClose>::Call;
  operations.fsync = OfNode<Sync, Kind::kSync>::Call;
  operations.fsyncdir = OfNode<SyncDirectory, Kind::kSync>::Call;
  operations.opendir = OfNode<OpenDirectory, Kind::kList>::Call;
  operations.readdir = OfNode<ReadDirectory, Kind::kList>::Call;
  operations.readdirplus = OfNode<ReadDirectoryPlus, Kind::kList>::Call;
  operations.releasedir = OfNode<ReleaseDirectory, Kind::kList>::Call;
  operations.statfs = OfNode<StatFileSystem, Kind::kStatFileSystem>::Call;
  return operations;
}

}  // namespace
}  // namespace requests

ssize_t ReadRequest(int fd, void* buffer, size_t size, void*) {
  const ssize_t got = read(fd, buffer, size);
  // libfuse does not know this request (O_TMPFILE) and would refuse it. It differs from a
  // FUSE_CREATE only in its number and in the name, and has the same answer (linux/fuse.h).
  auto* const header = static_cast<fuse_in_header*>(buffer);
  if (got >= static_cast<ssize_t>(sizeof(*header)) && header->opcode == FUSE_TMPFILE) {
    header->opcode = FUSE_CREATE;
  }
  return got;
}

ssize_t WriteAnswer(int fd, iovec* pieces, int count, void*) { return writev(fd, pieces, count); }

const fuse_lowlevel_ops& Operations() {
  static const fuse_lowlevel_ops operations = requests::MakeOperations();
  return operations;
}

}  // namespace pinstripe
