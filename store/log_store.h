// LogStore: the Store of real drives, on a directory. Values of 4 KiB and more are appended to
// segment files, once and never again; the index, with all smaller values, is a RocksDB.
// docs/format.md has the bytes, "Store of a pinstriped drive".
//
// The order of writes is everything here:
//
//   put      the entry into the log, then the index record. A kill between leaves bytes that
//            nothing refers to; after it the kernel holds both.
//   flush    the log's data, then the index's write-ahead log together with a mark: below it every
//            entry that the index names survives power loss. Stores that share a file system sync
//            all of it at once, with the mark of the round before: there is no order in such a
//            sync.
//   delete   the index record. The bytes of the entry are given back only after a flush, so that a
//            deletion that power loss undoes finds its value again.
//   apply    the entries of all changes into the log, and synced, then the index records in one
//            write: the index alone decides whether the changes were made, and it keeps a write
//            wholly or not.
//   move     compaction puts an entry that is there again, at the end of the log, where the space
//            around it cannot be given back: a replacement by itself.
//   open     entries beyond the mark are verified. Those that power loss tore were never durable,
//            and are undone, as if never put; what follows the last entry is cut off. Where the
//            kernel may show more than the disk has, since the process was killed or a sync failed,
//            the disk itself is asked. (To write such entries again in their places does not help:
//            after a failed write ext4 goes on to take space for written that it will read as
//            zeros.)
//   replace  the index keeps the record that an entry replaces until the entry is durable; where
//            power loss tore the entry, what was there before comes back.
//
// An entry below the mark that does not verify is damage: EBADMSG for its key, when it is read.
// After a failed sync nothing can be believed any more: every change fails (EIO), reads go on.
//
// Thread-safe; changes of one key one after the other, as Store says.

#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "store/commit_group.h"
#include "store/directory.h"
#include "store/file_calls.h"
#include "store/index_cache.h"
#include "store/key_locks.h"
#include "store/log_entry.h"
#include "store/segment_files.h"
#include "store/store.h"

namespace rocksdb {
class DB;
class Env;
class MergeOperator;
class WriteBatch;
}  // namespace rocksdb

namespace pinstripe {

// What all stores of a process share: memory for their indexes (block cache and write buffers), the
// threads of RocksDB, and the commits of those that lie on one file system.
class StoreResources {
 public:
  explicit StoreResources(uint64_t block_cache_bytes = 64 << 20,
                          uint64_t write_buffer_bytes = 64 << 20);
  ~StoreResources();

 private:
  friend class LogStore;
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

struct LogStoreOptions {
  std::string path;
  std::string serial_number;    // of a new device: by chance when empty
  uint64_t capacity_bytes = 0;  // 0: what the file system has
  uint64_t segment_bytes = uint64_t{1} << 30;
  // Of the file system, and of the capacity, that puts leave free (store/space.h), so that
  // deletions and the index always have room.
  uint64_t reserve_bytes = uint64_t{256} << 20;
  // Of the file system, in segments, that is neither used nor given back: so much, and a sixteenth
  // of what is used, is left alone. Beyond, Tidy() moves entries together.
  uint64_t slack_bytes = uint64_t{64} << 20;
  // Seams for tests; what is pointed to outlives the store.
  FileCalls* calls = &FileCalls::Kernel();
  rocksdb::Env* index_env = nullptr;  // null: IndexFiles::Env()
  // Gives the index, which becomes the store's and adds up counts with that; null: RocksDB opens
  // it.
  std::function<rocksdb::DB*(std::shared_ptr<rocksdb::MergeOperator>)> open_index = nullptr;
};

class LogStore final : public Store, private CommitGroup::Member {
 public:
  static constexpr uint32_t kLeastLoggedBytes = 4096;

  // Opens or makes the store. Failures as of StoreDirectory::Open; EBADMSG: it is damaged.
  static Result<std::unique_ptr<LogStore>> Open(const LogStoreOptions& options,
                                                StoreResources& resources);

  // Flushes, unless that fails.
  ~LogStore() override;

  const DeviceIdentity& identity() const { return directory_.identity(); }

  Result<StoredRecord> Get(std::string_view key, ValueRange range) override;
  Result<StoredRecord> GetAtOnce(std::string_view key, ValueRange range) override;
  Result<StoredHead> Head(std::string_view key) override;
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override;
  Result<RangeItems> Items(const KeyRange& range, const RangeLimits& limits, bool reverse) override;
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override;
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override;
  bool PutAllAtOnce(std::span<const StoreChange> puts) override;
  Status Delete(std::string_view key) override;
  Status Apply(std::span<const StoreChange> changes) override;
  Status Flush() override;
  StoreUsage Usage() override;
  StoreStarts Starts() override { return directory_.starts().starts(); }
  Status EndCleanly() override;
  Result<bool> Tidy() override;
  Status CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) override;

  // How many entries power loss had torn, found when it was opened.
  uint64_t torn_entries() const { return torn_entries_; }

  // What compaction has moved since it was opened. At most 16 bytes for each that it gave back.
  uint64_t moved_bytes() const {
    const std::lock_guard lock(mutex_);
    return moved_bytes_;
  }

  struct CheckReport {
    uint64_t records = 0;
    uint64_t value_bytes = 0;
    uint64_t unfinished = 0;  // entries that power loss tore; opening the store removes them
    uint64_t damaged = 0;
    std::vector<std::string> sentences;  // about the first kMaxSentences damages
    static constexpr size_t kMaxSentences = 100;
  };
  // Reads everything and changes nothing. The store is closed (EBUSY otherwise).
  static Result<CheckReport> Check(const std::string& path, StoreResources& resources);

 private:
  struct Segment {
    uint64_t live_bytes = 0;
    uint64_t allocated_bytes = 0;  // 0: not known, or it is still written
    bool holds_damage = false;
    uint64_t slack() const {
      return allocated_bytes > live_bytes ? allocated_bytes - live_bytes : 0;
    }
  };
  using Ranges = std::map<LogLocation, uint64_t>;          // of the log: where, how many bytes
  using Written = std::map<uint32_t, SegmentFiles::Held>;  // segments, to be synced
  // One round of flushing: what was to be done when it began.
  struct Round {
    Written segments;
    LogLocation durable;  // where the log will be so
    LogLocation durable_before;
    std::vector<uint32_t> full;  // segments that are not written any more
    uint64_t sequence = 0;       // of the index
  };
  struct Planned;
  struct Change;

  LogStore(StoreDirectory directory, const LogStoreOptions& options, StoreResources& resources);
  static Result<std::unique_ptr<LogStore>> OpenAndRecover(const LogStoreOptions& options,
                                                          StoreResources& resources);
  Status OpenIndex(StoreResources& resources, bool read_only);
  Status OpenRocksDb(StoreResources& resources, bool read_only);
  Status BeginStart();

  Status JoinGroup(StoreResources& resources);

  // While opening, alone:
  Status Recover();
  Status LoadCounts();
  Status FindCursor(LogLocation durable);
  Status SettleLog(LogLocation durable);
  Status UndoTornEntries(LogLocation durable);
  Status UndoTornEntry(LogLocation location, const PlaceRecord& place, LogLocation durable);
  Result<std::string> LastRecordBefore(LogLocation location, const std::string& key,
                                       LogLocation durable);
  Status ForgetPrevious();
  Status CutTails(LogLocation durable);
  Status ReturnForgottenSpace();
  Status PunchGaps(uint32_t segment);
  Result<LogLocation> LoadDurable() const;
  Result<uint64_t> LoadCount(const std::string& index_key) const;
  Result<uint64_t> EndOfLastEntry(uint32_t segment) const;

  // Reading:
  Result<std::string> LoadIndexRecord(std::string_view key) const;
  using Wait = KeyLocks::Wait;
  Result<std::string> FindIndexRecord(std::string_view key, Wait wait = Wait::kMay);
  Result<RangeItem> LoadItem(std::string key, std::string_view index_value,
                             const RangeCollector& collector);
  Result<StoredRecord> ReadRecord(std::string_view key, const IndexRecord& record, ValueRange range,
                                  Wait wait = Wait::kMay);
  Status CheckPlaces(CheckReport& report);
  Status CheckRecords(LogLocation durable, CheckReport& report);

  // Writing:
  enum class Together { kAllOrNone, kEach };  // what power loss may do to several changes
  Status Make(std::span<const StoreChange> changes, Together together);
  Status TryToMake(std::span<const StoreChange> changes, Together together, Wait wait = Wait::kMay);
  Status Plan(const StoreChange& asked, Wait wait, Planned& plan, Change& change);
  Status Append(std::span<const Planned> plans, Change& change);
  Status WriteEntries(std::span<const Planned* const> plans, LogLocation begin, Change& change);
  Status SyncAll(const Written& written);
  void Forget(std::string_view key, const IndexRecord& old, size_t record_bytes, Change& change);
  Status Commit(Change& change, Wait wait = Wait::kMay);
  void ForgetDying(const Change& change);
  void Abandon(const Change& change);
  Status CheckSpace(uint64_t more, Room room);
  static Room RoomOf(std::span<const StoreChange> changes);
  Result<bool> MakeRoom();
  Result<LogLocation> Reserve(uint64_t bytes, std::unique_lock<std::mutex>& lock);
  Status FailedState();
  Status BreakOn(const Status& status);

  // Flushing:
  bool HasChanges() override;
  void BeginRound() override;
  Status SyncRound() override;
  Status HandOverRound() override;
  Status EndRound(Status synced) override;
  void LoseFaith(const Status& failure) override;
  Status MarkDurable(LogLocation mark, bool sync);
  Status ReturnSpace();
  struct Gap {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  class LiveEntries;
  Result<Gap> GapAround(LogLocation location, LiveEntries& live);
  Status RemoveDeadSegments();
  Status MeasureSegments(const std::set<uint32_t>& segments);

  // Compacting:
  Result<bool> PushDeletionsDown();
  std::optional<uint32_t> SegmentToCompact();
  Result<bool> Compact();
  Status Move(LogLocation location, const PlaceRecord& place);

  StoreDirectory directory_;
  const LogStoreOptions options_;
  SegmentFiles files_;
  std::shared_ptr<CommitGroup> group_;  // null: not to be written
  bool opened_ = false;                 // wholly
  bool from_disk_ = false;              // while opening: the kernel is not believed
  std::unique_ptr<rocksdb::DB> index_;
  IndexCache index_cache_;  // of records; not used while opening
  uint64_t torn_entries_ = 0;
  bool ended_ = false;  // cleanly; of the thread that destroys it

  KeyLocks key_locks_;  // whose records are being changed or moved

  // Held while the index is synced, for who writes to it meanwhile waits for the disk, and shared
  // by those who must not.
  std::shared_mutex syncing_index_;

  mutable std::mutex mutex_;
  std::condition_variable rolled_;
  bool rolling_ = false;                  // somebody makes the next segment; guarded by mutex_
  std::map<uint32_t, Segment> segments_;  // guarded by mutex_
  LogLocation durable_;                   // what the last round has made so; guarded by mutex_
  std::optional<uint32_t> compacting_;    // the segment that is being emptied; guarded by mutex_
  uint64_t moved_bytes_ = 0;              // guarded by mutex_
  LogLocation cursor_;                    // where the log ends; guarded by mutex_
  Ranges in_flight_;                      // not in the index yet; guarded by mutex_
  Ranges dying_;                          // about to leave the index; guarded by mutex_
  Ranges dead_;                           // have left it since the last round; guarded by mutex_
  Ranges committing_;                     // whose end a round makes durable; guarded by mutex_
  Ranges free_;                           // and that is durable; guarded by mutex_
  std::set<LogLocation> replacing_;       // entries with a previous record; guarded by mutex_
  Written dirty_;                         // segments with data to sync; guarded by mutex_
  std::set<uint32_t> full_;               // segments that ended; guarded by mutex_
  std::set<uint32_t> trimmable_;          // and that nobody writes; guarded by mutex_
  bool index_dirty_ = false;              // guarded by mutex_
  uint64_t unsynced_bytes_ = 0;           // guarded by mutex_
  uint64_t live_bytes_ = 0;               // of the log; guarded by mutex_
  uint64_t dead_bytes_ = 0;               // in dead_ and committing_; guarded by mutex_
  uint64_t inline_bytes_ = 0;             // guarded by mutex_
  uint64_t inline_dead_bytes_ = 0;        // since deletions were pushed down; guarded by mutex_
  Status broken_;                         // guarded by mutex_
  uint64_t room_bytes_ = 0;               // of which CheckSpace() knows; guarded by mutex_
  int room_changes_ = 0;                  // likewise, how many may believe it; guarded by mutex_

  Round round_;  // that is under way; of the thread that runs it
};

}  // namespace pinstripe
