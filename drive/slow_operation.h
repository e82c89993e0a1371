// What took long: an operation of a gateway or mount, and the requests to drives for which it
// waited. A request is named by the connection, whose number the drive has chosen and never chooses
// again, and by its sequence number on that. Both sides know these, so nothing has to be added to
// requests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

// One that was sent.
struct WaitedRequest {
  uint64_t connection = 0;
  uint64_t sequence = 0;
  int type = 0;     // kinetic::Header::MessageType
  Duration took{};  // from when it was sent; until now, or until it was given up
  bool answered = false;
};

struct SlowOperation {
  static constexpr size_t kMostRequests = 8;
  static constexpr size_t kMostOperationBytes = 32;
  static constexpr size_t kMostSubjectBytes = 192;

  struct Request {
    uint32_t drive = 0;
    WaitedRequest waited;
  };

  uint64_t id = 0;        // of its process
  std::string operation;  // "read"
  std::string subject;    // "inode 9", "/store/file"
  Duration took{};
  Duration ago{};                 // since its end
  Duration memory{};              // parts of what it took: waiting for memory
  Duration drives{};              // for answers of drives
  Duration turn{};                // for another operation
  std::vector<Request> requests;  // that it waited for, slowest first; not all of them
};

// Told at one time.
inline constexpr size_t kMostToldOperations = 16;

}  // namespace pinstripe
