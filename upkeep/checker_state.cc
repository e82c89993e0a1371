// Checker, third part: what it keeps of how far it is, and goes on from (upkeep/check_state.h).
//
// What was read is kept, and what follows from it is not: which inodes are lost, and what is wrong
// with the tree, is found out anew by who goes on. So `names` has what ReadFacts() found, and
// `shards` what CheckData() has found since.

#include <algorithm>

#include "upkeep/checker.h"

namespace pinstripe {
namespace {

void ArchiveEntry(StateFile& file, EntryFact& entry) {
  file.Number(entry.directory);
  file.Text(entry.name);
  file.Number(entry.inode);
  file.Kind(entry.kind, FileKind::kBlockDevice);
  file.Number(entry.is_in_place);
  file.Number(entry.group);
}

void ArchiveInode(StateFile& file, InodeFact& inode) {
  file.Number(inode.id);
  file.Number(inode.slot);
  file.Number(inode.parent);
  file.Number(inode.links);
  file.Kind(inode.kind, FileKind::kBlockDevice);
  file.Number(inode.has_data);
  file.Number(inode.is_filled);
}

void ArchiveLacking(StateFile& file, LackingBlock& lacking) {
  file.Number(lacking.file);
  file.Number(lacking.block);
  file.Number(lacking.missing);
  file.Number(lacking.present);
  file.Number(lacking.needed);
  file.Number(lacking.all);
  file.Number(lacking.lost);
  file.Number(lacking.out_of_reach);
}

template <typename A, typename B>
auto Pair(StateFile& file) {
  return [&file](std::pair<A, B>& pair) {
    file.Number(pair.first);
    file.Number(pair.second);
  };
}

template <typename... T>
auto Numbers(StateFile& file) {
  return [&file](T&... value) { (file.Number(value), ...); };
}

}  // namespace

void Checker::ArchiveNames(StateFile& file) {
  file.Number(report_.began);
  file.Kind(phase_, Phase::kShards);
  file.Number(group_);
  bool knows_growth = growth_before_.has_value();
  uint64_t growth = growth_before_.value_or(0);
  file.Number(knows_growth);
  file.Number(growth);
  if (file.reads() && knows_growth) growth_before_ = growth;
  file.Number(knows_all_names_);
  file.Number(report_.directories);
  file.Number(report_.files);
  file.Number(with_data_);
  file.Number(facts_.settled);
  file.Items(facts_.inodes, [&](InodeFact& inode) { ArchiveInode(file, inode); });
  file.Items(facts_.entries, [&](EntryFact& entry) { ArchiveEntry(file, entry); });
  growth_.Visit([&](auto& grown, auto& seem_grown, auto& moved) {
    file.Items(grown, [&](InodeId& id, DirectoryParts& parts) {
      file.Number(id);
      file.Number(parts.bits);
      file.Kind(parts.stage, DirectoryParts::Stage::kClearing);
      if (parts.bits > kMostPartBits) file.MarkBad();
    });
    file.Items(seem_grown, Numbers<InodeId>(file));
    file.Items(moved, [&](EntryFact& entry) { ArchiveEntry(file, entry); });
  });
  file.Items(damaged_, Numbers<InodeId>(file));
  file.Items(keepers_, [&](InodeId& id, Keeping& keeping) {
    file.Number(id);
    file.Number(keeping.object);
    file.Number(keeping.settled);
    file.Items(keeping.files, Numbers<InodeId>(file));
  });
  file.Items(sharing_, Pair<InodeId, InodeId>(file));
  findings_.Archive(file);
}

void Checker::ArchiveShards(StateFile& file) {
  file.Number(checked_to_);
  listed_->Archive(file);
  file.Number(report_.blocks);
  file.Number(report_.map_pages);
  file.Number(report_.patches);
  file.Number(report_.shards);
  file.Number(report_.unused_shards);
  file.Number(report_.displaced_blocks);
  std::vector<std::pair<int, int>> geometries(report_.geometries.begin(), report_.geometries.end());
  file.Items(geometries, Pair<int, int>(file));
  for (auto* const counts :
       {&report_.unused_by_drive, &report_.shards_by_drive, &report_.named_on_draining}) {
    file.Items(*counts, Numbers<DriveId, uint64_t>(file));
  }
  bool knows_all_places = report_.knows_all_places;
  file.Number(knows_all_places);
  file.Items(told_, Numbers<InodeId>(file));
  file.Items(unused_stripes_, [&](ListedStripe& stripe) {
    ArchiveStripe(file, stripe.id);
    file.Items(stripe.copies, [&](ShardCopy& copy) {
      file.Number(copy.shard);
      file.Number(copy.drive);
    });
  });
  file.Items(suspects_, Pair<InodeId, uint64_t>(file));
  file.Items(displaced_, Pair<InodeId, uint64_t>(file));
  file.Items(lacking_, [&](LackingBlock& lacking) { ArchiveLacking(file, lacking); });
  file.Number(lacking_file_.id);
  file.Number(lacking_file_.short_blocks);
  file.Number(lacking_file_.lost_blocks);
  file.Number(lacking_file_.blocks_out_of_reach);
  file.Text(lacking_file_.first);
  findings_.Archive(file);
  if (!file.reads()) return;
  report_.geometries.insert(geometries.begin(), geometries.end());
  report_.knows_all_places &= knows_all_places;
}

// Half of what was kept is no place to go on from.
void Checker::GoOnFrom(const Result<bool>& kept) {
  if (kept.has_value()) return;
  stopped_ = true;
  report_.is_complete = false;
  knows_all_names_ = false;
  report_.knows_all_places = false;
  report_.not_checked.push_back(
      fmt::format("what would have come next: {}", kept.error().message()));
}

void Checker::Keep() {
  CheckState& state = *options_.state;
  if (!listed_) {
    state.WriteNames(report_.began, [this](StateFile& file) { ArchiveNames(file); });
    return;
  }
  listed_->Peek();  // so that what drives take for an answer does not count as keeping
  state.WriteShards([this](StateFile& file) { ArchiveShards(file); });
}

}  // namespace pinstripe
