// Flushes: answers of one device that wait to be durable. One flush of its store serves all that
// came before it; while it runs the next ones gather. Flushes have threads of their own, so that a
// slow disk holds up only itself. (What goes to a client's socket is the Outbox's, outbox.h.)
//
// Thread-safe. Made as a shared_ptr.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "daemon/kinetic_service.h"
#include "store/workers.h"

namespace pinstripe {

class Flushes : public std::enable_shared_from_this<Flushes> {
 public:
  // All outlive it.
  Flushes(Runtime& runtime, Workers& workers, KineticService& service)
      : runtime_(runtime), workers_(workers), service_(service) {}

  // Calls `done` with the success of a flush that begins now or later, on a thread of the workers.
  void Add(std::function<void(const Status&)> done);

 private:
  void Run();

  Runtime& runtime_;
  Workers& workers_;
  KineticService& service_;
  Mutex mutex_;
  std::vector<std::function<void(const Status&)>> waiting_ GUARDED_BY(mutex_);
  bool running_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinstripe
