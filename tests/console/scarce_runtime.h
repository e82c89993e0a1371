// A runtime that has no threads left when a test says so.

#pragma once

#include <atomic>
#include <system_error>

#include "base/real_runtime.h"

namespace pinstripe {

class ScarceRuntime final : public Runtime {
 public:
  std::atomic<bool> has_threads = true;

  Time Now() override { return real_.Now(); }
  int64_t WallClock() override { return real_.WallClock(); }
  void RunAt(Time when, Task task) override { real_.RunAt(when, std::move(task)); }
  void Spawn(std::string name, Task body) override {
    if (!has_threads) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    real_.Spawn(std::move(name), std::move(body));
  }
  std::shared_ptr<Signal> NewSignal() override { return real_.NewSignal(); }
  uint64_t Random() override { return real_.Random(); }

 private:
  RealRuntime real_;
};

}  // namespace pinstripe
