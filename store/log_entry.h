// The bytes of a LogStore: what is in its segments and in its index. Pure functions;
// docs/format.md, "Store of a pinstriped drive", is the same in words, and golden tests pin it.
//
// Bytes that are decoded may be anything at all: a disk is not trusted.

#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"
#include "store/store.h"

namespace pinstripe {

// Where a log entry begins.
struct LogLocation {
  uint32_t segment = 0;
  uint64_t offset = 0;
  auto operator<=>(const LogLocation&) const = default;
};

// No segment is as long; whatever names a place beyond it is damaged.
inline constexpr uint64_t kMaxLogOffset = uint64_t{1} << 40;

// What stands before a value in a segment. With it a segment can be read without any index.
struct LogHeader {
  std::string key;
  StoredHead head;
  uint32_t value_crc = 0;
};
std::string EncodeLogHeader(std::string_view key, const StoredHead& head, uint32_t value_crc);
Result<LogHeader> DecodeLogHeader(std::string_view bytes);  // exactly the header

// What the index keeps for a key.
struct InlineValue {
  std::string_view value;  // of the bytes that were decoded
};
struct LoggedValue {
  LogLocation location;
  uint32_t header_bytes = 0;
};
struct IndexRecord {
  StoredHead head;
  uint32_t value_crc = 0;
  std::variant<InlineValue, LoggedValue> place;
};
// Every value of the index ends with a checksum over its key and itself. `key` is the record's.
std::string EncodeIndexRecord(std::string_view key, const IndexRecord& record);
Result<IndexRecord> DecodeIndexRecord(std::string_view key, std::string_view bytes);

inline uint64_t EntryBytes(const IndexRecord& record, const LoggedValue& place) {
  return uint64_t{place.header_bytes} + record.head.value_bytes;
}

// What the index keeps for a place in the log.
struct PlaceRecord {
  uint64_t entry_bytes = 0;  // header and value
  std::string key;
};
std::string EncodePlaceRecord(LogLocation location, const PlaceRecord& place);
Result<PlaceRecord> DecodePlaceRecord(LogLocation location, std::string_view bytes);

std::string EncodeCount(uint64_t count);
Result<uint64_t> DecodeCount(std::string_view bytes);

// Up to where the log survives power loss.
std::string EncodeDurable(LogLocation location);
Result<LogLocation> DecodeDurable(std::string_view bytes);

// Keys of the index. Each kind of them begins with a letter of its own.
std::string RecordIndexKey(std::string_view key);    // "K": records
std::string PlaceIndexKey(LogLocation location);     // "L": entries of the log, in their order
std::string PreviousIndexKey(LogLocation location);  // "P": the record that an entry has replaced
std::string SegmentIndexKey(uint32_t segment);       // "S": bytes of a segment that are in use
std::string InlineBytesIndexKey();                   // "U": bytes in use by records in the index
std::string DurableIndexKey();                       // "W": up to where the log survives power loss

Result<LogLocation> DecodePlaceIndexKey(std::string_view index_key);

// What a small record takes in the index.
inline uint64_t InlineFootprint(std::string_view key, size_t record_bytes) {
  return 1 + key.size() + record_bytes;
}

// A record that cannot be read because of what is on the disk, or is no more: not a disk that fails
// now.
inline bool IsDamage(const Status& failure) {
  return failure.code() == EBADMSG || failure.code() == ENOENT;
}

// For messages.
std::string Where(LogLocation location);
std::string ShortKey(std::string_view key);

}  // namespace pinstripe
