// The rules of registers as pure functions: how many replicas choose (a majority, or ceil(3r/4) in
// a fast round), what is chosen, what may have been chosen, and which ballot to try next.
// docs/format.md, "Registers", states them; why they are safe:
//
//   - A state that a replica was in is a fact for ever: what it accepted it accepted, and below
//     what it promised it accepts nothing new. So states read at different times may be judged
//     together.
//   - Any two majorities meet. A fast quorum F of ceil(3r/4) and any two majorities have a replica
//     in common, so that of two values at most one can look as if a fast quorum had accepted it.
//   - Whoever proposes for slot s+1, or asks for promises in it, knows that slot s is chosen. So a
//     majority that has promised slot s+1 and accepted nothing in it shows what was chosen in s.
//   - Of a register that may be erased and used again, each epoch of the drive map has slots of its
//     own, behind all of the epochs before it, and in it nobody proposes for others. Who proposes
//     for the first knows from a majority that has shut out the epochs before what is chosen in
//     them. If that cannot be known, a classic round in the first slot takes over what may be. So
//     all that go on from there want the same slot, those who find that a removed register was
//     erased and those who find what it left.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/registers/record.h"

namespace pinstripe {

struct Quorums {
  size_t replicas = 0;
  size_t majority = 0;  // that accept one classic ballot choose its value
  size_t fast = 0;      // that accept one value in the fast round of a slot choose it
};
Quorums QuorumsOf(size_t replicas);

// The slot before the first of the epoch that has this cluster version (null: there are no epochs).
// A register changes less than 2^32 times in an epoch.
uint64_t SlotFloor(std::optional<int64_t> cluster_version);

// One per replica; null where it is not known.
using ReplicaStates = std::vector<std::optional<ReplicaState>>;

size_t CountKnown(const ReplicaStates& states);

// A value known to be chosen, in the highest slot that can have been chosen before the states were
// asked for.
struct Chosen {
  uint64_t slot = 0;
  Ballot ballot;  // one in which it was accepted
  ProposalPtr proposal;
};

// The slot by which the users of a register know what is chosen. All that is absent, never written
// or removed, in an earlier epoch is in one and the same slot: it does not matter whether what it
// left was erased. A value that was taken over from an earlier epoch stays in its slot.
uint64_t VisibleSlot(const Chosen& chosen, uint64_t floor);

// `proposal`, which was accepted in `former_slot`, to be accepted in `slot` of a later epoch.
ProposalPtr TakenOver(const ProposalPtr& proposal, uint64_t former_slot, uint64_t slot);

struct Finding {
  std::optional<Chosen> chosen;
  bool more_may_help = false;  // states of further replicas could show that something is chosen
  bool quiet = false;          // all known replicas agree: nobody seems to be changing the register
};
Finding Judge(const Quorums& quorums, const ReplicaStates& states);

// The highest slot in which any of `states` accepted something; 0: none did.
uint64_t HighestAcceptedSlot(const ReplicaStates& states);

// What may have been chosen in `slot`, the highest in which any of `states` accepted something,
// where these are a majority that promised never to accept anything older than what is tried now.
// Null when nothing can have been chosen in it.
ProposalPtr MayBeChosen(const Quorums& quorums, const ReplicaStates& states, uint64_t slot);

// The value that most replicas accepted in `slot`, where nothing was chosen. If it is bound, and
// too few took it with its companions, what is to be there instead. Null when there is none.
ProposalPtr MostAccepted(const ReplicaStates& states, uint64_t slot);

// Whether it is bound, and so few of `states` took it in the fast round of the slot that they may
// be all that have its companions. Then whoever takes it over would make chosen what is of no use.
bool LacksCompanions(const ReplicaStates& states, uint64_t slot, const Proposal& proposal);

// What its register gets instead of a bound proposal. The same for all who ask.
ProposalPtr InsteadOf(const Proposal& bound);

// A classic ballot above all that `states` promised, in the slot that has to be finished, or in
// `least_slot` if that is higher, as is the first one of the epoch.
Ballot NextBallot(const ReplicaStates& states, uint64_t least_slot, uint64_t proposer);

// What a proposal that replaces `chosen` names as its predecessors.
std::vector<uint64_t> EarlierNonces(const Nonce& nonce, std::vector<uint64_t> earlier);

// Whether the change `own`, proposed for `slot`, was chosen, there or in the first slot of a later
// epoch, as far as what is chosen can tell: null when that is too long ago.
std::optional<bool> WasChosen(const Chosen& chosen, uint64_t slot, const Proposal& own);

// The same from what was proposed by somebody for a later slot, and need not be chosen: only what
// it names as its predecessors counts.
std::optional<bool> WasChosenBefore(const Proposal& later, uint64_t later_slot, uint64_t slot,
                                    const Proposal& own);

}  // namespace pinstripe
