#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/byte_text.h"
#include "base/time_text.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;

// How often something is said.
Duration PauseOf(ProgressForm form) {
  switch (form) {
    case ProgressForm::kNone: break;
    case ProgressForm::kRedrawn: return milliseconds(250);
    case ProgressForm::kLines: return std::chrono::minutes(1);
    case ProgressForm::kJson: return std::chrono::seconds(1);
  }
  return Duration::max();
}

ProgressForm UsualForm() {
  return isatty(STDERR_FILENO) == 1 ? ProgressForm::kRedrawn : ProgressForm::kLines;
}

std::optional<ProgressForm>& Chosen() {
  static std::optional<ProgressForm> chosen;
  return chosen;
}

// Whoever starts a process in the background of a shell has it ignore these.
bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

nlohmann::ordered_json JsonOfDone(double done) {
  if (done == kProgressUnknown) return nullptr;
  return done;
}

}  // namespace

bool ChooseProgress(std::string_view name) {
  if (name == "auto") {
    Chosen().reset();
  } else if (name == "redrawn") {
    Chosen() = ProgressForm::kRedrawn;
  } else if (name == "lines") {
    Chosen() = ProgressForm::kLines;
  } else if (name == "json") {
    Chosen() = ProgressForm::kJson;
  } else if (name == "none") {
    Chosen() = ProgressForm::kNone;
  } else {
    return false;
  }
  return true;
}

ProgressForm ChosenProgress() { return Chosen().value_or(UsualForm()); }

Progress::Progress(Runtime& runtime, Options options)
    : runtime_(runtime), options_(std::move(options)) {
  // What ends within a minute needs no line in a log.
  if (options_.form == ProgressForm::kLines) next_ = runtime_.Now() + PauseOf(options_.form);
  if (options_.when_interrupted.empty()) return;
  for (const int signal : {SIGINT, SIGTERM}) {
    if (IsIgnored(signal)) continue;
    auto watch = SignalWatch::Start(signal, [this, signal] { EndBy(signal); });
    // Without one the process ends without a word.
    if (watch.has_value()) signals_.push_back(*std::move(watch));
  }
}

void Progress::Show(std::string_view what, double done, uint64_t bytes) {
  const Time now = runtime_.Now();
  State state;
  {
    const MutexLock lock(mutex_);
    if (state_.what != what) {
      state_.what = what;
      state_.started = now;
      state_.bytes_before = bytes;
      state_.done_before = done;
    }
    state_.done = done;
    state_.bytes = bytes;
    if (options_.form == ProgressForm::kNone || now < next_) return;
    state = state_;
  }
  next_ = now + PauseOf(options_.form);
  const std::string text = Text(state, now);
  if (options_.form == ProgressForm::kRedrawn) {
    fmt::print(options_.out, "\r\033[K{}", text);
    drawn_ = true;
  } else {
    fmt::print(options_.out, "{}\n", text);
  }
  std::fflush(options_.out);
}

std::string Progress::Text(const State& state, Time now) const {
  const double seconds = std::chrono::duration<double>(now - state.started).count();
  const bool has_rate = state.bytes > state.bytes_before && seconds > 1;
  const double rate =
      has_rate ? static_cast<double>(state.bytes - state.bytes_before) / seconds : 0;
  // Others may have done what was done before.
  const double ours = state.done - std::max(0.0, state.done_before);
  const double left = has_rate && ours > 0 ? seconds * (1 - state.done) / ours : 0;
  if (options_.form == ProgressForm::kJson) {
    nlohmann::ordered_json json{{"doing", state.what}, {"done", JsonOfDone(state.done)}};
    if (has_rate) {
      json["bytes"] = state.bytes - state.bytes_before;
      json["bytes_per_second"] = rate;
      if (state.done > 0) json["seconds_left"] = left;
    }
    return json.dump();
  }
  std::string text = state.what;
  if (state.done != kProgressUnknown) text += fmt::format(" {:.0f} %", 100 * state.done);
  if (has_rate) {
    text += fmt::format(", {}/s", BytesText(static_cast<uint64_t>(rate)));
    if (state.done > 0) text += fmt::format(", {} left", DurationText(left));
  }
  return text;
}

void Progress::Clear() {
  if (!drawn_) return;
  fmt::print(options_.out, "\r\033[K");
  std::fflush(options_.out);
  drawn_ = false;
}

std::string Progress::InterruptedText() const {
  const MutexLock lock(mutex_);
  if (options_.form == ProgressForm::kJson) {
    const nlohmann::ordered_json json{{"interrupted", options_.when_interrupted},
                                      {"doing", state_.what},
                                      {"done", JsonOfDone(state_.done)}};
    return json.dump() + "\n";
  }
  if (state_.what.empty()) return fmt::format("interrupted. {}\n", options_.when_interrupted);
  const std::string at =
      state_.done == kProgressUnknown ? "" : fmt::format(", at {:.0f} %", 100 * state_.done);
  return fmt::format("interrupted while {}{}. {}\n", state_.what, at, options_.when_interrupted);
}

// On the thread of the watch, while the work goes on.
void Progress::EndBy(int signal) {
  // The next one ends the process at once, should nobody read what is said here.
  std::signal(signal, SIG_DFL);
  const std::string_view line_end = options_.form == ProgressForm::kRedrawn ? "\n" : "";
  fmt::print(options_.out, "{}{}{}", line_end,
             options_.form == ProgressForm::kJson ? "" : "pinstripe: ", InterruptedText());
  std::fflush(options_.out);
  if (options_.on_interrupt != nullptr) options_.on_interrupt();
  std::raise(signal);  // whoever started us sees that it was the signal
}

}  // namespace pinstripe
