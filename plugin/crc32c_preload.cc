// libPinstripeCrc32c.so: CRC32C for an XRootD server, by ISA-L.
//
// XRootD checks each page of an upload with crc32c() of its libXrdUtils, before any plugin sees the
// page. That is a loop over tables: 1.3 CPU seconds for each GB, more than everything else that a
// gateway does. A library that is loaded before (LD_PRELOAD) and has a function of that name takes
// its place; with an XRootD that has none it does nothing.

#include <cstddef>
#include <cstdint>

#include "base/checksum.h"

// As XrdOuc/XrdOucCRC32C.hh declares it, of 5.x and 6.x: `crc` is the sum of what came before, 0 at
// the beginning.
[[gnu::visibility("default")]] uint32_t crc32c(uint32_t crc, const void* buffer, size_t length);

uint32_t crc32c(uint32_t crc, const void* buffer, size_t length) {
  return pinstripe::Crc32c({static_cast<const std::byte*>(buffer), length}, crc);
}
