#include "upkeep/lost_inodes.h"

#include <algorithm>
#include <ranges>

#include "base/try.h"
#include "fs/files/beside_number.h"
#include "fs/files/block_map.h"

namespace pinstripe {
namespace {

constexpr uint64_t kFirstSlot = 1;

Result<InodeFound> FindFate(Records& records, InodeId id, const Records::InodeRegister& found) {
  if (found.stored) return InodeFound{InodeFate::kThere, {}};
  // What was there is removed in a later slot. In the first one somebody who wanted its name has
  // written a removal, or a collection, because it was not there.
  if (found.slot > kFirstSlot) return InodeFound{InodeFate::kRemoved, {}};
  const RegisterTraces traces = TRY(records.FindTraces(id));
  const bool has_later = traces.value && traces.slot > kFirstSlot;
  if (found.is_instead && !has_later && traces.answered > traces.replicas / 2) {
    return InodeFound{InodeFate::kGivenUp, {}};
  }
  if (traces.removed && traces.slot > kFirstSlot) return InodeFound{InodeFate::kRemoved, {}};
  if (traces.value) {
    // Somebody may just have been writing it.
    if (TRY(records.FindInode(id))) return InodeFound{InodeFate::kThere, {}};
    // A drive that is away may have a later one. But what was chosen later has been accepted by one
    // of any majority.
    const bool is_first = traces.slot == kFirstSlot && traces.answered > traces.replicas / 2;
    InodeFound lost{is_first ? InodeFate::kBegun : InodeFate::kLost, {}};
    const auto copy = Inode::Decode(*traces.value, id);
    if (copy.has_value()) lost.copy = *copy;
    return lost;
  }
  if (traces.answered < traces.replicas) {
    return Fail(EHOSTUNREACH, "inode {:016x}: {} of its {} drives answered, and any may have it",
                id, traces.answered, traces.replicas);
  }
  return InodeFound{InodeFate::kNoTrace, {}};
}

}  // namespace

bool LostInode::IsDirectory() const {
  const auto says_so = [](const EntryFact& entry) { return entry.kind == FileKind::kDirectory; };
  if (copy) return copy->kind == FileKind::kDirectory;
  return !contents.empty() || std::ranges::any_of(names, says_so);
}

bool LostInode::MayBeJustMade(const Inode& first, int64_t now) const {
  constexpr int64_t kDay = 86'400'000'000'000;
  if (first.kind == FileKind::kDirectory || names.size() > 1 || !contents.empty() || is_keeper) {
    return false;
  }
  if (now - first.changed > kDay || first.changed - now > kDay) return false;
  return names.empty() || first.named == GivenName{names[0].directory, names[0].name};
}

std::string LostInode::Text() const {
  std::string text = may_be_unfinished
                         ? fmt::format(
                               "whoever made or uploaded it died, or its inode is lost with its "
                               "name (inode {:016x})",
                               id)
                         : fmt::format("its inode is lost (inode {:016x})", id);
  if (copy) text += "; a copy is left, on too few drives to be believed";
  if (is_keeper) {
    text += "; it kept blocks that files share";
  } else if (IsDirectory()) {
    text += fmt::format("; it was a directory, and {} names in it are left", contents.size());
  } else if (shards > 0) {
    text += fmt::format("; {} bytes of the file are left, in {} shards", bytes, shards);
  }
  const bool can_come_back = !is_keeper && (IsDirectory() || shards > 0 || copy);
  return text + (can_come_back ? ": `pinstripe recover` brings it back" : "");
}

std::vector<Result<InodeFound>> FindFates(Records& records, std::span<const InodeId> ids) {
  std::vector<Result<InodeFound>> fates;
  const auto found = records.FindInodeRegisters(ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    fates.push_back(found[i].has_value() ? FindFate(records, ids[i], *found[i])
                                         : tl::unexpected(found[i].error()));
  }
  return fates;
}

uint64_t GuessBlockBytes(const StripeLayout& usual, std::span<const StripeStore::Form> forms) {
  const auto longest = std::ranges::max_element(forms, {}, &StripeStore::Form::length);
  if (longest == forms.end()) return usual.block_bytes();
  // Only a last block is shorter than the file's blocks are, or one that was the last.
  const bool may_be_usual =
      longest->layout.data_shards == usual.data_shards && longest->length <= usual.block_bytes();
  const bool is_full = longest->length == longest->layout.block_bytes();
  return may_be_usual && !is_full ? usual.block_bytes() : longest->layout.block_bytes();
}

uint64_t GuessSize(StripeStore& store, const StripeLayout& usual,
                   std::span<const ListedStripe> stripes) {
  const auto pages = std::ranges::find_if(
      stripes, [](const ListedStripe& stripe) { return PageNumber::Is(stripe.id.block); });
  stripes = stripes.first(static_cast<size_t>(pages - stripes.begin()));
  if (stripes.empty()) return 0;
  const auto block_of = [](const ListedStripe& stripe) { return BlockOfNumber(stripe.id.block); };
  const uint64_t last_block = block_of(*std::ranges::max_element(stripes, {}, block_of));
  uint64_t last_length = 0;
  std::vector<StripeStore::Form> forms;
  for (const ListedStripe& stripe : stripes) {
    const uint64_t block = block_of(stripe);
    if (block != block_of(stripes.front()) && block != last_block) continue;
    const auto form = store.Describe(stripe.id, stripe.copies);
    if (!form.has_value() || !*form) continue;
    forms.push_back(**form);
    if (block == last_block) last_length = std::max(last_length, (*form)->length);
  }
  if (last_block == 0) return last_length;
  const uint64_t block_bytes = GuessBlockBytes(usual, forms);
  if (last_block >= kMaxFileBytes / block_bytes) return kMaxFileBytes;
  return last_block * block_bytes + last_length;
}

}  // namespace pinstripe
