// LogLedger: what becomes of each entry in a LogStore's log, and how many bytes are used. It asks
// the segments' files only for a new segment; all else is arithmetic under one lock.
//
//   Reserve()    in flight: its place is taken, and the index does not name it yet
//   Commit()     live: the index names it
//   BeginDying() dying: a write to the index that forgets it is under way
//   Commit()     dead: the index has forgotten it, but power loss may undo that
//   BeginRound() committing: the round of flushing that is under way makes its end durable
//   EndRound()   free: nothing brings it back, and its space can be given back
//
// Thread-safe. Rounds come one after the other; so do compactions.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "store/log_entry.h"
#include "store/segment_files.h"
#include "store/store.h"

namespace pinstripe {

class LogLedger {
 public:
  struct Entry {
    LogLocation location;
    uint64_t bytes = 0;
  };
  using Ranges = std::map<LogLocation, uint64_t>;          // of the log: where, how many bytes
  using Written = std::map<uint32_t, SegmentFiles::Held>;  // segments, to be synced

  // What one write to the index means for the log.
  struct Change {
    std::vector<Entry> added;
    std::vector<Entry> removed;
    std::vector<LogLocation> replacing;  // those of `added` that have a previous record
    uint64_t inline_added = 0;
    uint64_t inline_removed = 0;
  };

  // One round of flushing: what was to be done when it began.
  struct Round {
    Written segments;
    LogLocation durable;  // where the log will be so
    LogLocation durable_before;
    std::vector<uint32_t> full;  // segments that are not written any more
  };

  // `files` outlive it.
  LogLedger(SegmentFiles& files, uint64_t segment_bytes)
      : files_(files), segment_bytes_(segment_bytes) {}

  // While opening, in this order: which segments there are, and the counts of the index; where the
  // log goes on, at the mark or behind it; which files were never used up; and that changes begin.
  void Load(const std::vector<uint32_t>& segments,
            const std::map<uint32_t, uint64_t>& segment_bytes, uint64_t inline_bytes);
  std::optional<uint32_t> last_segment() const;
  Status BeginAt(LogLocation cursor, bool in_new_segment);
  uint64_t LiveBytes(uint32_t segment) const;
  void NoteTrimmable(uint32_t segment);
  void Begin(LogLocation durable, Written dirty);

  // Writing. Room at the end of the log for these entries, in a new segment when the last one is
  // full; adds them to `change`, those before a failure too.
  Status Reserve(const std::vector<uint64_t>& entry_bytes, Change& change);
  void NoteWritten(uint32_t segment, const SegmentFiles::Held& held, uint64_t bytes);

  // What was reserved stays unused: nothing refers to it.
  void Abandon(const Change& change);

  // What is to die is noted before the index forgets it, so that whoever looks for the free space
  // between two entries finds it in the one place or in the other.
  void BeginDying(const Change& change);
  void ForgetDying(const Change& change);  // it was not made after all
  void Commit(const Change& change);

  // Flushing.
  bool HasChanges() const;
  Round BeginRound();
  std::vector<LogLocation> TakeReplacingBelow(LogLocation mark);
  void EndRound(const Round& round);

  // Whether deletions have left anything that a flush would give back, or that could be already.
  bool HasLeftovers() const;

  // Giving back.
  struct Returnable {
    Ranges free;
    std::set<uint32_t> full;  // segments to be trimmed
  };
  Returnable TakeReturnable();
  struct Snapshot {
    LogLocation cursor;
    Ranges in_flight;
  };
  Snapshot Look() const;
  struct Gap {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  // Makes a gap around `location` smaller, until it holds nothing of these ranges.
  static void Shrink(const Ranges& ranges, LogLocation location, Gap& gap);
  void ShrinkToFree(LogLocation location, Gap& gap) const;  // to what is neither dying nor dead
  // Segments in which nothing is needed any more. Their numbers are never used again.
  std::vector<uint32_t> TakeDeadSegments();
  bool IsWhole(uint32_t segment) const;  // there, and not written any more
  void NoteAllocated(uint32_t segment, uint64_t bytes);

  // Tidying.
  bool WantsFlush() const;
  bool HasReturnable() const;
  bool TakeInlineDeletions();  // whether there were too many

  // That, if any, from which entries had better be moved, where the file system may keep so much
  // that is neither used nor given back.
  std::optional<uint32_t> SegmentToCompact(uint64_t slack_bytes) const;
  struct Compacted {
    uint64_t moved_bytes = 0;
    bool damaged = false;   // an entry stays where it is
    bool finished = false;  // all of the segment
  };
  void NoteCompacted(uint32_t segment, const Compacted& compacted);

  uint64_t used_bytes() const;
  uint64_t moved_bytes() const;
  LogCounts Counts() const;
  LogLocation cursor() const;

  // For tests. It holds at any time, unless the index was damaged and its counts are wrong.
  void CheckInvariants() const;

 private:
  struct Segment {
    uint64_t live_bytes = 0;
    uint64_t allocated_bytes = 0;  // 0: not known, or it is still written
    bool holds_damage = false;
    uint64_t slack() const {
      return allocated_bytes > live_bytes ? allocated_bytes - live_bytes : 0;
    }
  };

  Result<LogLocation> ReserveOne(uint64_t bytes, const MutexLock& lock) REQUIRES(mutex_);
  void CheckRanges() const REQUIRES(mutex_);

  SegmentFiles& files_;
  const uint64_t segment_bytes_;

  mutable Mutex mutex_;
  Condition rolled_;
  bool rolling_ GUARDED_BY(mutex_) = false;  // somebody makes the next segment
  std::map<uint32_t, Segment> segments_ GUARDED_BY(mutex_);
  LogLocation durable_ GUARDED_BY(mutex_);                 // what the last round has made so
  std::optional<uint32_t> compacting_ GUARDED_BY(mutex_);  // the segment that is being emptied
  uint64_t moved_bytes_ GUARDED_BY(mutex_) = 0;
  LogLocation cursor_ GUARDED_BY(mutex_);  // where the log ends
  Ranges in_flight_ GUARDED_BY(mutex_);
  Ranges dying_ GUARDED_BY(mutex_);
  Ranges dead_ GUARDED_BY(mutex_);
  Ranges committing_ GUARDED_BY(mutex_);
  Ranges free_ GUARDED_BY(mutex_);
  std::set<LogLocation> replacing_ GUARDED_BY(mutex_);  // entries with a previous record
  Written dirty_ GUARDED_BY(mutex_);                    // segments with data to sync
  std::set<uint32_t> full_ GUARDED_BY(mutex_);          // segments that ended
  std::set<uint32_t> trimmable_ GUARDED_BY(mutex_);     // and that nobody writes
  bool index_dirty_ GUARDED_BY(mutex_) = false;
  uint64_t unsynced_bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t live_bytes_ GUARDED_BY(mutex_) = 0;  // of the log
  uint64_t dead_bytes_ GUARDED_BY(mutex_) = 0;  // in dead_ and committing_
  uint64_t inline_bytes_ GUARDED_BY(mutex_) = 0;
  uint64_t inline_dead_bytes_ GUARDED_BY(mutex_) = 0;  // since deletions were pushed down
};

}  // namespace pinstripe
