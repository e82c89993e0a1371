#include "base/checksum.h"
#include "base/coding.h"
#include "engines/engine.h"

namespace pinstripe {
namespace {

constexpr uint8_t kForm = 1;
constexpr size_t kSumBytes = 4;

}  // namespace

std::string EncodeEngineRecord(const Record& record) {
  std::string bytes = Writer().U8(kForm).Text(record.version).Text(record.tag).Take();
  const uint32_t sum = Crc32c(record.value, Crc32c(AsBytes(bytes)));
  bytes.reserve(bytes.size() + kSumBytes + record.value.size());
  bytes += Writer().U32(sum).bytes();
  bytes += record.value.text();
  return bytes;
}

Result<Record> DecodeEngineRecord(SharedBytes bytes) {
  Reader reader(bytes.text());
  const uint8_t form = reader.U8();
  const std::string_view version = reader.Text();
  const std::string_view tag = reader.Text();
  const size_t head_bytes = bytes.size() - reader.left();
  const uint32_t sum = reader.U32();
  const size_t value_bytes = reader.left();
  if (!reader.ok() || form != kForm || version.size() > kMaxVersionBytes ||
      tag.size() > kMaxTagBytes || value_bytes > kMaxValueBytes) {
    return Fail(EBADMSG, "the record was not made by Pinstripe, or is damaged");
  }
  Record record{.version = std::string(version),
                .tag = std::string(tag),
                .value = bytes.Slice(head_bytes + kSumBytes, value_bytes)};
  if (Crc32c(record.value, Crc32c(bytes.bytes().first(head_bytes))) != sum) {
    return Fail(EBADMSG, "the record does not match its checksum");
  }
  return record;
}

}  // namespace pinstripe
