#include "store/database_store.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/try.h"
#include "store/log_entry.h"
#include "store/space.h"

namespace pinstripe {
namespace {

// Written by a flush, for its sync alone.
constexpr char kFlushKey[] = "F";

std::string EndOfKeys() { return "L"; }

// The whole record, or with a range a part of its value.
Result<StoredRecord> RecordIn(std::string_view key, std::string_view bytes, ValueRange range) {
  const IndexRecord record = TRY(DecodeIndexRecord(key, bytes));
  const auto* place = std::get_if<InlineValue>(&record.place);
  if (place == nullptr) return Fail(EBADMSG, "the record is of another kind of store");
  const ValuePart part = Clip(range, record.head.value_bytes);
  const Bytes value = AsBytes(place->value).subspan(part.offset, part.length);
  return StoredRecord{record.head, SharedBytes(Buffer::CopyOf(value))};
}

}  // namespace

Result<std::unique_ptr<DatabaseStore>> DatabaseStore::Open(StoreKind kind, const Options& options) {
  TRY(CheckStoreKind(options.path, kind));
  StoreDirectory directory = TRY(StoreDirectory::Open(options.path, options.serial_number));
  const std::string path = PlaceOfStore(directory.path(), kind);
  std::unique_ptr<Database> database =
      TRY(kind == StoreKind::kLevelDb ? OpenLevelDb(path) : OpenRocksDb(path));
  TRY(directory.starts().Begin(""));
  return std::unique_ptr<DatabaseStore>(
      new DatabaseStore(std::move(directory), options, std::move(database)));
}

Result<StoredRecord> DatabaseStore::Get(std::string_view key, ValueRange range) {
  return RecordIn(key, TRY(database_->Get(RecordIndexKey(key))), range);
}

Result<StoredHead> DatabaseStore::Head(std::string_view key) {
  return TRY(RecordIn(key, TRY(database_->Get(RecordIndexKey(key))), {0, 0})).head;
}

Result<std::vector<std::string>> DatabaseStore::Keys(const KeyRange& range, size_t max,
                                                     bool reverse) {
  const auto after = [](std::string key, bool one_more) { return one_more ? key + '\0' : key; };
  const std::string first = after(RecordIndexKey(range.first), !range.first_included);
  const std::string end =
      range.last ? after(RecordIndexKey(*range.last), range.last_included) : EndOfKeys();
  std::vector<std::string> keys;
  const std::unique_ptr<Database::Cursor> cursor = database_->NewCursor();
  for (reverse ? cursor->SeekForPrevious(end) : cursor->Seek(first);
       cursor->valid() && keys.size() < max && cursor->key() >= first && cursor->key() < end;
       reverse ? cursor->Previous() : cursor->Next()) {
    keys.emplace_back(cursor->key().substr(1));
  }
  TRY(cursor->status());
  return keys;
}

Status DatabaseStore::Put(std::string_view key, const StoredRecord& record, Room room) {
  const StoreChange change{key, &record, nullptr, room};
  return Apply({&change, 1});
}

Status DatabaseStore::Delete(std::string_view key) {
  TRY(database_->Get(RecordIndexKey(key)));
  const Database::Change change{RecordIndexKey(key), nullptr};
  return database_->Write({&change, 1}, /*sync=*/false);
}

Status DatabaseStore::Apply(std::span<const StoreChange> changes) {
  std::vector<std::string> values(changes.size());
  std::vector<Database::Change> made;
  uint64_t bytes = 0;
  Room room = Room::kFreeing;  // what all of them may take
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto& [key, record, expected, each_room, needs] = changes[i];
    if (record != nullptr) room = std::min(room, each_room);
    if (record == nullptr) {
      made.push_back({RecordIndexKey(key), nullptr});
      continue;
    }
    StoredHead head = record->head;
    head.value_bytes = static_cast<uint32_t>(record->value.size());
    values[i] = EncodeIndexRecord(key, {.head = std::move(head),
                                        .value_crc = record->ValueCrc(),
                                        .place = InlineValue{AsText(record->value)}});
    bytes += values[i].size();
    made.push_back({RecordIndexKey(key), &values[i]});
  }
  if (bytes > 0) TRY(CheckSpace(bytes, room));
  return database_->Write(made, /*sync=*/false);
}

Status DatabaseStore::Flush() {
  const std::string nothing;
  const Database::Change change{kFlushKey, &nothing};
  const Status synced = database_->Write({&change, 1}, /*sync=*/true);
  if (synced.ok()) return {};
  directory_.starts().NoteFailedSync();
  return Fail(EIO, "{}", synced.message());  // what was to be safe is there, or is not
}

Status DatabaseStore::EndCleanly() {
  TRY(Flush());
  return directory_.starts().End();
}

StoreUsage DatabaseStore::Usage() {
  StoreUsage usage;
  usage.used_bytes = database_->ApproximateBytes();
  usage.capacity_bytes =
      options_.capacity_bytes - ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  if (usage.capacity_bytes != 0) return usage;
  struct statvfs about;
  if (statvfs(directory_.path().c_str(), &about) != 0) return usage;
  const uint64_t free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
  usage.capacity_bytes =
      usage.used_bytes + free_bytes - std::min(free_bytes, options_.reserve_bytes);
  return usage;
}

Status DatabaseStore::CheckSpace(uint64_t more, Room room) {
  const StoreUsage usage = Usage();
  if (options_.capacity_bytes == 0) {
    struct statvfs about;
    if (statvfs(directory_.path().c_str(), &about) != 0) {
      return Fail(EIO, "cannot look at {}: {}", directory_.path(), ErrnoText(errno));
    }
    const uint64_t free_bytes = uint64_t{about.f_bavail} * about.f_frsize;
    if (free_bytes >= KeptFree(room, options_.reserve_bytes) + more) return {};
    return Fail(ENOSPC, "full: {} of {} bytes are used", usage.used_bytes, usage.capacity_bytes);
  }
  const uint64_t reserve = ReserveOf(options_.capacity_bytes, options_.reserve_bytes);
  if (usage.used_bytes + more <= usage.capacity_bytes + reserve - KeptFree(room, reserve)) {
    return {};
  }
  return Fail(ENOSPC, "full: {} of {} bytes are used", usage.used_bytes, usage.capacity_bytes);
}

}  // namespace pinstripe
