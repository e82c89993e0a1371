// RespPuts: the plain SETs of all connections of a device that one loop serves. Those that came in
// one round of the loop are made together, in one change of the store's index: by the loop, where
// it need not wait, else by a worker. Of several for one key the last one is made, and what
// became of that is what all are told: nobody can have seen what was between.
//
// Loop thread. Made as a shared_ptr.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "daemon/resp_device.h"
#include "kinetic/io_loop.h"
#include "store/workers.h"

namespace pinstripe {

class RespPuts : public std::enable_shared_from_this<RespPuts> {
 public:
  // What became of each.
  using Done = std::function<void(std::span<const Status>)>;

  // All outlive it. `no_puts_at_once`: as in SharedByDevice. `long_put`: as in Server::Options.
  RespPuts(IoLoop& loop, Workers& workers, RespDevice& device, std::atomic<Time>& no_puts_at_once,
           Duration long_put)
      : loop_(loop),
        workers_(workers),
        device_(device),
        no_puts_at_once_(no_puts_at_once),
        long_put_(long_put) {}

  // Puts under any condition, for one who may make them. `done` is called later, on the loop's
  // thread.
  void Add(DeviceSecurity::IdentityPtr identity, std::vector<Engine::Change> puts, Done done);

 private:
  // Of one connection.
  struct Part {
    DeviceSecurity::IdentityPtr identity;
    size_t first = 0;  // of Round::puts
    size_t count = 0;
    Done done;
  };
  struct Round {
    std::vector<Part> parts;
    std::vector<Engine::Change> puts;  // of all parts
    size_t bytes = 0;                  // of their values
    std::vector<Engine::Change> made;  // of these, the last one of each key
    std::vector<size_t> made_as;       // which of `made` stands for each of `puts`
    std::vector<Status> statuses;      // of each of `made`
  };

  void Run();
  bool MakeAtOnce(Round& round);
  void Make(Round& round);
  static void Merge(Round& round);
  static void Tell(const Round& round);
  bool AreCurrent(const Round& round) const;

  IoLoop& loop_;
  Workers& workers_;
  RespDevice& device_;
  std::atomic<Time>& no_puts_at_once_;
  const Duration long_put_;
  Round next_;
};

}  // namespace pinstripe
