// Requests by name or by inode number: lookups, attributes, extended attributes, making, removing
// and renaming.

#include <linux/fs.h>
#include <sys/xattr.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/answer.h"
#include "base/try.h"
#include "fs/names/acl.h"
#include "fs/names/extended.h"
#include "fs/posix_stat.h"
#include "fuse/requests.h"
#include "fuse/virtual_files.h"

namespace pinstripe::requests {
namespace {

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

// With the mount option uid= or gid= everything seems to belong to one user or group. Then a file
// can be given to nobody else (false), and giving it to that one changes nothing.
bool DropSeeming(const std::optional<uint32_t>& seeming, std::optional<uint32_t>& wanted) {
  if (!seeming) return true;
  if (wanted.value_or(*seeming) != *seeming) return false;
  wanted.reset();
  return true;
}

// Replies to a caller that has room for `room` bytes. With 0 the caller asks how many there are.
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

// Refuses ACLs where the kernel does not go by them. Nobody shall believe that they hold.
bool RefuseAcl(fuse_req_t request, std::string_view name) {
  if (!IsAcl(name) || MountOf(request).has_acls()) return false;
  fuse_reply_err(request, EOPNOTSUPP);
  return true;
}

// The access ACL that the kernel is to go by. If there is none any more, the kernel may still have
// permission bits from the time when there was one. Then it gets a list that says what the bits say
// now (told_acls.h).
Result<std::string> GetAccessAcl(Mount& mount, InodeId inode, Duration age) {
  FileSystem& fs = mount.file_system();
  auto found = fs.GetExtended(inode, kAccessAcl, age);
  const bool is_none = !found.has_value() && found.error().code() == ENODATA;
  if (!is_none || !mount.MayGoByAcl(inode)) return found;
  const Attributes attributes = TRY(fs.GetAttributes(inode, age));
  // If somebody has set an ACL in between, these bits are its mask, so the list is asked for anew.
  if (attributes.has_acl) return fs.GetExtended(inode, kAccessAcl);
  return EncodeAcl(AclOf(attributes.mode));
}

// Null: they cannot be known, for instance because the caller is in another namespace of processes.
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

// Whether setting an access ACL takes the set-group-id bit away. It does if the caller is not in
// the file's group: he may not have others run the file as that group. The kernel would tell us,
// but libfuse 3.14 does not pass that on.
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

// Only root sees names that begin with "trusted.".
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

}  // namespace

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

void GetExtended(fuse_req_t request, fuse_ino_t inode, const char* name, size_t room) {
  if (RefuseAcl(request, name)) return;
  if (IsVirtual(inode)) {
    fuse_reply_err(request, ENODATA);
    return;
  }
  Mount& mount = MountOf(request);
  // The kernel asks for ACLs whenever it has asked for attributes, and keeps them as long. `ls`
  // asks for capabilities then.
  const bool goes_with_attributes = IsAcl(name) || name == kCapability;
  const Duration age = goes_with_attributes ? mount.options().attribute_age / 2 : Duration();
  ReplyExtended(request,
                name == kAccessAcl ? GetAccessAcl(mount, inode, age)
                                   : mount.file_system().GetExtended(inode, name, age),
                room, "getxattr", inode);
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
  // The kernel would believe these attributes even if it has learned newer ones meanwhile.
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
    fuse_reply_err(request, EINVAL);  // as renameat2(2) does for flags that are not supported
    return;
  }
  ReplyStatus(request,
              FileSystemOf(request).Rename(directory, name, new_directory, new_name,
                                           (flags & RENAME_NOREPLACE) != 0),
              "rename", Subject(directory, name));
}

}  // namespace pinstripe::requests
