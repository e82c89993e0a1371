// libPinstripeCrc32c.so: CRC32C for an XRootD server, by ISA-L.
//
// XRootD checks each page of an upload with crc32c() of its libXrdUtils, before any plugin sees the
// page. That is a loop over tables: 1.3 CPU seconds for each GB, more than everything else that a
// gateway does. A library that is loaded before (LD_PRELOAD) and has a function of that name takes
// its place; with an XRootD that has none it does nothing.

#include <isa-l/crc.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>

// As XrdOuc/XrdOucCRC32C.hh declares it, of 5.x and 6.x: `crc` is the sum of what came before, 0 at
// the beginning.
[[gnu::visibility("default")]] uint32_t crc32c(uint32_t crc, const void* buffer, size_t length);

uint32_t crc32c(uint32_t crc, const void* buffer, size_t length) {
  auto* at = static_cast<unsigned char*>(const_cast<void*>(buffer));
  uint32_t inverted = ~crc;
  while (length > 0) {
    const size_t step = std::min<size_t>(length, INT_MAX);
    inverted = crc32_iscsi(at, static_cast<int>(step), inverted);
    at += step;
    length -= step;
  }
  return ~inverted;
}
