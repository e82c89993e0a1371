// DatabaseStore: a Store that leaves everything to a database, LevelDB or RocksDB, values included.
// For comparison with LogStore, which is what drives are meant to use: the same engine, wire and
// promises, but each large value is written several times.
//
// The database is in the directory of the store, beside a superblock like any other store's. Keys
// and values of the database are those of LogStore's index (log_entry.h) for small records.
//
// Thread-safe; changes of one key one after the other, as Store says.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/directory.h"
#include "store/kind.h"
#include "store/store.h"

namespace pinstripe {

// What both databases can do. Keys are ordered as unsigned bytes.
class Database {
 public:
  struct Change {
    std::string key;
    const std::string* value = nullptr;  // null: deletes it
  };
  class Cursor {
   public:
    virtual ~Cursor() = default;
    virtual void Seek(std::string_view key) = 0;             // the first one at or above
    virtual void SeekForPrevious(std::string_view key) = 0;  // the last one below
    virtual bool valid() const = 0;
    virtual void Next() = 0;
    virtual void Previous() = 0;
    virtual std::string_view key() const = 0;
    virtual Status status() const = 0;
  };

  virtual ~Database() = default;
  virtual Result<std::string> Get(const std::string& key) = 0;  // ENOENT: there is none
  virtual Status Write(std::span<const Change> changes, bool sync) = 0;
  virtual std::unique_ptr<Cursor> NewCursor() = 0;
  virtual uint64_t ApproximateBytes() = 0;
};

// Failures: EBADMSG damaged, EIO.
Result<std::unique_ptr<Database>> OpenLevelDb(const std::string& path);
Result<std::unique_ptr<Database>> OpenRocksDb(const std::string& path);

class DatabaseStore final : public Store {
 public:
  struct Options {
    std::string path;
    std::string serial_number;    // of a new device: by chance when empty
    uint64_t capacity_bytes = 0;  // 0: what the file system has
    uint64_t reserve_bytes = uint64_t{256} << 20;
  };

  // `kind` is not kLog. Failures as of StoreDirectory::Open and CheckStoreKind.
  static Result<std::unique_ptr<DatabaseStore>> Open(StoreKind kind, const Options& options);

  const DeviceIdentity& identity() const { return directory_.identity(); }

  Result<StoredRecord> Get(std::string_view key, ValueRange range) override;
  Result<StoredHead> Head(std::string_view key) override;
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override;
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override;
  Status Delete(std::string_view key) override;
  Status Apply(std::span<const StoreChange> changes) override;
  Status Flush() override;
  StoreUsage Usage() override;
  StoreStarts Starts() override { return directory_.starts().starts(); }
  Status EndCleanly() override;

 private:
  DatabaseStore(StoreDirectory directory, Options options, std::unique_ptr<Database> database)
      : directory_(std::move(directory)),
        options_(std::move(options)),
        database_(std::move(database)) {}
  Status CheckSpace(uint64_t more, Room room);

  StoreDirectory directory_;
  const Options options_;
  const std::unique_ptr<Database> database_;
};

}  // namespace pinstripe
