// Attempts: how often something is tried that others may foil, such as a change that is made only
// while what it rests on is as it was seen.
//
//   for (Attempts attempts; attempts.Next();) {
//     const Value seen = TRY(Read());
//     if (TRY(Change(seen, wanted))) return {};
//     attempts.Pause(runtime);           // where those who want the same would meet again
//   }
//   return Fail(EIO, "others changed it {} times in between", Attempts::kMost);
//
// So a caller waits for a bounded time, and of those who are at the same thing each comes through
// soon.

#pragma once

#include "base/runtime.h"

namespace pinstripe {

class Attempts {
 public:
  static constexpr int kMost = 100;  // where nobody says another number

  explicit Attempts(int most = kMost) : most_(most) {}

  // Begins with the next one. False: there have been as many as there may be.
  bool Next() {
    if (begun_ == most_) return false;
    ++begun_;
    return true;
  }

  bool IsFirst() const { return begun_ == 1; }

  // Waits a little, by chance and longer with each attempt.
  void Pause(Runtime& runtime) const;

 private:
  const int most_;
  int begun_ = 0;
};

}  // namespace pinstripe
