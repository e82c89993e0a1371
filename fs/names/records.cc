#include "fs/names/records.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/coding.h"
#include "base/try.h"
#include "cluster/map/placement.h"

namespace pinstripe {
namespace {

constexpr uint8_t kMoverFormat = 1;

Result<std::optional<StoredInode>> DecodeInode(const Result<RegisterValue>& read, InodeId id) {
  const RegisterValue value = TRY_CONTEXT(read, "inode {:016x}", id);
  if (!value.value) return std::optional<StoredInode>();
  Inode inode = TRY(Inode::Decode(*value.value, id));
  return std::optional(StoredInode{std::move(inode), value.slot});
}

Result<Records::Mover> DecodeMover(const RegisterValue& value) {
  if (!value.value) return Records::Mover{0, value.slot};
  Reader reader(*value.value);
  const uint8_t format = reader.U8();
  const InodeId directory = reader.U64();
  TRY(reader.Finish("rename register"));
  if (format != kMoverFormat) {
    return Fail(EBADMSG, "the rename register has format {}; this version knows {}", format,
                kMoverFormat);
  }
  return Records::Mover{directory, value.slot};
}

}  // namespace

std::optional<InodeId> InodeOfRegister(std::string_view key) {
  Reader reader(key);
  const bool is_inode = reader.Raw(1) == "I";
  const InodeId id = reader.U64();
  if (!is_inode || !reader.Finish("").ok()) return std::nullopt;
  return id;
}

std::optional<InodeId> DirectoryOfRegister(std::string_view key) {
  Reader reader(key);
  const bool is_entry = reader.Raw(1) == "E";
  const InodeId directory = reader.U64();
  if (!is_entry || !reader.ok() || reader.left() == 0) return std::nullopt;
  return directory;
}

Records::Records(Cluster& cluster)
    : cluster_(cluster),
      recent_(cluster.runtime()),
      listed_(cluster.runtime()),
      listed_places_(cluster.runtime()),
      unsynced_(cluster),
      places_(cluster, unsynced_, [this](InodeId id) {
        return FindInode(id).map([](const std::optional<StoredInode>& found) {
          return found ? std::optional(found->inode.parts) : std::nullopt;
        });
      }) {}

RenameNonce Records::NewRenameNonce() {
  RenameNonce nonce{};
  for (size_t i = 0; i < nonce.size(); i += 8) {
    const uint64_t bits = runtime().Random();
    std::memcpy(nonce.data() + i, &bits, 8);
  }
  return nonce;
}

InodeId Records::NewInodeId() {
  while (true) {
    const InodeId id = runtime().Random();
    if (id > kRootInode) return id;
  }
}

InodeId Records::NewInodeIdBeside(InodeId directory, std::string_view name) {
  const uint32_t group = places_.GroupFor(directory, name);
  while (true) {
    const InodeId id = ObjectInGroup(cluster_.map(), group, runtime().Random());
    if (id > kRootInode) return id;
  }
}

RegisterName Records::NameOf(InodeId id) const {
  return {cluster_.GroupOfObject(id), Writer().Raw("I").U64(id).Take()};
}

Result<std::optional<StoredInode>> Records::FindInode(InodeId id) {
  const Time at = runtime().Now();
  return Learn(cluster_.registers().Read(NameOf(id)), id, at);
}

Result<Records::InodeRegister> Records::FindInodeRegister(InodeId id) {
  return std::move(FindInodeRegisters({&id, 1}).front());
}

std::vector<Result<Records::InodeRegister>> Records::FindInodeRegisters(
    std::span<const InodeId> ids) {
  std::vector<RegisterName> names;
  for (const InodeId id : ids) names.push_back(NameOf(id));
  std::vector<Result<InodeRegister>> found;
  const auto values = cluster_.registers().ReadMany(names);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto stored = DecodeInode(values[i], ids[i]);
    if (stored.has_value()) {
      found.push_back(InodeRegister{*std::move(stored), values[i]->slot, values[i]->removed_at,
                                    values[i]->is_instead});
    } else {
      found.push_back(tl::unexpected(std::move(stored.error())));
    }
  }
  return found;
}

Result<RegisterTraces> Records::FindTraces(InodeId id) {
  return cluster_.registers().FindTraces(NameOf(id));
}

Result<StoredEntry> Records::FindEntry(InodeId directory, std::string_view name) {
  return places_.Find(directory, name);
}

Result<std::optional<StoredInode>> Records::Learn(const Result<RegisterValue>& read, InodeId id,
                                                  Time at) {
  auto stored = TRY(DecodeInode(read, id));
  if (stored) {
    places_.Learn(id, stored->inode, at);
    recent_.Learn(id, *stored, read->value->size(), at);
  } else {
    recent_.Forget(id);
  }
  listed_.Forget(id);
  return stored;
}

Result<Records::Found> Records::FoundIn(const Question& question,
                                        std::optional<StoredInode> directory,
                                        const RegisterName& asked,
                                        const Result<RegisterValue>& entry, InodeId guess,
                                        const Result<std::optional<StoredInode>>* guessed) {
  Found found;
  found.directory = std::move(directory);
  if (!found.directory) return found;
  const DirectoryParts& parts = found.directory->inode.parts;
  TRY(CheckParts(cluster_.map(), question.directory, parts));
  auto judged = TRY(places_.Judge(asked, entry, question.directory, question.name, parts));
  if (!judged) judged = TRY(places_.Find(question.directory, question.name));
  found.entry = *std::move(judged);
  if (!found.entry.entry) return found;
  const Entry& named = *found.entry.entry;
  if (named.inode != guess) {
    hints_.Learn(question.directory, question.name, named.inode);
  } else if (!named.nonce && guessed->has_value()) {
    found.inode = **guessed;
  }
  return found;
}

std::vector<Result<Records::Found>> Records::Look(std::span<const Question> questions) {
  std::vector<RegisterName> names;
  std::map<InodeId, size_t> inodes;  // that are read, and which of `names` they are
  const auto read_inode = [&](InodeId id) {
    if (inodes.try_emplace(id, names.size()).second) names.push_back(NameOf(id));
  };
  struct Asked {
    std::optional<StoredInode> recent;  // directory, which then is not read
    InodeId guess = 0;                  // 0: none
    size_t entry = 0;                   // which of `names` it is
  };
  std::vector<Asked> asked;
  for (const Question& question : questions) {
    Asked& it = asked.emplace_back();
    if (question.recently) it.recent = recent_.FindDirectory(question.directory);
    if (!it.recent) read_inode(question.directory);
    it.guess = hints_.Find(question.directory, question.name);
    if (it.guess != 0) read_inode(it.guess);
    it.entry = names.size();
    names.push_back(places_.Guess(question.directory, question.name));
  }
  const Time at = runtime().Now();
  const auto values = cluster_.registers().ReadMany(names);
  std::map<InodeId, Result<std::optional<StoredInode>>> read;
  for (const auto& [id, which] : inodes) read.emplace(id, Learn(values[which], id, at));

  std::vector<Result<Found>> found;
  for (size_t i = 0; i < questions.size(); ++i) {
    auto& [recent, guess, entry] = asked[i];
    Result<std::optional<StoredInode>> directory = std::move(recent);
    if (!*directory) directory = read.at(questions[i].directory);
    if (!directory.has_value()) {
      found.push_back(tl::unexpected(directory.error()));
      continue;
    }
    found.push_back(FoundIn(questions[i], *std::move(directory), names[entry], values[entry], guess,
                            guess != 0 ? &read.at(guess) : nullptr));
  }
  return found;
}

Result<Records::Found> Records::Look(const Question& question) {
  return std::move(Look({&question, 1}).front());
}

std::vector<Result<std::optional<StoredInode>>> Records::FindInodes(
    const std::vector<InodeId>& ids) {
  std::vector<RegisterName> names;
  for (const InodeId id : ids) names.push_back(NameOf(id));
  const auto values = cluster_.registers().ReadMany(names);
  std::vector<Result<std::optional<StoredInode>>> inodes;
  for (size_t i = 0; i < ids.size(); ++i) inodes.push_back(DecodeInode(values[i], ids[i]));
  return inodes;
}

ChangeOutcome Records::Change(const RegisterName& name, uint64_t slot,
                              std::optional<std::string> value, ChangeTerms terms,
                              RegisterHolding* holding) {
  const RegisterValue seen{.slot = slot, .value = std::nullopt};
  const bool is_safe = terms.durability == Durability::kWriteThrough;
  const auto begun = is_safe ? nullptr : unsynced_.Begin();
  ChangeOutcome outcome = cluster_.registers().Change(name, seen, std::move(value), terms, holding);
  if (!is_safe && outcome.applied()) unsynced_.Add(begun, name, outcome.now);
  return outcome;
}

Records::InodeChange Records::ChangeInode(InodeId id, uint64_t slot,
                                          const std::optional<Inode>& inode, ChangeTerms terms,
                                          RegisterHolding* holding) {
  std::optional<std::string> value;
  if (inode) value = inode->Encode(id);
  if (value && value->size() > kMaxRegisterBytes) {
    return {{.effect = Effect::kRefused,
             .why = Fail(EFBIG,
                         "inode {:016x} would take {} bytes, at most {} fit: the file is in too "
                         "many pieces; write it anew from its beginning to its end",
                         id, value->size(), kMaxRegisterBytes)}};
  }
  const uint64_t losses = CountLosses(id);
  const Time at = runtime().Now();
  ChangeOutcome outcome = Change(NameOf(id), slot, std::move(value), terms, holding);
  const bool holds = holding != nullptr && outcome.applied();
  if (holds && holding->slot != outcome.now.slot) *holding = HoldingOf(id, outcome.now.slot);
  return InodeChanged(id, inode, std::move(outcome), losses, at);
}

Records::InodeChange Records::ChangeInodeWith(InodeId id, uint64_t slot, const Inode& inode,
                                              const Companions& companions, ChangeTerms terms) {
  const uint64_t losses = CountLosses(id);
  const Time at = runtime().Now();
  const bool is_safe = terms.durability == Durability::kWriteThrough;
  const auto begun = is_safe ? nullptr : unsynced_.Begin();
  ChangeOutcome outcome = cluster_.registers().ChangeBound(
      {NameOf(id), {.slot = slot, .value = {}}, inode.Encode(id), &companions}, terms);
  if (!is_safe && outcome.applied()) unsynced_.Add(begun, NameOf(id), outcome.now);
  return InodeChanged(id, inode, std::move(outcome), losses, at);
}

RegisterHolding Records::HoldingOf(InodeId id, uint64_t slot) const {
  return {.name = NameOf(id), .slot = slot, .drives = {}, .counts_until = {}};
}

Records::InodeChange Records::InodeChanged(InodeId id, const std::optional<Inode>& inode,
                                           ChangeOutcome outcome, uint64_t losses, Time at) {
  InodeChange change{{outcome.effect, outcome.why.Context(fmt::format("change inode {:016x}", id))},
                     std::nullopt,
                     losses,
                     outcome.now.slot,
                     outcome.everywhere,
                     outcome.otherwise,
                     outcome.now.is_instead};
  if (!outcome.why.ok()) {
    recent_.Forget(id);
  } else if (outcome.applied() && inode) {
    change.now = StoredInode{*inode, outcome.now.slot};
    places_.Learn(id, *inode, at);
    recent_.LearnOwn(id, *change.now, at);
  } else if (outcome.applied()) {
    recent_.Forget(id);
  } else {
    auto there = DecodeInode(outcome.now, id);
    if (there.has_value()) {
      change.now = *std::move(there);
    } else {
      change.why = there.error();
    }
    if (change.now && change.now->inode.kind == FileKind::kDirectory) {
      places_.Learn(id, change.now->inode, at);
      recent_.Learn(id, *change.now, outcome.now.value->size(), at);
    } else {
      recent_.Forget(id);
    }
  }
  listed_.Forget(id);
  return change;
}

Records::EntryChange Records::ChangeEntry(InodeId directory, std::string_view name, uint64_t slot,
                                          const std::optional<Entry>& entry, ChangeTerms terms) {
  EntryChange refused;
  const auto target = TargetOf(directory, name, slot, refused);
  if (!target) return refused;
  std::optional<std::string> value;
  if (entry) value = entry->Encode();
  return EntryChanged(directory, name, entry, *target,
                      Change(target->name, target->slot, std::move(value), terms));
}

std::optional<Records::Target> Records::TargetOf(InodeId directory, std::string_view name,
                                                 uint64_t slot, EntryChange& change) {
  auto target = places_.ForChange(directory, name, slot);
  if (target.has_value() && *target) return *std::move(target);
  if (target.has_value()) {
    change = EntryRefused(directory, name);
  } else {
    change.why = target.error();
  }
  return std::nullopt;
}

Records::EntryChange Records::EntryRefused(InodeId directory, std::string_view name) {
  EntryChange change;
  auto there = places_.Find(directory, name);
  if (there.has_value()) {
    change.now = *std::move(there);
  } else {
    change.why = there.error();
  }
  return change;
}

Records::EntryChange Records::EntryChanged(InodeId directory, std::string_view name,
                                           const std::optional<Entry>& entry, const Target& target,
                                           ChangeOutcome outcome) {
  EntryChange change{
      {outcome.effect,
       outcome.why.Context(fmt::format("change entry '{}' of directory {:016x}", name, directory))},
      {},
      {}};
  if (entry && outcome.effect != Effect::kRefused) places_.NoteAdded(directory);
  if (outcome.applied()) {
    const Result<bool> counts = places_.StillCounts(directory, name, target);
    if (!counts.has_value() || !*counts) {
      return {{.effect = Effect::kUnknown,
               .why = Fail(EIO,
                           "whether entry '{}' of directory {:016x} was changed is not certain: it "
                           "took too long, and the directory may have grown",
                           name, directory)},
              {},
              {}};
    }
    if (entry) hints_.Learn(directory, name, entry->inode);
    change.now = {entry, outcome.now.slot + target.slots_from};
  } else if (outcome.why.ok()) {
    const auto there = outcome.now.value ? Entry::Decode(*outcome.now.value) : Entry();
    if (!there.has_value()) {
      change.why = there.error();
    } else if (there->move != Entry::Move::kNone) {
      places_.Forget(directory);  // it grows
      return EntryRefused(directory, name);
    } else {
      if (outcome.now.value) change.now.entry = *there;
      change.now.slot = outcome.now.slot + target.slots_from;
    }
  }
  return change;
}

Status Records::MakeEntryDurable(InodeId directory, std::string_view name) {
  return places_.MakeDurable(directory, name);
}

Status Records::MakeInodeDurable(InodeId id) {
  return cluster_.registers().MakeDurable(NameOf(id));
}

uint64_t Records::CountLosses(InodeId id) const {
  uint64_t losses = 0;
  const GroupReplicas replicas = cluster_.Replicas(cluster_.GroupOfObject(id));
  for (const Drive* drive : replicas.drives) {
    if (drive != nullptr) losses += drive->CountLosses();
  }
  return losses;
}

Records::NamedInode Records::CreateNamed(InodeId directory, std::string_view name, uint64_t slot,
                                         const Inode& inode) {
  if (inode.kind != FileKind::kDirectory) {
    NamedInode refused;
    const auto target = TargetOf(directory, name, slot, refused.entry);
    refused.inode.why = refused.entry.why;
    if (!target) return refused;
    return CreateAt(*target, directory, name, NewInodeIdBeside(directory, name), inode, {},
                    nullptr);
  }
  return CreateApart(directory, name, slot, NewInodeId(), inode, {}, nullptr);
}

Records::NamedInode Records::CreateApart(InodeId directory, std::string_view name, uint64_t slot,
                                         InodeId id, const Inode& inode, ChangeTerms terms,
                                         const Companions* companions) {
  NamedInode made{.id = id};
  const Entry entry{.inode = id, .kind = inode.kind, .nonce = std::nullopt};
  made.inode = companions == nullptr ? ChangeInode(id, 0, inode, terms)
                                     : ChangeInodeWith(id, 0, inode, *companions, terms);
  made.entry.why = made.inode.why;
  if (made.inode.applied()) made.entry = ChangeEntry(directory, name, slot, entry, terms);
  return made;
}

Records::NamedInode Records::CreateBeside(InodeId directory, std::string_view name, uint64_t slot,
                                          InodeId id, const Inode& inode, ChangeTerms terms,
                                          const Companions* companions) {
  NamedInode refused{.id = id};
  const auto target = TargetOf(directory, name, slot, refused.entry);
  if (!target) {
    refused.inode.why = refused.entry.why;
    if (!refused.inode.why.ok()) return refused;
    refused.inode = companions == nullptr ? ChangeInode(id, 0, inode, terms)
                                          : ChangeInodeWith(id, 0, inode, *companions, terms);
    return refused;
  }
  return CreateAt(*target, directory, name, id, inode, terms, companions);
}

Records::NamedInode Records::CreateAt(const Target& target, InodeId directory,
                                      std::string_view name, InodeId id, const Inode& inode,
                                      ChangeTerms terms, const Companions* companions) {
  if (target.name.group != NameOf(id).group) {
    return CreateApart(directory, name, target.slot + target.slots_from, id, inode, terms,
                       companions);
  }
  const Entry entry{.inode = id, .kind = inode.kind, .nonce = std::nullopt};
  const RegisterStore::Wanted wanted[] = {
      {NameOf(id), {}, inode.Encode(id), companions},
      {target.name, {.slot = target.slot, .value = std::nullopt}, entry.Encode()}};
  const bool is_safe = terms.durability == Durability::kWriteThrough;
  const auto begun = is_safe ? nullptr : unsynced_.Begin();
  const uint64_t losses = CountLosses(id);
  const Time at = runtime().Now();
  // The directory's inode lies beside the entry, unless that is in another part.
  const RegisterName witness = NameOf(directory);
  const bool is_near = witness.group == target.name.group;
  const auto both =
      cluster_.registers().ChangeBoth(wanted[0], wanted[1], terms, is_near ? &witness : nullptr);
  if (!is_safe && both.first.applied()) unsynced_.Add(begun, wanted[0].name, both.first.now);
  if (!is_safe && both.second.applied()) unsynced_.Add(begun, wanted[1].name, both.second.now);
  NamedInode made{id, InodeChanged(id, inode, both.first, losses, at),
                  EntryChanged(directory, name, entry, target, both.second)};
  made.entry.directory = DirectoryBy(both.witness, directory, at);
  return made;
}

Records::EntryChange Records::AddEntry(InodeId directory, std::string_view name, uint64_t slot,
                                       const Entry& entry, ChangeTerms terms) {
  EntryChange refused;
  const auto target = TargetOf(directory, name, slot, refused);
  if (!target) return refused;
  const RegisterName directory_name = NameOf(directory);
  if (target->name.group != directory_name.group) {
    return EntryChanged(directory, name, entry, *target,
                        Change(target->name, target->slot, entry.Encode(), terms));
  }
  const RegisterStore::Wanted wanted{
      target->name, {.slot = target->slot, .value = std::nullopt}, entry.Encode()};
  const bool is_safe = terms.durability == Durability::kWriteThrough;
  const auto begun = is_safe ? nullptr : unsynced_.Begin();
  const Time at = runtime().Now();
  auto [outcome, witness] = cluster_.registers().ChangeWitnessed(wanted, terms, directory_name);
  if (!is_safe && outcome.applied()) unsynced_.Add(begun, wanted.name, outcome.now);
  EntryChange change = EntryChanged(directory, name, entry, *target, std::move(outcome));
  change.directory = DirectoryBy(witness, directory, at);
  return change;
}

std::optional<StoredInode> Records::DirectoryBy(const std::optional<RegisterValue>& witness,
                                                InodeId directory, Time at) {
  if (!witness) return std::nullopt;
  return Learn(*witness, directory, at).value_or(std::nullopt);
}

Result<std::optional<StoredInode>> Records::FindInodePinned(InodeId id) {
  const Time at = runtime().Now();
  return Learn(cluster_.registers().ReadPinned(NameOf(id)), id, at);
}

Result<bool> Records::FenceNew(InodeId id) {
  for (const uint64_t slot : {0, 1}) {
    const InodeChange change =
        ChangeInode(id, slot, std::nullopt, {Durability::kWriteBack, Room::kFreeing});
    TRY(change.why);
    if (change.now) return false;
    if (change.applied() || !change.is_instead) break;
  }
  return true;
}

namespace {

const std::string kMoverKey = "X";

}  // namespace

Result<Records::LeftEntry> Records::FindLeftEntry(uint32_t group, InodeId directory,
                                                  std::string_view name) {
  if (TRY(FindInode(directory))) {
    StoredEntry stored = TRY(FindEntry(directory, name));
    return LeftEntry{std::move(stored), /*in_group=*/false};
  }
  const RegisterValue value =
      TRY_CONTEXT(cluster_.registers().Read(EntryPlaces::NameIn(group, directory, name)),
                  "entry '{}' of directory {:016x}", name, directory);
  LeftEntry left{{std::nullopt, value.slot}, /*in_group=*/true};
  if (value.value) left.entry.entry = TRY(Entry::Decode(*value.value));
  return left;
}

Records::EntryChange Records::RemoveLeftEntry(uint32_t group, InodeId directory,
                                              std::string_view name, uint64_t slot) {
  const Target target{EntryPlaces::NameIn(group, directory, name), slot, 0, std::nullopt};
  return EntryChanged(directory, name, std::nullopt, target,
                      Change(target.name, slot, std::nullopt, {}));
}

Result<Records::Mover> Records::FindMover() {
  const RegisterName name{cluster_.GroupOfObject(kRootInode), kMoverKey};
  return DecodeMover(TRY_CONTEXT(cluster_.registers().Read(name), "rename register"));
}

Records::MoverChange Records::ChangeMover(uint64_t slot, InodeId directory) {
  std::optional<std::string> value;
  if (directory != 0) value = Writer().U8(kMoverFormat).U64(directory).Take();
  const RegisterName name{cluster_.GroupOfObject(kRootInode), kMoverKey};
  const ChangeOutcome outcome =
      cluster_.registers().Change(name, {.slot = slot, .value = std::nullopt}, std::move(value));
  MoverChange change{{outcome.effect, outcome.why.Context("change the rename register")}, {}};
  if (outcome.applied()) {
    change.now = {directory, outcome.now.slot};
  } else if (outcome.why.ok()) {
    const auto there = DecodeMover(outcome.now);
    if (there.has_value()) {
      change.now = *there;
    } else {
      change.why = there.error();
    }
  }
  return change;
}

Result<Records::Page> Records::List(InodeId directory, std::string_view first, size_t max,
                                    RegisterHolding* mark, Listing listing) {
  Page page = TRY(listing == Listing::kAhead ? places_.ListAhead(directory, first, max)
                                             : places_.List(directory, first, max, mark));
  for (const ListedEntry& listed : page.entries) {
    hints_.Learn(directory, listed.name, listed.entry.inode);
  }
  return page;
}

}  // namespace pinstripe
