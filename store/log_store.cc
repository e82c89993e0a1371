#include "store/log_store.h"

#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "store/log_recovery.h"

namespace pinstripe {

LogStore::LogStore(StoreDirectory directory, const LogStoreOptions& options,
                   StoreResources& resources)
    : directory_(std::move(directory)),
      options_(options),
      files_(*options_.calls, directory_.segments_path()),
      health_(directory_),
      ledger_(files_, options_.segment_bytes),
      index_(resources),
      reader_(index_, files_),
      room_({directory_.path(), options_.capacity_bytes, options_.reserve_bytes}, ledger_),
      writer_({index_, files_, ledger_, reader_, room_, health_}),
      reclaim_({index_, files_, ledger_, writer_}, directory_.path(), options_.slack_bytes),
      rounds_({directory_, index_, files_, ledger_, health_}) {}

LogStore::~LogStore() {
  if (!rounds_.has_joined()) return;
  Status flushed = ended_ || !opened_ ? Status() : Flush();
  rounds_.Leave();
  if (!opened_) return;
  if (flushed.ok()) flushed = reclaim_.ReturnSpace();
  if (flushed.ok()) flushed = files_.Trim(ledger_.cursor().segment);
  if (!flushed.ok()) {
    Log(LogLevel::kError, "store not flushed at its end",
        {{"path", directory_.path()}, {"why", flushed}});
  }
}

// ------------------------------------------------------------------------------------------
// opening

Result<std::unique_ptr<LogStore>> LogStore::Open(const LogStoreOptions& options,
                                                 StoreResources& resources) {
  auto opened = OpenAndRecover(options, resources);
  if (opened.has_value() || opened.error().code() != EBADMSG) return opened;
  return Fail(
      EBADMSG,
      "{}. This drive is lost: give it an empty directory, on a sound disk (`pinstriped --init`), "
      "and rebuild it; docs/operations.md, \"A drive whose store is damaged\", says more",
      opened.error().message());
}

Result<std::unique_ptr<LogStore>> LogStore::OpenAndRecover(const LogStoreOptions& options,
                                                           StoreResources& resources) {
  StoreDirectory directory = TRY(StoreDirectory::Open(options.path, options.serial_number));
  std::unique_ptr<LogStore> store(new LogStore(std::move(directory), options, resources));
  TRY(store->Join(resources));
  TRY(store->OpenIndex());
  TRY_CONTEXT(store->Recover(), "open the store in {}", options.path);
  // What a kill left in the kernel's hands becomes durable now, so that the next power loss has
  // less to take and the next opening less to verify.
  TRY(store->Flush());
  TRY(store->BeginStart());
  store->opened_ = true;
  return store;
}

Status LogStore::Join(StoreResources& resources) {
  const std::shared_ptr<CommitGroup> group =
      TRY(resources.GroupOf(directory_.path(), *options_.calls));
  rounds_.Join(group);
  // Perhaps of this store.
  if (group->had_failed() && directory_.starts().kernel_may_show_more()) {
    directory_.starts().NoteFailedSync();
  }
  return {};
}

Status LogStore::OpenIndex() {
  // A store that has a segment had an index. To make a new one then would be to forget every
  // record.
  const bool may_be_new = TRY(files_.List()).empty();
  const uint64_t mark = TRY(directory_.ReadMark());
  return index_.Open({.path = directory_.index_path(),
                      .may_be_new = may_be_new,
                      .least_sequence = mark,
                      .env = options_.index_env,
                      .open = options_.open_index});
}

Status LogStore::Recover() {
  LogRecovery recovery({directory_, index_, files_, ledger_, reader_});
  TRY(recovery.Run());
  torn_entries_ = recovery.torn_entries();
  return {};
}

// What power loss has torn was not durable, and may have been answered. A kill tears nothing.
Status LogStore::BeginStart() {
  if (torn_entries_ == 0) return directory_.starts().Begin("");
  return directory_.starts().Begin(
      fmt::format("values that it had taken are not on its disk: {}", torn_entries_));
}

// ------------------------------------------------------------------------------------------
// reading

Result<StoredRecord> LogStore::Get(std::string_view key, ValueRange range) {
  return reader_.Get(key, range);
}

Result<StoredRecord> LogStore::GetAtOnce(std::string_view key, ValueRange range) {
  return reader_.GetAtOnce(key, range);
}

Result<StoredHead> LogStore::Head(std::string_view key) { return reader_.Head(key); }

Result<std::vector<std::string>> LogStore::Keys(const KeyRange& range, size_t max, bool reverse) {
  return reader_.Keys(range, max, reverse);
}

Result<RangeItems> LogStore::Items(const KeyRange& range, const RangeLimits& limits, bool reverse) {
  return reader_.Items(range, limits, reverse);
}

StoreUsage LogStore::Usage() {
  StoreUsage usage = room_.Usage();
  usage.failure = health_.failure();
  usage.log = ledger_.Counts();
  return usage;
}

// ------------------------------------------------------------------------------------------
// changing

Status LogStore::Put(std::string_view key, const StoredRecord& record, Room room) {
  const StoreChange change{key, &record, nullptr, room};
  return Make({&change, 1}, LogWriter::Together::kEach);
}

Status LogStore::Apply(std::span<const StoreChange> changes) {
  return Make(changes, LogWriter::Together::kAllOrNone);
}

// All at once, which is how it almost always goes. Where one of them must fail nothing was changed,
// and one by one they show which.
std::vector<Status> LogStore::PutEach(std::span<const StoreChange> puts) {
  if (puts.size() > 1 && Make(puts, LogWriter::Together::kEach).ok()) {
    return std::vector<Status>(puts.size());
  }
  return Store::PutEach(puts);
}

// Only what goes into the index: to write the log may wait for others who write it, or for the file
// system.
bool LogStore::PutAllAtOnce(std::span<const StoreChange> puts) {
  for (const StoreChange& put : puts) {
    if (put.record->value.size() >= kLeastLoggedBytes) return false;
  }
  return index_.UnlessSyncing([&] {
    return health_.failure().ok() &&
           writer_.Make(puts, LogWriter::Together::kEach, LogWriter::Wait::kMayNot).ok();
  });
}

Status LogStore::Make(std::span<const StoreChange> changes, LogWriter::Together together) {
  TRY(health_.failure());
  Status made = writer_.Make(changes, together);
  while (made.code() == ENOSPC && TRY(MakeRoom())) made = writer_.Make(changes, together);
  return made;
}

// Gives back some of what deletions have left. False: there was nothing.
Result<bool> LogStore::MakeRoom() {
  if (!ledger_.HasLeftovers()) return false;
  TRY(Flush());
  TRY(reclaim_.ReturnSpace());
  return true;
}

Status LogStore::Delete(std::string_view key) {
  TRY(health_.failure());
  return writer_.Delete(key);
}

Status LogStore::Flush() { return rounds_.Flush(); }

Status LogStore::EndCleanly() {
  TRY(Flush());
  health_.End();
  TRY(directory_.starts().End());
  ended_ = true;
  return {};
}

// ------------------------------------------------------------------------------------------
// tidying

Result<bool> LogStore::Tidy() {
  if (!health_.failure().ok()) return false;
  if (ledger_.WantsFlush()) {
    TRY(Flush());
    return true;
  }
  if (ledger_.HasReturnable()) {
    TRY(reclaim_.ReturnSpace());
    return true;
  }
  // Deletions that are in the index's memory are small, and may be of values a hundred times as
  // large: in a table of their own, RocksDB sees to them.
  if (ledger_.TakeInlineDeletions()) {
    TRY(index_.PushDown());
    return true;
  }
  if (!TRY(reclaim_.Compact())) return false;
  TRY(Flush());
  TRY(reclaim_.ReturnSpace());
  return true;
}

// What deletions have left in the log is given back; the index is sorted anew.
Status LogStore::CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) {
  TRY(Flush());
  TRY(reclaim_.ReturnSpace());
  return index_.CompactRange(range, cancelled);
}

}  // namespace pinstripe
