#include "base/side_by_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/sim_runtime.h"

namespace pinstripe {
namespace {

using std::chrono::seconds;

// With every number of things and of threads.
TEST(SideBySide, DoesEachThingOnceAndSoManyAtATime) {
  for (size_t count = 0; count < 8; ++count) {
    for (size_t width = 0; width < 10; ++width) {
      SimRuntime sim(1 + count * 10 + width);
      sim.Spawn("caller", [&] {
        std::vector<int> done(count);
        size_t at_once = 0;
        size_t most = 0;
        const Time start = sim.Now();
        SideBySide(sim, "helper", count, width, [&](size_t i) {
          most = std::max(most, ++at_once);
          sim.Sleep(seconds(1));
          ++done[i];
          --at_once;
        });
        EXPECT_EQ(done, std::vector<int>(count, 1));
        EXPECT_EQ(at_once, 0u) << "it came back before all had ended";
        const size_t wanted = std::min(count, std::max<size_t>(width, 1));
        EXPECT_EQ(most, wanted);
        const auto rounds = wanted == 0 ? 0 : (count + wanted - 1) / wanted;
        EXPECT_EQ((sim.Now() - start) / seconds(1), static_cast<int64_t>(rounds));
      });
      sim.Run();
    }
  }
}

}  // namespace
}  // namespace pinstripe
