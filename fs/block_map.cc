#include "fs/block_map.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kInPages = 1;  // flag of the map: reserved
constexpr uint8_t kData = 1;     // flags of a run
constexpr uint8_t kOtherObject = 2;
constexpr uint8_t kMovedShards = 4;

uint64_t BlocksOf(uint64_t size, uint64_t block_bytes) {
  return size / block_bytes + (size % block_bytes != 0);
}

// The part [first, first + count) of a run.
BlockRun Cut(const BlockRun& run, uint64_t first, uint64_t count, uint32_t block_bytes) {
  BlockRun part = run;
  part.count = count;
  if (run.hole) return part;
  if (first + count < run.count) part.last_stored = part.last_valid = block_bytes;
  part.moved.clear();
  for (BlockRun::Moved moved : run.moved) {
    if (moved.index < first || moved.index >= first + count) continue;
    moved.index -= first;
    part.moved.push_back(moved);
  }
  return part;
}

bool CanFollow(const BlockRun& a, const BlockRun& b, uint64_t block_bytes) {
  if (a.hole || b.hole) return a.hole && b.hole;
  return a.object == b.object && a.write == b.write && a.epoch == b.epoch && a.layout == b.layout &&
         a.last_stored == block_bytes && a.last_valid == block_bytes;
}

}  // namespace

BlockPlace PlaceInRun(const BlockRun& run, uint64_t index, uint64_t block_bytes) {
  BlockPlace place{.object = run.object,
                   .write = run.write,
                   .layout = run.layout,
                   .place = {.epoch = run.epoch, .moved = {}},
                   .stored = static_cast<uint32_t>(block_bytes),
                   .valid = static_cast<uint32_t>(block_bytes)};
  if (index + 1 == run.count) {
    place.stored = run.last_stored;
    place.valid = run.last_valid;
  }
  const auto first = std::lower_bound(
      run.moved.begin(), run.moved.end(), index,
      [](const BlockRun::Moved& moved, uint64_t wanted) { return moved.index < wanted; });
  for (auto moved = first; moved != run.moved.end() && moved->index == index; ++moved) {
    place.place.moved.push_back(moved->shard);
  }
  return place;
}

std::optional<BlockPlace> BlockMap::Find(uint64_t block) const {
  uint64_t first = 0;
  for (const BlockRun& run : runs_) {
    if (block < first + run.count) {
      if (run.hole) return std::nullopt;
      return PlaceInRun(run, block - first, block_bytes());
    }
    first += run.count;
  }
  return std::nullopt;
}

size_t BlockMap::SplitAt(uint64_t block) {
  uint64_t first = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    if (block == first) return i;
    const uint64_t count = runs_[i].count;
    if (block < first + count) {
      const auto bytes = static_cast<uint32_t>(block_bytes());
      BlockRun tail = Cut(runs_[i], block - first, first + count - block, bytes);
      runs_[i] = Cut(runs_[i], 0, block - first, bytes);
      runs_.insert(runs_.begin() + static_cast<ptrdiff_t>(i) + 1, std::move(tail));
      return i + 1;
    }
    first += count;
  }
  return runs_.size();
}

void BlockMap::MergeAround(size_t run) {
  for (size_t i = std::min(run + 1, runs_.size() - 1); i >= 1 && i + 1 > run; --i) {
    BlockRun& before = runs_[i - 1];
    BlockRun& after = runs_[i];
    if (!CanFollow(before, after, block_bytes())) continue;
    for (BlockRun::Moved moved : after.moved) {
      moved.index += before.count;
      before.moved.push_back(moved);
    }
    before.count += after.count;
    before.last_stored = after.last_stored;
    before.last_valid = after.last_valid;
    runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void BlockMap::Replace(uint64_t block, BlockRun run) {
  assert(block < blocks_);
  SplitAt(block + 1);
  const size_t at = SplitAt(block);
  runs_[at] = std::move(run);
  MergeAround(at);
}

void BlockMap::Set(uint64_t block, const BlockPlace& place) {
  BlockRun run{.count = 1,
               .hole = false,
               .object = place.object,
               .write = place.write,
               .epoch = place.place.epoch,
               .layout = place.layout,
               .last_stored = place.stored,
               .last_valid = place.valid,
               .moved = {}};
  for (const StripePlace::Moved& shard : place.place.moved) run.moved.push_back({0, shard});
  Replace(block, std::move(run));
}

void BlockMap::SetHole(uint64_t block) { Replace(block, {.count = 1}); }

void BlockMap::Resize(uint64_t size) {
  const uint64_t wanted = BlocksOf(size, block_bytes());
  if (wanted < blocks_) {
    runs_.resize(SplitAt(wanted));
  } else if (wanted > blocks_) {
    runs_.push_back({.count = wanted - blocks_});
    MergeAround(runs_.size() - 1);
  }
  const bool shorter_or_same = wanted <= blocks_;
  blocks_ = wanted;
  if (!shorter_or_same || wanted == 0) return;
  // The last block may end earlier than it did.
  const auto in_last = static_cast<uint32_t>(size - (wanted - 1) * block_bytes());
  const std::optional<BlockPlace> last = Find(wanted - 1);
  if (!last || last->valid <= in_last) return;
  BlockPlace cut = *last;
  cut.valid = in_last;
  Set(wanted - 1, cut);
}

uint64_t BlockMap::StoredBytes() const {
  uint64_t bytes = 0;
  for (const BlockRun& run : runs_) {
    if (!run.hole) bytes += (run.count - 1) * block_bytes() + run.last_valid;
  }
  return bytes;
}

std::vector<BlockMap::Piece> BlockMap::NotIn(const BlockMap& other) const {
  std::vector<Piece> pieces;
  const auto bytes = static_cast<uint32_t>(block_bytes());
  size_t j = 0;
  uint64_t other_first = 0;
  uint64_t first = 0;
  for (const BlockRun& run : runs_) {
    const uint64_t end = first + run.count;
    for (uint64_t at = first; at < end;) {
      while (j < other.runs_.size() && other_first + other.runs_[j].count <= at) {
        other_first += other.runs_[j++].count;
      }
      uint64_t part_end = end;
      bool kept = false;
      if (j < other.runs_.size()) {
        const BlockRun& there = other.runs_[j];
        part_end = std::min(end, other_first + there.count);
        kept = !there.hole && there.object == run.object && there.write == run.write;
      }
      if (!run.hole && !kept) {
        pieces.push_back({at, Cut(run, at - first, part_end - at, bytes)});
      }
      at = part_end;
    }
    first = end;
  }
  return pieces;
}

void BlockMap::Encode(Writer& writer, uint64_t inode) const {
  // The first layout is that of new blocks; the others as the runs name them.
  std::vector<StripeLayout> layouts{layout_};
  const auto index_of = [&](const StripeLayout& layout) {
    const auto at = std::find(layouts.begin(), layouts.end(), layout);
    if (at == layouts.end()) {
      layouts.push_back(layout);
      return layouts.size() - 1;
    }
    return static_cast<size_t>(at - layouts.begin());
  };
  for (const BlockRun& run : runs_) {
    if (!run.hole) index_of(run.layout);
  }
  writer.U8(0).Varint(layouts.size());
  for (const StripeLayout& layout : layouts) {
    writer.U8(layout.data_shards).U8(layout.parity_shards).U32(layout.shard_bytes);
  }
  writer.Varint(runs_.size());
  for (const BlockRun& run : runs_) {
    if (run.hole) {
      writer.U8(0).Varint(run.count);
      continue;
    }
    writer.U8(static_cast<uint8_t>(kData | (run.object != inode ? kOtherObject : 0) |
                                   (run.moved.empty() ? 0 : kMovedShards)));
    writer.Varint(run.count).Raw(Bytes(std::as_bytes(std::span(run.write))));
    if (run.object != inode) writer.U64(run.object);
    writer.U32(run.epoch).Varint(index_of(run.layout)).Varint(run.last_stored);
    writer.Varint(run.last_valid);
    if (run.moved.empty()) continue;
    writer.Varint(run.moved.size());
    for (const BlockRun::Moved& moved : run.moved) {
      writer.Varint(moved.index).U8(moved.shard.shard).U16(moved.shard.drive);
    }
  }
}

namespace {

std::vector<StripeLayout> DecodeLayouts(Reader& reader) {
  std::vector<StripeLayout> layouts;
  const uint64_t count = reader.Varint();
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    StripeLayout layout{.data_shards = reader.U8(), .parity_shards = reader.U8(), .shard_bytes = 0};
    layout.shard_bytes = reader.U32();
    layouts.push_back(layout);
  }
  return layouts;
}

BlockRun DecodeRun(Reader& reader, uint64_t inode, const std::vector<StripeLayout>& layouts) {
  BlockRun run;
  const uint8_t flags = reader.U8();
  run.count = reader.Varint();
  run.hole = flags == 0;
  if (run.hole) return run;
  if ((flags & kData) == 0 || (flags & ~(kData | kOtherObject | kMovedShards)) != 0)
    reader.MarkBad();
  const std::string_view write = reader.Raw(run.write.size());
  std::copy(write.begin(), write.end(), run.write.begin());
  run.object = (flags & kOtherObject) != 0 ? reader.U64() : inode;
  run.epoch = reader.U32();
  const uint64_t layout = reader.Varint();
  const uint64_t stored = reader.Varint();
  const uint64_t valid = reader.Varint();
  if (layout >= layouts.size() || stored > UINT32_MAX || valid > stored) {
    reader.MarkBad();
    return run;
  }
  run.layout = layouts[layout];
  run.last_stored = static_cast<uint32_t>(stored);
  run.last_valid = static_cast<uint32_t>(valid);
  const uint64_t moved = (flags & kMovedShards) != 0 ? reader.Varint() : 0;
  for (uint64_t i = 0; i < moved && reader.ok(); ++i) {
    BlockRun::Moved one;
    one.index = reader.Varint();
    one.shard.shard = reader.U8();
    one.shard.drive = reader.U16();
    run.moved.push_back(one);
  }
  return run;
}

bool Ascending(const std::vector<BlockRun::Moved>& moved) {
  return std::adjacent_find(
             moved.begin(), moved.end(), [](const BlockRun::Moved& a, const BlockRun::Moved& b) {
               return std::pair(a.index, a.shard.shard) >= std::pair(b.index, b.shard.shard);
             }) == moved.end();
}

}  // namespace

Status BlockMap::Check(uint64_t size) const {
  uint64_t first = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const BlockRun& run = runs_[i];
    if (run.count == 0 || run.count > blocks_ - first) {
      return Fail(EBADMSG, "a block map's run {} of {} blocks does not fit the file", i, run.count);
    }
    first += run.count;
    if (run.hole) continue;
    const uint64_t room = std::min(block_bytes(), run.layout.block_bytes());
    // Bytes beyond the file would come to light when it grows.
    const uint64_t limit = first == blocks_ ? size - (blocks_ - 1) * block_bytes() : block_bytes();
    if (run.last_stored == 0 || run.last_stored > room || run.last_valid > limit ||
        (run.count > 1 && run.layout.block_bytes() < block_bytes())) {
      return Fail(EBADMSG, "a block map's run {} has blocks of impossible length", i);
    }
    const int shards = run.layout.geometry().shards();
    for (const BlockRun::Moved& moved : run.moved) {
      if (moved.index >= run.count || moved.shard.shard >= shards) {
        return Fail(EBADMSG, "a block map's run {} names a shard that it does not have", i);
      }
    }
    if (!Ascending(run.moved)) {
      return Fail(EBADMSG, "a block map's run {} has its moved shards out of order", i);
    }
  }
  if (first != blocks_) {
    return Fail(EBADMSG, "a block map covers {} of the file's {} blocks", first, blocks_);
  }
  return {};
}

Result<BlockMap> BlockMap::Decode(std::string_view bytes, uint64_t inode, uint64_t size) {
  Reader reader(bytes);
  const uint8_t flags = reader.U8();
  if ((flags & kInPages) != 0) {
    return Fail(EBADMSG, "the block map is in pages; this version cannot read those");
  }
  if (flags != 0) return Fail(EBADMSG, "a block map has unknown flags {}", flags);
  const std::vector<StripeLayout> layouts = DecodeLayouts(reader);
  for (const StripeLayout& layout : layouts) {
    const Status status = layout.Check();
    if (!status.ok()) return Fail(EBADMSG, "a block map's layout: {}", status.message());
  }
  if (layouts.empty()) return Fail(EBADMSG, "a block map has no layout");
  BlockMap map(layouts.front());
  map.blocks_ = BlocksOf(size, map.block_bytes());
  const uint64_t runs = reader.Varint();
  for (uint64_t i = 0; i < runs && reader.ok(); ++i) {
    map.runs_.push_back(DecodeRun(reader, inode, layouts));
  }
  TRY(reader.Finish("block map"));
  TRY(map.Check(size));
  return map;
}

}  // namespace pinstripe
