// The record of one replica of a register: the ballot that it promised, the one that it accepted,
// and the value that it accepted. And how that is written on its drive.
// docs/format.md, "Registers", has the bytes.

#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

// Names an attempt to get a value chosen. Ordered by slot, then round, then proposer.
struct Ballot {
  uint64_t slot = 0;
  uint32_t round = 0;     // 0: the fast round, which all proposers share
  uint64_t proposer = 0;  // of a classic round: random, so that no two attempts are equal

  static Ballot Fast(uint64_t slot) { return {slot, 0, 0}; }
  bool fast() const { return round == 0; }
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

// 16 random bytes that name a change.
struct Nonce {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const Nonce&, const Nonce&) = default;
};

// How many of its predecessors a value names: those right before it, and the first of all.
inline constexpr size_t kRecentNonces = 16;
inline constexpr size_t kEarlierNonces = kRecentNonces + 1;

// What a value that came with companions says of itself (RegisterStore::Companions): records of
// the same drives, of which each replica had its own before it took the value in the fast round.
struct Bound {
  // With fewer companions the value is of no use, and its register gets another one instead.
  uint8_t least = 1;
  std::optional<std::string> otherwise;  // that one; null: it is removed
  int64_t proposed_at = 0;               // Runtime::WallClock(); of the removal
  friend bool operator==(const Bound&, const Bound&) = default;
};

// A value as a change proposed it. Immutable, and shared by all who speak of it.
struct Proposal {
  Nonce nonce;
  // The first halves of the nonces chosen in the slots before, newest first; where those do not all
  // fit, the last is that of slot 1. By them a change whose answers were lost finds out that it was
  // applied although others came after it.
  std::vector<uint64_t> earlier;
  std::optional<std::string> value;  // null: absent
  int64_t removed_at = 0;  // of an absent one: Runtime::WallClock() of who removed it; 0: not known
  // If it was taken over from an earlier epoch: the slot for which it was proposed, by which users
  // go on knowing it. 0: the slot in which it is accepted.
  uint64_t former_slot = 0;
  std::optional<Bound> bound = std::nullopt;  // of one with a value
  bool is_instead = false;                    // of a bound one
};
using ProposalPtr = std::shared_ptr<const Proposal>;

// Nothing is chosen in slot 0.
const ProposalPtr& NeverWritten();

struct ReplicaState {
  Ballot promised;
  Ballot accepted;
  ProposalPtr proposal = NeverWritten();
};

// The version of a record, empty for a replica that was never written.
std::string EncodeRegisterVersion(const Ballot& promised, const Ballot& accepted);

// The versioned put that brings a replica from the state `expected` into the state `next`. A put
// that finishes something, or brings a replica up to date, may take all the room there is.
Drive::PutRequest EncodeRegisterPut(const std::string& key, std::string expected,
                                    const ReplicaState& next, Durability durability,
                                    Room room = Room::kFreeing);

// EBADMSG when anything about the record is not as it was written: tag, version, key, format.
Result<ReplicaState> DecodeRegister(std::string_view key, const Record& record);

}  // namespace pinstripe
