// What connections have in common: those of a device, and all those of a server.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/runtime.h"
#include "daemon/flushes.h"
#include "daemon/kinetic_service.h"
#include "daemon/value_budget.h"
#include "kinetic/io.h"
#include "kinetic/io_loop.h"
#include "store/background.h"
#include "store/workers.h"

namespace pinstripe {

// One client's connection, on the thread of its loop.
class Connection : public IoLoop::Handler {
 public:
  virtual void Start() = 0;
  // What is still being executed finishes, and its answer is dropped.
  virtual void Close() = 0;
};

// What the connections of a device have in common, whichever port they came through.
struct SharedByDevice {
  SharedByDevice(Runtime& runtime, Workers& flushers, KineticService& service)
      : flushes(std::make_shared<Flushes>(runtime, flushers, service)) {}

  const std::shared_ptr<Flushes> flushes;
  std::atomic<Time> no_puts_at_once{};  // by loops until then, since they took long
};

// A put that took long on a loop's thread: for so long the loops make none.
inline constexpr Duration kRestFromPuts = std::chrono::milliseconds(100);

// What all sessions of a server use. Long operations have threads of their own, those that wait for
// peers others than those that wait for the disk.
struct ServerThreads {
  Workers& workers;
  // For clients of the Redis protocol, who so do not hold up those of Kinetic: commands that wait,
  // and those that go through many keys.
  Workers& resp;
  Workers& listings;
  Background& scans;
  Background& pushes;
  KineticIo& peers;
};

// Of values, for all sessions of a server. What strangers receive has a small budget of its own, so
// that they never hold up those who have signed.
struct ServerBudgets {
  explicit ServerBudgets(uint64_t limit) : values(limit), of_strangers(limit / 8) {}
  ValueBudget values;
  ValueBudget of_strangers;
};

}  // namespace pinstripe
