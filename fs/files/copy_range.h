// CopyRange: copies a part of one open file to another one, or to another place of the same. Whole
// blocks are shared where that is possible (OpenFile::ShareBlocks); the other bytes pass through
// memory a few at a time. Holes stay holes.

#pragma once

#include "fs/open_file.h"

namespace pinstripe {

// The number of bytes that were copied: less than `length` where the source ends before, at the
// first failure after some were, or where what can be shared ends: so who copies the rest, however
// the kernel has divided it, begins at a block again; or `most_copied`, which does not count what
// is shared; or up to kMaxFileBytes of the target. EINVAL: the two ranges of one file overlap.
// EFBIG: the target's begins beyond that.
Result<uint64_t> CopyRange(OpenFile& source, uint64_t offset, OpenFile& target,
                           uint64_t target_offset, uint64_t length,
                           uint64_t most_copied = UINT64_MAX);

}  // namespace pinstripe
