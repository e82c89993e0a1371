#include "tools/process_use.h"

#include <fmt/format.h>
#include <linux/tcp.h>  // glibc's tcp_info does not count bytes
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "kinetic/io.h"
#include "redis/address.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

// The fields of /proc/PID/stat are numbered from 1. The second is the program's name in parentheses
// and may contain anything, so counting begins after it.
constexpr int kFirstField = 3;
constexpr int kUserTimeField = 14;

// The inodes of sockets that listen on `port`.
void AddListeners(const char* table, uint16_t port, std::set<std::string>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // names of the columns
  const std::string wanted = fmt::format(":{:04X}", port);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmit, user, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmit >> user >>
        timeout >> inode;
    if (fields && state == "0A" && local.ends_with(wanted)) inodes.insert(inode);
  }
}

bool HoldsOneOf(const fs::path& process, const std::set<std::string>& inodes) {
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(process / "fd", error)) {
    const std::string target = fs::read_symlink(file.path(), error).string();
    if (target.starts_with("socket:[") && inodes.contains(target.substr(8, target.size() - 9))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<ProcessUse> UseOf(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int i = kFirstField; i < kUserTimeField; ++i) fields >> field;
  double user = 0;
  double system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  ProcessUse use;
  use.cpu_seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream io(fmt::format("/proc/{}/io", pid));
  for (uint64_t count = 0; io >> field >> count;) {
    if (field == "write_bytes:") use.written_bytes = count;
  }
  return use;
}

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

SocketBytes OwnSocketBytes() {
  SocketBytes all;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator("/proc/self/fd", error)) {
    const std::string name = file.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;  // something else
    all.sent += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
    all.received += info.tcpi_bytes_received;
  }
  return all;
}

std::optional<pid_t> ListenerOn(uint16_t port) {
  std::set<std::string> inodes;
  AddListeners("/proc/net/tcp", port, inodes);
  AddListeners("/proc/net/tcp6", port, inodes);
  if (inodes.empty()) return std::nullopt;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename().string();
    pid_t pid = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc() || end != name.data() + name.size()) continue;
    if (HoldsOneOf(process.path(), inodes)) return pid;
  }
  return std::nullopt;
}

std::optional<pid_t> DaemonAt(std::string_view address) {
  const Result<HostAndPort> at = ParseAnyDriveAddress(address);
  if (!at || !(at->host == "localhost" || at->host == "::1" || at->host.starts_with("127."))) {
    return std::nullopt;
  }
  return ListenerOn(static_cast<uint16_t>(std::stoul(at->port)));
}

}  // namespace pinstripe
