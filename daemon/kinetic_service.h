// KineticService: what one Kinetic device answers. Commands in, commands out; sockets are the
// server's (server.h), keeping is the engine's (engine.h).
//
// Served: GET (with our partial reads), GETVERSION, GETNEXT, GETPREVIOUS, GETKEYRANGE, PUT, DELETE,
// PUTS, GETS, NOOP, FLUSHALLDATA, GETLOG, SETUP, SECURITY; batches (START_BATCH, END_BATCH,
// ABORT_BATCH) together with the connection, which collects them; and beside the others, because
// they take long, PEER2PEERPUSH, MEDIASCAN and MEDIAOPTIMIZE (long_operation.h). Every other
// message type is INVALID_REQUEST. docs/protocol.md tells more.
//
// Every operation asks first whether its caller may (rights.h). One that may not changes nothing
// and learns nothing.
//
// What must be durable before it is answered is not waited for here: the caller flushes once for
// all that came together (Outcome::after_flush).
//
// Execute() and Flush() may be called from any thread and may wait for the disk.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "daemon/batch.h"
#include "daemon/clients.h"
#include "daemon/device_events.h"
#include "daemon/device_security.h"
#include "daemon/engine.h"
#include "daemon/host_readings.h"
#include "daemon/operation_statistics.h"
#include "daemon/places.h"
#include "daemon/slow_log.h"
#include "kinetic/io.h"
#include "store/gate.h"
#include "store/long_operation.h"

namespace pinstripe {

namespace kinetic {
class Command;
class GetLog;
class Range;
}  // namespace kinetic

// What a device says about itself.
struct DeviceDescription {
  std::string serial_number;
  std::string world_wide_name;
  std::string path;  // of its store; empty: in memory
  // As long as no erase PIN is set everybody may erase it, as the protocol has it.
  bool erase_without_pin = true;
  // As it says; the server keeps to it (Places::Limits::per_device).
  size_t max_connections = kUsualConnections;
  // Requests that take so long are slow (slow_log.h); 0: none is.
  Duration slow_request = SlowLog::kUsually;
};

// How many requests of a connection are worked on at once; more wait in the socket.
inline constexpr uint32_t kMaxOutstandingReads = 64;
inline constexpr uint32_t kMaxOutstandingWrites = 64;

class KineticService {
 public:
  // For what serves the device in other ways (resp_device.h). Whoever uses the engine so has
  // visited the gate, and asked for the rights of whoever he does it for.
  struct Inside {
    Engine& engine;
    Gate& executing;
  };

  // Who asks, and how.
  struct Caller {
    DeviceSecurity::IdentityPtr identity;
    bool tls = false;
    int64_t cluster_version = 0;  // that the request named; the device's, when it came
    bool unerased = false;        // and only if the device was not erased since
    Time asked{};                 // when it came, of a GETLOG
  };

  // `security` and `engine` outlive the service.
  KineticService(DeviceDescription device, DeviceSecurity& security, Engine& engine);

  // Where the device is served, for the greeting; 0: not, without or with TLS.
  void SetPort(uint16_t port) { port_ = port; }
  void SetTlsPort(uint16_t port) { tls_port_ = port; }
  // When that began; the first time counts.
  void ServedSince(Time when) {
    Time none{};
    served_since_.compare_exchange_strong(none, when);
  }
  Time served_since() const { return served_since_; }
  const std::string& path() const { return device_.path; }  // of its store; empty: in memory
  uint16_t port() const { return port_; }
  uint16_t tls_port() const { return tls_port_; }

  const DeviceSecurity& security() const { return security_; }

  // The greeting, complete but for its connection id.
  kinetic::Command Greeting();

  struct Outcome {
    SharedBytes value;         // goes with the answer
    bool after_flush = false;  // the answer is true only after a Flush() that begins now or later
    bool reads_left = false;   // MakeReads() has still to be called
  };
  // Executes a request whose signature, sequence and cluster version were checked, while the device
  // was not locked. Fills body and status of the answer. A request that waited while the cluster
  // version changed is refused: who has changed it, and been told so, meets nothing any more that
  // goes by the former one.
  Outcome Execute(const Caller& caller, const kinetic::Command& request, SharedBytes value,
                  kinetic::Command* answer);

  // As Execute(), by a thread that must not wait: none where Execute() has to.
  std::optional<Outcome> ExecuteAtOnce(const Caller& caller, const kinetic::Command& request,
                                       kinetic::Command* answer);

  // PUTs and PUTSs that came together, in their order; each as Execute() would do it.
  struct PutRequest {
    Caller caller;
    const kinetic::Command* request = nullptr;
    SharedBytes value;
    kinetic::Command* answer = nullptr;
  };
  // Of each.
  std::vector<Outcome> ExecutePuts(std::span<const PutRequest> puts);
  // The same, by a thread that must not wait: none where ExecutePuts() has to, or where one of them
  // fails. Then nothing was done. Reads behind puts for which it would have to wait are left.
  std::optional<std::vector<Outcome>> ExecutePutsAtOnce(std::span<const PutRequest> puts);
  // Those of a request whose puts were made. What goes with its answer.
  SharedBytes MakeReads(const PutRequest& put);

  // PEER2PEERPUSH, MEDIASCAN and MEDIAOPTIMIZE take long: they are not executed but started.
  static bool TakesLong(const kinetic::Command& request);
  // How long it may take, when the request does not say.
  static Duration LongestTime(const kinetic::Command& request);

  // What will do it. All that is not copied outlives the operation, which fills body and status of
  // the answer. EACCES, EINVAL: it may not be, or cannot.
  Result<std::unique_ptr<LongOperation>> Start(Runtime& runtime, KineticIo& io,
                                               const Caller& caller,
                                               const kinetic::Command& request, Time expiry,
                                               kinetic::Command* answer);

  // Executes a PIN operation that came over TLS with this PIN.
  void ExecutePin(const kinetic::Command& request, std::string_view pin, kinetic::Command* answer);

  // The change that a PUT or DELETE asks for as a part of a batch. EINVAL: it cannot be done.
  // EACCES: the caller may not.
  static Result<Engine::Change> ChangeOf(const Caller& caller, const kinetic::Command& request,
                                         SharedBytes value);

  // Makes the changes of a batch, all or none.
  Outcome EndBatch(const Caller& caller, const Batch& batch, kinetic::Command* answer);

  BatchBudget& batch_budget() { return batch_budget_; }
  OperationStatistics& statistics() { return statistics_; }
  DeviceEvents& events() { return events_; }
  Clients& clients() { return clients_; }
  SlowLog& slow() { return slow_; }
  const DeviceDescription& device() const { return device_; }

  Status Flush() { return engine_.Flush(); }
  Inside inside() { return {engine_, executing_}; }

  static void SetFailure(const Status& failure, kinetic::Command* answer);

 private:
  Status Get(const Caller& caller, const kinetic::Command& request, kinetic::Command* answer,
             SharedBytes* value);
  Status GetVersion(const Caller& caller, const kinetic::Command& request,
                    kinetic::Command* answer);
  Status GetNeighbour(const Caller& caller, const kinetic::Command& request,
                      kinetic::Command* answer, SharedBytes* value);
  class PutRun;
  // Whether the device was not erased since the caller was admitted.
  Status CheckCurrent(const Caller& caller) const;
  // Nor has got another cluster version (EREMCHG, and the answer says which).
  Status CheckAdmitted(const Caller& caller, kinetic::Command* answer) const;
  Status Erase(std::string_view pin, bool secure);
  Status ListAllowed(const Caller& caller, const KeyRange& range, uint32_t max, bool reverse,
                     kinetic::Range* found);
  Status Security(const Caller& caller, const kinetic::Command& request);
  Status Setup(const Caller& caller, const kinetic::Command& request, kinetic::Command* answer);
  Status GetKeyRange(const Caller& caller, const kinetic::Command& request,
                     kinetic::Command* answer, SharedBytes* values);
  Status ListRecords(const Caller& caller, const kinetic::Range& asked, kinetic::Range* found,
                     SharedBytes* values);
  Status Delete(const Caller& caller, const kinetic::Command& request, bool* after_flush);
  Status GetLog(const Caller& caller, const kinetic::Command& request, kinetic::Command* answer,
                SharedBytes* value);
  void FillUtilizations(kinetic::GetLog* log);
  void FillTemperatures(kinetic::GetLog* log) const;
  void FillCapacities(kinetic::GetLog* log);
  void FillStarts(kinetic::GetLog* log);
  void FillStatistics(kinetic::GetLog* log) const;
  void FillConfiguration(kinetic::GetLog* log) const;
  Status FillDevice(std::string_view name, Time now, kinetic::GetLog* log, SharedBytes* value);

  const DeviceDescription device_;
  std::atomic<uint16_t> port_ = 0;
  std::atomic<uint16_t> tls_port_ = 0;
  std::atomic<Time> served_since_{};
  DeviceSecurity& security_;
  Engine& engine_;
  BatchBudget batch_budget_;
  // Visited by whoever executes a request, closed while the device is erased or set up.
  Gate executing_;
  OperationStatistics statistics_;
  DeviceEvents events_;
  Clients clients_;
  SlowLog slow_;
  HostReadings host_;
};

}  // namespace pinstripe
