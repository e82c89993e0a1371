#include "plugin/page_checksums.h"

#include <algorithm>

namespace pinstripe {
namespace {

// Calls visit(page's bytes) until it returns false; whether it never did.
template <typename Visit>
bool ForEachPage(uint64_t offset, Bytes data, Visit visit) {
  size_t length = kFilePageBytes - offset % kFilePageBytes;
  while (!data.empty()) {
    const Bytes page = data.first(std::min(length, data.size()));
    if (!visit(page)) return false;
    data = data.subspan(page.size());
    length = kFilePageBytes;
  }
  return true;
}

}  // namespace

void PageChecksums(uint64_t offset, Bytes data, uint32_t* sums) {
  ForEachPage(offset, data, [&](Bytes page) {
    *sums++ = Crc32c(page);
    return true;
  });
}

void PageChecksums(uint64_t offset, Bytes data, std::span<const PageSum> known, uint32_t* sums) {
  auto next = known.begin();
  ForEachPage(offset, data, [&](Bytes page) {
    *sums++ = next->known ? next->crc32c : Crc32c(page);
    ++next;
    return true;
  });
}

bool PageChecksumsMatch(uint64_t offset, Bytes data, const uint32_t* sums) {
  return ForEachPage(offset, data, [&](Bytes page) { return *sums++ == Crc32c(page); });
}

}  // namespace pinstripe
