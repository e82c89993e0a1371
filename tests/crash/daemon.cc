#include "tests/crash/daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "store/drive_mark.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {

void MakeDrive(const std::string& path) {
  std::filesystem::create_directories(path);
  EXPECT_OK(InitDrive(path, "of a test"));
}

Daemon::Daemon(const std::vector<std::string>& arguments,
               const std::map<std::string, std::string>& environment, unsigned descriptors) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  output_ = FileDescriptor(ends[0]);
  const FileDescriptor input(ends[1]);
  messages_ = FileDescriptor(memfd_create("messages", MFD_CLOEXEC));
  EXPECT_EQ(fcntl(messages_.get(), F_SETFL, O_APPEND), 0);
  std::vector<char*> argv = {const_cast<char*>(PINSTRIPED)};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (char** each = environ; *each != nullptr; ++each) envp.push_back(*each);
  for (std::string& variable : variables) envp.insert(envp.begin(), variable.data());
  envp.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(input.get(), STDOUT_FILENO);
  dup2(messages_.get(), STDERR_FILENO);
  const rlimit limit{descriptors, descriptors};
  if (descriptors != 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(126);
  execve(PINSTRIPED, argv.data(), envp.data());
  _exit(127);
}

Daemon::~Daemon() {
  if (pid_ > 0) Kill();
}

bool Daemon::IsReady() {
  std::string said;
  char byte = 0;
  while (read(output_.get(), &byte, 1) == 1 && byte != '\n') said += byte;
  return said == "ready";
}

int Daemon::End(int signal) {
  EXPECT_EQ(kill(pid_, signal), 0);
  return Wait();
}

int Daemon::Wait() {
  int status = 0;
  EXPECT_GT(waitpid(std::exchange(pid_, 0), &status, 0), 0);
  return status;
}

std::string Daemon::Messages() const {
  struct stat about {};
  EXPECT_EQ(fstat(messages_.get(), &about), 0);
  std::string text(static_cast<size_t>(about.st_size), '\0');
  const ssize_t got = pread(messages_.get(), text.data(), text.size(), 0);
  EXPECT_EQ(got, about.st_size);
  return text;
}

}  // namespace pinstripe
