#include "tests/support/linearizability.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pinstripe {
namespace {

using Kind = RegisterOperation::Kind;

uint64_t EpochOf(uint64_t slot) { return slot >> 32; }

struct State {
  uint64_t slot = 0;
  std::optional<std::string> value;
  uint64_t changed_in = 0;  // the slot in which it got the value
};

// Whether a register in slot `from` may be in `slot` by now, though nobody has changed it.
bool MayBeIn(uint64_t slot, uint64_t from) {
  if (slot == from) return true;
  const bool is_first = (slot & UINT32_MAX) <= 1;  // of its epoch, or the one before
  const bool was_before_first = from > 0 && (from & UINT32_MAX) == 0;
  return is_first && (EpochOf(slot) > EpochOf(from) || (was_before_first && slot == from + 1));
}

std::optional<State> Renumbered(const State& state, const RegisterValue& seen) {
  if (state.value != seen.value || !MayBeIn(seen.slot, state.slot)) return std::nullopt;
  return State{seen.slot, state.value, state.changed_in};
}

// The states after `operation`, if it can have happened in `state`. `epochs` are those of all slots
// in the history.
std::vector<State> After(const State& state, const RegisterOperation& operation,
                         const std::set<uint64_t>& epochs) {
  const auto none_or = [](std::optional<State> next) {
    return next ? std::vector{*std::move(next)} : std::vector<State>();
  };
  const uint64_t seen = operation.seen_slot;
  const bool as_if_never_written = seen == 0 && !state.value.has_value() && epochs.size() > 1;
  // It may have been proposed before others saw the register in a slot of a later epoch.
  const bool was_current = seen < state.slot && MayBeIn(seen, state.changed_in);
  const bool current = MayBeIn(seen, state.slot) || was_current || as_if_never_written;
  switch (operation.kind) {
    case Kind::kRead: return none_or(Renumbered(state, operation.result));
    case Kind::kSawNothing:
      return state.value.has_value() ? std::vector<State>() : std::vector{state};
    case Kind::kRefused:
      if (operation.result.slot == seen) return {};
      return none_or(Renumbered(state, operation.result));
    case Kind::kApplied:
    case Kind::kUnknown: break;  // where it changes nothing it is as if it never happened
  }
  if (!current) return {};
  std::set<uint64_t> slots;
  if (seen >= state.slot) slots.insert(seen + 1);
  if (was_current || as_if_never_written) slots.insert((EpochOf(state.slot) << 32) + 1);
  for (const uint64_t epoch : epochs) {
    if (epoch > EpochOf(std::max(seen, state.slot))) slots.insert((epoch << 32) + 1);
  }
  std::vector<State> next;
  for (const uint64_t slot : slots) {
    if (slot > state.slot) next.push_back({slot, operation.value, slot});
  }
  if (const uint64_t told = operation.result.slot; operation.kind == Kind::kApplied && told != 0) {
    std::erase_if(next, [&](const State& one) { return one.slot != told; });
  }
  return next;
}

class Search {
 public:
  explicit Search(const std::vector<RegisterOperation>& history)
      : history_(history), happened_(history.size(), false) {
    for (const auto& operation : history) {
      left_ += operation.kind != Kind::kUnknown;
      epochs_.insert(EpochOf(operation.result.slot));
      epochs_.insert(EpochOf(operation.seen_slot));
    }
  }

  // Whether what has not happened yet can happen from `state` on.
  bool CanGoOn(const State& state) {
    if (left_ == 0) return true;
    if (!been_.emplace(happened_, state.slot, state.changed_in, state.value).second) return false;
    const uint64_t first_return = FirstReturn();
    for (size_t i = 0; i < history_.size() && history_[i].called < first_return; ++i) {
      if (happened_[i]) continue;
      const bool counts = history_[i].kind != Kind::kUnknown;
      for (const State& next : After(state, history_[i], epochs_)) {
        happened_[i] = true;
        left_ -= counts;
        if (CanGoOn(next)) return true;
        left_ += counts;
        happened_[i] = false;
      }
    }
    return false;
  }

 private:
  // Nothing that was called after it can come before it.
  uint64_t FirstReturn() const {
    uint64_t first = std::numeric_limits<uint64_t>::max();
    for (size_t i = 0; i < history_.size(); ++i) {
      if (!happened_[i]) first = std::min(first, history_[i].returned);
    }
    return first;
  }

  const std::vector<RegisterOperation>& history_;  // in the order of the calls
  std::vector<bool> happened_;
  std::set<uint64_t> epochs_;
  size_t left_ = 0;  // that did not happen and must
  std::set<std::tuple<std::vector<bool>, uint64_t, uint64_t, std::optional<std::string>>> been_;
};

std::string Text(const std::optional<std::string>& value) {
  return value.has_value() ? "'" + *value + "'" : "nothing";
}

std::string Text(const RegisterOperation& operation) {
  const std::string change = fmt::format("{} -> {}", operation.seen_slot, Text(operation.value));
  const std::string result =
      fmt::format("{} {}", operation.result.slot, Text(operation.result.value));
  switch (operation.kind) {
    case Kind::kRead: return "read " + result;
    case Kind::kSawNothing: return "saw nothing";
    case Kind::kApplied: return "changed " + change;
    case Kind::kRefused: return "refused " + change + ": there was " + result;
    case Kind::kUnknown: return "perhaps changed " + change;
  }
  return "";
}

}  // namespace

std::string WhyNotLinearizable(std::vector<RegisterOperation> history) {
  std::sort(history.begin(), history.end(),
            [](const auto& a, const auto& b) { return a.called < b.called; });
  for (auto& operation : history) {
    if (operation.kind == Kind::kUnknown) {
      operation.returned = std::numeric_limits<uint64_t>::max();
    }
  }
  if (Search(history).CanGoOn({})) return "";
  std::string text = "no order explains this history (called..returned):\n";
  for (const auto& operation : history) {
    text +=
        fmt::format("  {}..{} {}: {}\n", operation.called,
                    operation.kind == Kind::kUnknown ? "" : fmt::format("{}", operation.returned),
                    operation.who, Text(operation));
  }
  return text;
}

}  // namespace pinstripe
