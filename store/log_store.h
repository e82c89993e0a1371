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
// Each part is a class of its own, and none but these knows how it goes about it:
//
//   LogRecovery   what opening does          LogRoom      how much may still be taken
//   LogReader     finds and reads records    LogReclaim   gives space back, compacts
//   LogWriter     makes changes              LogIndex     the index, on RocksDB
//   LogRounds     makes them durable         SegmentFiles the files of the log
//   LogLedger     what becomes of each entry of the log, and the counts
//
// Thread-safe; changes of one key one after the other, as Store says.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/directory.h"
#include "store/file_calls.h"
#include "store/log_check.h"
#include "store/log_index.h"
#include "store/log_ledger.h"
#include "store/log_reader.h"
#include "store/log_reclaim.h"
#include "store/log_room.h"
#include "store/log_rounds.h"
#include "store/log_writer.h"
#include "store/segment_files.h"
#include "store/store.h"
#include "store/store_health.h"
#include "store/store_resources.h"

namespace rocksdb {
class DB;
class Env;
class MergeOperator;
}  // namespace rocksdb

namespace pinstripe {

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

class LogStore final : public Store {
 public:
  static constexpr uint32_t kLeastLoggedBytes = LogWriter::kLeastLoggedBytes;
  using CheckReport = LogCheckReport;

  // Opens or makes the store. Failures as of StoreDirectory::Open; EBADMSG: it is damaged.
  static Result<std::unique_ptr<LogStore>> Open(const LogStoreOptions& options,
                                                StoreResources& resources);

  // As CheckLogStore().
  static Result<CheckReport> Check(const std::string& path, StoreResources& resources) {
    return CheckLogStore(path, resources);
  }

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
  uint64_t moved_bytes() const { return ledger_.moved_bytes(); }

  // For tests, of a store that is not damaged. At any time.
  void CheckInvariants() const { ledger_.CheckInvariants(); }

 private:
  LogStore(StoreDirectory directory, const LogStoreOptions& options, StoreResources& resources);
  static Result<std::unique_ptr<LogStore>> OpenAndRecover(const LogStoreOptions& options,
                                                          StoreResources& resources);
  Status Join(StoreResources& resources);
  Status OpenIndex();
  Status Recover();
  Status BeginStart();
  Status Make(std::span<const StoreChange> changes, LogWriter::Together together);
  Result<bool> MakeRoom();

  StoreDirectory directory_;
  const LogStoreOptions options_;
  SegmentFiles files_;
  StoreHealth health_;
  LogLedger ledger_;
  LogIndex index_;
  LogReader reader_;
  LogRoom room_;
  LogWriter writer_;
  LogReclaim reclaim_;
  LogRounds rounds_;
  bool opened_ = false;  // wholly
  bool ended_ = false;   // cleanly; of the thread that destroys it
  uint64_t torn_entries_ = 0;
};

}  // namespace pinstripe
