// RocksDB as a Database.

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "base/try.h"
#include "store/database_store.h"

namespace pinstripe {
namespace {

Status StatusOf(const rocksdb::Status& status) {
  if (status.ok()) return {};
  const int code = status.IsCorruption() ? EBADMSG
                   : status.IsNotFound() ? ENOENT
                   : status.IsNoSpace()  ? ENOSPC
                                         : EIO;
  return Fail(code, "RocksDB: {}", status.ToString());
}

rocksdb::Slice SliceOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

class RocksDbCursor final : public Database::Cursor {
 public:
  explicit RocksDbCursor(rocksdb::Iterator* iterator) : iterator_(iterator) {}
  void Seek(std::string_view key) override { iterator_->Seek(SliceOf(key)); }
  void SeekForPrevious(std::string_view key) override {
    iterator_->Seek(SliceOf(key));
    iterator_->Valid() ? iterator_->Prev() : iterator_->SeekToLast();
  }
  bool valid() const override { return iterator_->Valid(); }
  void Next() override { iterator_->Next(); }
  void Previous() override { iterator_->Prev(); }
  std::string_view key() const override {
    return {iterator_->key().data(), iterator_->key().size()};
  }
  Status status() const override { return StatusOf(iterator_->status()); }

 private:
  const std::unique_ptr<rocksdb::Iterator> iterator_;
};

class RocksDbDatabase final : public Database {
 public:
  explicit RocksDbDatabase(std::unique_ptr<rocksdb::DB> database)
      : database_(std::move(database)) {}

  Result<std::string> Get(const std::string& key) override {
    std::string value;
    TRY(StatusOf(database_->Get({}, key, &value)));
    return value;
  }
  Status Write(std::span<const Change> changes, bool sync) override {
    rocksdb::WriteBatch batch;
    for (const Change& change : changes) {
      change.value == nullptr ? batch.Delete(change.key) : batch.Put(change.key, *change.value);
    }
    rocksdb::WriteOptions options;
    options.sync = sync;
    return StatusOf(database_->Write(options, &batch));
  }
  std::unique_ptr<Cursor> NewCursor() override {
    return std::make_unique<RocksDbCursor>(database_->NewIterator({}));
  }
  uint64_t ApproximateBytes() override {
    uint64_t bytes = 0;
    uint64_t in_memory = 0;
    database_->GetIntProperty("rocksdb.total-sst-files-size", &bytes);
    database_->GetIntProperty("rocksdb.cur-size-all-mem-tables", &in_memory);
    return bytes + in_memory;
  }

 private:
  const std::unique_ptr<rocksdb::DB> database_;
};

}  // namespace

Result<std::unique_ptr<Database>> OpenRocksDb(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 64 << 20;
  options.max_write_buffer_number = 4;
  options.max_background_jobs = 4;
  options.level_compaction_dynamic_level_bytes = true;
  options.info_log_level = rocksdb::WARN_LEVEL;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(64 << 20);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::DB* database = nullptr;
  TRY_CONTEXT(StatusOf(rocksdb::DB::Open(options, path, &database)), "open {}", path);
  return std::make_unique<RocksDbDatabase>(std::unique_ptr<rocksdb::DB>(database));
}

}  // namespace pinstripe
