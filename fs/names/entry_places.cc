#include "fs/names/entry_places.h"

#include <algorithm>

#include "base/attempts.h"
#include "base/coding.h"
#include "base/try.h"
#include "cluster/map/placement.h"

namespace pinstripe {
namespace {

using Move = Entry::Move;
using Stage = DirectoryParts::Stage;

const ChangeTerms kFreely{Durability::kWriteBack, Room::kFreeing};
const ChangeTerms kSafely{Durability::kWriteThrough, Room::kFreeing};

Status TooBusy(InodeId directory, std::string_view name) {
  return Fail(EIO, "'{}' in directory {:016x}, which grows, was changed {} times in between", name,
              directory, Attempts::kMost);
}

Entry Moving(Entry entry) {
  entry.move = Move::kMoving;
  return entry;
}

Entry Moved() {
  Entry entry;
  entry.move = Move::kMoved;
  return entry;
}

std::optional<Entry> AtRest(std::optional<Entry> entry) {
  if (entry) entry->move = Move::kNone;
  return entry;
}

}  // namespace

RegisterName EntryPlaces::NameIn(uint32_t group, InodeId directory, std::string_view name) {
  return {group, Writer().Raw("E").U64(directory).Raw(name).Take()};
}

RegisterName EntryPlaces::Home(InodeId directory, std::string_view name) const {
  return NameIn(cluster_.GroupOfObject(directory), directory, name);
}

std::optional<RegisterName> EntryPlaces::Part(InodeId directory, std::string_view name,
                                              uint8_t bits) const {
  const uint32_t part = PartOf(name, bits);
  if (part == 0) return std::nullopt;
  return NameIn(GroupOfPart(cluster_.map(), directory, part), directory, name);
}

RegisterName EntryPlaces::Guess(InodeId directory, std::string_view name) const {
  const auto known = known_.Find(directory);
  if (!known || known->parts.stage == Stage::kMoving) return Home(directory, name);
  return Part(directory, name, known->parts.bits).value_or(Home(directory, name));
}

uint32_t EntryPlaces::GroupFor(InodeId directory, std::string_view name) const {
  const auto known = known_.Find(directory);
  const uint32_t part = known ? PartOf(name, known->parts.bits) : 0;
  return GroupOfPart(cluster_.map(), directory, part);
}

Result<KnownParts::Known> EntryPlaces::PartsOf(InodeId directory) {
  const DriveMap& map = cluster_.map();
  if (const auto known = known_.Find(directory); known && known->parts.bits <= BitsFor(map)) {
    return *known;
  }
  const Time at = cluster_.runtime().Now();
  const auto parts = TRY_CONTEXT(read_directory_(directory), "directory {:016x}", directory);
  if (!parts) return KnownParts::Known{{}, at, /*is_gone=*/true};
  TRY(CheckParts(map, directory, *parts));
  return KnownParts::Known{*parts, at};
}

bool EntryPlaces::IsLate(const KnownParts::Known& known) const {
  return cluster_.runtime().Now() - known.at > kUseOfPartsEnds;
}

Result<EntryPlaces::Cell> EntryPlaces::Decode(const Result<RegisterValue>& read, InodeId directory,
                                              std::string_view name) {
  const RegisterValue value = TRY_CONTEXT(read, "entry '{}' of directory {:016x}", name, directory);
  Cell cell{.entry = std::nullopt, .slot = value.slot};
  if (!value.value) return cell;
  cell.entry =
      TRY_CONTEXT(Entry::Decode(*value.value), "'{}' in directory {:016x}", name, directory);
  return cell;
}

Result<EntryPlaces::Cell> EntryPlaces::Read(const RegisterName& register_name, InodeId directory,
                                            std::string_view name) {
  return Decode(cluster_.registers().Read(register_name), directory, name);
}

// ---- Finding

Result<std::optional<StoredEntry>> EntryPlaces::Judge(const RegisterName& asked,
                                                      const Result<RegisterValue>& read,
                                                      InodeId directory, std::string_view name,
                                                      const DirectoryParts& parts) const {
  const auto part = Part(directory, name, parts.bits);
  const bool is_in_part = part && parts.stage != Stage::kMoving;
  if (asked != (is_in_part ? *part : Home(directory, name))) return std::optional<StoredEntry>();
  Cell cell = TRY(Decode(read, directory, name));
  if (cell.Is(Move::kMoved)) return std::optional<StoredEntry>();
  // Nothing is on its way where the directory does not grow: it has begun to since it was read.
  const bool grows = part && !is_in_part;
  if (cell.Is(Move::kMoving) && !grows) return std::optional<StoredEntry>();
  // It may have ended to grow, and the entry have been made since.
  if (!cell.entry && grows) return std::optional<StoredEntry>();
  return std::optional(StoredEntry{.entry = AtRest(std::move(cell.entry)),
                                   .slot = cell.slot + (is_in_part ? kSlotsInParts : 0)});
}

Result<std::optional<StoredEntry>> EntryPlaces::FindBy(const DirectoryParts& parts,
                                                       InodeId directory, std::string_view name) {
  const auto part = Part(directory, name, parts.bits);
  const bool grows = part && parts.stage == Stage::kMoving;
  const RegisterName asked = part && !grows ? *part : Home(directory, name);
  const Result<RegisterValue> read = cluster_.registers().Read(asked);
  auto found = TRY(Judge(asked, read, directory, name, parts));
  if (found || !grows) return found;
  if (!read->value) return FindAbsent(directory, name, *part, read->slot);
  // It was moved, before its part is read.
  DirectoryParts after = parts;
  after.stage = Stage::kClearing;
  return Judge(*part, cluster_.registers().Read(*part), directory, name, after);
}

Result<bool> EntryPlaces::StillGrows(InodeId directory) {
  Forget(directory);
  return TRY(PartsOf(directory)).parts.stage == Stage::kMoving;
}

// What is in the part alone counts if the directory has ended to grow. Else it is what a loss of
// power has left of a move.
Result<std::optional<StoredEntry>> EntryPlaces::FindAbsent(InodeId directory, std::string_view name,
                                                           const RegisterName& part,
                                                           uint64_t slot) {
  const Cell there = TRY(Read(part, directory, name));
  if (there.entry && !TRY(StillGrows(directory))) return std::optional<StoredEntry>();
  return std::optional(StoredEntry{std::nullopt, slot});
}

Result<StoredEntry> EntryPlaces::Find(InodeId directory, std::string_view name) {
  for (Attempts attempts; attempts.Next(); attempts.Pause(cluster_.runtime())) {
    const KnownParts::Known known = TRY(PartsOf(directory));
    if (known.is_gone) return FindLeft(directory, name);
    auto found = TRY(FindBy(known.parts, directory, name));
    if (found && !IsLate(known)) return *std::move(found);
    Forget(directory);
  }
  return Failed(TooBusy(directory, name));
}

Result<StoredEntry> EntryPlaces::FindLeft(InodeId directory, std::string_view name) {
  Cell cell = TRY(Read(Home(directory, name), directory, name));
  if (cell.Is(Move::kMoved)) cell.entry.reset();
  return StoredEntry{.entry = AtRest(std::move(cell.entry)), .slot = cell.slot};
}

Status EntryPlaces::MakeDurable(InodeId directory, std::string_view name) {
  const KnownParts::Known known = TRY(PartsOf(directory));
  const auto part = Part(directory, name, known.parts.bits);
  if (part) TRY(cluster_.registers().MakeDurable(*part));
  if (part && known.parts.stage != Stage::kMoving) return {};
  return cluster_.registers().MakeDurable(Home(directory, name));
}

// ---- Changing

Result<std::optional<EntryPlaces::Target>> EntryPlaces::ForChange(InodeId directory,
                                                                  std::string_view name,
                                                                  uint64_t slot) {
  const bool is_of_part = slot >= kSlotsInParts;
  for (bool again = true;; again = false) {
    const KnownParts::Known known = TRY(PartsOf(directory));
    const auto part = Part(directory, name, known.parts.bits);
    if (is_of_part && !part && again) {
      Forget(directory);
      continue;
    }
    if (is_of_part) {
      if (!part) return std::optional<Target>();
      return std::optional(Target{*part, slot - kSlotsInParts, kSlotsInParts, std::nullopt});
    }
    if (!part) return std::optional(Target{Home(directory, name), slot, 0, known});
    if (known.parts.stage == Stage::kMoving) TRY(MoveOver(*part, directory, name, slot));
    return std::optional<Target>();
  }
}

Result<bool> EntryPlaces::StillCounts(InodeId directory, std::string_view name,
                                      const Target& target) {
  if (!target.known || !IsLate(*target.known)) return true;
  Forget(directory);
  return !Part(directory, name, TRY(PartsOf(directory)).parts.bits);
}

Result<std::optional<uint64_t>> EntryPlaces::Put(const RegisterName& name, uint64_t slot,
                                                 const std::optional<Entry>& entry,
                                                 ChangeTerms terms) {
  std::optional<std::string> value;
  if (entry) value = entry->Encode();
  const bool is_safe = terms.durability == Durability::kWriteThrough;
  const auto begun = is_safe ? nullptr : unsynced_.Begin();
  const ChangeOutcome outcome = cluster_.registers().Change(
      name, {.slot = slot, .value = std::nullopt}, std::move(value), terms);
  TRY(outcome.why);
  if (!outcome.applied()) return std::optional<uint64_t>();
  if (!is_safe) unsynced_.Add(begun, name, outcome.now);
  return std::optional(outcome.now.slot);
}

// Whoever reads the part first, and finds after it that the entry was not moved, knows that nobody
// has changed the part but to bring the entry there.
Status EntryPlaces::MoveOver(const RegisterName& part, InodeId directory, std::string_view name,
                             uint64_t slot) {
  const RegisterName home = Home(directory, name);
  for (Attempts attempts; attempts.Next(); attempts.Pause(cluster_.runtime())) {
    const Cell there = TRY(Read(part, directory, name));
    const Cell here = TRY(Read(home, directory, name));
    if (here.slot != slot || here.Is(Move::kMoved)) return {};
    if (here.entry && !here.Is(Move::kMoving)) {
      const auto begun = TRY(Put(home, slot, Moving(*here.entry), kFreely));
      if (!begun) return {};
      slot = *begun;
    }
    const std::optional<Entry> entry = AtRest(here.entry);
    // If the directory has ended to grow, somebody has made it in its part.
    if (!entry && there.entry && !TRY(StillGrows(directory))) return {};
    if (there.entry != entry) {
      if (!TRY(Put(part, there.slot, entry, kSafely))) continue;
    } else if (entry) {
      TRY(cluster_.registers().MakeDurable(part));
      if (TRY(Read(part, directory, name)).entry != entry) continue;  // lost before that
    }
    // From here on the part counts, also after a loss of power.
    TRY(Put(home, slot, Moved(), kSafely));
    return {};
  }
  return TooBusy(directory, name);
}

Result<std::optional<uint64_t>> EntryPlaces::Copy(InodeId directory, uint8_t bits,
                                                  const Listed& listed) {
  const auto part = Part(directory, listed.name, bits);
  if (!part) return std::optional<uint64_t>();
  for (Attempts attempts; attempts.Next(); attempts.Pause(cluster_.runtime())) {
    const auto begun = unsynced_.Begin();
    const Cell there = TRY(Read(*part, directory, listed.name));
    const RegisterName home = Home(directory, listed.name);
    // What was listed will do where it is changed, and so is known to be that still.
    const bool is_new = attempts.IsFirst() && listed.entry.move == Move::kNone;
    const Cell here =
        is_new ? Cell{listed.entry, listed.slot} : TRY(Read(home, directory, listed.name));
    if (!here.entry || here.Is(Move::kMoved)) return std::optional<uint64_t>();
    std::optional<uint64_t> slot = here.slot;
    if (!here.Is(Move::kMoving)) slot = TRY(Put(home, here.slot, Moving(*here.entry), kFreely));
    if (!slot) continue;
    if (there.entry == AtRest(here.entry)) {
      // Whoever has copied it may have died before it was safe.
      unsynced_.Add(begun, *part, {.slot = there.slot, .value = there.entry->Encode()});
      return slot;
    }
    if (TRY(Put(*part, there.slot, AtRest(here.entry), kFreely))) return slot;
  }
  return Failed(TooBusy(directory, listed.name));
}

Status EntryPlaces::EndMove(InodeId directory, std::string_view name, uint64_t slot) {
  TRY(Put(Home(directory, name), slot, Moved(), kSafely));
  return {};
}

Status EntryPlaces::ClearStray(InodeId directory, uint8_t bits, const Listed& stray) {
  const auto part = Part(directory, stray.name, bits);
  if (!part || TRY(Read(Home(directory, stray.name), directory, stray.name)).entry) return {};
  TRY(Put(*part, stray.slot, std::nullopt, kFreely));
  return {};
}

Status EntryPlaces::MarkMoved(InodeId directory, std::string_view name) {
  const RegisterName home = Home(directory, name);
  const Cell here = TRY(Read(home, directory, name));
  if (here.entry) return {};
  TRY(Put(home, here.slot, Moved(), kSafely));
  return {};
}

Status EntryPlaces::Clear(InodeId directory, const Listed& left) {
  TRY(Put(Home(directory, left.name), left.slot, std::nullopt, kFreely));
  return {};
}

}  // namespace pinstripe
