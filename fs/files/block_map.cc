#include "fs/files/block_map.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kInPages = 1;  // flag of the map
constexpr uint8_t kData = 1;     // flags of a run
constexpr uint8_t kOtherObject = 2;
constexpr uint8_t kMovedShards = 4;
constexpr uint8_t kPage = 8;
constexpr uint8_t kPatches = 16;
constexpr uint8_t kShared = 32;
constexpr uint8_t kPageFormat = 1;

// What a change copies, about. Stretches that are to be stored are put together again.
constexpr size_t kStretchBytes = 8 << 10;
constexpr size_t kPageNameBytes = 36;  // what a page takes in the inode, about

using Runs = std::vector<BlockRun>;

uint64_t BlocksOf(uint64_t size, uint64_t block_bytes) {
  return size / block_bytes + (size % block_bytes != 0);
}

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  while (value >>= 7) ++bytes;
  return bytes;
}

constexpr size_t kMovedBytes = 5;  // what a shard that is not at home takes, about

size_t BytesOf(const BlockPatch& patch) {
  size_t bytes = 3 + 1 + patch.write.size() + 4 + 1 + VarintBytes(patch.stored) +
                 kMovedBytes * patch.place.moved.size() + 1;
  uint32_t end = 0;
  for (const BlockPatch::Extent& extent : patch.extents) {
    bytes += VarintBytes(extent.first - end) + VarintBytes(extent.length);
    end = extent.end();
  }
  return bytes;
}

// About what a run takes when it is written.
size_t BytesOf(const BlockRun& run) {
  if (run.hole) return 1 + VarintBytes(run.count);
  if (run.shared) {
    return 1 + VarintBytes(run.count) + sizeof(run.object) + VarintBytes(run.shift) +
           VarintBytes(run.last_valid);
  }
  size_t bytes = 1 + VarintBytes(run.count) + run.write.size() + 4 + 1 +
                 VarintBytes(run.last_stored) + VarintBytes(run.last_valid) +
                 (run.moved.empty() ? 0 : 2) + kMovedBytes * run.moved.size() +
                 (run.patches.empty() ? 0 : 2);
  for (const BlockRun::Patched& patched : run.patches) bytes += BytesOf(patched.patch);
  return bytes;
}

size_t BytesOf(const Runs& runs) {
  size_t bytes = 0;
  for (const BlockRun& run : runs) bytes += BytesOf(run);
  return bytes;
}

// The part [first, first + count) of a run.
BlockRun Cut(const BlockRun& run, uint64_t first, uint64_t count, uint32_t block_bytes) {
  BlockRun part = run;
  part.count = count;
  if (run.hole) return part;
  if (first + count < run.count) part.last_stored = part.last_valid = block_bytes;
  const auto keep = [&](auto& list) {
    std::erase_if(list,
                  [&](const auto& one) { return one.index < first || one.index >= first + count; });
    for (auto& one : list) one.index -= first;
  };
  keep(part.moved);
  keep(part.patches);
  return part;
}

bool CanFollow(const BlockRun& a, const BlockRun& b, uint64_t block_bytes) {
  if (a.hole || b.hole) return a.hole && b.hole;
  return a.shared == b.shared && a.object == b.object && a.shift == b.shift && a.write == b.write &&
         a.epoch == b.epoch && a.layout == b.layout && a.last_stored == block_bytes &&
         a.last_valid == block_bytes;
}

void Join(BlockRun& before, const BlockRun& after) {
  for (BlockRun::Moved moved : after.moved) {
    moved.index += before.count;
    before.moved.push_back(moved);
  }
  for (BlockRun::Patched patched : after.patches) {
    patched.index += before.count;
    before.patches.push_back(std::move(patched));
  }
  before.count += after.count;
  before.last_stored = after.last_stored;
  before.last_valid = after.last_valid;
}

void AppendRun(Runs& runs, BlockRun run, uint64_t block_bytes) {
  if (!runs.empty() && CanFollow(runs.back(), run, block_bytes)) return Join(runs.back(), run);
  runs.push_back(std::move(run));
}

// Makes `block` (counted from the first run's) the first of a run; its index, or that of the end.
size_t SplitAt(Runs& runs, uint64_t block, uint64_t block_bytes) {
  uint64_t first = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (block == first) return i;
    const uint64_t count = runs[i].count;
    if (block < first + count) {
      const auto bytes = static_cast<uint32_t>(block_bytes);
      BlockRun tail = Cut(runs[i], block - first, first + count - block, bytes);
      runs[i] = Cut(runs[i], 0, block - first, bytes);
      runs.insert(runs.begin() + static_cast<ptrdiff_t>(i) + 1, std::move(tail));
      return i + 1;
    }
    first += count;
  }
  return runs.size();
}

void MergeAround(Runs& runs, size_t run, uint64_t block_bytes) {
  for (size_t i = std::min(run + 1, runs.size() - 1); i >= 1 && i + 1 > run; --i) {
    if (!CanFollow(runs[i - 1], runs[i], block_bytes)) continue;
    Join(runs[i - 1], runs[i]);
    runs.erase(runs.begin() + static_cast<ptrdiff_t>(i));
  }
}

// How many of a run's blocks, one at least, have shards elsewhere and patches of about so many
// bytes together. All: they have less.
uint64_t BlocksWithNotes(const BlockRun& run, size_t bytes) {
  size_t sum = 0;
  auto patched = run.patches.begin();
  const auto take_patches = [&](uint64_t until) {  // true: it is enough
    for (; patched != run.patches.end() && patched->index < until && sum <= bytes; ++patched) {
      sum += BytesOf(patched->patch);
    }
    return sum > bytes;
  };
  const auto before = [&](const auto& note) { return std::max<uint64_t>(note.index, 1); };
  for (const BlockRun::Moved& moved : run.moved) {
    if (take_patches(moved.index)) return before(*std::prev(patched));
    sum += kMovedBytes;
    if (sum > bytes) return before(moved);
  }
  return take_patches(run.count) ? before(*std::prev(patched)) : run.count;
}

// Runs in portions of about equal size, none above `most` bytes unless it is one block's.
std::vector<Runs> Divide(Runs runs, size_t most, uint32_t block_bytes) {
  const size_t total = BytesOf(runs);
  if (total <= most) {
    std::vector<Runs> one;
    one.push_back(std::move(runs));
    return one;
  }
  const size_t goal = total / ((total + most - 1) / most) + 1;
  std::vector<Runs> portions(1);
  size_t taken = 0;
  for (BlockRun& run : runs) {
    while (true) {
      const size_t bytes = BytesOf(run);
      if (taken > 0 && taken + bytes > goal) {
        portions.emplace_back();
        taken = 0;
      }
      // A run may be large because of the shards that are not at home, and of patches.
      const uint64_t cut = bytes <= goal ? run.count : BlocksWithNotes(run, goal / 8 * 5 + 5);
      if (cut == run.count) {
        taken += bytes;
        portions.back().push_back(std::move(run));
        break;
      }
      portions.back().push_back(Cut(run, 0, cut, block_bytes));
      taken += BytesOf(portions.back().back());
      run = Cut(run, cut, run.count - cut, block_bytes);
    }
  }
  return portions;
}

uint64_t StoredIn(const Runs& runs, uint64_t block_bytes) {
  uint64_t bytes = 0;
  for (const BlockRun& run : runs) {
    if (!run.hole) bytes += (run.count - 1) * block_bytes + run.last_valid;
  }
  return bytes;
}

std::shared_ptr<const BlockMap::Stretch> MakeStretch(Runs runs, uint64_t block_bytes) {
  BlockMap::Stretch stretch;
  for (const BlockRun& run : runs) stretch.count += run.count;
  stretch.stored_bytes = StoredIn(runs, block_bytes);
  stretch.bytes = BytesOf(runs);
  stretch.runs = std::move(runs);
  return std::make_shared<const BlockMap::Stretch>(std::move(stretch));
}

bool SamePage(const BlockMap::Part& a, const BlockMap::Part& b) {
  return a.first == b.first && a.stretch->page && b.stretch->page &&
         a.stretch->page->SameStripe(*b.stretch->page);
}

}  // namespace

// ---- One block

namespace {

BlockPlace AsPlace(const BlockPatch& patch) {
  return {.object = patch.object,
          .write = patch.write,
          .layout = patch.layout,
          .place = patch.place,
          .stored = patch.stored,
          .valid = patch.stored};
}

}  // namespace

bool BlockPlace::SameStripes(const BlockPlace& other) const {
  return SameStripe(other) &&
         std::ranges::equal(patches, other.patches, [](const auto& a, const auto& b) {
           return a.object == b.object && a.write == b.write;
         });
}

bool BlockPlace::SameBytes(const BlockPlace& other) const {
  return SameStripes(other) && valid == other.valid &&
         std::ranges::equal(patches, other.patches, {}, &BlockPatch::extents, &BlockPatch::extents);
}

bool BlockPlace::Names(const StripeId& stripe) const {
  const auto is_it = [&](const auto& one) {
    return one.object == stripe.object && one.write == stripe.write;
  };
  return is_it(*this) || std::ranges::any_of(patches, is_it);
}

bool BlockPlace::Names(const BlockPlace& stripe) const { return Names(stripe.IdOf(0)); }

std::vector<BlockPlace> BlockPlace::Stripes() const {
  std::vector<BlockPlace> stripes;
  stripes.push_back(*this);
  stripes.front().patches.clear();
  for (const BlockPatch& patch : patches) {
    stripes.push_back(AsPlace(patch));
    stripes.back().shift = shift;
  }
  return stripes;
}

void BlockPlace::TakePlaces(const BlockPlace& other) {
  for (const BlockPlace& there : other.Stripes()) {
    if (SameStripe(there)) place = there.place;
    for (BlockPatch& patch : patches) {
      if (patch.object == there.object && patch.write == there.write) patch.place = there.place;
    }
  }
}

void BlockPlace::CutTo(uint32_t valid_bytes) {
  valid = std::min(valid, valid_bytes);
  if (shared) stored = valid;
  for (BlockPatch& patch : patches) {
    std::erase_if(patch.extents, [&](const auto& extent) { return extent.first >= valid_bytes; });
    if (patch.extents.empty()) continue;
    BlockPatch::Extent& last = patch.extents.back();
    last.length = std::min(last.length, valid_bytes - last.first);
  }
  std::erase_if(patches, [](const BlockPatch& patch) { return patch.extents.empty(); });
}

void BlockPlace::Lay(BlockPatch patch) {
  IntervalSet over;
  for (const BlockPatch::Extent& extent : patch.extents) over.Add(extent.first, extent.end());
  std::erase_if(patches, [&](const BlockPatch& below) {
    return std::ranges::all_of(below.extents, [&](const BlockPatch::Extent& extent) {
      return over.Covers(extent.first, extent.end());
    });
  });
  patches.push_back(std::move(patch));
}

std::vector<BlockPart> PartsOf(const BlockPlace& place, uint64_t first, uint64_t end,
                               IntervalSet covered) {
  std::vector<BlockPart> parts;
  const std::vector<BlockPlace> stripes = place.Stripes();
  // From above: what one patch has nobody below is asked for.
  for (size_t i = place.patches.size(); i-- > 0;) {
    uint64_t offset = 0;
    for (const BlockPatch::Extent& extent : place.patches[i].extents) {
      const uint64_t from = std::max<uint64_t>(first, extent.first);
      const uint64_t to = std::min<uint64_t>(end, extent.end());
      for (const auto& gap : covered.GapsWithin(from, to)) {
        parts.push_back(
            {gap.first, gap.end - gap.first, stripes[i + 1], offset + gap.first - extent.first});
        covered.Add(gap.first, gap.end);
      }
      offset += extent.length;
    }
  }
  for (const auto& gap : covered.GapsWithin(first, end)) {
    parts.push_back({gap.first, gap.end - gap.first, stripes.front(), gap.first});
  }
  return parts;
}

BlockPlace SharedPlace(uint64_t keeper, uint64_t shift, uint32_t valid) {
  return {.shared = true,
          .object = keeper,
          .shift = shift,
          .write = {},
          .layout = {},
          .place = {},
          .stored = valid,
          .valid = valid};
}

StripeLayout CopiesOf(uint64_t bytes, int parity_shards) {
  const uint64_t cells = (bytes + kCellBytes - 1) / kCellBytes;
  return {.data_shards = 1,
          .parity_shards = static_cast<uint8_t>(parity_shards),
          .shard_bytes = static_cast<uint32_t>(cells * kCellBytes)};
}

bool MayHold(const std::optional<BlockMap>& map, uint64_t block, const BlockPlace& stripe) {
  if (!map) return false;
  if (map->FirstMissing(block, block + 1)) return true;
  const auto there = map->Find(block);
  return there && there->Names(stripe);
}

namespace {

// The notes of blocks [first, end) in a list that ascends by them.
template <typename Note>
std::span<const Note> NotesOf(const std::vector<Note>& notes, uint64_t first, uint64_t end) {
  const auto begin = std::ranges::lower_bound(notes, first, {}, &Note::index);
  return {begin, std::ranges::lower_bound(begin, notes.end(), end, {}, &Note::index)};
}
template <typename Note>
std::span<const Note> NotesOf(const std::vector<Note>& notes, uint64_t index) {
  return NotesOf(notes, index, index + 1);
}

}  // namespace

BlockPlace PlaceInRun(const BlockRun& run, uint64_t index, uint64_t block_bytes) {
  BlockPlace place{.shared = run.shared,
                   .object = run.object,
                   .shift = run.shift,
                   .write = run.write,
                   .layout = run.layout,
                   .place = {.epoch = run.epoch, .moved = {}},
                   .stored = static_cast<uint32_t>(block_bytes),
                   .valid = static_cast<uint32_t>(block_bytes)};
  if (index + 1 == run.count) {
    place.stored = run.last_stored;
    place.valid = run.last_valid;
  }
  for (const auto& moved : NotesOf(run.moved, index)) place.place.moved.push_back(moved.shard);
  for (const auto& patched : NotesOf(run.patches, index)) place.patches.push_back(patched.patch);
  return place;
}

namespace {

BlockRun RunOf(const BlockPlace& place) {
  BlockRun run{.count = 1,
               .hole = false,
               .shared = place.shared,
               .object = place.object,
               .shift = place.shared ? place.shift : 0,
               .write = place.write,
               .epoch = place.place.epoch,
               .layout = place.layout,
               .last_stored = place.stored,
               .last_valid = place.valid};
  for (const StripePlace::Moved& shard : place.place.moved) run.moved.push_back({0, shard});
  for (const BlockPatch& patch : place.patches) run.patches.push_back({0, patch});
  return run;
}

}  // namespace

// ---- What is where

Runs BlockMap::runs() const {
  Runs all;
  for (const Part& part : parts_) {
    assert(part.stretch->loaded());
    all.insert(all.end(), part.stretch->runs.begin(), part.stretch->runs.end());
  }
  return all;
}

size_t BlockMap::IndexOf(uint64_t block) const {
  if (block >= blocks_) return parts_.size();
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), block,
                                      [](uint64_t b, const Part& part) { return b < part.first; });
  return static_cast<size_t>(after - parts_.begin()) - 1;
}

const BlockMap::Part* BlockMap::PartOf(uint64_t block) const {
  const size_t index = IndexOf(block);
  return index == parts_.size() ? nullptr : &parts_[index];
}

std::optional<BlockMap::Part> BlockMap::FirstMissing(uint64_t first, uint64_t end) const {
  for (size_t i = IndexOf(first); i < parts_.size() && parts_[i].first < end; ++i) {
    if (!parts_[i].stretch->loaded()) return parts_[i];
  }
  return std::nullopt;
}

void BlockMap::Install(const Part& page, const std::shared_ptr<const Stretch>& loaded) {
  const size_t at = IndexOf(page.first);
  if (at < parts_.size() && !parts_[at].stretch->loaded() && SamePage(parts_[at], page)) {
    parts_[at].stretch = loaded;
  }
}

size_t BlockMap::CountLoadedPages() const {
  return static_cast<size_t>(std::count_if(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.stretch->page.has_value() && part.stretch->loaded();
  }));
}

void BlockMap::ForgetPages() {
  for (Part& part : parts_) {
    if (!part.stretch->page || !part.stretch->loaded()) continue;
    part.stretch = std::make_shared<const Stretch>(
        Stretch{part.stretch->count, part.stretch->stored_bytes, 0, {}, part.stretch->page});
  }
}

std::optional<BlockPlace> BlockMap::Find(uint64_t block) const {
  const Part* part = PartOf(block);
  if (!part) return std::nullopt;
  assert(part->stretch->loaded());
  uint64_t first = part->first;
  for (const BlockRun& run : part->stretch->runs) {
    if (block < first + run.count) {
      if (run.hole) return std::nullopt;
      return PlaceInRun(run, block - first, block_bytes());
    }
    first += run.count;
  }
  return std::nullopt;
}

BlockMap::Span BlockMap::SpanAt(uint64_t block) const {
  const Part& part = *PartOf(block);
  if (part.stretch->stored_bytes == 0) return {true, part.end()};
  assert(part.stretch->loaded());
  uint64_t end = part.first;
  for (const BlockRun& run : part.stretch->runs) {
    end += run.count;
    if (block < end) return {run.hole, end};
  }
  return {true, end};
}

std::optional<BlockPlace> BlockMap::FindPage(uint64_t page_block) const {
  const Part* part = PartOf(page_block & ~kPageBlocks);
  if (!part || (part->first | kPageBlocks) != page_block) return std::nullopt;
  return part->stretch->page;
}

bool BlockMap::HasMovedShards() const {
  const auto has_moved = [](const BlockRun& run) {
    return !run.moved.empty() || std::ranges::any_of(run.patches, [](const auto& patched) {
      return !patched.patch.place.moved.empty();
    });
  };
  return std::ranges::any_of(parts_, [&](const Part& part) {
    const Stretch& stretch = *part.stretch;
    return (stretch.page && !stretch.page->place.moved.empty()) ||
           std::ranges::any_of(stretch.runs, has_moved);
  });
}

std::set<uint64_t> BlockMap::Keepers() const {
  std::set<uint64_t> keepers;
  for (const Part& part : parts_) {
    for (const BlockRun& run : part.stretch->runs) {
      if (run.shared) keepers.insert(run.object);
    }
  }
  return keepers;
}

uint64_t BlockMap::StoredBytes() const {
  uint64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.stretch->stored_bytes;
  return bytes;
}

// ---- Changing it

void BlockMap::Append(std::vector<Part>& parts, Runs runs, size_t most_bytes) const {
  if (runs.empty()) return;
  for (Runs& portion : Divide(std::move(runs), most_bytes, static_cast<uint32_t>(block_bytes()))) {
    const uint64_t first = parts.empty() ? 0 : parts.back().end();
    parts.push_back({first, MakeStretch(std::move(portion), block_bytes())});
  }
}

// Instead of what the part had; the same number of blocks.
void BlockMap::PutRuns(size_t part, Runs runs) {
  if (BytesOf(runs) <= kStretchBytes) {
    parts_[part].stretch = MakeStretch(std::move(runs), block_bytes());
    return;
  }
  std::vector<Part> divided(parts_.begin(), parts_.begin() + static_cast<ptrdiff_t>(part));
  Append(divided, std::move(runs), kStretchBytes);
  divided.insert(divided.end(), parts_.begin() + static_cast<ptrdiff_t>(part) + 1, parts_.end());
  parts_ = std::move(divided);
}

void BlockMap::Replace(uint64_t block, BlockRun run) {
  assert(block < blocks_);
  const size_t at = IndexOf(block);
  assert(parts_[at].stretch->loaded());
  Runs runs = parts_[at].stretch->runs;
  const uint64_t index = block - parts_[at].first;
  SplitAt(runs, index + 1, block_bytes());
  const size_t place = SplitAt(runs, index, block_bytes());
  runs[place] = std::move(run);
  MergeAround(runs, place, block_bytes());
  PutRuns(at, std::move(runs));
}

void BlockMap::Set(uint64_t block, const BlockPlace& place) { Replace(block, RunOf(place)); }

// What lies between the two ends is dropped as it is, loaded or not.
void BlockMap::SetHoles(uint64_t first, uint64_t end) {
  end = std::min(end, blocks_);
  if (first >= end) return;
  const size_t first_part = IndexOf(first);
  const size_t last_part = IndexOf(end - 1);
  const Part head = parts_[first_part];
  const Part tail = parts_[last_part];
  assert(head.stretch->loaded() && tail.stretch->loaded());
  Runs runs = head.stretch->runs;
  runs.resize(SplitAt(runs, first - head.first, block_bytes()));
  AppendRun(runs, {.count = end - first}, block_bytes());
  Runs rest = tail.stretch->runs;
  for (size_t i = SplitAt(rest, end - tail.first, block_bytes()); i < rest.size(); ++i) {
    AppendRun(runs, rest[i], block_bytes());
  }
  std::vector<Part> parts(parts_.begin(), parts_.begin() + static_cast<ptrdiff_t>(first_part));
  Append(parts, std::move(runs), kStretchBytes);
  parts.insert(parts.end(), parts_.begin() + static_cast<ptrdiff_t>(last_part) + 1, parts_.end());
  parts_ = std::move(parts);
}

void BlockMap::Resize(uint64_t size) {
  const bool shrinks = size < size_;
  const uint64_t wanted = BlocksOf(size, block_bytes());
  size_ = size;
  if (!shrinks) return Grow(wanted);
  if (wanted < blocks_) {
    const Part part = parts_[IndexOf(wanted)];
    parts_.resize(IndexOf(wanted));
    blocks_ = wanted;
    if (wanted > part.first) {
      assert(part.stretch->loaded());
      Runs runs = part.stretch->runs;
      runs.resize(SplitAt(runs, wanted - part.first, block_bytes()));
      Append(parts_, std::move(runs), kStretchBytes);
    }
  }
  if (wanted == 0) return;
  // The last block may end earlier than it did.
  const auto in_last = static_cast<uint32_t>(size - (wanted - 1) * block_bytes());
  const std::optional<BlockPlace> last = Find(wanted - 1);
  if (!last || last->valid <= in_last) return;
  BlockPlace cut = *last;
  cut.CutTo(in_last);
  Set(wanted - 1, cut);
}

void BlockMap::Grow(uint64_t blocks) {
  if (blocks == blocks_) return;
  BlockRun hole{.count = blocks - blocks_};
  blocks_ = blocks;
  if (parts_.empty() || parts_.back().stretch->page) {
    return Append(parts_, {std::move(hole)}, kStretchBytes);
  }
  Runs runs = parts_.back().stretch->runs;
  AppendRun(runs, std::move(hole), block_bytes());
  PutRuns(parts_.size() - 1, std::move(runs));
}

// ---- Comparing

namespace {

// Where `other` differs from a run with data: the parts of [first, end) that it does not have.
// The cursor says where in `parts`, which are the other map's, the last one ended.
struct Cursor {
  size_t part = 0;
  size_t run = 0;
  uint64_t first = 0;  // block of the run
};
BlockMap::Piece PieceOf(uint64_t block, const BlockPatch& patch) {
  return {block, RunOf(AsPlace(patch))};
}

void AddPieces(const BlockRun& run, uint64_t first, uint32_t bytes,
               const std::vector<BlockMap::Part>& parts, Cursor& at,
               std::vector<BlockMap::Piece>& pieces) {
  const uint64_t end = first + run.count;
  const auto patches_of = [&](uint64_t from, uint64_t until) {
    return NotesOf(run.patches, from - first, until - first);
  };
  for (uint64_t block = first; block < end;) {
    while (at.part < parts.size() && parts[at.part].end() <= block) {
      ++at.part;
      at.run = 0;
      at.first = at.part < parts.size() ? parts[at.part].first : 0;
    }
    uint64_t until = end;
    bool kept = false;
    if (at.part < parts.size() && !parts[at.part].stretch->loaded()) {
      until = std::min(end, parts[at.part].end());
      kept = true;  // for all we know
    } else if (at.part < parts.size()) {
      const std::vector<BlockRun>& runs = parts[at.part].stretch->runs;
      while (at.first + runs[at.run].count <= block) at.first += runs[at.run++].count;
      const BlockRun& there = runs[at.run];
      until = std::min(end, at.first + there.count);
      kept = !there.hole && there.shared == run.shared && there.object == run.object &&
             there.shift == run.shift && there.write == run.write;
      for (const BlockRun::Patched& patched : patches_of(block, until)) {
        const uint64_t patched_block = first + patched.index;
        const bool is_there = std::ranges::any_of(
            NotesOf(there.patches, patched_block - at.first), [&](const auto& theirs) {
              return theirs.patch.object == patched.patch.object &&
                     theirs.patch.write == patched.patch.write;
            });
        if (!is_there) pieces.push_back(PieceOf(patched_block, patched.patch));
      }
    } else {
      for (const BlockRun::Patched& patched : patches_of(block, end)) {
        pieces.push_back(PieceOf(first + patched.index, patched.patch));
      }
    }
    if (!kept) {
      pieces.push_back({block, Cut(run, block - first, until - block, bytes)});
      pieces.back().run.patches.clear();
    }
    block = until;
  }
}

}  // namespace

std::vector<BlockMap::Piece> BlockMap::PiecesOf(uint64_t block, const BlockPlace& place) {
  std::vector<Piece> pieces;
  for (const BlockPlace& stripe : place.Stripes()) pieces.push_back({block, RunOf(stripe)});
  return pieces;
}

BlockMap::Piece BlockMap::PieceOf(const Part& page) {
  return {kPageBlocks | page.first, RunOf(*page.stretch->page)};
}

BlockMap::Difference BlockMap::NotIn(const BlockMap& other) const {
  Difference difference;
  Cursor at;
  const auto bytes = static_cast<uint32_t>(block_bytes());
  for (const Part& part : parts_) {
    const Part* same = other.PartOf(part.first);
    if (same &&
        (SamePage(*same, part) || (same->first == part.first && same->stretch == part.stretch))) {
      continue;
    }
    if (!part.stretch->loaded()) {
      difference.missing.push_back(part);
      continue;
    }
    if (part.stretch->page) difference.pages.push_back(PieceOf(part));
    uint64_t first = part.first;
    for (const BlockRun& run : part.stretch->runs) {
      if (!run.hole) AddPieces(run, first, bytes, other.parts_, at, difference.blocks);
      first += run.count;
    }
  }
  return difference;
}

std::vector<BlockMap::Piece> BlockMap::NotIn(const Part& part, const BlockMap& other) const {
  BlockMap only(layout_);
  only.parts_.push_back(part);
  return only.NotIn(other).blocks;
}

// ---- Pages

size_t BlockMap::RootBytes() const {
  size_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.stretch->page ? kPageNameBytes + 5 * part.stretch->page->place.moved.size()
                                : part.stretch->bytes;
  }
  return bytes;
}

// Neighbours that are in no page become one, and what is too large for a page several.
void BlockMap::JoinLoose(size_t page_bytes) {
  std::vector<Part> joined;
  for (size_t i = 0; i < parts_.size();) {
    if (parts_[i].stretch->page) {
      joined.push_back(parts_[i++]);
      continue;
    }
    size_t end = i;
    while (end < parts_.size() && !parts_[end].stretch->page) ++end;
    if (end == i + 1 && parts_[i].stretch->bytes <= page_bytes) {
      joined.push_back(parts_[i++]);
      continue;
    }
    Runs runs;
    size_t count = 0;
    for (size_t j = i; j < end; ++j) count += parts_[j].stretch->runs.size();
    runs.reserve(count);
    for (; i < end; ++i) {
      for (const BlockRun& run : parts_[i].stretch->runs) AppendRun(runs, run, block_bytes());
    }
    Append(joined, std::move(runs), page_bytes);
  }
  parts_ = std::move(joined);
}

std::optional<std::vector<uint64_t>> BlockMap::Settle(const MapLimits& limits) {
  size_t total = 0;
  bool paged = false;
  for (const Part& part : parts_) {
    paged |= part.stretch->page.has_value();
    total += part.stretch->page ? part.stretch->page->stored : part.stretch->bytes;
  }
  if (!paged && total <= limits.inline_bytes) {
    JoinLoose(std::numeric_limits<size_t>::max());
    return std::vector<uint64_t>();
  }
  // So large that the names of all pages take half of what there is.
  size_t page_bytes = limits.page_bytes;
  const auto names = [&] { return (total / page_bytes + 1) * kPageNameBytes; };
  while (page_bytes < kMaxPageBytes / 2 && names() > limits.inline_bytes / 2) page_bytes *= 2;

  const auto worth_a_page = [](const Part& part) {
    return !part.stretch->page && part.stretch->bytes > kPageNameBytes;
  };
  const auto to_store = [&] {
    std::vector<uint64_t> firsts;
    for (const Part& part : parts_) {
      if (worth_a_page(part)) firsts.push_back(part.first);
    }
    return firsts;
  };
  JoinLoose(page_bytes);
  if (RootBytes() <= limits.inline_bytes) return std::vector<uint64_t>();
  size_t after = 0;
  for (const Part& part : parts_) {
    after += part.stretch->page || worth_a_page(part) ? kPageNameBytes : part.stretch->bytes;
  }
  if (after <= limits.inline_bytes || after <= 2 * names()) return to_store();
  // Too many pages, which are small: all of them are made anew.
  if (FirstMissing(0, blocks_)) return std::nullopt;
  for (Part& part : parts_) {
    if (part.stretch->page) part.stretch = MakeStretch(part.stretch->runs, block_bytes());
  }
  JoinLoose(page_bytes);
  return to_store();
}

void BlockMap::TakePlaces(const BlockMap& other) {
  for (Part& part : parts_) {
    if (!part.stretch->page) continue;
    const auto theirs = other.FindPage(kPageBlocks | part.first);
    const bool same = theirs && theirs->SameStripe(*part.stretch->page);
    Stretch stretch = *MakeStretch(part.stretch->runs, block_bytes());
    if (same) stretch.page = theirs;
    part.stretch = std::make_shared<const Stretch>(std::move(stretch));
  }
  for (uint64_t block = 0; block < std::min(blocks_, other.blocks_); ++block) {
    const auto theirs = other.Find(block);
    auto ours = theirs ? Find(block) : std::nullopt;
    if (!ours) continue;
    const BlockPlace before = *ours;
    ours->TakePlaces(*theirs);
    if (*ours != before) Set(block, *ours);
  }
}

void BlockMap::SetPage(uint64_t first, BlockPlace page) {
  Part& part = parts_[IndexOf(first)];
  assert(part.first == first);
  Stretch stretch = *part.stretch;
  stretch.page = std::move(page);
  part.stretch = std::make_shared<const Stretch>(std::move(stretch));
}

// ---- Bytes

namespace {

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
    writer.U8(kData | kShared).Varint(run.count).U64(run.object).Varint(run.shift);
    writer.Varint(run.last_valid);
    return;
  }
  writer.U8(static_cast<uint8_t>(kData | kind | (run.object != inode ? kOtherObject : 0) |
                                 (run.moved.empty() ? 0 : kMovedShards) |
                                 (run.patches.empty() ? 0 : kPatches)));
  writer.Varint(run.count).Raw(Bytes(std::as_bytes(std::span(run.write))));
  if (run.object != inode) writer.U64(run.object);
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
  if (flags == (kData | kShared)) {
    run.shared = true;
    run.object = reader.U64();
    run.shift = reader.Varint();
    const uint64_t valid = reader.Varint();
    if (valid > UINT32_MAX || run.object == inode) reader.MarkBad();
    run.last_stored = run.last_valid = static_cast<uint32_t>(valid);
    return decoded;
  }
  decoded.page = may_be_page && (flags & kPage) != 0;
  const int known = kData | kOtherObject | kMovedShards | (decoded.page ? kPage : kPatches);
  if ((flags & kData) == 0 || (flags & ~known) != 0) reader.MarkBad();
  run.write = DecodeWriteId(reader);
  run.object = (flags & kOtherObject) != 0 ? reader.U64() : inode;
  run.epoch = reader.U32();
  const uint64_t layout = reader.Varint();
  const uint64_t stored = reader.Varint();
  const uint64_t valid = reader.Varint();
  if (layout >= layouts.size() || stored > UINT32_MAX || (!decoded.page && valid > stored)) {
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
  if (run.last_stored == 0 || run.last_stored > room || run.last_valid > limit ||
      (run.count > 1 && run.layout.block_bytes() < block_bytes())) {
    return Fail(EBADMSG, "a block map's run from block {} on has blocks of impossible length",
                first);
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

bool operator==(const BlockMap& a, const BlockMap& b) {
  if (a.layout_ != b.layout_ || a.blocks_ != b.blocks_) return false;
  Writer bytes_a, bytes_b;
  a.Encode(bytes_a, 0);
  b.Encode(bytes_b, 0);
  return bytes_a.bytes() == bytes_b.bytes();
}

}  // namespace pinstripe
