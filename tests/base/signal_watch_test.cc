#include "base/signal_watch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <thread>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

TEST(SignalWatch, ReactsToTheSignalInWhateverThreadItComes) {
  std::promise<void> first;
  std::promise<void> second;
  int reactions = 0;
  {
    const auto watch = SignalWatch::Start(SIGUSR1, [&] {
      ++reactions;
      (reactions == 1 ? first : second).set_value();
    });
    ASSERT_OK(watch);
    raise(SIGUSR1);
    first.get_future().wait();
    std::thread([] { raise(SIGUSR1); }).join();
    second.get_future().wait();
  }
  EXPECT_EQ(reactions, 2);
}

TEST(SignalWatch, MayReactOnceToManyThatCameWhileItWasBusy) {
  std::promise<void> busy;
  std::promise<void> go_on;
  std::promise<void> again;
  int reactions = 0;
  const auto watch = SignalWatch::Start(SIGUSR1, [&, going = go_on.get_future().share()] {
    ++reactions;
    if (reactions == 1) busy.set_value();
    if (reactions == 2) again.set_value();
    going.wait();
  });
  ASSERT_OK(watch);
  raise(SIGUSR1);
  busy.get_future().wait();
  for (int i = 0; i < 100; ++i) raise(SIGUSR1);
  go_on.set_value();
  again.get_future().wait();
}

TEST(SignalWatch, DoesNotTakeASignalThatHasAnotherUse) {
  const auto watch = SignalWatch::Start(SIGUSR1, [] {});
  ASSERT_OK(watch);
  EXPECT_FAILS(SignalWatch::Start(SIGUSR1, [] {}), EBUSY);
  EXPECT_OK(SignalWatch::Start(SIGUSR2, [] {}));
  EXPECT_FAILS(SignalWatch::Start(SIGKILL, [] {}), EINVAL);
}

TEST(SignalWatch, GivesTheSignalBack) {
  EXPECT_OK(SignalWatch::Start(SIGUSR1, [] {}));  // ends at once
  EXPECT_OK(SignalWatch::Start(SIGUSR1, [] {}));
  struct sigaction now {};
  sigaction(SIGUSR1, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace pinstripe
