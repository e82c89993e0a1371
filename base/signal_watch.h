// SignalWatch: does something whenever the process gets a signal, on a thread of its own.
//
// In a process that is not ours, such as a server that has loaded us, signals can be blocked
// neither before its threads are made nor for all of them. So there is a handler, which does
// nothing but wake the thread.

#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/status.h"

namespace pinstripe {

class SignalWatch {
 public:
  // At most one for each signal. Signals that come while it reacts are one more reaction together.
  // EBUSY: something in the process reacts to this signal already; or why it cannot be watched.
  static Result<std::unique_ptr<SignalWatch>> Start(int signal, std::function<void()> react);

  // The signal does again what it did before. Waits until nothing reacts any more.
  ~SignalWatch();

 private:
  SignalWatch(int signal, int event_fd, std::function<void()> react);
  void Run();

  const int signal_;
  // Counts the signals. Never closed: in another thread the handler may be about to write to it.
  const int event_fd_;
  const std::function<void()> react_;
  std::thread thread_;
};

}  // namespace pinstripe
