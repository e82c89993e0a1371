// FileTurns: lets who writes a file pass who punches holes into it, one after the other, all the
// time. The kernel's lock of a file goes to whoever asks first when it is free, which is the
// puncher again; those who wait to write come to their turn only every few milliseconds, and every
// put of a drive stands still for seconds.
//
// Thread-safe.

#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace pinstripe {

class FileTurns {
 public:
  // Alive while the file is written.
  class Write {
   public:
    explicit Write(FileTurns& turns) : turns_(turns) {
      const MutexLock lock(turns_.mutex_);
      ++turns_.begun_;
    }
    ~Write() {
      bool wake;
      {
        const MutexLock lock(turns_.mutex_);
        ++turns_.ended_;
        wake = turns_.waiting_ > 0;
      }
      if (wake) turns_.write_ended_.WakeAll();
    }
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;

   private:
    FileTurns& turns_;
  };

  // Waits until as many writes have ended as are under way now. Those that begin later are not
  // waited for.
  void AwaitWrites() {
    const MutexLock lock(mutex_);
    const uint64_t begun = begun_;
    ++waiting_;
    while (ended_ < begun) write_ended_.Wait(lock);
    --waiting_;
  }

  // How many wait in AwaitWrites().
  int waiting() const {
    const MutexLock lock(mutex_);
    return waiting_;
  }

 private:
  mutable Mutex mutex_;
  Condition write_ended_;
  uint64_t begun_ GUARDED_BY(mutex_) = 0;  // writes
  uint64_t ended_ GUARDED_BY(mutex_) = 0;
  int waiting_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinstripe
