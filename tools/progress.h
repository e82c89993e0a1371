// Progress: one line on standard error that says how far something is, where somebody can see it.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/runtime.h"

namespace pinstripe {

// Used by one thread. Nothing is shown when standard error is not a terminal.
class Progress {
 public:
  explicit Progress(Runtime& runtime);

  // `done` is 0..1; `bytes` were moved since this kind of work began, if it is about bytes: then
  // how fast it goes is shown, and how long it will take. Cheap to call often: it draws a few times
  // a second.
  void Show(std::string_view what, double done, uint64_t bytes = 0);

  // Takes the line away, before something else is printed.
  void Clear();

 private:
  Runtime& runtime_;
  const bool shown_;
  bool drawn_ = false;
  Time next_;
  std::string what_;  // being done since `started_`, when `bytes_before_` had been moved
  Time started_;
  uint64_t bytes_before_ = 0;
};

}  // namespace pinstripe
