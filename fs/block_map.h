// BlockMap: where the blocks of a file are. Pure: a value, part of the inode.
//
// A file of `size` bytes has ceil(size / block_bytes) blocks. The map says of each whether it is a
// hole or which stripe holds it; neighbours that differ in nothing but their number are one run, so
// a file written in one go is one run however long it is. docs/format.md, "Block map", has the
// bytes.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "base/status.h"
#include "cluster/stripe_store.h"

namespace pinstripe {

// A block that is stored. Bytes from `valid` to the end of the block read as zeros.
struct BlockPlace {
  uint64_t object = 0;  // in the shards' keys: the inode that the block was written for
  WriteId write{};
  StripeLayout layout;
  StripePlace place;
  uint32_t stored = 0;  // length of the block as it was written
  uint32_t valid = 0;   // how much of that still counts: less after a truncation

  bool SameStripe(const BlockPlace& other) const {
    return object == other.object && write == other.write;
  }
  StripeId IdOf(uint64_t block) const { return {object, block, write}; }
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

// Consecutive blocks. All but the last are stored, and valid, in full.
struct BlockRun {
  struct Moved {
    uint64_t index = 0;  // of the block in the run
    StripePlace::Moved shard;
    friend bool operator==(const Moved&, const Moved&) = default;
  };
  uint64_t count = 0;
  bool hole = true;
  // of a run with data:
  uint64_t object = 0;
  WriteId write{};
  Epoch epoch = 0;
  StripeLayout layout;
  uint32_t last_stored = 0;
  uint32_t last_valid = 0;
  std::vector<Moved> moved;  // ascending by index, then shard
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

class BlockMap {
 public:
  // `layout` is how new blocks of the file are coded; its block size is the map's for ever.
  BlockMap() = default;
  explicit BlockMap(const StripeLayout& layout) : layout_(layout) {}

  const StripeLayout& layout() const { return layout_; }
  uint64_t block_bytes() const { return layout_.block_bytes(); }
  uint64_t blocks() const { return blocks_; }
  const std::vector<BlockRun>& runs() const { return runs_; }

  // Null: a hole, or beyond the end.
  std::optional<BlockPlace> Find(uint64_t block) const;

  // The block exists (Resize).
  void Set(uint64_t block, const BlockPlace& place);
  void SetHole(uint64_t block);

  // Makes the map that of a file of `size` bytes: what is beyond is forgotten, what is new is a
  // hole.
  void Resize(uint64_t size);

  uint64_t StoredBytes() const;  // valid bytes of all blocks

  // The stripes that are in `*this` and not in `other`, as runs with their first block.
  struct Piece {
    uint64_t first = 0;
    BlockRun run;
  };
  std::vector<Piece> NotIn(const BlockMap& other) const;

  void Encode(Writer& writer, uint64_t inode) const;
  // EBADMSG unless the bytes are a map that covers a file of `size` bytes exactly.
  static Result<BlockMap> Decode(std::string_view bytes, uint64_t inode, uint64_t size);

  friend bool operator==(const BlockMap&, const BlockMap&) = default;

 private:
  // Makes `block` the first of a run; the index of that run, or runs_.size() at the end.
  size_t SplitAt(uint64_t block);
  void MergeAround(size_t run);
  void Replace(uint64_t block, BlockRun run);
  Status Check(uint64_t size) const;

  StripeLayout layout_;
  uint64_t blocks_ = 0;  // the sum of the runs' counts
  std::vector<BlockRun> runs_;
};

// Block `index` of a run.
BlockPlace PlaceInRun(const BlockRun& run, uint64_t index, uint64_t block_bytes);

}  // namespace pinstripe
