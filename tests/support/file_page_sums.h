// The checksums of a file's pages, as XRootD's clients send them and get them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/checksum.h"
#include "fs/types.h"

namespace pinstripe {

// Of `data`, which lies at `offset` of the file.
inline std::vector<uint32_t> FilePageSums(uint64_t offset, Bytes data) {
  std::vector<uint32_t> sums;
  for (size_t done = 0; done < data.size();) {
    const size_t size =
        std::min<size_t>(data.size() - done, kFilePageBytes - (offset + done) % kFilePageBytes);
    sums.push_back(Crc32c(data.subspan(done, size)));
    done += size;
  }
  return sums;
}

}  // namespace pinstripe
