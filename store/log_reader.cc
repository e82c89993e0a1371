#include "store/log_reader.h"

#include <array>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kMaxHeaderBytes = kMaxKeyBytes + kMaxVersionBytes + kMaxTagBytes + 64;

}  // namespace

void LogReader::ReadFromDisk(bool from_disk) {
  from_disk_ = from_disk;
  if (!from_disk) files_.EndReadingFromDisk();
}

Status LogReader::ReadPieces(LogLocation at, uint64_t offset, std::span<iovec> into, Wait wait) {
  if (wait == Wait::kMayNot) return files_.ReadAtOnce(at.segment, offset, into);
  if (from_disk_) return files_.ReadFromDisk(at.segment, offset, into).Context(Where(at));
  return files_.Read(at.segment, offset, into).Context(Where(at));
}

Result<StoredRecord> LogReader::Read(std::string_view key, const IndexRecord& record,
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
  std::array<iovec, 2> pieces = {iovec{header_bytes.data(), header_bytes.size()},
                                 iovec{value.data(), value.size()}};
  if (part.offset == 0) {
    TRY(ReadPieces(at, at.offset, pieces, wait));
  } else {
    TRY(ReadPieces(at, at.offset, {pieces.data(), 1}, wait));
    TRY(ReadPieces(at, at.offset + place.header_bytes + part.offset, {&pieces[1], 1}, wait));
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

Result<StoredRecord> LogReader::Get(std::string_view key, ValueRange range) {
  std::string seen;
  while (true) {
    std::string bytes = TRY(index_.Find(key));
    const IndexRecord record = TRY(DecodeIndexRecord(key, bytes));
    Result<StoredRecord> read = Read(key, record, range);
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
Result<StoredRecord> LogReader::GetAtOnce(std::string_view key, ValueRange range) {
  const Result<std::string> bytes = index_.Find(key, Wait::kMayNot);
  if (!bytes.has_value()) return bytes.error().code() == ENOENT ? NoSuchKey() : WouldWait();
  const Result<IndexRecord> record = DecodeIndexRecord(key, *bytes);
  if (!record.has_value() || Clip(range, record->head.value_bytes).length > kMaxBytesAtOnce) {
    return WouldWait();
  }
  Result<StoredRecord> read = Read(key, *record, range, Wait::kMayNot);
  if (!read.has_value()) return WouldWait();
  return read;
}

Result<StoredHead> LogReader::Head(std::string_view key) {
  const std::string bytes = TRY(index_.Find(key));
  return TRY(DecodeIndexRecord(key, bytes)).head;
}

Result<std::vector<std::string>> LogReader::Keys(const KeyRange& range, size_t max, bool reverse) {
  std::vector<std::string> keys;
  std::optional<IndexScan> scan = index_.Records(range);
  if (!scan) return keys;
  for (reverse ? scan->SeekToLast() : scan->SeekToFirst(); scan->Valid() && keys.size() < max;
       reverse ? scan->Prev() : scan->Next()) {
    keys.emplace_back(scan->key());
  }
  TRY(scan->status());
  return keys;
}

// Records in the index are all in the scan; for those in the log it knows the keys only, since the
// log moves on.
Result<RangeItem> LogReader::LoadItem(std::string key, std::string_view index_value,
                                      const RangeCollector& collector) {
  RangeItem item{.key = std::move(key)};
  const Status loaded = [&]() -> Status {
    const IndexRecord record = TRY(DecodeIndexRecord(item.key, index_value));
    item.head = record.head;
    item.has_value = collector.WantsValue(record.head);
    if (!item.has_value) return {};
    StoredRecord read =
        TRY(std::holds_alternative<InlineValue>(record.place) ? Read(item.key, record, {})
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

Result<RangeItems> LogReader::Items(const KeyRange& range, const RangeLimits& limits,
                                    bool reverse) {
  RangeCollector collector(limits);
  std::optional<IndexScan> scan = index_.Records(range);
  if (!scan) return collector.Take();
  for (reverse ? scan->SeekToLast() : scan->SeekToFirst(); scan->Valid();
       reverse ? scan->Prev() : scan->Next()) {
    Result<RangeItem> item = LoadItem(std::string(scan->key()), scan->record(), collector);
    if (!item.has_value() && item.error().code() == ENOENT) continue;  // deleted meanwhile
    if (!collector.Add(TRY(std::move(item)))) break;
  }
  TRY(scan->status());
  return collector.Take();
}

}  // namespace pinstripe
