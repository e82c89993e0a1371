#include "redis/stored_record.h"

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

uint32_t SumOf(std::string_view version, std::string_view tag) {
  return Crc32c(AsBytes(tag), Crc32c(AsBytes(version)));
}

}  // namespace

std::string StoredEnd(std::string_view version, std::string_view tag) {
  return Writer()
      .Raw(version)
      .Raw(tag)
      .U32(SumOf(version, tag))
      .U16(static_cast<uint16_t>(version.size()))
      .U8(static_cast<uint8_t>(tag.size()))
      .U8(kStoredForm)
      .Take();
}

Result<Record> ParseStored(const SharedBytes& bytes) {
  if (bytes.size() < kStoredEndBytes) return Fail(EBADMSG, "its record has {} bytes", bytes.size());
  Reader end(bytes.text().substr(bytes.size() - kStoredEndBytes));
  const uint32_t sum = end.U32();
  const size_t version_bytes = end.U16();
  const size_t tag_bytes = end.U8();
  const uint8_t form = end.U8();
  const size_t left = bytes.size() - kStoredEndBytes;
  if (form != kStoredForm || version_bytes > kMaxVersionBytes || tag_bytes > kMaxTagBytes ||
      version_bytes + tag_bytes > left) {
    return Fail(EBADMSG, "its record was not made by Pinstripe, or is damaged");
  }
  const size_t value_bytes = left - version_bytes - tag_bytes;
  Record record;
  record.version = bytes.text().substr(value_bytes, version_bytes);
  record.tag = bytes.text().substr(value_bytes + version_bytes, tag_bytes);
  record.value = bytes.Slice(0, value_bytes);
  if (SumOf(record.version, record.tag) != sum) {
    return Fail(EBADMSG, "the version of its record is damaged");
  }
  return record;
}

}  // namespace pinstripe
