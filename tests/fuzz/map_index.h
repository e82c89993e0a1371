// MapIndex: what a LogStore uses of a RocksDB, over a map that outlives it. Opening a RocksDB takes
// much longer than recovering a small store does; this takes nothing.
//
// As with RocksDB, an iterator sees what was there when it was made, a write is made wholly or not
// at all, and counts that cannot be added up are found to be damaged by whoever reads them.
//
// One thread at a time.

#pragma once

#include <rocksdb/merge_operator.h>
#include <rocksdb/utilities/stackable_db.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace pinstripe {

class MapIndex final : public rocksdb::StackableDB {
 public:
  // Null: damaged.
  using Entries = std::map<std::string, std::optional<std::string>, std::less<>>;

  // What stays when it is closed.
  struct Kept {
    std::shared_ptr<Entries> entries = std::make_shared<Entries>();
    uint64_t changes = 0;
  };

  // `kept` outlives it.
  MapIndex(Kept& kept, std::shared_ptr<rocksdb::MergeOperator> merge_operator);

  using StackableDB::CompactRange;
  using StackableDB::Delete;
  using StackableDB::Flush;
  using StackableDB::Get;
  using StackableDB::NewIterator;
  using StackableDB::Write;
  rocksdb::ColumnFamilyHandle* DefaultColumnFamily() const override { return nullptr; }
  rocksdb::SequenceNumber GetLatestSequenceNumber() const override { return kept_.changes; }
  rocksdb::Status Get(const rocksdb::ReadOptions& options, rocksdb::ColumnFamilyHandle* family,
                      const rocksdb::Slice& key, rocksdb::PinnableSlice* value) override;
  rocksdb::Status Write(const rocksdb::WriteOptions& options, rocksdb::WriteBatch* batch) override;
  rocksdb::Status Delete(const rocksdb::WriteOptions& options, rocksdb::ColumnFamilyHandle* family,
                         const rocksdb::Slice& key) override;
  rocksdb::Iterator* NewIterator(const rocksdb::ReadOptions& options,
                                 rocksdb::ColumnFamilyHandle* family) override;
  rocksdb::Status Flush(const rocksdb::FlushOptions& options,
                        rocksdb::ColumnFamilyHandle* family) override;
  rocksdb::Status CompactRange(const rocksdb::CompactRangeOptions& options,
                               rocksdb::ColumnFamilyHandle* family, const rocksdb::Slice* begin,
                               const rocksdb::Slice* end) override;

 private:
  Entries& ToChange();

  Kept& kept_;
  const std::shared_ptr<rocksdb::MergeOperator> merge_operator_;
};

}  // namespace pinstripe
