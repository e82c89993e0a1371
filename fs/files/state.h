// FileState: one open file of a FileSystem, shared by all its handles. Data that was written and
// not yet committed lies over what is committed.
//
// A block's bytes come from the uppermost layer that has them:
//   dirty     written since, in memory; knows which bytes
//   sent      a stripe on its way to the drives: the whole block as it was then, or a patch
//   the map   stripes that are stored, with their patches, committed or not; or the inline data
//   zeros     beyond what was ever written
//
// Pages of the map (fs/files/block_map.h) are read when they are needed: those of all blocks in
// `blocks_` are there.
//
// Blocks that are cleared as a whole become holes of the map at once.
//
// Changes take the file's turn, one after the other. A commit holds it from its first stripe to the
// inode's change, so it is all that was written before and nothing that was written after. Reads do
// not take it. For a commit that finds the inode changed by another host (Rebase), it is remembered
// which bytes are ours.
//
// It is made of layers, each of which knows those below it alone:
//
//   FileState     this: names, attributes, sharing, its end (state.cc, sharing.cc)
//   FileCommit    commits, durability, what others commit (commit.cc, taking_over.cc, merge.h)
//   FileWriting   writing and holes, sending blocks (writing.cc, sending.cc, dirty_blocks.h)
//   FileReading   reading, pages of the map (reading.cc, known_keepers.h)
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fs/files/commit.h"

namespace pinstripe {

class FileState final : public FileCommit {
 public:
  FileState(FileContext& context, InodeId id);
  // A file that is on no drive yet. Without a name nothing of it is committed (GiveFirstName).
  FileState(FileContext& context, InodeId id, const Inode& inode,
            std::optional<Names::NewName> name);

  // The entry that was just made for the file: Sync() makes it durable, too.
  void Remember(Names::NewName name, uint64_t slot);

  bool IsNameless();
  bool IsToAppear();  // with its first commit
  // It is not to appear any more. False: it has. EIO: nobody knows.
  Result<bool> Discard();
  // Commits it, safely if it was asked to sync before, and names it. EEXIST, ENOENT (no such
  // directory any more): it has no name still. EIO: so, too; or nobody knows, and all commits fail.
  Status GiveFirstName(const Names::NewName& name);

  // Blocks of another file, or of this one, for Adopt(); counted from the first of them.
  struct SharedBlocks {
    StripeLayout layout;  // of the map that they come from
    struct Piece {
      uint64_t first = 0;
      uint64_t count = 0;
      // In its last block; the others are valid in full. Null: a hole.
      std::optional<BlockPlace> last;
    };
    std::vector<Piece> pieces;
    uint64_t bytes = 0;  // to the end of the last one
  };
  // Commits, and has those blocks kept for more than this file that begin at `offset` and are
  // within `length` bytes, or end with the file; null: there are none, or they cannot be shared.
  Result<std::optional<SharedBlocks>> Share(uint64_t offset, uint64_t length);
  // Commits, and puts them instead of what was there from block `first` on, at once. False: they
  // cannot be put there. EIO: or nobody knows.
  Result<bool> Adopt(uint64_t first, const SharedBlocks& blocks);
  // Of a file that was made here and not committed since, with the next commit.
  Status SetAttributes(const AttributeChange& change);
  bool HasSetLater();  // something of that is to come
  // Changes anything but size and contents, at once.
  Status Edit(const Names::Edit& edit, Room room = Room::kNames);
  // The inode as this file last saw it, if it has seen it, and its slot; 0 while there is something
  // to commit.
  Inode Known();
  bool HasSeen();
  uint64_t Version();
  Result<Attributes> Stat(Duration age);
  // The attributes, where `stored` was read some time ago; slot 0: it was not.
  Attributes Describe(const StoredInode& stored);

  Status Commit(bool durably);
  // The same for one that is to appear with its first commit, where nobody waits for that. What it
  // has is then worth no more than if it were not committed yet. Does nothing once somebody was
  // told that a commit has failed: he may be gone, and believe that the file is lost.
  Status Appear();

  // Its inode was removed by this FileSystem, as `last`: the data goes with the last handle.
  void Removed(const Inode& last, uint64_t losses);
  // No handle is left: what is not committed is forgotten, and what nobody refers to deleted.
  void Abandon();

 private:
  // All of these under the turn.
  bool SetWithContents(const AttributeChange& change, int64_t now);
  Status EditUnderTurn(const Names::Edit& edit, Room room = Room::kNames);
  Status CommitUnderTurn(bool durably);
  Status CommitWithName(bool durably);
  Status GiveName(Durability durability);
  void RemoveUnpublished();
  Status MakeNameDurable();
  bool MayShare() const;
  bool HasOwnBlocks(uint64_t first, uint64_t end) const;
  void ListShared(const BlockMap& map, uint64_t first, uint64_t end, SharedBlocks& shared) const;
  Result<bool> TryShare(uint64_t first, uint64_t end, uint64_t kept_end, SharedBlocks& shared);
  Result<bool> TryAdopt(uint64_t first, const SharedBlocks& blocks, std::vector<InodeId> keepers);
  enum class Garbage { kAll, kPages };  // of what is not named any more
  Result<bool> ChangeBlocks(Inode out, Durability durability, Garbage garbage);

  // With mutex_ held.
  bool is_nameless() const { return !published_ && !name_; }
  Inode LastKnown() const;

  uint64_t removed_losses_ = 0;  // Records::CountLosses() before it was
  // That a new file has, or gets with its first commit. Null: it was found with one, or has none.
  std::optional<Names::NewName> name_;
  uint64_t entry_slot_ = 0;
  bool entry_durable_ = true;

  // Under the turn alone.
  bool maybe_has_name_ = false;  // that it was given may have been seen by others
  Status unpublishable_;         // why the file can have no name
  Status limbo_;                 // whether it got its first name cannot be found out
  bool has_failed_ = false;      // the last Commit()
  bool sync_asked_ = false;      // while it had no name
};

}  // namespace pinstripe
