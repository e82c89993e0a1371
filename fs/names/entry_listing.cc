// EntryPlaces: listing a directory, whose parts are put together in the order of names.

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "base/attempts.h"
#include "base/coding.h"
#include "base/side_by_side.h"
#include "base/try.h"
#include "cluster/map/placement.h"
#include "fs/names/entry_places.h"
#include "fs/types.h"

namespace pinstripe {
namespace {

using Move = Entry::Move;
using Stage = DirectoryParts::Stage;

constexpr size_t kPartsAtOnce = 16;
// So many names of each part are read at once, at least.
constexpr size_t kNamesOfPart = 64;

// Null: it ends there.
std::optional<std::string> Earlier(std::optional<std::string> a, std::optional<std::string> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*std::move(a), *std::move(b));
}

}  // namespace

// Entries as they are in their registers.
Result<EntryPlaces::Page> EntryPlaces::Scan(uint32_t group, InodeId directory,
                                            std::string_view first, size_t max,
                                            RegisterHolding* mark) {
  const std::string prefix = NameIn(group, directory, "").key;
  const std::string last = prefix + std::string(kMaxNameBytes + 1, '\xff');  // no name exceeds it
  const std::string from = prefix + std::string(first);
  RegisterStore& registers = cluster_.registers();
  const auto scan = TRY_CONTEXT(mark == nullptr ? registers.Scan(group, from, last, max)
                                                : registers.ScanAfter(*mark, from, last, max),
                                "list directory {:016x}", directory);
  Page page;
  for (const RegisterStore::ScanEntry& entry : scan.entries) {
    if (!entry.value.value) continue;
    const std::string name = entry.key.substr(prefix.size());
    const Entry named = TRY_CONTEXT(Entry::Decode(*entry.value.value), "'{}' in directory {:016x}",
                                    name, directory);
    page.entries.push_back({name, named, entry.value.slot});
  }
  if (scan.next) page.next = scan.next->substr(std::min(prefix.size(), scan.next->size()));
  return page;
}

Result<EntryPlaces::Page> EntryPlaces::List(InodeId directory, std::string_view first, size_t max,
                                            RegisterHolding* mark) {
  for (Attempts attempts; attempts.Next(); attempts.Pause(cluster_.runtime())) {
    const KnownParts::Known known = TRY(PartsOf(directory));
    if (known.is_gone) {
      Page left = TRY(Scan(cluster_.GroupOfObject(directory), directory, first, max, mark));
      std::erase_if(left.entries,
                    [](const Listed& listed) { return listed.entry.move == Move::kMoved; });
      return left;
    }
    auto page = TRY(ListBy(known.parts, directory, first, max, mark));
    if (page && !IsLate(known)) return *std::move(page);
    Forget(directory);
  }
  return Fail(EIO, "list directory {:016x}: it took too long", directory);
}

Result<EntryPlaces::Page> EntryPlaces::ListAhead(InodeId directory, std::string_view first,
                                                 size_t max) {
  if (first.empty()) {
    ++ahead_changes_;
  } else if (auto some = TakeAhead(directory, first, max)) {
    return *std::move(some);
  }
  Ahead ahead;
  ahead.directory = directory;
  ahead.changes = ahead_changes_;
  ahead.at = cluster_.runtime().Now();
  ahead.page = TRY(List(directory, first, max, nullptr));
  if (ahead.page.entries.size() <= max) return std::move(ahead.page);
  Page some = Take(ahead, 0, max);
  const MutexLock lock(ahead_mutex_);
  if (ahead_.size() == kMostAhead) ahead_.pop_front();
  ahead_.push_back(std::move(ahead));
  return some;
}

void EntryPlaces::NoteAdded(InodeId directory) {
  const auto known = known_.Find(directory);
  if (!known || known->parts.bits != 0) ++ahead_changes_;
}

EntryPlaces::Page EntryPlaces::Take(const Ahead& ahead, size_t from, size_t max) {
  const std::vector<Listed>& all = ahead.page.entries;
  const size_t end = std::min(all.size(), from + std::max<size_t>(max, 1));
  Page some{.entries = {all.begin() + static_cast<ptrdiff_t>(from),
                        all.begin() + static_cast<ptrdiff_t>(end)},
            .next = ahead.page.next};
  if (end < all.size()) some.next = all[end - 1].name + '\0';
  return some;
}

// Also what was given already: the kernel does not take all that it asks for.
std::optional<EntryPlaces::Page> EntryPlaces::TakeAhead(InodeId directory, std::string_view first,
                                                        size_t max) {
  const Time now = cluster_.runtime().Now();
  const MutexLock lock(ahead_mutex_);
  std::erase_if(ahead_, [&](const Ahead& it) {
    return now - it.at > kListedAhead || it.changes != ahead_changes_;
  });
  for (const Ahead& ahead : ahead_) {
    const std::vector<Listed>& all = ahead.page.entries;
    const bool covers =
        ahead.directory == directory && all.front().name < first && first <= all.back().name;
    if (!covers) continue;
    const auto at = std::ranges::lower_bound(all, first, std::less<>(), &Listed::name);
    return Take(ahead, static_cast<size_t>(at - all.begin()), max);
  }
  return std::nullopt;
}

// What each part has from `first` on; that of part 0 has what lies in the directory's own group.
// While the directory grows that is read before the others.
Result<std::vector<EntryPlaces::Page>> EntryPlaces::ScanParts(const DirectoryParts& parts,
                                                              InodeId directory,
                                                              std::string_view first, size_t max,
                                                              RegisterHolding* mark) {
  const size_t count = size_t{1} << parts.bits;
  // Names fall into parts by chance: with some more of each, most of them reach about as far.
  const size_t of_each = std::max(max / count + 8, kNamesOfPart);
  const bool grows = parts.stage == Stage::kMoving;
  std::vector<Result<Page>> pages(count);
  const uint32_t home = cluster_.GroupOfObject(directory);
  if (grows) pages[0] = Scan(home, directory, first, max, mark);
  SideBySide(cluster_.runtime(), "list", count - 1, kPartsAtOnce, [&](size_t i) {
    const uint32_t group = GroupOfPart(cluster_.map(), directory, static_cast<uint32_t>(i + 1));
    pages[i + 1] = Scan(group, directory, first, of_each, nullptr);
  });
  std::vector<Page> all(count);
  std::optional<std::string> end;  // of what all other parts have told
  for (size_t part = 1; part < count; ++part) {
    all[part] = TRY(std::move(pages[part]));
    end = Earlier(std::move(end), all[part].next);
  }
  if (grows) {
    all[0] = TRY(std::move(pages[0]));
    return all;
  }
  // Where all of it was, most of what is listed may be what is left of names that were moved.
  all[0].next = first;
  while (all[0].next && (!end || *all[0].next < *end)) {
    Page more = TRY(Scan(home, directory, *all[0].next, kMaxRangeKeys, mark));
    std::ranges::move(more.entries, std::back_inserter(all[0].entries));
    all[0].next = std::move(more.next);
  }
  return all;
}

// Null: the directory has grown since it was known.
Result<std::optional<EntryPlaces::Page>> EntryPlaces::ListBy(const DirectoryParts& parts,
                                                             InodeId directory,
                                                             std::string_view first, size_t max,
                                                             RegisterHolding* mark) {
  if (parts.bits == 0) {
    Page page = TRY(Scan(cluster_.GroupOfObject(directory), directory, first, max, mark));
    const auto is_old = [](const Listed& listed) { return listed.entry.move != Move::kNone; };
    if (std::ranges::any_of(page.entries, is_old)) return std::optional<Page>();
    return std::optional(std::move(page));
  }
  const bool grows = parts.stage == Stage::kMoving;
  std::vector<Page> pages = TRY(ScanParts(parts, directory, first, max, mark));
  std::map<std::string, Listed> names;
  std::map<std::string, Listed> at_home;  // while it grows: of other parts than 0
  std::optional<std::string> next;
  for (size_t part = 0; part < pages.size(); ++part) {
    next = Earlier(std::move(next), std::move(pages[part].next));
    for (Listed& listed : pages[part].entries) {
      const bool belongs = PartOf(listed.name, parts.bits) == part;
      std::string name = listed.name;
      if (belongs) {
        if (part != 0) listed.slot += kSlotsInParts;
        names.emplace(std::move(name), std::move(listed));
      } else if (part == 0 && grows) {
        at_home.emplace(std::move(name), std::move(listed));
      }
    }
  }
  if (next) {
    names.erase(names.lower_bound(*next), names.end());
    at_home.erase(at_home.lower_bound(*next), at_home.end());
  }
  // What is not in the directory's own group, or not in its part, may have been moved in between.
  std::vector<std::string> doubtful;
  for (auto& [name, listed] : at_home) {
    if (listed.entry.move == Move::kMoved) continue;
    listed.entry.move = Move::kNone;
    names.insert_or_assign(name, std::move(listed));
  }
  if (grows) {
    for (const auto& [name, listed] : names) {
      if (listed.slot >= kSlotsInParts && !at_home.contains(name)) doubtful.push_back(name);
    }
  }
  for (const std::string& name : doubtful) {
    const auto found = TRY(FindBy(parts, directory, name));
    if (!found) return std::optional<Page>();
    if (found->entry) {
      names[name] = {name, *found->entry, found->slot};
    } else {
      names.erase(name);
    }
  }
  Page page{.entries = {}, .next = std::move(next)};
  for (auto& [name, listed] : names) page.entries.push_back(std::move(listed));
  return std::optional(std::move(page));
}

Result<EntryPlaces::Page> EntryPlaces::ListStray(InodeId directory, uint8_t bits,
                                                 std::string_view first, size_t max) {
  const DirectoryParts parts{.bits = bits, .stage = Stage::kMoving};
  std::vector<Page> pages = TRY(ScanParts(parts, directory, first, max, nullptr));
  std::set<std::string> at_home;
  for (const Listed& listed : pages.front().entries) at_home.insert(listed.name);
  Page stray;
  stray.next = std::move(pages.front().next);
  for (size_t part = 1; part < pages.size(); ++part) {
    stray.next = Earlier(std::move(stray.next), std::move(pages[part].next));
    for (Listed& listed : pages[part].entries) {
      if (!at_home.contains(listed.name)) stray.entries.push_back(std::move(listed));
    }
  }
  // What comes later at home was not read.
  std::erase_if(stray.entries,
                [&](const Listed& listed) { return stray.next && listed.name >= *stray.next; });
  return stray;
}

Result<EntryPlaces::Page> EntryPlaces::ListLeft(InodeId directory, uint8_t bits,
                                                std::string_view first, size_t max) {
  Page page = TRY(Scan(cluster_.GroupOfObject(directory), directory, first, max, nullptr));
  std::erase_if(page.entries,
                [bits](const Listed& listed) { return PartOf(listed.name, bits) == 0; });
  return page;
}

}  // namespace pinstripe
