#include "upkeep/growth_facts.h"

#include <utility>

#include "cluster/map/placement.h"
#include "fs/names/directory_parts.h"

namespace pinstripe {

void GrowthFacts::TakeDirectory(InodeId id, const DirectoryParts& parts) {
  if (parts.bits != 0) grown_.emplace(id, parts);
}

bool GrowthFacts::TakeEntry(const DriveMap& map, const Entry& entry, EntryFact& fact) {
  const auto grown = grown_.find(fact.directory);
  const bool is_spread =
      grown != grown_.end() && grown->second.stage != DirectoryParts::Stage::kMoving;
  // What is left of it where it was is not a name any more.
  if (is_spread && fact.group != GroupOf(map, fact.directory, fact.name)) return false;
  const bool is_at_home = fact.group == GroupOfRegisters(map, fact.directory);
  if (!is_at_home || entry.move != Entry::Move::kNone) seem_grown_.insert(fact.directory);
  fact.is_in_place =
      entry.move == Entry::Move::kNone && (is_spread || (is_at_home && grown == grown_.end()));
  if (entry.move != Entry::Move::kMoved) return true;
  moved_.push_back(fact);
  return false;
}

uint32_t GrowthFacts::GroupOf(const DriveMap& map, InodeId directory, std::string_view name) const {
  const auto grown = grown_.find(directory);
  if (grown == grown_.end()) return GroupOfRegisters(map, directory);
  return GroupOfPart(map, directory, PartOf(name, grown->second.bits));
}

std::vector<std::string> GrowthFacts::FindMoved(Records& records,
                                                std::vector<EntryFact>& entries) const {
  std::vector<std::string> failures;
  std::map<InodeId, bool> are_there;
  std::set<std::pair<InodeId, std::string>> known;  // where they went
  for (const EntryFact& entry : entries) {
    if (seem_grown_.contains(entry.directory)) known.emplace(entry.directory, entry.name);
  }
  for (const EntryFact& moved : moved_) {
    if (known.contains({moved.directory, moved.name})) continue;
    const auto [there, is_new] = are_there.try_emplace(moved.directory, true);
    if (is_new) {
      const auto directory = records.FindInode(moved.directory);
      there->second = !directory.has_value() || directory->has_value();
    }
    if (!there->second) continue;
    const auto stored = records.FindEntry(moved.directory, moved.name);
    if (!stored.has_value()) {
      failures.push_back(fmt::format("'{}' in directory {:016x}, which grows: {}", moved.name,
                                     moved.directory, stored.error().message()));
    } else if (stored->entry) {
      EntryFact found = moved;
      found.inode = stored->entry->inode;
      found.kind = stored->entry->kind;
      entries.push_back(std::move(found));
    }
  }
  return failures;
}

}  // namespace pinstripe
