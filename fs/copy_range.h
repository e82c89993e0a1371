// CopyRange: copies a part of one open file to another one, or to another place of the same. The
// bytes pass through memory a few at a time; holes stay holes.

#pragma once

#include "fs/file_system.h"

namespace pinstripe {

// The number of bytes that were copied: less than `length` where the source ends before, or at the
// first failure after some were. EINVAL: the two ranges of one file overlap.
Result<uint64_t> CopyRange(OpenFile& source, uint64_t offset, OpenFile& target,
                           uint64_t target_offset, uint64_t length);

}  // namespace pinstripe
