#include "fs/files/patch_plan.h"

#include <algorithm>
#include <vector>

namespace pinstripe {
namespace {

constexpr uint32_t kLeastPart = 16;  // of the block, for its patches

void AddTo(IntervalSet& bytes, const BlockPatch& patch) {
  for (const BlockPatch::Extent& extent : patch.extents) bytes.Add(extent.first, extent.end());
}

bool Covers(const IntervalSet& bytes, const BlockPatch& patch) {
  return std::ranges::all_of(patch.extents, [&](const BlockPatch::Extent& extent) {
    return bytes.Covers(extent.first, extent.end());
  });
}

}  // namespace

std::optional<IntervalSet> PlanPatch(const BlockPlace& place, const IntervalSet& written) {
  // A block of one cell is read with one request, and takes little to be written anew.
  if (place.stored <= kCellBytes || written.empty() || written.end() > place.valid) {
    return std::nullopt;
  }
  uint64_t most_bytes = std::min(kMaxPatchBytes, place.stored / kLeastPart);
  size_t most_extents = kMaxPatchExtents;
  if (written.Count() > most_bytes) return std::nullopt;
  IntervalSet bytes = written;
  std::vector<BlockPatch> others = place.patches;
  for (bool is_first = true;; is_first = false) {
    std::erase_if(others, [&](const BlockPatch& patch) { return Covers(bytes, patch); });
    const uint64_t size = bytes.Count();
    uint64_t all_bytes = size;
    size_t extents = bytes.Within(0, UINT64_MAX).size();
    for (const BlockPatch& patch : others) {
      all_bytes += patch.stored;
      extents += patch.extents.size();
    }
    const bool fits =
        others.size() < kMaxPatches && all_bytes <= most_bytes && extents <= most_extents;
    // When patches go into others, each byte is written again only when its patch has doubled.
    const bool is_worth_it = is_first || others.empty() || others.back().stored > size;
    if (fits && is_worth_it) return bytes;
    if (others.empty()) return std::nullopt;
    // To bring them down to just what is allowed would have to be done again the next time.
    if (is_first && all_bytes > most_bytes) most_bytes /= 2;
    if (is_first && extents > most_extents) most_extents /= 2;
    AddTo(bytes, others.back());
    others.pop_back();
  }
}

}  // namespace pinstripe
