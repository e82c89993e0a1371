// Records: the registers of the file system, typed. Inodes and entries as they are on the drives,
// with the slots that conditional changes need. No rule of the namespace is here; see names.h.
//
// Thread-safe; every call blocks until the cluster answers.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/entry_places.h"
#include "fs/names/inode.h"
#include "fs/names/listed_inodes.h"
#include "fs/names/listed_places.h"
#include "fs/names/name_hints.h"
#include "fs/names/recent_inodes.h"
#include "fs/names/unsynced_changes.h"

namespace pinstripe {

class Records {
 public:
  // So many inodes are asked for at once by those who want very many: some are large.
  static constexpr size_t kMostAtOnce = 64;

  explicit Records(Cluster& cluster);

  Runtime& runtime() { return cluster_.runtime(); }
  int64_t WallClock() { return runtime().WallClock(); }
  RenameNonce NewRenameNonce();

  // What lies in that group, of a directory that is gone: nobody knows how large it was. Of one
  // that is there: the entry, which is not `in_group` as it may be elsewhere.
  struct LeftEntry {
    StoredEntry entry;
    bool in_group = false;
  };
  Result<LeftEntry> FindLeftEntry(uint32_t group, InodeId directory, std::string_view name);
  struct EntryChange;
  EntryChange RemoveLeftEntry(uint32_t group, InodeId directory, std::string_view name,
                              uint64_t slot);

  // Null: there is none.
  Result<std::optional<StoredInode>> FindInode(InodeId id);
  // With what is known of one that is not there.
  struct InodeRegister {
    std::optional<StoredInode> stored;
    uint64_t slot = 0;        // 0: never written
    int64_t removed_at = 0;   // when it was removed, nanoseconds since 1970
    bool is_instead = false;  // it was not: its first write did not happen
  };
  Result<InodeRegister> FindInodeRegister(InodeId id);
  std::vector<Result<InodeRegister>> FindInodeRegisters(std::span<const InodeId> ids);
  // What the drives have of one that reads as never written (RegisterStore::FindTraces).
  Result<RegisterTraces> FindTraces(InodeId id);
  Result<StoredEntry> FindEntry(InodeId directory, std::string_view name);
  // All at once: a directory's own inode, an entry in it and, where it could be guessed which one
  // that names, and no rename has touched the entry, its inode. The inode may have been read before
  // the entry was; a client that gives it a new name changes the entry before anything else.
  struct Found {
    std::optional<StoredInode> directory;
    StoredEntry entry;
    std::optional<StoredInode> inode;  // null: look for it
  };
  struct Question {
    InodeId directory = 0;
    std::string_view name;
    bool recently = false;  // the directory's inode may be as it was less than a second ago
  };
  // Element i answers questions[i]; all at once, too.
  std::vector<Result<Found>> Look(std::span<const Question> questions);
  Result<Found> Look(const Question& question);
  // The inode that the entry named when it was seen last; 0: nobody knows.
  InodeId Guess(InodeId directory, std::string_view name) const {
    return hints_.Find(directory, name);
  }
  // What it was so long ago, or less, where that is known (fs/names/recent_inodes.h).
  std::optional<StoredInode> FindRecent(InodeId id, Duration age = Duration::max()) {
    return recent_.Find(id, age);
  }
  // Others count in this directory as well: for a while it is read whenever something is looked up
  // in it, as what was seen of it would be stale each time.
  void NoteOthers(InodeId directory) { recent_.NoteOthers(directory); }
  // Whether this process may have changed it since then.
  bool ChangedSince(InodeId id, Time at) { return recent_.ChangedSince(id, at); }
  std::vector<Result<std::optional<StoredInode>>> FindInodes(const std::vector<InodeId>& ids);
  // What listings brought, for those that ask just after (fs/names/listed_inodes.h). The one who
  // lists says what it has found.
  ListedInodes& listed() { return listed_; }
  ListedPlaces& listed_places() { return listed_places_; }

  // `now` is what was written, or what is there instead; of no meaning where `why` is a failure.
  // Null removes. To put contents into an inode takes the room of data.
  struct InodeChange : Changed {
    std::optional<StoredInode> now;
    uint64_t losses = 0;  // CountLosses() of the inode before that
    uint64_t slot = 0;    // of what is there now, or of its removal
    // As in ChangeOutcome.
    bool everywhere = false;
    bool otherwise = false;
    bool is_instead = false;  // as in RegisterValue: what is there now
  };
  // `holding`, if any, gets the slot that was made and the replicas that have told that they hold
  // it.
  InodeChange ChangeInode(InodeId id, uint64_t slot, const std::optional<Inode>& inode,
                          ChangeTerms terms = {}, RegisterHolding* holding = nullptr);
  // With companions (RegisterStore::ChangeBound()). EAGAIN: not in one go, and if Companions::send
  // was not called nothing was sent.
  InodeChange ChangeInodeWith(InodeId id, uint64_t slot, const Inode& inode,
                              const Companions& companions, ChangeTerms terms);
  RegisterHolding HoldingOf(InodeId id, uint64_t slot) const;
  struct EntryChange : Changed {
    StoredEntry now;
    // Its directory, as a majority of replicas held it after each of them had taken the entry;
    // null: nobody knows.
    std::optional<StoredInode> directory;
  };
  EntryChange ChangeEntry(InodeId directory, std::string_view name, uint64_t slot,
                          const std::optional<Entry>& entry, ChangeTerms terms = {});
  // The same for whoever needs to know of the directory once it has the entry: the drives tell of
  // both at once, if they can.
  EntryChange AddEntry(InodeId directory, std::string_view name, uint64_t slot, const Entry& entry,
                       ChangeTerms terms = {});

  // Writes a new inode and its entry, where that is in this slot. At once, if the two are together:
  // an inode lies where the entry does that it is made with, but a directory lies where nothing is.
  // So a tree is on all drives. The entry may be there without the inode where the inode was not
  // applied.
  struct NamedInode {
    InodeId id = 0;
    InodeChange inode;
    EntryChange entry;  // if the inode was not applied: refused, for the same reason, or as above
  };
  NamedInode CreateNamed(InodeId directory, std::string_view name, uint64_t slot,
                         const Inode& inode);
  // The same of one whose number was chosen before, beside the directory's. With companions, as
  // ChangeInodeWith().
  NamedInode CreateBeside(InodeId directory, std::string_view name, uint64_t slot, InodeId id,
                          const Inode& inode, ChangeTerms terms = {},
                          const Companions* companions = nullptr);
  // As FindInode(). An inode that is not there now will not have been written by a fast round that
  // has begun already (RegisterStore::ReadPinned()).
  Result<std::optional<StoredInode>> FindInodePinned(InodeId id);
  // Nobody gives it a value any more as one that is new, in the first slot or, where that has what
  // was to be there instead of a bound one, in the second. False: it has one.
  Result<bool> FenceNew(InodeId id);

  // Makes safe from power loss what the entry is now, or that it is gone.
  Status MakeEntryDurable(InodeId directory, std::string_view name);

  // Makes safe from power loss what the inode is now, or that it is gone.
  Status MakeInodeDurable(InodeId id);
  // How often drives were lost that have a replica of this inode. If there are more of them after a
  // flush than before a change, the change may be lost.
  uint64_t CountLosses(InodeId id) const;

  // All that was changed here, and what others have changed before, is safe from power loss. EIO:
  // it is not.
  Status SyncChanges() { return unsynced_.Sync(); }

  InodeId NewInodeId();
  // Of a file that is to have this name.
  InodeId NewInodeIdBeside(InodeId directory, std::string_view name);

  // The directory whose move between parents is under way: see names.h.
  struct Mover {
    InodeId directory = 0;  // 0: none
    uint64_t slot = 0;
  };
  Result<Mover> FindMover();
  struct MoverChange : Changed {
    Mover now;
  };
  MoverChange ChangeMover(uint64_t slot, InodeId directory);

  // Entries with names from `first` on, about `max`; of a directory that has grown several times as
  // many. Only the last page may have none.
  using ListedEntry = EntryPlaces::Listed;
  using Page = EntryPlaces::Page;
  // With `mark`, which the directory bears: by what drives tell that had it before they were asked
  // (RegisterStore::ScanAfter()). ESTALE: the directory has changed since.
  // kAhead: without one, as EntryPlaces::ListAhead().
  enum class Listing { kNow, kAhead };
  Result<Page> List(InodeId directory, std::string_view first, size_t max,
                    RegisterHolding* mark = nullptr, Listing listing = Listing::kNow);
  // In which registers entries are.
  EntryPlaces& places() { return places_; }

 private:
  ChangeOutcome Change(const RegisterName& name, uint64_t slot, std::optional<std::string> value,
                       ChangeTerms terms, RegisterHolding* holding = nullptr);
  InodeChange InodeChanged(InodeId id, const std::optional<Inode>& inode, ChangeOutcome outcome,
                           uint64_t losses, Time at);
  using Target = EntryPlaces::Target;
  // Null, and `change` says why: nothing can be changed.
  std::optional<Target> TargetOf(InodeId directory, std::string_view name, uint64_t slot,
                                 EntryChange& change);
  // What is there instead.
  EntryChange EntryRefused(InodeId directory, std::string_view name);
  EntryChange EntryChanged(InodeId directory, std::string_view name,
                           const std::optional<Entry>& entry, const Target& target,
                           ChangeOutcome outcome);
  NamedInode CreateAt(const Target& target, InodeId directory, std::string_view name, InodeId id,
                      const Inode& inode, ChangeTerms terms, const Companions* companions);
  // Inode and entry one after the other, where they do not lie together.
  NamedInode CreateApart(InodeId directory, std::string_view name, uint64_t slot, InodeId id,
                         const Inode& inode, ChangeTerms terms, const Companions* companions);
  // What is known of the directory by the witness of such a change, asked for at `at`.
  std::optional<StoredInode> DirectoryBy(const std::optional<RegisterValue>& witness,
                                         InodeId directory, Time at);
  Result<std::optional<StoredInode>> Learn(const Result<RegisterValue>& read, InodeId id, Time at);
  Result<Found> FoundIn(const Question& question, std::optional<StoredInode> directory,
                        const RegisterName& asked, const Result<RegisterValue>& entry,
                        InodeId guess, const Result<std::optional<StoredInode>>* guessed);
  RegisterName NameOf(InodeId id) const;

  Cluster& cluster_;
  NameHints hints_;
  RecentInodes recent_;
  ListedInodes listed_;
  ListedPlaces listed_places_;
  UnsyncedChanges unsynced_;
  EntryPlaces places_;
};

// What a register of the file system is, by its key: an inode, or an entry of that directory.
std::optional<InodeId> InodeOfRegister(std::string_view key);
std::optional<InodeId> DirectoryOfRegister(std::string_view key);

}  // namespace pinstripe
