// Checker, second part: whether the shards are there of what the inodes name, and what else is.

#include <algorithm>
#include <map>
#include <set>

#include "base/coding.h"
#include "base/try.h"
#include "fs/files/beside_number.h"
#include "fs/files/map_pages.h"
#include "upkeep/checker.h"

namespace pinstripe {
namespace {

constexpr uint64_t kBlocksAtOnce = 4096;
// No Attempts: the last failure is the answer.
constexpr int kMostLoads = 8;  // of the map of an inode that others change meanwhile

std::map<DriveId, Drive*> AllDrives(Cluster& cluster) {
  std::map<DriveId, Drive*> drives;
  for (const MappedDrive& drive : cluster.map().drives) {
    if (Drive* found = cluster.FindDrive(drive.id)) drives.emplace(drive.id, found);
  }
  return drives;
}

// How much shards take whose keys do not say how large they are. Of very many some are asked.
uint64_t MeasureStripes(StripeStore& store, const std::vector<ListedStripe>& stripes) {
  constexpr size_t kMost = 256;
  const size_t step = std::max<size_t>(1, stripes.size() / kMost);
  double bytes = 0;
  double measured = 0;  // shards
  for (size_t i = 0; i < stripes.size(); i += step) {
    const ListedStripe& stripe = stripes[i];
    const auto form = store.Describe(stripe.id, stripe.copies);
    if (!form.has_value() || !*form) continue;
    const uint32_t shard_bytes = (*form)->layout.ShardBytesOf((*form)->length);
    bytes += static_cast<double>(shard_bytes) * static_cast<double>(stripe.copies.size());
    measured += static_cast<double>(stripe.copies.size());
  }
  if (measured == 0) return 0;
  double shards = 0;
  for (const ListedStripe& stripe : stripes) shards += static_cast<double>(stripe.copies.size());
  return static_cast<uint64_t>(bytes / measured * shards);
}

// Whether the keeper knows of the file. Also if the file does not share its blocks any more: both
// may have changed since they were read.
Result<bool> IsListed(Cluster& cluster, Records& records, InodeId file, InodeId keeper) {
  const auto stored = TRY(records.FindInode(keeper));
  const bool is_listed = stored && stored->inode.keeping &&
                         std::ranges::binary_search(stored->inode.keeping->files, file);
  if (is_listed) return true;
  auto sharer = TRY(records.FindInode(file));
  if (!sharer || !sharer->inode.map) return true;
  TRY(LoadPages(cluster.stripes(), file, sharer->inode, 0, sharer->inode.map->blocks()));
  return !sharer->inode.map->Keepers().contains(keeper);
}

// Of one stripe.
bool IsDisplaced(Cluster& cluster, uint64_t block, const BlockPlace& place) {
  const std::vector<StripePlace::Moved>& moved = place.place.moved;
  if (moved.empty() && place.place.epoch == cluster.map().epoch) return false;
  for (const StripePlace::Moved& one : moved) {
    if (one.drive == 0) return true;
  }
  StripeStore& stripes = cluster.stripes();
  const auto places = stripes.PlacesOf(place.IdOf(block), place.layout, place.place);
  const auto homes = stripes.HomesOf(place.IdOf(block), place.layout);
  return !places.has_value() || !homes.has_value() || *places != *homes;
}

// Asks for each shard of a block, and of its patches. The worst of these counts, as each of them
// is needed.
Result<LackingBlock> Probe(Cluster& cluster, const std::set<DriveId>& left_behind_drives,
                           InodeId id, uint64_t block, const BlockPlace& place) {
  LackingBlock lacking{.file = id, .block = block};
  for (const BlockPlace& stripe : place.Stripes()) {
    const auto presence = TRY(
        cluster.stripes().Probe(stripe.IdOf(block), stripe.layout, stripe.stored, stripe.place));
    const int all = stripe.layout.geometry().shards();
    if (presence.present == all) continue;
    const int k = stripe.layout.data_shards;
    const bool is_first = lacking.all == 0;
    const auto places =
        TRY(cluster.stripes().PlacesOf(stripe.IdOf(block), stripe.layout, stripe.place));
    const auto left_behind = static_cast<int>(std::ranges::count_if(
        places, [&](DriveId drive) { return left_behind_drives.contains(drive); }));
    lacking.missing = static_cast<uint16_t>(
        std::min<int>(lacking.missing + presence.missing + left_behind, UINT16_MAX));
    lacking.lost |= presence.present + presence.unknown < k;
    lacking.out_of_reach |= presence.present + presence.unknown - left_behind < k;
    if (is_first || presence.present - k < lacking.present - lacking.needed) {
      static_assert(kMaxShards <= UINT8_MAX);
      lacking.present = static_cast<uint8_t>(presence.present);
      lacking.needed = static_cast<uint8_t>(k);
      lacking.all = static_cast<uint8_t>(all);
    }
  }
  return lacking;
}

}  // namespace

void Checker::CheckData() {
  listed_.emplace(cluster_.runtime(), AllDrives(cluster_), ClusterPrefix(cluster_.config().name),
                  cluster_.config().drive_timeout);
  constexpr std::string_view kPhase = "looking for shards";
  findings_.BeginPart();
  if (options_.state != nullptr) {
    GoOnFrom(options_.state->ReadShards([this](StateFile& file) { ArchiveShards(file); }));
  }
  uint64_t looked_at =
      static_cast<uint64_t>(std::ranges::count_if(facts_.inodes, [&](const InodeFact& fact) {
        return fact.has_data && fact.id <= checked_to_;
      }));
  for (;;) {
    const double done = static_cast<double>(looked_at) /
                        static_cast<double>(std::max<uint64_t>(1, CountWithData()));
    if (!GoOn(kPhase, done, [this] { Keep(); })) return;
    const std::vector<InodeId> ids = WithData(checked_to_, Records::kMostAtOnce);
    if (ids.empty()) break;
    looked_at += ids.size();
    const auto inodes = records_.FindInodes(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (suspects_.size() >= options_.most_suspects) ConfirmBlocks(kPhase, done, done);
      if (stopped_) return;
      checked_to_ = ids[i];  // no place to go on from before its end: nothing here keeps anything
      std::vector<Owner> owners;
      if (!inodes[i].has_value()) {
        NotChecked(ids[i], inodes[i].error());
      } else if (*inodes[i] && (*inodes[i])->inode.map) {
        owners.push_back({ids[i], **inodes[i]});
      }
      const auto keepers = keepers_of_.find(ids[i]);
      for (const InodeId keeper :
           keepers == keepers_of_.end() ? std::vector<InodeId>() : keepers->second) {
        const auto stored = records_.FindInode(keeper);
        if (!stored.has_value()) {
          NotChecked(keeper, stored.error());
        } else if (*stored && (*stored)->inode.map) {
          owners.push_back({keeper, **stored});
        }
      }
      if (owners.empty()) continue;
      const Inode& front = owners.front().stored.inode;
      const bool keeps_others = front.keeping && !Keepers::IsPack(ids[i], front);
      if (keeps_others && owners.front().id == ids[i]) {
        CheckPages(ids[i], front);  // its blocks are looked at with its object
      } else if (owners.size() == 1 && owners.front().id == ids[i]) {
        CheckFile(ids[i], std::move(owners.front().stored));
      } else {
        CheckObject(ids[i], std::move(owners));
      }
    }
  }
  while (const ListedStripe* stripe = listed_->Peek()) {
    Unused(*stripe, stripe->copies);
    listed_->Take();
  }
  ConfirmBlocks("looking again for shards", 0, 1);
  if (stopped_) return;
  if (options_.state != nullptr) Keep();
  for (const auto& [drive, why] : listed_->unlisted()) {
    report_.not_checked.push_back(fmt::format("the shards of drive {}: {}", drive, why));
  }
  for (const MissingDrive& drive : report_.missing_drives) {
    // Blocks lack the shards that they should have on a drained drive.
    if (drive.is_draining) continue;
    report_.not_checked.push_back(fmt::format("the shards of drive {}: it is missing", drive.id));
  }
  FindLostByShards();
  for (const auto& [drive, key] : listed_->strange_keys()) {
    findings_.Report(Severity::kError, "strange-key", fmt::format("drive {}", drive),
                     fmt::format("the key {} is not that of a shard", Hex(AsBytes(key))));
  }
  report_.unused_bytes = MeasureStripes(cluster_.stripes(), unused_stripes_);
}

std::vector<InodeId> Checker::WithData(InodeId after, size_t most) const {
  std::vector<InodeId> ids;
  auto fact = std::ranges::upper_bound(facts_.inodes, after, {}, &InodeFact::id);
  auto more = more_data_.upper_bound(after);
  while (ids.size() < most) {
    while (fact != facts_.inodes.end() && !fact->has_data) ++fact;
    const bool has_fact = fact != facts_.inodes.end();
    const bool has_more = more != more_data_.end();
    if (!has_fact && !has_more) break;
    const bool is_next = has_fact && (!has_more || fact->id <= *more);
    const InodeId id = is_next ? fact->id : *more;
    if (is_next) ++fact;
    if (has_more && *more == id) ++more;
    ids.push_back(id);
  }
  return ids;
}

// The blocks of one file, and then the pages of its map, beside what the drives hold of it. All are
// in the order of their keys.
void Checker::CheckFile(InodeId id, StoredInode stored) {
  uint64_t block = 0;
  std::vector<OwnedBlock> beside;  // has the last number of all blocks
  while (const BlockMap::Part* part =
             stored.inode.map ? stored.inode.map->PartOf(block) : nullptr) {
    const Status loaded =
        LoadPages(cluster_.stripes(), id, stored.inode, part->first, part->first + 1);
    if (!loaded.ok()) {
      // It may be gone because the file was changed since.
      const auto newer = records_.FindInode(id);
      if (newer.has_value() && !*newer) return;
      if (newer.has_value() && (*newer)->slot != stored.slot) {
        stored = **newer;
        continue;
      }
      report_.knows_all_places = false;
      findings_.ReportOf(id, Severity::kError, "lost-map-page",
                         fmt::format("where the blocks from {} to {} are: {}", part->first,
                                     part->end() - 1, loaded.message()));
      SkipBlocks(id, part->end());
      block = part->end();
      continue;
    }
    const BlockMap::Part here = *stored.inode.map->PartOf(block);
    uint64_t first = here.first;
    for (const BlockRun& run : here.stretch->runs) {
      const uint64_t block_bytes = stored.inode.map->block_bytes();
      for (uint64_t i = 0; i < run.count && !run.hole; ++i) {
        if (first + i < block) continue;  // it was looked at in an older map
        const OwnedBlock owned{id, first + i, PlaceInRun(run, i, block_bytes)};
        if (run.shared) {
          CheckSharedBlock(id, owned.block, owned.place);
        } else if (run.shift != 0) {
          beside.push_back(owned);
        } else {
          CheckBlock({&owned, 1});
        }
      }
      first += run.count;
    }
    block = here.end();
    stored.inode.map->ForgetPages();
    keeper_maps_.ForgetPages();
  }
  if (!beside.empty()) CheckBlock(beside);
  CheckPages(id, stored.inode);
  keeper_maps_.ForgetSome();
}

void Checker::CheckPages(InodeId id, const Inode& inode) {
  if (!inode.map) return;
  for (const BlockMap::Part& part : inode.map->parts()) {
    if (!part.stretch->page) continue;
    ++report_.map_pages;
    const OwnedBlock owned{id, PageNumber(part.first).number(), *part.stretch->page};
    CheckBlock({&owned, 1});
  }
}

void Checker::CheckBlock(std::span<const OwnedBlock> owned) {
  const uint64_t block = owned.front().block;
  const auto [object, number, write] = owned.front().place.IdOf(block);
  std::vector<std::pair<InodeId, BlockPlace>> expected;
  for (const OwnedBlock& one : owned) {
    ++report_.blocks;
    const std::vector<BlockPlace> stripes = one.place.Stripes();
    report_.patches += stripes.size() - 1;
    if (std::ranges::any_of(stripes,
                            [&](const auto& each) { return IsDisplaced(cluster_, block, each); })) {
      displaced_.emplace_back(one.id, block);
      ++report_.displaced_blocks;
    }
    for (const BlockPlace& stripe : stripes) {
      report_.geometries.emplace(stripe.layout.data_shards, stripe.layout.parity_shards);
      NoteDraining(block, stripe);
      expected.emplace_back(one.id, stripe);
    }
  }
  for (const ListedStripe* stripe = listed_->Peek(); stripe != nullptr; stripe = listed_->Peek()) {
    if (std::pair(stripe->id.object, stripe->id.block) > std::pair(object, number)) break;
    const auto found = std::ranges::find_if(expected, [&, it = number](const auto& each) {
      return stripe->id.block == it && each.second.Names(stripe->id);
    });
    if (found != expected.end()) {
      Use(found->first, *stripe, found->second);
      expected.erase(found);
    } else {
      Unused(*stripe, stripe->copies);
    }
    listed_->Take();
  }
  for (const auto& [id, stripe] : expected) Suspect(id, block);
}

// ---- What several files share

void Checker::NotChecked(InodeId id, const Status& why) {
  report_.knows_all_places = false;
  report_.not_checked.push_back(fmt::format("{}: {}", PathOf(facts_, id), why.message()));
}

// Those that are not settled, and that their objects do not name, keep nothing.
void Checker::CheckKeepers() {
  for (const auto& [id, keeping] : keepers_) {
    bool keeps = keeping.settled;
    if (!keeps) {
      const auto object = records_.FindInode(keeping.object);
      if (!object.has_value()) NotChecked(id, object.error());
      keeps =
          object.has_value() && *object && std::ranges::binary_search((*object)->inode.keepers, id);
    }
    if (!keeps) continue;
    if (keeping.object != id) keepers_of_[keeping.object].push_back(id);
    for (const InodeId each : {id, keeping.object}) {
      const InodeFact* const fact = facts_.Find(each);
      if (fact == nullptr || !fact->has_data) more_data_.insert(each);
    }
  }
  for (const auto& [file, keeper] : sharing_) {
    const auto found = keepers_.find(keeper);
    if (found != keepers_.end() && std::ranges::binary_search(found->second.files, file)) continue;
    const Result<bool> listed = IsListed(cluster_, records_, file, keeper);
    if (!listed.has_value()) {
      NotChecked(file, listed.error());
    } else if (!*listed && told_.insert(file).second) {
      findings_.ReportOf(
          file, Severity::kError, "lost-shared-blocks",
          fmt::format("inode {:016x}, which should keep blocks that it shares, is gone, or does "
                      "not know of it",
                      keeper));
    }
  }
}

void Checker::CheckSharedBlock(InodeId id, uint64_t block, const BlockPlace& place) {
  ++report_.blocks;
  if (told_.contains(id) || keeper_maps_.Resolve(place, block).has_value()) return;
  // A page may be another one by now.
  keeper_maps_.Forget();
  const auto again = keeper_maps_.Resolve(place, block);
  if (again.has_value()) return;
  // And the file, too.
  auto stored = records_.FindInode(id);
  if (!stored.has_value() || !*stored) return;
  const auto now = FindStripe(cluster_.stripes(), id, (*stored)->inode, block);
  if (!now.has_value() || !*now || !(**now).SameStripe(place)) return;
  told_.insert(id);
  if (const auto keeper = records_.FindInode(place.object); !keeper.has_value()) {
    return NotChecked(id, keeper.error());
  }
  findings_.ReportOf(id, Severity::kError, "lost-shared-blocks",
                     fmt::format("block {}: {}", block, again.error().message()));
}

Status Checker::LoadOwner(Owner& owner, uint64_t first, uint64_t end) {
  for (int attempt = 0;; ++attempt) {
    const Status loaded = LoadPages(cluster_.stripes(), owner.id, owner.stored.inode, first, end);
    if (loaded.ok() || attempt == kMostLoads) return loaded;
    auto newer = records_.FindInode(owner.id);
    if (!newer.has_value()) return newer.error();
    if (!*newer) {
      owner.stored.inode.map.reset();
      return {};
    }
    if ((*newer)->slot == owner.stored.slot) return loaded;
    owner.stored = **std::move(newer);
  }
}

// As CheckFile, for stripes that more than one inode names: its own, where it is there, and
// keepers.
void Checker::CheckObject(InodeId object, std::vector<Owner> owners) {
  std::vector<OwnedBlock> beside;
  for (uint64_t block = 0;;) {
    uint64_t end = block + kBlocksAtOnce;
    uint64_t holes = UINT64_MAX;  // up to there, all have holes
    bool any = false;
    bool lost = false;
    for (Owner& owner : owners) {
      const auto part_of = [&] {
        const auto& map = owner.stored.inode.map;
        return map ? map->PartOf(block) : nullptr;
      };
      if (part_of() == nullptr) continue;
      any = true;
      end = std::min(end, part_of()->end());
      const Status loaded = LoadOwner(owner, block, block + 1);
      if (!loaded.ok()) {
        lost = true;
        report_.knows_all_places = false;
        findings_.ReportOf(
            owner.id, Severity::kError, "lost-map-page",
            fmt::format("where the blocks from {} on are: {}", block, loaded.message()));
        continue;
      }
      if (part_of() == nullptr) continue;
      end = std::min(end, part_of()->end());
      const BlockMap::Span span = owner.stored.inode.map->SpanAt(block);
      holes = std::min(holes, span.hole ? span.end : block);
    }
    if (!any) break;
    if (lost) {
      SkipBlocks(object, end);
      block = end;
      continue;
    }
    if (holes != UINT64_MAX && holes > block) {
      block = holes;
      continue;
    }
    std::vector<OwnedBlock> owned;
    for (const Owner& owner : owners) {
      const BlockMap::Part* part =
          owner.stored.inode.map ? owner.stored.inode.map->PartOf(block) : nullptr;
      if (part == nullptr) continue;
      uint64_t first = part->first;
      for (const BlockRun& run : part->stretch->runs) {
        const uint64_t from = std::max(first, block);
        const uint64_t until = std::min(first + run.count, end);
        const uint64_t bytes = owner.stored.inode.map->block_bytes();
        for (uint64_t at = from; at < until && !run.hole; ++at) {
          const BlockPlace place = PlaceInRun(run, at - first, bytes);
          if (run.shared) {
            CheckSharedBlock(owner.id, at, place);
          } else {
            (run.shift != 0 ? beside : owned).push_back({owner.id, at, place});
          }
        }
        first += run.count;
      }
    }
    std::ranges::stable_sort(owned, {}, &OwnedBlock::block);
    for (size_t i = 0; i < owned.size();) {
      size_t next = i + 1;
      while (next < owned.size() && owned[next].block == owned[i].block) ++next;
      CheckBlock(std::span(owned).subspan(i, next - i));
      i = next;
    }
    for (Owner& owner : owners) {
      if (owner.stored.inode.map) owner.stored.inode.map->ForgetPages();
    }
    keeper_maps_.ForgetPages();
    block = end;
  }
  if (!beside.empty()) CheckBlock(beside);
  keeper_maps_.ForgetSome();
  for (const Owner& owner : owners) {
    if (owner.id == object) CheckPages(object, owner.stored.inode);
  }
}

void Checker::NoteDraining(uint64_t block, const BlockPlace& place) {
  if (draining_.empty()) return;
  const auto places = cluster_.stripes().PlacesOf(place.IdOf(block), place.layout, place.place);
  if (!places.has_value()) {
    report_.knows_all_places = false;
    return;
  }
  for (const DriveId drive : *places) {
    if (draining_.contains(drive)) ++report_.named_on_draining[drive];
  }
}

// Of the blocks of a file up to `end` nobody knows which are used.
void Checker::SkipBlocks(InodeId id, uint64_t end) {
  for (const ListedStripe* stripe = listed_->Peek(); stripe != nullptr; stripe = listed_->Peek()) {
    if (std::pair(stripe->id.object, stripe->id.block) >= std::pair(id, end)) return;
    if (stripe->id.object < id) Unused(*stripe, stripe->copies);
    listed_->Take();
  }
}

void Checker::Use(InodeId id, const ListedStripe& stripe, const BlockPlace& place) {
  const auto places = cluster_.stripes().PlacesOf(stripe.id, place.layout, place.place);
  if (!places.has_value()) return Suspect(id, BlockOfNumber(stripe.id.block));
  std::vector<ShardCopy> strays;
  size_t at_home = 0;
  for (const ShardCopy& copy : stripe.copies) {
    if (copy.shard < places->size() && (*places)[copy.shard] == copy.drive) {
      ++at_home;
      ++report_.shards_by_drive[copy.drive];
    } else {
      strays.push_back(copy);
    }
  }
  report_.shards += at_home;
  if (at_home < places->size()) Suspect(id, BlockOfNumber(stripe.id.block));
  if (!strays.empty()) Unused(stripe, std::move(strays));
}

void Checker::Unused(const ListedStripe& stripe, std::vector<ShardCopy> copies) {
  report_.unused_shards += copies.size();
  for (const ShardCopy& copy : copies) ++report_.unused_by_drive[copy.drive];
  unused_stripes_.push_back({stripe.id, std::move(copies)});
}

void Checker::Suspect(InodeId id, uint64_t block) {
  const std::pair suspect(id, block);
  if (suspects_.empty() || suspects_.back() != suspect) suspects_.push_back(suspect);
}

// Asks for each shard of what seemed to lack some, where the file has them now.
void Checker::ConfirmBlocks(std::string_view phase, double from, double to) {
  LackingFile& file = lacking_file_;
  const auto tell = [&] {
    const auto report = [&](Severity severity, std::string_view problem, uint64_t blocks) {
      if (blocks == 0) return;
      findings_.ReportOf(file.id, severity, problem,
                         fmt::format("{} block{}; {}", blocks, blocks == 1 ? "" : "s", file.first));
    };
    report(Severity::kError, "lost-data", file.lost_blocks);
    report(Severity::kError, "out-of-reach", file.blocks_out_of_reach);
    report(Severity::kShort, "short-of-shards", file.short_blocks);
  };
  std::ranges::sort(suspects_);
  suspects_.erase(std::unique(suspects_.begin(), suspects_.end()), suspects_.end());
  const auto all = static_cast<double>(suspects_.size());
  std::optional<StoredInode> stored;
  for (size_t i = 0; i < suspects_.size(); ++i) {
    const double part = 1 - static_cast<double>(suspects_.size() - i) / all;
    const auto keep = [&] {  // what is left of them
      suspects_.erase(suspects_.begin(), suspects_.begin() + static_cast<ptrdiff_t>(i));
      i = 0;
      Keep();
    };
    if (!GoOn(phase, from + (to - from) * part, keep)) return;
    const auto [id, block] = suspects_[i];
    if (i == 0 || suspects_[i - 1].first != id) {
      const auto read = records_.FindInode(id);
      if (!read.has_value()) {
        report_.not_checked.push_back(
            fmt::format("{}: {}", PathOf(facts_, id), read.error().message()));
        stored.reset();
        continue;
      }
      stored = *read;
    }
    if (!stored) continue;
    const auto found = FindStripe(cluster_.stripes(), id, stored->inode, block);
    if (!found.has_value()) {
      report_.not_checked.push_back(
          fmt::format("{}, block {}: {}", PathOf(facts_, id), block, found.error().message()));
      continue;
    }
    const std::optional<BlockPlace>& place = *found;
    if (!place || place->shared) continue;
    const Result<LackingBlock> probed = Probe(cluster_, left_behind_, id, block, *place);
    if (probed.has_value() && probed->all == 0) continue;
    if (file.id != id) {
      tell();
      file = {.id = id};
    }
    if (probed.has_value()) lacking_.push_back(*probed);
    const auto page = PageNumber::From(block);
    const std::string which = page ? fmt::format("map page of block {}", page->first_block())
                                   : fmt::format("block {}", block);
    std::string what = probed.has_value() ? fmt::format("{}: {} of {} shards are there", which,
                                                        probed->present, probed->all)
                                          : std::string(probed.error().message());
    if (file.first.empty()) file.first = std::move(what);
    if (!probed.has_value() || probed->lost) {
      ++file.lost_blocks;
    } else if (probed->out_of_reach) {
      ++file.blocks_out_of_reach;
    } else if (probed->missing > 0) {
      ++file.short_blocks;
    }
  }
  tell();
  file = {};
  suspects_.clear();
}

}  // namespace pinstripe
