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
#include "fs/open_file.h"
#include "fs/options.h"
#include "fs/types.h"

namespace pinstripe {

class FileSystem {
 public:
  using Options = FileSystemOptions;

  // ENOENT, ENOTDIR, ELOOP: what is to be exported is no such directory.
  static Result<std::unique_ptr<FileSystem>> Open(Cluster& cluster, Options options);
  virtual ~FileSystem() = default;  // all handles are closed before

  // Makes the root directory of a new cluster. EEXIST if there is one.
  static Status Format(Cluster& cluster, Owner owner, uint32_t mode);

  // By name within a directory, for the kernel. ENOENT, ENOTDIR, ENAMETOOLONG, EINVAL (a name with
  // '/' or NUL, or empty).
  virtual Result<Attributes> Lookup(InodeId directory, std::string_view name) = 0;
  // As they are, or were at most so long ago; of what is no directory, 10 ms
  // (fs/names/recent_inodes.h). What this process has done since is in them.
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
  // change mode bits, and are changed with them (fs/names/extended.h).
  using ExtendedMode = pinstripe::ExtendedMode;
  // kGoes: the inode loses the bit, in the same change.
  enum class SetGroupBit { kStays, kGoes };
  // `age` as for GetAttributes(). If it is not zero, an ACL or capability of what was listed may be
  // as the listing found it (Options::listed_age).
  virtual Result<std::string> GetExtended(InodeId inode, std::string_view name,
                                          Duration age = {}) = 0;
  virtual Status SetExtended(InodeId inode, std::string_view name, std::string_view value,
                             ExtendedMode mode = ExtendedMode::kSet,
                             SetGroupBit set_group = SetGroupBit::kStays) = 0;
  virtual Status RemoveExtended(InodeId inode, std::string_view name) = 0;
  virtual Result<std::vector<std::string>> ListExtended(InodeId inode) = 0;

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
    // A new file appears with its first commit, as a whole, or about a second later, whichever
    // comes first; for this FileSystem at once. Until then nothing of it is on the drives, and a
    // process that dies leaves nothing. Meanwhile another process may have made something of that
    // name, which stays (EEXIST), or have removed the directory (ENOENT). Then the file is lost,
    // and so say Sync(), Commit() and Close() of it, and whatever has it appear: SyncDirectory(),
    // Rename(). What was there before is opened as without this. Not together with
    // publish_at_commit.
    bool appears_later = false;
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

  // Entries whose names follow `after` (empty: from the start) in byte order, at most `max`; fewer
  // mean the end. Without "." and "..". An entry that is there all the time appears exactly
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
  // Directories that are missing on the way are made like this.
  struct MissingParents {
    uint32_t mode = 0755;
    Owner owner;
  };
  virtual Result<Attributes> Resolve(std::string_view path) = 0;  // follows a link at the end, too
  // Does not follow a link at the end. EINVAL for the root and for ".." at the end.
  virtual Result<Place> ResolveParent(std::string_view path,
                                      std::optional<MissingParents> parents = {}) = 0;
  // Follows it: where the target is, or would be. EISDIR for the root and for ".." at the end.
  virtual Result<Place> ResolveTarget(std::string_view path) = 0;
  virtual Status MakePath(std::string_view path, uint32_t mode, Owner owner) = 0;  // mkdir -p
  // What an open by path is to do. With `create`, those after it say how a file is made that is not
  // there, as in CreateOptions, and the file can be written whatever `access` says.
  struct OpenRequest {
    std::string_view path;
    Access access = Access::kRead;
    bool truncate = false;
    bool create = false;
    bool exclusive = false;  // a link at the end is not followed then
    uint32_t mode = 0644;
    Owner owner;
    bool publish_at_commit = false;
    std::optional<std::pair<std::string, std::string>> note_on_replaced;
    std::optional<MissingParents> parents;
  };
  // Goes the way once, and reads the inode once. EISDIR. To create, also the errors of Create() and
  // ResolveParent().
  virtual Result<std::unique_ptr<OpenFile>> OpenPath(const OpenRequest& request) = 0;

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
  // Of how many files that were removed, replaced or changed here there is data that is to go from
  // the drives yet, about. It goes a minute after a removal. A collection has to remove what is
  // left when the FileSystem is closed, and what came when there were 100 000 of them.
  virtual size_t CountToFree() = 0;
  // How often it could not free such data, which a collection has to do then.
  virtual uint64_t CountNotFreed() = 0;
  // How many files wait to be made whole that were committed here while drives were away.
  virtual size_t FilesToMend() = 0;
};

}  // namespace pinstripe
