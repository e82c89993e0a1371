#include "base/attempts.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace pinstripe {

void Attempts::Pause(Runtime& runtime) const {
  assert(begun_ > 0);
  const int64_t most = int64_t{1'000'000} << std::min(begun_ - 1, 7);
  const auto pause = std::chrono::nanoseconds(runtime.Random() % static_cast<uint64_t>(most));
  runtime.NewSignal()->WaitUntil(runtime.Now() + pause);
}

}  // namespace pinstripe
