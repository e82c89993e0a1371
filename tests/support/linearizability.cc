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

// Whether a register in slot `from` may be in `slot` by now, though nobody has changed its value.
bool MayBeIn(uint64_t slot, uint64_t from, bool absent) {
  if (slot == from) return true;
  if (!absent || slot < from) return false;
  // The first of its epoch or one beside that: it may be removed once more, by who refuses a
  // change, after the removal was taken over.
  const bool is_first = (slot & UINT32_MAX) <= 2;
  const bool was_before_first = from > 0 && (from & UINT32_MAX) == 0;
  return is_first && (EpochOf(slot) > EpochOf(from) || (was_before_first && slot <= from + 2));
}

std::optional<State> Renumbered(const State& state, const RegisterValue& seen) {
  const bool absent = !state.value.has_value();
  if (state.value != seen.value || !MayBeIn(seen.slot, state.slot, absent)) return std::nullopt;
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
  const bool absent = !state.value.has_value();
  // It may have been proposed before others saw the register in a slot of a later epoch.
  const bool was_current = seen < state.slot && MayBeIn(seen, state.changed_in, absent);
  const bool current = MayBeIn(seen, state.slot, absent) || was_current;
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
  // The first of an epoch, or the one after it, if something was taken over into the first.
  std::set<uint64_t> slots;
  const auto add_first_of = [&](uint64_t epoch) {
    if (!operation.value.has_value()) slots.insert(epoch << 32);  // it was removed before that
    slots.insert((epoch << 32) + 1);
    slots.insert((epoch << 32) + 2);
  };
  if (seen >= state.slot) slots.insert(seen + 1);
  const uint64_t epoch_now = EpochOf(std::max(seen, state.slot));
  if (was_current || (seen > 0 && (seen & UINT32_MAX) == 0)) add_first_of(epoch_now);
  for (const uint64_t epoch : epochs) {
    if (epoch > epoch_now) add_first_of(epoch);
  }
  std::vector<State> next;
  for (const uint64_t slot : slots) {
    if (slot > state.slot) next.push_back({slot, operation.value, slot});
  }
  // What was proposed in an earlier epoch is known by its slot there.
  if (was_current) next.push_back({seen + 1, operation.value, seen + 1});
  if (const uint64_t told = operation.result.slot; operation.kind == Kind::kApplied && told != 0) {
    std::erase_if(next, [&](const State& one) { return one.slot != told; });
  }
  return next;
}

class Search {
 public:
  explicit Search(std::vector<RegisterOperation> history)
      : history_(std::move(history)), happened_(history_.size(), false) {
    for (const auto& operation : history_) {
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

  const std::vector<RegisterOperation> history_;  // in the order of the calls
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
  // What comes later says nothing about why.
  size_t enough = 1;
  while (Search({history.begin(), history.begin() + static_cast<ptrdiff_t>(enough)}).CanGoOn({})) {
    ++enough;
  }
  history.resize(enough);
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
