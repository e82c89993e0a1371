// The seam to the machine: time, timers, threads, waiting, chance.
//
// Nothing above base/ reads a clock, starts a thread, sleeps or draws a random number except
// through a Runtime. The price is one reference passed down; what it buys is SimRuntime
// (tests/support), under which a whole cluster with its clients runs deterministically from one
// seed.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace pinstripe {

using Duration = std::chrono::nanoseconds;

// The clock of one runtime: it says nothing about the calendar and never goes back.
struct RuntimeClock {
  using rep = int64_t;
  using period = std::nano;
  using duration = Duration;
  using time_point = std::chrono::time_point<RuntimeClock>;
  static constexpr bool is_steady = true;
};
using Time = RuntimeClock::time_point;

using Task = std::function<void()>;

// Wakes one waiting thread. A Set() with nobody waiting is kept for the next wait, so a wake-up is
// never lost; two Set()s before a wait count as one, so a waiter checks its condition again.
class Signal {
 public:
  virtual ~Signal() = default;

  virtual void Set() = 0;

  // True when set, false when the deadline came first. What this thread holds to be sent goes out
  // first (base/send_together.h).
  virtual bool WaitUntil(Time deadline) = 0;
};

// All functions may be called from any thread.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual Time Now() = 0;

  // How long this process has stood still so far, more than two seconds at a time: stopped by a
  // signal, on a machine that slept, or without a processor. See TimeLimit.
  virtual Duration TimeLost() { return {}; }

  // Nanoseconds since 1970, for the times that files carry. May jump.
  virtual int64_t WallClock() = 0;

  // Runs `task` at `when` or soon after, on a thread of the runtime and never inside this call.
  // Tasks are short and do not wait.
  virtual void RunAt(Time when, Task task) = 0;

  // Starts a thread that may wait. The runtime joins it before it is destroyed.
  virtual void Spawn(std::string name, Task body) = 0;

  virtual std::shared_ptr<Signal> NewSignal() = 0;

  // 64 bits that nobody can guess, or, in a simulation, that the seed decides.
  virtual uint64_t Random() = 0;
};

// The time at which something is given up. It does not come nearer while the process stands still:
// what was asked before that is not to fail for what nobody could do meanwhile. (How old an answer
// is, is another matter.)
class TimeLimit {
 public:
  TimeLimit(Runtime& runtime, Duration patience)
      : runtime_(runtime), time_(runtime.Now() + patience), lost_(runtime.TimeLost()) {}

  Time time() const { return time_ + std::max(Duration(), runtime_.TimeLost() - lost_); }
  bool has_passed() const { return runtime_.Now() >= time(); }

 private:
  Runtime& runtime_;
  Time time_;
  Duration lost_;
};

}  // namespace pinstripe
