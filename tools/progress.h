// Progress: says on standard error how far something is, and how to go on when it is interrupted.

#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/signal_watch.h"

namespace pinstripe {

enum class ProgressForm {
  kNone,
  kRedrawn,  // one line that is drawn again and again, on a terminal
  kLines,    // a line a minute, as a log wants it
  kJson,     // an object a second, each on its line
};

// What the process was told to use (`pinstripe --progress`): "redrawn", "lines", "json", "none", or
// "auto", which is redrawn on a terminal and lines elsewhere. False: it is none of these.
bool ChooseProgress(std::string_view name);
ProgressForm ChosenProgress();

// Instead of how far something is, where nobody knows how much there is.
inline constexpr double kProgressUnknown = -1;

// Used by one thread. SIGINT and SIGTERM end the process as ever; what is left is said before.
class Progress {
 public:
  struct Options {
    // For somebody who interrupts it: what has become of the work, and how to go on. Empty: nothing
    // is said.
    std::string when_interrupted;
    // Called then, on another thread, after that was said and before the signal ends the process. A
    // second signal ends it at once.
    std::function<void()> on_interrupt;
    ProgressForm form = ChosenProgress();
    std::FILE* out = stderr;
  };

  explicit Progress(Runtime& runtime) : Progress(runtime, Options()) {}
  Progress(Runtime& runtime, Options options);

  // `done` is 0..1, or kProgressUnknown; `bytes` were moved since this kind of work began, if it is
  // about bytes: then how fast it goes is shown, and how long it will take. Cheap to call often: it
  // says something only as often as its form wants it.
  void Show(std::string_view what, double done, uint64_t bytes = 0);

  // Takes the line away, before something else is printed.
  void Clear();

  // What is said when the work is interrupted now: lines, with their ends.
  std::string InterruptedText() const;

 private:
  struct State {
    std::string what;  // being done since `started`, when `bytes_before` had been moved
    double done = 0;
    uint64_t bytes = 0;
    Time started{};
    uint64_t bytes_before = 0;
    double done_before = 0;
  };
  std::string Text(const State& state, Time now) const;
  void EndBy(int signal);

  Runtime& runtime_;
  const Options options_;
  bool drawn_ = false;
  Time next_;
  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<SignalWatch>> signals_;
};

}  // namespace pinstripe
