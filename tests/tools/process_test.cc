#include "tools/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace pinstripe {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() {
    char name[] = "/tmp/pinstripe-process-test-XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~ProcessTest() override { std::filesystem::remove_all(directory_); }

  std::string Log() const { return directory_ + "/log"; }
  std::string LogText() const {
    std::ostringstream text;
    text << std::ifstream(Log()).rdbuf();
    return text.str();
  }

  // A child that has become its program, which takes a moment in which it has no command line.
  static std::optional<Process> FindSoon(Process& child, const std::vector<std::string>& command) {
    while (!child.WaitForEnd(Duration::zero())) {
      if (auto found = Process::Find(child.pid(), command)) return found;
    }
    return std::nullopt;
  }

  std::string directory_;
  const std::vector<std::string> forever_{"/bin/sleep", "1000"};
};

TEST_F(ProcessTest, AProcessIsFoundByPidAndCommandAndEndsWhenTold) {
  Result<Process> started = SpawnDetached({.command = forever_, .log = Log()});
  ASSERT_TRUE(started) << started.error().message();
  EXPECT_FALSE(started->WaitForEnd(Duration::zero()));
  auto process = FindSoon(*started, forever_);
  ASSERT_TRUE(process);
  EXPECT_FALSE(process->WaitForEnd(Duration::zero()));

  const Result<bool> killed = EndProcess(*process, seconds(10));
  ASSERT_TRUE(killed) << killed.error().message();
  EXPECT_FALSE(*killed) << "SIGTERM is enough for sleep";
  EXPECT_FALSE(Process::Find(started->pid(), forever_));
}

TEST_F(ProcessTest, APidThatIsSomeOtherCommandIsNotTheProcess) {
  Result<Process> started = SpawnDetached({.command = forever_, .log = Log()});
  ASSERT_TRUE(started);
  EXPECT_TRUE(FindSoon(*started, forever_));
  EXPECT_FALSE(Process::Find(started->pid(), {"/bin/sleep", "999"}));
  EXPECT_FALSE(Process::Find(started->pid(), {"/bin/sleep"}));
  EXPECT_FALSE(Process::Find(0, forever_));
  EXPECT_FALSE(Process::Find(-1, forever_)) << "kill(-1) would mean everybody";
  EXPECT_TRUE(EndProcess(*started, seconds(10)));
}

TEST_F(ProcessTest, WhoIgnoresSigtermIsKilled) {
  const std::vector<std::string> stubborn{"/bin/sh", "-c",
                                          "trap '' TERM; echo deaf; while :; do sleep 1; done"};
  Result<Process> process = SpawnDetached({.command = stubborn, .log = Log()});
  ASSERT_TRUE(process);
  while (LogText().find("deaf") == std::string::npos && !process->WaitForEnd(Duration::zero())) {
    usleep(1000);
  }
  const Result<bool> killed = EndProcess(*process, std::chrono::milliseconds(50));
  ASSERT_TRUE(killed) << killed.error().message();
  EXPECT_TRUE(*killed);
  EXPECT_EQ(process->HowItEnded(), "by SIGKILL");
}

TEST_F(ProcessTest, OneThatEndsAtOnceIsSeenToEndAndHow) {
  const std::vector<std::string> command{"/bin/sh", "-c", "exit 3"};
  Result<Process> process = SpawnDetached({.command = command, .log = Log()});
  ASSERT_TRUE(process) << process.error().message();
  ASSERT_TRUE(process->WaitForEnd(seconds(10)));
  EXPECT_EQ(process->HowItEnded(), "with exit code 3");
  EXPECT_TRUE(process->WaitForEnd(Duration::zero())) << "and is asked again";
  EXPECT_EQ(process->HowItEnded(), "with exit code 3");
  EXPECT_FALSE(Process::Find(process->pid(), command));
}

TEST_F(ProcessTest, WhatItPrintsIsAppendedToItsLog) {
  const std::vector<std::string> command{"/bin/sh", "-c", "echo out; echo err >&2; pwd"};
  for (int i = 0; i < 2; ++i) {
    Result<Process> process =
        SpawnDetached({.command = command, .log = Log(), .directory = directory_});
    ASSERT_TRUE(process);
    EXPECT_TRUE(process->WaitForEnd(seconds(10)));
  }
  const std::string once = "out\nerr\n" + directory_ + "\n";
  EXPECT_EQ(LogText(), once + once);
}

TEST_F(ProcessTest, ItHasTheVariablesThatAreAskedForUnlessTheyAreSetAlready) {
  ASSERT_EQ(setenv("PINSTRIPE_TEST_SET", "before", 1), 0);
  ASSERT_EQ(unsetenv("PINSTRIPE_TEST_NEW"), 0);
  const std::vector<std::string> command{"/bin/sh", "-c",
                                         "echo $PINSTRIPE_TEST_SET $PINSTRIPE_TEST_NEW"};
  Result<Process> process =
      SpawnDetached({.command = command,
                     .log = Log(),
                     .environment = {"PINSTRIPE_TEST_SET=other", "PINSTRIPE_TEST_NEW=a=b"}});
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_TRUE(process->WaitForEnd(seconds(10)));
  EXPECT_EQ(LogText(), "before a=b\n");
}

TEST_F(ProcessTest, AProgramThatCannotBeStartedIsAnErrorOfTheCaller) {
  const Result<Process> none = SpawnDetached({.command = {"/no/such/program"}, .log = Log()});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ENOENT);
  EXPECT_THAT(std::string(none.error().message()), HasSubstr("/no/such/program: exec"));
}

TEST_F(ProcessTest, AProcessCanHaveAHostNameThatResolves) {
  const std::vector<std::string> command{"/bin/hostname"};
  Result<Process> process = SpawnDetached({.command = command, .log = Log(), .as_localhost = true});
  if (!process && (process.error().code() == EPERM || process.error().code() == ENOSPC)) {
    GTEST_SKIP() << "this machine forbids it: " << process.error().message();
  }
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_TRUE(process->WaitForEnd(seconds(10)));
  EXPECT_EQ(LogText(), "localhost\n");
}

TEST_F(ProcessTest, ACommandLineIsReadWordForWord) {
  EXPECT_THAT(CommandLineOf(getpid()), testing::Not(IsEmpty()));
  EXPECT_THAT(CommandLineOf(-1), IsEmpty());
}

TEST_F(ProcessTest, SaysWhetherAnotherUserCanReadAFile) {
  const Result<UnixUser> self = CurrentUnixUser();
  ASSERT_TRUE(self);
  EXPECT_TRUE(CheckReadableBy(*self, "/etc/passwd").ok());
  EXPECT_EQ(CheckReadableBy(*self, "/no/such/file").code(), ENOENT);
  if (geteuid() != 0) return;  // only root can become somebody else

  const Result<UnixUser> nobody = FindUnixUser("nobody");
  ASSERT_TRUE(nobody) << nobody.error().message();
  std::ofstream(directory_ + "/file") << "for root alone";  // the directory is 0700
  const Status status = CheckReadableBy(*nobody, directory_ + "/file");
  EXPECT_EQ(status.code(), EACCES);
  EXPECT_THAT(std::string(status.message()), HasSubstr("user nobody cannot read it"));
}

TEST_F(ProcessTest, AUserThatDoesNotExistIsNamed) {
  const Result<UnixUser> user = FindUnixUser("no-such-user");
  ASSERT_FALSE(user);
  EXPECT_EQ(user.error().code(), ENOENT);
  EXPECT_THAT(std::string(user.error().message()), HasSubstr("no-such-user"));
}

}  // namespace
}  // namespace pinstripe
