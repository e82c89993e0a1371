// CheckSummable: of which files the server may compute a checksum by reading them. Pure.
//
// A checksum that is not put together from those of the blocks (fs/files/sums.h) takes all bytes,
// the zeros of holes too, and XRootD tells nobody who computes it that its client has left. So what
// costs nothing to make must not cost much to read.

#pragma once

#include "base/status.h"
#include "fs/file_system.h"

namespace pinstripe {

// The work takes some minutes at most.
inline constexpr uint64_t kMostZerosSummed = uint64_t{64} << 30;

// EFBIG: more than that of it are holes.
Status CheckSummable(const Attributes& attributes);

}  // namespace pinstripe
