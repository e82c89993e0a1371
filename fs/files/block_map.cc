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

#include "fs/files/block_runs.h"

namespace pinstripe {
namespace {

constexpr size_t kPageNameBytes = 36;  // what a page takes in the inode, about

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
           VarintBytes(run.last_valid) + (run.skip == 0 ? 0 : VarintBytes(run.skip));
  }
  size_t bytes = 1 + VarintBytes(run.count) + run.write.size() + 4 + 1 +
                 VarintBytes(run.last_stored) + VarintBytes(run.last_valid) +
                 (run.moved.empty() ? 0 : 2) + kMovedBytes * run.moved.size() +
                 (run.patches.empty() ? 0 : 2) + (run.shift == 0 ? 0 : VarintBytes(run.shift)) +
                 (run.gaps.empty() ? 0 : 1);
  for (const BlockRun::Patched& patched : run.patches) bytes += BytesOf(patched.patch);
  uint32_t end = 0;
  for (const BlockExtent& gap : run.gaps) {
    bytes += VarintBytes((gap.first - end) / kGapUnit) + VarintBytes(gap.length / kGapUnit);
    end = gap.end();
  }
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
  return a.shared == b.shared && a.object == b.object && a.shift == b.shift && a.skip == 0 &&
         b.skip == 0 && a.write == b.write && a.epoch == b.epoch && a.layout == b.layout &&
         a.gaps.empty() && b.gaps.empty() && a.last_stored == block_bytes &&
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

uint64_t BlocksOf(uint64_t size, uint64_t block_bytes) {
  return size / block_bytes + (size % block_bytes != 0);
}

size_t BytesOf(const Runs& runs) {
  size_t bytes = 0;
  for (const BlockRun& run : runs) bytes += BytesOf(run);
  return bytes;
}

uint64_t StoredIn(const Runs& runs, uint64_t block_bytes) {
  uint64_t bytes = 0;
  for (const BlockRun& run : runs) {
    if (run.hole) continue;
    bytes += run.gaps.empty() ? (run.count - 1) * block_bytes + run.last_valid
                              : DataOf(PlaceInRun(run, 0, block_bytes)).Count();
  }
  return bytes;
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
  place.skip = run.skip;
  place.gaps = run.gaps;
  for (const auto& moved : NotesOf(run.moved, index)) place.place.moved.push_back(moved.shard);
  for (const auto& patched : NotesOf(run.patches, index)) place.patches.push_back(patched.patch);
  return place;
}

BlockRun RunOf(const BlockPlace& place) {
  BlockRun run{.count = 1,
               .hole = false,
               .shared = place.shared,
               .object = place.object,
               .shift = place.shift,
               .skip = place.shared ? place.skip : 0,
               .write = place.write,
               .epoch = place.place.epoch,
               .layout = place.layout,
               .last_stored = place.stored,
               .last_valid = place.valid};
  for (const StripePlace::Moved& shard : place.place.moved) run.moved.push_back({0, shard});
  for (const BlockPatch& patch : place.patches) run.patches.push_back({0, patch});
  run.gaps = place.gaps;
  return run;
}

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
  if (!part.stretch->loaded()) {
    assert(part.stretch->stored_bytes == 0);
    return {true, part.end()};
  }
  uint64_t end = part.first;
  for (const BlockRun& run : part.stretch->runs) {
    end += run.count;
    if (block < end) return {run.hole, end};
  }
  return {true, end};
}

std::optional<BlockPlace> BlockMap::FindPage(PageNumber page) const {
  const Part* part = PartOf(page.first_block());
  if (!part || part->first != page.first_block()) return std::nullopt;
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

// Everything between the two ends is dropped as it is, loaded or not.
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
  if (!DataOf(cut).empty()) return Set(wanted - 1, cut);
  SetHoles(wanted - 1, wanted);  // what was before the cut was a gap
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
             there.shift == run.shift && there.skip == run.skip && there.write == run.write;
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
  return {PageNumber(page.first).number(), RunOf(*page.stretch->page)};
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
    const auto theirs = other.FindPage(PageNumber(part.first));
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

bool operator==(const BlockMap& a, const BlockMap& b) {
  if (a.layout_ != b.layout_ || a.blocks_ != b.blocks_) return false;
  Writer bytes_a, bytes_b;
  a.Encode(bytes_a, 0);
  b.Encode(bytes_b, 0);
  return bytes_a.bytes() == bytes_b.bytes();
}

}  // namespace pinstripe
