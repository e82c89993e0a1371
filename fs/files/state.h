// FileState: one open file of a FileSystem, shared by all its handles. What was written and not yet
// committed, over what is committed.
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
// Changes take the file's turn, one after the other; a commit holds it from its first stripe to the
// inode's change, so it is all that was written before and nothing that was written after. Reads do
// not take it. For a commit that finds the inode changed by another host (Rebase), it is remembered
// which bytes are ours.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "fs/files/block_memory.h"
#include "fs/files/block_reader.h"
#include "fs/files/dirty_blocks.h"
#include "fs/files/interval_set.h"
#include "fs/files/keepers.h"
#include "fs/files/known_keepers.h"
#include "fs/files/merge.h"
#include "fs/files/reaper.h"
#include "fs/files/unsafe_stripes.h"
#include "fs/files/write_ids.h"
#include "fs/names/names.h"
#include "fs/open_file.h"
#include "fs/options.h"
#include "fs/turn.h"

namespace pinstripe {

// For how long after the first attempt an inode that may have been written is tried to be written
// again: upkeep/collector.h, kLeastTombstoneAge.
inline constexpr Duration kFirstWriteRetries = std::chrono::hours(1);

inline constexpr size_t kMaxInFlight = 4;  // stripes of one file on their way at once

// What all files of a FileSystem share.
struct FileContext {
  FileContext(Cluster& cluster_in, const FileSystemOptions& options);

  Cluster& cluster;
  Records records;
  Reaper reaper;
  MemoryBudget budget;
  BlockMemory memory{budget};
  BlockReader reader;
  Names names;
  Names::Disposer dispose;  // what Names tells of removed inodes
  Keepers keepers{cluster, records};
  // Takes a share of the budget: waits until there is room, and has dirty blocks stored to make
  // some. Never called with a turn, a mutex or another share held. EIO, ENOSPC and the like: there
  // is none, because what takes it cannot be stored.
  std::function<Result<MemoryBudget::Share>(uint64_t bytes)> reserve;
  // Told of files that are committed while not all of their shards are where they belong.
  std::function<void(InodeId)> committed_short;
  std::atomic<uint64_t> ages{0};

  FileLayout layout;  // of files that have none of their own
  MapLimits map_limits;
  const uint64_t least_shared_bytes;
};

class FileState {
 public:
  FileState(FileContext& context, InodeId id);
  // A file that is on no drive yet. Without a name nothing of it is committed (GiveFirstName).
  FileState(FileContext& context, InodeId id, const Inode& inode,
            std::optional<Names::NewName> name);

  InodeId id() const { return id_; }

  // Takes over what other hosts committed since. ENOENT, EISDIR.
  Status Refresh();
  // The same with what this host has just read, so that it need not be read again.
  Status Refresh(const StoredInode& seen);
  // What was just written, so that it need not be read.
  Status TakeOver(const StoredInode& stored);
  // The entry that was just made for the file: Sync() makes it durable, too.
  void Remember(Names::NewName name, uint64_t slot);

  bool IsNameless();
  bool IsToAppear();  // with its first commit
  // It is not to appear any more. False: it has. EIO: nobody knows.
  Result<bool> Discard();
  // Commits it, safely if it was asked to sync before, and names it. EEXIST, ENOENT (no such
  // directory any more): it has no name still. EIO: so, too; or nobody knows, and all commits fail.
  Status GiveFirstName(const Names::NewName& name);

  // All of one moment. `meanwhile` is called before anybody waits for drives, if anybody does.
  Status Read(std::span<OpenFile::Part> parts, const std::function<void()>& meanwhile = {});
  // Asks for what is stored of these bytes ahead of need, as far as there is memory, and does not
  // wait: the number of bytes that are on their way or here.
  uint64_t ReadAhead(uint64_t offset, uint64_t size, BlockReader::Ahead& ahead);
  Status Write(uint64_t offset, Bytes data);
  Result<uint64_t> Append(Bytes data);
  Status Truncate(uint64_t size);
  Status Zero(uint64_t offset, uint64_t length, OpenFile::Size size);
  Status Allocate(uint64_t offset, uint64_t length, OpenFile::Size size);
  Result<uint64_t> Seek(uint64_t offset, OpenFile::Contents contents);
  // Blocks of another file, or of this one, for Adopt(); counted from the first of them.
  struct SharedBlocks {
    StripeLayout layout;  // of the map that they come from
    struct Piece {
      uint64_t first = 0;
      uint64_t count = 0;
      // Of its last block, the others are valid in full; null: a hole.
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
  StripeLayout BlockLayout();  // of blocks that are written to it
  uint64_t Size();             // with what is not committed
  Status SetAttributes(const AttributeChange& change);
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

  // Its inode was removed by this FileSystem, as `last`: the data goes with the last handle.
  void Removed(const Inode& last, uint64_t losses);
  // No handle is left: what is not committed is forgotten, and what nobody refers to deleted.
  void Abandon();

  // Something was written and is not committed.
  bool HasChanges();

  // Of the blocks that it holds in memory the one to store first, to have room for others.
  std::optional<DirtyBlocks::Holding> Oldest();
  // Stores that block.
  Status Relieve();
  std::optional<Status> TryRelieve();  // null: its turn is taken

 private:
  Result<uint64_t> WriteAt(std::optional<uint64_t> offset, Bytes data);  // none: at the end

  // All of these under the turn.
  uint64_t MemoryToWrite(uint64_t offset, size_t length) const;
  Status RelieveUnderTurn();
  Status WriteUnderTurn(uint64_t offset, Bytes data, MemoryBudget::Share& room);
  void PutBytes(uint64_t block, uint64_t first, Bytes data, MemoryBudget::Share& room);
  MutableBytes RoomFor(uint64_t block, uint64_t first, uint64_t end, MemoryBudget::Share& room);
  template <typename Needed, typename Change>
  Status ChangeWithRoom(const Needed& needed, const Change& change);
  Status ZeroUnderTurn(uint64_t offset, uint64_t end, MemoryBudget::Share& room);
  Status ZeroInBlock(uint64_t block, uint64_t first, uint64_t end, MemoryBudget::Share& room);
  Status ClearBlocks(uint64_t first, uint64_t end);
  void GrowTo(uint64_t size);
  // Bytes from some place to `end` that are there, or are not: a hole.
  struct Extent {
    bool data = false;
    uint64_t end = 0;
  };
  Result<Extent> ExtentAt(uint64_t offset);
  Result<uint64_t> CountHoleBytes(uint64_t offset, uint64_t end);
  // How much of a dirty block is to be there before it is sent.
  enum class Form { kWhole, kPatchIfSmall };
  Status Fill(uint64_t block, Form form);
  Status ReadLower(uint64_t block, const std::vector<IntervalSet::Interval>& parts,
                   StripeBuffer& buffer);
  void EnsureMap();
  void LayUnderBlock0(Bytes data);
  DirtyBlocks::Sent MakeSent(uint64_t block, const DirtyBlocks::Block& open, Form form);
  Status SendBlock(uint64_t block, Form form = Form::kPatchIfSmall);
  void FinishBlock(uint64_t block);
  bool FinishOldest();
  Status SendAll();
  bool IsAllStored() const;  // in the map, whatever was written
  WriteId NextWriteId(uint64_t block);

  Status CommitUnderTurn(bool durably);
  Status CommitChanges(bool durably);
  Status StoreContents(Inode& out);
  Result<bool> TryStoreContents(Inode& out);
  bool Endangers(const Inode& out) const;
  // Of the block map, as far as they are not stored yet.
  Status StorePages();
  // Reads pages of the block map: all that are missing for the bytes [first, end).
  Status LoadBytes(uint64_t first, uint64_t end);
  Status CheckFirstWrite();
  Status TakeMarkOff(Inode& out);
  Room RoomOf(const Inode& out);
  Result<bool> ChangeInode(Inode out, Durability durability);
  void Committed(const StoredInode& stored, Durability durability, uint64_t losses);
  Status GiveName(Durability durability);
  void RemoveUnpublished();
  Result<UnsafeStripes::Unsafe> FlushNewStripes(Inode& out);
  Status StoreAgain(const UnsafeStripes::Unsafe& unsafe);
  Status StoreSuspected();
  Status StoreAnew(const std::vector<uint64_t>& blocks);  // in the map, or pages of it
  uint64_t FirstStoredFrom(uint64_t block) const;         // with mutex_ held
  Status MakeNameDurable();

  Result<bool> RefreshUnderTurn();  // true: something had changed
  Status Rebase(StoredInode theirs);
  Status CheckRemembered(const StoredInode& stored);
  Status LoadForRebase(StoredInode& theirs);
  Status TakePlaces(const Inode& theirs);
  void ResolveTheirs(const Inode& theirs);
  void SuspectBlocks(const Inode& theirs);
  bool MayBeNamed(uint64_t block, const BlockPlace& stripe) const;
  Status KeepOurs(uint64_t block);
  Status MergeWith(const Inode& theirs);
  LocalChanges OurChanges() const;  // with mutex_ held

  // With mutex_ held, or under the turn.
  FileLayout layout() const;
  StripeLayout LayoutFor(uint64_t block, uint64_t end) const;
  StripeLayout LayoutToSend(uint64_t block) const;
  // With mutex_ held.
  bool is_nameless() const { return !published_ && !name_; }
  Inode LastKnown() const;
  // The bytes of a patch by which what is dirty of the block can be stored; null: by none.
  std::optional<IntervalSet> PatchFor(uint64_t block, const DirtyBlocks::Block& open) const;
  DirtyBlocks::Block& BlockAt(uint64_t block);
  // For the first `end` bytes in the block's buffer.
  void MakeRoom(uint64_t block, uint64_t end, DirtyBlocks::Block& open,
                MemoryBudget::Share* room = nullptr);
  void ResizeTo(uint64_t size);
  void Supersede(const std::vector<BlockMap::Piece>& pieces);
  uint64_t block_bytes() const;
  uint64_t LowerEnd(uint64_t block) const;
  void MakeHoles(uint64_t first, uint64_t end);

  struct ReadPlan;
  void PlanRead(std::span<OpenFile::Part> parts, ReadPlan& plan);
  void PlanPart(OpenFile::Part& part, ReadPlan& plan);
  Status LoadMissing(ReadPlan& plan);
  Status PlanByPages(std::span<OpenFile::Part> parts, ReadPlan& plan);
  MemoryBudget::Share ReserveToRead(uint64_t bytes, bool may_wait);
  Status LoadPart(const BlockMap::Part& part, uint64_t size, const StripeLayout& layout);
  bool MayShare() const;
  bool HasOwnBlocks(uint64_t first, uint64_t end) const;
  void ListShared(const BlockMap& map, uint64_t first, uint64_t end, SharedBlocks& shared) const;
  Result<bool> TryShare(uint64_t first, uint64_t end, uint64_t kept_end, SharedBlocks& shared);
  Result<bool> TryAdopt(uint64_t first, const SharedBlocks& blocks, std::vector<InodeId> keepers);
  enum class Garbage { kAll, kPages };  // of what is not named any more
  Result<bool> ChangeBlocks(Inode out, Durability durability, Garbage garbage);
  void ForgetPages();
  bool HoldsTooManyPages() const;  // with mutex_ held
  void ForgetUnderTurn();
  void PlanBlock(uint64_t block, uint64_t first, MutableBytes out, ReadPlan& plan);
  void PlanLower(uint64_t block, uint64_t first, MutableBytes out, ReadPlan& plan) const;

  FileContext& context_;
  const InodeId id_;
  Turn turn_;

  // Changed under the turn alone, and with mutex_ held; read with either. But which pages of the
  // maps are loaded is changed, and so looked at, with mutex_ alone.
  std::mutex mutex_;
  bool loaded_ = false;
  Inode base_;  // as it is committed, or would be: an unpublished file is empty
  uint64_t slot_ = 0;
  Inode now_;  // size and contents with everything that was written
  DirtyBlocks blocks_;
  FileLayout blocks_layout_;        // of blocks_, while there are any
  bool changed_ = false;            // there is something to commit
  bool size_set_ = false;           // by a truncation since the last commit
  std::optional<uint64_t> cut_to_;  // the least size since the last commit
  // Blocks that were cleared since, as a whole: nothing of what others have there is left.
  IntervalSet cleared_;
  uint64_t grown_to_ = 0;  // the size that it has had since without being written to
  std::optional<int64_t> modified_;
  uint64_t generation_ = 0;  // raised when a byte's place may have changed
  KnownKeepers keepers_;     // whose blocks were read
  bool removed_ = false;
  Inode removed_as_;
  uint64_t removed_losses_ = 0;  // Records::CountLosses() before it was
  // That a new file has, or gets with its first commit. Null: it was found with one, or has none.
  std::optional<Names::NewName> name_;
  bool published_ = true;
  uint64_t entry_slot_ = 0;
  bool entry_durable_ = true;
  bool inode_written_ = true;

  // Under the turn alone.
  Status failure_;  // of the last stripe that could not be stored
  struct FirstWrite {
    Time at;
    int64_t wall_clock = 0;
  };
  std::optional<FirstWrite> first_write_;    // when the inode was first tried to be written
  bool uncertain_ = false;                   // a change may have happened
  bool maybe_has_name_ = false;              // that it was given may have been seen by others
  std::vector<BlockMap> maybe_named_;        // by the changes that may have happened
  std::set<uint64_t> suspected_;             // blocks whose stripes are to be stored anew therefore
  std::map<uint64_t, BlockPlace> resolved_;  // what others share of our blocks, while we rebase
  Status forgotten_;                         // by the drives; until the file is opened anew
  Status unpublishable_;                     // why the file can have no name
  Status limbo_;                             // whether it got its first name cannot be found out
  bool sync_asked_ = false;                  // while it had no name
  WriteIds write_ids_;
  std::vector<BlockMap::Piece> superseded_;
  std::vector<BlockMap::Piece> stored_pages_;  // since the last commit
  UnsafeStripes unsafe_;
  bool inode_durable_ = false;
};

}  // namespace pinstripe
