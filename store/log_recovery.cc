#include "store/log_recovery.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {

Status LogRecovery::Run() {
  durable_ = TRY(parts_.index.LoadDurable());
  const bool from_disk = parts_.directory.starts().kernel_may_show_more();
  if (from_disk) TRY(SettleLog());
  parts_.reader.ReadFromDisk(from_disk);
  TRY(UndoTornEntries());
  parts_.reader.ReadFromDisk(false);
  // Everything is decided now.
  TRY(parts_.index.ForgetPrevious());
  TRY(LoadCounts());
  TRY(FindCursor());
  TRY(CutTails());
  TRY(ReturnForgottenSpace());
  LogLedger::Written written;
  for (const uint32_t number : TRY(parts_.files.List())) {
    if (number < durable_.segment) continue;
    written.emplace(number, TRY(parts_.files.Hold(number)));
  }
  parts_.ledger.Begin(durable_, std::move(written));
  return {};
}

// After this the disk has what the kernel shows of the log, or will say that it has not. A sync
// that fails may tell of what failed before this process began, but it may also be the end of it:
// only one that succeeds has the disk put away what it was given.
Status LogRecovery::SettleLog() {
  for (const uint32_t segment : TRY(parts_.files.List())) {
    if (segment < durable_.segment) continue;
    const SegmentFiles::Held held = TRY(parts_.files.Hold(segment));
    const Status synced = parts_.files.Sync(segment, held);
    if (synced.ok()) continue;
    parts_.directory.starts().NoteFailedSync();
    Log(LogLevel::kWarn, "store's files have lost something",
        {{"store", parts_.directory.path()}, {"why", synced}});
    TRY(parts_.files.Sync(segment, held));
  }
  return {};
}

// Newest first: what an entry has replaced may be torn as well.
Status LogRecovery::UndoTornEntries() {
  IndexScan scan = parts_.index.Places(durable_);
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    const auto [location, place] = TRY(scan.place());
    const Result<std::string> bytes = parts_.index.Load(place.key);
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
    const Result<StoredRecord> read = parts_.reader.Read(place.key, record);
    if (read.has_value()) continue;
    if (!IsDamage(read.error())) return read.error();
    TRY(UndoTornEntry(location, place));
  }
  return scan.status();
}

Status LogRecovery::UndoTornEntry(LogLocation location, const PlaceRecord& place) {
  const std::string previous = TRY(LastRecordBefore(location, place.key));
  Log(LogLevel::kWarn, "entry is not on the disk, undone",
      {{"store", parts_.directory.path()},
       {"where", Where(location)},
       {"key", ShortKey(place.key)},
       {"previous", previous.empty() ? "none" : "restored"}});
  IndexBatch batch;
  batch.DeletePlace(location);
  batch.AddToSegment(location.segment, -place.entry_bytes);
  if (previous.empty()) {
    batch.DeleteRecord(place.key);
  } else {
    batch.PutRecord(place.key, previous, IndexBatch::Remember::kNo);
    const IndexRecord record = TRY(DecodeIndexRecord(place.key, previous));
    if (const auto* logged = std::get_if<LoggedValue>(&record.place)) {
      const uint64_t bytes = EntryBytes(record, *logged);
      batch.PutPlace(logged->location, {bytes, place.key});
      batch.AddToSegment(logged->location.segment, bytes);
    } else {
      batch.AddToInlineBytes(InlineFootprint(place.key, previous.size()));
    }
  }
  TRY(parts_.index.Write(batch));
  ++torn_entries_;
  return {};
}

// The newest record that was there before a torn entry and is whole; empty when there was none. One
// below the mark is taken as it is: if it is damaged, that is to be told.
Result<std::string> LogRecovery::LastRecordBefore(LogLocation location, const std::string& key) {
  while (true) {
    const std::optional<std::string> bytes = TRY(parts_.index.LoadPrevious(location));
    if (!bytes) return std::string();
    const IndexRecord record = TRY(DecodeIndexRecord(key, *bytes));
    const auto* logged = std::get_if<LoggedValue>(&record.place);
    if (logged == nullptr || logged->location < durable_) return *bytes;
    const Result<StoredRecord> read = parts_.reader.Read(key, record);
    if (read.has_value()) return *bytes;
    if (!IsDamage(read.error())) return Failed(read.error());
    location = logged->location;
  }
}

Status LogRecovery::LoadCounts() {
  const std::vector<uint32_t> segments = TRY(parts_.files.List());
  const std::map<uint32_t, uint64_t> bytes = TRY(parts_.index.LoadSegmentBytes());
  parts_.ledger.Load(segments, bytes, TRY(parts_.index.LoadInlineBytes()));
  return {};
}

// New entries never go below the mark: there they would not be verified after a power loss.
Status LogRecovery::FindCursor() {
  LogLocation cursor = durable_;
  if (const std::optional<uint32_t> last = parts_.ledger.last_segment()) {
    const uint64_t end = TRY(parts_.index.EndOfLastEntry(*last));
    cursor = std::max(cursor, {*last, end});
  }
  const std::vector<uint32_t> files = TRY(parts_.files.List());
  const bool is_there = std::binary_search(files.begin(), files.end(), cursor.segment);
  return parts_.ledger.BeginAt(cursor, /*in_new_segment=*/!is_there);
}

Status LogRecovery::CutTails() {
  const LogLocation cursor = parts_.ledger.cursor();
  for (const uint32_t segment : TRY(parts_.files.List())) {
    if (segment < durable_.segment) continue;
    TRY(parts_.files.Trim(segment));  // of what was asked for ahead
    uint64_t end =
        segment == cursor.segment ? cursor.offset : TRY(parts_.index.EndOfLastEntry(segment));
    if (segment == durable_.segment) end = std::max(end, durable_.offset);
    if (TRY(parts_.files.Size(segment)) <= end) continue;
    TRY(parts_.files.Truncate(segment, end));
    Log(LogLevel::kInfo, "unfinished entry cut off",
        {{"store", parts_.directory.path()}, {"where", Where({segment, end})}});
  }
  return {};
}

// A kill forgets which ranges were dead and not given back yet.
Status LogRecovery::ReturnForgottenSpace() {
  constexpr uint64_t kSlack = 64 << 10;
  const LogLocation cursor = parts_.ledger.cursor();
  const std::vector<uint32_t> files = TRY(parts_.files.List());
  for (const uint32_t number : files) {
    const uint64_t live = parts_.ledger.LiveBytes(number);
    if (live == 0 && number < cursor.segment) {
      // Nobody waits for Tidy(): to remove a file of 1 GiB can take half a second.
      parts_.ledger.NoteTrimmable(number);
      continue;
    }
    if (TRY(parts_.files.AllocatedBytes(number)) > live + live / 8 + kSlack) TRY(PunchGaps(number));
    if (number == cursor.segment) continue;
    parts_.ledger.NoteAllocated(number, TRY(parts_.files.AllocatedBytes(number)));
  }
  return {};
}

Status LogRecovery::PunchGaps(uint32_t segment) {
  uint64_t end_of_last = 0;
  IndexScan scan = parts_.index.PlacesOf(segment);
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    const IndexPlace place = TRY(scan.place());
    TRY(parts_.files.Punch(segment, end_of_last, place.location.offset));
    end_of_last = place.end();
  }
  TRY(scan.status());
  return parts_.files.Punch(segment, end_of_last, TRY(parts_.files.Size(segment)));
}

}  // namespace pinstripe
