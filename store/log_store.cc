#include "store/log_store.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/try.h"
#include "store/index_files.h"
#include "store/space.h"

namespace pinstripe {
namespace {

constexpr uint64_t kUnsyncedBytesToFlush = uint64_t{256} << 20;
constexpr uint64_t kDeadBytesToFlush = uint64_t{64} << 20;
constexpr uint64_t kInlineDeadBytes = uint64_t{32} << 20;  // and a sixteenth of what is there
constexpr uint64_t kMoveAtOnce = uint64_t{32} << 20;       // by compaction, between two flushes
constexpr uint64_t kLeastSlack = 16;  // a segment's live bytes by its slack, to be compacted
constexpr size_t kMaxHeaderBytes = kMaxKeyBytes + kMaxVersionBytes + kMaxTagBytes + 64;

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

Failed FailWithIndex(std::string_view what, const rocksdb::Status& status) {
  const int code = status.IsNoSpace()      ? ENOSPC
                   : status.IsCorruption() ? EBADMSG
                   : status.IsNotFound()   ? ENOENT
                                           : EIO;
  return Fail(code, "{}: {}", what, status.ToString());
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

// All index keys of one kind, from `first` up to but without `end`.
class IndexScan {
 public:
  IndexScan(rocksdb::DB& index, std::string first, std::string end)
      : first_(std::move(first)), end_(std::move(end)), first_slice_(first_), end_slice_(end_) {
    rocksdb::ReadOptions options;
    options.iterate_lower_bound = &first_slice_;
    options.iterate_upper_bound = &end_slice_;
    iterator_.reset(index.NewIterator(options));
  }
  rocksdb::Iterator& operator*() { return *iterator_; }
  rocksdb::Iterator* operator->() { return iterator_.get(); }
  Status status() const {
    if (iterator_->status().ok()) return {};
    return FailWithIndex("read the index", iterator_->status());
  }

 private:
  const std::string first_;
  const std::string end_;
  const rocksdb::Slice first_slice_;
  const rocksdb::Slice end_slice_;
  std::unique_ptr<rocksdb::Iterator> iterator_;
};

// The index keys of a range's records: [first, end).
std::pair<std::string, std::string> RecordsOf(const KeyRange& range) {
  // The next key after k, among all there can be, is k and a zero byte.
  const auto after = [](std::string key, bool one_more) { return one_more ? key + '\0' : key; };
  return {after(RecordIndexKey(range.first), !range.first_included),
          range.last ? after(RecordIndexKey(*range.last), range.last_included) : "L"};
}

// The keys of one segment's places: [begin, end).
std::string PlacesBegin(uint32_t segment) { return PlaceIndexKey({segment, 0}); }
std::string PlacesEnd(uint32_t segment) {
  return segment == UINT32_MAX ? "M" : PlaceIndexKey({segment + 1, 0});
}

// The place at which a scan stands.
struct Place {
  LogLocation location;
  PlaceRecord record;
  uint64_t end() const { return location.offset + record.entry_bytes; }
};
Result<Place> PlaceAt(const rocksdb::Iterator& scan) {
  const LogLocation location = TRY(DecodePlaceIndexKey(View(scan.key())));
  PlaceRecord record = TRY(DecodePlaceRecord(location, View(scan.value())));
  return Place{location, std::move(record)};
}

std::string Where(const LogLocation& location) {
  return fmt::format("segment {:08x} at {}", location.segment, location.offset);
}

// A record that cannot be read because of what is on the disk, or is no more: not a disk that fails
// now.
bool IsDamage(const Status& failure) {
  return failure.code() == EBADMSG || failure.code() == ENOENT;
}

// For messages.
std::string ShortKey(std::string_view key) {
  return Hex(AsBytes(key.substr(0, 48))) + (key.size() > 48 ? "..." : "");
}

Failed NoSuchKey() { return Fail(ENOENT, "no such key"); }

iovec Piece(const void* data, size_t size) { return {const_cast<void*>(data), size}; }

uint64_t InlineFootprint(std::string_view key, size_t record_bytes) {
  return 1 + key.size() + record_bytes;
}

}  // namespace

struct StoreResources::Parts {
  const std::shared_ptr<rocksdb::Cache> cache;
  const std::shared_ptr<rocksdb::WriteBufferManager> buffers;
  std::mutex mutex;
  // By file system, as long as there are stores on it; guarded by mutex.
  std::map<dev_t, std::weak_ptr<CommitGroup>> groups;
};

StoreResources::StoreResources(uint64_t block_cache_bytes, uint64_t write_buffer_bytes)
    : parts_(new Parts{rocksdb::NewLRUCache(block_cache_bytes),
                       std::make_shared<rocksdb::WriteBufferManager>(write_buffer_bytes)}) {}

StoreResources::~StoreResources() = default;

// One write to the index, and what it means for the log.
struct LogStore::Change {
  struct Entry {
    LogLocation location;
    uint64_t bytes = 0;
  };
  rocksdb::WriteBatch batch;
  std::vector<Entry> added;
  std::vector<Entry> removed;
  Written written;                     // where they were written to
  std::vector<LogLocation> replacing;  // those of `added` that have a previous record
  struct Record {
    std::string_view key;
    std::string after;  // what is to be remembered of it
  };
  std::vector<Record> records;
  uint64_t inline_added = 0;
  uint64_t inline_removed = 0;
};

// A record that will be put.
struct LogStore::Planned {
  std::string_view key;
  StoredHead head;
  Bytes value;
  uint32_t value_crc = 0;
  std::string header;              // of its entry in the log; empty: it is in the index
  std::optional<std::string> old;  // the record that is there
  uint64_t entry_bytes() const { return header.empty() ? 0 : header.size() + value.size(); }
};

LogStore::LogStore(StoreDirectory directory, const LogStoreOptions& options,
                   StoreResources& resources)
    : directory_(std::move(directory)),
      options_(options),
      files_(*options_.calls, directory_.segments_path()),
      index_cache_(resources.parts_->cache) {}

LogStore::~LogStore() {
  if (group_ == nullptr) return;
  Status flushed = ended_ || !opened_ ? Status() : Flush();
  group_->Leave(*this);
  if (!opened_) return;
  if (flushed.ok()) flushed = ReturnSpace();
  if (flushed.ok()) flushed = files_.Trim(cursor_.segment);
  if (!flushed.ok()) {
    Log(LogLevel::kError, "store not flushed at its end",
        {{"path", directory_.path()}, {"why", flushed}});
  }
}

// ------------------------------------------------------------------------------------------
// opening

// RocksDB puts all that it finds in its write-ahead log into a table that it syncs: what was only
// in the kernel is durable then.
Status LogStore::OpenIndex(StoreResources& resources, bool read_only) {
  if (options_.open_index) {
    index_.reset(options_.open_index(std::make_shared<AddCounts>()));
  } else {
    TRY(OpenRocksDb(resources, read_only));
  }
  // RocksDB takes a damaged record in its write-ahead log for the end of that, as after a power
  // loss.
  const uint64_t there = index_->GetLatestSequenceNumber();
  const uint64_t durable = TRY(directory_.ReadMark());
  if (there >= durable) return {};
  return Fail(EBADMSG, "the index {} is damaged: it has lost {} changes that were durable",
              directory_.index_path(), durable - there);
}

Status LogStore::OpenRocksDb(StoreResources& resources, bool read_only) {
  rocksdb::Options options = IndexOptions(resources.parts_->cache, resources.parts_->buffers);
  options.env = options_.index_env != nullptr ? options_.index_env : IndexFiles::Env();
  // A store that has a segment had an index. To make a new one then would be to forget every
  // record.
  options.create_if_missing = !read_only && TRY(files_.List()).empty();
  const std::string path = directory_.index_path();
  rocksdb::DB* index = nullptr;
  const rocksdb::Status opened = read_only ? rocksdb::DB::OpenForReadOnly(options, path, &index)
                                           : rocksdb::DB::Open(options, path, &index);
  const std::string what = fmt::format("cannot open the index {}", path);
  if (opened.IsInvalidArgument() || opened.IsPathNotFound()) {  // what must be there is not
    return Fail(EBADMSG, "{}: {}", what, opened.ToString());
  }
  if (!opened.ok()) return FailWithIndex(what, opened);
  index_.reset(index);
  return {};
}

Result<std::unique_ptr<LogStore>> LogStore::Open(const LogStoreOptions& options,
                                                 StoreResources& resources) {
  auto opened = OpenAndRecover(options, resources);
  if (opened.has_value() || opened.error().code() != EBADMSG) return opened;
  return Fail(
      EBADMSG,
      "{}. This drive is lost: give it an empty directory, on a sound disk, and rebuild it; "
      "docs/operations.md, \"A drive whose store is damaged\", says more",
      opened.error().message());
}

Result<std::unique_ptr<LogStore>> LogStore::OpenAndRecover(const LogStoreOptions& options,
                                                           StoreResources& resources) {
  StoreDirectory directory = TRY(StoreDirectory::Open(options.path, options.serial_number));
  std::unique_ptr<LogStore> store(new LogStore(std::move(directory), options, resources));
  TRY(store->JoinGroup(resources));
  TRY(store->OpenIndex(resources, /*read_only=*/false));
  TRY_CONTEXT(store->Recover(), "open the store in {}", options.path);
  // What a kill left in the kernel's hands becomes durable now, so that the next power loss has
  // less to take and the next opening less to verify.
  TRY(store->Flush());
  TRY(store->BeginStart());
  store->opened_ = true;
  return store;
}

// What power loss has torn was not durable, and may have been answered. A kill tears nothing.
Status LogStore::BeginStart() {
  if (torn_entries_ == 0) return directory_.starts().Begin("");
  return directory_.starts().Begin(
      fmt::format("values that it had taken are not on its disk: {}", torn_entries_));
}

Status LogStore::Recover() {
  const LogLocation durable = TRY(LoadDurable());
  from_disk_ = directory_.starts().kernel_may_show_more();
  if (from_disk_) TRY(SettleLog(durable));
  TRY(UndoTornEntries(durable));
  from_disk_ = false;
  files_.EndReadingFromDisk();
  TRY(ForgetPrevious());
  TRY(LoadCounts());
  TRY(FindCursor(durable));
  TRY(CutTails(durable));
  TRY(ReturnForgottenSpace());
  Written written;
  for (const uint32_t number : TRY(files_.List())) {
    if (number < durable.segment) continue;
    written.emplace(number, TRY(files_.Hold(number)));
  }
  // From now on a round of others may take it along.
  const std::lock_guard lock(mutex_);
  durable_ = durable;
  dirty_ = std::move(written);
  index_dirty_ = true;
  return {};
}

// Before anything is written: of what the file system loses the group hears from now on.
Status LogStore::JoinGroup(StoreResources& resources) {
  const std::string& path = directory_.path();
  struct stat about;
  if (stat(path.c_str(), &about) != 0) return Fail(errno, "{}: {}", path, ErrnoText(errno));
  {
    const std::lock_guard lock(resources.parts_->mutex);
    std::weak_ptr<CommitGroup>& group = resources.parts_->groups[about.st_dev];
    group_ = group.lock();
    if (group_ == nullptr) group = group_ = TRY(CommitGroup::Open(*options_.calls, path));
  }
  group_->Join(*this);
  // Perhaps of this store.
  if (group_->had_failed() && directory_.starts().kernel_may_show_more()) {
    directory_.starts().NoteFailedSync();
  }
  return {};
}

Result<LogLocation> LogStore::LoadDurable() const {
  std::string bytes;
  const rocksdb::Status got = index_->Get({}, DurableIndexKey(), &bytes);
  if (got.IsNotFound()) return LogLocation{};
  if (!got.ok()) return FailWithIndex("read the index", got);
  return DecodeDurable(bytes);
}

Result<uint64_t> LogStore::LoadCount(const std::string& index_key) const {
  std::string bytes;
  const rocksdb::Status got = index_->Get({}, index_key, &bytes);
  if (got.IsNotFound()) return 0;
  if (!got.ok()) return FailWithIndex("read the index", got);
  return DecodeCount(bytes);
}

Status LogStore::LoadCounts() {
  for (const uint32_t segment : TRY(files_.List())) segments_[segment];
  IndexScan scan(*index_, "S", "T");
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
    Reader key(View(scan->key()).substr(1));
    const uint32_t number = key.U32();
    TRY(key.Finish("a segment's key in the index"));
    const uint64_t bytes = TRY(DecodeCount(View(scan->value())));
    if (bytes > 0 || segments_.contains(number)) segments_[number].live_bytes = bytes;
    live_bytes_ += bytes;
  }
  TRY(scan.status());
  inline_bytes_ = TRY(LoadCount(InlineBytesIndexKey()));
  return {};
}

// After this the disk has what the kernel shows of the log, or will say that it has not. A sync
// that fails may tell of what failed before this process began, but it may also be the end of it:
// only one that succeeds has the disk put away what it was given.
Status LogStore::SettleLog(LogLocation durable) {
  for (const uint32_t segment : TRY(files_.List())) {
    if (segment < durable.segment) continue;
    const SegmentFiles::Held held = TRY(files_.Hold(segment));
    const Status synced = files_.Sync(segment, held);
    if (synced.ok()) continue;
    directory_.starts().NoteFailedSync();
    Log(LogLevel::kWarn, "store's files have lost something",
        {{"store", directory_.path()}, {"why", synced}});
    TRY(files_.Sync(segment, held));
  }
  return {};
}

// Newest first: what an entry has replaced may be torn as well.
Status LogStore::UndoTornEntries(LogLocation durable) {
  IndexScan scan(*index_, PlaceIndexKey(durable), "M");
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
    const auto [location, place] = TRY(PlaceAt(*scan));
    const Result<std::string> bytes = LoadIndexRecord(place.key);
    if (!bytes.has_value()) {
      if (bytes.error().code() != ENOENT) return bytes.error();
      return Fail(EBADMSG,
                  "the index keeps {} for a record that is not there; see pinstriped --check",
                  Where(location));
    }
    const IndexRecord record = TRY(DecodeIndexRecord(place.key, *bytes));
    const auto* logged = std::get_if<LoggedValue>(&record.place);
    if (logged == nullptr || logged->location != location ||
        EntryBytes(record, *logged) != place.entry_bytes) {
      return Fail(EBADMSG, "the index keeps {} for another record; see pinstriped --check",
                  Where(location));
    }
    const Result<StoredRecord> read = ReadRecord(place.key, record, {});
    if (read.has_value()) continue;
    if (!IsDamage(read.error())) return read.error();
    TRY(UndoTornEntry(location, place, durable));
  }
  return scan.status();
}

Status LogStore::UndoTornEntry(LogLocation location, const PlaceRecord& place,
                               LogLocation durable) {
  const std::string previous = TRY(LastRecordBefore(location, place.key, durable));
  Log(LogLevel::kWarn, "entry is not on the disk, undone",
      {{"store", directory_.path()},
       {"where", Where(location)},
       {"key", ShortKey(place.key)},
       {"previous", previous.empty() ? "none" : "restored"}});
  rocksdb::WriteBatch batch;
  batch.Delete(PlaceIndexKey(location));
  batch.Merge(SegmentIndexKey(location.segment), EncodeCount(-place.entry_bytes));
  if (previous.empty()) {
    batch.Delete(RecordIndexKey(place.key));
  } else {
    batch.Put(RecordIndexKey(place.key), previous);
    const IndexRecord record = TRY(DecodeIndexRecord(place.key, previous));
    if (const auto* logged = std::get_if<LoggedValue>(&record.place)) {
      const uint64_t bytes = EntryBytes(record, *logged);
      batch.Put(PlaceIndexKey(logged->location),
                EncodePlaceRecord(logged->location, {bytes, place.key}));
      batch.Merge(SegmentIndexKey(logged->location.segment), EncodeCount(bytes));
    } else {
      batch.Merge(InlineBytesIndexKey(), EncodeCount(InlineFootprint(place.key, previous.size())));
    }
  }
  const rocksdb::Status undone = index_->Write({}, &batch);
  if (!undone.ok()) return FailWithIndex("write the index", undone);
  ++torn_entries_;
  return {};
}

// The newest record that was there before a torn entry and is whole; empty when there was none. One
// below the mark is taken as it is: if it is damaged, that is to be told.
Result<std::string> LogStore::LastRecordBefore(LogLocation location, const std::string& key,
                                               LogLocation durable) {
  while (true) {
    std::string bytes;
    const rocksdb::Status got = index_->Get({}, PreviousIndexKey(location), &bytes);
    if (got.IsNotFound()) return std::string();
    if (!got.ok()) return FailWithIndex("read the index", got);
    const IndexRecord record = TRY(DecodeIndexRecord(key, bytes));
    const auto* logged = std::get_if<LoggedValue>(&record.place);
    if (logged == nullptr || logged->location < durable) return bytes;
    const Result<StoredRecord> read = ReadRecord(key, record, {});
    if (read.has_value()) return bytes;
    if (!IsDamage(read.error())) return Failed(read.error());
    location = logged->location;
  }
}

// Everything is decided now: Recover() ends with a flush.
Status LogStore::ForgetPrevious() {
  IndexScan scan(*index_, "P", "Q");
  rocksdb::WriteBatch batch;
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) batch.Delete(scan->key());
  TRY(scan.status());
  const rocksdb::Status forgotten = index_->Write({}, &batch);
  if (!forgotten.ok()) return FailWithIndex("write the index", forgotten);
  return {};
}

// Where the last entry of a segment ends, of those that the index names.
Result<uint64_t> LogStore::EndOfLastEntry(uint32_t segment) const {
  IndexScan scan(*index_, PlacesBegin(segment), PlacesEnd(segment));
  scan->SeekToLast();
  TRY(scan.status());
  if (!scan->Valid()) return 0;
  return TRY(PlaceAt(*scan)).end();
}

// New entries never go below the mark: there they would not be verified after a power loss.
Status LogStore::FindCursor(LogLocation durable) {
  cursor_ = durable;
  if (!segments_.empty()) {
    const uint32_t last = segments_.rbegin()->first;
    const auto end = TRY(EndOfLastEntry(last));
    cursor_ = std::max(cursor_, {last, end});
  }
  const std::vector<uint32_t> files = TRY(files_.List());
  if (std::binary_search(files.begin(), files.end(), cursor_.segment)) return {};
  if (cursor_.segment == UINT32_MAX) return Fail(EBADMSG, "the index names an impossible segment");
  cursor_ = {cursor_.segment + 1, 0};
  TRY(files_.Create(cursor_.segment));
  segments_[cursor_.segment];
  return {};
}

Status LogStore::CutTails(LogLocation durable) {
  for (const uint32_t segment : TRY(files_.List())) {
    if (segment < durable.segment) continue;
    TRY(files_.Trim(segment));  // of what was asked for ahead
    uint64_t end = segment == cursor_.segment ? cursor_.offset : TRY(EndOfLastEntry(segment));
    if (segment == durable.segment) end = std::max(end, durable.offset);
    if (TRY(files_.Size(segment)) <= end) continue;
    TRY(files_.Truncate(segment, end));
    Log(LogLevel::kInfo, "unfinished entry cut off",
        {{"store", directory_.path()}, {"where", Where({segment, end})}});
  }
  return {};
}

// A kill forgets which ranges were dead and not given back yet.
Status LogStore::ReturnForgottenSpace() {
  constexpr uint64_t kSlack = 64 << 10;
  const std::vector<uint32_t> files = TRY(files_.List());
  for (const uint32_t number : files) {
    const uint64_t live = segments_[number].live_bytes;
    if (live == 0 && number < cursor_.segment) {
      // Nobody waits for Tidy(): to remove a file of 1 GiB can take half a second.
      trimmable_.insert(number);
      continue;
    }
    if (TRY(files_.AllocatedBytes(number)) > live + live / 8 + kSlack) TRY(PunchGaps(number));
    if (number != cursor_.segment)
      segments_[number].allocated_bytes = TRY(files_.AllocatedBytes(number));
  }
  return {};
}

Status LogStore::PunchGaps(uint32_t segment) {
  uint64_t end_of_last = 0;
  IndexScan scan(*index_, PlacesBegin(segment), PlacesEnd(segment));
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
    const Place place = TRY(PlaceAt(*scan));
    TRY(files_.Punch(segment, end_of_last, place.location.offset));
    end_of_last = place.end();
  }
  TRY(scan.status());
  return files_.Punch(segment, end_of_last, TRY(files_.Size(segment)));
}

// ------------------------------------------------------------------------------------------
// reading

Result<std::string> LogStore::LoadIndexRecord(std::string_view key) const {
  std::string bytes;
  const rocksdb::Status got = index_->Get({}, RecordIndexKey(key), &bytes);
  if (got.ok()) return bytes;
  if (got.IsNotFound()) return NoSuchKey();
  return FailWithIndex("read the index", got);
}

// As LoadIndexRecord(), mostly without RocksDB. EAGAIN, without waiting: the kernel would have to
// read it.
Result<std::string> LogStore::FindIndexRecord(std::string_view key, Wait wait) {
  if (auto remembered = index_cache_.Find(key)) return *std::move(remembered);
  const uint64_t ticket = index_cache_.Begin(key);
  std::string bytes;
  const auto ask = [&] { return index_->Get({}, RecordIndexKey(key), &bytes); };
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
  index_cache_.Remember(key, bytes, ticket);
  return bytes;
}

Result<StoredRecord> LogStore::ReadRecord(std::string_view key, const IndexRecord& record,
                                          ValueRange range, Wait wait) {
  const uint32_t value_bytes = record.head.value_bytes;
  const ValuePart part = Clip(range, value_bytes);
  if (const auto* inlined = std::get_if<InlineValue>(&record.place)) {
    if (Crc32c(AsBytes(inlined->value)) != record.value_crc) {
      return Fail(EBADMSG, "the value in the index has a wrong checksum");
    }
    const Bytes value = AsBytes(inlined->value).subspan(part.offset, part.length);
    return StoredRecord{record.head, SharedBytes(Buffer::CopyOf(value))};
  }
  const LoggedValue& place = std::get<LoggedValue>(record.place);
  const LogLocation& at = place.location;
  if (place.header_bytes > kMaxHeaderBytes || value_bytes > kMaxValueBytes) {
    return Fail(EBADMSG, "the index names an impossible entry in {}", Where(at));
  }
  std::string header_bytes(place.header_bytes, '\0');
  Buffer value(part.length);
  std::array<iovec, 2> pieces = {Piece(header_bytes.data(), header_bytes.size()),
                                 Piece(value.data(), value.size())};
  const auto read = [&](uint64_t offset, std::span<iovec> into) -> Status {
    if (wait == Wait::kMayNot) return files_.ReadAtOnce(at.segment, offset, into);
    if (from_disk_) return files_.ReadFromDisk(at.segment, offset, into).Context(Where(at));
    return files_.Read(at.segment, offset, into).Context(Where(at));
  };
  if (part.offset == 0) {
    TRY(read(at.offset, pieces));
  } else {
    TRY(read(at.offset, {pieces.data(), 1}));
    TRY(read(at.offset + place.header_bytes + part.offset, {&pieces[1], 1}));
  }
  const LogHeader header = TRY_CONTEXT(DecodeLogHeader(header_bytes), "{}", Where(at));
  if (header.key != key || header.head.value_bytes != value_bytes ||
      header.head.version != record.head.version || header.value_crc != record.value_crc) {
    return Fail(EBADMSG, "{}: another record stands there", Where(at));
  }
  if (part.length == value_bytes && Crc32c(value) != record.value_crc) {
    return Fail(EBADMSG, "{}: the value has a wrong checksum", Where(at));
  }
  return StoredRecord{record.head, SharedBytes(std::move(value))};
}

Result<StoredRecord> LogStore::Get(std::string_view key, ValueRange range) {
  std::string seen;
  while (true) {
    std::string bytes = TRY(FindIndexRecord(key));
    const IndexRecord record = TRY(DecodeIndexRecord(key, bytes));
    Result<StoredRecord> read = ReadRecord(key, record, range);
    if (read.has_value()) return read;
    // Between the index and the log the record may have been replaced and its bytes given back. If
    // the index still says the same it is damage; a segment that is gone is, too.
    if (bytes == seen) {
      const int code = read.error().code() == ENOENT ? EBADMSG : read.error().code();
      return Fail(code, "{}", read.error().message());
    }
    seen = std::move(bytes);
  }
}

// Whatever is wrong, or was replaced between the index and the log, is for Get() to find out.
Result<StoredRecord> LogStore::GetAtOnce(std::string_view key, ValueRange range) {
  const Result<std::string> bytes = FindIndexRecord(key, Wait::kMayNot);
  if (!bytes.has_value()) return bytes.error().code() == ENOENT ? NoSuchKey() : WouldWait();
  const Result<IndexRecord> record = DecodeIndexRecord(key, *bytes);
  if (!record.has_value() || Clip(range, record->head.value_bytes).length > kMaxBytesAtOnce) {
    return WouldWait();
  }
  Result<StoredRecord> read = ReadRecord(key, *record, range, Wait::kMayNot);
  if (!read.has_value()) return WouldWait();
  return read;
}

Result<StoredHead> LogStore::Head(std::string_view key) {
  const std::string bytes = TRY(FindIndexRecord(key));
  return TRY(DecodeIndexRecord(key, bytes)).head;
}

Result<std::vector<std::string>> LogStore::Keys(const KeyRange& range, size_t max, bool reverse) {
  auto [first, end] = RecordsOf(range);
  std::vector<std::string> keys;
  if (first >= end) return keys;
  IndexScan scan(*index_, std::move(first), std::move(end));
  for (reverse ? scan->SeekToLast() : scan->SeekToFirst(); scan->Valid() && keys.size() < max;
       reverse ? scan->Prev() : scan->Next()) {
    keys.emplace_back(View(scan->key()).substr(1));
  }
  TRY(scan.status());
  return keys;
}

// Records in the index are all in the scan; for those in the log it knows the keys only, since the
// log moves on.
Result<RangeItem> LogStore::LoadItem(std::string key, std::string_view index_value,
                                     const RangeCollector& collector) {
  RangeItem item{.key = std::move(key)};
  const Status loaded = [&]() -> Status {
    const IndexRecord record = TRY(DecodeIndexRecord(item.key, index_value));
    item.head = record.head;
    item.has_value = collector.WantsValue(record.head);
    if (!item.has_value) return {};
    StoredRecord read =
        TRY(std::holds_alternative<InlineValue>(record.place) ? ReadRecord(item.key, record, {})
                                                              : Get(item.key, {}));
    item.head = std::move(read.head);
    item.has_value = collector.WantsValue(item.head);  // it may have been replaced by a longer one
    if (item.has_value) item.value = std::move(read.value);
    return {};
  }();
  if (loaded.ok()) return item;
  if (loaded.code() != EBADMSG) return Failed(loaded);
  return RangeItem{.key = std::move(item.key), .damaged = true};
}

Result<RangeItems> LogStore::Items(const KeyRange& range, const RangeLimits& limits, bool reverse) {
  RangeCollector collector(limits);
  auto [first, end] = RecordsOf(range);
  if (first >= end) return collector.Take();
  IndexScan scan(*index_, std::move(first), std::move(end));
  for (reverse ? scan->SeekToLast() : scan->SeekToFirst(); scan->Valid();
       reverse ? scan->Prev() : scan->Next()) {
    Result<RangeItem> item =
        LoadItem(std::string(View(scan->key()).substr(1)), View(scan->value()), collector);
    if (!item.has_value() && item.error().code() == ENOENT) continue;  // deleted meanwhile
    if (!collector.Add(TRY(std::move(item)))) break;
  }
  TRY(scan.status());
  return collector.Take();
}

StoreUsage LogStore::Usage() {
  StoreUsage usage;
  {
    const std::lock_guard lock(mutex_);
    usage.used_bytes = live_bytes_ + dead_bytes_ + inline_bytes_;
    usage.failure = broken_;
  }
  usage.capacity_bytes =
      options_.capacity_bytes - ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  if (usage.capacity_bytes != 0) return usage;
  struct statvfs about;
  uint64_t free_bytes = 0;
  if (statvfs(directory_.path().c_str(), &about) == 0) {
    free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  }
  usage.capacity_bytes =
      usage.used_bytes + free_bytes - std::min(free_bytes, options_.reserve_bytes);
  return usage;
}

// ------------------------------------------------------------------------------------------
// writing

Status LogStore::FailedState() {
  const std::lock_guard lock(mutex_);
  return broken_;
}

// What is damaged stays so; what the disk did not do this time it may do the next time.
Status LogStore::BreakOn(const Status& status) {
  const std::string_view way_out =
      IsDamage(status) ? "it is damaged: count this drive as lost and replace it"
                       : "start pinstriped again; if it fails once more, replace the disk";
  Log(LogLevel::kError, "store failed; it serves reads only",
      {{"path", directory_.path()}, {"why", status}, {"do", way_out}});
  {
    const std::lock_guard lock(mutex_);
    if (broken_.ok()) {
      broken_ = Fail(EIO, "changes are refused since the store failed: {} ({})", status.message(),
                     way_out);
    }
  }
  directory_.starts().NoteFailedSync();
  return status;
}

// To look costs as much as a twentieth of a small put. While there is plenty, one look tells for a
// few changes, which together take far less than is kept in reserve.
Status LogStore::CheckSpace(uint64_t more, Room room) {
  constexpr uint64_t kPlenty = uint64_t{64} << 20;
  constexpr uint64_t kRoom = uint64_t{1} << 20;
  constexpr int kChanges = 16;
  if (options_.capacity_bytes == 0) {
    const std::lock_guard lock(mutex_);
    if (room_changes_ > 0 && more <= room_bytes_) {
      --room_changes_;
      room_bytes_ -= more;
      return {};
    }
  }
  struct statvfs about;
  if (statvfs(directory_.path().c_str(), &about) != 0) {
    return Fail(EIO, "cannot look at {}: {}", directory_.path(), ErrnoText(errno));
  }
  const uint64_t free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  const uint64_t kept_free = KeptFree(room, options_.reserve_bytes);
  const bool has_room = free_bytes >= kept_free + more;
  if (has_room && options_.capacity_bytes == 0) {
    const bool plenty = free_bytes >= options_.reserve_bytes + more + kPlenty;
    const std::lock_guard lock(mutex_);
    room_bytes_ = plenty ? kRoom : 0;
    room_changes_ = plenty ? kChanges : 0;
    return {};
  }
  const StoreUsage usage = Usage();
  // Of a capacity that was given, not all is for data.
  const uint64_t reserve = ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  const uint64_t most = usage.capacity_bytes + reserve - KeptFree(room, reserve);
  if (has_room && usage.used_bytes + more <= most) return {};
  return Fail(ENOSPC, "full: {} of {} bytes are used", usage.used_bytes, usage.capacity_bytes);
}

// Gives back some of what deletions have left. False: there was nothing.
Result<bool> LogStore::MakeRoom() {
  {
    const std::lock_guard lock(mutex_);
    if (dead_.empty() && committing_.empty() && free_.empty()) return false;
  }
  TRY(Flush());
  TRY(ReturnSpace());
  return true;
}

Status LogStore::Put(std::string_view key, const StoredRecord& record, Room room) {
  const StoreChange change{key, &record, nullptr, room};
  return Make({&change, 1}, Together::kEach);
}

Status LogStore::Apply(std::span<const StoreChange> changes) {
  return Make(changes, Together::kAllOrNone);
}

// All at once, which is how it almost always goes. Where one of them must fail nothing was changed,
// and one by one they show which.
std::vector<Status> LogStore::PutEach(std::span<const StoreChange> puts) {
  if (puts.size() > 1 && Make(puts, Together::kEach).ok()) return std::vector<Status>(puts.size());
  return Store::PutEach(puts);
}

// Only what goes into the index: to write the log may wait for others who write it, or for the file
// system.
bool LogStore::PutAllAtOnce(std::span<const StoreChange> puts) {
  for (const StoreChange& put : puts) {
    if (put.record->value.size() >= kLeastLoggedBytes) return false;
  }
  const std::shared_lock lock(syncing_index_, std::try_to_lock);
  return lock.owns_lock() && FailedState().ok() &&
         TryToMake(puts, Together::kEach, Wait::kMayNot).ok();
}

// The log first, then one write to the index.
Status LogStore::Make(std::span<const StoreChange> changes, Together together) {
  TRY(FailedState());
  Status made = TryToMake(changes, together);
  while (made.code() == ENOSPC && TRY(MakeRoom())) made = TryToMake(changes, together);
  return made;
}

// Of puts that are made together, what all of them may take.
Room LogStore::RoomOf(std::span<const StoreChange> changes) {
  Room room = Room::kFreeing;
  for (const StoreChange& change : changes) {
    if (change.record != nullptr) room = std::min(room, change.room);
  }
  return room;
}

// EAGAIN: it would have to wait, and must not.
Status LogStore::TryToMake(std::span<const StoreChange> changes, Together together, Wait wait) {
  std::vector<std::string_view> keys;
  keys.reserve(changes.size());
  for (const StoreChange& change : changes) keys.push_back(change.key);
  const KeyLocks::Hold hold(key_locks_, std::move(keys), wait);
  if (!hold.holds()) return WouldWait();
  Change change;
  std::vector<Planned> plans(changes.size());
  uint64_t entry_bytes = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    TRY(Plan(changes[i], wait, plans[i], change));
    entry_bytes += plans[i].entry_bytes();
  }
  const uint64_t more =
      entry_bytes + change.inline_added - std::min(change.inline_added, change.inline_removed);
  if (more > 0) TRY(CheckSpace(more, RoomOf(changes)));
  const Status appended = [&]() -> Status {
    TRY(Append(plans, change));
    // An entry that power loss tears is undone by itself, and would leave the others of its batch.
    const bool sync = together == Together::kAllOrNone && changes.size() > 1;
    if (!sync) return {};
    const Status synced = SyncAll(change.written);
    return synced.ok() ? synced : BreakOn(synced);
  }();
  if (!appended.ok()) {
    Abandon(change);
    return appended;
  }
  return Commit(change, wait);
}

// What the index is going to say, except for the places in the log.
Status LogStore::Plan(const StoreChange& asked, Wait wait, Planned& plan, Change& change) {
  Result<std::string> found = FindIndexRecord(asked.key, wait);
  Result<IndexRecord> old = NoSuchKey();
  if (!found.has_value()) {
    old = Failed(std::move(found).error());
  } else {
    old = DecodeIndexRecord(asked.key, *found);
  }
  const int missing = old.has_value() ? 0 : old.error().code();
  const bool conditional = asked.expected != nullptr && asked.expected->version();
  // A damaged record may be replaced: that is how it is repaired. But it has no version.
  if (missing != 0 && missing != ENOENT && (missing != EBADMSG || conditional)) return old.error();
  if (conditional) {
    TRY(CheckVersion(old.has_value() ? std::string_view(old->head.version) : "", *asked.expected));
  }
  if (old.has_value()) Forget(asked.key, *old, found->size(), change);
  if (found.has_value()) plan.old = *std::move(found);
  plan.key = asked.key;
  if (asked.record == nullptr) {
    change.batch.Delete(RecordIndexKey(asked.key));
    change.records.push_back({asked.key, {}});
    return {};
  }
  plan.value = asked.record->value;
  plan.head = asked.record->head;
  plan.head.value_bytes = static_cast<uint32_t>(plan.value.size());
  plan.value_crc = asked.record->ValueCrc();
  if (plan.head.value_bytes >= kLeastLoggedBytes) {
    plan.header = EncodeLogHeader(asked.key, plan.head, plan.value_crc);
    return {};
  }
  const std::string bytes = EncodeIndexRecord(
      asked.key,
      {.head = plan.head, .value_crc = plan.value_crc, .place = InlineValue{AsText(plan.value)}});
  change.inline_added += InlineFootprint(asked.key, bytes.size());
  change.records.push_back({asked.key, {}});
  change.batch.Put(RecordIndexKey(asked.key), bytes);
  return {};
}

// Takes the record that is there out of the index and its bytes out of the log.
void LogStore::Forget(std::string_view key, const IndexRecord& old, size_t record_bytes,
                      Change& change) {
  const auto* place = std::get_if<LoggedValue>(&old.place);
  if (place == nullptr) {
    change.inline_removed += InlineFootprint(key, record_bytes);
    return;
  }
  change.removed.push_back({place->location, EntryBytes(old, *place)});
  change.batch.Delete(PlaceIndexKey(place->location));
}

// One after the other in the log, with a write for as many as follow each other.
Status LogStore::Append(std::span<const Planned> plans, Change& change) {
  std::vector<const Planned*> logged;
  for (const Planned& plan : plans) {
    if (!plan.header.empty()) logged.push_back(&plan);
  }
  if (logged.empty()) return {};
  {
    std::unique_lock lock(mutex_);
    for (const Planned* plan : logged) {
      const LogLocation location = TRY(Reserve(plan->entry_bytes(), lock));
      change.added.push_back({location, plan->entry_bytes()});
    }
  }
  constexpr size_t kMostAtOnce = 256;
  for (size_t begin = 0, end = 0; begin < logged.size(); begin = end) {
    LogLocation next = change.added[begin].location;
    do {
      next.offset += change.added[end++].bytes;
    } while (end < logged.size() && change.added[end].location == next &&
             end - begin < kMostAtOnce);
    TRY(WriteEntries(std::span(logged).subspan(begin, end - begin), change.added[begin].location,
                     change));
  }
  // One kind of index key after the other, for each is put beside the one before it.
  for (size_t i = 0; i < logged.size(); ++i) {
    const Planned& plan = *logged[i];
    const LoggedValue place{change.added[i].location, static_cast<uint32_t>(plan.header.size())};
    std::string record = EncodeIndexRecord(
        plan.key, {.head = plan.head, .value_crc = plan.value_crc, .place = place});
    change.batch.Put(RecordIndexKey(plan.key), record);
    change.records.push_back({plan.key, std::move(record)});
  }
  for (size_t i = 0; i < logged.size(); ++i) {
    const Planned& plan = *logged[i];
    const LogLocation location = change.added[i].location;
    change.batch.Put(PlaceIndexKey(location),
                     EncodePlaceRecord(location, {plan.entry_bytes(), std::string(plan.key)}));
  }
  for (size_t i = 0; i < logged.size(); ++i) {
    if (!logged[i]->old) continue;
    change.batch.Put(PreviousIndexKey(change.added[i].location), *logged[i]->old);
    change.replacing.push_back(change.added[i].location);
  }
  return {};
}

// Entries that follow each other in one segment.
Status LogStore::WriteEntries(std::span<const Planned* const> plans, LogLocation begin,
                              Change& change) {
  std::vector<iovec> pieces;
  pieces.reserve(2 * plans.size());
  uint64_t bytes = 0;
  for (const Planned* plan : plans) {
    pieces.push_back(Piece(plan->header.data(), plan->header.size()));
    pieces.push_back(Piece(plan->value.data(), plan->value.size()));
    bytes += plan->entry_bytes();
  }
  const Result<SegmentFiles::Held> written = files_.Write(begin.segment, begin.offset, pieces);
  if (!written.has_value()) {
    if (written.error().code() == ENOSPC) return written.error();
    return Fail(EIO, "{}", written.error().message());
  }
  change.written.try_emplace(begin.segment, *written);
  const std::lock_guard lock(mutex_);
  dirty_.try_emplace(begin.segment, *written);
  unsynced_bytes_ += bytes;
  return {};
}

// Entries stay above the mark: others before them may not be durable.
Status LogStore::SyncAll(const Written& written) {
  for (const auto& [segment, held] : written) TRY(files_.Sync(segment, held));
  return {};
}

// Room at the end of the log, in a new segment when the last one is full. With mutex_ held, but not
// while it makes one.
Result<LogLocation> LogStore::Reserve(uint64_t bytes, std::unique_lock<std::mutex>& lock) {
  while (cursor_.offset > 0 && cursor_.offset + bytes > options_.segment_bytes) {
    if (rolling_) {
      rolled_.wait(lock);
      continue;
    }
    if (cursor_.segment == UINT32_MAX) return Fail(ENOSPC, "no segment can follow the last one");
    rolling_ = true;
    const uint32_t next = cursor_.segment + 1;
    lock.unlock();
    const Status created = files_.Create(next);
    lock.lock();
    rolling_ = false;
    rolled_.notify_all();
    TRY(created);
    segments_[next];
    full_.insert(cursor_.segment);
    cursor_ = {next, 0};
  }
  const LogLocation location = cursor_;
  in_flight_.emplace(location, bytes);
  cursor_.offset += bytes;
  return location;
}

// What was reserved stays unused: nothing refers to it.
void LogStore::Abandon(const Change& change) {
  const std::lock_guard lock(mutex_);
  for (const auto& [location, bytes] : change.added) {
    in_flight_.erase(location);
    dead_[location] = bytes;
    dead_bytes_ += bytes;
  }
}

// What is to die is noted before the index forgets it, so that whoever looks for the free space
// between two entries finds it in the one place or in the other.
Status LogStore::Commit(Change& change, Wait wait) {
  std::map<uint32_t, uint64_t> differences;  // of segments' counts; taken modulo 2^64
  for (const auto& [location, bytes] : change.added) differences[location.segment] += bytes;
  for (const auto& [location, bytes] : change.removed) differences[location.segment] -= bytes;
  for (const auto& [segment, difference] : differences) {
    if (difference != 0) change.batch.Merge(SegmentIndexKey(segment), EncodeCount(difference));
  }
  if (change.inline_added != change.inline_removed) {
    change.batch.Merge(InlineBytesIndexKey(),
                       EncodeCount(change.inline_added - change.inline_removed));
  }
  if (!change.removed.empty()) {
    const std::lock_guard lock(mutex_);
    for (const auto& [location, bytes] : change.removed) dying_[location] = bytes;
  }
  for (const auto& record : change.records) index_cache_.BeforeChange(record.key);
  rocksdb::WriteOptions options;
  options.no_slowdown = wait == Wait::kMayNot;
  const rocksdb::Status written = index_->Write(options, &change.batch);
  for (const auto& record : change.records) {
    index_cache_.AfterChange(record.key, written.ok() ? record.after : std::string_view());
  }
  if (written.IsIncomplete() && options.no_slowdown) {  // not even begun
    ForgetDying(change);
    return WouldWait();
  }
  // Whether the record will be there after the next start is not known now, so nothing may be given
  // back or built upon it.
  if (!written.ok()) return BreakOn(FailWithIndex("write the index", written));
  const std::lock_guard lock(mutex_);
  index_dirty_ = true;
  inline_bytes_ += change.inline_added - change.inline_removed;
  inline_dead_bytes_ += change.inline_removed;
  replacing_.insert(change.replacing.begin(), change.replacing.end());
  for (const auto& [location, bytes] : change.added) {
    in_flight_.erase(location);
    segments_[location.segment].live_bytes += bytes;
    live_bytes_ += bytes;
  }
  for (const auto& [location, bytes] : change.removed) {
    dying_.erase(location);
    dead_[location] = bytes;
    dead_bytes_ += bytes;
    segments_[location.segment].live_bytes -= bytes;
    live_bytes_ -= bytes;
  }
  return {};
}

// Of a change that was not made after all.
void LogStore::ForgetDying(const Change& change) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : change.removed) dying_.erase(entry.location);
}

Status LogStore::Delete(std::string_view key) {
  TRY(FailedState());
  const KeyLocks::Hold hold(key_locks_, key);
  const std::string bytes = TRY(FindIndexRecord(key));
  Change change;
  // If the old record is damaged, nobody knows what it used.
  const Result<IndexRecord> old = DecodeIndexRecord(key, bytes);
  if (old.has_value()) Forget(key, *old, bytes.size(), change);
  change.batch.Delete(RecordIndexKey(key));
  change.records.push_back({key, {}});
  return Commit(change);
}

// -----------------------------------------------------------------------------------------
// flushing

Status LogStore::Flush() {
  TRY(FailedState());
  TRY(group_->Flush(*this));
  return FailedState();  // others of the group may have found out something meanwhile
}

Status LogStore::EndCleanly() {
  TRY(Flush());
  {
    const std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = Fail(EIO, "changes are refused since the store was ended");
  }
  TRY(directory_.starts().End());
  ended_ = true;
  return {};
}

bool LogStore::HasChanges() {
  const std::lock_guard lock(mutex_);
  return broken_.ok() && (!dirty_.empty() || !dead_.empty() || index_dirty_);
}

void LogStore::BeginRound() {
  const std::lock_guard lock(mutex_);
  round_ = {};
  round_.segments = std::exchange(dirty_, {});
  round_.durable = in_flight_.empty() ? cursor_ : in_flight_.begin()->first;
  round_.durable_before = durable_;
  committing_ = std::exchange(dead_, {});
  // One that has an entry in flight is still written.
  while (!full_.empty() && *full_.begin() < round_.durable.segment) {
    round_.full.push_back(full_.extract(full_.begin()).value());
  }
  index_dirty_ = false;
  unsynced_bytes_ = 0;
}

// The log before the index: what the mark says of the log must be true whenever it can be read.
Status LogStore::SyncRound() {
  TRY(SyncAll(round_.segments));
  return MarkDurable(round_.durable, /*sync=*/true);
}

// The index may get to the disk before the log does, so the mark may only say what is true already.
Status LogStore::HandOverRound() { return MarkDurable(round_.durable_before, /*sync=*/false); }

// What entries below the mark have replaced need not be kept any more. Those beyond it would be
// verified at opening.
Status LogStore::MarkDurable(LogLocation mark, bool sync) {
  rocksdb::WriteBatch batch;
  batch.Put(DurableIndexKey(), EncodeDurable(mark));
  {
    const std::lock_guard lock(mutex_);
    const auto beyond = replacing_.lower_bound(mark);
    for (auto each = replacing_.begin(); each != beyond; ++each) {
      batch.Delete(PreviousIndexKey(*each));
    }
    replacing_.erase(replacing_.begin(), beyond);
  }
  round_.sequence = index_->GetLatestSequenceNumber();
  std::unique_lock lock(syncing_index_, std::defer_lock);
  if (sync) lock.lock();
  rocksdb::WriteOptions options;
  options.sync = sync;
  const rocksdb::Status written = index_->Write(options, &batch);
  if (!written.ok()) return FailWithIndex("sync the index", written);
  return {};
}

void LogStore::LoseFaith(const Status& failure) {
  if (FailedState().ok()) (void)BreakOn(failure);
}

Status LogStore::EndRound(Status synced) {
  round_.segments.clear();
  if (synced.ok()) synced = directory_.WriteMark(round_.sequence);
  if (!synced.ok()) return BreakOn(synced);
  const std::lock_guard lock(mutex_);
  durable_ = round_.durable;
  trimmable_.insert(round_.full.begin(), round_.full.end());
  for (const auto& [location, bytes] : committing_) dead_bytes_ -= bytes;
  free_.merge(committing_);
  committing_.clear();
  return {};
}

namespace {

// Makes a gap around `location` smaller, until it holds nothing of `ranges`.
void Shrink(const std::map<LogLocation, uint64_t>& ranges, LogLocation location, uint64_t* begin,
            uint64_t* end) {
  const auto above = ranges.lower_bound(location);
  if (above != ranges.end() && above->first.segment == location.segment) {
    *end = std::min(*end, above->first.offset);
  }
  if (above == ranges.begin()) return;
  const auto below = std::prev(above);
  if (below->first.segment != location.segment) return;
  *begin = std::max(*begin, below->first.offset + below->second);
}

}  // namespace

// The entries that are needed, or may be, as they are when it is made: what is in flight first,
// then what is in the index, so that what goes from the one into the other is not missed. Later
// ones lie behind the cursor.
//
// It remembers the last gap between such entries, for RocksDB walks over every deletion in it to
// find its ends, and much that died together is given back one after the other.
class LogStore::LiveEntries {
 public:
  explicit LiveEntries(LogStore& store) : store_(store) {
    {
      const std::lock_guard lock(store.mutex_);
      cursor_ = store.cursor_;
      in_flight_ = store.in_flight_;
    }
    scan_.emplace(*store.index_, "L", "M");
  }

  Result<Gap> GapAround(LogLocation location) {
    const uint32_t segment = location.segment;
    const bool same =
        segment == segment_ && gap_.begin <= location.offset && location.offset < gap_.end;
    if (same) return gap_;
    Gap gap;
    gap.end = segment == cursor_.segment ? cursor_.offset : TRY(store_.files_.Size(segment));
    Shrink(in_flight_, location, &gap.begin, &gap.end);
    const std::string here = PlaceIndexKey(location);
    IndexScan& scan = *scan_;
    scan->Seek(here);
    if (scan->Valid()) {
      const Place next = TRY(PlaceAt(*scan));
      if (next.location.segment == segment) gap.end = std::min(gap.end, next.location.offset);
    }
    scan->SeekForPrev(here);
    if (scan->Valid()) {
      const Place previous = TRY(PlaceAt(*scan));
      if (previous.location.segment == segment) gap.begin = std::max(gap.begin, previous.end());
    }
    TRY(scan.status());
    segment_ = segment;
    gap_ = gap;
    return gap;
  }

 private:
  LogStore& store_;
  LogLocation cursor_;
  Ranges in_flight_;
  std::optional<IndexScan> scan_;
  uint32_t segment_ = 0;
  Gap gap_;  // of that segment
};

// The free space around a dead range. What has left the index since is seen dying or dead after.
Result<LogStore::Gap> LogStore::GapAround(LogLocation location, LiveEntries& live) {
  Gap gap = TRY(live.GapAround(location));
  const std::lock_guard lock(mutex_);
  for (const Ranges* ranges : {&dying_, &dead_, &committing_}) {
    Shrink(*ranges, location, &gap.begin, &gap.end);
  }
  return gap;
}

// Costs time, which no flush waits for.
Status LogStore::ReturnSpace() {
  Ranges free;
  std::set<uint32_t> full;
  {
    const std::lock_guard lock(mutex_);
    free.swap(free_);
    full.swap(trimmable_);
  }
  Status first_failure;
  const auto note = [&](const Status& status) {
    // A segment may have gone meanwhile, and given everything back.
    if (first_failure.ok() && status.code() != ENOENT) first_failure = status;
  };
  for (const uint32_t segment : full) note(files_.Trim(segment));
  std::set<uint32_t> changed = std::move(full);
  if (!free.empty()) {
    LiveEntries live(*this);
    LogLocation done_to;
    for (const auto& [location, bytes] : free) {
      changed.insert(location.segment);
      if (location < done_to) continue;  // in a gap that was given back already
      const Result<Gap> gap = GapAround(location, live);
      if (!gap.has_value()) {
        note(gap.error());
        continue;
      }
      note(files_.Punch(location.segment, gap->begin, gap->end));
      done_to = {location.segment, gap->end};
    }
  }
  note(RemoveDeadSegments());
  note(MeasureSegments(changed));
  return first_failure;
}

// Segments in which nothing is needed any more. Their numbers are never used again.
Status LogStore::RemoveDeadSegments() {
  std::vector<uint32_t> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto used_by = [&](const auto& ranges, uint32_t segment) {
      const auto at = ranges.lower_bound(LogLocation{segment, 0});
      return at != ranges.end() && at->first.segment == segment;
    };
    std::erase_if(segments_, [&](const auto& entry) {
      const auto& [number, segment] = entry;
      const bool dead = segment.live_bytes == 0 && number < cursor_.segment &&
                        !used_by(in_flight_, number) && !used_by(dying_, number) &&
                        !used_by(dead_, number) && !used_by(committing_, number);
      if (dead) gone.push_back(number);
      return dead;
    });
  }
  for (const uint32_t segment : gone) {
    // Nothing brings it back, so that the count alone is not believed.
    if (TRY(EndOfLastEntry(segment)) > 0) {
      Log(LogLevel::kError, "segment counted as unused is used, and stays",
          {{"store", directory_.path()},
           {"segment", fmt::format("{:08x}", segment)},
           {"do", "the index is damaged: count this drive as lost and replace it"}});
      continue;
    }
    const rocksdb::Status forgotten = index_->Delete({}, SegmentIndexKey(segment));
    if (!forgotten.ok()) return FailWithIndex("write the index", forgotten);
    TRY(files_.Remove(segment));
  }
  return {};
}

// How much the file system keeps for each of these.
Status LogStore::MeasureSegments(const std::set<uint32_t>& segments) {
  for (const uint32_t number : segments) {
    {
      const std::lock_guard lock(mutex_);
      if (!segments_.contains(number) || number == cursor_.segment) continue;
    }
    const uint64_t allocated = TRY(files_.AllocatedBytes(number));
    const std::lock_guard lock(mutex_);
    if (const auto found = segments_.find(number); found != segments_.end()) {
      found->second.allocated_bytes = allocated;
    }
  }
  return {};
}

// ---------------------------------------------------------------------------------------
// compacting

Result<bool> LogStore::Tidy() {
  bool wants_flush = false;
  bool has_free_space = false;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return false;
    wants_flush = dead_bytes_ >= kDeadBytesToFlush || unsynced_bytes_ >= kUnsyncedBytesToFlush;
    has_free_space = !free_.empty() || !trimmable_.empty();
  }
  if (wants_flush) {
    TRY(Flush());
    return true;
  }
  if (has_free_space) {
    TRY(ReturnSpace());
    return true;
  }
  if (TRY(PushDeletionsDown())) return true;
  return Compact();
}

// Deletions that are in the index's memory are small, and may be of values a hundred times as
// large: in a table of their own, RocksDB sees to them.
Result<bool> LogStore::PushDeletionsDown() {
  {
    const std::lock_guard lock(mutex_);
    if (inline_dead_bytes_ < kInlineDeadBytes + inline_bytes_ / kLeastSlack) return false;
    inline_dead_bytes_ = 0;
  }
  const rocksdb::Status flushed = index_->Flush({});
  if (!flushed.ok()) return FailWithIndex("write the index", flushed);
  return true;
}

// Only whole pages can be punched out of a file, so between small entries much stays that is not
// needed. When that is too much, segments are emptied into new ones, those first where least has to
// be moved for what is got back. Everything of a segment that was begun is moved, or the bound on
// the work would not hold.
std::optional<uint32_t> LogStore::SegmentToCompact() {
  const std::lock_guard lock(mutex_);
  if (compacting_ && segments_.contains(*compacting_)) return compacting_;
  uint64_t whole_slack = 0;
  double best_gain = 1.0 / kLeastSlack;
  std::optional<uint32_t> best;
  for (const auto& [number, segment] : segments_) {
    // Above the mark an entry may still be undone.
    if (number >= durable_.segment || segment.holds_damage) continue;
    const uint64_t slack = segment.slack();
    whole_slack += slack;
    const double gain = static_cast<double>(slack) / static_cast<double>(segment.live_bytes + 1);
    if (gain < best_gain) continue;
    best_gain = gain;
    best = number;
  }
  if (whole_slack < options_.slack_bytes + live_bytes_ / kLeastSlack) return std::nullopt;
  return best;
}

// One thread at a time: that of Tidy().
Result<bool> LogStore::Compact() {
  const std::optional<uint32_t> segment = SegmentToCompact();
  if (!segment) return false;
  uint64_t moved = 0;
  bool damaged = false;
  bool finished = false;
  {
    IndexScan scan(*index_, PlacesBegin(*segment), PlacesEnd(*segment));
    for (scan->SeekToFirst(); scan->Valid() && moved < kMoveAtOnce; scan->Next()) {
      const Result<Place> place = PlaceAt(*scan);
      const Status done =
          place.has_value() ? Move(place->location, place->record) : Status(place.error());
      if (IsDamage(done)) {
        damaged = true;
      } else if (!done.ok()) {
        return Failed(Status(done).Context(fmt::format("compact segment {:08x}", *segment)));
      } else {
        moved += place->record.entry_bytes;
      }
    }
    TRY(scan.status());
    finished = !scan->Valid();
  }
  {
    const std::lock_guard lock(mutex_);
    compacting_ = finished ? std::nullopt : segment;
    moved_bytes_ += moved;
    // A damaged entry stays where it is, so that its key goes on being called damaged.
    if (damaged) segments_[*segment].holds_damage = true;
  }
  TRY(Flush());
  TRY(ReturnSpace());
  return true;
}

// What deletions have left in the log is given back; the index is sorted anew.
Status LogStore::CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) {
  TRY(Flush());
  TRY(ReturnSpace());
  const std::string first = RecordIndexKey(range.first);
  const std::string last = range.last ? RecordIndexKey(*range.last) : "L";
  if (last < first) return {};
  const rocksdb::Slice first_slice(first);
  const rocksdb::Slice last_slice(last);
  rocksdb::CompactRangeOptions options;
  options.exclusive_manual_compaction = false;  // the index's own go on
  options.canceled = &cancelled;
  const rocksdb::Status compacted = index_->CompactRange(options, &first_slice, &last_slice);
  if (compacted.ok()) return {};
  if (cancelled) return Fail(ECANCELED, "compacting was cancelled");
  return FailWithIndex("compact the index", compacted);
}

// A put of what is there already. EBADMSG, ENOENT: it does not verify.
Status LogStore::Move(LogLocation location, const PlaceRecord& place) {
  const KeyLocks::Hold hold(key_locks_, place.key);
  std::string unused;
  const rocksdb::Status still = index_->Get({}, PlaceIndexKey(location), &unused);
  if (still.IsNotFound()) return {};  // replaced or deleted since the scan began
  if (!still.ok()) return FailWithIndex("read the index", still);
  const std::string old = TRY(LoadIndexRecord(place.key));
  const IndexRecord record = TRY(DecodeIndexRecord(place.key, old));
  const auto* logged = std::get_if<LoggedValue>(&record.place);
  if (logged == nullptr || logged->location != location) {
    return Fail(EBADMSG, "{} is kept for another record", Where(location));
  }
  const StoredRecord read = TRY(ReadRecord(place.key, record, {}));
  const Planned plan{.key = place.key,
                     .head = record.head,
                     .value = read.value,
                     .value_crc = record.value_crc,
                     .header = EncodeLogHeader(place.key, record.head, record.value_crc),
                     .old = old};
  Change change;
  Forget(place.key, record, old.size(), change);
  const Status appended = Append({&plan, 1}, change);
  if (!appended.ok()) {
    Abandon(change);
    return appended;
  }
  return Commit(change);
}

// -----------------------------------------------------------------------------------------
// checking

namespace {

void AddDamage(LogStore::CheckReport& report, std::string sentence) {
  ++report.damaged;
  if (report.sentences.size() < LogStore::CheckReport::kMaxSentences) {
    report.sentences.push_back(std::move(sentence));
  }
}

}  // namespace

Result<LogStore::CheckReport> LogStore::Check(const std::string& path, StoreResources& resources) {
  StoreDirectory directory = TRY(StoreDirectory::OpenExisting(path));
  const std::unique_ptr<LogStore> store(
      new LogStore(std::move(directory), {.path = path}, resources));
  TRY(store->OpenIndex(resources, /*read_only=*/true));
  const LogLocation durable = TRY(store->LoadDurable());
  CheckReport report;
  const rocksdb::Status index = store->index_->VerifyChecksum();
  if (index.IsCorruption()) AddDamage(report, index.ToString());
  if (!index.ok() && !index.IsCorruption()) return FailWithIndex("read the index", index);
  TRY(store->CheckRecords(durable, report));
  TRY(store->CheckPlaces(report));
  return report;
}

// Every record has its value, and the counts of bytes in use are right.
Status LogStore::CheckRecords(LogLocation durable, CheckReport& report) {
  std::map<uint32_t, uint64_t> live;
  uint64_t inline_bytes = 0;
  IndexScan scan(*index_, "K", "L");
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
    const std::string_view key = View(scan->key()).substr(1);
    ++report.records;
    const Result<IndexRecord> record = DecodeIndexRecord(key, View(scan->value()));
    if (!record.has_value()) {
      AddDamage(report, fmt::format("key {}: {}", ShortKey(key), record.error().message()));
      continue;
    }
    report.value_bytes += record->head.value_bytes;
    const auto* place = std::get_if<LoggedValue>(&record->place);
    if (place == nullptr) {
      inline_bytes += InlineFootprint(key, scan->value().size());
    } else {
      live[place->location.segment] += EntryBytes(*record, *place);
    }
    const Result<StoredRecord> read = ReadRecord(key, *record, {});
    if (read.has_value()) continue;
    if (place != nullptr && place->location >= durable) {
      ++report.unfinished;
    } else {
      AddDamage(report, fmt::format("key {}: {}", ShortKey(key), read.error().message()));
    }
  }
  TRY(scan.status());
  for (const auto& [segment, bytes] : live) {
    const uint64_t counted = TRY(LoadCount(SegmentIndexKey(segment)));
    if (counted != bytes) {
      AddDamage(report, fmt::format("segment {:08x}: {} bytes are in use, {} were counted", segment,
                                    bytes, counted));
    }
  }
  const uint64_t counted = TRY(LoadCount(InlineBytesIndexKey()));
  if (counted != inline_bytes) {
    AddDamage(report, fmt::format("index: {} bytes are in use by small records, {} were counted",
                                  inline_bytes, counted));
  }
  return {};
}

// Every entry of the log that is kept belongs to the record that its place names.
Status LogStore::CheckPlaces(CheckReport& report) {
  IndexScan scan(*index_, "L", "M");
  for (scan->SeekToFirst(); scan->Valid(); scan->Next()) {
    const LogLocation location = TRY(DecodePlaceIndexKey(View(scan->key())));
    const Result<PlaceRecord> place = DecodePlaceRecord(location, View(scan->value()));
    if (!place.has_value()) {
      AddDamage(report, fmt::format("{}: {}", Where(location), place.error().message()));
      continue;
    }
    const Result<std::string> bytes = LoadIndexRecord(place->key);
    const Result<IndexRecord> record = bytes.and_then(
        [&](const std::string& found) { return DecodeIndexRecord(place->key, found); });
    const auto* logged = record.has_value() ? std::get_if<LoggedValue>(&record->place) : nullptr;
    if (logged == nullptr || logged->location != location ||
        EntryBytes(*record, *logged) != place->entry_bytes) {
      AddDamage(report, fmt::format("{}: is kept for key {}, whose record is elsewhere",
                                    Where(location), ShortKey(place->key)));
    }
  }
  return scan.status();
}

}  // namespace pinstripe
