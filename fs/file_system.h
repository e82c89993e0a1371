// FileSystem: names, inodes and files over a cluster. What the hosts (XRootD, the kernel, the
// administrator's command) call; they only translate. docs/semantics.md says what is promised.
//
// Every failure is a POSIX errno with a sentence. All calls may block, for a bounded time, and may
// be made from any thread. Everything a call changed is visible to every other call of this
// FileSystem when it returns, and to other processes by close-to-open.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"

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

enum class FileKind : uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,  // this and the next three are the host's: we only keep their names and attributes
  kSocket = 5,
  kCharacterDevice = 6,
  kBlockDevice = 7,
};

struct Whereabouts;

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

// What to set; the rest stays.
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

// The cache of what was read on a local disk (fs/disk_cache.h), since the FileSystem was opened.
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

// An open file. Any number of threads may use one, and any number of handles may be open on a file;
// within one FileSystem all of them see each write at once, committed or not. Other processes see a
// file as of the last commit before they opened it.
//
// A commit is one conditional change of the inode: before it, nothing of what was written is
// visible elsewhere, after it everything is. Sync() and Close() commit; Sync() also makes it safe
// from power loss. A write that failed in the background is reported by the next Sync() and by
// Close() of every handle that wrote.
class OpenFile {
 public:
  virtual ~OpenFile() = default;  // without Close(): what was not committed is dropped

  // Fills all of `out` unless the file ends before: the number of bytes read. 0 at or after the
  // end.
  virtual Result<size_t> Read(uint64_t offset, MutableBytes out) = 0;

  // As many reads, all at once, of one moment's contents; each as above.
  struct Part {
    uint64_t offset = 0;
    MutableBytes out;
    size_t length = 0;  // that was read, when the call succeeds
  };
  virtual Status ReadParts(std::span<Part> parts) = 0;

  // All or nothing. EFBIG beyond kMaxFileBytes; EBADF if opened for reading only.
  virtual Status Write(uint64_t offset, Bytes data) = 0;

  // Atomic at the end of the file as this FileSystem sees it; the answer is where it went.
  virtual Result<uint64_t> Append(Bytes data) = 0;

  virtual Status Truncate(uint64_t size) = 0;

  enum class Size { kStays, kGrows };  // kGrows: to the end of what is asked for, if that is beyond

  // As if zeros were written there: with kStays, up to the end of the file. Blocks of which nothing
  // else is left become holes, which take no space.
  virtual Status Zero(uint64_t offset, uint64_t length, Size size) = 0;

  // Nothing is reserved: only if there is no room for the holes in this range now, it is ENOSPC.
  virtual Status Allocate(uint64_t offset, uint64_t length, Size size) = 0;

  // Where there is data (which may be zeros), or a hole, next, from `offset` on; behind the file is
  // a hole. ENXIO: nowhere, or `offset` is not within the file.
  enum class Contents { kData, kHole };
  virtual Result<uint64_t> Seek(uint64_t offset, Contents contents) = 0;

  // Has `target` share blocks with this file, from these places on, instead of copying them, and
  // commits both: the number of bytes, which may be less than `length`; 0: they are to be copied.
  // Blocks can be shared when both places begin one, in files of the same layout, the range has a
  // whole block or goes to the end of both files, and it is worth it.
  virtual Result<uint64_t> ShareBlocks(uint64_t offset, uint64_t length, OpenFile& target,
                                       uint64_t target_offset) = 0;

  virtual Status SetAttributes(const AttributeChange& change) = 0;
  // With uncommitted size and times. `age` as for FileSystem::GetAttributes().
  virtual Result<Attributes> Stat(Duration age = {}) = 0;
  // As this process last saw them, when it opened the file say: nobody is asked.
  virtual Attributes Known() = 0;

  virtual Status Sync() = 0;    // commit, durably
  virtual Status Commit() = 0;  // commit: what close does; the handle stays open
  virtual Status Close() = 0;   // commit and end; call once. Durable if the cluster says so

  virtual InodeId inode() const = 0;
  // Of what is committed, as reads find it: each change of the inode by anybody gives it another
  // one, and none comes back. 0: reads find what is not committed, and may never be, as when a
  // commit has failed and somebody still has the file open.
  virtual uint64_t Version() = 0;
};

class FileSystem {
 public:
  struct Options {
    // For dirty blocks, data under way, the cache and read-ahead, together.
    uint64_t memory_bytes = 256 << 20;
    // How much of a file's block map is kept in its inode, and how much in a page: docs/format.md.
    size_t inline_map_bytes = 24 << 10;
    size_t map_page_bytes = 32 << 10;
    // Cells that come from drives are also kept on a local disk, in a directory of the cluster's
    // own in this one, up to so many bytes. Empty: they are not.
    std::string disk_cache_directory;
    uint64_t disk_cache_bytes = kUsualDiskCacheBytes;
    // Whether Reload() changes memory_bytes.
    bool memory_is_configured = true;
    // Has files made whole that were committed here while drives were away (fs/mender.h).
    bool mends = true;
    // What is less is copied, not shared: to share it takes some changes of inodes, which are to be
    // safe from power loss.
    uint64_t least_shared_bytes = 1 << 20;
    // The directory that paths begin at, and that none of them leaves, whatever symbolic links say.
    // It is looked for with each path; the way to it has neither links (ELOOP) nor "..".
    std::string exported = "/";
  };

  // ENOENT, ENOTDIR, ELOOP: what is to be exported is no such directory.
  static Result<std::unique_ptr<FileSystem>> Open(Cluster& cluster, Options options);
  virtual ~FileSystem() = default;  // all handles are closed before

  // Makes the root directory of a new cluster. EEXIST if there is one.
  static Status Format(Cluster& cluster, Owner owner, uint32_t mode);

  // By name within a directory, for the kernel. ENOENT, ENOTDIR, ENAMETOOLONG, EINVAL (a name with
  // '/' or NUL, or empty).
  virtual Result<Attributes> Lookup(InodeId directory, std::string_view name) = 0;
  // As they are, or were at most so long ago; of what is no directory, 10 ms (fs/recent_inodes.h).
  // What this process has done since is in them.
  virtual Result<Attributes> GetAttributes(InodeId inode, Duration age = {}) = 0;
  // A change of the size is committed at once, but of a file that is to appear with its first
  // commit.
  virtual Result<Attributes> SetAttributes(InodeId inode, const AttributeChange& change) = 0;

  // Of what is committed, put together from the checksums of its stored parts: of a large file next
  // to nothing is read. EBUSY: this process has written to the file and not committed it, so
  // readers here see something else. EISDIR; EINVAL for what else is no file.
  virtual Result<FileSums> Checksums(InodeId inode) = 0;

  // Extended attributes: names that begin with "user.", "trusted." or "security." (ENOTSUP:
  // others), 255 bytes at most (ERANGE), and values of any bytes, together up to 32 KiB per inode
  // (ENOSPC; E2BIG for a value beyond 64 KiB). ENODATA: there is none of that name. And ACLs, which
  // change mode bits, and are changed with them (fs/extended.h).
  enum class ExtendedMode { kSet, kCreate, kReplace };  // kCreate: EEXIST, kReplace: ENODATA
  // kGoes: the inode loses the bit, in the same change.
  enum class SetGroupBit { kStays, kGoes };
  // `age` as for GetAttributes().
  virtual Result<std::string> GetExtended(InodeId inode, std::string_view name,
                                          Duration age = {}) = 0;
  virtual Status SetExtended(InodeId inode, std::string_view name, std::string_view value,
                             ExtendedMode mode = ExtendedMode::kSet,
                             SetGroupBit set_group = SetGroupBit::kStays) = 0;
  virtual Status RemoveExtended(InodeId inode, std::string_view name) = 0;
  virtual Result<std::vector<std::string>> ListExtended(InodeId inode) = 0;

  // On which drives it is, as it is committed (fs/whereabouts.h), and its name in that directory;
  // 0: whichever is known. For people, as the extended attribute kWhyAttribute. ENOENT.
  virtual Result<Whereabouts> FindWhereabouts(InodeId inode, InodeId directory = 0) = 0;

  // What is made in a directory with the set-group-id bit (02000) gets its group, and a directory
  // that bit, too. In one with a default ACL that list and the mode say who may do what; elsewhere
  // the mode without the bits of `umask`.
  virtual Result<Attributes> MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                           Owner owner, uint32_t umask = 0) = 0;
  // Anything but a directory and a symbolic link (EINVAL); an empty file among them.
  virtual Result<Attributes> MakeNode(InodeId directory, std::string_view name, FileKind kind,
                                      uint32_t mode, Owner owner, DeviceNumber device,
                                      uint32_t umask = 0) = 0;
  // Its target is 1 to kMaxSymlinkBytes bytes, any but NUL, and need not exist. ENOENT (empty),
  // ENAMETOOLONG, EINVAL.
  virtual Result<Attributes> MakeSymlink(InodeId directory, std::string_view name,
                                         std::string_view target, Owner owner) = 0;
  virtual Result<std::string> ReadSymlink(InodeId inode) = 0;  // EINVAL: it is none
  // One more name for what is no directory (EPERM). EEXIST, EMLINK (beyond kMaxLinks), ENOENT (it
  // has no name any more).
  virtual Result<Attributes> Link(InodeId inode, InodeId directory, std::string_view name) = 0;
  virtual Status Unlink(InodeId directory, std::string_view name) = 0;  // EISDIR
  virtual Status RemoveDirectory(InodeId directory,
                                 std::string_view name) = 0;  // ENOTEMPTY, ENOTDIR

  // Replaces an existing target as rename(2) does; does nothing when both names are the same
  // file's. With no_replace: EEXIST instead.
  virtual Status Rename(InodeId directory, std::string_view name, InodeId new_directory,
                        std::string_view new_name, bool no_replace = false) = 0;

  // Each gets the other's name at once, whatever they are: RENAME_EXCHANGE. Does nothing when they
  // are names of one file. ENOENT; EINVAL when a directory would become a part of itself.
  virtual Status Exchange(InodeId directory, std::string_view name, InodeId other_directory,
                          std::string_view other_name) = 0;

  enum class Access { kRead, kWrite };  // kWrite: reads too
  struct CreateOptions {
    uint32_t mode = 0644;
    uint32_t umask = 0;
    Owner owner;
    bool exclusive = false;  // EEXIST if the name is taken
    bool truncate = false;   // an existing file is emptied, visibly so at the next commit
    // The name appears with the first commit, together with all that was written; a process that
    // dies before leaves nothing. Otherwise the name appears at once. With `truncate`, an existing
    // file is replaced by the first commit, wholly: until then the name has the old contents, and
    // who has them open keeps them.
    bool publish_at_commit = false;
    // An extended attribute, and its value, that such a file gets before: who opens it while it is
    // there, or finds it there later, can tell that it was to be replaced. Left out where it has no
    // room for it.
    std::optional<std::pair<std::string, std::string>> note_on_replaced;
  };
  // ELOOP: the name is a symbolic link. The host follows it.
  virtual Result<std::unique_ptr<OpenFile>> Create(InodeId directory, std::string_view name,
                                                   const CreateOptions& options) = 0;
  // Of a file that is to appear with its first commit, and has not: it never does. It can be used
  // on like one that was unlinked, commits of it do nothing, and what the name has stays. False: it
  // has appeared, or is not open here. EIO: nobody knows.
  virtual Result<bool> Discard(InodeId inode) = 0;
  // A file without a name, made as if in that directory, which is gone with its last handle (and
  // with this process) unless Link() gives it a name before. Until then nobody else sees it, and
  // nothing of it is committed: commits of it do nothing, but that Sync() is made up for by Link().
  // EIO of Link(): it could not be stored; or nobody knows whether it is named: all commits fail.
  virtual Result<std::unique_ptr<OpenFile>> CreateUnnamed(InodeId directory, uint32_t mode,
                                                          Owner owner, uint32_t umask = 0) = 0;
  // kAsLookedUp: it may be what it was up to 10 ms ago, when its name was looked up for this.
  enum class Freshness { kNow, kAsLookedUp };
  virtual Result<std::unique_ptr<OpenFile>> Open(InodeId inode, Access access,
                                                 bool truncate = false,
                                                 Freshness freshness = Freshness::kNow) = 0;

  // Entries whose names follow `after` (empty: from the start) in byte order, at most `max`; none
  // left means the end. Without "." and "..". An entry that is there all the time appears exactly
  // once.
  virtual Result<std::vector<DirectoryEntry>> ReadDirectory(InodeId directory,
                                                            std::string_view after, size_t max,
                                                            bool with_attributes) = 0;
  virtual Result<InodeId> ParentOf(InodeId directory) = 0;  // the root is its own parent

  // What happened to the names in it is safe from power loss.
  virtual Status SyncDirectory(InodeId directory) = 0;

  // By path, for XRootD: absolute, '/' repeated or at the end does not matter. "/" is the root, or
  // the directory that is exported, ".." the directory that was come from (of "/": "/"). Symbolic
  // links on the way are followed, absolute targets from "/"; ELOOP beyond 40.
  struct Place {
    InodeId directory = 0;
    std::string name;
  };
  virtual Result<Attributes> Resolve(std::string_view path) = 0;  // follows a link at the end, too
  // Does not follow a link at the end. EINVAL for the root and for ".." at the end.
  virtual Result<Place> ResolveParent(std::string_view path) = 0;
  // Follows it: where the target is, or would be. EISDIR for the root and for ".." at the end.
  virtual Result<Place> ResolveTarget(std::string_view path) = 0;
  virtual Status MakePath(std::string_view path, uint32_t mode, Owner owner) = 0;  // mkdir -p
  // Resolve() and Open() in one, which reads the inode once. EISDIR.
  virtual Result<std::unique_ptr<OpenFile>> OpenPath(std::string_view path, Access access,
                                                     bool truncate = false) = 0;

  virtual Result<SpaceInfo> Space() = 0;

  // Changes Options::memory_bytes. If there is more in use than the new limit, the cache shrinks at
  // once; what was written goes to the drives before this returns, unless it cannot be stored or
  // new writes take its place; and who wants more waits.
  virtual void SetMemory(uint64_t bytes) = 0;

  // Reads cluster.toml again, and goes by what it says of the ways to the drives, and of memory.
  // What else has changed in it is told in the log, with whether that worked: it takes effect when
  // the process starts again. Fails as Cluster::Reload().
  virtual Status Reload() = 0;
  virtual MemoryCounters Memory() = 0;
};

}  // namespace pinstripe
