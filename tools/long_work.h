// LongWork: what the long commands have in common. They say how far they are, on standard error and
// to the cluster (`pinstripe work`); they do what others ask of them meanwhile; and the events of
// the cluster tell of their beginning and end.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/cluster.h"
#include "tools/progress.h"
#include "upkeep/events.h"
#include "upkeep/work.h"

namespace pinstripe {

// Used by one thread, but for GoOn().
class LongWork {
 public:
  // `how_to_go_on`: what becomes of work that is interrupted or stopped, for people. With
  // `ends_itself`, a signal asks it to end, as `pinstripe work` does, and waits for Stopped() or
  // End(): for work that keeps how far it is.
  LongWork(Cluster& cluster, RunningWorkOptions what, std::string how_to_go_on,
           bool ends_itself = false);
  ~LongWork();  // as one that failed, unless it was told how it ended

  void Show(std::string_view doing, double done, uint64_t bytes = 0);
  bool GoOn() { return work_.GoOn(); }
  RunningWork& work() { return work_; }
  EventLog& events() { return events_; }
  void Say(const std::string& line);
  void Clear() { progress_.Clear(); }

  // If somebody has stopped it: says so, and how to go on, and answers the exit code.
  std::optional<int> Stopped();

  // Tells how it ended. The answer: `exit_code`.
  int End(int exit_code, const std::string& text = "");
  // The same for one that failed.
  Status End(Status failure);

 private:
  struct Interruption;
  RunningWorkOptions Interruptible(RunningWorkOptions what) const;
  void Finish(WorkResult result, const std::string& text);

  const std::string how_to_go_on_;
  const std::shared_ptr<Interruption> interruption_;  // null: a signal ends it where it is
  EventLog events_;
  RunningWork work_;
  Progress progress_;  // the last member: a signal ends the others
};

}  // namespace pinstripe
