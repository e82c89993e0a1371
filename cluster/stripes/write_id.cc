#include "cluster/stripes/write_id.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/coding.h"

namespace pinstripe {

WriteId MakeWriteId(uint32_t begun, uint64_t writer, uint32_t count) {
  WriteId id{};
  const std::string bytes = Writer().U32(begun).U64(writer).U32(count).Take();
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

namespace {
constexpr size_t kFlagsByte = 12;  // the highest of the count
constexpr uint8_t kGapsFlag = 0x80;
}  // namespace

WriteId WithGaps(WriteId write) {
  write[kFlagsByte] |= kGapsFlag;
  return write;
}

WriteId WithoutGaps(WriteId write) {
  write[kFlagsByte] &= static_cast<uint8_t>(~kGapsFlag);
  return write;
}

bool HasGaps(const WriteId& write) { return (write[kFlagsByte] & kGapsFlag) != 0; }

uint32_t TimeOf(const WriteId& write) {
  return Reader(Bytes(std::as_bytes(std::span(write)))).U32();
}

}  // namespace pinstripe
