#include "cluster/registers/rules.h"

#include <algorithm>
#include <utility>

namespace pinstripe {
namespace {

// Replicas that accepted the same value in the same ballot.
struct Party {
  Ballot ballot;
  ProposalPtr proposal;
  size_t size = 0;
};

// The parties of those that accepted something in `slot`, in the order of the replicas.
std::vector<Party> PartiesIn(const ReplicaStates& states, uint64_t slot) {
  std::vector<Party> parties;
  for (const auto& state : states) {
    if (!state.has_value() || state->accepted.slot != slot) continue;
    const auto same = std::find_if(parties.begin(), parties.end(), [&](const Party& party) {
      return party.ballot == state->accepted && party.proposal->nonce == state->proposal->nonce;
    });
    if (same != parties.end()) {
      ++same->size;
    } else {
      parties.push_back({state->accepted, state->proposal, 1});
    }
  }
  return parties;
}

// Null if there is none.
const Party* HighestClassic(const std::vector<Party>& parties) {
  const Party* highest = nullptr;
  for (const Party& party : parties) {
    if (!party.ballot.fast() && (highest == nullptr || highest->ballot < party.ballot)) {
      highest = &party;
    }
  }
  return highest;
}

const Party* MayBeChosenOf(const Quorums& quorums, const std::vector<Party>& parties,
                           size_t known) {
  if (const Party* classic = HighestClassic(parties)) return classic;
  const size_t unknown = quorums.replicas - known;
  for (const Party& party : parties) {
    if (party.size + unknown >= quorums.fast) return &party;
  }
  return nullptr;
}

const Party* Largest(const std::vector<Party>& parties) {
  const auto largest =
      std::max_element(parties.begin(), parties.end(),
                       [](const Party& a, const Party& b) { return a.size < b.size; });
  return largest == parties.end() ? nullptr : &*largest;
}

constexpr int kSlotBits = 32;  // of a slot, that number those of one epoch

// Only for slots that are not 0.
bool InOneEpoch(uint64_t a, uint64_t b) { return (a - 1) >> kSlotBits == (b - 1) >> kSlotBits; }

// The replicas that will accept nothing more in `slot`, because they promised a later one to
// somebody who knew what was chosen in it. Promises for slots of later epochs are asked for by
// those who do not know, too.
ReplicaStates Beyond(const ReplicaStates& states, uint64_t slot) {
  ReplicaStates beyond = states;
  for (auto& state : beyond) {
    if (!state.has_value()) continue;
    const uint64_t promised = state->promised.slot;
    if (promised <= slot || !InOneEpoch(promised, slot)) state.reset();
  }
  return beyond;
}

Chosen ChosenOf(const Party& party) { return {party.ballot.slot, party.ballot, party.proposal}; }

size_t QuorumFor(const Quorums& quorums, const Ballot& ballot) {
  return ballot.fast() ? quorums.fast : quorums.majority;
}

// The value of a slot that is known to be chosen because a majority promised a later one.
std::optional<Chosen> ChosenBehind(const Quorums& quorums, const ReplicaStates& states,
                                   uint64_t slot) {
  const ReplicaStates beyond = Beyond(states, slot);
  const size_t count = CountKnown(beyond);
  if (count < quorums.majority) return std::nullopt;
  const std::vector<Party> parties = PartiesIn(beyond, slot);
  if (const Party* party = MayBeChosenOf(quorums, parties, count)) return ChosenOf(*party);
  // Only replicas that forgot what they had accepted (they all lost power before it was persistent)
  // look like this. The value that most of them kept is as good as any.
  return ChosenOf(*Largest(PartiesIn(states, slot)));
}

}  // namespace

Quorums QuorumsOf(size_t replicas) {
  return {.replicas = replicas, .majority = replicas / 2 + 1, .fast = (3 * replicas + 3) / 4};
}

uint64_t SlotFloor(std::optional<int64_t> cluster_version) {
  const int64_t version = cluster_version.value_or(0);
  return version <= 0 ? 0 : static_cast<uint64_t>(version) << kSlotBits;
}

uint64_t VisibleSlot(const Chosen& chosen, uint64_t floor) {
  const Proposal& proposal = *chosen.proposal;
  const uint64_t slot = proposal.former_slot != 0 ? proposal.former_slot : chosen.slot;
  return proposal.value.has_value() ? slot : std::max(slot, floor);
}

ProposalPtr TakenOver(const ProposalPtr& proposal, uint64_t former_slot, uint64_t slot) {
  if (former_slot == slot || proposal->former_slot != 0) return proposal;
  Proposal taken_over = *proposal;
  taken_over.former_slot = former_slot;
  return std::make_shared<const Proposal>(std::move(taken_over));
}

uint64_t HighestAcceptedSlot(const ReplicaStates& states) {
  uint64_t slot = 0;
  for (const auto& state : states) {
    if (state.has_value()) slot = std::max(slot, state->accepted.slot);
  }
  return slot;
}

size_t CountKnown(const ReplicaStates& states) {
  return static_cast<size_t>(std::count_if(states.begin(), states.end(),
                                           [](const auto& state) { return state.has_value(); }));
}

Finding Judge(const Quorums& quorums, const ReplicaStates& states) {
  const size_t known = CountKnown(states);
  if (known < quorums.majority) return {.more_may_help = true};
  const uint64_t slot = HighestAcceptedSlot(states);
  if (slot == 0) return {.chosen = Chosen{.proposal = NeverWritten()}, .quiet = true};

  const std::vector<Party> parties = PartiesIn(states, slot);
  Finding finding;
  finding.quiet = parties.size() == 1 && parties.front().size == known;
  for (const Party& party : parties) {
    const size_t quorum = QuorumFor(quorums, party.ballot);
    if (party.size >= quorum) finding.chosen = ChosenOf(party);
    if (party.size + (quorums.replicas - known) >= quorum) finding.more_may_help = true;
  }
  if (!finding.chosen.has_value()) finding.chosen = ChosenBehind(quorums, states, slot);
  return finding;
}

ProposalPtr MayBeChosen(const Quorums& quorums, const ReplicaStates& states, uint64_t slot) {
  const std::vector<Party> parties = PartiesIn(states, slot);
  const Party* party = MayBeChosenOf(quorums, parties, CountKnown(states));
  return party == nullptr ? nullptr : party->proposal;
}

ProposalPtr MostAccepted(const ReplicaStates& states, uint64_t slot) {
  const std::vector<Party> parties = PartiesIn(states, slot);
  const Party* largest = Largest(parties);
  if (largest == nullptr) return nullptr;
  const ProposalPtr& proposal = largest->proposal;
  return LacksCompanions(states, slot, *proposal) ? InsteadOf(*proposal) : proposal;
}

bool LacksCompanions(const ReplicaStates& states, uint64_t slot, const Proposal& proposal) {
  if (!proposal.bound) return false;
  size_t votes = 0;
  for (const auto& state : states) {
    if (!state || state->accepted.slot != slot || state->proposal->nonce != proposal.nonce)
      continue;
    // Who proposed it in a classic round knew of enough.
    if (!state->accepted.fast()) return false;
    ++votes;
  }
  return votes < proposal.bound->least;
}

ProposalPtr InsteadOf(const Proposal& bound) {
  // Everybody makes the same of it. Its own name tells its proposer that his value is not there.
  constexpr uint64_t kInstead = 0x4f7d3a1b96c8e25d;
  return std::make_shared<const Proposal>(
      Proposal{.nonce = {bound.nonce.high ^ kInstead, bound.nonce.low},
               .earlier = bound.earlier,
               .value = bound.bound->otherwise,
               .removed_at = bound.bound->otherwise ? 0 : bound.bound->proposed_at,
               .former_slot = bound.former_slot,
               .bound = std::nullopt,
               .is_instead = true});
}

Ballot NextBallot(const ReplicaStates& states, uint64_t least_slot, uint64_t proposer) {
  Ballot highest{.slot = least_slot};
  for (const auto& state : states) {
    if (state.has_value()) highest = std::max(highest, state->promised);
  }
  return {.slot = highest.slot, .round = highest.round + 1, .proposer = proposer};
}

std::vector<uint64_t> EarlierNonces(const Nonce& nonce, std::vector<uint64_t> earlier) {
  earlier.insert(earlier.begin(), nonce.high);
  if (earlier.size() > kEarlierNonces) earlier.erase(earlier.end() - 2);
  return earlier;
}

std::optional<bool> WasChosenBefore(const Proposal& later, uint64_t later_slot, uint64_t slot,
                                    const Proposal& own) {
  const std::vector<uint64_t>& earlier = later.earlier;
  const auto own_place = std::find(earlier.begin(), earlier.end(), own.nonce.high);
  if (own_place != earlier.end()) return true;
  if (InOneEpoch(later_slot, slot)) {
    const uint64_t back = later_slot - slot - 1;
    if (back < std::min(earlier.size(), kRecentNonces)) return false;
    if (slot == 1 && !earlier.empty()) return false;
    return std::nullopt;
  }
  // It would have been the first of all.
  const bool all_told = earlier.size() < kEarlierNonces;
  if (own.earlier.empty() && all_told && !earlier.empty()) return false;
  if (own.earlier.empty()) return std::nullopt;
  // Another change came after the one that it would have replaced.
  const auto replaced = std::find(earlier.begin(), earlier.end(), own.earlier.front());
  const bool is_recent = replaced - earlier.begin() < static_cast<ptrdiff_t>(kRecentNonces);
  if (replaced != earlier.end() && replaced != earlier.begin() && is_recent) return false;
  return std::nullopt;
}

std::optional<bool> WasChosen(const Chosen& chosen, uint64_t slot, const Proposal& own) {
  if (chosen.slot < slot) return false;
  if (chosen.proposal->nonce == own.nonce) return true;
  if (chosen.slot == slot) return false;
  const auto before = WasChosenBefore(*chosen.proposal, chosen.slot, slot, own);
  if (before.has_value()) return before;
  const std::vector<uint64_t>& earlier = chosen.proposal->earlier;
  if (own.earlier.empty()) return earlier.empty() ? std::optional(false) : std::nullopt;
  // The value that it would have replaced is still there, or was replaced by this.
  const uint64_t replaced = own.earlier.front();
  if (chosen.proposal->nonce.high == replaced) return false;
  if (!earlier.empty() && earlier.front() == replaced) return false;
  return std::nullopt;
}

}  // namespace pinstripe
