// Attributes as the struct stat that both hosts, XRootD and the kernel, want.

#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <optional>

#include "fs/file_system.h"

namespace pinstripe {

inline mode_t TypeBits(FileKind kind) {
  switch (kind) {
    case FileKind::kDirectory: return S_IFDIR;
    case FileKind::kSymlink: return S_IFLNK;
    case FileKind::kFifo: return S_IFIFO;
    case FileKind::kSocket: return S_IFSOCK;
    case FileKind::kCharacterDevice: return S_IFCHR;
    case FileKind::kBlockDevice: return S_IFBLK;
    case FileKind::kRegular: break;
  }
  return S_IFREG;
}

// Null: the bits name no kind.
inline std::optional<FileKind> KindOf(mode_t mode) {
  switch (mode & S_IFMT) {
    case 0:  // mknod(2) takes it for a file
    case S_IFREG: return FileKind::kRegular;
    case S_IFDIR: return FileKind::kDirectory;
    case S_IFLNK: return FileKind::kSymlink;
    case S_IFIFO: return FileKind::kFifo;
    case S_IFSOCK: return FileKind::kSocket;
    case S_IFCHR: return FileKind::kCharacterDevice;
    case S_IFBLK: return FileKind::kBlockDevice;
    default: return std::nullopt;
  }
}

inline timespec ToTimespec(int64_t nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  timespec time{};
  time.tv_sec = nanoseconds / kSecond;
  time.tv_nsec = nanoseconds % kSecond;
  if (time.tv_nsec < 0) {  // before 1970
    time.tv_nsec += kSecond;
    --time.tv_sec;
  }
  return time;
}

// A time that cannot be kept, before 1677 or after 2262, becomes the first or the last whole second
// that can, as other file systems do it. Nanoseconds that are none become the nearest that are.
inline int64_t ToNanoseconds(const timespec& time) {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kMostSeconds = INT64_MAX / kSecond;
  const int64_t seconds = std::clamp<int64_t>(time.tv_sec, -kMostSeconds, kMostSeconds);
  const bool at_the_end = seconds == kMostSeconds || seconds == -kMostSeconds;
  const int64_t nanoseconds = std::clamp<int64_t>(time.tv_nsec, 0, kSecond - 1);
  return seconds * kSecond + (at_the_end ? 0 : nanoseconds);
}

inline struct stat ToStat(const Attributes& attributes) {
  struct stat out {};
  out.st_dev = 1;  // the kernel puts its own; XRootD takes 0 for a file that is offline
  out.st_ino = attributes.inode;
  out.st_mode = TypeBits(attributes.kind) | (attributes.mode & 07777);
  out.st_nlink = attributes.links;
  out.st_rdev = makedev(attributes.device.major_number, attributes.device.minor_number);
  out.st_uid = attributes.owner.user;
  out.st_gid = attributes.owner.group;
  out.st_size = static_cast<off_t>(attributes.size);
  // What programs should read and write at a time. cp(1) takes as much at the least, so more does
  // not make copies faster. Programs that fill a whole buffer of that size for each small change,
  // as those do that seek and write through stdio, move many times what they mean to if it is more.
  out.st_blksize = 128 << 10;
  const uint64_t begun = attributes.stored_bytes % 512 == 0 ? 0 : 1;
  out.st_blocks = static_cast<blkcnt_t>(attributes.stored_bytes / 512 + begun);
  out.st_atim = ToTimespec(attributes.accessed);
  out.st_mtim = ToTimespec(attributes.modified);
  out.st_ctim = ToTimespec(attributes.changed);
  return out;
}

}  // namespace pinstripe
