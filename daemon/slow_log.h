// SlowLog: what took long at one device, for who asks it (docs/protocol.md, "Our extension: what
// took long"): its own requests with their parts, and operations of which clients have told it. The
// last ones of each, in a bounded space.
//
// Thread-safe. Only what took long comes here.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "daemon/clients.h"
#include "kinetic/drive_slow.h"

namespace pinstripe {

namespace kinetic {
class GetLog;
}  // namespace kinetic

class SlowLog {
 public:
  static constexpr Duration kUsually = std::chrono::seconds(1);

  // Requests that take `after` or longer are slow; 0: none is.
  explicit SlowLog(Duration after) : after_(after) {}

  Duration after() const { return after_; }
  bool IsSlow(Duration took) const { return took >= after_ && after_ > Duration(); }

  // `request` says neither who has asked nor how long ago. Its answer was ready at `ended`.
  void Add(SlowRequest request, std::shared_ptr<const ConnectedClient> client, Time ended);

  // What the client tells with a request, as far as that is allowed for: nothing of it is believed.
  void Hear(const std::shared_ptr<const ConnectedClient>& client, const kinetic::GetLog& said,
            Time now);

  // Oldest first.
  void Fill(Time now, kinetic::GetLog* log) const;

 private:
  struct Request {
    SlowRequest request;
    std::shared_ptr<const ConnectedClient> client;
    Time ended{};
  };
  struct Operation {
    SlowOperation operation;
    std::shared_ptr<const ConnectedClient> client;
    Time ended{};
  };

  const Duration after_;
  mutable Mutex mutex_;
  std::deque<Request> requests_ GUARDED_BY(mutex_);
  std::deque<Operation> operations_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
