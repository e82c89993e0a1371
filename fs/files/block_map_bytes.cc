// BlockMap, second part: the bytes of a map and of its pages. docs/format.md, "Block map".

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "base/try.h"
#include "fs/files/beside_number.h"
#include "fs/files/block_map.h"
#include "fs/files/block_runs.h"

namespace pinstripe {
namespace {

constexpr uint8_t kInPages = 1;  // flag of the map
constexpr uint8_t kData = 1;     // flags of a run
constexpr uint8_t kOtherObject = 2;
constexpr uint8_t kMovedShards = 4;
constexpr uint8_t kPage = 8;
constexpr uint8_t kPatches = 16;
constexpr uint8_t kShared = 32;
constexpr uint8_t kPartOfBlock = 64;  // of one that is shared
constexpr uint8_t kGaps = 64;         // of another
constexpr uint8_t kBeside = 128;
constexpr uint8_t kPageFormat = 1;

class LayoutTable {
 public:
  explicit LayoutTable(const StripeLayout& first) : layouts_{first} {}
  size_t IndexOf(const StripeLayout& layout) {
    const auto at = std::find(layouts_.begin(), layouts_.end(), layout);
    if (at != layouts_.end()) return static_cast<size_t>(at - layouts_.begin());
    layouts_.push_back(layout);
    return layouts_.size() - 1;
  }
  void Encode(Writer& writer) const {
    writer.Varint(layouts_.size());
    for (const StripeLayout& layout : layouts_) {
      writer.U8(layout.data_shards).U8(layout.parity_shards).U32(layout.shard_bytes);
    }
  }

 private:
  std::vector<StripeLayout> layouts_;
};

void EncodePatch(Writer& writer, const BlockPatch& patch, uint64_t inode, LayoutTable& layouts) {
  writer.U8(static_cast<uint8_t>((patch.object != inode ? kOtherObject : 0) |
                                 (patch.place.moved.empty() ? 0 : kMovedShards)));
  writer.Raw(Bytes(std::as_bytes(std::span(patch.write))));
  if (patch.object != inode) writer.U64(patch.object);
  writer.U32(patch.place.epoch).Varint(layouts.IndexOf(patch.layout)).Varint(patch.stored);
  if (!patch.place.moved.empty()) writer.Varint(patch.place.moved.size());
  for (const StripePlace::Moved& moved : patch.place.moved) {
    writer.U8(moved.shard).U16(moved.drive);
  }
  writer.Varint(patch.extents.size());
  uint32_t end = 0;
  for (const BlockPatch::Extent& extent : patch.extents) {
    writer.Varint(extent.first - end).Varint(extent.length);
    end = extent.end();
  }
}

// `valid`: of a page what its blocks store, of other runs as in the run.
void EncodeRun(Writer& writer, const BlockRun& run, uint8_t kind, uint64_t valid, uint64_t inode,
               LayoutTable& layouts) {
  if (run.hole) {
    writer.U8(0).Varint(run.count);
    return;
  }
  if (run.shared) {
    writer.U8(static_cast<uint8_t>(kData | kShared | (run.skip != 0 ? kPartOfBlock : 0)));
    writer.Varint(run.count).U64(run.object).Varint(run.shift).Varint(run.last_valid);
    if (run.skip != 0) writer.Varint(run.skip);
    return;
  }
  writer.U8(static_cast<uint8_t>(kData | kind | (run.object != inode ? kOtherObject : 0) |
                                 (run.moved.empty() ? 0 : kMovedShards) |
                                 (run.patches.empty() ? 0 : kPatches) |
                                 (run.shift == 0 ? 0 : kBeside) | (run.gaps.empty() ? 0 : kGaps)));
  writer.Varint(run.count).Raw(Bytes(std::as_bytes(std::span(run.write))));
  if (run.object != inode) writer.U64(run.object);
  if (run.shift != 0) writer.Varint(run.shift);
  writer.U32(run.epoch).Varint(layouts.IndexOf(run.layout)).Varint(run.last_stored);
  writer.Varint(valid);
  if (!run.moved.empty()) writer.Varint(run.moved.size());
  for (const BlockRun::Moved& moved : run.moved) {
    writer.Varint(moved.index).U8(moved.shard.shard).U16(moved.shard.drive);
  }
  if (!run.patches.empty()) writer.Varint(run.patches.size());
  for (const BlockRun::Patched& patched : run.patches) {
    writer.Varint(patched.index);
    EncodePatch(writer, patched.patch, inode, layouts);
  }
  if (!run.gaps.empty()) writer.Varint(run.gaps.size());
  uint32_t end = 0;
  for (const BlockExtent& gap : run.gaps) {
    writer.Varint((gap.first - end) / kGapUnit).Varint(gap.length / kGapUnit);
    end = gap.end();
  }
}

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

Status CheckLayouts(const std::vector<StripeLayout>& layouts) {
  for (const StripeLayout& layout : layouts) {
    const Status status = layout.Check();
    if (!status.ok()) return Fail(EBADMSG, "a block map's layout: {}", status.message());
  }
  if (layouts.empty()) return Fail(EBADMSG, "a block map has no layout");
  return {};
}

WriteId DecodeWriteId(Reader& reader) {
  WriteId id{};
  const std::string_view bytes = reader.Raw(id.size());
  std::copy(bytes.begin(), bytes.end(), id.begin());
  return id;
}

BlockPatch DecodePatch(Reader& reader, uint64_t inode, const std::vector<StripeLayout>& layouts) {
  BlockPatch patch;
  const uint8_t flags = reader.U8();
  if ((flags & ~(kOtherObject | kMovedShards)) != 0) reader.MarkBad();
  patch.write = DecodeWriteId(reader);
  patch.object = (flags & kOtherObject) != 0 ? reader.U64() : inode;
  patch.place.epoch = reader.U32();
  const uint64_t layout = reader.Varint();
  const uint64_t stored = reader.Varint();
  if (layout >= layouts.size() || stored > kMaxPatchBytes) {
    reader.MarkBad();
    return patch;
  }
  patch.layout = layouts[layout];
  patch.stored = static_cast<uint32_t>(stored);
  const uint64_t moved = (flags & kMovedShards) != 0 ? reader.Varint() : 0;
  for (uint64_t i = 0; i < moved && reader.ok(); ++i) {
    const uint8_t shard = reader.U8();
    patch.place.moved.push_back({shard, reader.U16()});
  }
  const uint64_t extents = reader.Varint();
  uint64_t end = 0;
  for (uint64_t i = 0; i < extents && reader.ok(); ++i) {
    const uint64_t gap = reader.Varint();
    const uint64_t length = reader.Varint();
    if (gap > UINT32_MAX || length > UINT32_MAX || end + gap + length > UINT32_MAX) {
      reader.MarkBad();
      return patch;
    }
    patch.extents.push_back({static_cast<uint32_t>(end + gap), static_cast<uint32_t>(length)});
    end += gap + length;
  }
  return patch;
}

std::vector<BlockExtent> DecodeGaps(Reader& reader) {
  std::vector<BlockExtent> gaps;
  const uint64_t count = reader.Varint();
  if (count == 0 || count > kMaxGaps) reader.MarkBad();
  uint64_t end = 0;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    const uint64_t before = reader.Varint();
    const uint64_t length = reader.Varint();
    constexpr uint64_t kMost = UINT32_MAX / kGapUnit;
    if (before > kMost || length > kMost || end + (before + length) * kGapUnit > UINT32_MAX) {
      reader.MarkBad();
      return gaps;
    }
    gaps.push_back(
        {static_cast<uint32_t>(end + before * kGapUnit), static_cast<uint32_t>(length * kGapUnit)});
    end = gaps.back().end();
  }
  return gaps;
}

struct DecodedRun {
  BlockRun run;
  bool page = false;
  uint64_t page_stored_bytes = 0;
};

DecodedRun DecodeRun(Reader& reader, uint64_t inode, const std::vector<StripeLayout>& layouts,
                     bool may_be_page) {
  DecodedRun decoded;
  BlockRun& run = decoded.run;
  const uint8_t flags = reader.U8();
  run.count = reader.Varint();
  run.hole = flags == 0;
  if (run.hole) return decoded;
  if ((flags & ~kPartOfBlock) == (kData | kShared)) {
    run.shared = true;
    run.object = reader.U64();
    run.shift = reader.Varint();
    const uint64_t valid = reader.Varint();
    if (valid > UINT32_MAX || run.object == inode) reader.MarkBad();
    run.last_stored = run.last_valid = static_cast<uint32_t>(valid);
    if ((flags & kPartOfBlock) == 0) return decoded;
    const uint64_t skip = reader.Varint();
    if (skip == 0 || skip > UINT32_MAX - valid || run.count != 1) reader.MarkBad();
    run.skip = static_cast<uint32_t>(skip);
    return decoded;
  }
  decoded.page = may_be_page && (flags & kPage) != 0;
  const int known =
      kData | kOtherObject | kMovedShards | (decoded.page ? kPage : kPatches | kBeside | kGaps);
  if ((flags & kData) == 0 || (flags & ~known) != 0) reader.MarkBad();
  run.write = DecodeWriteId(reader);
  run.object = (flags & kOtherObject) != 0 ? reader.U64() : inode;
  if ((flags & kBeside) != 0) {
    run.shift = reader.Varint();
    if (run.shift == 0 || run.count != 1) reader.MarkBad();
  }
  run.epoch = reader.U32();
  const uint64_t layout = reader.Varint();
  const uint64_t stored = reader.Varint();
  const uint64_t valid = reader.Varint();
  if (layout >= layouts.size() || stored > UINT32_MAX || (!decoded.page && valid > UINT32_MAX)) {
    reader.MarkBad();
    return decoded;
  }
  run.layout = layouts[layout];
  run.last_stored = static_cast<uint32_t>(stored);
  run.last_valid = static_cast<uint32_t>(decoded.page ? stored : valid);
  decoded.page_stored_bytes = valid;
  const uint64_t moved = (flags & kMovedShards) != 0 ? reader.Varint() : 0;
  for (uint64_t i = 0; i < moved && reader.ok(); ++i) {
    BlockRun::Moved one;
    one.index = reader.Varint();
    one.shard.shard = reader.U8();
    one.shard.drive = reader.U16();
    run.moved.push_back(one);
  }
  const uint64_t patches = (flags & kPatches) != 0 ? reader.Varint() : 0;
  for (uint64_t i = 0; i < patches && reader.ok(); ++i) {
    const uint64_t index = reader.Varint();
    run.patches.push_back({index, DecodePatch(reader, inode, layouts)});
  }
  if ((flags & kPatches) != 0 && patches == 0) reader.MarkBad();
  if ((flags & kGaps) != 0) run.gaps = DecodeGaps(reader);
  return decoded;
}

bool Ascending(const std::vector<BlockRun::Moved>& moved) {
  return std::adjacent_find(
             moved.begin(), moved.end(), [](const BlockRun::Moved& a, const BlockRun::Moved& b) {
               return std::pair(a.index, a.shard.shard) >= std::pair(b.index, b.shard.shard);
             }) == moved.end();
}

Status CheckMoved(const BlockRun& run, uint64_t blocks) {
  const int shards = run.layout.geometry().shards();
  for (const BlockRun::Moved& moved : run.moved) {
    if (moved.index >= blocks || moved.shard.shard >= shards) {
      return Fail(EBADMSG, "a block map names a shard that it does not have");
    }
  }
  if (!Ascending(run.moved)) return Fail(EBADMSG, "a block map has its moved shards out of order");
  return {};
}

// One that is laid over a block of which `valid` bytes count.
bool IsPossible(const BlockPatch& patch, uint32_t valid) {
  const auto descends = [](const auto& a, const auto& b) { return a.shard >= b.shard; };
  const std::vector<StripePlace::Moved>& moved = patch.place.moved;
  if (std::ranges::adjacent_find(moved, descends) != moved.end()) return false;
  if (!moved.empty() && moved.back().shard >= patch.layout.geometry().shards()) return false;
  if (patch.layout.data_shards != 1 || patch.stored > patch.layout.block_bytes()) return false;
  uint64_t bytes = 0;
  for (const BlockPatch::Extent& extent : patch.extents) {
    if (extent.length == 0 || extent.end() > valid) return false;
    bytes += extent.length;
  }
  return bytes > 0 && bytes <= patch.stored;
}

Status CheckPatches(const BlockRun& run, uint32_t block_bytes) {
  const auto descends = [](const auto& a, const auto& b) { return a.index > b.index; };
  if (std::ranges::adjacent_find(run.patches, descends) != run.patches.end()) {
    return Fail(EBADMSG, "a block map has its patches out of order");
  }
  for (size_t i = 0; i < run.patches.size();) {
    const uint64_t index = run.patches[i].index;
    if (index >= run.count) return Fail(EBADMSG, "a block map has a patch of no block");
    const uint32_t valid = index + 1 == run.count ? run.last_valid : block_bytes;
    std::set<std::pair<uint64_t, WriteId>> ids = {{run.object, run.write}};
    size_t extents = 0;
    uint64_t bytes = 0;
    for (; i < run.patches.size() && run.patches[i].index == index; ++i) {
      const BlockPatch& patch = run.patches[i].patch;
      extents += patch.extents.size();
      bytes += patch.stored;
      if (!IsPossible(patch, valid) || !ids.emplace(patch.object, patch.write).second) {
        return Fail(EBADMSG, "a block map has an impossible patch");
      }
    }
    if (ids.size() > kMaxPatches + 1 || extents > kMaxPatchExtents || bytes > kMaxPatchBytes) {
      return Fail(EBADMSG, "a block map has {} patches of {} bytes in {} parts over one block",
                  ids.size() - 1, bytes, extents);
    }
  }
  return {};
}

}  // namespace

// Checks a run of the file that the map belongs to; `first` is the run's first block.
Status BlockMap::CheckRun(const BlockRun& run, uint64_t first, uint64_t size) const {
  const uint64_t blocks = BlocksOf(size, block_bytes());
  if (first > blocks || run.count == 0 || run.count > blocks - first) {
    return Fail(EBADMSG, "a block map's run of {} blocks from {} on does not fit the file",
                run.count, first);
  }
  if (run.hole) return {};
  // Bytes beyond the file would come to light when it grows.
  const uint64_t limit =
      first + run.count == blocks ? size - (blocks - 1) * block_bytes() : block_bytes();
  if (run.shared && run.last_valid <= limit) return {};
  const uint64_t room = std::min(block_bytes(), run.layout.block_bytes());
  const uint64_t written = run.last_stored + GapBytes(run.gaps);
  if (run.last_stored == 0 || run.last_stored > room || written > block_bytes() ||
      run.last_valid > written || run.last_valid > limit ||
      (run.count > 1 && run.layout.block_bytes() < block_bytes())) {
    return Fail(EBADMSG, "a block map's run from block {} on has blocks of impossible length",
                first);
  }
  if (run.shift != 0 && (first != 0 || !IsBeside(run.shift))) {
    return Fail(EBADMSG, "a block map has block {} under the impossible number {}", first,
                first + run.shift);
  }
  const bool has_gaps = !run.gaps.empty();
  if (has_gaps && (run.count != 1 || run.shift != 0 || !HasGaps(run.write) ||
                   !ArePossibleGaps(run.gaps, run.last_stored))) {
    return Fail(EBADMSG, "a block map has impossible gaps in block {}", first);
  }
  TRY(CheckMoved(run, run.count));
  return CheckPatches(run, static_cast<uint32_t>(block_bytes()));
}

namespace {

Status CheckPage(const DecodedRun& page, uint64_t first, uint64_t blocks, uint64_t block_bytes) {
  const BlockRun& run = page.run;
  if (run.count == 0 || run.count > blocks - first) {
    return Fail(EBADMSG, "a block map's page of {} blocks from {} on does not fit the file",
                run.count, first);
  }
  if (run.layout.data_shards != 1 || run.last_stored == 0 ||
      run.last_stored > run.layout.block_bytes() ||
      page.page_stored_bytes > run.count * block_bytes) {
    return Fail(EBADMSG, "a block map's page of {} bytes for the blocks from {} on is impossible",
                run.last_stored, first);
  }
  return CheckMoved(run, 1);
}

}  // namespace

void BlockMap::Encode(Writer& writer, uint64_t inode) const {
  // The first layout is that of new blocks; the others as the runs name them.
  LayoutTable layouts(layout_);
  Writer body;
  size_t count = 0;
  bool in_pages = false;
  for (const Part& part : parts_) {
    const Stretch& stretch = *part.stretch;
    if (!stretch.page) {
      for (const BlockRun& run : stretch.runs) {
        EncodeRun(body, run, 0, run.last_valid, inode, layouts);
      }
      count += stretch.runs.size();
      continue;
    }
    BlockRun page = RunOf(*stretch.page);
    page.count = stretch.count;
    EncodeRun(body, page, kPage, stretch.stored_bytes, inode, layouts);
    ++count;
    in_pages = true;
  }
  writer.U8(in_pages ? kInPages : 0);
  layouts.Encode(writer);
  writer.Varint(count).Raw(body.bytes());
}

Result<BlockMap> BlockMap::Decode(std::string_view bytes, uint64_t inode, uint64_t size) {
  Reader reader(bytes);
  const uint8_t flags = reader.U8();
  if (reader.ok() && (flags & ~kInPages) != 0) {
    return Fail(EBADMSG, "a block map has unknown flags {}", flags);
  }
  const std::vector<StripeLayout> layouts = DecodeLayouts(reader);
  TRY(CheckLayouts(layouts));
  BlockMap map(layouts.front());
  map.size_ = size;
  map.blocks_ = BlocksOf(size, map.block_bytes());
  const uint64_t count = reader.Varint();
  Runs loose;
  uint64_t first = 0;
  bool in_pages = false;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    DecodedRun decoded = DecodeRun(reader, inode, layouts, (flags & kInPages) != 0);
    if (!reader.ok()) break;
    const uint64_t blocks = decoded.run.count;
    if (!decoded.page) {
      TRY(map.CheckRun(decoded.run, first, size));
      loose.push_back(std::move(decoded.run));
    } else {
      TRY(CheckPage(decoded, first, map.blocks_, map.block_bytes()));
      map.Append(map.parts_, std::exchange(loose, {}), kStretchBytes);
      decoded.run.count = 1;
      map.parts_.push_back({first, std::make_shared<const Stretch>(Stretch{
                                       .count = blocks,
                                       .stored_bytes = decoded.page_stored_bytes,
                                       .runs = {},
                                       .page = PlaceInRun(decoded.run, 0, map.block_bytes())})});
      in_pages = true;
    }
    first += blocks;
  }
  TRY(reader.Finish("block map"));
  if (first != map.blocks_) {
    return Fail(EBADMSG, "a block map covers {} of the file's {} blocks", first, map.blocks_);
  }
  if (in_pages != (flags != 0)) return Fail(EBADMSG, "a block map in pages has none");
  map.Append(map.parts_, std::move(loose), kStretchBytes);
  return map;
}

std::string BlockMap::EncodePage(const Part& part, uint64_t inode) const {
  LayoutTable layouts(layout_);
  Writer body;
  for (const BlockRun& run : part.stretch->runs) {
    EncodeRun(body, run, 0, run.last_valid, inode, layouts);
  }
  Writer writer;
  writer.U8(kPageFormat).U64(part.first);
  layouts.Encode(writer);
  return writer.Varint(part.stretch->runs.size()).Raw(body.bytes()).Take();
}

Result<std::shared_ptr<const BlockMap::Stretch>> BlockMap::DecodePage(const Part& part,
                                                                      std::string_view bytes,
                                                                      uint64_t inode,
                                                                      uint64_t size) const {
  Reader reader(bytes);
  const uint8_t format = reader.U8();
  if (reader.ok() && format != kPageFormat) {
    return Fail(EBADMSG, "a page of a block map has format {}; this version knows {}", format,
                kPageFormat);
  }
  const uint64_t first = reader.U64();
  const std::vector<StripeLayout> layouts = DecodeLayouts(reader);
  TRY(CheckLayouts(layouts));
  if (first != part.first || layouts.front() != layout_) {
    return Fail(EBADMSG,
                "a page of a block map is about the blocks from {} on, not {}, or another "
                "file's",
                first, part.first);
  }
  const uint64_t count = reader.Varint();
  Runs runs;
  runs.reserve(std::min<uint64_t>(count, reader.left() / 2));  // a run has 2 bytes at least
  uint64_t at = first;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    DecodedRun decoded = DecodeRun(reader, inode, layouts, false);
    if (!reader.ok()) break;
    TRY(CheckRun(decoded.run, at, size));
    at += decoded.run.count;
    runs.push_back(std::move(decoded.run));
  }
  TRY(reader.Finish("page of a block map"));
  if (at != part.end() || StoredIn(runs, block_bytes()) != part.stretch->stored_bytes) {
    return Fail(EBADMSG,
                "a page of a block map covers the blocks from {} to {}, not to {}, or "
                "others than the inode says",
                first, at, part.end());
  }
  Stretch stretch = *part.stretch;
  stretch.bytes = BytesOf(runs);
  stretch.runs = std::move(runs);
  return std::make_shared<const Stretch>(std::move(stretch));
}

}  // namespace pinstripe
