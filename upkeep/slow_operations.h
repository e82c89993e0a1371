// SlowOperations: what took long for a gateway or mount. The log tells of each, with what it waited
// for, and so do a few of the drives, so that `pinstripe slow` finds it on any host, also when this
// process is gone. Nobody waits for the drives to hear of it: a timer tells them, at most once a
// second, of the slowest since then.
//
//   SlowOperations slow(cluster, std::chrono::seconds(1));
//   const OperationTrace trace;
//   ...                                              // the operation
//   if (slow.IsSlow(took)) slow.Add(trace, "read", "inode 9", took);
//
// Thread-safe.

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/operation_trace.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "drive/slow_operation.h"

namespace pinstripe {

class SlowOperations {
 public:
  static constexpr Duration kUsually = std::chrono::seconds(1);

  // From when on something is slow, as an option says it: a number of seconds, at most a day.
  static Result<Duration> ParseAfter(std::string_view seconds);

  // What takes `after` or longer is slow; 0: nothing is. `cluster` outlives this.
  SlowOperations(Cluster& cluster, Duration after);
  ~SlowOperations();

  bool IsSlow(Duration took) const { return took >= after_ && after_ > Duration(); }

  // An operation on `subject` has ended after `took`. Called by its thread.
  void Add(const OperationTrace& trace, std::string_view operation, std::string_view subject,
           Duration took);

 private:
  struct Teller;
  Cluster& cluster_;
  const Duration after_;
  const std::shared_ptr<Teller> teller_;
};

}  // namespace pinstripe
