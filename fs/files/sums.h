// Checksums of whole files, put together from those of their blocks. The blocks are never changed,
// so what comes out is exactly the sum of the inode that went in, however old that is by then.

#pragma once

#include <functional>

#include "base/memory_budget.h"
#include "cluster/stripes/store.h"
#include "fs/files/keepers.h"
#include "fs/names/inode.h"
#include "fs/types.h"

namespace pinstripe {

// The sums of `length` zeros.
BlockSums SumsOfZeros(uint64_t length);

// The sums of the contents of a regular file. Data is read only of blocks that are not full, were
// cut, have patches, or have a data shard that is not to be had; `reserve` gives the memory for it.
Result<FileSums> SumUpFile(
    StripeStore& stripes, KeeperMaps& keepers, InodeId id, Inode inode,
    const std::function<Result<MemoryBudget::Share>(uint64_t bytes)>& reserve);

}  // namespace pinstripe
