#include "tests/support/host_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/file_descriptor.h"
#include "tests/support/spawn.h"

namespace pinstripe {
namespace {

constexpr HostNetwork::Side kSides[] = {HostNetwork::Side::kFront, HostNetwork::Side::kBack};

std::string_view NameOf(HostNetwork::Side side) {
  return side == HostNetwork::Side::kFront ? "front" : "back";
}

std::string NamespaceOf(pid_t process) { return fmt::format("/proc/{}/ns/net", process); }

// One line as for a shell, without quotes.
void Run(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  const pid_t process = SpawnProgram(words, -1);
  int status = -1;
  if (process > 0) waitpid(process, &status, 0);
  ASSERT_EQ(status, 0) << line;
}

}  // namespace

bool HostNetwork::IsAllowed() {
  const pid_t process = fork();
  // Not every kernel that has namespaces has what connects them.
  constexpr const char* kNeeded =
      "ip link add front type bridge && ip link add a type veth peer name b && "
      "unshare -n true && setpriv --pdeathsig KILL true";
  if (process == 0) {
    _exit(unshare(CLONE_NEWNET) == 0 && std::system(kNeeded) == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(process, &status, 0);
  return status == 0;
}

HostNetwork::HostNetwork(size_t hosts) {
  EXPECT_EQ(unshare(CLONE_NEWNET), 0) << "a namespace needs root";
  Run("ip link set lo up");
  for (const Side side : kSides) {
    Run(fmt::format("ip link add {} type bridge", NameOf(side)));
    Run(fmt::format("ip address add {}/24 dev {}", address_here(side), NameOf(side)));
    Run(fmt::format("ip link set {} up", NameOf(side)));
  }
  struct stat own {};
  stat(NamespaceOf(getpid()).c_str(), &own);
  for (size_t host = 0; host < hosts; ++host) {
    // Ends with the test, also when that is killed.
    const pid_t process =
        SpawnProgram({"setpriv", "--pdeathsig", "KILL", "unshare", "-n", "sleep", "infinity"}, -1);
    hosts_.push_back(process);
    struct stat there {};
    const auto most = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (stat(NamespaceOf(process).c_str(), &there) == 0 && there.st_ino == own.st_ino) {
      if (std::chrono::steady_clock::now() > most) {
        ADD_FAILURE() << "a host has no network of its own";
        return;
      }
      std::this_thread::yield();
    }
    const std::string enter = fmt::format("nsenter --net={} ", NamespaceOf(process));
    Run(enter + "ip link set lo up");
    for (const Side side : kSides) {
      Run(fmt::format("ip link add {}{} type veth peer name {} netns {}", NameOf(side), host,
                      NameOf(side), process));
      Run(fmt::format("ip link set {}{} master {} up", NameOf(side), host, NameOf(side)));
      Run(enter + fmt::format("ip address add {}/24 dev {}", address(host, side), NameOf(side)));
      Run(enter + fmt::format("ip link set {} up", NameOf(side)));
    }
  }
}

HostNetwork::~HostNetwork() {
  for (const pid_t process : hosts_) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
}

std::string HostNetwork::address(size_t host, Side side) const {
  return fmt::format("10.77.{}.{}", side == Side::kFront ? 1 : 2, host + 1);
}

std::vector<std::string> HostNetwork::On(size_t host) const {
  return {"nsenter", "--net=" + NamespaceOf(hosts_.at(host)), "--"};
}

void HostNetwork::MoveTo(size_t host) const {
  const FileDescriptor there(open(NamespaceOf(hosts_.at(host)).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(setns(there.get(), CLONE_NEWNET), 0);
}

void HostNetwork::Pull(size_t host, Side side) {
  Run(fmt::format("ip link set {}{} nomaster", NameOf(side), host));
}

void HostNetwork::Plug(size_t host, Side side) {
  Run(fmt::format("ip link set {}{} master {}", NameOf(side), host, NameOf(side)));
}

}  // namespace pinstripe
