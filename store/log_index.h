// LogIndex: the index of a LogStore, in RocksDB, of which nobody else knows: the record of each
// key, the place of each entry in the log, what entries have replaced, and the counts of bytes in
// use. log_entry.h has their bytes.
//
// Records that were read or written lately are remembered beside it (index_cache.h).
//
// Thread-safe, once it is open; changes of one key one after the other. A scan belongs to one
// thread.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "store/index_cache.h"
#include "store/key_locks.h"
#include "store/log_entry.h"
#include "store/store.h"
#include "store/store_resources.h"

namespace rocksdb {
class DB;
class Env;
class MergeOperator;
class WriteBatch;
}  // namespace rocksdb

namespace pinstripe {

// Several changes of the index, which are made by one write: all of them or none.
class IndexBatch {
 public:
  IndexBatch();
  ~IndexBatch();
  IndexBatch(IndexBatch&&) noexcept;

  // `key` lives as long as the batch. A record that is remembered need not be asked for again.
  enum class Remember { kNo, kYes };
  void PutRecord(std::string_view key, std::string record, Remember remember);
  void DeleteRecord(std::string_view key);

  void PutPlace(LogLocation location, const PlaceRecord& place);
  void DeletePlace(LogLocation location);

  // The record that an entry has replaced.
  void PutPrevious(LogLocation location, std::string_view record);
  void DeletePrevious(LogLocation location);

  // Counts; taken modulo 2^64, so that what is added may be negative.
  void AddToSegment(uint32_t segment, uint64_t bytes);
  void AddToInlineBytes(uint64_t bytes);

  void SetDurable(LogLocation mark);

 private:
  friend class LogIndex;
  struct Changed {
    std::string_view key;
    std::string remembered;  // of it, from now on; empty: nothing
  };
  std::unique_ptr<rocksdb::WriteBatch> batch_;
  std::vector<Changed> changed_;
};

// A place in the log that the index names.
struct IndexPlace {
  LogLocation location;
  PlaceRecord record;
  uint64_t end() const { return location.offset + record.entry_bytes; }
};

// Index keys of one kind in their order, as they were when the scan began. Stands nowhere at first.
class IndexScan {
 public:
  ~IndexScan();
  IndexScan(IndexScan&&) noexcept;

  void SeekToFirst();
  void SeekToLast();
  void Seek(LogLocation location);         // the first place at or above
  void SeekForPrev(LogLocation location);  // the last one at or below
  void Next();
  void Prev();
  bool Valid() const;
  Status status() const;

  // Of records:
  std::string_view key() const;
  std::string_view record() const;

  // Of places:
  Result<LogLocation> location() const;
  Result<IndexPlace> place() const;

 private:
  friend class LogIndex;
  struct Parts;
  explicit IndexScan(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

class LogIndex {
 public:
  using Wait = KeyLocks::Wait;

  // `resources` outlive it.
  explicit LogIndex(StoreResources& resources);
  ~LogIndex();

  struct Options {
    std::string path;
    bool read_only = false;
    bool may_be_new = false;      // made if it is not there
    uint64_t least_sequence = 0;  // how many changes are durable
    rocksdb::Env* env = nullptr;  // null: IndexFiles::Env()
    std::function<rocksdb::DB*(std::shared_ptr<rocksdb::MergeOperator>)> open = nullptr;
  };
  // EBADMSG: it is damaged, or has lost changes that were durable.
  //
  // RocksDB puts all that it finds in its write-ahead log into a table that it syncs: what was only
  // in the kernel is durable then.
  Status Open(const Options& options);

  // How many changes there have been.
  uint64_t sequence() const;

  // The record of a key as the index has it; ENOENT: none.
  Result<std::string> Load(std::string_view key) const;

  // The same, mostly without RocksDB. EAGAIN, where it may not wait: the kernel would have to read
  // it. Not before everything is recovered.
  Result<std::string> Find(std::string_view key, Wait wait = Wait::kMay);

  Result<bool> HasPlace(LogLocation location) const;
  Result<std::optional<std::string>> LoadPrevious(LogLocation location) const;
  Result<LogLocation> LoadDurable() const;
  Result<uint64_t> LoadSegmentBytes(uint32_t segment) const;
  Result<std::map<uint32_t, uint64_t>> LoadSegmentBytes() const;
  Result<uint64_t> LoadInlineBytes() const;

  // Where the last entry of a segment ends, of those that the index names.
  Result<uint64_t> EndOfLastEntry(uint32_t segment) const;

  IndexScan Records() const;
  std::optional<IndexScan> Records(const KeyRange& range) const;  // none: nothing can be in there
  IndexScan Places(LogLocation from = {}) const;
  IndexScan PlacesOf(uint32_t segment) const;

  // The kernel has it after. EAGAIN, where it may not wait: nothing was written.
  Status Write(IndexBatch& batch, Wait wait = Wait::kMay);

  // Likewise, and with `sync` it and all that was written before survive power loss.
  Status WriteMark(IndexBatch& batch, bool sync);

  // Has this function write, unless the index is being synced: then a write waits for the disk.
  // Whether that has succeeded.
  template <typename Function>
  bool UnlessSyncing(Function write) {
    if (!syncing_.TryLockShared()) return false;
    const bool written = write();
    syncing_.UnlockShared();
    return written;
  }

  Status ForgetPrevious();  // all of them
  Status ForgetSegment(uint32_t segment);

  // Puts what is in memory into a table of its own.
  Status PushDown();

  // As Store::CompactRange().
  Status CompactRange(const KeyRange& range, std::atomic<bool>& cancelled);

  // EBADMSG: a table is damaged.
  Status VerifyTables();

 private:
  Status OpenRocksDb(const Options& options);
  Result<uint64_t> LoadCount(const std::string& index_key) const;
  IndexScan Scan(std::string first, std::string end) const;

  StoreResources& resources_;
  std::unique_ptr<rocksdb::DB> db_;
  IndexCache cache_;

  // Held while the index is synced, for who writes to it meanwhile waits for the disk, and shared
  // by those who must not.
  SharedMutex syncing_;
};

}  // namespace pinstripe
