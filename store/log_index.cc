#include "store/log_index.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <utility>

#include "base/coding.h"
#include "base/try.h"
#include "store/index_files.h"

namespace pinstripe {
namespace {

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

Failed FailWithIndex(std::string_view what, const rocksdb::Status& status) {
  const int code = status.IsNoSpace()      ? ENOSPC
                   : status.IsCorruption() ? EBADMSG
                   : status.IsNotFound()   ? ENOENT
                                           : EIO;
  return Fail(code, "{}: {}", what, status.ToString());
}

Status FailedOrDone(std::string_view what, const rocksdb::Status& status) {
  if (status.ok()) return {};
  return FailWithIndex(what, status);
}

// Adds up counts, so that every change carries its own difference and none has to be read first.
// Differences are taken modulo 2^64: adding -1 subtracts.
class AddCounts final : public rocksdb::AssociativeMergeOperator {
 public:
  bool Merge(const rocksdb::Slice&, const rocksdb::Slice* existing, const rocksdb::Slice& operand,
             std::string* sum, rocksdb::Logger*) const override {
    const Result<uint64_t> before = existing == nullptr ? 0 : DecodeCount(View(*existing));
    const Result<uint64_t> more = DecodeCount(View(operand));
    if (!before.has_value() || !more.has_value()) return false;  // RocksDB calls it corruption
    *sum = EncodeCount(*before + *more);
    return true;
  }
  const char* Name() const override { return "pinstripe.AddCounts"; }
};

rocksdb::Options IndexOptions(const std::shared_ptr<rocksdb::Cache>& cache,
                              const std::shared_ptr<rocksdb::WriteBufferManager>& buffers) {
  rocksdb::Options options;
  options.merge_operator = std::make_shared<AddCounts>();
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 8 << 20;
  options.max_write_buffer_number = 3;
  // Most puts are of new keys, which are looked for in all that is in memory: 16 bits for each key.
  options.memtable_whole_key_filtering = true;
  options.memtable_prefix_bloom_size_ratio = 0.02;
  // Places come in their order, and records often: the one before of their kind shows where they
  // go.
  options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1));
  options.write_buffer_manager = buffers;
  options.max_total_wal_size = 64 << 20;
  options.max_open_files = 256;
  options.target_file_size_base = 16 << 20;
  options.max_bytes_for_level_base = 64 << 20;
  // The levels above the last one hold what will replace or delete something in it: at most a
  // sixteenth of it. Tables full of deletions, which are small and free much, are pushed down at
  // once.
  options.level_compaction_dynamic_level_bytes = true;
  options.max_bytes_for_level_multiplier = 16;
  options.table_properties_collector_factories.push_back(
      rocksdb::NewCompactOnDeletionCollectorFactory(/*window=*/1024, /*deletions=*/256));
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1 << 20;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;  // so that the cache is the bound it is meant to be
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.format_version = 5;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// The keys of one segment's places: [begin, end).
std::string PlacesBegin(uint32_t segment) { return PlaceIndexKey({segment, 0}); }
std::string PlacesEnd(uint32_t segment) {
  return segment == UINT32_MAX ? "M" : PlaceIndexKey({segment + 1, 0});
}

}  // namespace

// ------------------------------------------------------------------------------------------
// changes

IndexBatch::IndexBatch() : batch_(std::make_unique<rocksdb::WriteBatch>()) {}
IndexBatch::~IndexBatch() = default;
IndexBatch::IndexBatch(IndexBatch&&) noexcept = default;

void IndexBatch::PutRecord(std::string_view key, std::string record, Remember remember) {
  batch_->Put(RecordIndexKey(key), record);
  changed_.push_back({key, remember == Remember::kYes ? std::move(record) : std::string()});
}

void IndexBatch::DeleteRecord(std::string_view key) {
  batch_->Delete(RecordIndexKey(key));
  changed_.push_back({key, {}});
}

void IndexBatch::PutPlace(LogLocation location, const PlaceRecord& place) {
  batch_->Put(PlaceIndexKey(location), EncodePlaceRecord(location, place));
}

void IndexBatch::DeletePlace(LogLocation location) { batch_->Delete(PlaceIndexKey(location)); }

void IndexBatch::PutPrevious(LogLocation location, std::string_view record) {
  batch_->Put(PreviousIndexKey(location), rocksdb::Slice(record.data(), record.size()));
}

void IndexBatch::DeletePrevious(LogLocation location) {
  batch_->Delete(PreviousIndexKey(location));
}

void IndexBatch::AddToSegment(uint32_t segment, uint64_t bytes) {
  batch_->Merge(SegmentIndexKey(segment), EncodeCount(bytes));
}

void IndexBatch::AddToInlineBytes(uint64_t bytes) {
  batch_->Merge(InlineBytesIndexKey(), EncodeCount(bytes));
}

void IndexBatch::SetDurable(LogLocation mark) {
  batch_->Put(DurableIndexKey(), EncodeDurable(mark));
}

// ------------------------------------------------------------------------------------------
// scans

// From `first` up to but without `end`.
struct IndexScan::Parts {
  Parts(rocksdb::DB& db, std::string first_key, std::string end_key)
      : first(std::move(first_key)), end(std::move(end_key)), first_slice(first), end_slice(end) {
    rocksdb::ReadOptions options;
    options.iterate_lower_bound = &first_slice;
    options.iterate_upper_bound = &end_slice;
    iterator.reset(db.NewIterator(options));
  }
  const std::string first;
  const std::string end;
  const rocksdb::Slice first_slice;
  const rocksdb::Slice end_slice;
  std::unique_ptr<rocksdb::Iterator> iterator;
};

IndexScan::IndexScan(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
IndexScan::~IndexScan() = default;
IndexScan::IndexScan(IndexScan&&) noexcept = default;

void IndexScan::SeekToFirst() { parts_->iterator->SeekToFirst(); }
void IndexScan::SeekToLast() { parts_->iterator->SeekToLast(); }
void IndexScan::Seek(LogLocation location) { parts_->iterator->Seek(PlaceIndexKey(location)); }
void IndexScan::SeekForPrev(LogLocation location) {
  parts_->iterator->SeekForPrev(PlaceIndexKey(location));
}
void IndexScan::Next() { parts_->iterator->Next(); }
void IndexScan::Prev() { parts_->iterator->Prev(); }
bool IndexScan::Valid() const { return parts_->iterator->Valid(); }
Status IndexScan::status() const {
  return FailedOrDone("read the index", parts_->iterator->status());
}

std::string_view IndexScan::key() const { return View(parts_->iterator->key()).substr(1); }
std::string_view IndexScan::record() const { return View(parts_->iterator->value()); }

Result<LogLocation> IndexScan::location() const {
  return DecodePlaceIndexKey(View(parts_->iterator->key()));
}

Result<IndexPlace> IndexScan::place() const {
  const LogLocation at = TRY(location());
  PlaceRecord record = TRY(DecodePlaceRecord(at, View(parts_->iterator->value())));
  return IndexPlace{at, std::move(record)};
}

IndexScan LogIndex::Scan(std::string first, std::string end) const {
  return IndexScan(std::make_unique<IndexScan::Parts>(*db_, std::move(first), std::move(end)));
}

IndexScan LogIndex::Records() const { return Scan("K", "L"); }

std::optional<IndexScan> LogIndex::Records(const KeyRange& range) const {
  // The next key after k, among all there can be, is k and a zero byte.
  const auto after = [](std::string key, bool one_more) { return one_more ? key + '\0' : key; };
  std::string first = after(RecordIndexKey(range.first), !range.first_included);
  std::string end = range.last ? after(RecordIndexKey(*range.last), range.last_included) : "L";
  if (first >= end) return std::nullopt;
  return Scan(std::move(first), std::move(end));
}

IndexScan LogIndex::Places(LogLocation from) const { return Scan(PlaceIndexKey(from), "M"); }

IndexScan LogIndex::PlacesOf(uint32_t segment) const {
  return Scan(PlacesBegin(segment), PlacesEnd(segment));
}

// ------------------------------------------------------------------------------------------
// opening

LogIndex::LogIndex(StoreResources& resources)
    : resources_(resources), cache_(resources.index_cache()) {}

LogIndex::~LogIndex() = default;

Status LogIndex::Open(const Options& options) {
  if (options.open) {
    db_.reset(options.open(std::make_shared<AddCounts>()));
  } else {
    TRY(OpenRocksDb(options));
  }
  // RocksDB takes a damaged record in its write-ahead log for the end of that, as after a power
  // loss.
  const uint64_t there = sequence();
  if (there >= options.least_sequence) return {};
  return Fail(EBADMSG, "the index {} is damaged: it has lost {} changes that were durable",
              options.path, options.least_sequence - there);
}

Status LogIndex::OpenRocksDb(const Options& asked) {
  rocksdb::Options options = IndexOptions(resources_.index_cache(), resources_.write_buffers());
  options.env = asked.env != nullptr ? asked.env : IndexFiles::Env();
  options.create_if_missing = asked.may_be_new && !asked.read_only;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = asked.read_only
                                     ? rocksdb::DB::OpenForReadOnly(options, asked.path, &db)
                                     : rocksdb::DB::Open(options, asked.path, &db);
  const std::string what = fmt::format("cannot open the index {}", asked.path);
  if (opened.IsInvalidArgument() || opened.IsPathNotFound()) {  // what must be there is not
    return Fail(EBADMSG, "{}: {}", what, opened.ToString());
  }
  if (!opened.ok()) return FailWithIndex(what, opened);
  db_.reset(db);
  return {};
}

// ------------------------------------------------------------------------------------------
// reading

uint64_t LogIndex::sequence() const { return db_->GetLatestSequenceNumber(); }

Result<std::string> LogIndex::Load(std::string_view key) const {
  std::string bytes;
  const rocksdb::Status got = db_->Get({}, RecordIndexKey(key), &bytes);
  if (got.ok()) return bytes;
  if (got.IsNotFound()) return NoSuchKey();
  return FailWithIndex("read the index", got);
}

Result<std::string> LogIndex::Find(std::string_view key, Wait wait) {
  if (auto remembered = cache_.Find(key)) return *std::move(remembered);
  const uint64_t ticket = cache_.Begin(key);
  std::string bytes;
  const auto ask = [&] { return db_->Get({}, RecordIndexKey(key), &bytes); };
  rocksdb::Status got;
  if (wait == Wait::kMayNot) {
    if (IndexFiles::IsOpening()) return WouldWait();
    const IndexFiles::NoWait no_wait;
    got = ask();
  } else {
    const IndexFiles::Wait may_wait;
    got = ask();
  }
  if (got.IsNotFound()) return NoSuchKey();
  if (!got.ok() && wait == Wait::kMayNot) return WouldWait();  // who may wait finds out what it is
  if (!got.ok()) return FailWithIndex("read the index", got);
  cache_.Remember(key, bytes, ticket);
  return bytes;
}

Result<bool> LogIndex::HasPlace(LogLocation location) const {
  std::string unused;
  const rocksdb::Status got = db_->Get({}, PlaceIndexKey(location), &unused);
  if (got.IsNotFound()) return false;
  if (!got.ok()) return FailWithIndex("read the index", got);
  return true;
}

Result<std::optional<std::string>> LogIndex::LoadPrevious(LogLocation location) const {
  std::string bytes;
  const rocksdb::Status got = db_->Get({}, PreviousIndexKey(location), &bytes);
  if (got.IsNotFound()) return std::nullopt;
  if (!got.ok()) return FailWithIndex("read the index", got);
  return bytes;
}

Result<LogLocation> LogIndex::LoadDurable() const {
  std::string bytes;
  const rocksdb::Status got = db_->Get({}, DurableIndexKey(), &bytes);
  if (got.IsNotFound()) return LogLocation{};
  if (!got.ok()) return FailWithIndex("read the index", got);
  return DecodeDurable(bytes);
}

Result<uint64_t> LogIndex::LoadCount(const std::string& index_key) const {
  std::string bytes;
  const rocksdb::Status got = db_->Get({}, index_key, &bytes);
  if (got.IsNotFound()) return 0;
  if (!got.ok()) return FailWithIndex("read the index", got);
  return DecodeCount(bytes);
}

Result<uint64_t> LogIndex::LoadSegmentBytes(uint32_t segment) const {
  return LoadCount(SegmentIndexKey(segment));
}

Result<uint64_t> LogIndex::LoadInlineBytes() const { return LoadCount(InlineBytesIndexKey()); }

Result<std::map<uint32_t, uint64_t>> LogIndex::LoadSegmentBytes() const {
  std::map<uint32_t, uint64_t> bytes;
  IndexScan scan = Scan("S", "T");
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    Reader key(scan.key());
    const uint32_t number = key.U32();
    TRY(key.Finish("a segment's key in the index"));
    bytes[number] = TRY(DecodeCount(scan.record()));
  }
  TRY(scan.status());
  return bytes;
}

Result<uint64_t> LogIndex::EndOfLastEntry(uint32_t segment) const {
  IndexScan scan = PlacesOf(segment);
  scan.SeekToLast();
  TRY(scan.status());
  if (!scan.Valid()) return 0;
  return TRY(scan.place()).end();
}

// ------------------------------------------------------------------------------------------
// writing

Status LogIndex::Write(IndexBatch& batch, Wait wait) {
  for (const auto& changed : batch.changed_) cache_.BeforeChange(changed.key);
  rocksdb::WriteOptions options;
  options.no_slowdown = wait == Wait::kMayNot;
  const rocksdb::Status written = db_->Write(options, batch.batch_.get());
  for (const auto& [key, remembered] : batch.changed_) {
    cache_.AfterChange(key, written.ok() ? remembered : std::string_view());
  }
  if (written.IsIncomplete() && options.no_slowdown) return WouldWait();  // not even begun
  return FailedOrDone("write the index", written);
}

Status LogIndex::WriteMark(IndexBatch& batch, bool sync) {
  rocksdb::WriteOptions options;
  options.sync = sync;
  const auto write = [&] {
    return FailedOrDone("sync the index", db_->Write(options, batch.batch_.get()));
  };
  if (!sync) return write();
  const WriterLock lock(syncing_);
  return write();
}

Status LogIndex::ForgetPrevious() {
  IndexScan scan = Scan("P", "Q");
  rocksdb::WriteBatch batch;
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    batch.Delete(scan.parts_->iterator->key());
  }
  TRY(scan.status());
  return FailedOrDone("write the index", db_->Write({}, &batch));
}

Status LogIndex::ForgetSegment(uint32_t segment) {
  return FailedOrDone("write the index", db_->Delete({}, SegmentIndexKey(segment)));
}

Status LogIndex::PushDown() { return FailedOrDone("write the index", db_->Flush({})); }

Status LogIndex::CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) {
  const std::string first = RecordIndexKey(range.first);
  const std::string last = range.last ? RecordIndexKey(*range.last) : "L";
  if (last < first) return {};
  const rocksdb::Slice first_slice(first);
  const rocksdb::Slice last_slice(last);
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;  // the index's own go on
  options.canceled = &cancelled;
  const rocksdb::Status compacted = db_->CompactRange(options, &first_slice, &last_slice);
  if (!compacted.ok() && cancelled) return Fail(ECANCELED, "compacting was cancelled");
  return FailedOrDone("compact the index", compacted);
}

Status LogIndex::VerifyTables() {
  const rocksdb::Status verified = db_->VerifyChecksum();
  if (verified.IsCorruption()) return Fail(EBADMSG, "{}", verified.ToString());
  return FailedOrDone("read the index", verified);
}

}  // namespace pinstripe
