#include "fs/files/keepers.h"

#include <algorithm>

#include "base/attempts.h"
#include "base/try.h"
#include "fs/files/map_pages.h"
#include "fs/names/names.h"

namespace pinstripe {
namespace {

constexpr size_t kMostLoadedPages = 16;
constexpr int kMostFailures = 3;  // of files that are to leave a keeper at the same time

void Insert(std::vector<InodeId>& ids, InodeId id) {
  const auto at = std::ranges::lower_bound(ids, id);
  if (at == ids.end() || *at != id) ids.insert(at, id);
}

Status ChangedTooOften(InodeId keeper) {
  return Fail(EIO, "inode {:016x}, which keeps shared blocks, was changed {} times in between",
              keeper, Attempts::kMost);
}

Result<StoredInode> FindKeeper(Records& records, InodeId id) {
  std::optional<StoredInode> stored = TRY(records.FindInode(id));
  if (!stored) return Fail(ENOENT, "inode {:016x}, which kept shared blocks, is gone", id);
  if (!stored->inode.keeping || !stored->inode.map) {
    return Fail(EIO, "inode {:016x} keeps no shared blocks, and should", id);
  }
  return *std::move(stored);
}

}  // namespace

Result<BlockPlace> ResolveShared(const BlockPlace& shared, uint64_t block, InodeId id,
                                 const Inode& keeper) {
  std::optional<BlockPlace> place;
  if (keeper.map) place = keeper.map->Find(block + shared.shift);
  const uint64_t end = uint64_t{shared.skip} + shared.valid;
  if (!place || place->shared || place->valid < end) {
    return Fail(EIO, "inode {:016x}, which keeps shared blocks, does not have block {}", id,
                block + shared.shift);
  }
  place->CutTo(static_cast<uint32_t>(end));
  place->valid = shared.valid;
  place->skip = shared.skip;
  place->shift += shared.shift;
  return *std::move(place);
}

Result<BlockPlace> KeeperMaps::Resolve(const BlockPlace& place, uint64_t block) {
  if (!place.shared) return place;
  auto at = keepers_.find(place.object);
  if (at == keepers_.end()) {
    const auto found = FindKeeper(records_, place.object);
    if (!found.has_value()) return Fail(EIO, "{}", found.error().message());
    at = keepers_.emplace(place.object, found->inode).first;
    at->second.keeping->files = {};
  }
  const uint64_t there = block + place.shift;
  TRY(LoadPages(cluster_.stripes(), place.object, at->second, there, there + 1));
  return ResolveShared(place, block, place.object, at->second);
}

void KeeperMaps::ForgetSome() {
  if (keepers_.size() > most_maps_) keepers_.clear();
}

void KeeperMaps::ForgetPages() {
  for (auto& [id, keeper] : keepers_) {
    if (keeper.map && keeper.map->CountLoadedPages() > kMostLoadedPages) keeper.map->ForgetPages();
  }
}

// ---- Making one

Result<std::pair<InodeId, StoredInode>> Keepers::Create(InodeId object, const BlockMap& map,
                                                        uint64_t size, const MapLimits& limits,
                                                        int parity) {
  const int64_t now = records_.WallClock();
  Inode inode{.links = 0, .size = size, .accessed = now, .modified = now, .changed = now};
  inode.map = map;
  inode.keeping = Keeping{.object = object, .settled = false, .files = {object}};
  const InodeId id = records_.NewInodeId();
  Runtime& runtime = cluster_.runtime();
  const auto write_id = [&](uint64_t) { return MakeWriteId(SecondsOf(now), runtime.Random(), 0); };
  std::vector<BlockMap::Piece> pages;  // of which nobody knows if this fails: they are collected
  TRY(StorePages(cluster_.stripes(), id, inode, limits, parity, Durability::kWriteThrough, write_id,
                 pages));
  const auto change = records_.ChangeInode(id, 0, inode, Durability::kWriteThrough);
  TRY(change.why);
  if (!change.applied()) return Fail(EIO, "inode {:016x}: the number is taken; try again", id);
  return std::pair(id, *change.now);
}

Result<StoredInode> Keepers::CreatePack(InodeId id, const BlockMap& map, uint64_t size,
                                        std::vector<InodeId> files) {
  if (files.size() > kMostFilesOfKeeper) {
    return Fail(E2BIG, "a pack has {} files; {} are possible", files.size(), kMostFilesOfKeeper);
  }
  const int64_t now = records_.WallClock();
  Inode inode{.links = 0, .size = size, .accessed = now, .modified = now, .changed = now};
  inode.map = map;
  inode.keeping = Keeping{.object = id, .settled = true, .files = std::move(files)};
  const auto change = records_.ChangeInode(id, 0, inode, Durability::kWriteThrough);
  TRY(change.why);
  if (!change.applied()) {
    return Fail(EEXIST, "inode {:016x}: a collection took the pack for a dead one's; try again",
                id);
  }
  return *change.now;
}

// Durably: what says that somebody may name it must be there when that one's inode is.
Status Keepers::Change(InodeId keeper, const std::function<Result<bool>(Keeping&)>& edit) {
  for (Attempts attempts; attempts.Next();) {
    StoredInode stored = TRY(FindKeeper(records_, keeper));
    if (!TRY(edit(*stored.inode.keeping))) return {};
    const auto change = records_.ChangeInode(keeper, stored.slot, stored.inode,
                                             {Durability::kWriteThrough, Room::kFreeing});
    TRY(change.why);
    if (change.applied()) return {};
    attempts.Pause(cluster_.runtime());
  }
  return ChangedTooOften(keeper);
}

Status Keepers::Settle(InodeId keeper) {
  return Change(keeper, [](Keeping& keeping) -> Result<bool> {
    return !std::exchange(keeping.settled, true);
  });
}

void Keepers::Discard(InodeId keeper, const StoredInode& stored) {
  (void)records_.ChangeInode(keeper, stored.slot, std::nullopt);
}

Status Keepers::Join(InodeId keeper, InodeId file) {
  return Change(keeper, [&](Keeping& keeping) -> Result<bool> {
    // Only what is settled is named by anybody but the object.
    if (!keeping.settled) return Fail(ENOENT, "inode {:016x} keeps no shared blocks yet", keeper);
    Insert(keeping.files, file);
    if (keeping.files.size() > kMostFilesOfKeeper) {
      return Fail(EMLINK, "inode {:016x} keeps blocks of {} files: no more may share them", keeper,
                  kMostFilesOfKeeper);
    }
    return true;  // also where the file is in the list: the slot is what counts
  });
}

// ---- The end

// Makes certain that the file does not name the keeper, and will not without a Join() that comes
// after `kept` was read. The file was read after that, too.
Result<Keepers::Step> Keepers::TakeOutOfFile(InodeId keeper, const StoredInode& kept,
                                             const Leaving& leaving,
                                             std::optional<StoredInode> stored) {
  const InodeId file = leaving.file;
  if (!stored) {  // for ever: its number is never used again
    if (!leaving.is_safely_removed) TRY(records_.MakeInodeDurable(file));
    return Step::kGone;
  }
  Inode& inode = stored->inode;
  const auto listed = std::ranges::lower_bound(inode.keepers, keeper);
  if (listed != inode.keepers.end() && *listed == keeper) {
    if (!kept.inode.keeping->settled) {  // the one who made it died before he said so
      TRY(Settle(keeper));
      return Step::kAgain;
    }
    if (inode.map) {
      TRY(LoadPages(cluster_.stripes(), file, inode, 0, inode.map->blocks()));
      if (inode.map->Keepers().contains(keeper)) return Step::kStays;
    }
    inode.keepers.erase(listed);
  }
  const auto change =
      records_.ChangeInode(file, stored->slot, inode, {Durability::kWriteThrough, Room::kFreeing});
  TRY(change.why);
  return change.applied() ? Step::kGone : Step::kAgain;
}

// Those at the beginning.
std::vector<Result<std::optional<StoredInode>>> Keepers::FindSome(std::span<const Leaving> files) {
  std::vector<InodeId> ids;
  for (const Leaving& each : files.first(std::min(files.size(), Records::kMostAtOnce))) {
    ids.push_back(each.file);
  }
  return records_.FindInodes(ids);
}

// All that do not name it leave with one change of the keeper.
Result<Keepers::Departure> Keepers::Leave(InodeId keeper, std::vector<Leaving> files) {
  Departure departure;
  bool some_left = false;
  for (Attempts attempts; attempts.Next();) {
    if (!attempts.IsFirst()) attempts.Pause(cluster_.runtime());
    std::optional<StoredInode> stored = TRY(records_.FindInode(keeper));
    if (!stored || !stored->inode.keeping) return Departure{};
    Keeping& keeping = *stored->inode.keeping;
    // If it is not settled, the stripes are the object's, and nobody else names it. If the object
    // does not, and will not, the keeper goes by itself.
    std::vector<Leaving> leaving = files;
    if (!keeping.settled) leaving = {{keeping.object}};
    std::vector<Result<std::optional<StoredInode>>> found;  // of some of them
    std::vector<Leaving> again;
    std::set<InodeId> gone;
    // Where drives do not answer, each of them takes its time.
    int failures = 0;
    for (size_t i = 0; i < leaving.size() && failures < kMostFailures; ++i) {
      const size_t at = i % Records::kMostAtOnce;
      if (at == 0) found = FindSome(std::span(leaving).subspan(i));
      auto step = Result<Step>(tl::unexpect, Status());
      if (found[at].has_value()) {
        step = TakeOutOfFile(keeper, *stored, leaving[i], *std::move(found[at]));
      } else {
        step = tl::unexpected(found[at].error());
      }
      if (!step.has_value()) {
        departure.failure = step.error();
        ++failures;
        continue;
      }
      switch (*step) {
        case Step::kAgain: again.push_back(leaving[i]); break;
        case Step::kStays: departure.stays = true; break;
        case Step::kGone: gone.insert(leaving[i].file); break;
      }
    }
    if (keeping.settled) files = again;  // with those below, if somebody is faster
    if (gone.empty()) {
      if (!again.empty()) continue;
      if (!some_left && !departure.failure.ok()) return Failed(departure.failure);
      return departure;
    }
    std::erase_if(keeping.files, [&](InodeId file) { return gone.contains(file); });
    const bool last = !keeping.settled || keeping.files.empty();
    const auto change = records_.ChangeInode(keeper, stored->slot,
                                             last ? std::nullopt : std::optional(stored->inode),
                                             {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (!change.applied()) {
      if (keeping.settled) {
        for (const Leaving& each : leaving) {
          if (gone.contains(each.file)) files.push_back(each);
        }
      }
      continue;
    }
    some_left = true;
    if (!again.empty() && !last) continue;
    departure.losses = change.losses;
    if (last && keeping.settled) departure.removed = std::move(stored->inode);
    return departure;
  }
  return Failed(ChangedTooOften(keeper));
}

Result<Keepers::ByObject> Keepers::FindAll(Cluster& cluster, const std::set<InodeId>* objects) {
  ByObject keepers;
  const std::string last = "I" + std::string(sizeof(InodeId), '\xff');
  for (uint32_t group = 0; group < cluster.map().groups; ++group) {
    for (std::string first = "I";;) {
      const auto page = TRY(cluster.registers().Scan(group, first, last, kMaxRangeKeys));
      for (const auto& entry : page.entries) {
        const auto id = InodeOfRegister(entry.key);
        if (!id || !entry.value.value) continue;
        const Inode inode = TRY(Inode::Decode(*entry.value.value, *id));
        if (!inode.keeping || (objects && !objects->contains(inode.keeping->object))) continue;
        keepers[inode.keeping->object].emplace_back(*id, StoredInode{inode, entry.value.slot});
      }
      if (!page.next) break;
      first = *page.next;
    }
  }
  return keepers;
}

}  // namespace pinstripe
