// LongOperation: work that may take minutes, done piece by piece beside the requests that others
// wait for: scans, compactions, pushes to peers.

#pragma once

#include <atomic>
#include <memory>

#include "base/runtime.h"

namespace pinstripe {

// How it hears from outside that it must end: its time has run out, or nobody wants its result any
// more, because the device stops or because whoever asked has gone. Thread-safe.
class Cancellation {
 public:
  explicit Cancellation(Runtime& runtime) : signal_(runtime.NewSignal()) {}

  // Its time has run out: what it has so far is its answer.
  void Expire() {
    ended_ = true;
    signal_->Set();
  }
  void Cancel() {
    cancelled_ = true;
    Expire();
  }
  bool cancelled() const { return cancelled_; }
  // Either of both.
  bool ended() const { return ended_; }
  std::atomic<bool>& ended_flag() { return ended_; }

  // For the operation's thread alone to wait for: set when it must end, and by whoever else the
  // operation gives it to. So a wait may end early, and looks at its condition again.
  const std::shared_ptr<Signal>& signal() const { return signal_; }

 private:
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> ended_ = false;
  const std::shared_ptr<Signal> signal_;
};

class LongOperation {
 public:
  virtual ~LongOperation() = default;

  // Works until about `until`, or until it must end. True: it has ended, and its answer is
  // complete. On one thread at a time.
  virtual bool Work(Time until, Cancellation& cancellation) = 0;
};

}  // namespace pinstripe
