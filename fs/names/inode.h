// Inode: everything about a file or directory except its names. One register each; a pure value
// here. docs/format.md, "Inode", has the bytes; tests/fs/values_test.cc pins them.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fs/files/block_map.h"
#include "fs/files/layout.h"
#include "fs/types.h"

namespace pinstripe {

// Names one rename.
using RenameNonce = std::array<uint8_t, 16>;

// A rename under way, kept in the moved inode, so that every reader can finish it
// (fs/names/rename.cc).
struct RenameIntent {
  RenameNonce nonce{};
  InodeId source = 0;  // directory, and the entry in it with its slot before the rename
  std::string source_name;
  uint64_t source_slot = 0;
  InodeId target = 0;
  std::string target_name;
  uint64_t target_slot = 0;
  InodeId replaced = 0;  // what the target's entry names; 0: nothing that exists
  // In which `replaced` was seen; of a directory, before it was found empty. 0: an earlier version
  // began this, and took no account of it.
  uint64_t replaced_slot = 0;
  // Null, or the kind of `replaced`, which gets the source's name.
  std::optional<FileKind> exchange;
  friend bool operator==(const RenameIntent&, const RenameIntent&) = default;
};

// A name that was given to an inode, or was about to be.
struct GivenName {
  InodeId directory = 0;
  std::string name;
  friend bool operator==(const GivenName&, const GivenName&) = default;
};

// An inode that a rename is about to replace, or to give another name, bears this mark meanwhile. A
// client that wants to change a marked inode takes the rename back first, or finishes it where it
// has come too far for that (Names::GiveWay). So nothing is replaced that was changed since it was
// looked at.
struct ReplacementMark {
  InodeId mover = 0;
  RenameNonce nonce{};
  GivenName place;  // that the mover is to have; none: marked by an earlier version

  // The directory that bears it is about to be removed if it is empty: no rename is to come. Its
  // mover is itself, and the place is its own.
  bool IsOfRemoval(InodeId bearer) const { return mover == bearer; }
  friend bool operator==(const ReplacementMark&, const ReplacementMark&) = default;
};

// How the last rename ended, for the one who began it and was overtaken by a helper.
// Whoever wants a rename that others have ended finds its outcome among so many.
inline constexpr size_t kMostRenameOutcomes = 4;
struct RenameOutcome {
  RenameNonce nonce{};
  bool done = false;
  friend bool operator==(const RenameOutcome&, const RenameOutcome&) = default;
};

using ExtendedAttributes = std::vector<std::pair<std::string, std::string>>;  // ascending by name

// A keeper's part of its inode. A keeper has no name, and keeps stripes that several files name
// (fs/files/keepers.h).
struct Keeping {
  // The inode that the stripes were written for, which is in the keys of their shards. While it is
  // not `settled` they may still be that one's own. A pack's were written for itself.
  InodeId object = 0;
  bool settled = false;
  std::vector<InodeId> files;  // that may name the keeper; ascending
  friend bool operator==(const Keeping&, const Keeping&) = default;
};

// So many files share the stripes of one keeper, and so many keepers have stripes of one file.
inline constexpr size_t kMostFilesOfKeeper = 2000;
inline constexpr size_t kMostKeepersOfFile = 500;

// Where a directory's entries are: fs/names/directory_parts.h.
struct DirectoryParts {
  enum class Stage : uint8_t {
    kSettled = 0,
    kMoving = 1,    // the entries are on their way to their parts
    kClearing = 2,  // they are there; what is left of them where they were goes
  };
  uint8_t bits = 0;  // 2^bits parts; 0: all is together
  Stage stage = Stage::kSettled;
  friend bool operator==(const DirectoryParts&, const DirectoryParts&) = default;
};
inline constexpr uint8_t kMostPartBits = 9;

// The seconds of a time in nanoseconds since 1970; never 0, until 2106.
uint32_t SecondsOf(int64_t wall_clock);

// Of its own name and its ".". Each subdirectory has one more, its "..".
inline constexpr uint32_t kLinksOfEmptyDirectory = 2;

// What became of a directory's number of subdirectories.
enum class Subdirectories { kSame, kOneMore, kOneLess, kUnknown };

struct Inode {
  FileKind kind = FileKind::kRegular;
  uint32_t mode = 0;
  Owner owner;
  // Names. A directory's: kLinksOfEmptyDirectory and one for each entry that names a directory; or
  // 1, when nobody has counted these (again).
  uint32_t links = 1;
  uint64_t size = 0;
  int64_t accessed = 0;
  int64_t modified = 0;
  int64_t changed = 0;
  InodeId parent = 0;    // of a directory
  DirectoryParts parts;  // of a directory
  std::optional<ReplacementMark> mark;
  std::optional<RenameIntent> intent;
  std::vector<RenameOutcome> renames;  // that ended last, the newest at the end
  ExtendedAttributes attributes;
  std::optional<FileLayout>
      layout;  // of a file, and of what is made in a directory; null: the default
  std::string symlink;
  std::optional<DeviceNumber> device;  // of a device
  // A file's contents: as many bytes as its size, or where the blocks are. Neither when it is
  // empty.
  std::string inline_data;
  std::optional<BlockMap> map;
  std::vector<InodeId> keepers;  // that the map names, and maybe others; ascending
  std::optional<Keeping> keeping;
  // The last that was given by who made or linked it, and the time, in seconds since 1970, before
  // which write ids are those of stripes that were collected unless the map names them. For
  // upkeep/collector.h; docs/format.md, "Collecting".
  std::optional<GivenName> named;
  uint32_t collected = 0;
  // The slot in which a directory was before its subdirectories were counted last; 0: they were
  // not, or from its beginning. Names::Touch() says what it is for.
  uint64_t counted = 0;
  // Sections of a later version that this one may ignore, kept as they were read.
  std::vector<std::pair<uint8_t, std::string>> unknown;

  Attributes Describe(InodeId id) const;

  // A rename is about to replace it, or to give it another name; `self` is its number.
  bool IsMarkedByRename(InodeId self) const { return mark && !mark->IsOfRemoval(self); }

  void Note(const RenameOutcome& outcome);
  bool IsUncounted() const { return kind == FileKind::kDirectory && links == 1; }
  // The links of a directory, after its entries changed.
  void Count(Subdirectories change);

  // Everything but the size, which is the contents' business. An access ACL goes with the mode.
  void Apply(const AttributeChange& change, int64_t now);

  std::string Encode(InodeId id) const;
  static Result<Inode> Decode(std::string_view bytes, InodeId id);  // EBADMSG
  friend bool operator==(const Inode&, const Inode&) = default;
};

inline bool IsDirectory(const Inode& inode) { return inode.kind == FileKind::kDirectory; }

// As it is in its register.
struct StoredInode {
  Inode inode;
  uint64_t slot = 0;
};

std::string EncodeExtended(const ExtendedAttributes& attributes);

// A directory entry: what a name stands for.
struct Entry {
  InodeId inode = 0;
  FileKind kind = FileKind::kRegular;
  std::optional<RenameNonce> nonce;  // of the rename that wrote it
  // Of a directory that grows, in its own group. kMoving: this is the entry, and is about to be
  // moved to its part. kMoved: what is in the part counts; there is nothing else in this one.
  enum class Move : uint8_t { kNone = 0, kMoving = 1, kMoved = 2 };
  Move move = Move::kNone;

  std::string Encode() const;
  static Result<Entry> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const Entry&, const Entry&) = default;
};

}  // namespace pinstripe
