// What a drive of ours tells in the log of what took long (docs/protocol.md, "Our extension: what
// took long"): requests of its own, with their parts, and operations of which gateways and mounts
// have told it. All text is bounded and Printable(), whatever a drive or a client says.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "drive/slow_operation.h"
#include "kinetic/drive_use.h"

namespace pinstripe {

inline constexpr size_t kMostSlowRequests = 256;    // that a drive tells of
inline constexpr size_t kMostSlowOperations = 256;  // likewise
inline constexpr size_t kMostRecordText = 128;      // bytes of it

struct SlowRequest {
  uint64_t connection = 0;
  uint64_t sequence = 0;
  int type = 0;        // kinetic::Header::MessageType
  uint64_t bytes = 0;  // of the value
  std::string record;  // which one, for people
  Duration ago{};      // since its answer was ready
  Duration took{};     // from its last byte to that; the next four are parts of it
  Duration queue{};    // until it began
  Duration held{};     // until the client took earlier answers
  Duration store{};    // index and disk
  Duration sync{};     // until it was durable
  int status = 0;      // kinetic::Status::Code
  DriveUser client;    // who it is, without what it has done so far
};

struct ToldOperation {
  SlowOperation operation;
  DriveUser client;  // who has told of it, likewise
};

struct DriveSlow {
  std::vector<SlowRequest> requests;
  std::vector<ToldOperation> operations;
  Duration slow_after{};  // from when on a request is one of these
};

// "read", "write", "flush": what a type of message is for, for people.
std::string_view RequestWord(int message_type);

}  // namespace pinstripe
