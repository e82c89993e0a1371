#include "upkeep/checker.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/coding.h"
#include "base/try.h"
#include "cluster/fullness.h"
#include "fs/files/map_pages.h"
#include "fs/names/growth_register.h"

namespace pinstripe {
namespace {

// Those of which it is to be found out whether anything is needed.
std::set<DriveId> NotRetired(const Cluster& cluster) {
  std::set<DriveId> drives = cluster.DrainingDrives();
  std::erase_if(drives, [&](DriveId id) { return cluster.IsRetired(id); });
  return drives;
}

Result<bool> StillNames(Records& records, const EntryFact& entry) {
  const StoredEntry stored =
      TRY(records.FindLeftEntry(entry.group, entry.directory, entry.name)).entry;
  return stored.entry && stored.entry->inode == entry.inode;
}

Result<bool> IsBelowRoot(Names& names, InodeId directory) {
  std::set<InodeId> seen;
  while (directory != kRootInode) {
    if (!seen.insert(directory).second) return false;
    const auto stored = TRY(names.Find(directory));
    if (!stored || stored->inode.kind != FileKind::kDirectory) return false;
    if (stored->inode.IsMarkedByRename(directory)) return true;  // it is about to get another name
    if (!TRY(names.HasNameInParent(directory, stored->inode))) return false;
    directory = stored->inode.parent;
  }
  return true;
}

}  // namespace

Checker::Checker(Cluster& cluster, Options options)
    : cluster_(cluster),
      options_(std::move(options)),
      draining_(NotRetired(cluster)),
      left_behind_(cluster.DrivesLeftBehind()),
      records_(cluster),
      names_(records_, [](InodeId, const Inode&, uint64_t) {}),
      findings_(
          report_, options_.most_told, [this](const std::set<InodeId>& ids) { return Paths(ids); },
          [this](InodeId id) {
            const auto keeper = keepers_.find(id);
            return keeper == keepers_.end() ? nullptr : &keeper->second;
          }) {
  report_.epoch = cluster.map().epoch;
  report_.began = cluster.runtime().WallClock();
  report_.missing_drives = cluster.MissingDrives();
}

const CheckReport& Checker::Run() {
  if (options_.state != nullptr) {
    GoOnFrom(options_.state->ReadNames([this](StateFile& file) { ArchiveNames(file); }));
  }
  ReadFacts();
  if (stopped_) return report_;
  const std::vector<Suspicion> suspicions = CheckTree(facts_);
  report_.entries = facts_.entries.size() + facts_.settled;
  FindLostByName();
  for (size_t i = 0; i < suspicions.size(); ++i) {
    if (!GoOn("looking again", static_cast<double>(i) / static_cast<double>(suspicions.size()))) {
      return report_;
    }
    Confirm(suspicions[i]);
  }
  CheckKeepers();
  if (options_.data) CheckData();
  if (!GoOn("naming what was found", 0)) return report_;
  findings_.TellLate();
  ReportLost();
  for (const DriveStatus& drive : cluster_.Drives(cluster_.config().drive_timeout)) {
    const bool is_full =
        drive.info.has_value() && FullnessOf(drive.info->portion_full) == Fullness::kFull;
    if (is_full) report_.full_drives.push_back(drive.id);
  }
  report_.knows_all_places &= options_.data && knows_all_names_;
  return report_;
}

// False: it is to end. Then nothing is known, as far as anybody may conclude from it.
bool Checker::GoOn(std::string_view phase, double done, const std::function<void()>& keep) {
  if (options_.progress) options_.progress(phase, done);
  if (stopped_) return false;
  const bool goes_on = options_.go_on == nullptr || options_.go_on();
  if (keep && options_.state != nullptr && (!goes_on || options_.state->IsDue())) keep();
  if (goes_on) return true;
  stopped_ = true;
  report_.is_complete = false;
  knows_all_names_ = false;
  report_.knows_all_places = false;
  report_.not_checked.emplace_back("what would have come next, as it was stopped");
  return false;
}

// ---- Reading everything

void Checker::ReadFacts() {
  // All inodes before any entry: giving an inode another name changes it. So an inode that is still
  // as it was read here has no names but those that are found afterwards.
  const std::string end(kMaxNameBytes + 16, '\xff');
  const uint32_t groups = cluster_.map().groups;
  const auto part = [&] { return static_cast<double>(group_) / groups; };
  const auto keep = [this] { Keep(); };
  if (phase_ == Phase::kInodes && group_ == 0) {
    const auto growth = FindGrowth(cluster_);
    if (growth.has_value()) growth_before_ = *growth;
  }
  for (; phase_ == Phase::kInodes && group_ < groups; ++group_) {
    if (!GoOn("reading inodes", part(), keep)) return;
    ReadRange(group_, "I", "I" + end);
  }
  if (phase_ == Phase::kInodes) {
    facts_.SortInodes();
    phase_ = Phase::kNames;
    group_ = 0;
  }
  for (; phase_ == Phase::kNames && group_ < groups; ++group_) {
    if (!GoOn("reading names", part(), keep)) return;
    const size_t first = facts_.entries.size();
    ReadRange(group_, "", "H" + end);
    ReadRange(group_, "J", end);
    facts_.Settle(first);
  }
  if (phase_ == Phase::kShards) return;
  constexpr std::string_view kPhase = "putting names together";
  if (!GoOn(kPhase, 0, keep)) return;
  for (std::string& why : growth_.FindMoved(records_, facts_.entries)) {
    knows_all_names_ = false;
    report_.not_checked.push_back(std::move(why));
  }
  for (std::string& why : settled_names_.PutBack(facts_)) {
    knows_all_names_ = false;
    report_.not_checked.push_back(std::move(why));
  }
  // A name that went from a group that was read late to one that was read early was not seen.
  const auto after = FindGrowth(cluster_);
  if (!after.has_value() || growth_before_ != *after) {
    knows_all_names_ = false;
    report_.not_checked.emplace_back(
        after.has_value() ? "a directory has grown while the names were read: check again"
                          : fmt::format("whether a directory grows: {}", after.error().message()));
  }
  if (!GoOn(kPhase, 1)) return;  // then it was not done in full
  phase_ = Phase::kShards;
  if (options_.state != nullptr) Keep();
}

void Checker::ReadRange(uint32_t group, std::string first, const std::string& last) {
  for (;;) {
    const auto page = cluster_.registers().Scan(group, first, last, kMaxRangeKeys);
    if (!page.has_value()) {
      knows_all_names_ = false;
      report_.not_checked.push_back(
          fmt::format("names of group {}, from '{}' on: {}", group, first, page.error().message()));
      return;
    }
    for (const auto& entry : page->entries) TakeRegister(group, entry.key, entry.value);
    if (!page->next) return;
    first = *page->next;
  }
}

void Checker::TakeRegister(uint32_t group, const std::string& key, const RegisterValue& value) {
  Reader reader(key);
  const std::string_view kind = reader.Raw(1);
  const bool is_single = kind == "X" || kind == "Y";
  const uint64_t id = is_single ? 0 : reader.U64();
  if (kind == "I" && reader.Finish("").ok()) return TakeInode(id, value);
  if (is_single && reader.Finish("").ok()) return;
  if (kind == "E" && reader.ok() && reader.left() > 0) {
    const std::string name(reader.Rest());
    const auto entry = Entry::Decode(*value.value);
    if (entry.has_value()) {
      EntryFact fact{.directory = id,
                     .name = name,
                     .inode = entry->inode,
                     .kind = entry->kind,
                     .group = group};
      if (growth_.TakeEntry(cluster_.map(), *entry, fact)) {
        facts_.entries.push_back(std::move(fact));
      }
    } else {
      knows_all_names_ = false;
      findings_.Report(Severity::kError, "damaged-entry",
                       fmt::format("(inode {:016x})/{}", id, name),
                       std::string(entry.error().message()));
    }
    return;
  }
  knows_all_names_ = false;
  findings_.Report(Severity::kError, "unknown-register", Hex(AsBytes(key)),
                   "a register that this version does not know");
}

void Checker::TakeInode(InodeId id, const RegisterValue& value) {
  const auto decoded = Inode::Decode(*value.value, id);
  if (!decoded.has_value()) {
    damaged_.insert(id);
    knows_all_names_ = false;
    findings_.Report(Severity::kError, "damaged-inode", fmt::format("(inode {:016x})", id),
                     std::string(decoded.error().message()));
    return;
  }
  StoredInode stored{*decoded, value.slot};
  if (stored.inode.intent) {  // a client died in the middle of a rename
    auto finished = names_.Find(id);
    if (!finished.has_value()) {
      knows_all_names_ = false;
      report_.not_checked.push_back(
          fmt::format("inode {:016x}, which is being renamed: {}", id, finished.error().message()));
      return;
    }
    if (!*finished) return;
    stored = **std::move(finished);
  }
  const Inode& inode = stored.inode;
  growth_.TakeDirectory(id, inode.parts);
  for (const InodeId keeper : inode.keepers) sharing_.emplace_back(id, keeper);
  if (inode.keeping) {
    keepers_.emplace(id, *inode.keeping);
    return;
  }
  const bool is_directory = inode.kind == FileKind::kDirectory;
  facts_.inodes.push_back({.id = id,
                           .slot = stored.slot,
                           .parent = is_directory ? inode.parent : 0,
                           .links = inode.links,
                           .kind = inode.kind,
                           .has_data = inode.map.has_value()});
  ++(is_directory ? report_.directories : report_.files);
  if (inode.map) ++with_data_;
}

// ---- What is lost

bool Checker::Knows(InodeId id) const {
  return keepers_.contains(id) || damaged_.contains(id) || facts_.Find(id) != nullptr;
}

// Those that entries or files name, or of which there are entries.
void Checker::FindLostByName() {
  std::map<InodeId, LostInode> candidates;
  for (const EntryFact& entry : facts_.entries) {
    if (!Knows(entry.inode)) candidates[entry.inode].names.push_back(entry);
    if (!Knows(entry.directory)) candidates[entry.directory].contents.push_back(entry);
  }
  for (const auto& [file, keeper] : sharing_) {
    if (!Knows(keeper)) candidates[keeper].is_keeper = true;
  }
  FindLost(std::move(candidates));
}

// Those of which there are shards that no inode names.
void Checker::FindLostByShards() {
  std::map<InodeId, LostInode> candidates;
  for (const ListedStripe& stripe : unused_stripes_) {
    const InodeId id = stripe.id.object;
    if (!Knows(id) && !MayBeLost(id)) candidates[id];
  }
  FindLost(std::move(candidates));
  for (size_t first = 0; first < unused_stripes_.size();) {
    const InodeId id = unused_stripes_[first].id.object;
    size_t end = first;
    uint64_t shards = 0;
    while (end < unused_stripes_.size() && unused_stripes_[end].id.object == id) {
      shards += unused_stripes_[end++].copies.size();
    }
    if (const auto lost = lost_.find(id); lost != lost_.end()) {
      const std::span all(unused_stripes_);
      lost->second.shards = shards;
      lost->second.bytes =
          GuessSize(cluster_.stripes(), cluster_.config().layout, all.subspan(first, end - first));
    }
    first = end;
  }
}

void Checker::FindLost(std::map<InodeId, LostInode> candidates) {
  for (auto next = candidates.begin(); next != candidates.end();) {
    std::vector<InodeId> ids;
    for (auto at = next; at != candidates.end() && ids.size() < Records::kMostAtOnce; ++at) {
      ids.push_back(at->first);
    }
    for (const Result<InodeFound>& found : FindFates(records_, ids)) {
      const InodeId id = next->first;
      LostInode& candidate = next++->second;
      if (!found.has_value()) {
        undecided_.emplace(id, found.error());
        if (!candidate.IsNamed()) continue;  // of shards it is said that a drive was not listed
        report_.not_checked.push_back(fmt::format("{}: whether its inode is lost: {}",
                                                  PathOf(facts_, id), found.error().message()));
        continue;
      }
      if (found->fate == InodeFate::kThere || found->fate == InodeFate::kRemoved) continue;
      const bool is_plain = candidate.contents.empty() && !candidate.is_keeper;
      if (found->fate == InodeFate::kGivenUp && is_plain && candidate.names.size() <= 1) continue;
      candidate.id = id;
      if (found->fate != InodeFate::kLost && !IsStillNamed(candidate)) {
        // As an upload that is under way, or died, has left it; unless a name that could not be
        // read is its own.
        if (!knows_all_names_) {
          undecided_.emplace(id, Status(EIO, "not all names could be read"));
          continue;
        }
        if (found->fate == InodeFate::kNoTrace) continue;
        candidate.may_be_unfinished = true;
      } else if (found->fate == InodeFate::kBegun && found->copy) {
        candidate.may_be_unfinished = candidate.MayBeJustMade(*found->copy, records_.WallClock());
      }
      candidate.copy = found->copy;
      lost_.emplace(id, std::move(candidate));
    }
  }
}

// The entry that names it was written after it, or with it, and is still there. So it was written
// once, or is just being made.
bool Checker::IsStillNamed(LostInode& candidate) {
  const auto is_gone = [this](const EntryFact& entry) {
    const Result<bool> names = StillNames(records_, entry);
    return names.has_value() && !*names;  // of one that cannot be read it is not known
  };
  // In a directory that was removed nothing was told to have a name.
  const auto is_nowhere = [this](const EntryFact& entry) {
    const auto directory = records_.FindInodeRegister(entry.directory);
    return directory.has_value() && !directory->stored && directory->slot > 1;
  };
  std::erase_if(candidate.names, is_gone);
  std::erase_if(candidate.names, is_nowhere);
  std::erase_if(candidate.contents, is_gone);
  return candidate.IsNamed();
}

bool Checker::IsAboutWhatIsLost(const Suspicion& suspicion) const {
  switch (suspicion.problem) {
    case TreeProblem::kEntryOfNothing:
    case TreeProblem::kEntryInNothing: {
      const EntryFact& entry = suspicion.entries.front();
      return MayBeLost(entry.inode) || MayBeLost(entry.directory);
    }
    case TreeProblem::kNoRoot: return MayBeLost(kRootInode);
    case TreeProblem::kOrphan: {
      const auto begin =
          std::ranges::lower_bound(facts_.entries, suspicion.inode.id, {}, &EntryFact::inode);
      const auto end =
          std::ranges::upper_bound(facts_.entries, suspicion.inode.id, {}, &EntryFact::inode);
      return std::any_of(begin, end,
                         [this](const EntryFact& entry) { return MayBeLost(entry.directory); });
    }
    default: return false;
  }
}

void Checker::ReportLost() {
  for (const auto& [id, lost] : lost_) {
    if (!lost.may_be_unfinished) ++report_.lost_inodes;
    findings_.Report(lost.may_be_unfinished ? Severity::kLeftover : Severity::kError,
                     lost.may_be_unfinished ? "unfinished-inode" : "lost-inode",
                     lost.names.empty() ? PathOf(facts_, id) : PathOf(facts_, lost.names.front()),
                     lost.Text());
  }
}

// ---- Looking again

void Checker::Confirm(const Suspicion& suspicion) {
  if (IsAboutWhatIsLost(suspicion)) return;
  for (const EntryFact& entry : suspicion.entries) {
    if (damaged_.contains(entry.inode) || damaged_.contains(entry.directory)) return;
  }
  if (damaged_.contains(suspicion.inode.id)) return;
  if (suspicion.problem == TreeProblem::kWrongCount && !knows_all_names_) return;
  // An unknown number of subdirectories is nothing wrong, and a collection finds it out.
  if (suspicion.problem == TreeProblem::kWrongCount && suspicion.inode.links == 1) {
    confirmed_.push_back(suspicion);
    return;
  }
  std::string where = suspicion.entries.empty() ? PathOf(facts_, suspicion.inode.id)
                                                : PathOf(facts_, suspicion.entries.front());
  const Result<bool> still_so = IsStillSo(suspicion);
  if (!still_so.has_value()) {
    report_.not_checked.push_back(fmt::format("{}: {}", where, still_so.error().message()));
    return;
  }
  if (!*still_so) return;
  const bool leftover = IsLeftover(suspicion.problem);
  std::string what(Describe(suspicion.problem));
  if (suspicion.inode.id != 0) what += fmt::format(" (inode {:016x})", suspicion.inode.id);
  for (size_t i = 1; i < suspicion.entries.size(); ++i) {
    what += fmt::format("; also {}", PathOf(facts_, suspicion.entries[i]));
  }
  findings_.Report(leftover ? Severity::kLeftover : Severity::kError, NameOf(suspicion.problem),
                   std::move(where), std::move(what));
  confirmed_.push_back(suspicion);
}

Result<bool> Checker::IsStillSo(const Suspicion& suspicion) {
  std::optional<StoredInode> inode;
  if (suspicion.inode.id != 0) inode = TRY(names_.Find(suspicion.inode.id));
  size_t names = 0;
  for (const EntryFact& entry : suspicion.entries)
    names += TRY(StillNames(records_, entry)) ? 1 : 0;
  const bool same_names = names == suspicion.entries.size();
  const bool unchanged = inode && inode->slot == suspicion.inode.slot;
  switch (suspicion.problem) {
    case TreeProblem::kNoRoot: return !inode || inode->inode.kind != FileKind::kDirectory;
    case TreeProblem::kWrongKind:
      return inode && same_names && inode->inode.kind != suspicion.entries.front().kind;
    case TreeProblem::kTooFewLinks: return inode && names > inode->inode.links;
    case TreeProblem::kTwoNames: return inode && names > 1;
    case TreeProblem::kWrongParent:
      return inode && same_names && !inode->inode.IsMarkedByRename(suspicion.inode.id) &&
             inode->inode.parent != suspicion.entries.front().directory;
    case TreeProblem::kUnreachable: return inode && !TRY(IsBelowRoot(names_, suspicion.inode.id));
    case TreeProblem::kEntryOfNothing:
      return same_names && !TRY(records_.FindInode(suspicion.entries.front().inode));
    case TreeProblem::kEntryInNothing:
      return same_names && !TRY(records_.FindInode(suspicion.entries.front().directory));
    case TreeProblem::kOrphan:
      // An inode with the mark of an exchange is about to get a name.
      if (!inode || inode->inode.IsMarkedByRename(suspicion.inode.id)) return false;
      // A directory changes with its subdirectories and times, and knows where its name should be.
      if (inode->inode.kind == FileKind::kDirectory) {
        return !TRY(names_.HasNameInParent(suspicion.inode.id, inode->inode));
      }
      return unchanged;  // whoever gives it another name changes it
    case TreeProblem::kTooManyLinks: return unchanged && same_names;
    case TreeProblem::kWrongCount: {
      if (!unchanged) return false;
      const auto found = TRY(names_.FindSubdirectories(suspicion.inode.id));
      inode = TRY(names_.Find(suspicion.inode.id));
      return inode && inode->slot == suspicion.inode.slot &&
             inode->inode.links != kLinksOfEmptyDirectory + *found;
    }
  }
  return true;
}

}  // namespace pinstripe
