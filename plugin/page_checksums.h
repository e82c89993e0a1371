// Checksums of pages, as XRootD's kXR_pgread and kXR_pgwrite (OssFile::pgRead, OssFile::pgWrite)
// exchange them: one CRC32C for every page of 4 KiB of the file that a range touches. The first and
// the last page may be touched in part. Pure.
//
// Our own, because XRootD's crc32c executes CPUID for every page, which in a virtual machine costs
// more than everything else that a download does.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace pinstripe {

inline constexpr size_t kPageBytes = 4096;

size_t PageCount(uint64_t offset, size_t length);

// `data` lies at `offset` of the file; `sums` has room for PageCount() sums, in host order.
void PageChecksums(uint64_t offset, Bytes data, uint32_t* sums);

bool PageChecksumsMatch(uint64_t offset, Bytes data, const uint32_t* sums);

}  // namespace pinstripe
