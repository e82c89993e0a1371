#include "fs/files/merge.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace pinstripe {
namespace {

std::optional<BlockPlace> PlaceIn(const Inode& inode, uint64_t block) {
  return inode.map ? inode.map->Find(block) : std::nullopt;
}

// Whether the bytes below ours in this block are the same there as they were when we began.
bool SameBelow(uint64_t block, const Inode& base, const LocalChanges& ours,
               const TheirChanges& theirs) {
  if (ours.cut_to && *ours.cut_to <= block * ours.block_bytes)
    return true;  // none of them are left
  if (ours.cleared.Contains(block)) return true;
  const auto there = PlaceIn(theirs.inode, block);
  const auto here = PlaceIn(ours.now, block);
  // A commit of ours of which we did not learn that it happened.
  if (there && here && there->SameStripes(*here) && there->valid >= here->valid) return true;
  if (base.map && base.map->FirstMissing(block, block + 1)) return false;  // nobody can tell
  const auto before = PlaceIn(base, block);
  if (there.has_value() != before.has_value()) return false;
  if (there && there->shared && !before->shared) {
    // Others have come to share what was there: its bytes are the same. But it is not to be named
    // as ours any more: so only what was stored anew as a whole counts.
    const auto resolved = theirs.resolved.find(block);
    return here && resolved != theirs.resolved.end() && resolved->second.SameBytes(*before) &&
           !here->Names(*before) && here->patches.empty();
  }
  // A repair that has moved its shards has left its bytes as they were.
  if (there && !there->SameBytes(*before)) return false;
  return block != 0 || theirs.inode.inline_data == base.inline_data;
}

}  // namespace

bool CanMerge(const LocalChanges& ours, const Inode& theirs) {
  const bool has_blocks = !ours.written_ends.empty() || !ours.cleared.empty();
  return !theirs.map || !has_blocks || theirs.map->block_bytes() == ours.block_bytes;
}

Merged Merge(const Inode& base, const LocalChanges& ours, const TheirChanges& theirs) {
  assert(CanMerge(ours, theirs.inode));
  assert(ours.cut_to != 0);
  Merged result{.inode = theirs.inode, .relaid = {}, .under_block0 = {}};
  Inode& merged = result.inode;
  bool has_written = false;
  uint64_t written_end = ours.grown_to;
  for (const auto& [block, end] : ours.written_ends) {
    if (end == 0 || !SameBelow(block, base, ours, theirs)) result.relaid.insert(block);
    if (end == 0) continue;
    has_written = true;
    written_end = std::max(written_end, block * ours.block_bytes + end);
  }
  const bool stored_blocks = ours.now.map.has_value() && !merged.map && has_written;
  merged.size = ours.size_set ? ours.now.size : std::max(theirs.inode.size, written_end);
  const uint64_t cut = std::min(ours.cut_to.value_or(UINT64_MAX), theirs.inode.size);
  if (merged.inline_data.size() > cut) merged.inline_data.resize(cut);
  if (ours.cleared.Contains(0)) merged.inline_data.clear();
  if (merged.map) {
    if (cut < theirs.inode.size) merged.map->Resize(cut);
  } else if (stored_blocks) {
    // Ours are blocks already, so theirs become a part of block 0, unless it has them.
    const bool has_them = ours.written_ends.contains(0) && !result.relaid.contains(0);
    if (!has_them) result.under_block0 = std::move(merged.inline_data);
    merged.inline_data.clear();
    merged.map.emplace(ours.now.map->layout());
  }
  if (!merged.map) return result;
  merged.map->Resize(merged.size);
  for (const auto& [first, end] : ours.cleared.Within(0, UINT64_MAX)) {
    merged.map->SetHoles(first, end);
  }
  for (const auto& [block, written] : ours.written_ends) {
    if (result.relaid.contains(block)) continue;
    auto place = PlaceIn(ours.now, block);
    if (!place) {
      merged.map->SetHoles(block, block + 1);
      continue;
    }
    // It may have been committed without our knowing it, and a repair have moved its shards since.
    const auto there = PlaceIn(theirs.inode, block);
    if (there) place->TakePlaces(*there);
    merged.map->Set(block, *place);
  }
  return result;
}

}  // namespace pinstripe
