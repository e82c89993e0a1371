#include "tools/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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

  std::string directory_;
  const std::vector<std::string> forever_{"/bin/sleep", "1000"};
};

TEST_F(ProcessTest, AProcessIsFoundByPidAndCommandAndEndsWhenTold) {
  const Result<pid_t> pid = SpawnDetached({.command = forever_, .log = Log()});
  ASSERT_TRUE(pid) << pid.error().message();
  auto process = Process::Find(*pid, forever_);
  ASSERT_TRUE(process);
  EXPECT_FALSE(process->WaitForEnd(Duration::zero()));

  const Result<bool> killed = EndProcess(*process, seconds(10));
  ASSERT_TRUE(killed) << killed.error().message();
  EXPECT_FALSE(*killed) << "SIGTERM is enough for sleep";
  EXPECT_FALSE(Process::Find(*pid, forever_));
}

TEST_F(ProcessTest, APidThatIsSomeOtherCommandIsNotTheProcess) {
  const Result<pid_t> pid = SpawnDetached({.command = forever_, .log = Log()});
  ASSERT_TRUE(pid);
  EXPECT_FALSE(Process::Find(*pid, {"/bin/sleep", "999"}));
  EXPECT_FALSE(Process::Find(*pid, {"/bin/sleep"}));
  EXPECT_FALSE(Process::Find(0, forever_));
  EXPECT_FALSE(Process::Find(-1, forever_)) << "kill(-1) would mean everybody";
  auto process = Process::Find(*pid, forever_);
  ASSERT_TRUE(process);
  EXPECT_TRUE(EndProcess(*process, seconds(10)));
}

TEST_F(ProcessTest, WhoIgnoresSigtermIsKilled) {
  const std::vector<std::string> stubborn{"/bin/sh", "-c",
                                          "trap '' TERM; echo deaf; while :; do sleep 1; done"};
  const Result<pid_t> pid = SpawnDetached({.command = stubborn, .log = Log()});
  ASSERT_TRUE(pid);
  auto process = Process::Find(*pid, stubborn);
  ASSERT_TRUE(process);
  while (LogText().find("deaf") == std::string::npos && !process->WaitForEnd(Duration::zero())) {
    usleep(1000);
  }
  const Result<bool> killed = EndProcess(*process, std::chrono::milliseconds(50));
  ASSERT_TRUE(killed) << killed.error().message();
  EXPECT_TRUE(*killed);
}

TEST_F(ProcessTest, WhatItPrintsIsAppendedToItsLog) {
  const std::vector<std::string> command{"/bin/sh", "-c", "echo out; echo err >&2; pwd"};
  for (int i = 0; i < 2; ++i) {
    const Result<pid_t> pid =
        SpawnDetached({.command = command, .log = Log(), .directory = directory_});
    ASSERT_TRUE(pid);
    if (auto process = Process::Find(*pid, command)) {
      EXPECT_TRUE(process->WaitForEnd(seconds(10)));
    }
  }
  const std::string once = "out\nerr\n" + directory_ + "\n";
  EXPECT_EQ(LogText(), once + once);
}

TEST_F(ProcessTest, AProgramThatCannotBeStartedIsAnErrorOfTheCaller) {
  const Result<pid_t> pid = SpawnDetached({.command = {"/no/such/program"}, .log = Log()});
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code(), ENOENT);
  EXPECT_THAT(std::string(pid.error().message()), HasSubstr("/no/such/program: exec"));
}

TEST_F(ProcessTest, AProcessCanHaveAHostNameThatResolves) {
  const std::vector<std::string> command{"/bin/hostname"};
  const Result<pid_t> pid = SpawnDetached({.command = command, .log = Log(), .as_localhost = true});
  if (!pid && (pid.error().code() == EPERM || pid.error().code() == ENOSPC)) {
    GTEST_SKIP() << "this machine forbids it: " << pid.error().message();
  }
  ASSERT_TRUE(pid) << pid.error().message();
  if (auto process = Process::Find(*pid, command)) {
    EXPECT_TRUE(process->WaitForEnd(seconds(10)));
  }
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
