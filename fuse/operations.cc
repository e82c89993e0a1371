#define FUSE_USE_VERSION 312

#include "fuse/operations.h"

#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/answer.h"
#include "base/try.h"
#include "fs/files/copy_range.h"
#include "fs/names/acl.h"
#include "fs/posix_stat.h"
#include "fuse/directory_positions.h"
#include "fuse/virtual_files.h"

namespace pinstripe {

FileHandle* Mount::Add(std::unique_ptr<OpenFile> file, bool writes, KeptPages::Opened opened) {
  auto* handle = new FileHandle{.file = std::move(file), .writes = writes, .opened = opened};
  if (writes) kept_pages_.OpenToWrite(handle->file->inode());
  const std::lock_guard lock(mutex_);
  handles_.insert(handle);
  return handle;
}

Status Mount::Release(FileHandle* handle) {
  {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
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
  // How long an answer may be on its way, and he who has asked wait for the processor.
  constexpr Duration kAnswered = std::chrono::seconds(5);
  if (!has_acls_ || !attributes.has_acl) return;
  const Time now = runtime_.Now();
  told_acls_.Tell(attributes.inode, now, now + options_.attribute_age + kAnswered);
}

bool Mount::LooksNamesUp() const {
  if (options_.attribute_age == Duration::zero()) return false;  // all is to be asked for
  const Duration longest = std::max(options_.name_age, options_.attribute_age);
  const Time listed = listed_at_;
  return listed == Time::min() || runtime_.Now() - listed > 2 * longest;  // it may be on its way
}

namespace {

constexpr std::string_view kNoName = "/";
constexpr unsigned kMaxWriteBytes = 1 << 20;
constexpr size_t kMostCopiedAtOnce = 64 << 20;  // of one copy_file_range(2)
constexpr unsigned kRequestsInBackground = 64;  // read-ahead that the kernel keeps under way
constexpr uint64_t kStatBlockBytes = 4096;

// A directory that is being listed. The kernel may read one through several threads.
struct DirectoryHandle {
  std::mutex mutex;
  DirectoryPositions positions;  // guarded by mutex
};

Mount& MountOf(fuse_req_t request) { return *static_cast<Mount*>(fuse_req_userdata(request)); }
FileSystem& FileSystemOf(fuse_req_t request) { return MountOf(request).file_system(); }
FileHandle& HandleOf(const fuse_file_info* info) {
  return *reinterpret_cast<FileHandle*>(info->fh);
}
DirectoryHandle& DirectoryOf(const fuse_file_info* info) {
  return *reinterpret_cast<DirectoryHandle*>(info->fh);
}

// To whom what the caller makes belongs.
Owner CallerOf(fuse_req_t request) {
  const fuse_ctx* caller = fuse_req_ctx(request);
  const MountOptions& options = MountOf(request).options();
  return {options.user.value_or(caller->uid), options.group.value_or(caller->gid)};
}

// What has to go from the mode of what the caller makes, unless an ACL says what is to go. Without
// ACLs the kernel has done it.
uint32_t UmaskOf(fuse_req_t request) {
  return MountOf(request).has_acls() ? fuse_req_ctx(request)->umask : 0;
}

std::string Subject(InodeId inode) { return fmt::format("inode {}", inode); }
std::string Subject(InodeId directory, std::string_view name) {
  return fmt::format("{} in directory {}", name, directory);
}

void ReplyStatus(fuse_req_t request, const Status& status, std::string_view operation,
                 std::string_view subject) {
  const int code = Answer(status, operation, subject);
  if (code == EIO) MountOf(request).counters().CountError();
  fuse_reply_err(request, code);
}

// The status of an inode that was asked for by its number: when that is gone, the kernel shall look
// the name up again.
void ReplyInodeStatus(fuse_req_t request, const Status& status, std::string_view operation,
                      InodeId inode) {
  const int code = Answer(status, operation, Subject(inode));
  if (code == EIO) MountOf(request).counters().CountError();
  fuse_reply_err(request, code == ENOENT ? ESTALE : code);
}

struct stat StatOf(const Mount& mount, const Attributes& attributes) {
  struct stat stat = ToStat(attributes);
  stat.st_uid = mount.options().user.value_or(stat.st_uid);
  stat.st_gid = mount.options().group.value_or(stat.st_gid);
  return stat;
}

double SecondsOf(Duration age) { return std::chrono::duration<double>(age).count(); }

// How long the kernel may use the attributes of such a one without asking again. A directory's are
// asked for with every path that leads through it. A file's come with each look at its name, for
// what is done with it just after: opening it, and the kernel's own question before each read and
// write.
Duration AgeOfAttributes(const Mount& mount, FileKind kind) {
  constexpr Duration kOfFiles = std::chrono::milliseconds(50);
  const Duration age = mount.options().attribute_age;
  return kind == FileKind::kDirectory ? age : std::min(age, kOfFiles);
}

// And how long a name: a file's is looked up with each path.
Duration AgeOfName(const Mount& mount, FileKind kind) {
  return kind == FileKind::kDirectory ? mount.options().name_age : Duration::zero();
}

fuse_entry_param EntryOf(Mount& mount, const Attributes& attributes) {
  mount.NoteAcl(attributes);
  fuse_entry_param entry{};
  entry.ino = attributes.inode;
  entry.attr = StatOf(mount, attributes);
  entry.entry_timeout = SecondsOf(AgeOfName(mount, attributes.kind));
  entry.attr_timeout = SecondsOf(AgeOfAttributes(mount, attributes.kind));
  return entry;
}

void ReplyEntry(fuse_req_t request, const Result<Attributes>& attributes,
                std::string_view operation, InodeId directory, const char* name) {
  if (!attributes.has_value()) {
    ReplyStatus(request, attributes.error(), operation, Subject(directory, name));
    return;
  }
  const fuse_entry_param entry = EntryOf(MountOf(request), *attributes);
  fuse_reply_entry(request, &entry);
}

void ReplyAttributes(fuse_req_t request, const Result<Attributes>& attributes,
                     std::string_view operation, InodeId inode) {
  if (!attributes.has_value()) {
    ReplyInodeStatus(request, attributes.error(), operation, inode);
    return;
  }
  Mount& mount = MountOf(request);
  mount.NoteAcl(*attributes);
  const struct stat stat = StatOf(mount, *attributes);
  // Half of the time here, as they may have been that old when they were asked for.
  fuse_reply_attr(request, &stat, SecondsOf(AgeOfAttributes(mount, attributes->kind) / 2));
}

void Init(void* user_data, fuse_conn_info* connection) {
  Mount& mount = *static_cast<Mount*>(user_data);
  // Unless it asks us for each lock, the kernel keeps them itself.
  if (mount.options().locks) {
    connection->want &= ~unsigned{FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS};
  }
  // The kernel asks for ACLs and goes by them. It leaves the umask to us then, who know whether a
  // directory has a default ACL.
  constexpr unsigned kForAcls = FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK;
  if (mount.options().acls && (connection->capable & kForAcls) == kForAcls) {
    connection->want |= kForAcls;
    mount.HaveAcls();
  }
  // O_TRUNC comes with the open, so that a file keeps its old contents until the new ones are
  // there.
  connection->want |= connection->capable & FUSE_CAP_ATOMIC_O_TRUNC;
  // With attributes always, and not only when the kernel finds that they were asked for.
  connection->want |= connection->capable & FUSE_CAP_READDIRPLUS;
  connection->want &= ~unsigned{FUSE_CAP_READDIRPLUS_AUTO};
  // An inode's target never changes.
  connection->want |= connection->capable & FUSE_CAP_CACHE_SYMLINKS;
  connection->max_write = kMaxWriteBytes;
  connection->max_background = kRequestsInBackground;
}

void Lookup(fuse_req_t request, fuse_ino_t directory, const char* name) {
  const auto ours = FindVirtual(MountOf(request).root(), directory, name);
  ReplyEntry(request,
             ours ? Result<Attributes>(*ours) : FileSystemOf(request).Lookup(directory, name),
             "lookup", directory, name);
}

void Forget(fuse_req_t request, fuse_ino_t, uint64_t) { fuse_reply_none(request); }

void ForgetMany(fuse_req_t request, size_t, fuse_forget_data*) { fuse_reply_none(request); }

void GetAttributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  if (IsVirtual(inode)) {
    return ReplyAttributes(request, VirtualAttributes(inode), "getattr", inode);
  }
  const Duration age = MountOf(request).options().attribute_age / 2;
  ReplyAttributes(request,
                  info != nullptr ? HandleOf(info).file->Stat(age)
                                  : FileSystemOf(request).GetAttributes(inode, age),
                  "getattr", inode);
}

AttributeChange ChangeOf(const struct stat& wanted, int which, int64_t now) {
  AttributeChange change;
  if (which & FUSE_SET_ATTR_MODE) change.mode = wanted.st_mode & 07777;
  if (which & FUSE_SET_ATTR_UID) change.user = wanted.st_uid;
  if (which & FUSE_SET_ATTR_GID) change.group = wanted.st_gid;
  if (which & FUSE_SET_ATTR_SIZE) change.size = static_cast<uint64_t>(wanted.st_size);
  if (which & FUSE_SET_ATTR_ATIME) change.accessed = ToNanoseconds(wanted.st_atim);
  if (which & FUSE_SET_ATTR_MTIME) change.modified = ToNanoseconds(wanted.st_mtim);
  if (which & FUSE_SET_ATTR_ATIME_NOW) change.accessed = now;
  if (which & FUSE_SET_ATTR_MTIME_NOW) change.modified = now;
  return change;
}

Result<Attributes> Change(OpenFile& file, const AttributeChange& change) {
  TRY(file.SetAttributes(change));
  return file.Stat();
}

// Where everything seems to belong to somebody, it can be given to nobody else, and who asks for
// what is so already changes nothing.
bool DropSeeming(const std::optional<uint32_t>& seeming, std::optional<uint32_t>& wanted) {
  if (!seeming) return true;
  if (wanted.value_or(*seeming) != *seeming) return false;
  wanted.reset();
  return true;
}

void SetAttributes(fuse_req_t request, fuse_ino_t inode, struct stat* wanted, int which,
                   fuse_file_info* info) {
  if (IsVirtual(inode)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  const MountOptions& options = MountOf(request).options();
  AttributeChange change = ChangeOf(*wanted, which, MountOf(request).runtime().WallClock());
  if (!DropSeeming(options.user, change.user) || !DropSeeming(options.group, change.group)) {
    fuse_reply_err(request, EPERM);
    return;
  }
  std::optional<KeptPages::Writing> writing;
  if (change.size) writing.emplace(MountOf(request).kept_pages(), inode);
  ReplyAttributes(request,
                  info != nullptr ? Change(*HandleOf(info).file, change)
                                  : FileSystemOf(request).SetAttributes(inode, change),
                  "setattr", inode);
}

// Answers a question whose asker has room for `room` bytes, or, with 0, asks how many there are.
void ReplyExtended(fuse_req_t request, const Result<std::string>& answer, size_t room,
                   std::string_view operation, InodeId inode) {
  if (!answer.has_value()) {
    ReplyInodeStatus(request, answer.error(), operation, inode);
  } else if (room == 0) {
    fuse_reply_xattr(request, answer->size());
  } else if (answer->size() > room) {
    fuse_reply_err(request, ERANGE);
  } else {
    fuse_reply_buf(request, answer->data(), answer->size());
  }
}

// Who does not go by ACLs shall not believe that they hold.
bool RefuseAcl(fuse_req_t request, std::string_view name) {
  if (!IsAcl(name) || MountOf(request).has_acls()) return false;
  fuse_reply_err(request, EOPNOTSUPP);
  return true;
}

// What the kernel is to go by where there is no access ACL. If it may have bits from when there was
// one, it is told what the bits say now, and not that there is none.
Result<std::string> GetAccessAcl(Mount& mount, InodeId inode, Duration age) {
  FileSystem& fs = mount.file_system();
  auto found = fs.GetExtended(inode, kAccessAcl, age);
  const bool is_none = !found.has_value() && found.error().code() == ENODATA;
  if (!is_none || !mount.MayGoByAcl(inode)) return found;
  const Attributes attributes = TRY(fs.GetAttributes(inode, age));
  // With one that was set in between its bits count as its list does, which is asked for anew.
  if (attributes.has_acl) return fs.GetExtended(inode, kAccessAcl);
  return EncodeAcl(AclOf(attributes.mode));
}

void GetExtended(fuse_req_t request, fuse_ino_t inode, const char* name, size_t room) {
  if (RefuseAcl(request, name)) return;
  if (IsVirtual(inode)) {
    fuse_reply_err(request, ENODATA);
    return;
  }
  Mount& mount = MountOf(request);
  // The kernel asks for ACLs whenever it has asked for attributes, and keeps them as long.
  const Duration age = IsAcl(name) ? mount.options().attribute_age / 2 : Duration();
  ReplyExtended(request,
                name == kAccessAcl ? GetAccessAcl(mount, inode, age)
                                   : mount.file_system().GetExtended(inode, name, age),
                room, "getxattr", inode);
}

// Null: they cannot be known, as those of who is in another namespace of processes.
std::optional<std::vector<gid_t>> OtherGroupsOf(fuse_req_t request) {
  std::vector<gid_t> groups(64);
  for (;;) {
    const int count = fuse_req_getgroups(request, static_cast<int>(groups.size()), groups.data());
    if (count < 0) return std::nullopt;
    const bool all = static_cast<size_t>(count) <= groups.size();
    groups.resize(static_cast<size_t>(count));
    if (all) return groups;
  }
}

// Who is not in the group of a file has nobody run it as that group, also by an ACL. The kernel
// would tell so, but libfuse 3.14 does not let it.
FileSystem::SetGroupBit SetGroupBitAfterAcl(fuse_req_t request, InodeId inode) {
  using Bit = FileSystem::SetGroupBit;
  constexpr uint32_t kSetGroup = 02000;
  const fuse_ctx* caller = fuse_req_ctx(request);
  if (caller->uid == 0) return Bit::kStays;
  const auto attributes = FileSystemOf(request).GetAttributes(inode);
  if (!attributes.has_value() || (attributes->mode & kSetGroup) == 0) return Bit::kStays;
  const gid_t group = MountOf(request).options().group.value_or(attributes->owner.group);
  if (caller->gid == group) return Bit::kStays;
  const auto others = OtherGroupsOf(request);
  const bool is_in = others && std::ranges::find(*others, group) != others->end();
  return is_in ? Bit::kStays : Bit::kGoes;
}

void SetExtended(fuse_req_t request, fuse_ino_t inode, const char* name, const char* value,
                 size_t length, int flags) {
  using Mode = FileSystem::ExtendedMode;
  if (RefuseAcl(request, name)) return;
  const Mode mode = (flags & XATTR_CREATE) != 0    ? Mode::kCreate
                    : (flags & XATTR_REPLACE) != 0 ? Mode::kReplace
                                                   : Mode::kSet;
  const auto set_group =
      name == kAccessAcl ? SetGroupBitAfterAcl(request, inode) : FileSystem::SetGroupBit::kStays;
  ReplyInodeStatus(request,
                   FileSystemOf(request).SetExtended(inode, name, std::string_view(value, length),
                                                     mode, set_group),
                   "setxattr", inode);
}

void RemoveExtended(fuse_req_t request, fuse_ino_t inode, const char* name) {
  if (RefuseAcl(request, name)) return;
  ReplyInodeStatus(request, FileSystemOf(request).RemoveExtended(inode, name), "removexattr",
                   inode);
}

// "trusted." is nobody's business but root's.
Result<std::string> NamesOfExtended(Mount& mount, InodeId inode, bool for_root) {
  std::string list;
  if (IsVirtual(inode)) return list;
  for (const std::string& name : TRY(mount.file_system().ListExtended(inode))) {
    if (!for_root && name.starts_with("trusted.")) continue;
    if (!mount.has_acls() && IsAcl(name)) continue;
    list.append(name).push_back('\0');
  }
  return list;
}

void ListExtended(fuse_req_t request, fuse_ino_t inode, size_t room) {
  const bool for_root = fuse_req_ctx(request)->uid == 0;
  ReplyExtended(request, NamesOfExtended(MountOf(request), inode, for_root), room, "listxattr",
                inode);
}

void MakeDirectory(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode) {
  ReplyEntry(request,
             FileSystemOf(request).MakeDirectory(directory, name, mode & 07777, CallerOf(request),
                                                 UmaskOf(request)),
             "mkdir", directory, name);
}

void MakeNode(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
              dev_t device) {
  const std::optional<FileKind> kind = KindOf(mode);
  if (!kind) {
    fuse_reply_err(request, EINVAL);
    return;
  }
  ReplyEntry(request,
             FileSystemOf(request).MakeNode(
                 directory, name, *kind, mode & 07777, CallerOf(request),
                 {.major_number = major(device), .minor_number = minor(device)}, UmaskOf(request)),
             "mknod", directory, name);
}

void MakeSymlink(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name) {
  ReplyEntry(request, FileSystemOf(request).MakeSymlink(directory, name, target, CallerOf(request)),
             "symlink", directory, name);
}

void ReadSymlink(fuse_req_t request, fuse_ino_t inode) {
  const Result<std::string> target = FileSystemOf(request).ReadSymlink(inode);
  if (!target.has_value()) {
    ReplyInodeStatus(request, target.error(), "readlink", inode);
    return;
  }
  fuse_reply_readlink(request, target->c_str());
}

void Link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t directory, const char* name) {
  const Result<Attributes> linked = FileSystemOf(request).Link(inode, directory, name);
  if (!linked.has_value()) {
    ReplyInodeStatus(request, linked.error(), "link", inode);
    return;
  }
  // The kernel believes this even where it has learned something newer meanwhile.
  fuse_entry_param entry = EntryOf(MountOf(request), *linked);
  entry.attr_timeout = 0;
  fuse_reply_entry(request, &entry);
}

void Unlink(fuse_req_t request, fuse_ino_t directory, const char* name) {
  ReplyStatus(request, FileSystemOf(request).Unlink(directory, name), "unlink",
              Subject(directory, name));
}

void RemoveDirectory(fuse_req_t request, fuse_ino_t directory, const char* name) {
  ReplyStatus(request, FileSystemOf(request).RemoveDirectory(directory, name), "rmdir",
              Subject(directory, name));
}

void Rename(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
            const char* new_name, unsigned flags) {
  if (flags == RENAME_EXCHANGE) {
    ReplyStatus(request, FileSystemOf(request).Exchange(directory, name, new_directory, new_name),
                "exchange", Subject(directory, name));
    return;
  }
  if ((flags & ~unsigned{RENAME_NOREPLACE}) != 0) {
    fuse_reply_err(request, EINVAL);  // what renameat2(2) says of flags that are not supported
    return;
  }
  ReplyStatus(request,
              FileSystemOf(request).Rename(directory, name, new_directory, new_name,
                                           (flags & RENAME_NOREPLACE) != 0),
              "rename", Subject(directory, name));
}

// Gives the handle to the kernel with `reply`, or takes it back when the caller is gone.
template <typename Reply>
void HandOver(fuse_req_t request, std::unique_ptr<OpenFile> file, bool writes, fuse_file_info* info,
              Reply reply) {
  Mount& mount = MountOf(request);  // the request is gone after the reply
  const InodeId inode = file->inode();
  const uint64_t writers = mount.kept_pages().Writers();
  const uint64_t version = writes ? 0 : file->Version();
  KeptPages::Opened opened;
  if (version != 0) opened = mount.kept_pages().OpenToRead(inode, version, writers);
  FileHandle* handle = mount.Add(std::move(file), writes, opened);
  info->fh = reinterpret_cast<uint64_t>(handle);
  info->noflush = !writes;  // nothing to commit at close
  info->keep_cache = opened.keep;
  if (reply() == -ENOENT) Answer(mount.Release(handle), "close", Subject(inode));
}

void OpenText(fuse_req_t request, InodeId inode, fuse_file_info* info) {
  Mount& mount = MountOf(request);
  std::string text = inode == kStatsFile ? mount.counters().Text(mount.file_system().Memory())
                                         : mount.description();
  info->direct_io = 1;  // its size is told by reading it
  HandOver(request, OpenVirtual(inode, std::move(text)), /*writes=*/false, info,
           [&] { return fuse_reply_open(request, info); });
}

void Open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  // Linux empties a file that is opened for reading and truncation, too.
  const bool truncates = (info->flags & O_TRUNC) != 0;
  const bool writes = truncates || (info->flags & O_ACCMODE) != O_RDONLY;
  if (IsVirtual(inode)) {
    if (!writes) return OpenText(request, inode, info);
    fuse_reply_err(request, EACCES);
    return;
  }
  using Freshness = FileSystem::Freshness;
  Result<std::unique_ptr<OpenFile>> file = FileSystemOf(request).Open(
      inode, writes ? FileSystem::Access::kWrite : FileSystem::Access::kRead, truncates,
      MountOf(request).LooksNamesUp() ? Freshness::kAsLookedUp : Freshness::kNow);
  if (!file.has_value()) {
    ReplyInodeStatus(request, file.error(), "open", inode);
    return;
  }
  MountOf(request).ForgetAttributes(inode);  // what is read from now on is what is there now
  HandOver(request, *std::move(file), writes, info, [&] { return fuse_reply_open(request, info); });
}

// Also what the kernel asks for with O_TMPFILE, under a name that no file can have.
//
// The kernel has found no such name, and lets the caller do what he wants with what is made. Where
// somebody else has made it meanwhile, ESTALE has the kernel look again, and see who may open it.
void Create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
            fuse_file_info* info) {
  FileSystem& fs = FileSystemOf(request);
  Result<std::unique_ptr<OpenFile>> file =
      name == kNoName
          ? fs.CreateUnnamed(directory, mode & 07777, CallerOf(request), UmaskOf(request))
          : fs.Create(directory, name,
                      {.mode = mode & 07777,
                       .umask = UmaskOf(request),
                       .owner = CallerOf(request),
                       .exclusive = true});
  const bool is_taken = !file.has_value() && file.error().code() == EEXIST;
  if (is_taken && (info->flags & O_EXCL) == 0) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  if (!file.has_value()) {
    ReplyStatus(request, file.error(), "create", Subject(directory, name));
    return;
  }
  const fuse_entry_param entry = EntryOf(MountOf(request), (*file)->Known());
  HandOver(request, *std::move(file), /*writes=*/true, info,
           [&] { return fuse_reply_create(request, &entry, info); });
}

void Read(fuse_req_t request, fuse_ino_t inode, size_t length, off_t offset, fuse_file_info* info) {
  Buffer buffer(length);
  FileHandle& handle = HandleOf(info);
  if (handle.opened.version != 0 && !handle.was_read.exchange(true)) {
    MountOf(request).kept_pages().ReadBegins(inode, handle.opened);
  }
  const Result<size_t> read = handle.file->Read(static_cast<uint64_t>(offset), buffer);
  if (!read.has_value()) {
    ReplyStatus(request, read.error(), "read", Subject(inode));
    return;
  }
  MountOf(request).counters().CountRead(*read);
  fuse_reply_buf(request, reinterpret_cast<const char*>(buffer.data()), *read);
}

// The kernel has put the data of O_APPEND at the end already, under its lock of the inode. A write
// that goes beyond what a file may have ends there, as elsewhere; one that begins there fails.
void Write(fuse_req_t request, fuse_ino_t inode, const char* data, size_t length, off_t offset,
           fuse_file_info* info) {
  const uint64_t left = kMaxFileBytes - std::min(static_cast<uint64_t>(offset), kMaxFileBytes);
  if (left > 0) length = std::min<uint64_t>(length, left);
  const Status written = HandleOf(info).file->Write(
      static_cast<uint64_t>(offset), Bytes(reinterpret_cast<const std::byte*>(data), length));
  if (!written.ok()) {
    ReplyStatus(request, written, "write", Subject(inode));
    return;
  }
  MountOf(request).counters().CountWritten(length);
  fuse_reply_write(request, length);
}

Status ChangeRange(OpenFile& file, int mode, uint64_t offset, uint64_t length) {
  const auto size =
      (mode & FALLOC_FL_KEEP_SIZE) != 0 ? OpenFile::Size::kStays : OpenFile::Size::kGrows;
  switch (mode & ~FALLOC_FL_KEEP_SIZE) {
    case 0: return file.Allocate(offset, length, size);
    case FALLOC_FL_ZERO_RANGE: return file.Zero(offset, length, size);
    case FALLOC_FL_PUNCH_HOLE:
      if (size == OpenFile::Size::kStays) return file.Zero(offset, length, size);
  }
  return Fail(EOPNOTSUPP, "fallocate with mode {:#x}", mode);
}

void Allocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
              fuse_file_info* info) {
  ReplyStatus(request,
              ChangeRange(*HandleOf(info).file, mode, static_cast<uint64_t>(offset),
                          static_cast<uint64_t>(length)),
              "fallocate", Subject(inode));
}

// The kernel answers the other kinds of lseek(2) itself.
void Seek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence, fuse_file_info* info) {
  if (offset < 0 || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
    fuse_reply_err(request, offset < 0 ? ENXIO : EINVAL);
    return;
  }
  const Result<uint64_t> found = HandleOf(info).file->Seek(
      static_cast<uint64_t>(offset),
      whence == SEEK_DATA ? OpenFile::Contents::kData : OpenFile::Contents::kHole);
  if (found.has_value()) {
    fuse_reply_lseek(request, static_cast<off_t>(*found));
  } else {
    ReplyStatus(request, found.error(), "lseek", Subject(inode));
  }
}

// So much at a time that a signal does not wait for long.
void CopyFileRange(fuse_req_t request, fuse_ino_t inode, off_t offset, fuse_file_info* info,
                   fuse_ino_t, off_t target_offset, fuse_file_info* target_info, size_t length,
                   int) {
  const Result<uint64_t> copied =
      CopyRange(*HandleOf(info).file, static_cast<uint64_t>(offset), *HandleOf(target_info).file,
                static_cast<uint64_t>(target_offset), length, kMostCopiedAtOnce);
  if (copied.has_value()) {
    fuse_reply_write(request, *copied);
  } else {
    ReplyStatus(request, copied.error(), "copy_file_range", Subject(inode));
  }
}

// At every close(2), which reports what this says.
void Flush(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  FileHandle& handle = HandleOf(info);
  ReplyStatus(request, handle.writes ? handle.file->Commit() : Status(), "close", Subject(inode));
}

// After the last one; nobody is told what this says, but the log is.
void Release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  ReplyStatus(request, MountOf(request).Release(&HandleOf(info)), "release", Subject(inode));
}

void Sync(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info* info) {
  ReplyStatus(request, HandleOf(info).file->Sync(), "fsync", Subject(inode));
}

void SyncDirectory(fuse_req_t request, fuse_ino_t directory, int, fuse_file_info*) {
  ReplyStatus(request, FileSystemOf(request).SyncDirectory(directory), "fsync", Subject(directory));
}

void OpenDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  auto handle = std::make_unique<DirectoryHandle>();
  info->fh = reinterpret_cast<uint64_t>(handle.get());
  if (fuse_reply_open(request, info) != -ENOENT) handle.release();  // the kernel's until released
}

void ReleaseDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  delete &DirectoryOf(info);
  fuse_reply_err(request, 0);
}

// The answer to one readdir or readdirplus, as it fills up.
class Listing {
 public:
  Listing(fuse_req_t request, size_t size, bool with_attributes)
      : mount_(MountOf(request)),
        request_(request),
        buffer_(size),
        with_attributes_(with_attributes) {}

  // How many entries are worth fetching: about what will fit.
  size_t room() const {
    constexpr size_t kTypicalBytes = 48;  // of an entry with its name
    constexpr size_t kTypicalBytesWithAttributes = 176;
    const size_t each = with_attributes_ ? kTypicalBytesWithAttributes : kTypicalBytes;
    return std::max<size_t>(1, (buffer_.size() - used_) / each);
  }

  // False when it does not fit any more.
  bool Add(const DirectoryEntry& entry, uint64_t position_after) {
    char* out = reinterpret_cast<char*>(buffer_.data()) + used_;
    const size_t left = buffer_.size() - used_;
    const auto position = static_cast<off_t>(position_after);
    // Without attributes, or for "." and "..", the node stays 0: the kernel then learns a name
    // only.
    fuse_entry_param param{};
    if (entry.attributes.has_value()) {
      const MountOptions& options = mount_.options();
      param = EntryOf(mount_, *entry.attributes);
      param.entry_timeout = SecondsOf(options.name_age);
      param.attr_timeout = SecondsOf(options.attribute_age);
    }
    param.attr.st_ino = entry.inode;
    param.attr.st_mode |= TypeBits(entry.kind);
    const size_t needed =
        with_attributes_
            ? fuse_add_direntry_plus(request_, out, left, entry.name.c_str(), &param, position)
            : fuse_add_direntry(request_, out, left, entry.name.c_str(), &param.attr, position);
    if (needed > left) return false;
    used_ += needed;
    return true;
  }

  bool empty() const { return used_ == 0; }
  // Another round trip for the few entries that would still fit is not worth it.
  bool full_enough() const { return used_ >= buffer_.size() / 2; }
  void Reply() { fuse_reply_buf(request_, reinterpret_cast<const char*>(buffer_.data()), used_); }

 private:
  Mount& mount_;
  const fuse_req_t request_;
  Buffer buffer_;
  const bool with_attributes_;
  size_t used_ = 0;
};

// "." and "..", from whichever of them `position` says; false when the listing is full.
Result<bool> AddDots(Mount& mount, InodeId directory, uint64_t& position, Listing& listing) {
  if (position == DirectoryPositions::kStart) {
    if (!listing.Add({".", directory, FileKind::kDirectory, {}}, DirectoryPositions::kAfterDot)) {
      return false;
    }
    position = DirectoryPositions::kAfterDot;
  }
  if (position == DirectoryPositions::kAfterDot) {
    // Nothing leads out of what is mounted.
    InodeId parent = mount.root();
    if (directory != mount.root() && !IsVirtual(directory)) {
      parent = TRY(mount.file_system().ParentOf(directory));
    }
    if (!listing.Add({"..", parent, FileKind::kDirectory, {}}, DirectoryPositions::kAfterDotDot)) {
      return false;
    }
    position = DirectoryPositions::kAfterDotDot;
  }
  return true;
}

// The name behind which a listing goes on.
Result<std::string> FindPlace(FileSystem& fs, InodeId directory,
                              const DirectoryPositions::Resume& resume) {
  constexpr size_t kNamesAtOnce = 256;
  std::string place = resume.after;
  if (resume.passed.empty()) return place;
  const auto has = [](const std::vector<uint32_t>& sums, uint32_t sum) {
    return std::find(sums.begin(), sums.end(), sum) != sums.end();
  };
  for (std::string after = resume.after;;) {
    const std::vector<DirectoryEntry> entries =
        TRY(fs.ReadDirectory(directory, after, kNamesAtOnce, /*with_attributes=*/false));
    if (entries.empty()) return place;
    for (const DirectoryEntry& entry : entries) {
      const uint32_t sum = DirectoryPositions::SumOf(entry.name);
      if (!resume.until.empty() && entry.name > resume.until) return place;
      if (has(resume.later, sum)) return place;
      if (has(resume.passed, sum)) place = entry.name;
      if (sum == resume.passed.back()) return place;
    }
    after = entries.back().name;
  }
}

Status List(Mount& mount, InodeId directory, uint64_t position, bool with_attributes,
            DirectoryHandle& handle, Listing& listing) {
  FileSystem& fs = mount.file_system();
  DirectoryPositions::Resume resume;
  {
    const std::lock_guard lock(handle.mutex);
    if (position == DirectoryPositions::kStart) handle.positions.Begin();
    if (!handle.positions.Knows(position)) {
      return Fail(EINVAL, "position {} was never handed out", position);
    }
    resume = handle.positions.At(position);
  }
  std::string after = TRY(FindPlace(fs, directory, resume));
  if (!TRY(AddDots(mount, directory, position, listing))) return {};
  for (;;) {
    // Attributes are fetched for what this answer has room for only: older ones would mislead the
    // kernel about files that are being written.
    const std::vector<DirectoryEntry> entries =
        IsVirtual(directory)
            ? ListVirtual(after)
            : TRY(fs.ReadDirectory(directory, after, listing.room(), with_attributes));
    if (entries.empty()) return {};
    const std::lock_guard lock(handle.mutex);
    for (const DirectoryEntry& entry : entries) {
      const uint64_t here = handle.positions.After(position, after, entry.name);
      if (!listing.Add(entry, here)) return {};
      position = here;
      after = entry.name;
    }
    if (listing.full_enough()) return {};
  }
}

void ReplyListing(fuse_req_t request, InodeId directory, size_t size, off_t offset,
                  const fuse_file_info* info, bool with_attributes) {
  Listing listing(request, size, with_attributes);
  const Status listed = List(MountOf(request), directory, static_cast<uint64_t>(offset),
                             with_attributes, DirectoryOf(info), listing);
  // What was found before a failure is handed out first; the next request will meet it again.
  if (!listed.ok() && listing.empty()) {
    ReplyStatus(request, listed, "readdir", Subject(directory));
    return;
  }
  if (with_attributes) MountOf(request).AttributesWereListed();
  listing.Reply();
}

void ReadDirectory(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                   fuse_file_info* info) {
  ReplyListing(request, directory, size, offset, info, /*with_attributes=*/false);
}

void ReadDirectoryPlus(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                       fuse_file_info* info) {
  ReplyListing(request, directory, size, offset, info, /*with_attributes=*/true);
}

void StatFileSystem(fuse_req_t request, fuse_ino_t) {
  const Result<SpaceInfo> space = FileSystemOf(request).Space();
  if (!space.has_value()) {
    ReplyStatus(request, space.error(), "statfs", "/");
    return;
  }
  struct statvfs out {};  // no number of files: there is no limit
  out.f_bsize = kStatBlockBytes;
  out.f_frsize = kStatBlockBytes;
  out.f_blocks = space->usable_bytes / kStatBlockBytes;
  out.f_bfree = space->usable_free_bytes / kStatBlockBytes;
  out.f_bavail = out.f_bfree;
  out.f_namemax = kMaxNameBytes;
  fuse_reply_statfs(request, &out);
}

// The function, which gets the file system's inode numbers instead of the kernel's.
InodeId InodeOf(fuse_req_t request, fuse_ino_t node) {
  return node == FUSE_ROOT_ID ? MountOf(request).root() : node;
}

// Counts the request, and how long it takes to answer it.
class Counted {
 public:
  Counted(fuse_req_t request, RequestCounters::Kind kind)
      : mount_(MountOf(request)), kind_(kind), start_(mount_.runtime().Now()) {}
  ~Counted() { mount_.counters().Count(kind_, mount_.runtime().Now() - start_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Mount& mount_;  // the request is gone after the reply
  const RequestCounters::Kind kind_;
  const Time start_;
};

using Kind = RequestCounters::Kind;

template <auto function, Kind kind>
struct OfNode;
template <Kind kind, typename... Rest, void (*function)(fuse_req_t, fuse_ino_t, Rest...)>
struct OfNode<function, kind> {
  static void Call(fuse_req_t request, fuse_ino_t node, Rest... rest) {
    const Counted counted(request, kind);
    function(request, InodeOf(request, node), rest...);
  }
};

void MakeSymlinkIn(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name) {
  const Counted counted(request, Kind::kMake);
  MakeSymlink(request, target, InodeOf(request, directory), name);
}
void LinkIn(fuse_req_t request, fuse_ino_t inode, fuse_ino_t directory, const char* name) {
  const Counted counted(request, Kind::kMake);
  Link(request, inode, InodeOf(request, directory), name);
}
void RenameIn(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
              const char* new_name, unsigned flags) {
  const Counted counted(request, Kind::kRename);
  Rename(request, InodeOf(request, directory), name, InodeOf(request, new_directory), new_name,
         flags);
}

// Asked only where there shall be no locks. To give up what nobody can have is no mistake.
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

ssize_t ReadRequest(int fd, void* buffer, size_t size, void*) {
  const ssize_t got = read(fd, buffer, size);
  // libfuse knows no request of that kind, so it would be refused. It is the same as a FUSE_CREATE
  // in all but its number and the name, and is answered in the same way (linux/fuse.h).
  auto* const header = static_cast<fuse_in_header*>(buffer);
  if (got >= static_cast<ssize_t>(sizeof(*header)) && header->opcode == FUSE_TMPFILE) {
    header->opcode = FUSE_CREATE;
  }
  return got;
}

ssize_t WriteAnswer(int fd, iovec* pieces, int count, void*) { return writev(fd, pieces, count); }

const fuse_lowlevel_ops& Operations() {
  static const fuse_lowlevel_ops operations = MakeOperations();
  return operations;
}

}  // namespace pinstripe
