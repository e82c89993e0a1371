#include "cluster/stripes/write_id.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <string>

#include "base/coding.h"

namespace pinstripe {
namespace {

// No count that was written before there was this bit comes near it.
constexpr uint32_t kNamedInShards = uint32_t{1} << 31;

}  // namespace

WriteId MakeWriteId(uint32_t begun, uint64_t writer, uint32_t count) {
  assert(count < kNamedInShards);
  WriteId id{};
  const std::string bytes = Writer().U32(begun).U64(writer).U32(count | kNamedInShards).Take();
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

uint32_t TimeOf(const WriteId& write) {
  return Reader(Bytes(std::as_bytes(std::span(write)))).U32();
}

bool IsNamedInShards(const WriteId& write) { return (write[12] & 0x80) != 0; }

}  // namespace pinstripe
