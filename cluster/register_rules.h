// The rules of registers as pure functions: from what replicas said to what is chosen, what may
// have been chosen, and which ballot to try next. docs/format.md, "Registers", states them; why
// they are safe:
//
//   - A state that a replica was in is a fact for ever: what it accepted it accepted, and below
//     what it promised it accepts nothing new. So states read at different times may be judged
//     together.
//   - Any two majorities meet. A fast quorum F of ceil(3r/4) and any two majorities have a replica
//     in common, so that of two values at most one can look as if a fast quorum had accepted it.
//   - Whoever proposes for slot s+1, or asks for promises in it, knows that slot s is chosen. So a
//     majority that has promised slot s+1 and accepted nothing in it shows what was chosen in s.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cluster/register_record.h"

namespace pinstripe {

struct Quorums {
  size_t replicas = 0;
  size_t majority = 0;  // that accept one classic ballot choose its value
  size_t fast = 0;      // that accept one value in the fast round of a slot choose it
};
Quorums QuorumsOf(size_t replicas);

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

struct Finding {
  std::optional<Chosen> chosen;
  bool more_may_help = false;  // states of further replicas could show that something is chosen
  bool quiet = false;          // all known replicas agree: nobody seems to be changing the register
};
Finding Judge(const Quorums& quorums, const ReplicaStates& states);

// What may have been chosen in `slot`, the highest in which any of `states` accepted something,
// where these are a majority that promised never to accept anything older than what is tried now.
// Null when nothing can have been chosen in it.
ProposalPtr MayBeChosen(const Quorums& quorums, const ReplicaStates& states, uint64_t slot);

// The value that most replicas accepted in `slot`. Null when there is none.
ProposalPtr MostAccepted(const ReplicaStates& states, uint64_t slot);

// A classic ballot above all that `states` promised, in the slot that has to be finished, or in
// `least_slot` if that is higher.
Ballot NextBallot(const ReplicaStates& states, uint64_t least_slot, uint64_t proposer);

// What a proposal that replaces `chosen` names as its predecessors.
std::vector<uint64_t> EarlierNonces(const Nonce& nonce, std::vector<uint64_t> earlier);

// Whether the change `nonce`, proposed for `slot`, is the one that was chosen there, as far as
// `chosen` can tell: null when that is too long ago.
std::optional<bool> WasChosen(const Chosen& chosen, uint64_t slot, const Nonce& nonce);

}  // namespace pinstripe
