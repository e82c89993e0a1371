// Housekeeper: gives back a drive's space, and makes its old changes durable though nobody asks, as
// long as it exists. Each drive has one of its own, and that has a thread, so that a disk which
// hangs holds up no other.

#pragma once

#include <functional>

#include "base/background_thread.h"
#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

class Housekeeper {
 public:
  struct Work {
    std::function<Status()> flush;
    std::function<Result<bool>()> tidy;           // one piece of it; false: there is no more
    std::function<void(const Status&)> complain;  // of one of them that has failed
  };

  // How often it looks, and how many rounds a change may stay unflushed: what comes between two
  // rounds may be so when the process is killed, and then the next start has to verify it, which
  // counts at 1 GB/s.
  static constexpr Duration kInterval = std::chrono::milliseconds(250);
  static constexpr int kRoundsToFlush = 120;

  // What the work uses outlives it. Its end waits for what it does.
  Housekeeper(Runtime& runtime, Work work);

 private:
  void Run();
  Status Keep(bool flush);

  Runtime& runtime_;
  const Work work_;
  BackgroundThread thread_;  // the last member: until it has ended it uses all the others
};

}  // namespace pinstripe
