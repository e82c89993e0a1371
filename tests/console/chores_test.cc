// What becomes of work that is interrupted, and of work that does not care.

#include "console/chores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "tests/console/scarce_runtime.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"
#include "upkeep/actor.h"

namespace pinstripe {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using namespace std::chrono_literals;

class ChoresTest : public testing::Test {
 protected:
  ChoresTest() { SetLogLevel(LogLevel::kError); }

  // `script` stands for `pinstripe`.
  void Start(const std::string& script, Duration patience = 5s) {
    const std::string program = directory_ / "program";
    std::ofstream(program) << "#!/bin/sh\n" << script;
    chmod(program.c_str(), 0700);
    chores_ = std::make_unique<Chores>(
        runtime_,
        Chores::Options{.program = program, .config = "cluster.toml", .patience = patience});
  }

  Chore StartOne() {
    const auto id = chores_->Start("check", {}, "anna");
    EXPECT_OK(id);
    return chores_->List().front();
  }
  Chore WaitFor(const std::function<bool(const Chore&)>& is_so) {
    for (;;) {
      const Chore chore = chores_->List().front();
      if (is_so(chore)) return chore;
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + 2ms);
    }
  }
  Chore WaitForEnd() {
    return WaitFor([](const Chore& chore) { return chore.state == Chore::State::kEnded; });
  }
  void WaitUntilItSaid(const std::string& what) {
    WaitFor([&](const Chore& chore) { return chore.said.find(what) != chore.said.npos; });
  }

  TemporaryDirectory directory_;
  ScarceRuntime runtime_;
  std::unique_ptr<Chores> chores_;
};

// As `pinstripe --progress=json` says it.
TEST_F(ChoresTest, WhatWasInterruptedSaysHowToGoOn) {
  Start(
      "echo '{\"doing\": \"moving\", \"done\": 0.5}'\n"
      "echo '{\"interrupted\": \"Say it again to go on.\", \"doing\": \"moving\", \"done\": "
      "0.6}'\n");
  StartOne();
  const Chore ended = WaitForEnd();
  EXPECT_EQ(ended.said, "interrupted. Say it again to go on.\n");
  EXPECT_EQ(ended.doing, "moving");
  EXPECT_EQ(ended.done, 0.6);
}

// What it tells the cluster bears the operator's name.
TEST_F(ChoresTest, WhatIsStartedKnowsTheOperator) {
  setenv(kOperatorVariable, "somebody else", 1);
  Start("env | grep ^PINSTRIPE_OPERATOR=\n");
  StartOne();
  EXPECT_EQ(WaitForEnd().said, "PINSTRIPE_OPERATOR=anna\n");
  setenv(kOperatorVariable, "anna", 1);
  EXPECT_EQ(ThisProcess().user, "anna");
  unsetenv(kOperatorVariable);
  EXPECT_NE(ThisProcess().user, "anna");
}

TEST_F(ChoresTest, AnEndThatNobodyKnowsIsNoSuccess) {
  Start("exit 0\n");
  struct sigaction before {};
  sigaction(SIGCHLD, nullptr, &before);
  signal(SIGCHLD, SIG_IGN);  // the kernel keeps no end
  StartOne();
  EXPECT_EQ(WaitForEnd().exit_code, -1);
  sigaction(SIGCHLD, &before, nullptr);
}

TEST_F(ChoresTest, WhatDoesNotEndWhenInterruptedIsEnded) {
  Start("trap 'echo no' INT; trap 'exit 1' TERM; echo waiting; while :; do sleep 0.01; done\n",
        100ms);
  StartOne();
  WaitUntilItSaid("waiting");
  const Time began = runtime_.Now();
  chores_.reset();
  EXPECT_LT(runtime_.Now() - began, 30s);
}

TEST_F(ChoresTest, WhatCaresForNoSignalIsKilledWithAllThatItStarted) {
  Start("trap '' INT TERM; echo waiting; tail -f /dev/null; tail -f /dev/null\n", 50ms);
  StartOne();
  WaitUntilItSaid("waiting");
  const Time began = runtime_.Now();
  chores_.reset();
  EXPECT_LT(runtime_.Now() - began, 30s);
}

TEST_F(ChoresTest, WithoutAThreadThereIsNoWork) {
  Start("exit 0\n");
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = descriptors();
  runtime_.has_threads = false;
  for (int i = 0; i < 10; ++i) EXPECT_FAILS(chores_->Start("check", {}, "anna"), EAGAIN);
  EXPECT_EQ(descriptors(), before);
  EXPECT_TRUE(chores_->List().empty());
  runtime_.has_threads = true;
  StartOne();
  EXPECT_EQ(WaitForEnd().exit_code, 0);
}

}  // namespace
}  // namespace pinstripe
