// RespTurns: who may execute a command of the Redis protocol on a device now: many beside each
// other, or one alone. No thread waits for its turn: who cannot have it at once is told when he has
// it. In between come those who asked before: all who wait beside each other, then one who wants to
// be alone, and so on.
//
// Thread-safe.

#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"

namespace pinstripe {

class RespTurns {
 public:
  enum class Kind { kNone, kBeside, kAlone };  // kNone needs none

  // True: he has it, until Leave(). False: `granted` is called when he has it, once, inside
  // somebody's Leave(), so that it must not wait.
  bool Enter(Kind kind, Task granted);
  // For a thread that may wait.
  void EnterAndWait(Kind kind);
  void Leave(Kind kind);

  // Beside others, if that is possible at once.
  class Quick {
   public:
    explicit Quick(RespTurns& turns) : turns_(turns), inside_(turns.EnterAtOnce()) {}
    ~Quick() {
      if (inside_) turns_.Leave(Kind::kBeside);
    }
    Quick(const Quick&) = delete;
    Quick& operator=(const Quick&) = delete;
    bool inside() const { return inside_; }

   private:
    RespTurns& turns_;
    const bool inside_;
  };

 private:
  bool EnterAtOnce();
  bool MayEnter(Kind kind) const REQUIRES(mutex_);

  Mutex mutex_;
  size_t beside_ GUARDED_BY(mutex_) = 0;  // inside
  bool alone_ GUARDED_BY(mutex_) = false;
  std::vector<Task> waiting_beside_ GUARDED_BY(mutex_);
  std::deque<Task> waiting_alone_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
