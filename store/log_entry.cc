#include "store/log_entry.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint32_t kMagic = 0x50734c65;  // "PsLe"
constexpr uint8_t kLogFormat = 1;
constexpr uint8_t kIndexFormat = 2;
constexpr uint8_t kHasAlgorithm = 1;
constexpr uint8_t kInLog = 2;
constexpr size_t kCrcBytes = 4;

Status CheckFormat(std::string_view what, uint8_t format, uint8_t known) {
  if (format == known) return {};
  return Fail(EBADMSG, "{} has format {}; this program knows {}", what, format, known);
}

// What stands behind a value of the index: the checksum of its key and of itself, so that a value
// that got to another key is found out too.
std::string Sealed(std::string_view index_key, Writer value) {
  const uint32_t crc = Crc32c(AsBytes(value.bytes()), Crc32c(AsBytes(index_key)));
  return value.U32(crc).Take();
}

// The value without its seal.
Result<std::string_view> Unsealed(std::string_view what, std::string_view index_key,
                                  std::string_view bytes) {
  if (bytes.size() < kCrcBytes) return Fail(EBADMSG, "{} is cut off", what);
  const std::string_view value = bytes.substr(0, bytes.size() - kCrcBytes);
  const uint32_t crc = Crc32c(AsBytes(value), Crc32c(AsBytes(index_key)));
  if (Reader(bytes.substr(value.size())).U32() != crc) {
    return Fail(EBADMSG, "{} has a wrong checksum", what);
  }
  return value;
}

uint32_t AlgorithmBits(const StoredHead& head) {
  return static_cast<uint32_t>(head.algorithm.value_or(0));
}

// There is one way to write each thing: what nobody writes makes the reader bad.
std::optional<int32_t> AlgorithmFrom(uint8_t flags, Reader& reader) {
  const uint32_t bits = reader.U32();
  if ((flags & kHasAlgorithm) != 0) return static_cast<int32_t>(bits);
  if (bits != 0) reader.MarkBad();
  return std::nullopt;
}

LogLocation ReadLocation(Reader& reader) {
  LogLocation location;
  location.segment = reader.U32();
  location.offset = reader.U64();
  if (location.offset > kMaxLogOffset) reader.MarkBad();
  return location;
}

}  // namespace

std::string EncodeLogHeader(std::string_view key, const StoredHead& head, uint32_t value_crc) {
  Writer body;
  body.U32(head.value_bytes).U32(value_crc);
  body.U8(head.algorithm ? kHasAlgorithm : 0).U32(AlgorithmBits(head));
  body.Text(key).Text(head.version).Text(head.tag);
  constexpr size_t kFixed = 4 + 1 + 4;  // magic, format, length
  Writer header;
  header.U32(kMagic).U8(kLogFormat);
  header.U32(static_cast<uint32_t>(kFixed + body.bytes().size() + kCrcBytes));
  header.Raw(std::string_view(body.bytes()));
  header.U32(Crc32c(AsBytes(header.bytes())));
  return header.Take();
}

Result<LogHeader> DecodeLogHeader(std::string_view bytes) {
  if (bytes.size() < kCrcBytes) return Fail(EBADMSG, "a log entry's header is cut off");
  const std::string_view covered = bytes.substr(0, bytes.size() - kCrcBytes);
  if (Reader(bytes.substr(covered.size())).U32() != Crc32c(AsBytes(covered))) {
    return Fail(EBADMSG, "a log entry's header has a wrong checksum");
  }
  Reader reader(covered);
  if (reader.U32() != kMagic) return Fail(EBADMSG, "a log entry begins with wrong bytes");
  TRY(CheckFormat("a log entry", reader.U8(), kLogFormat));
  const uint32_t header_bytes = reader.U32();
  LogHeader header;
  header.head.value_bytes = reader.U32();
  header.value_crc = reader.U32();
  const uint8_t flags = reader.U8();
  if ((flags & ~kHasAlgorithm) != 0) reader.MarkBad();
  header.head.algorithm = AlgorithmFrom(flags, reader);
  header.key = reader.Text();
  header.head.version = reader.Text();
  header.head.tag = reader.Text();
  TRY(reader.Finish("a log entry's header"));
  if (header_bytes != bytes.size()) return Fail(EBADMSG, "a log entry's header has a wrong length");
  return header;
}

std::string EncodeIndexRecord(std::string_view key, const IndexRecord& record) {
  const auto* logged = std::get_if<LoggedValue>(&record.place);
  Writer writer;
  writer.U8(kIndexFormat);
  writer.U8((record.head.algorithm ? kHasAlgorithm : 0) | (logged != nullptr ? kInLog : 0));
  writer.U32(AlgorithmBits(record.head)).U32(record.head.value_bytes).U32(record.value_crc);
  writer.Text(record.head.version).Text(record.head.tag);
  if (logged != nullptr) {
    writer.U32(logged->location.segment).U64(logged->location.offset).U32(logged->header_bytes);
  } else {
    writer.Raw(std::get<InlineValue>(record.place).value);
  }
  return Sealed(key, std::move(writer));
}

Result<IndexRecord> DecodeIndexRecord(std::string_view key, std::string_view bytes) {
  Reader reader(TRY(Unsealed("an index record", key, bytes)));
  TRY(CheckFormat("an index record", reader.U8(), kIndexFormat));
  IndexRecord record;
  const uint8_t flags = reader.U8();
  if ((flags & ~(kHasAlgorithm | kInLog)) != 0) reader.MarkBad();
  record.head.algorithm = AlgorithmFrom(flags, reader);
  record.head.value_bytes = reader.U32();
  record.value_crc = reader.U32();
  record.head.version = reader.Text();
  record.head.tag = reader.Text();
  if (flags & kInLog) {
    LoggedValue place;
    place.location = ReadLocation(reader);
    place.header_bytes = reader.U32();
    record.place = place;
  } else {
    record.place = InlineValue{reader.Raw(record.head.value_bytes)};
  }
  TRY(reader.Finish("an index record"));
  return record;
}

std::string EncodePlaceRecord(LogLocation location, const PlaceRecord& place) {
  Writer value;
  value.U8(kIndexFormat).U64(place.entry_bytes).Raw(std::string_view(place.key));
  return Sealed(PlaceIndexKey(location), std::move(value));
}

Result<PlaceRecord> DecodePlaceRecord(LogLocation location, std::string_view bytes) {
  constexpr std::string_view kWhat = "a place in the index";
  Reader reader(TRY(Unsealed(kWhat, PlaceIndexKey(location), bytes)));
  TRY(CheckFormat(kWhat, reader.U8(), kIndexFormat));
  PlaceRecord record;
  record.entry_bytes = reader.U64();
  if (record.entry_bytes > kMaxLogOffset - std::min(location.offset, kMaxLogOffset)) {
    reader.MarkBad();
  }
  record.key = reader.Rest();
  TRY(reader.Finish(kWhat));
  return record;
}

std::string EncodeCount(uint64_t count) { return Sealed({}, std::move(Writer().U64(count))); }

Result<uint64_t> DecodeCount(std::string_view bytes) {
  constexpr std::string_view kWhat = "a count in the index";
  Reader reader(TRY(Unsealed(kWhat, {}, bytes)));
  const uint64_t count = reader.U64();
  TRY(reader.Finish(kWhat));
  return count;
}

std::string RecordIndexKey(std::string_view key) {
  std::string index_key;
  index_key.reserve(1 + key.size());
  index_key += 'K';
  index_key += key;
  return index_key;
}

std::string PlaceIndexKey(LogLocation location) {
  return Writer().U8('L').U32(location.segment).U64(location.offset).Take();
}

std::string PreviousIndexKey(LogLocation location) {
  return Writer().U8('P').U32(location.segment).U64(location.offset).Take();
}

std::string SegmentIndexKey(uint32_t segment) { return Writer().U8('S').U32(segment).Take(); }

std::string InlineBytesIndexKey() { return "U"; }

std::string DurableIndexKey() { return "W"; }

std::string EncodeDurable(LogLocation location) {
  return Sealed(DurableIndexKey(), std::move(Writer().U32(location.segment).U64(location.offset)));
}

Result<LogLocation> DecodeDurable(std::string_view bytes) {
  constexpr std::string_view kWhat = "the mark in the index";
  Reader reader(TRY(Unsealed(kWhat, DurableIndexKey(), bytes)));
  const LogLocation location = ReadLocation(reader);
  TRY(reader.Finish(kWhat));
  return location;
}

Result<LogLocation> DecodePlaceIndexKey(std::string_view index_key) {
  Reader reader(index_key);
  if (reader.U8() != 'L') reader.MarkBad();
  const LogLocation location = ReadLocation(reader);
  TRY(reader.Finish("the key of a place in the index"));
  return location;
}

std::string Where(LogLocation location) {
  return fmt::format("segment {:08x} at {}", location.segment, location.offset);
}

std::string ShortKey(std::string_view key) {
  return Hex(AsBytes(key.substr(0, 48))) + (key.size() > 48 ? "..." : "");
}

}  // namespace pinstripe
