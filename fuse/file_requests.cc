// Requests that open a file, or come with the handle of one.

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>

#include "base/answer.h"
#include "fs/files/copy_range.h"
#include "fuse/requests.h"
#include "fuse/virtual_files.h"

namespace pinstripe::requests {
namespace {

constexpr std::string_view kNoName = "/";
constexpr size_t kMostCopiedAtOnce = 64 << 20;  // of one copy_file_range(2)

// Gives the handle to the kernel with `reply`. Takes it back if the caller is gone.
template <typename Reply>
void HandOver(fuse_req_t request, std::unique_ptr<OpenFile> file, bool writes, fuse_file_info* info,
              Reply reply) {
  Mount& mount = MountOf(request);  // the request is gone after the reply
  const InodeId inode = file->inode();
  const uint64_t writers = mount.kept_pages().Writers();
  const uint64_t version = writes ? 0 : file->Version();
  KeptPages::Opened opened;
  if (version != 0) opened = mount.kept_pages().OpenToRead(inode, version, writers);
  if (!writes && !opened.keep) file->ExpectReading();
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
  info->direct_io = 1;  // the kernel reads to the end instead of going by the size, which is 0
  HandOver(request, OpenVirtual(inode, std::move(text)), /*writes=*/false, info,
           [&] { return fuse_reply_open(request, info); });
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

}  // namespace

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
  MountOf(request).ForgetAttributes(inode);  // reads go by the size that the file has now
  HandOver(request, *std::move(file), writes, info, [&] { return fuse_reply_open(request, info); });
}

// The kernel also asks for this with O_TMPFILE, with a name that no file can have (ReadRequest).
//
// The kernel has found no such name, so it does not check what the caller may do with the new file.
// If somebody else has made a file of that name meanwhile, ESTALE has the kernel look again, and
// check who may open it.
//
// With O_EXCL the caller wants to know now whether the name is his on all hosts.
void Create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode,
            fuse_file_info* info) {
  FileSystem& fs = FileSystemOf(request);
  const bool is_exclusive = (info->flags & O_EXCL) != 0;
  Result<std::unique_ptr<OpenFile>> file =
      name == kNoName
          ? fs.CreateUnnamed(directory, mode & 07777, CallerOf(request), UmaskOf(request))
          : fs.Create(directory, name,
                      {.mode = mode & 07777,
                       .umask = UmaskOf(request),
                       .owner = CallerOf(request),
                       .exclusive = true,
                       .appears_later = !is_exclusive && MountOf(request).options().async_names});
  const bool is_taken = !file.has_value() && file.error().code() == EEXIST;
  if (is_taken && !is_exclusive) {
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

// For O_APPEND the kernel has set the offset to the end, under its lock of the inode. As elsewhere,
// a write that crosses the largest size of a file ends there, and one that begins there fails.
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

// Copies a part at a time, so that a signal does not wait for long.
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

// The kernel asks for this at every close(2), which reports the answer.
void Flush(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  FileHandle& handle = HandleOf(info);
  ReplyStatus(request, handle.writes ? handle.file->Commit() : Status(), "close", Subject(inode));
}

// The kernel asks for this after the last close(2), and ignores the answer. A failure is in the
// log.
void Release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  ReplyStatus(request, MountOf(request).Release(&HandleOf(info)), "release", Subject(inode));
}

void Sync(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info* info) {
  ReplyStatus(request, HandleOf(info).file->Sync(), "fsync", Subject(inode));
}

}  // namespace pinstripe::requests
