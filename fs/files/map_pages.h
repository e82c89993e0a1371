// The pages of block maps, read from the drives and written to them: fs/files/block_map.h says what
// they are.
//
// A page is never changed. A page may be gone although an inode names it. Then the inode was
// changed since it was read, and the finder reads the inode again.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/stripes/store.h"
#include "fs/names/inode.h"

namespace pinstripe {

// `part` of the map of a file of `size` bytes, with its runs. `layout` is the map's. ENOENT and EIO
// as StripeStore::Read; EBADMSG when it is not what it should be.
Result<std::shared_ptr<const BlockMap::Stretch>> LoadPage(StripeStore& stripes, InodeId inode,
                                                          uint64_t size, const StripeLayout& layout,
                                                          const BlockMap::Part& part);

// Puts what is missing for the blocks [first, end) into the map of an inode.
Status LoadPages(StripeStore& stripes, InodeId id, Inode& inode, uint64_t first, uint64_t end);

// Where a block of a file is, or the page that has this block number. Null: neither there, or a
// hole. Loads the page that says so.
Result<std::optional<BlockPlace>> FindStripe(StripeStore& stripes, InodeId id, Inode& inode,
                                             uint64_t block);

// The first out.size() bytes of a block, which are valid, of a place that is not shared any more.
Status ReadBlock(StripeStore& stripes, const BlockPlace& place, uint64_t block, MutableBytes out);

// Brings the map of an inode into the form in which it can be written (BlockMap::Settle) and stores
// the pages for that, each under a write id that `write_id` makes for its block number. The pages
// that were stored are in `written`, also when it fails. Nobody knows of them before the inode is
// written. EFBIG: the map has become too large.
Status StorePages(StripeStore& stripes, InodeId id, Inode& inode, const MapLimits& limits,
                  int parity_shards, Durability durability,
                  const std::function<WriteId(uint64_t block)>& write_id,
                  std::vector<BlockMap::Piece>& written);

}  // namespace pinstripe
