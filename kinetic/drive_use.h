// Who uses a drive, and what it did for them: what a drive of ours tells in the log of its clients
// (docs/protocol.md, "Our extension: who uses a drive"). All text is bounded and Printable(),
// whatever a drive or a client says.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/latency_histogram.h"
#include "base/program.h"
#include "base/runtime.h"

namespace pinstripe {

inline constexpr size_t kMostUserText = 256;  // bytes of each text

// One connection.
struct DriveUser {
  ProgramName program;  // as it calls itself; empty: it does not
  std::string host;     // likewise
  uint32_t process = 0;
  std::string address;  // "10.0.0.7:51234", as the drive sees it
  bool tls = false;
  std::optional<int64_t> identity;  // none: nothing was signed yet
  Duration connected{};             // for how long
  uint64_t requests = 0;
  uint64_t bytes_read = 0;  // of values, by the client
  uint64_t bytes_written = 0;
  uint64_t connection = 0;  // tells it from others, and never comes again
};

// Requests of one type.
struct RequestsOfType {
  bool is_read = false;   // of records
  bool is_write = false;  // a change of them, or what makes changes durable
  uint64_t requests = 0;
  uint64_t bytes = 0;  // of values
  LatencyCounts took;
};

struct DriveUse {
  std::vector<DriveUser> clients;
  std::vector<RequestsOfType> work;  // since the drive's process started
  Duration counted{};                // how long ago that was
};

}  // namespace pinstripe
