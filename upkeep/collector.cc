#include "upkeep/collector.h"

#include <algorithm>
#include <set>

#include "base/try.h"
#include "cluster/membership/epoch_change.h"
#include "fs/files/beside_number.h"
#include "fs/files/map_pages.h"
#include "fs/files/state.h"
#include "fs/names/spreader.h"

namespace pinstripe {
namespace {

uint64_t CountShards(std::span<const ListedStripe> stripes) {
  uint64_t count = 0;
  for (const ListedStripe& stripe : stripes) count += stripe.copies.size();
  return count;
}

// What is gone on with may have seen something without a name that has one by now. So nothing is
// older than it was when that began.
int64_t BeganAt(Cluster& cluster, const CheckState* state) {
  const int64_t now = cluster.runtime().WallClock();
  return std::min(now, state == nullptr ? now : state->goes_on_since().value_or(now));
}

}  // namespace

Collector::Collector(Cluster& cluster, Options options)
    : cluster_(cluster),
      options_(std::move(options)),
      now_(BeganAt(cluster, options_.state)),
      records_(cluster),
      // The data of what is removed here is found as stripes that no file names, by the next run.
      names_(records_, [](InodeId, const Inode&, uint64_t) {}) {}

static_assert(kLeastTombstoneAge >= 12 * kFirstWriteRetries, "whatever clocks do");

// `time` comes from a drive and may be anything.
bool Collector::OldEnough(int64_t time) const { return time <= now_ - options_.older_than.count(); }

void Collector::Keep(std::string what, const Status& why) {
  report_.not_collected.push_back(fmt::format("{}: {}", what, why.message()));
}

bool Collector::GoOn(std::string_view phase, double done) {
  if (options_.progress) options_.progress(phase, done);
  if (options_.go_on == nullptr || options_.go_on()) return true;
  report_.not_collected.emplace_back("what would have come next, as it was stopped");
  return false;
}

const CollectReport& Collector::Run() {
  Checker checker(cluster_, {.data = true,
                             .progress = options_.progress,
                             .go_on = options_.go_on,
                             .state = options_.state});
  const CheckReport& found = checker.Run();
  // What a look says that was cut short is no reason to remove anything.
  if (!GoOn("removing shards", 0)) return report_;
  for (const std::string& what : found.not_checked) report_.not_collected.push_back(what);
  if (!found.is_complete) return report_;
  for (const MissingDrive& drive : found.missing_drives) {
    report_.not_collected.push_back(
        fmt::format("drive {}: {}", drive.id, drive.Text(cluster_.config().file)));
  }

  const std::vector<ListedStripe>& unused = checker.unused_stripes();
  for (size_t first = 0; first < unused.size();) {
    if (!GoOn("removing shards", static_cast<double>(first) / static_cast<double>(unused.size()))) {
      return report_;
    }
    size_t end = first + 1;
    while (end < unused.size() && unused[end].id.object == unused[first].id.object) ++end;
    const InodeId object = unused[first].id.object;
    const auto undecided = checker.undecided_inodes().find(object);
    Status status;
    if (undecided != checker.undecided_inodes().end()) {
      status = undecided->second;
    } else if (options_.lost || !checker.lost_inodes().contains(object)) {
      status = CollectStripes(std::span(unused).subspan(first, end - first));
    }
    if (!status.ok()) Keep(fmt::format("shards of object {:016x}", object), status);
    first = end;
  }
  DeleteUnnamed(CheckKeepers(checker));
  CollectLost(checker);
  CollectKeepers(checker);

  for (const Suspicion& leftover : checker.confirmed()) {
    Status status;
    switch (leftover.problem) {
      case TreeProblem::kEntryOfNothing:
      case TreeProblem::kEntryInNothing: status = CollectEntry(leftover.entries.front()); break;
      case TreeProblem::kOrphan:
        // A name that could not be read may be the one that it has.
        if (!checker.knows_all_names()) {
          status = Status(EIO, "not all names could be read");
        } else {
          status = CheckDirectories(checker);
          if (status.ok()) status = CollectOrphan(leftover);
        }
        break;
      case TreeProblem::kWrongCount: status = CollectCount(leftover.inode.id); break;
      default: continue;  // a link count too high goes with the inode
    }
    if (!status.ok()) Keep(std::string(Describe(leftover.problem)), status);
  }
  GoOnWithGrowth(checker);
  // While names are unknown, one of them may name what is to be erased.
  if (report_.not_collected.empty() && checker.knows_all_names()) EraseTombstones();
  if (found.unused_shards > 0) {
    report_.bytes = static_cast<uint64_t>(static_cast<double>(found.unused_bytes) *
                                          static_cast<double>(report_.shards) /
                                          static_cast<double>(found.unused_shards));
  }
  return report_;
}

// Directories that somebody has begun to spread, and what late requests have left of others.
void Collector::GoOnWithGrowth(const Checker& checker) {
  if (options_.dry_run) return;
  // Of a directory that was removed while it grew.
  const GrowthFacts& growth = checker.growth();
  for (const EntryFact& moved : growth.moved()) {
    if (growth.grown().contains(moved.directory)) continue;
    const auto left = records_.FindLeftEntry(moved.group, moved.directory, moved.name);
    if (!left.has_value() || !left->in_group || !left->entry.entry) continue;
    const auto change =
        records_.RemoveLeftEntry(moved.group, moved.directory, moved.name, left->entry.slot);
    if (!change.why.ok()) Keep(checker.Path(moved.directory), change.why);
  }
  for (const auto& [id, parts] : growth.grown()) {
    if (!GoOn("spreading directories", 0)) return;
    Spreader::Options options;
    options.go_on = options_.go_on;
    const auto report =
        Spreader(cluster_, records_, names_, std::move(options)).Run(id, Spreader::Begin::kGoOn);
    if (!report.has_value() && report.error().code() != ENOENT) {
      Keep(checker.Path(id), report.error());
    }
  }
}

// Its names, and those in it, go last: they are what tells that it was there.
void Collector::CollectLost(const Checker& checker) {
  for (const auto& [id, lost] : checker.lost_inodes()) {
    const std::string what = fmt::format("{}: {}", checker.Path(id), lost.Text());
    if (!options_.lost) {
      (lost.may_be_unfinished ? report_.unfinished : report_.lost).push_back(what);
      continue;
    }
    for (const auto* entries : {&lost.names, &lost.contents}) {
      for (const EntryFact& entry : *entries) {
        const Status status = CollectEntry(entry);
        if (!status.ok()) Keep(what, status);
      }
    }
  }
}

// The entries of a directory lie where its inode does, and may be lost with it. So what has no name
// may be what had one in it.
Status Collector::CheckDirectories(const Checker& checker) const {
  for (const auto& [id, lost] : checker.lost_inodes()) {
    if (lost.IsDirectory() && !options_.lost) {
      return Fail(EIO, "it may have been in the directory {}, whose inode is lost",
                  checker.Path(id));
    }
  }
  for (const auto& [id, why] : checker.undecided_inodes()) {
    if (checker.Path(id).starts_with('/')) return why;  // something names it
  }
  return {};
}

// With a keeper it is lost which stripes it kept, of which objects.
Status Collector::CheckKeepers(const Checker& checker) const {
  for (const auto& [id, lost] : checker.lost_inodes()) {
    if (lost.is_keeper && !options_.lost) {
      return Fail(EIO, "files may share them, which inode {:016x} said, and that is lost", id);
    }
  }
  return {};
}

// Its inode, or its directory, is gone for ever.
Status Collector::CollectEntry(const EntryFact& entry) {
  const auto [stored, in_group] =
      TRY(records_.FindLeftEntry(entry.group, entry.directory, entry.name));
  if (!stored.entry || stored.entry->inode != entry.inode) return {};
  if (options_.dry_run) {
    ++report_.entries;
    return {};
  }
  // Where it was never written, nobody does so from now on. In a directory that is gone nobody is
  // told that he has made something.
  const bool is_in_directory = TRY(records_.FindInode(entry.directory)).has_value();
  if (options_.fences && is_in_directory && !TRY(records_.FenceNew(entry.inode))) return {};
  const auto change =
      in_group ? records_.RemoveLeftEntry(entry.group, entry.directory, entry.name, stored.slot)
               : records_.ChangeEntry(entry.directory, entry.name, stored.slot, std::nullopt);
  TRY(change.why);
  if (change.applied()) ++report_.entries;
  if (change.applied() && stored.entry->kind == FileKind::kDirectory) {
    TRY(CollectCount(entry.directory));
  }
  return {};
}

Status Collector::CollectCount(InodeId directory) {
  const std::optional<StoredInode> stored = TRY(names_.Find(directory));
  if (!stored) return {};
  ++report_.counts;
  if (options_.dry_run) return {};
  TRY(names_.CountSubdirectories(directory, *stored));
  return {};
}

Status Collector::CollectOrphan(const Suspicion& suspicion) {
  const InodeId id = suspicion.inode.id;
  const std::optional<StoredInode> stored = TRY(names_.Find(id));
  if (!stored || stored->slot != suspicion.inode.slot) return {};  // it was changed meanwhile
  if (!OldEnough(stored->inode.changed)) {
    ++report_.too_young;
    return {};
  }
  if (options_.dry_run) {
    ++report_.inodes;
    return {};
  }
  if (options_.fences && stored->inode.named && !TRY(names_.FenceName(id, *stored->inode.named)))
    return {};
  bool removed = false;
  if (stored->inode.kind == FileKind::kDirectory) {
    removed = TRY(names_.IsEmpty(id)) &&
              TRY(names_.RemoveEmpty(id, *stored, stored->inode.named.value_or(GivenName{}))) ==
                  Names::Removal::kDone;
  } else {
    const auto change = records_.ChangeInode(id, stored->slot, std::nullopt);
    TRY(change.why);
    removed = change.applied();
  }
  if (removed) ++report_.inodes;
  return {};
}

Status Collector::CollectStripes(std::span<const ListedStripe> stripes) {
  const InodeId object = stripes.front().id.object;
  const Records::InodeRegister inode = TRY(records_.FindInodeRegister(object));
  if (inode.stored) return CollectUnnamed(object, *inode.stored, stripes);
  const auto old = [&](const ListedStripe& stripe) {
    return OldEnough(int64_t{TimeOf(stripe.id.write)} * 1'000'000'000);
  };
  // A client that has a removed file open reads it for a while.
  const bool all_old =
      OldEnough(inode.removed_at) && std::all_of(stripes.begin(), stripes.end(), old);
  if (!all_old) {
    report_.too_young += CountShards(stripes);
    return {};
  }
  // A client that is about to write it finds it taken. It may go on in the second slot, where the
  // first has what was to be there instead of an inode with pieces.
  const bool may_come = inode.slot == 0 || (inode.slot == 1 && inode.is_instead);
  if (!options_.dry_run && options_.fences && may_come) {
    const auto change = records_.ChangeInode(object, inode.slot, std::nullopt);
    TRY(change.why);
    if (!change.applied()) return {};  // it was written just now: it is for the next run
  }
  unnamed_.emplace_back(stripes.begin(), stripes.end());
  return {};
}

// For an inode that is there.
Status Collector::CollectUnnamed(InodeId object, StoredInode stored,
                                 std::span<const ListedStripe> stripes) {
  std::vector<ListedStripe> unnamed;
  uint32_t youngest = 0;
  for (const ListedStripe& stripe : stripes) {
    const auto place = TRY(FindStripe(cluster_.stripes(), object, stored.inode, stripe.id.block));
    const bool named = place && !place->shared && place->Names(stripe.id);
    const uint32_t time = TimeOf(stripe.id.write);
    if (named) {
      TRY(CollectStrays(object, stripe));
    } else if (!OldEnough(int64_t{time} * 1'000'000'000)) {
      report_.too_young += stripe.copies.size();
    } else {
      unnamed.push_back(stripe);
      youngest = std::max(youngest, time);
    }
  }
  if (unnamed.empty()) return {};
  if (!options_.dry_run && options_.fences) {
    // A writer that has not committed them yet finds the inode changed, and that it comes too late.
    Inode fenced = stored.inode;
    fenced.collected = std::max(fenced.collected, youngest + 1);
    const auto change =
        records_.ChangeInode(object, stored.slot, fenced, {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (!change.applied()) return {};  // it may name them now
  }
  unnamed_.push_back(std::move(unnamed));
  return {};
}

// Keepers are looked for when all objects are fenced: one that came to keep stripes of an object
// before that is there to be found, and no other one can.
void Collector::DeleteUnnamed(const Status& may_be_kept) {
  if (unnamed_.empty()) return;
  if (!may_be_kept.ok()) {
    for (const auto& stripes : unnamed_) {
      Keep(fmt::format("shards of object {:016x}", stripes[0].id.object), may_be_kept);
    }
    unnamed_.clear();
    return;
  }
  std::set<InodeId> objects;
  for (const auto& stripes : unnamed_) objects.insert(stripes.front().id.object);
  auto keepers = Keepers::FindAll(cluster_, &objects);
  if (!keepers.has_value()) {
    Keep("shards that files may share", keepers.error());
    return;
  }
  for (const std::vector<ListedStripe>& stripes : unnamed_) {
    const Status status = DeleteUnkept(stripes, *keepers);
    if (!status.ok()) Keep(fmt::format("shards of object {:016x}", stripes[0].id.object), status);
  }
  unnamed_.clear();
}

Status Collector::DeleteUnkept(std::span<const ListedStripe> stripes, Keepers::ByObject& keepers) {
  const auto found = keepers.find(stripes.front().id.object);
  if (found == keepers.end()) {
    DeleteAll(stripes);
    return {};
  }
  std::vector<ListedStripe> unkept;
  for (const ListedStripe& stripe : stripes) {
    bool is_kept = false;
    for (auto& [keeper, stored] : found->second) {
      const auto place = TRY(FindStripe(cluster_.stripes(), keeper, stored.inode, stripe.id.block));
      if (!place || !place->Names(stripe.id)) continue;
      is_kept = true;
      if (stored.inode.keeping->settled) TRY(CollectStrays(keeper, stripe));
    }
    if (!is_kept) unkept.push_back(stripe);
  }
  for (auto& [keeper, stored] : found->second) stored.inode.map->ForgetPages();
  DeleteAll(unkept);
  return {};
}

// Takes those files out of their lists that do not name them; the stripes of one that is left by
// all are found as unnamed by the next run.
void Collector::CollectKeepers(const Checker& checker) {
  if (options_.dry_run) return;
  for (const auto& [keeper, keeping] : checker.keepers()) {
    const auto stored = records_.FindInode(keeper);
    if (!stored.has_value()) {
      Keep(fmt::format("inode {:016x}, which keeps shared blocks", keeper), stored.error());
      continue;
    }
    if (!*stored || !OldEnough((*stored)->inode.changed)) continue;
    std::vector<InodeId> files = keeping.files;
    if (!keeping.settled) files = {keeping.object};
    const Status status = CollectShares(keeper, files, checker);
    if (!status.ok()) {
      Keep(fmt::format("inode {:016x}, which keeps shared blocks", keeper), status);
    }
  }
}

// Most files of a keeper name it, and are read for that at once.
Status Collector::CollectShares(InodeId keeper, const std::vector<InodeId>& files,
                                const Checker& checker) {
  const auto names_it = [keeper](const Inode& inode) {
    return std::ranges::binary_search(inode.keepers, keeper) && inode.map &&
           inode.map->Keepers().contains(keeper);
  };
  std::vector<Result<Records::InodeRegister>> found;  // of some of them
  std::vector<Keepers::Leaving> leaving;
  Status failure;
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t at = i % Records::kMostAtOnce;
    if (at == 0) {
      const auto rest = std::span(files).subspan(i);
      found = records_.FindInodeRegisters(rest.first(std::min(rest.size(), Records::kMostAtOnce)));
    }
    if (!found[at].has_value()) {
      failure = found[at].error();
      continue;
    }
    const auto& stored = found[at]->stored;
    // What is lost may come back, and name it.
    const bool may_come_back = !options_.lost && checker.MayBeLost(files[i]);
    // A client that has a removed file open reads it for a while.
    const bool stays =
        stored ? names_it(stored->inode) : may_come_back || !OldEnough(found[at]->removed_at);
    if (!stays) leaving.push_back({files[i]});
  }
  if (leaving.empty()) return failure;
  const Keepers::Departure left = TRY(keepers_.Leave(keeper, std::move(leaving)));
  if (left.removed) ++report_.inodes;
  return left.failure.ok() ? failure : left.failure;
}

// Copies beside a stripe that is used, which is to be whole without them. They are looked at before
// the place is, so that one that a repair makes the right one meanwhile is another one by then.
Status Collector::CollectStrays(InodeId object, const ListedStripe& stripe) {
  StripeStore& stripes = cluster_.stripes();
  std::vector<KnownCopy> copies = TRY(stripes.Identify(stripe.id, stripe.copies));
  std::optional<StoredInode> stored = TRY(records_.FindInode(object));
  if (!stored) return {};
  const auto block = TRY(FindStripe(stripes, object, stored->inode, stripe.id.block));
  if (!block || block->shared) return {};
  const std::vector<BlockPlace> named = block->Stripes();
  const auto place =
      std::ranges::find_if(named, [&](const BlockPlace& each) { return each.Names(stripe.id); });
  if (place == named.end()) return {};
  const auto presence = TRY(stripes.Probe(stripe.id, place->layout, place->stored, place->place));
  if (presence.present < place->layout.geometry().shards()) return {};
  const auto places = TRY(stripes.PlacesOf(stripe.id, place->layout, place->place));
  std::erase_if(copies, [&](const KnownCopy& known) {
    return known.copy.shard < places.size() && places[known.copy.shard] == known.copy.drive;
  });
  if (copies.empty()) return {};
  if (!options_.dry_run && options_.fences) {
    // A repair that has written one of them, and not yet said so in the inode, fails to, and writes
    // them again.
    const auto change = records_.ChangeInode(object, stored->slot, stored->inode,
                                             {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (!change.applied()) return {};
  }
  report_.shards += copies.size();
  if (options_.dry_run) return {};
  return stripes.DeleteObsolete(stripe.id, copies);
}

void Collector::DeleteAll(std::span<const ListedStripe> stripes) {
  for (const ListedStripe& stripe : stripes) {
    if (!options_.dry_run) {
      const Status status = cluster_.stripes().DeleteCopies(stripe.id, stripe.copies);
      if (!status.ok()) {
        Keep(fmt::format("block {} of object {:016x}", BlockOfNumber(stripe.id.block),
                         stripe.id.object),
             status);
        continue;
      }
    }
    report_.shards += stripe.copies.size();
  }
}

// ---- Tombstones

void Collector::EraseTombstones() {
  if (!EraseInAllGroups()) return;
  if (options_.dry_run || report_.waiting < options_.renew_epoch_for) return;
  const auto renewed = RenewEpoch(cluster_);
  if (!renewed.has_value()) {
    // The drives are shared with other clusters, or somebody else makes an epoch: they go another
    // time, if ever.
    if (renewed.error().code() == ENOTSUP || renewed.error().code() == EBUSY) return;
    Keep(fmt::format("what {} removed names have left, which needs a new epoch of the drive map",
                     report_.waiting),
         renewed.error());
    return;
  }
  report_.waiting = 0;
  EraseInAllGroups();
}

// False: not in all of them.
bool Collector::EraseInAllGroups() {
  const uint32_t groups = cluster_.map().groups;
  for (uint32_t group = 0; group < groups; ++group) {
    if (!GoOn("erasing what was removed", static_cast<double>(group) / groups)) return false;
    const auto erased = cluster_.registers().Erase(
        group, [this](std::span<const Tombstone> tombstones) { return MayErase(tombstones); });
    // A drive that is away need not be told for every group; they stay until it is back.
    if (!erased.has_value()) {
      Keep("what removed files have left", erased.error());
      return false;
    }
    if (!options_.dry_run) report_.tombstones += erased->erased;
  }
  return true;
}

// Names that were removed in an earlier epoch; and what never gets a value again: inodes, whose
// numbers are not used twice, and names in directories that are gone. An inode that was removed
// without ever having been written is a fence against who has not written it yet, and stays.
Result<std::vector<bool>> Collector::MayErase(std::span<const Tombstone> tombstones) {
  const auto removed_before = [this](Duration least) {
    return now_ - std::max(options_.older_than, least).count();
  };
  const int64_t old_name = removed_before(options_.least_age_of_names);
  const int64_t old_inode = removed_before(kLeastTombstoneAge);
  std::vector<bool> may_go(tombstones.size());
  std::vector<InodeId> directories;  // of names, of which nothing is known yet
  std::vector<std::pair<size_t, InodeId>> numbers;
  for (size_t i = 0; i < tombstones.size(); ++i) {
    const Tombstone& tombstone = tombstones[i];
    if (InodeOfRegister(tombstone.key)) {
      may_go[i] = tombstone.removed_at <= old_inode && tombstone.slot > 1;
      continue;
    }
    const auto directory = DirectoryOfRegister(tombstone.key);
    if (!directory || tombstone.removed_at > old_name) continue;
    if (tombstone.of_former_epoch) {
      may_go[i] = true;
    } else if (tombstone.removed_at > old_inode) {
      ++report_.waiting;
    } else {
      numbers.emplace_back(i, *directory);
      if (!gone_.contains(*directory)) directories.push_back(*directory);
    }
  }
  std::sort(directories.begin(), directories.end());
  directories.erase(std::unique(directories.begin(), directories.end()), directories.end());
  const auto found = records_.FindInodes(directories);
  for (size_t i = 0; i < found.size(); ++i) gone_[directories[i]] = !TRY(found[i]).has_value();
  for (const auto& [i, directory] : numbers) {
    may_go[i] = gone_.at(directory);
    if (!may_go[i]) ++report_.waiting;
  }
  if (options_.dry_run) {
    report_.tombstones += static_cast<uint64_t>(std::count(may_go.begin(), may_go.end(), true));
    may_go.assign(may_go.size(), false);
  }
  return may_go;
}

}  // namespace pinstripe
