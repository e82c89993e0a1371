// BlockMap: where the blocks of a file are. Pure: a value, part of the inode.
//
// A file of `size` bytes has ceil(size / block_bytes) blocks. For each block the map says whether
// it is a hole or which stripe holds it. Neighbours that differ in nothing but their number are one
// run, so a file written in one go is one run however long it is.
//
// A file in many pieces has more runs than an inode can hold. They are in pages then: records of
// their own, each with the runs of a stretch of blocks, and never changed; the inode names them. A
// page is read when somebody asks for its blocks (Install), so a map that was decoded may have
// parts that are not there yet. A function that says "loaded" expects that its caller has looked
// before (FirstMissing). What is changed is in no page until Settle() has said which parts are to
// become one, and somebody has stored them (SetPage); fs/files/map_pages.h does both.
//
// docs/format.md, "Block map", has the bytes. Copies of a map share what is equal: they are cheap.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/coding.h"
#include "base/status.h"
#include "cluster/stripes/store.h"
#include "fs/files/block_gaps.h"
#include "fs/files/interval_set.h"
#include "fs/files/page_number.h"

namespace pinstripe {

// Bytes of a block that were written since its stripe was: a record with copies, to be laid over
// it. It has the block's number, and a write id of its own.
struct BlockPatch {
  using Extent = BlockExtent;
  uint64_t object = 0;  // as of a block
  WriteId write{};
  StripeLayout layout;  // k = 1
  StripePlace place;
  uint32_t stored = 0;          // length of the record: what the extents had when it was written
  std::vector<Extent> extents;  // ascending, disjoint; a truncation takes some away at the end
  friend bool operator==(const BlockPatch&, const BlockPatch&) = default;
};

// How many and how large the patches over one block may be. A block that would have more is written
// anew.
inline constexpr size_t kMaxPatches = 8;
inline constexpr size_t kMaxPatchExtents = 64;              // of all of them
inline constexpr uint32_t kMaxPatchBytes = 4 * kCellBytes;  // of all of them, as they are stored

// A block that is stored. Bytes from `valid` to the end of the block read as zeros.
//
// A shared one is stored where the map of a keeper says, of another inode than this
// (fs/files/keepers.h): `object` is the keeper then, and nothing is known here but `valid` and
// `skip`.
struct BlockPlace {
  bool shared = false;
  // In the shards' keys: the inode that the block was written for.
  uint64_t object = 0;
  // What is to be added to the block's number in this file, modulo 2^64, to get that in the shards'
  // keys, or in the keeper's map. Of one that is not shared 0, or it lies beside the inode
  // (fs/files/beside_number.h).
  uint64_t shift = 0;
  WriteId write{};
  StripeLayout layout;
  StripePlace place;
  uint32_t stored = 0;                   // length of the block as it was written, without gaps
  uint32_t valid = 0;                    // how much of it still counts: less after a truncation
  std::vector<BlockPatch> patches = {};  // in the order in which they are laid over it
  // Of a shared one: where its bytes begin in the keeper's block. They are part of a pack if that
  // is not 0 (upkeep/packer.h).
  uint32_t skip = 0;
  // What the stripe leaves out of the block: zeros. The stripe has what is between them, one part
  // after the other. None of one that is shared.
  std::vector<BlockExtent> gaps = {};

  // Says nothing of patches.
  bool SameStripe(const BlockPlace& other) const {
    return shared == other.shared && object == other.object && shift == other.shift &&
           skip == other.skip && write == other.write;
  }
  // The same stripe, and the same patches over it, wherever they are.
  bool SameStripes(const BlockPlace& other) const;
  // And as much of them counts: so the contents are the same.
  bool SameBytes(const BlockPlace& other) const;
  // Whether `stripe` is its own or one of the patches.
  bool Names(const BlockPlace& stripe) const;
  bool Names(const StripeId& stripe) const;
  // Its own stripe, without patches; then each of these, as a place of its own.
  std::vector<BlockPlace> Stripes() const;
  // For the stripes that both name: takes over where `other` says that their shards are.
  void TakePlaces(const BlockPlace& other);
  // Blocks beyond count no more.
  void CutTo(uint32_t valid_bytes);
  // A patch over all others; those that are nowhere seen any more go.
  void Lay(BlockPatch patch);

  StripeId IdOf(uint64_t block) const { return {object, block + shift, write}; }
  friend bool operator==(const BlockPlace&, const BlockPlace&) = default;
};

// Bytes of a block, and where they are stored.
struct BlockPart {
  uint64_t first = 0;  // in the block
  uint64_t size = 0;
  BlockPlace stripe;    // of BlockPlace::Stripes()
  uint64_t offset = 0;  // in that
};
// Of [first, end), which is valid, what is not `covered`. The parts are disjoint. What is in none
// of them is zeros (ZerosOf).
std::vector<BlockPart> PartsOf(const BlockPlace& place, uint64_t first, uint64_t end,
                               IntervalSet covered = {});

// The gaps of its stripe within [first, end), whatever lies over them.
std::vector<IntervalSet::Interval> ZerosOf(const BlockPlace& place, uint64_t first, uint64_t end);
// Where data is: what is not in `DataOf` reads as zeros. Of a shared one all that is valid.
IntervalSet DataOf(const BlockPlace& place);

// A record with so many more copies, and room for `bytes`.
StripeLayout CopiesOf(uint64_t bytes, int parity_shards);

// A block of which the first `valid` bytes are those of a block of the keeper's, shift further on,
// from `skip` on.
BlockPlace SharedPlace(uint64_t keeper, uint64_t shift, uint32_t valid, uint32_t skip = 0);

// Consecutive blocks. All but the last are stored, and valid, in full.
struct BlockRun {
  struct Moved {
    uint64_t index = 0;  // of the block in the run
    StripePlace::Moved shard;
    friend bool operator==(const Moved&, const Moved&) = default;
  };
  struct Patched {
    uint64_t index = 0;  // of the block in the run
    BlockPatch patch;
    friend bool operator==(const Patched&, const Patched&) = default;
  };
  uint64_t count = 0;
  bool hole = true;
  // of a run with data, as in BlockPlace:
  bool shared = false;
  uint64_t object = 0;
  uint64_t shift = 0;  // where it is not 0 and the run not shared, the run is a single block
  uint32_t skip = 0;   // 0 unless shared; one with a skip is a single block
  WriteId write{};     // this and what follows: of one that is not shared, but for last_valid

  Epoch epoch = 0;
  StripeLayout layout;
  uint32_t last_stored = 0;
  uint32_t last_valid = 0;
  std::vector<Moved> moved = {};       // ascending by index, then shard
  std::vector<Patched> patches = {};   // ascending by index; those of a block in their order
  std::vector<BlockExtent> gaps = {};  // of a run that is a single block
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

// How much of a map is kept where.
struct MapLimits {
  size_t inline_bytes = 0;  // of runs and names of pages in the inode; beyond it, pages
  size_t page_bytes = 0;    // of a page; twice, four times, ... where pages would be too many
};

// A page is stored as a stripe of its file, with copies instead of parity.
inline constexpr size_t kMaxPageBytes = kMaxShardBytes;

class BlockMap {
 public:
  // Consecutive blocks, as runs, in a page, or both. Never changed once it is part of a map.
  struct Stretch {
    uint64_t count = 0;              // blocks
    uint64_t stored_bytes = 0;       // valid bytes of all of them
    size_t bytes = 0;                // what the runs take when they are written, about
    std::vector<BlockRun> runs;      // none: not loaded
    std::optional<BlockPlace> page;  // null: in no page (any more)
    bool loaded() const { return !runs.empty(); }
  };
  struct Part {
    uint64_t first = 0;  // block
    std::shared_ptr<const Stretch> stretch;
    uint64_t end() const { return first + stretch->count; }
    StripeId PageId() const { return stretch->page->IdOf(PageNumber(first).number()); }
  };

  // `layout` is how new blocks of the file are coded; its block size is the map's for ever.
  BlockMap() = default;
  explicit BlockMap(const StripeLayout& layout) : layout_(layout) {}

  const StripeLayout& layout() const { return layout_; }
  uint64_t block_bytes() const { return layout_.block_bytes(); }
  uint64_t blocks() const { return blocks_; }
  const std::vector<Part>& parts() const { return parts_; }
  std::vector<BlockRun> runs() const;  // of all parts, which are loaded

  // The first part that has some of these blocks and is not loaded.
  std::optional<Part> FirstMissing(uint64_t first, uint64_t end) const;
  // Puts the runs of a page where that page is named; nothing happens where it is not.
  void Install(const Part& page, const std::shared_ptr<const Stretch>& loaded);
  size_t CountLoadedPages() const;
  // Forgets the runs that are in pages.
  void ForgetPages();

  // Null: a hole, or beyond the end. The block is loaded.
  std::optional<BlockPlace> Find(uint64_t block) const;
  std::optional<BlockPlace> FindPage(PageNumber page) const;
  // The part that has the block; null beyond the end.
  const Part* PartOf(uint64_t block) const;

  // Blocks that are all holes, or none of them is.
  struct Span {
    bool hole = false;
    uint64_t end = 0;
  };
  // From `block` on, which exists; its part is loaded, or stores nothing.
  Span SpanAt(uint64_t block) const;

  // The block exists (Resize), and is loaded.
  void Set(uint64_t block, const BlockPlace& place);
  // The blocks [first, end), as far as they exist; the first and the last of them are loaded.
  void SetHoles(uint64_t first, uint64_t end);

  // For stripes that both maps name, as BlockPlace::TakePlaces; and keeps
  // no page that it does not name. Everything is loaded.
  void TakePlaces(const BlockMap& other);

  // Makes the map that of a file of `size` bytes: what is beyond is forgotten, what is new is a
  // hole. If the file gets shorter, what becomes its last block and the one after it are loaded.
  void Resize(uint64_t size);

  uint64_t StoredBytes() const;  // valid bytes of all blocks, without gaps
  // The keepers that the loaded runs name.
  std::set<uint64_t> Keepers() const;
  // Whether a loaded block or page has shards that are not at home.
  bool HasMovedShards() const;

  // The stripes that are in `*this` and not in `other`, as runs with their first block, patches
  // each by itself. The parts of `other` that are not loaded may have them: then they are left out.
  struct Piece {
    uint64_t first = 0;
    BlockRun run;
  };
  struct Difference {
    std::vector<Piece> blocks;
    std::vector<Piece> pages;   // records of pages, without what they name
    std::vector<Part> missing;  // pages that are not loaded, and not in `other` as they are
  };
  Difference NotIn(const BlockMap& other) const;
  // The same for one part, which is loaded.
  std::vector<Piece> NotIn(const Part& part, const BlockMap& other) const;
  static Piece PieceOf(const Part& page);
  // The stripes that a block consists of.
  static std::vector<Piece> PiecesOf(uint64_t block, const BlockPlace& place);

  // Brings the map into the form in which it is to be stored, and says which parts (by their first
  // blocks) are to become pages; null: everything is to be loaded first.
  std::optional<std::vector<uint64_t>> Settle(const MapLimits& limits);
  std::string EncodePage(const Part& part, uint64_t inode) const;
  void SetPage(uint64_t first, BlockPlace page);
  // EBADMSG unless the bytes are the page of that part, in a file of `size` bytes.
  Result<std::shared_ptr<const Stretch>> DecodePage(const Part& part, std::string_view bytes,
                                                    uint64_t inode, uint64_t size) const;

  void Encode(Writer& writer, uint64_t inode) const;
  // EBADMSG unless the bytes are a map that covers a file of `size` bytes exactly.
  static Result<BlockMap> Decode(std::string_view bytes, uint64_t inode, uint64_t size);

  friend bool operator==(const BlockMap& a, const BlockMap& b);  // in what is stored

 private:
  size_t IndexOf(uint64_t block) const;  // parts_.size(): beyond the end
  void Grow(uint64_t blocks);
  void Replace(uint64_t block, BlockRun run);
  void PutRuns(size_t part, std::vector<BlockRun> runs);
  void Append(std::vector<Part>& parts, std::vector<BlockRun> runs, size_t most_bytes) const;
  void JoinLoose(size_t page_bytes);
  size_t RootBytes() const;
  std::vector<StripeLayout> Layouts() const;
  Status CheckRun(const BlockRun& run, uint64_t first, uint64_t size) const;

  StripeLayout layout_;
  uint64_t size_ = 0;        // of the file, in bytes
  uint64_t blocks_ = 0;      // the sum of the parts' counts
  std::vector<Part> parts_;  // ascending; no gaps
};

// False: that stripe is certainly none of those that the map itself names for the block.
bool MayHold(const std::optional<BlockMap>& map, uint64_t block, const BlockPlace& stripe);

// Block `index` of a run.
BlockPlace PlaceInRun(const BlockRun& run, uint64_t index, uint64_t block_bytes);

}  // namespace pinstripe
