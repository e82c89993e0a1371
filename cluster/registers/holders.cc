// The part of RegisterCall that finds out which replicas hold what, for whoever must know that they
// held it before or after something else: ChangeBoth() with a witness, ScanAfter(), ReadPinned().

#include "base/try.h"
#include "cluster/registers/call.h"

namespace pinstripe {

std::optional<Chosen> RegisterCall::Witness(Round& round) {
  // A device that does not tell with the put's answer is asked after it.
  const Time until = context_.runtime.Now() + context_.options.straggler;
  for (size_t told = 0; told < round.taken_by.size();) {
    auto answer = round.told.Next(until);
    if (answer == nullptr) break;
    if (!round.taken_by.contains(answer->index)) continue;
    Learn(answer->index, round.start, std::move(answer->value));
    ++told;
  }
  if (!StatesCount() || !KnowsEnough()) return std::nullopt;
  return Judge().chosen;
}

bool RegisterCall::AgreesWith(const GroupReplicas& some) const {
  size_t known = 0;
  for (size_t i = 0; i < states_.size(); ++i) {
    known += states_[i].has_value() && some.drives[i] != nullptr;
  }
  return known >= quorums_.majority && KnowsEnough();
}

Result<Chosen> RegisterCall::Pin() {
  RegisterCall* const self = this;
  for (int attempt = 0;; ++attempt) {
    if (attempt > 0 || stale_ || !StatesCount()) ForgetStates();
    ReadUnknown(context_, {&self, 1}, /*catch_up=*/false);
    if (CountKnown(states_) >= quorums_.majority) {
      const auto settled = ClassicRound(nullptr, SlotAfter(0), /*insist=*/false);
      if (settled.has_value()) return settled->chosen;
    }
    const bool outdated = outdated_ && CountKnown(states_) < quorums_.majority;
    if (outdated || DrivesAreFull() || IsWaitingInVain() || !BackOff(attempt)) {
      return tl::unexpected(Error());
    }
  }
}

std::vector<const Drive*> RegisterCall::HoldersOf(const Chosen& chosen) const {
  std::vector<const Drive*> holders;
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto& state = states_[i];
    const bool holds = state.has_value() && state->accepted.slot == chosen.slot &&
                       chosen.slot > 0 && state->proposal->nonce == chosen.proposal->nonce;
    if (holds) holders.push_back(drives_[i]);
  }
  return holders;
}

// Others may have promised something later to somebody who died. Then they are not brought up to
// date: whoever changes the register does so.
Result<std::vector<const Drive*>> RegisterCall::FindHolders(uint64_t slot) {
  constexpr int kTries = 5;
  for (int attempt = 0;; ++attempt) {
    const Settled settled = TRY(Settle(nullptr));
    if (settled.chosen.slot != slot) {
      return Fail(ESTALE, "{}: it is in slot {}, not {}", Title(), settled.chosen.slot, slot);
    }
    std::vector<const Drive*> holders = HoldersOf(settled.chosen);
    if (holders.size() >= quorums_.majority) return holders;
    if (attempt + 1 == kTries) {
      return Fail(ESTALE, "{}: {} of {} replicas needed, {} are in slot {}", Title(),
                  quorums_.majority, quorums_.replicas, holders.size(), slot);
    }
    if (!BackOff(attempt)) return tl::unexpected(Error());
    ForgetStates();
  }
}

}  // namespace pinstripe
