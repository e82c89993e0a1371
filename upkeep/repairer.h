// Repairer: brings every block of every file back to all of its shards, and puts shards that lie on
// spares where they belong.
//
// Its last word is what a Checker saw when it looked afterwards, not what it believes to have done.
// It may run beside clients, and beside other repairers, at any time, and be killed at any time.
// Shards are written and read back first, then the block map says where they are, and only then
// copies go that are no longer needed. Nothing else is ever removed. The most endangered files come
// first. Drained drives that the configuration has no more are left, as if they had been given up;
// those of which nothing is needed any more are retired.
//
// Used by one thread, but for SetRate(); it has threads of its own while it works.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/names/names.h"
#include "fs/names/records.h"
#include "upkeep/checker.h"
#include "upkeep/scrub_note.h"

namespace pinstripe {

struct RepairReport {
  uint64_t blocks = 0;      // that were looked into
  uint64_t damaged = 0;     // shards that were found so
  uint64_t missing = 0;     // shards that were found so
  uint64_t written = 0;     // shards written again
  uint64_t relocated = 0;   // shards that were brought where they belong
  uint64_t bytes_read = 0;  // from the drives, for all that
  uint64_t bytes_written = 0;
  uint64_t progress = 0;  // blocks of which something is better than before
  // Shards that were to be read, and whose drives were away, and what else could not be looked
  // into.
  uint64_t unread = 0;
  // Blocks that were found to lack shards, or to have damaged ones, and could not be helped.
  std::set<std::pair<InodeId, uint64_t>> not_whole;
  // Those of them that nobody finds who goes by what the drives list: with damaged shards, or with
  // some that a drive lists and does not have. And of these, those that cannot be read any more.
  std::set<std::pair<InodeId, uint64_t>> found_by_reading;
  std::set<std::pair<InodeId, uint64_t>> lost_by_reading;
  // Blocks that cannot be read, as too few of their shards are left, wherever drives that are away
  // have others: "path: block 7".
  std::vector<std::string> lost;
  // Of the damaged shards, those whose checksums are right, but that the others contradict: "path:
  // block 7: shard 2 on drive 3 (127.0.0.1:8103)".
  std::vector<std::string> contradicted;
  // Of a scrub of several processes: for which there was no room where they note what they find.
  uint64_t more_contradicted = 0;
  uint64_t more_not_whole = 0;  // when they were read; nobody has looked again
  // Blocks of which it is known that shards are wrong, and not which: "path: block 7".
  std::vector<std::string> inconsistent;
  // The first few reasons why a block is not whole; in a dry run, what was found.
  std::vector<std::string> failures;
  CheckReport check;  // how things are now
  // Drained drives that are not retired (cluster/membership/retirement.h), and why. In a dry run:
  // none.
  std::map<DriveId, Status> not_retired;
};

class Repairer {
 public:
  struct Options {
    bool read_all = false;  // reads every shard of every file: a scrub
    // What ScrubGroups() found, here or elsewhere, while everything was read: Run() reads only that
    // again which was not whole, and tells of the rest.
    std::optional<ScrubFound> scrubbed;
    std::set<DriveId> without;      // drives to be left: what they hold goes elsewhere
    bool dry_run = false;           // says what it finds
    uint64_t bytes_per_second = 0;  // read and written together, at most; 0: as fast as it goes
    int blocks_at_once = 8;
    uint32_t groups_at_once = 64;  // of a scrub, at most
    size_t most_told = 100'000;    // as of Checker::Options
    // Told now and then, on the thread that called Run(): what is being done, how far it is (0..1),
    // and how many bytes were moved since it began.
    std::function<void(std::string_view phase, double done, uint64_t bytes)> progress;
    // Asked before each block, on whatever thread is at it. It may wait. False: Run() ends soon,
    // and its report does not say how things are.
    std::function<bool()> go_on;
    CheckState* state = nullptr;  // as of Checker::Options, of the first look at everything
  };

  Repairer(Cluster& cluster, Options options);

  const RepairReport& Run();

  // A part of a scrub, for which read_all is set: reads all shards of files whose inodes are before
  // `end`, from `first` on, for about a minute at most, and repairs what it can. Not beside Run().
  // Tells that it is `done` of all work, 0..1, and what it would be at the end.
  struct ScrubbedGroups {
    ScrubPlace next;  // so far; unless it was ended: then nothing is complete
    ScrubFound found;
    std::set<DriveId> away;  // drives of what was unread; 0: that was for another reason
  };
  ScrubbedGroups ScrubGroups(const ScrubPlace& first, const ScrubPlace& end, double done,
                             double done_at_end);

  // Brings the shards of one file home that its block map knows to be elsewhere, as far as the
  // drives are up. One thread at a time, and not beside Run(). `drives_needed`: of those blocks
  // that are still not whole, the drives that their shards belong on.
  struct Mended {
    bool changed = false;  // something is better than before
    uint64_t lacking = 0;  // blocks that have shards elsewhere, or too few, still
  };
  Result<Mended> MendFile(InodeId file, std::set<DriveId>& drives_needed);

  // MendFile() and Run() end early, from now on. Any thread.
  void Cancel() { cancelled_ = true; }

  // While Run() is at work. Any thread.
  void SetRate(uint64_t bytes_per_second) { bytes_per_second_ = bytes_per_second; }

 private:
  // Blocks of one file.
  struct Task {
    InodeId file = 0;
    std::vector<uint64_t> blocks;
  };
  // Tasks that are done together, and whether these are enough.
  struct Batch {
    std::vector<Task> tasks;
    uint64_t bytes = 0;  // of the blocks
    size_t most_tasks = SIZE_MAX;
    uint64_t most_bytes = UINT64_MAX;
    bool IsFull() const { return tasks.size() >= most_tasks || bytes >= most_bytes; }
  };
  // The state in which a stripe of a block was found, and where its shards are now.
  struct Moved {
    uint64_t block = 0;
    BlockPlace before;  // of BlockPlace::Stripes()
    StripeRepair repair;
  };
  struct Work;

  // A block that the check has found to lack something: `left` further shards may be lost.
  struct Found {
    InodeId file = 0;
    uint64_t block = 0;
    int left = 0;
    bool lacks_listed = false;  // shards, by what drives list that are there
  };
  // The part of all work that some of it is.
  struct Share {
    double from = 0;  // 0..1
    double to = 1;
  };
  // Something to tell of a block of a file: what comes after its path, and in which list of the
  // report.
  struct Told {
    InodeId file = 0;
    uint64_t block = 0;
    std::string words;
    std::vector<std::string> RepairReport::*list = nullptr;
  };

  void RetireDrained();
  void FindLacking(Checker& checker);
  bool LacksListed(InodeId file, uint64_t block) const;
  void ProcessAll(const Checker& checker);
  void ProcessFound(const Checker& checker);
  void AddFiles(const std::vector<InodeId>& files, Batch& batch);
  using Wanted = std::function<bool(uint64_t block, const BlockPlace& place)>;
  // From block `next` on, until the batch is full: then that is where to go on; else it is null.
  // The first reason why a page of its map could not be read; all others are looked at.
  Status AddBlocks(InodeId file, Inode inode, const Wanted& wanted, Batch& batch,
                   std::optional<uint64_t>& next);
  std::set<DriveId> HomesOfMoved(uint64_t block, const BlockPlace& place);
  bool IsToMove(const BlockPlace& place, uint64_t block);
  void ReadAgain(const Checker& checker);
  // As much as there is room for; where to go on.
  ScrubPlace AddGroup(const ScrubPlace& place, const ScrubPlace& end, Batch& batch);
  ScrubFound TakeFound();
  void Process(std::vector<Task> tasks, std::string_view phase, const Share& share);
  void WorkOff(Work& work);
  // `moved_some`: it has changed the inode, or wanted to.
  Status RepairBlocks(const Task& task, bool& moved_some);
  // False: the block was replaced or moved in the meantime, and is to be looked at anew.
  Result<bool> RepairBlock(const Task& task, Inode& inode, uint64_t block,
                           std::vector<Moved>& moved);
  // Clears `is_seen` where shards are out of reach.
  Result<bool> RepairStripe(InodeId file, uint64_t block, const BlockPlace& place,
                            std::vector<Moved>& moved, bool& is_seen);
  bool IsStillSo(InodeId file, uint64_t block, const BlockPlace* stripe);
  void Relabel(Inode& inode, const std::vector<Moved>& moved);
  Result<bool> Record(InodeId file, StoredInode stored, const std::vector<Moved>& moved);
  Status StorePages(InodeId file, Inode& inode, std::vector<BlockMap::Piece>& pages);
  void DeletePages(const std::vector<BlockMap::Piece>& pages);
  void Note(const StripeRepair& repair);
  void NoteFailure(InodeId file, const Status& why);
  void NoteUnread();
  void NoteAway(const BlockPlace& place, uint64_t block, int shards);
  void Forget(InodeId file, uint64_t block);
  void ShowThatItGoesOn();
  // On the thread that called Run(), as paths are read.
  using Paths = std::function<std::map<InodeId, std::string>(const std::set<InodeId>& files)>;
  void TellWhatWasNoted(const Paths& paths);
  void TellWhatWasNoted(const Checker& checker);
  bool GoOn();
  void Throttle(uint64_t bytes);

  Cluster& cluster_;
  const Options options_;
  Records records_;
  Names names_;
  std::atomic<uint64_t> bytes_per_second_;
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;
  // What the last check has found, in the order of files and blocks, each once: there may be very
  // many. Constant while there are threads.
  std::vector<Found> found_;
  std::vector<Told> told_ GUARDED_BY(mutex_);
  size_t failures_ GUARDED_BY(mutex_) = 0;  // that were noted, or were too many
  RepairReport report_;                     // guarded by mutex_ while there are threads
  ScrubFound taken_;                        // sums of the report that TakeFound() has told
  std::set<DriveId> unread_drives_ GUARDED_BY(mutex_);  // ScrubbedGroups::away
  double scrub_done_ = 0;                               // that was told last
  // What was moved under a rate, and as much of it as that allowed by `paid_at_`.
  double moved_ GUARDED_BY(mutex_) = 0;
  double paid_ GUARDED_BY(mutex_) = 0;
  Time paid_at_ GUARDED_BY(mutex_){};
};

}  // namespace pinstripe
