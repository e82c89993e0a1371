#include "fs/cache/disk_cache_format.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMagic = "pinstripe cells\n";
constexpr uint32_t kFormat = 1;
constexpr size_t kUuidBytes = 16;
constexpr size_t kSealBytes = 4;

uint32_t SealOf(std::string_view bytes, std::string_view context) {
  return Crc32c(AsBytes(bytes), Crc32c(AsBytes(context)));
}

std::string Sealed(std::string bytes, std::string_view context) {
  return Writer().Raw(bytes).U32(SealOf(bytes, context)).Take();
}

// Without the seal.
Result<Reader> Open(std::string_view bytes, std::string_view context, std::string_view what) {
  if (bytes.size() < kSealBytes) return Fail(EBADMSG, "{} is cut", what);
  const std::string_view inner = bytes.substr(0, bytes.size() - kSealBytes);
  if (Reader(bytes.substr(inner.size())).U32() != SealOf(inner, context)) {
    return Fail(EBADMSG, "{} has another checksum than it should", what);
  }
  return Reader(inner);
}

}  // namespace

std::string CacheSegmentHeader::Encode() const {
  return Sealed(Writer().Raw(kMagic).U32(kFormat).Raw(cluster).U64(number).U32(slots).Take(), "");
}

Result<CacheSegmentHeader> CacheSegmentHeader::Decode(std::string_view bytes) {
  constexpr std::string_view kWhat = "header of a cache segment";
  Reader reader = TRY(Open(bytes, "", kWhat));
  const std::string_view magic = reader.Raw(kMagic.size());
  const uint32_t format = reader.U32();
  CacheSegmentHeader header;
  header.cluster = reader.Raw(kUuidBytes);
  header.number = reader.U64();
  header.slots = reader.U32();
  TRY(reader.Finish(kWhat));
  if (magic != kMagic || format != kFormat) return Fail(EBADMSG, "no cache segment of format 1");
  if (header.slots < 1 || header.slots > kMostSlots) {
    return Fail(EBADMSG, "{} names {} slots", kWhat, header.slots);
  }
  return header;
}

uint64_t CacheSegmentHeader::CellsBegin() const {
  return (CacheSlot::PositionOf(slots) + kCellAlignment - 1) / kCellAlignment * kCellAlignment;
}

std::string CacheSlot::Encode(std::string_view header) const {
  return Sealed(Writer()
                    .U64(key.stripe.object)
                    .U64(key.stripe.block)
                    .Raw(Bytes(std::as_bytes(std::span(key.stripe.write))))
                    .U32(key.offset)
                    .U32(bytes)
                    .U64(position)
                    .U32(crc)
                    .Take(),
                header);
}

Result<CacheSlot> CacheSlot::Decode(std::string_view bytes, std::string_view header) {
  constexpr std::string_view kWhat = "slot of a cache segment";
  Reader reader = TRY(Open(bytes, header, kWhat));
  CacheSlot slot;
  slot.key.stripe.object = reader.U64();
  slot.key.stripe.block = reader.U64();
  const std::string_view write = reader.Raw(slot.key.stripe.write.size());
  std::copy(write.begin(), write.end(), slot.key.stripe.write.begin());
  slot.key.offset = reader.U32();
  slot.bytes = reader.U32();
  slot.position = reader.U64();
  slot.crc = reader.U32();
  TRY(reader.Finish(kWhat));
  if (slot.bytes < 1 || slot.bytes > kCellBytes || slot.position % kCellAlignment != 0 ||
      slot.position > kMostPosition) {
    return Fail(EBADMSG, "{} says {} bytes at {}", kWhat, slot.bytes, slot.position);
  }
  return slot;
}

}  // namespace pinstripe
