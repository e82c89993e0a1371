// BlockPlace: where one block is, and what is laid over it. fs/files/block_map.h.

#include <algorithm>
#include <cassert>
#include <utility>

#include "fs/files/block_runs.h"

namespace pinstripe {
BlockPlace AsPlace(const BlockPatch& patch) {
  return {.object = patch.object,
          .write = patch.write,
          .layout = patch.layout,
          .place = patch.place,
          .stored = patch.stored,
          .valid = patch.stored};
}

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

namespace {

// By the bytes of the block that is stored, of which the place may be a part.
std::vector<BlockPart> PartsOfStored(const BlockPlace& place, uint64_t first, uint64_t end,
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
  for (const BlockExtent& zeros : place.gaps) covered.Add(zeros.first, zeros.end());
  for (const auto& gap : covered.GapsWithin(first, end)) {
    parts.push_back({gap.first, gap.end - gap.first, stripes.front(),
                     gap.first - GapBytes(place.gaps, gap.first)});
  }
  return parts;
}

}  // namespace

std::vector<IntervalSet::Interval> ZerosOf(const BlockPlace& place, uint64_t first, uint64_t end) {
  std::vector<IntervalSet::Interval> zeros;
  for (const BlockExtent& gap : place.gaps) {
    const uint64_t from = std::max<uint64_t>(first + place.skip, gap.first);
    const uint64_t to = std::min<uint64_t>(end + place.skip, gap.end());
    if (from < to) zeros.push_back({from - place.skip, to - place.skip});
  }
  return zeros;
}

IntervalSet DataOf(const BlockPlace& place) {
  IntervalSet data;
  data.Add(0, place.valid);
  for (const auto& gap : ZerosOf(place, 0, place.valid)) data.Remove(gap.first, gap.end);
  for (const BlockPatch& patch : place.patches) {
    for (const BlockExtent& extent : patch.extents) data.Add(extent.first, extent.end());
  }
  return data;
}

std::vector<BlockPart> PartsOf(const BlockPlace& place, uint64_t first, uint64_t end,
                               IntervalSet covered) {
  if (place.skip == 0) return PartsOfStored(place, first, end, std::move(covered));
  IntervalSet covered_there;
  for (const auto& part : covered.Within(first, end)) {
    covered_there.Add(part.first + place.skip, part.end + place.skip);
  }
  auto parts = PartsOfStored(place, first + place.skip, end + place.skip, std::move(covered_there));
  for (BlockPart& part : parts) part.first -= place.skip;
  return parts;
}

BlockPlace SharedPlace(uint64_t keeper, uint64_t shift, uint32_t valid, uint32_t skip) {
  return {.shared = true,
          .object = keeper,
          .shift = shift,
          .write = {},
          .layout = {},
          .place = {},
          .stored = valid,
          .valid = valid,
          .patches = {},
          .skip = skip};
}

StripeLayout CopiesOf(uint64_t bytes, int parity_shards) {
  const uint64_t cells = (bytes + kCellBytes - 1) / kCellBytes;
  return {.data_shards = 1,
          .parity_shards = static_cast<uint8_t>(parity_shards),
          .shard_bytes = static_cast<uint32_t>(cells * kCellBytes)};
}

}  // namespace pinstripe
