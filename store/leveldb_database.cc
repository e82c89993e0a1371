// LevelDB as a Database.

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include "base/try.h"
#include "store/database_store.h"

namespace pinstripe {
namespace {

Status StatusOf(const leveldb::Status& status) {
  if (status.ok()) return {};
  return Fail(status.IsCorruption() ? EBADMSG
              : status.IsNotFound() ? ENOENT
                                    : EIO,
              "LevelDB: {}", status.ToString());
}

leveldb::Slice SliceOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

class LevelDbCursor final : public Database::Cursor {
 public:
  explicit LevelDbCursor(leveldb::Iterator* iterator) : iterator_(iterator) {}
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
  const std::unique_ptr<leveldb::Iterator> iterator_;
};

class LevelDbDatabase final : public Database {
 public:
  explicit LevelDbDatabase(const std::string& path)
      : cache_(leveldb::NewLRUCache(64 << 20)),
        filter_(leveldb::NewBloomFilterPolicy(10)),
        status_(Open(path)) {}

  const Status& status() const { return status_; }

  Result<std::string> Get(const std::string& key) override {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    std::string value;
    TRY(StatusOf(database_->Get(options, key, &value)));
    return value;
  }
  Status Write(std::span<const Change> changes, bool sync) override {
    leveldb::WriteBatch batch;
    for (const Change& change : changes) {
      change.value == nullptr ? batch.Delete(change.key) : batch.Put(change.key, *change.value);
    }
    leveldb::WriteOptions options;
    options.sync = sync;
    return StatusOf(database_->Write(options, &batch));
  }
  std::unique_ptr<Cursor> NewCursor() override {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    options.fill_cache = false;
    return std::make_unique<LevelDbCursor>(database_->NewIterator(options));
  }
  uint64_t ApproximateBytes() override {
    const leveldb::Range all("K", "L");
    uint64_t bytes = 0;
    database_->GetApproximateSizes(&all, 1, &bytes);
    return bytes;
  }

 private:
  Status Open(const std::string& path) {
    leveldb::Options options;
    options.create_if_missing = true;
    options.paranoid_checks = true;
    options.compression = leveldb::kNoCompression;
    options.write_buffer_size = 64 << 20;
    options.block_cache = cache_.get();
    options.filter_policy = filter_.get();
    leveldb::DB* database = nullptr;
    TRY(StatusOf(leveldb::DB::Open(options, path, &database)));
    database_.reset(database);
    return {};
  }

  const std::unique_ptr<leveldb::Cache> cache_;
  const std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::DB> database_;
  const Status status_;
};

}  // namespace

Result<std::unique_ptr<Database>> OpenLevelDb(const std::string& path) {
  auto database = std::make_unique<LevelDbDatabase>(path);
  TRY_CONTEXT(Status(database->status()), "open {}", path);
  return database;
}

}  // namespace pinstripe
