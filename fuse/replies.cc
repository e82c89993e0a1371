// What all requests share: who asks, how long the kernel may keep which attributes, and how errors
// are answered.

#include <algorithm>

#include "base/answer.h"
#include "fs/posix_stat.h"
#include "fuse/requests.h"

namespace pinstripe::requests {
namespace {

struct stat StatOf(const Mount& mount, const Attributes& attributes) {
  struct stat stat = ToStat(attributes);
  stat.st_uid = mount.options().user.value_or(stat.st_uid);
  stat.st_gid = mount.options().group.value_or(stat.st_gid);
  return stat;
}

// How long the kernel may use attributes without asking again. It needs a directory's with every
// path that leads through it. A file's come with each look at its name, and serve the next steps of
// the same call: the open, and the kernel's own question before each read and write.
Duration AgeOfAttributes(const Mount& mount, FileKind kind) {
  constexpr Duration kOfFiles = std::chrono::milliseconds(50);
  const Duration age = mount.options().attribute_age;
  return kind == FileKind::kDirectory ? age : std::min(age, kOfFiles);
}

// How long it may use a name. It looks a file's name up with each path.
Duration AgeOfName(const Mount& mount, FileKind kind) {
  return kind == FileKind::kDirectory ? mount.options().name_age : Duration::zero();
}

}  // namespace

Owner CallerOf(fuse_req_t request) {
  const fuse_ctx* caller = fuse_req_ctx(request);
  const MountOptions& options = MountOf(request).options();
  return {options.user.value_or(caller->uid), options.group.value_or(caller->gid)};
}

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

void ReplyInodeStatus(fuse_req_t request, const Status& status, std::string_view operation,
                      InodeId inode) {
  const int code = Answer(status, operation, Subject(inode));
  if (code == EIO) MountOf(request).counters().CountError();
  fuse_reply_err(request, code == ENOENT ? ESTALE : code);
}

double SecondsOf(Duration age) { return std::chrono::duration<double>(age).count(); }

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
  // Half of the time here, because the attributes may have been that old when they were asked for.
  fuse_reply_attr(request, &stat, SecondsOf(AgeOfAttributes(mount, attributes->kind) / 2));
}

}  // namespace pinstripe::requests
