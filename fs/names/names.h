// Names: the rules of the namespace over registers. Directories, entries, links, renames.
//
// What keeps it whole while any number of clients work on it and die anywhere:
//   - An inode is written before an entry names it, or with it, and removed after the last entry is
//     gone. An entry whose inode is gone is not a name: it is passed over, and replaced by whoever
//     wants the name. Where the inode was never written, its maker may be at it: whoever wants the
//     name sees to it first that the inode never will be.
//   - An inode counts its names: one more before an entry is written, one less after one was
//     removed. So a client that dies leaves the count too high, never too low.
//   - Whoever removes or replaces a directory marks its inode first, looks then whether it is
//     empty, and removes it as it was marked. Whoever adds an entry looks at the inode after it,
//     and where it is marked takes the mark off, or takes the entry back. One of the two always
//     sees the other. Where a file is made, each drive tells of the directory when it has taken the
//     entry, and whoever removes goes by drives that had the mark before they listed:
//     docs/format.md, "Removing directories". The entries' changes alone do not change the inode:
//     fs/names/directory_times.h.
//   - A rename is an intent in the moved inode, then single conditional steps that anybody can do
//     for the one who began it. Everyone who looks an inode up finishes its rename first. Before
//     anything else, a rename rewrites the source's entry, so that who looked before the intent was
//     there can change it no more. Before it takes a name from another inode it marks that one, as
//     it was looked at; who wants to change what is marked takes the rename back, which then can
//     never happen. docs/format.md, "Rename", has the steps.
//   - A loss of power takes nothing that was flushed, and of a change of several registers no part
//     that the others rest on: docs/format.md, "What a loss of power leaves", says what is written
//     through therefore.
//   - A directory that moves to another parent is named in the rename register meanwhile, so there
//     is one such move at a time, and no directory can get below itself.
//
// Thread-safe. Its own memory is only what it need not have: what was looked up a moment ago.

#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "fs/names/directory_times.h"
#include "fs/names/growth.h"
#include "fs/names/records.h"
#include "fs/turn.h"

namespace pinstripe {

class Names {
 public:
  // Told when an inode was removed, by the one who removed it, so that its data can go: the inode
  // as it was, and Records::CountLosses() before.
  using Disposer = std::function<void(InodeId, const Inode&, uint64_t losses)>;

  Names(Records& records, Disposer dispose)
      : records_(records),
        runtime_(records.runtime()),
        dispose_(std::move(dispose)),
        times_(records) {}

  // What the inodes of directories do not tell yet.
  DirectoryTimes& times() { return times_; }
  // Told of names that are made, and by whoever lists.
  LargeDirectories& large() { return large_; }

  // ENOENT. No rename of the inode is under way in what comes back.
  Result<StoredInode> Load(InodeId id);
  Result<std::optional<StoredInode>> Find(InodeId id);

  // What a name stands for: nothing, or an inode. ENOENT, ENOTDIR are about the directory.
  struct Place {
    uint64_t slot = 0;  // of the entry
    InodeId id = 0;     // 0: no such name
    StoredInode inode;
    StoredInode directory;
    // Of no such name: there is an entry, and this inode of it, which is not a directory, was never
    // written. Its maker died or is at it, or it is lost. Whoever is to write the entry fences it:
    // FenceUnborn().
    InodeId unborn = 0;
    bool is_recalled = false;  // it was so a while ago
    bool found() const { return id != 0; }
  };
  Result<Place> Look(InodeId directory, std::string_view name);
  // ENOENT when there is no such name.
  Result<Place> LookUp(InodeId directory, std::string_view name);
  // What LookUp() found less than a second ago, or a listing a few seconds ago, if that serves, and
  // only once. Otherwise what Look() finds. The kernel looks up each name just before it is made or
  // removed, and who removes a tree lists it. The caller goes by the answer only in conditional
  // changes, and looks when they fail.
  Result<Place> Recall(InodeId directory, std::string_view name, bool (*serves)(const Place&));
  static bool IsFree(const Place& place) { return !place.found(); }
  // What was found under a name is not recalled: something else was given it since.
  void Forget(InodeId directory, std::string_view name);

  // What a way through the tree, from this directory on, asks for, as far as it can be guessed and
  // none of the names is "..": all at once, at least the first. To be used soon, in that order.
  struct Foreseen {
    InodeId directory = 0;
    std::string name;
    Result<Records::Found> found;
    uint64_t updates = 0;
    Time at{};  // before it was asked for
  };
  std::deque<Foreseen> Foresee(InodeId directory, std::span<const std::string> names);
  // These go by that.
  Result<Place> Look(Foreseen foreseen);
  Result<Place> LookUp(Foreseen foreseen);

  // ENOENT, ENOTDIR. The root is its own parent.
  Result<InodeId> ParentOf(InodeId directory);

  // Changes an inode however often others do so at the same time.
  // Where it was `known` a moment ago it is not read first; `edit` is asked again if that was old.
  using Edit = std::function<Status(Inode&)>;
  Result<StoredInode> Update(InodeId id, const Edit& edit, ChangeTerms terms = {},
                             std::optional<StoredInode> known = std::nullopt);

  // Writes a new inode and its name where `place` was found without one, or, with `replace`, over
  // what is there. Null when somebody else was there first.
  struct Made {
    InodeId id = 0;
    StoredInode inode;
    uint64_t entry_slot = 0;
  };
  Result<std::optional<Made>> Make(InodeId directory, std::string_view name, const Place& place,
                                   const Inode& inode);

  // Gives a written inode a name; over a file that has it, unless `exclusive` (EEXIST).
  struct NewName {
    InodeId directory = 0;
    std::string name;
    bool exclusive = false;
    // What the name stood for when it was looked up, if that was before `own` was written.
    struct Seen {
      explicit Seen(const Place& place);
      uint64_t slot = 0;
      std::optional<Entry> entry;  // of a file; null: none
      InodeId unborn = 0;          // as of Place
      StoredInode directory;
    };
    std::optional<Seen> seen;
  };
  struct Publication : Changed {
    uint64_t slot = 0;        // of the entry; 0: others have changed it since
    bool lasts = false;       // the name is safe from power loss
    bool wants_safe = false;  // of one that was refused: it would replace something, see below
    bool is_final = false;  // of one that was refused: it would be again, however often it is tried
  };
  // `own` is the inode as it was written last; kept up to date. After an unknown outcome it may be
  // called again, without `seen`: the inode will not have two names, whatever others have done with
  // the first one. Final: EEXIST, EISDIR, ENOENT (the directory was removed), ESTALE (the inode
  // was). What is replaced goes, so the inode and its contents must be `is_safe` from power loss
  // before that; the name itself is then, too.
  // With `given`, what became of a first attempt to write the entry as it was seen, together with
  // the inode.
  Publication Publish(const NewName& name, InodeId id, StoredInode& own, bool is_safe,
                      Durability durability,
                      std::optional<Records::EntryChange> given = std::nullopt);

  // One more name for a file or symbolic link. EPERM (a directory), EEXIST, EMLINK.
  Result<StoredInode> Link(InodeId id, InodeId directory, std::string_view name);

  Status Unlink(InodeId directory, std::string_view name);
  // Whether nothing that is there has a name in it. With `mark`, which it bears: and nothing gets a
  // name in it either whose maker does not find the mark. ESTALE: it does not bear it any more.
  Result<bool> IsEmpty(InodeId directory, RegisterHolding* mark = nullptr);
  Status RemoveDirectory(InodeId directory, std::string_view name);
  // Removes the inode of a directory, if it is as it was found and nothing has a name in it once
  // nothing comes into it any more. `place` is the name that it has, or had.
  enum class Removal { kDone, kNotEmpty, kChanged };
  Result<Removal> RemoveEmpty(InodeId id, const StoredInode& found, const GivenName& place,
                              Durability durability = Durability::kWriteBack);
  // How many entries name a directory; null if there are more entries than about so many.
  Result<std::optional<uint32_t>> FindSubdirectories(InodeId directory,
                                                     uint64_t most_entries = UINT64_MAX);
  // Notes that number in the directory's inode, unless somebody has changed that one since `stored`
  // was read, which was before they were counted. What it is afterwards. ENOENT.
  Result<StoredInode> NoteSubdirectories(InodeId directory, const StoredInode& stored,
                                         uint32_t found);
  // Both. ENOENT, ENOTDIR.
  Result<StoredInode> CountSubdirectories(InodeId directory, const StoredInode& stored);
  Status Rename(InodeId source, std::string_view source_name, InodeId target,
                std::string_view target_name, bool no_replace);
  // For whoever is about to change an inode that bears a mark, which he then takes off: the rename
  // that has set it can take nothing from it any more. It is taken back, or finished if the name is
  // taken already; then `stored` may have changed. False: it is a directory that was replaced, and
  // is about to be removed.
  Result<bool> GiveWay(InodeId id, const StoredInode& stored);
  // For whoever takes an inode for one without a name: whoever is about to give it this one fails,
  // however late. False: it has the name.
  Result<bool> FenceName(InodeId id, const GivenName& name);
  // Whether the directory's inode names the one that has its name.
  Result<bool> HasNameInParent(InodeId directory, const Inode& inode);
  // Gives a directory that has lost its name with the power this one, which is free. False: it has
  // one, or the place is not free, or others were at it. Safe from power loss. ENOENT, ENOTDIR.
  Result<bool> Reattach(InodeId directory, const GivenName& place);
  // Each gets the other's name. ENOENT, EINVAL (one would become a part of itself).
  Status Exchange(InodeId source, std::string_view source_name, InodeId target,
                  std::string_view target_name);

 private:
  std::optional<Place> RecallListed(InodeId directory, std::string_view name);
  // With what was found at first.
  Result<Place> Look(InodeId directory, std::string_view name, Result<Records::Found> found);
  void Remember(InodeId directory, std::string_view name, uint64_t updates, Time at,
                const Place& place);
  void ForgetLocked(InodeId directory, std::string_view name) REQUIRES(recent_mutex_);
  // What is in the way of a name that an inode is to have.
  struct Obstacle {
    enum class Kind {
      kNone,   // `seen` may be replaced
      kOwn,    // it stands for the inode already
      kLeft,   // it did, and others have renamed the inode since
      kFinal,  // it cannot have the name: `why`
    };
    Kind kind = Kind::kNone;
    std::optional<NewName::Seen> seen;
    Status why;
  };
  Result<Obstacle> LookForPublish(const NewName& name, InodeId id, StoredInode& own);
  Result<bool> HasAnotherName(InodeId id, const Inode& inode, const GivenName& wanted);
  // A name that is given in this directory stays reachable after a loss of power, as far as the
  // directory and those above it go: flushes the drives, once for each directory.
  Status MakeReachable(InodeId directory);
  Changed TakeBack(const NewName& name, uint64_t slot, const std::optional<Entry>& former,
                   const Result<bool>& touched);
  // Nobody writes any more what this name's entry names (Records::FenceNew()). False: it has been
  // written. EIO: a drive has a copy of it that the others do not believe; it may be lost.
  Result<bool> FenceUnborn(InodeId directory, std::string_view name, InodeId unborn);
  void Discard(InodeId id, const StoredInode& made);
  void NoteRemoval(InodeId directory, const StoredInode& seen, Subdirectories change);
  // After an entry was written. False: the directory is gone, or about to be, and never had it.
  // `seen` and `change` are those of Touch(), which does this where the number of subdirectories
  // changes. Else the directory is read, unless `after` tells what it was then
  // (Records::EntryChange), and only its time follows, later.
  Result<bool> NoteGain(InodeId directory, std::optional<StoredInode> seen,
                        Subdirectories change = Subdirectories::kSame,
                        const std::optional<StoredInode>& after = std::nullopt);
  // Takes a link away; the last one takes the inode along. `seen` is what it was found as, if that
  // is known; `make_safe` makes safe that it is taken away once, where a loss of power might bring
  // back what takes it away: that is done before the count goes down.
  Status DropLink(InodeId id, std::optional<StoredInode> seen = std::nullopt,
                  const std::function<Status()>& make_safe = nullptr);
  // Notes in a directory, at once, that its entries changed, after they did, and what that did to
  // its number of subdirectories. False when the directory is gone. `seen` is what it was found as
  // before the entry changed, if that is known: then no read is needed, and the number stays known.
  Result<bool> Touch(InodeId directory, std::optional<StoredInode> seen,
                     Subdirectories change = Subdirectories::kSame);
  // One attempt at that, in its directory's turn; null: another one is needed.
  struct Touching {
    InodeId directory = 0;
    bool read_after = false;  // `stored` was, after the entry was changed
    uint64_t seen_slot = 0;   // before the entry was changed; 0: not known
    Subdirectories change_of_count;
    std::optional<StoredInode> stored;  // null: to be read
    bool applied = false;               // the change was ours, made since the attempt began
  };
  Result<std::optional<bool>> TryTouch(Touching& touching);
  // The changes of a directory's inode that this process is about to make.
  struct Noting {
    explicit Noting(Runtime& runtime) : turn(runtime) {}
    Turn turn;  // may be taken while a file's is held
    std::atomic<uint64_t> begun = 0;
    uint64_t done = 0;  // the last one that was, of those begun; under the turn
  };
  std::shared_ptr<Noting> TakePart(InodeId directory);

  // Renames; all in rename.cc.
  struct Wanted {
    InodeId source;
    std::string_view source_name;
    InodeId target;
    std::string_view target_name;
    bool no_replace = false;
    bool exchange = false;
  };
  // What is to be moved, and what is where it is to be moved to.
  Result<std::pair<Place, Place>> LookForMove(const Wanted& wanted);
  // What was read before the intent was written: whoever has done so tries each step at once, where
  // others look first whether it was done already.
  struct Begun {
    StoredInode source;  // directories
    StoredInode target;
    std::optional<StoredInode> replaced;
  };
  // True: it happened. False: it did not, and never will. Null: somebody else ended it.
  using Ending = std::optional<bool>;
  Result<Ending> Finish(InodeId id, const StoredInode& stored,
                        const std::optional<Begun>& begun = std::nullopt);
  Result<std::optional<uint64_t>> TakeSource(const RenameIntent& intent, const Entry& entry,
                                             bool begun);
  // What became of the target's entry.
  struct Placed {
    bool is_there = false;                // it bears the nonce, and its directory is there
    std::optional<StoredInode> replaced;  // as it was marked, if that was done here
  };
  Result<Placed> PlaceTarget(InodeId id, const RenameIntent& intent, const Entry& entry, bool taken,
                             const std::optional<Begun>& begun);
  // `seen` is what it was looked at as, if that is known.
  Result<std::optional<StoredInode>> MarkReplaced(InodeId id, const RenameIntent& intent,
                                                  std::optional<StoredInode> seen);
  Result<bool> IsEmptyAsMarked(InodeId directory, const StoredInode& marked);
  Status FenceTarget(const RenameIntent& intent, InodeId id);
  Status ReleaseSource(InodeId id, const RenameIntent& intent, std::optional<uint64_t> slot);
  Status Unmark(const RenameIntent& intent, bool done);
  // Finishes the rename that has marked this inode, or takes the mark of one that ended away.
  Status FinishMark(InodeId id, const StoredInode& stored);
  // Whether the inode has the name still that its mark is about.
  Result<bool> HasMarkedName(InodeId id, const ReplacementMark& mark);
  // For whoever is about to change `stored` conditionally: takes its mark off. False as of
  // GiveWay().
  Result<bool> TakeMarkOff(InodeId id, StoredInode& stored);
  Result<Ending> Conclude(InodeId id, StoredInode stored, bool done, Durability durability);

  // False: what it went by has changed; try again.
  Result<bool> TryRename(const Wanted& wanted);
  Result<bool> TryExchange(Wanted wanted);
  Result<bool> MoveWithIntent(const Wanted& wanted, const Place& from, const Place& to);
  Result<bool> Move(const Wanted& wanted, const Place& from, const Place& to, bool reparents);
  Status CheckReplacement(const Wanted& wanted, const Place& from, const Place& to);
  Result<std::optional<uint64_t>> BeginMove(InodeId id);
  Status CheckNotBelow(InodeId id, InodeId target);

  Records& records_;
  Runtime& runtime_;
  Disposer dispose_;

  struct Recent {
    InodeId directory = 0;
    std::string name;
    uint64_t updates = 0;  // of us, before it was looked up
    Time at{};
    Place place;
  };
  static constexpr size_t kMostRecent = 64;
  static constexpr Duration kIsRecent = std::chrono::seconds(1);
  std::atomic<uint64_t> updates_ = 0;  // an inode was changed here, and what is recent is not
  Mutex recent_mutex_;
  std::deque<Recent> recent_ GUARDED_BY(recent_mutex_);

  static constexpr size_t kMostReachable = 4096;
  Mutex reachable_mutex_;
  std::set<InodeId> reachable_ GUARDED_BY(reachable_mutex_);  // after a loss of power

  Mutex notings_mutex_;
  std::map<InodeId, std::weak_ptr<Noting>> notings_ GUARDED_BY(notings_mutex_);

  LargeDirectories large_;
  DirectoryTimes times_;
};

}  // namespace pinstripe
