#include "tests/support/linearizability.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pinstripe {
namespace {

using Kind = RegisterOperation::Kind;

bool Equal(const RegisterValue& a, const RegisterValue& b) {
  return a.slot == b.slot && a.value == b.value;
}

// The state after `operation`, if it can have happened in `state`.
std::optional<RegisterValue> After(const RegisterValue& state, const RegisterOperation& operation) {
  const bool current = state.slot == operation.seen_slot;
  switch (operation.kind) {
    case Kind::kRead: return Equal(state, operation.result) ? std::optional(state) : std::nullopt;
    case Kind::kSawNothing: return !state.value.has_value() ? std::optional(state) : std::nullopt;
    case Kind::kRefused:
      return !current && Equal(state, operation.result) ? std::optional(state) : std::nullopt;
    case Kind::kApplied:
    case Kind::kUnknown:  // where it changes nothing it is as if it never happened
      return current ? std::optional(RegisterValue{state.slot + 1, operation.value}) : std::nullopt;
  }
  return std::nullopt;
}

class Search {
 public:
  explicit Search(const std::vector<RegisterOperation>& history)
      : history_(history), happened_(history.size(), false) {
    for (const auto& operation : history) left_ += operation.kind != Kind::kUnknown;
  }

  // Whether what has not happened yet can happen from `state` on.
  bool CanGoOn(const RegisterValue& state) {
    if (left_ == 0) return true;
    if (!been_.emplace(happened_, state.slot, state.value).second) return false;
    const uint64_t first_return = FirstReturn();
    for (size_t i = 0; i < history_.size() && history_[i].called < first_return; ++i) {
      if (happened_[i]) continue;
      const auto next = After(state, history_[i]);
      if (!next.has_value()) continue;
      const bool counts = history_[i].kind != Kind::kUnknown;
      happened_[i] = true;
      left_ -= counts;
      if (CanGoOn(*next)) return true;
      left_ += counts;
      happened_[i] = false;
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
  size_t left_ = 0;  // that did not happen and must
  std::set<std::tuple<std::vector<bool>, uint64_t, std::optional<std::string>>> been_;
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
