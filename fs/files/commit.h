// FileCommit: the third layer of an open file (fs/files/state.h): changes the inode so that it
// names what was written, makes that safe from power loss, and takes over what other hosts commit.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "fs/files/merge.h"
#include "fs/files/writing.h"

namespace pinstripe {

// For how long after the first attempt an inode that may have been written is tried to be written
// again: upkeep/collector.h, kLeastTombstoneAge.
inline constexpr Duration kFirstWriteRetries = std::chrono::hours(1);

// Of the loaded blocks only. Garbage is what was written for this file, and no keeper has.
std::vector<BlockMap::Piece> OwnPieces(const std::optional<BlockMap>& map,
                                       const std::optional<BlockMap>& except, InodeId id);

class FileCommit : public FileWriting {
 public:
  // Takes over what other hosts committed since. ENOENT, EISDIR.
  Status Refresh();
  // The same with what this host has just read, so that it need not be read again.
  Status Refresh(const StoredInode& seen);
  // The state that was just written, so that nobody need read it.
  Status TakeOver(const StoredInode& stored);

 protected:
  using FileWriting::FileWriting;
  ~FileCommit() = default;

  // All of these under the turn.
  Result<bool> RefreshUnderTurn() override;
  Status CommitChanges(bool durably);
  Status TakeMarkOff(Inode& out);
  bool Endangers(const Inode& out) const;
  bool KeepsSome() const;  // of the contents as they were committed
  // Of the block map, as far as they are not stored yet.
  Status StorePages();
  Result<UnsafeStripes::Unsafe> FlushNewStripes(Inode& out);
  void Committed(const StoredInode& stored, Durability durability, uint64_t losses);
  Status Rebase(StoredInode theirs);
  Status CheckRemembered(const StoredInode& stored);
  // Whether the inode was written by a first write of which nobody learned. If it was not, it never
  // will be by that.
  Status LearnOfFirstWrite();

  bool loaded_ = false;
  uint64_t slot_ = 0;
  bool removed_ = false;
  Inode removed_as_;
  bool published_ = true;
  bool inode_written_ = true;
  // It was made here, with its name, and nothing of its contents was committed since, by anybody.
  bool is_fresh_ = false;
  // What was set of a fresh file while there was something to commit: it appears with that.
  struct SetLater {
    AttributeChange change;
    int64_t at = 0;
  };
  std::optional<SetLater> set_later_;
  // With mutex_ held: as if it had appeared.
  void ApplyWhatWasSet(Inode& inode) const {
    if (!set_later_) return;
    const int64_t changed = inode.changed;
    inode.Apply(set_later_->change, set_later_->at);
    inode.changed = std::max(changed, set_later_->at);
  }
  // After that: when what was written last was written, where that is known. Then no later time was
  // set.
  template <typename Times>
  void ApplyTimeOfWrite(Times& times) const {
    if (!modified_) return;
    times.modified = *modified_;
    times.changed = set_later_ ? std::max(*modified_, times.changed) : *modified_;
  }

  // Under the turn alone.
  bool uncertain_ = false;                     // a change may have happened
  Status forgotten_;                           // by the drives; until the file is opened anew
  std::vector<BlockMap::Piece> stored_pages_;  // since the last commit
  bool inode_durable_ = false;
  bool unasked_ = false;  // what is committed was so without anybody asking: FileState::Appear()
  // The name that it gets with the first write of its inode, if it has one to get then; and what
  // became of that.
  struct FirstName {
    InodeId directory = 0;
    std::string name;
    uint64_t slot = 0;  // of the entry, which names nothing
  };
  std::optional<FirstName> first_name_;
  std::optional<Records::EntryChange> given_;
  bool was_tried() const { return inode_written_ || uncertain_ || first_write_.has_value(); }

 private:
  bool MayGoTogether();
  uint64_t InlineLimit() const;
  Result<bool> CommitTogether(Durability durability);
  Companions CompanionsOf(StripeStore::PendingWrite& pieces);
  Status TryToCommit(Durability durability);
  Status TakeBackShort(const Status& why);
  Status StoreContents(Inode& out, Durability durability);
  Result<bool> TryStoreContents(Inode& out, Durability durability);
  Status CheckFirstWrite();
  Room RoomOf(const Inode& out);
  Result<bool> ChangeInode(Inode out, Durability durability);
  Records::InodeChange WriteInode(const Inode& out, ChangeTerms terms,
                                  const Companions* companions = nullptr);
  void NoteUnknown(const Inode& out);
  Status TakeOverRefused(const Records::InodeChange& changed, bool again);
  Status StoreAgain(const UnsafeStripes::Unsafe& unsafe);
  Status StoreSuspected();
  Status StoreAnew(const std::vector<uint64_t>& blocks);  // in the map, or pages of it
  uint64_t FirstStoredFrom(uint64_t block) const;         // with mutex_ held

  Status LoadForRebase(StoredInode& theirs);
  Status TakePlaces(const Inode& theirs);
  void ResolveTheirs(const Inode& theirs);
  void SuspectBlocks(const Inode& theirs);
  bool MayBeNamed(uint64_t block, const BlockPlace& stripe) const;
  Status KeepOurs(uint64_t block);
  Status MergeWith(const Inode& theirs);
  LocalChanges OurChanges() const;  // with mutex_ held
  void ForgetWhatOthersSetLater(const Inode& theirs);
  // By assert, with mutex_ held: after each commit, and when another host's was taken over.
  void CheckInvariants() const;

  struct FirstWrite {
    Time at;
    int64_t wall_clock = 0;
  };
  // The inode names pieces of which some are not where it says; next it says where they are.
  struct Short {
    std::optional<Inode> before;  // what it was; null: it was not
    uint64_t slot = 0;            // of what it is
    BlockPlace named;             // what it says
  };
  void KeepWhatIsShort(const std::optional<BlockPlace>& ours);  // with mutex_ held
  std::optional<Short> short_;
  std::optional<FirstWrite> first_write_;    // when the inode was first tried to be written
  std::vector<BlockMap> maybe_named_;        // by the changes that may have happened
  std::set<uint64_t> suspected_;             // blocks whose stripes are to be stored anew therefore
  std::map<uint64_t, BlockPlace> resolved_;  // what others share of our blocks, while we rebase
};

}  // namespace pinstripe
