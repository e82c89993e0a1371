#include "upkeep/settled_names.h"

#include <algorithm>
#include <iterator>

#include "base/try.h"

namespace pinstripe {
namespace {

// The directory of its settled name; 0: it has none.
InodeId SettledIn(const TreeFacts& facts, InodeId id) {
  const InodeFact* const inode = facts.Find(id);
  return inode == nullptr || inode->kind == FileKind::kDirectory ? 0 : inode->parent;
}

}  // namespace

std::vector<std::string> SettledNames::PutBack(TreeFacts& facts) {
  Wanted wanted;
  for (const EntryFact& entry : facts.entries) {
    const InodeId directory = SettledIn(facts, entry.inode);
    if (directory != 0) wanted[directory].insert(entry.inode);
  }
  std::vector<std::string> failures;
  for (const auto& [directory, files] : wanted) {
    std::vector<EntryFact> names;
    const Status found = FindIn(directory, files, [&names](EntryFact entry) {
      names.push_back(std::move(entry));
      return true;
    });
    if (!found.ok()) {
      failures.push_back(fmt::format("names in directory {:016x}: {}", directory, found.message()));
      continue;
    }
    std::ranges::move(names, std::back_inserter(facts.entries));
    for (const InodeId file : files) {
      facts.Find(file)->parent = 0;
      --facts.settled;
    }
  }
  return failures;
}

Status SettledNames::FindIn(InodeId directory, const Files& files,
                            const std::function<bool(EntryFact)>& take) {
  for (std::string first;;) {
    if (go_on_ && !go_on_()) return Fail(ECANCELED, "it was stopped");
    const Records::Page page = TRY(records_.List(directory, first, kMaxRangeKeys));
    for (const auto& [name, entry, slot] : page.entries) {
      if (!files.contains(entry.inode)) continue;
      const bool wants_more = take({.directory = directory,
                                    .name = name,
                                    .inode = entry.inode,
                                    .kind = entry.kind,
                                    .group = growth_.GroupOf(cluster_.map(), directory, name)});
      if (!wants_more) return {};
    }
    if (!page.next) return {};
    first = *page.next;
  }
}

void SettledNames::FindAsGiven(std::span<const InodeId> files, Names& names) {
  const auto inodes = records_.FindInodes({files.begin(), files.end()});
  for (size_t i = 0; i < files.size(); ++i) {
    if (!inodes[i].has_value() || !*inodes[i] || !(*inodes[i])->inode.named) continue;
    const GivenName& given = *(*inodes[i])->inode.named;
    const auto stored = records_.FindEntry(given.directory, given.name);
    if (!stored.has_value() || !stored->entry || stored->entry->inode != files[i]) continue;
    names[files[i]] = {.directory = given.directory, .name = given.name, .inode = files[i]};
  }
}

std::map<InodeId, std::string> SettledNames::Paths(const TreeFacts& facts,
                                                   const std::set<InodeId>& ids) {
  std::vector<InodeId> settled;
  for (const InodeId id : ids) {
    if (SettledIn(facts, id) != 0) settled.push_back(id);
  }
  Names names;
  const std::span<const InodeId> all(settled);
  for (size_t first = 0; first < all.size(); first += Records::kMostAtOnce) {
    FindAsGiven(all.subspan(first, std::min(Records::kMostAtOnce, all.size() - first)), names);
  }
  Wanted wanted;  // those that were renamed
  for (const InodeId id : settled) {
    if (!names.contains(id)) wanted[SettledIn(facts, id)].insert(id);
  }
  for (const auto& [directory, files] : wanted) {
    // Where that fails, the directory is all that is told.
    size_t missing = files.size();
    (void)FindIn(directory, files, [&](EntryFact entry) {
      missing -= names.contains(entry.inode) ? 0 : 1;
      names[entry.inode] = std::move(entry);
      return missing > 0;
    });
  }
  std::map<InodeId, std::string> paths;
  for (const InodeId id : ids) {
    const auto name = names.find(id);
    paths[id] = name == names.end() ? PathOf(facts, id) : PathOf(facts, name->second);
  }
  return paths;
}

}  // namespace pinstripe
