// Checks whether a recorded history of one register is linearizable: whether there is an order of
// its operations, each at some moment between its call and its return, in which each answered what
// it had to. An operation whose outcome nobody knows may have happened at any time after its call,
// or never.
//
// The search is Wing and Gong's (1993), remembering where it has been as Lowe proposed (2017). Its
// time is exponential in how many operations overlap, not in how many there are.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cluster/registers/store.h"

namespace pinstripe {

struct RegisterOperation {
  enum class Kind {
    kRead,        // the value was `result`
    kSawNothing,  // it was absent
    kApplied,     // replaced `seen_slot` by `value`, in the slot of `result` if that is not 0
    kRefused,     // would have, but the value was `result`, in another slot
    kUnknown,     // may have replaced `seen_slot` by `value`
  };
  Kind kind = Kind::kRead;
  uint64_t called = 0;  // order of events; all different
  uint64_t returned = std::numeric_limits<uint64_t>::max();
  uint64_t seen_slot = 0;
  std::optional<std::string> value;
  RegisterValue result;
  std::string who;  // for the explanation
};

// Empty if the history is linearizable. Else it, in words. A register starts in slot 0, absent.
//
// Slots of 2^32 and more are of later epochs of the drive map. From one epoch to the next the slot
// of an absent register may rise, to the last before the first of the epoch or a little beyond.
std::string WhyNotLinearizable(std::vector<RegisterOperation> history);

}  // namespace pinstripe
