// KineticService: what one Kinetic device answers. Commands in, commands out; sockets are the
// server's (server.h), keeping is the engine's (engine.h).
//
// Served: GET (with our partial reads), GETVERSION, GETNEXT, GETPREVIOUS, GETKEYRANGE, PUT, DELETE,
// NOOP, FLUSHALLDATA, GETLOG, and batches (START_BATCH, END_BATCH, ABORT_BATCH) together with the
// connection, which collects them. Every other message type is INVALID_REQUEST. docs/protocol.md
// tells more.
//
// What must be durable before it is answered is not waited for here: the caller flushes once for
// all that came together (Outcome::after_flush).
//
// Nothing changes once it serves; Execute() and Flush() may be called from any thread and may wait
// for the disk.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "drive/batch.h"
#include "drive/device_events.h"
#include "drive/engine.h"
#include "drive/hmac.h"
#include "drive/host_readings.h"
#include "drive/operation_statistics.h"

namespace pinstripe {

namespace kinetic {
class Command;
class GetLog;
}  // namespace kinetic

// What a device says about itself.
struct DeviceDescription {
  std::string serial_number;
  std::string world_wide_name;
  uint16_t port = 0;
  std::string path;  // of its store; empty: in memory
};

// How many requests of a connection are worked on at once; more wait in the socket.
inline constexpr uint32_t kMaxOutstandingReads = 64;
inline constexpr uint32_t kMaxOutstandingWrites = 64;
inline constexpr uint32_t kMaxConnections = 1000;  // per device

class KineticService {
 public:
  using Identities = std::map<int64_t, HmacKey>;

  // `identities` and `engine` outlive the service.
  KineticService(DeviceDescription device, const Identities& identities, Engine& engine);

  // What the greeting says; set before anybody is served.
  void SetPort(uint16_t port) { device_.port = port; }
  uint16_t port() const { return device_.port; }

  // Null: no such identity.
  const HmacKey* KeyOf(int64_t identity) const;

  // The greeting, complete but for its connection id.
  kinetic::Command Greeting();

  struct Outcome {
    SharedBytes value;         // goes with the answer
    bool after_flush = false;  // the answer is true only after a Flush() that begins now or later
  };
  // Executes a request whose signature, sequence and cluster version were checked. Fills body and
  // status of the answer.
  Outcome Execute(const kinetic::Command& request, SharedBytes value, kinetic::Command* answer);

  // The change that a PUT or DELETE asks for as a part of a batch. EINVAL: it cannot be done.
  static Result<Engine::Change> ChangeOf(const kinetic::Command& request, SharedBytes value);

  // Makes the changes of a batch, all or none.
  Outcome EndBatch(const Batch& batch, kinetic::Command* answer);

  BatchBudget& batch_budget() { return batch_budget_; }
  OperationStatistics& statistics() { return statistics_; }
  DeviceEvents& events() { return events_; }

  Status Flush() { return engine_.Flush(); }

  // What an answer says when the flush it waited for has failed.
  static void SetFailure(const Status& failure, kinetic::Command* answer);

 private:
  Status Get(const kinetic::Command& request, kinetic::Command* answer, SharedBytes* value);
  Status GetVersion(const kinetic::Command& request, kinetic::Command* answer);
  Status GetNeighbour(const kinetic::Command& request, kinetic::Command* answer,
                      SharedBytes* value);
  Status GetKeyRange(const kinetic::Command& request, kinetic::Command* answer);
  Status Put(const kinetic::Command& request, SharedBytes value, bool* after_flush);
  Status Delete(const kinetic::Command& request, bool* after_flush);
  Status GetLog(const kinetic::Command& request, kinetic::Command* answer, SharedBytes* value);
  void FillUtilizations(kinetic::GetLog* log);
  void FillTemperatures(kinetic::GetLog* log) const;
  void FillStatistics(kinetic::GetLog* log) const;
  void FillConfiguration(kinetic::GetLog* log) const;

  DeviceDescription device_;
  const Identities& identities_;
  Engine& engine_;
  BatchBudget batch_budget_;
  OperationStatistics statistics_;
  DeviceEvents events_;
  HostReadings host_;
};

}  // namespace pinstripe
