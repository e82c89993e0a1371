// Checksums of pages, as XRootD's kXR_pgread and kXR_pgwrite (OssFile::pgRead, OssFile::pgWrite)
// exchange them: one CRC32C for every page of 4 KiB of the file that a range touches. The first and
// the last page may be touched in part. Pure.
//
// Our own, because XRootD's crc32c executes CPUID for every page, which in a virtual machine costs
// more than everything else that a download does.

#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/checksum.h"
#include "fs/types.h"

namespace pinstripe {

// `data` lies at `offset` of the file; `sums` has room for CountFilePages() sums, in host order.
void PageChecksums(uint64_t offset, Bytes data, uint32_t* sums);

// Of those that are not known.
void PageChecksums(uint64_t offset, Bytes data, std::span<const PageSum> known, uint32_t* sums);

bool PageChecksumsMatch(uint64_t offset, Bytes data, const uint32_t* sums);

}  // namespace pinstripe
