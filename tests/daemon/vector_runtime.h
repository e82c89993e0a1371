// A real runtime whose chance begins with the number from which a server's first connection gets
// number 1000: that of the frames in tests/golden/kinetic_vectors.h.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/real_runtime.h"

namespace pinstripe {

class VectorRuntime final : public Runtime {
 public:
  static constexpr int64_t kFirstConnection = 1000;

  Time Now() override { return real_.Now(); }
  Duration TimeLost() override { return real_.TimeLost(); }
  int64_t WallClock() override { return real_.WallClock(); }
  void RunAt(Time when, Task task) override { real_.RunAt(when, std::move(task)); }
  void Spawn(std::string name, Task body) override {
    real_.Spawn(std::move(name), std::move(body));
  }
  std::shared_ptr<Signal> NewSignal() override { return real_.NewSignal(); }
  uint64_t Random() override {
    return used_.exchange(true) ? real_.Random() : uint64_t{2} * kFirstConnection;
  }

 private:
  RealRuntime real_;
  std::atomic<bool> used_ = false;
};

}  // namespace pinstripe
