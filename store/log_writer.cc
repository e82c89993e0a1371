#include "store/log_writer.h"

#include <map>
#include <utility>
#include <vector>

#include "base/try.h"

namespace pinstripe {
namespace {

iovec Piece(const void* data, size_t size) { return {const_cast<void*>(data), size}; }

// Of puts that are made together, what all of them may take.
Room RoomOf(std::span<const StoreChange> changes) {
  Room room = Room::kFreeing;
  for (const StoreChange& change : changes) {
    if (change.record != nullptr) room = std::min(room, change.room);
  }
  return room;
}

}  // namespace

Status LogWriter::Make(std::span<const StoreChange> changes, Together together, Wait wait) {
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
  const uint64_t more = entry_bytes + change.log.inline_added -
                        std::min(change.log.inline_added, change.log.inline_removed);
  if (more > 0) TRY(parts_.room.Check(more, RoomOf(changes)));
  const Status appended = [&]() -> Status {
    TRY(Append(plans, change));
    // An entry that power loss tears is undone by itself, and would leave the others of its batch.
    const bool sync = together == Together::kAllOrNone && changes.size() > 1;
    if (!sync) return {};
    return SyncEntries(change);
  }();
  if (!appended.ok()) {
    parts_.ledger.Abandon(change.log);
    return appended;
  }
  return Commit(change, wait);
}

// What the index is going to say, except for the places in the log.
Status LogWriter::Plan(const StoreChange& asked, Wait wait, Planned& plan, Change& change) {
  Result<std::string> found = parts_.index.Find(asked.key, wait);
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
    change.batch.DeleteRecord(asked.key);
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
  std::string bytes = EncodeIndexRecord(
      asked.key,
      {.head = plan.head, .value_crc = plan.value_crc, .place = InlineValue{AsText(plan.value)}});
  change.log.inline_added += InlineFootprint(asked.key, bytes.size());
  change.batch.PutRecord(asked.key, std::move(bytes), IndexBatch::Remember::kNo);
  return {};
}

// Takes the record that is there out of the index and its bytes out of the log.
void LogWriter::Forget(std::string_view key, const IndexRecord& old, size_t record_bytes,
                       Change& change) {
  const auto* place = std::get_if<LoggedValue>(&old.place);
  if (place == nullptr) {
    change.log.inline_removed += InlineFootprint(key, record_bytes);
    return;
  }
  change.log.removed.push_back({place->location, EntryBytes(old, *place)});
  change.batch.DeletePlace(place->location);
}

// One after the other in the log, with a write for as many as follow each other.
Status LogWriter::Append(std::span<const Planned> plans, Change& change) {
  std::vector<const Planned*> logged;
  for (const Planned& plan : plans) {
    if (!plan.header.empty()) logged.push_back(&plan);
  }
  if (logged.empty()) return {};
  std::vector<uint64_t> entry_bytes;
  for (const Planned* plan : logged) entry_bytes.push_back(plan->entry_bytes());
  TRY(parts_.ledger.Reserve(entry_bytes, change.log));
  const std::vector<LogLedger::Entry>& added = change.log.added;
  constexpr size_t kMostAtOnce = 256;
  for (size_t begin = 0, end = 0; begin < logged.size(); begin = end) {
    LogLocation next = added[begin].location;
    do {
      next.offset += added[end++].bytes;
    } while (end < logged.size() && added[end].location == next && end - begin < kMostAtOnce);
    TRY(WriteEntries(std::span(logged).subspan(begin, end - begin), added[begin].location, change));
  }
  // One kind of index key after the other, for each is put beside the one before it.
  for (size_t i = 0; i < logged.size(); ++i) {
    const Planned& plan = *logged[i];
    const LoggedValue place{added[i].location, static_cast<uint32_t>(plan.header.size())};
    std::string record = EncodeIndexRecord(
        plan.key, {.head = plan.head, .value_crc = plan.value_crc, .place = place});
    change.batch.PutRecord(plan.key, std::move(record), IndexBatch::Remember::kYes);
  }
  for (size_t i = 0; i < logged.size(); ++i) {
    const Planned& plan = *logged[i];
    change.batch.PutPlace(added[i].location, {plan.entry_bytes(), std::string(plan.key)});
  }
  for (size_t i = 0; i < logged.size(); ++i) {
    if (!logged[i]->old) continue;
    change.batch.PutPrevious(added[i].location, *logged[i]->old);
    change.log.replacing.push_back(added[i].location);
  }
  return {};
}

// Entries that follow each other in one segment.
Status LogWriter::WriteEntries(std::span<const Planned* const> plans, LogLocation begin,
                               Change& change) {
  std::vector<iovec> pieces;
  pieces.reserve(2 * plans.size());
  uint64_t bytes = 0;
  for (const Planned* plan : plans) {
    pieces.push_back(Piece(plan->header.data(), plan->header.size()));
    pieces.push_back(Piece(plan->value.data(), plan->value.size()));
    bytes += plan->entry_bytes();
  }
  const Result<SegmentFiles::Held> written =
      parts_.files.Write(begin.segment, begin.offset, pieces);
  if (!written.has_value()) {
    if (written.error().code() == ENOSPC) return written.error();
    return Fail(EIO, "{}", written.error().message());
  }
  change.written.try_emplace(begin.segment, *written);
  parts_.ledger.NoteWritten(begin.segment, *written, bytes);
  return {};
}

// Entries stay above the mark: others before them may not be durable.
Status LogWriter::SyncEntries(const Change& change) {
  for (const auto& [segment, held] : change.written) {
    const Status synced = parts_.files.Sync(segment, held);
    if (!synced.ok()) return parts_.health.BreakOn(synced);
  }
  return {};
}

Status LogWriter::Commit(Change& change, Wait wait) {
  LogLedger::Change& log = change.log;
  std::map<uint32_t, uint64_t> differences;  // of segments' counts; taken modulo 2^64
  for (const auto& [location, bytes] : log.added) differences[location.segment] += bytes;
  for (const auto& [location, bytes] : log.removed) differences[location.segment] -= bytes;
  for (const auto& [segment, difference] : differences) {
    if (difference != 0) change.batch.AddToSegment(segment, difference);
  }
  if (log.inline_added != log.inline_removed) {
    change.batch.AddToInlineBytes(log.inline_added - log.inline_removed);
  }
  parts_.ledger.BeginDying(log);
  const Status written = parts_.index.Write(change.batch, wait);
  if (written.code() == EAGAIN) {
    parts_.ledger.ForgetDying(log);
    return written;
  }
  // Whether the record will be there after the next start is not known now, so nothing may be given
  // back or built upon it.
  if (!written.ok()) return parts_.health.BreakOn(written);
  parts_.ledger.Commit(log);
  return {};
}

Status LogWriter::Delete(std::string_view key) {
  const KeyLocks::Hold hold(key_locks_, key);
  const std::string bytes = TRY(parts_.index.Find(key));
  Change change;
  // If the old record is damaged, nobody knows what it used.
  const Result<IndexRecord> old = DecodeIndexRecord(key, bytes);
  if (old.has_value()) Forget(key, *old, bytes.size(), change);
  change.batch.DeleteRecord(key);
  return Commit(change);
}

// A put of what is there already.
Status LogWriter::Move(LogLocation location, const PlaceRecord& place) {
  const KeyLocks::Hold hold(key_locks_, place.key);
  if (!TRY(parts_.index.HasPlace(location))) return {};  // replaced or deleted since
  const std::string old = TRY(parts_.index.Load(place.key));
  const IndexRecord record = TRY(DecodeIndexRecord(place.key, old));
  const auto* logged = std::get_if<LoggedValue>(&record.place);
  if (logged == nullptr || logged->location != location) {
    return Fail(EBADMSG, "{} is kept for another record", Where(location));
  }
  const StoredRecord read = TRY(parts_.reader.Read(place.key, record));
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
    parts_.ledger.Abandon(change.log);
    return appended;
  }
  return Commit(change);
}

}  // namespace pinstripe
