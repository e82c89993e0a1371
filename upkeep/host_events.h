// What a gateway, mount or console tells of: drives that it loses and has again, drives that it
// compared as they may have forgotten something, files that it wrote while drives were away, files
// that it made whole again, and damaged shards that it met.
//
// It looks every few seconds what this process knows of the drives anyway, and asks them nothing.
// Thread-safe. It has no thread: a timer of the runtime looks.

#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "cluster/cluster.h"
#include "upkeep/events.h"

namespace pinstripe {

// Tells which drives this process has compared, as they may have forgotten something, and has not
// told yet. How many events that takes. A command that ends soon has to Flush() them.
size_t TellOfComparisons(Cluster& cluster, EventLog& log);

class HostEvents {
 public:
  struct Options {
    Actor actor = ThisProcess();
    Duration every = std::chrono::seconds(5);
    // A drive that is back sooner was not away: its daemon was restarted.
    Duration settles_in = std::chrono::seconds(5);
    // One that has just come back is told to have gone only if it stays away for longer.
    Duration restless = std::chrono::minutes(1);
    // So often files are told of at most, and damage. But that some are written short is told at
    // once when none was for a while, and when that has ended, as long as it does not happen again
    // and again.
    Duration files_every = std::chrono::minutes(10);
    Duration quiet = std::chrono::seconds(30);
    int told_early = 6;  // times at most in an hour
    Duration spread = std::chrono::seconds(4);
  };

  explicit HostEvents(Cluster& cluster) : HostEvents(cluster, Options()) {}
  HostEvents(Cluster& cluster, Options options);
  ~HostEvents();

  void WrittenShort();  // a file, as not all of its drives were there
  void Mended();        // a file

 private:
  struct Watch;
  static void LookAgain(const std::shared_ptr<Watch>& watch);

  EventLog log_;
  const std::shared_ptr<Watch> watch_;
};

}  // namespace pinstripe
