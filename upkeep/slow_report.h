// What took long in a cluster, and why: what its drives tell, joined. Operations of gateways and
// mounts, each with the requests for which it waited and what the drives say of these; then the
// slow requests of drives that belong to no such operation. Also when the cluster cannot be opened.
//
//   const ClusterSlow slow = AskSlow(runtime, config);
//   for (const SlowEntry& entry : JoinSlow(slow, {.since = since})) ...

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "kinetic/drive_slow.h"

namespace pinstripe {

// What the drives said at one time.
struct ClusterSlow {
  struct OfDrive {
    DriveId id = 0;
    std::string address;
    Result<DriveSlow> slow;  // or why it does not tell
  };
  int64_t when = 0;             // nanoseconds since 1970
  std::vector<OfDrive> drives;  // as the configuration lists them

  size_t Silent() const;  // drives that do not tell
};

// Connects to all drives that the configuration lists, and asks each.
ClusterSlow AskSlow(Runtime& runtime, const ClusterConfig& config);

// A request to a drive.
struct SlowPart {
  // Why there is nothing of the drive's own.
  enum class Drive {
    kTells,
    kIsSilent,  // it does not tell
    kWasQuick,  // not worth telling for it: it took less than what the drive tells of
    kKnowsNothing,
  };
  DriveId drive = 0;
  std::string address;                  // empty: the configuration has no such drive
  std::optional<WaitedRequest> waited;  // as who waited for it saw it
  std::optional<SlowRequest> at_drive;  // there when the drive tells
  Drive tells = Drive::kTells;

  Duration took() const { return waited ? waited->took : at_drive->took; }
};

struct SlowEntry {
  int64_t ended = 0;                       // nanoseconds since 1970
  DriveUser client;                        // who it is, as it says
  std::optional<SlowOperation> operation;  // none: nobody has told of one
  Duration took{};
  std::vector<SlowPart> parts;  // slowest first; without an operation it is one
};

struct SlowFilter {
  int64_t since = 0;  // nanoseconds since 1970
  Duration at_least{};
};

// Oldest first. Pure.
std::vector<SlowEntry> JoinSlow(const ClusterSlow& slow, const SlowFilter& filter);

// For people, and for programs.
std::string SlowText(const std::vector<SlowEntry>& entries, const ClusterSlow& slow,
                     const SlowFilter& filter);
std::string SlowJson(const std::vector<SlowEntry>& entries, const ClusterSlow& slow);

}  // namespace pinstripe
