#include "fs/files/known_keepers.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "fs/files/keepers.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr size_t kMostKeepersKnown = 16;
constexpr size_t kMostRecent = 64;  // of a process
constexpr Duration kRecent = std::chrono::seconds(30);

bool HasTooManyPages(const std::pair<const InodeId, std::shared_ptr<const StoredInode>>& keeper) {
  const std::optional<BlockMap>& map = keeper.second->inode.map;
  return map && map->CountLoadedPages() > kMostPages;
}

}  // namespace

// ---- Of a process

std::shared_ptr<const StoredInode> RecentKeepers::Find(InodeId keeper, Time now) {
  const MutexLock lock(mutex_);
  const auto at = recent_.find(keeper);
  if (at == recent_.end() || now - at->second.read_at > kRecent) return nullptr;
  at->second.used = ++uses_;
  return at->second.stored;
}

void RecentKeepers::Learn(InodeId keeper, std::shared_ptr<const StoredInode> stored, Time read_at) {
  const MutexLock lock(mutex_);
  recent_[keeper] = {std::move(stored), read_at, ++uses_};
  if (recent_.size() <= kMostRecent) return;
  const auto by_use = [](const auto& one) { return one.second.used; };
  recent_.erase(std::ranges::min_element(recent_, {}, by_use));
}

void RecentKeepers::Forget(InodeId keeper, uint64_t slot) {
  const MutexLock lock(mutex_);
  const auto at = recent_.find(keeper);
  if (at != recent_.end() && at->second.stored->slot <= slot) recent_.erase(at);
}

// ---- Of a file

Result<std::optional<BlockPlace>> KnownKeepers::Resolve(const BlockPlace& place, uint64_t block,
                                                        std::optional<Kept>& missing) const {
  if (!place.shared) return std::optional(place);
  const MutexLock lock(mutex_);
  const auto known = known_.find(place.object);
  const Inode* keeper = known == known_.end() ? nullptr : &known->second->inode;
  const uint64_t there = block + place.shift;
  if (!keeper || (keeper->map && keeper->map->FirstMissing(there, there + 1))) {
    missing = Kept{place.object, there};
    return std::optional<BlockPlace>();
  }
  return std::optional(TRY(ResolveShared(place, block, place.object, *keeper)));
}

Status KnownKeepers::Load(const Kept& kept) {
  std::shared_ptr<const StoredInode> known;
  {
    const MutexLock lock(mutex_);
    if (const auto at = known_.find(kept.keeper); at != known_.end()) known = at->second;
  }
  const Time now = cluster_.runtime().Now();
  if (!known) known = recent_.Find(kept.keeper, now);
  const bool is_new = !known;
  auto keeper = std::make_shared<StoredInode>();
  if (known) {
    *keeper = *known;
  } else {
    const auto found = TRY(records_.FindInode(kept.keeper));
    if (!found)
      return Fail(ENOENT, "inode {:016x}, which kept shared blocks, is gone", kept.keeper);
    *keeper = *found;
    // Nobody asks here who may name it, which is most of a pack's inode.
    if (keeper->inode.keeping) keeper->inode.keeping->files = {};
  }
  TRY(LoadPages(cluster_.stripes(), kept.keeper, keeper->inode, kept.block, kept.block + 1));
  // One with pages, of which some are loaded, is a file's own.
  if (is_new && keeper->inode.map && keeper->inode.map->CountLoadedPages() == 0) {
    recent_.Learn(kept.keeper, keeper, now);
  }
  const MutexLock lock(mutex_);
  known_[kept.keeper] = std::move(keeper);
  return {};
}

Result<bool> KnownKeepers::Refresh() {
  Known known;
  {
    const MutexLock lock(mutex_);
    known = known_;
  }
  bool changed = false;
  for (const auto& [id, keeper] : known) {
    const auto found = TRY(records_.FindInode(id));
    if (found && found->slot == keeper->slot) continue;
    changed = true;
    recent_.Forget(id, keeper->slot);
    const MutexLock lock(mutex_);
    known_.erase(id);
  }
  return changed;
}

bool KnownKeepers::HasTooMuch() const {
  const MutexLock lock(mutex_);
  return known_.size() > kMostKeepersKnown || std::ranges::any_of(known_, HasTooManyPages);
}

void KnownKeepers::ForgetSome() {
  const MutexLock lock(mutex_);
  if (known_.size() > kMostKeepersKnown) known_.clear();
  std::erase_if(known_, HasTooManyPages);
}

void KnownKeepers::Clear() {
  const MutexLock lock(mutex_);
  known_.clear();
}

}  // namespace pinstripe
