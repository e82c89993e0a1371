// The words for names and files: inodes, kinds, attributes, limits. Everything in fs/ and above it
// stands on these.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace pinstripe {

using InodeId = uint64_t;  // never 0, never reused
inline constexpr InodeId kRootInode = 1;
inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxSymlinkBytes = 4095;
inline constexpr uint32_t kMaxLinks = 65000;  // names of one inode
// Nobody can fill a file as large as that, but zeros cost nothing, and a size that somebody made up
// has others count and read for ever. Up to 2^53 each number of bytes is one that programs which
// count in doubles have, too.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 53;
// Of files that were made when that was the limit: they can be read, cut and removed.
inline constexpr uint64_t kMaxKeptFileBytes = INT64_MAX;

// What XRootD's clients have a checksum of.
inline constexpr uint64_t kFilePageBytes = 4096;

// The pages of a file that these bytes touch.
inline size_t CountFilePages(uint64_t offset, size_t length) {
  if (length == 0) return 0;
  return (offset % kFilePageBytes + length + kFilePageBytes - 1) / kFilePageBytes;
}

enum class FileKind : uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,  // this and the next three are the host's: we only keep their names and attributes
  kSocket = 5,
  kCharacterDevice = 6,
  kBlockDevice = 7,
};

struct DeviceNumber {
  uint32_t major_number = 0;
  uint32_t minor_number = 0;
  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

struct Owner {
  uint32_t user = 0;
  uint32_t group = 0;
  friend bool operator==(const Owner&, const Owner&) = default;
};

struct Attributes {
  InodeId inode = 0;
  FileKind kind = FileKind::kRegular;
  uint32_t mode = 0;  // permission bits, 07777
  Owner owner;
  // Names; a directory: 2 and one for each subdirectory, or 1 when nobody has counted them.
  uint32_t links = 1;
  uint64_t size = 0;  // a directory: 0
  uint64_t stored_bytes =
      0;                 // what the file's data occupies, net of redundancy; holes take nothing
  int64_t accessed = 0;  // nanoseconds since 1970, like the next two
  int64_t modified = 0;
  int64_t changed = 0;
  DeviceNumber device;   // of a device
  bool has_acl = false;  // an access ACL: the group's bits of the mode are its mask
};

// The attributes to set; the rest stays.
struct AttributeChange {
  std::optional<uint32_t> mode;
  std::optional<uint32_t> user;
  std::optional<uint32_t> group;
  std::optional<uint64_t> size;
  std::optional<int64_t> accessed;
  std::optional<int64_t> modified;
};

// Checksums of a file's contents, and the time of their last change.
struct FileSums {
  uint32_t adler32 = 1;
  uint32_t crc32c = 0;
  int64_t modified = 0;  // nanoseconds since 1970
};

struct DirectoryEntry {
  std::string name;
  InodeId inode = 0;
  FileKind kind = FileKind::kRegular;
  std::optional<Attributes> attributes;  // when they were asked for and could be had
};

// The cache of what was read on a local disk (fs/cache/disk_cache.h), since the FileSystem was
// opened.
struct DiskCacheCounters {
  uint64_t limit_bytes = 0;  // 0: there is none
  bool ready = false;        // the directory is there, ours, and was looked at
  uint64_t used_bytes = 0;   // of its files
  uint64_t cells = 0;        // that can be found
  uint64_t cells_found = 0;
  uint64_t cells_missed = 0;  // that were wanted, or guessed to be, and asked of drives
  uint64_t cells_written = 0;
  uint64_t cells_dropped = 0;  // not written: the disk is too slow, full or away
  uint64_t cells_evicted = 0;
  uint64_t cells_damaged = 0;  // found so, and read from drives
};

// Memory of a FileSystem, and how its cache of what was read fares. Cells are up to 64 KiB.
struct MemoryCounters {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;        // of all kinds; the cache fills what others leave
  uint64_t cached_bytes = 0;      // of these, cells that are kept
  uint64_t cache_hits = 0;        // cells that reads found
  uint64_t cache_misses = 0;      // and that were read from drives for them
  uint64_t shared_reads = 0;      // cells that somebody else was reading already
  uint64_t read_ahead_cells = 0;  // that were asked for before anybody wanted them
  DiskCacheCounters disk;
};

// How to set an extended attribute. kCreate: EEXIST if it is there; kReplace: ENODATA if it is not.
enum class ExtendedMode { kSet, kCreate, kReplace };

}  // namespace pinstripe
