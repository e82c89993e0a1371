// Progress: one line on standard error that says how far something is, where somebody can see it.

#pragma once

#include <string_view>

#include "base/runtime.h"

namespace pinstripe {

// Used by one thread. Nothing is shown when standard error is no terminal.
class Progress {
 public:
  explicit Progress(Runtime& runtime);

  // `done` is 0..1. Cheap to call often: it draws a few times a second.
  void Show(std::string_view what, double done);

  // Takes the line away, before something else is printed.
  void Clear();

 private:
  Runtime& runtime_;
  const bool shown_;
  bool drawn_ = false;
  Time next_;
};

}  // namespace pinstripe
